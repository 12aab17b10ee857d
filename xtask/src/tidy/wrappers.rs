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
    use super::check;

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
            check(&Tree::of(&[
                ("crates/vfs/src/api.rs", &api),
                ("crates/vfs/src/layer.rs", layer),
                ("crates/vfs/src/virtual_dirs/mod.rs", &dirs),
            ]))
        };
        assert!(tree(&all, &all).is_empty());
        for problems in [tree(&fewer, &all), tree(&all, &fewer)] {
            assert!(problems.len() == 1 && problems[0].contains("`call_0`"), "{problems:?}");
        }
    }
}
