//! Several owners of one store in an object store, with requests that take their time: they land
//! late, twice, or without an answer. Whatever was acknowledged is found by the next opening.
//!
//! The model of this protocol is in `testing/models`; here runs the engine itself.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Device, Env, SystemClock};
use lsm::{BlobStore, LsmStore, Options};
use store::{
    Batch, Commit, Durability, EngineOptions, Error, LogObjects, LogPlace, Maintain,
    ObjectLogSettings, Read, TreeId,
};
use testing::sim::explore;
use testing::store_conformance::small;
use testing::{FarBlobs, SimDevice, commit};

const TREE: TreeId = TreeId(20);
const OWNERS: u64 = 3;
const BATCHES: u64 = 3;
/// How long a request or its answer is under way, at most.
const LATENCY_MS: u64 = 20;

/// A way to the objects.
struct Network {
    objects: Arc<FarBlobs>,
    clock: SystemClock,
    random: Mutex<fastrand::Rng>,
    /// Requests to create that will arrive once more.
    late: Mutex<Vec<(String, Vec<u8>)>>,
}

impl Network {
    fn new(seed: u64) -> Arc<Network> {
        Arc::new(Network {
            objects: FarBlobs::new(),
            clock: SystemClock::new(),
            random: Mutex::new(fastrand::Rng::with_seed(seed)),
            late: Mutex::default(),
        })
    }

    fn draw(&self, below: u64) -> u64 {
        self.random.lock().u64(..below)
    }

    fn pass(&self) {
        self.clock.sleep(Duration::from_millis(self.draw(LATENCY_MS)));
    }

    /// A request: under way, executed, its answer under way.
    fn ask<T>(&self, execute: impl FnOnce(&FarBlobs) -> T) -> T {
        self.pass();
        let answer = execute(&self.objects);
        self.pass();
        answer
    }

    /// Lets duplicates arrive, long after the first.
    fn deliver_late(&self) {
        for _ in 0..8 {
            self.clock.sleep(Duration::from_millis(5 * self.draw(LATENCY_MS)));
            let next = self.late.lock().pop();
            if let Some((name, bytes)) = next {
                self.objects.create(&name, &bytes).unwrap();
            }
        }
    }
}

impl Blobs for Network {
    fn create(&self, name: &str, bytes: &[u8]) -> device::Result<bool> {
        let made = self.ask(|objects| objects.create(name, bytes))?;
        match self.draw(8) {
            0 => self.late.lock().push((name.to_owned(), bytes.to_vec())),
            1 => {
                let lost = std::io::Error::from(std::io::ErrorKind::TimedOut);
                return Err(device::Error::new("create", name, lost));
            }
            _ => {}
        }
        Ok(made)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> device::Result<bool> {
        self.ask(|objects| objects.adopt(name, device, path))
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> device::Result<usize> {
        self.ask(|objects| objects.read_at(name, buffer, offset))
    }

    fn length(&self, name: &str) -> device::Result<Option<u64>> {
        self.ask(|objects| objects.length(name))
    }

    fn list(&self, prefix: &str) -> device::Result<Vec<String>> {
        self.ask(|objects| objects.list(prefix))
    }

    fn delete(&self, name: &str) -> device::Result<()> {
        self.ask(|objects| objects.delete(name))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> device::Result<bool> {
        self.objects.punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> device::Result<u64> {
        self.ask(|objects| objects.disk_bytes(name))
    }

    fn answers_may_be_lost(&self) -> bool {
        true
    }
}

fn options(blobs: Arc<dyn Blobs>) -> Options {
    let settings = ObjectLogSettings {
        patience: Duration::from_secs(5),
        pause: Duration::from_millis(10),
        ..ObjectLogSettings::default()
    };
    let log_place = LogPlace::Objects(LogObjects { blobs: Arc::clone(&blobs), settings });
    Options {
        common: EngineOptions { log_place, ..small(Durability::Sync) },
        compression: 0,
        blobs: Some(BlobStore(blobs)),
        ..Options::default()
    }
}

/// A machine of its own.
fn host(seed: u64) -> Env {
    super::env(&SimDevice::new(seed), seed)
}

fn key(owner: u64, thread: u64, batch: u64) -> [u8; 8] {
    (owner << 16 | thread << 8 | batch).to_be_bytes()
}

/// Acknowledged keys of all owners.
type Acknowledged = Mutex<BTreeSet<[u8; 8]>>;

/// Takes the store over, and writes until it is replaced.
fn serve_until_replaced(
    network: &Arc<Network>,
    owner: u64,
    seed: u64,
    acknowledged: &Acknowledged,
) {
    network.clock.sleep(Duration::from_millis(network.draw(40 * LATENCY_MS)));
    let blobs: Arc<dyn Blobs> = Arc::<Network>::clone(network);
    // It may be replaced before it serves, or give up after lost answers.
    let Ok(store) = LsmStore::open(&host(seed * 10 + owner), &options(blobs)) else { return };
    let write = |thread: u64| {
        for at in 0..BATCHES {
            let mut batch = Batch::new();
            batch.put(TREE, &key(owner, thread, at), &[7; 20]);
            match store.commit(&batch) {
                Ok(_) => acknowledged.lock().insert(key(owner, thread, at)),
                Err(Error::Replaced(_)) => return,
                Err(error) => panic!("owner {owner}: {error}"),
            };
        }
    };
    device::scope(|scope| {
        scope.spawn(|| write(0));
        scope.spawn(|| write(1));
        scope.spawn(|| {
            network.pass();
            // It fails when the owner was replaced, or an answer was lost.
            store.checkpoint().is_ok()
        });
    });
}

#[test]
fn what_any_owner_acknowledged_is_found_by_the_next() {
    let (replaced, all) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let kept = AtomicUsize::new(0);
    explore(super::orders(), 20, |seed| {
        let network = Network::new(seed);
        let objects: Arc<dyn Blobs> = Arc::<FarBlobs>::clone(&network.objects);
        let store = LsmStore::create(&host(seed), &options(Arc::clone(&objects))).unwrap();
        commit(&*store, |batch| batch.create_tree(TREE));
        drop(store);
        let acknowledged = Acknowledged::default();
        device::scope(|scope| {
            for owner in 1..=OWNERS {
                let (network, acknowledged) = (&network, &acknowledged);
                scope.spawn(move || serve_until_replaced(network, owner, seed, acknowledged));
            }
            scope.spawn(|| network.deliver_late());
        });
        let acknowledged = acknowledged.into_inner();
        let store = LsmStore::open(&host(seed * 10 + 9), &options(objects)).unwrap();
        for key in &acknowledged {
            let found = store.get(TREE, key).unwrap();
            assert!(found.is_some(), "{key:?} was acknowledged, and is lost");
        }
        kept.fetch_add(acknowledged.len(), Ordering::Relaxed);
        let whole = (OWNERS * 2 * BATCHES) as usize;
        all.fetch_add(usize::from(acknowledged.len() == whole), Ordering::Relaxed);
        replaced.fetch_add(usize::from(acknowledged.len() < whole), Ordering::Relaxed);
    });
    let (replaced, all) = (replaced.into_inner(), all.into_inner());
    let kept = kept.into_inner();
    assert!(kept > replaced + all, "{kept} acknowledged keys in {} runs", replaced + all);
    testing::run::print_line(&format!("{replaced} runs with a replaced owner, {all} without"));
}
