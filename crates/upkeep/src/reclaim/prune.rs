//! Pruning: a snapshot or clone shares the whole tree it was taken from, including what is outside
//! of its directory. Once that outweighs the directory, what is reachable is extracted into a tree
//! of its own, and the shared one is dropped.
//!
//! 1. Pick (`due`): the tree that it was taken from has changed by more records than the directory
//!    has, or is gone.
//! 2. Begin: one commit creates the new tree (a clone of a pruned sibling's, if there is one, so
//!    that snapshots of one directory keep sharing). For a writable subvolume it also clones the
//!    present tree as the base that is extracted from. Both are recorded as detached trees, so that
//!    a crash leaves nothing behind.
//! 3. Extract in steps.
//! 4. Writable: catch up with what changed meanwhile, until little is left, and the rest with the
//!    gate held.
//! 5. Swap: one commit puts the new tree into the subvolume's record, and detaches the old one.

use format::detached_record::DetachedRecord;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{NodeId, SubvolId};
use ops::plan::{Effect, Plan};
use ops::subvolumes::{Ledger, Member, Through, execute_through, execute_with};
use policy::Governed;
use store::TreeId;
use vfs::FsResult;
use volume::error::malformed;
use volume::nodes::Location;
use volume::subvol::{Subvol, VOLUME, read_record};

use super::catch_up::{Outcome, Trees, catch_up};
use super::due::{Watch, differing};
use super::extract::{Extraction, Start};
use super::leaving::Leaving;
use crate::search_bases;

/// Most records that a catch-up takes with the gate held.
const CAUGHT_AT_ONCE: usize = 512;
/// Most records that a catch-up takes while writers run.
const CAUGHT_BESIDE: usize = 1 << 16;
/// How often a writable subvolume is caught up with before its extraction starts over.
const ROUNDS_MAX: usize = 64;

/// What pruning keeps between steps.
#[derive(Default)]
pub(crate) struct Pruner {
    job: Option<Job>,
    watch: Watch,
}

/// One subvolume that is being pruned.
struct Job {
    subvol: u64,
    root: u64,
    writable: bool,
    /// The tree that is extracted from: the subvolume's own, or a clone of it.
    base: TreeId,
    target: TreeId,
    /// Numbers under which base and target wait to be dropped.
    waits: Vec<(TreeId, u64)>,
    extraction: Option<Extraction>,
    rounds: usize,
    /// The base of the index that describes what the target began with; 0: none.
    index_base: u64,
}

impl Pruner {
    /// Whether a subvolume is being pruned.
    pub(super) fn is_busy(&self) -> bool {
        self.job.is_some()
    }

    /// Whether the current job uses a tree.
    pub(super) fn uses(&self, tree: u64) -> bool {
        self.job.as_ref().is_some_and(|job| job.waits.iter().any(|(other, _)| other.0 == tree))
    }
}

/// One step of pruning; returns how much was done.
pub(super) fn step(
    fs: &Governed,
    (pruner, leaving): (&mut Pruner, &mut Leaving),
    budget: usize,
) -> FsResult<u64> {
    if pruner.job.is_none() {
        let Some(subvol) = pruner.watch.pick(fs)? else { return Ok(0) };
        pruner.job = begin(fs, subvol)?;
        if pruner.job.is_none() {
            pruner.watch.rest(fs, subvol.0);
            return Ok(0);
        }
        return Ok(1);
    }
    let mut job = pruner.job.take().expect("invariant: there is a job");
    match advance(fs, leaving, &mut job, budget) {
        Ok(true) => pruner.job = Some(job),
        // Done, or abandoned; or the subvolume was removed meanwhile, and its trees wait under
        // their records.
        Ok(false) | Err(inode::FsError::Stale) => pruner.watch.rest(fs, job.subvol),
        // What the step had taken is lost with it, so the job begins again after a rest. To
        // continue would install a tree that lacks what could not be read.
        Err(error) => {
            pruner.watch.rest_long(fs, job.subvol);
            return Err(error);
        }
    }
    Ok(budget as u64)
}

/// Advances a job; `false` when it is done or abandoned.
fn advance(fs: &Governed, leaving: &mut Leaving, job: &mut Job, budget: usize) -> FsResult<bool> {
    if let Some(extraction) = &mut job.extraction {
        if extraction.step(&*fs.store, budget)? {
            return Ok(true);
        }
        job.extraction = None;
        return Ok(true);
    }
    if job.writable {
        job.rounds += 1;
        if job.rounds > ROUNDS_MAX {
            return Ok(false);
        }
        return finish_writable(fs, leaving, job);
    }
    let mut ledger = fs.admin.lock();
    swap(fs, leaving, &mut ledger, job, None)?;
    drop(ledger);
    notify(fs, &Member::get(fs, job.subvol)?.subvol);
    Ok(false)
}

/// Begins to prune a subvolume; `None` when it cannot be now.
fn begin(fs: &Governed, id: SubvolId) -> FsResult<Option<Job>> {
    let begun = execute_with(fs, &mut fs.admin.lock(), |ledger, plan| {
        let Some(record) = read_record(&*fs.store, id)? else { return Ok(None) };
        let writable = !record.read_only;
        if record.detached || writable && has_detached(fs, id)? {
            return Ok(None);
        }
        let sibling = sibling(fs, id, &record)?;
        let target = ledger.new_tree();
        match sibling {
            Some((tree, _)) => plan.batch().clone_tree(TreeId(tree), target),
            None => plan.batch().create_tree(target),
        }
        let mut waits = vec![(target, wait(ledger, plan, target))];
        let mut base = TreeId(record.tree);
        if writable {
            base = ledger.new_tree();
            plan.batch().clone_tree(TreeId(record.tree), base);
            waits.push((base, wait(ledger, plan, base)));
        }
        Ok(Some((record, sibling, (target, base), waits)))
    })?;
    let Some((record, sibling, (target, base), waits)) = begun else { return Ok(None) };
    let writable = !record.read_only;
    let start = if sibling.is_some() { Start::Similar } else { Start::Empty };
    let held = if writable { orphans(fs, id)? } else { Vec::new() };
    let extraction = Extraction::new((base, target), start, record.root, &held);
    Ok(Some(Job {
        subvol: id.0,
        root: record.root,
        writable,
        base,
        target,
        waits,
        extraction: Some(extraction),
        rounds: 0,
        index_base: sibling.map_or(0, |(_, base)| base),
    }))
}

/// Plans that a tree waits to be removed; returns the number that it waits under.
fn wait(ledger: &mut Ledger, plan: &mut Plan, tree: TreeId) -> u64 {
    plan.effect(Effect::Detached);
    ledger.detach(plan.batch(), DetachedRecord::Tree { tree: tree.0 })
}

/// Whether something in a subvolume waits to be reclaimed: it is not reachable, but not gone.
fn has_detached(fs: &Governed, id: SubvolId) -> FsResult<bool> {
    let mut found = false;
    fs.visit_volume(&key::DETACHED_PREFIX, &mut |_, value| {
        let record = DetachedRecord::decode(value).map_err(|error| malformed(VOLUME, &error))?;
        if let DetachedRecord::Directory { subvolume, .. } = record {
            found |= subvolume == id.0;
        }
        Ok(())
    })?;
    Ok(found)
}

/// Inodes of a subvolume that have no name but are held, or wait to be removed.
fn orphans(fs: &Governed, id: SubvolId) -> FsResult<Vec<u64>> {
    let mut found = Vec::new();
    let prefix = [&key::ORPHANS_PREFIX[..], &id.0.to_be_bytes()].concat();
    fs.visit_volume(&prefix, &mut |key, _| {
        found.push(key::parse_orphan(key).map_err(|error| malformed(VOLUME, &error))?.1);
        Ok(())
    })?;
    Ok(found)
}

/// The tree of the pruned copy of the same directory that was taken nearest, and the base of the
/// index that describes it.
fn sibling(fs: &Governed, id: SubvolId, record: &SubvolumeRecord) -> FsResult<Option<(u64, u64)>> {
    let mut nearest: Option<(u64, u64, u64)> = None;
    fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
        let malformed = |error| malformed(VOLUME, &error);
        let other = key::parse_number(key).map_err(malformed)?;
        let similar = SubvolumeRecord::decode(value).map_err(malformed)?;
        let fits = similar.pruned
            && !similar.detached
            && similar.lineage == record.lineage
            && similar.root == record.root
            && other != id.0;
        let distance = other.abs_diff(id.0);
        if fits && nearest.is_none_or(|(best, ..)| distance < best) {
            nearest = Some((distance, similar.tree, similar.base));
        }
        Ok(())
    })?;
    Ok(nearest.map(|(_, tree, base)| (tree, base)))
}

/// Catches a writable subvolume's new tree up, and swaps when that can be done at once.
fn finish_writable(fs: &Governed, leaving: &mut Leaving, job: &mut Job) -> FsResult<bool> {
    let mut ledger = fs.admin.lock();
    let Member { subvol, record } = Member::get(fs, job.subvol)?;
    if record.detached || has_detached(fs, subvol.id)? {
        return Ok(false);
    }
    let trees = Trees { old: job.base, new: subvol.tree(), target: job.target };
    let is_close = job.rounds > 1
        || differing(&*fs.store, trees.old, trees.new, CAUGHT_AT_ONCE)? < CAUGHT_AT_ONCE;
    if is_close && swap(fs, leaving, &mut ledger, job, Some(trees))? {
        drop(ledger);
        notify(fs, &subvol);
        return Ok(false);
    }
    // Too much changed to catch up with the gate held: a later state, while writers run.
    let (base, sequence) = execute_with(fs, &mut ledger, |ledger, plan| {
        let base = ledger.new_tree();
        plan.batch().clone_tree(subvol.tree(), base);
        Ok((base, wait(ledger, plan, base)))
    })?;
    drop(ledger);
    let trees = Trees { new: base, ..trees };
    let outcome = catch_up(&*fs.store, trees, job.root, CAUGHT_BESIDE)?;
    job.waits.retain(|(tree, _)| *tree != job.base);
    job.waits.push((base, sequence));
    job.base = base;
    if !matches_caught(outcome) {
        let held = orphans(fs, SubvolId(job.subvol))?;
        let trees = (base, job.target);
        job.extraction = Some(Extraction::new(trees, Start::Similar, job.root, &held));
    }
    Ok(true)
}

fn matches_caught(outcome: Outcome) -> bool {
    match outcome {
        Outcome::Caught(_) => true,
        Outcome::TooMany | Outcome::Crossed => false,
    }
}

/// Puts the new tree in place and detaches the old one, in one commit. Where a writable subvolume
/// is pruned, that is done with the gate held, and after it caught up with what changed in `trees`.
/// `false`: too much changed.
fn swap(
    fs: &Governed,
    leaving: &mut Leaving,
    ledger: &mut Ledger,
    job: &Job,
    trees: Option<Trees>,
) -> FsResult<bool> {
    let Member { subvol, record } = Member::get(fs, job.subvol)?;
    if record.detached {
        return Ok(true);
    }
    let old = record.tree;
    let quiet = [subvol];
    let quiet = if trees.is_some() { &quiet[..] } else { &[] };
    let through = Through { quiet, changed: None };
    let aim = |_: &mut Plan| Ok(());
    let swapped = execute_through(fs, ledger, through, aim, |ledger, plan| {
        if let Some(trees) = trees
            && !matches_caught(catch_up(&*fs.store, trees, job.root, CAUGHT_AT_ONCE)?)
        {
            return Ok(false);
        }
        plan_swap(fs, ledger, plan, job).map(|()| true)
    })?;
    if swapped {
        // One record was added and one removed.
        leaving.leave(fs, old);
    }
    Ok(swapped)
}

fn plan_swap(fs: &Governed, ledger: &mut Ledger, plan: &mut Plan, job: &Job) -> FsResult<()> {
    let Member { subvol, mut record } = Member::get(fs, job.subvol)?;
    let old = record.tree;
    record.tree = job.target.0;
    record.pruned = true;
    // The new tree shares nothing with the old one, so neither does what describes it.
    record.base = match search_bases::get(fs, job.index_base)? {
        Some(base) if base.complete => job.index_base,
        _ => 0,
    };
    plan.batch().put(VOLUME, &key::subvolume(job.subvol), &record.encode());
    for (tree, sequence) in &job.waits {
        if *tree == job.target {
            plan.batch().delete(VOLUME, &key::detached(*sequence));
        }
    }
    ledger.detach(plan.batch(), DetachedRecord::Tree { tree: old });
    plan.replaces_tree(subvol, TreeId(old), job.target);
    Ok(())
}

/// Notifies the kernel of counts that differ in the new tree. Walks all held inodes, so the gate is
/// released before, and no thread waits for it.
fn notify(fs: &Governed, subvol: &Subvol) {
    fs.invalidate_node(subvol.root_node());
    // Unreachable names are no longer counted.
    let linked = |node: NodeId, place| node.slot() == subvol.id.slot() && place == Location::Linked;
    for node in fs.nodes.held(linked) {
        fs.invalidate_attributes(node);
    }
}
