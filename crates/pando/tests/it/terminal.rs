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
use crate::typed_paths::RESULTS;
use crate::world::{IDLE_SECONDS, PANDO, World, is_root};

/// Clears a terminal.
const CLEARS: &str = "\x1b[2J";

/// What a command shows on a terminal, on which its standard error is, too.
fn shown(arguments: &[&str]) -> String {
    shown_with_code(arguments, "").0
}

/// What a command shows on a terminal, and its code. The shell takes `redirected` as it is.
fn shown_with_code(arguments: &[&str], redirected: &str) -> (String, Option<i32>) {
    let words: Vec<_> = arguments.iter().map(|word| format!("'{word}'")).collect();
    let command = format!("{PANDO} {} {redirected}", words.join(" "));
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &command, "/dev/null"])
        .env("PANDO_IDLE_SECONDS", IDLE_SECONDS)
        .env("TERM", "xterm")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (String::from_utf8_lossy(&output.stdout).into_owned(), output.status.code())
}

/// What a terminal gets, without what erases the line of progress.
fn without_progress(shown: &str) -> String {
    shown.replace("\x1b[K", "").replace("\x1b[2K", "")
}

fn controls(shown: &str) -> bool {
    shown.contains(['\x1b', '\u{9b}'])
}

/// Runs a command that must show the harmless part of [`CLEARS`].
fn assert_harmless(arguments: &[&str]) {
    let lines = without_progress(&shown(arguments));
    assert!(lines.contains("[2J") && !controls(&lines), "{arguments:?}: {lines:?}");
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
    if is_root() {
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

/// A word of [`RESULTS`] with [`CLEARS`] in each name that a user chose.
fn hostile(word: &str, world: &World) -> String {
    let outside = |name: &str| world.path().join(name).to_str().unwrap().to_owned();
    let path = word.strip_prefix('D').filter(|rest| !rest.starts_with(char::is_alphabetic));
    match (word, path) {
        ("R", _) => world.at("/"),
        ("S", _) => outside("source"),
        ("O", _) => outside(&format!("out{CLEARS}")),
        ("one" | "two" | "three" | "h", _) => format!("{word}{CLEARS}"),
        (_, None) => word.to_owned(),
        (_, Some(rest)) => {
            let part = |letter: char| match letter {
                '/' | '@' => format!("{CLEARS}{letter}"),
                _ => letter.to_string(),
            };
            let rest: String = rest.chars().map(part).collect();
            // `.snapshots` is no name that a user chose.
            let path = world.at(&format!("/d{rest}{CLEARS}"));
            path.replace(&format!(".snapshots{CLEARS}"), ".snapshots")
        }
    }
}

/// The result of every verb that takes a path, by the list that has all of them, in text and with
/// `--json`. It names what the verb's words name.
#[test]
fn every_result_names_what_it_is_about_harmlessly() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.source();
    std::fs::create_dir(source.join(format!("deep{CLEARS}"))).unwrap();
    std::fs::write(source.join(format!("deep{CLEARS}/f")), "two").unwrap();
    std::fs::write(source.join(format!("a.txt{CLEARS}")), "one").unwrap();
    for json in [false, true] {
        let data = hostile("D", &world);
        world.ok(&["import", "-q", source.to_str().unwrap(), &data]);
        for (form, in_text, in_json) in RESULTS {
            let mut arguments: Vec<String> =
                form.split(' ').map(|word| hostile(word, &world)).collect();
            arguments.extend(json.then(|| "--json".to_owned()));
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let file = |name: &str| world.path().join(name).to_str().unwrap().to_owned();
            // A stream is for no terminal, and is read from none.
            let redirected = match *form {
                "send D@one" => format!(">{}", file("send")),
                "dump D/deep" => format!(">{}", file("dump")),
                "receive D/received" => format!("<{}", file("send")),
                "load D/loaded" => format!("<{}", file("dump")),
                _ => String::new(),
            };
            let (shown, code) = shown_with_code(&words, &redirected);
            assert_eq!(code, Some(0), "{form}: {shown:?}");
            let lines = without_progress(&shown);
            assert!(!controls(&lines), "{form}: {lines:?}");
            let named = if json { *in_json } else { *in_text };
            let names_one = named.iter().any(|name| name.starts_with('D'));
            assert!(!names_one || lines.contains("[2J"), "{form}: {lines:?}");
        }
        world.ok(&["rmr", &data]);
        std::fs::remove_dir_all(world.path().join(format!("out{CLEARS}"))).unwrap();
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
