//! A rotten block under a key that a log record adds to blocks that key, and changes, and nothing
//! else.

use std::collections::BTreeMap;

use format::run_index::BLOB_HEAD_BYTES;
use lsm::{LsmStore, Options};
use store::{Batch, Commit, Durable, Error, Lane, Maintain, MergeKind, Read, Snapshot, TreeId};
use testing::{SimDevice, SimEnv, entries};

use crate::util::{TREE, blobs, column, commit, options, settle, store_with};

type Trees = BTreeMap<TreeId, BTreeMap<Vec<u8>, Vec<u8>>>;

const CLONE: TreeId = TreeId(40);
/// A key that is merged into, and then put.
const HEALED: u32 = 7;
const ONE_MORE: Lane = Lane { offset: 0, kind: MergeKind::Add, operand: 1 };

/// Keys that records of the log add to, in a batch of their own and in one that clones.
fn merged() -> impl Iterator<Item = u32> {
    (0..300).step_by(10)
}

fn value(n: u32, counted: u64) -> Vec<u8> {
    [&counted.to_le_bytes()[..], &testing::noise(u64::from(n), 60)].concat()
}

fn add(batch: &mut Batch, tree: TreeId, n: u32) {
    batch.merge(tree, &n.to_be_bytes(), &[ONE_MORE]);
}

/// What a crash leaves of a store whose log adds to values in runs; and the content of its trees.
fn crashed(options: &Options) -> (SimDevice, Trees) {
    let (sim, store) = store_with(1, options);
    for part in 0..3_u32 {
        commit(&store, |batch| {
            for n in part * 100..part * 100 + 100 {
                batch.put(TREE, &n.to_be_bytes(), &value(n, 1000));
            }
        });
    }
    assert!(store.checkpoint().expect("checkpoint"));
    for n in merged() {
        commit(&store, |batch| add(batch, TREE, n));
    }
    // The same again, on the result of a merge, and beside everything else that a batch can do.
    commit(&store, |batch| {
        batch.clone_tree(TREE, CLONE);
        merged().for_each(|n| add(batch, CLONE, n));
        add(batch, CLONE, HEALED);
        batch.put(CLONE, &HEALED.to_be_bytes(), &value(HEALED, 5));
    });
    commit(&store, |batch| merged().for_each(|n| add(batch, TREE, n)));
    store.sync(store.last_commit()).expect("sync");
    let trees = [TREE, CLONE].map(|tree| (tree, entries(&*store, tree)));
    (sim.device.after_crash(testing::CrashPolicy::LoseAll, 1), BTreeMap::from(trees))
}

fn get(store: &dyn Read, tree: TreeId, key: &[u8]) -> store::Result<Option<Vec<u8>>> {
    let mut value = None;
    store.get_with(tree, key, &mut |bytes| value = Some(bytes.to_vec()))?;
    Ok(value)
}

/// A store that was opened read-only answers correctly or reports where the damage is, changes
/// nothing, and has lost nothing once the bytes are restored.
fn lives_with_it(sim: &SimEnv, store: &LsmStore, file: &str, trees: &Trees) -> usize {
    let mut unknown = 0;
    let pin = store.pin().expect("pin");
    for (tree, right) in trees {
        for (key, value) in right {
            for read in [store as &dyn Read, &*pin] {
                match get(read, *tree, key) {
                    Ok(found) => assert_eq!(found.as_ref(), Some(value), "a wrong value"),
                    Err(Error::Corrupt(bad)) => {
                        assert!(bad.file == file && bad.offset >= BLOB_HEAD_BYTES as u64, "{bad}");
                        unknown += 1;
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        }
    }
    assert!(unknown > 0, "no value is unknown");
    let files = sim.device.files();
    let mut batch = Batch::new();
    batch.put(TREE, b"more", b"value");
    let refused = store.commit(&batch).expect_err("it is read-only");
    assert!(matches!(refused, Error::ReadOnly(_)) && refused.to_string().contains(file));
    assert!(matches!(store.checkpoint(), Err(Error::ReadOnly(_))));
    drop(pin);
    settle(store);
    assert!(!store.checkpoint_due());
    store.close().expect("there is nothing to write");
    settle(store);
    assert_eq!(sim.device.files(), files, "nothing is written or deleted");
    unknown
}

/// A bit of each place of the runs and value logs that a crashed store needs.
#[test]
fn a_damaged_block_under_a_merged_key_blocks_that_key_only() {
    for options in [options(), column()] {
        let (left, right) = crashed(&options);
        let (mut read_only, mut in_part) = (0, 0);
        for file in blobs(&left) {
            let length = left.read_file(&file).len() as u64;
            for byte in (BLOB_HEAD_BYTES as u64..length).step_by(509) {
                let sim = SimEnv::on(left.copy(), byte);
                sim.device.flip_bit(&file, byte * 8);
                let store = LsmStore::open(&sim.env(), &options).expect("it opens");
                let Some(why) = store.read_only() else { continue };
                assert!(why.contains(&file), "{why}");
                read_only += 1;
                let keys: usize = right.values().map(BTreeMap::len).sum();
                if lives_with_it(&sim, &store, &file, &right) < 2 * keys {
                    in_part += 1;
                }
                drop(store);
                // The same again, and then as it was.
                let store = LsmStore::open(&sim.env(), &options).expect("it opens");
                assert!(store.read_only().is_some());
                drop(store);
                sim.device.flip_bit(&file, byte * 8);
                let store = LsmStore::open(&sim.env(), &options).expect("it opens");
                assert!(store.read_only().is_none());
                for (tree, right) in &right {
                    assert!(entries(&*store, *tree) == *right, "something was lost");
                }
                store.close().expect("close");
            }
        }
        assert!(read_only > 20 && in_part > 20, "{read_only} times read-only, {in_part} in part");
    }
}

/// What is put, or deleted, after a merge that cannot be made is known all the same.
#[test]
fn a_damaged_value_that_the_log_replaces_blocks_nothing() {
    let (sim, store) = store_with(2, &options());
    commit(&store, |batch| batch.put(TREE, b"one", &value(0, 1)));
    commit(&store, |batch| batch.put(TREE, b"two", &value(0, 1)));
    assert!(store.checkpoint().expect("checkpoint"));
    for key in [b"one", b"two"] {
        commit(&store, |batch| {
            batch.merge(TREE, key, &[ONE_MORE]);
        });
    }
    commit(&store, |batch| batch.put(TREE, b"one", b"new"));
    commit(&store, |batch| batch.delete(TREE, b"two"));
    store.sync(store.last_commit()).expect("sync");
    drop(store);
    let file = blobs(&sim.device).pop().expect("there is one");
    sim.device.flip_bit(&file, (BLOB_HEAD_BYTES as u64 + 40) * 8);
    let store = LsmStore::open(&sim.env(), &options()).expect("it opens");
    assert_eq!(store.read_only(), None);
    assert_eq!(get(&*store, TREE, b"one").expect("it was put"), Some(b"new".to_vec()));
    assert_eq!(get(&*store, TREE, b"two").expect("it was deleted"), None);
    commit(&store, |batch| batch.put(TREE, b"three", b"value"));
    store.close().expect("close");
}
