//! Records of a volume: the check of a volume reads every kind, and no two have one tag.
//!
//! A kind has a prefix or a key, which `format` exports as `..._PREFIX` or `..._KEY`. A check that
//! does not name it would pass damaged records of that kind as sound. A key begins with the tag of
//! its kind, a letter; two kinds of one letter would be read as each other.

use std::collections::BTreeMap;

use super::Tree;

const FORMAT: &str = "crates/format/src/";
/// Where a volume is checked.
const CHECKS: [&str; 3] =
    ["crates/check/src/", "crates/volume/src/record_copies/", "crates/data/src/check.rs"];
/// Kinds in which nothing can be wrong: any name is right, and the value is empty.
const NOTHING_TO_CHECK: [&str; 1] = ["SEARCHABLE_PREFIX"];

/// Files of `format` about trees that have only keys of that file.
const TREES_OF_THEIR_OWN: [&str; 2] =
    ["crates/format/src/answer_record.rs", "crates/format/src/catalog.rs"];

/// All rules about records.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut checked = String::new();
    for (path, text) in tree.texts() {
        if CHECKS.iter().any(|folder| path.starts_with(folder)) {
            checked.push_str(text);
        }
    }
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with(FORMAT)) {
        for kind in kinds(text).filter(|kind| !NOTHING_TO_CHECK.contains(kind)) {
            let mut words = checked.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            if !words.any(|word| word == kind) {
                problems.push(format!("{path}: no check of a volume reads {kind} (crates/check)"));
            }
        }
    }
    tags(tree, &mut problems);
    problems
}

/// Tags of keys differ, in all files about the trees of a volume and its subvolumes.
fn tags(tree: &Tree, problems: &mut Vec<String>) {
    let mut known: BTreeMap<&str, &str> = BTreeMap::new();
    let files = tree.texts().filter(|(path, _)| path.starts_with(FORMAT));
    for (path, text) in files.filter(|(path, _)| !TREES_OF_THEIR_OWN.contains(path)) {
        for line in
            text.lines().filter(|line| line.starts_with("const ") || line.starts_with("pub const "))
        {
            let Some((_, value)) = line.split_once(": u8 = ").or(line.split_once(": [u8; 1] = ["))
            else {
                continue;
            };
            let Some(tag) = value.strip_prefix("b'").and_then(|rest| rest.split('\'').next())
            else {
                continue;
            };
            if let Some(other) = known.insert(tag, line) {
                problems.push(format!("{path}: the tag {tag} is another record's, too: {other}"));
            }
        }
    }
}

/// Exported prefixes and keys.
fn kinds(text: &str) -> impl Iterator<Item = &str> {
    let names = text.lines().filter_map(|line| line.strip_prefix("pub const ")?.split(':').next());
    names.filter(|name| name.ends_with("_PREFIX") || name.ends_with("_KEY"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kind_of_record_that_no_check_reads_is_reported() {
        let tree = Tree::of(&[
            ("crates/format/src/key.rs", "pub const A_PREFIX: [u8; 1] = [A];\n"),
            ("crates/format/src/b.rs", "pub const B_KEY: [u8; 1] = [B];\nconst C_KEY: u8 = 1;\n"),
            ("crates/check/src/table.rs", "if prefix == key::A_PREFIX {}\n"),
            ("crates/ops/src/b.rs", "get(B_KEY)\n"),
        ]);
        let found = check(&tree);
        assert!(found.len() == 1 && found[0].contains("B_KEY"), "{found:?}");
    }

    #[test]
    fn tag_of_two_kinds_is_reported() {
        let found = |other: &str| {
            check(&Tree::of(&[
                ("crates/format/src/key.rs", "const A: u8 = b'A';\nconst B: u8 = b'B';\n"),
                ("crates/format/src/other.rs", other),
                ("crates/format/src/catalog.rs", "const A: u8 = b'A';\n"),
            ]))
        };
        assert_eq!(found("const C: [u8; 1] = [b'C'];\n"), Vec::<String>::new());
        for other in ["const C: [u8; 1] = [b'B'];\n", "pub const C: u8 = b'A';\n"] {
            let found = found(other);
            assert!(found.len() == 1 && found[0].contains("another record's"), "{found:?}");
        }
    }
}
