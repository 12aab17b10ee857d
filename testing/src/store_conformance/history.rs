//! All states of a run, by sequence number, and which of them must survive.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use store::{Batch, Commit, CommitToken, Durability, KeyRange, Lsn, Pinned, Store, TreeId};

use super::compare::{Mismatch, same_differences, same_tree};
use super::workload::Workload;
use crate::{MemPinned, MemStore};

/// The states after each commit; the first is the empty store.
///
/// A batch is added *before* the engine commits it, so that a power cut in the middle of the commit
/// finds both states.
pub struct History {
    oracle: MemStore,
    states: Mutex<Vec<State>>,
    durable: AtomicU64,
}

struct State {
    pinned: Arc<MemPinned>,
    trees: Vec<TreeId>,
}

impl Default for History {
    fn default() -> History {
        History::new()
    }
}

impl History {
    /// A history of the empty store.
    pub fn new() -> History {
        let history = History {
            oracle: MemStore::new(),
            states: Mutex::default(),
            durable: AtomicU64::new(0),
        };
        history.record();
        history
    }

    fn record(&self) {
        let trees = self.oracle.trees();
        let pinned = Arc::new(self.oracle.pin_state());
        self.states.lock().push(State { pinned, trees });
    }

    /// The oracle, in the newest state.
    pub fn oracle(&self) -> &MemStore {
        &self.oracle
    }

    /// Adds the state after a batch.
    pub fn push(&self, batch: &Batch) -> CommitToken {
        let token = self.oracle.commit(batch).expect("the workload makes valid batches");
        self.record();
        token
    }

    /// Removes the newest state: its batch was rejected.
    pub fn pop(&self) {
        let mut states = self.states.lock();
        states.pop();
        let last = states.last().expect("invariant: the empty state stays");
        self.oracle.reset_to(&last.pinned);
    }

    /// Trees of the newest state.
    pub fn trees(&self) -> Vec<TreeId> {
        self.states.lock().last().map(|state| state.trees.clone()).unwrap_or_default()
    }

    /// Trees of a state.
    pub fn trees_of(&self, state: Lsn) -> Vec<TreeId> {
        self.states.lock()[state.0 as usize].trees.clone()
    }

    /// The newest state's number.
    pub fn last(&self) -> Lsn {
        Lsn(self.states.lock().len() as u64 - 1)
    }

    /// From now on, states up to this one must survive.
    pub fn set_durable(&self, up_to: CommitToken) {
        self.durable.fetch_max(up_to.0.0, Ordering::SeqCst);
    }

    /// The oldest state that may survive.
    pub fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::SeqCst))
    }

    /// The work of a crash suite on a store: commits, syncs and background steps by the seed, each
    /// of which must succeed.
    pub fn run(&self, store: &dyn Store, work: &mut Workload, commits: u64) {
        for _ in 0..commits {
            let batch = work.batch();
            let expected = self.push(&batch);
            let token = store.commit(&batch).expect("the batch is valid");
            assert_eq!(token, expected, "numbers have no gaps");
            if store.stats().durability == Durability::Sync {
                self.set_durable(token);
            }
            match work.random.u32(0..100) {
                0..25 => {
                    store.sync(token).expect("sync");
                    self.set_durable(token);
                }
                25..30 => {
                    assert!(store.checkpoint().expect("checkpoint"), "no other thread is at it");
                    self.set_durable(token);
                }
                30..40 => {
                    store.reclaim_step(work.random.usize(1..10)).expect("reclaim");
                }
                40..45 => {
                    store.flush_if_due().expect("flush");
                }
                _ => {}
            }
        }
    }

    /// Compares an opened store with the state that it reports, which must be between the last one
    /// that must survive and the newest.
    pub fn check(&self, store: &dyn Store) -> Result<Lsn, Mismatch> {
        self.check_from(store, self.durable())
    }

    /// The same with another oldest state.
    pub fn check_from(&self, store: &dyn Store, oldest: Lsn) -> Result<Lsn, Mismatch> {
        let found = store.last_commit().0;
        if found < oldest || found > self.last() {
            return Err(Mismatch::Wrong(format!(
                "recovered up to commit {}, not between {} and {}",
                found.0,
                oldest.0,
                self.last().0
            )));
        }
        let expected = self.states.lock()[found.0 as usize].trees.len() as u64;
        if store.stats().trees != expected {
            let found = store.stats().trees;
            return Err(Mismatch::Wrong(format!("{found} trees, expected {expected}")));
        }
        self.check_contents(store, found)
    }

    /// Compares the trees of a state, whatever the store's number and its other trees are by now.
    pub fn check_contents(&self, store: &dyn Store, state: Lsn) -> Result<Lsn, Mismatch> {
        let (pinned, trees) = {
            let states = self.states.lock();
            let state = &states[state.0 as usize];
            (Arc::clone(&state.pinned), state.trees.clone())
        };
        assert_eq!(pinned.commit().0, state, "invariant: one state for each commit");
        for &tree in &trees {
            if !store.tree_exists(tree)? {
                return Err(Mismatch::Wrong(format!("tree {} does not exist", tree.0)));
            }
            same_tree(store, pinned.as_ref(), tree)?;
        }
        Ok(state)
    }

    /// For a store at one of the states, compares the differences of each tree from the tree
    /// created before it.
    pub fn check_differences(&self, store: &dyn Store) -> Result<(), Mismatch> {
        let (pinned, trees) = {
            let states = self.states.lock();
            let Some(state) = states.get(store.last_commit().0.0 as usize) else { return Ok(()) };
            (Arc::clone(&state.pinned), state.trees.clone())
        };
        for two in trees.windows(2) {
            let expected = pinned.diff(two[0], &*pinned, two[1], KeyRange::all());
            let mut expected = expected.expect("the oracle has the trees");
            same_differences(&mut *store.diff(two[0], two[1])?, &mut *expected)?;
        }
        Ok(())
    }
}
