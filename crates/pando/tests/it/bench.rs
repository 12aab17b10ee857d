//! `pando bench` on a mounted volume: what it reports, and that it leaves nothing.

use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::world::{PANDO, World, signal, wait_until};

on_one_engine!("btree": a_mounted_volume_is_measured_and_left_as_it_was);

fn a_mounted_volume_is_measured_and_left_as_it_was(engine: &str) {
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    std::fs::write(world.below_mount("/mine"), "mine").unwrap();
    let lines = world.json(&["bench", world.mnt(), "--files", "2500"]);
    let measures: Vec<_> = lines
        .iter()
        .map(|line| (line["measure"].as_str().unwrap(), line["operations"].as_u64().unwrap()))
        .collect();
    assert_eq!(
        measures,
        [
            ("create", 2500),
            ("stat", 2500),
            ("list", 2500),
            ("search", 100),
            ("snapshot", 10),
            ("delete", 2500)
        ]
    );
    for line in &lines {
        let number = |field: &str| line[field].as_f64().unwrap();
        let latencies = ["p50_us", "p99_us", "max_us"].map(number);
        assert!(latencies[0] > 0.0 && latencies.is_sorted(), "{line}");
        // An operation takes its latency at most, on the average; of a listing that is 1,000 files.
        let each = 1e6 / number("per_second");
        assert!(each > 0.0 && each <= latencies[2], "{line}");
    }
    assert_eq!(world.names("/"), ["mine"]);
    let kept = world.json(&["snapshot", "list", world.vol(), "--all"]);
    assert_eq!(kept, [] as [serde_json::Value; 0]);
    world.umount();
}

#[test]
fn after_an_interrupt_nothing_is_left() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let mut command = World::command(&["bench", world.mnt(), "--files", "1000000"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("files are created", || world.names("/").iter().any(|name| name.starts_with('.')));
    signal(i32::try_from(child.id()).unwrap(), Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    assert_eq!(world.names("/"), [] as [&str; 0]);
    world.umount();
}

#[test]
fn a_trash_and_what_is_not_mounted_are_refused() {
    let world = World::new();
    let message = world.fails(2, &["bench", &world.at("/")]);
    assert!(message.contains("pando mount"), "{message}");
    if !world.mount() {
        return;
    }
    world.ok(&["trash", "on", world.mnt()]);
    let message = world.fails(2, &["bench", world.mnt()]);
    assert!(message.contains("a trash keeps"), "{message}");
    assert_eq!(world.names("/"), [".trash"]);
    world.umount();
}

/// The scripts of `bench/` and the pages of figures name verbs and options that exist.
#[test]
fn commands_of_benchmarks_are_understood() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bench/check.py");
    let Ok(done) = Command::new("python3").args([script, PANDO]).output() else {
        println!("NOT TESTED: commands of benchmarks, for python3 is not installed");
        return;
    };
    let printed = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{printed}{}", String::from_utf8_lossy(&done.stderr));
}
