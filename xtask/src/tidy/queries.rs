//! The language of queries: each word that the parsers know is in the help of `pando find`.

use super::Tree;

const PRIMARIES: &str = "crates/search/src/query/parse/primaries.rs";
const SEARCH_BOX: &str = "crates/search/src/query/search_box.rs";
const HELP: &str = "crates/pando/src/find/help.txt";

/// Words of GNU find that are parsed to be refused, or without an effect.
const UNLISTED: [&str; 19] = [
    "-",
    "-f",
    "-d",
    "-noleaf",
    "-warn",
    "-nowarn",
    "-ignore_readdir_race",
    "-noignore_readdir_race",
    "-delete",
    "-exec",
    "-execdir",
    "-ok",
    "-okdir",
    "-xtype",
    "-follow",
    "-fstype",
    "-context",
    "-used",
    "-files0-from",
];

/// All rules about the language of queries.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let help = tree.text(HELP).unwrap_or_default();
    let known: Vec<&str> = help.split([' ', '\n', '|', '(', ')', ';', ',']).collect();
    let mut problems = Vec::new();
    for word in words(tree.text(PRIMARIES).unwrap_or_default()) {
        if !UNLISTED.contains(&word) && !known.contains(&word) {
            problems.push(format!("{PRIMARIES}: {HELP} does not have {word}"));
        }
    }
    for key in keys(tree.text(SEARCH_BOX).unwrap_or_default()) {
        let key = format!("{key}:");
        let has = known.iter().any(|word| word.starts_with(&key) || format!("{word}:") == key);
        if !has {
            problems.push(format!("{SEARCH_BOX}: {HELP} does not have {key}"));
        }
    }
    problems
}

/// The words that begin with a minus: `b"-name"`.
fn words(code: &str) -> Vec<&str> {
    let quoted = code.split("b\"").skip(1).filter_map(|rest| rest.split('"').next());
    quoted.filter(|word| word.starts_with('-')).collect()
}

/// The keys of a search box: strings at the beginning of an arm of a `match`.
fn keys(code: &str) -> Vec<&str> {
    let arms = code.lines().map(str::trim).filter(|line| line.starts_with('"'));
    let arms = arms.filter_map(|line| line.split_once(" =>").map(|(keys, _)| keys));
    arms.flat_map(|keys| keys.split(" | ").map(|key| key.trim_matches('"'))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_keys_without_help_are_reported() {
        let tree = Tree::of(&[
            (PRIMARIES, "b\"-name\" | b\"-newer\" => 1,\nb\"-delete\" => 2,\n"),
            (
                SEARCH_BOX,
                "    match key {\n        \"size\" => 1,\n        \"owner\" | \"user\" => 2,\n",
            ),
            (HELP, "names  -name\n  size:>1G  owner:alice\n"),
        ]);
        let found = check(&tree);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].ends_with("-newer") && found[1].ends_with("user:"), "{found:?}");
    }
}
