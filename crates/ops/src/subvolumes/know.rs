//! When the ledger learns what it keeps in memory of all subvolumes. The first caller that needs it
//! after opening reads the record of every subvolume (`learn`). It does that in parts and without
//! the ledger's lock, so that nobody waits for it.
//!
//! Meanwhile the ledger notes each subvolume whose record changes. Those are read again, until few
//! are left; the last few with the ledger locked. A record that was not noted since the first part
//! was read is the same in every part, so that the result is one state.
//!
//! Where a record cannot be read, nothing is learned, and the ledger keeps which one. Callers get
//! an error that names it, and read that record alone again, until it can be read.

use vfs::FsResult;
use volume::Core;

use super::learn::{Learned, Unreadable};
use super::ledger::Admin;

/// Most subvolumes that are read again with the ledger locked.
const FEW: usize = 16;
/// How often what changed meanwhile is read again without the lock.
const ROUNDS: usize = 16;

impl Admin {
    /// Learns what is mounted where, unless that is known. The ledger is not held.
    pub(super) fn learn(&self, fs: &Core) {
        if self.is_known() {
            return;
        }
        let _one_at_a_time = self.learning();
        if self.is_known() {
            return;
        }
        let mut unreadable = {
            let mut ledger = self.lock();
            ledger.changes().note_records(true);
            ledger.unreadable().clone()
        };
        if let Err(error) = self.learn_noting(fs, &mut unreadable) {
            let mut ledger = self.lock();
            ledger.changes().note_records(false);
            *ledger.unreadable() = unreadable;
            tracing::debug!(%error, "what is mounted where is not known yet");
        }
    }

    fn learn_noting(&self, fs: &Core, unreadable: &mut Option<Unreadable>) -> FsResult<()> {
        let mut learned = Learned::read_unless(fs, unreadable)?;
        for round in 0..=ROUNDS {
            let mut ledger = self.lock();
            let changed = ledger.changes().take_records();
            if changed.len() <= FEW || round == ROUNDS {
                learned.read_again(fs, &changed)?;
                ledger.know(learned);
                ledger.changes().note_records(false);
                self.set_known(&ledger);
                break;
            }
            drop(ledger);
            learned.read_again(fs, &changed)?;
        }
        Ok(())
    }
}
