//! `volume.pando` and its copy: the identity of a volume (`docs/format/volume.md`). Written once,
//! by `format`; the first gets its name last.
//!
//! A volume in a directory has version 1. Version 2 is the header of a volume in an object store.
//! It is an object there, and is also in each host directory of that volume, with the store's URL.
//! Version 3 is the header of a volume whose inodes have a home other than 0.

use crate::key::INODE_HOME_MAX;
use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// Name of the file in the volume directory.
pub const FILE: &str = "volume.pando";
/// Name of a second file of the same bytes.
pub const COPY: &str = "volume.copy";
/// Name of the first while the volume is being made.
pub const UNFINISHED: &str = "volume.pando.new";
/// The magic number of the file.
pub const MAGIC: [u8; 8] = *b"PANDOVOL";
/// The newest version that this program reads.
pub const VERSION: u32 = 3;
/// The version of a volume whose files are in one directory.
pub const VERSION_OF_DIRECTORY: u32 = 1;
/// The version of a volume in an object store whose inodes have home 0.
pub const VERSION_OF_OBJECTS: u32 = 2;
/// Longest name of the virtual directory of snapshots.
pub const SNAPSHOT_DIR_BYTES_MAX: usize = 64;
/// Longest URL of an object store.
pub const URL_BYTES_MAX: usize = 1024;
/// Most bytes of the file: a reader need not read more.
pub const BYTES_MAX: usize = 1280;

/// Layout of the file.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "8 bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("length", "u32 LE", 4),
    Field::fixed("engine", "u32 LE", 4),
    Field::fixed("volume_id", "16 bytes", 16),
    Field::fixed("hash_key", "16 bytes", 16),
    Field::fixed("created", "i64 LE", 8),
    Field::fixed("snapshot_dir_length", "u8", 1),
    Field::variable("snapshot_dir", "bytes"),
    Field::variable("home", "u8"),
    Field::variable("url_length", "u16 LE"),
    Field::variable("url", "bytes"),
    Field::variable("inode_home", "u16 LE"),
];

const FIXED_BYTES: usize = 65;
const _: () = assert!(size_of(LAYOUT) == FIXED_BYTES);
/// Bytes of the fields `home` and `url_length`.
const HOME_BYTES: usize = 3;

/// The seal of a version that is written.
const fn seal(version: u32) -> Seal {
    Seal { structure: "volume header", magic: MAGIC, version, covers: Covers::Body }
}

/// Where the files of a volume are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Home {
    /// In the directory of this header.
    #[default]
    Directory,
    /// In the object store of which this header is an object.
    Objects,
    /// In the object store with this URL. The directory of this header belongs to one host.
    Host(String),
}

/// The engine that stores the trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineKind {
    /// The copy-on-write B-tree.
    Btree,
    /// The log-structured engine.
    Lsm,
}

impl EngineKind {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    const fn number(self) -> u32 {
        match self {
            EngineKind::Btree => 1,
            EngineKind::Lsm => 2,
        }
    }

    const fn decode(number: u32) -> Option<EngineKind> {
        match number {
            1 => Some(EngineKind::Btree),
            2 => Some(EngineKind::Lsm),
            _ => None,
        }
    }
}

/// The identity of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeHeader {
    /// Random name of the volume.
    pub volume_id: [u8; 16],
    /// The engine.
    pub engine: EngineKind,
    /// Secret of the hash of names.
    pub hash_key: [u8; 16],
    /// When it was made, in nanoseconds since 1970.
    pub created: i64,
    /// Name of the virtual directory of snapshots.
    pub snapshot_dir: Vec<u8>,
    /// Where the volume's files are.
    pub home: Home,
    /// The home of the inodes that it makes; at most [`INODE_HOME_MAX`].
    pub inode_home: u16,
}

/// Why bytes are not a valid header.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// Another magic: this is not a volume.
    #[error("not a volume header")]
    NotAVolume,
    /// A newer program wrote it.
    #[error("format version {0}")]
    Newer(u32),
    /// It is damaged.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

impl VolumeHeader {
    /// Whether nothing stored may have a name: front ends show something else there.
    #[inline]
    pub fn reserves(&self, name: &[u8]) -> bool {
        name == self.snapshot_dir
    }

    /// The version of its format.
    pub fn version(&self) -> u32 {
        match self.home {
            _ if self.inode_home > 0 => VERSION,
            Home::Directory => VERSION_OF_DIRECTORY,
            Home::Objects | Home::Host(_) => VERSION_OF_OBJECTS,
        }
    }

    /// The file's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let name_length = u8::try_from(self.snapshot_dir.len()).unwrap_or(u8::MAX);
        let url = match &self.home {
            Home::Host(url) => url.as_bytes(),
            Home::Directory | Home::Objects => &[],
        };
        let url_length = u16::try_from(url.len()).unwrap_or(u16::MAX);
        let version = self.version();
        let more = match version {
            VERSION_OF_DIRECTORY => 0,
            VERSION_OF_OBJECTS => HOME_BYTES.saturating_add(usize::from(url_length)),
            _ => HOME_BYTES.saturating_add(usize::from(url_length)).saturating_add(2),
        };
        let length = FIXED_BYTES.saturating_add(usize::from(name_length)).saturating_add(more);
        body.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        body.put_u32(self.engine.number());
        body.raw(&self.volume_id);
        body.raw(&self.hash_key);
        body.put_i64(self.created);
        body.put_u8(name_length);
        body.raw(self.snapshot_dir.get(..usize::from(name_length)).unwrap_or_default());
        if version > VERSION_OF_DIRECTORY {
            body.put_u8(match self.home {
                Home::Directory => 0,
                Home::Objects => 1,
                Home::Host(_) => 2,
            });
            body.put_u16(url_length);
            body.raw(url.get(..usize::from(url_length)).unwrap_or_default());
        }
        if version > VERSION_OF_OBJECTS {
            body.put_u16(self.inode_home);
        }
        seal(version).seal(&body)
    }

    /// Reads the file's bytes. The magic and the version are checked first: they have the same
    /// offsets in every version.
    pub fn decode(bytes: &[u8]) -> Result<VolumeHeader, HeaderError> {
        if bytes.get(..MAGIC.len()).is_some_and(|magic| magic != MAGIC) {
            return Err(HeaderError::NotAVolume);
        }
        let (version, mut reader) = match seal(VERSION).open(bytes)? {
            Opened::Body(version, reader) => (version, reader),
            Opened::Newer(version) => return Err(HeaderError::Newer(version)),
        };
        let length = reader.u32()?;
        if usize::try_from(length) != Ok(bytes.len()) {
            return Err(reader.malformed("the length of the file", length.to_string()).into());
        }
        let number = reader.u32()?;
        let engine = EngineKind::decode(number)
            .ok_or_else(|| reader.malformed("an engine", number.to_string()))?;
        let volume_id = reader.array()?;
        let hash_key = reader.array()?;
        let created = reader.i64()?;
        let name_length = reader.u8()?;
        let snapshot_dir = reader.take(usize::from(name_length))?.to_vec();
        let home =
            if version == VERSION_OF_DIRECTORY { Home::Directory } else { home(&mut reader)? };
        if version == VERSION_OF_OBJECTS && home == Home::Directory {
            return Err(reader.malformed("a home of an object store", "a directory").into());
        }
        let inode_home = if version > VERSION_OF_OBJECTS { reader.u16()? } else { 0 };
        reader.end()?;
        if version > VERSION_OF_OBJECTS && !(1..=INODE_HOME_MAX).contains(&u64::from(inode_home)) {
            return Err(reader.malformed("a home of inodes", inode_home.to_string()).into());
        }
        if snapshot_dir.is_empty() || snapshot_dir.len() > SNAPSHOT_DIR_BYTES_MAX {
            return Err(reader.malformed("a name of snapshots", name_length.to_string()).into());
        }
        Ok(VolumeHeader { volume_id, engine, hash_key, created, snapshot_dir, home, inode_home })
    }
}

/// The fields that version 2 adds.
fn home(reader: &mut Reader<'_>) -> Result<Home, Malformed> {
    let kind = reader.u8()?;
    let length = usize::from(reader.u16()?);
    let url = reader.take(length)?.to_vec();
    match (kind, String::from_utf8(url)) {
        (0, Ok(url)) if url.is_empty() => Ok(Home::Directory),
        (1, Ok(url)) if url.is_empty() => Ok(Home::Objects),
        (2, Ok(url)) if !url.is_empty() && length <= URL_BYTES_MAX => Ok(Home::Host(url)),
        _ => Err(reader.malformed("a home and its URL", format!("{kind}, {length} bytes"))),
    }
}

/// Whether two files are equal except for the fields of version and checksum. No program writes
/// such a pair, because a newer version differs elsewhere too. So these fields of one of them are
/// damaged.
pub fn differ_in_version_only(one: &[u8], other: &[u8]) -> bool {
    let parts = |bytes: &[u8]| {
        let (magic, rest) = bytes.split_at_checked(MAGIC.len())?;
        let (fields, rest) = rest.split_at_checked(8)?;
        Some((magic.to_vec(), rest.to_vec(), fields.to_vec()))
    };
    match (parts(one), parts(other)) {
        (Some(one), Some(other)) => (one.0, one.1) == (other.0, other.1) && one.2 != other.2,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        BYTES_MAX, EngineKind, HeaderError, Home, URL_BYTES_MAX, VolumeHeader,
        differ_in_version_only,
    };
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn sample() -> VolumeHeader {
        VolumeHeader {
            volume_id: [1; 16],
            engine: EngineKind::Btree,
            hash_key: [2; 16],
            created: 3,
            snapshot_dir: b".snapshots".to_vec(),
            home: Home::Directory,
            inode_home: 0,
        }
    }

    fn at(home: Home) -> VolumeHeader {
        VolumeHeader { home, ..sample() }
    }

    #[test]
    fn a_header_round_trips_and_a_directory_keeps_version_1() {
        let url = "s3://bucket/prefix".to_owned();
        for (home, version) in [(Home::Directory, 1), (Home::Objects, 2), (Home::Host(url), 2)] {
            let bytes = at(home.clone()).encode();
            assert_eq!(bytes[8], version);
            assert_eq!(VolumeHeader::decode(&bytes), Ok(at(home.clone())));
            let other = VolumeHeader { inode_home: 5, ..at(home) };
            assert_eq!(other.encode()[8], 3);
            assert_eq!(VolumeHeader::decode(&other.encode()), Ok(other));
        }
        let longest = VolumeHeader {
            snapshot_dir: vec![b'x'; 64],
            home: Home::Host("u".repeat(URL_BYTES_MAX)),
            inode_home: 0x7ffe,
            ..sample()
        };
        assert!(longest.encode().len() <= BYTES_MAX);
        assert_eq!(VolumeHeader::decode(&longest.encode()), Ok(longest));
    }

    #[test]
    fn a_home_and_its_url_agree() {
        let whole = at(Home::Host("s3://b".to_owned())).encode();
        for (at, byte) in [(75, 0), (75, 1), (75, 3), (76, 0), (78, 0xff)] {
            let mut bad = whole.clone();
            bad[at] = byte;
            let sum = crc32c::crc32c(&bad[16..]).to_le_bytes();
            bad[12..16].copy_from_slice(&sum);
            assert!(VolumeHeader::decode(&bad).is_err(), "{at}: {byte}");
        }
    }

    #[test]
    fn a_home_of_inodes_is_checked() {
        let header = VolumeHeader { inode_home: 0x7ffe, ..sample() };
        let whole = header.encode();
        let at = whole.len() - 2;
        for home in [0, 0x7fff, 0x8000, u16::MAX] {
            let mut bad = whole.clone();
            bad[at..].copy_from_slice(&home.to_le_bytes());
            let sum = crc32c::crc32c(&bad[16..]).to_le_bytes();
            bad[12..16].copy_from_slice(&sum);
            assert!(VolumeHeader::decode(&bad).is_err(), "{home:#x}");
        }
        assert_eq!(VolumeHeader::decode(&whole), Ok(header));
    }

    #[test]
    fn every_flipped_bit_and_every_truncation_is_detected() {
        for home in [Home::Directory, Home::Objects, Home::Host("file:///x".to_owned())] {
            let bytes = at(home).encode();
            every_flipped_bit_and_truncation_is_refused(&bytes, |bad| {
                VolumeHeader::decode(bad).is_err()
            });
        }
    }

    #[test]
    fn another_file_and_a_newer_format_are_distinguished() {
        let mut bytes = sample().encode();
        bytes[8] = 4;
        assert_eq!(VolumeHeader::decode(&bytes), Err(HeaderError::Newer(4)));
        bytes[0] = b'Q';
        assert_eq!(VolumeHeader::decode(&bytes), Err(HeaderError::NotAVolume));
    }

    #[test]
    fn a_damaged_version_is_read_from_the_other_file() {
        let right = sample().encode();
        assert!(!differ_in_version_only(&right, &right));
        for at in 0..right.len() {
            let mut bad = right.clone();
            bad[at] ^= 4;
            assert_eq!(differ_in_version_only(&bad, &right), (8..16).contains(&at), "byte {at}");
            bad[8] ^= 2;
            let only = (8..16).contains(&at);
            assert_eq!(differ_in_version_only(&right, &bad), only, "byte {at} and the version");
        }
        assert!(!differ_in_version_only(&right[..7], &right));
        assert!(!differ_in_version_only(&right[..11], &right[..11]));
    }
}
