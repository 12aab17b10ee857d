//! What a crate must not know, where its dependencies alone do not keep it from knowing: rows of
//! the column "must not know" in `ARCHITECTURE.md`.

use super::Tree;

/// Modules of `format` that define what keys and values of a volume mean.
const NAMESPACE: [&str; 23] = [
    "acl",
    "answer_record",
    "base_record",
    "candidate",
    "detached_record",
    "directory_record",
    "entry_record",
    "extent",
    "inherited_record",
    "inode_record",
    "kept_twice",
    "key",
    "owner_quota",
    "quota",
    "received_record",
    "retention",
    "scan_record",
    "segment",
    "subvolume_record",
    "trash",
    "usage",
    "volume",
    "xattr_record",
];

/// Modules of `format` that the store, its engines or the index need, which define no keys.
const STRUCTURES: [&str; 30] = [
    "batch",
    "cached_chunk",
    "catalog",
    "cluster",
    "cluster_directories",
    "cluster_filter",
    "cluster_groups",
    "cluster_limits",
    "cluster_names",
    "cluster_numbers",
    "cluster_summary",
    "cluster_values",
    "layout",
    "log_object",
    "log_record",
    "log_segment",
    "manifest",
    "map_directory",
    "node",
    "numbers",
    "pointer",
    "presence",
    "row_pointer",
    "run_block",
    "run_index",
    "run_manifest",
    "space_map",
    "stream",
    "superblock",
    "trace",
];

/// Beginnings of paths in a volume.
const FILES: [&str; 5] = ["\"log", "\"data", "\"btree", "\"lsm", "\"volume"];

/// Folders whose files know neither keys nor values.
const NO_NAMESPACE: [&str; 3] = ["crates/btree/src/", "crates/lsm/src/", "crates/store/src/"];

/// Modules of `format` that the code of some folders may name, and no others, and why.
const KNOWN: [(&str, &[&str], &str); 3] = [
    ("crates/data/src/", &["extent", "key", "segment", "usage"], "data knows no names"),
    ("crates/objects/src/", &["cached_chunk", "presence"], "objects does not know what is in them"),
    ("crates/inode/src/", &["acl", "key"], "inode does not know where attributes are stored"),
];

/// Words that the code of some folders does not have, and why.
const UNKNOWN: [(&[&str], &[&str], &str); 10] = [
    (
        &["crates/program/src/", "crates/wire/src/", "crates/transfer/src/", "crates/fs/src/"],
        &["UnixStream", "UnixListener", "TcpStream", "TcpListener", "std::net", "rustix::net"],
        "sockets are known by the programs, `client` and `objects` alone",
    ),
    (
        &["crates/format/src/"],
        &[
            "std::fs",
            "std::net",
            "std::env",
            "std::time",
            "std::thread",
            "std::process",
            "std::os",
            "rustix",
            "libc",
        ],
        "format does no I/O",
    ),
    (
        &["crates/data/src/"],
        &[
            "Part::",
            "key::back_reference",
            "key::cookie",
            "key::directory",
            "key::entry",
            "key::linked",
            "Parsed::BackReference",
            "Parsed::Entry",
            "Parsed::Linked",
        ],
        "data knows neither names nor directories",
    ),
    (
        &["crates/search/src/"],
        &["FsError", "FsResult", "FileSystem"],
        "search does not know how POSIX calls work",
    ),
    (
        &[
            "crates/fs/src/",
            "crates/check/src/",
            "crates/upkeep/src/",
            "crates/policy/src/",
            "crates/ops/src/",
            "crates/opening/src/",
            "crates/volume/src/",
            "crates/vfs/src/",
            "crates/inode/src/",
            "crates/search/src/",
            "crates/data/src/",
            "crates/transfer/src/",
        ],
        &["Errno", "libc::E", "raw_os_error"],
        "the errno of an answer exists only in fuse: return an FsError",
    ),
    (
        &[
            "crates/transfer/src/",
            "crates/fs/src/",
            "crates/check/src/",
            "crates/upkeep/src/",
            "crates/policy/src/",
            "crates/ops/src/",
            "crates/opening/src/",
            "crates/volume/src/",
            "crates/trace/src/",
            "crates/search/src/",
            "crates/inode/src/",
            "crates/data/src/",
        ],
        &["\".snapshots", "\".search", "/.snapshots", "/.search"],
        "virtual directories are known to vfs::VirtualDirs alone",
    ),
    (
        &[
            "crates/check/src/",
            "crates/upkeep/src/",
            "crates/policy/src/",
            "crates/ops/src/",
            "crates/volume/src/",
        ],
        &["snapshot_dir"],
        "the name of the directory of snapshots is known to fs, which puts virtual directories \
         above all operations",
    ),
    (
        &[
            "crates/fs/src/",
            "crates/check/src/",
            "crates/upkeep/src/",
            "crates/policy/src/",
            "crates/ops/src/",
            "crates/volume/src/",
        ],
        &["Btree", "Lsm", "\"btree", "\"lsm"],
        "engines are named by opening alone",
    ),
    (
        &["crates/pando/src/"],
        &["\"btree", "\"lsm"],
        "the program does not know the files of engines: ask opening, through fs",
    ),
    (
        &["crates/ops/src/"],
        &["QuotaInfo", "QuotaLimits", "Domain", "Trash", "trash::"],
        "operations know neither quotas nor the trash: add a method to ops::policy::Policy",
    ),
];
/// A line that may have such a word ends with this and the reason.
const KNOWS: &str = "tidy: knows ";

/// All rules about what a file knows.
pub(crate) fn check(path: &str, text: &str, problems: &mut Vec<String>) {
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    for (at, line) in code {
        let mut problem = |what: &str| problems.push(format!("{path}:{}: {what}", at + 1));
        if NO_NAMESPACE.iter().any(|folder| path.starts_with(folder)) && names_keys(line) {
            problem("neither an engine nor the log knows what keys mean");
        }
        let unknown = |(folder, known, _): &&(&str, &[&str], &str)| {
            path.starts_with(folder) && modules_of_format(line).any(|one| !known.contains(&one))
        };
        if let Some((_, known, why)) = KNOWN.iter().find(unknown) {
            problem(&format!("{why}: of format it may name {}", known.join(", ")));
        }
        for (folders, words, why) in UNKNOWN {
            let is_there = folders.iter().any(|folder| path.starts_with(folder))
                && !path.contains("/tests")
                && line.split_once(KNOWS).is_none_or(|(_, reason)| reason.trim().is_empty());
            if let Some(word) = words.iter().find(|word| is_there && line.contains(**word)) {
                problem(&format!("{word}: {why}"));
            }
        }
        if path.starts_with("crates/device/src/") && FILES.iter().any(|file| line.contains(file)) {
            problem("device names no file of a volume; take the name as a parameter");
        }
    }
}

/// The lists above are complete. A new module of `format` is in one of them. Every crate that
/// implements the trait of engines is among those that know no keys.
pub(crate) fn check_lists(tree: &Tree) -> Vec<String> {
    let mut problems = Vec::new();
    let declared = tree.text("crates/format/src/lib.rs").unwrap_or_default();
    let modules =
        declared.lines().filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'));
    for module in modules {
        if NAMESPACE.contains(&module) == STRUCTURES.contains(&module) {
            problems.push(format!(
                "crates/format/src/{module}.rs: name it in one of the lists of \
                 xtask/src/tidy/knowledge.rs: engines may know it, or not"
            ));
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.starts_with("crates/")) {
        let is_engine = text.lines().any(|line| line.starts_with("impl Engine for "));
        if is_engine && !NO_NAMESPACE.iter().any(|folder| path.starts_with(folder)) {
            problems.push(format!(
                "{path}: an engine knows no keys: add its folder to NO_NAMESPACE in \
                 xtask/src/tidy/knowledge.rs"
            ));
        }
    }
    problems
}

/// Whether a line uses a module of the namespace, alone or in a list.
fn names_keys(line: &str) -> bool {
    modules_of_format(line).any(|module| NAMESPACE.contains(&module))
}

/// The modules of `format` that a line uses, each alone or in a list.
fn modules_of_format(line: &str) -> impl Iterator<Item = &str> {
    line.split("format::").skip(1).flat_map(|used| {
        let words = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let words = words.filter(|word| !word.is_empty());
        let words = words.take(if used.starts_with('{') { usize::MAX } else { 1 });
        words.filter(|word| NAMESPACE.contains(word) || STRUCTURES.contains(word))
    })
}
