//! The transport over the crate `fuser`: its requests to calls of the adapter, answers back.
//!
//! Every method takes the same three steps: unpack, ask the adapter, reply. Whatever has a
//! decision in it is in the adapter. What the crate cannot do (drop all names at once) is written
//! to the channel directly.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use fs::WalkControl;
use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, PollEvents,
    PollFlags, PollNotifier, RenameFlags, ReplyAttr, ReplyBmap, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry, ReplyIoctl, ReplyLseek, ReplyOpen,
    ReplyPoll, ReplyStatfs, ReplyWrite, ReplyXattr, Request, SessionACL, TimeOrNow, WriteFlags,
};
use inode::{SetAttr, SetTime};

use crate::adapter::{Adapter, Answer, AttrChanges, Listed, Named, Opening, Who};
use crate::attr::{NO_ATTR, file_attr, file_type, set_time, timestamp_from_request};
use crate::errno;
use crate::transport::{Notifier, Session, Transport, Workers};

/// Largest write, and with it the largest read, in one request: 256 pages, the kernel's own bound.
const REQUEST_BYTES_MAX: u32 = 1 << 20;
/// Requests that nobody waits for (read-ahead, late writes) in flight at once.
const BACKGROUND_MAX: u16 = 64;
/// First minor version of the protocol with the notification that drops all names.
const MINOR_WITH_EPOCH: u32 = 44;
/// Its number, and the length of a notification without a body.
const NOTIFY_EPOCH: i32 = 8;
const NOTIFY_HEADER_BYTES: u32 = 16;

/// Features asked for where the kernel has them. Not asked for: the write-back cache (it makes
/// the first `stat` after every close a request), atomic truncation (a truncating open then comes
/// as a change of size, and open itself as nothing), automatic invalidation (we invalidate).
const FEATURES: [InitFlags; 7] = [
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_ASYNC_DIO,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_NO_OPEN_SUPPORT,
];

/// The transport.
pub(crate) struct FuserTransport;

struct FuserSession {
    session: fuser::Session<Bridge>,
    channel: OwnedFd,
    kernel_minor: u32,
}

struct FuserNotifier {
    notifier: fuser::Notifier,
    channel: OwnedFd,
    kernel_minor: u32,
}

struct Bridge {
    adapter: Arc<Adapter>,
    kernel_minor: Arc<std::sync::atomic::AtomicU32>,
}

impl Transport for FuserTransport {
    fn negotiate(
        &self,
        channel: OwnedFd,
        adapter: Arc<Adapter>,
        workers: Workers,
    ) -> io::Result<Box<dyn Session>> {
        let kernel_minor = Arc::new(std::sync::atomic::AtomicU32::new(0));
        let bridge = Bridge { adapter, kernel_minor: Arc::clone(&kernel_minor) };
        let mut config = fuser::Config::default();
        config.n_threads = Some(workers.threads);
        config.clone_fd = workers.clone_channel;
        let spare = channel.try_clone()?;
        // Who may use the mount was told to the kernel when it was made; it is not asked twice.
        let session = fuser::Session::from_fd(bridge, channel, SessionACL::All, config)?;
        let kernel_minor = kernel_minor.load(std::sync::atomic::Ordering::Relaxed);
        Ok(Box::new(FuserSession { session, channel: spare, kernel_minor }))
    }
}

impl Session for FuserSession {
    fn notifier(&self) -> Box<dyn Notifier> {
        let channel = self.channel.try_clone().expect("invariant: descriptors are not exhausted");
        let notifier = self.session.notifier();
        Box::new(FuserNotifier { notifier, channel, kernel_minor: self.kernel_minor })
    }

    fn run(self: Box<Self>) -> io::Result<()> {
        self.session.run()
    }
}

impl Notifier for FuserNotifier {
    fn name(&self, parent: u64, name: &[u8]) -> io::Result<()> {
        self.notifier.inval_entry(INodeNo(parent), OsStr::from_bytes(name))
    }

    fn node(&self, node: u64) -> io::Result<()> {
        self.notifier.inval_inode(INodeNo(node), 0, 0)
    }

    #[expect(clippy::host_endian_bytes, reason = "the kernel's structures are in its own order")]
    fn all_names(&self) -> io::Result<()> {
        // struct fuse_out_header: length, code, and no request that it answers.
        let mut message = [0; NOTIFY_HEADER_BYTES as usize];
        message[0..4].copy_from_slice(&NOTIFY_HEADER_BYTES.to_ne_bytes());
        message[4..8].copy_from_slice(&NOTIFY_EPOCH.to_ne_bytes());
        rustix::io::write(self.channel.as_fd(), &message)?;
        Ok(())
    }

    fn can_drop_all_names(&self) -> bool {
        self.kernel_minor >= MINOR_WITH_EPOCH
    }
}

impl Bridge {
    fn entry(&self, reply: ReplyEntry, answer: Answer<Named>) {
        match answer {
            Ok(named) => {
                let attr = file_attr(named.node, &named.attr);
                let times = self.adapter.times(named.node);
                reply.entry_with_ttls(&times.attr, &times.entry, &attr, Generation(0));
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn attr(&self, reply: ReplyAttr, answer: Answer<Named>) {
        match answer {
            Ok(named) => {
                let kept = &self.adapter.times(named.node).attr;
                reply.attr(kept, &file_attr(named.node, &named.attr));
            }
            Err(error) => reply.error(number(error)),
        }
    }
}

fn number(error: errno::Errno) -> Errno {
    Errno::from_i32(error.0)
}

fn who(request: &Request) -> Who {
    Who { uid: request.uid(), gid: request.gid(), pid: request.pid() }
}

fn empty(reply: ReplyEmpty, answer: Answer<()>) {
    match answer {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(number(error)),
    }
}

fn opened(reply: ReplyOpen, answer: Answer<Opening>) {
    match answer {
        Ok(Opening::NeverAsk) => reply.error(Errno::ENOSYS),
        Ok(Opening::Permitted) => {
            let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
            reply.opened(FileHandle(0), flags);
        }
        Err(error) => reply.error(number(error)),
    }
}

fn sized(reply: ReplyXattr, room: u32, answer: Answer<Vec<u8>>) {
    match answer {
        Ok(bytes) if room == 0 => reply.size(bytes.len() as u32),
        Ok(bytes) => reply.data(&bytes),
        Err(error) => reply.error(number(error)),
    }
}

fn control(full: bool) -> WalkControl {
    if full { WalkControl::Stop } else { WalkControl::Continue }
}

impl Filesystem for Bridge {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        let minor = config.kernel_abi().1;
        self.kernel_minor.store(minor, std::sync::atomic::Ordering::Relaxed);
        for feature in FEATURES {
            if let Err(missing) = config.add_capabilities(feature) {
                tracing::debug!(?missing, "a feature that this kernel does not have");
            }
        }
        // Each setter answers a value out of range with the nearest one in range.
        if let Err(nearest) = config.set_max_write(REQUEST_BYTES_MAX) {
            tracing::debug!(nearest, "largest write");
        }
        if let Err(nearest) = config.set_max_readahead(REQUEST_BYTES_MAX)
            && let Err(nearest) = config.set_max_readahead(nearest)
        {
            tracing::debug!(nearest, "read-ahead");
        }
        if config.set_max_background(BACKGROUND_MAX).is_err() {
            tracing::debug!("background requests stay at the default");
        }
        Ok(())
    }

    fn lookup(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        match self.adapter.lookup(who(req), parent.0, name.as_bytes()) {
            Ok(None) => {
                let negative = &self.adapter.timeouts.negative;
                reply.entry_with_ttls(negative, negative, &NO_ATTR, Generation(0));
            }
            Ok(Some(named)) => self.entry(reply, Ok(named)),
            Err(error) => reply.error(number(error)),
        }
    }

    fn forget(&self, _: &Request, ino: INodeNo, nlookup: u64) {
        self.adapter.forget(ino.0, nlookup);
    }

    fn getattr(&self, req: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.attr(reply, self.adapter.getattr(who(req), ino.0));
    }

    fn setattr(
        &self,
        req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        ctime: Option<SystemTime>,
        fh: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let changes = SetAttr {
            mode: mode.map(|mode| mode & 0o7777),
            uid,
            gid,
            size,
            atime: atime.map(set_time),
            mtime: mtime.map(set_time),
            ctime: ctime.map(|time| SetTime::At(timestamp_from_request(time))),
        };
        let wanted = AttrChanges { changes, through_open_file: fh.is_some() };
        self.attr(reply, self.adapter.setattr(who(req), ino.0, &wanted));
    }

    fn readlink(&self, req: &Request, ino: INodeNo, reply: ReplyData) {
        match self.adapter.readlink(who(req), ino.0) {
            Ok(target) => reply.data(&target),
            Err(error) => reply.error(number(error)),
        }
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name.as_bytes();
        self.entry(reply, self.adapter.mknod(who(req), parent.0, name, mode & !umask, rdev));
    }

    fn mkdir(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        reply: ReplyEntry,
    ) {
        self.entry(reply, self.adapter.mkdir(who(req), parent.0, name.as_bytes(), mode & !umask));
    }

    fn unlink(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.adapter.unlink(who(req), parent.0, name.as_bytes()));
    }

    fn rmdir(&self, req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.adapter.rmdir(who(req), parent.0, name.as_bytes()));
    }

    fn symlink(
        &self,
        req: &Request,
        parent: INodeNo,
        link_name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str().as_bytes();
        self.entry(reply, self.adapter.symlink(who(req), parent.0, link_name.as_bytes(), target));
    }

    fn rename(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let from = (parent.0, name.as_bytes());
        let to = (newparent.0, newname.as_bytes());
        empty(reply, self.adapter.rename(who(req), from, to, flags.bits()));
    }

    fn link(
        &self,
        req: &Request,
        ino: INodeNo,
        newparent: INodeNo,
        newname: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = newname.as_bytes();
        self.entry(reply, self.adapter.link(who(req), ino.0, newparent.0, name));
    }

    fn open(&self, req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        opened(reply, self.adapter.open(who(req), ino.0, flags.0));
    }

    fn opendir(&self, req: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        opened(reply, self.adapter.opendir(who(req), ino.0));
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let exclusive = flags & libc::O_EXCL != 0;
        let mode = mode & !umask;
        match self.adapter.create(who(req), parent.0, name.as_bytes(), mode, exclusive) {
            Ok(named) => {
                let times = &self.adapter.timeouts;
                let kept = times.attr.min(times.entry);
                let flags = FopenFlags::FOPEN_KEEP_CACHE | FopenFlags::FOPEN_NOFLUSH;
                let attr = file_attr(named.node, &named.attr);
                reply.created(&kept, &attr, Generation(0), FileHandle(0), flags);
            }
            Err(error) => reply.error(number(error)),
        }
    }

    fn read(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        self.adapter.read(who(req), ino.0, offset, size, |answer| match answer {
            Ok(bytes) => reply.data(bytes),
            Err(error) => reply.error(number(error)),
        });
    }

    fn write(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let ends_rights = write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID);
        match self.adapter.write(who(req), ino.0, offset, data, ends_rights) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(number(error)),
        }
    }

    /// Writes reach us before write(2) returns, so there is nothing to do at close; the kernel is
    /// told not to ask.
    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        reply.error(Errno::ENOSYS);
    }

    fn fsync(&self, _: &Request, ino: INodeNo, _: FileHandle, datasync: bool, reply: ReplyEmpty) {
        empty(reply, self.adapter.fsync(ino.0, datasync));
    }

    fn fsyncdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _: FileHandle,
        datasync: bool,
        reply: ReplyEmpty,
    ) {
        empty(reply, self.adapter.fsync(ino.0, datasync));
    }

    fn readdir(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let answer = self.adapter.list(who(req), ino.0, offset, false, &mut |entry| {
            let name = OsStr::from_bytes(entry.name);
            control(reply.add(INodeNo(entry.node), entry.offset, file_type(entry.kind), name))
        });
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(error)),
        }
    }

    fn readdirplus(
        &self,
        req: &Request,
        ino: INodeNo,
        _: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let times = self.adapter.times(ino.0);
        let kept = times.attr.min(times.entry);
        let mut take = |entry: &Listed<'_>| {
            let attr = match entry.attr {
                Some(attr) => file_attr(entry.node, attr),
                // `.` and `..`: the kernel takes the number and the kind alone.
                None => fuser::FileAttr {
                    ino: INodeNo(entry.node),
                    kind: file_type(entry.kind),
                    ..NO_ATTR
                },
            };
            let name = OsStr::from_bytes(entry.name);
            let node = INodeNo(entry.node);
            control(reply.add(node, entry.offset, name, &kept, &attr, Generation(0)))
        };
        let answer = self.adapter.list(who(req), ino.0, offset, true, &mut take);
        match answer {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(number(error)),
        }
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        match self.adapter.statfs() {
            Ok(room) => reply.statfs(
                room.blocks,
                room.blocks_free,
                room.blocks_available,
                room.inodes,
                room.inodes_free,
                room.block_bytes,
                room.name_bytes_max,
                room.block_bytes,
            ),
            Err(error) => reply.error(number(error)),
        }
    }

    fn setxattr(
        &self,
        req: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let answer = self.adapter.setxattr(who(req), ino.0, name.as_bytes(), value, flags);
        empty(reply, answer);
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let answer = self.adapter.getxattr(who(req), ino.0, name.as_bytes(), size);
        sized(reply, size, answer);
    }

    fn listxattr(&self, req: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        sized(reply, size, self.adapter.listxattr(who(req), ino.0, size));
    }

    fn removexattr(&self, req: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        empty(reply, self.adapter.removexattr(who(req), ino.0, name.as_bytes()));
    }

    fn access(&self, req: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        empty(reply, self.adapter.access(who(req), ino.0, mask.bits() as u32));
    }

    // Not offered yet. The kernel asks once for each and then does without: it seeks over holes
    // as data, allocates by refusing, and copies by reading and writing.

    fn lseek(&self, _: &Request, _: INodeNo, _: FileHandle, _: i64, _: i32, reply: ReplyLseek) {
        reply.error(Errno::ENOSYS);
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: i32,
        reply: ReplyEmpty,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: INodeNo,
        _: FileHandle,
        _: u64,
        _: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn poll(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: PollNotifier,
        _: PollEvents,
        _: PollFlags,
        reply: ReplyPoll,
    ) {
        reply.error(Errno::ENOSYS);
    }

    fn bmap(&self, _: &Request, _: INodeNo, _: u32, _: u64, reply: ReplyBmap) {
        reply.error(Errno::ENOSYS);
    }
}
