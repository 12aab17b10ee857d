//! In a clone of a directory only the part below that directory is compared with the inherited
//! base. Searches and totals of it equal those of a walk, whatever was moved into it and out of it,
//! before it was made and since.

use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions, RenameMode, WalkControl};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::index;
use testing::SimDevice;

use crate::script::{self, scale};
use crate::search::{Query, directories};
use crate::search_totals::check_totals;
use crate::subject::{Base, FsSubject};

on_each_engine!(
    a_clone_is_compared_with_its_base_below_itself,
    a_clone_of_most_of_a_tree_is_compared_as_a_whole,
    what_is_moved_out_of_what_was_removed_from_a_clone_is_found,
    a_name_that_is_moved_out_of_what_was_removed_from_a_clone_is_found,
);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

fn options() -> OpenOptions {
    script::options_without_due_bases(64 << 20)
}

/// A tree that changes.
struct Changing {
    subject: FsSubject,
    random: fastrand::Rng,
    next: u32,
    /// The directory that all are in.
    top: NodeId,
}

/// Something in a directory: its directory, its name, and what it is.
type Named = (NodeId, Vec<u8>, Kind, NodeId);

impl Changing {
    fn new(engine: Engine, seed: u64, directories: usize) -> Changing {
        let device = SimDevice::new(seed);
        let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
        let random = fastrand::Rng::with_seed(seed);
        let top = subject.fs().mkdir(&Caller::root(), NodeId::ROOT, b"top", 0o755);
        let top = top.expect("space").node;
        let mut changing = Changing { subject, random, next: 0, top };
        let mut made = vec![top];
        while made.len() < directories {
            let (parent, name) = (made[changing.random.usize(..made.len())], changing.name());
            let entry = changing.fs().mkdir(&Caller::root(), parent, &name, 0o755);
            made.push(entry.expect("space").node);
        }
        for directory in made {
            (0..6).for_each(|_| changing.file(directory));
        }
        changing.subject.fs().index_flush(NodeId::ROOT).expect("a flush goes well");
        changing
    }

    fn fs(&self) -> &Fs {
        self.subject.fs()
    }

    fn name(&mut self) -> Vec<u8> {
        self.next += 1;
        format!("n{}.{}", self.next, ["a", "txt", "h5"][self.random.usize(..3)]).into_bytes()
    }

    fn file(&mut self, parent: NodeId) {
        self.subject.clock().sleep(Duration::from_millis(10));
        let (name, size) = (self.name(), Some(self.random.u64(..100_000)));
        let uid = Some(self.random.u32(998..1003));
        let made = self.fs().mknod(&Caller::root(), parent, &name, &FILE).expect("space");
        let set = SetAttr { size, uid, ..SetAttr::default() };
        self.fs().setattr(&Caller::root(), made.node, &set).expect("a file");
    }

    /// All that is below a directory, but for what is mounted there.
    fn below(&self, top: NodeId) -> Vec<Named> {
        let (mut found, mut next) = (Vec::new(), vec![top]);
        while let Some(directory) = next.pop() {
            let mut names = Vec::new();
            let listed = self.fs().readdir(&Caller::root(), directory, 0, &mut |entry| {
                names.push((entry.name.to_vec(), entry.kind));
                WalkControl::Continue
            });
            listed.expect("it lists");
            for (name, kind) in names {
                let entry = self.fs().lookup(&Caller::root(), directory, &name);
                let node = entry.expect("it is there").node;
                if node.slot() == top.slot() {
                    next.extend((kind == Kind::Directory).then_some(node));
                    found.push((directory, name, kind, node));
                }
            }
        }
        found
    }

    /// Changes something below a directory: directories are moved as often as not.
    fn one(&mut self, top: NodeId) {
        self.subject.clock().sleep(Duration::from_millis(10));
        let below = self.below(top);
        let directories: Vec<NodeId> = below
            .iter()
            .filter(|(_, _, kind, _)| *kind == Kind::Directory)
            .map(|(.., node)| *node)
            .chain([top])
            .collect();
        let to = directories[self.random.usize(..directories.len())];
        let (root, name) = (Caller::root(), self.name());
        if below.is_empty() || self.random.u32(..6) == 0 {
            return self.file(to);
        }
        let (parent, old, kind, node) = below[self.random.usize(..below.len())].clone();
        match self.random.u32(..9) {
            0 => {
                let made = self.fs().mkdir(&root, to, &name, 0o755).expect("space").node;
                self.file(made);
            }
            1 if kind == Kind::File => {
                self.fs().unlink(&root, parent, &old).expect("it is there");
            }
            2 if kind == Kind::File => {
                self.fs().link(&root, node, to, &name).expect("space");
            }
            3 => {
                let mode = Some([0o700, 0o755][self.random.usize(..2)]);
                let set = SetAttr { mode, ..SetAttr::default() };
                self.fs().setattr(&root, node, &set).expect("it is there");
            }
            4 if kind == Kind::Directory => {
                // Where it is empty.
                self.fs().rmdir(&root, parent, &old).ok();
            }
            5 if kind == Kind::Directory && self.random.bool() => {
                self.fs().rmr(&root, parent, &old).ok();
            }
            _ => {
                let moves =
                    |named: &&Named| named.2 == Kind::Directory || self.next.is_multiple_of(3);
                let movable: Vec<&Named> = below.iter().filter(moves).collect();
                if movable.is_empty() {
                    return;
                }
                let (parent, old, ..) = movable[self.random.usize(..movable.len())];
                // Not into itself.
                self.fs().rename(&root, (*parent, old), (to, &name), RenameMode::Replace).ok();
            }
        }
    }

    fn stats(&self) -> index::IndexStats {
        self.fs().index_stats().expect("it answers").expect("there is an index")
    }

    /// Compares searches, counts and totals.
    fn compare(&mut self, tops: &[NodeId], place: &str) {
        let mut starts = directories(self.subject.fs());
        starts.extend(tops.iter().map(|top| (*top, b"clone".to_vec())));
        for _ in 0..6 {
            check_totals(self.subject.fs(), &mut self.random, &starts, place);
            Query::random(&mut self.random, &starts).check(self.subject.fs(), place);
        }
        for top in tops {
            let start = [(*top, b"clone".to_vec())];
            check_totals(self.subject.fs(), &mut self.random, &start, place);
            Query::random(&mut self.random, &start).check(self.subject.fs(), place);
        }
    }
}

fn a_clone_is_compared_with_its_base_below_itself(engine: Engine) {
    for seed in 0..scale(4, 200) {
        let mut changing = Changing::new(engine, seed, 60);
        let mut clones = Vec::new();
        for round in 0..4 {
            (0..40).for_each(|_| changing.one(changing.top));
            let below = changing.below(changing.top);
            let directories: Vec<&Named> =
                below.iter().filter(|(_, _, kind, _)| *kind == Kind::Directory).collect();
            let Some((.., source)) = directories.get(changing.random.usize(..30)) else { continue };
            let name = changing.name();
            let made = changing.fs().clone_dir(&Caller::root(), *source, NodeId::ROOT, &name);
            clones.push(made.expect("a clone").root);
            for top in clones.clone() {
                // Some are looked at before anything changes in them.
                (0..[0, 3, 25][changing.random.usize(..3)]).for_each(|_| changing.one(top));
            }
            changing.compare(&clones, &format!("seed {seed}, round {round}"));
        }
        let below = changing.stats().below;
        assert!(below >= clones.len() as u64, "seed {seed}: {below} of {} clones", clones.len());
    }
}

/// More directories than are looked at one by one.
fn a_clone_of_most_of_a_tree_is_compared_as_a_whole(engine: Engine) {
    let mut changing = Changing::new(engine, 3, 300);
    let node = changing.top;
    (0..30).for_each(|_| changing.one(node));
    let made = changing.fs().clone_dir(&Caller::root(), node, NodeId::ROOT, b"clone");
    let top = made.expect("a clone").root;
    (0..20).for_each(|_| changing.one(top));
    changing.compare(&[top], "a large clone");
    assert_eq!(changing.stats().below, 0);
}

/// A user moves something out of a directory that was removed. It is below the clone's root again,
/// and no name pointed to it when the clone was compared.
fn moved_out(engine: Engine, has_plain: bool) {
    let mut changing = Changing::new(engine, 5, 60);
    let (root, node) = (Caller::root(), changing.top);
    changing.file(node);
    let top = changing.fs().clone_dir(&root, node, NodeId::ROOT, b"clone").expect("a clone").root;
    let fs = changing.subject.fs();
    let file = fs.mknod(&root, top, b"file", &FILE).expect("space").node;
    let d = fs.mkdir(&root, top, b"d", 0o755).expect("space").node;
    let y = fs.mkdir(&root, d, b"y", 0o755).expect("space").node;
    let x = fs.mkdir(&root, y, b"x", 0o755).expect("space").node;
    fs.link(&root, file, x, b"linked").expect("space");
    if has_plain {
        fs.mknod(&root, x, b"plain", &FILE).expect("space");
    }
    fs.rmr(&root, top, b"d").expect("it goes");
    changing.compare(&[top], "it is removed");
    assert!(changing.stats().below > 0);
    let fs = changing.subject.fs();
    fs.rename(&root, (y, b"x"), (top, b"back"), RenameMode::Replace).expect("it is held");
    for _ in 0..10 {
        changing.compare(&[top], "it is back");
    }
}

fn what_is_moved_out_of_what_was_removed_from_a_clone_is_found(engine: Engine) {
    moved_out(engine, true);
}

fn a_name_that_is_moved_out_of_what_was_removed_from_a_clone_is_found(engine: Engine) {
    moved_out(engine, false);
}
