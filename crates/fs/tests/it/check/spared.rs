//! A repair removes nothing that is complete, whatever a flag or a missing record claims.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::inode_record::{InodeRecord, LinkedRecord};
use format::kept_twice::COPY_TREE;
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use fs::{Engine, FileSystem};
use inode::{Caller, NodeId};
use store::{Batch, Store, TreeId};
use testing::SimDevice;

use super::records::{Entry, TREE, directory, named, put_directory, put_entry, subvolumes};
use super::volume::{Made, falsified, falsify, look, made, open};
use super::{assert_repaired, check, repair, reported};

on_each_engine!(
    a_record_of_a_subvolume_comes_back_from_its_copy,
    a_subvolume_whose_record_is_gone_is_kept,
    what_is_falsely_marked_as_removed_stays,
    data_beside_an_inode_without_its_flag_stays,
    small_contents_and_extents_stay_both,
    a_size_is_that_of_the_small_contents,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
const COPY: TreeId = TreeId(COPY_TREE);

/// Repairs, and all is there as it was.
fn comes_back(made: &Made, what: &str, device: &SimDevice) {
    let report = check(device);
    assert!(!report.is_clean(), "{what} is not found");
    let repaired = repair(device);
    assert_repaired(what, &report, &repaired);
    let looked = look(device, &made.right);
    assert!(looked.is_same(), "{what}: {looked:#?}\n{}", reported(&report));
}

type OfSubvolume = fn(&(u64, SubvolumeRecord)) -> bool;

/// A snapshot, a clone, and what was made empty.
const SUBVOLUMES: [(&str, OfSubvolume); 3] = [
    ("a snapshot", |(_, record)| record.snapshot),
    ("a clone", |(_, record)| !record.snapshot && record.parent.0 != 0 && record.source.0 != 0),
    ("a subvolume", |(_, record)| record.parent.0 != 0 && record.source.0 == 0),
];

/// The copy was removed as superfluous, and then the tree as one without a name.
fn a_record_of_a_subvolume_comes_back_from_its_copy(engine: Engine) {
    let made = made(engine, 61);
    for (what, is_it) in SUBVOLUMES {
        for left in [None, Some(&b"?"[..])] {
            let device = made.device.copy();
            falsify(&device, |store| {
                let (id, record) = subvolumes(store).into_iter().find(is_it).expect("there is one");
                let mut batch = Batch::new();
                match left {
                    None => batch.delete(VOLUME, &key::subvolume(id)),
                    Some(left) => batch.put(VOLUME, &key::subvolume(id), left),
                }
                store.commit(&batch).expect("there is space");
                let mut batch = Batch::new();
                batch.put(COPY, &key::subvolume(id), &record.encode());
                store.commit(&batch).expect("there is space");
            });
            comes_back(&made, &format!("{what}, {left:?}"), &device);
        }
    }
}

/// Of which no copy is left, either.
fn a_subvolume_whose_record_is_gone_is_kept(engine: Engine) {
    let made = made(engine, 62);
    for (what, is_it) in SUBVOLUMES {
        let mut tree = 0;
        let device = falsified(&made.device, |store, batch| {
            let (id, record) = subvolumes(store).into_iter().find(is_it).expect("there is one");
            batch.delete(VOLUME, &key::subvolume(id));
            batch.delete(VOLUME, &key::usage(id));
            tree = record.tree;
        });
        let report = check(&device);
        repair(&device);
        falsify(&device, |store| {
            let there = store.tree_exists(TreeId(tree)).expect("it is known");
            assert!(there, "{what}: {}", reported(&report));
        });
        assert!(check(&device).is_clean(), "{what}: {}", reported(&check(&device)));
        let subject = open(&device).expect("it opens");
        let (fs, root) = (subject.fs(), Caller::root());
        let kept = fs.lookup(&root, NodeId::ROOT, b"lost+found").expect("it is there").node;
        let name = format!("#tree-{tree}");
        fs.lookup(&root, kept, name.as_bytes()).unwrap_or_else(|error| panic!("{what}: {error}"));
        drop(fs.close());
    }
}

/// A directory in the same state was kept.
fn what_is_falsely_marked_as_removed_stays(engine: Engine) {
    let made = made(engine, 63);
    for (what, is_it) in SUBVOLUMES {
        let device = falsified(&made.device, |store, batch| {
            let (id, record) = subvolumes(store).into_iter().find(is_it).expect("there is one");
            let removed = SubvolumeRecord { detached: true, ..record };
            batch.put(VOLUME, &key::subvolume(id), &removed.encode());
        });
        comes_back(&made, what, &device);
    }
    let device = falsified(&made.device, |store, batch| {
        let ino = named(store, "deep").ino;
        let removed = DirectoryRecord { detached: true, ..directory(store, ino) };
        put_directory(batch, ino, &removed);
    });
    comes_back(&made, "a directory", &device);
}

fn linked(store: &dyn Store, ino: u64) -> LinkedRecord {
    let bytes = store.get(TREE, &key::linked(ino, Part::Attributes)).expect("read");
    LinkedRecord::decode(&bytes.expect("it has one")).expect("a record")
}

/// Changes an inode's own attributes, wherever it is stored.
fn edit(store: &dyn Store, batch: &mut Batch, name: &str, change: impl Fn(&mut InodeRecord)) {
    let mut entry = named(store, name);
    if let Target::Embedded(inode) = &mut entry.target {
        change(inode);
        let Entry { cookie, .. } = entry;
        return put_entry(batch, &entry, cookie);
    }
    let mut record = linked(store, entry.ino);
    change(&mut record.inode);
    let mut value = Vec::new();
    record.encode(&mut value);
    batch.put(TREE, &key::linked(entry.ino, Part::Attributes), &value);
}

/// They were removed.
fn data_beside_an_inode_without_its_flag_stays(engine: Engine) {
    let made = made(engine, 64);
    for name in ["small 9", "tiny", "link"] {
        let device = falsified(&made.device, |store, batch| {
            edit(store, batch, name, |inode| (inode.has_bulk, inode.size) = (false, 0));
        });
        comes_back(&made, &format!("contents of {name}"), &device);
    }
    for name in ["small 3", "tiny"] {
        let device = falsified(&made.device, |store, batch| {
            edit(store, batch, name, |inode| inode.has_xattrs = false);
        });
        comes_back(&made, &format!("attributes of {name}"), &device);
    }
    let device = falsified(&made.device, |store, batch| {
        let ino = named(store, "one").ino;
        put_directory(batch, ino, &DirectoryRecord { has_xattrs: false, ..directory(store, ino) });
    });
    comes_back(&made, "attributes of a directory", &device);
}

/// Both were noted with the inode, and of the two the small ones are what it shows.
fn small_contents_and_extents_stay_both(engine: Engine) {
    let made = made(engine, 65);
    for name in ["large 1", "one name"] {
        let mut beside = Vec::new();
        let device = falsified(&made.device, |store, batch| {
            let entry = named(store, name);
            let key = match entry.target {
                Target::Embedded(_) => key::entry(entry.dir, entry.cookie, Part::Bulk).to_vec(),
                _ => key::linked(entry.ino, Part::Bulk).to_vec(),
            };
            batch.put(TREE, &key, b"small, too");
            beside = key;
        });
        comes_back(&made, name, &device);
        falsify(&device, |store| {
            assert_eq!(store.get(TREE, &beside).expect("read"), None);
            let all = super::records::entries(store, TREE);
            let kept = all.iter().filter(|entry| entry.name.starts_with(b"#")).any(|entry| {
                let key = key::entry(entry.dir, entry.cookie, Part::Bulk);
                store.get(TREE, &key).expect("read").is_some_and(|bytes| bytes == b"small, too")
            });
            assert!(kept, "{name}: the small contents are gone");
        });
        // Its flag of small contents is wrong: it has the others, and shows them.
        let device = falsified(&made.device, |store, batch| {
            edit(store, batch, name, |inode| inode.has_bulk = true);
        });
        comes_back(&made, name, &device);
    }
}

/// A longer one was not reported as long as the sum of all was right.
fn a_size_is_that_of_the_small_contents(engine: Engine) {
    let made = made(engine, 66);
    for (one, other) in [("small 9", "small 10"), ("tiny", "small 10"), ("small 10", "tiny")] {
        for more in [3_u64, 10_000] {
            let device = falsified(&made.device, |store, batch| {
                edit(store, batch, one, |inode| inode.size += more);
                edit(store, batch, other, |inode| inode.size = inode.size.wrapping_sub(3));
            });
            let report = check(&device);
            let found = report.problems.iter().filter(|one| one.what.contains("small contents"));
            assert_eq!(found.count(), 2, "{one}, {more}:\n{}", reported(&report));
            comes_back(&made, one, &device);
        }
    }
}
