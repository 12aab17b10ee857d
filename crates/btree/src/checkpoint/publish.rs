//! Step 4: writes the superblocks, and releases the old state once they are durable.
//!
//! Both superblocks are equal, so that damage of either loses nothing (decision 0064). They are
//! written one after the other, and nothing of the previous state is freed until both are durable.
//! If one of them is torn, or rots, the other points to a state that is whole.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::{Device, File};
use format::space_map::GROUP_UNITS;
use format::superblock::Superblock;
use store::{Result, Writer};

use super::Frozen;
use super::run::Written;
use super::state::CheckpointState;
use crate::cell::Node;
use crate::core::Core;

/// The two superblocks, below the volume directory.
pub(crate) const SUPERBLOCK_FILES: [&str; 2] = ["btree/super-0", "btree/super-1"];

/// Creates both superblocks of a new store.
pub(crate) fn create_superblocks(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let files = [device.create(SUPERBLOCK_FILES[0])?, device.create(SUPERBLOCK_FILES[1])?];
    write_superblocks(&files, 0, superblock)
}

/// Writes and syncs both superblocks, the one at `first` first: while it is written, the other has
/// to be durable.
pub(crate) fn write_superblocks(
    files: &[Arc<dyn File>; 2],
    first: usize,
    superblock: &Superblock,
) -> Result<()> {
    for slot in [first, 1 - first] {
        files[slot].write_at(&superblock.encode(), 0)?;
        files[slot].sync_data()?;
    }
    Ok(())
}

impl Core {
    pub(super) fn publish(
        &self,
        state: &mut CheckpointState,
        frozen: Frozen,
        written: Written,
        released: Vec<(u64, u16)>,
    ) -> Result<()> {
        let time = self.env.clock.now().0;
        let superblock = Superblock {
            volume: self.options.common.volume,
            generation: written.generation,
            lsn: written.lsn.0,
            groups: written.groups.len() as u64,
            next_trash: written.next_trash,
            time,
            directory: written.directory,
            catalog: written.catalog.pointer,
            catalog_level: written.catalog.level,
        };
        if let Err(error) = write_superblocks(&self.superblocks, 0, &superblock) {
            // It is unknown which state a crash would now leave.
            self.thaw(&frozen);
            self.journal.fail_log(&format!("the superblocks could not be written: {error}"));
            return Err(error);
        }
        self.end_shedding();
        // The state is durable. Cells record their places while the frozen roots still keep writers
        // from changing them in place.
        for (node, pointer) in &written.cells.nodes {
            match node {
                Node::Leaf(leaf) => leaf.latch.write().set_disk(Some(*pointer)),
                Node::Interior(interior) => interior.set_disk(*pointer),
            }
            self.nodes.remember_written(*pointer, node);
        }
        for (cell, pointer) in &written.cells.values {
            cell.set_disk(*pointer);
            self.nodes.ring.add_value(cell);
        }
        self.switch(state, &frozen, &written);
        drop(frozen);
        let groups = written.groups.len() as u64;
        self.map_groups.store(groups, Ordering::Relaxed);
        let left = state.space.adopt(written.directory, written.groups, written.pages);
        state.space.forget_ingested();
        let pins = self.pins.lock().newest();
        let mut free = released;
        free.extend(left);
        match pins {
            Some(pin) => {
                let held = written.freed.into_iter().map(|(unit, units)| (unit, (units, pin)));
                state.space.held.extend(held);
            }
            None => free.extend(written.freed),
        }
        drop(written.cells);
        self.give_back(state, groups, &free);
        // The superfluous part of a log that is being replayed is trimmed by the next checkpoint.
        self.journal.trim(written.lsn)
    }

    /// Makes the new state the one for look-ups.
    fn switch(&self, state: &mut CheckpointState, frozen: &Frozen, written: &Written) {
        {
            let _gate = self.gate.write();
            *self.catalog.state.write() = written.catalog_root.clone();
            self.published.fetch_add(1, Ordering::AcqRel);
            *self.in_flight.lock() = Arc::default();
        }
        let dropped = frozen.states.iter().filter(|(_, root)| root.is_none());
        self.remove_dropped(&dropped.map(|(id, _)| *id).collect::<Vec<_>>());
        state.generation = written.generation;
        state.lsn = written.lsn;
        state.catalog = Some(written.catalog);
        state.next_trash = written.next_trash;
        self.trash.fetch_add(written.trash_change as u64, Ordering::Relaxed);
        self.journal.checkpointed(frozen.log_bytes);
        self.checkpointed_records.store(frozen.log_records, Ordering::Relaxed);
        self.journal.made_checkpoint(self.env.clock.now().0);
        // Plus the superblocks.
        let bytes = written.bytes + 2 * format::superblock::SUPERBLOCK_BYTES as u64;
        self.journal.wrote(Writer::Checkpoint, bytes, written.writes + 2);
        self.journal.synced(3);
    }
}

impl Core {
    /// Punches the space that a failed checkpoint took. None of it is in the durable map, and while
    /// it keeps the disk full, the next checkpoint fails too.
    pub(super) fn take_back(&self, state: &mut CheckpointState, changed: Vec<u64>) {
        let groups = state.space.groups.len() as u64;
        let mut free = Vec::new();
        for group in changed.into_iter().filter(|&group| group < groups) {
            // If a page cannot be read, none of its units is known to be free. Ingested or
            // pre-flushed leaves are not in the map either, and are held.
            let Ok(taken) = state.space.taken(self.nodes.file.as_ref(), group) else { continue };
            let first = group * GROUP_UNITS as u64;
            let begins = |&at: &usize| !taken[at] && (at == 0 || taken[at - 1]);
            free.extend((0..taken.len()).filter(begins).map(|at| (first + at as u64, 1)));
        }
        self.give_back_attempt(state, &free);
    }
}
