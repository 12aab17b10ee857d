//! Replays and conversions of traces that end early: by a signal, or on a full disk. A new trace is
//! whole or not there, and a replay leaves what was made, and reports what it could not make.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::full_disk::SmallDisk;
use crate::world::{World, signal, wait_until};

/// A trace of a generated mix, of 9 bytes for each operation, with a world for it.
fn generated(operations: &str) -> (World, String) {
    let world = World::without_volume();
    let trace = world.path().join("made.trace").to_str().unwrap().to_owned();
    world.ok(&["trace", "generate", "--mix", "hp", "--operations", operations, &trace]);
    (world, trace)
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_trace_that_does_not_fit_is_not_there() {
    let (world, trace) = generated("20000");
    let Some(disk) = SmallDisk::of(1) else { return };
    let lines = world.path().join("lines.jsonl").to_str().unwrap().to_owned();
    world.ok(&["trace", "convert", &trace, &lines]);
    fs::write(disk.path().join("ballast"), vec![1; 940 << 10]).unwrap();
    let to = disk.path().join("new");
    let to = to.to_str().unwrap();
    for words in [
        &["convert", &trace, to][..],
        &["convert", &lines, to],
        &["anonymise", &trace, to],
        &["generate", "--mix", "hp", "--operations", "20000", to],
    ] {
        let printed = world.fails(7, &[&["trace"], words].concat());
        // The output is named, and not the trace that was read.
        assert!(printed.contains(to) && printed.contains("space"), "{words:?}: {printed}");
        assert!(!printed.contains("made.trace"), "{words:?}: {printed}");
        assert_eq!(names(disk.path()), ["ballast"], "{words:?}");
        // The same to standard output.
        let full = fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = World::command(&["trace"]);
        command.args(&words[..words.len() - 1]).arg("-").stdout(full);
        let failed = crate::world::answer(&command.output().unwrap());
        assert_eq!(failed.code, 7, "{words:?}: {}", failed.err);
        assert!(failed.err.contains("standard output"), "{words:?}: {}", failed.err);
    }
    fs::remove_file(disk.path().join("ballast")).unwrap();
    world.ok(&["trace", "anonymise", &trace, to]);
    assert_eq!(world.json(&["trace", "info", to]).remove(0)["end"], "whole");
    // An existing file is not replaced.
    let refused = world.fails(6, &["trace", "anonymise", &trace, to]);
    assert!(refused.contains("exists"), "{refused}");
}

#[test]
fn a_conversion_that_is_killed_leaves_nothing() {
    let (world, trace) = generated("200000");
    let place = world.path().join("place");
    fs::create_dir(&place).unwrap();
    let to = place.join("new");
    let to = to.to_str().unwrap();
    for (words, how) in [
        (&["convert", &trace][..], Signal::KILL),
        (&["anonymise", &trace], Signal::KILL),
        (&["anonymise", &trace], Signal::INT),
        (&["generate", "--mix", "hp", "--operations", "2000000"], Signal::KILL),
    ] {
        let words = [&["trace"], words, &[to]].concat();
        let mut command = World::command(&words);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Its descriptor shows that it has begun.
        let files = format!("/proc/{}/fd", child.id());
        let has_begun = || {
            let mut files = fs::read_dir(&files).into_iter().flatten().flatten();
            files.any(|file| {
                fs::read_link(file.path()).is_ok_and(|to| to.starts_with(&place) && to != place)
            })
        };
        wait_until("it has begun", || has_begun() || child.try_wait().unwrap().is_some());
        signal(child.id() as i32, how);
        let is_whole = child.wait().unwrap().success();
        let found = names(&place);
        assert_eq!(found.len(), usize::from(is_whole), "{words:?}: {found:?}");
        for name in found {
            fs::remove_file(place.join(name)).unwrap();
        }
    }
}

/// A trace with a call after an hour.
fn slow(world: &World) -> String {
    let header = json!({ "trace": 1, "id": "0".repeat(32), "started": 0, "root": 1 });
    let call = |number: u64, at: u64| {
        json!({ "call": "mkdir", "ended": "done", "node": 1, "name": format!("d{number}"), "at": at,
            "found": { "node": number + 2, "kind": "directory", "mode": 0o755, "uid": 0,
                       "gid": 0 } })
    };
    let lines = [header, call(0, 0), call(1, 1), call(2, 3_600_000_000_000)];
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let path = world.path().join("slow.jsonl");
    fs::write(&path, text.join("\n")).unwrap();
    let trace = world.path().join("slow.trace").to_str().unwrap().to_owned();
    world.ok(&["trace", "convert", path.to_str().unwrap(), &trace]);
    trace
}

/// Entries that were made stay, in a volume too, and the rest is replayed nowhere.
#[test]
fn a_replay_that_is_killed_leaves_what_it_made() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let trace = slow(&world);
    let dir = world.below_mount("replayed");
    fs::create_dir(&dir).unwrap();
    let words = ["replay", "--timing", "as-recorded", &trace, dir.to_str().unwrap()];
    let mut command: Command = World::command(&words);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    wait_until("the first calls", || dir.join("d1").exists());
    signal(child.id() as i32, Signal::KILL);
    assert!(!child.wait().unwrap().success());
    let mut left = names(&dir);
    left.sort();
    assert_eq!(left, ["d0", "d1"]);
    // A replay that prepares a tree does not mix it with what is there.
    let refused = world.fails(6, &["replay", "--prepare", &trace, dir.to_str().unwrap()]);
    assert!(refused.contains("not empty"), "{refused}");
    world.umount();
    world.close();
    world.ok(&["fsck", world.vol()]);
}

/// Calls that find no space differ from the trace, and the rest is replayed.
#[test]
fn a_replay_that_fills_the_disk_reports_what_differs() {
    let Some(disk) = SmallDisk::of(2) else { return };
    let world = World::without_volume();
    let header = json!({ "trace": 1, "id": "0".repeat(32), "started": 0, "root": 1 });
    let mut lines = vec![header];
    for number in 0..8 {
        let node = number + 2;
        let found = json!({ "node": node, "kind": "file", "mode": 0o644, "uid": 0, "gid": 0,
            "size": 0 });
        lines.push(json!({ "call": "mknod", "ended": "done", "node": 1, "at": number,
            "name": format!("f{number}"), "mode": 0o644, "found": found }));
        lines.push(json!({ "call": "write", "ended": "done", "node": node, "at": number,
            "length": 512 << 10 }));
    }
    let text: Vec<String> = lines.iter().map(Value::to_string).collect();
    let (path, trace) = (world.path().join("lines.jsonl"), world.path().join("full.trace"));
    fs::write(&path, text.join("\n")).unwrap();
    let trace = trace.to_str().unwrap();
    world.ok(&["trace", "convert", path.to_str().unwrap(), trace]);
    for threads in ["1", "4"] {
        let to = disk.path().join(threads);
        let dir = to.to_str().unwrap();
        let words = ["replay", "--threads", threads, trace, dir];
        fs::create_dir(&to).unwrap();
        let report = world.json(&words).remove(0);
        assert!(report["differences"]["failed"].as_u64() > Some(0), "{threads}: {report}");
        let sizes = names(&to).into_iter().map(|name| fs::metadata(to.join(name)).unwrap().len());
        let sizes: Vec<u64> = sizes.collect();
        let whole = sizes.iter().filter(|size| **size == 512 << 10).count();
        assert!(sizes.len() == 8 && (1..8).contains(&whole), "{threads}: {sizes:?}");
        fs::remove_dir_all(&to).unwrap();
        fs::create_dir(&to).unwrap();
        let refused = world.fails(1, &[&words[..], &["--strict"]].concat());
        assert!(refused.contains("differ from the recorded ones"), "{threads}: {refused}");
        fs::remove_dir_all(&to).unwrap();
    }
}
