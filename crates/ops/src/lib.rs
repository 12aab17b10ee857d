//! POSIX operations, one a file, and the verbs on subvolumes. Each yields a plan, which `execute`
//! executes: locks, commit, effects.
//!
//! An operation knows no quota and no trash: its caller passes a [`policy::Policy`], which sees the
//! plan. It leaves later work in [`queue`], and starts no background work.
//!
//! Promises: an operation is one batch, so others see all of it or nothing, and so does a crash. It
//! is durable once the log is synced past it, not before. Only what changes more of a file than a
//! batch holds is several batches, each a change of its own. Such are a long write, a copy, a hole
//! or truncation over many extents, and a flush of an import. A snapshot first gives copies what
//! they inherit. What an operation decided by still holds when it commits: it is read again under
//! the locks. Locks are taken all at once, in one order, so no two operations wait for each other;
//! none is held while front ends are notified. Snapshots, clones and roll-backs cost the same
//! whatever is in the directory.
//!
//! Where to begin: `posix/unlink.rs` for an operation, `plan` for what it yields, `execute` for
//! what becomes of it, `subvolumes/snapshot.rs` for a verb.
//!
//! Which module decides what:
//! * `execute`, `plan`, `operations`: how a change is locked, committed and applied; what it
//!   consists of
//! * `policy`: what quotas and the trash see
//! * `posix`: calls, one a file
//! * `handles`: a file by its number alone
//! * `subvolumes`: snapshots, clones, rollbacks, removals of trees, holds
//! * `contents`, `ranges`, `edit`: contents of a file: where bytes go, holes, copies
//! * `object`, `orphan`: what moves with a name; inodes without one
//! * `bulk`, `unfinished`: many inodes at once, and what a crash left of them
//! * `once`: sessions of clients, and the answers to changes that are executed once
//! * `search_call`, `path_of`, `reach`: searches and their states; paths of directories
//! * `queue`: what is left for upkeep

// Answers that are kept for repeats; many inodes at once.
pub mod once;
pub mod bulk;

// The calls of a file system.
pub mod handles;
pub mod posix;

// The verbs on subvolumes, and searches.
pub mod path_of;
pub mod search_call;
pub mod subvolumes;

// What calls on contents share.
pub mod ranges;
pub mod contents;
pub mod edit;
pub mod object;
pub mod orphan;

// How a change is planned and executed.
pub mod operations;
pub mod policy;
pub mod plan;
pub mod execute;
pub mod reach;

// What is left to be done later.
pub mod queue;
pub mod unfinished;

pub use operations::Ops;
