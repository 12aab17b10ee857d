//! An export to a tar archive.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::num::NonZeroU64;
use std::path::Path;

use wire::{Failure, FailureKind, Kind};

use super::made::Made;
use super::staging::refuse_existing;
use super::{Exported, Sink};
use crate::archive::padding;
use crate::archive::write::{self, Member};
use crate::failure::{self, Result};

/// Bytes that are written at once.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes of a file that are written before the disk is asked to write them.
const START_BYTES: u64 = 8 << 20;

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

/// The file as it is written. From time to time the disk starts to write what is there: it would
/// be idle until the sync of all otherwise.
struct Writing {
    file: File,
    /// Where the next bytes go, and up to where the disk was asked to write.
    length: u64,
    started: u64,
}

impl Write for Writing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes)?;
        self.length += written as u64;
        let more = self.length - self.started;
        if more >= START_BYTES {
            // Linux drops from memory only what is on the disk. Where this is refused, the sync
            // does all of it.
            rustix::fs::fadvise(
                &self.file,
                self.started,
                NonZeroU64::new(more),
                rustix::fs::Advice::DontNeed,
            )
            .unwrap_or_default();
            self.started = self.length;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Archive {
    /// An archive on standard output.
    pub(crate) fn standard_output() -> Archive {
        Archive::new(Box::new(io::stdout()), None)
    }

    /// An archive in a new file, which only the caller may read: it may hold what others may not.
    pub(crate) fn create(path: &Path) -> Result<Archive> {
        refuse_existing(path)?;
        let made = Made::create(path)?;
        let file = made.file()?;
        let out = Writing { file, length: 0, started: 0 };
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
            return failure::io("write", made.path(), error);
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
        self.file.as_ref().map_or(Ok(()), Made::publish)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_complete_archive_stays_when_its_name_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("copy.tar");
        for hidden in [false, true] {
            let mut archive = Archive::create(&path).unwrap();
            if let Some(made) = archive.file.as_mut().filter(|_| hidden) {
                made.hide();
            }
            archive.write(b"text").unwrap();
            std::fs::write(&path, "another").unwrap();
            let failure = archive.finish().unwrap_err();
            drop(archive);
            assert_eq!(failure.kind, FailureKind::Exists);
            let entries = std::fs::read_dir(place.path()).unwrap();
            let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
            paths.sort();
            assert_eq!((paths.len(), &paths[0]), (2, &path));
            assert!(failure.hint.contains(&paths[1].display().to_string()), "{failure:?}");
            assert_eq!(std::fs::read(&paths[1]).unwrap()[..4], *b"text");
            assert_eq!(std::fs::read(&path).unwrap(), b"another");
            for path in paths {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
}
