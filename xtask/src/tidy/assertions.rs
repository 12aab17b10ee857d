//! Assertions that hold for too many results: `assert!(x.is_err())` holds for every error, also
//! for one with a cause that the test is not about.
//!
//! A test names the error (`refused(x, &FsError::Exists)`, `matches!`, a code, a kind, a text).
//! The decoders of `crates/format` are exempt: they have one error, that the bytes are damaged.

use super::Tree;

/// The package with one error.
const EXEMPT: &str = "crates/format/";

/// This file holds examples.
const SELF: &str = "xtask/src/tidy/assertions.rs";
const BEGIN: &str = "assert!(";
/// What the condition ends with.
const END: &str = ".is_err()";

/// All rules about assertions.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        problems.extend(any_error(text).map(|line| {
            format!("{path}:{line}: the assertion holds for any error: name the kind, or the text")
        }));
    }
    problems
}

fn is_checked(path: &str) -> bool {
    path.strip_suffix(".rs").is_some() && path != SELF && !path.starts_with(EXEMPT)
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
    use super::{any_error, check};

    #[test]
    fn an_assertion_that_holds_for_any_error_is_reported() {
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
        let found = check(&tree);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[2].starts_with("crates/a/tests/it/b.rs:7: "), "{found:?}");
        let decoder = Tree::of(&[("crates/format/src/b.rs", bad)]);
        assert!(check(&decoder).is_empty(), "decoders have one error");
    }
}
