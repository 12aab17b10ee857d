//! Bulk operations that end early, or whose source is damaged. They leave nothing, or what the same
//! command continues, and name what is damaged.

use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::process::{Child, Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::import_tar::{archive, file, import, imported, text};
use crate::world::{World, answer, signal, wait_until};

on_one_engine!("lsm": a_damaged_file_is_named_and_the_rest_is_exported);

/// A command with the directories of hosts of a world.
fn command(world: &World, words: &[&str]) -> Command {
    let mut command = World::command(words);
    command.env("PANDO_HOST_DIRECTORY", world.hosts());
    command
}

/// A volume with a file whose contents are damaged, and one beside it.
fn damaged(engine: &str) -> World {
    let world = World::on(engine);
    let source = world.source();
    fs::write(source.join("broken"), vec![5; 300_000]).unwrap();
    fs::write(source.join("whole"), vec![6; 300_000]).unwrap();
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    world.ok(&["snapshot", "create", &world.at("/d"), "one"]);
    world.close();
    let directories = ["data/open", "data/sealed"].map(|name| world.volume.join(name));
    let segments = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten();
    let mut changed = 0;
    for path in segments.map(|entry| entry.unwrap().path()) {
        let bytes = fs::read(&path).unwrap();
        let page = bytes.chunks(4096).position(|page| page == [5; 4096]);
        let Some(page) = page else { continue };
        let file = fs::File::options().write(true).open(&path).unwrap();
        file.write_all_at(&[9], page as u64 * 4096 + 100_000).unwrap();
        changed += 1;
    }
    assert_eq!(changed, 1);
    world
}

fn a_damaged_file_is_named_and_the_rest_is_exported(engine: &str) {
    let world = damaged(engine);
    let copy = world.path().join("copy");
    let to = copy.to_str().unwrap();
    let exported = world.run(&["export", &world.at("/d@one"), to]);
    assert_eq!(exported.code, 5, "{}", exported.err);
    assert!(exported.err.contains("broken"), "{}", exported.err);
    assert_eq!(fs::read(copy.join("whole")).unwrap(), vec![6; 300_000]);
    let packed = world.path().join("copy.tar");
    let to = packed.to_str().unwrap();
    let exported = world.run(&["export", "--format", "tar", &world.at("/d@one"), to]);
    assert_eq!(exported.code, 5, "{}", exported.err);
    assert!(exported.err.contains("broken"), "{}", exported.err);
    let listed = Command::new("tar").args(["-tf", to]).output().unwrap();
    let names = String::from_utf8(listed.stdout).unwrap();
    assert!(names.contains("./whole"), "{names}");
    // A stream has all of it or no end.
    let other = World::on("btree");
    let mut send = command(&world, &["send", &world.at("/d@one")]);
    let mut send = send.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut receive = command(&other, &["receive", &other.at("/d")]);
    let received = receive.stdin(send.stdout.take().unwrap()).output().unwrap();
    let sent = answer(&send.wait_with_output().unwrap());
    assert_eq!(sent.code, 5, "{}", sent.err);
    assert!(sent.err.contains("broken"), "{}", sent.err);
    assert_ne!(answer(&received).code, 0);
    other.fails(3, &["stat", &other.at("/d")]);
}

/// A large input to a command that reads it from a pipe, of which half was written.
fn half_done(words: &[&str], bytes: &[u8], begun: impl FnMut() -> bool) -> Child {
    let mut command = World::command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(&bytes[..bytes.len() / 2]).unwrap();
    wait_until("it is half done", begun);
    child
}

/// Ends a command by a signal; its input stays open until then.
fn ended(mut child: Child, by: rustix::process::Signal) {
    signal(i32::try_from(child.id()).unwrap(), by);
    if by == rustix::process::Signal::INT {
        drop(child.stdin.take());
        assert_eq!(child.wait().unwrap().code(), Some(130));
    }
    child.wait().unwrap();
}

#[test]
fn a_list_that_is_ended_continues() {
    use rustix::process::Signal;
    let mut list = String::new();
    for file in 0..20_000 {
        let path = format!("d{}/f{file}", file / 1000);
        writeln!(list, "{{\"path\":\"{path}\",\"kind\":\"f\",\"mtime\":5}}").unwrap();
    }
    for (engine, by) in [("btree", Signal::KILL), ("lsm", Signal::INT)] {
        let world = World::on(engine);
        let to = world.at("/d");
        let words = ["import", "--format", "list", "-", &to];
        let child = half_done(&words, list.as_bytes(), || {
            let listed = world.run(&["ls", "-a", &world.at("/.pando-import.d")]);
            listed.out.lines().count() > 5
        });
        ended(child, by);
        assert_eq!(world.names("/"), [".pando-import.d"]);
        let path = world.path().join("list");
        fs::write(&path, &list).unwrap();
        let done = world.json(&["import", "--format", "list", path.to_str().unwrap(), &to]);
        assert_eq!(done[0]["failed"], 0, "{done:?}");
        assert!(done[0]["unchanged"].as_u64() > Some(1000), "{done:?}");
        assert_eq!(world.names("/"), ["d"]);
        assert_eq!(world.names("/d/d19").len(), 1000);
        world.close();
        world.ok(&["fsck", world.vol()]);
    }
}

#[test]
fn a_load_that_is_ended_leaves_nothing() {
    use rustix::process::Signal;
    let world = World::on("btree");
    let source = world.source();
    for file in 0..5000 {
        fs::write(source.join(format!("a file of a longer name {file}")), b"").unwrap();
    }
    world.ok(&["import", source.to_str().unwrap(), &world.at("/d")]);
    let dump = world.ok(&["dump", &world.at("/d")]);
    let path = world.path().join("dump");
    fs::write(&path, &dump).unwrap();
    let other = World::on("lsm");
    let to = other.at("/d");
    for by in [Signal::KILL, Signal::INT] {
        let child = half_done(&["load", &to], dump.as_bytes(), || {
            other.run(&["ls", "-a", &other.at("/")]).out.contains(".pando-receive")
        });
        // A second one at the same time would use its stage.
        let mut second = World::command(&["load", &to]);
        let second = answer(
            &second.stdin(fs::File::options().read(true).open(&path).unwrap()).output().unwrap(),
        );
        assert!(second.code == 6 && second.err.contains("under way"), "{second:?}");
        // The next one begins at once, though the daemon may not have noticed the end of this.
        signal(i32::try_from(child.id()).unwrap(), by);
        let mut child = child;
        drop(child.stdin.take());
        assert!(!child.wait().unwrap().success());
        other.fails(3, &["stat", &to]);
    }
    let mut load = World::command(&["load", &to]);
    let mut load = load.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    load.stdin.take().unwrap().write_all(dump.as_bytes()).unwrap();
    assert!(load.wait().unwrap().success());
    assert_eq!(other.ok(&["dump", &other.at("/d@loaded")]), dump);
    assert_eq!(other.names("/"), ["d"]);
    other.close();
    other.ok(&["fsck", other.vol()]);
}

/// Several members of gzip are one archive, and so are frames of zstd; a wrong checksum is found
/// although the archive inside is whole.
#[test]
fn an_archive_of_several_compressed_parts_and_a_wrong_checksum() {
    let world = World::on("btree");
    let plain = fs::read(archive(&world, &[file("a", "first"), file("b", "second")])).unwrap();
    let gzip = |bytes: &[u8]| {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    let path = world.path().join("packed");
    for (to, parts) in [
        ("/gzip", [gzip(&plain[..700]), gzip(&plain[700..])]),
        ("/zstd", [zstd(&plain[..700]), zstd(&plain[700..])]),
    ] {
        fs::write(&path, parts.concat()).unwrap();
        imported(&world, &path, to, &[]);
        assert_eq!(text(&world, &format!("{to}/b")), "second");
    }
    let mut wrong = gzip(&plain);
    let at = wrong.len() - 8;
    wrong[at] ^= 1;
    fs::write(&path, wrong).unwrap();
    let refused = import(&world, &path, "/wrong", &[]);
    assert_ne!(refused.code, 0, "{refused:?}");
    assert!(refused.err.contains("cannot read the archive"), "{refused:?}");
    world.fails(3, &["stat", &world.at("/wrong")]);
}

/// A header with records of pax.
fn records(kind: u8, records: &[(&str, &str)]) -> Vec<u8> {
    let mut text = String::new();
    for (key, value) in records {
        let rest = format!(" {key}={value}\n");
        let length =
            (1..1000).find(|length: &usize| length.to_string().len() + rest.len() == *length);
        write!(text, "{}{rest}", length.unwrap()).unwrap();
    }
    let mut out = file("header", &text);
    out[156] = kind;
    out[148..156].fill(b' ');
    let sum: u32 = out[..512].iter().map(|&byte| u32::from(byte)).sum();
    out[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out
}

#[test]
fn a_second_global_header_holds_from_the_next_member_on() {
    let world = World::on("btree");
    let members = [
        records(b'g', &[("mtime", "100")]),
        file("a", "a"),
        records(b'g', &[("mtime", "200")]),
        file("b", "b"),
        // A member's own record has precedence, whatever the order.
        records(b'x', &[("mtime", "300")]),
        records(b'g', &[("mtime", "400")]),
        file("c", "c"),
        file("d", "d"),
        records(b'g', &[("mtime", "")]),
        file("e", "e"),
    ];
    imported(&world, &archive(&world, &members), "/d", &[]);
    let seconds = |name: &str| {
        let stat = world.json(&["stat", &world.at(&format!("/d/{name}"))]).remove(0);
        let time: jiff::Timestamp = stat["mtime"].as_str().unwrap().parse().unwrap();
        time.as_second()
    };
    let own = i64::from_str_radix("7000000000", 8).unwrap();
    let read: Vec<i64> = ["a", "b", "c", "d", "e"].iter().map(|name| seconds(name)).collect();
    assert_eq!(read, [100, 200, 300, 400, own]);
}

/// From a disk to an object store, and an increment back.
#[test]
fn a_directory_moves_to_an_object_store_and_back() {
    let (disk, store) = (World::on("btree"), World::in_store());
    let source = disk.source();
    fs::write(source.join("file"), vec![1; 400_000]).unwrap();
    disk.ok(&["import", source.to_str().unwrap(), &disk.at("/d")]);
    disk.ok(&["snapshot", "create", &disk.at("/d"), "one"]);
    let moved = |from: &World, words: &[&str], to: &World, path: &str| {
        let mut send = command(from, &[&["send"][..], words].concat());
        let mut send = send.stdout(Stdio::piped()).spawn().unwrap();
        let mut receive = command(to, &["receive", &to.at(path)]);
        let received = receive.stdin(send.stdout.take().unwrap()).output().unwrap();
        assert!(send.wait().unwrap().success());
        assert_eq!(answer(&received).code, 0, "{}", answer(&received).err);
    };
    moved(&disk, &[&disk.at("/d@one")], &store, "/d");
    fs::write(source.join("more"), b"written in the store").unwrap();
    let more = store.at("/d/more");
    store.ok(&["import", source.join("more").to_str().unwrap(), &more]);
    store.ok(&["snapshot", "create", &store.at("/d"), "two"]);
    moved(&store, &["--from", &store.at("/d@one"), &store.at("/d@two")], &disk, "/d");
    assert_eq!(disk.ok(&["cat", &disk.at("/d/more")]), "written in the store");
    assert_eq!(disk.ok(&["dump", &disk.at("/d@two")]), store.ok(&["dump", &store.at("/d@two")]));
}
