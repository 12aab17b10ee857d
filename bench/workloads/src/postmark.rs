//! `postmark`: the mix of Postmark (J. Katcher, TR-3022, NetApp 1997), which has a row in Table 3
//! of the paper. It makes small files in many directories. Transactions create or delete one file
//! and read or append to another; all files are removed at the end. Calls of the file system are
//! counted, including lookups.

use std::time::Duration;

use device::{Clock, SystemClock};
use fs::{FileSystem, NewNode};
use inode::{Kind, NodeId};
use serde_json::json;

use super::Run;
use super::files::Name;
use super::memory;
use super::volume::{Volume, broken, caller};
use program::failure::Result;
use program::output::Output;

/// Sizes of files in bytes: Postmark's own.
const SIZES: std::ops::RangeInclusive<usize> = 500..=10_000;
/// One transaction for this many files, as in the paper: 10,000 with 50,000 files.
const FILES_A_TRANSACTION: u64 = 5;
/// Operations between two checks for Ctrl-C.
const STRIDE: u64 = 1024;

/// A file's directory index and its number.
type FileId = (usize, u64);

/// The existing files, and the operations done.
struct Mix<'a> {
    run: &'a Run<'a>,
    volume: &'a Volume,
    random: fastrand::Rng,
    directories: Vec<NodeId>,
    files: Vec<FileId>,
    next: u64,
    calls: u64,
    bytes: Vec<u8>,
}

impl Mix<'_> {
    fn count(&mut self, calls: u64) -> Result<()> {
        self.calls += calls;
        if self.calls % STRIDE < calls { self.run.check() } else { Ok(()) }
    }

    fn create(&mut self) -> Result<()> {
        let (fs, who) = (self.volume.fs(), caller());
        let place = (self.random.usize(..self.directories.len()), self.next);
        self.next += 1;
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let name = Name::new(b'f', place.1);
        let made = fs.mknod(&who, self.directories[place.0], name.as_bytes(), &new);
        let node = made.map_err(broken)?.node;
        let length = self.random.usize(SIZES);
        fs.write(&who, node, 0, &self.bytes[..length]).map_err(broken)?;
        fs.forget(node, 1);
        self.files.push(place);
        self.count(2)
    }

    fn delete(&mut self, at: usize) -> Result<()> {
        let (directory, number) = self.files.swap_remove(at);
        let name = Name::new(b'f', number);
        let directory = self.directories[directory];
        self.volume.fs().unlink(&caller(), directory, name.as_bytes()).map_err(broken)?;
        self.count(1)
    }

    /// Reads a file, or appends to it.
    fn touch(&mut self) -> Result<()> {
        let (fs, who) = (self.volume.fs(), caller());
        let (directory, number) = self.files[self.random.usize(..self.files.len())];
        let name = Name::new(b'f', number);
        let found = fs.lookup(&who, self.directories[directory], name.as_bytes());
        let found = found.map_err(broken)?;
        if self.random.bool() {
            let mut buffer = vec![0; found.attr.size as usize];
            fs.read(&who, found.node, 0, &mut buffer).map_err(broken)?;
        } else {
            let length = self.random.usize(SIZES);
            let bytes = &self.bytes[..length];
            fs.write(&who, found.node, found.attr.size, bytes).map_err(broken)?;
        }
        fs.forget(found.node, 1);
        self.count(2)
    }

    fn transaction(&mut self) -> Result<()> {
        self.touch()?;
        if self.random.bool() || self.files.is_empty() {
            self.create()
        } else {
            let at = self.random.usize(..self.files.len());
            self.delete(at)
        }
    }
}

pub(super) fn run(run: &Run<'_>, volume: &Volume, output: &mut Output) -> Result<()> {
    let (fs, who, clock) = (volume.fs(), caller(), SystemClock::new());
    let mut mix = Mix {
        run,
        volume,
        random: fastrand::Rng::with_seed(7),
        directories: Vec::new(),
        files: Vec::new(),
        next: 0,
        calls: 0,
        bytes: (0..*SIZES.end()).map(|_| fastrand::u8(..)).collect(),
    };
    let mut ended = Vec::new();
    let start = clock.monotonic();
    for number in 0..run.args.directories {
        let name = Name::new(b'd', number);
        let made = fs.mkdir(&who, volume.directory(), name.as_bytes(), 0o755);
        mix.directories.push(made.map_err(broken)?.node);
        mix.count(1)?;
    }
    for _ in 0..run.args.files {
        mix.create()?;
    }
    ended.push(clock.monotonic());
    let transactions = run.args.files / FILES_A_TRANSACTION;
    for _ in 0..transactions {
        mix.transaction()?;
    }
    ended.push(clock.monotonic());
    while !mix.files.is_empty() {
        mix.delete(mix.files.len() - 1)?;
    }
    for number in 0..run.args.directories {
        let name = Name::new(b'd', number);
        fs.rmdir(&who, volume.directory(), name.as_bytes()).map_err(broken)?;
        mix.count(1)?;
    }
    for node in std::mem::take(&mut mix.directories) {
        fs.forget(node, 1);
    }
    fs.sync().map_err(broken)?;
    ended.push(clock.monotonic());
    run.bar.finish_and_clear();
    let whole = ended[2].saturating_sub(start);
    let part = |end: usize, start: Duration| ended[end].saturating_sub(start).as_secs_f64();
    let object = json!({
        "bench": "postmark", "files": run.args.files, "directories": run.args.directories,
        "transactions": transactions,
        "index": fs.index_stats().map_err(broken)?.is_some(),
        "operations": mix.calls,
        "seconds": whole.as_secs_f64(),
        "operations_per_second": (mix.calls as f64 / whole.as_secs_f64()).round(),
        "create_seconds": part(0, start),
        "transactions_seconds": part(1, ended[0]),
        "remove_seconds": part(2, ended[1]),
        "rss_bytes": memory::resident_bytes(),
    });
    output.object(&object)?;
    output.line(&object.to_string())
}
