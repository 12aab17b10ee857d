//! Ingests a sorted run: the engine writes it to a blob once, and the log records its place instead
//! of its content.
//!
//! 1. The engine writes entries to the blocks of a new blob while it reads the run. Neither the log
//!    nor memory holds them, and commits and checkpoints continue.
//! 2. The blob becomes durable under its name. Nothing points to it yet.
//! 3. With the durable state locked and the gate held exclusively, it checks that the range holds
//!    no key. Then it appends a record that names the run. It freezes the tree's active part and
//!    adds the run as a layer above that. So earlier deletions in the range do not hide it. If the
//!    run is to be a tree of its own, the same record creates that tree, and readers find it with
//!    the run.
//! 4. The next checkpoint's manifest names the run like any other. Until then the record needs the
//!    run, and it is held (`Durable::linked`), also if its tree is dropped.
//!
//! A crash before the record is durable leaves a blob that nothing names, which the next opening
//! deletes. After it, replay puts the run back on its tree. A failure before the record is appended
//! deletes the blob at once.

use std::sync::Arc;

use format::batch::{self, Op, Ops};
use format::run_manifest::{BlobEntry, RunEntry};
use store::{
    Ascending, Batch, CommitToken, Cursor, Error, IngestInto, KeyRange, LogSpace, Lsn, Result,
    SortedRun, TreeId, Writer,
};

use crate::blob::{BlobWriter, Numbers};
use crate::commit::plan;
use crate::core::Core;
use crate::cursor::{Source, TreeCursor};
use crate::durable::Durable;
use crate::layer::{Layer, Stack};
use crate::resolve::{Origin, malformed};
use crate::rows::Content;
use crate::run::{Run, Written};

/// Blocks from which a run gets a blob of its own; a shorter one is committed as a normal batch.
const BLOCKS_MIN: usize = 4;
/// Bytes that are written between two checks of the disk's space.
const SPACE_BYTES: u64 = 1 << 20;
/// Layers of a tree from which a checkpoint follows an ingestion, so that look-ups stay quick.
const DEPTH_MAX: usize = 32;

/// What a record describes of a run that was already written.
pub(crate) struct Linked {
    pub(crate) tree: TreeId,
    pub(crate) place: IngestInto,
    pub(crate) blob: BlobEntry,
    pub(crate) run: RunEntry,
}

impl Linked {
    /// Returns the record's link, if it is one of those that [`Core::ingest`] appends.
    pub(crate) fn of(record: &[u8]) -> Option<Linked> {
        let mut ops = Ops::new(record);
        let mut op = ops.next()?.ok()?;
        let created = match op {
            Op::CreateTree { tree } => {
                op = ops.next()?.ok()?;
                Some(tree)
            }
            _ => None,
        };
        let Op::Link { tree, linked } = op else { return None };
        if ops.next().is_some() || created.is_some_and(|created| created != tree) {
            return None;
        }
        let place = if created.is_some() { IngestInto::NewTree } else { IngestInto::Range };
        Some(Linked { tree: TreeId(tree), place, blob: linked.blob, run: linked.run })
    }
}

impl Core {
    /// Adds the entries of a run to its target.
    pub(crate) fn ingest(
        &self,
        id: TreeId,
        run: &mut dyn SortedRun,
        place: IngestInto,
    ) -> Result<CommitToken> {
        self.admit(false)?;
        self.takes(id, place)?;
        let mut run = Ascending::new(run);
        let mut start = Batch::new();
        if place == IngestInto::NewTree {
            start.create_tree(id);
        }
        while start.as_bytes().len() < self.options.block_bytes * BLOCKS_MIN {
            match run.next_entry()? {
                Some(item) => start.put(id, item.key, item.value),
                None if place == IngestInto::NewTree => return self.commit_small(&start),
                None => return self.put_small(id, &run, &start),
            }
        }
        let (blob, written) = self.build(&start, &mut run)?;
        let lsn = self.link((id, place), &run, blob, written)?;
        self.log().committed(lsn)?;
        self.keep_shallow(id);
        Ok(CommitToken(lsn))
    }

    /// A run of a few blocks is a normal batch.
    fn put_small(&self, id: TreeId, run: &Ascending<'_>, batch: &Batch) -> Result<CommitToken> {
        if batch.is_empty() {
            return Ok(CommitToken(self.log().last()));
        }
        batch.check().map_err(|_| Error::RunTooLong)?;
        let lsn = {
            // Exclusively, so that no key enters the range between the check and the put.
            let _gate = self.gate.write();
            self.range_is_empty(id, run)?;
            let plan = plan(batch.ops())?;
            self.apply_in_gate(batch.as_bytes(), &plan, Origin::Caller)?
        };
        self.log().committed(lsn)?;
        Ok(CommitToken(lsn))
    }

    /// A normal batch creates a tree of a few blocks.
    fn commit_small(&self, batch: &Batch) -> Result<CommitToken> {
        batch.check().map_err(|_| Error::RunTooLong)?;
        let lsn = self.apply(batch.as_bytes(), &plan(batch.ops())?, Origin::Caller)?;
        self.log().committed(lsn)?;
        Ok(CommitToken(lsn))
    }

    /// Refuses a run for a tree that does not exist, or for a new tree that exists already.
    fn takes(&self, id: TreeId, place: IngestInto) -> Result<()> {
        match (place, self.tree(id)) {
            (IngestInto::NewTree, Ok(_)) => Err(Error::TreeExists(id)),
            (IngestInto::NewTree, Err(_)) => {
                assert!(id > TreeId::LAST_RESERVED, "tree {} is reserved", id.0);
                Ok(())
            }
            (IngestInto::Range, tree) => tree.map(|_| ()),
        }
    }

    /// Steps 1 and 2.
    fn build(&self, start: &Batch, run: &mut Ascending<'_>) -> Result<(BlobEntry, Written)> {
        // Its values stay in it, however long, until it is merged: the record names one blob.
        let numbers = Numbers { log: None, ..self.take_blob_numbers()? };
        let mut blob = BlobWriter::create(&self.files, &self.env.device, &self.options, numbers)?;
        blob.begin(0);
        for op in start.ops() {
            if let Op::Put { key, value, .. } = op.map_err(malformed)? {
                blob.push(key, Content::Value(value))?;
            }
        }
        let mut looked = 0;
        while let Some(item) = run.next_entry()? {
            if blob.bytes() >= looked {
                looked = blob.bytes() + SPACE_BYTES;
                self.journal.check_open()?;
                self.keep_space_beside(SPACE_BYTES)?;
                if looked > self.files.blobs.bytes_max() {
                    return Err(Error::RunTooLong);
                }
            }
            blob.push(item.key, Content::Value(item.value))?;
        }
        let written = blob.end()?.expect("invariant: a run that is no batch has entries");
        self.journal.check_open()?;
        let finished = blob.finish(&self.journal)?;
        self.wrote(Writer::Ingest, finished.bytes(), finished.writes);
        self.journal.gave(run.bytes());
        Ok((finished.blob, written))
    }

    /// The numbers of new blobs.
    pub(crate) fn take_blob_numbers(&self) -> Result<Numbers> {
        self.durable.lock().take_numbers(self.options.values_from)
    }

    /// Step 3.
    fn link(
        &self,
        (id, place): (TreeId, IngestInto),
        run: &Ascending<'_>,
        blob: BlobEntry,
        written: Written,
    ) -> Result<Lsn> {
        // Reads in advance what it will inspect under the gate.
        let looked = self.has_space_for(id, place, run);
        let mut state = self.durable.lock();
        state.blobs.insert(blob.number, blob.length);
        let linked =
            looked.and_then(|()| self.link_locked(&mut state, (id, place), run, (blob, written)));
        if linked.is_err() {
            self.collect(&mut state, usize::MAX);
        }
        linked
    }

    fn link_locked(
        &self,
        state: &mut Durable,
        (id, place): (TreeId, IngestInto),
        run: &Ascending<'_>,
        (blob, written): (BlobEntry, Written),
    ) -> Result<Lsn> {
        let _gate = self.gate.write();
        self.journal.check_open()?;
        self.has_space_for(id, place, run)?;
        let mut record = Vec::new();
        if place == IngestInto::NewTree {
            batch::create_tree(&mut record, id.0);
        }
        let ends = run.ends().expect("invariant: a run that is no batch has entries");
        batch::link(&mut record, id.0, &blob, &written.entry, ends);
        let lsn = self.log().append(&record, LogSpace::Normal)?;
        self.put_on_tree(state, (id, place), lsn, Run::written(&self.files, written))?;
        Ok(lsn)
    }

    /// Adds a run that a record names above everything in a tree. The caller holds the gate
    /// exclusively, and the tree exists or is to be created.
    fn put_on_tree(
        &self,
        state: &mut Durable,
        (id, place): (TreeId, IngestInto),
        lsn: Lsn,
        run: Run,
    ) -> Result<()> {
        self.takes(id, place)?;
        let tree = match place {
            IngestInto::Range => self.tree(id)?,
            IngestInto::NewTree => self.new_tree(id, Arc::default()),
        };
        self.mark_changed(&tree);
        let below = tree.freeze(&self.ids);
        let number = self.ids.take();
        let run = state.take_note(run.numbered(number));
        state.linked.push((lsn, Arc::clone(&run)));
        let mut layers = vec![Arc::new(Layer::run(number, Arc::from([number]), run))];
        layers.extend_from_slice(&below.layers);
        tree.state.write().stack = Arc::new(Stack { layers });
        if place == IngestInto::NewTree {
            // Last: a reader that finds the tree finds all of it.
            self.trees.write().insert(id, tree);
        }
        Ok(())
    }

    /// Registers a run that a record of the log names.
    pub(crate) fn replay_link(&self, lsn: Lsn, linked: &Linked) -> Result<()> {
        let (blob, entry) = (linked.blob, linked.run);
        self.files.look_at_blob(blob.number, blob.length)?;
        let mut state = self.durable.lock();
        state.next_blob = state.next_blob.max(blob.number + 1);
        state.blobs.insert(blob.number, blob.length);
        let _gate = self.gate.write();
        self.journal.replayed_to(lsn);
        let run = Run::new(&self.files, entry, Arc::default());
        self.put_on_tree(&mut state, (linked.tree, linked.place), lsn, run)
    }

    /// Refuses a run that does not fit its target.
    fn has_space_for(&self, id: TreeId, place: IngestInto, run: &Ascending<'_>) -> Result<()> {
        self.takes(id, place)?;
        match place {
            IngestInto::Range => self.range_is_empty(id, run),
            IngestInto::NewTree => Ok(()),
        }
    }

    /// Refuses a run if its range contains a key.
    fn range_is_empty(&self, id: TreeId, run: &Ascending<'_>) -> Result<()> {
        let Some((first, last)) = run.ends() else { return Ok(()) };
        let source = Source::Live(self.tree(id)?);
        let range = KeyRange { from: first.to_vec(), to: None };
        let mut cursor = TreeCursor::new(source, range, self.options.prefix_bytes);
        match cursor.next()? {
            Some(item) if item.key <= last => {
                Err(Error::RangeNotEmpty { tree: id, key: item.key.to_vec() })
            }
            _ => Ok(()),
        }
    }

    /// Makes a checkpoint of a tree that has become deep, so that its runs can be merged.
    fn keep_shallow(&self, id: TreeId) {
        let deep = self.tree(id).is_ok_and(|tree| {
            let state = tree.state.read();
            state.stack.layers.len() > DEPTH_MAX
        });
        if !deep {
            return;
        }
        let done = self.checkpoint_locked(&mut self.durable.lock());
        match done {
            Ok(()) => self.keep_merged(),
            // The run is there all the same, and the next checkpoint reports the error again.
            Err(error) => tracing::warn!(%error, "cannot checkpoint a deep tree"),
        }
    }
}
