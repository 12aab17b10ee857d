//! No decision depends on the words of a text that is written for people: rewording a message would
//! change what is done.
//!
//! A text is a field such as `message`, what an error prints, or a local value that holds either.
//! It is compared by `==`, by a method such as `contains`, or by a `match` of it as a string. Code
//! of tests is free to. Words of other programs, which report nothing else, are compared in
//! functions that hold a comment with [`MARK`] and the reason.

use std::sync::LazyLock;

use regex::Regex;

use super::Tree;
use super::source::is_test;

/// Allows comparisons up to the end of the function; the reason follows.
const MARK: &str = "tidy: compares words: ";

/// Conversions that leave a text the same text.
const SAME: &str =
    r"(?:\.(?:as_str|as_ref|as_deref|to_lowercase|to_ascii_lowercase|trim|clone|to_owned)\(\))*";
/// Fields, errors that are printed, and names of local values.
const TEXT: &str = concat!(
    r"(?:\.(?:what|message|remedy|hint|structure|expected|found)\b(?:\(\))?",
    r"|\b(?i:\w*(?:err|fail|problem|finding|refus|why|corrupt|damage|bad)\w*)(?:::\w+)*",
    r"\.(?:to_string|text)\(\)",
    r"|\b(?:words|message|reason|hint|why)\b)"
);
/// Comparisons of a text on their left.
const COMPARED: &str = concat!(
    r"(?:\.(?:contains|starts_with|ends_with|strip_prefix|strip_suffix|trim_start_matches",
    r"|trim_end_matches|find|rfind|split_once|rsplit_once|split|matches|eq|ne",
    r"|eq_ignore_ascii_case)\(| [=!]= )"
);

static LEFT: LazyLock<Regex> = LazyLock::new(|| regex(&format!("{TEXT}{SAME}{COMPARED}")));
/// A file's path may be compared, and is not taken apart.
static FILE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\.file(?:\.as_str\(\))?\.(?:split_once|rsplit_once|find|contains)\("));
static RIGHT: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"[=!]= &?\*?[\w:.()]*?{TEXT}{SAME}")));
static MATCHED: LazyLock<Regex> = LazyLock::new(|| {
    let text = format!(r"&?\*?[\w:.()]*?{TEXT}");
    regex(&format!(r"(?:\bmatch |matches!\( ?){text}(?:\.\w+\(\))*\.as_(?:str|ref|deref)\(\)"))
});
static LOCAL: LazyLock<Regex> =
    LazyLock::new(|| regex(&format!(r"\blet (\w+)(?:: &?\w+)? = [^;]*?{TEXT}{SAME};")));
/// The beginning of a variant's path: a value is compared, not a text.
static VARIANT: LazyLock<Regex> = LazyLock::new(|| regex(r"^&?(?:\w+::)+[A-Z][a-z]"));

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("invariant: the patterns above are well formed")
}

/// All rules about decisions by text.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let sources = tree.texts().filter(|(path, _)| {
        let is_product = path.starts_with("crates/") || path.starts_with("bench/");
        is_product && path.strip_suffix(".rs").is_some() && !is_test(path)
    });
    sources.flat_map(|(path, text)| compared(path, text)).collect()
}

/// The comparisons of texts in the product code of a file.
fn compared(path: &str, text: &str) -> Vec<String> {
    let (code, lines) = product(text);
    let mut found: Vec<usize> = Vec::new();
    found.extend(LEFT.find_iter(&code).filter(|at| !VARIANT.is_match(&code[at.end()..])).map(at));
    found.extend(FILE.find_iter(&code).map(at));
    let ends = |end: usize| !code[end..].starts_with(|c: char| is_word(c) || ".(".contains(c));
    found.extend(RIGHT.find_iter(&code).filter(|at| ends(at.end())).map(at));
    found.extend(MATCHED.find_iter(&code).map(at));
    for local in LOCAL.captures_iter(&code) {
        let (Some(whole), Some(name)) = (local.get(0), local.get(1)) else { continue };
        let rest = &code[whole.end()..];
        // Up to the next function.
        let rest = rest.split(" fn ").next().unwrap_or_default();
        let used = regex(&format!(r"\b{}{SAME}{COMPARED}", name.as_str()));
        found.extend(used.find(rest).map(|used| whole.end() + used.start()));
    }
    let mut numbers: Vec<usize> = found.into_iter().map(|at| line(&lines, at)).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let message =
        |number| format!("{path}:{number}: a text for people is compared: decide by a value");
    numbers.into_iter().map(message).collect()
}

fn at(found: regex::Match<'_>) -> usize {
    found.start()
}

fn is_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// The number of the line that a place in the joined code comes from.
fn line(lines: &[(usize, usize)], at: usize) -> usize {
    let before = lines.partition_point(|(start, _)| *start <= at);
    before.checked_sub(1).map_or(1, |last| lines[last].1)
}

/// The code of a file in one line, without comments, tests and functions that are marked. Also
/// where each of its lines begins, with its number.
fn product(text: &str) -> (String, Vec<(usize, usize)>) {
    let (mut code, mut begins) = (String::new(), Vec::new());
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let trimmed = line.trim();
        if trimmed.starts_with("//") {
            if trimmed.split_once(MARK).is_some_and(|(_, reason)| !reason.trim().is_empty()) {
                let indent = line.len() - line.trim_start().len();
                let end = format!("{}}}", &line[..indent.saturating_sub(4)]);
                lines.by_ref().find(|(_, line)| line.starts_with(&end));
            }
            continue;
        }
        if trimmed.starts_with("#[cfg(test)]") || trimmed.starts_with("#[cfg(all(test") {
            skip_item(&mut lines);
            continue;
        }
        let bare = trimmed.split(" // ").next().unwrap_or_default().trim_end();
        if !code.is_empty() && !bare.starts_with('.') {
            code.push(' ');
        }
        begins.push((code.len(), number + 1));
        code.push_str(bare);
    }
    (code, begins)
}

/// Skips the lines of an item, a statement or a field.
fn skip_item<'a>(lines: &mut impl Iterator<Item = (usize, &'a str)>) {
    let mut depth = 0_usize;
    for (_, line) in lines.map(|(number, line)| (number, line.trim())) {
        if line.starts_with("#[") || line.starts_with("//") {
            continue;
        }
        depth += line.matches(['(', '[', '{']).count();
        depth = depth.saturating_sub(line.matches([')', ']', '}']).count());
        if depth == 0 && line.ends_with([';', '}', ',']) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    fn problems(code: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/a/src/a.rs", code), ("crates/a/tests/it/a.rs", code)]))
    }

    #[test]
    fn comparisons_of_texts_are_reported_with_their_lines() {
        for compared in [
            "one.what.ends_with(LOST)",
            "failure.message.as_str() == \"no\"",
            "failure.hint == ONLY_ITS_USER",
            "failure.message == FsError::QuotaExceeded.to_string()",
            "bad.structure != UNREAD",
            "*structure == bad.structure",
            "\"no space\" == failure.message",
            "matches!(failure.message.as_str(), \"no\")",
            "match problem.what.as_str() { \"a\" => 1, _ => 2 }",
            "failure.message.find(\"x\")",
            "file_missing.file.split_once(\": \")",
            "why.to_string().strip_suffix(\"x\")",
            "failure.hint.eq(other)",
            "bad.expected.starts_with(\"x\")",
            "bad.found.to_lowercase().contains(\"x\")",
            "failure\n        .message\n        .contains(\"x\")",
            "error.text().contains(\"x\")",
            "words.contains(\"busy\")",
            "message.starts_with(\"no\")",
            "reason == \"busy\"",
            "why.contains(\"space exceeded\")",
        ] {
            let code = format!("fn f() {{\n    let is = {compared};\n}}\n");
            let found = problems(&code);
            assert_eq!(found.len(), 1, "{compared}: {found:?}");
            let after_tests = format!("#[cfg(test)]\nuse a::b;\n{code}");
            let found = problems(&after_tests);
            let line = if compared.contains('\n') { ":5:" } else { ":4:" };
            assert!(found.len() == 1 && found[0].contains(line), "{compared}: {found:?}");
        }
        let local = "fn f() {\n    let text = error.to_string();\n    text.contains(\"x\")\n}\n";
        assert_eq!(problems(local).len(), 1);
        let bench = Tree::of(&[("bench/a/src/a.rs", "fn f() { x.message.contains(1) }\n")]);
        assert_eq!(check(&bench).len(), 1);
    }

    #[test]
    fn values_tests_and_marked_functions_pass() {
        for allowed in [
            "finding.remedy == store::Remedy::MoveAway",
            "match &action.what { What::Print => 1 }",
            "finding.file.starts_with(\"log\")",
            "candidate.found.ino != newest.found.ino",
            "location.to_string() == url",
            "message.len() == 1",
        ] {
            let found = problems(&format!("fn f() {{\n    let is = {allowed};\n}}\n"));
            assert_eq!(found, [] as [&str; 0], "{allowed}");
        }
        let bad = "    x.message.contains(1);\n";
        for (mark, count) in
            [("tidy: compares words: it has no code", 0), ("tidy: compares words: ", 1)]
        {
            let code = format!("fn f() {{\n    // {mark}\n{bad}}}\n");
            assert_eq!(problems(&code).len(), count, "{mark}");
            // The mark ends with its function.
            assert_eq!(problems(&format!("{code}fn g() {{\n{bad}}}\n")).len(), count + 1);
        }
        let tests = format!("#[cfg(test)]\nmod tests {{\n    fn f() {{\n    {bad}    }}\n}}\n");
        assert_eq!(problems(&tests), [] as [&str; 0]);
        assert_eq!(problems(&format!("{tests}fn g() {{\n{bad}}}\n")).len(), 1);
    }
}
