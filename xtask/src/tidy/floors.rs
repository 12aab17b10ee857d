//! The floors of a crate that is to become several: a file imports nothing of a higher floor.
//!
//! The imports that still do are counted in [`LEFT`]. The counts may only shrink: more is a
//! problem, and fewer is one until the table says so. A floor that has none left can become a
//! crate. What `lib.rs` re-exports from other crates is on no floor.

use std::collections::BTreeMap;

use super::{Tree, cycles};

/// The crate.
const CRATE: &str = "crates/fs";

/// Its floors from the bottom, with their files and folders.
const FLOORS: [(&str, &[&str]); 6] = [
    // What operations are made of: records, views, locks, node table, numbers, subvolume table.
    (
        "volume",
        &[
            "account.rs",
            "arrivals.rs",
            "attributes.rs",
            "error.rs",
            "info.rs",
            "inherited.rs",
            "load.rs",
            "locks.rs",
            "nodes.rs",
            "numbers.rs",
            "objects.rs",
            "open_error.rs",
            "own/",
            "permit.rs",
            "slots.rs",
            "subvol.rs",
            "view.rs",
        ],
    ),
    // POSIX operations and subvolume verbs.
    (
        "ops",
        &[
            "contents.rs",
            "edit.rs",
            "execute.rs",
            "handles.rs",
            "ops/",
            "orphan.rs",
            "path_of.rs",
            "plan.rs",
            "policy.rs",
            "ranges.rs",
            "snapshots.rs",
            "subvolumes/",
            "txn.rs",
        ],
    ),
    // What sees an operation before it is executed: trash and quotas.
    (
        "policy",
        &[
            "owners.rs",
            "policies.rs",
            "quota.rs",
            "quota_adopt.rs",
            "quota_check.rs",
            "quota_copies.rs",
            "trash/",
        ],
    ),
    // Steps that a caller drives: reclaim, pruning, counting, the index.
    (
        "upkeep",
        &[
            "background.rs",
            "collect.rs",
            "distinct.rs",
            "reclaim/",
            "room.rs",
            "scan/",
            "search_bases.rs",
            "search_call.rs",
            "search_declared.rs",
            "search_due.rs",
            "search_limits.rs",
            "search_upkeep.rs",
        ],
    ),
    ("check", &["check/"]),
    // The volume as a whole.
    (
        "fs",
        &[
            "compare/",
            "create.rs",
            "engine.rs",
            "filesystem.rs",
            "find.rs",
            "front_end.rs",
            "header.rs",
            "history.rs",
            "paths.rs",
            "volume.rs",
        ],
    ),
];

/// Imports of a higher floor by a lower one: how many. MAY ONLY SHRINK.
const LEFT: [(&str, &str, usize); 10] = [
    ("volume", "ops", 1),
    ("volume", "check", 1),
    ("volume", "fs", 3),
    ("ops", "policy", 6),
    ("ops", "upkeep", 7),
    ("ops", "fs", 50),
    ("policy", "upkeep", 1),
    ("policy", "fs", 13),
    ("upkeep", "fs", 20),
    ("check", "fs", 17),
];

/// All rules about floors.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, &str, usize)]) -> Vec<String> {
    let root = format!("{CRATE}/src/");
    let mut problems = Vec::new();
    for file in tree.texts().filter_map(|(path, _)| path.strip_prefix(&root)) {
        let is_test = file.ends_with("/tests.rs") || file.ends_with("_tests.rs");
        if file.strip_suffix(".rs").is_some()
            && file != "lib.rs"
            && !is_test
            && floor(file).is_none()
        {
            let problem = "it is on no floor: add it to the table in xtask/src/tidy/floors.rs";
            problems.push(format!("{root}{file}: {problem}"));
        }
    }
    let mut found: BTreeMap<(usize, usize), Vec<String>> = BTreeMap::new();
    for (from, to) in cycles::imports(tree, CRATE) {
        let of = |path: &str| path.strip_prefix(&root).and_then(floor);
        if let (Some(low), Some(high)) = (of(&from), of(&to))
            && low < high
        {
            let import = format!("{} of {}", &from[root.len()..], &to[root.len()..]);
            found.entry((low, high)).or_default().push(import);
        }
    }
    for (low, (low_name, _)) in FLOORS.iter().enumerate() {
        for (high, (high_name, _)) in FLOORS.iter().enumerate().skip(low + 1) {
            let known = |(from, to, _): &&(&str, &str, usize)| from == low_name && to == high_name;
            let allowed = left.iter().find(known).map_or(0, |(.., count)| *count);
            let imports = found.remove(&(low, high)).unwrap_or_default();
            if imports.len() != allowed {
                problems.push(format!(
                    "{CRATE}: {} imports of the floor {high_name} by {low_name}; the table in \
                     xtask/src/tidy/floors.rs says {allowed}, and may only shrink: {}",
                    imports.len(),
                    imports.join(", ")
                ));
            }
        }
    }
    problems
}

/// The floor of a file.
fn floor(file: &str) -> Option<usize> {
    let holds = |place: &str| {
        if place.ends_with('/') { file.starts_with(place) } else { file == place }
    };
    FLOORS.iter().position(|(_, places)| places.iter().any(|place| holds(place)))
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check_against;

    fn tree(view: &str) -> Tree {
        Tree::of(&[
            ("crates/fs/src/lib.rs", "mod ops;\nmod trash;\nmod view;\npub use volume::Fs;\n"),
            ("crates/fs/src/ops/mod.rs", "use crate::view::View;\n"),
            ("crates/fs/src/trash/mod.rs", "use crate::view::View;\n"),
            ("crates/fs/src/view.rs", view),
            ("crates/fs/src/volume.rs", "pub struct Fs;\n"),
        ])
    }

    #[test]
    fn import_of_a_higher_floor_is_found() {
        assert!(check_against(&tree("pub(crate) struct View;\n"), &[]).is_empty());
        let low = tree("use crate::trash::Trash;\npub(crate) struct View;\n");
        let problems = check_against(&low, &[]);
        assert!(problems[0].contains("view.rs of trash/mod.rs"), "{problems:?}");
        assert!(check_against(&low, &[("volume", "policy", 1)]).is_empty());
        let through = tree("use crate::Fs;\n");
        let problems = check_against(&through, &[]);
        assert!(problems[0].contains("view.rs of volume.rs"), "{problems:?}");
    }

    #[test]
    fn counts_that_shrank_and_files_without_a_floor_are_reported() {
        let problems = check_against(&tree(""), &[("volume", "policy", 1)]);
        assert!(problems[0].contains("0 imports"), "{problems:?}");
        let other = Tree::of(&[("crates/fs/src/other.rs", "")]);
        assert!(check_against(&other, &[])[0].contains("on no floor"));
    }
}
