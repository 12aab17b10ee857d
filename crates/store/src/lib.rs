//! The ordered key-value store: the interface of engines, and the log that they share.
//!
//! A store is a set of **trees**, each an ordered map of byte keys to byte values. All trees share
//! one log. An operation enters as a [`Batch`], is appended to the log and applied to the trees;
//! [`Store::sync`] makes it durable. Two engines implement the trait, `btree` and `lsm`; what both
//! keep beside their trees is [`Journal`]. `testing::MemStore` is the oracle.

mod batch;
mod check;
mod error;
mod journal;
mod log;
mod options;
mod pattern;
mod range;
mod read;
mod run;
mod store;
mod types;

pub use batch::{Batch, BatchFull, Need};
pub use check::{CheckProgress, CheckReport, Finding, FindingKind, Remedy};
pub use error::{Error, Result, UNREAD};
pub use format::batch::{KEY_BYTES_MAX, Lane, MergeKind, VALUE_BYTES_MAX};
pub use journal::{Journal, Writer};
pub use log::{Cut, Log, LogKey, LogOptions, LogStats, Recovery, Replay, Room, Verified};
pub use options::{DIRTY_BYTES_MIN, EngineOptions, ROOM_LOOK_EVERY, kept_for_checkpoints};
pub use pattern::{Matching, Pattern, Patterns};
pub use range::{KeyRange, prefix_end};
pub use read::{Cursor, Diff, DiffCursor, Item, Read};
pub use run::{Ascending, SliceRun, SortedRun};
pub use store::{
    Barrier, LostRange, MergeStats, Pinned, SharedWalk, Stats, Store, ValueLogStats, Waker,
};
pub use types::{CommitToken, Durability, Lsn, TreeId};
