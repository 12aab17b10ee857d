//! The common head of one-piece files and blobs: a magic, a version, and a checksum of the rest.
//!
//! These keep their offsets in every version of every structure, so that a program can always
//! distinguish a newer version from a damaged one.

use crate::{Malformed, Reader, Writer};

/// Bytes before the body.
pub(crate) const HEAD_BYTES: usize = 16;
/// Offset of the checksum.
const CHECKSUM: usize = 12;

/// What the checksum covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Covers {
    /// The body. A newer version may cover something else, so its version number is trusted.
    Body,
    /// Magic, version and body, in every version.
    All,
}

/// A kind of sealed structure.
pub(crate) struct Seal {
    pub(crate) structure: &'static str,
    pub(crate) magic: [u8; 8],
    /// The version that is written, and the newest that is read.
    pub(crate) version: u32,
    pub(crate) covers: Covers,
}

/// The content behind a valid seal.
pub(crate) enum Opened<'a> {
    /// A body of this version or an older one.
    Body(u32, Reader<'a>),
    /// A newer version: its number.
    Newer(u32),
}

impl Seal {
    /// A body behind its head.
    pub(crate) fn seal(&self, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(body.len().saturating_add(HEAD_BYTES));
        out.raw(&self.magic);
        out.put_u32(self.version);
        out.put_u32(self.sum(&out, body));
        out.raw(body);
        out
    }

    fn sum(&self, head: &[u8], body: &[u8]) -> u32 {
        match self.covers {
            Covers::Body => crc32c::crc32c(body),
            Covers::All => crc32c::crc32c_append(crc32c::crc32c(head), body),
        }
    }

    /// Checks the head of a structure that is exactly these bytes. If it is valid, the reader is
    /// positioned at the body.
    pub(crate) fn open<'a>(&self, bytes: &'a [u8]) -> Result<Opened<'a>, Malformed> {
        let mut reader = Reader::new(self.structure, bytes);
        let start = reader.clone();
        let magic = reader.array::<8>()?;
        if magic != self.magic {
            return Err(start.malformed("its magic", format!("{magic:02x?}")));
        }
        let version = reader.u32()?;
        let newer = version > self.version;
        if newer && self.covers == Covers::Body {
            return Ok(Opened::Newer(version));
        }
        let stated = reader.u32()?;
        let head = bytes.get(..CHECKSUM).unwrap_or_default();
        let sum = self.sum(head, bytes.get(HEAD_BYTES..).unwrap_or_default());
        if sum != stated || version == 0 {
            let found = format!("version {version}, {stated:08x} over bytes of sum {sum:08x}");
            return Err(start.malformed("its checksum", found));
        }
        Ok(if newer { Opened::Newer(version) } else { Opened::Body(version, reader) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(covers: Covers) -> Seal {
        Seal { structure: "test", magic: *b"MAGIC123", version: 2, covers }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected_or_looks_newer() {
        for covers in [Covers::Body, Covers::All] {
            let seal = kind(covers);
            let bytes = seal.seal(b"body");
            let Ok(Opened::Body(2, mut reader)) = seal.open(&bytes) else { panic!("whole") };
            assert_eq!(reader.take(4).unwrap(), b"body");
            for bit in 0..bytes.len() * 8 {
                let mut bad = bytes.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                match seal.open(&bad) {
                    Ok(Opened::Body(version, _)) => {
                        // Only where the version is not covered, and is an older one.
                        assert!(covers == Covers::Body && version < 2 && bit / 8 == 8, "{bit}");
                    }
                    Ok(Opened::Newer(_)) => assert_eq!(covers, Covers::Body, "{bit}"),
                    Err(_) => {}
                }
            }
            for length in 0..bytes.len() {
                assert!(seal.open(&bytes[..length]).is_err(), "{length}");
            }
        }
    }

    #[test]
    fn a_newer_version_is_reported() {
        for covers in [Covers::Body, Covers::All] {
            let newer = Seal { version: 3, ..kind(covers) }.seal(b"what it likes");
            assert!(matches!(kind(covers).open(&newer), Ok(Opened::Newer(3))));
        }
    }
}
