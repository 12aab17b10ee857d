//! What grows with an import is bounded by `--memory`: an import that needs more ends, and the same
//! command with more continues. Smaller ones are not affected by the bound.

use std::fmt::Write;
use std::fs;

use crate::world::World;

/// Imports with the least memory, which does not suffice, and then with enough.
fn at_the_edge(world: &World, words: &[&str], names: u64) {
    let least = [&["import", "--memory", "1M"][..], words].concat();
    let ended = world.run(&least);
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.err.contains("1048576 bytes of memory"), "{}", ended.err);
    assert!(ended.err.contains("--memory"), "{}", ended.err);
    let done = world.json(&[&["import", "--memory", "64M"][..], words].concat());
    let counted = ["imported", "unchanged"].map(|name| done[0][name].as_u64().unwrap());
    assert!(counted[0] + counted[1] >= names, "{done:?}");
    assert_eq!(done[0]["failed"], 0, "{done:?}");
}

#[test]
fn a_list_keeps_within_its_memory() {
    let world = World::on("btree");
    let path = world.path().join("list");
    let file = path.to_str().unwrap();
    // Directories get their attributes at the end.
    let mut list = String::new();
    for directory in 0..8000 {
        writeln!(list, "{{\"path\":\"directory-{directory}\",\"kind\":\"d\"}}").unwrap();
    }
    fs::write(&path, &list).unwrap();
    at_the_edge(&world, &["--format", "list", file, &world.at("/directories")], 8000);
    // The first names of files with several.
    let mut list = String::new();
    for inode in 0..8000 {
        let rest = format!("\"kind\":\"f\",\"inode\":{inode},\"links\":2");
        writeln!(list, "{{\"path\":\"file-{inode}\",{rest}}}").unwrap();
        writeln!(list, "{{\"path\":\"link-{inode}\",{rest}}}").unwrap();
    }
    fs::write(&path, &list).unwrap();
    at_the_edge(&world, &["--format", "list", file, &world.at("/links")], 16_000);
    // Files of one name are forgotten, however many there are, but not to verify them.
    let mut list = String::new();
    for file in 0..15_000 {
        writeln!(list, "{{\"path\":\"file-{file}\",\"kind\":\"f\"}}").unwrap();
    }
    fs::write(&path, &list).unwrap();
    let (plain, verified) = (world.at("/files"), world.at("/verified"));
    world.ok(&["import", "--memory", "1M", "--format", "list", file, &plain]);
    at_the_edge(&world, &["--verify", "--format", "list", file, &verified], 15_000);
}

#[test]
fn a_directory_keeps_within_its_memory() {
    let world = World::on("lsm");
    let source = world.source();
    for file in 0..13_000 {
        fs::write(source.join(format!("{file}")), b"").unwrap();
    }
    let from = source.to_str().unwrap();
    let plain = world.at("/plain");
    world.ok(&["import", "--memory", "1M", from, &plain]);
    // The names that a directory of the destination has are kept while it is compared.
    at_the_edge(&world, &[from, &plain], 13_000);
    for file in 0..13_000 {
        fs::hard_link(source.join(format!("{file}")), source.join(format!("{file}+"))).unwrap();
    }
    at_the_edge(&world, &[from, &world.at("/links")], 26_000);
    // Subdirectories wait until all else of their directory is imported.
    let source = world.path().join("subdirectories");
    for directory in 0..13_000 {
        fs::create_dir_all(source.join(format!("directory-{directory}"))).unwrap();
    }
    at_the_edge(&world, &[source.to_str().unwrap(), &world.at("/subdirectories")], 13_000);
}

#[test]
fn an_archive_keeps_within_its_memory() {
    let world = World::on("btree");
    let source = world.path().join("source");
    for directory in 0..8000 {
        fs::create_dir_all(source.join(format!("{directory}"))).unwrap();
    }
    let archive = world.path().join("archive.tar");
    let made = std::process::Command::new("tar")
        .args(["-cf", archive.to_str().unwrap(), "-C", source.to_str().unwrap(), "."])
        .status()
        .unwrap();
    assert!(made.success());
    let archive = archive.to_str().unwrap();
    at_the_edge(&world, &["--format", "tar", archive, &world.at("/new")], 8000);
}
