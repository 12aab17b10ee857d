//! What goes wrong in a run, and when: counted in messages and requests, as a seed draws it.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex};
use testing::sim::{Fate, Host, Mishaps, Watch};

use crate::world::World;

/// A server that sends nothing while others send so many messages crashes without one.
const IDLE: u64 = 200;

/// A fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The server's machine ends before or after its next message or request. `silent`: its
    /// clients learn it by silence.
    Crash { after: bool, silent: bool },
    /// The server ends in order, as by a signal.
    Leave,
    /// Another server takes the volume over from one that runs, and may be paused meanwhile.
    Usurp(Option<Duration>),
    /// Nobody reaches the server any more, nor does it reach anybody but the store, where it
    /// continues, perhaps after a pause. Another one takes the volume over.
    Replace(Option<Duration>),
    /// The server's threads do not run for a time.
    Pause(Duration),
    /// Connections of the server break; each with a chance.
    Cut,
    /// Nothing passes between the server and a client, to one of the two sides or both.
    Divide { client: u8, time: Duration, to: bool, from: bool },
    /// The server does not reach the store.
    DivideStore(Duration),
    /// The server does not reach the coordinator.
    DivideCoordinator(Duration),
    /// The coordinator answers nothing.
    StallCoordinator(Duration),
    /// The coordinator takes no names.
    FillCoordinator(Duration),
    /// The state of the coordinator is kept, or the one that was kept last is its state again.
    RestoreCoordinator(bool),
    /// The store answers nothing.
    Stall(Duration),
    /// The store takes nothing more.
    Fill(Duration),
    /// The answer of the next request to the store is lost.
    LoseAnswer,
    /// From now on requests get lost, land late, or twice.
    Mishaps(bool),
}

/// What happened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Faults {
    pub(crate) crashes: u64,
    pub(crate) replaced: u64,
    pub(crate) pauses: u64,
    pub(crate) cuts: u64,
    pub(crate) divisions: u64,
}

/// Injects faults into a world.
pub(crate) struct Plan {
    world: Arc<World>,
    /// Messages and requests so far, while there was a server.
    count: AtomicU64,
    state: Mutex<State>,
    /// The server ended, or the clients are done.
    pub(crate) changed: Condvar,
}

struct State {
    /// The last is next.
    faults: Vec<(u64, Fault)>,
    server: Option<Host>,
    /// Another one is to take the volume over from it.
    is_usurped: bool,
    /// How many clients still make calls.
    clients: usize,
    /// Machines that ended, or are out of reach, and have no successor.
    lost: Vec<Host>,
    /// Machines that were lost.
    gone: BTreeSet<Host>,
    done: Faults,
    story: Vec<String>,
    /// Of a crash under way.
    silent: bool,
}

/// A plan that its world holds.
struct Weakly(Weak<Plan>);

impl Watch for Weakly {
    fn before(&self, host: Host) -> Fate {
        self.0.upgrade().map_or(Fate::Lives, |plan| plan.next(host))
    }

    fn ends(&self, host: Host) {
        if let Some(plan) = self.0.upgrade() {
            let silent = plan.state.lock().silent;
            plan.world.kill(host, silent);
        }
    }
}

fn millis(random: &mut fastrand::Rng, most: u64) -> Duration {
    Duration::from_millis(random.u64(1..most))
}

/// Faults of a run, each with the number of messages and requests after which it happens. At least
/// one crash, one pause and one lost answer, within what the clients certainly need.
fn draw(random: &mut fastrand::Rng, clients: usize, length: u64) -> Vec<(u64, Fault)> {
    let crash = |random: &mut fastrand::Rng| Fault::Crash {
        after: random.bool(),
        silent: random.u32(..4) == 0,
    };
    let mut faults = vec![
        (random.u64(length / 8..length), crash(random)),
        (random.u64(..length), Fault::Pause(millis(random, 6_000))),
        (random.u64(..length / 2), Fault::LoseAnswer),
    ];
    let mishaps = random.u64(..length);
    if random.bool() {
        faults.push((mishaps, Fault::Mishaps(true)));
        faults.push((random.u64(mishaps..=length), Fault::Mishaps(false)));
    }
    for _ in 0..random.u32(1..6) {
        let client = random.u8(..clients as u8);
        let fault = match random.u32(..16) {
            14 | 15 => Fault::Leave,
            11 => Fault::Usurp(None),
            12 | 13 => Fault::Usurp(Some(millis(random, 8_000))),
            0 => crash(random),
            9 => Fault::Replace(None),
            10 => Fault::Replace(Some(millis(random, 5_000))),
            1 => Fault::Pause(millis(random, 4_000)),
            2 | 3 => Fault::Cut,
            4 => {
                let (to, from) = (random.bool(), random.bool());
                Fault::Divide { client, time: millis(random, 20_000), to, from: from || !to }
            }
            5 => Fault::DivideStore(millis(random, 8_000)),
            6 => Fault::Stall(millis(random, 4_000)),
            7 => Fault::Fill(millis(random, 3_000)),
            _ => Fault::LoseAnswer,
        };
        faults.push((random.u64(..length), fault));
    }
    faults
}

/// Faults of the coordinator.
fn draw_of_coordinator(random: &mut fastrand::Rng, length: u64) -> Vec<(u64, Fault)> {
    let mut faults = Vec::new();
    for _ in 0..random.u32(..4) {
        let at = random.u64(..length);
        let fault = match random.u32(..6) {
            0 | 1 => Fault::DivideCoordinator(millis(random, 10_000)),
            2 => Fault::StallCoordinator(millis(random, 8_000)),
            3 => Fault::FillCoordinator(millis(random, 6_000)),
            _ => {
                faults.push((random.u64(at..length), Fault::RestoreCoordinator(true)));
                Fault::RestoreCoordinator(false)
            }
        };
        faults.push((at, fault));
    }
    faults
}

impl Plan {
    /// A plan for a world with so many clients, of which each causes at least `length` messages
    /// and requests. `None`: nothing goes wrong.
    pub(crate) fn new(world: &Arc<World>, clients: usize, length: Option<u64>) -> Arc<Plan> {
        let mut random = fastrand::Rng::with_seed(world.seed ^ 0x706c_616e);
        let mut faults =
            length.map(|length| draw(&mut random, clients, length)).unwrap_or_default();
        if let Some(length) = length.filter(|_| world.coordinator.is_some()) {
            faults.extend(draw_of_coordinator(&mut random, length));
        }
        faults.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let done = Faults::default();
        let state = State {
            faults,
            server: None,
            is_usurped: false,
            clients,
            lost: Vec::new(),
            gone: BTreeSet::new(),
            done,
            story: Vec::new(),
            silent: false,
        };
        let plan = Arc::new(Plan {
            world: Arc::clone(world),
            count: AtomicU64::new(0),
            state: Mutex::new(state),
            changed: Condvar::new(),
        });
        let own = || Arc::new(Weakly(Arc::downgrade(&plan)));
        world.net.watch(own());
        world.store.watch(own());
        plan
    }

    pub(crate) fn done(&self) -> Faults {
        self.state.lock().done
    }

    /// What went wrong, and when.
    pub(crate) fn story(&self) -> String {
        self.state.lock().story.join("\n")
    }

    /// Another machine is the server now.
    pub(crate) fn serves(&self, host: Host) {
        let now = self.world.clock.monotonic();
        let mut state = self.state.lock();
        (state.server, state.is_usurped) = (Some(host), false);
        tracing::info!(?host, ?now, "serves");
        state.story.push(format!("{now:?}: server {host:?} serves"));
    }

    /// A server has ended by itself.
    pub(crate) fn has_ended(&self, host: Host) {
        let mut state = self.state.lock();
        if state.server == Some(host) {
            state.server = None;
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The process of a server has ended by itself.
    pub(crate) fn has_left(&self, host: Host) {
        let mut state = self.state.lock();
        if state.server == Some(host) {
            state.server = None;
        }
        if !state.gone.contains(&host) {
            state.gone.insert(host);
            state.lost.push(host);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The machine that serves.
    pub(crate) fn serving(&self) -> Option<Host> {
        self.state.lock().server
    }

    /// Waits for a machine that has no successor; `None`: the clients are done.
    pub(crate) fn await_lost(&self) -> Option<Host> {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.clients > 0 && state.lost.is_empty());
        if state.clients > 0 { state.lost.pop() } else { None }
    }

    /// A client is done.
    pub(crate) fn is_done(&self) {
        let mut state = self.state.lock();
        state.clients -= 1;
        if state.clients == 0 {
            // What has not happened does not happen any more.
            state.faults.clear();
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The last crash. In the rare run whose calls ended before its pause, that comes before.
    pub(crate) fn end(&self, server: Host) {
        let needs_pause = {
            let mut state = self.state.lock();
            let needs_pause = state.done.pauses == 0;
            state.done.pauses += u64::from(needs_pause);
            state.done.crashes += 1;
            needs_pause
        };
        if needs_pause {
            self.world.scheduler.pause_machine(server.number(), Duration::from_secs(1));
            self.world.clock.sleep(Duration::from_secs(2));
        }
        self.world.kill(server, false);
    }

    /// Waits until the server has ended; `false`: the clients are done.
    pub(crate) fn await_end(&self, server: Host) -> bool {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| {
            state.clients > 0 && state.server == Some(server) && !state.is_usurped
        });
        state.clients > 0
    }

    /// Before a message or request.
    fn next(&self, host: Host) -> Fate {
        let (fault, server) = {
            let mut state = self.state.lock();
            // Without a server clients only knock.
            let Some(server) = state.server else { return Fate::Lives };
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let serves = *self.world.serves.lock() == Some(server);
            let fits = |at: u64, fault: &Fault| match fault {
                // Or when it has been idle for long.
                Fault::Crash { .. } => host == server || count > at + IDLE,
                // Before that it could take the volume over from its successor.
                Fault::Replace(_) | Fault::Usurp(_) | Fault::Leave => serves && !state.is_usurped,
                _ => true,
            };
            let is_due = |(at, fault): &(u64, Fault)| *at <= count && fits(*at, fault);
            let Some(at) = state.faults.iter().rposition(is_due) else { return Fate::Lives };
            let (_, fault) = state.faults.remove(at);
            let now = self.world.clock.monotonic();
            tracing::info!(?fault, ?now, count, "injected");
            state.story.push(format!("{now:?}, message {count} of {host:?}: {fault:?}"));
            let State { done, server: current, is_usurped, lost, gone, .. } = &mut *state;
            match fault {
                Fault::Crash { .. } => {
                    *current = None;
                    lost.extend(gone.insert(server).then_some(server));
                    done.crashes += 1;
                }
                Fault::Replace(_) | Fault::Leave => {
                    *current = None;
                    lost.extend(gone.insert(server).then_some(server));
                    done.replaced += 1;
                }
                Fault::Usurp(_) => {
                    *is_usurped = true;
                    done.replaced += 1;
                }
                Fault::Pause(_) => done.pauses += 1,
                Fault::Cut => done.cuts += 1,
                Fault::Divide { .. } | Fault::DivideStore(_) => done.divisions += 1,
                _ => {}
            }
            (fault, server)
        };
        self.inject(fault, server, host)
    }

    fn inject_into_coordinator(&self, fault: Fault, server: Host) {
        let Some(coordinator) = &self.world.coordinator else { return };
        match fault {
            Fault::DivideCoordinator(time) => coordinator.divide(server.place, time),
            Fault::StallCoordinator(time) => coordinator.stall(time),
            Fault::FillCoordinator(time) => coordinator.fill(time),
            Fault::RestoreCoordinator(false) => coordinator.back_up(),
            Fault::RestoreCoordinator(true) => coordinator.restore(),
            _ => {}
        }
    }

    fn inject(&self, fault: Fault, server: Host, host: Host) -> Fate {
        let World { net, store, scheduler, .. } = &*self.world;
        match fault {
            Fault::Crash { after, silent } => {
                self.changed.notify_all();
                if after && host == server {
                    self.state.lock().silent = silent;
                    return Fate::EndsAfter;
                }
                self.world.kill(server, silent);
                return if host == server { Fate::EndsBefore } else { Fate::Lives };
            }
            Fault::Replace(pause) => {
                self.changed.notify_all();
                net.kill(server, false);
                self.world.cut_from_coordinator(server);
                if let Some(time) = pause {
                    scheduler.pause_machine(server.number(), time);
                }
            }
            Fault::Leave => {
                self.changed.notify_all();
                let end = self.world.enders.lock().remove(&server);
                if let Some(end) = end {
                    end();
                }
            }
            Fault::Usurp(pause) => {
                self.changed.notify_all();
                if let Some(coordinator) = &self.world.coordinator {
                    coordinator.end_leases();
                }
                if let Some(time) = pause {
                    scheduler.pause_machine(server.number(), time);
                }
            }
            Fault::Pause(time) => scheduler.pause_machine(server.number(), time),
            Fault::Cut => {
                net.cut(server.place, 2);
            }
            Fault::Divide { client, time, to, from } => {
                let client = World::client_host(usize::from(client)).place;
                if to {
                    net.divide(server.place, client, time);
                }
                if from {
                    net.divide(client, server.place, time);
                }
            }
            Fault::DivideStore(time) => store.divide(server.place, time),
            Fault::DivideCoordinator(_)
            | Fault::StallCoordinator(_)
            | Fault::FillCoordinator(_)
            | Fault::RestoreCoordinator(_) => self.inject_into_coordinator(fault, server),
            Fault::Stall(time) => store.stall(time),
            Fault::Fill(time) => store.fill(time),
            Fault::LoseAnswer => store.lose_next_answer(),
            Fault::Mishaps(begin) => store.mishaps(if begin {
                Mishaps { lost_requests: 10, lost_answers: 15, late: 10, twice: 20 }
            } else {
                Mishaps::default()
            }),
        }
        Fate::Lives
    }
}
