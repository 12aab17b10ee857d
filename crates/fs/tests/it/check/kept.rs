//! A repair loses nothing: everything without a name is in `lost+found`, and of two extents that
//! overlap both stay.

use std::collections::BTreeMap;

use format::extent::{Extent, decode, encode_stored};
use format::key;
use fs::{Engine, FileSystem};
use inode::{Caller, NodeId};
use store::{Batch, Store};
use testing::SimDevice;
use testing::model::{Dump, OpPath};

use super::records::{TREE, entries, named};
use super::volume::{Made, falsify, look, made_on, open};
use super::{assert_repaired, check, repair, reported};
use crate::script::SNAPSHOTS;
use crate::subject::Base;

/// Removes the names of directories, small and large files, and of inodes with several names.
fn unname(store: &dyn Store, batch: &mut Batch) -> Vec<&'static str> {
    let lost = vec![
        "deep",
        "small 5",
        "small 9",
        "small 23",
        "large 0",
        "large 1",
        "large 3",
        "one name",
        "another name",
        "tiny",
        "tiny too",
        "link",
    ];
    let dir = named(store, "deep").dir;
    let all = entries(store, TREE);
    for name in &lost {
        let entry = all.iter().find(|entry| entry.dir == dir && entry.name == name.as_bytes());
        let entry = entry.expect("the volume has it");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, key::Part::Attributes));
        batch.delete(TREE, &key::back_reference(entry.ino, entry.dir, entry.cookie));
    }
    lost
}

/// How often there is what a file holds, by inode, outside of snapshots: contents and attributes.
fn contents(dump: &Dump) -> BTreeMap<Vec<u8>, usize> {
    let mut found = BTreeMap::new();
    for (path, node) in &dump.nodes {
        if !is_in_snapshot(path) && node.first_path == *path && !node.bytes.is_empty() {
            *found.entry(node.bytes.clone()).or_default() += 1;
        }
    }
    found
}

fn is_in_snapshot(path: &OpPath) -> bool {
    path.iter().any(|name| name == SNAPSHOTS)
}

fn dump(device: &SimDevice) -> Dump {
    Dump::collect(&mut open(device).expect("it opens"), SNAPSHOTS)
}

/// What is below a path, with the rest of the path.
fn below<'d>(
    dump: &'d Dump,
    above: &[Vec<u8>],
) -> BTreeMap<&'d [Vec<u8>], &'d testing::model::DumpNode> {
    let nodes = dump.nodes.iter().filter(|(path, _)| path.starts_with(above));
    nodes.map(|(path, node)| (&path[above.len()..], node)).collect()
}

#[test]
fn everything_nameless_is_in_lost_and_found_with_its_contents() {
    for base in [Base::Engine(Engine::Btree), Base::Engine(Engine::Lsm), Base::Column] {
        let made = made_on(41, &base);
        let (device, mut lost, mut deep) = (made.device.copy(), Vec::new(), 0);
        falsify(&device, |store| {
            let mut batch = Batch::new();
            deep = named(store, "deep").ino;
            lost = unname(store, &mut batch);
            store.commit(&batch).expect("there is space");
        });
        let before = check(&device);
        assert!(!before.is_clean());
        let repaired = repair(&device);
        assert_repaired(&format!("{base:?}"), &before, &repaired);
        let found = dump(&device);
        let now = contents(&found);
        for (bytes, count) in contents(&made.right) {
            // (The target of a link that has no name is beside it, and so gone with it.)
            let kept = now.get(&bytes).copied().unwrap_or(0);
            let is_target = bytes == b"small 1";
            let wanted = if is_target { count - 1 } else { count };
            assert!(kept >= wanted, "{base:?}: {kept} of {wanted}, {} bytes", bytes.len());
        }
        // A directory is kept as a whole: names, hard links, attributes, what is mounted in it.
        let one = b"one".to_vec();
        let there = [b"lost+found".to_vec(), format!("#{deep}").into_bytes()];
        let (right, kept) =
            (below(&made.right, &[one.clone(), b"deep".to_vec()]), below(&found, &there));
        assert!(right.len() > 60, "{}", right.len());
        assert_eq!(right.keys().collect::<Vec<_>>(), kept.keys().collect::<Vec<_>>(), "{base:?}");
        for (path, node) in right {
            let other = kept[path];
            assert!(node.bytes == other.bytes && node.xattrs == other.xattrs, "{base:?}: {path:?}");
            assert_eq!(node.stat.nlink, other.stat.nlink, "{base:?}: {path:?}");
        }
        // So is what had several names, with its attributes.
        let linked = |name: &str| &made.right.nodes[&vec![one.clone(), name.as_bytes().to_vec()]];
        for name in ["one name", "tiny"] {
            let node = linked(name);
            let is_it = |other: &&testing::model::DumpNode| {
                (&other.bytes, &other.xattrs) == (&node.bytes, &node.xattrs)
            };
            let kept = below(&found, &there[..1]);
            assert!(kept.values().any(is_it), "{base:?}: {name}");
        }
        // Snapshots, and all that had not lost its name, are as they were.
        for (path, node) in &made.right.nodes {
            let gone = path.first() == Some(&one)
                && path.get(1).is_some_and(|name| lost.iter().any(|lost| lost.as_bytes() == name));
            if !gone {
                let other = found.nodes.get(path).unwrap_or_else(|| panic!("{base:?}: {path:?}"));
                assert!(node.bytes == other.bytes && node.xattrs == other.xattrs, "{path:?}");
            }
        }
    }
}

/// Keys and values.
type Records = Vec<(Vec<u8>, Vec<u8>)>;

/// Puts an extent into a file that overlaps another one of it. Both name the same pages, as shared
/// ones, so that no change of one takes what the other has.
fn overlap(made: &Made) -> (SimDevice, u64, Records) {
    let (device, mut ino, mut extents) = (made.device.copy(), 0, Vec::new());
    falsify(&device, |store| {
        ino = named(store, "large 1").ino;
        let there = key::extent(ino, 60_000);
        let other = store.get(TREE, &there).expect("read").expect("it has one there");
        let Ok(Extent::Stored(mut other)) = decode(&other) else { panic!("it is in a segment") };
        other.reflinked = true;
        let mut value = Vec::new();
        encode_stored(&mut value, &other);
        let mut batch = Batch::new();
        batch.put(TREE, &key::extent(ino, 4096), &value);
        batch.put(TREE, &there, &value);
        store.commit(&batch).expect("there is space");
        extents = extents_of(store, ino);
    });
    (device, ino, extents)
}

fn extents_of(store: &dyn Store, ino: u64) -> Records {
    let range = store::KeyRange::prefix(&key::extent_prefix(ino));
    let mut cursor = store.scan(TREE, range).expect("scan");
    let mut found = Vec::new();
    while let Some(item) = cursor.next().expect("read") {
        found.push((item.key.to_vec(), item.value.to_vec()));
    }
    found
}

#[test]
fn overlapping_extents_are_reported_and_both_kept() {
    for base in [Base::Engine(Engine::Btree), Base::Engine(Engine::Lsm)] {
        let made = made_on(42, &base);
        let (device, ino, extents) = overlap(&made);
        let report = check(&device);
        let reported_of = |report: &fs::VolumeReport| {
            let overlap = |problem: &&fs::Problem| problem.what.contains("two extents overlap");
            let found: Vec<_> = report.problems.iter().filter(overlap).cloned().collect();
            assert_eq!(found.len(), 1, "{base:?}:\n{}", reported(report));
            assert_eq!(found[0].path, b"/one/large 1", "{:?}", found[0]);
            assert_eq!((found[0].ino, found[0].remedy()), (ino, None));
        };
        reported_of(&report);
        let repaired = repair(&device);
        assert!(repaired.failed.is_empty(), "{:?}", repaired.failed);
        reported_of(&repaired.after);
        assert_eq!(repaired.after.problems_count, 1, "{base:?}:\n{}", reported(&repaired.after));
        falsify(&device.copy(), |store| {
            assert!(extents_of(store, ino) == extents, "{base:?}: not both of them stay");
        });
        // Nothing else is lost, and a read across both is refused: which is right is not known.
        let looked = look(&device.copy(), &made.right);
        assert_eq!((looked.refused, &looked.closed), (1, &None), "{looked:?}");
        assert_eq!(looked.wrong, Vec::<String>::new(), "{base:?}");
        let opened = open(&device).expect("it opens");
        let (fs, root) = (opened.fs(), Caller::root());
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        let file = fs.lookup(&root, one, b"large 1").expect("it is there").node;
        let right = &made.right.nodes[&vec![b"one".to_vec(), b"large 1".to_vec()]].bytes;
        for (from, to) in [(0, 4096), (13_096, 60_000), (60_000, 65_000)] {
            let mut buffer = vec![1; to - from];
            let read = fs.read(&root, file, from as u64, &mut buffer).expect("one of them");
            assert!(read == to - from && buffer == right[from..to], "{base:?}: {from} to {to}");
        }
        let refused = fs.read(&root, file, 4000, &mut [0; 8000]).expect_err("both of them");
        assert!(refused.to_string().contains("extents"), "{refused}");
        // A write over all of both replaces both, and space is counted once.
        let written = vec![7; 13_096];
        fs.write(&root, file, 0, &written).expect("it is taken");
        let mut buffer = vec![1; 65_000];
        assert_eq!(fs.read(&root, file, 0, &mut buffer).expect("no two overlap"), 65_000);
        assert!(buffer[..13_096] == written && buffer[13_096..] == right[13_096..65_000]);
        fs.close().expect("it closes");
        drop(opened);
        let repaired = repair(&device);
        assert!(repaired.after.is_clean(), "{base:?}:\n{}", reported(&repaired.after));
    }
}

/// Gives one file the extents of another, with the flag that both have them or without.
fn share(made: &Made, with_flag: [bool; 2]) -> SimDevice {
    let device = made.device.copy();
    falsify(&device, |store| {
        let (from, to) = (named(store, "large 1").ino, named(store, "large 3").ino);
        let mut batch = Batch::new();
        for (key, _) in extents_of(store, to) {
            batch.delete(TREE, &key);
        }
        for (key, value) in extents_of(store, from) {
            let Ok(Extent::Stored(stored)) = decode(&value) else { panic!("it is in a segment") };
            let Ok(key::Parsed::Extent { offset, .. }) = key::parse(&key) else { panic!("a key") };
            // As if they were written after the last clone was taken.
            for (ino, reflinked) in [from, to].into_iter().zip(with_flag) {
                let mut value = Vec::new();
                let stored = format::extent::Stored { reflinked, birth: 1 << 20, ..stored };
                encode_stored(&mut value, &stored);
                batch.put(TREE, &key::extent(ino, offset), &value);
            }
        }
        let epoch = key::counter(key::Counter::Epoch);
        batch.put(store::TreeId(key::VOLUME_TREE), &epoch, &(1_u64 << 20).to_le_bytes());
        store.commit(&batch).expect("there is space");
    });
    device
}

/// Removing one of the two freed what the other has.
#[test]
fn pages_of_two_inodes_are_reported_and_not_freed_with_one() {
    for base in [Base::Engine(Engine::Btree), Base::Engine(Engine::Lsm)] {
        let made = made_on(43, &base);
        for with_flag in [[false, false], [true, false], [false, true], [true, true]] {
            let what = format!("{base:?}: {with_flag:?}");
            let device = share(&made, with_flag);
            let report = check(&device);
            let shared =
                |problem: &&fs::Problem| problem.what.contains("also belong to another file");
            let found: Vec<_> = report.problems.iter().filter(shared).collect();
            let paths: std::collections::BTreeSet<&[u8]> =
                found.iter().map(|problem| problem.path.as_slice()).collect();
            let of = [&b"/one/large 1"[..], b"/one/large 3"].into_iter().zip(with_flag);
            let wanted = of.filter(|(_, flag)| !flag).map(|(path, _)| path).collect();
            assert_eq!(paths, wanted, "{what}:\n{}", reported(&report));
            assert!(found.iter().all(|problem| problem.file.starts_with("data/")), "{what}");
            let repaired = repair(&device);
            assert!(repaired.after.is_clean(), "{what}:\n{}", reported(&repaired.after));
            let opened = open(&device).expect("it opens");
            let (fs, root) = (opened.fs(), Caller::root());
            let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
            fs.unlink(&root, one, b"large 3").expect("it is there");
            super::volume::settle(fs);
            let file = fs.lookup(&root, one, b"large 1").expect("it is there").node;
            let right = &made.right.nodes[&vec![b"one".to_vec(), b"large 1".to_vec()]].bytes;
            let mut buffer = vec![1; right.len()];
            let read = fs
                .read(&root, file, 0, &mut buffer)
                .unwrap_or_else(|error| panic!("{what}: what the other had is gone: {error}"));
            assert!(read == right.len() && buffer == *right, "{what}: it reads otherwise");
            fs.close().expect("it closes");
            drop(opened);
            assert!(check(&device).is_clean(), "{what}:\n{}", reported(&check(&device)));
        }
    }
}
