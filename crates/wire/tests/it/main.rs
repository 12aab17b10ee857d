//! Messages: round trips, and arbitrary bytes.

mod fuzz;
mod remote_page;
mod roundtrip;
