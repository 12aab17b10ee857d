//! Renames that touch subvolumes: of the name of a subvolume, inside a subvolume or into another
//! one. What is inside a subvolume does not leave it by rename; the caller copies it.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::entry_record::{EntryRecord, Target};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::Read;
use vfs::{FsResult, RenameMode};
use volume::error::inconsistent;
use volume::locks::{Lock, Mode};
use volume::permit;
use volume::subvol::{Subvol, VOLUME, read_record};
use volume::view::{FoundEntry, Search, View};

use super::execute::{Through, Verb, VerbContext, execute_verb};
use super::ledger::Ledger;
use super::link::check_removal;
use crate::Ops;
use crate::execute::Context;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;
use crate::posix::mknod::{check_write, parent_directory};

/// One side: directory and name.
pub struct Side<'a> {
    subvol: Arc<Subvol>,
    dir: u64,
    hash: u64,
    name: &'a [u8],
}

impl<'a> Side<'a> {
    /// A name that something has.
    pub fn old(fs: &Ops, (parent, name): (NodeId, &'a [u8])) -> FsResult<Side<'a>> {
        fs.old_name(name)?;
        let (subvol, dir) = fs.place(parent)?;
        Ok(Side { hash: fs.hash.hash(name), subvol, dir, name })
    }

    /// A name that something is to have.
    pub fn new(
        fs: &Ops,
        policy: &dyn Policy,
        (parent, name): (NodeId, &'a [u8]),
    ) -> FsResult<Side<'a>> {
        fs.new_name(name)?;
        let (subvol, dir) = fs.place(parent)?;
        policy.makes_name(&Context::new(fs, policy, &subvol, subvol.tree()), dir, name)?;
        Ok(Side { hash: fs.hash.hash(name), subvol, dir, name })
    }

    fn find(&self, view: View<'_>) -> FsResult<Search> {
        view.find(self.dir, self.hash, self.name)
    }

    fn same(&self, other: &Side<'_>) -> bool {
        self.subvol.id == other.subvol.id && self.dir == other.dir && self.name == other.name
    }
}

/// Renames between two subvolumes, or renames the name of one.
pub fn rename_across(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    from: (NodeId, &[u8]),
    to: (NodeId, &[u8]),
    mode: RenameMode,
) -> FsResult<()> {
    let ends = (Side::old(fs, from)?, Side::new(fs, policy, to)?);
    for side in [&ends.0, &ends.1] {
        side.subvol.check_changes()?;
    }
    check_ends(fs, policy, caller, &ends, mode)?;
    // What it inherits is completed with the ledger unlocked after each part.
    let seen = nested_of(fs, &ends.0, |slot, id| fs.nested_at(&ends.0.subvol, slot, id))?;
    let changed = [&ends.0.subvol, &ends.1.subvol].into_iter().chain(&seen);
    fs.give_before(changed.map(|subvol| &**subvol))?;
    let mut ledger = fs.admin.lock_to_give(fs);
    let verb = RenameAcross::new(fs, &mut ledger, caller, ends, mode)?;
    for subvol in &verb.quiet {
        fs.give_to_heirs(&mut ledger, subvol)?;
    }
    execute_verb(&VerbContext::new(fs, policy), ledger, &verb)
}

/// Refuses a caller who may not do it, before anything is copied for others. The plan reads it all
/// again under the locks, in this order.
fn check_ends(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    (source, target): &(Side<'_>, Side<'_>),
    mode: RenameMode,
) -> FsResult<()> {
    let (found, source_dir) = source.subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let directory = parent_directory(fs, &source.subvol, view, caller, source.dir)?;
        let found = match source.find(view)? {
            Search::Found(found) => Some(found.target),
            Search::Vacant(_) => None,
        };
        Ok((found, directory))
    })?;
    target.subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        let directory = parent_directory(fs, &target.subvol, view, caller, target.dir)?;
        policy.may_move_mount(&source_dir, &directory)?;
        let id = match found {
            None => return Err(FsError::NotFound),
            Some(Target::Subvolume(id)) if !mode.leaves_whiteout() => id,
            Some(_) => return Ok(()),
        };
        let Search::Vacant(_) = target.find(view)? else { return Ok(()) };
        if mode == RenameMode::Exchange {
            return Err(FsError::NotFound);
        }
        source.subvol.read(|tree| {
            let view = View::new(&*fs.store, tree);
            check_removal(fs, view, (source.dir, &source_dir), caller, id)
        })?;
        check_write(view, caller, target.dir, &directory)
    })
}

/// The rename of a subvolume's name.
pub struct RenameAcross<'a> {
    caller: &'a Caller,
    source: Side<'a>,
    target: Side<'a>,
    /// The gates of both sides, and of what is renamed: its top is written as a whole. Exclusively,
    /// because renames of subvolumes are rare, and nothing below moves meanwhile.
    quiet: Vec<Arc<Subvol>>,
    /// What has the name; `None`: no subvolume.
    child: Option<Arc<Subvol>>,
    mode: RenameMode,
}

impl<'a> RenameAcross<'a> {
    /// Of the subvolume that has the name now.
    pub fn new(
        fs: &Ops,
        ledger: &mut Ledger,
        caller: &'a Caller,
        (source, target): (Side<'a>, Side<'a>),
        mode: RenameMode,
    ) -> FsResult<RenameAcross<'a>> {
        let mut quiet = vec![Arc::clone(&source.subvol), Arc::clone(&target.subvol)];
        for side in &quiet {
            side.check_changes()?;
        }
        let child = nested_of(fs, &source, |slot, _| fs.nested_with(ledger, &source.subvol, slot))?;
        quiet.extend(child.clone());
        Ok(RenameAcross { caller, source, target, quiet, child, mode })
    }
}

impl Verb for RenameAcross<'_> {
    type Answer = ();

    fn through(&self) -> Through<'_> {
        Through { quiet: &self.quiet, changed: None }
    }

    fn aim(&self, _at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        for Side { subvol, dir, hash, .. } in [&self.source, &self.target] {
            let name = Lock::Name { subvol: subvol.id.0, dir: *dir, hash: *hash };
            plan.lock(name, Mode::Exclusive);
        }
        Ok(())
    }

    fn plan(&self, at: &VerbContext<'_>, _ledger: &mut Ledger, plan: &mut Plan) -> FsResult<()> {
        let RenameAcross { caller, source, target, child, mode, .. } = self;
        let views = (at.view(&source.subvol), at.view(&target.subvol));
        let source_dir = parent_directory(at.fs, &source.subvol, views.0, caller, source.dir)?;
        let target_dir = parent_directory(at.fs, &target.subvol, views.1, caller, target.dir)?;
        at.policy.may_move_mount(&source_dir, &target_dir)?;
        let Search::Found(found) = source.find(views.0)? else { return Err(FsError::NotFound) };
        let Target::Subvolume(id) = found.target else {
            return Err(FsError::CrossSubvolume(
                "only whole subvolumes are renamed into others; copy it instead",
            ));
        };
        let Some(child) = child.as_ref().filter(|child| child.id.0 == id) else {
            return Err(FsError::Busy("the name was changed concurrently; try again"));
        };
        if mode.leaves_whiteout() {
            return Err(FsError::CrossSubvolume("a rename of a subvolume cannot leave a whiteout"));
        }
        let vacancy = match target.find(views.1)? {
            Search::Vacant(vacancy) => vacancy,
            Search::Found(_) if mode.keeps_target() => return Err(FsError::Exists),
            Search::Found(_) if source.same(target) => return Ok(()),
            Search::Found(_) => {
                return Err(FsError::CrossSubvolume(
                    "a subvolume replaces nothing; remove what has the name first",
                ));
            }
        };
        if *mode == RenameMode::Exchange {
            return Err(FsError::NotFound);
        }
        let mut record = read_record(at.reads, child.id)?.ok_or(FsError::Stale)?;
        let child_view = at.view(child);
        let mut root = child_view.directory(child.root)?.ok_or(FsError::Stale)?;
        permit::removal(views.0, source.dir, &source_dir, caller, root.uid)?;
        check_write(views.1, caller, target.dir, &target_dir)?;
        if source.dir != target.dir || source.subvol.id != target.subvol.id {
            check_write(child_view, caller, child.root, &root)?;
            check_no_loop(at.reads, child.id, target)?;
        }
        plan_names(plan, (source, views.0, &found), (target, views.1, &vacancy), id)?;
        record.parent = (target.subvol.id.0, target.dir, vacancy.cookie);
        plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
        root.ctime = plan.now;
        plan.put_directory(child_view.tree, child.root, &root);
        plan.effect(Effect::Mounted(id, Some(record.parent)));
        plan.effect(Effect::DirectoriesMoved);
        plan.effect(Effect::DirectoryChanged(source.subvol.node(source.dir)));
        plan.effect(Effect::DirectoryChanged(target.subvol.node(target.dir)));
        Ok(())
    }
}

/// The subvolume that is renamed, the volume's own and no inherited one; `None`: it is something
/// else that is renamed. `own` returns it for an entry and what that points to.
fn nested_of(
    fs: &Ops,
    side: &Side<'_>,
    own: impl FnOnce((u64, u64), u64) -> FsResult<u64>,
) -> FsResult<Option<Arc<Subvol>>> {
    let view = View::new(&*fs.store, side.subvol.tree());
    let Search::Found(found) = side.find(view)? else { return Ok(None) };
    let Target::Subvolume(id) = found.target else { return Ok(None) };
    fs.subvol(SubvolId(own((side.dir, found.cookie), id)?)).map(Some)
}

/// Both entries. When the two names share a chain of one hash, the removal must leave a mark.
fn plan_names(
    plan: &mut Plan,
    (source, source_view, found): (&Side<'_>, View<'_>, &FoundEntry),
    (target, target_view, vacancy): (&Side<'_>, View<'_>, &volume::view::Vacancy),
    child: u64,
) -> FsResult<()> {
    let one_chain = source.subvol.id == target.subvol.id
        && source.dir == target.dir
        && source.hash == target.hash;
    plan.erase_entry(source_view, source.dir, found, one_chain)?;
    let entry = EntryRecord {
        chained: false,
        ino: found.ino,
        name: target.name,
        target: Target::Subvolume(child),
    };
    let predecessor = vacancy.predecessor.filter(|(cookie, _)| {
        // The mark of the source is flagged already.
        !(one_chain && *cookie == found.cookie)
    });
    let vacancy = volume::view::Vacancy { predecessor, ..*vacancy };
    plan.insert_entry(target_view, target.dir, &vacancy, &entry)?;
    plan.touch_directory(source_view.tree, source.dir, -1, -1);
    plan.touch_directory(target_view.tree, target.dir, 1, 1);
    Ok(())
}

/// A subvolume cannot be mounted below itself.
fn check_no_loop(reads: &dyn Read, child: SubvolId, target: &Side<'_>) -> FsResult<()> {
    let mut at = target.subvol.id;
    // Damaged records may form a circle.
    let mut seen = BTreeSet::new();
    while seen.insert(at) {
        if at == child {
            return Err(FsError::InvalidArgument("a directory cannot be moved below itself"));
        }
        match read_record(reads, at)?.ok_or(FsError::Stale)? {
            SubvolumeRecord { parent: (0, ..), .. } => return Ok(()),
            record => at = SubvolId(record.parent.0),
        }
    }
    Err(inconsistent(VOLUME, "subvolumes contain each other", at.0))
}
