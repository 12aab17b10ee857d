//! Trees that a process still uses after they were removed or rolled back: what it sees there, and
//! that they are reclaimed when it leaves. The mounts here let the kernel cache everything for an
//! hour.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::world::{World, is_root, wait_until};

/// Cache times of an hour.
const KEEPING: &[&str] = &["-o", "attr-timeout=3600,entry-timeout=3600,negative-timeout=3600"];

/// A process whose working directory is in a tree.
struct Inside {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Inside {
    fn of(directory: &Path) -> Inside {
        let mut child = Command::new("sh")
            .args(["-c", "while read -r line; do eval \"$line\" >/dev/null 2>&1; echo $?; done"])
            .current_dir(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let commands = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Inside { child, commands, answers }
    }

    /// Runs a command in that directory, and returns whether it succeeded.
    fn run(&mut self, command: &str) -> bool {
        writeln!(self.commands, "{command}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        answer.trim() == "0"
    }

    fn leave(self) {
        let Inside { mut child, commands, .. } = self;
        drop(commands);
        child.wait().unwrap();
    }
}

fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn detached(world: &World) -> u64 {
    world.status()["background"]["detached"].as_u64().unwrap()
}

/// A tree with a file and two directories, all of it in the kernel's cache.
fn tree(world: &World, name: &str) -> std::path::PathBuf {
    let top = world.below_mount(name);
    fs::create_dir_all(top.join("a/b")).unwrap();
    fs::write(top.join("a/b/f"), "old").unwrap();
    fs::write(top.join("a/beside"), "old").unwrap();
    top
}

/// Regression: the kernel kept what was in use, and dropped it neither when the last process left
/// nor later.
#[test]
fn a_removed_tree_in_use_is_freed_when_its_last_user_leaves() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let source = tree(&world, "source");
    let copy = world.below_mount("copy");
    world.ok(&["clone", shown(&source), shown(&copy)]);
    world.ok(&["snapshot", "create", shown(&source), "one"]);
    let removals =
        [(&copy, vec!["rmr", shown(&copy)]), (&source, vec!["rollback", shown(&source), "one"])];
    for (top, removal) in removals {
        assert!(Command::new("ls").arg("-lR").arg(top).stdout(Stdio::null()).status().is_ok());
        let mut inside = Inside::of(&top.join("a/b"));
        assert!(inside.run("ls -l"));
        world.ok(&removal);
        // The process continues there: the kernel caches the names again.
        assert!(inside.run("mkdir new && touch new/file && ls -lR ."), "{removal:?}");
        assert_eq!(detached(&world), 1, "{removal:?}: it is in use");
        inside.leave();
        wait_until("the tree is reclaimed", || detached(&world) == 0);
    }
    world.umount();
    world.ok(&["fsck", world.vol()]);
}

/// The kernel reaches a snapshot through a virtual directory.
#[test]
fn a_deleted_snapshot_in_use_is_freed_when_its_last_user_leaves() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let source = tree(&world, "source");
    world.ok(&["snapshot", "create", shown(&source), "one"]);
    let mut inside = Inside::of(&source.join(".snapshots/one/a/b"));
    assert!(inside.run("ls -lR . && cat f"));
    world.ok(&["snapshot", "delete", shown(&source), "one"]);
    assert!(inside.run("ls -l"), "a process inside it still sees it");
    assert_eq!(detached(&world), 1, "it is in use");
    inside.leave();
    wait_until("the snapshot is reclaimed", || detached(&world) == 0);
    world.umount();
    world.ok(&["fsck", world.vol()]);
}

#[test]
fn waiting_for_one_removal_does_not_wait_for_another() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let source = tree(&world, "source");
    let (held, other) = (world.below_mount("held"), world.below_mount("other"));
    for copy in [&held, &other] {
        world.ok(&["clone", shown(&source), shown(copy)]);
    }
    let inside = Inside::of(&held.join("a/b"));
    world.ok(&["rmr", shown(&held)]);
    let waited = Command::new("timeout")
        .args(["60", crate::world::PANDO, "rmr", "--wait", shown(&other)])
        .status()
        .unwrap();
    assert!(waited.success(), "it waits for the tree that is held");
    assert_eq!(detached(&world), 1);
    inside.leave();
    wait_until("the held tree is reclaimed", || detached(&world) == 0);
}

/// The claims of docs/guide/mounting.md on a process that stays in the old tree of a rollback.
#[test]
fn files_created_in_a_rolled_back_tree_are_lost_and_a_bind_mount_shows_it() {
    let world = World::new();
    if !is_root() || !world.mount_with(KEEPING) {
        return;
    }
    let top = tree(&world, "d");
    world.ok(&["snapshot", "create", shown(&top), "one"]);
    fs::write(top.join("later"), "x").unwrap();
    let bound = world.path().join("bound");
    fs::create_dir(&bound).unwrap();
    let mount = |args: &[&str]| {
        assert!(Command::new(args[0]).args(&args[1..]).status().unwrap().success(), "{args:?}");
    };
    mount(&["mount", "--bind", shown(&top), shown(&bound)]);
    let mut inside = Inside::of(&top.join("a"));
    world.ok(&["rollback", shown(&top), "one"]);
    assert!(inside.run("echo lost > made && sync made"), "creations and fsync succeed there");
    assert!(inside.run("mkdir b/dir && mv b/f b/dir/moved"));
    assert!(!top.join("a/made").exists() && top.join("a/b/f").exists(), "the path is the new tree");
    assert!(!top.join("later").exists());
    // The bind mount is of the old directory.
    assert!(bound.join("later").exists() && bound.join("a/made").exists());
    fs::write(bound.join("a/made there"), "lost").unwrap();
    assert!(!top.join("a/made there").exists());
    inside.leave();
    assert_eq!(detached(&world), 1, "the bind mount holds it");
    mount(&["umount", shown(&bound)]);
    wait_until("the old tree is reclaimed", || detached(&world) == 0);
    assert_eq!(fs::read(top.join("a/b/f")).unwrap(), b"old");

    // rmr empties a plain directory even while a process is in it.
    let plain = tree(&world, "plain");
    let mut inside = Inside::of(&plain.join("a/b"));
    world.ok(&["rmr", shown(&plain)]);
    wait_until("it is reclaimed all the same", || detached(&world) == 0);
    assert!(!inside.run("touch new"), "nothing is made in a directory that is gone");
    inside.leave();
}
