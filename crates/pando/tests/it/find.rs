//! Compares `pando find` with the machine's `find`, on random trees with random expressions: the
//! same rows, byte for byte.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::find_words::{self, ZONE, gnu};
use crate::world::{IDLE_SECONDS, NOBODY, PANDO, World, copy_program, is_root};

const HOUR: u64 = 3600;

pub(crate) fn name(random: &mut fastrand::Rng) -> OsString {
    let names: &[&[u8]] = &[
        b"a",
        b"b",
        b"report.txt",
        b"data.h5",
        b"x.H5",
        b"two words",
        b"new\nline",
        b"\xff\xfe",
        b"st*r",
        b"[x]",
        b"-dash",
        b".hidden",
        b"q\"uote\\",
        b"caf\xc3\xa9",
    ];
    let mut name = names[random.usize(..names.len())].to_vec();
    if random.bool() {
        name.push(b'0' + random.u8(0..10));
    }
    OsString::from_vec(name)
}

/// A tree with something of every kind; returns all paths in it, relative to its root.
pub(crate) fn tree(root: &Path, random: &mut fastrand::Rng) -> Vec<PathBuf> {
    let mut directories = vec![PathBuf::from(".")];
    let mut all = vec![PathBuf::from(".")];
    // So that no file's age is near a whole day or hour.
    #[expect(clippy::disallowed_methods, reason = "the ages are those that find sees")]
    let now = SystemTime::now();
    for _ in 0..120 {
        let below = directories[random.usize(..directories.len())].join(name(random));
        let path = root.join(&below);
        if path.symlink_metadata().is_ok() {
            continue;
        }
        match random.u8(0..20) {
            0..=4 => {
                fs::create_dir(&path).unwrap();
                let modes = [0o755, 0o700, 0o711, 0o777, 0o750, 0o1777, 0o2755];
                let mode = modes[random.usize(..modes.len())];
                fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
                directories.push(below.clone());
            }
            5..=6 => symlink(name(random), &path).unwrap(),
            7 => {
                let other = &all[random.usize(..all.len())];
                if root.join(other).symlink_metadata().unwrap().is_dir()
                    || fs::hard_link(root.join(other), &path).is_err()
                {
                    continue;
                }
            }
            8 => drop(Command::new("mkfifo").arg(&path).status().unwrap()),
            _ => {
                let sizes = [0, 1, 511, 512, 513, 1024, 5000, 1 << 20, (1 << 20) + 1, 3 << 20];
                let file = fs::File::create_new(&path).unwrap();
                file.set_len(sizes[random.usize(..sizes.len())]).unwrap();
                let age = Duration::from_secs(random.u64(0..200) * HOUR + HOUR / 2);
                let times =
                    fs::FileTimes::new().set_modified(now - age).set_accessed(now - age / 2);
                file.set_times(times).unwrap();
                let modes = [0o644, 0o600, 0o755, 0o4755, 0o000, 0o666, 0o640];
                let mode = modes[random.usize(..modes.len())];
                fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
            }
        }
        if is_root() && random.u8(0..3) == 0 {
            let ids = [0, 1, NOBODY, 12345];
            let id = ids[random.usize(..ids.len())];
            let mode = path.symlink_metadata().unwrap().mode();
            std::os::unix::fs::lchown(&path, Some(id), Some(id)).unwrap();
            if !path.is_symlink() {
                fs::set_permissions(&path, PermissionsExt::from_mode(mode & 0o7777)).unwrap();
            }
        }
        find_words::tag(&path, random);
        all.push(below);
    }
    all
}

/// A random expression without actions.
pub(crate) fn expression(
    root: &Path,
    all: &[PathBuf],
    ordinary: bool,
    random: &mut fastrand::Rng,
    depth: u32,
) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    let more = random.u8(0..3);
    for at in 0..=more {
        if at > 0 {
            // No comma: findutils 4.9 puts cheap tests first, also across it.
            words.push(["-o", "-a", "-or", "-and"][random.usize(..4)].into());
        }
        if random.u8(0..4) == 0 {
            words.push(["!", "-not"][random.usize(..2)].into());
        }
        if depth < 2 && random.u8(0..4) == 0 {
            words.push("(".into());
            words.extend(expression(root, all, ordinary, random, depth + 1));
            words.push(")".into());
        } else {
            words.extend(primary(root, all, ordinary, random));
        }
    }
    words
}

/// Tests, and options among them, that do not depend on the tree.
pub(crate) const SOME: &[&str] = &[
    "-name *.h5",
    "-iname *.h5",
    "-name [ab]*",
    "-name *[!0-9]",
    "-iname *R*",
    "-name .",
    "-name ?",
    "-name st\\*r*",
    "-name [[:alpha:]]",
    "-path */a/*",
    "-path ./*",
    "-ipath *A*",
    "-wholename *",
    "-regex .*/[a-d]+[0-9]?",
    "-regex .*\\(txt\\|h5\\)",
    "-iregex .*H5.?",
    "-regextype posix-extended -regex (.*/)?.{1,3}",
    "-regextype posix-basic -regex .*a\\?b*",
    "-type f",
    "-type d",
    "-type l,p",
    "-type f,d,l",
    "-size 1",
    "-size +1k",
    "-size -2",
    "-size 0",
    "-size -1M",
    "-size +1M",
    "-size 513c",
    "-size 2w",
    "-size 1M",
    "-size -1G",
    "-uid 0",
    "-uid +1",
    "-uid -5",
    "-gid 12345",
    "-user root",
    "-group root",
    "-user 12345",
    "-nouser",
    "-nogroup",
    "-perm 644",
    "-perm -111",
    "-perm /222",
    "-perm -u+w,g+r",
    "-perm /u=s,g=s",
    "-perm -o=t",
    "-perm u=rw,go=r",
    "-perm /000",
    "-perm a=X",
    "-mtime 0",
    "-mtime 1",
    "-mtime +2",
    "-mtime -3",
    "-atime +1",
    "-atime -2",
    "-ctime 0",
    "-ctime -1",
    "-mmin +100",
    "-mmin -1000",
    "-mmin 31",
    "-amin -500",
    "-cmin -60",
    "-mtime 1.5",
    "-mtime -0.5",
    "-daystart -mtime 1",
    "-daystart -mtime -2",
    "-links 1",
    "-links +1",
    "-links -3",
    "-true",
    "-false",
    "-lname *0",
    "-ilname *A*",
    "-mindepth 1",
    "-maxdepth 2",
    "-newermt @1700000000",
    "-prune",
    "-depth",
    "-xdev",
];

fn primary(
    root: &Path,
    all: &[PathBuf],
    ordinary: bool,
    random: &mut fastrand::Rng,
) -> Vec<OsString> {
    match random.u8(0..14) {
        0 | 10 => find_words::newer(root, all, ordinary, random),
        11 => find_words::part(random),
        // Attributes that a user may not read do not exist for that user.
        12 if !ordinary => find_words::tagged(random),
        1 => {
            let other = root.join(&all[random.usize(..all.len())]);
            let sign = ["", "+", "-"][random.usize(..3)];
            let ino = other.symlink_metadata().unwrap().ino();
            vec!["-inum".into(), format!("{sign}{ino}").into()]
        }
        // GNU find tests the access of a link's target; PandoFS tests that of the link.
        2 => {
            let what = ["-readable", "-writable", "-executable"][random.usize(..3)];
            ["(", "!", "-type", "l", what, ")"].map(OsString::from).to_vec()
        }
        // For a directory that cannot be listed, find reports that it is not empty.
        3 if !ordinary => vec!["-empty".into()],
        _ => SOME[random.usize(..SOME.len())].split(' ').map(OsString::from).collect(),
    }
}

/// The output of a finder, its records in order.
pub(crate) fn found(
    program: &[&OsStr],
    words: &[OsString],
    root: &Path,
    close: u8,
) -> Vec<Vec<u8>> {
    let program = in_order(program);
    let output = Command::new(program[0])
        .args(&program[1..])
        .args(words)
        .current_dir(root)
        .env("LC_ALL", "C")
        .env("TZ", ZONE)
        .env("PANDO_IDLE_SECONDS", IDLE_SECONDS)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut records: Vec<Vec<u8>> =
        output.stdout.split(|&byte| byte == close).map(<[u8]>::to_vec).collect();
    // Wrong usage, for which find returns 1, as for a file that it cannot read.
    assert_ne!(output.status.code(), Some(2), "{words:?}: {}", output.stderr.escape_ascii());
    records.sort_unstable();
    records
}

/// GNU find's default level of optimization moves tests before `-prune`, which then prunes less
/// than in the expression: a level that keeps their order.
fn in_order<'a>(program: &[&'a OsStr]) -> Vec<&'a OsStr> {
    let mut program = program.to_vec();
    let is_ours = |word: &OsStr| Path::new(word).file_name().is_some_and(|name| name == "pando");
    if let Some(at) = program.iter().position(|word| *word == "find")
        && !at.checked_sub(1).is_some_and(|before| is_ours(program[before]))
    {
        program.insert(at + 1, OsStr::new("-O1"));
    }
    program
}

/// Asserts that both find the same; returns whether they found anything. A file may pass the age
/// limit of a test between two runs, and a run changes access times, those of links too. So a
/// result must equal that of `find` before it, or after it. Where several files passed one, each
/// run may be right and equal no other: then both run again.
pub(crate) fn compare(
    theirs: &[&OsStr],
    ours: &[&OsStr],
    words: &[OsString],
    root: &Path,
    seed: u64,
) -> bool {
    let close = 0;
    // Inode numbers replace the tests that find lacks: they are looked up before each run.
    let finds = || found(theirs, &gnu(words, root), root, close);
    let mut wanted = finds();
    let mut given = found(ours, words, root, close);
    for _ in 0..3 {
        if wanted == given {
            break;
        }
        wanted = finds();
        if wanted != given {
            given = found(ours, words, root, close);
        }
    }
    let show = |records: &[Vec<u8>]| -> Vec<String> {
        records.iter().map(|record| record.escape_ascii().to_string()).collect()
    };
    let only = |one: &[Vec<u8>], other: &[Vec<u8>]| {
        let mut rest = one.to_vec();
        rest.retain(|record| !other.contains(record));
        show(&rest)
    };
    assert!(
        wanted == given,
        "seed {seed}: {words:?}\nonly find: {:#?}\nonly pando: {:#?}",
        only(&wanted, &given),
        only(&given, &wanted)
    );
    wanted.len() > 1
}

const FORMATS: &[&str] = &[
    "%p|%P|%H|%f|%h|%d\\0",
    "%s %b %k %i %n %m %M %u %U %g %G %y %Y %l %S %D\\0",
    "%a|%c|%t|%A@ %C@ %T@\\0",
    "%TH %TI %Tk %Tl %TM %Tp %Tr %TS %TT %TX %TZ %T+ %Ta %TA %Tb %TB %Tc %Td %TD %Th\\0",
    "%Tj %Tm %TU %Tw %TW %Tx %Ty %TY %TF\\0",
    "%-20f|%20f|%.3f|%5d|%-5d|%05d|%+d|%#m|%06m|%10s|%-10s|%%|\\t\\061\\0",
];

#[test]
fn random_expressions_find_what_gnu_find_finds() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let seed = testing::run::seed();
    let mut random = fastrand::Rng::with_seed(seed);
    let root = world.below_mount("tree");
    fs::create_dir(&root).unwrap();
    let all = tree(&root, &mut random);
    let theirs = [OsStr::new("find"), OsStr::new(".")];
    let ours = [OsStr::new(PANDO), OsStr::new("find"), OsStr::new(".")];
    // A listing updates access times; the second one does not.
    found(&theirs, &["-lname".into(), "*".into()], &root, 0);
    let mut some = 0;
    let rounds = testing::run::rounds(80, 150);
    for _ in 0..rounds {
        let mut words = expression(&root, &all, false, &mut random, 0);
        words.insert(0, "(".into());
        words.extend([")".into(), "-print0".into()]);
        some += u32::from(compare(&theirs, &ours, &words, &root, seed));
    }
    println!("{some} of {rounds} expressions found something");
    for format in FORMATS {
        compare(&theirs, &ours, &["-printf".into(), format.into()], &root, seed);
    }
    let words = ["-name", "a*", "-print0", "-o", "-type", "d", "-printf", "%p/\\0", "-prune"];
    compare(&theirs, &ours, &words.map(OsString::from), &root, seed);
    let words = ["-ls"].map(OsString::from);
    let lines = |program: &[&OsStr]| -> Vec<Vec<u8>> {
        let mut lines = found(program, &words, &root, b'\n');
        // Columns grow with the rows before, whose order is not defined.
        for line in &mut lines {
            line.dedup_by(|one, other| *one == b' ' && *other == b' ');
        }
        lines.sort_unstable();
        lines
    };
    let (wanted, given) = (lines(&theirs), lines(&ours));
    for (one, other) in wanted.iter().zip(&given) {
        let (one, other) = (one.escape_ascii().to_string(), other.escape_ascii().to_string());
        assert_eq!(one, other, "seed {seed}");
    }
    assert_eq!(wanted.len(), given.len(), "seed {seed}");
    if is_root() {
        ordinary_user(&world, &root, &all, &mut random, seed);
    }
}

/// The same as an ordinary user, who may not enter every directory.
fn ordinary_user(
    world: &World,
    root: &Path,
    all: &[PathBuf],
    random: &mut fastrand::Rng,
    seed: u64,
) {
    let program = world.path().join("pando");
    copy_program(&program);
    chown(root, Some(NOBODY), Some(NOBODY)).unwrap();
    let id = NOBODY.to_string();
    let (user, group) = (format!("--reuid={id}"), format!("--regid={id}"));
    let become_nobody = ["setpriv", &user, &group, "--clear-groups"].map(OsStr::new);
    let theirs = [&become_nobody[..], &["find".as_ref(), ".".as_ref()]].concat();
    let ours = [&become_nobody[..], &[program.as_os_str(), "find".as_ref(), ".".as_ref()]].concat();
    // A reference that cannot be reached is an error for both.
    let all: Vec<PathBuf> =
        all.iter().filter(|path| path.components().count() < 2).cloned().collect();
    found(&theirs, &["-lname".into(), "*".into()], root, 0);
    for _ in 0..50 {
        let mut words = expression(root, &all, true, random, 0);
        words.insert(0, "(".into());
        words.extend([")".into(), "-print0".into()]);
        compare(&theirs, &ours, &words, root, seed);
    }
}

#[test]
fn snapshots_are_found_by_name_by_path_and_all_at_once() {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("proj/sub")).unwrap();
    fs::write(source.join("proj/sub/old.txt"), "x").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    world.ok(&["snapshot", "create", &world.at("/data"), "monday"]);
    world.ok(&["rmr", &world.at("/data/proj/sub/old.txt")]);
    let find = |place: &str| world.ok(&["find", &world.at(place), "-name", "old.txt"]);
    assert_eq!(find("/data"), "");
    assert_eq!(find("/data@monday"), world.at("/data@monday/proj/sub/old.txt\n"));
    assert_eq!(find("/data/proj/sub@monday"), world.at("/data/proj/sub@monday/old.txt\n"));
    assert_eq!(
        find("/data/.snapshots/monday/proj"),
        world.at("/data/.snapshots/monday/proj/sub/old.txt\n")
    );
    let everywhere =
        world.ok(&["find", &world.at("/data/proj"), "--all-snapshots", "-name", "old.txt"]);
    assert_eq!(everywhere, world.at("/data/.snapshots/monday/proj/sub/old.txt\n"));
    // A limit applies to all snapshots together.
    world.ok(&["snapshot", "create", &world.at("/data"), "tomorrow"]);
    let all = world.ok(&["find", &world.at("/data/.snapshots")]);
    assert_eq!(all.lines().count(), 8);
    for limit in 0..8 {
        let count = limit.to_string();
        let some = world.ok(&["find", &world.at("/data/.snapshots"), "--limit", &count]);
        assert_eq!(some.lines().count(), limit);
    }
    world.ok(&["snapshot", "delete", &world.at("/data"), "tomorrow"]);
    assert!(world.fails(3, &["find", &world.at("/data@tuesday")]).contains("no such path"));
    let biggest = world.ok(&["find", &world.at("/"), "type:dir", "--sort", "path", "--limit", "2"]);
    assert_eq!(biggest, format!("{}\n{}\n", world.at("/"), world.at("/data")));
    assert_eq!(world.ok(&["find", &world.at("/"), "-count"]), "4\n");
    assert_eq!(world.json(&["find", &world.at("/data")]).len(), 3);
    assert!(world.fails(2, &["find", &world.at("/"), "-exec", "x", ";"]).contains("xargs -0"));
}

#[test]
fn paths_of_several_volumes_are_searched_once_each_in_the_order_typed() {
    let (one, two) = (World::new(), World::new());
    for (world, name) in [(&one, "a"), (&two, "b"), (&one, "c")] {
        world.ok(&["subvolume", "create", &world.at(&format!("/{name}"))]);
    }
    let paths = [one.at("/a"), two.at("/b"), one.at("/c")];
    let found = one.ok(&["find", &paths[0], &paths[1], &paths[2]]);
    assert_eq!(found.lines().collect::<Vec<_>>(), paths);
    assert_eq!(one.ok(&["find", &paths[0], &paths[1], &paths[2], "-count"]), "3\n");
}

#[test]
fn a_time_out_of_range_ends_no_command() {
    let world = World::new();
    let far = world.path().join("far");
    fs::write(&far, "x").unwrap();
    let time = rustix::fs::Timespec { tv_sec: 10_413_792_000, tv_nsec: 500_000_000 };
    let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
    let flags = rustix::fs::AtFlags::empty();
    rustix::fs::utimensat(rustix::fs::CWD, &far, &times, flags).unwrap();
    let far = far.to_str().unwrap();
    assert_eq!(world.ok(&["find", &world.at("/"), "-newer", far]), "");
    assert_eq!(world.ok(&["find", &world.at("/"), "--like", far]).lines().count(), 1);
}

#[test]
fn declared_attributes_are_listed_and_searches_find_the_same() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    for (name, tag) in [("a", "red"), ("b", "blue"), ("c", "red")] {
        let file = world.below_mount(name);
        fs::write(&file, "x").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(&file, "user.tag", tag.as_bytes(), flags).unwrap();
    }
    let red = || world.ok(&["find", world.mnt(), "xattr:user.tag=red", "--sort", "path"]);
    let expected = ["a", "c"].map(|name| format!("{}\n", world.below_mount(name).display()));
    assert_eq!(red(), expected.concat());
    let printed = world.ok(&["search", "declare", world.vol(), "user.tag", "user.sample"]);
    assert_eq!(
        printed,
        "the index holds user.tag: searches by it read the index\n\
         the index holds user.sample: searches by it read the index\n"
    );
    assert_eq!(world.ok(&["search", "list", world.mnt()]), "user.sample\nuser.tag\n");
    assert_eq!(red(), expected.concat());
    world.umount();
    // It is inside the volume.
    let listed = world.json(&["search", "list", world.vol()]);
    let names: Vec<&str> = listed.iter().filter_map(|line| line["name"].as_str()).collect();
    assert_eq!(names, ["user.sample", "user.tag"]);
    let printed = world.ok(&["search", "undeclare", world.vol(), "user.sample"]);
    assert!(
        printed.contains("user.sample: searches by it read every file's attributes"),
        "{printed}"
    );
    let again = world.fails(3, &["search", "undeclare", world.vol(), "user.sample"]);
    assert!(again.contains("not all of these are declared"), "{again}");
    assert!(world.fails(2, &["search", "declare", world.vol(), "tag"]).contains("user"));
    assert_eq!(world.ok(&["search", "list", world.vol()]), "user.tag\n");
}

#[test]
fn the_most_similar_file_comes_first() {
    let world = World::new();
    let source = world.source();
    for (name, bytes) in [("one.c", 1000), ("two.c", 1100), ("far.c", 900_000), ("other.h", 1000)] {
        fs::write(source.join(name), vec![b'x'; bytes]).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    let like = |path: &str| {
        let found = world.ok(&["find", &world.at("/data"), "--like", path, "-type", "f"]);
        found.lines().map(|line| line.rsplit('/').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The file itself is not a result, but a copy of it is.
    assert_eq!(like(&world.at("/data/one.c")), ["two.c", "other.h", "far.c"]);
    assert_eq!(like(source.join("far.c").to_str().unwrap())[0], "far.c");
    let limited = ["find", &world.at("/data"), "--like", &world.at("/data/one.c"), "--limit", "1"];
    assert_eq!(world.ok(&limited), world.at("/data/two.c\n"));
    let both = ["find", &world.at("/"), "--like", &world.at("/data/one.c"), "--sort", "size"];
    assert!(world.fails(2, &both).contains("different orders"));
    assert_eq!(world.run(&["find", &world.at("/"), "--like", "nowhere"]).code, 3);
}
