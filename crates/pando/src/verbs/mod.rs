//! The verbs, one file each, in the order in which a user meets them.

pub(crate) mod cluster;
pub(crate) mod format;
pub(crate) mod mount;
pub(crate) mod mount_far;
pub(crate) mod mount_helper;
pub(crate) mod serve;
mod serve_cluster;
pub(crate) mod umount;

pub(crate) mod diff;
pub(crate) mod du;
pub(crate) mod dump;
pub(crate) mod export;
pub(crate) mod find;
pub(crate) mod fsck;
pub(crate) mod gc;
pub(crate) mod history;
pub(crate) mod info;
pub(crate) mod ls;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod stat;
pub(crate) mod status;
pub(crate) mod summary;

pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod import;
pub(crate) mod index;

pub(crate) mod clone;
pub(crate) mod quota;
pub(crate) mod replay;
pub(crate) mod rmr;
pub(crate) mod rollback;
pub(crate) mod snapshot;
pub(crate) mod stream;
pub(crate) mod subvolume;
pub(crate) mod sync;
pub(crate) mod trace;
pub(crate) mod trash;

pub(crate) mod generate;
pub(crate) mod owner;

pub(crate) mod attr_text;
