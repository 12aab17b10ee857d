//! Concurrent renames of directories.

use models::rename::{Locks, NO_LOOP, RenameModel};

use crate::{breaks, holds};

#[test]
fn locks_on_all_ancestors_of_the_target_keep_the_tree_a_tree() {
    holds("renames, two", RenameModel { locks: Locks::AllAncestors, renames: 2 });
    holds("renames, three", RenameModel { locks: Locks::AllAncestors, renames: 3 });
}

#[test]
fn a_lock_on_the_target_alone_lets_two_renames_make_a_loop() {
    let model = RenameModel { locks: Locks::TargetOnly, renames: 2 };
    breaks("renames, target locked", model, &[NO_LOOP], false);
}

#[test]
fn ancestors_may_be_released_before_the_commit() {
    let model = RenameModel { locks: Locks::AllDuringWalk, renames: 3 };
    holds("renames, three, ancestors released before the commit", model);
}
