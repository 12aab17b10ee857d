//! The order of an opening: claim, LIST, seal, replay, opening manifest, LIST.

#![expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "all steps have one signature")]

use super::state::{DRAIN, GRANT, Phase, Serving, State};
use super::store::{FORMAT, LogObject, Manifest, Opening, Put};
use super::{Broken, LogModel, Records};
use crate::sorted::SortedSet;

impl LogModel {
    /// Reads the newest manifest, and sends the same state under the next number.
    pub(super) fn claim(&self, state: &mut State, id: Opening) -> Option<()> {
        let (base, newest) = state.store.newest();
        let claim = Manifest { epoch: base + 1, opening: id, ..newest.clone() };
        state.network.insert(Put::Manifest(base + 1, claim.clone()));
        state.owners[usize::from(id)].phase = Phase::Claiming { base, claim, answer: None };
        Some(())
    }

    /// The claim counts if it was the first under its number, and a LIST shows it newest.
    pub(super) fn list_claim(&self, state: &mut State, id: Opening) -> Option<()> {
        let newest = state.store.newest().0;
        let owner = state.owners.get_mut(usize::from(id))?;
        let Phase::Claiming { claim, answer, .. } = &owner.phase else { return None };
        let listed = newest == claim.epoch || self.is(Broken::NoListAfterClaim);
        if !(answer.as_ref()?.own && listed) {
            return state.end(id);
        }
        owner.epoch = Some(claim.epoch);
        let (claim, at) = (claim.clone(), claim.trim);
        self.send_seal(state, id, claim, at)
    }

    fn send_seal(&self, state: &mut State, id: Opening, claim: Manifest, at: u8) -> Option<()> {
        state.network.insert(Put::Log(claim.log, at, LogObject::Seal(id)));
        state.owners[usize::from(id)].phase = Phase::Sealing { claim, at, answer: None };
        Some(())
    }

    /// A record is where the seal was to be.
    pub(super) fn seal_next(&self, state: &mut State, id: Opening) -> Option<()> {
        let Phase::Sealing { claim, at, .. } = state.owners[usize::from(id)].phase.clone() else {
            return None;
        };
        self.send_seal(state, id, claim, at + 1)
    }

    /// Reads the runs and the log up to the seal, writes what it replayed as a run, and sends the
    /// opening manifest. Ends if something is missing: then another owner has collected it.
    pub(super) fn replay(&self, state: &mut State, id: Opening) -> Option<()> {
        let owner = &state.owners[usize::from(id)];
        let Phase::Sealing { claim, at, answer } = owner.phase.clone() else { return None };
        if self.is(Broken::OneLogForAllEpochs) && !answer?.own {
            // The seal of an earlier epoch: the log continues behind it.
            return self.send_seal(state, id, claim, at + 1);
        }
        let Some(replayed) = replayed(state, &claim, at) else { return state.end(id) };
        let Some(runs) = state.store.read_runs(&claim) else { return state.end(id) };
        let number = claim.epoch + 1;
        let run = self.run_name(number, id);
        state.store.runs.get_or_insert_with(run, || replayed);
        let mut manifest = claim.clone();
        manifest.log = self.log_of(claim.epoch);
        manifest.trim = if self.is(Broken::OneLogForAllEpochs) { at + 1 } else { 0 };
        manifest.runs.insert(run);
        state.network.insert(Put::Manifest(number, manifest.clone()));
        // Nobody served the log of the format.
        let drain = if self.is(Broken::NoDrain) { 0 } else { DRAIN };
        let at_once = self.is(Broken::NoWait) || claim.log == 0 || self.bounds.reads == 0;
        // The drain is for answers on their way, which take no time in this model.
        let wait = if at_once || ended_in_order(state, &claim, at) { 0 } else { GRANT + drain };
        let records = replayed.union(runs);
        state.owners[usize::from(id)].phase =
            Phase::Opening { manifest, records, wait, answer: None };
        Some(())
    }

    /// The name of a new run. Without a random id, two openings choose the same.
    pub(super) fn run_name(&self, number: u8, id: Opening) -> (u8, Opening) {
        (number, if self.is(Broken::EqualBytesTakenAsWon) { FORMAT } else { id })
    }

    /// The opening counts if it was the first under its number, and a LIST shows it newest.
    pub(super) fn list_opening(&self, state: &mut State, id: Opening) -> Option<()> {
        let newest = state.store.newest().0;
        let owner = &mut state.owners[usize::from(id)];
        let Phase::Opening { manifest, records, wait, answer } = owner.phase.clone() else {
            return None;
        };
        let number = manifest.epoch + 1;
        let listed = newest == number || self.is(Broken::NoListAfterOpening);
        owner.phase = if answer?.own && listed {
            Phase::Serving(Serving {
                number,
                low: manifest.trim,
                manifest,
                free: SortedSet::default(),
                records,
                wait,
                flights: Vec::new(),
                begun: 0,
                checkpoint: None,
                grant: 0,
                look: None,
            })
        } else {
            Phase::Ended
        };
        Some(())
    }
}

/// Whether the owner of a log has sealed it itself.
fn ended_in_order(state: &State, claim: &Manifest, seal: u8) -> bool {
    let Some(LogObject::Seal(by)) = state.store.log.get(&(claim.log, seal)) else { return false };
    let by = state.owners.get(usize::from(*by));
    by.is_some_and(|owner| owner.epoch == Some(claim.log))
}

/// The records of the log before a seal; `None` if one is missing.
fn replayed(state: &State, claim: &Manifest, seal: u8) -> Option<Records> {
    (claim.trim..seal).try_fold(Records::default(), |records, number| {
        match state.store.log.get(&(claim.log, number))? {
            LogObject::Data(opening, seq) => Some(records.with(*opening, *seq)),
            LogObject::Seal(_) => Some(records),
        }
    })
}
