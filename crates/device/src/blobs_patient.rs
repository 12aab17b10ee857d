//! `PatientBlobs`: creates objects in a store that may be unreachable for minutes.
//!
//! An open volume has acknowledged changes that are not durable yet. If the store does not accept
//! them now, giving up would lose them. So a creation is retried until the store answers, and
//! meanwhile the caller waits. Invariants:
//!
//! 1. Before [`PatientBlobs::insist`], errors are returned at once: an opening fails with the
//!    store's error.
//! 2. A creation returns `false` only for an object that other bytes made: if an earlier attempt
//!    got no answer, the object under the name is compared with the bytes.
//! 3. Reads and deletions are never retried here: their callers have the means.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::sync::Mutex;

use crate::blobs::ReadPart;
use crate::{Blobs, Clock, Device, Error, Found, Result, compare, part_of};

/// First pause before a retry; each pause is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a retry.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// A time in which the store accepts nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// When the first creation failed, on the monotonic clock.
    pub since: Duration,
    /// The last error.
    pub why: String,
}

/// Objects of a store whose creations wait for the store.
pub struct PatientBlobs {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    insists: AtomicBool,
    /// Whether `outage` is one, readable without the lock.
    is_out: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

impl PatientBlobs {
    /// Objects of a store. Errors are returned until [`PatientBlobs::insist`].
    pub fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>) -> PatientBlobs {
        let insists = AtomicBool::new(false);
        let is_out = AtomicBool::new(false);
        PatientBlobs { blobs, clock, insists, is_out, outage: Mutex::default() }
    }

    /// From now on creations wait until the store accepts them.
    pub fn insist(&self) {
        self.insists.store(true, Ordering::Release);
    }

    /// The outage, if the last creation failed.
    pub fn outage(&self) -> Option<Outage> {
        if self.is_out.load(Ordering::Acquire) { self.outage.lock().clone() } else { None }
    }

    /// Waits while an outage has lasted for at least `limit`.
    #[inline]
    pub fn wait_out(&self, limit: Duration) {
        if self.is_out.load(Ordering::Acquire) {
            self.wait(limit);
        }
    }

    #[cold]
    fn wait(&self, limit: Duration) {
        while let Some(outage) = self.outage() {
            if self.clock.monotonic().saturating_sub(outage.since) < limit {
                return;
            }
            self.clock.sleep(PAUSE_MIN);
        }
    }

    fn create_patiently(
        &self,
        name: &str,
        length: u64,
        part: ReadPart<'_>,
        attempt: &dyn Fn() -> Result<bool>,
    ) -> Result<bool> {
        let mut pause = PAUSE_MIN;
        let mut in_doubt = false;
        loop {
            let tried = attempt().and_then(|made| match made {
                false if in_doubt => self.is_made(name, length, part),
                made => Ok(made),
            });
            let error = match tried {
                Err(error) if self.insists.load(Ordering::Acquire) && may_pass(&error) => error,
                tried => {
                    if tried.is_ok() {
                        self.end_outage();
                    }
                    return tried;
                }
            };
            in_doubt = true;
            self.note_outage(&error);
            self.clock.sleep(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether the object under a name has these bytes.
    fn is_made(&self, name: &str, length: u64, part: ReadPart<'_>) -> Result<bool> {
        match compare(&*self.blobs, name, length, part)? {
            Found::Same => Ok(true),
            Found::Other => Ok(false),
            Found::Nothing => {
                let gone = std::io::Error::other("it was said to be there, and is gone");
                Err(Error::new("create", name, gone))
            }
        }
    }

    fn note_outage(&self, error: &Error) {
        let mut outage = self.outage.lock();
        let since = outage.as_ref().map_or_else(|| self.clock.monotonic(), |outage| outage.since);
        *outage = Some(Outage { since, why: error.to_string() });
        self.is_out.store(true, Ordering::Release);
    }

    fn end_outage(&self) {
        if !self.is_out.load(Ordering::Acquire) {
            return;
        }
        let mut outage = self.outage.lock();
        *outage = None;
        self.is_out.store(false, Ordering::Release);
    }
}

/// Whether a creation may succeed later: not if the request itself is wrong.
fn may_pass(error: &Error) -> bool {
    !matches!(error.kind, ErrorKind::InvalidInput | ErrorKind::FileTooLarge)
}

impl Blobs for PatientBlobs {
    fn create(&self, name: &str, bytes: &[u8]) -> Result<bool> {
        let part = |buffer: &mut [u8], at: u64| Ok(part_of(bytes, buffer, at));
        self.create_patiently(name, bytes.len() as u64, &part, &|| self.blobs.create(name, bytes))
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        // An error of the file itself is no outage of the store.
        let file = device.open(path)?;
        let length = file.len()?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        let attempt = || self.blobs.adopt(name, device, path);
        let made = self.create_patiently(name, length, &part, &attempt)?;
        if made && device.metadata(path)?.is_some() {
            // The answer was lost, so the file is still there.
            device.remove(path)?;
        }
        Ok(made)
    }

    fn read_at(&self, name: &str, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.blobs.read_at(name, buffer, offset)
    }

    fn length(&self, name: &str) -> Result<Option<u64>> {
        self.blobs.length(name)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>> {
        self.blobs.list(prefix)
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.blobs.delete(name)
    }

    fn punch(&self, name: &str, offset: u64, length: u64) -> Result<bool> {
        self.blobs.punch(name, offset, length)
    }

    fn disk_bytes(&self, name: &str) -> Result<u64> {
        self.blobs.disk_bytes(name)
    }

    fn occupied(&self, name: &str, offset: u64, length: u64) -> Result<u64> {
        self.blobs.occupied(name, offset, length)
    }

    fn delete_all(&self, names: &[String]) -> Result<()> {
        self.blobs.delete_all(names)
    }

    fn disk_bytes_below(&self, prefix: &str) -> Result<u64> {
        self.blobs.disk_bytes_below(prefix)
    }

    fn bytes_max(&self) -> u64 {
        self.blobs.bytes_max()
    }

    fn answers_may_be_lost(&self) -> bool {
        self.blobs.answers_may_be_lost()
    }
}
