//! Snapshots, clones, rollback, and the removal of whole directories: deep copies.

use std::collections::BTreeMap;

use device::Timestamp;
use inode::{Caller, Kind};

use super::op::OpPath;
use super::state::{FsModel, Judged, Key, Subvol};
use super::verdict::{Checks, Effect, ErrorKind};

/// The purpose of a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    /// Read-only, of the same lineage.
    Snapshot,
    /// Writable, of a new lineage.
    Clone,
    /// Writable, of the same lineage.
    Rollback,
}

impl FsModel {
    fn directory(&self, caller: &Caller, path: &OpPath) -> Judged<Key> {
        let key = self.resolve(caller, path)?;
        if self.inode(key).kind == Kind::Directory {
            Ok(key)
        } else {
            Err(vec![ErrorKind::NotDirectory])
        }
    }

    /// A live directory whose snapshots the caller may change.
    fn snapshotted(&self, caller: &Caller, path: &OpPath, checks: &mut Checks) -> Judged<Key> {
        let key = self.directory(caller, path)?;
        if self.subvol_of(key).read_only {
            return Err(vec![ErrorKind::ReadOnly, ErrorKind::NotPermitted, ErrorKind::NotFound]);
        }
        checks.require(self.owns(caller, key), ErrorKind::NotPermitted);
        Ok(key)
    }

    pub(super) fn snapshot_create(
        &mut self,
        caller: &Caller,
        path: &OpPath,
        name: &[u8],
    ) -> Judged<Effect> {
        let mut checks = Checks::default();
        let directory = self.snapshotted(caller, path, &mut checks)?;
        checks.require(self.snapshot(directory, name).is_none(), ErrorKind::Exists);
        checks.finish()?;
        let copy = self.copy(directory, Purpose::Snapshot);
        self.inode_mut(copy).parent = copy;
        let persona = self.persona(directory);
        self.snapshots.entry(persona).or_default().insert(name.to_vec(), copy);
        Ok(Effect::Done)
    }

    pub(super) fn snapshot_delete(
        &mut self,
        caller: &Caller,
        path: &OpPath,
        name: &[u8],
    ) -> Judged<Effect> {
        let mut checks = Checks::default();
        let directory = self.snapshotted(caller, path, &mut checks)?;
        checks.require(self.snapshot(directory, name).is_some(), ErrorKind::NotFound);
        checks.finish()?;
        let persona = self.persona(directory);
        self.snapshots.entry(persona).or_default().remove(name);
        Ok(Effect::Done)
    }

    pub(super) fn snapshot_rename(
        &mut self,
        caller: &Caller,
        path: &OpPath,
        from: &[u8],
        to: &[u8],
    ) -> Judged<Effect> {
        let mut checks = Checks::default();
        let directory = self.snapshotted(caller, path, &mut checks)?;
        let source = self.snapshot(directory, from);
        checks.require(source.is_some(), ErrorKind::NotFound);
        checks.require(self.snapshot(directory, to).is_none(), ErrorKind::Exists);
        checks.finish()?;
        let persona = self.persona(directory);
        let names = self.snapshots.entry(persona).or_default();
        let copy = names.remove(from).expect("invariant: checked above");
        names.insert(to.to_vec(), copy);
        Ok(Effect::Done)
    }

    pub(super) fn snapshot_list(&self, caller: &Caller, path: &OpPath) -> Judged<Effect> {
        let key = self.directory(caller, path)?;
        if !self.may(caller, key, 4) {
            return Err(vec![ErrorKind::AccessDenied]);
        }
        Ok(Effect::Names(self.snapshot_names(key)))
    }

    /// Names of a directory's snapshots; a directory of a snapshot has none.
    pub(super) fn snapshot_names(&self, key: Key) -> Vec<Vec<u8>> {
        if self.subvol_of(key).read_only {
            return Vec::new();
        }
        let names = self.snapshots.get(&self.persona(key));
        names.into_iter().flat_map(BTreeMap::keys).cloned().collect()
    }

    pub(super) fn clone_dir(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        from: &OpPath,
        to: &OpPath,
    ) -> Judged<Effect> {
        let source = match self.directory(caller, from) {
            // The path to the target may be forbidden as well.
            Err(mut kinds) => {
                kinds.push(ErrorKind::AccessDenied);
                return Err(kinds);
            }
            source => source?,
        };
        if to.is_empty() {
            return Err(vec![ErrorKind::Exists]);
        }
        let (parent, name) = self.place(caller, to)?;
        let mut checks = Checks::default();
        self.may_create(caller, parent, name, &mut checks);
        checks.require(self.owns(caller, source), ErrorKind::NotPermitted);
        checks.finish()?;
        let copy = self.copy(source, Purpose::Clone);
        self.inode_mut(copy).parent = parent;
        self.inode_mut(parent).entries.insert(name.to_vec(), copy);
        self.touch(parent, now);
        Ok(Effect::Done)
    }

    pub(super) fn subvolume(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        path: &OpPath,
        mode: u32,
    ) -> Judged<Effect> {
        let root = self.make(now, caller, path, Kind::Directory, mode)?;
        let (lineage, subvol) = (self.fresh(), self.fresh());
        self.subvols.insert(subvol, Subvol { lineage, read_only: false, root });
        self.inode_mut(root).subvol = subvol;
        Ok(Effect::Done)
    }

    pub(super) fn rollback(
        &mut self,
        caller: &Caller,
        path: &OpPath,
        name: &[u8],
    ) -> Judged<Effect> {
        let directory = self.directory(caller, path)?;
        if self.subvol_of(directory).read_only {
            return Err(vec![ErrorKind::ReadOnly, ErrorKind::NotPermitted, ErrorKind::NotFound]);
        }
        let mut checks = Checks::default();
        checks.require(self.snapshot(directory, name).is_some(), ErrorKind::NotFound);
        checks.require(self.owns_all(caller, directory), ErrorKind::NotPermitted);
        checks.finish()?;
        let snapshot = self.snapshot(directory, name).expect("invariant: checked above");
        let copy = self.copy(snapshot, Purpose::Rollback);
        self.drop_names_below(directory);
        if directory == self.root {
            self.inode_mut(copy).parent = copy;
            self.root = copy;
        } else {
            let parent = self.inode(directory).parent;
            self.inode_mut(copy).parent = parent;
            let last = path.last().expect("invariant: only the root has no name").clone();
            self.inode_mut(parent).entries.insert(last, copy);
        }
        Ok(Effect::Done)
    }

    pub(super) fn rmr(&mut self, now: Timestamp, caller: &Caller, path: &OpPath) -> Judged<Effect> {
        if path.is_empty() {
            return Err(vec![ErrorKind::Busy]);
        }
        let (parent, name, entry) = self.entry(caller, path)?;
        let mut checks = Checks::default();
        self.may_remove(caller, parent, entry, &mut checks);
        checks.require(self.inode(entry).kind == Kind::Directory, ErrorKind::NotDirectory);
        checks.require(self.owns_all(caller, entry), ErrorKind::NotPermitted);
        checks.finish()?;
        self.inode_mut(parent).entries.remove(name);
        self.touch(parent, now);
        self.drop_names_below(entry);
        Ok(Effect::Done)
    }

    /// Whether the caller owns a directory and every directory below it.
    fn owns_all(&self, caller: &Caller, key: Key) -> bool {
        let inode = self.inode(key);
        inode.kind != Kind::Directory
            || self.owns(caller, key)
                && inode.entries.values().all(|&below| self.owns_all(caller, below))
    }

    /// Removes the names below a removed directory. A file system removes them one by one in the
    /// background, so links from elsewhere may still count them.
    fn drop_names_below(&mut self, key: Key) {
        let below: Vec<Key> = self.inode(key).entries.values().copied().collect();
        for child in below {
            if self.inode(child).kind == Kind::Directory {
                self.drop_names_below(child);
            } else {
                let inode = self.inode_mut(child);
                inode.names -= 1;
                inode.names_outside += 1;
            }
        }
    }

    /// A deep copy of a directory, in its own subvolume; every subvolume below it is copied too.
    fn copy(&mut self, source: Key, purpose: Purpose) -> Key {
        let lineage = self.subvol_of(source).lineage;
        let copy = self.copy_subvol(source, lineage, purpose);
        self.count_names(copy);
        copy
    }

    fn copy_subvol(&mut self, source: Key, lineage: u64, purpose: Purpose) -> Key {
        let subvol = self.fresh();
        let lineage = if purpose == Purpose::Clone { self.fresh() } else { lineage };
        let mut copies = BTreeMap::new();
        let root = self.copy_inode(source, subvol, purpose, &mut copies);
        let read_only = purpose == Purpose::Snapshot;
        self.subvols.insert(subvol, Subvol { lineage, read_only, root });
        root
    }

    /// Copies an inode and everything below it once: hard links stay links.
    fn copy_inode(
        &mut self,
        source: Key,
        subvol: u64,
        purpose: Purpose,
        copies: &mut BTreeMap<Key, Key>,
    ) -> Key {
        if let Some(&copy) = copies.get(&source) {
            return copy;
        }
        let mut inode = self.inode(source).clone();
        let from = inode.subvol;
        inode.subvol = subvol;
        let copy = self.fresh();
        copies.insert(source, copy);
        let entries = std::mem::take(&mut inode.entries);
        self.inodes.insert(copy, inode);
        for (name, child) in entries {
            let below = if self.inode(child).subvol == from {
                self.copy_inode(child, subvol, purpose, copies)
            } else {
                let lineage = self.subvol_of(child).lineage;
                self.copy_subvol(child, lineage, purpose)
            };
            self.inode_mut(below).parent = copy;
            self.inode_mut(copy).entries.insert(name, below);
        }
        copy
    }

    /// Counts the names inside a copy; those outside become slack.
    fn count_names(&mut self, root: Key) {
        let mut counts: BTreeMap<Key, u32> = BTreeMap::new();
        let mut left = vec![root];
        while let Some(key) = left.pop() {
            for &child in self.inode(key).entries.values() {
                if self.inode(child).kind == Kind::Directory {
                    left.push(child);
                } else {
                    *counts.entry(child).or_default() += 1;
                }
            }
        }
        for (key, count) in counts {
            let inode = self.inode_mut(key);
            inode.names_outside += inode.names - count;
            inode.names = count;
        }
    }
}
