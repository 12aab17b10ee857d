//! The object store of the model: manifests, log objects and runs, all created only if absent.
//!
//! A PUT is a value ([`Put`]) that is in the network between its sending and its landing. Landing
//! is the one place where an object appears. An object never changes after that; collection may
//! remove it, and then its name is absent again, which is what makes late PUTs dangerous.

use super::{Broken, Records};
use crate::sorted::{SortedMap, SortedSet};

/// Number of an opening: it represents the random id that each opening draws.
pub type Opening = u8;

/// The opening that formatted the store.
pub(super) const FORMAT: Opening = 15;

/// A run: a set of records that a manifest names. The name has the number of the manifest for which
/// it was written, and the opening that wrote it.
pub type RunName = (u8, Opening);

/// The state of a shard, as far as it is not in the log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Manifest {
    /// Number of the claim of the opening that wrote it.
    pub epoch: u8,
    /// The opening that wrote it.
    pub opening: Opening,
    /// The epoch in whose log later records are.
    pub log: u8,
    /// The first of them; lower ones are in runs.
    pub trim: u8,
    /// The runs.
    pub runs: SortedSet<RunName>,
}

/// A numbered object of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LogObject {
    /// A record: the opening that wrote it, and which of its records it is.
    Data(Opening, u8),
    /// Ends the log.
    Seal(Opening),
}

/// A request to create an object if it is absent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Put {
    /// A manifest under a number.
    Manifest(u8, Manifest),
    /// An object of a log: epoch, number, content.
    Log(u8, u8, LogObject),
}

impl Put {
    /// The opening that sent it.
    pub fn sender(&self) -> Opening {
        match self {
            Put::Manifest(_, manifest) => manifest.opening,
            Put::Log(_, _, LogObject::Data(opening, _) | LogObject::Seal(opening)) => *opening,
        }
    }
}

/// What the sender of a PUT learns: whether the object under the name is its own, and whether it is
/// a seal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Landed {
    /// The object there is the one that was sent.
    pub own: bool,
    /// The object there is a seal.
    pub seal: bool,
}

/// All objects.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Store {
    /// By number.
    pub manifests: SortedMap<u8, Manifest>,
    /// By epoch and number.
    pub log: SortedMap<(u8, u8), LogObject>,
    /// By name.
    pub runs: SortedMap<RunName, Records>,
}

impl Store {
    /// A formatted store: a manifest with one empty run.
    pub(super) fn formatted() -> Store {
        let run = (0, FORMAT);
        let runs = SortedSet::of(run);
        let manifest = Manifest { epoch: 0, opening: FORMAT, log: 0, trim: 0, runs };
        Store {
            manifests: SortedMap::of(0, manifest),
            log: SortedMap::default(),
            runs: SortedMap::of(run, Records::default()),
        }
    }

    /// LIST of the manifests: the newest.
    pub(super) fn newest(&self) -> (u8, &Manifest) {
        let newest = self.manifests.last();
        let (number, manifest) = newest.expect("invariant: the newest manifest is never collected");
        (*number, manifest)
    }

    /// The records of all runs of a manifest; `None` if one is missing.
    pub(super) fn read_runs(&self, manifest: &Manifest) -> Option<Records> {
        let mut runs = manifest.runs.iter().map(|name| self.runs.get(name));
        runs.try_fold(Records::default(), |all, run| Some(all.union(*run?)))
    }

    /// Executes a PUT.
    pub(super) fn land(&mut self, put: &Put, broken: Option<Broken>) -> Landed {
        let equal_bytes = broken == Some(Broken::EqualBytesTakenAsWon);
        match put {
            Put::Manifest(number, sent) => {
                let there = self.manifests.get_or_insert_with(*number, || sent.clone());
                let equal = Manifest { opening: sent.opening, ..there.clone() } == *sent;
                let own = there == sent || equal_bytes && equal;
                Landed { own, seal: false }
            }
            Put::Log(epoch, number, sent) => {
                let there = *self.log.get_or_insert_with((*epoch, *number), || *sent);
                let equal = match (there, *sent) {
                    (LogObject::Data(_, there), LogObject::Data(_, sent)) => there == sent,
                    (LogObject::Seal(_), LogObject::Seal(_)) => true,
                    _ => false,
                };
                let own = there == *sent || equal_bytes && equal;
                Landed { own, seal: matches!(there, LogObject::Seal(_)) }
            }
        }
    }

    /// What the next daemon would find: the newest manifest's runs, and its log up to the first
    /// absent number. `None` if a run is missing.
    pub(super) fn recovered(&self, broken: Option<Broken>) -> Option<Records> {
        let (_, manifest) = self.newest();
        let mut records = self.read_runs(manifest)?;
        for number in manifest.trim.. {
            match self.log.get(&(manifest.log, number)) {
                Some(LogObject::Data(opening, seq)) => records = records.with(*opening, *seq),
                // A log of all epochs continues behind a seal.
                Some(LogObject::Seal(_)) if broken == Some(Broken::OneLogForAllEpochs) => {}
                Some(LogObject::Seal(_)) | None => break,
            }
        }
        Some(records)
    }
}
