//! `recover-scattered`: how long opening takes after a crash, when the changes are scattered over
//! many directories. So a replay has to read a leaf for nearly every record. Nothing of the volume
//! is in the page cache.
//!
//! 1. Create the files, in `--directories` directories, with a daemon's background work; close.
//! 2. Open without background work. Change the mode of random files until a checkpoint is due, and
//!    then half as many again: what arrives while that checkpoint is being written.
//! 3. Sync, and drop the volume as a crash does. Drop caches. Open.

use std::sync::Arc;
use std::time::Duration;

use device::{Clock, SystemClock};
use fs::{FileSystem, NewNode};
use inode::{Kind, NodeId, SetAttr};
use serde_json::json;
use store::Store;

use super::Run;
use super::engine;
use super::files::Name;
use super::memory;
use super::volume::{Volume, broken, caller, drop_caches};
use program::failure::Result;
use program::output::Output;

/// Changes between two checks for Ctrl-C and for a due checkpoint.
const STRIDE: u64 = 64;

pub(super) fn run(run: &Run<'_>, mut volume: Volume, output: &mut Output) -> Result<()> {
    let args = run.args;
    let clock = SystemClock::new();
    let directories = fill(run, &volume)?;
    volume.close()?;
    volume.crash();
    let store = volume.open_watched()?;
    // So that this thread takes no checkpoint either.
    store.set_waker(Arc::new(|| {}));
    let (updates, due_after, updating) = update(run, &volume, &directories, &store, &clock)?;
    volume.fs().sync().map_err(broken)?;
    let log_bytes = store.stats().log_bytes;
    drop(store);
    volume.crash();
    let cold = drop_caches(volume.path())?;
    let start = clock.monotonic();
    volume.open_alone()?;
    let took = clock.monotonic().saturating_sub(start);
    let status = volume.fs().status().map_err(broken)?;
    let rss_bytes = memory::resident_bytes();
    // The content of the page cache makes the difference.
    volume.crash();
    let start = clock.monotonic();
    volume.open_alone()?;
    let warm = clock.monotonic().saturating_sub(start);
    let (_, bytes_on_disk) = volume.close()?;
    run.bar.finish_and_clear();
    output.object(&json!({
        "workload": "recover-scattered",
        "engine": volume.engine(),
        "files": args.files,
        "directories": directories.len(),
        "updates": updates,
        "checkpoint_due_after": due_after,
        "updates_per_second": (updates as f64 / updating.as_secs_f64().max(1e-9)).round(),
        "replayed": status.replayed,
        "log_bytes": log_bytes,
        "caches_dropped": cold,
        "open_seconds": took.as_secs_f64(),
        "open_warm_seconds": warm.as_secs_f64(),
        "bytes_on_disk": bytes_on_disk,
        "rss_bytes": rss_bytes,
    }))?;
    output.line(&format!(
        "opened in {:.3} s after a crash: {} records over {} files in {} directories, caches \
         dropped ({cold}); in {:.3} s from the page cache",
        took.as_secs_f64(),
        status.replayed,
        args.files,
        directories.len(),
        warm.as_secs_f64(),
    ))
}

/// Creates the files, directory by directory; returns the directories.
fn fill(run: &Run<'_>, volume: &Volume) -> Result<Vec<(NodeId, u64)>> {
    let (files, count) = (run.args.files, run.args.directories.min(run.args.files));
    let fs = volume.fs();
    let caller = caller();
    run.bar.set_message("creating");
    run.bar.set_length(files);
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let mut directories = Vec::new();
    for number in 0..count {
        let name = Name::new(b'd', number);
        let made = fs.mkdir(&caller, volume.directory(), name.as_bytes(), 0o755).map_err(broken)?;
        let held = files * (number + 1) / count - files * number / count;
        for file in 0..held {
            let name = Name::new(b'f', file);
            let made = fs.mknod(&caller, made.node, name.as_bytes(), &new).map_err(broken)?;
            fs.forget(made.node, 1);
        }
        directories.push((made.node, held));
        run.bar.inc(held);
        run.check()?;
    }
    Ok(directories)
}

/// Changes random files; returns how many, after how many a checkpoint was due, and the time.
fn update(
    run: &Run<'_>,
    volume: &Volume,
    directories: &[(NodeId, u64)],
    store: &Arc<dyn Store>,
    clock: &dyn Clock,
) -> Result<(u64, u64, Duration)> {
    let (fs, caller) = (volume.fs(), caller());
    run.bar.set_message("changing");
    let mut random = fastrand::Rng::with_seed(11);
    let start = clock.monotonic();
    let (mut done, mut due_after) = (0, None);
    loop {
        if done % STRIDE == 0 {
            run.check()?;
            store.flush_if_due().map_err(engine::broken)?;
            if due_after.is_none() && store.checkpoint_due() {
                due_after = Some(done);
            }
            if due_after.is_some_and(|due| done >= due + due / 2) || store.stats().checkpoints > 0 {
                break;
            }
        }
        let (directory, held) = directories[random.usize(..directories.len())];
        let name = Name::new(b'f', random.u64(..held));
        let found = fs.lookup(&caller, directory, name.as_bytes()).map_err(broken)?;
        let mode = if done % 2 == 0 { 0o600 } else { 0o640 };
        let changes = SetAttr { mode: Some(mode), ..SetAttr::default() };
        fs.setattr(&caller, found.node, &changes).map_err(broken)?;
        fs.forget(found.node, 1);
        done += 1;
    }
    let took = clock.monotonic().saturating_sub(start);
    Ok((done, due_after.unwrap_or(done), took))
}
