//! Mounts: two of one volume, one over another, signals, fstab, options, and the kernel's caches.

use std::os::unix::fs::{DirEntryExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use device::{Clock, SystemClock};

use crate::world::{PANDO, World, answer, is_alive, is_root, reason, signal, wait_until};

#[test]
fn a_second_mount_names_the_first() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let elsewhere = world.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    for place in [world.mnt(), elsewhere.to_str().unwrap()] {
        let printed = world.fails(6, &["mount", world.vol(), place]);
        let pid = world.daemon().unwrap().to_string();
        assert!(printed.contains(world.mnt()) && printed.contains(&pid), "{printed}");
        assert!(!printed.contains("locked"), "{printed}");
        assert!(printed.contains(&format!("mount --bind {} DIR", world.mnt())), "{printed}");
    }
    std::fs::write(world.below_mount("still"), "works").unwrap();
}

/// Backup programs compare the inode numbers of a snapshot with those of the previous one.
#[test]
fn inode_numbers_of_snapshots_follow_the_mount_option() {
    let world = World::new();
    for (options, alike) in [("rw", false), ("snapshot-inodes=alike", true)] {
        if !world.mount_with(&["-o", options]) {
            return;
        }
        let dir = world.below_mount(options);
        std::fs::create_dir_all(dir.join("sub")).unwrap();
        std::fs::write(dir.join("sub/f"), "x").unwrap();
        for name in ["one", "two"] {
            world.ok(&["snapshot", "create", dir.to_str().unwrap(), name]);
        }
        for inner in ["", "sub", "sub/f"] {
            let number = |place: &str| dir.join(place).join(inner).metadata().unwrap().ino();
            let numbers = [".", ".snapshots/one", ".snapshots/two"].map(number);
            assert!(numbers[0] != numbers[1] && numbers[0] != numbers[2], "{inner}: {numbers:?}");
            assert_eq!(numbers[1] == numbers[2], alike, "{inner}: {numbers:?}");
        }
        // Listings show the same numbers as attributes, and files are found by them.
        for name in ["one", "two"] {
            let sub = dir.join(".snapshots").join(name).join("sub");
            let entry = std::fs::read_dir(&sub).unwrap().next().unwrap().unwrap();
            assert_eq!(entry.ino(), sub.join("f").metadata().unwrap().ino());
        }
        std::fs::write(dir.join("sub/f"), "changed").unwrap();
        for name in ["one", "two"] {
            let old = dir.join(".snapshots").join(name).join("sub/f");
            assert_eq!(std::fs::read_to_string(old).unwrap(), "x");
        }
        world.umount();
    }
}

#[test]
fn a_mount_over_another_is_refused() {
    let one = World::new();
    let other = World::new();
    if !one.mount() {
        return;
    }
    let printed = other.fails(6, &["mount", other.vol(), one.mnt()]);
    assert!(printed.contains(one.mnt()), "{printed}");
    std::fs::write(one.below_mount("still"), "works").unwrap();
    assert_eq!(other.names("/"), Vec::<String>::new(), "its daemon left in order");
}

#[test]
fn impossible_mount_points_are_reported() {
    let world = World::new();
    world.fails(3, &["mount", world.vol(), "/nowhere/at/all"]);
    let file = world.path().join("file");
    std::fs::write(&file, "").unwrap();
    if reason("SKIP_FUSE").is_none() {
        world.fails(6, &["mount", world.vol(), file.to_str().unwrap()]);
    }
    world.fails(2, &["mount", world.vol(), world.mnt(), "-o", "no-such-option"]);
    world.fails(3, &["umount", world.mnt()]);
    world.fails(3, &["umount", world.vol()]);
}

/// A user who tries it out has not created a volume yet; the message explains how.
#[test]
fn a_missing_volume_is_reported() {
    let world = World::new();
    let none = world.path().join("none");
    let none = none.to_str().unwrap();
    for arguments in [&["mount", none, world.mnt()][..], &["status", none], &["fsck", none]] {
        let printed = world.fails(3, arguments);
        assert!(printed.contains(&format!("there is no volume at {none}")), "{printed}");
        assert!(printed.contains(&format!("`pando format {none}` makes one")), "{printed}");
    }
    // For other paths, the message does not assume a missing volume.
    let printed = world.fails(3, &["du", none]);
    assert!(printed.contains("VOLDIR:/path") && !printed.contains("pando format"), "{printed}");
}

#[test]
fn sigterm_and_sigint_unmount_cleanly() {
    for end in [rustix::process::Signal::TERM, rustix::process::Signal::INT] {
        let world = World::new();
        if !world.mount() {
            return;
        }
        std::fs::write(world.below_mount("file"), "kept").unwrap();
        let pid = world.daemon().unwrap();
        signal(pid, end);
        wait_until("the daemon leaves", || !is_alive(pid));
        assert_eq!(fuse::mounts_of(&world.volume), []);
        assert!(!world.volume.join("control.sock").exists());
        assert_eq!(world.ok(&["cat", &world.at("/file")]), "kept");
        assert_eq!(world.status()["replayed"], 0, "closed in order: nothing to replay");
    }
}

#[test]
fn a_foreground_mount_stays_until_it_is_ended() {
    if reason("SKIP_FUSE").is_some() {
        return;
    }
    let world = World::new();
    let child = World::command(&["mount", "-f", world.vol(), world.mnt()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until("it is mounted", || !fuse::mounts_of(&world.volume).is_empty());
    std::fs::write(world.below_mount("file"), "x").unwrap();
    signal(child.id().cast_signed(), rustix::process::Signal::INT);
    let answer = answer(&child.wait_with_output().unwrap());
    assert_eq!(answer.code, 0, "{}", answer.err);
    assert!(answer.out.contains("mounted"), "{}", answer.out);
    assert_eq!(fuse::mounts_of(&world.volume), []);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a file of the mount, held open")]
fn a_mount_in_use_stays_unless_asked_otherwise() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::write(world.below_mount("f"), "kept").unwrap();
    let open = std::fs::File::open(world.below_mount("f")).unwrap();
    let printed = world.fails(6, &["umount", world.mnt()]);
    let pid = format!("pid {}", std::process::id());
    assert!(printed.contains(&pid) && printed.contains("--lazy"), "{printed}");
    assert!(world.below_mount("f").exists(), "it stays");
    let unmounted = world.json(&["umount", "--lazy", world.mnt()]).remove(0);
    assert_eq!(unmounted["in_use"], true);
    assert!(!world.below_mount("f").exists());
    let pid = world.daemon().expect("a daemon");
    drop(open);
    wait_until("the daemon is gone", || !is_alive(pid));
    // A mount whose server is dead is removed even if files are open there: nothing can be done
    // with them.
    assert!(world.mount());
    let open = std::fs::File::open(world.below_mount("f")).unwrap();
    world.kill_daemon();
    world.umount();
    drop(open);
}

/// Regression: as long as the daemon of a mount that was gone had not ended, the volume could not
/// be mounted ("is mounted there already"). Nor could it be unmounted.
#[test]
#[expect(clippy::disallowed_methods, reason = "a file of the mount, held open")]
fn a_mount_that_is_gone_is_waited_for_or_ended() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::write(world.below_mount("f"), "kept").unwrap();
    let hold = || std::fs::File::open(world.below_mount("f")).unwrap();
    let open = hold();
    world.ok(&["umount", "--lazy", world.mnt()]);
    let printed = world.fails(6, &["umount", world.vol()]);
    assert!(printed.contains("files are open") && printed.contains("--lazy"), "{printed}");
    device::scope(|scope| {
        scope.spawn(|| {
            SystemClock::new().sleep(Duration::from_secs(1));
            drop(open);
        });
        // With other options: with the same ones its daemon would mount it again.
        world.ok(&["mount", "-o", "noatime", world.vol(), world.mnt()]);
    });
    let open = hold();
    let first = world.daemon().expect("a daemon");
    world.ok(&["umount", "--lazy", world.mnt()]);
    world.ok(&["umount", "--lazy", world.vol()]);
    assert!(!is_alive(first));
    drop(open);
    assert!(world.mount());
    assert_eq!(std::fs::read(world.below_mount("f")).unwrap(), b"kept");
    world.umount();
}

/// Regression: the kernel removed what others had mounted there, with everything that they had
/// written.
#[test]
fn a_directory_above_a_mount_is_not_removed() {
    if reason("SKIP_ROOT").is_some() || !is_root() {
        return;
    }
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::create_dir_all(world.below_mount("d/a/m")).unwrap();
    std::fs::create_dir_all(world.below_mount("other")).unwrap();
    world.ok(&["snapshot", "create", &world.at("/d"), "s"]);
    let place = world.below_mount("d/a/m");
    let mount = |arguments: &[&std::ffi::OsStr]| {
        assert!(Command::new("mount").args(arguments).status().unwrap().success());
    };
    mount(&["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), place.as_os_str()]);
    std::fs::write(place.join("theirs"), "theirs").unwrap();
    for arguments in [
        &["rmr", &world.at("/d")][..],
        &["rmr", &world.at("/d/a")],
        &["rmr", &world.at("/d/a/m")],
        &["rollback", &world.at("/d"), "s"],
    ] {
        let printed = world.fails(6, arguments);
        assert!(printed.contains("d/a/m is a mount point"), "{printed}");
    }
    world.ok(&["rmr", &world.at("/other")]);
    assert_eq!(std::fs::read_to_string(place.join("theirs")).unwrap(), "theirs");
    let umount = |place: &std::path::Path| {
        assert!(Command::new("umount").arg(place).status().unwrap().success());
    };
    umount(&place);
    world.ok(&["rollback", &world.at("/d"), "s"]);
    // A snapshot is not removed either, by its name or by its number.
    let place = world.below_mount("d/.snapshots/s/a/m");
    mount(&["-t".as_ref(), "tmpfs".as_ref(), "none".as_ref(), place.as_os_str()]);
    std::fs::write(place.join("theirs"), "theirs").unwrap();
    let number = world.json(&["snapshot", "list", &world.at("/d")])[0]["subvolume"].to_string();
    for arguments in [
        &["snapshot", "rename", &world.at("/d"), "s", "t"][..],
        &["snapshot", "delete", &world.at("/d"), "s"],
        &["snapshot", "delete", world.vol(), "--number", &number],
    ] {
        let printed = world.fails(6, arguments);
        assert!(printed.contains(".snapshots/s/a/m is a mount point"), "{arguments:?}: {printed}");
    }
    assert_eq!(std::fs::read_to_string(place.join("theirs")).unwrap(), "theirs");
    umount(&place);
    world.ok(&["snapshot", "rename", &world.at("/d"), "s", "t"]);
    world.ok(&["snapshot", "delete", world.vol(), "--number", &number]);
    assert_eq!(world.json(&["snapshot", "list", &world.at("/d")]).len(), 0);
    world.ok(&["rmr", &world.at("/d")]);
}

#[test]
fn mounts_that_keep_a_mount_busy_are_named() {
    let world = World::new();
    if !is_root() || !world.mount() {
        return;
    }
    let place = world.below_mount("a place");
    std::fs::create_dir(&place).unwrap();
    let place = place.to_str().unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none", place]).status().unwrap();
    assert!(mounted.success());
    let printed = world.run(&["umount", world.mnt()]);
    assert!(Command::new("umount").arg(place).status().unwrap().success());
    assert_eq!(printed.code, 6, "{}", printed.err);
    assert!(printed.err.contains(&format!("by what is mounted on {place}")), "{}", printed.err);
    world.umount();
}

#[test]
fn a_mount_whose_server_died_is_mounted_again() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let file = world.below_mount("file");
    std::fs::write(&file, "durable").unwrap();
    std::fs::File::options().write(true).open(&file).unwrap().sync_all().unwrap();
    world.kill_daemon();
    let dead = std::fs::read(&file).unwrap_err();
    assert_eq!(dead.kind(), std::io::ErrorKind::NotConnected, "the mount is dead");
    assert!(world.mount());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "durable");
}

#[test]
fn the_mount_helper_accepts_an_fstab_line() {
    if reason("SKIP_FUSE").is_some() {
        return;
    }
    let world = World::new();
    let status = Command::new(PANDO)
        .arg0("/sbin/mount.pando")
        .args([world.vol(), world.mnt(), "-o", "rw,nofail,noatime", "-n"])
        .status()
        .unwrap();
    assert!(status.success());
    std::fs::write(world.below_mount("file"), "x").unwrap();
    world.umount();
}

/// What the kernel does of them is in its list of mounts.
#[test]
fn options_of_the_kernel_reach_it() {
    let world = World::new();
    if !world.mount_with(&["-o", "dirsync,nodev,nosuid,noexec,relatime,noclone_fd"]) {
        return;
    }
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(&format!(" {} ", world.mnt()))).unwrap();
    let has = |option: &str| line.split([' ', ',']).any(|word| word == option);
    for option in ["dirsync", "nodev", "nosuid", "noexec", "relatime"] {
        assert!(has(option), "{option}: {line}");
    }
    world.umount();
}

#[test]
fn a_mount_shows_a_directory_of_the_volume_or_nothing_to_write() {
    let world = World::new();
    world.ok(&["subvolume", "create", &world.at("/s")]);
    world.ok(&["subvolume", "create", &world.at("/s/inner")]);
    if !world.mount_with(&["-o", "subdir=s"]) {
        return;
    }
    assert!(world.below_mount("inner").is_dir());
    let inner = world.below_mount("inner");
    let info = world.json(&["info", inner.to_str().unwrap()]).remove(0);
    assert_eq!(info["path"], inner.to_str().unwrap());
    world.umount();
    assert!(world.mount_with(&["-o", "ro"]));
    let refused = std::fs::write(world.below_mount("file"), "x").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
    world.fails(7, &["subvolume", "create", &world.at("/t")]);
}

#[test]
fn changes_by_commands_are_visible_through_the_mount_at_once() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::create_dir(world.below_mount("d")).unwrap();
    let file = world.below_mount("d/f");
    for round in 0..20 {
        std::fs::write(&file, format!("before {round}")).unwrap();
        assert!(!world.below_mount("c").exists());
        world.ok(&["snapshot", "create", &world.at("/d"), "s"]);
        let old = world.below_mount("d/.snapshots/s/f");
        assert_eq!(std::fs::read_to_string(old).unwrap(), format!("before {round}"));
        std::fs::write(&file, "after").unwrap();
        world.ok(&["clone", &world.at("/d"), &world.at("/c")]);
        assert_eq!(std::fs::read_to_string(world.below_mount("c/f")).unwrap(), "after");
        world.ok(&["rollback", &world.at("/d"), "s"]);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("before {round}"));
        world.ok(&["rmr", &world.at("/c")]);
        world.ok(&["snapshot", "delete", &world.at("/d"), "s"]);
        assert!(!world.below_mount("d/.snapshots/s").exists());
    }
}

#[test]
fn snapshots_are_taken_by_mkdir_and_deleted_by_rmdir() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    std::fs::create_dir(world.below_mount("d")).unwrap();
    std::fs::write(world.below_mount("d/f"), "old").unwrap();
    std::fs::create_dir(world.below_mount("d/.snapshots/s")).unwrap();
    std::fs::write(world.below_mount("d/f"), "new").unwrap();
    let kept = world.below_mount("d/.snapshots/s/f");
    assert_eq!(std::fs::read_to_string(kept).unwrap(), "old");
    let listed = world.json(&["snapshot", "list", &world.at("/d")]);
    assert_eq!(listed[0]["name"], "s");
    let names: Vec<_> = std::fs::read_dir(world.below_mount("d"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names, ["f"], "the directory of snapshots is hidden");
    std::fs::remove_dir(world.below_mount("d/.snapshots/s")).unwrap();
    assert_eq!(world.json(&["snapshot", "list", &world.at("/d")]).len(), 0);
}

/// Regression: both were given to the process that mounts, which refused the second.
#[test]
fn the_command_line_overrides_the_environment() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    world.umount();
    let has_index = |options: &[&str]| {
        let arguments = [&["mount", world.vol(), world.mnt()], options].concat();
        let mut command = World::command(&arguments);
        command.env("PANDO_INDEX_CACHE", "0").env("PANDO_CACHE_SIZE", "32M");
        let mounted = answer(&command.output().unwrap());
        assert_eq!(mounted.code, 0, "{options:?}: {}", mounted.err);
        let flushed = world.run(&["search", "flush", world.mnt()]);
        world.umount();
        assert!(flushed.code == 0 || flushed.err.contains("keeps no index"), "{}", flushed.err);
        flushed.code == 0
    };
    assert!(!has_index(&[]));
    assert!(has_index(&["--index-cache", "64M", "--cache-size", "64M"]));
    // In the foreground it is the same program.
    let mut command = World::command(&["mount", "-f", world.vol(), world.mnt()]);
    let wrong = answer(&command.env("PANDO_CACHE_SIZE", "some").output().unwrap());
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    let names = wrong.err.contains("PANDO_CACHE_SIZE");
    assert!(names && wrong.err.contains("512M"), "{}", wrong.err);
}

/// Regression: the daemon made every requested change through a mount that `touch` could not write
/// to.
#[test]
fn no_verb_changes_anything_through_a_mount_that_became_read_only() {
    let world = World::new();
    if !is_root() || !world.mount() {
        return;
    }
    let file = world.path().join("file");
    std::fs::write(&file, "new").unwrap();
    let file = file.to_str().unwrap();
    let below = |inner: &str| world.below_mount(inner).to_str().unwrap().to_owned();
    let (d, other) = (below("d"), below("other"));
    std::fs::create_dir(&d).unwrap();
    world.ok(&["snapshot", "create", &d, "one"]);
    world.ok(&["trash", "on", &d]);
    let inner = below("d/inner");
    world.ok(&["format", &inner]);
    world.ok(&["mount", "-o", "remount,ro", world.vol(), world.mnt()]);
    let refused = std::fs::create_dir(&other).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem, "the kernel refuses");
    let (mnt, number, gone) = (world.mnt(), "2", below("d/gone"));
    let changes: &[&[&str]] = &[
        &["import", file, &other],
        &["rmr", &d],
        &["rmr", &inner],
        &["snapshot", "create", &d, "two"],
        &["snapshot", "rename", &d, "one", "two"],
        &["snapshot", "delete", &d, "one"],
        &["snapshot", "delete", mnt, "--number", number],
        &["clone", &d, &other],
        &["rollback", &d, "one"],
        &["subvolume", "create", &other],
        &["quota", "set", &d, "--inodes", "10"],
        &["quota", "set", mnt, "--user", "7", "--inodes", "10"],
        &["trash", "on", mnt],
        &["trash", "off", &d],
        &["trash", "empty", &d],
        &["restore", &gone],
        &["search", "declare", mnt, "user.project"],
        &["gc", "--delete", mnt],
    ];
    for arguments in changes {
        let printed = world.fails(7, arguments);
        assert!(printed.contains("is mounted read-only"), "{arguments:?}: {printed}");
    }
    assert_eq!(world.names("/"), ["d"]);
    let snapshots = world.json(&["snapshot", "list", &d]);
    assert_eq!(snapshots.len(), 1, "{snapshots:?}");
    assert_eq!(snapshots[0]["name"], "one");
    assert_eq!(world.json(&["trash", "list", &d]).len(), 0);
    // The volume accepts changes, and so does the mount when it is remounted.
    world.ok(&["subvolume", "create", &world.at("/other")]);
    world.ok(&["mount", "-o", "remount,rw", world.vol(), world.mnt()]);
    world.ok(&["import", file, &below("new")]);
    assert_eq!(std::fs::read_to_string(below("new")).unwrap(), "new");
}

/// Regression: `ls` of a directory beside a mount showed a snapshot of the mount.
#[test]
fn a_directory_named_like_a_snapshot_of_a_mount_is_not_one() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    world.ok(&["snapshot", "create", world.mnt(), "one"]);
    let snapshot = format!("{}@one", world.mnt());
    assert_eq!(world.ok(&["ls", &snapshot]), "");
    std::fs::create_dir(&snapshot).unwrap();
    for path in [snapshot.clone(), format!("{snapshot}/")] {
        let printed = world.fails(3, &["ls", &path]);
        assert!(printed.contains("is not below a mounted volume"), "{printed}");
    }
}
