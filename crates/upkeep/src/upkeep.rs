//! A volume with its upkeep: steps of background work that a caller drives, and what they keep
//! between steps.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use device::Env;
use device::sync::Mutex;
use format::volume::VolumeHeader;
use inode::NameHash;
use ops::Ops;
use policy::Governed;
use store::{Pinned, Store, TreeId};
use vfs::FsResult;
use volume::error::from_store;
use volume::record_copies::RecordCopies;
use volume::{Core, OpenError, OpenOptions, VolumeId, VolumeStatus};

use crate::reclaim::Reclaim;
use crate::scan::Slot;
use crate::search_bases;
use crate::state::{Collecting, ForegroundReclaim, IndexUpkeep};

/// Finds the trees that a collection marks besides those that the records of subvolumes name. What
/// checks volumes supplies it.
pub(crate) type FindTrees = fn(&Upkeep, &dyn Pinned) -> FsResult<Vec<TreeId>>;

/// A volume, its policies, and the work that nobody waits for.
pub struct Upkeep {
    governed: Governed,
    /// Removal of what was detached.
    pub reclaim: Reclaim,
    /// The scan of an index, of which there is one at a time.
    pub scans: Slot,
    /// The search for space.
    pub foreground: ForegroundReclaim,
    /// Upkeep of the index.
    pub(crate) index_work: IndexUpkeep,
    /// Steps of background work so far.
    pub turn: AtomicUsize,
    /// The collection in progress.
    pub collecting: Mutex<Collecting>,
    /// Trees that no record named when the first collection since opening began.
    pub unnamed: Mutex<Option<Vec<u64>>>,
    /// Supplied by what checks volumes.
    pub find_trees: FindTrees,
}

impl Deref for Upkeep {
    type Target = Governed;

    #[inline]
    fn deref(&self) -> &Governed {
        &self.governed
    }
}

impl DerefMut for Upkeep {
    fn deref_mut(&mut self) -> &mut Governed {
        &mut self.governed
    }
}

impl Upkeep {
    /// Opens the volume in a store, over which is the layer that maintains the copies of the
    /// volume's records.
    pub fn open(
        env: Env,
        store: (Arc<dyn Store>, RecordCopies),
        header: VolumeHeader,
        options: &OpenOptions,
        (hash, find_trees): (NameHash, FindTrees),
    ) -> Result<Upkeep, OpenError> {
        let damaged = OpenError::inconsistent;
        let core = Core::open(env, store, header, options, hash)?;
        let mut upkeep = Upkeep {
            governed: Governed::open(Ops::open(core)?)?,
            reclaim: Reclaim::new(),
            scans: Slot::default(),
            foreground: ForegroundReclaim::new(),
            index_work: IndexUpkeep::new(),
            turn: AtomicUsize::new(0),
            collecting: Mutex::default(),
            unnamed: Mutex::default(),
            find_trees,
        };
        upkeep.keep_from_damaged_records().map_err(damaged)?;
        // The store may have opened itself for reading only.
        let is_read_only = upkeep.options.read_only;
        if !is_read_only
            && !search_bases::any(&upkeep).map_err(damaged)?
            && let Err(error) = upkeep.store.keep_log(&[])
        {
            tracing::warn!(%error, "cannot drop log records that no index needs");
        }
        if let Some(objects) = upkeep.env.objects.as_ref().filter(|_| !is_read_only) {
            // From now on there may be changes that giving up would lose.
            objects.store.insist();
        }
        Ok(upkeep)
    }

    /// Reads and verifies everything that the store has on disk, while other operations run.
    pub fn check(&self, progress: store::CheckProgress<'_>) -> FsResult<store::CheckReport> {
        self.store.check(progress).map_err(from_store)
    }

    /// What the volume reports about itself.
    pub fn status(&self) -> FsResult<VolumeStatus> {
        // In the order in which removed objects pass through them: what moves from one to the next
        // meanwhile is reported twice, and not missed.
        let (detached, prunes) = (self.queue.detached(), u64::from(self.reclaim.is_pruning()));
        let orphans = self.queue.removes_orphans();
        let stats = self.store.stats();
        let collecting = orphans || self.collection_is_due(self.env.clock.monotonic());
        let data = self.data.stats();
        let counts = self.subvolume_counts()?;
        Ok(VolumeStatus {
            id: VolumeId(self.header.volume_id),
            format_version: self.header.version(),
            engine: stats.engine,
            durability: stats.durability,
            created: device::Timestamp(self.header.created),
            files: counts.files.max(0) as u64,
            bytes: counts.bytes,
            counting: counts.counting,
            snapshots: counts.snapshots,
            clones: counts.clones,
            subvolumes: counts.others,
            log_bytes: stats.log_bytes,
            log_bytes_since_checkpoint: stats.log_bytes_since_checkpoint,
            disk_bytes: self.stored_bytes(&stats)?,
            objects: self.objects_status(),
            written_bytes: stats.written_bytes,
            writes: stats.writes,
            checkpoint_written: (stats.checkpoint_bytes, stats.checkpoint_writes),
            merge_bytes: stats.merge_bytes,
            ingest_bytes: stats.ingest_bytes,
            given_bytes: stats.given_bytes,
            merges: stats.merges,
            checkpoints: stats.checkpoints,
            commits: stats.commits,
            last_checkpoint: stats.last_checkpoint.map(device::Timestamp),
            replayed: stats.replayed,
            cache_bytes: stats.cache_bytes,
            nodes: self.nodes.count(),
            detached,
            reclaimed: self.reclaim.removed(),
            dropping: stats.dropping,
            prunes,
            freeing_bytes: self.freeing_bytes(),
            freed_bytes: data.reclaimed_bytes,
            collecting,
            read_only: self.why_read_only(),
            damaged: self.own.noted().message().or_else(|| self.held_back()),
        })
    }

    /// Whether a collection was requested or is in progress: its result is not known yet.
    pub(crate) fn collection_waits(&self) -> bool {
        self.queue.collection_is_requested()
            || self.collecting.try_lock().is_none_or(|collecting| !collecting.is_idle())
    }

    /// Whether a collection is in progress, or was requested and is not resting after a failure.
    pub fn collection_is_due(&self, now: Duration) -> bool {
        match self.collecting.try_lock() {
            None => true,
            Some(collecting) if !collecting.is_idle() => true,
            Some(collecting) => self.queue.collection_is_requested() && !collecting.rests(now),
        }
    }
}
