//! What the verbs on whole directories ask first.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use inode::{Caller, FsError, SubvolId};
use store::KeyRange;

use super::nested::Member;
use crate::error::{from_store, inconsistent, malformed};
use crate::subvol::{Subvol, VOLUME};
use crate::view::{NameBuf, View};
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
    let start = (subvol, dir);
    let mut left = vec![(start, None)];
    while let Some(((id, dir), from)) = left.pop() {
        let subvol = fs.subvol(id)?;
        let record = directory_of(fs, &subvol, dir)?;
        if record.uid != caller.uid {
            return Err(FsError::NotPermitted("a directory below belongs to somebody else"));
        }
        let tree = subvol.tree();
        if let Some((above, cookie)) = from {
            let place = place_of(fs, (id, dir), &record, above)?;
            // Damaged records may lie in a circle. Each is in one place, so that a circle that is
            // come into leads through where this began. Somebody may have moved it meanwhile.
            if (place != (above, cookie) || (id, dir) == start)
                && leads_to(fs, (above, cookie), (id, dir))?
            {
                return Err(inconsistent(tree, "a directory is not where it says", dir));
            }
        }
        let range = KeyRange::prefix(&key::directory_prefix(dir));
        let mut cursor = fs.store.scan(tree, range).map_err(from_store)?;
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
            if cookie == 0 {
                continue;
            }
            let entry = EntryRecord::decode(item.value).map_err(|error| malformed(tree, &error))?;
            let from = Some(((id, dir), cookie));
            match entry.target {
                Target::Directory => left.push(((id, entry.ino), from)),
                Target::Subvolume(below) => left.push(((SubvolId(below), entry.ino), from)),
                _ => {}
            }
        }
    }
    Ok(())
}

/// Whether an entry of a directory leads to a directory.
fn leads_to(
    fs: &Fs,
    ((id, dir), cookie): ((SubvolId, u64), u64),
    to: (SubvolId, u64),
) -> FsResult<bool> {
    let subvol = fs.subvol(id)?;
    let mut name = NameBuf::empty();
    let found = View::new(&*fs.store, subvol.tree()).entry_at(dir, cookie, &mut name)?;
    Ok(found.is_some_and(|found| match found.target {
        Target::Directory => (id, found.ino) == to,
        Target::Subvolume(below) => (SubvolId(below), found.ino) == to,
        _ => false,
    }))
}

/// The directory that a directory is in, and the cookie of its entry there, as its record says, or
/// as that of its subvolume does where it was come to from another.
fn place_of(
    fs: &Fs,
    (id, dir): (SubvolId, u64),
    record: &DirectoryRecord,
    above: (SubvolId, u64),
) -> FsResult<((SubvolId, u64), u64)> {
    if id == above.0 {
        return Ok(((id, record.parent), record.parent_cookie));
    }
    let mounted = Member::get(fs, id.0)?.record;
    let (subvolume, directory, cookie) = mounted.parent;
    if mounted.root != dir {
        return Err(inconsistent(
            VOLUME,
            "a subvolume has another root than its name leads to",
            dir,
        ));
    }
    Ok(((SubvolId(subvolume), directory), cookie))
}
