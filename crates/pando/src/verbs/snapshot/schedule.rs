//! `pando snapshot schedule`, `prune`, `hold` and `release`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use wire::{
    Answer, Body, Bytes, Call, Failure, FailureKind, Keep, ScheduleChange, Scheduled, Snapshot,
};

use super::list::{listed, names_of};
use crate::cli::SnapshotVerb;
use crate::failure::Result;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::{retention, session};

/// Sets, removes or shows schedules.
pub(super) fn schedule(verb: &SnapshotVerb, output: &mut Output) -> Result<()> {
    let SnapshotVerb::Schedule { dir, when, keep, prefix, off, all } = verb else {
        unreachable!("invariant: called for this verb alone")
    };
    if *all {
        let place = VolumePath::all_of_volume(dir)?;
        let mut found = asked(&place.volume, &Call::Schedules)?;
        for one in &mut found {
            one.path = Bytes(place.shown(&one.path.0));
        }
        return show(&found, output);
    }
    if *off {
        return turn_off(dir, output);
    }
    if when.is_none() && keep.is_none() && prefix.is_none() {
        let place = VolumePath::locate(dir, Last::Target)?;
        let found = of_place(&place)?;
        if found.is_empty() {
            let message = format!("{} has no schedule", printable(place.typed()));
            return Err(Failure::new(FailureKind::NotFound, message)
                .hint("`pando snapshot schedule DIR WHEN` sets one; --all lists those there are"));
        }
        return show(&found, output);
    }
    when.as_deref().map(retention::cron).transpose()?;
    let place = VolumePath::to_change(dir, Last::Target)?;
    let prefix = prefix.as_ref().map(|prefix| Bytes::from(prefix.as_bytes()));
    let change = ScheduleChange { cron: when.clone(), prefix, keep: *keep };
    let call = Call::ScheduleSet { path: &place.inner, schedule: Some(change) };
    session::perform(&place, &call)?;
    show(&of_place(&place)?, output)
}

fn turn_off(dir: &Path, output: &mut Output) -> Result<()> {
    let place = VolumePath::to_change(dir, Last::Target)?;
    session::perform(&place, &Call::ScheduleSet { path: &place.inner, schedule: None })?;
    let mut object = json!({ "schedule": null });
    output::put_bytes(&mut object, "path", place.typed());
    output.object(&object)?;
    let path = printable(place.typed());
    output.line(&format!("the schedule of {path} is ended"))
}

/// The schedule of one directory, with the path as typed.
fn of_place(place: &VolumePath) -> Result<Vec<Scheduled>> {
    let mut found = asked(place, &Call::ScheduleGet { path: &place.inner })?;
    for one in &mut found {
        one.path = Bytes::from(place.typed());
    }
    Ok(found)
}

fn asked(target: &(impl session::Target + ?Sized), call: &Call<'_>) -> Result<Vec<Scheduled>> {
    let mut found = Vec::new();
    let answer = session::call(target, call, &mut |body| {
        if let Body::Schedules(more) = body {
            found.extend(more);
        }
        Ok(())
    })?;
    let Answer::Schedules(last) = answer else { return Err(session::unexpected(&answer)) };
    found.extend(last);
    found.sort_by(|a, b| a.path.0.cmp(&b.path.0));
    Ok(found)
}

fn show(found: &[Scheduled], output: &mut Output) -> Result<()> {
    for one in found {
        let Scheduled { path, schedule, uid, last, next, failed } = one;
        let mut object = json!({
            "schedule": schedule.cron,
            "keep": retention::shown(&schedule.keep),
            "uid": uid,
            "last": output::time_rfc3339(*last),
            "next": next.map(output::time_rfc3339),
            "failed": failed,
        });
        output::put_bytes(&mut object, "path", &path.0);
        output::put_bytes(&mut object, "prefix", &schedule.prefix.0);
        output.object(&object)?;
        let next = next.map_or("never".to_owned(), output::time_local);
        output.line(&format!(
            "{}: '{}' as {}-TIME, keeps {}, next {next}",
            printable(&path.0),
            schedule.cron,
            printable(&schedule.prefix.0),
            retention::shown(&schedule.keep)
        ))?;
        if let Some(failed) = failed {
            output.line(&format!("  the last attempt failed: {}", printable(failed.as_bytes())))?;
        }
    }
    Ok(())
}

/// Deletes the snapshots that are not kept.
pub(super) fn prune(
    place: &VolumePath,
    keep: Option<Keep>,
    prefix: Option<&OsStr>,
    dry_run: bool,
    output: &mut Output,
) -> Result<()> {
    let set = asked(place, &Call::ScheduleGet { path: &place.inner })?.pop();
    let set = set.map(|one| one.schedule);
    let keep = keep.or(set.as_ref().map(|set| set.keep));
    let Some(keep) = keep.filter(|keep| *keep != Keep::default()) else {
        let message = "the number of snapshots to keep is missing";
        return Err(Failure::new(FailureKind::Invalid, message)
            .at(place.typed())
            .hint("give --keep, such as --keep 24h7d4w12m"));
    };
    let prefix = prefix.map(|prefix| prefix.as_bytes().to_vec()).or(set.map(|set| set.prefix.0));
    let prefix = prefix.unwrap_or_else(|| retention::PREFIX.into());
    let snapshots = listed(place)?;
    let timed: Vec<(Timestamp, &Snapshot)> = snapshots
        .iter()
        .filter_map(|one| Some((retention::time_of(&prefix, &one.name.0)?, one)))
        .collect();
    let times: Vec<Timestamp> = timed.iter().map(|(time, _)| *time).collect();
    let kept = retention::kept(&times, &keep, (Timestamp::now(), &TimeZone::system()));
    let (mut deleted, mut stay) = (0_u64, 0_u64);
    for ((_, snapshot), is_kept) in timed.iter().zip(kept) {
        let held = !snapshot.holds.is_empty();
        let goes = !is_kept && !held;
        if goes && !dry_run {
            let call = Call::SnapshotDeleteNumber { number: snapshot.subvolume };
            match session::perform(place, &call) {
                // The daemon pruned it, or somebody holds it now.
                Err(failure)
                    if matches!(failure.kind, FailureKind::NotFound | FailureKind::Busy) =>
                {
                    continue;
                }
                done => done?,
            }
        }
        *(if goes { &mut deleted } else { &mut stay }) += 1;
        let mut object = json!({ "deleted": goes && !dry_run, "kept": !goes, "held": held });
        output::put_bytes(&mut object, "name", &snapshot.name.0);
        output.object(&object)?;
        let name = printable(&snapshot.name.0);
        match (goes, is_kept) {
            (true, _) if dry_run => output.line(&format!("would delete {name}"))?,
            (true, _) => output.line(&format!("deleted {name}"))?,
            (false, true) if dry_run => output.line(&format!("would keep {name}"))?,
            (false, true) => {}
            (false, false) => {
                output.line(&format!("kept {name}: held by {}", names_of(snapshot)))?;
            }
        }
    }
    let did = if dry_run { "would delete" } else { "deleted" };
    let deleted = output::count(deleted, "snapshot", "snapshots");
    output.line(&format!("{did} {deleted}, kept {}", output::number(stay)))
}

/// Sets or ends a hold.
pub(super) fn hold(
    dir: &Path,
    (snapshot, is_number): (&OsStr, bool),
    name: &OsStr,
    on: bool,
    output: &mut Output,
) -> Result<()> {
    let (volume, number) = if is_number {
        let number = snapshot.to_str().and_then(|text| text.trim_start_matches('#').parse().ok());
        (VolumePath::volume_to_change(dir)?, number)
    } else {
        let place = VolumePath::to_change(dir, Last::Target)?;
        let all = listed(&place)?;
        let found = all.iter().find(|one| one.name.0 == snapshot.as_bytes());
        (place.volume, found.map(|one| one.subvolume))
    };
    let shown = printable(snapshot.as_bytes());
    let Some(number) = number else {
        let message = format!("no snapshot {shown} of {}", printable(dir.as_os_str().as_bytes()));
        return Err(Failure::new(FailureKind::NotFound, message)
            .hint("`pando snapshot list DIR` shows what there is"));
    };
    let call = Call::SnapshotHold { snapshot: number, hold: name.as_bytes(), on };
    session::perform(&volume, &call)?;
    let mut object = json!({ "number": number, "held": on });
    output::put_bytes(&mut object, "hold", name.as_bytes());
    output.object(&object)?;
    let (name, verb) = (printable(name.as_bytes()), if on { "set" } else { "released" });
    output.line(&format!("{verb} hold {name} on snapshot {shown}"))
}
