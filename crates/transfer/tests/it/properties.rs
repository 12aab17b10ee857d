//! Properties of directories travel with streams: limits of quotas, schedules, settings of trashes.

use std::collections::BTreeMap;

use format::property::Property;
use format::retention::ScheduleRecord;
use format::stream::{Attributes, Head, NewKind, Origin, Record, VERSION, preamble};
use format::trash::TrashRecord;
use fs::{Engine, FileSystem, Fs, Keep, QuotaLimits, Schedule};
use inode::NodeId;
use transfer::{Error, PropertyDone, ReceiveOptions, Received, SendOptions};
use xxhash_rust::xxh3::xxh3_128;

use crate::world::{World, root, user};

/// The properties of a directory and of those below it.
pub(crate) fn properties(fs: &Fs, top: NodeId) -> BTreeMap<(Vec<u8>, u8), Property> {
    let found = fs.properties_below(top).unwrap().into_iter();
    found.map(|one| ((one.path, one.property.kind()), one.property)).collect()
}

fn limits(inodes: Option<u64>, bytes: Option<u64>) -> QuotaLimits {
    QuotaLimits { inodes, bytes }
}

pub(crate) fn hourly(keep: u16) -> Schedule {
    let keep = Keep { hours: keep, ..Keep::default() };
    Schedule { cron: "@hourly".to_owned(), prefix: b"auto".to_vec(), keep }
}

/// What was done, in the order of the report.
fn done(received: &Received) -> Vec<(String, String, PropertyDone)> {
    let shown = |one: &transfer::PropertyChange| {
        (String::from_utf8_lossy(&one.path).into_owned(), one.kind.clone(), one.done.clone())
    };
    received.properties.iter().map(shown).collect()
}

fn set(path: &str, kind: &str) -> (String, String, PropertyDone) {
    (path.to_owned(), kind.to_owned(), PropertyDone::Set)
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}

/// A source with a property of each kind, and its first snapshot.
fn source(engine: Engine) -> (World, NodeId) {
    let world = World::new(engine, 1);
    world.mkdir("/top");
    world.mkdir("/top/d");
    world.mkdir("/top/d/limited");
    world.file("/top/d/limited/f", &[1; 5000]);
    let (top, limited) = (world.at("/top"), world.at("/top/d/limited"));
    world.fs.quota_set(&root(), limited, limits(Some(100), Some(20_000))).unwrap();
    world.fs.schedule_set(&root(), top, Some(&hourly(24))).unwrap();
    world.fs.trash_set(&root(), world.at("/top/d"), Some(3600)).unwrap();
    world.tick();
    let first = world.snapshot("/top", "first");
    (world, first.root)
}

/// They arrive with a complete stream, and an increment sets, changes, moves and removes them; the
/// copy is a source again.
fn they_travel(engines: [Engine; 2]) {
    let (world, first) = source(engines[0]);
    let others = [World::new(engines[1], 2), World::new(engines[0], 3)];
    let mut sent = world.stream(None, first);
    for other in &others {
        let received = other.receive("got", &sent).unwrap();
        assert_eq!(
            sorted(done(&received).into_iter().map(|one| (one.0, one.1)).collect()),
            sorted(vec![
                (String::new(), "schedule".to_owned()),
                ("d".to_owned(), "trash".to_owned()),
                ("d/limited".to_owned(), "quota".to_owned()),
            ])
        );
        assert!(received.properties.iter().all(|one| one.done == PropertyDone::Set));
        let got = other.at("/got");
        assert_eq!(properties(&other.fs, got), properties(&world.fs, world.at("/top")));
        let charged = other.fs.quota_get(other.at("/got/d/limited")).unwrap().unwrap();
        assert_eq!((charged.inodes, charged.limits), (2, limits(Some(100), Some(20_000))));
        assert_eq!(other.fs.schedules().unwrap()[0].uid, 0);
        sent = other.stream(None, received.snapshot.root);
    }
    // One is changed, one removed, one is new, and a directory is moved.
    world.rename("/top/d/limited", "/top/moved");
    let fs = &world.fs;
    fs.quota_set(&root(), world.at("/top/moved"), limits(None, Some(9000))).unwrap();
    fs.schedule_set(&root(), world.at("/top"), None).unwrap();
    fs.schedule_set(&user(0), world.at("/top/d"), Some(&hourly(3))).unwrap();
    world.file("/top/moved/g", &[2; 3000]);
    let second = world.snapshot("/top", "second");
    let mut sent = world.stream(Some(first), second.root);
    for other in &others {
        let received = other.receive("got", &sent).unwrap();
        let got = other.at("/got");
        assert_eq!(properties(&other.fs, got), properties(fs, world.at("/top")));
        let removed = (String::new(), "schedule".to_owned(), PropertyDone::Removed);
        let found = done(&received);
        for expected in [removed, set("moved", "quota"), set("d", "schedule")] {
            assert!(found.contains(&expected), "{found:?}");
        }
        assert_eq!(found.len(), 3, "{found:?}");
        sent = other.stream(Some(received.base.unwrap().root), received.snapshot.root);
    }
    // A third one without a change of them reports nothing, and the copies have not changed.
    world.file("/top/h", b"h");
    let third = world.snapshot("/top", "third");
    let sent = world.stream(Some(second.root), third.root);
    let received = others[0].receive("got", &sent).unwrap();
    assert_eq!(done(&received), []);
    assert_eq!(properties(&others[0].fs, others[0].at("/got")), properties(fs, world.at("/top")));
}

#[test]
fn properties_travel_with_streams() {
    they_travel([Engine::Btree, Engine::Lsm]);
    they_travel([Engine::Lsm, Engine::Btree]);
}

/// What was changed at the destination stays and is reported; `--force` gives it up.
#[test]
fn what_was_changed_at_the_destination_stays() {
    let (world, first) = source(Engine::Btree);
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, first)).unwrap();
    let fs = &other.fs;
    // One is changed, one removed, one is the destination's own.
    fs.schedule_set(&root(), other.at("/got"), Some(&hourly(1))).unwrap();
    fs.trash_set(&root(), other.at("/got/d"), None).unwrap();
    fs.schedule_set(&root(), other.at("/got/d/limited"), Some(&hourly(5))).unwrap();
    fs.quota_set(&root(), other.at("/got/d"), limits(None, Some(1 << 30))).unwrap();
    let before = properties(fs, other.at("/got"));
    world.file("/top/f", b"f");
    let second = world.snapshot("/top", "second");
    let sent = world.stream(Some(first), second.root);
    for (force, from) in [(false, "second"), (true, "third")] {
        let sent = if force {
            let third = world.snapshot("/top", "third");
            world.stream(Some(second.root), third.root)
        } else {
            sent.clone()
        };
        let options = ReceiveOptions { force, ..ReceiveOptions::default() };
        let received = other.receive_as(&root(), "got", &sent, options).unwrap();
        let found = done(&received);
        if force {
            assert_eq!(found.len(), 2, "{from}: {found:?}");
            assert!(found.contains(&set("", "schedule")), "{found:?}");
            assert!(found.contains(&set("d", "trash")), "{found:?}");
            continue;
        }
        assert_eq!(properties(fs, other.at("/got")), before);
        let kept: Vec<_> = found.iter().map(|one| (&one.0[..], &one.1[..])).collect();
        assert_eq!(sorted(kept), [("", "schedule"), ("d", "trash")]);
        assert!(found.iter().all(|one| matches!(&one.2, PropertyDone::LeftOut(why)
            if why.contains("changed here"))));
    }
    // The destination's own stay in any case.
    let now = properties(fs, other.at("/got"));
    assert!(now.contains_key(&(b"d/limited".to_vec(), 2)), "{now:?}");
    assert!(now.contains_key(&(b"d".to_vec(), 1)), "{now:?}");
}

/// Without properties nothing of them is sent, or set; and a stream without them removes none.
#[test]
fn they_can_be_left_out() {
    let (world, first) = source(Engine::Btree);
    let other = World::new(Engine::Btree, 2);
    let without = SendOptions { no_properties: true, ..SendOptions::default() };
    let sent = world.try_stream(&root(), None, first, &without).unwrap();
    assert_eq!(sent[8], 1, "the version that earlier programs read");
    other.receive("one", &sent).unwrap();
    let options = ReceiveOptions { no_properties: true, ..ReceiveOptions::default() };
    let whole = world.stream(None, first);
    assert_eq!(whole[8], 2);
    let received = other.receive_as(&root(), "two", &whole, options).unwrap();
    assert_eq!(done(&received), []);
    for path in ["/one", "/two"] {
        assert!(properties(&other.fs, other.at(path)).is_empty());
    }
    other.receive("three", &whole).unwrap();
    let before = properties(&other.fs, other.at("/three"));
    world.fs.schedule_set(&root(), world.at("/top"), None).unwrap();
    let second = world.snapshot("/top", "second");
    let sent = world.try_stream(&root(), Some(first), second.root, &without).unwrap();
    other.receive("three", &sent).unwrap();
    assert_eq!(properties(&other.fs, other.at("/three")), before);
}

/// A quota of the destination does not stop an increment that root receives, and holds after it.
#[test]
fn a_quota_does_not_break_the_increment_that_is_received() {
    let (world, first) = source(Engine::Btree);
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, first)).unwrap();
    let limited = world.at("/top/d/limited");
    world.fs.quota_set(&root(), limited, limits(None, Some(100_000))).unwrap();
    world.file("/top/d/limited/large", &[7; 90_000]);
    let second = world.snapshot("/top", "second");
    other.receive("got", &world.stream(Some(first), second.root)).unwrap();
    let quota = other.fs.quota_get(other.at("/got/d/limited")).unwrap().unwrap();
    assert_eq!(quota.limits, limits(None, Some(100_000)));
    let new = fs::NewNode { kind: inode::Kind::File, mode: 0o600, rdev: 0 };
    let file = other.fs.mknod(&root(), other.at("/got/d/limited"), b"more", &new).unwrap().node;
    let refused = other.fs.write(&root(), file, 0, &vec![1; 200_000]);
    assert!(matches!(refused, Err(inode::FsError::QuotaExceeded)), "{refused:?}");
}

/// What the trash of a copy deletes by itself is no change: increments continue.
#[test]
fn a_trash_that_expires_does_not_stop_increments() {
    let (world, _) = source(Engine::Btree);
    world.file("/top/d/gone", b"gone");
    world.fs.unlink(&root(), world.at("/top/d"), b"gone").unwrap();
    let second = world.snapshot("/top", "second");
    let other = World::new(Engine::Btree, 2);
    other.receive("got", &world.stream(None, second.root)).unwrap();
    let trash = other.at("/got/d/.trash");
    let mut hours = Vec::new();
    other
        .fs
        .readdir(&root(), trash, 0, &mut |entry| {
            hours.push(entry.name.to_vec());
            fs::WalkControl::Continue
        })
        .unwrap();
    assert_eq!(hours.len(), 1);
    other.fs.rmr(&root(), trash, &hours[0]).unwrap();
    world.file("/top/f", b"f");
    let third = world.snapshot("/top", "third");
    let sent = world.stream(Some(second.root), third.root);
    other.receive("got", &sent).expect("an increment");
    // Anything else is a change.
    other.file("/got/d/mine", b"mine");
    world.file("/top/g", b"g");
    let fourth = world.snapshot("/top", "fourth");
    let refused = other.receive("got", &world.stream(Some(third.root), fourth.root));
    assert!(refused.unwrap_err().to_string().contains("was changed"));
}

/// A stream with an end, of these records.
fn stream(version: u32, records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = preamble(version).to_vec();
    let origins = vec![Origin { volume: [1; 16], snapshot: 300 }];
    Record::Head(Head { name: b"evil", origins, ..Head::default() }).encode(&mut bytes);
    for record in records {
        record.encode(&mut bytes);
    }
    let digest = xxh3_128(&bytes).to_be_bytes();
    Record::End { records: records.len() as u64, bytes: 0, digest }.encode(&mut bytes);
    bytes
}

fn attr(path: &[u8]) -> Record<'_> {
    Record::Attr { path, attributes: Attributes { mode: 0o755, ..Attributes::default() } }
}

fn directory(path: &[u8]) -> Record<'_> {
    Record::Make { path, kind: NewKind::Directory, device: 0, target: b"" }
}

/// A user gets no property that only root may set: it is named, and the rest is received.
#[test]
fn a_user_gets_no_properties_of_root() {
    let quota = Property::Quota { inodes_max: 1, bytes_max: 1 }.encode();
    let trash = Property::Trash(TrashRecord { keep_seconds: u64::MAX }).encode();
    let Schedule { cron, prefix, keep } = hourly(1);
    let schedule = ScheduleRecord { uid: 0, gid: 0, last: 0, keep, cron, prefix };
    let schedule = Property::Schedule(schedule).encode();
    let property = |kind, value| Record::Property { path: b"d", kind, value };
    let records = [
        directory(b"d"),
        attr(b"d"),
        directory(b"d/.trash"),
        attr(b"d/.trash"),
        attr(b""),
        Record::Properties { count: 4 },
        property(1, &quota),
        property(2, &schedule),
        property(3, &trash),
        property(200, b"of a later program"),
    ];
    let world = World::new(Engine::Btree, 1);
    let bytes = stream(VERSION, &records);
    let received = world.receive_as(&user(7), "got", &bytes, ReceiveOptions::default()).unwrap();
    let found = done(&received);
    let left = |kind: &str, what: &str| {
        let why = found.iter().find(|one| one.1 == kind).map(|one| &one.2);
        assert!(matches!(why, Some(PropertyDone::LeftOut(why)) if why.contains(what)), "{found:?}");
    };
    left("quota", "only root");
    left("trash", "only root");
    left("property 200", "not known");
    assert!(found.contains(&set("d", "schedule")), "{found:?}");
    let schedules = world.fs.schedules().unwrap();
    assert_eq!(schedules.len(), 1);
    assert_eq!(schedules[0].uid, 7, "it acts with the rights of the receiver");
    assert!(world.fs.quota_get(world.at("/got/d")).unwrap().is_none());
    // Root gets what is known, with the largest numbers.
    let received = world.receive_as(&root(), "all", &bytes, ReceiveOptions::default()).unwrap();
    assert_eq!(done(&received).iter().filter(|one| one.2 == PropertyDone::Set).count(), 3);
    let problems = world.fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    assert!(problems.unwrap().problems.is_empty());
}

/// A schedule acts with the rights of the user who set it: one that may not set it there has none.
#[test]
fn schedules_are_those_of_their_users() {
    let Schedule { cron, prefix, keep } = hourly(1);
    let schedule = ScheduleRecord { uid: 9, gid: 9, last: 0, keep, cron, prefix };
    let schedule = Property::Schedule(schedule).encode();
    let bad = b"never".to_vec();
    let records = |path, value| {
        let attributes = Attributes { mode: 0o755, uid: 9, gid: 9, ..Attributes::default() };
        [
            directory(b"mine"),
            Record::Attr { path: b"mine", attributes },
            directory(b"other"),
            attr(b"other"),
            attr(b""),
            Record::Properties { count: 1 },
            Record::Property { path, kind: 2, value },
        ]
    };
    let world = World::new(Engine::Btree, 1);
    let mine = stream(VERSION, &records(b"mine", &schedule));
    let received = world.receive("one", &mine).unwrap();
    assert_eq!(done(&received), [set("mine", "schedule")]);
    assert_eq!(world.fs.schedules().unwrap()[0].uid, 9);
    let other = stream(VERSION, &records(b"other", &schedule));
    let found = done(&world.receive("two", &other).unwrap());
    assert!(matches!(&found[..], [(_, _, PropertyDone::LeftOut(why))] if why.contains("owner")));
    // A time that cannot be read.
    let options = ReceiveOptions { check_cron: Some(|_| false), ..ReceiveOptions::default() };
    let found = done(&world.receive_as(&root(), "three", &mine, options).unwrap());
    assert!(matches!(&found[..], [(_, _, PropertyDone::LeftOut(why))] if why.contains("time")));
    let refused = world.receive("four", &stream(VERSION, &records(b"mine", &bad)));
    assert!(matches!(refused, Err(Error::Malformed(_))), "{refused:?}");
    assert_eq!(world.names(), ["one", "three", "two"]);
}

/// Properties that are malformed, too many, too few, twice, of no directory, or in another place
/// are refused, and nothing stays.
#[test]
fn hostile_properties_are_refused() {
    let trash = Property::Trash(TrashRecord { keep_seconds: 1 }).encode();
    let property = |path, kind| Record::Property { path, kind, value: &trash };
    let (many, one) = (Record::Properties { count: 2 }, Record::Properties { count: 1 });
    let file = Record::Make { path: b"f", kind: NewKind::File, device: 0, target: b"" };
    let endings: Vec<Vec<Record<'_>>> = vec![
        vec![attr(b""), property(b"", 3)],
        vec![one.clone(), property(b"", 3), attr(b"")],
        vec![attr(b""), one.clone()],
        vec![attr(b""), many.clone(), property(b"", 3)],
        vec![attr(b""), many.clone(), property(b"", 3), property(b"", 3)],
        vec![attr(b""), one.clone(), property(b"", 3), property(b"d", 3)],
        vec![attr(b""), one.clone(), property(b"", 3), attr(b"")],
        vec![attr(b""), one.clone(), property(b"", 3), one.clone()],
        vec![attr(b""), one.clone(), one.clone(), property(b"", 3)],
        vec![attr(b""), one.clone(), property(b"f", 3)],
        vec![attr(b""), one.clone(), property(b"missing", 3)],
        vec![attr(b""), one.clone(), property(b"../mine", 3)],
        vec![attr(b""), one.clone(), property(b"/mine", 3)],
        vec![attr(b""), one.clone(), property(b"", 1)],
        vec![attr(b""), one.clone(), property(b"", 2)],
    ];
    for ending in endings {
        let world = World::new(Engine::Btree, 1);
        world.mkdir("/mine");
        let mut records = vec![directory(b"d"), attr(b"d"), file.clone(), attr(b"f")];
        records.extend(ending.clone());
        let refused = world.receive("got", &stream(VERSION, &records));
        let is_one =
            matches!(refused, Err(Error::At { .. } | Error::Refused { .. } | Error::Malformed(_)));
        assert!(is_one, "{ending:?}: {refused:?}");
        assert_eq!(world.names(), ["mine"], "{ending:?}");
    }
    // An earlier version has none.
    let world = World::new(Engine::Btree, 1);
    let refused = world.receive("got", &stream(1, &[attr(b""), Record::Properties { count: 0 }]));
    assert!(refused.unwrap_err().to_string().contains("version 1"));
    world.receive("got", &stream(1, &[attr(b"")])).expect("an earlier version");
    world.receive("more", &stream(VERSION, &[attr(b"")])).expect("without properties");
}

/// Nothing takes effect of a stream that is not whole, and not before the tree is visible.
#[test]
fn properties_of_a_cut_stream_do_nothing() {
    let (world, first) = source(Engine::Btree);
    let whole = world.stream(None, first);
    let other = World::new(Engine::Btree, 2);
    for length in (whole.len() - 400..whole.len()).rev().step_by(7) {
        let cut = other.receive("got", &whole[..length]);
        assert!(matches!(cut, Err(Error::Cut)), "{length} bytes: {cut:?}");
        assert!(other.fs.schedules().unwrap().is_empty());
        assert!(other.fs.quota_list(&root()).unwrap().is_empty());
    }
    let options = SendOptions {
        token: transfer::Receiver::token(&other.fs, &root(), (NodeId::ROOT, b"got")).unwrap(),
        ..SendOptions::default()
    };
    assert!(options.token.is_some());
    let rest = world.try_stream(&root(), None, first, &options).unwrap();
    other.receive("got", &rest).unwrap();
    let got = other.at("/got");
    assert_eq!(properties(&other.fs, got), properties(&world.fs, world.at("/top")));
}
