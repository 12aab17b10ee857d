//! What each participant may do next, and what that does.
//!
//! A pause of any length needs no step: every participant may wait while all others go ahead. A
//! crash is a pause without an end.

#![expect(clippy::unused_self, reason = "all steps have one signature")]

use stateright::{Model, Property};

use super::state::{Phase, Read, State};
use super::store::{Opening, Put};
use super::{Broken, LogModel};

/// What happens to a PUT besides its landing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Delivery {
    /// Its answer arrives, and it does not land again.
    Once,
    /// Its answer arrives, and a duplicate is still in the network.
    Duplicated,
    /// Its answer is lost. The sender sends it again.
    AnswerLost,
}

/// A step.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Step {
    /// A PUT lands at the store.
    Land(Put, Delivery),
    /// An owner reads the newest manifest, and sends its claim.
    Claim(Opening),
    /// It has the answer, lists the manifests, and sends a seal.
    ListClaim(Opening),
    /// It found a record where it wanted to seal, and tries the next number.
    SealNext(Opening),
    /// It has sealed: reads runs and log, and sends the opening manifest.
    Replay(Opening),
    /// It has the answer, lists the manifests, and serves.
    ListOpening(Opening),
    /// It gives its grant up, and sends a seal to its own log.
    EndInOrder(Opening),
    /// It sends a log object.
    Write(Opening),
    /// It acknowledges the log object of a flight.
    Acknowledge(Opening, u8),
    /// It renews the grant by a flight that is not the first (a broken variant).
    Renew(Opening, u8),
    /// It finds that a PUT was not the first under its name.
    End(Opening),
    /// It writes a run of all durable records, and sends the manifest that names it.
    Checkpoint(Opening),
    /// It has the answer, and lists the manifests.
    ListCheckpoint(Opening),
    /// It deletes log objects that its manifest does not need.
    CollectLog(Opening),
    /// It deletes older manifests.
    CollectManifests(Opening),
    /// It deletes runs that its manifest does not name, and the one before did.
    CollectRuns(Opening),
    /// It begins to ask for the numbers that may have a seal.
    Look(Opening),
    /// The store answers for one of them.
    LookLands(Opening, u8),
    /// The owner has all answers.
    Looked(Opening),
    /// A client sends a read to an owner.
    Ask(Opening),
    /// The read arrives.
    Arrive,
    /// The owner evaluates it.
    Evaluate,
    /// The owner answers, or refuses.
    Answer,
    /// Time passes.
    Tick,
}

impl Model for LogModel {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::new(self.bounds.owners, self.bounds.reads)]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for put in state.network.iter() {
            steps.push(Step::Land(put.clone(), Delivery::Once));
            if state.repeats < self.bounds.repeats {
                steps.push(Step::Land(put.clone(), Delivery::Duplicated));
                steps.push(Step::Land(put.clone(), Delivery::AnswerLost));
            }
        }
        // Openings are alike, so they begin in order.
        let first_out = state.owners.iter().position(|owner| owner.phase == Phase::Out);
        for (me, owner) in state.owners.iter().enumerate() {
            let id = me as Opening;
            match &owner.phase {
                Phase::Out if first_out == Some(me) => steps.push(Step::Claim(id)),
                Phase::Out | Phase::Ended => {}
                Phase::Claiming { answer, .. } => {
                    steps.extend(answer.map(|_| Step::ListClaim(id)));
                }
                Phase::Sealing { answer, .. } => {
                    steps.extend(answer.map(|answer| {
                        if answer.seal { Step::Replay(id) } else { Step::SealNext(id) }
                    }));
                }
                Phase::Opening { answer, .. } => {
                    steps.extend(answer.map(|_| Step::ListOpening(id)));
                }
                Phase::Serving(serving) => self.serving_steps(state, id, serving, steps),
            }
        }
        self.read_steps(state, steps);
        if self.bounds.reads > 0 {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        self.take(&mut state, step)?;
        (state != *last).then_some(state)
    }

    fn properties(&self) -> Vec<Property<LogModel>> {
        self.all_properties()
    }
}

impl LogModel {
    /// Takes a step; `None` if it changes nothing.
    pub(super) fn take(&self, state: &mut State, step: Step) -> Option<()> {
        match step {
            Step::Land(put, delivery) => {
                let landed = state.store.land(&put, self.broken);
                if delivery == Delivery::Once {
                    state.network.remove(&put);
                } else {
                    state.repeats += 1;
                }
                if delivery != Delivery::AnswerLost {
                    state.deliver(&put, landed);
                }
                Some(())
            }
            Step::Claim(id) => self.claim(state, id),
            Step::ListClaim(id) => self.list_claim(state, id),
            Step::SealNext(id) => self.seal_next(state, id),
            Step::Replay(id) => self.replay(state, id),
            Step::ListOpening(id) => self.list_opening(state, id),
            Step::EndInOrder(id) => self.end_in_order(state, id),
            Step::Write(id) => self.write(state, id),
            Step::Acknowledge(id, at) => self.acknowledge(state, id, usize::from(at)),
            Step::Renew(id, at) => self.renew(state, id, usize::from(at)),
            Step::End(id) => state.end(id),
            Step::Checkpoint(id) => self.checkpoint(state, id),
            Step::ListCheckpoint(id) => self.list_checkpoint(state, id),
            Step::CollectLog(id) => self.collect_log(state, id),
            Step::CollectManifests(id) => self.collect_manifests(state, id),
            Step::CollectRuns(id) => self.collect_runs(state, id),
            Step::Look(id) => self.look(state, id),
            Step::LookLands(id, number) => self.look_lands(state, id, number),
            Step::Looked(id) => self.looked(state, id),
            Step::Ask(id) => state.ask(id),
            Step::Arrive => self.arrive(state),
            Step::Evaluate => self.evaluate(state),
            Step::Answer => self.answer(state),
            Step::Tick => {
                state.tick();
                Some(())
            }
        }
    }

    fn read_steps(&self, state: &State, steps: &mut Vec<Step>) {
        match state.read {
            Read::Left(0) => {}
            Read::Left(_) => {
                // An owner that knows all that was acknowledged answers with all of it: only the
                // others can be wrong.
                let may_be_wrong = state.owners.iter().map(|owner| match &owner.phase {
                    Phase::Serving(serving) => !serving.records.contains(state.acknowledged),
                    _ => false,
                });
                let asked = may_be_wrong.enumerate().filter(|(_, may)| *may);
                steps.extend(asked.map(|(to, _)| Step::Ask(to as Opening)));
            }
            Read::Sent { .. } => steps.push(Step::Arrive),
            Read::Begun { .. } => steps.push(Step::Evaluate),
            Read::Evaluated { .. } => steps.push(Step::Answer),
        }
    }

    /// Whether the owner has a grant by its clock, which is as slow as a clock may be.
    fn granted(state: &State, id: Opening) -> bool {
        match &state.owners[usize::from(id)].phase {
            Phase::Serving(serving) => serving.grant > 0,
            _ => false,
        }
    }

    fn arrive(&self, state: &mut State) -> Option<()> {
        let Read::Sent { to, expected, left } = state.read else { return None };
        let refused = self.is(Broken::CheckWhenArriving) && !LogModel::granted(state, to);
        state.read = if refused { Read::Left(left) } else { Read::Begun { to, expected, left } };
        Some(())
    }

    fn evaluate(&self, state: &mut State) -> Option<()> {
        let Read::Begun { to, expected, left } = state.read else { return None };
        state.read = match &state.owners[usize::from(to)].phase {
            Phase::Serving(serving) => {
                Read::Evaluated { to, expected, value: serving.records, left }
            }
            _ => Read::Left(left),
        };
        Some(())
    }

    fn answer(&self, state: &mut State) -> Option<()> {
        let Read::Evaluated { to, expected, value, left } = state.read else { return None };
        let unchecked = self.is(Broken::NoCheckWhenAnswering) || self.is(Broken::CheckWhenArriving);
        if (unchecked || LogModel::granted(state, to)) && !value.contains(expected) {
            state.stale_read = true;
        }
        state.read = Read::Left(left);
        Some(())
    }
}

impl State {
    fn ask(&mut self, to: Opening) -> Option<()> {
        let Read::Left(left) = self.read else { return None };
        self.read = Read::Sent { to, expected: self.acknowledged, left: left - 1 };
        Some(())
    }

    /// The owner ends. What it sent may still land.
    pub(super) fn end(&mut self, id: Opening) -> Option<()> {
        self.owners.get_mut(usize::from(id))?.phase = Phase::Ended;
        Some(())
    }
}
