//! Rules for crates: the layers, the lints, and that every test file is compiled.

use super::Tree;

/// From the top down: a crate may use those that come after it. `testing` may be used by tests
/// only.
const LAYERS: [&str; 31] = [
    "xtask",
    "pando",
    "workloads",
    "program",
    "fuse",
    "client",
    "standby",
    "remote",
    "cluster",
    "rpc",
    "wire",
    "testing",
    "transfer",
    "fs",
    "check",
    "upkeep",
    "policy",
    "ops",
    "opening",
    "volume",
    "trace",
    "vfs",
    "search",
    "inode",
    "data",
    "objects",
    "btree",
    "lsm",
    "store",
    "format",
    "device",
];

/// Crates know no more of ours than these: the column "must not know" of `ARCHITECTURE.md`.
const KNOW_ONLY: [(&str, &[&str]); 30] = [
    ("xtask", &["format"]),
    // Engines are named by `opening` alone, and benchmarks measure them bare.
    ("remote", &["rpc", "wire", "vfs", "inode", "device"]),
    ("standby", &["remote", "cluster", "objects", "store", "device"]),
    ("cluster", &["device"]),
    ("rpc", &["wire", "inode", "device"]),
    (
        "pando",
        &[
            "standby", "remote", "cluster", "rpc", "program", "fuse", "client", "wire", "transfer",
            "fs", "trace", "vfs", "search", "inode", "objects", "store", "format", "device",
        ],
    ),
    (
        "workloads",
        &[
            "remote", "program", "rpc", "wire", "fs", "search", "inode", "btree", "lsm", "store",
            "format", "device",
        ],
    ),
    ("program", &["wire", "fs", "search", "inode", "store", "device"]),
    ("fuse", &["vfs", "inode", "device"]),
    ("client", &["wire", "device"]),
    ("wire", &["search", "inode", "device"]),
    ("testing", &["vfs", "inode", "store", "format", "device"]),
    ("transfer", &["fs", "vfs", "inode", "format", "device"]),
    (
        "fs",
        &[
            "check", "upkeep", "policy", "ops", "opening", "volume", "vfs", "search", "inode",
            "data", "store", "format", "device",
        ],
    ),
    (
        "check",
        &[
            "upkeep", "policy", "ops", "opening", "volume", "vfs", "search", "inode", "data",
            "store", "format", "device",
        ],
    ),
    (
        "upkeep",
        &["policy", "ops", "volume", "vfs", "search", "inode", "data", "store", "format", "device"],
    ),
    ("policy", &["ops", "volume", "vfs", "inode", "store", "format", "device"]),
    ("ops", &["volume", "vfs", "search", "inode", "data", "store", "format", "device"]),
    // Nothing of what only an open volume has.
    ("opening", &["volume", "inode", "lsm", "btree", "store", "format", "device"]),
    ("volume", &["vfs", "search", "inode", "data", "store", "format", "device"]),
    ("trace", &["vfs", "inode", "format", "device"]),
    ("vfs", &["inode", "format", "device"]),
    ("search", &["inode", "store", "format", "device"]),
    ("inode", &["format", "device"]),
    ("data", &["store", "format", "device"]),
    ("objects", &["format", "device"]),
    ("btree", &["store", "format", "device"]),
    ("lsm", &["store", "format", "device"]),
    ("store", &["format", "device"]),
    // `format` and `device` know none of ours: none is below both, and neither the other.
    ("format", &[]),
];

/// Crates of the repository beside the layers: yardsticks, a fuzzer of all of them, models of
/// protocols, and threads in orders that a seed determines.
const BESIDE: [&str; 6] = [
    "testing/fuzz/",
    "testing/memfs/",
    "testing/models/",
    "testing/scheduled/",
    "bench/",
    "bench/engines/",
];
/// Which of ours those of them know that must not know all.
const BESIDE_KNOW_ONLY: [(&str, &[&str]); 2] =
    [("testing/memfs/", &["device"]), ("testing/models/", &[])];

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
        if BESIDE.contains(&directory) {
            beside(path, directory, text, &mut problems);
        } else {
            layers(path, directory, text, &mut problems);
            tests_layers(path, directory, text, &mut problems);
        }
        declared(tree, directory, &mut problems);
    }
    let map = tree.text("ARCHITECTURE.md").unwrap_or_default();
    order(map, &mut problems);
    ruled(map, &mut problems);
    problems
}

/// A rule checks what a row of the code map forbids a crate to know. The crates that it knows are
/// listed here, or (`device`) its words in `knowledge.rs`.
fn ruled(map: &str, problems: &mut Vec<String>) {
    for row in map.lines().filter_map(|line| line.strip_prefix("| `")) {
        let mut cells = row.split('|').map(str::trim);
        let directory = cells.next().unwrap_or_default().trim_end_matches('`');
        let name = crate_name(directory);
        let is_ruled = name == "device"
            || KNOW_ONLY.iter().any(|(known, _)| *known == name)
            || BESIDE_KNOW_ONLY.iter().any(|(known, _)| known.trim_end_matches('/') == directory);
        if cells.nth(1).is_some_and(|unknown| unknown != "-") && !is_ruled {
            problems.push(format!(
                "ARCHITECTURE.md: no rule checks what {directory} must not know: add it to \
                 KNOW_ONLY (xtask/src/tidy/crates.rs)"
            ));
        }
    }
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
    let name = crate_name(directory);
    let Some(level) = LAYERS.iter().position(|layer| *layer == name) else {
        problems.push(format!("{path}: {name} has no place in the table of layers (xtask)"));
        return;
    };
    for (used, used_level) in ours(text, "dependencies") {
        if used_level <= level || used == "testing" {
            problems.push(format!("{path}: {name} may not use {used}, which is not below it"));
        }
        let only = KNOW_ONLY.iter().find(|(known, _)| *known == name);
        if only.is_some_and(|(_, known)| !known.contains(&used)) {
            problems.push(format!("{path}: {name} must not know {used} (ARCHITECTURE.md)"));
        }
    }
}

/// Tests use what is below their crate too, so that a crate can be tested without what is above it.
fn tests_layers(path: &str, directory: &str, text: &str, problems: &mut Vec<String>) {
    let name = crate_name(directory);
    let level = LAYERS.iter().position(|layer| *layer == name).unwrap_or_default();
    for (used, used_level) in ours(text, "dev-dependencies") {
        if used_level <= level && used != "testing" {
            problems.push(format!("{path}: tests of {name} may not use {used}, which is above it"));
        }
    }
}

fn beside(path: &str, directory: &str, text: &str, problems: &mut Vec<String>) {
    let Some((_, known)) = BESIDE_KNOW_ONLY.iter().find(|(name, _)| *name == directory) else {
        return;
    };
    for (used, _) in ours(text, "dependencies").filter(|(used, _)| !known.contains(used)) {
        problems.push(format!("{path}: must not know {used} (ARCHITECTURE.md)"));
    }
}

/// Rows of the code map are in the order of the layers, and every layer lists what it may know.
fn order(map: &str, problems: &mut Vec<String>) {
    let rows = map.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let layers = |name: &&str| LAYERS.contains(name) && !["testing", "xtask"].contains(name);
    let rows: Vec<&str> = rows.map(crate_name).filter(layers).collect();
    let expected: Vec<&str> = LAYERS.into_iter().filter(|name| rows.contains(name)).collect();
    if let Some((row, layer)) = rows.iter().zip(&expected).find(|(row, layer)| row != layer) {
        problems.push(format!(
            "ARCHITECTURE.md: the row of {row} is where {layer} is in LAYERS \
             (xtask/src/tidy/crates.rs)"
        ));
    }
}

fn crate_name(directory: &str) -> &str {
    directory.trim_end_matches('/').rsplit('/').next().unwrap_or_default()
}

/// The crates of ours in a section of a manifest, with their places among the layers.
fn ours<'a>(text: &'a str, of: &'a str) -> impl Iterator<Item = (&'a str, usize)> {
    section(text, of).filter_map(|line| {
        let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
        LAYERS.iter().position(|layer| *layer == used).map(|level| (used, level))
    })
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
