//! Snapshots and clones are checked by their differences, and problems in one of them are still
//! found.

use std::ops::ControlFlow;

use format::directory_record::DirectoryRecord;
use format::entry_record::EntryRecord;
use format::extent::{self, Checksums, Extent, Stored};
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use fs::{FileSystem, Fs, ProblemKind, VolumeReport};
use inode::{Caller, NodeId};
use store::{Batch, Commit, Read, TreeId};

use crate::script::scale;
use crate::support::{ROOT, Volume, volume};

const DIRECTORIES: usize = 40;
const FILES: usize = 20;

fn look(fs: &Fs) -> VolumeReport {
    fs.check_volume(&mut |_, _| ControlFlow::Continue(())).expect("a report")
}

/// A volume with some files, and directories by their names.
fn filled() -> (Volume, Vec<NodeId>) {
    let v = volume();
    let top = v.dir(ROOT, "top").node;
    let dirs = (0..DIRECTORIES).map(|n| v.dir(top, &format!("d{n}")).node);
    let dirs: Vec<NodeId> = dirs.collect();
    for dir in &dirs {
        for n in 0..FILES {
            let file = v.file(*dir, &format!("f{n}")).node;
            v.write(file, 0, &vec![1; n * 700]);
            v.fs.forget(file, 1);
        }
        let linked = v.find(*dir, "f1").expect("it is there").node;
        v.fs.link(&Caller::root(), linked, *dir, b"again").expect("another name");
        v.fs.forget(linked, 2);
    }
    (v, dirs)
}

/// Changes a little, in one directory, and removes at times what another change made.
fn change(v: &Volume, dirs: &[NodeId], n: usize) {
    let dir = dirs[n % DIRECTORIES];
    let name = format!("f{}", 2 + n % (FILES - 2));
    let file = v.find(dir, &name).expect("it is there").node;
    v.write(file, 0, format!("change {n}").as_bytes());
    v.fs.forget(file, 1);
    if n.is_multiple_of(3) {
        let fresh = v.file(dir, &format!("new{n}")).node;
        v.fs.forget(fresh, 1);
    }
    if n > 0 && n.is_multiple_of(4) {
        let made = (n - 1) / 3 * 3;
        let (dir, name) = (dirs[made % DIRECTORIES], format!("new{made}"));
        v.fs.unlink(&Caller::root(), dir, name.as_bytes()).expect("it is there");
    }
}

#[test]
fn a_thousand_snapshots_cost_only_their_differences() {
    let (v, dirs) = filled();
    let alone = look(&v.fs);
    assert!(alone.is_clean(), "{:?}", alone.problems);
    let snapshots = scale(200, 1000) as usize;
    for n in 0..snapshots {
        change(&v, &dirs, n);
        let of = if n % 2 == 0 { ROOT } else { v.find(ROOT, "top").expect("it is there").node };
        v.fs.snapshot_create(&Caller::root(), of, format!("s{n}").as_bytes()).expect("a snapshot");
    }
    let with = look(&v.fs);
    assert!(with.is_clean(), "{:?}", with.problems);
    assert_eq!(with.subvolumes as usize, snapshots + 1);
    let each = (with.records - alone.records) as usize / snapshots;
    println!("{} records alone, {each} a snapshot", alone.records);
    // A snapshot is looked at beside the one before the last, so that two directories differ.
    assert!(alone.records as usize > DIRECTORIES * FILES, "{}", alone.records);
    assert!(each < 8 * (FILES + 10), "{each} records a snapshot, of {}", alone.records);
}

#[test]
fn clones_cost_only_their_differences() {
    let (v, dirs) = filled();
    let alone = look(&v.fs);
    let root = Caller::root();
    let clones = scale(100, 500) as usize;
    let mut of = v.find(ROOT, "top").expect("it is there").node;
    for n in 0..clones {
        change(&v, &dirs, n);
        // Some of what is there, and some of a clone.
        let name = format!("c{n}");
        let made = v.fs.clone_dir(&root, of, ROOT, name.as_bytes()).expect("a clone");
        let dir = v.find(made.root, &format!("d{}", n % DIRECTORIES)).expect("it is there").node;
        v.file(dir, "made in the clone");
        v.fs.unlink(&root, dir, b"f3").expect("it is there");
        of = if n % 3 == 0 { made.root } else { v.find(ROOT, "top").expect("it is there").node };
    }
    let with = look(&v.fs);
    assert!(with.is_clean(), "{:?}", with.problems);
    let each = (with.records - alone.records) as usize / clones;
    println!("{} records alone, {each} a clone", alone.records);
    assert!(each < 16 * (FILES + 10), "{each} records a clone, of {}", alone.records);
}

/// What is found when something is changed in the tree of a copy, and nowhere else.
fn found(v: &Volume, clones: bool, wrong: impl FnOnce(TreeId, &mut Batch)) -> VolumeReport {
    let of = if clones {
        inode::SubvolId(v.find(ROOT, "s3").expect("it is there").node.slot().0)
    } else {
        let top = v.find(ROOT, "top").expect("it is there").node;
        let all = v.fs.snapshot_list(&Caller::root(), top).expect("a list");
        all.iter().find(|one| one.name == b"s3").expect("it is there").subvol
    };
    let volume = TreeId(key::VOLUME_TREE);
    let record = v.store.get(volume, &key::subvolume(of.0)).expect("it reads");
    let record = SubvolumeRecord::decode(&record.expect("it is there")).expect("a record");
    let mut batch = Batch::new();
    wrong(TreeId(record.tree), &mut batch);
    v.store.commit(&batch).expect("there is space");
    let report = look(&v.fs);
    assert!(!report.is_clean(), "nothing was found in {of:?}");
    for problem in &report.problems {
        assert_eq!(problem.subvolume, of.0, "{problem:?}");
    }
    report
}

#[test]
fn damage_in_a_snapshot_only_is_reported_there() {
    wrong_in_one(false);
}

#[test]
fn damage_in_a_clone_only_is_reported_there() {
    wrong_in_one(true);
}

#[expect(clippy::print_stdout, reason = "prints what was found of each")]
fn wrong_in_one(clones: bool) {
    for n in 0..9 {
        let (v, dirs) = filled();
        let top = v.find(ROOT, "top").expect("it is there").node;
        for n in 0..6 {
            let (root, name) = (Caller::root(), format!("s{n}").into_bytes());
            if clones {
                v.fs.clone_dir(&root, top, ROOT, &name).map(drop).expect("space");
            } else {
                v.fs.snapshot_create(&root, top, &name).map(drop).expect("space");
            }
            change(&v, &dirs, n);
        }
        let dir = dirs[9].ino().0;
        let file = v.find(dirs[9], "f5").expect("it is there").node.ino().0;
        let linked = v.find(dirs[9], "again").expect("it is there").node.ino().0;
        let large = v.find(dirs[9], "f19").expect("it is there").node.ino().0;
        let cookie = |tree: TreeId, ino: u64| cookie_of(&v, tree, dir, ino);
        let record = |tree: TreeId| {
            let key = key::directory(dir, Part::Attributes);
            let value = v.store.get(tree, &key).expect("it reads").expect("it is there");
            (key, DirectoryRecord::decode(&value).expect("a record"))
        };
        let report = found(&v, clones, |tree, batch| match n {
            0 => batch.delete(tree, &key::directory(dir, Part::Attributes)),
            1 => batch.delete(tree, &key::entry(dir, cookie(tree, file), Part::Attributes)),
            2 => batch.delete(tree, &key::linked(linked, Part::Attributes)),
            3 => {
                let (key, record) = record(tree);
                batch.put(tree, &key, &DirectoryRecord { parent: dir, ..record }.encode());
            }
            4 => {
                let (key, record) = record(tree);
                batch.put(tree, &key, &DirectoryRecord { entries: 99, ..record }.encode());
            }
            6 => batch.delete(tree, &key::directory(top.ino().0, Part::Attributes)),
            // Beside an inode that stays.
            7 => {
                let stored = stored_at(&v, tree, large);
                let mut checksums = Checksums::empty();
                for checksum in stored.checksums.as_slice() {
                    checksums.push(checksum ^ 1);
                }
                put_extent(batch, tree, (large, 0), &Stored { checksums, ..stored });
            }
            8 => {
                let stored = stored_at(&v, tree, large);
                let half = stored.length / 2;
                put_extent(batch, tree, (large, 0), &stored.part(0, half));
                let rest = stored.part(half, stored.length - half);
                put_extent(batch, tree, (large, 100), &rest);
            }
            _ => {
                // The same inode beside a name in another directory.
                let value =
                    v.store.get(tree, &key::entry(dir, cookie(tree, file), Part::Attributes));
                let value = value.expect("it reads").expect("it is there");
                let other = dirs[11].ino().0;
                batch.put(tree, &key::entry(other, cookie(tree, file), Part::Attributes), &value);
            }
        });
        let kinds: Vec<ProblemKind> = report.problems.iter().map(|problem| problem.kind).collect();
        println!("{n}: {kinds:?}");
    }
}

/// The first extent of a file.
fn stored_at(v: &Volume, tree: TreeId, ino: u64) -> Stored {
    let value = v.store.get(tree, &key::extent(ino, 0)).expect("it reads").expect("it is there");
    match extent::decode(&value) {
        Ok(Extent::Stored(stored)) => stored,
        other => panic!("{other:?}"),
    }
}

fn put_extent(batch: &mut Batch, tree: TreeId, (ino, offset): (u64, u64), stored: &Stored) {
    let mut value = Vec::new();
    extent::encode_stored(&mut value, stored);
    batch.put(tree, &key::extent(ino, offset), &value);
}

/// The place in a directory where an inode is stored beside its name.
fn cookie_of(v: &Volume, tree: TreeId, dir: u64, ino: u64) -> u64 {
    let range = store::KeyRange::prefix(&key::directory_prefix(dir));
    let mut cursor = v.store.scan(tree, range).expect("it reads");
    while let Some(item) = cursor.next().expect("it reads") {
        let Ok(key::Parsed::Entry { cookie: cookie @ 1.., part: Part::Attributes, .. }) =
            key::parse(item.key)
        else {
            continue;
        };
        if EntryRecord::decode(item.value).is_ok_and(|entry| entry.ino == ino) {
            return cookie;
        }
    }
    panic!("inode {ino} is not in directory {dir}");
}
