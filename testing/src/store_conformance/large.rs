//! Trees of several levels: grown in every order, thinned out, cut, and grown again.

use std::collections::BTreeMap;
use std::sync::Arc;

use store::{Batch, Durability, KeyRange, Read, Store, TreeId};

use super::engine::{EngineUnderTest, fresh};
use super::reopen::open;
use crate::kit::commit;
use crate::run::show;

const TREE: TreeId = TreeId(20);
const CLONE: TreeId = TreeId(21);

type Oracle = BTreeMap<Vec<u8>, Vec<u8>>;

/// The keys of a tree.
#[derive(Debug, Clone, Copy)]
enum Keys {
    /// Short ones in random places: leaves with many entries.
    Scattered,
    /// Ascending numbers.
    Ascending,
    /// Long ones, in groups with long common prefixes: nodes with few entries, and long separators.
    Long,
}

fn key(keys: Keys, n: u64) -> Vec<u8> {
    let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    match keys {
        Keys::Scattered => scattered.to_be_bytes().to_vec(),
        Keys::Ascending => n.to_be_bytes().to_vec(),
        Keys::Long => {
            let group = n / 7;
            let mut random = fastrand::Rng::with_seed(group);
            let mut key: Vec<u8> = (0..random.usize(200..490)).map(|_| random.u8(..)).collect();
            key.extend_from_slice(&scattered.to_be_bytes());
            key
        }
    }
}

fn value(n: u64) -> Vec<u8> {
    vec![n as u8; (n % 60) as usize + 40]
}

fn same(store: &dyn Read, tree: TreeId, oracle: &Oracle) {
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    for (key, value) in oracle {
        let item = cursor.next().expect("read").unwrap_or_else(|| panic!("no {}", show(key)));
        assert!(item.key == key && item.value == value, "{} in the place of another", show(key));
    }
    assert!(cursor.next().expect("read").is_none(), "a key too many");
    // A part of it backward, and by looking up.
    for (key, value) in oracle.iter().rev().step_by(7) {
        assert_eq!(store.get(tree, key).expect("read").as_ref(), Some(value));
    }
    for (key, _) in oracle.iter().rev().take(2000) {
        assert_eq!(cursor.prev().expect("read").map(|item| item.key), Some(key.as_slice()));
    }
}

/// A tree beside its oracle.
struct Large {
    store: Arc<dyn Store>,
    oracle: Oracle,
    random: fastrand::Rng,
    keys: Keys,
}

impl Large {
    fn put(&mut self, numbers: &[u64]) {
        for (at, part) in numbers.chunks(100).enumerate() {
            let mut batch = Batch::new();
            for &n in part {
                let (key, value) = (key(self.keys, n), value(n));
                batch.put(TREE, &key, &value);
                self.oracle.insert(key, value);
            }
            self.commit(&batch, at);
        }
    }

    fn delete(&mut self, numbers: &[u64]) {
        for (at, part) in numbers.chunks(100).enumerate() {
            let mut batch = Batch::new();
            for &n in part {
                let key = key(self.keys, n);
                batch.delete(TREE, &key);
                self.oracle.remove(&key);
            }
            self.commit(&batch, at);
        }
    }

    fn commit(&mut self, batch: &Batch, at: usize) {
        self.store.commit(batch).expect("the batch is valid");
        if at % 100 == 50 {
            assert!(self.store.checkpoint().expect("checkpoint"));
        }
    }

    /// Cuts a range out of the middle.
    fn cut(&mut self, share: u64) {
        let count = self.oracle.len() as u64;
        let from = self.random.u64(0..=count - count / share);
        let mut range = self.oracle.keys().skip(from as usize);
        let (Some(from), Some(to)) = (range.next(), range.nth((count / share) as usize)) else {
            return;
        };
        let (from, to) = (from.clone(), to.clone());
        commit(&*self.store, |batch| batch.delete_range(TREE, &from, &to));
        self.oracle.retain(|key, _| *key < from || *key >= to);
    }
}

fn run<E: EngineUnderTest>(seed: u64, keys: Keys, count: u64) {
    let (sim, store) = fresh::<E>(seed);
    let random = fastrand::Rng::with_seed(seed);
    let mut large = Large { store, oracle: Oracle::new(), random, keys };
    commit(&*large.store, |batch| batch.create_tree(TREE));
    let mut numbers: Vec<u64> = (0..count).collect();
    if matches!(keys, Keys::Long) {
        large.random.shuffle(&mut numbers);
    }
    large.put(&numbers);
    same(&*large.store, TREE, &large.oracle);
    commit(&*large.store, |batch| batch.clone_tree(TREE, CLONE));
    let whole = large.oracle.clone();
    // Thinned out at random, so that nodes become underfull everywhere.
    large.random.shuffle(&mut numbers);
    let (few, many) = numbers.split_at(numbers.len() / 8);
    let (few, many) = (few.to_vec(), many.to_vec());
    large.delete(&many);
    same(&*large.store, TREE, &large.oracle);
    same(&*large.store, CLONE, &whole);
    // Grown again, cut three times, and opened again.
    large.put(&many[..many.len() / 2]);
    for share in [3, 50, 2] {
        large.cut(share);
        same(&*large.store, TREE, &large.oracle);
    }
    large.store.close().expect("close");
    large.store = open::<E>(&sim, Durability::Async);
    same(&*large.store, TREE, &large.oracle);
    same(&*large.store, CLONE, &whole);
    // Emptied one by one, from the end.
    let mut rest: Vec<u64> = few.into_iter().chain(many).collect();
    rest.sort_unstable_by(|a, b| b.cmp(a));
    large.delete(&rest);
    assert!(large.oracle.is_empty());
    same(&*large.store, TREE, &large.oracle);
    commit(&*large.store, |batch| batch.drop_tree(CLONE));
    while large.store.reclaim_step(500).expect("reclaim") {}
    large.put(&[1, 2, 3]);
    same(&*large.store, TREE, &large.oracle);
}

/// Several levels of nodes split, merge and are cut without losing a key.
pub fn a_large_tree_grows_and_shrinks<E: EngineUnderTest>() {
    E::for_seeds("large trees", 1, 5, |seed| {
        run::<E>(seed, Keys::Scattered, E::places(20_000, 300_000));
        run::<E>(seed, Keys::Ascending, E::places(20_000, 300_000));
        run::<E>(seed, Keys::Long, E::places(6000, 60_000));
    });
}
