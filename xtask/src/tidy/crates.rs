//! Rules for crates: the layers, the lints, and that every test file is compiled.

use super::Tree;

/// From the top down: a crate may use those that stand after it. `testing` may be used by tests
/// only.
const LAYERS: [&str; 29] = [
    "xtask",
    "pando",
    "fuse",
    "client",
    "remote",
    "rpc",
    "workloads",
    "program",
    "wire",
    "testing",
    "transfer",
    "fs",
    "trace",
    "check",
    "upkeep",
    "policy",
    "ops",
    "opening",
    "volume",
    "vfs",
    "search",
    "inode",
    "data",
    "objects",
    "lsm",
    "btree",
    "store",
    "format",
    "device",
];

/// Crates that know no more of ours than these: the column "must not know" of `ARCHITECTURE.md`,
/// for the rows that say more than the layers do.
const KNOW_ONLY: [(&str, &[&str]); 11] = [
    ("fuse", &["vfs", "inode", "device"]),
    ("remote", &["rpc", "wire", "vfs", "inode", "device"]),
    ("rpc", &["wire", "inode", "device"]),
    ("vfs", &["inode", "format", "device"]),
    // The floors of a volume. Engines are named by `opening` alone, and by that nothing of what
    // only an open volume has.
    ("opening", &["volume", "inode", "lsm", "btree", "store", "format", "device"]),
    ("volume", &["vfs", "search", "inode", "data", "store", "format", "device"]),
    ("ops", &["volume", "vfs", "search", "inode", "data", "store", "format", "device"]),
    ("policy", &["ops", "volume", "vfs", "inode", "store", "format", "device"]),
    (
        "upkeep",
        &["policy", "ops", "volume", "vfs", "search", "inode", "data", "store", "format", "device"],
    ),
    (
        "check",
        &[
            "upkeep", "policy", "ops", "opening", "volume", "vfs", "search", "inode", "data",
            "store", "format", "device",
        ],
    ),
    (
        "fs",
        &[
            "check", "upkeep", "policy", "ops", "opening", "volume", "vfs", "search", "inode",
            "data", "store", "format", "device",
        ],
    ),
];

/// Crates of the repository that stand beside the layers: what is measured against, what fuzzes all
/// of them, models of protocols, and threads in orders that a seed determines.
const BESIDE: [&str; 6] = [
    "testing/fuzz/",
    "testing/memfs/",
    "testing/models/",
    "testing/scheduled/",
    "bench/",
    "bench/engines/",
];

/// All rules about crates.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    for (path, text) in tree.texts() {
        let Some(directory) = path.strip_suffix("Cargo.toml").filter(|rest| !rest.is_empty())
        else {
            continue;
        };
        lints(path, text, &mut problems);
        locks(path, directory, text, &mut problems);
        if !BESIDE.contains(&directory) {
            layers(path, directory, text, &mut problems);
        }
        declared(tree, directory, &mut problems);
    }
    problems
}

fn lints(path: &str, text: &str, problems: &mut Vec<String>) {
    if !section(text, "lints").any(|line| line == "workspace = true") {
        problems.push(format!("{path}: [lints] workspace = true is missing"));
    }
}

/// Locks come from `device::sync`, so that a simulator can replace them in one place.
fn locks(path: &str, directory: &str, text: &str, problems: &mut Vec<String>) {
    let may = directory == "crates/device/" || directory == "bench/engines/";
    let mut used =
        ["dependencies", "dev-dependencies"].into_iter().flat_map(|of| section(text, of));
    if !may && used.any(|line| line.starts_with("parking_lot")) {
        problems.push(format!("{path}: take locks from device::sync, not from parking_lot"));
    }
}

fn layers(path: &str, directory: &str, text: &str, problems: &mut Vec<String>) {
    let name = directory.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let Some(level) = LAYERS.iter().position(|layer| *layer == name) else {
        problems.push(format!("{path}: {name} has no place in the table of layers (xtask)"));
        return;
    };
    for line in section(text, "dependencies") {
        let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let Some(used_level) = LAYERS.iter().position(|layer| *layer == used) else { continue };
        if used_level <= level || used == "testing" {
            problems.push(format!("{path}: {name} may not use {used}, which is not below it"));
        }
        let only = KNOW_ONLY.iter().find(|(known, _)| *known == name);
        if only.is_some_and(|(_, known)| !known.contains(&used)) {
            problems.push(format!("{path}: {name} must not know {used} (ARCHITECTURE.md)"));
        }
    }
}

/// The lines of a section of a manifest, trimmed.
fn section<'a>(text: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let heading = format!("[{name}]");
    let lines = text.lines().map(str::trim).skip_while(move |line| *line != heading).skip(1);
    lines.take_while(|line| !line.starts_with('['))
}

/// A file under `tests/it` that `main.rs` does not declare is never compiled.
fn declared(tree: &Tree, directory: &str, problems: &mut Vec<String>) {
    let below = format!("{directory}tests/it/");
    let main = tree.text(&format!("{below}main.rs")).unwrap_or_default();
    for (path, _) in tree.texts() {
        let Some(module) = path.strip_prefix(&below).and_then(|rest| rest.strip_suffix(".rs"))
        else {
            continue;
        };
        let module = module.split('/').next().unwrap_or_default();
        let declares =
            |line: &str| line.trim().trim_start_matches("pub ") == format!("mod {module};");
        if module != "main" && !main.lines().any(declares) {
            problems.push(format!("{path}: main.rs does not declare it"));
        }
    }
}
