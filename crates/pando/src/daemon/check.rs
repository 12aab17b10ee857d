//! Checks and garbage collection in the daemon, beside all other work. Both end when the caller
//! leaves.

use std::ops::ControlFlow;
use std::time::Duration;

use fs::{Gc, Problem, ProblemKind, VolumeReport};
use inode::Caller;
use nix::unistd::{Uid, User};
use wire::{
    Answer, Body, Bytes, CheckAction, CheckFinding, Checked, Collected, Failure, FailureKind,
    Garbage,
};

use super::replies::Replies;
use super::server::Server;
use crate::failure::Result;

/// Most findings in one answer.
const FINDINGS_MAX: usize = 2000;

/// Reports progress to the caller; cancels the work when the caller left.
pub(super) fn report_progress(
    replies: &mut Replies,
    gone: &mut Option<Failure>,
    done: u64,
    total: u64,
) -> ControlFlow<()> {
    let sent = replies.part(Body::Progress { done, total });
    match sent.and_then(|()| replies.flush()) {
        Ok(()) => ControlFlow::Continue(()),
        Err(failure) => {
            *gone = Some(failure);
            ControlFlow::Break(())
        }
    }
}

/// Refuses callers that are neither root nor the user that runs the daemon.
pub(super) fn only_for_owner(caller: &Caller, what: &str) -> Result<()> {
    if caller.is_root() || caller.uid == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    Err(refused("root, or the user whose daemon has the volume open", what))
}

/// The same, but also allows the user that owns the volume's directory. That user may do it anyway
/// when no daemon has the volume open, and can read its files.
fn only_for_user(server: &Server, caller: &Caller, what: &str) -> Result<()> {
    if server.trusts(caller.uid) {
        return Ok(());
    }
    let who =
        "root, the owner of the volume's directory, or the user whose daemon has the volume open";
    Err(refused(who, what))
}

fn refused(who: &str, what: &str) -> Failure {
    let message = format!("only {who}, {what}");
    Failure::new(FailureKind::Permission, message).hint(holder())
}

/// Which process has the volume open, mounted or not.
pub(super) fn holder() -> String {
    let own = rustix::process::geteuid().as_raw();
    let known = User::from_uid(Uid::from_raw(own)).ok().flatten();
    let user = known.map_or_else(|| format!("user {own}"), |user| user.name);
    format!("process {} of {user} has the volume open", std::process::id())
}

/// Checks the volume.
pub(super) fn check(server: &Server, caller: &Caller, replies: &mut Replies) -> Result<Answer> {
    only_for_user(server, caller, "checks it")?;
    let fs = server.fs();
    let mut gone = None;
    let mut progress = |done, total| report_progress(replies, &mut gone, done, total);
    let report = fs.check_volume(&mut progress).map_err(Failure::from)?;
    gone.map_or_else(|| Ok(Answer::Checked(Box::new(checked(&report)))), Err)
}

/// Finds unreferenced blobs, and deletes them if requested.
pub(super) fn collect(
    server: &Server,
    caller: &Caller,
    delete_after: Option<u64>,
    replies: &mut Replies,
) -> Result<Answer> {
    only_for_user(server, caller, "collects its garbage")?;
    let fs = server.fs();
    let mut gone = None;
    let mut progress = |done, total| report_progress(replies, &mut gone, done, total);
    let how = match delete_after {
        None => Gc::Report,
        Some(seconds) => Gc::Delete { grace: Duration::from_secs(seconds) },
    };
    let report = fs.gc(how, &mut progress).map_err(Failure::from)?;
    let garbage = report.garbage.into_iter().map(|found| Garbage {
        kind: found.kind.name().to_owned(),
        name: found.name,
        bytes: found.bytes,
        since: found.since,
        deleted: found.deleted,
    });
    let collected = Collected {
        live_bytes: report.live_bytes,
        freed_bytes: report.freed_bytes,
        garbage: garbage.collect(),
    };
    gone.map_or_else(|| Ok(Answer::Collected(Box::new(collected))), Err)
}

/// A report in the wire's form.
pub(crate) fn checked(report: &VolumeReport) -> Checked {
    let sorts: Vec<Sort> = report.problems.iter().map(Sort::of).collect();
    let kept = kept(&sorts, FINDINGS_MAX).into_iter().map(|at| &report.problems[at]);
    let findings = kept.map(|found| CheckFinding {
        kind: found.kind.name().to_owned(),
        file: found.file.clone(),
        offset: found.offset,
        subvolume: found.subvolume,
        path: Bytes::from(found.path.as_slice()),
        ino: found.ino,
        what: found.what.clone(),
        remedy: found.remedy().unwrap_or_default(),
        action: match found.action() {
            fs::Action::None => CheckAction::None,
            fs::Action::Repair => CheckAction::Repair,
            fs::Action::DiscardLog => CheckAction::DiscardLog,
            fs::Action::Checkpoint => CheckAction::Checkpoint,
            fs::Action::MoveAway => CheckAction::MoveAway,
        },
    });
    let store = &report.store;
    Checked {
        trees: store.trees,
        nodes: store.leaves + store.interiors + store.overflows,
        entries: store.entries,
        bytes: store.bytes,
        lost_bytes: store.lost_bytes,
        log_records: store.log_records,
        underfull: store.underfull,
        subvolumes: report.subvolumes,
        directories: report.directories,
        files: report.files,
        extents: report.extents,
        data_bytes: report.data_bytes,
        index_files: report.index_files,
        findings: findings.collect(),
        findings_count: report.problems_count,
        repairable_count: report.repairable_count,
        unread: report.unread,
    }
}

/// The sort of a finding, for an answer that has no space for all findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sort {
    ReadError,
    Repairable,
    Other,
}

impl Sort {
    fn of(found: &Problem) -> Sort {
        match found.kind {
            ProblemKind::ReadError => Sort::ReadError,
            _ if found.remedy().is_some() => Sort::Repairable,
            _ => Sort::Other,
        }
    }
}

/// Selects the findings for an answer of limited size. No repairable finding is left out in favor
/// of one that is not, except for the first finding about the disk. Such findings keep a repair
/// from repairing anything.
fn kept(sorts: &[Sort], most: usize) -> Vec<usize> {
    let those = |sort: Sort| (0..sorts.len()).filter(move |&at| sorts[at] == sort);
    let first = most.div_ceil(20);
    let mut kept: Vec<usize> = those(Sort::ReadError)
        .take(first)
        .chain(those(Sort::Repairable))
        .chain(those(Sort::ReadError).skip(first))
        .chain(those(Sort::Other))
        .take(most)
        .collect();
    kept.sort_unstable();
    kept
}

#[cfg(test)]
mod tests {
    use super::Sort::{Other, ReadError, Repairable};
    use super::kept;

    #[test]
    fn repairable_findings_are_not_dropped_for_others() {
        let sorts = [Other, Other, Repairable, Other, Repairable];
        assert_eq!(kept(&sorts, 9), [0, 1, 2, 3, 4]);
        assert_eq!(kept(&sorts, 3), [0, 2, 4]);
        assert_eq!(kept(&sorts, 1), [2]);
    }

    #[test]
    fn obstacles_to_a_repair_are_listed_before_repairable_findings() {
        let sorts = [Repairable, Other, Repairable, ReadError, ReadError];
        assert_eq!(kept(&sorts, 5), [0, 1, 2, 3, 4]);
        assert_eq!(kept(&sorts, 3), [0, 2, 3]);
        assert_eq!(kept(&sorts, 1), [3]);
    }
}
