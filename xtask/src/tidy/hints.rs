//! Failures that users read contain the next step. Each `Failure::new` has a `.hint` in its
//! statement, or the value that it is bound to has one in the same block.
//!
//! Failures of the kind `Protocol` have their hint from `Failure::new`. `Interrupted` is what the
//! user did, and `Leaving` is repeated by the program. Where there is no next step, a line above
//! has a comment `tidy: no hint: ` with the reason.
//!
//! Some errors of the file system get no hint. Their texts contain the next step: behind a
//! semicolon or a colon is what to do ([`DO`]), or a command.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::Tree;
use super::source::is_test;

const BEGIN: &str = "Failure::new(";
const EXEMPT: [&str; 3] =
    ["FailureKind::Protocol", "FailureKind::Interrupted", "FailureKind::Leaving"];
const MARK: &str = "// tidy: no hint: ";

/// Errors of the file system to which nothing adds a hint (`crates/pando/src/daemon/about.rs`).
static TEXT_ALONE: LazyLock<Regex> = LazyLock::new(|| {
    let text = r#"FsError::(?:LimitReached|Busy|MemoryExceeded)\(\s*"((?:[^"\\]|\\[\s\S])*)""#;
    Regex::new(text).expect("invariant: the pattern is well formed")
});
/// What to do.
const DO: [&str; 21] = [
    "choose", "clone", "compare", "copy", "do", "dump", "end", "list", "make", "move", "name",
    "pass", "release", "remove", "rename", "repeat", "send", "set", "try", "use", "wait",
];
/// Crates whose errors reach programs as an errno, and no people as a text.
const ERRNO: [&str; 2] = ["crates/remote/", "crates/vfs/"];

/// All rules about hints.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = failures(tree);
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".rs").is_some()) {
        let is_product = path.starts_with("crates/") && path.contains("/src/") && !is_test(path);
        if is_product && !ERRNO.iter().any(|folder| path.starts_with(folder)) {
            let found = without_step(text).map(|line| {
                format!("{path}:{line}: the error does not name the next step: add \"; ...\"")
            });
            problems.extend(found);
        }
    }
    problems
}

/// The lines of errors whose texts name no next step, outside of tests.
fn without_step(text: &str) -> impl Iterator<Item = usize> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    TEXT_ALONE.captures_iter(product).filter_map(|found| {
        let (whole, text) = (found.get(0)?, found.get(1)?.as_str());
        let names = |step: &str| {
            let step = step.trim_start_matches(|c: char| c.is_whitespace() || c == '\\');
            let word = step.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
            DO.contains(&word) || step.contains("`pando ")
        };
        let has_step = text.split([';', ':']).skip(1).any(names);
        (!has_step).then(|| product[..whole.start()].matches('\n').count() + 1)
    })
}

/// Failures without a hint.
fn failures(tree: &Tree) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".rs").is_some()) {
        let Some((package, _)) = path.split_once("/src/").filter(|_| !is_test(path)) else {
            continue;
        };
        if package.starts_with("crates/") && package != "crates/wire" {
            let places = without_hint(text).map(|line| format!("{path}:{line}"));
            found.entry(package).or_default().extend(places);
        }
    }
    found.retain(|_, places| !places.is_empty());
    let problem = |(package, places): (&&str, &Vec<String>)| {
        format!(
            "{package}: {} failures have no hint: write what to do next, by `.hint(...)`, or why \
             there is no next step, by a comment \"{MARK}\": {}",
            places.len(),
            places.join(" ")
        )
    };
    found.iter().map(problem).collect()
}

/// The lines of failures without a hint, outside of tests.
fn without_hint(text: &str) -> impl Iterator<Item = usize> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    product.match_indices(BEGIN).filter_map(|(at, _)| {
        let end = closed(product, at + BEGIN.len() - 1);
        let rest = chain(product, end);
        let is_exempt = EXEMPT.iter().any(|kind| product[at..end].contains(kind))
            || product[end..rest].contains(".hint(")
            || bound(&product[..at]).is_some_and(|name| gets_hint(&product[rest..], name))
            || is_marked(&product[..at]);
        (!is_exempt).then(|| product[..at].matches('\n').count() + 1)
    })
}

/// The name that a value is bound to whose expression begins behind this text.
fn bound(before: &str) -> Option<&str> {
    let name = before.trim_end().strip_suffix('=')?.trim_end();
    let name = &name[name.rfind(' ').map_or(0, |space| space + 1)..];
    name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_').then_some(name)
}

/// Whether a value gets a hint in the rest of its block.
fn gets_hint(rest: &str, name: &str) -> bool {
    let mut depth = 0_usize;
    let end = rest.find(|letter| match letter {
        '{' => {
            depth += 1;
            false
        }
        '}' if depth == 0 => true,
        '}' => {
            depth -= 1;
            false
        }
        _ => false,
    });
    let block = &rest[..end.unwrap_or(rest.len())];
    block.match_indices(name).any(|(at, _)| {
        let behind = at + name.len();
        block[behind..chain(block, behind)].contains(".hint(")
    })
}

/// Whether one of the lines above, up to the last blank one or end of a statement, has the mark
/// with a reason.
fn is_marked(before: &str) -> bool {
    let lines = before.lines().rev().take(4);
    lines
        .filter_map(|line| line.trim_start().strip_prefix(MARK))
        .any(|reason| !reason.trim().is_empty())
}

/// The end of the calls that are chained behind a place.
fn chain(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        let call = rest.trim_start();
        let name = call.strip_prefix('.').map_or(0, |name| {
            name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or_default() + 1
        });
        if name == 0 || !call[name..].starts_with('(') {
            return at;
        }
        at = closed(text, at + rest.len() - call.len() + name);
    }
}

/// The place behind the parenthesis that closes the one at a place.
fn closed(text: &str, open: usize) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, letter) in text[open..].char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '(' => depth += 1,
            ')' if depth == 1 => return open + at + 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn failures_without_a_hint_are_reported() {
        let code = "fn f() {\n    Err(Failure::new(KIND, format!(\"a ) {b}\")).at(path))\n}\n\
                    fn g() {\n    Failure::new(KIND, \"c\")\n        .at(path)\n\
                    \x20       .hint(\"d\")\n}\n\
                    fn h() {\n    Failure::new(FailureKind::Protocol, \"e\")\n}\n";
        let tests = format!("#[cfg(test)]\nmod tests {{\n{code}}}\n");
        let tree = Tree::of(&[
            ("crates/a/src/a.rs", code),
            ("crates/a/src/b.rs", &tests),
            ("crates/a/tests/it/a.rs", code),
        ]);
        let found = check(&tree);
        assert!(found.len() == 1 && found[0].contains("crates/a/src/a.rs:2"), "{found:?}");
    }

    #[test]
    fn a_value_may_get_its_hint_later_in_its_block() {
        let of = |code: &str| check(&Tree::of(&[("crates/a/src/a.rs", code)]));
        let begin = "fn f() {\n    let failure = Failure::new(KIND, text);\n";
        let later = format!("{begin}    Err(failure.at(path).hint(\"a\"))\n}}\n");
        assert_eq!(of(&later), [] as [&str; 0]);
        let elsewhere = format!("{begin}}}\nfn g() {{\n    failure.hint(\"a\")\n}}\n");
        assert!(of(&elsewhere)[0].contains("a.rs:2"));
    }

    #[test]
    fn errors_without_a_hint_name_the_next_step_in_their_text() {
        let of = |path: &str, text: &str| {
            let code =
                format!("fn f() {{\n    Err(FsError::Busy(\n        \"{text}\",\n    ))\n}}\n");
            check(&Tree::of(&[(path, &code)])).len()
        };
        for (text, problems) in [
            ("the name was changed", 1),
            ("the name was changed; nobody knows by whom", 1),
            ("the name was changed; try again", 0),
            ("it is changed \\\n         so often; try \\\n         again", 0),
            ("it is held: `pando snapshot release` ends a hold", 0),
        ] {
            assert_eq!(of("crates/a/src/a.rs", text), problems, "{text}");
            assert_eq!(of("crates/remote/src/a.rs", text), 0, "{text}");
            assert_eq!(of("crates/a/tests/it/a.rs", text), 0, "{text}");
        }
    }

    #[test]
    fn a_mark_needs_a_reason() {
        let of = |reason: &str| {
            let code = format!("    // tidy: no hint: {reason}\n    Failure::new(KIND, text)\n");
            check(&Tree::of(&[("crates/a/src/a.rs", &code)]))
        };
        assert_eq!(of("the caller adds it"), [] as [&str; 0]);
        assert!(of("")[0].contains("a.rs:2"));
    }
}
