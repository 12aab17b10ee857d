//! Dumps: loaded and dumped again they are equal; bad lines leave nothing.

use std::sync::atomic::AtomicBool;

use fs::{Engine, FileSystem};
use inode::NodeId;
use transfer::{Error, Loader, ReceiveOptions, dump};

use crate::listing::{assert_equal, list};
use crate::random::history;
use crate::world::{World, root, user};

pub(crate) fn dumped(world: &World, directory: NodeId, memory: usize) -> Result<String, Error> {
    let (cancel, mut text) = (AtomicBool::new(false), Vec::new());
    let mut emit = |part: &[u8]| {
        text.extend_from_slice(part);
        true
    };
    dump(&world.fs, &root(), directory, memory, (&cancel, &mut emit))?;
    Ok(String::from_utf8(text).expect("lines are text"))
}

/// The stream of a dump.
fn loaded(text: &str) -> Result<Vec<u8>, Error> {
    loaded_within(text, 1 << 20)
}

fn loaded_within(text: &str, memory: usize) -> Result<Vec<u8>, Error> {
    let (mut loader, mut stream) = (Loader::new(memory), Vec::new());
    for line in text.lines() {
        loader.line(line.as_bytes(), b"loaded", &mut stream)?;
    }
    if loader.is_complete() { Ok(stream) } else { Err(Error::Cut) }
}

#[test]
fn a_dump_that_was_loaded_is_dumped_again_with_equal_bytes() {
    for seed in 0..12 {
        println!("seed {seed}");
        let (from, to) =
            if seed % 2 == 0 { (Engine::Btree, Engine::Lsm) } else { (Engine::Lsm, Engine::Btree) };
        let (world, other) = (World::new(from, seed), World::new(to, seed + 1000));
        history(&world, seed);
        let taken = world.snapshot("/top", "taken");
        let text = dumped(&world, taken.root, 1 << 20).expect("a dump");
        let received = other.receive("top", &loaded(&text).expect("a stream")).expect("a load");
        let again = dumped(&other, received.snapshot.root, 1 << 20).expect("a dump");
        assert_eq!(text, again, "seed {seed}");
        let mut expected = list(&world.fs, taken.root);
        let mut found = list(&other.fs, received.snapshot.root);
        for node in expected.values_mut().chain(found.values_mut()) {
            node.forget_contents();
        }
        assert_equal("all but contents", &expected, &found);
    }
}

#[test]
fn bad_lines_are_named_and_leave_nothing() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Btree, 2));
    world.mkdir("/top");
    world.file("/top/f", b"f");
    let taken = world.snapshot("/top", "taken");
    let text = dumped(&world, taken.root, 1 << 20).expect("a dump");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    let bad = [
        (lines[2].replace("\"f\"", "\"../f\""), "."),
        (lines[2].replace("\"file\"", "\"pipe\""), "line 3 of the dump: an unknown kind"),
        (lines[2].replace("\"mode\":\"0644\"", "\"mode\":\"9\""), "octal"),
        (lines[2].replace("\"uid\"", "\"you\""), "unknown field"),
        (lines[2].replace("\"path\":\"f\"", "\"path\":\"\""), "comes first"),
        ("{\"lines\":7}".to_owned(), "7 lines were dumped"),
        (String::new(), "EOF"),
    ];
    for (line, part) in bad {
        let text = [lines[0], lines[1], &line, lines[3]].join("\n");
        let done = loaded(&text).and_then(|stream| other.receive("got", &stream).map(drop));
        let error = done.expect_err("a bad line").to_string();
        assert!(error.contains(part), "{line}: {error}");
        assert!(other.names().is_empty(), "{line}");
    }
    let cut = loaded(&lines[..3].join("\n"));
    assert!(matches!(cut, Err(Error::Cut)), "{cut:?}");
    let refused = dumped(&world, taken.root, 10);
    assert!(matches!(refused, Err(Error::Memory { .. })), "{refused:?}");
    // A user loads what a user may make.
    let stream = loaded(&text).expect("a stream");
    other.receive_as(&user(7), "got", &stream, ReceiveOptions::default()).expect("a user");
    let attr = other.fs.getattr(&root(), other.at("/got/f")).unwrap();
    assert_eq!((attr.uid, attr.size), (7, 1));
}

/// A load keeps the attributes of the directories above the current line, and nothing else.
#[test]
fn a_load_keeps_within_its_memory() {
    let world = World::new(Engine::Lsm, 3);
    world.mkdir("/top");
    let mut path = "/top".to_owned();
    for depth in 0..40 {
        path = format!("{path}/d{depth}");
        world.mkdir(&path);
    }
    for file in 0..400 {
        world.file(&format!("/top/f{file}"), b"f");
    }
    let taken = world.snapshot("/top", "taken");
    let text = dumped(&world, taken.root, 1 << 20).expect("a dump");
    let fits = |memory| loaded_within(&text, memory).is_ok();
    let least = (1..16 << 10).find(|memory| fits(*memory)).expect("16 KiB suffice");
    assert!((40 * 64..16 << 10).contains(&least), "{least}");
    assert!(fits(least + 1));
    let refused = loaded_within(&text, least - 1).expect_err("a byte less").to_string();
    assert!(refused.contains("--memory") && refused.contains("line"), "{refused}");
}
