//! Subvolumes mounted below a copied directory are inherited: copied on first access or change.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fs::{Engine, FileSystem, Fs, RenameMode};
use inode::{FsError, NodeId};
use search::cluster::Fields;
use search::query::{Expr, Glob, Test};
use store::{Maintain, Store};
use testing::SetAtEnd;

use super::{contents, home, root, snapshot_root};
use crate::search::everything_below;
use crate::support::{Volume, assert_whole, refused, shown, volume, volume_on};

on_each_engine!(
    a_copy_costs_the_same_over_any_number_of_subvolumes,
    doubling_clones_are_each_one_commit,
    changes_beside_clones_are_in_them_in_their_order,
);

/// A directory with so many subvolumes in it, each with a file.
fn with_nested<S: ?Sized>(v: &Volume<S>, name: &str, nested: usize) -> NodeId {
    let dir = v.dir(home(), name).node;
    for at in 0..nested {
        let name = format!("n{at}");
        let made = v.fs.subvolume_create(&root(), dir, name.as_bytes(), 0o755).expect("space").node;
        let file = v.file(made, "f").node;
        v.write(file, 0, b"before");
    }
    dir
}

/// Commits and bytes of their batches that something takes.
fn cost(v: &Volume<dyn Store>, work: impl FnOnce()) -> (u64, u64) {
    let before = v.store.stats();
    work();
    let after = v.store.stats();
    (after.commits - before.commits, after.given_bytes - before.given_bytes)
}

fn a_copy_costs_the_same_over_any_number_of_subvolumes(engine: Engine) {
    let v = volume_on(engine, inode::NameHash::BITS);
    let (few, many) = (with_nested(&v, "few.", 2), with_nested(&v, "many", 2000));
    let costs = [few, many].map(|dir| {
        let clone = cost(&v, || {
            v.fs.clone_dir(&root(), dir, home(), format!("c{}", dir.shown()).as_bytes())
                .expect("space");
        });
        let snapshot = cost(&v, || {
            v.fs.snapshot_create(&root(), dir, b"s").expect("space");
        });
        let rollback = cost(&v, || v.fs.rollback(&root(), dir, b"s").expect("a snapshot"));
        [clone, snapshot, rollback]
    });
    for at in 0..3 {
        assert_eq!(costs[0][at].0, 1, "one commit");
        assert_eq!(costs[1][at].0, 1, "one commit");
        // Numbers take a byte more when they are greater, and the first copy also writes in both
        // counters of the root that copies inherit.
        assert!(costs[1][at].1.abs_diff(costs[0][at].1) < 96, "{costs:?}");
    }
}

/// What commits and bytes do not show: a look at each of them before the commit.
#[test]
fn a_copy_reads_as_much_over_any_number_of_subvolumes() {
    let v = volume();
    let reads = |work: &dyn Fn()| {
        let before = v.store.gets() + v.store.moves();
        work();
        v.store.gets() + v.store.moves() - before
    };
    let costs = [("few.", 2), ("many", 2000)].map(|(name, nested)| {
        let dir = with_nested(&v, name, nested);
        let copy = format!("copy of {name}");
        [
            reads(&|| {
                v.fs.clone_dir(&root(), dir, home(), copy.as_bytes()).expect("space");
            }),
            reads(&|| {
                v.fs.snapshot_create(&root(), dir, b"s").expect("space");
            }),
            reads(&|| v.fs.rollback(&root(), dir, b"s").expect("a snapshot")),
        ]
    });
    for (few, many) in costs[0].iter().zip(costs[1]) {
        assert!(many.abs_diff(*few) < 64, "{costs:?}");
    }
}

/// Each clone of a directory in itself has twice as many subvolumes below it as the one before.
fn doubling_clones_are_each_one_commit(engine: Engine) {
    let v = volume_on(engine, inode::NameHash::BITS);
    let top = v.fs.subvolume_create(&root(), home(), b"top", 0o755).expect("space").node;
    v.file(top, "f");
    for round in 0..16 {
        let (commits, bytes) = cost(&v, || {
            v.fs.clone_dir(&root(), top, top, format!("c{round}").as_bytes()).expect("space");
        });
        assert_eq!(commits, 1);
        assert!(bytes < 2048, "round {round}: {bytes} bytes");
    }
    // Only those of 65,536 subvolumes are copied that are on an accessed path.
    let mut at = top;
    for round in (0..16).rev() {
        at = v.find(at, &format!("c{round}")).expect("the way down").node;
        assert_eq!(v.sorted(at).len(), round + 1);
    }
    let clones = v.fs.status().expect("it is known").clones;
    assert!(clones < 300, "{clones}");
}

/// However long the row of copies of copies, none is refused: a copy waits until the oldest that
/// inherits from the same directory has all.
#[test]
fn copies_of_copies_are_made_without_end() {
    let v = volume();
    let mut last = with_nested(&v, "d", 2);
    for round in 0..70 {
        let name = format!("c{round}");
        v.fs.clone_dir(&root(), last, home(), name.as_bytes()).expect("a copy of a copy");
        last = v.find(home(), &name).expect("the copy").node;
        // One of its own, beside those that it inherits.
        v.fs.subvolume_create(&root(), last, format!("o{round}").as_bytes(), 0o755).expect("space");
    }
    let nested = v.sorted(last);
    assert_eq!(nested.len(), 72, "{nested:?}");
    let file = v.find(v.find(last, "n1").expect("it is inherited").node, "f").expect("a file");
    assert_eq!(v.read(file.node), b"before");
    super::settle(&v);
    assert_whole(&v.fs);
}

#[test]
fn a_change_below_a_clones_source_copies_to_the_clone_first() {
    let v = volume();
    let dir = with_nested(&v, "d", 3);
    let nested = |at: usize| v.find(dir, &format!("n{at}")).expect("it is there").node;
    let deep = v.fs.subvolume_create(&root(), nested(0), b"deep", 0o755).expect("space").node;
    v.file(deep, "f");
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    v.fs.snapshot_create(&root(), dir, b"s").expect("a snapshot");
    // Deepest first: what it is in is given with it.
    v.fs.unlink(&root(), deep, b"f").expect("a file");
    v.write(v.find(nested(0), "f").expect("a file").node, 0, b"after.");
    v.fs.rename(&root(), (dir, b"n1"), (home(), b"moved"), RenameMode::Replace).expect("a move");
    v.fs.rmr(&root(), dir, b"n2").expect("a removal");
    super::settle(&v);
    for copy in [v.find(home(), "c").expect("the clone").node, snapshot_root(&v, dir, "s")] {
        assert_eq!(v.sorted(copy), ["n0", "n1", "n2"]);
        for name in ["n0", "n1", "n2"] {
            let nested = v.find(copy, name).expect("it was there").node;
            let file = v.find(nested, "f").expect("a file").node;
            assert_eq!(v.read(file), b"before", "{name}");
            assert_eq!(v.find(nested, "..").expect("a way up").node, copy);
        }
        let copied = v.find(copy, "n0").expect("it was there").node;
        let deep_copy = v.find(copied, "deep").expect("it was there").node;
        assert_ne!(deep_copy, deep);
        assert_eq!(v.sorted(deep_copy), ["f"]);
    }
    assert_eq!(v.read(v.find(nested(0), "f").expect("a file").node), b"after.");
    assert_whole(&v.fs);
}

#[test]
fn a_clone_into_its_own_inherited_part_has_the_earlier_state() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    let nested = v.find(dir, "n0").expect("it is there").node;
    let deep = v.fs.subvolume_create(&root(), nested, b"deep", 0o755).expect("space").node;
    v.fs.clone_dir(&root(), dir, deep, b"c").expect("a clone");
    refused(v.fs.clone_dir(&root(), dir, deep, b"c"), &FsError::Exists);
    let copy = v.find(deep, "c").expect("the clone").node;
    let nested_copy = v.find(copy, "n0").expect("it was there").node;
    assert_eq!(v.sorted(nested_copy), ["deep", "f"]);
    let deep_copy = v.find(nested_copy, "deep").expect("it was there").node;
    assert_eq!(v.sorted(deep_copy), Vec::<String>::new());
    assert_eq!(v.sorted(deep), ["c"]);
    super::settle(&v);
    assert_whole(&v.fs);
}

#[test]
fn a_listing_shows_what_a_look_up_finds() {
    let v = volume();
    let dir = with_nested(&v, "d", 5);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    let mut listed = Vec::new();
    let mut take = |entry: &fs::DirEntry<'_>| {
        listed.push((String::from_utf8_lossy(entry.name).into_owned(), entry.node));
        fs::WalkControl::Continue
    };
    v.fs.readdir(&root(), copy, 0, &mut take).expect("a listing");
    assert_eq!(listed.len(), 5);
    for (name, node) in listed {
        assert_eq!(v.find(copy, &name).expect("it is there").node, node);
        assert_eq!(v.fs.stat_at(&root(), copy, name.as_bytes()).expect("it is there").node, node);
        assert_ne!(v.find(dir, &name).expect("it is there").node, node);
    }
}

#[test]
fn an_unvisited_clone_copies_nothing_when_removed() {
    let v = volume();
    let dir = with_nested(&v, "d", 50);
    let commits = v.store.stats().commits;
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    v.fs.rmr(&root(), home(), b"c").expect("a removal");
    super::settle(&v);
    assert_eq!(v.fs.status().expect("it is known").clones, 0);
    assert!(v.store.stats().commits - commits < 20, "{}", v.store.stats().commits - commits);
    assert_whole(&v.fs);
}

#[test]
fn inherited_subvolumes_outlive_a_crash_and_their_source() {
    let v = volume();
    let dir = with_nested(&v, "d", 3);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    v.fs.clone_dir(&root(), v.find(home(), "c").expect("it").node, home(), b"e").expect("a clone");
    let again = v.reopened();
    let v = Volume { fs: again, env: v.env, store: v.store, header: v.header };
    v.fs.rmr(&root(), home(), b"c").expect("a removal");
    v.fs.rmr(&root(), home(), b"d").expect("a removal");
    super::settle(&v);
    let last = v.find(home(), "e").expect("the last one").node;
    for at in 0..3 {
        let nested = v.find(last, &format!("n{at}")).expect("it is there").node;
        assert_eq!(contents(&v, nested), [("f".to_owned(), b"before".to_vec())]);
    }
    assert_whole(&v.fs);
}

#[test]
fn an_inherited_subvolume_is_renamed_and_removed_in_the_clone_alone() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    let empty = v.fs.subvolume_create(&root(), dir, b"empty", 0o755).expect("space").node;
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    v.fs.rename(&root(), (copy, b"n0"), (home(), b"out"), RenameMode::Replace).expect("a move");
    v.fs.rmr(&root(), copy, b"n1").expect("a removal");
    v.fs.rmdir(&root(), copy, b"empty").expect("an empty one");
    assert_eq!(v.sorted(copy), Vec::<String>::new());
    assert_eq!(v.sorted(dir), ["empty", "n0", "n1"]);
    assert_eq!(v.find(dir, "empty").expect("it is there").node, empty);
    super::settle(&v);
    assert_eq!(v.sorted(v.find(home(), "out").expect("it moved").node), ["f"]);
    assert_whole(&v.fs);
}

#[test]
fn an_inherited_subvolume_of_a_read_only_volume_is_refused_with_the_reason() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let options = fs::OpenOptions { read_only: true, ..fs::OpenOptions::default() };
    let again = Fs::open_on(
        v.env.env(),
        Arc::<testing::MemStore>::clone(&v.store),
        v.header.clone(),
        &options,
    )
    .expect("a volume");
    let v = Volume { fs: shown(&again), env: v.env, store: v.store, header: v.header };
    let copy = v.find(home(), "c").expect("the clone").node;
    assert_eq!(v.sorted(copy), ["n0", "n1"]);
    refused(v.find(copy, "n0"), &FsError::ReadOnly(String::new()));
    assert_eq!(v.sorted(v.find(dir, "n0").expect("the source").node), ["f"]);
    let commits = v.store.stats().commits;
    assert_eq!(found_below(&v, copy, b"f"), 2, "a search walks inherited subvolumes");
    assert_eq!(v.store.stats().commits, commits, "a search writes nothing");
}

/// How many have a name at or below a directory, as a search counts.
fn found_below(v: &Volume, node: NodeId, name: &[u8]) -> u64 {
    let expr = Expr::Test(Test::Name(Glob::literal(name).expect("it is short")));
    let root = root();
    let request = everything_below(&v.fs, node, &root, (&expr, Fields::NONE));
    v.fs.search_counted(&request).expect("a search").matched
}

/// A process has a directory of a clone as its working directory while that is rolled back.
/// Nothing that it does there reaches the source of the clone.
#[test]
fn a_held_directory_of_a_clone_never_shows_the_source_after_a_rollback() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let below = v.dir(dir, "x").node;
    let nested = v.fs.subvolume_create(&root(), below, b"n", 0o755).expect("space").node;
    let original = v.file(nested, "f").node;
    v.write(original, 0, b"before");
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let copy = v.find(home(), "c").expect("the clone").node;
    let held = v.find(copy, "x").expect("it is there").node;
    v.fs.snapshot_create(&root(), held, b"s").expect("a snapshot");
    v.fs.rollback(&root(), held, b"s").expect("rolled back");
    super::settle(&v);
    assert_eq!(v.sorted(held), ["n"], "it is kept while it is held");
    let own = v.find(held, "n").expect("it is kept with it").node;
    assert_ne!(own, nested);
    let file = v.find(own, "f").expect("a file").node;
    assert_eq!(v.read(file), b"before");
    v.write(file, 0, b"after.");
    assert_eq!(v.read(original), b"before", "the source is another");
    let now = v.find(copy, "x").expect("the copy of the snapshot").node;
    let restored = v.find(now, "n").expect("it was there").node;
    assert_eq!(contents(&v, restored), [("f".to_owned(), b"before".to_vec())]);
    assert_whole(&v.fs);
}

/// The clone itself is rolled back: what it still inherited is not found in the previous one.
#[test]
fn a_held_rolled_back_clone_does_not_show_its_source() {
    let v = volume();
    let dir = with_nested(&v, "d", 1);
    v.fs.clone_dir(&root(), dir, home(), b"c").expect("a clone");
    let held = v.find(home(), "c").expect("the clone").node;
    v.fs.snapshot_create(&root(), held, b"s").expect("a snapshot");
    v.fs.rollback(&root(), held, b"s").expect("rolled back");
    refused(v.find(held, "n0"), &FsError::NotFound);
    refused(v.fs.stat_at(&root(), held, b"n0"), &FsError::NotFound);
    refused(v.fs.rmdir(&root(), held, b"n0"), &FsError::NotFound);
    let moved = v.fs.rename(&root(), (held, b"n0"), (home(), b"out"), RenameMode::Replace);
    refused(moved, &FsError::NotFound);
    assert_eq!(v.sorted(held), Vec::<String>::new());
    assert_eq!(found_below(&v, held, b"f"), 0);
    assert_eq!(v.sorted(dir), ["n0"]);
}

/// Each copy is an heir of all homes of its source, so that copies of copies are counted, too.
#[test]
fn the_heirs_of_a_home_are_few_through_generations() {
    let v = volume();
    let dir = with_nested(&v, "d", 2);
    for first in 0..40 {
        let name = format!("s{first}");
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("space");
        let snapshot = snapshot_root(&v, dir, &name);
        for second in 0..2 {
            let name = format!("c{first}.{second}");
            v.fs.clone_dir(&root(), snapshot, home(), name.as_bytes()).expect("space");
        }
    }
    let nested = v.find(dir, "n0").expect("it is there").node;
    let file = v.find(nested, "f").expect("a file").node;
    let commits = v.store.stats().commits;
    v.write(file, 0, b"after.");
    let commits = v.store.stats().commits - commits;
    assert!(commits <= 33, "a first write took {commits} commits");
    for copy in ["c0.0", "c39.1"] {
        let copy = v.find(home(), copy).expect("a clone").node;
        let nested = v.find(copy, "n0").expect("it was there").node;
        assert_eq!(contents(&v, nested), [("f".to_owned(), b"before".to_vec())]);
    }
}

/// Two subvolumes are written to in turn, one step after the other, while clones are made. A clone
/// never has a step without the one before it, and has all that ended before it began.
fn changes_beside_clones_are_in_them_in_their_order(engine: Engine) {
    const CLONES: u64 = 40;
    let v = volume_on(engine, inode::NameHash::BITS);
    let dir = with_nested(&v, "d", 2);
    let files = [0, 1].map(|at| {
        let nested = v.find(dir, &format!("n{at}")).expect("it is there").node;
        v.find(nested, "f").expect("a file").node
    });
    let (ended, done) = (AtomicU64::new(0), AtomicBool::new(false));
    let bounds: Vec<(u64, u64)> = device::scope(|scope| {
        scope.spawn(|| {
            let mut step = 1_u64;
            while !done.load(Ordering::SeqCst) {
                for file in files {
                    v.write(file, 0, &step.to_le_bytes());
                }
                ended.store(step, Ordering::SeqCst);
                step += 1;
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                v.fs.background_step(20).expect("background work goes well");
            }
        });
        let _end = SetAtEnd(&done);
        let bounds = (0..CLONES).map(|at| {
            let before = ended.load(Ordering::SeqCst);
            v.fs.clone_dir(&root(), dir, home(), format!("c{at}").as_bytes()).expect("space");
            // The next step may have ended in part.
            (before, ended.load(Ordering::SeqCst) + 1)
        });
        bounds.collect()
    });
    for (at, (least, most)) in bounds.into_iter().enumerate() {
        let copy = v.find(home(), &format!("c{at}")).expect("a clone").node;
        let [first, second] = [0, 1].map(|at| {
            let nested = v.find(copy, &format!("n{at}")).expect("it is there").node;
            let bytes = v.read(v.find(nested, "f").expect("a file").node);
            let step = bytes.first_chunk().map_or(0, |step| u64::from_le_bytes(*step));
            if &bytes == b"before" { 0 } else { step }
        });
        assert!(first == second || first == second + 1, "clone {at}: {first}, {second}");
        assert!((least..=most).contains(&first), "clone {at}: {first} of {least}..={most}");
        assert!(second >= least, "clone {at}: {second} of {least}");
    }
    assert_whole(&v.fs);
}

/// A subvolume gets one more heir each time it is copied for an heir of the one it is mounted in.
#[test]
fn the_heirs_of_a_nested_home_are_few_too() {
    let v = volume();
    let dir = with_nested(&v, "d", 1);
    let nested = v.find(dir, "n0").expect("it is there").node;
    let deep = v.fs.subvolume_create(&root(), nested, b"deep", 0o755).expect("space").node;
    let (outer, inner) = (v.find(nested, "f").expect("a file").node, v.file(deep, "f").node);
    for round in 0..200_u64 {
        let name = format!("s{round}");
        v.fs.snapshot_create(&root(), dir, name.as_bytes()).expect("space");
        v.write(outer, 0, &round.to_le_bytes());
    }
    let commits = v.store.stats().commits;
    v.write(inner, 0, b"after.");
    let commits = v.store.stats().commits - commits;
    assert!(commits <= 100, "a first write took {commits} commits");
}
