//! Empties a detached directory from the bottom, a few entries at a time.
//!
//! Each commit removes some entries of one directory, or one directory that is empty by now. So a
//! crash anywhere leaves a smaller tree under the same record. Held inodes are treated as by
//! `unlink` and `rmdir`: they stay until their holders release them.
//!
//! Processes that work in a directory below may still change it, and move things out of it. So each
//! removal locks the places of all directories above, and verifies that they are still nested as
//! they were. The counts are updated, because what is moved out stays in use. Front ends are
//! notified of changes of what they hold: other names of a file show a link less, and a process
//! that works in a directory below sees its names disappear.

use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::{FsError, NodeId, SubvolId};
use ops::execute::{Context, apply};
use ops::posix::unlink::drop_name;
use ops::subvolumes;
use ops::txn::Txn;
use policy::quota::Charging;
use store::KeyRange;
use vfs::FsResult;
use volume::Core;
use volume::error::{from_store, malformed};
use volume::inherited::Ways;
use volume::locks::{Lock, LockSet, Mode};
use volume::nodes::Orphan;
use volume::subvol::{Entered, Subvol, VOLUME};
use volume::view::{Found, NameBuf, View};

use crate::Upkeep;

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
/// reach the rest, so the same part is not read again for each few names.
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

/// Whether what a name points to is a directory that says it is there. One that was detached by
/// itself has a record of its own to go by.
fn hangs_in(view: View<'_>, directory: u64, below: u64) -> FsResult<bool> {
    let record = view.directory(below)?;
    Ok(record.is_some_and(|record| record.parent == directory && !record.detached))
}

/// What comes next in a directory.
enum Next {
    /// It is empty.
    Nothing,
    /// A directory, which is emptied first.
    Below(Found),
    /// The name of a subvolume.
    Subvolume(Found, u64),
    /// Names that can be removed together.
    Names(Vec<Found>),
}

impl Emptying {
    pub(super) fn new(sequence: u64, subvol: u64, directory: u64) -> Emptying {
        Emptying { sequence, subvol, path: vec![Level::new(directory)] }
    }

    /// Removes about `budget` names; returns how many, and whether all is done.
    pub(super) fn step(&mut self, fs: &Upkeep, budget: usize) -> FsResult<(u64, bool)> {
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
            let view = View::new(&*fs.store, entered.tree);
            match next(view, level)? {
                Next::Below(below) => {
                    if hangs_in(view, directory, below.ino)? {
                        self.goes_on_from(below.cookie);
                        self.path.push(Level::new(below.ino));
                    } else {
                        looks += self.path.len();
                        self.look_again(fs, view, level, &below)?;
                    }
                }
                Next::Names(names) => {
                    looks += self.path.len();
                    done += self.remove_names(fs, &subvol, &entered, level, &names)?;
                }
                Next::Subvolume(found, child) => {
                    drop(entered);
                    looks += self.path.len();
                    self.goes_on_from(found.cookie);
                    self.remove_subvolume(fs, &subvol, directory, &found, child)?;
                    done += 1;
                }
                Next::Nothing => {
                    looks += self.path.len();
                    if self.remove_directory(fs, &subvol, &entered, directory)? {
                        self.path.pop();
                        done += 1;
                    } else {
                        self.goes_on_from(FIRST);
                    }
                }
            }
        }
        Ok((done, self.path.is_empty()))
    }

    /// Verifies again, while nothing can move it, a directory whose record named another parent
    /// than the directory of its name. If it was moved meanwhile, it no longer has that name. If it
    /// still has, that is damage, which may form a loop.
    fn look_again(&self, fs: &Upkeep, view: View<'_>, level: Level, below: &Found) -> FsResult<()> {
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

    /// Whether the directory to be emptied is one that was removed. A record that says so of one
    /// in use is damage: nothing is removed for it.
    fn is_in_use(&self, fs: &Upkeep, subvol: &Subvol) -> FsResult<bool> {
        let &[first] = &self.path[..] else { return Ok(false) };
        let record = subvol.read(|tree| View::new(&*fs.store, tree).directory(first.directory))?;
        Ok(record.is_some_and(|record| !record.detached))
    }

    /// Where the current directory is read next.
    fn goes_on_from(&mut self, cookie: u64) {
        if let Some(level) = self.path.last_mut() {
            level.from = cookie;
        }
    }

    fn end_early(&mut self, fs: &Upkeep) -> FsResult<(u64, bool)> {
        let mut txn = Txn::removing(fs);
        txn.batch().delete(VOLUME, &key::detached(self.sequence));
        txn.commit()?;
        self.path.clear();
        Ok((1, true))
    }

    /// Locks what is requested, and the positions of all directories of the path. `None`: one of
    /// them was moved away or removed by now; the path ends above it, and nothing is locked.
    fn lock<'a>(
        &mut self,
        fs: &'a Upkeep,
        view: View<'_>,
        mut wanted: Vec<(Lock, Mode)>,
    ) -> FsResult<Option<LockSet<'a>>> {
        let subvol = self.subvol;
        let place = |level: &Level| Lock::Place { subvol, ino: level.directory };
        wanted.extend(self.path.iter().map(|level| (place(level), Mode::Shared)));
        let locks = fs.locks.lock(&wanted);
        for at in 1..self.path.len() {
            let (above, level) = (self.path[at - 1].directory, self.path[at].directory);
            if !hangs_in(view, above, level)? {
                self.path.truncate(at);
                return Ok(None);
            }
        }
        Ok(Some(locks))
    }

    /// Removes a directory that was empty a moment ago; `false` when it is no longer empty, or no
    /// longer there.
    fn remove_directory(
        &mut self,
        fs: &Upkeep,
        subvol: &Subvol,
        entered: &Entered<'_>,
        directory: u64,
    ) -> FsResult<bool> {
        let id = subvol.id.0;
        let view = View::new(&*fs.store, entered.tree);
        let mut wanted = vec![
            (Lock::Object { subvol: id, ino: directory }, Mode::Exclusive),
            (Lock::Place { subvol: id, ino: directory }, Mode::Exclusive),
        ];
        let is_below = self.path.len() > 1;
        let seen = view.directory(directory)?.filter(|_| is_below);
        let name = seen.map(|record| (record.parent, record.parent_cookie));
        if let Some((dir, cookie)) = name {
            wanted.push((Lock::Object { subvol: id, ino: dir }, Mode::Shared));
            wanted.push((Lock::Name { subvol: id, dir, hash: cookie >> 8 }, Mode::Exclusive));
        }
        let Some(locks) = self.lock(fs, view, wanted)? else { return Ok(false) };
        let Next::Nothing = next(view, Level::new(directory))? else { return Ok(false) };
        let record = view.directory(directory)?;
        let found = record.filter(|_| is_below).map(|found| (found.parent, found.parent_cookie));
        if found != name {
            // It got another name before it was locked.
            return Ok(false);
        }
        let mut txn = Txn::removing(fs);
        let prefix = key::directory_prefix(directory);
        let end = store::prefix_end(&prefix).expect("invariant: a tag is below 255");
        txn.batch().delete_range(view.tree, &prefix, &end);
        if !is_below {
            txn.batch().delete(VOLUME, &key::detached(self.sequence));
        } else if let Some((dir, cookie)) = name {
            txn.batch().delete(view.tree, &key::entry(dir, cookie, Part::Attributes));
            txn.touch_directory(view.tree, dir, -1, -1);
        }
        txn.count(id, -1, 0);
        if let Some(record) = &record {
            Charging::of(fs, &mut txn).credit_directory(id, directory, record);
        }
        let told = match name {
            Some((dir, cookie)) => {
                let gone = [(cookie, directory)];
                Told::of(fs, subvol, view, dir, &gone, Core::invalidate_node)?
            }
            None => Told { names: None, inodes: vec![directory], tell_of: Core::invalidate_node },
        };
        txn.commit()?;
        if let Some(record) = record {
            // It was removed, with its list and its attributes, when its tree was.
            fs.nodes.orphan(subvol.node(directory), || Orphan::of_removed(record));
        }
        drop(locks);
        told.tell(fs, subvol);
        Ok(true)
    }

    /// Removes names, if they are still what they were.
    fn remove_names(
        &mut self,
        fs: &Upkeep,
        subvol: &Subvol,
        entered: &Entered<'_>,
        level: Level,
        names: &[Found],
    ) -> FsResult<u64> {
        let (id, directory) = (subvol.id.0, level.directory);
        let mut wanted = vec![(Lock::Object { subvol: id, ino: directory }, Mode::Exclusive)];
        for name in names {
            let hash = name.cookie >> 8;
            wanted.push((Lock::Name { subvol: id, dir: directory, hash }, Mode::Exclusive));
            wanted.push((Lock::Object { subvol: id, ino: name.ino }, Mode::Exclusive));
        }
        let view = View::new(&*fs.store, entered.tree);
        let Some(locks) = self.lock(fs, view, wanted)? else { return Ok(0) };
        let Next::Names(again) = next(view, level)? else { return Ok(0) };
        let mut txn = Txn::removing(fs);
        let present = txn.now;
        let (policies, mut ways) = (fs.policies(), Ways::default());
        let at = Context::new(fs, &policies, subvol, entered.tree);
        let mut done = 0;
        for (name, before) in again.iter().zip(names) {
            if (name.cookie, name.ino) != (before.cookie, before.ino) {
                break;
            }
            if txn.batch().as_bytes().len() > COMMIT_BYTES {
                break;
            }
            let (inode, nlink) = view.inode_of(name)?;
            // Holders of another name see a link less, but with the time of the removal of the
            // directory, not of its reclaiming.
            txn.now = inode.ctime;
            drop_name(&at, &mut txn, &mut ways, (directory, name), &inode, nlink)?;
            for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
                let beside = match part {
                    Part::Attributes => true,
                    Part::Bulk => inode.has_bulk,
                    _ => inode.has_xattrs,
                };
                if beside {
                    txn.batch().delete(view.tree, &key::entry(directory, name.cookie, part));
                }
            }
            done += 1;
        }
        txn.now = present;
        txn.touch_directory(view.tree, directory, -(done as i64), 0);
        let gone: Vec<_> =
            again[..done as usize].iter().map(|name| (name.cookie, name.ino)).collect();
        // A process that has one open, or has it by another name, still reads its contents.
        let told = Told::of(fs, subvol, view, directory, &gone, Core::invalidate_attributes)?;
        txn.commit()?;
        txn.apply(|effect| apply(fs, effect));
        drop(locks);
        told.tell(fs, subvol);
        if let Some((last, _)) = gone.last() {
            self.goes_on_from(last + 1);
        }
        Ok(done)
    }

    /// Detaches a subvolume that was mounted in a removed directory.
    fn remove_subvolume(
        &mut self,
        fs: &Upkeep,
        subvol: &Subvol,
        directory: u64,
        found: &Found,
        child: u64,
    ) -> FsResult<()> {
        let mut ledger = fs.admin.lock();
        fs.may_change()?;
        fs.give_to_heirs(&mut ledger, subvol)?;
        // One that is inherited, and was not copied for this one, goes with its name.
        let own = fs.is_mounted_at(subvol, (directory, found.cookie), child)?;
        if own {
            fs.give_to_heirs(&mut ledger, &*fs.subvol(SubvolId(child))?)?;
        }
        let entered = subvol.enter()?;
        let id = subvol.id.0;
        let wanted = vec![
            (Lock::Object { subvol: id, ino: directory }, Mode::Exclusive),
            (Lock::Name { subvol: id, dir: directory, hash: found.cookie >> 8 }, Mode::Exclusive),
        ];
        let view = View::new(&*fs.store, entered.tree);
        let Some(locks) = self.lock(fs, view, wanted)? else { return Ok(()) };
        match next(view, Level { directory, from: found.cookie })? {
            Next::Subvolume(again, same) if again.cookie == found.cookie && same == child => {}
            _ => return Ok(()),
        }
        let mut txn = Txn::removing(fs);
        txn.batch().delete(view.tree, &key::entry(directory, found.cookie, Part::Attributes));
        txn.touch_directory(view.tree, directory, -1, -1);
        if own {
            let detached = subvolumes::detach(fs, &mut ledger, &mut txn, child)?;
            fs.reclaim.came_of(detached, self.sequence);
        }
        let gone = [(found.cookie, found.ino)];
        let told = Told::of(fs, subvol, view, directory, &gone, Core::invalidate_node)?;
        subvolumes::commit(&ledger, &mut txn)?;
        if own {
            ledger.moved(child, None);
            fs.queue.add_detached(1);
        }
        drop((locks, entered, ledger));
        told.tell(fs, subvol);
        Ok(())
    }
}

/// What front ends are notified of after a commit that removes names.
struct Told {
    /// The directory of the names, and the names, if it is held: otherwise none was looked up.
    names: Option<(u64, Vec<NameBuf>)>,
    /// What the names led to.
    inodes: Vec<u64>,
    /// How to notify of each of those.
    tell_of: fn(&Core, NodeId),
}

impl Told {
    /// Of names (cookie, inode) of a directory, before the commit.
    fn of(
        fs: &Upkeep,
        subvol: &Subvol,
        view: View<'_>,
        directory: u64,
        gone: &[(u64, u64)],
        tell_of: fn(&Core, NodeId),
    ) -> FsResult<Told> {
        let inodes = gone.iter().map(|(_, ino)| *ino).collect();
        if !fs.nodes.is_held(subvol.node(directory)) {
            return Ok(Told { names: None, inodes, tell_of });
        }
        let mut names = Vec::new();
        for (cookie, _) in gone {
            let mut name = NameBuf::empty();
            view.entry_at(directory, *cookie, &mut name)?;
            names.push(name);
        }
        Ok(Told { names: Some((directory, names)), inodes, tell_of })
    }

    /// After the commit: notifies only of what front ends hold.
    fn tell(self, fs: &Upkeep, subvol: &Subvol) {
        if let Some((directory, names)) = self.names {
            for name in &names {
                fs.invalidate_entry(subvol.node(directory), name.as_bytes());
            }
            fs.invalidate_node(subvol.node(directory));
        }
        for ino in self.inodes {
            if fs.nodes.is_held(subvol.node(ino)) {
                (self.tell_of)(fs, subvol.node(ino));
            }
        }
    }
}

/// What comes next in a directory.
fn next(view: View<'_>, Level { directory, from }: Level) -> FsResult<Next> {
    let mut names: Vec<Found> = Vec::new();
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
        let found = Found { cookie, chained, ino, target };
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
