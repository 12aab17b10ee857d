//! `pando stat`: the attributes of paths, without following symbolic links.

use wire::{Answer, Call, StatAnswer};

use super::attr_text;
use crate::cli::PathsArg;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &PathsArg, output: &mut Output) -> Result<()> {
    for path in &args.paths {
        let place = VolumePath::reading(path, Last::Link)?;
        match session::ask(&place, &Call::Stat { path: &place.inner })? {
            Answer::Stat(stat) => {
                let mut object = attr_text::json(&stat.attr, stat.target.as_ref());
                output::put_bytes(&mut object, "path", place.typed());
                output.object(&object)?;
                text(&place, &stat, output)?;
            }
            other => return Err(session::unexpected(&other)),
        }
    }
    Ok(())
}

fn text(place: &VolumePath, stat: &StatAnswer, output: &mut Output) -> Result<()> {
    let attr = &stat.attr;
    let target = stat.target.as_ref();
    let arrow = target.map(|target| format!(" -> {}", printable(&target.0))).unwrap_or_default();
    output.line(&format!("  File: {}{arrow}", printable(place.typed())))?;
    output.line(&format!(
        "  Size: {:<15} Blocks: {:<10} {}",
        attr_text::size_or_device(attr),
        attr.blocks,
        attr.kind.name()
    ))?;
    output.line(&format!("  Inode: {:<14} Links: {}", attr.node, attr.nlink))?;
    output.line(&format!(
        "  Mode: {:04o} {}  Uid: {}  Gid: {}",
        attr.mode,
        attr_text::mode_letters(attr),
        attr.uid,
        attr.gid
    ))?;
    let times = [
        ("Access", attr.atime),
        ("Modify", attr.mtime),
        ("Change", attr.ctime),
        (" Birth", attr.btime),
    ];
    for (label, time) in times {
        output.line(&format!("{label}: {}", output::time_rfc3339(time)))?;
    }
    Ok(())
}
