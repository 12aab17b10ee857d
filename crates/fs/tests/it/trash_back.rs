//! What is restored from a trash, and what is reported if nothing is; the cost of deep trees.

use fs::{FileSystem, RenameMode, RestoreOptions, Restored};
use inode::{Caller, FsError, NodeId};

use crate::quota::set;
use crate::support::{ROOT, Volume, refused, volume};
use crate::trash::{listed, on, path, restore};

const DAY: u64 = 86_400;

/// The command reported a restored directory, and did nothing.
#[test]
fn an_empty_directory_whose_name_is_taken_is_not_listed_as_restorable() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT, DAY);
    v.dir(ROOT, "old");
    v.tick();
    let new = v.dir(ROOT, "new").node;
    v.file(new, "mine");
    v.fs.rename(&root, (ROOT, b"new"), (ROOT, b"old"), RenameMode::Replace).expect("it is empty");
    refused(restore(&v, "/old"), &FsError::Exists);
    assert_eq!(v.sorted(new), ["mine"], "nothing of it changed");
    let elsewhere = Some((ROOT, &b"elsewhere"[..]));
    let restored =
        v.fs.restore(&root, (ROOT, &path("/old")), elsewhere, &RestoreOptions::default());
    assert_eq!(restored.expect("there is space"), Restored { names: 1, left: 0 });
    assert_eq!(v.sorted(v.find(ROOT, "elsewhere").expect("it came back").node), [""; 0]);
    refused(restore(&v, "/old"), &FsError::NotFound);
}

#[test]
fn a_fully_restored_directory_leaves_nothing_in_the_trash() {
    let v = volume();
    on(&v, ROOT, DAY);
    let dir = v.dir(ROOT, "d").node;
    v.file(dir, "f");
    v.fs.unlink(&Caller::root(), dir, b"f").expect("it goes");
    assert_eq!(restore(&v, "/d").expect("it was kept"), Restored { names: 1, left: 0 });
    refused(restore(&v, "/d"), &FsError::NotFound);
}

/// Directories in one another, the first one first.
fn nested(v: &Volume, depth: usize) -> Vec<NodeId> {
    let mut all = vec![v.dir(ROOT, "d").node];
    for at in 1..depth {
        all.push(v.dir(all[at - 1], "d").node);
    }
    all
}

/// What something costs in a tree that is so deep, in keys that are requested; and that it is for
/// each directory much the same.
fn costs(what: &str, work: impl Fn(&Volume, &[NodeId])) {
    let gets = |depth| {
        let v = volume();
        on(&v, ROOT, DAY);
        let all = nested(&v, depth);
        let before = v.store.gets();
        work(&v, &all);
        v.store.gets() - before
    };
    let (less, more) = (gets(150), gets(600));
    assert!(more < less * 5, "{what}: {less} of 150 directories, {more} of 600");
}

#[test]
fn removing_a_deep_tree_into_the_trash_costs_a_constant_for_each_directory() {
    costs("rm -r", |v, all| {
        for dir in all[..all.len() - 1].iter().rev() {
            v.fs.rmdir(&Caller::root(), *dir, b"d").expect("it is empty");
        }
        assert_eq!(listed(&v.fs, ROOT), ["d/d"]);
    });
}

#[test]
fn a_quota_on_a_deep_tree_costs_a_constant_for_each_directory() {
    costs("quota set", |v, all| {
        set(&v.fs, all[0], Some(1000), None);
        let charged = v.fs.quota_get(all[all.len() - 1]).expect("a node").expect("a quota");
        assert_eq!(charged.inodes, all.len() as u64);
    });
}
