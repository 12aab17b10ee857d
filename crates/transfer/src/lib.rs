//! Streams of snapshots: `send` writes one, `Receiver` applies one.
//!
//! A stream is a list of steps on paths (`docs/format/stream.md`), so both sides need to remember
//! nothing of inodes: the receiver keeps one record, and a stream that was cut continues at any
//! record. Sending reads a snapshot with the rights of the caller. What is received is built in a
//! subvolume of its own and becomes visible at once, when the whole stream was verified.

mod attributes;
mod contents;
mod dump;
mod error;
mod full;
mod increment;
mod job;
mod load;
mod out;
mod plan;
mod receive;
mod send;
mod stage;
mod token;
mod walk;

pub use dump::dump;
pub use error::{Error, Result};
pub use load::Loader;
pub use receive::{ReceiveOptions, Received, Receiver, Suspended};
pub use send::{SendOptions, Sent, send};
pub use token::Token;
