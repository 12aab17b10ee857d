//! An inode that stands beside two names: they become names of one, and no contents are lost.

use format::key::{self, Part};
use fs::ProblemKind;
use store::{Batch, Store};

use super::records::{Change, Entry, TREE, broken, named, put_entry};
use super::volume::{look, made};
use super::{check, repair, told};

/// Puts an inode beside another name, too; tells where.
fn beside(store: &dyn Store, batch: &mut Batch, name: &str) -> (u64, u64) {
    let (entry, dir) = (named(store, name), named(store, "deeper").ino);
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
        assert!(
            mended.after.is_clean() && mended.failed.is_empty(),
            "{what}: before:\n{}after:\n{}failed: {:?}",
            told(&report),
            told(&mended.after),
            mended.failed
        );
        let looked = look(&device.copy(), &made.right);
        assert_eq!((looked.refused, &looked.closed), (0, &None), "{what}: {looked:?}");
        assert!(looked.right > 300, "{what}: {looked:#?}");
    }
}
