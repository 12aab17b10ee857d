//! The volume of the campaign: that of the other tests, plus trash, quotas, an orphan, what waits
//! to be removed, and trees of several nodes.

use std::collections::BTreeMap;

use device::Timestamp;
use fs::{FileSystem, Fs, Owner, QuotaLimits, SetXattr};
use inode::{Caller, NodeId};
use store::Durability;
use testing::model::{Dump, Effect, Op, OpPath, Subject};

use super::media::Media;
use crate::check::volume::{bytes, file, fill, opened_with, settle};
use crate::scan::scan_random;
use crate::script::SNAPSHOTS;
use crate::subject::{Base, FsSubject};

/// A volume in two states, and what is in it.
pub(super) struct Volume {
    /// Closed: the log has nothing that the state has not.
    pub(super) closed: Media,
    /// After a crash: the last changes are in the log only.
    pub(super) crashed: Media,
    /// As it was at times before.
    pub(super) olds: Vec<Media>,
    /// What is in it.
    pub(super) right: Right,
    /// What was in it after each change that is in the log only, and before the first.
    pub(super) states: Vec<Dump>,
}

/// What a volume answers.
pub(super) struct Right {
    pub(super) dump: Dump,
    pub(super) answers: Vec<(&'static str, String)>,
    /// The subvolume of each path.
    pub(super) subvolumes: BTreeMap<OpPath, u64>,
}

impl Right {
    fn of(subject: &mut FsSubject) -> Right {
        let dump = Dump::collect(subject, SNAPSHOTS);
        let answers = super::asked::answers(subject.fs());
        let answers =
            answers.into_iter().map(|(what, answer)| (what, answer.expect("it is whole")));
        let mut subvolume = |path: &OpPath| NodeId::narrow(subject.identity(path)).slot().0;
        let subvolumes = dump.nodes.keys().map(|path| (path.clone(), subvolume(path))).collect();
        Right { answers: answers.collect(), subvolumes, dump }
    }
}

const LIMITS: QuotaLimits = QuotaLimits { inodes: Some(100), bytes: Some(1 << 20) };

fn open(media: &Media, base: &Base) -> FsSubject {
    FsSubject::open_on(media.device(), &opened_with(Durability::Async), base).expect("it is whole")
}

fn node(fs: &Fs, dir: NodeId, name: &[u8]) -> NodeId {
    fs.lookup(&Caller::root(), dir, name).expect("it is there").node
}

/// Makes a volume.
pub(super) fn made(seed: u64, base: &Base, log_elsewhere: bool) -> Volume {
    let media = Media::new(seed, log_elsewhere);
    let options = opened_with(Durability::Async);
    let subject = FsSubject::format_on(media.device(), &options, base);
    let mut olds = Vec::new();
    first(subject.fs(), seed, &mut || olds.push(media.copy()));
    subject.fs().close().expect("there is space");
    drop(subject);
    olds.push(media.copy());
    // What follows is in the log only.
    let mut subject = open(&media, base);
    let mut states = vec![Dump::collect(&mut subject, SNAPSHOTS)];
    for change in CHANGES {
        change(subject.fs());
        let after = Dump::collect(&mut subject, SNAPSHOTS);
        states.extend(with_a_place_to_keep(&states[states.len() - 1], &after));
        states.push(after);
    }
    subject.fs().sync().expect("there is space");
    let crashed = media.copy();
    let right = Right::of(&mut subject);
    subject.fs().close().expect("there is space");
    drop(subject);
    Volume { closed: media.copy(), crashed, olds, right, states }
}

/// The state between two records of one removal. If the trash has no directory yet for a name, a
/// record of its own makes it first. A crash then leaves everything as it was before, and the
/// directory, empty.
fn with_a_place_to_keep(before: &Dump, after: &Dump) -> Option<Dump> {
    const TRASH: &[u8] = b".trash";
    let is_made = |path: &&OpPath| {
        path.len() > 1
            && path[path.len() - 2] == TRASH
            && !path.contains(&SNAPSHOTS.to_vec())
            && !before.nodes.contains_key(*path)
    };
    let made = after.nodes.keys().find(is_made)?;
    let trash = made[..made.len() - 1].to_vec();
    let mut between = before.clone();
    let mut empty = after.nodes[made].clone();
    empty.stat.size = 0;
    between.nodes.insert(made.clone(), empty);
    between.nodes.insert(trash.clone(), after.nodes[&trash].clone());
    Some(between)
}

/// Makes a volume whose places were used again. Files are changed, made and removed, each time up
/// to a checkpoint, and one grows within its last page. Also returns what was there after each
/// step.
pub(super) fn made_worn(seed: u64, base: &Base) -> Volume {
    let media = Media::new(seed, false);
    let options = opened_with(Durability::Async);
    let mut subject = FsSubject::format_on(media.device(), &options, base);
    first(subject.fs(), seed, &mut || ());
    let mut olds = Vec::new();
    for round in 0..24 {
        wear(subject.fs(), seed, round);
        subject.fs().close().expect("there is space");
        drop(subject);
        olds.push(media.copy());
        subject = open(&media, base);
    }
    let (fs, root) = (subject.fs(), Caller::root());
    let grows = file(fs, node(fs, NodeId::ROOT, b"one"), "grows", &bytes(seed, 9000));
    for round in 0..3 {
        fs.write(&root, grows, 9000 + 5000 * round, &bytes(seed + round, 5000)).expect("space");
        settle(fs);
        olds.push(media.copy());
    }
    let crashed = media.copy();
    let right = Right::of(&mut subject);
    subject.fs().close().expect("there is space");
    drop(subject);
    let states = vec![right.dump.clone()];
    Volume { closed: media, crashed, olds, right, states }
}

/// One round of changes, of much the same shape each time.
fn wear(fs: &Fs, seed: u64, round: u64) {
    let root = Caller::root();
    let (one, many) = (node(fs, NodeId::ROOT, b"one"), node(fs, NodeId::ROOT, b"many"));
    for n in 0..40 {
        let changed = node(fs, many, format!("of many {}", 3 * n + 1).as_bytes());
        fs.write(&root, changed, 0, &bytes(round * 100 + n, 150)).expect("there is space");
    }
    // These are in another tree, whose top directory is none of them.
    let clone = node(fs, NodeId::ROOT, b"clone");
    for n in 1..24 {
        let changed = node(fs, clone, format!("small {n}").as_bytes());
        fs.write(&root, changed, 0, &bytes(round * 200 + n, 30)).expect("there is space");
    }
    // Enough that the file of nodes is gone through, and begun again.
    for n in 0..24 {
        let long = bytes(seed + 50 * round + n, 60_000);
        let with = node(fs, one, format!("small {n}").as_bytes());
        fs.setxattr(&root, with, b"user.long", &long, SetXattr::Any).expect("there is space");
    }
    fs.snapshot_create(&root, many, b"passing").expect("there is space");
    settle(fs);
    fs.snapshot_delete(&root, many, b"passing").expect("it is there");
    fs.index_flush(NodeId::ROOT).expect("there is space");
    settle(fs);
}

/// A volume as it was at an earlier time, with what was before that.
pub(super) fn as_it_was(media: &Media, base: &Base, olds: &[Media]) -> Volume {
    let right = Right::of(&mut open(&media.copy(), base));
    let states = vec![right.dump.clone()];
    let (closed, crashed) = (media.copy(), media.copy());
    Volume { closed, crashed, olds: olds.to_vec(), right, states }
}

/// Makes an index of another file system: one scan has ended, one was given up, whose record names
/// the tree that it wrote.
pub(super) fn made_index(seed: u64, base: &Base) -> Volume {
    let media = Media::new(seed, false);
    let subject = FsSubject::format_on(media.device(), &opened_with(Durability::Async), base);
    let fs = subject.fs();
    scan_random(fs, seed, true);
    settle(fs);
    let olds = vec![media.copy()];
    scan_random(fs, seed + 1, false);
    fs.close().expect("there is space");
    drop(subject);
    let mut subject = open(&media.copy(), base);
    let right = Right::of(&mut subject);
    let states = vec![right.dump.clone()];
    Volume { closed: media.copy(), crashed: media, olds, right, states }
}

/// What is in the state on disk; `passed` is called at times.
fn first(fs: &Fs, seed: u64, passed: &mut dyn FnMut()) {
    let root = Caller::root();
    let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("there is space").node;
    fill(fs, one, seed);
    let deep = fs.mkdir(&root, one, b"deep", 0o700).expect("there is space").node;
    let deeper = fs.mkdir(&root, deep, b"deeper", 0o700).expect("there is space").node;
    fill(fs, deeper, seed + 100);
    fs.snapshot_create(&root, one, b"before").expect("there is space");
    fs.clone_dir(&root, one, NodeId::ROOT, b"clone").expect("there is space");
    let sub = fs.subvolume_create(&root, deep, b"sub", 0o755).expect("there is space").node;
    fill(fs, sub, seed + 200);
    settle(fs);
    passed();
    fs.index_flush(NodeId::ROOT).expect("there is space");
    let many = fs.mkdir(&root, NodeId::ROOT, b"many", 0o755).expect("there is space").node;
    for n in 0..120 {
        file(fs, many, &format!("of many {n}"), &bytes(seed + n, 200 + 3 * n as usize));
    }
    let limited = fs.mkdir(&root, NodeId::ROOT, b"limited", 0o755).expect("there is space").node;
    fs.quota_set(&root, limited, LIMITS).expect("there is space");
    file(fs, limited, "charged", &bytes(seed, 5000));
    fs.owner_quota_set(&root, Owner::User(77), LIMITS).expect("there is space");
    let kept = fs.mkdir(&root, NodeId::ROOT, b"kept", 0o755).expect("there is space").node;
    fs.trash_set(&root, kept, Some(86_400)).expect("there is space");
    for n in 0..4 {
        file(fs, kept, &format!("rubbish {n}"), &bytes(seed + n, 3000 * n as usize));
    }
    fs.unlink(&root, kept, b"rubbish 1").expect("it is kept");
    fs.unlink(&root, kept, b"rubbish 3").expect("it is kept");
    settle(fs);
    passed();
    let clone = node(fs, NodeId::ROOT, b"clone");
    for n in 0..6 {
        file(fs, clone, &format!("later {n}"), &bytes(n, 100 + 2000 * n as usize));
        file(fs, one, &format!("later {n}"), &bytes(n, 50));
    }
    for n in 0..120 {
        if n % 3 == 0 {
            fs.unlink(&root, many, format!("of many {n}").as_bytes()).expect("it is there");
        }
    }
    settle(fs);
    passed();
    fs.index_flush(NodeId::ROOT).expect("there is space");
    settle(fs);
}

type Change = fn(&Fs);

/// Makes a file in a directory of the top.
fn add(fs: &Fs, dir: &[u8], name: &str) {
    file(fs, node(fs, NodeId::ROOT, dir), name, b"");
}

/// Fills it.
fn fill_in(fs: &Fs, dir: &[u8], name: &str, bytes: &[u8]) {
    let file = node(fs, node(fs, NodeId::ROOT, dir), name.as_bytes());
    fs.write(&Caller::root(), file, 0, bytes).expect("there is space");
}

/// What is in the log only: each is one call, so that no state between them is missed. A call is
/// one record, except for `with_a_place_to_keep`; `each_record` checks that.
const CHANGES: &[Change] = &[
    |fs| add(fs, b"one", "in the log"),
    |fs| fill_in(fs, b"one", "in the log", b"only"),
    |fs| {
        // Held until the power goes: an orphan is left.
        let one = node(fs, NodeId::ROOT, b"one");
        node(fs, one, b"large 2");
        fs.unlink(&Caller::root(), one, b"large 2").expect("it is there");
    },
    |fs| add(fs, b"limited", "more"),
    |fs| fill_in(fs, b"limited", "more", &bytes(5, 3000)),
    |fs| {
        let kept = node(fs, NodeId::ROOT, b"kept");
        fs.unlink(&Caller::root(), kept, b"rubbish 2").expect("it is kept");
    },
    |fs| {
        let deep = node(fs, node(fs, NodeId::ROOT, b"one"), b"deep");
        fs.snapshot_create(&Caller::root(), deep, b"later").expect("there is space");
    },
    |fs| add(fs, b"one", "large in the log"),
    |fs| fill_in(fs, b"one", "large in the log", &bytes(6, 30_000)),
    |fs| {
        let one = node(fs, NodeId::ROOT, b"one");
        fs.snapshot_create(&Caller::root(), one, b"brief").expect("there is space");
    },
    |fs| {
        // It waits to be taken apart.
        let one = node(fs, NodeId::ROOT, b"one");
        fs.snapshot_delete(&Caller::root(), one, b"brief").expect("it is there");
    },
    |fs| add(fs, b"many", "last"),
    |fs| fill_in(fs, b"many", "last", &bytes(7, 700)),
];

/// Why an operation is refused, in the volume's own words.
pub(super) fn why(subject: &FsSubject, path: &[Vec<u8>], op: &Op) -> Option<String> {
    let (fs, root) = (subject.fs(), Caller::root());
    let mut at = NodeId::ROOT;
    let message = |error: inode::FsError| Some(error.to_string());
    for name in path {
        match fs.lookup(&root, at, name) {
            Ok(entry) => at = entry.node,
            Err(error) => return message(error),
        }
    }
    match op {
        Op::Stat { .. } => fs.getattr(&root, at).err().and_then(message),
        Op::Read { length, .. } => {
            let mut buffer = vec![0; *length];
            fs.read(&root, at, 0, &mut buffer).err().and_then(message)
        }
        Op::Readlink { .. } => fs.readlink(&root, at).err().and_then(message),
        Op::GetXattr { name, .. } => fs.getxattr(&root, at, name).err().and_then(message),
        Op::List { .. } => {
            let mut take = |_: &fs::DirEntry<'_>| fs::WalkControl::Continue;
            fs.readdir(&root, at, 0, &mut take).err().and_then(message)
        }
        _ => None,
    }
}

/// The contents of a volume that is opened, as a whole.
pub(super) fn dump(subject: &mut FsSubject) -> Option<Dump> {
    let op = Op::Stat { target: testing::model::Target::Path(Vec::new()) };
    match subject.run(Timestamp(0), &Caller::root(), &op) {
        Ok(Effect::Stat(_)) => Some(Dump::collect(subject, SNAPSHOTS)),
        _ => None,
    }
}
