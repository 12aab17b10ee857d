//! What must hold in every state, and states that must exist, so that the model is not empty.

use stateright::Property;

use super::state::{Owner, Phase, Read, State};
use super::steps::{Delivery, Step};
use super::{LogModel, Records};

/// Whatever was acknowledged is found by the next daemon's recovery.
pub const LOST: &str = "no acknowledged write is lost";
/// The owner whose manifest is newest knows every acknowledged write. So nothing that a replaced
/// owner acknowledges is news to its successor.
pub const ZOMBIE: &str = "no replaced owner acknowledges a write that its successor lacks";
/// A claim that counts is the only one with its number.
pub const ONE_OPENING: &str = "an epoch belongs to one opening";
/// From every state, one more opening that nobody disturbs serves, with every acknowledged write.
pub const SERVES: &str = "an undisturbed opening serves";
/// A read returns all that was acknowledged before the client sent it.
pub const STALE: &str = "no read is stale";
/// Grants of two owners never overlap, in true time.
pub const ONE_READER: &str = "at most one owner may answer reads";

impl LogModel {
    pub(super) fn all_properties(&self) -> Vec<Property<LogModel>> {
        let mut properties = vec![
            Property::<LogModel>::always(LOST, |model, state| {
                let recovered = state.store.recovered(model.broken);
                recovered.is_some_and(|found| found.contains(state.acknowledged))
            }),
            Property::<LogModel>::always(ZOMBIE, |_, state| successor_knows(state)),
            Property::<LogModel>::always(ONE_OPENING, |_, state| {
                let epochs = state.owners.iter().filter_map(|owner| owner.epoch);
                let mut epochs: Vec<u8> = epochs.collect();
                epochs.sort_unstable();
                epochs.windows(2).all(|pair| pair[0] != pair[1])
            }),
            Property::<LogModel>::always(SERVES, |model, state| {
                let found = model.undisturbed(state);
                found.is_some_and(|found| found.contains(state.acknowledged))
            }),
            Property::<LogModel>::always(ONE_READER, |_, state| {
                let granted = |owner: &&Owner| match &owner.phase {
                    Phase::Serving(serving) => serving.grant > 0,
                    _ => false,
                };
                state.owners.iter().filter(granted).count() <= 1
            }),
            Property::<LogModel>::always(STALE, |_, state| !state.stale_read),
            Property::<LogModel>::sometimes("all owners acknowledge", |model, state| {
                state.acknowledged.openings() == usize::from(model.bounds.owners)
            }),
        ];
        if self.bounds.checkpoints > 0 {
            properties.push(Property::<LogModel>::sometimes("a claim is collected", |_, state| {
                let epochs = state.owners.iter().filter_map(|owner| owner.epoch);
                epochs.clone().any(|epoch| !state.store.manifests.contains_key(&epoch))
            }));
        }
        if self.bounds.reads > 0 {
            // Reads are sent to owners that lack a write (`steps`).
            properties.push(Property::<LogModel>::sometimes(
                "a replaced owner has a read to answer, and lacks a write",
                |_, state| matches!(state.read, Read::Sent { .. }),
            ));
        }
        properties
    }

    /// Runs one more opening to its end while nothing else happens, and returns what it knows when
    /// it serves.
    fn undisturbed(&self, state: &State) -> Option<Records> {
        let id = self.bounds.owners;
        let mut alone = State::new(id + 1, 0);
        alone.store = state.store.clone();
        self.take(&mut alone, Step::Claim(id))?;
        // At most one step for each object of a log, and a few beside.
        for _ in 0..4 * (4 + state.store.log.len()) {
            if let Some(put) = alone.network.first().cloned() {
                self.take(&mut alone, Step::Land(put, Delivery::Once))?;
            }
            let step = match &alone.owners[usize::from(id)].phase {
                Phase::Out | Phase::Ended => return None,
                Phase::Claiming { .. } => Step::ListClaim(id),
                Phase::Sealing { answer, .. } if (*answer)?.seal => Step::Replay(id),
                Phase::Sealing { .. } => Step::SealNext(id),
                Phase::Opening { .. } => Step::ListOpening(id),
                Phase::Serving(serving) => return Some(serving.records),
            };
            self.take(&mut alone, step)?;
        }
        None
    }
}

/// Whether the owner whose manifest is newest knows all that was acknowledged.
fn successor_knows(state: &State) -> bool {
    let (_, newest) = state.store.newest();
    let owner = state.owners.get(usize::from(newest.opening));
    match owner.map(|owner| &owner.phase) {
        Some(Phase::Serving(serving)) if serving.manifest.epoch == newest.epoch => {
            serving.records.contains(state.acknowledged)
        }
        _ => true,
    }
}
