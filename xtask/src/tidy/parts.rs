//! Every crate has tests of its own, which need no crate above it, and every test runs.
//!
//! A library that is not built once more for tests (`test = false`) has no tests that nobody runs.
//! A file of it with tests is a module of some test program, which names it by `#[path]`.

use std::collections::BTreeSet;

use super::Tree;

/// The rule.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut named = BTreeSet::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.contains("/tests/")) {
        let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
        let given = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix("#[path = \"")?.strip_suffix("\"]"));
        named.extend(given.map(|other| resolve(directory, other)));
    }
    let untested: Vec<String> = tree
        .texts()
        .filter(|(path, text)| path.ends_with("Cargo.toml") && is_untested(text))
        .map(|(path, _)| path.replace("Cargo.toml", "src/"))
        .collect();
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        if untested.iter().any(|source| path.starts_with(source))
            && text.lines().any(|line| line.trim() == concat!("#[te", "st]"))
            && !named.contains(path)
        {
            problems.push(format!(
                "{path}: its tests never run: the library has `test = false`, and no test program \
                 has this file as a module (`#[path]`)"
            ));
        }
    }
    own_tests(tree, &untested, &mut problems);
    problems
}

/// Every crate has a test program, or its library is built as one.
fn own_tests(tree: &Tree, untested: &[String], problems: &mut Vec<String>) {
    for (path, _) in tree.texts().filter(|(path, _)| path.starts_with("crates/")) {
        let Some(directory) = path.strip_suffix("Cargo.toml") else { continue };
        let (source, tests) = (format!("{directory}src/"), format!("{directory}tests/"));
        let is_built = !untested.contains(&source);
        let has_tests = tree.texts().any(|(path, text)| {
            (path.starts_with(&tests) || is_built && path.starts_with(&source))
                && text.lines().any(|line| line.trim() == concat!("#[te", "st]"))
        });
        if !has_tests {
            problems.push(format!(
                "{path}: the crate has no tests of its own, so only crates above it test it"
            ));
        }
    }
}

/// Whether the library of a manifest has no test program.
fn is_untested(manifest: &str) -> bool {
    let library = manifest.split_once("[lib]\n").map_or("", |(_, rest)| rest);
    let own = library.split_once("\n[").map_or(library, |(own, _)| own);
    own.lines().any(|line| line == "test = false")
}

/// A path that is given from a directory.
fn resolve(directory: &str, given: &str) -> String {
    let mut parts: Vec<&str> = directory.split('/').collect();
    for part in given.split('/') {
        if part == ".." {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_test_that_nobody_runs_is_reported() {
        let with = concat!("#[te", "st]\nfn a() {}\n");
        let library = "[lib]\nname = \"a\"\ntest = false\n\n[lints]\n";
        let of = |main: &str, library: &str| {
            let files = [
                ("crates/a/Cargo.toml", library),
                ("crates/a/src/b/c.rs", with),
                ("crates/a/tests/it/own.rs", with),
                ("crates/f/tests/it/main.rs", main),
            ];
            check(&Tree::of(&files)).len()
        };
        let included = "#[path = \"../../../a/src/b/c.rs\"]\nmod c;\n";
        assert_eq!(of(included, library), 0);
        assert_eq!(of("mod c;\n", library), 1);
        assert_eq!(of("#[path = \"../../../a/src/c.rs\"]\nmod c;\n", library), 1);
        assert_eq!(of("mod c;\n", "[lib]\nname = \"a\"\n\n[[bin]]\ntest = false\n"), 0);
    }

    #[test]
    fn crate_without_tests_of_its_own_is_reported() {
        let with = concat!("#[te", "st]\nfn a() {}\n");
        let built = "[lib]\nname = \"a\"\n";
        let of = |library: &str, path: &str| {
            check(&Tree::of(&[("crates/a/Cargo.toml", library), (path, with)]))
        };
        assert_eq!(of(built, "crates/a/src/lib.rs"), Vec::<String>::new());
        assert_eq!(of(built, "crates/a/tests/it/main.rs"), Vec::<String>::new());
        let above = of(built, "crates/b/tests/it/main.rs");
        assert!(above.len() == 1 && above[0].contains("no tests of its own"), "{above:?}");
        // The library is built for no tests: those in it run above, if at all.
        let untested = of("[lib]\nname = \"a\"\ntest = false\n", "crates/a/src/lib.rs");
        assert!(untested.iter().any(|one| one.contains("no tests of its own")), "{untested:?}");
    }
}
