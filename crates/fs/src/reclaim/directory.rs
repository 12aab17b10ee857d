//! Emptying a detached directory from the bottom, a few entries at a time.
//!
//! Each commit removes some entries of one directory, or one directory that is empty by now, so
//! that a crash anywhere leaves a smaller tree under the same record. What somebody holds goes
//! as with `unlink` and `rmdir`: it stays with its holder until that lets go.

use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::{FsError, SubvolId};
use store::KeyRange;

use crate::error::{from_store, malformed};
use crate::locks::{Lock, Mode};
use crate::nodes::Orphan;
use crate::ops::unlink::{drop_name, inode_of};
use crate::subvol::{Entered, Subvol, VOLUME};
use crate::subvolumes;
use crate::txn::Txn;
use crate::view::{Found, View};
use crate::{Fs, FsResult};

/// Most entries of one commit: their locks are held together.
const CHUNK: usize = 64;

/// Bytes after which a commit takes no more entries: attributes of held files move.
const COMMIT_BYTES: usize = 1 << 20;

/// A detached directory that is being emptied.
pub(super) struct Emptying {
    sequence: u64,
    subvol: u64,
    /// The directories from the detached one down to the one at hand.
    path: Vec<u64>,
}

/// What comes next in a directory.
enum Next {
    /// It is empty.
    Nothing,
    /// A directory, which is emptied first.
    Below(u64),
    /// The name of a subvolume.
    Subvolume(Found, u64),
    /// Names that can be removed together.
    Names(Vec<Found>),
}

impl Emptying {
    pub(super) fn new(sequence: u64, subvol: u64, directory: u64) -> Emptying {
        Emptying { sequence, subvol, path: vec![directory] }
    }

    /// Removes about `budget` names; tells how many, and whether all is done.
    pub(super) fn step(&mut self, fs: &Fs, budget: usize) -> FsResult<(u64, bool)> {
        let subvol = match fs.subvol(SubvolId(self.subvol)) {
            // The subvolume went with all that was in it.
            Err(FsError::Stale) => return self.end_early(fs),
            subvol => subvol?,
        };
        let mut done = 0;
        while done < budget as u64 {
            let Some(&directory) = self.path.last() else { return Ok((done, true)) };
            let entered = match fs.enter(&subvol) {
                Err(FsError::Stale) => return self.end_early(fs),
                entered => entered?,
            };
            let view = View::new(&*fs.store, entered.tree);
            match next(view, directory)? {
                Next::Below(below) if view.directory(below)?.is_some() => self.path.push(below),
                Next::Below(below) => {
                    // Cannot be: a directory goes in one commit with its name.
                    return Err(crate::error::inconsistent(
                        view.tree,
                        "a name of a removed directory leads nowhere",
                        below,
                    ));
                }
                Next::Names(names) => {
                    done += remove_names(fs, &subvol, &entered, directory, &names)?;
                }
                Next::Subvolume(found, child) => {
                    drop(entered);
                    remove_subvolume(fs, &subvol, directory, &found, child)?;
                    done += 1;
                }
                Next::Nothing => {
                    if self.remove_directory(fs, &subvol, &entered, directory)? {
                        self.path.pop();
                        done += 1;
                    }
                }
            }
        }
        Ok((done, self.path.is_empty()))
    }

    fn end_early(&mut self, fs: &Fs) -> FsResult<(u64, bool)> {
        let mut txn = Txn::new(fs);
        txn.batch().delete(VOLUME, &key::detached(self.sequence));
        txn.commit()?;
        self.path.clear();
        Ok((1, true))
    }

    /// Removes a directory that was empty a moment ago; `false` when it is no longer.
    fn remove_directory(
        &self,
        fs: &Fs,
        subvol: &Subvol,
        entered: &Entered<'_>,
        directory: u64,
    ) -> FsResult<bool> {
        let id = subvol.id.0;
        let _locks = fs.locks.lock(&[
            (Lock::Object { subvol: id, ino: directory }, Mode::Exclusive),
            (Lock::Place { subvol: id, ino: directory }, Mode::Exclusive),
        ]);
        let view = View::new(&*fs.store, entered.tree);
        let Next::Nothing = next(view, directory)? else { return Ok(false) };
        let record = view.directory(directory)?;
        let mut txn = Txn::new(fs);
        let prefix = key::directory_prefix(directory);
        let end = store::prefix_end(&prefix).expect("invariant: a tag is below 255");
        txn.batch().delete_range(view.tree, &prefix, &end);
        if self.path.len() == 1 {
            txn.batch().delete(VOLUME, &key::detached(self.sequence));
        } else if let Some(record) = &record {
            let name = key::entry(record.parent, record.parent_cookie, Part::Attributes);
            txn.batch().delete(view.tree, &name);
        }
        txn.count(id, -1, 0);
        txn.commit()?;
        if let Some(record) = record {
            fs.nodes.orphan(subvol.node(directory), || Orphan::Directory(record));
        }
        Ok(true)
    }
}

/// What comes next in a directory.
fn next(view: View<'_>, directory: u64) -> FsResult<Next> {
    let mut names: Vec<Found> = Vec::new();
    let from = key::entry(directory, 1, Part::Attributes);
    let range =
        KeyRange { from: from.to_vec(), to: store::prefix_end(&key::directory_prefix(directory)) };
    let mut cursor = view.store.scan(view.tree, range).map_err(from_store)?;
    while let Some(item) = cursor.next().map_err(from_store)? {
        let malformed = |error| malformed(view.tree, &error);
        let parsed = key::parse(item.key).map_err(malformed)?;
        let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
        let head = EntryHead::decode(item.value).map_err(malformed)?;
        let (chained, ino) = (head.chained, head.ino);
        let target = head.target().map_err(malformed)?;
        let found = Found { cookie, chained, ino, target };
        match target {
            Target::Tombstone => {}
            Target::Directory if names.is_empty() => return Ok(Next::Below(ino)),
            Target::Subvolume(child) if names.is_empty() => {
                return Ok(Next::Subvolume(found, child));
            }
            Target::Directory | Target::Subvolume(_) => break,
            // Two names of one inode do not go in one commit: the second would not see what the
            // first one did.
            _ if names.iter().any(|other| other.ino == ino) => break,
            _ => names.push(found),
        }
        if names.len() == CHUNK {
            break;
        }
    }
    Ok(if names.is_empty() { Next::Nothing } else { Next::Names(names) })
}

/// Removes names, if they are still what they were.
fn remove_names(
    fs: &Fs,
    subvol: &Subvol,
    entered: &Entered<'_>,
    directory: u64,
    names: &[Found],
) -> FsResult<u64> {
    let id = subvol.id.0;
    let mut wanted = vec![(Lock::Object { subvol: id, ino: directory }, Mode::Exclusive)];
    for name in names {
        let hash = name.cookie >> 8;
        wanted.push((Lock::Name { subvol: id, dir: directory, hash }, Mode::Exclusive));
        wanted.push((Lock::Object { subvol: id, ino: name.ino }, Mode::Exclusive));
    }
    let locks = fs.locks.lock(&wanted);
    let view = View::new(&*fs.store, entered.tree);
    let Next::Names(again) = next(view, directory)? else { return Ok(0) };
    let mut txn = Txn::new(fs);
    let present = txn.now;
    let mut lost = Vec::new();
    let mut done = 0;
    for (name, before) in again.iter().zip(names) {
        if (name.cookie, name.ino) != (before.cookie, before.ino) {
            break;
        }
        if txn.batch().as_bytes().len() > COMMIT_BYTES {
            break;
        }
        let (inode, nlink) = inode_of(view, name)?;
        // Whoever holds another name sees a link less, but the time of that is the removal of
        // the directory, not of its reclaiming.
        txn.now = inode.ctime;
        lost.extend(drop_name(&mut txn, view, id, directory, name, &inode, nlink)?);
        for part in [Part::Attributes, Part::Bulk, Part::Xattrs] {
            let beside = match part {
                Part::Attributes => true,
                Part::Bulk => inode.has_bulk,
                _ => inode.has_xattrs,
            };
            if beside {
                txn.batch().delete(view.tree, &key::entry(directory, name.cookie, part));
            }
        }
        done += 1;
    }
    txn.now = present;
    txn.commit()?;
    for lost in lost {
        lost.settle(fs);
    }
    drop(locks);
    Ok(done)
}

/// Detaches a subvolume that was mounted in a removed directory.
fn remove_subvolume(
    fs: &Fs,
    subvol: &Subvol,
    directory: u64,
    found: &Found,
    child: u64,
) -> FsResult<()> {
    let mut ledger = fs.admin.lock();
    let entered = fs.enter(subvol)?;
    let id = subvol.id.0;
    let _locks = fs.locks.lock(&[
        (Lock::Object { subvol: id, ino: directory }, Mode::Exclusive),
        (Lock::Name { subvol: id, dir: directory, hash: found.cookie >> 8 }, Mode::Exclusive),
    ]);
    let view = View::new(&*fs.store, entered.tree);
    match next(view, directory)? {
        Next::Subvolume(again, same) if again.cookie == found.cookie && same == child => {}
        _ => return Ok(()),
    }
    let mut txn = Txn::new(fs);
    txn.batch().delete(view.tree, &key::entry(directory, found.cookie, Part::Attributes));
    subvolumes::detach(fs, &mut ledger, &mut txn, child)?;
    subvolumes::commit(&ledger, &mut txn)?;
    ledger.moved(child, id, 0);
    fs.queue.add_detached(1);
    Ok(())
}
