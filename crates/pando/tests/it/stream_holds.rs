//! What keeps the snapshots of `send` and `dump` while they run, and what is left of it when they
//! are interrupted.

#![expect(clippy::disallowed_methods, reason = "a mount is used as any program uses it")]

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::XattrFlags;
use rustix::process::Signal;
use serde_json::Value;

use crate::world::{World, signal, wait_until};

/// Bytes of the file that is sent: more than all buffers between the daemon and the reader take.
const LONG: usize = 16 << 20;

/// A volume with a directory that has a long file, and snapshots of it.
fn filled(snapshots: &[&str]) -> Option<(World, String)> {
    let world = World::new();
    if !world.mount() {
        return None;
    }
    let d = world.below_mount("d");
    fs::create_dir(&d).unwrap();
    fs::write(d.join("long"), vec![7; LONG]).unwrap();
    let name = d.to_str().unwrap().to_owned();
    for snapshot in snapshots {
        fs::write(d.join(snapshot), vec![9; LONG]).unwrap();
        world.ok(&["snapshot", "create", &name, snapshot]);
    }
    Some((world, name))
}

/// Starts a command whose output nobody reads yet.
fn start(arguments: &[&str]) -> Child {
    let mut command: Command = World::command(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The names of the holds on a snapshot; nothing if it does not exist.
fn holds(world: &World, directory: &str, snapshot: &str) -> Vec<String> {
    let listed = world.json(&["snapshot", "list", directory]);
    let found = listed.iter().find(|one| one["name"] == snapshot);
    let holds = found.and_then(|one| one["holds"].as_array()).cloned().unwrap_or_default();
    holds.iter().map(|hold| hold["name"].as_str().unwrap().to_owned()).collect()
}

fn interrupt(child: &mut Child, how: Signal) {
    signal(child.id() as i32, how);
    child.wait().unwrap();
}

#[test]
fn a_snapshot_is_not_pruned_while_it_is_sent() {
    let auto = ["auto-2026-11-01T120000Z", "auto-2026-11-02T120000Z", "auto-2026-11-03T120000Z"];
    let Some((world, d)) = filled(&auto) else { return };
    let at = |snapshot: &str| format!("{d}@{snapshot}");
    let held = |snapshot: &str| holds(&world, &d, snapshot);
    let ended = || {
        wait_until("the daemon has noticed it", || {
            !world.ok(&["session", "list", world.vol()]).contains("sending")
        });
    };
    // An increment: its base is held, too. It is cut, and can continue, so both stay held.
    for how in [Signal::INT, Signal::KILL] {
        let mut sending = start(&["send", "--from", &at(auto[0]), &at(auto[1])]);
        wait_until("both are held", || held(auto[0]) == ["sent"] && held(auto[1]) == ["sent"]);
        let pruned = world.ok(&["snapshot", "prune", &d, "--keep", "1h"]);
        assert!(pruned.contains("held by sent"), "{pruned}");
        assert!(world.fails(6, &["snapshot", "delete", &d, auto[0]]).contains("held"));
        interrupt(&mut sending, how);
        ended();
        for snapshot in &auto[..2] {
            assert_eq!(held(snapshot), ["sent"], "{how:?}");
            world.ok(&["snapshot", "release", &d, snapshot, "sent"]);
        }
    }
    // A complete stream that is cut can continue, so its snapshot stays held.
    let mut sending = start(&["send", &at(auto[0])]);
    wait_until("it is held", || held(auto[0]) == ["sent"]);
    drop(sending.stdout.take());
    let answer = crate::world::answer(&sending.wait_with_output().unwrap());
    assert_eq!(answer.code, 130, "{}", answer.err);
    assert!(answer.err.contains("stays held"), "{}", answer.err);
    ended();
    assert_eq!(held(auto[0]), ["sent"]);
    world.ok(&["snapshot", "release", &d, auto[0], "sent"]);
    // A stream that fails cannot continue, and releases what it set; an earlier hold stays.
    world.ok(&["snapshot", "hold", &d, auto[0], "sent"]);
    let another = world.below_mount("another");
    fs::create_dir(&another).unwrap();
    world.ok(&["snapshot", "create", another.to_str().unwrap(), "one"]);
    let base = format!("{}@one", another.display());
    let failed = world.fails(2, &["send", "--from", &base, &at(auto[1])]);
    assert!(failed.contains("not of one directory"), "{failed}");
    assert!(holds(&world, another.to_str().unwrap(), "one").is_empty());
    assert!(held(auto[1]).is_empty());
    assert_eq!(held(auto[0]), ["sent"]);
    // None at all if that is requested, nor of a dry run.
    world.ok(&["send", "--dry-run", &at(auto[2])]);
    assert_eq!(world.run(&["send", "--no-hold", "--hold", "x", &at(auto[2])]).code, 2);
    let mut sending = start(&["send", "--no-hold", &at(auto[2])]);
    let mut stream = Vec::new();
    sending.stdout.take().unwrap().read_to_end(&mut stream).unwrap();
    assert!(sending.wait().unwrap().success());
    assert!(held(auto[2]).is_empty(), "{} bytes", stream.len());
}

/// Two streams of one snapshot: the end of one does not release what the other one relies on, or
/// has reported.
#[test]
fn a_stream_that_fails_releases_no_hold_of_another() {
    let auto = ["auto-2026-11-01T120000Z", "auto-2026-11-02T120000Z"];
    let Some((world, d)) = filled(&auto) else { return };
    let at = |snapshot: &str| format!("{d}@{snapshot}");
    let both = || auto.map(|snapshot| holds(&world, &d, snapshot));
    let increment = || start(&["send", "--from", &at(auto[0]), &at(auto[1])]);
    let sending = || world.ok(&["session", "list", world.vol()]).matches("sending").count();
    let held = [["sent"], ["sent"]];
    let (mut first, mut second) = (increment(), increment());
    wait_until("both are under way", || sending() == 2 && both() == held);
    interrupt(&mut first, Signal::KILL);
    wait_until("one has ended", || sending() == 1);
    assert_eq!(both(), held, "the other one needs them");
    interrupt(&mut second, Signal::KILL);
    wait_until("the other one has ended", || sending() == 0);
    // It can continue.
    assert_eq!(both(), held);
    for snapshot in auto {
        world.ok(&["snapshot", "release", &d, snapshot, "sent"]);
    }
    // The second one is complete before the first one fails.
    let (mut first, mut second) = (increment(), None);
    wait_until("both are held", || both() == held);
    let mut stream = Vec::new();
    let output = second.insert(increment()).stdout.take();
    output.unwrap().read_to_end(&mut stream).unwrap();
    assert!(second.unwrap().wait().unwrap().success(), "{} bytes", stream.len());
    interrupt(&mut first, Signal::KILL);
    wait_until("the first one has ended", || sending() == 0);
    assert_eq!(both(), held);
}

/// A receiver that refuses, and a connection that ends, look the same to the sender. Of the
/// increments from one base that were cut, only the last keeps its snapshot held.
#[test]
fn an_increment_takes_the_place_of_one_that_was_cut() {
    let auto = ["auto-2026-11-01T120000Z", "auto-2026-11-02T120000Z", "auto-2026-11-03T120000Z"];
    let Some((world, d)) = filled(&auto) else { return };
    let at = |snapshot: &str| format!("{d}@{snapshot}");
    let held = |snapshot: &str| holds(&world, &d, snapshot);
    let cut = |snapshot: &str| {
        let mut sending = start(&["send", "--from", &at(auto[0]), &at(snapshot)]);
        wait_until("it is held", || held(snapshot) == ["sent"]);
        // The first bytes have left.
        let mut first = [0; 1];
        sending.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
        interrupt(&mut sending, Signal::KILL);
        wait_until("the daemon has noticed it", || {
            !world.ok(&["session", "list", world.vol()]).contains("sending")
        });
    };
    // The same one twice: it can continue.
    for snapshot in [auto[1], auto[1], auto[2], auto[1]] {
        cut(snapshot);
        let other = if snapshot == auto[1] { auto[2] } else { auto[1] };
        assert_eq!((held(snapshot), held(auto[0])), (vec!["sent".into()], vec!["sent".into()]));
        assert!(held(other).is_empty(), "{other} after {snapshot}");
    }
    let mut sending = start(&["send", "--from", &at(auto[0]), &at(auto[2])]);
    let mut stream = Vec::new();
    sending.stdout.take().unwrap().read_to_end(&mut stream).unwrap();
    assert!(sending.wait().unwrap().success(), "{} bytes", stream.len());
    assert!(held(auto[1]).is_empty());
    assert_eq!((held(auto[0]), held(auto[2])), (vec!["sent".into()], vec!["sent".into()]));
    // A reported hold stays, whatever is cut later.
    cut(auto[1]);
    assert_eq!(held(auto[2]), ["sent"]);
}

#[test]
fn receivers_with_holds_of_their_own_keep_their_bases() {
    let auto = ["auto-2026-11-01T120000Z", "auto-2026-11-02T120000Z", "auto-2026-11-03T120000Z"];
    let Some((world, d)) = filled(&auto) else { return };
    let (daily, weekly) = (World::new(), World::new());
    let at = |snapshot: &str| format!("{d}@{snapshot}");
    let send = |hold: &str, base: Option<&str>, snapshot: &str, to: &World| {
        let from = base.map(|base| format!("--from {}", at(base))).unwrap_or_default();
        let (pando, snapshot, to) = (crate::world::PANDO, at(snapshot), to.at("/copy"));
        let pipe = format!("{pando} send --hold {hold} {from} {snapshot} | {pando} receive {to}");
        let output =
            Command::new("bash").args(["-c", &format!("set -o pipefail; {pipe}")]).output();
        let answer = crate::world::answer(&output.unwrap());
        assert_eq!(answer.code, 0, "{}", answer.err);
        answer.err
    };
    send("daily", None, auto[0], &daily);
    send("weekly", None, auto[0], &weekly);
    assert_eq!(holds(&world, &d, auto[0]), ["daily", "weekly"]);
    let printed = send("daily", Some(auto[0]), auto[1], &daily);
    assert!(!printed.contains("released"), "{printed}");
    let printed = send("daily", Some(auto[1]), auto[2], &daily);
    assert!(printed.contains("released the hold daily on 1 older snapshot"), "{printed}");
    assert_eq!(holds(&world, &d, auto[0]), ["weekly"]);
    assert_eq!(holds(&world, &d, auto[1]), ["daily"]);
    // The base of the slower receiver is still there.
    world.ok(&["snapshot", "prune", &d, "--keep", "1h"]);
    send("weekly", Some(auto[0]), auto[2], &weekly);
    assert_eq!(holds(&world, &d, auto[2]), ["daily", "weekly"]);
    // A daemon that ends at once after a stream has not lost its holds.
    world.kill_daemon();
    assert_eq!(holds(&world, &world.at("/d"), auto[2]), ["daily", "weekly"]);
}

#[test]
fn a_dump_that_is_interrupted_leaves_no_snapshot() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let d = world.below_mount("d");
    fs::create_dir(&d).unwrap();
    // 128 KiB of lines each: more than all buffers between the daemon and the reader take.
    for number in 0..40 {
        let file = d.join(number.to_string());
        fs::write(&file, "").unwrap();
        rustix::fs::setxattr(&file, "user.long", &vec![7; 60 << 10], XattrFlags::empty()).unwrap();
    }
    let d = d.to_str().unwrap();
    let taken = |directory: &str| -> Vec<Value> {
        let listed = world.json(&["snapshot", "list", directory]);
        listed.into_iter().filter(|one| one["name"] != "mine").collect()
    };
    world.ok(&["snapshot", "create", d, "mine"]);
    for how in [Signal::INT, Signal::TERM, Signal::KILL] {
        let mut dumping = start(&["dump", d]);
        wait_until("a snapshot is taken", || taken(d).len() == 1);
        interrupt(&mut dumping, how);
        wait_until("it is deleted", || taken(d).is_empty());
    }
    // Two at a time, and neither deletes what the other one reads.
    let (mut one, mut two) = (start(&["dump", d]), start(&["dump", d]));
    wait_until("both are under way", || taken(d).len() == 2);
    let (mut first, mut second) = (String::new(), String::new());
    two.stdout.take().unwrap().read_to_string(&mut second).unwrap();
    one.stdout.take().unwrap().read_to_string(&mut first).unwrap();
    assert!(one.wait().unwrap().success() && two.wait().unwrap().success());
    assert!(first == second, "{} and {} bytes", first.len(), second.len());
    assert_eq!(first.lines().count(), 43, "the header, the directory, its files, and the end");
    // The daemon dies: the next dump deletes what it left.
    let mut dumping = start(&["dump", d]);
    wait_until("a snapshot is taken", || taken(d).len() == 1);
    world.ok(&["sync", world.vol()]);
    world.kill_daemon();
    drop(dumping.stdout.take());
    dumping.wait().unwrap();
    let inner = world.at("/d");
    assert_eq!(taken(&inner).len(), 1);
    assert!(world.ok(&["dump", &inner]) == first);
    assert!(taken(&inner).is_empty());
    assert!(world.names("/d/.snapshots").contains(&"mine".to_owned()));
    world.ok(&["fsck", world.vol()]);
}

/// The numbers that names of a dump have behind a letter, and the directories that have a token.
fn seen(dump: &str) -> (Vec<u64>, Vec<String>) {
    let (mut numbers, mut tokens) = (Vec::new(), Vec::new());
    for line in dump.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let path = line["path"].as_str().unwrap_or_default();
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        if name == "token" {
            tokens.push(directory.trim_start_matches('/').to_owned());
        }
        numbers.extend(name.strip_prefix('n').and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    (numbers, tokens)
}

/// A program makes numbered files in ten directories in turn, removes the one of fifty before, and
/// moves a token. At each moment the numbers are in a row, and one directory has the token.
#[test]
fn a_dump_is_of_one_moment_while_a_program_writes() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let d = world.below_mount("d");
    fs::create_dir(&d).unwrap();
    for directory in 0..10 {
        fs::create_dir(d.join(directory.to_string())).unwrap();
        for file in 0..200 {
            fs::write(d.join(format!("{directory}/{}{file}", "x".repeat(150))), "").unwrap();
        }
    }
    fs::write(d.join("0/token"), "").unwrap();
    let (is_over, made) = (AtomicBool::new(false), AtomicU64::new(0));
    let name = d.to_str().unwrap();
    device::scope(|scope| {
        scope.spawn(|| {
            let at = |number: u64, name: &str| d.join(format!("{}/{name}", number % 10));
            for number in 0.. {
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
                fs::write(at(number, &format!("n{number}")), "").unwrap();
                if let Some(old) = number.checked_sub(50) {
                    fs::remove_file(at(old, &format!("n{old}"))).unwrap();
                }
                fs::rename(at(number, "token"), at(number + 1, "token")).unwrap();
                made.store(number, Ordering::Relaxed);
            }
        });
        let dumps = || {
            for _ in 0..12 {
                let before = made.load(Ordering::Relaxed);
                let mut dumping = start(&["dump", name]);
                let mut text = String::new();
                let mut pipe = dumping.stdout.take().unwrap();
                // The dump is read slowly, and much is written meanwhile.
                let mut part = vec![0; 64 << 10];
                pipe.read_exact(&mut part).unwrap();
                text.push_str(std::str::from_utf8(&part).unwrap());
                let half = made.load(Ordering::Relaxed);
                wait_until("more is written", || made.load(Ordering::Relaxed) > half + 20);
                pipe.read_to_string(&mut text).unwrap();
                assert!(dumping.wait().unwrap().success());
                let (numbers, tokens) = seen(&text);
                let after = made.load(Ordering::Relaxed);
                assert!(numbers.is_sorted_by(|one, next| one + 1 == *next), "{numbers:?}");
                let Some(&last) = numbers.last() else { continue };
                assert!((before..=after + 1).contains(&last), "{last} of {before} to {after}");
                assert!(numbers.len() as u64 > last.min(49) && numbers.len() <= 51);
                let here = [last % 10, (last + 1) % 10].map(|at| at.to_string());
                assert!(tokens.len() == 1 && here.contains(&tokens[0]), "{last}: {tokens:?}");
            }
        };
        let dumped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(dumps));
        is_over.store(true, Ordering::Relaxed);
        dumped.unwrap();
    });
    assert!(made.load(Ordering::Relaxed) > 100);
    world.ok(&["fsck", world.vol()]);
}

/// Snapshots that have the names of dumps, and are held, prevent neither a dump nor the deletion of
/// what dumps left.
#[test]
fn held_snapshots_do_not_prevent_a_dump() {
    let world = World::new();
    let source = world.source();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    let d = world.at("/d");
    for number in 1..=18 {
        let name = format!(".pando-dump-{}", 100 + number);
        world.ok(&["snapshot", "create", &d, &name]);
        world.ok(&["snapshot", "hold", &d, &name, "mine"]);
    }
    world.ok(&["snapshot", "create", &d, ".pando-dump-999"]);
    world.ok(&["dump", &d]);
    let names = world.names("/d/.snapshots");
    assert_eq!((names.len(), names.contains(&".pando-dump-999".to_owned())), (18, false));
}

/// To an object store and back: increments continue from the copy, home.
#[test]
fn a_directory_moves_to_an_object_store_and_back() {
    let (world, store, back) = (World::new(), World::in_store(), World::on("lsm"));
    if !world.mount() {
        return;
    }
    let d = world.below_mount("d");
    fs::create_dir(&d).unwrap();
    fs::write(d.join("long"), vec![5; 3 << 20]).unwrap();
    fs::write(d.join("short"), "short").unwrap();
    let pipe = |send: &str, receive: &str| {
        let pando = crate::world::PANDO;
        let line = format!("set -o pipefail; {pando} send {send} | {pando} receive {receive}");
        let mut shell = Command::new("bash");
        shell.args(["-c", &line]).env("PANDO_HOST_DIRECTORY", store.hosts());
        let answer = crate::world::answer(&shell.output().unwrap());
        assert_eq!(answer.code, 0, "{line}: {}", answer.err);
    };
    let (name, there, home) = (d.to_str().unwrap(), store.at("/copy"), back.at("/home"));
    world.ok(&["snapshot", "create", name, "one"]);
    pipe(&format!("{name}@one"), &there);
    fs::rename(d.join("short"), d.join("renamed")).unwrap();
    fs::write(d.join("new"), "new").unwrap();
    world.ok(&["snapshot", "create", name, "two"]);
    pipe(&format!("--from {name}@one {name}@two"), &there);
    assert_eq!(store.names("/copy"), ["long", "new", "renamed"]);
    // The host's files are gone: the copy is in the store.
    store.lose_host();
    pipe(&format!("{there}@one"), &home);
    pipe(&format!("--from {there}@one {there}@two"), &home);
    assert_eq!(
        back.ok(&["dump", &format!("{home}@two")]),
        world.ok(&["dump", &format!("{name}@two")])
    );
    for world in [&store, &back] {
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}
