//! What streams that were cut leave beside a destination, and what removes it.

use fs::{Engine, FileSystem, Fs, OpenOptions};
use inode::NodeId;
use testing::SimEnv;
use transfer::{Error, ReceiveOptions, Receiver, SendOptions, Token};

use crate::listing::{assert_equal, list};
use crate::world::{World, root};

/// The destination.
const GOT: (NodeId, &[u8]) = (NodeId::ROOT, b"got");

/// Three states of a directory, the last two with many changes each.
fn states(engine: Engine) -> (World, [NodeId; 3]) {
    let world = World::new(engine, 1);
    world.mkdir("/top");
    for at in 0..60 {
        world.file(&format!("/top/{at}"), &vec![at as u8; 3000]);
    }
    let mut taken = vec![world.snapshot("/top", "mon").root];
    for (day, name) in [(1, "tue"), (2, "wed")] {
        for at in 0..60 {
            let node = world.at(&format!("/top/{at}"));
            world.fs.write(&root(), node, 0, &vec![100 + day; 2000]).expect("there is space");
            world.file(&format!("/top/{name}{at}"), b"more");
        }
        taken.push(world.snapshot("/top", name).root);
    }
    (world, taken.try_into().expect("three"))
}

fn begin<'a>(fs: &'a Fs, stream: &[u8]) -> Receiver<'a> {
    let mut receiver = Receiver::new(fs, &root(), GOT, ReceiveOptions::default());
    receiver.feed(stream).expect("the start of a stream");
    receiver
}

/// Applies the start of a stream, and returns the token.
fn cut(fs: &Fs, stream: &[u8]) -> Option<Token> {
    begin(fs, stream).give_up(None).map(|suspended| suspended.token)
}

fn found(fs: &Fs) -> Option<Token> {
    Receiver::token(fs, &root(), GOT).expect("the root")
}

fn rest(world: &World, base: NodeId, of: NodeId, token: Token) -> Vec<u8> {
    let options = SendOptions { token: Some(token), ..SendOptions::default() };
    world.try_stream(&root(), Some(base), of, &options).expect("the rest")
}

/// The volume after the power failed.
fn crashed(world: &World, policy: testing::CrashPolicy) -> World {
    let env = SimEnv::on(world.env.device.after_crash(policy, 1), 3);
    let fs = Fs::open(env.env(), &OpenOptions::default()).expect("a volume");
    World { fs, env }
}

/// The next increment from the same base replaces one that was cut, or that a crash ended before
/// anything of it was kept. It does not replace one that is under way.
#[test]
fn an_increment_removes_what_others_to_its_destination_left() {
    for engine in Engine::ALL {
        let (world, [mon, tue, wed]) = states(engine);
        let other = World::new(engine, 2);
        other.receive("got", &world.stream(None, mon)).expect("the base");
        other.receive("got2", &world.stream(None, mon)).expect("another copy");
        let (to_tue, to_wed) = (world.stream(Some(mon), tue), world.stream(Some(mon), wed));
        let far = cut(&other.fs, &to_tue[..to_tue.len() - 100]).expect("a token");
        let token = cut(&other.fs, &to_wed[..to_wed.len() / 8]).expect("a token");
        assert!(token.applied < far.applied, "{token:?}, {far:?}");
        assert_eq!(found(&other.fs), Some(token), "{engine:?}");
        assert_eq!(other.names().len(), 3, "{engine:?}");
        // One under way stays, also if another one is whole first.
        let under_way = begin(&other.fs, &to_tue[..to_tue.len() / 2]);
        let received = other.receive("got", &to_wed).expect("an increment");
        assert_equal("wed", &list(&world.fs, wed), &list(&other.fs, received.snapshot.root));
        assert_eq!(other.names().len(), 3, "{engine:?}");
        drop(under_way);
        assert_eq!(other.names().len(), 3, "{engine:?}");
        // The next one removes it.
        let (top, other_name) = (world.at("/top"), b"thu");
        world.file("/top/new", b"new");
        let thu = world.fs.snapshot_create(&root(), top, other_name).expect("a snapshot").root;
        let to_thu = world.stream(Some(wed), thu);
        other.receive("got", &to_thu).expect("the next one");
        assert_eq!(other.names(), ["got", "got2"], "{engine:?}");
        // A crash before anything of the stream was kept.
        let receiver = {
            let mut receiver = Receiver::new(
                &other.fs,
                &root(),
                (NodeId::ROOT, b"got2"),
                ReceiveOptions::default(),
            );
            receiver.feed(&to_tue[..to_tue.len() / 2]).expect("the start of a stream");
            receiver
        };
        other.fs.sync().expect("a disk");
        let again = crashed(&other, testing::CrashPolicy::LoseAll);
        drop(receiver);
        assert_eq!(again.names().len(), 3, "{engine:?}");
        again.receive("got2", &to_wed).expect("an increment");
        assert_eq!(again.names(), ["got", "got2"], "{engine:?}");
    }
}

/// The power fails after the snapshot is there, and before what is kept of its stream is removed.
/// No token is of it, and the next stream of it removes that.
#[test]
fn what_is_left_of_a_stream_that_was_received_has_no_token() {
    for engine in Engine::ALL {
        let (world, [mon, tue, _]) = states(engine);
        let other = World::new(engine, 2);
        other.receive("got", &world.stream(None, mon)).expect("the base");
        let whole = world.stream(Some(mon), tue);
        cut(&other.fs, &whole[..whole.len() / 2]).expect("a token");
        let (before, here) = (other.names()[0].clone(), NodeId::ROOT);
        // A copy of what is kept; at the end it is again where a crash would have left it.
        let directory = other.at(&format!("/{before}"));
        let token = found(&other.fs).expect("a token");
        let mark = format!("mark-{token}");
        let rest = rest(&world, mon, tue, token);
        let kept = other.fs.lookup(&root(), directory, mark.as_bytes()).expect("it is there").node;
        other.fs.clone_dir(&root(), kept, here, b"kept").expect("a copy");
        other.receive("got", &rest).expect("the rest");
        assert_eq!(other.names(), ["got", "kept"]);
        let made = other.fs.mkdir(&root(), here, before.as_bytes(), 0o700).expect("a directory");
        let names = ((here, &b"kept"[..]), (made.node, mark.as_bytes()));
        other.fs.rename(&root(), names.0, names.1, fs::RenameMode::NoReplace).expect("moved");
        assert_eq!(found(&other.fs), None, "{engine:?}");
        assert_eq!(other.names().len(), 2, "{engine:?}");
        let error = other.receive("got", &rest).expect_err("once").to_string();
        assert!(error.contains("was received already"), "{error}");
        assert_eq!(other.names(), ["got"], "{engine:?}");
    }
}

/// Both copies of a stage are there, because the power failed between the two changes that put one
/// in place of the other. The stream continues from either.
#[test]
fn a_stream_continues_from_the_earlier_of_two_copies() {
    let world = World::new(Engine::Btree, 1);
    world.mkdir("/top");
    for at in 0..10_300 {
        world.file(&format!("/top/{at}"), b"");
    }
    let mon = world.snapshot("/top", "mon").root;
    for at in 0..10_300 {
        world.fs.unlink(&root(), world.at("/top"), at.to_string().as_bytes()).unwrap();
    }
    let tue = world.snapshot("/top", "tue").root;
    let (first, whole) = (world.stream(None, mon), world.stream(Some(mon), tue));
    for engine in Engine::ALL {
        let other = World::new(engine, 2);
        other.receive("got", &first).expect("the base");
        let early = cut(&other.fs, &whole[..2000]).expect("a token");
        let rest = rest(&world, mon, tue, early);
        let directory = other.at(&format!("/{}", other.names()[0]));
        let copy = |from: &str, to: &str| {
            let from = other.fs.lookup(&root(), directory, from.as_bytes()).expect("it is there");
            other.fs.clone_dir(&root(), from.node, directory, to.as_bytes()).expect("a copy");
        };
        let back = |from: &str, to: &str| {
            let names = ((directory, from.as_bytes()), (directory, to.as_bytes()));
            let mode = fs::RenameMode::NoReplace;
            other.fs.rename(&root(), names.0, names.1, mode).expect("a rename");
        };
        let mark = |token: &Token| format!("mark-{token}");
        copy(&mark(&early), "early");
        let mut receiver = begin(&other.fs, &rest[..rest.len() - 100]);
        let late = found(&other.fs).expect("it was noted");
        assert_eq!(late.applied, early.applied + 10_000);
        copy(&mark(&late), "late");
        receiver.feed(b"").expect("nothing");
        let last = receiver.give_up(None).expect("a token").token;
        back("late", &mark(&late));
        back("early", &mark(&early));
        other.fs.rmr(&root(), directory, mark(&last).as_bytes()).expect("removed");
        let received = other.receive("got", &rest).expect("the rest");
        let expected = list(&world.fs, tue);
        assert_equal("the rest", &expected, &list(&other.fs, received.snapshot.root));
        assert_eq!(other.names(), ["got"], "{engine:?}");
    }
}

/// A damaged record in the rest of an increment leaves what another connection brought.
#[test]
fn a_damaged_rest_leaves_what_was_kept_before() {
    for engine in Engine::ALL {
        let (world, [mon, tue, _]) = states(engine);
        let other = World::new(engine, 2);
        other.receive("got", &world.stream(None, mon)).expect("the base");
        let whole = world.stream(Some(mon), tue);
        let token = cut(&other.fs, &whole[..whole.len() / 2]).expect("a token");
        let rest = rest(&world, mon, tue, token);
        let mut damaged = rest.clone();
        let middle = damaged.len() / 2;
        damaged[middle] ^= 1;
        let mut receiver = Receiver::new(&other.fs, &root(), GOT, ReceiveOptions::default());
        let error = receiver.feed(&damaged).expect_err("it is damaged");
        assert!(matches!(error, Error::Malformed(_)), "{error:?}");
        let suspended = receiver.give_up(Some(&error)).map(|suspended| suspended.token);
        assert_eq!(suspended, Some(token), "{engine:?}");
        assert_eq!(found(&other.fs), Some(token), "{engine:?}");
        let received = other.receive("got", &rest).expect("it continues");
        assert_equal("tue", &list(&world.fs, tue), &list(&other.fs, received.snapshot.root));
        assert_eq!(other.names(), ["got"], "{engine:?}");
    }
}
