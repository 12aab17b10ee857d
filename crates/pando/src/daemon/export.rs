//! The daemon's side of an export: walks a tree as the caller, and sends everything in it.
//!
//! A name that the caller may not read, or that cannot be read, is sent as unread and the rest
//! continues. Reading here changes no time of last read. Memory is bounded, however wide and deep
//! the tree is. Files with several names, of which more may come, are remembered as far as the
//! caller gives memory. Names of further ones are sent as separate files.

use fs::{Entry, FileSystem, Follow, FsResult, Seek, Volume, WalkControl};
use inode::permissions::{EXECUTE, READ};
use inode::{Attr, Caller, FsError, Kind, NodeId};
use wire::{Body, Bytes, ExportItem, Failure, FailureKind};

use super::about::about;
use super::held::{Held, split};
use super::shares::Taken;

mod links;

use links::Links;

/// Entries of a directory that are read at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// Bytes of names of directories that wait to be entered; beyond this, entries are read one by one.
const WAITING_BYTES_MAX: usize = 8 << 20;

/// Files up to this length are sent in one item.
const WHOLE_FILE_BYTES: u64 = 64 << 10;

/// Bytes of contents in an item.
const DATA_BYTES: usize = 256 << 10;

/// Bytes of items in a message, except for the last item.
const PART_BYTES: usize = 256 << 10;

/// Most ranges of a file that are sent as such: what follows them is sent as one, holes as zeros.
const RANGES_MAX: usize = 1 << 14;

/// Deepest nesting of directories in an export.
const LEVELS_MAX: usize = 65_536;

const TOO_DEEP: &str = "an export is at most 65,536 directories deep";

const CUT: &str = "it was removed, or replaced by a rollback, while it was exported: the rest of \
                   it is missing";

/// Sends a part of the answer.
pub(super) type Send<'a> = &'a mut dyn FnMut(Body) -> Result<(), Failure>;

type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Sends everything at a path and below it, within bytes of memory for files with several names and
/// the share of a user. `found` is called when the path was found: nothing is searched after that.
pub(super) fn export(
    fs: &Volume,
    (caller, path): (&Caller, &[u8]),
    (memory, share): (usize, Option<Taken<'_>>),
    send: Send<'_>,
    found: impl FnOnce(),
) -> Result<(), Failure> {
    export_within(fs, (caller, path), (LEVELS_MAX, Links::new(memory, share)), send, found)
}

/// The same within bounds: directories below one another, and files with several names.
fn export_within(
    fs: &Volume,
    (caller, path): (&Caller, &[u8]),
    (levels_max, links): (usize, Links<'_>),
    send: Send<'_>,
    found: impl FnOnce(),
) -> Result<(), Failure> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    found();
    let mut walk = Walk {
        fs,
        caller,
        send,
        items: Vec::new(),
        levels: Vec::new(),
        levels_max,
        links,
        path_bytes: 0,
        waiting_bytes: 0,
        contents: vec![0; DATA_BYTES],
    };
    let Entry { node, attr } = held.entry;
    if attr.kind == Kind::Directory {
        // The root that the caller named must be readable: there is nothing else to export.
        fs.access(caller, node, READ | EXECUTE).map_err(|error| about(error, path))?;
        walk.enter(b"", node, &attr)?;
        while !walk.levels.is_empty() {
            walk.step()?;
        }
    } else {
        let name = split(path).map_or(&b"file"[..], |(_, name)| name);
        walk.entry(name, node, &attr)?;
    }
    walk.flush()
}

struct Walk<'a> {
    fs: &'a Volume,
    caller: &'a Caller,
    send: Send<'a>,
    /// Items that are not sent yet.
    items: Vec<u8>,
    levels: Vec<Level>,
    levels_max: usize,
    /// Files with several names that were sent.
    links: Links<'a>,
    /// Length of the path of the current directory, below the exported one.
    path_bytes: usize,
    waiting_bytes: usize,
    contents: Vec<u8>,
}

/// A directory on the current path.
struct Level {
    node: NodeId,
    /// Whether this walk has a lookup of it.
    ours: bool,
    /// Length of the path of the directory above.
    above_bytes: usize,
    /// Subdirectories that were read and wait, the first one last.
    names: Vec<Vec<u8>>,
    /// Where to continue reading it; `None`: everything was read.
    next: Option<u64>,
}

impl Drop for Walk<'_> {
    fn drop(&mut self) {
        for level in self.levels.iter().filter(|level| level.ours) {
            self.fs.forget(level.node, 1);
        }
    }
}

impl Walk<'_> {
    fn push(&mut self, item: &ExportItem<'_>) -> Result<(), Failure> {
        item.push(&mut self.items);
        if self.items.len() >= PART_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), Failure> {
        if self.items.is_empty() {
            return Ok(());
        }
        let items = std::mem::take(&mut self.items);
        (self.send)(Body::Exported(Bytes(items)))
    }

    /// Whether the current directory is in a snapshot, which nothing changes.
    fn is_in_snapshot(&self) -> bool {
        let level = self.levels.last();
        level.is_some_and(|level| {
            self.fs.place(level.node).is_ok_and(|(subvol, _)| subvol.read_only)
        })
    }

    fn unread(&mut self, name: &[u8], error: &FsError) -> Result<(), Failure> {
        let is_gone = matches!(error, FsError::NotFound | FsError::Stale);
        if is_gone && self.is_directory_gone() {
            return self.cut(error);
        }
        // It was removed since its directory was read. From a snapshot nothing is removed: there an
        // entry points to what is lost.
        if is_gone && !self.is_in_snapshot() {
            return Ok(());
        }
        let (kind, message) = (FailureKind::from(error), error.to_string());
        self.push(&ExportItem::Unread { name, kind, message: &message })
    }

    /// Whether the current directory does not exist any more. A rollback, or the deletion of a
    /// snapshot, takes everything below a directory at once.
    fn is_directory_gone(&self) -> bool {
        let level = self.levels.last();
        level.is_some_and(|level| {
            matches!(self.fs.getattr(self.caller, level.node), Err(FsError::Stale))
        })
    }

    /// Reports that what follows in the current directory is missing, and leaves it out.
    fn cut(&mut self, error: &FsError) -> Result<(), Failure> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        level.next = None;
        let names = std::mem::take(&mut level.names);
        self.waiting_bytes -= names.iter().map(Vec::len).sum::<usize>();
        self.push(&ExportItem::Unread { name: b"", kind: FailureKind::from(error), message: CUT })
    }

    /// Enters a subdirectory, sends the next entries of the current directory, or leaves it.
    fn step(&mut self) -> Result<(), Failure> {
        let Some(level) = self.levels.last_mut() else { return Ok(()) };
        let node = level.node;
        if let Some(name) = level.names.pop() {
            self.waiting_bytes -= name.len();
            return match self.fs.lookup(self.caller, node, &name) {
                Ok(Entry { node, attr }) if attr.kind == Kind::Directory => {
                    self.enter(&name, node, &attr)?;
                    match self.levels.last_mut().filter(|level| level.node == node) {
                        Some(level) => level.ours = true,
                        None => self.fs.forget(node, 1),
                    }
                    Ok(())
                }
                // Another file has taken its name.
                Ok(Entry { node, attr }) => {
                    let sent = self.entry(&name, node, &attr);
                    self.fs.forget(node, 1);
                    sent
                }
                Err(error) => self.unread(&name, &error),
            };
        }
        if let Some(cookie) = level.next {
            return self.entries(node, cookie);
        }
        if let Some(level) = self.levels.pop() {
            self.path_bytes = level.above_bytes;
            if level.ours {
                self.fs.forget(level.node, 1);
            }
        }
        self.push(&ExportItem::Leave)
    }

    fn enter(&mut self, name: &[u8], node: NodeId, attr: &Attr) -> Result<(), Failure> {
        if self.levels.len() >= self.levels_max {
            return self.unread(name, &FsError::InvalidArgument(TOO_DEEP));
        }
        let allowed = self.fs.access(self.caller, node, READ | EXECUTE);
        let xattrs = match allowed.and_then(|()| self.xattrs(node)) {
            Ok(xattrs) => xattrs,
            Err(error) => return self.unread(name, &error),
        };
        self.push(&ExportItem::Enter { name, attr: attr.into(), xattrs: borrowed(&xattrs) })?;
        let above_bytes = self.path_bytes;
        self.path_bytes = self.path_bytes_of(name);
        let names = Vec::new();
        self.levels.push(Level { node, ours: false, above_bytes, names, next: Some(0) });
        Ok(())
    }

    /// Sends the next entries of a directory, in the order of their inodes. Files that were made
    /// one after the other are near each other on the disk.
    fn entries(&mut self, directory: NodeId, cookie: u64) -> Result<(), Failure> {
        let most = if self.waiting_bytes < WAITING_BYTES_MAX { ENTRIES_AT_ONCE } else { 1 };
        let (mut last, mut full) = (cookie, false);
        let mut batch: Vec<(Vec<u8>, NodeId, Option<Attr>)> = Vec::new();
        let read = self.fs.readdirplus(self.caller, directory, cookie, &mut |entry| {
            if batch.len() == most {
                full = true;
                return WalkControl::Stop;
            }
            batch.push((entry.name.to_vec(), entry.node, entry.attr.copied()));
            last = entry.cookie;
            WalkControl::Continue
        });
        batch.sort_unstable_by_key(|(_, node, _)| *node);
        let mut directories = Vec::new();
        let mut sent = Ok(());
        for (name, _, attr) in batch {
            let attr = match attr {
                Some(attr) => Ok(attr),
                None => self.fs.lookup(self.caller, directory, &name).map(|entry| entry.attr),
            };
            let attr = match attr {
                Ok(attr) => attr,
                Err(error) => {
                    sent = sent.and_then(|()| self.unread(&name, &error));
                    continue;
                }
            };
            if attr.kind == Kind::Directory {
                self.waiting_bytes += name.len();
                directories.push(name);
            } else if sent.is_ok() {
                sent = self.entry(&name, attr.node, &attr);
            }
            self.fs.forget(attr.node, 1);
        }
        directories.reverse();
        if let Some(level) = self.levels.last_mut() {
            level.names = directories;
            level.next = (full && read.is_ok()).then_some(last);
        }
        sent?;
        match read {
            Ok(()) => Ok(()),
            Err(error) => self.unread(b"", &error),
        }
    }

    /// Sends anything but a directory.
    fn entry(&mut self, name: &[u8], node: NodeId, attr: &Attr) -> Result<(), Failure> {
        if attr.nlink > 1 && self.links.count(attr.node) {
            return self.push(&ExportItem::Link { name, attr: attr.into() });
        }
        let path_bytes = self.path_bytes_of(name);
        let is_remembered = attr.nlink > 1 && self.links.allows(path_bytes);
        let names = attr.nlink;
        let nlink = if names > 1 && !is_remembered { 0 } else { names };
        let attr = &Attr { nlink, ..*attr };
        let sent = match attr.kind {
            Kind::File => self.file(name, node, attr)?,
            _ => self.other(name, node, attr)?,
        };
        match sent {
            Ok(()) => {
                if is_remembered {
                    self.links.remember(attr.node, names - 1, path_bytes);
                }
                Ok(())
            }
            Err(error) => self.unread(name, &error),
        }
    }

    /// Length of the path of a name in the current directory, as the command has it.
    fn path_bytes_of(&self, name: &[u8]) -> usize {
        let slash = self.path_bytes > 0 && !name.is_empty();
        self.path_bytes + usize::from(slash) + name.len()
    }

    fn other(&mut self, name: &[u8], node: NodeId, attr: &Attr) -> Result<FsResult<()>, Failure> {
        let target = match attr.kind {
            Kind::Symlink => self.fs.readlink_untimed(self.caller, node),
            _ => Ok(Vec::new()),
        };
        let xattrs = self.xattrs(node);
        Ok(match (target, xattrs) {
            (Ok(target), Ok(xattrs)) => {
                let (attr, xattrs) = (attr.into(), borrowed(&xattrs));
                self.push(&ExportItem::Other { name, attr, xattrs, target: &target })?;
                Ok(())
            }
            (Err(error), _) | (_, Err(error)) => Err(error),
        })
    }

    fn file(&mut self, name: &[u8], node: NodeId, attr: &Attr) -> Result<FsResult<()>, Failure> {
        if let Err(error) = self.fs.access(self.caller, node, READ) {
            return Ok(Err(error));
        }
        let xattrs = match self.xattrs(node) {
            Ok(xattrs) => xattrs,
            Err(error) => return Ok(Err(error)),
        };
        if attr.size > WHOLE_FILE_BYTES {
            return self.long_file(name, node, attr, &xattrs);
        }
        let mut contents = std::mem::take(&mut self.contents);
        let read = match contents.get_mut(..attr.size as usize) {
            Some(buffer) if !buffer.is_empty() => {
                self.fs.read_untimed(self.caller, node, 0, buffer)
            }
            _ => Ok(0),
        };
        let done = match read {
            Ok(length) => {
                // It may have become shorter meanwhile.
                let attr = wire::Attr { size: length as u64, ..attr.into() };
                let data = contents.get(..length).unwrap_or_default();
                self.push(&ExportItem::File { name, attr, xattrs: borrowed(&xattrs), data }).map(Ok)
            }
            Err(error) => Ok(Err(error)),
        };
        self.contents = contents;
        done
    }

    fn long_file(
        &mut self,
        name: &[u8],
        node: NodeId,
        attr: &Attr,
        xattrs: &Xattrs,
    ) -> Result<FsResult<()>, Failure> {
        let ranges = match self.ranges(node, attr.size) {
            Ok(ranges) => ranges,
            Err(error) => return Ok(Err(error)),
        };
        let (attr, xattrs) = (attr.into(), borrowed(xattrs));
        self.push(&ExportItem::Begin { name, attr, xattrs, ranges: ranges.clone() })?;
        let mut contents = std::mem::take(&mut self.contents);
        let mut failed = None;
        for (start, length) in ranges {
            let mut done = 0;
            while done < length {
                let take = contents.len().min(usize::try_from(length - done).unwrap_or(usize::MAX));
                let buffer = &mut contents[..take];
                // After a failure the announced bytes follow as zeros, and the end reports it.
                let read = match failed {
                    None => self.fs.read_untimed(self.caller, node, start + done, buffer),
                    Some(_) => Ok(0),
                };
                let filled = read.unwrap_or_else(|error| {
                    failed = Some(error);
                    0
                });
                if filled < take && failed.is_none() {
                    failed = Some(FsError::InvalidArgument("it became shorter while it was read"));
                }
                buffer[filled..].fill(0);
                done += take as u64;
                self.push(&ExportItem::Data { bytes: &contents[..take] })?;
            }
        }
        self.contents = contents;
        self.push(&ExportItem::End { short: failed.is_some() })?;
        if let Some(error) = failed {
            let (kind, message) = (FailureKind::from(&error), error.to_string());
            self.push(&ExportItem::Unread { name, kind, message: &message })?;
        }
        Ok(Ok(()))
    }

    /// Offset and length of what is no hole.
    fn ranges(&self, node: NodeId, size: u64) -> FsResult<Vec<(u64, u64)>> {
        let mut ranges = Vec::new();
        let mut offset = 0;
        while offset < size {
            let start = match self.fs.seek(self.caller, node, offset, Seek::Data) {
                Ok(start) => start,
                Err(FsError::PastEnd) => break,
                Err(error) => return Err(error),
            };
            if start >= size {
                break;
            }
            let end = match self.fs.seek(self.caller, node, start, Seek::Hole) {
                _ if ranges.len() + 1 == RANGES_MAX => size,
                Ok(end) => end.min(size),
                Err(FsError::PastEnd) => size,
                Err(error) => return Err(error),
            };
            ranges.push((start, end - start));
            offset = end;
        }
        Ok(ranges)
    }

    fn xattrs(&self, node: NodeId) -> FsResult<Xattrs> {
        let names = self.fs.listxattr(self.caller, node)?;
        let mut found = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
            match self.fs.getxattr(self.caller, node, name) {
                Ok(value) => found.push((name.to_vec(), value)),
                Err(FsError::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(found)
    }
}

fn borrowed(xattrs: &Xattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}

#[cfg(test)]
mod tests;
