//! `pando trash` and `pando restore`: what was removed, kept and brought back.

use device::{Clock, SystemClock};
use jiff::tz::TimeZone;
use serde_json::json;
use wire::{Answer, Body, Call, Failure, FailureKind, Kind, Removed};

use crate::cli::{RestoreArgs, TrashVerb};
use crate::failure::Result;
use crate::output::{self, Output, printable, size};
use crate::place::{Place, both};
use crate::session;

pub(crate) fn run(verb: &TrashVerb, output: &mut Output) -> Result<()> {
    match verb {
        TrashVerb::On { dir, keep } => {
            let place = Place::to_change(dir)?;
            let call = Call::TrashSet { path: &place.inner, keep_seconds: Some(*keep) };
            session::perform(&place.volume, &call)?;
            let mut object = json!({ "keep_seconds": keep });
            output::put_bytes(&mut object, "trash", &place.inner);
            output.object(&object)?;
            let kept = days(*keep);
            output.line(&format!("what is removed in {} is kept {kept}", printable(&place.inner)))
        }
        TrashVerb::Off { dir } => {
            let place = Place::to_change(dir)?;
            let call = Call::TrashSet { path: &place.inner, keep_seconds: None };
            session::perform(&place.volume, &call)?;
            let mut object = json!({ "keep_seconds": null });
            output::put_bytes(&mut object, "trash", &place.inner);
            output.object(&object)?;
            output.line(&format!("{} has no trash", printable(&place.inner)))
        }
        TrashVerb::List { path } => list(&Place::locate(path)?, output),
        TrashVerb::Empty { dir } => {
            let place = Place::to_change(dir)?;
            let answer = session::ask(&place.volume, &Call::TrashEmpty { path: &place.inner })?;
            let Answer::Emptied(gone) = answer else { return Err(session::unexpected(&answer)) };
            output.object(&json!({ "emptied": gone }))?;
            output.line(&format!("deleted the trash of {gone} hours"))
        }
    }
}

/// Brings something back.
pub(crate) fn restore(args: &RestoreArgs, output: &mut Output) -> Result<()> {
    if args.list {
        return list(&Place::locate(&args.path)?, output);
    }
    let (place, to) = match &args.to {
        None => (Place::to_change(&args.path)?, None),
        Some(to) => {
            let (place, to) = both(&args.path, to)?;
            (place, Some(to.inner))
        }
    };
    let (at, since) = (time(args.at.as_deref())?, time(args.since.as_deref())?);
    let call = Call::Restore { path: &place.inner, to: to.as_deref(), at, since };
    let answer = session::ask(&place.volume, &call)?;
    let Answer::Restored { names, left } = answer else {
        return Err(session::unexpected(&answer));
    };
    let mut object = json!({ "names": names, "left": left });
    output::put_bytes(&mut object, "restored", &place.inner);
    output.object(&object)?;
    let path = printable(&place.inner);
    if left == 0 {
        return output.line(&format!("restored {path}"));
    }
    output.line(&format!("restored {names} names of {path}"))?;
    let message =
        format!("{left} names stay in the trash: there is something else in their places");
    Err(Failure::new(FailureKind::Exists, message)
        .hint("move that away and restore again, or restore to another place with --to"))
}

fn list(place: &Place, output: &mut Output) -> Result<()> {
    let mut removed = Vec::new();
    let answer =
        session::call(&place.volume, &Call::TrashList { path: &place.inner }, &mut |body| {
            if let Body::Removed(more) = body {
                removed.extend(more);
            }
            Ok(())
        })?;
    let Answer::Trash(trash) = answer else { return Err(session::unexpected(&answer)) };
    for one in &removed {
        show(one, output)?;
    }
    if removed.is_empty() && !output.is_json() {
        output
            .line(&format!("nothing is in the trash, which keeps {}", days(trash.keep_seconds)))?;
    }
    Ok(())
}

fn show(removed: &Removed, output: &mut Output) -> Result<()> {
    let Removed { path, removed, attr } = removed;
    let directory = attr.kind == Kind::Directory;
    let mut object = json!({
        "removed": output::time_rfc3339(*removed),
        "directory": directory,
        "size": attr.size,
        "uid": attr.uid,
        "gid": attr.gid,
        "mode": format!("{:04o}", attr.mode),
    });
    output::put_bytes(&mut object, "path", &path.0);
    output.object(&object)?;
    let (when, name) = (output::time_local(*removed), printable(&path.0));
    let (size, slash) = if directory { ("-".to_owned(), "/") } else { (size(attr.size), "") };
    output.line(&format!("{when}  {size:>10}  {name}{slash}"))
}

/// A point in time that was asked for.
fn time(text: Option<&str>) -> Result<Option<i64>> {
    let Some(text) = text else { return Ok(None) };
    let now = SystemClock::new().now().0;
    match crate::find::parse_time(text, now, &TimeZone::system()) {
        Some(time) => Ok(Some(time)),
        None => Err(Failure::new(FailureKind::Invalid, format!("'{text}' is no time"))
            .hint("say 2026-11-22, '2026-11-22 13:05', '2 hours ago', or @SECONDS")),
    }
}

/// A time to keep, in the largest unit that divides it.
fn days(seconds: u64) -> String {
    for (unit, name) in [(86_400, "days"), (3600, "hours"), (60, "minutes")] {
        if seconds >= unit && seconds.is_multiple_of(unit) {
            return format!("for {} {name}", seconds / unit);
        }
    }
    format!("for {seconds} seconds")
}
