//! Attributes and times between the namespace and the FUSE crate.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use device::Timestamp;
use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use inode::{Attr, Kind, SetTime};

/// Unit of I/O that `stat` recommends; the kernel's page.
const BLOCK_BYTES: u32 = 4096;

/// Attributes as the kernel takes them. `node` is the number to show.
pub(crate) fn file_attr(node: u64, attr: &Attr) -> FileAttr {
    FileAttr {
        ino: INodeNo(node),
        size: attr.size,
        blocks: attr.blocks,
        atime: system_time(attr.atime),
        mtime: system_time(attr.mtime),
        ctime: system_time(attr.ctime),
        crtime: UNIX_EPOCH,
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLOCK_BYTES,
        flags: 0,
    }
}

/// What a negative entry carries: number 0 says that there is no such name.
pub(crate) const NO_ATTR: FileAttr = FileAttr {
    ino: INodeNo(0),
    size: 0,
    blocks: 0,
    atime: UNIX_EPOCH,
    mtime: UNIX_EPOCH,
    ctime: UNIX_EPOCH,
    crtime: UNIX_EPOCH,
    kind: FileType::RegularFile,
    perm: 0,
    nlink: 0,
    uid: 0,
    gid: 0,
    rdev: 0,
    blksize: BLOCK_BYTES,
    flags: 0,
};

/// A kind as the kernel takes it.
pub(crate) fn file_type(kind: Kind) -> FileType {
    match kind {
        Kind::File => FileType::RegularFile,
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
    }
}

/// The kind in the file-type bits of a mode; `None` for a directory, a symbolic link and bits
/// that mean nothing, which mknod(2) does not make.
pub(crate) fn kind_of_new(mode: u32) -> Option<Kind> {
    match mode & libc::S_IFMT {
        0 | libc::S_IFREG => Some(Kind::File),
        libc::S_IFIFO => Some(Kind::Fifo),
        libc::S_IFSOCK => Some(Kind::Socket),
        libc::S_IFCHR => Some(Kind::CharDevice),
        libc::S_IFBLK => Some(Kind::BlockDevice),
        _ => None,
    }
}

fn system_time(time: Timestamp) -> SystemTime {
    match u64::try_from(time.0) {
        Ok(after) => UNIX_EPOCH + Duration::from_nanos(after),
        Err(_) => UNIX_EPOCH - Duration::from_nanos(time.0.unsigned_abs()),
    }
}

/// A time to set, as it came from the kernel.
pub(crate) fn set_time(time: TimeOrNow) -> SetTime {
    match time {
        TimeOrNow::Now => SetTime::Now,
        TimeOrNow::SpecificTime(time) => SetTime::At(timestamp_from_request(time)),
    }
}

/// The kernel sends (seconds, nanoseconds), where the second number always counts forward. The
/// FUSE crate counts it backward before 1970: 1.2 s before, sent as (-2, 0.8), arrives as 2.8 s
/// before. So the two parts are taken apart again and put together with the right sign. Times out
/// of the range of a [`Timestamp`] become its ends.
pub(crate) fn timestamp_from_request(time: SystemTime) -> Timestamp {
    let (seconds, nanos) = match time.duration_since(UNIX_EPOCH) {
        Ok(after) => (i128::from(after.as_secs()), after.subsec_nanos()),
        Err(before) => (-i128::from(before.duration().as_secs()), before.duration().subsec_nanos()),
    };
    let total = seconds * 1_000_000_000 + i128::from(nanos);
    Timestamp(total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_to_the_kernel_and_back() {
        for nanos in [0, 1, 1_500_000_000, i64::MAX, -1_000_000_000] {
            let time = system_time(Timestamp(nanos));
            assert_eq!(timestamp_from_request(time), Timestamp(nanos));
        }
    }

    #[test]
    fn a_time_before_1970_is_read_as_the_kernel_meant_it() {
        // What the crate makes of (-2 s, 800_000_000 ns), which is 1.2 s before 1970.
        let arrived = UNIX_EPOCH - Duration::new(2, 800_000_000);
        assert_eq!(timestamp_from_request(arrived), Timestamp(-1_200_000_000));
    }

    #[test]
    fn times_out_of_range_become_the_ends_of_the_range() {
        let late = UNIX_EPOCH + Duration::from_secs(20_000_000_000);
        assert_eq!(timestamp_from_request(late), Timestamp(i64::MAX));
        let early = UNIX_EPOCH - Duration::from_secs(20_000_000_000);
        assert_eq!(timestamp_from_request(early), Timestamp(i64::MIN));
    }
}
