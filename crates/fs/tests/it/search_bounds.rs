//! Bounds of queries and of totals, from the index and by walking. The first match is returned
//! before the others are searched, and sums may exceed 64 bits.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{FileSystem, Fs, OpenOptions};
use inode::{Caller, NameHash, NodeId, SetAttr};
use search::aggregate::{Aggregate, Question};
use search::cluster::Fields;
use search::index::{ClusterLimits, IndexOptions};
use search::query::{Expr, Glob, Letters, Test};
use search::{Emit, Outcome, Request, Start};

use crate::search::{Everybody, everything_below};
use crate::support::{ROOT, Volume, volume_with};

const DIRECTORIES: u64 = 40;
const FILES: u64 = 50;
const LIMITS: ClusterLimits = ClusterLimits { directories: 4, rows: 100 };

/// A volume with many files, most of which are in clusters.
fn filled() -> Volume {
    let index = IndexOptions { limits: LIMITS, ..IndexOptions::default() };
    let options = OpenOptions { index: Some(index), ..OpenOptions::default() };
    let v = volume_with(NameHash::BITS, &options);
    for number in 0..DIRECTORIES {
        let directory = v.dir(ROOT, &format!("d{number}")).node;
        for number in 0..FILES {
            v.file(directory, &format!("f{number}"));
        }
    }
    v.fs.index_flush(ROOT).expect("a flush goes well");
    v
}

/// Asks for all files, of which so many are taken.
fn take(
    fs: &Fs,
    most: u64,
    run: impl Fn(&Request<'_>, Emit<'_>) -> search::Result<Outcome>,
) -> Outcome {
    let glob = Glob::new(b"f*", false, Letters::Bytes).expect("a pattern");
    let expr = Expr::Test(Test::Name(glob));
    let root = Caller::root();
    let request = everything_below(fs, ROOT, &root, (&expr, Fields::ATTRIBUTES));
    let mut taken = 0;
    let outcome = run(&request, &mut |_| {
        taken += 1;
        if taken < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    });
    let outcome = outcome.expect("a search goes well");
    assert_eq!(outcome.matched, taken);
    outcome
}

#[test]
fn the_first_match_is_returned_before_others_are_searched() {
    let v = filled();
    let indexed = |most| take(&v.fs, most, |request, emit| v.fs.search(request, emit));
    let walked = |most| take(&v.fs, most, |request, emit| v.fs.search_by_walking(request, emit));
    let all = DIRECTORIES * FILES;
    let every = indexed(u64::MAX);
    assert_eq!((every.matched, walked(u64::MAX).matched), (all, all));
    assert!(every.clusters_read > 10, "{every:?}");
    // The receiver sees it at the time it is found: the search continues when the receiver returns.
    let first = indexed(1);
    assert!(first.clusters_read <= 1 && first.rows_tested <= 2 * 100, "{first:?}");
    let first = walked(1);
    assert!(first.rows_tested <= 3, "{first:?}");
    // And so with each of the others.
    let half = indexed(all / 2);
    assert!(half.clusters_read < every.clusters_read * 3 / 4, "{half:?} of {every:?}");
    assert!(walked(all / 2).rows_tested <= all / 2 + DIRECTORIES + 1);
}

/// Totals of the root by the index, which are those by walking.
fn totals(fs: &Fs, place: &str) -> Aggregate {
    let (subvolume, directory) = fs.search_place(ROOT).expect("the root");
    let question = Question {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        caller: &Caller::root(),
        accounts: &Everybody,
        directories: Some(u32::MAX),
        largest: 50,
        groups: true,
        cancel: &AtomicBool::new(false),
    };
    let mut indexed = fs.aggregate(&question).expect("totals");
    let mut walked = fs.aggregate_by_walking(&question).expect("totals");
    indexed.groups.ctime = 0;
    walked.groups.ctime = 0;
    assert_eq!(indexed, walked, "{place}");
    indexed
}

/// Files of the greatest size, several in a directory and in a cluster: sums wrapped.
#[test]
fn sums_beyond_64_bits_are_exact_in_every_total() {
    const GREATEST: u64 = (1 << 63) - 1;
    let v = filled();
    let (root, mut known) = (Caller::root(), 0_u128);
    let grow = |node: NodeId, size: u64| {
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        v.fs.setattr(&root, node, &set).expect("a size");
    };
    let check = |known: u128, place: &str| {
        let found = totals(&v.fs, place);
        assert_eq!(found.total.sums.bytes, known, "{place}");
        assert_eq!(found.groups.owners[&0].bytes, known, "{place}");
        let rbytes = v.fs.getxattr(&root, ROOT, b"user.pando.rbytes").expect("a total");
        assert_eq!(rbytes, known.to_string().into_bytes(), "{place}");
    };
    for (directory, files) in [(3, 5), (4, 1), (20, 2), (39, 3)] {
        let directory = v.find(ROOT, &format!("d{directory}")).expect("it is there").node;
        for file in 0..files {
            let file = v.find(directory, &format!("f{file}")).expect("it is there").node;
            grow(file, GREATEST);
            known += u128::from(GREATEST);
        }
        check(known, "in memory");
        v.fs.index_flush(ROOT).expect("a flush goes well");
        check(known, "in clusters");
    }
    assert!(known > u128::from(u64::MAX) * 5);
    // Less again, beside what the clusters have.
    for directory in [3, 20] {
        let directory = v.find(ROOT, &format!("d{directory}")).expect("it is there").node;
        let file = v.find(directory, "f0").expect("it is there").node;
        grow(file, 7);
        known -= u128::from(GREATEST) - 7;
        check(known, "in memory and clusters");
        v.fs.unlink(&root, directory, b"f1").expect("it goes");
        known -= u128::from(GREATEST);
        check(known, "in memory and clusters");
    }
    v.fs.index_flush(ROOT).expect("a flush goes well");
    check(known, "in the next clusters");
    let again = v.reopened();
    assert_eq!(totals(&again, "opened again").total.sums.bytes, known);
}
