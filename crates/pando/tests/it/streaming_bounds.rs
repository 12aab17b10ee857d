//! The cost of a search that finds very much, and of one that finds nothing. The memory of the
//! daemon and of the command is bounded, however much is found and however slowly it is read.
//! Ctrl-C ends a search without results.

use std::fs;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};
use rustix::process::Signal;

use crate::streaming::is_serving;
use crate::world::{World, signal, wait_until};

/// Files per directory, and the number of copies of the directory.
const FILES: usize = 5000;
const COPIES: usize = 24;
/// So long that the paths of all files exceed any permitted buffer.
const NAME_BYTES: usize = 200;
/// Memory growth that neither side may exceed, in KiB: half of the paths.
const MORE_KIB: u64 = 12 << 10;

/// A number of `/proc/PID/status`, in KiB.
fn memory(pid: i32, what: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(what)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Resets the peak memory to the current memory.
fn forget_peak(pid: i32) {
    fs::write(format!("/proc/{pid}/clear_refs"), "5").unwrap();
}

/// Clock ticks of processor time of a process.
fn ticks(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

/// Waits until processes are idle.
fn settle(pids: &[i32]) {
    let clock = SystemClock::new();
    let all = || pids.iter().map(|pid| ticks(*pid)).sum::<u64>();
    wait_until("they rest", || {
        let before = all();
        clock.sleep(Duration::from_millis(300));
        all() <= before + 1
    });
}

fn pid(child: &Child) -> i32 {
    i32::try_from(child.id()).unwrap()
}

/// A directory of many files, with clones of it.
fn volume() -> World {
    let world = World::new();
    let source = world.source();
    for number in 0..FILES {
        fs::write(source.join(format!("{number:x<NAME_BYTES$}")), []).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/c0")]);
    world.ok(&["search", "flush", &world.at("/")]);
    for number in 1..COPIES {
        world.ok(&["clone", &world.at("/c0"), &world.at(&format!("/c{number}"))]);
    }
    world
}

fn find(world: &World, words: &[&str]) -> Child {
    let mut command = World::command(&["find", &world.at("/")]);
    command.args(words).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn memory_is_bounded_however_much_is_found_and_a_search_for_nothing_ends_with_ctrl_c() {
    let world = volume();
    let all = (FILES + 1) * COPIES + 1;
    assert_eq!(world.ok(&["find", &world.at("/"), "-count"]), format!("{all}\n"));
    let daemon = world.daemon().unwrap();
    slow_reader(&world, daemon, all);
    interrupted(&world, daemon);
}

fn slow_reader(world: &World, daemon: i32, all: usize) {
    // After this search, the cached part of the index is in memory.
    let mut first = find(world, &["-fprint0", "/dev/null"]);
    assert!(first.wait().unwrap().success());
    settle(&[daemon]);
    forget_peak(daemon);
    let daemon_before = memory(daemon, "VmRSS:");
    let mut slow = find(world, &["-print0"]);
    let command = pid(&slow);
    let mut output = slow.stdout.take().unwrap();
    let mut part = vec![0; 2 << 20];
    output.read_exact(&mut part[..1]).unwrap();
    settle(&[daemon, command]);
    let command_before = memory(command, "VmRSS:");
    let mut found = 0;
    for round in 0..4 {
        output.read_exact(&mut part).unwrap();
        found += part.split(|byte| *byte == 0).count() - 1;
        // A process that is not blocked runs until it has everything.
        settle(&[daemon, command]);
        assert!(slow.try_wait().unwrap().is_none(), "round {round}: the command waits");
    }
    let command_after = memory(command, "VmHWM:");
    let mut rest = Vec::new();
    output.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 16 << 20, "{} bytes are left", rest.len());
    found += rest.split(|byte| *byte == 0).count() - 1;
    assert_eq!(found, all);
    assert!(slow.wait().unwrap().success());
    let daemon_more = memory(daemon, "VmHWM:").saturating_sub(daemon_before);
    let command_more = command_after.saturating_sub(command_before);
    assert!(daemon_more < MORE_KIB, "the daemon took {daemon_more} KiB more");
    assert!(command_more < MORE_KIB, "the command took {command_more} KiB more");
}

/// A search that tests every row for a long time and finds none.
fn interrupted(world: &World, daemon: i32) {
    let mut words = Vec::new();
    for number in 0..2000 {
        // Each is compared with the whole path of every row, matches it, and selects nothing.
        words.extend(["-o", "!", "-path"].map(str::to_owned));
        words.push(format!("*[!{number}]*[a-z/:]*"));
    }
    let words: Vec<&str> = words[1..].iter().map(String::as_str).collect();
    let mut search = find(world, &words);
    wait_until("the daemon searches", || is_serving(world));
    let before = ticks(daemon);
    wait_until("the daemon works", || ticks(daemon) > before + 20);
    assert!(search.try_wait().unwrap().is_none(), "it takes long");
    signal(pid(&search), Signal::INT);
    let status = search.wait().unwrap();
    // A shell reports either as 130.
    assert!(status.code() == Some(130) || status.signal() == Some(2), "{status}");
    wait_until("the search ends with Ctrl-C", || !is_serving(world));
    settle(&[daemon]);
    let mut printed = String::new();
    search.stdout.take().unwrap().read_to_string(&mut printed).unwrap();
    assert_eq!(printed, "");
    // The same daemon continues to answer.
    let top = world.ok(&["find", &world.at("/"), "-maxdepth", "1", "-count"]);
    assert_eq!(top, format!("{}\n", COPIES + 1));
    assert_eq!(world.daemon(), Some(daemon));
}
