//! Traces of real mounts: recorded, replayed elsewhere, anonymised, damaged, and hostile ones.

use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use serde_json::{Value, json};

use crate::far::{Served, may_mount};
use crate::world::{PANDO, World, is_root, signal, wait_until};

on_one_engine!("btree": a_replay_makes_the_tree_that_was_recorded);
on_one_engine!("lsm": a_tree_that_was_there_is_prepared);

/// What makes the kernel send every call.
const ALL: &str = "attr-timeout=0,entry-timeout=0,negative-timeout=0,trace_opens";

/// As a program does, which has no device.
fn rename(from: PathBuf, to: PathBuf) -> std::io::Result<()> {
    Ok(rustix::fs::rename(from, to)?)
}

/// Changes of all kinds below a directory.
fn work(top: &Path) {
    let at = |name: &str| top.join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::create_dir(at("dir/inner")).unwrap();
    for number in 0..40 {
        fs::write(at(&format!("dir/file-{number}")), vec![7; number * 331]).unwrap();
    }
    assert_eq!(fs::read_dir(at("dir")).unwrap().count(), 41);
    rename(at("dir/file-1"), at("dir/inner/moved")).unwrap();
    rename(at("dir"), at("renamed")).unwrap();
    fs::write(at("renamed/inner/after"), b"below a directory that was renamed").unwrap();
    fs::hard_link(at("renamed/file-2"), at("link")).unwrap();
    symlink("renamed/inner", at("soft")).unwrap();
    assert_eq!(fs::read_link(at("soft")).unwrap(), PathBuf::from("renamed/inner"));
    rename(at("renamed/file-3"), at("renamed/file-4")).unwrap();
    let mut kept = fs::File::options().read(true).write(true).open(at("renamed/file-5")).unwrap();
    fs::remove_file(at("renamed/file-5")).unwrap();
    kept.write_all(b"without a name").unwrap();
    kept.sync_all().unwrap();
    drop(kept);
    assert_eq!(fs::metadata(at("missing")).unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(fs::create_dir(at("renamed")).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::remove_dir(at("renamed")).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
    let cut = fs::File::options().write(true).open(at("renamed/file-9")).unwrap();
    cut.set_len(11).unwrap();
    fs::set_permissions(at("renamed/file-9"), PermissionsExt::from_mode(0o751)).unwrap();
    let name = at("renamed/file-8");
    rustix::fs::setxattr(&name, "user.a", b"value", rustix::fs::XattrFlags::empty()).unwrap();
    rustix::fs::getxattr(&name, "user.a", &mut [0_u8; 100][..]).unwrap();
    fs::create_dir(at("gone")).unwrap();
    fs::remove_dir(at("gone")).unwrap();
}

/// Everything below a directory: path, kind, mode, size of files, links, target.
fn tree(top: &Path) -> Vec<(PathBuf, u32, u64, u64, PathBuf)> {
    fn below(top: &Path, directory: &Path, found: &mut Vec<(PathBuf, u32, u64, u64, PathBuf)>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let meta = path.symlink_metadata().unwrap();
            let size = if meta.is_file() { meta.len() } else { 0 };
            let links = if meta.is_file() { meta.nlink() } else { 0 };
            let target = fs::read_link(&path).unwrap_or_default();
            let name = path.strip_prefix(top).unwrap().to_owned();
            found.push((name, meta.mode(), size, links, target));
            if meta.is_dir() {
                below(top, &path, found);
            }
        }
    }
    let mut found = Vec::new();
    below(top, top, &mut found);
    found.sort();
    found
}

/// Replays a trace in a new directory; returns that and the report.
fn replay(world: &World, trace: &str, name: &str, options: &[&str]) -> (PathBuf, Value) {
    let dir = world.path().join(name);
    let mut arguments = vec!["replay", "--prepare", trace, dir.to_str().unwrap()];
    arguments.extend(options);
    let mut reports = world.json(&arguments);
    (dir, reports.pop().unwrap())
}

fn a_replay_makes_the_tree_that_was_recorded(engine: &str) {
    let world = World::on(engine);
    let trace = world.path().join("made.trace");
    let trace = trace.to_str().unwrap();
    if !world.mount_with(&["--trace", trace, "-o", ALL]) {
        return;
    }
    work(&world.mount_point);
    let recorded = tree(&world.mount_point);
    world.umount();
    let info = world.json(&["trace", "info", trace]).remove(0);
    assert_eq!(
        (&info["end"], &info["dropped"], &info["opens"]),
        (&json!("whole"), &json!(0), &json!(true))
    );
    assert_recorded(&world, trace, &info, &recorded);
    // A replay in the volume itself, and one at the times of the trace.
    assert!(world.mount());
    let inside = world.below_mount("/again");
    world.ok(&[
        "replay",
        "--prepare",
        "--strict",
        "--timing",
        "as-recorded",
        trace,
        inside.to_str().unwrap(),
    ]);
    assert_eq!(tree(&inside), recorded);
}

/// Asserts that a trace has the calls of [`work`], and that replays of it make the same tree.
fn assert_recorded(
    world: &World,
    trace: &str,
    info: &Value,
    recorded: &Vec<(PathBuf, u32, u64, u64, PathBuf)>,
) {
    let count = |call: &str| info["calls"][call]["count"].as_u64().unwrap_or(0);
    assert_eq!((count("rename"), count("link"), count("symlink")), (3, 1, 1));
    // Refused directories are counted, too: the kernel asks for those names first.
    assert_eq!((count("mkdir"), count("rmdir")), (3, 2));
    assert!(count("open") > 3 && count("release") > 40 && count("write") >= 41);
    assert_eq!(fs::metadata(trace).unwrap().mode() & 0o777, 0o600);
    for threads in ["1", "4"] {
        let name = format!("replayed-{threads}");
        let (dir, report) = replay(world, trace, &name, &["--strict", "--threads", threads]);
        assert_eq!(tree(&dir), *recorded, "{threads} threads");
        assert_eq!(report["unknown"], 0, "{report}");
        assert!(report["calls"].as_u64().unwrap() > 200);
    }
}

/// Every inode of a trace was kept in memory, however many there are.
#[test]
fn the_memory_of_trace_info_is_bounded() {
    let world = World::new();
    let trace = world.path().join("many.trace");
    let trace = trace.to_str().unwrap();
    let operations = ["--operations", "100000", "--files", "90000"];
    let generate = [&["trace", "generate", "--mix", "hp"], &operations[..], &[trace]].concat();
    world.ok(&generate);
    let all = world.json(&["trace", "info", trace]).remove(0);
    let few = world.json(&["trace", "info", "--memory", "1M", trace]).remove(0);
    assert_eq!((&all["inodes_are_more"], &few["inodes_are_more"]), (&json!(false), &json!(true)));
    let counted = few["inodes"].as_u64().unwrap();
    assert!(counted > 10_000 && counted < all["inodes"].as_u64().unwrap(), "{counted}");
    assert_eq!((&all["events"], &all["calls"]), (&few["events"], &few["calls"]));
    let text = world.ok(&["trace", "info", "--memory", "1M", trace]);
    assert!(text.contains("; at least "), "{text}");
}

/// `--trace` was refused for a volume of a server.
#[test]
fn a_remote_mount_is_recorded_as_one_of_this_machine() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    let place = world.path().join("remote");
    fs::create_dir(&place).unwrap();
    let trace = world.path().join("remote.trace");
    let (at, trace) = (place.to_str().unwrap(), trace.to_str().unwrap());
    world.ok(&["mount", "--trace", trace, "--trace-limit", "1G", &served.url, at]);
    let _mounted = crate::far::Mounted(place.clone());
    work(&place);
    let recorded = tree(&place);
    world.ok(&["umount", at]);
    let info = || world.json(&["trace", "info", trace]).remove(0);
    wait_until("the trace is complete", || info()["end"] == "whole");
    let info = info();
    assert_eq!((&info["dropped"], &info["opens"]), (&json!(0), &json!(true)));
    assert_recorded(&world, trace, &info, &recorded);
    // No trace is overwritten, and none is left of a mount that was not made.
    let refused = world.fails(6, &["mount", "--trace", trace, &served.url, at]);
    assert!(refused.contains("it exists"), "{refused}");
    let other = world.path().join("other.trace");
    drop(served);
    let gone =
        world.run(&["mount", "--trace", other.to_str().unwrap(), "pando://127.0.0.1:1/vol", at]);
    assert!(gone.code != 0 && !other.exists(), "{}", gone.err);
}

fn a_tree_that_was_there_is_prepared(engine: &str) {
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    work(&world.mount_point);
    world.umount();
    let trace = world.path().join("second.trace");
    let trace = trace.to_str().unwrap();
    assert!(world.mount_with(&["--trace", trace, "-o", ALL]));
    let before = tree(&world.mount_point);
    let at = |name: &str| world.below_mount(name);
    assert_eq!(fs::read(at("renamed/file-30")).unwrap().len(), 30 * 331);
    rename(at("renamed/inner"), at("inner")).unwrap();
    fs::remove_file(at("link")).unwrap();
    fs::write(at("inner/moved"), b"new contents").unwrap();
    rustix::fs::getxattr(at("renamed/file-8"), "user.a", &mut [0_u8; 100][..]).unwrap();
    let after = tree(&world.mount_point);
    world.umount();
    let prepared = world.path().join("prepared");
    world.ok(&["replay", "--prepare", "--prepare-only", trace, prepared.to_str().unwrap()]);
    // All names were listed, so the whole tree is there.
    assert_eq!(tree(&prepared), before);
    for threads in ["1", "3"] {
        let (dir, _) = replay(&world, trace, threads, &["--strict", "--threads", threads]);
        assert_eq!(tree(&dir), after, "{threads} threads");
    }
}

#[test]
fn no_name_survives_anonymising_and_the_replay_is_the_same() {
    let world = World::new();
    let path = |name: &str| world.path().join(name).to_str().unwrap().to_owned();
    let (trace, anonymous, lines) = (path("a.trace"), path("b.trace"), path("b.jsonl"));
    if !world.mount_with(&["--trace", &trace, "-o", ALL]) {
        return;
    }
    work(&world.mount_point);
    let recorded = tree(&world.mount_point);
    world.umount();
    world.ok(&["trace", "anonymise", &trace, &anonymous, "--keep-lengths"]);
    world.ok(&["trace", "convert", &anonymous, &lines]);
    let text = fs::read_to_string(&lines).unwrap();
    let mut names: Vec<String> = ["dir", "gone", "missing"].map(str::to_owned).to_vec();
    for (path, ..) in &recorded {
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    let survives = |name: &Value| {
        let parts = name.as_str().unwrap_or_default().split('/');
        parts.into_iter().any(|part| names.iter().any(|name| name == part))
    };
    for line in text.lines() {
        let event: Value = serde_json::from_str(line).unwrap();
        assert!(!survives(&event["name"]) && !survives(&event["other_name"]), "{event}");
        let entries = event["entries"].as_array().into_iter().flatten();
        assert!(!entries.into_iter().any(|entry| survives(&entry["name"])), "{event}");
    }
    let bytes = fs::read(&anonymous).unwrap();
    for name in names.iter().filter(|name| name.len() > 4) {
        assert!(!bytes.windows(name.len()).any(|found| found == name.as_bytes()), "{name}");
    }
    assert_eq!(world.json(&["trace", "info", &anonymous]).remove(0)["anonymised"], true);
    let (dir, _) = replay(&world, &anonymous, "anonymous", &["--strict"]);
    let shape = |tree: Vec<(PathBuf, u32, u64, u64, PathBuf)>| {
        let mut shape: Vec<_> = tree
            .into_iter()
            .map(|(path, mode, size, links, target)| {
                let length = path.as_os_str().len();
                (path.components().count(), length, mode, size, links, target.as_os_str().len())
            })
            .collect();
        shape.sort_unstable();
        shape
    };
    assert_eq!(shape(tree(&dir)), shape(recorded));
    // Lines of JSON become the same trace again.
    let again = path("again.trace");
    world.ok(&["trace", "convert", &lines, &again]);
    assert_eq!(fs::read(&again).unwrap(), fs::read(&anonymous).unwrap());
    // A line with something else is named.
    fs::write(&lines, text.replacen("\"lookup\"", "\"look\"", 1)).unwrap();
    let number = text.lines().position(|line| line.contains("\"lookup\"")).unwrap() + 1;
    let message = world.fails(2, &["trace", "convert", &lines, &path("c.trace")]);
    assert!(message.contains(&format!("line {number}: call")), "{message}");
}

/// A trace of these events.
fn made_up(world: &World, name: &str, events: &[Value]) -> String {
    let header = json!({ "trace": 1, "id": "0".repeat(32), "started": 0, "root": 1 });
    let lines = world.path().join(format!("{name}.jsonl"));
    let all: Vec<_> = [header].iter().chain(events).map(Value::to_string).collect();
    fs::write(&lines, all.join("\n")).unwrap();
    let trace = world.path().join(name).to_str().unwrap().to_owned();
    world.ok(&["trace", "convert", lines.to_str().unwrap(), &trace]);
    trace
}

fn event(call: &str, mut rest: Value) -> Value {
    rest["call"] = json!(call);
    if rest.get("ended").is_none() {
        rest["ended"] = json!("done");
    }
    rest
}

fn found(node: u64, kind: &str, size: u64) -> Value {
    json!({ "node": node, "kind": kind, "mode": 0o6755, "uid": 0, "gid": 0, "size": size })
}

/// Events that try to reach a directory outside, and more.
fn hostile(outside: &Path) -> Vec<Value> {
    let target = outside.to_str().unwrap();
    let victim = outside.join("victim").to_str().unwrap().to_owned();
    let up = |name: &str| format!("../outside/{name}");
    let mut events = Vec::new();
    // Links to directories and files, which later events take for directories and files.
    for (node, name, target) in [(10, "dir", target), (11, "file", &*victim), (12, "up", "..")] {
        events.push(event(
            "symlink",
            json!({ "node": 1, "name": name, "other_name": target,
            "found": found(node, "directory", 0) }),
        ));
    }
    for directory in [1, 10, 12] {
        for name in ["..", "/etc/evil", &up("evil"), "victim", "new", ".", ""] {
            let at = json!({ "node": directory, "name": name, "mode": 0o777,
                "other": 1, "other_name": "taken", "found": found(20, "file", 0) });
            for call in ["lookup", "mkdir", "mknod", "rename", "unlink", "rmdir"] {
                events.push(event(call, at.clone()));
            }
        }
    }
    for node in [10, 11, 12] {
        let change = json!({ "node": node, "how": 15, "mode": 0o4777, "length": 0,
            "new_uid": 7, "new_gid": 7, "found": found(node, "file", 0) });
        events.push(event("setattr", change));
        events.push(event("write", json!({ "node": node, "length": 5 })));
        events.push(event("write", json!({ "node": node, "length": 1_u64 << 60 })));
        events.push(event("setxattr", json!({ "node": node, "name": "user.evil", "length": 5 })));
        events.push(event(
            "link",
            json!({ "node": 1, "name": "hard", "other": node,
            "found": found(node, "file", 0) }),
        ));
        events.push(event("readdir", json!({ "node": node, "entries": [] })));
    }
    // Set-id bits and a device.
    events.push(event(
        "mknod",
        json!({ "node": 1, "name": "suid", "mode": 0o6777,
        "found": found(30, "file", 0) }),
    ));
    events.push(event(
        "setattr",
        json!({ "node": 30, "how": 1, "mode": 0o6777,
        "found": found(30, "file", 0) }),
    ));
    events.push(event(
        "mknod",
        json!({ "node": 1, "name": "null", "how": 5, "device": 259,
        "found": found(31, "char-device", 0) }),
    ));
    // A directory below itself.
    for (node, parent, name) in [(40, 41, "a"), (41, 40, "b")] {
        events.push(event(
            "lookup",
            json!({ "node": parent, "name": name,
            "found": found(node, "directory", 0) }),
        ));
    }
    events
}

#[test]
fn a_hostile_trace_reaches_nothing_outside_of_the_directory() {
    let world = World::without_volume();
    let outside = world.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("victim"), b"as it was").unwrap();
    fs::set_permissions(outside.join("victim"), PermissionsExt::from_mode(0o600)).unwrap();
    let before = tree(&outside);
    let events = hostile(&outside);
    let trace = made_up(&world, "hostile", &events);
    for (name, options) in [("plain", &[][..]), ("threads", &["--threads", "4"])] {
        let (dir, report) = replay(&world, &trace, name, options);
        assert!(report["differences"]["failed"].as_u64().unwrap() > 20, "{report}");
        assert_eq!(tree(&outside), before, "{report}");
        assert_eq!(fs::read(outside.join("victim")).unwrap(), b"as it was");
        let suid = fs::symlink_metadata(dir.join("suid")).unwrap();
        assert_eq!(
            (suid.mode() & 0o7777, suid.uid()),
            (0o777, rustix::process::geteuid().as_raw())
        );
        for entry in fs::read_dir(&dir).unwrap() {
            let kind = entry.unwrap().file_type().unwrap();
            assert!(!kind.is_char_device() && !kind.is_block_device());
        }
    }
    assert!(!world.path().join("evil").exists() && !Path::new("/etc/evil").exists());
    if is_root() {
        let (dir, _) = replay(&world, &trace, "privileged", &["--privileged"]);
        let mode = fs::symlink_metadata(dir.join("suid")).unwrap().mode();
        assert_eq!(mode & 0o7777, 0o6777, "on request");
        assert_eq!(tree(&outside), before);
    }
}

#[test]
fn a_trace_that_expects_more_than_the_disk_has_is_refused() {
    let world = World::without_volume();
    let huge = event(
        "lookup",
        json!({ "node": 1, "name": "huge",
        "found": found(2, "file", 1_u64 << 61) }),
    );
    let trace = made_up(&world, "huge", &[huge]);
    let dir = world.path().join("dir");
    let message = world.fails(7, &["replay", "--prepare", &trace, dir.to_str().unwrap()]);
    assert!(message.contains("2.00 EiB"), "{message}");
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    fs::write(dir.join("something"), b"").unwrap();
    let message = world.fails(6, &["replay", "--prepare", &trace, dir.to_str().unwrap()]);
    assert!(message.contains("not empty"), "{message}");
}

#[test]
fn damage_is_reported_with_its_place_and_a_killed_daemon_leaves_a_prefix() {
    let world = World::new();
    let trace = world.path().join("killed.trace");
    let path = trace.to_str().unwrap();
    if !world.mount_with(&["--trace", path]) {
        return;
    }
    fs::create_dir(world.below_mount("first")).unwrap();
    // An event is in the file within a second.
    wait_until("the event is written", || fs::metadata(&trace).unwrap().len() > 64);
    world.kill_daemon();
    let info = world.json(&["trace", "info", path]).remove(0);
    assert_eq!(info["end"], "cut");
    assert!(info["events"].as_u64().unwrap() > 0);
    // A trace is never overwritten.
    let message = world.fails(6, &["mount", "--trace", path, world.vol(), world.mnt()]);
    assert!(message.contains("it exists"), "{message}");
    let mut bytes = fs::read(&trace).unwrap();
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    let bad = world.path().join("bad.trace");
    fs::write(&bad, &bytes).unwrap();
    for arguments in [
        vec!["trace", "info", bad.to_str().unwrap()],
        vec!["replay", bad.to_str().unwrap(), world.mnt()],
    ] {
        let answer = world.run(&arguments);
        assert_eq!(answer.code, 5, "{}", answer.err);
        assert!(answer.err.contains("damaged at byte 64"), "{}", answer.err);
    }
    fs::write(&bad, b"something else").unwrap();
    let message = world.fails(2, &["trace", "info", bad.to_str().unwrap()]);
    assert!(message.contains("not a trace"), "{message}");
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_mount() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let small = world.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&small);
    assert!(mount.status().unwrap().success());
    let trace = small.join("t.trace");
    let path = trace.to_str().unwrap().to_owned();
    if world.mount_with(&["--trace", &path]) {
        // Names that cannot be compressed.
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..3000 {
            let name: String = (0..60).map(|_| random.alphanumeric()).collect();
            fs::write(world.below_mount(&name), b"").unwrap();
        }
        let clock = SystemClock::new();
        clock.sleep(Duration::from_secs(2));
        fs::create_dir(world.below_mount("later")).unwrap();
        world.umount();
        let info = world.json(&["trace", "info", &path]).remove(0);
        let end = info["end"].as_str().unwrap();
        assert!(matches!(end, "disk-full" | "cut"), "{info}");
        assert!(info["events"].as_u64().unwrap() > 100, "{info}");
    }
    drop(Command::new("umount").arg("-l").arg(&small).status());
}

#[test]
fn ctrl_c_ends_a_replay_and_reports_what_was_done() {
    let world = World::without_volume();
    let call = |at: u64| {
        event(
            "mkdir",
            json!({ "node": 1, "name": format!("d{at}"), "at": at,
        "found": found(at + 2, "directory", 0) }),
        )
    };
    let trace = made_up(&world, "slow", &[call(0), call(1), call(3_600_000_000_000)]);
    let dir = world.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let arguments = ["replay", "--json", "--timing", "as-recorded", &trace, dir.to_str().unwrap()];
    let mut command = Command::new(PANDO);
    command.args(arguments).stdin(Stdio::null());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    wait_until("the first calls", || dir.join("d1").exists());
    signal(child.id() as i32, rustix::process::Signal::INT);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(report["calls"].as_u64().unwrap() >= 2, "{report}");
}

#[test]
fn generated_traces_replay_without_a_difference() {
    let world = World::without_volume();
    for (mix, threads) in [("hp", "1"), ("linkedin", "4")] {
        let trace = world.path().join(mix).to_str().unwrap().to_owned();
        world.ok(&["trace", "generate", "--mix", mix, "--operations", "20000", &trace]);
        let info = world.json(&["trace", "info", &trace]).remove(0);
        assert_eq!((&info["events"], &info["generated"]), (&json!(20000), &json!(true)));
        let options = ["--strict", "--threads", threads];
        let (_, report) = replay(&world, &trace, &format!("{mix}-dir"), &options);
        assert_eq!(report["calls"], 20000, "{report}");
    }
}
