//! Where batches are committed, and where locks of objects and names are taken. A change is a plan:
//! one function commits it (`crates/ops/src/plan.rs`), and an executor takes its locks
//! (`crates/ops/src/execute.rs`).
//!
//! What commits a batch of its own is listed in [`OWN`], what locks by itself in [`LOCKS`], each
//! with the reason. The counts may only shrink: more is a problem, and fewer is one until the table
//! has the new count.

use std::collections::BTreeMap;

use super::Tree;

/// The crates whose changes are plans.
const SOURCES: [&str; 7] = [
    "crates/opening/src/",
    "crates/volume/src/",
    "crates/ops/src/",
    "crates/policy/src/",
    "crates/upkeep/src/",
    "crates/check/src/",
    "crates/fs/src/",
];
/// How a batch is committed, and how a tree is filled.
const COMMITS: [&str; 5] =
    ["store.commit(", "engine.commit(", ".ingest_new(", "store.ingest(", "engine.ingest("];

/// How objects and names are locked.
const LOCKED: [&str; 1] = ["locks.lock("];

/// Files by how often they do something.
type Counts<'a> = [(&'a str, usize)];

/// Files that commit a batch, and how often. MAY ONLY SHRINK.
const OWN: [(&str, usize); 10] = [
    // The one that commits plans.
    ("crates/ops/src/plan.rs", 1),
    // Numbers of inodes and of segments are taken while plans are made, in ranges.
    ("crates/volume/src/numbers.rs", 4),
    // Rows of a tree that no subvolume has yet: there is nothing that a policy, a lock or a front
    // end could know of them. The commit that gives the tree to a subvolume is a plan.
    ("crates/upkeep/src/reclaim/catch_up.rs", 1),
    ("crates/upkeep/src/reclaim/extract.rs", 1),
    // Records of a flush of many inodes that nothing reaches, as a sorted run. The plan that
    // gives the inodes their names is committed as any other.
    ("crates/ops/src/bulk/flush.rs", 1),
    // What an interrupted flush left, while a volume is opened: no name reaches it.
    ("crates/ops/src/unfinished.rs", 1),
    // A volume that is created has no operations yet.
    ("crates/opening/src/create.rs", 1),
    // The second copies of the volume's own records follow each batch, or are rebuilt while the
    // volume is opened. They are the store's, and operations do not see them.
    ("crates/volume/src/record_copies/complete.rs", 4),
    ("crates/volume/src/record_copies/mirrored.rs", 8),
    ("crates/volume/src/record_copies/renew.rs", 4),
];

/// Files that lock, and how often. MAY ONLY SHRINK.
const LOCKS: [(&str, usize); 4] = [
    // The executors of operations on one subvolume, and of records that are of none.
    ("crates/ops/src/execute.rs", 2),
    // The executor of verbs, behind the ledger and gates.
    ("crates/ops/src/subvolumes/execute.rs", 1),
    // A flush finds out under the locks which inodes it must lock, too.
    ("crates/ops/src/bulk/flush.rs", 1),
    // Looks again at what two reads disagree about, and changes nothing.
    ("crates/upkeep/src/reclaim/directory.rs", 1),
];

/// All rules about plans.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = check_against(tree, &OWN);
    problems.extend(counted(tree, &LOCKED, &LOCKS, "sets of locks are taken by hand"));
    problems
}

fn check_against(tree: &Tree, own: &Counts<'_>) -> Vec<String> {
    counted(tree, &COMMITS, own, "batches are committed beside plans")
}

/// The files in which a text occurs more or less often than a table allows.
fn counted(tree: &Tree, texts: &[&str], own: &Counts<'_>, what: &str) -> Vec<String> {
    let mut found: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let is_source = SOURCES.iter().any(|folder| path.starts_with(folder));
        if !is_source || path.ends_with("tests.rs") || path.contains("/tests/") {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let count: usize = texts.iter().map(|one| product.matches(one).count()).sum();
        if count > 0 {
            found.insert(path, count);
        }
    }
    let mut problems = Vec::new();
    let listed = own.iter().map(|(file, _)| *file);
    for file in found.keys().copied().chain(listed.filter(|file| !found.contains_key(file))) {
        let count = found.get(file).copied().unwrap_or(0);
        let allowed = own.iter().find(|(known, _)| *known == file).map_or(0, |(_, count)| *count);
        if count != allowed {
            problems.push(format!(
                "{file}: {count} {what}; the table in xtask/src/tidy/plans.rs allows {allowed}, \
                 and may only shrink: make them plans (crates/ops/src/execute.rs)"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{LOCKED, check_against, counted};

    #[test]
    fn batches_committed_beside_plans_are_counted_outside_of_tests() {
        let hand = "fs.store.commit(&batch)?;\n";
        for other in [
            "engine.commit(&batch)?;\n",
            "engine.ingest_new(TREE, run)?;\n",
            "let done = fs.store.ingest(TREE, runs);\n",
        ] {
            let found =
                check_against(&Tree::of(&[("crates/volume/src/record_copies/a.rs", other)]), &[]);
            assert_eq!(found.len(), 1, "{other}: {found:?}");
        }
        let text = format!("{hand}#[cfg(test)]\nmod tests {{ {hand} }}\n");
        let tree = Tree::of(&[
            ("crates/upkeep/src/upkeep.rs", &text),
            ("crates/store/src/lib.rs", hand),
            ("crates/upkeep/src/upkeep/tests.rs", hand),
            ("crates/fs/src/tests/owned.rs", hand),
        ]);
        assert!(check_against(&tree, &[("crates/upkeep/src/upkeep.rs", 1)]).is_empty());
        let more = check_against(&tree, &[]);
        assert!(more[0].contains("upkeep.rs: 1 batches"), "{more:?}");
        assert_eq!(more.len(), 1);
        let fewer = check_against(&tree, &[("crates/upkeep/src/upkeep.rs", 2)]);
        assert!(fewer[0].contains("allows 2"), "{fewer:?}");
        let all = [("crates/upkeep/src/upkeep.rs", 1), ("crates/fs/src/gone.rs", 1)];
        let gone = check_against(&tree, &all);
        assert!(gone[0].contains("gone.rs: 0 batches"), "{gone:?}");
    }

    #[test]
    fn locks_taken_by_hand_are_counted() {
        let hand = "let _lock = fs.locks.lock(&[(one, Mode::Shared)]);\n";
        let of = |text: &str| {
            let tree = Tree::of(&[("crates/ops/src/once.rs", text)]);
            counted(&tree, &LOCKED, &[("crates/ops/src/once.rs", 1)], "locks")
        };
        assert_eq!(of(hand), [] as [&str; 0]);
        for other in [format!("{hand}{hand}"), String::new()] {
            let found = of(&other);
            assert!(found.len() == 1 && found[0].contains("allows 1"), "{found:?}");
        }
    }
}
