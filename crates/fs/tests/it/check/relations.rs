//! Relations of records that are each right by themselves: subvolumes that contain each other or
//! share one tree, numbers of two objects, epochs. Also what prevents a comparison.

use std::ops::ControlFlow;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::extent::{Extent, decode, encode_stored};
use format::inode_record::LinkedRecord;
use format::key::{self, Counter, Part};
use format::quota::{Charge, QuotaRecord};
use format::subvolume_record::SubvolumeRecord;
use fs::{Engine, FileSystem, Gc, QuotaLimits};
use inode::{Caller, FsError, NodeId};
use store::{Batch, Store, TreeId};
use testing::SimDevice;

use super::records::{Entry, TREE, directory, named, put_directory, put_entry, subvolumes};
use super::volume::{Made, falsified, falsify, file, look, made, open};
use super::{assert_repaired, check, repair, reported};

on_each_engine!(
    subvolumes_that_are_in_one_another_come_back,
    two_subvolumes_have_two_trees,
    a_number_is_of_one_thing,
    the_root_of_a_subvolume_is_not_removed,
    the_epoch_is_behind_all_that_was_written,
    a_clone_sets_no_epoch_back,
    a_report_without_quotas_has_a_note,
    a_quota_is_of_a_directory_that_carries_it,
    a_quota_whose_directory_is_in_a_trash_is_no_finding,
    a_note_of_garbage_that_does_not_decode_is_removed,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// Checks and repairs; returns what was found.
fn repairs(what: &str, device: &SimDevice, message: &str) {
    let report = check(device);
    assert!(reported(&report).contains(message), "{what}:\n{}", reported(&report));
    assert_repaired(what, &report, &repair(device));
}

fn is_as_it_was(made: &Made, device: &SimDevice, what: &str) {
    let looked = look(device, &made.right);
    assert!(looked.is_same(), "{what}: {looked:#?}");
}

/// Each is in the place of its record, and none can be reached.
fn subvolumes_that_are_in_one_another_come_back(engine: Engine) {
    let made = made(engine, 71);
    let root = Caller::root();
    let mut numbers = Vec::new();
    {
        let subject = open(&made.device).expect("it opens");
        let mut above = NodeId::ROOT;
        for name in [&b"outer"[..], b"inner"] {
            let made = subject.fs().subvolume_create(&root, above, name, 0o755).expect("space");
            above = made.node;
            numbers.push(above.slot().0);
        }
        file(subject.fs(), above, "in both", b"kept");
        subject.fs().close().expect("it is written");
    }
    let device = falsified(&made.device, |store, batch| {
        let known = subvolumes(store);
        let of = |number| known.iter().find(|known| known.0 == number).expect("it is there");
        let (outer, inner) = (of(numbers[0]), of(numbers[1]));
        let entry = named(store, "outer");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
        let above = directory(store, entry.dir);
        let (entries, subdirectories) = (above.entries - 1, above.subdirectories - 1);
        put_directory(batch, entry.dir, &DirectoryRecord { entries, subdirectories, ..above });
        let mut record = outer.1.clone();
        record.parent = (inner.0, inner.1.root, entry.cookie);
        batch.put(VOLUME, &key::subvolume(outer.0), &record.encode());
        let tree = TreeId(inner.1.tree);
        let mut value = Vec::new();
        let Entry { ino, target, ref name, .. } = entry;
        EntryRecord { chained: false, ino, name, target }.encode(&mut value);
        batch.put(tree, &key::entry(inner.1.root, entry.cookie, Part::Attributes), &value);
        let own = key::directory(inner.1.root, Part::Attributes);
        let below = store.get(tree, &own).expect("read").expect("it has one");
        let below = DirectoryRecord::decode(&below).expect("a record");
        let (entries, subdirectories) = (below.entries + 1, below.subdirectories + 1);
        batch.put(tree, &own, &DirectoryRecord { entries, subdirectories, ..below }.encode());
    });
    repairs("a circle", &device, "2 subvolumes contain each other");
    is_as_it_was(&made, &device, "a circle");
    let subject = open(&device).expect("it opens");
    let fs = subject.fs();
    let down = |above, name: String| fs.lookup(&root, above, name.as_bytes()).expect("there").node;
    let kept = down(NodeId::ROOT, "lost+found".to_owned());
    let outer = down(kept, format!("#subvolume-{}", numbers[0]));
    let inner = down(outer, "inner".to_owned());
    down(inner, "in both".to_owned());
}

/// Whichever was removed first took what the other had.
fn two_subvolumes_have_two_trees(engine: Engine) {
    let made = made(engine, 72);
    let device = falsified(&made.device, |store, batch| {
        let known = subvolumes(store);
        let clone = known.iter().find(|(_, record)| !record.snapshot && record.source.0 != 0);
        let (_, record) = clone.expect("there is a clone");
        let twin = SubvolumeRecord { parent: (1, 2, 99 << 8), ..record.clone() };
        batch.put(VOLUME, &key::subvolume(77), &twin.encode());
        let next = key::counter(Counter::NextSubvolume);
        batch.put(VOLUME, &next, &78_u64.to_le_bytes());
    });
    repairs("one tree", &device, "is that of subvolume");
    is_as_it_was(&made, &device, "one tree");
    falsify(&device, |store| {
        let mut trees: Vec<u64> = subvolumes(store).iter().map(|(_, record)| record.tree).collect();
        trees.sort_unstable();
        let all = trees.len();
        trees.dedup();
        assert_eq!(trees.len(), all);
    });
}

fn a_number_is_of_one_thing(engine: Engine) {
    let made = made(engine, 73);
    let device = falsified(&made.device, |store, batch| {
        let entry = named(store, "small 9");
        let Target::Embedded(inode) = entry.target else { panic!("it has one name") };
        let mut value = Vec::new();
        LinkedRecord { nlink: 1, inode }.encode(&mut value);
        batch.put(TREE, &key::linked(entry.ino, Part::Attributes), &value);
    });
    let report = reported(&check(&device));
    assert!(report.contains("an inode under its own number and of one, beside a name"), "{report}");
    for dir in ["deep", "deeper"] {
        let device = falsified(&made.device, |store, batch| {
            let entry = Entry { ino: named(store, dir).ino, ..named(store, "small 0") };
            put_entry(batch, &entry, entry.cookie);
        });
        let report = reported(&check(&device));
        assert!(report.contains("a directory and of a file beside its name"), "{dir}: {report}");
    }
}

fn the_root_of_a_subvolume_is_not_removed(engine: Engine) {
    let made = made(engine, 74);
    let removed = falsified(&made.device, |store, batch| {
        put_directory(batch, 2, &DirectoryRecord { detached: true, ..directory(store, 2) });
    });
    let elsewhere = falsified(&made.device, |store, batch| {
        let parent = named(store, "deep").ino;
        put_directory(batch, 2, &DirectoryRecord { parent, ..directory(store, 2) });
    });
    for (what, device) in [("is marked as removed", removed), ("names directory", elsewhere)] {
        repairs(what, &device, &format!("its root directory {what}"));
        is_as_it_was(&made, &device, what);
    }
}

fn the_epoch_is_behind_all_that_was_written(engine: Engine) {
    let made = made(engine, 75);
    let before = falsified(&made.device, |_, batch| {
        batch.put(VOLUME, &key::counter(Counter::Epoch), &1_u64.to_le_bytes());
    });
    let later = falsified(&made.device, |store, batch| {
        let at = key::extent(named(store, "large 3").ino, 0);
        let bytes = store.get(TREE, &at).expect("read").expect("it has one there");
        let Ok(Extent::Stored(mut stored)) = decode(&bytes) else { panic!("it is in a segment") };
        stored.birth = 1000;
        let mut value = Vec::new();
        encode_stored(&mut value, &stored);
        batch.put(TREE, &at, &value);
    });
    for (what, device) in [("before a clone", before), ("before an extent", later)] {
        repairs(what, &device, "the recorded epoch is");
        is_as_it_was(&made, &device, what);
        let subject = open(&device).expect("it opens");
        let new = file(subject.fs(), NodeId::ROOT, "new", &[1; 9000]);
        subject.fs().write(&Caller::root(), new, 0, &[2; 9000]).expect("it is taken");
        subject.fs().close().expect("it is written");
        super::assert_clean(&device, what);
    }
}

/// What was written between the two epochs was taken for the subvolume's own, and punched.
fn a_clone_sets_no_epoch_back(engine: Engine) {
    let made = made(engine, 78);
    let last = |device: &SimDevice| {
        let mut last = 0;
        falsify(&device.copy(), |store| last = subvolumes(store)[0].1.last_clone_epoch);
        last
    };
    let device = falsified(&made.device, |_, batch| {
        batch.put(VOLUME, &key::counter(Counter::Epoch), &1_u64.to_le_bytes());
    });
    let before = last(&device);
    assert!(before > 1);
    {
        let subject = open(&device).expect("it opens");
        let (fs, root) = (subject.fs(), Caller::root());
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        fs.snapshot_create(&root, one, b"after").expect("it is there");
        fs.close().expect("it is written");
    }
    assert!(last(&device) >= before, "{} after {before}", last(&device));
}

/// They were skipped for a reason that was never reported.
fn a_report_without_quotas_has_a_note(engine: Engine) {
    let made = made(engine, 76);
    let root = Caller::root();
    let mut removed = 0;
    {
        let subject = open(&made.device).expect("it opens");
        let fs = subject.fs();
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        let limits = QuotaLimits { inodes: Some(100_000), bytes: None };
        fs.quota_set(&root, one, limits).expect("a quota is set");
        let clone = fs.lookup(&root, NodeId::ROOT, b"clone").expect("it is there").node;
        removed = removed.max(clone.slot().0);
        fs.rmr(&root, NodeId::ROOT, b"clone").expect("it is detached");
        fs.close().expect("it is written");
    }
    let device = falsified(&made.device, |store, batch| {
        let known = subvolumes(store);
        let (_, record) = known.iter().find(|(id, _)| *id == removed).expect("it waits");
        assert!(record.detached);
        let key = key::entry(record.root, 77 << 8, Part::Attributes);
        batch.put(TreeId(record.tree), &key, b"?");
    });
    let report = reported(&check(&device));
    assert!(report.contains("what is charged to quotas was not compared"), "{report}");
}

/// What was created in it was charged to no one, or the limit was that of another directory.
fn a_quota_is_of_a_directory_that_carries_it(engine: Engine) {
    let made = made(engine, 78);
    let root = Caller::root();
    let limits = QuotaLimits { inodes: Some(100_000), bytes: None };
    let mut charged = 0;
    {
        let subject = open(&made.device).expect("it opens");
        let fs = subject.fs();
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        fs.quota_set(&root, one, limits).expect("a quota is set");
        charged = charged.max(fs.quota_get(one).expect("it is known").expect("it has one").inodes);
        fs.close().expect("it is written");
    }
    assert!(check(&made.device).is_clean(), "{}", reported(&check(&made.device)));
    let quota = |store: &dyn Store| {
        let domain = directory(store, named(store, "one").ino).charge.expect("it has one").domain;
        let record = store.get(VOLUME, &key::quota(domain)).expect("read").expect("it has one");
        (domain, QuotaRecord::decode(&record).expect("it decodes"))
    };
    type Falsify<'a> = &'a dyn Fn(&dyn Store, &mut Batch);
    let carries = |of: Option<u64>| {
        move |store: &dyn Store, batch: &mut Batch| {
            let ino = named(store, "one").ino;
            let record = directory(store, ino);
            let charge = record.charge.and_then(|old| of.map(|domain| Charge { domain, ..old }));
            put_directory(batch, ino, &DirectoryRecord { charge, ..record });
        }
    };
    let is_of = |directory: fn(&dyn Store) -> u64| {
        move |store: &dyn Store, batch: &mut Batch| {
            let (domain, record) = quota(store);
            let record = QuotaRecord { directory: directory(store), ..record };
            batch.put(VOLUME, &key::quota(domain), &record.encode());
        }
    };
    // Beside it is another one, which no record makes a part of any quota.
    let beside = made.device.copy();
    let subject = open(&beside).expect("it opens");
    let plain = subject.fs().mkdir(&root, NodeId::ROOT, b"plain", 0o755).expect("there is space");
    subject.fs().close().expect("it is written");
    drop(subject);
    let cases: [(&str, Falsify<'_>); 4] = [
        ("carries none", &carries(None)),
        ("carries quota 999", &carries(Some(999))),
        ("carries none", &is_of(|store| named(store, "one").dir)),
        ("carries none", &is_of(|store| named(store, "plain").ino)),
    ];
    for (n, (message, falsify)) in cases.into_iter().enumerate() {
        let from = if n < 2 { &made.device } else { &beside };
        let device = falsified(from, falsify);
        let report = check(&device);
        let found = report.problems.iter().find(|found| found.what.contains(message));
        let found = found.unwrap_or_else(|| panic!("{message}:\n{}", reported(&report)));
        assert!(
            found.subvolume != 0 && found.ino != 0 && found.what.contains("quota"),
            "{found:?}"
        );
        repairs(message, &device, message);
        let subject = open(&device).expect("it opens");
        let fs = subject.fs();
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        let quota = fs.quota_get(one).expect("it is known").expect("it has one");
        assert_eq!((quota.inodes, quota.limits), (charged, limits), "{message}");
        assert_eq!(fs.quota_list(&root).expect("it is known").len(), 1, "{message}");
        let top = fs.quota_get(NodeId::ROOT).expect("it is known");
        assert!(top.is_none(), "{message}: {top:?}");
        let other = (n >= 2).then(|| fs.quota_get(plain.node).expect("it is known"));
        assert!(other.flatten().is_none(), "{message}");
        fs.close().expect("it closes");
        drop(subject);
        if n < 2 {
            is_as_it_was(&made, &device, message);
        }
    }
    // One that was removed has its record still, and nothing is charged to it.
    let device = made.device.copy();
    let subject = open(&device).expect("it opens");
    subject.fs().rmr(&root, NodeId::ROOT, b"one").expect("it is detached");
    super::volume::settle(subject.fs());
    subject.fs().close().expect("it closes");
    drop(subject);
    assert!(check(&device).is_clean(), "{}", reported(&check(&device)));
}

/// What is there is charged to it, and its directory is gone; a repair gave it to another one.
fn a_quota_whose_directory_is_in_a_trash_is_no_finding(engine: Engine) {
    let (device, root) = (made(engine, 78).device, Caller::root());
    let subject = open(&device).expect("it opens");
    let fs = subject.fs();
    let limits = QuotaLimits { inodes: Some(100_000), bytes: None };
    let (new, small) = (fs.mkdir(&root, NodeId::ROOT, b"new", 0o755), b"some small contents");
    let new = new.expect("there is space").node;
    fs.quota_set(&root, new, limits).expect("a quota is set");
    fs.trash_set(&root, NodeId::ROOT, Some(86_400)).expect("a trash");
    let kind = fs::NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
    let file = fs.mknod(&root, new, b"file", &kind).expect("there is space").node;
    fs.write(&root, file, 0, small).expect("there is space");
    fs.unlink(&root, new, b"file").expect("it goes");
    fs.rmdir(&root, NodeId::ROOT, b"new").expect("it is empty");
    super::volume::settle(fs);
    fs.close().expect("it closes");
    drop(subject);
    assert!(check(&device).is_clean(), "{}", reported(&check(&device)));
}

fn a_note_of_garbage_that_does_not_decode_is_removed(engine: Engine) {
    let made = made(engine, 77);
    let device = falsified(&made.device, |_, batch| {
        let kind = format::candidate::CandidateKind::Tree;
        batch.put(VOLUME, &key::candidate(kind, 999, 0), b"?");
    });
    let gc = |device: &SimDevice| {
        let subject = open(device).expect("it opens");
        let mut proceed = |_, _| ControlFlow::Continue(());
        subject.fs().gc(Gc::Report, &mut proceed)
    };
    let found = gc(&device.copy()).map(drop);
    assert!(matches!(&found, Err(FsError::Io(failure)) if failure.is_damage), "{found:?}");
    repairs("a note", &device, "a record of garbage");
    gc(&device).expect("all can be read");
    is_as_it_was(&made, &device, "a note");
}
