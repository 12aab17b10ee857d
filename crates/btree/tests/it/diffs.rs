//! What differences cost, and that places on disk are not mistaken for each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use btree::BtreeStore;
use store::{DiffCursor, Durable, Error, KeyRange, Maintain, Pinned, Result, Snapshot, TreeId};
use testing::{Op, SimEnv};

use crate::util::{TREE, commit, options, store};

/// What a cursor gives: key, old value, new value.
type Differences = Vec<(Vec<u8>, Option<Vec<u8>>, Option<Vec<u8>>)>;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn all(cursor: Box<dyn DiffCursor + '_>) -> Differences {
    read(cursor).expect("read")
}

fn read(mut cursor: Box<dyn DiffCursor + '_>) -> Result<Differences> {
    let mut found = Vec::new();
    while let Some(diff) = cursor.next()? {
        let own = |value: Option<&[u8]>| value.map(<[u8]>::to_vec);
        found.push((diff.key.to_vec(), own(diff.old), own(diff.new)));
    }
    Ok(found)
}

/// A store of a tree with so many thousands of keys, and a clone of it.
fn with_clone(seed: u64, keys: u32) -> (SimEnv, Arc<BtreeStore>, TreeId) {
    let (sim, store) = store(seed, 64 << 20);
    for chunk in 0..keys / 1000 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 90]);
            }
        });
    }
    let clone = TreeId(TREE.0 + 1);
    commit(&store, |batch| batch.clone_tree(TREE, clone));
    (sim, store, clone)
}

#[test]
fn a_difference_reads_only_what_differs() {
    const KEYS: u32 = 40_000;
    let (sim, first, clone) = with_clone(1, KEYS);
    for n in [5, 20_000, 39_000_u32] {
        commit(&first, |batch| batch.put(clone, &n.to_be_bytes(), b"other"));
    }
    first.close().expect("close");
    drop(first);
    // Opened again, so that each node that is looked at is read.
    let again = || BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
    let reads = || sim.device.counts().of(Op::Read);
    let store = again();
    let before = reads();
    let asked_before = sim.device.counts().prefetched.len();
    assert_eq!(all(store.diff(TREE, clone).expect("diff")).len(), 3);
    // Catalog, two roots, and three leaves of each; the tree has more than 300 leaves.
    let cost = reads() - before;
    assert!(cost <= 12, "{cost} reads");
    let asked = sim.device.counts().prefetched.len() - asked_before;
    assert!(asked <= 8, "requested what both have: {asked}");
    drop(store);
    let store = again();
    let (old, new) = (store.pin().expect("pin"), store.pin().expect("pin"));
    let before = reads();
    let range = KeyRange::between(&10_000_u32.to_be_bytes(), &30_000_u32.to_be_bytes());
    assert_eq!(all(old.diff(TREE, new.as_ref(), clone, range).expect("diff")).len(), 1);
    let cost = reads() - before;
    assert!(cost <= 8, "{cost} reads for a range");
    commit(&store, |batch| batch.put(clone, &20_001_u32.to_be_bytes(), b"later"));
    assert!(store.checkpoint().expect("checkpoint"));
    let later = store.pin().expect("pin");
    let before = reads();
    let found = all(new.diff(clone, later.as_ref(), clone, KeyRange::all()).expect("diff"));
    assert_eq!(found.len(), 1);
    assert!(reads() - before <= 4, "one leaf differs");
}

#[test]
fn scattered_differences_are_read_ahead() {
    const KEYS: u32 = 100_000;
    let (sim, first, clone) = with_clone(3, KEYS);
    let changed = |n: &u32| n % 70 == 11;
    // Some go too, so that not all leaves begin alike; in the last part nothing differs.
    let gone = |n: &u32| (30_000..31_000).contains(n) && !changed(n);
    for n in (0..KEYS - 20_000).filter(|n| changed(n) || gone(n)) {
        commit(&first, |batch| {
            if gone(&n) {
                batch.delete(clone, &n.to_be_bytes());
            } else {
                batch.put(clone, &n.to_be_bytes(), &[2; 90]);
            }
        });
    }
    first.close().expect("close");
    drop(first);
    let store = BtreeStore::open(&sim.env(), &options(64 << 20)).expect("open");
    let before = sim.device.counts().prefetched.len();
    let found = all(store.diff(TREE, clone).expect("diff"));
    let want: Vec<u32> = (0..KEYS - 20_000).filter(|n| changed(n) || gone(n)).collect();
    let keys: Vec<u32> =
        found.iter().map(|(key, ..)| u32::from_be_bytes(key[..].try_into().expect("4"))).collect();
    assert_eq!(keys, want);
    assert!(found.iter().all(|(.., new)| new.is_none() || new.as_deref() == Some(&[2; 90])));
    // Each leaf that is not in both was requested, on either side, once; and of those that are in
    // both hardly one.
    let mut asked = sim.device.counts().prefetched.split_off(before);
    asked.sort_by_key(|(_, offset, _)| *offset);
    assert!(asked.windows(2).all(|two| two[0].1 + two[0].2 <= two[1].1), "requested twice");
    let bytes: u64 = asked.iter().map(|(_, _, length)| length).sum();
    let differing = 2 * u64::from(KEYS - 20_000) * 94;
    assert!(bytes > differing * 9 / 10, "{bytes} bytes were requested, {differing} differ");
    assert!(bytes < differing * 3 / 2, "{bytes} bytes were requested, {differing} differ");
}

#[test]
fn a_reused_offset_is_not_mistaken_for_the_same_node() {
    const KEYS: u32 = 600;
    // So small that nothing stays in memory.
    let (_sim, store) = store(7, 64 << 10);
    let mut random = fastrand::Rng::with_seed(7);
    let mut model: Model = BTreeMap::new();
    let mut moments: Vec<(Box<dyn Pinned>, Model)> = Vec::new();
    for round in 0..60_u32 {
        commit(&store, |batch| {
            for n in (0..KEYS).filter(|n| (n + round) % 3 == 0 || round == 0) {
                // The same content returns, so that whole nodes do, at other places or the same.
                let value = vec![random.u8(0..3); if n % 100 == 0 { 5000 } else { 60 }];
                batch.put(TREE, &n.to_be_bytes(), &value);
                model.insert(n.to_be_bytes().to_vec(), value);
            }
        });
        // Twice, so that what was freed first is used by the second where nothing holds it.
        for _ in 0..2 {
            assert!(store.checkpoint().expect("checkpoint"));
            commit(&store, |batch| batch.put(TREE, b"tick", &round.to_be_bytes()));
            model.insert(b"tick".to_vec(), round.to_be_bytes().to_vec());
        }
        moments.push((store.pin().expect("pin"), model.clone()));
        for (old, old_model) in &moments {
            let (new, new_model) = moments.last().expect("it was pushed");
            let found = all(old.diff(TREE, new.as_ref(), TREE, KeyRange::all()).expect("diff"));
            assert_eq!(found, differences(old_model, new_model), "round {round}");
        }
        while moments.len() > 3 {
            moments.remove(random.usize(0..moments.len()));
        }
    }
}

fn differences(old: &Model, new: &Model) -> Differences {
    let keys: std::collections::BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let found = keys.into_iter().map(|key| (key.clone(), old.get(key), new.get(key)));
    found
        .filter(|(_, old, new)| old != new)
        .map(|(key, old, new)| (key, old.cloned(), new.cloned()))
        .collect()
}

/// Nothing is skipped in silence, on either side, whatever is rotten.
#[test]
fn a_difference_over_damage_is_whole_or_names_the_place_of_the_damage() {
    let (sim, store, clone) = with_clone(7, 6000);
    for n in (0..6000_u32).step_by(211) {
        commit(&store, |batch| batch.put(clone, &n.to_be_bytes(), &[2; 90]));
        commit(&store, |batch| batch.delete(TREE, &(n + 3).to_be_bytes()));
    }
    let forth = all(store.diff(TREE, clone).expect("diff"));
    let back = all(store.diff(clone, TREE).expect("diff"));
    assert_eq!((forth.len(), back.len()), (58, 58));
    store.close().expect("close");
    drop(store);
    let bytes = sim.env().device.open("btree/nodes").and_then(|file| file.len()).expect("length");
    let (mut whole, mut reported) = (0, 0);
    for unit in 0..bytes / 1024 {
        let disk = sim.device.copy();
        disk.flip_bit("btree/nodes", unit * 8192 + 8 * 200 + unit % 8);
        let opened = BtreeStore::open(&SimEnv::on(disk, 1).env(), &options(8 << 20));
        // The damage is in the catalog; other tests check that it is reported.
        let Ok(store) = opened else { continue };
        for (from, to, want) in [(TREE, clone, &forth), (clone, TREE, &back)] {
            match store.diff(from, to).and_then(read) {
                Ok(found) => {
                    assert_eq!(&found, want, "unit {unit}: silently another difference");
                    whole += 1;
                }
                Err(Error::Corrupt(damage)) => {
                    assert!(damage.to_string().contains("btree/nodes"), "unit {unit}: {damage}");
                    reported += 1;
                }
                Err(error) => panic!("unit {unit}: {error}"),
            }
        }
    }
    println!("{whole} differences were whole, {reported} named the damage");
    assert!(whole > 100 && reported > 100, "{whole} whole, {reported} reported");
}
