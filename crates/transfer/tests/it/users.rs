//! Streams of users other than root.

use fs::{Engine, FileSystem};
use inode::{Caller, FsError, SetAttr};
use transfer::{Error, ReceiveOptions, Receiver, SendOptions};

use crate::listing::{assert_equal, list};
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

/// A quota stops a stream; when there is more space, the rest is received.
#[test]
fn a_quota_is_obeyed_and_the_stream_continues_when_it_is_raised() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Lsm, 2));
    world.mkdir("/top");
    for at in 0..20 {
        world.file(&format!("/top/{at}"), &[1; 10_000]);
    }
    let taken = world.snapshot("/top", "taken");
    let whole = world.stream(None, taken.root);
    let parent = other.mkdir_as(&root(), "/limited", 0o777);
    let limits = |bytes| fs::QuotaLimits { inodes: None, bytes: Some(bytes) };
    other.fs.quota_set(&root(), parent, limits(100_000)).unwrap();
    let receive = |caller: &Caller, stream: &[u8]| {
        let options = ReceiveOptions::default();
        let mut receiver = Receiver::new(&other.fs, caller, (parent, b"got"), options);
        match receiver.feed(stream) {
            Ok(()) => receiver.finish().map_err(|error| (Box::new(error), None)),
            Err(error) => {
                let suspended = receiver.give_up(Some(&error));
                Err((Box::new(error), suspended))
            }
        }
    };
    for caller in [root(), user(7)] {
        let (error, suspended) = receive(&caller, &whole).expect_err("the quota is less");
        let is_quota = matches!(&*error, Error::At { error: FsError::QuotaExceeded, .. });
        assert!(is_quota, "{error:?}");
        let token = suspended.expect("it continues").token;
        assert!(other.find("/limited/got").is_none());
        if caller.is_root() {
            other.fs.quota_set(&root(), parent, limits(300_000)).unwrap();
            let options = SendOptions { token: Some(token), ..SendOptions::default() };
            let rest = world.try_stream(&root(), None, taken.root, &options).unwrap();
            receive(&caller, &rest).expect("there is space");
            let expected = list(&world.fs, taken.root);
            let mut found = list(&other.fs, other.at("/limited/got"));
            found.insert(Vec::new(), expected[&Vec::new()].clone());
            assert_equal("after the quota", &expected, &found);
            other.fs.rmr(&root(), parent, b"got").unwrap();
            other.fs.quota_set(&root(), parent, limits(100_000)).unwrap();
        }
    }
}
