//! The order in which a file lists its modules: users first. So a reader who goes down the list
//! meets them as a request does.
//!
//! Blank lines divide a list into groups. In a group a module is listed before those that it
//! imports, over however many others. Modules that import each other may be in any order. Of two
//! groups, the one that imports more of the other is listed first. Tests do not count. `format` is
//! a dictionary: its modules are in alphabetical order.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;
use super::cycles::{Path, imports};

/// The crate whose modules are looked up by name.
const DICTIONARY: &str = "crates/format";
/// Packages that are not in `crates/`.
const OTHERS: [&str; 8] = [
    "bench/engines",
    "bench/workloads",
    "testing",
    "testing/fuzz",
    "testing/memfs",
    "testing/models",
    "testing/scheduled",
    "xtask",
];

/// Which modules of a file each of them imports.
type Edges<'m> = BTreeMap<&'m str, BTreeSet<&'m str>>;

/// All rules about the order of modules.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut names: BTreeSet<&str> = OTHERS.into_iter().collect();
    let below = tree.texts().filter_map(|(path, _)| path.split_once("/src/"));
    names.extend(below.map(|(name, _)| name).filter(|name| name.starts_with("crates/")));
    names.into_iter().flat_map(|name| check_package(tree, name)).collect()
}

fn check_package(tree: &Tree, name: &str) -> Vec<String> {
    let root = format!("{name}/src/");
    let imports = imports(tree, name);
    let mut problems = Vec::new();
    for (file, text) in tree.texts() {
        let Some(at) = file.strip_prefix(&root).and_then(|rest| rest.strip_suffix(".rs")) else {
            continue;
        };
        let groups = groups(text);
        let all = groups.concat();
        if name == DICTIONARY {
            if !all.is_sorted() {
                problems.push(format!("{file}: modules are not in alphabetical order"));
            }
            continue;
        }
        let mut at: Path = at.split('/').map(str::to_owned).collect();
        at.pop_if(|last| ["lib", "main", "mod"].contains(&last.as_str()));
        let direct = edges(&imports, &at, &all);
        check_groups(file, &groups, &direct, &mut problems);
    }
    problems
}

fn check_groups(file: &str, groups: &[Vec<&str>], direct: &Edges<'_>, problems: &mut Vec<String>) {
    let reach = closure(direct);
    for group in groups {
        if let Some((late, early)) = misplaced(group, &reach) {
            problems.push(format!(
                "{file}: `{early}` is listed before `{late}`, which imports it; list users first, \
                 for example: {}",
                sorted(group, &reach).join(" ")
            ));
        }
    }
    let count = |from: &[&str], to: &[&str]| {
        let imported = from.iter().filter_map(|module| direct.get(module)).flatten();
        imported.filter(|module| to.contains(module)).count()
    };
    for (at, late) in groups.iter().enumerate() {
        for early in &groups[..at] {
            let (up, down) = (count(late, early), count(early, late));
            if up > down {
                problems.push(format!(
                    "{file}: the group of `{}` imports {up} modules of the group of `{}`, which \
                     imports {down} of it: list it first, or divide the modules in another way",
                    late[0], early[0]
                ));
            }
        }
    }
}

/// The modules that a file lists, without those of tests, divided where lines are blank.
fn groups(text: &str) -> Vec<Vec<&str>> {
    let (mut groups, mut group) = (Vec::new(), Vec::new());
    let mut is_test = false;
    for line in text.lines() {
        if line.is_empty() {
            groups.push(std::mem::take(&mut group));
        } else if line.starts_with("#[") {
            is_test |= line.contains("cfg(test)");
        } else {
            group.extend(module(line).filter(|_| !is_test));
            is_test = false;
        }
    }
    groups.push(group);
    groups.retain(|group| !group.is_empty());
    groups
}

/// The module that a line declares in a file of its own.
fn module(line: &str) -> Option<&str> {
    let visible = line.strip_prefix("pub(crate) ").or_else(|| line.strip_prefix("pub(super) "));
    let rest = visible.or_else(|| line.strip_prefix("pub ")).unwrap_or(line);
    rest.strip_prefix("mod ")?.strip_suffix(';')
}

fn edges<'m>(imports: &BTreeMap<Path, BTreeSet<Path>>, at: &Path, listed: &[&'m str]) -> Edges<'m> {
    let of = |path: &Path| {
        let first = path.strip_prefix(at.as_slice())?.first()?;
        listed.iter().find(|module| first == *module).copied()
    };
    let mut edges: Edges<'m> = listed.iter().map(|module| (*module, BTreeSet::new())).collect();
    for (from, to) in imports {
        let Some(from) = of(from) else { continue };
        let others = to.iter().filter_map(of).filter(|other| *other != from);
        edges.entry(from).or_default().extend(others);
    }
    edges
}

/// What each module imports, through however many others.
fn closure<'m>(direct: &Edges<'m>) -> Edges<'m> {
    let mut reach = direct.clone();
    loop {
        let before = reach.clone();
        for reached in reach.values_mut() {
            let next: BTreeSet<&str> =
                reached.iter().filter_map(|module| before.get(module)).flatten().copied().collect();
            reached.extend(next);
        }
        if reach == before {
            return reach;
        }
    }
}

/// Whether a module is to be listed before another one.
fn comes_before(reach: &Edges<'_>, one: &str, other: &str) -> bool {
    let has = |from: &str, to: &str| reach.get(from).is_some_and(|reached| reached.contains(to));
    has(one, other) && !has(other, one)
}

/// The first module that is listed behind one that it imports, and this one.
fn misplaced<'m>(listed: &[&'m str], reach: &Edges<'_>) -> Option<(&'m str, &'m str)> {
    listed.iter().enumerate().find_map(|(at, late)| {
        let early = listed[..at].iter().find(|early| comes_before(reach, late, early))?;
        Some((*late, *early))
    })
}

/// The same modules with users first, else as they are listed.
fn sorted<'m>(listed: &[&'m str], reach: &Edges<'_>) -> Vec<&'m str> {
    let (mut left, mut sorted) = (listed.to_vec(), Vec::new());
    while !left.is_empty() {
        let is_free = |module: &&str| !left.iter().any(|other| comes_before(reach, other, module));
        let next = left.iter().position(is_free).unwrap_or_default();
        sorted.push(left.remove(next));
    }
    sorted
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    fn tree(list: &str) -> Tree {
        Tree::of(&[
            ("crates/a/src/lib.rs", list),
            ("crates/a/src/call.rs", "use crate::plan::Plan;\n"),
            ("crates/a/src/plan/mod.rs", "mod step;\npub use step::Plan;\n"),
            ("crates/a/src/plan/step.rs", "use crate::read::Read;\npub struct Plan;\n"),
            ("crates/a/src/read.rs", "use crate::write::Write;\npub struct Read;\n"),
            ("crates/a/src/write.rs", "use crate::read::Read;\npub struct Write;\n"),
        ])
    }

    #[test]
    fn users_are_listed_before_what_they_import() {
        for list in [
            "mod call;\nmod plan;\nmod read;\nmod write;\n",
            "// First.\npub mod call;\n\nmod plan;\n\n// Each other's.\nmod write;\nmod read;\n",
            "mod call;\nmod read;\nmod write;\n\nmod plan;\n",
            "#[cfg(test)]\nmod read;\nmod call;\n/// Of it.\npub(crate) mod plan;\n",
        ] {
            assert_eq!(check(&tree(list)), [] as [&str; 0], "{list}");
        }
    }

    #[test]
    fn a_module_before_its_user_is_reported_with_an_order_that_passes() {
        let found = check(&tree("mod read;\nmod call;\nmod plan;\nmod write;\n"));
        let all = "crates/a/src/lib.rs: `read` is listed before `call`, which imports it";
        assert!(found.len() == 1 && found[0].starts_with(all), "{found:?}");
        assert!(found[0].ends_with("call plan read write"), "{found:?}");
    }

    #[test]
    fn a_group_before_one_that_imports_more_of_it_is_reported() {
        let found = check(&tree("mod plan;\nmod read;\nmod write;\n\nmod call;\n"));
        let all =
            "crates/a/src/lib.rs: the group of `call` imports 1 modules of the group of `plan`";
        assert!(found.len() == 1 && found[0].starts_with(all), "{found:?}");
    }

    #[test]
    fn the_dictionary_is_in_alphabetical_order() {
        let list = |text| check(&Tree::of(&[("crates/format/src/lib.rs", text)]));
        assert_eq!(list("pub mod acl;\nmod bytes;\npub mod key;\n"), [] as [&str; 0]);
        assert!(list("pub mod key;\nmod bytes;\n")[0].contains("alphabetical"));
    }
}
