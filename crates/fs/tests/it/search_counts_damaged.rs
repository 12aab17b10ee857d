//! Counts and totals where files of the index are damaged. The rows of a cluster come from the tree
//! of its base instead, and equal those of a walk. Names of any bytes, inodes with several names,
//! and directories that moved are included.

use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, NewNode, OpenOptions, RenameMode};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::index;
use store::Durability;
use testing::SimDevice;

use crate::script::{self, scale};
use crate::search::directories;
use crate::search_counts::check_counts;
use crate::search_totals::check_totals;
use crate::subject::{Base, FsSubject};

on_each_engine!(counts_are_those_of_a_walk_where_the_index_is_damaged);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

fn options() -> OpenOptions {
    let mut options = script::options(Durability::Async);
    let index = options.index.as_mut().expect("an index");
    index.limits = index::ClusterLimits { directories: 30, rows: 700 };
    index.flush.rows_min = usize::MAX / 2;
    index.flush.interval = Duration::from_secs(1 << 20);
    options
}

fn name(random: &mut fastrand::Rng) -> Vec<u8> {
    let stems: [&[u8]; 9] =
        [b"a", b"b1", b"N2x", b"c\xff", b"\xc3\x89t", b"\xc3", b"n1", b"\xe2\x84\xaa", b"z5"];
    let ends: [&[u8]; 6] = [b"", b".txt", b".TXT", b".\xe9", b".h5", b".tar.gz"];
    let mut name = stems[random.usize(..stems.len())].to_vec();
    name.extend_from_slice(random.u32(..40).to_string().as_bytes());
    name.extend_from_slice(ends[random.usize(..ends.len())]);
    name
}

fn change(subject: &FsSubject, random: &mut fastrand::Rng, all: &mut [(NodeId, Vec<u8>, NodeId)]) {
    let (fs, root) = (subject.fs(), Caller::root());
    subject.clock().sleep(Duration::from_millis(1));
    let at = random.usize(..all.len());
    let (parent, own, directory) = all[at].clone();
    let found = name(random);
    match random.u32(..12) {
        0..4 => {
            if let Ok(made) = fs.mknod(&root, directory, &found, &FILE) {
                let mode = [0o644, 0o4755, 0o1777, 0o2070, 0][random.usize(..5)];
                let size = Some([0, 0, 10, 70_000][random.usize(..4)]);
                let (uid, gid) = (Some(random.u32(999..1002)), Some(random.u32(999..1002)));
                let set = SetAttr { mode: Some(mode), size, uid, gid, ..SetAttr::default() };
                fs.setattr(&root, made.node, &set).expect("a file");
                if random.u32(..4) == 0 {
                    let other = all[random.usize(..all.len())].2;
                    fs.link(&root, made.node, other, &name(random)).ok();
                }
            }
        }
        4..7 => drop(fs.unlink(&root, directory, &found)),
        7 | 8 => {
            let to = (all[random.usize(..all.len())].2, name(random));
            let from = (directory, &found[..]);
            fs.rename(&root, from, (to.0, &to.1), RenameMode::Replace).ok();
        }
        9 if at > 0 => {
            let to = all[random.usize(..all.len())].2;
            let moved = fs.rename(&root, (parent, &own), (to, &own), RenameMode::Replace);
            if moved.is_ok() {
                all[at].0 = to;
            }
        }
        10 if at > 0 => {
            let mode = Some([0o700, 0o755, 0o1755, 0o711][random.usize(..4)]);
            fs.setattr(&root, directory, &SetAttr { mode, ..SetAttr::default() }).ok();
        }
        _ => {
            if let Ok(found) = fs.lookup(&root, directory, &found) {
                let set = SetAttr { uid: Some(random.u32(999..1002)), ..SetAttr::default() };
                fs.setattr(&root, found.node, &set).ok();
            }
        }
    }
}

fn counts_are_those_of_a_walk_where_the_index_is_damaged(engine: Engine) {
    for seed in 0..scale(2, 40) {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = SimDevice::new(seed);
        let subject = FsSubject::format(&device, &options(), &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let mut all = vec![(NodeId::ROOT, Vec::new(), NodeId::ROOT)];
        for number in 0..60 {
            let parent = all[random.usize(..all.len())].2;
            let name = format!("d{number}").into_bytes();
            let made = fs.mkdir(&root, parent, &name, 0o755).expect("space").node;
            all.push((parent, name, made));
        }
        (0..3000).for_each(|_| change(&subject, &mut random, &mut all));
        fs.index_flush(NodeId::ROOT).expect("a flush goes well");
        let changes = [0, 5, 300][random.usize(..3)];
        (0..changes).for_each(|_| change(&subject, &mut random, &mut all));
        fs.close().expect("it closes");
        let base = subject.base().clone();
        drop(subject);
        for (path, _) in device.files() {
            if !path.starts_with(&format!("{}/cluster", index::DIRECTORY)) {
                continue;
            }
            let bytes = device.read_file(&path).len();
            for _ in 0..6 {
                let damaged = device.copy();
                for _ in 0..random.usize(..3) {
                    damaged.flip_bit(&path, random.u64(..bytes as u64 * 8));
                }
                let opened = FsSubject::open(&damaged, &options(), &base).expect("it opens");
                let starts = directories(opened.fs());
                let place = format!("{engine:?}, seed {seed}, {path}");
                for _ in 0..6 {
                    check_counts(opened.fs(), &mut random, &starts, &place);
                    check_totals(opened.fs(), &mut random, &starts, &place);
                }
            }
        }
    }
}
