//! Trees that are built as drafts equal those of ordinary calls, in every attribute, with every
//! error; and power is cut while they become visible.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use format::acl::{ACCESS, Acl, DEFAULT};
use fs::{
    Builder, BulkNode, Engine, FileSystem, FormatOptions, FsResult, NewNode, OpenOptions, Owner,
    QuotaLimits, WalkControl,
};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use store::{Durability, Store};
use testing::{CrashPolicy, Fault, FaultOn, SimDevice, SimEnv};

use crate::support::{ROOT, Volume, assert_whole, user, volume_on};

on_each_engine!(
    drafts_equal_ordinary_calls,
    power_is_cut_while_drafts_become_visible,
    contents_stay_when_a_commit_is_in_doubt,
    counts_wait_for_a_flush,
    what_is_written_in_small_pieces_is_no_draft,
);

/// Memory for drafts: the least.
const MEMORY: usize = 64 << 10;

/// What the calls of a script may do, decided before so that two volumes do the same.
#[derive(Debug, Clone)]
enum Step {
    Make { dir: usize, name: Vec<u8>, kind: Kind, mode: u32 },
    Link { dir: usize, name: Vec<u8>, of: usize },
    Write { at: usize, offset: u64, bytes: Vec<u8> },
    Attributes { at: usize, changes: SetAttr },
    Xattr { at: usize, name: &'static [u8], value: Vec<u8> },
    Unlist { at: usize, default: bool },
    Remove { dir: usize, name: Vec<u8> },
    Release { at: usize },
    Flush,
}

/// One side: a volume, and what the script made.
struct Side<'a> {
    v: &'a Volume<dyn Store>,
    caller: Caller,
    builder: Builder<'a>,
    /// `None`: released.
    made: Vec<Option<BulkNode>>,
}

impl Side<'_> {
    fn spot(&self, at: usize) -> FsResult<BulkNode> {
        self.made.get(at).copied().flatten().ok_or(FsError::Stale)
    }

    fn step(&mut self, step: &Step) -> FsResult<()> {
        match step {
            Step::Make { dir, name, kind, mode } => {
                let parent = self.spot(*dir)?;
                let made = match kind {
                    Kind::Directory => self.builder.mkdir(parent, name, *mode),
                    Kind::Symlink => self.builder.symlink(parent, name, b"target/of it"),
                    kind => {
                        let new = NewNode { kind: *kind, mode: *mode, rdev: mode % 7 };
                        self.builder.mknod(parent, name, &new)
                    }
                };
                self.made.push(made.as_ref().ok().copied());
                made.map(drop)
            }
            Step::Link { dir, name, of } => {
                let (parent, of) = (self.spot(*dir)?, self.spot(*of)?);
                let (of, parent) = (self.builder.node(of)?, self.builder.node(parent)?);
                let made = self.v.fs.link(&self.caller, of, parent, name)?;
                self.v.fs.forget(made.node, 1);
                Ok(())
            }
            Step::Write { at, offset, bytes } => {
                let at = self.spot(*at)?;
                self.builder.write(at, *offset, bytes)
            }
            Step::Attributes { at, changes } => {
                let at = self.spot(*at)?;
                self.builder.setattr(at, changes)
            }
            Step::Xattr { at, name, value } => {
                let at = self.spot(*at)?;
                self.builder.setxattr(at, name, value)
            }
            Step::Unlist { at, default } => {
                let at = self.spot(*at)?;
                self.builder.remove_list(at, if *default { DEFAULT } else { ACCESS })
            }
            Step::Remove { dir, name } => {
                let parent = self.spot(*dir)?;
                let parent = self.builder.node(parent)?;
                self.v.fs.unlink(&self.caller, parent, name)
            }
            Step::Release { at } => {
                let Some(spot) = self.made.get_mut(*at).and_then(Option::take) else {
                    return Ok(());
                };
                self.builder.release(spot);
                Ok(())
            }
            Step::Flush => self.builder.flush(),
        }
    }
}

fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    match random.u32(..20) {
        0 => b".snapshots".to_vec(),
        1 => b"..".to_vec(),
        2 => vec![b'x'; 256],
        3 => b"a/b".to_vec(),
        4 => b".trash".to_vec(),
        5..8 => vec![random.u8(1..47), 0xff, random.u8(128..)],
        _ => format!("n{}", random.u32(..40)).into_bytes(),
    }
}

fn step(random: &mut fastrand::Rng, made: usize, times: &mut i64) -> Step {
    let at = random.usize(..made);
    let dir = if random.bool() { at } else { random.usize(..made.min(8)) };
    match random.u32(..100) {
        0..45 => {
            let kinds = [
                Kind::Directory,
                Kind::Directory,
                Kind::File,
                Kind::File,
                Kind::File,
                Kind::Symlink,
                Kind::Fifo,
                Kind::Socket,
                Kind::CharDevice,
            ];
            let kind = kinds[random.usize(..kinds.len())];
            Step::Make { dir, name: name(random), kind, mode: random.u32(..0o10000) | 0o600 }
        }
        45..48 => Step::Link { dir, name: name(random), of: at },
        48..62 => {
            let length = [1, 100, 4096, 4097, 9000, 200_000][random.usize(..6)];
            let offset = [0, 0, 0, 1, 5000, 300_000][random.usize(..6)];
            Step::Write { at, offset, bytes: vec![random.u8(..); random.usize(..=length)] }
        }
        62..76 => {
            *times += 1_000_000_007;
            let time = Some(SetTime::At(device::Timestamp(*times)));
            let changes = SetAttr {
                mode: random.bool().then(|| random.u32(..0o10000) | 0o600),
                uid: (random.u32(..4) == 0).then(|| [0, 1000, 1001][random.usize(..3)]),
                gid: (random.u32(..3) == 0).then(|| [0, 1000, 100][random.usize(..3)]),
                atime: time.filter(|_| random.bool()),
                mtime: time,
                ..SetAttr::default()
            };
            Step::Attributes { at, changes }
        }
        76..80 => {
            let size = [0, 1, 4096, 4097, 100_000, 1 << 40][random.usize(..6)];
            Step::Attributes { at, changes: SetAttr { size: Some(size), ..SetAttr::default() } }
        }
        80..88 => {
            let names: [&[u8]; 6] =
                [b"user.a", b"user.b", b"trusted.t", b"security.s", b"system.no", b"user."];
            let value = vec![7; [0, 1, 300, 70_000][random.usize(..4)]];
            Step::Xattr { at, name: names[random.usize(..names.len())], value }
        }
        88..91 => {
            let mut acl = Acl::of_mode(random.u32(..0o1000));
            acl.users = vec![(1001, random.u32(..8))];
            acl.mask = Some(random.u32(..8));
            let name = if random.bool() { ACCESS } else { DEFAULT };
            Step::Xattr { at, name, value: acl.encode() }
        }
        91..93 => Step::Unlist { at, default: random.bool() },
        93..95 => Step::Remove { dir, name: name(random) },
        95..97 => Step::Release { at },
        97 => Step::Flush,
        _ => Step::Make { dir, name: name(random), kind: Kind::File, mode: 0o644 },
    }
}

/// Directories with everything that what is made in them depends on.
fn furnish(v: &Volume<dyn Store>) -> Vec<NodeId> {
    let root = Caller::root();
    let open = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let mut tops = vec![ROOT];
    for name in ["plain", "set-group", "lists", "quota", "trash", "closed", "sticky"] {
        let node = v.dir(ROOT, name).node;
        tops.push(node);
        v.fs.setattr(&root, node, &open).unwrap();
    }
    let shared = SetAttr { mode: Some(0o2777), gid: Some(100), ..SetAttr::default() };
    v.fs.setattr(&root, tops[2], &shared).unwrap();
    let mut acl = Acl::of_mode(0o775);
    (acl.groups, acl.mask) = (vec![(1001, 6)], Some(7));
    v.fs.setxattr(&root, tops[3], DEFAULT, &acl.encode(), fs::SetXattr::Any).unwrap();
    let limits = QuotaLimits { inodes: Some(12), bytes: Some(300_000) };
    v.fs.quota_set(&root, tops[4], limits).unwrap();
    v.fs.trash_set(&root, tops[5], Some(3600)).unwrap();
    let closed = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    v.fs.setattr(&root, tops[6], &closed).unwrap();
    let sticky = SetAttr { mode: Some(0o1777), ..SetAttr::default() };
    v.fs.setattr(&root, tops[7], &sticky).unwrap();
    for &top in &tops {
        v.file(top, "n1");
        v.dir(top, "n2");
    }
    tops
}

/// A sum that depends on the order.
fn sum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)))
}

type Tree = BTreeMap<Vec<u8>, String>;

/// Everything below a directory, by its path.
fn tree(fs: &fs::Volume, dir: NodeId, path: &[u8], out: &mut Tree) {
    let root = Caller::root();
    let mut names = Vec::new();
    fs.readdir(&root, dir, 0, &mut |entry| {
        names.push(entry.name.to_vec());
        WalkControl::Continue
    })
    .unwrap();
    for name in names {
        if name == b"." || name == b".." {
            continue;
        }
        let found = fs.lookup(&root, dir, &name).unwrap();
        let path = [path, b"/", &name].concat();
        let attr = found.attr;
        let xattrs = fs.listxattr(&root, found.node).unwrap();
        let xattrs: Vec<_> =
            xattrs.split(|byte| *byte == 0).filter(|name| !name.is_empty()).collect();
        let mut xattrs: Vec<_> = xattrs
            .iter()
            .map(|name| (name.to_vec(), fs.getxattr(&root, found.node, name).unwrap()))
            .collect();
        xattrs.sort();
        let contents = match attr.kind {
            Kind::File => {
                let mut bytes = vec![0; attr.size.min(1 << 20) as usize];
                let read = fs.read_untimed(&root, found.node, 0, &mut bytes).unwrap();
                (read, sum(&bytes))
            }
            Kind::Symlink => (0, sum(&fs.readlink_untimed(&root, found.node).unwrap())),
            _ => (0, 0),
        };
        let what = format!(
            "{:?} {:o} {} {}:{} {} {} {} {} {} {} {} {xattrs:?} {contents:?}",
            attr.kind,
            attr.mode,
            attr.nlink,
            attr.uid,
            attr.gid,
            attr.rdev,
            attr.size,
            attr.blocks,
            attr.atime.0,
            attr.mtime.0,
            attr.ctime.0,
            attr.btime.0,
        );
        out.insert(path.clone(), what);
        if attr.kind == Kind::Directory {
            tree(fs, found.node, &path, out);
        }
        fs.forget(found.node, 1);
    }
}

fn script(engine: Engine, seed: u64) {
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let bits = [2, 8, 55][random.usize(..3)];
    let (one, other) = (volume_on(engine, bits), volume_on(engine, bits));
    let caller = if random.bool() { Caller::root() } else { user(1000) };
    let caller = Caller { groups: vec![100], umask: random.u32(..0o100), ..caller };
    let limits = QuotaLimits { inodes: Some(random.u64(20..90)), bytes: Some(900_000) };
    let owned = random.bool();
    for v in [&one, &other] {
        let tops = furnish(v);
        assert_eq!(tops.len(), 8);
        v.fs.index_flush(ROOT).unwrap();
        if owned {
            v.fs.owner_quota_set(&Caller::root(), Owner::User(1000), limits).unwrap();
        }
    }
    let mut sides = [(&one, None), (&other, Some(MEMORY))].map(|(v, memory)| {
        let made = (0..8).map(|n| {
            let names: [&[u8]; 8] =
                [b"", b"plain", b"set-group", b"lists", b"quota", b"trash", b"closed", b"sticky"];
            match n {
                0 => ROOT,
                n => v.fs.lookup(&Caller::root(), ROOT, names[n]).unwrap().node,
            }
        });
        let made = made.map(|node| Some(BulkNode::of(node))).collect();
        let builder = Builder::new(&v.fs, &caller, ROOT, memory).unwrap();
        Side { v, caller: caller.clone(), builder, made }
    });
    let (mut times, mut drafted) = (1, 0);
    for n in 0..220 {
        let step = step(&mut random, sides[0].made.len(), &mut times);
        let results: Vec<String> =
            sides.iter_mut().map(|side| format!("{:?}", side.step(&step))).collect();
        assert_eq!(results[0], results[1], "seed {seed}, step {n}: {step:?}");
        let [_, side] = &sides;
        drafted += side.made.iter().flatten().filter(|spot| side.builder.is_draft(**spot)).count();
        if n == 110 && random.bool() {
            // A quota is set, and its limit, while there are drafts.
            for v in [&one, &other] {
                let plain = v.find(ROOT, "plain").unwrap().node;
                let limits = QuotaLimits { inodes: Some(400), bytes: None };
                v.fs.quota_set(&Caller::root(), plain, limits).unwrap();
                v.fs.owner_quota_set(&Caller::root(), Owner::Group(100), limits).unwrap();
            }
        }
    }
    assert!(drafted > 100, "seed {seed}: {drafted} drafts");
    let trees = sides.map(|mut side| {
        side.builder.flush().unwrap();
        let mut all = Tree::new();
        tree(&side.v.fs, ROOT, b"", &mut all);
        all
    });
    for (path, what) in &trees[0] {
        let shown = String::from_utf8_lossy(path);
        assert_eq!(Some(what), trees[1].get(path), "seed {seed}: {shown}");
    }
    assert_eq!(trees[0], trees[1], "seed {seed}");
    for v in [&one, &other] {
        assert_whole(&v.fs);
        crate::search::compare(&v.fs, &mut random, 2, &format!("seed {seed}"));
    }
    for owner in [Owner::User(0), Owner::User(1000), Owner::Group(100), Owner::Group(1000)] {
        let of = |v: &Volume<dyn Store>| v.fs.owner_quota_get(&Caller::root(), owner).unwrap();
        assert_eq!(format!("{:?}", of(&one)), format!("{:?}", of(&other)), "seed {seed}");
    }
}

fn drafts_equal_ordinary_calls(engine: Engine) {
    for seed in 0..crate::script::scale(16, 400) {
        script(engine, seed);
    }
}

/// What a crash left: nothing of what was not flushed, or all of it, and nothing else.
fn check_crash(disk: &SimDevice, (op, before): (u64, usize), place: &str) -> usize {
    let env = SimEnv::on(disk.clone(), 1);
    let offline = fs::Fs::check_offline(&env.env(), &mut |_, _| ControlFlow::Continue(()));
    let offline = offline.unwrap_or_else(|error| panic!("{place}: {error}"));
    assert!(offline.problems.is_empty(), "{place}, not opened: {:?}", offline.problems);
    let fs = fs::Fs::open(env.env(), &OpenOptions::default());
    let fs = Arc::new(fs.unwrap_or_else(|error| panic!("{place}: {error}")).with_virtual_dirs());
    assert_whole(&fs);
    let mut all = Tree::new();
    tree(&fs, ROOT, b"", &mut all);
    let found = all.keys().filter(|path| path.starts_with(b"/top/")).count();
    assert!([before, FILES].contains(&found), "{place}: {found} of {FILES} at {op}");
    let mut left = 0;
    fs.visit_volume(&format::key::DETACHED_PREFIX, &mut |_, _| {
        left += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(left, 0, "{place}: records of what nothing reaches are left");
    fs.close().unwrap();
    found
}

/// Files and directories that are made before each cut.
const FILES: usize = 250;

fn power_is_cut_while_drafts_become_visible(engine: Engine) {
    let device = SimDevice::new(7);
    let env = SimEnv::on(device.clone(), 1);
    let format = FormatOptions { engine, root_mode: 0o777, ..FormatOptions::default() };
    fs::Fs::format(&env.env(), &format).unwrap();
    let volume = fs::Fs::open(env.env(), &OpenOptions::default()).unwrap().with_virtual_dirs();
    let root = Caller::root();
    let top = volume.mkdir(&root, ROOT, b"top", 0o755).unwrap().node;
    volume.sync().unwrap();
    let mut builder = Builder::new(&volume, &root, top, Some(MEMORY)).unwrap();
    let mut dirs = vec![BulkNode::of(top)];
    for n in 0..FILES {
        let parent = dirs[n * 7 % dirs.len()];
        let name = format!("{n:0200}").into_bytes();
        if n % 11 == 0 {
            dirs.push(builder.mkdir(parent, &name, 0o755).unwrap());
            continue;
        }
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = builder.mknod(parent, &name, &new).unwrap();
        let bytes = vec![n as u8; if n % 5 == 0 { 9000 } else { 10 }];
        builder.write(file, 0, &bytes).unwrap();
    }
    assert!(builder.is_draft(dirs[1]), "all are drafts until the flush");
    let (cuts, complete) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (counted, shown) = (Arc::clone(&cuts), Arc::clone(&complete));
    device.watch(move |disk, op| {
        counted.fetch_add(1, Ordering::SeqCst);
        for (number, policy) in CrashPolicy::ALL.into_iter().enumerate() {
            let after = disk.after_crash(policy, op * 3 + number as u64);
            let place = format!("before operation {op}, {policy:?}");
            let found = check_crash(&after, (op, 0), &place);
            shown.fetch_add(u64::from(found == FILES), Ordering::SeqCst);
        }
    });
    builder.flush().unwrap();
    volume.sync().unwrap();
    device.unwatch();
    let after = device.after_crash(CrashPolicy::LoseAll, 1);
    assert_eq!(check_crash(&after, (0, FILES), "at the end"), FILES);
    let cuts = cuts.load(Ordering::SeqCst);
    println!("{engine:?}: {cuts} cuts, {} showed all", complete.load(Ordering::SeqCst));
    assert!(cuts > 3, "{cuts} cuts");
}

/// The log takes the commit of a flush, and its sync fails. The names may be there after the next
/// opening, so their contents must be, too. The builder reports how many drafts are lost.
fn contents_stay_when_a_commit_is_in_doubt(engine: Engine) {
    for memory in [MEMORY, fs::BULK_MEMORY] {
        let mut kept = 0;
        // With little memory others precede the sync of the commit.
        for after in 0.. {
            let Some(names) = flush_with_failing_sync(engine, memory, after) else { break };
            kept += u64::from(names);
            assert!(after < 50, "{memory}: each sync fails");
        }
        assert!(kept > 0, "{memory}: no commit was in doubt");
    }
}

/// Has a sync of the log fail during a flush. Returns whether the names are there after the next
/// opening; `None`: the flush needed fewer syncs.
fn flush_with_failing_sync(engine: Engine, memory: usize, after: u64) -> Option<bool> {
    const DRAFTS: usize = 20;
    let place = format!("{memory} bytes, sync {after}");
    let device = SimDevice::new(9);
    let env = SimEnv::on(device.clone(), 1);
    let format = FormatOptions { engine, root_mode: 0o777, ..FormatOptions::default() };
    fs::Fs::format(&env.env(), &format).unwrap();
    let options = OpenOptions { durability: Durability::Sync, ..OpenOptions::default() };
    let volume = fs::Fs::open(env.env(), &options).unwrap().with_virtual_dirs();
    let root = Caller::root();
    let top = volume.mkdir(&root, ROOT, b"top", 0o755).unwrap().node;
    let mut builder = Builder::new(&volume, &root, top, Some(memory)).unwrap();
    let dir = builder.mkdir(BulkNode::of(top), b"dir", 0o755).unwrap();
    for n in 1..DRAFTS {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = builder.mknod(dir, format!("f{n}").as_bytes(), &new).unwrap();
        builder.write(file, 0, &[n as u8; 9000]).unwrap();
    }
    assert!(builder.is_draft(dir) && builder.lost().is_none(), "{place}");
    device.inject(Fault::io(FaultOn::AnySync, after).below("log/").forever());
    if builder.flush().is_ok() {
        return None;
    }
    let lost = builder.lost().expect("drafts are lost").0;
    assert_eq!(lost, DRAFTS as u64, "{place}");
    assert!(builder.flush().is_ok(), "{place}: there is nothing left to flush");
    assert_eq!(builder.lost().expect("it stays so").0, lost, "{place}");
    for _ in 0..20 {
        env.clock.advance(std::time::Duration::from_secs(60));
        // Errors of the log that failed.
        drop(volume.background_step(64));
    }
    let disk = device.after_crash(CrashPolicy::KeepAll, 1);
    let opened = fs::Fs::open(SimEnv::on(disk, 1).env(), &OpenOptions::default()).unwrap();
    let opened = Arc::new(opened.with_virtual_dirs());
    assert_whole(&opened);
    let found = opened.lookup(&root, top, b"dir");
    if let Ok(dir) = &found {
        for n in 1..DRAFTS {
            let file = opened.lookup(&root, dir.node, format!("f{n}").as_bytes()).unwrap().node;
            let mut bytes = vec![0; 9001];
            assert_eq!(opened.read_untimed(&root, file, 0, &mut bytes).unwrap(), 9000);
            assert!(bytes[..9000].iter().all(|byte| *byte == n as u8), "{place}: f{n}");
        }
    }
    opened.close().unwrap();
    Some(found.is_ok())
}

/// A collection and a count of quotas begin at any operation of the disk during a flush. They see
/// all of it or nothing: extents and charges are stored before they are counted.
fn counts_wait_for_a_flush(engine: Engine) {
    let mut during = 1;
    while count_during_flush(engine, during) {
        during += 1;
    }
    println!("{engine:?}: {during} operations");
    // So short a run is a batch of the log-structured engine, which is not written yet.
    assert!(matches!(engine, Engine::Lsm) || during > 3, "{during} operations");
}

/// Whether the flush had so many operations.
fn count_during_flush(engine: Engine, during: u64) -> bool {
    let device = SimDevice::new(7);
    let env = SimEnv::on(device.clone(), 1);
    let format = FormatOptions { engine, ..FormatOptions::default() };
    fs::Fs::format(&env.env(), &format).unwrap();
    let volume = fs::Fs::open(env.env(), &OpenOptions::default()).unwrap().with_virtual_dirs();
    let volume = Arc::new(volume);
    let root = Caller::root();
    let top = volume.mkdir(&root, ROOT, b"top", 0o755).unwrap().node;
    let limits = QuotaLimits { inodes: Some(10_000), bytes: Some(1 << 30) };
    volume.quota_set(&root, top, limits).unwrap();
    let mut builder = Builder::new(&volume, &root, top, Some(MEMORY)).unwrap();
    let dir = builder.mkdir(BulkNode::of(top), b"dir", 0o755).unwrap();
    for n in 0..FILES {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = builder.mknod(dir, format!("{n:0200}").as_bytes(), &new).unwrap();
        builder.write(file, 0, &[n as u8; 9000]).unwrap();
    }
    assert!(builder.is_draft(dir), "all are drafts until the flush");
    let (begin, begun) = device::sync::channel();
    let (counted, done) = device::sync::channel();
    let other = Arc::clone(&volume);
    let counting = device::spawn("count", move || {
        let Ok(()) = begun.recv() else { return None };
        let differences = other.quota_check().unwrap();
        other.collect_garbage().unwrap();
        counted.send(()).unwrap_or_default();
        Some(differences)
    });
    let (begin, done) = (device::sync::Mutex::new(Some(begin)), device::sync::Mutex::new(done));
    let operations = AtomicU64::new(0);
    device.watch(move |_, _| {
        if operations.fetch_add(1, Ordering::SeqCst) + 1 != during {
            return;
        }
        if let Some(begin) = begin.lock().take() {
            begin.send(()).unwrap();
        }
        // It waits for the flush, which waits here: for long enough to have counted if it does not.
        done.lock().recv_timeout(std::time::Duration::from_millis(100)).unwrap_or_default();
    });
    builder.flush().unwrap();
    device.unwatch();
    let differences = counting.unwrap().join().unwrap();
    if let Some(differences) = &differences {
        assert_eq!(*differences, [], "{engine:?}, operation {during}");
    }
    drop(builder);
    assert_whole(&volume);
    differences.is_some()
}

/// A client that sends single bytes would get a record for each: ordinary writes join them.
fn what_is_written_in_small_pieces_is_no_draft(engine: Engine) {
    let v = volume_on(engine, 55);
    let root = Caller::root();
    let top = v.fs.mkdir(&root, ROOT, b"top", 0o755).unwrap().node;
    let mut builder = Builder::new(&v.fs, &root, top, Some(fs::BULK_MEMORY)).unwrap();
    let dir = builder.mkdir(BulkNode::of(top), b"dir", 0o755).unwrap();
    for (name, piece, pieces) in [(b"s", 1, 1000), (b"m", 1025, 1000), (b"l", 5000, 200)] {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let file = builder.mknod(dir, name, &new).unwrap();
        let mut written = vec![1; 70_000];
        builder.write(file, 0, &written).unwrap();
        for n in 0..pieces {
            let bytes = vec![n as u8; piece];
            builder.write(file, written.len() as u64, &bytes).unwrap();
            written.extend(bytes);
        }
        assert_eq!(builder.is_draft(file), piece == 5000, "{piece}");
        builder.flush().unwrap();
        let mut read = vec![0; written.len() + 1];
        let length = v.fs.read_untimed(&root, file.id(), 0, &mut read).unwrap();
        assert!(read[..length] == written[..], "{piece}");
        builder.release(file);
    }
    drop(builder);
    assert_whole(&v.fs);
}
