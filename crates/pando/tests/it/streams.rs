//! `pando send` and `pando receive`, end to end: between engines, through pipes, cut and resumed,
//! and as another user.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::other_users::Nobody;
use crate::world::{Answer, IDLE_SECONDS, PANDO, World, answer, is_root, signal, wait_until};

fn opened(path: &Path, flags: rustix::fs::OFlags) -> std::os::fd::OwnedFd {
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).unwrap()
}

/// Writes the stream of some arguments to a file, and returns what `send` printed.
fn send(world: &World, arguments: &[&str], to: &Path) -> Answer {
    let mut command = Command::new(PANDO);
    command.arg("send").args(arguments).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    fs::write(to, b"").unwrap();
    let file = opened(to, rustix::fs::OFlags::WRONLY);
    let output = command.stdin(Stdio::null()).stdout(file).current_dir(world.path()).output();
    answer(&output.unwrap())
}

/// Receives some bytes.
fn receive(arguments: &[&str], stream: &[u8]) -> Answer {
    let mut command = Command::new(PANDO);
    command.arg("receive").args(arguments).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    // It may be refused before all is read.
    input.write_all(stream).ok();
    drop(input);
    answer(&child.wait_with_output().unwrap())
}

/// What is below a directory, by `find`: all but inode numbers and blocks.
fn listing(directory: &Path) -> String {
    let format = "%P %y %m %U %G %s %T@ %n %l\\n";
    let found = Command::new("find").arg(directory).args(["-printf", format]).output().unwrap();
    let mut lines: Vec<_> =
        String::from_utf8_lossy(&found.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines.join("\n")
}

fn assert_same(one: &Path, two: &Path) {
    assert_eq!(listing(one), listing(two));
    let diff = Command::new("diff").args(["-r", "--no-dereference"]).args([one, two]).output();
    let diff = diff.unwrap();
    assert!(diff.status.success(), "{}", String::from_utf8_lossy(&diff.stdout));
}

/// A mounted volume with a directory of all kinds and a snapshot `one` of it.
fn filled(engine: &str) -> Option<World> {
    let world = World::on(engine);
    if !world.mount() {
        return None;
    }
    let at = |inner: &str| world.below_mount(inner);
    fs::create_dir_all(at("d/a/b")).unwrap();
    fs::write(at("d/a/long"), vec![3; 3 << 20]).unwrap();
    fs::write(at("d/a/b/short"), "short\n").unwrap();
    fs::hard_link(at("d/a/b/short"), at("d/link")).unwrap();
    symlink("a/b", at("d/symbolic")).unwrap();
    fs::set_permissions(at("d/a"), PermissionsExt::from_mode(0o750)).unwrap();
    world.ok(&["snapshot", "create", at("d").to_str().unwrap(), "one"]);
    Some(world)
}

fn a_directory_moves_between_volumes(engine: &str) {
    let Some(world) = filled(engine) else { return };
    let other = World::on(if engine == "btree" { "lsm" } else { "btree" });
    assert!(other.mount());
    let (from, to) = (world.below_mount("d"), other.below_mount("copy"));
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    let (one, two) = (format!("{from}@one"), format!("{from}@two"));
    let stream = world.path().join("stream");
    let sent = send(&world, &[&one], &stream);
    assert_eq!(sent.code, 0, "{}", sent.err);
    assert!(sent.err.starts_with("sent "), "{}", sent.err);
    let whole = fs::read(&stream).unwrap();
    let received = receive(&[to], &whole);
    assert_eq!(received.code, 0, "{}", received.err);
    assert!(received.out.starts_with(&format!("{to} is one: received ")), "{}", received.out);
    assert_same(&world.below_mount("d/.snapshots/one"), Path::new(to));
    // An increment, through a pipe.
    let at = |inner: &str| world.below_mount(inner);
    rustix::fs::rename(at("d/a/b"), at("d/b")).unwrap();
    fs::remove_file(at("d/link")).unwrap();
    fs::write(at("d/new"), "new\n").unwrap();
    world.ok(&["snapshot", "create", from, "two"]);
    let dry = world.json(&["send", "--dry-run", "--from", &one, &two]).remove(0);
    assert!(dry["stream_bytes"].as_u64().unwrap() < 4096, "{dry}");
    let pipe = format!("{PANDO} send --from {one} {two} | {PANDO} receive --json {to}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &pipe]).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    let piped = answer(&shell.output().unwrap());
    assert_eq!(piped.code, 0, "{}", piped.err);
    let reported: serde_json::Value = serde_json::from_str(&piped.out).unwrap();
    assert_eq!(
        (reported["snapshot"].as_str(), reported["base"].as_str()),
        (Some("two"), Some("one"))
    );
    assert_same(&world.below_mount("d/.snapshots/two"), Path::new(to));
    assert_same(&world.below_mount("d/.snapshots/one"), &other.below_mount("copy/.snapshots/one"));
    assert_eq!(other.names("/"), ["copy"]);
    // The bases of the next increment are held on both sides.
    for (world, directory) in [(&world, from), (&other, to)] {
        let refused = world.fails(6, &["snapshot", "delete", directory, "two"]);
        assert!(refused.contains("held"), "{refused}");
    }
    other.ok(&["snapshot", "delete", to, "one"]);
    // The base is gone there.
    send(&world, &["--from", &one, &two], &stream);
    let refused = receive(&["--name", "again", to], &fs::read(&stream).unwrap());
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("already"), "{}", refused.err);
    other.ok(&["fsck", other.vol()]);
}

on_one_engine!("lsm": a_directory_moves_between_volumes);

#[test]
fn a_stream_that_is_cut_or_interrupted_continues() {
    let Some(world) = filled("btree") else { return };
    let other = World::on("btree");
    let (stream, to) = (world.path().join("stream"), other.at("/copy"));
    let one = format!("{}@one", world.below_mount("d").display());
    send(&world, &[&one], &stream);
    let whole = fs::read(&stream).unwrap();
    let none = other.fails(3, &["receive", "--token", &to]);
    assert!(none.contains("no stream"), "{none}");
    let cut = receive(&[&to], &whole[..1 << 20]);
    assert_eq!(cut.code, 130, "{}", cut.err);
    let token = other.ok(&["receive", "--token", &to]).trim().to_owned();
    assert!(cut.err.contains(&token), "{}", cut.err);
    assert!(other.fails(3, &["stat", &to]).contains("no such"));
    // The rest is interrupted once more, by Ctrl-C.
    send(&world, &["--resume", &token, &one], &stream);
    let rest = fs::read(&stream).unwrap();
    assert!(rest.len() < whole.len() - (700 << 10), "{} of {}", rest.len(), whole.len());
    let mut command = Command::new(PANDO);
    command.args(["receive", &to]).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
    command.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(&rest[..600 << 10]).unwrap();
    wait_until("some of it is applied", || {
        let sessions = other.ok(&["session", "list", other.vol()]);
        sessions.contains("receiving a stream")
    });
    signal(child.id() as i32, rustix::process::Signal::INT);
    // It is noticed with the next bytes.
    input.write_all(&rest[600 << 10..1200 << 10]).ok();
    drop(input);
    let interrupted = answer(&child.wait_with_output().unwrap());
    assert_eq!(interrupted.code, 130, "{}", interrupted.err);
    let token = other.ok(&["receive", "--token", &to]).trim().to_owned();
    // The daemon is killed: what it noted is there.
    other.kill_daemon();
    assert_eq!(other.ok(&["receive", "--token", &to]).trim(), token);
    send(&world, &["--resume", &token, &one], &stream);
    let received = receive(&[&to], &fs::read(&stream).unwrap());
    assert_eq!(received.code, 0, "{}", received.err);
    assert!(other.mount());
    assert_same(&world.below_mount("d/.snapshots/one"), &other.below_mount("copy"));
    assert_eq!(other.names("/"), ["copy"]);
}

/// An increment is cut by Ctrl-C and by the end of its daemon, and continues with a token.
#[test]
fn an_increment_that_is_cut_continues() {
    let Some(world) = filled("btree") else { return };
    let other = World::on("btree");
    let (stream, to) = (world.path().join("stream"), other.at("/copy"));
    let d = world.below_mount("d");
    let at = |name: &str| format!("{}@{name}", d.display());
    send(&world, &[&at("one")], &stream);
    assert_eq!(receive(&[&to], &fs::read(&stream).unwrap()).code, 0);
    for number in 0..40 {
        fs::write(d.join(format!("more-{number}")), vec![number; 100_000]).unwrap();
    }
    world.ok(&["snapshot", "create", d.to_str().unwrap(), "three"]);
    let from = ["--from", &at("one"), &at("three")].map(str::to_owned);
    let of = |token: Option<&str>| {
        let mut arguments: Vec<&str> = from.iter().map(String::as_str).collect();
        arguments.extend(token.into_iter().flat_map(|token| ["--resume", token]));
        send(&world, &arguments, &stream);
        fs::read(&stream).unwrap()
    };
    let whole = of(None);
    let cut = receive(&[&to], &whole[..1 << 20]);
    assert_eq!(cut.code, 130, "{}", cut.err);
    let token = other.ok(&["receive", "--token", &to]).trim().to_owned();
    assert!(cut.err.contains(&token), "{}", cut.err);
    // The token is of an increment.
    let refused = world.fails(2, &["send", "--dry-run", "--resume", &token, &at("three")]);
    assert!(refused.contains("name its base after --from"), "{refused}");
    let rest = of(Some(&token));
    assert!(rest.len() < whole.len() - (700 << 10), "{} of {}", rest.len(), whole.len());
    assert_eq!(receive(&[&to], &rest[..1 << 20]).code, 130);
    let token = other.ok(&["receive", "--token", &to]).trim().to_owned();
    other.kill_daemon();
    assert_eq!(other.ok(&["receive", "--token", &to]).trim(), token);
    let received = receive(&[&to], &of(Some(&token)));
    assert_eq!(received.code, 0, "{}", received.err);
    assert!(other.mount());
    assert_same(&world.below_mount("d/.snapshots/three"), &other.below_mount("copy"));
    assert_eq!(other.names("/"), ["copy"]);
    other.ok(&["fsck", other.vol()]);
}

#[test]
fn wrong_use_is_reported() {
    let Some(world) = filled("btree") else { return };
    let d = world.below_mount("d");
    let d = d.to_str().unwrap();
    let refused = world.fails(2, &["send", "--dry-run", d]);
    assert!(refused.contains("only a snapshot is sent"), "{refused}");
    let one = format!("{d}@one");
    world.fails(2, &["send", "--dry-run", "--resume", "abc", &one]);
    let garbage = receive(&[&world.at("/x")], b"#!/bin/sh\nrm -rf /\n");
    assert_eq!(garbage.code, 2, "{}", garbage.err);
    assert!(garbage.err.contains("damaged"), "{}", garbage.err);
    let empty = receive(&[&world.at("/x")], b"");
    assert_eq!(empty.code, 130, "{}", empty.err);
    assert_eq!(world.names("/"), ["d"]);
}

#[test]
fn another_user_sends_snapshots_and_neither_receives_nor_sends_increments() {
    let Some(world) = filled("btree") else { return };
    if !is_root() {
        return;
    }
    let nobody = Nobody::new(&world);
    let d = world.below_mount("d");
    let (open, one) = (world.below_mount("open"), format!("{}@one", d.display()));
    // Below `a` the user reads nothing.
    let refused = nobody.run(&["send", "--dry-run", &one]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("/a"), "{}", refused.err);
    fs::set_permissions(d.join("a"), PermissionsExt::from_mode(0o755)).unwrap();
    world.ok(&["snapshot", "create", d.to_str().unwrap(), "readable"]);
    let readable = format!("{}@readable", d.display());
    let sent = nobody.run(&["send", "--dry-run", &readable]);
    assert_eq!(sent.code, 0, "{}", sent.err);
    // Changes below a directory that is closed would be left out.
    let refused = nobody.run(&["send", "--dry-run", "--from", &one, &readable]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("only root sends increments"), "{}", refused.err);
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    let stream = world.path().join("stream");
    send(&world, &[&readable], &stream);
    fs::set_permissions(&stream, PermissionsExt::from_mode(0o644)).unwrap();
    let (words, program) = nobody.becomes();
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]).arg(program).arg("receive").arg(open.join("copy"));
    command.env("PANDO_IDLE_SECONDS", IDLE_SECONDS).current_dir("/");
    command.stdin(opened(&stream, rustix::fs::OFlags::RDONLY));
    let refused = answer(&command.output().unwrap());
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("only root receives streams"), "{}", refused.err);
    assert_eq!(fs::read_dir(&open).unwrap().count(), 0);
}

#[test]
fn a_dump_is_loaded_and_dumped_again() {
    let Some(world) = filled("btree") else { return };
    let other = World::on("lsm");
    let d = world.below_mount("d");
    let (d, to) = (d.to_str().unwrap(), other.at("/loaded"));
    let text = world.ok(&["dump", d]);
    assert_eq!(world.ok(&["dump", &format!("{d}@one")]), text);
    assert!(!world.ok(&["snapshot", "list", d]).contains(".pando-dump-"));
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(first["pando_dump"], 1);
    let load = |text: &[u8]| {
        let mut command = Command::new(PANDO);
        command.args(["load", &to]).env("PANDO_IDLE_SECONDS", IDLE_SECONDS);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text).unwrap();
        answer(&child.wait_with_output().unwrap())
    };
    let cut = load(&text.as_bytes()[..text.len() / 2]);
    assert_eq!(cut.code, 2, "{}", cut.err);
    assert!(other.fails(3, &["stat", &to]).contains("no such"));
    let loaded = load(text.as_bytes());
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    assert_eq!(other.ok(&["dump", &format!("{to}@loaded")]), text);
    if is_root() {
        let nobody = Nobody::new(&world);
        let refused = nobody.run(&["dump", d]);
        assert_eq!(refused.code, 4, "{}", refused.err);
    }
}
