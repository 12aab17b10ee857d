//! `pando import`: copies a tree into a volume, resumable.

use std::hash::Hasher;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use inode::NAME_BYTES_MAX;
use objects::SourcePrefix;
use serde_json::json;
use siphasher::sip::SipHasher13;
use wire::{Call, Failure, FailureKind};

use crate::cli::{Appear, ImportArgs, ImportFormat};
use crate::export::Export;
use crate::failure::{self, Result};
use crate::far;
use crate::import::{
    self, Archived, Bucket, Comparison, Import, Listed, Options, Outcome, Sent, Visible,
};
use crate::interrupt::{self, Input};
use crate::output::{self, Output};
use crate::place::{Last, VolumePath};
use crate::session::{self, Target};

/// How the name of a directory begins that is not complete.
const STAGED: &[u8] = b".pando-import.";

pub(crate) fn run(args: &ImportArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(&args.dst, Last::Link)?;
    let bucket = bucket(args)?;
    check_options(args, bucket.is_some())?;
    if args.format == ImportFormat::Dir && bucket.is_none() {
        refuse_volume(&args.src)?;
        refuse_stream(&args.src)?;
        import::refuse_itself(&args.src, &place)?;
        hint_archive(&args.src, output);
    }
    let staged = staged(args, bucket.is_some(), &place)?;
    let interrupted = interrupt::flag()?;
    let bar = output.progress("names");
    let destination = match &staged {
        Some(staged) => (staged.path.as_slice(), Visible::Whole(&staged.name)),
        None => (place.inner.as_slice(), Visible::Gradually),
    };
    let (on_conflict, verify) = (args.on_conflict, args.verify);
    let memory = usize::try_from(args.memory).unwrap_or(usize::MAX);
    let outcome = match (args.format, &bucket) {
        (ImportFormat::Dir, Some(source)) => session::with(&place.volume, |connection| {
            let bucket = Bucket {
                source,
                destination,
                on_conflict,
                verify,
                keep_going: args.keep_going,
                memory,
                bar: &bar,
                interrupted: &interrupted,
            };
            bucket.run(connection, output)
        }),
        (ImportFormat::Dir, None) => {
            let (source, keep_going, bar) = (args.src.as_path(), args.keep_going, &bar);
            let import =
                Import { source, destination, on_conflict, verify, keep_going, memory, bar };
            session::with(&place.volume, |connection| import.run(connection, &interrupted, output))
        }
        (ImportFormat::Tar, _) => {
            let (numeric_owner, keep_going) = (args.numeric_owner, args.keep_going);
            let options = Options { on_conflict, numeric_owner, verify, keep_going, memory };
            let mut input = Some(opened(&args.src, &interrupted)?);
            session::with(&place.volume, |connection| {
                let input = input.take().ok_or_else(read_before)?;
                let (bar, interrupted) = (&bar, &*interrupted);
                let archive = Archived { input, destination, options, bar, interrupted };
                archive.run(connection, output)
            })
        }
        (ImportFormat::List, _) => {
            let mut input = Some(opened(&args.src, &interrupted)?);
            session::with(&place.volume, |connection| {
                let list = Listed {
                    input: input.take().ok_or_else(read_before)?,
                    contents: args.contents.as_deref(),
                    strip: args.strip.as_deref().unwrap_or_default().as_bytes(),
                    keep_going: args.keep_going,
                    destination,
                    on_conflict,
                    verify,
                    memory,
                    bar: &bar,
                    interrupted: &interrupted,
                };
                list.run(connection, output)
            })
        }
    };
    bar.finish_and_clear();
    let mut outcome = outcome.map_err(|failure| match &staged {
        // The input ended with an error, because it was interrupted.
        _ if interrupted.load(Ordering::Relaxed) => was_interrupted(),
        Some(staged) => staged.with_staged(place.with_typed_path(failure), &place),
        None => place.with_typed_path(failure),
    })?;
    let sent = outcome.sent.take().filter(|_| !outcome.interrupted);
    let verified =
        sent.map(|sent| verified((sent, args.memory), &place, &interrupted, output)).transpose()?;
    report(args, &outcome, verified, output)
}

/// Reads back what was imported, and compares it: how many names are right, and how many are not.
fn verified(
    (sent, memory): (Sent, u64),
    place: &VolumePath,
    interrupted: &AtomicBool,
    output: &mut Output,
) -> Result<(u64, u64)> {
    let bar = output.progress("names verified");
    let mut sent = Some(sent);
    let compared = session::with(&place.volume, |connection| {
        let comparison = Comparison::new(sent.take().ok_or_else(read_before)?);
        Export::new((comparison, memory), &bar, interrupted, output).run(connection, &place.inner)
    });
    bar.finish_and_clear();
    let (outcome, comparison) = compared.map_err(|failure| place.with_typed_path(failure))?;
    Ok((comparison.verified, outcome.failed))
}

/// Refuses an option that this format has no use for.
fn check_options(args: &ImportArgs, is_bucket: bool) -> Result<()> {
    let list = args.contents.is_some() || args.strip.is_some();
    let (option, format) = match args.format {
        ImportFormat::Dir
            if args.keep_going && args.appear != Some(Appear::Whole) && !is_bucket =>
        {
            ("--keep-going", "tar or list, of objects, or with --appear whole")
        }
        ImportFormat::List | ImportFormat::Dir if args.numeric_owner => ("--numeric-owner", "tar"),
        ImportFormat::Dir | ImportFormat::Tar if list => ("--contents and --strip", "list"),
        _ => return Ok(()),
    };
    let message = format!("{option}: only with --format {format}");
    let hint = format!("leave the option out, or add --format {format}");
    Err(Failure::new(FailureKind::Invalid, message).hint(hint))
}

/// A directory that gets its name when it is complete.
struct Staged {
    /// Its path in the volume until then.
    path: Vec<u8>,
    /// Its name.
    name: Vec<u8>,
}

impl Staged {
    fn at(path: &[u8]) -> Option<Staged> {
        let end = path.iter().rposition(|&byte| byte != b'/')? + 1;
        let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
        let name = path[start..end].to_vec();
        let mut hidden = [STAGED, &name].concat();
        if hidden.len() > NAME_BYTES_MAX {
            let mut hasher = SipHasher13::new();
            hasher.write(&name);
            hidden.truncate(NAME_BYTES_MAX - 17);
            hidden.extend(format!(".{:016x}", hasher.finish()).bytes());
        }
        Some(Staged { path: [&path[..start], &hidden].concat(), name })
    }

    /// What is left of it after a failure.
    fn with_staged(&self, failure: Failure, place: &VolumePath) -> Failure {
        if failure.kind == FailureKind::Exists || !failure.hint.is_empty() {
            return failure;
        }
        let left = output::printable(&place.shown(&self.path));
        failure.hint(format!(
            "nothing is visible; {left} may hold a part: the same command continues there, and \
             `pando rmr` removes it"
        ))
    }
}

/// Whether the import becomes visible at its end.
fn staged(args: &ImportArgs, is_bucket: bool, place: &VolumePath) -> Result<Option<Staged>> {
    let wanted = args.appear.unwrap_or(match args.format {
        ImportFormat::Dir => Appear::Gradually,
        _ => Appear::Whole,
    });
    if wanted == Appear::Gradually {
        return Ok(None);
    }
    let exists = |what: &str| {
        let failure = Failure::new(FailureKind::Exists, what).at(place.typed());
        Err(failure.hint("choose another name, or give --appear gradually"))
    };
    if args.format == ImportFormat::Dir && !is_bucket && !args.src.is_dir() {
        let message = "--appear whole requires a source that is a directory";
        let failure = Failure::new(FailureKind::Invalid, message);
        return Err(failure
            .at(args.src.as_os_str().as_bytes())
            .hint("leave --appear out: a file is complete before it has its name"));
    }
    match session::ask(place, &Call::Stat { path: &place.inner }) {
        Err(failure) if failure.kind == FailureKind::NotFound => Ok(Staged::at(&place.inner)),
        Err(failure) => Err(failure),
        Ok(_) if args.appear.is_some() => exists("it exists, and would not appear as a whole"),
        Ok(_) => Ok(None),
    }
}

/// The objects that a URL names, unless a file of the operating system has that name.
fn bucket(args: &ImportArgs) -> Result<Option<SourcePrefix>> {
    let text = args.src.to_string_lossy();
    if !text.starts_with("s3:") || args.src.symlink_metadata().is_ok() {
        return Ok(None);
    }
    if args.format != ImportFormat::Dir {
        let message = "archives and lists are read from files, and not from an object store";
        let failure = Failure::new(FailureKind::Invalid, message);
        let failure = failure.at(args.src.as_os_str().as_bytes());
        return Err(failure.hint("pipe the object, and name the source `-`"));
    }
    let parsed = SourcePrefix::parse(&text).map_err(|error| {
        Failure::new(FailureKind::Invalid, error.to_string()).hint("as in s3://BUCKET/PREFIX")
    });
    parsed.map(Some)
}

/// The bytes of an archive or a list.
fn opened(source: &Path, interrupted: &Arc<AtomicBool>) -> Result<Box<dyn Read>> {
    let input = if source == Path::new("-") {
        Input::standard(interrupted)
    } else {
        Input::open(source, interrupted)
    };
    let input = input.map_err(|error| failure::source("open", source, &error))?;
    let is_directory = input.file().metadata().is_ok_and(|found| found.is_dir());
    if is_directory {
        let failure = Failure::new(FailureKind::IsDirectory, "this is a directory");
        let failure = failure.at(source.as_os_str().as_bytes());
        return Err(failure.hint("without --format a directory is imported"));
    }
    Ok(Box::new(input))
}

fn was_interrupted() -> Failure {
    Failure::new(FailureKind::Interrupted, "interrupted; the imported files stay")
        .hint("run the same command again to continue")
}

fn read_before() -> Failure {
    Failure::new(FailureKind::Leaving, "the daemon of the volume ended").hint("run it again")
}

/// Refuses standard input where a directory or file is expected.
fn refuse_stream(source: &Path) -> Result<()> {
    if source != Path::new("-") || source.symlink_metadata().is_ok() {
        return Ok(());
    }
    let message = "what standard input holds is not known";
    Err(Failure::new(FailureKind::Invalid, message).hint("give --format tar"))
}

/// Remarks that an archive is imported as a file.
fn hint_archive(source: &Path, output: &mut Output) {
    let name = source.file_name().unwrap_or_default().as_bytes();
    let is_archive = name.windows(4).any(|part| part == b".tar")
        || [&b".tgz"[..], b".tzst"].iter().any(|end| name.ends_with(end));
    if is_archive && source.is_file() {
        output.remark("the archive is imported as a file; --format tar imports what is in it");
    }
}

/// Refuses `VOLDIR:/path` as a source, unless a file of the operating system has that name.
fn refuse_volume(source: &Path) -> Result<()> {
    let is_of_volume = VolumePath::split(source).is_some() || far::is_url(source.as_os_str());
    if !is_of_volume || source.symlink_metadata().is_ok() {
        return Ok(());
    }
    let message = "`import` reads directories of the system, and not out of a volume";
    let failure = Failure::new(FailureKind::Invalid, message).at(source.as_os_str().as_bytes());
    Err(failure.hint("mount the volume, and name the directory below its mount point"))
}

fn report(
    args: &ImportArgs,
    outcome: &Outcome,
    verified: Option<(u64, u64)>,
    output: &mut Output,
) -> Result<()> {
    output.object(&json!({
        "source": args.src.to_string_lossy(),
        "destination": args.dst.to_string_lossy(),
        "imported": outcome.imported,
        "unchanged": outcome.unchanged,
        "kept": outcome.kept,
        "bytes": outcome.bytes,
        "failed": outcome.failed,
        "verified": verified.map(|(verified, _)| verified),
        "differ": verified.map(|(_, differ)| differ),
        "seconds": outcome.seconds,
        "interrupted": outcome.interrupted,
    }))?;
    let rate = outcome.imported as f64 / outcome.seconds.max(1e-9);
    let others = |number: u64, what: &str| match number {
        0 => String::new(),
        number => format!(", {} {what}", output::number(number)),
    };
    output.line(&format!(
        "imported {}, {}{} in {:.1} s ({} names/s){}{}",
        output::count(outcome.imported, "name", "names"),
        output::size(outcome.bytes),
        if outcome.failed > 0 { " sent" } else { "" },
        outcome.seconds,
        output::number(rate as u64),
        others(outcome.unchanged, "were there already"),
        others(outcome.kept, "differ and were kept"),
    ))?;
    if outcome.interrupted {
        return Err(was_interrupted());
    }
    if let Some((verified, differ)) = verified {
        output.line(&format!("verified {}", output::count(verified, "name", "names")))?;
        if differ > 0 {
            let message = "what was imported is not what is read back";
            let hint = "if no other process changed it, run `pando fsck`";
            return Err(Failure::new(FailureKind::Other, message).hint(hint));
        }
    }
    match outcome.failed {
        0 => Ok(()),
        failed => {
            let was = output::count(failed, "name was", "names were");
            let message = format!("{was} not imported");
            let failure = Failure::new(outcome.worst.unwrap_or(FailureKind::Other), message);
            Err(failure.hint("remove the causes above, and run the same import again"))
        }
    }
}
