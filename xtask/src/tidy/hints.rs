//! Failures that users read contain the next step. Each `Failure::new` has a `.hint` in its
//! statement, or the value that it is bound to has one in the same block.
//!
//! Failures of the kind `Protocol` have their hint from `Failure::new`. `Interrupted` is what the
//! user did, and `Leaving` is repeated by the program. Where there is no next step, a line above
//! has a comment `tidy: no hint: ` with the reason.

use std::collections::BTreeMap;

use super::Tree;
use super::source::is_test;

const BEGIN: &str = "Failure::new(";
const EXEMPT: [&str; 3] =
    ["FailureKind::Protocol", "FailureKind::Interrupted", "FailureKind::Leaving"];
const MARK: &str = "// tidy: no hint: ";

/// All rules about hints.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
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
    fn a_mark_needs_a_reason() {
        let of = |reason: &str| {
            let code = format!("    // tidy: no hint: {reason}\n    Failure::new(KIND, text)\n");
            check(&Tree::of(&[("crates/a/src/a.rs", &code)]))
        };
        assert_eq!(of("the caller adds it"), [] as [&str; 0]);
        assert!(of("")[0].contains("a.rs:2"));
    }
}
