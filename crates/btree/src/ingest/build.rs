//! Building leaves from a run, and writing them.

use std::sync::Arc;

use store::{Ascending, Result, SortedRun, Writer};

use crate::cell::LeafCell;
use crate::checkpoint::NodeWriter;
use crate::core::Core;
use crate::entries::{entry_weight, separator};
use crate::leaf::{Change, Floor, LeafData, Outcome, Value};
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};
use crate::space::{Counts, Ingested, Work};

/// Leaves are filled up to here, so that some insertions later split none.
const FILL: usize = WEIGHT_MAX / 16 * 15;
/// Bytes that are gathered before they are written, with the checkpoint state locked.
const CHUNK_BYTES: usize = 4 << 20;

/// The leaves of a run.
#[derive(Debug, Default)]
pub(super) struct Run {
    pub(super) first: Vec<u8>,
    pub(super) last: Vec<u8>,
    /// For each leaf the least key that routes to it; none for the first.
    pub(super) from: Vec<Vec<u8>>,
}

/// The result of building a run.
pub(super) enum Built {
    Empty,
    /// Less than a leaf: nothing was written.
    Small(Run, Vec<(Vec<u8>, Vec<u8>)>),
    Leaves(Run),
}

struct Builder<'a> {
    core: &'a Core,
    run: Run,
    /// Full leaves that are to be written.
    chunk: Vec<LeafData>,
    chunk_bytes: usize,
    /// The last full leaf, which may have to share with the one behind it.
    full: Option<LeafData>,
    open: LeafData,
    /// Last key of the leaf that was last put into the chunk.
    last_of_chunk: Option<Vec<u8>>,
    /// Where the search for space continues.
    place: u64,
    written: &'a mut Vec<Ingested>,
}

/// Builds and writes the leaves of a run; `written` lists them, after a failure too.
pub(super) fn build(
    core: &Core,
    run: &mut dyn SortedRun,
    written: &mut Vec<Ingested>,
) -> Result<Built> {
    let mut builder = Builder {
        core,
        run: Run::default(),
        chunk: Vec::new(),
        chunk_bytes: 0,
        full: None,
        open: LeafData::default(),
        last_of_chunk: None,
        place: 0,
        written,
    };
    let mut run = Ascending::new(run);
    while let Some(item) = run.next_entry()? {
        builder.put(item.key, item.value)?;
    }
    let Some((first, last)) = run.ends() else { return Ok(Built::Empty) };
    (builder.run.first, builder.run.last) = (first.to_vec(), last.to_vec());
    let built = builder.finish()?;
    if let Built::Leaves(_) = built {
        core.journal.gave(run.bytes());
    }
    Ok(built)
}

impl Builder<'_> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let weight = entry_weight(key.len(), value.len().min(format::node::INLINE_VALUE_BYTES_MAX));
        if self.open.entries.weight() + weight > FILL && self.open.entries.len() > 1 {
            let full = std::mem::take(&mut self.open);
            if let Some(before) = self.full.replace(full) {
                self.push(before)?;
            }
        }
        if value.len() > format::node::INLINE_VALUE_BYTES_MAX {
            self.chunk_bytes += value.len();
        }
        let budget = &self.core.nodes.budget;
        let outcome = self.open.apply(budget, key, Change::Put(value), Floor::Open);
        assert!(matches!(outcome, Outcome::Done), "a leaf that is not full takes an entry");
        if self.chunk_bytes >= CHUNK_BYTES {
            self.write()?;
        }
        Ok(())
    }

    /// Queues a leaf to be written.
    fn push(&mut self, leaf: LeafData) -> Result<()> {
        let from = match &self.last_of_chunk {
            Some(last) => separator(last, &leaf.entries.key(0)),
            None => Vec::new(),
        };
        self.run.from.push(from);
        self.last_of_chunk = Some(leaf.entries.key(leaf.entries.len() - 1));
        self.chunk_bytes += leaf.entries.weight();
        self.chunk.push(leaf);
        if self.chunk_bytes >= CHUNK_BYTES { self.write() } else { Ok(()) }
    }

    /// Writes the leaves of the chunk.
    fn write(&mut self) -> Result<()> {
        let core = self.core;
        core.keep_space_beside(self.chunk_bytes as u64)?;
        self.chunk_bytes = 0;
        let mut state = core.checkpoint.lock();
        core.log().check()?;
        let state = &mut *state;
        let generation = state.generation + 1;
        let mut work = Work::new(&core.nodes, &mut state.space, generation, false);
        work.resume(self.place);
        let mut writer = NodeWriter::new(&core.nodes, generation);
        // The next checkpoint counts them; the map that it works on is another copy.
        let mut counts = Counts::default();
        let mut written = Vec::with_capacity(self.chunk.len());
        let done = self.chunk.drain(..).try_for_each(|leaf| {
            let leaf = Arc::new(LeafCell::new(&core.nodes.budget, leaf, None));
            let (pointer, overflows) = writer.write_one(&mut work, &mut counts, &leaf)?;
            written.push(Ingested { pointer, overflows });
            Ok(())
        });
        let done = done.and_then(|()| writer.finish());
        self.place = work.place();
        // After a failure too: written leaves take space until it is punched.
        for leaf in written {
            state.space.hold(&leaf);
            self.written.push(leaf);
        }
        let (_, bytes, writes) = done?;
        core.journal.wrote(Writer::Ingest, bytes, writes);
        Ok(())
    }

    fn finish(mut self) -> Result<Built> {
        let mut last = std::mem::take(&mut self.open);
        if let Some(mut before) = self.full.take() {
            if last.entries.weight() < WEIGHT_MIN {
                before.extend(&last);
                let weight = before.entries.weight();
                if weight <= WEIGHT_MAX {
                    last = before;
                } else {
                    let middle = before.entries.split_point(weight / 2);
                    last = before.extract(middle, before.entries.len());
                    self.push(before.extract(0, middle))?;
                }
            } else {
                self.push(before)?;
            }
        }
        if self.run.from.is_empty() && last.entries.weight() < WEIGHT_MIN {
            return Ok(Built::Small(self.run, entries_of(&last)));
        }
        self.push(last)?;
        self.write()?;
        Ok(Built::Leaves(self.run))
    }
}

/// The entries of a leaf that was never written.
fn entries_of(leaf: &LeafData) -> Vec<(Vec<u8>, Vec<u8>)> {
    let entry = |at: usize| {
        let value = match leaf.value(at) {
            Value::Near(bytes) => bytes.to_vec(),
            Value::Far(cell) => {
                cell.bytes().expect("invariant: a value that was not written is there").to_vec()
            }
        };
        (leaf.entries.key(at), value)
    };
    (0..leaf.entries.len()).map(entry).collect()
}
