//! The holds of a snapshot that is sent, and of its base.
//!
//! They are set before the first byte leaves: nothing that prunes deletes either of them while a
//! stream is under way. Dropping [`Holds`] releases those that streams set, unless another stream
//! relies on them: the last one does it then. A hold that was reported stays.
//!
//! A stream that is cut keeps its holds, because it can continue. The sender does not learn why it
//! was cut: the receiver may have refused it. So of the interrupted increments from one base, only
//! the last one keeps its snapshot held. The next increment from that base under the same name,
//! whole or interrupted, takes its place.

use fs::{FsResult, Volume};
use inode::{Caller, FsError, NodeId, SubvolId};
use wire::Failure;

use super::about::{Answered, about};
use super::staged::{CutStream, Staged, StreamHold};

/// The holds of one stream.
pub(super) struct Holds<'a> {
    fs: &'a Volume,
    staged: &'a Staged,
    caller: &'a Caller,
    name: &'a [u8],
    base: Option<SubvolId>,
    snapshot: SubvolId,
    /// Those that this stream relies on.
    counted: Vec<SubvolId>,
    is_held: bool,
}

impl<'a> Holds<'a> {
    /// Holds a snapshot and its base. A caller who may not hold them sends them nevertheless.
    pub(super) fn set(
        (fs, staged): (&'a Volume, &'a Staged),
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
        let (counted, is_held) = (Vec::new(), false);
        let mut holds = Holds { fs, staged, caller, name, base, snapshot, counted, is_held };
        holds.is_held = holds.hold(snapshot, path)?;
        if let Some(base) = base {
            holds.hold(base, path)?;
        }
        Ok(Some(holds))
    }

    fn hold(&mut self, snapshot: SubvolId, path: &[u8]) -> Answered<bool> {
        // Locked until it is counted: another stream must not release it meanwhile.
        let mut all = self.staged.holds().lock();
        let release = match self.fs.hold(self.caller, snapshot, self.name) {
            Ok(()) => true,
            Err(FsError::Exists) => false,
            // Deleted just now; or the name cannot be one of a hold.
            Err(
                error @ (FsError::NotFound | FsError::InvalidArgument(_) | FsError::NameTooLong),
            ) => return Err(about(error, path)),
            Err(error) => {
                tracing::info!(%error, "a snapshot that is sent is not held");
                return Ok(false);
            }
        };
        let same = |one: &&mut StreamHold| one.snapshot == snapshot && one.name == self.name;
        if let Some(one) = all.iter_mut().find(same) {
            one.streams += 1;
            one.release |= release;
        } else {
            let name = self.name.to_vec();
            all.push(StreamHold { snapshot, name, streams: 1, release });
        }
        self.counted.push(snapshot);
        Ok(true)
    }

    /// The whole stream went out. The receiver has the base, so older snapshots need this hold no
    /// more. Returns whether the snapshot is held, and how many others are not any more. Nothing
    /// that fails here makes a failure of a stream that the receiver has.
    pub(super) fn finish(mut self) -> (bool, u64) {
        if !self.is_held || !self.is_still_held(self.snapshot) {
            return (false, 0);
        }
        if let Some(base) = self.base {
            self.is_still_held(base);
        }
        self.end(true);
        let (released, _) = self.release_cut();
        let released = released
            + self.release_older().unwrap_or_else(|failure| {
                let error = failure.message;
                tracing::warn!(%error, "holds on older snapshots are not released");
                0
            });
        if let Err(error) = self.fs.sync() {
            tracing::warn!(%error, "the hold of a stream that was sent may not be durable");
            return (false, released);
        }
        (true, released)
    }

    /// Holds a snapshot again, if somebody released it meanwhile. A hold of another user is no
    /// stream's of this one.
    fn is_still_held(&self, snapshot: SubvolId) -> bool {
        let held = || -> FsResult<bool> {
            match self.fs.hold(self.caller, snapshot, self.name) {
                Err(FsError::Exists) => {}
                held => held?,
            }
            let holds = self.fs.holds_of(snapshot)?;
            Ok(holds.iter().any(|one| one.name == self.name && one.uid == self.caller.uid))
        };
        held().unwrap_or_else(|error| {
            tracing::info!(%error, "a snapshot that was sent is not held");
            false
        })
    }

    /// The stream was cut, and can continue: its snapshot and its base stay held for that.
    pub(super) fn keep(mut self) {
        let is_own = self.end(true);
        let (_, was_cut) = self.release_cut();
        if let (Some(base), true) = (self.base, is_own || was_cut) {
            let (snapshot, name) = (self.snapshot, self.name.to_vec());
            self.staged.cut().lock().push(CutStream { base, snapshot, name });
        }
        if let Err(error) = self.fs.sync() {
            tracing::warn!(%error, "the hold of a stream that was cut may not be durable");
        }
    }

    /// This stream relies on its holds no more. Those that no other one relies on are released,
    /// unless they stay. Returns whether streams set the hold on the snapshot, and none has
    /// reported it.
    fn end(&mut self, stay: bool) -> bool {
        let mut is_own = false;
        let mut all = self.staged.holds().lock();
        for snapshot in std::mem::take(&mut self.counted) {
            let same = |one: &StreamHold| one.snapshot == snapshot && one.name == self.name;
            let Some(at) = all.iter().position(same) else { continue };
            all[at].streams -= 1;
            is_own |= snapshot == self.snapshot && all[at].release;
            all[at].release &= !stay;
            if all[at].streams > 0 || !all.swap_remove(at).release {
                continue;
            }
            match self.fs.release(self.caller, snapshot, self.name) {
                Ok(()) | Err(FsError::NotFound) => {}
                Err(error) => {
                    tracing::warn!(%error, "the hold of a stream that failed is not released");
                }
            }
        }
        is_own
    }

    /// Releases the holds on the snapshots of increments from the same base that were cut, except
    /// of those under way. Returns of how many, and whether this one was cut before.
    fn release_cut(&self) -> (u64, bool) {
        // A stream that begins meanwhile must not find a hold that is released then.
        let all = self.staged.holds().lock();
        let (mut released, mut was_cut) = (0, false);
        self.staged.cut().lock().retain(|one| {
            if Some(one.base) != self.base || one.name != self.name {
                return true;
            }
            let same = |under_way: &StreamHold| {
                under_way.snapshot == one.snapshot && under_way.name == one.name
            };
            if one.snapshot == self.snapshot {
                was_cut = true;
                return false;
            }
            if all.iter().any(same) {
                return true;
            }
            match self.fs.release(self.caller, one.snapshot, self.name) {
                Ok(()) => released += 1,
                Err(FsError::NotFound) => {}
                Err(error) => tracing::info!(%error, "a hold is not released"),
            }
            false
        });
        (released, was_cut)
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
                let is_other =
                    |one: &CutStream| (one.snapshot, &one.name[..]) != (other.subvol, self.name);
                self.staged.cut().lock().retain(is_other);
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
        self.end(false);
    }
}

#[cfg(test)]
mod tests {
    use fs::FileSystem;

    use super::*;
    use crate::daemon::fresh;

    /// A full disk takes no hold. The stream is sent nevertheless, and reported as not held.
    #[test]
    fn a_hold_that_cannot_be_written_is_reported_as_none() {
        for engine in fs::Engine::ALL {
            let env = testing::sim_env(11);
            let (fs, root) = (fresh::volume_of(engine, &env), Caller::root());
            let dir = fs.mkdir(&root, NodeId::ROOT, b"d", 0o755).unwrap().node;
            let snapshot = fs.snapshot_create(&root, dir, b"s").unwrap();
            fs.sync().unwrap();
            fresh::fill(&fs, &env);
            let staged = Staged::default();
            let set = || {
                let nodes = (None, snapshot.root);
                let name = (&b"send"[..], &b"/d@s"[..]);
                Holds::set((&fs, &staged), &root, nodes, name).unwrap().unwrap()
            };
            let count = || fs.holds_of(snapshot.subvol).unwrap().len();
            assert_eq!((set().finish(), count()), ((false, 0), 0), "{engine:?}");
            drop(set());
            assert_eq!((staged.holds().lock().len(), count()), (0, 0), "{engine:?}");
            env.device.set_capacity(None);
            assert_eq!((set().finish(), count()), ((true, 0), 1), "{engine:?}");
            fs.forget(dir, 1);
        }
    }
}
