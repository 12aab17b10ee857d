//! When `bench/counts.sh` may compare nothing. The script runs as a copy, with programs that only
//! name versions, so that nothing is counted.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = include_str!("../../../counts.sh");

/// Writes a program that prints a line.
fn program(directory: &Path, name: &str, line: &str) {
    let path = directory.join(name);
    fs::write(&path, format!("#!/bin/sh\necho '{line}'\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// The exit code and the last line of `counts.sh test`.
fn counts(root: &Path, has_valgrind: bool, is_ci: bool) -> (Option<i32>, String) {
    let tools = root.join(if has_valgrind { "tools" } else { "fewer" });
    let mut bash = Command::new("/bin/bash");
    bash.arg(root.join("bench/counts.sh")).arg("test").current_dir(root);
    bash.env("PATH", tools).env("CARGO", "true").env_remove("PROGRAM").env_remove("CI");
    if is_ci {
        bash.env("CI", "true");
    }
    let output = bash.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    let last = printed.lines().last().unwrap_or_default().to_owned();
    assert!(!last.is_empty(), "{output:?}");
    (output.status.code(), last)
}

/// Another machine is nobody's fault. A missing tool or table, or another build, passes only
/// outside of CI.
#[test]
fn counts_that_are_not_compared_pass_in_ci_only_on_another_machine() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    for name in ["bench", "tools", "fewer", "target/debug"] {
        fs::create_dir_all(root.join(name)).unwrap();
    }
    fs::write(root.join("bench/counts.sh"), SCRIPT).unwrap();
    fs::write(root.join("Cargo.toml"), "[profile.dev]\nopt-level = 1\n\n").unwrap();
    for tools in ["tools", "fewer"] {
        let tools = root.join(tools);
        program(&tools, "rustc", "rustc 1.2.3 (a date)");
        program(&tools, "ldd", "ldd (GNU libc) 2.1");
        for name in
            ["dirname", "sed", "sort", "cksum", "cut", "ls", "grep", "tr", "uname", "head", "true"]
        {
            let found = ["/usr/bin", "/bin"].map(|place| Path::new(place).join(name));
            let found = found.iter().find(|path| path.exists()).unwrap();
            std::os::unix::fs::symlink(found, tools.join(name)).unwrap();
        }
    }
    program(&root.join("tools"), "valgrind", "valgrind-1.2");
    let table = root.join("bench/counts_test.txt");
    let both = |has_valgrind: bool, reason: &str, code_in_ci: i32| {
        let (code, line) = counts(root, has_valgrind, false);
        assert!(line.starts_with("NOT TESTED") && line.contains(reason), "{line}");
        assert_eq!(code, Some(0), "{line}");
        let (code, line) = counts(root, has_valgrind, true);
        assert!(line.contains(reason), "{line}");
        assert_eq!(code, Some(code_in_ci), "{line}");
        line
    };
    both(false, "valgrind is not installed", 1);
    let nothing = both(true, "counted with nothing", 1);
    let here = nothing.rsplit("here is ").next().unwrap().to_owned();
    assert!(here.starts_with("rustc 1.2.3, glibc 2.1, valgrind-1.2, "), "{here}");
    let with = |counted: &str| fs::write(&table, format!("# counted with {counted}\n")).unwrap();
    with(&here);
    both(true, "there is no target/debug/pando-bench", 1);
    with(&format!("{here}0"));
    both(true, "was counted with", 1);
    for (own, other) in [("rustc 1.2.3", "rustc 1.2.4"), ("glibc 2.1", "glibc 2.2")] {
        with(&here.replace(own, other));
        both(true, "was counted with", 0);
    }
}
