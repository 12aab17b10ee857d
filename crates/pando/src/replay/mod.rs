//! `pando replay`: makes the calls of a trace in a directory of any file system.
//!
//! The trace is read twice. The first pass learns which tree it expects, and which files are used
//! after their names are gone; the second makes the calls. Both run in memory for the names of the
//! trace. A trace may be hostile: `place` keeps every call below the directory, and device nodes,
//! owners and set-id bits are made on request only.

mod prepare;
mod run;
mod plan;
mod outcome;
mod job;
mod place;
mod pattern;

use std::fs::{File, OpenOptions};
use std::io::BufReader;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::Clock;
use indicatif::ProgressBar;
use rustix::fs::{Mode, OFlags};
use trace::{End, Expected, TraceReader};
use wire::{Failure, FailureKind};

pub(crate) use outcome::{Difference, Outcome};
pub(crate) use prepare::Prepared;

use crate::failure::{self, Result};
use plan::Planner;
use run::{How, Runner, Shared};

/// A trace to replay.
pub(crate) struct Replay<'a> {
    pub(crate) file: &'a Path,
    pub(crate) dir: &'a Path,
    pub(crate) threads: u16,
    pub(crate) as_recorded: bool,
    pub(crate) is_privileged: bool,
    /// Bytes of memory.
    pub(crate) memory: usize,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) interrupted: &'a AtomicBool,
}

/// What the first pass learned.
pub(crate) struct Learned {
    expected: Expected,
    root: u64,
    /// Number of events.
    pub(crate) events: u64,
    pub(crate) end: End,
    pub(crate) dropped: u64,
}

/// Opens a trace for reading.
pub(crate) fn open(path: &Path) -> Result<TraceReader<BufReader<File>>> {
    // It is read twice, which a pipe cannot be; to open a FIFO would wait for a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path);
    let file = file.map_err(|error| failure::io("read", path, &error))?;
    if !file.metadata().is_ok_and(|found| found.is_file()) {
        let failure = Failure::new(FailureKind::Invalid, "a trace is replayed from a regular file");
        let failure = failure.at(path.as_os_str().as_encoded_bytes());
        return Err(failure.hint("write what comes from a pipe into a file first"));
    }
    TraceReader::new(BufReader::with_capacity(1 << 20, file)).map_err(|error| wrong(path, &error))
}

/// A trace that cannot be read.
pub(crate) fn wrong(path: &Path, error: &trace::TraceError) -> Failure {
    let kind = match error {
        trace::TraceError::Io(error) => failure::io_kind(error),
        trace::TraceError::Damaged { .. } | trace::TraceError::OutOfOrder { .. } => {
            FailureKind::Damaged
        }
        _ => FailureKind::Invalid,
    };
    Failure::new(kind, error.to_string())
        .at(path.as_os_str().as_encoded_bytes())
        .hint("replay another copy of the trace, or record it again by `pando mount --trace`")
}

/// An error of reading a trace, or an end before its own.
enum Stop {
    Wrong(trace::TraceError),
    Interrupted,
    Memory,
}

impl From<trace::TraceError> for Stop {
    fn from(error: trace::TraceError) -> Stop {
        Stop::Wrong(error)
    }
}

impl Replay<'_> {
    fn stopped(&self, stop: &Stop) -> Failure {
        match stop {
            Stop::Wrong(error) => wrong(self.file, error),
            Stop::Interrupted => Failure::new(FailureKind::Interrupted, "interrupted"),
            Stop::Memory => {
                let limit = self.memory;
                let message =
                    format!("names and inodes of the trace take more than {limit} bytes of memory");
                Failure::new(FailureKind::Other, message)
                    .at(self.file.as_os_str().as_encoded_bytes())
                    .hint("give more by --memory")
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Reads the whole trace, and makes no calls.
    pub(crate) fn learn(&self) -> Result<Learned> {
        let mut reader = open(self.file)?;
        let mut expected = Expected::default();
        let end = reader.read_all(|event| {
            expected.add(event);
            if expected.memory_bytes() > self.memory {
                return Err(Stop::Memory);
            }
            if self.is_interrupted() { Err(Stop::Interrupted) } else { Ok(()) }
        });
        let end = end.map_err(|stop| self.stopped(&stop))?;
        let (events, dropped, root) = (reader.events(), reader.dropped(), reader.header().root);
        Ok(Learned { expected, root, events, end, dropped })
    }

    /// Builds the tree that the trace expects; the directory must be empty, or absent.
    pub(crate) fn prepare(&self, learned: &Learned, bar: &ProgressBar) -> Result<Prepared> {
        match std::fs::create_dir(self.dir) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.map_err(|error| failure::io("create", self.dir, &error))?,
        }
        let entries = std::fs::read_dir(self.dir);
        let mut entries = entries.map_err(|error| failure::io("list", self.dir, &error))?;
        if entries.next().is_some() {
            let message = format!("{}: the directory is not empty", self.dir.display());
            return Err(Failure::new(FailureKind::NotEmpty, message)
                .hint("--prepare builds a tree in an empty or new directory"));
        }
        rustix::process::umask(Mode::empty());
        let root = self.root()?;
        prepare::prepare(&learned.expected, (learned.root, self.dir), &self.how(&root, bar))
    }

    fn root(&self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::open(self.dir, flags, Mode::empty())
            .map_err(|errno| failure::io("open", self.dir, &errno.into()))
    }

    fn how<'a>(&'a self, root: &'a OwnedFd, bar: &'a ProgressBar) -> How<'a> {
        How {
            threads: self.threads,
            as_recorded: self.as_recorded,
            is_privileged: self.is_privileged,
            clock: self.clock,
            root,
            interrupted: self.interrupted,
            bar,
        }
    }

    /// Makes the calls. Returns what was measured, for how long, and whether it was interrupted.
    pub(crate) fn run(
        &self,
        learned: &Learned,
        bar: &ProgressBar,
    ) -> Result<(Outcome, Duration, bool)> {
        rustix::process::umask(Mode::empty());
        pattern::make();
        let root = self.root()?;
        let how = self.how(&root, bar);
        let start = root.try_clone().map_err(|error| failure::io("open", self.dir, &error))?;
        let planner = Planner::new(&learned.expected, learned.root, start);
        let shared = Shared::new();
        let others = (how.threads > 1).then_some(&shared);
        let (outcome, took, read) = device::scope(|scope| {
            let mut workers = Vec::new();
            for number in 0..others.map_or(0, |_| how.threads) {
                let work = || shared.work(&how);
                let worker = device::spawn_in(scope, &format!("replay-{number}"), work);
                workers.extend(worker.ok());
            }
            let others = others.filter(|_| !workers.is_empty());
            let mut runner = Runner::new(&how, planner, others);
            let read = open(self.file).and_then(|mut reader| {
                let read = reader.read_all(|event| {
                    runner.take(event);
                    if how.is_interrupted() { Err(Stop::Interrupted) } else { Ok(()) }
                });
                match read {
                    Err(Stop::Interrupted) => Ok(true),
                    Err(stop) => Err(self.stopped(&stop)),
                    Ok(_) => Ok(false),
                }
            });
            let (mut outcome, took) = runner.end();
            for worker in workers {
                match worker.join() {
                    Ok(other) => outcome.merge(other),
                    Err(panic) => std::panic::resume_unwind(panic),
                }
            }
            (outcome, took, read)
        });
        Ok((outcome, took, read?))
    }
}
