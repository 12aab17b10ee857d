//! A new file that is visible once it is complete: an archive of an export, a trace.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;

use super::staging;
use crate::failure::{self, Result};

/// A file that gets its name once it is complete. A process that is killed leaves nothing where
/// the file system can make files without names.
pub(crate) struct Made {
    file: File,
    path: PathBuf,
    /// The directory that it will be in, and its name there.
    parent: OwnedFd,
    last: CString,
    /// The hidden name that it has until then, where it must have one.
    hidden: Option<CString>,
}

impl Made {
    /// Makes the file, which only the caller may read.
    pub(crate) fn create(path: &Path) -> Result<Made> {
        let failed = |error: Errno| failure::io("create", path, &error.into());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let parent = rustix::fs::open(above(path), flags, Mode::empty()).map_err(failed)?;
        let last = staging::of(path.file_name().unwrap_or_default().as_bytes())?;
        let made = |hidden: Option<&CStr>| {
            let name = hidden.unwrap_or(c".");
            let how = match hidden {
                Some(_) => OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW,
                None => OFlags::TMPFILE,
            };
            let flags = OFlags::WRONLY | OFlags::CLOEXEC | how;
            rustix::fs::openat(&parent, name, flags, Mode::RUSR | Mode::WUSR).map(File::from)
        };
        match made(None) {
            // It gets its name through /proc, which is not there in every container.
            Ok(file) if Path::new(&open_file(&file)).symlink_metadata().is_ok() => {
                return Ok(Made { file, path: path.to_owned(), parent, last, hidden: None });
            }
            Ok(_) | Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT) => {}
            Err(error) => return Err(failed(error)),
        }
        let hidden = staging::of(&staging::hidden_at_random(last.to_bytes()))?;
        let file = made(Some(&hidden)).map_err(failed)?;
        Ok(Made { file, path: path.to_owned(), parent, last, hidden: Some(hidden) })
    }

    /// Where it will be.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The file, to write to it.
    pub(crate) fn file(&self) -> Result<File> {
        self.file.try_clone().map_err(|error| failure::io("write", &self.path, &error))
    }

    /// Gives it a hidden name, as where files without names cannot be made.
    #[cfg(test)]
    pub(super) fn hide(&mut self) {
        let name = staging::of(&staging::hidden_at_random(self.last.to_bytes())).unwrap();
        self.name(&name).unwrap();
        self.hidden = Some(name);
    }

    /// Makes it durable under its name, or under another one if something has that.
    pub(crate) fn publish(&self) -> Result<()> {
        let failed = |doing: &str, error: &io::Error| failure::io(doing, &self.path, error);
        self.file.sync_all().map_err(|error| failed("make durable", &error))?;
        let mut other = None;
        match self.name(&self.last) {
            Err(Errno::EXIST) => {
                let name = staging::of(&staging::beside(self.last.to_bytes()))?;
                self.name(&name).map_err(|error| failed("create", &error.into()))?;
                other = Some(name);
            }
            named => named.map_err(|error| failed("create", &error.into()))?,
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that the caller may write to and not read cannot be opened.
        if let Ok(parent) = rustix::fs::openat(&self.parent, c".", flags, Mode::empty()) {
            let durable = rustix::fs::fsync(&parent);
            durable.map_err(|error| failed("make durable", &error.into()))?;
        }
        other.map_or(Ok(()), |other| Err(staging::taken(&self.path, &other)))
    }

    /// Gives it a name, if nothing has that.
    fn name(&self, name: &CStr) -> rustix::io::Result<()> {
        if let Some(hidden) = &self.hidden {
            return staging::rename(&self.parent, hidden, &self.parent, name);
        }
        let (from, flags) = (open_file(&self.file), AtFlags::SYMLINK_FOLLOW);
        rustix::fs::linkat(CWD, from, &self.parent, name, flags)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        // Once it has its name, it has no other one.
        if let Some(hidden) = &self.hidden {
            rustix::fs::unlinkat(&self.parent, hidden, AtFlags::empty()).unwrap_or_default();
        }
    }
}

/// The path by which this process names an open file.
fn open_file(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// The directory of a file.
fn above(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}
