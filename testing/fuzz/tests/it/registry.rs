//! Every decoder and every layout of `format` is in a target: a new one without fuzzing fails the
//! test.

use std::collections::BTreeSet;
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
    let gone: Vec<_> = covered.difference(&there).filter(|item| **item != "batch::next").collect();
    assert!(gone.is_empty(), "targets name what format does not have: {gone:?}");
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
