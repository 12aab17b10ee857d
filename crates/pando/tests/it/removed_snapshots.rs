//! Regression: a snapshot of a removed directory was counted by `status` and held its space, but
//! no verb could reach it.

use serde_json::Value;

use crate::world::World;

/// A volume whose directory `/inc` has a snapshot and was removed; returns the snapshot's number.
fn removed(world: &World) -> u64 {
    let source = world.path().join("source");
    std::fs::create_dir_all(source.join("below")).unwrap();
    std::fs::write(source.join("below/report.txt"), "kept").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/inc")]);
    world.ok(&["snapshot", "create", &world.at("/inc"), "monday"]);
    let answer = world.run(&["rmr", &world.at("/inc")]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains("its snapshots remain"), "{}", answer.err);
    let listing = format!("`pando snapshot list {} --removed`", world.vol());
    assert!(answer.err.contains(&listing) && answer.err.contains("--number"), "{}", answer.err);
    let listed = world.json(&["snapshot", "list", world.vol(), "--removed"]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["name"], "monday");
    assert_eq!(listed[0]["path"], world.at("/inc"));
    assert_eq!(listed[0]["removed"], true);
    assert_eq!((&listed[0]["files"], &listed[0]["bytes"]), (&1.into(), &4.into()));
    listed[0]["number"].as_u64().unwrap()
}

#[test]
fn a_snapshot_of_a_removed_directory_is_found_restored_and_deleted() {
    let world = World::new();
    let number = removed(&world);
    let at = world.at(&format!("/.snapshots/#{number}"));
    let text = world.ok(&["snapshot", "list", world.vol(), "--removed"]);
    assert!(text.starts_with(&format!("#{number} ")), "{text}");
    let inc = world.at("/inc");
    assert!(text.contains(&format!("monday  of {inc}, removed  (1 file, 4 B)")), "{text}");
    assert_eq!(world.ok(&["cat", &format!("{at}/below/report.txt")]), "kept");
    let found = format!("{at}/below/report.txt\n");
    for from in ["/", "/inc", "/inc/below"] {
        let shown = world.ok(&["find", &world.at(from), "--all-snapshots", "-name", "report.txt"]);
        assert_eq!(shown, found, "from {from}");
    }
    let shown = world.ok(&["find", &world.at("/inc@monday/below"), "-type", "f"]);
    assert!(shown.ends_with("below/report.txt\n"), "{shown}");
    world.fails(3, &["find", &world.at("/other"), "--all-snapshots"]);
    for path in ["/inc", "/inc/below/report.txt"] {
        let reported = world.json(&["history", &world.at(path)]);
        let changes: Vec<&Value> = reported.iter().map(|version| &version["change"]).collect();
        assert_eq!(changes, ["appeared", "vanished"], "{path}");
        assert_eq!(reported[0]["snapshot"]["name"], "monday");
    }
    let printed = world.fails(3, &["snapshot", "delete", &world.at("/inc"), "monday"]);
    assert!(printed.contains("--removed"), "{printed}");

    world.ok(&["clone", &at, &world.at("/inc")]);
    assert_eq!(world.ok(&["cat", &world.at("/inc/below/report.txt")]), "kept");
    // The clone of it is another directory, without that snapshot.
    assert_eq!(world.ok(&["snapshot", "list", &world.at("/inc")]), "");
    let number = number.to_string();
    let both = ["snapshot", "delete", world.vol(), "monday", "--number", &number];
    for arguments in [&both[..3], &both] {
        assert_eq!(world.run(arguments).code, 2, "{arguments:?}");
    }
    let printed = world.fails(3, &["snapshot", "delete", world.vol(), "--number", "1"]);
    assert!(printed.contains("no snapshot has the number 1"), "{printed}");
    world.ok(&["snapshot", "delete", world.vol(), "--number", &number]);
    world.fails(3, &["snapshot", "delete", world.vol(), "--number", &number]);
    assert_eq!(world.ok(&["snapshot", "list", world.vol(), "--all"]), "");
    assert_eq!(world.status()["snapshots"], 0);
    assert_eq!(world.ok(&["cat", &world.at("/inc/below/report.txt")]), "kept");
}

#[test]
fn snapshots_of_removed_directories_work_through_a_mount() {
    let world = World::new();
    let number = removed(&world);
    if !world.mount() {
        return;
    }
    let below = |inner: &str| world.below_mount(inner).to_str().unwrap().to_owned();
    let at = below(&format!(".snapshots/#{number}"));
    let shown = world.ok(&["find", world.mnt(), "--all-snapshots", "-name", "report.txt"]);
    assert_eq!(shown, format!("{at}/below/report.txt\n"));
    let shown = world.ok(&["find", &below("inc@monday"), "-name", "report.txt"]);
    assert!(shown.ends_with("below/report.txt\n"), "{shown}");
    // The kernel, which would let other users in, does not have it.
    assert!(!world.below_mount(&format!(".snapshots/#{number}")).exists());
    world.ok(&["clone", &at, &below("again")]);
    assert_eq!(std::fs::read_to_string(below("again/below/report.txt")).unwrap(), "kept");
    world.ok(&["snapshot", "create", &below("again"), "tuesday"]);
    let all = world.json(&["snapshot", "list", world.mnt(), "--all"]);
    let places: Vec<(&Value, &Value)> = all.iter().map(|one| (&one["name"], &one["at"])).collect();
    let first = Value::from(at);
    let second = Value::from(below("again/.snapshots/tuesday"));
    let (monday, tuesday) = (Value::from("monday"), Value::from("tuesday"));
    assert_eq!(places, [(&monday, &first), (&tuesday, &second)]);
    let number = number.to_string();
    world.ok(&["snapshot", "delete", world.mnt(), "--number", &number]);
    assert_eq!(world.json(&["snapshot", "list", world.mnt(), "--removed"]).len(), 0);
}
