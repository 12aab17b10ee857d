//! `pando rollback`: restores a directory to the contents of one of its snapshots.

use std::os::unix::ffi::OsStrExt;

use serde_json::json;
use wire::{Body, Call, Failure, FailureKind};

use crate::cli::RollbackArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &RollbackArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(&args.dir, Last::Target)?;
    let snapshot = args.snapshot.as_bytes();
    session::perform(&place, &Call::Rollback { path: &place.inner, snapshot })
        .map_err(|failure| with_clone(failure, &place, snapshot))?;
    let mut object = json!({});
    output::put_bytes(&mut object, "path", place.typed());
    output::put_bytes(&mut object, "snapshot", snapshot);
    output.object(&object)?;
    output.line(&format!("{} is again {}", printable(place.typed()), printable(snapshot)))
}

/// For a snapshot of a directory above, only that directory can be rolled back. But a clone of this
/// directory inside the snapshot restores its contents next to it.
fn with_clone(failure: Failure, place: &VolumePath, snapshot: &[u8]) -> Failure {
    if failure.kind != FailureKind::NotFound {
        return failure;
    }
    let inner: Vec<&[u8]> =
        place.inner.split(|&byte| byte == b'/').filter(|name| !name.is_empty()).collect();
    let above = (0..inner.len()).rev().find(|&depth| {
        let path = [b"/", &inner[..depth].join(&b'/')[..]].concat();
        let mut found = false;
        let listed = session::call(place, &Call::SnapshotList { path: &path }, &mut |body| {
            if let Body::Snapshots(snapshots) = body {
                found |= snapshots.iter().any(|one| one.name.0 == snapshot);
            }
            Ok(())
        });
        listed.is_ok() && found
    });
    let Some(depth) = above else { return failure };
    let directory = place.shown(&[b"/", &inner[..depth].join(&b'/')[..]].concat());
    // The root of `VOLDIR:` keeps its slash: VOLDIR:/@NAME.
    let directory = match directory.strip_suffix(b"/") {
        Some(directory) if !directory.ends_with(b":") => directory,
        _ => &directory,
    };
    let (directory, name) = (printable(directory), printable(snapshot));
    let below = printable(&inner[depth..].join(&b'/'));
    let typed = printable(place.typed());
    let typed = typed.trim_end_matches('/');
    Failure {
        message: format!("{name} is a snapshot of {directory}, not of this directory"),
        ..failure
    }
    .hint(format!(
        "`pando clone {directory}@{name}/{below} {typed}-{name}` makes a directory with the state \
         of this one in that snapshot"
    ))
}
