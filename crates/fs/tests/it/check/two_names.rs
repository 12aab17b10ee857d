//! An inode that is stored beside two names: they become names of one, and no contents are lost.

use format::key::{self, Part};
use fs::{Engine, ProblemKind};
use store::{Batch, KeyRange, Store};

use super::records::{Change, Entry, TREE, broken, named, put_entry};
use super::volume::{falsify, look, made};
use super::{check, repair, reported};

on_each_engine!(
    an_inode_beside_two_names_gets_both,
    contents_of_three_names_are_all_kept,
    attributes_of_all_names_are_kept,
);

/// Stores an inode beside another name, too; returns where.
fn beside(store: &dyn Store, batch: &mut Batch, name: &str) -> (u64, u64) {
    beside_in(store, batch, name, "deeper")
}

fn beside_in(store: &dyn Store, batch: &mut Batch, name: &str, dir: &str) -> (u64, u64) {
    let (entry, dir) = (named(store, name), named(store, dir).ino);
    let cookie = entry.cookie;
    put_entry(batch, &Entry { dir, ..entry }, cookie);
    (dir, cookie)
}

fn an_inode_beside_two_names_gets_both(engine: Engine) {
    let made = made(engine, 4);
    let cases: [(&str, Change); 3] = [
        ("small 9", |store, batch| {
            let (dir, cookie) = beside(store, batch, "small 9");
            batch.put(TREE, &key::entry(dir, cookie, Part::Bulk), b"other contents");
        }),
        ("small 9", |store, batch| _ = beside(store, batch, "small 9")),
        ("large 1", |store, batch| _ = beside(store, batch, "large 1")),
    ];
    for (what, change) in cases {
        let device = broken(&made, change);
        let report = check(&device);
        let twice = |problem: &&fs::Problem| problem.what.contains("beside another name");
        let found = report.problems.iter().find(twice);
        let found = found.unwrap_or_else(|| panic!("{what}: not found:\n{}", reported(&report)));
        assert_eq!(found.kind, ProblemKind::Name);
        let repaired = repair(&device);
        super::assert_repaired(what, &report, &repaired);
        let looked = look(&device.copy(), &made.right);
        assert_eq!((looked.refused, &looked.closed), (0, &None), "{what}: {looked:?}");
        assert!(looked.right > 300, "{what}: {looked:#?}");
    }
}

/// The same name, so the same hash, in three directories, and three contents.
fn contents_of_three_names_are_all_kept(engine: Engine) {
    let made = made(engine, 4);
    // One is kept before, so that there is a place for what is kept.
    let device = broken(&made, |store, batch| {
        let (dir, cookie) = beside(store, batch, "small 8");
        batch.put(TREE, &key::entry(dir, cookie, Part::Bulk), b"zero");
    });
    assert!(repair(&device).after.is_clean());
    let mut first = None;
    falsify(&device, |store| {
        let mut batch = Batch::new();
        let entry = named(store, "small 9");
        first = store.get(TREE, &key::entry(entry.dir, entry.cookie, Part::Bulk)).expect("read");
        for (dir, bytes) in [("deeper", b"one"), ("deep", b"two")] {
            let (dir, cookie) = beside_in(store, &mut batch, "small 9", dir);
            batch.put(TREE, &key::entry(dir, cookie, Part::Bulk), bytes);
        }
        store.commit(&batch).expect("commit");
    });
    let repaired = repair(&device);
    assert!(repaired.failed.is_empty(), "{:?}", repaired.failed);
    assert!(repaired.after.is_clean(), "{}", reported(&repaired.after));
    falsify(&device, |store| {
        let mut all = Vec::new();
        let prefix = key::DIRECTORIES_PREFIX;
        let mut cursor = store.scan(TREE, KeyRange::prefix(&prefix)).expect("scan");
        while let Some(item) = cursor.next().expect("read") {
            all.push(item.value.to_vec());
        }
        let first = first.as_deref().expect("it is small");
        for bytes in [b"one", b"two", first] {
            let kept = all.iter().any(|value| value == bytes);
            assert!(kept || is_at_the_inode(store, bytes), "{} bytes are lost", bytes.len());
        }
    });
}

/// Whether the inode that the names point to has these contents.
fn is_at_the_inode(store: &dyn Store, bytes: &[u8]) -> bool {
    let ino = named(store, "small 9").ino;
    let bulk = store.get(TREE, &key::linked(ino, Part::Bulk)).expect("read");
    bulk.is_some_and(|bulk| bulk == bytes)
}

/// Attributes that only one of the names has are kept. Where two have one name the newest wins. An
/// attribute that would let others in is not taken over.
fn attributes_of_all_names_are_kept(engine: Engine) {
    use format::entry_record::Target;
    use format::xattr_record::XattrRecord;
    let made = made(engine, 4);
    let device = made.device.copy();
    let attributes = |all: &[(&str, &str)]| {
        let mut record = XattrRecord::default();
        for (name, value) in all {
            record.set(name.as_bytes(), value.as_bytes());
        }
        record.encode()
    };
    falsify(&device, |store| {
        let mut batch = Batch::new();
        let mut entry = named(store, "small 9");
        let later = [("deeper", 1), ("deep", 2)];
        let names = later.map(|(dir, more)| (named(store, dir).ino, more));
        let places = [(entry.dir, 0)].into_iter().chain(names);
        for (dir, more) in places {
            let Target::Embedded(inode) = &mut entry.target else { panic!("it is small") };
            (inode.has_xattrs, inode.ctime) = (true, inode.ctime + more);
            put_entry(&mut batch, &Entry { dir, ..entry.clone() }, entry.cookie);
            let bulk = key::entry(entry.dir, entry.cookie, Part::Bulk);
            let bulk = store.get(TREE, &bulk).expect("read").expect("it is small");
            batch.put(TREE, &key::entry(dir, entry.cookie, Part::Bulk), &bulk);
            let own = [("user.of", "all"), ("user.x", ["first", "second", "third"][more as usize])];
            let mut all = own.to_vec();
            all.extend(
                [
                    [("user.first", "1"), ("security.capability", "first")].as_slice(),
                    &[("trusted.second", "2"), ("user.y", "second")],
                    &[("user.z", "third")],
                ][more as usize],
            );
            batch.put(TREE, &key::entry(dir, entry.cookie, Part::Xattrs), &attributes(&all));
        }
        store.commit(&batch).expect("commit");
    });
    let repaired = repair(&device);
    assert!(
        repaired.failed.is_empty() && repaired.after.is_clean(),
        "{}",
        reported(&repaired.after)
    );
    falsify(&device, |store| {
        let ino = named(store, "small 9").ino;
        let bytes = store.get(TREE, &key::linked(ino, Part::Xattrs)).expect("read");
        let record = XattrRecord::decode(&bytes.expect("it has attributes")).expect("a record");
        let found: Vec<_> = record
            .iter()
            .map(|(name, value)| [name, b"=", value].concat())
            .map(|text| String::from_utf8(text).expect("text"))
            .collect();
        let mut wanted = vec![
            "user.of=all",
            "user.x=third",
            "user.first=1",
            "trusted.second=2",
            "user.y=second",
            "user.z=third",
        ];
        let mut found: Vec<&str> = found.iter().map(String::as_str).collect();
        wanted.sort_unstable();
        found.sort_unstable();
        assert_eq!(found, wanted);
    });
}
