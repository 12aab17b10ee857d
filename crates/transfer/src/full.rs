//! Sends a whole snapshot: a walk, in which a directory comes before what is in it, and its
//! attributes come after. An inode with several names is sent once, and linked.

use std::collections::VecDeque;

use device::Map;
use format::stream::{NewKind, PATH_BYTES_MAX, Record};
use fs::{FileSystem, WalkControl};
use inode::{Attr, FsError, Kind, NodeId};

use crate::attributes;
use crate::contents::{Source, whole};
use crate::error::{At, Result};
use crate::job::Job;
use crate::out::Out;
use crate::walk::{Above, Held, Walk};

/// Most names that are read at once of one directory.
const PAGE: usize = 256;

/// A directory of which names are left.
struct Level<'a> {
    held: Held<'a>,
    /// Length of its path.
    path: usize,
    cookie: u64,
    names: VecDeque<Vec<u8>>,
    is_read: bool,
}

/// Inodes with several names: where the first one is.
#[derive(Default)]
pub(crate) struct Links {
    known: Map<NodeId, usize>,
    paths: Vec<Vec<u8>>,
    bytes: usize,
}

impl Links {
    /// The first path of an inode, if there was one; otherwise this one is.
    pub(crate) fn first(
        &mut self,
        job: &Job<'_>,
        node: NodeId,
        path: &[u8],
    ) -> Result<Option<&[u8]>> {
        if let Some(&at) = self.known.get(&node) {
            return Ok(Some(&self.paths[at]));
        }
        job.count(&mut self.bytes, path.len() + 96, "the inodes with several names")?;
        self.known.insert(node, self.paths.len());
        self.paths.push(path.to_vec());
        Ok(None)
    }

    /// The first path of each.
    pub(crate) fn into_paths(self) -> Vec<Vec<u8>> {
        self.paths
    }
}

/// Sends all below a directory, and its attributes.
pub(crate) fn send(job: &Job<'_>, root: NodeId, out: &mut Out<'_>) -> Result<()> {
    let mut walk = Walk::new(job.fs, job.caller, root);
    let held = walk.entry(b"")?;
    let mut path = Vec::new();
    let mut links = Links::default();
    let mut above = Above::default();
    above.enter(held.node(), b"")?;
    let mut levels = vec![level(held, 0)];
    while let Some(level) = levels.last_mut() {
        job.check_wanted()?;
        path.truncate(level.path);
        let Some(name) = next_name(job, level, &path)? else {
            let Some(level) = levels.pop() else { break };
            above.leave(level.held.node());
            // A name in it may have been read since its own attributes were.
            let attr = job.fs.getattr(job.caller, level.held.node()).at(&path)?;
            let of = (&path[..], level.held.node(), &attr);
            attributes::send(job.fs, job.caller, of, out)?;
            continue;
        };
        let entry = job.fs.lookup(job.caller, level.held.node(), &name).at(&path)?;
        let held = Held::new(job.fs, entry);
        push(&mut path, &name)?;
        let attr = entry.attr;
        if attr.kind == Kind::Directory {
            above.enter(held.node(), &path)?;
            make(job, (&path, &held, &attr), out)?;
            levels.push(self::level(held, path.len()));
            continue;
        }
        if attr.nlink > 1 {
            if let Some(target) = links.first(job, held.node(), &path)? {
                out.push(&Record::Link { path: &path, target })?;
                continue;
            }
            // A link changes attributes: they follow when all names are there.
            object(job, (&path, &held, &attr), out)?;
        } else {
            object(job, (&path, &held, &attr), out)?;
            attributes::send(job.fs, job.caller, (&path, held.node(), &attr), out)?;
        }
    }
    for path in links.into_paths() {
        job.check_wanted()?;
        let held = walk.entry(&path)?;
        let of = (&path[..], held.node(), &held.entry.attr);
        attributes::send(job.fs, job.caller, of, out)?;
    }
    Ok(())
}

fn level(held: Held<'_>, path: usize) -> Level<'_> {
    Level { held, path, cookie: 0, names: VecDeque::new(), is_read: false }
}

/// The next name of a directory.
fn next_name(job: &Job<'_>, level: &mut Level<'_>, path: &[u8]) -> Result<Option<Vec<u8>>> {
    if level.names.is_empty() && !level.is_read {
        let Level { held, cookie, names, .. } = level;
        let from = *cookie;
        let mut is_full = false;
        let mut take = |entry: &fs::DirEntry<'_>| {
            if names.len() == PAGE {
                is_full = true;
                return WalkControl::Stop;
            }
            *cookie = entry.cookie;
            names.push_back(entry.name.to_vec());
            WalkControl::Continue
        };
        job.fs.readdir(job.caller, held.node(), from, &mut take).at(path)?;
        level.is_read = !is_full;
    }
    Ok(level.names.pop_front())
}

fn push(path: &mut Vec<u8>, name: &[u8]) -> Result<()> {
    if !path.is_empty() {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    sendable(path)
}

/// Refuses a path that is longer than a stream may have. A directory that contains itself has one.
pub(crate) fn sendable(path: &[u8]) -> Result<()> {
    if path.len() > PATH_BYTES_MAX {
        let end = &path[path.len() - 256..];
        return Err(FsError::LimitReached(
            "the path of a directory in a stream has at most 256 KiB: send a directory below it",
        ))
        .at(end);
    }
    Ok(())
}

/// Sends a new inode with its contents.
pub(crate) fn object(
    job: &Job<'_>,
    (path, held, attr): (&[u8], &Held<'_>, &Attr),
    out: &mut Out<'_>,
) -> Result<()> {
    make(job, (path, held, attr), out)?;
    if attr.kind == Kind::File {
        let file = Source { fs: job.fs, caller: job.caller, node: held.node(), size: attr.size };
        whole(&file, path, out)?;
    }
    Ok(())
}

/// Sends a new inode, without contents.
pub(crate) fn make(
    job: &Job<'_>,
    (path, held, attr): (&[u8], &Held<'_>, &Attr),
    out: &mut Out<'_>,
) -> Result<()> {
    let target = match attr.kind {
        Kind::Symlink => job.fs.readlink_untimed(job.caller, held.node()).at(path)?,
        _ => Vec::new(),
    };
    let kind = match attr.kind {
        Kind::File => NewKind::File,
        Kind::Directory => NewKind::Directory,
        Kind::Symlink => NewKind::Symlink,
        Kind::Fifo => NewKind::Fifo,
        Kind::Socket => NewKind::Socket,
        Kind::CharDevice => NewKind::CharDevice,
        Kind::BlockDevice => NewKind::BlockDevice,
    };
    out.push(&Record::Make { path, kind, device: attr.rdev, target: &target })
}
