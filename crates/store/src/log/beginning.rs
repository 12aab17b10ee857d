//! Reading a segment: its header, and what is known of it without one.
//!
//! All fields of a header are also stored elsewhere. The volume's secret seeds the checksum of each
//! record, so records of other volumes fail it. The file's name and the first record give the first
//! record's number. The file's length gives the segment's. So a damaged header does not matter if
//! the first record is intact and has the number in the name. Only the header reveals whether the
//! file lost its end: unless the next segment begins with the next record, other evidence must
//! confirm the length.
//!
//! An intact header is always trusted. One of another volume, of a record that its name does not
//! give, or of a newer version refuses the file. A reused segment gets its header before its name,
//! so the records under a name are those written under it.

use device::File;
use format::Corruption;
use format::log_record::Record;
use format::log_segment::{Decoded, RECORDS_START, SEGMENT_BYTES_MAX, SegmentHeader, VERSION};

use super::segment::Files;
use crate::{Error, Result};

/// The beginning of a segment.
pub(super) enum Head {
    /// An intact header, and the segment's length according to it.
    Whole(u64),
    /// An unreadable header.
    Malformed(Corruption),
}

/// A damaged header of a segment whose other fields are all known.
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

/// Checks that the segment's bytes have this length.
pub(super) fn of_length(path: &str, bytes: Vec<u8>, length: u64) -> Result<Vec<u8>> {
    if length != bytes.len() as u64 {
        let found = bytes.len().to_string();
        return Err(bad_header(path, "as many bytes as in the header", found));
    }
    Ok(bytes)
}

/// Reads the available bytes of a segment, and its header. Fails if the header is intact and
/// refuses the file.
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
    Corruption { file, offset: 0, structure: "log segment header", expected, found, unread: false }
        .into()
}

/// Whether the first record of a segment is intact and has its number.
pub(super) fn begins_with(seed: u32, bytes: &[u8], first: u64) -> bool {
    let records = bytes.get(RECORDS_START as usize..).unwrap_or_default();
    Record::decode(seed, records)
        .is_ok_and(|record| !record.header.is_mark() && record.header.lsn == first)
}

/// Whether there is evidence that a segment with a damaged header has its original length. Its
/// records end at `end`, before `next`. Most segments have the `usual` length; the rest of the
/// header may state it; or a mark shows that no record followed.
pub(super) fn has_its_length(
    seed: u32,
    bytes: &[u8],
    (end, next): (usize, u64),
    usual: u64,
) -> bool {
    let length = bytes.len() as u64;
    // A mark from an earlier use of the file has another number.
    let mark = Record::decode(seed, bytes.get(end..).unwrap_or_default());
    length == usual
        || SegmentHeader::stated_bytes(bytes) == Some(length)
        || mark.is_ok_and(|mark| mark.header.is_mark() && mark.header.lsn + 1 == next)
}
