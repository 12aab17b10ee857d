//! What gets a name at the end of an import is the whole of its source, and nothing of another one.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use crate::import_tar::{Header, archive, file, import, imported, text};
use crate::other_users::Nobody;
use crate::world::{NOBODY, World, engines, is_root};

/// An archive of which something cannot be made is not shown, unless that is requested.
#[test]
fn a_part_of_an_archive_or_list_has_not_the_name_of_the_whole() {
    let world = World::new();
    let path = archive(&world, &[file("good", "good"), Header::new("strange", b'x' + 1).block()]);
    let refused = import(&world, &path, "/d", &[]);
    assert_ne!(refused.code, 0, "{refused:?}");
    for part in ["strange", "unknown type", "nothing is visible", "--keep-going"] {
        assert!(refused.err.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(world.names("/"), [".pando-import.d"]);
    // With the rest, and continued.
    let rest = import(&world, &path, "/d", &["--keep-going"]);
    assert_eq!(rest.code, refused.code, "{rest:?}");
    assert_eq!((text(&world, "/d/good"), world.names("/")), ("good".into(), vec!["d".into()]));
    // What cannot be made in a directory that exists is left out: it has its name already.
    let more = archive(&world, &[file("more", "more"), file("../out", "x")]);
    assert_ne!(import(&world, &more, "/d", &[]).code, 0);
    assert_eq!(text(&world, "/d/more"), "more");
    // A file of a list whose contents cannot be read.
    let list = world.path().join("list");
    let lines = r#"{"path":"one","kind":"file","size":4}
{"path":"none","kind":"file","size":4}
"#;
    fs::write(&list, lines).unwrap();
    let source = world.source();
    fs::write(source.join("one"), "text").unwrap();
    let (to, contents) = (world.at("/l"), source.to_str().unwrap());
    let words = ["import", "--format", "list", "--contents", contents, list.to_str().unwrap(), &to];
    let refused = world.run(&words);
    assert!(refused.err.contains("nothing is visible"), "{refused:?}");
    assert!(!world.names("/").contains(&"l".to_owned()));
    world.run(&[&words[..], &["--keep-going"]].concat());
    assert_eq!(text(&world, "/l/one"), "text");
    let refused = world.fails(2, &["import", "--keep-going", contents, &world.at("/x")]);
    assert!(refused.contains("--format"), "{refused}");
    world.ok(&["fsck", world.vol()]);
}

/// Two archives with the same names, lengths and times, and other contents: what is left of the
/// first is not in the second.
#[test]
fn contents_of_another_archive_are_not_taken_over() {
    for engine in engines("btree") {
        let world = World::on(engine);
        let (long, other) = ("1".repeat(100_000), "2".repeat(100_000));
        let of = |short: &str, long: &str| {
            [file("dir/short", short), file("empty", ""), file("long", long), file("same", "same")]
        };
        let cut = world.path().join("cut.tar");
        fs::write(&cut, of("first", &long).concat()).unwrap();
        assert_eq!(import(&world, &cut, "/d", &[]).code, 2);
        assert_eq!(text(&world, "/.pando-import.d/long"), long);
        let second = archive(&world, &of("other", &other));
        imported(&world, &second, "/d", &["--verify"]);
        assert_eq!(text(&world, "/d/dir/short"), "other");
        assert!(text(&world, "/d/long") == other && text(&world, "/d/same") == "same");
        // A list has holes, and not the contents that an archive left.
        assert_eq!(import(&world, &cut, "/l", &[]).code, 2);
        let lines = [("dir/short", 5), ("empty", 0), ("long", 100_000), ("same", 4)].map(|of| {
            let (path, size) = of;
            format!(r#"{{"path":"{path}","kind":"file","size":{size},"mtime":939524096}}"#)
        });
        let list = world.path().join("list");
        fs::write(&list, lines.join("\n") + "\n").unwrap();
        let to = world.at("/l");
        let done = world.run(&["import", "--format", "list", list.to_str().unwrap(), &to]);
        assert_eq!(done.code, 0, "{done:?}");
        assert_eq!(text(&world, "/l/same"), "\0\0\0\0");
        world.ok(&["fsck", world.vol()]);
    }
}

/// The last file of a directory does not fit: it fails after everything was sent.
#[test]
fn a_part_of_a_directory_has_not_the_name_of_the_whole() {
    let world = World::new();
    let source = world.source();
    fs::write(source.join("short"), "text").unwrap();
    fs::write(source.join("long"), vec![7; 5000]).unwrap();
    world.ok(&["subvolume", "create", &world.at("/q")]);
    world.ok(&["quota", "set", &world.at("/q"), "--bytes", "1K"]);
    let to = world.at("/q/d");
    let words = ["import", "--appear", "whole", source.to_str().unwrap(), &to];
    let refused = world.run(&words);
    assert!(refused.code != 0 && refused.err.contains("quota"), "{refused:?}");
    assert_eq!(world.names("/q"), [".pando-import.d"]);
    world.ok(&["quota", "set", &world.at("/q"), "--bytes", "1M"]);
    world.ok(&words);
    assert_eq!(world.names("/q"), ["d"]);
    assert_eq!(text(&world, "/q/d/long").len(), 5000);
}

/// Regression: `--on-conflict skip` kept older contents of a file that an interrupted import had
/// left in its hidden directory.
#[test]
fn the_rest_of_a_directory_is_of_the_present_source() {
    for conflict in ["skip", "fail"] {
        let world = World::new();
        let source = world.source();
        fs::write(source.join("a"), "before").unwrap();
        fs::write(source.join("long"), vec![7; 5000]).unwrap();
        world.ok(&["subvolume", "create", &world.at("/q")]);
        world.ok(&["quota", "set", &world.at("/q"), "--bytes", "1K"]);
        let (from, to) = (source.to_str().unwrap(), world.at("/q/d"));
        let words = ["import", "--appear", "whole", "--on-conflict", conflict, from, &to];
        let refused = world.run(&words);
        assert!(refused.code != 0 && refused.err.contains("quota"), "{refused:?}");
        assert_eq!(text(&world, "/q/.pando-import.d/a"), "before");
        fs::write(source.join("a"), "behind it").unwrap();
        world.ok(&["quota", "set", &world.at("/q"), "--bytes", "1M"]);
        world.ok(&words);
        assert_eq!(text(&world, "/q/d/a"), "behind it");
    }
}

/// Begins to import a directory as a whole, and leaves all of it under the hidden name.
fn left_under_the_hidden_name(world: &World, source: &Path, words: &[&str]) {
    // No import makes this name.
    let refused = source.join(".snapshots");
    fs::create_dir(&refused).unwrap();
    let done = world.run(words);
    assert!(done.code != 0 && done.err.contains("nothing is visible"), "{done:?}");
    fs::remove_dir(&refused).unwrap();
    assert_eq!(world.names("/"), [".pando-import.d"]);
}

/// Regression: what the source did not have any more was shown, as an earlier run had left it.
#[test]
fn leftovers_of_another_directory_are_not_shown() {
    for gone in ["dir/gone", "gone"] {
        let world = World::new();
        let source = world.source();
        fs::create_dir(source.join("dir")).unwrap();
        for name in ["dir/gone", "gone", "stays"] {
            fs::write(source.join(name), "text").unwrap();
        }
        let to = world.at("/d");
        let words = ["import", "--appear", "whole", source.to_str().unwrap(), &to];
        left_under_the_hidden_name(&world, &source, &words);
        fs::remove_file(source.join(gone)).unwrap();
        let printed = world.fails(6, &words);
        for part in [gone, "an earlier import left this", "/.pando-import.d"] {
            assert!(printed.contains(part), "{part}: {printed}");
        }
        assert_eq!(world.names("/"), [".pando-import.d"]);
        world.ok(&["rmr", "--wait", &world.at("/.pando-import.d")]);
        world.ok(&words);
        assert!(!world.names(&format!("/d/{gone}").replace("/gone", "")).contains(&"gone".into()));
        assert_eq!(text(&world, "/d/stays"), "text");
    }
}

/// Regression: contents and attributes of another source were shown, because an earlier run had
/// left files of the same names, lengths and times.
#[test]
fn contents_of_another_directory_are_not_taken_over() {
    let world = World::new();
    let source = world.source();
    let make = |letter: &str, mode: u32| {
        let lengths = [("long", 300_000), ("short", 9), ("same", 0), ("one", 3), ("two", 3)];
        for (name, length) in lengths {
            let path = source.join(name);
            fs::remove_file(&path).unwrap_or_default();
            fs::write(&path, letter.repeat(length)).unwrap();
        }
        fs::write(source.join("kept"), "kept").unwrap();
        fs::set_permissions(source.join("same"), PermissionsExt::from_mode(mode)).unwrap();
        if letter == "2" {
            fs::remove_file(source.join("two")).unwrap();
            fs::hard_link(source.join("one"), source.join("two")).unwrap();
        }
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
        for name in ["long", "short", "same", "one", "two", "kept"] {
            let file = fs::File::options().append(true).open(source.join(name)).unwrap();
            file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
        }
    };
    make("1", 0o4755);
    let to = world.at("/d");
    let words = ["import", "--appear", "whole", "--verify", source.to_str().unwrap(), &to];
    left_under_the_hidden_name(&world, &source, &words);
    make("2", 0o640);
    let done = world.json(&words).remove(0);
    // What agrees in everything is not sent again: the directory itself is not counted.
    assert_eq!((&done["imported"], &done["unchanged"]), (&5.into(), &1.into()), "{done}");
    let copy = world.path().join("copy");
    world.ok(&["export", &world.at("/d"), copy.to_str().unwrap()]);
    crate::import::assert_same(&source, &copy);
    assert_eq!(fs::metadata(copy.join("same")).unwrap().mode() & 0o7777, 0o640);
    world.ok(&["fsck", world.vol()]);
}

/// A file of the source cannot be read: the rest gets its name only if that is requested.
#[test]
fn a_directory_with_an_unreadable_file_is_not_shown() {
    if !is_root() {
        return;
    }
    let world = World::new();
    let nobody = Nobody::new(&world);
    let source = world.source();
    fs::write(source.join("secret"), "text").unwrap();
    fs::set_permissions(source.join("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    fs::write(source.join("public"), "text").unwrap();
    if !world.mount_with(&["-o", "allow_other"]) {
        return;
    }
    let own = world.below_mount("own");
    fs::create_dir(&own).unwrap();
    chown(&own, Some(NOBODY), Some(NOBODY)).unwrap();
    let (source, to) = (source.to_str().unwrap(), own.join("d"));
    let words = ["import", "--appear", "whole", source, to.to_str().unwrap()];
    let refused = nobody.run(&words);
    for part in ["secret", "nothing is visible", "--keep-going"] {
        assert!(refused.code != 0 && refused.err.contains(part), "{part}: {refused:?}");
    }
    assert_eq!(world.names("/own"), [".pando-import.d"]);
    let rest = nobody.run(&[&words[..], &["--keep-going"]].concat());
    assert_eq!((rest.code, world.names("/own")), (refused.code, vec!["d".into()]), "{rest:?}");
    assert_eq!(world.names("/own/d"), ["public"]);
}
