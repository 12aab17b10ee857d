//! [`Device`] over the operating system's files: one directory, positional I/O.
//!
//! The directory stays open, and every file in it is opened relative to it. If the directory was
//! moved or removed, its path may name another one, which this volume must not write.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{
    AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, SeekFrom, Stat, StatVfs,
};
use rustix::io::{Errno, retry_on_intr};

use crate::guarded::{self, GiveTo};
use crate::{Device, Entry, Error, File, Lock, Metadata, Result, Space, descriptors};

/// Files below a directory of the operating system.
#[derive(Debug)]
pub struct LocalDevice {
    root: OwnedFd,
    /// Owner and group for files that the superuser creates in another user's directory, so that
    /// the user can still open them.
    give_to: GiveTo,
    /// The one directory in the root that may be a symbolic link. A link that a user puts in place
    /// of any other file or directory must not redirect the superuser.
    link: Option<&'static str>,
}

impl LocalDevice {
    /// The directory must exist.
    pub fn open(root: &Path) -> Result<LocalDevice> {
        let failed = |error: Errno| Error::new("open", &root.to_string_lossy(), error.into());
        // Holding it needs no permission to list it.
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let held = retry_on_intr(|| rustix::fs::open(root, flags, Mode::empty()));
        let root = held.map_err(failed)?;
        let found = rustix::fs::fstat(&root).map_err(failed)?;
        let others = found.st_uid != 0 && rustix::process::geteuid().is_root();
        Ok(LocalDevice {
            root,
            give_to: others.then_some((found.st_uid, found.st_gid)),
            link: None,
        })
    }

    /// Lets a directory in this one be a symbolic link, to a directory of the same user.
    #[must_use]
    pub fn with_link(self, name: &'static str) -> LocalDevice {
        LocalDevice { link: Some(name), ..self }
    }

    /// The directory.
    pub fn directory(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Opens a file for appending, accessible only to its owner, and creates it when absent; a file
    /// longer than `bytes_max` is truncated to zero.
    pub fn append(&self, path: &str, bytes_max: u64) -> Result<fs::File> {
        let failed = |error: io::Error| Error::new("open", path, error);
        let flags = OFlags::WRONLY | OFlags::APPEND;
        let file = self.open_or_create(path, flags, 0o600).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > bytes_max {
            file.set_len(0).map_err(failed)?;
        }
        Ok(file)
    }

    /// Reads the first `bytes_max` bytes of a small file, which need not be writable.
    pub fn read(&self, path: &str, bytes_max: usize) -> Result<Vec<u8>> {
        let failed = |error: io::Error| Error::new("read", path, error);
        let file = self.open_at(path, OFlags::RDONLY).map_err(failed)?;
        let mut bytes = vec![0; bytes_max];
        let read = file.read_at(&mut bytes, 0).map_err(failed)?;
        bytes.truncate(read);
        Ok(bytes)
    }

    /// Sets the permission bits of the directory itself, even if its path now names another.
    pub fn set_mode(&self, mode: u32) -> Result<()> {
        // An `O_PATH` descriptor does not support `fchmod`.
        let path = format!("/proc/self/fd/{}", self.root.as_raw_fd());
        fs::set_permissions(path, PermissionsExt::from_mode(mode))
            .map_err(|error| Error::new("set the mode of", "", error))
    }

    /// Chowns an open directory to the owner of this one, as for everything created in here. The
    /// caller has just created it in `parent`.
    pub fn give_dir(&self, created: BorrowedFd<'_>, parent: BorrowedFd<'_>) -> Result<()> {
        if self.give_to.is_none() {
            return Ok(());
        }
        guarded::give_empty_dir(created, parent, self.give_to)
            .map_err(|error| Error::new("give to the volume's owner", "", error))
    }

    /// Locks the directory itself, for a process that has it open.
    fn lock_directory(&self) -> rustix::io::Result<fs::File> {
        let directory = fs::File::from(self.open_dir("", OFlags::RDONLY)?);
        rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)?;
        Ok(directory)
    }

    /// Opens the file at a path.
    pub(crate) fn open_at(&self, path: &str, flags: OFlags) -> io::Result<fs::File> {
        let (parent, name) = self.parent(path)?;
        guarded::open(parent.as_fd(), name, flags)
    }

    fn open_or_create(&self, path: &str, flags: OFlags, mode: u32) -> io::Result<fs::File> {
        let (parent, name) = self.parent(path)?;
        guarded::open_or_create(parent.as_fd(), name, (flags, mode), self.give_to)
    }

    /// Opens a directory, one path component at a time. None may be a link but that of
    /// [`LocalDevice::with_link`].
    fn open_dir(&self, path: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let mut parts = path.split('/').peekable();
        let mut held: Option<OwnedFd> = None;
        while let Some(part) = parts.next() {
            let may_be_link = held.is_none() && self.link == Some(part);
            let last = parts.peek().is_none();
            let flags = OFlags::DIRECTORY
                | OFlags::CLOEXEC
                | if last { flags } else { OFlags::PATH }
                | if may_be_link { OFlags::empty() } else { OFlags::NOFOLLOW };
            let from = held.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            let open = || rustix::fs::openat(from, below(part), flags, Mode::empty());
            let opened = descriptors::open(open)?;
            if may_be_link {
                self.is_for_us(&opened)?;
            }
            held = Some(opened);
        }
        held.ok_or(Errno::NOENT)
    }

    /// Whether the superuser may follow the link in another user's directory. Only to a directory
    /// of that same user, who could otherwise have files created anywhere.
    fn is_for_us(&self, directory: &OwnedFd) -> rustix::io::Result<()> {
        let Some((owner, _)) = self.give_to else { return Ok(()) };
        let theirs = rustix::fs::fstat(directory)?.st_uid == owner;
        if theirs { Ok(()) } else { Err(Errno::ACCESS) }
    }

    /// The directory of a path, and the name in it.
    fn parent<'a>(&'a self, path: &'a str) -> rustix::io::Result<(Parent<'a>, &'a str)> {
        match below(path).rsplit_once('/') {
            None => Ok((Parent::Root(self.root.as_fd()), below(path))),
            Some((parent, name)) => Ok((Parent::Below(self.open_dir(parent, OFlags::PATH)?), name)),
        }
    }

    /// The names in a directory, sorted, with their kinds as far as the file system reports them.
    fn names(&self, directory: &str) -> Result<Vec<(String, FileType)>> {
        let failed = |error| Error::new("list", directory, error);
        let opened = self.open_dir(directory, OFlags::RDONLY);
        let opened = opened.map_err(|error| failed(error.into()))?;
        let mut names = Vec::new();
        for entry in Dir::new(opened).map_err(|error| failed(error.into()))? {
            let entry = entry.map_err(|error| failed(error.into()))?;
            // Names that are not UTF-8 are not the volume's.
            if let Ok(name) = entry.file_name().to_str()
                && !matches!(name, "." | "..")
            {
                names.push((name.to_owned(), entry.file_type()));
            }
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(names)
    }

    fn stat(&self, path: &str) -> io::Result<Stat> {
        let (parent, name) = self.parent(path)?;
        Ok(rustix::fs::statat(parent.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Opens a file to lock where nothing can be created: the existing file, or the directory.
    fn open_to_lock(&self, path: &str) -> io::Result<(fs::File, bool)> {
        match self.open_at(path, OFlags::RDONLY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Ok((self.open_dir("", OFlags::RDONLY)?.into(), true))
            }
            opened => Ok((opened?, false)),
        }
    }
}

/// The parent directory of a path.
enum Parent<'a> {
    Root(BorrowedFd<'a>),
    Below(OwnedFd),
}

impl AsFd for Parent<'_> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Parent::Root(root) => *root,
            Parent::Below(held) => held.as_fd(),
        }
    }
}

fn is_read_only(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ReadOnlyFilesystem
}

/// The error of a file on a read-only file system.
fn refused(operation: &'static str, path: &str) -> Error {
    Error::new(operation, path, Errno::ROFS.into())
}

/// A path relative to the directory.
fn below(path: &str) -> &str {
    debug_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
    if path.is_empty() { "." } else { path }
}

impl Device for LocalDevice {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        let (file, read_only) = match self.open_at(path, OFlags::RDWR) {
            // The operating system remounts a failing disk read-only: existing files can be read.
            Err(error) if is_read_only(&error) => (self.open_at(path, OFlags::RDONLY), true),
            opened => (opened, false),
        };
        let file = file.map_err(|error| Error::new("open", path, error))?;
        Ok(Arc::new(LocalFile { file, path: path.to_owned(), read_only }))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        let failed = |error: io::Error| Error::new("create", path, error);
        let (parent, name) = self.parent(path).map_err(|error| failed(error.into()))?;
        let file = guarded::create(parent.as_fd(), name, (OFlags::RDWR, 0o600), self.give_to)
            .map_err(failed)?;
        Ok(Arc::new(LocalFile { file, path: path.to_owned(), read_only: false }))
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        match self.stat(path) {
            Ok(found) => {
                let directory = FileType::from_raw_mode(found.st_mode) == FileType::Directory;
                Ok(Some(Metadata {
                    length: if directory { 0 } else { found.st_size.cast_unsigned() },
                    disk_bytes: found.st_blocks.cast_unsigned().saturating_mul(512),
                    directory,
                }))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::new("stat", path, error)),
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        Ok(self.names(directory)?.into_iter().map(|(name, _)| name).collect())
    }

    fn entries(&self, directory: &str) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for (name, kind) in self.names(directory)? {
            let directory = match kind {
                // The file system does not report it.
                FileType::Unknown => {
                    let path = if directory.is_empty() {
                        name.clone()
                    } else {
                        format!("{directory}/{name}")
                    };
                    let Some(found) = self.metadata(&path)? else { continue };
                    found.directory
                }
                kind => kind == FileType::Directory,
            };
            entries.push(Entry { name, directory });
        }
        Ok(entries)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        let failed = |error: io::Error| Error::new("create directory", directory, error);
        let (parent, name) = self.parent(directory).map_err(|error| failed(error.into()))?;
        match guarded::create_dir(parent.as_fd(), name, 0o700, self.give_to) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && self.open_dir(directory, OFlags::PATH).is_ok() =>
            {
                Ok(())
            }
            created => created.map_err(failed),
        }
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let rename = || {
            let (old, new) = (self.parent(from)?, self.parent(to)?);
            rustix::fs::renameat(old.0.as_fd(), old.1, new.0.as_fd(), new.1)
        };
        rename().map_err(|error| Error::new("rename", from, error.into()))
    }

    fn rename_new(&self, from: &str, to: &str) -> Result<bool> {
        let rename = || {
            let (old, new) = (self.parent(from)?, self.parent(to)?);
            guarded::rename_new((old.0.as_fd(), old.1), (new.0.as_fd(), new.1))
        };
        rename().map_err(|error: Errno| Error::new("rename", from, error.into()))
    }

    fn remove(&self, path: &str) -> Result<()> {
        let remove = |(parent, name): (Parent<'_>, &str)| {
            rustix::fs::unlinkat(parent.as_fd(), name, AtFlags::empty())
        };
        let removed = self.parent(path).and_then(remove);
        removed.map_err(|error| Error::new("remove", path, error.into()))
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        let failed = |error| Error::new("sync directory", directory, error);
        let opened = self.open_dir(directory, OFlags::RDONLY);
        let opened = fs::File::from(opened.map_err(|error| failed(error.into()))?);
        opened.sync_all().map_err(failed)
    }

    fn is_elsewhere(&self, directory: &str) -> Result<bool> {
        let device_of = |path: &str| {
            let found = self.open_dir(path, OFlags::PATH).and_then(rustix::fs::fstat);
            found.map(|found| found.st_dev).map_err(|error| Error::new("stat", path, error.into()))
        };
        Ok(device_of(directory)? != device_of("")?)
    }

    fn space(&self) -> Result<Space> {
        let StatVfs { f_blocks, f_bfree, f_bavail, f_frsize, .. } =
            rustix::fs::fstatvfs(&self.root)
                .map_err(|error| Error::new("statvfs", "", error.into()))?;
        Ok(Space {
            total_bytes: f_blocks.saturating_mul(f_frsize),
            free_bytes: f_bavail.saturating_mul(f_frsize),
            reserved_bytes: f_bfree.saturating_sub(f_bavail).saturating_mul(f_frsize),
        })
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        let opened = self.open_or_create(path, OFlags::RDWR, 0o644);
        let read_only = opened.as_ref().is_err_and(is_read_only);
        let opened =
            if read_only { self.open_to_lock(path) } else { opened.map(|file| (file, false)) };
        let (file, is_directory) = opened.map_err(|error| Error::new("open", path, error))?;
        let failed = |error: Errno| Error::new("lock", path, error.into());
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(failed(error)),
        }
        // From here on, dropping `lock` releases it.
        let root = self.root.try_clone().map_err(|error| Error::new("lock", path, error))?;
        let mut lock = LocalLock { file, root, path: path.to_owned(), directory: None, read_only };
        if is_directory {
            return Ok(Some(Box::new(lock)));
        }
        lock.directory = match self.lock_directory() {
            Ok(locked) => Some(locked),
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(error) if cannot_be_locked(error) => None,
            Err(error) => return Err(failed(error)),
        };
        Ok(Some(Box::new(lock)))
    }
}

/// Whether the file system or the caller's permissions rule out locking a directory. NFS locks only
/// files that are open for writing, and a caller that may not list a directory cannot open it.
fn cannot_be_locked(error: Errno) -> bool {
    matches!(
        error,
        Errno::ACCESS
            | Errno::BADF
            | Errno::INVAL
            | Errno::NOLCK
            | Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::PERM
    )
}

/// One open file of a [`LocalDevice`].
#[derive(Debug)]
struct LocalFile {
    file: fs::File,
    path: String,
    /// Whether it is open for reading only, because its file system is read-only.
    read_only: bool,
}

impl LocalFile {
    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |error| Error::new(operation, &self.path, error)
    }

    /// Fails where nothing can be written.
    fn writable(&self, operation: &'static str) -> Result<()> {
        if self.read_only { Err(refused(operation, &self.path)) } else { Ok(()) }
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset, length) {
                Err(Errno::INTR) => {}
                other => return other.map_err(io::Error::from),
            }
        }
    }
}

impl File for LocalFile {
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read")(error).at(offset + filled as u64)),
            }
        }
        Ok(filled)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        let advice = rustix::fs::Advice::WillNeed;
        // If the disk ignores the hint, reads are only slower.
        rustix::fs::fadvise(&self.file, offset, length, advice).ok();
    }

    fn start_write(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        // Linux starts to write dirty pages, and drops from memory only those that are clean, which
        // what was just written is not.
        rustix::fs::fadvise(&self.file, offset, length, rustix::fs::Advice::DontNeed).ok();
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.writable("write")?;
        self.file.write_all_at(bytes, offset).map_err(self.failed("write"))
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(self.failed("sync"))
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|found| found.len()).map_err(self.failed("stat"))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.writable("set length")?;
        self.file.set_len(length).map_err(self.failed("set length"))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.writable("allocate")?;
        self.fallocate(FallocateFlags::empty(), offset, length).map_err(self.failed("allocate"))
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
        self.writable("punch")?;
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.fallocate(flags, offset, length) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::Unsupported => Ok(false),
            Err(error) => Err(self.failed("punch")(error)),
        }
    }

    fn disk_bytes(&self) -> Result<u64> {
        self.file
            .metadata()
            .map(|found| found.blocks().saturating_mul(512))
            .map_err(self.failed("stat"))
    }

    fn occupied(&self, offset: u64, length: u64) -> Result<u64> {
        let failed = |error: Errno| self.failed("seek")(error.into());
        let end = offset.saturating_add(length);
        let (mut at, mut found) = (offset, 0);
        while at < end {
            // All I/O is positional, so no code uses the file offset.
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(failed(error)),
            };
            if data >= end {
                break;
            }
            let hole = rustix::fs::seek(&self.file, SeekFrom::Hole(data)).map_err(failed)?;
            at = hole.min(end);
            found += at - data;
        }
        Ok(found)
    }
}

/// A held `flock` of a file and of the directory, which cannot be removed while it has files. A
/// process that removes and recreates the file gets another file, but no lock.
///
/// Closing both descriptors releases the locks too, unless a child process that was just started
/// still has them open. The child has them until its program runs.
#[derive(Debug)]
struct LocalLock {
    file: fs::File,
    /// The directory of the device.
    root: OwnedFd,
    path: String,
    /// That directory, where it can be locked.
    directory: Option<fs::File>,
    /// Whether nothing can be written there.
    read_only: bool,
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        // Both are closed in any case. Others check the file first, so it is unlocked last.
        if let Some(directory) = &self.directory {
            rustix::fs::flock(directory, FlockOperation::Unlock).unwrap_or_default();
        }
        rustix::fs::flock(&self.file, FlockOperation::Unlock).unwrap_or_default();
    }
}

impl Lock for LocalLock {
    fn describe(&self, text: &str) -> Result<()> {
        if self.read_only {
            return Err(refused("write", &self.path));
        }
        self.file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(text.as_bytes(), 0))
            .map_err(|error| Error::new("write", &self.path, error))
    }

    fn is_there(&self) -> Result<bool> {
        let failed = |error: Errno| Error::new("stat", &self.path, error.into());
        let held = rustix::fs::fstat(&self.file).map_err(failed)?;
        let path = below(&self.path);
        match rustix::fs::statat(&self.root, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(found) => Ok((found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(failed(error)),
        }
    }
}
