//! Hard links that a copy inherited.
//!
//! A copy of a directory shares its source's whole tree, so that an inode may have names in it that
//! nobody comes to from the copy's root. They stay until the copy is pruned. But with the last
//! name that can be come to the inode goes: it would be charged to its owners, and take room, for
//! ever, and nobody could remove it.

use format::key::{self, Parsed};
use inode::SubvolId;
use store::KeyRange;

use crate::error::{from_store, malformed};
use crate::view::View;
use crate::{Fs, FsResult};

/// Most names that are looked at: an inode with more keeps them all.
const NAMES_MAX: usize = 1024;
/// Deepest directory whose way up is looked at, against records that go in a circle.
const DEPTH_MAX: usize = 1 << 20;

/// The keys of the references to all other names of an inode, if there are as many and nobody can
/// come to any of them. The inode is locked.
pub(crate) fn hidden_names(
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
        if !is_hidden(view, root, directory)? {
            return Ok(None);
        }
        hidden.push(item.key.to_vec());
    }
    Ok((hidden.len() == others as usize).then_some(hidden))
}

/// Whether a directory is there for the source's sake alone: the way up from it ends elsewhere
/// than at the copy's root. One that was removed, and waits to be emptied, is not.
fn is_hidden(view: View<'_>, root: u64, directory: u64) -> FsResult<bool> {
    let mut at = directory;
    for _ in 0..DEPTH_MAX {
        if at == root {
            return Ok(false);
        }
        match view.directory(at)? {
            Some(record) if record.detached => return Ok(false),
            Some(record) if record.parent == at => return Ok(true),
            Some(record) => at = record.parent,
            None => return Ok(false),
        }
    }
    Ok(false)
}
