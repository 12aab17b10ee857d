//! A worker: runs case after case, says in a file which one it is at, catches panics and writes
//! down what they came of. What it cannot catch (an abort for want of memory, a stack that ran
//! out, a hang) its supervisor finds by that file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::target::{Part, Target};

/// Memory that a worker may map, in bytes: a case that wants more is a finding.
const MEMORY_MAX: u64 = 4 << 30;
/// Kinds of panics after which a worker stops: there is enough to mend.
const FINDINGS_MAX: usize = 20;

/// What a worker does.
#[derive(Debug, Clone)]
pub struct Work {
    /// The targets, in turn.
    pub targets: Vec<Target>,
    /// The seed of the run.
    pub seed: u64,
    /// The first number of a case.
    pub first: u64,
    /// The distance of its numbers: how many workers there are.
    pub stride: u64,
    /// CPU seconds after which it ends.
    pub cpu_seconds: f64,
    /// The file in which it says where it is.
    pub heartbeat: PathBuf,
    /// The directory of findings.
    pub findings: PathBuf,
}

/// Where a worker is: what stands in its file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Beat {
    /// Index of the target.
    pub target: u64,
    /// Number of the case.
    pub number: u64,
    /// Cases that were begun.
    pub executions: u64,
    /// CPU time in milliseconds, as of the last round.
    pub cpu_millis: u64,
}

impl Beat {
    const BYTES: usize = 32;

    fn write(&self, to: &File) {
        let all = [self.target, self.number, self.executions, self.cpu_millis];
        let mut bytes = [0; Beat::BYTES];
        for (slot, number) in bytes.chunks_exact_mut(8).zip(all) {
            slot.copy_from_slice(&number.to_le_bytes());
        }
        to.write_all_at(&bytes, 0).expect("the file of the worker's place is written");
    }

    /// What a worker said last.
    pub fn read(from: &Path) -> Option<Beat> {
        let bytes = std::fs::read(from).ok()?;
        let mut numbers = bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
        let mut next = || numbers.next().map(u64::from_le_bytes);
        let (target, number, executions) = (next()?, next()?, next()?);
        Some(Beat { target, number, executions, cpu_millis: next()? })
    }
}

/// Cases of one target: how many, and how many were understood.
pub type Counts = BTreeMap<&'static str, (u64, u64)>;

thread_local! {
    /// Where the last panic was, and what it said.
    static PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Has panics noted, beside what is done about them so far.
pub fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANIC.with_borrow_mut(|slot| *slot = Some((place, panic.to_string())));
    }));
}

/// Runs one input; whether it was understood, or where it panicked and what was said.
pub fn run(target: &Target, input: &[u8]) -> Result<bool, (String, String)> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .map_err(|_| PANIC.with_borrow_mut(Option::take).unwrap_or_default())
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Works until its time is used up; the counts, and how many findings there were.
pub fn work(work: &Work) -> std::io::Result<(Counts, usize)> {
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    setrlimit(Resource::As, limit)?;
    // A finding is told once, by its file.
    std::panic::set_hook(Box::new(|_| {}));
    note_panics();
    let mut how = OpenOptions::new();
    let heartbeat = how.create(true).truncate(false).write(true).open(&work.heartbeat)?;
    let mut counts = Counts::new();
    let mut places = BTreeSet::new();
    let mut beat = Beat::default();
    let mut number = work.first;
    while cpu() < work.cpu_seconds && places.len() < FINDINGS_MAX {
        let mut next = number;
        for (at, target) in work.targets.iter().enumerate() {
            // Decoders in runs, so that code and data stay in the cache.
            let run_length = if target.part == Part::Decoders { 64 } else { 1 };
            for round in 0..run_length {
                beat.number = number + round * work.stride;
                next = next.max(beat.number + work.stride);
                beat.target = at as u64;
                beat.executions += 1;
                beat.write(&heartbeat);
                let input = target.case(work.seed, beat.number);
                let count = counts.entry(target.name).or_default();
                count.0 += 1;
                match run(target, &input) {
                    Ok(understood) => count.1 += u64::from(understood),
                    Err((place, what)) => {
                        if places.insert(place) {
                            let case = Case { target, seed: work.seed, number: beat.number };
                            case.keep(&work.findings, &input, &what)?;
                        }
                    }
                }
            }
        }
        number = next;
        beat.cpu_millis = (cpu() * 1000.0) as u64;
    }
    beat.write(&heartbeat);
    Ok((counts, places.len()))
}

/// A case that went wrong.
pub(crate) struct Case<'a> {
    pub(crate) target: &'a Target,
    pub(crate) seed: u64,
    pub(crate) number: u64,
}

impl Case<'_> {
    /// Writes the input down, and beside it what happened; the input's file.
    pub(crate) fn keep(
        &self,
        directory: &Path,
        input: &[u8],
        what: &str,
    ) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        let Case { target, seed, number } = self;
        let file = directory.join(format!("{}.{seed}-{number}.case", target.name));
        std::fs::write(&file, input)?;
        let told = format!(
            "{}: seed {seed}, case {number}, {} bytes\n{what}\n\nagain with:\n  \
             cargo run --package pando-fuzz -- replay {}\n",
            target.name,
            input.len(),
            file.display()
        );
        std::fs::write(file.with_extension("txt"), told)?;
        Ok(file)
    }
}
