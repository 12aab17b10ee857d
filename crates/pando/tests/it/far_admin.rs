//! What an administrator of a server sees of its clients, and does to them.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::far::{Mounted, Served, may_mount};
use crate::world::{PANDO, World, signal, wait_until};

const GUIDE: &str = include_str!("../../../../docs/guide/metrics.md");

fn scrape(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// The value of a sample.
fn value(text: &str, sample: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[test]
fn a_server_of_several_volumes_answers_scrapes_by_volume() {
    if !may_mount() {
        return;
    }
    let (world, other) = (World::new(), World::new());
    let address = format!("127.0.0.1:{}", testing::unused_port());
    let second = format!("other={}", other.vol());
    let served = Served::start(&world, &["--metrics", &address, &second]);
    let one = Mounted::new(&world, &served.url, "one");
    let _two = Mounted::new(&world, &served.url, "two");
    std::fs::write(one.path("f"), "x").unwrap();
    let locked = std::fs::File::options().read(true).open(one.path("f")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let has = |text: &str, sample: &str, expected: f64| value(text, sample) == Some(expected);
    wait_until("the scrape shows the mounts", || {
        let text = scrape(&address);
        has(&text, "pando_client_sessions{volume=\"vol\"}", 2.0)
            && has(&text, "pando_client_locks{volume=\"vol\"}", 1.0)
    });
    let text = scrape(&address);
    for (sample, expected) in [
        ("pando_client_sessions_connected{volume=\"vol\"}", 2.0),
        ("pando_clients{volume=\"vol\"}", 1.0),
        ("pando_client_sessions{volume=\"other\"}", 0.0),
        ("pando_client_connections", 2.0),
        ("pando_serving{volume=\"vol\"}", 1.0),
        ("pando_serving{volume=\"other\"}", 1.0),
        ("pando_takeovers_total{volume=\"other\"}", 1.0),
        ("pando_up{volume=\"vol\"}", 1.0),
        ("pando_up{volume=\"other\"}", 1.0),
    ] {
        assert_eq!(value(&text, sample), Some(expected), "{sample} in\n{text}");
    }
    let mut writes = text.lines().filter(|line| {
        let words = ["pando_calls_total{", "call=\"write\"", "outcome=\"done\"", "volume=\"vol\""];
        words.iter().all(|word| line.contains(word))
    });
    assert!(writes.next().is_some_and(|line| !line.ends_with(" 0")), "{text}");
    // Each family is there once.
    let families: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    let distinct: BTreeSet<&str> = families.iter().copied().collect();
    assert_eq!(families.len(), distinct.len(), "{text}");
    // A connection that is no client's.
    let mut stranger = TcpStream::connect(served.url["pando://".len()..].trim_end_matches("/vol"));
    stranger.as_mut().unwrap().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
    wait_until("the scrape shows a refusal", || {
        value(&scrape(&address), "pando_client_refusals_total").is_some_and(|count| count > 0.0)
    });
    // The guide lists all.
    let names = text.lines().filter(|line| !line.starts_with('#'));
    let names = names.map(|line| line.split(['{', ' ']).next().unwrap());
    for name in names {
        let base = ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
        let name = base.unwrap_or(name);
        assert!(GUIDE.contains(&format!("`{name}`")), "the guide does not list {name}");
    }
}

#[test]
fn mounts_of_other_machines_are_sessions_that_can_be_ended() {
    if !may_mount() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    let one = Mounted::new(&world, &served.url, "one");
    std::fs::write(one.path("f"), "x").unwrap();
    let listed = world.ok(&["session", "list", world.vol()]);
    assert!(listed.contains("a mount of localhost"), "{listed}");
    let id = listed.lines().find(|line| line.contains("a mount of")).unwrap();
    let id = id.split_whitespace().nth(1).unwrap().to_owned();
    let other = (id.parse::<u64>().unwrap() ^ 1).to_string();
    let refused = world.fails(3, &["session", "end", world.vol(), &other]);
    assert!(refused.contains("there is no session"), "{refused}");
    // Its lock ends with it, and what it has open is stale; its mount begins a new session.
    let held = std::fs::File::options().read(true).write(true).open(one.path("f")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let two = Mounted::new(&world, &served.url, "two");
    let waits = std::fs::File::options().read(true).open(two.path("f")).unwrap();
    let nonblocking = rustix::fs::FlockOperation::NonBlockingLockExclusive;
    assert_eq!(rustix::fs::flock(&waits, nonblocking), Err(rustix::io::Errno::WOULDBLOCK));
    world.ok(&["session", "end", world.vol(), &id]);
    rustix::fs::flock(&waits, rustix::fs::FlockOperation::LockExclusive).unwrap();
    wait_until("its mount continues", || std::fs::read(one.path("f")).is_ok());
    let again = world.ok(&["session", "list", world.vol()]);
    assert!(!again.contains(&id), "{again}");
    assert_eq!(again.matches("a mount of localhost").count(), 2, "{again}");
}

/// Options of the volume reach it, and others are refused.
#[test]
fn options_of_a_served_volume() {
    let world = World::new();
    let refused = |options: &[&str]| {
        let output = Command::new(PANDO)
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(world.vol())
            .output()
            .unwrap();
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    for (options, why) in [
        (&["-o", "ro"][..], "'ro' is not an option of a served volume"),
        (&["-o", "noatime,cache-size=1G"], "'cache-size' is not an option"),
        (&["-o", "merge-rate=many"], "merge-rate=many"),
        (&["-o", "commit-interval=1"], "'commit-interval' is for volumes in object stores"),
        (&["--take-over", "--etcd", "http://127.0.0.1:1", "--name", "x"], "cannot be used with"),
    ] {
        let error = refused(options);
        assert!(error.contains(why), "{options:?}: {error}");
    }
    let served = Served::start(&world, &["-o", "noatime,merge-rate=20M"]);
    world.ok(&["ls", &served.url]);
}

/// A volume that another host has open, or had when it died, is served with the option alone.
#[test]
fn a_server_takes_a_volume_over_with_the_option_alone() {
    let world = World::in_store();
    let url = world.url.clone().unwrap();
    let start = |host: &str, options: &[&str]| {
        let own = world.path().join(host);
        std::fs::create_dir_all(&own).unwrap();
        Command::new(PANDO)
            .args(["serve", "--json", "--listen", "127.0.0.1:0"])
            .args(options)
            .arg(format!("vol={url}"))
            .env("PANDO_HOST_DIRECTORY", &own)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let mut first = start("host1", &["-o", "small-files=4K,commit-interval=0.01"]);
    let mut line = String::new();
    let mut out = BufReader::new(first.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("pid"), "{line}");
    let refused = start("host2", &[]).wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("is open on"), "{error}");
    let mut second = start("host3", &["--take-over"]);
    let mut line = String::new();
    let mut out = BufReader::new(second.stdout.take().unwrap());
    out.read_line(&mut line).unwrap();
    assert!(line.contains("pid"), "{line}");
    signal(second.id() as i32, Signal::TERM);
    assert!(second.wait().unwrap().success());
    // The first one was replaced.
    signal(first.id() as i32, Signal::TERM);
    first.wait().unwrap();
}
