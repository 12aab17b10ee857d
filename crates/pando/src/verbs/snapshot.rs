//! `pando snapshot`: takes, lists, deletes and renames the snapshots of a directory.

use std::os::unix::ffi::OsStrExt;

use serde_json::json;
use wire::{Body, Call, Snapshot};

use crate::cli::SnapshotVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

pub(crate) fn run(verb: &SnapshotVerb, output: &mut Output) -> Result<()> {
    match verb {
        SnapshotVerb::Create { dir, name } => {
            let (place, name) = (Place::locate(dir)?, name.as_bytes());
            session::write_back(&place.volume, dir, output)?;
            let call = Call::SnapshotCreate { path: &place.inner, name };
            session::perform(&place, &call)?;
            say(output, "took", "created", &place, name)
        }
        SnapshotVerb::List { dir } => list(&Place::locate(dir)?, output),
        SnapshotVerb::Delete { dir, name } => {
            let (place, name) = (Place::locate(dir)?, name.as_bytes());
            let call = Call::SnapshotDelete { path: &place.inner, name };
            session::perform(&place, &call)?;
            say(output, "deleted", "deleted", &place, name)
        }
        SnapshotVerb::Rename { dir, name, new_name } => {
            let place = Place::locate(dir)?;
            let (from, to) = (name.as_bytes(), new_name.as_bytes());
            let call = Call::SnapshotRename { path: &place.inner, from, to };
            session::perform(&place, &call)?;
            say(output, "renamed to", "renamed", &place, to)
        }
    }
}

fn say(output: &mut Output, verb: &str, key: &str, place: &Place, name: &[u8]) -> Result<()> {
    let mut object = json!({});
    output::put_bytes(&mut object, key, name);
    // Under the key that `list` has for it too.
    output::put_bytes(&mut object, "name", name);
    output::put_bytes(&mut object, "path", &place.inner);
    output.object(&object)?;
    let (name, path) = (printable(name), printable(&place.inner));
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

/// A snapshot as an object.
pub(super) fn json(snapshot: &Snapshot) -> serde_json::Value {
    let mut object = json!({
        "created": output::time_rfc3339(snapshot.created),
        "subvolume": snapshot.subvolume,
        "lineage": snapshot.lineage,
    });
    output::put_bytes(&mut object, "name", &snapshot.name.0);
    object
}
