//! Totals of directories by the index equal those of a walk, for root and for an ordinary user.
//! They are answers of `Fs::aggregate` and extended attributes. The code that compares searches
//! compares them.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::inode_record::FileKind;
use fs::{FileSystem, Fs};
use inode::{Caller, FsError, NodeId};
use search::aggregate::{Aggregate, Question};
use search::cluster::Fields;
use search::query::{Expr, Kinds, Test};
use search::{Attribute, Request, Start};

use crate::search::{Everybody, caller, everything_below};

/// Fails unless totals by the index and by walking are alike.
pub(crate) fn check_totals(
    fs: &Fs,
    random: &mut fastrand::Rng,
    starts: &[(NodeId, Vec<u8>)],
    place: &str,
) {
    let start = if random.bool() { 0 } else { random.usize(..starts.len()) };
    let (node, path) = &starts[start];
    let Ok((subvolume, directory)) = fs.search_place(*node) else { return };
    let caller = caller(random);
    let question = Question {
        start: Start { subvolume, directory, path, depth: 0 },
        caller: &caller,
        accounts: &Everybody,
        directories: [None, Some(0), Some(1), Some(2), Some(u32::MAX)][random.usize(..5)],
        largest: [0, 1, 3, 40][random.usize(..4)],
        groups: random.bool(),
        cancel: &AtomicBool::new(false),
    };
    let indexed = fs.aggregate(&question).map_err(|error| error.to_string());
    let walked = fs.aggregate_by_walking(&question).map_err(|error| error.to_string());
    // Where an inode with several names counts depends on the order; that it counts once does not.
    let settled = |mut answer: Aggregate| {
        answer.groups.ctime = i64::MIN;
        answer.groups.extensions.clear();
        answer.directories.clear_totals();
        answer.largest.clear();
        answer
    };
    let name = String::from_utf8_lossy(path);
    if let (Ok(indexed), Ok(walked)) = (&indexed, &walked) {
        check_attributes(fs, &caller, *node, walked, &format!("{place}: {name}"));
        let has_linked = indexed.total.sums.files > 0 && has_links(fs, &question);
        let alike = if has_linked {
            settled(indexed.clone()) == settled(walked.clone())
        } else {
            let plain = |mut answer: Aggregate| {
                answer.groups.ctime = i64::MIN;
                answer
            };
            plain(indexed.clone()) == plain(walked.clone())
        };
        assert!(alike, "{place}: {name} for {caller:?}:\n{indexed:?}\nby walking:\n{walked:?}");
    } else {
        assert_eq!(indexed, walked, "{place}: {name}");
    }
}

/// Fails unless a directory's attributes equal what a walk found.
fn check_attributes(fs: &Fs, caller: &Caller, node: NodeId, walked: &Aggregate, place: &str) {
    let total = &walked.total;
    let (seconds, nanos) = (total.ctime / 1_000_000_000, total.ctime % 1_000_000_000);
    for (name, wanted) in [
        ("rfiles", total.sums.files.to_string()),
        ("rbytes", total.sums.bytes.to_string()),
        ("rsubdirs", total.directories.to_string()),
        ("rctime", format!("{seconds}.{nanos:09}")),
    ] {
        let value = fs.getxattr(caller, node, format!("user.pando.{name}").as_bytes());
        match value {
            // The user may not read the directory itself.
            Err(FsError::AccessDenied) if !caller.is_root() => {}
            value => {
                let value = String::from_utf8(value.expect("a directory")).expect("a number");
                assert_eq!(value, wanted, "{place}: {name} for {caller:?}");
            }
        }
    }
}

/// Whether something in scope has several names.
fn has_links(fs: &Fs, question: &Question<'_>) -> bool {
    let expr = Expr::Test(Test::Within(Attribute::Links, 2, 1 << 32));
    let files = Expr::All(vec![
        Expr::Not(Box::new(Expr::Test(Test::Kind(Kinds::default().with(FileKind::Directory))))),
        expr,
    ]);
    let below = everything_below(fs, NodeId::ROOT, question.caller, (&files, Fields::ATTRIBUTES));
    let request =
        Request { start: question.start, limit: Some(1), cancel: question.cancel, ..below };
    let found = fs.search_by_walking(&request, &mut |_| ControlFlow::Continue(()));
    found.is_ok_and(|outcome| outcome.matched > 0)
}
