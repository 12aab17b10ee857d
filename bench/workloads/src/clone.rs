//! `clone`: clones a directory with all files, and creates files in the clone; repeated, because
//! one clone is too short to be measured well.

use std::time::Duration;

use device::{Clock, SystemClock};
use fs::{FileSystem, NewNode};
use inode::Kind;

use super::Run;
use super::files::{Files, Name};
use super::measure;
use super::memory;
use super::meter::histogram;
use super::report::{Clones, Report};
use super::volume::{Volume, broken, caller};
use crate::cli::Workload;
use program::failure::Result;

/// Clones per run.
const CLONES: u64 = 9;

/// Writes after each clone.
const WRITES: u64 = 1000;

pub(super) fn run(run: &Run<'_>, mut volume: Volume) -> Result<Report> {
    let clock = SystemClock::new();
    let files = Files::new(&volume, run.args.files, Workload::CreateDeep)?;
    measure::fill(run, &volume, &files, None, &clock)?;
    let fs = volume.fs().clone();
    let who = caller();
    let mut latencies = histogram();
    let mut clones = Clones::default();
    let mut busy = Duration::ZERO;
    let mut random = fastrand::Rng::with_seed(7);
    run.bar.set_length(CLONES);
    for number in 0..CLONES {
        let name = Name::new(b'c', number + u64::from(std::process::id()) * CLONES);
        let start = clock.monotonic();
        let cloned = fs.clone_dir(&who, volume.directory(), inode::NodeId::ROOT, name.as_bytes());
        let took = clock.monotonic().saturating_sub(start);
        let root = cloned.map_err(broken)?.root;
        busy += took;
        latencies.record(took.as_nanos() as u64).expect("invariant: the histogram grows");
        let mut writes = Vec::new();
        for write in 0..WRITES {
            // Anywhere in the clone: each write reaches other shared nodes.
            let directory = Name::new(b'd', random.u64(..files.directories()));
            let parent = fs.lookup(&who, root, directory.as_bytes()).map_err(broken)?.node;
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            let fresh = Name::new(b'w', write);
            let start = clock.monotonic();
            let made = fs.mknod(&who, parent, fresh.as_bytes(), &new);
            writes.push(clock.monotonic().saturating_sub(start));
            fs.forget(made.map_err(broken)?.node, 1);
            fs.forget(parent, 1);
        }
        clones.add(took, &writes);
        fs.rmr(&who, inode::NodeId::ROOT, name.as_bytes()).map_err(broken)?;
        run.bar.inc(1);
        run.check()?;
    }
    let rss_bytes = memory::resident_bytes();
    drop(fs);
    let (bytes_written, bytes_on_disk) = volume.close()?;
    Ok(Report {
        operations: CLONES,
        seconds: busy,
        latencies,
        bytes_on_disk,
        bytes_written,
        rss_bytes,
        clones: Some(clones),
        ..Report::new(run.args, &volume)
    })
}
