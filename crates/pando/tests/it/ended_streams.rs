//! Streams, dumps and archives whose disk fills up, or whose command or daemon is killed. Nothing
//! of them is visible, and the same command, or one with its token, completes them.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::full_disk::{SmallDisk, noise};
use crate::world::{Answer, World, answer, signal, wait_until};

on_one_engine!(
    "lsm": an_increment_that_fills_the_disk_changes_nothing_and_continues,
    a_sender_whose_daemon_is_killed_continues,
);
on_one_engine!(
    "btree": a_receiver_that_is_killed_continues,
    a_load_that_fills_the_disk_or_loses_its_daemon_leaves_nothing,
);

/// The output of a command.
fn output_of(words: &[&str]) -> Vec<u8> {
    let done = World::command(words).output().unwrap();
    assert!(done.status.success(), "{words:?}: {}", answer(&done).err);
    done.stdout
}

/// Runs a command with some input, of which it may leave a part unread.
fn with_input(words: &[&str], input: &[u8]) -> Answer {
    let mut command = World::command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    device::scope(|scope| {
        scope.spawn(move || pipe.write_all(input).unwrap_or_default());
        answer(&child.wait_with_output().unwrap())
    })
}

/// A volume with snapshots `one` and `two` of a directory: `two` has so many files of a mebibyte
/// more.
fn with_snapshots(engine: &str, files: usize) -> World {
    let world = World::on(engine);
    let source = world.source();
    let write = |number: usize| {
        fs::write(source.join(format!("f{number}")), noise(number, 1 << 20)).unwrap();
    };
    write(0);
    let (from, at) = (source.to_str().unwrap(), world.at("/d"));
    world.ok(&["import", from, &at]);
    world.ok(&["snapshot", "create", &at, "one"]);
    (1..=files).for_each(write);
    world.ok(&["import", from, &at]);
    world.ok(&["snapshot", "create", &at, "two"]);
    world
}

/// Asserts that a directory of one volume has what a snapshot of another one has.
fn assert_received(other: &World, from: &World, snapshot: &str) {
    let dumped = |world: &World| world.ok(&["dump", &world.at(&format!("/d@{snapshot}"))]);
    assert!(dumped(other) == dumped(from), "{snapshot}");
    assert_eq!(other.names("/"), ["d"]);
    assert_eq!(other.names("/d"), from.names(&format!("/d/.snapshots/{snapshot}")));
    other.close();
    other.ok(&["fsck", other.vol()]);
}

fn an_increment_that_fills_the_disk_changes_nothing_and_continues(engine: &str) {
    let world = with_snapshots(engine, 20);
    let Some(disk) = SmallDisk::of(16) else { return };
    let other = World::below(disk.path());
    other.format(engine);
    let (one, two, to) = (world.at("/d@one"), world.at("/d@two"), other.at("/d"));
    assert_eq!(with_input(&["receive", &to], &output_of(&["send", &one])).code, 0);
    let before = other.ok(&["dump", &to]);
    let stream = output_of(&["send", "--from", &one, &two]);
    let full = with_input(&["receive", &to], &stream);
    assert_eq!(full.code, 7, "{}", full.err);
    assert!(full.err.contains("space"), "{}", full.err);
    assert!(other.ok(&["dump", &to]) == before, "something of it is visible");
    assert_eq!(other.names("/d"), ["f0"]);
    let grown = ["-o", "remount,size=400m"];
    let grown = Command::new("mount").args(grown).arg(disk.path()).status().unwrap();
    assert!(grown.success());
    // From where the receiver noted it, if it did, or all again.
    let token = other.run(&["receive", "--token", &to]);
    let mut words = vec!["send", "--from", &one];
    if token.code == 0 {
        words.extend(["--resume", token.out.trim()]);
    }
    words.push(&two);
    let rest = output_of(&words);
    let mut received = None;
    wait_until("there is space again", || {
        received.insert(with_input(&["receive", &to], &rest)).code == 0
    });
    assert_received(&other, &world, "two");
}

/// A command of which the daemon has taken a part of the input, and which waits for more.
fn half_fed(other: &World, words: &[&str], input: &[u8]) -> Child {
    let mut command = World::command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&input[..input.len() / 2]).unwrap();
    wait_until("it is half done", || {
        other.ok(&["session", "list", other.vol()]).contains("receiving")
    });
    child
}

fn a_receiver_that_is_killed_continues(engine: &str) {
    let world = with_snapshots(engine, 8);
    let other = World::on(engine);
    let (one, two, to) = (world.at("/d@one"), world.at("/d@two"), other.at("/d"));
    assert_eq!(with_input(&["receive", &to], &output_of(&["send", &one])).code, 0);
    let stream = output_of(&["send", "--from", &one, &two]);
    let mut child = half_fed(&other, &["receive", &to], &stream);
    signal(child.id() as i32, Signal::KILL);
    child.wait().unwrap();
    // The daemon notes where to continue when the connection ends.
    wait_until("its token is there", || other.run(&["receive", "--token", &to]).code == 0);
    assert_eq!(other.names("/d"), ["f0"]);
    let token = other.ok(&["receive", "--token", &to]);
    let rest = output_of(&["send", "--from", &one, "--resume", token.trim(), &two]);
    assert!(rest.len() < stream.len(), "{} of {}", rest.len(), stream.len());
    let received = with_input(&["receive", &to], &rest);
    assert_eq!(received.code, 0, "{}", received.err);
    assert_received(&other, &world, "two");
}

/// Reads a part of what a command prints, kills the daemon, and reads the rest.
fn without_daemon(world: &World, words: &[&str], part: usize) -> (Vec<u8>, Answer) {
    let mut command = World::command(words);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut pipe = child.stdout.take().unwrap();
    let mut bytes = vec![0; part];
    pipe.read_exact(&mut bytes).unwrap();
    world.ok(&["sync", world.vol()]);
    world.kill_daemon();
    pipe.read_to_end(&mut bytes).unwrap();
    (bytes, answer(&child.wait_with_output().unwrap()))
}

fn a_sender_whose_daemon_is_killed_continues(engine: &str) {
    let world = with_snapshots(engine, 12);
    let other = World::on(engine);
    let (two, to) = (world.at("/d@two"), other.at("/d"));
    let (part, sent) = without_daemon(&world, &["send", &two], 2 << 20);
    assert!(![0, 101].contains(&sent.code) && sent.err.starts_with("pando: "), "{sent:?}");
    let cut = with_input(&["receive", &to], &part);
    assert_eq!(cut.code, 130, "{}", cut.err);
    other.fails(3, &["stat", &to]);
    let token = other.ok(&["receive", "--token", &to]);
    // The next daemon knows that the snapshot was held.
    let listed = world.json(&["snapshot", "list", &world.at("/d")]);
    let of_two = listed.iter().find(|one| one["name"] == "two").unwrap();
    assert_eq!(of_two["holds"][0]["name"], "sent", "{of_two}");
    let rest = output_of(&["send", "--resume", token.trim(), &two]);
    assert!(rest.len() < (14 << 20) - part.len() / 2, "{} bytes", rest.len());
    let received = with_input(&["receive", &to], &rest);
    assert_eq!(received.code, 0, "{}", received.err);
    assert_received(&other, &world, "two");
}

/// Lines of so many files with names of noise.
fn dump_of(engine: &str, files: usize) -> String {
    let world = World::on(engine);
    let mut list = String::new();
    for file in 0..files {
        let name: String = noise(file, 60).iter().map(|byte| (b'a' + byte % 26) as char).collect();
        writeln!(list, "{{\"path\":\"{name}\",\"kind\":\"f\",\"mtime\":5}}").unwrap();
    }
    let path = world.path().join("list");
    fs::write(&path, list).unwrap();
    world.ok(&["import", "--format", "list", path.to_str().unwrap(), &world.at("/d")]);
    world.ok(&["dump", &world.at("/d")])
}

fn a_load_that_fills_the_disk_or_loses_its_daemon_leaves_nothing(engine: &str) {
    let dump = dump_of(engine, 40_000);
    // The runs of `lsm` are compressed.
    let Some(disk) = SmallDisk::of(if engine == "lsm" { 4 } else { 6 }) else { return };
    let other = World::below(disk.path());
    other.format(engine);
    let to = other.at("/d");
    let full = with_input(&["load", &to], dump.as_bytes());
    assert_eq!(full.code, 7, "{}", full.err);
    assert!(full.err.contains("space"), "{}", full.err);
    other.fails(3, &["stat", &to]);
    let grown = ["-o", "remount,size=400m"];
    let grown = Command::new("mount").args(grown).arg(disk.path()).status().unwrap();
    assert!(grown.success());
    let mut child = half_fed(&other, &["load", &to], dump.as_bytes());
    other.kill_daemon();
    drop(child.stdin.take());
    let ended = answer(&child.wait_with_output().unwrap());
    assert!(![0, 101].contains(&ended.code) && ended.err.starts_with("pando: "), "{ended:?}");
    other.fails(3, &["stat", &to]);
    let loaded = with_input(&["load", &to], dump.as_bytes());
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    assert!(other.ok(&["dump", &other.at("/d@loaded")]) == dump);
    assert_eq!(other.names("/"), ["d"]);
    other.close();
    other.ok(&["fsck", other.vol()]);
}

/// An archive on standard output that its daemon did not end is refused as cut, and one in a file
/// is not there.
#[test]
fn an_archive_whose_daemon_is_killed_is_not_whole() {
    let world = with_snapshots("btree", 24);
    let two = world.at("/d@two");
    let words = ["export", "--format", "tar", &two, "-"];
    let (part, exported) = without_daemon(&world, &words, 2 << 20);
    assert!(![0, 101].contains(&exported.code), "{exported:?}");
    assert!(exported.err.starts_with("pando: "), "{exported:?}");
    let cut = world.path().join("cut.tar");
    fs::write(&cut, part).unwrap();
    let again = world.at("/again");
    world.fails(2, &["import", "--format", "tar", cut.to_str().unwrap(), &again]);
    world.fails(3, &["stat", &again]);
    let path = world.path().join("whole.tar");
    let name = path.to_str().unwrap();
    let words = ["export", "--format", "tar", &two, name];
    let was_killed = (0..50).any(|_| {
        world.ok(&["stat", &two]);
        let mut command = World::command(&words);
        let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut exports = false;
        wait_until("it exports, or has ended", || {
            let sessions = world.ok(&["session", "list", world.vol()]);
            exports = sessions.contains("export");
            exports || path.exists()
        });
        world.kill_daemon();
        let ended = answer(&child.wait_with_output().unwrap());
        let is_whole = fs::remove_file(&path).is_ok();
        assert_eq!(ended.code == 0, is_whole, "{ended:?}");
        !is_whole
    });
    assert!(was_killed, "no export of 50 was under way when its daemon died");
    world.ok(&words);
    world.ok(&["import", "--format", "tar", name, &again]);
    assert_eq!(world.names("/again").len(), 25);
}

#[test]
fn a_dump_to_a_full_disk_fails_and_leaves_no_snapshot() {
    let world = with_snapshots("btree", 1);
    let full = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut dump = World::command(&["dump", &world.at("/d")]);
    let failed = answer(&dump.stdout(full).output().unwrap());
    assert_ne!(failed.code, 0);
    assert!(failed.err.contains("standard output"), "{}", failed.err);
    wait_until("its snapshot is deleted", || world.names("/d/.snapshots").len() == 2);
}

/// Contents that change while a list's import reads them may be a mixture: the file is named, and
/// the same command reads it again.
#[test]
fn contents_of_a_list_that_change_are_named_and_read_again() {
    let world = World::on("btree");
    let source = world.source();
    fs::write(source.join("f"), noise(7, 48 << 20)).unwrap();
    fs::write(source.join("beside"), b"whole").unwrap();
    let list = world.path().join("list");
    let line = |name: &str, size: u64| {
        format!("{{\"path\":\"{name}\",\"kind\":\"f\",\"mtime\":5,\"size\":{size}}}\n")
    };
    fs::write(&list, [line("f", 48 << 20), line("beside", 5)].concat()).unwrap();
    let script = "while :; do printf y | dd of=$0 conv=notrunc 2> /dev/null; done";
    let mut writer = Command::new("sh");
    let path = source.join("f");
    let mut writer = writer.args(["-c", script]).arg(&path).spawn().unwrap();
    let (contents, to) = (source.to_str().unwrap(), world.at("/d"));
    let words = ["import", "--format", "list", "--contents", contents, list.to_str().unwrap(), &to];
    let first = world.run(&words);
    signal(i32::try_from(writer.id()).unwrap(), Signal::KILL);
    writer.wait().unwrap();
    assert_eq!(first.code, 1, "{first:?}");
    assert!(first.err.contains("changed"), "{first:?}");
    let done = world.json(&words).remove(0);
    assert_eq!(done["failed"], 0, "{done}");
    let copy = world.path().join("copy");
    world.ok(&["export", &to, copy.to_str().unwrap()]);
    assert!(fs::read(copy.join("f")).unwrap() == fs::read(&path).unwrap());
    assert_eq!(fs::read(copy.join("beside")).unwrap(), b"whole");
}

/// A comparison changes nothing, and one that ends early is no success.
#[test]
fn a_comparison_that_is_ended_is_no_success() {
    let world = World::on("lsm");
    let mut list = String::new();
    for file in 0..testing::run::rounds(12_000, 40_000) {
        writeln!(list, "{{\"path\":\"a file of a long name {file}\",\"kind\":\"f\"}}").unwrap();
    }
    let path = world.path().join("list");
    fs::write(&path, list).unwrap();
    let at = world.at("/d");
    world.ok(&["subvolume", "create", &at]);
    world.ok(&["snapshot", "create", &at, "one"]);
    let tree = world.at("/d/tree");
    world.ok(&["import", "--format", "list", path.to_str().unwrap(), &tree]);
    let (old, sessions) = (world.at("/d@one"), || world.ok(&["session", "list", world.vol()]));
    let words = ["diff", "--json", &old, &at];
    let whole = output_of(&words);
    for how in [Signal::INT, Signal::KILL] {
        let mut command = World::command(&words);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut first = [0; 1];
        child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        signal(child.id() as i32, how);
        let ended = child.wait_with_output().unwrap();
        let is_whole = ended.stdout.len() + 1 == whole.len();
        assert!(!ended.status.success() || is_whole, "{how:?}: {} bytes", ended.stdout.len());
        wait_until("the daemon has noticed", || !sessions().contains("compar"));
    }
    let (part, ended) = without_daemon(&world, &words, 1);
    let is_named = ended.err.contains("the daemon of the volume");
    assert!(ended.code == 1 && is_named || part == whole, "{ended:?}");
    assert!(output_of(&words) == whole);
    world.close();
    world.ok(&["fsck", world.vol()]);
}
