//! Drafts in one subvolume, who makes them, and their numbers.

use std::ops::Range;
use std::sync::Arc;

use format::quota::Charge;
use inode::{Caller, FsError, NodeId};
use volume::subvol::Subvol;

use super::draft::{Chunk, DirId, Draft, Intent};
use crate::Ops;
use crate::policy::Policy;

/// Numbers of the first block; each further one has [`BLOCK_GROWTH`] times as many, up to
/// [`BLOCK_MAX`].
const BLOCK_MIN: u64 = 1 << 8;
/// A block that is used up is a flush, which waits for the disk.
const BLOCK_GROWTH: u64 = 8;
/// Most numbers of a block, and most inodes between two flushes.
const BLOCK_MAX: u64 = 1 << 17;
/// Most directories that existed before, in which one flush makes names: it locks all of them.
pub(super) const BASES_MAX: usize = 32;
/// Most bytes of records that go into the batch because they are in a base.
const BATCH_BYTES: usize = 4 << 20;
/// Most bytes of contents between two flushes: their segments stay open until the flush.
const CONTENTS_BYTES: u64 = 256 << 20;
/// Most bytes of memory of drafts that are one batch.
const SMALL_BYTES: usize = 1 << 20;
/// Least memory for drafts.
const MEMORY_MIN: usize = 64 << 10;
/// Memory for drafts unless the caller sets another.
pub const MEMORY: usize = 8 << 20;

/// On whose behalf drafts are made, and what sees them.
#[derive(Clone, Copy)]
pub struct Maker<'a> {
    /// The volume.
    pub fs: &'a Ops,
    /// Quotas and the trash.
    pub policy: &'a dyn Policy,
    /// The caller.
    pub caller: &'a Caller,
}

impl Maker<'_> {
    /// Whether what has this charge, or is made in a directory that has it, is charged to anybody.
    /// If not, the policy has nothing to plan. What changes until the flush, that charges.
    pub(super) fn charges(&self, charge: Option<Charge>) -> bool {
        charge.is_some() || self.policy.charges_owners()
    }
}

/// Why a draft was not made or changed.
#[derive(Debug, Clone)]
pub enum Refusal {
    /// The same must be done after a flush, by the ordinary operation or as a draft.
    Flush,
    /// The name exists, and no draft has it: only the ordinary operation decides what follows.
    Stored,
    /// The ordinary operation would fail so.
    Error(FsError),
}

impl From<FsError> for Refusal {
    fn from(error: FsError) -> Refusal {
        Refusal::Error(error)
    }
}

/// The result of what is done with drafts.
pub type Drafted<T> = Result<T, Refusal>;

/// Drafts in one subvolume.
pub struct Bulk {
    pub(super) subvol: Arc<Subvol>,
    /// Numbers that are not used yet.
    pub(super) free: Range<u64>,
    /// Numbers of the next block.
    block: u64,
    /// Bytes of memory from which a flush is due.
    memory: usize,
    pub(super) chunk: Chunk,
    /// What a flush wrote that failed, and could not remove.
    pub(super) left: Option<Intent>,
}

impl Bulk {
    /// No drafts yet, in a subvolume, with bytes of memory for them.
    pub fn new(subvol: Arc<Subvol>, memory: usize) -> Bulk {
        let chunk = Chunk::default();
        let memory = memory.max(MEMORY_MIN);
        Bulk { subvol, free: 0..0, block: BLOCK_MIN, memory, chunk, left: None }
    }

    /// The subvolume.
    pub fn subvol(&self) -> &Arc<Subvol> {
        &self.subvol
    }

    /// Bytes of memory up to which drafts are one batch.
    pub(super) fn small(&self) -> usize {
        (self.memory / 32).min(SMALL_BYTES)
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.chunk.first.is_none()
    }

    /// Whether drafts take so much that a flush is due.
    pub fn is_full(&self) -> bool {
        let Chunk { weight, in_bases, contents, .. } = &self.chunk;
        *weight >= self.memory || *in_bases >= BATCH_BYTES || *contents >= CONTENTS_BYTES
    }

    /// The node that a draft becomes.
    pub fn node(&self, draft: Draft) -> NodeId {
        self.subvol.node(match draft {
            Draft::Directory(dir) => self.chunk.dir(dir).ino,
            Draft::File(file) => self.chunk.file(file).ino,
        })
    }

    /// Whether a draft becomes a node with a look-up, when it is flushed.
    pub fn keep(&mut self, draft: Draft, keep: bool) {
        match draft {
            Draft::Directory(dir) => self.chunk.dir_mut(dir).keep = keep,
            Draft::File(file) => self.chunk.file_mut(file).keep = keep,
        }
    }

    /// Whether there are drafts in a directory of the volume.
    pub fn is_base(&self, ino: u64) -> bool {
        let known = self.chunk.bases.get(&ino);
        known.is_some_and(|base| !self.chunk.dir(DirId(*base)).children.is_empty())
    }

    /// The draft that has a name in a directory.
    pub fn find(&self, maker: &Maker<'_>, dir: DirId, name: &[u8]) -> Option<Draft> {
        self.chunk.named(dir, maker.fs.hash.hash(name), name)
    }

    /// How many drafts there are.
    pub fn count(&self) -> usize {
        self.chunk.dirs.len() + self.chunk.files.len() - self.chunk.bases.len()
    }

    /// Drops all drafts. What was written for them is taken back, unless a commit may name it.
    pub fn abandon(&mut self, fs: &Ops) {
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.plan.give_up(&fs.data);
        fs.data.abandon_gathered(&mut chunk.gathered);
        if !chunk.in_doubt {
            fs.data.abandon(chunk.freed);
        }
    }

    /// A number for a new inode.
    pub(super) fn number(&mut self, fs: &Ops) -> Drafted<u64> {
        if self.free.is_empty() {
            if !self.is_empty() {
                return Err(Refusal::Flush);
            }
            let first = fs.numbers.take_block(&*fs.store, self.block)?;
            self.free = first..first + self.block;
            self.block = (self.block * BLOCK_GROWTH).min(BLOCK_MAX);
        }
        Ok(self.free.start)
    }

    /// Uses the number.
    pub(super) fn numbered(&mut self, ino: u64) {
        self.free.start = ino + 1;
        self.chunk.first.get_or_insert(ino);
    }
}
