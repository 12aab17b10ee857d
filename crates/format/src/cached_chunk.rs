//! A chunk of an object in a host's cache (`docs/format/cached-chunk.md`). The cache's directory is
//! not trusted: a chunk names the object and the place that it is of.

use crate::layout::Field;
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Writer};

/// The magic number of a chunk.
pub const MAGIC: [u8; 8] = *b"PANDOCHK";
/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Bytes of an object that a chunk holds, or fewer at the object's end.
pub const CHUNK_BYTES: usize = 128 << 10;
/// Maximum bytes of the name of an object.
pub const NAME_BYTES_MAX: usize = 1024;

/// Layout of a chunk.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("offset", "u64 LE", 8),
    Field::variable("name", "length varint, bytes"),
    Field::variable("data", "bytes"),
];

const SEAL: Seal =
    Seal { structure: "cached chunk", magic: MAGIC, version: VERSION, covers: Covers::All };

/// The place of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkId<'a> {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The object's name.
    pub name: &'a str,
    /// Offset of the chunk in the object.
    pub offset: u64,
}

/// A chunk's bytes on disk.
pub fn encode(place: &ChunkId<'_>, data: &[u8]) -> Vec<u8> {
    let mut rest = Vec::with_capacity(data.len().saturating_add(64));
    rest.raw(&place.volume);
    rest.put_u64(place.offset);
    rest.put_bytes(place.name.as_bytes());
    rest.raw(data);
    SEAL.seal(&rest)
}

/// The data of a chunk, if these bytes are one of this place. A newer version is not read.
pub fn decode<'a>(place: &ChunkId<'_>, bytes: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let (start, mut reader) = match SEAL.open(bytes)? {
        Opened::Body(_, reader) => (reader.clone(), reader),
        Opened::Newer(version) => {
            let start = crate::Reader::new("cached chunk", bytes);
            return Err(start.malformed("version 1", version.to_string()));
        }
    };
    let (volume, offset) = (reader.array::<16>()?, reader.u64()?);
    let length = reader.length(NAME_BYTES_MAX)?;
    let name = reader.take(length)?;
    if (volume, offset, name) != (place.volume, place.offset, place.name.as_bytes()) {
        return Err(start.malformed("a chunk of this place", "one of another"));
    }
    let before = reader.clone();
    let data = reader.take(reader.remaining())?;
    if data.is_empty() || data.len() > CHUNK_BYTES {
        return Err(before.malformed("the data of a chunk", format!("{} bytes", data.len())));
    }
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    const PLACE: ChunkId<'static> = ChunkId { volume: [3; 16], name: "run/1", offset: 1 << 20 };

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let bytes = encode(&PLACE, b"some data");
        assert_eq!(decode(&PLACE, &bytes), Ok(&b"some data"[..]));
        every_flipped_bit_and_truncation_is_refused(&bytes, |bad| decode(&PLACE, bad).is_err());
    }

    #[test]
    fn chunks_of_other_places_are_refused() {
        let bytes = encode(&PLACE, b"some data");
        for other in [
            ChunkId { volume: [4; 16], ..PLACE },
            ChunkId { name: "run/2", ..PLACE },
            ChunkId { offset: 0, ..PLACE },
        ] {
            assert!(decode(&other, &bytes).is_err(), "{other:?}");
        }
        assert!(decode(&PLACE, &encode(&PLACE, b"")).is_err());
        assert!(decode(&PLACE, &encode(&PLACE, &vec![0; CHUNK_BYTES + 1])).is_err());
        assert!(decode(&PLACE, &encode(&PLACE, &vec![0; CHUNK_BYTES])).is_ok());
        let newer = Seal { version: 2, ..SEAL }.seal(&bytes[16..]);
        assert!(decode(&PLACE, &newer).is_err());
    }
}
