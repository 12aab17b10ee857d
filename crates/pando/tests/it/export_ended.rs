//! Exports that are interrupted, killed, or run out of space: what is under the name of the whole
//! is the whole.

#![expect(clippy::disallowed_methods, reason = "the test looks at files as any program does")]

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::other_users::Nobody;
use crate::world::{NOBODY, World, answer, is_root, signal};

/// A volume with files of 96 MiB in all.
fn filled() -> World {
    let world = World::new();
    let source = world.source();
    for number in 0..12 {
        fs::write(source.join(format!("file {number}")), vec![number; 8 << 20]).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    world
}

/// What there is in a directory, but for one name.
fn beside(directory: &Path, but: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != but).collect()
}

fn is_whole(copy: &Path) -> bool {
    (0..12).all(|number| {
        let found = fs::read(copy.join(format!("file {number}"))).unwrap_or_default();
        found.len() == 8 << 20 && found.iter().all(|byte| *byte == number)
    })
}

/// Starts an export, and signals it once it has begun; `None`: it was over before. Returns its
/// exit code.
fn ended(world: &World, to: &Path, more: &[&str], how: Signal) -> Option<i32> {
    let place = to.parent().unwrap();
    let mut words = vec!["export"];
    words.extend(more);
    let from = world.at("/s");
    words.extend([from.as_str(), to.to_str().unwrap()]);
    let mut child =
        World::command(&words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    // An archive has no name yet: its descriptor shows that it has begun.
    let files = format!("/proc/{}/fd", child.id());
    let has_begun = || {
        let mut files = fs::read_dir(&files).into_iter().flatten().flatten();
        // (It opens the directory before it makes anything in there.)
        let is_made = |file: PathBuf| file.starts_with(place) && file != place;
        !beside(place, "").is_empty()
            || files.any(|file| fs::read_link(file.path()).is_ok_and(is_made))
    };
    while !has_begun() && child.try_wait().unwrap().is_none() {
        device::spin_loop();
    }
    signal(child.id() as i32, how);
    let output = child.wait_with_output().unwrap();
    if to.exists() {
        assert_eq!(output.status.code(), Some(0), "it was over before the signal");
        return None;
    }
    let answer = answer(&output);
    if how == Signal::INT {
        assert!(answer.err.contains("interrupted"), "{}", answer.err);
    }
    Some(answer.code)
}

/// Runs a case until its signal comes in time.
fn in_time(mut case: impl FnMut() -> Option<i32>) -> i32 {
    (0..50).find_map(|_| case()).expect("one of 50 exports is interrupted")
}

#[test]
fn an_export_that_is_ended_shows_nothing() {
    let world = filled();
    for more in [&[][..], &["--format", "tar"]] {
        let place = world.path().join(format!("place{}", more.len()));
        fs::create_dir(&place).unwrap();
        let copy = place.join("copy");
        let again = |copy: &Path| {
            if copy.is_dir() { fs::remove_dir_all(copy) } else { fs::remove_file(copy) }
        };
        let run = |how: Signal| {
            in_time(|| {
                again(&copy).unwrap_or_default();
                ended(&world, &copy, more, how)
            })
        };
        assert_eq!(run(Signal::INT), 130);
        assert_eq!(beside(&place, ""), [""; 0], "what was made is removed");
        assert_eq!(run(Signal::KILL), -1);
        let left = beside(&place, "");
        if more.is_empty() {
            assert_eq!(left, [".copy.pando-export"]);
        } else {
            assert_eq!(left, [""; 0], "a file without a name is gone with its process");
        }
        // The next one removes what is left.
        let from = world.at("/s");
        let words = [&["export"], more, &[&from, copy.to_str().unwrap()]].concat();
        world.ok(&words);
        assert_eq!(beside(&place, "copy"), [""; 0]);
        if more.is_empty() {
            assert!(is_whole(&copy));
        } else {
            let listed = Command::new("tar").arg("tf").arg(&copy).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 13);
        }
        let refused = world.fails(6, &words);
        assert!(refused.contains("exists"), "{refused}");
    }
}

#[test]
fn an_export_whose_daemon_dies_shows_nothing() {
    let world = filled();
    let place = world.path().join("place");
    fs::create_dir(&place).unwrap();
    let copy = place.join("copy");
    let died = in_time(|| {
        fs::remove_dir_all(&copy).unwrap_or_default();
        let mut child = World::command(&["export", &world.at("/s"), copy.to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while beside(&place, "").is_empty() && child.try_wait().unwrap().is_none() {
            device::spin_loop();
        }
        world.kill_daemon();
        let output = child.wait_with_output().unwrap();
        (!copy.exists()).then(|| answer(&output).code)
    });
    assert_ne!(died, 0);
    assert_eq!(beside(&place, ""), [""; 0]);
}

/// A disk of a few MiB, unmounted when this drops.
struct Small(PathBuf);

impl Drop for Small {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn an_export_to_a_full_disk_leaves_nothing() {
    if !is_root() {
        return;
    }
    let world = filled();
    let small = world.path().join("small");
    fs::create_dir(&small).unwrap();
    let mut mount = Command::new("mount");
    mount.args(["-t", "tmpfs", "-o", "size=20m,mode=755", "tmpfs"]).arg(&small);
    assert!(mount.status().unwrap().success());
    let small = Small(small);
    let copy = small.0.join("copy");
    for more in [&[][..], &["--format", "tar"]] {
        let from = world.at("/s");
        let words = [&["export"], more, &[&from, copy.to_str().unwrap()]].concat();
        let refused = world.fails(7, &words);
        assert!(refused.contains("space"), "{refused}");
        assert_eq!(beside(&small.0, ""), [""; 0]);
    }
}

/// A hidden directory of another user, or of an export that is under way, is not touched.
#[test]
fn hidden_directories_of_others_stay() {
    let world = World::new();
    let source = world.source();
    fs::write(source.join("file"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    let place = world.path().join("place");
    fs::create_dir_all(place.join(".copy.pando-export/mine")).unwrap();
    let lock = fs::File::open(place.join(".copy.pando-export")).unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    std::os::unix::fs::symlink(&source, place.join(".copy.pando-export-1")).unwrap();
    fs::write(place.join(".copy.pando-export-2"), "file").unwrap();
    let copy = place.join("copy");
    world.ok(&["export", &world.at("/s"), copy.to_str().unwrap()]);
    assert_eq!(fs::read(copy.join("file")).unwrap(), b"text");
    let mut left = beside(&place, "copy");
    left.sort();
    let others = [".copy.pando-export", ".copy.pando-export-1", ".copy.pando-export-2"];
    assert_eq!(left, others);
    assert!(place.join(".copy.pando-export/mine").exists() && source.join("file").exists());
}

/// Entries that a killed export of a user leaves have the modes of their sources.
#[test]
fn read_only_directories_of_a_killed_export_are_removed() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.source();
    fs::write(source.join("file"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
    if !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let place = world.path().join("place");
    let hidden = place.join(".copy.pando-export");
    let below = ["copy", "copy/a", "copy/a/b"].map(|path| hidden.join(path));
    fs::create_dir_all(&below[2]).unwrap();
    fs::write(below[1].join("file"), "text").unwrap();
    fs::write(below[2].join("file"), "text").unwrap();
    chown(below[1].join("file"), Some(NOBODY), Some(NOBODY)).unwrap();
    for (path, mode) in below.iter().rev().zip([0o000, 0o555, 0o555]) {
        fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    }
    for path in below.iter().chain([&hidden, &place]) {
        chown(path, Some(NOBODY), Some(NOBODY)).unwrap();
    }
    let (from, copy) = (world.below_mount("s"), place.join("copy"));
    let answer = nobody.run(&["export", from.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!((answer.code, beside(&place, "copy")), (0, vec![]), "{}", answer.err);
    // What cannot be removed is reported, and in nobody's way.
    fs::remove_dir_all(&copy).unwrap();
    let kept = hidden.join("of root");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("file"), "text").unwrap();
    chown(&hidden, Some(NOBODY), Some(NOBODY)).unwrap();
    let answer = nobody.run(&["export", from.to_str().unwrap(), copy.to_str().unwrap()]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.err.contains(".copy.pando-export"), "{}", answer.err);
    assert_eq!(beside(&place, "copy"), [".copy.pando-export"]);
}

/// Where files without names cannot be made, as in a mount, an archive is renamed at its end.
#[test]
fn an_archive_in_a_mount_gets_its_name() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    fs::create_dir_all(world.below_mount("s/below")).unwrap();
    fs::create_dir(world.below_mount("to")).unwrap();
    let (from, to) = (world.below_mount("s"), world.below_mount("to/copy.tar"));
    world.ok(&["export", "--format", "tar", from.to_str().unwrap(), to.to_str().unwrap()]);
    assert_eq!(world.names("/to"), ["copy.tar"]);
    let listed = Command::new("tar").arg("tf").arg(&to).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&listed.stdout).lines().count(), 2);
}
