//! Comparing two states of a directory: what was created, removed, renamed and modified, at the
//! cost of what differs.
//!
//! 1. `run` pins one state of the store, which holds both trees, and queues the pair of
//!    directories. Subvolumes that are mounted below are pairs of their own (`mounts`).
//! 2. `gather` reads the differences of the two trees, and notes the inodes that they are about.
//!    Where a directory can be reached in one state alone, everything below it is noted.
//! 3. `judge` looks each noted inode up in both states (`side`), and turns what differs into
//!    changes (`change`), which leave in the order of their paths.
//!
//! Memory is bounded (`bounds`): beyond so many inodes the trees are compared again, for one range
//! of inode numbers after the other. What cannot be divided ends the comparison.

mod run;
mod judge;
mod gather;
mod mounts;
mod side;
mod change;
mod bounds;

pub use change::{Compared, Difference, Fields};
pub use inode::{ChangeKind, Field};
pub use run::Changes;
