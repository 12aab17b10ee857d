//! Inheritance of nested subvolumes concerns those that inherit, and nobody else. Tested are copies
//! of other directories, searches elsewhere, users with quotas, older programs, and damage in a
//! copy.

use format::entry_record::{EntryRecord, Target};
use format::inherited_record::{INHERITED_PREFIX, InheritedRecord};
use format::kept_twice::RootCounter;
use format::key::{self, Counter, Part};
use format::subvolume_record::SubvolumeRecord;
use fs::{Engine, FileSystem, Follow, QuotaLimits, RenameMode};
use inode::{FsError, NodeId, SubvolId};
use search::Outcome;
use search::cluster::Fields;
use search::query::{Expr, Glob, Test};
use store::{Batch, Durability, KeyRange, Maintain, Read, Store, TreeId};
use testing::{MemStore, SimDevice};

use super::{contents, give, home, root, settle, snapshot_root};
use crate::check::volume::{falsify, open};
use crate::check::{assert_repaired, check, repair, reported};
use crate::script::options;
use crate::search::everything_below;
use crate::subject::{Base, FsSubject};
use crate::support::{Volume, assert_whole, refused, user, volume};

on_each_engine!(
    a_search_uses_the_index_where_nothing_is_inherited,
    a_repair_points_the_entry_of_a_snapshot_to_its_copy,
);

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// The copies that inherit, and from how many homes.
pub(super) fn heirs(store: &MemStore) -> Vec<(u64, usize)> {
    let mut cursor = store.scan(VOLUME, KeyRange::prefix(&INHERITED_PREFIX)).expect("a scan");
    let mut found = Vec::new();
    while let Some(item) = cursor.next().expect("a record") {
        let record = InheritedRecord::decode(item.value).expect("it is whole");
        found.push((key::parse_number(item.key).expect("a number"), record.homes.len()));
    }
    found
}

fn nested(v: &Volume, parent: NodeId, name: &str) -> NodeId {
    let made = v.fs.subvolume_create(&root(), parent, name.as_bytes(), 0o755).expect("space").node;
    let file = v.file(made, "f").node;
    v.write(file, 0, b"before");
    made
}

#[test]
fn a_copy_inherits_only_what_is_mounted_below_the_copied_directory() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let plain = v.dir(v.dir(dir, "plain").node, "deep").node;
    let around = v.dir(v.dir(dir, "around").node, "deep").node;
    nested(&v, around, "n");
    v.fs.clone_dir(&root(), plain, home(), b"c1").expect("space");
    let elsewhere = v.dir(home(), "elsewhere").node;
    v.fs.snapshot_create(&root(), elsewhere, b"s").expect("space");
    v.fs.rollback(&root(), elsewhere, b"s").expect("a snapshot");
    assert_eq!(heirs(&v.store), [], "nothing is mounted below");
    let heir = v.fs.clone_dir(&root(), dir, home(), b"c2").expect("space").subvol.0;
    assert_eq!(heirs(&v.store), [(heir, 1)]);
    // The same in a copy that inherits, of what that inherits.
    let copy = v.find(home(), "c2").expect("the clone").node;
    let plain = v.find(copy, "plain").expect("it is there").node;
    v.fs.clone_dir(&root(), plain, home(), b"c3").expect("space");
    assert_eq!(heirs(&v.store), [(heir, 1)]);
    let around = v.find(copy, "around").expect("it is there").node;
    let part = v.fs.clone_dir(&root(), around, home(), b"c4").expect("space").subvol.0;
    assert_eq!(heirs(&v.store), [(heir, 1), (part, 1)]);
    settle(&v);
    assert_eq!(heirs(&v.store), []);
    let way = |name| v.find(v.find(home(), name).expect("a clone").node, "deep");
    let deep = way("c4").expect("it is there").node;
    let copied = v.find(deep, "n").expect("it is there").node;
    assert_eq!(contents(&v, copied), [("f".to_owned(), b"before".to_vec())]);
    assert_whole(&v.fs);
}

/// A copy bounds its reads to learn what it inherits. Beyond the bound it inherits from the whole
/// subvolume, and gets nothing that is not below it.
#[test]
fn a_copy_beside_very_many_mount_points_inherits_from_the_subvolume() {
    let v = volume();
    let plain = v.dir(home(), "plain").node;
    for at in 0..65 {
        let dir = v.dir(home(), &format!("d{at}")).node;
        nested(&v, dir, "n");
    }
    let heir = v.fs.clone_dir(&root(), plain, home(), b"c").expect("space").subvol.0;
    assert_eq!(heirs(&v.store), [(heir, 1)]);
    settle(&v);
    assert_eq!(heirs(&v.store), []);
    assert_eq!(v.fs.status().expect("it is known").clones, 1);
    assert_whole(&v.fs);
}

/// A program that does not know of inheritance would change what is inherited. It refuses the
/// counter of the root, which it reads when it opens the volume.
#[test]
fn a_volume_with_a_copy_that_inherits_is_marked_for_older_programs() {
    let v = volume();
    let features = || {
        let bytes = v.store.get(VOLUME, &key::counter(Counter::Root)).expect("it reads");
        RootCounter::decode(&bytes.expect("it is there")).expect("it is whole").features
    };
    let dir = v.dir(home(), "d").node;
    let plain = v.dir(home(), "plain").node;
    nested(&v, dir, "n");
    v.fs.clone_dir(&root(), plain, home(), b"c1").expect("space");
    assert!(!features().inheritance, "nothing is inherited");
    v.fs.snapshot_create(&root(), dir, b"s").expect("space");
    assert!(features().inheritance);
    v.fs.snapshot_create(&root(), home(), b"all").expect("space");
    v.fs.rollback(&root(), home(), b"all").expect("a snapshot");
    assert!(features().inheritance, "another root has the flag, too");
    settle(&v);
    assert!(features().inheritance);
}

fn search(subject: &FsSubject, node: NodeId) -> Outcome {
    let expr = Expr::Test(Test::Name(Glob::literal(b"f3").expect("it is short")));
    let root = root();
    let request = everything_below(subject.fs(), node, &root, (&expr, Fields::NONE));
    subject.fs().search_counted(&request).expect("a search")
}

fn a_search_uses_the_index_where_nothing_is_inherited(engine: Engine) {
    let device = SimDevice::new(1);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let fs = subject.fs();
    let make = |dir, name: &str| {
        let new = fs::NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
        fs.mknod(&root(), dir, name.as_bytes(), &new).expect("space");
    };
    let dir = fs.mkdir(&root(), NodeId::ROOT, b"d", 0o755).expect("space").node;
    let nested = fs.subvolume_create(&root(), dir, b"n", 0o755).expect("space").node;
    for at in 0..300 {
        make(dir, &format!("f{at}"));
        make(nested, &format!("f{at}"));
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    fs.snapshot_create(&root(), dir, b"s").expect("space");
    let commits = || subject.fs().status().expect("it is known").commits;
    let before = commits();
    let found = search(&subject, NodeId::ROOT);
    assert_eq!(found.matched, 2);
    assert!(found.clusters > 0, "the index answers: {found:?}");
    assert_eq!(commits(), before, "nothing was copied for it");
    // What is copied for a search in a copy that inherits is found by the index.
    fs.clone_dir(&root(), dir, NodeId::ROOT, b"c").expect("space");
    let found = search(&subject, NodeId::ROOT);
    assert_eq!(found.matched, 4);
    assert!(found.clusters > 0, "{found:?}");
}

/// One user's copies do not wait until the copies of all others have what they inherit, and copy
/// nothing, because somebody has a quota.
#[test]
fn a_quota_elsewhere_does_not_have_a_copy_wait_for_what_is_inherited() {
    let v = volume();
    let ada = user(7);
    let limits = QuotaLimits { inodes: Some(100), bytes: None };
    let other = v.dir(home(), "other").node;
    v.fs.quota_set(&root(), other, limits).expect("a quota is set");
    let dir = v.dir(home(), "d").node;
    give(&v, dir, 7);
    for at in 0..50 {
        let made = nested(&v, dir, &format!("n{at}"));
        give(&v, made, 7);
    }
    v.fs.clone_dir(&root(), dir, home(), b"of root").expect("space");
    let of_root = heirs(&v.store);
    let commits = v.store.stats().commits;
    v.fs.clone_dir(&ada, dir, home(), b"c").expect("no limit is in force");
    v.fs.snapshot_create(&ada, dir, b"s").expect("no limit is in force");
    let clone = v.find(home(), "c").expect("it is there").node;
    v.fs.clone_dir(&ada, clone, home(), b"again").expect("no limit is in force");
    assert_eq!(v.store.stats().commits - commits, 3);
    assert!(heirs(&v.store).starts_with(&of_root));
    // Where a limit is in force in what is inherited, the copy is refused, as where it is mounted.
    let first = v.find(dir, "n0").expect("it is there").node;
    v.fs.quota_set(&root(), first, limits).expect("a quota is set");
    v.fs.snapshot_create(&root(), dir, b"limited").expect("root may");
    let limited = snapshot_root(&v, dir, "limited");
    let not = FsError::RootOnly("");
    refused(v.fs.snapshot_create(&ada, dir, b"t").map(drop), &not);
    refused(v.fs.clone_dir(&ada, limited, home(), b"no").map(drop), &not);
    refused(v.fs.rollback(&ada, dir, b"limited"), &not);
    // The clone has it as it was before.
    v.fs.clone_dir(&ada, clone, home(), b"before").expect("no limit is in force there");
    settle(&v);
    refused(v.fs.clone_dir(&ada, limited, home(), b"no").map(drop), &not);
    v.fs.clone_dir(&ada, clone, home(), b"later").expect("no limit is in force there");
    assert_whole(&v.fs);
}

/// The entry of a snapshot that points to the first subvolume in a directory.
pub(crate) fn entry_of(
    store: &dyn Store,
    snapshot: SubvolId,
    dir: NodeId,
) -> (TreeId, Vec<u8>, Vec<u8>) {
    let record = store.get(VOLUME, &key::subvolume(snapshot.0)).expect("it reads");
    let record = SubvolumeRecord::decode(&record.expect("it is there")).expect("it is whole");
    let tree = TreeId(record.tree);
    let range = KeyRange::prefix(&key::directory_prefix(dir.ino().0));
    let mut cursor = store.scan(tree, range).expect("a scan");
    while let Some(item) = cursor.next().expect("a record") {
        let parsed = key::parse(item.key).expect("it is whole");
        if matches!(parsed, key::Parsed::Entry { cookie: 1.., part: Part::Attributes, .. }) {
            return (tree, item.key.to_vec(), item.value.to_vec());
        }
    }
    panic!("an entry points to it");
}

pub(crate) fn put(store: &dyn Store, (tree, key): (TreeId, &[u8]), value: &[u8]) {
    let mut batch = Batch::new();
    batch.put(tree, key, value);
    store.commit(&batch).expect("space");
}

/// A subvolume changes while the tree of a snapshot that inherits it cannot be read. The snapshot
/// has it as it was nevertheless, when it can be read again.
#[test]
fn a_snapshot_that_could_not_be_read_has_what_was_before_a_change() {
    for (reopened, moved) in [(false, false), (true, false), (false, true), (true, true)] {
        let v = volume();
        let dir = v.dir(home(), "d").node;
        let original = nested(&v, dir, "n");
        let snapshot = v.fs.snapshot_create(&root(), dir, b"s").expect("space");
        let (tree, key, value) = entry_of(&*v.store, snapshot.subvol, dir);
        put(&*v.store, (tree, &key), b"damage");
        let file = v.find(original, "f").expect("a file").node;
        v.write(file, 0, b"after.");
        v.fs.snapshot_create(&root(), dir, b"t").expect("space");
        v.write(file, 0, b"later.");
        if moved {
            let to = (home(), &b"out"[..]);
            v.fs.rename(&root(), (dir, b"n"), to, RenameMode::Replace).expect("a move");
        }
        refused(v.find(snapshot_root(&v, dir, "s"), "n"), &FsError::Io(String::new().into()));
        put(&*v.store, (tree, &key), &value);
        let v = if reopened {
            let again = v.reopened();
            Volume { fs: again, env: v.env, store: v.store, header: v.header }
        } else {
            v
        };
        for (name, was) in [("s", b"before"), ("t", b"after.")] {
            let copy = v.find(snapshot_root(&v, dir, name), "n").expect("it was there").node;
            assert_eq!(contents(&v, copy), [("f".to_owned(), was.to_vec())], "{name}");
        }
        settle(&v);
        assert_eq!(heirs(&v.store), []);
        assert_whole(&v.fs);
    }
}

/// How a copy is made of a snapshot whose entry is damaged.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_excessive_bools, reason = "each varies by itself")]
struct OfDamaged {
    /// The entry of the snapshot is repaired before the copy is made, and not looked at.
    repaired_before: bool,
    /// The entry of the copy is damaged when the original changes again.
    changed_damaged: bool,
    /// The snapshot has all of its copies before the copy is looked at.
    settled: bool,
    /// The volume is opened again before.
    reopened: bool,
}

/// A subvolume changes while the tree of a snapshot cannot be read. So the snapshot has it apart,
/// and its entry points to the original. A copy of the snapshot has the same tree, and shows what
/// the snapshot does.
#[test]
fn a_copy_of_a_snapshot_that_could_not_be_read_has_what_the_snapshot_has() {
    for bits in 0..16_u32 {
        let [repaired_before, changed_damaged, settled, reopened] =
            [0, 1, 2, 3].map(|bit| bits & (1 << bit) != 0);
        let way = OfDamaged { repaired_before, changed_damaged, settled, reopened };
        copy_of_damaged(way);
    }
}

fn copy_of_damaged(way: OfDamaged) {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let original = nested(&v, dir, "n");
    let file = v.find(original, "f").expect("a file").node;
    let snapshot = v.fs.snapshot_create(&root(), dir, b"s").expect("space");
    let (tree, key, value) = entry_of(&*v.store, snapshot.subvol, dir);
    put(&*v.store, (tree, &key), b"damage");
    v.write(file, 0, b"after.");
    if way.repaired_before {
        put(&*v.store, (tree, &key), &value);
    }
    let shown = snapshot_root(&v, dir, "s");
    let copy = v.fs.clone_dir(&root(), shown, home(), b"c").expect("space").subvol;
    let again = v.find(home(), "c").expect("the clone").node;
    let second = v.fs.clone_dir(&root(), again, home(), b"again").expect("space").subvol;
    let trees = [copy, second].map(|subvol| {
        let record = v.store.get(VOLUME, &key::subvolume(subvol.0)).expect("it reads");
        let record = SubvolumeRecord::decode(&record.expect("it is there")).expect("it is whole");
        TreeId(record.tree)
    });
    let damage = if way.changed_damaged { b"damage" } else { &value[..] };
    for tree in trees {
        put(&*v.store, (tree, &key), damage);
    }
    v.write(file, 0, b"later.");
    for tree in trees.into_iter().chain([tree]) {
        put(&*v.store, (tree, &key), &value);
    }
    if way.settled {
        v.find(shown, "n").expect("it was there");
        settle(&v);
    }
    let v = if way.reopened {
        let again = v.reopened();
        Volume { fs: again, env: v.env, store: v.store, header: v.header }
    } else {
        v
    };
    let shown = snapshot_root(&v, dir, "s");
    for name in ["again", "c", "s"] {
        let top = if name == "s" { Some(shown) } else { None };
        let top = top.unwrap_or_else(|| v.find(home(), name).expect("a clone").node);
        let copy = v.find(top, "n").expect("it was there").node;
        let was = [("f".to_owned(), b"before".to_vec())];
        assert_eq!(contents(&v, copy), was, "{name}, {way:?}");
    }
    settle(&v);
    assert_eq!(heirs(&v.store), [], "{way:?}");
    assert_whole(&v.fs);
}

/// As after such damage: a snapshot has a copy, and its entry points to the original.
fn a_repair_points_the_entry_of_a_snapshot_to_its_copy(engine: Engine) {
    let device = SimDevice::new(1);
    let base = Base::Engine(engine);
    let subject = FsSubject::format(&device, &options(Durability::Async), &base);
    let fs = subject.fs();
    let dir = fs.mkdir(&root(), NodeId::ROOT, b"d", 0o755).expect("space").node;
    // One stays inherited.
    let [original, _] = [&b"n"[..], b"m"]
        .map(|name| fs.subvolume_create(&root(), dir, name, 0o755).expect("space").node);
    let snapshot = fs.snapshot_create(&root(), dir, b"s").expect("space");
    let mut before = None;
    fs.close().expect("it closes");
    drop(subject);
    falsify(&device, |store| before = Some(entry_of(store, snapshot.subvol, dir)));
    let (tree, key, value) = before.expect("it was read");
    let led = EntryRecord::decode(&value).expect("it is whole").target;
    let subject = open(&device).expect("it opens");
    let name = match led {
        Target::Subvolume(id) if id == subject.fs().subvolume_of(original).expect("it").0 => "n",
        _ => "m",
    };
    let fs = subject.fs();
    let way = format!("/d/{name}");
    let changed = fs.resolve(&root(), way.as_bytes(), Follow::No).expect("it is there").node;
    fs.mkdir(&root(), changed, b"later", 0o755).expect("space");
    fs.close().expect("it closes");
    drop(subject);
    falsify(&device, |store| {
        assert_ne!(entry_of(store, snapshot.subvol, dir).2, value, "it has a copy");
        put(store, (tree, &key), &value);
    });
    let report = check(&device);
    assert_eq!(report.problems.len(), 1, "{}", reported(&report));
    assert_repaired("an entry", &report, &repair(&device));
    let subject = open(&device).expect("it opens");
    let way = format!("/d/.snapshots/s/{name}");
    let copy = subject.fs().resolve(&root(), way.as_bytes(), Follow::No).expect("it is there");
    let later = subject.fs().lookup(&root(), copy.node, b"later");
    assert!(matches!(later, Err(FsError::NotFound)), "{later:?}");
}
