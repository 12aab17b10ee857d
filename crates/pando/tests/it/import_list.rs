//! Lists of names are imported with their attributes, and with contents from a directory; what is
//! wrong in them is named by its line.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::export::odd;
use crate::import::{assert_same, sample};
use crate::world::{World, answer, engines};

/// The format that `pando import --help` names.
const PRINTF: &str = r"%y %#m %U %G %s %T@ %A@ %n %D:%i %P\0%l\0";

/// The attributes of a tree, sorted by path, without what a copy cannot have.
fn attributes(world: &World, inner: &str) -> Vec<Value> {
    let root = world.at(inner);
    let mut all = world.json(&["find", &root]);
    for one in &mut all {
        let path = one["path"].as_str().unwrap()[root.len()..].to_owned();
        let object = one.as_object_mut().unwrap();
        for field in ["inode", "blocks", "ctime", "btime", "path_hex", "atime"] {
            object.remove(field);
        }
        object.insert("path".into(), path.into());
    }
    all.sort_by_key(|one| one["path"].as_str().map(str::to_owned));
    all
}

#[test]
fn a_tree_is_copied_by_its_list() {
    for engine in engines("btree") {
        let world = World::on(engine);
        let source = world.source();
        sample(&source);
        odd(&source);
        world.ok(&["import", source.to_str().unwrap(), &world.at("/s")]);
        let list = Command::new(crate::world::PANDO)
            .args(["find", "--json", &world.at("/s")])
            .output()
            .unwrap();
        let path = world.path().join("list");
        fs::write(&path, list.stdout).unwrap();
        let strip = world.at("/s");
        let words = ["--format", "list", "--strip", &strip, path.to_str().unwrap()];
        let to = world.at("/copy");
        let arguments = [&["import"][..], &words, &[&to]].concat();
        let done = world.json(&arguments);
        assert_eq!(done[0]["failed"], 0, "{done:?}");
        assert_eq!(attributes(&world, "/s"), attributes(&world, "/copy"));
        // The same again is there already.
        let again = world.json(&arguments);
        assert_eq!(again[0]["bytes"], 0, "{again:?}");
        assert!(again[0]["unchanged"].as_u64() >= Some(15), "{again:?}");
        assert_eq!(attributes(&world, "/s"), attributes(&world, "/copy"));
    }
}

#[test]
fn what_find_prints_is_imported_with_contents() {
    let world = World::new();
    let source = world.source();
    sample(&source);
    fs::write(source.join(" begins with a space"), vec![b'x'; 300_000]).unwrap();
    for path in ["small", "d/big"] {
        rustix::fs::removexattr(source.join(path), "user.kind").unwrap_or_default();
    }
    let mut find = Command::new("find");
    find.arg(&source).args(["-printf", PRINTF]);
    let mut find = find.stdout(Stdio::piped()).spawn().unwrap();
    let to = world.at("/copy");
    let contents = source.to_str().unwrap();
    let words = ["import", "--format", "list", "--contents", contents, "-", &to];
    let done = World::command(&words).stdin(find.stdout.take().unwrap()).output().unwrap();
    assert!(find.wait().unwrap().success());
    assert_eq!(answer(&done).code, 0, "{:?}", answer(&done));
    let copy = world.path().join("copy");
    world.ok(&["export", &to, copy.to_str().unwrap()]);
    assert_same(&source, &copy);
    let holes = fs::metadata(copy.join("sparse")).unwrap();
    assert!(std::os::unix::fs::MetadataExt::blocks(&holes) < 4096);
}

fn import(world: &World, list: &str, more: &[&str]) -> crate::world::Answer {
    let path = world.path().join("list");
    fs::write(&path, list).unwrap();
    let to = world.at("/d");
    let words = ["import", "--format", "list", path.to_str().unwrap(), &to];
    world.run(&[&words[..], more].concat())
}

#[test]
fn a_bad_line_is_named_and_the_rest_continues_on_request() {
    let world = World::new();
    let list = r#"{"path":"one","kind":"file","size":5}
{"path":"two","kind":"file","size":"many"}
{"path":"../three","kind":"file"}

{"path":"dir/four","kind":"symlink","target":"../one"}
nonsense
{"path":"five","kind":"whale"}
"#;
    let refused = import(&world, list, &[]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.err.contains("line 2 of the list"), "{refused:?}");
    assert!(!world.names("/").contains(&"d".to_owned()));
    let rest = import(&world, list, &["--keep-going"]);
    assert_eq!(rest.code, 2, "{rest:?}");
    for line in [2, 3, 6, 7] {
        assert!(rest.err.contains(&format!("line {line} of the list")), "{line}: {rest:?}");
    }
    assert!(rest.err.contains("4 names were not imported"), "{rest:?}");
    assert_eq!(world.names("/d"), ["dir", "one"]);
    assert_eq!(world.names("/d/dir"), ["four"]);
    // The first line, too, and without a trace.
    let world = World::new();
    let refused = import(&world, "no list", &[]);
    assert_eq!((refused.code, world.names("/")), (2, Vec::new()), "{refused:?}");
    // Nothing of it is an entry, so nothing is left out on request either.
    for (list, line, found) in [
        ("\n\nname,size,mode\n", 3, "`name,size,mode`"),
        ("[{\"path\":\"a\",\"kind\":\"file\"}]", 1, "`[{\\\"path\\\":"),
        ("./a\n./b\n", 1, "`./a`"),
        ("f", 1, "`f`"),
    ] {
        for more in [&[][..], &["--keep-going"]] {
            let refused = import(&world, list, more);
            assert_eq!((refused.code, world.names("/")), (2, Vec::new()), "{refused:?}");
            let named = format!("line {line} of the list: it is not in a known format");
            assert!(refused.err.contains(&named), "{refused:?}");
            for format in [found, "pando find --json", PRINTF, "rsync -rl --list-only"] {
                assert!(refused.err.contains(format), "{format}: {refused:?}");
            }
        }
    }
    let refused = import(&world, "", &["--numeric-owner"]);
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[test]
fn contents_come_from_below_the_directory_and_have_the_length_of_the_list() {
    let world = World::new();
    let source = world.path().join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("sub/good"), "good").unwrap();
    fs::write(source.join("longer"), "longer").unwrap();
    fs::write(world.path().join("secret"), "secret").unwrap();
    std::os::unix::fs::symlink(world.path(), source.join("out")).unwrap();
    std::os::unix::fs::symlink("sub/good", source.join("link")).unwrap();
    let list = r#"{"path":"sub/good","kind":"file","size":4}
{"path":"longer","kind":"file","size":4}
{"path":"out/secret","kind":"file","size":6}
{"path":"link","kind":"file","size":4}
{"path":"none","kind":"file","size":4}
"#;
    let more = ["--keep-going", "--contents", source.to_str().unwrap()];
    let reported = import(&world, list, &more);
    assert_ne!(reported.code, 0, "{reported:?}");
    for left_out in ["longer", "out/secret", "link", "none"] {
        assert!(reported.err.contains(left_out), "{left_out}: {reported:?}");
    }
    assert_eq!(world.names("/d"), ["out", "sub"]);
    assert_eq!(world.names("/d/out"), Vec::<String>::new());
    assert_eq!(world.ok(&["cat", &world.at("/d/sub/good")]), "good");
    let none = import(&world, list, &["--contents", "/no such directory"]);
    assert_eq!(none.code, 3, "{none:?}");
    assert!(Path::new(world.mnt()).exists());
}

/// What rsync prints is a list, with contents from the directory; what it does not determine is
/// named by its line.
#[test]
fn a_list_of_rsync_is_imported() {
    let world = World::on("btree");
    let source = world.path().join("source");
    fs::create_dir_all(source.join("dir/below")).unwrap();
    fs::write(source.join("file"), b"contents").unwrap();
    fs::write(source.join("dir/a -> b"), vec![7; 1_234_567]).unwrap();
    fs::write(source.join("dir/line\nend"), b"1").unwrap();
    fs::write(source.join("back\\#012"), b"2").unwrap();
    std::os::unix::fs::symlink("../to it", source.join("dir/link")).unwrap();
    let listed = Command::new("rsync").args(["-rl", "--list-only"]).arg(source.join("")).output();
    let Ok(listed) = listed else {
        eprintln!("NOT TESTED: rsync, which is not installed");
        return;
    };
    assert!(listed.status.success());
    let list = world.path().join("list");
    fs::write(&list, &listed.stdout).unwrap();
    let (list, contents) = (list.to_str().unwrap(), source.to_str().unwrap());
    let to = world.at("/copy");
    let words = ["import", "--format", "list", "--contents", contents, list, &to];
    let done = world.json(&words);
    assert_eq!(done[0]["failed"], 0, "{done:?}");
    assert_eq!(world.ok(&["cat", &world.at("/copy/dir/a -> b")]).len(), 1_234_567);
    assert_eq!(world.names("/copy"), ["back\\#012", "dir", "file"]);
    // Times are whole seconds of the local time zone.
    let read = |path: &str| world.json(&["stat", &world.at(path)])[0].clone();
    use std::os::unix::fs::MetadataExt;
    let own = fs::metadata(source.join("file")).unwrap();
    let mtime = read("/copy/file")["mtime"].as_str().unwrap().to_owned();
    let mtime: jiff::Timestamp = mtime.parse().unwrap();
    assert_eq!(mtime.as_second(), own.mtime());
    assert_eq!(read("/copy/dir/link")["target"], "../to it");
    // A list without links' targets, and a line of another program.
    let text = String::from_utf8(listed.stdout).unwrap();
    let bad = text.replace(" -> ../to it", "") + "sent 20 bytes  received 20 bytes\n";
    fs::write(list, &bad).unwrap();
    let again = world.at("/again");
    let refused = world.fails(2, &["import", "--format", "list", list, &again]);
    let number = bad.lines().position(|line| line.ends_with("dir/link")).unwrap() + 1;
    assert!(refused.contains(&format!("line {number} of the list: a link without")), "{refused}");
    let rest = world.run(&["import", "--format", "list", "--keep-going", list, &again]);
    assert_eq!(rest.code, 2, "{}", rest.err);
    let last = bad.lines().count();
    assert!(rest.err.contains(&format!("line {last} of the list: no type")), "{}", rest.err);
    assert!(!world.names("/again/dir").contains(&"link".to_owned()));
    assert!(world.names("/again/dir").contains(&"a -> b".to_owned()));
}

/// A set-id bit is of an owner: where a list has none, the file would be root's.
#[test]
fn set_id_bits_come_with_owners_only() {
    let world = World::on("btree");
    let modes = |list: &str, to: &str| {
        let path = world.path().join("list");
        fs::write(&path, list).unwrap();
        let to = world.at(to);
        world.ok(&["import", "--format", "list", path.to_str().unwrap(), &to]);
        let stat = |name: &str| world.json(&["stat", &format!("{to}/{name}")])[0].clone();
        ["a", "b", "c", "d"].map(|name| {
            let mode = stat(name)["mode"].as_str().unwrap().to_owned();
            u32::from_str_radix(&mode, 8).unwrap()
        })
    };
    let rsync = "-rwsr-sr-x 7 2026/11/29 15:45:43 a\n-rwsr-xr-x 7 2026/11/29 15:45:43 b\n\
                 -rwxr-sr-x 7 2026/11/29 15:45:43 c\ndrwxrwsrwt 7 2026/11/29 15:45:43 d\n";
    assert_eq!(modes(rsync, "/rsync"), [0o755, 0o755, 0o755, 0o1777]);
    let json = r#"{"path":"a","kind":"file","mode":"6755"}
{"path":"b","kind":"file","mode":"6755","uid":7}
{"path":"c","kind":"file","mode":"6755","gid":7}
{"path":"d","kind":"file","mode":"6755","uid":7,"gid":7}
"#;
    let kept = if rustix::process::geteuid().is_root() {
        [0o755, 0o4755, 0o2755, 0o6755]
    } else {
        [0o755; 4]
    };
    assert_eq!(modes(json, "/json"), kept);
}

/// What does not fit into a message is named, and the rest is imported.
#[test]
fn what_is_too_long_is_left_out() {
    let world = World::on("btree");
    let mut list = format!("{{\"path\":\"{}\",\"kind\":\"file\"}}\n", "n".repeat(900_000));
    // They wait to be sent with the next line.
    for link in 0..60 {
        let target = "t".repeat(4000);
        let name = format!("{link:02}");
        list +=
            &[r#"{"path":""#, &name, r#"","kind":"symlink","target":""#, &target, "\"}\n"].concat();
    }
    let target = "t".repeat(1_000_000);
    list += &[r#"{"path":"long","kind":"symlink","target":""#, &target, "\"}\n"].concat();
    list += "{\"path\":\"zz\",\"kind\":\"file\"}\n";
    let path = world.path().join("list");
    fs::write(&path, list).unwrap();
    let to = world.at("/new");
    let words = ["import", "--format", "list", "--keep-going", path.to_str().unwrap(), &to];
    let done = world.run(&words);
    assert_eq!(done.code, 2, "{}", done.err.len());
    let ends = done.err.lines().filter(|line| line.len() < 1000).collect::<Vec<_>>();
    assert!(done.err.contains("line 1 of the list"), "{ends:?}");
    assert!(done.err.contains("exceed 256 KiB"), "{ends:?}");
    let names = world.names("/new");
    assert_eq!((names.len(), names.last().map(String::as_str)), (61, Some("zz")));
}
