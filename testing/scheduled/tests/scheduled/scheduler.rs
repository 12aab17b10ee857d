//! The scheduler: it finds planted races, and the same seed gives the same run.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex, RwLock, bounded_channel, channel};
use device::{Clock, SystemClock};
use testing::sim::{Scheduler, explore};

/// A group commit in small: committers buffer a record, and one of them writes for all. With a race
/// where `planted` requests one.
#[derive(Default)]
struct Group {
    state: Mutex<State>,
    turn: Condvar,
    disk: Mutex<u64>,
    planted: Option<Planted>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    /// The writer publishes as durable all that is appended when it has written, and not what it
    /// took before.
    PublishesTooMuch,
    /// A committer looks whether it must wait, releases the lock, and waits later.
    LosesAWakeUp,
}

#[derive(Default)]
struct State {
    appended: u64,
    durable: u64,
    writing: bool,
}

impl Group {
    fn commit(&self) {
        let mut state = self.state.lock();
        state.appended += 1;
        let mine = state.appended;
        while state.durable < mine {
            if state.writing {
                if self.planted == Some(Planted::LosesAWakeUp) {
                    drop(state);
                    state = self.state.lock();
                }
                self.turn.wait(&mut state);
                continue;
            }
            state.writing = true;
            let taken = state.appended;
            drop(state);
            *self.disk.lock() = taken;
            state = self.state.lock();
            let too_much = self.planted == Some(Planted::PublishesTooMuch);
            state.durable = if too_much { state.appended } else { taken };
            state.writing = false;
            self.turn.notify_all();
        }
        drop(state);
        assert!(*self.disk.lock() >= mine, "record {mine} was acknowledged before it was written");
    }
}

fn committers(planted: Option<Planted>) {
    let group = Group { planted, ..Group::default() };
    device::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..3).for_each(|_| group.commit()));
        }
    });
}

/// The first seed that fails, with its message.
fn first_failure(planted: Planted) -> (u64, String) {
    for seed in super::orders() {
        // Threads print what they panic with; only the scheduler's message is passed on.
        let run = catch_unwind(AssertUnwindSafe(|| {
            Scheduler::run(seed, || {
                let group = Arc::new(Group { planted: Some(planted), ..Group::default() });
                let threads: Vec<_> = (0..3)
                    .map(|_| {
                        let group = Arc::clone(&group);
                        let run = move || (0..3).for_each(|_| group.commit());
                        device::spawn("committer", run).unwrap()
                    })
                    .collect();
                let ended: Vec<_> = threads.into_iter().map(device::Thread::join).collect();
                let failed = ended.into_iter().find_map(Result::err);
                failed.map(|failed| failed.downcast_ref::<String>().cloned().unwrap_or_default())
            })
        }));
        match run {
            Ok((None, _)) => {}
            Ok((Some(failed), _)) => return (seed, failed),
            Err(failed) => {
                return (seed, failed.downcast_ref::<String>().cloned().unwrap_or_default());
            }
        }
    }
    panic!("no order of {:?} found the planted race", super::orders());
}

#[test]
fn a_group_commit_without_a_race_passes_in_every_order() {
    explore(super::orders(), 10, |_| committers(None));
}

#[test]
fn a_planted_race_is_found_and_found_again_by_its_seed() {
    let found = first_failure(Planted::PublishesTooMuch);
    assert!(found.1.contains("was acknowledged before it was written"), "{}", found.1);
    assert_eq!(found, first_failure(Planted::PublishesTooMuch));
}

#[test]
fn a_lost_wake_up_is_reported_as_a_deadlock() {
    let (_, message) = first_failure(Planted::LosesAWakeUp);
    assert!(message.starts_with("deadlock"), "{message}");
}

#[test]
fn a_seed_determines_who_runs_and_seeds_differ() {
    let order = |seed| {
        Scheduler::run(seed, || {
            let order = Mutex::new(Vec::new());
            device::scope(|scope| {
                for thread in 0..4 {
                    let order = &order;
                    scope.spawn(move || (0..3).for_each(|_| order.lock().push(thread)));
                }
            });
            order.into_inner()
        })
    };
    let all: BTreeSet<Vec<i32>> = (0..200).map(|seed| order(seed).0).collect();
    assert!(all.len() > 100, "{} different orders", all.len());
    for seed in 0..50 {
        assert_eq!(order(seed), order(seed), "seed {seed}");
    }
}

#[test]
fn two_locks_in_two_orders_are_a_deadlock_in_some_order() {
    let fails = |seed| {
        catch_unwind(|| {
            Scheduler::run(seed, || {
                let (a, b) = (Mutex::new(()), Mutex::new(()));
                device::scope(|scope| {
                    scope.spawn(|| drop((a.lock(), b.lock())));
                    scope.spawn(|| drop((b.lock(), a.lock())));
                });
            })
        })
        .is_err()
    };
    let failed = (0..200).filter(|seed| fails(*seed)).count();
    assert!((1..200).contains(&failed), "{failed} of 200 orders");
}

#[test]
fn sleeps_take_no_real_time_and_end_in_order() {
    explore(0..200, 1, |_| {
        let clock = SystemClock::new();
        let ended = Mutex::new(Vec::new());
        device::scope(|scope| {
            for hours in [3_u64, 1, 2] {
                let (clock, ended) = (&clock, &ended);
                scope.spawn(move || {
                    clock.sleep(Duration::from_secs(hours * 3600));
                    ended.lock().push((clock.monotonic().as_secs() / 3600, hours));
                });
            }
        });
        let mut ended = ended.into_inner();
        assert!(ended.iter().all(|(now, slept)| now >= slept), "{ended:?}");
        ended.sort_unstable_by_key(|(_, slept)| *slept);
        assert_eq!(ended.iter().map(|(_, slept)| *slept).collect::<Vec<_>>(), [1, 2, 3]);
    });
}

#[test]
fn messages_arrive_in_order_whatever_the_bound() {
    for bound in [0, 1, 3, 100] {
        explore(0..100, 10, |_| {
            let (sender, receiver) = bounded_channel(bound);
            let (done, finished) = channel();
            device::scope(|scope| {
                scope.spawn(move || (0..20).for_each(|n| sender.send(n).unwrap()));
                scope.spawn(move || done.send(receiver.iter().collect::<Vec<i32>>()).unwrap());
                assert_eq!(finished.recv().unwrap(), (0..20).collect::<Vec<_>>());
            });
        });
    }
}

#[test]
fn readers_of_a_lock_see_whole_changes() {
    explore(0..300, 10, |_| {
        let pair = RwLock::new((0, 0));
        let latch = device::Latch::new((0, 0));
        device::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..4 {
                        let mut both = pair.write();
                        both.0 += 1;
                        device::yield_now();
                        both.1 += 1;
                        drop(both);
                        let mut both = latch.write();
                        both.0 += 1;
                        device::yield_now();
                        both.1 += 1;
                    }
                });
                scope.spawn(|| {
                    for _ in 0..4 {
                        let both = pair.read();
                        assert_eq!(both.0, both.1);
                        drop(both);
                        let both = latch.read();
                        assert_eq!(both.0, both.1);
                    }
                });
            }
        });
    });
}

#[test]
fn a_wait_with_a_limit_ends_by_time_or_by_a_notification() {
    let (mut timed_out, mut notified) = (0, 0);
    for seed in 0..300 {
        let (over, _) = Scheduler::run(seed, || {
            let (ready, changed) = (Mutex::new(false), Condvar::new());
            device::scope(|scope| {
                scope.spawn(|| {
                    SystemClock::new().sleep(Duration::from_millis(10));
                    *ready.lock() = true;
                    changed.notify_one();
                });
                let mut guard = ready.lock();
                let limit = Duration::from_millis(10);
                let waited = changed.wait_while_for(&mut guard, |ready| !*ready, limit);
                assert_eq!(waited.timed_out(), !*guard);
                waited.timed_out()
            })
        });
        if over { timed_out += 1 } else { notified += 1 }
    }
    assert!(timed_out > 10 && notified > 10, "{timed_out} and {notified}");
}
