//! Reclaims the space of what nothing points to, in bounded steps. Detached directories go entry by
//! entry, subvolumes and trees whole. Pruning reclaims what a snapshot or clone shares but cannot
//! reach.
//!
//! Which module decides what:
//! * `step`: what is removed next, and what holds it
//! * `directory`, `subvolume`: how
//! * `release`: what front ends are to let go
//! * `due`, `prune`, `extract`, `catch_up`: which copies are pruned, and how
//! * `count`: counts of copies
//! * `leaving`: replaced trees that readers may be in
//! * `stuck`: failures

mod step;
mod count;
mod prune;
mod catch_up;
mod subvolume;
mod stuck;
pub mod release;
mod extract;
mod due;
mod leaving;
mod directory;

pub use step::Waiting;
pub use step::{Reclaim, detached_step, reclaim_step};
