//! Writers, readers, a cleaner and a collector at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use data::{Data, ExtentOwner, FileRef, Options};
use device::sync::RwLock;
use store::{Batch, Commit, Durable, Snapshot, TreeId};
use testing::MemStore;

use crate::support::Volume;

const OWNER: ExtentOwner = ExtentOwner { birth: 1, last_clone: 0 };
const PAGES: u64 = 64;
const ROUNDS: u64 = 400;

struct Shared {
    data: Arc<Data>,
    store: Arc<MemStore>,
    stop: AtomicBool,
    reads: AtomicU64,
    /// What the namespace holds while it reads or changes a file.
    locks: [RwLock<()>; 4],
}

/// Overwrites random pages; every byte of a page is the same, so that a torn one shows.
fn write(shared: &Shared, ino: u64) {
    let file = FileRef { tree: TreeId(32), ino };
    let mut random = fastrand::Rng::with_seed(ino);
    for round in 0..ROUNDS {
        let pages = random.u64(1..8);
        let first = random.u64(0..PAGES - pages);
        let bytes = vec![round as u8; pages as usize * 4096];
        let mut batch = Batch::new();
        let lock = shared.locks[ino as usize].write();
        let freed = shared
            .data
            .write(&*shared.store, file, first * 4096, &bytes, OWNER, &mut batch)
            .unwrap();
        let token = shared.store.commit(&batch).unwrap();
        drop(lock);
        shared.data.reclaim_after(freed, token);
        if random.u8(0..20) == 0 {
            shared.store.sync(token).unwrap();
        }
    }
}

fn read(shared: &Shared, ino: u64) {
    let file = FileRef { tree: TreeId(32), ino };
    let mut buffer = vec![0; PAGES as usize * 4096];
    loop {
        let size = buffer.len() as u64;
        let lock = shared.locks[ino as usize].read();
        shared.data.read(&*shared.store, file, size, 0, &mut buffer).unwrap();
        drop(lock);
        for page in buffer.chunks(4096) {
            assert!(page.iter().all(|&byte| byte == page[0]), "a torn page");
        }
        shared.reads.fetch_add(1, Ordering::Relaxed);
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn clean(shared: &Shared) {
    while !shared.stop.load(Ordering::Relaxed) {
        shared.data.clean_step(&*shared.store).unwrap();
        let horizon = shared.data.horizon();
        let pinned = shared.store.pin().unwrap();
        let marked = shared.data.mark(horizon, &*pinned, &mut [TreeId(32)].into_iter()).unwrap();
        shared.data.sweep(&*shared.store, &marked).unwrap();
    }
}

#[test]
fn writers_readers_cleaner_and_collector_agree() {
    let volume = Volume::with(
        testing::sim_env(1),
        Options { punch_bytes_min: 4096, ..crate::support::small_options() },
        true,
    );
    let shared = Arc::new(Shared {
        data: Arc::clone(&volume.data),
        store: Arc::clone(&volume.store),
        stop: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        locks: Default::default(),
    });
    let start = |name: &str, body: fn(&Shared, u64), ino: u64| {
        let shared = Arc::clone(&shared);
        device::spawn(name, move || body(&shared, ino)).unwrap()
    };
    let writers: Vec<_> = (1..4).map(|ino| start("writer", write, ino)).collect();
    let others = vec![
        start("reader", read, 1),
        start("reader", read, 2),
        start("cleaner", |shared, _| clean(shared), 0),
    ];
    for writer in writers {
        writer.join().unwrap();
    }
    shared.stop.store(true, Ordering::Relaxed);
    for other in others {
        other.join().unwrap();
    }
    assert!(shared.reads.load(Ordering::Relaxed) > 0);
    volume.store.sync(volume.store.last_commit()).unwrap();
    volume.data.clean_all(&*volume.store).unwrap();
    assert!(crate::support::check_records(&volume.store));
    let live = 3 * PAGES * 4096;
    assert!(volume.data.disk_bytes().unwrap() < live * 2, "what died was given back");
}
