//! A volume in an object store: its contents, who waits for the store, and what it reports.
//!
//! Below the store, objects have the names that files have in a volume directory. A host directory
//! holds nothing that the store lacks, except changes that are not durable.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use device::Blobs;
use vfs::{FsResult, Waits};

use crate::ObjectsStatus;
use crate::core::Core;
use crate::error::from_store;

/// How long the object store may refuse objects before changes wait: at most this much of
/// acknowledged changes is not durable.
const UNDURABLE_MAX: Duration = Duration::from_secs(5);

impl Core {
    /// Waits while the object store has refused objects for so long that more changes would have
    /// to wait to be durable. The caller holds nothing.
    #[inline]
    pub fn wait_for_objects(&self) -> FsResult<()> {
        match &self.env.objects {
            None => Ok(()),
            Some(objects) => {
                let gave_up = || vfs::is_cancelled(&vfs::cancel());
                let waited = objects.store.wait_out(UNDURABLE_MAX, gave_up);
                waited.map_err(|error| from_store(error.into()))?;
                // So that a commit does not wait for it with locks held.
                self.for_caller(|| self.store.await_space().map_err(from_store))
            }
        }
    }

    /// What calls may wait for that takes much longer than a disk.
    pub fn waits(&self) -> Waits {
        match &self.env.objects {
            None => Waits::No,
            Some(_) if self.options.durability != store::Durability::Async => Waits::Changes,
            Some(_) if self.changes_wait() => Waits::Changes,
            Some(_) => Waits::Syncs,
        }
    }

    /// Whether changes wait for the object store, or soon will.
    pub fn changes_wait(&self) -> bool {
        let objects = self.env.objects.as_ref();
        objects.is_some_and(|objects| objects.store.is_out_for(Duration::ZERO))
    }

    /// Whether the object store refuses objects for lack of space.
    pub fn objects_full(&self) -> bool {
        let outage = self.env.objects.as_ref().and_then(|objects| objects.store.outage());
        outage.is_some_and(|outage| outage.is_full)
    }

    /// Waits until a write of so many bytes leaves few enough that are not durable. The caller
    /// holds nothing.
    pub fn make_space(&self, bytes: u64) -> FsResult<()> {
        self.for_caller(|| self.data.make_space(bytes).map_err(from_store))
    }

    /// Runs something that waits for what is to become durable. In an outage of the object store a
    /// caller that is interrupted waits no longer. At other times a signal ends no call: programs
    /// do not expect that of a file system.
    fn for_caller<T>(&self, run: impl FnOnce() -> T) -> T {
        let Some(objects) = &self.env.objects else { return run() };
        let (store, cancel) = (Arc::clone(&objects.store), vfs::cancel());
        let gave_up = move || vfs::is_cancelled(&cancel) && store.is_out_for(UNDURABLE_MAX);
        device::interruptible(Arc::new(gave_up), run)
    }

    /// Makes everything durable that returned before the call, for a caller that may be interrupted
    /// while it waits for an object store.
    pub fn sync_for_caller(&self) -> FsResult<()> {
        self.for_caller(|| self.sync())
    }

    /// Bytes that the volume occupies where it is kept.
    pub fn stored_bytes(&self, stats: &store::Stats) -> FsResult<u64> {
        match &self.env.objects {
            None => {
                let data = self.data.disk_bytes().map_err(from_store)?;
                Ok(stats.disk_bytes + stats.log_bytes + data)
            }
            Some(_) => Ok(self.object_bytes.lock().unwrap_or(0)),
        }
    }

    /// If the volume is in an object store and its bytes there may have changed, asks the store how
    /// many there are. That takes one request for each thousand objects. Status reports the last
    /// answer, and so never waits for the store.
    pub fn measure_objects(&self) -> FsResult<()> {
        if let Some(objects) = &self.env.objects {
            let changes = objects.store.changes();
            let is_known = self.object_bytes.lock().is_some();
            if is_known && self.measured.load(Ordering::Relaxed) == changes {
                return Ok(());
            }
            let bytes = objects.store.disk_bytes_all();
            let bytes = bytes.map_err(|error| from_store(error.into()))?;
            *self.object_bytes.lock() = Some(bytes);
            self.measured.store(changes, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The state of the object store, if the volume is in one.
    pub fn objects_status(&self) -> Option<ObjectsStatus> {
        let objects = self.env.objects.as_ref()?;
        let now = self.env.clock.monotonic();
        let outage = objects.store.outage();
        Some(ObjectsStatus {
            waits: outage.map(|outage| (now.saturating_sub(outage.since), outage.why)),
            bytes: *self.object_bytes.lock(),
            contents: self.data.stats().sealed_segments,
            commits: objects.commits.counts(),
        })
    }
}
