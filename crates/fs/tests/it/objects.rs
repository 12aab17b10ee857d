//! A volume in an object store. The host, with everything on its disk, is lost before any request
//! that changes the store. Another host then finds a state that the volume went through, at least
//! the last that was synced. Also tests what is refused, and what an outage of the store does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Clock, Env, Objects};
use fs::{
    Engine, FileSystem, FormatOptions, Fs, Layout, NewNode, OpenError, OpenOptions, Repair,
    SyncScope,
};
use inode::{Caller, FsError, Kind, NodeId};
use store::Durability;
use testing::{Call, FarBlobs, Mishap, SimDevice, SimEnv, fails, noise, sim_env};

use crate::script::{Script, States, Step, check_state, options, scale};
use crate::subject::{Base, FsSubject};
use crate::support::refused;

pub(crate) const URL: &str = "s3://bucket/prefix";
pub(crate) const ROOT: NodeId = NodeId::ROOT;
/// Operations of one script.
const STEPS: u64 = 120;

/// An environment with an object store, on a host that has nothing.
pub(crate) fn env_of(sim: &SimEnv, far: &Arc<FarBlobs>) -> Env {
    let env = sim.env();
    let blobs = Arc::<FarBlobs>::clone(far);
    Env { objects: Some(Objects::new(blobs, Arc::clone(&env.clock))), ..env }
}

fn format_options() -> FormatOptions {
    FormatOptions {
        engine: Engine::Lsm,
        layout: Layout::Column,
        root_mode: 0o777,
        ..FormatOptions::default()
    }
}

pub(crate) fn formatted() -> Arc<FarBlobs> {
    let far = FarBlobs::new();
    Fs::format(&env_of(&sim_env(1), &far), &format_options()).expect("an empty store");
    far
}

/// Opens the volume on a host that may have a directory for it.
pub(crate) fn try_open(sim: &SimEnv, far: &Arc<FarBlobs>) -> Result<Arc<Fs>, OpenError> {
    let env = env_of(sim, far);
    if !fs::is_volume(&*env.device)? {
        fs::make_host(&*env.device, &**far, URL)?;
    }
    Fs::open(env, &OpenOptions { index: None, ..OpenOptions::default() })
}

/// Opens the volume on a new host.
pub(crate) fn open(far: &Arc<FarBlobs>) -> Arc<Fs> {
    try_open(&sim_env(9), far).expect("a volume")
}

pub(crate) fn make(fs: &Fs, name: &str, contents: &[u8]) -> NodeId {
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let node = fs.mknod(&Caller::root(), ROOT, name.as_bytes(), &new).expect("made").node;
    fs.write(&Caller::root(), node, 0, contents).expect("written");
    node
}

pub(crate) fn read(fs: &Fs, name: &str) -> fs::FsResult<Vec<u8>> {
    let node = fs.lookup(&Caller::root(), ROOT, name.as_bytes())?.node;
    let size = fs.getattr(&Caller::root(), node)?.size;
    let mut bytes = vec![0; size as usize];
    let read = fs.read(&Caller::root(), node, 0, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// What another host finds after this one was lost.
fn check_lost(far: &FarBlobs, states: &States, durability: Durability, place: &str) {
    let base = Base::Objects(far.copy());
    let host = SimDevice::new(3);
    let mut subject = match FsSubject::open(&host, &options(durability), &base) {
        Ok(subject) => subject,
        Err(error) => panic!("{place}, in {}: does not open: {error}", states.doing),
    };
    let at = check_state(&mut subject, states, place);
    subject.background(1000).unwrap_or_else(|error| panic!("{place}: background: {error}"));
    let only = States { dumps: vec![Arc::clone(&states.dumps[at])], ..States::default() };
    check_state(&mut subject, &only, &format!("{place}, after background work"));
    subject.fs().close().unwrap_or_else(|error| panic!("{place}: close: {error}"));
    drop(subject);
    let Base::Objects(far) = &base else { unreachable!("it is one of objects") };
    check_whole(far, place);
}

/// Checks everything that the store has, on a new host. Nothing is changed.
pub(crate) fn check_whole(far: &Arc<FarBlobs>, place: &str) {
    let env = env_of(&sim_env(4), far);
    fs::make_host(&*env.device, &**far, URL).expect("a volume");
    let before: Vec<_> = far.objects().into_keys().collect();
    let report = Fs::check_offline(&env, &mut |_, _| ControlFlow::Continue(()));
    let report = report.unwrap_or_else(|error| panic!("{place}: check: {error}"));
    assert!(report.is_clean(), "{place}: {report:?}");
    assert_eq!(before, far.objects().into_keys().collect::<Vec<_>>(), "a check changes nothing");
}

fn enumerate(seed: u64, durability: Durability) -> u64 {
    let far = FarBlobs::new();
    let device = SimDevice::new(seed);
    let mut script = Script::new(&device, seed, durability, &Base::Objects(Arc::clone(&far)));
    let points = Arc::new(AtomicU64::new(0));
    let (states, counted) = (Arc::clone(&script.states), Arc::clone(&points));
    far.watch(move |far, request| {
        // Every so often, because each takes an opening and a check.
        if !request.is_multiple_of(scale(3, 1)) {
            return;
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let place = format!("seed {seed}, host lost before request {request}");
        check_lost(far, &states.lock(), durability, &place);
    });
    let mut random = fastrand::Rng::with_seed(seed);
    let mishaps = [
        Mishap::LostRequest,
        Mishap::LostAnswer,
        Mishap::Late,
        Mishap::Twice,
        Mishap::Repeated,
        Mishap::Full,
    ];
    for step in 0..STEPS {
        if seed % 2 == 1 && step % 7 == 0 {
            let mishap = mishaps[random.usize(..mishaps.len())];
            far.order(Call::Make, "", mishap);
        }
        assert_eq!(script.step(), Step::Done, "seed {seed}, step {step}");
        if step % 10 == 0 {
            far.deliver();
        }
    }
    far.unwatch();
    far.take_back();
    script.compare();
    points.load(Ordering::SeqCst)
}

#[test]
fn a_lost_host_costs_only_what_was_not_synced() {
    let mut points = 0;
    for seed in 0..scale(4, 60) {
        println!("seed {seed}");
        let durability = if seed % 4 == 3 { Durability::Sync } else { Durability::Async };
        points += enumerate(seed, durability);
    }
    println!("{points} points");
    assert!(points > 30, "the scripts are too short to show anything: {points}");
}

#[test]
fn what_is_synced_is_in_the_store() {
    let far = formatted();
    let fs = open(&far);
    let small = make(&fs, "small", &noise(1, 10_000));
    let large = make(&fs, "large", &noise(2, 300_000));
    fs.fsync(small, SyncScope::All).expect("synced");
    fs.fsync(large, SyncScope::All).expect("synced");
    make(&fs, "late", &noise(3, 300_000));
    let left = far.copy();
    drop(fs);
    let fs = open(&left);
    assert_eq!(read(&fs, "small").expect("synced"), noise(1, 10_000));
    assert_eq!(read(&fs, "large").expect("synced"), noise(2, 300_000));
    refused(read(&fs, "late"), &FsError::NotFound);
    fs.close().expect("closed");
    drop(fs);
    check_whole(&left, "after closing");
    let fs = open(&left);
    assert_eq!(read(&fs, "large").expect("synced"), noise(2, 300_000));
}

/// How long a change may be in memory alone (`docs/guide/crash-safety.md`).
const INTERVAL: u64 = 5;

/// A machine makes a file each second, syncs none of them, and is lost. What is older than one
/// interval is in the store, contents included. What is younger is there as a whole, or not.
#[test]
fn a_lost_machine_costs_at_most_one_interval() {
    let (far, host) = (formatted(), sim_env(9));
    let fs = try_open(&host, &far).expect("a volume");
    // Contents beside the inode, in a value log, and in an object of their own.
    let contents = |second: u64| noise(second, [200, 20_000, 300_000][second as usize % 3]);
    let name = |second: u64| format!("file-{second}");
    let synced_at = 12;
    let (mut lost, mut kept) = (0, 0);
    for second in 0..3 * INTERVAL {
        let node = make(&fs, &name(second), &contents(second));
        if second == synced_at {
            fs.fsync(node, SyncScope::All).expect("synced");
        }
        // As the daemon's threads do it.
        fs.flush_if_due().expect("flushed");
        fs.background_step(1000).expect("background work");
        let left = far.copy();
        let fs = open(&left);
        for made in 0..=second {
            let place = format!("second {second}, made in {made}");
            match read(&fs, &name(made)) {
                Ok(found) => assert!(found == contents(made), "{place}: other contents"),
                Err(FsError::NotFound) if made + INTERVAL > second && made != synced_at => {
                    lost += 1;
                }
                Err(error) => panic!("{place}: {error}"),
            }
            kept += u64::from(made + INTERVAL <= second);
        }
        drop(fs);
        check_whole(&left, &format!("second {second}"));
        host.clock.sleep(Duration::from_secs(1));
    }
    assert!(lost > 10 && kept > 10, "{lost} lost, {kept} kept: nothing is shown");
}

/// A small file that is written and synced costs one request.
#[test]
fn a_sync_of_a_small_file_is_one_object() {
    let far = formatted();
    let fs = open(&far);
    make(&fs, "first", b"contents");
    fs.sync().expect("synced");
    for (bytes, objects) in [(1_000, 1), (64 << 10, 1), ((64 << 10) + 1, 2)] {
        let before = far.objects().len();
        let node = make(&fs, &format!("file-{bytes}"), &noise(1, bytes));
        fs.fsync(node, SyncScope::All).expect("synced");
        assert_eq!(far.objects().len() - before, objects, "{bytes} bytes");
    }
}

#[test]
fn a_store_that_has_something_is_not_formatted() {
    let far = formatted();
    let again = Fs::format(&env_of(&sim_env(2), &far), &format_options());
    assert!(matches!(again, Err(OpenError::Exists)), "{again:?}");
    let rubbish = FarBlobs::new();
    rubbish.put("holiday.jpg", b"a beach");
    let on_it = Fs::format(&env_of(&sim_env(2), &rubbish), &format_options());
    assert!(matches!(&on_it, Err(OpenError::NotEmpty(name)) if name == "holiday.jpg"), "{on_it:?}");
    assert_eq!(rubbish.objects().len(), 1, "nothing was written");
    let btree = FormatOptions { engine: Engine::Btree, ..format_options() };
    let empty = FarBlobs::new();
    let on_empty = Fs::format(&env_of(&sim_env(2), &empty), &btree);
    assert!(matches!(on_empty, Err(OpenError::InvalidOption(_))), "{on_empty:?}");
    assert_eq!(empty.objects().len(), 0, "nothing was written");
}

/// Two programs format one store at once: one of them gets it.
#[test]
fn of_two_formats_one_succeeds() {
    let far = FarBlobs::new();
    let made: Vec<_> = device::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|seed| {
                let far = Arc::clone(&far);
                scope.spawn(move || {
                    Fs::format(&env_of(&sim_env(seed), &far), &format_options()).is_ok()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends")).collect()
    });
    assert_eq!(made.iter().filter(|made| **made).count(), 1, "{made:?}");
    open(&far).close().expect("closed");
}

/// What an interrupted format left is no volume, and is not taken for an empty place.
#[test]
fn an_interrupted_format_leaves_no_volume() {
    let far = FarBlobs::new();
    far.watch(|far, request| {
        let left = far.copy();
        let opened = try_open(&sim_env(5), &left).map(drop);
        assert!(matches!(opened, Err(OpenError::NotAVolume)), "request {request}: {opened:?}");
    });
    let formatted = |far: &Arc<FarBlobs>| Fs::format(&env_of(&sim_env(1), far), &format_options());
    far.order(Call::Make, "lsm/", Mishap::Full);
    fails(formatted(&far), "no space");
    let again = formatted(&far);
    assert!(matches!(again, Err(OpenError::NotEmpty(_))), "{again:?}");
    far.unwatch();
}

#[test]
fn a_host_directory_of_another_volume_is_refused() {
    let (one, other) = (formatted(), formatted());
    let other = {
        let far = FarBlobs::new();
        Fs::format(&env_of(&sim_env(77), &far), &format_options()).expect("an empty store");
        drop(other);
        far
    };
    let host = sim_env(3);
    try_open(&host, &one).expect("a volume").close().expect("closed");
    let before: Vec<_> = other.objects().into_keys().collect();
    let opened = try_open(&host, &other).map(drop);
    assert!(
        matches!(&opened, Err(OpenError::AnotherVolume { url, .. }) if url == URL),
        "{opened:?}"
    );
    assert_eq!(before, other.objects().into_keys().collect::<Vec<_>>(), "nothing was written");
}

/// Each defect of the header in the store is reported, and nothing is written.
#[test]
fn a_damaged_header_is_refused() {
    let far = formatted();
    let header = far.objects()["volume.pando"].to_vec();
    let cut = header[..header.len() - 1].to_vec();
    let flipped: Vec<u8> =
        header.iter().enumerate().map(|(at, b)| b ^ u8::from(at == 30)).collect();
    let newer: Vec<u8> =
        header.iter().enumerate().map(|(at, &b)| if at == 8 { 9 } else { b }).collect();
    for (what, bytes) in [("cut", cut), ("flipped", flipped), ("rubbish", b"hello".to_vec())] {
        let hurt = far.copy();
        hurt.put("volume.pando", &bytes);
        let opened = try_open(&sim_env(3), &hurt).map(drop);
        assert!(matches!(opened, Err(OpenError::HeaderDamaged(_))), "{what}: {opened:?}");
    }
    let gone = far.copy();
    gone.delete("volume.pando").expect("deleted");
    let opened = try_open(&sim_env(3), &gone).map(drop);
    assert!(matches!(opened, Err(OpenError::HeaderDamaged(_))), "{opened:?}");
    // A repair rewrites it from the copy, and from neither there is nothing to rewrite.
    let env = env_of(&sim_env(3), &gone);
    fs::make_host(&*env.device, &*far, URL).expect("a volume");
    let report = Fs::repair(&env, Repair::Do, &mut |_, _| ControlFlow::Continue(()));
    let report = report.expect("repaired");
    assert!(report.after.is_clean() && report.repaired.len() == 1, "{report:?}");
    assert_eq!(gone.objects()["volume.pando"], far.objects()["volume.pando"]);
    gone.delete("volume.pando").expect("deleted");
    gone.delete("volume.copy").expect("deleted");
    let opened = try_open(&sim_env(3), &gone).map(drop);
    assert!(matches!(opened, Err(OpenError::NotAVolume)), "{opened:?}");
    let later = far.copy();
    let mut longer = newer;
    longer.push(0);
    later.put("volume.pando", &longer);
    let opened = try_open(&sim_env(3), &later).map(drop);
    assert!(matches!(opened, Err(OpenError::NewerFormat { found: 9, .. })), "{opened:?}");
}

/// An object of contents that is gone, cut short or changed costs the files in it, and a check
/// names it.
#[test]
fn damage_of_an_object_is_named() {
    let far = formatted();
    let fs = open(&far);
    make(&fs, "hurt", &noise(1, 200_000));
    fs.sync().expect("synced");
    make(&fs, "whole", &noise(2, 200_000));
    fs.close().expect("closed");
    drop(fs);
    let names = far.list("data/sealed/").expect("listed");
    assert!(names.len() >= 2, "{names:?}");
    let bytes = far.objects()[&names[0]].to_vec();
    for what in ["gone", "cut", "changed"] {
        let left = far.copy();
        match what {
            "gone" => left.delete(&names[0]).expect("deleted"),
            "cut" => left.put(&names[0], &bytes[..8192]),
            _ => {
                left.put(&names[0], &[&bytes[..5000], &[bytes[5000] ^ 1], &bytes[5001..]].concat());
            }
        }
        let fs = open(&left);
        let error = read(&fs, "hurt").expect_err("it is damaged").to_string();
        let name = names[0].rsplit('/').next().expect("a name");
        assert!(error.contains(name), "{what}: {error}");
        assert_eq!(read(&fs, "whole").expect("it is whole"), noise(2, 200_000));
        fs.close().expect("closed");
        drop(fs);
        let env = env_of(&sim_env(4), &left);
        fs::make_host(&*env.device, &*left, URL).expect("a volume");
        let report =
            Fs::check_offline(&env, &mut |_, _| ControlFlow::Continue(())).expect("checked");
        assert!(!report.is_clean(), "{what}");
        let named = report.problems.iter().any(|problem| problem.file.contains(name));
        assert!(named, "{what}: {:?}", report.problems);
    }
}

/// A host that was replaced rewrites no objects of contents, and deletes none.
#[test]
fn a_replaced_host_rewrites_nothing() {
    let far = formatted();
    let sim = sim_env(9);
    let first = try_open(&sim, &far).expect("a volume");
    for file in 0..20 {
        make(&first, &format!("{file}"), &noise(file, 200_000));
    }
    first.sync().expect("synced");
    for file in (0..20).filter(|file| file % 3 != 0) {
        first.unlink(&Caller::root(), ROOT, format!("{file}").as_bytes()).expect("removed");
    }
    // The inodes are removed, and that is durable; the pages are not freed yet.
    for _ in 0..20 {
        first.background_step(1000).expect("a step");
    }
    first.sync().expect("synced");
    let contents = |far: &FarBlobs| -> Vec<String> {
        let names = far.objects().into_keys();
        names.filter(|name| name.starts_with("data/sealed/")).collect()
    };
    let before = contents(&far);
    let copy = far.copy();
    let second = try_open(&sim_env(10), &far).expect("a volume");
    for _ in 0..1000 {
        sim.clock.advance(Duration::from_secs(10));
        first.background_step(1000).map(drop).unwrap_or_default();
    }
    assert_eq!(contents(&far), before, "the replaced host changed nothing");
    drop(first);
    for file in (0..20).step_by(3) {
        assert_eq!(read(&second, &format!("{file}")).expect("it is there"), noise(file, 200_000));
    }
    // Otherwise the test shows nothing.
    let sim = sim_env(11);
    let alone = try_open(&sim, &copy).expect("a volume");
    for _ in 0..1000 {
        sim.clock.advance(Duration::from_secs(10));
        alone.background_step(1000).expect("a step");
    }
    assert_ne!(contents(&copy), before, "an owner rewrites");
}

/// Its successor deletes what it reads: that is no damage.
#[test]
fn a_host_that_is_replaced_while_it_opens_reports_that() {
    let far = formatted();
    let first = open(&far);
    make(&first, "file", b"contents");
    first.sync().expect("synced");
    first.close().expect("closed");
    let (sim, options) = (sim_env(9), OpenOptions { index: None, ..OpenOptions::default() });
    let env = env_of(&sim, &far);
    fs::make_host(&*env.device, &*far, URL).expect("a volume");
    let opened = Fs::open_through(env, &options, |store| {
        drop(open(&far));
        for name in far.objects().into_keys().filter(|name| name.contains("/run-")) {
            far.delete(&name).expect("deleted");
        }
        store
    });
    let error = opened.err().expect("its objects are gone");
    assert!(matches!(error, OpenError::Store(store::Error::Replaced(_))), "{error}");
}

/// A host that was replaced adds nothing, and what it had made durable is there.
#[test]
fn a_replaced_host_changes_nothing_more() {
    let far = formatted();
    let first = open(&far);
    make(&first, "before", &noise(1, 100_000));
    first.sync().expect("synced");
    make(&first, "never", &noise(2, 100_000));
    let second = try_open(&sim_env(10), &far).expect("a volume");
    let error = first.sync().expect_err("it was replaced").to_string();
    assert!(error.contains("replaced"), "{error}");
    make(&second, "after", &noise(3, 100_000));
    second.sync().expect("synced");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let late = first.mknod(&Caller::root(), ROOT, b"late", &new).map(drop);
    fails(first.sync(), "this process was replaced");
    drop(late);
    fails(first.close(), "this process was replaced");
    drop((first, second));
    let third = open(&far);
    assert_eq!(read(&third, "before").expect("synced"), noise(1, 100_000));
    assert_eq!(read(&third, "after").expect("synced"), noise(3, 100_000));
    for name in ["never", "late"] {
        refused(read(&third, name), &FsError::NotFound);
    }
    third.close().expect("closed");
    drop(third);
    check_whole(&far, "after a replacement");
}

/// The bytes in the store are counted again only if the volume changed: each time costs requests.
#[test]
fn an_idle_volume_is_not_measured_again() {
    let far = formatted();
    let fs = open(&far);
    let bytes = |fs: &Fs| fs.status().expect("status").objects.expect("a store").bytes;
    assert_eq!(bytes(&fs), None, "nothing was counted yet");
    fs.measure_objects().expect("measured");
    let before = bytes(&fs).expect("measured");
    far.put("somebody", &[0; 1000]);
    fs.measure_objects().expect("measured");
    assert_eq!(bytes(&fs), Some(before), "no request was sent");
    make(&fs, "file", &noise(1, 100_000));
    fs.sync().expect("synced");
    fs.measure_objects().expect("measured");
    assert!(bytes(&fs).expect("measured") > before + 100_000);
    let commits = fs.status().expect("status").objects.expect("a store").commits;
    assert!(commits.classes.iter().sum::<u64>() > 0, "commits are timed");
}

/// A directory that has the objects of a volume is no volume directory.
#[test]
fn objects_are_not_opened_as_a_directory() {
    let far = formatted();
    let host = sim_env(3);
    let file = host.env().device.create("volume.pando").expect("created");
    file.write_at(&far.objects()["volume.pando"], 0).expect("written");
    let opened = Fs::open(host.env(), &OpenOptions::default()).map(drop);
    assert!(matches!(opened, Err(OpenError::ObjectsAsDirectory)), "{opened:?}");
}
