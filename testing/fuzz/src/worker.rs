//! A worker: runs case after case, records its current case in a file, catches panics and records
//! their input. What it cannot catch (an abort for lack of memory, a stack overflow, a hang) its
//! supervisor finds from that file.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

use crate::target::{Category, Target};

/// Memory that a worker may map, in bytes: a case that needs more is a finding.
const MEMORY_MAX: u64 = 4 << 30;
/// Kinds of panics after which a worker stops: that is enough to repair.
const FINDINGS_MAX: usize = 20;

/// The task of a worker.
#[derive(Debug, Clone)]
pub struct Work {
    /// The targets, in turn.
    pub targets: Vec<Target>,
    /// The seed of the run.
    pub seed: u64,
    /// The first number of a case.
    pub first: u64,
    /// The step between its numbers: how many workers there are.
    pub stride: u64,
    /// CPU seconds after which it ends.
    pub cpu_seconds: f64,
    /// The file in which it records its progress.
    pub heartbeat: PathBuf,
    /// The directory of findings.
    pub findings: PathBuf,
}

/// The progress of a worker: the content of its file.
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
    /// Cases of the target that were begun, and those that were understood.
    pub count: (u64, u64),
}

/// Writes numbers to a file, at an offset.
fn write_numbers(to: &File, numbers: &[u64], at: usize) {
    let bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    to.write_all_at(&bytes, at as u64).expect("the file of the worker's place is written");
}

/// The numbers in a file.
fn read_numbers(from: &Path) -> Option<Vec<u64>> {
    let bytes = std::fs::read(from).ok()?;
    let chunks = bytes.chunks_exact(8).filter_map(|chunk| chunk.try_into().ok());
    Some(chunks.map(u64::from_le_bytes).collect())
}

impl Beat {
    const NUMBERS: usize = 6;
    /// The offset of the counts of a target whose turn is over.
    const COUNT_BYTES: usize = 16;

    fn write(&self, to: &File) {
        let Beat { target, number, executions, cpu_millis, count } = *self;
        write_numbers(to, &[target, number, executions, cpu_millis, count.0, count.1], 0);
    }

    /// Ends the turn of its target.
    fn write_count(&self, to: &File) {
        let at = Beat::NUMBERS * 8 + self.target as usize * Beat::COUNT_BYTES;
        write_numbers(to, &[self.count.0, self.count.1], at);
    }

    /// The last progress that a worker recorded.
    pub fn read(from: &Path) -> Option<Beat> {
        match *read_numbers(from)?.get(..Beat::NUMBERS)? {
            [target, number, executions, cpu_millis, begun, understood] => {
                Some(Beat { target, number, executions, cpu_millis, count: (begun, understood) })
            }
            _ => None,
        }
    }

    /// The counts that a worker recorded for each target.
    pub fn read_counts(from: &Path, targets: &[Target]) -> Counts {
        let numbers = read_numbers(from).unwrap_or_default();
        let ended = numbers.get(Beat::NUMBERS..).unwrap_or_default().chunks_exact(2);
        let mut counts: Vec<(u64, u64)> = ended.map(|pair| (pair[0], pair[1])).collect();
        counts.resize(targets.len(), (0, 0));
        let beat = Beat::read(from).unwrap_or_default();
        if let Some(count) = counts.get_mut(beat.target as usize) {
            *count = beat.count;
        }
        targets.iter().map(|target| target.name).zip(counts).collect()
    }
}

/// Cases of one target: how many, and how many were understood.
pub type Counts = BTreeMap<&'static str, (u64, u64)>;

thread_local! {
    /// The place of the last panic, and its message.
    static PANIC: RefCell<Option<(String, String)>> = const { RefCell::new(None) };
}

/// Records panics, in addition to the existing hook.
pub fn note_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        before(panic);
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        PANIC.with_borrow_mut(|slot| *slot = Some((place, panic.to_string())));
    }));
}

/// Runs one input; returns whether it was understood, or the place and message of the panic.
pub fn run(target: &Target, input: &[u8]) -> Result<bool, (String, String)> {
    catch_unwind(AssertUnwindSafe(|| (target.run)(input)))
        .map_err(|_| PANIC.with_borrow_mut(Option::take).unwrap_or_default())
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Runs until its time is used up; returns the counts, and how many findings there were.
pub fn work(work: &Work) -> std::io::Result<(Counts, usize)> {
    let limit = Rlimit { current: Some(MEMORY_MAX), maximum: Some(MEMORY_MAX) };
    setrlimit(Resource::As, limit)?;
    // A finding is reported once, by its file.
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
            // Decoders in batches, so that code and data stay in the cache.
            let run_length = if target.part == Category::Decoders { 64 } else { 1 };
            let count = counts.entry(target.name).or_default();
            for round in 0..run_length {
                beat.number = number + round * work.stride;
                next = next.max(beat.number + work.stride);
                beat.target = at as u64;
                beat.executions += 1;
                count.0 += 1;
                beat.count = *count;
                beat.write(&heartbeat);
                let input = target.case(work.seed, beat.number);
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
            beat.count = *count;
            beat.write_count(&heartbeat);
        }
        number = next;
        beat.cpu_millis = (cpu() * 1000.0) as u64;
    }
    beat.write(&heartbeat);
    Ok((counts, places.len()))
}

/// A case that failed.
pub(crate) struct Case<'a> {
    pub(crate) target: &'a Target,
    pub(crate) seed: u64,
    pub(crate) number: u64,
}

impl Case<'_> {
    /// Writes the input, and a description beside it; returns the input's file.
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
        let text = format!(
            "{}: seed {seed}, case {number}, {} bytes\n{what}\n\nagain with:\n  \
             cargo run --package pando-fuzz -- replay {}\n",
            target.name,
            input.len(),
            file.display()
        );
        std::fs::write(file.with_extension("txt"), text)?;
        Ok(file)
    }
}
