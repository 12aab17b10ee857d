//! Removes what is in a directory of an export. It works by descriptor, so it follows nothing, and
//! without recursion, as a tree may have any depth. Subdirectories are moved up before what is in
//! them is removed, so that no more than three descriptors are open. Below what is mounted nothing
//! is removed.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use rustix::io::{Errno, Result};

/// Removes everything in a directory, to which nobody but the caller may write.
pub(super) fn empty(top: &OwnedFd) -> Result<()> {
    let mut moved = 0;
    loop {
        let names = names(top)?;
        if names.is_empty() {
            return Ok(());
        }
        for name in &names {
            if let Some(directory) = file_or_directory(top, name)? {
                lift(top, &directory, &mut moved)?;
                rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)?;
            }
        }
    }
}

/// Removes the files of a directory, and moves its subdirectories up.
fn lift(top: &OwnedFd, directory: &OwnedFd, moved: &mut u64) -> Result<()> {
    for name in &names(directory)? {
        if file_or_directory(directory, name)?.is_none() {
            continue;
        }
        loop {
            *moved += 1;
            match rustix::fs::renameat(directory, name, top, format!(".{moved}")) {
                // Something has that name.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                renamed => break renamed?,
            }
        }
    }
    Ok(())
}

/// Removes a name, unless it is a directory: that is opened.
fn file_or_directory(at: &OwnedFd, name: &CStr) -> Result<Option<OwnedFd>> {
    match rustix::fs::unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::ISDIR | Errno::PERM) => changeable(at, name).map(Some),
        removed => removed.map(|()| None),
    }
}

/// Opens a directory, and gives its owner all rights to it: to empty it, and to move it to another
/// one.
fn changeable(at: &OwnedFd, name: &CStr) -> Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(at, name, flags, Mode::empty());
    let opened = match open() {
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(at, name, Mode::RWXU, AtFlags::empty())?;
            open()?
        }
        opened => opened?,
    };
    rustix::fs::fchmod(&opened, Mode::RWXU)?;
    Ok(opened)
}

fn names(directory: &OwnedFd) -> Result<Vec<CString>> {
    let entries = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_owned()));
    let is_name =
        |name: &Result<CString>| !matches!(name.as_deref().map(CStr::to_bytes), Ok(b"." | b".."));
    entries.filter(is_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deeper than a process has descriptors, or space on its stack; and with names like those that
    /// subdirectories get meanwhile.
    #[test]
    fn a_deep_tree_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(place.path(), flags, Mode::empty()).unwrap();
        std::fs::create_dir_all(place.path().join(".1/.2/.3")).unwrap();
        std::fs::create_dir_all(place.path().join(".2/.1")).unwrap();
        std::fs::write(place.path().join(".3"), "file").unwrap();
        std::os::unix::fs::symlink("/", place.path().join(".1/link")).unwrap();
        let mut at = rustix::fs::openat(&top, ".", flags, Mode::empty()).unwrap();
        for depth in 0..5000 {
            rustix::fs::mkdirat(&at, "below", Mode::RWXU).unwrap();
            let below = rustix::fs::openat(&at, "below", flags, Mode::empty()).unwrap();
            rustix::fs::openat(&below, "file", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR)
                .unwrap();
            if depth % 2 == 0 {
                rustix::fs::fchmod(&at, Mode::RUSR | Mode::XUSR).unwrap();
            }
            at = below;
        }
        rustix::fs::fchmod(&top, Mode::RWXU).unwrap();
        empty(&top).unwrap();
        assert_eq!(names(&top).unwrap(), [c""; 0].map(CString::from));
    }
}
