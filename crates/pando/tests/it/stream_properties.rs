//! Quotas, schedules and trash settings of directories travel with `pando send` and
//! `pando receive`, and what is not set is named.

use std::fs;
use std::process::Command;

use serde_json::Value;

use crate::other_users::Nobody;
use crate::world::{Answer, IDLE_SECONDS, PANDO, World, answer};

/// Sends with some arguments, and receives with others, through a pipe.
fn piped(sent: &[&str], received: &[&str]) -> Answer {
    let pipe = format!("{PANDO} send {} | {PANDO} receive {}", sent.join(" "), received.join(" "));
    let mut shell = Command::new("sh");
    shell.args(["-c", &pipe]).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    answer(&shell.output().unwrap())
}

/// The properties that `receive --json` names, as kind, path, and what was done.
fn reported(received: &Answer) -> Vec<(String, String, String)> {
    assert_eq!(received.code, 0, "{}", received.err);
    let object: Value = serde_json::from_str(&received.out).unwrap();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap().to_owned();
    let all = object["properties"].as_array().cloned().unwrap_or_default();
    let mut found: Vec<_> =
        all.iter().map(|one| (text(one, "kind"), text(one, "path"), text(one, "done"))).collect();
    found.sort();
    found
}

fn expected(all: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    all.iter().map(|one| (one.0.to_owned(), one.1.to_owned(), one.2.to_owned())).collect()
}

fn properties_travel(engine: &str) {
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    let other = World::on(if engine == "btree" { "lsm" } else { "btree" });
    assert!(other.mount());
    let at = |inner: &str| world.below_mount(inner);
    fs::create_dir_all(at("d/limited")).unwrap();
    fs::write(at("d/limited/f"), "f").unwrap();
    let path = |inner: &str| at(inner).to_str().unwrap().to_owned();
    let copy = other.below_mount("copy").to_str().unwrap().to_owned();
    world.ok(&["quota", "set", &path("d/limited"), "--bytes", "1G"]);
    world.ok(&["snapshot", "schedule", &path("d"), "@hourly", "--keep", "24h"]);
    world.ok(&["trash", "on", &path("d"), "--keep", "7d"]);
    world.ok(&["snapshot", "create", &path("d"), "one"]);
    let (one, two) = (format!("{}@one", path("d")), format!("{}@two", path("d")));
    let received = piped(&[&one], &["--json", &copy]);
    let all = [("quota", "limited", "set"), ("schedule", "", "set"), ("trash", "", "set")];
    assert_eq!(reported(&received), expected(&all));
    let schedule = |world: &World, dir: &str| {
        world.json(&["snapshot", "schedule", dir]).remove(0)["keep"].clone()
    };
    assert_eq!(schedule(&other, &copy), schedule(&world, &path("d")));
    let quota = other.json(&["quota", "get", &format!("{copy}/limited")]).remove(0);
    assert!(quota.to_string().contains(&(1_u64 << 30).to_string()), "{quota}");
    // One is removed, and one was changed there.
    world.ok(&["snapshot", "schedule", "--off", &path("d")]);
    world.ok(&["quota", "set", &path("d/limited"), "--bytes", "2G"]);
    other.ok(&["quota", "set", &format!("{copy}/limited"), "--bytes", "3G"]);
    world.ok(&["snapshot", "create", &path("d"), "two"]);
    let received = piped(&["--from", &one, &two], &["--json", &copy]);
    let all = [("quota", "limited", "left out"), ("schedule", "", "removed")];
    assert_eq!(reported(&received), expected(&all));
    other.fails(3, &["snapshot", "schedule", &copy]);
    // Left out by either side.
    let plain = format!("{copy}-plain");
    let received = piped(&[&two], &["--json", "--no-properties", &plain]);
    assert_eq!(reported(&received), []);
    let received = piped(&["--no-properties", &two], &["--json", &format!("{plain}-2")]);
    assert_eq!(reported(&received), []);
    other.ok(&["fsck", other.vol()]);
}

on_each_engine!(properties_travel);

/// A user who sends a directory that the user may read sends its properties; the text of `receive`
/// names each one.
#[test]
fn a_user_sends_properties_and_the_text_names_them() {
    let world = World::on("btree");
    if !world.mount() {
        return;
    }
    let nobody = Nobody::new(&world);
    fs::create_dir_all(world.below_mount("d")).unwrap();
    let dir = world.below_mount("d").to_str().unwrap().to_owned();
    world.ok(&["snapshot", "schedule", &dir, "@daily"]);
    world.ok(&["snapshot", "create", &dir, "one"]);
    let dry = nobody.run(&["send", "--dry-run", &format!("{dir}@one")]);
    assert_eq!(dry.code, 0, "{}", dry.err);
    let copy = world.below_mount("copy").to_str().unwrap().to_owned();
    let received = piped(&[&format!("{dir}@one")], &[&copy]);
    assert_eq!(received.code, 0, "{}", received.err);
    assert!(received.out.contains(&format!("{copy}: schedule set")), "{}", received.out);
}
