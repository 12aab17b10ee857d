//! Streams that were cut continue at any record, also after a crash, with the same result.

use format::stream::{Head, Record, preamble};
use fs::{Engine, FileSystem, Fs, OpenOptions};
use inode::{FsError, NodeId, SetAttr};
use testing::SimEnv;
use transfer::{Error, ReceiveOptions, Receiver, SendOptions, Token};

use crate::listing::{assert_equal, list};
use crate::world::{World, root, user};

/// A directory with something of each kind, and a second state of it.
fn source() -> (World, NodeId, NodeId) {
    source_on(Engine::Btree)
}

fn source_on(engine: Engine) -> (World, NodeId, NodeId) {
    let world = World::new(engine, 1);
    world.mkdir("/top");
    world.mkdir("/top/d");
    let linked = world.file("/top/d/f", &vec![5; 400_000]);
    world.fs.link(&root(), linked, world.at("/top"), b"g").unwrap();
    world.file("/top/d/small", b"small");
    world.mkdir("/top/gone");
    world.file("/top/gone/x", b"x");
    let before = world.snapshot("/top", "before");
    world.rename("/top/d", "/top/e");
    world.fs.rmr(&root(), world.at("/top"), b"gone").unwrap();
    world.fs.write(&root(), linked, 300_000, &vec![6; 300_000]).unwrap();
    world.fs.link(&root(), linked, world.at("/top/e"), b"more").unwrap();
    world.file("/top/gone", b"a file");
    let now = world.snapshot("/top", "now");
    (world, before.root, now.root)
}

/// Applies the start of a stream, and returns the token.
fn cut(fs: &Fs, stream: &[u8]) -> Option<Token> {
    let parent = (NodeId::ROOT, &b"got"[..]);
    let mut receiver = Receiver::new(fs, &root(), parent, ReceiveOptions::default());
    for part in stream.chunks(5000) {
        receiver.feed(part).expect("the start of a stream");
    }
    let token = receiver.give_up(None).map(|suspended| suspended.token);
    assert_eq!(Receiver::token(fs, &root(), parent).expect("the root"), token);
    token
}

#[test]
fn a_complete_stream_that_is_cut_anywhere_continues() {
    let (world, node, _) = source();
    let whole = world.stream(None, node);
    let ends = whole.len() - 1000..whole.len();
    for at in (0..whole.len()).step_by(whole.len() / 60).chain(ends.step_by(7)) {
        let other = World::new(Engine::Btree, 2);
        let mut rest = whole.clone();
        let mut cuts = 0;
        // It is cut again and again.
        while let Some(token) = cut(&other.fs, &rest[..at.min(rest.len() - 1)]) {
            let options = SendOptions { token: Some(token), ..SendOptions::default() };
            rest = world.try_stream(&root(), None, node, &options).expect("the rest");
            cuts += 1;
            if cuts == 3 {
                break;
            }
        }
        let received = other.receive("got", &rest);
        let received = received.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
        let expected = list(&world.fs, node);
        let found = list(&other.fs, received.snapshot.root);
        assert_equal(&format!("cut at {at}"), &expected, &found);
        assert_eq!(other.names(), ["got"], "cut at {at}");
    }
}

/// A third state follows, so that increments continue after one that was cut.
#[test]
fn an_increment_that_is_cut_anywhere_continues() {
    for engine in Engine::ALL {
        let (world, before, now) = source_on(engine);
        let first = world.stream(None, before);
        let whole = world.stream(Some(before), now);
        world.rename("/top/e/f", "/top/f");
        world.file("/top/e/f", b"another");
        let then = world.snapshot("/top", "then").root;
        let next = world.stream(Some(now), then);
        let mut continued = 0;
        // Names go and come at the start.
        for at in (0..1500).step_by(43).chain((1500..whole.len()).step_by(whole.len() / 30)) {
            let other = World::new(engine, 2);
            other.receive("got", &first).expect("the base");
            let mut rest = whole.clone();
            // It is cut again and again.
            for _ in 0..3 {
                let Some(token) = cut(&other.fs, &rest[..at.min(rest.len() - 1)]) else { break };
                assert_eq!(other.names().len(), 2, "the directory of the stage, cut at {at}");
                let options = SendOptions { token: Some(token), ..SendOptions::default() };
                rest = world.try_stream(&root(), Some(before), now, &options).expect("the rest");
                assert!(rest.len() < whole.len(), "cut at {at}");
                continued += 1;
            }
            let received = other.receive("got", &rest);
            let received = received.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
            let what = format!("{engine:?}, cut at {at}");
            assert_equal(&what, &list(&world.fs, now), &list(&other.fs, received.snapshot.root));
            assert_eq!(other.names(), ["got"], "{what}");
            let received = other.receive("got", &next).expect("the next increment");
            assert_equal(&what, &list(&world.fs, then), &list(&other.fs, received.snapshot.root));
        }
        assert!(continued > 100, "{continued}");
    }
}

/// The token of an increment is of its base, and of its first steps.
#[test]
fn the_rest_of_another_increment_is_neither_sent_nor_received() {
    let (world, before, now) = source();
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, before)).expect("the base");
    let whole = world.stream(Some(before), now);
    let token = cut(&other.fs, &whole[..whole.len() / 2]).expect("a token");
    let since = token.since.expect("a base");
    let refused = |base, token, part: &str| {
        let options = SendOptions { token: Some(token), ..SendOptions::default() };
        let error = world.try_stream(&root(), base, now, &options).expect_err("another stream");
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(None, token, "the token is of an increment");
    refused(Some(now), token, "from another base");
    refused(Some(before), Token { since: None, ..token }, "of a complete stream");
    refused(Some(before), Token { applied: 1 << 40, ..token }, "of a longer stream");
    let steps = transfer::Since { steps: since.steps ^ 1, ..since };
    refused(Some(before), Token { since: Some(steps), ..token }, "its first records are different");
    let fewer = Token { applied: token.applied - 1, ..token };
    refused(Some(before), fewer, "its first records are different");
    // Nor is it applied where another part of the stream is, or another base.
    let of = |snapshot| {
        let number = world.fs.snapshot_of_root(snapshot).unwrap().expect("a snapshot");
        world.fs.origins(number).unwrap()
    };
    let rest = |skipped, bases| {
        let head = Head { name: b"now", skipped, origins: of(now), bases, ..Head::default() };
        let mut stream = preamble().to_vec();
        Record::Head(head).encode(&mut stream);
        other.receive("got", &stream).expect_err("a rest").to_string()
    };
    let error = rest(token.applied + 1, of(before));
    assert!(error.contains("continues elsewhere") && error.contains(&token.to_string()), "{error}");
    let error = rest(token.applied, of(now));
    assert!(error.contains("no snapshot of the destination is the base"), "{error}");
    let options = SendOptions { token: Some(token), ..SendOptions::default() };
    let stream = world.try_stream(&root(), Some(before), now, &options).expect("the rest");
    let received = other.receive("got", &stream).expect("it continues");
    assert_equal("the rest", &list(&world.fs, now), &list(&other.fs, received.snapshot.root));
    assert_eq!(other.names(), ["got"]);
    // It was received.
    let error = other.receive("got", &stream).expect_err("once").to_string();
    assert!(error.contains("was received already"), "{error}");
}

/// The power fails after a part of the rest was applied. What is continued is the copy that was
/// kept, and not what the rest has made of the stage.
#[test]
fn an_increment_continues_after_a_crash_from_the_copy_that_was_kept() {
    for engine in Engine::ALL {
        let (world, before, now) = source_on(engine);
        let first = world.stream(None, before);
        let whole = world.stream(Some(before), now);
        let expected = list(&world.fs, now);
        let mut continued = 0;
        // Names go and come at the start.
        for at in (100..1500).step_by(31).chain((1500..whole.len()).step_by(whole.len() / 10)) {
            let other = World::new(engine, 2);
            other.receive("got", &first).expect("the base");
            let Some(token) = cut(&other.fs, &whole[..at]) else { continue };
            continued += 1;
            let options = SendOptions { token: Some(token), ..SendOptions::default() };
            let rest = world.try_stream(&root(), Some(before), now, &options).expect("the rest");
            let parent = (NodeId::ROOT, &b"got"[..]);
            let mut receiver = Receiver::new(&other.fs, &root(), parent, ReceiveOptions::default());
            receiver.feed(&rest[..rest.len() - 60]).expect("most of the rest");
            other.fs.sync().expect("a disk");
            let device = other.env.device.after_crash(testing::CrashPolicy::Random, at as u64);
            drop(receiver);
            let env = SimEnv::on(device, 3);
            let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
            let other = World { fs, env };
            let found = Receiver::token(&other.fs, &root(), parent).expect("the root");
            assert_eq!(found, Some(token), "cut at {at}");
            let received = other.receive("got", &rest);
            let received = received.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
            let found = list(&other.fs, received.snapshot.root);
            assert_equal(&format!("{engine:?}, cut at {at}"), &expected, &found);
            assert_eq!(other.names(), ["got"], "cut at {at}");
        }
        assert!(continued > 30, "{continued}");
    }
}

/// A long increment is noted from time to time, so that a crash does not lose all of it.
#[test]
fn a_long_increment_that_a_crash_cuts_continues_where_it_was_noted() {
    let world = World::new(Engine::Btree, 1);
    world.mkdir("/top");
    for at in 0..10_100 {
        world.file(&format!("/top/{at}"), b"");
    }
    let before = world.snapshot("/top", "before").root;
    for at in 0..10_100 {
        world.fs.unlink(&root(), world.at("/top"), at.to_string().as_bytes()).unwrap();
    }
    let now = world.snapshot("/top", "now").root;
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, before)).expect("the base");
    let whole = world.stream(Some(before), now);
    let parent = (NodeId::ROOT, &b"got"[..]);
    let mut receiver = Receiver::new(&other.fs, &root(), parent, ReceiveOptions::default());
    receiver.feed(&whole[..whole.len() - 1000]).expect("most of the stream");
    other.fs.sync().expect("a disk");
    let device = other.env.device.after_crash(testing::CrashPolicy::LoseAll, 1);
    drop(receiver);
    let env = SimEnv::on(device, 3);
    let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
    let other = World { fs, env };
    let token = Receiver::token(&other.fs, &root(), parent).expect("the root").expect("a token");
    assert_eq!(token.applied, 10_000);
    let options = SendOptions { token: Some(token), ..SendOptions::default() };
    let rest = world.try_stream(&root(), Some(before), now, &options).expect("the rest");
    assert!(rest.len() < 10_000, "{} bytes", rest.len());
    let received = other.receive("got", &rest).expect("the rest");
    assert_equal("a long one", &list(&world.fs, now), &list(&other.fs, received.snapshot.root));
}

/// The power fails while a stream is applied: a complete one continues from what was noted last,
/// and repeats what was applied since. An increment of which nothing was noted begins again, in
/// place of what is there.
#[test]
fn a_stream_continues_after_a_crash() {
    let (world, before, now) = source();
    let first = world.stream(None, before);
    for (base, node) in [(None, before), (Some(before), now)] {
        let whole = world.stream(base, node);
        for at in (100..whole.len()).step_by(whole.len() / 40) {
            let other = World::new(Engine::Btree, 2);
            if base.is_some() {
                other.receive("got", &first).expect("the base");
            }
            let parent = (NodeId::ROOT, &b"got"[..]);
            let mut receiver = Receiver::new(&other.fs, &root(), parent, ReceiveOptions::default());
            receiver.feed(&whole[..at]).expect("the start of a stream");
            other.fs.sync().expect("a disk");
            // Nothing more is noted there.
            let seed = at as u64;
            let device = other.env.device.after_crash(testing::CrashPolicy::Random, seed);
            drop(receiver);
            let env = SimEnv::on(device, 3);
            let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
            let other = World { fs, env };
            let token = Receiver::token(&other.fs, &root(), parent).expect("the root");
            assert!(base.is_none() || token.is_none(), "{token:?}");
            let options = SendOptions { token, ..SendOptions::default() };
            let rest = world.try_stream(&root(), base, node, &options).expect("the rest");
            let received = other.receive("got", &rest);
            let received = received.unwrap_or_else(|error| panic!("cut at {at}: {error}"));
            let expected = list(&world.fs, node);
            let found = list(&other.fs, received.snapshot.root);
            assert_equal(&format!("cut at {at}"), &expected, &found);
            assert_eq!(other.names(), ["got"], "cut at {at}");
        }
    }
}

/// Only the receiver passes through the directory of a stage; what another user made in its place
/// is not used.
#[test]
fn a_stage_is_in_a_directory_that_only_the_receiver_enters() {
    let (world, before, now) = source();
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, before)).expect("the base");
    // The destination belongs to another user, and so does the root of its clone.
    let given = SetAttr { uid: Some(7), ..SetAttr::default() };
    other.fs.setattr(&root(), other.at("/got"), &given).unwrap();
    let increment = world.stream(Some(before), now);
    let options = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    let parent = (NodeId::ROOT, &b"got"[..]);
    let mut receiver = Receiver::new(&other.fs, &root(), parent, options);
    receiver.feed(&increment[..increment.len() / 2]).expect("the start of a stream");
    let names = other.names();
    assert!(names[0].starts_with(".pando-receive-"), "{names:?}");
    let directory = other.find(&names[0]).expect("it is listed");
    assert_eq!((directory.attr.uid, directory.attr.mode & 0o777), (0, 0o700));
    let entered = other.fs.lookup(&user(7), directory.node, b"stage");
    assert!(matches!(entered, Err(FsError::AccessDenied)), "{entered:?}");
    // Another command does not use it, either.
    let error = other.receive_as(
        &root(),
        "got",
        &increment,
        ReceiveOptions { force: true, ..ReceiveOptions::default() },
    );
    let error = error.expect_err("one receives").to_string();
    assert!(error.contains("another command receives there"), "{error}");
    drop(receiver);
    // Nor what is kept for the rest of the stream.
    assert_eq!(other.names(), [&names[0], "got"]);
    let entered = other.fs.lookup(&user(7), directory.node, b"stage");
    assert!(matches!(entered, Err(FsError::AccessDenied)), "{entered:?}");
    other.fs.rmr(&root(), NodeId::ROOT, names[0].as_bytes()).unwrap();
    // Another user's directory has this name.
    other.mkdir_as(&user(7), &format!("/{}", names[0]), 0o700);
    let options = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    let refused = other.receive_as(&root(), "got", &increment, options);
    assert!(matches!(refused, Err(Error::Fs(FsError::Exists))), "{refused:?}");
}

/// What is changed at the destination while an increment arrives is not given up.
#[test]
fn a_destination_that_changes_while_an_increment_arrives_is_kept() {
    let (world, before, now) = source();
    let increment = world.stream(Some(before), now);
    let parent = (NodeId::ROOT, &b"got"[..]);
    for replaced in [false, true] {
        let other = World::new(Engine::Btree, 2);
        other.receive("got", &world.stream(None, before)).expect("the base");
        let mut receiver = Receiver::new(&other.fs, &root(), parent, ReceiveOptions::default());
        receiver.feed(&increment).expect("an increment");
        if replaced {
            other.rename("/got", "/away");
            other.mkdir("/got");
        } else {
            other.file("/got/mine", b"mine");
        }
        let error = receiver.finish().expect_err("it was changed").to_string();
        let part = if replaced { "was replaced" } else { "was changed" };
        assert!(error.contains(part), "{error}");
        assert_eq!(other.find("/got/mine").is_some(), !replaced);
        assert!(other.names().iter().all(|name| !name.starts_with('.')));
    }
}

#[test]
fn a_token_of_another_snapshot_is_refused_and_a_stream_without_one_begins_again() {
    let (world, before, now) = source();
    let other = World::new(Engine::Btree, 2);
    let whole = world.stream(None, before);
    let token = cut(&other.fs, &whole[..whole.len() / 2]).expect("a token");
    let options = SendOptions { token: Some(token), ..SendOptions::default() };
    let refused = |options: &SendOptions, node, part: &str| {
        let error = world.try_stream(&root(), None, node, options).expect_err("another token");
        assert!(error.to_string().contains(part), "{error}");
    };
    refused(&options, now, "of another snapshot");
    let longer = Token { applied: 1 << 40, ..token };
    let options = SendOptions { token: Some(longer), ..SendOptions::default() };
    refused(&options, before, "of a longer stream");
    other.receive("got", &whole).expect("it begins again");
    assert_eq!(other.names(), ["got"]);
    // The rest alone is of no use.
    let options = SendOptions { token: Some(token), ..SendOptions::default() };
    let rest = world.try_stream(&root(), None, before, &options).expect("the rest");
    let error = other.receive("elsewhere", &rest).expect_err("the start is missing");
    assert!(error.to_string().contains("nothing of that is here"), "{error}");
    assert_eq!(other.names(), ["got"]);
}

/// The disk is full: nothing is visible, and with space the stream continues.
#[test]
fn a_full_disk_stops_a_stream_which_continues_with_space() {
    let world = World::new(Engine::Btree, 1);
    world.mkdir("/top");
    for at in 0..250 {
        world.file(&format!("/top/{at}"), &vec![at as u8; 200_000]);
    }
    let taken = world.snapshot("/top", "taken");
    let whole = world.stream(None, taken.root);
    let expected = list(&world.fs, taken.root);
    for engine in Engine::ALL {
        let mut continued = 0;
        for space in [1, 16, 24, 32, 40] {
            let other = World::new(engine, 2);
            let parent = (NodeId::ROOT, &b"got"[..]);
            let device = &other.env.device;
            device.set_capacity(Some(device.used_bytes() + (space << 20)));
            let options = ReceiveOptions::default();
            let mut receiver = Receiver::new(&other.fs, &root(), parent, options);
            let error = receiver.feed(&whole).expect_err("the disk is too small");
            let is_full = matches!(
                &error,
                Error::At { error: FsError::NoSpace, .. } | Error::Fs(FsError::NoSpace)
            );
            assert!(is_full, "{engine:?}: {error:?}");
            // Without any space there is not even a stage.
            let token = receiver.give_up(Some(&error)).map(|suspended| suspended.token);
            continued += u32::from(token.is_some());
            assert!(other.find("/got").is_none(), "{engine:?}");
            device.set_capacity(None);
            let options = SendOptions { token, ..SendOptions::default() };
            let rest = world.try_stream(&root(), None, taken.root, &options).expect("the rest");
            let received = other.receive("got", &rest).expect("there is space");
            assert_equal("with space", &expected, &list(&other.fs, received.snapshot.root));
            assert_eq!(other.names(), ["got"], "{engine:?}");
        }
        assert!(continued > 1, "{engine:?}: no stream was cut in its middle");
    }
}
