//! Rules for the pages that lead a newcomer through the code (`docs/guide/tour.md`, `where.md`,
//! `extend.md`, `ARCHITECTURE.md`): every function, type and constant that they name exists.
//!
//! `path.rs::item` is checked in every document (`documents`). This module also checks names
//! without a path, if they can only be names of code: with an underscore, in camel case, with `::`
//! or parentheses. `Type::part` is there if a file that defines the type has the word.

use std::collections::BTreeSet;

use super::Tree;
use super::documents::{quoted, stops};
use super::source::is_test;

const WHERE: &str = "docs/guide/where.md";
const EXTEND: &str = "docs/guide/extend.md";
const PAGES: [&str; 4] = ["docs/guide/tour.md", WHERE, EXTEND, "ARCHITECTURE.md"];
/// Fewest questions that the page of places answers.
const QUESTIONS_MIN: usize = 30;
/// The answer that names every caller of a checkpoint.
const CHECKPOINT: &str = "When does a checkpoint start?";
/// What passes a call for a checkpoint on.
const PASSES_ON: [&str; 1] = ["crates/store/src/over.rs"];
/// Subjects of the sections that the page of extensions has.
const EXTENSIONS: [&str; 8] = [
    "A mount option",
    "A verb",
    "A searchable attribute",
    "A record on disk",
    "An error",
    "A background job",
    "A message on the wire",
    "An engine",
];
/// Words of a step that name what refuses a change without it, or that nothing does. A link to
/// another section refers to the steps there.
const REFUSERS: [&str; 7] =
    ["compiler", "tidy", "clippy", "refused", "by hand", "no code to write", "](#"];
/// Words that define what follows them.
const KINDS: [&str; 8] = ["fn", "struct", "enum", "trait", "const", "type", "mod", "static"];

/// All rules about names in these pages.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let defined = Defined::read(tree);
    for page in PAGES {
        let Some(text) = tree.text(page) else {
            problems.push(format!("{page}: is missing"));
            continue;
        };
        for named in quoted(text).filter(|named| !named.contains(".rs") && is_name(named)) {
            if !defined.has(named) {
                problems.push(format!("{page}: no code has {named}"));
            }
        }
    }
    questions(tree, &mut problems);
    checkpoints(tree, &mut problems);
    extensions(tree, &mut problems);
    problems
}

/// Every answer names a place, and there are enough of them.
fn questions(tree: &Tree, problems: &mut Vec<String>) {
    let sections = sections(tree.text(WHERE).unwrap_or_default(), "### ");
    if sections.len() < QUESTIONS_MIN {
        let count = sections.len();
        problems.push(format!("{WHERE}: answers {count} questions, at least {QUESTIONS_MIN}"));
    }
    for (title, text) in sections.iter().filter(|(_, text)| stops(text).next().is_none()) {
        let lines = text.lines().count();
        problems.push(format!("{WHERE}: the {lines} lines below \"{title}\" name no function"));
    }
}

/// The answer about checkpoints names each file whose code makes one.
fn checkpoints(tree: &Tree, problems: &mut Vec<String>) {
    let sections = sections(tree.text(WHERE).unwrap_or_default(), "### ");
    let answer = sections.iter().find(|(title, _)| *title == CHECKPOINT);
    let answer = answer.map_or("", |(_, text)| text);
    for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".rs").is_some()) {
        let is_product = path.starts_with("crates/") && path.contains("/src/") && !is_test(path);
        if !is_product || PASSES_ON.contains(&path) || answer.contains(path) {
            continue;
        }
        let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let makes_one = |line: &str| {
            let line = line.trim_start();
            let calls = line.contains(".checkpoint()") || line.contains("checkpoint_locked(");
            calls && !line.starts_with("//") && !line.contains("fn ")
        };
        if let Some(line) = product.lines().position(makes_one) {
            let line = line + 1;
            problems.push(format!("{WHERE}: \"{CHECKPOINT}\" does not name {path}:{line}"));
        }
    }
}

/// Every kind of extension has a section that names what refuses a change in which a place was
/// forgotten. So does each of its steps.
fn extensions(tree: &Tree, problems: &mut Vec<String>) {
    let sections = sections(tree.text(EXTEND).unwrap_or_default(), "## ");
    for wanted in EXTENSIONS {
        match sections.iter().find(|(title, _)| *title == wanted) {
            None => problems.push(format!("{EXTEND}: has no section \"{wanted}\"")),
            Some((_, text)) if stops(text).next().is_none() => {
                problems.push(format!("{EXTEND}: \"{wanted}\" names no function"));
            }
            Some(_) => {}
        }
    }
    for (title, text) in sections {
        for (number, step) in steps(text) {
            let step = step.to_ascii_lowercase();
            if !REFUSERS.iter().any(|words| step.contains(words)) {
                problems.push(format!(
                    "{EXTEND}: step {number} of \"{title}\" does not name what refuses a change \
                     without it: name it, or write \"by hand\" and why"
                ));
            }
        }
    }
}

/// The numbered steps of a section, each with its number.
fn steps(text: &str) -> Vec<(usize, String)> {
    let mut steps: Vec<(usize, String)> = Vec::new();
    let mut is_step = false;
    for line in text.lines() {
        let number = line.split_once(". ").and_then(|(number, _)| number.parse().ok());
        match number {
            Some(number) => steps.push((number, line.to_owned())),
            None if is_step && line.starts_with("   ") => {
                let (_, step) = steps.last_mut().expect("invariant: a step began above");
                step.push(' ');
                step.push_str(line.trim_start());
            }
            None => {}
        }
        is_step = number.is_some() || is_step && line.starts_with("   ");
    }
    steps
}

/// Titles with the text up to the next title of the same level.
fn sections<'a>(text: &'a str, mark: &str) -> Vec<(&'a str, &'a str)> {
    let starts: Vec<usize> = text
        .lines()
        .filter(|line| line.starts_with(mark))
        .map(|line| line.as_ptr() as usize - text.as_ptr() as usize)
        .collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let sections = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    sections
        .map(|section| section.split_once('\n').unwrap_or((section, "")))
        .map(|(title, rest)| (title[mark.len()..].trim(), rest))
        .collect()
}

/// Whether a text in backquotes can only be a name of code.
fn is_name(text: &str) -> bool {
    let name = text.trim_end_matches("()");
    let letters = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':');
    let begins = name.starts_with(|c: char| c.is_ascii_alphabetic());
    let camel = name.chars().any(|c| c.is_ascii_lowercase())
        && name.chars().filter(char::is_ascii_uppercase).count() >= 1
        && name.starts_with(|c: char| c.is_ascii_uppercase());
    letters && begins && (name.len() < text.len() || name.contains(['_', ':']) || camel)
}

/// What the code of the repository defines.
struct Defined<'a> {
    items: BTreeSet<&'a str>,
    /// Files, with the types and modules that each defines.
    files: Vec<(BTreeSet<&'a str>, &'a str)>,
}

impl Defined<'_> {
    fn read(tree: &Tree) -> Defined<'_> {
        let mut defined = Defined { items: BTreeSet::new(), files: Vec::new() };
        for (path, text) in tree.texts().filter(|(path, _)| path.strip_suffix(".rs").is_some()) {
            let mut items: BTreeSet<&str> = BTreeSet::new();
            for kind in KINDS {
                items.extend(after(text, kind));
            }
            defined.items.extend(items.iter());
            // A module is its file.
            let name = path.trim_end_matches("/mod.rs").trim_end_matches("/src/lib.rs");
            let name = name.trim_end_matches(".rs").rsplit('/').next().unwrap_or_default();
            items.insert(name);
            defined.files.push((items, text));
        }
        defined
    }

    fn has(&self, named: &str) -> bool {
        let mut parts = named.trim_end_matches("()").rsplit("::");
        let last = parts.next().unwrap_or_default();
        match parts.next() {
            None => self.items.contains(last) || self.is_variant(last),
            Some(of) => {
                self.files.iter().any(|(items, text)| items.contains(of) && has_word(text, last))
            }
        }
    }

    /// Whether it begins a line that ends like a variant or a field of a type.
    fn is_variant(&self, name: &str) -> bool {
        self.files.iter().any(|(_, text)| {
            text.lines().any(|line| {
                let rest = line.trim_start().trim_start_matches("pub ");
                let rest = rest.strip_prefix("pub(crate) ").unwrap_or(rest);
                rest.strip_prefix(name).is_some_and(|rest| rest.starts_with([',', '(', ' ', ':']))
            })
        })
    }
}

/// The names that follow a keyword.
fn after<'a>(text: &'a str, keyword: &str) -> impl Iterator<Item = &'a str> {
    let spaced = format!("{keyword} ");
    let length = spaced.len();
    let places: Vec<usize> = text.match_indices(&spaced).map(|(at, _)| at).collect();
    places.into_iter().filter_map(move |at| {
        let before = text[..at].chars().next_back();
        let rest = &text[at + length..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let end = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
        (!before.is_some_and(is_word) && end > 0).then_some(&rest[..end])
    })
}

fn has_word(text: &str, word: &str) -> bool {
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
    text.match_indices(word).any(|(at, _)| {
        !is_word(text[..at].chars().next_back()) && !is_word(text[at + word.len()..].chars().next())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(tour: &str) -> Vec<String> {
        let code = "pub enum Kind {\n    Plain,\n}\npub fn open_all() {}\nstruct Tree;\n\
                    const A_B: u8 = 1;\n\
                    impl Tree { fn walk(&self) {} }\n";
        let places: String = (0..QUESTIONS_MIN).fold(String::new(), |text, number| {
            format!("{text}### {number}?\n`crates/a/src/lib.rs::walk`\n")
        });
        let extensions: String = EXTENSIONS.iter().fold(String::new(), |text, title| {
            format!("{text}## {title}\n`crates/a/src/lib.rs::walk`\n")
        });
        let tree = Tree::of(&[
            ("crates/a/src/lib.rs", code),
            (PAGES[0], tour),
            (WHERE, &places),
            (EXTEND, &extensions),
            (PAGES[3], ""),
        ]);
        check(&tree)
    }

    #[test]
    fn names_that_exist_pass() {
        for named in ["open_all", "open_all()", "Kind::Plain", "Tree::walk", "Tree", "A_B", "Plain"]
        {
            assert_eq!(problems(&format!("See `{named}`.")), Vec::<String>::new(), "{named}");
        }
        // Words that are not only names of code.
        for named in ["create", "-o ro", "log/0001.log", "CREATE", "pando-bench", "a b_c"] {
            assert_eq!(problems(&format!("See `{named}`.")), Vec::<String>::new(), "{named}");
        }
    }

    #[test]
    fn names_that_do_not_exist_are_reported() {
        for named in
            ["open_none", "open()", "Kind::Large", "Tree::run", "Leaf", "A_C", "Gone::walk"]
        {
            let found = problems(&format!("See `{named}`."));
            assert_eq!(found, [format!("{}: no code has {named}", PAGES[0])]);
        }
    }

    #[test]
    fn callers_of_checkpoints_that_the_answer_does_not_name_are_reported() {
        let found = |code: &str, answer: &str| {
            let answer = format!("### {CHECKPOINT}\n{answer}\n");
            let mut problems = Vec::new();
            let tree = Tree::of(&[("crates/a/src/b.rs", code), (WHERE, &answer)]);
            checkpoints(&tree, &mut problems);
            problems
        };
        let calls = "fn f() {\n    while !engine.checkpoint()? {}\n}\n";
        let missing = found(calls, "`crates/a/src/c.rs::f`");
        assert!(missing.len() == 1 && missing[0].contains("b.rs:2"), "{missing:?}");
        assert_eq!(found(calls, "`crates/a/src/b.rs::f`"), [] as [&str; 0]);
        for other in [
            "fn checkpoint_locked(&self) {}\n".to_owned(),
            format!("#[cfg(test)]\nmod tests {{\n{calls}}}\n"),
        ] {
            assert_eq!(found(&other, ""), [] as [&str; 0]);
        }
    }

    #[test]
    fn answers_without_a_place_and_missing_sections_are_reported() {
        let tree = Tree::of(&[
            (PAGES[0], ""),
            (WHERE, "### Where?\nSomewhere.\n"),
            (EXTEND, "## A verb\nAnywhere.\n"),
            (PAGES[3], ""),
        ]);
        let found = check(&tree);
        assert!(found.iter().any(|one| one.contains("answers 1 questions")), "{found:?}");
        assert!(found.iter().any(|one| one.contains("below \"Where?\"")), "{found:?}");
        assert!(found.iter().any(|one| one.contains("\"A verb\" names no")), "{found:?}");
        let page = "## A verb\n`crates/a/src/a.rs::f`\n\n1. A file.\n2. A line.\n   By\n   hand.\n\
                    \nEnd.\n3. A row (tidy).\n4. [A message](#a-message).\n";
        let tree = Tree::of(&[(EXTEND, page)]);
        let unrefused = check(&tree).into_iter().filter(|one| one.contains("what refuses"));
        let unrefused: Vec<String> = unrefused.collect();
        assert!(unrefused.len() == 1 && unrefused[0].contains("step 1 of"), "{unrefused:?}");
        let missing = found.iter().filter(|one| one.contains("has no section")).count();
        assert_eq!(missing, EXTENSIONS.len() - 1, "{found:?}");
    }
}
