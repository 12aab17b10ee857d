//! `pando index`: the command's side. Reads a tree of any file system with the caller's own
//! rights, in parallel, and streams the results to the daemon of the index's volume.
//!
//! `walk` has the threads, `read` reads one directory, `tree` holds directories open, and `known`
//! decides which need no reading. `feed` passes items to this thread, which talks to the daemon.

mod follow;
mod hidden;
mod read;
mod walk;
mod tree;
mod row;
mod problems;
mod known;
mod feed;
mod events;

use device::sync::Receiver;
use std::collections::VecDeque;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::Connection;
use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use wire::{Answer, Body, Call, Failure, FailureKind, ScanInfo, ScanItem, push_scan_item};

use crate::failure::{self, Result};
use crate::output::Output;
use crate::session;
use feed::{Feed, Message};
pub(crate) use follow::Follower;
use known::Known;
use problems::Problems;
use read::Reader;
use walk::{Settings, Task, Walk};

/// How long a scan waits for one that was just ended: the daemon applies what it had sent first.
const BUSY_PATIENCE: Duration = Duration::from_secs(5);
/// Between two attempts.
const BUSY_PAUSE: Duration = Duration::from_millis(50);

/// Most messages that the daemon has not answered yet.
const WINDOW: usize = 8;

/// A source and how it is read.
pub(crate) struct Index<'a> {
    /// The directory that is indexed, absolute.
    pub(crate) source: &'a Path,
    /// The volume.
    pub(crate) volume: &'a Path,
    /// Whether the index crosses mount points from now on.
    pub(crate) crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub(crate) keeps_xattrs: bool,
    /// Whether directories with unchanged times are skipped.
    pub(crate) trusts_directories: bool,
    /// Number of reading threads.
    pub(crate) threads: usize,
    /// Where progress is shown.
    pub(crate) bar: &'a ProgressBar,
    /// Watches that are set on directories as they are read, if the source is followed by inotify.
    pub(crate) inotify: Option<Arc<events::Inotify>>,
    /// Directories that were gone when the scan wanted to read them.
    pub(crate) vanished: Arc<events::Vanished>,
}

/// The outcome of a scan.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Names reported.
    pub(crate) names: u64,
    /// Directories found, and how many of them were read.
    pub(crate) directories: u64,
    pub(crate) read: u64,
    /// Entries that were found and could not be read.
    pub(crate) unread: u64,
    /// Whether anything differed.
    pub(crate) changed: bool,
    /// When it began, in nanoseconds since 1970.
    pub(crate) started: i64,
    /// How long it took.
    pub(crate) seconds: f64,
    /// Whether it was interrupted, so that none of it is visible.
    pub(crate) interrupted: bool,
}

impl Index<'_> {
    /// Scans to the end, or until `interrupted` is set.
    pub(crate) fn scan(
        &self,
        connection: &mut Connection,
        interrupted: &Arc<AtomicBool>,
        output: &mut Output,
    ) -> Result<Outcome> {
        let clock = SystemClock::new();
        let begun = clock.monotonic();
        let problems = Arc::new(Problems::default());
        let budget = tree::Budget::new();
        let cannot = |error| failure::source("cannot read", self.source, &error);
        let top = tree::Node::top(self.source, &budget).map_err(cannot)?;
        let (attr, xattrs) = read::top(&top, self.keeps_xattrs).map_err(cannot)?;
        let started = clock.now().0;
        let (root, info) = self.open(connection, started, output)?;
        let known = self.known(connection, &info)?;
        let (feed, messages) = Feed::new();
        let settings = Settings {
            crosses_mounts: self.crosses_mounts,
            keeps_xattrs: self.keeps_xattrs,
            device: attr.device,
            own: own_directory(self.volume),
        };
        let feed_known = (feed, known);
        let walk =
            Walk::new(settings, feed_known, Arc::clone(&problems), interrupted, self.threads);
        let walk = Arc::new(walk.followed(self.inotify.as_ref(), &self.vanished));
        let directory = walk.number();
        let mut items = Vec::new();
        let xattrs = row::borrowed(&xattrs);
        push_scan_item(&ScanItem::Root { directory, attr, xattrs }, &mut items);
        walk.feed.push(&items, 1);
        walk.begin(Task { node: top, directory, attr, known: root, foreign: false });
        let threads = start(&walk, self.threads)?;
        let mut names = 0;
        let sent = self.send(connection, &messages, &mut names);
        if sent.is_err() {
            walk.stop();
        }
        drop(messages);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        sent?;
        let mut outcome = Outcome {
            names,
            directories: walk.directories.load(Ordering::Relaxed),
            read: walk.read.load(Ordering::Relaxed),
            unread: problems.count(),
            started,
            interrupted: interrupted.load(Ordering::Relaxed),
            ..Outcome::default()
        };
        if !outcome.interrupted {
            let call = Call::ScanClose { ended: clock.now().0, unread: outcome.unread };
            match connection.ask(call)? {
                Answer::ScanClosed { changed } => outcome.changed = changed,
                other => return Err(session::unexpected(&other)),
            }
        }
        self.bar.suspend(|| problems.report(output));
        outcome.seconds = clock.monotonic().saturating_sub(begun).as_secs_f64();
        Ok(outcome)
    }

    /// Begins a scan. An index whose source is hidden is closed before anything of it is reported.
    fn open(
        &self,
        connection: &mut Connection,
        started: i64,
        output: &mut Output,
    ) -> Result<(u64, ScanInfo)> {
        let closing = self.close_if_hidden(connection)?;
        let opened = self.opened(connection, started, closing.hidden);
        let opened = opened.inspect_err(|_| closing.undo(self.volume))?;
        closing.report(output);
        Ok(opened)
    }

    fn opened(
        &self,
        connection: &mut Connection,
        started: i64,
        hidden: bool,
    ) -> Result<(u64, ScanInfo)> {
        let call = || Call::ScanOpen {
            source: self.source.as_os_str().as_bytes(),
            started,
            crosses_mounts: self.crosses_mounts,
            keeps_xattrs: self.keeps_xattrs,
            hidden,
        };
        let clock = SystemClock::new();
        let until = clock.monotonic() + BUSY_PATIENCE;
        loop {
            match connection.ask(call()) {
                Ok(Answer::ScanOpened { root, info }) => return Ok((root, info)),
                Ok(other) => return Err(session::unexpected(&other)),
                Err(failure) if failure.kind == FailureKind::Busy && clock.monotonic() < until => {
                    clock.sleep(BUSY_PAUSE);
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// The results of the last scan, if they can be trusted.
    fn known(&self, connection: &mut Connection, info: &ScanInfo) -> Result<Known> {
        let Some(started) = info.started.filter(|_| self.trusts_directories) else {
            return Ok(Known::default());
        };
        let mut known = Known::new(started);
        let answer = connection.call(Call::ScanDirectories, &mut |body| {
            if let Body::Directories(directories) = body {
                for directory in directories {
                    known.add(directory);
                }
            }
            Ok(())
        })?;
        match answer {
            Answer::Nothing => Ok(known),
            other => Err(session::unexpected(&other)),
        }
    }

    /// Sends the results of the threads, a bounded number of messages ahead of the daemon.
    fn send(
        &self,
        connection: &mut Connection,
        messages: &Receiver<Message>,
        names: &mut u64,
    ) -> Result<()> {
        let mut open: VecDeque<(u32, u64)> = VecDeque::new();
        for message in messages {
            connection.send(Call::Scan { items: &message.items })?;
            open.push_back((connection.send(Call::ScanFlush)?, message.names));
            while open.len() > WINDOW {
                self.receive(connection, &mut open, names)?;
            }
        }
        while !open.is_empty() {
            self.receive(connection, &mut open, names)?;
        }
        Ok(())
    }

    fn receive(
        &self,
        connection: &mut Connection,
        open: &mut VecDeque<(u32, u64)>,
        names: &mut u64,
    ) -> Result<()> {
        let reply = connection.receive()?;
        let Some((id, count)) = open.pop_front() else { return Ok(()) };
        if reply.id != id {
            let message = "the daemon's answers are out of sequence";
            return Err(Failure::new(FailureKind::Protocol, message));
        }
        match reply.body {
            Body::Done(Answer::Scanned { .. }) => {
                *names += count;
                self.bar.inc(count);
                Ok(())
            }
            Body::Failed(failure) => Err(failure),
            _ => Err(Failure::new(FailureKind::Protocol, "an unexpected answer to a flush")),
        }
    }
}

fn start(walk: &Arc<Walk>, threads: usize) -> Result<Vec<device::Thread<()>>> {
    (0..threads)
        .map(|number| {
            let walk = Arc::clone(walk);
            device::spawn(&format!("scan-{number}"), move || {
                let mut reader = Reader::new(&walk);
                walk.work(|task, stack| reader.directory(task, stack));
            })
            .map_err(|error| failure::thread(&error))
        })
        .collect()
}

/// Device and inode number of the volume's directory: the scan itself changes it, and it is not
/// part of the source.
fn own_directory(volume: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let metadata = std::fs::metadata(volume).ok()?;
    Some((metadata.dev(), metadata.ino()))
}
