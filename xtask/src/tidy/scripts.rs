//! Scripts of the shell: no function is defined twice. The shell takes the later one and reports
//! nothing, so a change of the earlier one has no effect.

use std::collections::BTreeSet;

use super::Tree;

/// The rule.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".sh").is_some()) {
        let mut known = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            if let Some(name) = function(line).filter(|name| !known.insert(*name)) {
                problems.push(format!("{path}:{number}: {name}() is defined above, too: keep one"));
            }
        }
    }
    problems
}

/// The function that a line begins to define.
fn function(line: &str) -> Option<&str> {
    let (name, rest) = line.split_once("()")?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let is_whole = rest.trim_start().starts_with(['{', '(']) && name.chars().all(is_name);
    (is_whole && !name.is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_function_that_is_defined_twice_is_reported() {
        let of = |text: &str| check(&Tree::of(&[("scripts/a.sh", text)]));
        let once = "a() {\n  b\n}\nb() { c; }\na()\na\n";
        assert_eq!(of(once), Vec::<String>::new());
        let problems = of(&format!("{once}b() ( c )\n"));
        assert_eq!(problems, ["scripts/a.sh:7: b() is defined above, too: keep one"]);
    }
}
