//! Makes what an item describes: nodes, their attributes, directories that may exist.

use device::Timestamp;
use format::acl::{ACCESS, DEFAULT};
use fs::{BulkNode, FileSystem, FsResult, NewNode, Volume};
use inode::{Caller, FsError, Kind, NodeId, SetAttr, SetTime};
use wire::ImportAttr;

use super::{Begun, DIRECTORY_MODE_MEANWHILE, Import, MODE_MEANWHILE, UNFINISHED_MODE, Xattrs};

impl<'a> Import<'a> {
    pub(super) fn make_node(&mut self, name: &[u8], kind: Kind, rdev: u32) -> FsResult<BulkNode> {
        let parent = self.parent();
        let new = NewNode { kind, mode: MODE_MEANWHILE, rdev };
        self.replacing(name, |import| import.builder.mknod(parent, name, &new))
    }

    /// Creates a name, after removing what has that name, unless that is a directory.
    pub(super) fn replacing<T>(
        &mut self,
        name: &[u8],
        make: impl Fn(&mut Import<'a>) -> FsResult<T>,
    ) -> FsResult<T> {
        match make(self) {
            Err(FsError::Exists) => {
                let parent = self.builder.node(self.parent())?;
                // The link counts of both files change, and their other names show that.
                let old = self.fs.lookup(&self.caller, parent, name)?.node;
                self.fs.forget(old, 1);
                self.fs.unlink(&self.caller, parent, name)?;
                self.fs.invalidate_attributes(old);
                make(self)
            }
            made => made,
        }
    }

    /// Removes a file that got no end: it must not stay under its name as if it were complete.
    pub(super) fn drop_begun(&mut self) {
        let Some(Begun { node, parent, name, .. }) = self.begun.take() else { return };
        let visible = self.builder.node(node).and_then(|_| self.builder.node(parent));
        if let Ok(parent) = visible
            && let Ok(there) = self.fs.lookup(&self.caller, parent, &name)
        {
            self.fs.forget(there.node, 1);
            if there.node == node.id() {
                let removed = self.fs.unlink(&self.caller, parent, &name);
                if let Err(error) = removed {
                    tracing::debug!(%error, "a file that is not complete stays");
                }
                self.fs.invalidate_entry(parent, &name);
            }
        }
        self.builder.release(node);
    }

    /// Sets the attributes of a node: the mode last except for the times, because writing needs
    /// this process's mode. Removes inherited access lists that the source does not have.
    pub(super) fn dress(
        &mut self,
        node: BulkNode,
        attr: &ImportAttr,
        xattrs: &Xattrs<'_>,
        inherits: bool,
    ) -> FsResult<()> {
        for list in [ACCESS, DEFAULT] {
            if inherits && xattrs.iter().all(|(name, _)| *name != list) {
                self.builder.remove_list(node, list)?;
            }
        }
        for (name, value) in xattrs {
            self.builder.setxattr(node, name, value)?;
        }
        self.builder.setattr(node, &Import::changes(attr))
    }

    /// Marks a directory that was just made: until it has its attributes, it is unfinished.
    pub(super) fn mark(&mut self, directory: BulkNode) -> FsResult<()> {
        self.builder.setattr(directory, &unfinished())
    }

    /// Creates a directory or finds it; either way with a lookup of the caller's own.
    pub(super) fn make_directory(
        fs: &Volume,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<(NodeId, bool)> {
        match fs.mkdir(caller, parent, name, DIRECTORY_MODE_MEANWHILE) {
            Ok(entry) => {
                let marked = fs.setattr(caller, entry.node, &unfinished());
                fs.invalidate_entry(parent, name);
                match marked {
                    Ok(_) => Ok((entry.node, false)),
                    Err(error) => {
                        fs.forget(entry.node, 1);
                        Err(error)
                    }
                }
            }
            Err(FsError::Exists) => {
                Import::find_directory(fs, caller, parent, name).map(|node| (node, true))
            }
            Err(error) => Err(error),
        }
    }

    /// Finds a directory that exists, with a lookup.
    pub(super) fn find_directory(
        fs: &Volume,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<NodeId> {
        let entry = fs.lookup(caller, parent, name)?;
        let refused = if Volume::is_virtual(entry.node) {
            FsError::NotPermitted("a directory that the volume only shows")
        } else if entry.attr.kind == Kind::Directory {
            return Ok(entry.node);
        } else {
            FsError::NotDirectory
        };
        fs.forget(entry.node, 1);
        Err(refused)
    }

    /// The changes that give a node its attributes.
    pub(super) fn changes(attr: &ImportAttr) -> SetAttr {
        SetAttr {
            mode: Some(attr.mode),
            uid: attr.owner.map(|(uid, _)| uid),
            gid: attr.owner.map(|(_, gid)| gid),
            size: None,
            atime: Some(SetTime::At(Timestamp(attr.atime))),
            mtime: Some(SetTime::At(Timestamp(attr.mtime))),
            ctime: None,
            btime: None,
        }
    }
}

/// What marks a directory as unfinished.
fn unfinished() -> SetAttr {
    SetAttr { mode: Some(UNFINISHED_MODE), ..SetAttr::default() }
}
