//! Builds rows from records of the store, for the walk and for building clusters.
//!
//! A row is the record of a name with the attributes of its target. Those are in the entry, under a
//! linked inode's number, or under a directory's. All are read from one state, so that a row is
//! consistent.

use format::Malformed;
use format::acl::{self, Acl};
use format::cluster_summary::CARRIED_MAX;
use format::cluster_values::VALUE_BYTES_MAX;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inherited_record::{Home, InheritedRecord};
use format::inode_record::{FileKind, InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use format::xattr_record::XattrRecord;
use store::{KeyRange, Read, TreeId};

use crate::{Error, Result, Row};

/// The volume's own tree.
pub const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// Unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Extended attributes that rows of clusters carry, so that queries can skip clusters by them:
/// names, in order. All others are read from the store if a query requests them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Searchable(Vec<Vec<u8>>);

/// None: for rows that are not written to clusters.
pub static CARRY_NOTHING: Searchable = Searchable(Vec::new());

/// The part of a value that rows carry.
pub(crate) fn carried(value: &[u8]) -> &[u8] {
    value.get(..VALUE_BYTES_MAX).unwrap_or(value)
}

impl Searchable {
    /// The attributes that a state of a volume declares.
    pub fn declared(read: &dyn Read) -> Result<Searchable> {
        let mut names = Vec::new();
        let mut cursor = read.scan(VOLUME, KeyRange::prefix(&key::SEARCHABLE_PREFIX))?;
        while let Some(item) = cursor.next()? {
            names.push(item.key[key::SEARCHABLE_PREFIX.len()..].to_vec());
        }
        names.truncate(CARRIED_MAX);
        Ok(Searchable(names))
    }

    /// These names.
    pub fn new(mut names: Vec<Vec<u8>>) -> Searchable {
        names.sort();
        names.dedup();
        Searchable(names)
    }

    /// The names, in order.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.0
    }

    /// The searchable attributes of an inode, as rows carry them: in the encoding of
    /// `docs/format/xattr-record.md`, values truncated; empty if there are none.
    pub fn pick(&self, record: &XattrRecord) -> Vec<u8> {
        let mut picked = XattrRecord::default();
        for name in &self.0 {
            if let Some(value) = record.get(name) {
                picked.set(name, carried(value));
            }
        }
        if picked.is_empty() { Vec::new() } else { picked.encode() }
    }
}

/// Records of one tree in one state.
#[derive(Clone, Copy)]
pub struct Records<'a> {
    /// The state.
    pub read: &'a dyn Read,
    /// The tree.
    pub tree: TreeId,
    /// Which extended attributes go into rows.
    pub searchable: &'a Searchable,
}

/// An entry, with a name of its own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NamedEntry {
    /// The name.
    pub name: Vec<u8>,
    /// The inode.
    pub ino: u64,
    /// The target; `None` if there is no entry, or a tombstone.
    pub target: Option<Target>,
}

impl<'a> Records<'a> {
    /// The same state, another tree.
    #[must_use]
    pub fn of_tree(self, tree: TreeId) -> Records<'a> {
        Records { tree, ..self }
    }

    /// An error about a record of this tree.
    pub fn malformed(&self, error: Malformed) -> Error {
        Error::Malformed { tree: self.tree, error }
    }

    /// An error about records of this tree that contradict one another.
    pub fn inconsistent(&self, what: &'static str, ino: u64) -> Error {
        Error::Inconsistent { tree: self.tree, what, ino }
    }

    /// Decodes a key's value in place.
    pub fn decode<T>(
        &self,
        key: &[u8],
        mut decode: impl FnMut(&[u8]) -> std::result::Result<T, Malformed>,
    ) -> Result<Option<T>> {
        let mut value = None;
        self.read.get_with(self.tree, key, &mut |bytes| value = Some(decode(bytes)))?;
        value.transpose().map_err(|error| self.malformed(error))
    }

    /// A directory's own record.
    pub fn directory(&self, ino: u64) -> Result<Option<DirectoryRecord>> {
        self.decode(&key::directory(ino, Part::Attributes), DirectoryRecord::decode)
    }

    /// The access control list of a directory that has one. A missing or damaged one grants no
    /// access: the contents of the directory are not reported, everything else is.
    pub fn access_list(&self, ino: u64) -> Result<Acl> {
        let key = key::directory(ino, Part::Xattrs);
        let acl = match self.decode(&key, XattrRecord::decode) {
            Ok(xattrs) => xattrs.as_ref().and_then(acl::access_of),
            Err(Error::Malformed { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok(acl.unwrap_or_else(|| Acl::of_mode(0)))
    }

    /// The record of an inode with several names.
    pub fn linked(&self, ino: u64) -> Result<Option<LinkedRecord>> {
        self.decode(&key::linked(ino, Part::Attributes), LinkedRecord::decode)
    }

    /// The record of a subvolume, of the volume's tree.
    pub fn subvolume(&self, id: u64) -> Result<Option<SubvolumeRecord>> {
        self.of_tree(VOLUME).decode(&key::subvolume(id), SubvolumeRecord::decode)
    }

    /// Whether a subvolume is mounted at an entry (subvolume, directory, cookie) that points to it,
    /// or inherited there.
    pub fn is_nested(
        &self,
        (above, directory, cookie): (u64, u64, u64),
        nested: &SubvolumeRecord,
    ) -> Result<bool> {
        if nested.parent == (above, directory, cookie) {
            return Ok(true);
        }
        let key = format::inherited_record::inherited(above);
        let inherited = self.of_tree(VOLUME).decode(&key, InheritedRecord::decode)?;
        let is_home = |home: &Home| (home.subvolume, directory, cookie) == nested.parent;
        Ok(inherited.is_some_and(|inherited| inherited.homes.iter().any(is_home)))
    }

    /// The entry at a place; its `target` shows whether there is one.
    pub fn entry(&self, directory: u64, cookie: u64, found: &mut NamedEntry) -> Result<()> {
        found.target = None;
        let key = key::entry(directory, cookie, Part::Attributes);
        self.decode(&key, |bytes| {
            let entry = EntryRecord::decode(bytes)?;
            found.name.clear();
            found.name.extend_from_slice(entry.name);
            found.ino = entry.ino;
            found.target = Some(entry.target).filter(|target| *target != Target::Tombstone);
            Ok(())
        })?;
        Ok(())
    }

    /// The row of an entry. `xattrs` is memory for its extended attributes. `None` for a tombstone.
    /// The entry's target must exist: anything else is damage.
    pub fn row<'r>(
        &self,
        (directory, cookie): (u64, u64),
        entry: &EntryRecord<'r>,
        xattrs: &'r mut Vec<u8>,
    ) -> Result<Option<Row<'r>>> {
        xattrs.clear();
        let (ino, name) = (entry.ino, entry.name);
        let row = match entry.target {
            Target::Tombstone => return Ok(None),
            Target::Embedded(inode) => {
                if inode.has_xattrs {
                    self.xattrs(&key::entry(directory, cookie, Part::Xattrs), xattrs)?;
                }
                of_inode(&inode, 1)
            }
            Target::Linked(_) => {
                let record = self.linked(ino)?;
                let damage = || self.inconsistent("a name points to no inode", ino);
                let LinkedRecord { nlink, inode } = record.ok_or_else(damage)?;
                if inode.has_xattrs {
                    self.xattrs(&key::linked(ino, Part::Xattrs), xattrs)?;
                }
                of_inode(&inode, nlink)
            }
            Target::Directory => self.directory_row(ino, xattrs)?,
            Target::Subvolume(id) => {
                let damage = || self.inconsistent("a name points to no subvolume", ino);
                let record = self.subvolume(id)?.ok_or_else(damage)?;
                let nested = self.of_tree(TreeId(record.tree));
                let row = nested.directory_row(record.root, xattrs)?;
                Row { ino: record.root, subvolume: id, ..row }
            }
        };
        let ino = if row.subvolume == 0 { ino } else { row.ino };
        Ok(Some(Row { directory, cookie, ino, name, xattrs, ..row }))
    }

    /// The row of a directory by its number, without a name or a place.
    pub fn directory_row(&self, ino: u64, xattrs: &mut Vec<u8>) -> Result<Row<'static>> {
        let damage = || self.inconsistent("a name points to no directory", ino);
        let record = self.directory(ino)?.ok_or_else(damage)?;
        xattrs.clear();
        if record.has_xattrs {
            self.xattrs(&key::directory(ino, Part::Xattrs), xattrs)?;
        }
        Ok(Row { ino, ..of_directory(&record) })
    }

    fn xattrs(&self, key: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.searchable.0.is_empty() {
            return Ok(());
        }
        if let Some(record) = self.decode(key, XattrRecord::decode)? {
            *out = self.searchable.pick(&record);
        }
        Ok(())
    }
}

/// A row without name or place, with the attributes of a directory.
pub fn of_directory(record: &DirectoryRecord) -> Row<'static> {
    let nlink = u32::try_from(record.subdirectories.saturating_add(2)).unwrap_or(u32::MAX);
    let (nlink, size, stored) = match &record.elsewhere {
        Some(elsewhere) => (elsewhere.nlink, elsewhere.size, elsewhere.allocated),
        None => (nlink, record.entries as u64, 0),
    };
    Row {
        directory: 0,
        cookie: 0,
        ino: 0,
        name: b"",
        kind: FileKind::Directory,
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        nlink,
        rdev: 0,
        size,
        allocated: in_blocks(stored),
        entries: record.entries as u64,
        atime: record.atime,
        mtime: record.mtime,
        ctime: record.ctime,
        btime: record.btime,
        subvolume: 0,
        xattrs: b"",
    }
}

/// Allocated space as stat reports it.
fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).saturating_mul(BLOCK_BYTES)
}

/// A row without name or place, with the attributes of an inode that is not a directory.
pub fn of_inode(inode: &InodeRecord, nlink: u32) -> Row<'static> {
    Row {
        directory: 0,
        cookie: 0,
        ino: 0,
        name: b"",
        kind: inode.kind,
        mode: inode.mode,
        uid: inode.uid,
        gid: inode.gid,
        nlink,
        rdev: inode.rdev,
        size: inode.size,
        allocated: inode.blocks().saturating_mul(BLOCK_BYTES),
        entries: 0,
        atime: inode.atime,
        mtime: inode.mtime,
        ctime: inode.ctime,
        btime: inode.btime,
        subvolume: 0,
        xattrs: b"",
    }
}
