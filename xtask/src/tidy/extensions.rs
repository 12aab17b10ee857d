//! Extensions that are not finished: what `docs/guide/extend.md` asks for, where neither the
//! compiler nor a test of its own refuses that it was forgotten.
//!
//! * A field of `MountOptions` that nothing reads is an option that does nothing.
//! * A verb that no test of the program runs.
//! * An engine without the suite of engines, or that the pages for users do not name.

use super::Tree;

const OPTIONS: &str = "crates/fuse/src/options.rs";
/// Where options of a mount take effect.
const READERS: [&str; 2] = ["crates/fuse/src/", "crates/pando/src/"];
const VERBS: &str = "crates/pando/src/cli.rs";
/// The verb of the process that serves a mount of another machine's volume: users do not give it.
const NOT_RUN_BY_NAME: &str = "far-mount";
const VERBS_TESTS: &str = "crates/pando/tests/it/";
const ENGINES: &str = "crates/volume/src/info.rs";
/// Pages that name every engine and its purpose.
const ENGINE_PAGES: [&str; 2] = ["docs/guide/cli.md", "docs/benchmarks/which-engine.md"];

/// All rules about extensions.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    options(tree, &mut problems);
    verbs(tree, &mut problems);
    engines(tree, &mut problems);
    problems
}

fn options(tree: &Tree, problems: &mut Vec<String>) {
    let declared = tree.text(OPTIONS).unwrap_or_default();
    let fields = body(declared, "pub struct MountOptions {")
        .filter_map(|line| line.trim().strip_prefix("pub ")?.split_once(':'));
    let is_reader = |path: &str| {
        READERS.iter().any(|folder| path.starts_with(folder))
            && !path.contains("/tests")
            && !path.starts_with("crates/fuse/src/options")
    };
    for (field, _) in fields {
        let dotted = format!(".{field}");
        let reads = |line: &str| {
            line.match_indices(&dotted).any(|(at, _)| {
                let rest = &line[at + dotted.len()..];
                !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_')
                    && !rest.starts_with(" = ")
            })
        };
        let mut readers = tree.texts().filter(|(path, _)| is_reader(path));
        if !readers.any(|(_, text)| text.lines().any(reads)) {
            problems.push(format!(
                "{OPTIONS}: nothing reads `{field}`: an option that sets it does nothing"
            ));
        }
    }
}

fn verbs(tree: &Tree, problems: &mut Vec<String>) {
    let declared = tree.text(VERBS).unwrap_or_default();
    let variants = body(declared, "enum Verb {").filter_map(|line| {
        let name = line.strip_prefix("    ")?;
        let end = name.find(|c: char| !c.is_alphanumeric()).unwrap_or(name.len());
        name.starts_with(|c: char| c.is_uppercase()).then(|| &name[..end])
    });
    for variant in variants {
        let mut verb = String::new();
        for (at, c) in variant.char_indices() {
            if c.is_uppercase() && at > 0 {
                verb.push('-');
            }
            verb.push(c.to_ascii_lowercase());
        }
        let named = format!("\"{verb}\"");
        let mut tests = tree.texts().filter(|(path, _)| path.starts_with(VERBS_TESTS));
        if verb != NOT_RUN_BY_NAME && !tests.any(|(_, text)| text.contains(&named)) {
            problems.push(format!("{VERBS}: no test in {VERBS_TESTS} runs the verb `{verb}`"));
        }
    }
}

fn engines(tree: &Tree, problems: &mut Vec<String>) {
    let declared = tree.text(ENGINES).unwrap_or_default();
    let name = |line: &str| {
        let (_, rest) = line.trim().strip_prefix("Engine::")?.split_once("=> \"")?;
        Some(rest.split('"').next()?.to_owned())
    };
    for engine in declared.lines().filter_map(name) {
        for page in ENGINE_PAGES {
            let text = tree.text(page).unwrap_or_default();
            if !text.split(|c: char| !c.is_alphanumeric()).any(|word| word == engine) {
                problems.push(format!("{page}: does not name the engine `{engine}`"));
            }
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with("crates/")) {
        let Some((directory, _)) = path.split_once("src/") else { continue };
        let is_engine = text.lines().any(|line| line.starts_with("impl Engine for "));
        let mut tests =
            tree.texts().filter(|(path, _)| path.starts_with(&format!("{directory}tests/it/")));
        if is_engine && !tests.any(|(_, text)| text.contains("testing::store_conformance!(")) {
            problems.push(format!(
                "{path}: an engine whose tests do not run testing::store_conformance!"
            ));
        }
    }
}

/// The lines between one that ends with `begin` and the next `}` at the margin.
fn body<'a>(text: &'a str, begin: &'a str) -> impl Iterator<Item = &'a str> {
    let lines = text.lines().skip_while(move |line| !line.ends_with(begin)).skip(1);
    lines.take_while(|line| *line != "}")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "pub struct MountOptions {\n    /// One.\n    pub exec: bool,\n}\n";

    #[test]
    fn mount_option_that_nothing_reads_is_reported() {
        let found = |reader: &str| {
            check(&Tree::of(&[(OPTIONS, TEXT), ("crates/fuse/src/attach.rs", reader)]))
        };
        assert_eq!(found("if options.exec {}\n"), Vec::<String>::new());
        for reader in ["", "options.exec = true;\n", "if options.executable {}\n"] {
            assert!(found(reader)[0].contains("nothing reads `exec`"), "{reader}");
        }
        let own = [(OPTIONS, TEXT), ("crates/fuse/src/options/table.rs", "options.exec\n")];
        assert_eq!(check(&Tree::of(&own)).len(), 1, "the table sets it");
    }

    #[test]
    fn verb_that_no_test_runs_is_reported() {
        let cli = "pub(crate) enum Verb {\n    /// One.\n    NewVerb(NewVerb),\n}\n";
        let found = |test: &str| {
            check(&Tree::of(&[(VERBS, cli), ("crates/pando/tests/it/verbs.rs", test)]))
        };
        assert_eq!(found("pando([\"new-verb\", at])\n"), Vec::<String>::new());
        assert!(found("pando([\"new\", at])\n")[0].contains("`new-verb`"));
    }

    #[test]
    fn engine_without_pages_or_suite_is_reported() {
        let names = "            Engine::Fast => \"fast\",\n";
        let page = "the engine `fast`\n";
        let mut files = vec![(ENGINES, names)];
        files.extend(ENGINE_PAGES.map(|path| (path, page)));
        files.push(("crates/fast/src/store.rs", "impl Engine for Fast {\n"));
        files.push(("crates/fast/tests/it/conformance.rs", "testing::store_conformance!(Fast);\n"));
        assert_eq!(check(&Tree::of(&files)), Vec::<String>::new());
        files[1].1 = "nothing\n";
        assert!(check(&Tree::of(&files))[0].contains("cli.md: does not name"));
        files[1].1 = page;
        files.pop();
        assert!(check(&Tree::of(&files))[0].contains("store_conformance!"));
    }
}
