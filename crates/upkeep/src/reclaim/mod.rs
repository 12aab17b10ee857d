//! Reclaims the space of what nothing points to, in bounded steps: detached directories entry by
//! entry, subvolumes and trees whole, and, by pruning, what a snapshot or clone shares but cannot
//! reach.

mod catch_up;
mod count;
mod directory;
mod due;
mod extract;
mod prune;
pub mod release;
mod step;
mod stuck;
mod subvolume;

pub use step::Waiting;
pub use step::{Reclaim, detached_step, reclaim_step};
