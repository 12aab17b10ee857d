//! A query sees every operation that returned before it began, and nothing that began after it
//! ended. Threads change names and attributes meanwhile, one replaces bases of the index, and
//! others run queries.
//!
//! What each writer does is planned ahead, and so is every state that its directories go through.
//! It publishes its progress after each call that returned. A querying thread reads that before and
//! after; the answer is one of the states in between, exactly. Everything is bounded by counts.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, Device};
use fs::{Engine, FileSystem, Fs, NewNode, RenameMode};
use inode::{Caller, Kind, NodeId, SetAttr};
use search::cluster::Fields;
use search::query::{Expr, Glob, Test};
use search::{Attribute, Outcome, Request, Start};
use store::Durability;
use testing::SimDevice;

use crate::script::{options, scale};
use crate::search::{compare, everything_below};
use crate::subject::{Base, FsSubject};

const WRITERS: usize = 3;
const ASKERS: usize = 2;
/// Calls of each writer.
const STEPS: usize = 300;
/// So many of them wait for a query, lest all writers end before anybody asks.
const STEPS_A_QUERY: u64 = 6;
/// Steps of all writers between two requested flushes.
const STEPS_A_FLUSH: u64 = 150;
const DIRECTORIES: [&str; 2] = ["a", "b"];
const NAMES: u32 = 30;
/// Files in each directory that no writer changes.
const OLD: usize = 40;
const MODES: [u32; 3] = [0o600, 0o640, 0o444];

/// A directory of a writer, and the number of a name in it.
type NameSlot = (usize, u32);
/// Files of a writer with their modes.
type Modes = BTreeMap<NameSlot, u32>;

#[derive(Debug, Clone, Copy)]
enum Step {
    Create(NameSlot, u32),
    Rename(NameSlot, NameSlot),
    Unlink(NameSlot),
    Chmod(NameSlot, u32),
}

/// What a writer will do, and the states before, between and after.
struct Plan {
    steps: Vec<Step>,
    states: Vec<Modes>,
}

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Plan {
        let mut plan = Plan { steps: Vec::new(), states: vec![Modes::new()] };
        for _ in 0..STEPS {
            let mut state = plan.states[plan.states.len() - 1].clone();
            let there: Vec<NameSlot> = state.keys().copied().collect();
            let place = (random.usize(..DIRECTORIES.len()), random.u32(..NAMES));
            let mode = MODES[random.usize(..MODES.len())];
            let step = if there.len() < 8 || random.u32(..4) == 0 {
                if state.contains_key(&place) {
                    Step::Chmod(place, mode)
                } else {
                    Step::Create(place, mode)
                }
            } else {
                let old = there[random.usize(..there.len())];
                match random.u32(..3) {
                    0 if old != place => Step::Rename(old, place),
                    1 => Step::Unlink(old),
                    _ => Step::Chmod(old, mode),
                }
            };
            match step {
                Step::Create(place, mode) | Step::Chmod(place, mode) => {
                    state.insert(place, mode);
                }
                Step::Rename(from, to) => {
                    let mode = state.remove(&from).expect("it is there");
                    state.insert(to, mode);
                }
                Step::Unlink(place) => drop(state.remove(&place)),
            }
            plan.steps.push(step);
            plan.states.push(state);
        }
        plan
    }
}

/// What the threads share.
struct Shared<'a> {
    fs: &'a Fs,
    plans: &'a [Plan],
    /// The directories of each writer.
    directories: &'a [[NodeId; 2]],
    /// Calls of each writer that returned.
    returned: [AtomicU64; WRITERS],
    asked: AtomicU64,
    flushes: AtomicU64,
    /// Queries that found a base; that read clusters of it; beside rows that differ from it.
    with_base: AtomicU64,
    with_clusters: AtomicU64,
    with_difference: AtomicU64,
    /// A thread panicked: no thread waits any more.
    failed: AtomicBool,
}

/// Records that a thread panicked.
struct Watch<'a>(&'a AtomicBool);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::SeqCst);
        }
    }
}

fn name(number: u32) -> String {
    format!("n{number}")
}

impl Shared<'_> {
    fn total(&self) -> u64 {
        self.returned.iter().map(|count| count.load(Ordering::SeqCst)).sum()
    }

    fn is_over(&self) -> bool {
        self.failed.load(Ordering::SeqCst) || self.total() == (WRITERS * STEPS) as u64
    }

    /// Whether enough was asked and flushed for a writer's next call. It may be beside a flush.
    fn may_continue(&self, at: u64) -> bool {
        let flushed = (self.flushes.load(Ordering::SeqCst) + 1) * STEPS_A_FLUSH;
        at / STEPS_A_QUERY <= self.asked.load(Ordering::SeqCst)
            && self.total() < flushed + STEPS_A_FLUSH / 2
    }

    fn write(&self, writer: usize) {
        let _watch = Watch(&self.failed);
        for (at, step) in self.plans[writer].steps.iter().enumerate() {
            while !self.may_continue(at as u64) && !self.failed.load(Ordering::SeqCst) {
                device::yield_now();
            }
            self.change(writer, step);
            self.returned[writer].store(at as u64 + 1, Ordering::SeqCst);
        }
    }

    fn change(&self, writer: usize, step: &Step) {
        let (fs, root) = (self.fs, Caller::root());
        let directory = |place: NameSlot| self.directories[writer][place.0];
        match *step {
            Step::Create(place, mode) => {
                let new = NewNode { kind: Kind::File, mode, rdev: 0 };
                let made = fs.mknod(&root, directory(place), name(place.1).as_bytes(), &new);
                fs.forget(made.expect("a new name").node, 1);
            }
            Step::Rename(from, to) => {
                let names = [from, to].map(|place| name(place.1));
                let [old, new] = names.each_ref().map(|name| name.as_bytes());
                let (from, to) = ((directory(from), old), (directory(to), new));
                fs.rename(&root, from, to, RenameMode::Replace).expect("a name");
            }
            Step::Unlink(place) => {
                fs.unlink(&root, directory(place), name(place.1).as_bytes()).expect("a name");
            }
            Step::Chmod(place, mode) => {
                let found = fs.lookup(&root, directory(place), name(place.1).as_bytes());
                let node = found.expect("a name").node;
                let change = SetAttr { mode: Some(mode), ..SetAttr::default() };
                fs.setattr(&root, node, &change).expect("a file");
                fs.forget(node, 1);
            }
        }
    }

    fn ask(&self, seed: u64, asker: usize) {
        let _watch = Watch(&self.failed);
        let mut random = fastrand::Rng::with_seed(seed * 1000 + asker as u64);
        while !self.is_over() {
            self.ask_once(&mut random, &format!("seed {seed}, asker {asker}"));
            self.asked.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Asks for all files, those of a mode, or those of a name.
    fn ask_once(&self, random: &mut fastrand::Rng, place: &str) {
        let (mode, number) = (MODES[random.usize(..MODES.len())], random.u32(..NAMES));
        let kind = random.u32(..3);
        let expr = match kind {
            0 => Expr::yes(),
            1 => Expr::Test(Test::Within(Attribute::Mode, mode.into(), mode.into())),
            _ => Expr::Test(Test::Name(Glob::literal(name(number).as_bytes()).expect("short"))),
        };
        let is_asked = |place: NameSlot, has: u32| match kind {
            0 => true,
            1 => has == mode,
            _ => place.1 == number,
        };
        let count = |count: &AtomicU64| count.load(Ordering::SeqCst) as usize;
        let before = self.returned.each_ref().map(count);
        let (found, old, outcome) = search(self.fs, &expr);
        let after = self.returned.each_ref().map(count);
        for (writer, found) in found.iter().enumerate() {
            let states = &self.plans[writer].states;
            // One more may have been done, and not be published yet.
            let last = (after[writer] + 1).min(STEPS);
            let asked = |state: &Modes| -> Modes {
                let of = state.iter().filter(|(place, mode)| is_asked(**place, **mode));
                of.map(|(place, mode)| (*place, *mode)).collect()
            };
            assert!(
                states[before[writer]..=last].iter().any(|state| asked(state) == *found),
                "{place}: {expr:?} after {} to {last} calls of writer {writer}: found {found:?}, \
                 and not {:?}; the calls were {:?}",
                before[writer],
                asked(&states[before[writer]]),
                &self.plans[writer].steps[before[writer].saturating_sub(3)..last],
            );
        }
        let all = WRITERS * DIRECTORIES.len() * OLD;
        assert_eq!(old, if kind == 0 { all } else { 0 }, "{place}: {expr:?}");
        let stats = self.fs.index_stats().expect("it answers").expect("there is an index");
        let note = |count: &AtomicU64, is_so: bool| {
            count.fetch_add(u64::from(is_so), Ordering::SeqCst);
        };
        note(&self.with_base, outcome.clusters > 0);
        note(&self.with_clusters, outcome.clusters_read > 0);
        note(&self.with_difference, outcome.clusters_read > 0 && stats.delta_rows > 0);
    }

    /// Keeps the index as the owner's workers do, and flushes it. All manifests that were there.
    fn keep(&self, clock: &dyn Clock, device: &SimDevice) -> BTreeSet<String> {
        let _watch = Watch(&self.failed);
        let mut manifests = BTreeSet::new();
        while !self.is_over() {
            clock.sleep(Duration::from_millis(200));
            self.fs.background_step(64).expect("background work goes well");
            let flushes = self.flushes.load(Ordering::SeqCst);
            if self.total() >= (flushes + 1) * STEPS_A_FLUSH {
                self.fs.index_flush(NodeId::ROOT).expect("a flush goes well");
                self.flushes.store(flushes + 1, Ordering::SeqCst);
            }
            let files = device.list(search::index::DIRECTORY).expect("it lists");
            manifests.extend(files.into_iter().filter(|file| file.starts_with("manifest-")));
        }
        manifests
    }
}

/// Files that writers made, by writer; how many of the others were found; and the outcome.
fn search(fs: &Fs, expr: &Expr) -> ([Modes; WRITERS], usize, Outcome) {
    let root = Caller::root();
    let below = everything_below(fs, NodeId::ROOT, &root, (expr, Fields::ATTRIBUTES));
    let start = Start { path: b"/mnt", ..below.start };
    let request = Request { start, min_depth: 3, ..below };
    let (mut states, mut old) = ([const { Modes::new() }; WRITERS], 0);
    let outcome = fs.search(&request, &mut |found| {
        let path = String::from_utf8(found.path.to_vec()).expect("our names");
        let parts: Vec<&str> = path.split('/').collect();
        let [_, "mnt", writer, directory, name] = parts[..] else { panic!("{path}") };
        match name.strip_prefix('n') {
            None => old += 1,
            Some(number) => {
                let writer: usize = writer[1..].parse().expect("our names");
                let directory = DIRECTORIES.iter().position(|name| *name == directory);
                let place = (directory.expect("our names"), number.parse().expect("our names"));
                let twice = states[writer].insert(place, found.row.mode & 0o7777);
                assert_eq!(twice, None, "{path} was found twice");
            }
        }
        ControlFlow::Continue(())
    });
    (states, old, outcome.expect("a search"))
}

/// The directories of writers, with files that no writer changes.
fn fill(fs: &Fs) -> Vec<[NodeId; 2]> {
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let make = |parent, name: &str| {
        fs.mkdir(&root, parent, name.as_bytes(), 0o755).expect("a directory").node
    };
    let fill = |writer: usize| {
        let above = make(NodeId::ROOT, &format!("w{writer}"));
        DIRECTORIES.map(|name| {
            let directory = make(above, name);
            for number in 0..OLD {
                let name = format!("old{number}");
                let made = fs.mknod(&root, directory, name.as_bytes(), &new).expect("a file");
                fs.forget(made.node, 1);
            }
            directory
        })
    };
    (0..WRITERS).map(fill).collect()
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(seed: u64, engine: Engine) {
    println!("seed {seed}, {engine:?}");
    let device = SimDevice::new(seed);
    let subject = FsSubject::format(&device, &options(Durability::Async), &Base::Engine(engine));
    let fs = subject.fs();
    let directories = fill(fs);
    fs.index_flush(NodeId::ROOT).expect("a flush goes well");
    let plan = |writer| Plan::random(&mut fastrand::Rng::with_seed(seed * 100 + writer));
    let plans: Vec<Plan> = (0..WRITERS as u64).map(plan).collect();
    let shared = Shared {
        fs,
        plans: &plans,
        directories: &directories,
        returned: [const { AtomicU64::new(0) }; WRITERS],
        asked: AtomicU64::new(0),
        flushes: AtomicU64::new(0),
        with_base: AtomicU64::new(0),
        with_clusters: AtomicU64::new(0),
        with_difference: AtomicU64::new(0),
        failed: AtomicBool::new(false),
    };
    let shared = &shared;
    let manifests = device::scope(|scope| {
        for writer in 0..WRITERS {
            scope.spawn(move || shared.write(writer));
        }
        for asker in 0..ASKERS {
            scope.spawn(move || shared.ask(seed, asker));
        }
        shared.keep(subject.clock(), &device)
    });
    // At the end all of it is there, and nothing else.
    let (found, ..) = search(fs, &Expr::yes());
    for (writer, found) in found.iter().enumerate() {
        assert_eq!(*found, plans[writer].states[STEPS], "seed {seed}, writer {writer}");
    }
    compare(fs, &mut fastrand::Rng::with_seed(seed), 20, &format!("seed {seed}, at the end"));
    let count = |count: &AtomicU64| count.load(Ordering::SeqCst);
    let asked = count(&shared.asked);
    let seen = [&shared.with_base, &shared.with_clusters, &shared.with_difference].map(count);
    println!("{asked} queries: {seen:?} with bases, clusters, differences; {manifests:?}");
    assert!(asked >= (STEPS as u64 - 1) / STEPS_A_QUERY, "{asked} queries");
    assert!(seen.iter().all(|seen| *seen >= asked / 8), "{seen:?} of {asked} queries");
    assert!(manifests.len() > 3, "bases were replaced meanwhile: {manifests:?}");
}

#[test]
fn a_query_beside_writers_sees_all_that_returned_before_it_began() {
    for seed in 0..scale(3, 60) {
        for engine in Engine::ALL {
            run(seed, engine);
        }
    }
}
