//! Messages: round trips, and arbitrary bytes.

mod fuzz;
mod roundtrip;
