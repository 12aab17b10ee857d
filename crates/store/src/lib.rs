//! The ordered key-value store: the interface of engines, and the log that they share.
//!
//! A store is a set of **trees**, each an ordered map of byte keys to byte values. All trees share
//! one log. An operation enters as a [`Batch`], is appended to the log and applied to the trees;
//! [`Durable::sync`] makes it durable. Two engines, `btree` and `lsm`, keep the trees; the rest of
//! a store is written once around them ([`Journaled`]). `testing::MemStore` is the oracle. The log
//! is a set of files, or of objects in an object store.
//!
//! Promises: a batch is all or nothing, to readers, clones, checkpoints and recovery. Batches
//! become durable in the order of their numbers, so a crash leaves a prefix of them. A batch that
//! is refused (`NoSpace`, a limit) changed nothing. After a write or sync that failed, the store is
//! read-only until it is opened again (`ReadOnly`). Damage is an error that names file and byte.
//!
//! Which module decides what:
//! * `journaled`: what a store does beside its engine: open, close, when a checkpoint runs
//! * `journal`: counters of the log, whether and why the store takes no changes, queries of the
//!   disk's space
//! * `options`: bounds common to engines, and how much of a disk stays free
//! * `over`: a store that changes some calls of another one
//! * `log`: records, their order, group commit, recovery, salvage; files or objects
//! * `pinned`: a kept state; shared walks
//! * `store`: the traits
//! * `batch`: what is committed at once, and which batches pass on a full disk
//! * `pattern`: partial clones by patterns of keys
//! * `run`: the input of an ingest
//! * `read`, `range`: look-ups and ranges of keys
//! * `check`: findings, and the remedy that each names
//! * `stats`, `place`, `error`, `types`: counters, where the log is, errors, numbers

// A store around an engine.
mod journaled;
mod journal;
mod options;
mod over;

// The log.
mod log;

// The traits, and what their calls take.
mod pinned;
mod store;
mod batch;
mod pattern;
mod run;
mod read;
mod range;
mod check;
mod stats;
mod place;
mod error;
mod types;

pub use batch::{Batch, BatchFull, Need};
pub use check::{CheckProgress, CheckReport, Finding, FindingKind, Remedy};
pub use error::{Error, Result, missing};
pub use format::batch::{KEY_BYTES_MAX, Lane, MergeKind, VALUE_BYTES_MAX};
pub use journal::{ClosedLog, Journal, LOG_DIRECTORY, Writer};
pub use journaled::{Engine, IngestInto, Journaled};
pub use log::{
    Cut, Grant, Log, LogKey, LogOptions, LogPosition, LogSpace, LogStats, ObjectPlace, Opening,
    Recovery, Replay, Verified,
};
pub use options::{DIRTY_BYTES_MIN, EngineOptions, kept_for_checkpoints};
pub use over::Over;
pub use pattern::{Matching, Pattern, Patterns};
pub use pinned::{Logged, LostRange, Pinned, SharedWalk};
pub use place::{LogObjects, LogPlace, ObjectLogSettings};
pub use range::{KeyRange, prefix_end};
pub use read::{Cursor, Diff, DiffCursor, Item, Read};
pub use run::{Ascending, SliceRun, SortedRun};
pub use stats::{MergeStats, Stats, ValueLogStats};
pub use store::{Barrier, Commit, Durable, Maintain, Snapshot, Store, Waker};
pub use types::{CommitToken, Durability, Lsn, TreeId};
