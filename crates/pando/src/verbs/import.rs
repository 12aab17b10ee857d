//! `pando import`: copies a tree into a volume, resumable.

use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::ImportArgs;
use crate::failure::Result;
use crate::import::{self, Import, Outcome};
use crate::output::{self, Output};
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &ImportArgs, output: &mut Output) -> Result<()> {
    let place = Place::to_change(&args.dst)?;
    let interrupted = import::interrupt_flag()?;
    let bar = output.progress("files");
    let import = Import { source: &args.src, destination: &place.inner, bar: &bar };
    let outcome =
        session::with(&place.volume, |connection| import.run(connection, &interrupted, output));
    bar.finish_and_clear();
    report(args, &outcome?, output)
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
        "imported {} files, {} in {:.1} s ({} files/s){}",
        output::number(outcome.imported),
        output::size(outcome.bytes),
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
            .hint("run the same command again to go on"));
    }
    match outcome.failed {
        0 => Ok(()),
        failed => {
            let message = format!("{} files were not imported", output::number(failed));
            Err(Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message))
        }
    }
}
