//! An export to a new directory of another file system.
//!
//! Everything is made below descriptors of directories that this export made itself, under names
//! that did not exist. So it neither follows nor replaces what another process puts there. No other
//! user can move them, because only the caller and root can change the directories above. What is
//! not complete is in a hidden directory (`staging.rs`), which is closed to others.

use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, RawMode, Timespec, Timestamps, Uid, XattrFlags,
};
use wire::{Attr, Failure, FailureKind, Kind};

use super::staging::Staging;
use super::{Exported, Sink, Xattrs, safe};
use crate::failure::{self, Result};

/// A directory that is written.
pub(crate) struct Directory {
    destination: PathBuf,
    staging: Staging,
    /// The directories on the current path, but for the hidden one above.
    levels: Vec<OwnedFd>,
    /// The exported directory, once it is complete, and its mode.
    top: Option<(OwnedFd, Mode)>,
    file: Option<Begun>,
    keep_owner: bool,
    problems: Vec<Failure>,
}

struct Begun {
    file: OwnedFd,
    /// Ranges that are not written yet: offset and length.
    ranges: std::vec::IntoIter<(u64, u64)>,
    current: (u64, u64),
}

impl Directory {
    /// The destination must not exist yet.
    pub(crate) fn create(destination: &Path) -> Result<Directory> {
        let staging = Staging::create(destination)?;
        // A descriptor for each level.
        device::raise_descriptor_limit();
        Ok(Directory {
            destination: destination.to_owned(),
            staging,
            levels: Vec::new(),
            top: None,
            file: None,
            keep_owner: rustix::process::geteuid().is_root(),
            problems: Vec::new(),
        })
    }

    /// Where something will be, for messages.
    fn at(&self, path: &[u8]) -> PathBuf {
        below(&self.destination, path)
    }

    /// Where it is meanwhile.
    fn made_at(&self, path: &[u8]) -> PathBuf {
        let top = self.staging.path().join(self.destination.file_name().unwrap_or_default());
        below(&top, path)
    }

    fn failed(&self, doing: &str, path: &[u8], error: rustix::io::Errno) -> Failure {
        failure::io(doing, &self.at(path), &error.into())
    }

    /// The current directory.
    fn parent(&self) -> &OwnedFd {
        self.levels.last().unwrap_or_else(|| self.staging.directory())
    }

    /// The name of an entry in the current directory.
    fn name(&self, path: &[u8]) -> Result<CString> {
        let name = match self.levels.len() {
            // The exported directory or single file itself.
            0 => self.destination.file_name().unwrap_or_default().as_bytes(),
            _ => path.rsplit(|&byte| byte == b'/').next().unwrap_or(path),
        };
        CString::new(name).map_err(|_| Failure::new(FailureKind::Protocol, "a name with a NUL"))
    }

    fn make_file(&self, path: &[u8]) -> Result<OwnedFd> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        let made =
            rustix::fs::openat(self.parent(), self.name(path)?, flags | OFlags::CLOEXEC, mode);
        made.map_err(|error| self.failed("create", path, error))
    }

    /// Sets everything that an open file or directory keeps; times last.
    fn dress(&mut self, file: &impl AsFd, one: &Exported<'_>) -> Result<()> {
        let Exported { path, attr, xattrs } = *one;
        let failed = |error| self.failed("set the attributes of", path, error);
        if self.keep_owner {
            let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
            rustix::fs::fchown(file, Some(uid), Some(gid)).map_err(failed)?;
        }
        rustix::fs::fchmod(file, mode(attr)).map_err(failed)?;
        self.set_xattrs(path, xattrs, &|name, value| {
            rustix::fs::fsetxattr(file, name, value, XattrFlags::empty())
        });
        let failed = |error| self.failed("set the times of", path, error);
        rustix::fs::futimens(file, &times(attr)).map_err(failed)
    }

    /// What cannot be set is reported, and the export continues.
    fn set_xattrs(
        &mut self,
        path: &[u8],
        xattrs: &Xattrs<'_>,
        set: &dyn Fn(&OsStr, &[u8]) -> rustix::io::Result<()>,
    ) {
        for (name, value) in xattrs {
            let of_user = name.starts_with(b"user.") || name.starts_with(b"system.posix_acl");
            if !self.keep_owner && !of_user {
                continue;
            }
            if let Err(error) = set(OsStr::from_bytes(name), value) {
                let doing = format!("set {} of", name.escape_ascii());
                let failure = self.failed(&doing, path, error);
                self.problems.push(failure);
            }
        }
    }

    fn write_at(&self, file: &OwnedFd, mut bytes: &[u8], mut offset: u64) -> Result<()> {
        while !bytes.is_empty() {
            match rustix::io::pwrite(file, bytes, offset) {
                Ok(written) => {
                    bytes = &bytes[written..];
                    offset += written as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.failed("write below", b"", error)),
            }
        }
        Ok(())
    }
}

impl Sink for Directory {
    fn enter(&mut self, one: &Exported<'_>) -> Result<()> {
        let (parent, name) = (self.parent(), self.name(one.path)?);
        let made = rustix::fs::mkdirat(parent, &name, Mode::from_raw_mode(0o700));
        made.map_err(|error| self.failed("create", one.path, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(parent, &name, flags, Mode::empty());
        let opened = opened.map_err(|error| self.failed("open", one.path, error))?;
        safe::check_own(&opened, &self.at(one.path))?;
        self.levels.push(opened);
        Ok(())
    }

    fn leave(&mut self, one: &Exported<'_>) -> Result<()> {
        let Some(directory) = self.levels.pop() else { return Ok(()) };
        self.dress(&directory, one)?;
        if self.levels.is_empty() {
            self.top = Some((directory, mode(one.attr)));
        }
        Ok(())
    }

    fn file(&mut self, one: &Exported<'_>, data: &[u8]) -> Result<()> {
        let file = self.make_file(one.path)?;
        self.write_at(&file, data, 0)?;
        self.dress(&file, one)
    }

    fn begin(&mut self, one: &Exported<'_>, ranges: &[(u64, u64)]) -> Result<()> {
        let file = self.make_file(one.path)?;
        let sized = rustix::fs::ftruncate(&file, one.attr.size);
        sized.map_err(|error| self.failed("set the length of", one.path, error))?;
        let ranges: Vec<_> = ranges.into();
        self.file = Some(Begun { file, ranges: ranges.into_iter(), current: (0, 0) });
        Ok(())
    }

    fn data(&mut self, mut bytes: &[u8]) -> Result<()> {
        let Some(mut begun) = self.file.take() else { return Ok(()) };
        while !bytes.is_empty() {
            if begun.current.1 == 0 {
                let Some(next) = begun.ranges.next() else { break };
                begun.current = next;
                continue;
            }
            let (offset, left) = begun.current;
            let take = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            let (now, later) = bytes.split_at(take);
            self.write_at(&begun.file, now, offset)?;
            begun.current = (offset + take as u64, left - take as u64);
            bytes = later;
        }
        self.file = Some(begun);
        Ok(())
    }

    fn end(&mut self, one: &Exported<'_>) -> Result<()> {
        match self.file.take() {
            Some(begun) => self.dress(&begun.file, one),
            None => Ok(()),
        }
    }

    fn other(&mut self, one: &Exported<'_>, target: &[u8]) -> Result<bool> {
        let Exported { path, attr, xattrs } = *one;
        let (parent, name) = (self.parent(), self.name(path)?);
        let kind = match attr.kind {
            Kind::Fifo => Some(FileType::Fifo),
            Kind::Socket => Some(FileType::Socket),
            Kind::CharDevice => Some(FileType::CharacterDevice),
            Kind::BlockDevice => Some(FileType::BlockDevice),
            _ => None,
        };
        let made = match kind {
            None => rustix::fs::symlinkat(OsStr::from_bytes(target), parent, &name),
            Some(kind) => {
                let number = device_number(attr.rdev);
                rustix::fs::mknodat(parent, &name, kind, Mode::from_raw_mode(0o600), number)
            }
        };
        let device = matches!(attr.kind, Kind::CharDevice | Kind::BlockDevice);
        if made == Err(rustix::io::Errno::PERM) && device {
            let failure = self.failed("create the device", path, rustix::io::Errno::PERM);
            self.problems.push(failure);
            return Ok(true);
        }
        made.map_err(|error| self.failed("create", path, error))?;
        let failed = |error| self.failed("set the attributes of", path, error);
        if self.keep_owner {
            let (uid, gid) = (Uid::from_raw(attr.uid), Gid::from_raw(attr.gid));
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(parent, &name, Some(uid), Some(gid), flags).map_err(failed)?;
        }
        if kind.is_some() {
            let flags = AtFlags::empty();
            rustix::fs::chmodat(parent, &name, mode(attr), flags).map_err(failed)?;
        }
        let whole = self.made_at(path);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let timed = rustix::fs::utimensat(parent, &name, &times(attr), flags);
        timed.map_err(|error| self.failed("set the times of", path, error))?;
        self.set_xattrs(path, xattrs, &|name, value| {
            rustix::fs::lsetxattr(&whole, name, value, XattrFlags::empty())
        });
        Ok(true)
    }

    fn link(&mut self, one: &Exported<'_>, first: &[u8]) -> Result<()> {
        let linked = {
            let (parent, name) = (self.parent(), self.name(one.path)?);
            // `first` is relative to the exported directory.
            let from = self.levels.first();
            let flags = AtFlags::empty();
            match from {
                Some(from) => {
                    rustix::fs::linkat(from, OsStr::from_bytes(first), parent, name, flags)
                }
                None => rustix::fs::linkat(CWD, self.made_at(first), parent, name, flags),
            }
        };
        if let Err(error) = linked {
            let failure = self.failed("link", one.path, error);
            self.problems.push(failure);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.staging.publish(self.top.as_ref())
    }

    fn problems(&mut self) -> Vec<Failure> {
        std::mem::take(&mut self.problems)
    }
}

fn below(top: &Path, path: &[u8]) -> PathBuf {
    if path.is_empty() { top.to_owned() } else { top.join(OsStr::from_bytes(path)) }
}

fn mode(attr: &Attr) -> Mode {
    Mode::from_raw_mode((attr.mode & 0o7777) as RawMode)
}

fn times(attr: &Attr) -> Timestamps {
    let time = |nanos: i64| Timespec {
        tv_sec: nanos.div_euclid(1_000_000_000),
        tv_nsec: nanos.rem_euclid(1_000_000_000),
    };
    Timestamps { last_access: time(attr.atime), last_modification: time(attr.mtime) }
}

/// A device number of the system, from the 32 bits of the volume.
fn device_number(rdev: u32) -> u64 {
    let (major, minor) = ((rdev >> 8) & 0xfff, (rdev & 0xff) | ((rdev >> 12) & !0xff));
    rustix::fs::makedev(major, minor)
}
