//! What tests of pages read: types as the sources have them, tables, and sentences about types.

use std::collections::BTreeMap;

/// A type of the code: its fields, or its variants, each with its fields.
#[derive(Debug, Default)]
pub(crate) struct Type {
    pub(crate) fields: Vec<String>,
    pub(crate) variants: Vec<(String, Vec<String>)>,
}

pub(crate) fn word(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    &text[..end]
}

/// The types of sources, as rustfmt lays them out: an item a line.
pub(crate) fn types(sources: &[&str]) -> BTreeMap<String, Type> {
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
pub(crate) fn table(page: &str, head: &str) -> Vec<Vec<String>> {
    let begins = format!("| {head} |");
    let mut lines = page.lines().skip_while(|line| !line.starts_with(&begins));
    assert!(lines.next().is_some(), "no table of {head}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    rows.map(cells).collect()
}

/// The text that describes a type in a sentence: `Name`: ...
pub(crate) fn sentence<'a>(page: &'a str, name: &str) -> &'a str {
    let begins = format!("`{name}`:");
    let start = page.find(&begins).unwrap_or_else(|| panic!("the page does not have {begins}"));
    let text = &page[start + begins.len()..];
    &text[..text.find("\n\n").unwrap_or(text.len())]
}

/// Asserts that all names are in a text as words, in this order.
pub(crate) fn assert_in_order(names: &[String], text: &str, of: &str) {
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

/// Asserts that a table has each variant of a type: its number, its name, and in a later cell its
/// fields. The head of the table begins with these cells.
pub(crate) fn assert_variants(page: &str, head: &str, (name, of): (&str, &Type), fields_at: usize) {
    let rows = table(page, head);
    assert_eq!(rows.len(), of.variants.len(), "{name}");
    for (number, (row, (variant, fields))) in rows.iter().zip(&of.variants).enumerate() {
        assert_eq!((row[0].as_str(), row[1].as_str()), (&*number.to_string(), &**variant));
        assert_in_order(fields, row.get(fields_at).map_or("", |cell| cell), variant);
    }
}
