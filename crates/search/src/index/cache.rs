//! The cluster cache: keeps searched clusters until their columns exceed a budget, and evicts the
//! least recently used one first (Magellan, 4.1).

use std::collections::BTreeMap;
use std::sync::Arc;

use device::sync::Mutex;

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
    /// By time of last use; there may be very many small clusters.
    order: BTreeMap<u64, ClusterId>,
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

    /// Returns a cluster, and opens it if necessary.
    pub(crate) fn get(
        &self,
        id: ClusterId,
        open: impl FnOnce() -> Result<Cluster>,
    ) -> Result<Arc<Cluster>> {
        if let Some(cluster) = self.inner.lock().touch(id) {
            return Ok(cluster);
        }
        let cluster = Arc::new(open()?);
        self.put(id, Arc::clone(&cluster));
        Ok(cluster)
    }

    /// Sorts cached clusters before the others.
    pub(crate) fn held_first(&self, chosen: &mut [u32], id: impl Fn(u32) -> ClusterId) {
        let inner = self.inner.lock();
        chosen.sort_by_cached_key(|number| !inner.clusters.contains_key(&id(*number)));
    }

    /// Puts a cluster in the cache, and replaces what was there.
    pub(crate) fn put(&self, id: ClusterId, cluster: Arc<Cluster>) {
        let mut inner = self.inner.lock();
        inner.remove(id);
        inner.tick += 1;
        let (bytes, used) = (cluster.memory_bytes(), inner.tick);
        inner.clusters.insert(id, Held { cluster, bytes, used });
        inner.order.insert(used, id);
        inner.bytes += bytes;
    }

    /// Accounts for the memory of a cluster after a search, and evicts others until the total is at
    /// most `budget`.
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
        self.inner.lock().remove(id);
    }

    /// Memory of all cached clusters.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.inner.lock().bytes
    }
}

impl Inner {
    /// Returns a cached cluster and marks it as used.
    fn touch(&mut self, id: ClusterId) -> Option<Arc<Cluster>> {
        let held = self.clusters.get_mut(&id)?;
        self.tick += 1;
        self.order.remove(&held.used);
        held.used = self.tick;
        self.order.insert(self.tick, id);
        Some(Arc::clone(&held.cluster))
    }

    fn remove(&mut self, id: ClusterId) {
        if let Some(held) = self.clusters.remove(&id) {
            self.order.remove(&held.used);
            self.bytes -= held.bytes;
        }
    }

    fn shrink(&mut self, budget: usize) {
        while self.bytes > budget {
            let Some((_, &oldest)) = self.order.first_key_value() else { return };
            self.remove(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use format::inode_record::FileKind;
    use inode::NameHash;

    use super::ClusterCache;
    use crate::Row;
    use crate::cluster::{Cluster, ClusterBuilder, ClusterOptions, Fields};

    const HASH: [u8; 16] = [3; 16];

    /// A cluster of rows whose columns take some memory.
    fn cluster(rows: u64) -> Cluster {
        let hash = NameHash::new(HASH);
        let mut builder = ClusterBuilder::new(ClusterOptions::new(hash));
        for number in 0..rows {
            let name = format!("name{number}");
            builder.push(&Row {
                directory: 1,
                cookie: hash.hash(name.as_bytes()) << 8,
                ino: 10 + number,
                name: name.as_bytes(),
                kind: FileKind::File,
                mode: 0o644,
                uid: number as u32 % 7,
                gid: 0,
                nlink: 1,
                rdev: 0,
                size: number * number,
                allocated: 0,
                entries: 0,
                atime: 0,
                mtime: number as i64 * 1_000_003,
                ctime: 0,
                btime: 0,
                subvolume: 0,
                xattrs: b"",
            });
        }
        Cluster::open(Arc::new(builder.finish().bytes), hash).expect("just made")
    }

    /// Uses a cluster as a query does; returns whether it was opened.
    fn search(cache: &ClusterCache, id: u32, budget: usize) -> bool {
        let mut opened = false;
        let found = cache.get((5, id), || {
            opened = true;
            Ok(cluster(2000))
        });
        found.and_then(|cluster| cluster.rows(Fields::ATTRIBUTES)).expect("it reads");
        cache.settle((5, id), budget);
        opened
    }

    #[test]
    fn the_least_recently_used_cluster_is_evicted_within_the_budget() {
        let cache = ClusterCache::new();
        assert!(search(&cache, 0, usize::MAX));
        let one = cache.memory_bytes();
        let budget = one * 4 + one / 2;
        for id in 1..4 {
            assert!(search(&cache, id, budget));
        }
        assert!(!search(&cache, 0, budget), "four fit");
        // The first is newer than the second now.
        assert!(search(&cache, 4, budget));
        assert!(!search(&cache, 0, budget));
        assert!(search(&cache, 1, budget), "it went");
        for id in 100..200 {
            assert!(search(&cache, id, budget));
            assert!(cache.memory_bytes() <= budget, "{} of {budget}", cache.memory_bytes());
            assert!(!search(&cache, 0, budget), "it is used all the time");
        }
        let inner = cache.inner.lock();
        assert_eq!(inner.clusters.len(), 4);
        let held: usize = inner.clusters.values().map(|held| held.cluster.memory_bytes()).sum();
        assert_eq!((held, inner.order.len()), (inner.bytes, 4));
        drop(inner);
        cache.settle((9, 9), 0);
        assert_eq!(cache.memory_bytes(), 0);
    }

    /// Searches that each read more than fits, in the same order. Unless they read cached clusters
    /// first, each cluster is evicted before its turn.
    #[test]
    fn cached_clusters_are_read_first() {
        let cache = ClusterCache::new();
        search(&cache, 0, usize::MAX);
        let budget = cache.memory_bytes() * 5 + 1;
        let mut opened = [0; 4];
        for opened in &mut opened {
            let mut chosen: Vec<u32> = (0..20).collect();
            cache.held_first(&mut chosen, |number| (5, number));
            *opened = chosen.into_iter().filter(|id| search(&cache, *id, budget)).count();
        }
        assert_eq!(opened, [19, 15, 15, 15]);
    }

    #[test]
    fn a_cluster_that_replaces_another_counts_once() {
        let cache = ClusterCache::new();
        for _ in 0..3 {
            cache.put((1, 2), Arc::new(cluster(100)));
        }
        let one = cache.memory_bytes();
        cache.put((1, 3), Arc::new(cluster(100)));
        assert_eq!(cache.memory_bytes(), one * 2);
        cache.remove((1, 2));
        assert_eq!(cache.memory_bytes(), one);
        cache.remove((1, 2));
        cache.settle((1, 3), 0);
        assert_eq!(cache.memory_bytes(), 0);
    }
}
