//! `pando import`: copies a tree into a volume, resumable.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::ImportArgs;
use crate::failure::Result;
use crate::import::{self, Import, Outcome};
use crate::interrupt;
use crate::output::{self, Output};
use crate::place::Place;
use crate::session::{self, Target};

pub(crate) fn run(args: &ImportArgs, output: &mut Output) -> Result<()> {
    let place = Place::to_change(&args.dst)?;
    refuse_volume(&args.src)?;
    import::refuse_itself(&args.src, &place)?;
    let interrupted = interrupt::flag()?;
    let bar = output.progress("names");
    let import = Import { source: &args.src, destination: &place.inner, bar: &bar };
    let outcome =
        session::with(&place.volume, |connection| import.run(connection, &interrupted, output));
    bar.finish_and_clear();
    report(args, &outcome.map_err(|failure| place.told(failure))?, output)
}

/// Refuses `VOLDIR:/path` as a source, unless a file of the operating system has that name.
fn refuse_volume(source: &Path) -> Result<()> {
    if Place::split(source).is_none() || source.symlink_metadata().is_ok() {
        return Ok(());
    }
    let message = "`import` reads directories of the system, and not out of a volume";
    let failure = Failure::new(FailureKind::Invalid, message).at(source.as_os_str().as_bytes());
    Err(failure.hint("mount the volume, and name the directory below its mount point"))
}

fn report(args: &ImportArgs, outcome: &Outcome, output: &mut Output) -> Result<()> {
    output.object(&json!({
        "source": args.src.to_string_lossy(),
        "destination": args.dst.to_string_lossy(),
        "imported": outcome.imported,
        "unchanged": outcome.unchanged,
        "bytes": outcome.bytes,
        "failed": outcome.failed,
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted,
    }))?;
    let rate = outcome.imported as f64 / outcome.seconds.max(1e-9);
    output.line(&format!(
        "imported {}, {}{} in {:.1} s ({} names/s){}",
        output::count(outcome.imported, "name", "names"),
        output::size(outcome.bytes),
        if outcome.failed > 0 { " sent" } else { "" },
        outcome.seconds,
        output::number(rate as u64),
        if outcome.unchanged > 0 {
            format!(", {} were there already", output::number(outcome.unchanged))
        } else {
            String::new()
        }
    ))?;
    if outcome.interrupted {
        return Err(Failure::new(FailureKind::Interrupted, "interrupted; what was imported stays")
            .hint("run the same command again to continue"));
    }
    match outcome.failed {
        0 => Ok(()),
        failed => {
            let was = output::count(failed, "name was", "names were");
            let message = format!("{was} not imported");
            Err(Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message))
        }
    }
}
