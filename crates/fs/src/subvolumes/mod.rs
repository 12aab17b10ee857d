//! Snapshots, clones, roll-back, removal of trees: the verbs on whole directories. Each is one
//! commit, whose cost does not depend on what is in the directory.
//!
//! Order of what is taken: the ledger, gates of subvolumes by their numbers, striped locks.

pub(crate) mod access;
mod clone;
mod copied;
mod copy;
mod create;
mod execute;
pub(crate) mod heirs_below;
mod inherit;
mod kept;
mod leads;
mod ledger;
mod link;
mod mounts;
mod nested;
mod owned;
mod rename;
mod retention;
mod rmr;
mod rollback;
mod shares;
mod snapshot;

pub(crate) use copied::Copied;
pub(crate) use execute::{Gates, Through, execute, execute_through, execute_with};
pub(crate) use ledger::{Admin, COUNT_MAX, Ledger};
pub(crate) use link::{parent_of_root, remove_link};
pub(crate) use nested::{Inside, Member, inside};
pub(crate) use rename::rename_across;
pub(crate) use snapshot::{commit, detach, plan_detach};
