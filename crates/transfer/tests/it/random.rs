//! Random histories of a directory on both engines. What is received, complete and by increments
//! from any older snapshot, equals the source in every attribute. It is sent on to a third volume.

use fastrand::Rng;
use fs::{Allocate, Engine, FileSystem, NewNode, RenameMode, SetXattr};
use inode::{Attr, Kind, NodeId, SetAttr, SetTime};

use crate::listing::{assert_equal, list};
use crate::world::{World, root};

/// Operations between two snapshots.
const OPS: usize = 25;
const ROUNDS: usize = 7;

/// A directory with a random history.
struct History<'a> {
    world: &'a World,
    random: Rng,
    top: NodeId,
    /// Names that are used, among them names of any bytes.
    names: Vec<Vec<u8>>,
}

/// A name that is there: directory, name, inode.
type There = (NodeId, Vec<u8>, NodeId, Attr);

impl History<'_> {
    fn all(&self) -> Vec<There> {
        let (mut found, mut left) = (Vec::new(), vec![self.top]);
        while let Some(directory) = left.pop() {
            let mut names = Vec::new();
            let mut take = |entry: &fs::DirEntry<'_>| {
                names.push(entry.name.to_vec());
                fs::WalkControl::Continue
            };
            self.world.fs.readdir(&root(), directory, 0, &mut take).unwrap();
            for name in names {
                let entry = self.world.fs.lookup(&root(), directory, &name).unwrap();
                if entry.attr.kind == Kind::Directory {
                    left.push(entry.node);
                }
                found.push((directory, name, entry.node, entry.attr));
            }
        }
        found
    }

    fn any(&mut self, wanted: impl Fn(&Attr) -> bool) -> Option<There> {
        let mut all = self.all();
        all.retain(|there| wanted(&there.3));
        let at = self.random.usize(..all.len().max(1));
        all.into_iter().nth(at)
    }

    fn directory(&mut self) -> NodeId {
        let found = self.any(|attr| attr.kind == Kind::Directory);
        match found {
            Some((_, _, node, _)) if self.random.u8(..4) > 0 => node,
            _ => self.top,
        }
    }

    fn name(&mut self) -> Vec<u8> {
        self.random.choice(&self.names).unwrap().clone()
    }

    fn bytes(&mut self) -> Vec<u8> {
        let most = [100, 5000, 200_000, 600_000][self.random.usize(..4)];
        let length = self.random.usize(..most);
        let byte = self.random.u8(..);
        (0..length).map(|at| byte.wrapping_add((at / 1000) as u8)).collect()
    }

    /// One operation, which may fail: names may be in use, and directories not empty.
    fn step(&mut self) {
        let fs = std::sync::Arc::clone(&self.world.fs);
        let (directory, name) = (self.directory(), self.name());
        match self.random.u8(..21) {
            0..=2 => {
                let new = NewNode { kind: Kind::File, mode: 0o640, rdev: 0 };
                if let Ok(made) = fs.mknod(&root(), directory, &name, &new) {
                    let bytes = self.bytes();
                    fs.write(&root(), made.node, self.random.u64(..300_000), &bytes).unwrap();
                }
            }
            3 | 4 => {
                drop(fs.mkdir(&root(), directory, &name, 0o755));
            }
            5 => match self.random.u8(..3) {
                0 => drop(fs.symlink(&root(), directory, &name, b"to/\xff")),
                kind => {
                    let kind = if kind == 1 { Kind::Fifo } else { Kind::CharDevice };
                    let rdev = if kind == Kind::Fifo { 0 } else { 0x103 };
                    drop(fs.mknod(&root(), directory, &name, &NewNode { kind, mode: 0o600, rdev }));
                }
            },
            6 | 7 => {
                if let Some((_, _, node, _)) = self.any(|attr| attr.kind != Kind::Directory) {
                    drop(fs.link(&root(), node, directory, &name));
                }
            }
            8 => {
                if let Some((above, name, ..)) = self.any(|attr| attr.kind != Kind::Directory) {
                    fs.unlink(&root(), above, &name).unwrap();
                }
            }
            9 => {
                if let Some((above, name, ..)) = self.any(|attr| attr.kind == Kind::Directory) {
                    drop(match self.random.u8(..3) {
                        0 => fs.rmr(&root(), above, &name).map(drop),
                        _ => fs.rmdir(&root(), above, &name),
                    });
                }
            }
            10..=13 => self.rename((directory, &name)),
            14 | 15 => self.rewrite(),
            16 => self.roll_back(),
            _ => self.attributes(),
        }
        self.world.tick();
    }

    /// Rolls a directory back to a snapshot of it, or takes one. Numbers of inodes return that the
    /// directory had before, beside those that were given since. A file with a name in it and one
    /// outside becomes two.
    fn roll_back(&mut self) {
        let fs = std::sync::Arc::clone(&self.world.fs);
        let Some((_, _, node, _)) = self.any(|attr| attr.kind == Kind::Directory) else { return };
        if fs.rollback(&root(), node, b"earlier").is_err() {
            fs.snapshot_create(&root(), node, b"earlier").unwrap();
        }
    }

    /// The same for the whole, to one of its snapshots.
    fn roll_all_back(&mut self, snapshot: &str) {
        self.world.fs.rollback(&root(), self.top, snapshot.as_bytes()).unwrap();
        self.world.tick();
        self.top = self.world.at("/top");
    }

    /// Renames, exchanges, and directories that trade places with what is in them.
    fn rename(&mut self, to: (NodeId, &[u8])) {
        let fs = std::sync::Arc::clone(&self.world.fs);
        let Some((above, name, node, attr)) = self.any(|_| true) else { return };
        let from = (above, &name[..]);
        match self.random.u8(..4) {
            0 => {
                if let Some((other, other_name, ..)) = self.any(|_| true) {
                    let other = (other, &other_name[..]);
                    drop(fs.rename(&root(), from, other, RenameMode::Exchange));
                }
            }
            1 if attr.kind == Kind::Directory => {
                // Moves a directory below one that was in it.
                let all = self.all();
                let below =
                    all.iter().find(|there| there.0 == node && there.3.kind == Kind::Directory);
                if let Some((_, inner, inner_node, _)) = below {
                    let moved = self.name();
                    let up = (self.top, &moved[..]);
                    let out = fs.rename(&root(), (node, inner), up, RenameMode::NoReplace);
                    if out.is_ok() {
                        drop(fs.rename(&root(), from, (*inner_node, &name), RenameMode::NoReplace));
                    }
                }
            }
            2 => drop(fs.rename(&root(), from, to, RenameMode::Replace)),
            _ => drop(fs.rename(&root(), from, to, RenameMode::NoReplace)),
        }
    }

    /// Changes contents; sometimes so that size and times stay.
    fn rewrite(&mut self) {
        let fs = std::sync::Arc::clone(&self.world.fs);
        let Some((_, _, node, before)) = self.any(|attr| attr.kind == Kind::File) else { return };
        let bytes = self.bytes();
        let at = self.random.u64(..before.size.max(1));
        match self.random.u8(..5) {
            0 => {
                let size = Some(self.random.u64(..700_000));
                let changes = SetAttr { size, ..SetAttr::default() };
                fs.setattr(&root(), node, &changes).unwrap();
            }
            1 => {
                let length = self.random.u64(1..300_000);
                fs.fallocate(&root(), node, (at, length), Allocate::Punch).unwrap();
            }
            2 => {
                let bytes = &bytes[..bytes.len().min((before.size - at.min(before.size)) as usize)];
                fs.write(&root(), node, at, bytes).unwrap();
                let changes = SetAttr {
                    mtime: Some(SetTime::At(before.mtime)),
                    ctime: Some(SetTime::At(before.ctime)),
                    ..SetAttr::default()
                };
                fs.setattr(&root(), node, &changes).unwrap();
            }
            _ => fs.write(&root(), node, at, &bytes).unwrap(),
        }
    }

    fn attributes(&mut self) {
        let fs = std::sync::Arc::clone(&self.world.fs);
        let Some((_, _, node, attr)) = self.any(|_| true) else { return };
        let mut changes = SetAttr::default();
        match self.random.u8(..5) {
            0 if attr.kind != Kind::Symlink => changes.mode = Some(self.random.u32(..0o10000)),
            1 => {
                changes.uid = Some(self.random.u32(..5));
                changes.gid = Some(self.random.u32(..5));
            }
            2 => {
                let at = device::Timestamp(self.random.i64(..));
                changes.mtime = Some(SetTime::At(at));
                changes.atime = Some(SetTime::At(at));
            }
            3 => {
                let all = [&b"user.a"[..], b"trusted.b", b"security.c"];
                let name = all[self.random.usize(..3)];
                let value = vec![7; self.random.usize(..5000)];
                // Not on symbolic links and the like.
                drop(if self.random.bool() {
                    fs.setxattr(&root(), node, name, &value, SetXattr::Any)
                } else {
                    fs.removexattr(&root(), node, name)
                });
                return;
            }
            _ if attr.kind != Kind::Symlink => {
                let acl = format::acl::Acl {
                    users: vec![(self.random.u32(1..9), self.random.u32(..8))],
                    group: 5,
                    mask: Some(self.random.u32(..8)),
                    owner: 7,
                    other: 4,
                    groups: Vec::new(),
                };
                let default = attr.kind == Kind::Directory && self.random.bool();
                let name = if default { format::acl::DEFAULT } else { format::acl::ACCESS };
                fs.setxattr(&root(), node, name, &acl.encode(), SetXattr::Any).unwrap();
                return;
            }
            _ => return,
        }
        fs.setattr(&root(), node, &changes).unwrap();
    }
}

/// Makes a directory `/top` with a random history.
pub(crate) fn history(world: &World, seed: u64) {
    let top = world.mkdir("/top");
    let mut history = History { world, random: Rng::with_seed(seed), top, names: names() };
    for _ in 0..OPS * 4 {
        history.step();
    }
}

fn names() -> Vec<Vec<u8>> {
    let mut names: Vec<Vec<u8>> = (b'a'..=b'f').map(|byte| vec![byte]).collect();
    names.extend([b"a-".to_vec(), b"\xff\n".to_vec(), vec![b'x'; 255]]);
    names
}

fn run(seed: u64, source: Engine, target: Engine) {
    println!("seed {seed} {source:?} to {target:?}");
    let world = World::new(source, seed);
    let others = [World::new(target, seed + 1000), World::new(source, seed + 2000)];
    let top = world.mkdir("/top");
    let mut history = History { world: &world, random: Rng::with_seed(seed), top, names: names() };
    let mut expected: Vec<(NodeId, _)> = Vec::new();
    // The last snapshot that each volume received.
    let mut last: Option<usize> = None;
    for round in 0..ROUNDS {
        for _ in 0..OPS {
            history.step();
        }
        if round > 0 && history.random.u8(..4) == 0 {
            let to = history.random.usize(..round);
            history.roll_all_back(&format!("s{to}"));
            for _ in 0..OPS {
                history.step();
            }
        }
        let taken = world.snapshot("/top", &format!("s{round}"));
        let is_sent = last.is_none() || history.random.u8(..3) != 0;
        let base = last.map(|last: usize| expected[last].0);
        // First: a listing gives the snapshot its own of what it inherits.
        let stream = is_sent.then(|| world.stream(base, taken.root));
        expected.push((taken.root, list(&world.fs, taken.root)));
        // The next increment spans more than one.
        let Some(stream) = stream else { continue };
        let what = |to: &str| format!("seed {seed}, {to}, {last:?} to {round}");
        assert_eq!(stream, world.stream(base, taken.root), "{}", what("the same stream"));
        let mut sent = stream;
        for (number, other) in others.iter().enumerate() {
            let what = what(&format!("volume {number}"));
            let received = match other.receive("top", &sent) {
                Ok(received) => received,
                Err(error) => panic!("{what}: {error} ({error:?})"),
            };
            let mut expected = expected[round].1.clone();
            let mut found = list(&other.fs, received.snapshot.root);
            if last.is_some() {
                for node in expected.values_mut().chain(found.values_mut()) {
                    node.forget_read();
                }
            }
            assert_equal(&what, &expected, &found);
            let present = &mut list(&other.fs, other.at("/top"));
            if last.is_none() {
                // It got its name after the snapshot.
                let snapshot = list(&other.fs, received.snapshot.root);
                present.insert(Vec::new(), snapshot[&Vec::new()].clone());
            }
            if last.is_some() {
                for node in present.values_mut() {
                    node.forget_read();
                }
            }
            assert_equal(&format!("{what}, present"), &expected, present);
            assert_eq!(other.names(), ["top"], "{what}");
            let base = received.base.map(|base| base.root);
            // The next one gets it from this one.
            sent = other.stream(base, received.snapshot.root);
        }
        last = Some(round);
    }
    for world in std::iter::once(&world).chain(&others) {
        let mut progress = |_, _| std::ops::ControlFlow::Continue(());
        let problems = world.fs.check_volume(&mut progress).expect("a check").problems;
        assert!(problems.is_empty(), "seed {seed}: {problems:?}");
    }
}

fn seeds() -> u64 {
    std::env::var("PANDO_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6)
}

#[test]
fn what_is_received_equals_the_source_in_every_attribute() {
    for seed in 0..seeds() {
        run(seed, Engine::Btree, Engine::Lsm);
    }
}

#[test]
fn what_is_received_from_the_log_structured_engine_equals_the_source_in_every_attribute() {
    for seed in 100..100 + seeds() {
        run(seed, Engine::Lsm, Engine::Btree);
    }
}
