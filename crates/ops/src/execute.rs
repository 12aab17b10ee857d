//! Executes operations: the one place that locks, checks again what was read, commits, and applies
//! the effects of a plan.
//!
//! 1. `guess`: the operation reads without locks what decides which locks it needs.
//! 2. `aim`: it names the locks.
//! 3. Locked, `look` reads everything that decides. What was guessed must still hold; otherwise
//!    what was read is the next guess.
//! 4. `plan`: it describes the change. It changes nothing itself.
//! 5. Commit; effects on nodes and caches; then the locks and the gate are released, and front ends
//!    notified.
//!
//! The locks and the gate belong to the call of `execute` (they can move to another thread with
//! it), not to the operation. Another executor, over several stores, has the same five steps: it
//! locks and reads where the records are, and commits the batch by trees.

use format::answer_record::Executed;
use inode::{FsError, NodeId};
use store::CommitToken;
use vfs::{FsResult, Request, TakenRequest};
use volume::locks::{Lock, Mode};
use volume::nodes::{Location, Orphan};
use volume::subvol::{Entered, Subvol, node_of};

use crate::Ops;
use crate::plan::{Effect, LastName, Plan};
pub use crate::policy::Context;
use crate::policy::Policy;
use crate::reach;

/// What planning ended with.
pub enum Outcome<A> {
    /// A plan to be executed, or nothing to be done; and the answer.
    Done(A),
    /// What the plan rests on changed: guess again.
    Again,
}

/// An operation on one subvolume.
pub trait Operation {
    /// What is read, and must still hold when the plan is executed.
    type Reads;
    /// The answer to the caller.
    type Answer;

    /// Reads without locks what decides which locks are needed.
    fn guess(&mut self, at: &Context<'_>) -> FsResult<Self::Reads>;

    /// Names the locks.
    fn aim(&mut self, at: &Context<'_>, guess: &Self::Reads, plan: &mut Plan) -> FsResult<()>;

    /// Reads under the locks.
    fn look(&mut self, at: &Context<'_>) -> FsResult<Self::Reads>;

    /// Whether the locks for what was guessed cover what is there.
    fn agree(guess: &Self::Reads, found: &Self::Reads) -> bool;

    /// Describes the change.
    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Self::Reads,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Self::Answer>>;
}

/// Executes an operation as a change of a subvolume.
#[inline]
pub fn execute<O: Operation>(
    fs: &Ops,
    policy: &dyn Policy,
    subvol: &Subvol,
    operation: &mut O,
) -> FsResult<O::Answer> {
    let entered = fs.enter(subvol)?;
    let at = Context::new(fs, policy, subvol, entered.tree);
    execute_behind(Some(entered), &at, operation)
}

/// As `execute`, for a caller that keeps the subvolume's gate: the policy of another operation.
#[inline]
pub fn execute_within<O: Operation>(at: &Context<'_>, operation: &mut O) -> FsResult<O::Answer> {
    execute_behind(None, at, operation)
}

/// Executes an operation, and releases the gate before front ends are notified.
#[inline]
fn execute_behind<O: Operation>(
    gate: Option<Entered<'_>>,
    at: &Context<'_>,
    operation: &mut O,
) -> FsResult<O::Answer> {
    let mut plan = Plan::new();
    let answer = run(at, operation, &mut plan);
    drop(gate);
    if answer.is_ok() {
        plan.notify(|notice| notify(at.fs, notice));
    }
    plan.end();
    answer
}

#[inline]
fn run<O: Operation>(at: &Context<'_>, operation: &mut O, plan: &mut Plan) -> FsResult<O::Answer> {
    let fs = at.fs;
    let mut request = vfs::take_request();
    let mut guess = operation.guess(at)?;
    loop {
        operation.aim(at, &guess, plan)?;
        let mut locks = fs.locks.lock(plan.locks());
        let found = operation.look(at)?;
        if !O::agree(&guess, &found) {
            guess = found;
            drop(locks);
            plan.restart(&fs.data);
            continue;
        }
        plan.set_time(fs.env.clock.now());
        match operation.plan(at, found, plan).inspect_err(|_| plan.give_up(&fs.data))? {
            Outcome::Done(answer) => {
                if plan.has_freed_ancestors() && !fs.arrivals.is_watched() {
                    locks.free_shared_places();
                }
                if plan.is_empty() {
                    plan.give_up(&fs.data);
                } else {
                    // What it reserved is free again before its locks are.
                    sign(&mut request, plan)
                        .and_then(|()| commit(fs, plan).map(drop))
                        .inspect_err(|_| plan.give_up(&fs.data))?;
                }
                plan.apply(|effect| apply(fs, effect));
                drop(locks);
                return Ok(answer);
            }
            Outcome::Again => {
                drop(locks);
                plan.restart(&fs.data);
                guess = operation.guess(at)?;
            }
        }
    }
}

/// Adds to a batch that it executes the request for which this thread makes the change. Adds
/// nothing if only a part of the change is in it.
#[inline]
pub(crate) fn sign(request: &mut TakenRequest, plan: &mut Plan) -> FsResult<()> {
    if plan.is_part() {
        return Ok(());
    }
    match request.into_batch() {
        Some(request) => sign_as(&request, plan),
        None => Ok(()),
    }
}

#[cold]
fn sign_as(request: &Request, plan: &mut Plan) -> FsResult<()> {
    let node = plan.made().map(|node| (node.slot().0 as u32, node.ino().0));
    let executed = Executed { node, number: vfs::noted_number() };
    plan.answer(request, &executed.encode())
}

/// Executes a change whose locks are known before anything is read. `entered` is the gate of the
/// subvolume, which is released at the end.
#[inline]
pub fn execute_locked<T>(
    entered: Entered<'_>,
    at: &Context<'_>,
    locks: &[(Lock, Mode)],
    change: impl FnMut(&Context<'_>, &mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    execute_behind(Some(entered), at, &mut Locked { locks, change })
}

/// As `execute_locked`, for a caller that keeps the subvolume's gate: the policy of another
/// operation.
#[inline]
pub fn execute_locked_within<T>(
    at: &Context<'_>,
    locks: &[(Lock, Mode)],
    change: impl FnMut(&Context<'_>, &mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    execute_within(at, &mut Locked { locks, change })
}

struct Locked<'l, F> {
    locks: &'l [(Lock, Mode)],
    change: F,
}

impl<T, F: FnMut(&Context<'_>, &mut Plan) -> FsResult<T>> Operation for Locked<'_, F> {
    type Reads = ();
    type Answer = T;

    #[inline]
    fn guess(&mut self, _at: &Context<'_>) -> FsResult<()> {
        Ok(())
    }

    #[inline]
    fn aim(&mut self, _at: &Context<'_>, (): &(), plan: &mut Plan) -> FsResult<()> {
        self.locks.iter().for_each(|(lock, mode)| plan.lock(*lock, *mode));
        Ok(())
    }

    #[inline]
    fn look(&mut self, _at: &Context<'_>) -> FsResult<()> {
        Ok(())
    }

    #[inline]
    fn agree((): &(), (): &()) -> bool {
        true
    }

    #[inline]
    fn plan(&mut self, at: &Context<'_>, (): (), plan: &mut Plan) -> FsResult<Outcome<T>> {
        (self.change)(at, plan).map(Outcome::Done)
    }
}

/// Executes a change of records that the caller keeps from changing otherwise: with the lock of a
/// setting, or because nothing else writes them.
pub fn execute_alone<T>(fs: &Ops, change: impl FnOnce(&mut Plan) -> FsResult<T>) -> FsResult<T> {
    let mut plan = Plan::new();
    plan.set_time(fs.env.clock.now());
    let done = change(&mut plan).and_then(|answer| {
        if !plan.is_empty() {
            commit(fs, &mut plan)?;
        }
        Ok(answer)
    });
    match &done {
        Ok(_) => {
            plan.apply(|effect| apply(fs, effect));
            plan.notify(|notice| notify(fs, notice));
        }
        Err(_) => plan.give_up(&fs.data),
    }
    plan.end();
    done
}

/// As `execute_alone`, with locks that are held from before the plan is made until it is committed:
/// for records that are of no subvolume.
pub fn execute_alone_locked<T>(
    fs: &Ops,
    locks: &[(Lock, Mode)],
    change: impl FnOnce(&mut Plan) -> FsResult<T>,
) -> FsResult<T> {
    let _locks = fs.locks.lock(locks);
    execute_alone(fs, change)
}

/// Commits what a plan has gathered so far, as `execute_alone`, and empties it. After an error the
/// plan keeps its batch: who continues commits it with the next one.
pub fn execute_gathered(fs: &Ops, plan: &mut Plan) -> FsResult<()> {
    commit(fs, plan)?;
    plan.apply(|effect| apply(fs, effect));
    plan.notify(|notice| notify(fs, notice));
    plan.restart(&fs.data);
    Ok(())
}

/// Commits the batch of a plan, and settles what it freed.
#[inline]
pub fn commit(fs: &Ops, plan: &mut Plan) -> FsResult<CommitToken> {
    let waited = |plan: &Plan| {
        for directory in plan.made_in() {
            if reach::is_taken_away(&*fs.store, *directory)? {
                return Err(FsError::NotFound);
            }
        }
        Ok(())
    };
    let committed = plan.commit_after(&*fs.store, &fs.arrivals, waited);
    if let Some(freed) = plan.take_freed() {
        fs.settle_freed(Some(freed), committed.as_ref().copied());
    }
    committed
}

/// Applies an effect after the commit, under the locks.
#[inline]
pub fn apply(fs: &Ops, effect: &mut Effect) {
    let nodes = &fs.nodes;
    match effect {
        Effect::LookUp(node, location) => nodes.look_up(*node, *location),
        Effect::Relocate(node, location) => nodes.relocate(*node, *location),
        Effect::Lost(lost) => settle(lost, fs),
        Effect::Removed(node, record) => {
            nodes.orphan(*node, || Orphan::of_removed(*record));
        }
        Effect::HoldUnnamed(node, orphan) => nodes.hold_unnamed(*node, orphan.take()),
        Effect::NameUnnamed(node) => nodes.name_unnamed(*node),
        Effect::SetOrphan(node, orphan) => nodes.set_orphan(*node, orphan.take()),
        Effect::StoreOrphan(node) => nodes.store_orphan(*node),
        Effect::DirectoriesMoved => fs.directories_moved(),
        Effect::DirectoryRehung => fs.directory_rehung(),
        Effect::Detached => fs.queue.add_detached(1),
        Effect::EpochEnded(ended) => fs.admin.begin_epoch_after(*ended),
        Effect::BecameIndex(subvol) => subvol.set_index(),
        Effect::TreeReplaced(subvol, tree) => subvol.set_tree(*tree),
        Effect::CollectSoon => fs.queue.request_collection(),
        Effect::ReplacedMuch => fs.queue.note_large(),
        Effect::TopReplaced(old, new) => {
            if *old == fs.root() {
                fs.set_root(*new);
            } else {
                fs.follow_shown_root(*old, *new);
            }
            nodes.transfer(*old, *new);
        }
        Effect::Set(setting) => setting.take_effect(),
        // Noted before the commit.
        Effect::Arrives(..) => {}
        Effect::Mounted(..)
        | Effect::Copied(_)
        | Effect::Given(_)
        | Effect::Doubted(_)
        | Effect::Inherits(..)
        | Effect::SubvolumeGone(..) => {
            unreachable!("invariant: effects on the ledger are planned with the ledger locked")
        }
        // Sent without locks.
        notice => debug_assert!(notice.is_notice(), "an effect is applied or sent"),
    }
}

/// What becomes of an inode that lost its last name, after the commit and still under the lock.
#[inline]
fn settle(lost: &mut LastName, fs: &Ops) {
    let node = node_of(lost.subvol, lost.ino);
    if lost.stored {
        fs.nodes.relocate(node, Location::Linked);
        if !fs.nodes.is_held(node) {
            fs.queue.push_orphan(lost.subvol, lost.ino);
        }
        return;
    }
    fs.nodes.orphan(node, || Orphan::File {
        inode: lost.inode,
        bulk: lost.attached.bulk.take().unwrap_or_default(),
        xattrs: lost.attached.xattrs.take().unwrap_or_default(),
    });
}

/// Notifies front ends, without locks.
#[cold]
pub fn notify(fs: &Ops, notice: Effect) {
    match notice {
        Effect::HeldChanged(node) if fs.nodes.is_held(node) => fs.invalidate_node(node),
        Effect::HeldNameChanged(directory, name) if is_known(fs, directory) => {
            fs.invalidate_entry(directory, &name);
            fs.invalidate_node(directory);
        }
        Effect::HeldEntryGone(directory, name) if is_known(fs, directory) => {
            fs.invalidate_entry(directory, &name);
        }
        Effect::HeldAttributesChanged(node) if fs.nodes.is_held(node) => {
            fs.invalidate_attributes(node);
        }
        Effect::NameChanged(directory, name) => {
            fs.invalidate_entry(directory, &name);
            fs.invalidate_node(directory);
        }
        Effect::DirectoryChanged(directory) => fs.invalidate_node(directory),
        Effect::TopChanged(directory, old_names) => {
            let new_names = fs.names_in(directory).unwrap_or_default();
            for name in old_names.iter().chain(&new_names) {
                fs.invalidate_entry(directory, name);
            }
            fs.invalidate_node(directory);
        }
        Effect::SnapshotChanged(directory, name) => fs.invalidate_snapshot(directory, &name),
        _ => {}
    }
}

/// Whether front ends can know what is in a directory.
fn is_known(fs: &Ops, directory: NodeId) -> bool {
    directory == fs.root() || fs.nodes.is_held(directory)
}

/// The node of an embedded inode moved with its name.
pub fn moved(at: &Context<'_>, plan: &mut Plan, ino: u64, (dir, cookie): (u64, u64)) {
    plan.effect(Effect::Relocate(at.subvol.node(ino), Location::Entry { dir, cookie }));
}
