//! `pando snapshot`: takes, lists, deletes and renames the snapshots of a directory.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::json;
use wire::{Body, Call, KeptSnapshot, Snapshot, SnapshotOf};

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
            session::perform(&place.volume, &call)?;
            say(output, "took", "created", &place, name)
        }
        SnapshotVerb::List { dir, all: false } => list(&Place::locate(dir)?, output),
        SnapshotVerb::List { dir, all: true } => list_all(&Place::volume(dir)?, output),
        SnapshotVerb::Delete { dir, number: Some(number), .. } => {
            let call = Call::SnapshotDeleteKept { snapshot: *number };
            session::perform(&Place::volume(dir)?, &call)?;
            output.object(&json!({ "deleted_subvolume": number }))?;
            output.line(&format!("deleted snapshot #{number}"))
        }
        SnapshotVerb::Delete { dir, name, number: None } => {
            let place = Place::locate(dir)?;
            let name = name.as_deref().unwrap_or_default().as_bytes();
            let call = Call::SnapshotDelete { path: &place.inner, name };
            session::perform(&place.volume, &call)?;
            say(output, "deleted", "deleted", &place, name)
        }
        SnapshotVerb::Rename { dir, name, new_name } => {
            let place = Place::locate(dir)?;
            let (from, to) = (name.as_bytes(), new_name.as_bytes());
            let call = Call::SnapshotRename { path: &place.inner, from, to };
            session::perform(&place.volume, &call)?;
            say(output, "renamed to", "renamed", &place, to)
        }
    }
}

fn say(output: &mut Output, verb: &str, key: &str, place: &Place, name: &[u8]) -> Result<()> {
    let mut object = json!({});
    output::put_bytes(&mut object, key, name);
    output::put_bytes(&mut object, "path", &place.inner);
    output.object(&object)?;
    let (name, path) = (printable(name), printable(&place.inner));
    output.line(&format!("{verb} snapshot {name} of {path}"))
}

fn list(place: &Place, output: &mut Output) -> Result<()> {
    let mut snapshots = Vec::new();
    session::call(&place.volume, &Call::SnapshotList { path: &place.inner }, &mut |body| {
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

/// Shows those of a volume as they come.
fn list_all(volume: &Path, output: &mut Output) -> Result<()> {
    session::call(volume, &Call::SnapshotListAll, &mut |body| {
        let Body::Kept(kept) = body else { return Ok(()) };
        for KeptSnapshot { snapshot, directory } in &kept {
            let mut object = json(snapshot);
            let place = match directory {
                SnapshotOf::At(path) => {
                    output::put_bytes(&mut object, "directory", &path.0);
                    printable(&path.0)
                }
                SnapshotOf::Gone => "(gone)".to_owned(),
                SnapshotOf::NotTold => "(not to be come to)".to_owned(),
            };
            object["gone"] = (*directory == SnapshotOf::Gone).into();
            output.object(&object)?;
            let (created, name) =
                (output::time_local(snapshot.created), printable(&snapshot.name.0));
            output.line(&format!("{created}  #{}  {name}  {place}", snapshot.subvolume))?;
        }
        Ok(())
    })?;
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
