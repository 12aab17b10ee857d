//! Guards of the quotas that no other test covers: which caller is refused what, what is allowed,
//! and what is charged in rare cases.

use std::ops::ControlFlow;
use std::sync::Arc;

use format::key;
use format::quota::{NAME_BYTES, QuotaRecord};
use fs::{Allocate, FileSystem, Fs, Owner, QuotaLimits, RenameMode};
use inode::{Caller, FsError, NodeId, SetAttr};
use store::{Batch, Commit, TreeId};

use crate::owner_quota::{limit, used as used_by};
use crate::quota::set;
use crate::support::{ROOT, Volume, refused, user, volume};

const ADA: Owner = Owner::User(7);
const NOT: FsError = FsError::NotPermitted("");

/// What is charged to the quota of a node.
fn used(fs: &Fs, node: NodeId) -> Option<(u64, u64)> {
    fs.quota_get(node).expect("a node").map(|quota| (quota.inodes, quota.bytes))
}

fn background(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

/// The records match the inodes, and memory matches the records.
fn check(v: &Volume) {
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let root = Caller::root();
    let (here, there) = (&v.fs, v.reopened());
    assert_eq!(there.quota_list(&root).expect("a list"), here.quota_list(&root).expect("a list"));
    let owners = |fs: &Fs| fs.owner_quota_list(&root).expect("a list");
    assert_eq!(owners(&there), owners(here));
}

fn chown(v: &Volume, node: NodeId, uid: u32, gid: u32) {
    let owned = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), node, &owned).expect("root gives");
}

/// A directory of a user.
fn home(v: &Volume, of: &Caller, parent: NodeId, name: &str) -> NodeId {
    v.fs.mkdir(of, parent, name.as_bytes(), 0o777).expect("a new directory").node
}

fn snapshot(v: &Volume, who: &Caller, dir: NodeId, name: &str) -> Result<(), FsError> {
    v.fs.snapshot_create(who, dir, name.as_bytes()).map(drop)
}

/// What a clone was charged goes with it, also when that was before the volume was opened.
#[test]
fn a_clone_charged_before_a_reopen_is_credited() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(10), None);
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    let file = v.file(clone, "f").node;
    v.write(file, 0, &[1; 5000]);
    let again = v.reopened();
    assert_eq!(used(&again, dir), Some((2, 5000)));
    again.rmr(&root, ROOT, b"clone").expect("it goes");
    background(&again);
    assert_eq!(again.quota_check().expect("a count"), []);
    assert_eq!(used(&again, dir), Some((1, 0)));
}

#[test]
fn users_with_any_limit_cannot_copy() {
    let v = volume();
    let bob = Caller { groups: vec![50], ..user(8) };
    let dir = home(&v, &bob, ROOT, "bob");
    snapshot(&v, &bob, dir, "s").expect("no limit holds");
    limit(&v.fs, Owner::Group(50), Some(100), None);
    refused(snapshot(&v, &bob, dir, "t"), &NOT);
    // A group that owns the directory, and that is not known to be the caller's.
    let cyd = user(9);
    let dir = home(&v, &cyd, ROOT, "cyd");
    chown(&v, dir, 9, 60);
    snapshot(&v, &cyd, dir, "s").expect("no limit holds");
    limit(&v.fs, Owner::Group(60), Some(100), None);
    refused(snapshot(&v, &cyd, dir, "t"), &NOT);
    limit(&v.fs, Owner::Group(60), None, None);
    snapshot(&v, &cyd, dir, "t").expect("it holds no more");
}

/// The way up from a quota leads through the subvolumes that are mounted on it, and ends where one
/// is gone.
#[test]
fn a_quota_in_a_nested_subvolume_prevents_copies() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = home(&v, &ada, ROOT, "ada");
    let sub = v.fs.subvolume_create(&ada, dir, b"sub", 0o755).unwrap().node;
    let way = home(&v, &ada, sub, "way");
    let quota = home(&v, &ada, way, "quota");
    set(&v.fs, quota, Some(10), None);
    refused(snapshot(&v, &ada, dir, "s"), &NOT);
    refused(v.fs.clone_dir(&ada, dir, ROOT, b"c").map(drop), &NOT);
    snapshot(&v, &root, dir, "of root").expect("root may");
    v.fs.snapshot_delete(&root, dir, b"of root").unwrap();
    for node in [quota, way, sub] {
        v.fs.forget(node, 1);
    }
    v.fs.rmr(&root, dir, b"sub").expect("it goes");
    background(&v.fs);
    snapshot(&v, &ada, dir, "s").expect("nothing is limited");
    assert_eq!(v.fs.quota_list(&root).expect("a list"), [], "its directory is gone");
    check(&v);
}

/// A user could clone a snapshot that root took, empty the quota's directory, and fill it again.
/// The user would hold the same amount once more, charged to no one.
#[test]
fn a_snapshot_around_a_quota_is_cloned_by_root_only() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = home(&v, &ada, ROOT, "ada");
    let quota = home(&v, &ada, dir, "quota");
    home(&v, &ada, dir, "free");
    let sub = v.fs.subvolume_create(&ada, dir, b"sub", 0o755).unwrap().node;
    let below = home(&v, &ada, sub, "below");
    set(&v.fs, quota, Some(10), None);
    let taken = v.fs.snapshot_create(&root, dir, b"s").expect("root may").root;
    refused(v.fs.clone_dir(&ada, taken, ROOT, b"c").map(drop), &NOT);
    // Anybody may clone a part of it that is not around the quota.
    let free = v.find(taken, "free").unwrap().node;
    v.fs.clone_dir(&ada, free, ROOT, b"free").expect("no limit held in it");
    set(&v.fs, quota, None, None);
    v.fs.clone_dir(&ada, taken, ROOT, b"c").expect("nothing is limited");
    // The same where the quota is in what was mounted there.
    set(&v.fs, below, Some(10), None);
    refused(v.fs.clone_dir(&ada, taken, ROOT, b"d").map(drop), &NOT);
    v.fs.clone_dir(&root, taken, ROOT, b"d").expect("root may");
    check(&v);
}

/// A limit that holds in what is mounted below, where it is no user's to copy, is no matter to
/// root. Nor does a user get a copy by a roll-back to when it was there.
#[test]
fn nested_subvolumes_under_a_quota_are_copied_by_root_only_and_not_restored() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let source = home(&v, &ada, ROOT, "source");
    set(&v.fs, source, Some(100), None);
    let dir = home(&v, &ada, ROOT, "ada");
    let clone = v.fs.clone_dir(&root, source, dir, b"c").expect("root may").root;
    refused(snapshot(&v, &ada, dir, "s"), &NOT);
    snapshot(&v, &root, dir, "s").expect("root may");
    v.fs.clone_dir(&root, dir, ROOT, b"copy").expect("root may");
    v.fs.forget(clone, 1);
    v.fs.rmr(&root, dir, b"c").expect("it goes");
    background(&v.fs);
    snapshot(&v, &ada, dir, "t").expect("nothing is limited there any more");
    refused(v.fs.rollback(&ada, dir, b"s"), &NOT);
    v.fs.rollback(&root, dir, b"s").expect("root may");
    check(&v);
}

/// What is charged in one part of a clone does not prevent copies of another.
#[test]
fn an_uncharged_part_of_a_clone_is_copied() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let source = home(&v, &ada, ROOT, "source");
    let quota = home(&v, &ada, source, "quota");
    home(&v, &ada, source, "free");
    set(&v.fs, quota, Some(100), None);
    let clone = v.fs.clone_dir(&root, source, ROOT, b"c").expect("root may").root;
    v.file_as(&ada, v.find(clone, "quota").unwrap().node, "charged", 0o644).unwrap();
    let free = v.find(clone, "free").unwrap().node;
    snapshot(&v, &ada, free, "s").expect("no limit holds in it");
    refused(snapshot(&v, &ada, clone, "s"), &NOT);
}

#[test]
fn a_directory_without_a_name_gets_no_quota() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    v.fs.rmdir(&root, ROOT, b"d").unwrap();
    let limits = QuotaLimits { inodes: Some(1), bytes: None };
    let refusal = v.fs.quota_set(&root, dir, limits);
    refused(refusal, &FsError::NotDirectory);
    assert_eq!(v.fs.quota_list(&root).expect("a list"), []);
    let id = |fs: &Fs| fs.quota_get(dir).ok().flatten().map(|quota| quota.id);
    assert_eq!((id(&v.fs), id(&v.reopened())), (None, None));
}

/// The record that a crash leaves of a quota whose directory was not reached.
fn begun(v: &Volume, dir: NodeId) -> (Arc<fs::Volume>, u64) {
    let id = 1 << 30;
    let record = QuotaRecord {
        subvolume: dir.slot().0,
        directory: dir.ino().0,
        inodes_max: 5,
        bytes_max: u64::MAX,
        adopting_from: Some(0),
    };
    let mut batch = Batch::new();
    batch.put(TreeId(key::VOLUME_TREE), &key::quota(id), &record.encode());
    v.store.commit(&batch).expect("space");
    (v.reopened(), id)
}

/// Setting limits again where a crash ended the first time sets those of the same quota, and in a
/// copy those of another.
#[test]
fn limits_that_are_set_again_before_anything_is_charged_are_of_the_same_quota() {
    for copied in [false, true] {
        let v = volume();
        let root = Caller::root();
        let dir = v.dir(ROOT, "d").node;
        v.file(dir, "f");
        let (fs, id) = begun(&v, dir);
        let limits = QuotaLimits { inodes: Some(9), bytes: None };
        if copied {
            let clone = fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
            fs.quota_set(&root, clone, limits).expect("a quota of its own");
            let quota = fs.quota_get(clone).unwrap().expect("it has one");
            assert!(quota.id != id && quota.directory == clone, "{quota:?}");
        }
        fs.quota_set(&root, dir, limits).expect("the limits of the first");
        let quota = fs.quota_get(dir).unwrap().expect("it has one");
        assert_eq!((quota.id, quota.inodes, quota.limits), (id, 2, limits));
        assert_eq!(fs.quota_list(&root).unwrap().len(), 1 + usize::from(copied));
        assert_eq!(fs.quota_check().expect("a count"), []);
    }
}

/// Its directory is removed, or all of its subvolume, before it was reached.
#[test]
fn an_unfinished_quota_ends_when_its_directory_is_removed() {
    for sub in [false, true] {
        let v = volume();
        let root = Caller::root();
        let dir = if sub {
            v.fs.subvolume_create(&root, ROOT, b"d", 0o755).unwrap().node
        } else {
            v.dir(ROOT, "d").node
        };
        v.file(dir, "f");
        v.fs.forget(dir, 1);
        let (fs, _) = begun(&v, dir);
        fs.rmr(&root, ROOT, b"d").expect("it goes");
        background(&fs);
        assert_eq!(fs.quota_check().expect("a count"), []);
        assert_eq!(fs.quota_list(&root).expect("a list"), []);
        let other = fs.mkdir(&root, ROOT, b"other", 0o755).unwrap().node;
        set(&fs, other, Some(2), None);
        assert_eq!(used(&fs, other), Some((1, 0)), "and others continue");
    }
}

/// A thread that holds a count up does not see charges from before it.
#[test]
fn a_cancelled_count_leaves_nothing_behind() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = home(&v, &ada, ROOT, "d");
    for n in 0..4200 {
        let file = v.file_as(&ada, dir, &format!("f{n}"), 0o644).unwrap().node;
        v.fs.forget(file, 1);
    }
    let limits = QuotaLimits { inodes: Some(10_000), bytes: None };
    let made = |name: &str| {
        let file = v.file_as(&ada, dir, name, 0o644).expect("beside the count").node;
        v.fs.write(&ada, file, 0, &[1; 10]).unwrap();
        v.fs.forget(file, 1);
    };
    for round in 0..2 {
        let ended = v.fs.owner_quota_set_with_progress(&root, ADA, limits.into(), &mut |_, _| {
            made(&format!("beside{round}"));
            ControlFlow::Break(())
        });
        refused(ended, &FsError::Interrupted);
        assert_eq!(v.fs.owner_quota_list(&root).expect("a list"), [], "nothing is counted");
        assert_eq!(v.reopened().owner_quota_list(&root).expect("a list"), []);
    }
    limit(&v.fs, ADA, Some(10_000), None);
    assert_eq!(used_by(&v.fs, ADA), (4203, 20));
    check(&v);
}

/// A clone that is removed while it is counted is charged to no one afterwards.
#[test]
fn a_clone_removed_during_its_count_is_not_charged() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = home(&v, &ada, ROOT, "d");
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    for n in 0..4200 {
        let file = v.file_as(&ada, clone, &format!("f{n}"), 0o644).unwrap().node;
        v.fs.forget(file, 1);
    }
    v.fs.forget(clone, 1);
    let limits = QuotaLimits { inodes: Some(10_000), bytes: None };
    let mut gone = false;
    v.fs.owner_quota_set_with_progress(&root, ADA, limits.into(), &mut |_, _| {
        if !gone {
            v.fs.rmr(&root, ROOT, b"clone").expect("it goes");
            background(&v.fs);
            gone = true;
        }
        ControlFlow::Continue(())
    })
    .expect("counted");
    assert!(gone);
    assert_eq!(used_by(&v.fs, ADA), (1, 0));
    check(&v);
}

/// Root may do everything to what is a user's whose limits are reached.
#[test]
fn limits_of_users_and_groups_do_not_apply_to_root() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    v.fs.trash_set(&root, ROOT, Some(86_400)).expect("a trash");
    let dir = home(&v, &ada, ROOT, "d");
    let below = home(&v, &ada, dir, "below");
    let [one, two, lost] = [(dir, "one"), (dir, "two"), (below, "lost")].map(|(dir, name)| {
        let file = v.file_as(&ada, dir, name, 0o666).unwrap().node;
        v.fs.write(&ada, file, 0, &[1; 5000]).unwrap();
        file
    });
    let unnamed = v.fs.tmpfile(&root, dir, 0o666).unwrap().node;
    v.fs.unlink(&ada, below, b"lost").unwrap();
    v.fs.forget(lost, 1);
    v.fs.rmdir(&ada, dir, b"below").unwrap();
    for owner in [ADA, Owner::Group(7), Owner::User(0), Owner::Group(0)] {
        limit(&v.fs, owner, Some(1), Some(1));
    }
    refused(v.fs.mkdir(&ada, dir, b"x", 0o755), &FsError::QuotaExceeded);
    refused(v.fs.write(&ada, one, 5000, b"x"), &FsError::QuotaExceeded);
    v.fs.mkdir(&root, dir, b"made", 0o755).expect("mkdir");
    v.fs.symlink(&root, dir, b"symlink", b"target").expect("symlink");
    v.fs.link(&root, unnamed, dir, b"named").expect("link");
    v.fs.write(&root, one, 5000, &[2; 5000]).expect("write");
    v.fs.copy_range(&root, (one, 0), (two, 8192), 8192).expect("copy_range");
    v.fs.fallocate(&root, two, (0, 1 << 20), Allocate::Zero).expect("fallocate");
    v.fs.fallocate(&root, one, (0, 1 << 20), Allocate::Grow).expect("fallocate");
    chown(&v, one, 0, 0);
    chown(&v, one, 7, 7);
    chown(&v, v.find(dir, "made").unwrap().node, 7, 7);
    v.fs.subvolume_create(&root, dir, b"sub", 0o755).expect("subvolume");
    let options = fs::RestoreOptions { at: None, since: None };
    let path: Vec<Vec<u8>> = vec![b"d".to_vec(), b"below".to_vec()];
    v.fs.restore(&root, (ROOT, &path), None, &options).expect("restore");
    check(&v);
}

/// A limit that is passed keeps only that from growing which it limits.
#[test]
fn an_exceeded_limit_stops_only_what_it_limits() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = home(&v, &ada, ROOT, "d");
    let file = v.file_as(&ada, dir, "f", 0o666).unwrap().node;
    v.fs.write(&ada, file, 0, &[1; 100]).unwrap();
    let limits = [(Some(1), None), (None, Some(1))];
    for (files, bytes) in limits {
        set(&v.fs, dir, files, bytes);
        limit(&v.fs, ADA, files, bytes);
        let name = format!("g{}", u8::from(files.is_some()));
        let made = v.file_as(&ada, dir, &name, 0o666).map(drop);
        let written = v.fs.write(&ada, file, 0, &[1; 200]).map(drop);
        if files.is_some() {
            refused(made, &FsError::QuotaExceeded);
            written.expect("bytes are not limited");
        } else {
            made.expect("files are not limited");
            written.expect("nothing grows");
            let written = v.fs.write(&ada, file, 0, &[1; 201]).map(drop);
            refused(written, &FsError::QuotaExceeded);
        }
    }
    v.fs.setattr(&root, file, &SetAttr { size: Some(150), ..SetAttr::default() }).expect("less");
    assert_eq!(used(&v.fs, dir), Some((3, 150)));
    check(&v);
}

/// A quota that is set around another leaves that one alone, with the files that both have.
#[test]
fn a_quota_that_is_set_around_another_leaves_it_alone() {
    let v = volume();
    let root = Caller::root();
    let outer = v.dir(ROOT, "outer").node;
    let inner = v.dir(outer, "inner").node;
    let deeper = v.dir(inner, "deeper").node;
    let both = v.file(inner, "both").node;
    v.write(both, 0, &[1; 6000]);
    v.fs.link(&root, both, outer, b"both").expect("no quota holds");
    v.write(v.file(deeper, "large").node, 0, &[1; 5000]);
    v.write(v.file(deeper, "small").node, 0, b"few");
    v.write(v.file(outer, "own").node, 0, b"mine");
    set(&v.fs, inner, None, None);
    assert_eq!(used(&v.fs, inner), Some((5, 11_003 + NAME_BYTES)));
    set(&v.fs, outer, None, None);
    assert_eq!(used(&v.fs, inner), Some((5, 11_003 + NAME_BYTES)), "as before");
    assert_eq!(used(&v.fs, outer), Some((2, 4)), "itself and one file");
    assert_eq!(v.fs.quota_get(both).unwrap().unwrap().directory, inner);
    refused(
        v.fs.rename(&root, (deeper, b"small"), (outer, b"s"), RenameMode::NoReplace),
        &FsError::CrossSubvolume(""),
    );
    check(&v);
}
