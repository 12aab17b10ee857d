//! Requests about schedules of snapshots, and about holds.

use fs::{Follow, ScheduleInfo, Volume};
use inode::{Caller, FsError, NodeId, SubvolId};
use jiff::Zoned;
use wire::{
    Answer, Body, Bytes, Call, Failure, FailureKind, Keep, Schedule, ScheduleChange, Scheduled,
};

use super::about::{Answered, about};
use super::held::Held;
use super::parts::{Parts, fitting};
use super::replies::Replies;
use super::schedules::{Schedules, wire_keep};
use crate::retention;

/// Approximate bytes of a schedule without its path.
const SCHEDULE_BYTES: usize = 400;

const WHO_SCHEDULES: &str = "only the owner of the directory, or root, sets its schedule";

/// The requests about schedules and holds that change something.
pub(super) fn change(fs: &Volume, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    match call {
        Call::ScheduleSet { path, schedule } => {
            let held = Held::resolve(fs, caller, path, Follow::Yes)?;
            let change = |change| changed(fs, (held.entry.node, path), change);
            let schedule = schedule.as_ref().map(change).transpose()?;
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

/// A schedule after a change: what is not named stays as it was set.
fn changed(
    fs: &Volume,
    (node, path): (NodeId, &[u8]),
    change: &ScheduleChange,
) -> Answered<fs::Schedule> {
    let before = fs.schedule_get(node).map_err(|error| about(error, path))?;
    let before = before.map(|info| info.schedule);
    let cron = change.cron.clone().or(before.as_ref().map(|before| before.cron.clone()));
    let Some(cron) = cron else {
        let failure = Failure::new(FailureKind::NotFound, "it has no schedule yet").at(path);
        return Err(failure.hint("name when, as in `pando snapshot schedule DIR @daily`"));
    };
    if retention::next_due(&retention::cron(&cron)?, &Zoned::now()).is_none() {
        return Err(Failure::new(FailureKind::Invalid, format!("'{cron}' never comes"))
            .hint("there is no day with that number in those months"));
    }
    let prefix = change.prefix.as_ref().map(|prefix| prefix.0.clone());
    let prefix = prefix.or(before.as_ref().map(|before| before.prefix.clone()));
    let keep = change.keep.as_ref().map(kept).or(before.map(|before| before.keep));
    Ok(fs::Schedule {
        cron,
        prefix: prefix.unwrap_or_else(|| retention::PREFIX.into()),
        keep: keep.unwrap_or_default(),
    })
}

/// The schedule of one directory.
pub(super) fn get(
    (fs, schedules): (&Volume, &Schedules),
    caller: &Caller,
    path: &[u8],
) -> Answered<Answer> {
    let held = Held::resolve(fs, caller, path, Follow::Yes)?;
    let found = fs.schedule_get(held.entry.node).map_err(|error| about(error, path))?;
    let shown = found.map(|info| shown(schedules, &info, Bytes::from(path)));
    Ok(Answer::Schedules(shown.into_iter().collect()))
}

/// Sends the schedules of directories that the caller reaches.
pub(super) fn all(
    (fs, schedules): (&Volume, &Schedules),
    caller: &Caller,
    replies: &mut Replies,
) -> Answered<Answer> {
    let mut parts = Parts::new(replies, Body::Schedules);
    for info in fs.schedules()? {
        let Some(dir) = fs.schedule_directory(&info)? else { continue };
        let Some(path) = fs.path_of(dir)? else { continue };
        if Held::is_seen(fs, caller, &path)? {
            let one = shown(schedules, &info, fitting(path));
            let bytes = SCHEDULE_BYTES + one.path.0.len();
            parts.push(one, bytes)?;
        }
    }
    parts.end()?;
    Ok(Answer::Schedules(Vec::new()))
}

fn shown(schedules: &Schedules, info: &ScheduleInfo, path: Bytes) -> Scheduled {
    let now = Zoned::now();
    let next = retention::cron(&info.schedule.cron).ok();
    let next = next.and_then(|cron| retention::next_due(&cron, &now));
    Scheduled {
        path,
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
