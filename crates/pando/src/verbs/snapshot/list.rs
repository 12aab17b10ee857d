//! `pando snapshot list`.

use std::path::Path;

use serde_json::{Value, json};
use wire::{Answer, Body, Bytes, Call, FailureKind, KeptSnapshot, Snapshot, Sums};

use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::VolumePath;
use crate::session;

pub(super) fn list(place: &VolumePath, output: &mut Output) -> Result<()> {
    for snapshot in &listed(place)? {
        output.object(&json(snapshot))?;
        let created = output::time_local(snapshot.created);
        let held = match snapshot.holds.len() {
            0 => String::new(),
            _ => format!("  (held by {})", names_of(snapshot)),
        };
        output.line(&format!("{created}  {}{held}", printable(&snapshot.name.0)))?;
    }
    Ok(())
}

/// The snapshots of a directory, by name.
pub(super) fn listed(place: &VolumePath) -> Result<Vec<Snapshot>> {
    let mut snapshots = Vec::new();
    session::call(place, &Call::SnapshotList { path: &place.inner }, &mut |body| {
        if let Body::Snapshots(more) = body {
            snapshots.extend(more);
        }
        Ok(())
    })?;
    Ok(snapshots)
}

/// The names of a snapshot's holds.
pub(super) fn names_of(snapshot: &Snapshot) -> String {
    let names: Vec<String> = snapshot.holds.iter().map(|hold| printable(&hold.name.0)).collect();
    names.join(", ")
}

/// Lists the snapshots of a volume, with paths in the style of a place in it.
pub(super) fn list_volume(place: &VolumePath, removed: bool, output: &mut Output) -> Result<()> {
    let mut print = |mut kept: KeptSnapshot| {
        // For a snapshot whose directory exists, `pando du` reports this.
        let holds = if removed { holds(&place.volume, &kept.at.0)? } else { None };
        kept.at = Bytes(place.shown(&kept.at.0));
        kept.path = kept.path.map(|path| Bytes(place.shown(&path.0)));
        output.object(&kept_json(&kept, holds.as_ref()))?;
        output.line(&kept_line(&kept, holds.as_ref()))
    };
    // There may be any number, with long paths.
    let call = Call::SnapshotsOfVolume { removed };
    session::call(&place.volume, &call, &mut |body| match body {
        Body::KeptSnapshots(more) => more.into_iter().try_for_each(&mut print),
        _ => Ok(()),
    })
    .map(drop)
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
        (None, true) => {
            "of a removed directory, at a path that is not known or too long".to_owned()
        }
        (None, false) => {
            "of a directory that cannot be reached, or whose path is too long".to_owned()
        }
    };
    let holds = holds.map_or_else(String::new, |sums| {
        let files = output::count(sums.files, "file", "files");
        format!("  ({files}, {})", output::size(sums.bytes))
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
pub(in crate::verbs) fn json(snapshot: &Snapshot) -> Value {
    let mut object = json!({
        "created": output::time_rfc3339(snapshot.created),
        "subvolume": snapshot.subvolume,
        "lineage": snapshot.lineage,
    });
    output::put_bytes(&mut object, "name", &snapshot.name.0);
    let hold = |hold: &wire::Hold| {
        let mut held = json!({ "uid": hold.uid, "since": output::time_rfc3339(hold.since) });
        output::put_bytes(&mut held, "name", &hold.name.0);
        held
    };
    object["holds"] = snapshot.holds.iter().map(hold).collect();
    object
}
