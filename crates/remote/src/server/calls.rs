//! Executes one call for a session.
//!
//! Permissions: every call that has a rule is checked by the file system for the caller that the
//! client's grant makes of the asker (`Enforce::Here`). There is one exception, and it is that of
//! every kernel. If the session has a file open, or made it, with a right, that right applies to
//! the contents, whatever the mode became since.

use inode::permissions::{EXECUTE, READ, WRITE};
use inode::{Attr, Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr};
use vfs::{DirEntry, NewNode, Seek, SyncScope, WalkControl};
use wire::remote::{
    Asked, Asker, Entry, FrameKind, FsAnswer, FsCall, FsFailure, Listed, LockKind, LockRange, Node,
    OPEN_EXEC, OPEN_READ, OPEN_WRITE, WRITE_APPEND, put_head,
};
use wire::{Bytes, PAYLOAD_BYTES_MAX};

use super::lasting::Executed;
use super::locks::{Holder, Locking, Waiter};
use super::memory::LIST_BYTES_MAX;
use super::session::{Searching, Session};
use crate::convert;

/// What most answers fit in.
const SHORT_BYTES: usize = 160;
/// Longest read.
const READ_BYTES_MAX: usize = PAYLOAD_BYTES_MAX;
/// What an entry with attributes, and one without, takes beside its name in a kernel's listing.
const ENTRY_BYTES: (usize, usize) = (152, 24);
/// Longest copy of one call.
const COPY_BYTES_MAX: u64 = 1 << 30;

type Answered<T> = Result<T, FsError>;

/// What an answer owns.
pub(super) enum Outcome {
    /// Nothing more to send.
    Nothing,
    /// A node.
    Node(Entry),
    /// Attributes.
    Attr(Attr),
    /// Bytes.
    Bytes(Vec<u8>),
    /// A number.
    Number(u64),
    /// Entries, and whether they are the last.
    Listing(Vec<Listed>, bool),
    /// Space.
    Space(vfs::StatFs),
    /// A lock.
    Locked(Option<LockRange>),
    /// Attributes of what was opened, with a proof.
    Opened(Attr, u64),
    /// The answer comes later.
    Later,
}

/// The frame of an answer without a value.
pub(super) fn done(id: u64) -> Vec<u8> {
    frame(id, Ok(&Outcome::Nothing))
}

/// The frame of an error.
pub(super) fn failed(session: &Session, id: u64, error: &FsError) -> Vec<u8> {
    if let FsError::Io(_) = error {
        tracing::error!(client = %session.client, %error, "answered with an I/O error");
    }
    frame(id, Err(convert::failure(error)))
}

/// The frame of an answer.
pub(super) fn frame(id: u64, outcome: Result<&Outcome, FsFailure>) -> Vec<u8> {
    let mut out = Vec::with_capacity(SHORT_BYTES);
    put_head(FrameKind::Reply, id, &mut out);
    let answer: Result<FsAnswer<'_>, FsFailure> = outcome.map(|outcome| match outcome {
        Outcome::Nothing | Outcome::Later => FsAnswer::Nothing,
        Outcome::Node(entry) => FsAnswer::Entry(*entry),
        Outcome::Attr(attr) => FsAnswer::Attr(convert::attr_to_wire(attr)),
        Outcome::Bytes(bytes) => FsAnswer::Bytes(bytes),
        Outcome::Number(number) => FsAnswer::Number(*number),
        Outcome::Listing(listed, last) => FsAnswer::Listing(listed.clone(), *last),
        Outcome::Space(space) => FsAnswer::Space(convert::space_to_wire(space)),
        Outcome::Locked(lock) => FsAnswer::Locked(*lock),
        Outcome::Opened(attr, proof) => FsAnswer::Opened(convert::attr_to_wire(attr), *proof),
    });
    wire::encode(&answer, &mut out);
    out
}

/// A call under way.
pub(super) struct Executing<'a> {
    session: &'a Session,
    id: u64,
    who: &'a Asker,
}

impl<'a> Executing<'a> {
    pub(super) fn new(session: &'a Session, id: u64, who: &'a Asker) -> Executing<'a> {
        Executing { session, id, who }
    }

    /// Executes it.
    pub(super) fn run(&self, asked: &Asked<'_>) -> Answered<Outcome> {
        let call = &asked.call;
        self.may_change(call)?;
        for part in [
            Executing::names,
            Executing::making,
            Executing::contents,
            Executing::attributes,
            Executing::locking,
        ] {
            if let Some(outcome) = part(self, call)? {
                return Ok(outcome);
            }
        }
        Err(FsError::NotSupported("this call"))
    }

    fn may_change(&self, call: &FsCall<'_>) -> Answered<()> {
        if self.session.grant.read_only && call.changes() {
            return Err(FsError::ReadOnly("this client may only read".to_owned()));
        }
        Ok(())
    }

    /// Executes a call that changes something once, whichever process it was sent to first. `body`:
    /// what was asked, in bytes.
    pub(super) fn run_once(&self, asked: &Asked<'_>, body: &[u8]) -> Answered<Outcome> {
        if asked.once == 0 || !self.session.is_kept || !asked.call.changes() {
            return self.run(asked);
        }
        let Some(_changing) = self.session.changing() else { return Err(FsError::Stale) };
        self.may_change(&asked.call)?;
        self.session.admit(asked.once, asked.done)?;
        let request = self.session.request(asked.once, body);
        match self.session.executed(&request)? {
            Some(executed) => self.repeated(&asked.call, &executed),
            None => vfs::with_request(&request, || self.run(asked)),
        }
    }

    /// The answer to a call that was executed before this process served the volume.
    fn repeated(&self, call: &FsCall<'_>, executed: &Executed) -> Answered<Outcome> {
        let made = |name: Option<(Node, &[u8])>, opened: Option<u8>| {
            let lasting = self.session.volume.lasting.as_ref().ok_or(FsError::Stale)?;
            self.caller()?;
            // (Whether there is space is not asked: it was executed.)
            let entry = match (executed.node, name) {
                (Some(node), _) => lasting.find_again(node)?,
                // A snapshot, as earlier programs recorded it.
                (None, Some((parent, name))) => {
                    self.fs().lookup(&self.caller()?, self.own_node(parent)?, name)?
                }
                (None, None) => return Err(FsError::Stale),
            };
            self.found(&entry, opened)
        };
        match *call {
            FsCall::Create { parent, name, flags, .. } => made(Some((parent, name)), Some(flags)),
            FsCall::TmpFile { flags, .. } => made(None, Some(flags)),
            FsCall::MakeNode { parent, name, .. }
            | FsCall::MakeDir { parent, name, .. }
            | FsCall::SymLink { parent, name, .. }
            | FsCall::Link { parent, name, .. } => made(Some((parent, name)), None),
            FsCall::SetAttr { node, .. } => {
                Ok(Outcome::Attr(self.fs().getattr(&self.anybody(), self.own_node(node)?)?))
            }
            FsCall::CopyRange { .. } => Ok(Outcome::Number(executed.number)),
            _ => Ok(Outcome::Nothing),
        }
    }

    fn fs(&self) -> &dyn vfs::FileSystem {
        &*self.session.volume.fs
    }

    fn own_node(&self, node: Node) -> Answered<NodeId> {
        self.session.own_node(node)
    }

    /// The caller, whose permissions the file system checks.
    fn caller(&self) -> Answered<Caller> {
        self.session.grant.caller(self.who).map_err(|refusal| {
            tracing::info!(client = %self.session.client, %refusal, "refused");
            FsError::AccessDenied
        })
    }

    /// The caller for what needs no permission: of a user for whom the client may not ask, nobody.
    fn anybody(&self) -> Caller {
        let ends = Ends { set_id: true, capabilities: true };
        let nobody = || Caller { uid: rpc::NOBODY, gid: rpc::NOBODY, ends, ..Caller::root() };
        self.session.grant.caller(self.who).unwrap_or_else(|_| nobody())
    }

    /// The caller for the contents of a node: one that needs no permission if the session has the
    /// node open with the right.
    fn caller_with(&self, node: NodeId, right: u8) -> Answered<Caller> {
        if !self.session.has_open(node, right) {
            return self.caller();
        }
        // (Pages that were stored into a map come for the owner of the file.)
        Ok(Caller { enforce: Enforce::Kernel, ..self.anybody() })
    }

    /// What the client learns of a node that the file system counted a look-up of.
    fn found(&self, entry: &vfs::Entry, opened: Option<u8>) -> Answered<Outcome> {
        self.session.hold(entry.node, opened)?;
        Ok(Outcome::Node(self.entry(entry.node, &entry.attr, opened.unwrap_or(0))))
    }

    fn entry(&self, node: NodeId, attr: &Attr, rights: u8) -> Entry {
        let in_snapshot = self.fs().is_in_snapshot(node);
        Entry { in_snapshot, ..self.created(node, attr, rights) }
    }

    /// The entry of a file that was created: in no snapshot, which may only be read.
    fn created(&self, node: NodeId, attr: &Attr, rights: u8) -> Entry {
        let generation = self.fs().generation(node);
        Entry {
            node: convert::node_to_wire(node),
            generation,
            proof: self.session.proof(node, generation, rights),
            in_snapshot: false,
            attr: convert::attr_to_wire(attr),
        }
    }

    /// Bounds what may take as long as a search: what is below `.search`.
    fn search_turn(&self, node: NodeId) -> Answered<Option<Searching<'_>>> {
        self.fs().is_volatile(node).then(|| self.session.begin_search()).transpose()
    }

    fn names(&self, call: &FsCall<'_>) -> Answered<Option<Outcome>> {
        let fs = self.fs();
        Ok(Some(match *call {
            FsCall::Lookup { parent, name } => {
                let (caller, parent) = (self.caller()?, self.own_node(parent)?);
                let _turn = self.search_turn(parent)?;
                let entry = fs.lookup(&caller, parent, name)?;
                self.session.hold_if_space(entry.node)?;
                Outcome::Node(self.entry(entry.node, &entry.attr, 0))
            }
            FsCall::Unlink { parent, name } => {
                fs.unlink(&self.caller()?, self.own_node(parent)?, name)?;
                Outcome::Nothing
            }
            FsCall::RemoveDir { parent, name } => {
                fs.rmdir(&self.caller()?, self.own_node(parent)?, name)?;
                Outcome::Nothing
            }
            FsCall::Rename { from, from_name, to, to_name, how } => {
                let (from, to) = ((self.own_node(from)?, from_name), (self.own_node(to)?, to_name));
                fs.rename(&self.caller()?, from, to, convert::renaming(how))?;
                Outcome::Nothing
            }
            FsCall::List { directory, cookie, attributes, bytes } => {
                self.list(directory, cookie, attributes, bytes)?
            }
            FsCall::Forget { ref items } => {
                self.session.forget(items);
                Outcome::Nothing
            }
            _ => return Ok(None),
        }))
    }

    fn making(&self, call: &FsCall<'_>) -> Answered<Option<Outcome>> {
        let fs = self.fs();
        let making = || -> Answered<Caller> {
            self.session.has_space()?;
            self.caller()
        };
        Ok(Some(match *call {
            FsCall::Create { parent, name, mode, flags } => {
                let new = NewNode { kind: Kind::File, mode: mode & 0o7777, rdev: 0 };
                let entry = fs.mknod(&making()?, self.own_node(parent)?, name, &new)?;
                self.session.hold(entry.node, Some(flags))?;
                Outcome::Node(self.created(entry.node, &entry.attr, flags))
            }
            FsCall::MakeNode { parent, name, kind, mode, rdev } => {
                let new = NewNode { kind, mode: mode & 0o7777, rdev };
                self.found(&fs.mknod(&making()?, self.own_node(parent)?, name, &new)?, None)?
            }
            FsCall::MakeDir { parent, name, mode } => {
                let mode = mode & 0o7777;
                self.found(&fs.mkdir(&making()?, self.own_node(parent)?, name, mode)?, None)?
            }
            FsCall::SymLink { parent, name, target } => {
                self.found(&fs.symlink(&making()?, self.own_node(parent)?, name, target)?, None)?
            }
            FsCall::Link { node, parent, name } => {
                let (node, parent) = (self.own_node(node)?, self.own_node(parent)?);
                self.found(&fs.link(&making()?, node, parent, name)?, None)?
            }
            FsCall::TmpFile { parent, mode, flags } => {
                let entry = fs.tmpfile(&making()?, self.own_node(parent)?, mode & 0o7777)?;
                self.found(&entry, Some(flags))?
            }
            _ => return Ok(None),
        }))
    }

    fn contents(&self, call: &FsCall<'_>) -> Answered<Option<Outcome>> {
        let fs = self.fs();
        Ok(Some(match *call {
            FsCall::Read { node, offset, length, untimed } => {
                let at = self.own_node(node)?;
                let caller = self.caller_with(at, OPEN_READ)?;
                let mut buffer = vec![0; (length as usize).min(READ_BYTES_MAX)];
                // (What may only be read has times that stay.)
                let read = if untimed || self.session.grant.read_only {
                    fs.read_untimed(&caller, at, offset, &mut buffer)?
                } else {
                    fs.read(&caller, at, offset, &mut buffer)?
                };
                buffer.truncate(read);
                Outcome::Bytes(buffer)
            }
            FsCall::Write { node, offset, flags, bytes } => {
                let at = self.own_node(node)?;
                let caller = self.caller_with(at, OPEN_WRITE)?;
                if flags & WRITE_APPEND == 0 {
                    fs.write(&caller, at, offset, bytes)?;
                } else if device::mutated("an append looks for the end first") {
                    fs.write(&caller, at, fs.getattr(&caller, at)?.size, bytes)?;
                } else {
                    fs.append(&caller, at, bytes)?;
                }
                Outcome::Nothing
            }
            FsCall::Seek { node, offset, hole } => {
                let what = if hole { Seek::Hole } else { Seek::Data };
                let at = self.own_node(node)?;
                let caller = self.caller_with(at, OPEN_READ)?;
                Outcome::Number(fs.seek(&caller, at, offset, what)?)
            }
            FsCall::Allocate { node, offset, length, mode } => {
                let mode = convert::allocate(mode).ok_or(FsError::InvalidArgument("the mode"))?;
                let at = self.own_node(node)?;
                let caller = self.caller_with(at, OPEN_WRITE)?;
                fs.fallocate(&caller, at, (offset, length), mode)?;
                Outcome::Nothing
            }
            FsCall::CopyRange { from, from_offset, to, to_offset, length } => {
                let (source, target) = (self.own_node(from)?, self.own_node(to)?);
                let is_open = self.session.has_open(source, OPEN_READ)
                    && self.session.has_open(target, OPEN_WRITE);
                let caller =
                    if is_open { self.caller_with(target, OPEN_WRITE)? } else { self.caller()? };
                let (source, target) = ((source, from_offset), (target, to_offset));
                let length = length.min(COPY_BYTES_MAX);
                Outcome::Number(fs.copy_range(&caller, source, target, length)?)
            }
            FsCall::Sync { node, data } => {
                let scope = if data { SyncScope::Data } else { SyncScope::All };
                fs.fsync(self.own_node(node)?, scope)?;
                Outcome::Nothing
            }
            FsCall::SyncAll => {
                fs.sync_all()?;
                Outcome::Nothing
            }
            FsCall::Open { node, flags } => self.open(node, flags)?,
            FsCall::Release { node } => {
                self.session.release(self.own_node(node)?);
                Outcome::Nothing
            }
            _ => return Ok(None),
        }))
    }

    /// Opens a file or directory: what contents are used by later is decided here.
    fn open(&self, node: Node, flags: u8) -> Answered<Outcome> {
        let (caller, at) = (self.caller()?, self.own_node(node)?);
        let mut mask = 0;
        // A program is read to be run, for which it need not be readable.
        let runs = flags & OPEN_EXEC != 0 && flags & OPEN_WRITE == 0;
        if flags & OPEN_READ != 0 {
            mask |= if runs { EXECUTE } else { READ };
        }
        if flags & OPEN_WRITE != 0 {
            if self.session.grant.read_only {
                return Err(FsError::ReadOnly("this client may only read".to_owned()));
            }
            mask |= WRITE;
        }
        let attr = self.fs().getattr(&caller, at)?;
        self.fs().access(&caller, at, mask)?;
        if runs && attr.kind != Kind::File {
            return Err(FsError::AccessDenied);
        }
        self.session.open(at, flags)?;
        let proof = self.session.proof(at, self.fs().generation(at), flags);
        Ok(Outcome::Opened(attr, proof))
    }

    fn attributes(&self, call: &FsCall<'_>) -> Answered<Option<Outcome>> {
        let fs = self.fs();
        Ok(Some(match *call {
            FsCall::GetAttr { node } => {
                Outcome::Attr(fs.getattr(&self.anybody(), self.own_node(node)?)?)
            }
            FsCall::SetAttr { node, ref changes } => {
                let only_size = changes.size.is_some()
                    && changes.mode.or(changes.uid).or(changes.gid).is_none()
                    && changes.atime.is_none();
                let node = self.own_node(node)?;
                let caller =
                    if only_size { self.caller_with(node, OPEN_WRITE)? } else { self.caller()? };
                // The time of the last change is the server's, as in every kernel: by it others
                // learn what they must read again.
                let changes = SetAttr { ctime: None, ..convert::changes(changes) };
                Outcome::Attr(fs.setattr(&caller, node, &changes)?)
            }
            FsCall::Access { node, mask } => {
                fs.access(&self.caller()?, self.own_node(node)?, mask & 7)?;
                Outcome::Nothing
            }
            FsCall::ReadLink { node, untimed } => {
                let node = self.own_node(node)?;
                Outcome::Bytes(if untimed || self.session.grant.read_only {
                    fs.readlink_untimed(&self.anybody(), node)?
                } else {
                    fs.readlink(&self.anybody(), node)?
                })
            }
            FsCall::Space { node } => Outcome::Space(fs.statfs(self.own_node(node)?)?),
            FsCall::GetXattr { node, name } => {
                let _turn =
                    fs.is_computed(name).then(|| self.session.begin_search()).transpose()?;
                Outcome::Bytes(fs.getxattr(&self.caller()?, self.own_node(node)?, name)?)
            }
            FsCall::ListXattr { node } => {
                Outcome::Bytes(fs.listxattr(&self.caller()?, self.own_node(node)?)?)
            }
            FsCall::SetXattr { node, name, value, how } => {
                let mode = convert::set_xattr(how).ok_or(FsError::InvalidArgument("the mode"))?;
                fs.setxattr(&self.caller()?, self.own_node(node)?, name, value, mode)?;
                Outcome::Nothing
            }
            FsCall::RemoveXattr { node, name } => {
                fs.removexattr(&self.caller()?, self.own_node(node)?, name)?;
                Outcome::Nothing
            }
            _ => return Ok(None),
        }))
    }

    /// Waits until those who had locks before this process served the volume have them again, or
    /// their time is over.
    fn await_reclaims(&self) -> Answered<()> {
        while self.session.volume.is_in_grace()
            && !device::mutated(
                "locks are granted before those from before the restart are claimed",
            )
        {
            if self.session.is_given_up(self.id) {
                return Err(FsError::Interrupted);
            }
            if self.session.has_ended() {
                return Err(FsError::Stale);
            }
            self.session.volume.pause();
        }
        Ok(())
    }

    fn locking(&self, call: &FsCall<'_>) -> Answered<Option<Outcome>> {
        let volume = &self.session.volume;
        let set = |node: Node, lock: LockRange, waiter: Option<u64>| {
            let node = self.own_node(node)?;
            if lock.start > lock.end {
                return Err(FsError::InvalidArgument("a lock that ends before it begins"));
            }
            // Who could not read the file could keep others from it.
            let right = match (lock.kind, lock.whole) {
                (LockKind::None, _) => 0,
                (LockKind::Exclusive, false) => OPEN_WRITE,
                _ => OPEN_READ | OPEN_WRITE,
            };
            if right != 0 && !self.session.has_open(node, right) {
                return Err(FsError::AccessDenied);
            }
            if right != 0 {
                self.await_reclaims()?;
            }
            if lock.kind == LockKind::Exclusive && self.session.grant.read_only {
                return Err(FsError::ReadOnly("this client may only read".to_owned()));
            }
            let session = self.session.id;
            let by = Holder { client: self.session.usage.number, session };
            let locking = volume.locks.set(node, by, lock, waiter);
            if let Locking::Done(granted) = &locking {
                volume.granted(granted);
            }
            // The session may have ended, and the caller gone, since they were looked at above.
            let is_open = right == 0 || self.session.has_open(node, right);
            if self.session.has_ended() {
                self.session.let_go_again();
                return Err(FsError::Stale);
            }
            if !is_open {
                volume.forget_locks(session, node);
            }
            match locking {
                Locking::Done(_) => Ok(Outcome::Number(0)),
                Locking::Refused => Ok(Outcome::Number(1)),
                Locking::Waits if self.session.is_given_up(self.id) => {
                    let waiter = Waiter { session, request: self.id };
                    // (If another gave it up, that one answers.)
                    let gave_up = volume.locks.give_up(waiter);
                    if gave_up { Err(FsError::Interrupted) } else { Ok(Outcome::Later) }
                }
                Locking::Waits => Ok(Outcome::Later),
                Locking::TooMany => Ok(Outcome::Number(2)),
                Locking::Deadlock => Ok(Outcome::Number(3)),
            }
        };
        Ok(Some(match *call {
            FsCall::Lock { node, lock, wait } => set(node, lock, wait.then_some(self.id))?,
            FsCall::TestLock { node, lock } => {
                let node = self.own_node(node)?;
                Outcome::Locked(volume.locks.test(node, self.session.id, &lock))
            }
            FsCall::Unlock { node, owner, whole } => {
                let kind = LockKind::None;
                let lock = LockRange { owner, pid: 0, kind, start: 0, end: u64::MAX, whole };
                set(node, lock, None)?
            }
            _ => return Ok(None),
        }))
    }

    fn list(
        &self,
        directory: Node,
        cookie: u64,
        attributes: bool,
        bytes: u32,
    ) -> Answered<Outcome> {
        let fs = self.fs();
        let at = self.own_node(directory)?;
        let caller = self.caller_with(at, OPEN_READ)?;
        // Attributes are what a look-up shows, which takes the permission to search.
        let attributes = attributes
            && self.session.has_space().is_ok()
            && self.caller().is_ok_and(|caller| fs.access(&caller, at, EXECUTE).is_ok());
        let _turn = self.search_turn(at)?;
        let most = (bytes as usize).clamp(1 << 10, LIST_BYTES_MAX);
        let each = if attributes { ENTRY_BYTES.0 } else { ENTRY_BYTES.1 };
        let (mut listed, mut size, mut last) = (Vec::new(), 0, true);
        let mut held: Vec<Option<(NodeId, Attr)>> = Vec::new();
        let mut take = |entry: &DirEntry<'_>| {
            let needs = each + entry.name.len().next_multiple_of(8);
            if size + needs > most && !listed.is_empty() {
                last = false;
                return WalkControl::Stop;
            }
            size += needs;
            held.push(entry.attr.map(|attr| (entry.node, *attr)));
            listed.push(Listed {
                name: Bytes::from(entry.name),
                node: convert::node_to_wire(entry.node),
                kind: entry.kind,
                cookie: entry.cookie,
                entry: None,
            });
            WalkControl::Continue
        };
        let done = if attributes {
            fs.readdirplus(&caller, at, cookie, &mut take)
        } else {
            fs.readdir(&caller, at, cookie, &mut take)
        };
        for (listed, held) in listed.iter_mut().zip(held) {
            // All of them, even if the session ended or is full: what is not held is forgotten.
            if let Some((node, attr)) = held
                && self.session.hold_if_space(node).is_ok()
            {
                listed.entry = Some(self.entry(node, &attr, 0));
            }
        }
        match done {
            Err(error) if listed.is_empty() => return Err(error),
            // The next call from there returns the error.
            Err(_) => last = false,
            Ok(()) => {}
        }
        Ok(Outcome::Listing(listed, last))
    }
}
