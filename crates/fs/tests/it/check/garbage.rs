//! What nothing names is reported, then noted, then deleted after its grace period; nothing is
//! deleted after a read error; and what is named stays.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::Env;
use format::kept_twice::COPY_TREE;
use format::key::{self, Counter};
use format::subvolume_record::SubvolumeRecord;
use fs::{Engine, FileSystem, Fs, GarbageKind, Gc, GcReport, OpenOptions};
use store::{Batch, Durability, KeyRange, TreeId};
use testing::model::Dump;
use testing::{SimDevice, SimEnv};

use super::records::subvolumes;
use super::volume::{falsify, look, made, opened_with};
use super::{assert_clean, check, repair};
use crate::script::SNAPSHOTS;

on_each_engine!(
    garbage_is_noted_and_deleted_after_its_time_and_not_before,
    nothing_is_deleted_where_something_cannot_be_read,
    a_collection_in_steps_beside_changes_frees_what_a_snapshot_held_and_nothing_else,
    what_is_reported_as_deleted_was_freed_and_is_reported_once,
    what_a_repair_would_put_back_is_not_collected,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
const TREE: TreeId = TreeId(key::FIRST_TREE);
const HOUR: Duration = Duration::from_secs(3600);

fn gc(fs: &Fs, how: Gc) -> GcReport {
    let mut proceed = |_, _| ControlFlow::Continue(());
    fs.gc(how, &mut proceed).expect("all can be read")
}

fn open(device: &SimDevice) -> (Arc<Fs>, SimEnv) {
    let sim = SimEnv::on(device.clone(), 5);
    let env = Env { device: Arc::new(device.clone()), ..sim.env() };
    let options = OpenOptions { index: None, ..opened_with(Durability::Async) };
    (Fs::open(env, &options).expect("it opens"), sim)
}

/// Loses the extents of a subvolume that nothing was copied of, and the record of a tree without
/// directories.
pub(super) fn lose(device: &SimDevice) {
    falsify(device, |store| {
        let mut batch = Batch::new();
        let subvolumes = KeyRange::prefix(&key::SUBVOLUMES_PREFIX);
        let mut cursor = store.scan(VOLUME, subvolumes).expect("it is there");
        let mut trees = Vec::new();
        while let Some(item) = cursor.next().expect("it can be read") {
            let record = SubvolumeRecord::decode(item.value).expect("it decodes");
            if record.source.0 == 0 && record.parent.0 != 0 {
                trees.push(TreeId(record.tree));
            }
        }
        drop(cursor);
        assert_eq!(trees.len(), 1, "there is one subvolume that was made empty");
        let extents = KeyRange::prefix(&key::EXTENTS_PREFIX);
        let mut cursor = store.scan(trees[0], extents).expect("it is there");
        while let Some(item) = cursor.next().expect("it can be read") {
            batch.delete(trees[0], item.key);
        }
        drop(cursor);
        batch.clone_prefixes(TREE, TreeId(key::FIRST_TREE + 50), &[&key::EXTENTS_PREFIX]);
        let next = key::FIRST_TREE + 51;
        batch.put(VOLUME, &key::counter(Counter::NextTree), &next.to_le_bytes());
        store.commit(&batch).expect("there is space");
    });
}

fn garbage_is_noted_and_deleted_after_its_time_and_not_before(engine: Engine) {
    let made = made(engine, 3);
    let (fs, _) = open(&made.device.copy());
    let clean = gc(&fs, Gc::Report);
    let trees = |report: &GcReport| {
        report.garbage.iter().filter(|found| found.kind == GarbageKind::Tree).count()
    };
    assert_eq!(trees(&clean), 0, "{clean:?}");
    fs.close().unwrap();
    let device = made.device.copy();
    lose(&device);
    let (fs, sim) = open(&device);
    let reported = gc(&fs, Gc::Report);
    assert_eq!(trees(&reported), 1, "{reported:?}");
    let bytes = |report: &GcReport| report.garbage.iter().map(|found| found.bytes).sum::<u64>();
    assert!(bytes(&reported) > bytes(&clean), "{reported:?} {clean:?}");
    assert!(reported.garbage.iter().all(|found| found.since.is_none() && !found.deleted));
    // Noted, and an hour has not passed.
    let noted = gc(&fs, Gc::Delete { grace: HOUR });
    assert!(noted.garbage.iter().all(|found| found.since.is_some() && !found.deleted));
    sim.clock.advance(HOUR / 2);
    assert!(gc(&fs, Gc::Delete { grace: HOUR }).garbage.iter().all(|found| !found.deleted));
    sim.clock.advance(HOUR);
    let deleted = gc(&fs, Gc::Delete { grace: HOUR });
    assert!(deleted.garbage.iter().all(|found| found.deleted), "{deleted:?}");
    assert!(deleted.freed_bytes > 0);
    for _ in 0..200 {
        fs.background_step(64).unwrap();
    }
    let after = gc(&fs, Gc::Delete { grace: HOUR });
    assert_eq!(trees(&after), 0, "{after:?}");
    fs.close().unwrap();
    // What a snapshot and a clone of the files name is all there.
    let report = check(&device);
    let other = |path: &[u8]| path.starts_with(b"/clone") || path.starts_with(b"/one/.snapshots");
    assert!(
        report.problems.iter().all(|found| !other(&found.path)),
        "{}",
        super::reported(&report)
    );
    let looked = look(&device, &made.right);
    assert_eq!((looked.refused, &looked.closed), (0, &None));
}

fn what_is_reported_as_deleted_was_freed_and_is_reported_once(engine: Engine) {
    let made = made(engine, 6);
    let device = made.device.copy();
    lose(&device);
    let (fs, _) = open(&device);
    let contents = |device: &SimDevice| {
        let files = device.files().into_iter().filter(|(path, _)| path.starts_with("data/"));
        let bytes = |(path, _): (String, u64)| {
            let found = device::Device::metadata(device, &path).expect("it is there");
            found.map_or(0, |found| found.disk_bytes)
        };
        files.map(bytes).sum::<u64>()
    };
    let at_once = Gc::Delete { grace: Duration::ZERO };
    let reported: u64 = gc(&fs, Gc::Report).garbage.iter().map(|found| found.bytes).sum();
    let before = contents(&device);
    let first = gc(&fs, at_once);
    assert!(first.garbage.iter().all(|found| found.deleted), "{first:?}");
    let bytes: u64 = first.garbage.iter().map(|found| found.bytes).sum();
    assert!(bytes > 0 && bytes == reported, "{reported}, {first:?}");
    assert_eq!(first.freed_bytes, bytes, "{first:?}");
    assert_eq!(before - contents(&device), bytes, "{first:?}");
    for _ in 0..2 {
        let again = gc(&fs, at_once);
        assert_eq!((again.garbage, again.freed_bytes), (Vec::new(), 0));
        assert_eq!(again.live_bytes, first.live_bytes);
    }
    fs.close().unwrap();
}

/// Bytes of what holds records or points to them: in nodes of the B-tree, or runs.
fn records(device: &SimDevice, engine: Engine) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for (path, length) in device.files() {
        match engine {
            Engine::Btree if path == "btree/nodes" => {
                let bytes = device.read_file(&path);
                for at in (0..bytes.len()).step_by(format::node::UNIT_BYTES) {
                    let node = &bytes[at..];
                    if node.starts_with(&format::node::MAGIC) && node[6] <= 2 {
                        found.push((path.clone(), at as u64 + 50));
                    }
                }
            }
            Engine::Lsm if path.starts_with("lsm/run-") => {
                let start = format::run_index::BLOB_HEAD_BYTES as u64;
                found.extend((start..length).step_by(1024).map(|at| (path.clone(), at)));
            }
            _ => {}
        }
    }
    found
}

fn nothing_is_deleted_where_something_cannot_be_read(engine: Engine) {
    let made = made(engine, 4);
    let device = made.device.copy();
    lose(&device);
    let (mut refused, mut looked_at) = (0, 0);
    for (path, at) in records(&device, engine) {
        let hurt = device.copy();
        hurt.flip_bit(&path, at * 8);
        looked_at += 1;
        let sim = SimEnv::on(hurt.clone(), 5);
        let env = Env { device: Arc::new(hurt.clone()), ..sim.env() };
        let options = OpenOptions { index: None, ..opened_with(Durability::Async) };
        let Ok(fs) = Fs::open(env, &options) else { continue };
        let mut proceed = |_, _| ControlFlow::Continue(());
        let files = hurt.files().len();
        if let Err(error) = fs.gc(Gc::Delete { grace: Duration::ZERO }, &mut proceed) {
            refused += 1;
            let message = error.to_string();
            assert!(message.contains(&path), "{path}, byte {at}: in which file? {message}");
            assert_eq!(hurt.files().len(), files, "{path}, byte {at}: something was deleted");
        }
        drop(fs);
        // Whatever it did: all that can be read still reads as it was.
        let looked = look(&hurt, &made.right);
        let lost =
            |what: &&String| what.contains("wrong contents") && !what.contains("111, 110, 101]");
        assert!(
            !looked.wrong.iter().any(|what| lost(&what)),
            "{path}, byte {at}: {:?}",
            looked.wrong
        );
    }
    println!("{looked_at} places were damaged, {refused} collections given up");
    assert!(refused > 3);
}

fn a_collection_in_steps_beside_changes_frees_what_a_snapshot_held_and_nothing_else(
    engine: Engine,
) {
    let made = made(engine, 5);
    let device = made.device.copy();
    let (fs, _) = open(&device);
    let root = inode::Caller::root();
    let one = fs.lookup(&root, inode::NodeId::ROOT, b"one").unwrap().node;
    fs.snapshot_delete(&root, one, b"before").unwrap();
    let new = fs::NewNode { kind: inode::Kind::File, mode: 0o600, rdev: 0 };
    for n in 0..300_u32 {
        fs.background_step(16).unwrap();
        let file = fs.mknod(&root, one, format!("beside {n}").as_bytes(), &new).unwrap().node;
        fs.write(&root, file, 0, &vec![n as u8; 6000]).unwrap();
        if n % 3 == 0 {
            fs.unlink(&root, one, format!("beside {n}").as_bytes()).unwrap();
        }
    }
    for _ in 0..300 {
        fs.background_step(64).unwrap();
    }
    for n in (0..300_u32).filter(|n| n % 3 != 0) {
        let file = fs.lookup(&root, one, format!("beside {n}").as_bytes()).unwrap().node;
        let mut bytes = vec![0; 6000];
        assert_eq!(fs.read(&root, file, 0, &mut bytes).unwrap(), 6000);
        assert!(bytes == vec![n as u8; 6000]);
    }
    fs.close().unwrap();
    drop(fs);
    assert_clean(&device, "after the collection");
}

/// The subvolume whose record is gone, with everything in it: its tree was dropped, and before that
/// any collection freed its contents.
fn what_a_repair_would_put_back_is_not_collected(engine: Engine) {
    let made = made(engine, 8);
    for is_copy_left in [false, true] {
        let place = format!("{engine:?}, a copy of the record is left: {is_copy_left}");
        let (device, tree) = unnamed(&made.device, is_copy_left);
        let (fs, sim) = open(&device);
        // In the background, after removals.
        fs.collect_garbage().expect("all can be read");
        for how in [Gc::Report, Gc::Delete { grace: HOUR }, Gc::Delete { grace: HOUR }] {
            let mut proceed = |_, _| ControlFlow::Continue(());
            match fs.gc(how, &mut proceed) {
                Ok(report) => {
                    let of_trees = |found: &&fs::Garbage| found.name == tree.to_string();
                    let reported: Vec<_> = report.garbage.iter().filter(of_trees).collect();
                    assert_eq!(reported.len(), 1, "{place}: {report:?}");
                    assert_eq!(reported[0].kind, GarbageKind::LostTree, "{place}");
                    assert!(
                        reported[0].since.is_none() && !reported[0].deleted,
                        "{place}: {reported:?}"
                    );
                }
                Err(error) => assert!(is_copy_left, "{place}: {error}"),
            }
            sim.clock.advance(HOUR * 2);
        }
        for _ in 0..200 {
            fs.background_step(64).unwrap();
        }
        fs.close().unwrap();
        drop(fs);
        repair(&device);
        assert_clean(&device, &place);
        let path = if is_copy_left {
            vec![b"one".to_vec(), b"deep".to_vec(), b"sub".to_vec()]
        } else {
            vec![b"lost+found".to_vec(), format!("#tree-{tree}").into_bytes()]
        };
        let found = Dump::collect(&mut super::volume::open(&device).expect("it opens"), SNAPSHOTS);
        let sub = [b"one".to_vec(), b"deep".to_vec(), b"sub".to_vec()];
        let mut files = 0;
        for (was, node) in made.right.nodes.iter().filter(|(was, _)| was.starts_with(&sub)) {
            let now = [&path[..], &was[sub.len()..]].concat();
            let other = found.nodes.get(&now).unwrap_or_else(|| panic!("{place}: {now:?}"));
            assert!(node.bytes == other.bytes, "{place}: {now:?}");
            files += u64::from(node.bytes.len() > 9000);
        }
        assert!(files >= 4, "{place}: {files} files with contents in segments");
    }
}

/// Loses the record of the subvolume that was made empty, and its copy, too, or not. Its tree.
fn unnamed(device: &SimDevice, is_copy_left: bool) -> (SimDevice, u64) {
    let (device, mut tree) = (device.copy(), 0);
    falsify(&device, |store| {
        let is_it =
            |(_, record): &(u64, SubvolumeRecord)| record.parent.0 != 0 && record.source.0 == 0;
        let (id, record) = subvolumes(store).into_iter().find(is_it).expect("there is one");
        let mut batch = Batch::new();
        batch.delete(VOLUME, &key::subvolume(id));
        store.commit(&batch).expect("there is space");
        if is_copy_left {
            let mut batch = Batch::new();
            batch.put(TreeId(COPY_TREE), &key::subvolume(id), &record.encode());
            store.commit(&batch).expect("there is space");
        }
        tree = record.tree;
    });
    (device, tree)
}
