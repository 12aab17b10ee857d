//! What a name points to, with everything that moves along when the name does. Used by `rename`,
//! and by moves into the trash and out of it.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use inode::FsError;
use vfs::FsResult;
use volume::error::inconsistent;
use volume::view::{FoundEntry, View};

use crate::plan::{Attached, Plan};

/// What a name points to.
pub enum Object {
    /// A directory.
    Directory(DirectoryRecord),
    /// Anything else.
    File {
        /// Its inode.
        inode: InodeRecord,
        /// How many names it has.
        nlink: u32,
        /// Whether it is stored under its own number.
        linked: bool,
        /// What is stored beside its name.
        attached: Attached,
    },
}

/// Where a name goes.
pub struct EntrySlot<'a> {
    /// The directory.
    pub dir: u64,
    /// The name.
    pub name: &'a [u8],
    /// Its cookie there.
    pub cookie: u64,
    /// Whether another name of its hash may follow.
    pub chained: bool,
}

impl Object {
    /// Reads what an entry of a directory points to.
    pub fn load(view: View<'_>, dir: u64, found: &FoundEntry) -> FsResult<Object> {
        if found.is_directory() {
            let record = view.directory(found.ino)?;
            let damage = || inconsistent(view.tree, "a name points to nothing", found.ino);
            return Ok(Object::Directory(record.ok_or_else(damage)?));
        }
        let (inode, nlink) = view.inode_of(found)?;
        let linked = matches!(found.target, Target::Linked(_));
        let mut attached = Attached::default();
        if !linked && inode.has_bulk {
            let key = key::entry(dir, found.cookie, Part::Bulk);
            attached.bulk = Some(view.bulk(&key)?);
        }
        if !linked && inode.has_xattrs {
            let key = key::entry(dir, found.cookie, Part::Xattrs);
            attached.xattrs = Some(view.xattrs(&key)?);
        }
        Ok(Object::File { inode, nlink, linked, attached })
    }

    /// Its owner.
    pub fn uid(&self) -> u32 {
        match self {
            Object::Directory(record) => record.uid,
            Object::File { inode, .. } => inode.uid,
        }
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Object::Directory(_))
    }

    /// Checks whether it may replace another.
    pub(crate) fn check_replaces(&self, victim: &Object) -> FsResult<()> {
        match (self.is_directory(), victim) {
            (true, Object::File { .. }) => Err(FsError::NotDirectory),
            (false, Object::Directory(_)) => Err(FsError::IsDirectory),
            (true, Object::Directory(record)) if record.entries != 0 => Err(FsError::NotEmpty),
            _ => Ok(()),
        }
    }

    /// Plans that it is stored under another name. The caller updates the old entry, and
    /// the counts of both directories.
    pub fn put(
        &self,
        plan: &mut Plan,
        view: View<'_>,
        (old_dir, found): (u64, &FoundEntry),
        slot: &EntrySlot<'_>,
    ) {
        let (tree, ino, now) = (view.tree, found.ino, plan.now);
        let EntrySlot { dir, name, cookie, chained } = *slot;
        let entry = |target| EntryRecord { chained, ino, name, target };
        match self {
            Object::Directory(record) => {
                plan.put_entry(tree, dir, cookie, &entry(Target::Directory));
                let record =
                    DirectoryRecord { parent: dir, parent_cookie: cookie, ctime: now, ..*record };
                plan.put_moved(tree, ino, &record);
            }
            Object::File { inode, nlink, linked: true, .. } => {
                plan.put_entry(tree, dir, cookie, &entry(Target::Linked(inode.kind)));
                plan.batch().delete(tree, &key::back_reference(ino, old_dir, found.cookie));
                plan.batch().put(tree, &key::back_reference(ino, dir, cookie), b"");
                let inode = InodeRecord { ctime: now, ..*inode };
                plan.put_linked(tree, ino, &LinkedRecord { nlink: *nlink, inode });
            }
            Object::File { inode, attached, .. } => {
                let inode = InodeRecord { ctime: now, ..*inode };
                plan.put_entry(tree, dir, cookie, &entry(Target::Embedded(inode)));
                let key = |part| key::entry(dir, cookie, part);
                plan.put_attached(tree, &key(Part::Bulk), &key(Part::Xattrs), attached);
            }
        }
    }
}
