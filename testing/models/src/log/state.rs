//! What the model checker hashes: the store, the network, the owners, the clock and a read.
//!
//! The fields below "ghost" are not in any process: they record what happened, for the properties.

use super::Records;
use super::store::{Landed, Manifest, Opening, Put, RunName, Store};
use crate::sorted::SortedSet;

/// A duration, in ticks. Times are not in the state: what is left of a wait or of a grant is, and
/// how long ago a request was sent. So time has no end in the model.
pub type Ticks = u8;

/// How long a grant lasts, by the owner's clock.
pub(super) const GRANT: Ticks = 2;
/// How much longer that may be in true time, because the owner's clock is slow.
const CLOCK_ERROR: Ticks = 1;
/// How long a grant lasts at most, in true time.
pub(super) const GRANT_MAX: Ticks = GRANT + CLOCK_ERROR;
/// What a successor waits in addition to the grant.
pub(super) const DRAIN: Ticks = CLOCK_ERROR;

/// The whole system at one moment.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct State {
    /// The object store.
    pub store: Store,
    /// PUTs that were sent and may still land.
    pub network: SortedSet<Put>,
    /// Owners by opening. A crashed owner is one that takes no more steps.
    pub owners: Vec<Owner>,
    /// The client's read.
    pub read: Read,
    /// How often a PUT landed that will land again, or whose answer was lost.
    pub repeats: u8,
    /// Checkpoints that were begun.
    pub checkpoints: u8,
    /// Ghost: acknowledged records.
    pub acknowledged: Records,
    /// Ghost: a read returned less than was acknowledged before the client sent it.
    pub stale_read: bool,
}

/// One opening, from its first step to its end.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Owner {
    /// The number of its claim, once the claim counts.
    pub epoch: Option<u8>,
    /// Where it is.
    pub phase: Phase,
}

/// Where an owner is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It has done nothing.
    Out,
    /// Its claim was sent: the same state as manifest `base` under the next number.
    Claiming {
        /// The newest manifest, as it read it.
        base: u8,
        /// The claim.
        claim: Manifest,
        /// The PUT's answer.
        answer: Option<Landed>,
    },
    /// A seal was sent to the log of the owner before.
    Sealing {
        /// Its claim.
        claim: Manifest,
        /// The number of the log object.
        at: u8,
        /// The PUT's answer.
        answer: Option<Landed>,
    },
    /// Its opening manifest was sent.
    Opening {
        /// That manifest.
        manifest: Manifest,
        /// What it replayed.
        records: Records,
        /// How long until it may serve.
        wait: Ticks,
        /// The PUT's answer.
        answer: Option<Landed>,
    },
    /// It serves.
    Serving(Serving),
    /// It was replaced, lost a race, or found something missing.
    Ended,
}

/// The state of an owner that serves.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Serving {
    /// Its last manifest that counts.
    pub number: u8,
    /// That manifest.
    pub manifest: Manifest,
    /// Runs that it does not name, and the manifest before did.
    pub free: SortedSet<RunName>,
    /// All durable records, in memory.
    pub records: Records,
    /// How long until it may serve.
    pub wait: Ticks,
    /// Number in the log of the first flight: all below are durable.
    pub low: u8,
    /// PUTs of log objects without an acknowledgement, by number.
    pub flights: Vec<Flight>,
    /// Records that it began.
    pub begun: u8,
    /// A checkpoint whose manifest was sent.
    pub checkpoint: Option<Checkpoint>,
    /// How long it may answer reads, if its clock is as slow as a clock may be.
    pub grant: Ticks,
    /// A look at the numbers that may have a seal.
    pub look: Option<Look>,
}

/// A log object that was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Flight {
    /// Which record of the opening.
    pub seq: u8,
    /// How long ago.
    pub age: Ticks,
    /// The PUT's answer.
    pub answer: Option<Landed>,
    /// Acknowledged out of order.
    pub acknowledged: bool,
}

/// A checkpoint whose manifest was sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Checkpoint {
    /// That manifest.
    pub manifest: Manifest,
    /// The PUT's answer.
    pub answer: Option<Landed>,
}

/// A look at the numbers that may have a seal.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Look {
    /// Numbers whose answers have not come.
    pub left: Vec<u8>,
    /// How long ago it began.
    pub age: Ticks,
    /// Whether an answer keeps it from being a proof.
    pub refused: bool,
}

/// A client's read of everything.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Read {
    /// Not sent yet, with how many may follow.
    Left(u8),
    /// Sent to an owner.
    Sent {
        /// The owner.
        to: Opening,
        /// Ghost: what was acknowledged when the client sent it.
        expected: Records,
        /// How many may follow.
        left: u8,
    },
    /// The owner has begun with it.
    Begun {
        /// The owner.
        to: Opening,
        /// Ghost: as before.
        expected: Records,
        /// How many may follow.
        left: u8,
    },
    /// The owner has evaluated it.
    Evaluated {
        /// The owner.
        to: Opening,
        /// Ghost: as before.
        expected: Records,
        /// What it found.
        value: Records,
        /// How many may follow.
        left: u8,
    },
}

impl State {
    /// A formatted store, and owners that have done nothing.
    pub(super) fn new(owners: u8, reads: u8) -> State {
        let out = Owner { epoch: None, phase: Phase::Out };
        State {
            store: Store::formatted(),
            network: SortedSet::default(),
            owners: vec![out; usize::from(owners)],
            read: Read::Left(reads),
            repeats: 0,
            checkpoints: 0,
            acknowledged: Records::default(),
            stale_read: false,
        }
    }

    /// A tick passes, for all clocks.
    pub(super) fn tick(&mut self) {
        for owner in &mut self.owners {
            match &mut owner.phase {
                Phase::Opening { wait, .. } => *wait = wait.saturating_sub(1),
                Phase::Serving(serving) => {
                    serving.wait = serving.wait.saturating_sub(1);
                    serving.grant = serving.grant.saturating_sub(1);
                    let flights = serving.flights.iter_mut().map(|flight| &mut flight.age);
                    for age in flights.chain(serving.look.as_mut().map(|look| &mut look.age)) {
                        // What is older gives no grant, however much older it is.
                        *age = (*age + 1).min(GRANT_MAX);
                    }
                }
                Phase::Out | Phase::Claiming { .. } | Phase::Sealing { .. } | Phase::Ended => {}
            }
        }
    }

    /// Gives the answer of a PUT to its sender, if the sender still waits for it.
    pub(super) fn deliver(&mut self, put: &Put, landed: Landed) {
        let Some(owner) = self.owners.get_mut(usize::from(put.sender())) else { return };
        let answer = match (&mut owner.phase, put) {
            (Phase::Claiming { base, answer, .. }, Put::Manifest(number, _))
                if *number == *base + 1 =>
            {
                answer
            }
            (Phase::Sealing { at, answer, .. }, Put::Log(_, number, _)) if number == at => answer,
            (Phase::Opening { manifest, answer, .. }, Put::Manifest(_, sent))
                if manifest == sent =>
            {
                answer
            }
            (Phase::Serving(serving), Put::Log(epoch, number, _))
                if *epoch == serving.manifest.log =>
            {
                let at = number.checked_sub(serving.low).map(usize::from);
                match at.and_then(|at| serving.flights.get_mut(at)) {
                    Some(flight) => &mut flight.answer,
                    None => return,
                }
            }
            (Phase::Serving(Serving { checkpoint: Some(sent), .. }), Put::Manifest(_, landed))
                if sent.manifest == *landed =>
            {
                &mut sent.answer
            }
            _ => return,
        };
        answer.get_or_insert(landed);
    }
}
