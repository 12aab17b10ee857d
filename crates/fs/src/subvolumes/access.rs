//! What the verbs on whole directories ask first.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::{Caller, FsError, SubvolId};
use store::KeyRange;

use crate::error::{from_store, malformed};
use crate::subvol::Subvol;
use crate::view::View;
use crate::{Fs, FsResult};

/// The record of a directory that still has a name.
pub(crate) fn directory_of(fs: &Fs, subvol: &Subvol, ino: u64) -> FsResult<DirectoryRecord> {
    subvol.read(|tree| {
        let view = View::new(&*fs.store, tree);
        match view.directory(ino)? {
            Some(record) if !record.detached => Ok(record),
            None if view.linked(ino)?.is_some() => Err(FsError::NotDirectory),
            None if is_file(fs, subvol, ino) => Err(FsError::NotDirectory),
            _ => Err(FsError::NotFound),
        }
    })
}

fn is_file(fs: &Fs, subvol: &Subvol, ino: u64) -> bool {
    use crate::nodes::Location::{Entry, Linked};
    matches!(fs.nodes.location(subvol.node(ino)), Some(Entry { .. } | Linked))
}

/// Checks that the caller owns a directory and every directory below it, in nested subvolumes
/// too: roll-back and removal take away what only their owners may. For anybody but root this is
/// a walk.
pub(crate) fn check_owns_all(fs: &Fs, caller: &Caller, subvol: SubvolId, dir: u64) -> FsResult<()> {
    if caller.is_root() {
        return Ok(());
    }
    let mut left = vec![(subvol, dir)];
    while let Some((id, dir)) = left.pop() {
        let subvol = fs.subvol(id)?;
        let record = directory_of(fs, &subvol, dir)?;
        if record.uid != caller.uid {
            return Err(FsError::NotPermitted("a directory below belongs to somebody else"));
        }
        let tree = subvol.tree();
        let range = KeyRange::prefix(&key::directory_prefix(dir));
        let mut cursor = fs.store.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
            if cookie == 0 {
                continue;
            }
            let entry = EntryRecord::decode(item.value).map_err(|error| malformed(tree, &error))?;
            match entry.target {
                Target::Directory => left.push((id, entry.ino)),
                Target::Subvolume(below) => left.push((SubvolId(below), entry.ino)),
                _ => {}
            }
        }
    }
    Ok(())
}
