//! `pando bench`: how fast a mounted volume creates, stats, lists, searches, snapshots and deletes.
//!
//! Files are used through the mount, as programs use them. Everything happens in one new directory,
//! which is removed at the end, also after a failure or Ctrl-C.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use indicatif::ProgressBar;
use rustix::fs::{AtFlags, Mode, OFlags};
use search::query::{Expr, Glob, Letters, Test};
use serde_json::json;
use wire::{Answer, Body, Call, Failure, FailureKind, Find, FindFrom, Snapshots};

use crate::cli::BenchArgs;
use crate::failure::{self, Result};
use crate::interrupt;
use crate::output::{Output, count, number};
use crate::place::{Last, VolumePath};
use crate::session;

/// Files in a directory.
const FILES_A_DIRECTORY: u32 = 1000;

/// How many snapshots and searches are timed.
const SNAPSHOTS: u32 = 10;
const SEARCHES: u32 = 100;

const UNIT: &str = "operations";

pub(crate) fn run(args: &BenchArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(&args.dir, Last::Target)?;
    if VolumePath::split(&args.dir).is_some() {
        let message = "`pando bench` runs on a mounted volume: DIR must be below a mount point";
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("mount the volume: pando mount VOLDIR MNT; then: pando bench MNT"));
    }
    let name = format!(".pando-bench-{}", std::process::id());
    let mut inner = place.inner.clone();
    if inner.last() != Some(&b'/') {
        inner.push(b'/');
    }
    inner.extend_from_slice(name.as_bytes());
    refuse_trash(&place, &inner)?;
    let interrupted = interrupt::flag()?;
    let path = args.dir.join(name);
    std::fs::create_dir(&path).map_err(|error| failure::io("create", &path, &error))?;
    let bar = output.progress(UNIT);
    let total = u64::from(args.files) * 4 + u64::from(SNAPSHOTS + SEARCHES);
    Output::progress_total(&bar, UNIT, total);
    let bench = Bench { place, inner, path, files: args.files, interrupted, bar };
    let measured = bench.all();
    bench.bar.finish_and_clear();
    match (measured, bench.remove()) {
        (Ok(measured), removed) => {
            measured.iter().try_for_each(|measure| measure.show(output))?;
            removed
        }
        // Where both fail: what is left there is what the user can do something about.
        (Err(failure), Ok(())) | (Err(_), Err(failure)) => Err(failure),
    }
}

/// A trash would keep every file that is deleted.
fn refuse_trash(place: &VolumePath, inner: &[u8]) -> Result<()> {
    match session::ask(place, &Call::TrashList { path: inner }) {
        Ok(Answer::Trash(_)) => {
            let message = "a trash keeps what is deleted there: the benchmark would fill it";
            Err(Failure::new(FailureKind::Invalid, message)
                .at(place.typed())
                .hint("give a directory that no trash serves"))
        }
        _ => Ok(()),
    }
}

/// What was measured of one kind of operation.
struct Measure {
    name: &'static str,
    operations: u64,
    /// From the first to the end of the last.
    took: Duration,
    /// Sorted.
    latencies: Vec<Duration>,
}

impl Measure {
    fn percentile(&self, percent: usize) -> f64 {
        let at = (self.latencies.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies.get(at).map_or(0.0, |latency| latency.as_secs_f64() * 1e6)
    }

    fn show(&self, output: &mut Output) -> Result<()> {
        let rate = self.operations as f64 / self.took.as_secs_f64().max(1e-9);
        let [p50, p99, most] = [50, 99, 100].map(|percent| self.percentile(percent));
        output.object(&json!({
            "measure": self.name,
            "operations": self.operations,
            "per_second": rate,
            "p50_us": p50,
            "p99_us": p99,
            "max_us": most,
        }))?;
        output.line(&format!(
            "{:<9}{:>12} in {:>8.2} s {:>10}/s   p50 {p50:>9.1} us   p99 {p99:>9.1} us   \
             max {most:>9.1} us",
            self.name,
            number(self.operations),
            self.took.as_secs_f64(),
            number(rate as u64),
        ))
    }
}

struct Bench {
    /// The directory that the user gave.
    place: VolumePath,
    /// The benchmark's directory, as a path in the volume and below the mount.
    inner: Vec<u8>,
    path: PathBuf,
    files: u32,
    interrupted: Arc<AtomicBool>,
    bar: ProgressBar,
}

impl Bench {
    fn all(&self) -> Result<Vec<Measure>> {
        let directories = self.directories()?;
        let of_file = |file: u32| &directories[(file / FILES_A_DIRECTORY) as usize];
        let create = self.timed("create", 0..self.files, |file| {
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
            rustix::fs::openat(of_file(file), file_name(file), flags, Mode::from(0o644))
                .map_err(|error| self.failed("create", file, error))?;
            Ok(1)
        })?;
        let mut shuffled: Vec<u32> = (0..self.files).collect();
        fastrand::Rng::with_seed(1).shuffle(&mut shuffled);
        let stat = self.timed("stat", shuffled.iter().copied(), |file| {
            let path = self.file_path(file);
            path.symlink_metadata().map_err(|error| failure::io("stat", &path, &error))?;
            Ok(1)
        })?;
        let list =
            self.timed("list", 0..directories.len() as u32, |directory| self.list(directory))?;
        let searched = shuffled.iter().copied().cycle().take(SEARCHES as usize);
        let search = self.timed("search", searched, |file| self.search(file))?;
        let snapshot = self.timed("snapshot", 0..SNAPSHOTS, |nth| {
            let name = snapshot_name(nth);
            let call = Call::SnapshotCreate { path: &self.inner, name: name.as_bytes() };
            session::perform(&self.place, &call)?;
            Ok(1)
        })?;
        self.delete_snapshots()?;
        let delete = self.timed("delete", 0..self.files, |file| {
            rustix::fs::unlinkat(of_file(file), file_name(file), AtFlags::empty())
                .map_err(|error| self.failed("delete", file, error))?;
            Ok(1)
        })?;
        Ok(vec![create, stat, list, search, snapshot, delete])
    }

    /// Makes the directories of the files, and opens them.
    fn directories(&self) -> Result<Vec<OwnedFd>> {
        device::raise_descriptor_limit();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        (0..self.files.div_ceil(FILES_A_DIRECTORY))
            .map(|directory| {
                self.check()?;
                let path = self.directory_path(directory);
                std::fs::create_dir(&path).map_err(|error| failure::io("create", &path, &error))?;
                rustix::fs::open(&path, flags, Mode::empty())
                    .map_err(|error| failure::io("open", &path, &error.into()))
            })
            .collect()
    }

    /// Runs an operation on each number; it returns how many entries it was for.
    fn timed(
        &self,
        name: &'static str,
        numbers: impl Iterator<Item = u32>,
        mut operation: impl FnMut(u32) -> Result<u64>,
    ) -> Result<Measure> {
        self.bar.set_message(name);
        let clock = SystemClock::new();
        let (mut operations, mut latencies) = (0, Vec::new());
        let begin = clock.monotonic();
        let mut before = begin;
        for number in numbers {
            let done = operation(number)?;
            let after = clock.monotonic();
            latencies.push(after.saturating_sub(before));
            before = after;
            operations += done;
            self.bar.inc(done);
            self.check()?;
        }
        latencies.sort_unstable();
        Ok(Measure { name, operations, took: before.saturating_sub(begin), latencies })
    }

    /// Lists a directory, with the attributes of its files, which must all be there.
    fn list(&self, directory: u32) -> Result<u64> {
        let path = self.directory_path(directory);
        let failed = |error| failure::io("list", &path, &error);
        let mut found = 0;
        for entry in std::fs::read_dir(&path).map_err(failed)? {
            entry.and_then(|entry| entry.metadata()).map_err(failed)?;
            found += 1;
        }
        let first = directory * FILES_A_DIRECTORY;
        self.expect(found, u64::from(FILES_A_DIRECTORY.min(self.files - first)), "the listing")
    }

    /// Finds one file by its name.
    fn search(&self, file: u32) -> Result<u64> {
        let name = Glob::new(file_name(file).as_bytes(), false, Letters::Bytes);
        // tidy: no hint: names that this program makes are valid patterns.
        let name = name.map_err(|error| Failure::new(FailureKind::Other, error.to_string()))?;
        let find = Find {
            from: vec![FindFrom {
                path: self.inner.as_slice().into(),
                shown: self.inner.as_slice().into(),
            }],
            follow: false,
            expr: Expr::All(vec![Expr::Test(Test::Name(name)), Expr::Action(0)]),
            min_depth: 0,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: None,
            snapshots: Snapshots::Named,
            attributes: false,
            targets: false,
            count: false,
        };
        let mut found = 0;
        let call = Call::Find(Box::new(find));
        session::call(&self.place, &call, &mut |body| {
            if let Body::Found(rows) = body {
                found += rows.len() as u64;
            }
            Ok(())
        })?;
        self.expect(found, 1, "the search")
    }

    /// A wrong answer is no measurement.
    fn expect(&self, found: u64, wanted: u64, what: &str) -> Result<u64> {
        if found == wanted {
            return Ok(found);
        }
        let files = count(wanted, "file", "files");
        let message = format!("{what} found {found} of {files} just created");
        Err(Failure::new(FailureKind::Other, message).at(self.place.typed()).hint(
            "check whether another program deletes files there; otherwise check the volume: pando \
             fsck",
        ))
    }

    fn delete_snapshots(&self) -> Result<()> {
        (0..SNAPSHOTS).try_for_each(|nth| {
            let name = snapshot_name(nth);
            let call = Call::SnapshotDelete { path: &self.inner, name: name.as_bytes() };
            match session::perform(&self.place, &call) {
                Err(failure) if failure.kind == FailureKind::NotFound => Ok(()),
                done => done,
            }
        })
    }

    /// Removes the benchmark's directory.
    fn remove(&self) -> Result<()> {
        let removed = self.delete_snapshots().and_then(|()| {
            session::ask(&self.place, &Call::Remove { path: &self.inner }).map(|_| ())
        });
        removed.map_err(|failure| {
            let path = self.path.display();
            let message = format!("{path} could not be removed: {}", failure.message);
            Failure { message, ..failure }.hint(format!("remove it: pando rmr {path}"))
        })
    }

    fn check(&self) -> Result<()> {
        if self.interrupted.load(Ordering::Relaxed) {
            let message = "interrupted; the benchmark's directory is removed";
            return Err(Failure::new(FailureKind::Interrupted, message));
        }
        Ok(())
    }

    fn failed(&self, doing: &str, file: u32, error: rustix::io::Errno) -> Failure {
        failure::io(doing, &self.file_path(file), &error.into())
    }

    fn directory_path(&self, directory: u32) -> PathBuf {
        self.path.join(format!("d{directory}"))
    }

    fn file_path(&self, file: u32) -> PathBuf {
        self.directory_path(file / FILES_A_DIRECTORY).join(Path::new(&file_name(file)))
    }
}

fn file_name(file: u32) -> String {
    format!("file-{file}")
}

fn snapshot_name(nth: u32) -> String {
    format!("bench-{nth}")
}
