//! `Objects`: the object store of a volume, as a host uses it.

use std::sync::Arc;

use crate::{Blobs, Clock, OverlayBlobs, PatientBlobs, Times};

/// The object store that keeps a volume.
#[derive(Clone)]
pub struct Objects {
    /// The store itself.
    pub store: Arc<PatientBlobs>,
    /// The same, with what was read in a cache, if there is one.
    pub cached: Arc<dyn Blobs>,
    /// How long commits took: the creations of log objects.
    pub commits: Arc<Times>,
}

impl Objects {
    /// A store without a cache.
    pub fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>) -> Objects {
        let commits = Arc::new(Times::new(Arc::clone(&clock)));
        let store = Arc::new(PatientBlobs::new(blobs, clock));
        Objects { cached: Arc::<PatientBlobs>::clone(&store), store, commits }
    }

    /// The same store, with a cache over it.
    #[must_use]
    pub fn cached(self, cache: impl FnOnce(Arc<dyn Blobs>) -> Arc<dyn Blobs>) -> Objects {
        let cached = cache(Arc::<PatientBlobs>::clone(&self.store));
        Objects { cached, ..self }
    }

    /// The same objects, with changes that stay in memory, and without the cache: a check must read
    /// what the store has.
    #[must_use]
    pub fn overlaid(&self, clock: Arc<dyn Clock>) -> Objects {
        let store = Arc::<PatientBlobs>::clone(&self.store);
        Objects::new(Arc::new(OverlayBlobs::new(store)), clock)
    }

    /// The same objects, with changes that stay in memory. What is read is kept in the cache.
    #[must_use]
    pub fn observed(&self, clock: Arc<dyn Clock>) -> Objects {
        let store = Arc::<PatientBlobs>::clone(&self.store);
        let changed = OverlayBlobs::new(store);
        let cached = Arc::new(changed.over(Arc::clone(&self.cached)));
        Objects { cached, ..Objects::new(Arc::new(changed), clock) }
    }
}
