//! Streams that are damaged, cut, or made to do harm: nothing of them stays.

use format::entry_record::EntryRecord;
use format::key;
use format::stream::{Attributes, Head, NewKind, Origin, Record, preamble};
use fs::{Engine, FileSystem};
use inode::NodeId;
use store::{Batch, KeyRange, TreeId};
use transfer::{Error, ReceiveOptions, SendOptions};
use xxhash_rust::xxh3::xxh3_128;

use crate::world::{World, root, user};

/// A stream of records, with right checksums and a right end.
fn stream(records: &[Record<'_>]) -> Vec<u8> {
    let mut bytes = preamble().to_vec();
    let origins = vec![Origin { volume: [1; 16], snapshot: 300 }];
    Record::Head(Head { name: b"evil", origins, ..Head::default() }).encode(&mut bytes);
    let mut contents = 0;
    for record in records {
        if let Record::Data { bytes, .. } = record {
            contents += bytes.len() as u64;
        }
        record.encode(&mut bytes);
    }
    let digest = xxh3_128(&bytes).to_be_bytes();
    let count = records.len() as u64;
    Record::End { records: count, bytes: contents, digest }.encode(&mut bytes);
    bytes
}

fn attr(path: &[u8], mode: u32) -> Record<'_> {
    let attributes = Attributes { mode, uid: 0, gid: 0, ..Attributes::default() };
    Record::Attr { path, attributes }
}

fn make(path: &[u8], kind: NewKind) -> Record<'_> {
    let target: &[u8] = if kind == NewKind::Symlink { b"/etc" } else { b"" };
    Record::Make { path, kind, device: 0, target }
}

/// Asserts that a stream is refused and leaves nothing.
#[track_caller]
fn refused(records: &[Record<'_>]) {
    let world = World::new(Engine::Btree, 1);
    world.file("/mine", b"mine");
    for caller in [root(), user(7)] {
        let received =
            world.receive_as(&caller, "got", &stream(records), ReceiveOptions::default());
        let error = received.expect_err("a hostile stream");
        let is_one = matches!(
            error,
            Error::At { .. } | Error::Refused { .. } | Error::Malformed(_) | Error::Fs(_)
        );
        assert!(is_one, "{records:?}: {error:?}");
        assert_eq!(world.names(), ["mine"], "{records:?}");
        assert!(world.fs.snapshot_list_all(&root()).unwrap().is_empty(), "{records:?}");
    }
}

#[test]
fn no_path_leaves_the_destination() {
    for path in [
        &b"../out"[..],
        b"/out",
        b"a/../../out",
        b"a//b",
        b"a/",
        b".",
        b"..",
        b"a/.",
        b"a\0b",
        b".snapshots/x",
        b"link/out",
        b"missing/out",
        &[b'x'; 256],
    ] {
        for kind in [NewKind::File, NewKind::Directory] {
            refused(&[
                make(b"a", NewKind::Directory),
                make(b"link", NewKind::Symlink),
                make(path, kind),
                attr(b"", 0o755),
            ]);
        }
        refused(&[make(b"a", NewKind::Directory), attr(path, 0o755), attr(b"", 0o755)]);
        refused(&[
            make(b"f", NewKind::File),
            Record::Link { path, target: b"f" },
            attr(b"", 0o755),
        ]);
    }
    refused(&[Record::Link { path: b"x", target: b"../mine" }, attr(b"", 0o755)]);
    refused(&[Record::Open { path: b"../mine" }, attr(b"", 0o755)]);
    refused(&[Record::Remove { path: b"../mine", is_directory: false }, attr(b"", 0o755)]);
}

#[test]
fn records_that_make_no_sense_are_refused() {
    refused(&[]);
    refused(&[Record::Data { offset: 0, bytes: b"x" }, attr(b"", 0o755)]);
    refused(&[make(b"a", NewKind::File), make(b"a", NewKind::File), attr(b"", 0o755)]);
    refused(&[
        make(b"d", NewKind::Directory),
        Record::Data { offset: 0, bytes: b"x" },
        attr(b"", 0o755),
    ]);
    refused(&[
        make(b"f", NewKind::File),
        Record::Data { offset: u64::MAX, bytes: b"x" },
        attr(b"", 0o755),
    ]);
    refused(&[make(b"f", NewKind::File), Record::Size { size: u64::MAX }, attr(b"", 0o755)]);
    refused(&[
        make(b"f", NewKind::File),
        Record::Hole { offset: u64::MAX, length: u64::MAX },
        attr(b"", 0o755),
    ]);
    refused(&[Record::Place { path: b"x", number: 1, keeps_parked: false }, attr(b"", 0o755)]);
    refused(&[
        make(b"f", NewKind::File),
        Record::Park { path: b"f", number: 1, keeps_name: false },
        attr(b"", 0o755),
    ]);
    refused(&[
        make(b"d", NewKind::Directory),
        Record::Park { path: b"d", number: 1, keeps_name: false },
        Record::Place { path: b"d/d", number: 1, keeps_parked: false },
        attr(b"", 0o755),
    ]);
    refused(&[Record::Head(Head::default()), attr(b"", 0o755)]);
    refused(&[Record::Resume { path: b"x" }, attr(b"", 0o755)]);
    refused(&[Record::End { records: 0, bytes: 0, digest: [0; 16] }]);
}

#[test]
fn a_user_gets_what_a_user_may_make() {
    let world = World::new(Engine::Btree, 1);
    let device = |kind| Record::Make { path: b"d", kind, device: 0x801, target: b"" };
    for kind in [NewKind::BlockDevice, NewKind::CharDevice] {
        let bytes = stream(&[device(kind), attr(b"d", 0o666), attr(b"", 0o755)]);
        let refused = world.receive_as(&user(7), "got", &bytes, ReceiveOptions::default());
        let error = refused.expect_err("a device").to_string();
        assert!(error.contains("only root makes devices"), "{error}");
        assert!(world.names().is_empty());
    }
    let mut set_id = attr(b"f", 0o6755);
    if let Record::Attr { attributes, .. } = &mut set_id {
        attributes.xattrs =
            vec![(b"security.capability", b"x"), (b"trusted.t", b"t"), (b"user.u", b"u")];
    }
    let records = [make(b"f", NewKind::File), set_id, attr(b"", 0o1777)];
    world
        .receive_as(&user(7), "got", &stream(&records), ReceiveOptions::default())
        .expect("a user");
    let found = world.find("/got/f").expect("a file").attr;
    assert_eq!((found.uid, found.gid, found.mode), (7, 7, 0o755));
    assert_eq!(world.fs.listxattr(&root(), found.node).unwrap(), b"user.u\0");
    let top = world.find("/got").expect("a directory").attr;
    assert_eq!((top.uid, top.mode), (7, 0o1777));
    // Root gets all of it.
    world.receive_as(&root(), "all", &stream(&records), ReceiveOptions::default()).expect("root");
    let found = world.find("/all/f").expect("a file").attr;
    assert_eq!((found.uid, found.mode), (0, 0o6755));
}

/// A stream that is cut anywhere, or has any bit flipped, is refused; then the right one is
/// received.
#[test]
fn a_damaged_stream_leaves_nothing_and_a_cut_one_continues() {
    let source = World::new(Engine::Btree, 1);
    source.mkdir("/top");
    source.file("/top/f", &[5; 300]);
    source.mkdir("/top/d");
    let taken = source.snapshot("/top", "taken");
    let right = source.stream(None, taken.root);
    let world = World::new(Engine::Btree, 2);
    for bit in (0..right.len() * 8).step_by(3) {
        let mut bytes = right.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let failed = world.receive("got", &bytes);
        // The flip of a length leaves it unfinished.
        let is_one =
            matches!(failed, Err(Error::Malformed(_) | Error::Refused { .. } | Error::Cut));
        assert!(is_one, "bit {bit}: {failed:?}");
        assert!(world.find("/got").is_none(), "bit {bit}");
    }
    for length in 0..right.len() {
        let cut = world.receive("got", &right[..length]);
        assert!(matches!(cut, Err(Error::Cut)), "{length} bytes: {cut:?}");
        assert!(world.find("/got").is_none(), "{length} bytes");
    }
    let more = [&right[..], b"more than nothing"].concat();
    let refused = world.receive("got", &more);
    assert!(matches!(refused, Err(Error::Malformed(_))), "{refused:?}");
    world.receive("got", &right).expect("nothing has the name");
    assert_eq!(world.names(), ["got"]);
}

/// Records at random, with right checksums: nothing leaves the destination, nothing panics, and
/// the volume stays whole.
#[test]
fn random_records_do_no_harm() {
    let names = [&b"a"[..], b"b", b"a/b", b"b/a", b"a/b/c", b"", b"..", b"a/.."];
    let seeds = if testing::run::slow() { 3000 } else { 80 };
    for seed in 0..seeds {
        let mut random = fastrand::Rng::with_seed(seed);
        let world = World::new(Engine::Btree, seed);
        world.file("/mine", b"mine");
        let mut records = Vec::new();
        for _ in 0..random.usize(..40) {
            let mut path = || *random.choice(&names).unwrap();
            let (path, target) = (path(), path());
            let (number, flag) = (random.u64(..3), random.bool());
            records.push(match random.u8(..12) {
                0 => Record::Remove { path, is_directory: flag },
                1 => Record::Park { path, number, keeps_name: flag },
                2 => Record::Place { path, number, keeps_parked: flag },
                3..=5 => make(path, NewKind::Directory),
                6 | 7 => make(path, NewKind::File),
                8 => Record::Open { path },
                9 => Record::Data { offset: random.u64(..1 << 20), bytes: b"some" },
                10 => Record::Link { path, target },
                _ => attr(path, random.u32(..0o10000)),
            });
            if random.u8(..3) > 0 {
                let world = World::new(Engine::Btree, 1);
                let mut tried = records.clone();
                tried.push(attr(b"", 0o755));
                // Only what is applied is kept, so that histories become long.
                if world
                    .receive("got", &stream(&tried))
                    .is_err_and(|error| !error.to_string().contains("without a name"))
                {
                    records.pop();
                }
            }
        }
        records.push(attr(b"", 0o755));
        let received = world.receive("got", &stream(&records));
        let names = world.names();
        match received {
            Ok(_) => assert_eq!(names, ["got", "mine"], "seed {seed}"),
            Err(_) => assert_eq!(names, ["mine"], "seed {seed}"),
        }
    }
}

/// Frames with right checksums in another order: only the digest shows it.
#[test]
fn frames_in_another_order_are_found_by_the_digest() {
    let world = World::new(Engine::Btree, 1);
    let (one, two) = (make(b"one", NewKind::Fifo), make(b"two", NewKind::Fifo));
    let right = stream(&[one.clone(), two.clone(), attr(b"", 0o755)]);
    let frames = |records: &[Record<'_>]| {
        let mut bytes = Vec::new();
        for record in records {
            record.encode(&mut bytes);
        }
        bytes
    };
    let (before, after) = (frames(&[one.clone(), two.clone()]), frames(&[two, one]));
    let at = right.windows(before.len()).position(|part| part == before).expect("they are there");
    let mut wrong = right.clone();
    wrong[at..at + after.len()].copy_from_slice(&after);
    let error = world.receive("got", &wrong).expect_err("another order").to_string();
    assert!(error.contains("digest"), "{error}");
    assert!(world.names().is_empty());
    world.receive("got", &right).expect("the right order");
}

/// Regression: a name that points back to its own directory was sent, and dumped, without end.
#[test]
fn a_directory_that_contains_itself_is_refused() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let world = World::new(engine, 1);
        let inner = world.mkdir("/a").ino().0;
        world.mkdir("/a/b");
        let tree = TreeId(key::FIRST_TREE);
        let mut batch = Batch::new();
        let mut cursor = world.fs.store.scan(tree, KeyRange::prefix(&[])).unwrap();
        while let Some(item) = cursor.next().unwrap() {
            if let Ok(entry) = EntryRecord::decode(item.value)
                && entry.name == b"b"
            {
                let mut falsified = Vec::new();
                EntryRecord { ino: inner, ..entry }.encode(&mut falsified);
                batch.put(tree, item.key, &falsified);
            }
        }
        drop(cursor);
        world.fs.store.commit(&batch).unwrap();
        assert_eq!(world.at("/a/b/b"), world.at("/a"));
        let dumped = crate::dumps::dumped(&world, NodeId::ROOT, 1 << 20);
        let snapshot = world.snapshot("/", "s");
        let sent = world.try_stream(&root(), None, snapshot.root, &SendOptions::default());
        for refused in [dumped.map(|_| ()), sent.map(|_| ())] {
            let error = refused.expect_err("a cycle").to_string();
            assert_eq!(error, "a/b is a directory that contains itself", "{engine:?}");
        }
    }
}
