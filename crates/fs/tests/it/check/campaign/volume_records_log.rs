//! The volume's own records, with one of the two trees damaged where the log has changes of it. The
//! volume opens read-only, by the other tree. A repair loses nothing of what the log has.

use std::collections::BTreeSet;

use format::key::{self, Counter};
use fs::{Engine, FileSystem, Repair};
use inode::{Caller, NodeId};
use store::Batch;
use testing::CrashPolicy;

use super::anatomy::{DamageSite, places};
use super::asked::open;
use super::made::made;
use super::media::Media;
use super::run::{check, repair};
use super::volume_records::{
    BASES, COPY, VOLUME, assert_same, engine, flips, is_of_copies, is_of_own, struck,
};
use super::volume_records_later::{leaf_of, with_snapshots, zero};
use crate::check::reported;

#[test]
fn damage_of_either_tree_under_the_log_is_repaired_from_the_log() {
    for (seed, base) in (130..).zip(&BASES) {
        println!("seed {seed}");
        let volume = made(seed, base, false);
        let mut read_only = 0;
        for wanted in [is_of_own as fn(&DamageSite) -> bool, is_of_copies] {
            let all = flips(&volume.crashed, wanted, seed);
            assert!(!all.is_empty(), "{base:?}: nothing of them");
            for (place, bit) in all {
                let what = format!("{base:?}: bit {bit} of {} ({})", place.path, place.structure);
                let at = (&place, bit);
                read_only += u32::from(struck((&volume, &volume.crashed), at, &what));
            }
        }
        assert!(read_only > 0, "{base:?}: the log changes nothing there");
    }
}

/// Names of the snapshots of a directory.
fn names(media: &Media) -> Vec<Vec<u8>> {
    let subject = open(media).unwrap_or_else(|error| panic!("it opens: {error}"));
    let (fs, root) = (subject.fs(), Caller::root());
    let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
    let listed = fs.snapshot_list(&root, one).expect("it answers");
    listed.into_iter().map(|info| info.name).collect()
}

/// Each leaf of both trees of a volume with many snapshots, of which the log has some more, and
/// removes others.
#[test]
fn a_leaf_of_many_under_the_log_is_answered_from_the_copy() {
    for (seed, engine) in [(135, Engine::Btree), (136, Engine::Lsm)] {
        let (media, ..) = with_snapshots(seed, engine);
        let subject = open(&media).expect("it is whole");
        let (fs, root) = (subject.fs(), Caller::root());
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        for n in 0..5 {
            fs.snapshot_create(&root, one, format!("later {n}").as_bytes()).expect("space");
            fs.snapshot_delete(&root, one, format!("s{:03}", n * 100).as_bytes()).expect("space");
        }
        fs.sync().expect("it is written");
        let crashed =
            Media { volume: media.volume.after_crash(CrashPolicy::LoseAll, 1), log: None };
        drop(subject);
        let right = names(&crashed.copy());
        assert_eq!(right.len(), 600);
        let is_of_either = |place: &DamageSite| is_of_own(place) || is_of_copies(place);
        let mut read_only = 0;
        for place in places(&crashed).into_iter().filter(is_of_either) {
            let what = format!("{engine:?}: byte {} of {}", place.offset, place.structure);
            let hurt = crashed.copy();
            hurt.volume.overwrite(&place.path, place.offset, &vec![0; place.length as usize]);
            assert_eq!(names(&hurt.copy()), right, "{what}");
            let subject = open(&hurt.copy()).expect("it opens");
            let is_read_only = subject.fs().status().expect("it answers").read_only.is_some();
            read_only += u32::from(is_read_only);
            drop(subject);
            let repaired = repair(&hurt, Repair::Do);
            assert!(repaired.failed.is_empty(), "{what}: {:?}", repaired.failed);
            assert!(repaired.after.is_clean(), "{what}:\n{}", reported(&repaired.after));
            assert_eq!(names(&hurt.copy()), right, "{what}: after the repair");
            assert_same(&hurt.copy().env(), &what);
            let subject = open(&hurt).expect("it is whole");
            let made = subject.fs().mkdir(&Caller::root(), NodeId::ROOT, b"new", 0o755);
            made.unwrap_or_else(|error| panic!("{what}: it takes changes: {error}"));
            subject.fs().close().expect("there is space");
            drop(subject);
            assert!(check(&hurt).is_clean(), "{what}");
        }
        assert!(read_only > 0, "{engine:?}: the log changes nothing there");
    }
}

/// Nodes of the B-tree are stored in units of 1 KiB, one after the other as they are written.
#[test]
fn no_sector_holds_leaves_of_both_trees() {
    let (media, ..) = with_snapshots(137, Engine::Btree);
    for round in 0..12 {
        let subject = open(&media).expect("it is whole");
        let (fs, root) = (subject.fs(), Caller::root());
        let one = fs.lookup(&root, NodeId::ROOT, b"one").expect("it is there").node;
        for n in 0..=round * 3 {
            fs.snapshot_create(&root, one, format!("r{round}.{n}").as_bytes()).expect("space");
        }
        fs.close().expect("there is space");
        drop(subject);
        let blocks = |is: fn(&DamageSite) -> bool| -> BTreeSet<u64> {
            let all = places(&media).into_iter().filter(is);
            all.flat_map(|place| place.offset / 4096..place.end().div_ceil(4096)).collect()
        };
        let (own, copies) = (blocks(is_of_own), blocks(is_of_copies));
        assert!(own.len() > 4 && copies.len() > 4, "{own:?}, {copies:?}");
        let both: Vec<_> = own.intersection(&copies).collect();
        assert!(both.is_empty(), "round {round}: 4 KiB blocks {both:?} hold both");
    }
}

/// A leaf of either tree that the log changes, and takes away after that with the subvolume that
/// its records were of.
#[test]
fn a_tree_that_is_complete_again_accepts_changes() {
    let (made, ..) = with_snapshots(138, Engine::Btree);
    let orphan = |n: u64| key::orphan(5000, n);
    let both = |fill: &dyn Fn(&mut Batch, store::TreeId)| {
        let mut batch = Batch::new();
        for tree in [VOLUME, COPY] {
            fill(&mut batch, tree);
        }
        batch
    };
    let store = engine(&made.env());
    let all = both(&|batch, tree| (0..4000).for_each(|n| batch.put(tree, &orphan(n), b"")));
    store.commit(&all).expect("there is space");
    while !store.checkpoint().expect("there is space") {}
    store.close().expect("there is space");
    drop(store);
    let before = made.copy();
    let store = engine(&made.env());
    for change in [
        both(&|batch, tree| batch.delete(tree, &orphan(2000))),
        both(&|batch, tree| batch.delete_range(tree, &orphan(0), &orphan(4000))),
    ] {
        store.commit(&change).expect("there is space");
    }
    store.sync(store.last_commit()).expect("it is written");
    let crashed = Media { volume: made.volume.after_crash(CrashPolicy::LoseAll, 1), log: None };
    drop(store);
    for tree in [VOLUME, COPY] {
        let hurt = crashed.copy();
        zero(&hurt, &leaf_of(&before, tree, &orphan(2000), &key::counter(Counter::Root)));
        let subject = open(&hurt).expect("it opens");
        let status = subject.fs().status().expect("it answers");
        assert_eq!((status.read_only, status.damaged), (None, None), "{tree:?}");
        subject.fs().mkdir(&Caller::root(), NodeId::ROOT, b"new", 0o755).expect("it takes it");
        subject.fs().close().expect("there is space");
        drop(subject);
        assert!(check(&hurt).is_clean(), "{tree:?}:\n{}", reported(&check(&hurt)));
        assert_same(&hurt.env(), &format!("{tree:?}"));
    }
}
