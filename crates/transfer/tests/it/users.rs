//! Streams of users other than root.

use fs::{Engine, FileSystem};
use inode::SetAttr;
use transfer::{Error, ReceiveOptions, SendOptions};

use crate::world::{World, root, user};

#[test]
fn a_user_sends_what_the_user_may_read_and_owns_what_is_received() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Btree, 2));
    let me = user(7);
    world.mkdir_as(&me, "/top", 0o755);
    world.file_as(&me, "/top/f", b"mine");
    world.mkdir_as(&me, "/top/d", 0o755);
    world.file_as(&me, "/top/d/g", b"mine");
    let first = world.snapshot("/top", "first");
    let stream = world.try_stream(&me, None, first.root, &SendOptions::default()).unwrap();
    other.receive_as(&me, "got", &stream, ReceiveOptions::default()).expect("a user");
    // A directory that the user may not write for now.
    let closed = SetAttr { mode: Some(0o555), ..SetAttr::default() };
    other.fs.setattr(&me, other.at("/got/d"), &closed).unwrap();
    world.rename("/top/d/g", "/top/d/h");
    world.file_as(&me, "/top/d/i", b"more");
    let second = world.snapshot("/top", "second");
    let base = Some(first.root);
    let stream = world.try_stream(&me, base, second.root, &SendOptions::default()).unwrap();
    let options = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    other.receive_as(&me, "got", &stream, options).expect("an increment");
    for path in ["/got", "/got/f", "/got/d", "/got/d/h", "/got/d/i"] {
        assert_eq!(other.find(path).expect(path).attr.uid, 7, "{path}");
    }
    assert!(other.find("/got/d/g").is_none());
}

#[test]
fn what_a_user_may_not_read_is_not_left_out() {
    let world = World::new(Engine::Btree, 1);
    let me = user(7);
    world.mkdir("/top");
    world.file("/top/open", b"open");
    let before = world.snapshot("/top", "before");
    let secret = world.file("/top/secret", b"secret");
    let closed = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.fs.setattr(&root(), secret, &closed).unwrap();
    let file = world.snapshot("/top", "file");
    world.fs.unlink(&root(), world.at("/top"), b"secret").unwrap();
    let directory = world.mkdir("/top/d");
    world.file("/top/d/f", b"f");
    let opened = world.snapshot("/top", "opened");
    let closed = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    world.fs.setattr(&root(), directory, &closed).unwrap();
    let now = world.snapshot("/top", "closed");
    let options = SendOptions::default();
    world.try_stream(&me, None, before.root, &options).expect("all may read that");
    for (base, snapshot) in [
        (None, file.root),
        (Some(before.root), file.root),
        (None, now.root),
        (Some(before.root), now.root),
        // It did not vanish: it was closed.
        (Some(opened.root), now.root),
    ] {
        let refused = world.try_stream(&me, base, snapshot, &options);
        assert!(matches!(refused, Err(Error::At { .. } | Error::Fs(_))), "{refused:?}");
    }
}

#[test]
fn a_user_changes_no_file_of_another_in_an_increment() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Btree, 2));
    let me = user(7);
    world.mkdir_as(&me, "/top", 0o777);
    let theirs = world.file("/top/theirs", b"theirs");
    let first = world.snapshot("/top", "first");
    // As root, so that the file stays another's there.
    other.receive("got", &world.stream(None, first.root)).expect("root");
    world.fs.write(&root(), theirs, 0, b"forged").unwrap();
    let second = world.snapshot("/top", "second");
    let stream = world.stream(Some(first.root), second.root);
    let refused = other.receive_as(&me, "got", &stream, ReceiveOptions::default());
    let error = refused.expect_err("another's file").to_string();
    assert!(error.contains("only the owner"), "{error}");
    assert_eq!(other.names(), ["got"]);
}
