//! Messages: round trips, and arbitrary bytes.

mod fuzz;
mod parts;
mod remote_page;
mod roundtrip;
