//! What a newcomer types first, and the messages. That is paths where a volume is expected,
//! variables that cannot be parsed, trees copied into themselves, units, and names that do not
//! exist.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;
use serde_json::Value;

use crate::other_users::Nobody;
use crate::world::{Answer, World, answer, is_root, signal, wait_until};

/// A volume with `/a/b/f`.
fn world() -> World {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("b")).unwrap();
    fs::write(source.join("b/f"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/a")]);
    world
}

/// Runs the binary with an environment variable.
fn with(variable: &str, value: &str, arguments: &[&str]) -> Answer {
    answer(&World::command(arguments).env(variable, value).output().unwrap())
}

#[test]
fn a_path_behind_a_volume_is_mounted() {
    let world = world();
    if !world.mount() {
        return;
    }
    world.umount();
    let (inner, mnt) = (world.at("/a//b/"), world.mnt());
    let missing = world.fails(3, &["mount", &world.at("/a/none"), mnt]);
    assert!(missing.contains("a/none"), "{missing}");
    let other = world.fails(2, &["mount", &inner, mnt, "-o", "ro,subdir=a"]);
    assert!(other.contains("subdir=a"), "{other}");
    world.fails(2, &["mount", &world.at("/a/x,y"), mnt]);
    for options in [&[][..], &["-o", "subdir=/a/b"]] {
        world.ok(&[&["mount", &inner, mnt], options].concat());
        assert_eq!(fs::read_to_string(world.below_mount("f")).unwrap(), "text");
        world.umount();
    }
    world.ok(&["mount", &world.at("/"), mnt]);
    assert_eq!(fs::read_to_string(world.below_mount("a/b/f")).unwrap(), "text");
    world.umount();
}

#[test]
fn verbs_on_volumes_refuse_a_path_in_one() {
    let world = world();
    let inner = world.at("/a");
    for arguments in [
        &["status", &inner][..],
        &["sync", &inner],
        &["fsck", &inner],
        &["gc", &inner],
        &["format", &inner],
        &["index", "/etc", "--into", &inner],
    ] {
        let printed = world.fails(2, arguments);
        assert!(printed.contains(&inner) && printed.contains("not a path in it"), "{printed}");
    }
    for arguments in [["status", &world.at("/")], ["fsck", &world.at("/")]] {
        world.ok(&arguments);
    }
    assert!(!Path::new(&inner).exists());
    world.fails(6, &["format", &world.at("/")]);
}

#[test]
fn find_accepts_json_before_the_verb() {
    let world = world();
    let at = world.at("/a/b/f");
    let before = world.ok(&["--json", "find", &at]);
    assert_eq!(before, world.ok(&["find", "--json", &at]));
    assert_eq!(serde_json::from_str::<Value>(&before).unwrap()["path"], at);
    let both = world.run(&["--json", "find", &at, "-print0"]);
    assert_eq!(both.code, 2, "{}", both.out);
}

#[test]
fn a_tree_is_not_copied_into_itself() {
    let world = world();
    if !world.mount() {
        return;
    }
    let mnt = world.mnt();
    let below = |inner: &str| world.below_mount(inner).to_str().unwrap().to_owned();
    std::os::unix::fs::symlink("/a/b", world.below_mount("link")).unwrap();
    world.ok(&["subvolume", "create", &world.at("/a/s")]);
    let above = world.path().to_str().unwrap();
    for (source, destination) in [
        (mnt, below("self")),
        (mnt, world.at("/self")),
        (mnt, world.at("/a/../self")),
        (&below("a"), below("a/b/self")),
        (&below("a"), world.at("/a/b")),
        (&below("a"), world.at("/a")),
        (&below("a"), world.at("/link/self")),
        (&below("a"), world.at("/a/s/self")),
        (&format!("{}/.", below("a")), below("a/self")),
        (above, world.at("/self")),
    ] {
        let printed = world.fails(2, &["import", source, &destination]);
        assert!(printed.contains("into itself"), "{source} {destination}: {printed}");
    }
    assert_eq!(world.names("/"), ["a", "link"]);
    // Beside itself, and out of a snapshot, it is copied.
    world.ok(&["snapshot", "create", &world.at("/a"), "s"]);
    world.ok(&["import", &below("a/b"), &below("beside")]);
    world.ok(&["import", &below("a/.snapshots/s/b"), &below("a/b/older")]);
    assert_eq!(world.ok(&["cat", &world.at("/a/b/older/f")]), "text");
    world.umount();
}

#[test]
fn another_volume_is_read_through_its_mount() {
    let (world, other) = (world(), World::new());
    let printed = world.fails(2, &["import", &world.at("/a"), &other.at("/a")]);
    assert!(printed.contains("mount the volume"), "{printed}");
    let printed = world.fails(2, &["clone", &world.at("/a"), &other.at("/a")]);
    assert!(printed.contains("mount the first"), "{printed}");
}

#[test]
fn an_unreadable_variable_is_named() {
    let world = World::new();
    for (variable, value) in
        [("PANDO_CACHE_SIZE", "much"), ("PANDO_INDEX_CACHE", "1M"), ("PANDO_IDLE_SECONDS", "-1")]
    {
        let printed = with(variable, value, &["ls", &world.at("/")]);
        assert_eq!(printed.code, 2, "{}", printed.err);
        assert!(printed.err.contains(&format!("{variable} is '{value}'")), "{}", printed.err);
    }
    let printed = with("PANDO_CACHE_SIZE", "much", &["mount", world.vol(), world.mnt()]);
    assert!(
        printed.code == 2 && printed.err.contains("PANDO_CACHE_SIZE is 'much'"),
        "{}",
        printed.err
    );
    let other = ["mount", world.vol(), world.mnt(), "--cache-size", "few"];
    assert!(!with("PANDO_CACHE_SIZE", "much", &other).err.contains("PANDO_CACHE_SIZE"));
    assert_eq!(with("PANDO_CACHE_SIZE", "much", &["ls", "--help"]).code, 0);
    assert!(world.daemon().is_none(), "none was started");
}

#[test]
fn wrong_usage_is_reported_with_a_suggestion() {
    let world = world();
    let outside = std::env::temp_dir().canonicalize().unwrap();
    let nope = outside.join("no-such/file");
    let nope = nope.to_str().unwrap();
    for arguments in [
        &["clone", &world.at("/a"), nope][..],
        &["import", "/etc/passwd", nope],
        &["rmr", nope],
        &["subvolume", "create", nope],
    ] {
        let printed = world.fails(3, arguments);
        let wanted = format!("{} is not in a mounted volume", outside.display());
        assert!(printed.contains(&wanted) && printed.contains(nope), "{printed}");
    }
    // The directory of a volume, and a path in it, with or without a trailing slash.
    for (typed, meant) in [("", ":/"), ("/", ":/"), ("/x", ":/x"), ("/x/", ":/x")] {
        let printed =
            world.fails(3, &["import", "/etc/passwd", &format!("{}{typed}", world.vol())]);
        assert!(printed.contains(&format!("use {}{meant}", world.vol())), "{printed}");
    }
    for name in ["..", ".", ""] {
        let create = world.fails(2, &["snapshot", "create", &world.at("/a"), name]);
        assert!(create.contains("is not a valid snapshot name"), "{create}");
    }
    world.ok(&["snapshot", "create", &world.at("/a"), "one"]);
    let renamed = world.fails(2, &["snapshot", "rename", &world.at("/a"), "one", ".."]);
    assert!(renamed.contains("is not a valid snapshot name"), "{renamed}");
    let word = world.fails(2, &["find", &world.at("/"), "siez:>1G"]);
    assert!(word.contains("unknown search field 'siez:'") && word.contains("size:>1G"), "{word}");
    let words = world.fails(2, &["find", &world.at("/"), "siez:>1G *.h5"]);
    assert!(words.contains("'size:' may be meant"), "{words}");
    let above = world.path().join("none/above");
    let format = world.fails(3, &["format", above.join("v").to_str().unwrap()]);
    assert!(format.contains(&format!("mkdir -p {}", above.display())), "{format}");
    for name in ["a/b", "", ".."] {
        let volume = world.path().join("new");
        let arguments = ["format", volume.to_str().unwrap(), "--snapshot-dir", name];
        let printed = world.fails(2, &arguments);
        assert!(printed.contains("one name, without a slash"), "{printed}");
        assert!(!volume.exists());
    }
}

#[test]
fn a_missing_log_disk_is_reported() {
    let world = World::without_volume();
    let (log, away) = (world.path().join("disk/log"), world.path().join("away"));
    fs::create_dir(world.path().join("disk")).unwrap();
    world.ok(&["format", world.vol(), "--log-dir", log.to_str().unwrap()]);
    let moved = Command::new("mv").arg(&log).arg(&away).status().unwrap();
    assert!(moved.success());
    for arguments in [["ls", &world.at("/")], ["fsck", world.vol()]] {
        let printed = world.fails(3, &arguments);
        let link = format!("log is a link to {}, which is not there", log.display());
        assert!(printed.contains(&link) && printed.contains("mount the disk"), "{printed}");
    }
}

#[test]
fn sizes_and_times_have_one_notation() {
    if !is_root() {
        return;
    }
    let world = world();
    let dir = world.at("/a");
    for (size, bytes) in [("10MiB", 10 << 20), ("10MB", 10 << 20), ("1.5G", 3_u64 << 29)] {
        world.ok(&["quota", "set", &dir, "--bytes", size]);
        assert_eq!(world.json(&["quota", "get", &dir])[0]["bytes_max"], bytes, "{size}");
    }
    assert_eq!(world.run(&["quota", "set", &dir, "--bytes", "1X"]).code, 2);
    world.ok(&["gc", world.vol(), "--delete", "--grace", "1w"]);
    world.ok(&["trash", "on", &dir, "--keep", "1y"]);
    assert_eq!(world.json(&["trash", "on", &dir, "--keep", "1.5h"])[0]["keep_seconds"], 5400);
    assert_eq!(world.run(&["trash", "on", &dir, "--keep", "7"]).code, 2);
    world.ok(&["find", &world.at("/"), "size:<1.5k mtime:<1000y"]);
}

#[test]
fn a_verdict_is_an_object_not_a_list() {
    let world = world();
    let checked = world.json(&["quota", "check", world.vol()]);
    assert_eq!((checked.len(), &checked[0]["clean"]), (1, &Value::Bool(true)));
    assert_eq!(world.ok(&["--json", "snapshot", "list", &world.at("/a")]), "");
}

#[test]
fn trash_list_prints_paths_that_restore_accepts() {
    if !is_root() {
        return;
    }
    let world = world();
    let (root, b) = (world.at("/"), world.at("/a/b"));
    let none = |printed: &str| assert!(printed.contains("/a in the volume has one"), "{printed}");
    world.ok(&["trash", "on", &world.at("/a")]);
    none(&world.fails(2, &["trash", "list", &root]));
    world.ok(&["rmr", &b]);
    world.ok(&["trash", "on", &root]);
    let listed = world.run(&["trash", "list", &root]);
    assert!(listed.out.contains("nothing is in the trash"), "{}", listed.out);
    let named = format!("{} has a trash of its own", world.at("/a"));
    assert!(listed.err.contains(&named), "{}", listed.err);
    assert_eq!(world.json(&["trash", "list", &world.at("/a")])[0]["path"], b);
    let early = world.fails(3, &["restore", "--at", "2 hours ago", &b]);
    assert!(early.contains("it was removed at") && early.contains("which is after"), "{early}");
    assert_eq!(world.ok(&["restore", &b]), format!("restored {b}\n"));
    let never = world.fails(3, &["restore", "--at", "2 hours ago", &world.at("/a/never")]);
    assert!(never.contains("not in the trash"), "{never}");
}

#[test]
fn a_refused_copy_states_one_reason() {
    if !is_root() {
        return;
    }
    let world = world();
    let nobody = Nobody::new(&world);
    let owned = world.path().join("owned");
    fs::create_dir(&owned).unwrap();
    let uid = Some(crate::world::NOBODY);
    std::os::unix::fs::chown(&owned, uid, uid).unwrap();
    world.ok(&["import", owned.to_str().unwrap(), &world.at("/own")]);
    let own = world.at("/own");
    world.ok(&["quota", "set", world.vol(), "--user", "65534", "--files", "100"]);
    let limited = nobody.run(&["snapshot", "create", &own, "s"]);
    assert_eq!(limited.code, 4, "{}", limited.err);
    assert!(limited.err.contains("a quota applies here"), "{}", limited.err);
    assert!(!limited.err.contains("only the owner"), "{}", limited.err);
    let others = nobody.run(&["snapshot", "create", &world.at("/a"), "s"]);
    assert!(others.err.contains("only the owner of the directory, or root"), "{}", others.err);
}

/// Whether a process handles SIGINT.
fn catches_interrupts(pid: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    let caught = caught.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    caught.is_some_and(|mask| mask & 2 != 0)
}

/// The daemon is stopped meanwhile, so that no command ends before it is interrupted.
#[test]
fn an_interrupted_command_reports_what_was_done() {
    let world = World::new();
    world.status();
    let daemon = world.daemon().unwrap();
    for (arguments, state) in [
        (&["fsck", world.vol()][..], "nothing was changed"),
        (&["gc", world.vol()], "nothing was deleted"),
        (&["gc", "--delete", world.vol()], "what was deleted stays deleted"),
    ] {
        signal(daemon, Signal::STOP);
        let mut command = World::command(arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("it listens", || catches_interrupts(child.id()));
        signal(child.id().cast_signed(), Signal::INT);
        let printed = answer(&child.wait_with_output().unwrap());
        signal(daemon, Signal::CONT);
        assert_eq!(printed.code, 130, "{arguments:?}: {}", printed.err);
        assert!(printed.err.contains(state) && printed.err.contains("again"), "{}", printed.err);
    }
    world.ok(&["fsck", world.vol()]);
}
