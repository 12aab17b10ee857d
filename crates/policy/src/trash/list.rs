//! Lists the trash by original path: each object that would be restored as a whole, newest batch
//! first. A directory that still exists is walked; one that does not is reported as one object.

use inode::permissions::{EXECUTE, READ};
use inode::{Caller, FsError, NodeId};
use ops::posix::lookup::attributes_of;
use vfs::{FsResult, WalkControl};
use volume::subvol::Subvol;
use volume::view::{FoundEntry, View};
use volume::{Removed, permit};

use super::place::{self, Climb};
use crate::Governed;

use std::sync::Arc;

/// Where an object was: the directory that has the trash, and the path from there.
pub(super) struct Whence {
    pub(super) subvol: Arc<Subvol>,
    pub(super) home: u64,
    pub(super) path: Vec<Vec<u8>>,
}

impl Whence {
    /// Finds it from a directory that is there, and names below that need not be.
    pub(super) fn find(fs: &Governed, dir: NodeId, rest: &[Vec<u8>]) -> FsResult<Whence> {
        let (subvol, ino) = fs.place(fs.real(dir))?;
        let view = View::new(&*fs.store, subvol.tree());
        match place::climb(fs, &subvol, view, ino)? {
            Climb::Home { home, path, .. } => {
                let mut names: Vec<_> =
                    path.iter().map(|(_, name)| name.as_bytes().to_vec()).collect();
                names.extend_from_slice(rest);
                if names.first().is_some_and(|name| name == super::NAME) {
                    return Err(FsError::InvalidArgument("name the path that it had"));
                }
                Ok(Whence { subvol, home, path: names })
            }
            Climb::Inside => Err(FsError::InvalidArgument("name the path that it had")),
            Climb::Off => Err(FsError::InvalidArgument("no trash keeps what is removed there")),
        }
    }
}

/// Follows names down from a directory. `None`: one is missing, or no directory.
pub(super) fn follow(
    fs: &Governed,
    view: View<'_>,
    from: u64,
    path: &[Vec<u8>],
) -> FsResult<Option<u64>> {
    let mut at = from;
    for name in path {
        match view.find_entry(at, fs.hash.hash(name), name)? {
            Some(found) if found.target == format::entry_record::Target::Directory => {
                at = found.ino;
            }
            _ => return Ok(None),
        }
    }
    Ok(Some(at))
}

impl Governed {
    /// Lists what is in the trash of a place: of an existing directory, with names below it that
    /// need not exist. What the caller may not see is not listed.
    pub fn trash_list(
        &self,
        caller: &Caller,
        (dir, rest): (NodeId, &[Vec<u8>]),
        take: &mut dyn FnMut(Removed) -> WalkControl,
    ) -> FsResult<()> {
        let Whence { subvol, home, path } = Whence::find(self, dir, rest)?;
        let view = View::new(&*self.store, subvol.tree());
        let mut batches = place::batches(self, view, home)?;
        batches.reverse();
        let mut walk = Walk { fs: self, caller, subvol: &subvol, view, take };
        for (_, batch) in batches {
            if walk.batch(batch, home, &path)? == WalkControl::Stop {
                break;
            }
        }
        Ok(())
    }
}

/// Names of a directory that are read at a time.
const PAGE_MAX: usize = 256;

/// A directory of the trash on the way, whose original is there.
struct Level {
    dir: u64,
    live: u64,
    /// Names that were read, and the cookie behind which there are more.
    page: Vec<(Vec<u8>, FoundEntry)>,
    next: Option<u64>,
    /// The cookie of the last directory in it that was entered.
    entered: u64,
}

struct Walk<'a> {
    fs: &'a Governed,
    caller: &'a Caller,
    subvol: &'a Subvol,
    view: View<'a>,
    take: &'a mut dyn FnMut(Removed) -> WalkControl,
}

impl Walk<'_> {
    fn batch(&mut self, batch: u64, home: u64, path: &[Vec<u8>]) -> FsResult<WalkControl> {
        let view = self.view;
        let Some((name, above)) = path.split_last() else {
            return self.below(batch, home, Vec::new());
        };
        let mut at = batch;
        for name in above {
            if !self.may(at, EXECUTE)? {
                return Ok(WalkControl::Continue);
            }
            match follow(self.fs, view, at, std::slice::from_ref(name))? {
                Some(next) => at = next,
                None => return Ok(WalkControl::Continue),
            }
        }
        if !self.may(at, EXECUTE)? {
            return Ok(WalkControl::Continue);
        }
        let Some(found) = view.find_entry(at, self.fs.hash.hash(name), name)? else {
            return Ok(WalkControl::Continue);
        };
        match follow(self.fs, view, home, path)? {
            Some(live) if found.is_directory() => self.below(found.ino, live, path.to_vec()),
            _ => self.give(at, &found, path.to_vec()),
        }
    }

    fn may(&self, dir: u64, mask: u32) -> FsResult<bool> {
        let Some(record) = self.view.directory(dir)? else { return Ok(false) };
        match permit::unlocked_directory(self.view, dir, record, self.caller, mask) {
            Ok(seen) => Ok(seen.is_some()),
            Err(FsError::AccessDenied) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What is in a directory of the trash whose original exists. Of each directory it lists first
    /// what is restored as a whole, then what is below the directories that exist, one after the
    /// other. What is kept are the directories on the way, with one name each, and a page of names.
    fn below(&mut self, dir: u64, live: u64, path: Vec<Vec<u8>>) -> FsResult<WalkControl> {
        let (mut path, mut levels) = (path, Vec::new());
        self.enter(dir, live, &mut levels)?;
        while let Some(level) = levels.last_mut() {
            if self.next_page(level)? {
                for (name, found) in std::mem::take(&mut level.page) {
                    let is_restored_whole = !found.is_directory()
                        || follow(self.fs, self.view, level.live, std::slice::from_ref(&name))?
                            .is_none();
                    if is_restored_whole {
                        path.push(name);
                        let control = self.give(level.dir, &found, path.clone())?;
                        path.pop();
                        if control == WalkControl::Stop {
                            return Ok(control);
                        }
                    }
                }
                continue;
            }
            let Some((name, dir)) = self.next_directory(level)? else {
                levels.pop();
                // The name of the directory that it is in stays with the caller's.
                if !levels.is_empty() {
                    path.pop();
                }
                continue;
            };
            let there = follow(self.fs, self.view, level.live, std::slice::from_ref(&name))?;
            if let Some(live) = there
                && self.enter(dir, live, &mut levels)?
            {
                path.push(name);
            }
        }
        Ok(WalkControl::Continue)
    }

    /// Adds a level for a directory, if the caller may read it.
    fn enter(&self, dir: u64, live: u64, levels: &mut Vec<Level>) -> FsResult<bool> {
        let may = self.may(dir, READ | EXECUTE)?;
        if may {
            let (page, next) = (Vec::new(), Some(0));
            levels.push(Level { dir, live, page, next, entered: 0 });
        }
        Ok(may)
    }

    /// Reads the next names of a directory. `false`: there are no more.
    fn next_page(&self, level: &mut Level) -> FsResult<bool> {
        let Some(from) = level.next else { return Ok(false) };
        level.next = place::names_of(self.view, level.dir, from, &mut |name, found| {
            level.page.push((name.to_vec(), *found));
            level.page.len() < PAGE_MAX
        })?;
        Ok(true)
    }

    /// The next directory of a directory.
    fn next_directory(&self, level: &mut Level) -> FsResult<Option<(Vec<u8>, u64)>> {
        let mut next = None;
        place::names_of(self.view, level.dir, level.entered, &mut |name, found| {
            if found.is_directory() {
                level.entered = found.cookie;
                next = Some((name.to_vec(), found.ino));
            }
            next.is_none()
        })?;
        Ok(next)
    }

    fn give(&mut self, dir: u64, found: &FoundEntry, path: Vec<Vec<u8>>) -> FsResult<WalkControl> {
        let (attr, _) = match attributes_of(self.fs, self.view, self.subvol, dir, found) {
            // It was restored, or purged, meanwhile.
            Err(FsError::Stale) => return Ok(WalkControl::Continue),
            known => known?,
        };
        Ok((self.take)(Removed { path, removed: attr.ctime.0, attr }))
    }
}
