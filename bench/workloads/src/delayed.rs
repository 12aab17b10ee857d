//! Objects whose creations take a given time longer, as on a server that is far away.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::{Blobs, Clock, Device, OverBlobs, Result};

/// Objects of a store that is made slower.
pub(super) struct Delayed {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    nanos: AtomicU64,
    created: AtomicU64,
}

impl Delayed {
    pub(super) fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>) -> Arc<Delayed> {
        let (nanos, created) = (AtomicU64::new(0), AtomicU64::new(0));
        Arc::new(Delayed { blobs, clock, nanos, created })
    }

    /// How long each creation takes longer from now on.
    pub(super) fn set_put(&self, time: Duration) {
        self.nanos.store(time.as_nanos() as u64, Ordering::Relaxed);
    }

    /// How many objects were created.
    pub(super) fn created(&self) -> u64 {
        self.created.load(Ordering::Relaxed)
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
}
