//! Changes that are not plans yet: built and committed by hand, with the locks in the hands of a
//! function.
//!
//! Operations yield plans (`crates/ops/src/plan.rs`), which one function executes. What still uses
//! `Txn` is listed in [`LEFT`]. The counts may only shrink: more is a problem, and fewer is one
//! until the table says so.

use std::collections::BTreeMap;

use super::Tree;

/// The file that defines what is counted.
const SELF: &str = "crates/ops/src/txn.rs";
/// How a change begins that is not a plan.
const BEGINS: [&str; 2] = ["Txn::new(", "Txn::removing("];

/// Files that build changes by hand, and how many. MAY ONLY SHRINK.
const LEFT: [(&str, usize); 7] = [
    // Counting and charging what was there before a quota.
    ("crates/policy/src/quota_adopt.rs", 3),
    // Steps of upkeep.
    ("crates/upkeep/src/reclaim/directory.rs", 4),
    ("crates/upkeep/src/scan/run.rs", 1),
    // Repairs.
    ("crates/check/src/fix.rs", 1),
    ("crates/check/src/join.rs", 3),
    ("crates/check/src/keep.rs", 1),
    ("crates/check/src/mounted.rs", 1),
];

/// All rules about plans.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize)]) -> Vec<String> {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (file, text) in tree.texts().filter(|(path, _)| is_product(path) && *path != SELF) {
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let count: usize = BEGINS.iter().map(|begin| product.matches(begin).count()).sum();
        if count > 0 {
            found.insert(file, count);
        }
    }
    let mut problems = Vec::new();
    let listed = left.iter().map(|(file, _)| *file);
    for file in found.keys().copied().chain(listed.filter(|file| !found.contains_key(file))) {
        let count = found.get(file).copied().unwrap_or(0);
        let allowed = left.iter().find(|(known, _)| *known == file).map_or(0, |(_, count)| *count);
        if count != allowed {
            problems.push(format!(
                "{file}: {count} changes are built by hand; the table in \
                 xtask/src/tidy/plans.rs says {allowed}, and may only shrink: make them plans"
            ));
        }
    }
    problems
}

/// Whether a file is one of a crate's own, and no test.
fn is_product(path: &str) -> bool {
    path.starts_with("crates/") && path.contains("/src/") && !path.contains("tests")
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check_against;

    #[test]
    fn changes_built_by_hand_are_counted_outside_of_tests() {
        let hand = "let txn = Txn::new(fs);\n";
        let text = format!("{hand}#[cfg(test)]\nmod tests {{ {hand} }}\n");
        let tree = Tree::of(&[
            ("crates/upkeep/src/step.rs", &text),
            ("crates/ops/src/txn.rs", hand),
            ("crates/fs/src/tests/step.rs", hand),
        ]);
        let step = "crates/upkeep/src/step.rs";
        assert!(check_against(&tree, &[(step, 1)]).is_empty());
        let more = check_against(&tree, &[]);
        assert!(more[0].contains("step.rs: 1 changes"), "{more:?}");
        assert_eq!(more.len(), 1);
        let fewer = check_against(&tree, &[(step, 2)]);
        assert!(fewer[0].contains("says 2"), "{fewer:?}");
        let gone = check_against(&tree, &[(step, 1), ("gone.rs", 1)]);
        assert!(gone[0].contains("gone.rs: 0 changes"), "{gone:?}");
    }
}
