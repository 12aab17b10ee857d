//! Names of the objects of a store, and the ranges of their numbers.

/// Prefix of the names of manifests.
pub(crate) const MANIFEST_PREFIX: &str = "manifest-";
/// Prefix of the names of their copies.
pub(crate) const COPY_PREFIX: &str = "copy-";
/// Prefix of the names of blobs of runs.
pub(crate) const BLOB_PREFIX: &str = "run-";

/// Blobs that a process makes at most between two manifests, if its log is in an object store. The
/// next opening counts on from so far above the last manifest's, and the two never use one number.
pub(crate) const BLOBS_AT_ONCE: u64 = 1 << 20;
