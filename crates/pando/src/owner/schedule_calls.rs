//! Requests about schedules of snapshots, and about holds.

use fs::{Follow, ScheduleInfo, Volume};
use inode::{Caller, FsError, SubvolId};
use jiff::Zoned;
use wire::{Answer, Bytes, Call, Failure, FailureKind, Keep, Schedule, Scheduled};

use super::about::{Answered, about};
use super::held::Held;
use super::schedules::{Schedules, wire_keep};
use crate::retention;

const WHO_SCHEDULES: &str = "only the owner of the directory, or root, sets its schedule";

/// The requests about schedules and holds that change something.
pub(super) fn change(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match call {
        Call::ScheduleSet { path, schedule } => {
            if let Some(schedule) = schedule {
                retention::cron(&schedule.cron)?;
            }
            let schedule = schedule.as_ref().map(|schedule| fs::Schedule {
                cron: schedule.cron.clone(),
                prefix: schedule.prefix.0.clone(),
                keep: kept(&schedule.keep),
            });
            let held = Held::resolve(fs, caller, path, Follow::Yes)?;
            let set = fs.schedule_set(caller, held.entry.node, schedule.as_ref());
            set.map_err(|error| match error {
                FsError::NotFound => about(error, path).hint("it has no schedule"),
                FsError::NotPermitted(_) => about(error, path).hint(WHO_SCHEDULES),
                error => about(error, path),
            })
        }
        Call::SnapshotHold { snapshot, hold, on } => {
            let number = SubvolId(*snapshot);
            let done =
                if *on { fs.hold(caller, number, hold) } else { fs.release(caller, number, hold) };
            done.map_err(|error| {
                let name = hold.escape_ascii();
                let hint = match error {
                    FsError::Exists => format!("it has a hold called {name}"),
                    FsError::NotFound => format!("it has no hold called {name}, or was deleted"),
                    _ => return Failure::from(error),
                };
                Failure::from(error).hint(hint)
            })
        }
        _ => Err(Failure::new(FailureKind::Protocol, "an unexpected request")),
    }
}

/// The schedule of one directory.
pub(super) fn get(
    (fs, schedules): (&Volume, &Schedules),
    caller: &Caller,
    path: &[u8],
) -> Answered<Answer> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let found = fs.schedule_get(held.entry.node).map_err(|error| about(error, path))?;
    let shown = found.map(|info| shown(schedules, &info, path));
    Ok(Answer::Schedules(shown.into_iter().collect()))
}

/// The schedules of directories that the caller reaches, by path.
pub(super) fn all((fs, schedules): (&Volume, &Schedules), caller: &Caller) -> Answered<Answer> {
    let mut found = Vec::new();
    for info in fs.schedules()? {
        let Some(dir) = fs.schedule_directory(&info)? else { continue };
        let Some(path) = fs.path_of(dir)? else { continue };
        if Held::exactly(fs, caller, &path, Follow::No).is_ok() {
            found.push(shown(schedules, &info, &path));
        }
    }
    found.sort_by(|a, b| a.path.0.cmp(&b.path.0));
    Ok(Answer::Schedules(found))
}

fn shown(schedules: &Schedules, info: &ScheduleInfo, path: &[u8]) -> Scheduled {
    let now = Zoned::now();
    let next = retention::cron(&info.schedule.cron).ok();
    let next = next.and_then(|cron| retention::next_due(&cron, &now));
    Scheduled {
        path: Bytes::from(path),
        schedule: Schedule {
            cron: info.schedule.cron.clone(),
            prefix: Bytes(info.schedule.prefix.clone()),
            keep: wire_keep(&info.schedule.keep),
        },
        uid: info.uid,
        last: info.last.0,
        next: next.and_then(|next| i64::try_from(next.as_nanosecond()).ok()),
        failed: schedules.failure_of(info),
    }
}

fn kept(keep: &Keep) -> fs::Keep {
    let Keep { hours, days, weeks, months, years } = *keep;
    fs::Keep { hours, days, weeks, months, years }
}
