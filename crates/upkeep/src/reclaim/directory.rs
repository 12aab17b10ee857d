//! Empties a detached directory from the bottom, a few entries at a time.
//!
//! Each commit removes some entries of one directory, or one directory that is empty by now. So a
//! crash anywhere leaves a smaller tree under the same record. Held inodes are treated as by
//! `unlink` and `rmdir`: they stay until their holders release them.
//!
//! Processes that work in a directory below may still change it, and move things out of it. So each
//! removal locks the places of all directories above, and verifies that they are still nested as
//! they were. The counts are updated, because what is moved out stays in use. Front ends are
//! notified of changes of what they hold. Other names of a file show a link less, and a process
//! that works in a directory below sees its names disappear.

use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::{FsError, NodeId, SubvolId};
use ops::execute::{Context, execute_alone, execute_locked};
use ops::plan::{Effect, Plan};
use ops::posix::unlink::drop_name;
use ops::subvolumes::{self, Through, execute};
use policy::Governed;
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::inherited::Ways;
use volume::locks::{Lock, Mode};
use volume::subvol::{Entered, Subvol, VOLUME};
use volume::view::{FoundEntry, NameBuf, View};

/// Most entries of one commit: their locks are held together.
const CHUNK: usize = 64;

/// Bytes after which a commit takes no more entries: attributes of held files move.
const COMMIT_BYTES: usize = 1 << 20;

/// Directories that a step verifies again before it ends early: paths can be of any length.
const LOOKS: usize = 1 << 16;

/// A detached directory that is being emptied.
pub(super) struct Emptying {
    sequence: u64,
    subvol: u64,
    /// The directories from the detached one down to the current one.
    path: Vec<Level>,
}

/// A directory, and how far it is empty. An engine may have to skip everything that was removed to
/// reach the rest. So the same part is not read again for each few names.
#[derive(Debug, Clone, Copy)]
struct Level {
    directory: u64,
    /// The first cookie that was not emptied yet. Names may have been created below it since:
    /// before the directory is removed, it is read from its beginning.
    from: u64,
}

impl Level {
    fn new(directory: u64) -> Level {
        Level { directory, from: FIRST }
    }
}

/// The least cookie of a name.
const FIRST: u64 = 1;

/// Whether what a name points to is a directory whose record names the parent. One that was
/// detached by itself has a record of its own to go by.
fn hangs_in(view: View<'_>, directory: u64, below: u64) -> FsResult<bool> {
    let record = view.directory(below)?;
    Ok(record.is_some_and(|record| record.parent == directory && !record.detached))
}

/// What comes next in a directory.
enum Next {
    /// It is empty.
    Nothing,
    /// A directory, which is emptied first.
    Below(FoundEntry),
    /// The name of a subvolume.
    Subvolume(FoundEntry, u64),
    /// Names that can be removed together.
    Names(Vec<FoundEntry>),
}

impl Emptying {
    pub(super) fn new(sequence: u64, subvol: u64, directory: u64) -> Emptying {
        Emptying { sequence, subvol, path: vec![Level::new(directory)] }
    }

    /// Removes about `budget` names; returns how many, and whether all is done. `came` is called
    /// with the number of each subvolume that is detached because it was mounted here.
    pub(super) fn step(
        &mut self,
        fs: &Governed,
        came: &dyn Fn(u64),
        budget: usize,
    ) -> FsResult<(u64, bool)> {
        let subvol = match fs.subvol(SubvolId(self.subvol)) {
            // The subvolume was removed with everything in it.
            Err(FsError::Stale) => return self.end_early(fs),
            subvol => subvol?,
        };
        if self.is_in_use(fs, &subvol)? {
            let directory = self.path.first().map_or(0, |level| level.directory);
            tracing::warn!(
                subvolume = self.subvol,
                directory,
                "a tree that is marked as removed is in use"
            );
            return self.end_early(fs);
        }
        let (mut done, mut looks) = (0, 0);
        while done < budget as u64 && looks < LOOKS {
            let Some(&level) = self.path.last() else { return Ok((done, true)) };
            let directory = level.directory;
            let entered = match fs.enter(&subvol) {
                Err(FsError::Stale) => return self.end_early(fs),
                entered => entered?,
            };
            let policies = fs.policies();
            let at = Context::new(fs, &policies, &subvol, entered.tree);
            let view = at.view;
            match next(view, level)? {
                Next::Below(below) => {
                    if hangs_in(view, directory, below.ino)? {
                        self.continues_from(below.cookie);
                        self.path.push(Level::new(below.ino));
                    } else {
                        looks += self.path.len();
                        self.look_again(fs, view, level, &below)?;
                    }
                }
                Next::Names(names) => {
                    looks += self.path.len();
                    done += self.remove_names(entered, &at, level, &names)?;
                }
                Next::Subvolume(found, child) => {
                    drop(entered);
                    looks += self.path.len();
                    self.continues_from(found.cookie);
                    let own = self.remove_subvolume(fs, &subvol, directory, (&found, child))?;
                    own.into_iter().for_each(came);
                    done += 1;
                }
                Next::Nothing => {
                    looks += self.path.len();
                    if self.remove_directory(entered, &at, directory)? {
                        self.path.pop();
                        done += 1;
                    } else {
                        self.continues_from(FIRST);
                    }
                }
            }
        }
        Ok((done, self.path.is_empty()))
    }

    /// Verifies again, while nothing can move it, a directory whose record named a parent that is
    /// not the directory of its name. If it was moved meanwhile, it no longer has that name. If it
    /// still has, that is damage, which may form a loop.
    fn look_again(
        &self,
        fs: &Governed,
        view: View<'_>,
        level: Level,
        below: &FoundEntry,
    ) -> FsResult<()> {
        let (subvol, dir) = (self.subvol, level.directory);
        let _locks = fs.locks.lock(&[
            (Lock::Object { subvol, ino: dir }, Mode::Shared),
            (Lock::Name { subvol, dir, hash: below.cookie >> 8 }, Mode::Shared),
            (Lock::Place { subvol, ino: below.ino }, Mode::Shared),
        ]);
        let Next::Below(again) = next(view, level)? else { return Ok(()) };
        if again.ino != below.ino || hangs_in(view, dir, again.ino)? {
            return Ok(());
        }
        Err(volume::error::inconsistent(
            view.tree,
            "a name of a removed directory points to none that is in it",
            below.ino,
        ))
    }

    /// Whether the directory to be emptied is in use. A record that marks one
    /// in use as removed is damage: nothing is removed for it.
    fn is_in_use(&self, fs: &Governed, subvol: &Subvol) -> FsResult<bool> {
        let &[first] = &self.path[..] else { return Ok(false) };
        let record = subvol.read(|tree| View::new(&*fs.store, tree).directory(first.directory))?;
        Ok(record.is_some_and(|record| !record.detached))
    }

    /// Where the current directory is read next.
    fn continues_from(&mut self, cookie: u64) {
        if let Some(level) = self.path.last_mut() {
            level.from = cookie;
        }
    }

    fn end_early(&mut self, fs: &Governed) -> FsResult<(u64, bool)> {
        execute_alone(fs, |plan| {
            plan.removes();
            plan.batch().delete(VOLUME, &key::detached(self.sequence));
            Ok(())
        })?;
        self.path.clear();
        Ok((1, true))
    }

    /// The locks of the positions of all directories of the path.
    fn places(&self) -> impl Iterator<Item = (Lock, Mode)> + use<'_> {
        let place = |level: &Level| Lock::Place { subvol: self.subvol, ino: level.directory };
        self.path.iter().map(move |level| (place(level), Mode::Shared))
    }

    /// With these locks: whether the directories are still nested as they were. Otherwise one of
    /// them was moved away or removed by now; the path ends above it.
    fn is_nested(&mut self, view: View<'_>) -> FsResult<bool> {
        for at in 1..self.path.len() {
            let (above, level) = (self.path[at - 1].directory, self.path[at].directory);
            if !hangs_in(view, above, level)? {
                self.path.truncate(at);
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a directory that was empty a moment ago; `false` when it is no longer empty, or no
    /// longer there.
    fn remove_directory(
        &mut self,
        entered: Entered<'_>,
        at: &Context<'_>,
        directory: u64,
    ) -> FsResult<bool> {
        let mut locks = vec![
            (at.object(directory), Mode::Exclusive),
            (Lock::Place { subvol: at.id(), ino: directory }, Mode::Exclusive),
        ];
        let is_below = self.path.len() > 1;
        let seen = at.view.directory(directory)?.filter(|_| is_below);
        let name = seen.map(|record| (record.parent, record.parent_cookie));
        if let Some((dir, cookie)) = name {
            locks.push((at.object(dir), Mode::Shared));
            locks.push((at.name(dir, cookie >> 8), Mode::Exclusive));
        }
        locks.extend(self.places());
        execute_locked(entered, at, &locks, |at, plan| {
            let Next::Nothing = next(at.view, Level::new(directory))? else { return Ok(false) };
            let record = at.view.directory(directory)?;
            let found = record.filter(|_| is_below);
            if found.map(|found| (found.parent, found.parent_cookie)) != name
                || !self.is_nested(at.view)?
            {
                // It got another name before it was locked.
                return Ok(false);
            }
            plan.removes();
            self.plan_directory(at, plan, (directory, record), name.filter(|_| is_below))
        })
    }

    /// Plans that an empty directory goes, with its name if that is below the detached one.
    fn plan_directory(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        (directory, record): (u64, Option<DirectoryRecord>),
        name: Option<(u64, u64)>,
    ) -> FsResult<bool> {
        let tree = at.view.tree;
        let prefix = key::directory_prefix(directory);
        let end = store::prefix_end(&prefix).expect("invariant: a tag is below 255");
        plan.batch().delete_range(tree, &prefix, &end);
        if self.path.len() == 1 {
            plan.batch().delete(VOLUME, &key::detached(self.sequence));
        } else if let Some((dir, cookie)) = name {
            plan.batch().delete(tree, &key::entry(dir, cookie, Part::Attributes));
            plan.touch_directory(tree, dir, -1, -1);
        }
        plan.count(at.id(), -1, 0);
        if let Some(record) = record {
            at.policy.removes_directory(plan, (at.id(), directory), &record);
            // It was removed, with its list and its attributes, when its tree was.
            plan.effect(Effect::Removed(at.subvol.node(directory), record));
        }
        match name {
            Some((dir, cookie)) => {
                notify_of(at, plan, dir, &[(cookie, directory)], Effect::HeldChanged)?;
            }
            None => plan.effect(Effect::HeldChanged(at.subvol.node(directory))),
        }
        Ok(true)
    }

    /// Removes names, if they are still what they were.
    fn remove_names(
        &mut self,
        entered: Entered<'_>,
        at: &Context<'_>,
        level: Level,
        names: &[FoundEntry],
    ) -> FsResult<u64> {
        let directory = level.directory;
        let mut locks = vec![(at.object(directory), Mode::Exclusive)];
        for name in names {
            locks.push((at.name(directory, name.cookie >> 8), Mode::Exclusive));
            locks.push((at.object(name.ino), Mode::Exclusive));
        }
        locks.extend(self.places());
        let gone = execute_locked(entered, at, &locks, |at, plan| {
            if !self.is_nested(at.view)? {
                return Ok(Vec::new());
            }
            let Next::Names(again) = next(at.view, level)? else { return Ok(Vec::new()) };
            plan.removes();
            let gone = plan_names(at, plan, directory, (&again, names))?;
            plan.touch_directory(at.view.tree, directory, -(gone.len() as i64), 0);
            // A process that has one open, or has it by another name, still reads its contents.
            notify_of(at, plan, directory, &gone, Effect::HeldAttributesChanged)?;
            Ok(gone)
        })?;
        if let Some((last, _)) = gone.last() {
            self.continues_from(last + 1);
        }
        Ok(gone.len() as u64)
    }

    /// Detaches a subvolume that was mounted in a removed directory; returns its number there.
    fn remove_subvolume(
        &mut self,
        fs: &Governed,
        subvol: &Arc<Subvol>,
        directory: u64,
        (found, child): (&FoundEntry, u64),
    ) -> FsResult<Option<u64>> {
        fs.may_change()?;
        let slot = (directory, found.cookie);
        let seen = if fs.is_mounted_at(subvol, slot, child)? {
            Some(fs.subvol(SubvolId(child))?)
        } else {
            None
        };
        fs.give_before(seen.as_deref().into_iter().chain([&**subvol]))?;
        let mut ledger = fs.admin.lock_to_give(fs);
        fs.give_to_heirs(&mut ledger, subvol)?;
        // One that is inherited, and was not copied for this one, goes with its name.
        let own = fs.is_mounted_at(subvol, slot, child)?;
        if own {
            fs.give_to_heirs(&mut ledger, &*fs.subvol(SubvolId(child))?)?;
        }
        let id = subvol.id.0;
        let name = Lock::Name { subvol: id, dir: directory, hash: found.cookie >> 8 };
        let locks: Vec<_> = [
            (Lock::Object { subvol: id, ino: directory }, Mode::Exclusive),
            (name, Mode::Exclusive),
        ]
        .into_iter()
        .chain(self.places())
        .collect();
        let aim = |plan: &mut Plan| {
            for (lock, mode) in &locks {
                plan.lock(*lock, *mode);
            }
            Ok(())
        };
        let through = Through { quiet: &[], changed: Some(subvol) };
        execute(fs, ledger, through, aim, |ledger, plan| {
            let policies = fs.policies();
            let at = Context::new(fs, &policies, subvol, subvol.tree());
            if !self.is_nested(at.view)? {
                return Ok(None);
            }
            match next(at.view, Level { directory, from: found.cookie })? {
                Next::Subvolume(again, same) if again.cookie == found.cookie && same == child => {}
                _ => return Ok(None),
            }
            plan.removes();
            let key = key::entry(directory, found.cookie, Part::Attributes);
            plan.batch().delete(at.view.tree, &key);
            plan.touch_directory(at.view.tree, directory, -1, -1);
            let gone = [(found.cookie, found.ino)];
            notify_of(&at, plan, directory, &gone, Effect::HeldChanged)?;
            if own { subvolumes::plan_detach(fs, ledger, plan, child).map(Some) } else { Ok(None) }
        })
    }
}

/// Plans that names go which are still what they were, up to one that is not, and as many as one
/// commit takes. Returns their cookies and inodes.
fn plan_names(
    at: &Context<'_>,
    plan: &mut Plan,
    directory: u64,
    (found, before): (&[FoundEntry], &[FoundEntry]),
) -> FsResult<Vec<(u64, u64)>> {
    let (present, mut ways, mut gone) = (plan.now, Ways::default(), Vec::new());
    for (name, before) in found.iter().zip(before) {
        if (name.cookie, name.ino) != (before.cookie, before.ino)
            || plan.batch().as_bytes().len() > COMMIT_BYTES
        {
            break;
        }
        let (inode, nlink) = at.view.inode_of(name)?;
        // Holders of another name see a link less, but with the time of the removal of the
        // directory, not of its reclaiming.
        plan.now = inode.ctime;
        drop_name(at, plan, &mut ways, (directory, name), &inode, nlink)?;
        for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
            let beside = match part {
                Part::Attributes => true,
                Part::Bulk => inode.has_bulk,
                _ => inode.has_xattrs,
            };
            if beside {
                plan.batch().delete(at.view.tree, &key::entry(directory, name.cookie, part));
            }
        }
        gone.push((name.cookie, name.ino));
    }
    plan.now = present;
    Ok(gone)
}

/// Plans the notices of names (cookie, inode) of a directory that go. Each name gets one if the
/// directory is held; otherwise no name was looked up. Each inode gets one.
fn notify_of(
    at: &Context<'_>,
    plan: &mut Plan,
    directory: u64,
    gone: &[(u64, u64)],
    notice: fn(NodeId) -> Effect,
) -> FsResult<()> {
    let node = at.subvol.node(directory);
    if at.fs.nodes.is_held(node) {
        let mut name = NameBuf::empty();
        for (cookie, _) in gone {
            at.view.entry_at(directory, *cookie, &mut name)?;
            plan.effect(Effect::HeldEntryGone(node, name.as_bytes().into()));
        }
        plan.effect(Effect::HeldChanged(node));
    }
    for (_, ino) in gone {
        plan.effect(notice(at.subvol.node(*ino)));
    }
    Ok(())
}

/// What comes next in a directory.
fn next(view: View<'_>, Level { directory, from }: Level) -> FsResult<Next> {
    let mut names: Vec<FoundEntry> = Vec::new();
    let from = key::entry(directory, from, Part::Attributes);
    let range =
        KeyRange { from: from.to_vec(), to: store::prefix_end(&key::directory_prefix(directory)) };
    let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let malformed = |error| malformed(view.tree, &error);
        let parsed = key::parse(item.key).map_err(malformed)?;
        let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
        let head = EntryHead::decode(item.value).map_err(malformed)?;
        let (chained, ino) = (head.chained, head.ino);
        let target = head.target().map_err(malformed)?;
        let found = FoundEntry { cookie, chained, ino, target };
        match target {
            Target::Tombstone => {}
            Target::Directory if names.is_empty() => return Ok(Next::Below(found)),
            Target::Subvolume(child) if names.is_empty() => {
                return Ok(Next::Subvolume(found, child));
            }
            Target::Directory | Target::Subvolume(_) => break,
            // Two names of one inode do not go in one commit: the second would not see what the
            // first one did.
            _ if names.iter().any(|other| other.ino == ino) => break,
            _ => names.push(found),
        }
        if names.len() == CHUNK {
            break;
        }
    }
    Ok(if names.is_empty() { Next::Nothing } else { Next::Names(names) })
}
