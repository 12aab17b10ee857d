//! A file system in memory, directly on the FUSE crate: what the kernel and that crate cost when
//! the file system costs nothing. It has the settings of our mount, checks nothing, makes nothing
//! durable and forgets everything.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::sync::RwLock;
use device::{Clock, Map, SystemClock};
use fuser::{
    BsdFileFlags, Config, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, KernelConfig, LockOwner, MountOption, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyOpen,
    ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};

const SHARDS: u64 = 64;
const GENERATION: Generation = Generation(0);

/// How it is mounted; the same things that our mount lets one choose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Threads that serve.
    pub threads: usize,
    /// A channel for each thread.
    pub clone_fd: bool,
    /// How long the kernel keeps names and attributes.
    pub timeout: Duration,
}

/// The file system.
pub struct Memory {
    shards: Vec<RwLock<Map<u64, Node>>>,
    next: AtomicU64,
    clock: SystemClock,
    timeout: Duration,
}

struct Node {
    attr: FileAttr,
    /// A file's contents.
    bytes: Vec<u8>,
    /// A directory's entries in the order of their making; a removed one leaves a gap, so that
    /// positions stay.
    entries: Vec<Option<(Box<[u8]>, u64)>>,
    index: Map<Box<[u8]>, usize>,
}

/// Mounts it and serves until it is unmounted.
pub fn mount(mount_point: &Path, settings: &Settings) -> io::Result<()> {
    let mut config = Config::default();
    config.n_threads = Some(settings.threads);
    config.clone_fd = settings.clone_fd;
    config.acl = SessionACL::All;
    config.mount_options = vec![
        MountOption::FSName("memfs".to_owned()),
        MountOption::Subtype("memfs".to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoAtime,
    ];
    fuser::mount(Memory::new(settings.timeout), mount_point, &config)
}

impl Memory {
    fn new(timeout: Duration) -> Memory {
        let memory = Memory {
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            next: AtomicU64::new(2),
            clock: SystemClock::new(),
            timeout,
        };
        let root = memory.fresh(1, FileType::Directory, 0o755, (0, 0));
        memory.shard(1).write().insert(1, root);
        memory
    }

    fn shard(&self, ino: u64) -> &RwLock<Map<u64, Node>> {
        &self.shards[(ino % SHARDS) as usize]
    }

    fn fresh(&self, ino: u64, kind: FileType, mode: u32, owner: (u32, u32)) -> Node {
        let now = self.now();
        let attr = FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            crtime: now,
            kind,
            perm: (mode & 0o7777) as u16,
            nlink: if kind == FileType::Directory { 2 } else { 1 },
            uid: owner.0,
            gid: owner.1,
            rdev: 0,
            blksize: 4096,
            flags: 0,
        };
        Node { attr, bytes: Vec::new(), entries: Vec::new(), index: Map::default() }
    }

    fn now(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(self.clock.now().0.unsigned_abs())
    }

    fn make(
        &self,
        req: &Request,
        parent: u64,
        name: &OsStr,
        kind: FileType,
        mode: u32,
    ) -> Result<FileAttr, Errno> {
        let ino = self.next.fetch_add(1, Ordering::Relaxed);
        let node = self.fresh(ino, kind, mode, (req.uid(), req.gid()));
        let attr = node.attr;
        self.shard(ino).write().insert(ino, node);
        let mut shard = self.shard(parent).write();
        let directory = shard.get_mut(&parent).ok_or(Errno::ENOENT)?;
        directory.add(name.as_bytes(), ino)?;
        directory.attr.mtime = attr.mtime;
        directory.attr.ctime = attr.mtime;
        Ok(attr)
    }

    fn child(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let shard = self.shard(parent).read();
        let directory = shard.get(&parent)?;
        let at = *directory.index.get(name.as_bytes())?;
        directory.entries.get(at)?.as_ref().map(|entry| entry.1)
    }

    fn attr(&self, ino: u64) -> Option<FileAttr> {
        self.shard(ino).read().get(&ino).map(|node| node.attr)
    }

    fn take(&self, parent: u64, name: &OsStr) -> Option<u64> {
        let now = self.now();
        let mut shard = self.shard(parent).write();
        let directory = shard.get_mut(&parent)?;
        let at = directory.index.remove(name.as_bytes())?;
        directory.attr.mtime = now;
        directory.attr.ctime = now;
        directory.entries[at].take().map(|entry| entry.1)
    }
}

impl Node {
    fn add(&mut self, name: &[u8], ino: u64) -> Result<(), Errno> {
        if self.index.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        self.index.insert(name.into(), self.entries.len());
        self.entries.push(Some((name.into(), ino)));
        Ok(())
    }
}

impl Filesystem for Memory {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let features = [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_CACHE_SYMLINKS,
            InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            InitFlags::FUSE_NO_OPEN_SUPPORT,
        ];
        for feature in features {
            config.add_capabilities(feature).ok();
        }
        config.set_max_write(1 << 20).ok();
        config.set_max_background(64).ok();
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.child(parent.0, name).and_then(|ino| self.attr(ino));
        match found {
            Some(attr) => reply.entry(&self.timeout, &attr, GENERATION),
            None if self.timeout.is_zero() => reply.error(Errno::ENOENT),
            None => {
                let attr = self.fresh(0, FileType::RegularFile, 0, (0, 0)).attr;
                reply.entry(&self.timeout, &attr, GENERATION);
            }
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        match self.attr(ino.0) {
            Some(attr) => reply.attr(&self.timeout, &attr),
            None => reply.error(Errno::ENOENT),
        }
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let mut shard = self.shard(ino.0).write();
        let Some(node) = shard.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        node.attr.perm = mode.map_or(node.attr.perm, |mode| (mode & 0o7777) as u16);
        node.attr.uid = uid.unwrap_or(node.attr.uid);
        node.attr.gid = gid.unwrap_or(node.attr.gid);
        if let Some(size) = size {
            node.bytes.resize(size as usize, 0);
            node.attr.size = size;
        }
        let attr = node.attr;
        drop(shard);
        reply.attr(&self.timeout, &attr);
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        reply: ReplyEntry,
    ) {
        match self.make(req, parent.0, name, FileType::Directory, mode) {
            Ok(attr) => reply.entry(&self.timeout, &attr, GENERATION),
            Err(error) => reply.error(error),
        }
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _: u32,
        _: i32,
        reply: ReplyCreate,
    ) {
        match self.make(req, parent.0, name, FileType::RegularFile, mode) {
            Ok(attr) => {
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                reply.created(&self.timeout, &attr, GENERATION, FileHandle(0), flags);
            }
            Err(error) => reply.error(error),
        }
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        match self.take(parent.0, name) {
            Some(ino) => {
                self.shard(ino).write().remove(&ino);
                reply.ok();
            }
            None => reply.error(Errno::ENOENT),
        }
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let child = self.child(parent.0, name);
        let full = child.is_some_and(|ino| {
            self.shard(ino).read().get(&ino).is_some_and(|node| !node.index.is_empty())
        });
        if full {
            reply.error(Errno::ENOTEMPTY);
        } else {
            self.unlink(req, parent, name, reply);
        }
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        _: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let Some(ino) = self.take(parent.0, name) else { return reply.error(Errno::ENOENT) };
        if let Some(old) = self.take(newparent.0, newname) {
            self.shard(old).write().remove(&old);
        }
        let mut shard = self.shard(newparent.0).write();
        let added = shard.get_mut(&newparent.0).map(|node| node.add(newname.as_bytes(), ino));
        drop(shard);
        match added {
            Some(Ok(())) => reply.ok(),
            _ => reply.error(Errno::ENOENT),
        }
    }

    fn open(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn opendir(&self, _: &Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        reply.error(Errno::ENOSYS);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let shard = self.shard(ino.0).read();
        let Some(node) = shard.get(&ino.0) else { return reply.error(Errno::ENOENT) };
        let from = (offset as usize).min(node.bytes.len());
        let to = (from + size as usize).min(node.bytes.len());
        reply.data(&node.bytes[from..to]);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let now = self.now();
        let mut shard = self.shard(ino.0).write();
        let Some(node) = shard.get_mut(&ino.0) else { return reply.error(Errno::ENOENT) };
        let (from, to) = (offset as usize, offset as usize + data.len());
        if node.bytes.len() < to {
            node.bytes.resize(to, 0);
        }
        node.bytes[from..to].copy_from_slice(data);
        node.attr.size = node.bytes.len() as u64;
        node.attr.blocks = node.attr.size.div_ceil(512);
        node.attr.mtime = now;
        node.attr.ctime = now;
        drop(shard);
        reply.written(data.len() as u32);
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn readdirplus(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let Some(own) = self.attr(ino.0) else { return reply.error(Errno::ENOENT) };
        let dots = [(0, "."), (1, "..")];
        for (position, name) in dots {
            if offset <= position
                && reply.add(ino, position + 1, name, &self.timeout, &own, GENERATION)
            {
                return reply.ok();
            }
        }
        let first = (offset.max(2) - 2) as usize;
        let shard = self.shard(ino.0).read();
        let entries = shard.get(&ino.0).map_or(&[][..], |node| &node.entries[first..]);
        for (position, entry) in entries.iter().enumerate() {
            let Some((name, child)) = entry else { continue };
            // A child in the same shard is read under the lock that is held.
            let attr = if child % SHARDS == ino.0 % SHARDS {
                shard.get(child).map(|node| node.attr)
            } else {
                self.attr(*child)
            };
            let Some(attr) = attr else { continue };
            let next = (first + position) as u64 + 3;
            let name = OsStr::from_bytes(name);
            if reply.add(attr.ino, next, name, &self.timeout, &attr, GENERATION) {
                break;
            }
        }
        drop(shard);
        reply.ok();
    }

    fn getxattr(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, reply: ReplyXattr) {
        reply.error(Errno::ENODATA);
    }
}
