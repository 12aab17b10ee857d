//! What the regular expressions of a search box match: names, and paths as they are printed.

use std::fs;
use std::process::Command;

use crate::world::{IDLE_SECONDS, PANDO, World};

/// A tree of old files under two spellings.
fn volume() -> World {
    let world = World::new();
    let source = world.path().join("source");
    for (directory, file) in [("Old", "report.txt"), ("old", "REPORT.TXT"), ("old/new", "x")] {
        fs::create_dir_all(source.join(directory)).unwrap();
        fs::write(source.join(directory).join(file), "x").unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/proj")]);
    world
}

/// The results, without their common prefix, in order.
fn below(printed: &str, start: &str) -> Vec<String> {
    let lines = printed.lines().map(|line| line.strip_prefix(start).expect(line).to_owned());
    let mut found: Vec<String> = lines.collect();
    found.sort();
    found
}

#[test]
fn expressions_match_names_and_paths_as_printed() {
    let world = volume();
    let start = world.at("/proj");
    let find = |query: &str| below(&world.ok(&["find", &start, query]), &start);
    let none: [&str; 0] = [];
    // A part is enough, in either case unless there is a capital letter.
    assert_eq!(find("name:~port"), ["/Old/report.txt", "/old/REPORT.TXT"]);
    assert_eq!(find(r"name:~^\S+\.txt$"), ["/Old/report.txt", "/old/REPORT.TXT"]);
    assert_eq!(find("name:~PORT"), ["/old/REPORT.TXT"]);
    assert_eq!(find("name:~^port"), none);
    // A name excludes the directories above it. The start matches by its own name.
    assert_eq!(find("name:~old/"), none);
    assert_eq!(find("name:~^old$"), ["/Old", "/old"]);
    assert_eq!(find("name:~^proj$"), [""]);
    // A path matches as printed, from its beginning.
    assert_eq!(
        find("path:~/old/"),
        ["/Old/report.txt", "/old/REPORT.TXT", "/old/new", "/old/new/x"]
    );
    assert_eq!(find("path:~/Old/"), ["/Old/report.txt"]);
    assert_eq!(find("path:~/old$"), ["/Old", "/old"]);
    assert_eq!(find("path:~^/proj"), none);
    let whole = format!("path:~^{}/Old$", start.replace('.', r"\."));
    assert_eq!(find(&whole), ["/Old"]);
    assert_eq!(find("!path:~/old"), [""]);
    assert!(world.fails(2, &["find", &start, "name:~a("]).contains("'~a('"));
}

#[test]
fn paths_of_a_mount_begin_as_they_were_typed() {
    let world = volume();
    if !world.mount() {
        return;
    }
    let find = |place: &str, query: &str| {
        let mut command = Command::new(PANDO);
        command.args(["find", place, query]).current_dir(world.below_mount("proj"));
        let output = command.env("PANDO_IDLE_SECONDS", IDLE_SECONDS).output().unwrap();
        assert!(output.status.success(), "{}", output.stderr.escape_ascii());
        below(std::str::from_utf8(&output.stdout).unwrap(), "")
    };
    let none: [&str; 0] = [];
    assert_eq!(find(".", r"path:~^\./old/n"), ["./old/new", "./old/new/x"]);
    assert_eq!(find(".", "path:~proj"), none);
    assert_eq!(find("old", "path:~^old/new$"), ["old/new"]);
    assert_eq!(find(".", r"name:~^\.$"), ["."]);
    // For a query directory no path was typed: paths are those of the links.
    let names = |query: &str| {
        let listed = fs::read_dir(world.below_mount("/.search").join(query)).unwrap();
        let mut names: Vec<_> = listed.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    assert_eq!(names(r"path:~^\.\..\.\..proj.old.new"), ["new", "x"]);
    assert_eq!(names("path:~^.proj"), none);
    assert_eq!(names("name:~^report"), ["REPORT.TXT", "report.txt"]);
    world.umount();
}
