//! The contents of files of the source: how they are sent, and compared with what is there.

use std::ffi::CStr;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use rustix::fs::Stat;
use wire::{Failure, Item, Kind};

use super::super::ahead::{self, Contents, Small};
use super::super::source::{self, Xattrs};
use super::super::tree::is_dressed;
use super::{Walk, borrowed};
use crate::failure::Result;

/// Contents of longer files travel in items of this length.
const DATA_BYTES: usize = 256 << 10;

impl Walk<'_> {
    /// Whether what an earlier run left under a name is all of this source's: it agrees in kind,
    /// length, time and target. Extended attributes cannot be compared.
    pub(super) fn is_left(&mut self, name: &CStr, stat: &Stat) -> Result<bool> {
        let Some(level) = self.levels.last() else { return Ok(false) };
        let Some(there) = level.existing.get(name.to_bytes()) else { return Ok(false) };
        if !is_dressed(&there.entry, &source::attr(stat, self.keep_owner)) {
            return Ok(false);
        }
        if source::kind(stat) != Kind::File {
            return Ok(true);
        }
        // What cannot be read is reported when it is to be sent.
        let Ok(file) = level.directory.open_file(name) else { return Ok(false) };
        if !source::xattrs_of(&file).is_ok_and(|xattrs| xattrs.is_empty()) {
            return Ok(false);
        }
        let path = self.relative(&self.path_of(name));
        let path = [&self.destination[..], b"/", &path].concat();
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut offset = 0;
        let same = stat.st_size == 0
            || self.stream.reads(&path, &mut |bytes| {
                buffer.resize(bytes.len().max(buffer.len()), 0);
                let own = source::read_at(&file, &mut buffer[..bytes.len()], offset);
                offset += bytes.len() as u64;
                own.is_ok_and(|length| &buffer[..length] == bytes)
            })?;
        self.buffer = buffer;
        Ok(same && offset == stat.st_size as u64 && source::change_of(&file, stat).is_none())
    }

    /// Reads a file and sends it.
    pub(super) fn file(&mut self, name: &CStr, path: &Path, hold: u64) -> Result<()> {
        let Some(level) = self.levels.last() else { return Ok(()) };
        let opened = level.directory.open_file(name).and_then(|file| {
            let stat = rustix::fs::fstat(&file)?;
            Ok((file, stat))
        });
        let (file, stat) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                self.not_sent(name, path, &error);
                return Ok(());
            }
        };
        let size = stat.st_size as u64;
        if size > ahead::SMALL_BYTES {
            let xattrs = self.xattrs(source::xattrs_of(&file), path);
            return self.long_file(name, path, &file, &stat, &xattrs, hold);
        }
        let mut contents = std::mem::take(&mut self.buffer);
        let sent = match ahead::read(&file, &stat, &mut contents, 0) {
            Ok(small) => self.small_file((name, path), &stat, (small, &contents, None), hold),
            Err(error) => {
                self.not_sent(name, path, &error);
                Ok(())
            }
        };
        self.buffer = contents;
        sent
    }

    /// Sends a file that travels in one item; its contents are copied if they are of no batch.
    pub(super) fn small_file(
        &mut self,
        (name, path): (&CStr, &Path),
        stat: &Stat,
        (read, contents, batch): (Small, &[u8], Option<&Arc<Contents>>),
        hold: u64,
    ) -> Result<()> {
        let Small { data: range, xattrs, changed } = read;
        let data = contents.get(range.clone()).unwrap_or_default();
        let mut attr = source::attr(stat, self.keep_owner);
        if changed {
            self.problem(path, &source::changed());
            attr.mtime = source::unfinished(attr.mtime);
        }
        let xattrs = self.xattrs(xattrs, path);
        self.outcome.imported += 1;
        self.outcome.bytes += data.len() as u64;
        let (name, xattrs) = (name.to_bytes(), borrowed(&xattrs));
        let item = Item::File { name, attr, xattrs, data, hold };
        match batch {
            Some(batch) => self.stream.push_of(&item, batch, range),
            None => self.stream.push(&item),
        }
    }

    fn long_file(
        &mut self,
        name: &CStr,
        path: &Path,
        file: &OwnedFd,
        stat: &Stat,
        xattrs: &Xattrs,
        hold: u64,
    ) -> Result<()> {
        self.stream.push(&Item::Begin { name: name.to_bytes() })?;
        let mut data = std::mem::take(&mut self.buffer);
        data.resize(DATA_BYTES, 0);
        let copied = self.contents(file, stat.st_size as u64, &mut data);
        self.buffer = data;
        match copied {
            Ok(Some(size)) => {
                let mut attr = source::attr(stat, self.keep_owner);
                if let Some(error) = source::change_of(file, stat) {
                    self.problem(path, &error);
                    attr.mtime = source::unfinished(attr.mtime);
                }
                self.outcome.imported += 1;
                self.stream.push(&Item::End { size, attr, xattrs: borrowed(xattrs), hold })
            }
            // Interrupted: without its last item the file does not look complete.
            Ok(None) => Ok(()),
            Err(Trouble::Source(error)) => {
                self.not_sent(name, path, &error);
                Ok(())
            }
            Err(Trouble::Owner(failure)) => Err(failure),
        }
    }

    /// Sends the contents without holes; returns the length, or `None` when interrupted.
    fn contents(
        &mut self,
        file: &OwnedFd,
        size: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<Option<u64>, Trouble> {
        let mut offset = 0;
        // What others append meanwhile is left to the next import.
        while offset < size
            && let Some((start, end)) = source::data_range(file, offset, size)?
        {
            offset = start;
            while offset < end.min(size) {
                if self.interrupted.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                let left = end.min(size) - offset;
                let want = (buffer.len() as u64).min(left) as usize;
                let length = source::read_at(file, &mut buffer[..want], offset)?;
                if length == 0 {
                    // It was truncated meanwhile.
                    return Ok(Some(offset));
                }
                let bytes = &buffer[..length];
                self.stream.push(&Item::Data { offset, bytes })?;
                self.outcome.bytes += length as u64;
                offset += length as u64;
            }
        }
        Ok(Some(size))
    }
}

/// Why contents were not copied.
enum Trouble {
    Source(io::Error),
    Owner(Failure),
}

impl From<io::Error> for Trouble {
    fn from(error: io::Error) -> Trouble {
        Trouble::Source(error)
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Owner(failure)
    }
}
