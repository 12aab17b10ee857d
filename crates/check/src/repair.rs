//! Repairs a volume that no other process has open.
//!
//! 1. Check it as it is (`offline`). Write the header, or its copy, again from the other: they are
//!    the same in every state. Do the same with headers of the log's files. If the store's counts
//!    or a superblock are damaged, rebuild those (`btree::repair`): without them the volume may not
//!    even open. Rebuild the damaged one of the two trees of the volume's records from the other
//!    (`record_copies`).
//! 2. Open it. Check, repair what can be repaired, each by one commit, and check again, until
//!    nothing is left to repair. Two problems that affect the same records are repaired in two
//!    rounds: what to write was decided on the state before.
//! 3. Close it, and check once more.
//!
//! Nothing is removed because it could not be read. A crash leaves the commits that survive, so the
//! next run continues.

use std::collections::BTreeSet;

use device::Env;
use inode::FsError;
use opening::{engine, header};
use store::CheckProgress;
use vfs::FsResult;
use volume::{OpenError, OpenOptions};

use super::offline::check_offline;
use super::{AboveSnapshots, Checks};
use super::{Edit, Fix, Problem, VolumeReport};

/// Most rounds: each repairs all that does not depend on another.
const ROUNDS_MAX: usize = 256;

/// Why nothing is repaired after a read error of the disk.
const FIRST_A_COPY: &str = "part of the disk cannot be read, so nothing is removed or rebuilt: \
     copy the volume to another disk, with zeros for what cannot be read, and repair the copy";

/// The result of a repair.
#[derive(Debug, Default)]
pub struct RepairReport {
    /// What was wrong before.
    pub before: VolumeReport,
    /// What was repaired, in order.
    pub repaired: Vec<Problem>,
    /// What could not be repaired, and why.
    pub failed: Vec<(Problem, String)>,
    /// Where the log was truncated, and what was lost by that.
    pub cut: Option<store::Cut>,
    /// What is wrong now.
    pub after: VolumeReport,
}

impl RepairReport {
    /// Ends a repair before it began, because of a read error of the disk.
    fn nothing_for_unread(&mut self) {
        let fixable = self.before.problems.iter().filter(|problem| problem.fix.is_some());
        self.failed.extend(fixable.map(|problem| (problem.clone(), FIRST_A_COPY.to_owned())));
        self.after = self.before.clone();
    }
}

/// How a volume is repaired.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repair {
    /// Report what would be done, and change nothing.
    Report,
    /// Repair.
    Do,
    /// Repair, and truncate a damaged log: acknowledged changes after the damage are lost.
    DoAndCutLog,
}

/// Whether a problem is repaired before the volume is opened, or not here at all.
fn is_below(fix: &Fix) -> bool {
    use Fix::{Checkpoint, Engine, Header, Log, LogHeader, VolumeRecords};
    matches!(fix, Header | LogHeader | Engine | Log | VolumeRecords | Checkpoint)
}

/// Repairs what must be repaired before the volume is opened; returns whether none of it is left.
fn below(
    repaired: &mut RepairReport,
    fix: &Fix,
    repair: impl FnOnce() -> Result<(), OpenError>,
) -> Result<bool, OpenError> {
    let found = repaired.before.problems.iter().filter(|found| found.fix.as_ref() == Some(fix));
    let found: Vec<Problem> = found.cloned().collect();
    if found.is_empty() {
        return Ok(true);
    }
    match repair() {
        Ok(()) => {
            repaired.repaired.extend(found);
            Ok(true)
        }
        Err(
            error @ (OpenError::Damaged(_)
            | OpenError::HeaderDamaged(_)
            | OpenError::Inconsistent(_)
            | OpenError::Missing { .. }),
        ) => {
            let failed = found.into_iter().map(|found| (found, error.to_string()));
            repaired.failed.extend(failed);
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// Repairs a volume that no process has open; the caller keeps others from opening it
/// meanwhile.
pub fn repair(
    env: &Env,
    above_snapshots: AboveSnapshots,
    how: Repair,
    progress: CheckProgress<'_>,
) -> Result<RepairReport, OpenError> {
    let before = check_offline(env, above_snapshots, progress)?;
    let mut repaired = RepairReport { before, ..RepairReport::default() };
    if how == Repair::Report || repaired.before.is_clean() || repaired.before.stopped {
        repaired.after = repaired.before.clone();
        return Ok(repaired);
    }
    if repaired.before.unread {
        repaired.nothing_for_unread();
        return Ok(repaired);
    }
    below(&mut repaired, &Fix::Header, || header::repair(env))?;
    // Then the log: the rest refers to the state that is left. If the log is not truncated,
    // nothing else is done either. Rewriting a superblock would make the state that was found the
    // newest, and the log that of another state. Yet the log may be the one that is right.
    let mut can_continue =
        below(&mut repaired, &Fix::LogHeader, || engine::repair_log(env, &header::find(env)?))?;
    let damaged_log = repaired.before.problems.iter().any(|one| one.fix == Some(Fix::Log));
    let mut cut = None;
    let mut cut_log = || {
        cut = Some(engine::cut_log(env, &header::find(env)?)?);
        Ok(())
    };
    if damaged_log {
        can_continue = how == Repair::DoAndCutLog && below(&mut repaired, &Fix::Log, &mut cut_log)?;
    }
    repaired.cut = cut;
    if !can_continue {
        repaired.after = if repaired.repaired.is_empty() {
            repaired.before.clone()
        } else {
            check_offline(env, above_snapshots, progress)?
        };
        return Ok(repaired);
    }
    below(&mut repaired, &Fix::Engine, || engine::repair(env, &header::find(env)?))?;
    below(&mut repaired, &Fix::VolumeRecords, || {
        engine::renew_volume_records(env, &header::find(env)?)
    })?;
    let options = OpenOptions { index: None, ..OpenOptions::default() };
    match header::find(env)
        .and_then(|header| super::open(env.clone(), header, &options, |store| store))
    {
        Ok(fs) => {
            let done = match fs.kept_from() {
                // What prevents changes is reported below, and by the next check.
                Some(why) => {
                    Checks::of(&fs, above_snapshots).fail_all(&mut repaired, why, progress)
                }
                None => Checks::of(&fs, above_snapshots).repair_all(&mut repaired, progress),
            };
            let done = done.and_then(|()| fs.close());
            done.map_err(OpenError::inconsistent)?;
        }
        Err(
            OpenError::Damaged(_)
            | OpenError::HeaderDamaged(_)
            | OpenError::Missing { .. }
            | OpenError::Inconsistent(_)
            | OpenError::NotAVolume,
        ) => {}
        Err(error) => return Err(error),
    }
    repaired.after = check_offline(env, above_snapshots, progress)?;
    Ok(repaired)
}

impl Checks<'_> {
    /// Records, for everything repairable in a volume that opens for reading only, why it is not
    /// repaired. If both trees of its records are damaged, that was already reported and prevents
    /// the other repairs. `why` refers to one of the trees, and advises what the caller is already
    /// doing.
    fn fail_all(
        self,
        repaired: &mut RepairReport,
        why: &str,
        progress: CheckProgress<'_>,
    ) -> FsResult<()> {
        let report = self.check_volume(progress)?;
        let own =
            repaired.failed.iter().find(|(problem, _)| problem.fix == Some(Fix::VolumeRecords));
        let own = own.map(|(_, why)| why.clone());
        let is_new = |problem: &Problem| match &problem.fix {
            None => false,
            Some(fix) => own.is_none() || *fix != Fix::VolumeRecords,
        };
        let why = own.as_deref().unwrap_or(why);
        let found = report.problems.into_iter().filter(is_new);
        repaired.failed.extend(found.map(|problem| (problem, why.to_owned())));
        Ok(())
    }

    /// Repairs in rounds, until a check finds nothing repairable.
    fn repair_all(self, repaired: &mut RepairReport, progress: CheckProgress<'_>) -> FsResult<()> {
        // A repair that was done once is not repeated if its problem is found again.
        let mut tried: BTreeSet<String> = BTreeSet::new();
        for _ in 0..ROUNDS_MAX {
            let report = self.check_volume(progress)?;
            if report.stopped || report.unread {
                break;
            }
            let mut touched: BTreeSet<(u64, Vec<u8>)> = BTreeSet::new();
            let mut done = 0;
            // First the repairs decided on the records as they are, then those that read them
            // again.
            let (edits, others): (Vec<_>, Vec<_>) = report
                .problems
                .into_iter()
                .partition(|problem| matches!(problem.fix, Some(Fix::Edits(..))));
            for problem in edits.into_iter().chain(others) {
                let Some(fix) = problem.fix.clone().filter(|fix| !is_below(fix)) else {
                    continue;
                };
                if let Fix::Edits(_, edits) = &fix {
                    let keys = edits.iter().map(|edit| match edit {
                        Edit::Put(tree, key, _) | Edit::Delete(tree, key) => (tree.0, key.clone()),
                    });
                    let keys: Vec<_> = keys.collect();
                    if keys.iter().any(|key| touched.contains(key)) {
                        done += 1;
                        continue;
                    }
                    touched.extend(keys);
                }
                if !tried.insert(format!("{fix:?}")) {
                    continue;
                }
                done += 1;
                match self.apply_fix(&fix) {
                    Ok(()) => repaired.repaired.push(problem),
                    Err(error @ (FsError::NoSpace | FsError::ReadOnly(_))) => return Err(error),
                    Err(error) => repaired.failed.push((problem, error.to_string())),
                }
            }
            if done == 0 {
                break;
            }
        }
        self.sync()?;
        self.store.checkpoint().map_err(volume::error::from_store)?;
        Ok(())
    }
}
