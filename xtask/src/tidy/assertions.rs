//! Assertions that hold for too many results: `assert!(x.is_err())` holds for every error, also
//! for one with a cause that the test is not about. So does a statement `x.expect_err("why");`,
//! which looks at no error.
//!
//! A test names the error (`refused(x, &FsError::Exists)`, `testing::fails(x, "text")`, `matches!`,
//! a code, a kind).
//! The decoders of `crates/format` are exempt: they have one error, that the bytes are damaged.

use super::Tree;

/// The package with one error.
const EXEMPT: &str = "crates/format/";

/// This file holds examples.
const SELF: &str = "xtask/src/tidy/assertions.rs";
const BEGIN: &str = "assert!(";
/// What the condition ends with.
const END: &str = ".is_err()";
/// Calls that return an error, which a test must look at.
const ERRORS: [&str; 2] = [".expect_err(", ".unwrap_err("];

/// All rules about assertions.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        problems.extend(any_error(text).map(|line| {
            format!("{path}:{line}: the assertion holds for any error: name the kind, or the text")
        }));
        problems.extend(dropped_error(text).map(|line| {
            format!("{path}:{line}: nothing looks at the error: name the kind, or the text")
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

/// The lines of statements that take an error and drop it.
fn dropped_error(text: &str) -> impl Iterator<Item = usize> {
    let calls = ERRORS.into_iter().flat_map(|call| text.match_indices(call));
    calls.filter_map(|(at, call)| {
        let given = condition(&text[at + call.len()..]);
        let behind = &text[at + call.len() + given.len()..];
        let ends = behind.trim_start_matches([',', ')']).starts_with(';');
        let is_dropped = ends && is_whole_statement(&text[..at]);
        is_dropped.then(|| text[..at].matches('\n').count() + 1)
    })
}

/// Whether an expression up to here begins a statement that uses its value for nothing.
fn is_whole_statement(before: &str) -> bool {
    let mut depth = 0_usize;
    let begin = before.char_indices().rev().find(|&(_, letter)| match letter {
        ')' | ']' => {
            depth += 1;
            false
        }
        '}' if depth > 0 => {
            depth += 1;
            false
        }
        '(' | '[' | '{' if depth > 0 => {
            depth -= 1;
            false
        }
        ';' | '}' | '{' => depth == 0,
        '(' | '[' => true,
        _ => false,
    });
    let Some((at, letter)) = begin else { return false };
    let lines = before[at + letter.len_utf8()..].lines().map(str::trim_start);
    let code: Vec<&str> = lines.filter(|line| !line.starts_with("//")).collect();
    let statement = code.join(" ");
    let statement = statement.trim_start();
    let is_used = statement.starts_with("let ") || statement.starts_with("return ");
    ";}{".contains(letter) && !is_used && !statement.contains(" = ") && !statement.contains("=> ")
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
    use super::{any_error, check, dropped_error};

    #[test]
    fn an_error_that_nothing_looks_at_is_reported() {
        let bad = concat!(
            "fn f() {\n",
            "    x(\"a; (b\", || { y(); 1 }).expect_err(\"why (not)\");\n",
            "    // A remark = this.\n",
            "    one\n        .two(3)\n        .unwrap_err();\n",
            "    if z { w.unwrap_err(); }\n",
            "}\n"
        );
        assert_eq!(dropped_error(bad).collect::<Vec<_>>(), [2, 6, 7]);
        let good = concat!(
            "fn f() -> E {\n",
            "    let error = x.expect_err(\"why\");\n",
            "    let text = x(|| 1).unwrap_err().to_string();\n",
            "    look(x.unwrap_err());\n",
            "    assert_eq!(x.unwrap_err().kind(), K);\n",
            "    return x.unwrap_err();\n",
            "    x.unwrap_err()\n",
            "}\n"
        );
        assert_eq!(dropped_error(good).collect::<Vec<_>>(), [] as [usize; 0]);
        let tree = Tree::of(&[("crates/a/tests/it/b.rs", bad), ("crates/c/src/lib.rs", good)]);
        assert_eq!(check(&tree).len(), 3);
    }

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
