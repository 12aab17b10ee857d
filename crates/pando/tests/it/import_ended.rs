//! Imports that are killed, or fill the disk: nothing is visible that looks whole, and the same
//! command completes what began.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::full_disk::{SmallDisk, noise};
use crate::import::{assert_same, sample};
use crate::world::{World, signal, wait_until};

on_one_engine!(
    "lsm": a_killed_import_into_what_exists_completes_its_directories,
    a_full_disk_shows_no_part_and_the_same_command_completes,
);
on_one_engine!("btree": a_killed_import_of_a_directory_continues);

fn packed(source: &Path, to: &Path) {
    let mut command = Command::new("tar");
    command.args(["--format=pax", "--sort=name", "-C"]).arg(source).arg("-cf").arg(to).arg(".");
    assert!(command.status().unwrap().success());
}

fn exported(world: &World, from: &str, name: &str) -> std::path::PathBuf {
    let copy = world.path().join(name);
    world.ok(&["export", &world.at(from), copy.to_str().unwrap()]);
    copy
}

fn mode(world: &World, path: &str) -> String {
    let stat = world.json(&["stat", &world.at(path)]).remove(0);
    stat["mode"].as_str().unwrap().to_owned()
}

/// An import that keeps what it finds knows the directories of the one that was killed, and changes
/// none that was there before.
fn a_killed_import_into_what_exists_completes_its_directories(engine: &str) {
    for kills_daemon in [false, true] {
        let world = World::on(engine);
        let there = world.path().join("there");
        fs::create_dir_all(there.join("own")).unwrap();
        fs::set_permissions(there.join("own"), PermissionsExt::from_mode(0o700)).unwrap();
        world.ok(&["import", there.to_str().unwrap(), &world.at("/d")]);
        let source = world.path().join("source");
        for directory in ["a/b", "own/new", "z/y"] {
            fs::create_dir_all(source.join(directory)).unwrap();
            fs::set_permissions(source.join(directory), PermissionsExt::from_mode(0o751)).unwrap();
            for file in 0..1000 {
                let path = source.join(format!("{directory}/{file}"));
                fs::write(path, format!("contents of {file}")).unwrap();
            }
        }
        fs::set_permissions(source.join("own"), PermissionsExt::from_mode(0o755)).unwrap();
        let archive = world.path().join("archive");
        packed(&source, &archive);
        let bytes = fs::read(&archive).unwrap();
        let to = world.at("/d");
        let words = ["import", "--format", "tar", "--on-conflict", "skip"];
        let mut command = World::command(&[&words[..], &["-", &to]].concat());
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut import = command.spawn().unwrap();
        import.stdin.as_mut().unwrap().write_all(&bytes[..bytes.len() / 3 * 2]).unwrap();
        wait_until("it is half done", || {
            world.run(&["ls", &world.at("/d/own/new")]).out.lines().count() > 5
        });
        if kills_daemon {
            world.ok(&["sync", world.vol()]);
            world.kill_daemon();
        }
        signal(i32::try_from(import.id()).unwrap(), Signal::KILL);
        import.wait().unwrap();
        wait_until("the daemon has noticed", || {
            let sessions = world.ok(&["session", "list", world.vol()]);
            !sessions.contains("import")
        });
        assert_eq!([mode(&world, "/d/a"), mode(&world, "/d/a/b")], ["4700", "4700"]);
        let archive = archive.to_str().unwrap();
        let done = world.json(&[&words[..], &[archive, &to]].concat());
        assert_eq!((&done[0]["failed"], &done[0]["kept"]), (&0.into(), &0.into()), "{done:?}");
        let modes = ["/d/a", "/d/a/b", "/d/own/new", "/d/z/y", "/d/own"];
        let modes = modes.map(|path| mode(&world, path));
        assert_eq!(modes, ["0755", "0751", "0751", "0751", "0700"]);
        assert_eq!(world.names("/d/z/y").len(), 1000);
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}

fn a_killed_import_of_a_directory_continues(engine: &str) {
    for attempt in 1.. {
        let world = World::on(engine);
        let source = world.path().join("source");
        fs::create_dir(&source).unwrap();
        sample(&source);
        for directory in 0..20 * attempt {
            fs::create_dir(source.join(format!("d{directory}"))).unwrap();
            for file in 0..300 {
                let path = source.join(format!("d{directory}/{file}"));
                fs::write(path, format!("contents of {file}")).unwrap();
            }
        }
        let (from, to) = (source.to_str().unwrap(), world.at("/copy"));
        let mut command = World::command(&["import", from, &to]);
        let mut import = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("it has begun", || world.run(&["stat", &to]).code == 0);
        signal(i32::try_from(import.id()).unwrap(), Signal::KILL);
        if import.wait().unwrap().success() {
            assert!(attempt < 6, "an import cannot be killed before it is over");
            continue;
        }
        let done = world.json(&["import", from, &to]).remove(0);
        assert_eq!(done["failed"], 0, "{done}");
        assert_same(&source, &exported(&world, "/copy", "exported"));
        world.close();
        world.ok(&["fsck", world.vol()]);
        return;
    }
}

/// A file that grows, or is written in place, while it is read may be a mixture. The import names
/// it, and the same command reads it again.
#[test]
fn a_source_that_changes_is_named_and_read_again() {
    let world = World::on("btree");
    let source = world.path().join("source");
    fs::create_dir(&source).unwrap();
    for (name, change) in
        [("grows", "printf x >> $0"), ("rewritten", "printf y | dd of=$0 conv=notrunc")]
    {
        fs::write(source.join(name), noise(7, 48 << 20)).unwrap();
        fs::write(source.join("beside"), b"whole").unwrap();
        let script = format!("while :; do {change} 2> /dev/null; done");
        let mut writer = Command::new("sh");
        let path = source.join(name);
        let mut writer = writer.args(["-c", &script]).arg(&path).spawn().unwrap();
        let words = ["import", source.to_str().unwrap(), &world.at("/d")];
        let first = world.run(&words);
        signal(i32::try_from(writer.id()).unwrap(), Signal::KILL);
        writer.wait().unwrap();
        assert_eq!(first.code, 1, "{first:?}");
        assert!(first.err.contains(name) && first.err.contains("changed"), "{first:?}");
        let done = world.json(&words).remove(0);
        assert_eq!((&done["failed"], &done["imported"]), (&0.into(), &1.into()), "{done}");
        let copy = world.path().join(name);
        world.ok(&["export", &world.at("/d"), copy.to_str().unwrap()]);
        assert!(fs::read(copy.join(name)).unwrap() == fs::read(&path).unwrap(), "{name}");
        fs::remove_file(&path).unwrap();
        world.ok(&["rmr", "--wait", &world.at("/d")]);
    }
}

/// What an import to a new name needs beside its source, and the words of its command.
fn commands(source: &Path, beside: &Path) -> Vec<Vec<String>> {
    let (archive, list) = (beside.join("archive"), beside.join("list"));
    packed(source, &archive);
    let mut lines = String::new();
    for file in fs::read_dir(source).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let size = fs::metadata(source.join(&name)).unwrap().len();
        writeln!(lines, "{{\"path\":\"{name}\",\"kind\":\"f\",\"mtime\":5,\"size\":{size}}}")
            .unwrap();
    }
    fs::write(&list, lines).unwrap();
    let [source, archive, list] =
        [source, &archive, &list].map(|path| path.to_str().unwrap().to_owned());
    let words = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect();
    vec![
        words(&["import", "--appear", "whole", &source]),
        words(&["import", "--format", "tar", &archive]),
        words(&["import", "--format", "list", "--contents", &source, &list]),
    ]
}

fn a_full_disk_shows_no_part_and_the_same_command_completes(engine: &str) {
    let beside = tempfile::tempdir().unwrap();
    let source = beside.path().join("source");
    fs::create_dir(&source).unwrap();
    for number in 0..24 {
        fs::write(source.join(format!("f{number}")), noise(number, 1 << 20)).unwrap();
    }
    for words in commands(&source, beside.path()) {
        let Some(disk) = SmallDisk::of(16) else { return };
        let world = World::below(disk.path());
        world.format(engine);
        let to = world.at("/d");
        let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
        words.push(&to);
        let printed = world.fails(7, &words);
        assert!(printed.contains("space"), "{words:?}: {printed}");
        assert!(!world.names("/").contains(&"d".to_owned()), "{words:?}");
        let larger = ["-o", "remount,size=400m"];
        let grown = Command::new("mount").args(larger).arg(disk.path()).status().unwrap();
        assert!(grown.success());
        wait_until("there is space again", || world.run(&words).code == 0);
        assert_eq!(world.names("/"), ["d"], "{words:?}");
        let copy = beside.path().join("copy");
        world.ok(&["export", &world.at("/d"), copy.to_str().unwrap()]);
        for number in 0..24 {
            let name = format!("f{number}");
            let same = fs::read(source.join(&name)).unwrap() == fs::read(copy.join(&name)).unwrap();
            assert!(same, "{words:?}: {name}");
        }
        fs::remove_dir_all(&copy).unwrap();
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}
