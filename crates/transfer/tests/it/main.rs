//! Tests of streams: volumes on a simulated disk, of both engines.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "tests stop at what they do not expect, and print their progress"
)]

mod cases;
mod columns;
mod dumps;
mod hostile;
mod left;
mod listing;
#[path = "../../src/moved.rs"]
mod moved;
mod random;
mod resume;
#[expect(unreachable_pub, reason = "a part of the crate, with the tests that it ends with")]
#[path = "../../src/token.rs"]
mod token;
mod users;
mod world;
