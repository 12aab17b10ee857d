//! Indexes of other file systems: a subvolume of attributes without contents, which scans write
//! in bulk.
//!
//! A scan writes a clone of the subvolume's tree, directory by directory, and only what differs;
//! one commit puts the clone in the place of the tree. So whoever reads meanwhile sees the last
//! state that a scan completed, a scan that is given up or crashes changes nothing, and the next
//! one goes on in the same clone.
//!
//! [`begin`](crate::Fs::scan_begin) and the end are in `run`; `rows` writes the names of a
//! directory; `vanish` removes what is not there any more; `links` knows inodes with several
//! names; `skeleton` tells what directories were like; `told` is for front ends.

mod api;
mod links;
mod rows;
mod run;
mod skeleton;
mod told;
mod vanish;

pub use api::{Listed, Outside, ScanInfo, ScanOptions};
pub use rows::{Names, ScanDirectory};
pub(crate) use run::Slot;
pub use run::{Scan, ScanDone};
pub use skeleton::{KnownChild, KnownDirectory};
