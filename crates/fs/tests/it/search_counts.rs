//! Counts by the index equal those of a walk, for root and for an ordinary user. The expressions
//! join tests on permission bits, names, numbers and owners at random. The code that compares
//! searches compares them.

use std::ops::ControlFlow;

use format::inode_record::FileKind;
use fs::Fs;
use inode::{Caller, NodeId};
use search::cluster::Fields;
use search::query::{Dialect, Expr, Glob, Kinds, Letters, Perm, PermKind, Regex, Test};
use search::{Attribute, Request, Start};

use crate::search::{caller, everything_below};

const PATTERNS: [&[u8]; 24] = [
    b"*a*",
    b"b*",
    b"*1",
    b"c",
    b"?",
    b"[a-d]*",
    b"*",
    b"*.txt",
    b"*.TXT",
    b"n1*",
    b"n[13579]*.*",
    b"*5*.h5",
    b"N2?*",
    b"*.tar.gz",
    b"*\xff*",
    b"*\xe9",
    b"c\xff1?.*",
    b"*\xc3\xa9*",
    b"[[:upper:]]*",
    b"*[!a-z]",
    b"*/*",
    b"*.TAR.gz",
    b"n2x*",
    b"\xc3*",
];

fn perm(random: &mut fastrand::Rng) -> Perm {
    let bits = [0o600, 0o022, 0o644, 0o755, 0o700, 0o050, 0o111, 0, 0o4000, 0o1777, 0o6000, 0o1000];
    let kind = [PermKind::Exact, PermKind::All, PermKind::Any][random.usize(..3)];
    let files = bits[random.usize(..bits.len())];
    let directories = if random.bool() { files } else { bits[random.usize(..bits.len())] };
    Perm { kind, files, directories }
}

fn test(random: &mut fastrand::Rng) -> Test {
    let letters = [Letters::Bytes, Letters::Utf8][random.usize(..2)];
    match random.u32(..12) {
        0..3 => Test::Perm(perm(random)),
        3..6 => {
            let pattern = PATTERNS[random.usize(..PATTERNS.len())];
            Test::Name(Glob::new(pattern, random.bool(), letters).expect("a pattern"))
        }
        6 => {
            let pattern = [&b".*[02468]"[..], b"n1.*", b"[a-f]+"][random.usize(..3)];
            let regex = Regex::new(pattern, Dialect::Extended, random.bool(), letters);
            Test::NameRegex(regex.expect("an expression"))
        }
        7 => Test::Kind(Kinds::default().with(FileKind::File)),
        8 => [Test::Empty, Test::NoUser, Test::NoGroup][random.usize(..3)].clone(),
        9 => Test::Within(Attribute::Uid, random.u32(998..1002).into(), 1001),
        10 => Test::Within(Attribute::Size, random.u64(..50_000).into(), 1 << 40),
        _ => {
            use Attribute::{Atime, Btime, Ctime, Links, Mtime};
            let attribute = [Links, Atime, Atime, Btime, Mtime, Ctime][random.usize(..6)];
            let from = 1_700_000_000_000_000_000 + random.i64(0..200_000_000_000);
            let from = if attribute == Links { 2 } else { from };
            let (least, most) = if random.bool() { (from, i64::MAX) } else { (0, from) };
            Test::Within(attribute, least.into(), most.into())
        }
    }
}

fn expr(random: &mut fastrand::Rng, depth: u32) -> Expr {
    let parts = |random: &mut fastrand::Rng| {
        (0..random.u32(1..4)).map(|_| expr(random, depth - 1)).collect::<Vec<_>>()
    };
    match random.u32(..6) {
        _ if depth == 0 => Expr::Test(test(random)),
        0 | 1 => Expr::Any(parts(random)),
        2 => Expr::All(parts(random)),
        3 => Expr::Not(Box::new(expr(random, depth - 1))),
        _ => Expr::Test(test(random)),
    }
}

/// The results of counting by the index and by walking, for everything that meets a test.
pub(crate) fn count_by(fs: &Fs, test: Test) -> [search::Outcome; 2] {
    let expr = Expr::Test(test);
    let root = Caller::root();
    let request = everything_below(fs, NodeId::ROOT, &root, (&expr, Fields::ATTRIBUTES));
    let counted = fs.search_counted(&request);
    let walked = fs.search_by_walking(&request, &mut |_| ControlFlow::Continue(()));
    [counted, walked].map(|outcome| outcome.expect("an answer"))
}

/// Fails unless some counts by the index and by walking are alike.
pub(crate) fn check_counts(
    fs: &Fs,
    random: &mut fastrand::Rng,
    starts: &[(NodeId, Vec<u8>)],
    place: &str,
) {
    for _ in 0..2 {
        let start = if random.bool() { 0 } else { random.usize(..starts.len()) };
        let (node, path) = &starts[start];
        let Ok((subvolume, directory)) = fs.search_place(*node) else { continue };
        let (caller, expr) = (caller(random), expr(random, 2));
        let request = Request {
            start: Start { subvolume, directory, path, depth: 0 },
            min_depth: random.u32(..2),
            ..everything_below(fs, *node, &caller, (&expr, Fields::ATTRIBUTES))
        };
        let reported = |outcome: search::Outcome| (outcome.matched, outcome.unreadable);
        let counted = fs.search_counted(&request).map(reported).map_err(|error| error.to_string());
        let walked = fs.search_by_walking(&request, &mut |_| ControlFlow::Continue(()));
        let walked = walked.map(reported).map_err(|error| error.to_string());
        let name = String::from_utf8_lossy(path);
        assert_eq!(counted, walked, "{place}: {name} for {caller:?}: {expr:?}");
    }
}
