//! What names reach from the volume's root, and paths of directories. Directories may exist, or be
//! removed; then a snapshot of them shows the way.
//!
//! A path is built from its end, in one buffer, up to [`super::way::PATH_BYTES_MAX`]: a way up may
//! be of any length. Each step of a way is counted ([`StepBudget`]), and ends when the caller has
//! left.

use std::collections::{BTreeMap, BTreeSet};

use format::entry_record::Target;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::permissions::EXECUTE;
use inode::{Caller, FsError, SubvolId};
use vfs::FsResult;
use volume::error::{inconsistent, malformed};
use volume::permit;
use volume::subvol::VOLUME;
use volume::view::{NameBuf, View};

use super::way::{Path, StepBudget};
use crate::Ops;

/// Deepest directory: a longer chain of parents is a loop.
const DEPTH_MAX: usize = 1 << 20;

/// A climb remembers one directory of so many: the next one that comes the same way soon meets it.
const KNOWN_EACH: usize = 32;

/// Whether names lead from the root of the volume to a directory of a subvolume.
type Ways = BTreeMap<(u64, u64), bool>;

/// A live subvolume: its root, and the entry in which it is mounted.
struct Live {
    root: u64,
    parent: (u64, u64, u64),
}

/// What is reachable from the volume's root by names: subvolumes that are neither snapshots nor
/// removed, and where they are mounted.
pub(super) struct Reachable<'a> {
    fs: &'a Ops,
    walk: &'a StepBudget<'a>,
    root: u64,
    live: BTreeMap<u64, Live>,
    by_lineage: BTreeMap<u64, Vec<u64>>,
}

/// A directory that is there.
#[derive(Clone)]
pub(super) struct There {
    pub(super) subvol: u64,
    /// Whether the caller may go there.
    pub(super) open: bool,
    /// Where; `None`: the path is too long.
    path: Option<Vec<u8>>,
}

impl There {
    /// How long its path is, where it is kept.
    pub(super) fn path_bytes(&self) -> usize {
        self.path.as_ref().map_or(0, Vec::len)
    }

    /// The path, if the caller may know it.
    pub(super) fn open_path(self) -> Option<Vec<u8>> {
        self.path.filter(|_| self.open)
    }
}

/// A directory of which no path is known.
pub(super) const UNREADABLE: There = There { subvol: 0, open: false, path: None };

/// The end of a way up.
struct Above {
    /// The nearest directory above that was sought.
    top: u64,
    /// Whether the caller may search all directories on the way.
    open: bool,
}

impl<'a> Reachable<'a> {
    pub(super) fn read(fs: &'a Ops, walk: &'a StepBudget<'a>) -> FsResult<Reachable<'a>> {
        let mut live = BTreeMap::new();
        let mut by_lineage: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            // What was mounted below a snapshot's directory is read-only as the snapshot is.
            if !record.detached && !record.read_only {
                let id = key::parse_number(key).map_err(malformed)?;
                by_lineage.entry(record.lineage).or_default().push(id);
                live.insert(id, Live { root: record.root, parent: record.parent });
            }
            Ok(())
        })?;
        Ok(Reachable { fs, walk, root: fs.root_subvol()?.id.0, live, by_lineage })
    }

    /// The directory of a lineage and number, if it is reachable.
    pub(super) fn directory(
        &self,
        lineage: u64,
        ino: u64,
        caller: &Caller,
    ) -> FsResult<Option<There>> {
        for &subvol in self.by_lineage.get(&lineage).into_iter().flatten() {
            let mut path = Path::default();
            if let Some(open) = self.climb(subvol, ino, caller, &mut path)? {
                return Ok(Some(There { subvol, open, path: path.built() }));
            }
        }
        Ok(None)
    }

    /// Subvolumes of a lineage that names point to, by their roots.
    pub(super) fn roots(&self, lineage: u64) -> FsResult<BTreeMap<u64, u64>> {
        let (mut roots, mut known) = (BTreeMap::new(), Ways::new());
        for &id in self.by_lineage.get(&lineage).into_iter().flatten() {
            let Some(root) = self.live.get(&id).map(|live| live.root) else { continue };
            match self.leads_up(id, root, &mut known) {
                Ok(true) => {
                    roots.insert(root, id);
                }
                Ok(false) | Err(FsError::Io(_) | FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(roots)
    }

    /// The path that the directory of a snapshot had when it was taken. It is returned as far as it
    /// is known, and has at most so many names.
    pub(super) fn path_then(
        &self,
        (id, record): (u64, &SubvolumeRecord),
        roots: &BTreeMap<u64, u64>,
        names_max: usize,
        caller: &Caller,
    ) -> FsResult<Option<Vec<u8>>> {
        let mut path = Path::default();
        let names_max = names_max.min(DEPTH_MAX);
        let sought = |ino: u64| roots.contains_key(&ino);
        let above = self.names_above((id, record.root), caller, sought, names_max, &mut path);
        let Above { top, open } = match above {
            Ok(Some(above)) => above,
            // The snapshot can be used though what was above it cannot be read.
            Ok(None) | Err(FsError::Io(_) | FsError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.climb(roots[&top], top, caller, &mut path) {
            Ok(Some(way)) => Ok(path.built().filter(|_| open && way)),
            Ok(None) | Err(FsError::Io(_) | FsError::Stale) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether names lead from the root of the volume to a directory. Each directory is climbed
    /// once: users may have any number of ways that share most of their length.
    fn leads_up(&self, subvol: u64, dir: u64, known: &mut Ways) -> FsResult<bool> {
        let (mut steps, mut passed) = (0_usize, Vec::new());
        let mut known_at = |at: (u64, u64)| {
            if steps.is_multiple_of(KNOWN_EACH) {
                passed.push(at);
            }
            steps += 1;
            known.get(&at).copied()
        };
        let (caller, mut path) = (Caller::root(), Path::default());
        let way = self.climb_to((subvol, dir), &caller, &mut path, &mut known_at)?;
        known.extend(passed.into_iter().map(|at| (at, way.is_some())));
        Ok(way.is_some())
    }

    /// Builds the path of a directory of a live subvolume, and returns whether the caller may go
    /// there; `None` when no names point there.
    fn climb(
        &self,
        subvol: u64,
        dir: u64,
        caller: &Caller,
        path: &mut Path,
    ) -> FsResult<Option<bool>> {
        self.climb_to((subvol, dir), caller, path, &mut |_| None)
    }

    /// The same, up to a directory of which it is known whether names point there.
    fn climb_to(
        &self,
        (subvol, dir): (u64, u64),
        caller: &Caller,
        path: &mut Path,
        known_at: &mut dyn FnMut((u64, u64)) -> Option<bool>,
    ) -> FsResult<Option<bool>> {
        let mut open = true;
        let (mut subvol, mut dir) = (subvol, dir);
        let mut passed = BTreeSet::new();
        loop {
            let Some(live) = self.live.get(&subvol) else { return Ok(None) };
            if !passed.insert(subvol) {
                return Err(inconsistent(VOLUME, "subvolumes contain each other", live.root));
            }
            let mut leads = None;
            let sought = |ino| {
                leads = known_at((subvol, ino));
                leads.is_some() || ino == live.root
            };
            let above = self.names_above((subvol, dir), caller, sought, DEPTH_MAX, path)?;
            let Some(above) = above else { return Ok(None) };
            open &= above.open;
            if let Some(leads) = leads {
                return Ok(leads.then_some(open));
            }
            if subvol == self.root {
                return Ok(Some(open));
            }
            let (above, directory, cookie) = live.parent;
            if !self.live.contains_key(&above) {
                return Ok(None);
            }
            self.walk.step()?;
            let mut name = NameBuf::empty();
            let found = self.fs.subvol(SubvolId(above))?.read(|tree| {
                View::new(&*self.fs.store, tree).entry_at(directory, cookie, &mut name)
            })?;
            if found.is_none_or(|found| found.target != Target::Subvolume(subvol)) {
                return Ok(None);
            }
            path.push(name.as_bytes());
            (subvol, dir) = (above, directory);
            open &= self.searchable(subvol, dir, caller)?;
        }
    }

    /// Whether a caller may know the path that a removed directory had.
    pub(super) fn shows(
        &self,
        id: u64,
        record: &SubvolumeRecord,
        caller: &Caller,
    ) -> FsResult<bool> {
        if caller.is_root() {
            return Ok(true);
        }
        match self.was_open(SubvolId(id), record, caller) {
            Err(FsError::Io(_) | FsError::Stale) => Ok(false),
            open => open,
        }
    }

    /// Whether the removal of a snapshot's directory opened nothing to the caller. Permissions of
    /// directories that were removed are not known: their owners may have changed them since the
    /// snapshot was taken. So those that were removed with it, as the snapshot shows the path, must
    /// have been the caller's own. The rest of the path must be open. Where the path is not known,
    /// because the snapshot was pruned or a whole subvolume was removed, it is not open.
    pub(super) fn was_open(
        &self,
        id: SubvolId,
        record: &SubvolumeRecord,
        caller: &Caller,
    ) -> FsResult<bool> {
        let subvol = self.fs.subvol(id)?;
        let mut at = record.root;
        for _ in 0..DEPTH_MAX {
            self.walk.step()?;
            let found = subvol.read(|tree| View::new(&*self.fs.store, tree).directory(at))?;
            let Some(found) = found else { return Ok(false) };
            if at != record.root
                && (found.uid != caller.uid || !self.searchable(id.0, at, caller)?)
            {
                return Ok(false);
            }
            let above = found.parent;
            if above == at || found.parent_cookie == 0 {
                return Ok(false);
            }
            match self.directory(record.lineage, above, caller)? {
                Some(There { subvol, open: true, .. }) => {
                    return self.searchable(subvol, above, caller);
                }
                Some(There { open: false, .. }) => return Ok(false),
                None => at = above,
            }
        }
        Err(inconsistent(VOLUME, "directories contain each other", record.root))
    }

    fn searchable(&self, subvol: u64, dir: u64, caller: &Caller) -> FsResult<bool> {
        self.fs.subvol(SubvolId(subvol))?.read(|tree| {
            let view = View::new(&*self.fs.store, tree);
            let record = view.directory(dir)?;
            Ok(record.is_some_and(|record| {
                permit::directory(view, dir, &record, caller, EXECUTE).is_ok()
            }))
        })
    }

    /// Adds the names above a directory of a subvolume, up to one that is sought. `None` when they
    /// do not point to one, or it is more than so many names above.
    fn names_above(
        &self,
        (subvol, dir): (u64, u64),
        caller: &Caller,
        mut sought: impl FnMut(u64) -> bool,
        names_max: usize,
        path: &mut Path,
    ) -> FsResult<Option<Above>> {
        self.fs.subvol(SubvolId(subvol))?.read(|tree| {
            let view = View::new(&*self.fs.store, tree);
            let (mut found, mut names) = (Above { top: dir, open: true }, 0);
            while !sought(found.top) {
                self.walk.step()?;
                let at = found.top;
                let record = view.directory(at)?.filter(|record| !record.detached);
                let Some(record) = record.filter(|record| record.parent != at) else {
                    return Ok(None);
                };
                let mut name = NameBuf::empty();
                let entry = view.entry_at(record.parent, record.parent_cookie, &mut name)?;
                let leads = entry.is_some_and(|entry| {
                    entry.ino == at && matches!(entry.target, Target::Directory)
                });
                if !leads {
                    return Ok(None);
                }
                names += 1;
                if names > DEPTH_MAX {
                    return Err(inconsistent(tree, "directories contain each other", at));
                }
                if names > names_max {
                    return Ok(None);
                }
                path.push(name.as_bytes());
                found.top = record.parent;
                if !caller.is_root() {
                    let above = view.directory(found.top)?;
                    found.open &= above.is_some_and(|record| {
                        permit::directory(view, found.top, &record, caller, EXECUTE).is_ok()
                    });
                }
            }
            Ok(Some(found))
        })
    }
}
