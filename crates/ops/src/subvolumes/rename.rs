//! Renames that touch subvolumes: of the name of a subvolume, inside a subvolume or into another
//! one. What is inside a subvolume does not leave it by rename; the caller copies it.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::entry_record::{EntryRecord, Target};
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use vfs::{FsResult, RenameMode};
use volume::error::inconsistent;
use volume::locks::{Lock, Mode};
use volume::permit;
use volume::subvol::{Subvol, VOLUME};
use volume::view::{FoundEntry, Search, View};

use super::execute::{Through, execute};
use super::ledger::Ledger;
use super::nested::Member;
use crate::Ops;
use crate::execute::Context;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;
use crate::posix::mknod::{check_write, parent_directory};

/// One side: directory and name.
struct Side<'a> {
    subvol: Arc<Subvol>,
    dir: u64,
    hash: u64,
    name: &'a [u8],
}

impl<'a> Side<'a> {
    fn new(fs: &Ops, parent: NodeId, name: &'a [u8]) -> FsResult<Side<'a>> {
        let (subvol, dir) = fs.place(parent)?;
        Ok(Side { hash: fs.hash.hash(name), subvol, dir, name })
    }

    fn view<'v>(&self, fs: &'v Ops) -> View<'v> {
        View::new(&*fs.store, self.subvol.tree())
    }

    fn find(&self, fs: &Ops) -> FsResult<Search> {
        self.view(fs).find(self.dir, self.hash, self.name)
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
    let source = Side::new(fs, from.0, fs.old_name(from.1)?.as_bytes())?;
    let target = Side::new(fs, to.0, fs.new_name(to.1)?.as_bytes())?;
    let at = Context::new(fs, policy, &target.subvol, target.subvol.tree());
    policy.makes_name(&at, target.dir, to.1)?;
    // Both gates exclusively: renames of subvolumes are rare, and nothing below moves meanwhile.
    let quiet = [Arc::clone(&source.subvol), Arc::clone(&target.subvol)];
    for side in &quiet {
        side.check_changes()?;
    }
    let seen = nested_of(fs, &mut fs.admin.lock_to_give(fs), &source)?;
    fs.give_before(quiet.iter().chain(&seen).map(|subvol| &**subvol))?;
    let mut ledger = fs.admin.lock_to_give(fs);
    let child = nested_of(fs, &mut ledger, &source)?;
    for subvol in quiet.iter().chain(&child) {
        fs.give_to_heirs(&mut ledger, subvol)?;
    }
    let through = Through { quiet: &quiet, changed: None };
    let aim = |plan: &mut Plan| {
        for Side { subvol, dir, hash, .. } in [&source, &target] {
            let name = Lock::Name { subvol: subvol.id.0, dir: *dir, hash: *hash };
            plan.lock(name, Mode::Exclusive);
        }
        Ok(())
    };
    let child = child.map(|child| child.id.0);
    execute(fs, ledger, through, aim, |_, plan| {
        plan_rename((fs, policy), plan, caller, (&source, &target), (child, mode))
    })
}

fn plan_rename(
    (fs, policy): (&Ops, &dyn Policy),
    plan: &mut Plan,
    caller: &Caller,
    (source, target): (&Side<'_>, &Side<'_>),
    (child, mode): (Option<u64>, RenameMode),
) -> FsResult<()> {
    let source_dir = parent_directory(fs, &source.subvol, source.view(fs), caller, source.dir)?;
    let target_dir = parent_directory(fs, &target.subvol, target.view(fs), caller, target.dir)?;
    policy.may_move_mount(&source_dir, &target_dir)?;
    let Search::Found(found) = source.find(fs)? else { return Err(FsError::NotFound) };
    let Target::Subvolume(id) = found.target else {
        return Err(FsError::CrossSubvolume("only whole subvolumes are renamed into others"));
    };
    if child.is_none_or(|child| child != id) {
        return Err(FsError::Busy("the name was changed concurrently; try again"));
    }
    let child = id;
    if mode.leaves_whiteout() {
        return Err(FsError::CrossSubvolume("a rename of a subvolume cannot leave a whiteout"));
    }
    let vacancy = match target.find(fs)? {
        Search::Vacant(vacancy) => vacancy,
        Search::Found(_) if mode.keeps_target() => return Err(FsError::Exists),
        Search::Found(_) if source.same(target) => return Ok(()),
        Search::Found(_) => {
            return Err(FsError::CrossSubvolume("a subvolume replaces nothing"));
        }
    };
    if mode == RenameMode::Exchange {
        return Err(FsError::NotFound);
    }
    let moved = Member::get(fs, child)?;
    let root = View::new(&*fs.store, moved.subvol.tree()).directory(moved.subvol.root)?;
    let mut root = root.ok_or(FsError::Stale)?;
    permit::removal(source.view(fs), source.dir, &source_dir, caller, root.uid)?;
    check_write(target.view(fs), caller, target.dir, &target_dir)?;
    let elsewhere = source.dir != target.dir || source.subvol.id != target.subvol.id;
    if elsewhere {
        let view = View::new(&*fs.store, moved.subvol.tree());
        check_write(view, caller, moved.subvol.root, &root)?;
        check_no_loop(fs, child, target)?;
    }
    plan_names(fs, plan, (source, &found), (target, &vacancy), child)?;
    let mut record = moved.record;
    record.parent = (target.subvol.id.0, target.dir, vacancy.cookie);
    plan.batch().put(VOLUME, &key::subvolume(child), &record.encode());
    root.ctime = plan.now;
    plan.put_directory(moved.subvol.tree(), moved.subvol.root, &root);
    plan.effect(Effect::Mounted(child, Some(record.parent)));
    plan.effect(Effect::DirectoriesMoved);
    plan.effect(Effect::DirectoryChanged(source.subvol.node(source.dir)));
    plan.effect(Effect::DirectoryChanged(target.subvol.node(target.dir)));
    Ok(())
}

/// The subvolume that is renamed, the volume's own and no inherited one; `None`: it is something
/// else that is renamed.
fn nested_of(fs: &Ops, ledger: &mut Ledger, side: &Side<'_>) -> FsResult<Option<Arc<Subvol>>> {
    let Search::Found(found) = side.find(fs)? else { return Ok(None) };
    if !matches!(found.target, Target::Subvolume(_)) {
        return Ok(None);
    }
    let id = fs.nested_with(ledger, &side.subvol, (side.dir, found.cookie))?;
    fs.subvol(SubvolId(id)).map(Some)
}

/// Both entries. When the two names share a chain of one hash, the removal must leave a mark.
fn plan_names(
    fs: &Ops,
    plan: &mut Plan,
    (source, found): (&Side<'_>, &FoundEntry),
    (target, vacancy): (&Side<'_>, &volume::view::Vacancy),
    child: u64,
) -> FsResult<()> {
    let one_chain = source.subvol.id == target.subvol.id
        && source.dir == target.dir
        && source.hash == target.hash;
    plan.erase_entry(source.view(fs), source.dir, found, one_chain)?;
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
    plan.insert_entry(target.view(fs), target.dir, &vacancy, &entry)?;
    plan.touch_directory(source.subvol.tree(), source.dir, -1, -1);
    plan.touch_directory(target.subvol.tree(), target.dir, 1, 1);
    Ok(())
}

/// A subvolume cannot be mounted below itself.
fn check_no_loop(fs: &Ops, child: u64, target: &Side<'_>) -> FsResult<()> {
    let mut at = target.subvol.id;
    // Damaged records may form a circle.
    let mut seen = BTreeSet::new();
    while seen.insert(at.0) {
        if at.0 == child {
            return Err(FsError::InvalidArgument("a directory cannot be moved below itself"));
        }
        match Member::get(fs, at.0)?.record {
            SubvolumeRecord { parent: (0, ..), .. } => return Ok(()),
            record => at = SubvolId(record.parent.0),
        }
    }
    Err(inconsistent(VOLUME, "subvolumes contain each other", at.0))
}
