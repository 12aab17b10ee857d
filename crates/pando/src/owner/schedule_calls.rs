//! Requests about schedules of snapshots, and about holds.

use fs::{Follow, ScheduleInfo, Volume};
use inode::{Caller, FsError, SubvolId};
use jiff::Zoned;
use wire::{Answer, Body, Bytes, Call, Failure, FailureKind, Keep, Schedule, Scheduled};

use super::about::{Answered, about};
use super::connection::Replies;
use super::held::Held;
use super::schedules::{Schedules, wire_keep};
use crate::retention;

/// Approximate bytes of schedules in one message, and of one without its path.
const PART_BYTES: usize = 64 << 10;
const SCHEDULE_BYTES: usize = 400;

const WHO_SCHEDULES: &str = "only the owner of the directory, or root, sets its schedule";

/// The requests about schedules and holds that change something.
pub(super) fn change(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match call {
        Call::ScheduleSet { path, schedule } => {
            if let Some(schedule) = schedule {
                let cron = retention::cron(&schedule.cron)?;
                if retention::next_due(&cron, &Zoned::now()).is_none() {
                    let message = format!("'{}' never comes", schedule.cron);
                    return Err(Failure::new(FailureKind::Invalid, message)
                        .hint("there is no day with that number in those months"));
                }
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

/// Sends the schedules of directories that the caller reaches.
pub(super) fn all(
    (fs, schedules): (&Volume, &Schedules),
    caller: &Caller,
    replies: &mut Replies,
) -> Answered<Answer> {
    let (mut part, mut bytes) = (Vec::new(), 0);
    for info in fs.schedules()? {
        let Some(dir) = fs.schedule_directory(&info)? else { continue };
        let Some(path) = fs.path_of(dir)? else { continue };
        if Held::exactly(fs, caller, &path, Follow::No).is_ok() {
            bytes += SCHEDULE_BYTES + path.len();
            part.push(shown(schedules, &info, &path));
        }
        if bytes >= PART_BYTES {
            bytes = 0;
            replies.part(Body::Schedules(std::mem::take(&mut part)))?;
        }
    }
    if !part.is_empty() {
        replies.part(Body::Schedules(part))?;
    }
    Ok(Answer::Schedules(Vec::new()))
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
