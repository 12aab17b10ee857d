//! Imports a list of names with attributes: alone, or with contents from a directory.
//!
//! A file without contents is as long as in the list, and one hole. A file of the source whose
//! length is not the one of the list is left out: the list and the source would disagree. One that
//! changes while it is read is named, and gets a time by which the next import reads it again. The
//! rules for hostile input are those of archives (`archived`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use program::manifest::{Entry, FORMATS, Manifest, Read1};
use rustix::fs::{Mode, OFlags, ResolveFlags, Stat};
use wire::{Failure, FailureKind, ImportAttr, Item, Kind};

use super::Outcome;
use super::memory::of_path;
use super::source;
use super::tree::{Begun, Node, Tree, Visible, Xattrs, borrowed};
use crate::archive::path::{self, Parts};
use crate::cli::OnConflict;
use crate::failure::{self, Result};
use crate::output::Output;

/// Contents travel in items of this length.
const DATA_BYTES: usize = 256 << 10;
/// Bytes read from the list at once.
const BUFFER_BYTES: usize = 1 << 20;

/// A list to import.
pub(crate) struct Listed<'a, R> {
    /// The bytes of the list.
    pub(crate) input: R,
    /// Where the contents of files are, if they are to be imported.
    pub(crate) contents: Option<&'a Path>,
    /// What is ignored at the beginning of paths.
    pub(crate) strip: &'a [u8],
    /// Whether what is no entry is left out, and the import continues.
    pub(crate) keep_going: bool,
    /// The destination, a path inside the volume, and how it becomes visible.
    pub(crate) destination: (&'a [u8], Visible<'a>),
    pub(crate) on_conflict: OnConflict,
    /// Whether to keep what is sent, to be verified.
    pub(crate) verify: bool,
    /// Bytes of memory.
    pub(crate) memory: usize,
    pub(crate) bar: &'a ProgressBar,
    pub(crate) interrupted: &'a AtomicBool,
}

impl<R: Read> Listed<'_, R> {
    /// Runs to the end of the list, or until `interrupted` is set.
    pub(crate) fn run(self, connection: Connection, output: &mut Output) -> Result<Outcome> {
        let clock = SystemClock::new();
        let contents = self.contents.map(|path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty())
                .map_err(|error| failure::source("open", path, &error.into()))
        });
        let mut import = Import {
            contents: contents.transpose()?,
            strip: self.strip,
            keep_going: self.keep_going,
            is_root: rustix::process::geteuid().is_root(),
            now: clock.now().0,
            links: BTreeMap::new(),
            buffer: Vec::new(),
        };
        let mut list = Manifest::new(BufReader::with_capacity(BUFFER_BYTES, self.input));
        // What is no list leaves nothing behind.
        let first = import.next(&mut list)?;
        let both = (self.bar, self.interrupted);
        let mut tree = Tree::open(
            connection,
            self.destination,
            (self.on_conflict, self.verify),
            both,
            (self.memory, output),
        )?;
        if self.keep_going {
            tree.keep_going();
        }
        match import.entries(first, &mut list, &mut tree) {
            Ok(()) if tree.is_interrupted() => tree.abandon()?,
            Ok(()) => tree.finish(self.destination.1)?,
            Err(failure) => {
                return Err(tree.failed(failure));
            }
        }
        let mut outcome = tree.outcome;
        outcome.interrupted = self.interrupted.load(Ordering::Relaxed);
        outcome.seconds = clock.monotonic().as_secs_f64();
        Ok(outcome)
    }
}

struct Import<'a> {
    contents: Option<OwnedFd>,
    strip: &'a [u8],
    keep_going: bool,
    is_root: bool,
    now: i64,
    /// The first names of files with several.
    links: BTreeMap<(u64, u64), Parts>,
    buffer: Vec<u8>,
}

/// The failure of a file of the source.
fn unreadable(path: &[u8], error: &std::io::Error) -> Failure {
    failure::source("read", Path::new(OsStr::from_bytes(path)), error)
}

/// What is next in a list.
enum Next {
    Entry(Box<Entry>),
    /// What is left out, with its reason.
    Bad(Failure),
    End,
}

impl Import<'_> {
    fn next<R: BufRead>(&self, list: &mut Manifest<R>) -> Result<Next> {
        let read = list.read_next().map_err(|error| {
            let kind = failure::io_kind(&error);
            Failure::new(kind, format!("cannot read the list: {error}"))
                .hint("check the file or the program that the list is from")
        })?;
        match read {
            None => Ok(Next::End),
            Some(Read1::Entry(entry)) => Ok(Next::Entry(entry)),
            Some(Read1::Bad(why)) => {
                let (unit, number) = (list.unit(), list.number());
                let message = format!("{unit} {number} of the list: {why}");
                let failure = Failure::new(FailureKind::Invalid, message);
                if !list.is_list() {
                    return Err(failure.hint(FORMATS));
                }
                if self.keep_going {
                    return Ok(Next::Bad(failure));
                }
                Err(failure.hint("--keep-going leaves it out, and continues"))
            }
        }
    }

    fn entries<R: BufRead>(
        &mut self,
        first: Next,
        list: &mut Manifest<R>,
        tree: &mut Tree<'_>,
    ) -> Result<()> {
        let mut next = first;
        loop {
            if tree.is_interrupted() {
                return Ok(());
            }
            tree.proceed()?;
            match next {
                Next::End => return Ok(()),
                Next::Bad(failure) => tree.fail(failure),
                Next::Entry(entry) => {
                    let (unit, number) = (list.unit(), list.number());
                    self.entry(*entry, (unit, number), tree)?;
                }
            }
            next = match self.next(list) {
                // The program that writes the list may have been interrupted, too.
                Err(_) if tree.is_interrupted() => return Ok(()),
                next => next?,
            };
        }
    }

    fn entry(
        &mut self,
        entry: Entry,
        (unit, number): (&str, u64),
        tree: &mut Tree<'_>,
    ) -> Result<()> {
        let inner = path::stripped(&entry.path, self.strip);
        let path = match path::parts(inner) {
            Ok(path) => path,
            Err(why) => {
                let message = format!("{unit} {number} of the list: {why}");
                let failure = Failure::new(FailureKind::Invalid, message).at(&entry.path);
                if !self.keep_going {
                    return Err(failure.hint("--keep-going leaves it out, and continues"));
                }
                tree.fail(failure);
                return Ok(());
            }
        };
        let attr = self.attr(&entry);
        let mut xattrs: Xattrs = entry.xattrs;
        xattrs.retain(|(name, _)| self.is_root || name.starts_with(b"user."));
        if entry.kind == Kind::Directory {
            return tree.directory(&path, attr, xattrs).map(drop);
        }
        if let Some(first) = entry.file.and_then(|file| self.links.get(&file)) {
            return if *first == path { Ok(()) } else { tree.link(&path, first) };
        }
        let file = entry.file;
        let (size, rdev, target) = (entry.size, entry.rdev, entry.target.as_slice());
        let node = Node { kind: entry.kind, attr, xattrs: &xattrs, size, rdev, target };
        let begun = tree.begin(&path, &node)?;
        if begun == Begun::Compare {
            tree.again(&path)?;
        }
        if begun != Begun::Done {
            let name = path.last().map_or(&b""[..], Vec::as_slice);
            self.node((name, inner), tree, &node)?;
        }
        if let Some(file) = file {
            tree.memory().take(of_path(&path) + size_of::<((u64, u64), Parts)>())?;
            self.links.insert(file, path);
        }
        Ok(())
    }

    fn attr(&self, entry: &Entry) -> ImportAttr {
        let unset = if entry.kind == Kind::Directory { 0o755 } else { 0o644 };
        let mode = entry.mode.unwrap_or(unset);
        // A set-id bit is the owner's or the group's: without them it would be the caller's.
        let set_id = |id: Option<u32>, bit| if self.is_root && id.is_some() { bit } else { 0 };
        let mode = mode & (0o1777 | set_id(entry.uid, 0o4000) | set_id(entry.gid, 0o2000));
        let owner = match (entry.uid, entry.gid) {
            (None, None) => None,
            (uid, gid) => Some((uid.unwrap_or(0), gid.unwrap_or(0))),
        };
        let mtime = entry.mtime.unwrap_or(self.now);
        let owner = owner.filter(|_| self.is_root);
        ImportAttr { mode, owner, atime: entry.atime.unwrap_or(mtime), mtime }
    }

    fn node(
        &mut self,
        (name, path): (&[u8], &[u8]),
        tree: &mut Tree<'_>,
        node: &Node<'_>,
    ) -> Result<()> {
        let Node { kind, attr, size, rdev, target, .. } = *node;
        let xattrs = borrowed(node.xattrs);
        let hold = 0;
        match kind {
            Kind::Symlink => tree.made(&Item::Symlink { name, target, attr, hold }),
            Kind::File if size == 0 => {
                tree.made(&Item::File { name, attr, xattrs, data: &[], hold })
            }
            Kind::File => match self.open(path, size) {
                Ok(source) => {
                    tree.push(&Item::Begin { name })?;
                    let mut attr = attr;
                    if let Some((file, stat)) = &source {
                        if !self.send(file, (path, size), tree)? {
                            return Ok(());
                        }
                        if let Some(error) = source::change_of(file, stat) {
                            tree.fail(unreadable(path, &error));
                            attr.mtime = source::unfinished(attr.mtime);
                        }
                    }
                    tree.made(&Item::End { size, attr, xattrs, hold })
                }
                Err(failure) => {
                    tree.fail(failure);
                    Ok(())
                }
            },
            kind => tree.made(&Item::Special { name, kind, rdev, attr, hold }),
        }
    }

    /// Opens a file of the source, of this length; `None` if there is no source. No symbolic link
    /// is followed, and nothing outside is read: the list may be another user's.
    fn open(&self, path: &[u8], size: u64) -> Result<Option<(OwnedFd, Stat)>> {
        let Some(directory) = &self.contents else { return Ok(None) };
        let inner = Path::new(OsStr::from_bytes(path));
        let relative = inner.strip_prefix("/").unwrap_or(inner);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let failed = |error: rustix::io::Errno| failure::source("read", inner, &error.into());
        let file = rustix::fs::openat2(directory, relative, flags, Mode::empty(), resolve);
        let file = file.map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if source::kind(&stat) == Kind::File && stat.st_size as u64 == size {
            return Ok(Some((file, stat)));
        }
        let message = format!("the source has {} bytes, and the list has {size}", stat.st_size);
        let failure = Failure::new(FailureKind::Invalid, message).at(path);
        Err(failure.hint("make the list again, when nothing changes the source"))
    }

    /// Sends the contents of a file without holes. `false`: they are not complete.
    fn send(
        &mut self,
        file: &OwnedFd,
        (path, size): (&[u8], u64),
        tree: &mut Tree<'_>,
    ) -> Result<bool> {
        self.buffer.resize(DATA_BYTES, 0);
        let mut offset = 0;
        let failed = |tree: &mut Tree<'_>, error: &std::io::Error| {
            tree.fail(unreadable(path, error));
        };
        loop {
            let (start, end) = match source::data_range(file, offset, size) {
                // A source that grew has contents behind the length of the list.
                Ok(Some((start, _))) if start >= size => return Ok(true),
                Ok(Some(range)) => range,
                Ok(None) => return Ok(true),
                Err(error) => {
                    failed(tree, &error);
                    return Ok(false);
                }
            };
            offset = start;
            while offset < end.min(size) {
                let take = DATA_BYTES.min(usize::try_from(end - offset).unwrap_or(usize::MAX));
                let read = source::read_at(file, &mut self.buffer[..take], offset);
                let read = match read {
                    Ok(read) if read > 0 && !tree.is_interrupted() => read,
                    Ok(_) if tree.is_interrupted() => return Ok(false),
                    Ok(_) => {
                        failed(tree, &std::io::Error::other("it became shorter"));
                        return Ok(false);
                    }
                    Err(error) => {
                        failed(tree, &error);
                        return Ok(false);
                    }
                };
                tree.push(&Item::Data { offset, bytes: &self.buffer[..read] })?;
                tree.outcome.bytes += read as u64;
                offset += read as u64;
            }
        }
    }
}
