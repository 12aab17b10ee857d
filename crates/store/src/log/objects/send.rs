//! Writing objects: each by the thread that took its records, several at the same time.
//!
//! A thread that waits for a record takes the buffered records as the next object. It makes the
//! data durable that they name, and creates the object. Meanwhile other threads do the same with
//! later records. If a request fails, the object stays, and is sent again. This thread does that
//! for as long as the settings allow, then the next one that waits. A failed request latches
//! nothing: the same bytes under the same name have the same effect however often they are sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use format::log_object::Kind;

use super::super::append::Log;
use super::super::reservation::Locked;
use super::super::state::State;
use super::{Flight, ObjectLog, Progress, Step, decode, object_name};
use crate::{Error, Result};

/// The longest pause between two attempts, in units of the first.
const PAUSES_MAX: u32 = 32;

/// What became of an object.
enum Outcome {
    /// It exists, made by this opening. A request that made it was sent at this time, or later.
    Own(Duration),
    /// Another opening's object has its name: why this one was replaced.
    Replaced(String),
}

impl Log {
    /// One step of a thread that waits until the record is durable. `state.writing` is not set.
    pub(in super::super) fn advance(
        &self,
        state: &mut Locked<'_>,
        objects: &ObjectLog,
        lsn: u64,
    ) -> Result<()> {
        match objects.step(lsn) {
            Step::Wait => self.await_turn(state),
            Step::Send(number) => {
                objects.progress(number, Progress::Sending);
                self.send(state, objects, number)
            }
            Step::Take => {
                self.gather(state);
                state.group = state.waiters;
                self.pace(state, objects);
                self.take_and_send(state, objects)
            }
        }
    }

    /// Writes the buffered records as one object. It is acknowledged when all before it are.
    pub(in super::super) fn take_and_send(
        &self,
        state: &mut Locked<'_>,
        objects: &ObjectLog,
    ) -> Result<()> {
        let Some(number) = self.take_group(state, objects)? else { return Ok(()) };
        self.send(state, objects, number)
    }

    /// Waits until the minimum time since the last group has passed. Records are appended
    /// meanwhile.
    fn pace(&self, state: &mut Locked<'_>, objects: &ObjectLog) {
        let interval = objects.settings.commit_interval;
        let Some(started) = objects.inner.lock().started.filter(|_| !interval.is_zero()) else {
            return;
        };
        let left = (started + interval).saturating_sub(self.env.clock.monotonic());
        if left.is_zero() {
            return;
        }
        state.writing = true;
        state.unlocked(|| self.env.clock.sleep(left));
        state.writing = false;
    }

    /// Takes the buffered records; returns the number of their object, which the calling thread
    /// writes.
    fn take_group(&self, state: &mut Locked<'_>, objects: &ObjectLog) -> Result<Option<u64>> {
        if !objects.inner.lock().announced {
            let why = "the manifest of this opening does not exist yet";
            return Err(Error::ReadOnly(Arc::from(why)));
        }
        let State { next, ref mut idle, .. } = **state;
        let (last, buffers) = (next - 1, std::mem::take(idle));
        state.writing = true;
        state.buffered = 0;
        state.bounds[0] = self.options.write_bytes;
        self.set_full(objects.is_stalled());
        state.dirty_since = None;
        let (mut buffers, number) = state.unlocked(|| {
            let mut buffers = buffers;
            self.stages.take(last, &mut buffers);
            let number = objects.push(&mut buffers, last, self.env.clock.monotonic());
            (buffers, number)
        });
        buffers.clear(self.options.write_bytes.saturating_mul(4));
        state.idle = buffers;
        state.writing = false;
        self.turn.notify_all();
        Ok(number)
    }

    /// Writes an object. On an error it stays, for the next thread that waits.
    fn send(&self, state: &mut Locked<'_>, objects: &ObjectLog, number: u64) -> Result<()> {
        let begun = self.env.clock.monotonic();
        let mut pause = objects.settings.pause;
        loop {
            let attempt = state.unlocked(|| {
                let skips = device::mutated("a record before the contents that it names");
                if let Some(barrier) = self.barrier.get().filter(|_| !skips) {
                    barrier.reach()?;
                }
                objects.attempt(number, &|| self.env.clock.monotonic())
            });
            let error = match attempt {
                Ok(Outcome::Own(sent)) => {
                    self.acknowledge(state, objects, number, sent);
                    return Ok(());
                }
                Ok(Outcome::Replaced(why)) => {
                    objects.progress(number, Progress::Idle);
                    return Err(self.replace(state, &why));
                }
                // The next thread that waits for it, or the one that flushes, continues.
                Err(error) if device::is_interruptible() => {
                    objects.progress(number, Progress::Idle);
                    self.turn.notify_all();
                    return Err(error.into());
                }
                Err(error) => error,
            };
            if !objects.stalled.swap(true, Ordering::Relaxed) {
                tracing::warn!(%error, "cannot write to the log; commits wait");
            }
            // From now on committers look here, and wait.
            self.set_full(true);
            let waited = self.env.clock.monotonic().saturating_sub(begun);
            let left = objects.settings.patience.saturating_sub(waited);
            let gave_up = state.check_written().err();
            let is_lost = self.barrier.get().is_some_and(|barrier| barrier.has_failed());
            if left.is_zero() || gave_up.is_some() || is_lost {
                objects.progress(number, Progress::Idle);
                self.turn.notify_all();
                return Err(gave_up.unwrap_or_else(|| unreachable_store(error)));
            }
            state.unlocked(|| self.env.clock.sleep(pause.min(left)));
            pause = (pause * 2).min(objects.settings.pause * PAUSES_MAX);
        }
    }

    /// Notes that an object exists, and acknowledges those before which none is missing.
    fn acknowledge(
        &self,
        state: &mut Locked<'_>,
        objects: &ObjectLog,
        number: u64,
        sent: Duration,
    ) {
        let bytes = objects.progress(number, Progress::Made(sent));
        self.counters.writes.fetch_add(1, Ordering::Relaxed);
        self.counters.syncs.fetch_add(1, Ordering::Relaxed);
        self.counters.written_bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(durable) = objects.pop_made() {
            state.durable = state.durable.max(durable);
            self.durable.store(state.durable, Ordering::Release);
            if objects.stalled.swap(false, Ordering::Relaxed) {
                tracing::info!("the log can be written again");
                self.set_full(state.buffered >= state.bounds[0]);
            }
        }
        self.turn.notify_all();
    }

    /// Takes no more records: another opening owns the store.
    fn replace(&self, state: &mut State, why: &str) -> Error {
        tracing::error!(why, "this process was replaced; it takes no more changes");
        let replaced = Error::Replaced(Arc::from(why));
        state.failed.get_or_insert_with(|| replaced.clone());
        self.turn.notify_all();
        replaced
    }

    /// Takes no more records and writes none of the buffered ones, because another opening owns the
    /// store. Returns the error.
    pub fn replaced(&self, why: &str) -> Error {
        let mut state = self.state.lock();
        self.replace(&mut state, why)
    }
}

/// The error of a request that failed for as long as a thread may wait. The records have numbers,
/// and may be durable. So it is never one that means that nothing happened, as a full disk's.
fn unreachable_store(error: device::Error) -> Error {
    Error::Device(device::Error { kind: std::io::ErrorKind::Other, ..error })
}

impl ObjectLog {
    /// Whether a further object may be written now.
    pub(in super::super) fn may_take(&self) -> bool {
        self.inner.lock().flights.len() < self.settings.in_flight.max(1)
    }

    /// Sets what is known of an object; returns its bytes' number.
    fn progress(&self, number: u64, progress: Progress) -> u64 {
        let mut inner = self.inner.lock();
        let flight = inner.flights.iter_mut().find(|flight| flight.placed.number == number);
        let flight = flight.expect("invariant: an object is dropped when it is acknowledged");
        flight.progress = progress;
        flight.placed.bytes
    }

    /// Drops the objects that exist and before which none is missing; returns the last record that
    /// is durable by that.
    fn pop_made(&self) -> Option<u64> {
        let mut inner = self.inner.lock();
        if device::mutated("objects behind a hole are acknowledged") {
            let made = |flight: &&Flight| matches!(flight.progress, Progress::Made(_));
            return inner.flights.iter().filter(made).map(|flight| flight.placed.last).max();
        }
        let mut durable = None;
        while let Some(&Flight { placed, progress: Progress::Made(sent), .. }) =
            inner.flights.front()
        {
            inner.flights.pop_front();
            inner.live.push_back(placed);
            // A seal has the first absent number. So when this one was created there was none.
            inner.proof = inner.proof.max(Some(sent));
            durable = Some(placed.last);
        }
        durable
    }

    /// Sends one request to create an object, and reads back what it did if the answer does not
    /// show it.
    fn attempt(&self, number: u64, now: &dyn Fn() -> Duration) -> device::Result<Outcome> {
        let started = now();
        let (bytes, sent) = {
            let mut inner = self.inner.lock();
            let flight = inner.flights.iter_mut().find(|flight| flight.placed.number == number);
            let flight = flight.expect("invariant: an object is dropped when it is acknowledged");
            (Arc::clone(&flight.bytes), *flight.sent.get_or_insert(started))
        };
        let name = object_name(self.opening.epoch, number);
        let error = match self.blobs.create(&name, &bytes) {
            // A request before this one may have made it, and this one been repeated.
            Ok(true) => return Ok(Outcome::Own(sent)),
            Ok(false) if device::mutated("a taken name counts as made") => {
                return Ok(Outcome::Own(sent));
            }
            Err(_) if device::mutated("a lost answer counts as made") => {
                return Ok(Outcome::Own(sent));
            }
            Ok(false) => None,
            Err(error) => Some(error),
        };
        match (self.inspect(&name, number, &bytes, sent), error) {
            (Ok(Some(outcome)), _) => Ok(outcome),
            // The first error is the cause.
            (_, Some(error)) | (Err(error), None) => Err(error),
            (Ok(None), None) => {
                let gone = "the store reports that it exists, but it does not";
                Err(device::Error::new("create", &name, std::io::Error::other(gone)))
            }
        }
    }

    /// Whose the object of a name is; `None` if there is none.
    fn inspect(
        &self,
        name: &str,
        number: u64,
        bytes: &[u8],
        sent: Duration,
    ) -> device::Result<Option<Outcome>> {
        let Some(found) = self.bytes_of(name)? else { return Ok(None) };
        if found == bytes {
            return Ok(Some(Outcome::Own(sent)));
        }
        Ok(Some(Outcome::Replaced(self.whose(name, number, &found))))
    }

    /// Describes an object of another opening under one of this opening's numbers.
    pub(super) fn whose(&self, name: &str, number: u64, found: &[u8]) -> String {
        match decode(found, self.volume, (self.opening.epoch, number)) {
            Ok((object, _)) => match object.kind {
                Kind::Seal { successor } => {
                    format!("opening {successor:x} of the volume ended this one's log ({name})")
                }
                Kind::Records { .. } => format!("{name} has records of another opening"),
            },
            Err(error) => format!("{name} is not this process's: {error}"),
        }
    }
}
