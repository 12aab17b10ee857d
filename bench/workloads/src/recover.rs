//! `recover`: creates files without a checkpoint, drops the volume as a crash does, and opens it
//! again, which replays the log.

use device::{Clock, SystemClock};

use super::Run;
use super::files::Files;
use super::memory;
use super::meter::histogram;
use super::report::Report;
use super::volume::{Volume, broken};
use crate::cli::Workload;
use program::failure::Result;

pub(super) fn run(run: &Run<'_>, mut volume: Volume) -> Result<Report> {
    let clock = SystemClock::new();
    // No checkpoints are taken from here on.
    volume.end_background();
    let files = Files::new(&volume, run.args.files, Workload::CreateDeep)?;
    run.bar.set_length(run.args.files);
    for file in 0..run.args.files {
        files.create(file)?;
        if file % 1024 == 1023 {
            run.bar.inc(1024);
            run.check()?;
        }
    }
    volume.fs().sync().map_err(broken)?;
    drop(files);
    volume.crash();
    let start = clock.monotonic();
    volume.open_alone()?;
    let took = clock.monotonic().saturating_sub(start);
    let operations = volume.fs().status().map_err(broken)?.replayed;
    let mut latencies = histogram();
    latencies.record(took.as_nanos() as u64).expect("invariant: the histogram grows");
    let rss_bytes = memory::resident_bytes();
    let (bytes_written, bytes_on_disk) = volume.close()?;
    Ok(Report {
        operations,
        seconds: took,
        latencies,
        bytes_on_disk,
        bytes_written,
        rss_bytes,
        ..Report::new(run.args, &volume)
    })
}
