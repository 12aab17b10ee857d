//! The log that engines share: records in order, group commit, recovery, trimming.
//!
//! The path of a record has three parts. [`append`](Log::append) gives it a number, mostly from a
//! `reservation`, and puts its bytes in a `stage`. In `write` one leader at a time takes the bytes
//! of all threads, in LSN order, reaches the barrier, writes and syncs. `segment` has the files. In
//! an object store several threads write an object each instead (`objects`). It is read back
//! through `recover`, or, by readers of changes, through `kept`. `docs/format/log.md` and
//! `log-object.md` have the bytes, and `docs/guide/crash-safety.md` the argument.
//!
//! Which module decides what:
//! * `append`, `reservation`, `state`, `stage`: numbers, space, buffers
//! * `write`, `segment`: who writes, when it syncs, which files
//! * `recover`, `search`, `sums`: what is replayed, where a torn tail ends
//! * `stray`, `beginning`: files of other names, damaged headers
//! * `kept`, `beside`: segments and records for readers
//! * `salvage`, `verify`: cutting at damage, checks
//! * `objects`: the same over objects
//! * `options`: settings, statistics

// Appending, and who writes.
mod beside;
mod write;
mod append;

// Opening, and damage.
mod salvage;
mod verify;
mod recover;
mod stray;
mod search;

// Segments, and a log of objects.
mod kept;
mod objects;
mod beginning;
mod options;
mod reservation;
mod state;
mod segment;
mod sums;
mod stage;

#[cfg(test)]
mod tests;

pub use append::Log;
pub use objects::{Grant, LogPosition, ObjectPlace, Opening};
pub use options::{LogKey, LogOptions, LogStats, Recovery};
pub use recover::Replay;
pub use salvage::Cut;
pub use state::LogSpace;
pub use verify::Verified;
