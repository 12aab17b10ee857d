//! Imports into what exists: what is there stays until what replaces it is complete, and a rule
//! that keeps something keeps all of it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use crate::import_tar::{Header, archive, file, import, imported, text};
use crate::world::{World, answer, engines, signal, wait_until};

fn mode(world: &World, path: &str) -> String {
    let stat = world.json(&["stat", &world.at(path)]).remove(0);
    stat["mode"].as_str().unwrap().to_owned()
}

fn exported(world: &World, from: &str) -> PathBuf {
    let copy = world.path().join("copy");
    world.ok(&["export", &world.at(from), copy.to_str().unwrap()]);
    copy
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

/// Regression: a newer file that did not fit removed the older one.
#[test]
fn a_file_stays_when_the_newer_one_does_not_fit() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        let source = world.source();
        fs::write(source.join("f"), "old").unwrap();
        world.ok(&["subvolume", "create", &world.at("/q")]);
        let (from, to) = (source.to_str().unwrap(), world.at("/q/d"));
        world.ok(&["import", from, &to]);
        world.ok(&["quota", "set", &world.at("/q"), "--bytes", "4K"]);
        for length in [5_000, 1_000_000] {
            fs::write(source.join("f"), vec![b'x'; length]).unwrap();
            let refused = world.run(&["import", from, &to]);
            assert!(refused.code != 0 && refused.err.contains("quota"), "{refused:?}");
            assert!(refused.err.contains("so both need space"), "{refused:?}");
            assert_eq!(text(&world, "/q/d/f"), "old", "{length}");
            assert_eq!(world.names("/q/d"), ["f"], "{length}");
        }
        world.ok(&["quota", "set", &world.at("/q"), "--bytes", "4M"]);
        world.ok(&["import", from, &to]);
        assert_eq!(text(&world, "/q/d/f").len(), 1_000_000);
        world.ok(&["fsck", world.vol()]);
    }
}

/// Regression: an import that was ended in the middle of a file removed the older one.
#[test]
fn a_file_stays_when_the_import_of_the_newer_one_ends() {
    use std::io::Write;
    for kills_daemon in [false, true] {
        let world = World::new();
        let source = world.source();
        fs::write(source.join("f"), "old").unwrap();
        world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
        world.ok(&["sync", world.vol()]);
        let whole = file("f", &"x".repeat(4 << 20));
        let words = ["import", "--format", "tar", "-", &world.at("/d")];
        let mut command = World::command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&whole[..3 << 20]).unwrap();
        wait_until("the file is begun", || world.names("/d").len() > 1);
        assert_eq!(text(&world, "/d/f"), "old");
        if kills_daemon {
            world.kill_daemon();
        }
        signal(child.id().cast_signed(), rustix::process::Signal::INT);
        drop(input);
        let ended = answer(&child.wait_with_output().unwrap());
        assert_ne!(ended.code, 0, "{ended:?}");
        assert_eq!(text(&world, "/d/f"), "old");
        if kills_daemon {
            // The next import removes what is left, whatever it brings.
            let none = world.path().join("none");
            fs::create_dir(&none).unwrap();
            world.ok(&["import", none.to_str().unwrap(), &world.at("/d")]);
        }
        assert_eq!(world.names("/d"), ["f"]);
        world.ok(&["fsck", world.vol()]);
    }
}

/// Regression: what keeps the files of a directory changed its mode.
#[test]
fn directories_that_are_kept_keep_their_mode() {
    let world = World::new();
    let (there, source) = (world.path().join("there"), world.source());
    fs::create_dir_all(there.join("dir")).unwrap();
    fs::create_dir_all(source.join("dir/new")).unwrap();
    fs::write(source.join("dir/added"), "added").unwrap();
    for directory in [there.clone(), there.join("dir")] {
        set_mode(&directory, 0o700);
    }
    for directory in [source.clone(), source.join("dir"), source.join("dir/new")] {
        set_mode(&directory, 0o777);
    }
    let (from, to) = (source.to_str().unwrap(), world.at("/d"));
    world.ok(&["import", there.to_str().unwrap(), &to]);
    for rule in ["skip", "fail"] {
        world.ok(&["import", "--on-conflict", rule, "--verify", from, &to]);
        let modes = ["/d", "/d/dir", "/d/dir/new"].map(|path| mode(&world, path));
        assert_eq!(modes, ["0700", "0700", "0777"], "{rule}");
        assert_eq!(text(&world, "/d/dir/added"), "added");
    }
    world.ok(&["import", from, &to]);
    assert_eq!(["/d", "/d/dir"].map(|path| mode(&world, path)), ["0777", "0777"]);
    // What a killed import left unfinished is none that was there.
    set_mode(&there, 0o4700);
    world.ok(&["import", there.to_str().unwrap(), &world.at("/u")]);
    assert_eq!(mode(&world, "/u"), "4700");
    world.ok(&["import", "--on-conflict", "skip", from, &world.at("/u")]);
    assert_eq!(mode(&world, "/u"), "0777");
}

/// Regression: a new name became a link of the older file that was kept under the first name.
#[test]
fn a_further_name_of_a_file_that_is_not_imported_has_its_contents() {
    let world = World::new();
    let (there, source) = (world.path().join("there"), world.source());
    fs::create_dir(&there).unwrap();
    fs::write(there.join("a"), "it was there").unwrap();
    world.ok(&["import", there.to_str().unwrap(), &world.at("/d")]);
    fs::write(source.join("a"), "of the source").unwrap();
    fs::create_dir(source.join("dir")).unwrap();
    for name in ["dir/b", "dir/c"] {
        fs::hard_link(source.join("a"), source.join(name)).unwrap();
    }
    let (from, to) = (source.to_str().unwrap(), world.at("/d"));
    let words = ["import", "--on-conflict", "skip", "--verify", from, &to];
    let done = world.json(&words).remove(0);
    assert_eq!((&done["kept"], &done["failed"]), (&1.into(), &0.into()), "{done}");
    assert_eq!(text(&world, "/d/a"), "it was there");
    for name in ["/d/dir/b", "/d/dir/c"] {
        assert_eq!(text(&world, name), "of the source");
    }
    let copy = exported(&world, "/d");
    let links = |name: &str| fs::metadata(copy.join(name)).unwrap().nlink();
    assert_eq!((links("a"), links("dir/b")), (1, 2));
}

/// Regression: mode, owner and device number of another archive were shown.
#[test]
fn attributes_of_another_archive_are_not_taken_over() {
    let world = World::new();
    let mode = |mode, header: Header| Header { mode, ..header };
    let device = |minor: u8| {
        let mut block = Header::new("device", b'3').block();
        block[343] = b'0' + minor;
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    };
    let of = |run: u32, minor: u8| {
        let empty = mode(run, Header::new("empty", b'0')).block();
        let mut text = mode(run, Header { size: 4, ..Header::new("run", b'0') }).block();
        text.extend_from_slice(b"text");
        text.resize(1024, 0);
        let same = file("same", "same");
        // Only root makes devices.
        let device = if crate::world::is_root() { device(minor) } else { Vec::new() };
        [empty, text, device, same]
    };
    let cut = world.path().join("cut.tar");
    fs::write(&cut, of(0o4755, 3).concat()).unwrap();
    assert_eq!(import(&world, &cut, "/d", &[]).code, 2);
    let path = archive(&world, &of(0o755, 5));
    let done = imported(&world, &path, "/d", &["--verify", "--json"]);
    assert!(done.out.contains("\"unchanged\":1"), "{done:?}");
    let copy = exported(&world, "/d");
    let found = |name: &str| fs::symlink_metadata(copy.join(name)).unwrap();
    for name in ["empty", "run"] {
        assert_eq!(found(name).mode() & 0o7777, 0o755, "{name}");
    }
    if crate::world::is_root() {
        assert_eq!(found("device").rdev(), rustix::fs::makedev(1, 5));
    }
}

/// Regression: a hard link that was there already was a conflict.
#[test]
fn links_that_are_there_are_no_conflict() {
    let world = World::new();
    let link = |name: &str, to: &str| Header { link: to.into(), ..Header::new(name, b'1') }.block();
    let members = [file("dir/a", "a"), link("b", "dir/a"), link("dir/c", "b"), file("z/y", "y")];
    let path = archive(&world, &members);
    let none = archive_of_nothing(&world);
    imported(&world, &none, "/d", &["--appear", "gradually"]);
    for run in 0..3 {
        let done = imported(&world, &path, "/d", &["--on-conflict", "fail", "--json"]);
        let is_first = run == 0;
        assert_eq!(done.out.contains("\"imported\":0"), !is_first, "{done:?}");
        assert!(done.out.contains("\"kept\":0"), "{done:?}");
    }
    // A link to another file is one.
    let other = [file("dir/a", "a"), file("z/y", "y"), link("b", "z/y")];
    let path = archive(&world, &other);
    assert_eq!(import(&world, &path, "/d", &["--on-conflict", "fail"]).code, 6);
    imported(&world, &path, "/d", &[]);
    assert_eq!(text(&world, "/d/b"), "y");
}

fn archive_of_nothing(world: &World) -> PathBuf {
    let path = world.path().join("none.tar");
    fs::write(&path, vec![0; 1024]).unwrap();
    path
}
