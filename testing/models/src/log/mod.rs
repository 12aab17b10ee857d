//! The log of a shard in an object store: several owners, each of which may be paused at any step.
//!
//! The store creates an object only if its name is absent, and promises nothing else. Owners take
//! the shard over from one another without speaking to each other. `docs/models.md` explains what
//! is modelled, the bounds, and what is not.
//!
//! * `store`: objects, and the one place where a PUT lands;
//! * `state`: what is in memory of owners, in the network, and what is recorded for the properties;
//! * `steps`: what each participant may do next, and what that does;
//! * `properties`: what must hold in every state.

mod opening;
mod properties;
mod serving;
mod steps;
mod state;
mod store;

pub use properties::{LOST, ONE_OPENING, ONE_READER, SERVES, STALE, ZOMBIE};
pub use state::{Checkpoint, Flight, Look, Owner, Phase, Read, Serving, State, Ticks};
pub use steps::{Delivery, Step};
pub use store::{Landed, LogObject, Manifest, Opening, Put, RunName, Store};

/// Records, as a set: each opening writes up to four.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Records(u64);

impl Records {
    pub(crate) fn with(self, opening: u8, seq: u8) -> Records {
        Records(self.0 | 1 << (opening * 4 + seq))
    }

    pub(crate) fn union(self, other: Records) -> Records {
        Records(self.0 | other.0)
    }

    pub(crate) fn contains(self, other: Records) -> bool {
        other.0 & !self.0 == 0
    }

    /// How many openings have a record in it.
    pub(crate) fn openings(self) -> usize {
        (0..16).filter(|opening| self.0 >> (opening * 4) & 15 != 0).count()
    }
}

/// A rule of the protocol that a variant leaves out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// A claim counts without a LIST.
    NoListAfterClaim,
    /// An opening manifest counts without a LIST.
    NoListAfterOpening,
    /// A checkpoint's manifest counts without a LIST.
    NoListAfterCheckpoint,
    /// All epochs write to one numbered log.
    OneLogForAllEpochs,
    /// Collection removes seals of earlier epochs.
    SealsCollected,
    /// An object with equal bytes under the name counts as one's own, without a random id.
    EqualBytesTakenAsWon,
    /// A log object is acknowledged before those with lower numbers are durable.
    AcknowledgedBehindHole,
    /// A successor serves at once.
    NoWait,
    /// A successor waits for the grant alone, which a slow clock makes longer.
    NoDrain,
    /// A grant is counted from the answer of its PUT.
    GrantFromAnswer,
    /// A log object behind a hole renews the grant.
    GrantBehindHole,
    /// The look that renews a grant asks for the number after those in flight alone.
    LookBeyondFlights,
    /// The look that renews a grant asks for the first number that is not durable, and is content
    /// with its absence.
    LookFirstAlone,
    /// The grant is not looked at when a read is answered.
    NoCheckWhenAnswering,
    /// An owner that ends in order keeps its grant.
    GrantAfterEnd,
    /// The grant is looked at when a read arrives, and not again. This is not wrong: see
    /// `docs/models.md`.
    CheckWhenArriving,
}

/// How far the model is explored.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Openings.
    pub owners: u8,
    /// Records that the first owner writes.
    pub records: u8,
    /// Records that each later owner writes.
    pub later_records: u8,
    /// Log objects that it has in flight at once.
    pub flights: usize,
    /// Checkpoints, of all owners together.
    pub checkpoints: u8,
    /// Late duplicates and lost answers of PUTs, together.
    pub repeats: u8,
    /// Reads. Without them, clocks do not advance and owners do not look at them.
    pub reads: u8,
    /// Whether owners may end in order: with a seal of their own, after which their successor does
    /// not wait for a grant.
    pub ends: bool,
}

/// The protocol, or a broken variant of it, within bounds.
#[derive(Debug, Clone, Copy)]
pub struct LogModel {
    /// The rule that is left out.
    pub broken: Option<Broken>,
    /// How far to explore.
    pub bounds: Bounds,
}

impl LogModel {
    pub(crate) fn is(&self, broken: Broken) -> bool {
        self.broken == Some(broken)
    }

    /// The name of the log of an epoch.
    pub(crate) fn log_of(&self, epoch: u8) -> u8 {
        if self.is(Broken::OneLogForAllEpochs) { 0 } else { epoch }
    }
}
