//! Reading a segment: its header, and what is known of it without one.
//!
//! A header holds nothing that is nowhere else. The volume's secret begins the checksum of each
//! record, so no other volume's passes; which record is the first is in the file's name, and in
//! that record; how long the file is tells the file. So where the header is damaged, and the first
//! record stands whole with the number that the name says, the records are as good as with it.
//! What only the header tells is whether the file lost its end: unless the next segment goes on
//! with the next record, something else has to speak for its length.
//!
//! A header that is whole is never doubted: one of another volume, of another record than the name
//! says, or of a newer version refuses the file. A segment that is used again gets its header
//! before its name, so that the records under a name are those that were written under it.

use device::File;
use format::Corruption;
use format::log_record::Record;
use format::log_segment::{Decoded, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader, VERSION};

use super::segment::Files;
use crate::{Error, Result};

/// What a segment begins with.
pub(super) enum Head {
    /// A header, and how long that says that the segment is.
    Whole(u64),
    /// None that can be read.
    Malformed(Corruption),
}

/// A header that is damaged, of a segment of which all else is known.
pub(super) struct BadHeader {
    pub(super) damage: Corruption,
    pub(super) path: String,
    pub(super) header: SegmentHeader,
}

/// Reads a whole segment and checks its header and length.
pub(super) fn read_segment(
    files: &Files,
    first: u64,
    path: &str,
    file: &dyn File,
) -> Result<Vec<u8>> {
    match read_beginning(files, first, path, file)? {
        (bytes, Head::Whole(length)) => of_length(path, bytes, length),
        (_, Head::Malformed(damage)) => Err(damage.into()),
    }
}

/// The bytes of a segment, which is to be so long.
pub(super) fn of_length(path: &str, bytes: Vec<u8>, length: u64) -> Result<Vec<u8>> {
    if length != bytes.len() as u64 {
        let found = bytes.len().to_string();
        return Err(bad_header(path, "as many bytes as the header says", found));
    }
    Ok(bytes)
}

/// Reads what there is of a segment, and its header. Fails where that is whole and refuses it.
pub(super) fn read_beginning(
    files: &Files,
    first: u64,
    path: &str,
    file: &dyn File,
) -> Result<(Vec<u8>, Head)> {
    let length = file.len()?;
    if length > SEGMENT_BYTES_MAX {
        return Err(bad_header(path, "a segment within bounds", format!("{length} bytes")));
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let header = match SegmentHeader::decode(&bytes) {
        Ok(Decoded::Header(header)) => header,
        Ok(Decoded::Newer(found)) => {
            return Err(Error::NewerFormat { file: path.to_owned(), found, known: VERSION });
        }
        Err(malformed) => return Ok((bytes, Head::Malformed(malformed.located(path, 0)))),
    };
    if header.volume != files.volume {
        return Err(bad_header(path, "this volume's id", format!("{:02x?}", header.volume)));
    }
    if header.first != first {
        let expected = "the first record that the file is named for";
        return Err(bad_header(path, expected, header.first.to_string()));
    }
    Ok((bytes, Head::Whole(header.bytes)))
}

fn bad_header(path: &str, expected: &str, found: String) -> Error {
    let (file, expected) = (path.to_owned(), expected.to_owned());
    Corruption { file, offset: 0, structure: "log segment header", expected, found }.into()
}

/// Whether the first record of a segment stands whole, with its number.
pub(super) fn begins_with(seed: u32, bytes: &[u8], first: u64) -> bool {
    let records = bytes.get(RECORDS_START as usize..).unwrap_or_default();
    Record::decode(seed, records)
        .is_ok_and(|record| !record.header.is_mark() && record.header.lsn == first)
}

/// Whether something says that a segment with a damaged header, whose records end at `end`, before
/// `next`, is as long as it was: segments are mostly of a `usual` length; what is left of the
/// header may say so; or a mark says that nothing followed.
pub(super) fn has_its_length(
    seed: u32,
    bytes: &[u8],
    (end, next): (usize, u64),
    usual: u64,
) -> bool {
    let length = bytes.len() as u64;
    // One that an earlier use of the file left has another number.
    let mark = Record::decode(seed, bytes.get(end..).unwrap_or_default());
    length == usual
        || SegmentHeader::stated_bytes(bytes) == Some(length)
        || mark.is_ok_and(|mark| mark.header.is_mark() && mark.header.lsn + 1 == next)
}
