//! The cluster cache: clusters that were searched, until their columns are more than a budget.
//! The one that was used longest ago goes first (Magellan, 4.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::base::ClusterId;
use crate::Result;
use crate::cluster::Cluster;

/// Clusters in memory.
pub(crate) struct ClusterCache {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    clusters: BTreeMap<ClusterId, Held>,
    tick: u64,
    bytes: usize,
}

struct Held {
    cluster: Arc<Cluster>,
    bytes: usize,
    used: u64,
}

impl ClusterCache {
    /// Nothing yet.
    pub(crate) fn new() -> ClusterCache {
        ClusterCache { inner: Mutex::default() }
    }

    /// A cluster, opened if need be.
    pub(crate) fn get(
        &self,
        id: ClusterId,
        open: impl FnOnce() -> Result<Cluster>,
    ) -> Result<Arc<Cluster>> {
        {
            let mut inner = self.inner.lock();
            inner.tick += 1;
            let tick = inner.tick;
            if let Some(held) = inner.clusters.get_mut(&id) {
                held.used = tick;
                return Ok(Arc::clone(&held.cluster));
            }
        }
        let cluster = Arc::new(open()?);
        self.put(id, Arc::clone(&cluster));
        Ok(cluster)
    }

    /// Has a cluster in the place of what was there.
    pub(crate) fn put(&self, id: ClusterId, cluster: Arc<Cluster>) {
        let mut inner = self.inner.lock();
        inner.tick += 1;
        let used = inner.tick;
        let bytes = cluster.memory_bytes();
        let held = Held { cluster, bytes, used };
        if let Some(other) = inner.clusters.insert(id, held) {
            inner.bytes -= other.bytes;
        }
        inner.bytes += bytes;
    }

    /// Counts what a cluster takes after a search, and lets go of others until all take no more
    /// than `budget`.
    pub(crate) fn settle(&self, id: ClusterId, budget: usize) {
        let mut inner = self.inner.lock();
        let inner = &mut *inner;
        if let Some(held) = inner.clusters.get_mut(&id) {
            let bytes = held.cluster.memory_bytes();
            inner.bytes = inner.bytes - held.bytes + bytes;
            held.bytes = bytes;
        }
        inner.shrink(budget);
    }

    /// Forgets a cluster.
    pub(crate) fn remove(&self, id: ClusterId) {
        let mut inner = self.inner.lock();
        if let Some(held) = inner.clusters.remove(&id) {
            inner.bytes -= held.bytes;
        }
    }

    /// Memory that all take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    fn shrink(&mut self, budget: usize) {
        while self.bytes > budget {
            let oldest = self.clusters.iter().min_by_key(|(_, held)| held.used);
            let Some(id) = oldest.map(|(id, _)| *id) else { return };
            if let Some(held) = self.clusters.remove(&id) {
                self.bytes -= held.bytes;
            }
        }
    }
}
