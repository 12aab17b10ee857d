//! An export to a tar archive.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use wire::{Failure, FailureKind, Kind};

use super::staging::refuse_existing;
use super::{Exported, Sink};
use crate::archive::padding;
use crate::archive::write::{self, Member};
use crate::failure::{self, Result};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;

/// An archive that is written.
pub(crate) struct Archive {
    out: BufWriter<Box<dyn Write>>,
    /// The file, if it is one that this export made.
    file: Option<Made>,
    length: u64,
    header: Vec<u8>,
    /// Bytes that fill up the file begun.
    pad: usize,
    /// Names are below `.`, unless a single file is exported.
    below: bool,
}

/// A file that gets its name once it is complete. A process that is killed leaves nothing where
/// the file system can make files without names.
struct Made {
    file: File,
    path: PathBuf,
    /// The hidden name that it has until then, where it must have one.
    hidden: Option<PathBuf>,
}

impl Made {
    fn create(path: &Path) -> io::Result<Made> {
        let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
        let (mode, above) = (Mode::from_raw_mode(0o600), above(path));
        match rustix::fs::open(above, flags, mode) {
            Ok(file) => Ok(Made { file: file.into(), path: path.to_owned(), hidden: None }),
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT)
                if above.is_dir() =>
            {
                let mut hidden = OsString::from(".");
                hidden.push(path.file_name().unwrap_or_default());
                hidden.push(format!(".pando-export-{}", std::process::id()));
                let hidden = above.join(hidden);
                let mut options = File::options();
                let file = options.write(true).create_new(true).mode(0o600).open(&hidden)?;
                Ok(Made { file, path: path.to_owned(), hidden: Some(hidden) })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Makes it durable under its name, if nothing has that.
    fn publish(&self) -> io::Result<()> {
        self.file.sync_all()?;
        if let Some(hidden) = &self.hidden {
            // (Dropping this removes the other name.)
            std::fs::hard_link(hidden, &self.path)?;
        } else {
            let without_name = format!("/proc/self/fd/{}", self.file.as_raw_fd());
            rustix::fs::linkat(CWD, without_name, CWD, &self.path, AtFlags::SYMLINK_FOLLOW)?;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        // A directory that the caller may write to and not read cannot be opened.
        match rustix::fs::open(above(&self.path), flags, Mode::empty()) {
            Ok(parent) => Ok(rustix::fs::fsync(&parent)?),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if let Some(hidden) = &self.hidden {
            std::fs::remove_file(hidden).unwrap_or_default();
        }
    }
}

/// The directory of a file.
fn above(path: &Path) -> &Path {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

impl Archive {
    /// An archive on standard output.
    pub(crate) fn standard_output() -> Archive {
        Archive::new(Box::new(io::stdout()), None)
    }

    /// An archive in a new file, which only the caller may read: it may hold what others may not.
    pub(crate) fn create(path: &Path) -> Result<Archive> {
        refuse_existing(path)?;
        let made = Made::create(path).map_err(|error| failure::io("create", path, &error))?;
        let out = made.file.try_clone().map_err(|error| failure::io("write", path, &error))?;
        Ok(Archive::new(Box::new(out), Some(made)))
    }

    fn new(out: Box<dyn Write>, file: Option<Made>) -> Archive {
        Archive {
            out: BufWriter::with_capacity(BUFFER_BYTES, out),
            file,
            length: 0,
            header: Vec::new(),
            pad: 0,
            below: false,
        }
    }

    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|error| self.failed(&error))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    fn failed(&self, error: &io::Error) -> Failure {
        if let Some(made) = &self.file {
            return failure::io("write", &made.path, error);
        }
        let message = format!("cannot write to standard output: {error}");
        Failure::new(failure::io_kind(error), message)
            .hint("check the file or the program that reads standard output")
    }

    fn name(&self, path: &[u8]) -> Vec<u8> {
        if self.below { [b"./", path].concat() } else { path.to_vec() }
    }

    /// Writes the headers of a member, and remembers how its contents are filled up.
    fn member(
        &mut self,
        one: &Exported<'_>,
        (link, hard): (&[u8], bool),
        ranges: Option<&[(u64, u64)]>,
    ) -> Result<()> {
        let mut path = self.name(one.path);
        if one.attr.kind == Kind::Directory && !path.ends_with(b"/") {
            path.push(b'/');
        }
        let mut header = std::mem::take(&mut self.header);
        header.clear();
        let Exported { attr, xattrs, .. } = *one;
        let member = Member { path: &path, attr, xattrs, link, hard, ranges };
        let contents = write::member(&member, &mut header);
        self.pad = padding(contents);
        let wrote = self.write(&header);
        self.header = header;
        wrote
    }

    fn fill_up(&mut self) -> Result<()> {
        let zeros = [0; crate::archive::BLOCK];
        let pad = std::mem::take(&mut self.pad);
        self.write(&zeros[..pad])
    }
}

impl Sink for Archive {
    fn enter(&mut self, one: &Exported<'_>) -> Result<()> {
        self.below = true;
        self.member(one, (b"", false), None)
    }

    fn leave(&mut self, _one: &Exported<'_>) -> Result<()> {
        Ok(())
    }

    fn file(&mut self, one: &Exported<'_>, data: &[u8]) -> Result<()> {
        self.member(one, (b"", false), None)?;
        self.write(data)?;
        self.fill_up()
    }

    fn begin(&mut self, one: &Exported<'_>, ranges: &[(u64, u64)]) -> Result<()> {
        let whole = matches!(ranges, [(0, length)] if *length == one.attr.size);
        self.member(one, (b"", false), (!whole).then_some(ranges))
    }

    fn data(&mut self, bytes: &[u8]) -> Result<()> {
        self.write(bytes)
    }

    fn end(&mut self, _one: &Exported<'_>) -> Result<()> {
        self.fill_up()
    }

    fn other(&mut self, one: &Exported<'_>, target: &[u8]) -> Result<bool> {
        if one.attr.kind == Kind::Socket {
            return Ok(false);
        }
        self.member(one, (target, false), None).map(|()| true)
    }

    fn link(&mut self, one: &Exported<'_>, first: &[u8]) -> Result<()> {
        let first = self.name(first);
        self.member(one, (&first, true), None)
    }

    fn finish(&mut self) -> Result<()> {
        let mut end = Vec::new();
        write::end(self.length, &mut end);
        self.write(&end)?;
        self.out.flush().map_err(|error| self.failed(&error))?;
        match &self.file {
            Some(made) => made.publish().map_err(|error| failure::io("create", &made.path, &error)),
            None => Ok(()),
        }
    }
}

/// Refuses an archive on a terminal.
pub(crate) fn refuse_terminal() -> Result<()> {
    use std::io::IsTerminal;
    if !io::stdout().is_terminal() {
        return Ok(());
    }
    let message = "an archive is not written to a terminal";
    Err(Failure::new(FailureKind::Invalid, message).hint("name a file, or pipe it into a program"))
}
