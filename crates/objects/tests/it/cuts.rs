//! Power cuts at requests. What a server has stays when the power of its client is cut. So a store
//! is opened from what the cut left of the disk, with the objects as they are then.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use device::sync::Mutex;
use device::{Blobs, Device, OverBlobs, Result};
use lsm::{BlobStore, LsmStore, Options};
use objects::S3Blobs;
use store::{Durability, Durable, Maintain, TreeId};
use testing::store_conformance::small;
use testing::{CrashPolicy, SimEnv, commit, entries, sim_env};

use super::{fresh_prefix, open_for_engine as open};

const TREE: TreeId = TreeId(32);

/// Called with the number of earlier requests that change something, before each.
type Watcher = Box<dyn Fn(u64) + Send + Sync>;

/// Objects on a server, with an observer of the requests.
struct Watched {
    blobs: Arc<S3Blobs>,
    count: AtomicU64,
    watcher: Mutex<Option<Arc<Watcher>>>,
}

impl Watched {
    fn notify(&self) {
        let watcher = self.watcher.lock().clone();
        let count = self.count.fetch_add(1, Ordering::Relaxed);
        if let Some(watcher) = watcher {
            watcher(count);
        }
    }
}

impl OverBlobs for Watched {
    fn below(&self) -> &dyn Blobs {
        &*self.blobs
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.notify();
        self.blobs.create(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.notify();
        self.blobs.adopt(name, device, path)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.notify();
        self.blobs.delete(name)
    }
}

fn options(blobs: Arc<dyn Blobs>) -> Options {
    Options {
        common: small(Durability::Async),
        block_bytes: 1 << 10,
        blobs: Some(BlobStore(blobs)),
        ..Options::default()
    }
}

/// The same objects below another prefix.
fn copied(blobs: &S3Blobs) -> Arc<S3Blobs> {
    let copy = open(&fresh_prefix());
    for name in blobs.list("").expect("list") {
        let mut bytes =
            vec![0; blobs.length(&name).expect("known").expect("it was listed") as usize];
        assert_eq!(blobs.read_at(&name, &mut bytes, 0).expect("read"), bytes.len());
        assert!(copy.create(&name, &bytes).expect("create"));
    }
    copy
}

/// Cut before any request, the store opens with whole commits only, and with all that was synced;
/// and it continues.
#[test]
fn power_may_be_cut_at_every_request() {
    let sim = sim_env(1);
    let blobs = open(&fresh_prefix());
    let watched = Arc::new(Watched {
        blobs: Arc::clone(&blobs),
        count: AtomicU64::new(0),
        watcher: Mutex::new(None),
    });
    let store = LsmStore::create(&sim.env(), &options(Arc::<Watched>::clone(&watched)));
    let store = store.expect("create");
    commit(&*store, |batch| batch.create_tree(TREE));
    store.sync(store.last_commit()).expect("sync");
    let states = Arc::new(Mutex::new(BTreeMap::from([(store.last_commit().0, BTreeMap::new())])));
    let least = Arc::new(AtomicU64::new(store.last_commit().0.0));
    let (known, must, device) = (Arc::clone(&states), Arc::clone(&least), sim.device.clone());
    *watched.watcher.lock() = Some(Arc::new(Box::new(move |count| {
        // In the short form before every fourth, and each policy in turn.
        if !count.is_multiple_of(testing::run::rounds(4, 1)) {
            return;
        }
        let policy = CrashPolicy::ALL[(count % 3) as usize];
        let sim = SimEnv::on(device.after_crash(policy, count), count);
        let options = options(copied(&blobs));
        let store = LsmStore::open(&sim.env(), &options).expect("open");
        let last = store.last_commit().0;
        assert!(last.0 >= must.load(Ordering::Relaxed), "cut before {count}: {last:?}");
        assert!(entries(&*store, TREE) == known.lock()[&last], "cut before {count}: {last:?}");
        let report = lsm::check(&store).expect("check");
        assert!(report.is_clean(), "cut before {count}: {:#?}", report.findings);
        commit(&*store, |batch| batch.put(TREE, b"after", b"the cut"));
        assert!(store.checkpoint().expect("checkpoint"));
        let found = entries(&*store, TREE);
        drop(store);
        let store = LsmStore::open(&sim.env(), &options).expect("open again");
        assert!(entries(&*store, TREE) == found, "cut before {count}: opened again");
    })));
    let (mut random, mut model) = (fastrand::Rng::with_seed(1), BTreeMap::new());
    for round in 0..12_u64 {
        let keys: Vec<Vec<u8>> =
            (0..40).map(|_| random.u32(0..400).to_be_bytes().to_vec()).collect();
        for key in &keys {
            model.insert(key.clone(), vec![round as u8; 60]);
        }
        states.lock().insert(store::Lsn(store.last_commit().0.0 + 1), model.clone());
        commit(&*store, |batch| {
            for key in &keys {
                batch.put(TREE, key, &[round as u8; 60]);
            }
        });
        if round % 2 == 0 {
            store.sync(store.last_commit()).expect("sync");
            least.store(store.last_commit().0.0, Ordering::Relaxed);
        }
        assert!(store.checkpoint().expect("checkpoint"));
        least.store(store.last_commit().0.0, Ordering::Relaxed);
        while store.reclaim_step(100).expect("reclaim") {}
    }
    *watched.watcher.lock() = None;
    assert!(store.stats().merges.expect("it merges").ended > 0);
    assert!(watched.count.load(Ordering::Relaxed) > 30);
}
