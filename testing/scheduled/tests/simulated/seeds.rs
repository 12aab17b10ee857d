//! Many seeds: whatever goes wrong, every call has its place in an order, what was answered is
//! found after the last crash, and clients get on.

use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use testing::run::{print_line, rounds};

use crate::run::{Outcome, Size, run};
use crate::world::formatted;

/// A run: its clients make at least 500 calls.
pub(crate) const SIZE: Size = Size { clients: 4, calls: 130, parts: 2, faults: true };
/// Runs at a time; each uses one processor.
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
        self.turns += run.turns;
        self.trace ^= run.trace;
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
        program::log::start(level, false);
    }
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let first: Option<u64> = number("PANDO_SEED");
    let count =
        number("PANDO_SEEDS").unwrap_or(if first.is_some() { 1 } else { rounds(quick, slow) });
    let first = first.unwrap_or(0);
    first..first + count
}

#[test]
fn histories_with_crashes_pauses_and_lost_answers_are_linearizable() {
    let objects = formatted(SIZE.parts);
    let seeds = seeds(1000, 1000);
    let (next, sums, wrong) =
        (AtomicU64::new(seeds.start), Mutex::new(Sums::default()), Mutex::new(Vec::new()));
    let lane = || {
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end || !wrong.lock().is_empty() {
                return;
            }
            let context = testing::run::Context::new(format!("again with PANDO_SEED={seed}"));
            let (outcome, first) = run(seed, SIZE, &objects, None);
            let mut fault = outcome.wrong.clone();
            if fault.is_none() && seed % REPLAYED == 0 {
                let again = run(seed, SIZE, &objects, None).1;
                fault = (first != again).then(|| format!("two runs: {first:?} and {again:?}"));
            }
            if let Some(fault) = fault {
                wrong.lock().push(format!("again with PANDO_SEED={seed}: {fault}"));
            }
            assert!(outcome.calls >= 500, "{outcome:?}");
            let done = outcome.faults;
            assert!(done.crashes > 0 && done.pauses > 0, "{outcome:?}");
            assert!(outcome.lost_answers > 0, "{outcome:?}");
            sums.lock().add(&outcome, first);
            drop(context);
        }
    };
    device::scope(|scope| {
        for _ in 1..LANES {
            scope.spawn(lane);
        }
        lane();
    });
    let wrong = wrong.into_inner();
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    let all = sums.into_inner();
    print_line(&format!(
        "{} seeds from {}: {} calls, {} of unknown outcome; {} crashes, {} replaced, {} pauses, {} cuts, {} \
         divisions, {} lost answers; {} turns, trace {:016x}",
        all.runs,
        seeds.start,
        all.calls,
        all.unknown,
        all.crashes,
        all.replaced,
        all.pauses,
        all.cuts,
        all.divisions,
        all.lost_answers,
        all.turns,
        all.trace,
    ));
}
