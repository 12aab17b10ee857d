//! Steps of `docs/guide/extend.md` that are forgotten without an error: what is in one list and
//! must be named in another.
//!
//! * An option of a mount with which no test mounts.
//! * A key of `--sort` that the help, the parser or a test does not have.
//! * An environment variable that no guide has.
//! * An operation of the model that no test makes.
//! * A call of a mount that reports do not count.
//! * A kind of finding that the page of checks does not have, or that no test looks for.
//! * A number of the status that is in no text for people and in no metric.

use super::Tree;

const OPTIONS: &str = "crates/fuse/src/options/table.rs";
const MOUNT_TESTS: [&str; 2] = ["crates/fuse/tests/it/", "crates/pando/tests/it/"];
const SORT: &str = "crates/search/src/matches.rs";
const SORT_HELP: &str = "crates/pando/src/find/help.txt";
/// Where a key is named as a word, and as a variant.
const SORT_WORDS: [&str; 2] =
    ["crates/pando/src/find/arguments.rs", "crates/pando/tests/it/find_sorted.rs"];
const SORT_VARIANTS: [&str; 2] =
    ["crates/pando/src/find/arguments.rs", "crates/fs/tests/it/search.rs"];
/// The key that has an option of its own.
const SORT_BY_OPTION: &str = "Like";
const VARIABLES: &str = "crates/pando/src/environment.rs";
const GUIDES: &str = "docs/guide/";
/// An index of this repository, and no guide for users.
const NO_GUIDES: [&str; 3] = ["docs/guide/where.md", "docs/guide/extend.md", "docs/guide/tour.md"];
const MODEL: &str = "testing/src/model/op.rs";
const GENERATORS: [&str; 2] = ["testing/src/model/generate.rs", "crates/fs/tests/it/script.rs"];
const LAYER: &str = "crates/vfs/src/layer.rs";
/// Calls that reports do not count: they answer from memory, or wait for others.
const NOT_COUNTED: [&str; 24] = [
    "generation",
    "may_be_held",
    "inode_uppers",
    "forget",
    "now",
    "unsettled",
    "settle",
    "set_invalidate",
    "is_in_snapshot",
    "holds_name",
    "opened",
    "open",
    "released",
    "epoch",
    "keeps_locks",
    "lock",
    "test_lock",
    "unlock",
    "set_shown_root",
    "is_volatile",
    "waits",
    "takes_snapshots",
    "copies_first",
    "is_computed",
];

/// Where kinds have their names, and whether a test must look for each.
const KINDS: [(&str, &str, bool); 2] = [
    ("crates/check/src/problem.rs", "ProblemKind::", true),
    ("crates/check/src/collect.rs", "GarbageKind::", false),
];
const KINDS_PAGE: &str = "docs/fsck.md";
const STATUS: &str = "crates/wire/src/status.rs";
const STATUS_READERS: [&str; 2] =
    ["crates/pando/src/verbs/status/text.rs", "crates/pando/src/metrics/volume.rs"];
/// Structs of the status, and their fields that are of use in JSON alone.
const STATUS_STRUCTS: [(&str, &[&str]); 3] = [
    ("pub struct Status {", &["subvolumes", "ingest_bytes", "replayed", "created"]),
    ("pub struct StoreStatus {", &["seconds"]),
    ("pub struct Background {", &[]),
];
/// Fields of which something else is made for people.
const STATUS_MADE: [&str; 2] = ["checkpoint_writes", "stored_bytes"];

/// All rules about such steps.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    options(tree, &mut problems);
    sort_keys(tree, &mut problems);
    variables(tree, &mut problems);
    model(tree, &mut problems);
    counted(tree, &mut problems);
    kinds(tree, &mut problems);
    status(tree, &mut problems);
    problems
}

fn options(tree: &Tree, problems: &mut Vec<String>) {
    let text = tree.text(OPTIONS).unwrap_or_default();
    let table = text.split("const TABLE").nth(1).and_then(|rest| rest.split("\n];").next());
    // Every second part is between quotes.
    let parts: Vec<&str> = table.unwrap_or_default().split('"').collect();
    let names = parts.chunks(2).zip(parts.chunks(2).skip(1)).filter_map(|(one, next)| {
        let set = next.first()?.trim_start_matches(',').trim_start();
        let is_set = ["Flag(", "Value(", "Refused("].iter().any(|kind| set.starts_with(kind));
        one.get(1).filter(|_| is_set)
    });
    for name in names {
        let mut tests = tree
            .texts()
            .filter(|(path, _)| MOUNT_TESTS.iter().any(|folder| path.starts_with(folder)));
        if !tests.any(|(_, text)| has_word(text, name)) {
            problems.push(format!("{OPTIONS}: no test mounts with `{name}`"));
        }
    }
}

fn sort_keys(tree: &Tree, problems: &mut Vec<String>) {
    let help = tree.text(SORT_HELP).unwrap_or_default();
    let line = help.lines().find(|line| line.contains("--sort KEY")).unwrap_or_default();
    for variant in variants(tree.text(SORT).unwrap_or_default(), "pub enum SortBy {") {
        if variant == SORT_BY_OPTION {
            continue;
        }
        let word = variant.to_ascii_lowercase();
        if !has_word(line, &word) {
            problems.push(format!("{SORT_HELP}: `--sort` does not have `{word}`"));
        }
        let quoted = format!("\"{word}\"");
        let named = format!("SortBy::{variant}");
        let places = SORT_WORDS.map(|path| (path, &quoted));
        for (path, text) in places.into_iter().chain(SORT_VARIANTS.map(|path| (path, &named))) {
            if !tree.text(path).unwrap_or_default().contains(text.as_str()) {
                problems.push(format!("{path}: does not name the key {text} of `--sort`"));
            }
        }
    }
}

fn variables(tree: &Tree, problems: &mut Vec<String>) {
    let text = tree.text(VARIABLES).unwrap_or_default();
    let names = text.split('"').filter(|word| word.starts_with("PANDO_"));
    for name in names {
        let mut guides =
            tree.texts().filter(|(path, _)| path.starts_with(GUIDES) && !NO_GUIDES.contains(path));
        if !guides.any(|(_, text)| has_word(text, name)) {
            problems.push(format!("{VARIABLES}: no page of {GUIDES} has {name}"));
        }
    }
}

fn model(tree: &Tree, problems: &mut Vec<String>) {
    for variant in variants(tree.text(MODEL).unwrap_or_default(), "pub enum Op {") {
        let named = format!("Op::{variant}");
        let made = |path: &&str| has_word(tree.text(path).unwrap_or_default(), &named);
        if !GENERATORS.iter().any(made) {
            problems.push(format!("{MODEL}: no test makes {named}: add it to {}", GENERATORS[0]));
        }
    }
}

fn counted(tree: &Tree, problems: &mut Vec<String>) {
    let text = tree.text(LAYER).unwrap_or_default();
    let passed = text.rsplit_once("    passed {").map_or("", |(_, rest)| rest);
    let methods = passed.lines().skip(1).map(str::trim).take_while(|line| *line != "}");
    for method in methods.filter_map(|line| line.split_once('(')).map(|(name, _)| name) {
        if !NOT_COUNTED.contains(&method) {
            problems.push(format!(
                "{LAYER}: reports do not count `{method}`: make it a call that is reported, or \
                 list it in xtask/src/tidy/steps.rs"
            ));
        }
    }
}

/// Kinds of what checks and collections find have rows in one page for users. Tests look for each
/// kind of finding, by its variant or its name.
fn kinds(tree: &Tree, problems: &mut Vec<String>) {
    let page = tree.text(KINDS_PAGE).unwrap_or_default();
    for (file, of, is_tested) in KINDS {
        let text = tree.text(file).unwrap_or_default();
        let named = text.lines().filter_map(|line| {
            let (variant, name) = line.trim().strip_prefix(of)?.split_once(" => \"")?;
            Some((variant, name.strip_suffix("\",")?))
        });
        for (variant, name) in named {
            if !page.contains(&format!("\n| `{name}` |")) {
                problems.push(format!("{KINDS_PAGE}: has no row of the kind `{name}` ({file})"));
            }
            let (variant, quoted) = (format!("{of}{variant}"), format!("\"{name}\""));
            let mut tests = tree.texts().filter(|(path, _)| path.contains("/tests/"));
            let looks =
                |(_, text): (&str, &str)| has_word(text, &variant) || text.contains(&quoted);
            if is_tested && !tests.any(looks) {
                problems.push(format!("{file}: no test looks for {variant}, or for {quoted}"));
            }
        }
    }
}

/// A row of `pando status` or a metric shows each field of the status.
fn status(tree: &Tree, problems: &mut Vec<String>) {
    let text = tree.text(STATUS).unwrap_or_default();
    for (begin, json_alone) in STATUS_STRUCTS {
        let lines = text.lines().skip_while(|line| *line != begin).take_while(|line| *line != "}");
        let fields = lines.filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(": "));
        for (field, _) in fields.filter(|(field, _)| !json_alone.contains(field)) {
            let dotted = format!(".{field}");
            let reads = |path: &&str| {
                let mut rest = tree.text(path).unwrap_or_default().split(&dotted).skip(1);
                rest.any(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_'))
            };
            if !STATUS_MADE.contains(&field) && !STATUS_READERS.iter().any(reads) {
                problems.push(format!(
                    "{STATUS}: neither the text of `pando status` nor a metric shows `{field}`: \
                     add it to {}, or list it in xtask/src/tidy/steps.rs",
                    STATUS_READERS[0]
                ));
            }
        }
    }
}

/// The variants of an enum that begins with this line.
fn variants<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().skip_while(move |line| *line != begin).skip(1);
    lines.take_while(|line| *line != "}").filter_map(|line| {
        let name = line.strip_prefix("    ")?;
        let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
        name.starts_with(|c: char| c.is_ascii_uppercase()).then(|| &name[..end])
    })
}

/// Whether a text has a word, which is no part of a longer one.
fn has_word(text: &str, word: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + word.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        check(&Tree::of(files))
    }

    #[test]
    fn mount_option_without_a_test_is_reported() {
        let table = "const TABLE: &[Row] = &[\n    Row { options: &[(\"new\", Flag(|o| 1)), \
                     (\"old\", Value(\"N\", set))] },\n];\n";
        let test = ("crates/fuse/tests/it/mounts.rs", "mount(\"ro,new\")\n");
        let problems = found(&[(OPTIONS, table), test]);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("`old`"), "{problems:?}");
        let other = ("crates/pando/tests/it/mounts.rs", "mount(\"old=3\")\n");
        assert!(found(&[(OPTIONS, table), test, other]).is_empty());
        let longer = ("crates/pando/tests/it/mounts.rs", "mount(\"no-old\")\n");
        assert_eq!(found(&[(OPTIONS, table), test, longer]).len(), 1);
    }

    #[test]
    fn key_of_sort_that_a_place_does_not_have_is_reported() {
        let keys = "pub enum SortBy {\n    /// Size.\n    Size,\n    Like(Like),\n}\n";
        let mut files = vec![
            (SORT, keys),
            (SORT_HELP, "  --sort KEY   size\n"),
            ("crates/pando/src/find/arguments.rs", "b\"size\" => SortBy::Size,\n"),
            ("crates/pando/tests/it/find_sorted.rs", "[\"size\"]\n"),
            ("crates/fs/tests/it/search.rs", "SortBy::Size\n"),
        ];
        assert_eq!(found(&files), Vec::<String>::new());
        for at in 1..files.len() {
            let kept = std::mem::replace(&mut files[at].1, "  --sort KEY\n");
            assert!(!found(&files).is_empty(), "{}", files[at].0);
            files[at].1 = kept;
        }
    }

    #[test]
    fn variable_that_no_guide_has_is_reported() {
        let variables = (VARIABLES, "const A: &str = \"PANDO_A\";\n");
        let index = ("docs/guide/where.md", "PANDO_A\n");
        assert!(found(&[variables, index])[0].contains("PANDO_A"));
        assert!(found(&[variables, ("docs/guide/cli.md", "(`PANDO_A`)\n")]).is_empty());
    }

    #[test]
    fn operation_that_no_test_makes_is_reported() {
        let ops = (MODEL, "pub enum Op {\n    /// Syncs.\n    Sync { at: u8 },\n}\n");
        assert!(found(&[ops])[0].contains("Op::Sync"));
        assert!(found(&[ops, (GENERATORS[0], "Op::Syncs {}\n")]).len() == 1);
        assert!(found(&[ops, (GENERATORS[1], "Op::Sync { at: 1 }\n")]).is_empty());
    }

    #[test]
    fn kind_without_a_row_or_a_test_is_reported() {
        let kinds = (KINDS[0].0, "            ProblemKind::NewOne => \"new-one\",\n");
        let page = (KINDS_PAGE, "|---|\n| `new-one` | it |\n");
        let test = |text| ("crates/fs/tests/it/check/a.rs", text);
        for text in ["kind == ProblemKind::NewOne\n", "[\"new-one\"]\n"] {
            assert_eq!(found(&[kinds, page, test(text)]), Vec::<String>::new());
        }
        assert!(found(&[kinds, test("ProblemKind::NewOne\n")])[0].contains("no row"));
        assert!(found(&[kinds, page, test("ProblemKind::NewOneMore\n")])[0].contains("no test"));
        let garbage = (KINDS[1].0, "            GarbageKind::NewOne => \"new-one\",\n");
        assert_eq!(found(&[garbage, page]), Vec::<String>::new());
    }

    #[test]
    fn number_of_the_status_that_nobody_sees_is_reported() {
        let status = (STATUS, "pub struct Status {\n    /// One.\n    pub new: u64,\n}\n");
        for reader in STATUS_READERS {
            let reads = (reader, "number(status.new)\n");
            assert_eq!(found(&[status, reads]), Vec::<String>::new());
        }
        let other = (STATUS_READERS[0], "number(status.newer)\n");
        assert!(found(&[status, other])[0].contains("`new`"));
    }

    #[test]
    fn call_that_is_not_counted_is_reported() {
        let layer = |method: &str| {
            format!("layer! {{\n    passed {{\n        {method}() -> ();\n    }}\n}}\n")
        };
        assert!(found(&[(LAYER, &layer("now"))]).is_empty());
        assert!(found(&[(LAYER, &layer("then"))])[0].contains("`then`"));
    }
}
