//! Records of the namespace in the batch of a plan, with what their readers in memory must know.

use format::directory_record::{self, DirectoryRecord};
use format::entry_record::{EntryRecord, Target};
use format::inode_record::LinkedRecord;
use format::key::{self, Part};
use format::subvolume_record::{USAGE_BYTES_AT, USAGE_FILES_AT};
use store::{Lane, MergeKind, TreeId};
use vfs::FsResult;
use volume::arrivals::Arrival;
use volume::subvol::VOLUME;
use volume::view::{FoundEntry, NameBuf, Vacancy, View};

use super::{Attached, Plan};

impl Plan {
    /// Writes an entry.
    pub fn put_entry(&mut self, tree: TreeId, dir: u64, cookie: u64, entry: &EntryRecord<'_>) {
        if let Target::Subvolume(id) = entry.target {
            self.arrives(Arrival::Mounted(tree, id), None);
        }
        self.scratch.value.clear();
        entry.encode(&mut self.scratch.value);
        let key = key::entry(dir, cookie, Part::Attributes);
        self.scratch.batch.put(tree, &key, &self.scratch.value);
    }

    /// Writes an entry where there was none, and flags the one before it in its chain.
    #[inline]
    pub fn insert_entry(
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
    pub fn erase_entry(
        &mut self,
        view: View<'_>,
        dir: u64,
        found: &FoundEntry,
        followed: bool,
    ) -> FsResult<()> {
        let FoundEntry { cookie, .. } = *found;
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
    pub fn erase_attached(&mut self, tree: TreeId, dir: u64, found: &FoundEntry) {
        let Target::Embedded(inode) = &found.target else { return };
        if inode.has_bulk {
            self.scratch.batch.delete(tree, &key::entry(dir, found.cookie, Part::Bulk));
        }
        if inode.has_xattrs {
            self.scratch.batch.delete(tree, &key::entry(dir, found.cookie, Part::Xattrs));
        }
    }

    /// Writes what is stored beside an inode: `bulk` and `xattrs` are the two keys.
    pub fn put_attached(&mut self, tree: TreeId, bulk: &[u8], xattrs: &[u8], attached: &Attached) {
        if let Some(bytes) = &attached.bulk {
            self.scratch.batch.put(tree, bulk, bytes);
        }
        if let Some(record) = &attached.xattrs {
            self.scratch.batch.put(tree, xattrs, &record.encode());
        }
    }

    /// Writes a directory's own record.
    pub fn put_directory(&mut self, tree: TreeId, ino: u64, record: &DirectoryRecord) {
        self.arrives(Arrival::Written(tree, ino), Some(record.uid));
        let key = key::directory(ino, Part::Attributes);
        self.scratch.batch.put(tree, &key, &record.encode());
    }

    /// Notes that a directory's own record is written in another way.
    pub(crate) fn written(&mut self, tree: TreeId, ino: u64, uid: u32) {
        self.arrives(Arrival::Written(tree, ino), Some(uid));
    }

    /// Writes the record of a directory that moves to another place with everything below it.
    pub(crate) fn put_moved(&mut self, tree: TreeId, ino: u64, record: &DirectoryRecord) {
        self.arrives(Arrival::Moved(tree, ino), None);
        self.put_directory(tree, ino, record);
    }

    /// Writes the record of an inode with several names, or none.
    pub fn put_linked(&mut self, tree: TreeId, ino: u64, record: &LinkedRecord) {
        self.scratch.value.clear();
        record.encode(&mut self.scratch.value);
        let key = key::linked(ino, Part::Attributes);
        self.scratch.batch.put(tree, &key, &self.scratch.value);
    }

    /// Changes the counts of a directory, and its times to the present.
    #[inline]
    pub fn touch_directory(&mut self, tree: TreeId, dir: u64, entries: i64, subdirectories: i64) {
        if self.untimed == dir {
            return self.count_entries(tree, dir, entries, subdirectories);
        }
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
    pub fn count_entries(&mut self, tree: TreeId, dir: u64, entries: i64, subdirectories: i64) {
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
    pub fn count(&mut self, subvol: u64, files: i64, bytes: i64) {
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
}
