//! `pando snapshot`: takes, lists, deletes and renames the snapshots of a directory, and lists and
//! deletes those of removed directories.

mod schedule;
mod list;

use std::os::unix::ffi::OsStrExt;

use serde_json::json;
use wire::{Call, Failure, FailureKind};

pub(super) use list::json;

use crate::cli::SnapshotVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(verb: &SnapshotVerb, output: &mut Output) -> Result<()> {
    match verb {
        SnapshotVerb::Create { dir, name } => {
            let name = name.as_bytes();
            check_name(name)?;
            let place = VolumePath::to_change(dir, Last::Target)?;
            session::write_back(&place.volume, dir, output)?;
            let call = Call::SnapshotCreate { path: &place.inner, name };
            session::perform(&place, &call)?;
            print_done(output, "took", "created", &place, name)
        }
        SnapshotVerb::List { dir, removed: false, all: false } => {
            list::list(&VolumePath::locate(dir, Last::Target)?, output)
        }
        SnapshotVerb::List { dir, removed, .. } => {
            list::list_volume(&VolumePath::all_of_volume(dir)?, *removed, output)
        }
        SnapshotVerb::Delete { dir, number: Some(number), .. } => {
            let (volume, call) = (
                VolumePath::volume_to_change(dir)?,
                Call::SnapshotDeleteNumber { number: *number },
            );
            session::perform(&volume, &call)?;
            output.object(&json!({ "deleted": number }))?;
            output.line(&format!("deleted snapshot #{number}"))
        }
        SnapshotVerb::Delete { dir, name, .. } => {
            let name = name.as_ref().expect("invariant: clap wants a name or a number");
            let (place, name) = (VolumePath::to_change(dir, Last::Target)?, name.as_bytes());
            let call = Call::SnapshotDelete { path: &place.inner, name };
            session::perform(&place, &call)?;
            print_done(output, "deleted", "deleted", &place, name)
        }
        SnapshotVerb::Rename { dir, name, new_name } => {
            let place = VolumePath::to_change(dir, Last::Target)?;
            let (from, to) = (name.as_bytes(), new_name.as_bytes());
            check_name(to)?;
            let call = Call::SnapshotRename { path: &place.inner, from, to };
            session::perform(&place, &call)?;
            print_done(output, "renamed to", "renamed", &place, to)
        }
        SnapshotVerb::Schedule { .. } => schedule::schedule(verb, output),
        SnapshotVerb::Prune { dir, keep, prefix, dry_run } => {
            let place = VolumePath::to_change(dir, Last::Target)?;
            schedule::prune(&place, *keep, prefix.as_deref(), *dry_run, output)
        }
        SnapshotVerb::Hold { dir, snapshot, name, number } => {
            schedule::hold(dir, (snapshot, *number), name, true, output)
        }
        SnapshotVerb::Release { dir, snapshot, name, number } => {
            schedule::hold(dir, (snapshot, *number), name, false, output)
        }
    }
}

/// Refuses an invalid snapshot name.
fn check_name(name: &[u8]) -> Result<()> {
    if matches!(name, b"" | b"." | b"..") {
        let message = format!("'{}' is not a valid snapshot name", printable(name));
        let failure = Failure::new(FailureKind::Invalid, message);
        return Err(failure.hint("choose a name that is not empty, `.` or `..`"));
    }
    Ok(())
}

fn print_done(
    output: &mut Output,
    verb: &str,
    key: &str,
    place: &VolumePath,
    name: &[u8],
) -> Result<()> {
    let mut object = json!({});
    output::put_bytes(&mut object, key, name);
    // The same key as in the output of `list`.
    output::put_bytes(&mut object, "name", name);
    output::put_bytes(&mut object, "path", place.typed());
    output.object(&object)?;
    let (name, path) = (printable(name), printable(place.typed()));
    output.line(&format!("{verb} snapshot {name} of {path}"))
}
