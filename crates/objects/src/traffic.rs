//! Counts of requests, which servers charge for, and whether the store answers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Blobs, Clock, Device, Result};

/// A kind of request. Servers charge for the first two more than for the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Creating an object.
    Create,
    /// Listing a thousand names.
    List,
    /// Reading an object or a part of it.
    Read,
    /// Reading an object's length.
    Head,
    /// Deleting an object, or a thousand.
    Delete,
}

/// Requests to a store so far.
#[derive(Debug, Default)]
pub struct Traffic {
    requests: [AtomicU64; 5],
    retries: AtomicU64,
    bytes_in: AtomicU64,
    bytes_out: AtomicU64,
    health: Mutex<Health>,
}

#[derive(Debug, Default)]
struct Health {
    /// When the store answered last.
    answered: Duration,
    failing: Option<Failing>,
}

/// A store that does not answer, or not as it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failing {
    /// Since when, on the monotonic clock of the store.
    pub since: Duration,
    /// The last error.
    pub why: String,
}

/// Counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrafficCounts {
    /// Requests that create an object, with repeats.
    pub create: u64,
    /// Requests that list names.
    pub list: u64,
    /// Requests that read bytes.
    pub read: u64,
    /// Requests for a length.
    pub head: u64,
    /// Requests that delete.
    pub delete: u64,
    /// Those of all that repeat one that failed.
    pub retries: u64,
    /// Bytes of objects received.
    pub bytes_in: u64,
    /// Bytes of objects sent.
    pub bytes_out: u64,
    /// Set while requests fail: since the first that failed was sent, or since the
    /// last answer if that came later, to the next answer.
    pub failing: Option<Failing>,
}

impl Traffic {
    /// The counts now.
    pub fn counts(&self) -> TrafficCounts {
        let of = |kind: Kind| self.requests[kind as usize].load(Ordering::Relaxed);
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        TrafficCounts {
            create: of(Kind::Create),
            list: of(Kind::List),
            read: of(Kind::Read),
            head: of(Kind::Head),
            delete: of(Kind::Delete),
            retries: load(&self.retries),
            bytes_in: load(&self.bytes_in),
            bytes_out: load(&self.bytes_out),
            failing: self.health.lock().failing.clone(),
        }
    }

    /// Counts a request.
    pub(crate) fn sends(&self, kind: Kind, bytes_out: u64, repeats: bool) {
        self.requests[kind as usize].fetch_add(1, Ordering::Relaxed);
        self.bytes_out.fetch_add(bytes_out, Ordering::Relaxed);
        self.retries.fetch_add(u64::from(repeats), Ordering::Relaxed);
    }

    /// Counts bytes of objects in an answer.
    pub(crate) fn receives(&self, bytes: u64) {
        self.bytes_in.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Notes that the store answered.
    pub(crate) fn answers(&self, now: Duration) {
        *self.health.lock() = Health { answered: now, failing: None };
    }

    /// Notes that a request failed, and when it was sent.
    pub(crate) fn fails(&self, sent: Duration, why: &device::Error) {
        let mut health = self.health.lock();
        // (Others may have been answered while this one waited.)
        let since = sent.max(health.answered);
        let since = health.failing.as_ref().map_or(since, |failing| failing.since);
        health.failing = Some(Failing { since, why: why.to_string() });
    }
}

/// Objects whose calls are counted as requests.
pub(crate) struct Counted<B> {
    pub(crate) blobs: B,
    pub(crate) traffic: std::sync::Arc<Traffic>,
    pub(crate) clock: std::sync::Arc<dyn Clock>,
}

impl<B: Blobs> Counted<B> {
    fn count<T>(
        &self,
        kind: Kind,
        bytes_out: u64,
        call: impl FnOnce(&B) -> Result<T>,
    ) -> Result<T> {
        self.traffic.sends(kind, bytes_out, false);
        let sent = self.clock.monotonic();
        let called = call(&self.blobs);
        match &called {
            Err(error) if !error.is_not_found() => self.traffic.fails(sent, error),
            _ => self.traffic.answers(self.clock.monotonic()),
        }
        called
    }
}

impl<B: Blobs> Blobs for Counted<B> {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.count(Kind::Create, bytes.len() as u64, |blobs| blobs.create(name, bytes))
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let bytes = device.metadata(path)?.map_or(0, |found| found.length);
        self.count(Kind::Create, bytes, |blobs| blobs.adopt(name, device, path))
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let read = self.count(Kind::Read, 0, |blobs| blobs.read_at(name, buffer, offset))?;
        self.traffic.receives(read as u64);
        Ok(read)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.count(Kind::Head, 0, |blobs| blobs.length(name))
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.count(Kind::List, 0, |blobs| blobs.list(prefix))
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.count(Kind::Delete, 0, |blobs| blobs.delete(name))
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        self.count(Kind::Delete, 0, |blobs| blobs.delete_all(names))
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.blobs.punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.count(Kind::Head, 0, |blobs| blobs.disk_bytes(name))
    }

    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.count(Kind::List, 0, |blobs| blobs.disk_bytes_below(prefix))
    }

    fn bytes_max(&self) -> u64 {
        self.blobs.bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        self.blobs.answers_may_be_lost()
    }
}
