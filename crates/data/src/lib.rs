//! File contents: extents in the trees, bytes in log-structured segments.
//!
//! A write appends its bytes to the open segment and plans records that name them into the caller's
//! batch ([`Data::write`]). Before the log writes that batch it reaches the barrier, which makes
//! the bytes durable. A read finds the records and verifies every chunk against its checksum
//! ([`Data::read`]). Space that a commit freed is punched once the commit is durable
//! ([`Data::clean_step`]); marking finds free space that clones may have shared ([`Data::mark`]).
//!
//! Promises: no byte that a record names is overwritten. A segment takes bytes only from the
//! opening that created it. Bytes are durable before a record that names them, and punched only
//! after the commit that freed them is durable. A failed sync is latched: nothing is written after
//! it until the volume is opened again. A chunk that is not what was written is an error.
//!
//! Which module decides what, in the order of a write:
//! * `data`, `options`: the handle of a volume's contents; its limits
//! * `write`, `gather`: where bytes go; those of files that are being made
//! * `inline`, `hot`, `settle`: which bytes stay in records, and when they move to a segment
//! * `window`, `cut`: extents that are there, and what is left of them
//! * `alloc`, `pages`, `segments`: pages and files that take bytes
//! * `barrier`, `upload`: what is durable before its record
//! * `read`, `extents`: bytes, and where they are
//! * `truncate`, `share`: shorter files, and contents of two files
//! * `garbage`, `clean`, `rewrite`, `gc`: which space is free, how it is given back, what clones
//!   may share
//! * `recover`, `proof`, `check`: segments at an opening; whose a file is; verification

// Opening, and checks.
mod recover;
mod check;
mod proof;

// Calls.
mod share;
mod truncate;
mod extents;
mod inline;
mod read;
mod hot;

// Durability.
mod barrier;
mod upload;
mod settle;

// Space.
mod rewrite;
mod gc;
mod clean;

// The handle, how bytes are written, and segments.
mod gather;
mod write;
mod cut;
mod data;
mod garbage;
mod pages;
mod alloc;
mod segments;
mod window;
mod options;

pub use alloc::PageRun;
pub use check::{ContentCheck, SegmentFault, SegmentFaultKind, Suspicion};
pub use clean::Cleaned;
pub use cut::Freed;
pub use data::Data;
pub use extents::{ExtentCursor, ExtentInfo};
pub use format::extent::{CHUNK_BYTES, INLINE_EXTENT_BYTES_MAX, STORED_BYTES_MAX};
pub use garbage::Stats;
pub use gather::Gathered;
pub use gc::{Horizon, Marked, Marking, Report, SegmentReport, Swept};
pub use options::{ExtentOwner, FileRef, Options};
pub use settle::Settled;
pub use share::{Shared, Side};
pub use truncate::{Punched, Released, Truncated};
