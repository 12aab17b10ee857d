//! `search-clones`: clones of one directory with a change each. It measures the index space of
//! each, on disk and in memory, and the time of a query over all of them.

use std::time::Duration;

use device::{Clock, SystemClock};
use fs::{FileSystem, NewNode};
use inode::{Kind, NodeId};
use search::query::{Glob, Letters};
use serde_json::json;
use wire::{Failure, FailureKind};

use super::Run;
use super::files::Name;
use super::memory;
use super::name_query;
use super::volume::{Volume, broken, caller};
use program::failure::Result;
use program::output::Output;

/// Files of each directory of the source.
const FILES_A_DIRECTORY: u64 = 1000;
/// Clones between two checks for Ctrl-C.
const STEP_EVERY: u64 = 100;

/// Searches a name below the volume's root: returns the matches, and how long it took.
fn ask(volume: &Volume, name: &[u8]) -> Result<(u64, Duration)> {
    let fs = volume.fs();
    let glob = Glob::new(name, false, Letters::Bytes)
        .map_err(|error| Failure::new(FailureKind::Other, format!("{error}")))?;
    let clock = SystemClock::new();
    let start = clock.monotonic();
    let outcome = name_query::find(fs, &caller(), glob)?;
    let took = clock.monotonic().saturating_sub(start);
    Ok((outcome.matched, took))
}

fn make(volume: &Volume, parent: NodeId, name: &[u8]) -> Result<()> {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made = volume.fs().mknod(&caller(), parent, name, &new).map_err(broken)?;
    volume.fs().forget(made.node, 1);
    Ok(())
}

pub(super) fn run(run: &Run<'_>, volume: &Volume, output: &mut Output) -> Result<()> {
    let (fs, who, clock) = (volume.fs(), caller(), SystemClock::new());
    let clones = run.args.clones;
    let source = fs.mkdir(&who, volume.directory(), b"source", 0o755).map_err(broken)?.node;
    let mut directory = source;
    for number in 0..run.args.files {
        if number % FILES_A_DIRECTORY == 0 {
            run.check()?;
            let name = Name::new(b'd', number / FILES_A_DIRECTORY);
            directory = fs.mkdir(&who, source, name.as_bytes(), 0o755).map_err(broken)?.node;
        }
        make(volume, directory, Name::new(b'f', number).as_bytes())?;
    }
    fs.index_flush(NodeId::ROOT).map_err(broken)?;
    let stats = || fs.index_stats().map(Option::unwrap_or_default).map_err(broken);
    let (before, rss) = (stats()?, memory::resident_bytes());
    run.bar.set_message("cloning");
    run.bar.set_length(clones);
    let start = clock.monotonic();
    for number in 0..clones {
        let name = Name::new(b'c', number);
        let cloned = fs.clone_dir(&who, source, volume.directory(), name.as_bytes());
        make(volume, cloned.map_err(broken)?.root, b"change")?;
        run.bar.inc(1);
        if number % STEP_EVERY == 0 {
            run.check()?;
        }
    }
    let cloning = clock.monotonic().saturating_sub(start);
    let (first_matches, first) = ask(volume, b"change")?;
    let (matches, again) = ask(volume, b"change")?;
    let after = stats()?;
    run.bar.finish_and_clear();
    if first_matches != clones || matches != clones {
        let message = format!("{first_matches} and {matches} of {clones} changes were found");
        return Err(Failure::new(FailureKind::Other, message));
    }
    let each = |after: u64, before: u64| {
        (after.saturating_sub(before) as f64 / clones as f64 * 10.0).round() / 10.0
    };
    let object = json!({
        "bench": "search-clones", "files": run.args.files, "clones": clones,
        "clone_and_change_us": cloning.as_secs_f64() * 1e6 / clones as f64,
        "first_query_seconds": first.as_secs_f64(),
        "second_query_seconds": again.as_secs_f64(),
        "index_bytes_before": before.disk_bytes,
        "index_bytes_a_clone": each(after.disk_bytes, before.disk_bytes),
        "index_memory_a_clone": each(
            after.base_bytes + after.cluster_bytes + after.delta_bytes,
            before.base_bytes + before.cluster_bytes + before.delta_bytes,
        ),
        "resident_bytes_a_clone": each(memory::resident_bytes(), rss),
        "bases": after.bases,
    });
    output.object(&object)?;
    output.line(&object.to_string())
}
