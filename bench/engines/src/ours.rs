//! Ours, both of them. Background work is that of a volume's daemon. One thread keeps the log's
//! interval, another makes checkpoints and reclaims (the log-structured engine merges there).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use btree::BtreeStore;
use device::Env;
use lsm::LsmStore;
use store::{Batch, KeyRange, Store, TreeId};

use crate::engine::{Engine, FLUSH_INTERVAL, Result};

const TREE: TreeId = TreeId(32);
const NAP: Duration = Duration::from_millis(10);
const RECLAIM_NODES: usize = 1000;

/// Keys begin with eight bytes of parent, which filters of directories are queried with.
const PREFIX_BYTES: usize = 8;

pub(crate) struct Ours<S> {
    store: Arc<S>,
    batch: Batch,
    ending: Arc<AtomicBool>,
    workers: Vec<JoinHandle<()>>,
}

impl Ours<BtreeStore> {
    pub(crate) fn btree(path: &Path, cache_bytes: usize) -> Result<Self> {
        let mut options = btree::Options::with_cache(cache_bytes);
        options.common.log_interval = FLUSH_INTERVAL;
        Ours::start(BtreeStore::create(&Env::system(path)?, &options)?)
    }
}

impl Ours<LsmStore> {
    pub(crate) fn lsm(path: &Path, cache_bytes: usize) -> Result<Self> {
        let mut options = lsm::Options::with_cache(cache_bytes);
        options.common.log_interval = FLUSH_INTERVAL;
        options.prefix_bytes = PREFIX_BYTES;
        options.compression = 0;
        Ours::start(LsmStore::create(&Env::system(path)?, &options)?)
    }
}

impl<S: Store + 'static> Ours<S> {
    fn start(store: Arc<S>) -> Result<Self> {
        let mut batch = Batch::new();
        batch.create_tree(TREE);
        store.commit(&batch)?;
        let ending = Arc::new(AtomicBool::new(false));
        let workers = [flush as fn(&S), write].map(|work| {
            let (store, ending) = (Arc::clone(&store), Arc::clone(&ending));
            std::thread::spawn(move || {
                while !ending.load(Ordering::Relaxed) {
                    work(&store);
                    std::thread::park_timeout(NAP);
                }
            })
        });
        let checkpoints = workers[1].thread().clone();
        store.set_waker(Arc::new(move || checkpoints.unpark()));
        Ok(Ours { store, batch, ending, workers: workers.into() })
    }
}

fn flush(store: &impl Store) {
    store.flush_if_due().expect("the log can be written");
}

fn write(store: &impl Store) {
    if store.checkpoint_due() {
        store.checkpoint().expect("a checkpoint can be made");
    }
    store.reclaim_step(RECLAIM_NODES).expect("nodes can be reclaimed");
}

impl<S: Store + 'static> Engine for Ours<S> {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.put(TREE, key, value);
        self.store.commit(&self.batch)?;
        Ok(())
    }

    fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.batch.clear();
        self.batch.delete(TREE, key);
        self.store.commit(&self.batch)?;
        Ok(())
    }

    fn get(&mut self, key: &[u8], found: &mut dyn FnMut(&[u8])) -> Result<bool> {
        Ok(self.store.get_with(TREE, key, found)?)
    }

    fn scan(&mut self, prefix: &[u8], found: &mut dyn FnMut(&[u8], &[u8])) -> Result<u64> {
        let mut cursor = self.store.scan(TREE, KeyRange::prefix(prefix))?;
        let mut count = 0;
        while let Some(item) = cursor.next()? {
            found(item.key, item.value);
            count += 1;
        }
        Ok(count)
    }

    fn sync(&mut self) -> Result<()> {
        Ok(self.store.sync(self.store.last_commit())?)
    }

    fn settle(&mut self) -> Result<()> {
        // Another thread may be at one that began too early.
        while !self.store.checkpoint()? {
            std::thread::sleep(Duration::from_millis(1));
        }
        while self.store.reclaim_step(RECLAIM_NODES)? {}
        Ok(())
    }

    fn snapshot(&mut self) -> Result<()> {
        drop(self.store.pin()?);
        Ok(())
    }

    fn copy(&mut self, number: u64) -> Result<bool> {
        self.batch.clear();
        self.batch.clone_tree(TREE, TreeId(TREE.0 + 1 + number));
        let token = self.store.commit(&self.batch)?;
        self.store.sync(token)?;
        Ok(true)
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.ending.store(true, Ordering::Relaxed);
        for worker in self.workers {
            worker.join().expect("workers do not panic");
        }
        Ok(self.store.close()?)
    }
}
