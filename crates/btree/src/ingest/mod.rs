//! Ingests a sorted run: its leaves are built bottom-up, written to their place once, and put into
//! the tree as they are.
//!
//! 1. `build`: leaves are filled one after the other and written to free units, some MiB at a time.
//!    The checkpoint state is locked only for that long. Their units are held, so that no
//!    checkpoint reuses them. The map on disk does not list them.
//! 2. The node file is synced.
//! 3. With the checkpoint state locked and the gate exclusive: the range must hold no key. That is
//!    checked in memory, because the needed nodes were loaded before. A record that locates the
//!    leaves is appended to the log, and `graft` puts them into the tree. If they form a tree of
//!    their own, the same record creates that tree.
//! 4. The next checkpoint counts the leaves like nodes that it wrote itself, and frees those that
//!    are no longer reachable (`Work::count_ingested`).
//!
//! A crash before the record is durable leaves units that the map calls free, and they are. After
//! it, the leaves are durable too, because they were synced before the record was appended. Before
//! any checkpoint can run, replay puts them into the tree again, and holds their units again. A
//! failure before the record is appended releases the units and punches their space.
//!
//! The disk space reserved for checkpoints is checked for runs too: before each part is written.

mod build;
mod graft;

use format::batch::{self as codec, IngestedLeaf, Op, Ops};
use format::space_map::GROUP_BYTES;
use store::{Batch, CommitToken, Error, IngestInto, LogSpace, Result, SortedRun, TreeId};

use crate::core::Core;
use crate::plan::malformed;
use crate::space::Ingested;
use crate::underfull::Underfull;
use build::{Built, Run};

impl Core {
    /// Ingests a run into its place.
    pub(crate) fn ingest(
        &self,
        id: TreeId,
        run: &mut dyn SortedRun,
        place: IngestInto,
    ) -> Result<CommitToken> {
        self.journal.check_open()?;
        self.keep_dirty(false)?;
        self.takes(id, place)?;
        let mut written = Vec::new();
        let mut underfull = Underfull::default();
        let done = build::build(self, run, &mut written).and_then(|built| match built {
            Built::Empty if place == IngestInto::NewTree => self.make_small(id, &[]),
            Built::Empty => Ok(CommitToken(self.log().last())),
            Built::Small(_, entries) if place == IngestInto::NewTree => {
                self.make_small(id, &entries)
            }
            Built::Small(run, entries) => self.put_small(id, &run, &entries, &mut underfull),
            Built::Leaves(run) => self.put_leaves((id, place), &run, &written, &mut underfull),
        });
        if done.is_err() {
            let mut state = self.checkpoint.lock();
            // After the record was appended they belong to the tree, even if a later step failed.
            if !state.space.has_ingested(&written) {
                let free = state.space.let_go(&written);
                // The run may have been refused for lack of space.
                let groups = state.space.groups.len() as u64;
                self.give_back(&mut state, groups, &free);
            }
        }
        let token = done?;
        self.log().committed(token.0)?;
        self.rebalance_underfull(&underfull);
        self.shrink();
        Ok(token)
    }

    /// Refuses a run for a tree that is absent and should exist, or the reverse.
    fn takes(&self, id: TreeId, place: IngestInto) -> Result<()> {
        if place == IngestInto::Range {
            return self.tree(id).map(|_| ());
        }
        assert!(id > TreeId::LAST_RESERVED, "tree {} is reserved", id.0);
        // A dropped tree is among them until the durable state no longer has it.
        if self.exists(id)? || self.trees.read().contains_key(&id) {
            return Err(Error::TreeExists(id));
        }
        Ok(())
    }

    /// A tree that would not fill a leaf is created by an ordinary batch.
    fn make_small(&self, id: TreeId, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<CommitToken> {
        let mut batch = Batch::new();
        batch.create_tree(id);
        for (key, value) in entries {
            batch.put(id, key, value);
        }
        batch.check().map_err(|_| Error::RunTooLong)?;
        self.commit(&batch)
    }

    /// A run that would not fill a leaf is an ordinary batch.
    fn put_small(
        &self,
        id: TreeId,
        run: &Run,
        entries: &[(Vec<u8>, Vec<u8>)],
        underfull: &mut Underfull,
    ) -> Result<CommitToken> {
        let mut batch = Batch::new();
        for (key, value) in entries {
            batch.put(id, key, value);
        }
        // All of a leaf's values may be long ones.
        batch.check().map_err(|_| Error::RunTooLong)?;
        let load = || self.range_is_empty(id, run).and_then(|()| self.ensure(&batch));
        let _gate = self.load_and_enter(|gate| gate.write(), load)?;
        self.journal.check_open()?;
        // This may have changed since; in most cases everything that the check needs is in memory.
        load()?;
        self.append_and_apply(batch.as_bytes(), underfull)
    }

    fn put_leaves(
        &self,
        (id, place): (TreeId, IngestInto),
        run: &Run,
        written: &[Ingested],
        underfull: &mut Underfull,
    ) -> Result<CommitToken> {
        let mut leaves = Vec::with_capacity(written.len());
        for (leaf, from) in written.iter().zip(&run.from) {
            let overflows = leaf.overflows.clone();
            leaves.push(IngestedLeaf { from, pointer: leaf.pointer, overflows });
        }
        let mut record = Vec::new();
        if place == IngestInto::NewTree {
            codec::create_tree(&mut record, id.0);
        }
        codec::ingest(&mut record, id.0, &run.first, &run.last, &leaves);
        if record.len() > Batch::BYTES_MAX {
            return Err(Error::RunTooLong);
        }
        // Before the record: the leaves that it names must be durable whenever the record is.
        self.sync_nodes()?;
        let mut state = self.checkpoint.lock();
        let load = || -> Result<()> {
            self.takes(id, place)?;
            if place == IngestInto::Range {
                self.range_is_empty(id, run)?;
                // The nodes that applying needs are loaded before it is logged.
                self.ensure_edges(&*self.tree(id)?, &run.first, Some(&run.last))?;
            }
            Ok(())
        };
        let _gate = self.load_and_enter(|gate| gate.write(), load)?;
        self.journal.check_open()?;
        load()?;
        let lsn = self.log().append(&record, LogSpace::Normal)?;
        state.space.ingested.extend_from_slice(written);
        self.apply_logged(&record, underfull)?;
        Ok(CommitToken(lsn))
    }

    fn append_and_apply(&self, record: &[u8], underfull: &mut Underfull) -> Result<CommitToken> {
        let lsn = self.log().append(record, LogSpace::Normal)?;
        self.apply_logged(record, underfull)?;
        Ok(CommitToken(lsn))
    }

    fn apply_logged(&self, record: &[u8], underfull: &mut Underfull) -> Result<()> {
        let applied = self.apply(record, underfull);
        if let Err(error) = &applied {
            // Everything was loaded before, so this is a disk that fails between two reads.
            self.log().fail(&format!("a run could not be applied: {error}"));
        }
        applied
    }

    /// Refuses a run whose range contains a key of the tree. Called inside the gate.
    fn range_is_empty(&self, id: TreeId, run: &Run) -> Result<()> {
        match self.first_from(&*self.tree(id)?, &run.first)? {
            Some(key) if key <= run.last => Err(Error::RangeNotEmpty { tree: id, key }),
            _ => Ok(()),
        }
    }

    /// Holds the space of the leaves that a log record names, so that nothing else is written there
    /// before it is replayed.
    pub(crate) fn hold_ingested(&self, record: &[u8]) -> Result<()> {
        let leaves = named(record)?;
        if leaves.is_empty() {
            return Ok(());
        }
        let mut state = self.checkpoint.lock();
        // It was synced before the record was appended.
        let groups = self.nodes.file.len()?.div_ceil(GROUP_BYTES as u64);
        leaves.iter().try_for_each(|leaf| state.space.hold_replayed(leaf, groups))
    }

    /// Takes over the leaves that a log record names, whose space is held, before it is replayed:
    /// the next checkpoint counts them.
    pub(crate) fn adopt_ingested(&self, record: &[u8]) -> Result<()> {
        let leaves = named(record)?;
        if !leaves.is_empty() {
            self.checkpoint.lock().space.ingested.extend(leaves);
        }
        Ok(())
    }
}

/// The leaves that a log record names.
fn named(record: &[u8]) -> Result<Vec<Ingested>> {
    // Such an operation is alone in its record, or follows the one that creates its tree.
    let mut ops = Ops::new(record);
    let first = ops.next();
    let op = if let Some(Ok(Op::CreateTree { .. })) = first { ops.next() } else { first };
    let Some(op) = op else { return Ok(Vec::new()) };
    let Op::Ingest { leaves, .. } = op.map_err(malformed)? else { return Ok(Vec::new()) };
    let leaves = leaves.into_iter();
    Ok(leaves.map(|leaf| Ingested { pointer: leaf.pointer, overflows: leaf.overflows }).collect())
}
