//! Every method of a volume that the daemon, mounts, streams or servers call is called on falsified
//! volumes, too. A new one without fuzzing fails the test.

use std::collections::BTreeSet;
use std::path::Path;

/// Where volumes are used.
const USERS: [&str; 4] = ["pando", "fuse", "transfer", "remote"];

/// What is called on a volume and reads nothing of it, or is reached otherwise.
const OTHERWISE: &[(&str, &str)] = &[
    ("collection_is_due", "a look at what is in memory"),
    ("create", "`open` with O_CREAT: `mknod` and `lookup`, in one request"),
    ("epoch", "a number in memory"),
    ("find_below", "`find`, from a node instead of a path"),
    ("forget_received", "of a receiver that gives up, which `streams` runs"),
    ("holds_name", "a look at what is in memory"),
    ("inner", "the volume without virtual directories"),
    ("invalidate_attributes", "a notification of the kernel"),
    ("invalidate_entry", "a notification of the kernel"),
    ("invalidate_node", "a notification of the kernel"),
    ("is_computed", "a comparison of names"),
    ("is_volatile", "a comparison of numbers"),
    ("keeps_locks", "a constant"),
    ("lock", "locks are in memory"),
    ("may_change", "a look at what is in memory"),
    ("note_received", "of a receiver, which `streams` runs"),
    ("open", "takes a look-up more, of a node that is in memory"),
    ("opened", "takes a look-up more, of a node that is in memory"),
    ("place", "of a node that is in memory"),
    ("released", "gives it up"),
    ("set_invalidate", "the function that notifies the kernel"),
    ("set_shown_root", "a number in memory"),
    ("settle", "a wait for the log"),
    ("snapshot_dir", "a name in memory"),
    ("snapshot_received", "of a receiver, which `streams` runs"),
    ("subvol", "a look of a test at a tree"),
    ("test_lock", "locks are in memory"),
    ("unlock", "locks are in memory"),
    ("unsettled", "two numbers in memory"),
    ("waits", "a look at what is in memory"),
];

/// The methods that the sources of a folder call on `fs`.
fn called(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            called(&path, found);
        } else if path.extension().is_some_and(|end| end == "rs") {
            found.extend(methods(&std::fs::read_to_string(&path).expect("a source")));
        }
    }
}

/// The methods that a source calls on `fs`, `fs()` or what is `inner()` of it.
fn methods(source: &str) -> Vec<String> {
    let code = source.split("\n#[cfg(test)]").next().unwrap_or_default();
    // A call may begin on a line of its own.
    let joined: String = code.lines().map(str::trim_start).fold(String::new(), |all, line| {
        if line.starts_with('.') { all + line } else { all + "\n" + line }
    });
    let mut found = Vec::new();
    for receiver in ["fs.", "fs().", "inner()."] {
        for (at, _) in joined.match_indices(receiver) {
            let before = joined[..at].chars().next_back();
            let name: String = joined[at + receiver.len()..]
                .chars()
                .take_while(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || *c == '_')
                .collect();
            let is_call = joined[at + receiver.len() + name.len()..].starts_with('(');
            if is_call && !before.is_some_and(|c| c.is_alphanumeric() || c == '_') {
                found.push(name);
            }
        }
    }
    found
}

#[test]
fn every_method_that_verbs_call_is_fuzzed() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (mut used, mut fuzzed) = (BTreeSet::new(), BTreeSet::new());
    for user in USERS {
        called(&here.join("../../crates").join(user).join("src"), &mut used);
    }
    called(&here.join("src"), &mut fuzzed);
    assert!(used.len() > 100 && used.contains("compare"), "the sources are not read: {used:?}");
    let otherwise: BTreeSet<String> = OTHERWISE.iter().map(|(name, _)| (*name).into()).collect();
    let missing: Vec<_> = used.iter().filter(|name| !fuzzed.contains(*name)).collect();
    let missing: Vec<_> = missing.into_iter().filter(|name| !otherwise.contains(*name)).collect();
    assert!(missing.is_empty(), "testing/fuzz/src/verbs*.rs call none of {missing:?}");
    let gone: Vec<_> = otherwise.iter().filter(|name| !used.contains(*name)).collect();
    assert!(gone.is_empty(), "nothing calls {gone:?}");
    let both: Vec<_> = otherwise.intersection(&fuzzed).collect();
    assert!(both.is_empty(), "they are fuzzed, after all: {both:?}");
}

#[test]
fn a_new_method_without_fuzzing_is_reported() {
    let source = "let x = self.fs\n    .one(2);\nserver.fs().two(offs.three());\nfs.four;\n\
                  #[cfg(test)]\nmod tests { fn f() { fs.five() } }";
    assert_eq!(methods(source), ["one", "two"]);
}
