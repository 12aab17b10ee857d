//! Quotas of directories: nothing over the limit, nothing lost, whatever is done to the volume. The
//! records always equal a count of all inodes.

use format::quota::{Charged, NAME_BYTES};
use fs::{Allocate, FileSystem, Fs, FsResult, NewNode, Owner, QuotaLimits, QuotaOf, RenameMode};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use store::{Batch, Commit, TreeId};

use crate::script::scale;
use crate::support::{ROOT, Volume, refused, user, volume};

pub(crate) fn set(fs: &Fs, dir: NodeId, files: Option<u64>, bytes: Option<u64>) {
    fs.quota_set(&Caller::root(), dir, QuotaLimits { inodes: files, bytes })
        .expect("a quota is set");
}

/// What is charged to the quota of a node.
fn used(fs: &Fs, node: NodeId) -> (u64, u64) {
    let quota = fs.quota_get(node).expect("a node").expect("it has a quota");
    (quota.inodes, quota.bytes)
}

/// The records match the inodes, and memory matches the records.
fn check(v: &Volume) {
    assert_eq!(v.fs.quota_check().expect("a count"), []);
    let here = v.fs.quota_list(&Caller::root()).expect("a list");
    let there = v.reopened().quota_list(&Caller::root()).expect("a list");
    assert_eq!(here, there, "a volume that is opened again knows what was charged");
    let here = v.fs.owner_quota_list(&Caller::root()).expect("a list");
    let there = v.reopened().owner_quota_list(&Caller::root()).expect("a list");
    assert_eq!(here, there, "and whom");
}

fn background(fs: &Fs) {
    while fs.background_step(64).expect("background work").more {}
}

fn size(v: &Volume, node: NodeId, size: u64) -> Result<(), FsError> {
    let changes = SetAttr { size: Some(size), ..SetAttr::default() };
    v.fs.setattr(&Caller::root(), node, &changes).map(drop)
}

#[test]
fn a_quota_ends_at_the_file_and_at_the_byte() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(4), Some(10_000));
    assert_eq!(used(&v.fs, dir), (1, 0));
    let root = Caller::root();
    let file = v.file(dir, "f").node;
    let write = |offset, length: usize| v.fs.write(&root, file, offset, &vec![7; length]);
    write(0, 100).unwrap();
    assert_eq!(used(&v.fs, file), (2, 100));
    write(100, 9_900).unwrap();
    assert_eq!(used(&v.fs, file), (2, 10_000));
    refused(write(10_000, 1), &FsError::QuotaExceeded);
    write(0, 10_000).expect("what is overwritten makes space for itself");
    assert_eq!(v.find(dir, "f").unwrap().attr.size, 10_000);
    let sub = v.fs.mkdir(&root, dir, b"s", 0o755).unwrap().node;
    refused(v.fs.symlink(&root, sub, b"l", b"target"), &FsError::QuotaExceeded);
    size(&v, file, 9_994).unwrap();
    v.fs.symlink(&root, sub, b"l", b"target").unwrap();
    assert_eq!(used(&v.fs, dir), (4, 10_000));
    refused(v.file_as(&root, dir, "g", 0o644), &FsError::QuotaExceeded);
    refused(v.fs.mkdir(&root, sub, b"t", 0o755), &FsError::QuotaExceeded);
    let fifo = NewNode { kind: Kind::Fifo, mode: 0o644, rdev: 0 };
    refused(v.fs.mknod(&root, dir, b"p", &fifo), &FsError::QuotaExceeded);
    refused(v.fs.link(&root, file, sub, b"again"), &FsError::QuotaExceeded);
    size(&v, file, 9_994 - NAME_BYTES).unwrap();
    v.fs.link(&root, file, sub, b"again").expect("a name takes what was cut off");
    assert_eq!(used(&v.fs, dir), (4, 10_000));
    size(&v, file, 1 << 30).expect("a hole is no contents");
    v.fs.fallocate(&root, file, (0, 8192), Allocate::Punch).unwrap();
    assert_eq!(used(&v.fs, file).1, 10_000 - 8192);
    check(&v);
    v.fs.unlink(&root, dir, b"f").unwrap();
    assert_eq!(used(&v.fs, dir), (4, 10_000 - 8192 - NAME_BYTES));
    v.fs.unlink(&root, sub, b"again").unwrap();
    v.fs.unlink(&root, sub, b"l").unwrap();
    v.fs.rmdir(&root, dir, b"s").unwrap();
    v.fs.forget(file, 3);
    background(&v.fs);
    assert_eq!(used(&v.fs, dir), (1, 0));
    set(&v.fs, dir, None, None);
    v.file(dir, "free");
    check(&v);
}

#[test]
fn an_open_nameless_file_is_charged_until_it_is_closed() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(3), Some(20_000));
    let file = v.file(dir, "f").node;
    v.write(file, 0, &[1; 12_000]);
    v.fs.unlink(&root, dir, b"f").unwrap();
    assert_eq!(used(&v.fs, dir), (2, 12_000), "its extents are still there");
    refused(v.fs.write(&root, file, 12_000, &[1; 8_001]), &FsError::QuotaExceeded);
    v.fs.forget(file, 1);
    background(&v.fs);
    assert_eq!(used(&v.fs, dir), (1, 0));
    let unnamed = v.fs.tmpfile(&root, dir, 0o600).unwrap().node;
    v.write(unnamed, 0, b"small");
    assert_eq!(used(&v.fs, dir), (1, 0));
    refused(v.fs.write(&root, unnamed, 0, &vec![1; 20_001]), &FsError::QuotaExceeded);
    v.write(unnamed, 0, &vec![1; 20_000]);
    assert_eq!(used(&v.fs, dir), (2, 20_000));
    v.fs.link(&root, unnamed, dir, b"named").unwrap();
    assert_eq!(used(&v.fs, dir), (2, 20_000));
    let small = v.fs.tmpfile(&root, dir, 0o600).unwrap().node;
    v.fs.link(&root, small, dir, b"small").unwrap();
    assert_eq!(used(&v.fs, dir), (3, 20_000));
    let third = v.fs.tmpfile(&root, dir, 0o600).unwrap().node;
    refused(v.fs.link(&root, third, dir, b"third"), &FsError::QuotaExceeded);
    check(&v);
}

#[test]
fn renames_do_not_cross_quotas() {
    let v = volume();
    let root = Caller::root();
    let (one, two, plain) = (v.dir(ROOT, "1").node, v.dir(ROOT, "2").node, v.dir(ROOT, "p").node);
    set(&v.fs, one, None, Some(1 << 20));
    set(&v.fs, two, None, Some(1 << 20));
    let file = v.file(one, "f").node;
    v.file(plain, "g");
    let rename =
        |from: (NodeId, &[u8]), to: (NodeId, &[u8]), mode| v.fs.rename(&root, from, to, mode);
    let across = FsError::CrossSubvolume("");
    refused(rename((one, b"f"), (two, b"f"), RenameMode::Replace), &across);
    refused(rename((one, b"f"), (plain, b"g"), RenameMode::Exchange), &across);
    refused(rename((plain, b"g"), (one, b"g"), RenameMode::Replace), &across);
    refused(v.fs.link(&root, file, plain, b"f"), &across);
    rename((one, b"f"), (one, b"h"), RenameMode::Replace).unwrap();
    let before = used(&v.fs, one).0;
    rename((one, b"h"), (one, b"i"), RenameMode::Whiteout).expect("space for a whiteout");
    assert_eq!(used(&v.fs, one).0, before + 1, "a whiteout is charged");
    set(&v.fs, one, Some(before + 1), Some(1 << 20));
    for name in [b"h", b"j"] {
        // Also if one frees space for another, as on ext4.
        let more = rename((one, b"i"), (one, name), RenameMode::Whiteout);
        refused(more, &FsError::QuotaExceeded);
    }
    v.fs.unlink(&root, one, b"h").unwrap();
    set(&v.fs, one, None, Some(1 << 20));
    rename((ROOT, b"1"), (plain, b"moved"), RenameMode::Replace).expect("with its quota");
    let limits = QuotaLimits { inodes: None, bytes: Some(1) };
    refused(v.fs.quota_set(&user(7), two, limits), &FsError::NotPermitted(""));
    let inner = v.dir(one, "inner").node;
    assert_eq!(used(&v.fs, one), (3, 0));
    set(&v.fs, inner, Some(1), None);
    assert_eq!((used(&v.fs, one), used(&v.fs, inner)), ((2, 0), (1, 0)), "quotas do not nest");
    refused(v.fs.mkdir(&root, inner, b"x", 0o755), &FsError::QuotaExceeded);
    check(&v);
}

/// What is in a subvolume stays charged where it was charged.
#[test]
fn a_subvolume_does_not_move_between_quotas() {
    let v = volume();
    let root = Caller::root();
    let (one, two, plain) = (v.dir(ROOT, "1").node, v.dir(ROOT, "2").node, v.dir(ROOT, "p").node);
    set(&v.fs, one, Some(20), None);
    set(&v.fs, two, Some(20), None);
    let inner = v.dir(one, "inner").node;
    for dir in [one, plain] {
        let sub = v.fs.subvolume_create(&root, dir, b"sub", 0o755).unwrap().node;
        v.file(sub, "f");
    }
    let rename = |from, to| v.fs.rename(&root, (from, b"sub"), (to, b"s"), RenameMode::Replace);
    let across = FsError::CrossSubvolume("");
    for (from, to) in [(one, two), (one, plain), (plain, one)] {
        refused(rename(from, to), &across);
    }
    rename(one, inner).expect("the same quota holds there");
    rename(plain, ROOT).expect("none holds, here and there");
    check(&v);
}

#[test]
fn root_lists_quotas_that_still_exist() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(20), None);
    let file = v.file(dir, "f").node;
    v.write(file, 0, &[1; 12_000]);
    refused(v.fs.quota_list(&user(7)), &FsError::NotPermitted(""));
    let listed = || v.fs.quota_list(&root).unwrap().iter().map(|it| it.inodes).collect::<Vec<_>>();
    assert_eq!(listed(), [2]);
    v.fs.rmr(&root, ROOT, b"d").unwrap();
    v.fs.forget(dir, 1);
    background(&v.fs);
    assert_eq!(listed(), [1], "somebody has a file of it open");
    v.fs.forget(file, 1);
    background(&v.fs);
    assert_eq!(listed(), [0; 0]);
    check(&v);
}

#[test]
fn inherited_subvolumes_charge_nobody() {
    let v = volume();
    let root = Caller::root();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(10), Some(100_000));
    for name in ["a", "b", "c"] {
        let file = v.file(dir, name).node;
        v.write(file, 0, &[1; 10_000]);
        v.fs.forget(file, 1);
    }
    assert_eq!(used(&v.fs, dir), (4, 30_000));
    let clone = v.fs.clone_dir(&root, dir, ROOT, b"clone").unwrap().root;
    assert_eq!(used(&v.fs, dir), (4, 30_000));
    v.fs.unlink(&root, clone, b"a").expect("inherited");
    background(&v.fs);
    assert_eq!(used(&v.fs, dir), (4, 30_000), "nobody is credited for what nobody was charged");
    let new = v.file(clone, "new").node;
    assert_eq!(used(&v.fs, clone), (5, 30_000), "what is made in the clone counts");
    let b = v.find(clone, "b").unwrap().node;
    v.fs.setattr(&root, b, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(used(&v.fs, clone), (5, 30_000));
    v.write(b, 0, b"changed");
    assert_eq!(used(&v.fs, clone), (6, 40_000), "what is changed becomes the clone's own");
    check(&v);
    v.fs.rmr(&root, ROOT, b"clone").unwrap();
    v.fs.forget(new, 1);
    v.fs.forget(b, 1);
    background(&v.fs);
    assert_eq!(used(&v.fs, dir), (4, 30_000), "what it was charged went with it");
    check(&v);
    v.fs.snapshot_create(&root, dir, b"s").unwrap();
    v.fs.rollback(&root, dir, b"s").unwrap();
    background(&v.fs);
    check(&v);
}

#[test]
fn several_writers_do_not_pass_the_limit_together() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(101), Some(50));
    let fs = &v.fs;
    let made: usize = device::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                scope.spawn(move || {
                    let make = |n: &u32| {
                        let name = format!("{thread}-{n}");
                        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
                        let made = fs.mknod(&Caller::root(), dir, name.as_bytes(), &new);
                        made.is_ok_and(|file| {
                            fs.write(&Caller::root(), file.node, 0, b"x").ok();
                            true
                        })
                    };
                    (0..60).filter(make).count()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!((made, used(&v.fs, dir)), (100, (101, 50)));
    check(&v);
}

#[test]
fn counts_after_random_operations_are_exact() {
    for seed in 0..scale(30, 2000) {
        println!("seed {seed}");
        random(seed);
    }
}

/// What random operations continue with.
pub(crate) struct Work {
    random: fastrand::Rng,
    dirs: Vec<NodeId>,
    files: Vec<NodeId>,
}

impl Work {
    /// In the root and in a directory that has a quota.
    pub(crate) fn new(fs: &Fs, seed: u64) -> Work {
        let quota = fs.mkdir(&Caller::root(), ROOT, b"q0", 0o777).expect("a new directory").node;
        set(fs, quota, Some(60), Some(120_000));
        let random = fastrand::Rng::with_seed(seed);
        Work { random, dirs: vec![ROOT, quota], files: Vec::new() }
    }

    /// A random operation, which may be refused.
    pub(crate) fn step(&mut self, fs: &Fs) -> FsResult<()> {
        let root = Caller::root();
        let Work { random, dirs, files } = self;
        let who = if random.bool() { Caller::root() } else { user(random.u32(1..4)) };
        let dir = dirs[random.usize(..dirs.len())];
        let name = format!("n{}", random.u32(..6)).into_bytes();
        let file = (!files.is_empty()).then(|| files[random.usize(..files.len())]);
        match (random.u32(..29), file) {
            (0..4, _) | (.., None) => {
                let new = NewNode { kind: Kind::File, mode: 0o666, rdev: 0 };
                files.push(fs.mknod(&who, dir, &name, &new)?.node);
            }
            (4..6, _) => dirs.push(fs.mkdir(&who, dir, &name, 0o777)?.node),
            (6..10, Some(file)) => {
                let bytes = vec![1; random.usize(1..12_000)];
                fs.write(&who, file, random.u64(..20_000), &bytes)?;
            }
            (10, Some(file)) => {
                let changes = SetAttr { size: Some(random.u64(..20_000)), ..SetAttr::default() };
                fs.setattr(&root, file, &changes)?;
            }
            (11, Some(file)) => drop(fs.link(&root, file, dir, &name)?),
            (12..14, _) => fs.unlink(&root, dir, &name)?,
            (14, _) => fs.rmdir(&root, dir, &name)?,
            (15, _) => {
                let to = dirs[random.usize(..dirs.len())];
                let target = format!("n{}", random.u32(..6)).into_bytes();
                let mode = if random.bool() { RenameMode::Replace } else { RenameMode::Exchange };
                fs.rename(&root, (dir, &name), (to, &target), mode)?;
            }
            (16, _) => {
                let to = dirs[random.usize(..dirs.len())];
                dirs.push(fs.clone_dir(&root, dir, to, &name)?.root);
            }
            (17, _) => drop(fs.snapshot_create(&root, dir, &name)?),
            (18, _) => fs.rollback(&root, dir, &name)?,
            (19, _) => fs.rmr(&root, dir, &name).map(|_| ())?,
            (20, _) => files.push(fs.tmpfile(&who, dir, 0o666)?.node),
            (21, _) => dirs.push(fs.subvolume_create(&root, dir, &name, 0o755)?.node),
            (22, _) => drop(fs.symlink(&root, dir, &name, &vec![b't'; random.usize(1..300)])?),
            (23, Some(file)) => {
                let range = (random.u64(..20_000), random.u64(1..12_000));
                fs.fallocate(&root, file, range, Allocate::Punch)?;
            }
            (24, Some(file)) => {
                let to = (files[random.usize(..files.len())], random.u64(..4) * 4096);
                fs.copy_range(&root, (file, 0), to, random.u64(1..20_000))?;
            }
            (25, _) => {
                let owner = random.u32(..4);
                let owner = if random.bool() { Owner::User(owner) } else { Owner::Group(owner) };
                let (files, bytes) = (Some(random.u64(1..40)), Some(random.u64(..100_000)));
                fs.owner_quota_set(&root, owner, QuotaLimits { inodes: files, bytes })?;
            }
            (26..28, Some(file)) => {
                let node = if random.u32(..4) == 0 { dir } else { file };
                let (uid, gid) = (Some(random.u32(..4)), Some(random.u32(..4)));
                fs.setattr(&root, node, &SetAttr { uid, gid, ..SetAttr::default() })?;
            }
            (28.., _) => {
                let (files, bytes) = (random.u64(1..80), random.u64(..200_000));
                let limits = QuotaLimits { inodes: Some(files), bytes: Some(bytes) };
                fs.quota_set(&root, dir, limits)?;
            }
        }
        Ok(())
    }

    /// Lets go of a file now and then, and has background work done.
    pub(crate) fn between(&mut self, fs: &Fs) -> FsResult<()> {
        if self.random.u32(..6) == 0 && !self.files.is_empty() {
            let file = self.files.swap_remove(self.random.usize(..self.files.len()));
            fs.forget(file, 1);
        }
        if self.random.u32(..4) == 0 {
            fs.background_step(16)?;
        }
        Ok(())
    }
}

/// Random operations with quotas, clones, snapshots, roll-backs, removals and crashes.
fn random(seed: u64) {
    let v = volume();
    let mut work = Work::new(&v.fs, seed);
    for step in 0..250 {
        work.step(&v.fs).ok();
        work.between(&v.fs).expect("background work");
        if step % 25 == 24 {
            check(&v);
        }
    }
    for file in work.files {
        v.fs.forget(file, 1);
    }
    background(&v.fs);
    check(&v);
}

#[test]
fn a_wrong_or_damaged_count_is_reported_and_the_volume_opens() {
    let v = volume();
    let dir = v.dir(ROOT, "d").node;
    set(&v.fs, dir, Some(10), None);
    v.file(dir, "f");
    let id = v.fs.quota_get(dir).expect("a node").expect("a quota").id;
    let key = format::key::quota_charges(id, dir.slot().0);
    for value in [Charged { inodes: 5, bytes: 1 }, Charged { inodes: -3, bytes: 0 }] {
        let mut batch = Batch::new();
        batch.put(TreeId(format::key::VOLUME_TREE), &key, &value.encode());
        v.store.commit(&batch).expect("space");
        let found = v.fs.quota_check().expect("a count");
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].of, found[0].found), (QuotaOf::Directory(id), (2, 0)));
        let again = v.reopened();
        assert_eq!(again.quota_check().expect("a count"), found);
        let report = again.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
        let problems = report.expect("a report").problems;
        assert!(problems.iter().any(|problem| problem.kind == fs::ProblemKind::Quota));
    }
}
