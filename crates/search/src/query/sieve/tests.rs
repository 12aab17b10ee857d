//! Columns of clusters of random rows decide the same as random expressions on each row.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use format::inode_record::FileKind;
use inode::{Caller, NameHash};

use super::super::expr::{Accounts, Context, Expr, Kinds, Perm, PermKind, Test};
use super::super::glob::{Glob, Letters};
use super::super::regex::{Dialect, Regex};
use super::ByColumns;
use crate::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields, Sieve};
use crate::condition::{Attribute, Condition};
use crate::matches::Details;
use crate::query::work::NEVER;
use crate::row::{Row, RowBuf};

/// A flag that is never set.
static CONTINUES: AtomicBool = AtomicBool::new(false);

struct Nothing;

impl Details for Nothing {
    fn target(&self, _: &Row<'_>) -> crate::Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn xattr(&self, _: &Row<'_>, _: &[u8]) -> crate::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

impl Accounts for Nothing {
    fn has_user(&self, uid: u32) -> bool {
        uid != 1
    }

    fn has_group(&self, gid: u32) -> bool {
        gid != 2
    }
}

const STEMS: [&str; 9] = ["a", "ab", "Ab", "b.a", "\u{c9}t\u{e9}", "K", "\u{212a}b", "ba-", "xyz"];
const ENDS: [&str; 7] = ["", ".c", ".C", ".cc", ".\u{c9}", ".h5", ".a.c"];
const PATTERNS: [&str; 20] = [
    "*.c", "*.C", "a*", "*b*", "ab.c", "*", "?b*", "*[a-k]", "*a*.c", "[!a]*.c", "\u{e9}t*",
    "*\u{e9}", "k*", "*k", "", "**", "a\\", "*.a.*", "*b*c*", "x*",
];

fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut name = STEMS[random.usize(..STEMS.len())].as_bytes().to_vec();
    if random.u8(..40) == 0 {
        // Not a valid character.
        name.push(0xe9);
    }
    name.extend_from_slice(ENDS[random.usize(..ENDS.len())].as_bytes());
    name
}

fn row(random: &mut fastrand::Rng, number: u64, modes: &[u32]) -> RowBuf {
    let size = if random.bool() { 0 } else { random.u64(..5) };
    let name = name(random);
    Row {
        directory: random.u64(1..9),
        cookie: number << 8,
        ino: number,
        name: &name,
        kind: FileKind::decode(random.u8(1..4)).expect("a kind"),
        mode: modes[random.usize(..modes.len())],
        uid: random.u32(..3),
        gid: random.u32(..3),
        nlink: random.u32(1..4),
        rdev: 0,
        size,
        allocated: size,
        entries: random.u64(..2),
        atime: random.i64(-2..4),
        mtime: random.i64(-2..4),
        ctime: random.i64(-2..4),
        btime: random.i64(-2..4),
        subvolume: 0,
        xattrs: b"",
    }
    .to_buf()
}

fn test(random: &mut fastrand::Rng) -> Test {
    let letters = [Letters::Bytes, Letters::Utf8][random.usize(..2)];
    match random.u8(..12) {
        0 | 1 => {
            let attributes = [
                Attribute::Uid,
                Attribute::Size,
                Attribute::Mtime,
                Attribute::Atime,
                Attribute::Links,
                Attribute::Mode,
            ];
            let low = i128::from(random.i8(-1..4));
            let (low, high) = match random.u8(..4) {
                0 => (i128::from(i64::MIN), low),
                1 => (low, i128::from(u64::MAX)),
                2 => (low, low - 1),
                _ => (low, low + i128::from(random.u8(..2))),
            };
            Test::Within(attributes[random.usize(..attributes.len())], low, high)
        }
        2 => {
            let kinds = (1..8).filter(|_| random.bool()).filter_map(FileKind::decode);
            Test::Kind(kinds.fold(Kinds::default(), Kinds::with))
        }
        3..6 => {
            let bits = [0, 0o600, 0o022, 0o644, 0o4000, 0o111, 0o10_644];
            let kind = [PermKind::Exact, PermKind::All, PermKind::Any][random.usize(..3)];
            let files = bits[random.usize(..bits.len())];
            let directories = if random.bool() { files } else { bits[random.usize(..bits.len())] };
            Test::Perm(Perm { kind, files, directories })
        }
        6..9 => {
            let pattern = PATTERNS[random.usize(..PATTERNS.len())].as_bytes();
            Test::Name(Glob::new(pattern, random.bool(), letters).expect("a pattern"))
        }
        9 => {
            let pattern = [&b".*\\.c"[..], b"[ab]+", b"a.*b?"][random.usize(..3)];
            let regex = Regex::new(pattern, Dialect::Extended, random.bool(), letters);
            Test::NameRegex(regex.expect("an expression"))
        }
        10 => Test::Empty,
        _ => [Test::NoUser, Test::NoGroup][random.usize(..2)].clone(),
    }
}

fn expr(random: &mut fastrand::Rng, depth: u32) -> Expr {
    let parts = |random: &mut fastrand::Rng| {
        (0..random.u8(u8::from(depth == 0)..4))
            .map(|_| expr(random, depth + 1))
            .collect::<Vec<Expr>>()
    };
    match random.u8(..if depth < 3 { 9 } else { 3 }) {
        0..=2 => Expr::Test(test(random)),
        3 | 4 => Expr::All(parts(random)),
        5 | 6 => Expr::Any(parts(random)),
        7 => {
            let mut parts = parts(random);
            parts.push([Expr::Action(3), Expr::Test(test(random))][random.usize(..2)].clone());
            Expr::List(parts)
        }
        _ => Expr::Not(Box::new(expr(random, depth + 1))),
    }
}

fn cluster(random: &mut fastrand::Rng) -> Cluster {
    let all = [0o644, 0o600, 0o755, 0o4755, 0o10_640, 0];
    let modes = if random.u8(..4) == 0 { &all[..1] } else { &all[..] };
    let mut options = ClusterOptions::new(NameHash::new([9; 16]));
    options.block_rows = random.u16(16..=512);
    let mut builder = ClusterBuilder::new(options);
    for number in 0..random.u64(1..1500) {
        builder.push(&row(random, number, modes).as_row());
    }
    Cluster::open(Arc::new(builder.finish().bytes), NameHash::new([9; 16])).expect("a cluster")
}

#[test]
fn column_tests_agree_with_row_tests() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let (caller, mut matched, mut open) = (Caller::root(), 0, 0);
    for _ in 0..12 {
        let cluster = cluster(&mut random);
        let rows = cluster.rows(Fields::ATTRIBUTES).expect("rows");
        for _ in 0..120 {
            let expr = expr(&mut random, 0);
            let matches = |at: &u32| {
                let row = &rows.get(*at);
                let (path, depth, subvolume, details) = (&b""[..], 1, 0, &Nothing);
                let (caller, accounts, cancel) = (&caller, &Nothing, &NEVER);
                let context =
                    Context { row, path, depth, subvolume, details, caller, accounts, cancel };
                expr.matches(&context).expect("it is known")
            };
            let want: Vec<u32> = (0..rows.len()).filter(matches).collect();
            let columns = expr.by_columns(0, &Nothing);
            let ByColumns { narrow, sieve } = columns.expect("all tests are of columns");
            open += u64::from(sieve.is_some());
            let sieve = sieve.unwrap_or_else(Sieve::yes);
            matched += want.len();
            let is_part = |condition: &Condition| {
                use Condition::{NameContains, NameEnds, NameStarts};
                matches!(condition, NameContains(_) | NameEnds(_) | NameStarts(_))
            };
            let first: Vec<_> = narrow.iter().filter(|one| !is_part(one)).cloned().collect();
            for narrow in [&narrow, &first] {
                let mut found = Vec::new();
                let flow = cluster.search_passing(narrow, &sieve, &CONTINUES, &mut |at| {
                    found.push(at);
                    ControlFlow::Continue(())
                });
                assert!(flow.expect("columns").is_continue());
                assert_eq!(found, want, "{expr:?}\n{narrow:?}");
                let count = cluster.count_passing(narrow, &sieve, &CONTINUES).expect("columns");
                assert_eq!(count, want.len() as u64, "{expr:?}");
            }
        }
    }
    assert!(matched > 10_000 && open > 500, "{matched} matched, {open} sieves");
}

#[test]
fn conditions_without_a_column_are_left_to_row_tests() {
    let glob = || Glob::new(b"*a", false, Letters::Bytes).expect("a pattern");
    for test in [
        Test::Path(glob()),
        Test::Target(glob()),
        Test::Xattr(b"user.a".to_vec(), None),
        Test::Access(4),
        Test::Depth(1, 2),
        Test::Within(Attribute::Ino, 1, 1),
    ] {
        for expr in [
            Expr::Test(test.clone()),
            Expr::Not(Box::new(Expr::Test(test.clone()))),
            Expr::Any(vec![Expr::Test(Test::Empty), Expr::Test(test.clone())]),
        ] {
            assert!(expr.by_columns(0, &Nothing).is_none(), "{expr:?}");
        }
    }
    let quits = Expr::Any(vec![Expr::Test(Test::Empty), Expr::Quit]);
    assert!(quits.by_columns(0, &Nothing).is_none());
}

#[test]
fn a_zero_byte_in_a_pattern_is_in_no_name() {
    let mut options = ClusterOptions::new(NameHash::new([9; 16]));
    options.block_rows = 64;
    let mut builder = ClusterBuilder::new(options);
    let mut random = fastrand::Rng::with_seed(3);
    for number in 0..60 {
        let row = row(&mut random, number, &[0]);
        builder.push(&Row { name: b"ab", ..row.as_row() });
    }
    let bytes = Arc::new(builder.finish().bytes);
    let cluster = Cluster::open(bytes, NameHash::new([9; 16])).expect("a cluster");
    let glob = Glob::new(b"*b\0a*", false, Letters::Bytes).expect("a pattern");
    let expr = Expr::Test(Test::Name(glob));
    let ByColumns { narrow, sieve } = expr.by_columns(0, &Nothing).expect("a name");
    let sieve = sieve.expect("names are sifted");
    assert_eq!(cluster.count_passing(&[], &sieve, &CONTINUES).expect("columns"), 0);
    assert_eq!(narrow.len(), 1);
}

/// Cancels the query at the first look-up of a user.
#[derive(Default)]
struct Leaving {
    cancel: AtomicBool,
    asked: AtomicU32,
}

impl Accounts for Leaving {
    fn has_user(&self, _: u32) -> bool {
        self.cancel.store(true, Ordering::Relaxed);
        self.asked.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn has_group(&self, _: u32) -> bool {
        false
    }
}

#[test]
fn counting_a_cluster_ends_when_cancelled() {
    let mut options = ClusterOptions::new(NameHash::new([9; 16]));
    options.block_rows = 64;
    let mut builder = ClusterBuilder::new(options);
    let mut random = fastrand::Rng::with_seed(5);
    for number in 0..1000_u32 {
        let row = row(&mut random, number.into(), &[0]);
        builder.push(&Row { uid: number, ..row.as_row() });
    }
    let bytes = Arc::new(builder.finish().bytes);
    let cluster = Cluster::open(bytes, NameHash::new([9; 16])).expect("a cluster");
    let (expr, leaving) = (Expr::Test(Test::NoUser), Leaving::default());
    let ByColumns { narrow, sieve } = expr.by_columns(0, &leaving).expect("a column");
    let sieve = sieve.expect("each is requested");
    cluster.count_passing(&narrow, &sieve, &leaving.cancel).expect("columns");
    assert!(leaving.asked.load(Ordering::Relaxed) <= 64, "more than a block was looked at");
}
