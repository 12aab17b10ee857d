//! What a change writes: a batch, built record by record and committed as one.
//!
//! The batch's memory is kept by the thread from one change to the next, so that building one
//! allocates nothing.

use std::cell::Cell;

use device::Timestamp;
use format::directory_record::{self, DirectoryRecord};
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::subvolume_record::{USAGE_BYTES_AT, USAGE_FILES_AT};
use format::xattr_record::XattrRecord;
use inode::Caller;
use store::{Batch, CommitToken, Lane, MergeKind, Need, TreeId};

use crate::account::Change;
use crate::arrivals::Arrival;
use crate::error::from_store;
use crate::subvol::VOLUME;
use crate::view::{Found, NameBuf, Vacancy, View};
use crate::{Fs, FsResult};

thread_local! {
    static SCRATCH: Cell<Option<Scratch>> = const { Cell::new(None) };
}

#[derive(Default)]
struct Scratch {
    batch: Batch,
    value: Vec<u8>,
}

/// Most memory that a thread keeps between changes.
const KEEP_BYTES: usize = 1 << 20;

/// A change to one subvolume (or two) that is being built.
pub(crate) struct Txn<'a> {
    fs: &'a Fs,
    scratch: Scratch,
    /// What it changes of quotas.
    charges: Vec<Change>,
    /// Whether the caller is exempt from the limits of users and groups.
    privileged: bool,
    /// When the change happens, in nanoseconds since 1970.
    pub(crate) now: i64,
}

/// What goes where the name of an entry is: contents and extended attributes beside it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attached {
    /// Target or contents.
    pub(crate) bulk: Option<Vec<u8>>,
    /// Extended attributes.
    pub(crate) xattrs: Option<XattrRecord>,
}

impl Drop for Txn<'_> {
    fn drop(&mut self) {
        self.settle_charges(Change::given_up);
        let scratch = std::mem::take(&mut self.scratch);
        if scratch.batch.as_bytes().len() <= KEEP_BYTES && scratch.value.capacity() <= KEEP_BYTES {
            SCRATCH.set(Some(scratch));
        }
    }
}

impl<'a> Txn<'a> {
    /// An empty change, at the present time.
    #[inline]
    pub(crate) fn new(fs: &'a Fs) -> Txn<'a> {
        let mut scratch = SCRATCH.take().unwrap_or_default();
        scratch.batch.clear();
        let Timestamp(now) = fs.env.clock.now();
        Txn { fs, scratch, charges: Vec::new(), privileged: false, now }
    }

    /// The volume.
    #[inline]
    pub(crate) fn fs(&self) -> &'a Fs {
        self.fs
    }

    /// Sets the caller: for root the limits of users and groups are not in force.
    #[inline]
    pub(crate) fn on_behalf(&mut self, caller: &Caller) {
        self.privileged = caller.is_root();
    }

    /// Whether the limits of users and groups are not in force.
    pub(crate) fn is_privileged(&self) -> bool {
        self.privileged
    }

    /// Notes what the batch changes of a quota: it counts when the batch is committed.
    pub(crate) fn note_charge(&mut self, change: Change) {
        self.charges.push(change);
    }

    #[inline]
    fn settle_charges(&mut self, settle: fn(&Change)) {
        if !self.charges.is_empty() {
            self.charges.drain(..).for_each(|change| settle(&change));
        }
    }

    /// An empty change that frees space: names, contents or records are removed, and little is
    /// added. It may use the space that is reserved for that on a full disk.
    pub(crate) fn removing(fs: &'a Fs) -> Txn<'a> {
        let mut txn = Txn::new(fs);
        txn.batch().mark(Need::Removes);
        txn
    }

    /// The batch, for what has no method here.
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.scratch.batch
    }

    /// Writes an entry.
    #[inline]
    pub(crate) fn put_entry(
        &mut self,
        tree: TreeId,
        dir: u64,
        cookie: u64,
        entry: &EntryRecord<'_>,
    ) {
        if let Target::Subvolume(id) = entry.target {
            self.fs.arrivals.note(Arrival::Mounted(id), None);
        }
        self.scratch.value.clear();
        entry.encode(&mut self.scratch.value);
        let key = key::entry(dir, cookie, Part::Attributes);
        self.scratch.batch.put(tree, &key, &self.scratch.value);
    }

    /// Writes an entry where there was none, and flags the one before it in its chain.
    #[inline]
    pub(crate) fn insert_entry(
        &mut self,
        view: View<'_>,
        dir: u64,
        vacancy: &Vacancy,
        entry: &EntryRecord<'_>,
    ) -> FsResult<()> {
        let entry = EntryRecord { chained: vacancy.chained, ..*entry };
        self.put_entry(view.tree, dir, vacancy.cookie, &entry);
        if let Some((cookie, ino)) = vacancy.predecessor {
            self.flag_chained(view, dir, cookie, ino)?;
        }
        Ok(())
    }

    /// Flags an entry as followed by another of its hash. Its inode's lock is held exclusively.
    #[cold]
    pub(crate) fn flag_chained(
        &mut self,
        view: View<'_>,
        dir: u64,
        cookie: u64,
        ino: u64,
    ) -> FsResult<()> {
        let mut name = NameBuf::empty();
        let found = view.entry_at(dir, cookie, &mut name)?;
        let (name, target) = match &found {
            Some(found) => (name.as_bytes(), found.target),
            None => (&b""[..], Target::Tombstone),
        };
        self.put_entry(view.tree, dir, cookie, &EntryRecord { chained: true, ino, name, target });
        Ok(())
    }

    /// Removes an entry with what is stored beside it. `followed`: another name of its hash may
    /// follow, so the place must stay marked.
    pub(crate) fn erase_entry(
        &mut self,
        view: View<'_>,
        dir: u64,
        found: &Found,
        followed: bool,
    ) -> FsResult<()> {
        let Found { cookie, .. } = *found;
        self.erase_attached(view.tree, dir, found);
        // A flag may be older than the removal of what followed.
        let next = key::entry(dir, cookie.saturating_add(1), Part::Attributes);
        let followed = followed || found.chained && view.read(&next, |_| Ok(()))?.is_some();
        if followed {
            let tombstone =
                EntryRecord { chained: true, ino: 0, name: b"", target: Target::Tombstone };
            self.put_entry(view.tree, dir, cookie, &tombstone);
            return Ok(());
        }
        self.scratch.batch.delete(view.tree, &key::entry(dir, cookie, Part::Attributes));
        // Marks before it that now point to nothing go as well.
        let mut before = cookie;
        while before & 0xff != 0 {
            before -= 1;
            let key = key::entry(dir, before, Part::Attributes);
            let tombstone = view
                .read(&key, |bytes| Ok(EntryRecord::decode(bytes)?.target == Target::Tombstone))?;
            if tombstone != Some(true) {
                break;
            }
            self.scratch.batch.delete(view.tree, &key);
        }
        Ok(())
    }

    /// Removes what is stored beside an entry: contents and extended attributes.
    pub(crate) fn erase_attached(&mut self, tree: TreeId, dir: u64, found: &Found) {
        let Target::Embedded(inode) = &found.target else { return };
        if inode.has_bulk {
            self.scratch.batch.delete(tree, &key::entry(dir, found.cookie, Part::Bulk));
        }
        if inode.has_xattrs {
            self.scratch.batch.delete(tree, &key::entry(dir, found.cookie, Part::Xattrs));
        }
    }

    /// Writes what is stored beside an inode: `bulk` and `xattrs` are the two keys.
    pub(crate) fn put_attached(
        &mut self,
        tree: TreeId,
        bulk: &[u8],
        xattrs: &[u8],
        attached: &Attached,
    ) {
        if let Some(bytes) = &attached.bulk {
            self.scratch.batch.put(tree, bulk, bytes);
        }
        if let Some(record) = &attached.xattrs {
            self.scratch.batch.put(tree, xattrs, &record.encode());
        }
    }

    /// Writes a directory's own record.
    pub(crate) fn put_directory(&mut self, tree: TreeId, ino: u64, record: &DirectoryRecord) {
        self.fs.arrivals.note(Arrival::Written(tree, ino), Some(record.uid));
        let key = key::directory(ino, Part::Attributes);
        self.scratch.batch.put(tree, &key, &record.encode());
    }

    /// Writes the record of a directory that moves to another place with everything below it.
    pub(crate) fn put_moved(&mut self, tree: TreeId, ino: u64, record: &DirectoryRecord) {
        self.fs.arrivals.note(Arrival::Moved(tree, ino), None);
        self.put_directory(tree, ino, record);
    }

    /// Writes the record of an inode with several names, or none.
    pub(crate) fn put_linked(&mut self, tree: TreeId, ino: u64, record: &LinkedRecord) {
        self.scratch.value.clear();
        record.encode(&mut self.scratch.value);
        let key = key::linked(ino, Part::Attributes);
        self.scratch.batch.put(tree, &key, &self.scratch.value);
    }

    /// Changes the counts of a directory, and its times to the present.
    #[inline]
    pub(crate) fn touch_directory(
        &mut self,
        tree: TreeId,
        dir: u64,
        entries: i64,
        subdirectories: i64,
    ) {
        let lane = |offset, kind, operand| Lane { offset, kind, operand };
        let lanes = [
            lane(directory_record::MTIME_AT, MergeKind::Max, self.now),
            lane(directory_record::CTIME_AT, MergeKind::Max, self.now),
            lane(directory_record::ENTRIES_AT, MergeKind::Add, entries),
            lane(directory_record::SUBDIRECTORIES_AT, MergeKind::Add, subdirectories),
        ];
        let used = match (entries, subdirectories) {
            (0, 0) => 2,
            (_, 0) => 3,
            _ => 4,
        };
        let key = key::directory(dir, Part::Attributes);
        self.scratch.batch.merge(tree, &key, &lanes[..used]);
    }

    /// Changes the counts of a directory, and not its times.
    pub(crate) fn count_entries(
        &mut self,
        tree: TreeId,
        dir: u64,
        entries: i64,
        subdirectories: i64,
    ) {
        let add = |offset, operand| Lane { offset, kind: MergeKind::Add, operand };
        let lanes = [
            add(directory_record::ENTRIES_AT, entries),
            add(directory_record::SUBDIRECTORIES_AT, subdirectories),
        ];
        let used = if subdirectories == 0 { 1 } else { 2 };
        self.scratch.batch.merge(tree, &key::directory(dir, Part::Attributes), &lanes[..used]);
    }

    /// Changes the counts of what a subvolume owns.
    #[inline]
    pub(crate) fn count(&mut self, subvol: u64, files: i64, bytes: i64) {
        let lanes = [
            Lane { offset: USAGE_FILES_AT, kind: MergeKind::Add, operand: files },
            Lane { offset: USAGE_BYTES_AT, kind: MergeKind::Add, operand: bytes },
        ];
        let used = match (files, bytes) {
            (0, 0) => return,
            (_, 0) => &lanes[..1],
            (0, _) => &lanes[1..],
            _ => &lanes[..],
        };
        self.scratch.batch.merge(VOLUME, &key::usage(subvol), used);
    }

    /// Applies the change.
    #[inline]
    pub(crate) fn commit(&mut self) -> FsResult<CommitToken> {
        let committed = self.fs.store.commit(&self.scratch.batch).map_err(from_store)?;
        self.settle_charges(Change::committed);
        Ok(committed)
    }
}

/// A fresh inode that is not a directory.
#[inline]
pub(crate) fn fresh_inode(kind: FileKind, now: i64) -> InodeRecord {
    InodeRecord {
        kind,
        has_bulk: false,
        has_xattrs: false,
        has_extents: false,
        mode: 0,
        uid: 0,
        gid: 0,
        rdev: 0,
        size: 0,
        allocated: 0,
        ctime: now,
        mtime: now,
        atime: now,
        btime: now,
        elsewhere: None,
        charge: None,
        charged_names: 0,
    }
}
