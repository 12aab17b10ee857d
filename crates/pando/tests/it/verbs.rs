//! Every verb, on a volume that is mounted and on one that is not.

use crate::world::World;

/// Runs a check without a mount, and again with one.
fn both_ways(check: impl Fn(&World)) {
    let world = World::new();
    check(&world);
    let world = World::new();
    if world.mount() {
        check(&world);
        world.umount();
    }
}

fn fill(world: &World) {
    let source = world.path().join("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    std::fs::write(source.join("a"), "one").unwrap();
    std::fs::write(source.join("sub/b"), "two").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
}

fn put(world: &World, inner: &str, contents: &str) {
    let file = world.path().join("put");
    std::fs::write(&file, contents).unwrap();
    world.ok(&["import", file.to_str().unwrap(), &world.at(inner)]);
}

fn contents(world: &World, inner: &str) -> String {
    world.ok(&["cat", &world.at(inner)])
}

#[test]
fn format_makes_a_volume_once() {
    let world = World::without_volume();
    let made = world.json(&["format", world.vol()]).remove(0);
    assert_eq!(made["engine"], "btree");
    assert_eq!(made["format_version"], 1);
    assert_eq!(world.status()["volume"], made["volume"]);
    world.fails(6, &["format", world.vol()]);
    let other = world.path().join("full");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("file"), "").unwrap();
    world.fails(6, &["format", other.to_str().unwrap()]);
    world.fails(3, &["format", "/nowhere/at/all"]);
}

/// Each daemon that ends leaves a run of its changes; the next ones merge these runs.
#[test]
fn status_reports_merges() {
    let world = World::without_volume();
    world.ok(&["format", "--engine", "lsm", world.vol()]);
    let merges = || world.status()["merges"].clone();
    let (mut ended, mut text) = (0, String::new());
    for n in 0..8 {
        world.ok(&["subvolume", "create", &world.at(&format!("/s{n}"))]);
        crate::world::wait_until("nothing is left to merge", || {
            let merges = merges();
            merges["next"].is_null() && merges["under_way"].is_null()
        });
        let reported = merges();
        ended += reported["ended"].as_u64().unwrap();
        // As many runs of a size stay as are too few to be merged.
        assert!((1..4).contains(&reported["depth"].as_u64().unwrap()) || n == 0, "{reported}");
        assert_eq!(reported["bytes_per_second_max"], 0);
        text = world.ok(&["status", world.vol()]);
        world.close();
    }
    assert!(ended > 0, "eight runs of one size are merged");
    assert!(text.contains("none to do"), "{text}");
    let other = World::new();
    assert!(other.status()["merges"].is_null(), "the other engine merges nothing");
}

#[test]
fn status_reports_usage() {
    both_ways(|world| {
        fill(world);
        world.ok(&["snapshot", "create", &world.at("/d"), "s"]);
        world.ok(&["clone", &world.at("/d"), &world.at("/c")]);
        crate::world::wait_until("the clone is counted", || {
            world.status()["background"]["counting"] == 0
        });
        let status = world.status();
        assert_eq!(status["format_version"], 1);
        assert_eq!(status["snapshots"], 1);
        assert_eq!(status["clones"], 1);
        assert_eq!(status["bytes"], 12);
        assert_eq!(status["inodes"], 1 + 2 * 4);
        assert_eq!(status["pid"], world.daemon().unwrap());
        assert_eq!(status["daemon"]["pid"], status["pid"]);
        let mounted = fuse::mounts_of(&world.volume);
        match mounted.first() {
            Some(_) => assert_eq!(status["mount_point"], world.mnt()),
            None => assert!(status["mount_point"].is_null()),
        }
        assert!(status["log_bytes"].as_u64().unwrap() > 0);
        assert!(status["background"].is_object());
        let text = world.ok(&["status", world.vol()]);
        assert!(text.contains("snapshots") && text.contains("pid"), "{text}");
    });
}

#[test]
fn ls_stat_info_and_cat_show_what_was_imported() {
    both_ways(|world| {
        fill(world);
        assert_eq!(world.names("/d"), ["a", "sub"]);
        assert_eq!(contents(world, "/d/sub/b"), "two");
        let stat = world.json(&["stat", &world.at("/d/a")]).remove(0);
        assert_eq!(stat["kind"], "file");
        assert_eq!(stat["size"], 3);
        let info = world.json(&["info", &world.at("/d")]).remove(0);
        assert_eq!(info["kind"], "directory");
        let all = world.json(&["ls", "-R", &world.at("/")]);
        let names: Vec<_> = all.iter().map(|entry| entry["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["d", "a", "sub", "b"]);
        let long = world.ok(&["ls", "-l", &world.at("/d")]);
        assert!(long.starts_with("-rw-r--r--"), "{long}");
        world.fails(3, &["ls", &world.at("/none")]);
        world.fails(6, &["cat", &world.at("/d")]);
    });
}

#[test]
fn paths_below_a_mount_resolve_the_same() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    fill(&world);
    let below = |inner: &str| world.below_mount(inner).to_str().unwrap().to_owned();
    assert_eq!(world.ok(&["ls", &below("d")]), "a\nsub\n");
    assert_eq!(world.ok(&["cat", &below("d/a")]), "one");
    world.ok(&["snapshot", "create", &below("d"), "s"]);
    world.ok(&["clone", &below("d"), &below("c")]);
    assert_eq!(std::fs::read_to_string(below("c/sub/b")).unwrap(), "two");
    std::os::unix::fs::symlink("d/a", below("link")).unwrap();
    let stat = world.json(&["stat", &below("link")]).remove(0);
    assert_eq!(stat["kind"], "symlink");
    assert_eq!(stat["target"], "d/a");
    assert_eq!(world.ok(&["cat", &below("link")]), "one");
    world.ok(&["rmr", &below("c")]);
    assert!(!world.below_mount("c").exists());
    assert_eq!(world.json(&["status", &below("d")]).remove(0)["path"], world.vol());
    world.fails(3, &["ls", world.path().to_str().unwrap()]);
}

#[test]
fn a_snapshot_does_not_change() {
    both_ways(|world| {
        fill(world);
        world.ok(&["snapshot", "create", &world.at("/d"), "monday"]);
        put(world, "/d/a", "changed");
        put(world, "/d/new", "new");
        assert_eq!(contents(world, "/d/.snapshots/monday/a"), "one");
        assert_eq!(world.names("/d/.snapshots/monday"), ["a", "sub"]);
        assert_eq!(contents(world, "/d/a"), "changed");
        world.fails(6, &["snapshot", "create", &world.at("/d"), "monday"]);
        world.ok(&["snapshot", "create", &world.at("/d"), "tuesday"]);
        let listed = world.json(&["snapshot", "list", &world.at("/d")]);
        let names: Vec<_> = listed.iter().map(|one| one["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["monday", "tuesday"]);
        world.ok(&["snapshot", "rename", &world.at("/d"), "tuesday", "wednesday"]);
        world.fails(3, &["snapshot", "delete", &world.at("/d"), "tuesday"]);
        world.ok(&["snapshot", "delete", &world.at("/d"), "wednesday"]);
        assert_eq!(world.json(&["snapshot", "list", &world.at("/d")]).len(), 1);
    });
}

#[test]
fn a_clone_and_its_source_are_independent() {
    both_ways(|world| {
        fill(world);
        world.ok(&["clone", &world.at("/d"), &world.at("/c")]);
        put(world, "/c/a", "in the clone");
        put(world, "/d/sub/b", "in the source");
        assert_eq!(contents(world, "/d/a"), "one");
        assert_eq!(contents(world, "/c/sub/b"), "two");
        world.fails(6, &["clone", &world.at("/d"), &world.at("/c")]);
        world.fails(3, &["clone", &world.at("/none"), &world.at("/e")]);
        world.ok(&["rmr", &world.at("/d")]);
        assert_eq!(contents(world, "/c/a"), "in the clone");
        assert_eq!(contents(world, "/c/sub/b"), "two");
    });
}

#[test]
fn a_rollback_restores_the_snapshot() {
    both_ways(|world| {
        fill(world);
        world.ok(&["snapshot", "create", &world.at("/d"), "good"]);
        put(world, "/d/a", "bad");
        world.ok(&["rmr", &world.at("/d/sub")]);
        world.ok(&["rollback", &world.at("/d"), "good"]);
        assert_eq!(contents(world, "/d/a"), "one");
        assert_eq!(contents(world, "/d/sub/b"), "two");
        put(world, "/d/a", "again");
        assert_eq!(contents(world, "/d/.snapshots/good/a"), "one");
        world.fails(3, &["rollback", &world.at("/d"), "unknown"]);
    });
}

#[test]
fn rmr_removes_and_frees_space() {
    both_ways(|world| {
        fill(world);
        put(world, "/file", "x");
        world.ok(&["rmr", "--wait", &world.at("/d"), &world.at("/file")]);
        assert_eq!(world.names("/"), Vec::<String>::new());
        let status = world.status();
        assert_eq!(status["background"]["idle"], true, "{status}");
        assert_eq!(status["inodes"], 1, "{status}");
        world.fails(3, &["rmr", &world.at("/d")]);
        world.fails(2, &["rmr", &world.at("/")]);
    });
}

/// Regression: `rmr --wait` returned, and `status` reported no background work, when the trees
/// were gone, seconds before the space of their contents was free.
#[test]
fn a_removal_is_reported_done_only_after_its_space_is_free() {
    const MEBIBYTE: usize = 1 << 20;
    let world = World::new();
    let source = world.source();
    let mut random = fastrand::Rng::with_seed(1);
    for file in 0..24 {
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(MEBIBYTE).collect();
        std::fs::write(source.join(format!("f{file}")), bytes).unwrap();
    }
    let on_disk = || world.status()["disk_bytes"].as_u64().unwrap();
    let before = on_disk();
    for name in ["/one", "/two"] {
        world.ok(&["import", source.to_str().unwrap(), &world.at(name)]);
    }
    let filled = on_disk();
    assert!(filled > before + 40 * MEBIBYTE as u64, "{before} to {filled}");
    world.ok(&["rmr", &world.at("/one")]);
    crate::world::wait_until("the work is reported as done", || {
        world.status()["background"]["idle"] == true
    });
    let halved = on_disk();
    assert!(halved < filled - 20 * MEBIBYTE as u64, "idle with {halved} of {filled}");
    world.ok(&["rmr", "--wait", &world.at("/two")]);
    let status = world.status();
    let left = status["disk_bytes"].as_u64().unwrap();
    assert!(left < halved - 20 * MEBIBYTE as u64, "waited, with {left} of {halved}");
    assert_eq!(status["background"]["freeing_bytes"], 0, "{status}");
}

#[test]
fn a_subvolume_is_made_and_synced() {
    both_ways(|world| {
        world.ok(&["subvolume", "create", &world.at("/s")]);
        world.fails(6, &["subvolume", "create", &world.at("/s")]);
        let info = world.json(&["info", &world.at("/s")]).remove(0);
        let root = world.json(&["info", &world.at("/")]).remove(0);
        assert_ne!(info["subvolume"], root["subvolume"]);
        world.ok(&["sync", world.vol()]);
    });
}

/// Regression: the caller's umask was applied although the directory has a default access list.
#[test]
fn a_subvolume_gets_the_mode_that_mkdir_gives() {
    use format::acl::{Acl, DEFAULT};
    use std::os::unix::fs::PermissionsExt;
    let world = World::new();
    if !world.mount() {
        return;
    }
    let list = Acl { users: vec![(7, 7)], mask: Some(7), ..Acl::of_mode(0o770) };
    for with_list in [false, true] {
        let parent = world.below_mount(&format!("d{with_list}"));
        std::fs::create_dir(&parent).unwrap();
        if with_list {
            let flags = rustix::fs::XattrFlags::empty();
            let name = String::from_utf8(DEFAULT.to_vec()).unwrap();
            rustix::fs::setxattr(&parent, name, &list.encode(), flags).unwrap();
        }
        let both = "umask 027; mkdir \"$1/a\" && \"$0\" subvolume create \"$1/b\"";
        let parts = ["-c", both, crate::world::PANDO, parent.to_str().unwrap()];
        assert!(std::process::Command::new("sh").args(parts).status().unwrap().success());
        let mode = |name| parent.join(name).metadata().unwrap().permissions().mode();
        assert_eq!(mode("a"), mode("b"), "{with_list}: {:o} and {:o}", mode("a"), mode("b"));
    }
}

#[test]
fn wrong_usage_and_help() {
    let world = World::without_volume();
    assert_eq!(world.run(&["no-such-verb"]).code, 2);
    assert_eq!(world.run(&["stat"]).code, 2);
    for verb in [
        "format", "mount", "umount", "status", "info", "ls", "stat", "cat", "import", "clone",
        "rollback", "rmr", "sync", "fsck", "bench",
    ] {
        let help = world.ok(&[verb, "--help"]);
        assert!(help.contains("pando ") && help.contains("xample"), "{verb}: {help}");
    }
    for verb in ["create", "list", "delete", "rename"] {
        assert!(world.ok(&["snapshot", verb, "--help"]).contains("Example"));
    }
    let json = world.run(&["ls", "/nowhere:/", "--json"]);
    assert_eq!(json.code, 3);
    let error: serde_json::Value = serde_json::from_str(&json.err).unwrap();
    assert_eq!(error["error"]["kind"], "not-found");
    assert!(world.ok(&["--version"]).starts_with("pando "));
}

#[test]
fn history_reports_creation_change_and_removal_of_a_path() {
    both_ways(|world| {
        fill(world);
        world.ok(&["snapshot", "create", &world.at("/d"), "one"]);
        world.ok(&["snapshot", "create", &world.at("/d"), "same"]);
        put(world, "/d/a", "longer");
        world.ok(&["snapshot", "create", &world.at("/d"), "two"]);
        world.ok(&["rmr", &world.at("/d/a")]);
        let reported = |arguments: &[&str]| -> Vec<(String, String)> {
            let all = world.json(&[&["history"], arguments].concat());
            let text = |value: &serde_json::Value| value.as_str().unwrap_or("now").to_owned();
            all.iter().map(|one| (text(&one["snapshot"]["name"]), text(&one["change"]))).collect()
        };
        let path = world.at("/d/a");
        let pair = |name: &str, change: &str| (name.to_owned(), change.to_owned());
        // An import replaces the old file with a new one, or writes to it.
        let changed = reported(&[&path])[1].clone();
        assert!(["contents", "replaced"].contains(&&*changed.1), "{changed:?}");
        let want = [pair("one", "appeared"), changed.clone(), pair("now", "vanished")];
        assert_eq!(reported(&[&path]), want);
        let all = [want[0].clone(), pair("same", "same"), changed, want[2].clone()];
        assert_eq!(reported(&["--all", &path]), all);
        let text = world.ok(&["history", &path]);
        let of = format!("snapshot one of {}", world.at("/d"));
        assert!(text.contains("appeared") && text.contains(&of), "{text}");
        // Paths that never existed: with snapshots above them, without, and below what is not a
        // directory.
        for never in ["/nowhere", "/d/nowhere", "/d/sub/nowhere", "/d/sub/b/nowhere"] {
            world.fails(3, &["history", &world.at(never)]);
        }
        // Without any snapshot nothing is known of its origin.
        put(world, "/alone", "x");
        assert_eq!(reported(&[&world.at("/alone")]), [pair("now", "present")]);
        let text = world.ok(&["history", &world.at("/alone")]);
        assert!(text.contains("there, in no snapshot") && !text.contains("appeared"), "{text}");
    });
}

#[test]
fn du_and_summary_need_no_walk() {
    both_ways(|world| {
        fill(world);
        put(world, "/d/sub/table.h5", &"x".repeat(100_000));
        let at = world.at("/d");
        let all = world.json(&["du", &at]);
        let reported = |path: &str| {
            let shown = format!("{at}{path}");
            let one = all.iter().find(|one| one["path"] == shown.as_str()).unwrap();
            (one["files"].as_u64().unwrap(), one["bytes"].as_u64().unwrap())
        };
        assert_eq!(reported("/sub"), (2, 100_003));
        assert_eq!(reported(""), (3, 100_006));
        assert_eq!(all.len(), 2);
        assert_eq!(world.ok(&["du", "-s", "-b", &at]), format!("100006\t{at}\n"));
        assert_eq!(world.ok(&["du", "-s", "--inodes", &at]), format!("5\t{at}\n"));
        if at.starts_with(world.mnt()) {
            // What du finds by walking.
            world.ok(&["sync", world.vol()]);
            let du = std::process::Command::new("du").args(["-k", &at]).output().unwrap();
            assert_eq!(world.ok(&["du", &at]), String::from_utf8(du.stdout).unwrap());
        }
        let summary = world.json(&["summary", &at]).remove(0);
        assert_eq!(summary["files"], 3);
        assert_eq!(summary["directories"], 1);
        assert_eq!(summary["extensions"][0]["name"], "h5");
        assert_eq!(summary["largest_directories"][0]["name"], "sub");
        assert_eq!(summary["ages"][1]["files"], 3);
        let text = world.ok(&["summary", &at]);
        assert!(text.contains("by extension") && text.contains(".h5"), "{text}");
        world.ok(&["snapshot", "create", &at, "s"]);
        world.ok(&["rmr", &format!("{at}/sub")]);
        assert_eq!(world.json(&["du", "-s", &at])[0]["files"], 1);
        assert_eq!(world.json(&["du", "-s", &format!("{at}@s")])[0]["files"], 3);
        world.fails(6, &["summary", &format!("{at}/a")]);
        world.fails(3, &["summary", &format!("{at}/nothing")]);
    });
}
