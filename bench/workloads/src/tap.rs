//! A store that records every request: the bytes of every batch, every key looked up, every range
//! scanned, in order. Each thread records into memory of its own, so that recording costs only a
//! copy.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use store::{
    Batch, Commit, CommitToken, Cursor, DiffCursor, KeyRange, Over, Pinned, Read, Result, Snapshot,
    SortedRun, Store, TreeId,
};

thread_local! {
    static NOTES: RefCell<Vec<Note>> = const { RefCell::new(Vec::new()) };
    static BYTES: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// One request. Its bytes are in [`Notes::bytes`], in the order of the requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Note {
    /// A batch of this many bytes was committed.
    Commit(u32),
    /// A key of this many bytes was looked up in a tree.
    Get(u64, u16),
    /// A range of a tree was scanned: bytes of its start, and of its end if it has one.
    Scan(u64, u16, Option<u16>),
}

/// The recorded requests of a thread.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The requests, in order.
    pub(super) notes: Vec<Note>,
    /// Their bytes.
    pub(super) bytes: Vec<u8>,
}

/// Takes the recorded requests of this thread.
pub(super) fn take() -> Notes {
    Notes { notes: NOTES.take(), bytes: BYTES.take() }
}

/// Reserves memory for notes in advance, and touches it, so that recording does not wait for
/// memory.
pub(super) fn prepare(notes: usize, bytes: usize) {
    let mut space = vec![Note::Commit(1); notes];
    space.clear();
    NOTES.set(space);
    let mut space = vec![1; bytes];
    space.clear();
    BYTES.set(space);
}

fn note(note: Note, parts: [&[u8]; 2]) {
    NOTES.with_borrow_mut(|notes| notes.push(note));
    BYTES.with_borrow_mut(|bytes| {
        bytes.extend_from_slice(parts[0]);
        bytes.extend_from_slice(parts[1]);
    });
}

/// A store with a tap.
pub(super) struct Tap {
    store: Arc<dyn Store>,
    on: AtomicBool,
}

impl Tap {
    pub(super) fn new(store: Arc<dyn Store>) -> Tap {
        Tap { store, on: AtomicBool::new(false) }
    }

    /// Starts or stops recording.
    pub(super) fn turn(&self, on: Turn) {
        self.on.store(on == Turn::On, Ordering::Relaxed);
    }

    fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }
}

/// Whether a tap records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    On,
    Off,
}

impl Read for Tap {
    fn get_with(&self, tree: TreeId, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        if self.is_on() {
            note(Note::Get(tree.0, key.len() as u16), [key, b""]);
        }
        self.store.get_with(tree, key, found)
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> Result<Box<dyn Cursor + '_>> {
        if self.is_on() {
            let to = range.to.as_deref();
            let lengths = Note::Scan(tree.0, range.from.len() as u16, to.map(|to| to.len() as u16));
            note(lengths, [&range.from, to.unwrap_or_default()]);
        }
        self.store.scan(tree, range)
    }
}

impl Over for Tap {
    fn below(&self) -> &dyn Store {
        &*self.store
    }
}

impl Commit for Tap {
    fn commit(&self, batch: &Batch) -> Result<CommitToken> {
        if self.is_on() {
            note(Note::Commit(batch.as_bytes().len() as u32), [batch.as_bytes(), b""]);
        }
        self.store.commit(batch)
    }

    fn ingest(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.store.ingest(tree, run)
    }

    fn ingest_new(&self, tree: TreeId, run: &mut dyn SortedRun) -> Result<CommitToken> {
        self.store.ingest_new(tree, run)
    }
}

impl Snapshot for Tap {
    fn pin(&self) -> Result<Box<dyn Pinned>> {
        self.store.pin()
    }

    fn pin_trees(&self, trees: &[TreeId]) -> Result<Box<dyn Pinned>> {
        self.store.pin_trees(trees)
    }

    fn diff(&self, old: TreeId, new: TreeId) -> Result<Box<dyn DiffCursor + '_>> {
        self.store.diff(old, new)
    }

    fn tree_exists(&self, tree: TreeId) -> Result<bool> {
        self.store.tree_exists(tree)
    }
}
