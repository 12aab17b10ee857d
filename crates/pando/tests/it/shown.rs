//! Mounts that show a directory of the volume as their root, when that directory is rolled back or
//! removed.

use std::fs::{self, File};
use std::io::Write;

use crate::world::{World, engines};

/// Writes a file and makes it durable.
fn put(world: &World, name: &str, contents: &str) {
    let options = File::options().write(true).create(true).truncate(true).clone();
    let mut file = options.open(world.below_mount(name)).unwrap();
    file.write_all(contents.as_bytes()).unwrap();
    file.sync_all().unwrap();
}

fn contents(world: &World, name: &str) -> String {
    fs::read_to_string(world.below_mount(name)).unwrap()
}

/// Regression: the mount continued with the old tree, and what was synced there was lost.
#[test]
fn a_mount_shows_what_its_directory_was_rolled_back_to() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        world.ok(&["subvolume", "create", &world.at("/s")]);
        let source = world.path().join("source");
        fs::create_dir_all(source.join("deep/d")).unwrap();
        world.ok(&["import", source.to_str().unwrap(), &world.at("/p")]);
        for inner in ["s", "p/deep/d"] {
            if !world.mount_with(&["-o", &format!("subdir={inner}")]) {
                return;
            }
            put(&world, "f", "one");
            world.ok(&["snapshot", "create", world.mnt(), "a"]);
            put(&world, "f", "two");
            put(&world, "later", "two");
            // The second time, the copy is rolled back, too.
            for round in 0..2 {
                // Whatever the kernel caches of the old one.
                assert_eq!(contents(&world, "f"), "two");
                world.ok(&["rollback", world.mnt(), "a"]);
                assert_eq!(contents(&world, "f"), "one", "{inner}");
                assert!(!world.below_mount("later").exists(), "{inner}");
                assert_eq!(world.ok(&["cat", &world.at(&format!("/{inner}/f"))]), "one");
                put(&world, "f", "two");
                put(&world, "later", "two");
                fs::create_dir(world.below_mount(&format!("dir{round}"))).unwrap();
                put(&world, &format!("new{round}"), "new");
            }
            world.kill_daemon();
            assert!(world.mount_with(&["-o", &format!("subdir={inner}")]));
            assert_eq!(
                (contents(&world, "f"), contents(&world, "new1")),
                ("two".into(), "new".into())
            );
            assert!(world.below_mount("dir1").is_dir() && !world.below_mount("new0").exists());
            world.umount();
        }
        world.ok(&["fsck", world.vol()]);
    }
}

#[test]
fn a_mounted_directory_is_not_removed() {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("deep/d")).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/p")]);
    for inner in ["/", "/p", "/p/deep", "/p/deep/d"] {
        world.ok(&["snapshot", "create", &world.at(inner), "a"]);
    }
    if !world.mount_with(&["-o", "subdir=/p/deep/d"]) {
        return;
    }
    put(&world, "f", "one");
    for inner in ["/p", "/p/deep", "/p/deep/d"] {
        let printed = world.fails(6, &["rmr", &world.at(inner)]);
        assert!(printed.contains("mounted at"), "{printed}");
    }
    for inner in ["/", "/p", "/p/deep"] {
        let printed = world.fails(6, &["rollback", &world.at(inner), "a"]);
        assert!(printed.contains("mounted at"), "{printed}");
    }
    assert_eq!(contents(&world, "f"), "one");
    // Directories beside it and below it are not the root of a mount.
    fs::create_dir(world.below_mount("below")).unwrap();
    world.ok(&["rmr", world.below_mount("below").to_str().unwrap()]);
    world.umount();
    assert!(world.mount_with(&["-o", "subdir=/p/.snapshots/a"]));
    world.fails(6, &["snapshot", "delete", &world.at("/p"), "a"]);
    world.umount();
    world.ok(&["snapshot", "delete", &world.at("/p"), "a"]);
    world.ok(&["rmr", &world.at("/p")]);
}
