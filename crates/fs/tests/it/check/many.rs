//! What cannot be repaired does not hide what can.

use format::key::{self, Counter};
use fs::Engine;
use store::{Batch, TreeId};

use super::records::TREE;
use super::volume::{falsify, made};
use super::{check, repair};

on_each_engine!(what_can_be_repaired_is_repaired_behind_any_number_of_others);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// A repair reported that nothing could be repaired, and repaired nothing.
fn what_can_be_repaired_is_repaired_behind_any_number_of_others(engine: Engine) {
    let made = made(engine, 51);
    let device = made.device.copy();
    falsify(&device, |store| {
        let mut batch = Batch::new();
        // No keys of extents, in the tree that is gone through first.
        for n in 0..10_050_u32 {
            batch.put(TREE, &[&key::EXTENTS_PREFIX[..], &n.to_be_bytes()].concat(), b"");
        }
        // This is looked at last.
        batch.put(VOLUME, &key::counter(Counter::NextIno), &3_u64.to_le_bytes());
        store.commit(&batch).expect("there is space");
    });
    let is_it = |problem: &fs::Problem| problem.what.contains("next inode number");
    let report = check(&device);
    assert!(report.problems_count > 10_050, "{}", report.problems_count);
    assert!(report.problems.iter().any(is_it), "it is not among those that are kept");
    let repaired = repair(&device);
    assert!(repaired.repaired.iter().any(is_it), "it was not repaired: {:?}", repaired.failed);
    assert!(!repaired.after.problems.iter().any(is_it), "it is reported again");
    assert_eq!(repaired.after.problems_count, 10_050);
}
