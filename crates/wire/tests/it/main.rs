//! Messages: round trips, and arbitrary bytes.

mod asked;
mod fuzz;
mod parts;
mod remote_page;
mod roundtrip;
