//! Import cycles inside a crate: which files can only be understood together.
//!
//! A file imports another one where a path in it points to an item of that file, through
//! re-exports. Paths are `use`, and `crate::`, `super::` and child modules in code. Files that
//! import each other, over however many others, form a cycle. A cycle never spans folders. [`LEFT`]
//! counts those that are left inside folders. The counts may only shrink: more is a problem, and
//! fewer is one until the table has the new count.

use std::collections::{BTreeMap, BTreeSet};

use super::Tree;

/// Files in import cycles by crate, all of them inside one folder. MAY ONLY SHRINK.
const LEFT: [(&str, usize); 1] = [("remote", 3)];

/// Most re-exports that a path is followed through.
const REEXPORTS_MAX: usize = 8;

/// A path of modules below a crate's root, the last part of which may be an item.
pub(super) type Path = Vec<String>;

/// The references of a file to other ones.
#[derive(Debug, Default)]
struct Module {
    file: String,
    /// Paths that its code uses, from the crate's root on.
    uses: Vec<Path>,
    /// Names that it re-exports, with where they come from.
    reexports: Vec<(String, Path)>,
}

/// All rules about cycles.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize)]) -> Vec<String> {
    let mut problems = Vec::new();
    let sources = tree.texts().filter_map(|(path, _)| path.split_once("/src/"));
    let crates: BTreeSet<&str> = sources.map(|(name, _)| name).collect();
    for name in crates {
        let short = name.strip_prefix("crates/").unwrap_or(name);
        let allowed = left.iter().find(|(known, _)| *known == short).map_or(0, |(_, files)| *files);
        let found = cycles(&modules(tree, name));
        let list = |cycle: &BTreeSet<String>| cycle.iter().cloned().collect::<Vec<_>>().join(" ");
        let (across, inside): (Vec<_>, Vec<_>) = found.iter().partition(|one| spans_folders(one));
        for cycle in across {
            problems.push(format!(
                "{name}: files of different folders import each other in a cycle: {}; have one of \
                 them take what it needs as an argument, or move what both need below them",
                list(cycle)
            ));
        }
        let files: usize = inside.iter().map(|cycle| cycle.len()).sum();
        if files != allowed {
            let lists: Vec<String> = inside.into_iter().map(list).collect();
            problems.push(format!(
                "{name}: {files} files import each other in cycles inside folders; the table in \
                 xtask/src/tidy/cycles.rs allows {allowed}, and may only shrink: {}",
                lists.join(" ")
            ));
        }
    }
    problems
}

/// Which other files each file of a crate imports, by the modules' paths below the crate's root.
pub(super) fn imports(tree: &Tree, name: &str) -> BTreeMap<Path, BTreeSet<Path>> {
    let modules = modules(tree, name);
    let paths: BTreeMap<&str, &Path> =
        modules.iter().map(|(path, module)| (module.file.as_str(), path)).collect();
    let of = |file: &str| paths.get(file).map(|path| (*path).clone()).unwrap_or_default();
    let edges = edges(&modules).into_iter();
    edges.map(|(file, to)| (of(file), to.into_iter().map(of).collect())).collect()
}

fn spans_folders(cycle: &BTreeSet<String>) -> bool {
    let folder = |path: &String| path.rsplit_once('/').map(|(folder, _)| folder.to_owned());
    cycle.iter().map(folder).collect::<BTreeSet<_>>().len() > 1
}

/// The modules of a crate by path; tests are none.
fn modules(tree: &Tree, name: &str) -> BTreeMap<Path, Module> {
    let root = format!("{name}/src/");
    let mut modules = BTreeMap::new();
    for (file, text) in tree.texts() {
        let Some(rest) = file.strip_prefix(&root).and_then(|rest| rest.strip_suffix(".rs")) else {
            continue;
        };
        let mut path: Path = rest.split('/').map(str::to_owned).collect();
        if path.last().is_some_and(|last| last == "tests" || last.ends_with("_tests")) {
            continue;
        }
        if path.last().is_some_and(|last| ["lib", "main", "mod"].contains(&last.as_str())) {
            path.pop();
        }
        modules.insert(path, (file.to_owned(), product(text)));
    }
    let paths: BTreeSet<Path> = modules.keys().cloned().collect();
    let read = |(path, (file, text)): (Path, (String, String))| {
        let module = read(&paths, &path, file, &text);
        (path, module)
    };
    modules.into_iter().map(read).collect()
}

/// The code of a file without comments and tests.
fn product(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let code = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

fn read(paths: &BTreeSet<Path>, at: &Path, file: String, code: &str) -> Module {
    let mut module = Module { file, ..Module::default() };
    let is_root_of_others = paths.iter().any(|path| path.len() > at.len() && path.starts_with(at));
    for (statement, is_public) in uses(code) {
        let mut leaves = Vec::new();
        expand("", statement, &mut leaves);
        for leaf in leaves {
            let (leaf, name) = match leaf.split_once(" as ") {
                Some((leaf, name)) => (leaf.trim().to_owned(), name.trim().to_owned()),
                None => (leaf.clone(), leaf.rsplit("::").next().unwrap_or_default().to_owned()),
            };
            let Some(path) = absolute(paths, at, &leaf) else { continue };
            if !(is_public && is_root_of_others) {
                module.uses.push(path.clone());
            }
            module.reexports.push((name, path));
        }
    }
    for start in ["crate::", "super::"] {
        for (place, _) in code.match_indices(start) {
            let before = code[..place].chars().next_back();
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':') {
                continue;
            }
            let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            let end = code[place..].find(|c| !is_part(c)).map_or(code.len(), |end| place + end);
            // What a `use` takes out of braces was found above, item by item.
            if code[end..].starts_with('{') {
                continue;
            }
            module.uses.extend(absolute(paths, at, code[place..end].trim_end_matches(':')));
        }
    }
    module
}

/// The `use` statements of code, without the word and the semicolon, and whether others see them.
fn uses(code: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for (place, _) in code.match_indices("use ") {
        let line = code[..place].rsplit('\n').next().unwrap_or_default().trim();
        let is_public = line.starts_with("pub");
        if !(line.is_empty() || is_public && !line.contains(' ')) {
            continue;
        }
        let rest = &code[place + "use ".len()..];
        if let Some(end) = rest.find(';') {
            found.push((&rest[..end], is_public));
        }
    }
    found
}

/// The paths of a `use` tree.
fn expand(prefix: &str, tree: &str, leaves: &mut Vec<String>) {
    let tree = tree.trim();
    let Some(open) = tree.find('{') else {
        if !tree.is_empty() {
            let leaf = format!("{prefix}{tree}");
            leaves.push(leaf.strip_suffix("::self").unwrap_or(&leaf).to_owned());
        }
        return;
    };
    let prefix = format!("{prefix}{}", tree[..open].trim());
    let inner = tree[open + 1..].trim_end().strip_suffix('}').unwrap_or(&tree[open + 1..]);
    let (mut depth, mut start) = (0_usize, 0);
    for (place, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                expand(&prefix, &inner[start..place], leaves);
                start = place + 1;
            }
            _ => {}
        }
    }
    expand(&prefix, &inner[start..], leaves);
}

/// A path of code in a module, from the crate's root on; `None` where it points to another crate.
fn absolute(paths: &BTreeSet<Path>, at: &Path, path: &str) -> Option<Path> {
    if path.starts_with("::") {
        return None;
    }
    let mut parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).peekable();
    let mut base = match *parts.peek()? {
        "crate" => {
            parts.next();
            Path::new()
        }
        "self" => {
            parts.next();
            at.clone()
        }
        "super" => at.clone(),
        child => {
            let mut below = at.clone();
            below.push(child.to_owned());
            if !paths.contains(&below) {
                return None;
            }
            at.clone()
        }
    };
    while parts.next_if_eq(&"super").is_some() {
        base.pop()?;
    }
    base.extend(parts.map(str::to_owned));
    Some(base)
}

/// The file in which the item of a path is.
fn target<'m>(modules: &'m BTreeMap<Path, Module>, path: &Path, depth: usize) -> Option<&'m str> {
    let whole = (0..=path.len()).rev().find(|&end| modules.contains_key(&path[..end]))?;
    let module = &modules[&path[..whole]];
    if let Some(item) = path.get(whole)
        && depth < REEXPORTS_MAX
        && let Some((_, from)) = module.reexports.iter().find(|(name, _)| name == item)
        && from != path
    {
        let mut from = from.clone();
        from.extend_from_slice(&path[whole + 1..]);
        return target(modules, &from, depth + 1);
    }
    Some(&module.file)
}

/// Which other files each file imports.
fn edges(modules: &BTreeMap<Path, Module>) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for module in modules.values() {
        let targets = module.uses.iter().filter_map(|path| target(modules, path, 0));
        let others = targets.filter(|target| *target != module.file);
        edges.entry(&module.file).or_default().extend(others);
    }
    edges
}

/// The sets of files that import each other.
fn cycles(modules: &BTreeMap<Path, Module>) -> Vec<BTreeSet<String>> {
    let edges = edges(modules);
    let reach = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(at) = next.pop() {
            for &to in edges.get(at).into_iter().flatten() {
                if seen.insert(to) {
                    next.push(to);
                }
            }
        }
        seen
    };
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        edges.keys().map(|&file| (file, reach(file))).collect();
    let (mut found, mut known) = (Vec::new(), BTreeSet::new());
    for (&file, to) in &reached {
        if !to.contains(file) || !known.insert(file) {
            continue;
        }
        let back = |other: &&&str| reached.get(**other).is_some_and(|back| back.contains(file));
        let cycle: BTreeSet<String> = to.iter().filter(back).map(|&path| path.to_owned()).collect();
        known.extend(to.iter().filter(back).copied());
        found.push(cycle);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check_against;

    fn tree(low: &str) -> Tree {
        Tree::of(&[
            ("crates/a/src/lib.rs", "mod high;\nmod low;\nmod ops;\npub use high::High;\n"),
            ("crates/a/src/high.rs", "use crate::low::{self, Low};\npub struct High;\n"),
            ("crates/a/src/low.rs", low),
            ("crates/a/src/ops/mod.rs", "mod one;\npub(crate) use one::One;\n"),
            ("crates/a/src/ops/one.rs", "// use crate::high::High;\npub(crate) struct One;\n"),
        ])
    }

    #[test]
    fn cycles_are_found_through_reexports_and_paths_in_code() {
        assert!(check_against(&tree("pub(crate) struct Low;\n"), &[]).is_empty());
        for low in [
            "use crate::High;\n",
            "fn f() -> super::High { loop {} }\n",
            "use crate::{ops::One, high::High as Other};\n",
        ] {
            let problems = check_against(&tree(low), &[]);
            assert!(problems[0].contains("2 files import each other"), "{low}: {problems:?}");
            assert!(check_against(&tree(low), &[("a", 2)]).is_empty(), "{low}");
        }
        let tests = "struct Low;\n#[cfg(test)]\nmod tests {\n    use crate::High;\n}\n";
        assert!(check_against(&tree(tests), &[]).is_empty());
    }

    #[test]
    fn cycles_over_folders_are_refused_whatever_the_table_allows() {
        let low = "use crate::ops::One;\npub(crate) struct Low;\n";
        let mut files = vec![
            ("crates/a/src/lib.rs", "mod low;\nmod ops;\n"),
            ("crates/a/src/low.rs", low),
            ("crates/a/src/ops/mod.rs", "mod one;\npub(crate) use one::One;\n"),
            ("crates/a/src/ops/one.rs", "pub(crate) struct One;\n"),
        ];
        assert!(check_against(&Tree::of(&files), &[]).is_empty());
        files[3].1 = "pub(crate) struct One(crate::low::Low);\n";
        let problems = check_against(&Tree::of(&files), &[]);
        assert!(problems[0].contains("files of different folders"), "{problems:?}");
        assert!(problems[0].contains("src/low.rs crates/a/src/ops/one.rs"), "{problems:?}");
        let problems = check_against(&Tree::of(&files), &[("a", 2)]);
        assert!(problems[0].contains("files of different folders"), "{problems:?}");
    }

    #[test]
    fn a_path_of_another_crate_is_not_a_module_of_its_name() {
        let files = [
            ("crates/a/src/lib.rs", "mod one;\nuse ::one::Device;\n"),
            ("crates/a/src/one.rs", "use super::Two;\n"),
        ];
        assert!(check_against(&Tree::of(&files), &[]).is_empty());
    }

    #[test]
    fn a_use_of_several_modules_does_not_import_their_parent() {
        let files = [
            ("crates/a/src/lib.rs", "mod ops;\n"),
            ("crates/a/src/ops/mod.rs", "mod one;\nmod two;\nuse one::One;\n"),
            ("crates/a/src/ops/one.rs", "use super::{two};\npub(crate) struct One;\n"),
            ("crates/a/src/ops/two.rs", "pub(crate) fn two() {}\n"),
        ];
        assert!(check_against(&Tree::of(&files), &[]).is_empty());
    }

    #[test]
    fn a_count_that_shrank_is_to_be_lowered() {
        let problems = check_against(&tree("struct Low;\n"), &[("a", 2)]);
        assert!(problems[0].contains("may only shrink"), "{problems:?}");
    }
}
