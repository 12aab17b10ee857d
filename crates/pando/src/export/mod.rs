//! The command's side of an export. It takes the items that the daemon sends, and hands each with
//! its path to a directory or an archive.

mod archive;
mod directory;
mod made;
mod staging;
mod remove;
mod safe;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use client::Connection;
use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use wire::{Answer, Attr, Body, Call, ExportItem, Failure, FailureKind, Kind, remembered_bytes};

use crate::failure::Result;
use crate::output::Output;
use crate::session;
pub(crate) use archive::{Archive, refuse_terminal};
pub(crate) use directory::Directory;
pub(crate) use made::Made;
pub(crate) use staging::refuse_existing;

/// Names and values of extended attributes.
pub(crate) type Xattrs<'a> = [(&'a [u8], &'a [u8])];

/// A file, directory, link or special file of an export.
pub(crate) struct Exported<'a> {
    /// Its path, relative to the exported directory; empty for that directory itself.
    pub(crate) path: &'a [u8],
    pub(crate) attr: &'a Attr,
    pub(crate) xattrs: &'a Xattrs<'a>,
}

/// What stores an export. A failure ends the export.
pub(crate) trait Sink {
    /// A directory, which becomes the current one.
    fn enter(&mut self, one: &Exported<'_>) -> Result<()>;
    /// Everything of the current directory was stored.
    fn leave(&mut self, one: &Exported<'_>) -> Result<()>;
    /// A file with its contents.
    fn file(&mut self, one: &Exported<'_>, data: &[u8]) -> Result<()>;
    /// A file whose contents follow, in these ranges.
    fn begin(&mut self, one: &Exported<'_>, ranges: &[(u64, u64)]) -> Result<()>;
    /// The next bytes of the file begun.
    fn data(&mut self, bytes: &[u8]) -> Result<()>;
    /// The end of the file begun.
    fn end(&mut self, one: &Exported<'_>) -> Result<()>;
    /// A symbolic link or special file; `false`: it cannot be stored.
    fn other(&mut self, one: &Exported<'_>, target: &[u8]) -> Result<bool>;
    /// A further name of the file at `first`.
    fn link(&mut self, one: &Exported<'_>, first: &[u8]) -> Result<()>;
    /// Ends the export and makes it durable.
    fn finish(&mut self) -> Result<()>;
    /// What could not be stored since the last call, though the export continues.
    fn problems(&mut self) -> Vec<Failure> {
        Vec::new()
    }
}

/// The outcome of an export.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Names stored.
    pub(crate) exported: u64,
    /// Bytes of contents stored.
    pub(crate) bytes: u64,
    /// Names left out or incomplete, each with its reason on standard error.
    pub(crate) failed: u64,
    /// Sockets left out: an archive cannot hold them.
    pub(crate) sockets: u64,
    /// Names of files with several that are files of their own.
    pub(crate) split: u64,
    /// Whether the memory that was given by name had been enough for each: the daemon gave less.
    pub(crate) gave_less: bool,
    /// The first reason.
    pub(crate) worst: Option<FailureKind>,
    /// How long it took.
    pub(crate) seconds: f64,
}

/// An export under way.
pub(crate) struct Export<'a, S> {
    sink: S,
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
    output: &'a mut Output,
    outcome: Outcome,
    path: Vec<u8>,
    levels: Vec<Level>,
    /// The first names of files with several, and how many more they have.
    links: BTreeMap<u64, (Vec<u8>, u32)>,
    links_bytes: usize,
    memory: u64,
    /// The file begun.
    begun: Option<(Vec<u8>, Attr, OwnXattrs)>,
}

type OwnXattrs = Vec<(Vec<u8>, Vec<u8>)>;

struct Level {
    /// Length of the path of its parent.
    path_bytes: usize,
    attr: Attr,
    xattrs: OwnXattrs,
}

impl<'a, S: Sink> Export<'a, S> {
    /// An export with so many bytes of memory for files with several names.
    pub(crate) fn new(
        (sink, memory): (S, u64),
        bar: &'a ProgressBar,
        interrupted: &'a AtomicBool,
        output: &'a mut Output,
    ) -> Export<'a, S> {
        Export {
            sink,
            bar,
            interrupted,
            output,
            outcome: Outcome::default(),
            path: Vec::new(),
            levels: Vec::new(),
            links: BTreeMap::new(),
            links_bytes: 0,
            memory,
            begun: None,
        }
    }

    /// Exports a path of a volume.
    pub(crate) fn run(mut self, mut connection: Connection, path: &[u8]) -> Result<(Outcome, S)> {
        let clock = SystemClock::new();
        let call = Call::Export { path, memory: self.memory };
        let done = connection.call(call, &mut |body| match body {
            Body::Exported(items) => self.items(&items.0),
            _ => Err(Failure::new(FailureKind::Protocol, "an unexpected part of an export")),
        })?;
        match done {
            Answer::Nothing => {}
            other => return Err(session::unexpected(&other)),
        }
        self.sink.finish()?;
        self.report_problems();
        self.outcome.seconds = clock.monotonic().as_secs_f64();
        Ok((self.outcome, self.sink))
    }

    fn items(&mut self, mut bytes: &[u8]) -> Result<()> {
        let before = self.outcome.exported;
        while let Some(item) = ExportItem::next(&mut bytes) {
            let item = item.map_err(|error| broken(&error.to_string()))?;
            self.item(&item)?;
        }
        self.bar.inc(self.outcome.exported - before);
        self.report_problems();
        if self.interrupted.load(Ordering::Relaxed) {
            let failure = Failure::new(FailureKind::Interrupted, "interrupted");
            return Err(failure.hint("run it again; nothing has the name of the whole yet"));
        }
        Ok(())
    }

    fn item(&mut self, item: &ExportItem<'_>) -> Result<()> {
        match item {
            ExportItem::Enter { name, attr, xattrs } => {
                let path_bytes = self.path.len();
                self.push(name)?;
                let xattrs = xattrs.as_slice();
                self.sink.enter(&Exported { path: &self.path, attr, xattrs })?;
                self.outcome.exported += 1;
                let xattrs = owned(xattrs);
                self.levels.push(Level { path_bytes, attr: *attr, xattrs });
            }
            ExportItem::Leave => {
                let level = self.levels.pop().ok_or_else(|| broken("it leaves no directory"))?;
                let Level { path_bytes, attr, xattrs } = &level;
                let xattrs = &borrowed(xattrs);
                self.sink.leave(&Exported { path: &self.path, attr, xattrs })?;
                self.path.truncate(*path_bytes);
            }
            ExportItem::File { name, attr, xattrs, data } => {
                self.outcome.bytes += data.len() as u64;
                self.one((*name, true), attr, |sink, path| {
                    sink.file(&Exported { path, attr, xattrs }, data).map(|()| true)
                })?;
            }
            ExportItem::Begin { name, attr, xattrs, ranges } => {
                let length = self.path.len();
                self.push(name)?;
                self.sink.begin(&Exported { path: &self.path, attr, xattrs }, ranges)?;
                self.begun = Some((self.path.clone(), *attr, owned(xattrs)));
                self.path.truncate(length);
            }
            ExportItem::Data { bytes } => {
                self.outcome.bytes += bytes.len() as u64;
                self.sink.data(bytes)?;
            }
            ExportItem::End { .. } => {
                let (path, attr, xattrs) =
                    self.begun.take().ok_or_else(|| broken("it ends no file"))?;
                let one = Exported { path: &path, attr: &attr, xattrs: &borrowed(&xattrs) };
                self.sink.end(&one)?;
                self.outcome.exported += 1;
                self.remember(&attr, &path)?;
            }
            ExportItem::Other { name, attr, xattrs, target } => {
                self.one((*name, true), attr, |sink, path| {
                    sink.other(&Exported { path, attr, xattrs }, target)
                })?;
            }
            ExportItem::Link { name, attr } => {
                let Some((first, left)) = self.links.get_mut(&attr.node) else {
                    // Its first name cannot be stored either, and was reported.
                    self.outcome.sockets += u64::from(attr.kind == Kind::Socket);
                    return Ok(());
                };
                *left = left.saturating_sub(1);
                let (first, is_last) = (first.clone(), *left == 0);
                if is_last {
                    self.links.remove(&attr.node);
                    self.links_bytes -= remembered_bytes(first.len());
                }
                self.one((*name, false), attr, |sink, path| {
                    sink.link(&Exported { path, attr, xattrs: &[] }, &first).map(|()| true)
                })?;
            }
            ExportItem::Unread { name, kind, message } => {
                let length = self.path.len();
                self.push(name)?;
                // tidy: no hint: the end of the export has one for all names.
                let failure = Failure::new(*kind, *message).at(&self.path);
                self.fail(&failure);
                self.path.truncate(length);
            }
        }
        Ok(())
    }

    /// Remembers the first name of a file with several. The daemon forgets a file with its last
    /// name, too, and sends what is beyond the memory as files of their own.
    fn remember(&mut self, attr: &Attr, path: &[u8]) -> Result<()> {
        if attr.nlink == 0 {
            let wanted = self.links_bytes.saturating_add(remembered_bytes(path.len()));
            self.outcome.gave_less |= wanted as u64 <= self.memory;
            self.outcome.split += 1;
        }
        if attr.nlink < 2 {
            return Ok(());
        }
        self.links_bytes += remembered_bytes(path.len());
        if self.links_bytes as u64 > self.memory {
            return Err(broken("more is to be remembered than was allowed"));
        }
        if let Some((before, _)) = self.links.insert(attr.node, (path.to_vec(), attr.nlink - 1)) {
            self.links_bytes -= remembered_bytes(before.len());
        }
        Ok(())
    }

    /// Stores one name in the current directory; `links`: other names of the file may follow.
    fn one(
        &mut self,
        (name, links): (&[u8], bool),
        attr: &Attr,
        store: impl FnOnce(&mut S, &[u8]) -> Result<bool>,
    ) -> Result<()> {
        let length = self.path.len();
        self.push(name)?;
        let stored = store(&mut self.sink, &self.path)?;
        if stored {
            self.outcome.exported += 1;
            if links {
                let path = std::mem::take(&mut self.path);
                let remembered = self.remember(attr, &path);
                self.path = path;
                remembered?;
            }
        } else {
            self.outcome.sockets += 1;
        }
        self.path.truncate(length);
        Ok(())
    }

    /// Appends a name to the path. The daemon may be another user's: its names must not lead out
    /// of the directory.
    fn push(&mut self, name: &[u8]) -> Result<()> {
        if matches!(name, b"." | b"..") || name.contains(&b'/') || name.contains(&0) {
            return Err(broken("a name in it is none"));
        }
        if !self.path.is_empty() && !name.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(name);
        Ok(())
    }

    fn fail(&mut self, failure: &Failure) {
        self.outcome.failed += 1;
        self.outcome.worst.get_or_insert(failure.kind);
        let Export { bar, output, .. } = self;
        bar.suspend(|| output.failure(failure));
    }

    fn report_problems(&mut self) {
        for problem in self.sink.problems() {
            self.fail(&problem);
        }
    }
}

fn broken(what: &str) -> Failure {
    Failure::new(FailureKind::Protocol, format!("the daemon sent a malformed export: {what}"))
}

fn owned(xattrs: &Xattrs<'_>) -> OwnXattrs {
    xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

fn borrowed(xattrs: &OwnXattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}
