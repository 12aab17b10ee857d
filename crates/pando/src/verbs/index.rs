//! `pando index`: maintains, in a volume, an index of an existing tree on any file system.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::json;
use wire::{Answer, Call, Failure, FailureKind, ScanInfo};

use crate::cli::{IndexArgs, Refresh};
use crate::failure::{self, Result};
use crate::index::{Follower, Index, Outcome};
use crate::interrupt;
use crate::output::{self, Output};
use crate::place::{VolumePath, refuse_path};
use crate::session;

/// Default maximum of reading threads: file systems gain little from more.
const THREADS_MAX: usize = 32;

pub(crate) fn run(args: &IndexArgs, output: &mut Output) -> Result<()> {
    if args.watch.is_some() && args.refresh == Refresh::Directories {
        let message =
            "--watch reads everything first: it cannot be combined with --refresh directories";
        return Err(Failure::new(FailureKind::Invalid, message)
            .hint("leave --refresh out, or refresh without --watch"));
    }
    let source = match &args.source {
        Some(source) => Some(canonical(source)?),
        None => None,
    };
    let volume = volume(&args.into, source.is_some())?;
    let info = info(&volume)?;
    let source = match (source, &info) {
        (Some(source), _) => source,
        (None, Some(info)) => PathBuf::from(OsStr::from_bytes(&info.source.0)),
        (None, None) => {
            let message = format!("{} is not an index yet", volume.display());
            return Err(Failure::new(FailureKind::Invalid, message)
                .hint("name the directory to index: pando index DIR --into VOLDIR"));
        }
    };
    let interrupted = interrupt::flag()?;
    let bar = output.progress("names");
    let mut index = Index {
        source: &source,
        volume: &volume,
        crosses_mounts: args.cross_mounts || info.as_ref().is_some_and(|info| info.crosses_mounts),
        keeps_xattrs: args.xattrs || info.as_ref().is_some_and(|info| info.keeps_xattrs),
        trusts_directories: args.refresh == Refresh::Directories,
        threads: threads(args.threads),
        bar: &bar,
        inotify: None,
        vanished: std::sync::Arc::default(),
    };
    let follower = match args.watch {
        Some(how) => {
            let (follower, inotify) = Follower::new(&index, how, output)?;
            index.inotify = inotify;
            Some(follower)
        }
        None => None,
    };
    let outcome =
        session::with(&volume, |mut connection| index.scan(&mut connection, &interrupted, output));
    bar.finish_and_clear();
    let outcome = outcome?;
    let reported = report(&source, &volume, &outcome, output);
    match follower {
        Some(mut follower) if !outcome.interrupted => {
            // What could not be read was reported, and does not keep the rest from being followed.
            output.flush()?;
            follower.run(&index, outcome.started, &interrupted, output)
        }
        _ => reported,
    }
}

fn canonical(source: &Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(source);
    let found = found.map_err(|error| failure::source("cannot read", source, &error))?;
    if found.is_dir() {
        Ok(found)
    } else {
        let message = format!("{} is not a directory", source.display());
        let failure = Failure::new(FailureKind::NotDirectory, message);
        Err(failure.hint("name the directory to index"))
    }
}

/// The volume of the index, created if it does not exist.
fn volume(directory: &Path, may_make: bool) -> Result<PathBuf> {
    refuse_path(directory, "index --into")?;
    if let Some(place) = VolumePath::split(directory) {
        return place.map(|place| place.volume);
    }
    if !crate::place::is_volume(directory) {
        if !may_make {
            let message = format!("{} is not a volume", directory.display());
            let hint = format!("`pando index DIR --into {}` makes one", directory.display());
            return Err(Failure::new(FailureKind::NotVolume, message).hint(hint));
        }
        super::format::make(directory, b".snapshots", &super::format::Plan::default())?;
    }
    std::fs::canonicalize(directory).map_err(|error| failure::io("open", directory, &error))
}

fn info(volume: &Path) -> Result<Option<ScanInfo>> {
    match session::ask(volume, &Call::ScanInfo)? {
        Answer::ScanInfo(info) => Ok(info),
        other => Err(session::unexpected(&other)),
    }
}

fn threads(asked: Option<usize>) -> usize {
    let found = || std::thread::available_parallelism().map_or(2, usize::from);
    asked.unwrap_or_else(|| found().clamp(2, THREADS_MAX))
}

fn report(source: &Path, volume: &Path, outcome: &Outcome, output: &mut Output) -> Result<()> {
    output.object(&json!({
        "source": source.to_string_lossy(),
        "volume": volume.to_string_lossy(),
        "names": outcome.names,
        "directories": outcome.directories,
        "directories_read": outcome.read,
        "changed": outcome.changed,
        "unread": outcome.unread,
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted,
    }))?;
    if outcome.interrupted {
        let message = "interrupted; the index is as it was before";
        return Err(Failure::new(FailureKind::Interrupted, message)
            .hint("run the same command again; it skips what was already written"));
    }
    let rate = outcome.names as f64 / outcome.seconds.max(1e-9);
    output.line(&format!(
        "{}, of them {}, {} of those read, in {:.2} s ({} names/s){}",
        output::count(outcome.names, "name", "names"),
        output::count(outcome.directories, "directory", "directories"),
        output::number(outcome.read),
        outcome.seconds,
        output::number(rate as u64),
        if outcome.changed { "" } else { "; nothing changed" },
    ))?;
    match outcome.unread {
        0 => Ok(()),
        unread => {
            let message = format!("{} could not be read", output::number(unread));
            Err(Failure::new(FailureKind::Other, message)
                .hint("the index holds everything else, and keeps the last known state of these"))
        }
    }
}
