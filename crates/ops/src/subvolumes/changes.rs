//! When what is mounted or inherited in a subvolume has changed: the ledger's memory of that. A
//! policy keeps what it found in a subvolume until then. A thread that learns what is mounted where
//! (`know`) reads those again whose records changed meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use super::mounts::Mounts;

/// Changes since the volume was opened.
#[derive(Default)]
pub(super) struct Changes {
    /// How many there were.
    count: u64,
    /// The last one in each subvolume, at any depth.
    inside: BTreeMap<u64, u64>,
    /// The last one before it was known what is mounted where: it may be in any of them.
    everywhere: u64,
    /// The subvolumes whose records changed while a thread learns where they are mounted.
    noted: Option<BTreeSet<u64>>,
}

impl Changes {
    /// A subvolume is mounted elsewhere, or inherits other ones. Called before and after that, so
    /// that it is noted for what it was mounted in, too.
    pub(super) fn note(&mut self, subvol: u64, mounts: Option<&Mounts>) {
        self.count += 1;
        if let Some(noted) = &mut self.noted {
            noted.insert(subvol);
        }
        let Some(mounts) = mounts else {
            self.everywhere = self.count;
            return;
        };
        let mut at = Some(subvol);
        // Damaged records may form a circle.
        for _ in 0..=mounts.places.len() {
            let Some(id) = at else { break };
            self.inside.insert(id, self.count);
            at = mounts.places.get(&id).map(|(above, ..)| *above);
        }
    }

    /// A subvolume is nowhere any more.
    pub(super) fn forget(&mut self, subvol: u64) {
        self.inside.remove(&subvol);
    }

    /// The last change in a subvolume: a number that grows with each change in the volume.
    pub(super) fn inside(&self, subvol: u64) -> u64 {
        self.inside.get(&subvol).map_or(self.everywhere, |last| self.everywhere.max(*last))
    }

    /// Whether changed subvolumes are noted from now on.
    pub(super) fn note_records(&mut self, is_noted: bool) {
        self.noted = is_noted.then(BTreeSet::new);
    }

    /// The record of a subvolume went.
    pub(super) fn note_record(&mut self, subvol: u64) {
        if let Some(noted) = &mut self.noted {
            noted.insert(subvol);
        }
    }

    /// Those whose records changed since the last call.
    pub(super) fn take_records(&mut self) -> BTreeSet<u64> {
        self.noted.as_mut().map(std::mem::take).unwrap_or_default()
    }
}
