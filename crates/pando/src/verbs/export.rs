//! `pando export`: copies a tree out of a volume, into a directory or an archive.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use indicatif::ProgressBar;
use serde_json::json;
use wire::{Failure, FailureKind};

use crate::cli::{ExportArgs, ExportFormat};
use crate::export::{self, Archive, Directory, Export, Outcome, Sink};
use crate::failure::Result;
use crate::far;
use crate::interrupt;
use crate::output::{self, Output};
use crate::place::{Last, VolumePath};
use crate::session::{self, Target};

/// Memory for files with several names, unless another is given; of a server less: it reserves
/// that until the export ends.
const MEMORY: u64 = 256 << 20;
const FAR_MEMORY: u64 = 64 << 20;

pub(crate) fn run(args: &ExportArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(&args.src, Last::Target)?;
    let streams = args.dst == Path::new("-");
    session::write_back(&place.volume, &args.src, output)?;
    let interrupted = interrupt::flag()?;
    let bar = output.progress("names");
    let is_far = far::is_url(place.volume.as_os_str());
    let memory = args.memory.unwrap_or(if is_far { FAR_MEMORY } else { MEMORY });
    let work = Work { place: &place, memory, bar: &bar, interrupted: &interrupted };
    let outcome = match args.format {
        ExportFormat::Dir if streams => {
            let message = "a directory is not written to standard output";
            return Err(Failure::new(FailureKind::Invalid, message)
                .hint("give --format tar for an archive, or ./- for that name"));
        }
        ExportFormat::Dir => work.run(output, &mut || Directory::create(&args.dst)),
        ExportFormat::Tar if streams => {
            export::refuse_terminal()?;
            work.run(output, &mut || Ok(Archive::standard_output()))
        }
        ExportFormat::Tar => work.run(output, &mut || Archive::create(&args.dst)),
    };
    bar.finish_and_clear();
    report(args, &outcome?, streams, output)
}

struct Work<'a> {
    place: &'a VolumePath,
    memory: u64,
    bar: &'a ProgressBar,
    interrupted: &'a AtomicBool,
}

impl Work<'_> {
    /// Runs the export. `make` is called once the daemon answers, and again if that daemon left
    /// before it began.
    fn run<S: Sink>(
        &self,
        output: &mut Output,
        make: &mut dyn FnMut() -> Result<S>,
    ) -> Result<Outcome> {
        let Work { place, memory, bar, interrupted } = *self;
        // A source that is not there must leave nothing behind.
        session::ask(place, &wire::Call::Stat { path: &place.inner })?;
        session::with(&place.volume, |connection| {
            let export = Export::new((make()?, memory), bar, interrupted, output);
            export.run(connection, &place.inner).map(|(outcome, _)| outcome)
        })
        .map_err(|failure| place.with_typed_path(failure))
    }
}

fn report(args: &ExportArgs, outcome: &Outcome, streams: bool, output: &mut Output) -> Result<()> {
    let object = json!({
        "source": args.src.to_string_lossy(),
        "destination": args.dst.to_string_lossy(),
        "exported": outcome.exported,
        "bytes": outcome.bytes,
        "failed": outcome.failed,
        "sockets": outcome.sockets,
        "split": outcome.split,
        "seconds": outcome.seconds,
    });
    let line = format!(
        "exported {}, {} in {:.1} s{}",
        output::count(outcome.exported, "name", "names"),
        output::size(outcome.bytes),
        outcome.seconds,
        match outcome.sockets {
            0 => String::new(),
            sockets => format!(", without {}", output::count(sockets, "socket", "sockets")),
        }
    );
    if streams {
        // Standard output is the archive.
        output.beside(&object, &line);
    } else {
        output.object(&object)?;
        output.line(&line)?;
    }
    if outcome.split > 0 {
        let names = output::count(outcome.split, "name", "names");
        let why = if outcome.gave_less {
            "the daemon had no more memory for this user; try again when other exports have ended"
        } else {
            "--memory allows more"
        };
        output.remark(&format!(
            "{names} of files with several names became files of their own: {why}"
        ));
    }
    match outcome.failed {
        0 => Ok(()),
        failed => {
            let was = output::count(failed, "name was", "names were");
            let message =
                format!("{was} left out, or {} incomplete", if failed == 1 { "is" } else { "are" });
            let failure = Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message);
            Err(failure.hint("remove the causes above, and export again"))
        }
    }
}
