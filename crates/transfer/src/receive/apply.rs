//! Applies records to a stage, one after another.

use format::stream::{Attributes, NewKind, Record};
use fs::{Allocate, FileSystem, Fs, FsResult, NewNode, RenameMode};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};

use crate::attributes;
use crate::error::{At, Error, Result};
use crate::stage::Stage;
use crate::walk::{Held, Walk};

/// Permission bits until an inode has its own.
const MODE_MEANWHILE: u32 = 0o600;
const DIRECTORY_MODE_MEANWHILE: u32 = 0o700;

/// Attributes that are kept until the end.
type Kept = (u32, u32, u32, [i64; 4], Vec<(Vec<u8>, Vec<u8>)>);

/// A stage that records are applied to.
pub(super) struct Apply<'a> {
    fs: &'a Fs,
    /// The caller, whose permission bits were checked: the stage is the caller's own.
    caller: Caller,
    pub(super) stage: Stage<'a>,
    walk: Walk<'a>,
    /// The file that contents belong to, and its path.
    open: Option<(Held<'a>, Vec<u8>)>,
    /// The directory of parked inodes.
    parked: Option<Held<'a>>,
    /// The attributes of the root. They are set last: until then only the caller may enter.
    root: Option<Kept>,
    /// Whether a part of the stream was applied before.
    continues: bool,
    /// Whether records may have been applied before: those of a complete stream, which only makes.
    repeats: bool,
}

impl<'a> Apply<'a> {
    pub(super) fn new(
        fs: &'a Fs,
        caller: Caller,
        stage: Stage<'a>,
        (continues, repeats): (bool, bool),
    ) -> Apply<'a> {
        let walk = Walk::new(fs, &caller, stage.node());
        let (open, parked, root) = (None, None, None);
        Apply { fs, caller, stage, walk, open, parked, root, continues, repeats }
    }

    /// Applies a record.
    pub(super) fn record(&mut self, record: &Record<'_>) -> Result<()> {
        match *record {
            Record::Remove { path, is_directory } => self.remove(path, is_directory),
            Record::Park { path, number, keeps_name } => self.park(path, number, keeps_name),
            Record::Place { path, number, keeps_parked } => self.place(path, number, keeps_parked),
            Record::Make { path, kind, device, target } => self.make(path, kind, device, target),
            Record::Open { path } => self.open(path),
            Record::Data { offset, bytes } => {
                self.contents(|fs, caller, node| fs.write(caller, node, offset, bytes))
            }
            Record::Hole { offset, length } => self.contents(|fs, caller, node| {
                fs.fallocate(caller, node, (offset, length), Allocate::Punch)
            }),
            Record::Size { size } => self.contents(|fs, caller, node| {
                let changes = SetAttr { size: Some(size), ..SetAttr::default() };
                fs.setattr(caller, node, &changes).map(drop)
            }),
            Record::Link { path, target } => self.link(path, target),
            Record::Attr { path, ref attributes } => self.attributes(path, attributes),
            Record::Head(_) | Record::Resume { .. } | Record::End { .. } => {
                Err(Error::refused("the stream has its parts in another order", ""))
            }
        }
    }

    /// The directory of a path, which the caller may change.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(NodeId, &'p [u8])> {
        let (directory, name) = self.walk.parent(path)?;
        self.check_own(directory).at(path)?;
        Ok((directory, name))
    }

    /// Refuses to change what another user owns: in a copy of a directory there may be such.
    fn check_own(&self, node: NodeId) -> FsResult<()> {
        if self.caller.is_root() || self.fs.getattr(&self.caller, node)?.uid == self.caller.uid {
            return Ok(());
        }
        Err(FsError::NotPermitted("only the owner changes it"))
    }

    fn remove(&mut self, path: &[u8], is_directory: bool) -> Result<()> {
        self.open = None;
        let (directory, name) = self.parent(path)?;
        let done = if is_directory {
            self.walk.changes(path);
            self.fs.rmdir(&self.caller, directory, name)
        } else {
            self.fs.unlink(&self.caller, directory, name)
        };
        done.at(path)
    }

    fn parked(&mut self) -> Result<NodeId> {
        if let Some(parked) = &self.parked {
            return Ok(parked.node());
        }
        let name = self.stage.parked();
        let (root, mode) = (self.stage.node(), DIRECTORY_MODE_MEANWHILE);
        let entry = match self.fs.mkdir(&self.caller, root, &name, mode) {
            // Of the part that was applied before.
            Err(FsError::Exists) if self.continues => self.fs.lookup(&self.caller, root, &name)?,
            made => made?,
        };
        let node = entry.node;
        self.parked = Some(Held::new(self.fs, entry));
        Ok(node)
    }

    fn park(&mut self, path: &[u8], number: u64, keeps_name: bool) -> Result<()> {
        self.open = None;
        let parked = self.parked()?;
        let (directory, name) = self.parent(path)?;
        self.walk.changes(path);
        let to = number.to_string().into_bytes();
        if keeps_name {
            let held = self.walk.entry(path)?;
            self.check_own(held.node()).at(path)?;
            let done = self.fs.link(&self.caller, held.node(), parked, &to);
            return self.forget(done).at(path);
        }
        let done =
            self.fs.rename(&self.caller, (directory, name), (parked, &to), RenameMode::NoReplace);
        done.at(path)
    }

    fn place(&mut self, path: &[u8], number: u64, keeps_parked: bool) -> Result<()> {
        self.open = None;
        let parked = self.parked()?;
        let (directory, name) = self.parent(path)?;
        self.walk.changes(path);
        let from = number.to_string().into_bytes();
        if keeps_parked {
            let found = self.fs.lookup(&self.caller, parked, &from).at(path)?;
            let held = Held::new(self.fs, found);
            let done = self.fs.link(&self.caller, held.node(), directory, name);
            return self.forget(done).at(path);
        }
        let done =
            self.fs.rename(&self.caller, (parked, &from), (directory, name), RenameMode::NoReplace);
        done.at(path)
    }

    fn forget(&self, made: FsResult<fs::Entry>) -> FsResult<()> {
        made.map(|entry| self.fs.forget(entry.node, 1))
    }

    fn make(&mut self, path: &[u8], kind: NewKind, device: u32, target: &[u8]) -> Result<()> {
        self.open = None;
        let (directory, name) = self.parent(path)?;
        let made = match self.create((directory, name), kind, device, target) {
            Err(FsError::Exists) if self.repeats => {
                let held =
                    Held::new(self.fs, self.fs.lookup(&self.caller, directory, name).at(path)?);
                if kind == NewKind::Directory && held.entry.attr.kind == Kind::Directory {
                    return Ok(());
                }
                self.fs.unlink(&self.caller, directory, name).at(path)?;
                self.create((directory, name), kind, device, target)
            }
            made => made,
        };
        let held = Held::new(self.fs, made.at(path)?);
        if kind == NewKind::File {
            self.open = Some((held, path.to_vec()));
        }
        Ok(())
    }

    fn create(
        &self,
        (directory, name): (NodeId, &[u8]),
        kind: NewKind,
        device: u32,
        target: &[u8],
    ) -> FsResult<fs::Entry> {
        let (fs, caller) = (self.fs, &self.caller);
        let kind = match kind {
            NewKind::Directory => {
                return fs.mkdir(caller, directory, name, DIRECTORY_MODE_MEANWHILE);
            }
            NewKind::Symlink => return fs.symlink(caller, directory, name, target),
            NewKind::File => Kind::File,
            NewKind::Fifo => Kind::Fifo,
            NewKind::Socket => Kind::Socket,
            NewKind::CharDevice => Kind::CharDevice,
            NewKind::BlockDevice => Kind::BlockDevice,
        };
        if matches!(kind, Kind::CharDevice | Kind::BlockDevice) && !caller.is_root() {
            return Err(FsError::RootOnly("only root makes devices"));
        }
        fs.mknod(caller, directory, name, &NewNode { kind, mode: MODE_MEANWHILE, rdev: device })
    }

    /// Opens the file that contents belong to.
    pub(super) fn open(&mut self, path: &[u8]) -> Result<()> {
        self.open = None;
        let held = self.walk.entry(path)?;
        if held.entry.attr.kind != Kind::File {
            return Err(FsError::InvalidArgument("contents of something other than a file"))
                .at(path);
        }
        self.check_own(held.node()).at(path)?;
        self.open = Some((held, path.to_vec()));
        Ok(())
    }

    fn contents(&self, change: impl FnOnce(&Fs, &Caller, NodeId) -> FsResult<()>) -> Result<()> {
        let Some((held, path)) = &self.open else {
            return Err(Error::refused("the stream has contents that belong to no file", ""));
        };
        change(self.fs, &self.caller, held.node()).at(path)
    }

    fn link(&mut self, path: &[u8], target: &[u8]) -> Result<()> {
        self.open = None;
        let held = self.walk.entry(target)?;
        self.check_own(held.node()).at(target)?;
        let (directory, name) = self.parent(path)?;
        let done = self.fs.link(&self.caller, held.node(), directory, name);
        let done = match done {
            Err(FsError::Exists) if self.repeats => {
                // It may be a name of another inode, if its first name was made again.
                self.fs.unlink(&self.caller, directory, name).at(path)?;
                self.fs.link(&self.caller, held.node(), directory, name)
            }
            done => done,
        };
        self.forget(done).at(path)
    }

    fn attributes(&mut self, path: &[u8], given: &Attributes<'_>) -> Result<()> {
        self.open = None;
        if path.is_empty() {
            let own = |(name, value): &(&[u8], &[u8])| (name.to_vec(), value.to_vec());
            let times = [given.atime, given.mtime, given.ctime, given.btime];
            let xattrs = given.xattrs.iter().map(own).collect();
            self.root = Some((given.mode, given.uid, given.gid, times, xattrs));
            return Ok(());
        }
        let held = self.walk.entry(path)?;
        self.check_own(held.node()).at(path)?;
        let of = (held.node(), held.entry.attr.kind);
        attributes::apply(self.fs, &self.caller, of, given).at(path)
    }

    /// Ends the stage: nothing is parked any more, and the root has its attributes.
    pub(super) fn settle(&self) -> Result<()> {
        let root = self.stage.node();
        let parked = self.fs.rmdir(&self.caller, root, &self.stage.parked());
        match parked {
            Ok(()) | Err(FsError::NotFound) => {}
            Err(FsError::NotEmpty) => {
                return Err(Error::refused("the stream leaves inodes without a name", ""));
            }
            Err(error) => return Err(error.into()),
        }
        let Some((mode, uid, gid, [atime, mtime, ctime, btime], xattrs)) = &self.root else {
            return Err(Error::refused("the stream has no attributes of its directory", ""));
        };
        let given = Attributes {
            mode: *mode,
            uid: *uid,
            gid: *gid,
            atime: *atime,
            mtime: *mtime,
            ctime: *ctime,
            btime: *btime,
            xattrs: xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect(),
        };
        attributes::apply(self.fs, &self.caller, (root, Kind::Directory), &given).at(b"")
    }
}
