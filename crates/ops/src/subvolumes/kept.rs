//! The snapshots of a volume, those of removed directories too: which they are, and the path that
//! each one's directory has, or had.
//!
//! A snapshot is named under the lineage and number of its directory. The directory is there as
//! long as a live subvolume of the lineage points to it. No record has where a removed one was:
//! the snapshot's own tree does, which is a copy of the source's tree with all that was above the
//! directory, until it is pruned.

use std::collections::{BTreeMap, BTreeSet};

use format::entry_record::Target;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::permissions::EXECUTE;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::KeyRange;
use vfs::FsResult;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::{VOLUME, node_of, read_record};
use volume::view::{NameBuf, View};
use volume::{KeptSnapshot, SnapshotsOf, permit};

use super::leads::Leads;
use super::nested;
use super::snapshot::{info, number};
use crate::Ops;
use crate::reach::Reach;

/// Deepest directory: a longer chain of parents is a loop.
const DEPTH_MAX: usize = 1 << 20;

/// How often a directory is sought that moves while it is.
const ATTEMPTS_MAX: usize = 100;

impl Ops {
    /// The snapshots of the volume, the oldest first. Root sees all, others those of directories
    /// that they own.
    pub fn snapshot_list_volume(
        &self,
        caller: &Caller,
        of: SnapshotsOf,
    ) -> FsResult<Vec<KeptSnapshot>> {
        let mut groups: BTreeMap<(u64, u64), Vec<u64>> = BTreeMap::new();
        self.visit_volume(&key::SNAPSHOT_NAMES_PREFIX, &mut |key, value| {
            let parsed = key::parse_snapshot_name(key);
            let (lineage, ino, _) = parsed.map_err(|error| malformed(VOLUME, &error))?;
            groups.entry((lineage, ino)).or_default().push(number(value)?);
            Ok(())
        })?;
        let mut found = Vec::new();
        if groups.is_empty() {
            return Ok(found);
        }
        let reachable = Reachable::read(self)?;
        let (mut roots, mut leads) = (BTreeMap::new(), None);
        for ((lineage, ino), snapshots) in groups {
            let there = match reachable.directory(lineage, ino, caller) {
                // One state for all: what is renamed meanwhile is in it once.
                Ok(None) => match self.names_point_to(&mut leads, lineage, ino) {
                    Ok(false) => Ok(None),
                    Ok(true) => self.reachable_directory(lineage, ino, caller),
                    Err(error) => Err(error),
                },
                Err(FsError::Stale) => self.reachable_directory(lineage, ino, caller),
                there => there,
            };
            let there = match there {
                Ok(there) => there,
                // What cannot be read is not taken for removed, and hides no others.
                Err(FsError::Io(_)) => Some(There { subvol: 0, path: None }),
                Err(error) => return Err(error),
            };
            if there.is_some() && of == SnapshotsOf::Removed {
                continue;
            }
            if there.is_none() && !roots.contains_key(&lineage) {
                roots.insert(lineage, reachable.roots(lineage)?);
            }
            for id in snapshots {
                let Some(record) = read_record(&*self.store, SubvolId(id))? else { continue };
                // Root deletes what cannot be read, too.
                if !caller.is_root() && self.snapshot_entry_of(caller, SubvolId(id)).is_err() {
                    continue;
                }
                let path = match &there {
                    Some(there) => there.path.clone(),
                    None if !reachable.shows(id, &record, caller)? => None,
                    None => reachable.path_then(id, &record, &roots[&lineage], caller)?,
                };
                found.push(KeptSnapshot {
                    snapshot: info(id, &record),
                    removed: there.is_none(),
                    path,
                });
            }
        }
        found.sort_by_key(|kept| (kept.snapshot.created, kept.snapshot.subvol));
        Ok(found)
    }

    /// The node of the directory that a snapshot is of, where that was not removed. By number
    /// a caller reaches it only where the path is open to it. Of a directory that was removed,
    /// [`Reachable::was_open`] decides.
    pub(super) fn directory_of_snapshot(
        &self,
        caller: &Caller,
        (id, record): (SubvolId, &SubvolumeRecord),
    ) -> FsResult<Option<NodeId>> {
        match self.reachable_directory(record.lineage, record.root, caller)? {
            Some(There { path: None, .. }) if !caller.is_root() => {
                Err(FsError::NotPermitted("the path to its directory is not searchable"))
            }
            None if !caller.is_root()
                && !Reachable::read(self)?.was_open(id, record, caller)? =>
            {
                Err(FsError::NotPermitted(
                    "directories of others above it were removed too, or are closed: only root \
                     reaches it by number",
                ))
            }
            there => Ok(there.map(|there| node_of(there.subvol, record.root))),
        }
    }

    /// Whether names point to a directory, in a state that is read once.
    fn names_point_to(&self, leads: &mut Option<Leads>, lineage: u64, ino: u64) -> FsResult<bool> {
        let leads = match leads {
            Some(leads) => leads,
            none => none.insert(Leads::read(&*self.store)?),
        };
        leads.to(lineage, ino)
    }

    /// The directory of a lineage and number, if it is reachable. It is not, only if no name
    /// leads there in one state: what is renamed meanwhile may be nowhere where one looks.
    pub(super) fn reachable_directory(
        &self,
        lineage: u64,
        ino: u64,
        caller: &Caller,
    ) -> FsResult<Option<There>> {
        for _ in 0..ATTEMPTS_MAX {
            match Reachable::read(self)?.directory(lineage, ino, caller) {
                Ok(None) if !Leads::read(&*self.store)?.to(lineage, ino)? => return Ok(None),
                Ok(None) | Err(FsError::Stale) => {}
                found => return found,
            }
        }
        Err(FsError::Busy("the directory is being renamed continuously; try again"))
    }

    /// The directory whose `.snapshots` shows a snapshot: a subvolume and an inode. `None`: it was
    /// removed. It is the directory that the snapshot was taken of, unless a rollback has replaced
    /// that by another of its lineage.
    pub fn shown_in(&self, record: &SubvolumeRecord) -> FsResult<Option<(u64, u64)>> {
        let (id, dir) = record.source;
        let source = read_record(&*self.store, SubvolId(id))?;
        if source.is_some_and(|source| !source.detached && source.lineage == record.lineage) {
            let found = self.subvol(SubvolId(id)).and_then(|source| {
                source.read(|tree| View::new(&*self.store, tree).directory(dir))
            });
            match found {
                Ok(Some(directory)) if !directory.detached => return Ok(Some((id, dir))),
                // It was removed since its record was read.
                Ok(_) | Err(FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        let there = self.reachable_directory(record.lineage, record.root, &Caller::root())?;
        Ok(there.map(|there| (there.subvol, record.root)))
    }

    /// How many snapshots there are of the directory that a name points to and of all below it:
    /// what a removal leaves.
    pub fn snapshots_of_tree(&self, parent: NodeId, name: &[u8]) -> FsResult<u64> {
        let (above, dir) = self.place(parent)?;
        let view = View::new(&*self.store, above.tree());
        let found = view.find_entry(dir, self.hash.hash(name), name)?;
        let found = found.ok_or(FsError::NotFound)?;
        let subvol = match found.target {
            Target::Directory => above,
            Target::Subvolume(child) => {
                let child = self.nested_at(&above, (dir, found.cookie), child)?;
                self.subvol(SubvolId(child))?
            }
            _ => return Err(FsError::NotDirectory),
        };
        let mut count = 0;
        self.inherit_some();
        let from = (&*subvol, found.ino);
        let below = nested::below(self, &mut self.admin.lock(), from)?;
        let roots = below.iter().map(|member| (&*member.subvol, member.subvol.root));
        for (subvol, dir) in std::iter::once((&*subvol, found.ino)).chain(roots) {
            let mut reach = Reach::new(subvol.tree(), dir);
            let mut next = Some(0);
            while let Some(from) = next {
                next = self.next_with_snapshots(subvol.lineage, from)?;
                let Some(ino) = next else { break };
                if reach.contains(&*self.store, ino)? {
                    count += self.snapshot_names(subvol, ino)?.len() as u64;
                }
                next = ino.checked_add(1);
            }
        }
        Ok(count)
    }

    /// The first directory of a lineage, from a number on, that has snapshots.
    fn next_with_snapshots(&self, lineage: u64, from: u64) -> FsResult<Option<u64>> {
        let start = key::snapshot_names_prefix(lineage, from);
        let end = key::snapshot_names_prefix(lineage, u64::MAX);
        let range = KeyRange::between(&start, &end);
        let mut cursor = self.store.scan(VOLUME, range).map_err(from_store)?;
        let Some(item) = cursor.next().map_err(from_store)? else { return Ok(None) };
        let parsed = key::parse_snapshot_name(item.key);
        parsed.map(|(_, ino, _)| Some(ino)).map_err(|error| malformed(VOLUME, &error))
    }
}

/// What is reachable from the volume's root by names: subvolumes that are neither snapshots nor
/// removed, and where they are mounted.
struct Reachable<'a> {
    fs: &'a Ops,
    root: u64,
    live: BTreeMap<u64, SubvolumeRecord>,
    by_lineage: BTreeMap<u64, Vec<u64>>,
}

/// A directory that is there.
pub(super) struct There {
    pub(super) subvol: u64,
    /// Where; `None`: at a path that the caller may not go.
    path: Option<Vec<u8>>,
}

/// Names above a directory of a tree.
struct Above {
    /// The nearest directory above that was sought.
    top: u64,
    /// The names from there on, the last one first.
    names: Vec<Vec<u8>>,
    /// Whether the caller may search all of the directories that they are in.
    open: bool,
}

impl Reachable<'_> {
    fn read(fs: &Ops) -> FsResult<Reachable<'_>> {
        let mut live = BTreeMap::new();
        let mut by_lineage: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        fs.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            // What was mounted below a snapshot's directory is read-only as the snapshot is.
            if !record.detached && !record.read_only {
                let id = key::parse_number(key).map_err(malformed)?;
                by_lineage.entry(record.lineage).or_default().push(id);
                live.insert(id, record);
            }
            Ok(())
        })?;
        Ok(Reachable { fs, root: fs.root_subvol()?.id.0, live, by_lineage })
    }

    /// The directory of a lineage and number, if it is reachable.
    fn directory(&self, lineage: u64, ino: u64, caller: &Caller) -> FsResult<Option<There>> {
        for &subvol in self.by_lineage.get(&lineage).into_iter().flatten() {
            if let Some((path, open)) = self.path_of(subvol, ino, caller)? {
                return Ok(Some(There { subvol, path: open.then_some(path) }));
            }
        }
        Ok(None)
    }

    /// Subvolumes of a lineage that names point to, by their roots.
    fn roots(&self, lineage: u64) -> FsResult<BTreeMap<u64, u64>> {
        let mut roots = BTreeMap::new();
        for &id in self.by_lineage.get(&lineage).into_iter().flatten() {
            let Some(root) = self.live.get(&id).map(|record| record.root) else { continue };
            match self.path_of(id, root, &Caller::root()) {
                Ok(Some(_)) => {
                    roots.insert(root, id);
                }
                Ok(None) | Err(FsError::Io(_) | FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(roots)
    }

    /// The path that the directory of a snapshot had when it was taken, as far as it is known.
    fn path_then(
        &self,
        id: u64,
        record: &SubvolumeRecord,
        roots: &BTreeMap<u64, u64>,
        caller: &Caller,
    ) -> FsResult<Option<Vec<u8>>> {
        let sought = |ino: u64| roots.contains_key(&ino);
        let above = self.names_above(id, record.root, caller, sought);
        let Above { top, names, open } = match above {
            Ok(Some(above)) => above,
            // The snapshot can be used though what was above it cannot be read.
            Ok(None) | Err(FsError::Io(_) | FsError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        let found = self.path_of(roots[&top], top, caller);
        let (mut path, way) = match found {
            Ok(Some(found)) => found,
            Ok(None) | Err(FsError::Io(_) | FsError::Stale) => return Ok(None),
            Err(error) => return Err(error),
        };
        append(&mut path, &names);
        Ok((open && way).then_some(path))
    }

    /// The path of a directory of a live subvolume, and whether the caller may go there; `None`
    /// when no names lead there.
    fn path_of(&self, subvol: u64, dir: u64, caller: &Caller) -> FsResult<Option<(Vec<u8>, bool)>> {
        let (mut names, mut open) = (Vec::new(), true);
        let (mut subvol, mut dir) = (subvol, dir);
        let mut passed = BTreeSet::new();
        loop {
            let Some(record) = self.live.get(&subvol) else { return Ok(None) };
            if !passed.insert(subvol) {
                return Err(inconsistent(VOLUME, "subvolumes contain each other", record.root));
            }
            let root = record.root;
            let above = self.names_above(subvol, dir, caller, |ino| ino == root)?;
            let Some(above) = above else { return Ok(None) };
            names.extend(above.names);
            open &= above.open;
            if subvol == self.root {
                break;
            }
            let (above, directory, cookie) = record.parent;
            if !self.live.contains_key(&above) {
                return Ok(None);
            }
            let mut name = NameBuf::empty();
            let found = self.fs.subvol(SubvolId(above))?.read(|tree| {
                View::new(&*self.fs.store, tree).entry_at(directory, cookie, &mut name)
            })?;
            if found.is_none_or(|found| found.target != Target::Subvolume(subvol)) {
                return Ok(None);
            }
            names.push(name.as_bytes().to_vec());
            (subvol, dir) = (above, directory);
            open &= self.searchable(subvol, dir, caller)?;
        }
        let mut path = b"/".to_vec();
        append(&mut path, &names);
        Ok(Some((path, open)))
    }

    /// Whether a caller may know the path that a removed directory had.
    fn shows(&self, id: u64, record: &SubvolumeRecord, caller: &Caller) -> FsResult<bool> {
        match self.was_open(SubvolId(id), record, caller) {
            _ if caller.is_root() => Ok(true),
            Err(FsError::Io(_) | FsError::Stale) => Ok(false),
            open => open,
        }
    }

    /// Whether the removal of a snapshot's directory opened nothing to the caller. Permissions of
    /// directories that were removed are not known: their owners may have changed them since the
    /// snapshot was taken. So those that were removed with it, as the snapshot shows the path, must
    /// have been the caller's own, and the rest of the path must be open. Where the path is not
    /// known, because the snapshot was pruned or a whole subvolume was removed, it is not open.
    fn was_open(&self, id: SubvolId, record: &SubvolumeRecord, caller: &Caller) -> FsResult<bool> {
        let subvol = self.fs.subvol(id)?;
        let mut at = record.root;
        for _ in 0..DEPTH_MAX {
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
                Some(There { subvol, path: Some(_) }) => {
                    return self.searchable(subvol, above, caller);
                }
                Some(There { path: None, .. }) => return Ok(false),
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

    /// The names above a directory of a subvolume, up to one that is sought; `None` when they do
    /// not point to one.
    fn names_above(
        &self,
        subvol: u64,
        dir: u64,
        caller: &Caller,
        sought: impl Fn(u64) -> bool,
    ) -> FsResult<Option<Above>> {
        self.fs.subvol(SubvolId(subvol))?.read(|tree| {
            let view = View::new(&*self.fs.store, tree);
            let mut found = Above { top: dir, names: Vec::new(), open: true };
            while !sought(found.top) {
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
                if found.names.len() > DEPTH_MAX {
                    return Err(inconsistent(tree, "directories contain each other", at));
                }
                found.names.push(name.as_bytes().to_vec());
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

/// Adds names to a path, of which the last one is the first.
fn append(path: &mut Vec<u8>, names: &[Vec<u8>]) {
    for name in names.iter().rev() {
        if path.last() != Some(&b'/') {
            path.push(b'/');
        }
        path.extend_from_slice(name);
    }
}
