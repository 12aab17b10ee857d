//! Tests of the adapter through the kernel: real mounts of a file system in memory.
//!
//! They need /dev/fuse and the right to mount, and fail if these are missing, unless
//! `SKIP_FUSE=REASON` or `SKIP_ROOT=REASON` declares that this is known.

#![expect(clippy::disallowed_methods, reason = "a mount is used as any program uses it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod again;
mod attributes;
mod contents;
mod invalidation;
mod listing;
mod names;
mod namespace;
mod places;
mod rig;
mod users;
