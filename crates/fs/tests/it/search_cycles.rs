//! Falsified names: a directory that is below itself, and one with two names. Searches and totals
//! end.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::entry_record::{EntryRecord, Target};
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, NodeId};
use search::aggregate::Question;
use search::cluster::Fields;
use search::query::Expr;
use search::{Error, Start};
use store::{Batch, Commit, Read, TreeId};

use crate::search::{Everybody, everything_below};
use crate::support::{ROOT, Volume, volume};

/// Gives a directory another name in a directory.
fn link(v: &Volume, parent: NodeId, directory: NodeId) {
    let id = v.fs.subvolume_of(ROOT).expect("the root's").0;
    let record = v.store.get(TreeId(key::VOLUME_TREE), &key::subvolume(id)).expect("it reads");
    let record = SubvolumeRecord::decode(&record.expect("it is there")).expect("it is whole");
    let (ino, target) = (directory.ino().0, Target::Directory);
    let entry = EntryRecord { chained: false, ino, name: b"again", target };
    let mut value = Vec::new();
    entry.encode(&mut value);
    let mut batch = Batch::new();
    let key = key::entry(parent.ino().0, 1 << 8, Part::Attributes);
    batch.put(TreeId(record.tree), &key, &value);
    v.store.commit(&batch).expect("space");
}

fn found(v: &Volume) -> search::Result<u64> {
    let (root, expr) = (Caller::root(), Expr::yes());
    let request = everything_below(&v.fs, ROOT, &root, (&expr, Fields::ATTRIBUTES));
    let outcome = v.fs.search_by_walking(&request, &mut |_| ControlFlow::Continue(()));
    outcome.map(|outcome| outcome.matched)
}

fn totals(v: &Volume) -> search::Result<u64> {
    let (subvolume, directory) = v.fs.search_place(ROOT).expect("the root");
    let question = Question {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        caller: &Caller::root(),
        accounts: &Everybody,
        directories: Some(5),
        largest: 3,
        groups: true,
        cancel: &AtomicBool::new(false),
    };
    v.fs.aggregate_by_walking(&question).map(|answer| answer.total.directories)
}

#[test]
fn a_search_of_a_directory_that_is_below_itself_ends() {
    let v = volume();
    let above = v.dir(ROOT, "a").node;
    let below = v.dir(above, "b").node;
    link(&v, below, above);
    let cycle = |result: search::Result<u64>| match result {
        Err(Error::Inconsistent { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(cycle(found(&v)), "a directory is below itself");
    assert_eq!(cycle(totals(&v)), "a directory is below itself");
}

#[test]
fn totals_of_a_directory_with_two_names_are_returned() {
    let v = volume();
    let twice = v.dir(v.dir(ROOT, "a").node, "b").node;
    v.dir(twice, "c");
    link(&v, v.dir(ROOT, "z").node, twice);
    // The root, a, a/b, a/b/c, z, z/again, z/again/c.
    assert_eq!(found(&v).expect("a search"), 7);
    // The first of the two names of b counts; what is below it is read twice.
    assert_eq!(totals(&v).expect("totals"), 6);
}
