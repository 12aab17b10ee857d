//! The end of a log in order: its owner seals it, with its own epoch as the successor's.
//!
//! The next opening then knows that no grant of this one is left, and waits for the drain alone.
//!
//! Invariants:
//! * The owner gives its grant up before it sends the seal, and gets no other.
//! * It has waited for the grants of openings before its own. An owner that ends earlier leaves the
//!   log without a seal, and the next opening waits as after a crash.
//! * All records are acknowledged, so the seal is at the first absent number.
//!
//! A seal that is not made, or arrives late, costs the next opening time and nothing else.

use format::log_object::{Kind, LogObject};

use super::super::append::Log;
use super::{ObjectLog, Opening, object_name};

impl Log {
    /// Seals a log in objects that is closed. The caller answers nothing from memory any more.
    pub fn end_in_order(&self) {
        let Some(objects) = &self.objects else { return };
        let is_early = self.env.clock.monotonic() < objects.serve_from
            && !device::mutated("ends in order within the grant of the one before");
        if is_early || self.check_written().is_err() {
            return;
        }
        let Some(number) = objects.give_up_grant(self.last().0) else { return };
        let Opening { epoch, id } = objects.opening;
        let kind = Kind::Seal { successor: epoch };
        let seal = LogObject { volume: objects.volume, opening: id, epoch, number, kind };
        let made = objects.blobs.create(&object_name(epoch, number), &seal.encode(&[]));
        if let Err(error) = made {
            tracing::info!(%error, "the next opening waits as after a crash");
        }
    }
}

impl ObjectLog {
    /// Ends all grants; returns the number of the seal if each record up to `last` is acknowledged.
    fn give_up_grant(&self, last: u64) -> Option<u64> {
        let mut inner = self.inner.lock();
        if !inner.announced || !inner.flights.is_empty() || inner.taken != last {
            return None;
        }
        (inner.ended, inner.proof) = (true, None);
        Some(inner.next)
    }
}
