//! The load: create and close, stat, look up what is not there, list, unlink, through the kernel.
//!
//! Threads work in a directory each or share one. All threads of a phase start together, and a
//! phase lasts until the last one is done. Server time is what the kernel counted for all threads
//! of the server's process, so background work counts too. Attributes are requested by `lstat`, not
//! by the library's `metadata`: that wants the birth time, which no listing brings along.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::sync::Barrier;
use device::{Clock, SystemClock};
use rustix::fs::{AtFlags, Dir, lstat, statat};

/// Whether threads share a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A directory each.
    Own,
    /// One for all.
    Shared,
}

/// What is done to each file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// `open(O_CREAT | O_EXCL)` and `close`.
    Create,
    /// `stat` in a different order from that of creation.
    Stat,
    /// `stat` of a name that does not exist, a new one each time: one request.
    Missing,
    /// Reading the directory and `lstat` of each entry.
    List,
    /// `open` for reading and `close`.
    Open,
    /// `unlink`.
    Unlink,
}

/// A load.
#[derive(Debug, Clone)]
pub struct Load {
    /// A directory that exists; directories of the load are made in it and removed again.
    pub directory: PathBuf,
    /// Threads.
    pub threads: usize,
    /// Files of each thread.
    pub files: usize,
    /// Whether threads share a directory.
    pub layout: Layout,
    /// What is done, in this order. Files are there until they are unlinked.
    pub phases: Vec<Phase>,
    /// Process whose time is counted.
    pub server: Option<u32>,
}

/// What a phase took.
#[derive(Debug, Clone, Copy)]
pub struct Measured {
    /// The phase.
    pub phase: Phase,
    /// Files, over all threads.
    pub operations: usize,
    /// From the start of the first to the end of the last.
    pub seconds: f64,
    /// Microseconds of the server's processor time for one operation.
    pub server_us: Option<f64>,
}

impl Phase {
    /// All, in the order in which they are run.
    pub const ALL: [Phase; 6] =
        [Phase::Create, Phase::Stat, Phase::Missing, Phase::List, Phase::Open, Phase::Unlink];

    /// The phase of a name.
    pub fn of_name(name: &str) -> Option<Phase> {
        Phase::ALL.into_iter().find(|phase| phase.name() == name)
    }

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Create => "create",
            Phase::Stat => "stat",
            Phase::Missing => "stat-missing",
            Phase::List => "list",
            Phase::Open => "open-close",
            Phase::Unlink => "unlink",
        }
    }
}

impl Measured {
    /// Operations in a second.
    pub fn per_second(&self) -> f64 {
        self.operations as f64 / self.seconds
    }
}

impl Load {
    /// Runs the phases.
    pub fn run(&self) -> io::Result<Vec<Measured>> {
        for thread in 0..self.threads {
            let directory = self.directory_of(thread);
            if !directory.exists() {
                fs::create_dir(directory)?;
            }
        }
        let mut results = Vec::new();
        for &phase in &self.phases {
            results.push(self.measure(phase)?);
        }
        if self.phases.last() != Some(&Phase::Unlink) {
            return Ok(results);
        }
        for thread in 0..self.threads {
            let directory = self.directory_of(thread);
            if directory.exists() {
                fs::remove_dir(directory)?;
            }
        }
        Ok(results)
    }

    fn directory_of(&self, thread: usize) -> PathBuf {
        match self.layout {
            Layout::Own => self.directory.join(format!("d{thread}")),
            Layout::Shared => self.directory.join("shared"),
        }
    }

    fn measure(&self, phase: Phase) -> io::Result<Measured> {
        let clock = SystemClock::new();
        let before = self.server.and_then(processor_time);
        let barrier = Barrier::new(self.threads);
        let (clock_ref, barrier_ref) = (&clock, &barrier);
        let spans: Vec<io::Result<(Duration, Duration)>> = device::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|thread| {
                    scope.spawn(move || {
                        barrier_ref.wait();
                        let start = clock_ref.monotonic();
                        self.work(phase, thread)?;
                        Ok((start, clock_ref.monotonic()))
                    })
                })
                .collect();
            let died = |_| Err(io::Error::other("a thread of the driver died"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(died)).collect()
        });
        let after = self.server.and_then(processor_time);
        let spans: Vec<_> = spans.into_iter().collect::<io::Result<_>>()?;
        let start = spans.iter().map(|span| span.0).min().unwrap_or_default();
        let end = spans.iter().map(|span| span.1).max().unwrap_or_default();
        let operations = self.files * self.threads;
        let server_us = before.zip(after).map(|(before, after)| {
            after.saturating_sub(before).as_secs_f64() * 1e6 / operations as f64
        });
        Ok(Measured {
            phase,
            operations,
            seconds: end.saturating_sub(start).as_secs_f64(),
            server_us,
        })
    }

    fn work(&self, phase: Phase, thread: usize) -> io::Result<()> {
        let directory = self.directory_of(thread);
        if phase == Phase::List {
            return self.list(&directory, thread);
        }
        let mut path = directory.into_os_string().into_string().map_err(|_| not_text())?;
        path.push('/');
        let stem = path.len();
        // A step that has no divisor in common with the count visits every file once.
        let step = if phase == Phase::Stat { coprime_step(self.files) } else { 1 };
        for turn in 0..self.files {
            let file = turn * step % self.files;
            path.truncate(stem);
            write!(path, "t{thread}-file-{file:06}").map_err(io::Error::other)?;
            match phase {
                Phase::Create => {
                    let mut how = OpenOptions::new();
                    drop(how.write(true).create_new(true).mode(0o644).open(&path)?);
                }
                Phase::Stat => {
                    lstat(&path)?;
                }
                Phase::Missing => {
                    path.push_str("-not");
                    if lstat(&path).is_ok() {
                        return Err(io::Error::other("a file that was never made is there"));
                    }
                }
                Phase::Open => drop(open(&path)?),
                Phase::Unlink => fs::remove_file(&path)?,
                Phase::List => {}
            }
        }
        Ok(())
    }

    fn list(&self, directory: &Path, thread: usize) -> io::Result<()> {
        let mut seen = 0;
        let opened = OpenOptions::new().read(true).open(directory)?;
        for entry in Dir::read_from(&opened)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." {
                statat(&opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
                seen += 1;
            }
        }
        let expected = match self.layout {
            Layout::Own => self.files,
            Layout::Shared => self.files * self.threads,
        };
        if seen == expected {
            return Ok(());
        }
        Err(io::Error::other(format!("thread {thread} listed {seen} of {expected} files")))
    }
}

fn open(path: &str) -> io::Result<File> {
    OpenOptions::new().read(true).open(path)
}

fn not_text() -> io::Error {
    io::Error::other("the path of the load must be text")
}

fn coprime_step(count: usize) -> usize {
    let divisor = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    (count / 2 + 1..=2 * count).find(|step| divisor(*step, count) == 1).unwrap_or(1)
}

/// Processor time of all threads of a process so far. The scheduler's own count is in
/// nanoseconds; where it is missing, the count in ticks of 10 ms has to do.
fn processor_time(process: u32) -> Option<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task")).ok()? {
        let text = fs::read_to_string(thread.ok()?.path().join("schedstat"));
        let Ok(text) = text else { return ticks(process) };
        nanos += text.split_whitespace().next()?.parse::<u64>().ok()?;
    }
    Some(Duration::from_nanos(nanos))
}

fn ticks(process: u32) -> Option<Duration> {
    let text = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let after_name = text.rsplit_once(')')?.1;
    let mut fields = after_name.split_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    Some(Duration::from_millis((user + system) * 10))
}
