//! No name and no message reaches a terminal as an escape sequence, whichever verb prints it.

use std::io::Write;
use std::os::unix::fs::FileExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};

use wire::{
    Body, Failure, FailureKind, HELLO_MAGIC, Hello, Reply, Request, VERSION, Welcome, decode,
    encode, read_frame, write_frame,
};

use crate::messages::MISSING;
use crate::world::{IDLE_SECONDS, PANDO, World};

/// Clears a terminal.
const CLEARS: &str = "\x1b[2J";

/// What a command shows on a terminal, on which its standard error is, too.
fn shown(arguments: &[&str]) -> String {
    let words: Vec<_> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let output = Command::new("script")
        .args(["--quiet", "--command", &format!("{PANDO} {}", words.join(" ")), "/dev/null"])
        .env("PANDO_IDLE_SECONDS", IDLE_SECONDS)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Runs a command that must show the harmless part of [`CLEARS`].
fn assert_harmless(arguments: &[&str]) {
    let shown = shown(arguments);
    // The line of progress is erased.
    let lines = shown.replace("\x1b[K", "").replace("\x1b[2K", "");
    assert!(lines.contains("[2J"), "{arguments:?}: {shown:?}");
    assert!(!lines.contains(['\x1b', '\u{9b}']), "{arguments:?}: {shown:?}");
}

#[test]
fn names_in_findings_and_comparisons_do_not_control_a_terminal() {
    let world = World::new();
    let source = world.source();
    // With a control character that JSON need not escape.
    let name = format!("a{CLEARS}\u{9b}b");
    std::fs::write(source.join(&name), vec![5; 300_000]).unwrap();
    let text = format!("t{CLEARS}t");
    std::fs::write(source.join(&text), b"one\n").unwrap();
    let (source, d) = (source.to_str().unwrap().to_owned(), world.at("/d"));
    world.ok(&["import", &source, &d]);
    world.ok(&["snapshot", "create", &d, &text]);
    std::fs::write(Path::new(&source).join(&text), format!("{CLEARS} two\n")).unwrap();
    let other = world.at(&format!("/d/{text}"));
    world.ok(&["import", &format!("{source}/{text}"), &other]);
    let (old, gone) = (format!("{d}@{text}"), format!("/none{CLEARS}"));
    for arguments in [
        &["diff", &old, &d][..],
        &["diff", "-p", &old, &d],
        &["history", &other],
        &["snapshot", "list", &d],
        &["dump", &d],
        &["snapshot", "delete", &d, &gone],
        &["info", &d],
        &["ls", &gone],
        &["trace", "info", &gone],
        &["session", "list", &gone],
        &["mount", &gone, &gone],
        &["import", &gone, &d],
    ] {
        assert_harmless(arguments);
    }
    let below = world.at(&format!("/d/{text}.d"));
    world.ok(&["subvolume", "create", &below]);
    world.ok(&["snapshot", "hold", &d, &text, &text]);
    world.ok(&["trash", "on", &d]);
    world.ok(&["import", &format!("{source}/{text}"), &format!("{below}/{text}")]);
    world.ok(&["rmr", &format!("{below}/{text}")]);
    for arguments in [
        &["ls", &d][..],
        &["ls", "-l", &d],
        &["ls", "-R", &d],
        &["find", &d],
        &["find", &d, "-ls"],
        &["find", &d, "-printf", "%f %p\\n"],
        &["du", &d],
        &["summary", "--top", "9", &d],
        &["stat", &other],
        &["trash", "list", &d],
        &["snapshot", "list", &d],
        &["snapshot", "list", "--all", &d],
        &["snapshot", "create", &d, &text],
        &["snapshot", "schedule", &below, "@yearly", "--prefix", &text],
        &["snapshot", "schedule", "--all", &d],
        &["restore", "--list", &format!("{below}/{text}")],
    ] {
        assert_harmless(arguments);
    }
    if crate::world::is_root() {
        world.ok(&["quota", "set", &below, "--files", "9"]);
        assert_harmless(&["quota", "list", world.vol()]);
        assert_harmless(&["quota", "get", &below]);
    }
    world.close();
    let mut segments = ["data/open", "data/sealed"]
        .into_iter()
        .flat_map(|directory| std::fs::read_dir(world.volume.join(directory)).unwrap());
    let segment = segments.next().unwrap().unwrap().path();
    let bytes = std::fs::read(&segment).unwrap();
    let at = bytes.chunks(4096).position(|page| page == [5; 4096]).unwrap() as u64 * 4096;
    let segment = std::fs::OpenOptions::new().write(true).open(segment).unwrap();
    segment.write_all_at(&[9], at + 5000).unwrap();
    assert_harmless(&["fsck", world.vol()]);
    assert_harmless(&["cat", &world.at(&format!("/d/{name}"))]);
}

/// Verbs about a volume, which is not there.
const OF_VOLUMES: [&str; 11] = [
    "bench V",
    "fsck V",
    "gc V",
    "quota check V",
    "quota list V",
    "search list V",
    "session list V",
    "status V",
    "sync V",
    "trace info V",
    "umount V",
];

/// Every verb that takes a path, by the list that has all of them: the path that it names is not
/// there.
#[test]
fn every_verb_names_what_is_missing_harmlessly() {
    let world = World::new();
    let (root, volume) = (world.at("/"), world.path().join(format!("none{CLEARS}")));
    let volume = volume.to_str().unwrap();
    // A stream is for no terminal, and is read from none.
    let is_stream =
        |verb: &&&str| ["send ", "receive ", "load "].iter().any(|of| verb.starts_with(of));
    for verb in MISSING.iter().chain(&OF_VOLUMES).filter(|verb| !is_stream(verb)) {
        let word = |word: &str| match word {
            "R" => root.clone(),
            "R/c" => format!("{root}c"),
            "V" => volume.to_owned(),
            _ => word.replacen('P', &format!("{root}no{CLEARS}/such"), 1),
        };
        let words: Vec<String> = verb.split(' ').map(word).collect();
        assert_harmless(&words.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

/// Answers one request with a failure, as the daemon of another user may.
fn answer(mut stream: UnixStream) {
    let mut frame = Vec::new();
    let mut message = Vec::new();
    read_frame(&mut stream, &mut frame).unwrap();
    assert_eq!(decode::<Hello>(&frame).unwrap().version, VERSION);
    let welcome = Welcome { magic: HELLO_MAGIC, version: VERSION, pid: 1, mount_point: None };
    encode(&welcome, &mut message);
    write_frame(&mut stream, &message).unwrap();
    read_frame(&mut stream, &mut frame).unwrap();
    let id = decode::<Request<'_>>(&frame).unwrap().id;
    let failure = Failure::new(FailureKind::Other, format!("it prints {CLEARS}"));
    let failure = failure.at(format!("/x{CLEARS}").as_bytes()).hint(format!("do {CLEARS}"));
    message.clear();
    encode(&Reply { id, body: Body::Failed(failure) }, &mut message);
    write_frame(&mut stream, &message).unwrap();
    stream.flush().unwrap();
}

#[test]
fn messages_of_a_daemon_do_not_control_a_terminal() {
    let world = World::new();
    let listener = UnixListener::bind(world.volume.join("control.sock")).unwrap();
    device::scope(|scope| {
        scope.spawn(|| answer(listener.accept().unwrap().0));
        let shown = shown(&["ls", &world.at("/")]);
        for part in ["it prints", "/x", "do "] {
            assert!(shown.contains(part), "{part}: {shown:?}");
        }
        assert!(shown.contains("[2J") && !shown.contains('\x1b'), "{shown:?}");
    });
}

#[test]
fn wrong_arguments_do_not_control_a_terminal() {
    for arguments in [
        ["ls", "--x\x1b]0;title\x07"],
        ["ls", "--x\x1b[2J"],
        ["quota\x1b[2J", "set"],
        ["snapshot", "\u{9b}2J"],
    ] {
        let shown = shown(&arguments);
        assert!(shown.contains("error:"), "{arguments:?}: {shown:?}");
        let controls = |letter: char| letter.is_control() && !"\r\n\t".contains(letter);
        assert!(!shown.contains(controls), "{arguments:?}: {shown:?}");
    }
}
