//! Every key that `info`, `search list` and `trash list` print, against a volume of which the truth
//! is known. So is every line of `info` and of the verbs of the trash.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::process::Command;

use serde_json::{Value, json};

use crate::truth::{number, source};
use crate::world::{World, answer, is_root};

/// Every key of `info`, `search list` and `trash list`: as on a file system beside it.
#[test]
fn info_and_lists_are_true_key_by_key() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let from = format!("{}/d", source(&world));
    let (d, a) = (world.at("/d"), world.at("/d/a"));
    std::os::unix::fs::symlink("a", format!("{from}/link")).unwrap();
    world.ok(&["import", "-q", &from, &d]);
    world.ok(&["snapshot", "create", &d, "monday"]);
    let snapshot = world.json(&["snapshot", "list", &d]).remove(0);
    let same = |path: &str, shown: &Value| {
        let found = fs::symlink_metadata(path).unwrap();
        let time = |seconds: i64, nanos: i64| {
            let nanos = i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
            jiff::Timestamp::from_nanosecond(nanos).unwrap()
        };
        let of = |key: &str| -> jiff::Timestamp { shown[key].as_str().unwrap().parse().unwrap() };
        assert_eq!(shown["mode"], format!("{:04o}", found.mode() & 0o7777), "{shown}");
        assert_eq!((&shown["uid"], &shown["gid"]), (&json!(found.uid()), &json!(found.gid())));
        assert_eq!(of("mtime"), time(found.mtime(), found.mtime_nsec()), "{shown}");
        assert!(of("ctime") >= of("btime") && of("btime") > of("mtime"), "{shown}");
        assert!(of("atime") >= of("mtime"), "{shown}");
    };
    let info = |path: &str| world.json(&["info", path]).remove(0);
    let both = ["atime", "blocks", "btime", "ctime", "gid", "in_snapshots", "ino", "inode", "kind"];
    let rest = [
        "links",
        "mode",
        "mtime",
        "path",
        "path_in_volume",
        "size",
        "snapshots",
        "subvolume",
        "uid",
        "volume",
        "xattrs",
    ];
    let are_known = |shown: &Value, more: &[&str]| {
        let mut known: Vec<_> = [&both[..], &rest, more].concat();
        known.sort_unstable();
        let found: Vec<_> = shown.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, known, "check the new key here");
    };
    let file = info(&a);
    are_known(&file, &[]);
    same(&format!("{from}/a"), &file);
    let expected = json!({
        "kind": "file", "links": 1, "size": 3000, "blocks": file["blocks"], "path": a,
        "path_in_volume": "/d/a", "volume": world.vol(), "xattrs": [], "snapshots": [],
    });
    assert!(expected.as_object().unwrap().iter().all(|(key, value)| file[key] == *value), "{file}");
    assert!((3000_u64.div_ceil(512)..=8).contains(&number(&file["blocks"])), "{file}");
    let stat = world.json(&["stat", &a]).remove(0);
    assert!(stat.as_object().unwrap().iter().all(|(key, value)| file[key] == *value), "{stat}");
    // `find` has the numbers from the rows of its index.
    let by_index = world.ok(&["find", &a, "-printf", "%i"]);
    assert_eq!(json!(by_index.trim().parse::<u64>().unwrap()), file["inode"]);
    assert_eq!(file["subvolume"], 1);
    assert!(number(&file["inode"]) > number(&file["ino"]), "{file}");
    let mut held = snapshot.clone();
    held["directory"] = json!(d);
    assert_eq!(file["in_snapshots"], json!([held]));
    let directory = info(&d);
    are_known(&directory, &["entries"]);
    same(&from, &directory);
    assert_eq!((&directory["entries"], &directory["links"]), (&json!(4), &json!(3)));
    assert_eq!(directory["snapshots"], json!([snapshot]));
    let link = info(&world.at("/d/link"));
    are_known(&link, &["target"]);
    assert_eq!((&link["target"], &link["size"]), (&json!("a"), &json!(1)));
    world.ok(&["clone", &d, &world.at("/c")]);
    let copy = info(&world.at("/c"));
    are_known(&copy, &["copy_of", "entries"]);
    assert_eq!(copy["copy_of"], d);

    assert!(world.json(&["search", "list", world.vol()]).is_empty());
    world.ok(&["search", "declare", world.vol(), "user.b", "user.a"]);
    let declared = world.json(&["search", "list", world.vol()]);
    assert_eq!(json!(declared), json!([{ "name": "user.a" }, { "name": "user.b" }]));
    removed_files_are_listed(&world, &d, &a, &file);
}

/// What a directory's trash lists of a file, after its removal.
fn removed_files_are_listed(world: &World, d: &str, a: &str, file: &Value) {
    world.ok(&["trash", "on", d]);
    let before = jiff::Timestamp::now();
    world.ok(&["rmr", a]);
    let mut removed = world.json(&["trash", "list", d]);
    assert_eq!(removed.len(), 1, "{removed:?}");
    let time: jiff::Timestamp = removed[0]["removed"].as_str().unwrap().parse().unwrap();
    assert!(time >= before && time <= jiff::Timestamp::now(), "{removed:?}");
    removed[0]["removed"].take();
    let expected = json!({
        "removed": null, "directory": false, "size": 3000, "uid": file["uid"],
        "gid": file["gid"], "mode": file["mode"], "path": a,
    });
    assert_eq!(removed[0], expected);
}

/// What a command prints, with times in UTC.
fn lines(arguments: &[&str]) -> Vec<String> {
    let output = World::command(arguments).env("TZ", "UTC").output().unwrap();
    let answer = answer(&output);
    assert_eq!((answer.code, &answer.err[..]), (0, ""), "{arguments:?}");
    answer.out.lines().map(str::to_owned).collect()
}

/// A time of an object as a line has it.
fn time(value: &Value) -> String {
    let time: jiff::Timestamp = value.as_str().unwrap().parse().unwrap();
    time.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

/// Each line, from the object of the same path: `info_and_lists_are_true_key_by_key` checks that.
#[test]
fn lines_of_info_and_trash_are_those_of_the_objects() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let from = format!("{}/d", source(&world));
    let d = world.at("/d");
    std::os::unix::fs::symlink("a", format!("{from}/link")).unwrap();
    let mut mknod = Command::new("mknod");
    assert!(mknod.args([&format!("{from}/null"), "c", "1", "3"]).status().unwrap().success());
    for (name, mode) in [("a", 0o640), ("null", 0o600), ("", 0o750)] {
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(format!("{from}/{name}"), mode).unwrap();
    }
    world.ok(&["import", "-q", &from, &d]);
    world.ok(&["snapshot", "create", &d, "monday"]);
    world.ok(&["clone", &d, &world.at("/c")]);
    let snapshot = world.json(&["snapshot", "list", &d]).remove(0);
    let taken = time(&snapshot["created"]);
    let held = format!("in        {taken}  monday of {d}");
    let own = format!("snapshot  {taken}  monday");
    let copied = format!("copy of   {d}");
    for (inner, kind, letters, rest) in [
        ("/d/a", "file", "0640 -rw-r-----", vec!["size      3000", &held]),
        ("/d/null", "char-device", "0600 crw-------", vec!["size      1, 3", &held]),
        ("/d/link", "symlink", "0777 lrwxrwxrwx", vec!["size      1", "target    a", &held]),
        ("/d", "directory", "0750 drwxr-x---", vec!["entries   5", &own]),
        ("/c/a", "file", "0640 -rw-r-----", vec!["size      3000", &copied]),
    ] {
        let path = world.at(inner);
        let object = world.json(&["info", &path]).remove(0);
        let mut expected = vec![
            format!("path      {path}"),
            format!("in volume {inner} of {}", world.vol()),
            format!("kind      {kind}"),
            format!(
                "inode     {} (subvolume {}, number {})",
                object["inode"], object["subvolume"], object["ino"]
            ),
            format!("mode      {letters}"),
            "owner     root:root".to_owned(),
            format!("changed   {}", time(&object["mtime"])),
        ];
        expected.extend(rest.into_iter().map(str::to_owned));
        assert_eq!(lines(&["info", &path]), expected);
    }
    world.ok(&["trash", "on", &d, "--keep", "2h"]);
    assert_eq!(lines(&["trash", "list", &d]), ["nothing is in the trash, which keeps for 2 hours"]);
    for name in ["a", "sub"] {
        world.ok(&["rmr", &world.at(&format!("/d/{name}"))]);
    }
    let removed = world.json(&["trash", "list", &d]);
    let of = |name: &str| {
        let path = json!(world.at(&format!("/d/{name}")));
        time(&removed.iter().find(|one| one["path"] == path).unwrap()["removed"])
    };
    let expected =
        [format!("{}    2.93 KiB  {d}/a", of("a")), format!("{}           -  {d}/sub/", of("sub"))];
    for verb in [["trash", "list", &d], ["restore", "--list", &d]] {
        // By path, unless an hour began between the two removals.
        let mut printed = lines(&verb);
        printed.sort_by_key(|line| line.split_whitespace().last().map(str::to_owned));
        assert_eq!(printed, expected);
    }
}

/// What `trash on`, `off` and `empty` print, and a restore that leaves something.
#[test]
fn sentences_of_the_trash_are_true() {
    let world = World::new();
    let from = format!("{}/d", source(&world));
    for name in ["x", "y"] {
        fs::write(format!("{from}/sub/{name}"), name).unwrap();
    }
    let (d, sub) = (world.at("/d"), world.at("/d/sub"));
    world.ok(&["import", "-q", &from, &d]);
    let kept = |time: &str| format!("what is removed in {d} is kept for {time}");
    for (keep, time) in [("2h", "2 hours"), ("1d", "1 day"), ("90s", "90 seconds")] {
        assert_eq!(lines(&["trash", "on", &d, "--keep", keep]), [kept(time)]);
        let shown = world.json(&["trash", "on", &d]).remove(0);
        assert_eq!(lines(&["trash", "on", &d]), [kept(time)], "it stays: {shown}");
    }
    assert_eq!(lines(&["trash", "empty", &d]), ["deleted the trash of 0 hours"]);
    world.ok(&["trash", "on", &d, "--keep", "2h"]);
    world.ok(&["rmr", &sub]);
    // One of its three names is taken meanwhile.
    for name in ["x", "y"] {
        fs::remove_file(format!("{from}/sub/{name}")).unwrap();
    }
    world.ok(&["import", "-q", &format!("{from}/sub"), &sub]);
    let restored = world.run(&["restore", &sub]);
    assert_eq!(restored.code, 6, "{}", restored.err);
    assert_eq!(restored.out, format!("restored 2 names of {sub}\n"));
    let why = "1 name stays in the trash, because its path is taken";
    assert!(restored.err.contains(why), "{}", restored.err);
    for name in ["b", "x", "y"] {
        world.ok(&["cat", &format!("{sub}/{name}")]);
    }
    let removed = world.json(&["trash", "list", &d]);
    assert!(removed.iter().any(|one| one["path"] == format!("{sub}/b")), "{removed:?}");
    // Its hours, of which there is one unless another began meanwhile.
    let hour = |one: &Value| one["removed"].as_str().unwrap()[..13].to_owned();
    let hours: std::collections::BTreeSet<_> = removed.iter().map(hour).collect();
    let emptied = match hours.len() {
        1 => "deleted the trash of 1 hour".to_owned(),
        hours => format!("deleted the trash of {hours} hours"),
    };
    assert_eq!(lines(&["trash", "empty", &d]), [emptied]);
    assert_eq!(lines(&["trash", "off", &d]), [format!("{d} has no trash")]);
    world.fails(2, &["trash", "list", &d]);
    world.ok(&["rmr", &sub]);
    world.fails(2, &["restore", &sub]);
}
