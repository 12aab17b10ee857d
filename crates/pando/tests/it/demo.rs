//! What `make demo` prints, against what is known of a small tree and of a clock that only the
//! measured commands advance.
//!
//! The script runs with a program in front of each of `pando`, `cp`, `find`, `du` and `rm`. It runs
//! the real one, adds an amount to the clock that no other call adds, and notes its arguments.
//! `date` prints that clock. So each row of the table has one right value, on any machine.
//!
//! Each of them may take long, so each runs until a line is printed meanwhile. The program in front
//! of `sleep` shortens the eight seconds between the lines of a step, and counts them. One during
//! which no line is printed is noted.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use crate::world::{PANDO, World, reason};

/// A command that the demo ran, and how long it took by the demo's clock.
struct Call {
    micros: u64,
    command: String,
}

/// What a program in front of another does first: waits for two lines of a step, of which the first
/// may have been due before. `rm -f` removes single files.
const AWAIT_LINES: &str = r#"
[ "$name $1" != "rm -f" ] || exec "$real" "$@"
begun=$(/usr/bin/stat -c %s "$here/lines")
for ((waits = 0; $(/usr/bin/stat -c %s "$here/lines") < begun + 2; waits++)); do
  [ $waits -lt 600 ] || { echo "$name $*" >> "$here/silent"; break; }
  /usr/bin/sleep 0.05
done
"#;

/// A line that comes after eight seconds comes at once, and is counted if its script prints it.
const SLEEP: &str = r#"
[ "$*" = 8 ] || exec /usr/bin/sleep "$@"
/usr/bin/sleep 0.02
! kill -0 $PPID 2> /dev/null || printf . >> "$here/lines"
"#;

/// As Cargo, which cannot build.
const CARGO: &str = r#"
[ "$1" != tree ] || { printf '%s\n' one two two; exit 0; }
echo "   Compiling one v1.0.0"
exit 101
"#;

/// The programs in front of the real ones.
fn instruments(directory: &Path) {
    fs::create_dir(directory).unwrap();
    let here = directory.display();
    fs::write(directory.join("clock"), "1000000000000").unwrap();
    for name in ["calls", "lines", "silent"] {
        fs::write(directory.join(name), "").unwrap();
    }
    let script = |name: &str, text: String| {
        let path = directory.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    script(
        "date",
        format!("#!/bin/sh\n[ \"$*\" = +%s%N ] || exec /bin/date \"$@\"\ncat {here}/clock\n"),
    );
    script("sleep", format!("#!/bin/bash\nhere={here}\n{SLEEP}"));
    let head = |name: &str, real: &str| {
        format!("#!/bin/bash\nhere={here} name={name} real={real}\n{AWAIT_LINES}")
    };
    script("cargo", head("cargo", "none") + CARGO);
    for name in ["pando", "cp", "find", "du", "rm"] {
        let real = if name == "pando" { PANDO } else { &format!("/usr/bin/{name}") };
        // Microseconds, milliseconds and seconds in turn, each amount once.
        script(
            name,
            head(name, real)
                + &format!(
                    "{real} \"$@\"\nstatus=$?\n\
                 count=$(/usr/bin/wc -l < {here}/calls)\n\
                 case $((count % 3)) in 0) unit=1 ;; 1) unit=1000 ;; *) unit=1000000 ;; esac\n\
                 micros=$(((count * 7 + 3) * unit))\n\
                 line=$(printf '%s ' \"$@\" | /usr/bin/tr '\\n' ' ')\n\
                 printf '%s\\t{name} %s\\n' $micros \"$line\" >> {here}/calls\n\
                 echo $(($(cat {here}/clock) + micros * 1000)) > {here}/clock\n\
                 exit $status\n"
                ),
        );
    }
}

/// A tree, and what the demo must find in it. Returns the number of entries with the top, and that
/// of files over 8 KiB with an `a` in the name.
fn tree(top: &Path) -> (usize, usize) {
    let write = |name: &str, bytes: usize| {
        let path = top.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![b'x'; bytes]).unwrap();
    };
    write("alpha", 8193);
    write("at-most-8k", 8192);
    write("big/largest", (3 << 20) + 1);
    write("big/second", (2 << 20) + 1);
    write("big/has-a", 9000);
    write("small/third", 100_000);
    write("small/empty", 0);
    std::os::unix::fs::symlink("alpha", top.join("link")).unwrap();
    (11, 3)
}

/// As the demo prints times.
fn pretty(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        _ => format!("{:.2} s", micros as f64 / 1e6),
    }
}

/// The time of the call number `nth` whose command line contains all of `parts`.
fn time(calls: &[Call], nth: usize, parts: &[&str]) -> String {
    let mut found =
        calls.iter().filter(|call| parts.iter().all(|part| call.command.contains(part)));
    pretty(found.nth(nth).unwrap_or_else(|| panic!("no call {nth} of {parts:?}")).micros)
}

/// The rows of the table that the demo must print.
fn expected(calls: &[Call], entries: usize, mounted: bool) -> Vec<(String, String, String)> {
    let mut rows = Vec::new();
    let mut row = |label: &str, ours: String, usual: Option<String>| {
        let label = label.replace('N', &entries.to_string());
        rows.push((label, ours, usual.unwrap_or_else(|| "-".to_owned())));
    };
    let time = |nth, parts: &[&str]| time(calls, nth, parts);
    let copied = || Some(time(0, &["cp -a", "/plain /"]));
    let listed = || Some(time(0, &["find ", "/plain -ls"]));
    row("format a volume", time(0, &["pando format"]), None);
    let import = time(0, &["pando import"]);
    row("import the tree / cp -a on this disk", import, Some(time(0, &["cp -a", "/plain "])));
    if mounted {
        let through = time(0, &["find ", "/mnt/tree -ls"]);
        row("find -ls through the mount / on this disk", through, listed());
    }
    row("pando ls -lR / find -ls", time(0, &["pando ls -lR"]), listed());
    // The first search reads the volume, and is not shown.
    let searched = time(1, &["pando find", "-size +8k"]);
    let usual = time(0, &["find ", "/plain -type f", "-size +8k"]);
    row("pando find, an expression / find", searched, Some(usual));
    let total = time(0, &["pando du -s -b"]);
    row("pando du of the tree / du", total, Some(time(0, &["du -s -b", "/plain "])));
    row("snapshot of N entries / cp -a", time(0, &["pando snapshot create"]), copied());
    row("clone of N entries / cp -a", time(0, &["pando clone"]), copied());
    row("roll back to the snapshot", time(0, &["pando rollback"]), None);
    if mounted {
        row("mount after kill -9", time(1, &["pando mount"]), None);
    }
    let removed = time(0, &["rm -rf", "/plain-copy "]);
    row("rmr of N entries / rm -rf", time(0, &["pando rmr"]), Some(removed));
    rows
}

/// The rows of the table in what was printed: behind its head and a rule, up to an empty line.
fn printed(out: &str, head: &str) -> Vec<(String, String, String)> {
    let lines = out.lines().skip_while(|line| !line.starts_with("step ("));
    let mut lines = lines.peekable();
    let titles = lines.next().unwrap_or_else(|| panic!("there is no table in {out}"));
    assert_eq!(titles.split_whitespace().collect::<Vec<_>>().join(" "), head);
    assert!(lines.next().is_some_and(|rule| rule.chars().all(|sign| sign == '-')));
    let rows = lines.take_while(|line| !line.is_empty());
    let cells = |line: &str| {
        let (label, rest) = line.split_at(48);
        let (ours, usual) = rest.split_at(15);
        (label.trim().to_owned(), ours.trim().to_owned(), usual.trim().to_owned())
    };
    rows.map(cells).collect()
}

/// The demo of a directory, with these programs in front of others.
fn demo(tools: &Path, source: &Path) -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/demo.sh");
    let mut path = tools.display().to_string();
    write!(path, ":{}", std::env::var("PATH").unwrap()).unwrap();
    let mut bash = Command::new("timeout");
    bash.args(["--kill-after=10", "900", "bash"]).arg(&script).arg(source).env("PATH", path);
    bash
}

#[test]
fn every_row_of_the_demo_is_what_was_measured() {
    let world = World::without_volume();
    let (source, tools) = (world.path().join("source"), world.path().join("tools"));
    fs::create_dir(&source).unwrap();
    let (entries, found) = tree(&source);
    instruments(&tools);
    let mut bash = demo(&tools, &source);
    bash.env("PANDO", tools.join("pando")).env("TMPDIR", world.path());
    let output = bash.env_remove("KEEP").output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {err}\n{out}", output.status);

    let mounted = out.contains("== mounted on ");
    assert!(mounted || reason("SKIP_FUSE").is_some(), "{out}");
    let text = fs::read_to_string(tools.join("calls")).unwrap();
    let call = |line: &str| {
        let (micros, command) = line.split_once('\t').unwrap();
        Call { micros: micros.parse().unwrap(), command: command.to_owned() }
    };
    let calls: Vec<Call> = text.lines().map(call).collect();
    let head = format!("step ({entries} entries) pando usual tool");
    assert_eq!(printed(&out, &head), expected(&calls, entries, mounted), "{out}\n{text}");
    let mut facts = vec![
        format!("{} has {entries} entries;", source.display()),
        format!("ok: both find the same {found} files"),
        "ok: the snapshot shows what was there before the change".to_owned(),
        "ok: writing in the clone did not touch its source".to_owned(),
        "ok: the tree is what it was at the snapshot".to_owned(),
    ];
    if mounted {
        facts.push("the three largest: 2 links in .search/size:>1M".to_owned());
        facts.push("ok: after the kill the tree is complete".to_owned());
        let largest = ["big/largest", "big/second", "small/third"];
        let own = out.lines().filter(|line| !line.starts_with("   ... "));
        let listed = own.skip_while(|line| !line.contains("the three largest")).skip(1);
        for (line, name) in listed.zip(largest) {
            assert!(line.ends_with(&format!("/mnt/tree/{name}")), "{line}: {name}");
        }
    }
    for fact in facts {
        assert!(out.contains(&fact), "{fact:?} is not in\n{out}");
    }
    let left: Vec<_> =
        fs::read_dir(world.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 3, "the demo leaves something behind: {left:?}");
    assert_eq!(silent(&tools), "");
}

/// Commands during which nothing was printed.
fn silent(tools: &Path) -> String {
    fs::read_to_string(tools.join("silent")).unwrap()
}

/// Also what Cargo does before the build; and a build that fails ends what prints lines.
#[test]
fn the_build_of_the_demo_is_not_silent() {
    let world = World::without_volume();
    let tools = world.path().join("tools");
    instruments(&tools);
    let mut bash = demo(&tools, world.path());
    let output = bash.env_remove("PANDO").env("CARGO", "cargo").output().unwrap();
    let out = String::from_utf8(output.stdout).unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}\n{out}");
    assert!(err.contains("the program could not be built"), "{err}\n{out}");
    assert!(out.contains("building target/demo/pando: 2 crates"), "{out}");
    assert_eq!(silent(&tools), "", "{out}");
}
