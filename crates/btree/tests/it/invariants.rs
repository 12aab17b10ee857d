//! The structure stays sound whatever is done.

use std::collections::BTreeMap;

use btree::BtreeStore;
use store::{Lane, Maintain, MergeKind, Read, TreeId};

use crate::util::{TREE, checked, commit, entries, options, store};

fn random_key(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u8(0..10) {
        // Long keys make nodes of few entries, so trees grow high.
        0..4 => {
            let mut key = vec![b'k'; random.usize(200..500)];
            key.extend_from_slice(&random.u16(..).to_be_bytes());
            key
        }
        4..8 => random.u32(0..3000).to_be_bytes().to_vec(),
        _ => (0..random.usize(0..6)).map(|_| random.u8(b'a'..b'd')).collect(),
    }
}

fn random_value(random: &mut fastrand::Rng) -> Vec<u8> {
    let length = match random.u8(0..20) {
        0 => random.usize(2049..30_000),
        1..5 => random.usize(500..2049),
        _ => random.usize(0..100),
    };
    vec![random.u8(..); length]
}

#[test]
fn random_operations_leave_balanced_trees_and_exact_counts() {
    for seed in 0..5 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let (sim, mut store) = store(seed, 2 << 20);
        let mut models: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
        models.insert(TREE.0, BTreeMap::new());
        let mut next = TREE.0 + 1;
        for round in 0..24 {
            for _ in 0..250 {
                step(&store, &mut models, &mut next, &mut random);
            }
            checked(&store);
            if round % 8 == 7 {
                drop(store);
                store = BtreeStore::open(&sim.env(), &options(2 << 20)).expect("open");
            }
            for (tree, model) in &models {
                assert_eq!(&entries(&*store, TreeId(*tree)), model, "seed {seed} tree {tree}");
            }
        }
    }
}

type Models = BTreeMap<u64, BTreeMap<Vec<u8>, Vec<u8>>>;

fn step(store: &BtreeStore, models: &mut Models, next: &mut u64, random: &mut fastrand::Rng) {
    let ids: Vec<u64> = models.keys().copied().collect();
    let id = ids[random.usize(0..ids.len())];
    let tree = TreeId(id);
    let key = random_key(random);
    let model = models.get_mut(&id).expect("it is there");
    match random.u8(0..200) {
        0..110 => {
            let value = random_value(random);
            commit(store, |batch| batch.put(tree, &key, &value));
            model.insert(key, value);
        }
        110..180 => {
            // A key that is there, mostly.
            let key = model.range(key.clone()..).next().map_or(key, |(key, _)| key.clone());
            commit(store, |batch| batch.delete(tree, &key));
            model.remove(&key);
        }
        180..190 => {
            let offset = random.u16(0..2500);
            let lane = Lane { offset, kind: MergeKind::Add, operand: 3 };
            commit(store, |batch| batch.merge(tree, &key, &[lane]));
            let value = model.entry(key).or_default();
            let (start, end) = (usize::from(offset), usize::from(offset) + 8);
            value.resize(value.len().max(end), 0);
            let old = i64::from_le_bytes(value[start..end].try_into().expect("eight"));
            value[start..end].copy_from_slice(&(old + 3).to_le_bytes());
        }
        190..193 => {
            let to = random_key(random);
            commit(store, |batch| batch.delete_range(tree, &key, &to));
            model.retain(|k, _| *k < key || *k >= to);
        }
        193..196 if ids.len() < 12 => {
            commit(store, |batch| batch.clone_tree(tree, TreeId(*next)));
            let copy = model.clone();
            models.insert(*next, copy);
            *next += 1;
        }
        196..198 if ids.len() < 12 => {
            let prefixes: [&[u8]; 2] = [&[0, 0, 1], b"a"];
            commit(store, |batch| batch.clone_prefixes(tree, TreeId(*next), &prefixes));
            let mut copy = model.clone();
            copy.retain(|key, _| prefixes.iter().any(|prefix| key.starts_with(prefix)));
            models.insert(*next, copy);
            *next += 1;
        }
        198 if ids.len() > 3 => {
            commit(store, |batch| batch.drop_tree(tree));
            models.remove(&id);
        }
        _ => {
            store.reclaim_step(20).expect("reclaim");
        }
    }
}

#[test]
fn a_tree_grows_high_and_shrinks_to_a_root() {
    let (_sim, store) = store(1, 64 << 20);
    let key = |n: u32| {
        let mut key = vec![b'x'; 480];
        key.extend_from_slice(&n.reverse_bits().to_be_bytes());
        key
    };
    for n in 0..6000 {
        commit(&store, |batch| batch.put(TREE, &key(n), &[7; 300]));
    }
    let report = checked(&store);
    assert_eq!(report.entries, 6000 + report.trees);
    assert!(report.interiors > 10, "{report:?}");
    for n in 0..6000 {
        commit(&store, |batch| batch.delete(TREE, &key(n)));
        if n % 1000 == 999 {
            checked(&store);
        }
    }
    let report = checked(&store);
    assert_eq!((report.leaves, report.interiors, report.trees), (2, 0, 1), "{report:?}");
}

#[test]
fn deleting_a_range_costs_its_edges_and_leaves_no_underfull_node() {
    let (_sim, store) = store(1, 64 << 20);
    for chunk in 0..100_u32 {
        commit(&store, |batch| {
            for n in chunk * 1000..chunk * 1000 + 1000 {
                batch.put(TREE, &n.to_be_bytes(), &[1; 60]);
            }
        });
    }
    checked(&store);
    let before = store.stats().written_bytes;
    commit(&store, |batch| {
        batch.delete_range(TREE, &100_u32.to_be_bytes(), &99_900_u32.to_be_bytes());
    });
    let report = checked(&store);
    assert_eq!(report.entries, 200 + 1);
    assert!(store.stats().written_bytes - before < 1 << 20, "only the edges are written");
    assert_eq!(entries(&*store, TREE).len(), 200);
    commit(&store, |batch| batch.delete_range(TREE, b"", &[0xff; 5]));
    assert_eq!(checked(&store).entries, 1);
    assert!(store.get(TREE, &5_u32.to_be_bytes()).expect("read").is_none());
}

#[test]
fn ascending_keys_fill_their_leaves() {
    let (_sim, store) = store(1, 64 << 20);
    for n in 0..40_000_u32 {
        commit(&store, |batch| batch.put(TREE, &n.to_be_bytes(), &[1; 50]));
    }
    let report = checked(&store);
    let entries_a_leaf = report.entries / report.leaves;
    assert!(entries_a_leaf > 170, "{entries_a_leaf} of at most 281 entries a leaf");
}
