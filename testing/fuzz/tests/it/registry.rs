//! Every decoder and every layout of `format`, and every message of `wire`, is in a target: a new
//! one without fuzzing fails the test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Reads fields for the others.
const NOT_DECODERS: [&str; 1] = ["bytes"];

/// The decoders and layouts of a source, as `module::item`: public functions that can report
/// malformed bytes, and public lists of fields.
fn items(module: &str, source: &str) -> Vec<String> {
    let code = source.split("\n#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("pub fn ") {
        let rest = &code[at + 7..];
        let signature = rest.split('{').next().unwrap_or_default();
        if signature.contains("Malformed>") || signature.contains("HeaderError>") {
            let name: String =
                rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            found.push(format!("{module}::{name}"));
        }
    }
    for line in code.lines() {
        let name =
            line.strip_prefix("pub const ").and_then(|rest| rest.strip_suffix(": &[Field] ="));
        let name = name.or_else(|| {
            line.strip_prefix("pub const ")
                .and_then(|rest| rest.split_once(": &[Field] = "))
                .map(|p| p.0)
        });
        found.extend(name.map(|name| format!("{module}::{name}")));
    }
    found
}

#[test]
fn every_decoder_and_layout_is_in_a_target() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/format/src");
    let mut there = BTreeSet::new();
    for entry in std::fs::read_dir(&sources).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if path.extension().is_some_and(|end| end == "rs") && !NOT_DECODERS.contains(&&*module) {
            there.extend(items(&module, &std::fs::read_to_string(&path).unwrap()));
        }
    }
    assert!(there.len() > 60, "the sources are not read: {there:?}");
    let covered: BTreeSet<String> = fuzz::targets()
        .iter()
        .flat_map(|target| target.covers.iter().map(|item| (*item).to_owned()))
        .collect();
    let missing: Vec<_> = there.difference(&covered).collect();
    assert!(missing.is_empty(), "no target of testing/fuzz reaches {missing:?}");
    let is_other = |item: &str| item == "batch::next" || item.starts_with(WIRE);
    let gone: Vec<_> = covered.difference(&there).filter(|item| !is_other(item)).collect();
    assert!(gone.is_empty(), "targets name what format does not have: {gone:?}");
}

/// How targets name messages.
const WIRE: &str = "wire::";

/// The types of a source that are decoded, each with the words of its definition.
fn decoded(source: &str) -> Vec<(String, BTreeSet<String>)> {
    let code = source.split("\n#[cfg(test)]").next().unwrap_or_default();
    let mut found = Vec::new();
    for part in code.split("#[derive(").skip(1) {
        let (derived, rest) = part.split_once(")]").unwrap_or_default();
        let keyword =
            ["pub struct ", "pub enum "].map(|word| rest.find(word)).into_iter().flatten();
        let (Some(at), true) = (keyword.min(), derived.contains("Deserialize")) else { continue };
        let ends = ["\n}", ");\n"].map(|end| rest[at..].find(end)).into_iter().flatten();
        let definition = &rest[at..at + ends.min().unwrap_or(rest.len() - at)];
        let lines = definition.lines().map(|line| line.split("//").next().unwrap_or_default());
        let lines: Vec<&str> = lines.collect();
        let is_other = |c: char| !c.is_alphanumeric() && c != '_';
        let mut words = lines.iter().flat_map(|line| line.split(is_other));
        let name = words.by_ref().find(|word| !["", "pub", "struct", "enum"].contains(word));
        let name = name.expect("a type has a name").to_owned();
        found.push((name, words.map(str::to_owned).collect()));
    }
    found
}

/// Of some types, those that values of the roots cannot have in them.
fn unreached(types: &BTreeMap<String, BTreeSet<String>>, roots: &BTreeSet<String>) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&String> = roots.iter().collect();
    while let Some(name) = next.pop() {
        let Some((name, words)) = types.get_key_value(name) else { continue };
        if reached.insert(name) {
            next.extend(words);
        }
    }
    types.keys().filter(|name| !reached.contains(name)).cloned().collect()
}

/// All sources below a directory, in one text each.
fn sources(directory: &Path, texts: &mut Vec<String>) {
    for entry in std::fs::read_dir(directory).expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            sources(&path, texts);
        } else if path.extension().is_some_and(|end| end == "rs") {
            texts.push(std::fs::read_to_string(&path).expect("a source"));
        }
    }
}

#[test]
fn every_message_is_in_a_target() {
    let mut texts = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/wire/src"), &mut texts);
    let types: BTreeMap<_, _> = texts.iter().flat_map(|text| decoded(text)).collect();
    assert!(types.len() > 80, "the sources are not read: {:?}", types.keys());
    let targets = fuzz::targets();
    let covered = targets.iter().flat_map(|target| target.covers);
    let roots: BTreeSet<String> =
        covered.filter_map(|item| item.strip_prefix(WIRE)).map(str::to_owned).collect();
    let unknown: Vec<_> = roots.iter().filter(|root| !types.contains_key(*root)).collect();
    assert!(unknown.is_empty(), "targets name messages that wire does not have: {unknown:?}");
    let missing = unreached(&types, &roots);
    assert!(missing.is_empty(), "no target of testing/fuzz decodes {missing:?}");
}

#[test]
fn a_new_message_without_a_target_is_reported() {
    let source = "#[derive(Serialize, Deserialize)]\npub struct Inner(u64);\n#[derive(Debug, \
                  Deserialize)]\n#[serde(x)]\npub enum Outer<'a> {\n    /// Not a New.\n    \
                  One { inner: Option<Inner> },\n}\n#[derive(Deserialize)]\npub struct New \
                  {\n    a: u64,\n}\n#[derive(Debug)]\npub struct Other {\n}\n";
    let types: BTreeMap<_, _> = decoded(source).into_iter().collect();
    assert_eq!(types.keys().collect::<Vec<_>>(), ["Inner", "New", "Outer"]);
    assert_eq!(unreached(&types, &BTreeSet::from(["Outer".to_owned()])), ["New"]);
}

#[test]
fn a_new_decoder_without_a_target_is_reported() {
    let source = "pub const NEW_LAYOUT: &[Field] = &[\n];\npub fn decode(b: &[u8]) -> \
                  Result<New, Malformed> {\n}\npub fn other() {\n}\n#[cfg(test)]\nmod t {}";
    assert_eq!(items("new", source), ["new::decode", "new::NEW_LAYOUT"]);
}

#[test]
fn names_are_different() {
    let names: BTreeSet<_> = fuzz::targets().iter().map(|target| target.name).collect();
    assert_eq!(names.len(), fuzz::targets().len());
}
