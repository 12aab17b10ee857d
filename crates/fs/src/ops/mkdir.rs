//! `mkdir`: a new directory.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::FileKind;
use format::key::{self, Part};
use inode::{Caller, NodeId};

use super::mknod::Room;
use crate::nodes::Location;
use crate::txn::Txn;
use crate::view::View;
use crate::{Entry, Fs, FsResult, attributes, permit};

/// Makes a directory.
pub(crate) fn mkdir(
    fs: &Fs,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    mode: u32,
) -> FsResult<Entry> {
    let name = fs.new_name(name)?;
    let (subvol, dir) = fs.place(parent)?;
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let hash = fs.hash.hash(name.as_bytes());
    let room = Room { fs, subvol: &subvol, view, caller, dir, hash, name: name.as_bytes() };
    crate::trash::check_outside(fs, &subvol, view, (dir, name.as_bytes()))?;
    let (_locks, directory, vacancy) = room.find()?;
    let ino = fs.numbers.next_ino(&*fs.store)?;
    let mut txn = Txn::new(fs);
    let above = (dir, &directory);
    let inherited = permit::inherit(view, caller, above, mode & 0o1777, FileKind::Directory)?;
    txn.on_behalf(caller);
    let share = ((caller.uid, inherited.gid), 0);
    let charge = txn.charge_new(subvol.id.0, &directory, share)?;
    let record = DirectoryRecord {
        entries: 0,
        subdirectories: 0,
        mtime: txn.now,
        ctime: txn.now,
        atime: txn.now,
        btime: txn.now,
        parent: dir,
        parent_cookie: vacancy.cookie,
        mode: inherited.mode,
        uid: caller.uid,
        gid: inherited.gid,
        has_xattrs: inherited.xattrs.is_some(),
        detached: false,
        elsewhere: None,
        charge,
    };
    let entry =
        EntryRecord { chained: false, ino, name: name.as_bytes(), target: Target::Directory };
    txn.insert_entry(view, dir, &vacancy, &entry)?;
    txn.put_directory(view.tree, ino, &record);
    if let Some(xattrs) = &inherited.xattrs {
        txn.batch().put(view.tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
    }
    txn.touch_directory(view.tree, dir, 1, 1);
    txn.count(subvol.id.0, 1, 0);
    txn.commit()?;
    let node = subvol.node(ino);
    fs.nodes.look_up(node, Location::Directory);
    Ok(fs.entry(attributes::of_directory(node, &record)))
}
