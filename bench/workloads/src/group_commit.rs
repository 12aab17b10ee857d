//! `group-commit`: durable commits by several threads on a bare log, by how long the thread that
//! syncs for the others waits for more of them. One line for each number of threads and each
//! window. The rounds are interleaved so that all windows see the same disk.

use std::os::unix::fs::DirBuilderExt;
use std::time::Duration;

use device::{Clock, Env, SystemClock};
use hdrhistogram::Histogram;
use serde_json::json;
use store::{Durability, Log, LogOptions, LogSpace};

use super::Run;
use super::engine::broken;
use super::meter::histogram;
use program::failure::{self, Result};
use program::output::Output;

const THREADS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const WINDOWS: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_micros(50),
    Duration::from_micros(200),
    Duration::from_millis(1),
];
/// Approximately what a create writes to the log.
const RECORD: [u8; 150] = [7; 150];

/// The results of one window.
struct Results {
    latencies: Histogram<u64>,
    seconds: f64,
    commits: u64,
    syncs: u64,
}

pub(super) fn run(run: &Run<'_>, output: &mut Output) -> Result<()> {
    let below = run.args.volume.clone().unwrap_or_else(std::env::temp_dir);
    let path = below.join(format!("pando-log-{}", std::process::id()));
    std::fs::DirBuilder::new()
        .mode(0o711)
        .create(&path)
        .map_err(|error| failure::io("create", &path, &error))?;
    let env = Env::system(&path).map_err(|error| failure::device(&path, &error))?;
    let done = THREADS.into_iter().try_for_each(|threads| lines(run, &env, threads, output));
    run.bar.finish_and_clear();
    std::fs::remove_dir_all(&path).map_err(|error| failure::io("remove", &path, &error))?;
    done
}

fn lines(run: &Run<'_>, env: &Env, threads: u64, output: &mut Output) -> Result<()> {
    let mut found =
        WINDOWS.map(|_| Results { latencies: histogram(), seconds: 0.0, commits: 0, syncs: 0 });
    for round in 0..run.args.rounds() {
        for (window, found) in WINDOWS.into_iter().zip(&mut found) {
            let directory = format!("log-{threads}-{round}-{}", window.as_micros());
            measure(run, env, &directory, window, threads, found)?;
            run.check()?;
        }
    }
    for (window, found) in WINDOWS.into_iter().zip(&found) {
        let micros = |quantile| found.latencies.value_at_quantile(quantile) as f64 / 1e3;
        let rate = found.commits as f64 / found.seconds.max(1e-9);
        let object = json!({
            "workload": "group-commit",
            "threads": threads,
            "window_us": window.as_micros() as u64,
            "commits_per_second": rate.round(),
            "commits_per_sync": found.commits as f64 / found.syncs.max(1) as f64,
            "p50_us": micros(0.5),
            "p99_us": micros(0.99),
            "max_us": micros(1.0),
        });
        output.object(&object)?;
        output.line(&format!(
            "{threads:>2} threads, window {:>4} us: {rate:>8.0} a second, {:.1} a sync, \
             p50 {:.0} us, p99 {:.0} us",
            window.as_micros(),
            found.commits as f64 / found.syncs.max(1) as f64,
            micros(0.5),
            micros(0.99),
        ))?;
    }
    Ok(())
}

/// One round: a fresh log, `--files` commits by each thread.
fn measure(
    run: &Run<'_>,
    env: &Env,
    directory: &str,
    window: Duration,
    threads: u64,
    found: &mut Results,
) -> Result<()> {
    let options = LogOptions { durability: Durability::Sync, window, ..LogOptions::default() };
    let log = Log::create(env, directory, [1; 16], &options).map_err(broken)?;
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let shares: Result<Vec<Histogram<u64>>> = device::scope(|scope| {
        let work = || {
            let mut latencies = histogram();
            for _ in 0..run.args.files {
                let before = clock.monotonic();
                let lsn = log.append(&RECORD, LogSpace::Normal).map_err(broken)?;
                log.committed(lsn).map_err(broken)?;
                let nanos = clock.monotonic().saturating_sub(before).as_nanos() as u64;
                latencies.record(nanos).expect("invariant: the histogram grows");
            }
            Ok(latencies)
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = "invariant: threads of a benchmark do not panic";
        handles.into_iter().map(|handle| handle.join().expect(join)).collect()
    });
    found.seconds += clock.monotonic().saturating_sub(start).as_secs_f64();
    for share in shares? {
        found.latencies.add(&share).expect("invariant: both have the same shape");
    }
    found.commits += threads * run.args.files;
    found.syncs += log.stats().syncs;
    drop(log);
    let files = env.device.list(directory).map_err(|error| broken(error.into()))?;
    files
        .iter()
        .try_for_each(|name| env.device.remove(&format!("{directory}/{name}")))
        .map_err(|error| broken(error.into()))
}
