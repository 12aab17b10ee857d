//! Rename, with its styles.

use device::Timestamp;
use inode::{Caller, Kind, NAME_BYTES_MAX};

use super::op::{OpPath, RenameStyle};
use super::state::{FsModel, Judged, Key};
use super::verdict::{Checks, Effect, ErrorKind, Verdict, verdict};

/// One side of a rename: directory, name, and what is there.
struct Side<'a> {
    parent: Key,
    name: &'a [u8],
    entry: Option<Key>,
}

impl FsModel {
    pub(super) fn rename(
        &mut self,
        now: Timestamp,
        caller: &Caller,
        (from, to): (&OpPath, &OpPath),
        style: RenameStyle,
    ) -> Verdict {
        let sides = self.rename_side(caller, from).and_then(|source| {
            let target = self.rename_side(caller, to)?;
            if source.entry.is_none() {
                Err(vec![ErrorKind::NotFound])
            } else {
                Ok((source, target))
            }
        });
        let (source, target) = match sides {
            Ok(sides) => sides,
            Err(mut kinds) => {
                let names = [from.last(), to.last()];
                if names.iter().flatten().any(|name| name.len() > NAME_BYTES_MAX) {
                    kinds.push(ErrorKind::NameTooLong);
                }
                if names.iter().any(Option::is_none) {
                    kinds.push(ErrorKind::Busy);
                }
                return Verdict::Fail(kinds);
            }
        };
        let moved = source.entry.expect("invariant: checked above");
        let checked = match style {
            RenameStyle::Exchange => self.may_exchange(caller, &source, &target, moved),
            _ => self.may_move(caller, &source, &target, moved, style),
        };
        if target.entry == Some(moved) && style != RenameStyle::NoReplace {
            // Two names of one inode: POSIX requires no effect.
            return match checked {
                Ok(()) => Verdict::Ok(Effect::Done),
                Err(kinds) => Verdict::Either(kinds),
            };
        }
        if let Err(kinds) = checked {
            return Verdict::Fail(kinds);
        }
        match style {
            RenameStyle::Exchange => self.exchange(now, &source, &target),
            _ => self.replace(now, &source, &target, moved),
        }
        if style == RenameStyle::Whiteout {
            self.whiteout(now, caller, &source);
        }
        verdict(Ok(Effect::Done))
    }

    fn rename_side<'a>(&self, caller: &Caller, path: &'a OpPath) -> Judged<Side<'a>> {
        let (parent, name) = self.place(caller, path)?;
        let entry = self.inode(parent).entries.get(name).copied();
        Ok(Side { parent, name, entry })
    }

    /// Conditions of both styles for an entry that moves to another directory.
    fn may_leave(
        &self,
        caller: &Caller,
        (from, to): (&Side<'_>, &Side<'_>),
        moved: Key,
        checks: &mut Checks,
    ) {
        self.may_remove(caller, from.parent, moved, checks);
        let directory = self.inode(moved).kind == Kind::Directory;
        if directory && from.parent != to.parent {
            checks.require(self.may(caller, moved, 2), ErrorKind::AccessDenied);
            // A directory of a snapshot's subvolume is not writable, even for root.
            checks.require(!self.subvol_of(moved).read_only, ErrorKind::ReadOnly);
        }
        let crosses = self.inode(from.parent).subvol != self.inode(to.parent).subvol;
        checks.require(!crosses || self.is_subvol_root(moved), ErrorKind::CrossSubvolume);
        if directory {
            checks.require(!self.is_below(moved, to.parent), ErrorKind::InvalidArgument);
        }
        checks.require(!self.subvol_of(to.parent).read_only, ErrorKind::ReadOnly);
        checks.require(self.may(caller, to.parent, 3), ErrorKind::AccessDenied);
        checks.require(to.name.len() <= NAME_BYTES_MAX, ErrorKind::NameTooLong);
    }

    fn may_move(
        &self,
        caller: &Caller,
        source: &Side<'_>,
        target: &Side<'_>,
        moved: Key,
        style: RenameStyle,
    ) -> Judged<()> {
        let mut checks = Checks::default();
        self.may_leave(caller, (source, target), moved, &mut checks);
        let stays = style == RenameStyle::Whiteout && self.is_subvol_root(moved);
        checks.require(!stays, ErrorKind::CrossSubvolume);
        if let Some(replaced) = target.entry {
            checks.require(style != RenameStyle::NoReplace, ErrorKind::Exists);
            self.no_subvolumes(moved, replaced, &mut checks);
            self.may_remove(caller, target.parent, replaced, &mut checks);
            let directories = (
                self.inode(moved).kind == Kind::Directory,
                self.inode(replaced).kind == Kind::Directory,
            );
            checks.require(directories != (true, false), ErrorKind::NotDirectory);
            checks.require(directories != (false, true), ErrorKind::IsDirectory);
            let same = replaced == moved;
            checks.require(same || self.inode(replaced).entries.is_empty(), ErrorKind::NotEmpty);
        }
        checks.finish()
    }

    /// Subvolumes neither replace an entry, nor are replaced or swapped.
    fn no_subvolumes(&self, moved: Key, other: Key, checks: &mut Checks) {
        let plain = !self.is_subvol_root(moved) && !self.is_subvol_root(other);
        checks.require(plain || moved == other, ErrorKind::CrossSubvolume);
    }

    fn may_exchange(
        &self,
        caller: &Caller,
        source: &Side<'_>,
        target: &Side<'_>,
        moved: Key,
    ) -> Judged<()> {
        let Some(other) = target.entry else {
            return Err(vec![
                ErrorKind::NotFound,
                ErrorKind::AccessDenied,
                ErrorKind::NotPermitted,
                ErrorKind::CrossSubvolume,
                ErrorKind::ReadOnly,
                ErrorKind::InvalidArgument,
                ErrorKind::NameTooLong,
            ]);
        };
        let mut checks = Checks::default();
        self.may_leave(caller, (source, target), moved, &mut checks);
        self.may_leave(caller, (target, source), other, &mut checks);
        self.no_subvolumes(moved, other, &mut checks);
        checks.finish()
    }

    fn replace(&mut self, now: Timestamp, source: &Side<'_>, target: &Side<'_>, moved: Key) {
        self.inode_mut(source.parent).entries.remove(source.name);
        if let Some(replaced) = target.entry
            && self.inode(replaced).kind != Kind::Directory
        {
            self.drop_name(replaced, now);
        }
        self.inode_mut(target.parent).entries.insert(target.name.to_vec(), moved);
        self.settle(now, moved, target.parent);
        self.touch(source.parent, now);
        self.touch(target.parent, now);
    }

    /// A device without permissions at the old name; the directory's times were updated already.
    fn whiteout(&mut self, now: Timestamp, caller: &Caller, source: &Side<'_>) {
        let above = self.inode(source.parent);
        let gid = if above.mode & 0o2000 == 0 { caller.gid } else { above.gid };
        let subvol = above.subvol;
        let key = self.blank(now, subvol, Kind::CharDevice, 0, (caller.uid, gid));
        self.inode_mut(key).parent = source.parent;
        self.inode_mut(source.parent).entries.insert(source.name.to_vec(), key);
    }

    fn exchange(&mut self, now: Timestamp, source: &Side<'_>, target: &Side<'_>) {
        let one = source.entry.expect("invariant: exchanged entries exist");
        let two = target.entry.expect("invariant: exchanged entries exist");
        self.inode_mut(source.parent).entries.insert(source.name.to_vec(), two);
        self.inode_mut(target.parent).entries.insert(target.name.to_vec(), one);
        self.settle(now, one, target.parent);
        self.settle(now, two, source.parent);
        self.touch(source.parent, now);
        self.touch(target.parent, now);
    }

    fn settle(&mut self, now: Timestamp, moved: Key, parent: Key) {
        let inode = self.inode_mut(moved);
        inode.ctime = now;
        inode.parent = parent;
    }
}
