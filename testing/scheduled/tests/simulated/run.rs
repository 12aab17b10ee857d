//! One run: servers, clients, faults, and what must hold in the end.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use fs::Fs;
use testing::FarBlobs;
use testing::linear::{Violation, linearize};
use testing::sim::{Host, Pace, Run, Scheduler};

use crate::calls::DirectoryModel;
use crate::client::{Client, Histories};
use crate::plan::{Faults, Plan};
use crate::servers::{Hooks, ServerMachine};
use crate::world::{SERVER_PLACES, World};

/// Most states that a search for an order examines; a run takes some thousand.
const STEPS_MAX: usize = 2_000_000;
/// How long threads may take to end when all is done.
const SETTLE: Duration = Duration::from_secs(3_600);

/// How much a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) clients: usize,
    pub(crate) calls: usize,
    pub(crate) parts: usize,
    /// Names in a directory that calls use; if it is one, in one directory.
    pub(crate) names: u8,
    pub(crate) faults: bool,
}

/// What a run was.
#[derive(Debug, Clone)]
pub(crate) struct Outcome {
    /// What was wrong.
    pub(crate) wrong: Option<String>,
    pub(crate) calls: u64,
    pub(crate) unknown: usize,
    pub(crate) faults: Faults,
    pub(crate) lost_answers: u64,
    /// Sessions that outlived a server, and such that did not but should, mostly.
    pub(crate) sessions: (u64, u64),
}

/// Runs a seed.
pub(crate) fn run(
    seed: u64,
    size: Size,
    objects: &Arc<FarBlobs>,
    mutation: Option<&'static str>,
) -> (Outcome, Run) {
    let pace = Pace { interrupted: &[40, 200, 1000], time_moves: 200, mutation };
    let (mut outcome, run) =
        Scheduler::drive(seed, pace, |scheduler| simulate(seed, size, objects, scheduler));
    if run.panics > 0 && outcome.wrong.is_none() {
        outcome.wrong = Some(format!("{} threads panicked", run.panics));
    }
    (outcome, run)
}

fn simulate(seed: u64, size: Size, objects: &Arc<FarBlobs>, scheduler: &Arc<Scheduler>) -> Outcome {
    let world = World::new(seed, scheduler, objects);
    let histories = Arc::new(Histories::new(size.parts, size.names));
    // A call takes a message each way, and a change a request.
    let length = size.faults.then_some((size.clients * size.calls * 2) as u64);
    let plan = Plan::new(&world, size.clients, length);
    let starting = {
        let (world, histories, plan) =
            (Arc::clone(&world), Arc::clone(&histories), Arc::clone(&plan));
        device::spawn("clients", move || run_clients(&world, &histories, &plan, size))
    };
    let (last, before) = match &world.coordinator {
        Some(_) => serve_by_campaign(&world, &plan),
        None => serve_all(&world, &plan),
    };
    starting.expect("a thread").join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    world.heal();
    // The last crash: what was answered is durable.
    plan.end(last);
    before.into_iter().for_each(ServerMachine::end);
    let checked = check(&world, &histories, size);
    let settled = scheduler.settle(SETTLE);
    let mut wrong = checked.err().or_else(|| histories.sessions.fault());
    tracing::info!(?wrong, "checked");
    let faults = world.faults.lock().iter().chain(&*histories.faults.lock()).cloned().collect();
    let faults: Vec<String> = faults;
    if !faults.is_empty() {
        wrong = Some(faults.join("\n"));
    }
    if let (None, Err(left)) = (&wrong, settled) {
        wrong = Some(format!("threads do not end: {left}"));
    }
    if let Some(wrong) = &mut wrong {
        wrong.push_str("\nfaults:\n");
        wrong.push_str(&plan.story());
    }
    let unknown = (0..size.parts)
        .map(|part| histories.of_part(part).iter().filter(|event| event.answer.is_none()).count());
    Outcome {
        wrong,
        calls: histories.calls(),
        unknown: unknown.sum(),
        faults: plan.done(),
        lost_answers: world.store.counts().lost_answers,
        sessions: histories.sessions.counts(),
    }
}

/// Starts the clients when a server is there: before that they would only knock.
fn run_clients(world: &Arc<World>, histories: &Arc<Histories>, plan: &Arc<Plan>, size: Size) {
    while world.serves.lock().is_none() {
        world.clock.sleep(Duration::from_millis(200));
    }
    let clients: Vec<_> = (0..size.clients)
        .map(|number| {
            let (world, histories, plan) =
                (Arc::clone(world), Arc::clone(histories), Arc::clone(plan));
            let work = move || client(&world, &histories, &plan, number, size.calls);
            device::spawn("client", work).expect("a thread")
        })
        .collect();
    for client in clients {
        client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    }
}

fn client(world: &World, histories: &Histories, plan: &Plan, number: usize, calls: usize) {
    world.scheduler.move_to(World::client_host(number).number());
    match world.mount(number) {
        Ok(mounted) => {
            let place = (world.seed, Some(world));
            Client::new(number, &mounted.fs, histories, place).run(calls);
            mounted.remote.end();
        }
        Err(error) => histories.faults.lock().push(error),
    }
    plan.is_done();
}

/// How many servers wait, or serve.
const SERVERS: [u8; 3] = [2, 2, 3];

/// Keeps servers running until the clients are done; returns the one that serves, and all of them.
fn serve_by_campaign(world: &Arc<World>, plan: &Arc<Plan>) -> (Host, Vec<ServerMachine>) {
    let mut random = fastrand::Rng::with_seed(world.seed ^ 0x7374_6279);
    let start = |host: Host| {
        let (serving, ended) = (Arc::clone(plan), Arc::clone(plan));
        let on_serving = Box::new(move |host| serving.serves(host));
        let on_end = Box::new(move |host| ended.has_left(host));
        ServerMachine::start(world, host, Hooks { on_serving, on_end })
    };
    let mut all: Vec<ServerMachine> = Vec::new();
    for place in 1..=SERVERS[random.usize(..SERVERS.len())] {
        all.push(start(Host { place, run: 0 }));
        world.clock.sleep(Duration::from_millis(random.u64(..200)));
    }
    while let Some(lost) = plan.await_lost() {
        world.clock.sleep(Duration::from_millis(random.u64(..1500)));
        all.push(start(Host { run: lost.run + 1, ..lost }));
    }
    // Those that wait end in order, half of the time after the last one that serves.
    let last = plan.serving().unwrap_or(all[0].host);
    if random.bool() {
        for machine in all.iter().filter(|machine| machine.host != last) {
            machine.begin_end();
        }
    }
    (last, all)
}

/// Keeps a server running until the clients are done. Returns the last, and those before it: some
/// do not know that they are not the last.
fn serve_all(world: &Arc<World>, plan: &Arc<Plan>) -> (Host, Vec<ServerMachine>) {
    let mut random = fastrand::Rng::with_seed(world.seed ^ 0x7365_7276);
    let start = |run: u32| {
        let plan = Arc::clone(plan);
        let on_end = Box::new(move |host| plan.has_ended(host));
        let host = Host { place: SERVER_PLACES[run as usize % SERVER_PLACES.len()], run };
        ServerMachine::start(world, host, Hooks { on_serving: Box::new(|_| {}), on_end })
    };
    let mut server = start(0);
    plan.serves(server.host);
    let (mut run, mut before) = (0, Vec::new());
    while plan.await_end(server.host) {
        world.clock.sleep(Duration::from_millis(random.u64(..1500)));
        run += 1;
        if random.u32(..6) == 0 {
            // Two at a time: one of them wins.
            before.push(start(run));
            run += 1;
        }
        let next = start(run);
        plan.serves(next.host);
        before.push(std::mem::replace(&mut server, next));
    }
    let last = server.host;
    before.push(server);
    (last, before)
}

/// Opens the volume; an answer may get lost once more.
fn open(world: &World, host: Host) -> Result<Arc<Fs>, fs::OpenError> {
    world.open(host).or_else(|_| world.open(host))
}

/// Opens the volume as it is after the last crash, and looks for an order of all calls.
fn check(world: &World, histories: &Histories, size: Size) -> Result<(), String> {
    let host = Host { place: 30, run: 1000 };
    if world.store.counts().lost_answers == 0 {
        world.store.lose_next_answer();
    }
    let fs = open(world, host).map_err(|error| format!("the volume does not open: {error}"))?;
    Client::new(size.clients, &*fs, histories, (world.seed, None)).look_at_all();
    for part in 0..size.parts {
        let history = histories.of_part(part);
        match linearize(&DirectoryModel::new(), &history, STEPS_MAX) {
            Ok(()) => {}
            Err(Violation::NotLinearizable { placed: (placed, all), text }) => {
                return Err(format!("part {part}: {placed} of {all} calls have an order: {text}"));
            }
            Err(Violation::TooLong(steps)) => {
                return Err(format!("part {part}: no order found in {steps} steps"));
            }
        }
    }
    fs.close().map_err(|error| format!("the volume does not close: {error}"))?;
    drop(fs);
    let env = world.offline(Host { place: 31, run: 1001 });
    let env = env.map_err(|error| format!("no check: {error}"))?;
    let report = Fs::check_offline(&env, &mut |_, _| ControlFlow::Continue(()));
    let report = report.map_err(|error| format!("no check: {error}"))?;
    if report.is_clean() { Ok(()) } else { Err(format!("a check finds {report:?}")) }
}
