//! Snapshots, clones, roll-back, removal of trees: the verbs on whole directories. Each is one
//! commit, whose cost does not depend on what is in the directory.
//!
//! Order of what is taken: the ledger, gates of subvolumes by their numbers, striped locks.

mod above;
pub mod access;
mod clone;
mod copied;
mod copy;
mod correct;
mod create;
mod execute;
pub mod heirs_below;
mod inherit;
mod kept;
mod leads;
mod ledger;
mod link;
mod mounts;
mod nested;
pub mod owned;
mod received;
mod rename;
mod retention;
mod rmr;
mod rollback;
mod shares;
pub mod snapshot;

pub use above::parent_of_root;
pub use copied::Copied;
pub use execute::{Gates, Through, execute, execute_through, execute_with};
pub use ledger::{Admin, COUNT_MAX, Ledger};
pub use link::remove_link;
pub use nested::{Inside, Member, inside};
pub use rename::rename_across;
pub use snapshot::plan_detach;
