//! Messages: round trips, and arbitrary bytes.

mod asked;
mod control_page;
mod fuzz;
mod page;
mod parts;
mod remote_page;
mod roundtrip;
