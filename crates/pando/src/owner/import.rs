//! The daemon's side of an import: executes the items of a walk, one after the other, as the
//! caller.
//!
//! An item that fails is recorded and the rest continues. Items below a directory that could not
//! be created are left out. A file that gets no end is removed. It gets its times last: so a file
//! that was cut off by a crash does not look complete to the next run.

use std::collections::BTreeMap;

use device::Timestamp;
use format::acl::{ACCESS, DEFAULT};
use fs::{FileSystem, Follow, FsResult, NewNode, SetXattr, Volume};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use wire::{
    Answer, Body, Bytes, DecodeError, Failure, FailureKind, ImportAttr, ImportStop, Item,
    ItemError, Items, ListEntry,
};

use super::about::about;
use super::connection::Replies;
use super::held::{Held, split};
use super::list;

/// Most errors that are reported in full between two flushes.
const ERRORS_MAX: usize = 100;

/// Most bytes of their paths.
const ERROR_PATHS_BYTES_MAX: usize = 64 << 10;

/// Longest path of an error; of a longer path only the end is reported.
const ERROR_PATH_BYTES_MAX: usize = 4096;

/// Deepest nesting of directories in an import.
const LEVELS_MAX: usize = 65_536;

/// Most files that an import holds because more names of them may follow.
const HELD_MAX: usize = 1 << 20;

/// Permission bits until an item has its own.
const MODE_MEANWHILE: u32 = 0o600;
const DIRECTORY_MODE_MEANWHILE: u32 = 0o700;

const TOO_DEEP: &str = "an import is at most 65,536 directories deep";
const TOO_MANY_HELD: &str = "an import keeps the links of at most 1,048,576 files";

mod names;

type Xattrs<'a> = [(&'a [u8], &'a [u8])];

/// An import under way on one connection.
pub(super) struct Import<'a> {
    fs: &'a Volume,
    caller: Caller,
    levels: Vec<Level>,
    /// Items below a directory that could not be created.
    left_out: u64,
    begun: Option<Begun>,
    held: BTreeMap<u64, NodeId>,
    /// The name of the only item, when the source is not a directory.
    single: Option<Vec<u8>>,
    /// The parent directory and the present name of a directory that will get another name.
    above: Option<(NodeId, Vec<u8>)>,
    errors: Vec<ItemError>,
    error_paths_bytes: usize,
    more_errors: u64,
}

struct Level {
    node: NodeId,
    name: Vec<u8>,
    /// Whether its parent directory has a default access list.
    inherits: bool,
    /// Whether it has a default access list itself.
    bequeaths: bool,
}

struct Begun {
    node: NodeId,
    parent: NodeId,
    name: Vec<u8>,
    failed: bool,
}

impl<'a> Import<'a> {
    /// Begins an import; the second value is true if the destination existed before.
    pub(super) fn open(
        fs: &'a Volume,
        caller: &Caller,
        path: &[u8],
        (directory, staged): (bool, bool),
        replies: &mut Replies,
    ) -> Result<(Import<'a>, bool), Failure> {
        let mut import = Import {
            fs,
            caller: caller.clone(),
            levels: Vec::new(),
            left_out: 0,
            begun: None,
            held: BTreeMap::new(),
            single: None,
            above: None,
            errors: Vec::new(),
            error_paths_bytes: 0,
            more_errors: 0,
        };
        if path.iter().all(|&byte| byte == b'/') {
            if !directory {
                return Err(about(FsError::IsDirectory, b"/"));
            }
            let root = fs.resolve(caller, b"/", Follow::Yes).map_err(|e| about(e, path))?;
            import.descend(root.node, b"", false);
            import.list(root.node, replies)?;
            return Ok((import, true));
        }
        let (parent, name) = split(path)?;
        let held = Held::resolve(fs, caller, parent, Follow::Yes)?;
        if directory {
            let (node, existed) =
                import.make_directory(held.entry.node, name).map_err(|error| about(error, path))?;
            let inherits = import.bequeaths(held.entry.node);
            import.descend(node, b"", inherits);
            if staged {
                import.above = Some((
                    fs.resolve(caller, parent, Follow::Yes).map_err(|e| about(e, path))?.node,
                    name.to_vec(),
                ));
                import.check_own(node, path)?;
            }
            if existed {
                import.list(node, replies)?;
            }
            Ok((import, existed))
        } else {
            let existed = import.tell_existing(held.entry.node, (name, path), replies)?;
            // The level gets a lookup of its own; the one of `held` ends with it.
            let parent = fs.resolve(caller, parent, Follow::Yes).map_err(|e| about(e, path))?;
            import.descend(parent.node, b"", false);
            import.single = Some(name.to_vec());
            Ok((import, existed))
        }
    }

    /// Executes items in order.
    pub(super) fn items(&mut self, mut bytes: &[u8]) {
        while let Some(item) = Items::next(&mut bytes) {
            match item {
                Ok(item) => self.item(&item),
                Err(DecodeError::Malformed(_) | DecodeError::Trailing(_)) => {
                    self.failed(b"", &FsError::InvalidArgument("an unknown item"));
                    return;
                }
            }
        }
    }

    /// Enters a directory that may exist, and sends its entries.
    pub(super) fn enter_existing(
        &mut self,
        name: &[u8],
        replies: &mut Replies,
    ) -> Result<bool, Failure> {
        let parent = self.levels.last().filter(|_| self.left_out == 0).map(|level| level.node);
        let Some(parent) = parent else {
            return Err(Failure::new(FailureKind::Protocol, "no directory to restore into"));
        };
        if self.levels.len() >= LEVELS_MAX {
            return Err(about(FsError::InvalidArgument(TOO_DEEP), name));
        }
        let (node, existed) =
            self.make_directory(parent, name).map_err(|error| about(error, name))?;
        self.descend(node, name, self.inherits());
        if existed {
            self.list(node, replies)?;
        }
        Ok(existed)
    }

    /// The failures since the last call.
    pub(super) fn take_errors(&mut self) -> Answer {
        let errors = std::mem::take(&mut self.errors);
        self.error_paths_bytes = 0;
        Answer::Imported { errors, more: std::mem::take(&mut self.more_errors) }
    }

    /// Ends the import, and makes it durable.
    pub(super) fn close(&mut self) -> Result<Answer, Failure> {
        self.drop_begun();
        self.fs.sync().map_err(Failure::from)?;
        Ok(self.take_errors())
    }

    fn list(&self, node: NodeId, replies: &mut Replies) -> Result<(), Failure> {
        list::entries(self.fs, &self.caller, node, b"", replies, &mut |_, child, _| {
            self.fs.forget(child, 1);
        })
    }

    /// Sends the entry that has the name of the only item.
    fn tell_existing(
        &self,
        parent: NodeId,
        (name, path): (&[u8], &[u8]),
        replies: &mut Replies,
    ) -> Result<bool, Failure> {
        match self.fs.lookup(&self.caller, parent, name) {
            Ok(entry) => {
                self.fs.forget(entry.node, 1);
                if entry.attr.kind == Kind::Directory {
                    return Err(about(FsError::IsDirectory, path)
                        .hint("end the destination with the name of the copy"));
                }
                let listed =
                    ListEntry { name: name.into(), attr: (&entry.attr).into(), target: None };
                let part = Body::Entries { directory: Bytes::default(), entries: vec![listed] };
                replies.part(part)?;
                Ok(true)
            }
            Err(FsError::NotFound) => Ok(false),
            Err(error) => Err(about(error, path)),
        }
    }

    /// Creates a directory or finds it; either way with a lookup of the import's own.
    fn make_directory(&self, parent: NodeId, name: &[u8]) -> FsResult<(NodeId, bool)> {
        match self.fs.mkdir(&self.caller, parent, name, DIRECTORY_MODE_MEANWHILE) {
            Ok(entry) => {
                self.fs.invalidate_entry(parent, name);
                Ok((entry.node, false))
            }
            Err(FsError::Exists) => {
                let entry = self.fs.lookup(&self.caller, parent, name)?;
                if Volume::is_virtual(entry.node) {
                    self.fs.forget(entry.node, 1);
                    Err(FsError::NotPermitted("a directory that the volume only shows"))
                } else if entry.attr.kind == Kind::Directory {
                    Ok((entry.node, true))
                } else {
                    self.fs.forget(entry.node, 1);
                    Err(FsError::NotDirectory)
                }
            }
            Err(error) => Err(error),
        }
    }

    fn item(&mut self, item: &Item<'_>) {
        if !matches!(item, Item::Data { .. } | Item::End { .. }) {
            self.drop_begun();
        }
        match item {
            Item::Enter { name } => self.enter(name),
            Item::Leave { attr, xattrs } => self.leave(Some((attr, xattrs))),
            Item::Back => self.leave(None),
            _ if self.left_out > 0 => {}
            Item::Data { offset, bytes } => self.data(*offset, bytes),
            Item::End { size, attr, xattrs, hold } => self.end(*size, attr, xattrs, *hold),
            Item::Begin { name } => {
                let name = self.own_name(name);
                let made = self.make_node(&name, Kind::File, 0);
                match made {
                    Ok(node) => {
                        let parent = self.parent();
                        self.begun = Some(Begun { node, parent, name, failed: false });
                    }
                    Err(error) => self.failed(&name, &error),
                }
            }
            Item::File { name, attr, xattrs, data, hold } => {
                self.finish(name, *hold, |import, name| {
                    let node = import.make_node(name, Kind::File, 0)?;
                    let filled = if data.is_empty() {
                        Ok(())
                    } else {
                        import.fs.write(&import.caller, node, 0, data)
                    };
                    import.kept(
                        node,
                        filled.and_then(|()| import.dress(node, attr, xattrs, import.inherits())),
                    )
                });
            }
            Item::Symlink { name, target, attr, hold } => {
                self.finish(name, *hold, |import, name| {
                    let parent = import.parent();
                    let made = import.replacing(name, |import| {
                        import.fs.symlink(&import.caller, parent, name, target)
                    })?;
                    let changes = SetAttr { mode: None, ..changes(attr) };
                    let set = import.fs.setattr(&import.caller, made.node, &changes).map(drop);
                    import.kept(made.node, set)
                });
            }
            Item::Special { name, kind, rdev, attr, hold } => {
                self.finish(name, *hold, |import, name| {
                    let node = import.make_node(name, *kind, *rdev)?;
                    import.kept(node, import.dress(node, attr, &[], import.inherits()))
                });
            }
            Item::Link { name, held } => {
                self.finish(name, 0, |import, name| {
                    let Some(&target) = import.held.get(held) else {
                        return Err(FsError::InvalidArgument(
                            "the import of its first link failed",
                        ));
                    };
                    import.link(target, name)
                });
            }
            Item::LinkTo { name, target } => {
                self.finish(name, 0, |import, name| {
                    let target = import.below(target)?;
                    let linked = import.link(target, name);
                    import.fs.forget(target, 1);
                    linked
                });
            }
            Item::Hold { name, hold } => {
                self.finish(name, *hold, |import, name| {
                    Ok(import.fs.lookup(&import.caller, import.parent(), name)?.node)
                });
            }
        }
    }

    fn enter(&mut self, name: &[u8]) {
        if self.left_out > 0 {
            self.left_out += 1;
            return;
        }
        if self.levels.len() >= LEVELS_MAX {
            self.failed(name, &FsError::InvalidArgument(TOO_DEEP));
            self.left_out = 1;
            return;
        }
        match self.make_directory(self.parent(), name) {
            Ok((node, _)) => self.descend(node, name, self.inherits()),
            Err(error) => {
                self.failed(name, &error);
                self.left_out = 1;
            }
        }
    }

    fn leave(&mut self, attributes: Option<(&ImportAttr, &Xattrs<'_>)>) {
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let Some(level) = self.levels.last() else { return };
        let (node, inherits) = (level.node, level.inherits);
        let dressed = match attributes {
            Some((attr, xattrs)) => self.dress(node, attr, xattrs, inherits),
            None => Ok(()),
        };
        self.fs.invalidate_node(node);
        if let Err(error) = dressed {
            self.failed(b"", &error);
        }
        // The first directory stays until the end: items may be created only below it.
        if self.levels.len() > 1
            && let Some(level) = self.levels.pop()
        {
            self.fs.forget(level.node, 1);
        }
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) {
        let Some(begun) = &mut self.begun else { return };
        if begun.failed {
            return;
        }
        if let Err(error) = self.fs.write(&self.caller, begun.node, offset, bytes) {
            begun.failed = true;
            let name = begun.name.clone();
            self.failed(&name, &error);
        }
    }

    fn end(&mut self, size: u64, attr: &ImportAttr, xattrs: &Xattrs<'_>, hold: u64) {
        if self.begun.as_ref().is_some_and(|begun| begun.failed) {
            self.drop_begun();
        }
        let Some(Begun { node, name, .. }) = self.begun.take() else { return };
        let sized = SetAttr { size: Some(size), ..SetAttr::default() };
        let done = self
            .fs
            .setattr(&self.caller, node, &sized)
            .and_then(|_| self.dress(node, attr, xattrs, self.inherits()));
        self.fs.invalidate_entry(self.parent(), &name);
        self.fs.invalidate_node(node);
        match done {
            Ok(()) => self.hold(&name, node, hold),
            Err(error) => {
                self.fs.forget(node, 1);
                self.failed(&name, &error);
            }
        }
    }

    /// Removes a file that got no end: it must not stay under its name as if it were complete.
    fn drop_begun(&mut self) {
        let Some(Begun { node, parent, name, .. }) = self.begun.take() else { return };
        if let Ok(there) = self.fs.lookup(&self.caller, parent, &name) {
            self.fs.forget(there.node, 1);
            if there.node == node {
                let removed = self.fs.unlink(&self.caller, parent, &name);
                if let Err(error) = removed {
                    tracing::debug!(%error, "a file that is not complete stays");
                }
                self.fs.invalidate_entry(parent, &name);
            }
        }
        self.fs.forget(node, 1);
    }

    /// Executes an item that returns a node with a lookup, and holds or releases that lookup.
    fn finish(
        &mut self,
        name: &[u8],
        hold: u64,
        make: impl FnOnce(&Import<'a>, &[u8]) -> FsResult<NodeId>,
    ) {
        let name = self.own_name(name);
        let made = make(self, &name);
        self.fs.invalidate_entry(self.parent(), &name);
        match made {
            Ok(node) => self.hold(&name, node, hold),
            Err(error) => self.failed(&name, &error),
        }
    }

    fn hold(&mut self, name: &[u8], node: NodeId, hold: u64) {
        let full = hold != 0 && self.held.len() >= HELD_MAX && !self.held.contains_key(&hold);
        if full {
            // The file exists; other names of it will not.
            self.failed(name, &FsError::InvalidArgument(TOO_MANY_HELD));
        }
        let gone = if hold == 0 || full { Some(node) } else { self.held.insert(hold, node) };
        if let Some(node) = gone {
            self.fs.forget(node, 1);
        }
    }

    fn kept(&self, node: NodeId, done: FsResult<()>) -> FsResult<NodeId> {
        if done.is_err() {
            self.fs.forget(node, 1);
        }
        done.map(|()| node)
    }

    fn own_name(&self, name: &[u8]) -> Vec<u8> {
        self.single.clone().unwrap_or_else(|| name.to_vec())
    }

    fn parent(&self) -> NodeId {
        self.levels.last().expect("invariant: the first directory stays until the end").node
    }

    fn make_node(&self, name: &[u8], kind: Kind, rdev: u32) -> FsResult<NodeId> {
        let parent = self.parent();
        let new = NewNode { kind, mode: MODE_MEANWHILE, rdev };
        self.replacing(name, |import| import.fs.mknod(&import.caller, parent, name, &new))
            .map(|entry| entry.node)
    }

    /// Creates a name, after removing what has that name, unless that is a directory.
    fn replacing<T>(&self, name: &[u8], make: impl Fn(&Import<'a>) -> FsResult<T>) -> FsResult<T> {
        match make(self) {
            Err(FsError::Exists) => {
                // The link counts of both files change, and their other names show that.
                let old = self.fs.lookup(&self.caller, self.parent(), name)?.node;
                self.fs.forget(old, 1);
                self.fs.unlink(&self.caller, self.parent(), name)?;
                self.fs.invalidate_attributes(old);
                make(self)
            }
            made => made,
        }
    }

    /// Enters a directory.
    fn descend(&mut self, node: NodeId, name: &[u8], inherits: bool) {
        let bequeaths = self.bequeaths(node);
        self.levels.push(Level { node, name: name.to_vec(), inherits, bequeaths });
    }

    /// Whether a directory has a default access list. If that cannot be read, it may have one.
    fn bequeaths(&self, node: NodeId) -> bool {
        !matches!(self.fs.getxattr(&self.caller, node, DEFAULT), Err(FsError::NoAttribute))
    }

    /// Whether new entries here inherit an access list.
    fn inherits(&self) -> bool {
        self.levels.last().is_some_and(|level| level.bequeaths)
    }

    /// Sets the attributes of a node: the mode last except for the times, because writing needs
    /// this process's mode. Removes inherited access lists that the source does not have.
    fn dress(
        &self,
        node: NodeId,
        attr: &ImportAttr,
        xattrs: &Xattrs<'_>,
        inherits: bool,
    ) -> FsResult<()> {
        for list in [ACCESS, DEFAULT] {
            let lacks = inherits && xattrs.iter().all(|(name, _)| *name != list);
            if lacks && self.fs.getxattr(&self.caller, node, list).is_ok() {
                self.fs.removexattr(&self.caller, node, list)?;
            }
        }
        for (name, value) in xattrs {
            self.fs.setxattr(&self.caller, node, name, value, SetXattr::Any)?;
        }
        self.fs.setattr(&self.caller, node, &changes(attr)).map(drop)
    }

    /// The path of a name in the import's current directory, or the end of that path.
    fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let names = self.levels.iter().map(|level| level.name.as_slice()).chain([name]);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for part in names.rev().filter(|part| !part.is_empty()) {
            bytes += part.len() + 1;
            if bytes > ERROR_PATH_BYTES_MAX {
                parts.push(&b"..."[..]);
                break;
            }
            parts.push(part);
        }
        parts.reverse();
        parts.join(&b'/')
    }

    fn failed(&mut self, name: &[u8], error: &FsError) {
        if self.errors.len() >= ERRORS_MAX || self.error_paths_bytes >= ERROR_PATHS_BYTES_MAX {
            self.more_errors += 1;
            return;
        }
        let path = self.path_of(name);
        self.error_paths_bytes += path.len();
        let stop = match error {
            FsError::NoSpace => Some(ImportStop::Full),
            FsError::QuotaExceeded => Some(ImportStop::Quota),
            FsError::LimitReached(_) => Some(ImportStop::Limit),
            FsError::ReadOnly(_) => Some(ImportStop::ReadOnly),
            _ => None,
        };
        let kind = FailureKind::from(error);
        self.errors.push(ItemError { path: Bytes(path), message: error.to_string(), kind, stop });
    }
}

impl Drop for Import<'_> {
    fn drop(&mut self) {
        self.drop_begun();
        let above = self.above.take().map(|(node, _)| node);
        let levels = self.levels.iter().map(|level| level.node).chain(above);
        for node in levels.chain(self.held.values().copied()) {
            self.fs.forget(node, 1);
        }
    }
}

fn changes(attr: &ImportAttr) -> SetAttr {
    SetAttr {
        mode: Some(attr.mode),
        uid: attr.owner.map(|(uid, _)| uid),
        gid: attr.owner.map(|(_, gid)| gid),
        size: None,
        atime: Some(SetTime::At(Timestamp(attr.atime))),
        mtime: Some(SetTime::At(Timestamp(attr.mtime))),
        ctime: None,
        btime: None,
    }
}
