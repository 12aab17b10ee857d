//! `pando rmr`: removes trees, each detached at once; with `--wait`, waits until the space of
//! their contents is reclaimed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::json;
use wire::{Answer, Background, Call, Failure, FailureKind, Status, Stuck};

use crate::cli::RmrArgs;
use crate::failure::Result;
use crate::interrupt;
use crate::output::{self, Output, printable};
use crate::place::{Last, VolumePath};
use crate::session;

pub(crate) fn run(args: &RmrArgs, output: &mut Output) -> Result<()> {
    let mut volumes: Vec<Removals> = Vec::new();
    for path in &args.paths {
        let place = VolumePath::to_change(path, Last::Name)?;
        if args.wait && volumes.iter().all(|removals| removals.volume != place.volume) {
            let stuck = status(&place.volume)?.stuck.filter(|stuck| !is_for_space(stuck));
            let stuck_before = stuck.map_or(0, |stuck| stuck.trees);
            let volume = place.volume.clone();
            volumes.push(Removals { volume, stuck_before, trees: Vec::new() });
        }
        let call = Call::Remove { path: &place.inner };
        let (snapshots, detached) = match session::ask(&place, &call)? {
            Answer::Removed { snapshots, detached } => (snapshots, detached),
            other => return Err(session::unexpected(&other)),
        };
        let removals = volumes.iter_mut().find(|removals| removals.volume == place.volume);
        if let Some(removals) = removals.filter(|_| detached != 0) {
            removals.trees.push(detached);
        }
        let mut object = json!({ "snapshots": snapshots });
        output::put_bytes(&mut object, "removed", place.typed());
        output.object(&object)?;
        output.line(&format!("removed {}", printable(place.typed())))?;
        if snapshots > 0 {
            let volume = place.volume.display();
            output.remark(&format!(
                "its snapshots remain, and keep their space: {}\n  \
                 `pando snapshot list {volume} --removed` lists them; \
                 `pando snapshot delete {volume} --number N` deletes one",
                output::number(snapshots)
            ));
        }
    }
    output.flush()?;
    // If one volume keeps its space, the command still waits for the others.
    let mut waited = Ok(());
    for removals in volumes {
        waited = waited.and(wait(removals, output));
    }
    waited
}

/// The trees removed from a volume.
struct Removals {
    volume: PathBuf,
    /// How many trees could not be reclaimed before.
    stuck_before: u64,
    /// The numbers of the trees that wait to be reclaimed.
    trees: Vec<u64>,
}

/// How many trees wait, are held, and cannot be reclaimed. Finished trees are dropped from
/// `removed`.
fn waiting(volume: &Path, removed: &mut Vec<u64>) -> Result<(u64, u64, u64)> {
    let mut all = (0, 0, 0);
    let mut left = Vec::new();
    for &detached in &*removed {
        match ask(volume, &Call::Reclaiming { detached })? {
            Answer::Reclaiming { trees: 0, .. } => {}
            Answer::Reclaiming { trees, held, stuck } => {
                all = (all.0 + trees, all.1 + held, all.2 + stuck);
                left.push(detached);
            }
            other => return Err(session::unexpected(&other)),
        }
    }
    *removed = left;
    Ok(all)
}

/// Repeats the request for a while, until the daemon answers. The user may have as many other
/// requests under way as one user may have. The removal continues all the same. A volume that
/// another daemon has open now stays busy, and that is the error.
fn ask(volume: &Path, call: &Call<'_>) -> Result<Answer> {
    let clock = SystemClock::new();
    let until = clock.monotonic() + BUSY_PATIENCE;
    loop {
        match session::ask(volume, call) {
            Err(failure) if failure.kind == FailureKind::Busy && clock.monotonic() < until => {
                clock.sleep(BUSY_PAUSE);
            }
            answered => return answered,
        }
    }
}

fn status(volume: &Path) -> Result<Box<Status>> {
    match ask(volume, &Call::Status)? {
        Answer::Status(status) => Ok(status),
        other => Err(session::unexpected(&other)),
    }
}

/// Whether everything that waits is stuck for lack of space.
fn is_for_space(stuck: &Stuck) -> bool {
    stuck.failure.kind == FailureKind::NoSpace
}

/// Between two attempts to ask a busy daemon, which has waited for a while itself.
const BUSY_PAUSE: Duration = Duration::from_millis(200);

/// How long a busy daemon is asked again.
const BUSY_PATIENCE: Duration = Duration::from_secs(60);

/// How long to wait while there is no space: the removed trees may free some.
const SPACE_PATIENCE: Duration = Duration::from_secs(12);

/// The failure when a removed tree keeps its space.
fn cannot(volume: &Path, stuck: Stuck) -> Failure {
    let Stuck { trees, failure } = stuck;
    if failure.kind == FailureKind::NoSpace {
        let message =
            "what was removed cannot be reclaimed now, because that itself needs some space";
        return Failure::new(failure.kind, format!("{message}: {}", failure.message)).hint(
            "it stays removed: free space on the disk of the volume; the daemon tries again every \
             second to reclaim the rest",
        );
    }
    let (trees, hold) = match trees {
        1 => ("a tree that was removed cannot be reclaimed".to_owned(), "it keeps its space"),
        more => {
            let trees = output::count(more, "tree that was removed", "trees that were removed");
            (format!("{trees} cannot be reclaimed"), "they keep their space")
        }
    };
    let message = format!("{trees}, and {hold}: {}", failure.message);
    let explained = Failure::new(failure.kind, message);
    if failure.kind == FailureKind::Damaged {
        let volume = volume.display();
        return explained.hint(format!(
            "`pando fsck {volume}` names what is damaged, and repairs with `--repair` what can be \
             repaired; the daemon of the volume tries again every minute"
        ));
    }
    explained.hint("the daemon of the volume tries again every minute")
}

/// Shows the progress of reclaiming until the space of the removed trees is free. Reclaiming
/// continues after an interrupt. The command does not wait for trees removed by others, nor for
/// trees that cannot be reclaimed. Without free space nothing can be reclaimed.
fn wait(removals: Removals, output: &mut Output) -> Result<()> {
    let Removals { volume, stuck_before, mut trees } = removals;
    let volume = &volume;
    let clock = SystemClock::new();
    let bar = output.progress("records reclaimed");
    interrupt::exits_with(
        "what was removed stays removed; its space is reclaimed in the background",
        &format!("`pando status {}` shows how far that is", volume.display()),
        &bar,
        output,
    )?;
    let (mut first, mut enough) = (None, None);
    let begin = clock.monotonic();
    loop {
        // Queried first: a tree that is reclaimed meanwhile is then among those that are dropped.
        let (own, held, own_stuck) = waiting(volume, &mut trees)?;
        let Status { background, stuck, .. } = *status(volume)?;
        if let Some(stuck) = &stuck
            && is_for_space(stuck)
            && clock.monotonic().saturating_sub(begin) >= SPACE_PATIENCE
        {
            bar.finish_and_clear();
            return Err(cannot(volume, stuck.clone()));
        }
        // Without free space everything that waits is stuck, and the removed trees may free some.
        let stuck = stuck.filter(|stuck| !is_for_space(stuck));
        let stuck_trees = stuck.as_ref().map_or(0, |stuck| stuck.trees);
        let Background { dropping, prunes, reclaimed, freeing_bytes, freed_bytes, .. } = background;
        let others_stuck = stuck_trees.saturating_sub(own_stuck);
        let left = own - own_stuck + (dropping + prunes).saturating_sub(others_stuck);
        let start = *first.get_or_insert(reclaimed);
        bar.set_position(reclaimed.saturating_sub(start));
        if held > 0 {
            let held = output::number(held);
            bar.set_message(format!("{held} held by open files or working directories"));
        } else if left > 0 {
            bar.set_message(format!("{} left", output::count(left, "tree", "trees")));
        } else {
            bar.set_message(format!("{} to give back", output::size(freeing_bytes)));
        }
        if enough.is_none() && left == 0 && !background.collecting {
            enough = Some(freed_bytes + freeing_bytes);
        }
        if enough.is_some_and(|enough| freeing_bytes == 0 || freed_bytes >= enough) {
            bar.finish_and_clear();
            let stuck = stuck.filter(|stuck| stuck.trees > stuck_before);
            return stuck.map_or(Ok(()), |stuck| Err(cannot(volume, stuck)));
        }
        clock.sleep(Duration::from_millis(50));
    }
}
