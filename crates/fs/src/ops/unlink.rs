//! `unlink`: removes a name that is not a directory's. The inode is removed with its last name, or
//! when its last holder releases it.

use format::entry_record::Target;
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};

use super::mknod::parent_directory;
use crate::inherited::Ways;
use crate::locks::{Lock, Mode};
use crate::orphan::LastName;
use crate::trash::{Keeping, Kept, Removal};
use crate::txn::{Attached, Txn};
use crate::view::{Found, View};
use crate::{Fs, FsResult, permit};

/// Removes a name.
pub(crate) fn unlink(
    fs: &Fs,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    removal: Removal,
) -> FsResult<()> {
    let name = match fs.old_name(name) {
        Err(FsError::NotEmpty | FsError::InvalidArgument(_)) if name.starts_with(b".") => {
            return Err(FsError::IsDirectory);
        }
        name => name?,
    };
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let hash = fs.hash.hash(name.as_bytes());
    let id = subvol.id.0;
    loop {
        // Read without locks, to lock everything needed at once.
        let found = view.find_entry(dir, hash, name.as_bytes())?;
        let seen = found.map_or(0, |found| found.ino);
        let wanted = (found.filter(|found| !found.is_directory()), removal);
        let keeping = Keeping::of(fs, &subvol, view, (dir, name.as_bytes()), wanted)?;
        let own = [
            (Lock::Object { subvol: id, ino: dir }, Mode::Shared),
            (Lock::Name { subvol: id, dir, hash }, Mode::Exclusive),
            (Lock::Object { subvol: id, ino: seen }, Mode::Exclusive),
        ];
        let locks = match &keeping {
            None => fs.locks.lock(&own),
            Some(keeping) => {
                let [mirror, there] = keeping.locks(hash);
                fs.locks.lock(&[own[0], own[1], own[2], mirror, there])
            }
        };
        let directory = parent_directory(fs, &subvol, view, caller, dir)?;
        let found = view.find_entry(dir, hash, name.as_bytes())?.ok_or(FsError::NotFound)?;
        if found.ino != seen {
            continue;
        }
        if found.is_directory() {
            permit::directory(view, dir, &directory, caller, inode::permissions::WRITE)?;
            return Err(FsError::IsDirectory);
        }
        let (inode, nlink) = inode_of(view, &found)?;
        permit::removal(view, dir, &directory, caller, inode.uid)?;
        if let Some(keeping) = keeping {
            let mut txn = Txn::new(fs);
            txn.erase_entry(view, dir, &found, false)?;
            let name = name.as_bytes();
            let Kept::Put(cookie) =
                keeping.put_file(&mut txn, view, (dir, &found), (name, hash))?
            else {
                continue;
            };
            txn.touch_directory(view.tree, dir, -1, 0);
            txn.commit()?;
            keeping.settle(&found, cookie);
            drop(locks);
            keeping.tell(name);
            return Ok(());
        }
        let mut txn = Txn::removing(fs);
        let name = (id, dir, &found);
        let lost = drop_name(&mut txn, view, &mut Ways::new(), name, &inode, nlink)?;
        txn.erase_entry(view, dir, &found, false)?;
        txn.touch_directory(view.tree, dir, -1, 0);
        txn.commit()?;
        if let Some(lost) = lost {
            lost.settle(fs);
        }
        return Ok(());
    }
}

/// The attributes of what an entry points to that is not a directory, and how many names it has.
pub(crate) fn inode_of(view: View<'_>, found: &Found) -> FsResult<(InodeRecord, u32)> {
    match &found.target {
        Target::Embedded(inode) => Ok((*inode, 1)),
        Target::Linked(_) => {
            let record = view.linked(found.ino)?.ok_or_else(|| {
                crate::error::inconsistent(view.tree, "a name points to nothing", found.ino)
            })?;
            Ok((record.inode, record.nlink))
        }
        _ => Err(FsError::IsDirectory),
    }
}

/// Adds to a batch the effects on an inode that loses a name (the caller erases or replaces the
/// entry itself). The object's lock is held exclusively; `ways` is the commit's.
pub(crate) fn drop_name(
    txn: &mut Txn<'_>,
    view: View<'_>,
    ways: &mut Ways,
    (subvol, dir, found): (u64, u64, &Found),
    inode: &InodeRecord,
    nlink: u32,
) -> FsResult<Option<LastName>> {
    let ino = found.ino;
    let linked = matches!(found.target, Target::Linked(_));
    if linked {
        txn.batch().delete(view.tree, &key::back_reference(ino, dir, found.cookie));
    }
    let others = if linked { nlink.saturating_sub(1) } else { 0 };
    let hidden = if others > 0 {
        ways.hidden_names(txn.fs(), view, subvol, (ino, others), (dir, found.cookie))?
    } else {
        None
    };
    for key in hidden.iter().flatten() {
        txn.batch().delete(view.tree, key);
    }
    if others > 0 && hidden.is_none() {
        let had = InodeRecord { ctime: txn.now, ..*inode };
        let mut inode = had;
        inode.charged_names = had.charged_names.saturating_sub(1).min(others - 1);
        txn.charge_changed(subvol, ino, (Some(&had), &mut inode), false)?;
        txn.put_linked(view.tree, ino, &LinkedRecord { nlink: others, inode });
        return Ok(None);
    }
    let (bulk, xattrs) = if linked {
        (key::linked(ino, Part::Bulk).to_vec(), key::linked(ino, Part::Xattrs).to_vec())
    } else {
        let key = |part| key::entry(dir, found.cookie, part).to_vec();
        (key(Part::Bulk), key(Part::Xattrs))
    };
    // What is stored beside the inode is kept for its holders.
    let attached = Attached {
        bulk: if inode.has_bulk { Some(view.bulk(&bulk)?) } else { None },
        xattrs: if inode.has_xattrs { Some(view.xattrs(&xattrs)?) } else { None },
    };
    if linked {
        for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
            txn.batch().delete(view.tree, &key::linked(ino, part));
        }
    }
    LastName::plan(txn, view.tree, (subvol, ino), inode, attached).map(Some)
}
