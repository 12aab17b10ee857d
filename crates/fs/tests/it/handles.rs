//! Inodes that are found by their numbers alone, like handles that the kernel forgot, or after a
//! remount or a crash. They are found if names point to them, and not otherwise.

use format::key::{self, Counter};
use fs::{Engine, FileSystem, Fs, NewNode, RenameMode};
use inode::{Caller, FsError, Ino, Kind, NodeId, SetAttr, SubvolId};
use store::{Batch, Durability, TreeId};
use testing::SimDevice;

use crate::check::assert_clean;
use crate::check::volume::falsify;
use crate::script::options;
use crate::subject::{Base, FsSubject};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

fn root() -> Caller {
    Caller::root()
}

fn fresh(engine: Engine) -> (SimDevice, FsSubject) {
    let device = SimDevice::new(1);
    let options = options(Durability::Async);
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    (device, subject)
}

fn reopened(device: &SimDevice, subject: FsSubject) -> FsSubject {
    let base = subject.base().clone();
    subject.fs().close().expect("it closes");
    drop(subject);
    FsSubject::open(device, &options(Durability::Async), &base).expect("it opens")
}

fn all_of(fs: &Fs, node: NodeId) {
    fs.forget(node, u64::from(u32::MAX));
}

fn dir(fs: &Fs, parent: NodeId, name: &str) -> NodeId {
    let node = fs.mkdir(&root(), parent, name.as_bytes(), 0o755).expect("space").node;
    all_of(fs, node);
    node
}

/// A file whose contents are its name.
fn file(fs: &Fs, parent: NodeId, name: &str) -> NodeId {
    let node = fs.mknod(&root(), parent, name.as_bytes(), &FILE).expect("space").node;
    fs.write(&root(), node, 0, name.as_bytes()).expect("space");
    all_of(fs, node);
    node
}

#[track_caller]
fn found(fs: &Fs, top: NodeId, node: NodeId, contents: &str) {
    let entry = fs.find_by_number(top, node).expect("it is there");
    assert_eq!((entry.node, entry.attr.node), (node, node));
    if entry.attr.kind == Kind::File {
        let mut bytes = [0; 64];
        let read = fs.read(&root(), node, 0, &mut bytes).expect("it reads");
        assert_eq!(&bytes[..read], contents.as_bytes());
    }
    fs.setattr(&root(), node, &SetAttr::default()).expect("it is held");
    fs.forget(node, 1);
}

#[track_caller]
fn stale(fs: &Fs, top: NodeId, node: NodeId) {
    let found = fs.find_by_number(top, node).map(drop);
    assert!(matches!(found, Err(FsError::Stale)), "{node:?}: {found:?}");
}

#[test]
fn handles_find_named_files_and_no_removed_ones() {
    for engine in Engine::ALL {
        let (device, mut subject) = fresh(engine);
        let fs = subject.fs();
        let (one, two) = (dir(fs, NodeId::ROOT, "one"), dir(fs, NodeId::ROOT, "two"));
        let below = dir(fs, one, "below");
        let (file_a, file_b) = (file(fs, below, "a"), file(fs, NodeId::ROOT, "b"));
        let linked = file(fs, one, "linked");
        for name in [&b"again"[..], b"third"] {
            let held = fs.lookup(&root(), one, b"linked").expect("it is there").node;
            fs.link(&root(), held, two, name).expect("space");
            all_of(fs, held);
        }
        let many: Vec<_> = (0..300).map(|at| file(fs, two, &format!("f{at}"))).collect();
        for round in 0..3 {
            let fs = subject.fs();
            for (node, contents) in [(file_a, "a"), (file_b, "b"), (linked, "linked")] {
                found(fs, NodeId::ROOT, node, contents);
            }
            for node in [one, two, below] {
                found(fs, NodeId::ROOT, node, "");
            }
            for (at, node) in many.iter().enumerate().step_by(37) {
                found(fs, NodeId::ROOT, *node, &format!("f{at}"));
            }
            // These were never created.
            stale(fs, NodeId::ROOT, NodeId::new(SubvolId(1), Ino(1 << 39)));
            stale(fs, NodeId::ROOT, NodeId::new(SubvolId(77), file_a.ino()));
            match round {
                0 => fs.index_flush(NodeId::ROOT).expect("a base is made"),
                _ => subject = reopened(&device, subject),
            }
        }
        let fs = subject.fs();
        fs.rename(&root(), (below, b"a"), (two, b"moved"), RenameMode::Replace).expect("it is");
        found(fs, NodeId::ROOT, file_a, "a");
        // A mount of a sub-directory shows what is in it.
        found(fs, two, file_a, "a");
        found(fs, two, linked, "linked");
        found(fs, two, two, "");
        for node in [file_b, one, below] {
            stale(fs, two, node);
        }
        fs.rename(&root(), (one, b"below"), (two, b"below"), RenameMode::Replace).expect("it is");
        found(fs, two, below, "");
        // The kernel let go of it, and we have not heard of that yet.
        fs.lookup(&root(), NodeId::ROOT, b"b").expect("it is there");
        found(fs, NodeId::ROOT, file_b, "b");
        fs.unlink(&root(), NodeId::ROOT, b"b").expect("it is there");
        stale(fs, NodeId::ROOT, file_b);
        fs.forget(file_b, 1);
        stale(fs, NodeId::ROOT, file_b);
        assert_ne!(file(fs, NodeId::ROOT, "b"), file_b);
        stale(fs, NodeId::ROOT, file_b);
        for name in [&b"again"[..], b"third"] {
            fs.unlink(&root(), two, name).expect("it is there");
            found(fs, NodeId::ROOT, linked, "linked");
        }
        fs.unlink(&root(), one, b"linked").expect("it is there");
        stale(fs, NodeId::ROOT, linked);
        fs.rmdir(&root(), two, b"below").expect("it is empty");
        stale(fs, NodeId::ROOT, below);
        // It waits to be reclaimed, with all that is in it.
        fs.rmr(&root(), NodeId::ROOT, b"two").expect("it is there");
        for node in [two, file_a, many[7]] {
            stale(fs, NodeId::ROOT, node);
        }
        subject.background(50).expect("background work goes well");
        let subject = reopened(&device, subject);
        stale(subject.fs(), NodeId::ROOT, many[7]);
        found(subject.fs(), NodeId::ROOT, one, "");
        subject.fs().close().expect("it closes");
        drop(subject);
        assert_clean(&device, &format!("{engine:?}"));
    }
}

#[test]
fn handles_of_snapshots_and_clones_find_only_their_own_files() {
    for engine in Engine::ALL {
        let (device, subject) = fresh(engine);
        let fs = subject.fs();
        let top = dir(fs, NodeId::ROOT, "top");
        let inside = dir(fs, top, "inside");
        let (here, outside) = (file(fs, inside, "here"), file(fs, NodeId::ROOT, "outside"));
        let snapshot = fs.snapshot_create(&root(), top, b"s").expect("space").subvol;
        // Clones that are mounted in one another have the same inodes.
        let clone = fs.clone_dir(&root(), top, NodeId::ROOT, b"clone").expect("space").subvol;
        let nested = fs.clone_dir(&root(), top, inside, b"nested").expect("space").subvol;
        fs.unlink(&root(), inside, b"here").expect("it is there");
        let subject = reopened(&device, subject);
        let fs = subject.fs();
        stale(fs, NodeId::ROOT, here);
        for subvol in [snapshot, clone, nested] {
            let of = |node: NodeId| NodeId::new(subvol, node.ino());
            let entry = fs.find_by_number(NodeId::ROOT, of(here)).expect("it is there");
            let mut bytes = [0; 8];
            assert_eq!(fs.read(&root(), entry.node, 0, &mut bytes).expect("it reads"), 4);
            assert_eq!(entry.node, of(here));
            all_of(fs, entry.node);
            for directory in [top, inside] {
                let entry = fs.find_by_number(NodeId::ROOT, of(directory)).expect("it is there");
                assert_eq!((entry.node, entry.attr.kind), (of(directory), Kind::Directory));
                all_of(fs, entry.node);
            }
            // The tree of a copy has it, and no name points there.
            stale(fs, NodeId::ROOT, of(outside));
            stale(fs, NodeId::ROOT, NodeId::new(subvol, Ino(2)));
        }
        fs.rmr(&root(), NodeId::ROOT, b"clone").expect("it is there");
        stale(fs, NodeId::ROOT, NodeId::new(clone, here.ino()));
        fs.snapshot_delete(&root(), top, b"s").expect("it is there");
        stale(fs, NodeId::ROOT, NodeId::new(snapshot, here.ino()));
    }
}

#[test]
fn generations_distinguish_subvolumes_of_one_slot() {
    for engine in Engine::ALL {
        let (device, subject) = fresh(engine);
        let base = subject.base().clone();
        let fs = subject.fs();
        let top = dir(fs, NodeId::ROOT, "top");
        let inside = file(fs, top, "inside");
        let old = fs.snapshot_create(&root(), top, b"old").expect("space").subvol;
        let handle = NodeId::new(old, inside.ino());
        assert_eq!((old, fs.generation(handle)), (SubvolId(2), 0));
        fs.snapshot_delete(&root(), top, b"old").expect("it is there");
        let subject = reopened(&device, subject);
        subject.background(50).expect("background work goes well");
        subject.fs().close().expect("it closes");
        drop(subject);
        falsify(&device, |store| {
            let mut batch = Batch::new();
            let next = (1_u64 << key::SLOT_BITS) + 2;
            let volume = TreeId(key::VOLUME_TREE);
            batch.put(volume, &key::counter(Counter::NextSubvolume), &next.to_le_bytes());
            store.commit(&batch).expect("it is taken");
        });
        let options = options(Durability::Async);
        let subject = FsSubject::open(&device, &options, &base).expect("it opens");
        stale(subject.fs(), NodeId::ROOT, handle);
        let new = subject.fs().snapshot_create(&root(), top, b"new").expect("space").subvol;
        assert_eq!(new, SubvolId((1 << key::SLOT_BITS) + 2));
        let subject = reopened(&device, subject);
        // The number is the same, the generation is not: the kernel answers ESTALE.
        let fs = subject.fs();
        assert_eq!(fs.find_by_number(NodeId::ROOT, handle).expect("it is there").node, handle);
        assert_eq!(fs.generation(handle), 1);
        assert_eq!(fs.generation(top), 0);
    }
}
