//! Changes one inode: load it under its exclusive lock, change it, write back what changed, all in
//! one batch.

use format::acl::Acl;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{InodeRecord, LinkedRecord};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::{Attr, FsError, NodeId};
use vfs::FsResult;
use volume::load::{FileInode, Inode, InodePlace, load_bulk, load_named, load_xattrs};
use volume::locks::Mode;
use volume::nodes::Orphan;
use volume::subvol::Subvol;
use volume::view::{NameBuf, View};

use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::orphan::is_stored;
use crate::plan::{Attached, Effect, Plan};
use crate::policy::{Policy, Whose};

/// An inode being changed. Set what changes; it is written back when the change succeeds.
pub struct Edit<'a> {
    /// The file system.
    pub fs: &'a Ops,
    /// Its records.
    pub view: View<'a>,
    /// What sees the plan.
    policy: &'a dyn Policy,
    /// The subvolume.
    pub subvol: &'a Subvol,
    /// The node.
    pub node: NodeId,
    /// Its number.
    pub ino: u64,
    /// The inode.
    pub inode: Inode,
    /// The name beside which it is stored, if any.
    name: &'a NameBuf,
    /// Its state before, if it is not a directory.
    old: Option<InodeRecord>,
    /// What the change is planned as.
    pub plan: &'a mut Plan,
    /// Whether contents or attributes are removed, and nothing is added that takes as much.
    removes: bool,
    bulk: Option<Vec<u8>>,
    xattrs: Option<XattrRecord>,
}

/// Changes a node's inode and returns what the change returned.
pub fn edit<T>(
    fs: &Ops,
    policy: &dyn Policy,
    node: NodeId,
    change: impl FnMut(&mut Edit<'_>) -> FsResult<T>,
) -> FsResult<T> {
    edit_beside(fs, policy, node, None, change)
}

/// Like `edit`, with another inode of the same subvolume locked exclusively as well.
///
/// The answer to such a call carries no attributes. Front ends that cache know which times and
/// lengths it changes. They do not know that it cleared set-id bits or set a mode by an access
/// list. They are notified of that here, before the call is answered, so that no program runs with
/// rights that are gone.
pub(crate) fn edit_beside<T>(
    fs: &Ops,
    policy: &dyn Policy,
    node: NodeId,
    beside: Option<u64>,
    change: impl FnMut(&mut Edit<'_>) -> FsResult<T>,
) -> FsResult<T> {
    let Edited { result, before, after } = edit_locked(fs, policy, node, beside, change)?;
    if before.mode != after.mode {
        fs.attributes_changed_unasked(after.node);
    }
    Ok(result)
}

/// Like `edit`, and returns the attributes after the change, for the caller's answer.
pub(crate) fn edit_answering<T>(
    fs: &Ops,
    policy: &dyn Policy,
    node: NodeId,
    change: impl FnMut(&mut Edit<'_>) -> FsResult<T>,
) -> FsResult<(T, Attr)> {
    edit_locked(fs, policy, node, None, change).map(|edited| (edited.result, edited.after))
}

/// A change that was planned.
pub struct Edited<T> {
    /// What the change returned.
    pub result: T,
    /// The attributes before.
    pub before: Attr,
    /// The attributes after.
    pub after: Attr,
}

fn edit_locked<T>(
    fs: &Ops,
    policy: &dyn Policy,
    node: NodeId,
    beside: Option<u64>,
    change: impl FnMut(&mut Edit<'_>) -> FsResult<T>,
) -> FsResult<Edited<T>> {
    let (subvol, ino) = fs.place(node)?;
    execute(fs, policy, &subvol, &mut Editing { ino, beside, change })
}

/// A change of one inode, as an operation: its locks are known before anything is read.
pub struct Editing<F> {
    /// The inode that changes.
    pub ino: u64,
    /// Another one that is locked exclusively as well.
    pub beside: Option<u64>,
    /// The change.
    pub change: F,
}

impl<T, F: FnMut(&mut Edit<'_>) -> FsResult<T>> Operation for Editing<F> {
    type Reads = ();
    type Answer = Edited<T>;

    #[inline]
    fn guess(&mut self, _at: &Context<'_>) -> FsResult<()> {
        Ok(())
    }

    #[inline]
    fn aim(&mut self, at: &Context<'_>, (): &(), plan: &mut Plan) -> FsResult<()> {
        plan.lock(at.object(self.ino), Mode::Exclusive);
        if let Some(beside) = self.beside {
            plan.lock(at.object(beside), Mode::Exclusive);
        }
        Ok(())
    }

    #[inline]
    fn look(&mut self, _at: &Context<'_>) -> FsResult<()> {
        Ok(())
    }

    #[inline]
    fn agree((): &(), (): &()) -> bool {
        true
    }

    #[inline]
    fn plan(&mut self, at: &Context<'_>, (): (), plan: &mut Plan) -> FsResult<Outcome<Edited<T>>> {
        let (ino, node) = (self.ino, at.subvol.node(self.ino));
        let mut name = NameBuf::empty();
        let inode = load_named(at.fs, at.view, node, ino, &mut name)?;
        let before = inode.attr(node);
        let old = match &inode {
            Inode::File(file) => Some(file.inode),
            Inode::Directory(..) => None,
        };
        let mut edit = Edit {
            fs: at.fs,
            policy: at.policy,
            view: at.view,
            subvol: at.subvol,
            node,
            ino,
            inode,
            name: &name,
            old,
            plan,
            removes: false,
            bulk: None,
            xattrs: None,
        };
        let result = (self.change)(&mut edit)?;
        edit.write_back(&before)?;
        Ok(Outcome::Done(Edited { result, before, after: edit.inode.attr(node) }))
    }
}

impl Edit<'_> {
    /// The inode, which must not be a directory.
    pub fn file(&mut self) -> FsResult<&mut FileInode> {
        match &mut self.inode {
            Inode::File(file) => Ok(file),
            Inode::Directory(..) => Err(FsError::IsDirectory),
        }
    }

    /// Notes that contents or attributes are removed, and nothing is added that takes as much.
    pub fn removes(&mut self) {
        self.removes = true;
        self.plan.removes();
    }

    /// Contents that are not extents, or the target.
    pub fn bulk(&mut self) -> FsResult<Vec<u8>> {
        match (&mut self.bulk, &self.inode) {
            (Some(bulk), _) => Ok(std::mem::take(bulk)),
            (None, Inode::File(file)) => load_bulk(self.fs, self.view, self.node, self.ino, file),
            (None, Inode::Directory(..)) => Err(FsError::IsDirectory),
        }
    }

    /// Sets the contents that are not extents.
    pub(crate) fn set_bulk(&mut self, bytes: Vec<u8>) {
        self.bulk = Some(bytes);
    }

    /// The extended attributes, as the change has them so far.
    pub fn xattrs(&self) -> FsResult<XattrRecord> {
        if let Some(xattrs) = &self.xattrs {
            return Ok(xattrs.clone());
        }
        load_xattrs(self.fs, self.view, self.node, self.ino, &self.inode)
    }

    /// The access list of an inode that has one.
    pub fn acl(&self) -> FsResult<Acl> {
        volume::permit::of_inode(self.fs, self.view, self.node, self.ino, &self.inode)
    }

    /// Sets the extended attributes.
    pub(crate) fn set_xattrs(&mut self, xattrs: XattrRecord) {
        self.xattrs = Some(xattrs);
    }

    fn write_back(&mut self, before: &Attr) -> FsResult<()> {
        match &self.inode {
            Inode::Directory(record, named) => {
                let record = *record;
                if *named {
                    self.write_directory(record, before)
                } else if self.xattrs.is_some() {
                    // A removed directory that is still held has no place for them.
                    Err(FsError::NotFound)
                } else {
                    self.plan.effect(Effect::SetOrphan(self.node, Orphan::Directory(record)));
                    Ok(())
                }
            }
            Inode::File(file) if file.place == InodePlace::Memory => {
                let inode = file.inode;
                self.write_memory(inode)
            }
            Inode::File(_) => self.write_file(before),
        }
    }

    fn write_directory(&mut self, mut record: DirectoryRecord, before: &Attr) -> FsResult<()> {
        let owned = (before.uid, before.gid);
        self.policy.changes_directory(self.plan, self.whose(), &record, owned)?;
        if let Some(xattrs) = self.xattrs.take() {
            let key = key::directory(self.ino, Part::Xattrs);
            record.has_xattrs = !xattrs.is_empty();
            self.put_or_delete(&key, (!xattrs.is_empty()).then(|| xattrs.encode()));
        }
        self.plan.put_directory(self.view.tree, self.ino, &record);
        self.plan.effect(Effect::DirectoriesMoved);
        Ok(())
    }

    fn write_memory(&mut self, mut inode: InodeRecord) -> FsResult<()> {
        let Some(Orphan::File { bulk, xattrs, .. }) = self.fs.nodes.orphan_of(self.node) else {
            return Err(FsError::Stale);
        };
        let bulk = self.bulk.take().unwrap_or(bulk);
        let xattrs = self.xattrs.take().unwrap_or(xattrs);
        inode.has_bulk = !bulk.is_empty();
        inode.has_xattrs = !xattrs.is_empty();
        if !is_stored(self.fs, &inode, Some(&xattrs)) {
            let orphan = Orphan::File { inode, bulk, xattrs };
            self.plan.effect(Effect::SetOrphan(self.node, orphan));
            return Ok(());
        }
        self.policy.changes(self.plan, self.whose(), (None, &mut inode), true)?;
        // It owns extents from now on, or more than is kept in memory. A crash would leak the
        // extents if the store did not know of it.
        let attached = Attached {
            bulk: inode.has_bulk.then_some(bulk),
            xattrs: inode.has_xattrs.then_some(xattrs),
        };
        let keys = (key::linked(self.ino, Part::Bulk), key::linked(self.ino, Part::Xattrs));
        self.plan.put_attached(self.view.tree, &keys.0, &keys.1, &attached);
        self.plan.put_linked(self.view.tree, self.ino, &LinkedRecord { nlink: 0, inode });
        let orphan = key::orphan(self.subvol.id.0, self.ino);
        self.plan.batch().put(volume::subvol::VOLUME, &orphan, b"");
        self.plan.effect(Effect::StoreOrphan(self.node));
        Ok(())
    }

    fn write_file(&mut self, before: &Attr) -> FsResult<()> {
        let (bulk, xattrs) = (self.bulk.take(), self.xattrs.take());
        let Inode::File(file) = &mut self.inode else { return Err(FsError::IsDirectory) };
        let (ino, tree) = (self.ino, self.view.tree);
        // A mere truncate or punch is never refused, so the mark of an inherited file stays.
        let shrinks = |old: &InodeRecord| self.removes && file.inode.stored() <= old.stored();
        let changed = self.plan.changes_contents() || bulk.is_some();
        let changed = changed && !self.old.as_ref().is_some_and(shrinks);
        let change = (self.old.as_ref(), &mut file.inode);
        self.policy.changes(self.plan, (self.subvol.id.0, ino), change, changed)?;
        if let Some(bulk) = &bulk {
            file.inode.has_bulk = !bulk.is_empty();
        }
        if let Some(xattrs) = &xattrs {
            file.inode.has_xattrs = !xattrs.is_empty();
        }
        match file.place {
            InodePlace::Entry { dir, cookie, chained } => {
                let target = Target::Embedded(file.inode);
                let entry = EntryRecord { chained, ino, name: self.name.as_bytes(), target };
                self.plan.put_entry(tree, dir, cookie, &entry);
            }
            InodePlace::Linked | InodePlace::Memory => {
                let record = LinkedRecord { nlink: file.nlink, inode: file.inode };
                self.plan.put_linked(tree, ino, &record);
            }
        }
        let (place, named, size) = (file.place, file.nlink > 0, file.inode.size);
        if let Some(bulk) = bulk {
            self.put_or_delete(&place.key(ino, Part::Bulk), (!bulk.is_empty()).then_some(bulk));
        }
        if let Some(xattrs) = xattrs {
            let bytes = (!xattrs.is_empty()).then(|| xattrs.encode());
            self.put_or_delete(&place.key(ino, Part::Xattrs), bytes);
        }
        if named {
            self.plan.count(self.subvol.id.0, 0, size as i64 - before.size as i64);
        }
        Ok(())
    }

    fn whose(&self) -> Whose {
        (self.subvol.id.0, self.ino)
    }

    fn put_or_delete(&mut self, key: &[u8], value: Option<Vec<u8>>) {
        let tree = self.view.tree;
        match value {
            Some(bytes) => self.plan.batch().put(tree, key, &bytes),
            None => self.plan.batch().delete(tree, key),
        }
    }
}
