//! Contents of files in records: all of a file, or what differs between two states of it.

use format::stream::{DATA_BYTES_MAX, Record};
use fs::{FileSystem, Fs, FsResult, Seek};
use inode::{Caller, FsError, NodeId};

use crate::error::{At, Result};
use crate::out::Out;

/// Bytes of one record: records of a file are divided at its multiples, so that the same file is
/// always divided alike.
const CHUNK: u64 = 128 << 10;
const _: () = assert!(CHUNK as usize <= DATA_BYTES_MAX);

/// A file that is read.
pub(crate) struct Source<'a> {
    pub(crate) fs: &'a Fs,
    pub(crate) caller: &'a Caller,
    pub(crate) node: NodeId,
    pub(crate) size: u64,
}

impl Source<'_> {
    /// What begins at a position: whether it is data, and where it ends.
    fn range(&self, from: u64) -> FsResult<(bool, u64)> {
        let data = match self.seek(from, Seek::Data) {
            Err(FsError::PastEnd) => return Ok((false, self.size)),
            found => found?.min(self.size),
        };
        if data > from {
            return Ok((false, data));
        }
        let hole = match self.seek(from, Seek::Hole) {
            Err(FsError::PastEnd) => self.size,
            found => found?.min(self.size),
        };
        // A range has a length, whatever a damaged file contains.
        if hole > from { Ok((true, hole)) } else { Err(FsError::Stale) }
    }

    fn seek(&self, from: u64, what: Seek) -> FsResult<u64> {
        self.fs.seek(self.caller, self.node, from, what)
    }

    /// Whether a range has no data.
    fn is_hole(&self, from: u64, to: u64) -> FsResult<bool> {
        if from >= self.size {
            return Ok(true);
        }
        let (is_data, end) = self.range(from)?;
        Ok(!is_data && (end >= to || end >= self.size))
    }

    fn read(&self, from: u64, buffer: &mut [u8]) -> FsResult<()> {
        let length = self.fs.read_untimed(self.caller, self.node, from, buffer)?;
        if length == buffer.len() { Ok(()) } else { Err(FsError::Stale) }
    }
}

/// Sends all contents of a file that is empty at the receiver.
pub(crate) fn whole(file: &Source<'_>, path: &[u8], out: &mut Out<'_>) -> Result<()> {
    let (mut at, mut buffer) = (0, Vec::new());
    let mut written = 0;
    while at < file.size {
        let (is_data, end) = file.range(at).at(path)?;
        if is_data {
            chunks(at, end, |from, to| {
                written = to;
                send(file, (from, to), path, &mut buffer, out)
            })?;
        }
        at = end;
    }
    if written < file.size { out.push(&Record::Size { size: file.size }) } else { Ok(()) }
}

/// Calls a function with the parts of a range.
fn chunks(from: u64, to: u64, mut each: impl FnMut(u64, u64) -> Result<()>) -> Result<()> {
    let mut at = from;
    while at < to {
        let end = to.min((at / CHUNK + 1) * CHUNK);
        each(at, end)?;
        at = end;
    }
    Ok(())
}

fn send(
    file: &Source<'_>,
    (from, to): (u64, u64),
    path: &[u8],
    buffer: &mut Vec<u8>,
    out: &mut Out<'_>,
) -> Result<()> {
    if !out.takes_bytes() {
        return out.pass(from, to - from);
    }
    buffer.resize((to - from) as usize, 0);
    file.read(from, buffer).at(path)?;
    out.push(&Record::Data { offset: from, bytes: buffer })
}

/// Sends what differs in a file that the receiver has in an older state.
pub(crate) fn changed(
    (old, new): (&Source<'_>, &Source<'_>),
    path: &[u8],
    out: &mut Out<'_>,
) -> Result<()> {
    if new.size < old.size {
        out.push(&Record::Size { size: new.size })?;
    }
    // What is behind the new end is gone.
    let old = &Source { size: old.size.min(new.size), ..*old };
    let mut buffers = (Vec::new(), Vec::new());
    let mut at = 0;
    while at < new.size {
        let (is_data, end) = new.range(at).at(path)?;
        if is_data {
            chunks(at, end, |from, to| {
                if same((old, new), (from, to), &mut buffers).at(path)? {
                    return Ok(());
                }
                send(new, (from, to), path, &mut buffers.1, out)
            })?;
        } else if !old.is_hole(at, end).at(path)? {
            out.push(&Record::Hole { offset: at, length: end - at })?;
        }
        at = end;
    }
    if new.size > old.size { out.push(&Record::Size { size: new.size }) } else { Ok(()) }
}

/// Whether a range of data has the same bytes in the old state, and no hole there.
fn same(
    (old, new): (&Source<'_>, &Source<'_>),
    (from, to): (u64, u64),
    (before, after): &mut (Vec<u8>, Vec<u8>),
) -> FsResult<bool> {
    if to > old.size {
        return Ok(false);
    }
    let (is_data, end) = old.range(from)?;
    if !is_data || end < to {
        return Ok(false);
    }
    let length = (to - from) as usize;
    before.resize(length, 0);
    after.resize(length, 0);
    old.read(from, before)?;
    new.read(from, after)?;
    Ok(before == after)
}
