//! Executes the verbs on whole directories. The ledger, gates, and locks are taken in that order.
//! Then the verb reads and plans, one commit follows, and the effects of the plan.
//!
//! A verb takes the gates of what it copies exclusively, and of what gets a name shared. It takes
//! them in the order of their numbers, so no two threads wait for each other.
//!
//! A thread that has the gate exclusively keeps the subvolume as it is. So what a verb reads of it
//! then still holds when its plan is committed: nothing is guessed.
//!
//! A [`Verb`] is a value that plans over any records, so a test looks at its plan without a store.
//! What reads for long, such as the walk of `rmr`, is done before. Verbs with several commits are
//! functions over `execute` and its parts.

use std::sync::Arc;

use device::sync::{MutexGuard, RwLockWriteGuard};
use inode::{FsError, SubvolId};
use store::Read;
use vfs::FsResult;
use volume::subvol::{Entered, Subvol};
use volume::view::View;

use super::ledger::Ledger;
use crate::Ops;
use crate::execute::{apply, commit, notify, sign};
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// The gates that a verb passes: exclusively those of `quiet`, shared that of `changed`.
#[derive(Clone, Copy, Default)]
pub struct Through<'a> {
    /// What nothing changes meanwhile.
    pub quiet: &'a [Arc<Subvol>],
    /// What gets a name, or loses one.
    pub changed: Option<&'a Arc<Subvol>>,
}

/// What a verb reads from, and who sees its plan.
#[derive(Clone, Copy)]
pub struct VerbContext<'a> {
    /// Tables and numbers.
    pub fs: &'a Ops,
    /// What sees the plan.
    pub policy: &'a dyn Policy,
    /// The records of all trees.
    pub reads: &'a dyn Read,
}

impl<'a> VerbContext<'a> {
    /// Of the records that the volume has now.
    pub fn new(fs: &'a Ops, policy: &'a dyn Policy) -> VerbContext<'a> {
        VerbContext { fs, policy, reads: &*fs.store }
    }

    /// The records of a subvolume.
    pub fn view(&self, subvol: &Subvol) -> View<'a> {
        View::new(self.reads, subvol.tree())
    }
}

/// A verb with one commit. What it reads holds until then: it passes the gates, or has the locks.
pub trait Verb {
    /// The answer to the caller.
    type Answer;

    /// The gates that it passes.
    fn through(&self) -> Through<'_>;

    /// Names the locks. The gates are passed.
    fn aim(&self, at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()>;

    /// Reads, and describes the change.
    fn plan(
        &self,
        at: &VerbContext<'_>,
        ledger: &mut Ledger,
        plan: &mut Plan,
    ) -> FsResult<Self::Answer>;
}

/// Executes a verb.
pub(super) fn execute_verb<V: Verb>(
    at: &VerbContext<'_>,
    ledger: MutexGuard<'_, Ledger>,
    verb: &V,
) -> FsResult<V::Answer> {
    let aim = |plan: &mut Plan| verb.aim(at, plan);
    execute(at.fs, ledger, verb.through(), aim, |ledger, plan| verb.plan(at, ledger, plan))
}

/// Executes a verb as one of several commits, with the ledger locked throughout.
pub(super) fn execute_verb_step<V: Verb>(
    at: &VerbContext<'_>,
    (ledger, plan): (&mut Ledger, &mut Plan),
    verb: &V,
) -> FsResult<V::Answer> {
    let aim = |plan: &mut Plan| verb.aim(at, plan);
    let change = |ledger: &mut Ledger, plan: &mut Plan| verb.plan(at, ledger, plan);
    execute_step(at.fs, ledger, plan, verb.through(), (aim, change))
}

/// Executes a verb: `aim` names the locks, `change` reads under them and plans.
pub fn execute<T>(
    fs: &Ops,
    mut ledger: MutexGuard<'_, Ledger>,
    through: Through<'_>,
    aim: impl FnOnce(&mut Plan) -> FsResult<()>,
    change: impl FnOnce(&mut Ledger, &mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    let mut plan = Plan::new();
    let mut request = vfs::take_request();
    let signed = |ledger: &mut Ledger, plan: &mut Plan| {
        let answer = change(ledger, plan)?;
        if !plan.is_empty() {
            sign(&mut request, plan)?;
        }
        Ok(answer)
    };
    let answer = execute_step(fs, &mut ledger, &mut plan, through, (aim, signed))?;
    drop(ledger);
    plan.notify(|notice| notify(fs, notice));
    plan.end();
    Ok(answer)
}

/// Executes a change of what the ledger keeps as it is: records of subvolumes and settings of the
/// volume. It passes no gate, and takes no locks.
pub fn execute_with<T>(
    fs: &Ops,
    ledger: &mut Ledger,
    change: impl FnOnce(&mut Ledger, &mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    execute_through(fs, ledger, Through::default(), |_| Ok(()), change)
}

/// As `execute`, for a caller that keeps the ledger.
pub fn execute_through<T>(
    fs: &Ops,
    ledger: &mut Ledger,
    through: Through<'_>,
    aim: impl FnOnce(&mut Plan) -> FsResult<()>,
    change: impl FnOnce(&mut Ledger, &mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    let mut plan = Plan::new();
    let done = execute_step(fs, ledger, &mut plan, through, (aim, change));
    debug_assert!(!plan.has_notices(), "notices are sent without the ledger");
    plan.end();
    done
}

/// One commit of a verb that has several, with the ledger locked throughout. The plan keeps the
/// notifications of front ends.
pub(super) fn execute_step<T>(
    fs: &Ops,
    ledger: &mut Ledger,
    plan: &mut Plan,
    through: Through<'_>,
    (aim, change): (
        impl FnOnce(&mut Plan) -> FsResult<()>,
        impl FnOnce(&mut Ledger, &mut Plan) -> FsResult<T>,
    ),
) -> FsResult<T> {
    let gates = Gates::pass(fs, ledger, through.quiet, through.changed)?;
    aim(plan)?;
    let locks = fs.locks.lock(plan.locks());
    plan.set_time(fs.env.clock.now());
    let answer = change(ledger, plan).inspect_err(|_| plan.give_up(&fs.data))?;
    if plan.is_empty() {
        plan.give_up(&fs.data);
    } else {
        commit_plan(fs, ledger, plan).inspect_err(|_| plan.give_up(&fs.data))?;
    }
    plan.apply(|effect| match effect {
        Effect::Mounted(subvol, place) => ledger.moved(*subvol, *place),
        Effect::Copied(copied) => copied.settle_and_count(fs, ledger),
        Effect::Given(copied) => copied.settle(fs, ledger),
        Effect::Doubted(place) => ledger.set_doubted(*place),
        Effect::Inherits(heir, homes) => {
            if homes.is_empty()
                && let Ok(heir) = fs.subvol(SubvolId(*heir))
            {
                heir.set_complete();
            }
            ledger.inherits_only(*heir, homes.clone());
        }
        Effect::SubvolumeGone(subvol, maker) => {
            subvol.set_gone();
            ledger.removed(subvol.id.0, *maker);
            fs.subvols.remove(&fs.nodes, subvol.id);
        }
        effect => apply(fs, effect),
    });
    drop((locks, gates));
    Ok(answer)
}

/// Commits a plan with the ledger's counters.
pub(super) fn commit_plan(fs: &Ops, ledger: &Ledger, plan: &mut Plan) -> FsResult<()> {
    ledger.write(plan.batch());
    plan.batch().check().map_err(|_| {
        FsError::LimitReached("the changes of one commit exceed 16 MiB; make fewer at a time")
    })?;
    let done = commit(fs, plan).map(drop);
    if !matches!(done, Err(FsError::NoSpace)) {
        // Of any other error it is not known what became of the batch.
        ledger.wrote(done.is_ok());
    }
    done
}

/// Gates that are held.
pub struct Gates<'a> {
    _held: Vec<Gate<'a>>,
}

enum Gate<'a> {
    Exclusive(#[expect(dead_code, reason = "held")] RwLockWriteGuard<'a, ()>),
    Shared(#[expect(dead_code, reason = "held")] Entered<'a>),
}

impl<'a> Gates<'a> {
    /// Waits until no change of `quiet` is under way and keeps it so, and begins a change of
    /// `changed`, unless that is among them. A caller that changes what is quiet gives its
    /// heirs what they inherit.
    pub fn pass(
        fs: &Ops,
        ledger: &mut Ledger,
        quiet: &'a [Arc<Subvol>],
        changed: Option<&'a Arc<Subvol>>,
    ) -> FsResult<Gates<'a>> {
        fs.may_change()?;
        let mut order: Vec<(&Arc<Subvol>, bool)> =
            quiet.iter().map(|subvol| (subvol, true)).collect();
        if let Some(subvol) = changed {
            subvol.check_changes()?;
            fs.give_to_heirs(ledger, subvol)?;
            if !quiet.iter().any(|other| other.id == subvol.id) {
                order.push((subvol, false));
            }
        }
        order.sort_by_key(|(subvol, _)| subvol.id);
        order.dedup_by_key(|(subvol, _)| subvol.id);
        let mut held = Vec::with_capacity(order.len());
        for (subvol, exclusive) in order {
            if exclusive {
                let gate = subvol.quiesce();
                if subvol.is_gone() {
                    return Err(FsError::Stale);
                }
                held.push(Gate::Exclusive(gate));
            } else {
                held.push(Gate::Shared(subvol.enter()?));
            }
        }
        Ok(Gates { _held: held })
    }
}
