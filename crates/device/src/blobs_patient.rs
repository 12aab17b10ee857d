//! `PatientBlobs`: creates objects in a store that may be unreachable for minutes.
//!
//! An open volume has acknowledged changes that are not durable yet. If the store does not accept
//! them now, giving up would lose them. So a creation is retried until the store answers, and
//! meanwhile the caller waits. Invariants:
//!
//! 1. Before [`PatientBlobs::insist`], errors are returned at once: an opening fails with the
//!    store's error.
//! 2. A creation returns `false` only for an object that other bytes made. If an earlier attempt
//!    got no answer, the object under the name is compared with the bytes.
//! 3. A caller that is [`crate::interruptible()`] gets an error when nobody waits for it any more,
//!    or when the store has been full for some time. What the creation was for stays undurable, and
//!    the next thread that waits for it continues.
//! 4. An error of the file of which an object is to be made is returned at once: it is no outage.
//! 5. Reads and deletions are never retried here: their callers have the means.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Mutex;

use crate::blobs::ReadPart;
use crate::{
    Blobs, Clock, Compared, Device, Error, LOOK_EVERY, Result, compare, is_interrupted,
    is_interruptible, part_of, remove_adopted,
};

/// First pause before a retry; each pause is twice as long as the one before.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Longest pause before a retry.
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Time without an answer from which a request counts as an outage, though it has not failed yet.
/// The layer below may repeat it for longer.
const SILENCE_MAX: Duration = Duration::from_secs(5);

/// A time in which the store accepts nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outage {
    /// When it began, on the monotonic clock.
    pub since: Duration,
    /// The last error.
    pub why: String,
    /// Whether the store is full, which only its users can change.
    pub is_full: bool,
}

/// Creations under way from bytes in memory: what syncs wait for. Those from files may take long
/// because they are large.
#[derive(Default)]
struct UnderWay {
    begun: BTreeMap<u64, Duration>,
    next: u64,
}

/// Objects of a store whose creations wait for the store.
pub struct PatientBlobs {
    blobs: Arc<dyn Blobs>,
    clock: Arc<dyn Clock>,
    insists: AtomicBool,
    /// Whether `outage` is one, readable without the lock.
    is_out: AtomicBool,
    outage: Mutex<Option<Outage>>,
    /// How many creations are under way, readable without the lock.
    busy: AtomicU64,
    under_way: Mutex<UnderWay>,
    /// Creations and deletions so far.
    changes: AtomicU64,
}

impl PatientBlobs {
    /// Objects of a store. Errors are returned until [`PatientBlobs::insist`].
    pub fn new(blobs: Arc<dyn Blobs>, clock: Arc<dyn Clock>) -> PatientBlobs {
        let insists = AtomicBool::new(false);
        let (is_out, busy) = (AtomicBool::new(false), AtomicU64::new(0));
        let (outage, under_way) = (Mutex::default(), Mutex::default());
        let changes = AtomicU64::new(0);
        PatientBlobs { blobs, clock, insists, is_out, outage, busy, under_way, changes }
    }

    /// How many creations and deletions ended so far. If it is the same as before, the objects are.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    fn changed<T>(&self, answer: T) -> T {
        self.changes.fetch_add(1, Ordering::AcqRel);
        answer
    }

    /// From now on creations wait until the store accepts them.
    pub fn insist(&self) {
        self.insists.store(true, Ordering::Release);
    }

    /// The outage, if the last creation failed, or one has had no answer for long.
    pub fn outage(&self) -> Option<Outage> {
        if self.is_out.load(Ordering::Acquire) {
            return self.outage.lock().clone();
        }
        let since = self.under_way.lock().begun.values().min().copied()?;
        let is_long = self.clock.monotonic().saturating_sub(since) >= SILENCE_MAX;
        let why = "a creation has no answer yet".to_owned();
        is_long.then_some(Outage { since, why, is_full: false })
    }

    /// Whether an outage has lasted for at least `limit`.
    #[inline]
    pub fn is_out_for(&self, limit: Duration) -> bool {
        let may_be = self.is_out.load(Ordering::Acquire) || self.busy.load(Ordering::Acquire) > 0;
        may_be && self.is_long(limit)
    }

    #[cold]
    fn is_long(&self, limit: Duration) -> bool {
        self.outage().is_some_and(|outage| self.lasts(&outage) >= limit)
    }

    fn lasts(&self, outage: &Outage) -> Duration {
        self.clock.monotonic().saturating_sub(outage.since)
    }

    /// Waits while an outage has lasted for at least `limit`. Fails if the store is full, and when
    /// `gave_up` returns that nobody waits for this any more.
    #[inline]
    pub fn wait_out(&self, limit: Duration, gave_up: impl Fn() -> bool) -> Result<()> {
        if self.is_out.load(Ordering::Acquire) || self.busy.load(Ordering::Acquire) > 0 {
            self.wait(limit, &gave_up)?;
        }
        Ok(())
    }

    #[cold]
    fn wait(&self, limit: Duration, gave_up: &dyn Fn() -> bool) -> Result<()> {
        while let Some(outage) = self.outage() {
            if self.lasts(&outage) < limit {
                break;
            }
            let kind = match (outage.is_full, gave_up()) {
                (true, _) => ErrorKind::StorageFull,
                (false, true) => ErrorKind::Interrupted,
                (false, false) => {
                    self.clock.sleep(LOOK_EVERY);
                    continue;
                }
            };
            return Err(Error::new("create", "", std::io::Error::new(kind, outage.why)));
        }
        Ok(())
    }

    /// The error for a caller that need not wait until the store accepts something. Nobody waits
    /// for it any more, or the store has been full for some time.
    fn refusal(&self, error: &Error) -> Option<Error> {
        if !is_interruptible() {
            return None;
        }
        if is_interrupted() {
            return Some(Error { kind: ErrorKind::Interrupted, ..error.clone() });
        }
        let is_long = || self.is_long(SILENCE_MAX);
        (error.is_no_space() && is_long()).then(|| error.clone())
    }

    /// Pauses, unless nobody waits any more.
    fn pause(&self, pause: Duration) {
        let mut left = pause;
        while !left.is_zero() && !is_interrupted() {
            let part = if is_interruptible() { left.min(LOOK_EVERY) } else { left };
            self.clock.sleep(part);
            left -= part;
        }
    }

    fn begin(&self) -> u64 {
        let now = self.clock.monotonic();
        let mut under_way = self.under_way.lock();
        let number = under_way.next;
        under_way.next += 1;
        under_way.begun.insert(number, now);
        self.busy.store(under_way.begun.len() as u64, Ordering::Release);
        number
    }

    fn end(&self, number: u64) {
        let mut under_way = self.under_way.lock();
        under_way.begun.remove(&number);
        self.busy.store(under_way.begun.len() as u64, Ordering::Release);
    }

    fn create_patiently(
        &self,
        name: &str,
        (length, part): (u64, ReadPart<'_>),
        may_pass: &dyn Fn(&Error) -> bool,
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
            if let Some(refusal) = self.refusal(&error) {
                return Err(refusal);
            }
            self.pause(pause);
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Whether the object under a name has these bytes.
    fn is_made(&self, name: &str, length: u64, part: ReadPart<'_>) -> Result<bool> {
        match compare(&*self.blobs, name, length, part)? {
            Compared::Same => Ok(true),
            Compared::Other => Ok(false),
            Compared::Nothing => {
                let gone =
                    std::io::Error::other("the store reported that it exists, and it is gone");
                Err(Error::new("create", name, gone))
            }
        }
    }

    fn note_outage(&self, error: &Error) {
        let mut outage = self.outage.lock();
        let since = outage.as_ref().map_or_else(|| self.clock.monotonic(), |outage| outage.since);
        let is_full = error.is_no_space();
        *outage = Some(Outage { since, why: error.to_string(), is_full });
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
        let number = self.begin();
        let attempt = || self.blobs.create(name, bytes);
        let made = self.create_patiently(name, (bytes.len() as u64, &part), &may_pass, &attempt);
        self.end(number);
        self.changed(made)
    }

    fn adopt(&self, name: &str, device: &dyn Device, path: &str) -> Result<bool> {
        let file = device.open(path)?;
        let length = file.len()?;
        let part = |buffer: &mut [u8], at: u64| file.read_at(buffer, at);
        let attempt = || self.blobs.adopt(name, device, path);
        // An error of the file itself is no outage of the store.
        let may_pass = |error: &Error| may_pass(error) && !error.is_of(path);
        let made = self.create_patiently(name, (length, &part), &may_pass, &attempt);
        let made = self.changed(made)?;
        if made {
            // If the answer was lost, the file is still there.
            remove_adopted(device, path);
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
        self.changed(self.blobs.delete(name))
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
        self.changed(self.blobs.delete_all(names))
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
