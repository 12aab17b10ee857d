//! Directories and files of a replay, below one directory and never outside of it.
//!
//! Invariants: the directory that the user named is opened once. Everything else is opened from
//! there, one name at a time, without following symbolic links and without entering other mounts.
//! Names come from a trace, which may be hostile: what is not a name of an entry is refused before
//! any call. Nothing but a regular file or a directory is ever opened for reading or writing.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, statat};
use rustix::io::Errno;

/// Longest way from the directory of the replay: a made-up trace may put a directory below itself.
const DEPTH_MAX: usize = 1024;

type Fd = Arc<OwnedFd>;
type Result<T> = std::result::Result<T, Errno>;

/// Opens one name in a directory, by the invariants of this file.
pub(super) fn open_at(dir: impl AsFd, name: &[u8], flags: OFlags, mode: Mode) -> Result<OwnedFd> {
    if !trace::is_entry(name) {
        return Err(Errno::INVAL);
    }
    let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    // With O_PATH the kernel takes few other flags.
    let flags = if flags.contains(OFlags::PATH) {
        flags & (OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC)
    } else {
        flags
    };
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    match openat2(&dir, name, flags, mode, resolve) {
        // Before Linux 5.6. One name that is no link cannot leave the directory either.
        Err(Errno::NOSYS) => openat(&dir, name, flags, mode),
        opened => opened,
    }
}

/// How many directories and files are open.
#[derive(Debug, Default)]
pub(super) struct Opened(AtomicUsize);

impl Opened {
    pub(super) fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A name in a directory.
type At = (Arc<Dir>, Box<[u8]>);

/// A directory of the trace.
#[derive(Debug)]
pub(super) struct Dir {
    /// The directory above and the name in it; `None` for the directory of the replay.
    place: Mutex<Option<At>>,
    fd: Mutex<Option<Fd>>,
    opened: Arc<Opened>,
}

impl Dir {
    /// The directory of the replay.
    pub(super) fn root(fd: OwnedFd, opened: &Arc<Opened>) -> Arc<Dir> {
        let (place, fd) = (Mutex::new(None), Mutex::new(Some(Arc::new(fd))));
        Arc::new(Dir { place, fd, opened: Arc::clone(opened) })
    }

    /// A directory below another one.
    pub(super) fn below(parent: &Arc<Dir>, name: &[u8]) -> Arc<Dir> {
        let place = Mutex::new(Some((Arc::clone(parent), name.into())));
        Arc::new(Dir { place, fd: Mutex::new(None), opened: Arc::clone(&parent.opened) })
    }

    /// It was renamed. No call uses it at this time.
    pub(super) fn moved(&self, parent: &Arc<Dir>, name: &[u8]) {
        let mut place = self.place.lock();
        if place.is_some() {
            *place = Some((Arc::clone(parent), name.into()));
        }
    }

    /// A descriptor that other calls start from.
    pub(super) fn fd(&self) -> Result<Fd> {
        self.fd_within(DEPTH_MAX)
    }

    fn fd_within(&self, depth: usize) -> Result<Fd> {
        if let Some(fd) = &*self.fd.lock() {
            return Ok(Arc::clone(fd));
        }
        let depth = depth.checked_sub(1).ok_or(Errno::LOOP)?;
        let place = self.place.lock().clone();
        let (parent, name) = place.ok_or(Errno::BADF)?;
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let fd = open_at(&*parent.fd_within(depth)?, &name, flags, Mode::empty())?;
        let fd = Arc::new(fd);
        if self.fd.lock().replace(Arc::clone(&fd)).is_none() {
            self.opened.0.fetch_add(1, Ordering::Relaxed);
        }
        Ok(fd)
    }

    /// Closes the descriptor; the next use opens it again.
    pub(super) fn close(&self) {
        if self.place.lock().is_some() && self.fd.lock().take().is_some() {
            self.opened.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Where an inode of the trace is.
#[derive(Debug, Clone)]
pub(super) enum Target {
    /// The directory of the replay itself.
    Root(Arc<Dir>),
    /// A name.
    Name(Arc<Dir>, Box<[u8]>),
    /// It has no name any more, and is open.
    Held(Arc<Handle>),
}

/// An open file, or a directory that is being listed.
#[derive(Debug)]
pub(super) struct Handle {
    fd: Mutex<Option<Fd>>,
    /// Whether it must stay open: nothing opens it again.
    is_held: bool,
    opened: Arc<Opened>,
}

impl Handle {
    pub(super) fn new(is_held: bool, opened: &Arc<Opened>) -> Arc<Handle> {
        Arc::new(Handle { fd: Mutex::new(None), is_held, opened: Arc::clone(opened) })
    }

    /// The descriptor, if it is open.
    pub(super) fn get(&self) -> Option<Fd> {
        self.fd.lock().clone()
    }

    /// Keeps a descriptor.
    pub(super) fn put(&self, fd: OwnedFd) -> Fd {
        let fd = Arc::new(fd);
        if self.fd.lock().replace(Arc::clone(&fd)).is_none() {
            self.opened.0.fetch_add(1, Ordering::Relaxed);
        }
        fd
    }

    /// Closes it, unless it must stay open.
    pub(super) fn close(&self) {
        if !self.is_held && self.fd.lock().take().is_some() {
            self.opened.0.fetch_sub(1, Ordering::Relaxed);
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.is_held
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.fd.lock().take().is_some() {
            self.opened.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if self.place.lock().is_some() && self.fd.lock().take().is_some() {
            self.opened.0.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Opens a regular file for reading and writing, or for what its permissions allow.
pub(super) fn open_file(dir: &Dir, name: &[u8]) -> Result<OwnedFd> {
    let dir = dir.fd()?;
    let refused = |kind| match kind {
        FileType::RegularFile => None,
        FileType::Directory => Some(Errno::ISDIR),
        FileType::Symlink => Some(Errno::LOOP),
        _ => Some(Errno::OPNOTSUPP),
    };
    // Before it is opened: opening a device does something.
    let found = statat(&*dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
    if let Some(errno) = refused(FileType::from_raw_mode(found.st_mode)) {
        return Err(errno);
    }
    let open = |flags| open_at(&*dir, name, flags, Mode::empty());
    let opened = match open(OFlags::RDWR) {
        Err(Errno::ACCESS | Errno::ROFS | Errno::PERM | Errno::TXTBSY) => {
            match open(OFlags::RDONLY) {
                Err(Errno::ACCESS) => open(OFlags::WRONLY),
                opened => opened,
            }
        }
        opened => opened,
    }?;
    match refused(FileType::from_raw_mode(fstat(&opened)?.st_mode)) {
        Some(errno) => Err(errno),
        None => Ok(opened),
    }
}

/// Opens a directory for listing or syncing.
pub(super) fn open_directory(target: &Target) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match target {
        Target::Root(dir) => openat(&*dir.fd()?, ".", flags, Mode::empty()),
        Target::Name(dir, name) => open_at(&*dir.fd()?, name, flags, Mode::empty()),
        Target::Held(_) => Err(Errno::NOENT),
    }
}
