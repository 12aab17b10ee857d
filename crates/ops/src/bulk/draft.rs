//! Drafts: inodes in memory, with what is stored beside them.

use std::collections::BTreeMap;

use data::{Freed, Gathered};
use device::Map;
use format::acl::{Acl, DEFAULT};
use format::batch::{Lane, MergeKind, Op};
use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::key::{self, Parsed};
use format::xattr_record::XattrRecord;
use inode::{Caller, FsError};
use store::{Batch, TreeId};
use vfs::FsResult;
use volume::attributes;
use volume::subvol::VOLUME;

use crate::Ops;
use crate::plan::Plan;
use crate::posix::xattr;

/// Numbers that nothing reaches, and the record that lists them.
#[derive(Clone, Copy)]
pub(super) struct Intent {
    pub(super) sequence: u64,
    pub(super) first: u64,
    pub(super) end: u64,
}

/// A directory in which drafts are made: a draft itself, or a base. Valid until the next flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirId(pub(super) u32);

/// A draft that is not a directory. Valid until the next flush.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileId(pub(super) u32);

/// A draft.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Draft {
    /// A directory.
    Directory(DirId),
    /// Anything else.
    File(FileId),
}

/// What one flush makes visible.
#[derive(Default)]
pub(super) struct Chunk {
    /// Bases and drafts; drafts in the order of their numbers.
    pub(super) dirs: Vec<Dir>,
    pub(super) files: Vec<File>,
    pub(super) bases: Map<u64, u32>,
    /// Reserves the charges.
    pub(super) plan: Plan,
    /// What the charges change in the volume's tree.
    pub(super) charges: Merges,
    /// What the contents change there.
    pub(super) segments: Merges,
    pub(super) freed: Freed,
    /// Contents that a flush writes first.
    pub(super) gathered: Gathered,
    /// Whether inodes were charged to their owners when the chunk began.
    pub(super) owners: bool,
    pub(super) first: Option<u64>,
    /// Bytes of memory, about.
    pub(super) weight: usize,
    /// Bytes of records in bases, about.
    pub(super) in_bases: usize,
    pub(super) contents: u64,
    pub(super) scratch: Batch,
    /// A commit may have named what was written: only garbage collection may free it.
    pub(super) in_doubt: bool,
}

/// Merges by their keys in the volume's tree.
pub(super) type Merges = BTreeMap<Vec<u8>, Vec<Lane>>;

/// A directory: a draft, or one that existed before.
pub(super) struct Dir {
    pub(super) ino: u64,
    pub(super) record: DirectoryRecord,
    pub(super) xattrs: XattrRecord,
    pub(super) name: Box<[u8]>,
    /// Where its entry is; known in a flush.
    pub(super) cookie: u64,
    /// The directory that it is in; itself for a base.
    pub(super) parent: u32,
    /// The base above it; itself for a base.
    pub(super) base: u32,
    /// Names by their hashes, in the order in which they were made; sorted by a flush.
    pub(super) children: Vec<(u64, Draft)>,
    /// The first child of a hash.
    index: Map<u64, Draft>,
    pub(super) keep: bool,
}

/// An inode that is not a directory.
pub(super) struct File {
    pub(super) ino: u64,
    pub(super) dir: u32,
    pub(super) inode: InodeRecord,
    pub(super) name: Box<[u8]>,
    /// Where its entry is; known in a flush.
    pub(super) cookie: u64,
    /// Target, or contents of a small file.
    pub(super) bulk: Vec<u8>,
    pub(super) xattrs: Option<Box<XattrRecord>>,
    /// Extents by their offsets, ascending.
    pub(super) extents: Vec<(u64, Box<[u8]>)>,
    pub(super) keep: bool,
}

impl Dir {
    pub(super) fn new(
        (ino, record, xattrs): (u64, DirectoryRecord, XattrRecord),
        name: &[u8],
        (parent, base): (u32, u32),
    ) -> Dir {
        Dir {
            ino,
            record,
            xattrs,
            name: name.into(),
            cookie: 0,
            parent,
            base,
            children: Vec::new(),
            index: Map::default(),
            keep: false,
        }
    }

    pub(super) fn is_base(&self, own: u32) -> bool {
        self.base == own
    }

    /// Checks a caller's access to it.
    pub(super) fn check(&self, caller: &Caller, mask: u32) -> FsResult<()> {
        let owned = attributes::owned_directory(&self.record);
        owned.check(caller, mask, || xattr::access_list(&self.xattrs))
    }

    /// The list that it hands down.
    pub(super) fn default_list(&self) -> FsResult<Option<Acl>> {
        let Some(bytes) = self.xattrs.get(DEFAULT) else { return Ok(None) };
        Acl::decode(bytes).map_err(|error| FsError::Io(error.to_string().into()))
    }
}

impl Chunk {
    /// An empty chunk in the memory of this one, whose drafts are visible; and what they freed.
    pub(super) fn emptied(self) -> (Freed, Chunk) {
        let Chunk { mut dirs, mut files, mut scratch, gathered, freed, .. } = self;
        dirs.clear();
        files.clear();
        scratch.clear();
        (freed, Chunk { dirs, files, gathered, scratch, ..Chunk::default() })
    }

    pub(super) fn dir(&self, id: DirId) -> &Dir {
        &self.dirs[id.0 as usize]
    }

    pub(super) fn dir_mut(&mut self, id: DirId) -> &mut Dir {
        &mut self.dirs[id.0 as usize]
    }

    pub(super) fn file(&self, id: FileId) -> &File {
        &self.files[id.0 as usize]
    }

    pub(super) fn file_mut(&mut self, id: FileId) -> &mut File {
        &mut self.files[id.0 as usize]
    }

    pub(super) fn name_of(&self, draft: Draft) -> &[u8] {
        match draft {
            Draft::Directory(dir) => &self.dir(dir).name,
            Draft::File(file) => &self.file(file).name,
        }
    }

    /// The draft that has a name.
    pub(super) fn named(&self, dir: DirId, hash: u64, name: &[u8]) -> Option<Draft> {
        let dir = self.dir(dir);
        let first = *dir.index.get(&hash)?;
        if self.name_of(first) == name {
            return Some(first);
        }
        let others = dir.children.iter().filter(|(other, _)| *other == hash);
        let mut others = others.map(|(_, draft)| *draft);
        others.find(|draft| self.name_of(*draft) == name)
    }

    /// Whether a draft has a name of this hash.
    pub(super) fn has_hash(&self, dir: DirId, hash: u64) -> bool {
        self.dir(dir).index.contains_key(&hash)
    }

    /// Whether a new directory has as many names of this hash as there are places for.
    pub(super) fn is_crowded(&self, dir: DirId, hash: u64) -> bool {
        let names = &self.dir(dir).children;
        self.has_hash(dir, hash)
            && names.iter().filter(|(other, _)| *other == hash).count() > usize::from(u8::MAX)
    }

    /// Adds a name.
    pub(super) fn add_child(&mut self, dir: DirId, hash: u64, child: Draft) {
        let dir = self.dir_mut(dir);
        dir.children.push((hash, child));
        dir.index.entry(hash).or_insert(child);
    }

    /// Has a policy charge a step: all of it, or nothing if the step is refused.
    pub(super) fn charge<T>(
        &mut self,
        (fs, caller): (&Ops, &Caller),
        step: impl FnOnce(&mut Plan) -> FsResult<T>,
    ) -> FsResult<T> {
        let mut plan = Plan::new();
        plan.now = self.plan.now;
        plan.on_behalf(caller);
        let mut done = step(&mut plan);
        if done.is_ok() && !plan.is_empty() {
            let gathered = gather(plan.batch(), None, &mut self.charges);
            done = done.and_then(|value| gathered.map(|_| value));
        }
        if done.is_ok() {
            self.plan.absorb(&mut plan);
        } else {
            plan.give_up(&fs.data);
        }
        plan.end();
        done
    }

    /// Takes what writing contents planned: extents of a file, and counts of segments.
    pub(super) fn take_extents(
        &mut self,
        tree: TreeId,
        id: FileId,
        batch: &Batch,
        freed: Freed,
    ) -> FsResult<()> {
        self.freed.merge(freed);
        let extents = gather(batch, Some(tree), &mut self.segments)?;
        let file = &mut self.files[id.0 as usize];
        for (offset, value) in extents {
            self.weight += value.len() + 64;
            match file.extents.last_mut() {
                Some((last, old)) if *last == offset => *old = value,
                _ => file.extents.push((offset, value)),
            }
        }
        Ok(())
    }
}

type Extents = Vec<(u64, Box<[u8]>)>;

/// Adds the merges of a batch in the volume's tree to others, and returns the extents that it puts
/// into a tree.
fn gather(batch: &Batch, tree: Option<TreeId>, merges: &mut Merges) -> FsResult<Extents> {
    const UNEXPECTED: &str = "a plan for an inode in memory changes something else";
    let mut extents = Vec::new();
    for op in batch.ops() {
        match op {
            Ok(Op::Merge { tree, key, lanes }) if tree == VOLUME.0 => {
                if !merges.contains_key(key) {
                    merges.insert(key.to_vec(), Vec::new());
                }
                let sums = merges.get_mut(key).expect("invariant: it was just inserted");
                lanes.iter().for_each(|lane| add(sums, lane));
            }
            Ok(Op::Put { tree: of, key, value }) if tree.is_some_and(|tree| tree.0 == of) => {
                match key::parse(key) {
                    Ok(Parsed::Extent { offset, .. }) => extents.push((offset, value.into())),
                    _ => return Err(FsError::Io(UNEXPECTED.to_owned().into())),
                }
            }
            _ => return Err(FsError::Io(UNEXPECTED.to_owned().into())),
        }
    }
    extents.sort_by_key(|(offset, _)| *offset);
    Ok(extents)
}

fn add(sums: &mut Vec<Lane>, lane: Lane) {
    let same = |sum: &&mut Lane| (sum.offset, sum.kind) == (lane.offset, lane.kind);
    match sums.iter_mut().find(same) {
        None => sums.push(lane),
        Some(sum) => {
            sum.operand = match sum.kind {
                MergeKind::Add => sum.operand.wrapping_add(lane.operand),
                MergeKind::Max => sum.operand.max(lane.operand),
            }
        }
    }
}
