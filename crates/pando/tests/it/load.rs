//! A mixed load on a mount that records what must exist after a crash, and a verifier.
//!
//! Each thread works in a directory of its own. A file must be complete once its `fsync` returned;
//! before that it may be absent, or hold a prefix of what was written. A rename leaves exactly one
//! of the two names. A snapshot or a clone exists once its command succeeded.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use fastrand::Rng;

use crate::world::World;

/// What one thread knows about its directory.
#[derive(Default)]
pub(crate) struct Ledger {
    directory: PathBuf,
    /// Files, by name.
    files: BTreeMap<String, Expected>,
    /// Two names, exactly one of which exists.
    renames: Vec<(String, String, Expected)>,
    /// Copies of the whole directory, by path, with the files that they must hold.
    copies: Vec<(PathBuf, BTreeMap<String, Expected>)>,
    pub(crate) operations: u64,
}

/// The known contents of a file: they are generated from a seed.
#[derive(Clone, Copy)]
struct Expected {
    seed: u64,
    length: usize,
    durable: Durable,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Durable {
    /// Its `fsync` returned.
    Yes,
    /// It may exist in part, or not at all.
    Perhaps,
}

fn contents(seed: u64, length: usize) -> Vec<u8> {
    let mut random = Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

/// Works in `name` of the volume until the mount dies or `stop` is set.
pub(crate) fn work(world: &World, name: &str, seed: u64, stop: &AtomicBool) -> Ledger {
    let mut ledger = Ledger { directory: PathBuf::from(name), ..Ledger::default() };
    let place = world.below_mount(name);
    let mut random = Rng::with_seed(seed);
    let mut number = 0;
    if fs::create_dir(&place).and_then(|()| sync_dir(&world.mount_point)).is_err() {
        return ledger;
    }
    while !stop.load(Ordering::Relaxed) {
        number += 1;
        let done = match random.u32(..100) {
            0..70 => create(&mut ledger, &place, &mut random, number),
            70..80 => rename(&mut ledger, &place, &mut random, number),
            80..92 => remove(&mut ledger, &place, &mut random),
            92..96 => append(&mut ledger, &place, &mut random),
            _ => copy(&mut ledger, world, name, &mut random, number),
        };
        if done.is_err() {
            // The mount died, which is the purpose of the test.
            return ledger;
        }
        ledger.operations += 1;
    }
    ledger
}

fn sync_dir(path: &Path) -> io::Result<()> {
    fs::File::options().read(true).open(path)?.sync_all()
}

fn create(ledger: &mut Ledger, place: &Path, random: &mut Rng, number: u32) -> io::Result<()> {
    let name = format!("f{number}");
    let length = match random.u32(..10) {
        0..5 => random.usize(..4000),
        5..9 => random.usize(..40_000),
        _ => random.usize(..400_000),
    };
    let seed = random.u64(..);
    ledger.files.insert(name.clone(), Expected { seed, length, durable: Durable::Perhaps });
    let mut file = fs::File::options().create_new(true).write(true).open(place.join(&name))?;
    let bytes = contents(seed, length);
    for piece in bytes.chunks(random.usize(1000..100_000)) {
        file.write_all(piece)?;
    }
    if random.bool() {
        file.sync_all()?;
        ledger.files.insert(name, Expected { seed, length, durable: Durable::Yes });
    }
    Ok(())
}

fn pick(ledger: &Ledger, random: &mut Rng) -> Option<String> {
    let index = random.usize(..ledger.files.len().max(1));
    ledger.files.keys().nth(index).cloned()
}

fn rename(ledger: &mut Ledger, place: &Path, random: &mut Rng, number: u32) -> io::Result<()> {
    let Some(old) = pick(ledger, random) else { return Ok(()) };
    let new = format!("r{number}");
    let expected = ledger.files.remove(&old).unwrap();
    ledger.renames.push((old.clone(), new.clone(), expected));
    rustix::fs::rename(place.join(&old), place.join(&new))?;
    if random.bool() {
        sync_dir(place)?;
        ledger.renames.pop();
        ledger.files.insert(new, expected);
    }
    Ok(())
}

fn remove(ledger: &mut Ledger, place: &Path, random: &mut Rng) -> io::Result<()> {
    let Some(name) = pick(ledger, random) else { return Ok(()) };
    let expected = ledger.files.get_mut(&name).unwrap();
    expected.durable = Durable::Perhaps;
    fs::remove_file(place.join(&name))
}

/// Appends to a durable file: afterwards it has at least its old contents.
fn append(ledger: &mut Ledger, place: &Path, random: &mut Rng) -> io::Result<()> {
    let Some(name) = pick(ledger, random) else { return Ok(()) };
    let Some(expected) = ledger.files.get(&name).copied() else { return Ok(()) };
    if expected.durable == Durable::Perhaps {
        return Ok(());
    }
    let longer = expected.length + random.usize(1..5000);
    let bytes = contents(expected.seed, longer);
    let mut file = fs::File::options().append(true).open(place.join(&name))?;
    file.write_all(&bytes[expected.length..])?;
    file.sync_data()?;
    ledger.files.insert(name, Expected { length: longer, ..expected });
    Ok(())
}

/// A snapshot or a clone of the directory by the command: durable when it succeeds.
fn copy(
    ledger: &mut Ledger,
    world: &World,
    name: &str,
    random: &mut Rng,
    number: u32,
) -> io::Result<()> {
    let source = world.at(&format!("/{name}"));
    let (answer, path) = if random.bool() {
        let snapshot = format!("s{number}");
        let path = format!("{name}/.snapshots/{snapshot}");
        (world.run(&["snapshot", "create", &source, &snapshot]), path)
    } else {
        let path = format!("{name}-c{number}");
        (world.run(&["clone", &source, &world.at(&format!("/{path}"))]), path)
    };
    if answer.code != 0 {
        return Err(io::Error::other(answer.err));
    }
    // Every change that returned is in the copy, synced or not; removed files are not.
    let mut held = ledger.files.clone();
    held.retain(|file, _| world.below_mount(&format!("{name}/{file}")).exists());
    if fuse::find_mount(&world.mount_point).is_some() && world.below_mount(name).exists() {
        for expected in held.values_mut() {
            expected.durable = Durable::Yes;
        }
        ledger.copies.push((PathBuf::from(path), held));
    }
    Ok(())
}

impl Ledger {
    /// Checks the directory, and the copies made of it, after a crash.
    pub(crate) fn verify(&self, world: &World) {
        let place = world.mount_point.join(&self.directory);
        if !place.exists() {
            assert_eq!(self.operations, 0, "{} is gone", place.display());
            return;
        }
        for (name, expected) in &self.files {
            check(&place.join(name), *expected);
        }
        for (old, new, expected) in &self.renames {
            let (old, new) = (place.join(old), place.join(new));
            if expected.durable == Durable::Yes {
                let there = usize::from(old.exists()) + usize::from(new.exists());
                let shown = (old.display(), new.display());
                // It may have been renamed again or removed meanwhile, but never duplicated.
                assert!(there <= 1, "{} and {}", shown.0, shown.1);
            }
            let perhaps = Expected { durable: Durable::Perhaps, ..*expected };
            check(&old, perhaps);
            check(&new, perhaps);
        }
        let mut known: Vec<&str> = self.files.keys().map(String::as_str).collect();
        known.extend(self.renames.iter().flat_map(|(old, new, _)| [old.as_str(), new.as_str()]));
        for entry in fs::read_dir(&place).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(known.contains(&name.as_str()), "{name} was never made in {}", place.display());
        }
        for (path, files) in &self.copies {
            let copy = world.mount_point.join(path);
            assert!(copy.is_dir(), "{} is gone", copy.display());
            for (name, expected) in files {
                check(&copy.join(name), *expected);
            }
        }
    }
}

/// Checks one file.
fn check(path: &Path, expected: Expected) {
    let found = match fs::read(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            assert!(expected.durable == Durable::Perhaps, "{} is gone", path.display());
            return;
        }
        Err(error) => panic!("{}: {error}", path.display()),
    };
    // An interrupted append may have left a longer prefix.
    let all = contents(expected.seed, found.len().max(expected.length));
    assert!(found == all[..found.len()], "contents of {}", path.display());
    if expected.durable == Durable::Yes {
        assert!(found.len() >= expected.length, "{} is cut", path.display());
    }
}
