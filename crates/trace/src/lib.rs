//! Traces of the calls of a file system: a wrapper records them, and programs read, convert,
//! anonymise, generate and replay them (`docs/format/trace.md`).
//!
//! * [`Traced`] wraps any `FileSystem`; [`Recorder`] writes what it saw, by a thread of its own.
//! * [`TraceReader`] and [`TraceWriter`] are the two ends of a file.
//! * [`json`], [`Anonymiser`], [`Summary`] and [`generate`] take events one at a time.
//! * [`Expected`] has the tree that a trace found when it began, and [`Order`] which events must
//!   wait for which others when a trace is replayed.
//!
//! Promises: recording never makes a caller wait for the disk, and never changes an answer. A
//! reader of a trace takes any bytes: a forged trace is an error, or a tree within the bounds of
//! the format.
//!
//! Which module decides what:
//! * `record_call`, `traced`, `outcome`, `fields`: what of a call is recorded
//! * `recorder`, `writer`: how events reach a file, and which are dropped
//! * `reader`: what of a file is believed
//! * `json`, `anonymise`, `summary`, `generate`: what is made of a trace
//! * `expected`, `order`, `names`: what a replay needs: the tree before it, and who waits for whom

// Recording.
mod traced;
mod record_call;
mod recorder;
mod writer;
mod outcome;

// Reading, and what is made of a trace.
pub mod json;
mod anonymise;
mod summary;
mod reader;
pub mod generate;
mod expected;
mod order;
mod names;

mod fields;

pub use anonymise::{Anonymiser, Keep};
pub use expected::{Expected, Placed};
pub use names::{NameIn, Names, Touched, is_entry};
pub use order::{Claims, Order, Task};
pub use outcome::ended_by;
pub use reader::{End, TraceReader};
pub use record_call::Traced;
pub use recorder::{Limits, Recorder, Sink};
pub use summary::{Distinct, OfCall, Percentiles, Summary};
pub use writer::TraceWriter;

/// What can be wrong with a trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It could not be read or written.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It is no trace.
    #[error("this is not a trace of pando: {0}")]
    NotATrace(format::Malformed),
    /// A newer program wrote it.
    #[error("a trace of version {0}, which a newer program wrote")]
    Newer(u32),
    /// A block or an event is damaged.
    #[error("damaged at byte {at}: {what}")]
    Damaged {
        /// Where the block begins in the file.
        at: u64,
        /// What is wrong.
        what: format::Malformed,
    },
    /// A block is missing, repeated, or out of order.
    #[error("damaged at byte {at}: block {found} where block {expected} belongs")]
    OutOfOrder {
        /// Where the block begins in the file.
        at: u64,
        /// The number that belongs there.
        expected: u64,
        /// Its number.
        found: u64,
    },
    /// A line of JSON contains something else than an event.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        what: String,
    },
}
