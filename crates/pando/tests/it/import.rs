//! Imports keep everything, continue after an interrupt, and report what they could not do.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::Stdio;

use rustix::fs::{Mode, OFlags};

use crate::world::{World, answer, engines, is_root, signal, wait_until};

/// A tree with one of everything.
pub(crate) fn sample(root: &Path) {
    fs::create_dir_all(root.join("d/e/empty")).unwrap();
    fs::write(root.join("small"), "small").unwrap();
    fs::write(root.join("empty"), "").unwrap();
    let big: Vec<u8> =
        (0..700_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(root.join("d/big"), &big).unwrap();
    fs::write(root.join("d/limit"), &big[..64 << 10]).unwrap();
    fs::write(root.join("d/over"), &big[..=64 << 10]).unwrap();
    fs::hard_link(root.join("small"), root.join("d/e/hard")).unwrap();
    symlink("../small", root.join("d/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    let sparse = fs::File::options().create_new(true).write(true).open(root.join("sparse"));
    let sparse = sparse.unwrap();
    sparse.set_len(50 << 20).unwrap();
    sparse.write_all_at(b"in the middle", 20 << 20).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("fifo"),
        rustix::fs::FileType::Fifo,
        Mode::from_raw_mode(0o640),
        0,
    )
    .unwrap();
    fs::set_permissions(root.join("small"), PermissionsExt::from_mode(0o4750)).unwrap();
    fs::set_permissions(root.join("d/e"), PermissionsExt::from_mode(0o1777)).unwrap();
    fs::set_permissions(root.join("d/limit"), PermissionsExt::from_mode(0o400)).unwrap();
    for path in ["small", "d/big"] {
        let file = fs::File::options().append(true).open(root.join(path)).unwrap();
        // Not every file system below /tmp has them.
        rustix::fs::fsetxattr(&file, "user.kind", b"value", rustix::fs::XattrFlags::empty())
            .unwrap_or_default();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(981_173_106, 789_012_345);
        file.set_times(fs::FileTimes::new().set_modified(time).set_accessed(time)).unwrap();
    }
    let old = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 1);
    let directory = rustix::fs::open(root.join("d"), OFlags::CLOEXEC, Mode::empty()).unwrap();
    fs::File::from(directory).set_times(fs::FileTimes::new().set_modified(old)).unwrap();
}

/// Asserts that two trees are the same, except for access times.
pub(crate) fn assert_same(one: &Path, other: &Path) {
    let (left, right) = (fs::symlink_metadata(one).unwrap(), fs::symlink_metadata(other).unwrap());
    let shown = other.display();
    assert_eq!(left.file_type(), right.file_type(), "{shown}");
    assert_eq!(left.mode(), right.mode(), "{shown}");
    assert_eq!((left.uid(), left.gid()), (right.uid(), right.gid()), "{shown}");
    assert_eq!(
        (left.mtime(), left.mtime_nsec()),
        (right.mtime(), right.mtime_nsec()),
        "time of {shown}"
    );
    if left.is_dir() {
        let names = |path: &Path| {
            let mut names: Vec<_> =
                fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(one), names(other), "{shown}");
        for name in names(one) {
            assert_same(&one.join(&name), &other.join(&name));
        }
        return;
    }
    assert_eq!(left.nlink(), right.nlink(), "links of {shown}");
    if left.is_symlink() {
        assert_eq!(fs::read_link(one).unwrap(), fs::read_link(other).unwrap());
    } else if left.is_file() {
        assert_eq!(left.len(), right.len(), "{shown}");
        assert!(fs::read(one).unwrap() == fs::read(other).unwrap(), "contents of {shown}");
        assert_eq!(xattr(one), xattr(other), "{shown}");
    }
}

fn xattr(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let length = rustix::fs::getxattr(path, "user.kind", &mut value).ok()?;
    value.truncate(length);
    Some(value)
}

#[test]
fn everything_is_imported() {
    let world = World::new();
    let source = world.source();
    sample(&source);
    let imported = world.json(&["import", source.to_str().unwrap(), &world.at("/copy")]);
    assert_eq!(imported[0]["failed"], 0);
    if !world.mount() {
        return;
    }
    assert_same(&source, &world.below_mount("copy"));
    let sparse = fs::metadata(world.below_mount("copy/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 2 << 20, "the hole takes {} blocks", sparse.blocks());
    // While it is mounted, over existing files: nothing is copied twice.
    let again = world.json(&["import", source.to_str().unwrap(), &world.at("/copy")]);
    assert_eq!(again[0]["imported"], 0, "{again:?}");
    fs::write(source.join("small"), "changed").unwrap();
    fs::write(source.join("d/added"), "added").unwrap();
    let again = world.json(&["import", source.to_str().unwrap(), &world.at("/copy")]);
    // Its other name is a link of the same inode, so both are created again.
    assert!(again[0]["imported"].as_u64().unwrap() <= 3, "{again:?}");
    assert_same(&source, &world.below_mount("copy"));
}

/// As with `cp -a`: imported files have the access lists of their source, and none that they
/// inherit.
#[test]
fn imported_files_have_only_their_sources_access_lists() {
    use format::acl::{ACCESS, Acl, DEFAULT};
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["file", "listed", "sub/file"] {
        fs::write(source.join(name), "text").unwrap();
        fs::set_permissions(source.join(name), PermissionsExt::from_mode(0o640)).unwrap();
    }
    if !is_root() || !world.mount() {
        return;
    }
    let name = |name: &[u8]| String::from_utf8(name.to_vec()).unwrap();
    let set = |path: &Path, of: &[u8], acl: &Acl| {
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(path, name(of), &acl.encode(), flags)
    };
    let get = |path: &Path, of: &[u8]| {
        let mut value = vec![0; 100];
        let length = rustix::fs::getxattr(path, name(of), &mut value).ok()?;
        Acl::decode(&value[..length]).unwrap()
    };
    let of = |user| Acl { users: vec![(user, 6)], mask: Some(6), ..Acl::of_mode(0o740) };
    let mine = Acl { users: vec![(7, 4)], mask: Some(4), ..Acl::of_mode(0o640) };
    // Not every file system below /tmp has them.
    let keeps = set(&source.join("listed"), ACCESS, &mine).is_ok();
    let into = world.below_mount("into");
    fs::create_dir(&into).unwrap();
    set(&into, DEFAULT, &of(8)).unwrap();
    for run in 0..2 {
        world.ok(&["import", source.to_str().unwrap(), &world.at("/into/copy")]);
        world.ok(&["import", source.join("file").to_str().unwrap(), &world.at("/into/one")]);
        for path in ["one", "copy", "copy/file", "copy/sub", "copy/sub/file"] {
            let lists = (get(&into.join(path), ACCESS), get(&into.join(path), DEFAULT));
            assert_eq!(lists, (None, None), "{path}, run {run}");
        }
        assert_same(&source, &into.join("copy"));
        if keeps {
            assert_eq!(get(&into.join("copy/listed"), ACCESS), Some(mine.clone()), "run {run}");
        }
    }
    assert_eq!(get(&into, DEFAULT), Some(of(8)), "the directory that was there keeps its own");
}

/// Only a volume can be damaged: an unreadable source needs no repair of the volume.
#[test]
fn an_unreadable_source_is_named_and_is_no_damage() {
    let (from, world) = (World::new(), World::new());
    let source = world.source();
    fs::write(source.join("torn"), vec![5; 300_000]).unwrap();
    fs::write(source.join("whole"), "read").unwrap();
    from.ok(&["import", source.to_str().unwrap(), &from.at("/d")]);
    from.ok(&["sync", from.vol()]);
    from.kill_daemon();
    for dir in ["data/open", "data/sealed"] {
        for segment in fs::read_dir(from.volume.join(dir)).unwrap() {
            let path = segment.unwrap().path();
            let mut bytes = fs::read(&path).unwrap();
            let page = bytes.chunks(4096).position(|page| page == [5; 4096]);
            if let Some(page) = page {
                bytes[page * 4096 + 5000] ^= 1;
                fs::write(&path, bytes).unwrap();
            }
        }
    }
    if !from.mount() {
        return;
    }
    let source = from.below_mount("d");
    let failed = world.run(&["import", source.to_str().unwrap(), &world.at("/copy")]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    let torn = source.join("torn");
    assert!(failed.err.contains(torn.to_str().unwrap()), "{}", failed.err);
    assert!(failed.err.contains("the volume is not at fault"), "{}", failed.err);
    assert!(!failed.err.contains("fsck"), "{}", failed.err);
    assert_eq!(world.ok(&["cat", &world.at("/copy/whole")]), "read");
    let failed = world.run(&["import", torn.to_str().unwrap(), &world.at("/one")]);
    assert_eq!(failed.code, 1, "{}", failed.err);
    world.ok(&["fsck", world.vol()]);
}

#[test]
fn one_file_is_imported_under_the_name_given() {
    let world = World::new();
    let file = world.path().join("file");
    fs::write(&file, "one").unwrap();
    world.ok(&["import", file.to_str().unwrap(), &world.at("/other")]);
    assert_eq!(world.ok(&["cat", &world.at("/other")]), "one");
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let printed = world.fails(6, &["import", file.to_str().unwrap(), &world.at("/d")]);
    assert!(printed.contains("directory"), "{printed}");
    world.fails(3, &["import", file.to_str().unwrap(), &world.at("/no/where")]);
    world.fails(3, &["import", "/nowhere/at/all", &world.at("/x")]);
}

#[test]
fn an_interrupted_import_continues() {
    let world = World::new();
    let source = world.path().join("source");
    for directory in 0..testing::run::rounds(16, 40) {
        let directory = source.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..500 {
            fs::write(directory.join(format!("f{file}")), vec![b'x'; file]).unwrap();
        }
    }
    let (from, to) = (source.to_str().unwrap().to_owned(), world.at("/copy"));
    let interrupted = (0..8).find_map(|_| {
        let child = World::command(&["import", &from, &to, "--json"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait_until("it has begun", || world.run(&["ls", &world.at("/copy/d0")]).code == 0);
        signal(child.id().cast_signed(), rustix::process::Signal::INT);
        let ended = answer(&child.wait_with_output().unwrap());
        if ended.code == 0 {
            // It was over before.
            world.ok(&["rmr", "--wait", &to]);
        }
        (ended.code != 0).then_some(ended)
    });
    let interrupted = interrupted.expect("one of eight imports was interrupted");
    assert_eq!(interrupted.code, 130, "{}", interrupted.err);
    assert!(interrupted.err.contains("same command"), "{}", interrupted.err);
    let first: serde_json::Value = serde_json::from_str(&interrupted.out).unwrap();
    // Imported files are durable.
    world.kill_daemon();
    let second = world.json(&["import", &from, &to]).remove(0);
    assert_eq!(second["failed"], 0);
    let (done, kept) = (&first["imported"], second["unchanged"].as_u64().unwrap());
    assert!(kept + 50 >= done.as_u64().unwrap(), "{first} {second}");
    if world.mount() {
        assert_same(&source, &world.below_mount("copy"));
    }
}

#[test]
fn a_tree_deeper_than_any_path_is_imported() {
    const DEPTH: usize = 3000;
    let world = World::new();
    let source = world.source();
    let mut directory =
        rustix::fs::open(&source, OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).unwrap();
    for _ in 0..DEPTH {
        rustix::fs::mkdirat(&directory, "d", Mode::from_raw_mode(0o755)).unwrap();
        directory =
            rustix::fs::openat(&directory, "d", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .unwrap();
    }
    let imported = world.json(&["import", source.to_str().unwrap(), &world.at("/deep")]);
    assert_eq!(imported[0]["imported"], DEPTH as u64);
    assert_eq!(world.json(&["ls", "-R", &world.at("/deep")]).len(), DEPTH);
    world.ok(&["rmr", "--wait", &world.at("/deep")]);
    assert_eq!(world.status()["inodes"], 1);
}

#[test]
fn unreadable_files_are_reported_and_the_rest_is_imported() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("closed")).unwrap();
    fs::write(source.join("open"), "x").unwrap();
    fs::write(source.join("secret"), "x").unwrap();
    fs::set_permissions(source.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::set_permissions(source.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    world.ok(&["subvolume", "create", &world.at("/open-to-all")]);
    if !world.mount() {
        return;
    }
    let place = world.below_mount("open-to-all");
    fs::set_permissions(&place, PermissionsExt::from_mode(0o777)).unwrap();
    let nobody = crate::other_users::Nobody::new(&world);
    let refused = nobody.run(&["import", source.to_str().unwrap(), &world.at("/open-to-all/copy")]);
    assert_eq!(refused.code, 4, "{}", refused.err);
    assert!(refused.err.contains("secret") && refused.err.contains("closed"), "{}", refused.err);
    assert_eq!(fs::read_to_string(place.join("copy/open")).unwrap(), "x");
    assert!(!place.join("copy/secret").exists());
    let owner = fs::metadata(place.join("copy/open")).unwrap().uid();
    assert_eq!(owner, crate::world::NOBODY);
}

/// An import so large that the mount is removed while it runs.
fn begun(world: &World, files: usize) -> (std::process::Child, std::path::PathBuf) {
    let source = world.source();
    for file in 0..files {
        fs::write(source.join(format!("f{file:05}")), vec![b'x'; 40_000]).unwrap();
    }
    let (from, to) = (source.to_str().unwrap().to_owned(), world.at("/copy"));
    let child = World::command(&["import", &from, &to, "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it has begun", || world.below_mount("copy/f00000").exists());
    (child, source)
}

#[test]
fn an_import_completes_after_an_unmount() {
    const FILES: usize = 4000;
    let world = World::new();
    if !world.mount() {
        return;
    }
    let (child, _) = begun(&world, FILES);
    let pid = world.daemon().expect("a daemon");
    world.umount();
    assert!(!crate::world::is_alive(pid), "the volume is closed");
    let imported = answer(&child.wait_with_output().unwrap());
    assert_eq!(imported.code, 0, "{}", imported.err);
    let reported: serde_json::Value = serde_json::from_str(&imported.out).unwrap();
    assert_eq!((&reported["imported"], &reported["failed"]), (&(FILES as u64).into(), &0.into()));
    assert_eq!(world.names("/copy").len(), FILES);
    assert_eq!(world.status()["replayed"], 0, "closed in order");
}

/// A stalled import keeps the volume from others for at most half a minute.
#[test]
fn a_stalled_import_does_not_hold_the_volume() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let (child, source) = begun(&world, 4000);
    let importer = child.id().cast_signed();
    signal(importer, rustix::process::Signal::STOP);
    world.umount();
    assert_eq!(world.status()["replayed"], 0, "closed in order");
    let there = world.names("/copy").len();
    signal(importer, rustix::process::Signal::CONT);
    let stopped = answer(&child.wait_with_output().unwrap());
    assert!(stopped.code != 0 || there == 4000, "{}", stopped.out);
    let again = world.json(&["import", source.to_str().unwrap(), &world.at("/copy")]).remove(0);
    assert_eq!(again["failed"], 0);
    assert_eq!(world.names("/copy").len(), 4000);
}

/// An import makes many new names at once, also below existing directories, and with the same
/// result.
#[test]
fn new_directories_are_imported_with_few_commits() {
    const FILES: usize = 1500;
    for engine in engines("btree") {
        let world = World::on(engine);
        let source = world.path().join("source");
        for directory in ["there/old", "there/new", "new/below"] {
            let directory = source.join(directory);
            fs::create_dir_all(&directory).unwrap();
            sample(&directory);
        }
        for file in 0..FILES {
            fs::write(source.join(format!("new/{file}")), format!("contents of {file}")).unwrap();
        }
        let (from, to) = (source.to_str().unwrap(), world.at("/"));
        // The volume's root exists, and so does one directory.
        let old = source.join("there/old");
        for path in ["/there", "/there/old"] {
            let empty = world.path().join("empty");
            fs::create_dir_all(&empty).unwrap();
            world.ok(&["import", empty.to_str().unwrap(), &world.at(path)]);
        }
        let commits = || world.status()["writing"]["commits"].as_u64().unwrap();
        let before = commits();
        let imported = world.json(&["import", from, &to]).remove(0);
        let commits = commits() - before;
        assert_eq!(imported["failed"], 0, "{imported}");
        assert_eq!(world.names("/new").len(), FILES + 1);
        if is_root() {
            assert!(commits < FILES as u64 / 2, "{commits} commits");
        }
        world.ok(&["fsck", world.vol()]);
        if world.mount() {
            assert_same(&source.join("new"), &world.below_mount("new"));
            assert_same(&source.join("there/new"), &world.below_mount("there/new"));
            assert_same(&old, &world.below_mount("there/old"));
        }
    }
}

/// Trees whose times are clamped differ in nothing else.
#[test]
fn links_and_devices_with_the_same_time_and_another_target_are_replaced() {
    let world = World::new();
    let source = world.source();
    let times = rustix::fs::Timestamps {
        last_access: rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 5 },
        last_modification: rustix::fs::Timespec { tv_sec: 1_000_000, tv_nsec: 5 },
    };
    let make = |target: &str, minor: u32| {
        let link = source.join("link");
        fs::remove_file(&link).unwrap_or_default();
        symlink(target, &link).unwrap();
        let no_follow = rustix::fs::AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(rustix::fs::CWD, &link, &times, no_follow).unwrap();
        if is_root() {
            let device = source.join("device");
            fs::remove_file(&device).unwrap_or_default();
            let (kind, mode) = (rustix::fs::FileType::CharacterDevice, Mode::from_raw_mode(0o600));
            let number = rustix::fs::makedev(1, minor);
            rustix::fs::mknodat(rustix::fs::CWD, &device, kind, mode, number).unwrap();
            rustix::fs::utimensat(rustix::fs::CWD, &device, &times, no_follow).unwrap();
        }
    };
    let (from, to) = (source.to_str().unwrap(), world.at("/copy"));
    make("one", 3);
    world.ok(&["import", from, &to]);
    let same = world.json(&["import", from, &to]).remove(0);
    assert_eq!(same["imported"], 0, "{same}");
    make("two", 5);
    world.fails(6, &["import", "--on-conflict", "fail", from, &to]);
    let other = world.json(&["import", from, &to]).remove(0);
    assert_eq!(other["imported"], if is_root() { 2 } else { 1 }, "{other}");
    if world.mount() {
        assert_same(&source, &world.below_mount("copy"));
        if is_root() {
            let device = fs::symlink_metadata(world.below_mount("copy/device")).unwrap();
            assert_eq!(device.rdev(), rustix::fs::makedev(1, 5));
        }
    }
}
