//! `pando history`: in which snapshots a path existed, and when it changed or vanished.

use inode::VersionChange;
use serde_json::{Value, json};
use wire::{Body, Call, Version};

use super::attr_text;
use crate::cli_totals::HistoryArgs;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &HistoryArgs, output: &mut Output) -> Result<()> {
    let place = VolumePath::locate(&args.path, Last::Link)?;
    let mut versions = Vec::new();
    session::call(&place, &Call::History { path: &place.inner }, &mut |body| {
        if let Body::Versions(more) = body {
            versions.extend(more);
        }
        Ok(())
    })?;
    for version in &versions {
        if args.all || is_news(version) {
            // In the form that another verb takes.
            let directory = place.shown(&version.directory.0);
            output.object(&object(version, &directory))?;
            output.line(&line(version, &directory))?;
        }
    }
    Ok(())
}

/// Whether something changed, or this is the current version.
fn is_news(version: &Version) -> bool {
    version.snapshot.is_none()
        || !matches!(version.change, VersionChange::Same | VersionChange::Absent)
}

fn line(version: &Version, directory: &[u8]) -> String {
    let (when, which) = match &version.snapshot {
        None => ("now                ".to_owned(), String::new()),
        Some(snapshot) => {
            let (name, directory) = (printable(&snapshot.name.0), printable(directory));
            (output::time_local(snapshot.created), format!("  snapshot {name} of {directory}"))
        }
    };
    let what = match version.change {
        VersionChange::Absent => "not there",
        VersionChange::Appeared => "appeared",
        VersionChange::Present => "there, in no snapshot",
        VersionChange::Same => "unchanged",
        VersionChange::Contents => "contents changed",
        VersionChange::Attributes => "attributes changed",
        VersionChange::Replaced => "replaced by another",
        VersionChange::Vanished => "vanished",
    };
    let how = version.attr.as_ref().map_or_else(String::new, |attr| {
        let (letters, size) = (attr_text::mode_letters(attr), attr_text::bytes_or_device(attr));
        format!("  {letters} {size}, changed {}", output::time_local(attr.mtime))
    });
    format!("{when}  {what:<20}{how}{which}")
}

fn object(version: &Version, directory: &[u8]) -> Value {
    let mut object = json!({
        "change": version.change.name(),
        "snapshot": version.snapshot.as_ref().map(super::snapshot::json),
        "attributes": version.attr.as_ref().map(|attr| attr_text::json(attr, None)),
    });
    if version.snapshot.is_some() {
        output::put_bytes(&mut object, "directory", directory);
    }
    object
}
