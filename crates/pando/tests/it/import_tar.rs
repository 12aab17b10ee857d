//! Archives of other programs are imported whole, hostile ones do no harm, and what is cut short
//! is not visible.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::export::{lists, new_file, odd};
use crate::import::{assert_same, sample};
use crate::other_users::Nobody;
use crate::world::{Answer, NOBODY, World, answer, engines, is_root, signal, wait_until};

/// A header of a member, as text fields that a test may damage.
pub(crate) struct Header {
    pub(crate) name: Vec<u8>,
    pub(crate) kind: u8,
    pub(crate) mode: u32,
    pub(crate) size: usize,
    pub(crate) link: Vec<u8>,
}

impl Header {
    pub(crate) fn new(name: &str, kind: u8) -> Header {
        Header { name: name.into(), kind, mode: 0o644, size: 0, link: Vec::new() }
    }

    fn link(name: &str, kind: u8, link: &str) -> Header {
        Header { link: link.into(), ..Header::new(name, kind) }
    }

    pub(crate) fn block(&self) -> Vec<u8> {
        let mut block = vec![0; 512];
        block[..self.name.len()].copy_from_slice(&self.name);
        block[100..107].copy_from_slice(format!("{:07o}", self.mode).as_bytes());
        block[108..115].copy_from_slice(b"0000000");
        block[116..123].copy_from_slice(b"0000000");
        block[124..135].copy_from_slice(format!("{:011o}", self.size).as_bytes());
        block[136..147].copy_from_slice(b"07000000000");
        block[156] = self.kind;
        if self.kind == b'3' {
            block[329..336].copy_from_slice(b"0000001");
            block[337..344].copy_from_slice(b"0000003");
        }
        block[157..157 + self.link.len()].copy_from_slice(&self.link);
        block[257..265].copy_from_slice(b"ustar\x0000");
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        block
    }
}

pub(crate) fn file(name: &str, contents: &str) -> Vec<u8> {
    let header = Header { size: contents.len(), ..Header::new(name, b'0') };
    let mut out = header.block();
    out.extend_from_slice(contents.as_bytes());
    out.resize(out.len().next_multiple_of(512), 0);
    out
}

pub(crate) fn archive(world: &World, members: &[Vec<u8>]) -> PathBuf {
    let path = world.path().join("made.tar");
    fs::write(&path, [members.concat(), vec![0; 1024]].concat()).unwrap();
    // The user nobody reads it, too.
    fs::set_permissions(&path, PermissionsExt::from_mode(0o644)).unwrap();
    path
}

pub(crate) fn import(world: &World, archive: &Path, to: &str, more: &[&str]) -> Answer {
    let mut arguments = vec!["import", "--format", "tar", archive.to_str().unwrap()];
    let to = world.at(to);
    arguments.push(&to);
    arguments.extend(more);
    world.run(&arguments)
}

pub(crate) fn imported(world: &World, archive: &Path, to: &str, more: &[&str]) -> Answer {
    let answer = import(world, archive, to, more);
    assert_eq!(answer.code, 0, "{answer:?}");
    answer
}

fn exported(world: &World, from: &str, name: &str) -> PathBuf {
    let copy = world.path().join(name);
    world.ok(&["export", &world.at(from), copy.to_str().unwrap()]);
    copy
}

pub(crate) fn text(world: &World, path: &str) -> String {
    world.ok(&["cat", &world.at(path)])
}

fn packed(source: &Path, to: &Path, arguments: &[&str]) {
    let mut command = Command::new("tar");
    command.arg("-C").arg(source).args(arguments).arg("-cf").arg(to).arg(".");
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn archives_of_gnu_tar_are_imported_with_everything() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        odd(&source);
        let archive = world.path().join("a.tar");
        let kinds: [&[&str]; 5] = [
            &["--format=pax", "--xattrs", "--acls", "-S"],
            &["--format=pax", "--xattrs", "--acls", "--sparse-version=0.0", "-S"],
            &["--format=pax", "--xattrs", "--acls", "--sparse-version=0.1", "-S", "-z"],
            &["--format=pax", "--xattrs", "--acls", "--zstd"],
            &["--format=pax", "--xattrs", "--acls", "--sort=name"],
        ];
        for (at, arguments) in kinds.iter().enumerate() {
            packed(&source, &archive, arguments);
            imported(&world, &archive, &format!("/i{at}"), &["--numeric-owner"]);
            let copy = exported(&world, &format!("/i{at}"), &format!("copy{at}"));
            assert_same(&source, &copy);
            assert_eq!(lists(&source), lists(&copy));
            let holes = fs::metadata(copy.join("sparse")).unwrap().blocks();
            assert!(at > 2 || holes < 4096, "{arguments:?}: {holes} blocks");
        }
    }
}

#[test]
fn archives_of_old_formats_are_imported() {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("d/e")).unwrap();
    fs::write(source.join("d/e/file"), "contents").unwrap();
    fs::hard_link(source.join("d/e/file"), source.join("hard")).unwrap();
    std::os::unix::fs::symlink("d/e", source.join("link")).unwrap();
    let holes = new_file(&source.join("holes"));
    for at in 0..40 {
        std::os::unix::fs::FileExt::write_all_at(&holes, b"data", at * 100_000).unwrap();
    }
    // These formats have whole seconds.
    for (n, path) in ["d/e/file", "holes", "d/e", "d", "."].iter().enumerate() {
        let mut touch = Command::new("touch");
        touch.arg("-d").arg(format!("2020-01-0{}", n + 1)).arg(source.join(path));
        assert!(touch.status().unwrap().success());
    }
    let link =
        Command::new("touch").args(["-h", "-d", "2020-02-02"]).arg(source.join("link")).status();
    assert!(link.unwrap().success());
    for (format, arguments) in [
        ("gnu", &["--format=gnu", "-S"][..]),
        ("oldgnu", &["--format=oldgnu", "-S"]),
        ("ustar", &["--format=ustar"]),
        ("v7", &["--format=v7"]),
    ] {
        let archive = world.path().join(format);
        packed(&source, &archive, arguments);
        imported(&world, &archive, &format!("/{format}"), &[]);
        assert_same(&source, &exported(&world, &format!("/{format}"), &format!("{format}-copy")));
    }
}

#[test]
fn names_that_lead_out_are_left_out_and_others_stay_below() {
    let world = World::new();
    fs::write(world.path().join("victim"), "victim").unwrap();
    world.ok(&["import", world.path().join("victim").to_str().unwrap(), &world.at("/victim")]);
    let path = archive(
        &world,
        &[
            file("../victim", "evil"),
            file("a/../../victim", "evil"),
            file("/absolute/file", "below"),
            file("./a//./b", "b"),
            Header::link("out", b'2', "..").block(),
            file("out/victim", "evil"),
            Header::link("up", b'2', "/etc").block(),
            Header::link("hard", b'1', "../victim").block(),
            Header::link("through", b'1', "out/victim").block(),
            Header::link("to nothing", b'1', "nothing").block(),
            Header::link("to a directory", b'1', "a").block(),
            Header::link("good", b'1', "/a/b").block(),
            file(".snapshots/x", "evil"),
            Header::new(".snapshots/taken", b'5').block(),
        ],
    );
    let answer = import(&world, &path, "/d", &["--keep-going"]);
    assert_ne!(answer.code, 0, "{answer:?}");
    for refused in
        ["../victim", "a/../../victim", "hard", "through", "to nothing", "out: not a directory"]
    {
        assert!(answer.err.contains(refused), "{refused}: {}", answer.err);
    }
    assert_eq!(text(&world, "/victim"), "victim");
    assert_eq!(text(&world, "/d/absolute/file"), "below");
    assert_eq!(text(&world, "/d/good"), "b");
    let names = world.names("/d");
    assert_eq!(names, ["a", "absolute", "good", "out", "up"], "{}", answer.err);
    let snapshots = world.ok(&["snapshot", "list", &world.at("/d")]);
    assert!(!snapshots.contains("taken"), "{snapshots}");
}

#[test]
fn the_last_of_several_members_counts() {
    let world = World::new();
    let path = archive(
        &world,
        &[
            file("twice", "first"),
            file("d/in", "x"),
            file("other", "y"),
            file("twice", "the second"),
            file("d/later", "z"),
            Header { mode: 0o500, ..Header::new("d/", b'5') }.block(),
            file("d/last", "w"),
            file("becomes a link", "x"),
            Header::link("becomes a link", b'2', "other").block(),
            file("linked", "before"),
            Header::link("name", b'1', "linked").block(),
            file("linked", "after"),
            Header::link("itself", b'1', "other").block(),
            Header::link("itself", b'1', "itself").block(),
        ],
    );
    imported(&world, &path, "/d", &[]);
    let copy = exported(&world, "/d", "copy");
    let read = |name: &str| fs::read_to_string(copy.join(name)).unwrap();
    assert_eq!(
        (read("twice"), read("d/in"), read("d/later")),
        ("the second".into(), "x".into(), "z".into())
    );
    assert_eq!((read("name"), read("linked")), ("before".into(), "after".into()));
    assert_eq!(read("itself"), "y");
    assert_eq!(fs::metadata(copy.join("d")).unwrap().mode() & 0o7777, 0o500);
    assert_eq!(fs::metadata(copy.join("d")).unwrap().mtime(), 0o7_000_000_000);
    assert!(copy.join("becomes a link").is_symlink());
}

/// A user gets nothing from an archive that the user could not make.
#[test]
fn a_user_gets_no_rights_from_an_archive() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let own = world.path().join("own");
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    world.ok(&["import", own.to_str().unwrap(), &world.at("/own")]);
    let device = Header { mode: 0o666, ..Header::new("device", b'3') };
    let path = archive(
        &world,
        &[
            Header { mode: 0o6755, ..Header::new("run", b'0') }.block(),
            Header { mode: 0o555, ..Header::new("closed/", b'5') }.block(),
            file("closed/file", "x"),
            device.block(),
            Header::new("fifo", b'6').block(),
        ],
    );
    if !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let to = world.below_mount("own/d");
    let words = ["import", "--keep-going", "--format", "tar"];
    let answer =
        nobody.run(&[&words[..], &[path.to_str().unwrap(), to.to_str().unwrap()]].concat());
    assert_eq!(answer.code, 4, "{answer:?}");
    assert!(answer.err.contains("device"), "{answer:?}");
    let run = fs::metadata(to.join("run")).unwrap();
    assert_eq!((run.mode() & 0o7777, run.uid()), (0o755, NOBODY));
    assert_eq!(fs::metadata(to.join("closed")).unwrap().mode() & 0o7777, 0o555);
    assert_eq!(fs::read_to_string(to.join("closed/file")).unwrap(), "x");
    assert_eq!(world.names("/own/d"), ["closed", "fifo", "run"]);
    // Elsewhere the user may make nothing.
    let other = world.below_mount("d");
    let arguments = ["import", "--format", "tar", path.to_str().unwrap(), other.to_str().unwrap()];
    assert_eq!(nobody.run(&arguments).code, 4);
    assert_eq!(world.names("/"), ["own"]);
}

#[test]
fn an_archive_that_is_cut_short_makes_nothing_visible_and_continues() {
    for engine in engines("btree") {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        for name in 0..300 {
            fs::write(source.join(format!("d/{name}")), format!("contents of {name}")).unwrap();
        }
        for compress in [&[][..], &["-z"], &["--zstd"]] {
            let (whole, cut) = (world.path().join("whole"), world.path().join("cut"));
            packed(
                &source,
                &whole,
                &[&["--format=pax", "--sort=name", "-S", "--xattrs"], compress].concat(),
            );
            let bytes = fs::read(&whole).unwrap();
            for part in [0.3, 0.6, 0.9, 0.97] {
                fs::write(&cut, &bytes[..(bytes.len() as f64 * part) as usize]).unwrap();
                let answer = import(&world, &cut, "/d", &[]);
                assert_eq!(answer.code, 2, "{part} {answer:?}");
                assert!(answer.err.contains("cut short"), "{answer:?}");
                assert_eq!(world.names("/"), [".pando-import.d"]);
            }
            let arguments = ["import", "--format", "tar"];
            let paths = [whole.to_str().unwrap().to_owned(), world.at("/d")];
            let words: Vec<&str> =
                arguments.into_iter().chain(paths.iter().map(String::as_str)).collect();
            let done = world.json(&words);
            assert!(done[0]["unchanged"].as_u64().unwrap() > 200, "{done:?}");
            assert_eq!(world.names("/"), ["d"]);
            let copy = exported(&world, "/d", "copy");
            assert_same(&source, &copy);
            fs::remove_dir_all(copy).unwrap();
            world.ok(&["rmr", &world.at("/d")]);
        }
    }
}

#[test]
fn what_exists_is_kept_replaced_or_refused() {
    let world = World::new();
    let first = archive(
        &world,
        &[file("same", "same"), file("differs", "old"), file("dir/inner", "old"), file("f", "f")],
    );
    imported(&world, &first, "/d", &[]);
    let second = |world: &World| {
        archive(
            world,
            &[
                file("same", "same"),
                file("new", "new"),
                file("differs", "newer"),
                file("dir/inner", "newer"),
                file("dir/added", "added"),
                file("differs", "newest"),
            ],
        )
    };
    let path = second(&world);
    // Whole is only what is new.
    assert_eq!(import(&world, &path, "/d", &["--appear", "whole"]).code, 6);
    let refused = import(&world, &path, "/d", &["--on-conflict", "fail"]);
    assert_eq!(refused.code, 6, "{refused:?}");
    assert!(refused.err.contains("differs"), "{refused:?}");
    assert_eq!(text(&world, "/d/differs"), "old");
    let kept = imported(&world, &path, "/d", &["--on-conflict", "skip", "--json"]);
    assert!(kept.out.contains("\"kept\":3"), "{kept:?}");
    let kept = imported(&world, &path, "/d", &["--on-conflict", "skip"]);
    assert!(kept.out.contains(", 3 differ and were kept"), "{kept:?}");
    assert_eq!(text(&world, "/d/differs"), "old");
    assert_eq!(text(&world, "/d/dir/added"), "added");
    assert_eq!(text(&world, "/d/dir/inner"), "old");
    imported(&world, &path, "/d", &[]);
    assert_eq!(text(&world, "/d/differs"), "newest");
    assert_eq!(text(&world, "/d/dir/inner"), "newer");
    assert_eq!(text(&world, "/d/f"), "f");
    // A directory is not replaced by a file, nor a file by a directory.
    let path = archive(&world, &[file("dir", "x"), file("f/below", "x"), file("last", "last")]);
    let answer = import(&world, &path, "/d", &[]);
    assert_eq!(answer.code, 6, "{answer:?}");
    assert_eq!((text(&world, "/d/f"), text(&world, "/d/last")), ("f".into(), "last".into()));
    assert_eq!(text(&world, "/d/dir/inner"), "newer");
}

/// A further member of a name is refused or left out like the first.
#[test]
fn a_second_member_of_a_name_does_not_replace_what_is_kept() {
    let world = World::new();
    let source = world.source();
    let appended = world.path().join("appended.tar");
    for (contents, option) in [("first", "-cf"), ("the second", "-rf")] {
        fs::write(source.join("name"), contents).unwrap();
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(&source).arg(option).arg(&appended).arg("name");
        assert!(tar.status().unwrap().success());
    }
    fs::write(source.join("name"), "it was there").unwrap();
    fs::write(source.join("etc"), "a file").unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    imported(&world, &appended, "/d", &["--on-conflict", "skip"]);
    assert_eq!(text(&world, "/d/name"), "it was there");
    assert_eq!(import(&world, &appended, "/d", &["--on-conflict", "fail"]).code, 6);
    assert_eq!(text(&world, "/d/name"), "it was there");
    let path = archive(&world, &[file("etc", "another"), file("etc/passwd", "x")]);
    let answer = import(&world, &path, "/d", &["--on-conflict", "skip"]);
    assert_ne!(answer.code, 0, "{answer:?}");
    assert!(answer.err.contains("is not a directory"), "{answer:?}");
    assert_eq!(text(&world, "/d/etc"), "a file");
}

/// What an import that did not end left is not shown as part of another archive.
#[test]
fn leftovers_of_another_archive_are_not_shown() {
    let world = World::new();
    let first = [file("dir/of the first", "x"), file("both", "x")].concat();
    let cut = world.path().join("cut.tar");
    fs::write(&cut, first).unwrap();
    assert_eq!(import(&world, &cut, "/d", &[]).code, 2);
    let path = archive(&world, &[file("dir/of the second", "y"), file("both", "y")]);
    let answer = import(&world, &path, "/d", &[]);
    assert_eq!(answer.code, 6, "{answer:?}");
    for reported in ["dir/of the first", "/.pando-import.d"] {
        assert!(answer.err.contains(reported), "{reported}: {answer:?}");
    }
    assert_eq!(world.names("/"), [".pando-import.d"]);
    world.ok(&["rmr", &world.at("/.pando-import.d")]);
    imported(&world, &path, "/d", &[]);
    assert_eq!(world.names("/d/dir"), ["of the second"]);
}

#[test]
fn what_is_no_archive_is_refused_and_leaves_nothing() {
    let world = World::new();
    let path = world.path().join("x.tar");
    for (contents, reported) in [
        (&b"not a tar archive"[..], "cut short"),
        (&[b'x'; 2000], "not a tar archive"),
        (b"", "cut short"),
        (b"\xfd7zXZ\0 and more", "xz -dc"),
        (b"BZh91AY", "bzip2 -dc"),
    ] {
        fs::write(&path, contents).unwrap();
        let answer = import(&world, &path, "/d", &[]);
        assert!(answer.code == 2 || answer.code == 1, "{answer:?}");
        assert!(answer.err.contains(reported), "{answer:?}");
        assert_eq!(world.names("/"), Vec::<String>::new());
    }
    assert_eq!(import(&world, &world.path().join("none"), "/d", &[]).code, 3);
    assert_eq!(import(&world, world.path(), "/d", &[]).code, 6);
    // Without the option an archive is a file, with a remark.
    fs::write(&path, [7; 100]).unwrap();
    let answer = world.run(&["import", path.to_str().unwrap(), &world.at("/f")]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.err.contains("--format tar"), "{answer:?}");
    let reported = world.fails(2, &["import", "-", &world.at("/g")]);
    assert!(reported.contains("--format"), "{reported}");
}

/// Whatever ends an import, nothing is visible, and the same command completes it.
#[test]
fn an_import_that_is_ended_continues() {
    for (engine, end) in [("btree", "kill"), ("lsm", "kill"), ("btree", "interrupt")] {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        for name in 0..2000 {
            fs::write(source.join(format!("d/{name}")), format!("contents of {name}")).unwrap();
        }
        let whole = world.path().join("whole");
        packed(&source, &whole, &["--format=pax", "--sort=name", "-S", "--xattrs"]);
        let bytes = fs::read(&whole).unwrap();
        let words = ["import", "--format", "tar", "-", &world.at("/d")];
        let mut command = World::command(&words);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut import = command.spawn().unwrap();
        let mut input = import.stdin.take().unwrap();
        input.write_all(&bytes[..bytes.len() / 2]).unwrap();
        wait_until("the import is half done", || {
            let listed = world.run(&["ls", "-a", &world.at("/.pando-import.d/d")]);
            listed.out.lines().count() > 300
        });
        let pid = i32::try_from(import.id()).unwrap();
        if end == "kill" {
            signal(pid, rustix::process::Signal::KILL);
            world.kill_daemon();
            import.wait().unwrap();
        } else {
            signal(pid, rustix::process::Signal::INT);
            drop(input);
            assert_eq!(import.wait().unwrap().code(), Some(130));
        }
        // A daemon that is killed loses what it had not written yet.
        let names = world.names("/");
        assert!(names == [".pando-import.d"] || end == "kill" && names.is_empty(), "{names:?}");
        let to = world.at("/d");
        let words = ["import", "--format", "tar", whole.to_str().unwrap(), &to];
        let done = world.json(&words);
        assert_eq!(done[0]["failed"], 0, "{done:?}");
        assert!(end == "kill" || done[0]["unchanged"].as_u64() > Some(300), "{done:?}");
        assert_eq!(world.names("/"), ["d"]);
        assert_same(&source, &exported(&world, "/d", "copy"));
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}

#[test]
fn what_was_imported_is_verified() {
    for engine in engines("lsm") {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        odd(&source);
        let archive = world.path().join("archive");
        packed(&source, &archive, &["--format=pax", "-S", "--xattrs", "--acls"]);
        let names = 1 + walkdir(&source);
        let verified = |more: &[&str], from: &Path, to: &str| {
            let to = world.at(to);
            let words = [&["import", "--verify"][..], more, &[from.to_str().unwrap(), &to]];
            let done = world.json(&words.concat());
            assert_eq!(done[0]["differ"], 0, "{done:?}");
            done[0]["verified"].as_u64().unwrap()
        };
        assert_eq!(verified(&[], &source, "/dir"), names);
        assert_eq!(verified(&["--appear", "whole"], &source, "/whole"), names);
        assert_eq!(verified(&["--format", "tar"], &archive, "/tar"), names);
        assert_eq!(verified(&[], &source.join("d/big"), "/file"), 1);
        // Files that are there already are not read; directories are.
        assert!(verified(&[], &source, "/dir") < 8);
        let other = world.path().join("other");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("more"), "more").unwrap();
        assert_eq!(verified(&[], &other, "/dir"), 2);
    }
}

/// How many names are below a directory.
fn walkdir(directory: &Path) -> u64 {
    let below = |entry: std::io::Result<fs::DirEntry>| {
        let entry = entry.unwrap();
        let is_directory = entry.file_type().unwrap().is_dir();
        1 + if is_directory { walkdir(&entry.path()) } else { 0 }
    };
    fs::read_dir(directory).unwrap().map(below).sum()
}

/// A directory becomes visible as a whole, too, and a second run over it finds it unchanged.
#[test]
fn a_directory_appears_whole() {
    let world = World::new();
    let source = world.source();
    sample(&source);
    odd(&source);
    let to = world.at("/d");
    let words = ["import", "--appear", "whole", source.to_str().unwrap(), &to];
    world.ok(&words);
    assert_eq!(world.names("/"), ["d"]);
    assert_same(&source, &exported(&world, "/d", "copy"));
    world.fails(6, &words);
    fs::write(source.join("small"), "it differs").unwrap();
    let words = ["import", "--on-conflict", "fail", source.to_str().unwrap(), &to];
    world.fails(6, &words);
    assert_eq!(text(&world, "/d/small"), "small");
    let words = ["import", "--on-conflict", "skip", source.to_str().unwrap(), &to];
    assert!(world.json(&words)[0]["kept"].as_u64() >= Some(1));
    assert_eq!(text(&world, "/d/small"), "small");
    world.ok(&["import", source.to_str().unwrap(), &to]);
    assert_eq!(text(&world, "/d/small"), "it differs");
}

/// A directory under the hidden name that others can reach is not completed.
#[test]
fn a_planted_directory_is_not_completed() {
    let world = World::new();
    let planted = world.path().join("planted");
    fs::create_dir(&planted).unwrap();
    fs::set_permissions(&planted, PermissionsExt::from_mode(0o777)).unwrap();
    world.ok(&["import", planted.to_str().unwrap(), &world.at("/.pando-import.d")]);
    let path = archive(&world, &[file("secret", "secret")]);
    assert_eq!(import(&world, &path, "/d", &[]).code, 6);
    assert_eq!(world.names("/.pando-import.d"), Vec::<String>::new());
}

#[test]
fn an_archive_streams_from_one_volume_to_another() {
    let (one, other) = (World::on("btree"), World::on("lsm"));
    let source = one.source();
    sample(&source);
    odd(&source);
    one.ok(&["import", source.to_str().unwrap(), &one.at("/s")]);
    let words = ["export", "--format", "tar", &one.at("/s"), "-"];
    let mut from =
        World::command(&words).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut command = World::command(&["import", "--format", "tar", "-", &other.at("/s")]);
    let to = command.stdin(from.stdout.take().unwrap()).output().unwrap();
    assert!(from.wait().unwrap().success());
    assert_eq!(answer(&to).code, 0, "{:?}", answer(&to));
    let copy = exported(&other, "/s", "copy");
    assert_same(&source, &copy);
    assert_eq!(lists(&source), lists(&copy));
    // A source that ends early leaves nothing visible.
    let mut command = World::command(&["import", "--format", "tar", "-", &other.at("/t")]);
    let mut to = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    to.stdin.take().unwrap().write_all(&file("a", "b")).unwrap();
    assert_eq!(to.wait_with_output().unwrap().status.code(), Some(2));
    assert_eq!(other.names("/"), [".pando-import.t", "s"]);
}
