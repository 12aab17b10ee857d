//! The root file of each crate begins as ARCHITECTURE.md has it: with a paragraph of promises, and
//! a list that names each of its modules.
//!
//! The two are found by their first words. A module of tests is not named.

use std::collections::BTreeSet;

use super::Tree;

const PROMISES: &str = "Promises:";
const MODULES: &str = "Which module decides what";

/// All rules about root files.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let roots = tree.texts().filter(|(path, _)| is_root(path));
    roots.flat_map(|(path, text)| check_root(path, text)).collect()
}

fn is_root(path: &str) -> bool {
    let mut parts = path.split('/');
    let is_crate = parts.next() == Some("crates") && parts.next().is_some();
    let ends = [parts.next(), parts.next(), parts.next()];
    is_crate && matches!(ends, [Some("src"), Some("lib.rs" | "main.rs"), None])
}

fn check_root(path: &str, text: &str) -> Vec<String> {
    let comment = text.lines().map_while(|line| line.strip_prefix("//!"));
    let comment: Vec<&str> = comment.map(str::trim_start).collect();
    let mut problems = Vec::new();
    let paragraphs: Vec<&[&str]> = comment.split(|line| line.is_empty()).collect();
    let begins = |words: &str| {
        let of = |paragraph: &&&[&str]| paragraph.first().is_some_and(|one| one.starts_with(words));
        paragraphs.iter().find(of)
    };
    if begins(PROMISES).is_none() {
        problems.push(format!("{path}: no paragraph of its first comment begins \"{PROMISES}\""));
    }
    let Some(list) = begins(MODULES) else {
        problems.push(format!("{path}: no paragraph of its first comment begins \"{MODULES}\""));
        return problems;
    };
    let named: BTreeSet<&str> =
        list.iter().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    for module in modules(text).filter(|module| !named.contains(module)) {
        problems.push(format!("{path}: \"{MODULES}\" does not name `{module}`"));
    }
    problems
}

/// The modules that a file declares, without those of tests.
fn modules(text: &str) -> impl Iterator<Item = &str> {
    let before = std::iter::once("").chain(text.lines());
    let declared = text.lines().zip(before).filter(|(_, before)| *before != "#[cfg(test)]");
    declared.filter_map(|(line, _)| {
        let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
        line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?.strip_suffix(';')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "//! A crate.\n//!\n//! Promises: it is whole.\n//!\n\
                         //! Which module decides what:\n//! * `one`, `two`: all\n\n\
                         mod one;\npub mod two;\n#[cfg(test)]\nmod tests;\n";

    fn problems(text: &str) -> Vec<String> {
        check(&Tree::of(&[("crates/a/src/lib.rs", text), ("crates/a/src/one.rs", "mod two;\n")]))
    }

    #[test]
    fn a_root_file_with_promises_and_all_modules_passes() {
        assert_eq!(problems(WHOLE), Vec::<String>::new());
        assert!(is_root("crates/pando/src/main.rs"));
        assert!(!is_root("crates/a/src/b/lib.rs") && !is_root("testing/src/lib.rs"));
    }

    #[test]
    fn what_is_missing_is_reported() {
        let unnamed = problems(&WHOLE.replace(", `two`", ""));
        assert_eq!(
            unnamed,
            ["crates/a/src/lib.rs: \"Which module decides what\" does not name `two`"]
        );
        assert_eq!(problems(&WHOLE.replace("Promises:", "It is")).len(), 1);
        assert_eq!(problems(&WHOLE.replace("Which module", "A module")).len(), 1);
        assert_eq!(problems("mod one;\n").len(), 2);
    }
}
