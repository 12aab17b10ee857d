//! Makes drafts: the same steps as `posix::mknod` and `posix::mkdir`, in the same order.

use format::directory_record::DirectoryRecord;
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::{EXECUTE, WRITE};
use inode::{FsError, Kind};
use vfs::{FsResult, NewNode};
use volume::view::{NAMES_OF_A_HASH, View};
use volume::{attributes, permit};

use super::draft::{Dir, DirId, Draft, File, FileId};
use super::state::{BASES_MAX, Bulk, Drafted, Maker, Refusal};
use crate::execute::Context;
use crate::posix::{symlink, whiteout};

/// Bytes of memory of a draft, without its name and what is beside it.
const DRAFT_BYTES: usize = 320;

/// Bytes of memory of attributes that were inherited.
fn memory_of(xattrs: &XattrRecord) -> usize {
    if xattrs.is_empty() { 0 } else { xattrs.encode().len() }
}

impl Bulk {
    /// A directory of the volume, in which drafts are to be made.
    pub fn base(&mut self, maker: &Maker<'_>, ino: u64) -> Drafted<DirId> {
        let known = self.chunk.bases.get(&ino).copied();
        if known.is_none() && self.chunk.bases.len() >= BASES_MAX {
            return Err(Refusal::Flush);
        }
        maker.fs.may_change()?;
        self.subvol.check_changes()?;
        let (record, xattrs) = self.subvol.read(|tree| {
            let view = View::new(&*maker.fs.store, tree);
            let record = view.directory(ino)?.filter(|record| !record.detached);
            let record = record.ok_or(FsError::NotFound)?;
            let xattrs = if record.has_xattrs {
                view.xattrs(&key::directory(ino, Part::Xattrs))?
            } else {
                XattrRecord::default()
            };
            Ok((record, xattrs))
        })?;
        if let Some(known) = known {
            // It may have changed. Drafts in it are charged as it was; a flush looks at that.
            let dir = self.chunk.dir_mut(DirId(known));
            let charge = if dir.children.is_empty() { record.charge } else { dir.record.charge };
            dir.record = DirectoryRecord { charge, ..record };
            dir.xattrs = xattrs;
            return Ok(DirId(known));
        }
        let own = self.chunk.dirs.len() as u32;
        self.chunk.dirs.push(Dir::new((ino, record, xattrs), b"", (own, own)));
        self.chunk.bases.insert(ino, own);
        Ok(DirId(own))
    }

    /// Makes what is neither a directory nor a symbolic link.
    pub fn make(
        &mut self,
        maker: &Maker<'_>,
        dir: DirId,
        name: &[u8],
        new: &NewNode,
    ) -> Drafted<FileId> {
        match new.kind {
            Kind::Directory | Kind::Symlink => {
                let what = "mknod does not create directories or links";
                return Err(FsError::InvalidArgument(what).into());
            }
            Kind::CharDevice | Kind::BlockDevice
                if !maker.caller.is_root() && !whiteout::is_one(new) =>
            {
                return Err(FsError::RootOnly("only root makes devices").into());
            }
            _ => {}
        }
        self.make_file(maker, dir, name, (new, None))
    }

    /// Makes a symbolic link.
    pub fn symlink(
        &mut self,
        maker: &Maker<'_>,
        dir: DirId,
        name: &[u8],
        target: &[u8],
    ) -> Drafted<FileId> {
        symlink::check_target(target)?;
        let new = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0 };
        self.make_file(maker, dir, name, (&new, Some(target)))
    }

    fn make_file(
        &mut self,
        maker: &Maker<'_>,
        dir: DirId,
        name: &[u8],
        (new, target): (&NewNode, Option<&[u8]>),
    ) -> Drafted<FileId> {
        let hash = self.vacant(maker, dir, name)?;
        let ino = self.number(maker.fs)?;
        let kind = attributes::file_kind(new.kind);
        let above = self.chunk.dir(dir);
        let inherited =
            permit::inherit_list(maker.caller, &above.record, (new.mode, kind), || {
                above.default_list()
            })?;
        let record = above.record;
        let now = self.now(maker);
        let mut inode = InodeRecord {
            mode: inherited.mode,
            uid: maker.caller.uid,
            gid: inherited.gid,
            rdev: if kind.is_device() { new.rdev } else { 0 },
            size: target.map_or(0, |target| target.len() as u64),
            ..attributes::fresh_inode(kind, now)
        };
        let share = ((inode.uid, inode.gid), inode.charged_bytes());
        let (subvol, charging) = (self.subvol.id.0, (maker.fs, maker.caller));
        if maker.charges(record.charge) {
            inode.charge = self
                .chunk
                .charge(charging, |plan| maker.policy.creates(plan, subvol, &record, share))?;
        }
        let file = FileId(self.chunk.files.len() as u32);
        self.chunk.files.push(File {
            ino,
            dir: dir.0,
            inode,
            name: name.into(),
            cookie: 0,
            bulk: target.map_or_else(Vec::new, <[u8]>::to_vec),
            xattrs: inherited.xattrs.map(Box::new),
            extents: Vec::new(),
            keep: false,
        });
        self.made((ino, Draft::File(file)), (dir, name, hash));
        let lists = self.chunk.file(file).xattrs.as_deref().map_or(0, memory_of);
        self.weigh(dir, target.map_or(0, <[u8]>::len) + lists);
        Ok(file)
    }

    /// Makes a directory.
    pub fn mkdir(
        &mut self,
        maker: &Maker<'_>,
        dir: DirId,
        name: &[u8],
        mode: u32,
    ) -> Drafted<DirId> {
        let hash = self.vacant(maker, dir, name)?;
        let ino = self.number(maker.fs)?;
        let (above, kind) = (self.chunk.dir(dir), FileKind::Directory);
        let wanted = (mode & 0o1777, kind);
        let inherited =
            permit::inherit_list(maker.caller, &above.record, wanted, || above.default_list())?;
        let (base, above_ino, above) = (above.base, above.ino, above.record);
        let now = self.now(maker);
        let share = ((maker.caller.uid, inherited.gid), 0);
        let (subvol, charging) = (self.subvol.id.0, (maker.fs, maker.caller));
        let charge = self
            .chunk
            .charge(charging, |plan| maker.policy.creates(plan, subvol, &above, share))?;
        let record = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            mtime: now,
            ctime: now,
            atime: now,
            btime: now,
            parent: above_ino,
            parent_cookie: 0,
            mode: inherited.mode,
            uid: maker.caller.uid,
            gid: inherited.gid,
            has_xattrs: false,
            detached: false,
            elsewhere: None,
            charge,
        };
        let made = DirId(self.chunk.dirs.len() as u32);
        let xattrs = inherited.xattrs.unwrap_or_default();
        let lists = memory_of(&xattrs);
        let draft = Dir::new((ino, record, xattrs), name, (dir.0, base));
        self.chunk.dirs.push(draft);
        self.made((ino, Draft::Directory(made)), (dir, name, hash));
        self.chunk.dir_mut(dir).record.subdirectories += 1;
        self.weigh(dir, DRAFT_BYTES + lists);
        Ok(made)
    }

    /// Checks that a name may be created; returns its hash.
    fn vacant(&mut self, maker: &Maker<'_>, dir: DirId, name: &[u8]) -> Drafted<u64> {
        let name = maker.fs.new_name(name)?.as_bytes();
        let hash = maker.fs.hash.hash(name);
        let at = self.chunk.dir(dir);
        let is_base = at.is_base(dir.0);
        let base = self.chunk.dir(DirId(at.base)).ino;
        let context = Context::new(maker.fs, maker.policy, &self.subvol, self.subvol.tree());
        // A new directory has no trash of its own: of it, only the base above matters.
        maker.policy.makes_name(&context, base, if is_base { name } else { b"" })?;
        at.check(maker.caller, EXECUTE)?;
        if self.chunk.named(dir, hash, name).is_some() || is_base && self.chunk.has_hash(dir, hash)
        {
            return Err(Refusal::Flush);
        }
        if is_base && self.is_stored(maker, base, name)? {
            return Err(Refusal::Stored);
        }
        at.check(maker.caller, WRITE)?;
        if self.chunk.is_crowded(dir, hash) {
            return Err(NAMES_OF_A_HASH.into());
        }
        Ok(hash)
    }

    /// Whether a base has a name.
    fn is_stored(&self, maker: &Maker<'_>, base: u64, name: &[u8]) -> FsResult<bool> {
        let hash = maker.fs.hash.hash(name);
        self.subvol.read(|tree| {
            let view = View::new(&*maker.fs.store, tree);
            Ok(view.find_entry(base, hash, name)?.is_some())
        })
    }

    /// The time of the next step, which the plan has.
    pub(super) fn now(&mut self, maker: &Maker<'_>) -> i64 {
        if self.is_empty() {
            self.chunk.owners = maker.policy.charges_owners();
        }
        self.chunk.plan.set_time(maker.fs.env.clock.now());
        self.chunk.plan.on_behalf(maker.caller);
        self.chunk.plan.now
    }

    fn made(&mut self, (ino, draft): (u64, Draft), (dir, name, hash): (DirId, &[u8], u64)) {
        self.numbered(ino);
        self.chunk.add_child(dir, hash, draft);
        let now = self.chunk.plan.now;
        let above = self.chunk.dir_mut(dir);
        above.record.entries += 1;
        (above.record.mtime, above.record.ctime) = (now, now);
        self.weigh(dir, DRAFT_BYTES + name.len());
    }

    /// Counts bytes of memory for what is in a directory.
    pub(super) fn weigh(&mut self, dir: DirId, bytes: usize) {
        self.chunk.weight += bytes;
        if self.chunk.dir(dir).is_base(dir.0) {
            self.chunk.in_bases += bytes;
        }
    }
}
