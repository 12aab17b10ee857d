//! Snapshots, clones, roll-back, removal of trees: the verbs on whole directories. Each is one
//! commit, whose cost does not depend on what is in the directory.
//!
//! Order of what is taken: the ledger, gates of subvolumes by their numbers, striped locks.
//!
//! Which module decides what:
//! * `execute`, `know`, `ledger`, `learn`, `mounts`, `changes`: locks, one commit, the memory of
//!   all subvolumes
//! * `copy`, `copied`: what a copy is, for snapshots, clones and rollbacks
//! * `snapshot`, `clone`, `rollback`, `create`, `rmr`, `rename`: the verbs
//! * `inherit`, `before_change`, `spare`, `nested`, `heirs`: nested subvolumes, what copies
//!   inherit, what they are given before that changes, how many may
//! * `kept`, `above`: snapshots below a directory, subvolumes above
//! * `owned`: who may remove a tree
//! * `shares`: how many a user makes
//! * `reachable`, `way`: what names reach, and paths of it
//! * `retention`, `received`: schedules and holds; where one was received from
//! * `link`, `access`, `named_state`, `correct`, `heirs_below`: names of subvolumes, and what
//!   searches and comparisons need

// The verbs.
mod create;
mod clone;
mod rollback;
mod received;
mod rename;
mod link;
mod rmr;
mod correct;
mod retention;
pub mod snapshot;

// What a copy inherits.
mod before_change;
mod heirs;
mod spare;
mod inherit;
mod listed;
mod kept;
mod reachable;
mod way;
mod named_state;
pub mod heirs_below;

// How a copy is planned and executed.
mod copy;
mod copied;
mod execute;

// Subvolumes, and who may do it.
mod above;
pub mod owned;
mod nested;
mod know;
mod ledger;
mod learn;
mod changes;
mod mounts;
mod shares;
pub mod access;

pub use above::parent_of_root;
pub use before_change::SeenHeirs;
pub use clone::{CloneDirectory, Mount};
pub use copied::Copied;
pub use copy::copies_of_this_thread;
pub use create::CreateSubvolume;
pub use execute::{Gates, Through, Verb, VerbContext, execute, execute_through, execute_with};
pub use ledger::{Admin, Ledger};
pub use link::{RemoveSubvolume, remove_link};
pub use nested::{Access, Inside, Member, inside};
pub use rename::{RenameAcross, Side, rename_across};
pub use rmr::{Attempt, RemoveTree};
pub use rollback::RollBack;
pub use snapshot::{TakeSnapshot, plan_detach};
