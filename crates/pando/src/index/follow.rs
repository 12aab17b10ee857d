//! Follows a source: a full scan, and from then on the changes that the kernel reports.
//!
//! The watch begins before the scan, so that nothing is missed between the two. Changes are
//! applied to the index in one small scan: the names that changed, and whole directories that are
//! new. If more changed than was collected, a full scan follows.

use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use client::{Connection, Opened};
use device::{Clock, FileSystemWatch, Set, SystemClock};
use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind, ScanItem, ScanWatch, push_scan_item};

use super::events::{Changes, Gathered, Gatherer, Inotify};
use super::feed::Feed;
use super::known::Known;
use super::problems::Problems;
use super::read::{self, Reader};
use super::tree::{Budget, Node};
use super::walk::{Settings, Task, Walk};
use super::{Index, own_directory, row, start};
use crate::cli::Watch;
use crate::failure::{self, Result};
use crate::output::{self, Output};
use crate::session;

/// How long changes may accumulate, so that a burst is one update.
const SETTLE: Duration = Duration::from_millis(50);

/// How often the daemon hears that the source is followed: it ends sessions after 60 s of silence.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(20);

/// How long after an update that could not read something a full scan begins, at least.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Announces to the daemon of an index that its source is followed, over a connection that lasts as
/// long as that is true.
#[derive(Default)]
struct Announcement {
    connection: Option<Connection>,
    /// What was announced last, and when.
    last: Option<(ScanWatch, u64, Duration)>,
}

impl Announcement {
    /// Announces, unless that was done a short while ago. Starts no daemon: an update or a query
    /// does. Nothing depends on it but what `pando status` shows.
    fn renew(&mut self, volume: &Path, (by, unwatched): (ScanWatch, u64), now: Duration) {
        let is_known = self.last.is_some_and(|(last, count, at)| {
            (last, count) == (by, unwatched) && now.saturating_sub(at) < ANNOUNCE_EVERY
        });
        self.connection.take_if(|connection| connection.is_closed());
        if self.connection.is_some() && is_known {
            return;
        }
        let connection = self.connection.take().or_else(|| match Connection::open(volume) {
            Ok(Opened::Connected(connection)) => Some(connection),
            _ => None,
        });
        let announced = connection.and_then(|mut connection| {
            let answer = connection.ask(Call::ScanFollow { by, unwatched });
            matches!(answer, Ok(Answer::Nothing)).then_some(connection)
        });
        self.last = announced.is_some().then_some((by, unwatched, now));
        self.connection = announced;
    }
}

/// Keeps an index up to date.
pub(crate) struct Follower {
    announcement: Announcement,
    gatherer: Arc<Gatherer>,
    clock: SystemClock,
    /// When the last full scan began.
    started: i64,
    /// How long it took, if that is known.
    scan_took: Duration,
    /// When the next one is due, if an update could not read something.
    scan_at: Option<Duration>,
    /// Device and inode number of the source.
    source: (u64, u64),
}

impl Follower {
    /// Begins to watch. Also returns the watches of single directories, if they are needed.
    pub(crate) fn new(
        index: &Index<'_>,
        how: Watch,
        output: &mut Output,
    ) -> Result<(Follower, Option<Arc<Inotify>>)> {
        let gatherer = Gatherer::new(index.source, index.volume);
        let cannot = |error: std::io::Error| failure::io("cannot watch", index.source, &error);
        let whole = match how {
            Watch::Inotify => None,
            Watch::Fanotify => Some(FileSystemWatch::new(index.source).map_err(cannot)?),
            Watch::Auto => match FileSystemWatch::new(index.source) {
                Ok(watch) => Some(watch),
                Err(error) => {
                    output.remark(&format!(
                        "pando: following with one watch a directory (inotify): the whole file \
                         system cannot be watched (fanotify): {error}"
                    ));
                    None
                }
            },
        };
        let gathering = Arc::clone(&gatherer);
        let single = if let Some(watch) = whole {
            device::spawn("changes", move || gathering.run_whole(watch)).map_err(cannot)?;
            None
        } else {
            let watch = Inotify::new(&gatherer).map_err(cannot)?;
            let watched = Arc::clone(&watch);
            device::spawn("changes", move || gathering.run_single(&watched)).map_err(cannot)?;
            Some(watch)
        };
        let source = identity(index.source)?;
        let (announcement, clock) = (Announcement::default(), SystemClock::new());
        let follower = Follower {
            announcement,
            gatherer,
            clock,
            started: 0,
            scan_took: Duration::ZERO,
            scan_at: None,
            source,
        };
        Ok((follower, single))
    }

    /// Follows until interrupted. The first scan is complete, and began at `started`.
    pub(crate) fn run(
        &mut self,
        index: &Index<'_>,
        started: i64,
        interrupted: &Arc<AtomicBool>,
        output: &mut Output,
    ) -> Result<()> {
        self.started = started;
        let by = if index.inotify.is_some() { ScanWatch::Inotify } else { ScanWatch::Fanotify };
        let what = index.source.display();
        output.remark(&format!("pando: following {what} ({by}), until Ctrl-C"));
        let mut reported = false;
        while !interrupted.load(Ordering::Relaxed) {
            let watch = index.inotify.as_ref();
            let refused = watch.map_or(0, |watch| watch.refused.load(Ordering::Relaxed));
            if refused > 0 && !reported {
                reported = true;
                let refused = output::count(refused, "directory is", "directories are");
                let why = "the kernel's limit of watches is reached";
                output.remark(&format!(
                    "pando: {refused} not followed: {why}\n       \
                     raise fs.inotify.max_user_watches, or run as root"
                ));
            }
            self.announcement.renew(index.volume, (by, refused), self.clock.monotonic());
            if self.scan_at.take_if(|at| self.clock.monotonic() >= *at).is_some() {
                self.gatherer.overflow();
            }
            let taken = self.gatherer.take(&mut || self.clock.sleep(SETTLE));
            let taken = taken.map_err(|error| failure::io("cannot watch", index.source, &error))?;
            // After an unmount the path points to the directory below the mount. Its mode is not
            // the source's, and it has none of the source's files.
            if identity(index.source)? != self.source {
                let message = format!(
                    "{} is no longer the followed directory: it was unmounted, or \
                     another one is in its place",
                    index.source.display()
                );
                return Err(Failure::new(FailureKind::NotFound, message).hint(
                    "the index is unchanged; run the command again when the source is back",
                ));
            }
            let Some(gathered) = taken else { continue };
            match self.take_in(index, &gathered, interrupted, output) {
                // Nothing of that update is visible; the next scan finds what it missed.
                Err(failure)
                    if failure.kind == FailureKind::Interrupted
                        && interrupted.load(Ordering::Relaxed) => {}
                done => done?,
            }
        }
        self.gatherer.end();
        Ok(())
    }

    fn take_in(
        &mut self,
        index: &Index<'_>,
        gathered: &Gathered,
        interrupted: &Arc<AtomicBool>,
        output: &mut Output,
    ) -> Result<()> {
        let begun = self.clock.monotonic();
        let full = gathered.overflow;
        let names = if full {
            let outcome = session::with(index.volume, |mut connection| {
                index.scan(&mut connection, interrupted, output)
            })?;
            if !outcome.interrupted {
                self.started = outcome.started;
                self.scan_took = self.clock.monotonic().saturating_sub(begun);
                self.scan_at = None;
            }
            outcome.names
        } else {
            let count = gathered.changes.values().map(|names| names.len() as u64).sum();
            let problems = Arc::new(Problems::default());
            session::with(index.volume, |mut connection| {
                let mut update = Update {
                    index,
                    gatherer: &self.gatherer,
                    connection: &mut connection,
                    problems: &problems,
                    interrupted,
                    number: 1,
                };
                update.run(self.started, gathered.changes.clone(), output)
            })?;
            if problems.count() > 0 {
                let rest = rest_before_scan(self.scan_took);
                self.scan_at.get_or_insert(self.clock.monotonic().saturating_add(rest));
            }
            problems.report(output);
            count
        };
        let seconds = self.clock.monotonic().saturating_sub(begun).as_secs_f64();
        output.object(&json!({ "updated": names, "full": full, "seconds": seconds }))?;
        output.flush()
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.gatherer.end();
    }
}

/// How long after an update that could not read something a full scan tries again. Scans for that
/// reason take a tenth of the time at most.
fn rest_before_scan(scan_took: Duration) -> Duration {
    REST_AFTER_FAILURE.max(scan_took.saturating_mul(10))
}

/// Device and inode number of a source.
fn identity(source: &Path) -> Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    let found = std::fs::metadata(source);
    let found = found.map_err(|error| failure::source("cannot read", source, &error))?;
    Ok((found.dev(), found.ino()))
}

/// One update of an index.
struct Update<'a> {
    index: &'a Index<'a>,
    gatherer: &'a Gatherer,
    connection: &'a mut Connection,
    problems: &'a Arc<Problems>,
    interrupted: &'a Arc<AtomicBool>,
    /// Number of the next directory.
    number: u64,
}

impl Update<'_> {
    /// Reports the changes to the index.
    fn run(&mut self, started: i64, mut changes: Changes, output: &mut Output) -> Result<()> {
        let (_, info) = self.index.open(self.connection, started, output)?;
        // Each round goes one directory up where the index does not have the directory yet.
        while !changes.is_empty() {
            changes = self.round(&changes)?;
        }
        // What an earlier scan could not read is still in the count; the next one counts again.
        let unread = info.unread.saturating_add(self.problems.count());
        let call = Call::ScanClose { ended: SystemClock::new().now().0, unread };
        match self.connection.ask(call)? {
            Answer::ScanClosed { .. } => Ok(()),
            other => Err(session::unexpected(&other)),
        }
    }

    fn round(&mut self, changes: &Changes) -> Result<Changes> {
        let budget = Budget::new();
        let names = self.walk(Feed::kept(), 1)?;
        let mut reader = Reader::new(&names);
        let mut tasks = Vec::new();
        let mut reported: Vec<(u64, &Path)> = Vec::new();
        for (path, changed) in changes {
            let directory = names.number();
            reported.push((directory, path));
            let of = (directory, path.as_path());
            if let Err(error) = self.send_changes(&mut reader, &budget, of, changed, &mut tasks) {
                self.problems.note(|| path.clone(), &error);
            }
        }
        self.number = names.number();
        for items in Feed::messages(&names.feed.take()) {
            self.connection.send(Call::Scan { items })?;
        }
        let (unknown, fresh) = match self.connection.ask(Call::ScanFlush)? {
            Answer::Scanned { unknown, fresh } => (unknown, fresh),
            other => return Err(session::unexpected(&other)),
        };
        self.below(tasks, &fresh.into_iter().collect())?;
        Ok(self.parents(&reported, &unknown))
    }

    /// Reads the new directories, with everything below; for the others the changes were already
    /// reported.
    fn below(&mut self, tasks: Vec<Task>, fresh: &Set<u64>) -> Result<()> {
        let (feed, messages) = Feed::new();
        let walk = Arc::new(self.walk(feed, self.index.threads)?);
        let mut items = Vec::new();
        let known = tasks.iter().filter(|task| !fresh.contains(&task.directory));
        if self.index.vanished.are_back(known.map(|task| &task.attr)) {
            self.gatherer.overflow();
        }
        for task in tasks {
            if fresh.contains(&task.directory) {
                walk.begin(task);
            } else {
                let close = ScanItem::Close { directory: task.directory, all: false };
                push_scan_item(&close, &mut items);
            }
        }
        walk.feed.push(&items, 0);
        let threads = start(&walk, self.index.threads)?;
        let sent = self.index.send(self.connection, &messages, &mut 0);
        if sent.is_err() {
            walk.stop();
        }
        drop(messages);
        for thread in threads {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        self.number = walk.number();
        sent?;
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Failure::new(FailureKind::Interrupted, "interrupted"));
        }
        Ok(())
    }

    fn walk(&self, feed: Feed, workers: usize) -> Result<Walk> {
        let feed = (feed, Known::default());
        let problems = Arc::clone(self.problems);
        let walk = Walk::new(self.settings()?, feed, problems, self.interrupted, workers);
        Ok(walk
            .numbered_from(self.number)
            .followed(self.index.inotify.as_ref(), &self.index.vanished))
    }

    /// Reports the names that changed in one directory.
    fn send_changes(
        &self,
        reader: &mut Reader<'_>,
        budget: &Arc<Budget>,
        (directory, path): (u64, &Path),
        changed: &std::collections::BTreeSet<Vec<u8>>,
        tasks: &mut Vec<Task>,
    ) -> std::io::Result<()> {
        let node = Node::at(self.index.source, path, budget)?;
        let (attr, xattrs) = read::top(&node, self.index.keeps_xattrs)?;
        let below = path.strip_prefix(self.index.source).unwrap_or(Path::new(""));
        let mut items = Vec::new();
        let find = ScanItem::Find {
            directory,
            path: below.as_os_str().as_bytes(),
            attr,
            xattrs: row::borrowed(&xattrs),
        };
        push_scan_item(&find, &mut items);
        let task = Task { node, directory, attr, known: 0, foreign: false };
        reader.some(&task, &items, changed, tasks)
    }

    /// The names of directories that the index does not have, in their parent directories.
    fn parents(&self, reported: &[(u64, &Path)], unknown: &[u64]) -> Changes {
        let mut changes = Changes::new();
        for (_, path) in reported.iter().filter(|(directory, _)| unknown.contains(directory)) {
            let (Some(above), Some(name)) = (path.parent(), path.file_name()) else { continue };
            if above.starts_with(self.index.source) {
                let name = name.to_owned().into_vec();
                changes.entry(above.to_owned()).or_default().insert(name);
            }
        }
        changes
    }

    fn settings(&self) -> Result<Settings> {
        use std::os::unix::fs::MetadataExt;
        let source = std::fs::metadata(self.index.source)
            .map_err(|error| failure::source("cannot read", self.index.source, &error))?;
        Ok(Settings {
            crosses_mounts: self.index.crosses_mounts,
            keeps_xattrs: self.index.keeps_xattrs,
            device: source.dev(),
            own: own_directory(self.index.volume),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scan_after_a_failure_waits_a_minute_or_ten_times_its_length() {
        assert_eq!(rest_before_scan(Duration::from_secs(2)), Duration::from_secs(60));
        assert_eq!(rest_before_scan(Duration::from_secs(600)), Duration::from_secs(6000));
        assert_eq!(rest_before_scan(Duration::MAX), Duration::MAX);
    }
}
