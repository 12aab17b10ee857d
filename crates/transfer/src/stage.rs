//! Where a stream is applied: a subvolume of its own beside the destination, which only the
//! receiver may enter. It is found again by its name, which follows from the destination and the
//! snapshot that is sent.

use format::received_record::ReceivedRecord;
use format::stream::Origin;
use fs::{FileSystem, Fs, FsResult};
use inode::{Caller, FsError, NodeId, SetAttr};
use xxhash_rust::xxh3::Xxh3;

use crate::error::Result;
use crate::token::Token;
use crate::walk::Held;

/// How names of stages begin.
const PREFIX: &str = ".pando-receive-";

/// A subvolume that a stream is applied to.
pub(crate) struct Stage<'a> {
    fs: &'a Fs,
    caller: Caller,
    parent: NodeId,
    name: Vec<u8>,
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
        let entry = match fs.lookup(caller, parent, &name) {
            Err(FsError::NotFound) => return Ok(None),
            found => found?,
        };
        let root = Held::new(fs, entry);
        let Some(subvol) = fs.subvolume_of_root(root.node())? else { return Ok(None) };
        let Some(record) = fs.received(subvol)? else { return Ok(None) };
        if record.is_complete || !record.origins.contains(&origin) {
            return Ok(None);
        }
        let stage = Stage { fs, caller: caller.clone(), parent, name, root };
        Ok(Some((stage, record.applied)))
    }

    /// The token of a stream to a destination that was cut. Where there are several, that of the
    /// one that got furthest.
    pub(crate) fn token(
        fs: &Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
    ) -> FsResult<Option<Token>> {
        let mut names = Vec::new();
        fs.readdir(caller, parent, 0, &mut |entry| {
            if entry.name.starts_with(PREFIX.as_bytes()) {
                names.push(entry.name.to_vec());
            }
            fs::WalkControl::Continue
        })?;
        let mut found: Option<Token> = None;
        for staged in names {
            let held = Held::new(fs, fs.lookup(caller, parent, &staged)?);
            let Some(subvol) = fs.subvolume_of_root(held.node())? else { continue };
            let Some(record) = fs.received(subvol)?.filter(|record| !record.is_complete) else {
                continue;
            };
            for origin in record.origins {
                let is_further = found.is_none_or(|found| found.applied < record.applied);
                if name(destination, origin) == staged && is_further {
                    found = Some(Token { origin, applied: record.applied });
                }
            }
        }
        Ok(found)
    }

    /// An empty stage, or a copy of a directory.
    pub(crate) fn make(
        fs: &'a Fs,
        caller: &Caller,
        (parent, destination): (NodeId, &[u8]),
        origin: Origin,
        copy_of: Option<NodeId>,
    ) -> Result<Stage<'a>> {
        let name = name(destination, origin);
        let root = match copy_of {
            None => Held::new(fs, fs.subvolume_create(caller, parent, &name, 0o700)?),
            Some(directory) => {
                fs.clone_dir(caller, directory, parent, &name)?;
                Held::new(fs, fs.lookup(caller, parent, &name)?)
            }
        };
        fs.invalidate_entry(parent, &name);
        let stage = Stage { fs, caller: caller.clone(), parent, name, root };
        let closed = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        let prepared = stage.drop_lists().and_then(|()| {
            fs.setattr(caller, stage.node(), &closed)?;
            stage.note(origin, 0)
        });
        if let Err(error) = prepared {
            stage.remove()?;
            return Err(error.into());
        }
        Ok(stage)
    }

    /// Removes access lists: inherited ones would open what is applied to others.
    fn drop_lists(&self) -> FsResult<()> {
        for list in [format::acl::ACCESS, format::acl::DEFAULT] {
            match self.fs.removexattr(&self.caller, self.node(), list) {
                Ok(()) | Err(FsError::NoAttribute) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
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
        let from = (self.parent, &self.name[..]);
        let to = (self.parent, destination);
        self.fs.rename(&self.caller, from, to, fs::RenameMode::NoReplace)?;
        self.fs.invalidate_entry(self.parent, &self.name);
        self.fs.invalidate_entry(self.parent, destination);
        self.fs.forget_received(&self.caller, self.node())
    }

    /// Removes the stage with all in it.
    pub(crate) fn remove(&self) -> FsResult<()> {
        self.fs.rmr(&self.caller, self.parent, &self.name).map(drop)
    }
}

/// The name of the stage of a stream.
fn name(destination: &[u8], origin: Origin) -> Vec<u8> {
    let mut hash = Xxh3::new();
    hash.update(&origin.volume);
    hash.update(&origin.snapshot.to_le_bytes());
    hash.update(destination);
    format!("{PREFIX}{:016x}", hash.digest()).into_bytes()
}
