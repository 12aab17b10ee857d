//! `pando snapshot schedule`, `prune`, `hold` and `release`, with the daemon that serves them.

use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::world::{World, is_root, wait_until};

fn names(world: &World) -> Vec<String> {
    let listed = world.json(&["snapshot", "list", &world.at("/d")]);
    listed.iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn the_daemon_takes_snapshots_that_are_due_and_those_that_were_missed() {
    if !is_root() {
        return;
    }
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let dir = world.at("/d");
    let (source, file) = (world.path().join("file"), world.at("/d/f"));
    std::fs::write(&source, "as it was").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &file]);
    world.ok(&["snapshot", "create", &dir, "mine"]);
    let refused = world.fails(2, &["snapshot", "schedule", &dir, "* * * *"]);
    assert!(refused.contains("five fields"), "{refused}");
    world.fails(3, &["snapshot", "schedule", &dir]);
    world.ok(&["snapshot", "schedule", &dir, "* * * * *", "--keep", "1h"]);
    let set: Value = world.json(&["snapshot", "schedule", "--all", world.vol()]).remove(0);
    assert_eq!((&set["schedule"], &set["keep"]), (&json!("* * * * *"), &json!("1h")));
    assert_eq!((&set["path"], &set["failed"]), (&json!(dir), &Value::Null));
    // Nobody uses the volume over the full minute.
    world.kill_daemon();
    let clock = SystemClock::new();
    let minute = |time: i64| time.div_euclid(60_000_000_000);
    let begun = minute(clock.now().0);
    while minute(clock.now().0) == begun {
        clock.sleep(Duration::from_millis(500));
    }
    // It lasts up to a minute each time.
    let names_in_a_second = || {
        clock.sleep(Duration::from_secs(1));
        names(&world)
    };
    wait_until("the missed one is taken", || names_in_a_second().len() == 2);
    let first = names(&world).remove(0);
    assert!(first.starts_with("auto-20") && first.ends_with('Z'), "{first}");
    wait_until("the next one replaces it", || {
        let names = names_in_a_second();
        names.len() == 2 && !names.contains(&first)
    });
    world.ok(&["snapshot", "schedule", "--off", &dir]);
    world.fails(3, &["snapshot", "schedule", "--off", &dir]);
    // One file comes back from what the schedule took, by the name with its time.
    let taken = names(&world).into_iter().find(|name| name.starts_with("auto-")).unwrap();
    world.ok(&["rmr", &file]);
    world.ok(&["restore", "--from", &taken, &file]);
    assert_eq!(world.ok(&["cat", &file]), "as it was");
    assert_eq!(world.ok(&["cat", &world.at(&format!("/d@{taken}/f"))]), "as it was");
    assert!(names(&world).contains(&"mine".to_owned()), "only its own are deleted");
    world.ok(&["fsck", world.vol()]);
}

/// A changed time turned pruning off, and the prefix back: what it had taken was never pruned.
#[test]
fn parts_of_a_schedule_that_are_not_named_stay() {
    let world = World::new();
    let dir = world.at("/");
    world.fails(3, &["snapshot", "schedule", &dir, "--keep", "1h"]);
    let set = |arguments: &[&str]| {
        let printed = world.json(&[&["snapshot", "schedule", &dir], arguments].concat()).remove(0);
        let got = world.json(&["snapshot", "schedule", &dir]).remove(0);
        assert_eq!(printed, got, "{arguments:?}: what is printed holds");
        ["schedule", "keep", "prefix"].map(|key| got[key].as_str().unwrap_or_default().to_owned())
    };
    let first = set(&["@yearly"]);
    assert_eq!((&first[0][..], &first[2][..]), ("@yearly", "auto"));
    assert_eq!(set(&["--keep", "7d", "--prefix", "mine"])[1..], ["7d", "mine"]);
    assert_eq!(set(&["@monthly"]), ["@monthly", "7d", "mine"]);
    assert_eq!(set(&["--prefix", "other"]), ["@monthly", "7d", "other"]);
    assert_eq!(set(&["--keep", "all"]), ["@monthly", &first[1], "other"]);
    assert_eq!(world.run(&["snapshot", "schedule", &dir, "--off", "--keep", "7d"]).code, 2);
}

#[test]
fn pruning_deletes_what_is_not_kept_and_nothing_that_is_held() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let dir = world.at("/d");
    let all = [
        "auto-2026-11-01T120000Z",
        "auto-2026-11-02T110000Z",
        "auto-2026-11-02T120000Z",
        "auto-2026-11-03T120000Z",
        "auto-monday",
        "other-2026-11-01T120000Z",
    ];
    for name in all {
        world.ok(&["snapshot", "create", &dir, name]);
    }
    world.ok(&["snapshot", "hold", &dir, all[0], "backup"]);
    assert!(world.ok(&["snapshot", "list", &dir]).contains("(held by backup)"));
    let refused = world.fails(6, &["snapshot", "delete", &dir, all[0]]);
    assert!(refused.contains("held"), "{refused}");
    world.fails(6, &["snapshot", "hold", &dir, all[0], "backup"]);
    world.fails(3, &["snapshot", "release", &dir, all[0], "another"]);
    world.fails(3, &["snapshot", "hold", &dir, "none", "backup"]);
    let refused = world.fails(2, &["snapshot", "prune", &dir]);
    assert!(refused.contains("--keep"), "{refused}");
    assert_eq!(world.run(&["snapshot", "prune", &dir, "--keep", "7"]).code, 2);

    let dry = world.json(&["snapshot", "prune", &dir, "--keep", "1d", "--dry-run"]);
    assert_eq!(dry.len(), 4, "only those of the schedule: {dry:?}");
    assert!(dry.iter().all(|one| one["deleted"] == json!(false)), "{dry:?}");
    assert_eq!(names(&world).len(), all.len());
    let text = world.ok(&["snapshot", "prune", &dir, "--keep", "1d"]);
    assert!(text.contains("deleted 2 snapshots, kept 2"), "{text}");
    assert!(text.contains(&format!("kept {}: held by backup", all[0])), "{text}");
    assert_eq!(names(&world), [all[0], all[3], all[4], all[5]]);

    let number = world.json(&["snapshot", "list", &dir]).remove(0)["subvolume"].to_string();
    world.ok(&["snapshot", "release", "--number", world.vol(), &number, "backup"]);
    world.ok(&["snapshot", "prune", &dir, "--keep", "1d"]);
    assert_eq!(names(&world), &all[3..]);
    // Snapshots that a schedule took are used like others.
    world.ok(&["rollback", &dir, all[3]]);
}
