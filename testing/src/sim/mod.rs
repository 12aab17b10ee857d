//! `SimDevice`: a disk in memory whose power can be cut at any write or sync.
//!
//! From bottom to top: a set of block numbers (`ranges`), the bytes of a file (`content`), files
//! and directories with what is durable of each and what is pending (`medium`), what a power cut
//! leaves (`crash`), errors to order (`fault`), and the handles that code under test is given
//! (`device`, `file`), and objects far away, for which the disk stands as well (`objects`).
//!
//! The model of the disk:
//! * A file's bytes and length are durable after `sync_data`. Of the writes since, any subset may
//!   survive a power cut, each torn at sectors of 512 bytes. A sector has the bytes of one of the
//!   writes that covered it, or of none; that covers every order in which a cache may write back.
//! * A directory's creations, renames and removals are durable after `sync_dir` of it, and not
//!   by syncing the file. Any subset of those since may survive. A rename between directories
//!   may leave both names, but never neither.
//! * After a failed `sync_data` some of the pending bytes are durable and the rest never become
//!   so by a later sync, although reads show them: what Linux does.
//! * Room is accounted in blocks of 4096 bytes. A write that does not fit writes what fits.

mod content;
mod crash;
mod device;
mod fault;
mod file;
mod medium;
mod objects;
mod ranges;
#[cfg(test)]
mod tests;

pub use crash::CrashPolicy;
pub use device::{Counts, SimDevice};
pub use fault::{Fault, FaultError, FaultOn, Op};
pub use objects::SimObjects;
