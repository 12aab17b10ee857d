//! Rules for documents: links lead somewhere, the architecture names every crate and no path that
//! is gone, and the tour names functions that exist. A section is cited of a document that is here.

use super::Tree;

/// Where paths that documents name in backquotes begin.
const ROOTS: [&str; 7] =
    ["crates/", "testing/", "docs/", "xtask/", "scripts/", "bench/", ".cargo/"];
const ARCHITECTURE: &str = "ARCHITECTURE.md";
/// This file has examples.
const SELF: &str = "xtask/src/tidy/documents.rs";
const TOUR: &str = "docs/guide/tour.md";
/// Fewest places in the code that a tour from a mount to a byte names.
const TOUR_STOPS_MIN: usize = 12;

/// All rules about documents.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".md").is_some()) {
        links(tree, path, text, &mut problems);
        named_paths(tree, path, text, &mut problems);
        named_items(tree, path, text, &mut problems);
        named_tests(tree, path, text, &mut problems);
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".rs").is_some()) {
        named_documents(tree, path, text, &mut problems);
    }
    for (path, text) in tree.texts().filter(|(path, _)| *path != SELF) {
        cited_sections(tree, path, text, &mut problems);
    }
    every_crate_is_mapped(tree, &mut problems);
    match tree.text(TOUR).map(|text| stops(text).count()) {
        None => problems.push(format!("{TOUR}: is missing")),
        Some(count) if count < TOUR_STOPS_MIN => {
            problems.push(format!("{TOUR}: names {count} functions, at least {TOUR_STOPS_MIN}"));
        }
        Some(_) => {}
    }
    problems
}

/// Relative links point to files.
fn links(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    for rest in text.split("](").skip(1) {
        let target = rest.split([')', '#', ' ']).next().unwrap_or_default();
        if target.is_empty() || target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let resolved = resolve(path, target);
        if !tree.has(&resolved) {
            problems.push(format!("{path}: the link to {target} is broken"));
        }
    }
}

/// The path that a relative link in a document points to.
fn resolve(document: &str, target: &str) -> String {
    let mut parts: Vec<&str> = document.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "." | "" => {}
            ".." => drop(parts.pop()),
            other => parts.push(other),
        }
    }
    parts.join("/")
}

/// Text in backquotes, outside of code blocks.
pub(super) fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let mut in_block = false;
    let prose = text.lines().filter(move |line| {
        let fence = line.trim_start().starts_with("```");
        in_block ^= fence;
        !in_block && !fence
    });
    prose.flat_map(|line| line.split('`').skip(1).step_by(2))
}

/// Paths of the repository in backquotes exist.
fn named_paths(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    for named in quoted(text) {
        let file = named.split("::").next().unwrap_or_default();
        let is_path = ROOTS.iter().any(|root| file.starts_with(root));
        if is_path && !file.contains(['*', ' ', '<', '{']) && !tree.has(file) {
            problems.push(format!("{path}: {file} does not exist"));
        }
    }
}

/// Documents that comments in the code name exist.
fn named_documents(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    for line in text.lines().filter(|line| line.trim_start().starts_with("//")) {
        for named in line.split('`').skip(1).step_by(2).filter(|named| named.starts_with("docs/")) {
            if !named.contains(['*', ' ', '<']) && !tree.has(named) {
                problems.push(format!("{path}: {named} does not exist"));
            }
        }
    }
}

/// A section is cited of a document of this repository, or of a paper. Names of documents are in
/// capitals, as `GLOSSARY` or `GLOSSARY.md`.
fn cited_sections(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    let words: Vec<&str> = text.split_whitespace().collect();
    for cited in words.windows(3) {
        let trimmed = |word: &'static str| cited[1].trim_end_matches(',') == word;
        let is_number = cited[2].starts_with(|c: char| c.is_ascii_digit());
        let name = cited[0].trim_matches(|c: char| !c.is_ascii_alphanumeric());
        let name = name.strip_suffix(".md").unwrap_or(name);
        let is_document = name.len() >= 4 && name.chars().all(|c| c.is_ascii_uppercase());
        if (trimmed("section") || trimmed("sections"))
            && is_number
            && is_document
            && !tree.has(&format!("{name}.md"))
        {
            problems.push(format!(
                "{path}: cites a section of {name}, a document that is not in this repository"
            ));
        }
    }
}

/// Places in the code that a document names: `path.rs::item`.
pub(super) fn stops(text: &str) -> impl Iterator<Item = (&str, &str)> {
    quoted(text).filter_map(|named| {
        let (file, item) = named.split_once(".rs::")?;
        let end = named.len() - item.len() - "::".len();
        (!file.contains(' ')).then(|| (&named[..end], item))
    })
}

/// Items that documents name exist in the file that they name.
fn named_items(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    for (file, item) in stops(text) {
        let item = item.rsplit("::").next().unwrap_or_default().trim_end_matches("()");
        let Some(code) = tree.text(file) else { continue };
        let is_there = ["fn", "struct", "enum", "trait", "const", "type", "mod", "static"]
            .iter()
            .any(|kind| defines(code, kind, item));
        if !is_there {
            problems.push(format!("{path}: {file} has no {item}"));
        }
    }
}

/// Tests that documents name by how they begin, as `module::name...`, exist.
fn named_tests(tree: &Tree, path: &str, text: &str, problems: &mut Vec<String>) {
    for named in quoted(text) {
        let Some((_, begins)) = named.strip_suffix("...").and_then(|name| name.rsplit_once("::"))
        else {
            continue;
        };
        let defined = format!("fn {begins}");
        if !begins.is_empty() && !tree.texts().any(|(_, code)| code.contains(&defined)) {
            problems.push(format!("{path}: no test is called {named}"));
        }
    }
}

/// Whether code defines an item of a kind and a name.
fn defines(code: &str, kind: &str, item: &str) -> bool {
    let wanted = format!("{kind} {item}");
    code.match_indices(&wanted).any(|(at, _)| {
        let before =
            code[..at].chars().next_back().is_none_or(|c| !c.is_alphanumeric() && c != '_');
        let after = code[at + wanted.len()..].chars().next();
        before && after.is_none_or(|c| !c.is_alphanumeric() && c != '_')
    })
}

/// The code map names every crate.
fn every_crate_is_mapped(tree: &Tree, problems: &mut Vec<String>) {
    let map = tree.text(ARCHITECTURE).unwrap_or_default();
    for (path, _) in tree.texts() {
        let Some(directory) = path.strip_suffix("/Cargo.toml") else { continue };
        if !map.contains(&format!("`{directory}`")) {
            problems.push(format!("{ARCHITECTURE}: does not mention `{directory}`"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::cited_sections;

    #[test]
    fn section_of_a_document_that_is_not_here_is_reported() {
        let found = |text: &str| {
            let mut problems = Vec::new();
            let tree = Tree::of(&[("GLOSSARY.md", "# Glossary\n")]);
            cited_sections(&tree, "a.md", text, &mut problems);
            problems.len()
        };
        for bad in ["as DESIGN section 7", "(`CLUSTER.md`\nsections 4, 5)", "DESIGN, section 7"] {
            assert_eq!(found(bad), 1, "{bad}");
        }
        for good in ["GLOSSARY.md section 2", "Rodeh, section 7", "a section 3", "TOS section"] {
            assert_eq!(found(good), 0, "{good}");
        }
    }
}
