//! `pando info`: details of a path beyond `stat`.

use serde_json::json;
use wire::{Answer, Body, Call, FailureKind, Info, Kind, Snapshot};

use super::attr_text;
use crate::cli::PathArg;
use crate::failure::Result;
use crate::names::Names;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &PathArg, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(&args.path, Last::Link)?;
    let mut snapshots = Vec::new();
    let answer = session::call(&place, &Call::Info { path: &place.inner }, &mut |body| {
        if let Body::Snapshots(more) = body {
            snapshots.extend(more);
        }
        Ok(())
    })?;
    let Answer::Info(info) = answer else { return Err(session::unexpected(&answer)) };
    let report = Report { info: *info, snapshots, holders: holders(&place)? };
    output.object(&object(&place, &report))?;
    text(&place, &report, output)
}

/// The details of a path.
struct Report {
    info: Info,
    /// Its own snapshots.
    snapshots: Vec<Snapshot>,
    /// Snapshots of directories above that contain it, each with its directory.
    holders: Vec<(Snapshot, Vec<u8>)>,
}

fn holders(place: &VolumePath) -> Result<Vec<(Snapshot, Vec<u8>)>> {
    let mut found = Vec::new();
    let asked = session::call(place, &Call::History { path: &place.inner }, &mut |body| {
        if let Body::Versions(versions) = body {
            let there = versions.into_iter().filter(|version| version.attr.is_some());
            let held = there.filter(|version| version.directory.0 != place.inner);
            found.extend(held.filter_map(|one| Some((one.snapshot?, one.directory.0))));
        }
        Ok(())
    });
    match asked {
        // A path inside a snapshot has no history of its own.
        Err(failure) if !matches!(failure.kind, FailureKind::NotFound | FailureKind::Invalid) => {
            Err(failure)
        }
        _ => Ok(found),
    }
}

fn object(place: &VolumePath, report: &Report) -> serde_json::Value {
    let Report { info, snapshots, holders } = report;
    let mut object = attr_text::json(&info.attr, info.target.as_ref());
    output::put_bytes(&mut object, "path", place.typed());
    output::put_bytes(&mut object, "path_in_volume", &place.inner);
    object["volume"] = json!(place.volume.to_string_lossy());
    object["subvolume"] = json!(info.subvolume);
    object["ino"] = json!(info.ino);
    if info.attr.kind == Kind::Directory {
        object["entries"] = json!(info.entries);
    }
    object["snapshots"] = snapshots.iter().map(super::snapshot::json).collect();
    let holder = |(snapshot, directory): &(Snapshot, Vec<u8>)| {
        let mut object = super::snapshot::json(snapshot);
        output::put_bytes(&mut object, "directory", &place.shown(directory));
        object
    };
    object["in_snapshots"] = holders.iter().map(holder).collect();
    if let Some(source) = &info.copy_of {
        output::put_bytes(&mut object, "copy_of", &place.shown(&source.0));
    }
    object["xattrs"] = info.xattrs.iter().map(|name| json!(name.lossy())).collect();
    object
}

fn text(place: &VolumePath, report: &Report, output: &mut Output) -> Result<()> {
    let Report { info, snapshots, holders } = report;
    let attr = &info.attr;
    let mut names = Names::default();
    let mut rows = vec![
        ("path", printable(place.typed())),
        ("in volume", format!("{} of {}", printable(&place.inner), place.volume.display())),
        ("kind", attr.kind.name().to_owned()),
        ("inode", format!("{} (subvolume {}, number {})", attr.node, info.subvolume, info.ino)),
        ("mode", format!("{:04o} {}", attr.mode, attr_text::mode_letters(attr))),
        ("owner", format!("{}:{}", names.user(attr.uid), names.group(attr.gid))),
        ("changed", output::time_local(attr.mtime)),
    ];
    match attr.kind {
        Kind::Directory => rows.push(("entries", output::number(info.entries))),
        _ => rows.push(("size", attr_text::size_or_device(attr))),
    }
    if let Some(target) = &info.target {
        rows.push(("target", printable(&target.0)));
    }
    if let Some(source) = &info.copy_of {
        rows.push(("copy of", printable(&place.shown(&source.0))));
    }
    for name in &info.xattrs {
        rows.push(("xattr", printable(&name.0)));
    }
    for snapshot in snapshots {
        let created = output::time_local(snapshot.created);
        rows.push(("snapshot", format!("{created}  {}", printable(&snapshot.name.0))));
    }
    for (snapshot, directory) in holders {
        let (created, name) = (output::time_local(snapshot.created), printable(&snapshot.name.0));
        rows.push(("in", format!("{created}  {name} of {}", printable(&place.shown(directory)))));
    }
    for (label, value) in rows {
        output.line(&format!("{label:<10}{value}"))?;
    }
    Ok(())
}
