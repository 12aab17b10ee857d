//! `pando snapshot`: takes, lists, deletes and renames the snapshots of a directory, and lists and
//! deletes those of removed directories.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};
use wire::{Answer, Body, Call, Failure, FailureKind, KeptSnapshot, Snapshot, Sums};

use crate::cli::SnapshotVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

pub(crate) fn run(verb: &SnapshotVerb, output: &mut Output) -> Result<()> {
    match verb {
        SnapshotVerb::Create { dir, name } => {
            let name = name.as_bytes();
            check_name(name)?;
            let place = Place::to_change(dir)?;
            session::write_back(&place.volume, dir, output)?;
            let call = Call::SnapshotCreate { path: &place.inner, name };
            session::perform(&place, &call)?;
            say(output, "took", "created", &place, name)
        }
        SnapshotVerb::List { dir, removed: false, all: false } => {
            list(&Place::locate(dir)?, output)
        }
        SnapshotVerb::List { dir, removed, .. } => {
            list_volume(&Place::volume(dir)?, *removed, output)
        }
        SnapshotVerb::Delete { dir, number: Some(number), .. } => {
            let (volume, call) =
                (Place::volume_to_change(dir)?, Call::SnapshotDeleteNumber { number: *number });
            session::perform(&volume, &call)?;
            output.object(&json!({ "deleted": number }))?;
            output.line(&format!("deleted snapshot #{number}"))
        }
        SnapshotVerb::Delete { dir, name, .. } => {
            let name = name.as_ref().expect("invariant: clap wants a name or a number");
            let (place, name) = (Place::to_change(dir)?, name.as_bytes());
            let call = Call::SnapshotDelete { path: &place.inner, name };
            session::perform(&place, &call)?;
            say(output, "deleted", "deleted", &place, name)
        }
        SnapshotVerb::Rename { dir, name, new_name } => {
            let place = Place::to_change(dir)?;
            let (from, to) = (name.as_bytes(), new_name.as_bytes());
            check_name(to)?;
            let call = Call::SnapshotRename { path: &place.inner, from, to };
            session::perform(&place, &call)?;
            say(output, "renamed to", "renamed", &place, to)
        }
    }
}

/// Refuses an invalid snapshot name.
fn check_name(name: &[u8]) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") {
        let message = format!("'{}' is not a valid snapshot name", printable(name));
        return Err(Failure::new(FailureKind::Invalid, message));
    }
    Ok(())
}

fn say(output: &mut Output, verb: &str, key: &str, place: &Place, name: &[u8]) -> Result<()> {
    let mut object = json!({});
    output::put_bytes(&mut object, key, name);
    // The same key as in the output of `list`.
    output::put_bytes(&mut object, "name", name);
    output::put_bytes(&mut object, "path", place.typed());
    output.object(&object)?;
    let (name, path) = (printable(name), printable(place.typed()));
    output.line(&format!("{verb} snapshot {name} of {path}"))
}

fn list(place: &Place, output: &mut Output) -> Result<()> {
    let mut snapshots = Vec::new();
    session::call(place, &Call::SnapshotList { path: &place.inner }, &mut |body| {
        if let Body::Snapshots(more) = body {
            snapshots.extend(more);
        }
        Ok(())
    })?;
    for snapshot in &snapshots {
        output.object(&json(snapshot))?;
        let created = output::time_local(snapshot.created);
        output.line(&format!("{created}  {}", printable(&snapshot.name.0)))?;
    }
    Ok(())
}

/// Lists the snapshots of a volume.
fn list_volume(volume: &Path, removed: bool, output: &mut Output) -> Result<()> {
    let mut snapshots = Vec::new();
    session::call(volume, &Call::SnapshotsOfVolume { removed }, &mut |body| {
        if let Body::KeptSnapshots(more) = body {
            snapshots.extend(more);
        }
        Ok(())
    })?;
    for kept in &snapshots {
        // For a snapshot whose directory exists, `pando du` reports this.
        let holds = if removed { holds(volume, &kept.at.0)? } else { None };
        output.object(&kept_json(kept, holds.as_ref()))?;
        output.line(&kept_line(kept, holds.as_ref()))?;
    }
    Ok(())
}

/// How much a snapshot holds; `None` if it was deleted, or cannot be read.
fn holds(volume: &Path, path: &[u8]) -> Result<Option<Sums>> {
    match session::ask(volume, &Call::Totals { path, depth: None, top: None }) {
        Ok(Answer::Totals(totals)) => Ok(Some(totals.sums)),
        Ok(other) => Err(session::unexpected(&other)),
        Err(failure) if matches!(failure.kind, FailureKind::NotFound | FailureKind::Damaged) => {
            Ok(None)
        }
        Err(failure) => Err(failure),
    }
}

fn kept_line(kept: &KeptSnapshot, holds: Option<&Sums>) -> String {
    let number = format!("#{}", kept.snapshot.subvolume);
    let created = output::time_local(kept.snapshot.created);
    let name = printable(&kept.snapshot.name.0);
    let of = match (kept.path.as_ref().map(|path| printable(&path.0)), kept.removed) {
        (Some(path), false) => format!("of {path}"),
        (Some(path), true) => format!("of {path}, removed"),
        (None, true) => "of a removed directory, not known where".to_owned(),
        (None, false) => "of a directory that cannot be reached".to_owned(),
    };
    let holds = holds.map_or_else(String::new, |sums| {
        format!("  ({} files, {})", output::number(sums.files), output::size(sums.bytes))
    });
    format!("{number:<6} {created}  {name}  {of}{holds}")
}

/// A snapshot of a volume as an object.
fn kept_json(kept: &KeptSnapshot, holds: Option<&Sums>) -> Value {
    let mut object = json(&kept.snapshot);
    object["number"] = json!(kept.snapshot.subvolume);
    object["removed"] = json!(kept.removed);
    output::put_bytes(&mut object, "at", &kept.at.0);
    match &kept.path {
        Some(path) => output::put_bytes(&mut object, "path", &path.0),
        None => object["path"] = Value::Null,
    }
    if let Some(sums) = holds {
        object["files"] = json!(sums.files);
        object["bytes"] = json!(u64::try_from(sums.bytes).unwrap_or(u64::MAX));
    }
    object
}

/// A snapshot as an object.
pub(super) fn json(snapshot: &Snapshot) -> Value {
    let mut object = json!({
        "created": output::time_rfc3339(snapshot.created),
        "subvolume": snapshot.subvolume,
        "lineage": snapshot.lineage,
    });
    output::put_bytes(&mut object, "name", &snapshot.name.0);
    object
}
