//! Volumes whose inodes have numbers of more than 40 bits: of another home, and of home 0 after the
//! first 2^40. What users see, searches, handles and checks agree, before and after reopening.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use format::kept_twice::RootCounter;
use format::key::{self, Counter};
use fs::{Engine, FileSystem, FormatOptions, Fs, NewNode, WalkControl};
use inode::{Caller, FsError, Ino, Kind, NodeId};
use search::cluster::Fields;
use search::query::{Expr, Test};
use search::{Attribute, Outcome};
use store::{Batch, Durability, TreeId};
use testing::{SimDevice, SimEnv};

use crate::check::assert_clean;
use crate::check::volume::falsify;
use crate::script::options;
use crate::search::everything_below;

on_each_engine!(
    all_numbers_of_an_inode_agree,
    the_counter_of_the_root_records_that_numbers_may_be_wide,
    numbers_of_another_home_are_its_own,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
/// The number from which on numbers are wide.
const WIDE: u64 = key::NARROW_INO_MAX + 1;

fn root() -> Caller {
    Caller::root()
}

fn formatted(engine: Engine, inode_home: u16) -> SimDevice {
    let device = SimDevice::new(1);
    let format = FormatOptions { engine, inode_home, ..FormatOptions::default() };
    Fs::format(&SimEnv::on(device.clone(), 1).env(), &format).expect("an empty disk");
    device
}

fn opened(device: &SimDevice) -> Arc<Fs> {
    let env = SimEnv::on(device.clone(), 2).env();
    Fs::open(env, &options(Durability::Async)).expect("it opens")
}

fn next_ino(device: &SimDevice, next: u64) {
    falsify(device, |store| {
        let mut batch = Batch::new();
        batch.put(VOLUME, &key::counter(Counter::NextIno), &next.to_le_bytes());
        store.commit(&batch).expect("it is taken");
    });
}

/// Some of everything: of each, as many as there are kinds of numbers.
fn fill(fs: &Fs) {
    for number in 0..8 {
        let name = |kind: &str| format!("{kind}{number}").into_bytes();
        let dir = fs.mkdir(&root(), NodeId::ROOT, &name("d"), 0o755).expect("space").node;
        for file in 0..3 {
            let made = fs.mknod(&root(), dir, &[b'a' + file], &FILE).expect("space").node;
            fs.write(&root(), made, 0, &[file; 9000]).expect("space");
            if file == 1 {
                fs.link(&root(), made, NodeId::ROOT, &name("l")).expect("space");
                fs.link(&root(), made, dir, b"again").expect("space");
            }
            fs.forget(made, u64::MAX);
        }
        let link = fs.symlink(&root(), dir, b"s", b"a").expect("space").node;
        fs.forget(link, 1);
        if number % 3 == 0 {
            fs.snapshot_create(&root(), dir, b"snap").expect("a snapshot");
            let clone = fs.clone_dir(&root(), dir, NodeId::ROOT, &name("c")).expect("a clone");
            let more = fs.mknod(&root(), clone.root, b"more", &FILE).expect("space").node;
            fs.forget(more, 1);
        }
        fs.forget(dir, u64::MAX);
    }
}

/// All nodes below a directory, with names and kinds, as listings show them.
fn walk(fs: &Fs, dir: NodeId, all: &mut Vec<(NodeId, Kind, u32)>) {
    let mut listed = Vec::new();
    let mut take = |entry: &fs::DirEntry<'_>| {
        listed.push((entry.name.to_vec(), entry.node, entry.kind));
        WalkControl::Continue
    };
    fs.readdir(&root(), dir, 0, &mut take).expect("it lists");
    for (name, node, kind) in listed {
        let found = fs.lookup(&root(), dir, &name).expect("it is there");
        assert_eq!((found.node, found.attr.node), (node, node));
        all.push((node, kind, found.attr.nlink));
        if kind == Kind::Directory {
            walk(fs, node, all);
        }
        fs.forget(node, 1);
    }
}

fn found(fs: &Fs, shown: u64, walks: bool) -> Vec<NodeId> {
    let expr = Expr::Test(Test::Within(Attribute::Ino, shown.into(), shown.into()));
    let caller = root();
    let request = everything_below(fs, NodeId::ROOT, &caller, (&expr, Fields::IDENTITY));
    let mut found = Vec::new();
    let mut emit = |row: &search::Match<'_>| {
        found.push(row.node());
        ControlFlow::Continue(())
    };
    let outcome: Outcome = if walks {
        fs.search_by_walking(&request, &mut emit)
    } else {
        fs.search(&request, &mut emit)
    }
    .expect("a search");
    assert_eq!(outcome.matched, found.len() as u64);
    found
}

/// Numbers of a volume that is open.
fn check(fs: &Fs, place: &str) {
    let mut all = Vec::new();
    walk(fs, NodeId::ROOT, &mut all);
    let (mut shown, mut names) = (BTreeMap::new(), BTreeMap::new());
    for (node, _, nlink) in &all {
        let other = shown.insert(node.shown(), *node);
        assert!(other.is_none_or(|other| other == *node), "{place}: {node:?} and {other:?}");
        let (_, seen) = names.entry(*node).or_insert((*nlink, 0_u32));
        *seen += 1;
    }
    let nodes: BTreeSet<NodeId> = all.iter().map(|(node, ..)| *node).collect();
    for (at, node) in nodes.iter().enumerate() {
        if at % 5 == 0 {
            let times = names[node].1 as usize;
            let same = vec![*node; times];
            assert_eq!(found(fs, node.shown(), false), same, "{place}: by the index");
            assert_eq!(found(fs, node.shown(), true), same, "{place}: by walking");
        }
        let entry = fs.find_by_number(NodeId::ROOT, *node).expect("it is there");
        assert_eq!(entry.node, *node, "{place}");
        fs.forget(*node, 1);
    }
    for (_, (nlink, seen)) in names.iter().filter(|(node, _)| node.slot().0 == 1) {
        assert!(*seen == *nlink || *nlink >= 2 && *seen == 1, "{place}: {seen} of {nlink} names");
    }
}

fn all_numbers_of_an_inode_agree(engine: Engine) {
    for (home, next) in
        [(0, None), (0, Some(WIDE - 30)), (0, Some(WIDE)), (5, None), (0x7ffe, None)]
    {
        let place = format!("{engine:?}, home {home}, from {next:?}");
        let device = formatted(engine, home);
        if let Some(next) = next {
            next_ino(&device, next);
        }
        let fs = opened(&device);
        fill(&fs);
        check(&fs, &place);
        let file = fs.lookup(&root(), NodeId::ROOT, b"l7").expect("it is there").node;
        let is_wide = home > 0 || next.is_some();
        assert_eq!(!file.ino().is_narrow(), is_wide, "{place}: {file:?}");
        assert_eq!(key::home_of(file.ino().0), u64::from(home), "{place}: {file:?}");
        fs.index_flush(NodeId::ROOT).expect("a base is made");
        check(&fs, &format!("{place}, with a base"));
        fs.close().expect("it closes");
        drop(fs);
        assert_clean(&device, &place);
        let fs = opened(&device);
        check(&fs, &format!("{place}, opened again"));
        // What was never made, of this home and of others.
        for ino in [77, WIDE + 9_999_999, key::inode_of(9, 7), key::last_inode_of(home.into())] {
            let never = NodeId::of(file.slot(), Ino(ino));
            if ino == 77 && home == 0 && next.is_none() {
                continue;
            }
            let stale = fs.find_by_number(NodeId::ROOT, never).map(drop);
            assert!(matches!(stale, Err(FsError::Stale)), "{place}: {never:?}: {stale:?}");
        }
        fs.rmr(&root(), NodeId::ROOT, b"d3").expect("it is there");
        while fs.background_step(100).expect("background work goes well").more {}
        check(&fs, &format!("{place}, after a removal"));
        fs.close().expect("it closes");
        drop(fs);
        assert_clean(&device, &place);
    }
}

fn features(device: &SimDevice) -> format::kept_twice::Features {
    let mut features = None;
    falsify(device, |store| {
        let bytes = store.get(VOLUME, &key::counter(Counter::Root)).expect("it is read");
        let root = RootCounter::decode(&bytes.expect("it is there")).expect("a counter");
        features = Some(root.features);
    });
    features.expect("it was read")
}

/// Programs that do not know wide inodes refuse a volume that has some, and open all others.
fn the_counter_of_the_root_records_that_numbers_may_be_wide(engine: Engine) {
    let device = formatted(engine, 0);
    assert!(!features(&device).wide_inodes, "{engine:?}: a new volume");
    next_ino(&device, key::NARROW_INO_MAX - (1 << 36));
    let fs = opened(&device);
    fill(&fs);
    let left = fs.statfs(NodeId::ROOT).expect("it answers").inodes_free;
    assert!(left < 1 << 37, "{left}");
    fs.close().expect("it closes");
    drop(fs);
    let fs = opened(&device);
    fill_more(&fs);
    let left = fs.statfs(NodeId::ROOT).expect("it answers").inodes_free;
    assert!(left > 1 << 48, "{left}: the next opening has all numbers");
    // Roll-backs write the counter, too.
    fs.snapshot_create(&root(), NodeId::ROOT, b"s").expect("a snapshot");
    fs.rollback(&root(), NodeId::ROOT, b"s").expect("it is rolled back");
    fs.close().expect("it closes");
    drop(fs);
    assert!(features(&device).wide_inodes, "{engine:?}");
    assert_clean(&device, "rolled back");
}

fn fill_more(fs: &Fs) {
    let made = fs.mknod(&root(), NodeId::ROOT, b"more", &FILE).expect("space").node;
    fs.forget(made, 1);
}

/// A counter that was falsified to numbers of another home does not make the volume assign those.
fn numbers_of_another_home_are_its_own(engine: Engine) {
    let device = formatted(engine, 5);
    for next in [3, key::inode_of(4, 9), key::inode_of(6, 9), u64::MAX] {
        next_ino(&device, next);
        let fs = opened(&device);
        match fs.mknod(&root(), NodeId::ROOT, b"f", &FILE) {
            Ok(made) => {
                assert_eq!(key::home_of(made.node.ino().0), 5, "{engine:?}: {next:x}");
                fs.unlink(&root(), NodeId::ROOT, b"f").expect("it is there");
                fs.forget(made.node, 1);
            }
            Err(error) => assert!(matches!(error, FsError::LimitReached(_)), "{error:?}"),
        }
        fs.close().expect("it closes");
    }
    // Repairs raise the counter to numbers of this home only.
    assert_eq!(key::home_of(key::last_inode_of(5)), 5);
}
