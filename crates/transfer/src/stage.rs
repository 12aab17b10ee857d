//! Where a stream is applied: a subvolume in a private directory beside the destination, which only
//! the receiver may enter. It is found again by its name, which follows from the destination and
//! the snapshot that is sent. All that streams to one destination left are found by how their names
//! begin. The beginning of an increment, and the end of each stream, remove the others.
//!
//! Of a complete stream the subvolume has a record of how much was applied, at least: what is
//! repeated has the same result. Of an increment that is not so; its stage is copied from time to
//! time, under a name that is the token. The stream continues in a copy of that copy.
//!
//! The subvolume may be a clone, whose root belongs to the owner of the destination. That user
//! could open it, and exchange what is in it. The directory around it belongs to the receiver.

use device::sync::Mutex;
use format::received_record::ReceivedRecord;
use format::stream::Origin;
use fs::{FileSystem, Fs, FsResult};
use inode::{Caller, FsError, Kind, NodeId, SetAttr};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::error::{Error, Result};
use crate::token::{Since, Token};
use crate::walk::Held;

/// How names of the directories of stages begin.
const PREFIX: &str = ".pando-receive-";
/// The name of a stage in its directory.
const STAGE: &[u8] = b"stage";
/// How names of copies of a stage begin; the token follows.
const MARK: &str = "mark-";
/// Permission bits of the directory.
const PRIVATE: u32 = 0o700;

/// A subvolume that a stream is applied to.
pub(crate) struct Stage<'a> {
    fs: &'a Fs,
    caller: Caller,
    parent: NodeId,
    /// The name of the directory.
    name: Vec<u8>,
    directory: Held<'a>,
    root: Held<'a>,
}

impl<'a> Stage<'a> {
    /// The stage of a stream that was cut, and how much was applied; `None`: there is none.
    pub(crate) fn find(
        fs: &'a Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
    ) -> FsResult<Option<(Stage<'a>, u64)>> {
        let name = name(destination, origin);
        let Some(directory) = private(fs, caller, (parent, &name))? else { return Ok(None) };
        let Some(root) = staged(fs, caller, &directory)? else { return Ok(None) };
        let Some(subvol) = fs.subvolume_of_root(root.node())? else { return Ok(None) };
        let Some(record) = fs.received(subvol)? else { return Ok(None) };
        if record.is_complete || !record.origins.contains(&origin) {
            return Ok(None);
        }
        let stage = Stage { fs, caller: caller.clone(), parent, name, directory, root };
        Ok(Some((stage, record.applied)))
    }

    /// The token of a stream to a destination that was cut. Where there are several, that of the
    /// one that got furthest. What the destination has continues no more.
    pub(crate) fn token(
        fs: &Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
    ) -> FsResult<Option<Token>> {
        let directories = left(fs, caller, (parent, destination))?;
        if directories.is_empty() {
            return Ok(None);
        }
        let received = received(fs, caller, (parent, destination))?;
        let mut found: Option<Token> = None;
        for directory in directories {
            let Some(held) = private(fs, caller, (parent, &directory))? else { continue };
            let mut tokens = marks(fs, caller, held.node())?;
            let stage = staged(fs, caller, &held)?;
            let subvol = stage.map(|held| fs.subvolume_of_root(held.node())).transpose()?.flatten();
            let record = subvol.map(|subvol| fs.received(subvol)).transpose()?.flatten();
            for record in record.into_iter().filter(|record| !record.is_complete) {
                let token = |origin| Token { origin, applied: record.applied, since: None };
                tokens.extend(record.origins.into_iter().map(token));
            }
            for token in tokens {
                let is_further = found.is_none_or(|found| found.applied < token.applied);
                let is_open = !received.contains(&token.origin);
                if is_open && is_further && name(destination, token.origin) == directory {
                    found = Some(token);
                }
            }
        }
        Ok(found)
    }

    /// The stage of an increment that was cut after so many records, as it was then, and the token
    /// of that. Otherwise the token of what is there instead, if anything is.
    pub(crate) fn resume(
        fs: &'a Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        (origin, bases): (Origin, &[Origin]),
        applied: u64,
    ) -> Result<std::result::Result<(Stage<'a>, Token), Option<Token>>> {
        let name = name(destination, origin);
        let Some(directory) = private(fs, caller, (parent, &name))? else { return Ok(Err(None)) };
        let mut marks = marks(fs, caller, directory.node())?;
        marks.retain(|token| {
            let is_of_base = |since: Since| bases.contains(&since.base);
            token.origin == origin && token.since.is_some_and(is_of_base)
        });
        let Some(&token) = marks.iter().find(|token| token.applied == applied) else {
            return Ok(Err(marks.into_iter().max_by_key(|token| token.applied)));
        };
        if staged(fs, caller, &directory)?.is_some() {
            fs.rmr(caller, directory.node(), STAGE)?;
        }
        let mark = Held::new(fs, fs.lookup(caller, directory.node(), &mark(&token))?);
        fs.clone_dir(caller, mark.node(), directory.node(), STAGE)?;
        let root = Held::new(fs, fs.lookup(caller, directory.node(), STAGE)?);
        let stage = Stage { fs, caller: caller.clone(), parent, name, directory, root };
        close(fs, caller, stage.node())?;
        Ok(Ok((stage, token)))
    }

    /// Keeps a copy of the stage as it is, in place of earlier ones. One of that name is the same:
    /// it stayed when an earlier one could not be removed, and the stream began again there.
    pub(crate) fn mark(&self, token: &Token) -> FsResult<()> {
        let directory = self.directory.node();
        let earlier = marks(self.fs, &self.caller, directory)?;
        if !earlier.contains(token) {
            self.fs.clone_dir(&self.caller, self.node(), directory, &mark(token))?;
        }
        for one in earlier.iter().filter(|one| *one != token) {
            // The next copy removes it: the stream continues from either.
            if let Err(error) = self.fs.rmr(&self.caller, directory, &mark(one)) {
                tracing::info!(%error, "an earlier copy of what was received is not removed");
            }
        }
        Ok(())
    }

    /// Removes what other streams to a destination left, except where one is received. What cannot
    /// be removed stays: this stream does not need it.
    pub(crate) fn remove_others(
        fs: &Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
    ) {
        let own = name(destination, origin);
        let directories = left(fs, caller, (parent, destination)).unwrap_or_else(|error| {
            tracing::warn!(%error, "what was received of other streams is not found");
            Vec::new()
        });
        for directory in directories.into_iter().filter(|one| *one != own) {
            let Some(_claim) = Claim::of(fs, parent, &directory) else { continue };
            if let Err(error) = remove_left(fs, caller, (parent, &directory)) {
                tracing::warn!(%error, "what was received of another stream is not removed");
            }
        }
    }

    /// Removes what a stream left that was received: the power failed just then.
    pub(crate) fn remove_received(
        fs: &Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
    ) {
        let own = name(destination, origin);
        let Some(_claim) = Claim::of(fs, parent, &own) else { return };
        if let Err(error) = remove_left(fs, caller, (parent, &own)) {
            tracing::warn!(%error, "what is left of a stream that was received is not removed");
        }
    }

    /// An empty stage, or a copy of a directory, in place of one that was left. Only an empty one
    /// has a record, by which it is found again.
    pub(crate) fn make(
        fs: &'a Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
        copy_of: Option<NodeId>,
    ) -> Result<Stage<'a>> {
        let name = name(destination, origin);
        remove_left(fs, caller, (parent, &name))?;
        let directory = Held::new(fs, fs.mkdir(caller, parent, &name, PRIVATE)?);
        fs.invalidate_entry(parent, &name);
        let made = close(fs, caller, directory.node()).and_then(|()| {
            if let Some(copied) = copy_of {
                fs.clone_dir(caller, copied, directory.node(), STAGE)?;
                return fs.lookup(caller, directory.node(), STAGE);
            }
            fs.subvolume_create(caller, directory.node(), STAGE, PRIVATE)
        });
        let root = match made {
            Ok(entry) => Held::new(fs, entry),
            Err(error) => {
                drop(directory);
                remove_left(fs, caller, (parent, &name))?;
                return Err(error.into());
            }
        };
        let stage = Stage { fs, caller: caller.clone(), parent, name, directory, root };
        let prepared = close(fs, caller, stage.node()).and_then(|()| match copy_of {
            None => stage.note(origin, 0),
            Some(_) => Ok(()),
        });
        if let Err(error) = prepared {
            stage.remove()?;
            return Err(error.into());
        }
        Ok(stage)
    }

    pub(crate) fn node(&self) -> NodeId {
        self.root.node()
    }

    /// A name in the stage that the stream does not use.
    pub(crate) fn parked(&self) -> Vec<u8> {
        [&b".pando-parked-"[..], &self.name[PREFIX.len()..]].concat()
    }

    /// Notes how many records were applied.
    pub(crate) fn note(&self, origin: Origin, applied: u64) -> FsResult<()> {
        let record = ReceivedRecord { is_complete: false, applied, origins: vec![origin] };
        self.fs.note_received(&self.caller, self.node(), &record)
    }

    /// Gives the stage its name.
    pub(crate) fn publish(&self, destination: &[u8]) -> FsResult<()> {
        let from = (self.directory.node(), STAGE);
        let to = (self.parent, destination);
        self.fs.rename(&self.caller, from, to, fs::RenameMode::NoReplace)?;
        self.fs.invalidate_entry(self.directory.node(), STAGE);
        self.fs.invalidate_entry(self.parent, destination);
        self.fs.forget_received(&self.caller, self.node())?;
        if let Err(error) = self.remove_directory() {
            tracing::warn!(%error, "the directory that a stream was received in is not removed");
        }
        Ok(())
    }

    /// Removes the stage with all in it, and its copies.
    pub(crate) fn remove(&self) -> FsResult<()> {
        empty(self.fs, &self.caller, &self.directory)?;
        self.remove_directory()
    }

    /// Removes the stage alone: its copies stay.
    pub(crate) fn remove_stage(&self) -> FsResult<()> {
        self.fs.rmr(&self.caller, self.directory.node(), STAGE).map(drop)
    }

    /// Removes the directory, if its name still points to it.
    fn remove_directory(&self) -> FsResult<()> {
        let found = private(self.fs, &self.caller, (self.parent, &self.name))?;
        if found.is_some_and(|found| found.node() == self.directory.node()) {
            self.fs.rmdir(&self.caller, self.parent, &self.name)?;
            self.fs.invalidate_entry(self.parent, &self.name);
        }
        Ok(())
    }
}

/// The directory of a stage that only the caller enters; `None`: there is none, or another user
/// made what has the name.
fn private<'a>(
    fs: &'a Fs,
    caller: &Caller,
    (parent, name): (NodeId, &[u8]),
) -> FsResult<Option<Held<'a>>> {
    let held = match fs.lookup(caller, parent, name) {
        Err(FsError::NotFound) => return Ok(None),
        found => Held::new(fs, found?),
    };
    let attr = &held.entry.attr;
    let is_private =
        attr.kind == Kind::Directory && attr.uid == caller.uid && attr.mode & 0o777 == PRIVATE;
    // A subvolume would have other names and copies.
    Ok((is_private && fs.subvolume_of_root(held.node())?.is_none()).then_some(held))
}

/// The stage in a private directory.
fn staged<'a>(fs: &'a Fs, caller: &Caller, directory: &Held<'a>) -> FsResult<Option<Held<'a>>> {
    let held = match fs.lookup(caller, directory.node(), STAGE) {
        Err(FsError::NotFound) => return Ok(None),
        found => Held::new(fs, found?),
    };
    Ok(fs.subvolume_of_root(held.node())?.is_some().then_some(held))
}

/// Removes a stage that a crash or another stream left, if it is the caller's.
fn remove_left(fs: &Fs, caller: &Caller, (parent, name): (NodeId, &[u8])) -> FsResult<()> {
    let Some(directory) = private(fs, caller, (parent, name))? else { return Ok(()) };
    empty(fs, caller, &directory)?;
    fs.rmdir(caller, parent, name)?;
    fs.invalidate_entry(parent, name);
    Ok(())
}

/// Removes the stage in a private directory, and its copies.
fn empty(fs: &Fs, caller: &Caller, directory: &Held<'_>) -> FsResult<()> {
    for token in marks(fs, caller, directory.node())? {
        fs.rmr(caller, directory.node(), &mark(&token))?;
    }
    if staged(fs, caller, directory)?.is_some() {
        fs.rmr(caller, directory.node(), STAGE)?;
    }
    Ok(())
}

/// The names of all that streams to a destination left, or fill.
fn left(
    fs: &Fs,
    caller: &Caller,
    (parent, destination): (NodeId, &[u8]),
) -> FsResult<Vec<Vec<u8>>> {
    let (mut names, prefix) = (Vec::new(), prefix(destination));
    fs.readdir(caller, parent, 0, &mut |entry| {
        if entry.name.starts_with(prefix.as_bytes()) {
            names.push(entry.name.to_vec());
        }
        fs::WalkControl::Continue
    })?;
    Ok(names)
}

/// The identities of the snapshots of a destination, if it is there.
fn received(
    fs: &Fs,
    caller: &Caller,
    (parent, destination): (NodeId, &[u8]),
) -> FsResult<Vec<Origin>> {
    let held = match fs.lookup(caller, parent, destination) {
        Err(FsError::NotFound) => return Ok(Vec::new()),
        found => Held::new(fs, found?),
    };
    let mut origins = Vec::new();
    if held.entry.attr.kind == Kind::Directory {
        for snapshot in fs.snapshot_list(caller, held.node())? {
            origins.extend(fs.origins(snapshot.subvol)?);
        }
    }
    Ok(origins)
}

/// The name of a copy of a stage.
fn mark(token: &Token) -> Vec<u8> {
    format!("{MARK}{token}").into_bytes()
}

/// The tokens of the copies of a stage, by their names in its private directory.
fn marks(fs: &Fs, caller: &Caller, directory: NodeId) -> FsResult<Vec<Token>> {
    let mut tokens = Vec::new();
    fs.readdir(caller, directory, 0, &mut |entry| {
        let text = entry.name.strip_prefix(MARK.as_bytes());
        let text = text.and_then(|text| std::str::from_utf8(text).ok());
        tokens.extend(text.and_then(Token::parse));
        fs::WalkControl::Continue
    })?;
    Ok(tokens)
}

/// Removes access lists and the bits of others: inherited or copied ones would open what is
/// applied to others.
fn close(fs: &Fs, caller: &Caller, directory: NodeId) -> FsResult<()> {
    for list in [format::acl::ACCESS, format::acl::DEFAULT] {
        match fs.removexattr(caller, directory, list) {
            Ok(()) | Err(FsError::NoAttribute) => {}
            Err(error) => return Err(error),
        }
    }
    let closed = SetAttr { mode: Some(PRIVATE), ..SetAttr::default() };
    fs.setattr(caller, directory, &closed).map(drop)
}

/// The volume, the parent of the destination, and the name of the directory.
type Destination = (usize, NodeId, Vec<u8>);

/// Stages that are in use. It is not part of a volume, because nothing else asks a volume which
/// streams it receives. The address distinguishes volumes that are open in one process.
static ACTIVE: Mutex<Vec<Destination>> = Mutex::new(Vec::new());

/// Keeps others from receiving the same stream at the same place.
pub(crate) struct Claim {
    place: Destination,
}

impl Claim {
    /// Takes a place, if nobody receives there.
    pub(crate) fn take(
        fs: &Fs,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
    ) -> Result<Claim> {
        Claim::of(fs, parent, &name(destination, origin)).ok_or_else(|| {
            Error::refused(
                "another command receives there",
                "wait for it, or end it, and send again",
            )
        })
    }

    /// Takes the directory of a stage; `None`: another has it.
    fn of(fs: &Fs, parent: NodeId, directory: &[u8]) -> Option<Claim> {
        let place = (std::ptr::from_ref(fs).addr(), parent, directory.to_vec());
        let mut active = ACTIVE.lock();
        if active.contains(&place) {
            return None;
        }
        active.push(place.clone());
        Some(Claim { place })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        ACTIVE.lock().retain(|place| *place != self.place);
    }
}

/// How names of the directories of stages of a destination begin.
fn prefix(destination: &[u8]) -> String {
    format!("{PREFIX}{:016x}-", xxh3_64(destination))
}

/// The name of the directory of the stage of a stream.
fn name(destination: &[u8], origin: Origin) -> Vec<u8> {
    let mut hash = Xxh3::new();
    hash.update(&origin.volume);
    hash.update(&origin.snapshot.to_le_bytes());
    hash.update(destination);
    format!("{}{:016x}", prefix(destination), hash.digest()).into_bytes()
}
