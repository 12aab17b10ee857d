//! What a crate must not know, where its dependencies alone do not keep it from knowing: rows of
//! the column "must not know" in `ARCHITECTURE.md`.

/// Modules of `format` that say what keys and values of a volume mean.
const NAMESPACE: [&str; 19] = [
    "acl",
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
    "scan_record",
    "segment",
    "subvolume_record",
    "trash",
    "usage",
    "xattr_record",
];

/// Beginnings of paths in a volume.
const FILES: [&str; 5] = ["\"log", "\"data", "\"btree", "\"lsm", "\"volume"];

/// Folders whose files know neither keys nor values.
const NO_NAMESPACE: [&str; 3] = ["crates/btree/src/", "crates/lsm/src/", "crates/store/src/"];

/// All rules about what a file knows.
pub(crate) fn check(path: &str, text: &str, problems: &mut Vec<String>) {
    let code = text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with("//"));
    for (at, line) in code {
        let mut problem = |what: &str| problems.push(format!("{path}:{}: {what}", at + 1));
        if NO_NAMESPACE.iter().any(|folder| path.starts_with(folder)) && names_keys(line) {
            problem("neither an engine nor the log knows what keys mean");
        }
        if path.starts_with("crates/device/src/") && FILES.iter().any(|file| line.contains(file)) {
            problem("device names no file of a volume; take the name as a parameter");
        }
    }
}

/// Whether a line uses a module of the namespace, alone or in a list.
fn names_keys(line: &str) -> bool {
    line.split("format::").skip(1).any(|used| {
        let is_list = used.starts_with('{');
        let words = used.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let mut words = words.filter(|word| !word.is_empty());
        if is_list {
            words.any(|word| NAMESPACE.contains(&word))
        } else {
            words.next().is_some_and(|word| NAMESPACE.contains(&word))
        }
    })
}
