//! A volume on a simulated disk and a caller that makes random calls. It makes any call, on nodes
//! that exist, that existed, and that never did, by owners and strangers. An error is a valid
//! answer; a panic is not, and neither is damage that the test did not cause.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::Timestamp;
use fastrand::Rng;
use fs::{
    Allocate, Engine, FileSystem, FormatOptions, Fs, FsResult, Gc, Layout, NewNode, OpenError,
    OpenOptions, Paths, RenameMode, Repair, Seek, SetXattr, SyncScope, Volume, VolumeReport,
    WalkControl,
};
use inode::{Attr, Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr, SetTime};
use store::Durability;
use testing::{SimDevice, SimEnv};

use crate::random::{bytes, name, number, signed};
use crate::small_index::small_index;

const SNAPSHOTS: &[u8] = b".snapshots";
const NAMES: [&[u8]; 9] =
    [b"a", b"b", b"c", b"d", b"long one", b".", b"..", SNAPSHOTS, b"lost+found"];

/// A volume and its caller.
pub(crate) struct World {
    pub(crate) env: SimEnv,
    pub(crate) fs: Arc<Volume>,
    pub(crate) random: Rng,
    /// Nodes that calls returned, with their look-ups held.
    nodes: Vec<NodeId>,
    /// Calls that succeeded.
    pub(crate) succeeded: u64,
    /// The first answer that reports damage.
    pub(crate) damage: Option<String>,
}

/// Short logs, small segments, clusters of few rows: everything happens soon.
fn options() -> OpenOptions {
    let mut options = OpenOptions {
        cache_bytes: 1 << 20,
        durability: Durability::Async,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 24 << 10,
        prune_records: 8,
        index: Some(small_index()),
        ..OpenOptions::default()
    };
    options.data.segment_pages = 24;
    options
}

/// A disk as the volumes here have it.
fn sim(device: &SimDevice) -> SimEnv {
    SimEnv::on(device.clone(), 7)
}

impl World {
    /// A fresh volume.
    pub(crate) fn fresh(mut random: Rng, (engine, layout): (Engine, Layout)) -> World {
        let device = SimDevice::new(random.u64(..));
        let env = sim(&device);
        let format = FormatOptions { engine, layout, root_mode: 0o777, ..FormatOptions::default() };
        Fs::format(&env.env(), &format).expect("an empty disk is formatted");
        World::open(&device, random).expect("a fresh volume opens")
    }

    /// An existing volume.
    pub(crate) fn open(device: &SimDevice, random: Rng) -> Result<World, OpenError> {
        let env = sim(device);
        let fs = Arc::new(Fs::open(env.env(), &options())?.with_virtual_dirs());
        let nodes = vec![NodeId::ROOT];
        Ok(World { env, fs, random, nodes, succeeded: 0, damage: None })
    }

    /// Makes this many calls.
    pub(crate) fn calls(&mut self, count: u32) {
        for _ in 0..count {
            let caller = self.caller();
            let done = match self.random.u8(..20) {
                0..=7 => self.make_or_remove(&caller),
                8..=12 => self.contents(&caller),
                13..=15 => self.look(&caller),
                16 | 17 => self.versions(&caller),
                _ => self.background(),
            };
            self.note(done);
        }
    }

    fn note(&mut self, done: FsResult<()>) {
        match done {
            Ok(()) => self.succeeded += 1,
            Err(FsError::Io(error)) if self.damage.is_none() => {
                self.damage = Some(error.what);
            }
            Err(_) => {}
        }
    }

    fn caller(&mut self) -> Caller {
        match self.random.u8(..6) {
            0 => Caller {
                uid: 7,
                gid: 7,
                groups: vec![9],
                enforce: Enforce::Here,
                umask: 0o22,
                pid: 0,
                ends: Ends::NONE,
            },
            _ => Caller::root(),
        }
    }

    fn node(&mut self) -> NodeId {
        match self.random.u8(..40) {
            0 => NodeId::narrow(number(&mut self.random)),
            1 => NodeId::narrow(self.random.u64(1..40) << 40 | self.random.u64(..60)),
            _ => self.nodes[self.random.usize(..self.nodes.len())],
        }
    }

    fn name(&mut self) -> Vec<u8> {
        match self.random.u8(..24) {
            0 => name(&mut self.random, 255),
            1 => bytes(&mut self.random, 260),
            2 => NAMES[self.random.usize(..NAMES.len())].to_vec(),
            _ => NAMES[self.random.usize(..5)].to_vec(),
        }
    }

    fn offset(&mut self) -> u64 {
        if self.random.u8(..12) == 0 { number(&mut self.random) } else { self.random.u64(..20_000) }
    }

    fn keep(&mut self, entry: FsResult<fs::Entry>) -> FsResult<()> {
        let node = entry?.node;
        if self.nodes.len() < 40 {
            self.nodes.push(node);
        } else {
            let at = self.random.usize(1..self.nodes.len());
            let old = std::mem::replace(&mut self.nodes[at], node);
            if self.random.u8(..4) != 0 {
                self.fs.forget(old, 1);
            }
        }
        Ok(())
    }

    fn make_or_remove(&mut self, caller: &Caller) -> FsResult<()> {
        let fs = Arc::clone(&self.fs);
        let (node, other) = (self.node(), self.node());
        let (name, second) = (self.name(), self.name());
        let mode = self.random.u32(..0o10000);
        match self.random.u8(..12) {
            0 | 1 => {
                const KINDS: [Kind; 6] = [
                    Kind::File,
                    Kind::File,
                    Kind::File,
                    Kind::Fifo,
                    Kind::CharDevice,
                    Kind::Directory,
                ];
                let kind = KINDS[self.random.usize(..KINDS.len())];
                let rdev = self.random.u32(..);
                let made = fs.mknod(caller, node, &name, &NewNode { kind, mode, rdev });
                self.keep(made)
            }
            2 | 3 => {
                let made = fs.mkdir(caller, node, &name, mode | 0o700);
                self.keep(made)
            }
            4 => {
                let target = bytes(&mut self.random, 300);
                let made = fs.symlink(caller, node, &name, &target);
                self.keep(made)
            }
            5 => {
                let made = fs.link(caller, node, other, &name);
                self.keep(made)
            }
            6 => fs.unlink(caller, node, &name),
            7 => fs.rmdir(caller, node, &name),
            8 | 9 => {
                let modes = [
                    RenameMode::Replace,
                    RenameMode::NoReplace,
                    RenameMode::Exchange,
                    RenameMode::Whiteout,
                    RenameMode::NoReplaceWhiteout,
                ];
                let mode = modes[self.random.usize(..modes.len())];
                fs.rename(caller, (node, &name), (other, &second), mode)
            }
            10 => {
                let made = fs.tmpfile(caller, node, mode);
                self.keep(made)
            }
            _ => fs.rmr(caller, node, &name).map(|_| ()),
        }
    }

    fn contents(&mut self, caller: &Caller) -> FsResult<()> {
        let fs = Arc::clone(&self.fs);
        let (node, other) = (self.node(), self.node());
        let (offset, second) = (self.offset(), self.offset());
        let length = self.offset();
        match self.random.u8(..9) {
            0..=2 => {
                let most = if self.random.bool() { 100 } else { 30_000 };
                let contents = vec![self.random.u8(..); self.random.usize(..most)];
                fs.write(caller, node, offset, &contents)
            }
            3 => {
                let mut buffer = vec![0; self.random.usize(..30_000)];
                fs.read(caller, node, offset, &mut buffer).map(|_| ())
            }
            4 => {
                let what = if self.random.bool() { Seek::Data } else { Seek::Hole };
                fs.seek(caller, node, offset, what).map(|_| ())
            }
            5 => {
                let modes = [
                    Allocate::Grow,
                    Allocate::Keep,
                    Allocate::Punch,
                    Allocate::Zero,
                    Allocate::ZeroKeep,
                ];
                fs.fallocate(caller, node, (offset, length), modes[self.random.usize(..5)])
            }
            6 => fs.copy_range(caller, (node, offset), (other, second), length).map(|_| ()),
            7 => {
                let changes = SetAttr { size: Some(length), ..SetAttr::default() };
                fs.setattr(caller, node, &changes).map(|_| ())
            }
            _ => fs.fsync(node, SyncScope::All),
        }
    }

    fn look(&mut self, caller: &Caller) -> FsResult<()> {
        let fs = Arc::clone(&self.fs);
        let (node, name) = (self.node(), self.name());
        match self.random.u8(..10) {
            0..=2 => {
                let found = fs.lookup(caller, node, &name);
                self.keep(found)
            }
            3 => fs.getattr(caller, node).map(|_: Attr| ()),
            4 => {
                let time = Timestamp(signed(&mut self.random));
                let changes = SetAttr {
                    mode: Some(self.random.u32(..0o10000)),
                    uid: self.random.bool().then_some(7),
                    mtime: Some(SetTime::At(time)),
                    ..SetAttr::default()
                };
                fs.setattr(caller, node, &changes).map(|_| ())
            }
            5 => {
                let value =
                    bytes(&mut self.random, if node.shown() % 2 == 0 { 60 } else { 70_000 });
                fs.setxattr(caller, node, b"user.one", &value, SetXattr::Any)
            }
            6 => {
                fs.removexattr(caller, node, b"user.one").and(fs.listxattr(caller, node).map(drop))
            }
            7 => fs.readlink(caller, node).and(fs.access(caller, node, 7)),
            8 => {
                let (proceed, take) =
                    (AtomicBool::new(false), &mut |_: &fs::Version| ControlFlow::Continue(()));
                let seen = fs.history(caller, b"a/b", &proceed, take);
                seen.and(fs.snapshot_list(caller, node).map(drop))
            }
            _ => {
                let mut left = self.random.usize(..50);
                let from = if self.random.bool() { 0 } else { number(&mut self.random) };
                fs.readdir(caller, node, from, &mut |_| {
                    left = left.saturating_sub(1);
                    if left == 0 { WalkControl::Stop } else { WalkControl::Continue }
                })
            }
        }
    }

    fn versions(&mut self, caller: &Caller) -> FsResult<()> {
        let fs = Arc::clone(&self.fs);
        let (node, other) = (self.node(), self.node());
        let (name, second) = (self.name(), self.name());
        match self.random.u8(..8) {
            0 | 1 => fs.snapshot_create(caller, node, &name).map(|_| ()),
            2 => fs.snapshot_delete(caller, node, &name),
            3 => fs.snapshot_rename(caller, node, &name, &second),
            4 | 5 => fs.clone_dir(caller, node, other, &name).map(|_| ()),
            6 => fs.rollback(caller, node, &name),
            _ => {
                let made = fs.subvolume_create(caller, node, &name, 0o755);
                self.keep(made)
            }
        }
    }

    fn background(&mut self) -> FsResult<()> {
        let fs = Arc::clone(&self.fs);
        match self.random.u8(..14) {
            12 => fs.quota_list(&Caller::root()).map(|_| ()),
            13 => {
                fs.owner_quota_list(&Caller::root())?;
                fs.snapshot_list_all(&Caller::root()).map(|_| ())
            }
            0 => fs.index_flush(self.node()),
            1 => fs.sync(),
            2 => fs.gc(Gc::Report, &mut |_, _| ControlFlow::Continue(())).map(|_| ()),
            3 => fs.status().map(|_| ()),
            _ => {
                self.env.clock.advance(Duration::from_millis(self.random.u64(..3000)));
                for _ in 0..self.random.u8(1..10) {
                    fs.background_step(self.random.usize(1..60))?;
                }
                Ok(())
            }
        }
    }

    /// Releases all nodes, and closes.
    pub(crate) fn close(self) -> FsResult<()> {
        for node in self.nodes {
            if node != NodeId::ROOT {
                self.fs.forget(node, 1);
            }
        }
        self.fs.close()
    }
}

/// Checks a volume that no process has open.
pub(crate) fn check(device: &SimDevice) -> Result<VolumeReport, OpenError> {
    Fs::check_offline(&sim(device).env(), &mut |_, _| ControlFlow::Continue(()))
}

/// Repairs it.
pub(crate) fn repair(device: &SimDevice, how: Repair) -> Result<fs::RepairReport, OpenError> {
    Fs::repair(&sim(device).env(), how, &mut |_, _| ControlFlow::Continue(()))
}
