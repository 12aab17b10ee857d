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
mod listing;
mod random;
mod resume;
mod users;
mod world;
