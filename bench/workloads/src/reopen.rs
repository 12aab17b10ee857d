//! `reopen`: how long opening takes after a clean close, with nothing of the volume in the page
//! cache. It also measures the first lookup, which may read data that opening left unread.

use device::{Clock, SystemClock};
use fs::FileSystem;
use serde_json::json;

use super::Run;
use super::files::{Files, Name};
use super::measure;
use super::median::median;
use super::memory;
use super::volume::{Volume, broken, caller, drop_caches};
use crate::cli::Workload;
use program::failure::Result;
use program::output::Output;

/// Openings of each kind; the medians count.
const TIMES: usize = 5;

pub(super) fn run(run: &Run<'_>, mut volume: Volume, output: &mut Output) -> Result<()> {
    let args = run.args;
    let clock = SystemClock::new();
    run.bar.set_length(args.files);
    let files = Files::new(&volume, args.files, Workload::CreateDeep)?;
    measure::fill(run, &volume, &files, None, &clock)?;
    drop(files);
    let start = clock.monotonic();
    let (_, bytes_on_disk) = volume.close()?;
    let closing = clock.monotonic().saturating_sub(start);
    let mut opens = [const { Vec::new() }; 2];
    let mut looks = [const { Vec::new() }; 2];
    let mut cold = "";
    let (mut replayed, mut rss_bytes) = (0, 0);
    let mut random = fastrand::Rng::with_seed(7);
    for time in 0..2 * TIMES {
        volume.crash();
        let kind = time % 2;
        if kind == 0 {
            cold = drop_caches(volume.path())?;
        }
        let start = clock.monotonic();
        volume.open_alone()?;
        let opened = clock.monotonic();
        let file = random.u64(..args.files);
        let directory = Name::new(b'd', file / super::files::FILES_A_DIRECTORY);
        let fs = volume.fs();
        let parent = fs.lookup(&caller(), inode::NodeId::ROOT, volume.name().as_bytes());
        let parent = parent.map_err(broken)?.node;
        let parent = fs.lookup(&caller(), parent, directory.as_bytes()).map_err(broken)?.node;
        let name = Name::new(b'f', file);
        fs.lookup(&caller(), parent, name.as_bytes()).map_err(broken)?;
        looks[kind].push(clock.monotonic().saturating_sub(opened).as_secs_f64() * 1e3);
        opens[kind].push(opened.saturating_sub(start).as_secs_f64() * 1e3);
        replayed = fs.status().map_err(broken)?.replayed;
        rss_bytes = memory::resident_bytes();
        volume.close()?;
        run.check()?;
    }
    run.bar.finish_and_clear();
    let [open_cold, open_warm] = opens.map(median);
    let [look_cold, look_warm] = looks.map(median);
    output.object(&json!({
        "workload": "reopen",
        "engine": volume.engine(),
        "files": args.files,
        "caches_dropped": cold,
        "open_ms": open_cold,
        "first_lookup_ms": look_cold,
        "open_warm_ms": open_warm,
        "first_lookup_warm_ms": look_warm,
        "replayed": replayed,
        "close_seconds": closing.as_secs_f64(),
        "bytes_on_disk": bytes_on_disk,
        "rss_bytes": rss_bytes,
    }))?;
    output.line(&format!(
        "opened in {open_cold:.2} ms with caches dropped ({cold}), first look-up {look_cold:.2} \
         ms; {open_warm:.2} and {look_warm:.2} ms from the page cache (medians of {TIMES})"
    ))
}
