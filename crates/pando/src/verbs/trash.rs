//! `pando trash` and `pando restore`: keeps and restores removed files.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use device::{Clock, SystemClock};
use jiff::tz::TimeZone;
use serde_json::json;
use wire::{Answer, Body, Call, Failure, FailureKind, Kind, Removed, Trash};

use crate::cli::{RestoreArgs, TrashVerb};
use crate::failure::Result;
use crate::output::{self, Output, printable, seconds_up, size};
use crate::place::{Last, VolumePath, both};
use crate::session;

pub(crate) fn run(verb: &TrashVerb, output: &mut Output) -> Result<()> {
    match verb {
        TrashVerb::On { dir, keep } => {
            let place = VolumePath::to_change(dir, Last::Target)?;
            let keep_seconds = keep.map(seconds_up);
            let call = Call::TrashSet { path: &place.inner, on: true, keep_seconds };
            let answer = session::ask(&place, &call)?;
            let Answer::Trash(Trash { keep_seconds: keep, .. }) = answer else {
                return Err(session::unexpected(&answer));
            };
            let mut object = json!({ "keep_seconds": keep });
            output::put_bytes(&mut object, "trash", place.typed());
            output.object(&object)?;
            let kept = days(keep);
            output.line(&format!("what is removed in {} is kept {kept}", printable(place.typed())))
        }
        TrashVerb::Off { dir } => {
            let place = VolumePath::to_change(dir, Last::Target)?;
            let call = Call::TrashSet { path: &place.inner, on: false, keep_seconds: None };
            session::perform(&place, &call)?;
            let mut object = json!({ "keep_seconds": null });
            output::put_bytes(&mut object, "trash", place.typed());
            output.object(&object)?;
            output.line(&format!("{} has no trash", printable(place.typed())))
        }
        TrashVerb::List { path } => list(&VolumePath::locate(path, Last::Link)?, output),
        TrashVerb::Empty { dir } => {
            let place = VolumePath::to_change(dir, Last::Target)?;
            let answer = session::ask(&place, &Call::TrashEmpty { path: &place.inner })?;
            let Answer::Emptied(gone) = answer else { return Err(session::unexpected(&answer)) };
            output.object(&json!({ "emptied": gone }))?;
            output.line(&format!("deleted the trash of {}", output::count(gone, "hour", "hours")))
        }
    }
}

/// Restores a removed file or tree.
pub(crate) fn restore(args: &RestoreArgs, output: &mut Output) -> Result<()> {
    if args.list {
        return list(&VolumePath::locate(&args.path, Last::Link)?, output);
    }
    let (place, to) = match &args.to {
        None => (VolumePath::to_change(&args.path, Last::Name)?, None),
        Some(to) => {
            let (place, to) = both(
                VolumePath::to_change(&args.path, Last::Name)?,
                VolumePath::to_change(to, Last::New)?,
            )?;
            (place, Some(to))
        }
    };
    if let Some(snapshot) = &args.from {
        return from_snapshot(snapshot, &place, to.as_ref(), output);
    }
    let (at, since) = (time(args.at.as_deref())?, time(args.since.as_deref())?);
    let call =
        Call::Restore { path: &place.inner, to: to.as_ref().map(|to| &to.inner[..]), at, since };
    let answer = match &to {
        Some(to) => session::ask(&[&place, to], &call),
        None => session::ask(&place, &call),
    };
    let (names, left) = match answer {
        Ok(Answer::Restored { names, left }) => (names, left),
        Ok(other) => return Err(session::unexpected(&other)),
        Err(failure) => return Err(explain(failure, &place, at)),
    };
    let mut object = json!({ "names": names, "left": left });
    output::put_bytes(&mut object, "restored", place.typed());
    if let Some(to) = &to {
        output::put_bytes(&mut object, "to", to.typed());
    }
    output.object(&object)?;
    let path = printable(place.typed());
    if left == 0 {
        let to = to.map_or_else(String::new, |to| format!(" to {}", printable(to.typed())));
        return output.line(&format!("restored {path}{to}"));
    }
    output.line(&format!("restored {} of {path}", output::count(names, "name", "names")))?;
    let message = output::count(
        left,
        "name stays in the trash, because its path is taken",
        "names stay in the trash, because their paths are taken",
    );
    Err(Failure::new(FailureKind::Exists, message)
        .hint("move that file and restore again, or restore to another path with --to"))
}

/// Restores out of a snapshot.
fn from_snapshot(
    snapshot: &OsStr,
    place: &VolumePath,
    to: Option<&VolumePath>,
    output: &mut Output,
) -> Result<()> {
    let snapshot = snapshot.as_bytes();
    let inner = to.map(|to| &to.inner[..]);
    let call = Call::RestoreFrom { snapshot, path: &place.inner, to: inner };
    match to {
        Some(to) => session::perform(&[place, to], &call)?,
        None => session::perform(place, &call)?,
    }
    let mut object = json!({});
    output::put_bytes(&mut object, "restored", place.typed());
    output::put_bytes(&mut object, "from", snapshot);
    if let Some(to) = to {
        output::put_bytes(&mut object, "to", to.typed());
    }
    output.object(&object)?;
    let to = to.map_or_else(String::new, |to| format!(" to {}", printable(to.typed())));
    output.line(&format!("restored {}{to}", printable(place.typed())))
}

/// What is in the trash of a place, newest first, and why that is not all there is to report.
fn listed(place: &VolumePath) -> Result<(Vec<Removed>, Trash, Option<Failure>)> {
    let (mut removed, mut skipped) = (Vec::new(), None);
    let answer = session::call(place, &Call::TrashList { path: &place.inner }, &mut |body| {
        match body {
            Body::Removed(more) => removed.extend(more),
            Body::Skipped(failure) => skipped = Some(failure),
            _ => {}
        }
        Ok(())
    })?;
    match answer {
        Answer::Trash(trash) => Ok((removed, trash, skipped)),
        other => Err(session::unexpected(&other)),
    }
}

/// If nothing had been removed at a time, explains that it was removed later.
fn explain(failure: Failure, place: &VolumePath, at: Option<i64>) -> Failure {
    let Some(at) = at.filter(|_| failure.kind == FailureKind::NotFound) else { return failure };
    let names = |path: &[u8]| -> Vec<Vec<u8>> {
        let names = path.split(|&byte| byte == b'/');
        names.filter(|name| !matches!(*name, b"" | b".")).map(<[u8]>::to_vec).collect()
    };
    let own = names(&place.inner);
    let Ok((removed, ..)) = listed(place) else { return failure };
    let later = removed.iter().filter(|one| one.removed > at && names(&one.path.0) == own);
    let Some(first) = later.map(|one| one.removed).min() else { return failure };
    let (removed, at) = (output::time_local(first), output::time_local(at));
    let message = format!("it was removed at {removed}, which is after {at}");
    let typed = place.typed();
    Failure::new(FailureKind::NotFound, message).at(typed).hint(format!(
        "`pando restore --list {}` lists what was removed, and when",
        printable(typed)
    ))
}

fn list(place: &VolumePath, output: &mut Output) -> Result<()> {
    let (removed, trash, skipped) = listed(place)?;
    for one in &removed {
        show(place, one, output)?;
    }
    if removed.is_empty() {
        output
            .line(&format!("nothing is in the trash, which keeps {}", days(trash.keep_seconds)))?;
    }
    output.flush()?;
    for path in &trash.below {
        let path = printable(&place.shown(&path.0));
        output.remark(&format!("{path} has a trash of its own: `pando trash list {path}`"));
    }
    // The list is whole: only what is below is not known.
    if let Some(failure) = skipped {
        output.failure(&failure);
    }
    Ok(())
}

fn show(place: &VolumePath, removed: &Removed, output: &mut Output) -> Result<()> {
    let Removed { path, removed, attr } = removed;
    // In the form that `restore` takes.
    let path = place.shown(&path.0);
    let directory = attr.kind == Kind::Directory;
    let mut object = json!({
        "removed": output::time_rfc3339(*removed),
        "directory": directory,
        "size": attr.size,
        "uid": attr.uid,
        "gid": attr.gid,
        "mode": format!("{:04o}", attr.mode),
    });
    output::put_bytes(&mut object, "path", &path);
    output.object(&object)?;
    let (when, name) = (output::time_local(*removed), printable(&path));
    let (size, slash) = if directory { ("-".to_owned(), "/") } else { (size(attr.size), "") };
    output.line(&format!("{when}  {size:>10}  {name}{slash}"))
}

/// A point in time that the user gave.
fn time(text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let now = SystemClock::new().now().0;
    match crate::find::parse_time(text, now, &TimeZone::system()) {
        Some(time) => Ok(Some(time)),
        None => Err(Failure::new(FailureKind::Invalid, format!("'{text}' is not a time"))
            .hint("use a time such as 2026-11-22, '2026-11-22 13:05', '2 hours ago' or @SECONDS")),
    }
}

/// A retention time, in the largest unit that divides it.
fn days(seconds: u64) -> String {
    let units = [(86_400, "day", "days"), (3600, "hour", "hours"), (60, "minute", "minutes")];
    for (unit, one, many) in units {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            return format!("for {}", output::count(seconds / unit, one, many));
        }
    }
    format!("for {}", output::count(seconds, "second", "seconds"))
}
