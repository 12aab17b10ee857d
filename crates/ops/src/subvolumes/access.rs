//! What the verbs on whole directories ask first.

use format::directory_record::DirectoryRecord;
use inode::FsError;
use vfs::FsResult;
use volume::subvol::Subvol;
use volume::view::View;

use volume::Core;

/// The record of a directory that still has a name.
pub fn directory_of(fs: &Core, subvol: &Subvol, ino: u64) -> FsResult<DirectoryRecord> {
    subvol.read(|tree| directory_in(fs, subvol, View::new(&*fs.store, tree), ino))
}

/// The same in a view of the subvolume.
pub(super) fn directory_in(
    fs: &Core,
    subvol: &Subvol,
    view: View<'_>,
    ino: u64,
) -> FsResult<DirectoryRecord> {
    match view.directory(ino)? {
        Some(record) if !record.detached => Ok(record),
        None if view.linked(ino)?.is_some() => Err(FsError::NotDirectory),
        None if is_file(fs, subvol, ino) => Err(FsError::NotDirectory),
        _ => Err(FsError::NotFound),
    }
}

fn is_file(fs: &Core, subvol: &Subvol, ino: u64) -> bool {
    use volume::nodes::Location::{Entry, Linked};
    matches!(fs.nodes.location(subvol.node(ino)), Some(Entry { .. } | Linked))
}
