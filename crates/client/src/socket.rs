//! The owner's socket in the volume directory, wherever that is: a socket's address holds 108
//! bytes only, so it is reached through a descriptor of its directory.

use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// Its name in the volume directory.
pub const SOCKET: &str = "control.sock";

/// Calls `then` with a short path to the socket.
fn with_short_path<T>(volume: &Path, then: impl FnOnce(&Path) -> io::Result<T>) -> io::Result<T> {
    let directory = rustix::fs::open(
        volume,
        OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    let short = PathBuf::from(format!("/proc/self/fd/{}/{SOCKET}", directory.as_raw_fd()));
    then(&short)
}

/// Connects to the owner of a volume; `None` when nobody listens.
pub(crate) fn connect(volume: &Path) -> io::Result<Option<UnixStream>> {
    match with_short_path(volume, |path| UnixStream::connect(path)) {
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

/// Makes the owner's socket, open to every user. The caller holds the owner's lock, so a socket
/// that is there already was left by a dead process.
pub fn bind(volume: &Path) -> io::Result<UnixListener> {
    remove_socket(volume)?;
    with_short_path(volume, |path| {
        let listener = UnixListener::bind(path)?;
        // Connecting needs write permission; who may do what is decided for each request.
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
        Ok(listener)
    })
}

/// Removes the socket's name. The caller holds the owner's lock.
pub fn remove_socket(volume: &Path) -> io::Result<()> {
    match std::fs::remove_file(volume.join(SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Stops listening: a blocked `accept` returns, and waiting connections are refused.
pub fn close_listener(listener: &UnixListener) -> io::Result<()> {
    Ok(rustix::net::shutdown(listener, rustix::net::Shutdown::Both)?)
}
