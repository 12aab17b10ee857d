//! Policies: quotas and the trash see each plan before it is executed, and add to it, redirect it
//! or refuse it ([`policies::Policies`]). [`Governed`] is a volume with the two.
//!
//! Promises: a plan that a policy refuses is not executed, not even in part. What a quota charges
//! is in the batch of the change that it charges, so charges are exact after a crash. Growth is
//! reserved under the limit before the commit, so no two callers get the last byte. An inode is
//! charged once, in the subvolume that created or first changed it: what a copy inherits is charged
//! to no one. What is removed below a directory with a trash is moved there by the commit that
//! removes its name. Users have no more rights there than where it was. Without a quota and a trash
//! a plan costs one test of a flag in memory.
//!
//! Where to begin: `policies` is what operations call. `quota` and `owners` are limits of
//! directories and of users, over `volume::account`. `trash::place` finds where a name goes, and
//! `trash::keep` moves it there.
//!
//! Which module decides what:
//! * `policies`, `governed`: all policies as operations see them; a volume with them
//! * `charging`: what a plan adds to charges
//! * `quota`, `quota_limits`, `quota_adopt`: limits of directories: in memory, set and reported;
//!   charging what was there before
//! * `owners`, `owner_limits`: the same for users and groups
//! * `quota_copies`: which copies limits refuse
//! * `quota_check`: recounting
//! * `settings`: limits in memory after a commit
//! * `trash`: where removed names go, when they expire, how they come back

// The trash.
pub mod trash;

// Quotas of directories, of users and groups.
pub mod quota_copies;
pub mod quota_adopt;
pub mod quota_limits;
pub mod owner_limits;
pub mod quota_check;
mod settings;

// All of them, as operations see them.
pub mod policies;
pub mod charging;
pub mod governed;

// What quotas keep in memory.
pub mod quota;
pub mod owners;

pub use governed::Governed;
