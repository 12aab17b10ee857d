//! Removes a whole subvolume, or a tree without a subvolume, in one commit. Before it, those that
//! are mounted in it are detached in commits of bounded size, beside which writers continue. The
//! store frees the nodes in steps of its own, and marking finds contents without references.

use std::sync::Arc;

use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::SubvolId;
use ops::plan::{Effect, Plan};
use ops::subvolumes;
use ops::subvolumes::{Ledger, Through, execute_through, execute_with};
use policy::Governed;
use policy::charging::Charging;
use store::TreeId;
use vfs::FsResult;
use volume::error::from_store;
use volume::subvol::{Subvol, VOLUME, read_record};

/// Most subvolumes that one commit detaches.
const DETACHED_AT_ONCE: usize = 64;

/// How a subvolume is removed.
enum Way {
    /// Not at all: it was mounted since it was checked.
    Mounted,
    /// With what marks it as removed: there is none, or it is in use.
    Unmark,
    /// Some of the subvolumes that are mounted in it are detached first.
    Children(Vec<u64>),
    /// As a whole, with those.
    Whole(Vec<u64>),
}

/// Removes a detached subvolume that is not held. Returns how much was done, and whether it is
/// gone. Also returns the numbers of those mounted in it that were detached, once those who inherit
/// them have theirs.
pub(super) fn remove(fs: &Governed, sequence: u64, id: u64) -> FsResult<(u64, bool, Vec<u64>)> {
    let mut ledger = fs.admin.lock_known(fs);
    if let Some(given) = fs.give_to_one_heir(&mut ledger, id)? {
        return Ok((given, false, Vec::new()));
    }
    let record = read_record(&*fs.store, SubvolId(id))?;
    let quiet: Vec<Arc<Subvol>> = match &record {
        Some(record) if record.detached => vec![fs.subvol(SubvolId(id))?],
        _ => Vec::new(),
    };
    let through = Through { quiet: &quiet, changed: None };
    let aim = |_: &mut Plan| Ok(());
    let (way, came) = execute_through(fs, &mut ledger, through, aim, |ledger, plan| {
        plan.removes();
        let way = way(fs, ledger, (sequence, id), record.as_ref())?;
        let mut came = Vec::new();
        if !matches!(way, Way::Mounted | Way::Children(_)) {
            plan.batch().delete(VOLUME, &key::detached(sequence));
        }
        if let Way::Children(children) | Way::Whole(children) = &way {
            for &child in children {
                came.push(subvolumes::plan_detach(fs, ledger, plan, child)?);
            }
        }
        if let (Way::Whole(_), Some(record)) = (&way, &record) {
            plan_removal(fs, plan, &quiet[0], record)?;
        }
        Ok((way, came))
    })?;
    Ok(match way {
        Way::Mounted => (1, false, came),
        Way::Children(children) => (children.len() as u64, false, came),
        Way::Unmark | Way::Whole(_) => (1, true, came),
    })
}

/// How a subvolume is removed. Its gate is held, if it is marked as removed.
fn way(
    fs: &Governed,
    ledger: &mut Ledger,
    (sequence, id): (u64, u64),
    record: Option<&SubvolumeRecord>,
) -> FsResult<Way> {
    if fs.store.get(VOLUME, &key::detached(sequence)).map_err(from_store)?.is_none() {
        return Ok(Way::Mounted);
    }
    match record {
        None => return Ok(Way::Unmark),
        Some(record) if record.detached => {}
        Some(_) => {
            // Damage: nothing is removed for it.
            tracing::warn!(subvolume = id, "a tree that is marked as removed is in use");
            return Ok(Way::Unmark);
        }
    }
    let children = ledger.some_children(fs, id, DETACHED_AT_ONCE)?;
    // There may be more than those.
    let some = children.len() == DETACHED_AT_ONCE;
    Ok(if some { Way::Children(children) } else { Way::Whole(children) })
}

/// Plans that the records of a subvolume and its tree go.
fn plan_removal(
    fs: &Governed,
    plan: &mut Plan,
    subvol: &Arc<Subvol>,
    record: &SubvolumeRecord,
) -> FsResult<()> {
    let id = subvol.id.0;
    plan.batch().delete(VOLUME, &key::subvolume(id));
    plan.batch().delete(VOLUME, &format::inherited_record::inherited(id));
    plan.batch().delete(VOLUME, &key::usage(id));
    plan.batch().delete(VOLUME, &format::received_record::received(id));
    Charging::of(fs, plan).drop_charges(id)?;
    let orphans = [&key::ORPHANS_PREFIX[..], &id.to_be_bytes()].concat();
    let end = store::prefix_end(&orphans).expect("invariant: a tag is below 255");
    plan.batch().delete_range(VOLUME, &orphans, &end);
    plan.batch().drop_tree(TreeId(record.tree));
    plan.effect(Effect::Mounted(id, None));
    plan.effect(Effect::SubvolumeGone(Arc::clone(subvol), record.maker));
    plan.collects();
    Ok(())
}

/// Removes a tree that no subvolume lives in.
pub(super) fn remove_tree(
    fs: &Governed,
    sequence: u64,
    (tree, is_named): (u64, bool),
) -> FsResult<u64> {
    execute_with(fs, &mut fs.admin.lock(), |_, plan| {
        plan.removes();
        plan.batch().delete(VOLUME, &key::detached(sequence));
        if is_named {
            // Damage: nothing is removed for it.
            tracing::warn!(tree, "a tree that is marked as removed is in use");
        } else if fs.store.tree_exists(TreeId(tree)).map_err(from_store)? {
            plan.batch().drop_tree(TreeId(tree));
        }
        plan.collects();
        Ok(1)
    })
}
