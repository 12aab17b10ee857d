//! Methods of the floors of a volume. Each floor dereferences to the one below, so a method of a
//! higher floor hides one of the same name below it. The compiler does not report that. A name is
//! therefore defined on one floor. Verbs of `Fs` are the exception: they add the policies to a verb
//! of `Ops`, which callers of a volume must not reach without them.

use std::collections::BTreeMap;

use super::Tree;

/// The folder of each floor, and its struct.
const FLOORS: [(&str, &str); 5] = [
    ("crates/volume/src/", "Core"),
    ("crates/ops/src/", "Ops"),
    ("crates/policy/src/", "Governed"),
    ("crates/upkeep/src/", "Upkeep"),
    ("crates/fs/src/", "Fs"),
];
/// Methods that hide one below on purpose.
const VERBS: &str = "crates/fs/src/verbs.rs";

/// All rules about floors.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut defined: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for (folder, floor) in FLOORS {
        let begin = format!("impl {floor} {{");
        let mut here = Vec::new();
        for (path, text) in tree.texts().filter(|(path, _)| path.starts_with(folder)) {
            here.extend(methods(text, &begin).map(|name| (name, path)));
        }
        for (name, path) in &here {
            if let Some(below) = defined.get(name)
                && *path != VERBS
            {
                problems.push(format!(
                    "{path}: `{floor}::{name}` hides the method of this name of {below}: give it \
                     another one"
                ));
            }
        }
        defined.extend(here);
    }
    problems
}

/// The methods in the blocks that begin with this line; what takes no `self` is not hidden.
fn methods<'t>(text: &'t str, begin: &str) -> impl Iterator<Item = &'t str> {
    let blocks = text.split(begin).skip(1);
    let blocks = blocks.map(|block| block.split("\n}\n").next().unwrap_or_default());
    blocks.flat_map(|block| block.split("\n    ")).filter_map(|item| {
        let visible = item.strip_prefix("pub(crate) ").or_else(|| item.strip_prefix("pub "));
        let (name, rest) = visible.unwrap_or(item).strip_prefix("fn ")?.split_once(['(', '<'])?;
        let first = rest.split([',', ')']).next().unwrap_or_default();
        first.ends_with("self").then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_method_that_hides_one_of_a_lower_floor_is_reported() {
        let ops = "impl Ops {\n    pub fn hold(&self) {}\n\n    fn step<T>(&self) {}\n\n\
                   \x20   fn open(at: u64) {}\n}\n";
        let of = |path: &str, code: &str| {
            check(&Tree::of(&[("crates/ops/src/a.rs", ops), (path, code)]))
        };
        let upkeep =
            "impl Upkeep {\n    fn open(at: u64) {}\n    pub(crate) fn step(&self) {}\n}\n";
        let found = of("crates/upkeep/src/b.rs", upkeep);
        assert!(found.len() == 1 && found[0].contains("`Upkeep::step` hides"), "{found:?}");
        assert!(of("crates/upkeep/src/b.rs", &upkeep.replace("step", "steps")).is_empty());
        let verbs = "impl Fs {\n    pub fn hold(&self) {}\n}\n";
        assert!(of("crates/fs/src/verbs.rs", verbs).is_empty());
        assert_eq!(of("crates/fs/src/paths.rs", verbs).len(), 1);
    }
}
