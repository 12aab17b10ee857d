//! A batch is never torn by a checkpoint, a pin or a clone that comes in the middle of it. The gate
//! prevents that, and the tests would detect a bypassed gate.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock, Thread, spawn};
use store::{Batch, Commit, Durable, KeyRange, Maintain, Read, Snapshot, TreeId};
use testing::{CrashPolicy, SimEnv};

use crate::gate::Hook;
use crate::{BtreeStore, Options};

const TREE: TreeId = TreeId(32);
const OTHER: TreeId = TreeId(33);
/// Keys in different leaves, and in another tree; each batch gives all of them one value.
const PLACES: [(TreeId, u32); 3] = [(TREE, 0), (TREE, 1999), (OTHER, 7)];
/// The number of a clone is that of its source plus this.
const CLONED: u64 = 100;

/// The values of the places, as a looker in the middle of a batch sees them.
type Seen = Vec<u8>;

fn commit(store: &BtreeStore, value: u8) {
    let mut batch = Batch::new();
    for (tree, key) in PLACES {
        batch.put(tree, &key.to_be_bytes(), &[value; 50]);
    }
    store.commit(&batch).expect("commit");
}

/// The values of the places in a state or in clones; look-ups and scans must agree.
fn seen(state: &dyn Read, of: fn(TreeId) -> TreeId) -> Seen {
    let get = |(tree, key): (TreeId, u32)| {
        let key = key.to_be_bytes();
        let found = state.get(of(tree), &key).expect("read").expect("present");
        let range = KeyRange { from: key.to_vec(), to: None };
        let mut cursor = state.scan(of(tree), range).expect("scan");
        let item = cursor.next().expect("read").expect("present");
        assert_eq!((item.key, item.value), (&key[..], &found[..]), "a scan and a look-up differ");
        found[0]
    };
    PLACES.map(get).to_vec()
}

/// Operations that read a store in the middle of a batch, through the gate.
#[derive(Debug, Clone, Copy)]
enum Looker {
    Checkpoint,
    Pin,
    Clone,
}

impl Looker {
    const ALL: [Looker; 3] = [Looker::Checkpoint, Looker::Pin, Looker::Clone];

    /// Reads the places; the content of a checkpoint is read after a power cut.
    fn look(self, store: &BtreeStore) -> Option<Seen> {
        match self {
            Looker::Checkpoint => {
                assert!(store.checkpoint().expect("checkpoint"));
                None
            }
            Looker::Pin => Some(seen(&*store.pin().expect("pin"), |tree| tree)),
            Looker::Clone => {
                let cloned = |tree: TreeId| TreeId(tree.0 + CLONED);
                let mut batch = Batch::new();
                for tree in [TREE, OTHER] {
                    batch.clone_tree(tree, cloned(tree));
                }
                store.commit(&batch).expect("clone");
                Some(seen(store, cloned))
            }
        }
    }
}

/// Commits a batch, starts a looker when it is applied up to its `after`th change, and returns what
/// the looker saw.
fn looked(
    looker: Looker,
    after: u32,
    hook: impl FnOnce(&Arc<BtreeStore>) -> Thread<Option<Seen>> + Send + 'static,
) -> Seen {
    let sim = testing::sim_env(1);
    let options = Options::default();
    let store = BtreeStore::create(&sim.env(), &options).expect("create");
    let mut batch = Batch::new();
    batch.create_tree(TREE);
    batch.create_tree(OTHER);
    for n in 0..2000_u32 {
        batch.put(TREE, &n.to_be_bytes(), &[0; 50]);
    }
    store.commit(&batch).expect("commit");
    commit(&store, 1);
    store.close().expect("close");
    drop(store);
    // Opened again, so that the trees of the batch are not in memory. A batch whose trees are in
    // memory holds the set of trees while it is applied, and clones wait for that as well.
    let store = BtreeStore::open(&sim.env(), &options).expect("open");
    let (hooked, begun) = (Arc::clone(&store), Arc::new(Mutex::new(None)));
    let begins = Arc::clone(&begun);
    let act = Box::new(move || *begins.lock() = Some(hook(&hooked)));
    *store.engine().gate.probe.hook.lock() = Some(Hook { after, act });
    commit(&store, 2);
    assert!(store.engine().gate.probe.hook.lock().is_none(), "the hook was called");
    let thread = begun.lock().take().expect("the hook began it");
    let found = thread.join().expect("it looks");
    found.unwrap_or_else(|| {
        assert!(matches!(looker, Looker::Checkpoint), "{looker:?}");
        let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 1), 1);
        let store = BtreeStore::open(&sim.env(), &options).expect("open");
        seen(&*store, |tree| tree)
    })
}

fn begin(looker: Looker, store: &Arc<BtreeStore>) -> Thread<Option<Seen>> {
    let beside = Arc::clone(store);
    spawn("looker", move || looker.look(&beside)).expect("a thread")
}

#[test]
fn without_the_gate_a_torn_batch_is_visible() {
    // The gate prevents this; a test of the gate must be able to see it.
    for looker in Looker::ALL {
        for after in 1..3 {
            let found = looked(looker, after, move |store| {
                store.engine().gate.probe.bypassed.store(true, Ordering::Relaxed);
                let thread = begin(looker, store);
                let has_looked = || match looker {
                    Looker::Checkpoint => !store.engine().in_flight.lock().is_empty(),
                    Looker::Pin | Looker::Clone => thread.is_finished(),
                };
                while !has_looked() {
                    device::yield_now();
                }
                thread
            });
            let torn: Vec<u8> = (0..3).map(|place| if place < after { 2 } else { 1 }).collect();
            assert_eq!(found, torn, "{looker:?} after {after} changes");
        }
    }
}

/// How long a thread that waits at the gate is watched. Without the wait it would need
/// microseconds.
const WATCHED: Duration = Duration::from_millis(100);

#[test]
fn no_reader_sees_a_state_while_a_batch_is_applied() {
    for looker in Looker::ALL {
        for after in 0..3 {
            let found = looked(looker, after, move |store| {
                let core = store.engine();
                let before = core.gate.probe.arrivals.load(Ordering::Relaxed);
                let thread = begin(looker, store);
                // The looker completes all earlier steps before it waits at the gate.
                while core.gate.probe.arrivals.load(Ordering::Relaxed) == before {
                    device::yield_now();
                }
                // With the simulated clock the looker would not run.
                let clock = SystemClock::new();
                while clock.monotonic() < WATCHED {
                    let froze = !core.in_flight.lock().is_empty();
                    assert!(!froze && !thread.is_finished(), "{looker:?} within a batch");
                    clock.sleep(Duration::from_millis(1));
                }
                thread
            });
            // Once the looker could enter, it saw the whole batch.
            assert_eq!(found, [2, 2, 2], "{looker:?} after {after} changes");
        }
    }
}
