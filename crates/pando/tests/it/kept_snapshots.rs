//! Snapshots of the whole volume: of directories that are gone they are listed, brought back and
//! deleted by their numbers, on a volume that is mounted and on one that is not, by who owns them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};

use serde_json::Value;

use crate::other_users::Nobody;
use crate::world::{NOBODY, World, is_root};

/// Name, directory (`null` where none is told), and whether that is gone, of all that are listed.
fn rows(listed: &str) -> Vec<(String, Value, bool, u64)> {
    let mut rows: Vec<_> = listed
        .lines()
        .map(|line| {
            let row: Value = serde_json::from_str(line).unwrap();
            let name = row["name"].as_str().unwrap().to_owned();
            let number = row["subvolume"].as_u64().unwrap();
            assert!(row["created"].is_string() && row["lineage"].is_u64(), "{row}");
            (name, row["directory"].clone(), row["gone"].as_bool().unwrap(), number)
        })
        .collect();
    rows.sort_by(|one, other| one.0.cmp(&other.0));
    rows
}

fn number(rows: &[(String, Value, bool, u64)], name: &str) -> String {
    rows.iter().find(|row| row.0 == name).expect("it is listed").3.to_string()
}

/// `at` makes a path argument of a path in the volume.
fn check(world: &World, volume: &str, at: &dyn Fn(&str) -> String) {
    let source = world.path().join("source");
    fs::create_dir_all(source.join("dir/sub")).unwrap();
    fs::write(source.join("dir/sub/file"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &at("/v")]);
    world.ok(&["snapshot", "create", &at("/v"), "all"]);
    world.ok(&["snapshot", "create", &at("/v/dir"), "monday"]);
    world.ok(&["snapshot", "create", &at("/v/dir/sub"), "tuesday"]);
    let list = || rows(&world.ok(&["snapshot", "list", "--all", volume, "--json"]));
    let said = |rows: &[(String, Value, bool, u64)]| -> Vec<(String, Value, bool)> {
        rows.iter().map(|row| (row.0.clone(), row.1.clone(), row.2)).collect()
    };
    let row = |name: &str, directory: Option<&str>, gone| {
        (name.to_owned(), directory.map_or(Value::Null, Value::from), gone)
    };
    let there = [
        row("all", Some("/v"), false),
        row("monday", Some("/v/dir"), false),
        row("tuesday", Some("/v/dir/sub"), false),
    ];
    assert_eq!(said(&list()), there);
    let (monday, tuesday) = (number(&list(), "monday"), number(&list(), "tuesday"));
    let refused = world.fails(2, &["snapshot", "delete", volume, "--number", &monday]);
    assert!(refused.contains("by its name"), "{refused}");
    world.ok(&["rmr", &at("/v/dir")]);
    let gone =
        [row("all", Some("/v"), false), row("monday", None, true), row("tuesday", None, true)];
    assert_eq!(said(&list()), gone);
    let shown = world.ok(&["snapshot", "list", "--all", volume]);
    assert!(shown.contains(&format!("#{monday}  monday  (gone)")), "{shown}");
    // What was below comes back in a place of its own, and is no directory of the snapshot's.
    world.ok(&["clone", "--snapshot", &monday, volume, &at("/v/back")]);
    assert_eq!(world.ok(&["cat", &at("/v/back/sub/file")]), "text");
    world.ok(&["clone", "--snapshot", &tuesday, volume, &at("/v/sub")]);
    assert_eq!(world.ok(&["cat", &at("/v/sub/file")]), "text");
    assert_eq!(said(&list()), gone);
    world.fails(6, &["clone", "--snapshot", &monday, volume, &at("/v/back")]);
    world.ok(&["snapshot", "delete", volume, "--number", &monday]);
    assert_eq!(said(&list()), [gone[0].clone(), gone[2].clone()]);
    let unknown = world.fails(3, &["clone", "--snapshot", &monday, volume, &at("/v/again")]);
    assert!(unknown.contains("snapshot list --all"), "{unknown}");
    world.fails(3, &["snapshot", "delete", volume, "--number", &monday]);
    assert_eq!(world.ok(&["cat", &at("/v/back/sub/file")]), "text");
    // A roll-back of what is above brings the directory back, and its snapshot has one again.
    world.ok(&["rollback", &at("/v"), "all"]);
    assert_eq!(said(&list()), [there[0].clone(), there[2].clone()]);
    assert_eq!(world.run(&["snapshot", "delete", volume]).code, 2);
    assert_eq!(world.run(&["clone", "--snapshot", "x", volume, &at("/v/again")]).code, 2);
}

#[test]
fn snapshots_whose_directory_is_gone_are_listed_brought_back_and_deleted() {
    let world = World::new();
    check(&world, world.vol(), &|inner| world.at(inner));
    world.ok(&["fsck", world.vol()]);
}

#[test]
fn they_are_on_a_mount_too() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    check(&world, world.mnt(), &|inner| world.below_mount(inner).to_str().unwrap().to_owned());
    world.umount();
    world.ok(&["fsck", world.vol()]);
}

#[test]
fn who_sees_and_brings_back_a_snapshot_is_who_owns_what_it_holds() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.path().join("source");
    fs::create_dir_all(source.join("shut/own")).unwrap();
    fs::create_dir_all(source.join("own/sub")).unwrap();
    fs::write(source.join("own/sub/file"), "text").unwrap();
    for own in ["own", "own/sub", "own/sub/file", "shut/own"] {
        chown(source.join(own), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/v")]);
    for (directory, name) in [("/v", "a"), ("/v/own/sub", "b"), ("/v/shut/own", "c")] {
        world.ok(&["snapshot", "create", &world.at(directory), name]);
    }
    fs::set_permissions(source.join("shut"), PermissionsExt::from_mode(0o700)).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/v")]);
    let all = rows(&world.ok(&["snapshot", "list", "--all", world.vol(), "--json"]));
    assert_eq!(all.iter().map(|row| &row.0[..]).collect::<Vec<_>>(), ["a", "b", "c"]);
    let list = || {
        let answer = nobody.run(&["snapshot", "list", "--all", world.vol(), "--json"]);
        assert_eq!(answer.code, 0, "{}", answer.err);
        rows(&answer.out)
    };
    let own = list();
    assert_eq!(own.len(), 2, "{own:?}");
    assert_eq!((&own[0].1, &own[1].1), (&"/v/own/sub".into(), &Value::Null));
    assert!(!own[1].2, "he may not come to it, which does not say that it is gone");
    let run = |words: &[&str], code: i32| {
        let answer = nobody.run(words);
        assert_eq!(answer.code, code, "{words:?}: {} {}", answer.out, answer.err);
    };
    let (a, b, c) = (number(&all, "a"), number(&all, "b"), number(&all, "c"));
    let back = world.at("/v/own/back");
    for other in [&a, &c] {
        run(&["clone", "--snapshot", other, world.vol(), &back], 4);
    }
    world.ok(&["rmr", &world.at("/v/own/sub")]);
    assert_eq!((&list()[0].1, list()[0].2), (&Value::Null, true));
    run(&["clone", "--snapshot", &b, world.vol(), &world.at("/v/back")], 4);
    run(&["clone", "--snapshot", &b, world.vol(), &back], 0);
    assert_eq!(world.ok(&["cat", &world.at("/v/own/back/file")]), "text");
    world.ok(&["rmr", &world.at("/v")]);
    for other in [&a, "1", "0", "18446744073709551615"] {
        let code = if *other == *a { 4 } else { 3 };
        run(&["snapshot", "delete", world.vol(), "--number", other], code);
    }
    for own in [&b, &c] {
        run(&["snapshot", "delete", world.vol(), "--number", own], 0);
    }
    assert_eq!(list().len(), 0);
    assert_eq!(rows(&world.ok(&["snapshot", "list", "--all", world.vol(), "--json"])).len(), 1);
}
