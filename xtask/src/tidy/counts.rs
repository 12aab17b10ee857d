//! Counts in what verbs print: a number and its noun come from `output::count`, which knows the
//! singular. So no verb prints "1 files".

use super::Tree;
use super::source::is_test;

/// Where texts with counts are printed.
const PRINTS: [&str; 2] = ["crates/pando/src/verbs/", "crates/program/src/"];

/// Nouns that are counted.
const NOUNS: [&str; 26] = [
    "bytes",
    "calls",
    "clones",
    "clusters",
    "connections",
    "directories",
    "entries",
    "extents",
    "files",
    "findings",
    "inodes",
    "lines",
    "links",
    "names",
    "nodes",
    "objects",
    "others",
    "records",
    "rows",
    "runs",
    "segments",
    "snapshots",
    "steps",
    "subvolumes",
    "trees",
    "walks",
];

/// Ends a line whose number is never 1; the reason follows.
const KEEP: &str = "tidy: keep ";

/// Reports a noun in the plural right behind an inserted number.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let prints = |path: &str| PRINTS.iter().any(|below| path.starts_with(below)) && !is_test(path);
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| prints(path)) {
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let is_code = |line: &str| !line.trim_start().starts_with("//") && !line.contains(KEEP);
        for (at, line) in product.lines().enumerate().filter(|(_, line)| is_code(line)) {
            for noun in NOUNS.iter().filter(|noun| counts(line, noun)) {
                let number = at + 1;
                problems.push(format!("{path}:{number}: a number of {noun}: use output::count"));
            }
        }
    }
    problems
}

/// Whether a text in a line has a noun behind what braces insert. (`more than {limit} bytes` is
/// about a limit, and `names/s` is a rate.)
fn counts(line: &str, noun: &str) -> bool {
    let behind = format!("}} {noun}");
    line.match_indices(&behind).any(|(at, _)| {
        let after = line[at + behind.len()..].chars().next();
        let before = line[..at].rfind('{').map_or("", |brace| &line[..brace]);
        let is_word = !after.is_some_and(|c| c.is_alphanumeric() || "_/".contains(c));
        is_word && before.contains('"') && !before.ends_with("more than ")
    })
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_noun_behind_a_number_is_refused_where_verbs_print() {
        let of = |path: &str, text: &str| check(&Tree::of(&[(path, text)]));
        let printed = "    f(&format!(\"({} files, {})\", 1, 2));\n";
        assert_eq!(
            of("crates/pando/src/verbs/a.rs", printed),
            ["crates/pando/src/verbs/a.rs:1: a number of files: use output::count"]
        );
        assert_eq!(of("crates/program/src/a.rs", "f(\"a\", \"{rows:>9} rows\");\n").len(), 1);
        for fine in [
            "    f(&format!(\"({files}, {})\", size));\n",
            "    // \"{} files\"\n",
            "    f(\"{of} files\"); // tidy: keep there are two or more\n",
            "    f(\"{} filesystems, {} names/s\");\n",
            "    f(\"more than {limit} bytes\");\n",
            "} files",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n    f(\"{} files\");\n}\n",
        ] {
            assert!(of("crates/pando/src/verbs/a.rs", fine).is_empty(), "{fine}");
        }
        assert!(of("crates/pando/src/daemon/a.rs", printed).is_empty());
    }
}
