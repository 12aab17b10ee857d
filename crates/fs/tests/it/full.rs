//! The disk is full in the middle of any operation. An operation that finds no space has no effect,
//! and everything can still be read. Once there is space again the volume continues.

use std::time::Duration;

use device::Clock;
use fs::{Engine, FileSystem, Fs, NewNode};
use inode::{Caller, FsError, Kind, NodeId};
use search::index::{ClusterLimits, FlushPolicy};
use store::Durability;
use testing::{CrashPolicy, Fault, FaultOn, Op, SimDevice};

use crate::script::{Script, Step, check_state, options, scale};
use crate::subject::{Base, FsSubject, SetClock};

on_each_engine!(
    the_contents_of_a_full_disk_can_be_removed_again_and_again_beside_an_index,
    contents_leave_the_space_that_the_next_checkpoint_of_new_names_takes,
    contents_beside_a_pin_make_few_checkpoints_and_fill_the_disk,
    further_names_of_files_leave_the_space_reserved_for_removing_them,
    a_write_to_a_full_disk_is_refused_without_a_sync_each,
    a_write_that_is_refused_though_space_is_reported_ends_soon,
    an_operation_without_space_on_a_failing_disk_fails_soon,
);

#[test]
fn a_full_disk_during_any_operation_changes_nothing_and_is_survived() {
    run(&Base::Engine(Engine::Btree), scale(16, 300));
}

#[test]
fn a_full_disk_during_any_operation_on_the_log_structured_engine_changes_nothing() {
    run(&Base::Engine(Engine::Lsm), scale(16, 300));
}

#[test]
fn a_full_disk_during_any_operation_on_value_logs_changes_nothing() {
    run(&Base::Column, scale(8, 300));
}

#[expect(clippy::print_stdout, reason = "a failure is found again by its seed")]
fn run(base: &Base, seeds: u64) {
    for seed in 0..seeds {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        let mut script = Script::new(&device, seed, Durability::Async, base);
        for _ in 0..20 {
            assert_eq!(script.step(), Step::Done);
        }
        let mut random = fastrand::Rng::with_seed(seed);
        device.set_capacity(Some(device.used_bytes() + random.u64(..40) * 4096));
        let mut refused = 0;
        let mut latched = false;
        for _ in 0..100 {
            match script.step() {
                Step::Done => {}
                Step::NoSpace => refused += 1,
                Step::ReadOnly => {
                    latched = true;
                    break;
                }
                Step::Failed => panic!("seed {seed}: a full disk is no I/O error"),
            }
        }
        script.compare();
        println!("{refused} operations found no space; latched: {latched}");

        // A full volume opens, after a crash too.
        let disk = device.after_crash(CrashPolicy::LoseAll, seed);
        disk.set_capacity(Some(disk.used_bytes()));
        let mut subject = FsSubject::open(&disk, &options(Durability::Async), base)
            .unwrap_or_else(|error| panic!("seed {seed}: a full volume opens: {error}"));
        check_state(&mut subject, &script.states.lock(), &format!("seed {seed}, full"));
        drop(subject);

        // Once there is space it continues.
        device.set_capacity(None);
        if !latched {
            for _ in 0..40 {
                assert_eq!(script.step(), Step::Done, "seed {seed}: there is space again");
            }
            script.compare();
        }
    }
}

/// Fills a disk with names until there is no space, with background work in between, and returns
/// how many it took.
fn fill_with_names(fs: &Fs, clock: &SetClock, random: &mut fastrand::Rng, name: &str) -> usize {
    let root = Caller::root();
    let directory = match fs.mkdir(&root, NodeId::ROOT, name.as_bytes(), 0o755) {
        Ok(made) => made.node,
        Err(error) => panic!("{name}: no space for one directory: {error}"),
    };
    for made in 0..100_000 {
        // No engine can pack what it is made of.
        let noise: String = (0..100).map(|_| random.alphanumeric()).collect();
        match fs.mkdir(&root, directory, format!("n{made}.{noise}").as_bytes(), 0o755) {
            Ok(entry) => fs.forget(entry.node, 1),
            Err(error) => {
                assert!(matches!(error, FsError::NoSpace), "{name}, {made}: {error}");
                return made;
            }
        }
        if random.u32(..100) == 0 {
            clock.sleep(Duration::from_millis(200));
            some_background(fs, random.usize(1..8));
        }
    }
    panic!("100,000 directories fit into a small disk");
}

/// Some steps of background work; those that find no space are tried again later.
fn some_background(fs: &Fs, steps: usize) {
    for _ in 0..steps {
        match fs.background_step(64) {
            Ok(progress) if !progress.more => return,
            Ok(_) | Err(FsError::NoSpace) => {}
            Err(error) => panic!("a full disk is no other failure: {error}"),
        }
    }
}

/// The index and the nodes that its bases keep took the space that checkpoints need. Then nothing
/// could be removed any more, not even the index.
fn the_contents_of_a_full_disk_can_be_removed_again_and_again_beside_an_index(engine: Engine) {
    // On the log-structured engine merges take most of the time: the short form has a round less.
    let rounds = if engine == Engine::Lsm { scale(2, 3) } else { 3 };
    for seed in 0..scale(1, 60) {
        println!("seed {seed}");
        let device = SimDevice::new(seed);
        device.set_capacity(Some(5 << 20));
        let mut options = options(Durability::Async);
        options.checkpoint_bytes = 4 << 20;
        let index = options.index.as_mut().expect("these volumes have an index");
        index.limits = ClusterLimits { directories: 2000, rows: 20_000 };
        index.rows_without_base = 1000;
        index.flush.rows_min = 1000;
        index.flush.space_min = FlushPolicy::default().space_min;
        index.flush.space_max = FlushPolicy::default().space_max;
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let (fs, clock) = (subject.fs(), subject.clock());
        let mut random = fastrand::Rng::with_seed(seed);
        let mut first = 0;
        for round in 0..rounds {
            let name = format!("d{round}");
            let made = fill_with_names(fs, clock, &mut random, &name);
            println!("round {round}: {made} directories");
            first = if round == 0 { made } else { first };
            // The first time there may be no base of the index yet, with which names take two to
            // three times as much. Runs that wait to be merged take some as well. On so small a
            // disk, the space that is left varies by a factor of eight from seed to seed. That the
            // space itself is reclaimed is checked below.
            assert!(made * 10 > first, "round {round}: {made} directories, {first} at first");
            fs.rmr(&Caller::root(), NodeId::ROOT, name.as_bytes()).expect("removing goes always");
            let mut steps = 0;
            let waits = || fs.status().expect("it answers");
            while waits().detached + waits().dropping > 0 {
                some_background(fs, 16);
                clock.sleep(Duration::from_millis(100));
                steps += 1;
                assert!(steps < 3000, "round {round}: what was removed is never gone");
            }
            // Merges free their space and the space of the index: if there was none to update the
            // index, after a rest of a minute.
            for _ in 0..700 {
                some_background(fs, 16);
                clock.sleep(Duration::from_millis(100));
            }
            let used = device.used_bytes();
            assert!(used < 2 << 20, "round {round}: {used} bytes for nothing");
        }
    }
}

/// What checkpoints freed stays on disk for a while, to be reused: contents for which there is no
/// space get that. (On the log-structured engine they do not find what runs hide.)
#[test]
fn contents_reuse_retained_space() {
    let bytes = vec![1; 64 << 10];
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(Engine::Btree));
    let fs = subject.fs();
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let make = |name: &str| {
        fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new).expect("there is space").node
    };
    let files: Vec<NodeId> = (0..5000).map(|n| make(&format!("f{n}"))).collect();
    let (contents, more) = (make("contents"), make("more"));
    for byte in 0..4 {
        for &file in &files {
            fs.write(&root, file, 0, &[byte; 200]).expect("there is space");
        }
        let made = || fs.status().expect("it answers").checkpoints;
        let before = made();
        (0..100).take_while(|_| made() == before).for_each(|_| some_background(fs, 1));
        assert!(made() > before, "a checkpoint is due");
    }
    // Contents leave a sixteenth of the disk alone, and a page less than that is free.
    let used = device.used_bytes();
    let kept = used.div_ceil(15);
    device.set_capacity(Some((used + kept) / 4096 * 4096 - 4096));
    let written = fs.write(&root, contents, 0, &bytes);
    written.expect("there is space that is kept to be used again");
    assert!(device.used_bytes() < used - (1 << 20), "{} of {used} bytes", device.used_bytes());
    // If nothing is kept any more, that is reported.
    let used = device.used_bytes();
    device.set_capacity(Some(used + used / 16));
    let refused = fs.write(&root, more, 0, &bytes);
    assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
}

/// Bytes of the small disk of the next volume.
const DISK: u64 = 48 << 20;

/// A volume on a small disk, of which no checkpoint is due before the disk is full.
fn without_due_checkpoints(engine: Engine) -> (SimDevice, FsSubject) {
    let device = SimDevice::new(1);
    device.set_capacity(Some(DISK));
    let mut options = options(Durability::Async);
    options.checkpoint_bytes = 64 << 20;
    options.cache_bytes = 64 << 20;
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    (device, subject)
}

/// Contents left a sixteenth of the disk alone, whatever changes waited for a checkpoint. If those
/// were more, no checkpoint could be written, and nothing could be removed any more.
fn contents_leave_the_space_that_the_next_checkpoint_of_new_names_takes(engine: Engine) {
    const FILES: usize = 8000;
    let (_, subject) = without_due_checkpoints(engine);
    let fs = subject.fs();
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let mut random = fastrand::Rng::with_seed(1);
    let mut noise = |length: usize| (0..length).map(|_| random.u8(..)).collect::<Vec<_>>();
    let name = |n: usize| format!("f{n}");
    for n in 0..FILES {
        let node = fs.mknod(&root, NodeId::ROOT, name(n).as_bytes(), &new).expect("space").node;
        fs.write(&root, node, 0, &noise(500)).expect("there is space");
        fs.forget(node, 1);
    }
    let large = fs.mknod(&root, NodeId::ROOT, b"large", &new).expect("there is space").node;
    let bytes = noise(64 << 10);
    let full = (0..1000_u64).find_map(|n| fs.write(&root, large, n << 16, &bytes).err());
    assert!(matches!(full, Some(FsError::NoSpace)), "{full:?}");
    fs.forget(large, 1);
    for n in 0..FILES {
        let removed = fs.unlink(&root, NodeId::ROOT, name(n).as_bytes());
        assert!(removed.is_ok(), "{engine:?}, file {n}: {removed:?}");
    }
    fs.unlink(&root, NodeId::ROOT, b"large").expect("removing goes always");
}

/// What only a pin keeps in memory is written by no checkpoint. Contents that left space for it too
/// made one for each write, and found the disk full early.
fn contents_beside_a_pin_make_few_checkpoints_and_fill_the_disk(engine: Engine) {
    const FILES: usize = 3000;
    let (device, subject) = without_due_checkpoints(engine);
    let fs = subject.fs();
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let made: Vec<_> = (0..FILES)
        .map(|n| fs.mknod(&root, NodeId::ROOT, format!("f{n}").as_bytes(), &new).unwrap().node)
        .collect();
    let change = |byte| {
        for &node in &made {
            fs.write(&root, node, 0, &[byte; 500]).expect("there is space");
        }
    };
    change(1);
    let pin = fs.store.pin().expect("a pin");
    change(2);
    let large = fs.mknod(&root, NodeId::ROOT, b"large", &new).expect("there is space").node;
    let before = fs.status().expect("it answers").checkpoints;
    let bytes = vec![7; 64 << 10];
    let full = (0..1000_u64).find(|n| fs.write(&root, large, n << 16, &bytes).is_err());
    assert!(full.is_some(), "it is not full");
    let checkpoints = fs.status().expect("it answers").checkpoints - before;
    assert!(checkpoints < 8, "{engine:?}: {checkpoints} checkpoints");
    let free = DISK - device.used_bytes();
    assert!(free < DISK / 16 + (1 << 20), "{engine:?}: {free} bytes are free");
    drop(pin);
}

/// A name more of a file deletes the record that it had as one with a single name. That was taken
/// for removing, and continued into the space that is kept for what removes.
fn further_names_of_files_leave_the_space_reserved_for_removing_them(engine: Engine) {
    const FILES: usize = 4000;
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.checkpoint_bytes = 4 << 20;
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, clock) = (subject.fs(), subject.clock());
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let files: Vec<NodeId> = (0..FILES)
        .map(|n| fs.mknod(&root, NodeId::ROOT, format!("f{n}").as_bytes(), &new))
        .map(|made| made.expect("there is space").node)
        .collect();
    // Contents are stored beside the name, and move elsewhere with the first further name.
    for &file in &files {
        fs.write(&root, file, 0, &[1; 100]).expect("there is space");
    }
    let settle = || {
        for _ in 0..50 {
            clock.sleep(Duration::from_millis(200));
            some_background(fs, 8);
        }
    };
    settle();
    device.set_capacity(Some(device.used_bytes() + (3 << 20)));
    let mut random = fastrand::Rng::with_seed(1);
    let made = fill_with_names(fs, clock, &mut random, "d");
    settle();
    let mut linked = 0;
    for (n, &file) in files.iter().enumerate() {
        match fs.link(&root, file, NodeId::ROOT, format!("l{n}").as_bytes()) {
            Ok(_) => linked += 1,
            Err(error) => assert!(matches!(error, FsError::NoSpace), "link {n}: {error}"),
        }
    }
    println!("{made} directories, then {linked} further names");
    assert!(linked <= FILES / 20, "{linked} names were given to files on a full disk");
    // And all of them can be removed.
    for n in 0..FILES {
        let name = format!("f{n}");
        let done = (0..100).any(|_| match fs.unlink(&root, NodeId::ROOT, name.as_bytes()) {
            Ok(()) => true,
            Err(FsError::NoSpace) => {
                settle();
                false
            }
            Err(error) => panic!("{name}: {error}"),
        });
        assert!(done, "{name} cannot be removed from a full disk");
    }
}

/// The space of removed files is available at once to an operation that needs it, without the
/// background and without a trash.
fn removed_gives_space(engine: Engine) {
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    subject.background(1000).expect("background work");
    device.set_capacity(Some(device.used_bytes() + (24 << 20)));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let bytes = vec![7; 1 << 20];
    // Writes a file until there is no space; returns how far that went.
    let fill = |dir: NodeId, name: &[u8]| {
        let file = fs.mknod(&root, dir, name, &new);
        let file = file.unwrap_or_else(|error| panic!("{}: {error}", name.escape_ascii())).node;
        let mut at = 0;
        while fs.write(&root, file, at, &bytes).is_ok() {
            at += 1 << 20;
            assert!(at < 64 << 20, "64 MiB fit into 24");
        }
        fs.forget(file, 1);
        at
    };
    let first = fill(NodeId::ROOT, b"first");
    assert!(first >= 8 << 20, "{first} bytes");
    fs.unlink(&root, NodeId::ROOT, b"first").expect("it goes");
    assert!(fill(NodeId::ROOT, b"second") + (2 << 20) >= first, "after a name that was removed");
    fs.unlink(&root, NodeId::ROOT, b"second").expect("it goes");
    // The clock is stopped, so that nothing is punched for its age.
    subject.background(1000).expect("background work");
    let space = fs.statfs(NodeId::ROOT).expect("it answers");
    let free = space.blocks_free * u64::from(space.block_bytes);
    assert!(free + (2 << 20) >= first, "{free} bytes are free of {first}");

    let dir = fs.mkdir(&root, NodeId::ROOT, b"tree", 0o755).expect("there is space").node;
    assert!(fill(dir, b"f") + (2 << 20) >= first, "what waits for its age");
    fs.forget(dir, 1);
    fs.rmr(&root, NodeId::ROOT, b"tree").expect("it goes");
    assert!(fill(NodeId::ROOT, b"third") + (2 << 20) >= first, "after a tree that was removed");

    fs.snapshot_create(&root, NodeId::ROOT, b"s").expect("there is space");
    fs.unlink(&root, NodeId::ROOT, b"third").expect("it goes");
    let held = fill(NodeId::ROOT, b"held");
    assert!(held <= 1 << 20, "{held} bytes beside a snapshot that holds all");
    fs.snapshot_delete(&root, NodeId::ROOT, b"s").expect("it goes");
    let last = fill(NodeId::ROOT, b"last");
    assert!(last + (3 << 20) >= first, "{last} bytes after a snapshot that was removed");
}

#[test]
fn removed_files_free_space_for_the_next_write() {
    removed_gives_space(Engine::Btree);
}

#[test]
fn removed_files_free_space_on_the_log_structured_engine() {
    removed_gives_space(Engine::Lsm);
}

fn a_write_to_a_full_disk_is_refused_without_a_sync_each(engine: Engine) {
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    device.set_capacity(Some(device.used_bytes() + (12 << 20)));
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let file = fs.mknod(&root, NodeId::ROOT, b"f", &new).expect("there is space").node;
    let bytes = vec![7; 1 << 20];
    let mut at = 0;
    while fs.write(&root, file, at, &bytes).is_ok() {
        at += 1 << 20;
    }
    let before = device.ops();
    for _ in 0..1000 {
        assert!(matches!(fs.write(&root, file, at, &bytes), Err(FsError::NoSpace)));
    }
    let done = device.ops() - before;
    assert!(done < 100, "{done} operations for 1000 refused writes");
}

/// Pages that a refused write wrote are freed at once, and were taken for new space. So the write
/// was retried until the segment had no page left. `space` does not include a quota.
fn a_write_that_is_refused_though_space_is_reported_ends_soon(engine: Engine) {
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
    let (fs, root) = (subject.fs(), Caller::root());
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let file = fs.mknod(&root, NodeId::ROOT, b"f", &new).expect("there is space").node;
    let bytes = vec![7; 64 << 10];
    fs.write(&root, file, 0, &bytes).expect("there is space");
    device.inject(Fault::no_space(FaultOn::Only(Op::Write), 0).forever().below("data/"));
    let before = device.ops();
    device.watch(move |_, op| assert!(op < before + 200, "one write tries on and on"));
    let refused = fs.write(&root, file, 64 << 10, &bytes);
    device.unwatch();
    assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
    device.clear_faults();
    fs.write(&root, file, 64 << 10, &bytes).expect("there is space again");
}

/// Everything that would free space fails: the log, the engine's files, contents, or all of it.
fn an_operation_without_space_on_a_failing_disk_fails_soon(engine: Engine) {
    let files = if engine == Engine::Btree { "btree/" } else { "lsm/" };
    let faults = ["", "log/", "data/", files].map(|path| (FaultOn::AnySync, path));
    let faults = faults.into_iter().chain([(FaultOn::Only(Op::Write), files)]);
    for (seed, (on, path)) in (1..).zip(faults) {
        let device = SimDevice::new(seed);
        let mut options = options(Durability::Async);
        options.index = None;
        let subject = FsSubject::format(&device, &options, &Base::Engine(engine));
        let (fs, root) = (subject.fs(), Caller::root());
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let make = |name: String| fs.mknod(&root, NodeId::ROOT, name.as_bytes(), &new);
        for n in 0..400 {
            let node = make(format!("f{n}")).expect("there is space").node;
            fs.write(&root, node, 0, &[7; 9000]).expect("there is space");
            fs.forget(node, 1);
        }
        let last = make("last".to_owned()).expect("there is space").node;
        fs.sync().expect("it is written");
        while fs.background_step(64).expect("there is space").more {}
        // As full as contents make a disk, not fuller.
        let used = device.used_bytes();
        device.set_capacity(Some(used + used / 15 + (128 << 10)));
        let bytes = vec![7; 1 << 16];
        let write = |n: u64| fs.write(&root, last, n << 16, &bytes);
        let is_full = (0..1000).any(|n| matches!(write(n), Err(FsError::NoSpace)));
        assert!(is_full, "{path}: it is not full");
        for n in 0..300 {
            fs.unlink(&root, NodeId::ROOT, format!("f{n}").as_bytes()).expect("it goes");
        }
        device.inject(Fault::io(on, 0).forever().below(path));
        let before = device.ops();
        device.watch(move |_, op| assert!(op < before + 50_000, "one write tries on and on"));
        let answers: Vec<_> = (2000..2200)
            .map(|n| {
                let answer = write(n);
                // Errors of the background are logged.
                drop(fs.background_step(64));
                answer
            })
            .collect();
        device.unwatch();
        let failed = answers.iter().filter(|answer| answer.is_err()).count();
        assert!(failed > 0, "{path}: nothing failed");
    }
}

/// A thread that waited for the space of removed files did so without a message. (The
/// log-structured engine keeps enough for that.)
#[test]
fn a_removal_that_waits_for_space_is_reported_until_there_is_some() {
    let device = SimDevice::new(1);
    let mut options = options(Durability::Async);
    options.index = None;
    let subject = FsSubject::format(&device, &options, &Base::Engine(Engine::Btree));
    let (fs, clock, root) = (subject.fs(), subject.clock(), Caller::root());
    let dir = fs.mkdir(&root, NodeId::ROOT, b"tree", 0o755).expect("there is space").node;
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let mut random = fastrand::Rng::with_seed(1);
    for n in 0..1500 {
        let file = fs.mknod(&root, dir, format!("f{n}").as_bytes(), &new);
        let file = file.expect("there is space").node;
        // No engine can pack it.
        let bytes: Vec<u8> = (0..2000).map(|_| random.u8(..)).collect();
        fs.write(&root, file, 0, &bytes).expect("there is space");
        fs.forget(file, 1);
    }
    fs.forget(dir, 1);
    fs.sync().expect("there is space");
    fs.rmr(&root, NodeId::ROOT, b"tree").expect("it goes");
    device.set_capacity(Some(device.used_bytes()));
    let wait = |seconds: u32| {
        for _ in 0..seconds {
            some_background(fs, 16);
            clock.sleep(Duration::from_secs(1));
        }
    };
    wait(5);
    assert!(fs.stuck().is_none(), "others may make space yet");
    wait(15);
    let stuck = fs.stuck();
    assert!(matches!(stuck, Some((1.., FsError::NoSpace))), "{stuck:?}");
    device.set_capacity(None);
    wait(30);
    assert!(fs.stuck().is_none(), "{:?}", fs.stuck());
    assert_eq!(fs.status().expect("it answers").detached, 0);
}
