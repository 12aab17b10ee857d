//! Options for opening a store.

use std::sync::Arc;

use device::Blobs;
use format::run_manifest::RunManifest;
use store::{DIRTY_BYTES_MIN, EngineOptions};

/// The merge policy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Policy {
    /// Merges runs of similar size, so that an entry is written once a tier.
    #[default]
    Tiered,
    /// Merges all runs of a tree after each checkpoint, as BabuDB does (II.B): a look-up meets one
    /// run.
    Full,
}

/// Options for opening a store.
#[derive(Debug, Clone)]
pub struct Options {
    /// Options common to all engines.
    pub common: EngineOptions,
    /// Bytes of a block of a run before it is packed.
    pub block_bytes: usize,
    /// Level of zstd for blocks, 1 to 19; 0 packs none.
    pub compression: i32,
    /// Most bytes that merges write in a second; 0: no bound. A checkpoint that finds a tree too
    /// deep merges regardless.
    pub merge_bytes_per_second: u64,
    /// The merge policy.
    pub policy: Policy,
    /// Size in bytes from which a value goes to a value log (IndexFS II.C); 0: none does. Used only
    /// when a store is created; an existing store has this setting on disk.
    pub values_from: u64,
    /// Bytes of rows up to which a merge that meets a value log rewrites it, so that small
    /// checkpoints do not leave many.
    pub small_log_bytes: u64,
    /// Bytes of a key that keys which are scanned together share: a filter also shows which of such
    /// prefixes a run has. 0: none does.
    /// Used only when a store is created; an existing store has this setting on disk.
    pub prefix_bytes: usize,
    /// Where runs and manifests are kept; `None`: in the volume's directory. The log, and
    /// unfinished files, stay there in any case.
    pub blobs: Option<BlobStore>,
}

/// A store of immutable objects.
#[derive(Clone)]
pub struct BlobStore(pub Arc<dyn Blobs>);

impl std::fmt::Debug for BlobStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BlobStore")
    }
}

impl Default for Options {
    fn default() -> Options {
        Options {
            common: EngineOptions::default(),
            block_bytes: 16 << 10,
            compression: 1,
            merge_bytes_per_second: 0,
            policy: Policy::Tiered,
            values_from: 0,
            small_log_bytes: 4 << 20,
            prefix_bytes: 0,
            blobs: None,
        }
    }
}

impl Options {
    /// The defaults, with a cache of this many bytes.
    pub fn with_cache(bytes: usize) -> Options {
        let common = EngineOptions { cache_bytes: bytes, ..EngineOptions::default() };
        Options { common, ..Options::default() }
    }

    /// The same for an existing store, which records its own layout.
    pub(crate) fn of_store(&self, manifest: &RunManifest) -> Options {
        let RunManifest { values_from, prefix_bytes, .. } = *manifest;
        Options { values_from, prefix_bytes, ..self.clone() }
    }

    /// Bytes of in-memory trees from which a checkpoint is due.
    pub(crate) fn dirty_bytes_due(&self) -> usize {
        (self.common.cache_bytes / 16 * 5).max(DIRTY_BYTES_MIN).min(self.blob_share())
    }

    /// Bytes from which the thread that commits makes the checkpoint, if no other thread does.
    pub(crate) fn dirty_bytes_max(&self) -> usize {
        (self.common.cache_bytes / 8 * 3)
            .max(DIRTY_BYTES_MIN / 4 * 5)
            .min(self.blob_share() / 4 * 5)
    }

    /// Most bytes of in-memory trees.
    pub(crate) fn dirty_bytes_limit(&self) -> usize {
        self.common.dirty_bytes_limit().min(self.blob_share() * 2)
    }

    /// A quarter of the longest blob: a checkpoint writes everything in memory to one.
    fn blob_share(&self) -> usize {
        let longest = self.blobs.as_ref().map_or(u64::MAX, |blobs| blobs.0.bytes_max());
        usize::try_from(longest / 4).unwrap_or(usize::MAX / 4)
    }

    /// Bytes of cached blocks.
    pub(crate) fn block_cache_bytes(&self) -> usize {
        self.common.cache_bytes / 2
    }
}
