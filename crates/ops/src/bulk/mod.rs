//! Makes many inodes at once: IndexFS's bulk insertion.
//!
//! What is made is a *draft* in memory first. A draft obeys the same rules as a single create, by
//! the same functions: permissions, inheritance, quotas, names. A flush then makes all drafts
//! visible in one commit:
//!
//! 1. All drafts have numbers of one block, which no other inode gets. So the records of new
//!    directories, and the extents of new files, are two ranges of the tree that hold no key.
//! 2. A record names the block as one that nothing reaches (`DetachedRecord::Inodes`).
//! 3. Both ranges are ingested as sorted runs. The topmost new directories are marked as detached,
//!    so whatever reads the tree treats them as removed.
//! 4. One batch puts the names into the directories that existed before (the *bases*). It removes
//!    the mark and the record of step 2, and changes counts and charges.
//!
//! The gate of the subvolume is held from step 3 to step 4, so no copy has one without the other.
//! A crash before step 4 leaves the record of step 2; the next opening removes the block. Few
//! drafts are one batch without steps 2 and 3.
//!
//! What a draft cannot do is refused with [`Refusal::Flush`]: the caller flushes, and uses the
//! ordinary operation.

mod change;
mod contents;
mod flush;
mod run;
mod make;
mod state;
mod draft;

pub use draft::{DirId, Draft, FileId};
pub use state::{Bulk, Drafted, MEMORY, Maker, Refusal};
