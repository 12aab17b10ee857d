//! What a user plants in the directory of a volume of theirs, for root to open: nothing of root's
//! is given away or overwritten, and no verb of root's waits for it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{CWD, FileType, Mode};

use crate::other_users::Nobody;
use crate::world::{NOBODY, PANDO, World, is_root};

/// Seconds after which a verb of root's counts as hanging.
const HANGS: &str = "30";

#[derive(Debug, Clone, Copy)]
enum Plant {
    HardLink,
    Symlink,
    Fifo,
    Device,
}

impl Plant {
    const ALL: [Plant; 4] = [Plant::HardLink, Plant::Symlink, Plant::Fifo, Plant::Device];

    fn put(self, at: &Path, secret: &Path) {
        let node = |kind| {
            let number = rustix::fs::makedev(1, 3);
            rustix::fs::mknodat(CWD, at, kind, Mode::from_raw_mode(0o666), number).unwrap();
        };
        match self {
            Plant::HardLink => fs::hard_link(secret, at).unwrap(),
            Plant::Symlink => symlink(secret, at).unwrap(),
            Plant::Fifo => node(FileType::Fifo),
            Plant::Device => node(FileType::CharacterDevice),
        }
    }
}

/// All files below a directory, but sockets.
fn files(directory: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.is_file() {
            found.push(path);
        }
    }
}

fn root_runs(arguments: &[&str]) -> i32 {
    let output = Command::new("timeout")
        .args([HANGS, PANDO])
        .args(arguments)
        .env("PANDO_IDLE_SECONDS", "0")
        .output()
        .unwrap();
    output.status.code().unwrap_or(-1)
}

#[test]
fn nothing_of_roots_is_given_away_or_overwritten_through_a_volume_of_another() {
    if !is_root() {
        return;
    }
    for engine in ["btree", "lsm"] {
        let world = World::without_volume();
        let nobody = Nobody::new(&world);
        fs::create_dir(&world.volume).unwrap();
        chown(&world.volume, Some(NOBODY), Some(NOBODY)).unwrap();
        let ok = |arguments: &[&str]| {
            let answer = nobody.run(arguments);
            assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        };
        ok(&["format", "--engine", engine, world.vol()]);
        ok(&["subvolume", "create", &world.at("/d")]);
        world.kill_owner();
        let secret = world.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(&secret, PermissionsExt::from_mode(0o600)).unwrap();
        let mut names = Vec::new();
        files(&world.volume, &mut names);
        assert!(names.iter().any(|name| name.ends_with("owner.lock")), "{names:?}");
        let aside = world.path().join("aside");
        for name in &names {
            for plant in Plant::ALL {
                // The other verbs repair what is not there: the volume is put back after each.
                let copied = Command::new("cp").arg("-a").args([&world.volume, &aside]).status();
                assert!(copied.unwrap().success());
                fs::remove_file(name).unwrap();
                plant.put(name, &secret);
                for verb in [&["status", world.vol()][..], &["fsck", "--repair", world.vol()]] {
                    let code = root_runs(verb);
                    assert_ne!(code, 124, "{name:?} {plant:?}: {verb:?} hangs");
                }
                let found = secret.metadata().unwrap();
                let state = (found.uid(), found.mode() & 0o7777);
                assert_eq!(state, (0, 0o600), "{name:?} {plant:?}");
                assert_eq!(fs::read(&secret).unwrap(), b"secret", "{name:?} {plant:?}");
                if let Some(pid) = world.owner() {
                    crate::world::wait_until("it leaves", || !crate::world::is_alive(pid));
                }
                fs::remove_dir_all(&world.volume).unwrap();
                fs::rename(&aside, &world.volume).unwrap();
            }
        }
        assert!(world.ok(&["fsck", world.vol()]).contains("clean"));
        ok(&["ls", &world.at("/d")]);
    }
}
