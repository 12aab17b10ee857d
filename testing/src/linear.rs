//! Decides whether a history is linearizable: whether its calls have an order, each taking effect
//! at one moment between its request and its answer. In that order, a sequential object would have
//! given these answers.
//!
//! The search is that of Wing and Gong, with Lowe's memory. A set of calls that took effect, with
//! the state they produced, is given up once. A call whose outcome is unknown may take effect at
//! any moment after its request, or never.
//!
//! Histories of independent objects are checked one by one: a history is linearizable if that of
//! each object is.

use std::collections::BTreeSet;

/// An object that answers one call at a time.
pub trait Sequential: Clone {
    /// A call.
    type Call: std::fmt::Debug;
    /// An answer.
    type Answer: std::fmt::Debug;

    /// Executes a call; returns whether it may answer this. `None`: the answer is unknown; then the
    /// result is whether the call changes anything.
    fn apply(&mut self, call: &Self::Call, answer: Option<&Self::Answer>) -> bool;

    /// A hash of the state, as far as calls can see it.
    fn fingerprint(&self) -> u64;
}

/// A call of a history.
#[derive(Debug, Clone)]
pub struct Record<C, A> {
    /// Who made it.
    pub client: usize,
    /// What it was.
    pub call: C,
    /// Its answer; `None`: nobody knows.
    pub answer: Option<A>,
    /// When it was made, and when its answer arrived; the latter counts only if there is one.
    pub begun: u64,
    /// See there.
    pub ended: u64,
}

/// What is wrong with a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// No order explains it. The calls of the longest one that was found, and of those that could
    /// be next none fits.
    NotLinearizable {
        /// How many calls of how many have a place.
        placed: (usize, usize),
        /// The last calls of that order, and those that do not fit.
        text: String,
    },
    /// The search was given up after so many steps.
    TooLong(usize),
}

/// A state of the search.
struct Frame<S> {
    state: S,
    /// Of the calls that took effect.
    set: u64,
    /// Calls that may be next, the most likely last.
    next: Vec<usize>,
    /// The call that led here.
    by: Option<usize>,
}

/// Searches an order. Gives up after `steps`.
pub fn linearize<S: Sequential>(
    initial: &S,
    history: &[Record<S::Call, S::Answer>],
    steps: usize,
) -> Result<(), Violation> {
    let mut search = Search::new(history);
    let mut seen: BTreeSet<(u64, u64)> = BTreeSet::new();
    let mut stack = vec![Frame { state: initial.clone(), set: 0, next: search.next(), by: None }];
    let (mut best, mut best_order, mut tried) = (0, Vec::new(), 0);
    while let Some(frame) = stack.last_mut() {
        if search.left == 0 {
            return Ok(());
        }
        let Some(call) = frame.next.pop() else {
            if let Some(by) = frame.by {
                search.undo(by);
            }
            seen.insert((frame.set, frame.state.fingerprint()));
            stack.pop();
            continue;
        };
        tried += 1;
        if tried > steps {
            return Err(Violation::TooLong(steps));
        }
        let record = &history[call];
        let mut state = frame.state.clone();
        if !state.apply(&record.call, record.answer.as_ref()) {
            continue;
        }
        let set = frame.set ^ token(call);
        // Most histories have an order that is found without a step back: no fingerprint is needed.
        if !seen.is_empty() && seen.contains(&(set, state.fingerprint())) {
            continue;
        }
        search.place(call);
        let next = search.next();
        stack.push(Frame { state, set, next, by: Some(call) });
        if stack.len() > best {
            best = stack.len();
            best_order = stack.iter().filter_map(|frame| frame.by).collect();
        }
    }
    Err(not_linearizable(history, &best_order))
}

/// A number for a call; sets of calls have the sum of theirs.
fn token(call: usize) -> u64 {
    let mut mixed = (call as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// Which calls took effect, and which may be next.
struct Search<'a, C, A> {
    history: &'a [Record<C, A>],
    /// Calls with an answer, by the time of their request.
    known: Vec<usize>,
    unknown: Vec<usize>,
    placed: Vec<bool>,
    /// All of `known` before this are placed.
    low: usize,
    /// How many of them are not placed.
    left: usize,
}

impl<'a, C, A> Search<'a, C, A> {
    fn new(history: &'a [Record<C, A>]) -> Search<'a, C, A> {
        let (mut known, mut unknown): (Vec<usize>, Vec<usize>) =
            (0..history.len()).partition(|call| history[*call].answer.is_some());
        known.sort_by_key(|call| history[*call].begun);
        unknown.sort_by_key(|call| history[*call].begun);
        let left = known.len();
        Search { history, known, unknown, placed: vec![false; history.len()], low: 0, left }
    }

    /// Calls that may be next: those that were made before any other that is not placed had its
    /// answer. Those that were answered first come last, and those of unknown outcome first.
    fn next(&mut self) -> Vec<usize> {
        while self.known.get(self.low).is_some_and(|call| self.placed[*call]) {
            self.low += 1;
        }
        let mut first_end = u64::MAX;
        let mut next = Vec::new();
        for &call in &self.known[self.low..] {
            let record = &self.history[call];
            if record.begun > first_end {
                break;
            }
            if !self.placed[call] {
                first_end = first_end.min(record.ended);
                next.push(call);
            }
        }
        next.retain(|call| self.history[*call].begun <= first_end);
        next.sort_by_key(|call| std::cmp::Reverse(self.history[*call].ended));
        let unknown = self.unknown.iter().copied();
        let unknown = unknown.take_while(|call| self.history[*call].begun <= first_end);
        let mut all: Vec<usize> = unknown.filter(|call| !self.placed[*call]).collect();
        all.extend(next);
        all
    }

    fn place(&mut self, call: usize) {
        self.placed[call] = true;
        self.left -= usize::from(self.history[call].answer.is_some());
    }

    fn undo(&mut self, call: usize) {
        self.placed[call] = false;
        self.left += usize::from(self.history[call].answer.is_some());
        // It is at or behind the first that is not placed now.
        self.low = 0;
    }
}

fn not_linearizable<C: std::fmt::Debug, A: std::fmt::Debug>(
    history: &[Record<C, A>],
    order: &[usize],
) -> Violation {
    const SHOWN: usize = 40;
    let mut search = Search::new(history);
    for call in order {
        search.place(*call);
    }
    let show = |call: &usize| {
        let Record { client, call, answer, begun, ended } = &history[*call];
        format!("  {begun:>5}-{ended:<5} client {client}: {call:?} -> {answer:?}\n")
    };
    let from = order.len().saturating_sub(SHOWN);
    let last: String = order[from..].iter().map(show).collect();
    let next: String = search.next().iter().map(show).collect();
    let all = history.iter().filter(|record| record.answer.is_some()).count();
    Violation::NotLinearizable {
        placed: (all - search.left, all),
        text: format!("after\n{last}none of these fits:\n{next}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A number with compare-and-set.
    #[derive(Debug, Clone, Default)]
    struct Register(u64);

    #[derive(Debug, Clone, Copy)]
    enum Do {
        Set(u64),
        Get,
        Add(u64),
    }

    impl Sequential for Register {
        type Call = Do;
        type Answer = u64;

        fn apply(&mut self, call: &Do, answer: Option<&u64>) -> bool {
            let before = self.0;
            match call {
                Do::Set(to) => self.0 = *to,
                Do::Add(by) => self.0 += by,
                Do::Get => {}
            }
            match answer {
                Some(answer) => *answer == self.0,
                None => before != self.0,
            }
        }

        fn fingerprint(&self) -> u64 {
            self.0
        }
    }

    fn record(call: Do, answer: Option<u64>, begun: u64, ended: u64) -> Record<Do, u64> {
        Record { client: 0, call, answer, begun, ended }
    }

    fn holds(history: &[Record<Do, u64>]) -> bool {
        linearize(&Register::default(), history, 100_000).is_ok()
    }

    #[test]
    fn calls_that_overlap_may_have_either_order() {
        let set = record(Do::Set(1), Some(1), 0, 10);
        for seen in [0, 1] {
            assert!(holds(&[set.clone(), record(Do::Get, Some(seen), 1, 9)]));
        }
        // The second read must not see what was before the first.
        let reads = |first, second| {
            [set.clone(), record(Do::Get, Some(first), 1, 4), record(Do::Get, Some(second), 5, 9)]
        };
        assert!(holds(&reads(0, 1)) && holds(&reads(1, 1)) && holds(&reads(0, 0)));
        assert!(!holds(&reads(1, 0)));
    }

    #[test]
    fn an_answered_change_is_seen_by_what_begins_later() {
        let set = record(Do::Set(1), Some(1), 0, 3);
        assert!(holds(&[set.clone(), record(Do::Get, Some(1), 4, 5)]));
        assert!(!holds(&[set, record(Do::Get, Some(0), 4, 5)]));
    }

    #[test]
    fn an_unknown_outcome_takes_effect_later_or_never_and_once() {
        let lost = record(Do::Add(1), None, 0, 1);
        let get = |seen, at| record(Do::Get, Some(seen), at, at + 1);
        assert!(holds(&[lost.clone(), get(0, 5), get(0, 7), get(1, 9)]));
        assert!(holds(&[lost.clone(), get(0, 5), get(0, 7)]));
        assert!(!holds(&[lost.clone(), get(1, 5), get(0, 7)]));
        assert!(!holds(&[lost, get(1, 5), get(2, 7)]));
        // Not before it was made.
        assert!(!holds(&[get(1, 0), record(Do::Add(1), None, 5, 6)]));
    }

    #[test]
    fn random_histories_of_a_register_hold_and_planted_faults_are_found() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            // Calls take effect at the multiples of ten, and last a while around them.
            let mut state = Register::default();
            let mut history: Vec<_> = (1..120_u64)
                .map(|at| {
                    let call = match random.u32(..3) {
                        0 => Do::Set(random.u64(..5)),
                        1 => Do::Add(1),
                        _ => Do::Get,
                    };
                    state.apply(&call, None);
                    let (before, after) = (random.u64(1..25), random.u64(1..25));
                    let answer = (random.u32(..30) != 0).then_some(state.0);
                    record(call, answer, (at * 10).saturating_sub(before), at * 10 + after)
                })
                .collect();
            assert!(holds(&history), "seed {seed}");
            let at = random.usize(20..100);
            history[at].answer = Some(1000 + seed);
            assert!(!holds(&history), "seed {seed}");
        }
    }
}
