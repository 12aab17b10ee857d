//! `Fs`: an open volume. What all operations share; the calls themselves are in `ops/`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data::Data;
use device::Env;
use device::sync::{Mutex, RwLock};
use format::kept_twice::UNCOUNTED_KEY;
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::volume::VolumeHeader;
use inode::{Attr, FsError, Ino, Name, NameHash, NodeId, SubvolId};
use search::index::Index;
use store::{KeyRange, Store};

use crate::arrivals::Arrivals;
use crate::background::Queue;
use crate::error::{from_store, malformed};
use crate::info::SubvolumeCounts;
use crate::locks::LockTable;
use crate::nodes::NodeTable;
use crate::numbers::{Numbers, read_root};
use crate::objects;
use crate::own::{self, Own};
use crate::quota::Quotas;
use crate::reclaim::Reclaim;
use crate::room::Room;
use crate::scan::Slot;
use crate::search_bases;
use crate::search_upkeep::Upkeep;
use crate::slots::Slots;
use crate::subvol::{Entered, Subvol, SubvolTable, VOLUME};
use crate::subvolumes::Admin;
use crate::trash::Trash;
use crate::{Entry, FsResult, Invalidate, OpenError, OpenOptions, VolumeId, VolumeStatus};

/// Called with each key and value of a range.
pub(crate) type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> FsResult<()>;

/// An open volume.
pub struct Fs {
    pub(crate) env: Env,
    pub(crate) header: VolumeHeader,
    pub(crate) options: OpenOptions,
    /// Why the store accepts no changes, if it does not.
    kept_from: Option<Arc<str>>,
    /// The volume's own records, and their copies.
    pub(crate) own: Own,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) data: Arc<Data>,
    pub(crate) hash: NameHash,
    pub(crate) locks: LockTable,
    pub(crate) nodes: NodeTable,
    pub(crate) subvols: SubvolTable,
    pub(crate) numbers: Numbers,
    /// Held by operations that create or remove subvolumes.
    pub(crate) admin: Admin,
    /// Changes that walks over trees must know of.
    pub(crate) arrivals: Arrivals,
    pub(crate) reclaim: Reclaim,
    /// The scan of an index, of which there is one at a time.
    pub(crate) scans: Slot,
    pub(crate) queue: Queue,
    pub(crate) quotas: Quotas,
    pub(crate) trash: Trash,
    pub(crate) room: Room,
    /// The index for searches, unless the volume was opened without.
    pub(crate) index: Option<Index>,
    pub(crate) upkeep: Upkeep,
    root: AtomicU64,
    /// What the mount shows as its root; 0: the volume's root.
    shown: AtomicU64,
    closed: AtomicBool,
    /// Bytes of the volume in its object store, when they were last measured.
    pub(crate) object_bytes: Mutex<Option<u64>>,
    /// Changes of the object store when that was measured.
    pub(crate) measured: AtomicU64,
    pub(crate) invalidate: RwLock<Option<Arc<dyn Invalidate>>>,
}

impl Fs {
    /// Opens the volume in a store. Front ends call [`Fs::open`]; this is for callers with a store
    /// of their own.
    pub fn open_on(
        env: Env,
        store: Arc<dyn Store>,
        header: VolumeHeader,
        options: &OpenOptions,
    ) -> Result<Arc<Fs>, OpenError> {
        let hash = NameHash::new(header.hash_key);
        Fs::open_with_hash(env, store, header, options, hash)
    }

    /// Like [`Fs::open_on`], with another hash of names than the volume's own.
    pub fn open_with_hash(
        env: Env,
        store: Arc<dyn Store>,
        header: VolumeHeader,
        options: &OpenOptions,
        hash: NameHash,
    ) -> Result<Arc<Fs>, OpenError> {
        Fs::open_kept(env, own::over(store)?, header, options, hash)
    }

    /// Like [`Fs::open_with_hash`], with the layer that maintains the copies of the volume's
    /// records over the store.
    pub(crate) fn open_kept(
        env: Env,
        (store, own): (Arc<dyn Store>, Own),
        header: VolumeHeader,
        options: &OpenOptions,
        hash: NameHash,
    ) -> Result<Arc<Fs>, OpenError> {
        let damaged = OpenError::inconsistent;
        // Damage that the store works around: no changes are allowed, as in a read-only volume.
        let kept_from = match own.noted().told() {
            Some(told) if own::is_of_own(&store.unknown()) => Some(Arc::from(told)),
            _ => store.read_only().or_else(|| options.read_only_because.clone()),
        };
        let read_only = options.read_only || kept_from.is_some();
        if !read_only && let Err(error) = own.complete() {
            own.no_copies(&error);
        }
        let numbers = Numbers::open(&*store).map_err(damaged)?;
        let root = read_root(&*store).map_err(damaged)?.subvolume;
        if !key::can_be_subvolume(root) {
            let what = format!("the recorded root is subvolume {root}");
            return Err(OpenError::Inconsistent(what.into()));
        }
        let admin = Admin::open(&*store).map_err(damaged)?;
        let next_subvolume = admin.lock().next_subvolume();
        let data_options = data::Options { volume: header.volume_id, ..options.data.clone() };
        let data =
            objects::open_data(&env, &*store, data_options, (options.small_file_bytes, read_only))?;
        store.set_barrier(Arc::<Data>::clone(&data));
        data.set_relief(relief(&store));
        let index = options.index.clone().map(|index| {
            let home = search::index::Home::of(&env);
            Index::new(home, Arc::clone(&env.clock), header.volume_id, hash, index)
        });
        let mut fs = Fs {
            env,
            header,
            options: OpenOptions { read_only, ..options.clone() },
            kept_from,
            own,
            store,
            data,
            hash,
            locks: LockTable::new(),
            nodes: NodeTable::new(),
            subvols: SubvolTable::new(Slots::open(next_subvolume)),
            numbers,
            admin,
            arrivals: Arrivals::default(),
            reclaim: Reclaim::new(),
            scans: Slot::default(),
            queue: Queue::new(),
            quotas: Quotas::default(),
            trash: Trash::default(),
            room: Room::new(),
            index,
            upkeep: Upkeep::new(),
            root: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            object_bytes: Mutex::default(),
            measured: AtomicU64::new(0),
            invalidate: RwLock::new(None),
        };
        let subvol = fs.subvol(SubvolId(root)).map_err(damaged)?;
        fs.set_root(subvol.root_node());
        fs.load().map_err(damaged)?;
        // The store may have opened itself for reading only.
        let is_read_only = fs.options.read_only;
        if !is_read_only
            && !search_bases::any(&fs).map_err(damaged)?
            && let Err(error) = fs.store.keep_log(&[])
        {
            tracing::warn!(%error, "cannot drop log records that no index needs");
        }
        if let Some(objects) = fs.env.objects.as_ref().filter(|_| !is_read_only) {
            // From now on there may be changes that giving up would lose.
            objects.store.insist();
        }
        Ok(Arc::new(fs))
    }

    /// Reads what of the volume's records is kept in memory.
    fn load(&mut self) -> FsResult<()> {
        self.queue.recover(self)?;
        self.load_quotas()?;
        self.trash.load(self)?;
        self.keep_from_damaged_records()
    }

    /// Reads the quotas. If damage hides the charges, which have no copy, nothing about quotas is
    /// reported until a repair has recounted.
    fn load_quotas(&self) -> FsResult<()> {
        if let Err(error) = self.quotas.load(self) {
            let scan = |prefix: &[u8]| -> store::Result<()> {
                let mut cursor = self.store.scan(VOLUME, KeyRange::prefix(prefix))?;
                while cursor.next()?.is_some() {}
                Ok(())
            };
            let scanned = scan(&key::QUOTAS_PREFIX).and_then(|()| scan(&key::OWNER_CHARGES_PREFIX));
            if !self.is_worked_around(scanned)? {
                return Err(error);
            }
            self.quotas.set_unknown(error);
        }
        let note = self.store.get(VOLUME, &UNCOUNTED_KEY).map_err(from_store)?;
        if note.is_some() {
            self.own.noted().set_uncounted();
            self.quotas.set_unknown(FsError::Io(own::UNCOUNTED.to_owned().into()));
        }
        Ok(())
    }

    /// Whether a read met damage of records that have no copy, which is noted, in a volume that is
    /// opened despite it.
    fn is_worked_around(&self, read: store::Result<()>) -> FsResult<bool> {
        match read {
            Err(error) if own::is_unreadable(&error) && self.own.noted().has_copies() => {
                self.own.noted().lost(&error.to_string());
                Ok(true)
            }
            read => read.map(|()| false).map_err(from_store),
        }
    }

    /// Refuses changes if opening met damage of the volume's records: a change of an unreadable
    /// record would be refused, or would not know its old content.
    fn keep_from_damaged_records(&mut self) -> FsResult<()> {
        let usage = key::usage(self.root_subvol()?.id.0);
        self.is_worked_around(self.store.get_with(VOLUME, &usage, &mut |_| ()).map(drop))?;
        if self.own.noted().is_whole() {
            return Ok(());
        }
        self.options.read_only = true;
        if self.kept_from.is_none() {
            self.kept_from = self.own.noted().told().map(Arc::from);
        }
        Ok(())
    }

    /// Makes everything durable and accepts no more changes.
    pub fn close(&self) -> FsResult<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        if !self.options.read_only {
            // First what was acknowledged: if a segment of an earlier opening fails to get its
            // footer, nothing more is made durable.
            self.sync()?;
            if let Err(error) = self.numbers.give_back(&*self.store) {
                tracing::debug!(%error, "cannot return reserved inode numbers");
            }
            self.data.seal_all();
        }
        self.data.sync().map_err(from_store)?;
        self.store.close().map_err(from_store)
    }

    /// Makes everything durable that returned before the call.
    pub fn sync(&self) -> FsResult<()> {
        self.store.sync(self.store.last_commit()).map_err(from_store)
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
        let collecting = orphans || self.queue.collection_is_due(self.env.clock.monotonic());
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
            nodes: self.nodes.len(),
            detached,
            reclaimed: self.reclaim.removed(),
            dropping: stats.dropping,
            prunes,
            freeing_bytes: freeing(&data),
            freed_bytes: data.reclaimed_bytes,
            collecting,
            read_only: self.why_read_only(),
            damaged: self.own.noted().told().or_else(|| self.held_back()),
        })
    }

    /// Files of contents that free nothing, because they are not proven to be the segments that
    /// their names say.
    fn held_back(&self) -> Option<String> {
        let found = self.data.held_back();
        found.first().map(|first| {
            let more = match found.len() {
                1 => String::new(),
                files => format!(", and {} others", files - 1),
            };
            format!(
                "space of a file that may be another's is not freed{more}: {first}; \
                 `pando fsck` says what to do"
            )
        })
    }

    /// Bytes of contents that nothing names and whose space is not reclaimed yet.
    pub(crate) fn freeing_bytes(&self) -> u64 {
        freeing(&self.data.stats())
    }

    /// Refuses changes of a volume that was opened read-only, with the reason.
    #[inline]
    pub(crate) fn may_change(&self) -> FsResult<()> {
        if self.options.read_only { Err(self.takes_no_changes()) } else { Ok(()) }
    }

    #[cold]
    fn takes_no_changes(&self) -> FsError {
        FsError::ReadOnly(self.kept_from().unwrap_or("the volume was opened so").to_owned())
    }

    /// Why the store accepts no changes, if it does not.
    pub(crate) fn kept_from(&self) -> Option<&str> {
        self.kept_from.as_deref()
    }

    fn why_read_only(&self) -> Option<String> {
        match &self.kept_from {
            Some(why) => Some(format!("opened read-only: {why}")),
            None => self.options.read_only.then(|| "opened read-only".to_owned()),
        }
    }

    pub(crate) fn subvolume_counts(&self) -> FsResult<SubvolumeCounts> {
        let mut counts = SubvolumeCounts::default();
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            if !record.read_only && !record.detached {
                let id = key::parse_number(key).map_err(malformed)?;
                let view = crate::view::View::new(&*self.store, VOLUME);
                let usage = match view.read(&key::usage(id), UsageRecord::decode) {
                    // What damage hides is not counted.
                    Err(FsError::Io(_)) if self.kept_from.is_some() => None,
                    usage => usage?,
                };
                let usage = usage.unwrap_or_default();
                counts.files = counts.files.saturating_add(usage.files);
                // Sizes of sparse files can add up to more than 63 bits, which only a record that
                // is not fully counted interprets as less than zero.
                let bytes = if usage.counted { usage.bytes } else { usage.bytes.max(0) };
                counts.bytes = counts.bytes.saturating_add(bytes as u64);
                // What is inherited has no counts of its own yet.
                counts.counting += u64::from(!usage.counted || record.inherits);
            }
            // What was rolled back is of the lineage of what it was; a clone begins its own.
            let is_clone = record.source.0 != 0
                && record.lineage == key::parse_number(key).map_err(malformed)?;
            match (record.detached, record.snapshot, is_clone) {
                (true, ..) => {}
                // What was mounted below a snapshot's directory is part of the snapshot.
                (_, false, _) if record.read_only => {}
                (_, true, _) => counts.snapshots += 1,
                (_, _, true) => counts.clones += 1,
                _ => counts.others += 1,
            }
            Ok(())
        })?;
        Ok(counts)
    }

    /// Visits the records of the volume's own tree whose keys start with `prefix`.
    pub(crate) fn visit_volume(&self, prefix: &[u8], visit: Visit<'_>) -> FsResult<()> {
        let mut cursor = self.store.scan(VOLUME, KeyRange::prefix(prefix)).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            visit(item.key, item.value)?;
        }
        Ok(())
    }

    /// A subvolume.
    #[inline]
    pub(crate) fn subvol(&self, id: SubvolId) -> FsResult<Arc<Subvol>> {
        self.subvols.get(&*self.store, id)
    }

    /// The subvolume and inode of a node.
    #[inline]
    pub(crate) fn place(&self, node: NodeId) -> FsResult<(Arc<Subvol>, u64)> {
        let node = self.real(node);
        Ok((self.subvol_of(node)?, node.ino().0))
    }

    /// The subvolume of a node, which is not the alias of the root.
    #[inline]
    pub(crate) fn subvol_of(&self, node: NodeId) -> FsResult<Arc<Subvol>> {
        self.subvols.of_slot(&*self.store, node.slot())
    }

    /// The number of the subvolume that the node of a file or a directory is in.
    pub fn subvolume_of(&self, node: NodeId) -> FsResult<SubvolId> {
        let node = self.real(node);
        self.subvol_of(node).map(|subvol| subvol.id)
    }

    /// The subvolume of the volume's root.
    pub(crate) fn root_subvol(&self) -> FsResult<Arc<Subvol>> {
        self.subvol_of(self.root())
    }

    /// The node behind the alias of the root.
    #[inline]
    pub(crate) fn real(&self, node: NodeId) -> NodeId {
        if node == NodeId::ROOT { self.root() } else { node }
    }

    /// The node of the volume's root directory.
    pub(crate) fn root(&self) -> NodeId {
        NodeId(self.root.load(Ordering::Acquire))
    }

    /// Notes what the mount shows as its root.
    pub(crate) fn show(&self, node: NodeId) {
        self.shown.store(node.0, Ordering::Release);
    }

    /// Whether the mount shows a directory other than the volume's root as its root.
    pub(crate) fn is_shown(&self, node: NodeId) -> bool {
        self.shown.load(Ordering::Acquire) == node.0
    }

    /// Makes another directory the volume's root.
    pub(crate) fn set_root(&self, node: NodeId) {
        self.root.store(node.0, Ordering::Release);
    }

    /// An entry as callers get it: the root under its alias.
    #[inline]
    pub(crate) fn entry(&self, attr: Attr) -> Entry {
        let node = if attr.node == self.root() { NodeId::ROOT } else { attr.node };
        Entry { node, attr }
    }

    /// Begins a change of a subvolume.
    #[inline]
    pub(crate) fn enter<'a>(&self, subvol: &'a Subvol) -> FsResult<Entered<'a>> {
        self.may_change()?;
        self.wait_for_objects()?;
        loop {
            let entered = subvol.enter()?;
            // Read with the gate held: a copy of a subvolume above this one is counted
            // before this change can follow one that the copy has not.
            if subvol.given_to() == self.admin.copies() {
                return Ok(entered);
            }
            drop(entered);
            self.give_to_heirs(&mut self.admin.lock(), subvol)?;
        }
    }

    /// Whether a name is the one that the header reserves: front ends show something else there.
    #[inline]
    fn is_reserved(&self, name: &[u8]) -> bool {
        name == self.header.snapshot_dir
    }

    /// Checks a name that is to be created.
    #[inline]
    pub(crate) fn new_name<'n>(&self, bytes: &'n [u8]) -> FsResult<Name<'n>> {
        let name = Name::new(bytes)?;
        if self.is_reserved(bytes) { Err(FsError::Exists) } else { Ok(name) }
    }

    /// Checks a name that is to be removed.
    #[inline]
    pub(crate) fn old_name<'n>(&self, bytes: &'n [u8]) -> FsResult<Name<'n>> {
        match bytes {
            b"." => return Err(FsError::InvalidArgument("the name is '.'")),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let name = Name::new(bytes)?;
        if self.is_reserved(bytes) {
            return Err(FsError::NotPermitted("the directory of snapshots"));
        }
        Ok(name)
    }

    /// The node of an inode of a subvolume.
    pub(crate) fn node_of(subvol: u64, ino: u64) -> NodeId {
        NodeId::new(SubvolId(subvol), Ino(ino))
    }
}

/// What data calls when the disk is full. The store has the data as its barrier, so the data must
/// not keep the store alive.
fn relief(store: &Arc<dyn Store>) -> data::Relief {
    let store = Arc::downgrade(store);
    Box::new(move || {
        if let Some(Err(error)) = store.upgrade().map(|store| store.give_back()) {
            tracing::warn!(%error, "cannot free space yet");
        }
    })
}

/// Bytes of contents that wait to be freed, except those that cannot be.
fn freeing(data: &data::Stats) -> u64 {
    (data.waiting_bytes + data.dead_bytes).saturating_sub(data.stuck_bytes)
}
