//! What one user's copies mean to other users: how many may inherit, who pays for what heirs get,
//! and what a refused caller has done.

use format::key;
use format::subvolume_record::SubvolumeRecord;
use fs::{FileSystem, FsResult, OpenOptions, RenameMode, SubvolumeBounds};
use inode::{Caller, FsError, NameHash, NodeId, SetAttr};
use store::{KeyRange, Maintain, Read, TreeId};

use super::{forget, give, home, root, settle, snapshot_root};
use crate::support::{Volume, assert_whole, refused, user, volume, volume_with};

/// A directory of a user with so many subvolumes in it.
fn of_user(v: &Volume, uid: u32, nested: usize) -> NodeId {
    let dir = v.dir(home(), &format!("of {uid}")).node;
    give(v, dir, uid);
    for at in 0..nested {
        make(v, &root(), dir, &format!("n{at}"));
    }
    dir
}

fn make(v: &Volume, caller: &Caller, dir: NodeId, name: &str) {
    let made = v.fs.subvolume_create(caller, dir, name.as_bytes(), 0o755).expect("space");
    forget(v, made.node);
}

fn snapshot(v: &Volume, caller: &Caller, dir: NodeId, name: &str) -> FsResult<()> {
    v.fs.snapshot_create(caller, dir, name.as_bytes()).map(drop)
}

/// Both have directories in one subvolume, so that their copies inherit from the same one. One
/// makes as many as may inherit, and more whenever one is complete.
#[test]
fn a_user_whose_copies_all_inherit_takes_none_from_others() {
    let v = volume();
    let (ada, bob) = (user(1000), user(1001));
    let (many, few) = (of_user(&v, 1000, 2000), of_user(&v, 1001, 2));
    let mut made = 0;
    while snapshot(&v, &ada, many, &format!("s{made}")).is_ok() {
        made += 1;
    }
    assert!((256..280).contains(&made), "{made} copies");
    for at in 0..100 {
        // It is refused, or refills.
        snapshot(&v, &ada, many, &format!("again {at}")).unwrap_or_default();
        let commits = v.store.stats().commits;
        let name = format!("c{at}");
        if at % 2 == 0 {
            snapshot(&v, &bob, few, &name).expect("the other user's copies are few");
        } else {
            v.fs.clone_dir(&bob, few, few, name.as_bytes())
                .expect("the other user's copies are few");
        }
        if at < 32 {
            assert_eq!(v.store.stats().commits - commits, 1, "no work for others");
        }
    }
    v.fs.snapshot_create(&root(), many, b"of root").expect("heirs refuse root nothing");
    let refused_still = snapshot(&v, &ada, many, "more");
    refused(refused_still, &FsError::Busy(""));
}

/// How many subvolumes that exist a user made, as the records have it.
pub(super) fn made_by(v: &Volume, user: u32) -> u64 {
    let range = KeyRange::prefix(&key::SUBVOLUMES_PREFIX);
    let mut cursor = v.store.scan(TreeId(key::VOLUME_TREE), range).expect("a scan");
    let mut count = 0;
    while let Some(item) = cursor.next().expect("a record") {
        let record = SubvolumeRecord::decode(item.value).expect("it is whole");
        count += u64::from(record.maker == user);
    }
    count
}

/// A first change gave each heir a copy, whatever its maker had. So 256 snapshots of a directory
/// with many subvolumes used up all slots of the volume.
#[test]
fn what_heirs_get_before_a_change_is_in_somebodys_share() {
    let bounds = SubvolumeBounds { of_user: 20, of_all: 10_000, ..SubvolumeBounds::default() };
    let options = OpenOptions { subvolumes: bounds, ..OpenOptions::default() };
    let v = volume_with(NameHash::BITS, &options);
    let (ada, bob) = (user(1000), user(1001));
    let dir = of_user(&v, 1000, 1);
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    v.fs.setattr(&root(), dir, &open).expect("root may");
    for (caller, name) in [(&ada, "a0"), (&ada, "a1"), (&bob, "b0"), (&bob, "b1")] {
        make(&v, caller, dir, name);
    }
    for at in 0..10 {
        snapshot(&v, &ada, dir, &at.to_string()).expect("below the bound");
    }
    let change = |caller: &Caller, nested: &str, name: &str| {
        let nested = v.find(dir, nested).expect("it is there").node;
        v.fs.mkdir(caller, nested, name.as_bytes(), 0o755).map(drop)
    };
    // Ten more would be two too many.
    let full = change(&ada, "a0", "new");
    refused(full.clone(), &FsError::LimitReached(""));
    assert!(full.expect_err("it is").to_string().contains("remove some"));
    // Others continue, each in the share of the maker of what changes.
    change(&bob, "b0", "new").expect("bob has a share");
    refused(change(&bob, "b1", "new"), &FsError::LimitReached(""));
    change(&root(), "n0", "new").expect("root made it");
    assert_eq!((made_by(&v, 1000), made_by(&v, 1001)), (12, 12));
    for nested in ["b0", "n0"] {
        let copy = v.find(snapshot_root(&v, dir, "9"), nested).expect("it was there").node;
        assert_eq!(v.sorted(copy), Vec::<String>::new(), "{nested} was empty");
    }
    // What is removed makes the share free again.
    for at in 0..10 {
        v.fs.snapshot_delete(&ada, dir, at.to_string().as_bytes()).expect("it is the user's");
    }
    settle(&v);
    for (caller, nested) in [(&ada, "a0"), (&ada, "a1"), (&bob, "b1")] {
        change(caller, nested, "later").expect("nothing inherits it");
    }
    assert_whole(&v.fs);
}

/// Each of these calls copied something for heirs, and was refused after that.
#[test]
fn a_refused_caller_has_nothing_copied_for_heirs() {
    let v = volume();
    let ada = user(1000);
    let own = of_user(&v, 1000, 200);
    for at in 0..40 {
        snapshot(&v, &ada, own, &at.to_string()).expect("below the bound");
    }
    // What root has, and snapshots of it.
    let other = v.dir(home(), "other").node;
    for name in ["n", "empty"] {
        make(&v, &root(), other, name);
    }
    for at in 0..3 {
        snapshot(&v, &root(), other, &at.to_string()).expect("space");
    }
    let nested = v.find(other, "n").expect("it is there").node;
    let commits = v.store.stats().commits;
    let turned_down = FsError::AccessDenied;
    refused(v.fs.clone_dir(&ada, own, other, b"c").map(drop), &turned_down);
    refused(v.fs.clone_dir(&ada, own, nested, b"c").map(drop), &turned_down);
    refused(v.fs.clone_dir(&ada, own, own, b"n1").map(drop), &FsError::Exists);
    refused(snapshot(&v, &ada, own, "3"), &FsError::Exists);
    refused(v.fs.subvolume_create(&ada, nested, b"x", 0o755).map(drop), &turned_down);
    refused(v.fs.rmdir(&ada, other, b"empty"), &turned_down);
    let to = (own, &b"mine"[..]);
    refused(v.fs.rename(&ada, (other, b"n"), to, RenameMode::Replace), &turned_down);
    let to = (nested, &b"mine"[..]);
    refused(v.fs.rename(&ada, (own, b"n1"), to, RenameMode::Replace), &turned_down);
    assert_eq!(v.store.stats().commits, commits, "nothing was copied");
    // Who may, does it.
    v.fs.rmdir(&root(), other, b"empty").expect("root may");
    assert_eq!(v.sorted(snapshot_root(&v, other, "0")), ["empty", "n"]);
    assert_eq!(v.sorted(other), ["n"]);
}

/// Regression: what heirs got before a change, and their makers could not pay for, counted as
/// copies of the user who made what changed. That user's own snapshots failed with EBUSY.
#[test]
fn what_heirs_get_counts_with_the_copies_of_who_made_them() {
    const OTHERS: u32 = 9;
    const EACH: u64 = 30;
    let bounds = SubvolumeBounds { of_user: 300, at_once: 100_000, ..SubvolumeBounds::default() };
    let options = OpenOptions { subvolumes: bounds, ..OpenOptions::default() };
    let v = volume_with(NameHash::BITS, &options);
    let bob = user(1000);
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let dirs = ["shared", "other"].map(|name| {
        let dir = v.dir(home(), name).node;
        v.fs.setattr(&root(), dir, &open).expect("root may");
        dir
    });
    make(&v, &bob, dirs[0], "b");
    let own = v.find(dirs[0], "b").expect("it is there").node;
    for at in 0..200 {
        make(&v, &root(), own, &format!("n{at}"));
    }
    // Each has snapshots of the directory, and no more in the share.
    for other in 1..=OTHERS {
        let other = user(1000 + other);
        give(&v, dirs[0], other.uid);
        for at in EACH..bounds.of_user {
            make(&v, &other, dirs[1], &format!("{} {at}", other.uid));
        }
        for at in 0..EACH {
            snapshot(&v, &other, dirs[0], &format!("{} {at}", other.uid)).expect("below the bound");
        }
    }
    v.fs.mkdir(&bob, own, b"new", 0o755).expect("bob has a share");
    assert_eq!(made_by(&v, 1000), 1 + u64::from(OTHERS) * EACH, "bob pays");
    // Heirs of others neither refuse bob anything, nor have bob copy for them.
    for at in 0..20 {
        let commits = v.store.stats().commits;
        snapshot(&v, &bob, own, &at.to_string()).expect("bob has few");
        assert_eq!(v.store.stats().commits - commits, 1, "no work for others");
    }
    let is_known = v.fs.admin.lock().is_as_stored(&v.fs).expect("it is read");
    assert!(is_known, "after an opening it counts as before");
    let copy = v.find(snapshot_root(&v, dirs[0], "1001 0"), "b").expect("it was there").node;
    assert_eq!(v.sorted(copy).len(), 200);
}
