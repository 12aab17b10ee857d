//! Streams of snapshots: `send` writes one, `Receiver` applies one.
//!
//! A stream is a list of steps on paths (`docs/format/stream.md`), so both sides need to remember
//! nothing of inodes. The receiver keeps one record, and an interrupted stream continues at any
//! record. Sending reads a snapshot with the rights of the caller. What is received is built in a
//! subvolume of its own and becomes visible at once, when the whole stream was verified.
//!
//! Promises: a stream is not trusted. Any bytes are applied with the caller's rights or refused,
//! and change nothing outside of that subvolume. What was received is durable before it becomes
//! visible. A stream that ends early is an error, and the token to continue it is in the volume. A
//! stream does not depend on the engine or the numbers of the sender. Both sides run in the thread
//! of their caller; memory is bounded by one record, and that of sending by an option.
//!
//! Which module decides what:
//! * `send`, `full`, `increment`, `plan`, `moved`, `separated`: what is sent, and in which order
//! * `receive`, `stage`: what is applied where, and when it becomes visible
//! * `dump`, `load`, `columns`: metadata as lines, or as columns
//! * `token`, `steps`: where a stream continues, and whether it is the same one
//! * `job`, `out`, `walk`, `attributes`, `contents`: parts that both sides use
//! * `error`: why a stream was not sent or applied

// Metadata as lines, and in columns.
mod columns;
mod load;
mod dump;

// Sending.
mod send;
mod increment;
mod plan;
mod separated;
mod full;
mod moved;
mod job;
mod out;

// Receiving.
mod receive;
mod stage;

// What both share.
mod walk;
mod attributes;
mod contents;
mod token;
mod steps;
mod error;

pub use columns::{ColumnWriter, MAGIC as COLUMNS_MAGIC};
pub use dump::dump;
pub use error::{Error, Result};
pub use load::Loader;
pub use receive::{ReceiveOptions, Received, Receiver, Suspended};
pub use send::{SendOptions, Sent, send};
pub use token::{Since, Token};
