//! Policies: quotas and the trash see each plan before it is executed, and add to it, redirect it
//! or refuse it ([`policies::Policies`]). [`Governed`] is a volume with the two.

pub mod governed;
pub mod policies;

// Quotas of directories, of users and groups.
pub mod owners;
pub mod quota;
pub mod quota_adopt;
pub mod quota_check;
pub mod quota_copies;
mod settings;

pub mod trash;

pub use governed::Governed;
