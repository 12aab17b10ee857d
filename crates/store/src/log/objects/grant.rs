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
//! A proof is an acknowledged object, counted from when its first request was sent. Or it is the
//! next number, requested and found absent, counted from when that was sent. An object behind a
//! missing one proves nothing: the seal may be between them.

use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use format::log_object::Kind;

use super::super::append::Log;
use super::{ObjectLog, decode, object_name};
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

    /// Proves with a request that this process still owns the store. A caller that wants grants
    /// without gaps calls this before the last one ends.
    pub fn renew_grant(&self) -> Result<Grant> {
        let objects = self.objects.as_ref().expect("the caller has a grant of a log in objects");
        self.check_written()?;
        objects.refuse_ended()?;
        if !objects.inner.lock().announced {
            let why = "the manifest of this opening does not exist";
            return Err(Error::ReadOnly(Arc::from(why)));
        }
        // Each turn passes an object that is being written, or one that was acknowledged since.
        loop {
            let number = objects.unproved();
            let sent = self.env.clock.monotonic();
            match objects.probe(number)? {
                // It was acknowledged and deleted meanwhile: this proves nothing for the next one.
                Probe::Absent if objects.unproved() != number => continue,
                Probe::Absent => {
                    let mut inner = objects.inner.lock();
                    if !inner.ended {
                        inner.proof = inner.proof.max(Some(sent));
                    }
                    drop(inner);
                    objects.refuse_ended()?;
                    return Ok(Grant { until: objects.granted_until() });
                }
                Probe::Other(why) => return Err(self.replaced(&why)),
                Probe::Own => {}
            }
            if objects.unproved() == number {
                // It exists and its writer has no answer yet.
                self.env.clock.sleep(objects.settings.pause.min(Duration::from_millis(1)));
            }
        }
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

/// What a number holds.
enum Probe {
    Absent,
    /// An object of this opening.
    Own,
    /// Another opening's: why this one was replaced.
    Other(String),
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

    /// The first number that is not acknowledged.
    fn unproved(&self) -> u64 {
        let inner = self.inner.lock();
        inner.flights.front().map_or(inner.next, |flight| flight.placed.number)
    }

    fn probe(&self, number: u64) -> Result<Probe> {
        let name = object_name(self.opening.epoch, number);
        let Some(bytes) = self.bytes_of(&name)? else { return Ok(Probe::Absent) };
        let is_own =
            decode(&bytes, self.volume, (self.opening.epoch, number)).is_ok_and(|(object, _)| {
                object.opening == self.opening.id && matches!(object.kind, Kind::Records { .. })
            });
        Ok(if is_own { Probe::Own } else { Probe::Other(self.whose(&name, number, &bytes)) })
    }
}
