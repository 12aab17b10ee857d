//! Differences between pinned states: each side is read as of its pin.

use store::{DiffCursor, Error, KeyRange, Pinned, Result, TreeId};

use super::compare::commit_both;
use super::engine::{EngineUnderTest, fresh};
use super::random::step_beside;
use super::workload::{Shape, Workload};
use crate::kit::commit;
use crate::run::show;
use crate::{MemPinned, MemStore};

/// A pinned state, the oracle's, and its trees.
struct Moment {
    pinned: Box<dyn Pinned>,
    expected: MemPinned,
    trees: Vec<TreeId>,
}

/// Maximum number of pinned states.
const MOMENTS_MAX: usize = 5;

/// Differences between any trees of any two pinned states equal the oracle's, in any range,
/// whatever was committed, dropped, checkpointed and evicted between and since.
pub fn differences_between_pins_are_exact<E: EngineUnderTest>() {
    E::for_seeds("diffs of pins", 6, 60, |seed| {
        let (_sim, store) = fresh::<E>(seed);
        let oracle = MemStore::new();
        let mut work = Workload::new(seed, Shape { large: seed % 3 == 0, ..Shape::WIDE });
        let mut moments: Vec<Moment> = Vec::new();
        for round in 0..E::rounds(300, 2000) {
            let batch = work.batch();
            commit_both(&*store, &oracle, &batch);
            step_beside(&*store, &oracle, &mut work);
            if round % 40 == 7 {
                store.checkpoint().expect("checkpoint");
            }
            if work.random.u8(0..15) == 0 {
                let pinned = store.pin().expect("pin");
                let trees = work.trees().to_vec();
                moments.push(Moment { pinned, expected: oracle.pin_state(), trees });
            }
            if moments.len() > MOMENTS_MAX {
                for _ in 0..6 {
                    let old = work.random.usize(0..moments.len());
                    let new = work.random.usize(0..moments.len());
                    same_differences(&moments[old], &moments[new], &mut work);
                }
                moments.swap_remove(work.random.usize(0..moments.len()));
            }
        }
    });
}

fn same_differences(old: &Moment, new: &Moment, work: &mut Workload) {
    let trees = [old.trees.as_slice(), new.trees.as_slice()].concat();
    let old_tree = trees[work.random.usize(0..trees.len())];
    // Mostly the same tree at two moments, as is usual for readers of differences.
    let other = trees[work.random.usize(0..trees.len())];
    let new_tree = if work.random.bool() { old_tree } else { other };
    let range = match work.random.u8(0..4) {
        0 => KeyRange::between(&work.key(), &work.key()),
        1 => KeyRange { from: work.key(), to: None },
        _ => KeyRange::all(),
    };
    let found = old.pinned.diff(old_tree, new.pinned.as_ref(), new_tree, range.clone());
    let expected = old.expected.diff(old_tree, &new.expected, new_tree, range);
    let what = format!(
        "tree {} of commit {} and {} of {}",
        old_tree.0,
        old.expected.commit().0.0,
        new_tree.0,
        new.expected.commit().0.0
    );
    match (found, expected) {
        (Ok(mut found), Ok(mut expected)) => same(&what, &mut *found, &mut *expected),
        (Err(Error::NoTree(found)), Err(Error::NoTree(expected))) => assert_eq!(found, expected),
        (found, expected) => {
            panic!("{what}: {:?}, expected {:?}", found.map(drop), expected.map(drop))
        }
    }
}

fn same(what: &str, found: &mut dyn DiffCursor, expected: &mut dyn DiffCursor) {
    loop {
        let found = found.next().expect("read");
        let expected = expected.next().expect("the oracle answers");
        if found != expected {
            let key = expected.or(found).map_or(String::new(), |diff| show(diff.key));
            panic!("{what} differ near {key}");
        }
        if expected.is_none() {
            return;
        }
    }
}

/// Pinned states of two stores are not compared, although their trees have the same numbers.
pub fn pins_of_two_stores_are_not_compared<E: EngineUnderTest>() {
    const TREE: TreeId = TreeId(20);
    let (_first_sim, first) = fresh::<E>(1);
    let (_second_sim, second) = fresh::<E>(2);
    for store in [&first, &second] {
        commit(&**store, |batch| batch.create_tree(TREE));
    }
    let (old, new) = (first.pin().expect("pin"), second.pin().expect("pin"));
    let refused = |result: Result<Box<dyn DiffCursor + '_>>| {
        assert!(matches!(result.map(drop), Err(Error::ForeignPin)));
    };
    refused(old.diff(TREE, new.as_ref(), TREE, KeyRange::all()));
    refused(new.diff(TREE, old.as_ref(), TREE, KeyRange::all()));
    let mut same = old.diff(TREE, old.as_ref(), TREE, KeyRange::all()).expect("one store");
    assert!(same.next().expect("read").is_none());
}
