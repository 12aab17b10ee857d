//! A client of a served volume: random calls one after the other, each noted with its answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, SystemClock};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use remote::{Remote, RemoteFs};
use testing::model::{Effect, Listed, Op, RenameStyle, Stat, blame};
use vfs::{
    Entry, FileLock, FileSystem, FsResult, LockKind, Locked, NewNode, RenameMode, WalkControl,
};

use crate::calls::{
    AREAS, Answer, Call, DIRECTORIES, DIRECTORY_MODE, Event, FILE_MODE, NameSlot, READ_BYTES,
    directory_name, granted, of_later, timeless,
};
use crate::sessions::{Sessions, Survivals};
use crate::world::World;

/// Names in a directory.
pub(crate) const NAMES: u8 = 4;
/// Files that a client has open.
const OPEN_MAX: usize = 3;
/// Flags of open(2): O_RDWR.
const READ_WRITE: u32 = 2;

/// What all clients did, for each part of the volume.
pub(crate) struct Histories {
    clock: AtomicU64,
    parts: Vec<Mutex<Vec<Event>>>,
    names: u8,
    calls: AtomicU64,
    next_slot: AtomicU64,
    /// Answers that no call may have, whatever the order.
    pub(crate) faults: Mutex<Vec<String>>,
    pub(crate) sessions: Survivals,
}

impl Histories {
    pub(crate) fn new(parts: usize, names: u8) -> Histories {
        Histories {
            clock: AtomicU64::new(0),
            parts: (0..parts).map(|_| Mutex::default()).collect(),
            names,
            calls: AtomicU64::new(0),
            next_slot: AtomicU64::new(0),
            faults: Mutex::default(),
            sessions: Survivals::default(),
        }
    }

    /// Calls so far.
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    pub(crate) fn of_part(&self, part: usize) -> Vec<Event> {
        self.parts[part].lock().clone()
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed)
    }
}

/// A file that is open.
#[derive(Clone, Copy)]
struct Open {
    node: NodeId,
    epoch: u64,
    part: usize,
}

/// What a client does its calls with: a mount, or the volume itself.
pub(crate) struct Client<'a> {
    number: usize,
    /// Without a network every call has an answer.
    is_local: bool,
    fs: &'a dyn FileSystem,
    histories: &'a Histories,
    random: fastrand::Rng,
    /// Directories of the parts, looked up in this epoch.
    directories: BTreeMap<(usize, usize), NodeId>,
    epoch: u64,
    first_epoch: u64,
    open: BTreeMap<usize, Open>,
    /// Locks that it may have, by slot and area.
    locks: BTreeSet<(usize, u8)>,
    /// When it last made a call that its session answered.
    answered: u64,
    sessions: Sessions<'a>,
}

/// The mount of a client.
pub(crate) struct Mounted {
    pub(crate) remote: Arc<Remote>,
    pub(crate) fs: RemoteFs,
}

fn part_name(part: usize) -> Vec<u8> {
    format!("part{part}").into_bytes()
}

/// Makes the directories that stay.
pub(crate) fn make_directories(fs: &dyn FileSystem, parts: usize) -> FsResult<()> {
    let root = Caller::root();
    for part in 0..parts {
        let made = fs.mkdir(&root, NodeId::ROOT, &part_name(part), DIRECTORY_MODE)?.node;
        for directory in 0..DIRECTORIES {
            let name = directory_name(directory);
            let below = fs.mkdir(&root, made, &name, DIRECTORY_MODE)?;
            fs.forget(below.node, 1);
        }
        fs.forget(made, 1);
    }
    fs.sync_all()
}

impl<'a> Client<'a> {
    pub(crate) fn new(
        number: usize,
        fs: &'a dyn FileSystem,
        histories: &'a Histories,
        (seed, world): (u64, Option<&'a World>),
    ) -> Client<'a> {
        let random = fastrand::Rng::with_seed(seed ^ ((number as u64 + 1) << 32));
        let (directories, open) = (BTreeMap::new(), BTreeMap::new());
        let (is_local, locks, answered) = (false, BTreeSet::new(), histories.tick());
        let epoch = fs.epoch();
        Client {
            number,
            is_local,
            fs,
            histories,
            random,
            directories,
            epoch,
            first_epoch: epoch,
            open,
            locks,
            answered,
            sessions: Sessions::new(world, &histories.sessions),
        }
    }

    /// Makes so many calls.
    pub(crate) fn run(&mut self, calls: usize) {
        let clock = SystemClock::new();
        for _ in 0..calls {
            let part = self.random.usize(..self.histories.parts.len());
            let call = self.draw(part);
            self.make(part, call);
            if self.random.u32(..4) == 0 {
                clock.sleep(Duration::from_millis(self.random.u64(..20)));
            }
        }
        let open: Vec<usize> = self.open.keys().copied().collect();
        for slot in open {
            self.close(slot);
        }
        // What it may have without knowing ends with its session, some time later.
        self.lose_locks(self.histories.tick(), u64::MAX);
    }

    /// Its session has ended, or will.
    fn lose_locks(&mut self, begun: u64, ended: u64) {
        self.locks.clear();
        for part in 0..self.histories.parts.len() {
            let answer = Some(Ok(Effect::Done));
            self.note(part, Call::LoseLocks(self.number), answer, begun, ended);
        }
    }

    /// Reads everything, as the last calls of a history.
    pub(crate) fn look_at_all(&mut self) {
        self.is_local = true;
        for part in 0..self.histories.parts.len() {
            for directory in 0..DIRECTORIES {
                self.make(part, Call::List(directory));
                for name in 0..NAMES {
                    let slot = self.fresh_slot();
                    self.make(part, Call::Open(slot, NameSlot { directory, name }));
                    if self.open.contains_key(&slot) {
                        self.make(part, Call::Read(slot));
                        self.make(part, Call::Stat(slot));
                        self.close(slot);
                    }
                }
            }
        }
    }

    fn fresh_slot(&self) -> usize {
        self.histories.next_slot.fetch_add(1, Ordering::Relaxed) as usize
    }

    fn place(&mut self) -> NameSlot {
        let names = self.histories.names;
        let directory = self.random.usize(..DIRECTORIES.min(names.into()));
        NameSlot { directory, name: self.random.u8(..names) }
    }

    fn draw(&mut self, part: usize) -> Call {
        let of_part = self.open.iter().filter(|(_, open)| open.part == part);
        let slots: Vec<usize> = of_part.map(|(slot, _)| *slot).collect();
        if let Some(&slot) = slots.get(self.random.usize(..slots.len().max(1)))
            && self.random.u32(..100) < 55
        {
            // Long ones do not go into records.
            let is_long = self.random.u32(..8) == 0;
            let length = self.random.usize(if is_long { 1024..1600 } else { 1..24 });
            let seed = self.random.u64(..);
            return match self.random.u32(..100) {
                0..28 => Call::Append { slot, length, seed },
                28..52 => Call::Read(slot),
                52..60 => Call::Stat(slot),
                60..70 => Call::Write { slot, offset: self.random.u64(..40), length, seed },
                70..76 => Call::Truncate(slot, self.random.u64(..30)),
                76..88 => {
                    let (client, area) = (self.number, self.random.u8(..AREAS));
                    Call::Lock { client, slot, area, exclusive: self.random.u32(..3) > 0 }
                }
                88..95 => Call::Unlock(slot, self.random.u8(..AREAS)),
                _ => Call::Close(slot),
            };
        }
        let at = self.place();
        match self.random.u32(..100) {
            0..22 => Call::MakeFile(at),
            22..30 => Call::MakeDirectory(at),
            30..42 => Call::Unlink(at),
            42..48 => Call::Rmdir(at),
            48..62 => {
                let style = match self.random.u32(..4) {
                    0 => RenameStyle::NoReplace,
                    1 => RenameStyle::Exchange,
                    _ => RenameStyle::Replace,
                };
                Call::Rename(at, self.place(), style)
            }
            62..72 => Call::Look(at),
            72..80 => Call::List(at.directory),
            _ if slots.len() < OPEN_MAX => Call::Open(self.fresh_slot(), at),
            _ => Call::Close(slots[0]),
        }
    }

    /// Ends a file's open, which never fails.
    fn close(&mut self, slot: usize) {
        if let Some(open) = self.open.get(&slot) {
            let part = open.part;
            self.make(part, Call::Close(slot));
        }
    }

    /// What a new session of the client no longer has open.
    fn leave_old(&mut self) {
        let epoch = self.fs.epoch();
        if epoch != self.epoch {
            self.epoch = epoch;
            self.sessions.ended();
            self.directories.clear();
            // At some moment since its session answered.
            self.lose_locks(self.answered, self.histories.tick());
        }
        let is_old = |(_, open): &(&usize, &Open)| open.epoch != epoch;
        let old: Vec<usize> = self.open.iter().filter(is_old).map(|(slot, _)| *slot).collect();
        for slot in old {
            self.close(slot);
        }
    }

    /// Closes a file, after it has given its locks back.
    fn make_close(&mut self, part: usize, slot: usize) {
        for area in 0..AREAS {
            if self.locks.remove(&(slot, area)) {
                self.make(part, Call::Unlock(slot, area));
            }
        }
        // (It may have found there that it is not open any more.)
        let Some(open) = self.open.remove(&slot) else { return };
        if open.epoch == self.fs.epoch() {
            self.fs.released(&Caller::root(), open.node);
            self.fs.forget(open.node, 1);
        }
        let (begun, ended) = (self.histories.tick(), self.histories.tick());
        self.note(part, Call::Close(slot), Some(Ok(Effect::Done)), begun, ended);
    }

    fn make(&mut self, part: usize, call: Call) {
        if let Call::Close(slot) = call {
            return self.make_close(part, slot);
        }
        self.histories.calls.fetch_add(1, Ordering::Relaxed);
        self.leave_old();
        if Client::slot_of(&call).is_some_and(|slot| !self.open.contains_key(&slot)) {
            return;
        }
        for _ in 0..20 {
            let begun = self.histories.tick();
            let openings = self.sessions.openings();
            let mut done = self.execute(part, &call);
            // A successor may have answered the repeat of what the server before it executed.
            let may_be_repeat = call.changes() && self.sessions.openings() != openings;
            if may_be_repeat {
                done = done.map(of_later);
            }
            let ended = self.histories.tick();
            if !matches!(done, Err(Failed::Call(FsError::Io(_) | FsError::Interrupted)))
                && self.fs.epoch() == self.epoch
            {
                self.answered = begun;
                self.sessions.answered(openings);
            }
            match done {
                Ok(effect) => {
                    return self.note(part, call, Some(timeless(Ok(effect))), begun, ended);
                }
                // It was executed, and its repeat is about a name's file that is gone by now. (A
                // file that is open is never gone.)
                Err(Failed::Call(FsError::Stale))
                    if may_be_repeat && self.fs.epoch() == self.epoch =>
                {
                    if let Some(slot) = Client::slot_of(&call) {
                        self.is_of_earlier(slot);
                    }
                    return self.note(part, call, None, begun, ended);
                }
                // Its directory, or its file, is of an earlier session.
                Err(Failed::Call(FsError::Stale) | Failed::Directory(FsError::Stale)) => {
                    self.directories.clear();
                    if let Some(slot) = Client::slot_of(&call) {
                        self.is_of_earlier(slot);
                        return self.close(slot);
                    }
                }
                Err(Failed::Directory(error)) if !matches!(error, FsError::NotFound) => {
                    return self.lost(&error);
                }
                Err(Failed::Directory(error)) => {
                    let text = format!("a directory that stays is not there: {error}");
                    return self.histories.faults.lock().push(text);
                }
                Err(Failed::Call(error @ (FsError::Io(_) | FsError::Interrupted))) => {
                    self.lost(&error);
                    if call.changes() {
                        self.note(part, call, None, begun, ended);
                    }
                    return;
                }
                Err(Failed::Call(error)) => {
                    self.is_expected(&call, &error);
                    let answer = Some(Err(blame(&error)));
                    return self.note(part, call, answer, begun, ended);
                }
            }
        }
        let text = format!("{call:?} of client {} finds no session", self.number);
        self.histories.faults.lock().push(text);
    }

    /// A file is not open any more, which it is as long as its session. (In a later session a
    /// look-up of an earlier one may be given back after the file was opened again.)
    fn is_of_earlier(&self, slot: usize) {
        let is_first = self.fs.epoch() == self.first_epoch;
        let is_own = |open: &Open| is_first && open.epoch == self.first_epoch;
        if self.open.get(&slot).is_some_and(is_own) {
            let text = format!("client {}: slot {slot} is stale in its own session", self.number);
            self.histories.faults.lock().push(text);
        }
    }

    /// A call has no answer. It may not be without a server for long.
    fn lost(&self, error: &FsError) {
        let text = error.to_string();
        if text.contains("no connection") || self.is_local {
            let text = format!("client {}: {text}", self.number);
            self.histories.faults.lock().push(text);
        }
    }

    /// No order explains an error that has nothing to do with names and files.
    fn is_expected(&self, call: &Call, error: &FsError) {
        let is_expected = matches!(
            error,
            FsError::NotFound
                | FsError::Exists
                | FsError::NotDirectory
                | FsError::IsDirectory
                | FsError::NotEmpty
                | FsError::InvalidArgument(_)
        );
        if !is_expected {
            let text = format!("client {}: {call:?}: {error}", self.number);
            self.histories.faults.lock().push(text);
        }
    }

    fn slot_of(call: &Call) -> Option<usize> {
        match *call {
            Call::Stat(slot)
            | Call::Read(slot)
            | Call::Append { slot, .. }
            | Call::Write { slot, .. }
            | Call::Truncate(slot, _)
            | Call::Lock { slot, .. }
            | Call::Unlock(slot, _) => Some(slot),
            _ => None,
        }
    }

    fn note(&self, part: usize, call: Call, answer: Option<Answer>, begun: u64, ended: u64) {
        let (client, now) = (self.number, SystemClock::new().monotonic());
        tracing::debug!(client, part, begun, ended, ?call, ?answer, ?now, "a call");
        let event = Event { client: self.number, call, answer, begun, ended };
        self.histories.parts[part].lock().push(event);
    }

    fn directory(&mut self, part: usize, directory: usize) -> Result<NodeId, Failed> {
        if let Some(node) = self.directories.get(&(part, directory)) {
            return Ok(*node);
        }
        let root = Caller::root();
        let find = || {
            let above = self.fs.lookup(&root, NodeId::ROOT, &part_name(part))?.node;
            let found = self.fs.lookup(&root, above, &directory_name(directory));
            self.fs.forget(above, 1);
            Ok(found?.node)
        };
        let node = find().map_err(Failed::Directory)?;
        self.directories.insert((part, directory), node);
        Ok(node)
    }

    fn made(&self, entry: &Entry) -> Effect {
        self.fs.forget(entry.node, 1);
        Effect::Stat(Stat::of(&entry.attr))
    }

    fn execute(&mut self, part: usize, call: &Call) -> Result<Effect, Failed> {
        let root = Caller::root();
        let at = |place: &NameSlot| (place.directory, place.name());
        Ok(match call {
            Call::MakeFile(place) => {
                let (directory, name) = at(place);
                let new = NewNode { kind: Kind::File, mode: FILE_MODE, rdev: 0 };
                let directory = self.directory(part, directory)?;
                self.made(&self.fs.mknod(&root, directory, &name, &new)?)
            }
            Call::MakeDirectory(place) => {
                let (directory, name) = at(place);
                let directory = self.directory(part, directory)?;
                self.made(&self.fs.mkdir(&root, directory, &name, DIRECTORY_MODE)?)
            }
            Call::Unlink(place) => {
                let (directory, name) = at(place);
                let directory = self.directory(part, directory)?;
                self.fs.unlink(&root, directory, &name)?;
                Effect::Done
            }
            Call::Rmdir(place) => {
                let (directory, name) = at(place);
                let directory = self.directory(part, directory)?;
                self.fs.rmdir(&root, directory, &name)?;
                Effect::Done
            }
            Call::Rename(from, to, style) => {
                let ((from, name), (to, new_name)) = (at(from), at(to));
                let (from, to) = (self.directory(part, from)?, self.directory(part, to)?);
                let mode = match style {
                    RenameStyle::Replace => RenameMode::Replace,
                    RenameStyle::NoReplace => RenameMode::NoReplace,
                    RenameStyle::Exchange => RenameMode::Exchange,
                    RenameStyle::Whiteout => RenameMode::Whiteout,
                };
                self.fs.rename(&root, (from, &name), (to, &new_name), mode)?;
                Effect::Done
            }
            Call::Look(place) => {
                let (directory, name) = at(place);
                let directory = self.directory(part, directory)?;
                self.made(&self.fs.lookup(&root, directory, &name)?)
            }
            Call::List(directory) => {
                let directory = self.directory(part, *directory)?;
                Effect::List(self.list(directory)?)
            }
            Call::Open(slot, place) => {
                let (directory, name) = at(place);
                let directory = self.directory(part, directory)?;
                let epoch = self.fs.epoch();
                let entry = self.fs.lookup(&root, directory, &name)?;
                self.opened(*slot, part, &entry, epoch);
                Effect::Stat(Stat::of(&entry.attr))
            }
            Call::Close(_) => Effect::Done,
            _ => self.of_open(call)?,
        })
    }

    /// Keeps a file open that was looked up.
    fn opened(&mut self, slot: usize, part: usize, entry: &Entry, epoch: u64) {
        let root = Caller::root();
        let is_file = entry.attr.kind == Kind::File;
        if is_file && self.fs.open(&root, entry.node, READ_WRITE).is_ok() {
            self.open.insert(slot, Open { node: entry.node, epoch, part });
        } else {
            self.fs.forget(entry.node, 1);
        }
    }

    fn list(&self, directory: NodeId) -> FsResult<Vec<Listed>> {
        let mut listed = Vec::new();
        self.fs.readdir(&Caller::root(), directory, 0, &mut |entry| {
            listed.push(Listed { name: entry.name.to_vec(), kind: entry.kind });
            WalkControl::Continue
        })?;
        listed.sort();
        Ok(listed)
    }

    /// Returns whether no other lock conflicts.
    fn lock(&self, node: NodeId, (slot, area): (usize, u8), kind: LockKind) -> FsResult<bool> {
        let (start, end) = match area {
            0 => (0, u64::MAX),
            area => (10 * u64::from(area - 1), 10 * u64::from(area) - 1),
        };
        let (owner, pid, whole) = (slot as u64 + 1, self.number as u32 + 1, area == 0);
        let lock = FileLock { owner, pid, kind, start, end, whole };
        match self.fs.lock(&Caller::root(), node, &lock, false)? {
            Locked::Done => Ok(true),
            Locked::Busy => Ok(false),
            other => {
                let text = format!("a lock of client {} ends with {other:?}", self.number);
                self.histories.faults.lock().push(text);
                Ok(false)
            }
        }
    }

    fn of_open(&mut self, call: &Call) -> Result<Effect, Failed> {
        let root = Caller::root();
        let slot = Client::slot_of(call).expect("the other calls have none");
        let node = self.open.get(&slot).ok_or(Failed::Call(FsError::Stale))?.node;
        Ok(match call {
            Call::Stat(_) => Effect::Stat(Stat::of(&self.fs.getattr(&root, node)?)),
            Call::Read(_) => {
                let mut bytes = vec![0; READ_BYTES];
                let read = self.fs.read(&root, node, 0, &mut bytes)?;
                bytes.truncate(read);
                Effect::Bytes(bytes)
            }
            Call::Append { length, seed, .. } => {
                self.fs.append(&root, node, &Op::write_bytes(*length, *seed))?;
                Effect::Done
            }
            Call::Write { offset, length, seed, .. } => {
                self.fs.write(&root, node, *offset, &Op::write_bytes(*length, *seed))?;
                Effect::Done
            }
            Call::Truncate(_, size) => {
                let changes = SetAttr { size: Some(*size), ..SetAttr::default() };
                Effect::Stat(Stat::of(&self.fs.setattr(&root, node, &changes)?))
            }
            Call::Lock { area, exclusive, .. } => {
                self.locks.insert((slot, *area));
                let kind = if *exclusive { LockKind::Exclusive } else { LockKind::Shared };
                granted(self.lock(node, (slot, *area), kind)?)
            }
            Call::Unlock(_, area) => {
                self.lock(node, (slot, *area), LockKind::Unlocked)?;
                self.locks.remove(&(slot, *area));
                Effect::Done
            }
            _ => Effect::Done,
        })
    }
}

/// Why a call has no result.
enum Failed {
    Call(FsError),
    /// The directory that it is in was not found.
    Directory(FsError),
}

impl From<FsError> for Failed {
    fn from(error: FsError) -> Failed {
        Failed::Call(error)
    }
}
