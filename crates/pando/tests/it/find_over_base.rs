//! Compares `pando find` with the machine's `find` where the index has a base and the tree differs
//! from it. It differs by moved directories, clones, rollbacks, removals, other owners and modes,
//! and more names. The rows must be the same, byte for byte, on both engines; also those that the
//! kernel caches. The search's own statistics must show that the rows came from clusters of the
//! base and not from a walk. The totals must equal those of a walk (`totals_over_base`).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::find::{compare, expression, found, name, tree};
use crate::find_words::{TAG, tag};
use crate::other_users::Nobody;
use crate::totals_over_base;
use crate::world::{NOBODY, PANDO, World, engines, is_root, wait_until};

/// Changes on top of a base before each comparison.
const CHANGES: usize = 30;
/// Rounds; the base is rebuilt before every other one, so that one base also serves two rounds.
const ROUNDS: usize = 2;
/// With `PANDO_SLOW`.
const ROUNDS_SLOW: usize = 8;
const EXPRESSIONS: usize = 20;
/// As an ordinary user.
const EXPRESSIONS_OF_NOBODY: usize = 8;
/// Tree size from which on no more clones are made.
const ENOUGH: usize = 1200;
/// Attempts per change: a randomly chosen file cannot always be changed in this way.
const ATTEMPTS: usize = 200;

const FIND: &[&str] = &["find", "."];

/// A change; each is made in turn.
type Change = fn(&mut Scene<'_>, &[PathBuf]) -> bool;

const KINDS: &[(&str, Change)] = &[
    ("move anything", move_anything),
    ("move a directory", move_directory),
    ("clone", clone),
    ("take a snapshot", take_snapshot),
    ("change a mode", change_mode),
    ("add a name", add_name),
    ("roll back", roll_back),
    ("make a file", make_file),
    ("remove a tree", remove_tree),
    ("make a directory", make_directory),
    ("change an owner", change_owner),
    ("remove a name", remove_name),
    ("make a link", make_link),
    ("write", write),
    ("change an attribute", change_attribute),
];

struct Scene<'a> {
    world: &'a World,
    root: PathBuf,
    random: fastrand::Rng,
    number: u64,
    /// Directories with snapshots, and the names of these.
    snapshots: Vec<(PathBuf, String)>,
}

/// All paths, relative to the root, which is the first one.
fn paths(root: &Path) -> Vec<PathBuf> {
    let program = FIND.iter().map(OsStr::new).collect::<Vec<_>>();
    let mut all: Vec<PathBuf> = found(&program, &["-print0".into()], root, 0)
        .into_iter()
        .filter(|record| !record.is_empty())
        .map(|record| PathBuf::from(OsString::from_vec(record)))
        .collect();
    all.sort_unstable();
    all
}

impl Scene<'_> {
    /// One of the paths but the root.
    fn any(&mut self, all: &[PathBuf]) -> PathBuf {
        self.root.join(&all[1 + self.random.usize(..all.len() - 1)])
    }

    /// A directory, perhaps the root.
    fn directory(&mut self, all: &[PathBuf]) -> PathBuf {
        loop {
            let path = self.root.join(&all[self.random.usize(..all.len())]);
            if path.symlink_metadata().unwrap().is_dir() {
                return path;
            }
        }
    }

    /// A name that does not exist.
    fn vacant(&mut self, all: &[PathBuf]) -> PathBuf {
        self.number += 1;
        let mut new = name(&mut self.random);
        new.push(self.number.to_string());
        self.directory(all).join(new)
    }

    fn pando(&self, words: &[&OsStr]) -> bool {
        self.world.run(words).code == 0
    }
}

fn move_anything(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let (from, to) = (scene.any(all), scene.directory(all));
    // Possibly over an existing file.
    let to = to.join(name(&mut scene.random));
    from != to && rustix::fs::rename(&from, &to).is_ok()
}

fn move_directory(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let (from, to) = (scene.directory(all), scene.vacant(all));
    from != scene.root.join(".") && rustix::fs::rename(&from, &to).is_ok()
}

fn clone(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let (source, to) = (scene.directory(all), scene.vacant(all));
    if all.len() > ENOUGH || source == scene.root.join(".") {
        return all.len() > ENOUGH;
    }
    scene.pando(&["clone".as_ref(), source.as_os_str(), to.as_os_str()])
}

fn take_snapshot(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    scene.number += 1;
    let (directory, name) = (scene.directory(all), format!("s{}", scene.number));
    let words = ["snapshot".as_ref(), "create".as_ref(), directory.as_os_str(), name.as_ref()];
    let taken = scene.pando(&words);
    scene.snapshots.push((directory, name));
    taken
}

fn roll_back(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    if scene.snapshots.is_empty() && !take_snapshot(scene, all) {
        return false;
    }
    let at = scene.random.usize(..scene.snapshots.len());
    let (directory, name) = scene.snapshots.swap_remove(at);
    // Another directory may have the path by now, without such a snapshot.
    directory.is_dir() && scene.pando(&["rollback".as_ref(), directory.as_ref(), name.as_ref()])
}

fn remove_tree(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let victim = scene.any(all);
    let below = all.iter().filter(|path| scene.root.join(path).starts_with(&victim)).count();
    // Most of it remains.
    below * 4 < all.len() && scene.pando(&["rmr".as_ref(), victim.as_os_str()])
}

fn change_mode(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let modes = [0o755, 0o700, 0o711, 0o777, 0o4755, 0o2755, 0o1777, 0o600, 0o640];
    let (path, mode) = (scene.any(all), modes[scene.random.usize(..modes.len())]);
    !path.is_symlink() && fs::set_permissions(path, PermissionsExt::from_mode(mode)).is_ok()
}

fn change_owner(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let ids = [0, 1, NOBODY, 12345];
    let id = ids[scene.random.usize(..ids.len())];
    !is_root() || lchown(scene.any(all), Some(id), Some(id)).is_ok()
}

fn change_attribute(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let path = scene.any(all);
    tag(&path, &mut scene.random);
    true
}

fn add_name(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let (from, to) = (scene.any(all), scene.vacant(all));
    // Not from one subvolume into another.
    fs::hard_link(from, to).is_ok()
}

fn make_file(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let size = [0, 1, 512, 513, 5000, 1 << 20][scene.random.usize(..6)];
    let path = scene.vacant(all);
    fs::File::create_new(path).is_ok_and(|file| file.set_len(size).is_ok())
}

fn make_directory(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let path = scene.vacant(all);
    fs::create_dir(path).is_ok()
}

fn make_link(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let (target, path) = (name(&mut scene.random), scene.vacant(all));
    symlink(target, path).is_ok()
}

fn remove_name(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let path = scene.any(all);
    fs::remove_file(&path).is_ok() || fs::remove_dir(&path).is_ok()
}

fn write(scene: &mut Scene<'_>, all: &[PathBuf]) -> bool {
    let path = scene.any(all);
    let Ok(found) = path.symlink_metadata() else { return false };
    if !found.is_file() {
        return false;
    }
    let size = scene.random.u64(0..3 << 20);
    let Ok(file) = fs::File::options().write(true).open(&path) else { return false };
    // So that no age is near a whole hour.
    let age = Duration::from_secs(scene.random.u64(0..200) * 3600 + 1800);
    let time = found.modified().unwrap() - age;
    file.set_len(size).is_ok() && file.set_times(fs::FileTimes::new().set_modified(time)).is_ok()
}

/// Waits until background work changes no more link counts.
fn settle(world: &World) {
    wait_until("the background rests", || {
        let background = world.status()["background"].clone();
        ["detached", "dropping", "prunes", "counting"].iter().all(|work| background[work] == 0)
    });
}

/// Fails unless clusters of a base answer a search, and no walk; returns how many it read.
fn by_clusters(root: &Path, words: &[OsString], place: &str) -> u64 {
    let output = World::command(&["find", "--stats", "."])
        .args(words)
        .current_dir(root)
        .envs([("LC_ALL", "C"), ("TZ", "America/New_York")])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().last().unwrap_or_default();
    let number = |part: &str| part.parse::<u64>().ok();
    let numbers: Vec<u64> = line.split(' ').filter_map(number).collect();
    // N matched; N rows tested; N of N clusters read; N walks; N directories not readable
    let [_, tested, read, clusters, walks, _] = numbers[..] else {
        panic!("{place}: {words:?}: {text}")
    };
    // No index has an order with contents before their directory.
    let is_walked = words.iter().any(|word| word == "-depth");
    assert_eq!(walks, u64::from(is_walked), "{place}: {words:?}: {text}");
    // Below a directory that is pruned, or at the maximum depth, nothing is searched.
    assert!(is_walked || clusters > 0 || tested <= 1, "{place}: {words:?}: {text}");
    read
}

#[expect(
    clippy::print_stdout,
    reason = "what a failure is repeated with, and how much was compared"
)]
fn check(engine: &str, seed: u64) {
    println!("{engine}: seed {seed}");
    let world = World::without_volume();
    world.ok(&["format", "--engine", engine, world.vol()]);
    let nobody = is_root().then(|| Nobody::new(&world));
    let options: &[&str] = if nobody.is_some() { &["-o", "allow_other"] } else { &[] };
    if !world.mount_with(options) {
        return;
    }
    // Clusters of a few directories, so that most results are in unchanged clusters.
    world.ok(&["search", "limits", world.mnt(), "--directories", "4", "--inodes", "12"]);
    let mut random = fastrand::Rng::with_seed(seed);
    if random.bool() {
        // Then its values are in clusters.
        world.ok(&["search", "declare", world.mnt(), TAG]);
    }
    let root = world.below_mount("tree");
    fs::create_dir(&root).unwrap();
    tree(&root, &mut random);
    let mut scene =
        Scene { world: &world, root: root.clone(), random, number: 0, snapshots: Vec::new() };
    let theirs: Vec<&OsStr> = FIND.iter().map(OsStr::new).collect();
    let ours = [&[OsStr::new(PANDO)], &theirs[..]].concat();
    // Nobody may enter it, and its contents are in the base.
    let closed = root.join("closed0");
    fs::create_dir_all(closed.join("below")).unwrap();
    fs::write(closed.join("below/report.txt"), "x").unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let agree = |words: &[OsString]| {
        if found(&theirs, words, &root, 0) != found(&ours, words, &root, 0) {
            // A clone may have got a tree of its own between the two runs, and then counts only
            // its own names.
            settle(&world);
        }
        compare(&theirs, &ours, words, &root, seed)
    };
    let place = format!("{engine}: seed {seed}");
    let (mut kind, mut some, mut read) = (0, 0, 0);
    let rounds = if testing::run::slow() { ROUNDS_SLOW } else { ROUNDS };
    for round in 0..rounds {
        if round % 2 == 0 {
            world.ok(&["search", "flush", world.mnt()]);
        }
        for _ in 0..CHANGES {
            let (what, change) = KINDS[kind % KINDS.len()];
            kind += 1;
            let done = (0..ATTEMPTS).any(|_| {
                let all = paths(&root);
                change(&mut scene, &all)
            });
            assert!(done, "{place}: nothing to {what}");
        }
        settle(&world);
        let all = paths(&root);
        println!("round {round}: {} things", all.len());
        // A listing updates access times; the second one does not.
        found(&theirs, &[], &root, 0);
        for _ in 0..EXPRESSIONS {
            let mut words = expression(&root, &all, false, &mut scene.random, 0);
            words.insert(0, "(".into());
            words.extend([")".into(), "-print0".into()]);
            some += u32::from(agree(&words));
            read += by_clusters(&root, &words, &place);
        }
        for format in ["%p|%y|%m|%n|%U|%G|%s|%i|%l|%T@|%C@\\0", "%p|%d|%H|%f|%h|%b|%D|%A@\\0"] {
            let words = ["-printf".into(), format.into()];
            agree(&words);
            assert_ne!(by_clusters(&root, &words, &place), 0, "{place}: all rows are elsewhere");
        }
        if let Some(nobody) = &nobody {
            as_nobody(&mut scene, nobody, seed, &place);
        }
        totals_over_base::compare(&world, nobody.as_ref(), &root, &mut scene.random, &place);
    }
    println!("{some} of {} expressions found something", rounds * EXPRESSIONS);
    println!("{read} clusters were read for them");
    assert!(read > (rounds * EXPRESSIONS) as u64, "{place}: {read} clusters were read");
    world.umount();
    world.ok(&["fsck", world.vol()]);
}

/// The same as an ordinary user, who may not enter every directory.
fn as_nobody(scene: &mut Scene<'_>, nobody: &Nobody, seed: u64, place: &str) {
    let root = scene.root.clone();
    // find also finds names in directories that are only readable.
    for directory in paths(&root).iter().map(|path| root.join(path)) {
        let found = directory.symlink_metadata().unwrap();
        let mode = found.permissions().mode() & 0o7777;
        let searched = mode | (mode & 0o444) >> 2;
        if found.is_dir() && searched != mode {
            fs::set_permissions(&directory, PermissionsExt::from_mode(searched)).unwrap();
        }
    }
    // There is a directory that this user may not enter.
    let mut names = (0..).map(|number| root.join(format!("closed{number}")));
    let is_or_made = |path: &PathBuf| {
        path.symlink_metadata().is_ok_and(|found| found.is_dir()) || fs::create_dir(path).is_ok()
    };
    let closed = names.find(is_or_made).unwrap();
    lchown(&closed, Some(0), Some(0)).unwrap();
    fs::set_permissions(&closed, PermissionsExt::from_mode(0o700)).unwrap();
    let (becomes, program) = nobody.becomes();
    let becomes: Vec<&OsStr> = becomes.iter().map(OsString::as_os_str).collect();
    let theirs = [&becomes[..], &FIND.iter().map(OsStr::new).collect::<Vec<_>>()].concat();
    let mut ours = [&becomes[..], &[program.as_os_str()]].concat();
    ours.extend(FIND.iter().map(OsStr::new));
    found(&theirs, &[], &root, 0);
    // The file to compare with is opened.
    let readable = found(&theirs, &["-readable".into(), "-print0".into()], &root, 0);
    let readable = readable.into_iter().filter(|path| !path.is_empty());
    let all: Vec<PathBuf> = readable.map(|path| OsString::from_vec(path).into()).collect();
    for _ in 0..EXPRESSIONS_OF_NOBODY {
        let mut words = expression(&root, &all, true, &mut scene.random, 0);
        words.insert(0, "(".into());
        words.extend([")".into(), "-print0".into()]);
        compare(&theirs, &ours, &words, &root, seed);
        // Ordinary users get no statistics; root is answered in the same way.
        by_clusters(&root, &words, place);
    }
    let reported = nobody.run(&["find".as_ref(), root.as_os_str(), "--stats".as_ref()]);
    let unreadable = reported.err.split("; ").last().unwrap_or_default();
    assert!(
        unreadable.contains("not readable") && !unreadable.starts_with("0 "),
        "{place}: {}",
        reported.err
    );
}

#[test]
fn searches_over_a_changed_base_agree_with_gnu_find() {
    // Directories are closed at random, and the test continues with them.
    if !is_root() {
        return;
    }
    for engine in engines("lsm") {
        check(engine, testing::run::seed());
    }
}
