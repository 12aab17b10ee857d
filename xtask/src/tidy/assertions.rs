//! Assertions that hold for too many results: `assert!(x.is_err())` holds for every error, also
//! for one with a cause that the test is not about.
//!
//! A test names the error (`refused(x, &FsError::Exists)`, `matches!`, a code, a kind). Assertions
//! that do not are counted in [`LEFT`]. The decoders of `crates/format` are exempt: they have one
//! error, which is that the bytes are damaged.

use std::collections::BTreeMap;

use super::Tree;

/// How many such assertions each package has. MAY ONLY SHRINK.
const LEFT: [(&str, usize); 6] = [
    ("crates/btree", 4),
    ("crates/device", 4),
    ("crates/fs", 6),
    ("crates/objects", 3),
    ("crates/pando", 7),
    ("crates/store", 9),
];

/// The package with one error.
const EXEMPT: &str = "crates/format/";

/// This file holds examples.
const SELF: &str = "xtask/src/tidy/assertions.rs";
const BEGIN: &str = "assert!(";
/// What the condition ends with.
const END: &str = ".is_err()";

/// All rules about assertions.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize)]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<String>> =
        left.iter().map(|(package, _)| (*package, Vec::new())).collect();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        let places = any_error(text).map(|line| format!("{path}:{line}"));
        found.entry(package(path)).or_default().extend(places);
    }
    let allowed = |package: &str| left.iter().find(|(known, _)| *known == package);
    found.retain(|package, places| places.len() != allowed(package).map_or(0, |(_, count)| *count));
    let problems = found.iter().map(|(package, places)| {
        format!(
            "{package}: {} assertions hold for any error; the table in \
             xtask/src/tidy/assertions.rs allows {}, and may only shrink: {}",
            places.len(),
            allowed(package).map_or(0, |(_, count)| *count),
            places.join(" ")
        )
    });
    problems.collect()
}

fn is_checked(path: &str) -> bool {
    path.strip_suffix(".rs").is_some() && path != SELF && !path.starts_with(EXEMPT)
}

/// The directory of a file's package.
fn package(path: &str) -> &str {
    let end = ["/src/", "/tests/", "/examples/"].iter().filter_map(|part| path.find(part)).min();
    &path[..end.unwrap_or(path.len())]
}

/// The lines of assertions whose whole condition, or its last part, is that there is an error.
fn any_error(text: &str) -> impl Iterator<Item = usize> {
    text.match_indices(BEGIN).filter_map(|(at, _)| {
        let condition = condition(&text[at + BEGIN.len()..]);
        condition.trim_end().ends_with(END).then(|| text[..at].matches('\n').count() + 1)
    })
}

/// The first argument of a macro, from behind the parenthesis on.
fn condition(text: &str) -> &str {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => in_string = !in_string,
            _ if in_string => {}
            '(' | '[' | '{' => depth += 1,
            ',' | ')' if depth == 0 => return text[..at].trim_end_matches(','),
            ')' | ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{any_error, check_against};

    #[test]
    fn an_assertion_that_holds_for_any_error_is_counted() {
        let bad = concat!(
            "fn f() {\n",
            "    assert!(x(\"a, (b\").is_err(), \"what\");\n",
            "    assert!(\n        y(|n| (n, 1))\n            .is_err(),\n    );\n",
            "    assert!(one && two.is_err());\n",
            "}\n"
        );
        assert_eq!(any_error(bad).collect::<Vec<_>>(), [2, 3, 7]);
        let good = concat!(
            "assert!(x.is_err_and(|e| e.kind() == K));\n",
            "assert!(v.iter().all(|x| x.is_err()), \"all\");\n"
        );
        assert_eq!(any_error(good).collect::<Vec<_>>(), [] as [usize; 0]);
        let tree = Tree::of(&[("crates/a/tests/it/b.rs", bad), ("crates/c/src/lib.rs", good)]);
        assert_eq!(check_against(&tree, &[("crates/a", 3)]), [] as [&str; 0]);
        for wrong in [&[("crates/a", 2)][..], &[("crates/a", 4)], &[], &[("crates/c", 1)]] {
            assert!(!check_against(&tree, wrong).is_empty(), "{wrong:?}");
        }
    }
}
