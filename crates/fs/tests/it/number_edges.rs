//! The last inode and the last subvolume that a volume can have, and slots that are reused.
//! Counters are set near their ends, because no test can count so far. Anything beyond is refused
//! as in `docs/limits.md`, and changes nothing: neither the contents, nor the trash, whose removal
//! would free no number.

use format::key::{self, Counter};
use fs::{Engine, FileSystem, Fs, FsResult, NewNode, RenameMode, RestoreOptions};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SubvolId};
use store::{Batch, Durability, TreeId};
use testing::SimDevice;
use testing::model::Dump;

use crate::check::assert_clean;
use crate::check::volume::falsify;
use crate::script::{SNAPSHOTS, options};
use crate::subject::{Base, FsSubject};

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
/// Where numbers of inodes of home 0 end: 2^49, of which the last is not used.
const INODES_END: u64 = key::last_inode_of(0);
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// A volume with some of everything.
fn filled(engine: Engine) -> (SimDevice, Base) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let directory = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).expect("space").node;
    for name in [b"one", b"two"] {
        let file = fs.mknod(&root, directory, name, &FILE).expect("space").node;
        fs.write(&root, file, 0, name).expect("space");
        fs.forget(file, 1);
    }
    fs.snapshot_create(&root, directory, b"s").expect("a snapshot");
    fs.forget(directory, 1);
    fs.close().expect("it closes");
    (device, subject.base().clone())
}

fn set_counter(device: &SimDevice, counter: Counter, to: u64) {
    falsify(device, |store| {
        let mut batch = Batch::new();
        batch.put(VOLUME, &key::counter(counter), &to.to_le_bytes());
        store.commit(&batch).expect("it is taken");
    });
}

fn opened(device: &SimDevice, base: &Base) -> FsSubject {
    FsSubject::open(device, &options(Durability::Async), base).expect("it opens")
}

fn closed(subject: FsSubject) {
    subject.fs().close().expect("it closes");
    drop(subject);
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: &FsResult<T>, place: &str) {
    assert!(matches!(result, Err(FsError::LimitReached(_))), "{place}: {result:?}");
}

/// Everything that makes an inode is refused.
#[track_caller]
fn check_no_inode(fs: &Fs, directory: NodeId, place: &str) {
    let root = Caller::root();
    refused(&fs.mknod(&root, directory, b"more", &FILE), place);
    refused(&fs.mkdir(&root, directory, b"more", 0o755), place);
    refused(&fs.symlink(&root, directory, b"more", b"target"), place);
    refused(&fs.tmpfile(&root, directory, 0o644), place);
    refused(&fs.subvolume_create(&root, directory, b"more", 0o755), place);
}

/// Everything that makes a subvolume is refused.
#[track_caller]
fn check_no_subvolume(fs: &Fs, directory: NodeId, place: &str) {
    let root = Caller::root();
    refused(&fs.snapshot_create(&root, directory, b"more"), place);
    refused(&fs.clone_dir(&root, directory, NodeId::ROOT, b"more"), place);
    refused(&fs.subvolume_create(&root, directory, b"more", 0o755), place);
}

fn directory(fs: &Fs) -> NodeId {
    fs.lookup(&Caller::root(), NodeId::ROOT, b"d").expect("it is there").node
}

#[test]
fn the_last_inode_number_is_used_and_the_next_refused() {
    for engine in Engine::ALL {
        let place = format!("{engine:?}");
        let (device, base) = filled(engine);
        set_counter(&device, Counter::NextIno, INODES_END - 3);
        let mut subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        let inside = directory(fs);
        let free = |fs: &Fs| fs.statfs(NodeId::ROOT).expect("it answers").inodes_free;
        assert_eq!(free(fs), 3, "{place}");
        for name in ["last but two", "last but one", "last"] {
            let made = fs.mknod(&root, inside, name.as_bytes(), &FILE).expect("a number");
            assert!(made.node.ino().0 < INODES_END, "{place}");
            fs.write(&root, made.node, 0, b"contents").expect("space");
            fs.forget(made.node, 1);
        }
        assert_eq!(free(fs), 0, "{place}");
        let before = Dump::collect(&mut subject, SNAPSHOTS);
        let fs = subject.fs();
        check_no_inode(fs, inside, &place);
        assert_eq!(before.differences(&Dump::collect(&mut subject, SNAPSHOTS)), [""; 0]);
        // Operations that create nothing continue.
        let fs = subject.fs();
        assert_eq!(free(fs), 0, "{place}");
        fs.snapshot_create(&root, inside, b"t").expect("a snapshot");
        fs.clone_dir(&root, inside, NodeId::ROOT, b"clone").expect("a clone");
        fs.rename(&root, (inside, b"one"), (inside, b"1"), RenameMode::Replace).expect("it is");
        fs.unlink(&root, inside, b"two").expect("it is there");
        let last = fs.lookup(&root, inside, b"last").expect("it is there").node;
        fs.link(&root, last, inside, b"link").expect("a name");
        fs.forget(last, 1);
        refused(&fs.mknod(&root, inside, b"two", &FILE), &place);
        subject.background(50).expect("background work goes well");
        let before = Dump::collect(&mut subject, SNAPSHOTS);
        closed(subject);
        assert_clean(&device, &place);
        let mut subject = opened(&device, &base);
        assert_eq!(before.differences(&Dump::collect(&mut subject, SNAPSHOTS)), [""; 0]);
        check_no_inode(subject.fs(), directory(subject.fs()), &format!("{place}, opened again"));
        closed(subject);
        assert_clean(&device, &format!("{place}, opened again"));
    }
}

#[test]
fn the_last_subvolume_number_is_used_and_the_next_refused() {
    for engine in Engine::ALL {
        let place = format!("{engine:?}");
        let (device, base) = filled(engine);
        set_counter(&device, Counter::NextSubvolume, SubvolId::MAX.0 - 2);
        let mut subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        let inside = directory(fs);
        fs.snapshot_create(&root, inside, b"last but two").expect("there are numbers");
        fs.subvolume_create(&root, inside, b"last but one", 0o755).expect("there are numbers");
        let other = fs.mkdir(&root, NodeId::ROOT, b"other", 0o755).expect("space").node;
        let last = fs.clone_dir(&root, other, NodeId::ROOT, b"last").expect("the last number").root;
        assert_eq!(last.slot(), SubvolId::MAX.slot(), "{place}");
        let file = fs.mknod(&root, last, b"in the last", &FILE).expect("space").node;
        fs.write(&root, file, 0, b"contents").expect("space");
        fs.forget(file, 1);
        let before = Dump::collect(&mut subject, SNAPSHOTS);
        check_no_subvolume(subject.fs(), inside, &place);
        check_no_subvolume(subject.fs(), last, &place);
        assert_eq!(before.differences(&Dump::collect(&mut subject, SNAPSHOTS)), [""; 0]);
        subject.background(50).expect("background work goes well");
        closed(subject);
        assert_clean(&device, &place);
        let mut subject = opened(&device, &base);
        assert_eq!(before.differences(&Dump::collect(&mut subject, SNAPSHOTS)), [""; 0]);
        check_no_subvolume(subject.fs(), directory(subject.fs()), &place);
        closed(subject);
        assert_clean(&device, &format!("{place}, opened again"));
    }
}

/// Numbers continue where the slots end, and skip occupied slots. On disk and by number each
/// subvolume is itself, and the next opening finds it by its slot.
#[test]
fn slots_are_reused_and_numbers_are_not() {
    for engine in Engine::ALL {
        let place = format!("{engine:?}");
        let (device, base) = filled(engine);
        let root = Caller::root();
        set_counter(&device, Counter::NextSubvolume, key::SLOT_MAX);
        let mut subject = opened(&device, &base);
        let fs = subject.fs();
        let inside = directory(fs);
        let last = fs.snapshot_create(&root, inside, b"last").expect("a snapshot");
        assert_eq!(last.subvol, SubvolId(key::SLOT_MAX), "{place}");
        // 1 is the root and 2 the snapshot that the volume was made with.
        let first = fs.snapshot_create(&root, inside, b"first").expect("a snapshot");
        assert_eq!(first.subvol, SubvolId((1 << key::SLOT_BITS) + 3), "{place}");
        let clone = fs.clone_dir(&root, inside, NodeId::ROOT, b"clone").expect("a clone");
        let made = fs.subvolume_create(&root, NodeId::ROOT, b"made", 0o755).expect("space").node;
        assert_eq!(clone.root.slot().0, 4, "{place}");
        assert_eq!(fs.subvolume_of(made).expect("it is there").0, (1 << key::SLOT_BITS) + 5);
        let file = fs.mknod(&root, clone.root, b"file", &FILE).expect("space").node;
        fs.write(&root, file, 0, b"contents").expect("space");
        fs.forget(file, 1);
        let before = Dump::collect(&mut subject, SNAPSHOTS);
        closed(subject);
        assert_clean(&device, &place);

        // A slot of generation 0 that its subvolume has left is used in the next round.
        let subject = opened(&device, &base);
        subject.fs().snapshot_delete(&root, directory(subject.fs()), b"s").expect("it is there");
        closed(subject);
        set_counter(&device, Counter::NextSubvolume, (2 << key::SLOT_BITS) + 1);
        let mut subject = opened(&device, &base);
        subject.background(50).expect("background work goes well");
        let fs = subject.fs();
        let inside = directory(fs);
        let again = fs.snapshot_create(&root, inside, b"s").expect("a snapshot");
        assert_eq!(again.subvol, SubvolId((2 << key::SLOT_BITS) + 2), "{place}");
        let next = fs.snapshot_create(&root, inside, b"next").expect("a snapshot");
        assert_eq!(next.subvol, SubvolId((2 << key::SLOT_BITS) + 6), "{place}: 3 to 5 are taken");
        fs.snapshot_delete(&root, inside, b"next").expect("it is there");
        assert_eq!(before.differences(&Dump::collect(&mut subject, SNAPSHOTS)), [""; 0]);
        // By number, the one that had the slot before is not the one that has it now.
        let fs = subject.fs();
        let gone = fs.snapshot_entry(&root, SubvolId(2)).map(drop);
        assert!(matches!(gone, Err(FsError::NotFound)), "{place}: {gone:?}");
        fs.snapshot_entry(&root, again.subvol).expect("it is there");
        subject.background(50).expect("background work goes well");
        closed(subject);
        assert_clean(&device, &place);
    }
}

/// A copy that was refused half-way used its numbers up until the volume was opened again.
#[test]
fn a_refused_copy_uses_no_number() {
    for engine in Engine::ALL {
        let place = format!("{engine:?}");
        let (device, base) = filled(engine);
        let subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        let above = fs.mkdir(&root, NodeId::ROOT, b"above", 0o755).expect("space").node;
        for name in [b"1", b"2", b"3"] {
            fs.subvolume_create(&root, above, name, 0o755).expect("a subvolume");
        }
        closed(subject);
        set_counter(&device, Counter::NextSubvolume, SubvolId::MAX.0 - 2);
        let subject = opened(&device, &base);
        let fs = subject.fs();
        let find = |above, name: &[u8]| fs.lookup(&root, above, name).map(|entry| entry.node);
        let above = find(NodeId::ROOT, b"above").expect("it is there");
        // One for the snapshot, and one for each that is looked up in it: there are three.
        fs.snapshot_create(&root, above, b"s").expect("there are numbers");
        let snapshots = find(above, SNAPSHOTS).expect("every directory has it");
        let shown = find(snapshots, b"s").expect("it was made just now");
        find(shown, b"1").expect("there are numbers");
        for _ in 0..3 {
            // What is refused for another reason uses none up.
            let exists = fs.clone_dir(&root, above, NodeId::ROOT, b"above");
            assert!(matches!(exists, Err(FsError::Exists)), "{place}: {exists:?}");
        }
        let last = find(shown, b"2").expect("the last number");
        assert_eq!(last.slot(), SubvolId::MAX.slot(), "{place}");
        for _ in 0..3 {
            refused(&find(shown, b"3"), &place);
            refused(&fs.clone_dir(&root, above, NodeId::ROOT, b"c"), &place);
        }
        let own = fs.subvolume_create(&root, above, b"4", 0o755);
        refused(&own, &place);
        closed(subject);
        assert_clean(&device, &place);
    }
}

/// A volume that is often opened and closed returns the reserved inode numbers.
#[test]
fn unused_inode_numbers_are_available_after_reopening() {
    for engine in Engine::ALL {
        let (device, base) = filled(engine);
        let free = |fs: &Fs| fs.statfs(NodeId::ROOT).expect("it answers").inodes_free;
        let subject = opened(&device, &base);
        let first = free(subject.fs());
        closed(subject);
        let mut used = std::collections::BTreeSet::new();
        for round in 0..20_u64 {
            let subject = opened(&device, &base);
            let (fs, root) = (subject.fs(), Caller::root());
            assert_eq!(free(fs), first - round, "{engine:?}");
            let inside = directory(fs);
            let name = format!("{round}");
            let made = fs.mknod(&root, inside, name.as_bytes(), &FILE).expect("a number").node;
            assert!(used.insert(made.shown()), "{engine:?}: {made:?} was used before");
            closed(subject);
        }
        // Without a close the rest of a range is skipped, and none is used twice.
        let subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        let made = fs.mknod(&root, directory(fs), b"last", &FILE).expect("a number").node;
        assert!(used.insert(made.shown()));
        fs.sync().expect("it is durable");
        drop(subject);
        let subject = opened(&device, &base);
        let fs = subject.fs();
        assert!(free(fs) < first - 21, "{engine:?}");
        let made = fs.mknod(&root, directory(fs), b"behind", &FILE).expect("a number").node;
        assert!(used.insert(made.shown()), "{engine:?}: {made:?} was used before");
        closed(subject);
        assert_clean(&device, &format!("{engine:?}"));
    }
}

/// An operation that was refused an inode number searched for space, as if the disk were full. So
/// hour after hour of the trash was deleted for it.
#[test]
fn inode_numbers_are_not_searched_in_the_trash() {
    for engine in Engine::ALL {
        let (device, base) = filled(engine);
        let subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        fs.trash_set(&root, NodeId::ROOT, Some(86_400)).expect("a trash");
        let inside = directory(fs);
        fs.unlink(&root, inside, b"one").expect("it is there");
        closed(subject);
        set_counter(&device, Counter::NextIno, INODES_END);
        let subject = opened(&device, &base);
        let fs = subject.fs();
        let inside = directory(fs);
        check_no_inode(fs, inside, &format!("{engine:?}"));
        let options = RestoreOptions::default();
        fs.restore(&root, (inside, &[b"one".to_vec()]), None, &options).expect("it is kept");
        let file = fs.lookup(&root, inside, b"one").expect("it is back").node;
        let mut bytes = [0; 8];
        assert_eq!(fs.read(&root, file, 0, &mut bytes).expect("a file"), 3, "{engine:?}");
        assert_eq!(&bytes[..3], b"one");
    }
}

/// Between the greatest subvolume and the virtual directories is one number, of neither: a query
/// for a node of it overflowed the stack.
#[test]
fn a_number_of_no_subvolume_and_no_virtual_directory_is_stale() {
    for engine in Engine::ALL {
        let (device, base) = filled(engine);
        let subject = opened(&device, &base);
        let (fs, root) = (subject.fs(), Caller::root());
        let there = directory(fs);
        for node in [NodeId::narrow((key::SLOT_MAX + 1) << 40 | 1), NodeId::narrow(u64::MAX >> 1)] {
            let place = format!("{engine:?}, node {:x}", node.shown());
            let stale = |what: &str, result: Result<(), FsError>| {
                assert!(matches!(result, Err(FsError::Stale)), "{what}: {place}: {result:?}");
            };
            stale("getattr", fs.getattr(&root, node).map(drop));
            stale("setattr", fs.setattr(&root, node, &SetAttr::default()).map(drop));
            stale("access", fs.access(&root, node, 4));
            for name in [&b"name"[..], b".", b"..", b".snapshots"] {
                stale("lookup", fs.lookup(&root, node, name).map(drop));
            }
            stale("mkdir", fs.mkdir(&root, node, b"name", 0o755).map(drop));
            stale("rmdir", fs.rmdir(&root, node, b"name"));
            stale("unlink", fs.unlink(&root, node, b"name"));
            stale("rename", {
                fs.rename(&root, (node, b"name"), (there, b"name"), RenameMode::Replace).map(drop)
            });
            stale("getxattr", fs.getxattr(&root, node, b"user.a").map(drop));
            stale("snapshot", fs.snapshot_create(&root, node, b"name").map(drop));
            fs.forget(node, 1);
        }
        closed(subject);
        assert_clean(&device, &format!("{engine:?}"));
    }
}
