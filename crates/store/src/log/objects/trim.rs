//! Deleting objects that no recovery needs.
//!
//! What is deleted was made superfluous by a manifest that a listing showed to be the newest. What
//! cannot be deleted costs space, and is tried again. Seals stay forever: a deleted name can be
//! created again, and by a request of a process that was replaced long ago.

use std::collections::BTreeMap;

use format::log_object::Kind;

use super::{DIRECTORY, ObjectLog, decode, object_name, parse_name, prefix};
use crate::Lsn;

/// Most objects that one call deletes.
const DELETED_AT_ONCE: usize = 1024;

impl ObjectLog {
    /// Objects whose records are all numbered `up_to` or less are not needed any more. Sends no
    /// request: the caller holds locks.
    pub(in super::super) fn trim(&self, up_to: Lsn) {
        let mut inner = self.inner.lock();
        let gone = inner.live.iter().take_while(|placed| placed.last <= up_to.0).count();
        let epoch = self.opening.epoch;
        let placed = inner.live.drain(..gone).map(|placed| object_name(epoch, placed.number));
        let names: Vec<String> = placed.collect();
        inner.doomed.extend(names);
    }

    /// Deletes some of what is not needed any more, and of what earlier openings left. The caller
    /// holds nothing that others wait for.
    pub(in super::super) fn delete_trimmed(&self) {
        if !self.inner.lock().announced {
            // Opening a store does not wait for deletions.
            return;
        }
        self.sweep();
        let names: Vec<String> = {
            let mut inner = self.inner.lock();
            let count = inner.doomed.len().min(DELETED_AT_ONCE);
            inner.doomed.drain(..count).collect()
        };
        if names.is_empty() {
            return;
        }
        if let Err(error) = self.blobs.delete_all(&names) {
            let count = names.len();
            tracing::warn!(%error, count, "cannot delete log objects that are not needed");
            // Those that were deleted are no error when they are deleted again.
            self.inner.lock().doomed.extend(names);
        }
    }

    /// Orders the deletion of an earlier epoch's objects, except its seals, by the next `trim`.
    pub(super) fn doom(&self, epoch: u64, numbers: &[u64], seals: &[u64]) {
        let names = numbers.iter().filter(|number| !seals.contains(number));
        self.inner.lock().doomed.extend(names.map(|&number| object_name(epoch, number)));
    }

    /// Searches once for objects of records that openings before the last one left. Such an opening
    /// ended before it deleted them, or its request was carried out late.
    fn sweep(&self) {
        if std::mem::replace(&mut self.inner.lock().swept, true) {
            return;
        }
        if let Err(error) = self.sweep_older() {
            tracing::warn!(%error, "cannot look for older log objects");
        }
    }

    fn sweep_older(&self) -> device::Result<()> {
        let mut older: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for name in self.blobs.list(&format!("{DIRECTORY}/"))? {
            let Some((epoch, number)) = parse_name(&name) else { continue };
            if epoch < self.opening.epoch {
                older.entry(epoch).or_default().push(number);
            }
        }
        for (epoch, numbers) in older {
            if numbers.len() < 2 {
                // Its seal.
                continue;
            }
            for number in numbers.into_iter().take(DELETED_AT_ONCE) {
                let name = object_name(epoch, number);
                let Some(bytes) = self.bytes_of(&name)? else { continue };
                // What cannot be read as an object of records stays.
                let object = decode(&bytes, self.volume, (epoch, number));
                if object.is_ok_and(|(object, _)| matches!(object.kind, Kind::Records { .. })) {
                    self.inner.lock().doomed.push_back(name);
                }
            }
        }
        Ok(())
    }

    /// The numbers of the objects of an epoch, ascending, whatever the order of the listing.
    pub(super) fn numbers_of(blobs: &dyn device::Blobs, epoch: u64) -> device::Result<Vec<u64>> {
        let names = blobs.list(&prefix(epoch))?;
        let parsed = names.iter().filter_map(|name| parse_name(name));
        let mut numbers: Vec<u64> = parsed.map(|(_, number)| number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}
