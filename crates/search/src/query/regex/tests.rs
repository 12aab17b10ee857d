//! Tests of regular expressions.

use super::{Dialect, Regex};
use crate::query::Letters;

fn check(dialect: Dialect, pattern: &str, yes: &[&str], no: &[&str]) {
    for letters in [Letters::Bytes, Letters::Utf8] {
        let regex = Regex::new(pattern.as_bytes(), dialect, false, letters).unwrap();
        for text in yes {
            assert!(regex.matches(text.as_bytes()), "{pattern} matches {text}");
        }
        for text in no {
            assert!(!regex.matches(text.as_bytes()), "{pattern} does not match {text}");
        }
    }
}

fn refused(dialect: Dialect, pattern: &str, why: &str) {
    let made = Regex::new(pattern.as_bytes(), dialect, false, Letters::Utf8);
    let error = made.expect_err(pattern).to_string();
    assert!(error.starts_with(why), "{pattern}: {error}");
}

/// As in GNU find 4.9: the Emacs dialects take a class as the letters that it is written with.
#[test]
fn character_classes_follow_the_dialect() {
    for dialect in [Dialect::Emacs, Dialect::Findutils] {
        check(dialect, "[[:digit:]]", &["d]", ":]", "[]"], &["1", "d"]);
        check(dialect, "[[:d]]", &["d]"], &["d"]);
        check(dialect, "[^[:upper:]].*", &["A]", "a]"], &["u]", "A"]);
    }
    for dialect in [Dialect::Basic, Dialect::Extended] {
        check(dialect, "[[:digit:]]", &["1"], &["d]", "d"]);
        for (pattern, class) in [("[[:foo:]]", "foo"), ("[[:digit:][:LOWER:]]", "LOWER")] {
            let why = format!("there is no class '{class}' of letters");
            refused(dialect, pattern, &why);
        }
    }
}

/// In a UTF-8 locale, letters beyond ASCII are letters.
#[test]
fn classes_are_those_of_the_letters() {
    for (class, yes, no) in [
        ("alpha", "a\u{e9}\u{c9}\u{4e2d}", "1 -\u{20ac}"),
        ("alnum", "a1\u{e9}", " -\u{20ac}"),
        ("lower", "a\u{e9}", "A\u{c9}1"),
        ("upper", "A\u{c9}", "a\u{e9}1"),
        ("punct", "-_\u{20ac}", "a1\u{e9} "),
        ("print", "a \u{e9}\u{20ac}", "\u{1}\u{85}"),
        ("graph", "a\u{e9}\u{20ac}", " \u{1}\u{2003}"),
        ("space", " \t\n\u{2003}", "a\u{e9}"),
        ("blank", " \t\u{2003}", "a\n"),
        ("cntrl", "\u{1}\n\u{85}", "a \u{e9}"),
        ("digit", "17", "a\u{e9}\u{663}"),
        ("xdigit", "1aF", "g\u{e9}"),
    ] {
        let set = format!("[[:{class}:]]");
        for (pattern, yes, no) in [(&set, yes, no), (&set.replace("[[", "[^["), no, yes)] {
            let regex = |letters| {
                Regex::new(pattern.as_bytes(), Dialect::Extended, false, letters).unwrap()
            };
            for (letters, found) in yes
                .chars()
                .map(|found| (found, true))
                .chain(no.chars().map(|found| (found, false)))
                .flat_map(|one| [(Letters::Utf8, one), (Letters::Bytes, one)])
                .filter(|(letters, (found, _))| *letters == Letters::Utf8 || found.is_ascii())
            {
                let (text, wanted) = (String::from(found.0), found.1);
                let matches = regex(letters).matches(text.as_bytes());
                assert_eq!(matches, wanted, "{pattern} and {text:?}, {letters:?}");
            }
        }
    }
    for (pattern, yes, no) in [(r"\w+", "a\u{e9}_1", "-"), (r"\s\S", "\u{2003}a", "\u{2003} ")] {
        let regex = Regex::new(pattern.as_bytes(), Dialect::Extended, false, Letters::Utf8);
        let regex = regex.unwrap();
        assert!(regex.matches(yes.as_bytes()) && !regex.matches(no.as_bytes()), "{pattern}");
    }
}

#[test]
fn each_dialect_has_its_operators() {
    check(Dialect::Findutils, ".*\\.\\(c\\|h\\)", &["a.c", "\n.h"], &["a.d", "a.cc"]);
    check(Dialect::Findutils, "a+b?", &["a", "aab"], &["b", "a+b"]);
    check(Dialect::Findutils, "a\\{2\\}", &["a{2}"], &["aa"]);
    check(Dialect::Emacs, "a.b", &["axb"], &["a\nb"]);
    check(Dialect::Basic, "*a\\{2\\}", &["*aa"], &["a"]);
    check(Dialect::Basic, "a+b", &["a+b"], &["aab"]);
    check(Dialect::Basic, "a\\+b", &["aab"], &["a+b"]);
    check(Dialect::Extended, "(a|b){2,}$", &["ab", "baa"], &["a", "abc"]);
    check(Dialect::Extended, "^x[^]a-c[:digit:]]y", &["xdy"], &["x]y", "x1y", "xay"]);
    check(Dialect::Extended, "a+?b", &["b", "aab"], &["c"]);
    check(Dialect::Extended, "a||b", &["", "a", "b"], &["ab"]);
    check(Dialect::Basic, "a^b$c", &["a^b$c"], &["abc"]);
}

#[test]
fn malformed_expressions_are_refused() {
    for (pattern, why) in [
        ("*a", "'*' has nothing before it to repeat"),
        ("(a", "a group is not closed"),
        ("a{", "an interval is not closed"),
        ("[a", "a bracket is not closed"),
        ("a\\", "a backslash at the end quotes nothing"),
        ("(a)\\1", "back references are not supported"),
        ("a{1,99999999}", "the expression takes more than 2097152 bytes when compiled"),
    ] {
        refused(Dialect::Extended, pattern, why);
    }
}

#[test]
fn arbitrary_bytes_match() {
    let regex = Regex::new(b"\xff.", Dialect::Findutils, false, Letters::Bytes).unwrap();
    assert!(regex.matches(b"\xff\xfe"));
    let regex = Regex::new(b"[\xf0-\xff]", Dialect::Findutils, false, Letters::Bytes).unwrap();
    assert!(regex.matches(b"\xf7") && !regex.matches(b"a"));
}
