//! `TimedBlobs`: objects, and how long their creations took.
//!
//! Invariants: a creation counts once, in the first class whose limit it does not exceed, however
//! often it was repeated below. One that failed does not count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Blobs, Clock, Device, OverBlobs, Result};

/// Upper limits of the classes, in milliseconds. The last class has none.
pub const CLASSES: [u64; 11] = [2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000];

/// How many creations took how long.
pub struct Times {
    clock: Arc<dyn Clock>,
    classes: [AtomicU64; CLASSES.len() + 1],
    nanos: AtomicU64,
}

/// Counts at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeCounts {
    /// How many are in each class of [`CLASSES`], and in the one above.
    pub classes: Vec<u64>,
    /// The sum of all times.
    pub total: Duration,
}

impl Times {
    /// None yet.
    pub fn new(clock: Arc<dyn Clock>) -> Times {
        Times { clock, classes: Default::default(), nanos: AtomicU64::new(0) }
    }

    /// The counts now.
    pub fn counts(&self) -> TimeCounts {
        let classes = self.classes.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        TimeCounts { classes, total: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)) }
    }

    fn measure<T>(&self, create: impl FnOnce() -> Result<T>) -> Result<T> {
        let start = self.clock.monotonic();
        let created = create()?;
        let took = self.clock.monotonic().saturating_sub(start);
        let class = CLASSES.iter().position(|&limit| took <= Duration::from_millis(limit));
        self.classes[class.unwrap_or(CLASSES.len())].fetch_add(1, Ordering::Relaxed);
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(nanos, Ordering::Relaxed);
        Ok(created)
    }
}

/// Objects whose creations are timed.
pub struct TimedBlobs<B> {
    /// The objects.
    pub blobs: Arc<B>,
    /// The times.
    pub times: Arc<Times>,
}

impl<B: Blobs> OverBlobs for TimedBlobs<B> {
    fn below(&self) -> &dyn Blobs {
        &*self.blobs
    }

    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        self.times.measure(|| self.blobs.create(name, bytes))
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        self.times.measure(|| self.blobs.adopt(name, device, path))
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        self.blobs.delete_all(names)
    }
}
