//! Streams of snapshots: `send` writes one, `Receiver` applies one.
//!
//! A stream is a list of steps on paths (`docs/format/stream.md`), so both sides need to remember
//! nothing of inodes: the receiver keeps one record, and a stream that was cut continues at any
//! record. Sending reads a snapshot with the rights of the caller. What is received is built in a
//! subvolume of its own and becomes visible at once, when the whole stream was verified.

// Metadata as lines.
mod load;
mod dump;

// Sending.
mod send;
mod increment;
mod full;
mod plan;
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
mod error;

pub use dump::dump;
pub use error::{Error, Result};
pub use load::Loader;
pub use receive::{ReceiveOptions, Received, Receiver, Suspended};
pub use send::{SendOptions, Sent, send};
pub use token::Token;
