//! Tests of streams: volumes on a simulated disk, of both engines.

mod cases;
mod hostile;
mod listing;
mod random;
mod resume;
mod users;
mod world;
