//! An inode that stands beside two names: they become names of one, and no contents are lost.

use format::key::{self, Part};
use fs::ProblemKind;
use store::{Batch, KeyRange, Store};

use super::records::{Change, Entry, TREE, broken, named, put_entry};
use super::volume::{falsify, look, made};
use super::{check, repair, told};

/// Puts an inode beside another name, too; tells where.
fn beside(store: &dyn Store, batch: &mut Batch, name: &str) -> (u64, u64) {
    beside_in(store, batch, name, "deeper")
}

fn beside_in(store: &dyn Store, batch: &mut Batch, name: &str, dir: &str) -> (u64, u64) {
    let (entry, dir) = (named(store, name), named(store, dir).ino);
    let cookie = entry.cookie;
    put_entry(batch, &Entry { dir, ..entry }, cookie);
    (dir, cookie)
}

#[test]
fn an_inode_beside_two_names_gets_both() {
    let made = made(4);
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
        let found = found.unwrap_or_else(|| panic!("{what}: not found:\n{}", told(&report)));
        assert_eq!(found.kind, ProblemKind::Name);
        let mended = repair(&device);
        super::assert_mended(what, &report, &mended);
        let looked = look(&device.copy(), &made.right);
        assert_eq!((looked.refused, &looked.closed), (0, &None), "{what}: {looked:?}");
        assert!(looked.right > 300, "{what}: {looked:#?}");
    }
}

/// The same name, so the same hash, in three directories, and three contents.
#[test]
fn contents_of_three_names_are_all_kept() {
    let made = made(4);
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
    let mended = repair(&device);
    assert!(mended.failed.is_empty(), "{:?}", mended.failed);
    assert!(mended.after.is_clean(), "{}", told(&mended.after));
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

/// Whether the inode that the names lead to has these contents.
fn is_at_the_inode(store: &dyn Store, bytes: &[u8]) -> bool {
    let ino = named(store, "small 9").ino;
    let bulk = store.get(TREE, &key::linked(ino, Part::Bulk)).expect("read");
    bulk.is_some_and(|bulk| bulk == bytes)
}
