//! The records of drafts, as sorted runs: those of extents, and those of new directories.
//! Directories are in the order of their numbers, each with its entries in the order of their
//! cookies.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::InodeRecord;
use format::key::{self, ENTRY_KEY_BYTES, Part};
use store::{Item, SortedRun};
use vfs::FsResult;
use volume::view::NAMES_OF_A_HASH;

use super::draft::{Chunk, Dir, DirId, Draft, File};

/// Records in the order of their keys.
#[derive(Default)]
pub(super) struct Records {
    keys: Vec<[u8; ENTRY_KEY_BYTES]>,
    ends: Vec<usize>,
    bytes: Vec<u8>,
}

impl Records {
    fn clear(&mut self) {
        self.keys.clear();
        self.ends.clear();
        self.bytes.clear();
    }

    fn push(&mut self, key: [u8; ENTRY_KEY_BYTES], encode: impl FnOnce(&mut Vec<u8>)) {
        encode(&mut self.bytes);
        self.keys.push(key);
        self.ends.push(self.bytes.len());
    }

    fn get(&self, at: usize) -> Option<(&[u8], &[u8])> {
        let key = self.keys.get(at)?;
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        Some((key, &self.bytes[start..self.ends[at]]))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        (0..self.keys.len()).filter_map(|at| self.get(at))
    }
}

impl Dir {
    /// Its record as it is stored.
    pub(super) fn stored(&self, detached: bool) -> DirectoryRecord {
        let has_xattrs = !self.xattrs.is_empty();
        DirectoryRecord { parent_cookie: self.cookie, has_xattrs, detached, ..self.record }
    }
}

impl File {
    fn stored(&self) -> InodeRecord {
        let (has_bulk, has_xattrs) = (!self.bulk.is_empty(), self.xattrs.is_some());
        InodeRecord { has_bulk, has_xattrs, ..self.inode }
    }

    /// Appends its entry, and what is beside it.
    pub(super) fn encode(&self, out: &mut Records, dir: u64, chained: bool) {
        let (ino, name) = (self.ino, &*self.name);
        let target = Target::Embedded(self.stored());
        let key = |part| key::entry(dir, self.cookie, part);
        let entry = EntryRecord { chained, ino, name, target };
        out.push(key(Part::Attributes), |bytes| entry.encode(bytes));
        if !self.bulk.is_empty() {
            out.push(key(Part::Bulk), |bytes| bytes.extend_from_slice(&self.bulk));
        }
        if let Some(xattrs) = &self.xattrs {
            out.push(key(Part::Xattrs), |bytes| bytes.extend_from_slice(&xattrs.encode()));
        }
    }
}

impl Chunk {
    /// Sorts the names of new directories, and gives each its place.
    pub(super) fn place_names(&mut self) -> FsResult<()> {
        for at in 0..self.dirs.len() {
            if self.dirs[at].is_base(at as u32) {
                continue;
            }
            let mut children = std::mem::take(&mut self.dirs[at].children);
            children.sort_by_key(|(hash, _)| *hash);
            let (mut last, mut index) = (None, 0_u8);
            for &(hash, child) in &children {
                index = if last == Some(hash) {
                    index.checked_add(1).ok_or(NAMES_OF_A_HASH)?
                } else {
                    0
                };
                last = Some(hash);
                self.set_cookie(child, key::cookie(hash, index));
            }
            self.dirs[at].children = children;
        }
        Ok(())
    }

    pub(super) fn set_cookie(&mut self, draft: Draft, cookie: u64) {
        match draft {
            Draft::Directory(dir) => self.dir_mut(dir).cookie = cookie,
            Draft::File(file) => self.file_mut(file).cookie = cookie,
        }
    }

    /// Whether a directory is new, and in one that is not.
    pub(super) fn is_top(&self, at: usize) -> bool {
        let dir = &self.dirs[at];
        !dir.is_base(at as u32) && dir.parent == dir.base
    }

    /// Appends all records of a new directory.
    pub(super) fn encode_dir(&self, at: usize, detached: bool, out: &mut Records) {
        let dir = &self.dirs[at];
        let own = |part| key::directory(dir.ino, part);
        let record = dir.stored(detached).encode();
        out.push(own(Part::Attributes), |bytes| bytes.extend_from_slice(&record));
        if !dir.xattrs.is_empty() {
            let xattrs = dir.xattrs.encode();
            out.push(own(Part::Xattrs), |bytes| bytes.extend_from_slice(&xattrs));
        }
        for (n, (hash, child)) in dir.children.iter().enumerate() {
            let chained = dir.children.get(n + 1).is_some_and(|(next, _)| next == hash);
            self.encode_child(*child, (dir.ino, chained), out);
        }
    }

    /// Appends the entry of a draft, and what is beside it.
    pub(super) fn encode_child(
        &self,
        child: Draft,
        (dir, chained): (u64, bool),
        out: &mut Records,
    ) {
        match child {
            Draft::File(file) => self.file(file).encode(out, dir, chained),
            Draft::Directory(id) => {
                let Dir { ino, name, cookie, .. } = self.dir(id);
                let entry = EntryRecord { chained, ino: *ino, name, target: Target::Directory };
                let key = key::entry(dir, *cookie, Part::Attributes);
                out.push(key, |bytes| entry.encode(bytes));
            }
        }
    }

    /// All new directories, as a run; the topmost as detached.
    pub(super) fn directories(&self, detached: bool) -> Directories<'_> {
        Directories { chunk: self, detached, dir: 0, records: Records::default(), at: 0 }
    }

    /// All extents, as a run.
    pub(super) fn extents(&self) -> Extents<'_> {
        Extents { files: &self.files, file: 0, at: 0, key: [0; 17] }
    }

    /// The directory of a draft that is in a base.
    pub(super) fn base_of(&self, draft: Draft) -> DirId {
        match draft {
            Draft::Directory(dir) => DirId(self.dir(dir).parent),
            Draft::File(file) => DirId(self.file(file).dir),
        }
    }
}

/// The run of new directories.
pub(super) struct Directories<'a> {
    chunk: &'a Chunk,
    detached: bool,
    dir: usize,
    records: Records,
    at: usize,
}

impl SortedRun for Directories<'_> {
    fn next_entry(&mut self) -> store::Result<Option<Item<'_>>> {
        while self.at == self.records.keys.len() {
            let Some(dir) = self.chunk.dirs.get(self.dir) else { return Ok(None) };
            self.records.clear();
            self.at = 0;
            if !dir.is_base(self.dir as u32) {
                let detached = self.detached && self.chunk.is_top(self.dir);
                self.chunk.encode_dir(self.dir, detached, &mut self.records);
            }
            self.dir += 1;
        }
        self.at += 1;
        Ok(self.records.get(self.at - 1).map(|(key, value)| Item { key, value }))
    }
}

/// The run of extents.
pub(super) struct Extents<'a> {
    files: &'a [File],
    file: usize,
    at: usize,
    key: [u8; 17],
}

impl SortedRun for Extents<'_> {
    fn next_entry(&mut self) -> store::Result<Option<Item<'_>>> {
        loop {
            let Some(file) = self.files.get(self.file) else { return Ok(None) };
            if let Some((offset, value)) = file.extents.get(self.at) {
                self.key = key::extent(file.ino, *offset);
                self.at += 1;
                return Ok(Some(Item { key: &self.key, value }));
            }
            (self.file, self.at) = (self.file + 1, 0);
        }
    }
}
