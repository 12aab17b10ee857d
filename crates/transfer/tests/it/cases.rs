//! Histories by name: each was a way to go wrong.

use fs::{Allocate, Engine, FileSystem, RenameMode};
use inode::SetAttr;
use transfer::{Error, ReceiveOptions, SendOptions};

use crate::listing::{assert_equal, list};
use crate::world::{World, root};

/// Sends a directory before and after a change to another volume, and compares.
fn after(prepare: impl Fn(&World), change: impl Fn(&World)) {
    for engine in Engine::ALL {
        let (world, other) = (World::new(engine, 1), World::new(Engine::Btree, 2));
        world.mkdir("/top");
        prepare(&world);
        let before = world.snapshot("/top", "before");
        other.receive("got", &world.stream(None, before.root)).expect("a stream");
        change(&world);
        world.tick();
        let now = world.snapshot("/top", "now");
        let stream = world.stream(Some(before.root), now.root);
        let received = other.receive("got", &stream).expect("an increment");
        let expected = list(&world.fs, now.root);
        assert_equal("the snapshot", &expected, &list(&other.fs, received.snapshot.root));
        assert_equal("the present", &expected, &list(&other.fs, other.at("/got")));
    }
}

#[test]
fn names_are_swapped_between_directories() {
    after(
        |world| {
            world.mkdir("/top/a");
            world.mkdir("/top/b");
            world.file("/top/a/one", b"1");
            world.mkdir("/top/b/two");
            world.file("/top/b/two/in", b"2");
        },
        |world| {
            let from = (world.at("/top/a"), &b"one"[..]);
            let to = (world.at("/top/b"), &b"two"[..]);
            world.fs.rename(&root(), from, to, RenameMode::Exchange).unwrap();
            world.tick();
            let (from, to) = ((world.at("/top"), &b"a"[..]), (world.at("/top"), &b"b"[..]));
            world.fs.rename(&root(), from, to, RenameMode::Exchange).unwrap();
        },
    );
}

#[test]
fn a_directory_moves_below_its_own_former_child() {
    after(
        |world| {
            world.mkdir("/top/a");
            world.mkdir("/top/a/b");
            world.mkdir("/top/a/b/c");
            world.file("/top/a/b/c/f", b"deep");
            world.file("/top/a/g", b"up");
        },
        |world| {
            world.rename("/top/a/b/c", "/top/c");
            world.rename("/top/a", "/top/c/a");
        },
    );
}

#[test]
fn files_and_directories_take_each_others_place() {
    after(
        |world| {
            world.mkdir("/top/a");
            world.file("/top/a/f", b"f");
            world.file("/top/b", b"b");
        },
        |world| {
            world.fs.rmr(&root(), world.at("/top"), b"a").unwrap();
            world.file("/top/a", b"a file");
            world.fs.unlink(&root(), world.at("/top"), b"b").unwrap();
            world.mkdir("/top/b");
            world.file("/top/b/f", b"f");
        },
    );
}

#[test]
fn links_move_split_and_join() {
    after(
        |world| {
            world.mkdir("/top/d");
            let one = world.file("/top/one", b"one");
            world.fs.link(&root(), one, world.at("/top/d"), b"two").unwrap();
            world.file("/top/single", b"single");
            let third = world.file("/top/third", b"third");
            world.fs.link(&root(), third, world.at("/top"), b"fourth").unwrap();
        },
        |world| {
            // Both names of one change; one of a single is added; one of two goes.
            world.rename("/top/one", "/top/d/uno");
            world.rename("/top/d/two", "/top/due");
            let single = world.at("/top/single");
            world.fs.link(&root(), single, world.at("/top/d"), b"double").unwrap();
            world.fs.unlink(&root(), world.at("/top"), b"fourth").unwrap();
            // A copy where a link was.
            world.file("/top/fourth", b"third");
            let new = world.file("/top/d/new", b"new");
            world.fs.link(&root(), new, world.at("/top"), b"a-new").unwrap();
        },
    );
}

#[test]
fn a_link_that_changes_no_time_is_found() {
    after(
        |world| {
            world.mkdir("/top/d");
            world.file("/top/d/one", b"one");
            let two = world.file("/top/two", b"two");
            world.fs.link(&root(), two, world.at("/top/d"), b"deux").unwrap();
        },
        |world| {
            let node = world.at("/top/d/one");
            let ctime = world.fs.getattr(&root(), node).unwrap().ctime;
            world.fs.link(&root(), node, world.at("/top"), b"uno").unwrap();
            let back = SetAttr { ctime: Some(inode::SetTime::At(ctime)), ..SetAttr::default() };
            world.fs.setattr(&root(), node, &back).unwrap();
            let node = world.at("/top/two");
            let ctime = world.fs.getattr(&root(), node).unwrap().ctime;
            world.fs.unlink(&root(), world.at("/top/d"), b"deux").unwrap();
            let back = SetAttr { ctime: Some(inode::SetTime::At(ctime)), ..SetAttr::default() };
            world.fs.setattr(&root(), node, &back).unwrap();
        },
    );
}

/// A rollback brings numbers back that a directory had before, beside those that it got since. What
/// is made then may get those again that were used meanwhile.
#[test]
fn numbers_return_that_were_used_before() {
    after(
        |world| {
            world.mkdir("/top/d");
            world.file("/top/d/kept", b"kept");
            world.file("/top/d/gone", b"the first one");
            world.snapshot("/top/d", "inner");
            world.fs.unlink(&root(), world.at("/top/d"), b"gone").unwrap();
            world.file("/top/d/gone", b"the second one");
            world.mkdir("/top/d/later");
            world.file("/top/d/later/f", b"later");
        },
        |world| {
            world.fs.rollback(&root(), world.at("/top/d"), b"inner").unwrap();
            world.mkdir("/top/d/after");
            world.file("/top/d/later", b"a file where a directory was");
        },
    );
    // The directory that is sent is itself rolled back.
    after(
        |world| {
            world.mkdir("/top/d");
            let gone = world.file("/top/d/gone", b"the first one");
            world.fs.link(&root(), gone, world.at("/top"), b"link").unwrap();
            world.snapshot("/top", "older");
            world.fs.rmr(&root(), world.at("/top"), b"d").unwrap();
            world.file("/top/d", b"the second one");
            world.mkdir("/top/later");
            world.file("/top/later/f", b"later");
        },
        |world| {
            world.fs.rollback(&root(), world.at("/top"), b"older").unwrap();
            world.file("/top/d/after", b"after");
            world.file("/top/later", b"a file where a directory was");
        },
    );
}

/// A directory that is rolled back becomes a subvolume of its own. So a file that left it before is
/// there twice with one number, and two names of one file become two files.
#[test]
fn a_file_that_left_a_directory_is_also_in_it_after_its_rollback() {
    after(
        |world| {
            world.mkdir("/top/d");
            world.file("/top/d/f", b"in both places");
            world.snapshot("/top/d", "inner");
        },
        |world| {
            world.rename("/top/d/f", "/top/g");
            world.fs.rollback(&root(), world.at("/top/d"), b"inner").unwrap();
        },
    );
}

#[test]
fn names_of_a_file_become_files_when_a_directory_is_rolled_back() {
    after(
        |world| {
            world.mkdir("/top/d");
            let linked = world.file("/top/d/f", b"a file with two names");
            world.fs.link(&root(), linked, world.at("/top"), b"g").unwrap();
            world.snapshot("/top/d", "inner");
        },
        |world| {
            world.fs.rollback(&root(), world.at("/top/d"), b"inner").unwrap();
            world.tick();
            world.fs.write(&root(), world.at("/top/g"), 0, b"changed").unwrap();
        },
    );
}

/// A snapshot of a directory with subvolumes inherits them until somebody looks one up: only then
/// has it its own, under another number.
#[test]
fn an_increment_is_sent_before_its_snapshot_has_what_it_inherits() {
    after(
        |world| {
            let fs = &world.fs;
            let top = world.at("/top");
            fs.subvolume_create(&root(), top, b"n", 0o755).unwrap();
            world.mkdir("/top/n/d");
            let linked = world.file("/top/n/f", b"a file with two names");
            fs.link(&root(), linked, world.at("/top/n/d"), b"g").unwrap();
            world.snapshot("/top/n", "whole");
            world.snapshot("/top/n/d", "inner");
            fs.rollback(&root(), world.at("/top/n/d"), b"inner").unwrap();
            world.rename("/top/n/d", "/top/n/e");
        },
        |world| {
            world.fs.rollback(&root(), world.at("/top/n"), b"whole").unwrap();
        },
    );
}

#[test]
fn holes_are_punched_and_only_what_differs_is_sent() {
    let world = World::new(Engine::Btree, 1);
    world.mkdir("/top");
    let node = world.file("/top/long", &vec![7; 4 << 20]);
    let before = world.snapshot("/top", "before");
    world.fs.fallocate(&root(), node, (1 << 20, 1 << 20), Allocate::Punch).unwrap();
    world.fs.write(&root(), node, 3 << 20, b"changed").unwrap();
    let now = world.snapshot("/top", "now");
    let stream = world.stream(Some(before.root), now.root);
    assert!(stream.len() < 140 << 10, "{} bytes", stream.len());
    let other = World::new(Engine::Lsm, 2);
    other.receive("got", &world.stream(None, before.root)).unwrap();
    let received = other.receive("got", &stream).unwrap();
    let expected = list(&world.fs, now.root);
    assert_equal("holes", &expected, &list(&other.fs, received.snapshot.root));
}

#[test]
fn a_subvolume_inside_is_received_as_a_directory() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Btree, 2));
    world.mkdir("/top");
    world.mkdir("/top/a");
    world.file("/top/a/f", b"f");
    let (source, top) = (world.at("/top/a"), world.at("/top"));
    world.fs.clone_dir(&root(), source, top, b"clone").unwrap();
    let before = world.snapshot("/top", "before");
    other.receive("got", &world.stream(None, before.root)).unwrap();
    world.file("/top/clone/g", b"g");
    world.rename("/top/a/f", "/top/a/h");
    let now = world.snapshot("/top", "now");
    let received = other.receive("got", &world.stream(Some(before.root), now.root)).unwrap();
    let expected = list(&world.fs, now.root);
    assert_equal("a clone", &expected, &list(&other.fs, received.snapshot.root));
}

#[test]
fn a_directory_comes_home_and_increments_go_both_ways() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Lsm, 2));
    world.mkdir("/top");
    world.file("/top/f", b"1");
    let first = world.snapshot("/top", "first");
    let there = other.receive("got", &world.stream(None, first.root)).unwrap().snapshot;
    other.file("/got/new", b"from there");
    let changed = other.snapshot("/got", "changed");
    let back = world.receive("top", &other.stream(Some(there.root), changed.root)).unwrap();
    assert_eq!(back.base.expect("an increment").subvol, first.subvol);
    let expected = list(&other.fs, changed.root);
    assert_equal("at home", &expected, &list(&world.fs, back.snapshot.root));
    world.file("/top/more", b"more");
    let more = world.snapshot("/top", "more");
    let stream = world.stream(Some(back.snapshot.root), more.root);
    let received = other.receive("got", &stream).unwrap();
    let expected = list(&world.fs, more.root);
    assert_equal("there again", &expected, &list(&other.fs, received.snapshot.root));
}

#[test]
fn what_cannot_be_a_base_is_refused_and_changes_nothing() {
    let (world, other) = (World::new(Engine::Btree, 1), World::new(Engine::Btree, 2));
    world.mkdir("/top");
    world.file("/top/f", b"1");
    let first = world.snapshot("/top", "first");
    world.file("/top/g", b"2");
    let second = world.snapshot("/top", "second");
    world.file("/top/h", b"3");
    let third = world.snapshot("/top", "third");
    let whole = world.stream(None, first.root);
    let refused = |stream: &[u8], part: &str| {
        let (names, error) = (other.names(), other.receive("got", stream).unwrap_err());
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(other.names(), names, "{error}");
    };
    refused(&world.stream(Some(first.root), second.root), "does not exist");
    other.receive("got", &whole).unwrap();
    refused(&whole, "exists");
    refused(&world.stream(Some(second.root), third.root), "is the base");
    other.receive("got", &world.stream(Some(first.root), second.root)).unwrap();
    refused(&world.stream(Some(first.root), second.root), "already");
    other.file("/got/mine", b"mine");
    let last = world.stream(Some(second.root), third.root);
    refused(&last, "changed since");
    let options = ReceiveOptions { force: true, ..ReceiveOptions::default() };
    let forced = other.receive_as(&root(), "got", &last, options).unwrap();
    assert_equal("forced", &list(&world.fs, third.root), &list(&other.fs, other.at("/got")));
    assert!(other.find("/got/mine").is_none());
    // The last one that was received is held, and the one before is not any more.
    let holds = |snapshot| other.fs.holds_of(snapshot).unwrap().len();
    assert_eq!(holds(forced.snapshot.subvol), 1);
    assert_eq!(holds(forced.base.unwrap().subvol), 0);
}

#[test]
fn what_is_no_snapshot_is_not_sent() {
    let world = World::new(Engine::Btree, 1);
    let top = world.mkdir("/top");
    world.mkdir("/other");
    let other = world.snapshot("/other", "other");
    let taken = world.snapshot("/top", "taken");
    let options = SendOptions::default();
    for (base, snapshot) in [(None, top), (Some(top), taken.root), (Some(other.root), taken.root)] {
        let refused = world.try_stream(&root(), base, snapshot, &options);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
}

#[test]
fn memory_is_bounded_by_the_option_and_a_dry_run_counts() {
    let world = World::new(Engine::Btree, 1);
    world.mkdir("/top");
    let before = world.snapshot("/top", "before");
    for at in 0..200 {
        world.file(&format!("/top/{at}"), &[1; 1000]);
    }
    let now = world.snapshot("/top", "now");
    let little = SendOptions { memory: 10_000, ..SendOptions::default() };
    let refused = world.try_stream(&root(), Some(before.root), now.root, &little);
    assert!(matches!(refused, Err(Error::Memory { limit: 10_000, .. })), "{refused:?}");
    let stream = world.try_stream(&root(), None, now.root, &little).expect("no links");
    let dry = SendOptions { dry_run: true, ..SendOptions::default() };
    let (cancel, mut emit) = (std::sync::atomic::AtomicBool::new(false), |_: &[u8]| false);
    let nodes = (None, now.root);
    let sent =
        transfer::send(&world.fs, &root(), nodes, &dry, (&cancel, &mut emit)).expect("a dry run");
    assert_eq!(sent.bytes, 200_000);
    let error = sent.stream_bytes.abs_diff(stream.len() as u64);
    assert!(error * 20 < stream.len() as u64, "{} and {}", sent.stream_bytes, stream.len());
}
