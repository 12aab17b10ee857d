//! Verbs over the network that move data, or that administer. Each has the effect that it has on
//! the server's machine, and the rights of the client's certificate.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::certificates::Certificates;
use crate::far::Served;
use crate::world::{PANDO, World, is_root};

/// All names below a directory, with contents.
fn tree(directory: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    let mut found = Vec::new();
    let mut left = vec![directory.to_owned()];
    while let Some(next) = left.pop() {
        for entry in fs::read_dir(&next).unwrap() {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(directory).unwrap().to_owned();
            if path.is_dir() {
                left.push(path);
                found.push((name, None));
            } else {
                found.push((name, Some(fs::read(&path).unwrap())));
            }
        }
    }
    found.sort();
    found
}

fn source(world: &World) -> PathBuf {
    let source = world.path().join("source");
    for number in 0..40 {
        let directory = source.join(format!("d{}", number % 7));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{number}")), vec![number as u8; 5000 * number]).unwrap();
    }
    source
}

#[test]
fn trees_are_imported_and_exported() {
    let world = World::new();
    let served = Served::start(&world, &[]);
    let source = source(&world);
    world.ok(&["import", source.to_str().unwrap(), &served.below("/tree")]);
    let out = world.path().join("out");
    world.ok(&["export", &served.below("/tree"), out.to_str().unwrap()]);
    assert_eq!(tree(&out), tree(&source));
    let archive = world.path().join("tree.tar");
    let archive = archive.to_str().unwrap();
    world.ok(&["export", "--format", "tar", &served.below("/tree"), archive]);
    world.ok(&["import", "--format", "tar", archive, &served.below("/again")]);
    let again = world.path().join("again");
    world.ok(&["export", &served.below("/again"), again.to_str().unwrap()]);
    assert_eq!(tree(&again), tree(&source));
    let refused = world.fails(2, &["import", &served.below("/tree"), &served.below("/other")]);
    assert!(refused.contains("not out of a volume"), "{refused}");
}

/// The output of a command as the input of another.
fn piped(from: &[&str], to: &[&str]) {
    let mut sends = Command::new(PANDO).args(from).stdout(Stdio::piped()).spawn().unwrap();
    let stream = sends.stdout.take().unwrap();
    let receives = Command::new(PANDO).args(to).stdin(stream).output().unwrap();
    assert!(sends.wait().unwrap().success(), "{from:?}");
    let error = String::from_utf8_lossy(&receives.stderr);
    assert!(receives.status.success(), "{to:?}: {error}");
}

#[test]
fn snapshots_are_sent_and_received_and_dumps_loaded() {
    if !is_root() {
        return;
    }
    let (world, other) = (World::new(), World::new());
    let (served, to) = (Served::start(&world, &[]), Served::start(&other, &[]));
    let source = source(&world);
    world.ok(&["subvolume", "create", &served.below("/s")]);
    world.ok(&["import", source.to_str().unwrap(), &served.below("/s/tree")]);
    world.ok(&["snapshot", "create", &served.below("/s"), "one"]);
    piped(&["send", &served.below("/s@one")], &["receive", &to.below("/r")]);
    world.ok(&["rmr", &served.below("/s/tree/d1")]);
    world.ok(&["snapshot", "create", &served.below("/s"), "two"]);
    let from = served.below("/s@one");
    piped(&["send", "--from", &from, &served.below("/s@two")], &["receive", &to.below("/r")]);
    let out = world.path().join("received");
    other.ok(&["export", &to.below("/r/tree"), out.to_str().unwrap()]);
    let mut expected = tree(&source);
    expected.retain(|(path, _)| !path.starts_with("d1"));
    assert_eq!(tree(&out), expected);
    piped(&["dump", &served.below("/s")], &["load", &to.below("/loaded")]);
    let out = world.path().join("loaded");
    other.ok(&["export", &to.below("/loaded/tree"), out.to_str().unwrap()]);
    // A dump has no contents, and sizes.
    let sizes = |tree: Vec<(PathBuf, Option<Vec<u8>>)>| -> Vec<_> {
        tree.into_iter().map(|(path, contents)| (path, contents.map(|of| of.len()))).collect()
    };
    assert_eq!(sizes(tree(&out)), sizes(expected));
}

#[test]
fn trash_quotas_and_restores_are_the_servers() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    let source = source(&world);
    world.ok(&["import", source.to_str().unwrap(), &served.below("/tree")]);
    world.ok(&["trash", "on", &served.below("/tree"), "--keep", "1d"]);
    world.ok(&["rmr", &served.below("/tree/d3")]);
    let listed = world.ok(&["trash", "list", &served.below("/tree")]);
    assert!(listed.contains("d3"), "{listed}");
    world.ok(&["restore", &served.below("/tree/d3")]);
    assert!(world.ok(&["ls", &served.below("/tree")]).contains("d3"));
    world.ok(&["trash", "off", &served.below("/tree")]);
    world.ok(&["quota", "set", &served.below("/tree"), "--bytes", "1G"]);
    let quota = world.ok(&["quota", "get", &served.below("/tree")]);
    assert!(quota.contains("1.00 GiB"), "{quota}");
    // It is the one that the server's machine sees, too.
    let own = world.ok(&["quota", "get", &world.at("/tree")]);
    let rest = |text: &str| text.split_once(' ').map(|(_, rest)| rest.to_owned());
    assert_eq!(rest(&quota), rest(&own));
    world.ok(&["quota", "check", &served.url]);
}

/// A certificate whose root is nobody, and one for a user, do not do what takes root.
#[test]
fn rights_are_those_of_the_certificate() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let certificates = Certificates::new(&world, "root", &["--keep-root"]);
    certificates.add("squashed", &[]);
    certificates.add("reads", &["--read-only", "--keep-root"]);
    let served = Served::start(&world, &certificates.of_server().each_ref().map(String::as_str));
    let run = |client: &str, arguments: &[&str]| certificates.run(client, arguments);
    let source = source(&world);
    let source = source.to_str().unwrap();
    let (works, error) = run("root", &["import", source, &served.below("/tree")]);
    assert!(works, "{error}");
    let at = |path: &str| served.below(path);
    for arguments in [
        &["import", source, &at("/other")][..],
        &["receive", &at("/received")],
        &["trash", "on", &at("/tree"), "--keep", "1d"],
        &["quota", "set", &at("/tree"), "--bytes", "1"],
        &["quota", "check", &served.url],
        &["rmr", &at("/tree/d1")],
    ] {
        for client in ["squashed", "reads"] {
            let (works, error) = run(client, arguments);
            assert!(!works, "{client}: {arguments:?} works");
            let why = ["ermission", "only root", "only read", "not permitted"];
            assert!(why.iter().any(|why| error.contains(why)), "{client} {arguments:?}: {error}");
        }
    }
    let listed = world.ok(&["ls", &world.at("/")]);
    assert_eq!(listed.trim(), "tree", "nothing was made");
    assert_eq!(world.ok(&["ls", &world.at("/tree")]).lines().count(), 7);
}

/// They read or change the whole volume, for root of a certificate with `--keep-root`.
#[test]
fn checks_collections_and_settings_of_the_index_are_those_of_the_server() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let served = Served::start(&world, &[]);
    world.ok(&["import", source(&world).to_str().unwrap(), &served.below("/tree")]);
    world.ok(&["fsck", &served.url]);
    let refused = world.fails(1, &["fsck", "--repair", &served.url]);
    assert!(refused.contains("end the server"), "{refused}");
    let collected = world.ok(&["gc", &served.url]);
    assert!(collected.contains("of contents"), "{collected}");
    world.ok(&["search", "declare", &served.url, "user.project"]);
    assert!(world.ok(&["search", "list", &served.url]).contains("user.project"));
    world.ok(&["search", "flush", &served.below("/tree")]);
    let limits = world.ok(&["search", "limits", &served.url]);
    assert!(limits.contains("a cluster has at most"), "{limits}");
    world.ok(&["search", "undeclare", &served.url, "user.project"]);
    // Here they are what they were.
    assert!(!world.ok(&["search", "list", world.vol()]).contains("user.project"));
}
