//! Schedules of snapshots: takes those that are due, and deletes those that are no longer kept.
//!
//! The daemon looks every few seconds. A schedule that became due while no daemon ran is due once
//! when one runs again. What fails is tried again later, and `snapshot schedule` shows why.

use std::collections::BTreeMap;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Timestamp};
use fs::{FsResult, ScheduleInfo, Volume};
use inode::{Caller, FsError};
use jiff::tz::TimeZone;
use wire::{Failure, Keep};

use crate::retention;

/// How often the daemon looks for what is due.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How long a schedule rests after a failure.
const REST: Duration = Duration::from_secs(60);

/// The volume, as far as its front end matters to a snapshot.
pub(super) trait FrontEnd {
    /// The volume.
    fn fs(&self) -> &Volume;

    /// Waits until everything that the kernel has handed over is in the volume.
    fn catch_up(&self);

    /// Waits until the kernel has dropped its caches of what changed.
    fn settle(&self);
}

/// What the daemon knows of schedules beside their records.
#[derive(Default)]
pub(super) struct Schedules {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When it looks next, by the monotonic clock.
    look_at: Duration,
    /// Failures by lineage and directory, and until when each schedule rests.
    failed: BTreeMap<(u64, u64), (String, Duration)>,
}

impl Schedules {
    /// Takes the snapshots that are due, if it is time to look. Returns how long until it is.
    pub(super) fn step(&self, volume: &dyn FrontEnd, clock: &dyn Clock) -> FsResult<Duration> {
        let now = clock.monotonic();
        let rest = self.state.lock().look_at.saturating_sub(now);
        if !rest.is_zero() {
            return Ok(rest);
        }
        self.state.lock().look_at = now + LOOK_EVERY;
        let all = volume.fs().schedules()?;
        let places: Vec<_> = all.iter().map(place).collect();
        self.state.lock().failed.retain(|place, _| places.contains(place));
        for info in &all {
            let rests = |state: &State| state.failed.get(&place(info)).is_some_and(|f| f.1 > now);
            if rests(&self.state.lock()) {
                continue;
            }
            match run(volume, info, clock.now()) {
                Ok(false) => {}
                Ok(true) => {
                    self.state.lock().failed.remove(&place(info));
                }
                Err(failure) => {
                    let message = failure.to_string();
                    let failed = (message.clone(), now + REST);
                    let before = self.state.lock().failed.insert(place(info), failed);
                    if before.is_none_or(|(before, _)| before != message) {
                        let (uid, directory) = (info.uid, info.directory);
                        tracing::warn!(uid, directory, %message, "a scheduled snapshot fails");
                    }
                }
            }
        }
        Ok(LOOK_EVERY)
    }

    /// Why the last attempt of a schedule failed, if it did.
    pub(super) fn failure_of(&self, info: &ScheduleInfo) -> Option<String> {
        self.state.lock().failed.get(&place(info)).map(|(message, _)| message.clone())
    }
}

fn place(info: &ScheduleInfo) -> (u64, u64) {
    (info.lineage, info.directory)
}

/// Takes the snapshot of a schedule if it is due, and deletes what it no longer keeps.
fn run(volume: &dyn FrontEnd, info: &ScheduleInfo, now: Timestamp) -> Result<bool, Failure> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
    let cron = retention::cron(&info.schedule.cron)?;
    let due = retention::last_due(&cron, &at.to_zoned(TimeZone::system()));
    if due.is_none_or(|due| due.as_nanosecond() <= i128::from(info.last.0)) {
        return Ok(false);
    }
    let fs = volume.fs();
    let Some(dir) = fs.schedule_directory(info)? else {
        fs.schedule_forget(info)?;
        return Ok(true);
    };
    volume.catch_up();
    let name = retention::name(&info.schedule.prefix, at);
    match fs.snapshot_scheduled(info, dir, &name, now) {
        // It was changed meanwhile: the next look sees the new one. A read-only volume does not
        // change, and `status` reports why it is read-only.
        Err(FsError::Stale | FsError::ReadOnly(_)) => return Ok(false),
        taken => drop(taken?),
    }
    let pruned = prune(fs, info, dir);
    // What was taken is durable even if something could not be deleted.
    fs.sync()?;
    volume.settle();
    pruned?;
    Ok(true)
}

/// Deletes the snapshots that a schedule took and no longer keeps. Those that are held stay.
fn prune(fs: &Volume, info: &ScheduleInfo, dir: inode::NodeId) -> FsResult<()> {
    let caller = info.caller();
    let prefix = &info.schedule.prefix;
    let listed = fs.snapshot_list(&Caller::root(), dir)?;
    let timed = listed.iter().filter_map(|one| Some((retention::time_of(prefix, &one.name)?, one)));
    let (times, snapshots): (Vec<_>, Vec<_>) = timed.unzip();
    let kept = retention::kept(&times, &wire_keep(&info.schedule.keep), &TimeZone::system());
    for (snapshot, _) in snapshots.iter().zip(kept).filter(|(_, kept)| !kept) {
        if !fs.holds_of(snapshot.subvol)?.is_empty() {
            continue;
        }
        match fs.snapshot_delete(&caller, dir, &snapshot.name) {
            // Another request deleted it, or holds it now.
            Ok(()) | Err(FsError::NotFound | FsError::Busy(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// What is kept, in the form that calls carry.
pub(super) fn wire_keep(keep: &fs::Keep) -> Keep {
    let fs::Keep { hours, days, weeks, months, years } = *keep;
    Keep { hours, days, weeks, months, years }
}
