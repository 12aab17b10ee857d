//! `restore`: moves removed objects back to where they were, or elsewhere in their subvolume.
//!
//! 1. The newest object that was removed under the name is restored by one rename, with everything
//!    below. Missing directories above it are created after their mirrors.
//! 2. A restored or existing directory gets what was removed from it before. That is what was
//!    removed in the same hour and the hour before, or since a time that the caller gives. So a
//!    removal that continued over the end of an hour, or that met a name which had been removed
//!    before, is restored completely. If two objects have one name the newer one wins.
//! 3. Nothing is overwritten: an object whose name is taken stays in the trash, and is counted. An
//!    empty directory whose name another one has is refused, because nothing can come of it.
//!
//! Each rename is a batch. If a crash leaves a restore half done, the same call completes it.

use std::cell::Cell;
use std::sync::Arc;

use format::entry_record::Target;
use format::quota::Charge;
use inode::permissions::{EXECUTE, READ};
use inode::{Caller, FsError, NodeId};
use ops::object::Object;
use vfs::FsResult;
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};
use volume::{RestoreOptions, Restored, permit};

use super::hour::Batch;
use super::keep::move_name;
use super::list::{Whence, follow};
use super::{mirror, place};
use crate::Governed;
use crate::policies::Purpose;

/// Names that are moved between two checks of the directory that they come from.
const CHUNK: usize = 1000;

/// Something of a name in a batch.
struct Candidate {
    batch: Batch,
    /// The inode of the batch.
    root: u64,
    /// The directory of the trash that it is in.
    dir: u64,
    found: FoundEntry,
    /// For a directory: when it was made, and when its status changed last.
    directory: Option<(i64, i64)>,
}

/// What is merged into a directory that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergeSource {
    /// What was removed last: also into others that were made since.
    Newest,
    /// What was removed before: not into another directory that was removed under the same path
    /// until that time.
    Older(i64),
}

impl Governed {
    /// Restores what was removed under a name: an existing directory, and names below it of which
    /// the last is the one. `to`: a directory of the same subvolume and an unused name in it,
    /// instead of the original place. The caller needs the rights of a rename.
    pub fn restore(
        &self,
        caller: &Caller,
        (dir, rest): (NodeId, &[Vec<u8>]),
        to: Option<(NodeId, &[u8])>,
        options: &RestoreOptions,
    ) -> FsResult<Restored> {
        let whence = Whence::find(self, dir, rest)?;
        let subvol = Arc::clone(&whence.subvol);
        let work = Work { fs: self, caller, subvol, options, made: Cell::new(false) };
        let (candidates, refused) = work.candidates(&whence)?;
        let none = if refused { FsError::AccessDenied } else { FsError::NotFound };
        let Some(newest) = candidates.first() else { return Err(none) };
        let place = match to {
            Some((parent, name)) => {
                let (subvol, parent) = self.place(self.real(parent))?;
                if subvol.id != whence.subvol.id {
                    return Err(FsError::CrossSubvolume("what was removed from another one"));
                }
                self.new_name(name)?;
                place::check_outside(self, &subvol, work.view(), (parent, name))?;
                Some((parent, name.to_vec()))
            }
            None => work.place(&whence, newest)?,
        };
        let mut restored = Restored::default();
        let mut there = None;
        let top = match &place {
            // The directory that has the trash.
            None => whence.home,
            Some((parent, name)) => {
                let view = work.view();
                match view.find_entry(*parent, self.hash.hash(name), name)? {
                    Some(found) if to.is_none() && found.target == Target::Directory => {
                        there = Some(found.ino);
                        found.ino
                    }
                    Some(_) => return Err(FsError::Exists),
                    None => {
                        let old = whence.path.last().map_or(&b""[..], |name| name);
                        let from = (newest.dir, old);
                        work.bring(from, &newest.found, (*parent, name), &mut restored)?
                    }
                }
            }
        };
        if newest.found.target == Target::Directory {
            for candidate in work.window(&candidates) {
                let part = match newest.directory {
                    Some((_, changed)) if candidate.found.ino != newest.found.ino => {
                        MergeSource::Older(changed)
                    }
                    _ => MergeSource::Newest,
                };
                if candidate.found.ino != top {
                    work.merge((candidate.found.ino, part), top, &mut restored)?;
                }
            }
            if let Some(there) = there.filter(|_| restored == Restored::default()) {
                work.check_came(newest, there)?;
            }
        } else if restored.names == 0 {
            return Err(FsError::Exists);
        }
        Ok(restored)
    }
}

struct Work<'a> {
    fs: &'a Governed,
    caller: &'a Caller,
    subvol: Arc<Subvol>,
    options: &'a RestoreOptions,
    /// Whether a directory was made, which counts as no name that came back.
    made: Cell<bool>,
}

impl Work<'_> {
    fn view(&self) -> View<'_> {
        View::new(&*self.fs.store, self.subvol.tree())
    }

    /// Returns why nothing came out of a directory of the trash into the one that has its name.
    /// Either that is another one, or there was nothing.
    fn check_came(&self, newest: &Candidate, there: u64) -> FsResult<()> {
        if self.made.get() {
            return Ok(());
        }
        let there = self.view().directory(there)?.map(|record| record.btime);
        let same = there.is_some() && there == newest.directory.map(|(made, _)| made);
        Err(if same { FsError::NotFound } else { FsError::Exists })
    }

    /// Whether the caller has this access to a directory.
    fn may(&self, dir: u64, mask: u32) -> FsResult<bool> {
        let Some(record) = self.view().directory(dir)? else { return Ok(false) };
        match permit::unlocked_directory(self.view(), dir, record, self.caller, mask) {
            Ok(seen) => Ok(seen.is_some()),
            Err(FsError::AccessDenied) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What was removed under the name, newest first, where the caller has access; and whether
    /// there is a path to which the caller has none.
    fn candidates(&self, whence: &Whence) -> FsResult<(Vec<Candidate>, bool)> {
        let view = self.view();
        let (mut found, mut refused) = (Vec::new(), false);
        let (name, above) = match whence.path.split_last() {
            Some((name, above)) => (Some(name), above),
            None => (None, &[][..]),
        };
        for (batch, root) in place::batches(self.fs, view, whence.home)? {
            let mut at = Some(root);
            for name in above {
                let Some(dir) = at.take() else { break };
                if self.may(dir, EXECUTE)? {
                    at = follow(self.fs, view, dir, std::slice::from_ref(name))?;
                } else {
                    refused = true;
                }
            }
            let Some(dir) = at else { continue };
            if !self.may(dir, EXECUTE)? {
                refused = true;
                continue;
            }
            let batch_itself =
                FoundEntry { cookie: 0, chained: false, ino: root, target: Target::Directory };
            let entry = match name {
                Some(name) => view.find_entry(dir, self.fs.hash.hash(name), name)?,
                None => Some(batch_itself),
            };
            let Some(entry) = entry else { continue };
            let wanted = match self.options.at {
                Some(at) if name.is_none() => batch.begin() <= at,
                Some(at) => removed(view, dir, &entry)?.is_some_and(|removed| removed <= at),
                None => true,
            };
            if wanted {
                let directory = match entry.target {
                    Target::Directory => view.directory(entry.ino)?,
                    _ => None,
                };
                let directory = directory.map(|record| (record.btime, record.ctime));
                found.push(Candidate { batch, root, dir, found: entry, directory });
            }
        }
        found.reverse();
        Ok((found, refused))
    }

    /// Directories whose contents belong to the newest one: it was the same directory.
    fn window<'c>(&self, candidates: &'c [Candidate]) -> impl Iterator<Item = &'c Candidate> {
        let newest = candidates.first();
        let hour = newest.map_or(0, |newest| newest.batch.hour);
        let made = |of: &Candidate| of.directory.map(|(made, _)| made);
        let same = newest.and_then(made);
        let since = self.options.since;
        candidates.iter().filter(move |candidate| {
            let late = match since {
                Some(since) => candidate.batch.end() > since,
                None => candidate.batch.hour >= hour - 1,
            };
            late && same.is_some() && made(candidate) == same
        })
    }

    /// Where the name was: the directory that it was in, and the name. Directories that are gone
    /// are made. `None`: it is the directory that has the trash.
    fn place(&self, whence: &Whence, from: &Candidate) -> FsResult<Option<(u64, Vec<u8>)>> {
        let Some((name, above)) = whence.path.split_last() else { return Ok(None) };
        let (mut live, mut mirror) = (whence.home, from.root);
        for name in above {
            if !self.may(live, EXECUTE)? {
                return Err(FsError::AccessDenied);
            }
            let entered = self.fs.enter(&self.subvol)?;
            let view = View::new(&*self.fs.store, entered.tree);
            let model = follow(self.fs, view, mirror, std::slice::from_ref(name))?;
            mirror = model.ok_or(FsError::NotFound)?;
            let there = view.find_entry(live, self.fs.hash.hash(name), name)?;
            let at = (live, name.as_slice());
            let of = (&*self.subvol, view);
            let made = mirror::make_as(self.fs, of, at, mirror, Some(self.caller))?;
            drop(entered);
            if there.is_none() {
                self.mark_changed(live, name);
            }
            live = made.ok_or(FsError::NotDirectory)?;
        }
        Ok(Some((live, name.clone())))
    }

    /// Moves one name back.
    fn back(&self, from: (u64, &[u8]), to: (u64, &[u8])) -> FsResult<()> {
        let entered = self.fs.enter(&self.subvol)?;
        let view = View::new(&*self.fs.store, entered.tree);
        let of = (&*self.subvol, view);
        if !move_name(self.fs, self.caller, of, [from, to], Purpose::OutOfTrash)? {
            return Err(FsError::CrossSubvolume("a subvolume in the trash"));
        }
        drop(entered);
        self.mark_changed(from.0, from.1);
        self.mark_changed(to.0, to.1);
        Ok(())
    }

    /// Moves one name back. Or recreates a directory that is charged to no one, with others in it,
    /// into which its contents are to be merged. Returns what the name points to now.
    fn bring(
        &self,
        from: (u64, &[u8]),
        found: &FoundEntry,
        to: (u64, &[u8]),
        restored: &mut Restored,
    ) -> FsResult<u64> {
        if !self.is_way(found)? {
            self.back(from, to)?;
            restored.names += 1;
            return Ok(found.ino);
        }
        let entered = self.fs.enter(&self.subvol)?;
        let of = (&*self.subvol, View::new(&*self.fs.store, entered.tree));
        let made = mirror::make_as(self.fs, of, to, found.ino, Some(self.caller))?;
        drop(entered);
        self.made.set(true);
        self.mark_changed(to.0, to.1);
        made.ok_or(FsError::NotDirectory)
    }

    fn is_way(&self, found: &FoundEntry) -> FsResult<bool> {
        if found.target != Target::Directory {
            return Ok(false);
        }
        Ok(self.view().directory(found.ino)?.is_some_and(|record| {
            let nobody = |charge: Charge| charge.subvolume == Charge::NOBODY;
            record.charge.is_some_and(nobody) && record.subdirectories != 0
        }))
    }

    fn mark_changed(&self, dir: u64, name: &[u8]) {
        mirror::changed(self.fs, &self.subvol, dir, name);
    }

    /// Moves what is in a directory of the trash into one that is there, and in those below that
    /// are in both.
    fn merge(
        &self,
        (from, part): (u64, MergeSource),
        to: u64,
        restored: &mut Restored,
    ) -> FsResult<()> {
        let mut left = vec![(from, to, 0)];
        while let Some((from, to, after)) = left.pop() {
            if !self.may(from, READ | EXECUTE)? || !self.may(to, EXECUTE)? {
                restored.left += 1;
                continue;
            }
            let mut names: Vec<(Vec<u8>, FoundEntry)> = Vec::new();
            let more = place::names_of(self.view(), from, after, &mut |name, found| {
                names.push((name.to_vec(), *found));
                names.len() < CHUNK
            })?;
            left.extend(more.map(|after| (from, to, after)));
            for (name, found) in names {
                if !self.in_time(from, &found)? {
                    continue;
                }
                let there = self.view().find_entry(to, self.fs.hash.hash(&name), &name)?;
                let both = found.target == Target::Directory
                    && there.is_some_and(|there| there.target == Target::Directory);
                match there {
                    Some(there) if both && self.belongs(found.ino, there.ino, part)? => {
                        left.push((found.ino, there.ino, 0));
                    }
                    Some(_) => restored.left += 1,
                    None => {
                        let at = self.bring((from, &name), &found, (to, &name), restored)?;
                        if at != found.ino {
                            left.push((found.ino, at, 0));
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Whether what was in a directory of the trash may come into one that is there.
    fn belongs(&self, from: u64, to: u64, part: MergeSource) -> FsResult<bool> {
        let MergeSource::Older(removed) = part else { return Ok(true) };
        let view = self.view();
        let (Some(from), Some(to)) = (view.directory(from)?, view.directory(to)?) else {
            return Ok(false);
        };
        Ok(from.btime == to.btime || to.btime > removed)
    }

    /// Whether something was removed in the time that the caller asks for.
    fn in_time(&self, dir: u64, found: &FoundEntry) -> FsResult<bool> {
        let RestoreOptions { at, since } = *self.options;
        if at.is_none() && since.is_none() || found.target == Target::Directory {
            return Ok(true);
        }
        let removed = removed(self.view(), dir, found)?;
        Ok(removed.is_some_and(|removed| {
            at.is_none_or(|at| removed <= at) && since.is_none_or(|since| removed >= since)
        }))
    }
}

/// When something in the trash was removed: its status changed then.
fn removed(view: View<'_>, dir: u64, found: &FoundEntry) -> FsResult<Option<i64>> {
    Ok(match found.target {
        Target::Directory => view.directory(found.ino)?.map(|record| record.ctime),
        Target::Subvolume(_) | Target::Tombstone => None,
        _ => match Object::load(view, dir, found)? {
            Object::File { inode, .. } => Some(inode.ctime),
            Object::Directory(record) => Some(record.ctime),
        },
    })
}
