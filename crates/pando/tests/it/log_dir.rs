//! A volume whose log is stored elsewhere, as BabuDB's is on a disk of its own.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tempfile::TempDir;

use crate::world::{World, engines};

/// A directory on a different disk from the volumes of tests, where the machine has one.
fn elsewhere() -> TempDir {
    let memory = Path::new("/dev/shm");
    let below = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("pando-it-log-").tempdir_in(below).unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[expect(clippy::disallowed_methods, reason = "somebody else does it, in the middle of nothing")]
fn put_away(from: &Path, to: &Path) {
    std::fs::rename(from, to).unwrap();
}

fn put(world: &World, name: &str) {
    let file = world.path().join(name);
    std::fs::write(&file, name).unwrap();
    world.ok(&["import", file.to_str().unwrap(), &world.at(&format!("/{name}"))]);
}

/// Durable changes survive a crash through the log that is stored elsewhere. Without the log the
/// volume is not opened, and no new log is created.
#[test]
fn the_log_may_be_on_another_disk() {
    for engine in engines("lsm") {
        let (world, place) = (World::without_volume(), elsewhere());
        let log = place.path().join("log-of-this");
        let log_dir = log.to_str().unwrap();
        let made = world.json(&["format", world.vol(), "--engine", engine, "--log-dir", log_dir]);
        assert_eq!(made[0]["log_dir"], log_dir);
        assert!(names(&log).iter().any(|name| name.starts_with("0000")), "{:?}", names(&log));
        let link = world.volume.join("log");
        assert_eq!(std::fs::read_link(&link).unwrap(), log);
        for name in ["one", "two", "three"] {
            put(&world, name);
            world.ok(&["sync", world.vol()]);
            world.kill_daemon();
        }
        for name in ["one", "two", "three"] {
            assert_eq!(world.ok(&["cat", &world.at(&format!("/{name}"))]), name, "{engine}");
        }
        world.kill_daemon();
        assert!(world.run(&["fsck", world.vol()]).code == 0, "{engine}");
        world.kill_daemon();
        // The log's disk is not mounted.
        let away = place.path().join("away");
        put_away(&log, &away);
        let before = names(&world.volume);
        let answer = world.run(&["ls", &world.at("/")]);
        assert!(answer.code != 0 && answer.err.contains("log"), "{engine}: {}", answer.err);
        assert!(!log.exists() && names(&world.volume).contains(&"log".to_owned()), "{before:?}");
        put_away(&away, &log);
        assert_eq!(world.ok(&["cat", &world.at("/three")]), "three", "{engine}");
        if log.metadata().unwrap().dev() == world.path().metadata().unwrap().dev() {
            println!("not tested with two media: there is one");
        }
    }
}

#[test]
fn a_log_is_not_created_in_a_used_directory() {
    let (world, place) = (World::without_volume(), elsewhere());
    let log_dir = place.path().to_str().unwrap();
    std::fs::write(place.path().join("letter"), "dear").unwrap();
    let printed = world.fails(6, &["format", world.vol(), "--log-dir", log_dir]);
    assert!(printed.contains("not empty"), "{printed}");
    assert!(!world.volume.exists());
    assert_eq!(names(place.path()), ["letter"]);
    std::fs::remove_file(place.path().join("letter")).unwrap();
    world.ok(&["format", world.vol(), "--log-dir", log_dir]);
    // Another volume's log is there.
    let other = world.path().join("other");
    let there = names(place.path());
    world.fails(6, &["format", other.to_str().unwrap(), "--log-dir", log_dir]);
    assert!(!other.exists());
    assert_eq!(names(place.path()), there);
    // Nothing is left behind if the volume could not be created.
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("letter"), "dear").unwrap();
    let log = world.path().join("log-of-other");
    world.fails(6, &["format", other.to_str().unwrap(), "--log-dir", log.to_str().unwrap()]);
    assert!(!log.exists());
    assert_eq!(names(&other), ["letter"]);
}

/// The log of a copied volume belongs to the original: the copy is refused, and the original is
/// unchanged. A moved volume is opened.
#[test]
fn a_copy_does_not_get_the_log_of_the_first() {
    let (world, place) = (World::without_volume(), elsewhere());
    let log = place.path().join("log");
    world.ok(&["format", world.vol(), "--log-dir", log.to_str().unwrap()]);
    put(&world, "one");
    world.ok(&["sync", world.vol()]);
    world.kill_daemon();
    let copy = world.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(&world.volume).arg(&copy).status();
    assert!(copied.unwrap().success());
    let before = names(&log);
    for verb in ["status", "fsck"] {
        let printed = world.run(&[verb, copy.to_str().unwrap()]);
        assert!(printed.code != 0 && printed.err.contains("belongs to"), "{verb}: {}", printed.err);
        assert!(printed.err.contains(world.vol()), "{}", printed.err);
    }
    assert_eq!(names(&log), before);
    assert_eq!(world.ok(&["cat", &world.at("/one")]), "one");
    world.kill_daemon();
    // The first moves away, and the copy is put in its place.
    let moved = world.path().join("moved");
    put_away(&world.volume, &moved);
    put_away(&copy, &world.volume);
    let printed = world.run(&["fsck", world.vol()]);
    assert!(printed.code != 0 && printed.err.contains("belongs to"), "{}", printed.err);
    world.ok(&["fsck", moved.to_str().unwrap()]);
}

/// A check writes nothing to the log's directory, and no command writes into a directory without a
/// log: the log's disk is not mounted.
#[test]
fn nothing_is_written_if_there_is_no_log() {
    let (world, place) = (World::without_volume(), elsewhere());
    let log = place.path().join("log");
    world.ok(&["format", world.vol(), "--log-dir", log.to_str().unwrap()]);
    let back = names(&log).into_iter().find(|name| name.starts_with("volume.")).unwrap();
    // A log placed there by hand does not name its volume; opening adds the name.
    std::fs::remove_file(log.join(&back)).unwrap();
    let before = names(&log);
    world.ok(&["fsck", world.vol()]);
    assert_eq!(names(&log), before);
    assert_eq!(world.ok(&["ls", &world.at("/")]), "");
    world.kill_daemon();
    assert!(names(&log).contains(&back));
    put_away(&log, &place.path().join("unmounted"));
    std::fs::create_dir(&log).unwrap();
    for verb in ["status", "fsck"] {
        assert!(world.run(&[verb, world.vol()]).code != 0);
        assert!(names(&log).is_empty(), "{verb}: {:?}", names(&log));
    }
}

/// If several processes create volumes with one log at once, one gets it, and its volume is
/// complete.
#[test]
fn one_of_many_openers_gets_a_log() {
    let (world, place) = (World::without_volume(), elsewhere());
    let log = place.path().join("log");
    let volumes: Vec<_> = (0..6).map(|n| world.path().join(format!("v{n}"))).collect();
    let made: Vec<bool> = device::scope(|scope| {
        let run = |volume: &Path| {
            let (volume, log) = (volume.to_str().unwrap(), log.to_str().unwrap());
            world.run(&["format", volume, "--log-dir", log]).code == 0
        };
        let all: Vec<_> = volumes.iter().map(|volume| scope.spawn(move || run(volume))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert!(made.iter().filter(|made| **made).count() <= 1, "{made:?}");
    for (volume, made) in volumes.iter().zip(made) {
        assert_eq!(volume.join("volume.pando").exists(), made);
        if made {
            world.ok(&["fsck", volume.to_str().unwrap()]);
        }
    }
}
