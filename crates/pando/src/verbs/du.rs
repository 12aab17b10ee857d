//! `pando du`: the size of directories, from the sums of the index, without a walk.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::Serialize;
use wire::{Answer, Body, Call, DirectoryTotals, Failure, FailureKind, Sums};

use crate::cli_totals::DuArgs;
use crate::failure::Result;
use crate::output::{self, Output};
use crate::place::{Last, VolumePath, is_dangling};
use crate::session;

/// A directory as JSON.
#[derive(Serialize)]
struct Object {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    files: u64,
    directories: u64,
    bytes: u128,
    allocated: u128,
    depth: u32,
}

pub(crate) fn run(args: &DuArgs, output: &mut Output) -> Result<()> {
    let (mut unread, mut skipped): (Option<Failure>, _) = (None, None);
    for path in &args.paths {
        if is_dangling(path) {
            dangling(args, path, output)?;
            continue;
        }
        let place = VolumePath::reading(path, Last::Target)?;
        let depth = if args.summarize { 0 } else { args.max_depth.unwrap_or(u32::MAX) };
        let call = Call::Totals { path: &place.inner, depth: Some(depth), top: None };
        let mut listed = false;
        let start = path.as_os_str().as_bytes();
        let answer = session::call(&place, &call, &mut |body| {
            let directories = match body {
                Body::Totalled(directories) => directories,
                Body::Skipped(failure) => {
                    output.failure(&failure);
                    skipped.get_or_insert(failure.kind);
                    return Ok(());
                }
                _ => return Ok(()),
            };
            for directory in &directories {
                listed = true;
                // The path begins with a slash, and the typed path may end with one.
                let above = if directory.path.0.is_empty() { start } else { without_slash(start) };
                let path = [above, &directory.path.0].concat();
                one(args, (&path, 1), directory, output)?;
            }
            Ok(())
        })?;
        let Answer::Totals(totals) = answer else { return Err(session::unexpected(&answer)) };
        if !listed {
            // For anything but a directory, the answer has a kind.
            let itself = u64::from(totals.kinds.is_empty());
            let all = DirectoryTotals {
                path: wire::Bytes::default(),
                depth: 0,
                sums: totals.sums,
                directories: totals.directories,
                own: Sums::default(),
            };
            one(args, (start, itself), &all, output)?;
        }
        if totals.unreadable > 0 {
            let failure = Failure::new(FailureKind::Other, not_counted(totals.unreadable)).hint(
                "run it as a user who may read them, or `pando fsck` if the volume is damaged",
            );
            if let Some(earlier) = unread.replace(failure.at(start)) {
                output.flush()?;
                output.failure(&earlier);
            }
        }
    }
    output.flush()?;
    unread.or(skipped.map(not_all)).map_or(Ok(()), Err)
}

/// Prints a link to nothing, whose own size counts.
fn dangling(args: &DuArgs, path: &Path, output: &mut Output) -> Result<()> {
    let place = VolumePath::reading(path, Last::Link)?;
    let answer = session::ask(&place, &Call::Stat { path: &place.inner })?;
    let Answer::Stat(stat) = answer else { return Err(session::unexpected(&answer)) };
    let (bytes, allocated) = (u128::from(stat.attr.size), u128::from(stat.attr.blocks) * 512);
    let all = DirectoryTotals {
        path: wire::Bytes::default(),
        depth: 0,
        sums: Sums { files: 1, bytes, allocated },
        directories: 0,
        own: Sums::default(),
    };
    one(args, (path.as_os_str().as_bytes(), 0), &all, output)
}

fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

/// How many directories the caller may not look into.
pub(super) fn not_counted(unreadable: u64) -> String {
    output::count(
        unreadable,
        "directory cannot be read, and is not counted",
        "directories cannot be read, and are not counted",
    )
}

/// Why a list of directories is not whole.
pub(super) fn not_all(kind: FailureKind) -> Failure {
    Failure::new(kind, "some directories could not be listed")
        .hint("the messages above have the reasons")
}

/// Prints a path, which counts as this many inodes itself.
fn one(
    args: &DuArgs,
    (path, itself): (&[u8], u64),
    directory: &DirectoryTotals,
    output: &mut Output,
) -> Result<()> {
    let sums = &directory.sums;
    if output.is_json() {
        return output.record(&Object {
            path: String::from_utf8_lossy(path).into_owned(),
            path_hex: output::hex(path),
            files: sums.files,
            directories: directory.directories,
            bytes: sums.bytes,
            allocated: sums.allocated,
            depth: directory.depth,
        });
    }
    let bytes = if args.apparent_size || args.bytes { sums.bytes } else { sums.allocated };
    let figure = if args.inodes {
        // Like du, counts the directory itself too.
        (sums.files + directory.directories + itself).to_string()
    } else if args.human_readable {
        output::short_size(bytes)
    } else if args.bytes {
        bytes.to_string()
    } else {
        bytes.div_ceil(1024).to_string()
    };
    let name = output.name(path);
    output.raw(format!("{figure}\t").as_bytes())?;
    output.raw(&name)?;
    output.raw(b"\n")
}
