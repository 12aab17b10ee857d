//! Copies of copies in any number stop no change and no look-up. Nor do copies that are made while
//! others are given theirs, and heirs that are damaged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::key;
use fs::FileSystem;
use inode::{NodeId, SubvolId};
use ops::subvolumes::SeenHeirs;
use store::{Maintain, Read, TreeId};

use super::inherit_scope::{entry_of, heirs, put};
use super::{contents, forget, home, root, settle, snapshot_root};
use crate::support::{Volume, assert_whole, volume};

fn nested(v: &Volume, parent: NodeId, name: &str) -> NodeId {
    v.fs.subvolume_create(&root(), parent, name.as_bytes(), 0o755).expect("space").node
}

fn clone(v: &Volume, source: NodeId, parent: NodeId, name: &str) -> NodeId {
    v.fs.clone_dir(&root(), source, parent, name.as_bytes()).expect("space");
    v.find(parent, name).expect("the clone").node
}

fn walk(v: &Volume, mut at: NodeId, way: &[&str]) -> NodeId {
    for (depth, name) in way.iter().enumerate() {
        let found = v.find(at, name);
        at = found.unwrap_or_else(|error| panic!("{name} at {depth} of {way:?}: {error}")).node;
    }
    at
}

/// Each generation changes a subvolume in the copy, which so inherits from one more.
#[test]
fn a_nested_subvolume_is_copied_through_any_number_of_generations() {
    let v = volume();
    let mut dir = v.dir(home(), "d").node;
    let inner = nested(&v, dir, "c");
    nested(&v, inner, "o");
    for round in 0..60 {
        dir = clone(&v, dir, home(), &format!("d{round}"));
        nested(&v, walk(&v, dir, &["c"]), &format!("o{round}"));
    }
    assert_eq!(v.sorted(walk(&v, dir, &["c"])).len(), 61);
    assert_eq!(v.sorted(inner), ["o"]);
    // Callers that copy work for those that inherit from very many.
    let most = heirs(&v.store).into_iter().map(|(_, homes)| homes).max();
    assert!(most.is_some_and(|most| most <= 64), "{most:?} homes");
    settle(&v);
    assert_whole(&v.fs);
}

/// Copies of what is above are made while nothing in it is given. So each copy of the inner one
/// inherits from all before, and no call of a user made it. The 65th look-up failed.
#[test]
fn what_is_given_inherits_from_no_more_homes_than_a_record_has() {
    const ROUNDS: usize = 70;
    let v = volume();
    let first = nested(&v, home(), "s1");
    let inner = nested(&v, nested(&v, nested(&v, first, "d"), "c"), "x");
    let file = v.file(inner, "f").node;
    v.write(file, 0, b"before");
    let mut last = first;
    for round in 2..=ROUNDS + 1 {
        let next = nested(&v, home(), &format!("s{round}"));
        v.fs.clone_dir(&root(), last, next, b"copy").expect("space");
        last = next;
    }
    for round in 1..=ROUNDS {
        let top = format!("s{}", round + 1);
        let mut way = vec![&top[..]];
        way.extend(vec!["copy"; round]);
        way.extend(["d", "c", "x"]);
        let copy = walk(&v, home(), &way);
        assert_eq!(contents(&v, copy), [("f".to_owned(), b"before".to_vec())], "{round}");
    }
    let most = heirs(&v.store).into_iter().map(|(_, homes)| homes).max();
    assert!(most.is_some_and(|most| most <= 64), "{most:?} homes");
    v.write(file, 0, b"after.");
    for round in [1, 2, 33, 64, 65, ROUNDS] {
        let top = format!("s{}", round + 1);
        let mut way = vec![&top[..]];
        way.extend(vec!["copy"; round]);
        way.extend(["d", "c", "x"]);
        let copy = walk(&v, home(), &way);
        assert_eq!(contents(&v, copy), [("f".to_owned(), b"before".to_vec())], "{round}");
    }
    settle(&v);
    assert_whole(&v.fs);
}

/// Commits of a call that copies no more than what it looks at or changes, and for one heir.
const FEW: u64 = 4;

/// A look-up completes what has 64 homes, with a commit for each subvolume mounted in it, and a
/// first change gives to all heirs. Front ends learn that before the call, because they have few
/// threads for such calls.
#[test]
fn calls_that_copy_many_subvolumes_are_announced() {
    const ROUNDS: usize = 66;
    const NESTED: usize = 40;
    let v = volume();
    let first = nested(&v, home(), "s1");
    let above = nested(&v, nested(&v, first, "d"), "c");
    let inner = nested(&v, above, "x");
    let file = v.file(inner, "f").node;
    for at in 0..NESTED {
        forget(&v, nested(&v, above, &format!("n{at}")));
    }
    let announced = |node, changes| v.fs.copies_first(node, changes);
    assert!(!announced(inner, false) && !announced(file, true), "nothing inherits");
    let mut last = first;
    for round in 2..=ROUNDS + 1 {
        let next = nested(&v, home(), &format!("s{round}"));
        v.fs.clone_dir(&root(), last, next, b"copy").expect("space");
        last = next;
    }
    let commits = || v.store.stats().commits;
    let (mut most, mut looks) = (0, 0);
    for round in 1..=ROUNDS {
        let mut at = v.find(home(), &format!("s{}", round + 1)).expect("it is there").node;
        for name in std::iter::repeat_n("copy", round).chain(["d", "c", "x"]) {
            let (before, is_announced) = (commits(), announced(at, false));
            at = v.find(at, name).expect("it is inherited").node;
            let made = commits() - before;
            assert!(made <= FEW || is_announced, "{made} commits look {name} up in round {round}");
            (most, looks) = (most.max(made), looks + u64::from(is_announced));
        }
    }
    assert!(most >= NESTED as u64, "{most} commits complete one with 64 homes");
    println!("{looks} look-ups are announced, one made {most} commits");
    assert!(announced(file, true), "the next change copies for its heirs");
    v.write(file, 0, b"after.");
    assert!(!announced(file, true), "they have theirs");
    assert!(!announced(inner, false), "the first inherits nothing");
    settle(&v);
    let top = v.find(home(), "s2").expect("it is there").node;
    for (depth, name) in ["", "copy", "d", "c", "x"].into_iter().enumerate() {
        let at = walk(&v, top, &["copy", "d", "c", "x"][..depth]);
        assert!(!announced(at, false), "{name:?} is complete");
    }
}

/// A directory with many subvolumes, so that its copies are not complete soon.
fn with_many(v: &Volume) -> NodeId {
    let dir = v.dir(home(), "many").node;
    for at in 0..2000 {
        forget(v, nested(v, dir, &format!("n{at}")));
    }
    dir
}

/// A copy that was made between two parts had the change begin again with the first heir.
#[test]
fn a_change_beside_a_stream_of_copies_looks_at_each_heir_once() {
    let v = volume();
    let dir = with_many(&v);
    for at in 0..256 {
        v.fs.snapshot_create(&root(), dir, format!("s{at}").as_bytes()).expect("space");
    }
    let changed = v.find(dir, "n5").expect("it is there").node;
    let changed = v.fs.subvol(v.fs.subvolume_of(changed).expect("it")).expect("it");
    let (mut seen, mut parts) = (SeenHeirs::default(), 1);
    while !v.fs.give_part(&changed, &mut seen).expect("space") {
        v.fs.snapshot_create(&root(), dir, format!("t{parts}").as_bytes()).expect("space");
        parts += 1;
        assert!(parts < 12, "{parts} parts");
    }
}

/// The most records read while a thread has the ledger, whatever it commits meanwhile.
fn count_in_turns(v: &Volume) -> Arc<AtomicU64> {
    let most = Arc::new(AtomicU64::new(0));
    let (fs, counted) = (Arc::downgrade(&v.fs), Arc::clone(&most));
    let (turn, now) = (AtomicU64::new(0), AtomicU64::new(0));
    v.store.set_on_read(move || {
        let Some(fs) = fs.upgrade() else { return };
        let turns = fs.admin.turns();
        if turn.swap(turns, Ordering::Relaxed) != turns || !fs.admin.is_locked() {
            now.store(0, Ordering::Relaxed);
        } else {
            counted.fetch_max(now.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    });
    most
}

/// All heirs of a removed subvolume got theirs while the ledger was locked once.
#[test]
fn the_removal_of_an_empty_subvolume_gives_to_few_heirs_at_once() {
    let most_beside = |copies: usize| {
        let v = volume();
        let dir = with_many(&v);
        for at in 0..copies {
            v.fs.snapshot_create(&root(), dir, format!("s{at}").as_bytes()).expect("space");
        }
        let most = count_in_turns(&v);
        v.fs.rmdir(&root(), dir, b"n5").expect("it is empty");
        v.store.set_on_read(|| ());
        for at in [0, copies - 1] {
            let copy = snapshot_root(&v, dir, &format!("s{at}"));
            assert!(v.find(copy, "n5").is_ok(), "s{at}");
        }
        most.load(Ordering::Relaxed)
    };
    let (few, many) = (most_beside(32), most_beside(256));
    println!("{few} records beside 32 heirs, {many} beside 256");
    assert!(many < 2 * few, "{few} records beside 32 heirs, {many} beside 256");
}

const VOLUME: TreeId = TreeId(key::VOLUME_TREE);

/// A snapshot's record is damaged. What it inherits changes all the same, and the snapshot has it
/// as it was when the record is repaired.
#[test]
fn a_damaged_record_of_an_heir_stops_no_change_and_loses_nothing() {
    for is_loaded in [true, false] {
        let v = volume();
        let dir = v.dir(home(), "d").node;
        let files = ["n", "m"].map(|name| {
            let file = v.file(nested(&v, dir, name), "f").node;
            v.write(file, 0, b"before");
            file
        });
        let ids: Vec<SubvolId> = ["s0", "s1", "s2"]
            .map(|name| v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("space").subvol)
            .to_vec();
        if is_loaded {
            // So it is known what is mounted where, and each snapshot is in memory.
            v.write(files[1], 0, b"after.");
        } else {
            drop(v.fs.admin.lock_known(&v.fs));
        }
        let key = key::subvolume(ids[1].0);
        let whole = v.store.get(VOLUME, &key).expect("it reads").expect("it is there");
        put(&*v.store, (VOLUME, &key), b"damage");
        v.write(files[0], 0, b"after.");
        v.write(files[1], 0, b"later.");
        put(&*v.store, (VOLUME, &key), &whole);
        for name in ["s0", "s1", "s2"] {
            for nested in ["n", "m"] {
                let copy = walk(&v, snapshot_root(&v, dir, name), &[nested]);
                let was = [("f".to_owned(), b"before".to_vec())];
                assert_eq!(contents(&v, copy), was, "{name}/{nested}, loaded: {is_loaded}");
            }
        }
        settle(&v);
        assert_whole(&v.fs);
    }
}

/// Each caller that copied did its steps for the oldest heirs, which were damaged, so that no other
/// was completed.
#[test]
fn damaged_heirs_take_no_steps_from_others() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    for name in ["n", "m"] {
        nested(&v, dir, name);
    }
    for at in 0..8 {
        let name = format!("s{at}");
        let made = v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("space").subvol;
        let (tree, key, _) = entry_of(&*v.store, made, dir);
        put(&*v.store, (tree, &key), b"damage");
    }
    for at in 8..120 {
        v.fs.snapshot_create(&root(), dir, format!("s{at}").as_bytes()).expect("space");
    }
    let left = heirs(&v.store).len();
    assert!((8..48).contains(&left), "{left} copies inherit");
}

/// Regression: what inherits something damaged was never complete, so that copies of it inherited
/// from 64 subvolumes in the end. Then a change or a look-up of anything in it failed with EIO.
#[test]
fn damage_of_something_inherited_stops_no_change_of_the_rest() {
    const ROUNDS: usize = 70;
    let v = volume();
    let mut dir = v.dir(home(), "d").node;
    let inner = nested(&v, dir, "c");
    let damaged = v.fs.subvolume_of(nested(&v, inner, "o")).expect("it is there");
    drop(v.fs.admin.lock_known(&v.fs));
    let key = key::subvolume(damaged.0);
    let whole = v.store.get(VOLUME, &key).expect("it reads").expect("it is there");
    put(&*v.store, (VOLUME, &key), b"damage");
    for round in 0..ROUNDS {
        dir = clone(&v, dir, home(), &format!("d{round}"));
        nested(&v, walk(&v, dir, &["c"]), &format!("o{round}"));
    }
    let most = heirs(&v.store).into_iter().map(|(_, homes)| homes).max();
    assert!(most.is_some_and(|most| most <= 64), "{most:?} homes");
    // First changes beside copies that inherit.
    for (at, name) in [(ROUNDS - 1, "last"), (ROUNDS / 2, "half")] {
        let top = v.find(home(), &format!("d{at}")).expect("it is there").node;
        v.fs.snapshot_create(&root(), top, b"s").expect("space");
        nested(&v, walk(&v, top, &["c", "o0"]), name);
        assert_eq!(v.sorted(walk(&v, snapshot_root(&v, top, "s"), &["c", "o0"])).len(), 0);
    }
    put(&*v.store, (VOLUME, &key), &whole);
    let last = walk(&v, dir, &["c"]);
    assert_eq!(v.sorted(last).len(), ROUNDS + 1);
    assert_eq!(v.sorted(walk(&v, last, &["o"])).len(), 0);
    settle(&v);
    assert_whole(&v.fs);
}
