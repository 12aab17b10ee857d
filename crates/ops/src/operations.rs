//! An open volume with the operations on it: what they share besides [`Core`]. The operations
//! themselves are in `ops/` and `subvolumes/`.

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};

use vfs::FsResult;
use volume::subvol::{Entered, Subvol};
use volume::{Core, OpenError};

use crate::queue::Queue;
use crate::subvolumes::Admin;

/// The operations on a volume. They see no policy but what their callers pass to them.
pub struct Ops {
    core: Core,
    /// Held by operations that create or remove subvolumes.
    pub admin: Admin,
    /// What they leave to be done later.
    pub queue: Queue,
    /// Counts directories that moved or have other rights.
    moves: AtomicU64,
    /// How many directories changed their parents.
    rehung: AtomicU64,
}

impl Deref for Ops {
    type Target = Core;

    #[inline]
    fn deref(&self) -> &Core {
        &self.core
    }
}

impl DerefMut for Ops {
    fn deref_mut(&mut self) -> &mut Core {
        &mut self.core
    }
}

impl Ops {
    /// Reads what operations keep in memory of a volume.
    pub fn open(core: Core) -> Result<Ops, OpenError> {
        let admin = Admin::open(&*core.store).map_err(OpenError::inconsistent)?;
        let ops = Ops {
            core,
            admin,
            queue: Queue::new(),
            moves: AtomicU64::new(0),
            rehung: AtomicU64::new(0),
        };
        crate::unfinished::recover(&ops).map_err(OpenError::inconsistent)?;
        ops.queue.recover(&ops).map_err(OpenError::inconsistent)?;
        if ops.options.answers {
            let sessions = ops.sessions().map_err(OpenError::inconsistent)?;
            ops.queue.await_orphans(!sessions.is_empty());
        }
        Ok(ops)
    }

    /// Begins a change of a subvolume.
    #[inline]
    pub fn enter<'a>(&self, subvol: &'a Subvol) -> FsResult<Entered<'a>> {
        self.may_change()?;
        self.wait_for_objects()?;
        loop {
            let entered = subvol.enter()?;
            // Read with the gate held. So a copy of a subvolume above this one is counted before
            // this change can follow one that the copy has not.
            if subvol.given_to() == self.admin.copies() {
                return Ok(entered);
            }
            drop(entered);
            self.give_in_parts(subvol)?;
        }
    }

    /// How often directories were moved, or given other rights.
    #[inline]
    pub fn moves(&self) -> u64 {
        self.moves.load(Ordering::Acquire)
    }

    /// Counts that directories moved, or have other rights, after the commit.
    #[inline]
    pub(crate) fn directories_moved(&self) {
        self.moves.fetch_add(1, Ordering::AcqRel);
    }

    /// How many directories have changed their parents. Each is counted while its place is locked
    /// exclusively.
    #[inline]
    pub fn rehung(&self) -> u64 {
        self.rehung.load(Ordering::Acquire)
    }

    /// Counts one, after the commit and under the locks.
    pub(crate) fn directory_rehung(&self) {
        self.rehung.fetch_add(1, Ordering::AcqRel);
    }
}
