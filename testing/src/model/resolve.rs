//! Resolves paths to inodes, with the search permission that each directory on the way requires.

use inode::{Caller, Kind, NAME_BYTES_MAX};

use super::op::{OpPath, Target};
use super::state::{FsModel, Judged, Key};
use super::verdict::ErrorKind;

impl FsModel {
    /// Follows a path as the superuser.
    pub(super) fn walk(&self, path: &[Vec<u8>]) -> Judged<Key> {
        self.resolve(&Caller::root(), path)
    }

    /// Follows a path.
    pub(super) fn resolve(&self, caller: &Caller, path: &[Vec<u8>]) -> Judged<Key> {
        let mut at = self.root;
        let mut names = path.iter();
        while let Some(name) = names.next() {
            if self.inode(at).kind != Kind::Directory {
                return Err(vec![ErrorKind::NotDirectory]);
            }
            if !self.may(caller, at, 1) {
                // The file system may detect other errors first.
                let long = name.len() > NAME_BYTES_MAX;
                let second = if long { ErrorKind::NameTooLong } else { ErrorKind::AccessDenied };
                return Err(vec![ErrorKind::AccessDenied, second]);
            }
            at = if *name == self.snapshot_dir {
                let Some(snapshot) = names.next() else {
                    return Err(vec![ErrorKind::NotPermitted]);
                };
                self.snapshot(at, snapshot).ok_or_else(|| vec![ErrorKind::NotFound])?
            } else {
                let entry = self.inode(at).entries.get(name);
                *entry.ok_or_else(|| absent(name))?
            };
        }
        Ok(at)
    }

    /// A snapshot of a live directory.
    pub(super) fn snapshot(&self, directory: Key, name: &[u8]) -> Option<Key> {
        if self.subvol_of(directory).read_only {
            return None;
        }
        self.snapshots.get(&self.persona(directory))?.get(name).copied()
    }

    /// The directory that an entry is or will be in, and the entry's name.
    pub(super) fn place<'a>(&self, caller: &Caller, path: &'a OpPath) -> Judged<(Key, &'a [u8])> {
        let (name, directory) = path.split_last().ok_or_else(|| vec![ErrorKind::Busy])?;
        let parent = match self.resolve(caller, directory) {
            Err(mut kinds) if name.len() > NAME_BYTES_MAX => {
                kinds.push(ErrorKind::NameTooLong);
                return Err(kinds);
            }
            parent => parent?,
        };
        if self.inode(parent).kind != Kind::Directory {
            return Err(vec![
                ErrorKind::NotDirectory,
                ErrorKind::AccessDenied,
                ErrorKind::ReadOnly,
            ]);
        }
        if !self.may(caller, parent, 1) {
            // The file system may detect other errors first.
            let mut kinds = vec![
                ErrorKind::AccessDenied,
                ErrorKind::CrossSubvolume,
                ErrorKind::NotPermitted,
                ErrorKind::ReadOnly,
            ];
            if name.len() > NAME_BYTES_MAX {
                kinds.push(ErrorKind::NameTooLong);
            }
            return Err(kinds);
        }
        Ok((parent, name))
    }

    /// Like `place`, for an existing entry.
    pub(super) fn entry<'a>(
        &self,
        caller: &Caller,
        path: &'a OpPath,
    ) -> Judged<(Key, &'a [u8], Key)> {
        let (parent, name) = self.place(caller, path)?;
        let entry = self.inode(parent).entries.get(name);
        let entry = *entry.ok_or_else(|| {
            let mut kinds = absent(name);
            if self.subvol_of(parent).read_only {
                kinds.push(ErrorKind::ReadOnly);
            }
            kinds
        })?;
        Ok((parent, name, entry))
    }

    /// The inode that an operation acts on.
    pub(super) fn target(&self, caller: &Caller, target: &Target) -> Judged<Key> {
        match target {
            Target::Path(path) => self.resolve(caller, path),
            Target::Slot(slot) => {
                self.slots.get(slot).copied().ok_or_else(|| vec![ErrorKind::Stale])
            }
        }
    }
}

/// Why a name is not there.
fn absent(name: &[u8]) -> Vec<ErrorKind> {
    if name.len() > NAME_BYTES_MAX {
        vec![ErrorKind::NameTooLong, ErrorKind::NotFound]
    } else {
        vec![ErrorKind::NotFound]
    }
}
