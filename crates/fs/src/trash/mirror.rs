//! Directories of the trash, modeled on those whose names they keep.
//!
//! A mirror has owner, mode, lists and creation time of its original, and its quota's mark, and is
//! used only while these are equal. If they are not the next batch begins, except for `.trash`
//! itself, which is changed to match the directory that has it.
//!
//! A mirror is charged to no one: removals by other users create it. When it leaves the trash, or
//! replaces a removed directory, it is charged like every directory.

use format::acl::{ACCESS, DEFAULT};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::without_lost_list;
use inode::{Caller, FsError};

use super::NAME;
use super::hour::Batch;
use crate::locks::Lock;
use crate::ops::mknod::Room;
use crate::quota::domain_of;
use crate::subvol::Subvol;
use crate::txn::Txn;
use crate::view::{NameBuf, View};
use crate::{Fs, FsResult};

/// What there is of a way in a batch.
pub(super) enum Way {
    /// These directories mirror it: the batch the directory that has the trash, and so on down to
    /// its end.
    Mirror(Vec<u64>),
    /// No trash: something else has its name.
    Taken,
    /// Something that does not fit: it takes another batch.
    Other,
}

/// Finds or makes the mirror of a way.
pub(super) fn in_batch(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    (home, batch): (u64, Batch),
    path: &[(u64, NameBuf)],
) -> FsResult<Way> {
    let _making = fs.trash.making.lock();
    let Some(trash) = make(fs, subvol, view, (home, NAME), home)? else { return Ok(Way::Taken) };
    take_over(fs, subvol, view, home, trash)?;
    let mirrors = mirrors(fs, subvol, view, trash, (home, batch), path)?;
    Ok(mirrors.map_or(Way::Other, Way::Mirror))
}

/// Ensures that a trash has the owners, mode and lists of the directory that has it. Otherwise its
/// earlier creator, or a user with earlier rights there, could remove whole hours.
pub(super) fn take_over(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    home: u64,
    trash: u64,
) -> FsResult<()> {
    let (right, lists) = model_of(fs, subvol, view, home)?;
    let as_right = |record| DirectoryRecord { btime: right.btime, charge: right.charge, ..record };
    let (known, known_lists) = model_of(fs, subvol, view, trash)?;
    if are_alike((&right, lists.as_ref()), (&as_right(known), known_lists.as_ref())) {
        return Ok(());
    }
    let _object = fs.locks.exclusive(Lock::Object { subvol: subvol.id.0, ino: trash });
    let old = view.directory(trash)?.ok_or(FsError::NotFound)?;
    let has_xattrs = lists.is_some();
    let (uid, gid, mode) = (right.uid, right.gid, right.mode);
    let record = DirectoryRecord { uid, gid, mode, has_xattrs, ..old };
    let mut txn = Txn::new(fs);
    txn.on_behalf(&Caller::root());
    txn.charge_chown(subvol.id.0, trash, &record, (old.uid, old.gid))?;
    let key = key::directory(trash, Part::Xattrs);
    match &lists {
        Some(lists) => txn.batch().put(view.tree, &key, &lists.encode()),
        None if old.has_xattrs => txn.batch().delete(view.tree, &key),
        None => {}
    }
    txn.put_directory(view.tree, trash, &DirectoryRecord { ctime: txn.now, ..record });
    txn.commit()?;
    invalidate(fs, subvol, trash);
    Ok(())
}

/// The mirrors of a way in a batch, made where they are not there. `None`: something else has one
/// of the names, or a directory that was made when its original had another owner or other rights,
/// or for another directory of that path.
fn mirrors(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    trash: u64,
    (home, batch): (u64, Batch),
    path: &[(u64, NameBuf)],
) -> FsResult<Option<Vec<u64>>> {
    let name = batch.name();
    let first = (home, name.as_bytes());
    let mut mirrors = Vec::with_capacity(path.len() + 1);
    for (ino, name) in
        std::iter::once(first).chain(path.iter().map(|(ino, name)| (*ino, name.as_bytes())))
    {
        let at = mirrors.last().copied().unwrap_or(trash);
        match make(fs, subvol, view, (at, name), ino)? {
            Some(made) if fits(fs, subvol, view, ino, made)? => mirrors.push(made),
            _ => return Ok(None),
        }
    }
    Ok(Some(mirrors))
}

/// Whether a directory of the trash is the mirror of one. An empty one of another that had the
/// same path, and the same rights, becomes it.
fn fits(fs: &Fs, subvol: &Subvol, view: View<'_>, ino: u64, mirror: u64) -> FsResult<bool> {
    let (original, lists) = model_of(fs, subvol, view, ino)?;
    let (old, old_lists) = model_of(fs, subvol, view, mirror)?;
    let as_original = |record| DirectoryRecord { btime: original.btime, ..record };
    if !are_alike((&original, lists.as_ref()), (&as_original(old), old_lists.as_ref())) {
        return Ok(false);
    }
    if old.btime == original.btime {
        return Ok(true);
    }
    let _object = fs.locks.exclusive(Lock::Object { subvol: subvol.id.0, ino: mirror });
    if old.entries != 0 || view.directory(mirror)? != Some(old) {
        return Ok(false);
    }
    let mut txn = Txn::new(fs);
    txn.put_directory(view.tree, mirror, &as_original(old));
    txn.commit()?;
    invalidate(fs, subvol, mirror);
    Ok(true)
}

fn invalidate(fs: &Fs, subvol: &Subvol, ino: u64) {
    let node = subvol.node(ino);
    if fs.nodes.is_held(node) {
        fs.invalidate_node(node);
    }
}

/// Whether two directories are one, or mirrors of one: made at one time, and with the same quota,
/// owners, mode and lists.
pub(super) fn are_alike(
    (a, of_a): (&DirectoryRecord, Option<&XattrRecord>),
    (b, of_b): (&DirectoryRecord, Option<&XattrRecord>),
) -> bool {
    let list = |of: Option<&XattrRecord>, name| of.and_then(|of| of.get(name).map(<[u8]>::to_vec));
    let lists = |name| list(of_a, name) == list(of_b, name);
    let said = |of: &DirectoryRecord| (of.btime, domain_of(of), of.uid, of.gid, of.mode);
    said(a) == said(b) && lists(ACCESS) && lists(DEFAULT)
}

/// The directory of a name in the trash, made after a model where there is none. `None`: the name
/// is something else's.
pub(super) fn make(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    at: (u64, &[u8]),
    model: u64,
) -> FsResult<Option<u64>> {
    make_as(fs, (subvol, view), at, model, None)
}

/// As `make`. `caller`: outside of the trash, with the rights of a caller, and charged.
pub(super) fn make_as(
    fs: &Fs,
    (subvol, view): (&Subvol, View<'_>),
    (parent, name): (u64, &[u8]),
    model: u64,
    caller: Option<&Caller>,
) -> FsResult<Option<u64>> {
    let hash = fs.hash.hash(name);
    let root = Caller::root();
    let room = Room { fs, subvol, view, caller: caller.unwrap_or(&root), dir: parent, hash, name };
    let ((mut record, mut xattrs), locks, above, vacancy) = loop {
        if let Some(found) = view.find_entry(parent, hash, name)? {
            return Ok((found.target == Target::Directory).then_some(found.ino));
        }
        let model = model_of(fs, subvol, view, model)?;
        match room.find() {
            Ok((locks, above, vacancy)) => break (model, locks, above, vacancy),
            Err(FsError::Exists) => {}
            Err(error) => return Err(error),
        }
    };
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let mut txn = Txn::new(fs);
    if let Some(caller) = caller.filter(|caller| !caller.is_root() && caller.uid != record.uid) {
        // No user creates directories of others.
        (record.uid, record.gid) = (caller.uid, caller.gid);
        record.mode = without_lost_list(record.mode) & 0o777;
        (record.has_xattrs, xattrs) = (false, None);
    }
    txn.on_behalf(caller.unwrap_or(&root));
    let charge = match caller {
        Some(_) => txn.charge_new(subvol.id.0, &above, ((record.uid, record.gid), 0))?,
        None => txn.uncharged(domain_of(&record)),
    };
    let made = DirectoryRecord {
        entries: 0,
        subdirectories: 0,
        parent,
        parent_cookie: vacancy.cookie,
        detached: false,
        elsewhere: None,
        charge,
        ..record
    };
    let entry = EntryRecord { chained: false, ino, name, target: Target::Directory };
    txn.insert_entry(view, parent, &vacancy, &entry)?;
    txn.put_directory(view.tree, ino, &made);
    if let Some(xattrs) = &xattrs {
        txn.batch().put(view.tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
    }
    match caller {
        Some(_) => txn.touch_directory(view.tree, parent, 1, 1),
        None => txn.count_entries(view.tree, parent, 1, 1),
    }
    txn.count(subvol.id.0, 1, 0);
    txn.commit()?;
    drop(locks);
    changed(fs, subvol, parent, name);
    Ok(Some(ino))
}

/// A directory's record, and its extended attributes, as of one moment.
fn model_of(
    fs: &Fs,
    subvol: &Subvol,
    view: View<'_>,
    ino: u64,
) -> FsResult<(DirectoryRecord, Option<XattrRecord>)> {
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let record = view.directory(ino)?.ok_or(FsError::NotFound)?;
    let xattrs = if record.has_xattrs {
        Some(view.xattrs(&key::directory(ino, Part::Xattrs))?)
    } else {
        None
    };
    Ok((record, xattrs))
}

/// Notifies front ends that a name of the trash points to something else now, if they can know it.
pub(super) fn changed(fs: &Fs, subvol: &Subvol, parent: u64, name: &[u8]) {
    let node = subvol.node(parent);
    if node == fs.root() || fs.nodes.is_held(node) {
        fs.invalidate_entry(node, name);
        fs.invalidate_node(node);
    }
}
