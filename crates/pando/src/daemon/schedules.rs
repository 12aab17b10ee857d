//! Schedules of snapshots: takes those that are due, and deletes those that are no longer kept.
//!
//! The daemon looks every few seconds. A schedule that became due while no daemon ran is due once
//! when one runs again. A step that fails is tried again after a rest, and `snapshot schedule`
//! shows why. That is the snapshot itself, or what follows it: old ones are deleted, and all
//! becomes durable. Old ones are deleted also after one that could not be taken: on a full disk
//! that makes the space for it. A daemon that starts does not know what failed to follow the last
//! snapshot; the next one makes up for it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Timestamp};
use fs::{FsResult, ScheduleInfo, Volume};
use inode::{Caller, FsError};
use jiff::tz::TimeZone;
use nix::unistd::{Gid, Uid, User, getgrouplist};
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
    known: BTreeMap<(u64, u64), Known>,
}

/// What is known of one schedule, by its lineage and directory, as long as it is the same.
#[derive(Clone)]
struct Known {
    last: Timestamp,
    /// Nothing is to be done before this time, in nanoseconds since 1970; `None`: ever.
    next: Option<i128>,
    /// Why the last attempt failed, and until when the schedule rests.
    failed: Option<(String, Duration)>,
    /// The snapshot of `last` was taken, and what follows it failed.
    is_unfinished: bool,
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
        let lasts: BTreeMap<_, _> = all.iter().map(|info| (place(info), info.last)).collect();
        self.state.lock().known.retain(|place, known| lasts.get(place) == Some(&known.last));
        for info in &all {
            if self.is_idle(info, now, clock.now()) {
                continue;
            }
            // It stays there meanwhile: `failure_of` reports it until it has passed.
            let before = self.state.lock().known.get(&place(info)).cloned();
            let (failed, was_unfinished) =
                before.map_or((None, false), |known| (known.failed, known.is_unfinished));
            let wall = clock.now();
            let known = match run(volume, info, was_unfinished, wall) {
                Ok(Ran::NotDue(next)) => {
                    Known { last: info.last, next, failed, is_unfinished: was_unfinished }
                }
                Ok(Ran::Done) => {
                    // One schedule a step: unmounting waits for a step.
                    let mut state = self.state.lock();
                    state.known.remove(&place(info));
                    state.look_at = now;
                    return Ok(Duration::ZERO);
                }
                Err(Failed { failure, is_taken }) => {
                    // tidy: compares words: only what the log repeats depends on them.
                    let message = failure.to_string();
                    if failed.is_none_or(|(before, _)| before != message) {
                        let (uid, directory) = (info.uid, info.directory);
                        tracing::warn!(uid, directory, %message, "a snapshot schedule fails");
                    }
                    let last = if is_taken { wall } else { info.last };
                    let is_unfinished = is_taken || was_unfinished;
                    let failed = Some((message, now + REST));
                    Known { last, next: Some(0), failed, is_unfinished }
                }
            };
            self.state.lock().known.insert(place(info), known);
        }
        Ok(LOOK_EVERY)
    }

    /// Whether nothing is to be done for a schedule at this time.
    fn is_idle(&self, info: &ScheduleInfo, now: Duration, wall: Timestamp) -> bool {
        let state = self.state.lock();
        state.known.get(&place(info)).is_some_and(|known| {
            let is_early = known.next.is_none_or(|next| i128::from(wall.0) < next);
            is_early || known.failed.as_ref().is_some_and(|(_, until)| *until > now)
        })
    }

    /// Why the last attempt of a schedule failed, if it did.
    pub(super) fn failure_of(&self, info: &ScheduleInfo) -> Option<String> {
        let state = self.state.lock();
        let known = state.known.get(&place(info)).filter(|known| known.last == info.last)?;
        known.failed.as_ref().map(|(message, _)| message.clone())
    }
}

/// What was done for a schedule.
enum Ran {
    /// Nothing: it is not due before this time, in nanoseconds since 1970; `None`: ever.
    NotDue(Option<i128>),
    /// A snapshot was taken, or what follows one was tried again; nothing of it is left to do.
    Done,
}

fn place(info: &ScheduleInfo) -> (u64, u64) {
    (info.lineage, info.directory)
}

/// Why a schedule failed, and whether its snapshot was taken nevertheless.
struct Failed {
    failure: Failure,
    is_taken: bool,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed { failure, is_taken: false }
    }
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Failed {
        Failure::from(error).into()
    }
}

/// Takes the snapshot of a schedule if it is due, and deletes what it no longer keeps. It also
/// deletes if that `is_unfinished` since the last snapshot, whether or not one is due. It does so
/// even if the snapshot could not be taken. Deleting may be what it needs, and never goes below
/// what is kept.
fn run(
    volume: &dyn FrontEnd,
    info: &ScheduleInfo,
    is_unfinished: bool,
    now: Timestamp,
) -> Result<Ran, Failed> {
    let at = jiff::Timestamp::from_nanosecond(i128::from(now.0)).unwrap_or_default();
    let cron = retention::cron(&info.schedule.cron)?;
    let local = at.to_zoned(TimeZone::system());
    let next = || Ran::NotDue(retention::next_due(&cron, &local).map(|next| next.as_nanosecond()));
    let due = retention::last_due(&cron, &local);
    // A `last` in the future was noted by a clock that was wrong.
    let is_due =
        info.last > now || due.is_some_and(|due| due.as_nanosecond() > i128::from(info.last.0));
    if !is_due && !is_unfinished {
        return Ok(next());
    }
    let fs = volume.fs();
    let Some(dir) = fs.schedule_directory(info)? else {
        // It was removed; a rollback may bring it back.
        fs.schedule_forget(info)?;
        return Ok(next());
    };
    let groups = groups_of(info);
    let mut taken = Ok(());
    if is_due {
        volume.catch_up();
        let name = retention::name(&info.schedule.prefix, at);
        match fs.snapshot_scheduled((info, groups.clone()), dir, &name, now) {
            Ok(_) => {}
            // It was changed meanwhile: the next look sees the new one.
            Err(FsError::Stale) => return Ok(Ran::NotDue(Some(0))),
            // It does not change, and `status` reports why.
            Err(FsError::ReadOnly(_)) => {
                return Ok(Ran::NotDue(Some(i128::from(now.0) + REST.as_nanos() as i128)));
            }
            Err(error) => taken = Err(error),
        }
    }
    let is_taken = is_due && taken.is_ok();
    let pruned = prune(fs, (info, groups), dir, at);
    // A snapshot that was taken is durable even if something could not be deleted.
    let synced = fs.sync();
    volume.settle();
    taken?;
    let failed = |failure| Failed { failure, is_taken };
    synced.map_err(|error| failed(error.into()))?;
    pruned.map_err(|error| {
        let failure = Failure::from(error);
        let message = format!("cannot delete what it no longer keeps: {}", failure.message);
        failed(Failure { message, ..failure })
    })?;
    Ok(Ran::Done)
}

/// The groups of the user who set a schedule, as a login would have them.
fn groups_of(info: &ScheduleInfo) -> Vec<u32> {
    let user = User::from_uid(Uid::from_raw(info.uid)).ok().flatten();
    let name = user.and_then(|user| CString::new(user.name).ok());
    let groups = name.and_then(|name| getgrouplist(&name, Gid::from_raw(info.gid)).ok());
    groups.unwrap_or_default().into_iter().map(Gid::as_raw).collect()
}

/// Deletes the snapshots that a schedule took and no longer keeps. Those that are held stay. One
/// that cannot be deleted keeps no other; the first failure is returned.
fn prune(
    fs: &Volume,
    (info, groups): (&ScheduleInfo, Vec<u32>),
    dir: inode::NodeId,
    now: jiff::Timestamp,
) -> FsResult<()> {
    if info.schedule.keep == fs::Keep::default() {
        return Ok(());
    }
    let caller = info.caller(groups);
    let prefix = &info.schedule.prefix;
    let listed = fs.snapshot_list(&Caller::root(), dir)?;
    let timed = listed.iter().filter_map(|one| Some((retention::time_of(prefix, &one.name)?, one)));
    let (times, snapshots): (Vec<_>, Vec<_>) = timed.unzip();
    let kept = retention::kept(&times, &wire_keep(&info.schedule.keep), (now, &TimeZone::system()));
    let delete = |snapshot: &fs::SnapshotInfo| {
        if !fs.holds_of(snapshot.subvol)?.is_empty() {
            return Ok(());
        }
        match fs.snapshot_delete_number(&caller, snapshot.subvol) {
            // Another request deleted it, or holds it now.
            Err(FsError::NotFound | FsError::Busy(_)) => Ok(()),
            deleted => deleted,
        }
    };
    let mut done = Ok(());
    for (snapshot, _) in snapshots.iter().zip(kept).filter(|(_, kept)| !kept) {
        done = done.and(delete(snapshot));
    }
    done
}

/// What is kept, in the form that calls carry.
pub(super) fn wire_keep(keep: &fs::Keep) -> Keep {
    let fs::Keep { hours, days, weeks, months, years } = *keep;
    Keep { hours, days, weeks, months, years }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fs::{FileSystem, NewNode, Schedule};
    use inode::{NodeId, SetAttr};
    use store::{Batch, Commit, TreeId};
    use testing::{MemStore, SimClock};

    use super::*;
    use crate::daemon::fresh;

    const VOLUME: TreeId = TreeId(format::key::VOLUME_TREE);

    struct Front(Volume);

    impl FrontEnd for Front {
        fn fs(&self) -> &Volume {
            &self.0
        }

        fn catch_up(&self) {}

        fn settle(&self) {}
    }

    /// A schedule whose user may not take snapshots any more takes none and reports why; it rests,
    /// and continues when the user may again.
    #[test]
    fn a_schedule_that_fails_reports_why_and_recovers() {
        let (front, schedules, clock) =
            (Front(fresh::volume()), Schedules::default(), SimClock::new());
        let (fs, root) = (&front.0, Caller::root());
        let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
        let owned_by = |uid| {
            let changes = SetAttr { uid: Some(uid), ..SetAttr::default() };
            fs.setattr(&root, dir, &changes).unwrap();
        };
        owned_by(1000);
        let user = Caller { uid: 1000, gid: 1000, ..Caller::root() };
        let (cron, prefix) = ("* * * * *".to_owned(), b"mine".to_vec());
        let schedule = Schedule { cron, prefix, keep: fs::Keep::default() };
        fs.schedule_set(&user, dir, Some(&schedule)).unwrap();
        let step = |seconds| {
            clock.advance(Duration::from_secs(seconds));
            schedules.step(&front, &clock).unwrap();
            let failed = schedules.failure_of(&fs.schedules().unwrap()[0]);
            (fs.snapshot_list(&root, dir).unwrap().len(), failed)
        };
        assert_eq!(step(1), (0, None), "it is not due");
        owned_by(1001);
        let (taken, failed) = step(61);
        assert_eq!(taken, 0);
        assert!(failed.as_ref().is_some_and(|why| why.contains("owner")), "{failed:?}");
        owned_by(1000);
        assert_eq!(step(30), (0, failed), "it rests");
        assert_eq!(step(31), (1, None));
        assert_eq!(step(61), (2, None));
        fs.forget(dir, 1);
    }

    /// If old snapshots cannot be deleted after one was taken, the schedule reports it and rests.
    /// Then it deletes them, long before the next one is due.
    #[test]
    fn a_deletion_that_fails_is_reported_and_tried_again() {
        let store = Arc::new(MemStore::new());
        let front = Front(fresh::volume_on(Arc::clone(&store)));
        let (schedules, clock) = (Schedules::default(), SimClock::new());
        let (fs, root) = (&front.0, Caller::root());
        let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
        let keep = fs::Keep { hours: 1, ..fs::Keep::default() };
        let schedule = Schedule { cron: "@hourly".to_owned(), prefix: b"a".to_vec(), keep };
        fs.schedule_set(&root, dir, Some(&schedule)).unwrap();
        let step = |seconds| {
            clock.advance(Duration::from_secs(seconds));
            schedules.step(&front, &clock).unwrap();
            schedules.failure_of(&fs.schedules().unwrap()[0])
        };
        let count = || fs.snapshot_list(&root, dir).unwrap().len();
        assert_eq!((step(3600), count()), (None, 1));
        // The name of a snapshot that does not exist: no list can be made.
        let info = fs.schedules().unwrap().remove(0);
        let key = format::key::snapshot_name(info.lineage, info.directory, b"bad");
        let mut batch = Batch::new();
        batch.put(VOLUME, &key, b"bad");
        store.commit(&batch).unwrap();
        let failed = step(3600);
        assert!(failed.as_ref().is_some_and(|why| why.contains("cannot delete")), "{failed:?}");
        let mut batch = Batch::new();
        batch.delete(VOLUME, &key);
        store.commit(&batch).unwrap();
        assert_eq!(count(), 2, "one was taken");
        assert_eq!((step(30), count()), (failed, 2), "it rests");
        assert_eq!((step(31), count()), (None, 1), "it is tried again");
        fs.forget(dir, 1);
    }

    /// A schedule that keeps one snapshot an hour, and what a step shows of it.
    fn hourly(fs: &Volume) -> NodeId {
        let dir = fs.mkdir(&Caller::root(), NodeId::ROOT, b"d", 0o755).unwrap().node;
        let keep = fs::Keep { hours: 1, ..fs::Keep::default() };
        let schedule = Schedule { cron: "@hourly".to_owned(), prefix: b"a".to_vec(), keep };
        fs.schedule_set(&Caller::root(), dir, Some(&schedule)).unwrap();
        dir
    }

    /// A snapshot that cannot be taken does not keep the old ones from being deleted: on a full
    /// disk that is what it needs.
    #[test]
    fn old_snapshots_are_deleted_also_if_none_can_be_taken() {
        let (front, schedules, clock) =
            (Front(fresh::volume()), Schedules::default(), SimClock::new());
        let (fs, root) = (&front.0, Caller::root());
        let dir = hourly(fs);
        let step = |seconds| {
            clock.advance(Duration::from_secs(seconds));
            schedules.step(&front, &clock).unwrap();
            schedules.failure_of(&fs.schedules().unwrap()[0])
        };
        let take = |later: i64| {
            let at = clock.now().0 + later * 1_000_000_000;
            let at = jiff::Timestamp::from_nanosecond(i128::from(at)).unwrap();
            fs.snapshot_create(&root, dir, &retention::name(b"a", at)).unwrap();
        };
        let count = || fs.snapshot_list(&root, dir).unwrap().len();
        assert_eq!((step(3600), count()), (None, 1));
        take(600);
        // What is due has the name of this one.
        take(3600);
        let failed = step(3600);
        assert!(failed.as_ref().is_some_and(|why| !why.contains("cannot delete")), "{failed:?}");
        assert_eq!(count(), 1, "the newest is kept");
        assert_eq!((step(61), count()), (None, 1), "it is taken, and replaces the other one");
        fs.forget(dir, 1);
    }

    /// A full disk: no part of a snapshot is there, it is reported, and with space it is taken.
    #[test]
    fn a_schedule_on_a_full_disk_takes_nothing_in_part_and_continues() {
        for engine in fs::Engine::ALL {
            let env = testing::sim_env(7);
            let front = Front(fresh::volume_of(engine, &env));
            let (schedules, clock) = (Schedules::default(), SimClock::new());
            let (fs, root) = (&front.0, Caller::root());
            let dir = hourly(fs);
            let file = NewNode { kind: inode::Kind::File, mode: 0o600, rdev: 0 };
            let file = fs.mknod(&root, NodeId::ROOT, b"f", &file).unwrap().node;
            fs.write(&root, file, 0, &vec![7; 8 << 20]).unwrap();
            fs.sync().unwrap();
            let step = |seconds| {
                clock.advance(Duration::from_secs(seconds));
                schedules.step(&front, &clock).unwrap();
                schedules.failure_of(&fs.schedules().unwrap()[0])
            };
            let taken = || {
                let listed = fs.snapshot_list(&root, dir).unwrap();
                listed.into_iter().map(|one| one.subvol).collect::<Vec<_>>()
            };
            assert_eq!((step(3600), taken().len()), (None, 1), "{engine:?}");
            let first = taken();
            fresh::fill(fs, &env);
            let failed = step(3600);
            assert!(failed.as_ref().is_some_and(|why| why.contains("space")), "{failed:?}");
            assert_eq!(taken(), first, "{engine:?}: the last one stays, and no other is there");
            assert_eq!((step(30), taken()), (failed, first.clone()), "it rests");
            env.device.set_capacity(None);
            assert_eq!((step(31), taken().len()), (None, 1), "{engine:?}: it is taken");
            assert!(taken() != first, "{engine:?}: it replaces the first");
            let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
            let problems = fs.check_volume(&mut proceed).unwrap().problems;
            assert!(problems.is_empty(), "{engine:?}: {problems:?}");
            fs.forget(dir, 1);
        }
    }

    /// One that cannot be deleted keeps no other.
    #[test]
    fn a_snapshot_that_cannot_be_deleted_keeps_no_other() {
        let store = Arc::new(MemStore::new());
        let front = Front(fresh::volume_on(Arc::clone(&store)));
        let (fs, root) = (&front.0, Caller::root());
        let dir = hourly(fs);
        let (schedules, clock) = (Schedules::default(), SimClock::new());
        let mut taken = [600, 1200, 1800].map(|later| {
            let at = i128::from(clock.now().0) + later * 1_000_000_000;
            let at = jiff::Timestamp::from_nanosecond(at).unwrap();
            fs.snapshot_create(&root, dir, &retention::name(b"a", at)).unwrap()
        });
        // A hold of the first that cannot be read.
        taken.sort_by_key(|one| one.subvol);
        let key = format::retention::hold_key(taken[0].subvol.0, b"x");
        let mut batch = Batch::new();
        batch.put(VOLUME, &key, b"");
        store.commit(&batch).unwrap();
        clock.advance(Duration::from_secs(3600));
        schedules.step(&front, &clock).unwrap();
        let failed = schedules.failure_of(&fs.schedules().unwrap()[0]);
        assert!(failed.as_ref().is_some_and(|why| why.contains("cannot delete")), "{failed:?}");
        let left = fs.snapshot_list(&root, dir).unwrap();
        let left: Vec<_> = left.iter().map(|one| one.subvol).collect();
        assert!(left.len() == 2 && left[0] == taken[0].subvol, "{left:?}");
        fs.forget(dir, 1);
    }

    /// What failed is shown also while it is tried again.
    #[test]
    fn a_failure_is_shown_while_it_is_tried_again() {
        struct Watched {
            front: Front,
            schedules: Schedules,
            seen: Mutex<Vec<Option<String>>>,
        }
        impl FrontEnd for Watched {
            fn fs(&self) -> &Volume {
                &self.front.0
            }

            fn catch_up(&self) {
                let failed = self.schedules.failure_of(&self.fs().schedules().unwrap()[0]);
                self.seen.lock().push(failed);
            }

            fn settle(&self) {}
        }
        let (front, clock) = (Front(fresh::volume()), SimClock::new());
        let (schedules, seen) = (Schedules::default(), Mutex::default());
        let watched = Watched { front, schedules, seen };
        let (fs, root) = (watched.fs(), Caller::root());
        let dir = hourly(fs);
        let at = clock.now().0 + 3600 * 1_000_000_000;
        let at = jiff::Timestamp::from_nanosecond(i128::from(at)).unwrap();
        fs.snapshot_create(&root, dir, &retention::name(b"a", at)).unwrap();
        for seconds in [3600, 61] {
            clock.advance(Duration::from_secs(seconds));
            watched.schedules.step(&watched, &clock).unwrap();
        }
        let seen = watched.seen.lock();
        assert!(seen.len() == 2 && seen[0].is_none() && seen[1].is_some(), "{seen:?}");
        assert_eq!(watched.schedules.failure_of(&fs.schedules().unwrap()[0]), None);
        fs.forget(dir, 1);
    }
}
