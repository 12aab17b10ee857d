//! Credentials of the peer of a Unix socket, from the kernel: process, user, group and
//! supplementary groups at the time of `connect`. Nothing that the peer sends is trusted.
#![expect(
    unsafe_code,
    reason = "SO_PEERCRED, SO_PEERGROUPS and SO_PEERPIDFD have no safe wrapper for our needs"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// Maximum supplementary groups that the kernel allows a process (`NGROUPS_MAX`).
const GROUPS_MAX: usize = 65_536;

/// Credentials of the other end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its process id, 0 when it is in another pid namespace.
    pub pid: i32,
    /// Effective user.
    pub uid: u32,
    /// Effective group.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Returns the kernel's credentials of the peer of a connected Unix socket.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, so it is open; the buffer is a live `ucred` and
    // `length` is its size.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut credentials).cast(),
            &raw mut length,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    let groups = groups(socket)?;
    Ok(Peer { pid: credentials.pid, uid: credentials.uid, gid: credentials.gid, groups })
}

/// A descriptor of the peer's process, which no other process gets when the number is used again.
/// The error: the process is gone, or out of sight.
///
/// A kernel before 6.5 has no descriptor with the socket. Then the process with the peer's number
/// is opened, if it belongs to the peer's user. A number that was assigned again meanwhile is at
/// worst another process of that user.
pub fn peer_process(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut descriptor: libc::c_int = -1;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the descriptor is borrowed, so it is open; the buffer is a live `c_int` and `length`
    // is its size.
    let status = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERPIDFD,
            (&raw mut descriptor).cast(),
            &raw mut length,
        )
    };
    if status == 0 {
        // SAFETY: the kernel made the descriptor for this call, and nothing else owns it.
        return Ok(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() != Some(libc::ENOPROTOOPT) {
        return Err(error);
    }
    let Peer { pid, uid, .. } = peer(socket)?;
    let process = process_of(pid)?;
    let runs_as = std::fs::metadata(format!("/proc/{pid}"))?.uid();
    if runs_as == uid { Ok(process) } else { Err(io::ErrorKind::NotFound.into()) }
}

fn process_of(pid: i32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::NotFound)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

fn groups(socket: BorrowedFd<'_>) -> io::Result<Vec<u32>> {
    let mut groups = vec![0_u32; 64];
    loop {
        let mut length = (groups.len() * size_of::<u32>()) as libc::socklen_t;
        // SAFETY: the descriptor is borrowed, so it is open. The buffer is live and `length` is its
        // size in bytes, which the kernel does not exceed.
        let status = unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if status == 0 {
            groups.truncate(length as usize / size_of::<u32>());
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || groups.len() >= GROUPS_MAX {
            return Err(error);
        }
        groups.resize(GROUPS_MAX, 0);
    }
}
