//! A served volume as the subject of the model: what POSIX has goes over the network, what only
//! verbs do is done by the volume itself. Paths are walked component by component, as a kernel
//! does, and every look-up is forgotten again.

use std::collections::BTreeMap;

use device::Timestamp;
use inode::{Caller, NodeId};
use testing::model::{
    AllocateStyle, Effect, ErrorKind, Listed, Op, OpPath, RenameStyle, Stat, Subject, Target,
    XattrStyle, blame,
};
use vfs::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, NewNode, RenameMode, SetXattr, SyncScope,
    WalkControl,
};

use crate::rig::Rig;

type Answer = Result<Effect, ErrorKind>;

/// The subject.
pub(crate) struct RemoteSubject {
    pub(crate) rig: Rig,
    /// Files held open.
    slots: BTreeMap<usize, NodeId>,
}

impl RemoteSubject {
    pub(crate) fn new(rig: Rig) -> RemoteSubject {
        RemoteSubject { rig, slots: BTreeMap::new() }
    }

    fn far(&self) -> &dyn FileSystem {
        self.rig.far()
    }

    /// Follows a path; the node has one look-up that the caller must forget.
    fn walk(fs: &dyn FileSystem, caller: &Caller, path: &[Vec<u8>]) -> FsResult<NodeId> {
        let mut at = NodeId::ROOT;
        for name in path {
            let found = fs.lookup(caller, at, name);
            leave(fs, at);
            at = found?.node;
        }
        Ok(at)
    }

    /// Follows a path, does something with the node, and lets go of it.
    fn with<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        act: impl FnOnce(&dyn FileSystem, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let fs = self.far();
        let node = Self::walk(fs, caller, path).map_err(|error| blame(&error))?;
        let done = act(fs, node);
        leave(fs, node);
        done.map_err(|error| blame(&error))
    }

    /// As `with`, on the server's own side.
    fn here<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        act: impl FnOnce(&fs::Volume, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let fs = self.rig.near();
        let node = Self::walk(fs, caller, path).map_err(|error| blame(&error))?;
        let done = act(fs, node);
        leave(fs, node);
        done.map_err(|error| blame(&error))
    }

    /// As `with`, for the directory and the name of an entry; `at_root` is the answer for the root.
    fn at<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        at_root: ErrorKind,
        act: impl FnOnce(&dyn FileSystem, NodeId, &[u8]) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let (name, parent) = path.split_last().ok_or(at_root)?;
        self.with(caller, parent, |fs, node| act(fs, node, name))
    }

    fn here_at<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        at_root: ErrorKind,
        act: impl FnOnce(&fs::Volume, NodeId, &[u8]) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let (name, parent) = path.split_last().ok_or(at_root)?;
        self.here(caller, parent, |fs, node| act(fs, node, name))
    }

    /// As `with`, for a path or a held file.
    fn on<T>(
        &self,
        caller: &Caller,
        target: &Target,
        act: impl FnOnce(&dyn FileSystem, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        match target {
            Target::Path(path) => self.with(caller, path, act),
            Target::Slot(slot) => {
                let node = *self.slots.get(slot).ok_or(ErrorKind::Stale)?;
                act(self.far(), node).map_err(|error| blame(&error))
            }
        }
    }

    fn leave(&self, node: NodeId) {
        leave(self.far(), node);
    }

    fn made(&self, made: Result<Entry, ErrorKind>) -> Answer {
        let entry = made?;
        self.leave(entry.node);
        Ok(Effect::Stat(Stat::of(&entry.attr)))
    }

    fn open_slot(&mut self, caller: &Caller, slot: usize, path: &OpPath) -> Answer {
        self.close_slot(slot);
        let node = Self::walk(self.far(), caller, path).map_err(|error| blame(&error))?;
        match self.far().getattr(&Caller::root(), node) {
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
                let node = match Self::walk(self.far(), caller, from) {
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
            let target = Self::walk(self.far(), caller, to_parent)?;
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
                .here(caller, directory, |fs, node| fs.snapshot_create(caller, node, name))
                .map(|_| Effect::Done),
            Op::SnapshotDelete { directory, name } => self
                .here(caller, directory, |fs, node| fs.snapshot_delete(caller, node, name))
                .map(|()| Effect::Done),
            Op::SnapshotRename { directory, from, to } => self
                .here(caller, directory, |fs, node| fs.snapshot_rename(caller, node, from, to))
                .map(|()| Effect::Done),
            Op::SnapshotList { directory } => self
                .here(caller, directory, |fs, node| fs.snapshot_list(caller, node))
                .map(|found| {
                    let mut names: Vec<Vec<u8>> = found.into_iter().map(|one| one.name).collect();
                    names.sort();
                    Effect::Names(names)
                }),
            Op::Clone { from, to } => {
                let node = match Self::walk(self.rig.near(), caller, from) {
                    Ok(node) => node,
                    Err(error) => return Some(Err(blame(&error))),
                };
                let cloned = self.here_at(caller, to, ErrorKind::Exists, |fs, parent, name| {
                    fs.clone_dir(caller, node, parent, name)
                });
                leave(self.rig.near(), node);
                cloned.map(|_| Effect::Done)
            }
            Op::SubvolumeCreate { path, mode } => self
                .here_at(caller, path, ErrorKind::Exists, |fs, parent, name| {
                    let entry = fs.subvolume_create(caller, parent, name, *mode)?;
                    leave(self.rig.near(), entry.node);
                    Ok(())
                })
                .map(|()| Effect::Done),
            Op::Rollback { directory, name } => self
                .here(caller, directory, |fs, node| fs.rollback(caller, node, name))
                .map(|()| Effect::Done),
            Op::Rmr { path } => self
                .here_at(caller, path, ErrorKind::Busy, |fs, parent, name| {
                    fs.rmr(caller, parent, name)
                })
                .map(|_| Effect::Done),
            _ => return None,
        })
    }
}

impl Subject for RemoteSubject {
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Answer {
        if now.0 > 0 {
            self.rig.set_clock(now);
        }
        let answer = match op {
            Op::Background { seed } => {
                let done = self.rig.background(1 + seed % 8);
                Some(done.map(|()| Effect::Done).map_err(|error| blame(&error)))
            }
            Op::Reopen => {
                self.slots.clear();
                self.rig.restart();
                Some(Ok(Effect::Done))
            }
            _ => None,
        };
        self.rig.disturb();
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

fn leave(fs: &dyn FileSystem, node: NodeId) {
    if node != NodeId::ROOT {
        fs.forget(node, 1);
    }
}

/// What the model calls a style.
fn allocate(style: AllocateStyle) -> Allocate {
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
fn copy_all(
    fs: &dyn FileSystem,
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
