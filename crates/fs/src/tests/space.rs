//! Operations on a full disk.

use device::sync;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Clock, Env, Timestamp};
use format::key;
use inode::{Caller, FsError, Kind, NodeId};
use store::Batch;
use testing::{SimDevice, SimEnv};

use crate::Fs;
use opening::create::FormatOptions;
use vfs::{FileSystem, FsResult, NewNode, RenameMode, WalkControl};
use volume::{OpenOptions, Removed};

const ROOT: NodeId = NodeId::ROOT;

/// A clock that advances with each reading.
struct Looked {
    nanos: AtomicU64,
    step: AtomicU64,
}

impl Looked {
    fn step(&self, step: Duration) {
        self.step.store(step.as_nanos() as u64, Ordering::Release);
    }
}

impl Clock for Looked {
    fn now(&self) -> Timestamp {
        Timestamp(self.nanos.load(Ordering::Acquire) as i64)
    }

    fn monotonic(&self) -> Duration {
        let step = self.step.load(Ordering::Acquire);
        Duration::from_nanos(self.nanos.fetch_add(step, Ordering::AcqRel))
    }

    fn sleep(&self, duration: Duration) {
        self.nanos.fetch_add(duration.as_nanos() as u64, Ordering::AcqRel);
    }
}

struct Volume {
    device: SimDevice,
    clock: Arc<Looked>,
    fs: Arc<Fs>,
}

fn volume() -> Volume {
    let device = SimDevice::new(1);
    let nanos = AtomicU64::new(1_700_000_000_000_000_000);
    let clock = Arc::new(Looked { nanos, step: AtomicU64::new(0) });
    let env = SimEnv::on(device.clone(), 7).env();
    let env = Env { clock: Arc::<Looked>::clone(&clock), ..env };
    Fs::format(&env, &FormatOptions::default()).expect("an empty disk");
    let options = OpenOptions {
        cache_bytes: 4 << 20,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 1 << 20,
        index: None,
        ..OpenOptions::default()
    };
    Volume { device, clock, fs: Fs::open(env, &options).expect("it was made just now") }
}

impl Volume {
    fn file(&self, name: &str, bytes: usize) -> NodeId {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = self.fs.mknod(&Caller::root(), ROOT, name.as_bytes(), &new);
        let node = made.expect("there is space").node;
        self.write(node, bytes).expect("there is space");
        node
    }

    fn write(&self, node: NodeId, bytes: usize) -> FsResult<()> {
        self.fs.write(&Caller::root(), node, 0, &vec![7; bytes])
    }

    /// Removes a file that is not held.
    fn remove(&self, name: &str, node: NodeId) {
        self.fs.forget(node, 1);
        self.fs.unlink(&Caller::root(), ROOT, name.as_bytes()).expect("it goes");
    }

    /// Leaves less space than contents take.
    fn fill(&self) {
        self.fs.sync().expect("it is written");
        while self.fs.background_step(64).expect("background work").more {}
        let used = self.device.used_bytes();
        self.device.set_capacity(Some(used + used / 32));
    }
}

#[test]
fn a_thread_that_waits_for_anothers_search_deletes_nothing() {
    let v = volume();
    let root = Caller::root();
    v.fs.trash_set(&root, ROOT, Some(86_400)).expect("a trash");
    let node = v.file("f", 100_000);
    v.fs.mkdir(&root, ROOT, b"d", 0o755).expect("there is space");
    v.fs.forget(node, 1);
    v.device.set_capacity(Some(v.device.used_bytes() + (2 << 20)));
    let full = (0..100_000).any(|n| {
        let made = v.fs.mkdir(&root, ROOT, format!("{n:0200}").as_bytes(), 0o755);
        matches!(made, Err(FsError::NoSpace))
    });
    assert!(full, "100,000 directories fit into a small disk");
    // All but a moment of the time goes before it waits.
    v.clock.step(Duration::from_millis(29_900));
    let looking = v.fs.foreground.looking.lock();
    let removed = v.fs.unlink(&root, ROOT, b"f");
    assert!(matches!(removed, Err(FsError::NoSpace)), "{removed:?}");
    let removed = v.fs.rmr(&root, ROOT, b"d");
    assert!(matches!(removed, Err(FsError::NoSpace)), "{removed:?}");
    drop(looking);
    v.fs.lookup(&root, ROOT, b"f").expect("it is there");
    v.clock.step(Duration::ZERO);
    // A thread that finds itself that there is none, and that the trash is empty, deletes.
    v.fs.unlink(&root, ROOT, b"f").expect("it goes");
    v.fs.rmr(&root, ROOT, b"d").expect("it goes");
}

#[test]
fn a_collection_that_another_thread_finishes_is_not_waited_for() {
    let v = volume();
    let (big, other) = (v.file("big", 1 << 20), v.file("other", 8192));
    v.fill();
    let refused = v.write(other, 65_536);
    assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
    v.remove("big", big);
    v.fs.queue.request_collection();
    v.clock.step(Duration::from_millis(10));
    let collecting = v.fs.collecting.lock();
    let (sender, reported) = sync::channel();
    device::scope(|scope| {
        scope.spawn(|| sender.send(v.write(other, 65_536)));
        let written = reported.recv_timeout(Duration::from_secs(100));
        drop(collecting);
        written.expect("it waits for the collection").expect("there is space");
    });
}

/// Marking of `pando gc` takes minutes, and its result may be all that is needed.
#[test]
fn no_trash_is_purged_while_a_collection_is_requested_or_running() {
    let v = volume();
    let root = Caller::root();
    v.fs.trash_set(&root, ROOT, Some(30 * 86_400)).expect("a trash");
    let (kept, other) = (v.file("kept", 4 << 20), v.file("other", 8192));
    v.remove("kept", kept);
    v.clock.sleep(Duration::from_secs(3600));
    v.fill();
    let removed = || {
        let mut count = 0;
        let mut take = |_: Removed| {
            count += 1;
            WalkControl::Continue
        };
        v.fs.trash_list(&root, (ROOT, &[]), &mut take).expect("a list");
        count
    };
    // Each look at the clock is longer than it waits for the lock.
    v.clock.step(Duration::from_secs(3));
    let collecting = v.fs.collecting.lock();
    let refused = v.write(other, 65_536);
    assert!(matches!(refused, Err(FsError::NoSpace)), "{refused:?}");
    assert_eq!(removed(), 1);
    drop(collecting);
    v.clock.step(Duration::ZERO);
    v.fs.foreground.nothing_since.store(v.clock.now().0, Ordering::Release);
    assert!(!v.fs.may_come(), "nothing waits");
    v.fs.queue.request_collection();
    assert!(v.fs.may_come(), "what comes of it is not known");
    v.clock.step(Duration::from_millis(10));
    v.write(other, 65_536).expect("a collection frees nothing, and the trash is purged");
    assert_eq!(removed(), 0);
}

#[test]
fn the_background_leaves_the_trash_where_enough_waits_to_be_punched() {
    let v = volume();
    let root = Caller::root();
    let dir = v.fs.mkdir(&root, ROOT, b"dir", 0o755).expect("there is space").node;
    v.fs.trash_set(&root, dir, Some(30 * 86_400)).expect("a trash");
    let (big, kept) = (v.file("big", 8 << 20), v.file("kept", 8192));
    v.fs.rename(&root, (ROOT, b"kept"), (dir, b"kept"), RenameMode::Replace).expect("moves");
    v.fs.forget(kept, 1);
    v.fs.unlink(&root, dir, b"kept").expect("it goes");
    v.fs.sync().expect("it is written");
    while v.fs.background_step(64).expect("background work").more {}
    // More than what the background keeps free blocks nothing but costs time.
    v.device.set_capacity(Some(v.device.used_bytes() + (64 << 10)));
    v.remove("big", big);
    while v.fs.queue.has_new_orphans() {
        v.fs.background_step(64).expect("background work");
    }
    v.clock.sleep(Duration::from_secs(61));
    assert!(v.fs.bytes_to_come() > 1 << 20, "{} wait", v.fs.bytes_to_come());
    assert_eq!(v.fs.trash_step(64).expect("it looks"), 0, "an hour of the trash went");
}

#[test]
fn removed_data_is_punched_before_more_trash_is_purged() {
    let v = volume();
    let root = Caller::root();
    v.fs.trash_set(&root, ROOT, Some(30 * 86_400)).expect("a trash");
    for (hour, count) in [1500, 1, 1].into_iter().enumerate() {
        for n in 0..count {
            let name = format!("f{hour}.{n}");
            let node = v.file(&name, 8192);
            v.remove(&name, node);
        }
        v.clock.sleep(Duration::from_secs(3600));
    }
    let new = v.file("new", 8192);
    v.fill();
    // Removing the first hour takes longer than a search.
    v.clock.step(Duration::from_millis(700));
    v.write(new, 65_536).expect("an hour makes space");
    let mut left = Vec::new();
    let mut take = |removed: Removed| {
        left.push(removed.path.concat());
        WalkControl::Continue
    };
    v.fs.trash_list(&root, (ROOT, &[]), &mut take).expect("a list");
    left.sort();
    assert_eq!(left, [b"f1.0", b"f2.0"], "of the hours after the first");
}

/// Contents that cannot be read cannot be removed either.
#[test]
fn unremovable_contents_are_not_searched_repeatedly() {
    let v = volume();
    let bad = v.file("bad", 65_536);
    let other = v.file("other", 8192);
    let (subvol, ino) = v.fs.place(bad).expect("it is there");
    let mut batch = Batch::new();
    batch.put(subvol.tree(), &key::extent(ino, 0), b"\x01junk");
    v.fs.store.commit(&batch).expect("there is space");
    v.fill();
    v.remove("bad", bad);
    let refused = || matches!(v.write(other, 65_536), Err(FsError::NoSpace));
    assert!(refused());
    assert!(v.fs.queue.pop_orphan().is_some_and(|orphan| {
        v.fs.queue.put_orphan_back(orphan.0, orphan.1);
        orphan.1 == ino
    }));
    let before = v.device.ops();
    assert!((0..1000).all(|_| refused()));
    let done = v.device.ops() - before;
    assert!(done < 100, "{done} operations for 1000 refused writes");
}
