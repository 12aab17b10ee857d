//! The walk over the source, depth first, without recursion: a tree may have any depth.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use indicatif::ProgressBar;
use rustix::fs::Stat;
use wire::{Answer, Call, Failure, FailureKind, Item, Kind, ListEntry};

use super::ahead::{self, Ahead, Batch, Contents, Event, Seen, Small};
use super::memory::{Memory, of_entries};
use super::source::{self, Directory, Xattrs};
use super::stream::{Entered, Stream};
use super::tree::{Visible, conflict, holes};
use super::{Outcome, before_another_try};
use crate::cli::OnConflict;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::session;

/// Contents of longer files travel in items of this length.
const DATA_BYTES: usize = 256 << 10;

/// A walk under way.
pub(super) struct Walk<'a> {
    stream: Stream,
    outcome: Outcome,
    levels: Vec<Level>,
    /// Inodes with several links: device and inode number, to the number by which the daemon holds
    /// them.
    links: BTreeMap<(u64, u64), u64>,
    keep_owner: bool,
    on_conflict: OnConflict,
    /// Whether the rest gets its name although something failed.
    keep_going: bool,
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
    output: &'a mut Output,
    buffer: Vec<u8>,
    memory: Memory,
}

struct Level {
    directory: Arc<Directory>,
    path: PathBuf,
    /// The entries that the destination already has; empty if the directory is new.
    existing: BTreeMap<Vec<u8>, ListEntry>,
    existed: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(
        connection: Connection,
        on_conflict: OnConflict,
        bar: &'a ProgressBar,
        interrupted: &'a AtomicBool,
        output: &'a mut Output,
    ) -> Walk<'a> {
        Walk {
            stream: Stream::new(connection, bar),
            outcome: Outcome::default(),
            levels: Vec::new(),
            links: BTreeMap::new(),
            keep_owner: rustix::process::geteuid().is_root(),
            on_conflict,
            keep_going: false,
            bar,
            interrupted,
            output,
            buffer: Vec::new(),
            memory: Memory::new(usize::MAX),
        }
    }

    /// The outcome.
    pub(super) fn into_outcome(mut self) -> Outcome {
        self.outcome.sent = self.stream.take_kept();
        self.outcome
    }

    /// Walks the source and sends everything.
    pub(super) fn run(
        &mut self,
        source: &Path,
        (destination, visible): (&[u8], Visible<'_>),
        verify: bool,
    ) -> Result<()> {
        let followed = std::fs::metadata(source);
        let is_directory = match &followed {
            Ok(found) => found.is_dir(),
            // A dangling symbolic link can be imported.
            Err(_) => false,
        };
        if verify {
            self.stream.keep(!is_directory);
        }
        let staged = visible != Visible::Gradually;
        if staged {
            // What an interrupted import left in its hidden directory is nobody's.
            self.on_conflict = OnConflict::Replace;
        }
        let open = Call::ImportOpen { path: destination, directory: is_directory, staged };
        if is_directory {
            let directory =
                Directory::open(source).map_err(|error| failure::source("read", source, &error))?;
            let Entered { existing, existed, .. } = self.stream.ask(open, &self.memory)?;
            let directory = Arc::new(directory);
            // Into what exists, only what differs is read.
            let ahead = Ahead::start(Arc::clone(&directory), !existed, self.memory.clone())
                .map_err(|error| failure::source("read", source, &error))?;
            self.memory.take(level_bytes(source, &existing))?;
            self.levels.push(level(directory, source.to_owned(), existing, existed));
            self.directories(ahead)?;
        } else {
            let (directory, name) =
                source::split(source).map_err(|error| failure::source("read", source, &error))?;
            let seen = ahead::look_at(&directory, name.clone());
            let stat = seen.stat.map_err(|error| failure::source("read", source, &error))?;
            let Entered { existing, existed, .. } = self.stream.ask(open, &self.memory)?;
            let mut level = level(Arc::new(directory), PathBuf::new(), existing, existed);
            // The daemon gives it the destination's name, so it is compared under that.
            if let Some(entry) = level.existing.pop_first() {
                level.existing.insert(name.to_bytes().to_vec(), entry.1);
            }
            self.levels.push(level);
            self.entry((&name, source), &stat, None)?;
        }
        if let Visible::Whole(name) = visible
            && !self.interrupted.load(Ordering::Relaxed)
        {
            // What failed is known only when everything is done.
            self.stream.wait()?;
            self.report_errors()?;
            self.refuse_holes(destination)?;
            match self.stream.request(Call::ImportPublish { name })? {
                Answer::Nothing => {}
                other => return Err(session::unexpected(&other)),
            }
        }
        self.stream.close()?;
        self.report_errors()
    }

    /// Bounds what grows with the import.
    pub(super) fn limit_memory(&mut self, bytes: usize) {
        self.memory = Memory::new(bytes);
    }

    /// Gives the whole its name although some of it failed.
    pub(super) fn keep_going(&mut self) {
        self.keep_going = true;
    }

    /// Refuses to show a part as the whole.
    fn refuse_holes(&mut self, destination: &[u8]) -> Result<()> {
        if self.outcome.failed == 0 || self.keep_going {
            return Ok(());
        }
        self.stream.close()?;
        self.report_errors()?;
        Err(holes(&self.outcome, destination))
    }

    /// Whether a name that differs from what the destination has may replace it.
    fn may_replace(&mut self, name: &[u8], path: &Path) -> Result<bool> {
        if self.levels.last().is_none_or(|level| !level.existing.contains_key(name)) {
            return Ok(true);
        }
        match self.on_conflict {
            OnConflict::Replace => Ok(true),
            OnConflict::Skip => {
                self.outcome.kept += 1;
                self.bar.inc(1);
                Ok(false)
            }
            OnConflict::Fail => Err(conflict().at(path.as_os_str().as_bytes())),
        }
    }

    fn directories(&mut self, mut ahead: Ahead) -> Result<()> {
        // Depth below a directory that is left out.
        let mut left_out = 0_u64;
        while !self.levels.is_empty() {
            if self.interrupted.load(Ordering::Relaxed) {
                // Directories keep their current times, so that nothing incomplete looks complete.
                return Ok(());
            }
            self.stream.proceed()?;
            match ahead.next()? {
                Event::Enter(name, Err(error)) if left_out == 0 => {
                    let path = self.path_of(&name);
                    self.problem(&path, &error);
                }
                Event::Nothing | Event::Enter(_, Err(_)) => {}
                Event::Enter(..) if left_out > 0 => left_out += 1,
                Event::Enter(name, Ok(directory)) => {
                    left_out = u64::from(!self.enter(&name, directory)?);
                }
                Event::Leave if left_out > 0 => left_out -= 1,
                Event::Leave => self.leave()?,
                Event::Exceeded(failure) => return Err(failure),
                Event::Names(_) | Event::Unreadable(_) if left_out > 0 => {}
                Event::Unreadable(error) => {
                    let path = self.levels.last().map(|level| level.path.clone());
                    self.problem(&path.unwrap_or_default(), &error);
                }
                Event::Names(Batch { seen, contents }) => {
                    for Seen { name, stat, file } in seen {
                        let path = self.path_of(&name);
                        let file = file.map(|read| read.map(|small| (small, &contents)));
                        match stat {
                            Ok(stat) => self.entry((&name, &path), &stat, file)?,
                            // It was removed meanwhile.
                            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                            Err(error) => self.problem(&path, &error),
                        }
                    }
                }
            }
            if self.stream.has_errors() {
                self.report_errors()?;
            }
        }
        Ok(())
    }

    /// The path of a name in the current directory.
    fn path_of(&self, name: &CStr) -> PathBuf {
        let name = OsStr::from_bytes(name.to_bytes());
        self.levels.last().map_or_else(|| name.into(), |level| level.path.join(name))
    }

    /// Enters a directory. `false`: it is left out.
    fn enter(&mut self, name: &CStr, directory: Arc<Directory>) -> Result<bool> {
        let Some(level) = self.levels.last() else { return Ok(false) };
        let (bytes, path) = (name.to_bytes(), self.path_of(name));
        let (existing, existed) = if level.existed && level.existing.contains_key(bytes) {
            match self.stream.ask(Call::ImportEnter { name: bytes }, &self.memory) {
                Ok(Entered { existing, existed, .. }) => (existing, existed),
                Err(failure) if failure.kind == FailureKind::NotDirectory => {
                    self.outcome.fail(failure.kind);
                    self.output.failure(&failure.at(path.as_os_str().as_bytes()));
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        } else {
            self.stream.push(&Item::Enter { name: bytes })?;
            (Vec::new(), false)
        };
        if existed {
            self.unchanged();
        } else {
            self.outcome.imported += 1;
        }
        self.memory.take(level_bytes(&path, &existing))?;
        self.levels.push(self::level(directory, path, existing, existed));
        Ok(true)
    }

    fn leave(&mut self) -> Result<()> {
        let Some(level) = self.levels.pop() else { return Ok(()) };
        self.memory.release(level_bytes(&level.path, level.existing.values()));
        let stat = match level.directory.stat_self() {
            Ok(stat) => stat,
            Err(error) => {
                self.problem(&level.path, &error);
                // The daemon must leave it, too: what follows belongs beside it, and not in it.
                return self.stream.push(&Item::Back);
            }
        };
        let xattrs = self.xattrs(level.directory.xattrs(), &level.path);
        let attr = source::attr(&stat, self.keep_owner);
        self.stream.push(&Item::Leave { attr, xattrs: borrowed(&xattrs) })
    }

    /// Handles anything but a directory; `file`: its contents, if they were read, and where they
    /// are.
    fn entry(
        &mut self,
        (name, path): (&CStr, &Path),
        stat: &Stat,
        file: Option<io::Result<(Small, &Arc<Contents>)>>,
    ) -> Result<()> {
        if self.stream.keeps() {
            self.memory.take(2 * size_of::<u64>())?;
        }
        let bytes = name.to_bytes();
        let mut hold = 0;
        if stat.st_nlink > 1 {
            let next = self.links.len() as u64 + 1;
            let key = (stat.st_dev, stat.st_ino);
            if let Some(&held) = self.links.get(&key) {
                if self.is_there(name, stat) {
                    self.unchanged();
                    return Ok(());
                }
                if !self.may_replace(bytes, path)? {
                    return Ok(());
                }
                self.outcome.imported += 1;
                return self.stream.push(&Item::Link { name: bytes, held });
            }
            self.memory.take(size_of::<((u64, u64), u64)>())?;
            self.links.insert(key, next);
            hold = next;
        }
        if self.is_there(name, stat) {
            self.unchanged();
            return if hold == 0 {
                Ok(())
            } else {
                self.stream.push(&Item::Hold { name: bytes, hold })
            };
        }
        if !self.may_replace(bytes, path)? {
            // Further names of it are links of what is there.
            return if hold == 0 {
                Ok(())
            } else {
                self.stream.push(&Item::Hold { name: bytes, hold })
            };
        }
        let kind = source::kind(stat);
        let attr = source::attr(stat, self.keep_owner);
        match kind {
            Kind::File => {
                return match file {
                    None => self.file(name, path, hold),
                    Some(Ok((small, batch))) => {
                        self.small_file((name, path), stat, (small, batch.all(), Some(batch)), hold)
                    }
                    Some(Err(error)) => {
                        self.problem(path, &error);
                        Ok(())
                    }
                };
            }
            Kind::Symlink => {
                let Some(level) = self.levels.last() else { return Ok(()) };
                match level.directory.target(name) {
                    Ok(target) => {
                        let target = &target;
                        self.stream.push(&Item::Symlink { name: bytes, target, attr, hold })?;
                    }
                    Err(error) => {
                        self.problem(path, &error);
                        return Ok(());
                    }
                }
            }
            _ => {
                let rdev = device_number(stat.st_rdev);
                self.stream.push(&Item::Special { name: bytes, kind, rdev, attr, hold })?;
            }
        }
        self.outcome.imported += 1;
        Ok(())
    }

    /// Whether the destination has the same file, by kind, time, and size, target or device number.
    fn is_there(&self, name: &CStr, stat: &Stat) -> bool {
        let Some(level) = self.levels.last() else { return false };
        let Some(entry) = level.existing.get(name.to_bytes()) else { return false };
        let (kind, there) = (source::kind(stat), &entry.attr);
        there.kind == kind
            && there.mtime == source::attr(stat, false).mtime
            && match kind {
                Kind::File => there.size == stat.st_size as u64,
                Kind::Symlink => {
                    // The daemon may be unable to read it, as the walk may be.
                    let target = level.directory.target(name).ok();
                    target.is_some_and(|own| entry.target.as_ref().is_some_and(|it| it.0 == own))
                }
                Kind::CharDevice | Kind::BlockDevice => there.rdev == device_number(stat.st_rdev),
                _ => true,
            }
    }

    fn file(&mut self, name: &CStr, path: &Path, hold: u64) -> Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let opened = level.directory.open_file(name).and_then(|file| {
            let stat = rustix::fs::fstat(&file)?;
            Ok((file, stat))
        });
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.problem(path, &error);
                return Ok(());
            }
        };
        let size = stat.st_size as u64;
        if size > ahead::SMALL_BYTES {
            let xattrs = self.xattrs(source::xattrs_of(&file), path);
            return self.long_file(name, path, &file, &stat, &xattrs, hold);
        }
        let mut contents = std::mem::take(&mut self.buffer);
        let sent = match ahead::read(&file, &stat, &mut contents, 0) {
            Ok(small) => self.small_file((name, path), &stat, (small, &contents, None), hold),
            Err(error) => {
                self.problem(path, &error);
                Ok(())
            }
        };
        self.buffer = contents;
        sent
    }

    /// Sends a file that travels in one item; its contents are copied if they are of no batch.
    fn small_file(
        &mut self,
        (name, path): (&CStr, &Path),
        stat: &Stat,
        (read, contents, batch): (Small, &[u8], Option<&Arc<Contents>>),
        hold: u64,
    ) -> Result<()> {
        let Small { data: range, xattrs, changed } = read;
        let data = contents.get(range.clone()).unwrap_or_default();
        let mut attr = source::attr(stat, self.keep_owner);
        if changed {
            self.problem(path, &source::changed());
            attr.mtime = source::unfinished(attr.mtime);
        }
        let xattrs = self.xattrs(xattrs, path);
        self.outcome.imported += 1;
        self.outcome.bytes += data.len() as u64;
        let (name, xattrs) = (name.to_bytes(), borrowed(&xattrs));
        let item = Item::File { name, attr, xattrs, data, hold };
        match batch {
            Some(batch) => self.stream.push_of(&item, batch, range),
            None => self.stream.push(&item),
        }
    }

    fn long_file(
        &mut self,
        name: &CStr,
        path: &Path,
        file: &OwnedFd,
        stat: &Stat,
        xattrs: &Xattrs,
        hold: u64,
    ) -> Result<()> {
        self.stream.push(&Item::Begin { name: name.to_bytes() })?;
        let mut data = std::mem::take(&mut self.buffer);
        data.resize(DATA_BYTES, 0);
        let copied = self.contents(file, stat.st_size as u64, &mut data);
        self.buffer = data;
        match copied {
            Ok(Some(size)) => {
                let mut attr = source::attr(stat, self.keep_owner);
                if let Some(error) = source::change_of(file, stat) {
                    self.problem(path, &error);
                    attr.mtime = source::unfinished(attr.mtime);
                }
                self.outcome.imported += 1;
                self.stream.push(&Item::End { size, attr, xattrs: borrowed(xattrs), hold })
            }
            // Interrupted: without its last item the file does not look complete.
            Ok(None) => Ok(()),
            Err(Trouble::Source(error)) => {
                self.problem(path, &error);
                Ok(())
            }
            Err(Trouble::Owner(failure)) => Err(failure),
        }
    }

    /// Sends the contents without holes; returns the length, or `None` when interrupted.
    fn contents(
        &mut self,
        file: &OwnedFd,
        size: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<Option<u64>, Trouble> {
        let mut offset = 0;
        // What others append meanwhile is left to the next import.
        while offset < size
            && let Some((start, end)) = source::data_range(file, offset, size)?
        {
            offset = start;
            while offset < end.min(size) {
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let left = end.min(size) - offset;
                let want = (buffer.len() as u64).min(left) as usize;
                let length = source::read_at(file, &mut buffer[..want], offset)?;
                if length == 0 {
                    // It was truncated meanwhile.
                    return Ok(Some(offset));
                }
                let bytes = &buffer[..length];
                self.stream.push(&Item::Data { offset, bytes })?;
                self.outcome.bytes += length as u64;
                offset += length as u64;
            }
        }
        Ok(Some(size))
    }

    fn xattrs(&mut self, found: io::Result<Xattrs>, path: &Path) -> Xattrs {
        found.unwrap_or_else(|error| {
            self.problem(path, &error);
            Vec::new()
        })
    }

    fn unchanged(&mut self) {
        self.outcome.unchanged += 1;
        self.bar.inc(1);
    }

    /// Reports something of the source that cannot be read, and leaves it out.
    fn problem(&mut self, path: &Path, error: &io::Error) {
        let failure = failure::source("cannot read", path, error);
        self.outcome.fail(failure.kind);
        let Walk { bar, output, .. } = self;
        bar.suspend(|| output.failure(&failure));
    }

    fn report_errors(&mut self) -> Result<()> {
        let (errors, more) = self.stream.take_errors();
        let mut stopped = None;
        for error in errors {
            self.outcome.fail(error.kind);
            self.outcome.imported = self.outcome.imported.saturating_sub(1);
            // tidy: no hint: the end of the import has one for all names.
            let failure = Failure::new(error.kind, error.message).at(&error.path.0);
            if let Some(stop) = error.stop {
                stopped = Some((failure, stop));
                break;
            }
            let Walk { bar, output, .. } = self;
            bar.suspend(|| output.failure(&failure));
        }
        self.outcome.failed += more;
        self.outcome.imported = self.outcome.imported.saturating_sub(more);
        match stopped {
            Some((failure, stop)) => {
                let what = before_another_try(stop);
                let again = "the imported files stay; run the same command again to continue";
                Err(failure.hint(format!("{what}; {again}")))
            }
            None => Ok(()),
        }
    }
}

/// Why contents were not copied.
enum Trouble {
    Source(io::Error),
    Owner(Failure),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Source(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Owner(failure)
    }
}

fn level(
    directory: Arc<Directory>,
    path: PathBuf,
    existing: Vec<ListEntry>,
    existed: bool,
) -> Level {
    let existing = existing.into_iter().map(|entry| (entry.name.0.clone(), entry)).collect();
    Level { directory, path, existing, existed }
}

/// What a level takes of memory.
fn level_bytes<'e>(path: &Path, existing: impl IntoIterator<Item = &'e ListEntry>) -> usize {
    path.as_os_str().len() + of_entries(existing)
}

fn borrowed(xattrs: &Xattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}

/// A device number in the 32 bits of the wire format, packed as Linux does.
fn device_number(device: u64) -> u32 {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}
