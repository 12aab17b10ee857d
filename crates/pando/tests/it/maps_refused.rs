//! Stores into a map that are refused: requests of other users do not fail because of them, and
//! nobody can read them.

use std::fs;

use crate::maps::{LENGTH, Map};
use crate::world::{World, wait_until};

/// Regression: any user who stored more than their quota made everybody's clones and snapshots
/// fail, as if the volume were damaged.
#[test]
fn a_refused_map_flush_does_not_prevent_others_clones_and_snapshots() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    for name in ["limited", "other"] {
        fs::create_dir(world.below_mount(name)).unwrap();
    }
    let (limited, other) = (world.below_mount("limited"), world.below_mount("other"));
    world.ok(&["quota", "set", limited.to_str().unwrap(), "--bytes", "100000"]);
    for (n, verb) in ["clone", "snapshot", "sync"].into_iter().enumerate() {
        let file = limited.join("f");
        fs::write(&file, "").unwrap();
        fs::File::options().write(true).open(&file).unwrap().set_len(LENGTH as u64).unwrap();
        let mut map = Map::of(&file);
        map.store(7);
        // Closed, and nobody requested the result of the write-back.
        drop(map);
        let (from, to) = (other.to_str().unwrap(), world.at(&format!("/c{n}")));
        let printed = match verb {
            "clone" => world.run(&["clone", from, &to]),
            "snapshot" => world.run(&["snapshot", "create", from, "s"]),
            _ => world.run(&["sync", world.vol()]),
        };
        assert_eq!(printed.code, 0, "{verb}: {}", printed.err);
        assert!(printed.err.contains("are lost"), "{verb}: {}", printed.err);
        fs::remove_file(&file).unwrap();
    }
}

/// Regression: everybody could read it until the kernel dropped it.
#[test]
fn writes_into_a_map_of_a_snapshot_are_not_readable() {
    let world = World::new();
    if !world.mount() {
        return;
    }
    let directory = world.below_mount("d");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("f"), vec![1; LENGTH]).unwrap();
    world.ok(&["snapshot", "create", directory.to_str().unwrap(), "s"]);
    let file = directory.join(".snapshots/s/f");
    let mut map = Map::of(&file);
    map.store(7);
    drop(map);
    // Has it written back.
    world.ok(&["sync", world.vol()]);
    wait_until("the snapshot is read as it is", || {
        fs::read(&file).unwrap().iter().all(|byte| *byte == 1)
    });
    world.ok(&["clone", directory.to_str().unwrap(), &world.at("/c")]);
}
