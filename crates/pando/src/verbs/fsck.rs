//! `pando fsck`: reads and verifies all that a volume's store has on the medium, and counts all
//! references anew. Nothing is changed. A volume that a process owns is checked by that process,
//! beside its work; any other here, without being opened.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::Ordering;

use device::Env;
use fs::Fs;
use serde_json::json;
use wire::{Answer, Body, Call, Checked, Failure, FailureKind};

use crate::cli::VolumeArg;
use crate::failure::{self, Result};
use crate::import::interrupt_flag;
use crate::output::{Output, number, size};
use crate::owner::checked;
use crate::place::Place;
use crate::session;

pub(crate) fn run(args: &VolumeArg, output: &mut Output) -> Result<()> {
    let volume = Place::volume(&args.path)?;
    let bar = output.progress("bytes");
    let mut show = |done: u64, total: u64| {
        bar.set_length(total.max(done));
        bar.set_position(done);
    };
    let env = Env::system(&volume).map_err(|error| failure::device(&volume, &error))?;
    let lock = env.device.try_lock("owner.lock");
    let found = match lock.map_err(|error| failure::device(&volume, &error))? {
        Some(_alone) => offline(&volume, &env, &mut show),
        None => through_owner(&volume, &mut show),
    };
    bar.finish_and_clear();
    report(&volume, &found?, output)
}

fn offline(volume: &Path, env: &Env, show: &mut dyn FnMut(u64, u64)) -> Result<Checked> {
    let interrupted = interrupt_flag()?;
    let mut progress = |done, total| {
        show(done, total);
        if interrupted.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let report = Fs::inspect(env, &mut progress).map_err(|error| failure::open(volume, &error))?;
    if report.stopped {
        return Err(Failure::new(FailureKind::Interrupted, "interrupted; nothing was changed"));
    }
    Ok(checked(&report))
}

fn through_owner(volume: &Path, show: &mut dyn FnMut(u64, u64)) -> Result<Checked> {
    let answer = session::call(volume, &Call::Check, &mut |part| {
        if let Body::Progress { done, total } = part {
            show(done, total);
        }
        Ok(())
    })?;
    match answer {
        Answer::Checked(found) => Ok(*found),
        other => Err(session::unexpected(&other)),
    }
}

fn report(volume: &Path, found: &Checked, output: &mut Output) -> Result<()> {
    for finding in &found.findings {
        output.object(&json!({
            "finding": finding.kind,
            "file": finding.file,
            "offset": finding.offset,
            "what": finding.what,
        }))?;
        let (file, offset) = (&finding.file, finding.offset);
        output.line(&format!("{file}, byte {offset}: {}: {}", finding.kind, finding.what))?;
    }
    let clean = found.findings_count == 0;
    output.object(&json!({
        "path": volume.to_string_lossy(),
        "clean": clean,
        "findings": found.findings_count,
        "lost_bytes": found.lost_bytes,
        "trees": found.trees,
        "nodes": found.nodes,
        "entries": found.entries,
        "bytes": found.bytes,
        "light_nodes": found.light,
        "log_records": found.log_records,
    }))?;
    output.line(&format!(
        "{} trees, {} nodes with {} records, {} verified; {} records in the log",
        number(found.trees),
        number(found.nodes),
        number(found.entries),
        size(found.bytes),
        number(found.log_records),
    ))?;
    if clean {
        return output.line("clean");
    }
    output.flush()?;
    let count = number(found.findings_count);
    let message = format!("{}: {count} findings", volume.display());
    let failure = Failure::new(FailureKind::Damaged, message);
    Err(if found.lost_bytes > 0 {
        failure.hint(format!("{} are marked as used and lead nowhere", size(found.lost_bytes)))
    } else {
        failure
    })
}
