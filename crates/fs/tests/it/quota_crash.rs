//! Quotas when power is cut, the disk is full, or a record is wrong: the charges equal the
//! contents.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::key;
use format::quota::Charged;
use fs::{Engine, FileSystem, Fs, NewNode, Owner, ProblemKind, QuotaLimits, QuotaOf};
use inode::{Caller, FsError, Kind, NodeId};
use store::{Batch, Durability, TreeId};
use testing::{CrashPolicy, SimDevice};

use crate::check::volume::falsify;
use crate::check::{check, repair, reported};
use crate::owner_quota::limit;
use crate::quota::{Work, set};
use crate::script::{options, scale};
use crate::subject::{Base, FsSubject};

on_each_engine!(
    a_wrong_charge_is_repaired_and_the_limit_holds_again,
    limits_that_do_not_decode_are_reported_and_the_quota_begins_again_without,
);

/// Both engines in turn.
fn base(seed: u64) -> Base {
    Base::Engine(Engine::ALL[(seed % 2) as usize])
}

fn open(disk: &SimDevice, place: &str) -> FsSubject {
    let options = options(Durability::Async);
    // The engine is in the header.
    let base = Base::Engine(Engine::default());
    FsSubject::open(disk, &options, &base).unwrap_or_else(|error| panic!("{place}: {error}"))
}

/// All quotas: of what, files, bytes.
fn charged(fs: &Fs) -> Vec<(QuotaOf, u64, u64)> {
    let quotas = fs.quota_list(&Caller::root()).expect("a list").into_iter();
    let quotas = quotas.map(|quota| (QuotaOf::Directory(quota.id), quota.inodes, quota.bytes));
    let owners = fs.owner_quota_list(&Caller::root()).expect("a list").into_iter();
    quotas
        .chain(owners.map(|quota| (QuotaOf::Owner(quota.owner), quota.inodes, quota.bytes)))
        .collect()
}

/// The records match the inodes, as they are and when background work is done.
fn check_left(disk: &SimDevice, place: &str) {
    let subject = open(disk, place);
    assert_eq!(subject.fs().quota_check().expect("a count"), [], "{place}");
    subject.background(1000).expect("background work");
    assert_eq!(subject.fs().quota_check().expect("a count"), [], "{place}, after background work");
    let here = charged(subject.fs());
    subject.fs().close().expect("it closes");
    assert_eq!(charged(open(disk, place).fs()), here, "{place}");
}

#[test]
fn a_crash_at_every_write_and_sync_leaves_charges_in_step_with_the_files() {
    let points = Arc::new(AtomicU64::new(0));
    for seed in 0..scale(6, 200) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let subject = FsSubject::format(&device, &options(Durability::Async), &base(seed));
        let fs = subject.fs();
        let mut work = Work::new(fs, seed);
        let counted = Arc::clone(&points);
        device.watch(move |disk, op| {
            counted.fetch_add(1, Ordering::SeqCst);
            for policy in CrashPolicy::ALL {
                let place = format!("seed {seed}, before operation {op}, {policy:?}");
                check_left(&disk.after_crash(policy, seed + op), &place);
            }
        });
        for step in 0..60 {
            work.step(fs).ok();
            work.between(fs).expect("background work");
            if step % 10 == 9 {
                fs.sync().expect("it is written");
            }
        }
        device.unwatch();
    }
    let points = points.load(Ordering::SeqCst);
    println!("{points} crash points, {} ways each", CrashPolicy::ALL.len());
    assert!(points > 100, "the script is too short to prove anything: {points}");
}

#[test]
fn writes_without_space_charge_nobody() {
    let mut refused = 0;
    for seed in 0..scale(10, 300) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let subject = FsSubject::format(&device, &options(Durability::Async), &base(seed));
        let fs = subject.fs();
        let mut work = Work::new(fs, seed);
        for _ in 0..20 {
            work.step(fs).ok();
        }
        device.set_capacity(Some(device.used_bytes() + seed % 20 * 4096));
        for _ in 0..100 {
            refused += u32::from(matches!(work.step(fs), Err(FsError::NoSpace)));
            match work.between(fs) {
                Ok(()) | Err(FsError::NoSpace) => {}
                Err(error) => panic!("seed {seed}: {error}"),
            }
        }
        device.set_capacity(None);
        let here = charged(fs);
        assert_eq!(fs.quota_check().expect("a count"), [], "seed {seed}");
        fs.close().expect("it closes");
        let place = format!("seed {seed}");
        let again = open(&device, &place);
        assert_eq!(charged(again.fs()), here, "{place}: memory matches the records");
    }
    assert!(refused > 20, "the disk was hardly ever full: {refused}");
}

fn a_wrong_charge_is_repaired_and_the_limit_holds_again(engine: Engine) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("a new directory").node;
    set(fs, dir, Some(3), None);
    let make = |fs: &Fs, dir, name: &[u8]| {
        fs.mknod(&root, dir, name, &NewNode { kind: Kind::File, mode: 0o644, rdev: 0 })
    };
    make(fs, dir, b"f").expect("it is within the limit");
    let right = charged(fs);
    fs.close().expect("it closes");
    drop(subject);
    let QuotaOf::Directory(id) = right[0].0 else { panic!("a quota of a directory") };
    let charges = key::quota_charges(id, dir.slot().0);
    for wrong in [Charged { inodes: 7, bytes: 9 }, Charged { inodes: -1, bytes: 0 }] {
        falsify(&device, |store| {
            let mut batch = Batch::new();
            batch.put(TreeId(key::VOLUME_TREE), &charges, &wrong.encode());
            store.commit(&batch).expect("there is space");
        });
        let report = check(&device);
        assert_eq!(report.problems.len(), 1, "{}", reported(&report));
        assert_eq!(report.problems[0].kind, ProblemKind::Quota);
        let repaired = repair(&device);
        assert!(repaired.after.is_clean(), "{}", reported(&repaired.after));
        let again = open(&device, "repaired");
        assert_eq!(charged(again.fs()), right);
        again.fs().close().expect("it closes");
    }
    let again = open(&device, "repaired");
    make(again.fs(), dir, b"g").expect("it is within the limit");
    let refused = make(again.fs(), dir, b"h");
    assert!(matches!(refused, Err(FsError::QuotaExceeded)));
}

fn limits_that_do_not_decode_are_reported_and_the_quota_begins_again_without(engine: Engine) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let outer = fs.mkdir(&root, NodeId::ROOT, b"outer", 0o755).expect("a new directory").node;
    let dir = fs.mkdir(&root, outer, b"d", 0o755).expect("a new directory").node;
    set(fs, dir, Some(3), None);
    fs.mkdir(&root, dir, b"below", 0o755).expect("it is within the limit");
    limit(fs, Owner::User(7), Some(1), None);
    let right = charged(fs);
    fs.close().expect("it closes");
    drop(subject);
    let QuotaOf::Directory(id) = right[0].0 else { panic!("a quota of a directory") };
    falsify(&device, |store| {
        let mut batch = Batch::new();
        batch.put(TreeId(key::VOLUME_TREE), &key::quota(id), b"short");
        batch.put(TreeId(key::VOLUME_TREE), &key::owner_limits(Owner::User(7)), b"");
        batch.put(TreeId(key::VOLUME_TREE), &[b'U', 9, 0, 0, 0, 1], b"");
        batch.put(TreeId(key::VOLUME_TREE), &[b'Y', 1], b"");
        store.commit(&batch).expect("there is space");
    });
    let report = check(&device);
    assert_eq!(report.problems.len(), 4, "{}", reported(&report));
    assert!(report.problems.iter().all(|problem| problem.kind == ProblemKind::Quota));
    open(&device, "damaged").fs().close().expect("it opens and closes");
    let repaired = repair(&device);
    assert!(repaired.after.is_clean(), "{}", reported(&repaired.after));
    let again = open(&device, "repaired");
    let quota = again.fs().quota_get(dir).expect("a node").expect("the quota is there");
    assert_eq!((quota.directory, quota.inodes), (dir, 2));
    assert_eq!(quota.limits, QuotaLimits::default(), "without limits");
    assert_eq!(charged(again.fs())[0], right[0]);
    set(again.fs(), dir, Some(2), None);
    let refused = again.fs().mkdir(&root, dir, b"more", 0o755);
    assert!(matches!(refused, Err(FsError::QuotaExceeded)));
}
