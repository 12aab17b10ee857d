//! The limits of clusters that a user sets, and their effect on the clusters that are read.

use std::fs;

use serde_json::json;

use crate::other_users::Nobody;
use crate::world::{World, is_root};

/// The number of clusters of a volume, as reported by a search that reads all of them.
fn clusters(world: &World) -> u64 {
    let answer = world.run(&["find", "--stats", "--json", &world.at("/"), "-count"]);
    assert_eq!(answer.code, 0, "{}", answer.err);
    let stats: serde_json::Value = serde_json::from_str(answer.err.trim()).unwrap();
    stats["stats"]["clusters"].as_u64().unwrap()
}

#[test]
fn limits_of_clusters_are_shown_set_and_kept() {
    let world = World::new();
    let source = world.path().join("source");
    for directory in 0..40 {
        let directory = source.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..5 {
            fs::write(directory.join(format!("f{file}")), "x").unwrap();
        }
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    let limits = |more: &[&str]| {
        let arguments = [&["search", "limits", world.vol()][..], more].concat();
        world.json(&arguments).remove(0)
    };
    assert_eq!(limits(&[]), json!({ "directories": 2000, "inodes": 20_000 }));
    assert_eq!(clusters(&world), 0, "nothing is written yet");
    let printed = world.ok(&["search", "flush", &world.at("/data")]);
    assert_eq!(printed, format!("the index has all of {}\n", world.at("/data")));
    assert_eq!(clusters(&world), 1);
    assert_eq!(limits(&["--directories", "4"]), json!({ "directories": 4, "inodes": 20_000 }));
    world.ok(&["search", "flush", &world.at("/")]);
    assert!((11..=20).contains(&clusters(&world)), "{} clusters", clusters(&world));
    let both = limits(&["--inodes", "10", "--directories", "100"]);
    assert_eq!(both, json!({ "directories": 100, "inodes": 10 }));
    world.kill_daemon();
    // Another process answers now.
    assert_eq!(limits(&[]), both);
    world.ok(&["search", "flush", &world.at("/")]);
    assert!((12..=60).contains(&clusters(&world)), "{} clusters", clusters(&world));
    let printed = world.ok(&["search", "limits", world.vol()]);
    assert_eq!(printed, "a cluster has at most 100 directories and 10 inodes\n");
    world.ok(&["fsck", world.vol()]);
}

/// The clusters of all parts of a large directory are searched from its current place, including
/// those written before it moved.
#[test]
fn a_divided_directory_that_moved_is_found_below_where_it_is() {
    const FILES: usize = 70;
    let world = World::new();
    let source = world.path().join("source");
    for directory in ["big", "other/deep"] {
        fs::create_dir_all(source.join(directory)).unwrap();
    }
    for file in 0..FILES {
        fs::write(source.join(format!("big/f{file}")), "x").unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    world.ok(&["search", "limits", world.vol(), "--inodes", "10"]);
    world.ok(&["search", "flush", &world.at("/")]);
    if !world.mount() {
        return;
    }
    let below = |inner: &str| world.below_mount(&format!("data/{inner}"));
    for (from, to) in [("big", "other/deep/big"), ("other/deep", "deep"), ("deep/big", "other/b")] {
        rustix::fs::rename(below(from), below(to)).unwrap();
        for is_flushed in [false, true] {
            if is_flushed {
                world.ok(&["search", "flush", world.mnt()]);
            }
            for place in ["", "other", "other/deep", "deep", to] {
                if !below(place).is_dir() {
                    continue;
                }
                let walked = walkdir::WalkDir::new(below(place)).into_iter().count();
                let words = ["find", below(place).to_str().unwrap(), "-count"].map(str::to_owned);
                let place = format!("{place} after {to}, flushed: {is_flushed}");
                assert_eq!(world.ok(&words), format!("{walked}\n"), "{place}");
            }
        }
    }
    world.umount();
    world.ok(&["fsck", world.vol()]);
}

/// Clusters that shrink beside unchanged ones are merged: every flush affects one place, and no
/// other cluster there is rewritten with it.
#[test]
fn adjacent_shrunk_clusters_are_merged() {
    const DIRECTORIES: usize = 60;
    const FILES: usize = 20;
    const LIMIT: usize = 25;
    let world = World::new();
    let source = world.path().join("source");
    for directory in 0..DIRECTORIES {
        let directory = source.join(format!("d{directory}"));
        fs::create_dir_all(&directory).unwrap();
        for file in 0..FILES {
            fs::write(directory.join(format!("f{file}")), "x").unwrap();
        }
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/data")]);
    world.ok(&["search", "limits", world.vol(), "--inodes", &LIMIT.to_string()]);
    world.ok(&["search", "flush", &world.at("/")]);
    let full = clusters(&world) as usize;
    assert!(full >= DIRECTORIES, "{full} clusters");
    // All but one file of each directory, a directory a flush.
    for directory in 0..DIRECTORIES {
        let below = format!("/data/d{directory}");
        let gone: Vec<String> =
            (1..FILES).map(|file| world.at(&format!("{below}/f{file}"))).collect();
        let gone = gone.iter().map(String::as_str);
        world.ok(&["rmr"].into_iter().chain(gone).collect::<Vec<_>>());
        world.ok(&["search", "flush", &world.at("/data")]);
    }
    let rows = DIRECTORIES * 2 + 2;
    let (left, most) = (clusters(&world) as usize, 2 * rows / LIMIT + 5);
    assert!(left <= most, "{left} clusters for {rows} rows, more than {most}");
    let found = world.ok(&["find", &world.at("/"), "-count"]);
    assert_eq!(found, format!("{rows}\n"));
    world.ok(&["fsck", world.vol()]);
}

#[test]
fn impossible_limits_are_refused_and_only_the_owner_sets_them() {
    let world = World::new();
    for (option, value) in
        [("--directories", "0"), ("--directories", "1000001"), ("--inodes", "9"), ("--inodes", "x")]
    {
        let answer = world.run(&["search", "limits", world.vol(), option, value]);
        assert_eq!(answer.code, 2, "{option} {value}: {}", answer.err);
        assert!(answer.err.contains(option) && answer.err.contains(value), "{}", answer.err);
    }
    world.fails(3, &["search", "flush", &world.at("/nowhere")]);
    if is_root() {
        let nobody = Nobody::new(&world);
        let show = ["search", "limits", world.vol()];
        assert_eq!(nobody.run(&show).code, 0);
        for arguments in [
            &["search", "limits", world.vol(), "--inodes", "100"][..],
            &["search", "flush", &world.at("/")],
        ] {
            let answer = nobody.run(arguments);
            assert_eq!(answer.code, 4, "{arguments:?}: {}", answer.err);
        }
        let shown = world.json(&show).remove(0);
        assert_eq!(shown, json!({ "directories": 2000, "inodes": 20_000 }));
    }
}
