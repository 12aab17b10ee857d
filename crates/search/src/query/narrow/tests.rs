//! Necessary conditions hold for every match, for random expressions and random rows; and encoding
//! and decoding preserve an expression.

use format::inode_record::FileKind;
use inode::Caller;

use super::super::expr::{Accounts, Context, Expr, Fired, Kinds, Perm, PermKind, Test};
use super::super::glob::{Glob, Letters};
use crate::condition::{Attribute, Condition};
use crate::matches::Details;
use crate::query::work::NEVER;
use crate::row::Row;

struct Nothing;

impl Details for Nothing {
    fn target(&self, _: &Row<'_>) -> crate::Result<Vec<u8>> {
        Ok(b"target".to_vec())
    }

    fn xattr(&self, _: &Row<'_>, _: &[u8]) -> crate::Result<Option<Vec<u8>>> {
        Ok(None)
    }
}

impl Accounts for Nothing {
    fn has_user(&self, uid: u32) -> bool {
        uid < 2
    }

    fn has_group(&self, gid: u32) -> bool {
        gid < 2
    }
}

fn holds(condition: &Condition, row: &Row<'_>) -> bool {
    let name = row.name;
    match condition {
        Condition::Within(attribute, low, high) => (*low..=*high).contains(&attribute.of(row)),
        Condition::OneOf(attribute, values) => values.contains(&attribute.of(row)),
        Condition::Name(text) => name == text,
        Condition::NameContains(text) => memchr::memmem::find(name, text).is_some(),
        Condition::NameEnds(text) => name.ends_with(text),
        Condition::NameStarts(text) => name.starts_with(text),
        Condition::Xattr(..) | Condition::Near(..) => false,
    }
}

fn test(random: &mut fastrand::Rng) -> Test {
    let patterns = ["a", "*a", "b*", "*ab*", "?a*", "[ab]*c", "*", "a*b", "*/a", "x/*b", "ab"];
    let glob = |random: &mut fastrand::Rng| {
        let pattern = patterns[random.usize(..patterns.len())];
        Glob::new(pattern.as_bytes(), random.bool(), Letters::Bytes).unwrap()
    };
    let attributes =
        [Attribute::Uid, Attribute::Size, Attribute::Mtime, Attribute::Links, Attribute::Ino];
    match random.u8(0..9) {
        0..=2 => {
            let low = i128::from(random.i8(-1..4));
            let (low, high) = match random.u8(0..3) {
                0 => (i128::from(i64::MIN), low),
                1 => (low, i128::from(u64::MAX)),
                _ => (low, low + i128::from(random.u8(0..2))),
            };
            Test::Within(attributes[random.usize(..attributes.len())], low, high)
        }
        3 => {
            let kinds = (1..8).filter(|_| random.bool()).filter_map(FileKind::decode);
            Test::Kind(kinds.fold(Kinds::default(), Kinds::with))
        }
        4 => {
            let kind = [PermKind::Exact, PermKind::All, PermKind::Any][random.usize(..3)];
            Test::Perm(Perm { kind, files: random.u32(0..8), directories: random.u32(0..8) })
        }
        5 => Test::Name(glob(random)),
        6 => Test::Path(glob(random)),
        7 => Test::Empty,
        _ => Test::Target(glob(random)),
    }
}

fn expr(random: &mut fastrand::Rng, depth: u32) -> Expr {
    let parts = |random: &mut fastrand::Rng| {
        (0..random.u8(1..4)).map(|_| expr(random, depth + 1)).collect::<Vec<Expr>>()
    };
    match random.u8(0..if depth < 3 { 8 } else { 3 }) {
        0..=2 => Expr::Test(test(random)),
        3 | 4 => Expr::All(parts(random)),
        5 => Expr::Any(parts(random)),
        6 => Expr::List(parts(random)),
        _ => Expr::Not(Box::new(expr(random, depth + 1))),
    }
}

#[test]
fn matches_meet_all_conditions() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let caller = Caller::root();
    let (mut matched, mut narrowed, mut exacts) = (0_u32, 0_u32, 0_u32);
    for _ in 0..20_000 {
        let expr = expr(&mut random, 0);
        let narrow = expr.narrow(0);
        narrowed += u32::from(!narrow.is_empty());
        let exact = expr.exact_narrow();
        exacts += u32::from(exact.is_some());
        for _ in 0..5 {
            let name: Vec<u8> =
                (0..random.usize(1..4)).map(|_| b"abcA"[random.usize(..4)]).collect();
            let size = random.u64(0..3);
            let row = Row {
                directory: 1,
                cookie: 1,
                ino: random.u64(0..5),
                name: &name,
                kind: FileKind::decode(random.u8(1..8)).unwrap(),
                mode: random.u32(0..8),
                uid: random.u32(0..4),
                gid: 0,
                nlink: random.u32(1..4),
                rdev: 0,
                size,
                allocated: 0,
                entries: size,
                atime: 0,
                mtime: random.i64(-2..4),
                ctime: 0,
                btime: 0,
                subvolume: 0,
                xattrs: b"",
            };
            let path = [b"x/", &name[..]].concat();
            let context = Context {
                row: &row,
                path: &path,
                depth: 1,
                subvolume: 0,
                details: &Nothing,
                caller: &caller,
                accounts: &Nothing,
                cancel: &NEVER,
            };
            let matches = expr.eval(&context, &mut Fired::default()).unwrap();
            if let Some(exact) = &exact {
                let meets = exact.iter().all(|condition| holds(condition, &row));
                assert_eq!(matches, meets, "{expr:?}\n{exact:?}\n{row:?}");
            }
            if matches {
                matched += 1;
                for condition in &narrow {
                    assert!(holds(condition, &row), "{expr:?}\n{condition:?}\n{row:?}");
                }
            }
        }
    }
    assert!(matched > 1000 && narrowed > 1000, "{matched} matched, {narrowed} narrowed");
    assert!(exacts > 1000, "{exacts} exact");
}
