//! Matches a regular expression in counted steps, so that a match of a long text can be cancelled.
//! It keeps all states that the automaton may be in after each byte, as by Thompson. Each byte that
//! is read is a step, and each state that is entered; all other work is in proportion to these.
//! `regex` matches faster, and cannot be interrupted.

use regex_automata::nfa::thompson::{NFA, State};
use regex_automata::util::primitives::StateID;

use crate::Result;
use crate::query::work::Work;

/// Whether the expression matches a part of a text. (Most expressions have anchors at both ends.)
pub(super) fn is_match(nfa: &NFA, text: &[u8], work: &mut Work<'_>) -> Result<bool> {
    let count = nfa.states().len();
    let mut run = Run { nfa, text, seen: vec![usize::MAX; count], open: Vec::new() };
    let (mut now, mut next) = (Vec::new(), Vec::new());
    // The loop that skips bytes before a match is part of the automaton.
    if run.enter(nfa.start_unanchored(), 0, &mut now, work)? {
        return Ok(true);
    }
    for at in 0..text.len() {
        work.count(1)?;
        for id in now.drain(..) {
            let target = match nfa.state(id) {
                State::ByteRange { trans } => trans.matches(text, at).then_some(trans.next),
                State::Sparse(transitions) => transitions.matches(text, at),
                State::Dense(transitions) => transitions.matches(text, at),
                _ => None,
            };
            if let Some(target) = target
                && run.enter(target, at + 1, &mut next, work)?
            {
                return Ok(true);
            }
        }
        if next.is_empty() {
            return Ok(false);
        }
        std::mem::swap(&mut now, &mut next);
    }
    Ok(false)
}

/// A match under way.
struct Run<'a> {
    nfa: &'a NFA,
    text: &'a [u8],
    /// For each state, the position at which it was last entered.
    seen: Vec<usize>,
    /// States to enter, in `enter`.
    open: Vec<StateID>,
}

impl Run<'_> {
    /// Enters a state, and those reachable from it without a byte. Those that take a byte are added
    /// to `states`. Returns whether one of them is a match.
    fn enter(
        &mut self,
        id: StateID,
        at: usize,
        states: &mut Vec<StateID>,
        work: &mut Work<'_>,
    ) -> Result<bool> {
        self.open.push(id);
        while let Some(id) = self.open.pop() {
            work.count(1)?;
            if std::mem::replace(&mut self.seen[id], at) == at {
                continue;
            }
            match self.nfa.state(id) {
                State::ByteRange { .. } | State::Sparse(_) | State::Dense(_) => states.push(id),
                State::Look { look, next } => {
                    if self.nfa.look_matcher().matches(*look, self.text, at) {
                        self.open.push(*next);
                    }
                }
                State::Union { alternates } => self.open.extend(alternates.iter().rev()),
                State::BinaryUnion { alt1, alt2 } => self.open.extend([*alt2, *alt1]),
                State::Capture { next, .. } => self.open.push(*next),
                State::Fail => {}
                State::Match { .. } => return Ok(true),
            }
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::is_match;
    use crate::Error;
    use crate::query::work::{NEVER, Work};
    use crate::query::{Dialect, Letters, Regex};

    /// Random expressions and texts: both forms of an expression agree.
    #[test]
    fn an_expression_matches_alike_in_steps() {
        let given = std::env::var("PANDO_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| fastrand::u64(..));
        println!("run again with PANDO_SEED={seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let pieces = [
            "a", "b", "\u{e9}", ".", "[ab]", "[^a]", "(a|b.)", "\\b", "\\<", "\\w", "\\W", "$",
            "^", "\n",
        ];
        let signs = ["", "", "", "*", "+", "?", "{2,3}"];
        let letters = [&b"a"[..], b"b", b" ", "\u{e9}".as_bytes(), b"\xff", b"\n"];
        let (mut yes, mut all) = (0, 0);
        for _ in 0..4000 {
            let pattern: String = (0..random.usize(1..6))
                .map(|_| [pieces[random.usize(..pieces.len())], signs[random.usize(..7)]].concat())
                .collect();
            let dialect = random.choice([Dialect::Extended, Dialect::Emacs, Dialect::Native]);
            let (case, of) = (random.bool(), random.choice([Letters::Bytes, Letters::Utf8]));
            let Ok(regex) = Regex::new(pattern.as_bytes(), dialect.unwrap(), case, of.unwrap())
            else {
                continue;
            };
            let compiled = regex.compiled.get().unwrap();
            for _ in 0..8 {
                let count = random.usize(0..8);
                let text: Vec<u8> =
                    (0..count).flat_map(|_| letters[random.usize(..6)].iter().copied()).collect();
                let fast = compiled.fast.is_match(&text);
                let steps = is_match(&compiled.steps, &text, &mut Work::until(&NEVER)).unwrap();
                let form = (dialect, case, of);
                assert_eq!(fast, steps, "{pattern:?} {form:?} and {}", text.escape_ascii());
                all += 1;
                yes += u32::from(steps);
            }
        }
        assert!(all > 5000 && yes > all / 20, "{yes} of {all}");
    }

    /// One that matched a single letter in regex 1.13.1 (regex-automata 0.4.18).
    #[test]
    fn an_expression_needs_both_of_its_letters() {
        let regex = Regex::new(br"\Wa.*a", Dialect::Native, false, Letters::Bytes).unwrap();
        for (text, expected) in [(&b"b a b"[..], false), (b" a ", false), (b"b a a", true)] {
            assert_eq!(regex.matches(text), expected, "{}", text.escape_ascii());
        }
    }

    /// An automaton enters states in a circle without a byte where a repetition may be empty. That
    /// must end, and take no more steps than the automaton has states and ways between them.
    #[test]
    fn a_repetition_of_what_may_be_empty_takes_bounded_steps() {
        let regex = Regex::new(b"((a*)*b?)*c", Dialect::Extended, false, Letters::Bytes).unwrap();
        let nfa = &regex.compiled.get().unwrap().steps;
        let text = b"aabaab".repeat(20);
        let leaves = AtomicBool::new(true);
        let mut work = Work::until(&leaves);
        assert!(!is_match(nfa, &text, &mut work).expect("it takes fewer steps than are noticed"));
        let most = 3 * nfa.states().len() * (text.len() + 1);
        assert!((text.len()..=most).contains(&work.done()), "{} of {most}", work.done());
    }

    /// No state is left once an anchored expression failed: the rest of the text is not read.
    #[test]
    fn an_expression_that_can_match_no_more_ends() {
        let regex = Regex::new(b"a{3}.*", Dialect::Extended, false, Letters::Bytes).unwrap();
        let nfa = &regex.compiled.get().unwrap().steps;
        let mut work = Work::until(&NEVER);
        assert!(!is_match(nfa, &b"aab".repeat(1000), &mut work).unwrap());
        // Some states before the first byte; then three bytes, and a state behind each of the two
        // that match.
        let first = {
            let mut work = Work::until(&NEVER);
            assert!(!is_match(nfa, b"", &mut work).unwrap());
            work.done()
        };
        assert_eq!(work.done(), first + 3 + 2, "{first} before the first byte");
    }

    /// A text that the uninterrupted form matches in microseconds is left to it.
    #[test]
    fn a_short_text_is_matched_by_the_fast_form() {
        let regex = Regex::new(b".*a.{1000}z", Dialect::Extended, false, Letters::Bytes).unwrap();
        let text = b"ab".repeat(500);
        let nfa = &regex.compiled.get().unwrap().steps;
        let left = AtomicBool::new(true);
        let slow = is_match(nfa, &text, &mut Work::until(&left));
        assert!(matches!(slow, Err(Error::Cancelled)), "{slow:?}");
        assert!(!regex.matches_until(&text, &left).expect("nothing looks at the flag"));
    }

    /// Each form of an expression is bounded by itself: the fast one has more states than the other
    /// one, except where it needs no automaton.
    #[test]
    fn both_forms_of_an_expression_are_bounded() {
        let refused = |pattern: &str, dialect, memory: usize| {
            let made = Regex::new(pattern.as_bytes(), dialect, false, Letters::Bytes);
            let error = made.unwrap().compile(memory).expect_err(pattern).to_string();
            let wanted = format!("the expression takes more than {memory} bytes when compiled");
            assert!(error.starts_with(&wanted), "{pattern}: {error}");
        };
        let groups = "(a[bc])".repeat(200);
        let regex = Regex::new(groups.as_bytes(), Dialect::Native, false, Letters::Bytes).unwrap();
        let memory = regex.compiled.get().unwrap().steps.memory_usage();
        refused(&groups, Dialect::Native, memory + 1000);
        let words: Vec<String> =
            (1..100_u64).map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
        refused(&words.join("|"), Dialect::Native, 2000);
        refused(".*a.{8000}z", Dialect::Extended, 100 << 10);
    }

    /// An expression whose states are all in use at each byte: 15 s for a path of 256 KiB.
    #[test]
    fn a_long_text_is_not_matched_for_a_caller_that_left() {
        let regex = Regex::new(b".*a.{8000}z", Dialect::Extended, false, Letters::Bytes).unwrap();
        let text = b"ab".repeat(128 << 10);
        let cancelled = regex.matches_until(&text, &AtomicBool::new(true));
        assert!(matches!(cancelled, Err(Error::Cancelled)), "{cancelled:?}");
    }
}
