//! The verbs, one file each, in the order in which a user meets them.

// Volumes and mounts.
pub(crate) mod cluster;
pub(crate) mod index;
pub(crate) mod format;
pub(crate) mod mount;
pub(crate) mod mount_far;
pub(crate) mod mount_helper;
pub(crate) mod serve;
mod serve_cluster;
pub(crate) mod umount;

// What is in a volume.
pub(crate) mod ls;
pub(crate) mod stat;
pub(crate) mod cat;
pub(crate) mod find;
pub(crate) mod search;
pub(crate) mod summary;
pub(crate) mod du;
pub(crate) mod info;
pub(crate) mod status;

// What has changed, and checks.
pub(crate) mod diff;
pub(crate) mod history;
pub(crate) mod fsck;
pub(crate) mod gc;

// Snapshots and clones.
pub(crate) mod snapshot;
pub(crate) mod clone;
pub(crate) mod rollback;
pub(crate) mod subvolume;
pub(crate) mod dump;
pub(crate) mod stream;
pub(crate) mod rmr;
pub(crate) mod trash;
pub(crate) mod quota;
pub(crate) mod sync;

// Other file systems.
pub(crate) mod import;
pub(crate) mod export;
pub(crate) mod bench;
pub(crate) mod trace;
pub(crate) mod replay;

// The program itself.
pub(crate) mod daemon;
pub(crate) mod generate;

// What verbs share.
pub(crate) mod session;
pub(crate) mod attr_text;
