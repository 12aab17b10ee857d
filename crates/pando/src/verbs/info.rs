//! `pando info`: what is known of a path beyond `stat`.

use serde_json::json;
use wire::{Answer, Body, Call, Info, Kind, Snapshot};

use super::attr_text;
use crate::cli::PathArg;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &PathArg, output: &mut Output) -> Result<()> {
    let place = Place::reading(&args.path)?;
    let mut snapshots = Vec::new();
    let answer = session::call(&place, &Call::Info { path: &place.inner }, &mut |body| {
        if let Body::Snapshots(more) = body {
            snapshots.extend(more);
        }
        Ok(())
    })?;
    match answer {
        Answer::Info(info) => {
            output.object(&object(&place, &info, &snapshots))?;
            text(&place, &info, &snapshots, output)
        }
        other => Err(session::unexpected(&other)),
    }
}

fn object(place: &Place, info: &Info, snapshots: &[Snapshot]) -> serde_json::Value {
    let mut object = attr_text::json(&info.attr, info.target.as_ref());
    output::put_bytes(&mut object, "path", &place.inner);
    object["volume"] = json!(place.volume.to_string_lossy());
    object["subvolume"] = json!(info.subvolume);
    object["ino"] = json!(info.ino);
    object["snapshots"] = snapshots.iter().map(super::snapshot::json).collect();
    object["xattrs"] = info.xattrs.iter().map(|name| json!(name.lossy())).collect();
    object
}

fn text(place: &Place, info: &Info, snapshots: &[Snapshot], output: &mut Output) -> Result<()> {
    let attr = &info.attr;
    let mut rows = vec![
        ("path", format!("{} in {}", printable(&place.inner), place.volume.display())),
        ("kind", attr.kind.name().to_owned()),
        ("inode", format!("{} (subvolume {}, number {})", attr.node, info.subvolume, info.ino)),
        ("mode", format!("{:04o} {}", attr.mode, attr_text::mode_letters(attr))),
        ("owner", format!("{}:{}", attr.uid, attr.gid)),
        ("changed", output::time_local(attr.mtime)),
    ];
    match attr.kind {
        Kind::Directory => rows.push(("entries", output::number(attr.size))),
        _ => rows.push(("size", attr_text::size_or_device(attr))),
    }
    if let Some(target) = &info.target {
        rows.push(("target", printable(&target.0)));
    }
    for name in &info.xattrs {
        rows.push(("xattr", printable(&name.0)));
    }
    for snapshot in snapshots {
        let created = output::time_local(snapshot.created);
        rows.push(("snapshot", format!("{created}  {}", printable(&snapshot.name.0))));
    }
    for (label, value) in rows {
        output.line(&format!("{label:<10}{value}"))?;
    }
    Ok(())
}
