//! Hard links that a copy inherited.
//!
//! A copy of a directory shares its source's whole tree, so that an inode may have names in it that
//! nobody comes to from the copy's root. They stay until the copy is pruned. But with the last
//! name that is reachable the inode goes: it would be charged to its owners, and take room, for
//! ever, and nobody could remove it.

use std::collections::BTreeSet;

use format::key::{self, Parsed};
use inode::SubvolId;
use store::KeyRange;

use crate::error::{from_store, malformed};
use crate::view::View;
use crate::{Fs, FsResult};

/// Most names that are looked at: an inode with more keeps them all.
const NAMES_MAX: usize = 1024;
/// Most directories whose records are read for the names of one commit: paths can be of any length,
/// and falsified records go in a circle.
const READS_MAX: usize = 4096;

/// The ways up that one commit looks at; none is gone twice.
pub(crate) struct Ways {
    hidden: BTreeSet<u64>,
    /// Directories that is reachable.
    seen: BTreeSet<u64>,
    /// Directories that may yet be read.
    reads: usize,
}

impl Ways {
    pub(crate) fn new() -> Ways {
        Ways { hidden: BTreeSet::new(), seen: BTreeSet::new(), reads: READS_MAX }
    }

    /// The keys of the references to all other names of an inode, if there are as many and nobody
    /// can come to any of them. The inode is locked. What cannot be found out, because there is too
    /// much of it or it cannot be read, is not hidden: the inode stays.
    pub(crate) fn hidden_names(
        &mut self,
        fs: &Fs,
        view: View<'_>,
        subvol: u64,
        (ino, others): (u64, u32),
        name: (u64, u64),
    ) -> FsResult<Option<Vec<Vec<u8>>>> {
        let inherited = fs.subvols.first_own_ino(subvol).is_some_and(|first| ino < first);
        if !inherited || others as usize > NAMES_MAX {
            return Ok(None);
        }
        let root = fs.subvol(SubvolId(subvol))?.root;
        let mut hidden = Vec::new();
        let range = KeyRange::prefix(&key::back_reference_prefix(ino));
        let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(view.tree, &error))?;
            let Parsed::BackReference { directory, cookie, .. } = parsed else { continue };
            if (directory, cookie) == name {
                continue;
            }
            if !self.is_hidden(view, root, directory) {
                return Ok(None);
            }
            hidden.push(item.key.to_vec());
        }
        Ok((hidden.len() == others as usize).then_some(hidden))
    }

    /// Whether a directory is there for the source's sake alone: the way up from it ends elsewhere
    /// than at the copy's root. One that was removed, and waits to be emptied, is not.
    fn is_hidden(&mut self, view: View<'_>, root: u64, directory: u64) -> bool {
        let (mut at, mut way) = (directory, Vec::new());
        loop {
            if self.hidden.contains(&at) {
                break;
            }
            if at == root || self.seen.contains(&at) {
                self.seen.extend(way);
                return false;
            }
            if self.reads == 0 {
                return false;
            }
            self.reads -= 1;
            let record = match view.directory(at) {
                Ok(Some(record)) if !record.detached => record,
                Ok(_) => return false,
                Err(error) => {
                    // It concerns who wants to read it, not who removes a name elsewhere.
                    tracing::warn!(%error, directory = at, "a way up cannot be read");
                    return false;
                }
            };
            way.push(at);
            if record.parent == at {
                break;
            }
            at = record.parent;
        }
        self.hidden.extend(way);
        true
    }
}
