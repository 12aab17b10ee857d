//! `pando fsck`: verifies everything that a volume has on disk, and repairs it with `--repair`.
//!
//! If a daemon has the volume open, that daemon checks it, beside its work. Otherwise this process
//! checks it, without changing anything. A repair runs in this process, with exclusive access to
//! the volume.

use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use client::{Connection, Opened};
use device::Env;
use fs::{Fs, Repair, RepairReport};
use serde_json::json;
use store::Cut;
use wire::{Answer, Body, Call, CheckAction, CheckFinding, Checked, Failure, FailureKind};

use crate::cli::FsckArgs;
use crate::daemon::{alone, checked};
use crate::failure::{self, Purpose, Result};
use crate::far;
use crate::host::{self, Store, TakeOver};
use crate::interrupt;
use crate::log_place::{self, Claim};
use crate::output::{Output, count, number, size};
use crate::place::VolumePath;
use crate::session;

pub(crate) fn run(args: &FsckArgs, output: &mut Output) -> Result<()> {
    let volume = VolumePath::whole_volume(&args.path, "fsck")?;
    let bar = output.progress("bytes");
    let mut known = 0;
    let mut show = |done: u64, total: u64| {
        if total != known {
            known = total;
            Output::progress_total(&bar, "bytes", total.max(done));
        }
        bar.set_position(done);
    };
    if far::is_url(volume.as_os_str()) {
        return over_network(&volume, args, &bar, &mut show, output);
    }
    let env = fs::volume_files(&volume).map(|files| Env::on(Arc::new(files)));
    let env =
        env.map_err(|error| not_theirs(failure::device_for(Purpose::Check, &volume, &error)))?;
    let (env, store) = host::connect(&volume, env)?;
    if args.repair && !args.dry_run {
        let how = if args.discard_log { Repair::DoAndCutLog } else { Repair::Do };
        let repaired = repair(&volume, (&env, store.as_ref()), how, &mut show);
        bar.finish_and_clear();
        return report_repair(&volume, &repaired.map_err(not_theirs)?, output);
    }
    let listen =
        || interrupt::exits_with("nothing was changed", "run it again to start over", &bar, output);
    let found = match env.device.try_lock("owner.lock") {
        Ok(Some(_alone)) => {
            let announced = store.as_ref().map(|store| host::announce_check(store, &env));
            let claim = announced.transpose()?.flatten();
            let found = offline(&volume, &env, &mut show).map_err(not_theirs);
            if let Some(claim) = claim {
                claim.withdraw();
            }
            found
        }
        Ok(None) => listen().and_then(|()| through_daemon(&volume, &mut show)).map(in_use),
        Err(error) => {
            let failure = failure::device_for(Purpose::Check, &volume, &error);
            listen().and_then(|()| as_another(&volume, failure, &mut show)).map(in_use)
        }
    };
    bar.finish_and_clear();
    let (found, cut) = found?;
    report(&volume, &found, cut.as_ref(), args.dry_run, output)
}

/// Has the daemon of a served volume check it. A repair takes the volume for itself, where it is.
fn over_network(
    volume: &Path,
    args: &FsckArgs,
    bar: &indicatif::ProgressBar,
    show: &mut dyn FnMut(u64, u64),
    output: &mut Output,
) -> Result<()> {
    if args.repair {
        let message = "a repair does not work over a network";
        return Err(Failure::new(FailureKind::NotSupported, message)
            .at(volume.as_os_str().as_bytes())
            .hint("end the server, and run `pando fsck --repair` on its machine"));
    }
    interrupt::exits_with("nothing was changed", "run it again to start over", bar, output)?;
    let found = through_daemon(volume, show);
    bar.finish_and_clear();
    report(volume, &found?, None, args.dry_run, output)
}

/// What would be lost by truncating a damaged log, or why that would be refused.
type CutCost = std::result::Result<Cut, String>;

/// A daemon that has the volume open no longer needs anything in its log.
fn in_use(found: Checked) -> (Checked, Option<CutCost>) {
    (found, None)
}

/// Adds which user may open the volume, if the failure is about permissions.
fn not_theirs(failure: Failure) -> Failure {
    match failure.kind {
        FailureKind::Permission if failure.hint.is_empty() => failure.hint(Purpose::Check.users()),
        _ => failure,
    }
}

/// For a caller that may not take the volume's lock: if a daemon has the volume open, it reports
/// which users may check it. No daemon is started for this.
fn as_another(volume: &Path, failure: Failure, show: &mut dyn FnMut(u64, u64)) -> Result<Checked> {
    if failure.kind != FailureKind::Permission {
        return Err(failure);
    }
    match Connection::open(volume)? {
        Opened::Connected(_) => through_daemon(volume, show),
        Opened::Refused(refused) => Err(refused),
        Opened::NoDaemon | Opened::Leaving => Err(not_theirs(failure)),
    }
}

/// Shows progress, and ends at an interrupt.
fn interruptible(
    show: &mut dyn FnMut(u64, u64),
) -> Result<impl FnMut(u64, u64) -> ControlFlow<()>> {
    let interrupted = interrupt::flag()?;
    Ok(move |done, total| {
        show(done, total);
        if interrupted.load(Ordering::Relaxed) {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    })
}

fn stopped(what: &str) -> Failure {
    Failure::new(FailureKind::Interrupted, format!("interrupted; {what}"))
}

fn offline(
    volume: &Path,
    env: &Env,
    show: &mut dyn FnMut(u64, u64),
) -> Result<(Checked, Option<CutCost>)> {
    let _log = log_place::hold(volume, &*env.clock, Claim::Leave)?;
    let mut progress = interruptible(show)?;
    let report = Fs::check_offline(env, &mut progress)
        .map_err(|error| failure::open_for(Purpose::Check, volume, &error))?;
    if report.stopped {
        return Err(stopped("nothing was changed").hint("run it again to start over"));
    }
    Ok((checked(&report), report.log_cut))
}

fn repair(
    volume: &Path,
    (env, store): (&Env, Option<&Store>),
    how: Repair,
    show: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let _alone = alone(volume, env)?;
    let claim = match store {
        Some(store) => Some(host::Claim::announce(store, env, TakeOver::No)?),
        None => None,
    };
    let repaired = repair_alone(volume, env, how, show);
    if let Some(claim) = claim {
        claim.withdraw();
    }
    repaired
}

/// Repairs a volume that no other process has open.
fn repair_alone(
    volume: &Path,
    env: &Env,
    how: Repair,
    show: &mut dyn FnMut(u64, u64),
) -> Result<RepairReport> {
    let _log = log_place::hold(volume, &*env.clock, Claim::Write)?;
    let mut progress = interruptible(show)?;
    let repaired = Fs::repair(env, how, &mut progress)
        .map_err(|error| failure::open_for(Purpose::Check, volume, &error))?;
    if repaired.before.stopped || repaired.after.stopped {
        return Err(stopped("the repairs made until then remain")
            .hint("run the same command again to continue"));
    }
    Ok(repaired)
}

fn through_daemon(volume: &Path, show: &mut dyn FnMut(u64, u64)) -> Result<Checked> {
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

/// Prints a finding: its place, its sort, its text.
fn print_finding(finding: &CheckFinding, verb: &str, output: &mut Output) -> Result<()> {
    let path = finding.path.lossy();
    output.object(&json!({
        verb: finding.kind,
        "file": finding.file,
        "offset": finding.offset,
        "subvolume": finding.subvolume,
        "path": path,
        "ino": finding.ino,
        "what": finding.what,
        "remedy": finding.remedy,
        "action": finding.action,
    }))?;
    let mut place = Vec::new();
    if !finding.file.is_empty() {
        place.push(format!("{}, byte {}", finding.file, finding.offset));
    }
    if !path.is_empty() {
        place.push(path.clone());
    } else if finding.subvolume != 0 {
        place.push(format!("subvolume {}", finding.subvolume));
    }
    if finding.ino != 0 {
        place.push(format!("inode {}", finding.ino));
    }
    let place = if place.is_empty() { "the volume".to_owned() } else { place.join(", ") };
    output.line(&format!("{place}: {}: {}", finding.kind, finding.what))
}

fn summary(volume: &Path, found: &Checked, output: &mut Output) -> Result<()> {
    output.object(&json!({
        "path": volume.to_string_lossy(),
        "clean": found.findings_count == 0,
        "findings": found.findings_count,
        "findings_not_shown": not_shown(found),
        "repairable": found.repairable_count,
        "unread": found.unread,
        "lost_bytes": found.lost_bytes,
        "trees": found.trees,
        "nodes": found.nodes,
        "entries": found.entries,
        "bytes": found.bytes,
        "underfull_nodes": found.underfull,
        "log_records": found.log_records,
        "subvolumes": found.subvolumes,
        "directories": found.directories,
        "files": found.files,
        "extents": found.extents,
        "data_bytes": found.data_bytes,
        "index_files": found.index_files,
    }))?;
    output.line(&format!(
        "{}, {} with {}, {} verified; {} in the log",
        count(found.trees, "tree", "trees"),
        count(found.nodes, "node", "nodes"),
        count(found.entries, "record", "records"),
        size(found.bytes),
        count(found.log_records, "record", "records"),
    ))?;
    output.line(&format!(
        "{}, {}, {}, {}, {} of contents verified; {} of the index",
        count(found.subvolumes, "subvolume", "subvolumes"),
        count(found.directories, "directory", "directories"),
        count(found.files, "file", "files"),
        count(found.extents, "extent", "extents"),
        size(found.data_bytes),
        count(found.index_files, "file", "files"),
    ))
}

/// How many findings are missing from the list, whose length is limited.
fn not_shown(found: &Checked) -> u64 {
    found.findings_count.saturating_sub(found.findings.len() as u64)
}

/// Reports that there are more findings than were printed.
fn print_more(found: &Checked, output: &mut Output) -> Result<()> {
    match not_shown(found) {
        0 => Ok(()),
        more => output.line(&format!("and {} more", number(more))),
    }
}

/// Prints the verdict and returns it.
fn verdict(volume: &Path, found: &Checked, hint: String, output: &mut Output) -> Result<()> {
    if found.findings_count == 0 {
        return output.line("clean");
    }
    output.flush()?;
    let findings = count(found.findings_count, "finding", "findings");
    let message = format!("{}: {findings}", volume.display());
    Err(Failure::new(FailureKind::Damaged, message).hint(hint))
}

/// What to do about the findings.
fn hint(found: &Checked, cut: Option<&CutCost>) -> String {
    if found.unread {
        return failure::FIRST_A_COPY.to_owned();
    }
    let find = |action| found.findings.iter().find(|finding| finding.action == action);
    if let Some(found) = find(CheckAction::Checkpoint) {
        return found.remedy.clone();
    }
    let discards = find(CheckAction::DiscardLog).is_some();
    if discards && matches!(cut, Some(Err(_))) {
        return "the log is damaged and would not be truncated, for the reason above; nothing else \
                is repaired before that"
            .to_owned();
    }
    if discards {
        return "the log is damaged, and nothing else is repaired before it is truncated: \
                `pando fsck --repair --discard-log` does that; later changes are lost, even \
                acknowledged ones"
            .to_owned();
    }
    let repairable = found.repairable_count;
    if repairable > 0 {
        return format!("`pando fsck --repair` repairs {repairable} of them");
    }
    if found.findings.iter().all(|finding| finding.action == CheckAction::MoveAway) {
        return "nothing is lost: move the named files out of the volume".to_owned();
    }
    "none of them can be repaired: restore the named files from a backup".to_owned()
}

fn report(
    volume: &Path,
    found: &Checked,
    cut: Option<&CutCost>,
    remedies: bool,
    output: &mut Output,
) -> Result<()> {
    for finding in &found.findings {
        print_finding(finding, "finding", output)?;
        if remedies {
            let repairable = !finding.remedy.is_empty();
            let remedy = if repairable { finding.remedy.as_str() } else { "nothing repairs it" };
            output.line(&format!("  would: {remedy}"))?;
        }
    }
    print_more(found, output)?;
    print_cost(cut, output)?;
    summary(volume, found, output)?;
    verdict(volume, found, hint(found, cut), output)
}

/// Prints what would be lost by truncating the log.
fn print_cost(cut: Option<&CutCost>, output: &mut Output) -> Result<()> {
    match cut {
        Some(Ok(cut)) => print_cut(cut, CutIs::Asked, output),
        Some(Err(why)) => {
            output.object(&json!({ "log_would_not_be_cut": why }))?;
            output.line(&format!("the log would not be truncated: {why}"))
        }
        None => Ok(()),
    }
}

/// Whether a log was truncated, or the user asked what that would lose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CutIs {
    Asked,
    Done,
}

/// What was lost from the log, or would be.
fn print_cut(cut: &Cut, is: CutIs, output: &mut Output) -> Result<()> {
    let Cut { last, known, bytes, missing, is_file_gone } = *cut;
    let name = if is == CutIs::Done { "log_cut" } else { "log_would_be_cut" };
    output.object(&json!({
        name: {
            "last": last.0,
            "given_up_to": known.0,
            "given_up_bytes": bytes,
            "missing_bytes": missing,
            "file_gone": is_file_gone,
        },
    }))?;
    let records = if known > last {
        format!("records {} to {}", last.0 + 1, known.0)
    } else {
        "no whole record".to_owned()
    };
    let bytes = if bytes > 0 { format!("up to {}", size(bytes)) } else { size(0_u64) };
    let ends = match is {
        CutIs::Done => format!("the log ends with record {} now", last.0),
        CutIs::Asked => format!("with --discard-log the log would end with record {}", last.0),
    };
    output.line(&format!("{ends}; lost after it: {bytes}, {records}"))?;
    if missing > 0 {
        let missing = size(missing);
        output.line(&format!("what its file lost, up to {missing} of records, is not known"))?;
    }
    if is_file_gone {
        output.line("a whole file of it is gone; whether later files existed is not known")?;
    }
    Ok(())
}

fn report_repair(volume: &Path, repaired: &RepairReport, output: &mut Output) -> Result<()> {
    let mut done = repaired.before.clone();
    done.problems_count = repaired.repaired.len() as u64;
    done.problems.clone_from(&repaired.repaired);
    let done = checked(&done);
    for finding in &done.findings {
        print_finding(finding, "repaired", output)?;
        output.line(&format!("  done: {}", finding.remedy))?;
    }
    print_more(&done, output)?;
    if let Some(cut) = &repaired.cut {
        print_cut(cut, CutIs::Done, output)?;
    } else {
        print_cost(repaired.before.log_cut.as_ref(), output)?;
    }
    for (problem, why) in &repaired.failed {
        output
            .object(&json!({ "failed": problem.kind.name(), "what": problem.what, "why": why }))?;
        output.line(&format!("not repaired: {}: {why}", problem.what))?;
    }
    let after = checked(&repaired.after);
    for finding in &after.findings {
        print_finding(finding, "finding", output)?;
    }
    print_more(&after, output)?;
    summary(volume, &after, output)?;
    if !repaired.repaired.is_empty() {
        let were = count(repaired.repaired.len() as u64, "finding was", "findings were");
        output.line(&format!("{were} repaired"))?;
    }
    let is_refused =
        |(problem, _): &(fs::Problem, String)| problem.action() == fs::Action::DiscardLog;
    let failed =
        |found: &&fs::Problem| repaired.failed.iter().any(|(tried, _)| tried.is_same(found));
    // A repair that has just failed would fail again.
    let failed = repaired.after.problems.iter().filter(failed).count() as u64;
    let hint = if repaired.failed.iter().any(is_refused) {
        "the log was not truncated, and nothing else was repaired, for the reason above".to_owned()
    } else if failed > 0 && failed >= after.repairable_count && !after.unread {
        "repairs were tried: the reasons why they failed are printed above".to_owned()
    } else {
        hint(&after, repaired.after.log_cut.as_ref())
    };
    verdict(volume, &after, hint, output)
}
