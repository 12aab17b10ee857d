//! Hard links that a copy inherited.
//!
//! A copy of a directory shares its source's whole tree, so an inode may have names in it that are
//! unreachable from the copy's root. They stay until the copy is pruned. But the inode is removed
//! with its last reachable name. Otherwise it would be charged to its owners, and use space,
//! forever, and no user could remove it.

use std::collections::BTreeSet;

use format::key::{self, Parsed};
use inode::SubvolId;
use store::KeyRange;
use vfs::FsResult;

use crate::Core;
use crate::error::{from_store, malformed};
use crate::view::View;

/// Most names that are checked: an inode with more keeps them all.
const NAMES_MAX: usize = 1024;
/// Most directories whose records are read for the names of one commit: paths can be of any length,
/// and falsified records can form a loop.
const READS_MAX: usize = 4096;

/// The paths up that one commit follows; none is followed twice. Most commits follow none.
#[derive(Default)]
pub struct Ways(Option<Box<Followed>>);

struct Followed {
    hidden: BTreeSet<u64>,
    /// Directories that is reachable.
    seen: BTreeSet<u64>,
    /// Directories that may yet be read.
    reads: usize,
}

impl Default for Followed {
    fn default() -> Followed {
        Followed { hidden: BTreeSet::new(), seen: BTreeSet::new(), reads: READS_MAX }
    }
}

impl Ways {
    /// The keys of the references to all other names of an inode, if there are as many and none of
    /// them is reachable. The inode is locked. What cannot be determined, because there is too much
    /// of it or it cannot be read, does not count as unreachable: the inode stays.
    pub fn hidden_names(
        &mut self,
        fs: &Core,
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
        let followed = self.0.get_or_insert_default();
        let mut hidden = Vec::new();
        let range = KeyRange::prefix(&key::back_reference_prefix(ino));
        let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(view.tree, &error))?;
            let Parsed::BackReference { directory, cookie, .. } = parsed else { continue };
            if (directory, cookie) == name {
                continue;
            }
            if !followed.is_hidden(view, root, directory) {
                return Ok(None);
            }
            hidden.push(item.key.to_vec());
        }
        Ok((hidden.len() == others as usize).then_some(hidden))
    }
}

impl Followed {
    /// Whether a directory exists only for the source's sake: the path up from it ends elsewhere
    /// than at the copy's root. One that was removed, and waits to be emptied, does not count.
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
                    // The error concerns a reader of it, not the removal of a name elsewhere.
                    tracing::warn!(%error, directory = at, "cannot read a parent directory");
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
