//! Applies a stream: builds a subvolume out of sight, and makes it visible at once when the whole
//! stream was verified.
//!
//! The stream is not trusted. Each record is checked by its checksum and applied as a call of the
//! caller's. Names are names, so no path leaves the subvolume, and no link is followed. Permission
//! bits do not hold inside the subvolume, which is the caller's own. But a user other than root
//! changes only inodes that this user owns, and gets no devices, owners and set-id bits.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::stream::{
    FRAME_HEAD_BYTES, Head, Origin, PAYLOAD_BYTES_MAX, PREAMBLE_BYTES, Record, decode_frame,
    decode_preamble,
};
use fs::{ChangeKind, Difference, Field, FileSystem, Fs, SnapshotInfo};
use inode::{Caller, Enforce, FsError, NodeId};
use xxhash_rust::xxh3::Xxh3;

use crate::error::{At, Error, Result};
use crate::stage::{Claim, Stage};
use crate::steps::Steps;
use crate::token::{Since, Token};

mod apply;

use apply::Apply;

/// Records, and bytes of contents, after which it is noted how many were applied.
const NOTED_RECORDS: u64 = 10_000;
const NOTED_BYTES: u64 = 64 << 20;
/// Name of the hold on the last snapshot that was received.
const HOLD: &[u8] = b"received";

/// How a stream is received.
#[derive(Debug, Clone, Default)]
pub struct ReceiveOptions {
    /// The name of the snapshot; `None`: that of the stream.
    pub name: Option<Vec<u8>>,
    /// Whether changes are given up that were made at the destination since the base.
    pub force: bool,
    /// Whether no hold is set on the snapshot.
    pub no_hold: bool,
}

/// What was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    /// The snapshot.
    pub snapshot: SnapshotInfo,
    /// The base, if the stream was an increment.
    pub base: Option<SnapshotInfo>,
    /// Records that were applied.
    pub records: u64,
    /// Bytes of contents in them.
    pub bytes: u64,
}

/// A stream that was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Suspended {
    /// Where it continues.
    pub token: Token,
}

/// A stream that is applied.
pub struct Receiver<'a> {
    fs: &'a Fs,
    caller: Caller,
    /// The directory of the destination, which the caller of this holds, and the name in it.
    destination: (NodeId, Vec<u8>),
    options: ReceiveOptions,
    buffer: Vec<u8>,
    /// How much of the buffer was applied.
    taken: usize,
    digest: Xxh3,
    has_preamble: bool,
    work: Option<Work<'a>>,
    is_complete: bool,
    expected: (u64, u64),
}

/// A stream whose first record was read.
struct Work<'a> {
    apply: Apply<'a>,
    origins: Vec<Origin>,
    /// The identity by which the stage is found.
    origin: Origin,
    name: Vec<u8>,
    base: Option<SnapshotInfo>,
    /// The destination, where an increment has it.
    present: Option<NodeId>,
    /// Records left out, records applied, bytes of contents.
    skipped: u64,
    records: u64,
    bytes: u64,
    /// Records and bytes when it was last noted, and when that was last tried.
    noted: (u64, u64),
    tried: (u64, u64),
    /// Records before the attributes of the root, which are kept in memory, and their digest: a
    /// stream that continues has them again.
    before_root: Option<(u64, Steps)>,
    /// What only an increment needs.
    increment: Option<Increment>,
    /// Kept until the stage is not used any more.
    _claim: Claim,
}

/// How an increment continues when it is cut.
struct Increment {
    /// The base, as the sender calls it.
    base: Origin,
    /// The steps that were applied.
    steps: Steps,
    scratch: Vec<u8>,
    /// The token of the copy of the stage that is kept.
    marked: Option<Token>,
}

impl<'a> Receiver<'a> {
    /// Begins to receive. `parent` is held by the caller until this ends.
    pub fn new(
        fs: &'a Fs,
        caller: &Caller,
        (parent, name): (NodeId, &[u8]),
        options: ReceiveOptions,
    ) -> Receiver<'a> {
        Receiver {
            fs,
            caller: caller.clone(),
            destination: (parent, name.to_vec()),
            options,
            buffer: Vec::new(),
            taken: 0,
            digest: Xxh3::new(),
            has_preamble: false,
            work: None,
            is_complete: false,
            expected: (0, 0),
        }
    }

    /// About how many bytes of contents and how many inodes the stream has; 0: unknown.
    pub fn expected(&self) -> (u64, u64) {
        self.expected
    }

    /// Whether the whole stream was verified.
    pub fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Records and bytes of contents that were applied.
    pub fn done(&self) -> (u64, u64) {
        self.work.as_ref().map_or((0, 0), |work| (work.records, work.bytes))
    }

    /// Applies the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        self.buffer.drain(..self.taken);
        self.taken = 0;
        self.buffer.extend_from_slice(bytes);
        if !self.has_preamble {
            if self.buffer.len() < PREAMBLE_BYTES {
                return Ok(());
            }
            let preamble = &self.buffer[..PREAMBLE_BYTES];
            decode_preamble(preamble)?;
            self.digest.update(preamble);
            self.taken = PREAMBLE_BYTES;
            self.has_preamble = true;
        }
        let buffer = std::mem::take(&mut self.buffer);
        let fed = self.frames(&buffer);
        self.buffer = buffer;
        fed
    }

    /// Whether more than one frame is waiting: then the caller sends too much at once. For tests
    /// of the bound on memory.
    pub fn waiting(&self) -> usize {
        self.buffer.len() - self.taken
    }

    fn frames(&mut self, buffer: &[u8]) -> Result<()> {
        while let Some((record, length)) = decode_frame(&buffer[self.taken..])? {
            if self.is_complete {
                return Err(Error::refused("something follows the end of the stream", ""));
            }
            let frame = &buffer[self.taken..self.taken + length];
            match record {
                Record::End { records, bytes, digest } => self.end((records, bytes), digest)?,
                record => {
                    self.digest.update(frame);
                    self.record(&record)?;
                }
            }
            self.taken += length;
        }
        debug_assert!(buffer.len() - self.taken <= PAYLOAD_BYTES_MAX + FRAME_HEAD_BYTES);
        Ok(())
    }

    fn record(&mut self, record: &Record<'_>) -> Result<()> {
        match (record, &mut self.work) {
            (Record::Head(head), None) => self.work = Some(self.begin(head)?),
            (Record::Head(_), Some(_)) | (_, None) => {
                return Err(Error::refused("the stream begins in its middle", ""));
            }
            (Record::Resume { path }, Some(work)) => {
                if work.records > 0 || work.skipped == 0 {
                    return Err(Error::refused("the stream resumes in its middle", ""));
                }
                work.apply.open(path)?;
            }
            (record, Some(work)) => {
                work.apply.record(record)?;
                let steps = work.increment.as_ref().map_or(Steps::default(), |one| one.steps);
                if matches!(record, Record::Attr { path: b"", .. }) {
                    work.before_root.get_or_insert((work.records, steps));
                }
                work.records += 1;
                if let Some(Increment { steps, scratch, .. }) = &mut work.increment {
                    steps.add(record, scratch);
                }
                if let Record::Data { bytes, .. } = record {
                    work.bytes += bytes.len() as u64;
                }
                if work.records - work.tried.0 >= NOTED_RECORDS
                    || work.bytes - work.tried.1 >= NOTED_BYTES
                {
                    work.note_from_time_to_time()?;
                }
            }
        }
        Ok(())
    }

    fn end(&mut self, (records, bytes): (u64, u64), digest: [u8; 16]) -> Result<()> {
        let Some(work) = &self.work else {
            return Err(Error::refused("the stream has no first record", ""));
        };
        let found = self.digest.digest128().to_be_bytes();
        if (work.records, work.bytes, found) != (records, bytes, digest) {
            return Err(Error::refused(
                "the stream is damaged: its digest is not that of its bytes",
                "send it again",
            ));
        }
        self.is_complete = true;
        Ok(())
    }

    /// Finds or makes what the stream is applied to.
    fn begin(&mut self, head: &Head<'_>) -> Result<Work<'a>> {
        let (fs, caller) = (self.fs, self.caller.clone());
        let (parent, name) = (self.destination.0, self.destination.1.clone());
        let destination = (parent, &name[..]);
        self.expected = (head.bytes, head.changes);
        let Some(&origin) = head.origins.first() else {
            return Err(Error::refused("the stream does not name its source", ""));
        };
        let present = match fs.lookup(&caller, parent, &name) {
            Err(FsError::NotFound) => None,
            found => Some(crate::walk::Held::new(fs, found?)),
        };
        let snapshot = self.options.name.clone().unwrap_or_else(|| head.name.to_vec());
        let base = match (&present, head.bases.is_empty()) {
            (None, true) => None,
            (Some(_), true) => {
                return Err(Error::refused(
                    "the destination exists, and the stream is complete",
                    "a complete stream makes a new directory: name one that does not exist",
                ));
            }
            (None, false) => {
                return Err(Error::refused(
                    "the stream is an increment, and the destination does not exist",
                    "receive its base there first",
                ));
            }
            (Some(present), false) => Some(self.base(present.node(), head, &snapshot)?),
        };
        let claim = Claim::take(fs, destination, origin)?;
        let copied = base.as_ref().map(|base| base.root);
        let (stage, marked) = self.stage(destination, (origin, head), copied)?;
        // Of the increments of a destination, the one that began last continues.
        if base.is_some() {
            Stage::remove_others(fs, &caller, destination, origin);
        }
        let increment = head.bases.first().map(|&base| Increment {
            base,
            steps: Steps::from(marked.and_then(|one| one.since).map_or(0, |since| since.steps)),
            scratch: Vec::new(),
            marked,
        });
        let within = Caller { enforce: Enforce::Kernel, ..caller };
        let continues = head.skipped > 0;
        let apply = Apply::new(fs, within, stage, (continues, continues && base.is_none()));
        Ok(Work {
            apply,
            origins: head.origins.clone(),
            origin,
            name: snapshot,
            base,
            present: present.map(|present| present.node()),
            skipped: head.skipped,
            records: 0,
            bytes: 0,
            noted: (0, 0),
            tried: (0, 0),
            before_root: None,
            increment,
            _claim: claim,
        })
    }

    /// The stage of a stream that continues, or a new one; and the token by which the stage of an
    /// increment was found.
    fn stage(
        &self,
        destination: (NodeId, &[u8]),
        (origin, head): (Origin, &Head<'_>),
        copied: Option<NodeId>,
    ) -> Result<(Stage<'a>, Option<Token>)> {
        let (fs, caller, skipped) = (self.fs, &self.caller, head.skipped);
        if skipped == 0 {
            return Ok((Stage::make(fs, caller, destination, origin, copied)?, None));
        }
        let there = if copied.is_some() {
            let of = (origin, &head.bases[..]);
            match Stage::resume(fs, caller, destination, of, skipped)? {
                Ok((stage, token)) => return Ok((stage, Some(token))),
                Err(there) => there,
            }
        } else {
            match Stage::find(fs, caller, destination, origin)? {
                Some((stage, applied)) if applied == skipped => return Ok((stage, None)),
                found => found.map(|(_, applied)| Token { origin, applied, since: None }),
            }
        };
        Err(match there {
            Some(token) => Error::refused(
                format!("the stream continues elsewhere; the token is {token}"),
                "send it with `--resume` and this token",
            ),
            None => Error::refused(
                "the stream is the rest of one, and nothing of that is here",
                "send it without a token",
            ),
        })
    }

    /// The base of an increment among the snapshots of the destination.
    fn base(&self, present: NodeId, head: &Head<'_>, name: &[u8]) -> Result<SnapshotInfo> {
        let mut base = None;
        for snapshot in self.fs.snapshot_list(&self.caller, present)? {
            let origins = self.fs.origins(snapshot.subvol)?;
            let shown = snapshot.name.escape_ascii().to_string();
            if origins.iter().any(|origin| head.origins.contains(origin)) {
                if let Some(&origin) = head.origins.first() {
                    let destination = (self.destination.0, &self.destination.1[..]);
                    Stage::remove_received(self.fs, &self.caller, destination, origin);
                }
                return Err(Error::refused(
                    format!("the snapshot was received already: it is {shown} there"),
                    "there is nothing to do",
                ));
            }
            if snapshot.name == name {
                return Err(Error::refused(
                    format!("the destination has another snapshot {shown}"),
                    "name the new one by `--name`",
                ));
            }
            if origins.iter().any(|origin| head.bases.contains(origin)) {
                base = Some(snapshot);
            }
        }
        let base = base.ok_or_else(|| {
            Error::refused(
                "no snapshot of the destination is the base of the stream",
                "send from a snapshot that was received there, or all, to a new directory",
            )
        })?;
        self.check_unchanged((base.root, present))?;
        Ok(base)
    }

    /// Refuses to give up changes of the destination, unless they are to be.
    fn check_unchanged(&self, nodes: (NodeId, NodeId)) -> Result<()> {
        if !self.options.force && self.has_changed(nodes)? {
            return Err(Error::refused(
                "the destination was changed since the base of the stream",
                "`pando diff` shows how; `--force` discards these changes",
            ));
        }
        Ok(())
    }

    fn has_changed(&self, nodes: (NodeId, NodeId)) -> Result<bool> {
        let cancel = AtomicBool::new(false);
        let mut has_changed = false;
        let mut take = |change: &Difference| {
            // A directory that got its name has another time of change.
            let is_name = change.path().is_empty()
                && change.kind == ChangeKind::Modified
                && change.fields.iter().all(|field| field == Field::Ctime);
            has_changed |= !is_name;
            if has_changed { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        };
        self.fs.compare(&self.caller, nodes, &cancel, &mut take)?;
        Ok(has_changed)
    }

    /// Makes what was received visible, if the stream was whole.
    pub fn finish(mut self) -> Result<Received> {
        if !self.is_complete {
            return Err(Error::Cut);
        }
        let Some(work) = self.work.take() else { return Err(Error::Cut) };
        let published = self.publish(&work);
        let (snapshot, rolled_back) = match published {
            Ok(published) => published,
            Err(error) => {
                if is_full(&error) {
                    work.suspend();
                } else {
                    // The stream can be sent again.
                    drop_logged(&work.apply.stage);
                }
                return Err(error);
            }
        };
        if !self.options.no_hold {
            self.hold(&snapshot, work.base.as_ref());
        }
        rolled_back?;
        let Work { base, records, bytes, .. } = work;
        Ok(Received { snapshot, base, records, bytes })
    }

    /// Takes the snapshot and puts it in place. The second result: a failure of the latter.
    fn publish(&self, work: &Work<'a>) -> Result<(SnapshotInfo, Result<()>)> {
        let (fs, caller) = (self.fs, &self.caller);
        let (parent, name) = (self.destination.0, &self.destination.1[..]);
        let stage = &work.apply.stage;
        work.apply.settle()?;
        let Some(base) = &work.base else {
            let nodes = (stage.node(), stage.node());
            let snapshot = fs.snapshot_received(caller, nodes, &work.name, &work.origins)?;
            stage.publish(name)?;
            Stage::remove_others(fs, caller, (parent, name), work.origin);
            return Ok((snapshot, Ok(())));
        };
        let present = crate::walk::Held::new(fs, fs.lookup(caller, parent, name)?);
        if work.present != Some(present.node()) {
            return Err(Error::refused(
                "the destination was replaced while the stream was received",
                "send it again",
            ));
        }
        // It was compared at the beginning: the stream may have taken long.
        self.check_unchanged((base.root, present.node()))?;
        let nodes = (stage.node(), present.node());
        let snapshot = fs.snapshot_received(caller, nodes, &work.name, &work.origins)?;
        let rolled_back = fs.rollback(caller, present.node(), &work.name).map_err(Error::from);
        stage.remove()?;
        Stage::remove_others(fs, caller, (parent, name), work.origin);
        Ok((snapshot, rolled_back))
    }

    /// Holds the new snapshot, the base of the next increment, instead of the last base.
    fn hold(&self, snapshot: &SnapshotInfo, base: Option<&SnapshotInfo>) {
        if let Err(error) = self.fs.hold(&self.caller, snapshot.subvol, HOLD) {
            tracing::info!(%error, "a received snapshot is not held");
            return;
        }
        if let Some(base) = base {
            match self.fs.release(&self.caller, base.subvol, HOLD) {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => tracing::info!(%error, "the hold on a base is not released"),
            }
        }
    }

    /// Ends a stream that failed or was cut. What was applied stays if the stream can continue; of
    /// an increment in which a record is damaged, the copy that was made before it. Nothing stays
    /// of a stream that is damaged otherwise, or not allowed.
    pub fn give_up(mut self, because: Option<&Error>) -> Option<Suspended> {
        let work = self.work.take()?;
        let continues = match because {
            None | Some(Error::Cut | Error::Interrupted) => true,
            Some(error) => is_full(error),
        };
        if continues {
            return work.suspend();
        }
        // What was noted before the damage was verified.
        if matches!(because, Some(Error::Malformed(_))) && work.increment.is_some() {
            return work.leave(false);
        }
        drop_logged(&work.apply.stage);
        None
    }
}

impl Drop for Receiver<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            work.suspend();
        }
    }
}

impl Work<'_> {
    /// How many records need not be sent again, of some that were applied.
    fn applied(&self, records: u64) -> u64 {
        self.skipped + self.before_root.map_or(records, |(before, _)| before.min(records))
    }

    fn note(&mut self) -> Result<()> {
        let applied = self.applied(self.records);
        let of_root = self.before_root.map(|(_, steps)| steps);
        match &mut self.increment {
            None => self.apply.stage.note(self.origin, applied)?,
            // There is nothing to continue.
            Some(_) if applied == 0 => {}
            Some(Increment { base, steps, marked, .. }) => {
                let steps = of_root.unwrap_or(*steps).value();
                let since = Some(Since { base: *base, steps });
                let token = Token { origin: self.origin, applied, since };
                if *marked != Some(token) {
                    self.apply.stage.mark(&token)?;
                    *marked = Some(token);
                }
            }
        }
        self.noted = (self.records, self.bytes);
        Ok(())
    }

    /// Notes how much was applied while the stream continues; fails by what stops that, too.
    fn note_from_time_to_time(&mut self) -> Result<()> {
        self.tried = (self.records, self.bytes);
        match self.note() {
            Err(error) if !is_full(&error) => {
                tracing::warn!(%error, "cannot record how much of a stream was received");
                Ok(())
            }
            noted => noted,
        }
    }

    /// Leaves the stage for the rest of the stream, or of an increment its copy.
    fn suspend(mut self) -> Option<Suspended> {
        let noted = self.note();
        if let Err(error) = &noted {
            tracing::info!(%error, "a stream continues from where its progress was recorded last");
        }
        self.leave(noted.is_ok())
    }

    /// Leaves what was noted of the stream.
    fn leave(self, is_noted: bool) -> Option<Suspended> {
        if let Some(Increment { marked, .. }) = &self.increment {
            let Some(token) = *marked else {
                drop_logged(&self.apply.stage);
                return None;
            };
            if let Err(error) = self.apply.stage.remove_stage() {
                tracing::warn!(%error, "what was received of a stream is not removed");
            }
            return Some(Suspended { token });
        }
        let records = if is_noted { self.records } else { self.noted.0 };
        let applied = self.applied(records);
        Some(Suspended { token: Token { origin: self.origin, applied, since: None } })
    }
}

/// Whether a failure passes when there is space, or the volume takes changes again.
fn is_full(error: &Error) -> bool {
    let (Error::At { error, .. } | Error::Fs(error)) = error else { return false };
    matches!(error, FsError::NoSpace | FsError::QuotaExceeded | FsError::ReadOnly(_))
}

fn drop_logged(stage: &Stage<'_>) {
    if let Err(error) = stage.remove() {
        tracing::warn!(%error, "what was received of a stream is not removed");
    }
}

impl Receiver<'_> {
    /// The token of a stream to a destination that was cut, if one can continue.
    pub fn token(fs: &Fs, caller: &Caller, destination: (NodeId, &[u8])) -> Result<Option<Token>> {
        Stage::token(fs, caller, destination).at(destination.1)
    }
}
