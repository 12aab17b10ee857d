//! Keeps heirs few while more copies are made.
//!
//! A first change below a home gives each of its heirs a copy, so they must be few. A background
//! step completes them (`inherit_step`), which takes time in proportion to what is mounted in the
//! home. No caller that makes one more copy waits for that. It does a bounded part of it for the
//! oldest heir, if there are `HEIRS_MAX`. It is refused if there are `HEIRS_LIMIT`.

use std::collections::BTreeSet;

use inode::FsError;
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
        is_root: bool,
    ) -> FsResult<()> {
        let (mut damaged, mut steps) = (BTreeSet::new(), 0);
        loop {
            let mut ledger = self.admin.lock_known(self);
            let oldest = self.heir_too_many(&mut ledger, (source, directory, is_root), &damaged)?;
            let Some(Oldest { heir, limit }) = oldest else { return Ok(()) };
            if steps == STEPS {
                return limit.map_or(Ok(()), |limit| Err(FsError::Busy(limit)));
            }
            steps += 1;
            match self.give_some(&mut ledger, heir, Need::Due) {
                Ok(_) => {}
                // One that is damaged keeps nobody from making others.
                Err(error @ (FsError::Io(_) | FsError::Stale)) => {
                    tracing::warn!(%error, heir, "cannot copy what a subvolume inherits");
                    damaged.insert(heir);
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
        (source, directory, is_root): (&Subvol, u64, bool),
        damaged: &BTreeSet<u64>,
    ) -> FsResult<Option<Oldest>> {
        let homes = homes_of(self, ledger, (source, directory), true)?;
        if homes.len() > HEIRS_MAX && !damaged.contains(&source.id.0) {
            let limit = (homes.len() > HOMES_LIMIT).then_some(HOMES_FULL);
            return Ok(Some(Oldest { heir: source.id.0, limit }));
        }
        let below = ledger.crowded_below(self, &homes)?;
        let below = below.into_iter().map(|home| (home, 2 * HEIRS_LIMIT));
        let all = homes.iter().map(|home| (home.subvolume, HEIRS_LIMIT)).chain(below);
        let (mut most, mut found) = (0, None);
        for (home, limit) in all {
            let heirs = ledger.heirs(self, home)?;
            let oldest = heirs.iter().find(|heir| !damaged.contains(heir));
            if let Some(&heir) = oldest
                && heirs.len() >= HEIRS_MAX
                && heirs.len() > most
            {
                most = heirs.len();
                let limit = (heirs.len() >= limit && !is_root).then_some(HEIRS_FULL);
                found = Some(Oldest { heir, limit });
            }
        }
        Ok(found)
    }
}
