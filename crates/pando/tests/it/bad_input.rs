//! Inputs that are not a volume, not a complete one, or not a name.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::world::World;

#[test]
fn a_directory_that_is_not_a_volume_is_named() {
    let world = World::without_volume();
    fs::create_dir(&world.volume).unwrap();
    for arguments in [
        vec!["status", world.vol()],
        vec!["sync", world.vol()],
        vec!["ls", &world.at("/")],
        vec!["mount", world.vol(), world.mnt()],
    ] {
        let printed = world.fails(8, &arguments);
        assert!(printed.contains(world.vol()) && printed.contains("pando format"), "{printed}");
    }
    world.fails(3, &["status", "/nowhere/at/all"]);
    world.fails(3, &["ls", "relative"]);
    let left: Vec<_> = fs::read_dir(&world.volume).unwrap().collect();
    assert!(left.is_empty(), "asking leaves nothing behind: {left:?}");
}

#[test]
fn a_newer_format_is_named() {
    let world = World::new();
    for name in ["volume.pando", "volume.copy"] {
        let header = world.volume.join(name);
        let mut bytes = fs::read(&header).unwrap();
        bytes[8] = 9;
        fs::write(&header, bytes).unwrap();
    }
    let printed = world.fails(8, &["status", world.vol()]);
    assert!(printed.contains("version 9") && printed.contains("newer"), "{printed}");
    world.fails(8, &["mount", world.vol(), world.mnt()]);
    world.fails(8, &["fsck", "--repair", world.vol()]);
}

/// For a volume that lost its header, the message names the repair, and `fsck` does it. That is not
/// so if only a copy of the header remains of a volume that was never finished.
#[test]
fn a_header_is_repaired_from_its_copy() {
    let world = World::new();
    let file = world.path().join("file");
    fs::write(&file, "dear").unwrap();
    world.ok(&["import", file.to_str().unwrap(), &world.at("/file")]);
    let (header, copy) = (world.volume.join("volume.pando"), world.volume.join("volume.copy"));
    let right = fs::read(&header).unwrap();
    assert_eq!(fs::read(&copy).unwrap(), right);
    for damage in ["flipped", "gone"] {
        world.close();
        match damage {
            "gone" => fs::remove_file(&header).unwrap(),
            _ => fs::write(&header, [&right[..40], b"?", &right[41..]].concat()).unwrap(),
        }
        for verb in [vec!["status", world.vol()], vec!["ls", &world.at("/")]] {
            let printed = world.fails(5, &verb);
            assert!(
                printed.contains("volume.pando") && printed.contains("fsck --repair"),
                "{printed}"
            );
        }
        let printed = world.run(&["fsck", world.vol()]);
        assert_eq!(printed.code, 5, "{damage}: {}", printed.err);
        assert!(
            printed.out.contains("volume.pando") && printed.err.contains("--repair"),
            "{}",
            printed.out
        );
        world.ok(&["fsck", "--repair", world.vol()]);
        assert_eq!(fs::read(&header).unwrap(), right, "{damage}");
        assert_eq!(world.ok(&["cat", &world.at("/file")]), "dear", "{damage}");
    }
    world.close();
    world.fails(6, &["format", world.vol()]);
    fs::remove_file(&header).unwrap();
    world.fails(6, &["format", world.vol()]);
    fs::write(world.volume.join("volume.pando.new"), &right).unwrap();
    assert_ne!(world.run(&["fsck", "--repair", world.vol()]).code, 0);
    assert!(!header.exists());
}

#[test]
fn a_file_that_is_missing_or_cut_is_named_or_harmless() {
    let world = World::new();
    let source = world.source();
    for number in 0..50 {
        fs::write(source.join(format!("f{number}")), format!("{number} ").repeat(3000)).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    world.close();
    let copy = world.path().join("copy");
    let copied = std::process::Command::new("cp").arg("-a").arg(&world.volume).arg(&copy).status();
    assert!(copied.unwrap().success());
    let mut all = world.files();
    let ours = ["owner.lock", "owner.log", "control.sock"];
    all.retain(|path| !ours.iter().any(|name| path.ends_with(name)));
    assert!(all.len() >= 4, "{all:?}");
    for path in &all {
        for cut in [false, true] {
            let relative = path.strip_prefix(&world.volume).unwrap();
            if cut {
                let file = fs::File::options().write(true).open(path).unwrap();
                file.set_len(file.metadata().unwrap().len() / 2).unwrap();
            } else {
                fs::remove_file(path).unwrap();
            }
            damaged(
                &world,
                &format!("{} {}", relative.display(), if cut { "cut" } else { "gone" }),
            );
            world.close();
            // From the copy again: this undoes any changes of the daemon to the damaged volume.
            fs::remove_dir_all(&world.volume).unwrap();
            let restored =
                std::process::Command::new("cp").arg("-a").arg(&copy).arg(&world.volume).status();
            assert!(restored.unwrap().success());
        }
    }
    for number in 0..50 {
        let path = world.at(&format!("/d/f{number}"));
        assert_eq!(world.ok(&["cat", &path]), format!("{number} ").repeat(3000));
    }
}

/// A damaged volume gives correct answers, or an error that names the damage.
fn damaged(world: &World, what: &str) {
    for number in [0, 20, 49] {
        let answer = world.run(&["cat", &world.at(&format!("/d/f{number}"))]);
        if answer.code == 0 {
            assert_eq!(answer.out, format!("{number} ").repeat(3000), "{what}");
        } else {
            assert_eq!(answer.code, 5, "{what}: {}", answer.err);
            // The file, or its directory if it is one of several.
            let path = Path::new(what.split(' ').next().unwrap());
            let name = path.file_name().unwrap().to_str().unwrap();
            let directory = path.parent().unwrap().to_str().unwrap();
            let named = answer.err.contains(name)
                || (!directory.is_empty() && answer.err.contains(&format!("{directory}/")));
            assert!(named, "{what}: {}", answer.err);
        }
        assert!(!answer.err.contains("panicked"), "{what}: {}", answer.err);
    }
}

#[test]
fn names_may_be_255_bytes_long_and_not_256() {
    let world = World::new();
    let long = "n".repeat(255);
    let file = world.path().join("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    world.ok(&["import", file, &world.at(&format!("/{long}"))]);
    assert_eq!(world.names("/"), [long.as_str()]);
    let printed = world.fails(2, &["import", file, &world.at(&format!("/{long}n"))]);
    assert!(printed.contains("too long"), "{printed}");
    world.fails(2, &["stat", &world.at(&format!("/{long}n"))]);
    world.ok(&["snapshot", "create", &world.at("/"), &long]);
    world.fails(2, &["snapshot", "create", &world.at("/"), &format!("{long}n")]);
    if !world.mount() {
        return;
    }
    assert_eq!(fs::read_to_string(world.below_mount(&long)).unwrap(), "x");
    let refused = fs::write(world.below_mount(&format!("{long}n")), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::InvalidFilename);
}

#[test]
fn names_may_hold_any_byte() {
    let world = World::new();
    let source = world.source();
    let mut names: Vec<OsString> = (1..=255_u8)
        .filter(|byte| *byte != b'/')
        .map(|byte| OsString::from_vec(vec![b'a', byte, b'z']))
        .collect();
    names.push(OsString::from_vec((128..=255).collect()));
    for name in &names {
        fs::write(source.join(name), name.as_bytes()).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    for name in &names {
        let mut path = OsString::from(world.at("/d/"));
        path.push(name);
        let output = World::command(&[OsStr::new("cat"), &path]).output().unwrap();
        assert!(output.status.success(), "{name:?}");
        assert_eq!(output.stdout, name.as_bytes());
    }
    if !world.mount() {
        return;
    }
    let mut seen: Vec<OsString> = fs::read_dir(world.below_mount("d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    seen.sort();
    names.sort();
    assert_eq!(seen, names);
}

#[test]
fn unusual_paths_are_answered() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/d")]);
    for same in ["d", "/d/", "//d//", "/d/.", "/d/../d"] {
        let info = world.json(&["info", &world.at(same)]).remove(0);
        assert_eq!(info["kind"], "directory", "{same}");
    }
    let deep = "/d".repeat(1500);
    world.fails(3, &["stat", &world.at(&deep)]);
    let long = format!("/{}", "d/".repeat(40_000));
    let answer = world.run(&["stat", &world.at(&long)]);
    assert!(answer.code == 2 || answer.code == 3, "{} {}", answer.code, answer.err);
    world.fails(2, &["clone", &world.at("/d"), &world.at("/d/..")]);
    let inside = world.run(&["clone", &world.at("/d"), &world.at("/d/inside")]);
    assert!(inside.code == 0 || inside.code == 2, "{}", inside.err);
    let other = World::new();
    world.fails(2, &["clone", &world.at("/d"), &other.at("/d")]);
}
