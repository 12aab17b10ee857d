//! A disk that fills up: stored data stays readable, and work continues when there is space.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use testing::SetAtEnd;

use crate::world::{PANDO, World, answer, is_root};

on_each_engine!(
    a_full_disk_loses_nothing_and_recovers,
    a_small_disk_full_of_names_can_be_emptied_again_and_again,
);
on_one_engine!("btree": an_import_that_fills_the_disk_reports_that);

/// Size of the disk, in MiB: a few log segments and some data.
const MEBIBYTES: usize = 160;

/// A small disk, unmounted when this drops.
pub(crate) struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn new() -> Option<SmallDisk> {
        SmallDisk::of(MEBIBYTES)
    }

    pub(crate) fn of(mebibytes: usize) -> Option<SmallDisk> {
        if !is_root() {
            return None;
        }
        let directory = tempfile::Builder::new().prefix("pando-small-").tempdir().unwrap();
        let size = format!("size={mebibytes}m");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "tmpfs"])
            .arg(directory.path())
            .status()
            .unwrap();
        assert!(mounted.success(), "a tmpfs to fill");
        Some(SmallDisk(directory))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(self.path()).status());
    }
}

fn contents(number: usize) -> Vec<u8> {
    noise(number, 1 << 20)
}

/// Bytes that no engine can compress.
pub(crate) fn noise(number: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    fastrand::Rng::with_seed(number as u64).fill(&mut bytes);
    bytes
}

/// Writes files until there is no more space; returns how many are complete.
fn fill(directory: &Path) -> usize {
    for number in 0..MEBIBYTES {
        let file = fs::File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .open(directory.join(format!("f{number}")));
        let wrote = file.and_then(|mut file| {
            file.write_all(&contents(number))?;
            file.sync_all()
        });
        if let Err(error) = wrote {
            assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "file {number}: {error}");
            return number;
        }
    }
    panic!("a disk of {MEBIBYTES} MiB took as many MiB of files");
}

fn a_full_disk_loses_nothing_and_recovers(engine: &str) {
    let Some(disk) = SmallDisk::new() else { return };
    let world = World::below(disk.path());
    world.format(engine);
    if !world.mount() {
        return;
    }
    let directory = world.below_mount("d");
    fs::create_dir(&directory).unwrap();
    let whole = fill(&directory);
    assert!(whole > MEBIBYTES / 4, "only {whole} files");
    for number in 0..whole {
        let path = directory.join(format!("f{number}"));
        assert!(fs::read(path).unwrap() == contents(number), "file {number}");
    }
    // Deleting works, and frees space.
    for number in 0..whole / 2 {
        fs::remove_file(directory.join(format!("f{number}"))).unwrap();
    }
    let again = directory.join("again");
    crate::world::wait_until("there is space again", || fs::write(&again, contents(0)).is_ok());
    world.umount();
    world.ok(&["status", world.vol()]);
    assert!(world.mount());
    assert!(fs::read(&again).unwrap() == contents(0));
    for number in whole / 2..whole {
        let path = directory.join(format!("f{number}"));
        assert!(fs::read(path).unwrap() == contents(number), "file {number} after mounting again");
    }
}

fn an_import_that_fills_the_disk_reports_that(engine: &str) {
    let Some(disk) = SmallDisk::new() else { return };
    let world = World::below(disk.path());
    world.format(engine);
    let source = tempfile::tempdir().unwrap();
    for number in 0..MEBIBYTES / 8 {
        let bytes = contents(number).repeat(10);
        fs::write(source.path().join(format!("f{number}")), bytes).unwrap();
    }
    let printed = world.fails(7, &["import", source.path().to_str().unwrap(), &world.at("/d")]);
    assert!(printed.contains("space"), "{printed}");
    world.ok(&["ls", &world.at("/d")]);
    world.ok(&["rmr", "--wait", &world.at("/d")]);
    let small = source.path().join("f0");
    crate::world::wait_until("there is space again", || {
        world.run(&["import", small.to_str().unwrap(), &world.at("/small")]).code == 0
    });
}

/// Regression: a small disk filled with names, not contents, had no space for the checkpoint that
/// deleting needs, and stayed full forever.
fn a_small_disk_full_of_names_can_be_emptied_again_and_again(engine: &str) {
    // Full after some twenty thousand names.
    let Some(disk) = SmallDisk::of(6) else { return };
    let world = World::below(disk.path());
    world.format(engine);
    if !world.mount() {
        return;
    }
    let mut least = 0;
    for round in 0..testing::run::rounds(2, 3) {
        let directory = world.below_mount(&format!("d{round}"));
        fs::create_dir(&directory).unwrap();
        let mut made = 0;
        while made < 30_000 {
            match fs::create_dir(directory.join(format!("n{made}"))) {
                Ok(()) => made += 1,
                Err(error) => {
                    assert_eq!(error.kind(), std::io::ErrorKind::StorageFull, "{error}");
                    break;
                }
            }
        }
        assert!(made > 5_000, "round {round}: only {made} directories");
        assert!(made * 2 > least, "round {round}: {made} directories, {least} before");
        least = if least == 0 { made } else { least.min(made) };
        world.ok(&["rmr", "--wait", directory.to_str().unwrap()]);
    }
    world.umount();
    assert!(world.mount());
    world.ok(&["ls", world.mnt()]);
}

#[test]
fn a_mount_point_inside_the_volume_is_refused() {
    let world = World::new();
    let inside = world.volume.join("log");
    let printed = world.fails(1, &["mount", world.vol(), inside.to_str().unwrap()]);
    assert!(printed.contains("inside the volume"), "{printed}");
}

/// Regression: it waited forever without a message, and nothing reported why.
///
/// The records of what is removed alternate with those of what stays, so that the removal changes
/// every leaf. The checkpoint that frees space first writes all leaves that stay to other places.
/// They are far more than the free nodes that the volume's own files may have.
#[test]
fn waiting_for_a_removal_ends_when_there_is_no_space_to_continue() {
    const DIRECTORIES: usize = 1500;
    let Some(disk) = SmallDisk::of(40) else { return };
    let world = World::below(disk.path());
    world.format("btree");
    if !world.mount() {
        return;
    }
    let tops = ["removed", "stays"].map(|name| world.below_mount(name));
    for top in &tops {
        fs::create_dir(top).unwrap();
    }
    for number in 0..DIRECTORIES {
        for top in &tops {
            let directory = top.join(number.to_string());
            fs::create_dir(&directory).unwrap();
            // Short enough to be stored with the name.
            fs::write(directory.join("f"), noise(number, 3000)).unwrap();
        }
    }
    world.umount();
    // The daemon runs before the disk is full.
    world.ok(&["ls", &world.at("/")]);
    let ballast = disk.path().join("ballast");
    let mut file = fs::File::options().write(true).create_new(true).open(&ballast).unwrap();
    while file.write_all(&[1; 4096]).is_ok() {}
    // What the daemon frees nevertheless, another program takes at once.
    let is_over = AtomicBool::new(false);
    let removed = device::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if file.write_all(&[1; 4096]).is_err() {
                    SystemClock::new().sleep(Duration::from_millis(1));
                }
            }
        });
        let _end = SetAtEnd(&is_over);
        let arguments = ["100", PANDO, "rmr", "--wait", &world.at("/removed")];
        answer(&Command::new("timeout").args(arguments).output().unwrap())
    });
    drop(file);
    assert_eq!(removed.code, 7, "it waits for ever, or there was space: {removed:?}");
    assert!(removed.err.contains("free space"), "{}", removed.err);
    let reported = world.ok(&["status", world.vol()]);
    assert!(reported.contains("STUCK") && reported.contains("no space"), "{reported}");
    fs::remove_file(&ballast).unwrap();
    crate::world::wait_until("its space is back", || {
        let status = world.status();
        status["stuck"].is_null() && status["background"]["detached"] == 0
    });
    let last = world.at(&format!("/stays/{}/f", DIRECTORIES - 1));
    world.ok(&["cat", &last]);
    assert_eq!(world.names("/"), ["stays"]);
}

/// Regression: the message reported that a file could not be written, and not what to do.
#[test]
fn a_volume_on_a_read_only_disk_is_refused_with_a_remedy() {
    let Some(disk) = SmallDisk::of(40) else { return };
    let world = World::below(disk.path());
    world.format("btree");
    for is_there in [true, false] {
        let lock = world.volume.join("owner.lock");
        if is_there {
            fs::write(&lock, "").unwrap();
        } else {
            fs::remove_file(&lock).unwrap();
        }
        let remount = |how: &str| {
            let how = format!("remount,{how}");
            let done = Command::new("mount").args(["-o", &how]).arg(disk.path()).status();
            assert!(done.unwrap().success(), "{how}");
        };
        remount("ro");
        for verb in [&["ls"][..], &["status"], &["find"]] {
            let place = if verb[0] == "status" { world.vol().to_owned() } else { world.at("/") };
            let printed = world.fails(7, &[verb, &[&place]].concat());
            assert!(printed.contains("accepts no writes") && printed.contains("copy"), "{printed}");
        }
        let mounted = world.run(&["mount", "-o", "ro", world.vol(), world.mnt()]);
        assert_eq!(mounted.code, 7, "{}", mounted.err);
        assert!(mounted.err.contains("accepts no writes"), "{}", mounted.err);
        assert!(world.ok(&["fsck", world.vol()]).ends_with("clean\n"));
        remount("rw");
        assert!(world.ok(&["fsck", world.vol()]).ends_with("clean\n"));
    }
}
