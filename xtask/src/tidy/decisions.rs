//! Rules for decisions: the index has every page with its title, and names every number without a
//! page, so that no number is used twice. The name of a page is that of its title.

use std::collections::BTreeMap;

use super::Tree;

const FOLDER: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";
/// Begins the line of the index that names the numbers without a page.
const WITHOUT: &str = "Numbers without a page: ";

/// All rules about decisions.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let index = tree.text(INDEX).unwrap_or_default();
    let mut problems = Vec::new();
    let mut numbers: BTreeMap<u32, &str> = BTreeMap::new();
    for (path, text) in tree.texts() {
        let Some(file) = path.strip_prefix(FOLDER).filter(|file| *file != "README.md") else {
            continue;
        };
        let title = text.lines().next().unwrap_or_default();
        let number = file.split('-').next().unwrap_or_default();
        let Some(words) = title.strip_prefix(&format!("# {number} ")) else {
            problems.push(format!("{path}:1: the title does not begin with \"# {number} \""));
            continue;
        };
        let row = format!("* [{number}]({file}) {words}");
        if !index.lines().any(|line| line == row) {
            problems.push(format!("{INDEX}: has no line \"{row}\""));
        }
        if !is_named_alike(file, words) {
            problems.push(format!(
                "{path}: its name is not that of its title: rename it; its number is what old \
                 links name"
            ));
        }
        match number.parse() {
            Ok(number) => {
                if let Some(other) = numbers.insert(number, path) {
                    problems.push(format!("{path}: {other} has its number"));
                }
            }
            Err(_) => problems.push(format!("{path}: the name does not begin with a number")),
        }
    }
    without_page(index, &numbers, &mut problems);
    problems
}

/// Whether three of five words of a file's name are in the title.
fn is_named_alike(file: &str, title: &str) -> bool {
    let title = title.to_ascii_lowercase();
    let has =
        |word: &&str| title.split(|c: char| !c.is_ascii_alphanumeric()).any(|one| one == *word);
    let words: Vec<&str> = file.trim_end_matches(".md").split('-').skip(1).collect();
    words.iter().filter(|word| has(word)).count() * 5 >= words.len() * 3
}

/// The numbers below the greatest that have no page are those that the index names.
fn without_page(index: &str, numbers: &BTreeMap<u32, &str>, problems: &mut Vec<String>) {
    let greatest = numbers.keys().next_back().copied().unwrap_or_default();
    let mut missing: Vec<(u32, u32)> = Vec::new();
    for number in (1..greatest).filter(|number| !numbers.contains_key(number)) {
        match missing.last_mut() {
            Some((_, end)) if *end + 1 == number => *end = number,
            _ => missing.push((number, number)),
        }
    }
    let shown = missing.iter().map(|(from, to)| {
        if from == to { format!("{from:04}") } else { format!("{from:04} to {to:04}") }
    });
    let shown = shown.collect::<Vec<_>>().join(", ");
    let named = index.split(WITHOUT).nth(1).and_then(|rest| rest.split('.').next());
    let named = named.unwrap_or_default().split_whitespace().collect::<Vec<_>>().join(" ");
    if named != shown {
        problems.push(format!("{INDEX}: write \"{WITHOUT}{shown}.\""));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::check;

    fn problems(index: &str) -> Vec<String> {
        check(&Tree::of(&[
            ("docs/decisions/README.md", index),
            ("docs/decisions/0001-a.md", "# 0001 Do A\n"),
            ("docs/decisions/0004-d.md", "# 0004 Do D\n"),
        ]))
    }

    #[test]
    fn index_has_every_page_and_every_number_without_one() {
        let pages = "* [0001](0001-a.md) Do A\n* [0004](0004-d.md) Do D\n";
        let good = format!("Numbers without a page: 0002 to\n0003.\n{pages}");
        assert_eq!(problems(&good), [] as [&str; 0]);
        for (bad, expected) in [
            (good.replace("Do A", "Do B"), "0001-a.md) Do A"),
            (good.replace("0002 to\n0003", "0002"), "0002 to 0003"),
            (pages.to_owned(), "0002 to 0003"),
        ] {
            let found = problems(&bad);
            assert!(found.len() == 1 && found[0].contains(expected), "{found:?}");
        }
        let pages = [
            ("docs/decisions/README.md", "* [0001](0001-cache-nothing-here.md) Cache no names"),
            ("docs/decisions/0001-cache-nothing-here.md", "# 0001 Cache no names\n"),
        ];
        let renamed = check(&Tree::of(&pages));
        assert!(renamed.iter().any(|one| one.contains("rename it")), "{renamed:?}");
        let untitled = check(&Tree::of(&[("docs/decisions/0001-a.md", "# Do A\n")]));
        assert!(untitled[0].contains("does not begin"), "{untitled:?}");
    }
}
