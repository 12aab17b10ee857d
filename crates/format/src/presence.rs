//! A sign of life of a process that has a volume open (`docs/format/presence.md`): an object whose
//! number rises while the process lives.

use crate::layout::Field;
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// The magic number of a sign.
pub const MAGIC: [u8; 8] = *b"PANDOALV";
/// The newest version that this program writes and reads.
pub const VERSION: u32 = 1;
/// Maximum bytes of the names in a sign.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum bytes of a sign.
pub const PRESENCE_BYTES_MAX: usize = 640;
/// Maximum period in milliseconds: one hour.
pub const PERIOD_MAX: u32 = 3_600_000;

/// Layout of a sign.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "bytes", 16),
    Field::fixed("opening", "bytes", 16),
    Field::fixed("number", "u64 LE", 8),
    Field::fixed("period", "u32 LE", 4),
    Field::fixed("pid", "u32 LE", 4),
    Field::fixed("started", "i64 LE", 8),
    Field::fixed("written", "i64 LE", 8),
    Field::variable("host", "length varint, bytes"),
    Field::variable("user", "length varint, bytes"),
];

const SEAL: Seal =
    Seal { structure: "sign of life", magic: MAGIC, version: VERSION, covers: Covers::All };

/// A sign of life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presence {
    /// The volume's id.
    pub volume: [u8; 16],
    /// The random id of the opening.
    pub opening: [u8; 16],
    /// Counts the signs of one opening.
    pub number: u64,
    /// Milliseconds from one sign to the next.
    pub period: u32,
    /// The process on its host.
    pub pid: u32,
    /// When the volume was opened, nanoseconds since 1970 on the clock of that host.
    pub started: i64,
    /// When this sign was written, on the same clock.
    pub written: i64,
    /// The host's name.
    pub host: String,
    /// The user's name.
    pub user: String,
}

/// A decoded sign.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// One of this version.
    Presence(Presence),
    /// A newer version: its number.
    Newer(u32),
}

impl Presence {
    /// Its bytes. Names that are longer than a sign holds are cut.
    pub fn encode(&self) -> Vec<u8> {
        let mut rest = Vec::new();
        rest.raw(&self.volume);
        rest.raw(&self.opening);
        rest.put_u64(self.number);
        rest.put_u32(self.period);
        rest.put_u32(self.pid);
        rest.put_i64(self.started);
        rest.put_i64(self.written);
        for name in [&self.host, &self.user] {
            let end = (0..=NAME_BYTES_MAX).rev().find(|end| name.is_char_boundary(*end));
            let cut = name.get(..end.unwrap_or(0)).unwrap_or(name);
            rest.put_bytes(cut.as_bytes());
        }
        SEAL.seal(&rest)
    }

    /// Reads and checks a whole sign.
    pub fn decode(bytes: &[u8]) -> Result<Decoded, Malformed> {
        let mut reader = match SEAL.open(bytes)? {
            Opened::Body(_, reader) => reader,
            Opened::Newer(version) => return Ok(Decoded::Newer(version)),
        };
        let (volume, opening) = (reader.array()?, reader.array()?);
        let number = reader.counted()?;
        let before = reader.clone();
        let period = reader.u32()?;
        if !(1..=PERIOD_MAX).contains(&period) {
            return Err(before.malformed("a period up to an hour", period.to_string()));
        }
        let (pid, started, written) = (reader.u32()?, reader.i64()?, reader.i64()?);
        let (host, user) = (name(&mut reader)?, name(&mut reader)?);
        reader.end()?;
        Ok(Decoded::Presence(Presence {
            volume,
            opening,
            number,
            period,
            pid,
            started,
            written,
            host,
            user,
        }))
    }
}

fn name(reader: &mut Reader<'_>) -> Result<String, Malformed> {
    let before = reader.clone();
    let length = reader.length(NAME_BYTES_MAX)?;
    let bytes = reader.take(length)?.to_vec();
    String::from_utf8(bytes).map_err(|_| before.malformed("a name in UTF-8", "other bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn sign() -> Presence {
        Presence {
            volume: [1; 16],
            opening: [2; 16],
            number: 7,
            period: 2000,
            pid: 812,
            started: -5,
            written: 1 << 60,
            host: "host.example".to_owned(),
            user: "root".to_owned(),
        }
    }

    #[test]
    fn every_flipped_bit_and_truncation_is_detected() {
        let bytes = sign().encode();
        assert_eq!(Presence::decode(&bytes), Ok(Decoded::Presence(sign())));
        every_flipped_bit_and_truncation_is_refused(&bytes, |bad| Presence::decode(bad).is_err());
    }

    #[test]
    fn long_names_are_cut_and_bad_fields_refused() {
        let long = Presence { host: "\u{e4}".repeat(200), user: "x".repeat(300), ..sign() };
        let bytes = long.encode();
        assert!(bytes.len() <= PRESENCE_BYTES_MAX);
        let Ok(Decoded::Presence(found)) = Presence::decode(&bytes) else { panic!("valid") };
        assert_eq!((found.host.len(), found.user.len()), (254, 255));
        for bad in [
            Presence { period: 0, ..sign() },
            Presence { period: PERIOD_MAX + 1, ..sign() },
            Presence { number: u64::MAX, ..sign() },
        ] {
            assert!(Presence::decode(&bad.encode()).is_err(), "{bad:?}");
        }
        let newer = Seal { version: 2, ..SEAL }.seal(b"what it likes");
        assert_eq!(Presence::decode(&newer), Ok(Decoded::Newer(2)));
    }
}
