//! `link`: another name for an inode.
//!
//! An inode with one name is stored beside that name. Its second name moves it under a number of
//! its own, `L`, with a reference back to each name; both names then say where it is.

use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId};

use super::mknod::{check_write, parent_directory};
use crate::load::{FileInode, Inode, Place, load, load_bulk, load_xattrs};
use crate::locks::{Lock, Mode};
use crate::nodes::{Location, Orphan};
use crate::subvol::VOLUME;
use crate::txn::{Attached, Txn};
use crate::view::{Search, Vacancy, View};
use crate::{Entry, Fs, FsResult, attributes, quota};

/// Most names of one inode.
const LINKS_MAX: u32 = 1 << 20;

/// Gives a node another name.
pub(crate) fn link(
    fs: &Fs,
    caller: &Caller,
    node: NodeId,
    parent: NodeId,
    name: &[u8],
) -> FsResult<Entry> {
    let name = fs.new_name(name)?;
    let (subvol, dir) = fs.place(parent)?;
    let (of, ino) = fs.place(node)?;
    if of.id != subvol.id {
        return Err(FsError::CrossSubvolume("a hard link"));
    }
    let node = subvol.node(ino);
    let entered = fs.enter(&subvol)?;
    let view = View::new(&*fs.store, entered.tree);
    let hash = fs.hash.hash(name.as_bytes());
    crate::trash::check_outside(fs, &subvol, view, (dir, name.as_bytes()))?;
    let id = subvol.id.0;
    let mut behind = ino;
    loop {
        let seen = fs.nodes.location(node);
        // The old name changes from "here" to "there", so a look-up of it must wait.
        let (old_dir, old_hash) = match seen {
            Some(Location::Entry { dir, cookie }) => (dir, cookie >> 8),
            _ => (dir, hash),
        };
        let _locks = fs.locks.lock(&[
            (Lock::Object { subvol: id, ino: dir }, Mode::Shared),
            (Lock::Name { subvol: id, dir, hash }, Mode::Exclusive),
            (Lock::Name { subvol: id, dir: old_dir, hash: old_hash }, Mode::Exclusive),
            (Lock::Object { subvol: id, ino }, Mode::Exclusive),
            (Lock::Object { subvol: id, ino: behind }, Mode::Exclusive),
        ]);
        if fs.nodes.location(node) != seen {
            continue;
        }
        let directory = parent_directory(fs, &subvol, view, caller, dir)?;
        let Inode::File(file) = load(fs, view, node, ino)? else {
            return Err(FsError::NotPermitted("a hard link to a directory"));
        };
        let vacancy = match view.find(dir, hash, name.as_bytes())? {
            Search::Found(_) => return Err(FsError::Exists),
            Search::Vacant(vacancy) => vacancy,
        };
        // A name of the same hash will be flagged: its inode is locked as well.
        if let Some((_, other)) = vacancy.predecessor.filter(|&(_, other)| other != 0)
            && other != behind
            && other != ino
        {
            behind = other;
            continue;
        }
        check_write(view, caller, dir, &directory)?;
        let domain = file.inode.charge.map_or(0, |charge| charge.domain);
        quota::check_same(domain, quota::domain_of(&directory))?;
        let unnamed = check_names(fs, node, &file)?;
        let mut txn = Txn::new(fs);
        txn.on_behalf(caller);
        let mut linking = Linking { fs, view, node, ino, file };
        let vacancy = linking.detach(&mut txn, dir, vacancy)?;
        if unnamed {
            linking.adopt(&mut txn, id)?;
        }
        let (inode, nlink) = linking.add_name(&mut txn, (id, dir), &vacancy, name.as_bytes())?;
        txn.commit()?;
        if unnamed {
            fs.nodes.name_unnamed(node);
        }
        fs.nodes.relocate(node, Location::Linked);
        fs.nodes.look_up(node, Location::Linked);
        return Ok(fs.entry(attributes::of_file(node, &inode, nlink)));
    }
}

/// Whether an inode gets its first name; one that lost its last cannot get another.
fn check_names(fs: &Fs, node: NodeId, file: &FileInode) -> FsResult<bool> {
    match file.nlink {
        0 if !fs.nodes.is_unnamed(node) => Err(FsError::NotFound),
        LINKS_MAX.. => Err(FsError::TooManyLinks),
        nlink => Ok(nlink == 0),
    }
}

struct Linking<'a> {
    fs: &'a Fs,
    view: View<'a>,
    node: NodeId,
    ino: u64,
    file: FileInode,
}

impl Linking<'_> {
    /// Moves the inode from beside its name to its own number. Rewrites the old entry; if the new
    /// name follows it in its chain, sets the flag for that at once.
    fn detach(&mut self, txn: &mut Txn<'_>, dir: u64, vacancy: Vacancy) -> FsResult<Vacancy> {
        let Place::Entry { dir: old_dir, cookie, chained } = self.file.place else {
            return Ok(vacancy);
        };
        let file = &self.file;
        let follows = old_dir == dir
            && vacancy.predecessor.is_some_and(|(predecessor, _)| predecessor == cookie);
        let entry = EntryRecord {
            chained: chained || follows,
            ino: self.ino,
            name: file.name.as_bytes(),
            target: Target::Linked(file.inode.kind),
        };
        let tree = self.view.tree;
        txn.put_entry(tree, old_dir, cookie, &entry);
        let attached = Attached {
            bulk: if file.inode.has_bulk {
                Some(load_bulk(self.fs, self.view, self.node, self.ino, file)?)
            } else {
                None
            },
            xattrs: None,
        };
        for (present, part) in
            [(file.inode.has_bulk, Part::Bulk), (file.inode.has_xattrs, Part::Xattrs)]
        {
            if present {
                txn.batch().delete(tree, &key::entry(old_dir, cookie, part));
            }
        }
        let (bulk, xattrs) =
            (key::linked(self.ino, Part::Bulk), key::linked(self.ino, Part::Xattrs));
        txn.put_attached(tree, &bulk, &xattrs, &attached);
        if file.inode.has_xattrs {
            let inode = Inode::File(FileInode { name: file.name, ..*file });
            let record = load_xattrs(self.fs, self.view, self.node, self.ino, &inode)?;
            txn.batch().put(tree, &xattrs, &record.encode());
        }
        txn.batch().put(tree, &key::back_reference(self.ino, old_dir, cookie), b"");
        Ok(if follows { Vacancy { predecessor: None, ..vacancy } } else { vacancy })
    }

    /// A file that was created without a name gets its first: it is counted from now on, and what
    /// was in memory is stored on disk. (It stays under its own number, like a file that had two
    /// names and lost one.)
    fn adopt(&mut self, txn: &mut Txn<'_>, subvol: u64) -> FsResult<()> {
        let inode = &mut self.file.inode;
        txn.count(subvol, 1, inode.size as i64);
        let before = *inode;
        let before = (self.file.place != Place::Memory).then_some(&before);
        txn.charge_changed(subvol, self.ino, (before, inode), true)?;
        if self.file.place == Place::Linked {
            txn.batch().delete(VOLUME, &key::orphan(subvol, self.ino));
            return Ok(());
        }
        let Some(Orphan::File { bulk, xattrs, .. }) = self.fs.nodes.orphan_of(self.node) else {
            return Err(FsError::Stale);
        };
        inode.has_bulk = !bulk.is_empty();
        inode.has_xattrs = !xattrs.is_empty();
        let attached = Attached {
            bulk: inode.has_bulk.then_some(bulk),
            xattrs: inode.has_xattrs.then_some(xattrs),
        };
        let keys = (key::linked(self.ino, Part::Bulk), key::linked(self.ino, Part::Xattrs));
        txn.put_attached(self.view.tree, &keys.0, &keys.1, &attached);
        Ok(())
    }

    /// Adds the name, and charges it if it is a further one.
    fn add_name(
        &mut self,
        txn: &mut Txn<'_>,
        (subvol, dir): (u64, u64),
        vacancy: &Vacancy,
        name: &[u8],
    ) -> FsResult<(InodeRecord, u32)> {
        let tree = self.view.tree;
        let had = InodeRecord { ctime: txn.now, ..self.file.inode };
        let (mut inode, nlink) = (had, self.file.nlink + 1);
        if nlink > 1 {
            inode.charged_names = had.charged_names.saturating_add(1);
            txn.charge_changed(subvol, self.ino, (Some(&had), &mut inode), true)?;
        }
        let target = Target::Linked(inode.kind);
        let entry = EntryRecord { chained: false, ino: self.ino, name, target };
        txn.insert_entry(self.view, dir, vacancy, &entry)?;
        txn.put_linked(tree, self.ino, &LinkedRecord { nlink, inode });
        txn.batch().put(tree, &key::back_reference(self.ino, dir, vacancy.cookie), b"");
        txn.touch_directory(tree, dir, 1, 0);
        Ok((inode, nlink))
    }
}
