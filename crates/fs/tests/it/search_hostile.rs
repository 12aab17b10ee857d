//! A user attempts to get wrong answers, with times at both ends of the range, sizes up to the
//! largest, and names of any byte. Others are access lists, hard links into clones of clones,
//! roll-backs, and queries whose bounds are just beside all that. Answers of the index equal a
//! walk, and a walk equals what the calls of the file system return to the same caller.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use device::Timestamp;
use format::acl::{ACCESS, Acl};
use fs::{Engine, FileSystem, Fs, FsResult, NewNode, RenameMode, SetXattr, WalkControl};
use inode::permissions::{EXECUTE, READ};
use inode::{Attr, Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr, SetTime};
use search::cluster::Fields;
use search::query::{Dialect, Expr, Glob, Letters, Regex, Test};
use search::{Attribute, Request, Start};
use store::Durability;
use testing::SimDevice;

use crate::script::{options, scale};
use crate::search::{Query, directories, everything_below, expr_of};
use crate::search_totals::check_totals;
use crate::subject::{Base, FsSubject};

const TIMES: [i64; 9] =
    [i64::MIN, i64::MIN + 1, -1, 0, 1, 86_399_999_999_999, 1 << 60, i64::MAX - 1, i64::MAX];
const SIZES: [u64; 9] = [0, 1, 511, 4096, 1 << 31, 1 << 32, 1 << 53, 1 << 62, (1 << 63) - 1];
const OWNERS: [u32; 6] = [0, 1, 1000, 1001, 1 << 31, u32::MAX - 1];
const SNAPSHOTS: [&[u8]; 3] = [b"s1", b"s2", b"s3"];

pub(crate) fn pick<T: Copy>(random: &mut fastrand::Rng, list: &[T]) -> T {
    list[random.usize(..list.len())]
}

/// Names that meet often, some of strange bytes, some as long as can be.
pub(crate) fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut name: Vec<u8> = match random.u32(..8) {
        0 => vec![b'x'; random.usize(250..256)],
        1 => (0..random.usize(1..4)).map(|_| random.u8(1..)).collect(),
        2 => b"\xff\xfe*".to_vec(),
        3 => b"new\nline".to_vec(),
        4 => b"A.TXT".to_vec(),
        _ => vec![b'a' + random.u8(..6)],
    };
    name.retain(|byte| *byte != b'/');
    if matches!(&name[..], b"" | b"." | b".." | b".snapshots") { b"a".to_vec() } else { name }
}

fn user(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller {
        uid,
        gid,
        groups: groups.to_vec(),
        umask: 0,
        pid: 0,
        enforce: Enforce::Here,
        ends: Ends::NONE,
    }
}

pub(crate) fn caller(random: &mut fastrand::Rng) -> Caller {
    match random.u32(..5) {
        0 => user(1000, 1000, &[1001]),
        1 => user(1001, 1001, &[]),
        2 => user(u32::MAX - 1, u32::MAX - 1, &[0]),
        _ => Caller::root(),
    }
}

/// What a directory holds.
fn list(fs: &Fs, directory: NodeId) -> Vec<(Vec<u8>, Kind)> {
    let mut found = Vec::new();
    let listed = fs.readdir(&Caller::root(), directory, 0, &mut |entry| {
        found.push((entry.name.to_vec(), entry.kind));
        WalkControl::Continue
    });
    listed.expect("a directory lists");
    found
}

/// Something in the volume: the directory, its name there, and what it is.
type There = (NodeId, Vec<u8>, Kind);

fn something(fs: &Fs, random: &mut fastrand::Rng) -> Option<There> {
    let starts = directories(fs);
    let (directory, _) = starts[random.usize(..starts.len())];
    let found = list(fs, directory);
    let (name, kind) = found.get(random.usize(..found.len().max(1)))?.clone();
    Some((directory, name, kind))
}

/// Looks something up, does something with it, and lets go of it.
fn with<T>(
    fs: &Fs,
    (directory, name, _): &There,
    act: impl FnOnce(NodeId) -> FsResult<T>,
) -> FsResult<T> {
    let entry = fs.lookup(&Caller::root(), *directory, name)?;
    let done = act(entry.node);
    fs.forget(entry.node, 1);
    done
}

fn acl(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut list = Acl::of_mode(random.u32(..0o1000));
    list.users = vec![(1000, random.u32(..8)), (u32::MAX - 1, random.u32(..8))];
    list.groups = vec![(1001, random.u32(..8))];
    list.mask = Some(random.u32(..8));
    list.encode()
}

fn change_attributes(fs: &Fs, random: &mut fastrand::Rng, there: &There) -> FsResult<()> {
    let time = |random: &mut fastrand::Rng| SetTime::At(Timestamp(pick(random, &TIMES)));
    let size = (there.2 == Kind::File).then(|| pick(random, &SIZES));
    let mut some = |chance: u32| random.u32(..chance) == 0;
    let (mode, uid, gid, sized, timed) = (some(2), some(3), some(3), some(2), some(2));
    let change = SetAttr {
        mode: mode.then(|| random.u32(..0o10000)),
        uid: uid.then(|| pick(random, &OWNERS)),
        gid: gid.then(|| pick(random, &OWNERS)),
        size: size.filter(|_| sized),
        atime: timed.then(|| time(random)),
        mtime: timed.then(|| time(random)),
        ctime: None,
        btime: None,
    };
    with(fs, there, |node| fs.setattr(&Caller::root(), node, &change).map(drop))
}

/// One operation of a user, anywhere.
pub(crate) fn act(fs: &Fs, random: &mut fastrand::Rng) -> FsResult<()> {
    let root = Caller::root();
    let starts = directories(fs);
    let (into, _) = starts[random.usize(..starts.len())];
    let new = name(random);
    let made = |entry: FsResult<fs::Entry>| entry.map(|entry| fs.forget(entry.node, 1));
    let kind = random.u32(..100);
    match kind {
        0..20 => {
            let kind = pick(random, &[Kind::File, Kind::File, Kind::Fifo, Kind::CharDevice]);
            let file = NewNode { kind, mode: 0o644, rdev: 0 };
            return made(fs.mknod(&root, into, &new, &file));
        }
        20..34 => return made(fs.mkdir(&root, into, &new, 0o755)),
        34..38 => return made(fs.symlink(&root, into, &new, &name(random))),
        38..41 => {
            let snapshot = pick(random, &SNAPSHOTS);
            return fs.snapshot_create(&root, into, snapshot).map(drop);
        }
        41 => return fs.snapshot_delete(&root, into, pick(random, &SNAPSHOTS)),
        42..44 => return fs.rollback(&root, into, pick(random, &SNAPSHOTS)),
        _ => {}
    }
    let Some(there) = something(fs, random) else { return Ok(()) };
    let (directory, name, _) = &there;
    match kind {
        44..65 => change_attributes(fs, random, &there),
        65..72 => with(fs, &there, |node| {
            let (name, value) =
                (pick(random, &[b"user.a", b"user.b"]), vec![b'v'; random.usize(..3)]);
            fs.setxattr(&root, node, name, &value, SetXattr::Any)
        }),
        72..76 => {
            let value = acl(random);
            with(fs, &there, |node| fs.setxattr(&root, node, ACCESS, &value, SetXattr::Any))
        }
        76..84 => with(fs, &there, |node| made(fs.link(&root, node, into, &new))),
        84..91 => {
            let mode = if random.bool() { RenameMode::Replace } else { RenameMode::Exchange };
            fs.rename(&root, (*directory, name), (into, &new), mode)
        }
        91..94 => fs.unlink(&root, *directory, name),
        94..96 => fs.rmr(&root, *directory, name).map(drop),
        _ => with(fs, &there, |node| fs.clone_dir(&root, node, into, &new).map(drop)),
    }
}

/// A bound of a question: beside a value that may be there, or beyond all.
fn bound(random: &mut fastrand::Rng) -> i128 {
    let value = match random.u32(..6) {
        0 => i128::from(pick(random, &TIMES)),
        1 => i128::from(pick(random, &SIZES)),
        2 => i128::from(pick(random, &OWNERS)),
        3 => i128::from(random.u64(..200)),
        4 => i128::from(u64::MAX),
        _ => return pick(random, &[i128::MIN, i128::MAX, 0]),
    };
    value + random.i128(-1..2)
}

fn text(random: &mut fastrand::Rng) -> Vec<u8> {
    let mut text = name(random);
    text.truncate(random.usize(1..6));
    text
}

fn test(random: &mut fastrand::Rng) -> Expr {
    let glob = |bytes: &[u8]| Glob::literal(bytes).expect("it is short");
    let part = |bytes: &[u8]| Glob::containing(bytes, false, Letters::Bytes).expect("it is short");
    Expr::Test(match random.u32(..12) {
        0..5 => {
            let (one, other) = (bound(random), bound(random));
            let (low, high) =
                if random.u32(..9) == 0 { (one, other) } else { (one.min(other), one.max(other)) };
            Test::Within(pick(random, &Attribute::ALL), low, high)
        }
        5 => Test::Name(glob(&name(random))),
        6 => Test::Name(part(&text(random))),
        7 => Test::Path(part(&text(random))),
        8 => {
            let pattern = pick(random, &["a|b", "^.$", "x{250,}", "[^a-c]$", "\n"]);
            let regex = Regex::new(pattern.as_bytes(), Dialect::Native, false, Letters::Bytes);
            Test::NameRegex(regex.expect("an expression"))
        }
        9 => Test::Access(random.u32(..8)),
        10 => Test::Xattr(b"user.a".to_vec(), random.bool().then(|| glob(b"v"))),
        _ => Test::Target(part(&text(random))),
    })
}

pub(crate) fn expr(random: &mut fastrand::Rng, depth: u32) -> Expr {
    expr_of(random, depth, 5, test)
}

/// What is reported of a row.
#[derive(Debug, PartialEq, Eq)]
struct Shown {
    node: NodeId,
    mode: u32,
    owners: (u32, u32),
    nlink: u32,
    size: u64,
    allocated: u64,
    /// But that of the last read, which asking changes.
    times: [i64; 3],
}

impl Shown {
    fn of(attr: &Attr) -> Shown {
        Shown {
            node: attr.node,
            mode: attr.mode & 0o7777,
            owners: (attr.uid, attr.gid),
            nlink: attr.nlink,
            size: attr.size,
            allocated: attr.blocks * 512,
            times: [attr.mtime.0, attr.ctime.0, attr.btime.0],
        }
    }
}

/// Everything that a caller reaches from a directory, by the calls that a kernel makes.
fn by_calls(
    fs: &Fs,
    caller: &Caller,
    (node, path): (NodeId, &[u8]),
    found: &mut BTreeMap<Vec<u8>, Shown>,
) {
    let attr = fs.getattr(&Caller::root(), node).expect("it is there");
    found.insert(path.to_vec(), Shown::of(&attr));
    if attr.kind != Kind::Directory || fs.access(caller, node, READ | EXECUTE).is_err() {
        return;
    }
    for (name, _) in list(fs, node) {
        let entry = fs.lookup(caller, node, &name).expect("it is listed");
        by_calls(fs, caller, (entry.node, &[path, b"/", &name].concat()), found);
        fs.forget(entry.node, 1);
    }
}

/// The same by a search for everything.
fn by_search(fs: &Fs, caller: &Caller, (node, path): (NodeId, &[u8])) -> BTreeMap<Vec<u8>, Shown> {
    let all = Expr::yes();
    let below = everything_below(fs, node, caller, (&all, Fields::ATTRIBUTES));
    let request = Request { start: Start { path, ..below.start }, ..below };
    let mut found = BTreeMap::new();
    let searched = fs.search(&request, &mut |one| {
        let row = one.row;
        let shown = Shown {
            node: one.node(),
            mode: row.mode & 0o7777,
            owners: (row.uid, row.gid),
            nlink: row.nlink,
            size: row.size,
            allocated: row.allocated,
            times: [row.mtime, row.ctime, row.btime],
        };
        assert!(found.insert(one.path.to_vec(), shown).is_none(), "{:?} twice", one.path);
        ControlFlow::Continue(())
    });
    searched.expect("a search");
    found
}

pub(crate) fn check_by_calls(fs: &Fs, random: &mut fastrand::Rng, place: &str) {
    let starts = directories(fs);
    let (node, path) = &starts[random.usize(..starts.len())];
    let caller = caller(random);
    let mut calls = BTreeMap::new();
    by_calls(fs, &caller, (*node, path), &mut calls);
    let search = by_search(fs, &caller, (*node, path));
    for (path, shown) in &calls {
        assert_eq!(search.get(path), Some(shown), "{place}: {caller:?}: {}", path.escape_ascii());
    }
    let more: Vec<_> = search.keys().filter(|path| !calls.contains_key(*path)).collect();
    assert!(more.is_empty(), "{place}: {caller:?} may not see {more:?}");
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(seed: u64, engine: Engine, steps: usize) {
    println!("seed {seed}, {engine:?}");
    let device = SimDevice::new(seed);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let (fs, mut random) = (subject.fs(), fastrand::Rng::with_seed(seed));
    for step in 0..steps {
        device::Clock::sleep(subject.clock(), std::time::Duration::from_millis(50));
        if let Err(FsError::Io(error)) = act(fs, &mut random) {
            panic!("seed {seed}, step {step}: {error}");
        }
        if step % 4 == 0 {
            subject.background(6).expect("background work goes well");
        }
        if random.u32(..10) == 0 {
            let starts = directories(fs);
            let (node, _) = starts[random.usize(..starts.len())];
            fs.index_flush(node).expect("a flush goes well");
        }
        if step % 8 == 7 {
            let place = format!("seed {seed}, {engine:?}, step {step}");
            let starts = directories(fs);
            for _ in 0..3 {
                let mut query = Query::random(&mut random, &starts);
                query.caller = caller(&mut random);
                query.expr = expr(&mut random, 2);
                query.check(fs, &place);
            }
            check_totals(fs, &mut random, &starts, &place);
            check_by_calls(fs, &mut random, &place);
        }
    }
}

#[test]
fn hostile_names_times_sizes_and_rights_are_found_as_by_walking() {
    for seed in 0..scale(6, 600) {
        run(seed, Engine::Btree, 160);
    }
}

#[test]
fn hostile_names_times_sizes_and_rights_are_found_on_the_log_structured_engine() {
    for seed in 1000..1000 + scale(4, 300) {
        run(seed, Engine::Lsm, 160);
    }
}
