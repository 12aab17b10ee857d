//! Indexes of other file systems: a subvolume of attributes without contents, which scans write in
//! bulk.
//!
//! A scan writes a clone of the subvolume's tree, directory by directory, and only what differs;
//! one commit replaces the tree by the clone. So readers see the last state that a scan completed
//! until then. An abandoned or crashed scan changes nothing, and the next one continues in the same
//! clone.
//!
//! [The beginning](crate::Upkeep::scan_begin) and the end are in `run`. `rows` writes the names of
//! a directory; `vanish` removes what no longer exists; `links` records inodes with several names.
//! `skeleton` returns the previous state of directories; `notify` is for front ends.

mod vanish;
mod rows;
mod skeleton;
mod run;
mod notify;
mod links;
mod api;

pub use api::{Listed, ScanInfo, ScanOptions};
pub use inode::Outside;
pub use rows::{Names, ScanDirectory};
pub use run::Slot;
pub(crate) use run::info;
pub use run::{Scan, ScanDone};
pub use skeleton::{KnownChild, KnownDirectory};
