//! The scheduler of tests stays in `device` and the tests' own packages. All tests are built with
//! the feature `sim` of `device`, and the program without it. Code elsewhere that names the
//! scheduler would compile in the tests and not in the program. Or it would be another program in
//! the tests.

use super::Tree;

/// Where it may be named.
const ALLOWED: [&str; 3] = ["crates/device/", "testing/", "xtask/"];
/// What names it.
const NAMES: [&str; 2] = ["device::sim", "feature = \"sim\""];

/// All rules about the scheduler.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        let is_code = path.strip_suffix(".rs").is_some();
        if !is_code || ALLOWED.iter().any(|allowed| path.starts_with(allowed)) {
            continue;
        }
        for name in NAMES.iter().filter(|name| text.contains(**name)) {
            problems.push(format!(
                "{path}: `{name}` is for `device` and tests: the program is built without it"
            ));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_crate_that_names_the_scheduler_is_reported() {
        let one = |path: &str, text: &str| check(&Tree::of(&[(path, text)])).len();
        assert_eq!(one("crates/fs/src/lib.rs", "use device::sim::run;\n"), 1);
        assert_eq!(one("crates/fs/src/lib.rs", "#[cfg(feature = \"sim\")]\n"), 1);
        assert_eq!(one("crates/device/src/clock.rs", "#[cfg(feature = \"sim\")]\n"), 0);
        assert_eq!(one("testing/src/sim/mod.rs", "use device::sim::run;\n"), 0);
        assert_eq!(one("crates/fs/src/lib.rs", "use device::sync::Mutex;\n"), 0);
    }
}
