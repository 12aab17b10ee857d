//! `rmdir`: removes an empty directory.

use format::directory_record::DirectoryRecord;
use format::entry_record::Target;
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};

use super::mknod::parent_directory;
use crate::locks::{Lock, Mode};
use crate::nodes::Orphan;
use crate::trash::{Keeping, Kept, Removal};
use crate::txn::Txn;
use crate::view::{Found, View};
use crate::{Fs, FsResult, permit};

/// Removes an empty directory.
pub(crate) fn rmdir(
    fs: &Fs,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    removal: Removal,
) -> FsResult<()> {
    let name = fs.old_name(name)?;
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let hash = fs.hash.hash(name.as_bytes());
    let id = subvol.id.0;
    loop {
        let found = view.find_entry(dir, hash, name.as_bytes())?;
        let seen = found.map_or(0, |found| found.ino);
        let keeps = removal == Removal::Keep && fs.trash.is_on();
        let empty = if keeps { empty_directory(view, found)? } else { None };
        let at = (dir, name.as_bytes());
        let keeping = Keeping::of(fs, &subvol, view, at, (empty, removal))?;
        let own = [
            (Lock::Object { subvol: id, ino: dir }, Mode::Shared),
            (Lock::Name { subvol: id, dir, hash }, Mode::Exclusive),
            (Lock::Object { subvol: id, ino: seen }, Mode::Exclusive),
        ];
        let locks = match &keeping {
            None => fs.locks.lock(&own),
            Some(keeping) => fs.locks.lock(&[own[0], own[1], own[2], keeping.locks(hash)[0]]),
        };
        let directory = parent_directory(fs, &subvol, view, caller, dir)?;
        let found = view.find_entry(dir, hash, name.as_bytes())?.ok_or(FsError::NotFound)?;
        if found.ino != seen {
            continue;
        }
        match found.target {
            Target::Directory => {}
            Target::Subvolume(_) => {
                drop(locks);
                drop(entered);
                return crate::subvolumes::remove_link(fs, caller, parent, name.as_bytes());
            }
            _ => return Err(FsError::NotDirectory),
        }
        let victim = view.directory(seen)?.ok_or_else(|| {
            crate::error::inconsistent(view.tree, "a name points to nothing", seen)
        })?;
        permit::removal(view, dir, &directory, caller, victim.uid)?;
        if victim.entries != 0 {
            return Err(FsError::NotEmpty);
        }
        if keeps && empty.is_none() {
            // It was not empty yet when its place in the trash was looked up.
            continue;
        }
        let mut txn = match &keeping {
            None => Txn::removing(fs),
            Some(_) => Txn::new(fs),
        };
        if let Some(keeping) = &keeping {
            if let Kept::Again = keeping.put_directory(&mut txn, view, (seen, &victim))? {
                continue;
            }
        } else {
            erase_directory(&mut txn, view, id, seen, &victim);
        }
        txn.erase_entry(view, dir, &found, false)?;
        txn.touch_directory(view.tree, dir, -1, -1);
        txn.commit()?;
        let now = txn.now;
        fs.nodes.orphan(subvol.node(seen), || removed(victim, now));
        drop(locks);
        if let Some(keeping) = keeping {
            keeping.tell(name.as_bytes());
        }
        return Ok(());
    }
}

/// What was found, if it is a removable directory: for others no mirror is created.
fn empty_directory(view: View<'_>, found: Option<Found>) -> FsResult<Option<Found>> {
    match found {
        Some(found) if found.target == Target::Directory => {
            let record = view.directory(found.ino)?;
            Ok(record.is_some_and(|record| record.entries == 0).then_some(found))
        }
        _ => Ok(None),
    }
}

/// Adds to a batch the removal of an empty directory's own records.
pub(crate) fn erase_directory(
    txn: &mut Txn<'_>,
    view: View<'_>,
    subvol: u64,
    ino: u64,
    record: &DirectoryRecord,
) {
    txn.batch().delete(view.tree, &key::directory(ino, Part::Attributes));
    if record.has_xattrs {
        txn.batch().delete(view.tree, &key::directory(ino, Part::Xattrs));
    }
    txn.count(subvol, -1, 0);
    txn.credit_directory(subvol, ino, record);
}

/// What holders of a removed directory see of it.
pub(crate) fn removed(record: DirectoryRecord, now: i64) -> Orphan {
    let mode = record.mode & !inode::permissions::HAS_ACL;
    Orphan::Directory(DirectoryRecord { ctime: now, has_xattrs: false, mode, ..record })
}
