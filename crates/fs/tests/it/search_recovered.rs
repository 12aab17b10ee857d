//! Power is cut during any user operation: what the first query after opening reads from the log,
//! from trees and from clusters equals a walk. Clones of clones, roll-backs, trash, directories
//! that are held although they were removed, limits that change, and a memory that is too small.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, FsResult, NewNode, OpenOptions, RenameMode, RestoreOptions};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use search::aggregate::Question;
use search::cluster::Fields;
use search::index::{ClusterLimits, IndexStats};
use search::query::Expr;
use search::{Request, Start};
use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::script::{options, scale};
use crate::search::{Everybody, Query, damage, directories, everything_below};
use crate::search_hostile::{act, caller, check_by_calls, expr, name, pick};
use crate::search_totals::check_totals;
use crate::subject::{Base, FsSubject};

on_each_engine!(what_is_found_after_power_went_equals_a_walk);

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// What is open, and what is held of it.
struct World {
    device: SimDevice,
    subject: FsSubject,
    options: OpenOptions,
    random: fastrand::Rng,
    /// Directories that are held, perhaps after they were removed.
    held: Vec<NodeId>,
    used: IndexStats,
}

fn varied(random: &mut fastrand::Rng) -> OpenOptions {
    let mut options = options(Durability::Async);
    options.prune_records = pick(random, &[4, 16, 4096]);
    options.checkpoint_bytes = pick(random, &[24 << 10, 1 << 20]);
    options.log_segment_bytes = pick(random, &[16 << 10, 256 << 10]);
    let index = options.index.as_mut().expect("an index");
    index.limits =
        ClusterLimits { directories: random.u32(1..9), rows: pick(random, &[1, 5, 20, 60, 400]) };
    index.fold_alone = pick(random, &[1, 3, 3, 30]);
    index.threads = pick(random, &[2, 3]);
    index.cache_bytes = pick(random, &[256 << 20, 256 << 20, 64 << 10, 16 << 10]);
    index.rows_without_base = pick(random, &[20, 1000]);
    if random.bool() {
        // Only what is requested.
        index.flush.rows_min = usize::MAX / 2;
        index.flush.interval = Duration::from_secs(1 << 20);
    }
    options
}

impl World {
    fn new(seed: u64, base: &Base) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let device = SimDevice::new(seed);
        let options = varied(&mut random);
        let subject = FsSubject::format(&device, &options, base);
        let (held, used) = (Vec::new(), IndexStats::default());
        World { device, subject, options, random, held, used }
    }

    fn fs(&self) -> &Fs {
        self.subject.fs()
    }

    fn directory(&mut self) -> NodeId {
        if !self.held.is_empty() && self.random.u32(..3) == 0 {
            return self.held[self.random.usize(..self.held.len())];
        }
        let starts = directories(self.subject.fs());
        starts[self.random.usize(..starts.len())].0
    }

    fn names(&self, directory: NodeId) -> Vec<(Vec<u8>, Kind)> {
        let mut found = Vec::new();
        let listed = self.fs().readdir(&Caller::root(), directory, 0, &mut |entry| {
            found.push((entry.name.to_vec(), entry.kind));
            fs::WalkControl::Continue
        });
        listed.map(|()| found).unwrap_or_default()
    }

    /// Something that the other tests do not do.
    fn more(&mut self) -> FsResult<()> {
        let from = self.directory();
        let names = self.names(from);
        let old = names.get(self.random.usize(..names.len().max(1))).cloned();
        match old {
            Some((old, kind)) if self.random.u32(..24) < 13 => self.change(from, &old, kind),
            _ => self.make(from),
        }
    }

    /// Does something with a name.
    fn change(&mut self, from: NodeId, old: &[u8], kind: Kind) -> FsResult<()> {
        let (root, into) = (Caller::root(), self.directory());
        let new = name(&mut self.random);
        let fs = self.subject.fs();
        match (self.random.u32(..13), kind) {
            (0..3, Kind::Directory) => self.held.push(fs.lookup(&root, from, old)?.node),
            (3..6, _) => {
                let modes = [RenameMode::Replace, RenameMode::Whiteout, RenameMode::Exchange];
                let mode = pick(&mut self.random, &modes);
                fs.rename(&root, (from, old), (into, &new), mode)?;
            }
            (6..8, Kind::Directory) => {
                let node = fs.lookup(&root, from, old)?.node;
                let cloned = fs.clone_dir(&root, node, into, &new);
                fs.forget(node, 1);
                let first = cloned?.root;
                if self.random.bool() {
                    // A clone of a clone of a clone.
                    let second = fs.clone_dir(&root, first, into, b"second")?.root;
                    fs.clone_dir(&root, second, first, b"third")?;
                }
            }
            (8, Kind::Directory) => {
                fs.rmr(&root, from, old)?;
            }
            (9, Kind::Directory) => fs.rmdir(&root, from, old)?,
            (10..12, Kind::File) => {
                let node = fs.lookup(&root, from, old)?.node;
                let bytes = vec![7; self.random.usize(1..9000)];
                let done = fs.write(&root, node, self.random.u64(..5000), &bytes);
                fs.forget(node, 1);
                done?;
            }
            _ => {
                let path = [old.to_vec()];
                fs.restore(&root, (from, &path), None, &RestoreOptions::default())?;
            }
        }
        Ok(())
    }

    /// Makes something, sets something, or has time pass.
    fn make(&mut self, from: NodeId) -> FsResult<()> {
        let (root, into) = (Caller::root(), self.directory());
        let new = name(&mut self.random);
        let fs = self.subject.fs();
        match self.random.u32(..11) {
            0 => {
                let made = fs.subvolume_create(&root, into, &new, 0o755)?;
                fs.forget(made.node, 1);
            }
            1 => {
                let made = fs.tmpfile(&root, into, 0o600)?.node;
                let linked = fs.link(&root, made, into, &new);
                fs.forget(made, 1);
                fs.forget(linked?.node, 1);
            }
            2 => {
                let keep = self.random.bool().then_some(3600);
                fs.trash_set(&root, from, keep)?;
            }
            3 => fs.restore(&root, (from, &[new]), None, &RestoreOptions::default()).map(|_| ())?,
            4 => {
                let (directories, rows) = (self.random.u32(1..9), self.random.u32(1..60));
                fs.set_cluster_limits(Some(directories), Some(rows))?;
            }
            5 => self.fill(into, &new)?,
            6 if !self.held.is_empty() => {
                let node = self.held.swap_remove(self.random.usize(..self.held.len()));
                fs.forget(node, 1);
            }
            7 => {
                let seconds = pick(&mut self.random, &[1, 11, 61, 4000]);
                self.subject.clock().sleep(Duration::from_secs(seconds));
            }
            8 => self.subject.background(self.random.u64(..200))?,
            9 if self.random.bool() => fs.declare_searchable(&[b"user.a".to_vec()])?,
            9 => fs.undeclare_searchable(&[b"user.a".to_vec()])?,
            10 if self.random.bool() => damage(&self.device, &mut self.random),
            _ => self.cancelled(),
        }
        Ok(())
    }

    /// Makes a directory with files in it.
    fn fill(&mut self, into: NodeId, new: &[u8]) -> FsResult<()> {
        let (root, fs) = (Caller::root(), self.subject.fs());
        let made = fs.mkdir(&root, into, new, 0o755)?.node;
        for number in 0..pick(&mut self.random, &[3, 30, 30, 300]) {
            let file = fs.mknod(&root, made, format!("f{number}").as_bytes(), &FILE)?.node;
            let (uid, size) = (self.random.u32(998..1003), self.random.u64(..10_000));
            let set = SetAttr { uid: Some(uid), size: Some(size), ..SetAttr::default() };
            fs.setattr(&root, file, &set)?;
            fs.forget(file, 1);
        }
        fs.forget(made, 1);
        Ok(())
    }

    /// Queries that are cancelled, before they begin or while they run.
    fn cancelled(&mut self) {
        let starts = directories(self.subject.fs());
        let (node, path) = &starts[self.random.usize(..starts.len())];
        let fs = self.subject.fs();
        let Ok((subvolume, directory)) = fs.search_place(*node) else { return };
        let (cancel, root) = (AtomicBool::new(false), Caller::root());
        let start = Start { subvolume, directory, path, depth: 0 };
        let all = Expr::yes();
        let below = everything_below(fs, *node, &root, (&all, Fields::ATTRIBUTES));
        let request = Request { start, cancel: &cancel, ..below };
        let question = Question {
            start,
            caller: &root,
            accounts: &Everybody,
            directories: Some(1),
            largest: 3,
            groups: true,
            cancel: &cancel,
        };
        let (wait, kind) = (self.random.u64(..400), self.random.u32(..3));
        device::scope(|scope| {
            scope.spawn(|| {
                (0..wait * 100).for_each(|_| device::spin_loop());
                cancel.store(true, Ordering::Relaxed);
            });
            match kind {
                0 => drop(fs.search(&request, &mut |_| ControlFlow::Continue(()))),
                1 => drop(fs.search_counted(&request)),
                _ => drop(fs.aggregate(&question)),
            }
        });
    }

    fn note(&mut self) {
        let stats = self.fs().index_stats().expect("it answers").expect("there is an index");
        self.used.logged += stats.logged;
        self.used.merged += stats.merged;
        self.used.below += stats.below;
        self.used.looked_up += stats.looked_up;
    }

    fn reopen(&mut self, seed: u64, step: usize) {
        self.note();
        self.held.clear();
        if self.random.u32(..3) == 0 {
            self.subject.cycle().expect("it closes");
            return;
        }
        if self.random.u32(..4) > 0 {
            self.fs().sync_all().expect("it syncs");
        }
        let policy = pick(&mut self.random, &CrashPolicy::ALL);
        let crashed = self.device.after_crash(policy, seed ^ step as u64);
        let base = self.subject.base().clone();
        let now = Clock::now(self.subject.clock()).0;
        let again = FsSubject::open(&crashed, &self.options, &base).expect("it opens");
        let late = Clock::now(again.clock()).0;
        if now > late {
            again.clock().sleep(Duration::from_nanos(now.abs_diff(late)));
        }
        (self.device, self.subject) = (crashed, again);
    }

    fn check(&mut self, place: &str) {
        let starts = directories(self.subject.fs());
        for _ in 0..4 {
            let mut query = Query::random(&mut self.random, &starts);
            query.check(self.subject.fs(), place);
            query.caller = caller(&mut self.random);
            query.expr = expr(&mut self.random, 2);
            query.check(self.subject.fs(), place);
            check_totals(self.subject.fs(), &mut self.random, &starts, place);
        }
        check_by_calls(self.subject.fs(), &mut self.random, place);
    }
}

fn run(seed: u64, engine: Engine) -> IndexStats {
    println!("seed {seed}, {engine:?}");
    let base = match engine {
        Engine::Lsm if seed.is_multiple_of(3) => Base::Column,
        engine => Base::Engine(engine),
    };
    let mut world = World::new(seed, &base);
    let mut until = world.random.usize(20..80);
    for step in 0..400 {
        world.subject.clock().sleep(Duration::from_millis(50));
        let done = if world.random.bool() {
            act(world.subject.fs(), &mut world.random)
        } else {
            world.more()
        };
        if let Err(FsError::Io(error)) = done {
            panic!("seed {seed}, step {step}: {error}");
        }
        if step % 4 == 0 {
            world.subject.background(6).expect("background work goes well");
        }
        if world.random.u32(..20) == 0 {
            let starts = directories(world.fs());
            let (node, _) = starts[world.random.usize(..starts.len())];
            world.fs().index_flush(node).expect("a flush goes well");
        }
        let place = format!("seed {seed}, {engine:?}, step {step}");
        until -= 1;
        if until == 0 {
            until = world.random.usize(10..80);
            world.reopen(seed, step);
            world.check(&format!("{place}, opened again"));
        } else if world.random.u32(..12) == 0 {
            world.check(&place);
        }
    }
    world.note();
    world.used
}

fn what_is_found_after_power_went_equals_a_walk(engine: Engine) {
    let mut used = IndexStats::default();
    for seed in 0..scale(2, 400) {
        let stats = run(seed, engine);
        used.logged += stats.logged;
        used.merged += stats.merged;
        used.below += stats.below;
        used.looked_up += stats.looked_up;
    }
    // Else it tests something else.
    let least = used.logged.min(used.merged).min(used.below).min(used.looked_up);
    assert!(least > 0, "{engine:?}: {used:?}");
}
