//! Converts `statx` results to rows of a scan; reads targets and extended attributes.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use format::acl::ACCESS;
use inode::Outside;
use rustix::fs::{FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use wire::Kind;

/// Names and values.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Longest value that an index keeps, and most bytes of all attributes of an inode.
const VALUE_BYTES_MAX: usize = format::xattr_record::VALUE_BYTES_MAX;
const TOTAL_BYTES_MAX: usize = format::xattr_record::TOTAL_BYTES_MAX;

/// The attributes of an inode.
pub(super) fn attr(stat: &Statx) -> Outside {
    let (mtime, ctime) = (nanos(&stat.stx_mtime), nanos(&stat.stx_ctime));
    let atime = nanos(&stat.stx_atime);
    let born = StatxFlags::from_bits_retain(stat.stx_mask).contains(StatxFlags::BTIME);
    // If the file system does not report a birth time, every scan must invent the same one.
    let btime = if born { nanos(&stat.stx_btime) } else { mtime.min(ctime).min(atime) };
    Outside {
        kind: kind(stat),
        mode: u32::from(stat.stx_mode) & 0o7777,
        uid: stat.stx_uid,
        gid: stat.stx_gid,
        nlink: stat.stx_nlink,
        rdev: device_number(stat.stx_rdev_major, stat.stx_rdev_minor),
        size: stat.stx_size,
        allocated: stat.stx_blocks.saturating_mul(512),
        atime,
        mtime,
        ctime,
        btime,
        device: device(stat),
        number: stat.stx_ino,
    }
}

/// The device of an inode.
pub(super) fn device(stat: &Statx) -> u64 {
    rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor)
}

/// Whether something is mounted there.
pub(super) fn is_mount(stat: &Statx) -> bool {
    stat.stx_attributes.contains(StatxAttributes::MOUNT_ROOT)
}

fn kind(stat: &Statx) -> Kind {
    match FileType::from_raw_mode(u32::from(stat.stx_mode)) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Kind::File,
    }
}

fn nanos(time: &StatxTimestamp) -> i64 {
    time.tv_sec.saturating_mul(1_000_000_000).saturating_add(i64::from(time.tv_nsec))
}

/// A device number in 32 bits, packed as Linux does.
fn device_number(major: u32, minor: u32) -> u32 {
    (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
}

/// The target of a symbolic link.
pub(super) fn target(directory: &impl AsFd, name: &CStr) -> io::Result<Vec<u8>> {
    Ok(rustix::fs::readlinkat(directory, name, Vec::new())?.into_bytes())
}

/// The extended attributes of a name in a directory, or with an empty name of the directory
/// itself. Attributes longer than an index keeps are left out.
pub(super) fn xattrs(directory: &impl AsFd, name: &CStr) -> io::Result<Xattrs> {
    let path = path(directory, name);
    let mut list = vec![0_u8; 1024];
    let length = loop {
        match rustix::fs::llistxattr(&path, &mut list) {
            Ok(0) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(length) => break length,
            Err(rustix::io::Errno::RANGE) if list.len() < TOTAL_BYTES_MAX => {
                list.resize(list.len() * 8, 0);
            }
            Err(error) => return Err(error.into()),
        }
    };
    let (mut found, mut total) = (Vec::new(), 0);
    let mut value = vec![0_u8; VALUE_BYTES_MAX];
    for name in list[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()) {
        match rustix::fs::lgetxattr(&path, OsStr::from_bytes(name), &mut value) {
            Ok(length) => {
                total += name.len() + length + 16;
                if total > TOTAL_BYTES_MAX {
                    break;
                }
                found.push((name.to_vec(), value[..length].to_vec()));
            }
            Err(
                rustix::io::Errno::NODATA
                | rustix::io::Errno::PERM
                | rustix::io::Errno::ACCESS
                | rustix::io::Errno::RANGE,
            ) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

/// The access control list of a directory, as its attribute, if it has one. An index keeps it in
/// any case: without it the mode alone would decide who sees the contents.
pub(super) fn access_list(directory: &impl AsFd, name: &CStr) -> io::Result<Xattrs> {
    let mut value = vec![0_u8; 4096];
    let path = path(directory, name);
    loop {
        match rustix::fs::lgetxattr(&path, OsStr::from_bytes(ACCESS), &mut value) {
            Ok(length) => {
                value.truncate(length);
                return Ok(vec![(ACCESS.to_vec(), value)]);
            }
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => {
                return Ok(Xattrs::new());
            }
            Err(rustix::io::Errno::RANGE) if value.len() < VALUE_BYTES_MAX => {
                value.resize(VALUE_BYTES_MAX, 0);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// The supported kernels have no such call that takes a directory and a name.
fn path(directory: &impl AsFd, name: &CStr) -> PathBuf {
    let mut path = PathBuf::from(format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd()));
    if name.is_empty() {
        path.push(".");
    } else {
        path.push(OsStr::from_bytes(name.to_bytes()));
    }
    path
}

/// Attributes in the form that items carry.
pub(super) fn borrowed(xattrs: &Xattrs) -> Vec<(&[u8], &[u8])> {
    xattrs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect()
}
