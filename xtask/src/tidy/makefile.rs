//! The Makefile: `make soak` runs each `soak-*` target, every target is phony, and `make help`
//! describes it. A campaign that `soak` lacks is one that nobody runs before a release.

use super::Tree;

const MAKEFILE: &str = "Makefile";

/// The rule.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let Some(text) = tree.text(MAKEFILE) else { return Vec::new() };
    let needed = |target: &str| {
        let rule = text.lines().find_map(|line| line.strip_prefix(target)?.strip_prefix(':'));
        let needed = rule.map(|rule| rule.split("##").next().unwrap_or_default());
        needed.unwrap_or_default().split_whitespace().collect::<Vec<_>>()
    };
    let (soak, phony) = (needed("soak"), needed(".PHONY"));
    let mut problems = Vec::new();
    for (target, rule) in text.lines().filter_map(target) {
        if target.starts_with("soak-") && !soak.contains(&target) {
            problems.push(format!("{MAKEFILE}: `soak` does not run {target}"));
        }
        if !phony.contains(&target) {
            problems.push(format!("{MAKEFILE}: {target} is not in .PHONY"));
        }
        if !rule.contains("## ") {
            problems.push(format!("{MAKEFILE}: {target} has no description (`## ...`)"));
        }
    }
    problems
}

/// The target of a line that begins a rule, and the rest of the line.
fn target(line: &str) -> Option<(&str, &str)> {
    let (target, rule) = line.split_once(':')?;
    let is_name = |letter: char| letter.is_ascii_lowercase() || letter == '-';
    (!target.is_empty() && target.chars().all(is_name)).then_some((target, rule))
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    #[test]
    fn a_campaign_that_soak_lacks_is_reported() {
        let of = |text: &str| check(&Tree::of(&[("Makefile", text)]));
        let whole = ".PHONY: soak-a soak\n\nsoak-a: ## A\n\tdo: it\n\nsoak: soak-a ## All\n";
        assert_eq!(of(whole), Vec::<String>::new());
        for (changed, expected) in [
            (whole.replace("soak: soak-a", "soak:"), "does not run soak-a"),
            (whole.replace("PHONY: soak-a", "PHONY:"), "soak-a is not in .PHONY"),
            (whole.replace("soak-a: ## A", "soak-a:"), "soak-a has no description"),
        ] {
            let problems = of(&changed);
            assert_eq!(problems.len(), 1, "{problems:?}");
            assert!(problems[0].contains(expected), "{problems:?}");
        }
    }
}
