//! `pando gc`: has the volume's daemon list or delete unreferenced blobs.

use fs::GarbageKind;
use serde_json::json;
use wire::{Answer, Body, Call};

use crate::cli::GcArgs;
use crate::failure::Result;
use crate::interrupt;
use crate::output::{self, Output, seconds_up, size};
use crate::place::{self, VolumePath};
use crate::session;

pub(crate) fn run(args: &GcArgs, output: &mut Output) -> Result<()> {
    place::refuse_path(&args.path, "gc")?;
    let place = if args.delete { VolumePath::volume_to_change } else { VolumePath::volume };
    let volume = place(&args.path)?;
    let bar = output.progress("bytes");
    let interrupted = if args.delete {
        "what was deleted stays deleted, and the daemon may continue with the rest"
    } else {
        "nothing was deleted"
    };
    interrupt::exits_with(interrupted, "run the same command again", &bar, output)?;
    let delete_after = args.delete.then_some(seconds_up(args.grace));
    let answer = session::call(&volume, &Call::Collect { delete_after }, &mut |part| {
        if let Body::Progress { done, total } = part {
            Output::progress_total(&bar, "bytes", total.max(done));
            bar.set_position(done);
        }
        Ok(())
    });
    bar.finish_and_clear();
    let collected = match answer? {
        Answer::Collected(collected) => collected,
        other => return Err(session::unexpected(&other)),
    };
    let (mut bytes, mut lost) = (0, 0);
    for found in &collected.garbage {
        bytes += found.bytes;
        output.object(&json!({
            "garbage": found.kind,
            "name": found.name,
            "bytes": found.bytes,
            "since": found.since.map(output::time_rfc3339),
            "deleted": found.deleted,
        }))?;
        let is_lost = found.kind == GarbageKind::LostTree.name();
        lost += u64::from(is_lost);
        let state = match (found.deleted, found.since) {
            _ if is_lost => "kept",
            (true, _) => "deleted",
            (false, Some(_)) => "noted",
            (false, None) => "found",
        };
        let space = if found.bytes > 0 { size(found.bytes) } else { "shared space".to_owned() };
        output.line(&format!("{state}: {} {}, {space}", found.kind, found.name))?;
    }
    output.object(&json!({
        "path": volume.to_string_lossy(),
        "live_bytes": collected.live_bytes,
        "garbage_bytes": bytes,
        "freed_bytes": collected.freed_bytes,
    }))?;
    if lost > 0 {
        let trees = output::count(lost, "tree", "trees");
        output.line(&format!(
            "{trees} without a record in which there are, or may be, directories: nothing of that \
             is deleted; `pando fsck` reports what can be put back"
        ))?;
    }
    let verdict = if collected.garbage.len() as u64 == lost {
        "nothing is unnamed".to_owned()
    } else if args.delete {
        format!("{} unnamed, {} deleted", size(bytes), size(collected.freed_bytes))
    } else {
        format!("{} unnamed; --delete deletes it", size(bytes))
    };
    output.line(&format!("{} of contents; {verdict}", size(collected.live_bytes)))
}
