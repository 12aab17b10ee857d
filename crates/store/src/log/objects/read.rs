//! Reading the log of this opening while it is written: for readers of changes, and to verify it.
//!
//! Objects are kept only for recovery. A reader of changes learns that the log does not reach back
//! far enough, and uses another way to find the changes.

use format::batch::Ops;
use format::log_object::Kind;

use super::recover::in_order;
use super::{ObjectLog, Placed, decode, object_name};
use crate::{Error, Lsn, Result};

impl ObjectLog {
    /// The acknowledged objects with records after a number.
    fn after(&self, lsn: Lsn) -> Vec<Placed> {
        let inner = self.inner.lock();
        inner.live.iter().filter(|placed| placed.last > lsn.0).copied().collect()
    }

    /// Approximate bytes of the records after a number; `None` when not all of them are present.
    pub(in super::super) fn bytes_behind(&self, lsn: Lsn) -> Option<u64> {
        let inner = self.inner.lock();
        let first = inner.live.front().map_or(inner.taken + 1, |placed| placed.first);
        let behind = inner.live.iter().filter(|placed| placed.last > lsn.0);
        (first <= lsn.0 + 1).then(|| behind.map(|placed| placed.bytes).sum())
    }

    /// Passes the payloads of durable records after `after` up to `up_to` to `take`, until it
    /// returns `false`. `false`: not all of them are there.
    pub(in super::super) fn read(
        &self,
        seed: u32,
        (after, up_to): (Lsn, Lsn),
        take: &mut dyn FnMut(&[u8]) -> bool,
    ) -> bool {
        let mut next = after.0 + 1;
        for placed in self.after(after) {
            if placed.first > next || next > up_to.0 {
                break;
            }
            let mut stopped = false;
            let read = self.visit(seed, &placed, &mut |lsn, payload| {
                if (next..=up_to.0).contains(&lsn) && !stopped {
                    stopped = !take(payload);
                    next = lsn + 1;
                }
                Ok(())
            });
            if stopped {
                return true;
            }
            if let Err(error) = read {
                tracing::debug!(%error, "cannot read a log object");
                return false;
            }
        }
        next > up_to.0
    }

    /// Reads the objects that recovery needs after a checkpoint's last record, and passes damage to
    /// `found`.
    pub(in super::super) fn verify(&self, seed: u32, from: Lsn, found: &mut dyn FnMut(Error)) {
        for placed in self.after(from) {
            let verified = self.visit(seed, &placed, &mut |_, payload| match Ops::new(payload)
                .find_map(|op| op.err())
            {
                Some(malformed) => Err(malformed.located("", 0).into()),
                None => Ok(()),
            });
            let is_needed =
                || self.inner.lock().live.iter().any(|live| live.number == placed.number);
            if let Err(error) = verified
                && is_needed()
            {
                found(error);
            }
        }
    }

    /// Passes the records of an object.
    fn visit(
        &self,
        seed: u32,
        placed: &Placed,
        visit: &mut dyn FnMut(u64, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let (epoch, number) = (self.opening.epoch, placed.number);
        let name = object_name(epoch, number);
        let Some(bytes) = self.bytes_of(&name)? else {
            return Err(Error::Missing { file: name, record: None });
        };
        let (object, _) = decode(&bytes, self.volume, (epoch, number))?;
        let (first, count) = (placed.first, placed.last + 1 - placed.first);
        if object.opening != self.opening.id || object.kind != (Kind::Records { first, count }) {
            return Err(format::Corruption {
                file: name,
                offset: 0,
                structure: "log object",
                expected: format!("{count} records from {first}, of this opening"),
                found: format!("{:?}", object.kind),
                unread: false,
            }
            .into());
        }
        for (at, record) in in_order(seed, &bytes, (first, count), &name)? {
            visit(record.header.lsn, record.payload)
                .map_err(|error| super::super::recover::located(error, &name, at))?;
        }
        Ok(())
    }
}
