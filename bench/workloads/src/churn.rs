//! `churn`: what ordinary programs do again and again at one place: overwrite, punch, truncate,
//! rename over, remove. A log-structured engine keeps what was removed until it merges, so the cost
//! of each operation may rise with the operations before it. `--files` operations of each pattern,
//! one line a pattern, with the processor time of the first and of the last tenth.

use std::time::Duration;

use clap::ValueEnum;
use device::{Clock, SystemClock};
use fs::{Allocate, FileSystem, Fs, FsResult, NewNode, RenameMode, WalkControl};
use inode::{Caller, Kind, NodeId, SetAttr};
use serde_json::json;

use super::Run;
use super::files::Name;
use super::volume::{Volume, broken, caller};
use crate::cli::Pattern;
use program::failure::Result;
use program::output::Output;

/// Size of a file that is written at random offsets.
const FILE_BYTES: u64 = 16 << 20;
/// Size of a disk image, and operations between two times that all of it is punched.
const IMAGE_BYTES: u64 = 64 << 20;
const IMAGE_WRITES: u64 = 500;
/// Where a file is truncated that is appended to.
const APPENDS: u64 = 64;
/// Snapshots that exist at once, and writes between two.
const SNAPSHOTS: u64 = 3;
const SNAPSHOT_WRITES: u64 = 8;
/// Files that wait in a queue.
const QUEUED: u64 = 100;

/// What a pattern works on.
struct Fixture<'a> {
    fs: &'a Fs,
    caller: Caller,
    directory: NodeId,
    /// A file in it.
    file: NodeId,
    random: fastrand::Rng,
    bytes: Vec<u8>,
}

/// Does the operation of this number.
type Step = fn(&mut Fixture<'_>, u64) -> FsResult<()>;

/// What an operation of a pattern does.
fn step_of(pattern: Pattern) -> Step {
    match pattern {
        Pattern::DirectWrites => direct_write,
        Pattern::Image => image,
        Pattern::Copies => copy,
        Pattern::Snapshots => snapshot,
        Pattern::Appends => append,
        Pattern::Database => transaction,
        Pattern::Objects => object,
        Pattern::Renames => rename,
        Pattern::Moves => rename_on,
        Pattern::Queue => queue,
        Pattern::Directories => directory,
    }
}

pub(super) fn run(run: &Run<'_>, mut volume: Volume, output: &mut Output) -> Result<()> {
    let patterns = run.args.churn.pattern.as_deref().unwrap_or(Pattern::value_variants());
    run.bar.set_length(run.args.files * patterns.len() as u64);
    let mut lines = Vec::new();
    for &pattern in patterns {
        let name = pattern.to_possible_value().map_or(String::new(), |name| name.get_name().into());
        run.bar.set_message(name.clone());
        let fs = volume.fs();
        let caller = caller();
        let directory = fs.mkdir(&caller, volume.directory(), name.as_bytes(), 0o755);
        let directory = directory.map_err(broken)?.node;
        let file = fs.mknod(&caller, directory, b"file", &new()).map_err(broken)?.node;
        let (random, bytes) = (fastrand::Rng::with_seed(pattern as u64), vec![7; 8192]);
        let mut place = Fixture { fs, caller, directory, file, random, bytes };
        let Took { wall, processor: [all, first, last] } =
            measure(run, &mut place, step_of(pattern))?;
        let operations = run.args.files as f64;
        let each = |took: Duration, of: f64| (took.as_secs_f64() * 1e8 / of).round() / 100.0;
        lines.push(json!({
            "workload": "churn",
            "pattern": name,
            "engine": volume.engine(),
            "ops": run.args.files,
            "seconds": wall.as_secs_f64(),
            "ops_per_second": (operations / wall.as_secs_f64().max(1e-9)).round(),
            "cpu_us": each(all, operations),
            "first_cpu_us": each(first, operations / 10.0),
            "last_cpu_us": each(last, operations / 10.0),
        }));
    }
    volume.close()?;
    run.bar.finish_and_clear();
    for line in &lines {
        output.object(line)?;
        output.line(&format!(
            "{:14} {:>9} 1/s; processor time {:>8} us each, of the first tenth {:>8}, of the \
             last {:>8}",
            line["pattern"].as_str().unwrap_or_default(),
            line["ops_per_second"],
            line["cpu_us"],
            line["first_cpu_us"],
            line["last_cpu_us"],
        ))?;
    }
    Ok(())
}

/// How long a pattern took.
struct Took {
    wall: Duration,
    /// Processor time of all threads, background work too: for all operations, for the first tenth
    /// and for the last.
    processor: [Duration; 3],
}

/// Processor time of the process so far: other programs of a busy machine change it little.
fn processor_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}

/// Does all operations of a pattern.
fn measure(run: &Run<'_>, place: &mut Fixture<'_>, step: Step) -> Result<Took> {
    let clock = SystemClock::new();
    let operations = run.args.files;
    let tenth = (operations / 10).max(1);
    let (start, begun) = (clock.monotonic(), processor_time());
    let (mut first, mut last) = (Duration::ZERO, begun);
    for number in 0..operations {
        if number == operations - tenth {
            last = processor_time();
        }
        step(place, number).map_err(broken)?;
        if number + 1 == tenth {
            first = processor_time().saturating_sub(begun);
        }
        if number % 256 == 0 {
            run.check()?;
            run.bar.inc(256.min(operations - number));
        }
    }
    let wall = clock.monotonic().saturating_sub(start);
    let end = processor_time();
    let processor = [end.saturating_sub(begun), first, end.saturating_sub(last)];
    Ok(Took { wall, processor })
}

fn new() -> NewNode {
    NewNode { kind: Kind::File, mode: 0o644, rdev: 0 }
}

impl Fixture<'_> {
    /// Writes this many bytes into the file.
    fn write(&self, offset: u64, length: usize) -> FsResult<()> {
        self.fs.write(&self.caller, self.file, offset, &self.bytes[..length])
    }

    /// Creates a file in the directory, with this many bytes.
    fn create(&self, name: &[u8], length: usize) -> FsResult<()> {
        let made = self.fs.mknod(&self.caller, self.directory, name, &new())?;
        self.fs.write(&self.caller, made.node, 0, &self.bytes[..length])?;
        self.fs.forget(made.node, 1);
        Ok(())
    }

    fn rename(&self, from: &[u8], to: &[u8]) -> FsResult<()> {
        let (from, to) = ((self.directory, from), (self.directory, to));
        self.fs.rename(&self.caller, from, to, RenameMode::Replace)
    }

    fn unlink(&self, name: &[u8]) -> FsResult<()> {
        self.fs.unlink(&self.caller, self.directory, name)
    }
}

/// Small writes at random offsets, as a program makes them past the page cache.
fn direct_write(place: &mut Fixture<'_>, _: u64) -> FsResult<()> {
    let offset = place.random.u64(..FILE_BYTES / 512) * 512;
    let length = place.random.usize(1..=8) * 512;
    place.write(offset, length)
}

/// A file system is made in a disk image, used, and made again.
fn image(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    if number.is_multiple_of(IMAGE_WRITES) {
        let (whole, mode) = ((0, IMAGE_BYTES), Allocate::Punch);
        place.write(IMAGE_BYTES, 512)?;
        place.fs.fallocate(&place.caller, place.file, whole, mode)?;
    }
    let offset = place.random.u64(..IMAGE_BYTES / 4096) * 4096;
    place.write(offset, 4096)
}

/// Ranges of one half of a file are copied to the other, and written.
fn copy(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    if number == 0 {
        for offset in (0..FILE_BYTES).step_by(8192) {
            place.write(offset, 8192)?;
        }
    }
    let half = FILE_BYTES / 2 / 4096;
    let [from, to] = [(); 2].map(|()| place.random.u64(..half - 16) * 4096);
    place.write(from, 4096)?;
    let (from, to) = ((place.file, from), (place.file, to + FILE_BYTES / 2));
    place.fs.copy_range(&place.caller, from, to, 16 * 4096).map(drop)
}

/// Writes between snapshots of the directory, of which few are kept.
fn snapshot(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    if number.is_multiple_of(SNAPSHOT_WRITES) {
        let number = number / SNAPSHOT_WRITES;
        let name = |number| Name::new(b's', number);
        place.fs.snapshot_create(&place.caller, place.directory, name(number).as_bytes())?;
        if let Some(old) = number.checked_sub(SNAPSHOTS) {
            place.fs.snapshot_delete(&place.caller, place.directory, name(old).as_bytes())?;
        }
    }
    direct_write(place, number)
}

/// A file is appended to and truncated, as a log.
fn append(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    let at = number % APPENDS;
    if at == 0 {
        let changes = SetAttr { size: Some(0), ..SetAttr::default() };
        place.fs.setattr(&place.caller, place.file, &changes)?;
    }
    place.write(at * 5000, 5000)
}

/// A transaction of a database with a journal that it removes, as SQLite.
fn transaction(place: &mut Fixture<'_>, _: u64) -> FsResult<()> {
    place.create(b"file-journal", 512 + 4096)?;
    for _ in 0..3 {
        let offset = place.random.u64(..FILE_BYTES / 4096) * 4096;
        place.write(offset, 4096)?;
    }
    place.unlink(b"file-journal")
}

/// An object under a temporary name that is renamed, and a reference that is replaced, as git.
fn object(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    place.create(b"tmp_obj", 300)?;
    place.rename(
        b"tmp_obj",
        Name::new(b'o', number.wrapping_mul(0x9e37_79b9) % 100_000).as_bytes(),
    )?;
    place.create(b"ref.lock", 41)?;
    place.rename(b"ref.lock", b"ref")
}

/// A file between two names.
fn rename(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    let (from, to): (&[u8], &[u8]) =
        if number.is_multiple_of(2) { (b"file", b"b") } else { (b"b", b"file") };
    place.rename(from, to)
}

/// A file from name to name, each greater; then the directory is listed.
fn rename_on(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    let name = |number| Name::new(b'm', number);
    match number.checked_sub(1) {
        None => place.rename(b"file", name(0).as_bytes())?,
        Some(before) => place.rename(name(before).as_bytes(), name(number).as_bytes())?,
    }
    list(place, 8)
}

/// Files come with greater names, and the first of a listing is removed.
fn queue(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    place.create(Name::new(b'q', number).as_bytes(), 100)?;
    if let Some(oldest) = number.checked_sub(QUEUED) {
        list(place, 8)?;
        place.unlink(Name::new(b'q', oldest).as_bytes())?;
    }
    Ok(())
}

/// A directory is made and removed.
fn directory(place: &mut Fixture<'_>, number: u64) -> FsResult<()> {
    let name = Name::new(b'd', number);
    let made = place.fs.mkdir(&place.caller, place.directory, name.as_bytes(), 0o755)?;
    place.fs.forget(made.node, 1);
    place.fs.rmdir(&place.caller, place.directory, name.as_bytes())
}

/// Lists the first entries of the directory.
fn list(place: &Fixture<'_>, most: usize) -> FsResult<()> {
    let mut listed = 0;
    place.fs.readdir(&place.caller, place.directory, 0, &mut |_| {
        listed += 1;
        if listed < most { WalkControl::Continue } else { WalkControl::Stop }
    })
}
