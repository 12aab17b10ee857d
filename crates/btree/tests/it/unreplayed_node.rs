//! A damaged node that blocks the replay of a log record blocks reads of that node and all changes,
//! and nothing else.

use std::collections::BTreeMap;

use btree::BtreeStore;
use format::node::UNIT_BYTES;
use store::{
    Batch, Commit, Durable, Error, KeyRange, Lane, Maintain, MergeKind, Read, SliceRun, Snapshot,
    TreeId,
};
use testing::run::rounds;
use testing::{CrashPolicy, SimDevice, SimEnv, fails};

use crate::superblocks::Model;
use crate::util::{TREE, commit, entries, options, store};

const CACHE_BYTES: usize = 8 << 20;
const NODES: &str = "btree/nodes";
const CLONE: TreeId = TreeId(40);
const PART: TreeId = TreeId(41);
const OTHER: TreeId = TreeId(42);
const BRIEF: TreeId = TreeId(43);
const KEYS: u32 = 600;
const ONE_MORE: Lane = Lane { offset: 0, kind: MergeKind::Add, operand: 1 };

fn value(n: u32) -> Vec<u8> {
    let bytes = if n.is_multiple_of(97) { 4000 } else { 300 };
    [&1000_u64.to_le_bytes()[..], &testing::noise(u64::from(n), bytes)].concat()
}

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

/// What a crash leaves of a store whose log changes all that a batch can change, and what is in
/// its trees.
fn crashed() -> (SimDevice, Model) {
    let (sim, store) = store(1, CACHE_BYTES);
    commit(&store, |batch| {
        batch.create_tree(OTHER);
        batch.create_tree(BRIEF);
    });
    for n in 0..KEYS {
        commit(&store, |batch| {
            for tree in [TREE, OTHER, BRIEF] {
                batch.put(tree, &key(n), &value(n));
            }
        });
    }
    commit(&store, |batch| batch.delete_range(OTHER, &key(400), &key(500)));
    assert!(store.checkpoint().expect("checkpoint"));
    commit(&store, |batch| {
        for n in (0..KEYS).step_by(40) {
            batch.put(TREE, &key(n), &value(n + 1));
            if !(400..500).contains(&n) {
                batch.merge(OTHER, &key(n + 3), &[ONE_MORE]);
            }
            batch.merge(BRIEF, &key(n + 3), &[ONE_MORE]);
            batch.delete(TREE, &key(n + 5));
        }
    });
    commit(&store, |batch| batch.clone_tree(TREE, CLONE));
    commit(&store, |batch| batch.clone_prefixes(OTHER, PART, &[&key(1)[..3]]));
    commit(&store, |batch| {
        batch.delete_range(TREE, &key(100), &key(140));
        batch.put(CLONE, &key(7), b"in the clone");
        batch.drop_tree(BRIEF);
    });
    let run: Vec<_> = (400..500_u32).map(|n| (key(n).to_vec(), value(n + 2))).collect();
    store.ingest(OTHER, &mut SliceRun::new(&run)).expect("there is nothing");
    store.sync(store.last_commit()).expect("sync");
    let trees = [TREE, CLONE, PART, OTHER].map(|tree| (tree, entries(&*store, tree)));
    (sim.device.after_crash(CrashPolicy::LoseAll, 1), BTreeMap::from(trees))
}

/// Whether an error is damage of a node.
pub(crate) fn is_damage(error: &Error) -> bool {
    matches!(error, Error::Corrupt(bad) if bad.file == NODES)
}

/// Reads the keys of so many numbers, and all in order: each answer is right. Returns how many keys
/// do not read.
pub(crate) fn ask_all(read: &dyn Read, model: &Model, keys: u32, place: &str) -> usize {
    let mut unknown = 0;
    for (&tree, right) in model {
        for n in 0..keys {
            match read.get(tree, &key(n)) {
                Ok(found) => assert!(found.as_ref() == right.get(&key(n)[..]), "{place}: {n}"),
                Err(error) => {
                    assert!(is_damage(&error), "{place}: {error}");
                    unknown += 1;
                }
            }
        }
        let mut left = right.iter();
        let mut cursor = read.scan(tree, KeyRange::all()).expect("the tree is there");
        loop {
            match cursor.next() {
                Ok(item) => {
                    let item = item.map(|item| (item.key, item.value));
                    let wanted = left.next().map(|(key, value)| (&key[..], &value[..]));
                    assert!(item == wanted, "{place}: {tree:?} in order");
                    if wanted.is_none() {
                        break;
                    }
                }
                Err(error) => {
                    assert!(is_damage(&error), "{place}: {error}");
                    break;
                }
            }
        }
    }
    unknown
}

fn ask(read: &dyn Read, model: &Model, place: &str) -> usize {
    ask_all(read, model, KEYS, place)
}

/// A store that misses something changes nothing, and takes nothing but that what it misses goes.
fn lives_with_it(device: &SimDevice, store: &BtreeStore, place: &str) {
    let files = device.files();
    let mut batch = Batch::new();
    batch.put(OTHER, b"more", b"value");
    let refused = store.commit(&batch).expect_err("it is read-only");
    // The leaf that it would change may be the one that is damaged.
    let is_refused = matches!(refused, Error::ReadOnly(_)) || is_damage(&refused);
    assert!(is_refused, "{place}: {refused}");
    assert!(refused.to_string().contains(NODES), "{place}: {refused}");
    // Nor does it drop fewer than all trees that are partly unknown.
    let mut batch = Batch::new();
    batch.drop_tree(store.unknown()[0]);
    if store.unknown().len() > 1 {
        fails(store.commit(&batch), "cannot read a node that the log changes");
    }
    assert!(matches!(store.checkpoint(), Err(Error::ReadOnly(_))), "{place}");
    while store.reclaim_step(100).expect("there is nothing to write") {}
    assert!(!store.checkpoint_due(), "{place}");
    store.close().expect("there is nothing to write");
    assert_eq!(device.files(), files, "{place}: nothing is written or deleted");
}

/// A caller that has what is not known elsewhere drops it, and continues.
fn continues_without(device: SimDevice, model: &Model, place: &str) {
    let sim = SimEnv::on(device, 2);
    let options = options(CACHE_BYTES);
    let store = BtreeStore::open(&sim.env(), &options).expect("it opens");
    let unknown = store.unknown();
    let mut batch = Batch::new();
    for tree in &unknown {
        batch.drop_tree(*tree);
    }
    store.commit(&batch).expect("all that is not known goes");
    drop(store);
    let sim = SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 3), 3);
    let store = BtreeStore::open(&sim.env(), &options).expect("it opens");
    assert_eq!(store.read_only(), None, "{place}");
    let mut rest = model.clone();
    rest.retain(|tree, _| !unknown.contains(tree));
    ask(&*store, &rest, place);
    commit(&store, |batch| batch.create_tree(TreeId(60)));
    assert!(store.checkpoint().expect("checkpoint"), "{place}");
    drop(store);
    let store = BtreeStore::open(&sim.env(), &options).expect("it opens");
    ask(&*store, &rest, place);
}

/// A bit of each unit of the file of nodes.
#[test]
fn a_damaged_node_under_the_log_blocks_only_its_own_keys() {
    let (left, right) = crashed();
    let length = left.read_file(NODES).len() as u64;
    let options = options(CACHE_BYTES);
    let (mut closed, mut read_only) = (0, 0);
    let step = rounds(3, 1);
    for unit in (0..length / UNIT_BYTES as u64).step_by(step as usize) {
        let bit = (unit * UNIT_BYTES as u64 + 100) * 8;
        let place = format!("bit {bit}");
        let sim = SimEnv::on(left.copy(), unit);
        sim.device.flip_bit(NODES, bit);
        match BtreeStore::open(&sim.env(), &options) {
            Err(error) => {
                assert!(is_damage(&error), "{place}: {error}");
                closed += 1;
            }
            Ok(store) if store.read_only().is_some() => {
                read_only += 1;
                let unknown = ask(&*store, &right, &place);
                let pin = store.pin().expect("pin");
                assert_eq!(ask(&*pin, &right, &place), unknown, "{place}");
                drop(pin);
                lives_with_it(&sim.device, &store, &place);
                drop(store);
                continues_without(sim.device.copy(), &right, &place);
            }
            Ok(store) => {
                ask(&*store, &right, &place);
            }
        }
        // The disk gives again what it had.
        sim.device.flip_bit(NODES, bit);
        let store = BtreeStore::open(&sim.env(), &options).expect("it is whole");
        assert_eq!(store.read_only(), None, "{place}");
        assert_eq!(ask(&*store, &right, &place), 0, "{place}");
    }
    println!("of {length} bytes: {closed} close it, {read_only} have it open for reading");
    assert_eq!(closed, 0, "units that close it");
    assert!(read_only * step > 50, "{read_only} units under the log");
}
