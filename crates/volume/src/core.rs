//! What of an open volume all floors share. It has the store and the contents, the tables of nodes,
//! locks, subvolumes and numbers, the root, and who is notified of changes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data::Data;
use device::Env;
use device::sync::{Mutex, RwLock};
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use format::volume::VolumeHeader;
use inode::{AtomicNode, Attr, FsError, Name, NameHash, NodeId, SubvolId};
use search::index::Index;
use store::{KeyRange, Store};
use vfs::{Entry, FsResult, Invalidate};

use crate::arrivals::Arrivals;
use crate::contents;
use crate::error::{from_store, malformed};
use crate::info::SubvolumeCounts;
use crate::locks::LockTable;
use crate::nodes::NodeTable;
use crate::numbers::{Counts, Numbers, read_root, require_answers};
use crate::record_copies::{self, RecordCopies};
use crate::slots::Slots;
use crate::subvol::{Subvol, SubvolTable, VOLUME, read_record};
use crate::view::View;
use crate::{OpenError, OpenOptions};

/// Called with each key and value of a range.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]) -> FsResult<()>;

/// An open volume, as far as all floors share it.
pub struct Core {
    /// Clocks, entropy, devices.
    pub env: Env,
    /// The content of `volume.pando`.
    pub header: VolumeHeader,
    /// How it was opened. Read-only also where nothing may change.
    pub options: OpenOptions,
    /// Why the store accepts no changes, if it does not.
    kept_from: Option<Arc<str>>,
    /// The volume's own records, and their copies.
    pub own: RecordCopies,
    /// All trees.
    pub store: Arc<dyn Store>,
    /// Contents of files.
    pub data: Arc<Data>,
    /// The hash of names.
    pub hash: NameHash,
    /// Locks of objects and names.
    pub locks: LockTable,
    /// What front ends hold.
    pub nodes: NodeTable,
    /// Subvolumes that are in use.
    pub subvols: SubvolTable,
    /// Numbers of inodes.
    pub numbers: Numbers,
    /// Changes that walks over trees must know of.
    pub arrivals: Arrivals,
    /// The index for searches, unless the volume was opened without.
    pub index: Option<Index>,
    root: AtomicNode,
    /// What the mount shows as its root, which may be [`NodeId::ROOT`].
    shown: AtomicNode,
    closed: AtomicBool,
    /// Bytes of the volume in its object store, when they were last measured.
    pub(crate) object_bytes: Mutex<Option<u64>>,
    /// Changes of the object store when that was measured.
    pub(crate) measured: AtomicU64,
    invalidate: RwLock<Option<Arc<dyn Invalidate>>>,
}

impl Core {
    /// Opens the volume in a store, over which is the layer that maintains the copies of the
    /// volume's records.
    pub fn open(
        env: Env,
        (store, own): (Arc<dyn Store>, RecordCopies),
        header: VolumeHeader,
        options: &OpenOptions,
        hash: NameHash,
    ) -> Result<Core, OpenError> {
        let damaged = OpenError::inconsistent;
        // Damage that the store works around: no changes are allowed, as in a read-only volume.
        let kept_from = match own.noted().message() {
            Some(message) if record_copies::is_of_volume_tree(&store.unknown()) => {
                Some(Arc::from(message))
            }
            _ => store.read_only().or_else(|| options.read_only_because.clone()),
        };
        let read_only = options.read_only || kept_from.is_some();
        if !read_only && let Err(error) = own.complete() {
            own.no_copies(&error);
        }
        let numbers = Numbers::open(&*store, header.inode_home, read_only).map_err(damaged)?;
        if options.answers && !read_only {
            require_answers(&*store).map_err(damaged)?;
        }
        let root = read_root(&*store).map_err(damaged)?.subvolume;
        if !key::can_be_subvolume(root) {
            let what = format!("the recorded root is subvolume {root}");
            return Err(OpenError::Inconsistent(what.into()));
        }
        // A volume that is refused is left as it is. So all that may refuse it here is read before
        // the contents are opened: that reserves numbers, in an object store.
        let Counts { next_subvolume, .. } = Counts::read(&*store).map_err(damaged)?;
        if read_record(&*store, SubvolId(root)).map_err(damaged)?.is_none() {
            let what = format!("the root, subvolume {root}, has no record");
            return Err(OpenError::Inconsistent(what.into()));
        }
        let synced = env.objects.is_some() && options.durability != store::Durability::Async;
        let data_options =
            data::Options { volume: header.volume_id, synced, ..options.data.clone() };
        let data =
            contents::open(&env, &*store, data_options, (options.small_file_bytes, read_only))?;
        store.set_barrier(Arc::<Data>::clone(&data));
        data.set_metadata(Arc::downgrade(&store));
        let index = options.index.clone().map(|index| {
            let home = search::index::Home::of(&env);
            Index::new(home, Arc::clone(&env.clock), header.volume_id, hash, index)
        });
        let core = Core {
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
            arrivals: Arrivals::default(),
            index,
            root: AtomicNode::new(NodeId::ROOT),
            shown: AtomicNode::new(NodeId::ROOT),
            closed: AtomicBool::new(false),
            object_bytes: Mutex::default(),
            measured: AtomicU64::new(0),
            invalidate: RwLock::new(None),
        };
        let subvol = core.subvol(SubvolId(root)).map_err(damaged)?;
        core.set_root(subvol.root_node());
        Ok(core)
    }

    /// Whether a read met damage of records that have no copy, which is noted, in a volume that is
    /// opened despite it.
    pub fn is_worked_around(&self, read: store::Result<()>) -> FsResult<bool> {
        match read {
            Err(error) if record_copies::is_unreadable(&error) && self.own.noted().has_copies() => {
                self.own.noted().lost(&error.to_string());
                Ok(true)
            }
            read => read.map(|()| false).map_err(from_store),
        }
    }

    /// Refuses changes if opening met damage of the volume's records. A change of an unreadable
    /// record would be refused, or would not know its old content.
    pub fn keep_from_damaged_records(&mut self) -> FsResult<()> {
        let usage = key::usage(self.root_subvol()?.id.0);
        self.is_worked_around(self.store.get_with(VOLUME, &usage, &mut |_| ()).map(drop))?;
        if self.own.noted().is_whole() {
            return Ok(());
        }
        self.options.read_only = true;
        if self.kept_from.is_none() {
            self.kept_from = self.own.noted().message().map(Arc::from);
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

    /// Files of contents that free nothing, because they are not proven to be the segments that
    /// their names give.
    pub fn held_back(&self) -> Option<String> {
        let found = self.data.held_back();
        found.first().map(|first| {
            let more = match found.len() {
                1 => String::new(),
                files => format!(", and {} others", files - 1),
            };
            format!(
                "space of a file that may be another's is not freed{more}: {first}; \
                 `pando fsck` reports what to do"
            )
        })
    }

    /// Bytes of contents that nothing names and whose space is not reclaimed yet.
    pub fn freeing_bytes(&self) -> u64 {
        freeing(&self.data.stats())
    }

    /// Bytes of dead contents that are returned to the disk without further work.
    pub fn bytes_to_come(&self) -> u64 {
        let data = self.data.stats();
        data.waiting_bytes + data.dead_bytes - data.stuck_bytes
    }

    /// Refuses changes of a volume that was opened read-only, with the reason.
    #[inline]
    pub fn may_change(&self) -> FsResult<()> {
        if self.options.read_only { Err(self.takes_no_changes()) } else { Ok(()) }
    }

    #[cold]
    fn takes_no_changes(&self) -> FsError {
        FsError::ReadOnly(self.kept_from().unwrap_or("the volume was opened so").to_owned())
    }

    /// Why the store accepts no changes, if it does not.
    pub fn kept_from(&self) -> Option<&str> {
        self.kept_from.as_deref()
    }

    /// Why nothing may change, as status reports it; `None`: it may.
    pub fn why_read_only(&self) -> Option<String> {
        match &self.kept_from {
            Some(why) => Some(format!("opened read-only: {why}")),
            None => self.options.read_only.then(|| "opened read-only".to_owned()),
        }
    }

    /// How many snapshots, clones and other subvolumes there are, and what they hold.
    pub fn subvolume_counts(&self) -> FsResult<SubvolumeCounts> {
        let mut counts = SubvolumeCounts::default();
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            if !record.read_only && !record.detached {
                let id = key::parse_number(key).map_err(malformed)?;
                let view = View::new(&*self.store, VOLUME);
                let usage = match view.read(&key::usage(id), UsageRecord::decode) {
                    // What damage hides is not counted.
                    Err(FsError::Io(_)) if self.kept_from.is_some() => None,
                    usage => usage?,
                };
                let usage = usage.unwrap_or_default();
                counts.files = counts.files.saturating_add(usage.files);
                // Sizes of sparse files can add up to more than 63 bits. Only a record that is not
                // fully counted interprets that as less than zero.
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
    pub fn visit_volume(&self, prefix: &[u8], visit: Visit<'_>) -> FsResult<()> {
        let mut cursor = self.store.scan(VOLUME, KeyRange::prefix(prefix)).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            visit(item.key, item.value)?;
        }
        Ok(())
    }

    /// A subvolume.
    #[inline]
    pub fn subvol(&self, id: SubvolId) -> FsResult<Arc<Subvol>> {
        self.subvols.get(&*self.store, id)
    }

    /// The subvolume and inode of a node.
    #[inline]
    pub fn place(&self, node: NodeId) -> FsResult<(Arc<Subvol>, u64)> {
        let node = self.real(node);
        Ok((self.subvol_of(node)?, node.ino().0))
    }

    /// The subvolume of a node, which is not the alias of the root.
    #[inline]
    pub fn subvol_of(&self, node: NodeId) -> FsResult<Arc<Subvol>> {
        self.subvols.of_slot(&*self.store, node.slot())
    }

    /// The number of the subvolume that the node of a file or a directory is in.
    pub fn subvolume_of(&self, node: NodeId) -> FsResult<SubvolId> {
        let node = self.real(node);
        self.subvol_of(node).map(|subvol| subvol.id)
    }

    /// The subvolume of the volume's root.
    pub fn root_subvol(&self) -> FsResult<Arc<Subvol>> {
        self.subvol_of(self.root())
    }

    /// The node behind the alias of the root.
    #[inline]
    pub fn real(&self, node: NodeId) -> NodeId {
        if node == NodeId::ROOT { self.root() } else { node }
    }

    /// The node of the volume's root directory.
    pub fn root(&self) -> NodeId {
        self.root.load()
    }

    /// Notes what the mount shows as its root.
    pub fn show(&self, node: NodeId) {
        self.shown.store(node);
    }

    /// Whether the mount shows a directory other than the volume's root as its root.
    pub fn is_shown(&self, node: NodeId) -> bool {
        self.shown.load() == node
    }

    /// Makes another directory the volume's root.
    pub fn set_root(&self, node: NodeId) {
        self.root.store(node);
    }

    /// An entry as callers get it: the root under its alias.
    #[inline]
    pub fn entry(&self, attr: Attr) -> Entry {
        let node = if attr.node == self.root() { NodeId::ROOT } else { attr.node };
        Entry { node, attr }
    }

    /// Checks a name that is to be created.
    #[inline]
    pub fn new_name<'n>(&self, bytes: &'n [u8]) -> FsResult<Name<'n>> {
        let name = Name::new(bytes)?;
        if self.header.reserves(bytes) { Err(FsError::Exists) } else { Ok(name) }
    }

    /// Checks a name that is to be removed.
    #[inline]
    pub fn old_name<'n>(&self, bytes: &'n [u8]) -> FsResult<Name<'n>> {
        match bytes {
            b"." => return Err(FsError::InvalidArgument("the name is '.'")),
            b".." => return Err(FsError::NotEmpty),
            _ => {}
        }
        let name = Name::new(bytes)?;
        if self.header.reserves(bytes) {
            return Err(FsError::NotPermitted("the directory of snapshots"));
        }
        Ok(name)
    }
}

impl Core {
    /// Notifies front ends that a name points to something else now. Code that changes the volume,
    /// other than a front end that caches, calls this after an ordinary change. Snapshots, clones
    /// and the like do it by themselves.
    pub fn invalidate_entry(&self, parent: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if parent == self.root() { NodeId::ROOT } else { parent };
            invalidate.entry(node, name);
        }
    }

    /// Notifies front ends that the name of a snapshot of a directory points to another one.
    pub fn invalidate_snapshot(&self, directory: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.snapshot(directory, name);
        }
    }

    /// Makes front ends drop what is below a directory, if it is unused.
    pub fn let_go_below(&self, directory: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.let_go_below(directory);
        }
    }

    /// Makes front ends drop what a name points to, if it is unused.
    pub fn let_go(&self, parent: NodeId, name: &[u8]) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.let_go(parent, name);
        }
    }

    /// Makes the mount that shows one directory as its root show another.
    pub fn follow_shown_root(&self, old: NodeId, new: NodeId) {
        self.show(new);
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.root(old, new);
        }
    }

    /// Notifies front ends that a node changed, like [`Core::invalidate_entry`].
    pub fn invalidate_node(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.node(node);
        }
    }

    /// Notifies front ends that the attributes of a node changed and its contents did not, like
    /// [`Core::invalidate_entry`].
    pub fn invalidate_attributes(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.attributes(node);
        }
    }

    /// Notifies front ends, before a call is answered, that it changed attributes which its answer
    /// does not carry.
    pub fn attributes_changed_unasked(&self, node: NodeId) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            let node = if node == self.root() { NodeId::ROOT } else { node };
            invalidate.attributes_before_answer(node);
        }
    }

    /// Notifies front ends that any name may point to something else now.
    pub fn invalidate_all_names(&self) {
        if let Some(invalidate) = self.invalidate.read().clone() {
            invalidate.all_names();
        }
    }

    /// Whether a listener is registered.
    pub fn has_front_end(&self) -> bool {
        self.invalidate.read().is_some()
    }

    /// Registers the listener.
    pub fn register_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        *self.invalidate.write() = Some(invalidate);
    }
}

/// Bytes of contents that wait to be freed, except those that cannot be.
fn freeing(data: &data::Stats) -> u64 {
    (data.waiting_bytes + data.dead_bytes).saturating_sub(data.stuck_bytes)
}
