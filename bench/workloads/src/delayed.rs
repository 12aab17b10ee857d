//! Objects whose creations take a given time longer, as on a server that is far away; counts
//! requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Clock, Device, OverBlobs, Result};

/// Requests to a store, by what they cost: deletions cost nothing.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Requests {
    /// Objects that were created.
    pub(super) creates: u64,
    pub(super) lists: u64,
    /// Reads, and questions for a length.
    pub(super) reads: u64,
}

impl std::ops::Sub for Requests {
    type Output = Requests;

    fn sub(self, before: Requests) -> Requests {
        Requests {
            creates: self.creates - before.creates,
            lists: self.lists - before.lists,
            reads: self.reads - before.reads,
        }
    }
}

impl std::ops::AddAssign for Requests {
    fn add_assign(&mut self, more: Requests) {
        self.creates += more.creates;
        self.lists += more.lists;
        self.reads += more.reads;
    }
}

/// Objects of a store that is made slower.
pub(super) struct Delayed {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    nanos: AtomicU64,
    created: AtomicU64,
    listed: AtomicU64,
    read: AtomicU64,
}

impl Delayed {
    pub(super) fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>) -> Arc<Delayed> {
        let [nanos, created, listed, read] = [(); 4].map(|()| AtomicU64::new(0));
        Arc::new(Delayed { blobs, clock, nanos, created, listed, read })
    }

    /// How long each creation takes longer from now on.
    pub(super) fn set_put(&self, time: Duration) {
        self.nanos.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> Requests {
        Requests {
            creates: self.created.load(Ordering::Relaxed),
            lists: self.listed.load(Ordering::Relaxed),
            reads: self.read.load(Ordering::Relaxed),
        }
    }

    fn delay(&self) {
        self.created.fetch_add(1, Ordering::Relaxed);
        let nanos = self.nanos.load(Ordering::Relaxed);
        if nanos > 0 {
            self.clock.sleep(Duration::from_nanos(nanos));
        }
    }
}

impl OverBlobs for Delayed {
    fn below(&self) -> &dyn Blobs {
        &*self.blobs
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.delay();
        self.blobs.create(name, bytes)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.delay();
        self.blobs.adopt(name, device, path)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.blobs.read_at(name, buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.read.fetch_add(1, Ordering::Relaxed);
        self.blobs.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.listed.fetch_add(1, Ordering::Relaxed);
        self.blobs.list(prefix)
    }
}
