//! Words that slow a reader down, and how often the repository still has each.
//!
//! The field has a word for each of them; the third column names it. A count may only shrink: more
//! is a problem, and so is fewer until the table says so. A line that must keep such a word ends
//! with `tidy: keep` and the reason.

use std::collections::BTreeMap;

use super::Tree;

/// A word or phrase, the lines that still have it, and what to write instead. MAY ONLY SHRINK.
const REFUSED: [(&str, usize, &str); 16] = [
    ("the medium", 36, "disk, storage device, or object store: which one"),
    ("whoever", 20, "the caller, a thread, the daemon: who"),
    ("anew", 39, "again; rebuilt, recomputed"),
    ("be come to", 0, "reach, reachable"),
    ("comes to be", 0, "becomes"),
    ("mend", 0, "repair; rebalance (of nodes)"),
    ("mends", 0, "repairs"),
    ("mended", 0, "repaired"),
    ("mending", 0, "repairing"),
    ("is told", 22, "is reported"),
    ("are told", 4, "are reported"),
    ("at rest", 2, "idle"),
    ("left aside", 1, "ignored"),
    ("in the way of", 1, "blocks"),
    ("for want of", 2, "because there is no"),
    ("to be had", 0, "available"),
];

/// This file and its tests hold the words.
const SELF: &str = "xtask/src/tidy/words.rs";
/// Ends a line that must keep a word; the reason follows.
const KEEP: &str = "tidy: keep ";

/// All rules about words.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &REFUSED)
}

fn check_against(tree: &Tree, refused: &[(&str, usize, &str)]) -> Vec<String> {
    let mut places: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.contains(KEEP)) {
            let line = line.to_ascii_lowercase();
            for (word, ..) in refused.iter().filter(|(word, ..)| has(&line, word)) {
                places.entry(word).or_default().push(format!("{path}:{}", at + 1));
            }
        }
    }
    let mut problems = Vec::new();
    for (word, left, instead) in refused {
        let found = places.get(word).map_or(0, Vec::len);
        if found > *left {
            let last: Vec<String> = places[word].iter().rev().take(5).cloned().collect();
            problems.push(format!(
                "\"{word}\" is in {found} lines, at most {left}: write {instead} ({}, ...)",
                last.join(" ")
            ));
        } else if found < *left {
            problems.push(format!("{SELF}: \"{word}\" is in {found} lines now: lower {left}"));
        }
    }
    problems
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
    use super::check_against;

    #[test]
    fn refused_words_are_found_and_counts_only_shrink() {
        let tree = Tree::of(&[
            ("a.md", "Whoever asks\nasks, whoever it is\nwhoevers\n"),
            ("b.rs", "// whoever: tidy: keep a quotation\n"),
        ]);
        let refused = |count| check_against(&tree, &[("whoever", count, "who")]);
        assert!(refused(1)[0].contains("in 2 lines, at most 1: write who (a.md:2 a.md:1, ...)"));
        assert_eq!(refused(2), Vec::<String>::new());
        assert!(refused(3)[0].contains("in 2 lines now: lower 3"));
    }
}
