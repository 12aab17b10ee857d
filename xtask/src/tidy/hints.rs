//! Failures that users read name the next step: `Failure::new` without `.hint` in its statement is
//! counted in [`LEFT`], by package. The counts may only shrink.
//!
//! Failures of the kind `Protocol` have their hint from `Failure::new`. Others get theirs where the
//! path is known, in a function that takes the failure: these are among the counted.

use std::collections::BTreeMap;

use super::Tree;
use super::source::is_test;

/// How many such failures each package has at most. MAY ONLY SHRINK.
const LEFT: [(&str, usize); 3] =
    [("crates/client", 6), ("crates/pando", 92), ("crates/program", 5)];
const BEGIN: &str = "Failure::new(";
const EXEMPT: &str = "FailureKind::Protocol";

/// All rules about hints.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize)]) -> Vec<String> {
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
    let most = |package: &str| {
        left.iter().find(|(known, _)| *known == package).map_or(0, |(_, count)| *count)
    };
    found.retain(|package, places| places.len() > most(package));
    let problem = |(package, places): (&&str, &Vec<String>)| {
        format!(
            "{package}: {} failures have no hint, at most {}: write what to do next, by \
             `.hint(...)`: {}",
            places.len(),
            most(package),
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
        let is_counted =
            !product[at..end].contains(EXEMPT) && !product[end..rest].contains(".hint(");
        is_counted.then(|| product[..at].matches('\n').count() + 1)
    })
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
    use super::check_against;

    #[test]
    fn failures_without_a_hint_are_counted() {
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
        let found = check_against(&tree, &[]);
        assert!(found.len() == 1 && found[0].contains("crates/a/src/a.rs:2"), "{found:?}");
        assert_eq!(check_against(&tree, &[("crates/a", 1)]), [] as [&str; 0]);
    }
}
