//! Quotas of users and groups: which owner is charged what, and which is refused.

use format::key;
use format::owner_quota::OwnerLimits;
use format::quota::{Charged, NAME_BYTES};
use fs::{FileSystem, Fs, FsResult, NewNode, Owner, QuotaLimits, QuotaOf};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use store::{Batch, Commit, TreeId};

use crate::support::{ROOT, Volume, refused, user, volume};

pub(crate) fn limit(fs: &Fs, owner: Owner, files: Option<u64>, bytes: Option<u64>) {
    let limits = QuotaLimits { inodes: files, bytes };
    fs.owner_quota_set(&Caller::root(), owner, limits).expect("a limit is set");
}

/// Inodes and bytes that an owner is charged.
pub(crate) fn used(fs: &Fs, owner: Owner) -> (u64, u64) {
    let quota = fs.owner_quota_get(&Caller::root(), owner).expect("root asks");
    quota.map_or((0, 0), |quota| (quota.inodes, quota.bytes))
}

fn chown(
    v: &Volume,
    caller: &Caller,
    node: NodeId,
    owned: (Option<u32>, Option<u32>),
) -> FsResult<()> {
    let (uid, gid) = owned;
    v.fs.setattr(caller, node, &SetAttr { uid, gid, ..SetAttr::default() }).map(drop)
}

fn background(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

fn check(v: &Volume) {
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let here = v.fs.owner_quota_list(&Caller::root()).expect("a list");
    assert_eq!(v.reopened().owner_quota_list(&Caller::root()).expect("a list"), here);
}

const ADA: Owner = Owner::User(7);
const STAFF: Owner = Owner::Group(7);

#[test]
fn existing_files_are_counted_and_limits_are_exact() {
    let v = volume();
    let ada = user(7);
    let before = v.file_as(&ada, ROOT, "before", 0o644).unwrap().node;
    v.fs.write(&ada, before, 0, &[1; 5000]).unwrap();
    assert_eq!(v.fs.owner_quota_list(&Caller::root()).unwrap(), [], "nothing is counted yet");
    limit(&v.fs, ADA, Some(3), Some(10_000));
    assert_eq!(used(&v.fs, ADA), (1, 5000));
    assert_eq!(used(&v.fs, Owner::User(0)), (1, 0), "the root directory is root's");
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o755).unwrap().node;
    v.fs.symlink(&ada, dir, b"l", b"target").unwrap();
    refused(v.file_as(&ada, dir, "f", 0o644), &FsError::QuotaExceeded);
    refused(v.fs.mkdir(&ada, dir, b"e", 0o755), &FsError::QuotaExceeded);
    v.fs.link(&ada, before, dir, b"again").expect("a name is no file");
    assert_eq!(used(&v.fs, ADA), (3, 5006 + NAME_BYTES));
    v.fs.write(&ada, before, 5000, &[1; 4994 - NAME_BYTES as usize]).unwrap();
    refused(v.fs.write(&ada, before, 9994 - NAME_BYTES, b"x"), &FsError::QuotaExceeded);
    v.fs.unlink(&ada, dir, b"again").unwrap();
    v.fs.write(&ada, before, 9994 - NAME_BYTES, &[1; NAME_BYTES as usize]).unwrap();
    refused(v.fs.link(&ada, before, dir, b"again"), &FsError::QuotaExceeded);
    refused(v.fs.write(&ada, before, 9994, b"x"), &FsError::QuotaExceeded);
    v.fs.write(&ada, before, 0, &[2; 9994]).expect("what is overwritten makes space for itself");
    assert_eq!(used(&v.fs, ADA), (3, 10_000));
    assert_eq!(used(&v.fs, STAFF), (3, 10_000));
    v.file_as(&user(8), ROOT, "of another", 0o644).expect("the limit is of one user");
    refused(v.fs.rmdir(&ada, ROOT, b"d"), &FsError::NotEmpty);
    v.fs.unlink(&ada, dir, b"l").unwrap();
    assert_eq!(used(&v.fs, ADA), (2, 9994));
    limit(&v.fs, ADA, None, None);
    v.fs.write(&ada, before, 9994, &[1; 10_000]).unwrap();
    limit(&v.fs, STAFF, Some(2), None);
    refused(v.file_as(&ada, dir, "f", 0o644), &FsError::QuotaExceeded);
    check(&v);
}

#[test]
fn limits_do_not_apply_to_root_and_root_is_charged() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    limit(&v.fs, Owner::User(0), Some(1), Some(1));
    limit(&v.fs, ADA, Some(1), Some(10));
    let file = v.file_as(&ada, ROOT, "f", 0o644).unwrap().node;
    v.file(ROOT, "of root");
    v.fs.write(&root, file, 0, &[1; 100]).expect("root writes into a file of the user");
    assert_eq!(used(&v.fs, ADA), (1, 100), "who is charged for it nevertheless");
    refused(v.fs.write(&ada, file, 100, b"x"), &FsError::QuotaExceeded);
    v.fs.write(&ada, file, 0, b"x").expect("nothing grows");
    chown(&v, &root, v.find(ROOT, "of root").unwrap().node, (Some(7), None)).expect("root gives");
    assert_eq!((used(&v.fs, ADA).0, used(&v.fs, Owner::User(0)).0), (2, 1));
    check(&v);
}

#[test]
fn a_change_of_group_moves_the_charge_or_is_refused() {
    let v = volume();
    let ada = Caller { groups: vec![20], ..user(7) };
    let file = v.file_as(&ada, ROOT, "f", 0o644).unwrap().node;
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o755).unwrap().node;
    v.fs.write(&ada, file, 0, &[1; 6000]).unwrap();
    limit(&v.fs, Owner::Group(20), Some(1), Some(5999));
    refused(chown(&v, &ada, file, (None, Some(20))), &FsError::QuotaExceeded);
    assert_eq!(v.find(ROOT, "f").unwrap().attr.gid, 7, "and nothing changed");
    limit(&v.fs, Owner::Group(20), Some(1), Some(6000));
    chown(&v, &ada, file, (None, Some(20))).unwrap();
    assert_eq!(used(&v.fs, STAFF), (1, 0));
    assert_eq!(used(&v.fs, Owner::Group(20)), (1, 6000));
    assert_eq!(used(&v.fs, ADA), (2, 6000), "the user stays");
    refused(chown(&v, &ada, dir, (None, Some(20))), &FsError::QuotaExceeded);
    let both = SetAttr { gid: Some(7), size: Some(100), ..SetAttr::default() };
    v.fs.setattr(&ada, file, &both).expect("length and group at once");
    assert_eq!((used(&v.fs, STAFF), used(&v.fs, Owner::Group(20))), ((2, 100), (0, 0)));
    check(&v);
}

#[test]
fn inherited_files_charge_nobody_and_credit_only_charged_users() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o777).unwrap().node;
    for name in ["a", "b", "c"] {
        let file = v.file_as(&ada, dir, name, 0o666).unwrap().node;
        v.fs.write(&ada, file, 0, &[1; 10_000]).unwrap();
        v.fs.forget(file, 1);
    }
    limit(&v.fs, ADA, Some(10), Some(100_000));
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    v.fs.unlink(&ada, clone, b"a").expect("inherited");
    background(&v.fs);
    assert_eq!(used(&v.fs, ADA), (4, 30_000));
    let b = v.find(clone, "b").unwrap().node;
    chown(&v, &root, b, (Some(8), Some(8))).unwrap();
    assert_eq!(used(&v.fs, Owner::User(8)), (0, 0));
    v.fs.write(&root, b, 0, b"changed").unwrap();
    assert_eq!(used(&v.fs, Owner::User(8)), (1, 10_000), "changed contents are the clone's own");
    let new = v.file_as(&ada, clone, "new", 0o644).unwrap().node;
    assert_eq!(used(&v.fs, ADA), (5, 30_000));
    check(&v);
    v.fs.forget(b, 1);
    v.fs.forget(new, 1);
    v.fs.rmr(&root, ROOT, b"clone").unwrap();
    background(&v.fs);
    assert_eq!(used(&v.fs, Owner::User(8)), (0, 0));
    assert_eq!(used(&v.fs, ADA), (4, 30_000));
    v.fs.snapshot_create(&root, dir, b"s").unwrap();
    v.fs.rollback(&root, dir, b"s").unwrap();
    v.fs.forget(dir, 1);
    background(&v.fs);
    assert_eq!(used(&v.fs, ADA), (0, 0), "all is of the snapshot now");
    check(&v);
}

#[test]
fn a_count_beside_writers_is_exact() {
    let v = volume();
    let ada = user(7);
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o777).unwrap().node;
    for n in 0..3000 {
        let file = v.file_as(&ada, dir, &format!("f{n}"), 0o644).unwrap().node;
        v.fs.write(&ada, file, 0, b"four").unwrap();
        v.fs.forget(file, 1);
    }
    let fs = &v.fs;
    device::scope(|scope| {
        for thread in 0..2 {
            let ada = &ada;
            scope.spawn(move || {
                let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
                for n in 0..1000 {
                    let name = format!("f{}", 2 * n + thread);
                    fs.unlink(ada, dir, name.as_bytes()).expect("it is there");
                    let name = format!("{thread}-{n}");
                    let made = fs.mknod(ada, dir, name.as_bytes(), &new).expect("space");
                    fs.write(ada, made.node, 0, b"xy").expect("space");
                }
            });
        }
        limit(fs, ADA, Some(1 << 20), Some(1 << 30));
    });
    background(fs);
    assert_eq!(used(fs, ADA), (3001, 1000 * 4 + 2000 * 2));
    check(&v);
}

#[test]
fn users_read_their_own_quotas_and_only_root_sets_them() {
    let v = volume();
    let limits = QuotaLimits { inodes: Some(1), bytes: None };
    refused(v.fs.owner_quota_set(&user(7), ADA, limits), &FsError::NotPermitted(""));
    refused(v.fs.owner_quota_get(&user(8), ADA), &FsError::NotPermitted(""));
    refused(v.fs.owner_quota_list(&user(7)), &FsError::NotPermitted(""));
    assert_eq!(v.fs.owner_quota_get(&user(7), ADA).unwrap(), None);
    v.fs.owner_quota_set(&Caller::root(), ADA, limits).unwrap();
    let own = v.fs.owner_quota_get(&user(7), STAFF).unwrap().expect("it is counted");
    assert_eq!((own.owner, own.inodes, own.limits), (STAFF, 0, QuotaLimits::default()));
    assert_eq!(v.fs.owner_quota_get(&user(7), ADA).unwrap().unwrap().limits, limits);
}

#[test]
fn wrong_charges_are_reported_and_the_volume_opens_with_damaged_records() {
    let v = volume();
    v.file_as(&user(7), ROOT, "f", 0o644).unwrap();
    limit(&v.fs, ADA, Some(10), None);
    let put = |key: &[u8], value: &[u8]| {
        let mut batch = Batch::new();
        batch.put(TreeId(key::VOLUME_TREE), key, value);
        v.store.commit(&batch).expect("space");
    };
    put(&key::owner_charges(1, ADA), &Charged { inodes: -3, bytes: 0 }.encode());
    let found = v.fs.quota_check().expect("a count");
    assert_eq!((found[0].of, found[0].found), (QuotaOf::Owner(ADA), (1, 0)));
    put(&key::owner_limits(STAFF), &OwnerLimits { inodes_max: 1, bytes_max: 2 }.encode()[..9]);
    put(&key::quota(99), b"short");
    let again = v.reopened();
    assert_eq!(again.quota_check().expect("a count"), found);
    let report = again.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(())).unwrap();
    let reported = |kind| report.problems.iter().filter(|problem| problem.kind == kind).count();
    assert_eq!(reported(fs::ProblemKind::Quota), 3, "{:?}", report.problems);
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    again.mknod(&user(7), ROOT, b"g", &new).expect("damage limits nobody");
}

#[test]
fn inherited_files_shrink_under_any_limit_and_stay_inherited() {
    let v = volume();
    let ada = user(7);
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o777).unwrap().node;
    let quota = QuotaLimits { inodes: Some(2), bytes: Some(20_000) };
    v.fs.quota_set(&Caller::root(), dir, quota).unwrap();
    let file = v.file_as(&ada, dir, "f", 0o666).unwrap().node;
    v.fs.write(&ada, file, 0, &vec![1; 20_000]).unwrap();
    limit(&v.fs, ADA, Some(2), Some(20_000));
    let clone = v.fs.clone_dir(&Caller::root(), dir, ROOT, b"clone").unwrap().root;
    let inherited = v.find(clone, "f").unwrap().node;
    v.fs.fallocate(&ada, inherited, (0, 8192), fs::Allocate::Punch).expect("space comes of it");
    let cut = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    v.fs.setattr(&ada, inherited, &cut(9000)).expect("and of that");
    v.fs.setattr(&ada, inherited, &cut(0)).expect("and of that");
    assert_eq!(used(&v.fs, ADA), (2, 20_000));
    assert_eq!(
        v.fs.quota_get(dir).unwrap().map(|quota| (quota.inodes, quota.bytes)),
        Some((2, 20_000))
    );
    refused(v.fs.write(&ada, inherited, 0, b"x"), &FsError::QuotaExceeded);
    check(&v);
}

#[test]
fn users_with_a_limit_cannot_make_uncharged_copies() {
    let v = volume();
    let (ada, bob, not) = (user(7), user(8), FsError::NotPermitted(""));
    let snapshot = |who: &Caller, dir, name: &[u8]| v.fs.snapshot_create(who, dir, name).map(drop);
    let clone = |who: &Caller, dir, name: &[u8]| v.fs.clone_dir(who, dir, ROOT, name).map(drop);
    let home = v.fs.mkdir(&ada, ROOT, b"home", 0o755).unwrap().node;
    let inner = v.fs.mkdir(&ada, home, b"inner", 0o755).unwrap().node;
    let quota = v.fs.mkdir(&ada, inner, b"quota", 0o755).unwrap().node;
    let deep = v.fs.mkdir(&ada, quota, b"deep", 0o755).unwrap().node;
    snapshot(&ada, home, b"before").expect("nothing is limited");
    set_limit(&v.fs, quota, Some(100));
    for dir in [home, inner, quota, deep] {
        refused(snapshot(&ada, dir, b"s"), &not);
        refused(clone(&ada, dir, b"c"), &not);
        snapshot(&Caller::root(), dir, b"of root").expect("root may");
    }
    set_limit(&v.fs, quota, None);
    snapshot(&ada, home, b"s").expect("counted, and not limited");
    limit(&v.fs, ADA, None, Some(1 << 30));
    refused(snapshot(&ada, home, b"t"), &not);
    let other = v.fs.mkdir(&bob, ROOT, b"other", 0o755).unwrap().node;
    snapshot(&bob, other, b"s").expect("the limit is of another");
    limit(&v.fs, Owner::Group(8), Some(10), None);
    refused(snapshot(&bob, other, b"t"), &not);
    let rollback = |who: &Caller, dir, name: &[u8]| v.fs.rollback(who, dir, name);
    refused(rollback(&bob, other, b"s"), &not);
    refused(rollback(&ada, home, b"before"), &not);
    rollback(&Caller::root(), other, b"s").expect("root may");
    let free = v.fs.mkdir(&user(9), ROOT, b"free", 0o755).unwrap().node;
    snapshot(&user(9), free, b"s").expect("no limit holds");
    rollback(&user(9), free, b"s").expect("no limit holds");
}

/// Each roll-back restored data that is charged to no one, and each snapshot after it held more.
#[test]
fn alternating_snapshots_and_rollbacks_exceed_no_limit() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    v.fs.mkdir(&ada, ROOT, b"home", 0o755).unwrap();
    limit(&v.fs, ADA, None, Some(1000));
    let mut held = 0;
    for day in 0..5 {
        let home = v.find(ROOT, "home").unwrap().node;
        if let Ok(made) = v.file_as(&ada, home, &format!("f{day}"), 0o644) {
            drop(v.fs.write(&ada, made.node, 0, &[1; 1000]));
            v.fs.forget(made.node, 1);
        }
        v.fs.snapshot_create(&root, home, b"s").expect("root may");
        drop(v.fs.rollback(&ada, home, b"s"));
        v.fs.snapshot_delete(&root, home, b"s").expect("root may");
        v.fs.forget(home, 1);
        background(&v.fs);
        let home = v.find(ROOT, "home").unwrap().node;
        held = v.names(home).iter().map(|name| v.find(home, name).unwrap().attr.size).sum();
    }
    assert_eq!((held, used(&v.fs, ADA).1), (1000, 1000));
    check(&v);
}

/// A name that a clone inherited, of a file that has another beside what was cloned.
#[test]
fn a_hard_link_that_was_inherited_and_changed_is_credited_with_its_last_name() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let source = v.dir(ROOT, "source").node;
    let [d, e] = ["d", "e"].map(|name| v.dir(source, name).node);
    for dir in [d, e] {
        v.fs.setattr(&root, dir, &SetAttr { mode: Some(0o777), ..SetAttr::default() }).unwrap();
    }
    let made = |name: &str| {
        let file = v.file_as(&ada, d, name, 0o666).unwrap().node;
        v.fs.write(&ada, file, 0, &[1; 10_000]).unwrap();
        file
    };
    for name in ["f", "g", "h"] {
        let file = made(name);
        v.fs.link(&ada, file, e, name.as_bytes()).unwrap();
        v.fs.forget(file, 2);
    }
    limit(&v.fs, ADA, Some(100), Some(1 << 20));
    let before = used(&v.fs, ADA);
    assert_eq!(before, (3, 30_000 + 3 * NAME_BYTES));
    let clone = v.fs.clone_dir(&root, d, ROOT, b"clone").unwrap().root;
    let quota = QuotaLimits { inodes: Some(100), bytes: None };
    v.fs.quota_set(&root, clone, quota).unwrap();
    let charged = || v.fs.quota_get(clone).unwrap().map(|quota| (quota.inodes, quota.bytes));
    let empty = charged();
    let problems = || {
        let report = v.fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
        report.expect("it reads").problems
    };
    for (name, more) in [("f", false), ("g", true)] {
        let file = v.find(clone, name).unwrap().node;
        v.fs.write(&ada, file, 0, b"changed").unwrap();
        assert_eq!(used(&v.fs, ADA), (before.0 + 1, before.1 + 10_000), "as a whole");
        if more {
            v.fs.link(&ada, file, clone, b"more").expect("made there");
            assert_eq!(used(&v.fs, ADA), (before.0 + 1, before.1 + 10_000 + NAME_BYTES));
            v.fs.unlink(&ada, clone, b"more").expect("the other is left");
            assert_eq!(used(&v.fs, ADA), (before.0 + 1, before.1 + 10_000));
        }
        v.fs.unlink(&ada, clone, name.as_bytes()).expect("its last name there");
        assert_eq!(used(&v.fs, ADA).1, before.1 + 10_000, "it is held");
        v.fs.forget(file, 2);
        background(&v.fs);
        assert_eq!(used(&v.fs, ADA), before);
        assert_eq!(charged(), empty);
        check(&v);
        assert!(problems().is_empty(), "{:?}", problems());
    }
    // One that was not changed goes, too; and the source has all of them.
    v.fs.unlink(&ada, clone, b"h").unwrap();
    background(&v.fs);
    for dir in [d, e] {
        assert_eq!(v.sorted(dir), ["f", "g", "h"]);
        let file = v.find(dir, "f").unwrap();
        assert_eq!((v.read(file.node), file.attr.nlink), (vec![1; 10_000], 2));
    }
    assert_eq!(used(&v.fs, ADA), before);
    // What is left is separated from its source, and the source goes.
    v.fs.rmr(&root, ROOT, b"source").expect("it goes");
    background(&v.fs);
    check(&v);
    assert!(problems().is_empty(), "{:?}", problems());
}

/// The way up from a hidden name is gone once for all names of an inode, and not for ever.
#[test]
fn searching_for_hidden_names_is_bounded_and_resumes() {
    for (depth, goes) in [(3000, true), (5000, false)] {
        let v = volume();
        let (root, ada) = (Caller::root(), user(7));
        let source = v.dir(ROOT, "source").node;
        let d = v.dir(source, "d").node;
        let mut deep = v.dir(source, "deep").node;
        for _ in 1..depth {
            deep = v.dir(deep, "x").node;
        }
        for dir in [d, deep] {
            let mode = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            v.fs.setattr(&root, dir, &mode).unwrap();
        }
        let file = v.file_as(&ada, d, "f", 0o666).unwrap().node;
        v.fs.write(&ada, file, 0, &[1; 10_000]).unwrap();
        for n in 0..600 {
            v.fs.link(&ada, file, deep, format!("f{n}").as_bytes()).unwrap();
        }
        v.fs.forget(file, 601);
        limit(&v.fs, ADA, Some(100), Some(1 << 20));
        let before = used(&v.fs, ADA);
        let clone = v.fs.clone_dir(&root, d, ROOT, b"clone").unwrap().root;
        let file = v.find(clone, "f").unwrap().node;
        v.fs.write(&ada, file, 0, b"changed").unwrap();
        v.fs.unlink(&ada, clone, b"f").expect("its last name there");
        v.fs.forget(file, 2);
        background(&v.fs);
        assert_eq!(used(&v.fs, ADA) == before, goes, "at depth {depth}");
    }
}

/// A clone that root put below a user's directory has a quota that begins elsewhere.
#[test]
fn users_with_a_limit_in_a_clone_cannot_copy_a_directory_around_it() {
    let v = volume();
    let (root, ada, not) = (Caller::root(), user(7), FsError::NotPermitted(""));
    let source = v.dir(ROOT, "source").node;
    let quota = v.fs.mkdir(&ada, v.dir(source, "way").node, b"no", 0o755);
    refused(quota, &FsError::AccessDenied);
    let quota = v.find(source, "way").unwrap().node;
    set_limit(&v.fs, quota, Some(100));
    let homes: Vec<NodeId> =
        [b"one", b"two"].map(|name| v.fs.mkdir(&ada, ROOT, name, 0o755).unwrap().node).to_vec();
    // The limit holds in all of it, and in a part of it.
    v.fs.clone_dir(&root, quota, homes[0], b"c").expect("root may");
    let part = v.fs.clone_dir(&root, source, homes[1], b"c").expect("root may").root;
    let snapshot = |n: usize, name: &[u8]| v.fs.snapshot_create(&ada, homes[n], name).map(drop);
    let clone = |n: usize, name: &[u8]| v.fs.clone_dir(&ada, homes[n], ROOT, name).map(drop);
    refused(snapshot(0, b"s"), &not);
    refused(clone(0, b"d"), &not);
    snapshot(1, b"s").expect("nothing is charged there");
    v.file(v.find(part, "way").unwrap().node, "charged");
    refused(snapshot(1, b"t"), &not);
    refused(clone(1, b"d"), &not);
    set_limit(&v.fs, quota, None);
    for n in 0..2 {
        clone(n, format!("d{n}").as_bytes()).expect("counted, and not limited");
    }
}

/// Of a clone itself, in which a directory is charged whose quota begins in what was cloned.
#[test]
fn users_with_a_limit_in_part_of_a_clone_cannot_copy_it() {
    let v = volume();
    let (ada, not) = (user(7), FsError::NotPermitted(""));
    let source = v.fs.mkdir(&ada, ROOT, b"source", 0o755).unwrap().node;
    let quota = v.fs.mkdir(&ada, source, b"quota", 0o755).unwrap().node;
    set_limit(&v.fs, quota, Some(100));
    let clone = v.fs.clone_dir(&Caller::root(), source, ROOT, b"c").expect("root may").root;
    let snapshot = |name: &[u8]| v.fs.snapshot_create(&ada, clone, name).map(drop);
    snapshot(b"before").expect("nothing is charged there");
    let inner = v.find(clone, "quota").unwrap().node;
    v.file_as(&ada, inner, "charged", 0o644).unwrap();
    refused(snapshot(b"s"), &not);
    set_limit(&v.fs, quota, None);
    snapshot(b"s").expect("counted, and not limited");
}

/// A quota does not prevent copies of its earlier directory.
#[test]
fn a_removed_quota_prevents_no_copy() {
    let v = volume();
    let ada = user(7);
    let home = v.fs.mkdir(&ada, ROOT, b"home", 0o755).unwrap().node;
    let quota = v.fs.mkdir(&ada, home, b"quota", 0o755).unwrap().node;
    set_limit(&v.fs, quota, Some(100));
    let snapshot = |name: &[u8]| v.fs.snapshot_create(&ada, home, name).map(drop);
    refused(snapshot(b"s"), &FsError::NotPermitted(""));
    v.fs.rmr(&Caller::root(), home, b"quota").expect("root may");
    snapshot(b"s").expect("it is to be removed in the background, and not there any more");
}

#[test]
fn a_clone_without_a_quota_is_not_moved_under_one() {
    let v = volume();
    let root = Caller::root();
    let (free, quota) = (v.dir(ROOT, "free").node, v.dir(ROOT, "quota").node);
    v.file(free, "f");
    set_limit(&v.fs, quota, Some(10));
    refused(v.fs.clone_dir(&root, free, quota, b"c"), &FsError::CrossSubvolume(""));
    v.fs.clone_dir(&root, quota, ROOT, b"c").expect("the limit goes along");
    set_limit(&v.fs, free, Some(20));
    let clone = v.fs.clone_dir(&root, free, quota, b"c").expect("one holds in it").root;
    for n in 0..18 {
        v.file(clone, &format!("n{n}"));
    }
    refused(v.file_as(&root, clone, "too many", 0o644), &FsError::QuotaExceeded);
    set_limit(&v.fs, quota, None);
    v.fs.clone_dir(&root, v.dir(ROOT, "other").node, quota, b"d").expect("no limit any more");
}

fn set_limit(fs: &Fs, dir: NodeId, files: Option<u64>) {
    let limits = QuotaLimits { inodes: files, bytes: None };
    fs.quota_set(&Caller::root(), dir, limits).expect("a quota is set");
}

#[test]
fn counting_inodes_reports_progress_and_can_be_cancelled() {
    let v = volume();
    let (root, ada) = (Caller::root(), user(7));
    let dir = v.fs.mkdir(&ada, ROOT, b"d", 0o777).unwrap().node;
    for n in 0..9000 {
        let file = v.file_as(&ada, dir, &format!("f{n}"), 0o644).unwrap().node;
        v.fs.forget(file, 1);
    }
    let limits = QuotaLimits { inodes: Some(10_000), bytes: None };
    let mut reported = Vec::new();
    let ended =
        v.fs.owner_quota_set_with_progress(&root, ADA, limits.into(), &mut |done, total| {
            reported.push((done, total));
            std::ops::ControlFlow::Break(())
        });
    refused(ended, &FsError::Interrupted);
    assert_eq!(reported, [(4096, 9002)]);
    assert_eq!(v.fs.owner_quota_get(&root, ADA).unwrap(), None, "nothing is counted");
    let mut reported = Vec::new();
    let mut proceed = |done, total| {
        reported.push((done, total));
        std::ops::ControlFlow::Continue(())
    };
    v.fs.owner_quota_set_with_progress(&root, ADA, limits.into(), &mut proceed).expect("counted");
    v.fs.quota_check_with_progress(&mut proceed).expect("counted");
    let whole = [(4096, 9002), (8192, 9002), (9002, 9002)];
    assert_eq!(reported, [whole, whole].concat());
    assert_eq!(used(&v.fs, ADA), (9001, 0));
    // A directory: cancelling returns to the caller, and the background continues.
    let mut reported = 0;
    let ended = v.fs.quota_set_with_progress(&root, dir, limits.into(), &mut |done, _| {
        reported = done;
        std::ops::ControlFlow::Break(())
    });
    if reported > 0 {
        refused(ended, &FsError::Interrupted);
    }
    background(&v.fs);
    assert_eq!(v.fs.quota_get(dir).unwrap().map(|quota| quota.inodes), Some(9001));
    check(&v);
}

fn put(v: &Volume, key: &[u8], value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(TreeId(key::VOLUME_TREE), key, value);
    v.store.commit(&batch).expect("space");
}

#[test]
fn a_damaged_quota_of_a_directory_that_was_rolled_back_is_not_forgotten() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    v.file(dir, "f");
    set_limit(&v.fs, dir, Some(100));
    v.fs.snapshot_create(&root, dir, b"s").unwrap();
    v.fs.rollback(&root, dir, b"s").unwrap();
    v.fs.forget(dir, 1);
    background(&v.fs);
    let dir = v.find(ROOT, "d").unwrap().node;
    let id = v.fs.quota_get(dir).unwrap().expect("it came back with its quota").id;
    put(&v, &key::quota(id), b"short");
    let report = v.reopened().check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let problems = report.expect("it reads").problems;
    let remedies: Vec<_> = problems.iter().map(fs::Problem::remedy).collect();
    let rewrites = |remedy: &Option<String>| {
        remedy.as_ref().is_some_and(|it| it.contains("rewrite the record"))
    };
    assert!(remedies.iter().any(rewrites), "{problems:?} {remedies:?}");
}

#[test]
fn impossible_charges_stop_nothing() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    limit(&v.fs, ADA, Some(100), None);
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    v.fs.forget(clone, 1);
    let least = Charged { inodes: i64::MIN, bytes: i64::MIN };
    put(&v, &key::owner_charges(clone.slot().0, ADA), &least.encode());
    let again = v.reopened();
    again.rmr(&root, ROOT, b"clone").expect("it goes");
    background(&again);
    assert_eq!(again.status().expect("it answers").detached, 0);
}

#[test]
fn users_with_a_limited_group_cannot_copy_others_files() {
    let v = volume();
    let bob = Caller { gid: 50, ..user(8) };
    let dir = v.fs.mkdir(&bob, ROOT, b"d", 0o755).unwrap().node;
    chown(&v, &Caller::root(), dir, (None, Some(60))).unwrap();
    v.fs.snapshot_create(&bob, dir, b"s").expect("no limit holds");
    limit(&v.fs, Owner::Group(50), Some(100), None);
    let taken = v.fs.snapshot_create(&bob, dir, b"t").map(drop);
    refused(taken, &FsError::NotPermitted(""));
}
