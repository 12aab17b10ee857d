//! Walks along paths below one directory. The directories of the last path are held, so that
//! records of neighbouring paths cost one look-up each.
//!
//! Names are checked here: no path leaves the directory, and none follows a link.

use device::Set;
use fs::{Entry, FileSystem, Fs};
use inode::{Caller, FsError, Kind, Name, NodeId};

use crate::error::{At, Error, Result};

/// A node with a look-up, which ends with this.
pub(crate) struct Held<'a> {
    fs: &'a Fs,
    pub(crate) entry: Entry,
}

impl<'a> Held<'a> {
    /// Holds an entry that has a look-up.
    pub(crate) fn new(fs: &'a Fs, entry: Entry) -> Held<'a> {
        Held { fs, entry }
    }

    pub(crate) fn node(&self) -> NodeId {
        self.entry.node
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.fs.forget(self.entry.node, 1);
    }
}

/// The directories from the root of a walk to where it is. Falsified names may form a cycle, which
/// has no end.
#[derive(Default)]
pub(crate) struct Above(Set<NodeId>);

impl Above {
    /// Enters a directory; refuses one that is entered already.
    pub(crate) fn enter(&mut self, node: NodeId, path: &[u8]) -> Result<()> {
        if self.0.insert(node) {
            return Ok(());
        }
        let end = &path[path.len().saturating_sub(256)..];
        let what = format!("{} is a directory that contains itself", end.escape_ascii());
        Err(Error::refused(what, "the volume is damaged: `pando fsck` finds such names"))
    }

    /// Leaves a directory.
    pub(crate) fn leave(&mut self, node: NodeId) {
        self.0.remove(&node);
    }
}

/// A walk below a directory.
pub(crate) struct Walk<'a> {
    fs: &'a Fs,
    caller: Caller,
    root: NodeId,
    /// The directories of the last path, the first below the root first.
    levels: Vec<(Vec<u8>, Held<'a>)>,
}

impl<'a> Walk<'a> {
    /// A walk below a directory that the caller of this holds.
    pub(crate) fn new(fs: &'a Fs, caller: &Caller, root: NodeId) -> Walk<'a> {
        Walk { fs, caller: caller.clone(), root, levels: Vec::new() }
    }

    /// The directory that a path's last name is in, and the name.
    pub(crate) fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(NodeId, &'p [u8])> {
        let (above, name) = split(path);
        // A slash in front is not the root's.
        let name = if path.starts_with(b"/") { b"" } else { name };
        let name = Name::new(name).map_err(unusual).at(path)?.as_bytes();
        Ok((self.directory(above)?, name))
    }

    /// The directory at a path.
    pub(crate) fn directory(&mut self, path: &[u8]) -> Result<NodeId> {
        let names = || path.split(|byte| *byte == b'/').filter(|_| !path.is_empty());
        let same = self.levels.iter().zip(names()).take_while(|(level, name)| level.0 == *name);
        let same = same.count();
        self.levels.truncate(same);
        let mut node = self.levels.last().map_or(self.root, |(_, held)| held.node());
        for name in names().skip(same) {
            let name = Name::new(name).map_err(unusual).at(path)?.as_bytes();
            let held = Held::new(self.fs, self.fs.lookup(&self.caller, node, name).at(path)?);
            if held.entry.attr.kind != Kind::Directory {
                return Err(FsError::NotDirectory).at(path);
            }
            node = held.node();
            self.levels.push((name.to_vec(), held));
        }
        Ok(node)
    }

    /// What is at a path.
    pub(crate) fn entry(&mut self, path: &[u8]) -> Result<Held<'a>> {
        if path.is_empty() {
            let attr = self.fs.getattr(&self.caller, self.root).at(path)?;
            self.fs
                .lookup(&self.caller, self.root, b".")
                .at(path)
                .map(|entry| Held::new(self.fs, Entry { node: entry.node, attr }))
        } else {
            let (directory, name) = self.parent(path)?;
            let entry = self.fs.lookup(&self.caller, directory, name).at(path)?;
            Ok(Held::new(self.fs, entry))
        }
    }

    /// Forgets what was at a path, and below it, which is about to be something else.
    pub(crate) fn changes(&mut self, path: &[u8]) {
        let mut names = path.split(|byte| *byte == b'/');
        let mut same = 0;
        loop {
            match (names.next(), self.levels.get(same)) {
                (Some(name), Some(level)) if level.0 == name => same += 1,
                // The path is, or is above, what is held.
                (None, _) => return self.levels.truncate(same.saturating_sub(1)),
                _ => return,
            }
        }
    }
}

/// Names that cannot be in a stream are not merely absent.
fn unusual(error: FsError) -> FsError {
    match error {
        FsError::Exists => FsError::InvalidArgument("a path with `.` or `..`"),
        error => error,
    }
}

/// The path above, and the last name.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// A path with one more name.
pub(crate) fn join(path: &[u8], name: &[u8]) -> Vec<u8> {
    if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() }
}
