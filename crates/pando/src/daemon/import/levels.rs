//! The directories that an import is in, from its destination down to the current one.
//!
//! A directory that this import made is closed. It belongs to the caller and has mode 0700, until
//! the import leaves it and gives it its own attributes. Nobody but the caller and root reaches
//! what is in it. Only there drafts are made, and all of them are visible before it is opened.

use format::acl::DEFAULT;
use fs::{BulkNode, FileSystem};
use inode::{Attr, Kind, NodeId};
use wire::ImportAttr;

use super::failed::Withheld;
use super::{Import, Level, Xattrs, noted};

/// Longest path of an error; of a longer path only the end is reported.
const ERROR_PATH_BYTES_MAX: usize = 4096;

impl Import<'_> {
    pub(super) fn parent(&self) -> BulkNode {
        self.levels.last().expect("invariant: the first directory stays until the end").node
    }

    /// Enters a directory.
    pub(super) fn descend(
        &mut self,
        node: BulkNode,
        name: &[u8],
        (inherits, closed): (bool, bool),
    ) {
        let bequeaths = self.bequeaths(node);
        self.builder.make_drafts(closed);
        self.levels.push(Level { node, name: name.to_vec(), closed, inherits, bequeaths });
    }

    /// Whether a directory has a default access list. If that cannot be read, it may have one.
    pub(super) fn bequeaths(&mut self, node: BulkNode) -> bool {
        self.builder.has_xattr(node, DEFAULT)
    }

    /// Whether new entries here inherit an access list.
    pub(super) fn inherits(&self) -> bool {
        self.levels.last().is_some_and(|level| level.bequeaths)
    }

    /// The path of a name in the import's current directory, or the end of that path.
    pub(super) fn path_of(&self, name: &[u8]) -> Vec<u8> {
        let names = self.levels.iter().map(|level| level.name.as_slice()).chain([name]);
        let (mut parts, mut bytes) = (Vec::new(), 0);
        for part in names.rev().filter(|part| !part.is_empty()) {
            bytes += part.len() + 1;
            if bytes > ERROR_PATH_BYTES_MAX {
                parts.push(&b"..."[..]);
                break;
            }
            parts.push(part);
        }
        parts.reverse();
        parts.join(&b'/')
    }

    pub(super) fn leave(&mut self, attributes: Option<(&ImportAttr, &Xattrs<'_>)>) {
        if self.left_out > 0 {
            self.left_out -= 1;
            return;
        }
        let Some(level) = self.levels.last() else { return };
        let (node, inherits) = (level.node, level.inherits);
        if self.levels.len() == 1
            && self.above.is_some()
            && let Some((attr, xattrs)) = attributes
        {
            let owned = xattrs.iter().map(|(name, value)| (name.to_vec(), value.to_vec()));
            self.of_top = Some((*attr, owned.collect()));
            return;
        }
        if self.opens() {
            // What its new attributes let others change must not be drafts.
            let shown = self.builder.flush();
            noted(shown);
            if self.builder.lost().is_some() {
                return;
            }
        }
        let dressed = match attributes {
            Some((attr, xattrs)) => self.dress((node, Kind::Directory), attr, xattrs, inherits),
            None => Ok(Withheld::default()),
        };
        if !self.builder.is_draft(node) {
            self.fs.invalidate_node(node.id());
        }
        match dressed {
            Ok(withheld) => self.withheld(b"", &withheld),
            Err(error) => self.failed(b"", error),
        }
        self.ascend();
    }

    /// Makes the directory above the current one current. The first one stays until the end: items
    /// may be created only below it.
    pub(super) fn ascend(&mut self) {
        if self.levels.len() > 1
            && let Some(level) = self.levels.pop()
        {
            self.builder.release(level.node);
        } else if let Some(top) = self.levels.first_mut() {
            top.closed = false;
        }
        self.builder.make_drafts(self.levels.last().is_some_and(|level| level.closed));
    }

    /// Whether the current directory is closed, and the one above it is not.
    fn opens(&self) -> bool {
        let mut levels = self.levels.iter().rev().map(|level| level.closed);
        levels.next() == Some(true) && levels.next() != Some(true)
    }

    /// Whether only the caller and root reach a directory of the current one. That is so if the
    /// current one is closed, or if this import made the directory just now, closed. Where others
    /// may remove it while it looks empty, that would end the import for all that is beside it.
    /// Only a destination may be there.
    pub(super) fn is_closed(&self, node: NodeId, made: bool) -> bool {
        let attr = |node: NodeId| self.fs.getattr(&self.caller, node);
        let own = || attr(node).is_ok_and(|attr| self.is_own(&attr));
        let Some(level) = self.levels.last() else { return made && own() };
        let above = || attr(level.node.id()).is_ok_and(|attr| self.keeps_names(&attr));
        level.closed || made && own() && above()
    }

    /// Whether only the caller and root remove the caller's names from a directory.
    fn keeps_names(&self, directory: &Attr) -> bool {
        const OTHERS_WRITE: u32 = 0o022;
        const STICKY: u32 = 0o1000;
        let is_ours = directory.uid == 0 || directory.uid == self.caller.uid;
        is_ours && (directory.mode & OTHERS_WRITE == 0 || directory.mode & STICKY != 0)
    }
}
