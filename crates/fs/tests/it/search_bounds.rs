//! What a query holds while it runs: the first match is given out before the others are looked
//! for, from the index and by walking.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use fs::{Fs, OpenOptions};
use inode::{Caller, NameHash};
use search::cluster::Fields;
use search::index::{ClusterLimits, IndexOptions};
use search::query::{Expr, Glob, Letters, Test};
use search::{Emit, Outcome, Request, Start};

use crate::search::Everybody;
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
    let (subvolume, directory) = fs.search_place(ROOT).expect("the root");
    let glob = Glob::new(b"f*", false, Letters::Bytes).expect("a pattern");
    let request = Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr: &Expr::Test(Test::Name(glob)),
        prune: None,
        caller: &Caller::root(),
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields: Fields::ATTRIBUTES,
        accounts: &Everybody,
        cancel: &AtomicBool::new(false),
    };
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
fn the_first_match_is_given_out_before_the_others_are_looked_for() {
    let v = filled();
    let indexed = |most| take(&v.fs, most, |request, emit| v.fs.search(request, emit));
    let walked = |most| take(&v.fs, most, |request, emit| v.fs.search_by_walking(request, emit));
    let all = DIRECTORIES * FILES;
    let every = indexed(u64::MAX);
    assert_eq!((every.matched, walked(u64::MAX).matched), (all, all));
    assert!(every.clusters_read > 10, "{every:?}");
    // Whoever takes it sees it at the time it is given: the search goes on when he returns.
    let first = indexed(1);
    assert!(first.clusters_read <= 1 && first.rows_tested <= 2 * 100, "{first:?}");
    let first = walked(1);
    assert!(first.rows_tested <= 3, "{first:?}");
    // And so with each of the others.
    let half = indexed(all / 2);
    assert!(half.clusters_read < every.clusters_read * 3 / 4, "{half:?} of {every:?}");
    assert!(walked(all / 2).rows_tested <= all / 2 + DIRECTORIES + 1);
}
