//! Records with false content that no counting error produces: they mark what is in use as removed,
//! and numbers in use as free. Nothing is removed or allocated because of them, and a check reports
//! them.

use format::detached_record::DetachedRecord;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Counter, Part};
use format::subvolume_record::SubvolumeRecord;
use fs::{Allocate, Engine, FileSystem, NewNode, RenameMode};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use store::TreeId;
use testing::SimDevice;

use super::records::{
    Entry, TREE, directory, entries, named, put_directory, put_entry, subvolumes,
};
use super::volume::{falsified, falsify, look, made, open};
use super::{assert_repaired, check, repair, reported};

on_each_engine!(
    what_is_in_use_is_not_reclaimed_whatever_a_record_claims,
    a_removed_directory_that_leads_round_in_circles_is_not_followed,
    who_owns_all_of_a_circle_is_not_looked_for_for_ever,
    subvolumes_in_a_circle_are_not_followed,
    what_a_clone_reaches_round_a_circle_is_counted_once,
    an_inode_that_is_stored_beside_its_name_is_not_taken_for_unlinked,
    no_number_of_an_inode_is_given_out_twice,
    counts_out_of_all_bounds_stop_nothing,
    contents_that_an_inode_does_not_know_of_come_back,
    an_inode_longer_than_its_small_contents_can_be_changed,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// Opens a volume and lets it do all that it finds to be done.
fn work(device: &SimDevice) {
    let subject = open(device).expect("it opens");
    for _ in 0..4 {
        for _ in 0..200 {
            drop(subject.fs().background_step(64));
        }
        device::Clock::sleep(subject.clock(), std::time::Duration::from_secs(5));
    }
    subject.fs().close().expect("it is written");
    drop(subject);
}

fn what_is_in_use_is_not_reclaimed_whatever_a_record_claims(engine: Engine) {
    let made = made(engine, 31);
    let mut records = Vec::new();
    falsify(&made.device.copy(), |store| {
        let directory = |ino| DetachedRecord::Directory {
            subvolume: 1,
            directory: ino,
            kept_while_held: false,
        };
        records.push(("the root", directory(2)));
        records.push(("a directory", directory(named(store, "deep").ino)));
        let all = subvolumes(store);
        let clone = all.iter().find(|(_, record)| !record.snapshot && record.source.0 != 0);
        let (id, record) = clone.expect("there is a clone");
        records.push(("a clone", DetachedRecord::Subvolume { subvolume: *id }));
        records.push(("a clone's tree", DetachedRecord::Tree { tree: record.tree }));
    });
    for (what, record) in records {
        println!("{what}: {record:?}");
        let device = falsified(&made.device, |_, batch| {
            batch.put(VOLUME, &key::detached(1000), &record.encode());
            let next = key::counter(Counter::NextDetached);
            batch.put(VOLUME, &next, &1001_u64.to_le_bytes());
        });
        let report = check(&device);
        assert!(reported(&report).contains("in use"), "{what}:\n{}", reported(&report));
        let used = device.copy();
        work(&used);
        let looked = look(&used, &made.right);
        assert!(looked.is_same(), "{what}: {looked:?}");
        let repaired = repair(&device);
        assert_repaired(what, &report, &repaired);
    }
}

fn an_inode_that_is_stored_beside_its_name_is_not_taken_for_unlinked(engine: Engine) {
    let made = made(engine, 32);
    let device = falsified(&made.device, |store, batch| {
        let large = named(store, "large 3");
        assert!(matches!(large.target, Target::Embedded(inode) if inode.has_extents));
        batch.put(VOLUME, &key::orphan(1, large.ino), b"");
    });
    let report = check(&device);
    assert!(reported(&report).contains("is to be removed"), "{}", reported(&report));
    work(&device);
    let looked = look(&device, &made.right);
    assert!(looked.is_same(), "{looked:?}");
}

fn no_number_of_an_inode_is_given_out_twice(engine: Engine) {
    let made = made(engine, 33);
    let device = falsified(&made.device, |store, batch| {
        batch.put(VOLUME, &key::counter(Counter::NextIno), &3_u64.to_le_bytes());
        // What is found without a name gets one, in a directory that has to be made.
        let lost = named(store, "deeper");
        batch.delete(TREE, &key::entry(lost.dir, lost.cookie, Part::Attributes));
        let above = directory(store, lost.dir);
        let (entries, subdirectories) = (above.entries - 1, above.subdirectories - 1);
        put_directory(batch, lost.dir, &DirectoryRecord { entries, subdirectories, ..above });
    });
    let report = check(&device);
    assert!(reported(&report).contains("next inode number"), "{}", reported(&report));
    let repaired = repair(&device);
    assert_repaired("the next inode", &report, &repaired);
    let numbers = |device: &SimDevice| {
        let mut known = Vec::new();
        falsify(device, |store| {
            known = entries(store, TREE).iter().map(|entry| entry.ino).collect();
        });
        let met = known.len();
        known.sort_unstable();
        known.dedup();
        (met - known.len(), known)
    };
    let (twice, known) = numbers(&device);
    assert_eq!(twice, numbers(&made.device.copy()).0, "only hard links have a number twice");
    let subject = open(&device).expect("it opens");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made = subject.fs().mknod(&Caller::root(), NodeId::ROOT, b"new", &new).expect("space");
    assert!(!known.contains(&made.node.ino().0), "{:?} was taken", made.node);
}

fn counts_out_of_all_bounds_stop_nothing(engine: Engine) {
    let made = made(engine, 34);
    // A directory of which something cannot be read, with the least count that there is.
    let device = falsified(&made.device, |store, batch| {
        let entry = named(store, "large 3");
        let record = directory(store, entry.dir);
        put_directory(batch, entry.dir, &DirectoryRecord { entries: i64::MIN, ..record });
        batch.put(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes), b"?");
    });
    assert!(!check(&device).is_clean());
    repair(&device);
    // The last number of what waits to be reclaimed; a repair adds one.
    let device = falsified(&made.device, |store, batch| {
        let record = DetachedRecord::Tree { tree: u64::MAX };
        batch.put(VOLUME, &key::detached(u64::MAX), &record.encode());
        let deep = named(store, "deep");
        batch.delete(TREE, &key::entry(deep.dir, deep.cookie, Part::Attributes));
        let detached = DirectoryRecord { detached: true, ..directory(store, deep.ino) };
        put_directory(batch, deep.ino, &detached);
    });
    let report = check(&device);
    assert_repaired("what waits under the last number", &report, &repair(&device));
    // No number of an inode is left.
    let next = key::counter(Counter::NextIno);
    let device =
        falsified(&made.device, |_, batch| batch.put(VOLUME, &next, &u64::MAX.to_le_bytes()));
    check(&device);
    let subject = open(&device).expect("it opens");
    let made = subject.fs().mkdir(&Caller::root(), NodeId::ROOT, b"new", 0o755);
    assert!(matches!(made, Err(FsError::LimitReached(_))), "{made:?}");
}

fn contents_that_an_inode_does_not_know_of_come_back(engine: Engine) {
    let made = made(engine, 35);
    let device = falsified(&made.device, |store, batch| {
        let mut large = named(store, "large 3");
        let Target::Embedded(inode) = &mut large.target else { panic!("it has one name") };
        inode.has_extents = false;
        put_entry(batch, &large, large.cookie);
    });
    let report = check(&device);
    assert!(reported(&report).contains("has extents, but no flag"), "{}", reported(&report));
    assert_repaired("extents", &report, &repair(&device));
    let looked = look(&device, &made.right);
    assert!(looked.is_same(), "{looked:?}");
}

/// A hole in it was looked for beyond the contents.
fn an_inode_longer_than_its_small_contents_can_be_changed(engine: Engine) {
    type Change<'a> = &'a dyn Fn(&fs::Fs, NodeId) -> Result<(), FsError>;
    let made = made(engine, 36);
    let root = Caller::root();
    let changes: [Change<'_>; 4] = [
        &|fs, node| fs.fallocate(&root, node, (1600, 50), Allocate::Punch),
        &|fs, node| fs.fallocate(&root, node, (10, 5000), Allocate::Zero),
        &|fs, node| fs.write(&root, node, 1700, b"more").map(drop),
        &|fs, node| {
            let cut = SetAttr { size: Some(1000), ..SetAttr::default() };
            fs.setattr(&root, node, &cut).map(drop)
        },
    ];
    let device = falsified(&made.device, |store, batch| {
        let mut small = named(store, "later 5");
        let Target::Embedded(inode) = &mut small.target else { panic!("it has one name") };
        inode.size = 3000;
        put_entry(batch, &small, small.cookie);
    });
    assert!(!check(&device).is_clean());
    for change in changes {
        let subject = open(&device.copy()).expect("it opens");
        let one = subject.fs().lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        let node = subject.fs().lookup(&root, one, b"later 5").expect("it is there").node;
        let start = || {
            let mut read = [0; 10];
            subject.fs().read(&root, node, 0, &mut read).expect("it can be read");
            read
        };
        let known = start();
        change(subject.fs(), node).expect("it can be changed");
        assert_eq!(start(), known);
    }
}

/// Emptying such a directory descended forever, and took memory for each level.
fn a_removed_directory_that_leads_round_in_circles_is_not_followed(engine: Engine) {
    let made = made(engine, 33);
    let root = Caller::root();
    {
        let subject = open(&made.device).expect("it opens");
        let mut above = NodeId::ROOT;
        for name in [&b"round"[..], b"and", b"again"] {
            above = subject.fs().mkdir(&root, above, name, 0o755).expect("there is space").node;
        }
        subject.fs().close().expect("it is written");
    }
    for name in ["round", "and", "again"] {
        let device = falsified(&made.device, |store, batch| {
            let back = Entry { dir: named(store, "again").ino, ..named(store, name) };
            put_entry(batch, &back, back.cookie);
        });
        let subject = open(&device).expect("it opens");
        subject.fs().rmr(&root, NodeId::ROOT, b"round").expect("it is detached");
        // Other work may come first, and what failed once rests.
        let reported = (0..2000).any(|_| {
            device::Clock::sleep(subject.clock(), std::time::Duration::from_secs(1));
            let error = subject.fs().background_step(64).err().map(|error| error.to_string());
            error.is_some_and(|error| error.contains("points to none that is in it"))
        });
        assert!(reported, "{name}");
        drop(subject.fs().close());
    }
}

/// A query looped, and took memory for each round.
fn who_owns_all_of_a_circle_is_not_looked_for_for_ever(engine: Engine) {
    let made = made(engine, 37);
    let (root, user) = (Caller::root(), Caller { uid: 1000, gid: 1000, ..Caller::root() });
    {
        let subject = open(&made.device).expect("it opens");
        let fs = subject.fs();
        let own = SetAttr { uid: Some(1000), ..SetAttr::default() };
        let mut above = NodeId::ROOT;
        for name in [&b"of its own"[..], b"round", b"and", b"again"] {
            above = fs.mkdir(&root, above, name, 0o755).expect("there is space").node;
            fs.setattr(&root, above, &own).expect("it is there");
        }
        let top = fs.lookup(&root, NodeId::ROOT, b"of its own").expect("it is there").node;
        fs.snapshot_create(&user, top, b"before").expect("it is there");
        fs.close().expect("it is written");
    }
    for name in ["of its own", "round", "and", "again"] {
        let device = falsified(&made.device, |store, batch| {
            let back = Entry { dir: named(store, "again").ino, ..named(store, name) };
            put_entry(batch, &back, back.cookie);
        });
        let subject = open(&device).expect("it opens");
        let fs = subject.fs();
        let top = fs.lookup(&root, NodeId::ROOT, b"of its own").expect("it is there").node;
        let rolled_back = fs.rollback(&user, top, b"before");
        let message = |error: &FsError| error.to_string().contains("not in its recorded parent");
        assert!(rolled_back.as_ref().is_err_and(message), "{name}: {rolled_back:?}");
        let removed = fs.rmr(&user, top, b"round");
        assert!(removed.as_ref().is_err_and(message), "{name}: {removed:?}");
        drop(fs.close());
    }
}

/// Counting how much of a clone its directory reaches, to prune it, looped forever.
fn what_a_clone_reaches_round_a_circle_is_counted_once(engine: Engine) {
    let made = made(engine, 40);
    let device = falsified(&made.device, |store, batch| {
        let below = |record: &SubvolumeRecord| {
            let of = |entry: &Entry| entry.dir == record.root && entry.target == Target::Directory;
            entries(store, TreeId(record.tree)).into_iter().find(of)
        };
        // The clone, of those that have a tree of their own and may be written.
        let (number, mut record, back) = subvolumes(store)
            .into_iter()
            .filter(|(_, record)| record.tree != TREE.0 && !record.read_only)
            .find_map(|(number, record)| below(&record).map(|found| (number, record, found)))
            .expect("it is there");
        // As if its source were gone: it is due whatever differs.
        record.source.0 = 9999;
        record.pruned = false;
        batch.put(VOLUME, &key::subvolume(number), &record.encode());
        let tree = TreeId(record.tree);
        let mut value = Vec::new();
        let (ino, target, name) = (record.root, back.target, back.name.as_slice());
        EntryRecord { chained: false, ino, name, target }.encode(&mut value);
        let at = key::entry(back.dir, back.cookie, Part::Attributes);
        batch.put(tree, &at, &value);
    });
    work(&device);
}

/// Moving an object into one of them looped while holding the lock of all such changes.
fn subvolumes_in_a_circle_are_not_followed(engine: Engine) {
    let made = made(engine, 39);
    let root = Caller::root();
    let (mut numbers, mut above) = (Vec::new(), NodeId::ROOT);
    {
        let subject = open(&made.device).expect("it opens");
        let fs = subject.fs();
        for name in [&b"moved"[..], b"outer", b"inner"] {
            let entry = fs.subvolume_create(&root, above, name, 0o755).expect("there is space");
            numbers.push(entry.node.slot().0);
            if name != b"moved" {
                above = entry.node;
            }
        }
        fs.close().expect("it is written");
    }
    let device = falsified(&made.device, |store, batch| {
        let known = subvolumes(store);
        let of = |number| known.iter().find(|known| known.0 == number).expect("it is there");
        let (outer, inner) = (of(numbers[1]), of(numbers[2]));
        let mut record = outer.1.clone();
        record.parent = (inner.0, inner.1.root, 256);
        batch.put(VOLUME, &key::subvolume(outer.0), &record.encode());
    });
    let subject = open(&device).expect("it opens");
    let fs = subject.fs();
    // Its record has another place.
    let outer = fs.lookup(&root, NodeId::ROOT, b"outer");
    assert!(matches!(outer, Err(FsError::NotFound)), "{outer:?}");
    let inner = above;
    let moved = fs.rename(&root, (NodeId::ROOT, b"moved"), (inner, b"here"), RenameMode::Replace);
    let message = |error: &FsError| error.to_string().contains("contain each other");
    assert!(moved.as_ref().is_err_and(message), "{moved:?}");
    drop(fs.close());
}
