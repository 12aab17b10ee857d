//! `pando trash` and `pando restore`, on a volume that is mounted and on one that is not.

use crate::world::{World, is_root};

fn trash(world: &World) {
    let volume = world.vol();
    let file = world.path().join("put");
    let put = |inner: &str, text: &str| {
        std::fs::write(&file, text).unwrap();
        world.ok(&["import", file.to_str().unwrap(), &world.at(inner)]);
    };
    world.ok(&["subvolume", "create", &world.at("/s")]);
    let root = world.at("/");
    assert_eq!(world.run(&["trash", "off", &root]).code, 3);
    assert_eq!(world.run(&["trash", "on", &root, "--keep", "7"]).code, 2);
    assert_eq!(world.run(&["restore", &world.at("/f")]).code, 2);
    assert!(world.ok(&["trash", "on", &root, "--keep", "2d"]).contains("2 days"));
    // A time that is not named stays, below too.
    assert!(world.ok(&["trash", "on", &root]).contains("2 days"));
    assert_eq!(world.json(&["trash", "on", &world.at("/s")])[0]["keep_seconds"], 2 * 86_400);
    world.ok(&["trash", "off", &world.at("/s")]);
    world.ok(&["trash", "off", &root]);
    assert_eq!(world.json(&["trash", "on", &root])[0]["keep_seconds"], 7 * 86_400);
    world.ok(&["trash", "on", &root, "--keep", "2d"]);
    put("/f", "first");
    world.ok(&["rmr", &world.at("/f")]);
    put("/f", "second");
    world.ok(&["rmr", &world.at("/f")]);
    let listed = world.json(&["trash", "list", &root]);
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert_eq!((&listed[0]["path"], &listed[0]["size"]), (&world.at("/f").into(), &6.into()));
    let of_file = world.json(&["restore", "--list", &world.at("/f")]);
    assert_eq!(of_file.len(), 2);
    // A search finds it at its place in the trash.
    let found = world.ok(&["find", &root, "-name", "f", "-type", "f"]);
    assert_eq!(found.matches("/.trash/").count(), 2, "{found}");
    assert_eq!(found.lines().count(), 2, "{found}");
    world.ok(&["restore", &world.at("/f")]);
    assert_eq!(world.ok(&["cat", &world.at("/f")]), "second");
    let taken = world.run(&["restore", &world.at("/f")]);
    assert_eq!(taken.code, 6, "{}", taken.err);
    world.ok(&["restore", &world.at("/f"), "--to", &world.at("/g")]);
    assert_eq!(world.ok(&["cat", &world.at("/g")]), "first");
    assert_eq!(world.run(&["restore", &world.at("/f")]).code, 3, "there is no third");
    // A tree, and one file of it, whose directories are gone.
    put("/d", "below");
    world.ok(&["rmr", &world.at("/d")]);
    world.ok(&["rmr", &world.at("/g")]);
    assert_eq!(world.run(&["restore", "--at", "yesterday", &world.at("/g")]).code, 3);
    assert_eq!(world.run(&["restore", "--at", "whenever", &world.at("/g")]).code, 2);
    world.ok(&["restore", "--at", "now", &world.at("/g")]);
    // A subvolume below keeps its own files.
    put("/s/f", "in a subvolume");
    world.ok(&["rmr", &world.at("/s/f")]);
    world.ok(&["restore", &world.at("/s/f")]);
    assert!(world.ok(&["trash", "empty", &root]).contains("hours"));
    assert!(world.ok(&["trash", "list", &root]).contains("nothing"));
    world.ok(&["trash", "off", &root]);
    world.ok(&["rmr", &world.at("/f")]);
    assert_eq!(world.run(&["restore", &world.at("/f")]).code, 2);
    world.ok(&["fsck", volume]);
}

#[test]
fn trash_is_listed_restored_and_emptied() {
    if !is_root() {
        return;
    }
    trash(&World::new());
}

#[test]
fn removed_files_are_restored_on_a_mount() {
    let world = World::new();
    if !is_root() || !world.mount() {
        return;
    }
    trash(&world);
    world.umount();
}

/// Damage to a clone fails only where the clone is requested. A list that leaves out what is
/// damaged reports that.
#[test]
fn the_trash_of_a_directory_is_listed_beside_a_damaged_clone() {
    const NAME: &str = "only-in-the-trash-of-the-clone";
    let world = World::on("btree");
    let file = world.path().join("put");
    std::fs::write(&file, "text").unwrap();
    let file = file.to_str().unwrap();
    world.ok(&["subvolume", "create", &world.at("/s")]);
    world.ok(&["trash", "on", &world.at("/")]);
    world.ok(&["import", file, &world.at("/f")]);
    world.ok(&["rmr", &world.at("/f")]);
    world.ok(&["clone", &world.at("/s"), &world.at("/c")]);
    world.ok(&["trash", "on", &world.at("/c")]);
    for round in 0..2 {
        let name = world.at(&format!("/c/{NAME}-{round}"));
        world.ok(&["import", file, &name]);
        world.ok(&["rmr", &name]);
    }
    let listed = world.run(&["trash", "list", &world.at("/")]);
    assert!(listed.err.contains("/c has a trash of its own"), "{}", listed.err);
    world.close();
    let nodes = world.volume.join("btree/nodes");
    let mut bytes = std::fs::read(&nodes).unwrap();
    let places = bytes.windows(NAME.len()).enumerate();
    let places = places.filter(|(_, part)| *part == NAME.as_bytes());
    let found: Vec<usize> = places.map(|(at, _)| at).collect();
    assert!(!found.is_empty());
    for at in found {
        bytes[at] ^= 4;
    }
    std::fs::write(&nodes, bytes).unwrap();
    world.fails(5, &["trash", "list", &world.at("/c")]);
    let listed = world.run(&["trash", "list", &world.at("/")]);
    let why = "the directories that have a trash: btree/nodes is damaged at byte";
    assert!(listed.code == 0 && listed.err.contains(why), "{}: {}", listed.code, listed.err);
    let listed = world.json(&["trash", "list", &world.at("/")]);
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert_eq!(listed[0]["path"], world.at("/f"));
    world.ok(&["restore", &world.at("/f")]);
}

/// Regression: these answered "stale handle", which gives no reason and no remedy.
#[test]
fn a_directory_of_snapshots_is_refused_with_the_reason_and_a_remedy() {
    let world = World::new();
    let source = world.path().join("source");
    std::fs::create_dir_all(source.join("sub")).unwrap();
    std::fs::write(source.join("sub/f"), "text").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    for has_trash in [false, true] {
        if has_trash {
            world.ok(&["trash", "on", &world.at("/d")]);
        }
        let name = format!("s{has_trash}");
        world.ok(&["snapshot", "create", &world.at("/d"), &name]);
        let verbs = [
            &["rmr"][..],
            &["trash", "list"],
            &["trash", "on"],
            &["trash", "off"],
            &["trash", "empty"],
            &["restore"],
        ];
        for verb in verbs {
            let of_snapshots = world.at("/d/.snapshots");
            let answer = world.run(&[verb, &[&of_snapshots]].concat());
            let printed = answer.err;
            assert_ne!(answer.code, 0, "{verb:?}");
            assert!(printed.contains("a directory of snapshots"), "{verb:?}: {printed}");
            assert!(printed.contains("pando snapshot list DIR"), "{verb:?}: {printed}");
            for below in ["", "/sub", "/sub/f", "/none"] {
                let path = format!("{of_snapshots}/{name}{below}");
                let answer = world.run(&[verb, &[&path]].concat());
                let printed = answer.err;
                assert!(answer.code != 0 || verb == ["trash", "list"], "{verb:?} {path}");
                assert!(!printed.contains("stale"), "{verb:?} {path}: {printed}");
            }
        }
        let shown = world.ok(&["ls", &world.at(&format!("/d/.snapshots/{name}"))]);
        assert!(shown.contains("sub"), "{shown}");
    }
}
