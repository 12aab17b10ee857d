//! Reads the source: directories by descriptor, so that a path may have any depth, and the walk
//! follows nothing that another process swaps in meanwhile.

use std::ffi::{CStr, CString, OsStr};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use format::xattr_record::{TOTAL_BYTES_MAX, VALUE_BYTES_MAX};
use rustix::fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, SeekFrom, Stat};
use wire::{ImportAttr, Kind};

/// Extended attributes of one inode, names and values.
pub(super) type Xattrs = Vec<(Vec<u8>, Vec<u8>)>;

/// Names of a directory that are sorted together: about 6 MiB of memory, however many there are.
const SORTED_NAMES: usize = 65_536;

/// An entry of a directory's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listed {
    Directory,
    Regular,
    /// Anything else, or not known.
    Other,
}

/// A directory of the source.
pub(super) struct Directory {
    descriptor: OwnedFd,
}

impl Directory {
    /// Opens the directory that a path names; a symbolic link there is followed.
    pub(super) fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Directory { descriptor: rustix::fs::open(path, flags, Mode::empty())? })
    }

    /// Opens a subdirectory of this directory.
    pub(super) fn open_below(&self, name: &CStr) -> io::Result<Directory> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Directory { descriptor: self.open_with(name, flags)? })
    }

    /// Opens a regular file in this directory for reading.
    pub(super) fn open_file(&self, name: &CStr) -> io::Result<OwnedFd> {
        // Does not block: the file may have been replaced by a pipe meanwhile.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        match self.open_with(name, flags | OFlags::NOATIME) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.open_with(name, flags)
            }
            opened => opened,
        }
    }

    fn open_with(&self, name: &CStr, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.descriptor, name, flags, Mode::empty())?)
    }

    /// Passes on all names, of each [`SORTED_NAMES`] in the order of their inodes: the order that
    /// is fastest to read from a disk. After an error, it has passed on those before it. `found`
    /// returns what ends the list early.
    pub(super) fn names<E>(
        &self,
        found: impl FnMut(CString, Listed) -> Result<(), E>,
    ) -> Result<io::Result<()>, E> {
        self.names_in_parts(SORTED_NAMES, found)
    }

    fn names_in_parts<E>(
        &self,
        most: usize,
        mut found: impl FnMut(CString, Listed) -> Result<(), E>,
    ) -> Result<io::Result<()>, E> {
        let mut entries = match Dir::read_from(&self.descriptor) {
            Ok(entries) => entries,
            Err(error) => return Ok(Err(error.into())),
        };
        loop {
            let (mut names, mut is_over) = (Vec::new(), None);
            while names.len() < most {
                let entry = match entries.next() {
                    Some(Ok(entry)) => entry,
                    Some(Err(error)) => {
                        is_over = Some(Err(error.into()));
                        break;
                    }
                    None => {
                        is_over = Some(Ok(()));
                        break;
                    }
                };
                if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
                    let kind = self.listed(&entry);
                    names.push((entry.ino(), entry.file_name().to_owned(), kind));
                }
            }
            names.sort_unstable();
            for (_, name, kind) in names {
                found(name, kind)?;
            }
            if let Some(listed) = is_over {
                return Ok(listed);
            }
        }
    }

    /// What a list of a directory reports of a name.
    fn listed(&self, entry: &DirEntry) -> Listed {
        match entry.file_type() {
            FileType::Directory => Listed::Directory,
            FileType::RegularFile => Listed::Regular,
            // Some file systems do not report it.
            FileType::Unknown => match self.stat(entry.file_name()) {
                Ok(stat) if kind(&stat) == Kind::Directory => Listed::Directory,
                _ => Listed::Other,
            },
            _ => Listed::Other,
        }
    }

    /// The attributes of a name, without following a symbolic link.
    pub(super) fn stat(&self, name: &CStr) -> io::Result<Stat> {
        Ok(rustix::fs::statat(&self.descriptor, name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// The attributes of the directory itself.
    pub(super) fn stat_self(&self) -> io::Result<Stat> {
        Ok(rustix::fs::fstat(&self.descriptor)?)
    }

    /// The target of a symbolic link.
    pub(super) fn target(&self, name: &CStr) -> io::Result<Vec<u8>> {
        Ok(rustix::fs::readlinkat(&self.descriptor, name, Vec::new())?.into_bytes())
    }

    /// The extended attributes of the directory itself.
    pub(super) fn xattrs(&self) -> io::Result<Xattrs> {
        xattrs_of(&self.descriptor)
    }
}

/// Whether a file changed since it was looked at. Its contents may be a mixture then.
pub(super) fn has_changed(file: &impl AsFd, before: &Stat) -> io::Result<bool> {
    let now = rustix::fs::fstat(file)?;
    let seen = |stat: &Stat| {
        let mtime = (stat.st_mtime, stat.st_mtime_nsec);
        (stat.st_size, mtime, (stat.st_ctime, stat.st_ctime_nsec))
    };
    // Others may give it further names meanwhile.
    Ok(seen(&now) != seen(before) && !only_linked(&now, before))
}

fn only_linked(now: &Stat, before: &Stat) -> bool {
    let contents = |stat: &Stat| (stat.st_size, stat.st_mtime, stat.st_mtime_nsec);
    now.st_nlink != before.st_nlink && contents(now) == contents(before)
}

/// The error about a file that changed since it was looked at, or of which that is not known.
pub(super) fn change_of(file: &impl AsFd, before: &Stat) -> Option<io::Error> {
    match has_changed(file, before) {
        Ok(false) => None,
        Ok(true) => Some(changed()),
        Err(error) => Some(error),
    }
}

/// The error about a file that changed.
pub(super) fn changed() -> io::Error {
    io::Error::other("it changed while it was read; the same command reads it again")
}

/// The time that a file gets which changed while it was read: not its own, so that the next import
/// reads it again. Its own may be that of before: `chmod` leaves it, and some programs put it back.
pub(super) fn unfinished(mtime: i64) -> i64 {
    mtime.checked_sub(1).unwrap_or(mtime + 1)
}

/// Splits a path into an open directory and a name in it.
pub(super) fn split(path: &Path) -> io::Result<(Directory, CString)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let name = path.file_name().ok_or_else(invalid)?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    };
    let name = CString::new(name.as_bytes()).map_err(|_| invalid())?;
    Ok((Directory::open(&parent)?, name))
}

/// The extended attributes of an open file that this user may set in a volume. An error if they are
/// more than a volume takes for one inode.
pub(super) fn xattrs_of(file: &impl AsFd) -> io::Result<Xattrs> {
    let mut some = [0_u8; 256];
    let mut list = match rustix::fs::flistxattr(file, &mut some) {
        Ok(0) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
        _ => vec![0_u8; 1024],
    };
    let length = loop {
        match rustix::fs::flistxattr(file, &mut list) {
            Ok(0) | Err(rustix::io::Errno::OPNOTSUPP) => return Ok(Vec::new()),
            Ok(length) => break length,
            Err(rustix::io::Errno::RANGE) => list.resize(list.len() * 8, 0),
            Err(error) => return Err(error.into()),
        }
    };
    // Only root may set other name spaces, and an ordinary user keeps what can be kept.
    let all = rustix::process::geteuid().is_root();
    let wanted = |name: &&[u8]| !name.is_empty() && (all || name.starts_with(b"user."));
    let (mut found, mut bytes) = (Vec::new(), 0);
    let mut value = vec![0_u8; VALUE_BYTES_MAX];
    for name in list[..length].split(|&byte| byte == 0).filter(wanted) {
        match rustix::fs::fgetxattr(file, OsStr::from_bytes(name), &mut value) {
            Ok(length) => {
                bytes += name.len() + length;
                if bytes > TOTAL_BYTES_MAX {
                    return Err(too_many());
                }
                found.push((name.to_vec(), value[..length].to_vec()));
            }
            // Removed meanwhile, or not readable for this user.
            Err(rustix::io::Errno::NODATA | rustix::io::Errno::PERM) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}

fn too_many() -> io::Error {
    let bound = TOTAL_BYTES_MAX >> 10;
    io::Error::other(format!("extended attributes of more than {bound} KiB, which are left out"))
}

/// The next range with data at or after an offset: its start and end. `None`: only a hole is left.
pub(super) fn data_range(file: &impl AsFd, from: u64, size: u64) -> io::Result<Option<(u64, u64)>> {
    let start = match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(start) => start,
        Err(rustix::io::Errno::NXIO) => return Ok(None),
        // A file system without support for holes has none.
        Err(rustix::io::Errno::INVAL) => return Ok((from < size).then_some((from, size))),
        Err(error) => return Err(error.into()),
    };
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end)))
}

/// Reads at an offset until the buffer is full or the file ends.
pub(super) fn read_at(
    file: &impl AsRawFdFile,
    buffer: &mut [u8],
    offset: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match rustix::io::pread(file, &mut buffer[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(length) => filled += length,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(filled)
}

/// The type that `read_at` above takes.
pub(super) trait AsRawFdFile: AsFd + AsRawFd {}
impl AsRawFdFile for OwnedFd {}

/// The kind of a file.
pub(super) fn kind(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        FileType::RegularFile | FileType::Unknown => Kind::File,
    }
}

/// The attributes that are kept; owners only where they can be set.
pub(super) fn attr(stat: &Stat, keep_owner: bool) -> ImportAttr {
    ImportAttr {
        mode: stat.st_mode & 0o7777,
        owner: keep_owner.then_some((stat.st_uid, stat.st_gid)),
        atime: nanos(stat.st_atime, stat.st_atime_nsec),
        mtime: nanos(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn nanos(seconds: i64, nanos: u64) -> i64 {
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos as i64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_a_directory_is_in_the_order_of_inodes() {
        let place = tempfile::tempdir().unwrap();
        for file in 0..25 {
            std::fs::write(place.path().join(format!("{file}")), b"").unwrap();
        }
        let directory = Directory::open(place.path()).unwrap();
        let mut found = Vec::new();
        let listed = directory.names_in_parts(10, |name, kind| {
            assert_eq!(kind, Listed::Regular);
            found.push((directory.stat(&name).unwrap().st_ino, name));
            Ok::<(), ()>(())
        });
        listed.unwrap().unwrap();
        assert!(found.chunks(10).all(<[_]>::is_sorted), "{found:?}");
        found.sort();
        found.dedup();
        assert_eq!(found.len(), 25);
        // What takes them may end the list.
        let ended = directory.names_in_parts(10, |_, _| Err(5));
        assert_eq!(ended.unwrap_err(), 5);
    }
}
