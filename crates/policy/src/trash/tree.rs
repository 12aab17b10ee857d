//! `rmr` into the trash. A directory with all below it moves there by one change, if the caller
//! owns all of it when that change is made (`ops::subvolumes::owned`).

use format::entry_record::Target;
use inode::{Caller, FsError, NodeId};
use ops::execute::{Context, Operation, Outcome, execute_within};
use ops::plan::Plan;
use ops::posix::moving::{End, Moved, Moving, ReadSet, TOO_DEEP};
use ops::subvolumes::Gates;
use ops::subvolumes::owned::OwnedTree;
use vfs::{FsResult, RenameMode};
use volume::RmrInfo;
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};

use super::keep::{is_trash, version};
use super::mirror;
use super::place::{self, ATTEMPTS_MAX};
use super::state::{Destination, Version};
use crate::Governed;
use crate::policies::Purpose;

/// Why a deep directory is not moved into the trash, and what to do.
const DEEP: &str = "a directory is kept in a trash below 65,536 others at most; remove one that is \
                    above it, or end the trash there with `pando trash off`";

/// What became of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Moved,
    /// There is no trash for it, or it is in one.
    Nowhere,
    /// So much changed below that who owns it is to be checked first.
    Changed,
}

impl Governed {
    /// Moves a directory with all below it into the trash. `None`: there is no trash for it.
    pub fn rmr_into_trash(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<Option<RmrInfo>> {
        let name = self.old_name(name)?.as_bytes();
        let (seen, mut owned) = self.rmr_victim(caller, parent, name)?;
        let Target::Directory = seen.target else { return Ok(None) };
        let (subvol, dir) = self.place(parent)?;
        if !owned.is_named_in(subvol.id) {
            return Err(FsError::Busy("the directory above was rolled back meanwhile; try again"));
        }
        loop {
            self.give_before([&*subvol])?;
            let gates = Gates::pass(self, &mut self.admin.lock_to_give(self), &[], Some(&subvol))?;
            let view = View::new(&*self.store, subvol.tree());
            let entries = view.directory(seen.ino)?.ok_or(FsError::NotFound)?.entries as u64;
            let kept = self.keep_tree((&subvol, view), (dir, name), (&seen, &mut owned))?;
            drop(gates);
            match kept {
                Kept::Changed => owned.catch_up()?,
                Kept::Nowhere => return Ok(None),
                Kept::Moved => {
                    self.invalidate_entry(subvol.node(dir), name);
                    self.invalidate_node(subvol.node(dir));
                    return Ok(Some(RmrInfo { detached: 0, entries }));
                }
            }
        }
    }

    /// Moves a directory with everything below it into the trash. The caller is inside the gate.
    fn keep_tree(
        &self,
        (subvol, view): (&Subvol, View<'_>),
        (dir, name): (u64, &[u8]),
        (seen, owned): (&FoundEntry, &mut OwnedTree<'_>),
    ) -> FsResult<Kept> {
        let root = Caller::root();
        if is_trash(self, subvol, view, (dir, name))? {
            return Ok(Kept::Nowhere);
        }
        for _ in 0..ATTEMPTS_MAX {
            let now = self.env.clock.now().0;
            let of = (dir, Version::of_way(subvol.id.0, dir));
            let Destination::Mirror { mirror, home, batch } =
                place::place_of(self, subvol, view, of, now)?
            else {
                return Ok(Kept::Nowhere);
            };
            let policies = self.policies_for(Purpose::IntoTrash(seen.ino));
            let at = Context::new(self, &policies, subvol, view.tree);
            let [from, to] = [dir, mirror].map(|dir| End::of(&self.hash, dir, name));
            let moving = Moving::new(&root, (from, to), RenameMode::NoReplace);
            let moved = execute_within(&at, &mut OwnedMove { moving, owned });
            owned.reopen();
            match moved {
                Ok(Some(Moved::Done)) => {
                    mirror::changed(self, subvol, mirror, name);
                    return Ok(Kept::Moved);
                }
                Ok(Some(Moved::Subvolume)) => return Ok(Kept::Nowhere),
                Ok(None) => return Ok(Kept::Changed),
                Err(FsError::Exists) => {
                    let version = version(subvol, view, dir, self.hash.hash(name), seen)?;
                    if !place::another(self, subvol, (home, batch), version) {
                        return Ok(Kept::Nowhere);
                    }
                }
                Err(FsError::NotFound) => {
                    view.find_entry(dir, self.hash.hash(name), name)?.ok_or(FsError::NotFound)?;
                    self.trash.forget();
                }
                Err(FsError::LimitReached(TOO_DEEP)) => return Err(FsError::LimitReached(DEEP)),
                Err(error) => return Err(error),
            }
        }
        Err(FsError::Busy("directories of the trash are changing continuously; try again"))
    }
}

/// A move of a tree, if the caller owns all of it. Its answer is `None` where so much changed in it
/// that this is to be checked first.
struct OwnedMove<'m, 'o, 't> {
    moving: Moving<'m>,
    owned: &'o mut OwnedTree<'t>,
}

impl Operation for OwnedMove<'_, '_, '_> {
    type Reads = Option<ReadSet>;
    type Answer = Option<Moved>;

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Option<ReadSet>> {
        self.owned.reopen();
        self.moving.guess(at)
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Option<ReadSet>, plan: &mut Plan) -> FsResult<()> {
        self.moving.aim(at, guess, plan)
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Option<ReadSet>> {
        self.moving.look(at)
    }

    fn agree(guess: &Option<ReadSet>, found: &Option<ReadSet>) -> bool {
        Moving::agree(guess, found)
    }

    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Option<ReadSet>,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Option<Moved>>> {
        if !self.owned.holds(plan)? {
            return Ok(Outcome::Done(None));
        }
        Ok(match self.moving.plan(at, found, plan)? {
            Outcome::Done(moved) => Outcome::Done(Some(moved)),
            Outcome::Again => {
                self.owned.reopen();
                Outcome::Again
            }
        })
    }
}
