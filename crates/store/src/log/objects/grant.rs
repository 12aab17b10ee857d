//! Grants: when answers may be given from memory.
//!
//! A read from memory is right only while no other opening serves the store. A process cannot know
//! that of this moment, only of one that has passed. That is when it sent a request that succeeded
//! only because there was no seal. From that moment it may answer for the length of a grant. The
//! next opening seals the log, and waits for that length and for a drain, for answers on their way
//! ([`Log::serve_from`]). So an answer within a grant is older than any change of the next opening.
//! An owner that ends in order gives its grant up and seals its log itself (`end`): then the next
//! opening waits for the drain alone. This needs clocks that run at the same rate, and nothing
//! else.
//!
//! A proof is an acknowledged object, counted from when its first request was sent. Or it is a look
//! at every number that may have a seal, counted from when the first of these requests was sent. A
//! seal has the first absent number. So it is one of those of the objects in flight, or the next.
//! Seals are never deleted. The requests are sent at the same time, and each reads a head alone. So
//! a look takes as long as one request, however many objects are in flight.
//!
//! One number alone proves nothing while objects are in flight. An object behind a missing one may
//! be behind the seal. And a missing object may be one that was created, that the next opening
//! replayed from before its seal, and that it deleted.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use format::log_object::{HEAD_BYTES, Kind};

use super::super::append::Log;
use super::{ObjectLog, Progress, decode, object_name};
use crate::{Error, Result};

/// Permission to answer reads from memory. Ask again when the answer is ready to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    until: Duration,
}

impl Grant {
    /// Whether an answer may be sent now.
    pub fn holds(&self, clock: &dyn Clock) -> bool {
        clock.monotonic() < self.until
    }

    /// The monotonic time at which it ends.
    pub fn until(&self) -> Duration {
        self.until
    }
}

impl Log {
    /// A grant that holds now, or the error that this process was replaced. Costs a request if the
    /// last proof is older than a grant. `None`: the log is on the volume's own device, where no
    /// other process can have the volume open.
    pub fn grant(&self) -> Result<Option<Grant>> {
        let Some(objects) = &self.objects else { return Ok(None) };
        self.check_written()?;
        objects.refuse_ended()?;
        let grant = Grant { until: objects.granted_until() };
        if grant.holds(&*self.env.clock) {
            return Ok(Some(grant));
        }
        self.renew_grant().map(Some)
    }

    /// Proves with requests that this process still owns the store. A caller that wants grants
    /// without gaps calls this before the last one ends.
    pub fn renew_grant(&self) -> Result<Grant> {
        let objects = self.objects.as_ref().expect("the caller has a grant of a log in objects");
        self.check_written()?;
        objects.refuse_ended()?;
        if !objects.inner.lock().announced {
            let why = "the manifest of this opening does not exist";
            return Err(Error::ReadOnly(Arc::from(why)));
        }
        // What is sealed by now has a number among those that are not acknowledged now.
        let sent = self.env.clock.monotonic();
        match objects.find_seal(&objects.unproved()) {
            Ok(None) => {}
            Ok(Some(why)) => return Err(self.replaced(&why)),
            Err(error) => {
                // An object may have been acknowledged meanwhile, which is as good a proof.
                let grant = Grant { until: objects.granted_until() };
                return if grant.until >= sent + objects.settings.grant {
                    Ok(grant)
                } else {
                    Err(error)
                };
            }
        }
        let mut inner = objects.inner.lock();
        if !inner.ended {
            inner.proof = inner.proof.max(Some(sent));
        }
        drop(inner);
        objects.refuse_ended()?;
        Ok(Grant { until: objects.granted_until() })
    }

    /// Proves with a request that no other process has taken the store over, if one could.
    pub fn prove_not_replaced(&self) -> Result<()> {
        if self.objects.is_none() { Ok(()) } else { self.renew_grant().map(drop) }
    }

    /// The monotonic time from which this opening may acknowledge changes to other processes. Until
    /// then an earlier one may have a grant, and its answers would be out of date. Zero for a log
    /// on the volume's own device.
    pub fn serve_from(&self) -> Duration {
        self.objects.as_ref().map_or(Duration::ZERO, |objects| objects.serve_from)
    }
}

impl ObjectLog {
    /// Fails after the end of the log in order: the next opening does not wait for a grant.
    fn refuse_ended(&self) -> Result<()> {
        if self.inner.lock().ended {
            return Err(Error::ReadOnly(Arc::from("this process has closed the volume")));
        }
        Ok(())
    }

    fn granted_until(&self) -> Duration {
        let proof = self.inner.lock().proof;
        proof.map_or(Duration::ZERO, |sent| sent + self.settings.grant)
    }

    /// The numbers that may have a seal: those whose objects are not known to exist, and the next.
    fn unproved(&self) -> Vec<u64> {
        let inner = self.inner.lock();
        let unknown =
            inner.flights.iter().filter(|flight| !matches!(flight.progress, Progress::Made(_)));
        unknown.map(|flight| flight.placed.number).chain([inner.next]).collect()
    }

    /// Why this opening was replaced, if one of these numbers has an object that is not its own.
    /// Asks for all of them at the same time.
    fn find_seal(&self, numbers: &[u64]) -> Result<Option<String>> {
        let Some((last, others)) = numbers.split_last() else { return Ok(None) };
        let answers: Vec<_> = device::scope(|scope| {
            let ask = |&number: &u64| {
                let asked =
                    device::spawn_in(scope, "log-look", move || self.ended_by_another(number));
                (number, asked)
            };
            let asked: Vec<_> = others.iter().map(ask).collect();
            let own = self.ended_by_another(*last);
            let others = asked.into_iter().map(|(number, asked)| match asked {
                Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
                // No thread can be started.
                Err(_) => self.ended_by_another(number),
            });
            others.chain([own]).collect()
        });
        // A seal is the answer, whatever became of the other requests.
        let mut failed = None;
        for answer in answers {
            match answer {
                Ok(None) => {}
                Ok(sealed) => return Ok(sealed),
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(None), Err)
    }

    /// Why this opening was replaced, if a number has an object that is not its own.
    fn ended_by_another(&self, number: u64) -> Result<Option<String>> {
        let name = object_name(self.opening.epoch, number);
        let mut head = [0; HEAD_BYTES];
        match self.blobs.read_at(&name, &mut head, 0) {
            Ok(HEAD_BYTES) if self.is_own(number, &head) => return Ok(None),
            Ok(_) => {}
            Err(error) if error.is_not_found() => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // Rare: what is there is reported from all its bytes.
        let Some(bytes) = self.bytes_of(&name)? else { return Ok(None) };
        let is_own =
            decode(&bytes, self.volume, (self.opening.epoch, number)).is_ok_and(|(object, _)| {
                object.opening == self.opening.id && matches!(object.kind, Kind::Records { .. })
            });
        Ok((!is_own).then(|| self.whose(&name, number, &bytes)))
    }

    /// Whether a number has this opening's records, if its object begins like this. A head contains
    /// the random id of the opening, and a checksum of the whole object.
    fn is_own(&self, number: u64, head: &[u8]) -> bool {
        let inner = self.inner.lock();
        match inner.flights.iter().find(|flight| flight.placed.number == number) {
            Some(flight) => flight.bytes.starts_with(head),
            // It was acknowledged meanwhile.
            None => number < inner.next,
        }
    }
}
