//! `create-scattered`: files created in directories drawn at random, beside files created in one
//! directory after the other. The volume has many files already; a daemon's background work runs.
//!
//! The volume is filled first, directory by directory. Then each round creates as many files in
//! order as scattered, alternately; the result is the median of the rounds' ratios.

use std::time::Duration;

use device::{Clock, SystemClock};
use fs::{FileSystem, NewNode};
use inode::{Kind, NodeId};
use serde_json::json;

use super::files::Name;
use super::median::median;
use super::volume::{Volume, broken, caller};
use super::{Run, memory};
use program::failure::Result;
use program::output::{Output, number};

/// A part of a round creates the volume's number of files divided by this.
const SHARE: u64 = 50;
/// A part of a round creates at least this many files.
const PART_MIN: u64 = 500;
/// Creates between two checks for Ctrl-C.
const STRIDE: u64 = 1024;

/// The work on one volume.
struct Test<'a, 'r> {
    run: &'a Run<'r>,
    volume: &'a Volume,
    clock: SystemClock,
    directories: Vec<NodeId>,
    random: fastrand::Rng,
    made: u64,
}

pub(super) fn run(run: &Run<'_>, mut volume: Volume, output: &mut Output) -> Result<()> {
    let args = run.args;
    let mut test = Test {
        run,
        volume: &volume,
        clock: SystemClock::new(),
        directories: Vec::new(),
        random: fastrand::Rng::with_seed(7),
        made: 0,
    };
    let part = (args.files / SHARE).max(PART_MIN);
    run.bar.set_length(args.files + 2 * part * args.rounds());
    test.directories(args.directories.min(args.files))?;
    let filled = test.in_order(args.files)?;
    let (mut ratios, mut times) = (Vec::new(), [Duration::ZERO; 2]);
    for round in 0..args.rounds() {
        // The side that runs first in one round runs second in the next.
        let (order, scattered) = if round.is_multiple_of(2) {
            let order = test.in_order(part)?;
            (order, test.scattered(part)?)
        } else {
            let scattered = test.scattered(part)?;
            (test.in_order(part)?, scattered)
        };
        ratios.push(order.as_secs_f64() / scattered.as_secs_f64().max(1e-9));
        times[0] += order;
        times[1] += scattered;
    }
    ratios.sort_by(f64::total_cmp);
    let (engine, made) = (volume.engine(), test.made);
    let rss_bytes = memory::resident_bytes();
    let (bytes_written, bytes_on_disk) = volume.close()?;
    run.bar.finish_and_clear();
    let rate = |files: u64, took: Duration| (files as f64 / took.as_secs_f64().max(1e-9)).round();
    let of_part = |took: Duration| rate(part * args.rounds(), took);
    let ratio = (median(ratios.clone()) * 1000.0).round() / 1000.0;
    output.object(&json!({
        "workload": "create-scattered",
        "engine": engine,
        "files": args.files,
        "directories": args.directories,
        "rounds": args.rounds(),
        "durability": super::engine::durability(args).name(),
        "fill_per_second": rate(args.files, filled),
        "sequential_per_second": of_part(times[0]),
        "scattered_per_second": of_part(times[1]),
        "ratio": ratio,
        "ratio_min": ratios.first(),
        "ratio_max": ratios.last(),
        "bytes_on_disk": bytes_on_disk,
        "bytes_written": bytes_written,
        "bytes_written_per_file": (bytes_written as f64 / made as f64).round(),
        "rss_bytes": rss_bytes,
    }))?;
    output.line(&format!(
        "filled with {} a second; then {} a second in order, {} scattered over {} directories: \
         ratio {ratio} (median of {})",
        number(rate(args.files, filled) as u64),
        number(of_part(times[0]) as u64),
        number(of_part(times[1]) as u64),
        number(args.directories),
        args.rounds(),
    ))
}

impl Test<'_, '_> {
    fn directories(&mut self, count: u64) -> Result<()> {
        for number in 0..count {
            let name = Name::new(b'd', number);
            let fs = self.volume.fs();
            let made = fs.mkdir(&caller(), self.volume.directory(), name.as_bytes(), 0o755);
            self.directories.push(made.map_err(broken)?.node);
        }
        Ok(())
    }

    /// Creates files in one directory after the other.
    fn in_order(&mut self, files: u64) -> Result<Duration> {
        let count = self.directories.len() as u64;
        self.create(files, |test, file| test.directories[(file * count / files) as usize])
    }

    /// Creates files in directories drawn at random.
    fn scattered(&mut self, files: u64) -> Result<Duration> {
        self.create(files, |test, _| {
            let count = test.directories.len();
            test.directories[test.random.usize(..count)]
        })
    }

    fn create(
        &mut self,
        files: u64,
        mut place: impl FnMut(&mut Self, u64) -> NodeId,
    ) -> Result<Duration> {
        let who = caller();
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let start = self.clock.monotonic();
        for file in 0..files {
            let directory = place(self, file);
            let name = Name::new(b'f', self.made);
            let fs = self.volume.fs();
            let made = fs.mknod(&who, directory, name.as_bytes(), &new).map_err(broken)?;
            fs.forget(made.node, 1);
            self.made += 1;
            if file % STRIDE == STRIDE - 1 {
                self.run.bar.inc(STRIDE);
                self.run.check()?;
            }
        }
        Ok(self.clock.monotonic().saturating_sub(start))
    }
}
