//! A checkpoint from its beginning to what is published: freezing, writing, and what a failure
//! takes back.

use std::sync::Arc;

use device::Map;
use format::Pointer;
use format::catalog::{CatalogKey, RootRecord};
use store::{Lsn, Result, TreeId};

use super::state::CheckpointState;
use super::write;
use super::{Frozen, Manner, NodeWriter};
use crate::cell::LeafCell;
use crate::copied::{Copied, copy_forward};
use crate::core::Core;
use crate::leaf::Change;
use crate::nodes::Nodes;
use crate::space::{Counts, Death, Work};
use crate::tree::{self, Root};

/// Nodes that a checkpoint frees in addition to those that it replaces.
pub(crate) const FREED_MAX: usize = 4096;

/// A state that was written and is to be published.
pub(crate) struct Written {
    pub(crate) generation: u64,
    pub(crate) lsn: Lsn,
    pub(crate) directory: Pointer,
    pub(crate) catalog: RootRecord,
    pub(crate) catalog_root: Root,
    pub(crate) next_trash: u64,
    /// Change of the number of trash records.
    pub(crate) trash_change: i64,
    pub(crate) groups: Vec<format::map_directory::Entry>,
    pub(crate) pages: std::collections::BTreeMap<u64, crate::space::Page>,
    pub(crate) freed: Vec<(u64, u16)>,
    pub(crate) cells: write::Cells,
    pub(crate) bytes: u64,
    pub(crate) writes: u64,
}

/// The parameters of writing a state.
struct Attempt {
    /// Unchanged leaves that are written again.
    moves: Map<u64, Arc<LeafCell>>,
    /// Whether holes of any length are used.
    frugal: bool,
}

/// A failed attempt.
struct Failed {
    error: store::Error,
    /// Whether the frozen state still has all its contents.
    whole: bool,
}

impl Core {
    /// Runs a checkpoint with the state locked; also frees up to `most` nodes of trash.
    pub(crate) fn checkpoint_locked(&self, state: &mut CheckpointState, most: usize) -> Result<()> {
        self.journal.check_log()?;
        let released = state.space.release(self.pins.lock().oldest());
        self.gather(state);
        let frozen = self.freeze();
        #[cfg(test)]
        tests::meanwhile(self);
        let written = self.write_state(state, &frozen, most).and_then(|written| {
            // A failure meanwhile may have left half a batch in the frozen state, and the log must
            // not be trimmed for that. A successful sync of the log does not rule that out.
            // Replayed records were made durable before (`replay`).
            match self.journal.sync_for_checkpoint(frozen.lsn) {
                Ok(()) => Ok(written),
                Err(error) => {
                    // While the written nodes are still listed.
                    self.end_shedding();
                    Err(error)
                }
            }
        });
        match written {
            Ok(written) => self.publish(state, frozen, written, released),
            Err(error) => {
                self.thaw(&frozen);
                // The held space that was released is free all the same; only punching is missed.
                if !error.is_no_space() && !matches!(error, store::Error::Corrupt(_)) {
                    self.journal.fail_log(&format!("a checkpoint failed: {error}"));
                }
                Err(error)
            }
        }
    }

    /// Makes the writes to the node file durable. If that fails, for whatever reason, the store
    /// takes no more changes. Pre-flushed leaves may be lost with it, and then only the log has
    /// their content.
    pub(crate) fn sync_nodes(&self) -> Result<()> {
        self.nodes.sync().map_err(|error| {
            self.journal.fail_log(&format!("nodes could not be made durable: {error}"));
            error.into()
        })
    }

    /// Steps 2 and 3. If there is less space than when it was checked, they are done once more,
    /// without moved leaves and with holes of any length. The first attempt's space is freed by
    /// then, and no cell has recorded it. There is no second attempt if contents were dropped as
    /// they were written: then the next checkpoint writes what the trees have by then.
    pub(super) fn write_state(
        &self,
        state: &mut CheckpointState,
        frozen: &Frozen,
        most: usize,
    ) -> Result<Written> {
        let moves = state.gather.take();
        let frugal = self.journal.is_tight();
        match self.try_write_state(state, frozen, most, Attempt { moves, frugal }) {
            Err(Failed { error, whole: true })
                if error.is_no_space() && !frugal && self.journal.check_log().is_ok() =>
            {
                tracing::debug!(%error, "retrying the checkpoint without moving nodes");
                let attempt = Attempt { moves: Map::default(), frugal: true };
                self.try_write_state(state, frozen, most, attempt)
            }
            written => written,
        }
        .map_err(|failed| failed.error)
    }

    fn try_write_state(
        &self,
        state: &mut CheckpointState,
        frozen: &Frozen,
        most: usize,
        Attempt { moves, frugal }: Attempt,
    ) -> std::result::Result<Written, Failed> {
        let before = (state.catalog, state.next_trash);
        let generation = state.generation + 1;
        let mut writer = NodeWriter::new(&self.nodes, generation);
        writer.move_also(moves);
        let mut work = Work::new(&self.nodes, &mut state.space, generation, frugal);
        let written = match self.write_nodes(&mut work, writer, frozen, before, most) {
            Ok(written) => {
                let (groups, pages) = work.into_parts();
                Written { groups, pages, ..written }
            }
            Err(error) => {
                let whole = !work.shed;
                let groups = work.changed_groups();
                self.take_back(state, groups);
                return Err(Failed { error, whole });
            }
        };
        self.begin_shedding(frozen);
        if let Err(error) = self.sync_nodes() {
            // While `cells` still exist: they count as owners.
            self.end_shedding();
            return Err(Failed { error, whole: false });
        }
        Ok(written)
    }

    /// Whether a tree shares no block of the disk with others.
    pub(crate) fn is_isolated(&self, tree: TreeId) -> bool {
        self.options.common.isolated_tree == Some(tree)
    }

    /// How a tree is written. If holes of any length are used, block alignment is given up.
    fn manner(&self, work: &Work<'_>, tree: TreeId) -> Manner {
        if self.is_isolated(tree) && !work.is_frugal() { Manner::Isolated } else { Manner::Once }
    }

    /// Writes all nodes, and the map last; the map itself stays with `work`.
    fn write_nodes(
        &self,
        work: &mut Work<'_>,
        mut writer: NodeWriter<'_>,
        frozen: &Frozen,
        (old_catalog, mut next_trash): (Option<RootRecord>, u64),
        most: usize,
    ) -> Result<Written> {
        let nodes = &self.nodes;
        let generation = work.generation;
        let mut catalog = self.catalog.state.read().clone();
        let mut counts = Counts::default();
        work.count_ingested(&mut counts)?;
        for (tree, root) in frozen.states.iter() {
            let key = CatalogKey::Tree(tree.0).encode();
            let old = tree::get_record(nodes, &catalog, &key)?;
            let new = match root {
                Some(root) => {
                    let alone = self.is_alone(root, 1, frozen.pins_from);
                    writer.set_manner(self.manner(work, *tree));
                    Some(writer.write_frozen(work, &mut counts, root, alone)?)
                }
                None => None,
            };
            if old == new {
                continue;
            }
            replace(&mut counts, old, new);
            match new {
                Some(new) => {
                    nodes.change(&mut catalog, &key, Change::Put(&new.encode()))?;
                }
                None => nodes.change(&mut catalog, &key, Change::Delete)?,
            }
        }
        // Freeing replaced nodes is never postponed: they are no more than the nodes written.
        let most = most + 2 * writer.nodes_written();
        let taken = take_trash(nodes, &mut catalog, &mut counts, most)?;
        let mut trash_change = -(taken as i64);
        for death in counts.settle(work, most)? {
            let Some(level) = death.level else { continue };
            let record = RootRecord { pointer: death.pointer, level };
            let key = CatalogKey::Trash(next_trash).encode();
            nodes.change(&mut catalog, &key, Change::Put(&record.encode()))?;
            next_trash += 1;
            trash_change += 1;
        }
        writer.set_manner(if work.is_frugal() { Manner::Once } else { Manner::Twice });
        let record = writer.write_root(work, &mut counts, &catalog)?;
        if old_catalog != Some(record) {
            replace(&mut counts, old_catalog, Some(record));
        }
        let left = counts.settle(work, usize::MAX)?;
        assert!(left.is_empty(), "without a bound nothing is left as trash");
        let (cells, bytes, writes) = writer.finish()?;
        let space = work.reserve_map(counts.groups())?;
        counts.apply(work)?;
        let mut freed = std::mem::take(&mut counts.freed);
        freed.extend(work.base.directory.map(|old| (old.unit, old.units)));
        let (directory, map_bytes, map_writes) = work.write(&space)?;
        Ok(Written {
            generation,
            lsn: frozen.lsn,
            directory,
            catalog: record,
            catalog_root: catalog,
            next_trash,
            trash_change,
            groups: Vec::new(),
            pages: std::collections::BTreeMap::new(),
            freed,
            cells,
            bytes: bytes + map_bytes,
            writes: writes + map_writes,
        })
    }
}

fn replace(counts: &mut Counts, old: Option<RootRecord>, new: Option<RootRecord>) {
    if let Some(new) = new {
        counts.refer(new.pointer);
    }
    if let Some(old) = old {
        counts.unrefer(Death { pointer: old.pointer, level: Some(old.level) });
    }
}

/// Removes up to `most` trash records from the catalog, and their references; returns how many.
fn take_trash(
    nodes: &Nodes,
    catalog: &mut Root,
    counts: &mut Counts,
    most: usize,
) -> Result<usize> {
    let mut found = Copied::default();
    let from = CatalogKey::Trash(0).encode();
    let mut next = Some(from.to_vec());
    let mut taken = Vec::new();
    while let Some(from) = next.take() {
        next = copy_forward(nodes, catalog, &from, &mut found)?;
        for at in 0..found.len() {
            let (key, value) = found.near(at);
            let record = RootRecord::decode(value)
                .map_err(|malformed| malformed.located("btree/nodes", 0))?;
            taken.push((key.to_vec(), record));
        }
        if taken.len() >= most.min(256) {
            break;
        }
    }
    taken.truncate(most.min(256));
    for (key, record) in &taken {
        nodes.change(catalog, key, Change::Delete)?;
        counts.unrefer(Death { pointer: record.pointer, level: Some(record.level) });
    }
    Ok(taken.len())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::atomic::Ordering;

    use store::{Batch, Commit, Durable, Maintain, Read, TreeId};
    use testing::{Fault, FaultOn, Op, SimDevice};

    use super::*;
    use crate::{BtreeStore, Options};

    type Meanwhile = Box<dyn FnOnce(&Core)>;

    thread_local! {
        /// Actions of another thread after a checkpoint has frozen its state.
        static MEANWHILE: RefCell<Option<Meanwhile>> = const { RefCell::new(None) };
    }

    pub(super) fn meanwhile(core: &Core) {
        if let Some(act) = MEANWHILE.take() {
            act(core);
        }
    }

    const TREE: TreeId = TreeId(32);

    /// A store in which everything is durable, and a checkpoint of it during which something fails.
    /// The checkpoint must fail too, and committed changes must be there when the store is opened
    /// again.
    fn fails_with(act: impl FnOnce(&Core, &SimDevice) + 'static) {
        let sim = testing::sim_env(1);
        let options = Options::with_cache(8 << 20);
        let store = BtreeStore::create(&sim.env(), &options).unwrap();
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        batch.put(TREE, b"key", b"value");
        store.commit(&batch).unwrap();
        store.sync(store.last_commit()).unwrap();
        let before = store.engine().published.load(Ordering::Relaxed);
        let device = sim.device.clone();
        MEANWHILE.set(Some(Box::new(move |core| act(core, &device))));
        let refused = store.checkpoint();
        assert!(
            matches!(refused, Err(store::Error::Device(_) | store::Error::ReadOnly(_))),
            "{refused:?}"
        );
        assert_eq!(store.engine().published.load(Ordering::Relaxed), before);
        drop(store);
        let store = BtreeStore::open(&sim.env(), &options).unwrap();
        assert_eq!(store.get(TREE, b"key").unwrap().as_deref(), Some(&b"value"[..]));
    }

    #[test]
    fn a_checkpoint_fails_when_a_concurrent_write_fails() {
        fails_with(|core, _| core.log().fail("a commit could not be applied"));
    }

    /// The other thread's writes may be lost, and the system reports it once.
    #[test]
    fn a_checkpoint_fails_if_another_callers_sync_of_nodes_failed() {
        fails_with(|core, device| {
            device.inject(Fault::io(FaultOn::Only(Op::Sync), 0));
            let failed = core.nodes.sync();
            assert!(failed.is_err_and(|error| error.operation == "sync"));
        });
    }
}
