//! Counters: no number that is in use is handed out, and no epoch repeats.

use std::collections::BTreeMap;

use format::key::{self, Counter};
use volume::numbers::COUNT_MAX;
use volume::subvol::VOLUME;

use super::{Checker, Edit, Fix, Problem, ProblemKind};

impl Checker<'_, '_> {
    /// No number that is in use is handed out.
    pub(super) fn check_counters(&mut self) {
        if !self.table.lost.is_empty() {
            return;
        }
        let table = &self.table;
        let trees = table.subvolumes.values().map(|record| record.tree);
        let trees = trees.chain(table.bases.keys().copied());
        let greatest = [
            (Counter::NextSubvolume, table.subvolumes.keys().copied().max(), "subvolume"),
            (Counter::NextTree, trees.max(), "tree"),
            (Counter::NextDetached, table.detached.keys().copied().max(), "detached"),
        ];
        let mut wrong = Vec::new();
        for (counter, greatest, of) in greatest {
            let key = key::counter(counter);
            let known = table.counters.get(&key[1]).copied().unwrap_or(0);
            let possible = known..COUNT_MAX;
            if let Some(greatest) = greatest.filter(|greatest| possible.contains(greatest)) {
                wrong.push((key, (known, greatest.saturating_add(1)), of));
            }
        }
        for (key, (known, next), of) in wrong {
            let what = format!("the recorded next {of} number is {known}, but must be {next}");
            let edits = vec![Edit::Put(VOLUME, key.to_vec(), next.to_le_bytes().to_vec())];
            let fix = Fix::Edits("set the counter", edits);
            self.found(Problem::new(ProblemKind::Subvolume, what).repaired_by(fix));
        }
    }

    /// No two subvolumes have one slot: the kernel could not distinguish their inodes. Only damage
    /// causes this, and which of them is right is not known.
    pub(super) fn check_slots(&mut self) {
        let mut slots = BTreeMap::new();
        let numbers = self.table.subvolumes.keys();
        let twice: Vec<_> = numbers
            .filter_map(|id| Some((slots.insert(key::slot(*id), *id)?, *id)))
            .map(|(one, other)| format!("subvolumes {one} and {other} have one slot"))
            .collect();
        for what in twice {
            self.found(Problem::new(ProblemKind::Subvolume, what));
        }
    }

    /// Notes that an inode was met. Numbers of other homes are not handed out here.
    pub(super) fn met_ino(&mut self, ino: u64) {
        if key::home_of(ino) == key::home_of(self.fs.numbers.end()) {
            self.greatest_ino = self.greatest_ino.max(ino);
        }
    }

    /// No inode number that was met is handed out; a number that no inode can have is other damage.
    pub(super) fn check_next_ino(&mut self) {
        let key = key::counter(Counter::NextIno);
        let known = self.table.counters.get(&key[1]).copied().unwrap_or(0);
        let greatest = self.greatest_ino;
        if !self.table.lost.is_empty() || greatest < known || greatest >= self.fs.numbers.end() {
            return;
        }
        let next = greatest + 1;
        let what = format!("the recorded next inode number is {known}, but must be {next}");
        let edits = vec![Edit::Put(VOLUME, key.to_vec(), next.to_le_bytes().to_vec())];
        let fix = Fix::Edits("set the counter", edits);
        self.found(Problem::new(ProblemKind::Subvolume, what).repaired_by(fix));
    }
    /// The epoch is behind epochs that have ended, in which existing data was born. New data would
    /// be taken for shared, or shared data for private.
    pub(super) fn check_epoch(&mut self) {
        let key = key::counter(Counter::Epoch);
        let known = self.table.counters.get(&key[1]).copied().unwrap_or(0);
        let ended = self.table.subvolumes.values().map(|record| record.last_clone_epoch);
        // A number that the counter never reached is other damage.
        let ended = ended.filter(|ended| *ended < COUNT_MAX).max().unwrap_or(0);
        let least = self.contents.greatest_birth.max(ended + 1);
        if !self.table.lost.is_empty() || known >= least || least >= COUNT_MAX {
            return;
        }
        let what = format!("the recorded epoch is {known}, but must be at least {least}");
        let edits = vec![Edit::Put(VOLUME, key.to_vec(), least.to_le_bytes().to_vec())];
        let fix = Fix::Edits("set the counter", edits);
        self.found(Problem::new(ProblemKind::Subvolume, what).repaired_by(fix));
    }
}
