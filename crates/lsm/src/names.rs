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

/// No store reaches greater numbers; a file that bears one was put there by another program. The
/// limit is half of what can be read, because numbers continue from what is found.
pub(crate) const NUMBER_MAX: u64 = format::COUNTED_MAX / 2;

/// The name of a manifest.
pub(crate) fn manifest_name(number: u64) -> String {
    format!("{MANIFEST_PREFIX}{number:016x}")
}

/// Both names of a manifest, in the order in which they are made.
pub(crate) fn both_names(number: u64) -> [String; 2] {
    [manifest_name(number), format!("{COPY_PREFIX}{number:016x}")]
}
