//! The daemon's socket in the volume directory, at any path length. A socket address holds only 108
//! bytes, so clients address the socket through a descriptor of its directory.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use device::sync::Mutex;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Its name in the volume directory.
pub const SOCKET: &str = "control.sock";

/// A short path to the socket in a directory.
fn short_path(directory: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()))
}

/// Connects to the daemon of a volume; `None` when no process listens. A daemon that accepts no
/// connection for `patience` is a time-out.
pub(crate) fn connect(volume: &Path, patience: Duration) -> io::Result<Option<UnixStream>> {
    let directory = open_directory(volume)?;
    // A link that the directory's owner placed there would point to the daemon of another volume,
    // which would execute requests meant for this one.
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let socket = match rustix::fs::openat(&directory, SOCKET, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened?,
    };
    let found = rustix::fs::fstat(&socket)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::Socket || found.st_nlink != 1 {
        // The daemon recreates its socket.
        return Ok(None);
    }
    match connect_within(&format!("/proc/self/fd/{}", socket.as_raw_fd()), patience) {
        Ok(stream) => Ok(Some(stream)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
            ) && volume.is_dir() =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// `UnixStream::connect` that ends: a full queue of a process that accepts nothing keeps the other
/// waiting for ever.
fn connect_within(path: &str, patience: Duration) -> io::Result<UnixStream> {
    let address = SocketAddrUnix::new(path)?;
    let socket =
        net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    net::sockopt::set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    net::connect(&socket, &address)?;
    net::sockopt::set_socket_timeout(&socket, Timeout::Send, None)?;
    Ok(socket.into())
}

/// Opens the directory of a volume, whose path is free of symbolic links. A link created since the
/// path was resolved is not followed, because it may point to another volume.
fn open_directory(volume: &Path) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let how = ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(rustix::fs::CWD, volume, flags, Mode::empty(), how) {
        // System call filters in old containers do not know it.
        Err(Errno::NOSYS | Errno::PERM) => rustix::fs::open(volume, flags, Mode::empty()),
        opened => opened,
    }
}

/// The socket that a daemon listens on. The directory is held open: its path may now name another
/// volume, with its own daemon and socket.
#[derive(Debug)]
pub struct Listening {
    directory: OwnedFd,
    /// Open for the lifetime of this value, so that no other socket gets its inode number.
    listener: UnixListener,
    /// Device and inode number of the created socket.
    made: (u64, u64),
}

impl Listening {
    /// Creates the daemon's socket, accessible to every user. The caller holds the volume's lock,
    /// so an existing socket was left by a dead process.
    pub fn bind(directory: BorrowedFd<'_>) -> io::Result<Listening> {
        unlink(directory)?;
        Listening::make(directory.try_clone_to_owned()?)
    }

    fn make(directory: OwnedFd) -> io::Result<Listening> {
        let listener = bind_open_to_all(&short_path(directory.as_fd()))?;
        match there(directory.as_fd())? {
            Some(made) => Ok(Listening { directory, listener, made }),
            None => Err(Errno::NOENT.into()),
        }
    }

    /// Waits for a connection.
    pub fn accept(&self) -> io::Result<UnixStream> {
        device::with_a_descriptor(|| self.listener.accept()).map(|(stream, _)| stream)
    }

    /// The directory of the volume.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Recreates the socket if it was removed or replaced: clients no longer find this one. `None`:
    /// it exists. The caller holds the volume's lock, so no other daemon listens there.
    pub fn restored(&self) -> io::Result<Option<Listening>> {
        match there(self.directory.as_fd())? {
            Some(found) if found == self.made => Ok(None),
            _ => Listening::bind(self.directory.as_fd()).map(Some),
        }
    }

    /// Removes the name of this socket. A socket that another daemon created there, because it
    /// considered this one dead or gone, stays.
    pub fn remove(&self) -> io::Result<()> {
        match there(self.directory.as_fd())? {
            Some(found) if found == self.made => unlink(self.directory.as_fd()),
            _ => Ok(()),
        }
    }

    /// Stops listening: a blocked `accept` returns, and waiting connections are refused.
    pub fn close(&self) -> io::Result<()> {
        Ok(net::shutdown(&self.listener, net::Shutdown::Both)?)
    }
}

/// Creates a socket to which every user may connect, which takes write permission on it; each
/// request is authorized separately.
///
/// The socket has its mode from its creation. A later chmod by name would change, as the superuser,
/// whatever the directory's owner placed there meanwhile.
fn bind_open_to_all(path: &Path) -> io::Result<UnixListener> {
    /// The umask is per process. Nothing relies on it: files are created with their modes.
    static MASK: Mutex<()> = Mutex::new(());
    let _alone = MASK.lock();
    let before = rustix::process::umask(Mode::empty());
    let bound = UnixListener::bind(path);
    rustix::process::umask(before);
    bound
}

/// Device and inode number of the file that has the socket's name.
fn there(directory: BorrowedFd<'_>) -> io::Result<Option<(u64, u64)>> {
    match rustix::fs::statat(directory, SOCKET, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some((found.st_dev, found.st_ino))),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn unlink(directory: BorrowedFd<'_>) -> io::Result<()> {
    match rustix::fs::unlinkat(directory, SOCKET, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
