//! Input at the edge of what there may be: the greatest lengths, deep trees, wrong counts, and
//! input that never comes.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::world::{Answer, PANDO, World, answer, engines, signal, wait_until};

/// The length of the longest file.
const LONGEST: u64 = i64::MAX as u64;

#[test]
fn files_of_the_greatest_length_are_imported_together() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        let list = world.path().join("list");
        let line =
            |name: &str| format!("{{\"path\":\"{name}\",\"kind\":\"file\",\"size\":{LONGEST}}}\n");
        fs::write(&list, ["a", "b", "c"].map(line).concat()).unwrap();
        let list = list.to_str().unwrap();
        world.ok(&["import", "--format", "list", list, &world.at("/new")]);
        assert_eq!(world.names("/new"), ["a", "b", "c"]);
        let found = world.json(&["stat", &world.at("/new/c")]).remove(0);
        assert_eq!(found["size"], LONGEST, "{found}");
        world.ok(&["snapshot", "create", &world.at("/new"), "s"]);
        world.ok(&["send", "--dry-run", &world.at("/new@s")]);
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}

/// Hands text to a command.
fn given(world: &World, text: &str, arguments: &[&str]) -> Answer {
    let mut command = Command::new(PANDO);
    command.args(arguments).env("PANDO_HOST_DIRECTORY", world.hosts());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that refuses does not read to the end.
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap_or_default();
    answer(&child.wait_with_output().unwrap())
}

/// A line of a dump.
fn directory(path: &str) -> String {
    let times = "\"atime_ns\":1,\"mtime_ns\":1,\"ctime_ns\":1,\"btime_ns\":1";
    let owner = "\"mode\":\"0755\",\"uid\":0,\"gid\":0";
    format!("{{\"path\":\"{path}\",\"kind\":\"directory\",{owner},{times}}}\n")
}

#[test]
fn a_dump_of_a_deep_tree_is_loaded() {
    let world = World::new();
    let (levels, name) = (400, "n".repeat(50));
    let mut dump = String::from("{\"pando_dump\":1}\n");
    let mut path = String::new();
    for _ in 0..=levels {
        dump.push_str(&directory(&path));
        if !path.is_empty() {
            path.push('/');
        }
        path.push_str(&name);
    }
    writeln!(dump, "{{\"lines\":{}}}", levels + 1).unwrap();
    let loaded = given(&world, &dump, &["load", &world.at("/deep")]);
    assert_eq!(loaded.code, 0, "{}", loaded.err);
    let summed = world.json(&["summary", &world.at("/deep")]).remove(0);
    assert!(summed.to_string().contains("400") || summed.to_string().contains("401"), "{summed}");
}

#[test]
fn a_wrong_number_of_lines_is_named() {
    let world = World::new();
    for lines in ["0", "2", "18446744073709551615"] {
        let dump = format!("{{\"pando_dump\":1}}\n{}{{\"lines\":{lines}}}\n", directory(""));
        let refused = given(&world, &dump, &["load", &world.at("/x")]);
        assert_eq!(refused.code, 2, "{}", refused.err);
        assert!(refused.err.contains("line 3 of the dump"), "{}", refused.err);
        assert!(refused.err.contains(&format!("{lines} lines were dumped")), "{}", refused.err);
    }
}

/// A command that waits for its input, and how long it takes to be there.
fn waiting(world: &World, arguments: &[&str]) -> Child {
    let mut command = Command::new(PANDO);
    command.args(arguments).env("PANDO_HOST_DIRECTORY", world.hosts());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Whether a process has a handler for a signal.
fn handles(child: &Child, signal: Signal) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
    let caught = u64::from_str_radix(caught.trim(), 16).unwrap();
    caught & 1 << (signal.as_raw() - 1) != 0
}

#[test]
fn one_signal_ends_a_command_whose_input_never_comes() {
    let world = World::new();
    let fifo = world.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let fifo = fifo.to_str().unwrap();
    let at = world.at("/x");
    for arguments in [
        &["load", &at][..],
        &["receive", &at],
        &["import", "--format", "tar", "-", &at],
        &["import", "--format", "tar", fifo, &at],
        &["import", "--format", "list", fifo, &at],
    ] {
        let mut child = waiting(&world, arguments);
        let input = child.stdin.take();
        wait_until("the command handles signals", || handles(&child, Signal::TERM));
        signal(child.id() as i32, Signal::TERM);
        wait_until("the command ended", || child.try_wait().unwrap().is_some());
        drop(input);
        let ended = answer(&child.wait_with_output().unwrap());
        assert_eq!(ended.code, 130, "{arguments:?}: {}", ended.err);
    }
    let dir = world.path().join("dir");
    fs::create_dir(&dir).unwrap();
    let refused = world.fails(2, &["replay", fifo, dir.to_str().unwrap()]);
    assert!(refused.contains("a regular file"), "{refused}");
}
