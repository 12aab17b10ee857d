//! Searches through the index equal walks, after power cuts and damage too. Operations are random,
//! with flushes, clones, snapshots, roll-back, pruning and reopening in any order.

use std::cell::Cell;
use std::ops::{ControlFlow, Range};
use std::sync::atomic::AtomicBool;

use format::inode_record::FileKind;
use fs::{Engine, FileSystem, Fs, NewNode};
use inode::{Caller, Ends, Enforce, NodeId};
use search::cluster::{Fields, Like};
use search::query::{Accounts, Expr, Glob, Kinds, Letters, Perm, PermKind, Test};
use search::{Attribute, Emit, Outcome, Request, Row, Sort, SortBy, Start};
use store::Durability;
use testing::SimDevice;

use crate::script::{Script, Step, scale};
use crate::search_counts::check_counts;
use crate::search_totals::check_totals;
use crate::subject::Base;

on_each_engine!(
    searches_equal_walks_whatever_is_damaged_in_the_index,
    clones_with_a_change_each_take_nothing_of_the_index,
    names_beside_a_clone_are_no_changes_of_it,
);

pub(crate) struct Everybody;

impl Accounts for Everybody {
    fn has_user(&self, uid: u32) -> bool {
        uid != 1001
    }

    fn has_group(&self, gid: u32) -> bool {
        gid != 1002
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

/// A request for all that meets a condition, at a directory and below it.
pub(crate) fn everything_below<'a>(
    fs: &Fs,
    node: NodeId,
    caller: &'a Caller,
    (expr, fields): (&'a Expr, Fields),
) -> Request<'a> {
    let (subvolume, directory) = fs.search_place(node).expect("a directory");
    Request {
        start: Start { subvolume, directory, path: b"/", depth: 0 },
        expr,
        prune: None,
        alone: false,
        caller,
        min_depth: 0,
        max_depth: None,
        contents_first: false,
        order: None,
        limit: None,
        fields,
        accounts: &Everybody,
        cancel: &NEVER,
    }
}

/// A query that owns its parts.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    start: NodeId,
    path: Vec<u8>,
    pub(crate) expr: Expr,
    prune: Option<Expr>,
    pub(crate) caller: Caller,
    min_depth: u32,
    max_depth: Option<u32>,
    /// The first so many of an order are requested.
    first: Option<(Sort, u64)>,
}

/// What is compared of a match.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Line {
    path: Vec<u8>,
    depth: u32,
    subvolume: u64,
    row: String,
}

fn number(random: &mut fastrand::Rng) -> Expr {
    let attribute = match random.u32(..9) {
        0 => Attribute::Uid,
        1 => Attribute::Gid,
        2 => Attribute::Mode,
        3 => Attribute::Links,
        4 | 5 => Attribute::Size,
        6 => Attribute::Allocated,
        7 => Attribute::Mtime,
        _ => Attribute::Ctime,
    };
    let (low, high) = match attribute {
        Attribute::Uid | Attribute::Gid => (i128::from(random.u32(998..1002)), 1001),
        Attribute::Mode => (0, i128::from(random.u32(..0o7777))),
        Attribute::Links => (2, 5),
        Attribute::Mtime | Attribute::Ctime => {
            let from = 1_700_000_000_000_000_000 + random.i64(0..200_000_000_000);
            (i128::from(from), i128::from(from + random.i64(0..100_000_000_000)))
        }
        _ => (i128::from(random.u64(..10_000)), 1 << 40),
    };
    Expr::Test(Test::Within(attribute, low, high))
}

fn test(random: &mut fastrand::Rng) -> Expr {
    let glob = |random: &mut fastrand::Rng| {
        let patterns: [&[u8]; 6] = [b"*a*", b"b*", b"*1", b"c", b"?", b"[a-d]*"];
        Glob::new(patterns[random.usize(..6)], random.bool(), Letters::Bytes).expect("a pattern")
    };
    Expr::Test(match random.u32(..10) {
        0..3 => return number(random),
        3 => Test::Kind(Kinds::default().with(FileKind::File)),
        4 => Test::Kind(Kinds::default().with(FileKind::Directory).with(FileKind::Symlink)),
        5 => Test::Name(glob(random)),
        6 => Test::Path(glob(random)),
        7 => Test::Empty,
        8 => Test::Perm(Perm { kind: PermKind::Any, files: 0o022, directories: 0o022 }),
        _ => Test::NoUser,
    })
}

fn expr(random: &mut fastrand::Rng, depth: u32) -> Expr {
    expr_of(random, depth, 6, test)
}

/// An expression of tests; three of so many `choices` join several.
pub(crate) fn expr_of(
    random: &mut fastrand::Rng,
    depth: u32,
    choices: u32,
    test: fn(&mut fastrand::Rng) -> Expr,
) -> Expr {
    let part = |random: &mut fastrand::Rng| expr_of(random, depth - 1, choices, test);
    let parts = |random: &mut fastrand::Rng| {
        (0..random.u32(1..4)).map(|_| part(random)).collect::<Vec<_>>()
    };
    match random.u32(..choices) {
        _ if depth == 0 => test(random),
        0 => Expr::Any(parts(random)),
        1 => Expr::All(parts(random)),
        2 => Expr::Not(Box::new(part(random))),
        _ => test(random),
    }
}

/// An order, most often of what is most like something.
fn sort(random: &mut fastrand::Rng) -> Sort {
    let descending = random.u32(..4) == 0;
    let by = match random.u32(..8) {
        0 => SortBy::Size,
        1 => SortBy::Mtime,
        2 => SortBy::Name,
        3 => SortBy::Path,
        _ => {
            let kinds = [FileKind::File, FileKind::Directory, FileKind::Symlink];
            let time = 1_700_000_000_000_000_000 + random.i64(0..200_000_000_000);
            let row = Row {
                directory: 0,
                cookie: 0,
                ino: 0,
                name: [&b"a.txt"[..], b"b"][random.usize(..2)],
                kind: kinds[random.usize(..3)],
                mode: 0,
                uid: random.u32(998..1002),
                gid: random.u32(998..1002),
                nlink: 1,
                rdev: 0,
                size: random.u64(..10_000),
                allocated: 0,
                entries: 0,
                atime: time,
                mtime: time,
                ctime: time,
                btime: time,
                subvolume: 0,
                xattrs: b"",
            };
            SortBy::Like(Like::new(&row))
        }
    };
    Sort { by, descending }
}

/// Root, or an ordinary user.
pub(crate) fn caller(random: &mut fastrand::Rng) -> Caller {
    match random.u32(..3) {
        0 => Caller {
            uid: 1000,
            gid: 1000,
            groups: vec![2000],
            umask: 0,
            pid: 0,
            enforce: Enforce::Here,
            ends: Ends::NONE,
        },
        _ => Caller::root(),
    }
}

/// Some directories with the paths that point to them, snapshots too.
pub(crate) fn directories(fs: &Fs) -> Vec<(NodeId, Vec<u8>)> {
    let root = Caller::root();
    let mut found = vec![(NodeId::ROOT, b"/mnt".to_vec())];
    let mut next = 0;
    while next < found.len() && found.len() < 60 {
        let (node, path) = found[next].clone();
        next += 1;
        let mut below = Vec::new();
        fs.readdir(&root, node, 0, &mut |entry| {
            if entry.kind == inode::Kind::Directory {
                below.push((entry.node, [&path[..], b"/", entry.name].concat()));
            }
            fs::WalkControl::Continue
        })
        .expect("a directory lists");
        for snapshot in fs.snapshot_list(&root, node).unwrap_or_default() {
            below.push((snapshot.root, [&path[..], b"@", &snapshot.name].concat()));
        }
        found.extend(below);
    }
    found
}

impl Query {
    pub(crate) fn random(random: &mut fastrand::Rng, starts: &[(NodeId, Vec<u8>)]) -> Query {
        let start = if random.bool() { 0 } else { random.usize(..starts.len()) };
        let (start, path) = starts[start].clone();
        let prune = (random.u32(..6) == 0).then(|| expr(random, 1));
        Query {
            start,
            path,
            expr: if random.u32(..5) == 0 { Expr::yes() } else { expr(random, 2) },
            prune,
            caller: caller(random),
            min_depth: if random.u32(..5) == 0 { random.u32(..3) } else { 0 },
            max_depth: (random.u32(..5) == 0).then(|| random.u32(..4)),
            first: (random.u32(..4) == 0).then(|| (sort(random), random.u64(1..8))),
        }
    }

    fn request<T>(
        &self,
        fs: &Fs,
        ask: &mut dyn FnMut(&Request<'_>) -> Result<T, String>,
    ) -> Result<T, String> {
        let place = fs.search_place(self.start);
        let (subvolume, directory) = place.map_err(|error| error.to_string())?;
        ask(&Request {
            start: Start { subvolume, directory, path: &self.path, depth: 0 },
            expr: &self.expr,
            prune: self.prune.as_ref(),
            alone: false,
            caller: &self.caller,
            min_depth: self.min_depth,
            max_depth: self.max_depth,
            contents_first: false,
            order: self.first.map(|(sort, _)| sort),
            limit: self.first.map(|(_, limit)| limit),
            fields: Fields::ATTRIBUTES,
            accounts: &Everybody,
            cancel: &AtomicBool::new(false),
        })
    }

    fn run(
        &self,
        fs: &Fs,
        run: impl Fn(&Request<'_>, Emit<'_>) -> search::Result<Outcome>,
    ) -> Result<(Vec<Line>, u64), String> {
        let mut lines = Vec::new();
        let outcome = self.request(fs, &mut |request| {
            run(request, &mut |found| {
                lines.push(Line {
                    path: found.path.to_vec(),
                    depth: found.depth,
                    subvolume: found.subvolume,
                    row: format!("{:?}", found.row),
                });
                ControlFlow::Continue(())
            })
            .map_err(|error| error.to_string())
        })?;
        assert_eq!(outcome.matched, lines.len() as u64);
        assert!(!outcome.cancelled);
        if self.first.is_none() {
            lines.sort();
        }
        Ok((lines, outcome.unreadable))
    }

    /// Fails unless the index counts what a walk found.
    fn check_count(&self, fs: &Fs, walked: &Result<(Vec<Line>, u64), String>, place: &str) {
        if self.first.is_some() {
            return;
        }
        let counted = self.request(fs, &mut |request| {
            let outcome = fs.search_counted(request).map_err(|error| error.to_string())?;
            assert!(!outcome.cancelled);
            Ok((outcome.matched, outcome.unreadable))
        });
        let lines = |(lines, closed): &(Vec<Line>, u64)| (lines.len() as u64, *closed);
        let walked = walked.as_ref().map(lines).map_err(String::clone);
        assert_eq!(counted, walked, "{place}: {self:?} is counted");
    }

    /// Fails unless the index and a walk answer alike; the clusters that were read.
    pub(crate) fn check(&self, fs: &Fs, place: &str) -> u64 {
        let read = Cell::new(0);
        let indexed = self.run(fs, |request, emit| {
            let outcome = fs.search(request, emit)?;
            read.set(outcome.clusters_read);
            Ok(outcome)
        });
        let walked = self.run(fs, |request, emit| fs.search_by_walking(request, emit));
        if indexed == walked {
            self.check_count(fs, &walked, place);
            return read.get();
        }
        match (indexed, walked) {
            (Ok((indexed, closed)), Ok((walked, closed_walking))) => {
                let only = |one: &[Line], two: &[Line]| {
                    let lines = one.iter().filter(|line| !two.contains(line));
                    lines.map(|line| format!("  {line:?}")).collect::<Vec<_>>().join("\n")
                };
                panic!(
                    "{place}: {self:?}\nonly by the index ({closed} closed):\n{}\nonly by walking \
                     ({closed_walking} closed):\n{}",
                    only(&indexed, &walked),
                    only(&walked, &indexed)
                );
            }
            (indexed, walked) => panic!(
                "{place}: {self:?}: the index answers {:?}, a walk {:?}",
                indexed.map(|_| ()),
                walked.map(|_| ())
            ),
        }
    }
}

/// Compares random queries and totals; the clusters that queries read.
pub(crate) fn compare(fs: &Fs, random: &mut fastrand::Rng, queries: usize, place: &str) -> u64 {
    let starts = directories(fs);
    let read = (0..queries).map(|_| Query::random(random, &starts).check(fs, place)).sum();
    for _ in 0..queries.div_ceil(2) {
        check_totals(fs, random, &starts, place);
        check_counts(fs, random, &starts, place);
    }
    read
}

/// Flushes the subvolume of some directory.
fn flush(fs: &Fs, random: &mut fastrand::Rng) {
    let starts = directories(fs);
    let (node, _) = starts[random.usize(..starts.len())];
    fs.index_flush(node).expect("a flush goes well");
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(seed: u64, base: &Base, steps: usize) -> u64 {
    println!("seed {seed}");
    let device = SimDevice::new(seed);
    let mut script = Script::new(&device, seed, Durability::Async, base);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut read = 0;
    for step in 0..steps {
        assert_eq!(script.step(), Step::Done);
        let fs = script.subject.fs();
        if random.u32(..12) == 0 {
            flush(fs, &mut random);
        }
        if random.u32(..60) == 0 {
            delete_files(&device, &mut random);
        }
        if random.u32(..5) == 0 {
            read += compare(fs, &mut random, 3, &format!("seed {seed}, step {step}"));
        }
    }
    script.compare();
    read + compare(script.subject.fs(), &mut random, 20, &format!("seed {seed}, at the end"))
}

/// Fails where the index is hardly used, which is what these tests are about.
#[expect(clippy::print_stdout, reason = "how much a run was worth")]
fn run_all(seeds: Range<u64>, base: &Base) {
    let least = (seeds.end - seeds.start) * 40;
    let read: u64 = seeds.map(|seed| run(seed, base, 250)).sum();
    println!("{read} clusters were read");
    assert!(read > least, "the index is hardly used: {read}");
}

/// Deletes one file of the index, or all.
fn delete_files(device: &SimDevice, random: &mut fastrand::Rng) {
    use device::Device;
    let names = device.list(search::index::DIRECTORY).unwrap_or_default();
    let all = random.bool();
    for name in names {
        if all || random.u32(..4) == 0 {
            device.remove(&format!("{}/{name}", search::index::DIRECTORY)).expect("a file goes");
        }
    }
}

#[test]
fn searches_equal_walks_on_random_operations() {
    run_all(0..scale(12, 1000), &Base::Engine(Engine::Btree));
}

#[test]
fn searches_equal_walks_on_the_log_structured_engine() {
    run_all(0..scale(6, 500), &Base::Engine(Engine::Lsm));
}

#[test]
fn searches_equal_walks_over_the_oracle() {
    run_all(5000..5000 + scale(8, 500), &Base::Oracle(None));
}

fn searches_equal_walks_whatever_is_damaged_in_the_index(engine: Engine) {
    for seed in 0..scale(8, 400) {
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, &Base::Engine(engine));
        let mut random = fastrand::Rng::with_seed(seed);
        for step in 0..120 {
            assert_eq!(script.step(), Step::Done);
            let fs = script.subject.fs();
            if step % 10 == 5 {
                flush(fs, &mut random);
            }
            if step % 10 == 8 {
                damage(&device, &mut random);
                compare(fs, &mut random, 4, &format!("seed {seed}, step {step}"));
            }
        }
        script.compare();
    }
}

/// Flips bits in files of the index, cuts some, and empties some.
pub(crate) fn damage(device: &SimDevice, random: &mut fastrand::Rng) {
    use device::Device;
    for name in device.list(search::index::DIRECTORY).unwrap_or_default() {
        if random.u32(..3) != 0 {
            continue;
        }
        let file = device.open(&format!("{}/{name}", search::index::DIRECTORY));
        let file = file.expect("a file that was listed opens");
        let length = file.len().expect("it has a length");
        match random.u32(..4) {
            0 => file.set_len(random.u64(..=length)).expect("it is cut"),
            1 => file.set_len(0).expect("it is emptied"),
            _ => {
                for _ in 0..random.u32(1..4) {
                    let at = random.u64(..length.max(1));
                    let mut byte = [0];
                    file.read_at(&mut byte, at).expect("it reads");
                    byte[0] ^= 1 << random.u32(..8);
                    file.write_at(&byte, at).expect("it writes");
                }
            }
        }
    }
}

/// A volume with a directory of some files, and clones of it with one change each.
fn clones_with_a_change_each_take_nothing_of_the_index(engine: Engine) {
    let clones = scale(300, 10_000);
    let device = SimDevice::new(1);
    let script = Script::new(&device, 1, Durability::Async, &Base::Engine(engine));
    let fs = script.subject.fs();
    let root = Caller::root();
    let file = NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
    let make = |parent: NodeId, name: &str| {
        let made = fs.mknod(&root, parent, name.as_bytes(), &file).expect("a file is made");
        fs.forget(made.node, 1);
    };
    let source = fs.mkdir(&root, NodeId::ROOT, b"source", 0o755).expect("a directory").node;
    for number in 0..400 {
        make(source, &format!("file{number}"));
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let stats = || fs.index_stats().expect("it answers").expect("there is an index");
    let before = stats().disk_bytes;
    assert!(before > 0);
    for number in 0..clones {
        let name = format!("clone{number}");
        let clone = fs.clone_dir(&root, source, NodeId::ROOT, name.as_bytes()).expect("a clone");
        make(clone.root, "change");
        if number % 50 == 0 {
            fs.background_step(64).expect("background work goes well");
        }
    }
    let glob = |pattern: &[u8]| Glob::new(pattern, false, Letters::Bytes).expect("a pattern");
    let one = |name: &[u8]| Query {
        start: NodeId::ROOT,
        path: b"/".to_vec(),
        expr: Expr::Test(Test::Name(glob(name))),
        prune: None,
        caller: Caller::root(),
        min_depth: 0,
        max_depth: None,
        first: None,
    };
    one(b"change").check(fs, "changes of clones");
    one(b"file3").check(fs, "files of clones");
    let after = stats();
    // The root's own base may be replaced: so many names were made in it.
    let limit = before * 2 + clones * 200;
    assert!(after.disk_bytes < limit, "{} bytes, {before} before", after.disk_bytes);
    assert!(after.delta_bytes < clones * 4096, "{after:?}");
}

/// The tree of a clone also has the names beside it, of all clones that were made before. They are
/// no changes of it, and each clone had got a base of its own for them.
fn names_beside_a_clone_are_no_changes_of_it(engine: Engine) {
    use device::{Clock, Device};
    let device = SimDevice::new(1);
    let script = Script::new(&device, 1, Durability::Async, &Base::Engine(engine));
    let fs = script.subject.fs();
    let root = Caller::root();
    let file = NewNode { kind: inode::Kind::File, mode: 0o644, rdev: 0 };
    let source = fs.mkdir(&root, NodeId::ROOT, b"source", 0o755).expect("a directory").node;
    for number in 0..100 {
        let made = fs.mknod(&root, source, format!("file{number}").as_bytes(), &file);
        fs.forget(made.expect("a file is made").node, 1);
    }
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    for number in 0..60 {
        let name = format!("clone{number}");
        let clone = fs.clone_dir(&root, source, NodeId::ROOT, name.as_bytes()).expect("a clone");
        let made = fs.mknod(&root, clone.root, b"change", &file).expect("a file is made");
        fs.forget(made.node, 1);
    }
    for _ in 0..300 {
        script.subject.clock().sleep(std::time::Duration::from_millis(200));
        fs.background_step(64).expect("background work goes well");
    }
    let files = device.list(search::index::DIRECTORY).expect("it lists");
    let bases = files.iter().filter(|name| name.starts_with("manifest-")).count();
    // That of the beginning, of which the clones are, and that of the root with their names.
    assert!((1..=3).contains(&bases), "{bases} bases for 60 clones");
}

#[test]
fn attributes_that_the_caller_may_not_read_are_not_guessed_by_searching() {
    use crate::support::{ROOT, user, volume};
    let v = volume();
    let root = Caller::root();
    let file = v.file_as(&root, ROOT, "f", 0o600).expect("a file").node;
    let any = fs::SetXattr::Any;
    v.fs.setxattr(&root, file, b"user.color", b"crimson", any).expect("space");
    v.fs.setxattr(&root, file, b"trusted.t", b"secret", any).expect("space");
    let found = |caller: &Caller, name: &[u8]| {
        let expr = Expr::Test(Test::Xattr(name.to_vec(), None));
        let below = everything_below(&v.fs, ROOT, caller, (&expr, Fields::ATTRIBUTES));
        let request = Request { min_depth: 1, ..below };
        v.fs.search(&request, &mut |_| ControlFlow::Continue(())).expect("a search").matched
    };
    assert_eq!([found(&root, b"user.color"), found(&root, b"trusted.t")], [1, 1]);
    assert_eq!([found(&user(7), b"user.color"), found(&user(7), b"trusted.t")], [0, 0]);
    let open = inode::SetAttr { mode: Some(0o644), ..Default::default() };
    v.fs.setattr(&root, file, &open).expect("a file");
    assert_eq!([found(&user(7), b"user.color"), found(&user(7), b"trusted.t")], [1, 0]);
}
