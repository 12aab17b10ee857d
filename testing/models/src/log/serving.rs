//! What an owner does while it serves: log objects, checkpoints, collection, grants.

#![expect(clippy::unused_self, reason = "all steps have one signature")]

use super::state::{Checkpoint, Flight, GRANT_MAX, Look, Phase, Serving, State, Ticks};
use super::steps::Step;
use super::store::{LogObject, Manifest, Opening, Put};
use super::{Broken, LogModel};
use crate::sorted::SortedSet;

impl State {
    fn serving(&mut self, id: Opening) -> Option<&mut Serving> {
        match &mut self.owners.get_mut(usize::from(id))?.phase {
            Phase::Serving(serving) => Some(serving),
            _ => None,
        }
    }
}

impl LogModel {
    /// The steps of an owner that serves.
    pub(super) fn serving_steps(
        &self,
        state: &State,
        id: Opening,
        serving: &Serving,
        steps: &mut Vec<Step>,
    ) {
        if serving.wait > 0 {
            return;
        }
        let bounds = &self.bounds;
        if bounds.ends && serving.flights.is_empty() && serving.checkpoint.is_none() {
            steps.push(Step::EndInOrder(id));
        }
        let records = if id == 0 { bounds.records } else { bounds.later_records };
        if serving.begun < records && serving.flights.len() < bounds.flights {
            steps.push(Step::Write(id));
        }
        for (at, flight) in serving.flights.iter().enumerate() {
            let Some(answer) = flight.answer else { continue };
            let in_order = at == 0 || self.is(Broken::AcknowledgedBehindHole);
            if !answer.own {
                steps.push(Step::End(id));
            } else if in_order && !flight.acknowledged {
                steps.push(Step::Acknowledge(id, at as u8));
            } else if self.is(Broken::GrantBehindHole) {
                steps.push(Step::Renew(id, at as u8));
            }
        }
        match &serving.checkpoint {
            None if state.checkpoints < bounds.checkpoints => steps.push(Step::Checkpoint(id)),
            Some(Checkpoint { answer: Some(_), .. }) => steps.push(Step::ListCheckpoint(id)),
            _ => {}
        }
        if bounds.checkpoints > 0 || bounds.reads > 0 {
            steps.push(Step::CollectLog(id));
        }
        if bounds.checkpoints > 0 {
            steps.push(Step::CollectManifests(id));
            steps.push(Step::CollectRuns(id));
        }
        if bounds.reads > 0 {
            match &serving.look {
                None => steps.push(Step::Look(id)),
                Some(look) if look.left.is_empty() => steps.push(Step::Looked(id)),
                Some(look) => {
                    let land = |number: &u8| Step::LookLands(id, *number);
                    steps.extend(look.left.iter().map(land));
                }
            }
        }
    }

    /// Gives the grant up, and sends a seal to the owner's log. Nothing else happens then.
    pub(super) fn end_in_order(&self, state: &mut State, id: Opening) -> Option<()> {
        let serving = state.serving(id)?;
        let put = Put::Log(serving.manifest.log, serving.low, LogObject::Seal(id));
        if !state.network.insert(put) {
            return None;
        }
        if self.is(Broken::GrantAfterEnd) { Some(()) } else { state.end(id) }
    }

    /// Sends the next log object.
    pub(super) fn write(&self, state: &mut State, id: Opening) -> Option<()> {
        let serving = state.serving(id)?;
        let number = serving.low + serving.flights.len() as u8;
        let seq = serving.begun;
        serving.begun += 1;
        serving.flights.push(Flight { seq, age: 0, answer: None, acknowledged: false });
        let put = Put::Log(serving.manifest.log, number, LogObject::Data(id, seq));
        state.network.insert(put);
        Some(())
    }

    /// Acknowledges a record. The first flight leaves the queue, and renews the grant.
    pub(super) fn acknowledge(&self, state: &mut State, id: Opening, at: usize) -> Option<()> {
        let mut acknowledged = state.acknowledged;
        let serving = state.serving(id)?;
        let flight = serving.flights.get_mut(at)?;
        flight.acknowledged = true;
        serving.records = serving.records.with(id, flight.seq);
        acknowledged = acknowledged.with(id, flight.seq);
        while let Some(first) = serving.flights.first().filter(|first| first.acknowledged) {
            serving.grant = serving.grant.max(self.grant(first.age));
            serving.low += 1;
            serving.flights.remove(0);
        }
        state.acknowledged = acknowledged;
        Some(())
    }

    /// What is left of the grant from a request of some age; nothing where there are no reads, to
    /// which it would matter.
    fn grant(&self, age: Ticks) -> Ticks {
        let age = if self.is(Broken::GrantFromAnswer) { 0 } else { age };
        if self.bounds.reads == 0 { 0 } else { GRANT_MAX.saturating_sub(age) }
    }

    /// A broken variant: a log object behind a hole renews the grant.
    pub(super) fn renew(&self, state: &mut State, id: Opening, at: usize) -> Option<()> {
        let serving = state.serving(id)?;
        let age = serving.flights.get(at)?.age;
        serving.grant = serving.grant.max(self.grant(age));
        Some(())
    }

    /// Writes a run of all durable records, and sends a manifest that names this run alone.
    pub(super) fn checkpoint(&self, state: &mut State, id: Opening) -> Option<()> {
        state.checkpoints += 1;
        let serving = state.serving(id)?;
        let run = self.run_name(serving.number + 1, id);
        let manifest =
            Manifest { trim: serving.low, runs: SortedSet::of(run), ..serving.manifest.clone() };
        let records = serving.records;
        let put = Put::Manifest(serving.number + 1, manifest.clone());
        serving.checkpoint = Some(Checkpoint { manifest, answer: None });
        state.store.runs.get_or_insert_with(run, || records);
        state.network.insert(put);
        Some(())
    }

    /// The checkpoint counts if it was the first under its number, and a LIST shows it newest.
    /// Otherwise the owner was replaced.
    pub(super) fn list_checkpoint(&self, state: &mut State, id: Opening) -> Option<()> {
        let newest = state.store.newest().0;
        let serving = state.serving(id)?;
        let Checkpoint { manifest, answer } = serving.checkpoint.take()?;
        let listed = newest == serving.number + 1 || self.is(Broken::NoListAfterCheckpoint);
        if !(answer?.own && listed) {
            return state.end(id);
        }
        serving.number += 1;
        for run in serving.manifest.runs.iter().filter(|run| !manifest.runs.contains(run)) {
            serving.free.insert(*run);
        }
        serving.manifest = manifest;
        Some(())
    }

    /// Deletes records below the manifest's first, and those of earlier epochs, but no seal.
    pub(super) fn collect_log(&self, state: &mut State, id: Opening) -> Option<()> {
        let Manifest { log, trim, .. } = state.serving(id)?.manifest;
        let seals = self.is(Broken::SealsCollected) || self.is(Broken::OneLogForAllEpochs);
        let before = state.store.log.len();
        state.store.log.retain(|(epoch, number), object| {
            let needed = *epoch > log || *epoch == log && *number >= trim;
            needed || !seals && matches!(object, LogObject::Seal(_))
        });
        (state.store.log.len() < before).then_some(())
    }

    /// Deletes manifests before the owner's.
    pub(super) fn collect_manifests(&self, state: &mut State, id: Opening) -> Option<()> {
        let first = state.serving(id)?.number;
        let before = state.store.manifests.len();
        let newest = state.store.newest().0;
        state.store.manifests.retain(|number, _| *number >= first || *number == newest);
        (state.store.manifests.len() < before).then_some(())
    }

    /// Deletes runs that the owner's manifest no longer names.
    pub(super) fn collect_runs(&self, state: &mut State, id: Opening) -> Option<()> {
        let free = std::mem::take(&mut state.serving(id)?.free);
        for run in free.iter() {
            state.store.runs.remove(run);
        }
        (!free.is_empty()).then_some(())
    }

    /// Begins to ask for each number that may have a seal: those in flight that are not known to
    /// exist, and the next. If none has, the log is not sealed.
    pub(super) fn look(&self, state: &mut State, id: Opening) -> Option<()> {
        let serving = state.serving(id)?;
        let next = serving.low + serving.flights.len() as u8;
        let left = if self.is(Broken::LookBeyondFlights) {
            vec![next]
        } else if self.is(Broken::LookFirstAlone) {
            vec![serving.low]
        } else {
            let flights = (serving.low..).zip(&serving.flights);
            let unknown = flights.filter(|(_, flight)| !flight.answer.is_some_and(|it| it.own));
            unknown.map(|(number, _)| number).chain([next]).collect()
        };
        serving.look = Some(Look { left, age: 0, refused: false });
        Some(())
    }

    /// The store answers what it has under one of the numbers: the requests are sent together, and
    /// land in any order.
    pub(super) fn look_lands(&self, state: &mut State, id: Opening, number: u8) -> Option<()> {
        let serving = state.serving(id)?;
        serving.look.as_mut()?.left.retain(|left| *left != number);
        let log = serving.manifest.log;
        let refused = match state.store.log.get(&(log, number)) {
            None => false,
            Some(LogObject::Seal(_)) => true,
            Some(LogObject::Data(..)) => self.is(Broken::LookFirstAlone),
        };
        state.serving(id)?.look.as_mut()?.refused |= refused;
        Some(())
    }

    /// The owner has the answers of the look.
    pub(super) fn looked(&self, state: &mut State, id: Opening) -> Option<()> {
        let serving = state.serving(id)?;
        let Look { age, refused, .. } = serving.look.take()?;
        if !refused {
            serving.grant = serving.grant.max(self.grant(age));
        }
        Some(())
    }
}
