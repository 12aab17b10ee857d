//! What front ends are asked to let go of.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::sync::Mutex;
use inode::{Caller, Kind, NodeId};
use testing::sim_env;

use format::detached_record::DetachedRecord;

use crate::Fs;
use opening::create::FormatOptions;
use upkeep::reclaim::release::{Position, Round, climb};
use vfs::{FileSystem, Invalidate, NewNode};
use volume::OpenOptions;

/// The names that a front end is to let go of.
#[derive(Default)]
struct LetGo(Mutex<BTreeSet<(NodeId, Vec<u8>)>>);

impl Invalidate for LetGo {
    fn entry(&self, _: NodeId, _: &[u8]) {}

    fn let_go(&self, parent: NodeId, name: &[u8]) {
        self.0.lock().insert((parent, name.to_vec()));
    }

    fn let_go_below(&self, directory: NodeId) {
        self.0.lock().insert((directory, b"*".to_vec()));
    }

    fn node(&self, _: NodeId) {}

    fn attributes(&self, _: NodeId) {}

    fn all_names(&self) {}
}

/// The kernel detaches what is mounted on a name that it lets go of.
#[test]
fn names_outside_the_trees_that_wait_are_not_invalidated() {
    let (env, root) = (sim_env(1).env(), Caller::root());
    Fs::format(&env, &FormatOptions::default()).expect("an empty device");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    let dir =
        |name: &[u8]| fs.mkdir(&root, NodeId::ROOT, name, 0o755).expect("there is space").node;
    let file = |dir, name: &[u8]| {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        fs.mknod(&root, dir, name, &new).expect("there is space").node
    };
    let (live, old) = (dir(b"live"), dir(b"old"));
    for (first, second, to) in [(b"a", b"b", live), (b"c", b"d", old)] {
        fs.link(&root, file(live, first), to, second).expect("there is space");
    }
    file(live, b"e");
    file(old, b"f");
    fs.snapshot_create(&root, old, b"one").expect("a snapshot");
    fs.rollback(&root, old, b"one").expect("rolled back");
    let reported = Arc::new(LetGo::default());
    fs.set_invalidate(Arc::<LetGo>::clone(&reported));
    for _ in 0..100 {
        fs.background_step(100).expect("there is space");
    }
    let names = [b"*", b"d", b"f"];
    assert_eq!(*reported.0.lock(), names.map(|name| (old, name.to_vec())).into());
}

/// A front end may hold millions of nodes; each round looks at some of them.
#[test]
fn a_round_looks_at_a_bounded_number_of_nodes() {
    let (env, root) = (sim_env(1).env(), Caller::root());
    Fs::format(&env, &FormatOptions::default()).expect("an empty device");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    let made = fs.mkdir(&root, NodeId::ROOT, b"old", 0o755).expect("there is space");
    let directory = made.node;
    for number in 0..100_u32 {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        fs.mknod(&root, directory, number.to_string().as_bytes(), &new).expect("there is space");
    }
    let (subvol, dir) = fs.place(directory).expect("it exists");
    let (subvolume, directory) = (subvol.id.0, dir);
    let held = [DetachedRecord::Directory { subvolume, directory, kept_while_held: false }];
    let (mut from, mut rounds, mut names) = (Position::default(), 0, BTreeSet::new());
    loop {
        let mut round = Round::new(&fs, &held);
        round.nodes_left = 7;
        from = round.collect(from).expect("it is read");
        names.extend(std::mem::take(&mut round.names));
        rounds += 1;
        if from == Position::default() {
            break;
        }
    }
    assert_eq!(names.len(), 101, "the files, and the snapshots of the directory");
    assert!(rounds >= 102 / 7, "{rounds} rounds");
}

#[test]
fn each_directory_on_the_way_up_is_read_once() {
    let (mut known, mut reads) = (BTreeMap::from([(1000, true)]), 0);
    let mut ask = |from: u32| {
        let above = |at: u32| {
            reads += 1;
            Ok(Some(at + 1).filter(|next| *next != 2000))
        };
        climb(&mut known, from, above).expect("no error")
    };
    assert!((0..1000).all(&mut ask), "below the top");
    assert!(!(1001..2000).any(ask), "above it");
    assert_eq!(reads, 1999, "one read of each");
}

#[test]
fn a_cycle_of_parents_ends() {
    let mut known = BTreeMap::from([(1000, true)]);
    let mut ask = |from: u32| climb(&mut known, from, |at| Ok(Some((at + 1) % 10)));
    assert!(!ask(3).expect("no error"));
    assert!(!ask(7).expect("no error"));
}
