//! The walk over the source, depth first, without recursion: a tree may have any depth.

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::io;
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
use super::tree::{Names, There, Visible, by_name, conflict, holes, leftover};
use super::{Outcome, before_another_try};
use crate::cli::OnConflict;
use crate::failure::{self, Result};
use crate::output::Output;
use crate::session;

mod contents;

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
    /// Whether everything is below a hidden directory. What is found there, an earlier run left, of
    /// this source or of another one.
    staged: bool,
    /// The first name found there that this source does not have.
    leftover: Option<Vec<u8>>,
    destination: Vec<u8>,
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
    existing: Names,
    existed: bool,
    /// Whether it was there, and no import of the caller's left it unfinished: only to replace what
    /// differs changes its attributes.
    keeps: bool,
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
            staged: false,
            leftover: None,
            destination: Vec::new(),
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
        self.staged = staged;
        self.destination = destination.to_vec();
        let open = Call::ImportOpen { path: destination, directory: is_directory, staged };
        if is_directory {
            let directory =
                Directory::open(source).map_err(|error| failure::source("read", source, &error))?;
            let Entered { existing, existed, unfinished } = self.stream.ask(open, &self.memory)?;
            let directory = Arc::new(directory);
            // Into what exists, only what differs is read.
            let ahead = Ahead::start(Arc::clone(&directory), !existed, self.memory.clone())
                .map_err(|error| failure::source("read", source, &error))?;
            self.memory.take(level_bytes(source, &existing))?;
            let keeps = existed && !unfinished;
            self.levels.push(level(directory, source.to_owned(), existing, (existed, keeps)));
            self.directories(ahead)?;
        } else {
            let (directory, name) =
                source::split(source).map_err(|error| failure::source("read", source, &error))?;
            let seen = ahead::look_at(&directory, name.clone());
            let stat = seen.stat.map_err(|error| failure::source("read", source, &error))?;
            let Entered { existing, existed, .. } = self.stream.ask(open, &self.memory)?;
            let mut level = level(Arc::new(directory), PathBuf::new(), existing, (existed, false));
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
            self.refuse_holes()?;
            self.refuse_leftovers()?;
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
    fn refuse_holes(&mut self) -> Result<()> {
        if self.outcome.failed == 0 || self.keep_going {
            return Ok(());
        }
        self.stream.close()?;
        self.report_errors()?;
        Err(holes(&self.outcome, &self.destination))
    }

    /// Refuses to show what an import of something else left below the hidden name.
    fn refuse_leftovers(&mut self) -> Result<()> {
        let Some(left) = self.leftover.take() else { return Ok(()) };
        self.stream.close()?;
        self.report_errors()?;
        Err(leftover(&left, &self.destination))
    }

    /// A path relative to the source.
    fn relative(&self, path: &Path) -> Vec<u8> {
        let below = self.levels.first().and_then(|top| path.strip_prefix(&top.path).ok());
        below.unwrap_or(path).as_os_str().as_bytes().to_vec()
    }

    /// Notes whether the source has a name that the destination has, too.
    fn seen(&mut self, name: &CStr, seen: bool) {
        let level = self.levels.last_mut();
        if let Some(there) = level.and_then(|level| level.existing.get_mut(name.to_bytes())) {
            there.seen = seen;
        }
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
        let (existing, existed, unfinished) = if level.existed && level.existing.contains_key(bytes)
        {
            match self.stream.ask(Call::ImportEnter { name: bytes }, &self.memory) {
                Ok(Entered { existing, existed, unfinished }) => (existing, existed, unfinished),
                Err(failure)
                    if matches!(
                        failure.kind,
                        FailureKind::NotDirectory | FailureKind::Permission | FailureKind::NotFound
                    ) =>
                {
                    self.outcome.fail(failure.kind);
                    self.output.failure(&failure.at(path.as_os_str().as_bytes()));
                    return Ok(false);
                }
                Err(failure) => return Err(failure),
            }
        } else {
            self.stream.push(&Item::Enter { name: bytes })?;
            (Vec::new(), false, false)
        };
        if existed {
            self.unchanged();
        } else {
            self.outcome.imported += 1;
        }
        self.seen(name, true);
        self.memory.take(level_bytes(&path, &existing))?;
        let keeps = existed && !unfinished;
        self.levels.push(self::level(directory, path, existing, (existed, keeps)));
        Ok(true)
    }

    fn leave(&mut self) -> Result<()> {
        if self.staged && self.leftover.is_none() {
            self.leftover = self.left_here();
        }
        let Some(level) = self.levels.pop() else { return Ok(()) };
        let existing = level.existing.values().map(|there| &there.entry);
        self.memory.release(level_bytes(&level.path, existing));
        if level.keeps && !self.staged && self.on_conflict != OnConflict::Replace {
            return self.stream.push(&Item::Back);
        }
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

    /// A name in the current directory of the destination that the source does not have there.
    fn left_here(&self) -> Option<Vec<u8>> {
        let level = self.levels.last()?;
        let (name, _) = level.existing.iter().find(|(_, there)| !there.seen)?;
        Some(self.relative(&level.path.join(OsStr::from_bytes(name))))
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
        let unchanged = self.is_there(name, stat) && (!self.staged || self.is_left(name, stat)?);
        // Nothing replaces a directory.
        let is_directory = |there: &There| there.entry.attr.kind == Kind::Directory;
        let existing = self.levels.last().and_then(|level| level.existing.get(bytes));
        if existing.is_some_and(|there| !is_directory(there)) {
            self.seen(name, true);
        }
        let mut hold = 0;
        if stat.st_nlink > 1 {
            let next = self.links.len() as u64 + 1;
            let key = (stat.st_dev, stat.st_ino);
            if let Some(&held) = self.links.get(&key) {
                // What an earlier run left may be another file: the daemon looks.
                if unchanged && !self.staged {
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
        if unchanged {
            self.unchanged();
            return if hold == 0 {
                Ok(())
            } else {
                self.stream.push(&Item::Hold { name: bytes, hold })
            };
        }
        if !self.may_replace(bytes, path)? {
            // What is there is another file: the next name of this one is its first.
            if hold != 0 {
                self.links.remove(&(stat.st_dev, stat.st_ino));
                self.memory.release(size_of::<((u64, u64), u64)>());
            }
            return Ok(());
        }
        self.send((name, path), stat, file, hold)
    }

    /// Sends what makes a name, after it was compared with what is there.
    fn send(
        &mut self,
        (name, path): (&CStr, &Path),
        stat: &Stat,
        file: Option<io::Result<(Small, &Arc<Contents>)>>,
        hold: u64,
    ) -> Result<()> {
        let bytes = name.to_bytes();
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
                        self.not_sent(name, path, &error);
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
                        self.not_sent(name, path, &error);
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
        let Some(There { entry, .. }) = level.existing.get(name.to_bytes()) else { return false };
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

    /// As [`problem`](Self::problem), about a name of the current directory. Nothing of it is
    /// sent.
    fn not_sent(&mut self, name: &CStr, path: &Path, error: &io::Error) {
        self.seen(name, false);
        self.problem(path, error);
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

fn level(
    directory: Arc<Directory>,
    path: PathBuf,
    existing: Vec<ListEntry>,
    (existed, keeps): (bool, bool),
) -> Level {
    let existing = by_name(existing);
    Level { directory, path, existing, existed, keeps }
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
