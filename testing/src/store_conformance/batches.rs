//! Tests of each operation of a batch, one by one, on small examples.

use store::{
    Batch, Error, KEY_BYTES_MAX, KeyRange, Lane, MergeKind, Store, TreeId, VALUE_BYTES_MAX,
};

use super::EngineUnderTest;
use super::engine::fresh;
use crate::kit::commit;

const TREE: TreeId = TreeId(20);
const OTHER: TreeId = TreeId(21);
const THIRD: TreeId = TreeId(22);

/// The keys of a tree, as text.
fn keys(store: &dyn Store, tree: TreeId) -> Vec<String> {
    let mut cursor = store.scan(tree, KeyRange::all()).expect("the tree exists");
    let mut keys = Vec::new();
    while let Some(item) = cursor.next().expect("the store answers") {
        keys.push(String::from_utf8_lossy(item.key).into_owned());
    }
    keys
}

fn put_all(batch: &mut Batch, tree: TreeId, keys: &[&str]) {
    for key in keys {
        batch.put(tree, key.as_bytes(), b"value");
    }
}

/// Operations of a batch see earlier ones.
pub fn a_batch_is_applied_in_order<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        batch.put(TREE, b"a", b"1");
        batch.put(TREE, b"a", b"2");
        batch.put(TREE, b"b", b"1");
        batch.delete(TREE, b"b");
        batch.delete(TREE, b"never there");
        batch.clone_tree(TREE, OTHER);
        batch.put(TREE, b"c", b"3");
        batch.clone_tree(OTHER, THIRD);
        batch.delete(THIRD, b"a");
        batch.drop_tree(OTHER);
    });
    assert_eq!(store.get(TREE, b"a").expect("read"), Some(b"2".to_vec()));
    assert_eq!(keys(&*store, TREE), ["a", "c"]);
    assert_eq!(keys(&*store, THIRD), Vec::<String>::new());
    assert!(!store.tree_exists(OTHER).expect("read"));
    assert!(!store.get_with(TREE, b"b", &mut |_| panic!("it is not there")).expect("read"));
}

/// A batch without operations takes no commit number.
pub fn an_empty_batch_is_no_commit<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    assert_eq!(store.commit(&Batch::new()).expect("nothing to do").0.0, 0);
    commit(&*store, |batch| batch.create_tree(TREE));
    assert_eq!(store.commit(&Batch::new()).expect("nothing to do"), store.last_commit());
    assert_eq!(store.last_commit().0.0, 1);
}

/// A batch that cannot be applied changes nothing, wherever the invalid operation is.
pub fn a_batch_that_names_no_tree_is_refused_whole<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        batch.create_tree(OTHER);
        batch.put(TREE, b"a", b"1");
    });
    let lane = Lane { offset: 0, kind: MergeKind::Add, operand: 1 };
    type Build<'a> = &'a dyn Fn(&mut Batch);
    let absent: [Build<'_>; 8] = [
        &|batch| batch.put(THIRD, b"a", b"2"),
        &|batch| batch.delete(THIRD, b"a"),
        &|batch| batch.delete_range(THIRD, b"a", b"b"),
        &|batch| batch.merge(THIRD, b"a", &[lane]),
        &|batch| batch.clone_tree(THIRD, TreeId(30)),
        &|batch| batch.drop_tree(THIRD),
        &|batch| {
            batch.drop_tree(OTHER);
            batch.put(OTHER, b"a", b"2");
        },
        &|batch| {
            batch.put(THIRD, b"a", b"2");
            batch.create_tree(THIRD);
        },
    ];
    let existing: [Build<'_>; 3] =
        [&|batch| batch.create_tree(OTHER), &|batch| batch.clone_tree(TREE, OTHER), &|batch| {
            batch.create_tree(THIRD);
            batch.clone_tree(TREE, THIRD);
        }];
    let last = store.last_commit();
    for (number, build) in absent.iter().chain(&existing).enumerate() {
        let mut batch = Batch::new();
        batch.put(TREE, b"a", b"changed");
        batch.create_tree(TreeId(40));
        build(&mut batch);
        batch.put(TREE, b"z", b"changed");
        match store.commit(&batch) {
            Err(Error::NoTree(_)) if number < absent.len() => {}
            Err(Error::TreeExists(_)) if number >= absent.len() => {}
            other => panic!("bad batch {number}: {other:?}"),
        }
        assert_eq!(store.last_commit(), last, "no number is taken");
        assert_eq!(store.get(TREE, b"a").expect("read"), Some(b"1".to_vec()));
        assert_eq!(keys(&*store, TREE), ["a"]);
        assert!(!store.tree_exists(TreeId(40)).expect("read"));
        assert!(store.tree_exists(OTHER).expect("read"));
        assert!(!store.tree_exists(THIRD).expect("read"));
    }
    assert!(matches!(store.get(THIRD, b"a"), Err(Error::NoTree(THIRD))));
}

/// Merges read nothing, grow short values, and apply lane after lane.
pub fn a_merge_changes_numbers_in_place<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    let add = |offset, operand| Lane { offset, kind: MergeKind::Add, operand };
    let max = |offset, operand| Lane { offset, kind: MergeKind::Max, operand };
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        batch.merge(TREE, b"absent", &[add(0, 5), max(8, -3), add(0, 1)]);
        batch.put(TREE, b"short", &[1, 2, 3]);
        batch.merge(TREE, b"short", &[add(8, i64::MAX), add(8, 1)]);
        batch.put(TREE, b"long", &[7; 5000]);
        batch.merge(TREE, b"long", &[max(4096, i64::MIN), add(0, -1)]);
    });
    commit(&*store, |batch| batch.merge(TREE, b"absent", &[max(8, 9), max(0, 2)]));
    let get = |key: &[u8]| store.get(TREE, key).expect("read").expect("present");
    let numbers = |values: [i64; 2]| values.map(i64::to_le_bytes).concat();
    assert_eq!(get(b"absent"), numbers([6, 9]));
    assert_eq!(get(b"short"), [&[1, 2, 3, 0, 0, 0, 0, 0], &i64::MIN.to_le_bytes()[..]].concat());
    let mut long = vec![7; 5000];
    long[..8].copy_from_slice(&(i64::from_le_bytes([7; 8]) - 1).to_le_bytes());
    assert_eq!(get(b"long"), long);
}

/// Keys from 0 to the maximum length, values from 0 to the maximum length.
pub fn keys_and_values_of_every_length_round_trip<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| batch.create_tree(TREE));
    let value_lengths = [0, 1, 100, 2047, 2048, 2049, 4096, 16_000, 16_384, 65_535, 65_536, 65_537];
    let mut batch = Batch::new();
    for length in (0..=KEY_BYTES_MAX).rev() {
        let value = vec![length as u8; value_lengths[length % value_lengths.len()]];
        batch.put(TREE, &vec![b'k'; length], &value);
        if length % 7 == 0 {
            store.commit(&batch).expect("the batch is valid");
            batch.clear();
        }
    }
    for (number, length) in [300_000, VALUE_BYTES_MAX].into_iter().enumerate() {
        commit(&*store, |batch| batch.put(TREE, &[number as u8], &vec![9; length]));
        assert_eq!(store.get(TREE, &[number as u8]).expect("read"), Some(vec![9; length]));
    }
    commit(&*store, |batch| batch.delete_range(TREE, &[0], &[2]));
    let mut cursor = store.scan(TREE, KeyRange::all()).expect("the tree exists");
    for length in 0..=KEY_BYTES_MAX {
        let item = cursor.next().expect("read").expect("present");
        assert_eq!(item.key, vec![b'k'; length]);
        assert_eq!(item.value, vec![length as u8; value_lengths[length % value_lengths.len()]]);
    }
    assert!(cursor.next().expect("read").is_none());
}

/// Changes to a clone or its source stay on that side, through clones of clones.
pub fn a_clone_and_its_source_do_not_see_each_other<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    let number = |n: u64| n.to_be_bytes();
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        for n in 0..2000 {
            batch.put(TREE, &number(n), &[0; 40]);
        }
    });
    // Each clone is made from the one before, and differs from it in one key.
    for generation in 1..30_u64 {
        let (source, target) = (TreeId(19 + generation), TreeId(20 + generation));
        commit(&*store, |batch| batch.clone_tree(source, target));
        commit(&*store, |batch| batch.put(target, &number(generation * 60), &[1; 40]));
    }
    commit(&*store, |batch| batch.put(TREE, &number(3), b"late"));
    for generation in 0..30_u64 {
        let tree = TreeId(20 + generation);
        for n in 0..2000 {
            let changed = n % 60 == 0 && n > 0 && n / 60 <= generation;
            let expected: &[u8] = if changed {
                &[1; 40]
            } else if n == 3 && generation == 0 {
                b"late"
            } else {
                &[0; 40]
            };
            let found = store.get(tree, &number(n)).expect("read");
            assert_eq!(found.as_deref(), Some(expected), "key {n} of tree {}", tree.0);
        }
    }
    // Dropping the first and every other one leaves the rest intact.
    for generation in (0..30_u64).step_by(2) {
        commit(&*store, |batch| batch.drop_tree(TreeId(20 + generation)));
    }
    while store.reclaim_step(3).expect("reclaim") {}
    for generation in (1..30_u64).step_by(2) {
        assert_eq!(keys(&*store, TreeId(20 + generation)).len(), 2000);
    }
}

/// A clone of prefixes has their keys and no others.
pub fn a_partial_clone_has_the_prefixes_only<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        put_all(batch, TREE, &["a", "ab", "abc", "b", "ba", "bb", "c", "ca"]);
        batch.put(TREE, &[0xff], b"value");
        batch.put(TREE, &[0xff, 0xff, 1], b"value");
        batch.clone_prefixes(TREE, OTHER, &[b"ab", b"ba", &[0xff, 0xff]]);
        batch.clone_prefixes(TREE, THIRD, &[b"nothing"]);
    });
    let mut cursor = store.scan(OTHER, KeyRange::all()).expect("the tree exists");
    for key in [&b"ab"[..], b"abc", b"ba", &[0xff, 0xff, 1]] {
        assert_eq!(cursor.next().expect("read").expect("present").key, key);
    }
    assert!(cursor.next().expect("read").is_none());
    assert_eq!(keys(&*store, THIRD), Vec::<String>::new());
    commit(&*store, |batch| {
        batch.put(OTHER, b"b", b"own");
        batch.delete(TREE, b"ab");
    });
    assert_eq!(store.get(OTHER, b"b").expect("read"), Some(b"own".to_vec()));
    assert_eq!(store.get(OTHER, b"ab").expect("read"), Some(b"value".to_vec()));
    assert_eq!(store.get(TREE, b"b").expect("read"), Some(b"value".to_vec()));
}

/// The first key of a range is deleted, the end stays; empty and inverted ranges delete nothing.
pub fn a_deleted_range_is_gone<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    let number = |n: u64| n.to_be_bytes();
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        for n in 0..5000 {
            batch.put(TREE, &number(n), &[0; 60]);
        }
        batch.clone_tree(TREE, OTHER);
    });
    commit(&*store, |batch| {
        batch.delete_range(TREE, &number(10), &number(10));
        batch.delete_range(TREE, &number(20), &number(10));
        batch.delete_range(TREE, &number(7), &number(4321));
        batch.put(TREE, &number(100), b"again");
        batch.delete_range(TREE, &number(4990), &[0xff; 9]);
    });
    let mut expected: Vec<u64> = (0..7).collect();
    expected.push(100);
    expected.extend(4321..4990);
    let mut cursor = store.scan(TREE, KeyRange::all()).expect("the tree exists");
    for n in expected {
        assert_eq!(cursor.next().expect("read").expect("present").key, number(n));
    }
    assert!(cursor.next().expect("read").is_none());
    assert_eq!(keys(&*store, OTHER).len(), 5000);
    commit(&*store, |batch| batch.delete_range(TREE, b"", &[0xff; 9]));
    assert_eq!(keys(&*store, TREE).len(), 0);
    commit(&*store, |batch| batch.put(TREE, b"", b"first"));
    assert_eq!(keys(&*store, TREE), [""]);
}

/// Reads of a dropped tree fail, and reclaiming it finishes.
pub fn a_dropped_tree_is_gone_and_reclaimed<E: EngineUnderTest>() {
    let (_sim, store) = fresh::<E>(1);
    commit(&*store, |batch| {
        batch.create_tree(TREE);
        for n in 0..3000_u64 {
            batch.put(TREE, &n.to_be_bytes(), &[0; 100]);
        }
        batch.clone_tree(TREE, OTHER);
    });
    commit(&*store, |batch| batch.drop_tree(TREE));
    assert!(!store.tree_exists(TREE).expect("read"));
    assert!(matches!(store.get(TREE, b"a"), Err(Error::NoTree(TREE))));
    assert!(matches!(store.diff(TREE, OTHER).map(drop), Err(Error::NoTree(TREE))));
    let scanned = store.scan(TREE, KeyRange::all()).and_then(|mut cursor| {
        cursor.next()?;
        Ok(())
    });
    assert!(matches!(scanned, Err(Error::NoTree(TREE))));
    let mut steps = 0;
    while store.reclaim_step(10).expect("reclaim") {
        steps += 1;
        assert!(steps < 10_000, "reclaiming does not end");
    }
    assert_eq!(store.stats().dropping, 0);
    assert_eq!(store.stats().trees, 1);
    assert_eq!(keys(&*store, OTHER).len(), 3000);
}
