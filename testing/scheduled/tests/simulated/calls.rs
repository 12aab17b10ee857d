//! Calls of a history, and the model's answers to them.
//!
//! All calls of one part of the volume use two directories that stay; what they make and remove is
//! in those. Files are open in slots, whose numbers are never used again.

use std::collections::BTreeMap;

use device::Timestamp;
use inode::{Caller, Kind, SetAttr};
use testing::linear::{Record, Sequential};
use testing::model::{Effect, ErrorKind, FsModel, Op, OpPath, RenameStyle, Stat, Target, Verdict};

/// Permission bits of what calls make.
pub(crate) const FILE_MODE: u32 = 0o644;
pub(crate) const DIRECTORY_MODE: u32 = 0o755;
/// Directories of a part.
pub(crate) const DIRECTORIES: usize = 2;

/// A name in one of the directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NameSlot {
    pub(crate) directory: usize,
    pub(crate) name: u8,
}

impl NameSlot {
    pub(crate) fn name(self) -> Vec<u8> {
        vec![b'a' + self.name]
    }

    fn path(self) -> OpPath {
        vec![directory_name(self.directory), self.name()]
    }
}

pub(crate) fn directory_name(directory: usize) -> Vec<u8> {
    format!("dir{directory}").into_bytes()
}

/// A call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Call {
    MakeFile(NameSlot),
    MakeDirectory(NameSlot),
    Unlink(NameSlot),
    Rmdir(NameSlot),
    Rename(NameSlot, NameSlot, RenameStyle),
    Look(NameSlot),
    List(usize),
    /// Looks a file up, and opens it.
    Open(usize, NameSlot),
    Close(usize),
    Stat(usize),
    Read(usize),
    Write {
        slot: usize,
        offset: u64,
        length: usize,
        seed: u64,
    },
    Append {
        slot: usize,
        length: usize,
        seed: u64,
    },
    Truncate(usize, u64),
    /// Takes a lock, if no other conflicts.
    Lock {
        client: usize,
        slot: usize,
        area: u8,
        exclusive: bool,
    },
    Unlock(usize, u8),
    /// The locks of a client end with its session.
    LoseLocks(usize),
}

/// What can be locked of a file: flock(2), and two ranges of fcntl(2).
pub(crate) const AREAS: u8 = 3;

/// The answer to a lock.
pub(crate) fn granted(is_granted: bool) -> Effect {
    Effect::Bytes(vec![u8::from(is_granted)])
}

impl Call {
    /// Whether its answer has attributes.
    fn has_attributes(&self) -> bool {
        matches!(self, Call::MakeFile(_) | Call::MakeDirectory(_) | Call::Truncate(..))
    }

    /// Whether it changes the volume.
    pub(crate) fn changes(&self) -> bool {
        !matches!(
            self,
            Call::Look(_)
                | Call::List(_)
                | Call::Open(..)
                | Call::Close(_)
                | Call::Stat(_)
                | Call::Read(_)
                | Call::LoseLocks(_)
        )
    }
}

pub(crate) type Answer = Result<Effect, ErrorKind>;
pub(crate) type Event = Record<Call, Answer>;

/// Longest file that is read.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// One part of the volume, as the model has it.
#[derive(Clone)]
pub(crate) struct DirectoryModel {
    model: FsModel,
    /// By slot and area.
    locks: BTreeMap<(usize, u8), Held>,
}

/// A lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    file: u64,
    client: usize,
    exclusive: bool,
}

impl DirectoryModel {
    pub(crate) fn new() -> DirectoryModel {
        let mut model = FsModel::new(Timestamp(0), b".snapshots");
        for directory in 0..DIRECTORIES {
            let op = Op::Mkdir { path: vec![directory_name(directory)], mode: DIRECTORY_MODE };
            assert!(model.apply(Timestamp(0), &Caller::root(), &op).is_ok());
        }
        DirectoryModel { model, locks: BTreeMap::new() }
    }

    fn verdict(&mut self, call: &Call) -> Verdict {
        let file = |slot: &usize| Target::Slot(*slot);
        let op = match call {
            Call::MakeFile(at) => Op::Mknod { path: at.path(), kind: Kind::File, mode: FILE_MODE },
            Call::MakeDirectory(at) => Op::Mkdir { path: at.path(), mode: DIRECTORY_MODE },
            Call::Unlink(at) => Op::Unlink { path: at.path() },
            Call::Rmdir(at) => Op::Rmdir { path: at.path() },
            Call::Rename(from, to, style) => {
                Op::Rename { from: from.path(), to: to.path(), style: *style }
            }
            Call::Look(at) => Op::Stat { target: Target::Path(at.path()) },
            Call::List(directory) => Op::List { path: vec![directory_name(*directory)] },
            Call::Open(slot, at) => {
                let stat = self.op(&Op::Stat { target: Target::Path(at.path()) });
                if stat.is_ok() {
                    self.op(&Op::Open { slot: *slot, path: at.path() });
                }
                return stat;
            }
            Call::Close(slot) => Op::Close { slot: *slot },
            Call::Stat(slot) => Op::Stat { target: file(slot) },
            Call::Read(slot) => Op::Read { target: file(slot), offset: 0, length: READ_BYTES },
            Call::Write { slot, offset, length, seed } => {
                let target = file(slot);
                Op::Write { target, offset: *offset, length: *length, seed: *seed }
            }
            Call::Append { slot, length, seed } => {
                return self.model.append(Timestamp(0), *slot, *length, *seed);
            }
            Call::Truncate(slot, size) => {
                let changes = SetAttr { size: Some(*size), ..SetAttr::default() };
                Op::SetAttr { target: file(slot), changes }
            }
            Call::Lock { .. } | Call::Unlock(..) | Call::LoseLocks(_) => {
                unreachable!("these are not of the model of files")
            }
        };
        self.op(&op)
    }

    /// Whether a call of locks may have this answer.
    fn apply_lock(&mut self, call: &Call, answer: Option<&Answer>) -> bool {
        match *call {
            Call::Lock { client, slot, area, exclusive } => {
                let Some(file) = self.model.file_of(slot) else { return false };
                let is_free = self.locks.iter().all(|((other, of), held)| {
                    *other == slot
                        || *of != area
                        || held.file != file
                        || !(held.exclusive || exclusive)
                });
                let is_granted = answer.is_none_or(|answer| *answer == Ok(granted(true)));
                if is_granted && is_free {
                    self.locks.insert((slot, area), Held { file, client, exclusive });
                }
                is_granted == is_free
            }
            Call::Unlock(slot, area) => {
                let held = self.locks.remove(&(slot, area));
                held.is_some() || answer.is_some()
            }
            Call::LoseLocks(of) => {
                self.locks.retain(|_, held| held.client != of);
                true
            }
            _ => false,
        }
    }

    fn op(&mut self, op: &Op) -> Verdict {
        self.model.apply(Timestamp(0), &Caller::root(), op)
    }
}

/// Without times: calls have none of their own in the model.
pub(crate) fn timeless(answer: Answer) -> Answer {
    answer.map(|effect| match effect {
        Effect::Stat(mut stat) => {
            (stat.mtime, stat.ctime) = (0, 0);
            Effect::Stat(stat)
        }
        effect => effect,
    })
}

/// The size in attributes of a later moment than that of the change which they answer.
const LATER: u64 = u64::MAX;

/// Attributes of a later moment: a successor answers the repeat of a change with those that the
/// file has then. Length and links may have changed; what a file is does not.
pub(crate) fn of_later(effect: Effect) -> Effect {
    match effect {
        Effect::Stat(stat) => Effect::Stat(Stat { size: LATER, ..stat }),
        effect => effect,
    }
}

/// Whether the model's attributes, of the moment of the change, allow those of a later one.
fn admits_later(model: &Stat, seen: &Stat) -> bool {
    model.admits(&Stat { size: model.size, nlink: model.nlink, ..*seen })
}

impl Sequential for DirectoryModel {
    type Call = Call;
    type Answer = Answer;

    fn apply(&mut self, call: &Call, answer: Option<&Answer>) -> bool {
        if matches!(call, Call::Lock { .. } | Call::Unlock(..) | Call::LoseLocks(_)) {
            return self.apply_lock(call, answer);
        }
        let verdict = self.verdict(call);
        let fits = match (answer, &verdict) {
            (None, verdict) => verdict.is_ok() && call.changes(),
            (Some(Ok(Effect::Stat(seen))), Verdict::Ok(Effect::Stat(model)))
                if seen.size == LATER =>
            {
                admits_later(model, seen)
            }
            // The answer of a change without a result of its own.
            (Some(Ok(Effect::Done)), Verdict::Ok(_)) => !call.has_attributes(),
            (Some(answer), verdict) => verdict.admits(answer),
        };
        if fits && matches!(call, Call::Close(_) | Call::Unlink(_) | Call::Rename(..)) {
            self.model.drop_unreachable();
        }
        fits
    }

    fn fingerprint(&self) -> u64 {
        let mut hash = self.model.fingerprint();
        for ((slot, area), held) in &self.locks {
            let lock = (*slot as u64) << 4 | u64::from(*area) << 1 | u64::from(held.exclusive);
            hash = (hash ^ lock).wrapping_mul(0x0100_0000_01b3);
        }
        hash
    }
}
