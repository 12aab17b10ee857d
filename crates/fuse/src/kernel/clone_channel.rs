//! A channel per thread: another descriptor of `/dev/fuse` for the same mount.
#![expect(unsafe_code, reason = "an ioctl(2) without a safe wrapper")]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::ioctl::{Setter, opcode};

/// `FUSE_DEV_IOC_CLONE`: takes the descriptor to clone.
const CLONE: rustix::ioctl::Opcode = opcode::read::<u32>(229, 0);

/// Opens another channel to the mount that `channel` serves.
pub(super) fn clone_channel(channel: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let clone = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    let of = channel.as_raw_fd() as u32;
    // SAFETY: this ioctl reads a u32 from the address that it gets.
    let request = unsafe { Setter::<CLONE, u32>::new(of) };
    // SAFETY: as above; the descriptor is one of /dev/fuse, and nothing else is touched.
    unsafe { rustix::ioctl::ioctl(&clone, request) }?;
    Ok(clone)
}
