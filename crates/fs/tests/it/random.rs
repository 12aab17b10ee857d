//! A volume under the random operations of `testing::model`, compared with the model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device::{Clock as _, Timestamp};
use format::volume::VolumeHeader;
use fs::{Entry, FileSystem, Fs, FsResult, NewNode, OpenOptions, RenameMode, SetXattr};
use fs::{SyncScope, WalkControl};
use inode::{Attr, Caller, FsError, Kind, NameHash, NodeId};
use store::Store;
use testing::model::{
    Comparison, Driver, Effect, ErrorKind, Generator, Listed, Op, OpPath, RenameStyle, Stat,
    Subject, Target, XattrStyle, allocate, blame, copy_all,
};
use testing::{MemStore, SimEnv, sim_env};

use crate::support::{ROOT, inode_home, near_wide, shown};

const SNAPSHOTS: &[u8] = b".snapshots";

/// A volume that runs operations by path.
struct Tested {
    fs: Arc<fs::Volume>,
    store: Arc<MemStore>,
    env: SimEnv,
    header: VolumeHeader,
    bits: u32,
    slots: BTreeMap<usize, NodeId>,
}

impl Tested {
    fn new(seed: u64) -> Tested {
        let env = sim_env(seed);
        let store = Arc::new(MemStore::new());
        // Narrow inodes, wide ones of another home, and numbers that become wide.
        let inode_home = if seed % 4 == 1 { 5 } else { inode_home() };
        let format = fs::FormatOptions { inode_home, ..fs::FormatOptions::default() };
        let header = Fs::format_on(&env.env(), &*store, &format).expect("an empty store");
        if seed % 4 == 2 && inode_home == 0 {
            near_wide(&*store);
        }
        // Every third run has names that collide.
        let bits = if seed.is_multiple_of(3) { 3 } else { NameHash::BITS };
        let fs = open(&env, &store, &header, bits);
        Tested { fs, store, env, header, bits, slots: BTreeMap::new() }
    }

    fn done(&self, node: NodeId) {
        self.fs.forget(node, 1);
    }

    /// Follows a path; the node is held once.
    fn walk(&self, caller: &Caller, path: &[Vec<u8>]) -> FsResult<NodeId> {
        let mut at = self.fs.lookup(&Caller::root(), ROOT, b".")?.node;
        for name in path {
            let next = self.fs.lookup(caller, at, name);
            self.done(at);
            at = next?.node;
        }
        Ok(at)
    }

    fn with<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        run: impl FnOnce(NodeId) -> FsResult<T>,
    ) -> FsResult<T> {
        let node = self.walk(caller, path)?;
        let result = run(node);
        self.done(node);
        result
    }

    fn on<T>(
        &self,
        caller: &Caller,
        target: &Target,
        run: impl FnOnce(NodeId) -> FsResult<T>,
    ) -> FsResult<T> {
        match target {
            Target::Path(path) => self.with(caller, path, run),
            Target::Slot(slot) => run(*self.slots.get(slot).ok_or(FsError::Stale)?),
        }
    }

    /// Runs with the directory of a name. `absent`: the answer where there is no name.
    fn at<T>(
        &self,
        caller: &Caller,
        path: &OpPath,
        absent: FsError,
        run: impl FnOnce(NodeId, &[u8]) -> FsResult<T>,
    ) -> FsResult<T> {
        let Some((name, directory)) = path.split_last() else { return Err(absent) };
        self.with(caller, directory, |parent| run(parent, name))
    }

    fn made(&self, made: FsResult<Entry>) -> FsResult<Effect> {
        let entry = made?;
        self.done(entry.node);
        Ok(stat(&entry.attr))
    }

    fn run_op(&mut self, caller: &Caller, op: &Op) -> FsResult<Effect> {
        let fs = Arc::clone(&self.fs);
        match op {
            Op::Mknod { path, kind, mode } => {
                let new = NewNode { kind: *kind, mode: *mode, rdev: 0 };
                self.made(self.at(caller, path, FsError::Exists, |dir, name| {
                    fs.mknod(caller, dir, name, &new)
                }))
            }
            Op::Mkdir { path, mode } => {
                self.made(self.at(caller, path, FsError::Exists, |dir, name| {
                    fs.mkdir(caller, dir, name, *mode)
                }))
            }
            Op::Symlink { path, target } => {
                self.made(self.at(caller, path, FsError::Exists, |dir, name| {
                    fs.symlink(caller, dir, name, target)
                }))
            }
            Op::Link { from, to } => self.made(self.with(caller, from, |node| {
                self.at(caller, to, FsError::Exists, |dir, name| fs.link(caller, node, dir, name))
            })),
            Op::Unlink { path } => {
                done(self.at(caller, path, FsError::IsDirectory, |dir, name| {
                    fs.unlink(caller, dir, name)
                }))
            }
            Op::Rmdir { path } => done(
                self.at(caller, path, FsError::Busy(""), |dir, name| fs.rmdir(caller, dir, name)),
            ),
            Op::Rename { from, to, style } => {
                let mode = match style {
                    RenameStyle::Replace => RenameMode::Replace,
                    RenameStyle::NoReplace => RenameMode::NoReplace,
                    RenameStyle::Exchange => RenameMode::Exchange,
                    RenameStyle::Whiteout => RenameMode::Whiteout,
                };
                done(self.at(caller, from, FsError::Busy(""), |source, old| {
                    self.at(caller, to, FsError::Busy(""), |target, new| {
                        fs.rename(caller, (source, old), (target, new), mode)
                    })
                }))
            }
            Op::Readlink { path } => {
                self.with(caller, path, |node| Ok(Effect::Bytes(fs.readlink(caller, node)?)))
            }
            Op::List { path } => self.with(caller, path, |node| list(&fs, caller, node)),
            Op::Access { path, mask } => {
                done(self.with(caller, path, |node| fs.access(caller, node, *mask)))
            }
            Op::Stat { target } => {
                self.on(caller, target, |node| Ok(stat(&fs.getattr(caller, node)?)))
            }
            Op::SetAttr { target, changes } => {
                self.on(caller, target, |node| Ok(stat(&fs.setattr(caller, node, changes)?)))
            }
            Op::Fsync { target } => {
                done(self.on(caller, target, |node| fs.fsync(node, SyncScope::All)))
            }
            Op::Read { .. }
            | Op::Write { .. }
            | Op::Allocate { .. }
            | Op::CopyRange { .. }
            | Op::Open { .. }
            | Op::Close { .. } => self.run_contents(caller, op),
            Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::SetXattr { .. }
            | Op::RemoveXattr { .. } => self.run_xattr(caller, op),
            Op::Background { seed } => {
                self.background(*seed);
                Ok(Effect::Done)
            }
            Op::Reopen => {
                self.slots.clear();
                self.fs = open(&self.env, &self.store, &self.header, self.bits);
                Ok(Effect::Done)
            }
            _ => self.run_version(caller, op),
        }
    }

    fn run_contents(&mut self, caller: &Caller, op: &Op) -> FsResult<Effect> {
        let fs = Arc::clone(&self.fs);
        match op {
            Op::Open { slot, path } => {
                if let Some(node) = self.slots.remove(slot) {
                    self.done(node);
                }
                let node = self.walk(caller, path)?;
                if fs.getattr(caller, node)?.kind == Kind::File {
                    self.slots.insert(*slot, node);
                    Ok(Effect::Done)
                } else {
                    self.done(node);
                    Err(FsError::InvalidArgument("not a file"))
                }
            }
            Op::Close { slot } => {
                if let Some(node) = self.slots.remove(slot) {
                    self.done(node);
                }
                Ok(Effect::Done)
            }
            Op::Read { target, offset, length } => self.on(caller, target, |node| {
                let mut buffer = vec![0; *length];
                let read = fs.read(caller, node, *offset, &mut buffer)?;
                buffer.truncate(read);
                Ok(Effect::Bytes(buffer))
            }),
            Op::Write { target, offset, length, seed } => {
                let bytes = Op::write_bytes(*length, *seed);
                done(self.on(caller, target, |node| fs.write(caller, node, *offset, &bytes)))
            }
            Op::Allocate { target, offset, length, style } => {
                done(self.on(caller, target, |node| {
                    fs.fallocate(caller, node, (*offset, *length), allocate(*style))
                }))
            }
            Op::CopyRange { from, from_offset, to, to_offset, length } => {
                done(self.on(caller, from, |source| {
                    self.on(caller, to, |node| {
                        copy_all(&*fs, caller, (source, *from_offset), (node, *to_offset), *length)
                    })
                }))
            }
            _ => unreachable!("an operation on contents"),
        }
    }

    fn run_xattr(&self, caller: &Caller, op: &Op) -> FsResult<Effect> {
        let fs = &self.fs;
        match op {
            Op::GetXattr { path, name } => {
                self.with(caller, path, |node| Ok(Effect::Bytes(fs.getxattr(caller, node, name)?)))
            }
            Op::ListXattr { path } => self.with(caller, path, |node| {
                let bytes = fs.listxattr(caller, node)?;
                let names = bytes.split(|&byte| byte == 0).filter(|name| !name.is_empty());
                let mut names: Vec<_> = names.map(<[u8]>::to_vec).collect();
                names.sort();
                Ok(Effect::Names(names))
            }),
            Op::SetXattr { path, name, value, style } => {
                let mode = match style {
                    XattrStyle::Any => SetXattr::Any,
                    XattrStyle::Create => SetXattr::Create,
                    XattrStyle::Replace => SetXattr::Replace,
                };
                done(self.with(caller, path, |node| fs.setxattr(caller, node, name, value, mode)))
            }
            Op::RemoveXattr { path, name } => {
                done(self.with(caller, path, |node| fs.removexattr(caller, node, name)))
            }
            _ => unreachable!("an operation on extended attributes"),
        }
    }

    fn run_version(&self, caller: &Caller, op: &Op) -> FsResult<Effect> {
        let fs = &self.fs;
        match op {
            // The superuser goes both ways; others lack the right to search at times.
            Op::SnapshotCreate { directory, name }
                if !caller.is_root() || directory.len() % 2 == 0 =>
            {
                done(self.with(caller, directory, |dir| fs.snapshot_create(caller, dir, name)))
            }
            Op::SnapshotCreate { directory, name } => {
                done(self.in_snapshots(caller, directory, |dir| {
                    fs.mkdir(caller, dir, name, 0o755).map(|entry| self.done(entry.node))
                }))
            }
            Op::SnapshotDelete { directory, name }
                if !caller.is_root() || directory.len() % 2 == 0 =>
            {
                done(self.with(caller, directory, |dir| fs.snapshot_delete(caller, dir, name)))
            }
            Op::SnapshotDelete { directory, name } => {
                done(self.in_snapshots(caller, directory, |dir| fs.rmdir(caller, dir, name)))
            }
            Op::SnapshotRename { directory, from, to } => {
                done(self.with(caller, directory, |dir| fs.snapshot_rename(caller, dir, from, to)))
            }
            Op::SnapshotList { directory } => self.with(caller, directory, |dir| {
                let listed = fs.snapshot_list(caller, dir)?;
                Ok(Effect::Names(listed.into_iter().map(|snapshot| snapshot.name).collect()))
            }),
            Op::Clone { from, to } => done(self.with(caller, from, |source| {
                self.at(caller, to, FsError::Exists, |dir, name| {
                    fs.clone_dir(caller, source, dir, name)
                })
            })),
            Op::SubvolumeCreate { path, mode } => {
                done(self.at(caller, path, FsError::Exists, |dir, name| {
                    let entry = fs.subvolume_create(caller, dir, name, *mode)?;
                    self.done(entry.node);
                    Ok(())
                }))
            }
            Op::Rollback { directory, name } => {
                done(self.with(caller, directory, |dir| fs.rollback(caller, dir, name)))
            }
            Op::Rmr { path } => done(
                self.at(caller, path, FsError::Busy(""), |dir, name| fs.rmr(caller, dir, name)),
            ),
            _ => unreachable!("{op:?} is run elsewhere"),
        }
    }

    fn in_snapshots<T>(
        &self,
        caller: &Caller,
        directory: &OpPath,
        run: impl FnOnce(NodeId) -> FsResult<T>,
    ) -> FsResult<T> {
        let mut path = directory.clone();
        path.push(SNAPSHOTS.to_vec());
        self.with(caller, &path, run)
    }

    fn background(&self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed);
        if random.bool() {
            self.env.clock.advance(Duration::from_secs(3));
        }
        for _ in 0..random.u32(1..40) {
            self.fs.background_step(random.usize(1..60)).expect("background work goes well");
        }
    }
}

fn open(env: &SimEnv, store: &Arc<MemStore>, header: &VolumeHeader, bits: u32) -> Arc<fs::Volume> {
    let hash = NameHash::with_bits(header.hash_key, bits);
    let store: Arc<dyn Store> = Arc::<MemStore>::clone(store);
    let options = OpenOptions { prune_records: 8, ..OpenOptions::default() };
    let fs = Fs::open_with_hash(env.env(), store, header.clone(), &options, hash);
    shown(&fs.expect("the volume opens"))
}

fn done<T>(result: FsResult<T>) -> FsResult<Effect> {
    result.map(|_| Effect::Done)
}

fn stat(attr: &Attr) -> Effect {
    Effect::Stat(Stat::of(attr))
}

fn list(fs: &Fs, caller: &Caller, node: NodeId) -> FsResult<Effect> {
    let mut listed = Vec::new();
    let mut cookie = 0;
    // In pieces, as a kernel does, with attributes at odd ones.
    loop {
        let mut taken = Vec::new();
        let mut take = |entry: &fs::DirEntry<'_>| {
            if taken.len() == 3 {
                return WalkControl::Stop;
            }
            cookie = entry.cookie;
            taken.push((entry.name.to_vec(), entry.kind, entry.node));
            WalkControl::Continue
        };
        let plus = listed.len() % 2 == 1;
        let from = listed.last().map_or(0, |(_, cookie): &(Listed, u64)| *cookie);
        if plus {
            fs.readdirplus(caller, node, from, &mut take)?;
        } else {
            fs.readdir(caller, node, from, &mut take)?;
        }
        for (name, kind, node) in &taken {
            if plus {
                fs.forget(*node, 1);
            }
            listed.push((Listed { name: name.clone(), kind: *kind }, cookie));
        }
        if taken.len() < 3 {
            break;
        }
    }
    let mut listed: Vec<_> = listed.into_iter().map(|(listed, _)| listed).collect();
    listed.sort();
    Ok(Effect::List(listed))
}

impl Subject for Tested {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Result<Effect, ErrorKind> {
        let passed = now.0 - self.env.clock.now().0;
        if now.0 != 0 && passed > 0 {
            self.env.clock.advance(Duration::from_nanos(passed as u64));
        }
        self.run_op(caller, op).map_err(|error| {
            assert!(!matches!(error, FsError::Io(_)), "{op:?}: {error}");
            blame(&error)
        })
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        let found = self.with(&Caller::root(), path, |node| self.fs.getattr(&Caller::root(), node));
        found.expect("a path that was listed").node.shown()
    }
}

fn run(seed: u64, ops: usize, mut generator: Generator) {
    let mut tested = Tested::new(seed);
    let driver = Driver::new(&mut tested, SNAPSHOTS, seed);
    let report = driver.run(&mut generator, ops, Comparison { every: 50 });
    assert!(report.succeeded > 0, "seed {seed}: nothing succeeds");
}

#[test]
fn plain_operations_agree_with_the_model() {
    for seed in 0..30 {
        run(seed, 300, Generator::plain(seed));
    }
}

#[test]
fn snapshots_and_clones_agree_with_the_model() {
    for seed in 100..140 {
        run(seed, 300, Generator::new(seed));
    }
}
