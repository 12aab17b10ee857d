//! Trash together with quotas, full disks and concurrent users. What it creates is charged to no
//! one. An hour is deleted only for lack of space, and no name is lost.

use std::sync::atomic::{AtomicBool, Ordering};

use fs::{Engine, FileSystem, NewNode, QuotaLimits, RenameMode, RestoreOptions};
use inode::{Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr};
use store::Durability;
use testing::{SetAtEnd, SimDevice};

use crate::owner_quota::{limit, used};
use crate::quota::set;
use crate::script::options;
use crate::subject::{Base, FsSubject};
use crate::support::{ROOT, Volume, refused, user, volume};
use crate::trash::listed;
use crate::trash_hostile::{chmod, lose, path};
use fs::Owner;

const DAY: u64 = 86_400;
const OPTIONS: RestoreOptions = RestoreOptions { at: None, since: None };

fn on(v: &Volume, dir: NodeId) {
    v.fs.trash_set(&Caller::root(), dir, Some(DAY)).expect("a trash");
}

/// The first batch of the trash of a directory.
fn batch(v: &Volume, home: NodeId) -> NodeId {
    let trash = v.find(home, ".trash").expect("there is a trash").node;
    let first = v.sorted(trash).into_iter().next().expect("something was removed");
    v.find(trash, &first).expect("it is listed").node
}

#[expect(clippy::print_stdout, reason = "prints which case failed")]
fn take_space(engine: Engine, beside: bool) {
    println!("{engine:?}, others at it: {beside}");
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    fs.trash_set(&root, NodeId::ROOT, Some(30 * DAY)).expect("a trash");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let bytes = vec![7; 2 << 20];
    for hour in 0..6 {
        let name = format!("f{hour}").into_bytes();
        let file = fs.mknod(&root, NodeId::ROOT, &name, &new).expect("there is space").node;
        fs.write(&root, file, 0, &bytes).expect("there is space");
        fs.forget(file, 1);
        fs.unlink(&root, NodeId::ROOT, &name).expect("it goes");
        device::Clock::sleep(subject.clock(), std::time::Duration::from_secs(3600));
    }
    fs.sync().expect("it is written");
    subject.background(1000).expect("background work");
    device.set_capacity(Some(device.used_bytes() + (1 << 20)));
    let (done, file) = (AtomicBool::new(false), fs.mknod(&root, NodeId::ROOT, b"new", &new));
    let file = file.expect("there is space for a name").node;
    device::scope(|scope| {
        if beside {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        drop(fs.background_step(1));
                    }
                });
            }
        }
        let _end = SetAtEnd(&done);
        fs.write(&root, file, 0, &bytes[..1 << 20]).expect("an hour makes space");
    });
    let left = listed(fs, NodeId::ROOT);
    assert!(left.len() >= 4, "of six hours {left:?} are left");
}

#[test]
fn a_write_without_space_purges_only_the_oldest_hours() {
    for beside in [false, true] {
        take_space(Engine::Btree, beside);
        take_space(Engine::Lsm, beside);
    }
}

#[test]
fn a_tree_restored_over_its_empty_directory_is_charged_once() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT);
    let a = v.dir(ROOT, "a").node;
    set(&v.fs, a, Some(10), None);
    limit(&v.fs, Owner::User(7), Some(10), None);
    let b = v.dir(a, "b").node;
    v.fs.setxattr(&root, b, b"user.x", b"of the live one", fs::SetXattr::Any).expect("set");
    lose(&v, &root, b, "f");
    let from = v.find(batch(&v, ROOT), "a").expect("its way").node;
    let before = v.fs.quota_get(a).unwrap().map(|quota| quota.inodes);
    v.fs.rename(&root, (from, b"b"), (a, b"b"), RenameMode::Replace).expect("it is empty");
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    // The file came back with it.
    assert_eq!(v.fs.quota_get(a).unwrap().map(|quota| quota.inodes), before);
    assert_eq!(v.names(v.find(a, "b").expect("it is back").node), ["f"]);
    v.fs.forget(b, 1);
    let report = v.fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let report = report.expect("it reads");
    assert!(report.is_clean(), "{:?}", report.problems);
}

#[test]
fn users_with_a_limited_group_cannot_snapshot_through_a_mount() {
    let v = volume();
    let bob = Caller {
        uid: 7,
        gid: 100,
        groups: vec![200],
        umask: 0,
        pid: 0,
        enforce: Enforce::Here,
        ends: Ends::NONE,
    };
    let dir = v.fs.mkdir(&bob, ROOT, b"p", 0o755).expect("made").node;
    let group = SetAttr { gid: Some(200), ..SetAttr::default() };
    v.fs.setattr(&bob, dir, &group).expect("bob's group");
    limit(&v.fs, Owner::Group(200), None, Some(1 << 20));
    // What the kernel reports of the caller.
    let reported = Caller { groups: Vec::new(), enforce: Enforce::Kernel, ..bob };
    let taken = v.fs.snapshot_create(&reported, dir, b"s").map(drop);
    refused(taken, &FsError::NotPermitted(""));
}

#[test]
fn removals_by_others_charge_nobody_for_parent_directories() {
    let v = volume();
    on(&v, ROOT);
    let (ada, bob) = (user(7), user(8));
    let home = v.fs.mkdir(&ada, ROOT, b"ada", 0o755).expect("made").node;
    let dir = v.fs.mkdir(&ada, home, b"pub", 0o777).expect("made").node;
    limit(&v.fs, Owner::User(7), Some(5), None);
    let before = used(&v.fs, Owner::User(7));
    for _ in 0..20 {
        lose(&v, &bob, dir, "x");
    }
    assert_eq!(used(&v.fs, Owner::User(7)), before);
    let file = v.file_as(&ada, dir, "hers", 0o644).expect("she has space").node;
    v.fs.forget(file, 1);
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    // Nor does a directory that goes, or comes back, count twice.
    v.fs.unlink(&ada, dir, b"hers").expect("removed");
    v.fs.forget(dir, 1);
    let with = used(&v.fs, Owner::User(7));
    v.fs.rmdir(&ada, home, b"pub").expect("it is empty");
    assert_eq!(used(&v.fs, Owner::User(7)), with);
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    v.fs.restore(&ada, (home, &path("pub")), None, &OPTIONS).expect("it comes back");
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    while v.fs.background_step(64).expect("background work").more {}
    v.fs.trash_empty(&Caller::root(), ROOT).expect("emptied");
    while v.fs.background_step(64).expect("background work").more {}
    assert_eq!(v.fs.quota_check().expect("a count"), []);
}

#[test]
fn a_quota_set_below_a_trash_keeps_it() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT);
    let a = v.dir(ROOT, "a").node;
    lose(&v, &root, a, "f1");
    set(&v.fs, a, Some(100), None);
    let t = v.dir(a, "t").node;
    v.fs.forget(t, 1);
    v.fs.rmr(&root, a, b"t").expect("it goes as before");
    lose(&v, &root, a, "f2");
    assert_eq!(listed(&v.fs, a).len(), 3);
    for name in ["a/t", "a/f2", "a/f1"] {
        v.fs.restore(&root, (ROOT, &path(name)), None, &OPTIONS)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
    }
    assert_eq!(v.sorted(a), ["f1", "f2", "t"]);
    assert_eq!(v.fs.quota_get(a).unwrap().map(|quota| quota.inodes), Some(4));
    assert_eq!(v.fs.quota_check().expect("a count"), []);
}

#[test]
fn moves_out_of_the_trash_are_charged() {
    let v = volume();
    let root = Caller::root();
    on(&v, ROOT);
    let q = v.dir(ROOT, "q").node;
    set(&v.fs, q, Some(30), None);
    let mut at = q;
    for name in ["1", "2", "3", "4"] {
        at = v.dir(at, name).node;
    }
    lose(&v, &root, at, "f");
    let from = v.find(batch(&v, ROOT), "q").expect("its way").node;
    let moved = v.fs.rename(&root, (from, b"1"), (q, b"x"), RenameMode::NoReplace);
    refused(moved, &FsError::CrossSubvolume(""));
    let to = Some((q, &b"x"[..]));
    v.fs.restore(&root, (ROOT, &path("q/1")), to, &OPTIONS).expect("restored");
    assert!(v.fs.resolve(&root, b"/q/x/2/3/4/f", fs::Follow::No).is_ok());
    // 5, the file, and 4 rebuilt.
    assert_eq!(v.fs.quota_get(q).unwrap().map(|quota| quota.inodes), Some(10));
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let limits = QuotaLimits { inodes: Some(10), bytes: None };
    v.fs.quota_set(&root, q, limits).expect("set");
    refused(v.file_as(&root, q, "more", 0o644), &FsError::QuotaExceeded);
}

#[test]
fn an_existing_trash_directory_is_reused() {
    let v = volume();
    let (ada, bob) = (user(7), user(8));
    let home = v.dir(ROOT, "shared").node;
    chmod(&v, home, 0o1777);
    let planted = v.fs.mkdir(&bob, home, b".trash", 0o700).expect("there is no trash yet");
    let bobs = v.fs.mkdir(&bob, ROOT, b"bobs", 0o700).expect("made").node;
    on(&v, home);
    let trash = v.find(home, ".trash").expect("it is there");
    assert_eq!(trash.node, planted.node);
    assert_eq!((trash.attr.uid, trash.attr.mode), (0, 0o1777), "as the directory that has it");
    lose(&v, &ada, home, "f");
    let hour = v.names(trash.node).remove(0);
    let moved = v.fs.rename(&bob, (trash.node, hour.as_bytes()), (bobs, b"x"), RenameMode::Replace);
    refused(moved, &FsError::NotPermitted(""));
    // Also where the directory is closed later.
    chmod(&v, home, 0o700);
    lose(&v, &Caller::root(), home, "g");
    assert_eq!(v.find(home, ".trash").expect("it is there").attr.mode, 0o700);
}

#[test]
fn a_name_that_is_removed_while_its_hour_is_purged_is_removed() {
    let v = volume();
    on(&v, ROOT);
    let done = AtomicBool::new(false);
    device::scope(|scope| {
        let workers: Vec<_> = (0..2)
            .map(|thread| {
                let v = &v;
                scope.spawn(move || {
                    let dir = v.dir(ROOT, &format!("d{thread}")).node;
                    let sub = v.dir(dir, "sub").node;
                    for n in 0..500 {
                        lose(v, &Caller::root(), sub, &format!("f{n}"));
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                v.fs.trash_empty(&Caller::root(), ROOT).expect("emptied");
                drop(v.fs.background_step(16));
            }
        });
        let ended: Vec<_> = workers.into_iter().map(device::ScopedThread::join).collect();
        done.store(true, Ordering::Release);
        assert!(ended.iter().all(Result::is_ok), "a removal failed");
    });
}

#[test]
fn restoring_creates_no_directories_of_other_users() {
    let v = volume();
    on(&v, ROOT);
    let (ada, bob) = (user(7), user(8));
    let dir = v.dir(ROOT, "pub").node;
    chmod(&v, dir, 0o777);
    let top = v.fs.mkdir(&ada, dir, b"top", 0o777).expect("made").node;
    chmod(&v, top, 0o2777);
    lose(&v, &bob, top, "bobs");
    v.fs.forget(top, 1);
    v.fs.rmdir(&ada, dir, b"top").expect("it is empty");
    v.fs.restore(&bob, (ROOT, &path("pub/top/bobs")), None, &OPTIONS).expect("bob owns it");
    let made = v.find(dir, "top").expect("it was made").attr;
    assert_eq!((made.uid, made.gid, made.mode), (8, 8, 0o777));
}
