//! Every verb as another user: the daemon refuses what is not theirs, by the credentials that the
//! kernel reports.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::world::{Answer, IDLE_SECONDS, NOBODY, World, answer, copy_program, is_root};

/// An ordinary user, with a reachable copy of the binary.
pub(crate) struct Nobody {
    program: PathBuf,
}

impl Nobody {
    pub(crate) fn new(world: &World) -> Nobody {
        let program = world.path().join("pando");
        copy_program(&program);
        Nobody { program }
    }

    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: &[S]) -> Answer {
        let id = NOBODY.to_string();
        let output = Command::new("setpriv")
            .args([&format!("--reuid={id}"), &format!("--regid={id}")])
            .arg("--clear-groups")
            .arg(&self.program)
            .args(arguments)
            .env("PANDO_IDLE_SECONDS", IDLE_SECONDS)
            .current_dir("/")
            .output()
            .unwrap();
        answer(&output)
    }

    /// The words that begin a command as this user, and the user's copy of the binary.
    pub(crate) fn becomes(&self) -> (Vec<OsString>, &Path) {
        let id = NOBODY.to_string();
        let words =
            ["setpriv", &format!("--reuid={id}"), &format!("--regid={id}"), "--clear-groups"]
                .map(OsString::from);
        (words.to_vec(), &self.program)
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 0, "{arguments:?}: {}", answer.err);
        answer.out
    }

    fn refused(&self, arguments: &[&str]) {
        let answer = self.run(arguments);
        assert_eq!(answer.code, 4, "{arguments:?}: {} {}", answer.out, answer.err);
    }
}

/// A volume with an open directory of root, a closed one, and one of the user nobody.
fn volume() -> Option<(World, Nobody)> {
    if !is_root() {
        return None;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.path().join("source");
    for directory in ["open/sub", "closed", "own/sub"] {
        fs::create_dir_all(source.join(directory)).unwrap();
        fs::write(source.join(directory).join("file"), "text").unwrap();
    }
    fs::set_permissions(source.join("closed"), PermissionsExt::from_mode(0o700)).unwrap();
    for own in ["own", "own/sub", "own/sub/file"] {
        chown(source.join(own), Some(NOBODY), Some(NOBODY)).unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/v")]);
    world.ok(&["snapshot", "create", &world.at("/v/open"), "s"]);
    Some((world, nobody))
}

#[test]
fn reading_follows_the_permission_bits() {
    let Some((world, nobody)) = volume() else { return };
    world.ok(&["status", world.vol()]);
    nobody.ok(&["ls", &world.at("/v/open")]);
    nobody.ok(&["stat", &world.at("/v/open/sub/file")]);
    nobody.ok(&["info", &world.at("/v/open")]);
    assert_eq!(nobody.ok(&["cat", &world.at("/v/open/sub/file")]), "text");
    nobody.ok(&["status", world.vol()]);
    nobody.ok(&["snapshot", "list", &world.at("/v/open")]);
    nobody.ok(&["sync", world.vol()]);
    nobody.refused(&["ls", &world.at("/v/closed")]);
    nobody.refused(&["stat", &world.at("/v/closed/file")]);
    nobody.refused(&["info", &world.at("/v/closed/file")]);
    nobody.refused(&["cat", &world.at("/v/closed/file")]);
    let all = nobody.run(&["ls", "-R", &world.at("/v")]);
    assert_eq!(all.code, 4, "{}", all.err);
    assert!(all.out.contains("open") && !all.out.contains("closed:\nfile"), "{}", all.out);
    let du = nobody.run(&["du", "-s", &world.at("/v")]);
    assert!(du.code == 1 && du.out.ends_with("/v\n"), "{}", du.err);
    assert!(du.err.contains("1 directory cannot be read, and is not counted"), "{}", du.err);
}

#[test]
fn users_cannot_change_other_users_volumes() {
    let Some((world, nobody)) = volume() else { return };
    world.ok(&["status", world.vol()]);
    let file = world.path().join("file");
    fs::write(&file, "x").unwrap();
    let file = file.to_str().unwrap();
    nobody.refused(&["import", file, &world.at("/v/open/new")]);
    nobody.refused(&["import", file, &world.at("/v/open/sub/file")]);
    nobody.refused(&["snapshot", "create", &world.at("/v/open"), "t"]);
    nobody.refused(&["snapshot", "delete", &world.at("/v/open"), "s"]);
    nobody.refused(&["snapshot", "rename", &world.at("/v/open"), "s", "t"]);
    nobody.refused(&["clone", &world.at("/v/open"), &world.at("/v/own/c")]);
    nobody.refused(&["clone", &world.at("/v/own"), &world.at("/v/open/c")]);
    nobody.refused(&["rollback", &world.at("/v/open"), "s"]);
    nobody.refused(&["rmr", &world.at("/v/open")]);
    nobody.refused(&["rmr", &world.at("/v/open/sub")]);
    nobody.refused(&["subvolume", "create", &world.at("/v/open/s")]);
    assert_eq!(world.names("/v/open"), ["sub"]);
    assert_eq!(world.json(&["snapshot", "list", &world.at("/v/open")]).len(), 1);
}

#[test]
fn users_manage_their_own_volumes() {
    let Some((world, nobody)) = volume() else { return };
    world.ok(&["status", world.vol()]);
    let file = world.path().join("file");
    fs::write(&file, "mine").unwrap();
    nobody.ok(&["import", file.to_str().unwrap(), &world.at("/v/own/new")]);
    nobody.ok(&["snapshot", "create", &world.at("/v/own"), "a"]);
    nobody.ok(&["snapshot", "rename", &world.at("/v/own"), "a", "b"]);
    nobody.ok(&["rmr", &world.at("/v/own/sub")]);
    nobody.ok(&["clone", &world.at("/v/own/.snapshots/b"), &world.at("/v/own/c")]);
    assert_eq!(nobody.ok(&["cat", &world.at("/v/own/c/sub/file")]), "text");
    nobody.ok(&["rollback", &world.at("/v/own"), "b"]);
    assert_eq!(nobody.ok(&["cat", &world.at("/v/own/sub/file")]), "text");
    nobody.ok(&["subvolume", "create", &world.at("/v/own/s")]);
    nobody.ok(&["snapshot", "delete", &world.at("/v/own"), "b"]);
}

#[test]
fn a_users_directory_below_another_users_is_rolled_back_by_root_only() {
    let Some((world, nobody)) = volume() else { return };
    world.ok(&["snapshot", "create", &world.at("/v/own"), "s"]);
    // Another user's directory below: its owner must agree.
    world.ok(&["subvolume", "create", &world.at("/v/own/roots")]);
    nobody.refused(&["rmr", &world.at("/v/own/roots")]);
    nobody.refused(&["rollback", &world.at("/v/own"), "s"]);
    world.ok(&["rollback", &world.at("/v/own"), "s"]);
    assert_eq!(world.names("/v/own"), ["sub"]);
}

#[test]
fn other_users_volumes_are_neither_opened_mounted_nor_created() {
    let Some((world, nobody)) = volume() else { return };
    // The daemon runs: a mount would have to replace it.
    world.ok(&["status", world.vol()]);
    nobody.refused(&["mount", world.vol(), world.mnt()]);
    world.kill_daemon();
    nobody.refused(&["ls", &world.at("/")]);
    nobody.refused(&["mount", world.vol(), world.mnt()]);
    nobody.refused(&["format", world.path().join("other").to_str().unwrap()]);
    assert_eq!(world.names("/v/own"), ["sub"], "nothing of this did harm");
    if world.mount() {
        let answer = nobody.run(&["umount", world.mnt()]);
        assert_ne!(answer.code, 0, "{}", answer.out);
        nobody.ok(&["ls", world.below_mount("v/open").to_str().unwrap()]);
        nobody.refused(&["ls", world.below_mount("v/closed").to_str().unwrap()]);
        assert!(world.below_mount("v/own").is_dir());
    }
}

#[test]
fn a_refused_check_names_who_may() {
    let Some((world, nobody)) = volume() else { return };
    let refused = |arguments: &[&str], words: &[&str]| {
        let answer = nobody.run(arguments);
        assert_eq!(answer.code, 4, "{arguments:?}: {} {}", answer.out, answer.err);
        for words in words {
            assert!(answer.err.contains(words), "{arguments:?}: {}", answer.err);
        }
        let misleading =
            ["others may use it", "not below a mounted", "is not a volume", "has it mounted"];
        for misleading in misleading {
            assert!(!answer.err.contains(misleading), "{arguments:?}: {}", answer.err);
        }
    };
    let who = "the owner of the volume's directory, or the user whose daemon has the volume open";
    let by_owner = [&format!("only root, {who}, checks it"), "of root has the volume open"];
    let by_user = ["only the volume's user, or root, checks and repairs it", "Permission denied"];
    let vol = world.vol();
    world.ok(&["status", vol]);
    refused(&["fsck", vol], &by_owner);
    refused(&["fsck", "--repair", vol], &by_user);
    let pid = world.daemon();
    world.kill_daemon();
    refused(&["fsck", vol], &by_user);
    refused(&["fsck", "--repair", "--dry-run", vol], &by_user);
    assert_eq!(world.daemon(), pid, "none is started for it");
    let mode = |mode| fs::set_permissions(vol, PermissionsExt::from_mode(mode)).unwrap();
    let above = ["Permission denied", "search permission"];
    mode(0o700);
    refused(&["fsck", vol], &above);
    refused(&["ls", &world.at("/")], &above);
    mode(0o711);
    if world.mount() {
        refused(&["fsck", world.mnt()], &by_owner);
        refused(&["fsck", world.below_mount("v/own").to_str().unwrap()], &by_owner);
        refused(&["fsck", "--repair", world.mnt()], &by_user);
        mode(0o700);
        refused(&["status", world.mnt()], &above);
        mode(0o711);
        world.ok(&["fsck", world.mnt()]);
        world.umount();
    }
}

/// Root has looked into a volume of the user nobody: that user need not wait until root's daemon
/// is idle.
#[test]
fn roots_daemon_yields_to_the_volumes_user() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let nobody = Nobody::new(&world);
    fs::create_dir(&world.volume).unwrap();
    chown(&world.volume, Some(NOBODY), Some(NOBODY)).unwrap();
    nobody.ok(&["format", world.vol()]);
    world.ok(&["subvolume", "create", &world.at("/d")]);
    let pid = world.daemon().unwrap();
    // It also checks for that user.
    assert!(nobody.ok(&["fsck", world.vol()]).ends_with("clean\n"));
    nobody.ok(&["gc", world.vol()]);
    assert_eq!(world.daemon(), Some(pid));
    // It takes the volume exclusively, as a mount does.
    nobody.ok(&["fsck", "--repair", world.vol()]);
    assert_ne!(world.daemon(), Some(pid));
    assert_eq!(nobody.ok(&["ls", &world.at("/")]), "d\n");
}

/// Regression: the message to the volume's user was that only the volume's user may open it.
#[test]
fn a_foreign_file_in_a_volume_is_reported_with_a_remedy() {
    if !is_root() {
        return;
    }
    let world = World::without_volume();
    let nobody = Nobody::new(&world);
    let theirs = world.path().join("theirs");
    fs::create_dir(&theirs).unwrap();
    chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
    let volume = theirs.to_str().unwrap();
    nobody.ok(&["format", "--engine", "btree", volume]);
    let nodes = theirs.join("btree/nodes");
    chown(&nodes, Some(0), Some(0)).unwrap();
    fs::set_permissions(&nodes, PermissionsExt::from_mode(0o600)).unwrap();
    for verb in [&["ls"][..], &["status"], &["fsck"], &["fsck", "--repair"]] {
        let place = if verb[0] == "ls" { format!("{volume}:/") } else { volume.to_owned() };
        let printed = nobody.run(&[verb, &[&place]].concat());
        assert_eq!(printed.code, 4, "{verb:?}: {}", printed.err);
        let (file, err) = (nodes.to_str().unwrap(), &printed.err);
        assert!(err.contains(&format!("{file} belongs to root")), "{verb:?}: {err}");
        assert!(err.contains("chown") && !err.contains("only the volume's user"), "{err}");
    }
    chown(&nodes, Some(NOBODY), Some(NOBODY)).unwrap();
    nobody.ok(&["ls", &format!("{volume}:/")]);
}
