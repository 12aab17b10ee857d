//! Files in a directory that another user may control: the only way to open, create and chown them.
//!
//! That user may place anything there at any moment: a symbolic link, or a hard link to another
//! user's file. It may also be a FIFO that blocks the opener, or a device that acts when it is
//! opened. So [`open`]
//! 1. opens the name for its inode alone (`O_PATH`), which neither blocks nor triggers a device;
//! 2. checks that inode;
//! 3. opens the same inode for use, through that descriptor: the name is not looked up again.
//!
//! Only what this process itself created with `O_EXCL` is chowned to the directory's owner.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Uid};
use rustix::io::Errno;

use crate::descriptors;

/// Maximum retries when a name appears and vanishes while it is opened or created.
const TRIES: usize = 100;

/// User and group that get what the superuser creates in another user's directory.
pub(crate) type GiveTo = Option<(u32, u32)>;

/// Opens an existing file.
pub(crate) fn open(directory: BorrowedFd<'_>, name: &str, flags: OFlags) -> io::Result<File> {
    let look = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = descriptors::open(|| rustix::fs::openat(directory, name, look, Mode::empty()))?;
    check(&rustix::fs::fstat(directory)?, &rustix::fs::fstat(&held)?)?;
    let path = format!("/proc/self/fd/{}", held.as_raw_fd());
    let flags = flags | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let opened = descriptors::open(|| rustix::fs::open(&path, flags, Mode::empty()))?;
    Ok(File::from(opened))
}

/// Creates a file that must not exist.
pub(crate) fn create(
    directory: BorrowedFd<'_>,
    name: &str,
    (flags, mode): (OFlags, u32),
    give_to: GiveTo,
) -> io::Result<File> {
    let flags = flags
        | OFlags::CREATE
        | OFlags::EXCL
        | OFlags::NOFOLLOW
        | OFlags::NONBLOCK
        | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode);
    let created = descriptors::open(|| rustix::fs::openat(directory, name, flags, mode))?;
    give(&created, give_to)?;
    Ok(File::from(created))
}

/// Opens a file, or creates it when absent.
pub(crate) fn open_or_create(
    directory: BorrowedFd<'_>,
    name: &str,
    (flags, mode): (OFlags, u32),
    give_to: GiveTo,
) -> io::Result<File> {
    for _ in 0..TRIES {
        match open(directory, name, flags) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            opened => return opened,
        }
        match create(directory, name, (flags, mode), give_to) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return created,
        }
    }
    Err(Errno::AGAIN.into())
}

/// Creates a directory that must not exist.
pub(crate) fn create_dir(
    parent: BorrowedFd<'_>,
    name: &str,
    mode: u32,
    give_to: GiveTo,
) -> io::Result<()> {
    rustix::fs::mkdirat(parent, name, Mode::from_raw_mode(mode))?;
    if give_to.is_none() {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = descriptors::open(|| rustix::fs::openat(parent, name, flags, Mode::empty()))?;
    give_empty_dir(held.as_fd(), parent, give_to)
}

/// Chowns an open directory that was just created. No call creates and opens a directory in one
/// step, so the parent's owner may have replaced it. The replacement must be the superuser's, empty
/// and on the same file system; that user could have removed and recreated such a directory anyway.
pub(crate) fn give_empty_dir(
    held: BorrowedFd<'_>,
    parent: BorrowedFd<'_>,
    give_to: GiveTo,
) -> io::Result<()> {
    let (found, above) = (rustix::fs::fstat(held)?, rustix::fs::fstat(parent)?);
    let ours = found.st_uid == rustix::process::geteuid().as_raw() && found.st_dev == above.st_dev;
    if !ours || !is_empty(held)? {
        return Err(refused("another directory was put in its place"));
    }
    give(&held, give_to)
}

/// Renames a file unless the new name exists. The file systems of other hosts may lack the call.
/// There the file gets a second name and loses the first, and a crash between leaves it with both.
pub(crate) fn rename_new(
    (from, old): (BorrowedFd<'_>, &str),
    (to, new): (BorrowedFd<'_>, &str),
) -> rustix::io::Result<bool> {
    match rustix::fs::renameat_with(from, old, to, new, RenameFlags::NOREPLACE) {
        Ok(()) => Ok(true),
        Err(Errno::EXIST) => Ok(false),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => link_new((from, old), (to, new)),
        Err(error) => Err(error),
    }
}

/// Does the same by a hard link.
fn link_new(
    (from, old): (BorrowedFd<'_>, &str),
    (to, new): (BorrowedFd<'_>, &str),
) -> rustix::io::Result<bool> {
    match rustix::fs::linkat(from, old, to, new, AtFlags::empty()) {
        Ok(()) => {}
        Err(Errno::EXIST) => {
            // NFS repeats a request whose answer was lost, and the repeat finds the first one's
            // link.
            let nofollow = AtFlags::SYMLINK_NOFOLLOW;
            let ours = rustix::fs::statat(from, old, nofollow)?;
            let found = rustix::fs::statat(to, new, nofollow)?;
            if (ours.st_dev, ours.st_ino) != (found.st_dev, found.st_ino) {
                return Ok(false);
            }
        }
        Err(error) => return Err(error),
    }
    match rustix::fs::unlinkat(from, old, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(error) => Err(error),
    }
}

fn is_empty(directory: BorrowedFd<'_>) -> io::Result<bool> {
    for entry in Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

fn give(held: &impl AsFd, give_to: GiveTo) -> io::Result<()> {
    let Some((uid, gid)) = give_to else { return Ok(()) };
    Ok(rustix::fs::fchown(held, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?)
}

/// Whether an inode found in a directory may be opened.
fn check(directory: &Stat, found: &Stat) -> io::Result<()> {
    let kind = match FileType::from_raw_mode(found.st_mode) {
        FileType::RegularFile => None,
        FileType::Directory => return Err(Errno::ISDIR.into()),
        FileType::Symlink => Some("a symbolic link"),
        FileType::Fifo => Some("a FIFO"),
        FileType::Socket => Some("a socket"),
        _ => Some("a device"),
    };
    if let Some(kind) = kind {
        return Err(refused(&format!("it is {kind}, and not a file")));
    }
    let me = rustix::process::geteuid().as_raw();
    let others_write = directory.st_mode & 0o022 != 0;
    if directory.st_uid == me && !others_write {
        // No other user can place anything there; hard-linked copies may be read.
        return Ok(());
    }
    if found.st_nlink != 1 {
        let message = format!("it has {} names (hard links)", found.st_nlink);
        return Err(refused(&message));
    }
    if ![0, me, directory.st_uid].contains(&found.st_uid) {
        let message = format!(
            "it belongs to user {}, and the directory to user {}",
            found.st_uid, directory.st_uid
        );
        return Err(refused(&message));
    }
    Ok(())
}

fn refused(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::fd::AsFd;

    use super::{link_new, rename_new};

    /// Both ways to rename to a new name do the same; of the second, a repeat after a lost answer.
    #[test]
    fn a_rename_to_a_new_name_replaces_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        #[expect(clippy::disallowed_methods, reason = "the functions take a directory")]
        let held = fs::File::open(directory.path()).unwrap();
        let at = |name| (held.as_fd(), name);
        for rename in [rename_new, link_new] {
            fs::write(path("a"), b"first").unwrap();
            fs::write(path("b"), b"second").unwrap();
            assert_eq!(rename(at("a"), at("new")), Ok(true));
            assert_eq!(rename(at("b"), at("new")), Ok(false));
            assert_eq!(fs::read(path("new")).unwrap(), b"first");
            assert_eq!(fs::read(path("b")).unwrap(), b"second");
            assert!(!path("a").exists());
            assert_eq!(rename(at("a"), at("other")), Err(rustix::io::Errno::NOENT));
            fs::remove_file(path("new")).unwrap();
        }
        fs::write(path("a"), b"first").unwrap();
        fs::hard_link(path("a"), path("new")).unwrap();
        assert_eq!(link_new(at("a"), at("new")), Ok(true), "the first request made the link");
        assert!(!path("a").exists());
    }
}
