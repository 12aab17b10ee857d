//! Names that an import gives to existing inodes: hard links, and the final name of a directory
//! that was imported under another one. It gets that name only if nothing is lost.

use fs::{BulkNode, FileSystem, FsResult, RenameMode, Volume};
use inode::permissions::{READ, SET_GID, SET_UID, WRITE};
use inode::{Attr, FsError, Kind, NodeId};
use wire::{Failure, FailureKind};

use super::failed::{Failed, Withheld};
use super::make::unfinished;
use super::{DIRECTORY_MODE_MEANWHILE, Import, UNFINISHED_MODE, about, noted};

impl Import<'_> {
    /// Refuses a directory that others could have put there, or could reach.
    pub(super) fn check_own(&self, node: NodeId, path: &[u8]) -> Result<(), Failure> {
        let attr = self.fs.getattr(&self.caller, node).map_err(|error| about(error, path))?;
        if self.is_own(&attr) {
            return Ok(());
        }
        let message = "this is not what an earlier import of yours left";
        Err(Failure::new(FailureKind::Exists, message).at(path).hint("remove it, or rename it"))
    }

    /// Whether a directory is the caller's, and only the caller and root reach it.
    pub(super) fn is_own(&self, attr: &Attr) -> bool {
        attr.uid == self.caller.uid && attr.mode & 0o777 == 0o700
    }

    /// Whether an import of the caller's made a directory, and ended before it finished it. The
    /// mode that a directory is made with is one that a user may have set. So it is a mark only
    /// where the caller could not have set the other one.
    pub(super) fn is_unfinished(&self, node: NodeId) -> bool {
        let attr = self.fs.getattr(&self.caller, node);
        let is_marked = |attr: Attr| match attr.mode & 0o7777 & !SET_GID {
            UNFINISHED_MODE => true,
            DIRECTORY_MODE_MEANWHILE => unfinished(&self.caller, (attr.mode, attr.gid)).is_none(),
            _ => false,
        };
        attr.is_ok_and(|attr| attr.uid == self.caller.uid && is_marked(attr))
    }

    /// Fails if names that the import made are lost. It ends then: what follows may need them.
    pub(super) fn is_whole(&self) -> Result<(), Failure> {
        let Some((lost, error)) = self.builder.lost() else { return Ok(()) };
        let are_lost = match lost {
            1 => "a name that was not visible yet is lost".to_owned(),
            lost => format!("{lost} names that were not visible yet are lost"),
        };
        let mut message = format!("{are_lost}: {error}");
        // What failed before that is not reported otherwise: this ends the import.
        if let Some(first) = self.errors.first() {
            let more = (self.errors.len() as u64 + self.more_errors).saturating_sub(1);
            let path = String::from_utf8_lossy(&first.path.0);
            let why = &first.message;
            message = format!("{message}; before that, {path:?} failed: {why}, and {more} more");
        }
        let hint = "run the same import again: it continues, and makes one name at a time";
        Err(Failure::new(FailureKind::from(error), message).hint(hint))
    }

    /// Gives the directory that the import began with its name.
    pub(in super::super) fn publish(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.drop_begun();
        let shown = self.builder.flush();
        noted(shown);
        self.is_whole()?;
        let Some((parent, from)) = self.above.take() else {
            return Err(Failure::new(FailureKind::Protocol, "the import has its name"));
        };
        // Another process may have renamed it.
        let there = self.fs.lookup(&self.caller, parent, &from);
        if let Ok(there) = &there {
            self.fs.forget(there.node, 1);
        }
        if there.map(|there| there.node).ok() != self.levels.first().map(|top| top.node.id()) {
            self.fs.forget(parent, 1);
            let message = "another process moved what was imported";
            let failure = Failure::new(FailureKind::NotFound, message).at(&from);
            return Err(failure.hint("import again, while nothing moves the hidden directory"));
        }
        let (from_at, to_at) = ((parent, &from[..]), (parent, name));
        let renamed = self.fs.rename(&self.caller, from_at, to_at, RenameMode::NoReplace);
        self.fs.invalidate_entry(parent, &from);
        self.fs.invalidate_entry(parent, name);
        self.fs.forget(parent, 1);
        renamed.map_err(|error| about(error, name))?;
        self.claim = None;
        self.finish_top();
        Ok(())
    }

    /// Gives the directory its attributes. It has its name, so that a crash before this leaves it
    /// under that name, complete and open to its importer alone.
    fn finish_top(&mut self) {
        let (Some((attr, xattrs)), Some(level)) = (self.of_top.take(), self.levels.first()) else {
            return;
        };
        let (node, inherits) = (level.node, level.inherits);
        let xattrs: Vec<(&[u8], &[u8])> =
            xattrs.iter().map(|(name, value)| (&name[..], &value[..])).collect();
        match self.dress((node, Kind::Directory), &attr, &xattrs, inherits) {
            Ok(withheld) => self.withheld(b"", &withheld),
            Err(error) => self.failed(b"", error),
        }
        self.fs.invalidate_node(node.id());
    }

    /// Gives a node another name, in the current directory.
    pub(super) fn link(&mut self, target: BulkNode, name: &[u8]) -> Result<BulkNode, Failed> {
        self.builder.flush()?;
        let target = self.builder.node(target)?;
        let parent = self.builder.node(self.parent())?;
        self.may_link(target)?;
        // It may have this name: to replace it by itself would remove it.
        if let Ok(there) = self.fs.lookup(&self.caller, parent, name) {
            if there.node == target {
                return Ok(BulkNode::of(there.node));
            }
            self.fs.forget(there.node, 1);
        }
        let made = self.make(name, |import, name| {
            let made = import.fs.link(&import.caller, target, parent, name)?;
            Ok(BulkNode::of(made.node))
        })?;
        let made = self.settle(made, name, Ok(Withheld::default()))?;
        self.fs.invalidate_attributes(target);
        Ok(made)
    }

    /// The node at a path below the destination, with a lookup. No symbolic link is followed.
    pub(super) fn below(&mut self, path: &[&[u8]]) -> FsResult<NodeId> {
        self.builder.flush()?;
        let Some(top) = self.levels.first() else { return Err(FsError::NotFound) };
        let mut at = top.node.id();
        for (depth, name) in path.iter().enumerate() {
            let found = self.fs.lookup(&self.caller, at, name);
            if depth > 0 {
                self.fs.forget(at, 1);
            }
            let found = found?;
            let is_last = depth + 1 == path.len();
            if Volume::is_virtual(found.node) || (found.attr.kind == Kind::Directory) == is_last {
                self.fs.forget(found.node, 1);
                let error = if is_last { FsError::IsDirectory } else { FsError::NotDirectory };
                return Err(error);
            }
            at = found.node;
        }
        if path.is_empty() { Err(FsError::IsDirectory) } else { Ok(at) }
    }

    /// Refuses a link to a file of another user, as the kernel does through a mount where
    /// `fs.protected_hardlinks` is set. The other user could not remove what the link keeps.
    fn may_link(&self, target: NodeId) -> FsResult<()> {
        let attr = self.fs.getattr(&self.caller, target)?;
        if self.caller.is_root() || attr.uid == self.caller.uid {
            return Ok(());
        }
        let runs_as_group = SET_GID | 0o010;
        let safe = attr.kind == Kind::File
            && attr.mode & SET_UID == 0
            && attr.mode & runs_as_group != runs_as_group
            && self.fs.access(&self.caller, target, READ | WRITE).is_ok();
        if safe { Ok(()) } else { Err(FsError::NotPermitted("a hard link to another user's file")) }
    }
}
