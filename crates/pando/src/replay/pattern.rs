//! Bytes that replace contents, which traces do not have: they cannot be compressed.

use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use rustix::io::{self, Errno};

const BYTES: usize = 1 << 20;

fn all() -> &'static [u8] {
    static ALL: OnceLock<Vec<u8>> = OnceLock::new();
    ALL.get_or_init(|| {
        let mut bytes = vec![0; BYTES];
        fastrand::Rng::with_seed(1).fill(&mut bytes);
        bytes
    })
}

/// Makes the bytes, so that no call that is measured does.
pub(super) fn make() {
    all();
}

/// So many bytes, at most 1 MiB.
pub(super) fn bytes(length: u64) -> &'static [u8] {
    let all = all();
    all.get(..length as usize).unwrap_or(all)
}

/// Writes so many bytes.
pub(super) fn write(fd: &OwnedFd, mut offset: u64, mut length: u64) -> Result<(), Errno> {
    while length > 0 {
        let wrote = io::pwrite(fd, bytes(length), offset)? as u64;
        if wrote == 0 {
            return Err(Errno::IO);
        }
        (offset, length) = (offset.saturating_add(wrote), length.saturating_sub(wrote));
    }
    Ok(())
}
