//! A bad file for every rule, and the repository itself.

use std::path::Path;

use super::{Tree, check, crates, documents, knowledge, source};

#[test]
fn repository_is_tidy() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let problems = check(root);
    assert!(problems.is_empty(), "\n{}\n{} problems", problems.join("\n"), problems.len());
}

/// A file breaks exactly the rule whose words are `expected`.
fn breaks(path: &str, text: &str, expected: &str) {
    let problems = source::check(path, text);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains(expected), "{problems:?}");
}

#[test]
fn bad_files_are_found() {
    let good = "//! A file.\n";
    assert_eq!(source::check("a.rs", good), Vec::<String>::new());
    breaks("a.rs", "use a;\n", "opens with //!");
    breaks("a.rs", &format!("{good}// {}\n", "x".repeat(98)), "101 columns");
    breaks("a.rs", &format!("{good}// \u{e9}\n"), "not ASCII");
    breaks("a.md", "\u{2014}\n", "not ASCII");
    breaks("a.rs", &good.repeat(601), "601 lines");
    assert!(source::check("crates/a/tests/it/a.rs", &good.repeat(1000)).is_empty());
    breaks("crates/a/tests/it/a.rs", &good.repeat(1001), "1001 lines");
    breaks("a.rs", &format!("{good}// {}: later\n", concat!("FIX", "ME")), "finish it");
    breaks("a.rs", &format!("{good}    {})\n", concat!("todo", "!(")), "finish it");
    breaks("a.rs", &format!("{good}{}]\n", concat!("#[ig", "nore")), "no test");
    breaks("a.rs", &format!("{good}// mod old;\n"), "commented out");
    let thrown = format!("{good}fn f() {{\n    {}a, b);\n}}\n", concat!("matches", "!("));
    breaks("a.rs", &thrown, "thrown away");
    let used =
        format!("{good}fn f() {{\n    let x =\n    {}a, b);\n}}\n", concat!("matches", "!("));
    assert!(source::check("a.rs", &used).is_empty());
}

#[test]
fn large_file_is_found() {
    let large = "x".repeat((256 << 10) + 1);
    let larger = "x".repeat((1 << 20) + 1);
    let tree = Tree::of(&[
        ("picture.png", &large),
        ("Cargo.lock", &large),
        ("bench/traces/a.trace", &large),
        ("bench/traces/b.trace", &larger),
    ]);
    assert_eq!(source::check_sizes(&tree).len(), 2);
}

#[test]
fn crate_that_uses_a_higher_one_is_found() {
    let manifest = |used: &str| {
        format!("[lints]\nworkspace = true\n\n[dependencies]\n{used}.workspace = true\n")
    };
    for (path, used, is_wrong) in [
        ("crates/store/Cargo.toml", "parking_lot", true),
        ("crates/device/Cargo.toml", "parking_lot", false),
        ("crates/store/Cargo.toml", "format", false),
        ("crates/store/Cargo.toml", "btree", true),
        ("crates/store/Cargo.toml", "store", true),
        ("crates/store/Cargo.toml", "testing", true),
        ("crates/fs/Cargo.toml", "fuse", true),
        ("crates/ops/Cargo.toml", "volume", false),
        ("crates/ops/Cargo.toml", "policy", true),
        ("crates/volume/Cargo.toml", "ops", true),
        ("crates/ops/Cargo.toml", "btree", true),
        ("crates/fuse/Cargo.toml", "vfs", false),
        ("crates/fuse/Cargo.toml", "fs", true),
        ("crates/vfs/Cargo.toml", "search", true),
        ("crates/other/Cargo.toml", "format", true),
    ] {
        let found = crates::check(&Tree::of(&[(path, &manifest(used))]));
        assert_eq!(!found.is_empty(), is_wrong, "{path} uses {used}: {found:?}");
    }
    let tests = |used: &str| {
        format!("[lints]\nworkspace = true\n[dev-dependencies]\n{used}.workspace = true\n")
    };
    for (used, problems) in [("testing", 0), ("format", 0), ("btree", 1), ("fs", 1)] {
        let found = crates::check(&Tree::of(&[("crates/store/Cargo.toml", &tests(used))]));
        assert_eq!(found.len(), problems, "tests use {used}: {found:?}");
    }
    let memfs = crates::check(&Tree::of(&[("testing/memfs/Cargo.toml", &manifest("fs"))]));
    assert!(memfs.len() == 1 && memfs[0].contains("must not know fs"), "{memfs:?}");
    let map = "| `crates/btree` | a |\n| `crates/store` | b |\n| `testing` | c |\n";
    assert!(crates::check(&Tree::of(&[("ARCHITECTURE.md", map)])).is_empty());
    let swapped = "| `crates/store` | b |\n| `crates/btree` | a |\n";
    let found = crates::check(&Tree::of(&[("ARCHITECTURE.md", swapped)]));
    assert!(found.len() == 1 && found[0].contains("the row of store"), "{found:?}");
}

#[test]
fn row_of_the_code_map_without_a_rule_is_found() {
    let found = |row: &str| crates::check(&Tree::of(&[("ARCHITECTURE.md", row)]));
    assert_eq!(
        found("| `testing/memfs` | a baseline | all but `device` |\n"),
        Vec::<String>::new()
    );
    assert_eq!(found("| `crates/newcomer` | something | - |\n"), Vec::<String>::new());
    let missing = found("| `crates/newcomer` | something | engines |\n");
    assert!(missing.len() == 1 && missing[0].contains("crates/newcomer"), "{missing:?}");
}

#[test]
fn crate_that_knows_what_it_must_not_is_found() {
    let found = |path: &str, line: &str| {
        let mut problems = Vec::new();
        knowledge::check(path, &format!("//! A file.\n{line}\n"), &mut problems);
        problems.len()
    };
    for folder in ["btree", "lsm", "store"] {
        let path = format!("crates/{folder}/src/a.rs");
        assert_eq!(found(&path, "    let at = format::key::DIRECTORY_PREFIX_BYTES;"), 1);
        assert_eq!(found(&path, "use format::{Pointer, inode_record};"), 1);
        assert_eq!(found(&path, "    format::batch::put(bytes, tree, key, value);"), 0);
        assert_eq!(found(&path, "// As format::key does."), 0);
    }
    assert_eq!(found("crates/fs/src/a.rs", "use format::key;"), 0);
    assert_eq!(found("crates/device/src/a.rs", "const MAY_BE_LINK: &str = \"log\";"), 1);
    assert_eq!(found("crates/device/src/a.rs", "const NAME: &str = \"sync\";"), 0);
    assert_eq!(found("crates/wire/src/a.rs", "use std::os::unix::net::UnixStream;"), 1);
    assert_eq!(found("crates/client/src/a.rs", "use std::os::unix::net::UnixStream;"), 0);
    assert_eq!(found("crates/format/src/a.rs", "use std::fs::File;"), 1);
    assert_eq!(found("crates/format/src/a.rs", "let page = rustix::param::page_size();"), 1);
    assert_eq!(found("crates/data/src/a.rs", "use format::{Corruption, entry_record};"), 1);
    assert_eq!(found("crates/data/src/a.rs", "use format::{Corruption, key};"), 0);
    assert_eq!(found("crates/data/src/a.rs", "batch.delete(tree, &key::entry(2, 1, part));"), 1);
    assert_eq!(found("crates/data/src/a.rs", "batch.delete(tree, &key::extent(2, 1));"), 0);
    assert_eq!(found("crates/objects/src/a.rs", "use format::log_object::Header;"), 1);
    assert_eq!(found("crates/objects/src/a.rs", "use format::cached_chunk::ChunkId;"), 0);
    assert_eq!(found("crates/inode/src/a.rs", "use format::inode_record::FileKind;"), 1);
    assert_eq!(found("crates/search/src/a.rs", "fn find() -> FsResult<()> {"), 1);
    assert_eq!(found("crates/fs/src/a.rs", "use rustix::io::Errno;"), 1);
    assert_eq!(found("crates/fuse/src/a.rs", "use rustix::io::Errno;"), 0);
    let named = "let name = b\".snapshots\";";
    assert_eq!(found("crates/ops/src/a.rs", named), 1);
    assert_eq!(found("crates/vfs/src/a.rs", named), 0);
    for folder in ["fs", "trace", "transfer", "inode"] {
        assert_eq!(found(&format!("crates/{folder}/src/a.rs"), named), 1, "{folder}");
    }
    assert_eq!(found("crates/ops/src/a.rs", &format!("{named} // tidy: knows the default")), 0);
    assert_eq!(found("crates/ops/src/a.rs", &format!("{named} // tidy: knows ")), 1);
    assert_eq!(found("crates/store/src/a.rs", "const NAME: &str = \"log\";"), 0);
    for folder in ["volume", "ops", "policy", "upkeep", "check"] {
        let path = format!("crates/{folder}/src/a.rs");
        assert_eq!(found(&path, "parts.push(fs.header.snapshot_dir.clone());"), 1, "{folder}");
        assert_eq!(found(&path, "    Engine::Btree => EngineKind::Btree,"), 1, "{folder}");
    }
    assert_eq!(found("crates/fs/src/a.rs", "let name = &header.snapshot_dir;"), 0);
    assert_eq!(found("crates/fs/src/a.rs", "let engine = opening::engine::Engine::Lsm;"), 1);
    assert_eq!(found("crates/opening/src/a.rs", "let engine = Engine::Lsm;"), 0);
    assert_eq!(found("crates/pando/src/a.rs", "directory.join(\"btree\").is_dir()"), 1);
    assert_eq!(found("crates/ops/src/a.rs", "use volume::QuotaInfo;"), 1);
    assert_eq!(found("crates/policy/src/a.rs", "use volume::QuotaInfo;"), 0);
}

#[test]
fn module_or_engine_on_no_list_is_found() {
    let found = |path: &str, text: &str| knowledge::check_lists(&Tree::of(&[(path, text)]));
    let modules = "pub mod key;\npub mod node;\nmod sealed;\n";
    assert_eq!(found("crates/format/src/lib.rs", modules), Vec::<String>::new());
    let missing = found("crates/format/src/lib.rs", &format!("{modules}pub mod newcomer;\n"));
    assert!(missing.len() == 1 && missing[0].contains("newcomer.rs"), "{missing:?}");
    let engine = "impl Engine for Core {\n";
    assert_eq!(found("crates/lsm/src/store.rs", engine), Vec::<String>::new());
    let missing = found("crates/newcomer/src/store.rs", engine);
    assert!(missing.len() == 1 && missing[0].contains("NO_NAMESPACE"), "{missing:?}");
}

#[test]
fn crate_without_lints_and_test_that_is_not_declared_are_found() {
    let tree = Tree::of(&[
        ("crates/store/Cargo.toml", "[dependencies]\n"),
        ("crates/store/tests/it/main.rs", "//! Tests.\nmod one;\n"),
        ("crates/store/tests/it/one.rs", "//! One.\n"),
        ("crates/store/tests/it/two.rs", "//! Two.\n"),
    ]);
    let problems = crates::check(&tree);
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].contains("[lints]") && problems[1].contains("two.rs"), "{problems:?}");
}

#[test]
fn documents_that_name_missing_files_are_reported() {
    let tour = "`crates/a/src/lib.rs::go` ".repeat(12);
    let tree = |architecture: &str, tour: &str| {
        Tree::of(&[
            ("crates/a/Cargo.toml", ""),
            ("crates/a/src/lib.rs", "pub fn go() {}\nfn gone_by() {}\n"),
            ("ARCHITECTURE.md", architecture),
            ("docs/guide/tour.md", tour),
        ])
    };
    let map = "The crate `crates/a` and [the tour](docs/guide/tour.md).";
    assert_eq!(documents::check(&tree(map, &tour)), Vec::<String>::new());
    let commented = Tree::of(&[("a.rs", "//! See `docs/format/gone.md`.\n")]);
    assert!(documents::check(&commented).iter().any(|problem| problem.contains("gone.md")));
    for (architecture, tour, expected) in [
        ("nothing", tour.as_str(), "does not mention `crates/a`"),
        ("`crates/a` `crates/b`", &tour, "crates/b does not exist"),
        ("`crates/a` [x](docs/y.md)", &tour, "docs/y.md is broken"),
        (&format!("{map} `it::proceed...`"), &tour, "no test is called it::proceed..."),
        (map, "`crates/a/src/lib.rs::go`", "names 1 functions"),
        (map, &tour.replacen("::go", "::gone", 1), "has no gone"),
        (map, &tour.replacen("a/src", "b/src", 1), "crates/b/src/lib.rs does not exist"),
    ] {
        let problems = documents::check(&tree(architecture, tour));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(expected), "{problems:?}");
    }
}
