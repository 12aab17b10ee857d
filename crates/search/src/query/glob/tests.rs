//! Tests of patterns.

use std::sync::atomic::AtomicBool;

use super::{Glob, GlobError, Letters, NEVER, STEPS_A_BYTE, WEIGHT_MAX, Work};
use crate::Error;

fn check(pattern: &str, yes: &[&str], no: &[&str]) {
    for letters in [Letters::Bytes, Letters::Utf8] {
        let glob = Glob::new(pattern.as_bytes(), false, letters).unwrap();
        for text in yes {
            assert!(glob.matches(text.as_bytes()), "{pattern} matches {text}");
        }
        for text in no {
            assert!(!glob.matches(text.as_bytes()), "{pattern} does not match {text}");
        }
    }
}

#[test]
fn patterns_match_as_fnmatch_does() {
    check("a*b", &["ab", "a.b", "a/b", "abab"], &["a", "abc", "ba"]);
    check("*", &["", ".x", "a/b"], &[]);
    check("?", &["a", "/", "."], &["", "ab"]);
    check("*.h5", &[".h5", "a.h5"], &["a.h5x", "h5"]);
    check("[a-c]x", &["ax", "cx"], &["dx", "-x"]);
    check("[!a-c]", &["d", "-"], &["a", "b", ""]);
    check("[]x]", &["]", "x"], &["[", ""]);
    check("[a-]", &["a", "-"], &["b"]);
    check("[", &["["], &["", "x"]);
    check("[abc", &["[abc"], &["a"]);
    check("[[:digit:]_]*", &["1", "_a"], &["a"]);
    check("\\*", &["*"], &["a", "\\*"]);
    check("a\\", &[], &["a", "a\\"]);
    check("*a*b*c", &["abc", "xaybzc", "abcabc"], &["acb", "ab"]);
}

#[test]
fn patterns_match_bytes_or_characters() {
    let text = "\u{e9}".as_bytes();
    assert!(!Glob::new(b"?", false, Letters::Bytes).unwrap().matches(text));
    assert!(Glob::new(b"??", false, Letters::Bytes).unwrap().matches(text));
    assert!(Glob::new(b"?", false, Letters::Utf8).unwrap().matches(text));
    assert!(Glob::new(b"?b", false, Letters::Utf8).unwrap().matches(b"\xffb"));
    let any_case = Glob::new("[\u{c9}]*".as_bytes(), true, Letters::Utf8).unwrap();
    assert!(any_case.matches(text));
    assert!(Glob::new("\u{c9}".as_bytes(), true, Letters::Utf8).unwrap().matches(text));
    assert!(Glob::new(b"A[B]*", true, Letters::Bytes).unwrap().matches(b"aBc"));
}

/// As GNU find 4.9 does with `-iname`. Both ends of a range ignore case, but items named in a set -
/// a class, or a letter as `[=a=]` or `[.a.]` - do not.
#[test]
fn sets_ignore_the_case_of_ranges_and_not_of_what_is_named() {
    for (pattern, yes, no) in [
        ("[[:lower:]]", "az", "AZ1"),
        ("[[:upper:]]", "AZ", "az1"),
        ("[![:lower:]]", "AZ1", "az"),
        ("[[=a=]]", "a", "Ab"),
        ("[[.A.]]", "A", "aB"),
        ("[a-c]", "aAcC", "dD"),
        ("[A-C]", "aAcC", "dD"),
        ("[b-B]", "bB", "aAcC"),
        ("[Z-a]", "", "zZaA_["),
        ("[!A-C]", "dD_", "aAcC"),
        ("[[:lower:]A]", "aAz", "ZB"),
    ] {
        for letters in [Letters::Bytes, Letters::Utf8] {
            let glob = Glob::new(pattern.as_bytes(), true, letters).unwrap();
            for byte in yes.bytes() {
                assert!(glob.matches(&[byte]), "{pattern} matches {}", byte as char);
            }
            for byte in no.bytes() {
                assert!(!glob.matches(&[byte]), "{pattern} does not match {}", byte as char);
            }
        }
    }
    let lower = Glob::new(b"*[[:lower:]]X", true, Letters::Utf8).unwrap();
    assert!(lower.matches("\u{c9}\u{e9}x".as_bytes()));
    assert!(!lower.matches("\u{e9}\u{c9}x".as_bytes()));
}

#[test]
fn unclosed_sets_are_scanned_once() {
    for (piece, end) in [("[", ""), ("[:", ""), ("[", "[.].]"), ("[a-", ""), ("[!", "]")] {
        let source = super::Source {
            pattern: [piece.repeat(4000).as_bytes(), end.as_bytes()].concat(),
            ignore_case: false,
            letters: Letters::Utf8,
        };
        let (mut sets, mut rest) = (super::Sets::default(), &source.pattern[..]);
        while let Some(at) = rest.iter().position(|byte| *byte == b'[') {
            rest = &rest[at + 1..];
            if let Some((_, after)) = sets.read(rest, Letters::Utf8) {
                rest = after;
            }
        }
        let length = source.pattern.len();
        assert!(sets.items <= 3 * length, "{piece}: {} items of {length}", sets.items);
    }
    check("[[.].]", &["[..]"], &["[].]", "[[.].]"]);
    check("[a[", &["[a["], &["a", "[a"]);
    check("[[:alpha:][]", &["a", "["], &["1"]);
}

#[test]
fn a_literal_is_quoted() {
    let glob = Glob::literal(b"a*[b]\\?").unwrap();
    assert!(glob.matches(b"a*[b]\\?"));
    assert!(!glob.matches(b"ax[b]\\?"));
    let glob = Glob::containing(b"*", false, Letters::Utf8).unwrap();
    assert!(glob.matches(b"a*b") && !glob.matches(b"ab"));
}

/// Patterns and texts for which backtracking after each letter takes the square of their length:
/// with it this takes minutes.
#[test]
fn hard_patterns_match_in_linear_time() {
    let text = "a".repeat(400_000);
    for set in ["b", "[!a]", "[b-z]"] {
        let pattern = format!("*{}{set}*c", "[a-x]".repeat(500));
        for letters in [Letters::Bytes, Letters::Utf8] {
            let glob = Glob::new(pattern.as_bytes(), false, letters).unwrap();
            assert!(!glob.matches(text.as_bytes()));
            let end = if set == "b" { "bc" } else { "zc" };
            assert!(glob.matches([&text, end].concat().as_bytes()), "{set}");
        }
    }
}

/// Both algorithms agree on random patterns and texts.
#[test]
fn both_matchers_agree_on_patterns() {
    let mut rng = fastrand::Rng::with_seed(17);
    let pieces = ["a", "b", "\u{e9}", "*", "*", "?", "[ab]", "[!a]", "[[:upper:]]"];
    let (mut yes, mut all) = (0, 0);
    for _ in 0..20_000 {
        let pattern: String =
            (0..rng.usize(0..8)).map(|_| pieces[rng.usize(..pieces.len())]).collect();
        let letters = [&b"a"[..], b"b", b"A", "\u{e9}".as_bytes(), b"\xff"];
        let text: Vec<u8> =
            (0..rng.usize(0..10)).flat_map(|_| letters[rng.usize(..5)].iter().copied()).collect();
        for letters in [Letters::Bytes, Letters::Utf8] {
            let glob = Glob::new(pattern.as_bytes(), rng.bool(), letters).unwrap();
            let super::Shape::General(parts) = &glob.shape else { continue };
            let matches = glob.matches(&text);
            let mut work = Work::until(&NEVER);
            let same = super::linear::matches(parts, &text, &glob.source, &mut work).unwrap();
            assert_eq!(matches, same, "{pattern} and {}", text.escape_ascii());
            all += 1;
            yes += u32::from(matches);
        }
    }
    assert!(all > 10_000 && yes > all / 20, "{yes} of {all}");
}

/// Literals between stars cost the same at any length, and so do the ends of a pattern: paths are
/// searched with both. Everything else is bounded.
#[test]
fn a_pattern_that_costs_much_at_each_letter_is_refused() {
    let long = "b".repeat(4000);
    for pattern in [
        format!("*/{long}/*/{long}*"),
        format!("{long}?*[a-c]{long}"),
        format!("*{}*", "[ab]".repeat(WEIGHT_MAX / 2)),
    ] {
        Glob::new(pattern.as_bytes(), true, Letters::Utf8).unwrap();
    }
    for pattern in [
        format!("*{long}?*"),
        format!("*{}*", "[ab]".repeat(WEIGHT_MAX / 2 + 1)),
        format!("*[{}]*", "abcd".repeat(WEIGHT_MAX / 4 + 1)),
        format!("*{}*", "?*".repeat(WEIGHT_MAX)) + "?*",
    ] {
        let refused = Glob::new(pattern.as_bytes(), true, Letters::Utf8).unwrap_err();
        assert!(matches!(refused, GlobError::Weight(_)), "{refused:?}");
        assert!(refused.to_string().contains("at most 512"), "{refused}");
    }
    let refused = Glob::new(&vec![b'a'; 65537], false, Letters::Bytes).unwrap_err();
    assert_eq!(refused.to_string(), "the pattern has 65537 bytes, and at most 65536 are accepted");
}

/// The dearest pattern, a long path, and no two letters alike: the work is counted, and it ends
/// when the caller has left.
#[test]
fn the_work_for_one_row_is_bounded_and_can_be_cancelled() {
    let pattern = format!("*{}[!\u{1}-\u{ffff}]*", "[[:alpha:]]".repeat(WEIGHT_MAX - 1));
    let glob = Glob::new(pattern.as_bytes(), true, Letters::Utf8).unwrap();
    let text: String = ('\u{4e00}'..='\u{9fff}').cycle().take(80_000).collect();
    let mut work = Work::until(&NEVER);
    let super::Shape::General(parts) = &glob.shape else { panic!("it is general") };
    assert!(!super::general(parts, text.as_bytes(), &glob.source, &mut work).unwrap());
    let steps = work.done();
    let most = STEPS_A_BYTE * text.len() + 80_000 * (WEIGHT_MAX + WEIGHT_MAX / 64 + 2);
    assert!(steps <= most, "{steps} steps, at most {most}");
    let left = glob.matches_until(text.as_bytes(), &AtomicBool::new(true));
    assert!(matches!(left, Err(Error::Cancelled)), "{left:?}");
}

/// The parts of a pattern, read as they are.
fn parts(pattern: &str) -> (super::Source, Vec<super::Term>) {
    let (ignore_case, letters) = (false, Letters::Bytes);
    let source = super::Source { pattern: pattern.as_bytes().to_vec(), ignore_case, letters };
    let parts = super::parts(&source).unwrap();
    (source, parts)
}

/// Backtracking is bounded by the length of a text, which is not bounded.
#[test]
fn backtracking_counts_its_steps() {
    let (source, parts) = parts("*?z*a");
    for length in [0, 10, 5000] {
        let mut work = Work::until(&NEVER);
        let text = b"a".repeat(length);
        assert!(!super::general(&parts, &text, &source, &mut work).unwrap());
        // The star, of each letter that it is any and that no `z` follows, and the end.
        assert_eq!(work.done(), 2 * length + 2, "{length}");
    }
    let long = Glob::new(b"*?z*a", false, Letters::Bytes).unwrap();
    let left = long.matches_until(&b"a".repeat(20_000), &AtomicBool::new(true));
    assert!(matches!(left, Err(Error::Cancelled)), "{left:?}");
}

/// Each loop of a match in linear time counts.
#[test]
fn each_part_of_a_match_in_linear_time_counts_its_steps() {
    let sets = "[ab]".repeat(65);
    for (pattern, text, steps) in [
        // Letters are read.
        ("z*", "xxxxxxx", 7),
        // A literal is prepared, but for its first letter, and looked for.
        ("*aab*", "xxxxxxx", 7 + 2 + 7),
        ("*aab*", "", 2),
        ("*aab*", "xaabxxx", 7 + 2 + 3),
        // A part with sets costs its members at each new letter, and a word at each letter.
        ("*[ab][abc]*", "xxxxxxx", 7 + 5 + 7),
        ("*[ab][abc]*", "xyxyxyx", 7 + 2 * 5 + 7),
        (&format!("*{sets}*"), "xxxxxxx", 7 + 130 + 2 * 7),
    ] {
        let (source, parts) = parts(pattern);
        let mut work = Work::until(&NEVER);
        super::linear::matches(&parts, text.as_bytes(), &source, &mut work).unwrap();
        assert_eq!(work.done(), steps, "{pattern} and {text}");
    }
}

/// A literal that begins again within itself is found wherever it begins.
#[test]
fn a_literal_that_overlaps_itself_is_found() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut word = |most: usize| -> String {
        (0..random.usize(1..=most)).map(|_| if random.bool() { 'a' } else { 'b' }).collect()
    };
    let (mut yes, mut all) = (0, 0);
    for _ in 0..3000 {
        let (literal, text) = (word(9), word(40));
        let (source, parts) = parts(&format!("*{literal}*"));
        let mut work = Work::until(&NEVER);
        let found = super::linear::matches(&parts, text.as_bytes(), &source, &mut work).unwrap();
        assert_eq!(found, text.contains(&literal), "{literal} in {text}");
        all += 1;
        yes += u32::from(found);
    }
    assert!(yes > all / 5 && yes < all / 5 * 4, "{yes} of {all}");
}
