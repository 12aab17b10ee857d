//! What the kernel caches of a mount after commands or background work have changed names without
//! its knowledge. The kernel is notified, and does not show the old state for long. Each mount here
//! lets it cache everything for an hour, so that no result is right only because a cache expired.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, statat};

use crate::world::{World, is_root, wait_until};

/// Cache times of an hour.
const KEEPING: &[&str] = &["-o", "attr-timeout=3600,entry-timeout=3600,negative-timeout=3600"];

fn links(path: &Path) -> u64 {
    path.symlink_metadata().unwrap().nlink()
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(path)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort_unstable();
    names
}

/// A path of the mount as an argument.
fn shown(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_file_that_a_command_removes_is_gone_and_its_other_name_has_a_link_less() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let (one, other) = (world.below_mount("one"), world.below_mount("other"));
    fs::write(&one, "x").unwrap();
    fs::hard_link(&one, &other).unwrap();
    assert_eq!((links(&one), links(&other)), (2, 2));
    assert_eq!(names(&world.mount_point), ["one", "other"]);
    world.ok(&["rmr", shown(&other)]);
    assert_eq!(other.symlink_metadata().unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(links(&one), 1);
    assert_eq!(names(&world.mount_point), ["one"]);
}

#[test]
fn reclaiming_a_removed_tree_lowers_link_counts() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let (tree, other) = (world.below_mount("tree"), world.below_mount("other"));
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("sub/f"), "x").unwrap();
    fs::hard_link(tree.join("sub/f"), &other).unwrap();
    assert_eq!((links(&other), links(&world.mount_point)), (2, 3));
    world.ok(&["rmr", shown(&tree)]);
    assert!(!tree.exists());
    assert_eq!(links(&world.mount_point), 2);
    wait_until("a link less", || links(&other) == 1);
    assert_eq!(fs::read(&other).unwrap(), b"x");
}

#[test]
fn a_process_in_a_removed_tree_sees_its_names_disappear() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let sub = world.below_mount("tree/sub");
    fs::create_dir_all(sub.join("below")).unwrap();
    fs::write(sub.join("f"), "x").unwrap();
    // The kernel keeps names of open files.
    let open = |path: &Path| File::options().read(true).open(path).unwrap();
    let (sub, below, file) = (open(&sub), open(&sub.join("below")), open(&sub.join("f")));
    let is_there = |name: &str| statat(&sub, name, AtFlags::empty()).is_ok();
    assert!(is_there("f") && is_there("below"));
    assert_eq!((sub.metadata().unwrap().nlink(), file.metadata().unwrap().nlink()), (3, 1));
    world.ok(&["rmr", shown(&world.below_mount("tree"))]);
    wait_until("its names are gone", || !is_there("f") && !is_there("below"));
    wait_until("they have no link any more", || {
        [&sub, &below, &file].iter().all(|held| held.metadata().unwrap().nlink() == 0)
    });
}

#[test]
fn a_rollback_drops_one_link_of_files_named_elsewhere() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let (dir, other) = (world.below_mount("dir"), world.below_mount("other"));
    fs::create_dir(&dir).unwrap();
    world.ok(&["snapshot", "create", shown(&dir), "empty"]);
    fs::write(dir.join("f"), "x").unwrap();
    fs::create_dir(dir.join("sub")).unwrap();
    fs::hard_link(dir.join("f"), &other).unwrap();
    assert_eq!((links(&other), links(&dir)), (2, 3));
    world.ok(&["rollback", shown(&dir), "empty"]);
    assert_eq!((names(&dir), links(&dir)), (vec![], 2));
    assert!(!dir.join("f").exists());
    wait_until("a link less", || links(&other) == 1);
}

/// A copy counts the names of its source's whole tree until it has a tree of its own.
#[test]
fn a_clone_counts_its_own_names_once_it_has_a_tree_of_its_own() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let clone = world.below_mount("clone");
    world.ok(&["subvolume", "create", shown(&world.below_mount("source"))]);
    fs::create_dir(world.below_mount("source/dir")).unwrap();
    fs::write(world.below_mount("source/dir/f"), "x").unwrap();
    fs::hard_link(world.below_mount("source/dir/f"), world.below_mount("source/other")).unwrap();
    assert!(!clone.exists());
    let before = links(&world.mount_point);
    world.ok(&["clone", shown(&world.below_mount("source/dir")), shown(&clone)]);
    assert_eq!(links(&world.mount_point), before + 1);
    assert_eq!(links(&clone.join("f")), 2);
    // With its source gone, its own tree is due.
    world.ok(&["rmr", shown(&world.below_mount("source"))]);
    wait_until("a link less", || links(&clone.join("f")) == 1);
    assert_eq!(links(&world.mount_point), before);
}

#[test]
fn files_in_the_trash_count_as_links_until_deleted() {
    let world = World::new();
    if !is_root() || !world.mount_with(KEEPING) {
        return;
    }
    let (one, other) = (world.below_mount("one"), world.below_mount("other"));
    world.ok(&["trash", "on", world.mnt(), "--keep", "1d"]);
    fs::write(&one, "x").unwrap();
    fs::hard_link(&one, &other).unwrap();
    for removed_by_the_kernel in [true, false] {
        assert_eq!((links(&one), links(&other)), (2, 2));
        if removed_by_the_kernel {
            fs::remove_file(&other).unwrap();
        } else {
            world.ok(&["rmr", shown(&other)]);
        }
        assert!(!other.exists());
        wait_until("a link in the trash", || links(&one) == 2);
        world.ok(&["restore", shown(&other)]);
        assert!(other.exists());
        assert_eq!((links(&one), links(&other)), (2, 2));
    }
    fs::remove_file(&other).unwrap();
    wait_until("a link in the trash", || links(&one) == 2);
    world.ok(&["trash", "empty", world.mnt()]);
    wait_until("no link any more", || links(&one) == 1);
    // A file that a rename replaces.
    let third = world.below_mount("third");
    fs::hard_link(&one, &third).unwrap();
    fs::write(&other, "y").unwrap();
    assert_eq!(links(&one), 2);
    rustix::fs::rename(&other, &third).unwrap();
    wait_until("a link in the trash", || links(&one) == 2);
}

#[test]
fn changes_by_commands_update_names_and_link_counts_of_the_parent() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let top = world.below_mount("top");
    fs::create_dir_all(top.join("dir")).unwrap();
    fs::write(top.join("dir/f"), "x").unwrap();
    let source = world.source();
    fs::write(source.join("f"), "x").unwrap();
    let (dir, new) = (top.join("dir"), top.join("new"));
    let makers: [&[&str]; 3] = [
        &["clone", shown(&dir), shown(&new)],
        &["subvolume", "create", shown(&new)],
        &["import", shown(&source), shown(&new)],
    ];
    for make in makers {
        assert!(!new.exists(), "{make:?}");
        assert_eq!((names(&top), links(&top)), (vec!["dir".to_owned()], 3), "{make:?}");
        world.ok(make);
        assert!(new.is_dir(), "{make:?}");
        assert_eq!(names(&top), ["dir", "new"], "{make:?}");
        assert_eq!(links(&top), 4, "{make:?}");
        world.ok(&["rmr", shown(&new)]);
    }
    let snapshots = dir.join(".snapshots");
    for name in ["one", "two"] {
        assert!(!snapshots.join(name).exists());
    }
    assert_eq!(names(&snapshots), [""; 0]);
    world.ok(&["snapshot", "create", shown(&dir), "one"]);
    assert_eq!(fs::read(snapshots.join("one/f")).unwrap(), b"x");
    assert_eq!((names(&snapshots), snapshots.join("two").exists()), (vec!["one".into()], false));
    world.ok(&["snapshot", "rename", shown(&dir), "one", "two"]);
    assert_eq!(fs::read(snapshots.join("two/f")).unwrap(), b"x");
    assert_eq!((names(&snapshots), snapshots.join("one").exists()), (vec!["two".into()], false));
    world.ok(&["snapshot", "delete", shown(&dir), "two"]);
    assert_eq!((names(&snapshots), snapshots.join("two").exists()), (vec![], false));
}

/// A mount of an index shows what a refresh found: a few changes, and more than are notified one
/// by one.
#[test]
fn a_mounted_index_shows_what_a_refresh_found() {
    let world = World::without_volume();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("dir")).unwrap();
    for name in ["stays", "grows", "goes"] {
        fs::write(source.join("dir").join(name), "x").unwrap();
    }
    let refresh = || world.ok(&["index", shown(&source), "--into", world.vol()]);
    refresh();
    if !world.mount_with(KEEPING) {
        return;
    }
    let dir = world.below_mount("dir");
    let length = |name: &str| dir.join(name).symlink_metadata().map(|found| found.len()).ok();
    for round in 0..2_u64 {
        let new = format!("new{round}");
        let before = (length("stays"), length("grows"), length("goes"), length(&new));
        assert_eq!(before, (Some(1), Some(1 + round), Some(1), None));
        let known = names(&dir).len();
        fs::write(source.join("dir/grows"), vec![b'x'; 2 + round as usize]).unwrap();
        fs::remove_file(source.join("dir/goes")).unwrap();
        fs::write(source.join("dir").join(&new), "x").unwrap();
        for more in 0..round * 5000 {
            fs::write(source.join(format!("dir/more{more}")), "").unwrap();
        }
        refresh();
        let after = (length("stays"), length("grows"), length("goes"), length(&new));
        assert_eq!(after, (Some(1), Some(2 + round), None, Some(1)), "round {round}");
        assert_eq!(names(&dir).len(), known + round as usize * 5000, "round {round}");
        fs::write(source.join("dir/goes"), "x").unwrap();
        refresh();
        assert_eq!(length("goes"), Some(1), "round {round}");
    }
}

/// Processor time of the daemon's thread of a name, in nanoseconds.
fn cpu_of(world: &World, thread: &str) -> u64 {
    let tasks = fs::read_dir(format!("/proc/{}/task", world.daemon().unwrap())).unwrap();
    let found = tasks.map(|task| task.unwrap().path()).find(|task| {
        // The kernel keeps 15 bytes of a name.
        let name = fs::read_to_string(task.join("comm")).unwrap_or_default();
        name.trim_end() == &thread[..thread.len().min(15)]
    });
    let times = fs::read_to_string(found.expect(thread).join("schedstat")).unwrap();
    times.split(' ').next().unwrap().parse().unwrap()
}

/// A rollback is answered when the kernel has been notified of the one name that changed. Dropping
/// what it caches below that takes it time in proportion, in another thread. An answer that waited
/// for it took 30 to 100 times as long as a clone.
#[test]
fn a_rollback_does_not_wait_until_the_kernel_drops_what_it_cached() {
    let world = World::new();
    if !world.mount_with(KEEPING) {
        return;
    }
    let dir = world.below_mount("dir");
    let places: Vec<_> = (0..40).map(|at| dir.join(format!("sub{at}"))).collect();
    for place in &places {
        fs::create_dir_all(place).unwrap();
        (0..100).for_each(|at| fs::write(place.join(format!("{at}")), "x").unwrap());
    }
    world.ok(&["snapshot", "create", shown(&dir), "one"]);
    for place in &places {
        for name in names(place) {
            let file = File::options().read(true).open(place.join(name)).unwrap();
            assert_eq!(file.metadata().unwrap().len(), 1);
        }
    }
    let (notify, late) = ("fuse-notify", "fuse-notify-late");
    let before = (cpu_of(&world, notify), cpu_of(&world, late));
    world.ok(&["rollback", shown(&dir), "one"]);
    let waited_for = cpu_of(&world, notify) - before.0;
    fs::write(places[0].join("new"), "y").unwrap();
    assert_eq!(names(&places[0]).len(), 101, "the new tree is shown");
    // Of an idle machine far more than twenty times; beside others, all that is short takes longer.
    wait_until("the kernel drops the old tree, in work of its own", || {
        cpu_of(&world, late) - before.1 > 4 * waited_for
    });
}
