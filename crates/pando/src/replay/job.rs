//! One call of a trace, as system calls.
//!
//! It measures the system call that replaces the recorded one. It measures the opening of a file or
//! directory that the trace does not show as `open`, apart.

use std::cell::RefCell;
use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use device::Clock;
use format::trace::{Allocating, Call, Ended, Event, Renaming, Seeking, Setting};
use rustix::fs::{
    self, Access, AtFlags, FallocateFlags, FileType, Mode, OFlags, RawDir, RenameFlags, Timespec,
    Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags,
};
use rustix::io::{self, Errno};

use super::pattern;
use super::place::{Dir, Handle, Target, open_at, open_directory, open_file};

/// Longest read or write that is replayed: the kernel sends at most 1 MiB in one.
const IO_BYTES_MAX: u64 = 64 << 20;
/// The buffer of a listing: that of the C library's.
const LISTING_BYTES: usize = 32 << 10;
const SET_ID: u32 = 0o6000;

type Result<T> = std::result::Result<T, Errno>;

/// A call to make. Names of the event are in the targets, and the event's own are empty.
#[derive(Debug)]
pub(super) struct Job {
    /// Its number in the trace, from 1.
    pub(super) number: u64,
    pub(super) event: Event<'static>,
    pub(super) target: Target,
    /// The second name or inode.
    pub(super) second: Option<Target>,
    /// Where the file is kept open.
    pub(super) handle: Option<Arc<Handle>>,
    pub(super) second_handle: Option<Arc<Handle>>,
    /// An extended attribute's name, or the target of a link.
    pub(super) text: Box<[u8]>,
}

/// How a call ended here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ran {
    /// It was made.
    Made(Ended),
    /// It is none that a replay makes.
    LeftOut,
}

/// What making calls needs: one for each thread.
pub(super) struct Maker<'a> {
    pub(super) clock: &'a dyn Clock,
    /// A descriptor of the directory of the replay that can be synced.
    pub(super) root: &'a OwnedFd,
    /// Whether owners, device nodes and set-id bits are replayed.
    pub(super) is_privileged: bool,
    /// Time that the present call took.
    pub(super) took: Duration,
    /// Durations of opens that the trace does not show.
    pub(super) opens: Vec<Duration>,
}

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Maker<'_> {
    /// Makes a call.
    pub(super) fn run(&mut self, job: &Job) -> Ran {
        self.took = Duration::ZERO;
        match self.make(job) {
            Ok(true) => Ran::Made(Ended::Done),
            Ok(false) => Ran::LeftOut,
            Err(errno) => Ran::Made(ended(errno)),
        }
    }

    fn time<T>(&mut self, call: impl FnOnce() -> Result<T>) -> Result<T> {
        let began = self.clock.monotonic();
        let result = call();
        self.took += self.clock.monotonic().saturating_sub(began);
        result
    }

    /// `false`: the call is left out.
    fn make(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        match event.call {
            Call::Lookup | Call::Getattr => self.stat(&job.target)?,
            Call::Setattr => return self.setattr(job),
            Call::Access => self.access(&job.target, event.how)?,
            Call::Readlink => {
                let Target::Name(dir, name) = &job.target else { return Ok(false) };
                let dir = dir.fd()?;
                self.time(|| fs::readlinkat(&*dir, &**name, Vec::new()).map(drop))?;
            }
            Call::Mknod => return self.mknod(job),
            Call::Mkdir | Call::Symlink | Call::Unlink | Call::Rmdir => self.name(job)?,
            Call::Link => self.link(job)?,
            Call::Rename => return self.rename(job),
            Call::Read => return self.read(job),
            Call::Write => return self.write(job),
            Call::Tmpfile => return self.tmpfile(job),
            Call::Seek => {
                let fd = self.file(&job.target, job.handle.as_ref())?;
                let to = match event.how {
                    Seeking::HOLE => fs::SeekFrom::Hole(event.offset),
                    _ => fs::SeekFrom::Data(event.offset),
                };
                self.time(|| fs::seek(&*fd, to).map(drop))?;
            }
            Call::Fallocate => self.fallocate(job)?,
            Call::CopyRange => return self.copy(job),
            Call::Fsync => self.fsync(job)?,
            Call::Sync => {
                let root = self.root;
                self.time(|| fs::syncfs(root))?;
            }
            Call::Readdir | Call::Readdirplus => self.list(job)?,
            Call::Statfs => {
                let root = self.root;
                self.time(|| fs::fstatvfs(root).map(drop))?;
            }
            Call::Getxattr | Call::Listxattr | Call::Setxattr | Call::Removexattr => {
                return self.xattr(job);
            }
            Call::Open => self.open(job)?,
            Call::Release => job.handle.iter().for_each(|handle| handle.close()),
        }
        Ok(true)
    }

    fn stat(&mut self, target: &Target) -> Result<()> {
        match target {
            Target::Root(dir) => {
                let fd = dir.fd()?;
                self.time(|| fs::statat(&*fd, "", AtFlags::EMPTY_PATH).map(drop))
            }
            Target::Name(dir, name) => {
                let dir = dir.fd()?;
                self.time(|| fs::statat(&*dir, &**name, AtFlags::SYMLINK_NOFOLLOW).map(drop))
            }
            Target::Held(handle) => {
                let fd = handle.get().ok_or(Errno::STALE)?;
                self.time(|| fs::fstat(&*fd).map(drop))
            }
        }
    }

    fn access(&mut self, target: &Target, mask: u32) -> Result<()> {
        let Target::Name(dir, name) = target else { return self.stat(target) };
        let dir = dir.fd()?;
        let access = Access::from_bits_truncate(mask & 7);
        self.time(|| fs::accessat(&*dir, &**name, access, AtFlags::SYMLINK_NOFOLLOW))
    }

    /// The permission bits to set: without set-id bits unless they are replayed.
    fn mode(&self, mode: u32) -> Mode {
        let mode = mode & 0o7777;
        Mode::from_bits_truncate(if self.is_privileged { mode } else { mode & !SET_ID })
    }

    fn setattr(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        let has = |bits| event.how & bits != 0;
        let mut made = false;
        if has(Setting::SIZE) {
            let fd = self.file(&job.target, job.handle.as_ref())?;
            self.time(|| fs::ftruncate(&*fd, event.length))?;
            made = true;
        }
        if has(Setting::MODE) {
            let mode = self.mode(event.mode);
            let fd = path_of(&job.target)?;
            if FileType::from_raw_mode(fs::fstat(&*fd)?.st_mode) == FileType::Symlink {
                return Err(Errno::OPNOTSUPP);
            }
            // The descriptor is the inode's, whatever its name points to by now.
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            self.time(|| fs::chmod(&*path, mode))?;
            made = true;
        }
        if has(Setting::UID | Setting::GID) && self.is_privileged {
            let fd = path_of(&job.target)?;
            let uid = has(Setting::UID).then(|| fs::Uid::from_raw(event.new_uid));
            let gid = has(Setting::GID).then(|| fs::Gid::from_raw(event.new_gid));
            self.time(|| fs::chownat(&*fd, "", uid, gid, AtFlags::EMPTY_PATH))?;
            made = true;
        }
        if has(Setting::ATIME | Setting::MTIME) {
            let last_access = time(has(Setting::ATIME), has(Setting::ATIME_NOW), event.atime);
            let last_modification = time(has(Setting::MTIME), has(Setting::MTIME_NOW), event.mtime);
            let times = Timestamps { last_access, last_modification };
            match &job.target {
                Target::Name(dir, name) => {
                    let (dir, flags) = (dir.fd()?, AtFlags::SYMLINK_NOFOLLOW);
                    self.time(|| fs::utimensat(&*dir, &**name, &times, flags))?;
                }
                target => {
                    let fd = path_of(target)?;
                    self.time(|| fs::utimensat(&*fd, "", &times, AtFlags::EMPTY_PATH))?;
                }
            }
            made = true;
        }
        Ok(made)
    }

    fn mknod(&mut self, job: &Job) -> Result<bool> {
        let Target::Name(dir, name) = &job.target else { return Ok(false) };
        let event = &job.event;
        let wanted = if event.ended == Ended::Done { event.found.mode } else { event.mode };
        let (dir, mode) = (dir.fd()?, self.mode(wanted));
        let kind = match event.how {
            0 => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR;
                let fd = self.time(|| open_at(&*dir, name, flags, mode))?;
                keep(job.handle.as_ref(), fd);
                return Ok(true);
            }
            3 => FileType::Fifo,
            4 => FileType::Socket,
            5 if self.is_privileged => FileType::CharacterDevice,
            6 if self.is_privileged => FileType::BlockDevice,
            _ => return Ok(false),
        };
        self.time(|| fs::mknodat(&*dir, &**name, kind, mode, event.device.into()))?;
        Ok(true)
    }

    /// Creates or removes a name.
    fn name(&mut self, job: &Job) -> Result<()> {
        let Target::Name(dir, name) = &job.target else { return Err(Errno::INVAL) };
        let (event, dir_fd) = (&job.event, dir.fd()?);
        match event.call {
            Call::Mkdir => {
                let wanted = if event.ended == Ended::Done { event.found.mode } else { event.mode };
                let mode = self.mode(wanted);
                self.time(|| fs::mkdirat(&*dir_fd, &**name, mode))
            }
            Call::Symlink => self.time(|| fs::symlinkat(&*job.text, &*dir_fd, &**name)),
            Call::Rmdir => self.time(|| fs::unlinkat(&*dir_fd, &**name, AtFlags::REMOVEDIR)),
            _ => {
                hold(dir, name, job.handle.as_ref());
                self.time(|| fs::unlinkat(&*dir_fd, &**name, AtFlags::empty()))
            }
        }
    }

    fn link(&mut self, job: &Job) -> Result<()> {
        let Target::Name(dir, name) = &job.target else { return Err(Errno::INVAL) };
        let dir = dir.fd()?;
        match job.second.as_ref().ok_or(Errno::NOENT)? {
            Target::Root(_) => Err(Errno::PERM),
            Target::Name(from, old) => {
                let from = from.fd()?;
                self.time(|| fs::linkat(&*from, &**old, &*dir, &**name, AtFlags::empty()))
            }
            Target::Held(handle) => {
                let fd = handle.get().ok_or(Errno::STALE)?;
                let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
                let follow = AtFlags::SYMLINK_FOLLOW;
                self.time(|| fs::linkat(fs::CWD, &*path, &*dir, &**name, follow))
            }
        }
    }

    fn rename(&mut self, job: &Job) -> Result<bool> {
        let (Target::Name(from, old), Some(Target::Name(to, new))) = (&job.target, &job.second)
        else {
            return Ok(false);
        };
        let whiteout = matches!(job.event.how, Renaming::WHITEOUT | Renaming::NO_REPLACE_WHITEOUT);
        if whiteout && !self.is_privileged {
            return Ok(false);
        }
        let flags = match job.event.how {
            Renaming::NO_REPLACE => RenameFlags::NOREPLACE,
            Renaming::EXCHANGE => RenameFlags::EXCHANGE,
            Renaming::WHITEOUT => RenameFlags::WHITEOUT,
            Renaming::NO_REPLACE_WHITEOUT => RenameFlags::WHITEOUT | RenameFlags::NOREPLACE,
            _ => RenameFlags::empty(),
        };
        hold(to, new, job.second_handle.as_ref());
        let (from, to) = (from.fd()?, to.fd()?);
        self.time(|| fs::renameat_with(&*from, &**old, &*to, &**new, flags))?;
        Ok(true)
    }

    fn tmpfile(&mut self, job: &Job) -> Result<bool> {
        let dir = match &job.target {
            Target::Root(dir) => dir.fd()?,
            Target::Name(dir, name) => Dir::below(dir, name).fd()?,
            Target::Held(_) => return Err(Errno::NOENT),
        };
        let wanted =
            if job.event.ended == Ended::Done { job.event.found.mode } else { job.event.mode };
        let (flags, mode) = (OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, self.mode(wanted));
        let fd = self.time(|| fs::openat(&*dir, ".", flags, mode))?;
        keep(job.handle.as_ref(), fd);
        Ok(true)
    }

    /// The open file of a target, which it opens if it is not.
    fn file(&mut self, target: &Target, handle: Option<&Arc<Handle>>) -> Result<Arc<OwnedFd>> {
        if let Some(fd) = handle.and_then(|handle| handle.get()) {
            return Ok(fd);
        }
        let fd = match target {
            Target::Root(_) => return Err(Errno::ISDIR),
            Target::Held(handle) => return handle.get().ok_or(Errno::STALE),
            Target::Name(dir, name) => {
                let began = self.clock.monotonic();
                let fd = open_file(dir, name)?;
                self.opens.push(self.clock.monotonic().saturating_sub(began));
                fd
            }
        };
        Ok(match handle {
            Some(handle) => handle.put(fd),
            None => Arc::new(fd),
        })
    }

    fn read(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        if event.length > IO_BYTES_MAX {
            return Ok(false);
        }
        let fd = self.file(&job.target, job.handle.as_ref())?;
        BUFFER.with_borrow_mut(|buffer| {
            let length = event.length as usize;
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            self.time(|| io::pread(&*fd, &mut buffer[..length], event.offset).map(drop))
        })?;
        Ok(true)
    }

    fn write(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        if event.length > IO_BYTES_MAX {
            return Ok(false);
        }
        let fd = self.file(&job.target, job.handle.as_ref())?;
        self.time(|| pattern::write(&fd, event.offset, event.length))?;
        Ok(true)
    }

    fn fallocate(&mut self, job: &Job) -> Result<()> {
        let event = &job.event;
        let flags = match event.how {
            Allocating::KEEP => FallocateFlags::KEEP_SIZE,
            Allocating::PUNCH => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            Allocating::ZERO => FallocateFlags::ZERO_RANGE,
            Allocating::ZERO_KEEP => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
            _ => FallocateFlags::empty(),
        };
        let fd = self.file(&job.target, job.handle.as_ref())?;
        self.time(|| fs::fallocate(&*fd, flags, event.offset, event.length))
    }

    fn copy(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        let Some(second) = &job.second else { return Ok(false) };
        let from = self.file(&job.target, job.handle.as_ref())?;
        let to = self.file(second, job.second_handle.as_ref())?;
        let length = usize::try_from(event.length).map_err(|_| Errno::INVAL)?;
        let (mut at, mut other) = (event.offset, event.other_offset);
        self.time(|| {
            fs::copy_file_range(&*from, Some(&mut at), &*to, Some(&mut other), length).map(drop)
        })?;
        Ok(true)
    }

    fn fsync(&mut self, job: &Job) -> Result<()> {
        let fd = match self.file(&job.target, job.handle.as_ref()) {
            Err(Errno::ISDIR) => Arc::new(open_directory(&job.target)?),
            fd => fd?,
        };
        match job.event.how {
            1 => self.time(|| fs::fdatasync(&*fd)),
            _ => self.time(|| fs::fsync(&*fd)),
        }
    }

    /// Opens as the trace shows it.
    fn open(&mut self, job: &Job) -> Result<()> {
        let began = self.clock.monotonic();
        let fd = match &job.target {
            Target::Root(_) => open_directory(&job.target)?,
            Target::Held(_) => return Ok(()),
            Target::Name(dir, name) => match open_file(dir, name) {
                Err(Errno::ISDIR) => open_directory(&job.target)?,
                opened => opened?,
            },
        };
        self.took += self.clock.monotonic().saturating_sub(began);
        keep(job.handle.as_ref(), fd);
        Ok(())
    }

    /// Lists a buffer's worth of names, from where the last listing of the directory ended.
    fn list(&mut self, job: &Job) -> Result<()> {
        let open = job.handle.as_ref().and_then(|handle| handle.get());
        let fd = if let Some(fd) = open.filter(|_| job.event.offset != 0) {
            fd
        } else {
            let began = self.clock.monotonic();
            let fd = open_directory(&job.target)?;
            self.opens.push(self.clock.monotonic().saturating_sub(began));
            match &job.handle {
                Some(handle) => handle.put(fd),
                None => Arc::new(fd),
            }
        };
        let mut buffer = vec![MaybeUninit::<u8>::uninit(); LISTING_BYTES];
        self.time(|| {
            let mut listing = RawDir::new(&*fd, &mut buffer);
            // One system call: the buffer's entries follow without another one.
            while let Some(entry) = listing.next() {
                entry?;
                if listing.is_buffer_empty() {
                    break;
                }
            }
            Ok(())
        })
    }

    fn xattr(&mut self, job: &Job) -> Result<bool> {
        let event = &job.event;
        let is_change = matches!(event.call, Call::Setxattr | Call::Removexattr);
        if is_change && !job.text.starts_with(b"user.") || event.length > 64 << 10 {
            return Ok(false);
        }
        let name = CString::new(&*job.text).map_err(|_| Errno::INVAL)?;
        // A path of the descriptor of the directory, and one name behind it that is not followed.
        let (fd, path) = match &job.target {
            Target::Root(dir) => {
                let fd = dir.fd()?;
                let path = format!("/proc/self/fd/{}/.", fd.as_raw_fd()).into_bytes();
                (fd, path)
            }
            Target::Name(dir, entry) => {
                let fd = dir.fd()?;
                let above = format!("/proc/self/fd/{}/", fd.as_raw_fd());
                (fd, [above.as_bytes(), entry].concat())
            }
            Target::Held(_) => return Ok(false),
        };
        let mut value = [0_u8; 4096];
        self.time(|| match event.call {
            Call::Getxattr => fs::lgetxattr(&*path, &name, &mut value[..]).map(drop),
            Call::Listxattr => fs::llistxattr(&*path, &mut value[..]).map(drop),
            Call::Removexattr => fs::lremovexattr(&*path, &name),
            _ => {
                let flags = XattrFlags::from_bits_truncate(event.how);
                fs::lsetxattr(&*path, &name, pattern::bytes(event.length), flags)
            }
        })?;
        drop(fd);
        Ok(true)
    }
}

/// Keeps a file open, if calls that follow use it.
fn keep(handle: Option<&Arc<Handle>>, fd: OwnedFd) {
    if let Some(handle) = handle {
        handle.put(fd);
    }
}

/// Opens a file that is used after its name is gone; its name is about to be removed.
fn hold(dir: &Dir, name: &[u8], handle: Option<&Arc<Handle>>) {
    let Some(handle) = handle else { return };
    if !handle.is_held() {
        handle.close();
    } else if handle.get().is_none()
        && let Ok(fd) = open_file(dir, name)
    {
        handle.put(fd);
    }
}

/// A descriptor of the inode itself, for calls that change its attributes.
fn path_of(target: &Target) -> Result<Arc<OwnedFd>> {
    match target {
        Target::Root(dir) => dir.fd(),
        Target::Held(handle) => handle.get().ok_or(Errno::STALE),
        Target::Name(dir, name) => {
            open_at(dir.fd()?.as_fd(), name, OFlags::PATH, Mode::empty()).map(Arc::new)
        }
    }
}

fn time(is_set: bool, is_now: bool, nanos: i64) -> Timespec {
    let special = |tv_nsec| Timespec { tv_sec: 0, tv_nsec };
    match (is_set, is_now) {
        (false, _) => special(UTIME_OMIT),
        (true, true) => special(UTIME_NOW),
        (true, false) => Timespec {
            tv_sec: nanos.div_euclid(1_000_000_000),
            tv_nsec: nanos.rem_euclid(1_000_000_000),
        },
    }
}

/// How an error is recorded.
fn ended(errno: Errno) -> Ended {
    match errno {
        Errno::NOENT => Ended::NotFound,
        Errno::EXIST => Ended::Exists,
        Errno::NOTDIR => Ended::NotDirectory,
        Errno::ISDIR => Ended::IsDirectory,
        Errno::NOTEMPTY => Ended::NotEmpty,
        Errno::ACCESS => Ended::AccessDenied,
        Errno::PERM => Ended::NotPermitted,
        Errno::INVAL => Ended::InvalidArgument,
        Errno::NAMETOOLONG => Ended::NameTooLong,
        Errno::XDEV => Ended::CrossDevice,
        Errno::MLINK => Ended::TooManyLinks,
        Errno::LOOP => Ended::Loop,
        Errno::ROFS => Ended::ReadOnly,
        Errno::FBIG => Ended::FileTooLarge,
        Errno::NOSPC => Ended::NoSpace,
        Errno::DQUOT => Ended::QuotaExceeded,
        Errno::RANGE => Ended::Range,
        Errno::NODATA => Ended::NoData,
        Errno::OPNOTSUPP => Ended::NotSupported,
        Errno::BUSY => Ended::Busy,
        Errno::STALE => Ended::Stale,
        Errno::NXIO => Ended::PastEnd,
        Errno::INTR => Ended::Interrupted,
        Errno::IO => Ended::Failed,
        _ => Ended::Other,
    }
}
