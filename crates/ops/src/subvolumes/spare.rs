//! Keeps heirs few while more copies are made.
//!
//! A first change below a home gives each of its heirs a copy, so they must be few. A background
//! step completes them (`inherit_step`), which takes time in proportion to what is mounted in the
//! home. No caller that makes one more copy waits for that. It does a bounded part of it for the
//! oldest heir, if there are `HEIRS_MAX`. It is refused if there are `HEIRS_LIMIT`.
//!
//! The heirs of each user are counted by themselves: what others copy neither refuses a user
//! anything nor makes a user's copy dearer. Root works on the heirs of all, and is never refused.
//!
//! Invariant: a caller that is refused for another reason has not come here.

use inode::{Caller, FsError};
use vfs::FsResult;
use volume::subvol::Subvol;

use super::inherit::Need;
use super::ledger::Ledger;
use super::mounts::{HEIRS_LIMIT, HEIRS_MAX, HOMES_LIMIT};
use super::nested::homes_of;
use crate::Ops;

/// Steps that a caller takes before its copy: at most so many times 16 copies.
const STEPS: usize = 4;

const HEIRS_FULL: &str = "256 snapshots and clones of one subvolume still inherit what is mounted \
                          in it, until the background has copied that; try again later, or remove \
                          some";
const HOMES_FULL: &str = "the source still inherits what is mounted in 48 subvolumes from which it \
                          was copied, until the background has copied that; try again later";

/// An heir to complete before another copy is made.
struct Oldest {
    heir: u64,
    /// Why no other copy may be made before, if none may.
    limit: Option<&'static str>,
}

impl Ops {
    /// Copies some for heirs if one more copy of a directory exceeds a bound. It becomes an heir of
    /// the homes of its source, and of the source. The number of heirs refuses nothing to root:
    /// otherwise a user with many copies could keep it from making any.
    pub(super) fn spare_heirs(
        &self,
        (source, directory): (&Subvol, u64),
        caller: &Caller,
    ) -> FsResult<()> {
        let mut steps = 0;
        loop {
            let mut ledger = self.admin.lock_known(self);
            let oldest = self.heir_too_many(&mut ledger, (source, directory), caller)?;
            let Some(Oldest { heir, limit }) = oldest else { return Ok(()) };
            if steps == STEPS {
                return limit.map_or(Ok(()), |limit| Err(FsError::Busy(limit)));
            }
            match self.give_some(&mut ledger, heir, Need::Due) {
                Ok(_) => steps += 1,
                // One that is damaged keeps nobody from making others, and takes no step from them.
                // It is left to the background from now on.
                Err(error @ (FsError::Io(_) | FsError::Stale)) => {
                    tracing::warn!(%error, heir, "cannot copy what a subvolume inherits");
                    ledger.note_damaged(heir);
                }
                Err(error @ (FsError::ReadOnly(_) | FsError::NoSpace)) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, heir, "cannot copy what a subvolume inherits");
                    if limit.is_none() {
                        return Ok(());
                    }
                    let what = "256 snapshots and clones of one subvolume still inherit what is \
                                mounted in it, and the maker of the oldest may have no more; \
                                remove some";
                    return Err(FsError::LimitReached(what));
                }
            }
        }
    }

    /// The heir to complete before another copy of a subvolume is made: of the home that has most.
    fn heir_too_many(
        &self,
        ledger: &mut Ledger,
        (source, directory): (&Subvol, u64),
        caller: &Caller,
    ) -> FsResult<Option<Oldest>> {
        let homes = homes_of(self, ledger, (source, directory), true)?;
        if homes.len() > HEIRS_MAX && !ledger.is_damaged(source.id.0) {
            let limit = (homes.len() > HOMES_LIMIT).then_some(HOMES_FULL);
            return Ok(Some(Oldest { heir: source.id.0, limit }));
        }
        let below = ledger.crowded_below(self, &homes)?;
        let below = below.into_iter().map(|home| (home, 2 * HEIRS_LIMIT));
        let all = homes.iter().map(|home| (home.subvolume, HEIRS_LIMIT)).chain(below);
        let (mut most, mut found) = (0, None);
        for (home, limit) in all {
            let heirs = if caller.is_root() {
                ledger.heirs(self, home)?
            } else {
                ledger.heirs_by(self, home, caller.uid)?
            };
            let oldest = heirs.iter().find(|heir| !ledger.is_damaged(**heir));
            if let Some(&heir) = oldest
                && heirs.len() >= HEIRS_MAX
                && heirs.len() > most
            {
                most = heirs.len();
                let is_full = heirs.len() >= limit && !caller.is_root();
                found = Some(Oldest { heir, limit: is_full.then_some(HEIRS_FULL) });
            }
        }
        if found.as_ref().is_some_and(|found| found.limit.is_some()) {
            return Ok(found);
        }
        let mut deep = ledger.deep_below(self, &homes)?;
        deep.retain(|(heir, _)| !ledger.is_damaged(*heir));
        // That with most first: of it the next copy is made, with one more.
        // It refuses nobody anything: with 64 homes it is completed before it is copied.
        if let Some((heir, _)) = deep.into_iter().max_by_key(|(_, homes)| *homes) {
            return Ok(Some(Oldest { heir, limit: None }));
        }
        Ok(found)
    }
}
