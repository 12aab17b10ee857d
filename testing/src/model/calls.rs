//! The calls of any file system as a subject of the model. Paths are walked component by component,
//! as a kernel does, and every look-up is forgotten again. What only verbs do is the caller's.

use std::cell::Cell;
use std::collections::BTreeMap;

use inode::{Caller, FsError, IoFailure, NodeId};
use vfs::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, NewNode, RenameMode, SetXattr, SyncScope,
    WalkControl,
};

use super::{
    AllocateStyle, Effect, ErrorKind, Listed, Op, OpPath, RenameStyle, Stat, Target, XattrStyle,
    blame,
};

type Answer = Result<Effect, ErrorKind>;

/// Files that are held open, by slot.
pub type Slots = BTreeMap<usize, NodeId>;

/// A file system, and the directory in which paths start.
pub struct Calls<'a, F: FileSystem + ?Sized> {
    /// The file system.
    pub fs: &'a F,
    /// The way from its root, which root walks.
    start: &'a [Vec<u8>],
    /// The last error that was of the kind `Io`, whole: the kind does not have its place.
    failure: Cell<Option<IoFailure>>,
}

impl<'a, F: FileSystem + ?Sized> Calls<'a, F> {
    /// Of a file system, with paths that start in a directory of it.
    pub fn new(fs: &'a F, start: &'a [Vec<u8>]) -> Calls<'a, F> {
        Calls { fs, start, failure: Cell::new(None) }
    }

    /// What could not be read, of the last call that failed so.
    pub fn take_failure(&self) -> Option<IoFailure> {
        self.failure.take()
    }

    /// The kind of an error; what could not be read is kept.
    pub fn blame(&self, error: &FsError) -> ErrorKind {
        if let FsError::Io(failure) = error {
            self.failure.set(Some(failure.clone()));
        }
        blame(error)
    }

    /// Makes the calls of an operation; `None`: it is not made of calls but a verb.
    pub fn run(&self, slots: &mut Slots, caller: &Caller, op: &Op) -> Option<Answer> {
        self.names(caller, op)
            .or_else(|| self.contents(slots, caller, op))
            .or_else(|| self.xattrs(caller, op))
    }

    /// Follows a path; the node has one look-up that the caller must forget.
    pub fn walk(&self, caller: &Caller, path: &[Vec<u8>]) -> FsResult<NodeId> {
        let mut at = NodeId::ROOT;
        let root = Caller::root();
        let start = self.start.iter().map(|name| (&root, name));
        for (caller, name) in start.chain(path.iter().map(|name| (caller, name))) {
            let found = self.fs.lookup(caller, at, name);
            self.leave(at);
            at = found?.node;
        }
        Ok(at)
    }

    /// Lets go of a node.
    pub fn leave(&self, node: NodeId) {
        if node != NodeId::ROOT {
            self.fs.forget(node, 1);
        }
    }

    /// Follows a path, does something with the node, and lets go of it.
    pub fn with<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        act: impl FnOnce(&F, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let node = self.walk(caller, path).map_err(|error| self.blame(&error))?;
        let done = act(self.fs, node);
        self.leave(node);
        done.map_err(|error| self.blame(&error))
    }

    /// As `with`, for the directory and the name of an entry; `at_root` is the answer for the root.
    pub fn at<T>(
        &self,
        caller: &Caller,
        path: &[Vec<u8>],
        at_root: ErrorKind,
        act: impl FnOnce(&F, NodeId, &[u8]) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        let (name, parent) = path.split_last().ok_or(at_root)?;
        self.with(caller, parent, |fs, node| act(fs, node, name))
    }

    /// The number of what a path points to.
    pub fn identity(&self, path: &OpPath) -> u64 {
        let attr = self.with(&Caller::root(), path, |fs, node| fs.getattr(&Caller::root(), node));
        attr.expect("paths that are dumped exist").node.shown()
    }

    /// As `with`, for a path or a held file.
    fn on<T>(
        &self,
        slots: &Slots,
        caller: &Caller,
        target: &Target,
        act: impl FnOnce(&F, NodeId) -> FsResult<T>,
    ) -> Result<T, ErrorKind> {
        match target {
            Target::Path(path) => self.with(caller, path, act),
            Target::Slot(slot) => {
                let node = *slots.get(slot).ok_or(ErrorKind::Stale)?;
                act(self.fs, node).map_err(|error| self.blame(&error))
            }
        }
    }

    fn names(&self, caller: &Caller, op: &Op) -> Option<Answer> {
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
                    Err(error) => return Some(Err(self.blame(&error))),
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

    fn contents(&self, slots: &mut Slots, caller: &Caller, op: &Op) -> Option<Answer> {
        Some(match op {
            Op::Readlink { path } => {
                self.with(caller, path, |fs, node| fs.readlink(caller, node)).map(Effect::Bytes)
            }
            Op::Stat { target } => self
                .on(slots, caller, target, |fs, node| fs.getattr(caller, node))
                .map(|attr| Effect::Stat(Stat::of(&attr))),
            Op::SetAttr { target, changes } => self
                .on(slots, caller, target, |fs, node| fs.setattr(caller, node, changes))
                .map(|attr| Effect::Stat(Stat::of(&attr))),
            Op::Access { path, mask } => self
                .with(caller, path, |fs, node| fs.access(caller, node, *mask))
                .map(|()| Effect::Done),
            Op::Open { slot, path } => self.open_slot(slots, caller, *slot, path),
            Op::Close { slot } => {
                self.close_slot(slots, *slot);
                Ok(Effect::Done)
            }
            Op::Read { target, offset, length } => {
                let mut buffer = vec![0; *length];
                self.on(slots, caller, target, |fs, node| {
                    fs.read(caller, node, *offset, &mut buffer)
                })
                .map(|read| {
                    buffer.truncate(read);
                    Effect::Bytes(buffer)
                })
            }
            Op::Write { target, offset, length, seed } => {
                let bytes = Op::write_bytes(*length, *seed);
                self.on(slots, caller, target, |fs, node| fs.write(caller, node, *offset, &bytes))
                    .map(|()| Effect::Done)
            }
            Op::Allocate { target, offset, length, style } => self
                .on(slots, caller, target, |fs, node| {
                    fs.fallocate(caller, node, (*offset, *length), allocate(*style))
                })
                .map(|()| Effect::Done),
            Op::CopyRange { from, from_offset, to, to_offset, length } => self
                .on(slots, caller, from, |_, source| {
                    Ok(self.on(slots, caller, to, |fs, node| {
                        copy_all(fs, caller, (source, *from_offset), (node, *to_offset), *length)
                    }))
                })
                .and_then(|done| done)
                .map(|()| Effect::Done),
            Op::Fsync { target } => self
                .on(slots, caller, target, |fs, node| fs.fsync(node, SyncScope::All))
                .map(|()| Effect::Done),
            _ => return None,
        })
    }

    fn open_slot(&self, slots: &mut Slots, caller: &Caller, slot: usize, path: &OpPath) -> Answer {
        self.close_slot(slots, slot);
        let node = self.walk(caller, path).map_err(|error| self.blame(&error))?;
        match self.fs.getattr(&Caller::root(), node) {
            Ok(attr) if attr.kind == inode::Kind::File => {
                slots.insert(slot, node);
                Ok(Effect::Done)
            }
            Ok(_) => {
                self.leave(node);
                Err(ErrorKind::InvalidArgument)
            }
            Err(error) => {
                self.leave(node);
                Err(self.blame(&error))
            }
        }
    }

    fn close_slot(&self, slots: &mut Slots, slot: usize) {
        if let Some(node) = slots.remove(&slot) {
            self.leave(node);
        }
    }

    fn xattrs(&self, caller: &Caller, op: &Op) -> Option<Answer> {
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

    fn made(&self, made: Result<Entry, ErrorKind>) -> Answer {
        let entry = made?;
        self.leave(entry.node);
        Ok(Effect::Stat(Stat::of(&entry.attr)))
    }
}

/// What the model calls a style.
pub fn allocate(style: AllocateStyle) -> Allocate {
    match style {
        AllocateStyle::Grow => Allocate::Grow,
        AllocateStyle::Keep => Allocate::Keep,
        AllocateStyle::Punch => Allocate::Punch,
        AllocateStyle::Zero => Allocate::Zero,
        AllocateStyle::ZeroKeep => Allocate::ZeroKeep,
    }
}

/// Copies a range in as many calls as it takes, as `cp` does. The range is what the source has now,
/// for a copy within a file may make it longer.
pub fn copy_all<F: FileSystem + ?Sized>(
    fs: &F,
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
