//! Wrappers of `FileSystem`: each knows every method. The compiler does not see one that is
//! missing if the trait has a body for it; the file system below is then never asked.
//!
//! `Layer` passes on what a layer does not define. `VirtualDirs` is no layer: nodes that it makes
//! must not reach the file system below it, so each method decides what becomes of them.

use super::Tree;

const TRAIT: &str = "crates/vfs/src/api.rs";
/// The trait, from here to the end of its block.
const BEGINS: &str = "pub trait FileSystem";

/// Files with the methods of one wrapper each, and where its methods begin: another type of the
/// file may have a method of that name.
const WRAPPERS: [(&str, &str); 2] = [
    ("crates/vfs/src/layer.rs", ""),
    ("crates/vfs/src/virtual_dirs/mod.rs", "FileSystem for VirtualDirs"),
];

/// Wrappers that leave some methods to the body in the trait, or to what is below. For each: the
/// file, where its methods begin, and the methods that it inherits.
const INHERITING: [(&str, &str, &[&str]); 2] = [
    (
        "crates/remote/src/client/filesystem.rs",
        "FileSystem for RemoteFs",
        // A mount of a server has no nodes of its own, and its virtual directories are the
        // server's.
        &[
            "find_by_number",
            "may_be_held",
            "inode_uppers",
            "unsettled",
            "settle",
            "holds_name",
            "set_shown_root",
            "is_volatile",
            "takes_snapshots",
            "copies_first",
            "is_computed",
        ],
    ),
    (
        "crates/trace/src/traced.rs",
        "Layer for Traced",
        // They cannot fail and take no time, or are no calls of programs on files.
        &[
            "generation",
            "may_be_held",
            "inode_uppers",
            "forget",
            "unsettled",
            "settle",
            "now",
            "set_invalidate",
            "is_in_snapshot",
            "holds_name",
            "epoch",
            "keeps_locks",
            "lock",
            "test_lock",
            "unlock",
            "set_shown_root",
            "is_volatile",
            "waits",
            "takes_snapshots",
            "copies_first",
            "is_computed",
        ],
    ),
];

/// All rules about wrappers.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let methods = methods(tree.text(TRAIT).unwrap_or_default());
    let mut problems = Vec::new();
    if methods.len() < 30 {
        problems.push(format!("{TRAIT}: the methods of `{BEGINS}` are not found"));
    }
    for (wrapper, begins) in WRAPPERS {
        let text = tree.text(wrapper).unwrap_or_default();
        let from = text.split_once(begins).map_or("", |(_, from)| from);
        let block = if begins.is_empty() { text } else { from.split("\n}\n").next().unwrap_or("") };
        for method in &methods {
            let defined = format!(" {method}(");
            if !block.contains(&defined) {
                problems.push(format!("{wrapper}: does not forward `{method}` of {TRAIT}"));
            }
        }
    }
    for (wrapper, begins, inherited) in INHERITING {
        let text = tree.text(wrapper).unwrap_or_default();
        let block = text.split_once(begins).map_or("", |(_, from)| from);
        let block = block.split("\n}\n").next().unwrap_or_default();
        for method in &methods {
            let is_defined = block.contains(&format!(" {method}("));
            if is_defined == inherited.contains(method) {
                problems.push(format!(
                    "{wrapper}: `{method}` of {TRAIT} is to be defined there, or to be inherited \
                     by the list in xtask/src/tidy/wrappers.rs"
                ));
            }
        }
    }
    problems
}

/// The names of the methods of the trait.
fn methods(code: &str) -> Vec<&str> {
    let Some((_, from)) = code.split_once(BEGINS) else { return Vec::new() };
    let block = from.split("\n}\n").next().unwrap_or_default();
    let lines = block.lines().filter_map(|line| line.strip_prefix("    fn "));
    lines.filter_map(|line| line.split(['(', '<']).next()).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{INHERITING, check};

    #[test]
    fn method_that_is_not_forwarded_is_reported() {
        let names: Vec<String> = (0..30).map(|at| format!("call_{at}")).collect();
        let lines = |names: &[String]| -> String {
            let lines: Vec<_> =
                names.iter().map(|name| format!("    fn {name}(&self) {{}}")).collect();
            lines.join("\n") + "\n"
        };
        let api = format!("pub trait FileSystem: Send {{\n{}}}\n", lines(&names));
        let (all, fewer) = (lines(&names), lines(&names[1..]));
        let tree = |layer: &str, dirs: &str| {
            let other = "impl Other {\n    fn call_0(&self) {}\n}\n";
            let dirs = format!("impl FileSystem for VirtualDirs {{\n{dirs}}}\n{other}");
            let [remote, traced] =
                INHERITING.map(|(path, begins, _)| (path, format!("impl {begins} {{\n{all}}}\n")));
            check(&Tree::of(&[
                ("crates/vfs/src/api.rs", &api),
                ("crates/vfs/src/layer.rs", layer),
                ("crates/vfs/src/virtual_dirs/mod.rs", &dirs),
                (remote.0, &remote.1),
                (traced.0, &traced.1),
            ]))
        };
        assert!(tree(&all, &all).is_empty());
        for problems in [tree(&fewer, &all), tree(&all, &fewer)] {
            assert!(problems.len() == 1 && problems[0].contains("`call_0`"), "{problems:?}");
        }
    }

    /// A method that a wrapper neither defines nor is known to inherit, and one that it does both.
    #[test]
    fn method_that_is_inherited_unseen_is_reported() {
        let lines = |names: &[String]| -> String {
            let methods: Vec<_> =
                names.iter().map(|name| format!("    fn {name}(&self) {{}}\n")).collect();
            methods.concat()
        };
        let (path, begins, inherited) = INHERITING[0];
        let mut names: Vec<String> = (0..30).map(|at| format!("call_{at}")).collect();
        names.push(inherited[0].to_owned());
        let api = format!("pub trait FileSystem: Send {{\n{}}}\n", lines(&names));
        let of = |names: &[String]| {
            let block = format!("impl {begins} {{\n{}}}\n", lines(names));
            let found = check(&Tree::of(&[("crates/vfs/src/api.rs", &api), (path, &block)]));
            found.iter().filter(|one| one.starts_with(path)).count()
        };
        assert_eq!((of(&names[..30]), of(&names[1..30]), of(&names)), (0, 1, 1));
    }
}
