//! Eviction order of the cache: S3-FIFO (Yang et al., SOSP 2023), in bytes.
//!
//! A loaded cell enters a small queue, a tenth of the cached bytes. At its end it moves to the main
//! queue if it was used twice since, and is evicted otherwise. So cells that a scan reads once pass
//! through and never displace cells that are used repeatedly. A cell at the end of the main queue
//! goes round as often as it was used, up to three times. A cell that was evicted from the small
//! queue may be loaded again soon, before as many others were evicted as the main queue holds. It
//! enters the main queue at once.
//!
//! A cell is in a queue at most once. A changed cell leaves its queue, and enters again when a
//! checkpoint has written it. Hits touch an atomic of the cell and no lock.

use std::collections::VecDeque;
#[cfg(test)]
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use device::sync::Mutex;

use crate::cell::LeafCell;
use crate::overflow::OverflowCell;
use crate::uses::Uses;

/// The small queue's share of the cached bytes: one part in this many.
const SMALL_SHARE: usize = 10;
/// Uses since it was loaded that move a cell to the main queue.
const USES_TO_STAY: u8 = 2;

/// A weak reference to a cell that may be evicted.
#[derive(Debug)]
enum Cell {
    Leaf(Weak<LeafCell>),
    Value(Weak<OverflowCell>),
}

/// The same as a strong reference.
enum Alive {
    Leaf(Arc<LeafCell>),
    Value(Arc<OverflowCell>),
}

impl Cell {
    fn is_gone(&self) -> bool {
        match self {
            Cell::Leaf(leaf) => leaf.strong_count() == 0,
            Cell::Value(value) => value.strong_count() == 0,
        }
    }

    fn upgrade(&self) -> Option<Alive> {
        match self {
            Cell::Leaf(leaf) => leaf.upgrade().map(Alive::Leaf),
            Cell::Value(value) => value.upgrade().map(Alive::Value),
        }
    }
}

impl Alive {
    fn uses(&self) -> &Uses {
        match self {
            Alive::Leaf(leaf) => &leaf.uses,
            Alive::Value(value) => &value.uses,
        }
    }

    /// Drops the content if it is on disk; returns whether it is.
    fn evict(&self) -> bool {
        match self {
            Alive::Leaf(leaf) => leaf.evict(),
            Alive::Value(value) => value.evict(),
        }
    }
}

#[derive(Debug)]
struct Entry {
    cell: Cell,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Queue {
    entries: VecDeque<Entry>,
    bytes: usize,
    /// Length from which on dropped cells are swept out.
    sweep_at: usize,
}

impl Queue {
    fn push(&mut self, entry: Entry) {
        if self.entries.len() >= self.sweep_at {
            self.entries.retain(|entry| !entry.cell.is_gone());
            self.bytes = self.entries.iter().map(|entry| entry.bytes).sum();
            self.sweep_at = self.entries.len() * 2 + 1024;
        }
        self.bytes += entry.bytes;
        self.entries.push_back(entry);
    }

    fn pop(&mut self) -> Option<Entry> {
        let entry = self.entries.pop_front()?;
        self.bytes -= entry.bytes;
        Some(entry)
    }
}

#[derive(Debug, Default)]
struct Queues {
    small: Queue,
    main: Queue,
    /// Evictions from the small queue so far.
    evicted: u32,
}

/// The two queues.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    queues: Mutex<Queues>,
    /// Uses one queue with a second chance instead, for comparison.
    #[cfg(test)]
    pub(crate) clock: AtomicBool,
}

impl Ring {
    pub(crate) fn add_leaf(&self, leaf: &Arc<LeafCell>) {
        if !leaf.uses.listed.swap(true, Ordering::Relaxed) {
            self.add(Cell::Leaf(Arc::downgrade(leaf)), leaf.bytes(), &leaf.uses);
        }
    }

    pub(crate) fn add_value(&self, value: &Arc<OverflowCell>) {
        if !value.uses.listed.swap(true, Ordering::Relaxed) {
            let bytes = value.length as usize;
            self.add(Cell::Value(Arc::downgrade(value)), bytes, &value.uses);
        }
    }

    fn add(&self, cell: Cell, bytes: usize, uses: &Uses) {
        let mut queues = self.queues.lock();
        let evicted = uses.evicted.swap(0, Ordering::Relaxed);
        let ago = queues.evicted.wrapping_sub(evicted) as usize;
        let missed = evicted != 0 && ago <= queues.main.entries.len();
        #[cfg(test)]
        let missed = missed || self.clock.load(Ordering::Relaxed);
        let queue = if missed { &mut queues.main } else { &mut queues.small };
        queue.push(Entry { cell, bytes });
    }

    /// Visits the next cell: it moves on, or is evicted. A cell that is not on disk leaves the
    /// queue until it is. Returns `false` when there is none.
    pub(crate) fn turn(&self) -> bool {
        #[cfg(test)]
        if self.clock.load(Ordering::Relaxed) {
            return self.turn_clock();
        }
        let mut queues = self.queues.lock();
        let all = queues.small.bytes + queues.main.bytes;
        let from_small = queues.main.entries.is_empty() || queues.small.bytes * SMALL_SHARE >= all;
        let popped = if from_small { queues.small.pop() } else { queues.main.pop() };
        let Some(entry) = popped.or_else(|| queues.small.pop()) else { return false };
        let Some(alive) = entry.cell.upgrade() else { return true };
        let uses = alive.uses();
        let used = uses.get();
        if from_small && used >= USES_TO_STAY {
            uses.count.store(0, Ordering::Relaxed);
            queues.main.push(entry);
            return true;
        }
        if !from_small && used > 0 {
            uses.count.store(used - 1, Ordering::Relaxed);
            queues.main.push(entry);
            return true;
        }
        if from_small {
            queues.evicted = queues.evicted.wrapping_add(1).max(1);
        }
        let number = if from_small { queues.evicted } else { 0 };
        uses.listed.store(false, Ordering::Relaxed);
        drop(queues);
        // Without the lock, because the content is freed here; a thread that loads it again lists
        // it again. A cell that is not on disk keeps its use count until a checkpoint has written
        // it.
        if alive.evict() {
            uses.count.store(0, Ordering::Relaxed);
            uses.evicted.store(number, Ordering::Relaxed);
        }
        true
    }
}

#[cfg(test)]
impl Ring {
    /// The same for second chance: a cell that was used since its last visit goes round once more.
    fn turn_clock(&self) -> bool {
        let mut queues = self.queues.lock();
        let Some(entry) = queues.main.pop() else { return false };
        let Some(alive) = entry.cell.upgrade() else { return true };
        let uses = alive.uses();
        if uses.count.swap(0, Ordering::Relaxed) > 0 {
            queues.main.push(entry);
            return true;
        }
        uses.listed.store(false, Ordering::Relaxed);
        drop(queues);
        alive.evict();
        true
    }
}
