//! Writes the names of a directory: only what differs from what the tree holds.
//!
//! Names arrive in parts of any size and are sorted by their hashes, so that look-ups and writes
//! are neighbours. Batches are written late, and the tree does not show them. So whenever a name's
//! place depends on another name of the same hash, the batch is committed before.

use std::hash::Hasher;

use device::FastHasher;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::{FsError, Kind, Name};
use vfs::FsResult;
use volume::view::{FoundEntry, Search, Vacancy};

use super::api::InRecords;
use super::api::record_of;
use super::links::Link;
use super::{Listed, Outside, Scan};

/// A directory whose names a scan receives. Every one must be closed.
#[derive(Debug)]
#[must_use = "a scan ends only when all directories are closed"]
pub struct ScanDirectory {
    pub(super) ino: u64,
    parent: (u64, u64),
    attr: Option<(Outside, XattrRecord)>,
    /// What the tree holds of it.
    old: Option<DirectoryRecord>,
    /// Whether the scan created it, so that it contains only what was received.
    born: bool,
    /// Whether nothing of it is in the tree or the batch yet.
    vacant: bool,
    pub(super) seen: Vec<Seen>,
    /// Names that were removed, and directories among them.
    removed: (i64, i64),
}

/// A name that was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) cookie: u64,
    /// Whether it was there before, and was a directory.
    existed: bool,
    was_directory: bool,
    is_directory: bool,
}

/// Which names of a directory are passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// All of them: names that were not passed no longer exist.
    All,
    /// Those that changed.
    Some,
}

/// A row's place and inode before.
#[derive(Clone, Copy)]
struct Old {
    cookie: u64,
    ino: u64,
    target: Target,
}

impl ScanDirectory {
    /// Whether nothing was known of it.
    pub fn is_new(&self) -> bool {
        self.old.is_none()
    }

    /// The identity of a directory at its last scan: device, number, and birth, because numbers are
    /// reused.
    pub fn was(&self) -> Option<(u64, u64, i64)> {
        let old = self.old.as_ref()?;
        let inode = old.elsewhere?.inode;
        Some((inode.device, inode.number, old.btime))
    }
}

impl Scan<'_> {
    /// The source itself.
    pub fn root(&mut self, attr: &Outside, xattrs: &[(&[u8], &[u8])]) -> FsResult<ScanDirectory> {
        let root = self.subvol.root;
        let old = self.view().directory(root)?;
        Ok(self.directory(root, (root, 0), old, Some((*attr, record_of(xattrs)))))
    }

    /// A directory that the index has, at a path below the source, to receive its changes.
    pub fn find(&mut self, path: &[u8]) -> FsResult<Option<ScanDirectory>> {
        self.flush()?;
        // One directory may be passed twice now, so its count before does not show what it
        // contains.
        self.resumed = true;
        let view = self.view();
        let mut at = self.subvol.root;
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            match view.find_entry(at, self.fs.hash.hash(name), name)? {
                Some(FoundEntry { target: Target::Directory, ino, .. }) => at = ino,
                _ => return Ok(None),
            }
        }
        let Some(old) = view.directory(at)? else { return Ok(None) };
        Ok(Some(self.directory(at, (old.parent, old.parent_cookie), Some(old), None)))
    }

    fn directory(
        &mut self,
        ino: u64,
        parent: (u64, u64),
        old: Option<DirectoryRecord>,
        attr: Option<(Outside, XattrRecord)>,
    ) -> ScanDirectory {
        self.open += 1;
        ScanDirectory {
            ino,
            parent,
            attr,
            old,
            born: false,
            vacant: false,
            seen: Vec::new(),
            removed: (0, 0),
        }
    }

    /// New attributes of a directory that was found by its path.
    pub fn renew(&mut self, dir: &mut ScanDirectory, attr: &Outside, xattrs: &[(&[u8], &[u8])]) {
        dir.attr = Some((*attr, record_of(xattrs)));
    }

    /// Receives names of a directory. `child` gets, for each name that points to a directory, its
    /// index in `names` and the directory, whose names are to be passed in turn. A name that was
    /// passed before is left out.
    pub fn names(
        &mut self,
        dir: &mut ScanDirectory,
        names: &[Listed<'_>],
        child: &mut dyn FnMut(usize, ScanDirectory),
    ) -> FsResult<()> {
        let hash = self.fs.hash;
        let mut order: Vec<(u64, u32)> = Vec::with_capacity(names.len());
        for (index, listed) in names.iter().enumerate() {
            Name::new(listed.name).map_err(|error| match error {
                FsError::Exists => FsError::InvalidArgument("'.' and '..' are not names"),
                other => other,
            })?;
            order.push((hash.hash(listed.name), index as u32));
        }
        order.sort_unstable();
        if !dir.seen.is_empty() {
            // Names of these hashes may wait in the batch.
            self.flush()?;
        }
        let mut last = 0;
        for &(hash, index) in &order {
            let index = index as usize;
            // Another name of this hash may wait in the batch.
            let first = hash != last;
            if !first {
                self.flush()?;
            }
            last = hash;
            if let Some(made) = self.name(dir, hash, dir.vacant && first, &names[index])? {
                child(index, made);
            }
            self.flush_if_large()?;
        }
        dir.vacant = false;
        Ok(())
    }

    fn name(
        &mut self,
        dir: &mut ScanDirectory,
        hash: u64,
        vacant: bool,
        listed: &Listed<'_>,
    ) -> FsResult<Option<ScanDirectory>> {
        let cookie = key::cookie(hash, 0);
        let search = if vacant {
            Search::Vacant(Vacancy { cookie, chained: false, predecessor: None })
        } else {
            self.view().find(dir.ino, hash, listed.name)?
        };
        let is_directory = listed.attr.kind == Kind::Directory;
        let (place, old) = match search {
            Search::Vacant(vacancy) => (vacancy, None),
            Search::Found(found) => {
                let FoundEntry { cookie, chained, ino, target } = found;
                let vacancy = Vacancy { cookie, chained, predecessor: None };
                (vacancy, Some(Old { cookie, ino, target }))
            }
        };
        dir.seen.push(Seen {
            cookie: place.cookie,
            existed: old.is_some(),
            was_directory: old.as_ref().is_some_and(|old| old.target == Target::Directory),
            is_directory,
        });
        if is_directory {
            self.put_directory(dir.ino, &place, old, listed).map(Some)
        } else {
            self.put_inode(dir.ino, &place, old, listed).map(|()| None)
        }
    }

    fn put_directory(
        &mut self,
        dir: u64,
        place: &Vacancy,
        old: Option<Old>,
        listed: &Listed<'_>,
    ) -> FsResult<ScanDirectory> {
        let attr = Some((listed.attr, listed.record_of_xattrs()));
        if let Some(Old { ino, target: Target::Directory, .. }) = old {
            let record = self.view().directory(ino)?;
            return Ok(self.directory(ino, (dir, place.cookie), record, attr));
        }
        if let Some(old) = &old {
            self.erase_inode(dir, old)?;
        }
        let ino = self.fs.numbers.next_ino(&*self.fs.store)?;
        self.put_entry(dir, place, ino, listed.name, Target::Directory)?;
        self.record.files += 1;
        let mut made = self.directory(ino, (dir, place.cookie), None, attr);
        made.vacant = true;
        made.born = true;
        Ok(made)
    }

    fn put_inode(
        &mut self,
        dir: u64,
        place: &Vacancy,
        old: Option<Old>,
        listed: &Listed<'_>,
    ) -> FsResult<()> {
        let inode = listed.inode();
        if listed.is_linked() {
            return self.put_link(dir, place, old, listed, inode);
        }
        let same = old.as_ref().and_then(|old| match old.target {
            Target::Embedded(was) if is_same_inode(&was, &inode) => Some((old.ino, was)),
            _ => None,
        });
        let tree = self.tree;
        let bulk = key::entry(dir, place.cookie, Part::Bulk);
        let xattrs = key::entry(dir, place.cookie, Part::Xattrs);
        if let Some((ino, was)) = same {
            self.put_attached(&bulk, &xattrs, listed, &was)?;
            if was != inode {
                self.put_entry(dir, place, ino, listed.name, Target::Embedded(inode))?;
            }
            return Ok(());
        }
        if let Some(old) = &old {
            self.erase_inode(dir, old)?;
        }
        let ino = self.fs.numbers.next_ino(&*self.fs.store)?;
        self.put_entry(dir, place, ino, listed.name, Target::Embedded(inode))?;
        self.record.files += 1;
        if inode.has_bulk {
            self.plan.batch().put(tree, &bulk, listed.target);
        }
        if inode.has_xattrs {
            self.plan.batch().put(tree, &xattrs, &listed.record_of_xattrs().encode());
        }
        Ok(())
    }

    /// Writes what is stored beside an existing inode, where it differs.
    fn put_attached(
        &mut self,
        bulk: &[u8],
        xattrs: &[u8],
        listed: &Listed<'_>,
        was: &InodeRecord,
    ) -> FsResult<()> {
        let (tree, view) = (self.tree, self.view());
        let had = if was.has_bulk { view.bulk(bulk)? } else { Vec::new() };
        if had != listed.target {
            self.put_or_delete(bulk, listed.target);
        }
        if was.has_xattrs || !listed.xattrs.is_empty() {
            let had = if was.has_xattrs { view.xattrs(xattrs)? } else { XattrRecord::default() };
            let has = listed.record_of_xattrs();
            if has.is_empty() {
                self.plan.batch().delete(tree, xattrs);
            } else if has != had {
                self.plan.batch().put(tree, xattrs, &has.encode());
            }
        }
        Ok(())
    }

    fn put_or_delete(&mut self, key: &[u8], bytes: &[u8]) {
        let tree = self.tree;
        if bytes.is_empty() {
            self.plan.batch().delete(tree, key);
        } else {
            self.plan.batch().put(tree, key, bytes);
        }
    }

    fn put_link(
        &mut self,
        dir: u64,
        place: &Vacancy,
        old: Option<Old>,
        listed: &Listed<'_>,
        inode: InodeRecord,
    ) -> FsResult<()> {
        let known = self.links.get(listed.attr.elsewhere());
        let ino = if let Some(link) = known {
            link.ino
        } else {
            self.record.files += 1;
            self.fs.numbers.next_ino(&*self.fs.store)?
        };
        self.put_linked(ino, known, listed, inode)?;
        let tree = self.tree;
        let target = Target::Linked(inode.kind);
        if let Some(old) = &old {
            if old.ino == ino && old.target == target {
                return Ok(());
            }
            self.erase_inode(dir, old)?;
        }
        let reference = key::back_reference(ino, dir, place.cookie);
        self.plan.batch().put(tree, &reference, b"");
        self.put_entry(dir, place, ino, listed.name, target)
    }

    /// Writes the record that all names of an inode share, if it differs from what is known.
    fn put_linked(
        &mut self,
        ino: u64,
        known: Option<Link>,
        listed: &Listed<'_>,
        inode: InodeRecord,
    ) -> FsResult<()> {
        let record = LinkedRecord { nlink: listed.attr.nlink, inode };
        let mut hasher = FastHasher::default();
        listed.hash_inode(&mut hasher);
        let hash = hasher.finish();
        let before = known.and_then(|link| link.hash);
        if before == Some(hash) {
            return Ok(());
        }
        self.links.set(listed.attr.elsewhere(), Link { ino, hash: Some(hash) });
        let tree = self.tree;
        let bulk = key::linked(ino, Part::Bulk);
        let xattrs = key::linked(ino, Part::Xattrs);
        // What the scan itself wrote may wait in the batch, where it cannot be compared.
        let was = match before {
            None => self.view().linked(ino)?,
            Some(_) => None,
        };
        if let Some(was) = &was {
            self.put_attached(&bulk, &xattrs, listed, &was.inode)?;
        } else {
            self.put_or_delete(&bulk, listed.target);
            let record = listed.record_of_xattrs();
            let bytes = if record.is_empty() { Vec::new() } else { record.encode() };
            self.put_or_delete(&xattrs, &bytes);
        }
        if was != Some(record) {
            self.plan.put_linked(tree, ino, &record);
        }
        Ok(())
    }

    fn put_entry(
        &mut self,
        dir: u64,
        place: &Vacancy,
        ino: u64,
        name: &[u8],
        target: Target,
    ) -> FsResult<()> {
        let entry = EntryRecord { chained: place.chained, ino, name, target };
        let view = self.view();
        if place.predecessor.is_some() {
            self.plan.insert_entry(view, dir, place, &entry)?;
            return self.flush();
        }
        self.plan.put_entry(view.tree, dir, place.cookie, &entry);
        Ok(())
    }

    /// Removes what a name pointed to, and what is stored beside it; the entry itself is written
    /// again.
    fn erase_inode(&mut self, dir: u64, old: &Old) -> FsResult<()> {
        match old.target {
            Target::Directory => self.erase_tree(old.ino),
            target => {
                let found = FoundEntry { cookie: old.cookie, chained: false, ino: old.ino, target };
                self.let_go(dir, &found);
                Ok(())
            }
        }
    }

    /// Records that a name no longer exists. Names of one directory are passed once each.
    pub fn remove(&mut self, dir: &mut ScanDirectory, name: &[u8]) -> FsResult<()> {
        self.flush()?;
        let found = self.view().find_entry(dir.ino, self.fs.hash.hash(name), name)?;
        let Some(found) = found else { return Ok(()) };
        dir.removed.0 += 1;
        dir.removed.1 += i64::from(found.is_directory());
        self.erase(dir.ino, &found)
    }

    /// Ends the input of a directory.
    pub fn close(&mut self, mut dir: ScanDirectory, names: Names) -> FsResult<()> {
        dir.settle();
        let sum =
            |of: &dyn Fn(&Seen) -> bool| dir.seen.iter().filter(|seen| of(seen)).count() as i64;
        let counts = (dir.seen.len() as i64, sum(&|seen| seen.is_directory));
        let before = (sum(&|seen| seen.existed), sum(&|seen| seen.was_directory));
        let (entries, subdirectories) = match names {
            Names::All => {
                let complete = dir.old.is_some_and(|old| old.entries == before.0);
                if !dir.born && (self.resumed || !complete) {
                    self.vanish(&dir)?;
                }
                counts
            }
            Names::Some => {
                let had = dir.old.map_or((0, 0), |old| (old.entries, old.subdirectories));
                (
                    had.0 + counts.0 - before.0 - dir.removed.0,
                    had.1 + counts.1 - before.1 - dir.removed.1,
                )
            }
        };
        let had = dir.old.filter(|old| old.has_xattrs);
        let record = dir.record(entries, subdirectories);
        if let Some((_, xattrs)) = &dir.attr
            && (had.is_some() || !xattrs.is_empty())
        {
            let key = key::directory(dir.ino, Part::Xattrs);
            let bytes = if xattrs.is_empty() { Vec::new() } else { xattrs.encode() };
            self.put_or_delete(&key, &bytes);
        }
        if dir.old != Some(record) {
            self.plan.put_directory(self.tree, dir.ino, &record);
        }
        self.open -= 1;
        self.flush_if_large()
    }
}

impl ScanDirectory {
    /// Keeps, of a name that was passed more than once, its first old state and its last new one.
    fn settle(&mut self) {
        self.seen.sort_by_key(|seen| seen.cookie);
        self.seen.dedup_by(|later, first| {
            let same = later.cookie == first.cookie;
            if same {
                first.is_directory = later.is_directory;
            }
            same
        });
    }

    /// Its record.
    fn record(&self, entries: i64, subdirectories: i64) -> DirectoryRecord {
        let (parent, parent_cookie) = self.parent;
        match (&self.attr, &self.old) {
            (Some((attr, xattrs)), _) => DirectoryRecord {
                entries,
                subdirectories,
                mtime: attr.mtime,
                ctime: attr.ctime,
                atime: attr.atime,
                btime: attr.btime,
                parent,
                parent_cookie,
                mode: attr.mode(xattrs),
                uid: attr.uid,
                gid: attr.gid,
                has_xattrs: !xattrs.is_empty(),
                detached: false,
                elsewhere: Some(attr.directory()),
                // The mark of the root, which existed before the scan; scanned inodes are charged
                // to no one, as their contents are elsewhere.
                charge: self.old.and_then(|old| old.charge),
            },
            (None, Some(old)) => DirectoryRecord { entries, subdirectories, ..*old },
            (None, None) => unreachable!("invariant: a directory that was found has a record"),
        }
    }
}

/// Whether two records represent one inode of the other file system.
fn is_same_inode(one: &InodeRecord, other: &InodeRecord) -> bool {
    one.kind == other.kind && one.elsewhere == other.elsewhere
}
