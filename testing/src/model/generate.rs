//! Random operations by seed. They use few names and directories, so that they interact. Each run
//! disables some kinds of operations (swarm testing), so that long runs of the others happen.

use device::Timestamp;
use inode::{Caller, Ends, Enforce, Kind, SetAttr, SetTime};

use super::op::{AllocateStyle, Op, OpPath, RenameStyle, Target, XattrStyle};
use super::state::FsModel;

/// The weight of each kind of operation, by its index in the list of kinds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Weights {
    weights: Vec<(Class, u32)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Mknod,
    Mkdir,
    Symlink,
    Link,
    Unlink,
    Rmdir,
    Rename,
    Look,
    SetAttr,
    Truncate,
    Handle,
    Read,
    Write,
    Range,
    Xattr,
    Snapshot,
    Clone,
    Subvolume,
    Rollback,
    Rmr,
    Background,
    Reopen,
}

const CLASSES: [(Class, u32); 22] = [
    (Class::Mknod, 12),
    (Class::Mkdir, 12),
    (Class::Symlink, 3),
    (Class::Link, 6),
    (Class::Unlink, 7),
    (Class::Rmdir, 4),
    (Class::Rename, 10),
    (Class::Look, 6),
    (Class::SetAttr, 6),
    (Class::Truncate, 4),
    (Class::Handle, 5),
    (Class::Read, 5),
    (Class::Write, 12),
    (Class::Range, 8),
    (Class::Xattr, 5),
    (Class::Snapshot, 5),
    (Class::Clone, 3),
    (Class::Subvolume, 2),
    (Class::Rollback, 2),
    (Class::Rmr, 2),
    (Class::Background, 3),
    (Class::Reopen, 1),
];

impl Weights {
    /// Weights where each kind is on with a chance of three in four.
    pub fn swarm(random: &mut fastrand::Rng) -> Weights {
        let mut weights: Vec<(Class, u32)> = Vec::new();
        for (class, weight) in CLASSES {
            let essential = class == Class::Mknod || class == Class::Mkdir;
            if essential || random.u32(..4) != 0 {
                weights.push((class, weight * random.u32(1..4)));
            }
        }
        Weights { weights }
    }

    /// Like [`Weights::swarm`], with many nested snapshots, clones and subvolumes, and few
    /// operations that copy inherited data.
    pub fn swarm_nested(random: &mut fastrand::Rng) -> Weights {
        let mut swarm = Weights::swarm(random);
        swarm.weights.retain(|(class, _)| *class != Class::Background || random.bool());
        let more = [
            (Class::Subvolume, 10),
            (Class::Clone, 10),
            (Class::Snapshot, 8),
            (Class::Rollback, 5),
            (Class::Rmr, 4),
        ];
        swarm.weights.extend(more);
        swarm
    }

    /// Like [`Weights::swarm`], without snapshots, clones, subvolumes and removal of trees.
    pub fn swarm_plain(random: &mut fastrand::Rng) -> Weights {
        let mut swarm = Weights::swarm(random);
        const VERSIONS: [Class; 5] =
            [Class::Snapshot, Class::Clone, Class::Subvolume, Class::Rollback, Class::Rmr];
        swarm.weights.retain(|(class, _)| !VERSIONS.contains(class));
        swarm
    }

    fn pick(&self, random: &mut fastrand::Rng) -> Class {
        let total: u32 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut at = random.u32(..total);
        for &(class, weight) in &self.weights {
            if at < weight {
                return class;
            }
            at -= weight;
        }
        unreachable!("the weights add up")
    }
}

/// A source of random operations.
#[derive(Debug)]
pub struct Generator {
    random: fastrand::Rng,
    weights: Weights,
    /// Whether the next operation opens the root to all.
    opens_root: bool,
}

const SLOTS: usize = 4;
const SNAPSHOT_NAMES: [&[u8]; 3] = [b"s1", b"s2", b"s3"];
/// Beyond this number, paths are removed, so that deep copies and comparisons stay cheap.
const PATHS_MAX: usize = 120;

impl Generator {
    /// A source with swarm weights of its own.
    pub fn new(seed: u64) -> Generator {
        let mut random = fastrand::Rng::with_seed(seed);
        let weights = Weights::swarm(&mut random);
        Generator::with_weights(seed, weights)
    }

    /// A source with many nested snapshots, clones and subvolumes.
    pub fn nested(seed: u64) -> Generator {
        let mut random = fastrand::Rng::with_seed(seed);
        let weights = Weights::swarm_nested(&mut random);
        Generator::with_weights(seed, weights)
    }

    /// A source without snapshots, clones and the like.
    pub fn plain(seed: u64) -> Generator {
        let mut random = fastrand::Rng::with_seed(seed);
        let weights = Weights::swarm_plain(&mut random);
        Generator::with_weights(seed, weights)
    }

    /// A source with given weights.
    pub fn with_weights(seed: u64, weights: Weights) -> Generator {
        Generator { random: fastrand::Rng::with_seed(seed ^ 0xdead), weights, opens_root: true }
    }

    /// The next operation and its caller.
    pub fn next(&mut self, model: &FsModel) -> (Caller, Op) {
        if std::mem::take(&mut self.opens_root) {
            let changes = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            return (Caller::root(), Op::SetAttr { target: Target::Path(vec![]), changes });
        }
        let paths = Paths { all: model.paths() };
        if paths.all.len() > PATHS_MAX && self.random.bool() {
            let op = Op::Rmr { path: paths.some_directory(&mut self.random) };
            return (Caller::root(), op);
        }
        let class = self.weights.pick(&mut self.random);
        (self.caller(), self.op(class, &paths, model))
    }

    fn caller(&mut self) -> Caller {
        let user = |uid, groups: &[u32]| Caller {
            uid,
            gid: uid,
            groups: groups.to_vec(),
            umask: 0,
            pid: 0,
            enforce: Enforce::Here,
            ends: Ends::NONE,
        };
        match self.random.u32(..10) {
            0..5 => Caller::root(),
            5..8 => user(1000, &[2000]),
            8 => user(1001, &[2000, 3000]),
            _ => user(1002, &[]),
        }
    }

    fn op(&mut self, class: Class, paths: &Paths, model: &FsModel) -> Op {
        let random = &mut self.random;
        match class {
            Class::Mknod => {
                let kind = pick(random, &[Kind::File, Kind::File, Kind::File, Kind::Fifo]);
                Op::Mknod { path: paths.fresh(random), kind, mode: mode(random) }
            }
            Class::Mkdir => {
                let special = pick(random, &[0, 0, 0, 0o1000]);
                Op::Mkdir { path: paths.fresh(random), mode: mode(random) | special }
            }
            Class::Symlink => {
                let target = vec![b'x'; random.usize(1..200)];
                Op::Symlink { path: paths.fresh(random), target }
            }
            Class::Link => Op::Link { from: paths.any(random), to: paths.fresh(random) },
            Class::Unlink => Op::Unlink { path: paths.any(random) },
            Class::Rmdir => Op::Rmdir { path: paths.some_directory(random) },
            Class::Rename => {
                let style = pick(
                    random,
                    &[
                        RenameStyle::Replace,
                        RenameStyle::Replace,
                        RenameStyle::NoReplace,
                        RenameStyle::Exchange,
                        RenameStyle::Whiteout,
                    ],
                );
                let to = if random.bool() { paths.fresh(random) } else { paths.any(random) };
                Op::Rename { from: paths.any(random), to, style }
            }
            Class::Look => look(random, paths, model),
            Class::SetAttr => {
                let path = paths.any_but_links(random);
                Op::SetAttr { target: Target::Path(path), changes: changes(random) }
            }
            Class::Truncate => {
                let size = pick(random, &[0, 1, 100, 4096, 5000, 70_000, 300_000]);
                let changes = SetAttr { size: Some(size), ..SetAttr::default() };
                Op::SetAttr { target: target(random, paths), changes }
            }
            Class::Handle if random.u32(..3) == 0 => Op::Close { slot: random.usize(..SLOTS) },
            Class::Handle => {
                Op::Open { slot: random.usize(..SLOTS), path: paths.some_file(random) }
            }
            Class::Read => {
                let (offset, length) = range(random);
                Op::Read { target: target(random, paths), offset, length }
            }
            Class::Write => {
                let (offset, length) = range(random);
                let seed = random.u64(..);
                Op::Write { target: target(random, paths), offset, length, seed }
            }
            Class::Range => ranges(random, paths),
            Class::Xattr => xattr(random, paths),
            Class::Background => Op::Background { seed: random.u64(..) },
            Class::Reopen => Op::Reopen,
            _ => version(random, class, paths, model),
        }
    }
}

/// Operations on snapshots, clones and subvolumes.
fn version(random: &mut fastrand::Rng, class: Class, paths: &Paths, model: &FsModel) -> Op {
    let snapshots = model.live_snapshots();
    let existing = match snapshots.len() {
        0 => None,
        count => Some(snapshots[random.usize(..count)].clone()),
    };
    match (class, existing) {
        (Class::Snapshot, Some((directory, name))) if random.u32(..3) == 0 => {
            if random.bool() {
                Op::SnapshotDelete { directory, name }
            } else {
                let to = pick(random, &SNAPSHOT_NAMES).to_vec();
                Op::SnapshotRename { directory, from: name, to }
            }
        }
        (Class::Snapshot, _) => {
            let name = pick(random, &SNAPSHOT_NAMES).to_vec();
            Op::SnapshotCreate { directory: paths.some_directory(random), name }
        }
        (Class::Clone, Some((mut directory, name))) if random.bool() => {
            directory.extend([model.snapshot_dir.clone(), name]);
            if random.u32(..3) == 0 {
                directory.push(small_name(random));
            }
            Op::Clone { from: directory, to: paths.fresh(random) }
        }
        (Class::Clone, _) => {
            Op::Clone { from: paths.some_directory(random), to: paths.fresh(random) }
        }
        (Class::Rollback, Some((directory, name))) if random.u32(..8) != 0 => {
            Op::Rollback { directory, name }
        }
        (Class::Rollback, _) => {
            let name = pick(random, &SNAPSHOT_NAMES).to_vec();
            Op::Rollback { directory: paths.some_directory(random), name }
        }
        (Class::Rmr, _) => Op::Rmr { path: paths.some_directory(random) },
        _ => Op::SubvolumeCreate { path: paths.fresh(random), mode: mode(random) },
    }
}

/// Read-only operations, also in snapshots.
fn look(random: &mut fastrand::Rng, paths: &Paths, model: &FsModel) -> Op {
    let snapshots = model.live_snapshots();
    if !snapshots.is_empty() && random.u32(..3) == 0 {
        let (mut path, name) = snapshots[random.usize(..snapshots.len())].clone();
        path.extend([model.snapshot_dir.clone(), name]);
        for _ in 0..random.u32(1..3) {
            path.push(small_name(random));
        }
        // Changes in a snapshot are rejected for every caller.
        return match random.u32(..8) {
            0 => Op::Mknod { path, kind: Kind::File, mode: 0o644 },
            1 => Op::Unlink { path },
            2 => Op::Write { target: Target::Path(path), offset: 0, length: 10, seed: 1 },
            3 => Op::SetAttr { target: Target::Path(path), changes: changes(random) },
            4 => Op::Rmdir { path },
            5 => Op::List { path },
            _ => Op::Stat { target: Target::Path(path) },
        };
    }
    match random.u32(..5) {
        0 => Op::Access { path: paths.any(random), mask: random.u32(1..8) },
        1 => Op::List { path: paths.any(random) },
        2 => Op::Readlink { path: paths.any(random) },
        3 => Op::SnapshotList { directory: paths.some_directory(random) },
        _ => Op::Stat { target: Target::Path(paths.any(random)) },
    }
}

/// Holes and reflinks.
fn ranges(random: &mut fastrand::Rng, paths: &Paths) -> Op {
    let (offset, length) = range(random);
    let length = length as u64;
    let to = target(random, paths);
    if random.bool() {
        let styles = [
            AllocateStyle::Grow,
            AllocateStyle::Keep,
            AllocateStyle::Punch,
            AllocateStyle::Punch,
            AllocateStyle::Zero,
            AllocateStyle::ZeroKeep,
        ];
        return Op::Allocate { target: to, offset, length, style: pick(random, &styles) };
    }
    let from = if random.u32(..4) == 0 { to.clone() } else { target(random, paths) };
    let (to_offset, _) = range(random);
    Op::CopyRange { from, from_offset: offset, to, to_offset, length }
}

fn xattr(random: &mut fastrand::Rng, paths: &Paths) -> Op {
    let path = paths.any_but_links(random);
    let names: [&[u8]; 3] = [b"user.one", b"user.two", b"trusted.three"];
    let name = pick(random, &names).to_vec();
    match random.u32(..6) {
        0 => Op::GetXattr { path, name },
        1 => Op::ListXattr { path },
        2 => Op::RemoveXattr { path, name },
        _ => {
            let length = pick(random, &[0, 3, 100, 3000, 40_000]);
            let styles =
                [XattrStyle::Any, XattrStyle::Any, XattrStyle::Create, XattrStyle::Replace];
            let style = pick(random, &styles);
            Op::SetXattr { path, name, value: vec![random.u8(..); length], style }
        }
    }
}

fn changes(random: &mut fastrand::Rng) -> SetAttr {
    let mut changes = SetAttr::default();
    match random.u32(..5) {
        0 | 1 => {
            let special = pick(random, &[0, 0, 0o1000, 0o2000, 0o4000, 0o6000]);
            changes.mode = Some(mode(random) | special);
        }
        2 => changes.uid = Some(pick(random, &[0, 1000, 1001])),
        3 => changes.gid = Some(pick(random, &[0, 1000, 1001, 2000, 3000])),
        _ => {
            let times = [SetTime::Now, SetTime::At(Timestamp(random.i64(0..2_000_000_000)))];
            changes.mtime = Some(pick(random, &times));
            if random.bool() {
                changes.atime = Some(pick(random, &times));
            }
        }
    }
    changes
}

fn mode(random: &mut fastrand::Rng) -> u32 {
    pick(random, &[0o777, 0o755, 0o775, 0o700, 0o666, 0o644, 0o660, 0o555])
}

fn range(random: &mut fastrand::Rng) -> (u64, usize) {
    let offset = match random.u32(..4) {
        0 => 0,
        1 => random.u64(..64) * 4096,
        2 => random.u64(..10_000),
        _ => random.u64(..300_000),
    };
    let length = match random.u32(..5) {
        0 => random.usize(..20),
        1 => 4096 * random.usize(1..8),
        2 => random.usize(..200_000),
        _ => random.usize(..10_000),
    };
    (offset, length)
}

fn target(random: &mut fastrand::Rng, paths: &Paths) -> Target {
    if random.u32(..3) == 0 {
        Target::Slot(random.usize(..SLOTS))
    } else {
        Target::Path(paths.some_file(random))
    }
}

fn pick<T: Copy>(random: &mut fastrand::Rng, from: &[T]) -> T {
    from[random.usize(..from.len())]
}

fn small_name(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..40) {
        0 => vec![b'n'; 255],
        1 => vec![b'n'; 256],
        at => vec![b'a' + (at % 5) as u8],
    }
}

/// Everything live, to choose from.
struct Paths {
    all: Vec<(OpPath, Kind)>,
}

impl Paths {
    fn of(&self, random: &mut fastrand::Rng, wanted: impl Fn(Kind) -> bool) -> OpPath {
        let fitting: Vec<_> = self.all.iter().filter(|(_, kind)| wanted(*kind)).collect();
        match fitting.len() {
            0 => vec![small_name(random)],
            count => fitting[random.usize(..count)].0.clone(),
        }
    }

    /// Mostly an existing path.
    fn any(&self, random: &mut fastrand::Rng) -> OpPath {
        if random.u32(..8) == 0 { self.fresh(random) } else { self.of(random, |_| true) }
    }

    fn any_but_links(&self, random: &mut fastrand::Rng) -> OpPath {
        self.of(random, |kind| kind != Kind::Symlink)
    }

    fn some_directory(&self, random: &mut fastrand::Rng) -> OpPath {
        match random.u32(..12) {
            0 => self.any(random),
            _ => self.of(random, |kind| kind == Kind::Directory),
        }
    }

    fn some_file(&self, random: &mut fastrand::Rng) -> OpPath {
        match random.u32(..12) {
            0 => self.any(random),
            _ => self.of(random, |kind| kind == Kind::File),
        }
    }

    /// A path for a new entry, which may exist already. Not too deep.
    fn fresh(&self, random: &mut fastrand::Rng) -> OpPath {
        let mut path = self.of(random, |kind| kind == Kind::Directory);
        path.truncate(random.usize(0..5));
        path.push(small_name(random));
        path
    }
}
