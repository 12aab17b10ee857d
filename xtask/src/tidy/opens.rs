//! What opens, makes or removes files by their paths, outside of `device`.
//!
//! A name in a directory that another user controls may be a symbolic link, a hard link, a FIFO or
//! a device at any moment. The directory itself may be renamed. The files of a volume are reached
//! through `device` (`crates/device/src/guarded.rs`), which checks what it opens. Each file that
//! uses a path otherwise is listed in [`LEFT`] with the reason why this gives no user anything of
//! another. The counts may only shrink: more is a problem, and fewer is one until the table has the
//! new count.

use std::collections::BTreeMap;

use super::Tree;

/// The kernel's own files, or a device of its own: no user makes them.
const KERNEL: &str = "a file of the kernel, or of the system";
/// A path that the caller typed, used in the caller's own process with the caller's rights, as by
/// any program. Descriptors reach what is below it.
const TYPED: &str = "the caller typed the path, and uses it with the caller's rights";
/// A name that is not there before: `O_EXCL` follows no link, and fails if something is there.
const NEW: &str = "makes what is not there, which follows no link, in a directory that was typed";
/// A directory below which only this user makes files.
const OWN: &str = "below a directory of this user alone";
/// The opened file is checked before anything is done with it.
const CHECKED: &str = "what was opened is checked, or only named, before it is used";

/// Files that use paths, how often, and why that is harmless. MAY ONLY SHRINK.
const LEFT: [(&str, usize, &str); 34] = [
    ("crates/client/src/socket.rs", 2, CHECKED),
    ("crates/fuse/src/adapter/attributes.rs", 1, KERNEL),
    ("crates/fuse/src/attach.rs", 1, KERNEL),
    ("crates/fuse/src/capability.rs", 2, KERNEL),
    ("crates/fuse/src/groups.rs", 1, KERNEL),
    ("crates/fuse/src/kernel/clone_channel.rs", 1, KERNEL),
    ("crates/fuse/src/mount.rs", 1, KERNEL),
    ("crates/fuse/src/mountinfo.rs", 10, KERNEL),
    ("crates/fuse/src/turns.rs", 1, KERNEL),
    // A directory, without waiting for a FIFO: whether it is of a mount of this process is asked of
    // the descriptor.
    ("crates/fuse/src/write_back.rs", 1, CHECKED),
    // The directory of the archive, and the file in it by its descriptor.
    // Only the caller and root can change the directories above (`export/safe.rs`).
    ("crates/pando/src/export/directory.rs", 1, CHECKED),
    ("crates/pando/src/export/made.rs", 2, TYPED),
    ("crates/pando/src/find/print.rs", 1, TYPED),
    ("crates/pando/src/host/claim.rs", 1, KERNEL),
    // /var/cache/pando, the user's own cache, or PANDO_HOST_DIRECTORY; and the machine's number.
    ("crates/pando/src/host/directory.rs", 5, OWN),
    ("crates/pando/src/import/listed.rs", 1, TYPED),
    ("crates/pando/src/import/source.rs", 1, TYPED),
    ("crates/pando/src/index/tree.rs", 1, TYPED),
    ("crates/pando/src/loopback.rs", 1, KERNEL),
    // Which users have a number.
    ("crates/pando/src/place/link.rs", 2, KERNEL),
    ("crates/pando/src/daemon/detach.rs", 1, KERNEL),
    // The directory of a new trace; the file is made and removed in it.
    ("crates/pando/src/daemon/record.rs", 1, TYPED),
    ("crates/pando/src/replay/mod.rs", 4, TYPED),
    // Directories of their own names, which are made first.
    ("crates/pando/src/verbs/bench.rs", 4, NEW),
    // Each file of it is checked: no link, this user's, writable by nobody else.
    ("crates/pando/src/verbs/cluster.rs", 1, CHECKED),
    // Directories that are made, and removed again if they are empty.
    ("crates/pando/src/verbs/format.rs", 3, NEW),
    ("crates/pando/src/verbs/generate.rs", 2, TYPED),
    // /run/pando as root, else below XDG_RUNTIME_DIR.
    ("crates/pando/src/verbs/mount_far.rs", 2, OWN),
    ("crates/pando/src/verbs/serve_cluster.rs", 1, TYPED),
    ("crates/pando/src/verbs/trace.rs", 1, TYPED),
    ("crates/program/src/cache_size.rs", 1, KERNEL),
    // A directory, which must belong to the volume's owner: asked of the descriptor.
    ("crates/program/src/interrupt.rs", 1, TYPED),
    ("crates/program/src/log_place.rs", 1, CHECKED),
    ("crates/rpc/src/certificates.rs", 2, NEW),
];

/// Functions of `std::fs` and `rustix::fs` that open, make or remove what a path names.
const FUNCTIONS: [&str; 16] = [
    "read",
    "read_to_string",
    "write",
    "read_dir",
    "read_link",
    "create_dir",
    "create_dir_all",
    "remove_file",
    "remove_dir",
    "remove_dir_all",
    "rename",
    "copy",
    "hard_link",
    "set_permissions",
    "symlink",
    "open",
];
/// Other ways to do so.
const OTHERS: [&str; 9] = [
    "File::open(",
    "File::create(",
    "File::create_new(",
    "File::options(",
    "OpenOptions::new(",
    "DirBuilder::new(",
    "at(CWD,",
    "at2(rustix::fs::CWD,",
    "at(rustix::fs::CWD,",
];

/// All rules about paths.
pub(crate) fn check(tree: &Tree) -> Vec<String> {
    check_against(tree, &LEFT)
}

fn check_against(tree: &Tree, left: &[(&str, usize, &str)]) -> Vec<String> {
    let mut found: BTreeMap<&str, usize> = left.iter().map(|(file, ..)| (*file, 0)).collect();
    for (path, text) in tree.texts().filter(|(path, _)| is_checked(path)) {
        let count = uses(text);
        if count > 0 {
            found.insert(path, count);
        }
    }
    let allowed = |file: &str| {
        left.iter().find(|(known, ..)| *known == file).map_or(0, |(_, count, _)| *count)
    };
    found.retain(|file, count| *count != allowed(file));
    let problems = found.iter().map(|(file, count)| {
        format!(
            "{file}: {count} times a path is opened, made or removed; the table in \
             xtask/src/tidy/opens.rs allows {}, and may only shrink: go through device, or hold \
             the directory and name the file in it",
            allowed(file)
        )
    });
    problems.collect()
}

/// The product's sources, without the crate through which files of a volume are reached.
fn is_checked(path: &str) -> bool {
    let Some(name) = path.strip_suffix(".rs") else { return false };
    let in_product = name.starts_with("crates/") && name.contains("/src/");
    let is_test = name.contains("/tests/") || name.ends_with("tests");
    in_product && !is_test && !name.starts_with("crates/device/")
}

/// How often code uses a path.
fn uses(text: &str) -> usize {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
    let count = |line: &str| {
        let calls = FUNCTIONS.iter().map(|name| {
            let call = format!("fs::{name}(");
            line.match_indices(&call).filter(|(at, _)| is_path_of(&line[..*at])).count()
        });
        let others = OTHERS.iter().map(|other| line.matches(other).count());
        calls.chain(others).sum::<usize>()
    };
    lines.map(count).sum()
}

/// Whether `fs` behind this is a module of its own name: `vfs::read(` is none.
fn is_path_of(before: &str) -> bool {
    !before.ends_with(|sign: char| sign.is_alphanumeric() || sign == '_')
}

#[cfg(test)]
mod tests {
    use super::super::Tree;
    use super::{check_against, uses};

    #[test]
    fn each_way_to_use_a_path_is_counted_outside_of_tests() {
        for bad in [
            "let text = std::fs::read_to_string(volume.join(\"observed\"))?;\n",
            "fs::remove_file(&self.path).unwrap_or_default();\n",
            "std::os::unix::fs::symlink(&log_dir, link)?;\n",
            "let file = File::open(path)?;\n",
            "let file = OpenOptions::new().append(true).open(path)?;\n",
            "let at = rustix::fs::open(path, flags, Mode::empty())?;\n",
            "let at = openat(CWD, path, flags, Mode::empty())?;\n",
            "rustix::fs::openat2(rustix::fs::CWD, volume, flags, mode, how)?;\n",
        ] {
            assert_eq!(uses(bad), 1, "{bad}");
        }
        for good in [
            "// std::fs::read(path)\n",
            "vfs::read(node)?; fs.read(path)?; rustix::fs::openat(&held, name, flags, mode)?;\n",
            "#[cfg(test)]\nmod tests {\n    fn f() { std::fs::write(a, b) }\n}\n",
        ] {
            assert_eq!(uses(good), 0, "{good}");
        }
    }

    #[test]
    fn files_that_use_paths_more_or_less_often_than_listed_are_reported() {
        let bad = "std::fs::read(a); std::fs::write(b);\n";
        let files = ["crates/a/src/b.rs", "crates/a/src/tests/c.rs", "crates/device/src/local.rs"];
        let tree = Tree::of(&files.map(|file| (file, bad)));
        assert_eq!(check_against(&tree, &[("crates/a/src/b.rs", 2, "")]), [] as [&str; 0]);
        for wrong in [1, 3] {
            let found = check_against(&tree, &[("crates/a/src/b.rs", wrong, "")]);
            assert!(found[0].contains("b.rs: 2 times"), "{found:?}");
        }
        assert_eq!(check_against(&tree, &[]).len(), 1);
        let gone = [("crates/a/src/b.rs", 2, ""), ("crates/a/src/gone.rs", 1, "")];
        assert!(check_against(&tree, &gone)[0].contains("gone.rs: 0 times"));
    }
}
