//! The daemon is killed under random operations while the next base of the index is requested and
//! written. The moments are random, and in the middle of the base's files. After each kill,
//! `pando find` must find over the mount what GNU `find` finds by walking it, and must use
//! clusters. `PANDO_KILL_ROUNDS` sets the number of rounds.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use fastrand::Rng;
use testing::SetAtEnd;

use crate::find::{SOME, compare};
use crate::world::{PANDO, World, wait_until};

on_one_engine!("btree": after_every_kill_queries_find_what_a_walk_finds);

/// Files with names so long that their rows are not held in memory without a base.
const DIRECTORIES: usize = 24;
const FILES: usize = 500;
const NAME_BYTES: usize = 225;
/// Directories that operations change and queries search.
const BUSY: usize = 6;

fn rounds() -> u64 {
    let set = std::env::var("PANDO_KILL_ROUNDS").ok();
    set.and_then(|rounds| rounds.parse().ok()).unwrap_or(4)
}

fn file(number: usize) -> String {
    format!("f{number:x<NAME_BYTES$}")
}

fn rename(old: &Path, new: &Path) -> std::io::Result<()> {
    Ok(rustix::fs::rename(old, new)?)
}

/// Runs one random operation below a random directory; most fail now and then, which does not
/// matter.
fn operate(tree: &Path, number: u64, random: &mut Rng) {
    let directory = |random: &mut Rng| tree.join(format!("d{}", random.usize(..BUSY)));
    let old = |random: &mut Rng| directory(random).join(file(random.usize(..FILES)));
    let new = directory(random).join(format!("new{number}.txt"));
    let done = match random.u8(..12) {
        0..=3 => fs::write(&new, vec![b'x'; random.usize(..3000)]),
        4..=5 => fs::remove_file(old(random)),
        6 => rename(&old(random), &new),
        7 => fs::set_permissions(old(random), PermissionsExt::from_mode(0o4711)),
        8 => fs::hard_link(old(random), &new),
        9 => symlink("nowhere0", &new),
        10 => fs::create_dir(&new),
        // A whole directory moves into another, and back.
        _ => rename(&directory(random), &directory(random).join("moved"))
            .or_else(|_| rename(&directory(random).join("moved"), &tree.join("d1"))),
    };
    drop(done);
}

/// An expression of one to three tests that do not depend on the current time.
fn expression(random: &mut Rng) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec!["(".into()];
    for at in 0..random.usize(1..4) {
        if at > 0 {
            words.push(["-o", "-a"][random.usize(..2)].into());
        }
        let steady = |test: &&&str| !test.starts_with("-a") && !test.contains("min");
        let tests: Vec<&&str> = SOME.iter().filter(steady).collect();
        words.extend(tests[random.usize(..tests.len())].split(' ').map(OsString::from));
    }
    words.extend([")".into(), "-print0".into()]);
    words
}

/// The latest base that any file of the index was written for, and the latest complete one.
fn bases(world: &World) -> (u64, u64) {
    let files = fs::read_dir(world.volume.join("index"));
    let files = files.into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    let (mut any, mut whole) = (0, 0);
    for name in names {
        let Some((kind, rest)) = name.split_once('-') else { continue };
        let Ok(base) = u64::from_str_radix(rest.get(..16).unwrap_or_default(), 16) else {
            continue;
        };
        any = any.max(base);
        if kind == "manifest" {
            whole = whole.max(base);
        }
    }
    (any, whole)
}

/// Fails if a search below a directory was answered by a walk; returns the number of clusters.
fn clusters(place: &Path, seed: u64) -> u64 {
    let words = ["find", "--stats", "--json", place.to_str().unwrap(), "-size", "+0", "-count"];
    let output = World::command(&words).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let reported: serde_json::Value =
        serde_json::from_str(text.trim()).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert_eq!(reported["stats"]["walked"], 0, "seed {seed}: {}: {reported}", place.display());
    reported["stats"]["clusters"].as_u64().unwrap()
}

fn check(tree: &Path, random: &mut Rng, seed: u64) {
    assert!(clusters(tree, seed) > 1, "seed {seed}: no clusters");
    let theirs = ["find", "."].map(OsStr::new);
    let ours = [OsStr::new(PANDO), "find".as_ref(), ".".as_ref()];
    let all = ["-printf", "%p %y %s %m %n %U %T@ %l\\0"].map(OsString::from);
    for number in 0..BUSY {
        let place = tree.join(format!("d{number}"));
        // A directory may have been moved into another.
        if place.is_dir() {
            compare(&theirs, &ours, &all, &place, seed);
        }
    }
    let whole = ["-type", "d", "-print0"].map(OsString::from);
    compare(&theirs, &ours, &whole, tree, seed);
    for _ in 0..6 {
        let place = tree.join(format!("d{}", random.usize(..BUSY)));
        if place.is_dir() {
            compare(&theirs, &ours, &expression(random), &place, seed);
        }
    }
}

#[expect(clippy::print_stdout, reason = "shows how far it is")]
fn after_every_kill_queries_find_what_a_walk_finds(engine: &str) {
    let seed = testing::run::seed();
    let mut random = Rng::with_seed(seed);
    let world = World::on(engine);
    if !world.mount() {
        return;
    }
    let source = world.path().join("source");
    for directory in 0..DIRECTORIES {
        let place: PathBuf = source.join(format!("d{directory}"));
        fs::create_dir_all(&place).unwrap();
        for number in 0..FILES {
            fs::write(place.join(file(number)), []).unwrap();
        }
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/source")]);
    let tree = world.below_mount("source");
    let indexed = || {
        let find = Command::new(PANDO).arg("find").arg(&tree).args(["-name", "f7x*"]).output();
        assert_eq!(find.unwrap().stdout.split(|byte| *byte == b'\n').count(), DIRECTORIES + 1);
        fs::read_dir(Path::new(world.vol()).join("index")).is_ok_and(|mut files| {
            files.any(|file| file.unwrap().file_name().to_string_lossy().starts_with("manifest-"))
        })
    };
    wait_until("the index has a base", indexed);
    // A base of many files, so that a kill can fall between two of them.
    world.ok(&["search", "limits", world.mnt(), "--inodes", "200"]);
    world.ok(&["search", "flush", world.mnt()]);
    let (clock, mut midst) = (SystemClock::new(), 0);
    for round in 0..rounds() {
        let stop = AtomicBool::new(false);
        let started = random.u64(..);
        let pause = Duration::from_millis(random.u64(30..500));
        let (before, _) = bases(&world);
        let is_midst = || {
            let (any, whole) = bases(&world);
            any > whole.max(before)
        };
        device::scope(|scope| {
            let (tree, stop) = (&tree, &stop);
            let worker = scope.spawn(move || {
                let mut random = Rng::with_seed(started);
                let mut number = round << 32;
                // Ends when the mount is gone.
                while !stop.load(Ordering::Relaxed) && tree.is_dir() {
                    number += 1;
                    operate(tree, number, &mut random);
                }
                number - (round << 32)
            });
            let flusher = scope.spawn(move || {
                let mut asked = 0;
                while !stop.load(Ordering::Relaxed) && tree.is_dir() {
                    // The last one gets no answer.
                    drop(World::command(&["search", "flush", tree.to_str().unwrap()]).output());
                    asked += 1;
                }
                asked
            });
            let end = SetAtEnd(stop);
            clock.sleep(pause);
            if round % 2 == 0 {
                wait_until("a base is being written", is_midst);
            }
            world.kill_daemon();
            let is_midst = is_midst();
            drop(end);
            let (operations, asked) = (worker.join().unwrap(), flusher.join().unwrap());
            midst += u64::from(is_midst);
            println!("round {round}: {operations} operations, {asked} flushes, midst: {is_midst}");
        });
        assert!(world.mount());
        check(&tree, &mut random, seed);
    }
    assert!(midst > 0, "seed {seed}: no base was being written when the daemon was killed");
    world.ok(&["search", "flush", world.mnt()]);
    check(&tree, &mut random, seed);
    world.umount();
    world.ok(&["fsck", world.vol()]);
}
