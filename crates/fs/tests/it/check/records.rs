//! Records that contradict each other, as a bug of the program would leave them: each is found,
//! named and repaired, and nothing else changes.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::LinkedRecord;
use format::key::{self, Counter, Parsed, Part};
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use fs::{Engine, FileSystem, NewNode, OpenError, ProblemKind};
use inode::{Caller, Kind, NodeId};
use store::{Batch, KeyRange, Store, TreeId};
use testing::SimDevice;

use super::volume::{Made, falsify, look, made};
use super::{check, repair, reported};

on_each_engine!(
    what_contradicts_is_found_and_repaired,
    a_repair_that_is_cut_off_anywhere_is_gone_on_with,
    a_record_that_does_not_decode_costs_nothing_else,
    nobody_gets_more_by_the_loss_of_a_list,
    small_contents_of_a_linked_inode_are_kept,
    what_is_found_is_kept_where_lost_and_found_is_no_directory,
    numbers_out_of_all_bounds_are_reported,
    a_root_out_of_bounds_is_damage_and_not_a_panic,
    nothing_is_taken_for_unlinked_beside_a_record_that_does_not_decode,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);
/// Tree and subvolume of the volume's root.
pub(super) const TREE: TreeId = TreeId(key::FIRST_TREE);

/// What is left of the model after the repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    /// All of it.
    All,
    /// Everything but what was reported as lost, of which a part is kept or gone.
    Less,
}

/// An entry of a tree.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) dir: u64,
    pub(super) cookie: u64,
    pub(super) ino: u64,
    pub(super) target: Target,
    pub(super) name: Vec<u8>,
}

pub(super) fn entries(store: &dyn Store, tree: TreeId) -> Vec<Entry> {
    let mut found = Vec::new();
    let mut cursor =
        store.scan(tree, KeyRange::prefix(&key::DIRECTORIES_PREFIX)).expect("it is there");
    while let Some(item) = cursor.next().expect("it is there") {
        let Ok(Parsed::Entry { directory: dir, cookie: cookie @ 1.., part: Part::Attributes }) =
            key::parse(item.key)
        else {
            continue;
        };
        let entry = EntryRecord::decode(item.value).expect("it is there");
        let (ino, target, name) = (entry.ino, entry.target, entry.name.to_vec());
        found.push(Entry { dir, cookie, ino, target, name });
    }
    found
}

pub(super) fn named(store: &dyn Store, name: &str) -> Entry {
    let all = entries(store, TREE);
    all.into_iter().find(|entry| entry.name == name.as_bytes()).expect("the volume has it")
}

pub(super) fn directory(store: &dyn Store, ino: u64) -> DirectoryRecord {
    let bytes = store
        .get(TREE, &key::directory(ino, Part::Attributes))
        .expect("it is there")
        .expect("it is there");
    DirectoryRecord::decode(&bytes).expect("it is there")
}

pub(super) fn put_directory(batch: &mut Batch, ino: u64, record: &DirectoryRecord) {
    batch.put(TREE, &key::directory(ino, Part::Attributes), &record.encode());
}

pub(super) fn put_entry(batch: &mut Batch, entry: &Entry, at: u64) {
    let mut value = Vec::new();
    let Entry { ino, target, ref name, .. } = *entry;
    EntryRecord { chained: false, ino, name, target }.encode(&mut value);
    batch.put(TREE, &key::entry(entry.dir, at, Part::Attributes), &value);
}

fn linked(store: &dyn Store, ino: u64) -> LinkedRecord {
    let bytes = store
        .get(TREE, &key::linked(ino, Part::Attributes))
        .expect("it is there")
        .expect("it is there");
    LinkedRecord::decode(&bytes).expect("it is there")
}

fn put_linked(batch: &mut Batch, ino: u64, record: &LinkedRecord) {
    let mut value = Vec::new();
    record.encode(&mut value);
    batch.put(TREE, &key::linked(ino, Part::Attributes), &value);
}

pub(super) fn subvolumes(store: &dyn Store) -> Vec<(u64, SubvolumeRecord)> {
    let mut found = Vec::new();
    let mut cursor =
        store.scan(VOLUME, KeyRange::prefix(&key::SUBVOLUMES_PREFIX)).expect("it is there");
    while let Some(item) = cursor.next().expect("it is there") {
        let record = SubvolumeRecord::decode(item.value).expect("it is there");
        found.push((key::parse_number(item.key).expect("it is there"), record));
    }
    found
}

fn segment_of(store: &dyn Store) -> Vec<u8> {
    let mut cursor =
        store.scan(VOLUME, KeyRange::prefix(&key::SEGMENTS_PREFIX)).expect("it is there");
    cursor.next().expect("it is there").expect("it is there").key.to_vec()
}

pub(super) type Change = fn(&dyn Store, &mut Batch);

/// What is broken, what kind of problem that is, what is left after the repair.
const CASES: &[(&str, ProblemKind, Left, Change)] = &[
    ("a count of names", ProblemKind::Links, Left::All, |store, batch| {
        let ino = named(store, "deep").ino;
        let record = directory(store, ino);
        put_directory(batch, ino, &DirectoryRecord { entries: 77, ..record });
    }),
    ("a count of directories", ProblemKind::Links, Left::All, |store, batch| {
        let ino = named(store, "one").ino;
        let record = directory(store, ino);
        put_directory(batch, ino, &DirectoryRecord { subdirectories: 9, entries: 99, ..record });
    }),
    ("a count of links", ProblemKind::Links, Left::All, |store, batch| {
        let ino = named(store, "one name").ino;
        put_linked(batch, ino, &LinkedRecord { nlink: 5, ..linked(store, ino) });
    }),
    ("a parent", ProblemKind::Name, Left::All, |store, batch| {
        let ino = named(store, "deeper").ino;
        let record = directory(store, ino);
        put_directory(batch, ino, &DirectoryRecord { parent: 2, ..record });
    }),
    ("a circle", ProblemKind::Name, Left::Less, |store, batch| {
        let (deep, deeper) = (named(store, "deep"), named(store, "deeper"));
        let record = directory(store, deep.ino);
        let there = Entry { dir: deeper.ino, ..deep.clone() };
        put_entry(batch, &there, deep.cookie);
        batch.delete(TREE, &key::entry(deep.dir, deep.cookie, Part::Attributes));
        put_directory(batch, deep.ino, &DirectoryRecord { parent: deeper.ino, ..record });
    }),
    ("an entry of a directory", ProblemKind::Name, Left::Less, |store, batch| {
        let deep = named(store, "deep");
        batch.delete(TREE, &key::entry(deep.dir, deep.cookie, Part::Attributes));
    }),
    ("a record of a directory", ProblemKind::Name, Left::Less, |store, batch| {
        let ino = named(store, "deeper").ino;
        batch.delete(TREE, &key::directory(ino, Part::Attributes));
        batch.delete(TREE, &key::directory(ino, Part::Xattrs));
    }),
    ("a directory and its entry", ProblemKind::Name, Left::Less, |store, batch| {
        let deeper = named(store, "deeper");
        batch.delete(TREE, &key::directory(deeper.ino, Part::Attributes));
        batch.delete(TREE, &key::directory(deeper.ino, Part::Xattrs));
        batch.delete(TREE, &key::entry(deeper.dir, deeper.cookie, Part::Attributes));
    }),
    ("a second name of a directory", ProblemKind::Name, Left::All, |store, batch| {
        let deep = named(store, "deep");
        let other = Entry { dir: 2, ..deep };
        put_entry(batch, &other, 77 << 8);
    }),
    ("an entry without an inode", ProblemKind::Name, Left::All, |store, batch| {
        let tiny = named(store, "tiny");
        let dangling = Entry { ino: 999_999, ..tiny };
        put_entry(batch, &dangling, 78 << 8);
    }),
    ("a linked inode", ProblemKind::Name, Left::Less, |store, batch| {
        let ino = named(store, "tiny").ino;
        batch.delete(TREE, &key::linked(ino, Part::Attributes));
    }),
    ("names of a linked inode", ProblemKind::Name, Left::Less, |store, batch| {
        for name in ["one name", "another name"] {
            let entry = named(store, name);
            batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
            batch.delete(TREE, &key::back_reference(entry.ino, entry.dir, entry.cookie));
        }
    }),
    ("a back-reference", ProblemKind::Name, Left::All, |store, batch| {
        let entry = named(store, "another name");
        batch.delete(TREE, &key::back_reference(entry.ino, entry.dir, entry.cookie));
    }),
    ("a back-reference too many", ProblemKind::Name, Left::All, |store, batch| {
        let entry = named(store, "another name");
        batch.put(TREE, &key::back_reference(entry.ino, entry.dir, 5 << 8), b"");
    }),
    ("the kind of a name", ProblemKind::Name, Left::All, |store, batch| {
        let mut entry = named(store, "tiny too");
        entry.target = Target::Linked(format::inode_record::FileKind::Fifo);
        put_entry(batch, &entry, entry.cookie);
    }),
    ("the place of a name", ProblemKind::Name, Left::All, |store, batch| {
        let entry = named(store, "deeper");
        let record = directory(store, entry.ino);
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
        put_entry(batch, &entry, 79 << 8);
        let moved = DirectoryRecord { parent_cookie: 79 << 8, ..record };
        put_directory(batch, entry.ino, &moved);
    }),
    ("a chain", ProblemKind::Name, Left::All, |store, batch| {
        // In a collision's place, with nothing before it.
        let entry = named(store, "deeper");
        let record = directory(store, entry.ino);
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
        put_entry(batch, &entry, entry.cookie + 1);
        let moved = DirectoryRecord { parent_cookie: entry.cookie + 1, ..record };
        put_directory(batch, entry.ino, &moved);
    }),
    ("an entry of a small file", ProblemKind::Name, Left::Less, |store, batch| {
        let entry = named(store, "small 9");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
    }),
    ("an entry of a large file", ProblemKind::Contents, Left::Less, |store, batch| {
        let entry = named(store, "large 1");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes));
    }),
    ("contents of a small file", ProblemKind::Contents, Left::Less, |store, batch| {
        let entry = named(store, "small 9");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Bulk));
    }),
    ("attributes", ProblemKind::Contents, Left::Less, |store, batch| {
        let entry = named(store, "small 3");
        batch.delete(TREE, &key::entry(entry.dir, entry.cookie, Part::Xattrs));
    }),
    ("an extent", ProblemKind::Contents, Left::Less, |store, batch| {
        let entry = named(store, "large 3");
        batch.delete(TREE, &key::extent(entry.ino, 0));
    }),
    ("an orphan that nothing lists", ProblemKind::Name, Left::All, |store, batch| {
        let entry = named(store, "one name");
        let record = LinkedRecord { nlink: 0, ..linked(store, entry.ino) };
        put_linked(batch, 888_888, &record);
    }),
    ("an orphan that is not there", ProblemKind::Name, Left::All, |_, batch| {
        batch.put(VOLUME, &key::orphan(1, 777_777), b"");
    }),
    ("the count of a segment", ProblemKind::Space, Left::All, |store, batch| {
        batch.put(VOLUME, &segment_of(store), &0_i64.to_le_bytes());
    }),
    ("the count of a subvolume", ProblemKind::Space, Left::All, |store, batch| {
        let (id, _) = subvolumes(store).remove(0);
        let value = UsageRecord { files: 3, bytes: 4, counted: true }.encode();
        batch.put(VOLUME, &key::usage(id), &value);
    }),
    ("the name of a snapshot", ProblemKind::Subvolume, Left::All, |store, batch| {
        let all = subvolumes(store);
        let (_, record) = all.iter().find(|(_, record)| record.snapshot).expect("it is there");
        let key = key::snapshot_name(record.lineage, record.root, &record.name);
        batch.delete(VOLUME, &key);
    }),
    ("a name of no snapshot", ProblemKind::Subvolume, Left::All, |_, batch| {
        batch.put(VOLUME, &key::snapshot_name(1, 2, b"ghost"), &9999_u64.to_le_bytes());
    }),
    ("the place of a subvolume", ProblemKind::Subvolume, Left::All, |store, batch| {
        let all = subvolumes(store);
        let mounted = all.iter().find(|(_, record)| record.parent.0 != 0).expect("it is there");
        let record = SubvolumeRecord { parent: (1, 2, 3 << 8), ..mounted.1.clone() };
        batch.put(VOLUME, &key::subvolume(mounted.0), &record.encode());
    }),
    ("the entry of a subvolume", ProblemKind::Subvolume, Left::Less, |store, batch| {
        let clone = named(store, "clone");
        batch.delete(TREE, &key::entry(clone.dir, clone.cookie, Part::Attributes));
    }),
    ("the record of a subvolume", ProblemKind::Name, Left::Less, |store, batch| {
        let all = subvolumes(store);
        let clone = named(store, "clone");
        let (id, _) =
            all.iter().find(|(id, _)| clone.target == Target::Subvolume(*id)).expect("it is there");
        batch.delete(VOLUME, &key::subvolume(*id));
        batch.delete(VOLUME, &key::usage(*id));
    }),
    ("the tree of a subvolume", ProblemKind::Subvolume, Left::Less, |store, batch| {
        let all = subvolumes(store);
        let (_, record) = all.iter().find(|(_, record)| record.snapshot).expect("it is there");
        batch.drop_tree(TreeId(record.tree));
    }),
    ("a tree that nobody names", ProblemKind::Lost, Left::All, |_, batch| {
        batch.clone_tree(TREE, TreeId(key::FIRST_TREE + 40));
        let counter = key::counter(Counter::NextTree);
        batch.put(VOLUME, &counter, &(key::FIRST_TREE + 41).to_le_bytes());
    }),
    ("the counter of trees", ProblemKind::Subvolume, Left::All, |_, batch| {
        batch.put(VOLUME, &key::counter(Counter::NextTree), &33_u64.to_le_bytes());
    }),
    ("the base of an index", ProblemKind::Index, Left::All, |store, batch| {
        let all = subvolumes(store);
        let (_, record) = all.iter().find(|(_, record)| record.base != 0).expect("it is there");
        batch.delete(VOLUME, &key::base(record.base));
    }),
];

pub(super) fn broken(made: &Made, change: Change) -> SimDevice {
    let device = made.device.copy();
    falsify(&device, |store| {
        let mut batch = Batch::new();
        change(store, &mut batch);
        store.commit(&batch).expect("it is there");
    });
    device
}

fn what_contradicts_is_found_and_repaired(engine: Engine) {
    let made = made(engine, 1);
    super::assert_clean(&made.device, "as made");
    for (what, kind, left, change) in CASES {
        let device = broken(&made, *change);
        let report = check(&device);
        let found = report.problems.iter().find(|problem| problem.kind == *kind);
        let found = found.unwrap_or_else(|| panic!("{what}: not found:\n{}", reported(&report)));
        let named = !found.path.is_empty() || found.subvolume != 0 || found.ino != 0;
        assert!(named || found.what.contains(char::is_numeric), "{what}: where? {found:?}");
        let repaired = repair(&device);
        super::assert_repaired(what, &report, &repaired);
        let looked = look(&device.copy(), &made.right);
        assert_eq!((looked.refused, &looked.closed), (0, &None), "{what}: {looked:?}");
        match left {
            Left::All => assert!(looked.is_same(), "{what}: {looked:#?}"),
            Left::Less => assert!(looked.right > 300, "{what}: {looked:#?}"),
        }
        println!("{what}: {} found, {} repaired", report.problems_count, repaired.repaired.len());
    }
}

fn a_repair_that_is_cut_off_anywhere_is_gone_on_with(engine: Engine) {
    let made = made(engine, 2);
    for name in ["a circle", "a linked inode", "a directory and its entry", "a chain"] {
        let change = CASES.iter().find(|(what, ..)| *what == name).expect("it is there").3;
        let start = broken(&made, change);
        let whole = start.copy();
        let before = whole.ops();
        repair(&whole);
        let ops = whole.ops() - before;
        let right = look(&whole.copy(), &made.right);
        let step = if std::env::var_os("PANDO_SLOW").is_some() { 1 } else { 1 + ops / 12 };
        for op in (0..ops).step_by(step as usize) {
            let device = start.copy();
            device.crash_at(device.ops() + op);
            let mut proceed = |_, _| std::ops::ControlFlow::Continue(());
            // It fails, or was through.
            drop(fs::Fs::repair(&super::env_of(&device), fs::Repair::Do, &mut proceed));
            let device = device.after_crash(testing::CrashPolicy::Random, op);
            let repaired = repair(&device);
            let place = format!("{name}, cut at {op} of {ops}");
            assert!(repaired.after.is_clean(), "{place}:\n{}", reported(&repaired.after));
            let looked = look(&device, &made.right);
            assert_eq!(looked.wrong.len(), right.wrong.len(), "{place}: {looked:#?}");
            assert_eq!((looked.refused, &looked.closed), (0, &None), "{place}");
        }
    }
}

/// Truncates a record: what is left of it does not decode.
fn cut(store: &dyn Store, batch: &mut Batch, tree: TreeId, key: &[u8]) {
    let value = store.get(tree, key).expect("it is there").expect("it is there");
    batch.put(tree, key, &value[..value.len() / 2]);
}

/// A record that does not decode is unknown: nothing that it may name or own is given away.
fn a_record_that_does_not_decode_costs_nothing_else(engine: Engine) {
    let made = made(engine, 3);
    let cases: [(&str, Change); 4] = [
        ("of a snapshot", |store, batch| {
            let all = subvolumes(store);
            let (id, _) = all.iter().find(|(_, record)| record.snapshot).expect("it is there");
            cut(store, batch, VOLUME, &key::subvolume(*id));
        }),
        ("of a scan", |_, batch| {
            let tree = TreeId(key::FIRST_TREE + 40);
            batch.clone_tree(TREE, tree);
            let next = (key::FIRST_TREE + 41).to_le_bytes();
            batch.put(VOLUME, &key::counter(Counter::NextTree), &next);
            batch.put(VOLUME, &key::scan(77), b"x");
        }),
        ("of an entry", |store, batch| {
            let entry = named(store, "large 3");
            let key = key::entry(entry.dir, entry.cookie, Part::Attributes);
            cut(store, batch, TREE, &key);
        }),
        ("of an inode", |store, batch| {
            let ino = named(store, "one name").ino;
            cut(store, batch, TREE, &key::linked(ino, Part::Attributes));
        }),
    ];
    for (what, change) in cases {
        let repaired = repair(&broken(&made, change));
        let rest: Vec<_> = repaired.repaired.iter().map(|problem| &problem.what).collect();
        assert!(rest.is_empty(), "{what}: repaired {rest:#?}");
        let left = &repaired.after.problems;
        assert!(
            left.iter().any(|problem| problem.kind == ProblemKind::Structure),
            "{what}:\n{}",
            reported(&repaired.after)
        );
    }
}

/// A list that is lost takes the group's rights with it: the bits were its mask.
fn nobody_gets_more_by_the_loss_of_a_list(engine: Engine) {
    use format::acl::{ACCESS, IN_MODE};
    use format::xattr_record::XattrRecord;
    let made = made(engine, 4);
    // A directory, an inode beside its entry and a linked one; their attributes gone, or whole
    // without a list, or with what is none.
    for (name, mode, lost) in [
        ("one", 0o1775, None),
        ("one", 0o1775, Some(&b"x"[..])),
        ("small 3", 0o4674, None),
        ("small 3", 0o4674, Some(b"")),
        ("small 3", 0o4674, Some(b"x")),
        ("tiny", 0o777, None),
        ("tiny", 0o777, Some(b"")),
        ("large 3", 0o770, Some(b"alone")),
    ] {
        let device = made.device.copy();
        falsify(&device, |store| {
            let mut entry = named(store, name);
            let mut batch = Batch::new();
            let key = match &mut entry.target {
                Target::Directory => {
                    let record = directory(store, entry.ino);
                    let record =
                        DirectoryRecord { mode: mode | IN_MODE, has_xattrs: true, ..record };
                    put_directory(&mut batch, entry.ino, &record);
                    key::directory(entry.ino, Part::Xattrs).to_vec()
                }
                Target::Embedded(inode) => {
                    (inode.mode, inode.has_xattrs) = (mode | IN_MODE, true);
                    put_entry(&mut batch, &entry, entry.cookie);
                    key::entry(entry.dir, entry.cookie, Part::Xattrs).to_vec()
                }
                _ => {
                    let mut record = linked(store, entry.ino);
                    (record.inode.mode, record.inode.has_xattrs) = (mode | IN_MODE, true);
                    put_linked(&mut batch, entry.ino, &record);
                    key::linked(entry.ino, Part::Xattrs).to_vec()
                }
            };
            let mut xattrs = XattrRecord::default();
            match lost {
                None => batch.delete(TREE, &key),
                Some(list) => {
                    if list != b"alone" {
                        xattrs.set(b"user.other", b"kept");
                    }
                    if !list.is_empty() {
                        xattrs.set(ACCESS, list);
                    }
                    batch.put(TREE, &key, &xattrs.encode());
                }
            }
            store.commit(&batch).expect("it is there");
        });
        let repaired = repair(&device);
        let place = format!(
            "{name} {lost:?}:\n{}{}",
            reported(&repaired.before),
            reported(&repaired.after)
        );
        assert!(repaired.after.is_clean() && repaired.failed.is_empty(), "{place}");
        assert_eq!(repaired.repaired.len(), 1, "{place}");
        falsify(&device, |store| {
            let entry = named(store, name);
            let (now, has_xattrs) = match entry.target {
                Target::Directory => {
                    let record = directory(store, entry.ino);
                    (record.mode, record.has_xattrs)
                }
                Target::Embedded(inode) => (inode.mode, inode.has_xattrs),
                _ => {
                    let record = linked(store, entry.ino);
                    (record.inode.mode, record.inode.has_xattrs)
                }
            };
            assert_eq!(now, mode & !0o070, "{place}");
            assert_eq!(has_xattrs, lost.is_some_and(|lost| lost != b"alone"), "{place}");
        });
    }
}

/// Contents of an inode whose record is gone are kept, whatever happens to its names.
fn small_contents_of_a_linked_inode_are_kept(engine: Engine) {
    let made = made(engine, 1);
    let change = CASES.iter().find(|(what, ..)| *what == "a linked inode").expect("it is there").3;
    let device = broken(&made, change);
    let repaired = repair(&device);
    assert!(repaired.after.is_clean(), "{}", reported(&repaired.after));
    let mut kept = false;
    falsify(&device, |store| {
        let mut cursor =
            store.scan(TREE, KeyRange::prefix(&key::DIRECTORIES_PREFIX)).expect("it is there");
        let found = entries(store, TREE);
        while let Some(item) = cursor.next().expect("it is there") {
            let Ok(Parsed::Entry { directory, cookie, part: Part::Bulk }) = key::parse(item.key)
            else {
                continue;
            };
            let owner = found.iter().find(|it| (it.dir, it.cookie) == (directory, cookie));
            let found_again = owner.is_some_and(|it| it.name.starts_with(b"#"));
            kept |= found_again && item.value == b"tiny";
        }
    });
    assert!(kept, "its contents are in lost+found");
}

/// Names that something else has keep nothing from being kept.
fn what_is_found_is_kept_where_lost_and_found_is_no_directory(engine: Engine) {
    let made = made(engine, 1);
    let change = CASES.iter().find(|(what, ..)| *what == "a linked inode").expect("it is there").3;
    let device = made.device.copy();
    let subject = super::volume::open(&device).expect("it is there");
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    subject.fs().mknod(&root, NodeId::ROOT, b"lost+found", &new).expect("a file");
    subject.fs().symlink(&root, NodeId::ROOT, b"lost+found.1", b"one").expect("a link");
    subject.fs().close().expect("it is there");
    drop(subject);
    falsify(&device, |store| {
        let mut batch = Batch::new();
        change(store, &mut batch);
        store.commit(&batch).expect("it is there");
    });
    let before = check(&device);
    let repaired = repair(&device);
    super::assert_repaired("lost+found is a file", &before, &repaired);
    falsify(&device, |store| {
        assert!(matches!(named(store, "lost+found").target, Target::Embedded(_)));
        assert!(matches!(named(store, "lost+found.1").target, Target::Embedded(_)));
        let kept = named(store, "lost+found.2");
        assert_eq!(kept.target, Target::Directory);
        let inside = entries(store, TREE).into_iter().filter(|entry| entry.dir == kept.ino);
        assert!(inside.count() > 0, "it is in there");
    });
}

/// Numbers that no counting error produces, only falsified records: they are reported or refused,
/// and neither stop the program nor make the check endless.
fn numbers_out_of_all_bounds_are_reported(engine: Engine) {
    let made = made(engine, 21);
    let big = |number: u64| number.to_le_bytes().to_vec();
    let falsified: [(&str, Vec<u8>, Vec<u8>); 8] = [
        ("next tree", key::counter(Counter::NextTree).to_vec(), big(1 << 60)),
        ("next tree", key::counter(Counter::NextTree).to_vec(), big(u64::MAX)),
        ("reserved tree", key::counter(Counter::NextTree).to_vec(), big(0)),
        ("root", key::counter(Counter::Root).to_vec(), big(u64::MAX)),
        ("epoch", key::counter(Counter::Epoch).to_vec(), big(u64::MAX)),
        ("epoch before a clone", key::counter(Counter::Epoch).to_vec(), big(0)),
        ("orphan", key::orphan(u64::MAX, u64::MAX).to_vec(), Vec::new()),
        ("pages", key::segment(1).to_vec(), big(i64::MAX as u64)),
    ];
    for (what, key, value) in falsified {
        println!("{what}: {value:02x?}");
        let device = made.device.copy();
        falsify(&device, |store| {
            let mut batch = Batch::new();
            batch.put(VOLUME, &key, &value);
            store.commit(&batch).expect("it is there");
        });
        check(&device);
        repair(&device);
        // It opens and works, or reports why not.
        if let Ok(subject) = super::volume::open(&device) {
            for _ in 0..20 {
                drop(subject.fs().background_step(64));
            }
            drop(subject.fs().status());
        }
    }
}

/// A number of an inode or subvolume beyond what is handed out is damage of its record.
fn a_root_out_of_bounds_is_damage_and_not_a_panic(engine: Engine) {
    let made = made(engine, 22);
    let device = made.device.copy();
    falsify(&device, |store| {
        let key = key::subvolume(1);
        let bytes = store.get(VOLUME, &key).expect("it is there").expect("it is there");
        let record = SubvolumeRecord::decode(&bytes).expect("it is there");
        let mut batch = Batch::new();
        let far = SubvolumeRecord { root: key::INO_MAX + 1, ..record };
        batch.put(VOLUME, &key, &far.encode());
        store.commit(&batch).expect("it is there");
    });
    assert!(!check(&device).is_clean(), "it is reported");
    let opened = super::volume::open(&device).map(drop);
    assert!(matches!(opened, Err(OpenError::Inconsistent(_))), "{opened:?}");
}

/// An inode whose record has no name is not removed while a record that does not decode may be
/// the name.
fn nothing_is_taken_for_unlinked_beside_a_record_that_does_not_decode(engine: Engine) {
    let made = made(engine, 23);
    let device = made.device.copy();
    let mut victim = 0;
    falsify(&device, |store| {
        let (one, other) = (named(store, "one name"), named(store, "another name"));
        victim = one.ino;
        let mut batch = Batch::new();
        for entry in [&one, &other] {
            batch.put(TREE, &key::entry(entry.dir, entry.cookie, Part::Attributes), b"?");
            batch.delete(TREE, &key::back_reference(one.ino, entry.dir, entry.cookie));
        }
        let mut value = Vec::new();
        LinkedRecord { nlink: 0, ..linked(store, one.ino) }.encode(&mut value);
        batch.put(TREE, &key::linked(one.ino, Part::Attributes), &value);
        store.commit(&batch).expect("it is there");
    });
    let before = check(&device);
    assert!(!before.is_clean());
    assert!(!reported(&before).contains("not queued for removal"), "{}", reported(&before));
    repair(&device);
    let mut kept = false;
    falsify(&device, |store| {
        let key = key::linked(victim, Part::Attributes);
        kept = store.get(TREE, &key).expect("it is there").is_some();
    });
    assert!(kept, "the inode was removed");
}
