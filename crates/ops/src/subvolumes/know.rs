//! When the ledger learns what it keeps in memory of all subvolumes. The first caller that needs it
//! after opening reads the record of every subvolume (`learn`). It does that in parts and without
//! the ledger's lock, so that nobody waits for it.
//!
//! Meanwhile the ledger notes each subvolume whose record changes. Those are read again, until few
//! are left; the last few with the ledger locked. A record that was not noted since the first part
//! was read is the same in every part, so that the result is one state.
//!
//! Where something cannot be read, nothing is learned: the caller then reads with the ledger
//! locked, and gets the error.

use vfs::FsResult;
use volume::Core;

use super::learn::Learned;
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
        self.lock().note_changes(true);
        if let Err(error) = self.learn_noting(fs) {
            self.lock().note_changes(false);
            tracing::debug!(%error, "what is mounted where is not known yet");
        }
    }

    fn learn_noting(&self, fs: &Core) -> FsResult<()> {
        let mut learned = Learned::read(fs)?;
        for round in 0..=ROUNDS {
            let mut ledger = self.lock();
            let changed = ledger.take_changed();
            if changed.len() <= FEW || round == ROUNDS {
                learned.read_again(fs, &changed)?;
                ledger.know(learned);
                ledger.note_changes(false);
                self.set_known(&ledger);
                break;
            }
            drop(ledger);
            learned.read_again(fs, &changed)?;
        }
        Ok(())
    }
}
