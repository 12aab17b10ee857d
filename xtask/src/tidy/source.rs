//! Rules for single files.

use super::Tree;

const COLUMNS_MAX: usize = 100;
const LINES_MAX: usize = 600;
/// For tests, which are lists of cases rather than thoughts.
const TEST_LINES_MAX: usize = 1000;
const FILE_BYTES_MAX: u64 = 256 << 10;
/// For recorded traces, which are compressed.
const TRACE_BYTES_MAX: u64 = 1 << 20;

/// Words that mark unfinished work. Put together here so that this file does not hold them.
const UNFINISHED: [(&str, &str); 4] = [
    (concat!("FIX", "ME"), "finish it, or write down why it is not done"),
    (concat!("todo", "!("), "finish it"),
    (concat!("unimple", "mented!("), "finish it"),
    (concat!("#[ig", "nore"), "a test that does not run is no test"),
];

/// The rules that look at one text file.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    ascii(path, text, &mut problems);
    unfinished(path, text, &mut problems);
    if path.strip_suffix(".rs").is_some() {
        header(path, text, &mut problems);
        lines(path, text, &mut problems);
        columns(path, text, &mut problems);
        statements(path, text, &mut problems);
    }
    problems
}

/// A file opens with what it is, where it is in the flow, and its invariants.
fn header(path: &str, text: &str, problems: &mut Vec<String>) {
    if !text.starts_with("//! ") {
        problems.push(format!("{path}:1: a file opens with //! and what it is"));
    }
}

pub(super) fn is_test(path: &str) -> bool {
    path.starts_with("testing/")
        || path.contains("/tests/")
        || path.ends_with("/tests.rs")
        || path.ends_with("/forged.rs")
        || path.ends_with("_tests.rs")
}

fn lines(path: &str, text: &str, problems: &mut Vec<String>) {
    let most = if is_test(path) { TEST_LINES_MAX } else { LINES_MAX };
    let count = text.lines().count();
    if count > most {
        problems.push(format!("{path}: {count} lines, at most {most}: split it"));
    }
}

fn columns(path: &str, text: &str, problems: &mut Vec<String>) {
    for (number, line) in numbered(text) {
        let columns = line.chars().count();
        if columns > COLUMNS_MAX {
            problems.push(format!("{path}:{number}: {columns} columns, at most {COLUMNS_MAX}"));
        }
    }
}

fn ascii(path: &str, text: &str, problems: &mut Vec<String>) {
    for (number, line) in numbered(text) {
        if let Some(found) = line.chars().find(|found| !found.is_ascii()) {
            problems.push(format!("{path}:{number}: {found:?} is not ASCII"));
        }
    }
}

fn unfinished(path: &str, text: &str, problems: &mut Vec<String>) {
    if path.strip_suffix(".md").is_some() {
        return;
    }
    for (number, line) in numbered(text) {
        for (word, advice) in UNFINISHED {
            if line.contains(word) {
                problems.push(format!("{path}:{number}: {word}: {advice}"));
            }
        }
        if line.trim_start().starts_with("// mod ") {
            problems.push(format!("{path}:{number}: a module that is commented out: remove it"));
        }
    }
}

/// A `matches!` whose answer nobody looks at was meant to be an assertion.
fn statements(path: &str, text: &str, problems: &mut Vec<String>) {
    let mut before = ";";
    for (number, line) in numbered(text) {
        let code = line.trim();
        let begins = before.ends_with([';', '{', '}']);
        if begins && code.starts_with(concat!("matches", "!(")) && code.ends_with(");") {
            problems.push(format!("{path}:{number}: the answer of matches! is thrown away"));
        }
        if !code.is_empty() && !code.starts_with("//") {
            before = code;
        }
    }
}

/// Files that do not belong into a repository of source.
pub(crate) fn check_sizes(tree: &Tree) -> Vec<String> {
    let limit = |path: &str| {
        let is_trace = path.starts_with("bench/traces/");
        if is_trace { TRACE_BYTES_MAX } else { FILE_BYTES_MAX }
    };
    let too_large = |&(path, size): &(&str, u64)| size > limit(path) && path != "Cargo.lock";
    let message = |(path, size)| format!("{path}: {size} bytes, at most {}", limit(path));
    tree.sizes().filter(too_large).map(message).collect()
}

fn numbered(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line))
}
