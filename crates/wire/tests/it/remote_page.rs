//! Compares `docs/protocol/remote.md` with the types of `src/remote/`: a client can be written from
//! the page alone.

use std::collections::BTreeMap;

/// A type of the code: its fields, or its variants, each with its fields.
#[derive(Debug, Default)]
struct Type {
    fields: Vec<String>,
    variants: Vec<(String, Vec<String>)>,
}

fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The types of the remote messages, as rustfmt lays them out: an item a line.
fn types() -> BTreeMap<String, Type> {
    let sources = [
        include_str!("../../src/remote/answer.rs"),
        include_str!("../../src/remote/call.rs"),
        include_str!("../../src/remote/hello.rs"),
    ];
    let mut found = BTreeMap::new();
    for source in sources {
        let mut open: Option<(String, Type)> = None;
        for line in source.lines() {
            let text = line.trim_start();
            let depth = (line.len() - text.len()) / 4;
            let start = text.strip_prefix("pub struct ").or(text.strip_prefix("pub enum "));
            if let Some(name) = start.filter(|_| depth == 0) {
                open = Some((word(name).to_owned(), Type::default()));
                continue;
            }
            let Some((name, now)) = &mut open else { continue };
            if line == "}" {
                found.insert(std::mem::take(name), std::mem::take(now));
                open = None;
                continue;
            }
            let (item, is_field) = (text.strip_prefix("pub ").unwrap_or(text), text.contains(": "));
            match (depth, word(item)) {
                (_, "") => {}
                (1, field) if is_field => now.fields.push(field.to_owned()),
                (1, variant) => now.variants.push((variant.to_owned(), Vec::new())),
                (2, field) if is_field => {
                    now.variants.last_mut().expect("a variant").1.push(field.to_owned());
                }
                _ => {}
            }
        }
    }
    found
}

/// The cells of the rows of the table whose head begins with some cell.
fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let begins = format!("| {head} |");
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&begins));
    assert!(lines.next().is_some(), "no table of {head}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// The text that describes a type in a sentence: `Name`: ...
fn sentence<'a>(page: &'a str, name: &str) -> &'a str {
    let begins = format!("`{name}`:");
    let start = page.find(&begins).unwrap_or_else(|| panic!("the page does not have {begins}"));
    let text = &page[start + begins.len()..];
    &text[..text.find("\n\n").unwrap_or(text.len())]
}

/// Asserts that all names are in a text as words, in this order.
fn assert_in_order(names: &[String], text: &str, of: &str) {
    let words: Vec<String> = text
        .split(|c: char| !c.is_alphanumeric() && c != '_')
        .map(|word| if word == "LockRange" { "lock".to_owned() } else { word.to_lowercase() })
        .collect();
    let mut at = 0;
    for name in names {
        let found = words[at..].iter().position(|word| *word == name.to_lowercase());
        let found = found.unwrap_or_else(|| panic!("{of}: {name} is not in its place: {text}"));
        at += found + 1;
    }
}

#[test]
fn page_has_the_fields_of_the_code_in_their_order() {
    let page = include_str!("../../../../docs/protocol/remote.md");
    let types = types();
    let of = |name: &str| types.get(name).unwrap_or_else(|| panic!("the code has no {name}"));
    for name in ["RemoteHello", "RemoteWelcome", "Resume"] {
        let rows = table(page, &format!("`{name}`"));
        let fields: Vec<&str> = rows.iter().flat_map(|row| row[0].split(", ")).collect();
        assert_eq!(fields, of(name).fields, "{name}");
        for row in &rows {
            let (names, types) = (row[0].split(", ").count(), row[1].split(", ").count());
            assert!(names == types, "{name}: {} has {} types", row[0], row[1]);
        }
    }
    for name in ["Asked", "Asker", "Changes", "LockRange"] {
        assert_in_order(&of(name).fields, sentence(page, name), name);
    }
    for (name, head, cells) in
        [("FsCall", "variant | call", 2), ("FsAnswer", "variant | answer", 2)]
    {
        let rows = table(page, head);
        let variants = &of(name).variants;
        assert_eq!(rows.len(), variants.len(), "{name}");
        for (number, (row, (variant, fields))) in rows.iter().zip(variants).enumerate() {
            assert_eq!((row[0].as_str(), row[1].as_str()), (&*number.to_string(), &**variant));
            assert_in_order(fields, &row[cells], variant);
        }
    }
    let answers = table(page, "variant | answer");
    let fields_of = |variant: &str| {
        let row = answers.iter().find(|row| row[1] == variant);
        row.unwrap_or_else(|| panic!("no answer {variant}"))[2].clone()
    };
    for (variant, name) in [("Attr", "RemoteAttr"), ("Space", "Space"), ("Listing", "Listed")] {
        assert_in_order(&of(name).fields, &fields_of(variant), name);
    }
    for (variant, _) in &of("FsCall").variants {
        let answer =
            table(page, "variant | call").iter().find(|row| row[1] == *variant).unwrap()[3].clone();
        let named = of("FsAnswer").variants.iter().any(|(known, _)| *known == word(&answer));
        assert!(named, "{variant} is answered by {answer}");
    }
    let failures = page.split("in the order of `FsFailure`:").nth(1).unwrap();
    let failures = failures.split("\n\n").next().unwrap().replace('\n', " ");
    let listed: Vec<&str> = failures.split(", ").map(|one| one.trim_end_matches('.')).collect();
    let listed: Vec<String> = listed.iter().map(|one| one.replace(" (text)", "")).collect();
    let variants = of("FsFailure").variants.iter().enumerate();
    let expected: Vec<String> =
        variants.map(|(number, (name, _))| format!("{number} {name}")).collect();
    assert_eq!(listed.iter().map(|one| one.trim()).collect::<Vec<_>>(), expected);
    for (name, text) in [("Use", "use_for"), ("Renaming", "Rename"), ("LockKind", "LockRange")] {
        assert!(types.contains_key(name), "{name}, which the page describes in {text}, is gone");
    }
}
