//! Words and phrases that slow a reader down, and for which the field has a word.
//!
//! A line that must keep one, a quotation for example, ends with `tidy: keep` and the reason.

use super::Tree;
use super::source::is_test;

/// A word or phrase, and what to write instead.
const REFUSED: [(&str, &str); 32] = [
    ("the medium", "disk, storage device, or object store: which one"),
    ("whoever", "the caller, a thread, the daemon: who"),
    ("anew", "again; rebuilt, recomputed"),
    ("be come to", "reach, reachable"),
    ("comes to be", "becomes"),
    ("mend", "repair; rebalance (of nodes)"),
    ("mends", "repairs"),
    ("mended", "repaired"),
    ("mending", "repairing"),
    ("is told", "is reported"),
    ("are told", "are reported"),
    ("at rest", "idle"),
    ("left aside", "ignored"),
    ("in the way of", "blocks"),
    ("for want of", "because there is no"),
    ("to be had", "available"),
    ("asked for", "requested"),
    ("come to", "reach, become"),
    ("comes to", "reaches, becomes"),
    ("came to", "reached, became"),
    ("comes about", "happens"),
    ("go on", "continue"),
    ("goes on", "continues"),
    ("is said", "is printed, is recorded: where"),
    ("lead to", "point to"),
    ("leads to", "points to"),
    ("there is no room", "no space is left"),
    ("no room", "no space"),
    ("written early", "pre-flushed"),
    ("lent numbers", "reserved LSNs"),
    ("hollow blob", "sparse blob"),
    ("light node", "underfull node"),
];

/// The same in texts of the product, which people read: in quotes, outside of tests.
const REFUSED_IN_TEXTS: [(&str, &str); 14] = [
    ("tell", "print, report, name"),
    ("tells", "prints, reports, names"),
    ("told", "printed, reported"),
    ("say", "give (an option), name, record"),
    ("says", "contains, has, records"),
    ("said", "reported, printed"),
    ("lies", "is, is stored"),
    ("stands", "is, is stored"),
    ("leads", "points"),
    ("he", "the user, the process"),
    ("his", "the user's"),
    ("him", "the user"),
    ("who asks", "the caller"),
    ("what is wanted", "what is requested"),
];

/// This file holds the words.
const SELF: &str = "xtask/src/tidy/words.rs";
/// Ends a line that must keep a word; the reason follows.
const KEEP: &str = "tidy: keep ";

/// All rules about words.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !is_kept(line)) {
            let line = line.to_ascii_lowercase();
            problems.extend(
                REFUSED.iter().filter(|(word, _)| has(&line, word)).map(|(word, instead)| {
                    format!("{path}:{}: \"{word}\": write {instead}", at + 1)
                }),
            );
        }
    }
    let product = tree.texts().filter(|(path, _)| {
        let is_code = path.strip_suffix(".rs").is_some() && !is_test(path);
        is_code && (path.starts_with("crates/") || path.starts_with("bench/"))
    });
    for (path, text) in product {
        for (line, words) in quoted(text) {
            let words = words.to_ascii_lowercase();
            for (word, instead) in REFUSED_IN_TEXTS.iter().filter(|(word, _)| has(&words, word)) {
                problems.push(format!("{path}:{line}: \"{word}\" in a text: write {instead}"));
            }
        }
    }
    problems
}

/// The parts of lines that are in quotes, outside of tests and comments, without what braces
/// insert; and the numbers of their lines.
fn quoted(text: &str) -> Vec<(usize, String)> {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let (mut found, mut in_text) = (Vec::new(), false);
    for (at, line) in product.lines().enumerate() {
        let is_kept = is_kept(line);
        let (mut words, mut inserted, mut before) = (String::new(), 0_usize, ' ');
        let mut letters = line.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '\\' => drop(letters.next()),
                // A quote as a character is none.
                '"' if !in_text && (before == '\'' && letters.peek() == Some(&'\'')) => {}
                '"' => {
                    in_text = !in_text;
                    words.push(' ');
                }
                '/' if !in_text && before == '/' => break,
                '{' if in_text => inserted += 1,
                '}' if in_text => inserted = inserted.saturating_sub(1),
                _ if in_text && inserted == 0 => words.push(letter),
                _ => {}
            }
            before = letter;
        }
        if !is_kept && !words.trim().is_empty() {
            found.push((at + 1, words));
        }
    }
    found
}

/// Whether a line may keep its words, with a reason.
fn is_kept(line: &str) -> bool {
    line.split_once(KEEP).is_some_and(|(_, reason)| !reason.trim().is_empty())
}

/// Whether a line has a phrase as whole words.
fn has(line: &str, phrase: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    line.match_indices(phrase).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !is_word(before) && !is_word(line[at + phrase.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn refused_words_are_reported_with_their_lines_unless_kept() {
        let code = "//! A \"he says\".\nfn f() {\n    let told = '\"';\n    g(\"it {told} \\\n     \
                    says so\"); // \"tells\"\n}\n\
                    #[cfg(test)]\nmod tests {\n    g(\"it says\");\n}\n";
        let tree = Tree::of(&[("crates/a/src/a.rs", code), ("crates/a/tests/it/a.rs", code)]);
        let texts = check(&tree);
        assert_eq!(
            texts,
            ["crates/a/src/a.rs:5: \"says\" in a text: write contains, has, records"]
        );
        let found = check(&Tree::of(&[
            ("a.md", "Fine.\nWhoever asks\nwhoevers\n"),
            ("b.rs", "// whoever: tidy: keep a quotation\n"),
            ("c.rs", "// whoever: tidy: keep \n"),
        ]));
        let instead = "\"whoever\": write the caller, a thread, the daemon: who";
        assert_eq!(found, [format!("a.md:2: {instead}"), format!("c.rs:1: {instead}")]);
    }
}
