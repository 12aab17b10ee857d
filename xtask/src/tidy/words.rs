//! Words and phrases that slow a reader down, and for which the field has a word.
//!
//! A line that must keep one, a quotation for example, ends with `tidy: keep` and the reason.

use super::Tree;

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

/// This file holds the words.
const SELF: &str = "xtask/src/tidy/words.rs";
/// Ends a line that must keep a word; the reason follows.
const KEEP: &str = "tidy: keep ";

/// All rules about words.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.contains(KEEP)) {
            let line = line.to_ascii_lowercase();
            problems.extend(
                REFUSED.iter().filter(|(word, _)| has(&line, word)).map(|(word, instead)| {
                    format!("{path}:{}: \"{word}\": write {instead}", at + 1)
                }),
            );
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
    use super::check;

    #[test]
    fn refused_words_are_reported_with_their_lines_unless_kept() {
        let tree = Tree::of(&[
            ("a.md", "Fine.\nWhoever asks\nwhoevers\n"),
            ("b.rs", "// whoever: tidy: keep a quotation\n"),
        ]);
        let found = check(&tree);
        assert_eq!(found, ["a.md:2: \"whoever\": write the caller, a thread, the daemon: who"]);
    }
}
