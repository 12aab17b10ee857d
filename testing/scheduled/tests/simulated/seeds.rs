//! Many seeds. Whatever goes wrong, every call has its place in an order, what was answered is
//! found after the last crash, and clients get on.

use std::process::Stdio;

use testing::run::{print_line, rounds};

use crate::client::NAMES;
use crate::run::{Outcome, Size, run};
use crate::world::formatted;

/// A run: its clients make at least 500 calls.
pub(crate) const SIZE: Size = Size { clients: 4, calls: 125, parts: 2, names: NAMES, faults: true };
/// Processes; each uses one processor. Runs in one process would share locks of that.
const LANES: u64 = 2;
/// One seed in so many runs twice.
const REPLAYED: u64 = 50;

/// What went wrong, in all runs together.
#[derive(Default)]
struct Sums {
    runs: u64,
    calls: u64,
    unknown: u64,
    crashes: u64,
    replaced: u64,
    pauses: u64,
    cuts: u64,
    divisions: u64,
    lost_answers: u64,
    kept_sessions: u64,
    ended_sessions: u64,
    turns: u64,
    trace: u64,
}

impl Sums {
    fn add(&mut self, outcome: &Outcome, run: testing::sim::Run) {
        self.runs += 1;
        self.calls += outcome.calls;
        self.unknown += outcome.unknown as u64;
        self.crashes += outcome.faults.crashes;
        self.replaced += outcome.faults.replaced;
        self.pauses += outcome.faults.pauses;
        self.cuts += outcome.faults.cuts;
        self.divisions += outcome.faults.divisions;
        self.lost_answers += outcome.lost_answers;
        self.kept_sessions += outcome.sessions.0;
        self.ended_sessions += outcome.sessions.1;
        self.turns += run.turns;
        self.trace ^= run.trace;
    }

    fn report(&self, first: u64) {
        let Sums { runs, calls, unknown, crashes, replaced, pauses, cuts, divisions, .. } = self;
        let Sums { lost_answers, kept_sessions, ended_sessions, turns, trace, .. } = self;
        print_line(&format!(
            "{runs} seeds from {first}: {calls} calls, {unknown} of unknown outcome; {crashes} \
             crashes, {replaced} replaced, {pauses} pauses, {cuts} cuts, {divisions} divisions, \
             {lost_answers} lost answers; {kept_sessions} sessions continued by another server, \
             {ended_sessions} not; {turns} turns, trace {trace:016x}"
        ));
    }
}

#[test]
fn without_faults_every_call_has_its_answer_and_a_seed_gives_one_run() {
    let objects = formatted(SIZE.parts);
    let size = Size { faults: false, ..SIZE };
    for seed in 0..3 {
        let (outcome, first) = run(seed, size, &objects, None);
        assert_eq!((outcome.wrong, outcome.unknown), (None, 0), "seed {seed}");
        assert_eq!(first, run(seed, size, &objects, None).1, "seed {seed}");
    }
}

/// The seeds of a test: those from `PANDO_SEED` on, or `quick` of them.
fn seeds(quick: u64, slow: u64) -> std::ops::Range<u64> {
    if let Some(level) = std::env::var("PANDO_LOG").ok().and_then(|level| level.parse().ok()) {
        program::log::start(level, false, false);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: Option<u64> = number("PANDO_SEED");
    let count =
        number("PANDO_SEEDS").unwrap_or(if first.is_some() { 1 } else { rounds(quick, slow) });
    let first = first.unwrap_or(0);
    first..first + count
}

/// The variable of a process that runs a part of the seeds of another.
const LANE: &str = "PANDO_SIM_LANE";

/// Starts this test in a process of its own, which runs the seeds of a lane.
fn start_lane(lane: u64) -> std::process::Child {
    let own = std::env::current_exe().expect("a program");
    let mut run = std::process::Command::new(own);
    run.args(["--exact", "--nocapture", NAME]).env(LANE, lane.to_string());
    run.stdout(Stdio::piped()).stderr(Stdio::piped());
    run.spawn().expect("a process")
}

/// The name of the test that is run in several processes.
const NAME: &str = "seeds::histories_with_crashes_pauses_and_lost_answers_are_linearizable";

/// Runs the seeds of a lane; returns what was wrong.
fn run_lane(seeds: impl Iterator<Item = u64>, sums: &mut Sums) -> Result<(), String> {
    let objects = formatted(SIZE.parts);
    // To look at a run with a fault that another test plants.
    let mutation = std::env::var("PANDO_MUTATION").ok().map(|name| &*name.leak());
    for seed in seeds {
        let context = testing::run::Context::new(format!("again with PANDO_SEED={seed}"));
        let (outcome, first) = run(seed, SIZE, &objects, mutation);
        let mut fault = outcome.wrong.clone();
        if fault.is_none() && seed % REPLAYED == 0 {
            let again = run(seed, SIZE, &objects, mutation).1;
            fault = (first != again).then(|| format!("two runs: {first:?} and {again:?}"));
        }
        if let Some(fault) = fault {
            return Err(format!("again with PANDO_SEED={seed}: {fault}"));
        }
        assert!(outcome.calls >= 500, "{outcome:?}");
        let done = outcome.faults;
        assert!(done.crashes > 0 && done.pauses > 0, "{outcome:?}");
        assert!(outcome.lost_answers > 0, "{outcome:?}");
        sums.add(&outcome, first);
        drop(context);
    }
    let (kept, ended) = (sums.kept_sessions, sums.ended_sessions);
    // (Of a hundred that see another server, about one does not reach it in time.)
    if ended > 4 + kept / 20 {
        return Err(format!("{kept} sessions were continued by another server, and {ended} not"));
    }
    Ok(())
}

#[test]
fn histories_with_crashes_pauses_and_lost_answers_are_linearizable() {
    let seeds = seeds(250, 1000);
    let lane: Option<u64> = std::env::var(LANE).ok().and_then(|lane| lane.parse().ok());
    let lanes = LANES.min(seeds.end - seeds.start);
    let of_lane = |lane: u64| seeds.clone().filter(move |seed| seed % lanes == lane);
    let others: Vec<_> =
        if lane.is_none() { (1..lanes).map(start_lane).collect() } else { Vec::new() };
    let mut sums = Sums::default();
    // (A single seed may be of any lane.)
    let ran = if lanes == 1 {
        run_lane(seeds.clone(), &mut sums)
    } else {
        run_lane(of_lane(lane.unwrap_or(0)), &mut sums)
    };
    for other in others {
        let output = other.wait_with_output().expect("it ends");
        let [out, err] = [output.stdout, output.stderr].map(|text| lossy(&text));
        assert!(output.status.success(), "another lane:\n{out}\n{err}");
        out.lines().filter(|line| line.contains("seeds from")).for_each(print_line);
    }
    if let Err(wrong) = ran {
        panic!("{wrong}");
    }
    sums.report(seeds.start);
}

fn lossy(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
