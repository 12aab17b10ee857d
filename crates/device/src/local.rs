//! The operating system's files behind [`Device`]: one directory, positional I/O.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, SeekFrom, StatVfs};

use crate::{Device, Error, File, Lock, Metadata, Result, Space};

/// A volume has no symbolic links but for the directory of its log, if that is elsewhere; one that
/// somebody put in the place of a file must not lead the superuser astray.
const NO_LINKS: i32 = rustix::fs::OFlags::NOFOLLOW.bits() as i32;

/// Files below a directory of the operating system.
#[derive(Debug)]
pub struct LocalDevice {
    root: PathBuf,
    /// Who gets what the superuser makes in somebody else's directory: its owner and group, so
    /// that he can still open it.
    give_to: Option<(u32, u32)>,
}

impl LocalDevice {
    /// The directory must exist.
    pub fn open(root: &Path) -> Result<LocalDevice> {
        let root = fs::canonicalize(root)
            .map_err(|error| Error::new("open", &root.to_string_lossy(), error))?;
        let found = fs::metadata(&root)
            .map_err(|error| Error::new("open", &root.to_string_lossy(), error))?;
        if found.is_dir() {
            let others = found.uid() != 0 && rustix::process::geteuid().is_root();
            Ok(LocalDevice { root, give_to: others.then(|| (found.uid(), found.gid())) })
        } else {
            let error = io::Error::from(io::ErrorKind::NotADirectory);
            Err(Error::new("open", &root.to_string_lossy(), error))
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        debug_assert!(!path.starts_with('/') && !path.split('/').any(|part| part == ".."));
        self.root.join(path)
    }

    fn give(&self, path: &str) -> Result<()> {
        let Some((uid, gid)) = self.give_to else { return Ok(()) };
        std::os::unix::fs::lchown(self.path(path), Some(uid), Some(gid))
            .map_err(|error| Error::new("give to the directory's owner", path, error))
    }

    fn open_with(&self, path: &str, options: &fs::OpenOptions) -> Result<Arc<dyn File>> {
        let file =
            options.open(self.path(path)).map_err(|error| Error::new("open", path, error))?;
        Ok(Arc::new(LocalFile { file, path: path.to_owned() }))
    }
}

impl Device for LocalDevice {
    fn open(&self, path: &str) -> Result<Arc<dyn File>> {
        self.open_with(path, fs::OpenOptions::new().read(true).write(true).custom_flags(NO_LINKS))
    }

    fn create(&self, path: &str) -> Result<Arc<dyn File>> {
        let mut options = fs::OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = self.open_with(path, &options)?;
        self.give(path)?;
        Ok(file)
    }

    fn metadata(&self, path: &str) -> Result<Option<Metadata>> {
        match fs::symlink_metadata(self.path(path)) {
            Ok(found) => Ok(Some(Metadata {
                length: if found.is_dir() { 0 } else { found.len() },
                disk_bytes: found.blocks().saturating_mul(512),
                directory: found.is_dir(),
            })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::new("stat", path, error)),
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>> {
        let failed = |error| Error::new("list", directory, error);
        let mut names = Vec::new();
        for entry in fs::read_dir(self.path(directory)).map_err(failed)? {
            // Names that are not UTF-8 are not ours.
            if let Ok(name) = entry.map_err(failed)?.file_name().into_string() {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    fn create_dir(&self, directory: &str) -> Result<()> {
        match fs::DirBuilder::new().mode(0o700).create(self.path(directory)) {
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && self.path(directory).is_dir() =>
            {
                Ok(())
            }
            Err(error) => Err(Error::new("create directory", directory, error)),
            Ok(()) => self.give(directory),
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is the seam")]
    fn rename(&self, from: &str, to: &str) -> Result<()> {
        fs::rename(self.path(from), self.path(to))
            .map_err(|error| Error::new("rename", from, error))
    }

    fn remove(&self, path: &str) -> Result<()> {
        fs::remove_file(self.path(path)).map_err(|error| Error::new("remove", path, error))
    }

    fn sync_dir(&self, directory: &str) -> Result<()> {
        let mut options = fs::OpenOptions::new();
        options
            .read(true)
            .open(self.path(directory))
            .and_then(|opened| opened.sync_all())
            .map_err(|error| Error::new("sync directory", directory, error))
    }

    fn is_elsewhere(&self, directory: &str) -> Result<bool> {
        let medium = |path: &str| {
            let found = fs::metadata(self.path(path));
            found.map(|found| found.dev()).map_err(|error| Error::new("stat", path, error))
        };
        Ok(medium(directory)? != medium("")?)
    }

    fn space(&self) -> Result<Space> {
        let StatVfs { f_blocks, f_bavail, f_frsize, .. } = rustix::fs::statvfs(&self.root)
            .map_err(|error| Error::new("statvfs", "", error.into()))?;
        Ok(Space {
            total_bytes: f_blocks.saturating_mul(f_frsize),
            free_bytes: f_bavail.saturating_mul(f_frsize),
        })
    }

    fn try_lock(&self, path: &str) -> Result<Option<Box<dyn Lock>>> {
        let file = fs::OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644)
            .custom_flags(NO_LINKS)
            .open(self.path(path))
            .map_err(|error| Error::new("open", path, error))?;
        self.give(path)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(LocalLock { file, path: path.to_owned() }))),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(Error::new("lock", path, error.into())),
        }
    }
}

/// One open file of a [`LocalDevice`].
#[derive(Debug)]
struct LocalFile {
    file: fs::File,
    path: String,
}

impl LocalFile {
    fn failed(&self, operation: &'static str) -> impl FnOnce(io::Error) -> Error + '_ {
        move |error| Error::new(operation, &self.path, error)
    }

    fn fallocate(&self, flags: FallocateFlags, offset: u64, length: u64) -> io::Result<()> {
        loop {
            match rustix::fs::fallocate(&self.file, flags, offset, length) {
                Err(rustix::io::Errno::INTR) => {}
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
                Err(error) => return Err(self.failed("read")(error)),
            }
        }
        Ok(filled)
    }

    fn prefetch(&self, offset: u64, length: u64) {
        let length = std::num::NonZeroU64::new(length);
        let advice = rustix::fs::Advice::WillNeed;
        // Where the medium takes no advice, reading is only slower.
        rustix::fs::fadvise(&self.file, offset, length, advice).ok();
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(self.failed("write"))
    }

    fn sync_data(&self) -> Result<()> {
        self.file.sync_data().map_err(self.failed("sync"))
    }

    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|found| found.len()).map_err(self.failed("stat"))
    }

    fn set_len(&self, length: u64) -> Result<()> {
        self.file.set_len(length).map_err(self.failed("set length"))
    }

    fn allocate(&self, offset: u64, length: u64) -> Result<()> {
        self.fallocate(FallocateFlags::empty(), offset, length).map_err(self.failed("allocate"))
    }

    fn punch(&self, offset: u64, length: u64) -> Result<bool> {
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
        let failed = |error: rustix::io::Errno| self.failed("seek")(error.into());
        let end = offset.saturating_add(length);
        let (mut at, mut found) = (offset, 0);
        while at < end {
            // Nobody reads or writes at the file's own offset.
            let data = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
                Ok(data) => data,
                Err(rustix::io::Errno::NXIO) => break,
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

/// A held `flock`. Closing the file would release it too, but not while a process that was started
/// just before has the file open still, as it has until its program runs.
#[derive(Debug)]
struct LocalLock {
    file: fs::File,
    path: String,
}

impl Drop for LocalLock {
    fn drop(&mut self) {
        // The file is closed in any case.
        rustix::fs::flock(&self.file, FlockOperation::Unlock).unwrap_or_default();
    }
}

impl Lock for LocalLock {
    fn describe(&self, text: &str) -> Result<()> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.write_all_at(text.as_bytes(), 0))
            .map_err(|error| Error::new("write", &self.path, error))
    }
}
