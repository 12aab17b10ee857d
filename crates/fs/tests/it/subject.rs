//! A volume as the subject of the model: paths are walked component by component, as a kernel does,
//! and every look-up is forgotten again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Device, Env, Objects, Timestamp};
use format::volume::VolumeHeader;
use fs::{
    Allocate, DirEntry, Engine, Entry, FileSystem, FormatOptions, Fs, FsResult, Layout, NewNode,
    OpenError, OpenOptions, RenameMode, SetXattr, SyncScope, WalkControl,
};
use inode::{Caller, FsError, NodeId};
use store::Durable;
use testing::model::{
    AllocateStyle, Effect, ErrorKind, Listed, Op, OpPath, RenameStyle, Stat, Subject, Target,
    XattrStyle, blame,
};
use testing::{FarBlobs, LoggedStore, SimDevice, SimEnv};

use crate::support::{inode_home, shown};

/// A clock that is set; the time of day may be another than it should be.
#[derive(Debug, Default)]
pub(crate) struct SetClock(Mutex<i64>, AtomicI64);

impl SetClock {
    /// Has the time of day be ahead by so many seconds.
    pub(crate) fn be_ahead(&self, seconds: i64) {
        self.1.store(seconds * 1_000_000_000, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now(&self) -> Timestamp {
        Timestamp(*self.0.lock() + self.1.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_nanos(u64::try_from(*self.0.lock()).unwrap_or(0))
    }

    fn sleep(&self, duration: Duration) {
        *self.0.lock() += i64::try_from(duration.as_nanos()).unwrap_or(0);
        device::yield_now();
    }
}

/// Which store is below a volume.
#[derive(Debug, Clone)]
pub(crate) enum Base {
    /// The one that the volume is formatted with.
    Engine(Engine),
    /// The log-structured engine with value logs.
    Column,
    /// The log-structured engine, with everything in an object store.
    Objects(Arc<FarBlobs>),
    /// The oracle behind the log, with the header of the volume that it holds: what fails on the
    /// engine and not on the oracle is the engine's.
    Oracle(Option<VolumeHeader>),
}

/// A volume on a simulated disk.
pub(crate) struct FsSubject {
    env: Env,
    clock: Arc<SetClock>,
    options: OpenOptions,
    base: Base,
    volume: Option<Arc<fs::Volume>>,
    /// Files held open.
    slots: BTreeMap<usize, NodeId>,
    /// The directory of the volume that paths start in.
    start: OpPath,
}

/// The object store of a volume, if it is in one.
fn far(base: &Base, clock: &Arc<SetClock>) -> Option<Objects> {
    let Base::Objects(far) = base else { return None };
    Some(Objects::new(Arc::<FarBlobs>::clone(far), Arc::<SetClock>::clone(clock)))
}

type Answer = Result<Effect, ErrorKind>;

impl FsSubject {
    /// A fresh volume.
    pub(crate) fn format(device: &SimDevice, options: &OpenOptions, base: &Base) -> FsSubject {
        FsSubject::format_on(Arc::new(device.clone()), options, base)
    }

    /// As [`FsSubject::format`], on whatever device.
    pub(crate) fn format_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        base: &Base,
    ) -> FsSubject {
        let mut subject = FsSubject::unopened(device, options, base);
        subject.clock.sleep(Duration::from_secs(1_700_000_000));
        let (engine, layout) = match base {
            Base::Engine(engine) => (*engine, Layout::Rows),
            Base::Column | Base::Objects(_) => (Engine::Lsm, Layout::Column),
            Base::Oracle(_) => (Engine::default(), Layout::Rows),
        };
        let inode_home = inode_home();
        let format = FormatOptions { engine, layout, inode_home, ..FormatOptions::default() };
        if let Base::Oracle(header) = &mut subject.base {
            let store = LoggedStore::create(&subject.env, options.durability);
            let store = store.expect("an empty disk takes a store");
            *header = Some(Fs::format_on(&subject.env, &store, &format).expect("an empty store"));
            store.close().expect("a store closes");
        } else {
            Fs::format(&subject.env, &format).expect("an empty disk is formatted");
        }
        subject.reopen().expect("a fresh volume opens");
        subject
    }

    /// A volume that is there.
    pub(crate) fn open(
        device: &SimDevice,
        options: &OpenOptions,
        base: &Base,
    ) -> Result<FsSubject, OpenError> {
        FsSubject::open_on(Arc::new(device.clone()), options, base)
    }

    /// As [`FsSubject::open`], on whatever device.
    pub(crate) fn open_on(
        device: Arc<dyn Device>,
        options: &OpenOptions,
        base: &Base,
    ) -> Result<FsSubject, OpenError> {
        let mut subject = FsSubject::unopened(device, options, base);
        subject.clock.sleep(Duration::from_secs(1_800_000_000));
        subject.reopen()?;
        Ok(subject)
    }

    fn unopened(device: Arc<dyn Device>, options: &OpenOptions, base: &Base) -> FsSubject {
        let clock = Arc::new(SetClock::default());
        let env = SimEnv::on(SimDevice::new(7), 7).env();
        FsSubject {
            env: Env {
                clock: Arc::<SetClock>::clone(&clock),
                device,
                objects: far(base, &clock),
                ..env
            },
            clock,
            options: options.clone(),
            base: base.clone(),
            volume: None,
            slots: BTreeMap::new(),
            start: OpPath::new(),
        }
    }

    fn reopen(&mut self) -> Result<(), OpenError> {
        // What an opening learned of the store is not the next one's.
        self.env.objects = far(&self.base, &self.clock);
        let env = self.env.clone();
        let fs = match &self.base {
            Base::Objects(far) => {
                if env.device.metadata(format::volume::FILE)?.is_none() {
                    fs::make_host(&*env.device, &**far, "s3://bucket/prefix")?;
                }
                Fs::open(env, &self.options)?
            }
            Base::Engine(_) | Base::Column => Fs::open(env, &self.options)?,
            Base::Oracle(header) => {
                let header = header.clone().expect("the volume was formatted");
                let store = LoggedStore::open(&env, self.options.durability)?;
                Fs::open_on(env, Arc::new(store), header, &self.options)?
            }
        };
        self.volume = Some(shown(&fs));
        Ok(())
    }

    /// Has all paths start in a directory of the volume from now on.
    pub(crate) fn start_in(&mut self, directory: OpPath) {
        self.start = directory;
    }

    /// What is below, for opening copies of the disk.
    pub(crate) fn base(&self) -> &Base {
        &self.base
    }

    /// Its clock.
    pub(crate) fn clock(&self) -> &SetClock {
        &self.clock
    }

    /// The volume.
    pub(crate) fn fs(&self) -> &fs::Volume {
        self.volume.as_ref().expect("the volume is open")
    }

    /// Closes the volume and opens it again.
    pub(crate) fn cycle(&mut self) -> FsResult<()> {
        self.slots.clear();
        if let Some(volume) = self.volume.take() {
            volume.close()?;
        }
        self.reopen().map_err(|error| match error {
            // A fault that a test ordered.
            OpenError::Device(error) => FsError::Io(error.to_string().into()),
            error => panic!("a closed volume opens: {error}"),
        })
    }

    /// Background work until nothing is due at once, or for a number of steps.
    pub(crate) fn background(&self, steps: u64) -> FsResult<()> {
        for _ in 0..steps {
            if !self.fs().background_step(64)?.more {
                break;
            }
        }
        Ok(())
    }

    /// Follows a path; the node has one look-up that the caller must forget.
    fn walk(&self, caller: &Caller, path: &[Vec<u8>]) -> FsResult<NodeId> {
        let fs = self.fs();
        let mut at = NodeId::ROOT;
        let root = Caller::root();
        let start = self.start.iter().map(|name| (&root, name));
        for (caller, name) in start.chain(path.iter().map(|name| (caller, name))) {
            let found = fs.lookup(caller, at, name);
            self.leave(at);
            at = found?.node;
        }
        Ok(at)
    }

    fn leave(&self, node: NodeId) {
        if node != NodeId::ROOT {
            self.fs().forget(node, 1);
        }
    }

    /// Follows a path, does something with the node, and lets go of it.
    fn with<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        act: impl FnOnce(&Fs, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let node = self.walk(caller, path).map_err(|error| blame(&error))?;
        let done = act(self.fs(), node);
        self.leave(node);
        done.map_err(|error| blame(&error))
    }

    /// As `with`, for the directory and the name of an entry; `at_root` is the answer for the root.
    fn at<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        at_root: ErrorKind,
        act: impl FnOnce(&Fs, NodeId, &[u8]) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let (name, parent) = path.split_last().ok_or(at_root)?;
        self.with(caller, parent, |fs, node| act(fs, node, name))
    }

    /// As `with`, for a path or a held file.
    fn on<T>(
        &self,
        caller: &Caller,
        target: &Target,
        act: impl FnOnce(&Fs, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        match target {
            Target::Path(path) => self.with(caller, path, act),
            Target::Slot(slot) => {
                let node = *self.slots.get(slot).ok_or(ErrorKind::Stale)?;
                act(self.fs(), node).map_err(|error| blame(&error))
            }
        }
    }

    fn made(&self, made: Result<Entry, ErrorKind>) -> Answer {
        let entry = made?;
        self.leave(entry.node);
        Ok(Effect::Stat(Stat::of(&entry.attr)))
    }

    fn open_slot(&mut self, caller: &Caller, slot: usize, path: &OpPath) -> Answer {
        self.close_slot(slot);
        let node = self.walk(caller, path).map_err(|error| blame(&error))?;
        match self.fs().getattr(&Caller::root(), node) {
            Ok(attr) if attr.kind == inode::Kind::File => {
                self.slots.insert(slot, node);
                Ok(Effect::Done)
            }
            Ok(_) => {
                self.leave(node);
                Err(ErrorKind::InvalidArgument)
            }
            Err(error) => {
                self.leave(node);
                Err(blame(&error))
            }
        }
    }

    fn close_slot(&mut self, slot: usize) {
        if let Some(node) = self.slots.remove(&slot) {
            self.leave(node);
        }
    }

    fn list(&self, caller: &Caller, path: &OpPath) -> Answer {
        let mut listed = Vec::new();
        self.with(caller, path, |fs, node| {
            let mut take = |entry: &DirEntry<'_>| {
                listed.push(Listed { name: entry.name.to_vec(), kind: entry.kind });
                WalkControl::Continue
            };
            fs.readdir(caller, node, 0, &mut take)
        })?;
        listed.sort();
        Ok(Effect::List(listed))
    }

    fn names(&mut self, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::Mknod { path, kind, mode } => {
                let new = NewNode { kind: *kind, mode: *mode, rdev: 0 };
                self.made(self.at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    fs.mknod(caller, parent, name, &new)
                }))
            }
            Op::Mkdir { path, mode } => {
                self.made(self.at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    fs.mkdir(caller, parent, name, *mode)
                }))
            }
            Op::Symlink { path, target } => {
                self.made(self.at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    fs.symlink(caller, parent, name, target)
                }))
            }
            Op::Link { from, to } => {
                let node = match self.walk(caller, from) {
                    Ok(node) => node,
                    Err(error) => return Some(Err(blame(&error))),
                };
                let made = self.at(caller, to, ErrorKind::Exists, |fs, parent, name| {
                    fs.link(caller, node, parent, name)
                });
                self.leave(node);
                self.made(made)
            }
            Op::Unlink { path } => self
                .at(caller, path, ErrorKind::IsDirectory, |fs, parent, name| {
                    fs.unlink(caller, parent, name)
                })
                .map(|()| Effect::Done),
            Op::Rmdir { path } => self
                .at(caller, path, ErrorKind::Busy, |fs, parent, name| {
                    fs.rmdir(caller, parent, name)
                })
                .map(|()| Effect::Done),
            Op::Rename { from, to, style } => self.rename(caller, from, to, *style),
            Op::List { path } => self.list(caller, path),
            _ => return None,
        })
    }

    fn rename(&self, caller: &Caller, from: &OpPath, to: &OpPath, style: RenameStyle) -> Answer {
        let mode = match style {
            RenameStyle::Replace => RenameMode::Replace,
            RenameStyle::NoReplace => RenameMode::NoReplace,
            RenameStyle::Exchange => RenameMode::Exchange,
            RenameStyle::Whiteout => RenameMode::Whiteout,
        };
        let (to_name, to_parent) = to.split_last().ok_or(ErrorKind::Busy)?;
        self.at(caller, from, ErrorKind::Busy, |fs, parent, name| {
            let target = self.walk(caller, to_parent)?;
            let done = fs.rename(caller, (parent, name), (target, to_name), mode);
            self.leave(target);
            done
        })
        .map(|()| Effect::Done)
    }

    fn contents(&mut self, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::Readlink { path } => {
                self.with(caller, path, |fs, node| fs.readlink(caller, node)).map(Effect::Bytes)
            }
            Op::Stat { target } => self
                .on(caller, target, |fs, node| fs.getattr(caller, node))
                .map(|attr| Effect::Stat(Stat::of(&attr))),
            Op::SetAttr { target, changes } => self
                .on(caller, target, |fs, node| fs.setattr(caller, node, changes))
                .map(|attr| Effect::Stat(Stat::of(&attr))),
            Op::Access { path, mask } => self
                .with(caller, path, |fs, node| fs.access(caller, node, *mask))
                .map(|()| Effect::Done),
            Op::Open { slot, path } => self.open_slot(caller, *slot, path),
            Op::Close { slot } => {
                self.close_slot(*slot);
                Ok(Effect::Done)
            }
            Op::Read { target, offset, length } => {
                let mut buffer = vec![0; *length];
                self.on(caller, target, |fs, node| fs.read(caller, node, *offset, &mut buffer)).map(
                    |read| {
                        buffer.truncate(read);
                        Effect::Bytes(buffer)
                    },
                )
            }
            Op::Write { target, offset, length, seed } => {
                let bytes = Op::write_bytes(*length, *seed);
                self.on(caller, target, |fs, node| fs.write(caller, node, *offset, &bytes))
                    .map(|()| Effect::Done)
            }
            Op::Allocate { target, offset, length, style } => self
                .on(caller, target, |fs, node| {
                    fs.fallocate(caller, node, (*offset, *length), allocate(*style))
                })
                .map(|()| Effect::Done),
            Op::CopyRange { from, from_offset, to, to_offset, length } => self
                .on(caller, from, |_, source| {
                    Ok(self.on(caller, to, |fs, node| {
                        copy_all(fs, caller, (source, *from_offset), (node, *to_offset), *length)
                    }))
                })
                .and_then(|done| done)
                .map(|()| Effect::Done),
            Op::Fsync { target } => self
                .on(caller, target, |fs, node| fs.fsync(node, SyncScope::All))
                .map(|()| Effect::Done),
            _ => return None,
        })
    }

    fn xattrs(&mut self, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::GetXattr { path, name } => self
                .with(caller, path, |fs, node| fs.getxattr(caller, node, name))
                .map(Effect::Bytes),
            Op::ListXattr { path } => {
                self.with(caller, path, |fs, node| fs.listxattr(caller, node)).map(|joined| {
                    let names = joined.split(|&byte| byte == 0).filter(|name| !name.is_empty());
                    let mut names: Vec<Vec<u8>> = names.map(<[u8]>::to_vec).collect();
                    names.sort();
                    Effect::Names(names)
                })
            }
            Op::SetXattr { path, name, value, style } => {
                let mode = match style {
                    XattrStyle::Any => SetXattr::Any,
                    XattrStyle::Create => SetXattr::Create,
                    XattrStyle::Replace => SetXattr::Replace,
                };
                self.with(caller, path, |fs, node| fs.setxattr(caller, node, name, value, mode))
                    .map(|()| Effect::Done)
            }
            Op::RemoveXattr { path, name } => self
                .with(caller, path, |fs, node| fs.removexattr(caller, node, name))
                .map(|()| Effect::Done),
            _ => return None,
        })
    }

    fn versions(&mut self, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::SnapshotCreate { directory, name } => self
                .with(caller, directory, |fs, node| fs.snapshot_create(caller, node, name))
                .map(|_| Effect::Done),
            Op::SnapshotDelete { directory, name } => self
                .with(caller, directory, |fs, node| fs.snapshot_delete(caller, node, name))
                .map(|()| Effect::Done),
            Op::SnapshotRename { directory, from, to } => self
                .with(caller, directory, |fs, node| fs.snapshot_rename(caller, node, from, to))
                .map(|()| Effect::Done),
            Op::SnapshotList { directory } => self
                .with(caller, directory, |fs, node| fs.snapshot_list(caller, node))
                .map(|found| {
                    let mut names: Vec<Vec<u8>> = found.into_iter().map(|one| one.name).collect();
                    names.sort();
                    Effect::Names(names)
                }),
            Op::Clone { from, to } => {
                let node = match self.walk(caller, from) {
                    Ok(node) => node,
                    Err(error) => return Some(Err(blame(&error))),
                };
                let cloned = self.at(caller, to, ErrorKind::Exists, |fs, parent, name| {
                    fs.clone_dir(caller, node, parent, name)
                });
                self.leave(node);
                cloned.map(|_| Effect::Done)
            }
            Op::SubvolumeCreate { path, mode } => self
                .at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    let entry = fs.subvolume_create(caller, parent, name, *mode)?;
                    self.leave(entry.node);
                    Ok(())
                })
                .map(|()| Effect::Done),
            Op::Rollback { directory, name } => self
                .with(caller, directory, |fs, node| fs.rollback(caller, node, name))
                .map(|()| Effect::Done),
            Op::Rmr { path } => self
                .at(caller, path, ErrorKind::Busy, |fs, parent, name| fs.rmr(caller, parent, name))
                .map(|_| Effect::Done),
            _ => return None,
        })
    }
}

impl Subject for FsSubject {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Answer {
        if now.0 > 0 {
            *self.clock.0.lock() = now.0;
        }
        let answer = match op {
            Op::Background { seed } => {
                Some(self.background(1 + seed % 8).map(|()| Effect::Done).map_err(|e| blame(&e)))
            }
            Op::Reopen => Some(self.cycle().map(|()| Effect::Done).map_err(|e| blame(&e))),
            _ => None,
        };
        answer
            .or_else(|| self.names(caller, op))
            .or_else(|| self.contents(caller, op))
            .or_else(|| self.xattrs(caller, op))
            .or_else(|| self.versions(caller, op))
            .expect("every operation is of one of these kinds")
    }

    fn identity(&mut self, path: &OpPath) -> u64 {
        let attr = self.with(&Caller::root(), path, |fs, node| fs.getattr(&Caller::root(), node));
        attr.expect("paths that are dumped exist").node.shown()
    }
}

/// What the model calls a style.
pub(crate) fn allocate(style: AllocateStyle) -> Allocate {
    match style {
        AllocateStyle::Grow => Allocate::Grow,
        AllocateStyle::Keep => Allocate::Keep,
        AllocateStyle::Punch => Allocate::Punch,
        AllocateStyle::Zero => Allocate::Zero,
        AllocateStyle::ZeroKeep => Allocate::ZeroKeep,
    }
}

/// Copies a range in as many calls as it takes, as `cp` does: what the source has now, for a copy
/// within a file may make it longer.
pub(crate) fn copy_all(
    fs: &Fs,
    caller: &Caller,
    (from, mut from_offset): (NodeId, u64),
    (to, mut to_offset): (NodeId, u64),
    mut length: u64,
) -> FsResult<()> {
    // (Who may not ask for attributes gets the error of the copy.)
    let size = fs.getattr(&Caller::root(), from).map_or(u64::MAX, |attr| attr.size);
    if length > 0 && size > from_offset {
        length = length.min(size - from_offset);
    }
    loop {
        let done = fs.copy_range(caller, (from, from_offset), (to, to_offset), length)?;
        if done == 0 || done == length {
            return Ok(());
        }
        (from_offset, to_offset, length) = (from_offset + done, to_offset + done, length - done);
    }
}
