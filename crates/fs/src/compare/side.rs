//! One state of a directory: what can be reached in it, by which names, and what is there.
//!
//! A tree may hold more than the directory: that of a snapshot has all of the subvolume until it
//! is pruned. So a directory counts only if parents lead from it to the root, and if the caller
//! may list each of them. What is remembered of directories is bounded, and read again if needed.

use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::inode_record::InodeRecord;
use format::key::{self, Parsed, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::{EXECUTE, READ};
use inode::{Attr, Caller, Ino, NodeId, SubvolId};
use search::{NamedEntry, Records};
use store::{KeyRange, TreeId};
use vfs::FsResult;
use volume::attributes;
use volume::error::{from_search, from_store, inconsistent, malformed};

use super::bounds::Bounds;

/// Deepest directory whose parents are followed: more are a loop.
const DEPTH_MAX: usize = 1 << 20;
/// Most directories that are remembered; then all are forgotten.
const REMEMBERED_MAX: usize = 1 << 17;

/// The old state, as an index.
pub(super) const OLD: usize = 0;
/// The new state, as an index.
pub(super) const NEW: usize = 1;

/// A directory and a cookie in it.
pub(super) type Slot = (u64, u64);

/// A directory of a subvolume, in the state that is compared.
#[derive(Debug, Clone)]
pub(super) struct Half {
    /// The subvolume.
    pub(super) subvolume: u64,
    /// Its tree.
    pub(super) tree: TreeId,
    /// The directory.
    pub(super) root: u64,
    /// Its path, relative to the directory that is compared.
    pub(super) path: Vec<u8>,
    /// The root of the subvolume, and whether the tree holds only what is below that.
    pub(super) extracted: (u64, bool),
}

/// One state of a directory.
pub(super) struct Side<'a> {
    /// The records of its tree.
    pub(super) records: Records<'a>,
    /// What it is a state of.
    pub(super) half: Half,
    /// Directories that are compared separately, with what is mounted over them in the other state.
    pub(super) separate: Set<u64>,
    caller: &'a Caller,
    bounds: Bounds,
    directories: Map<u64, Known>,
}

/// What is remembered of a directory.
struct Known {
    slot: Slot,
    is_open: bool,
    name: Option<Box<[u8]>>,
}

/// An inode.
pub(super) enum Stored {
    /// A directory.
    Directory(DirectoryRecord),
    /// Anything else.
    File {
        /// Its attributes.
        inode: InodeRecord,
        /// How many names it has.
        nlink: u32,
        /// The entry that holds it; `None`: it is stored under its own number.
        entry: Option<Slot>,
    },
}

/// A name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    /// Its directory.
    pub(super) directory: u64,
    /// The name.
    pub(super) name: Vec<u8>,
}

/// An inode with its names that the caller may see; the root has none.
pub(super) struct Seen {
    /// The inode.
    pub(super) stored: Stored,
    /// Its names.
    pub(super) names: Vec<Name>,
}

impl<'a> Side<'a> {
    /// A state of a directory.
    pub(super) fn new(
        records: Records<'a>,
        half: Half,
        (caller, bounds): (&'a Caller, Bounds),
    ) -> Side<'a> {
        let records = records.of_tree(half.tree);
        Side {
            records,
            half,
            separate: Set::default(),
            caller,
            bounds,
            directories: Map::default(),
        }
    }

    /// Excludes a directory and all below it.
    pub(super) fn set_separate(&mut self, directory: u64) {
        self.separate.insert(directory);
        self.directories.clear();
    }

    /// Whether a directory can be reached from the root, and the caller may list it and all above.
    pub(super) fn is_open(&mut self, directory: u64) -> FsResult<bool> {
        let mut chain = Vec::new();
        let mut at = directory;
        let mut is_open = loop {
            if let Some(known) = self.directories.get(&at) {
                break known.is_open;
            }
            if chain.len() > DEPTH_MAX {
                return Err(inconsistent(self.half.tree, "directories contain each other", at));
            }
            let record = self.directory(at)?.filter(|record| !record.detached);
            let Some(record) = record.filter(|_| !self.separate.contains(&at)) else {
                chain.push((at, (0, 0), false));
                break false;
            };
            chain.push((at, (record.parent, record.parent_cookie), self.may_list(at, &record)?));
            if at == self.half.root {
                break true;
            }
            if record.parent == at {
                break false;
            }
            at = record.parent;
        };
        if self.directories.len() + chain.len() > REMEMBERED_MAX {
            self.directories.clear();
        }
        for (at, slot, may_list) in chain.into_iter().rev() {
            is_open &= may_list;
            self.directories.insert(at, Known { slot, is_open, name: None });
        }
        Ok(is_open)
    }

    /// The directory that an open directory is in.
    pub(super) fn parent(&mut self, directory: u64) -> FsResult<u64> {
        self.slot(directory).map(|slot| slot.0)
    }

    /// The entry of an open directory.
    pub(super) fn slot(&mut self, directory: u64) -> FsResult<Slot> {
        self.is_open(directory)?;
        Ok(self.directories.get(&directory).map_or((0, 0), |known| known.slot))
    }

    /// The path of a name in an open directory.
    pub(super) fn path(&mut self, name: &Name) -> FsResult<Vec<u8>> {
        let mut names = vec![name.name.clone().into_boxed_slice()];
        let mut at = name.directory;
        while at != self.half.root {
            if names.len() > DEPTH_MAX {
                return Err(inconsistent(self.half.tree, "directories contain each other", at));
            }
            let slot = self.slot(at)?;
            names.push(self.name(at, slot)?);
            at = slot.0;
        }
        let mut path = self.half.path.clone();
        for name in names.iter().rev() {
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(name);
        }
        Ok(path)
    }

    /// The name of a directory other than the root.
    fn name(&mut self, directory: u64, slot: Slot) -> FsResult<Box<[u8]>> {
        if let Some(Known { name: Some(name), .. }) = self.directories.get(&directory) {
            return Ok(name.clone());
        }
        let mut entry = NamedEntry::default();
        self.records.entry(slot.0, slot.1, &mut entry).map_err(from_search)?;
        if entry.target != Some(Target::Directory) || entry.ino != directory {
            return Err(inconsistent(self.half.tree, "a directory has no name", directory));
        }
        let name = entry.name.into_boxed_slice();
        if let Some(known) = self.directories.get_mut(&directory) {
            known.name = Some(name.clone());
        }
        Ok(name)
    }

    /// A directory's own record.
    pub(super) fn directory(&self, ino: u64) -> FsResult<Option<DirectoryRecord>> {
        self.records.directory(ino).map_err(from_search)
    }

    fn may_list(&self, ino: u64, record: &DirectoryRecord) -> FsResult<bool> {
        if self.caller.is_root() {
            return Ok(true);
        }
        let owned = attributes::owned_directory(record);
        let allowed = owned.allows(self.caller, READ | EXECUTE, || self.records.access_list(ino));
        allowed.map_err(from_search)
    }

    /// An inode, with its visible names. `slots` is where it may have one: that of this state, and
    /// that of the other. `None`: there is no such inode, or no visible name of it.
    pub(super) fn seen(&mut self, ino: u64, slots: [Option<Slot>; 2]) -> FsResult<Option<Seen>> {
        if self.separate.contains(&ino) {
            return Ok(None);
        }
        let mut entry = NamedEntry::default();
        for slot in slots.into_iter().flatten() {
            self.records.entry(slot.0, slot.1, &mut entry).map_err(from_search)?;
            if entry.ino != ino {
                continue;
            }
            match entry.target {
                Some(Target::Embedded(inode)) => {
                    if !self.is_open(slot.0)? {
                        return Ok(None);
                    }
                    let stored = Stored::File { inode, nlink: 1, entry: Some(slot) };
                    let name = Name { directory: slot.0, name: entry.name };
                    return Ok(Some(Seen { stored, names: vec![name] }));
                }
                Some(Target::Linked(_)) => return self.linked(ino),
                Some(Target::Directory) => return self.seen_directory(ino),
                Some(Target::Subvolume(_) | Target::Tombstone) | None => {}
            }
        }
        match self.seen_directory(ino)? {
            None => self.linked(ino),
            seen => Ok(seen),
        }
    }

    fn seen_directory(&mut self, ino: u64) -> FsResult<Option<Seen>> {
        let record = self.directory(ino)?.filter(|record| !record.detached);
        let Some(record) = record else { return Ok(None) };
        let stored = Stored::Directory(record);
        if ino == self.half.root {
            return Ok(Some(Seen { stored, names: Vec::new() }));
        }
        let slot = (record.parent, record.parent_cookie);
        if record.parent == ino || !self.is_open(record.parent)? {
            return Ok(None);
        }
        let name = self.name(ino, slot)?.into_vec();
        Ok(Some(Seen { stored, names: vec![Name { directory: slot.0, name }] }))
    }

    /// An inode that is stored under its own number.
    fn linked(&mut self, ino: u64) -> FsResult<Option<Seen>> {
        let Some(record) = self.records.linked(ino).map_err(from_search)? else { return Ok(None) };
        let range = KeyRange::prefix(&key::back_reference_prefix(ino));
        let tree = self.half.tree;
        let (mut slots, mut taken) = (Vec::new(), 0);
        let mut cursor = self.records.read.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            if let Parsed::BackReference { directory, cookie, .. } = parsed {
                self.bounds.take_name(&mut taken, b"")?;
                slots.push((directory, cookie));
            }
        }
        drop(cursor);
        let mut names = Vec::new();
        let mut entry = NamedEntry::default();
        for (directory, cookie) in slots {
            if self.is_open(directory)? {
                self.records.entry(directory, cookie, &mut entry).map_err(from_search)?;
                if entry.ino != ino || entry.target.is_none() {
                    return Err(inconsistent(tree, "a link has no name", ino));
                }
                self.bounds.take_name(&mut taken, &entry.name)?;
                names.push(Name { directory, name: std::mem::take(&mut entry.name) });
            }
        }
        let stored = Stored::File { inode: record.inode, nlink: record.nlink, entry: None };
        Ok((!names.is_empty()).then_some(Seen { stored, names }))
    }

    /// The attributes of an inode, as callers see them.
    pub(super) fn attr(&self, ino: u64, stored: &Stored) -> Attr {
        let node = NodeId::new(SubvolId(self.half.subvolume), Ino(ino));
        match stored {
            Stored::Directory(record) => attributes::of_directory(node, record),
            Stored::File { inode, nlink, .. } => attributes::of_file(node, inode, *nlink),
        }
    }

    /// The extended attributes of an inode.
    pub(super) fn xattrs(&self, ino: u64, stored: &Stored) -> FsResult<XattrRecord> {
        let key = match stored {
            Stored::Directory(record) if record.has_xattrs => {
                key::directory(ino, Part::Xattrs).to_vec()
            }
            Stored::File { inode, entry, .. } if inode.has_xattrs => {
                file_key(ino, *entry, Part::Xattrs)
            }
            _ => return Ok(XattrRecord::default()),
        };
        let record = self.records.decode(&key, XattrRecord::decode).map_err(from_search)?;
        Ok(record.unwrap_or_default())
    }

    /// The target of a symbolic link, or the contents of a small file.
    pub(super) fn bulk(&self, ino: u64, stored: &Stored) -> FsResult<Vec<u8>> {
        match stored {
            Stored::File { inode, entry, .. } if inode.has_bulk => {
                let key = file_key(ino, *entry, Part::Bulk);
                let bytes = self.records.read.get(self.half.tree, &key).map_err(from_store)?;
                Ok(bytes.unwrap_or_default())
            }
            _ => Ok(Vec::new()),
        }
    }
}

/// The key of a record of an inode that is not a directory.
fn file_key(ino: u64, entry: Option<Slot>, part: Part) -> Vec<u8> {
    match entry {
        Some((directory, cookie)) => key::entry(directory, cookie, part).to_vec(),
        None => key::linked(ino, part).to_vec(),
    }
}
