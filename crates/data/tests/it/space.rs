//! Space on a real disk: rewriting a file again and again does not fill it.

use std::sync::Arc;
use std::time::Duration;

use data::{Data, ExtentOwner, FileRef, Options};
use device::Env;
use format::key;
use format::segment::PAGES_MAX;
use store::{Batch, Commit, Durable, TreeId};
use testing::MemStore;
use testing::run::{print_line, slow};

const FILE: FileRef = FileRef { tree: TreeId(32), ino: 1 };
const OWNER: ExtentOwner = ExtentOwner { birth: 1, last_clone: 0 };

fn put(data: &Data, store: &MemStore, at: u64, bytes: &[u8]) {
    let mut batch = Batch::new();
    let freed = data.write(store, FILE, at, bytes, OWNER, &mut batch).unwrap();
    let token = store.commit(&batch).unwrap();
    data.reclaim_after(freed, token);
}

/// Twenty random rewrites of a file leave less than twice its size. In slow mode with 1 GiB and
/// segments of full size, otherwise with 16 MiB and smaller ones.
#[test]
fn twenty_random_rewrites_leave_less_than_twice_the_size() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::system(directory.path()).unwrap();
    let size: u64 = if slow() { 1 << 30 } else { 16 << 20 };
    let options = Options {
        segment_pages: if slow() { PAGES_MAX } else { 1024 },
        punch_bytes_min: size >> 7,
        waiting_bytes_max: size >> 2,
        punch_after: Duration::from_millis(500),
        ..Options::default()
    };
    let store = Arc::new(MemStore::new());
    let mut batch = Batch::new();
    batch.create_tree(TreeId(32));
    batch.create_tree(TreeId(key::VOLUME_TREE));
    store.commit(&batch).unwrap();
    let data = Data::open_local(&env, &*store, options).unwrap();
    store.set_barrier(Arc::<Data>::clone(&data));
    let mut block = vec![1; 128 << 10];
    for at in (0..size).step_by(block.len()) {
        put(&data, &store, at, &block);
    }
    let mut random = fastrand::Rng::with_seed(1);
    let mut most = 0;
    for round in 1..=20 {
        // Half in blocks of 4 KiB, half in larger ones, at random places.
        let mut written = 0;
        while written < size {
            let pages = if random.bool() { 1 } else { random.usize(1..=32) };
            let at = random.u64(0..=size / 4096 - pages as u64) * 4096;
            block[..8].copy_from_slice(&random.u64(..).to_le_bytes());
            put(&data, &store, at, &block[..pages * 4096]);
            written += pages as u64 * 4096;
            if random.u32(0..100) == 0 {
                while data.clean_step(&*store).unwrap() {}
                most = most.max(data.disk_bytes().unwrap());
            }
        }
        block[9] = round;
    }
    store.sync(store.last_commit()).unwrap();
    while data.clean_step(&*store).unwrap() {}
    let after = data.disk_bytes().unwrap();
    print_line(&format!("{size} bytes: at most {most}, {after} at the end; {:?}", data.stats()));
    assert!(most < 2 * size, "{most} bytes on disk");
    assert!(after < 2 * size, "{after} bytes on disk at the end");
}
