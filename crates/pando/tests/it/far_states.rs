//! States of directories over the network: comparisons, rollbacks, schedules, pruning and holds are
//! those of the server, and imports of lists are verified and continue.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use crate::certificates::Certificates;
use crate::far::Served;
use crate::world::{World, is_root, signal, wait_until};

/// A served volume with a directory of text files and a snapshot `one` of it, and changes since.
fn changed(world: &World, served: &Served) {
    let source = world.source();
    for number in 0..30 {
        let directory = source.join(format!("d{}", number % 3));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), format!("line {number}\n")).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &served.below("/tree")]);
    world.ok(&["snapshot", "create", &served.below("/tree"), "one"]);
    world.ok(&["rmr", &served.below("/tree/d1")]);
    fs::write(source.join("d0/f0"), "another line\n").unwrap();
    let file = source.join("d0/f0");
    let to = served.below("/tree/d0/f0");
    world.ok(&["import", "--on-conflict", "replace", file.to_str().unwrap(), &to]);
}

#[test]
fn states_are_compared_and_rolled_back() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    changed(&world, &served);
    let diff = |words: &[&str], far: bool| {
        let at = |path: &str| if far { served.below(path) } else { world.at(path) };
        let (old, new) = (at("/tree@one"), at("/tree"));
        world.ok(&[&["diff"], words, &[&old, &new]].concat())
    };
    for words in [&[][..], &["--json"], &["--stat"], &["--stat", "--json"], &["-p"]] {
        let (here, far) = (diff(words, false), diff(words, true));
        assert_eq!(here.replace(world.vol(), ""), far.replace(&served.url, ""), "{words:?}");
    }
    let lines = diff(&["--json"], true);
    assert!(lines.contains("d1/f1") && lines.contains("d0/f0"), "{lines}");
    assert!(diff(&["-p"], true).contains("+another line"));
    world.ok(&["rollback", &served.below("/tree"), "one"]);
    assert_eq!(world.ok(&["cat", &served.below("/tree/d0/f0")]), "line 0\n");
    assert_eq!(world.ok(&["diff", &served.below("/tree@one"), &served.below("/tree")]), "");
    assert_eq!(world.names("/tree"), ["d0", "d1", "d2"]);
    world.fails(3, &["rollback", &served.below("/tree"), "none"]);
}

#[test]
fn schedules_pruning_and_holds_are_the_servers() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    changed(&world, &served);
    let dir = served.below("/tree");
    world.ok(&["snapshot", "schedule", &dir, "@hourly", "--keep", "24h7d"]);
    let set: Value = world.json(&["snapshot", "schedule", &dir]).remove(0);
    assert_eq!((&set["schedule"], &set["keep"]), (&"@hourly".into(), &"24h7d".into()), "{set}");
    let own = world.json(&["snapshot", "schedule", &world.at("/tree")]).remove(0);
    assert_eq!((&own["schedule"], &own["keep"]), (&set["schedule"], &set["keep"]));
    let all = world.json(&["snapshot", "schedule", "--all", &served.url]);
    assert_eq!((all.len(), &all[0]["path"]), (1, &dir.as_str().into()), "{all:?}");
    world.ok(&["snapshot", "schedule", "--off", &dir]);
    world.fails(3, &["snapshot", "schedule", &world.at("/tree")]);
    let auto = ["auto-2026-11-01T120000Z", "auto-2026-11-02T120000Z", "auto-2026-11-03T120000Z"];
    for name in auto {
        world.ok(&["snapshot", "create", &dir, name]);
    }
    world.ok(&["snapshot", "hold", &dir, auto[0], "backup"]);
    assert!(world.ok(&["snapshot", "list", &world.at("/tree")]).contains("(held by backup)"));
    assert!(world.fails(6, &["snapshot", "delete", &dir, auto[0]]).contains("held"));
    let dry = world.json(&["snapshot", "prune", &dir, "--keep", "1d", "--dry-run"]);
    assert_eq!(dry.len(), 3, "{dry:?}");
    let pruned = world.ok(&["snapshot", "prune", &dir, "--keep", "1d"]);
    assert!(pruned.contains("held by backup"), "{pruned}");
    assert_eq!(world.names("/tree/.snapshots"), [auto[0], auto[2], "one"]);
    world.ok(&["snapshot", "release", &dir, auto[0], "backup"]);
    world.ok(&["snapshot", "prune", &dir, "--keep", "1d"]);
    assert_eq!(world.names("/tree/.snapshots"), [auto[2], "one"]);
    // A file comes back from what a schedule took.
    world.ok(&["rmr", &served.below("/tree/d2")]);
    world.ok(&["restore", "--from", auto[2], &served.below("/tree/d2")]);
    assert!(world.names("/tree").contains(&"d2".to_owned()));
}

/// A certificate that only reads, and one whose root is nobody, change no state.
#[test]
fn rights_over_states_are_those_of_the_certificate() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let certificates = Certificates::new(&world, "root", &["--keep-root"]);
    certificates.add("squashed", &[]);
    certificates.add("reads", &["--read-only", "--keep-root"]);
    let served = Served::start(&world, &certificates.of_server().each_ref().map(String::as_str));
    let source = world.source();
    fs::write(source.join("f"), "text").unwrap();
    let dir = served.below("/tree");
    let run = |client: &str, arguments: &[&str]| certificates.run(client, arguments);
    for words in [
        &["import", source.to_str().unwrap(), &dir][..],
        &["snapshot", "create", &dir, "one"],
        &["rmr", &served.below("/tree/f")],
    ] {
        let (works, error) = run("root", words);
        assert!(works, "{words:?}: {error}");
    }
    for words in [
        &["rollback", &dir, "one"][..],
        &["snapshot", "schedule", &dir, "@hourly"],
        &["snapshot", "hold", &dir, "one", "mine"],
        &["snapshot", "delete", &dir, "one"],
        &["restore", "--from", "one", &served.below("/tree/f")],
    ] {
        for client in ["squashed", "reads"] {
            let (works, error) = run(client, words);
            assert!(!works, "{client}: {words:?} works");
            let why = ["ermission", "only root", "only read", "not permitted"];
            assert!(why.iter().any(|why| error.contains(why)), "{client} {words:?}: {error}");
        }
    }
    assert_eq!(world.names("/tree"), Vec::<String>::new());
    assert_eq!(
        world.json(&["snapshot", "list", &world.at("/tree")])[0]["holds"],
        Value::from(Vec::<Value>::new())
    );
    // Verbs of a certificate that only reads are refused altogether; of nobody's, what is open to
    // all is compared.
    let (works, error) = run("squashed", &["diff", &served.below("/tree@one"), &dir]);
    assert!(works, "{error}");
}

#[test]
fn imports_over_the_network_are_verified_and_continue() {
    let world = World::new();
    let served = Served::start(&world, &[]);
    let source = world.source();
    for number in 0..60 {
        fs::write(source.join(format!("f{number}")), vec![number as u8; 3000 * number]).unwrap();
    }
    let from = source.to_str().unwrap();
    world.ok(&["import", "--verify", from, &served.below("/tree")]);
    let again = world.json(&["import", from, &served.below("/tree")]).remove(0);
    assert_eq!((&again["imported"], &again["unchanged"]), (&0.into(), &60.into()), "{again}");
    let mut list = String::new();
    for file in 0..20_000 {
        let path = format!("d{}/f{file}", file / 1000);
        writeln!(list, "{{\"path\":\"{path}\",\"kind\":\"f\",\"mtime\":5}}").unwrap();
    }
    let to = served.below("/list");
    let mut command = World::command(&["import", "--format", "list", "-", &to]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&list.as_bytes()[..list.len() / 2]).unwrap();
    wait_until("it is half done", || {
        let listed = world.run(&["ls", "-a", &world.at("/.pando-import.list")]);
        listed.out.lines().count() > 5
    });
    signal(i32::try_from(child.id()).unwrap(), rustix::process::Signal::KILL);
    child.wait().unwrap();
    assert!(!world.names("/").contains(&"list".to_owned()));
    let path = world.path().join("list");
    fs::write(&path, &list).unwrap();
    let words = ["import", "--verify", "--format", "list", path.to_str().unwrap(), &to];
    let mut done = None;
    wait_until("the server has noticed the end of the first", || {
        let run = world.run(&[&words[..], &["--json"]].concat());
        assert!([0, 6].contains(&run.code), "{}", run.err);
        done = serde_json::from_str::<Value>(run.out.lines().next().unwrap_or_default()).ok();
        run.code == 0
    });
    let done = done.unwrap();
    assert_eq!(done["failed"], 0, "{done}");
    assert!(done["unchanged"].as_u64() > Some(1000), "{done}");
    assert_eq!(world.names("/list/d19").len(), 1000);
    assert!(!world.names("/").contains(&".pando-import.list".to_owned()));
}
