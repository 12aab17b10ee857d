//! Lines of code by crate, of the product and of tests apart: `cargo xtask lines`.
//!
//! Tests are files in `tests/`, `examples/` and `benches/`, files called `tests.rs` or
//! `*_tests.rs`, and those in folders `tests`. Also the end of a file from its `mod tests` on, and
//! all of `testing`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use crate::tidy::Tree;

/// The table, a row a crate.
pub(crate) fn table(tree: &Tree) -> String {
    let mut crates: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (path, text) in tree
        .texts()
        .filter(|(path, _)| Path::new(path).extension().is_some_and(|extension| extension == "rs"))
    {
        let of = crate_of(path);
        let tests = if of == "testing" { text.lines().count() } else { lines_of_tests(path, text) };
        let (product, test) = crates.entry(of).or_default();
        *product += text.lines().count() - tests;
        *test += tests;
    }
    let mut table = String::from("| crate | product | tests |\n|---|---|---|\n");
    let mut row = |name: &str, (product, tests): (usize, usize)| {
        writeln!(table, "| {name} | {product} | {tests} |").expect("memory takes it");
    };
    let mut all = (0, 0);
    for (name, lines) in crates {
        row(name, lines);
        all = (all.0 + lines.0, all.1 + lines.1);
    }
    row("all", all);
    table
}

fn crate_of(path: &str) -> &str {
    let rest = path.strip_prefix("crates/").unwrap_or(path);
    rest.split('/').next().unwrap_or(rest)
}

fn lines_of_tests(path: &str, text: &str) -> usize {
    let is_folder = |part: &str| ["tests", "examples", "benches"].contains(&part);
    let file = path.rsplit('/').next().unwrap_or(path);
    if path.split('/').any(is_folder) || file == "tests.rs" || file.ends_with("_tests.rs") {
        return text.lines().count();
    }
    text.find("#[cfg(test)]\nmod tests {").map_or(0, |start| text[start..].lines().count())
}

#[cfg(test)]
mod tests {
    use super::table;
    use crate::tidy::Tree;

    #[test]
    fn lines_of_tests_are_counted_apart() {
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", "a\nb\n#[cfg(test)]\nmod tests {\n}\n"),
            ("crates/a/src/b/tests.rs", "c\n"),
            ("crates/a/tests/it/main.rs", "d\ne\n"),
            ("crates/a/README.md", "no code\n"),
            ("testing/src/lib.rs", "f\n"),
        ]);
        let expected = "| crate | product | tests |\n|---|---|---|\n\
                        | a | 2 | 6 |\n| testing | 0 | 1 |\n| all | 2 | 7 |\n";
        assert_eq!(table(&tree), expected);
    }
}
