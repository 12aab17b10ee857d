//! The cost of cursors where much was deleted, counted in visited keys. A cursor visits nothing
//! behind its range. What it visited in vain of the active tree the next one does not visit again.

use std::collections::BTreeMap;

use store::{KeyRange, Maintain, Pinned, Read, Snapshot};
use testing::CrashPolicy;

use crate::util::{TREE, checked, commit, open, settle, store};

fn key(number: u64) -> [u8; 8] {
    number.to_be_bytes()
}

/// Where the deleted keys are.
#[derive(Debug, Clone, Copy)]
enum At {
    /// The active tree.
    Active,
    /// A layer in memory that something pinned.
    Frozen,
    /// A run.
    Run,
}

#[test]
fn a_cursor_visits_nothing_behind_its_range() {
    const KEYS: u64 = 10_000;
    for at in [At::Active, At::Frozen, At::Run] {
        let (_sim, store) = store(1);
        commit(&store, |batch| (0..KEYS).for_each(|n| batch.put(TREE, &key(n), b"old")));
        store.checkpoint().unwrap();
        commit(&store, |batch| {
            (1..KEYS - 1).for_each(|n| batch.delete(TREE, &key(n)));
            batch.put(TREE, &key(KEYS / 2), b"new");
        });
        let pin = matches!(at, At::Frozen).then(|| store.pin().unwrap());
        if matches!(at, At::Run) {
            store.checkpoint().unwrap();
        }
        let before = store.engine().keys_visited(TREE);
        let mut scans = 0;
        for from in (1..KEYS - 10).step_by(100) {
            // Two keys, both deleted, on either side of the one that exists.
            let mut cursor =
                store.scan(TREE, KeyRange::between(&key(from), &key(from + 2))).unwrap();
            assert!(cursor.next().unwrap().is_none());
            cursor.seek(&key(from + 2)).unwrap();
            assert!(cursor.prev().unwrap().is_none());
            scans += 1;
        }
        let visited = store.engine().keys_visited(TREE) - before;
        assert!(visited <= 8 * scans, "{at:?}: {scans} scans of two keys visited {visited}");
        drop(pin);
        checked(&store);
    }
}

/// Keys come in at the end, and the first is removed; a cursor looks for it from the beginning.
#[test]
fn a_queue_does_not_become_slower() {
    const KEYS: u64 = 4000;
    const HELD: u64 = 10;
    for pins in [false, true] {
        let (sim, store) = store(2);
        commit(&store, |batch| batch.put(TREE, b"", b"something is below"));
        store.checkpoint().unwrap();
        let before = store.engine().keys_visited(TREE);
        let mut last: Option<Box<dyn Pinned>> = None;
        for number in 0..KEYS {
            commit(&store, |batch| batch.put(TREE, &key(number), b"queued"));
            let Some(oldest) = number.checked_sub(HELD) else { continue };
            let mut cursor =
                store.scan(TREE, KeyRange { from: key(0).to_vec(), to: None }).unwrap();
            let found = cursor.next().unwrap().map(|item| item.key.to_vec());
            assert_eq!(found, Some(key(oldest).to_vec()));
            commit(&store, |batch| batch.delete(TREE, &key(oldest)));
            if pins && number % 100 == 0 {
                last = Some(store.pin().unwrap());
            }
        }
        let visited = store.engine().keys_visited(TREE) - before;
        // Each of 16 deleted keys is visited by as many cursors before they become a range.
        assert!(visited <= 40 * KEYS, "pins {pins}: {visited} keys visited for {KEYS}");
        drop(last);
        checked(&store);
        let left: Vec<_> = (KEYS - HELD..KEYS).map(|number| key(number).to_vec()).collect();
        let found = |store: &lsm::LsmStore| {
            let mut cursor =
                store.scan(TREE, KeyRange { from: key(0).to_vec(), to: None }).unwrap();
            let mut found = Vec::new();
            while let Some(item) = cursor.next().unwrap() {
                found.push(item.key.to_vec());
            }
            found
        };
        assert_eq!(found(&store), left);
        let crashed = testing::SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, 2), 2);
        drop((sim, store));
        assert_eq!(found(&open(&crashed)), left);
    }
}

/// What a tree has.
type Model = BTreeMap<u64, u64>;
/// Keys are less than this.
const KEYS: u64 = 2000;

fn compare(store: &dyn Read, tree: store::TreeId, model: &Model, what: &str) {
    let mut cursor = store.scan(tree, KeyRange::all()).expect("a store in memory");
    let mut expected = model.iter();
    while let Some(item) = cursor.next().expect("a store in memory") {
        let (number, value) = expected.next().unwrap_or_else(|| panic!("{what}: too many"));
        assert_eq!((item.key, item.value), (&key(*number)[..], &key(*value)[..]), "{what}");
    }
    assert!(expected.next().is_none(), "{what}: too few");
}

/// Pins have what they had, and what differs between each and the last is found.
fn compare_pins(pins: &[(Box<dyn Pinned>, Model)], seed: u64) {
    let Some((last, newest)) = pins.last() else { return };
    for (pin, model) in pins {
        compare(&**pin, TREE, model, &format!("seed {seed}, a pin"));
        let mut diff = pin.diff(TREE, &**last, TREE, KeyRange::all()).expect("a store in memory");
        let differs = |number: &u64| model.get(number) != newest.get(number);
        for number in (0..KEYS).filter(differs) {
            let found = diff.next().expect("a store in memory").map(|found| found.key.to_vec());
            assert_eq!(found, Some(key(number).to_vec()), "seed {seed}, a difference");
        }
        assert!(diff.next().expect("a store in memory").is_none(), "seed {seed}, differences");
    }
}

/// Random changes, and cursors from random positions in both directions that leave ranges, beside
/// an ordered map. Pins and clones keep what they had, and a crash loses nothing that was synced.
#[test]
fn ranges_of_cursors_change_nothing() {
    for seed in 0..12 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (sim, store) = store(seed);
        let mut model = Model::new();
        let mut pins: Vec<(Box<dyn Pinned>, Model)> = Vec::new();
        let mut clones: Vec<(store::TreeId, Model)> = Vec::new();
        for round in 0..400 {
            let (from, length) = (random.u64(0..KEYS), random.u64(1..300));
            let numbers = from..(from + length).min(KEYS);
            match random.u8(0..12) {
                0..3 => commit(&store, |batch| {
                    for number in numbers.clone().filter(|number| number % 3 == round % 3) {
                        batch.put(TREE, &key(number), &key(round));
                        model.insert(number, round);
                    }
                }),
                3..6 => commit(&store, |batch| {
                    for number in numbers.clone() {
                        batch.delete(TREE, &key(number));
                        model.remove(&number);
                    }
                }),
                6..10 => {
                    let range = KeyRange::between(&key(from), &key(from + random.u64(1..KEYS)));
                    let mut cursor = store.scan(TREE, range.clone()).unwrap();
                    let inside = |number: &u64| range.contains(&key(*number));
                    let mut expected: Vec<u64> = model.keys().copied().filter(inside).collect();
                    let backward = random.bool();
                    if backward {
                        cursor.seek(range.to.as_ref().unwrap()).unwrap();
                        expected.reverse();
                    }
                    for number in expected {
                        let item = if backward { cursor.prev() } else { cursor.next() };
                        let found = item.unwrap().map(|item| item.key.to_vec());
                        assert_eq!(found, Some(key(number).to_vec()), "seed {seed}");
                    }
                    let end = if backward { cursor.prev() } else { cursor.next() };
                    assert!(end.unwrap().is_none(), "seed {seed}");
                }
                10 if random.bool() => {
                    let clone = store::TreeId(100 + round);
                    commit(&store, |batch| batch.clone_tree(TREE, clone));
                    clones.push((clone, model.clone()));
                }
                10 => pins.push((store.pin().unwrap(), model.clone())),
                _ if random.bool() => drop(store.checkpoint().unwrap()),
                _ => settle(&store),
            }
            if pins.len() > 3 {
                pins.remove(0);
            }
        }
        compare_pins(&pins, seed);
        for (tree, model) in &clones {
            compare(&*store, *tree, model, &format!("seed {seed}, a clone"));
        }
        compare(&*store, TREE, &model, &format!("seed {seed}"));
        pins.clear();
        checked(&store);
        let crashed = testing::SimEnv::on(sim.device.after_crash(CrashPolicy::LoseAll, seed), seed);
        drop((sim, store));
        let opened = open(&crashed);
        compare(&*opened, TREE, &model, &format!("seed {seed}, after a crash"));
        for (tree, model) in &clones {
            compare(&*opened, *tree, model, &format!("seed {seed}, a clone after a crash"));
        }
    }
}
