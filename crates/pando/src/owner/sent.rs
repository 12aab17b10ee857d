//! The holds of a snapshot that is sent, and of its base.
//!
//! They are set before the first byte leaves: nothing that prunes deletes either of them while a
//! stream is under way. Dropping [`Holds`] releases those that it set.

use fs::Volume;
use inode::{Caller, FsError, NodeId, SubvolId};
use wire::Failure;

use super::about::{Answered, about};

/// The holds of one stream.
pub(super) struct Holds<'a> {
    fs: &'a Volume,
    caller: &'a Caller,
    name: &'a [u8],
    base: Option<SubvolId>,
    snapshot: SubvolId,
    /// Those that this stream set: dropping releases them.
    set: Vec<SubvolId>,
    is_held: bool,
}

impl<'a> Holds<'a> {
    /// Holds a snapshot and its base. A caller who may not hold them sends them nevertheless.
    pub(super) fn set(
        fs: &'a Volume,
        caller: &'a Caller,
        (base, snapshot): (Option<NodeId>, NodeId),
        (name, path): (&'a [u8], &[u8]),
    ) -> Answered<Option<Holds<'a>>> {
        let Some(snapshot) = fs.snapshot_of_root(snapshot).map_err(Failure::from)? else {
            return Ok(None);
        };
        let base = match base {
            Some(base) => fs.snapshot_of_root(base).map_err(Failure::from)?,
            None => None,
        };
        let mut holds = Holds { fs, caller, name, base, snapshot, set: Vec::new(), is_held: false };
        holds.is_held = holds.hold(snapshot, path)?;
        if let Some(base) = base {
            holds.hold(base, path)?;
        }
        Ok(Some(holds))
    }

    fn hold(&mut self, snapshot: SubvolId, path: &[u8]) -> Answered<bool> {
        match self.fs.hold(self.caller, snapshot, self.name) {
            Ok(()) => self.set.push(snapshot),
            Err(FsError::Exists) => {}
            // Deleted just now; or the name cannot be one of a hold.
            Err(
                error @ (FsError::NotFound | FsError::InvalidArgument(_) | FsError::NameTooLong),
            ) => return Err(about(error, path)),
            Err(error) => {
                tracing::info!(%error, "a snapshot that is sent is not held");
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The whole stream went out. The receiver has the base, so older snapshots need this hold no
    /// more. Returns whether the snapshot is held, and how many others are not any more.
    pub(super) fn finish(mut self) -> Answered<(bool, u64)> {
        self.set.clear();
        if !self.is_held {
            return Ok((false, 0));
        }
        let released = self.release_older()?;
        self.fs.sync().map_err(Failure::from)?;
        Ok((true, released))
    }

    /// The stream was cut, and can continue: its snapshot stays held for that.
    pub(super) fn keep(mut self) {
        self.set.clear();
        if let Err(error) = self.fs.sync() {
            tracing::warn!(%error, "the hold of a stream that was cut may not be durable");
        }
    }

    fn release_older(&self) -> Answered<u64> {
        let Some(base) = self.base else { return Ok(0) };
        let info = |number| self.fs.snapshot_info(number).map_err(Failure::from);
        let (of_base, of) = (info(base)?.created, info(self.snapshot)?);
        let mut released = 0;
        for other in self.fs.snapshot_list_all(self.caller).map_err(Failure::from)? {
            let is_older = other.lineage == of.lineage
                && other.root.ino() == of.root.ino()
                && other.created < of_base;
            if is_older {
                match self.fs.release(self.caller, other.subvol, self.name) {
                    Ok(()) => released += 1,
                    Err(FsError::NotFound) => {}
                    Err(error) => tracing::info!(%error, "a hold is not released"),
                }
            }
        }
        Ok(released)
    }
}

impl Drop for Holds<'_> {
    fn drop(&mut self) {
        for &snapshot in &self.set {
            if let Err(error) = self.fs.release(self.caller, snapshot, self.name) {
                tracing::warn!(%error, "the hold of a stream that failed is not released");
            }
        }
    }
}
