//! Keys of the namespace (`docs/format/keys.md`): where each record is stored in a tree.
//!
//! A subvolume's tree holds `D` (directories and their entries), `L` (inodes with several links)
//! and `X` (extents). The volume's own tree holds everything that is not inside a subvolume.
//! Numbers are big-endian, so that keys sort as their numbers do. The keys of one directory are
//! neighbours, in the order of the hash of the name, and so are all extents of one file.

use crate::candidate::CandidateKind;
use crate::layout::Field;
use crate::owner_quota::Owner;
use crate::{Malformed, Reader};

// DO NOT CHANGE THESE VALUES: they are on disk.
const DIRECTORY: u8 = b'D';
const LINKED: u8 = b'L';
const EXTENT: u8 = b'X';
const SUBVOLUME: u8 = b'S';
const SNAPSHOT_NAME: u8 = b'N';
const ORPHAN: u8 = b'O';
const DETACHED: u8 = b'R';
const USAGE: u8 = b'T';
const SEGMENT: u8 = b'G';
const SCAN: u8 = b'E';
const COUNTER: u8 = b'C';
const BASE: u8 = b'B';
const CANDIDATE: u8 = b'W';
const SEARCHABLE: u8 = b'A';
const QUOTA: u8 = b'Q';
const OWNER: u8 = b'U';
const OWNER_CHARGES: u8 = b'Y';
const TRASH: u8 = b'K';
const CLUSTER_LIMITS: u8 = b'I';

/// Number of the volume's own tree.
pub const VOLUME_TREE: u64 = 16;
/// First number of a subvolume's tree.
pub const FIRST_TREE: u64 = 32;

pub use crate::inode_number::*;

/// Bits of a subvolume's number that are its slot: the part in the kernel's inode numbers.
pub const SLOT_BITS: u32 = 23;
/// The greatest slot: the next one belongs to the virtual directories.
pub const SLOT_MAX: u64 = (1 << SLOT_BITS) - 2;
/// The greatest number of a subvolume: a slot and 32 bits of generation.
pub const SUBVOLUME_MAX: u64 = ((1 << 32) - 1) * (1 << SLOT_BITS) + SLOT_MAX;

/// The slot of a subvolume. No two existing subvolumes share one.
#[inline]
pub const fn slot(subvolume: u64) -> u64 {
    subvolume & ((1 << SLOT_BITS) - 1)
}

/// How often the numbers of subvolumes had passed a slot when this one was assigned.
#[inline]
pub const fn generation(subvolume: u64) -> u64 {
    subvolume >> SLOT_BITS
}

/// Whether a subvolume can have this number. 0 means none, and is accepted where none is allowed.
#[inline]
pub const fn can_be_subvolume(number: u64) -> bool {
    let slot = slot(number);
    number <= SUBVOLUME_MAX && slot <= SLOT_MAX && (slot > 0 || number == 0)
}

/// Bytes of a `D` key.
pub const ENTRY_KEY_BYTES: usize = 18;
/// Common prefix of the keys of a directory's entries: a letter and the directory's number.
pub const DIRECTORY_PREFIX_BYTES: usize = 9;
/// Greatest cookie: 55 bits of hash and 8 of collision index.
pub const COOKIE_MAX: u64 = (1 << 63) - 1;
/// Greatest hash of a name: 55 bits.
pub const HASH_MAX: u64 = (1 << 55) - 1;

/// Layout of a `D` key.
pub const ENTRY_LAYOUT: &[Field] = &[
    Field::fixed("tag", "u8", 1),
    Field::fixed("directory", "u64 BE", 8),
    Field::fixed("hash", "u56 BE", 7),
    Field::fixed("collision", "u8", 1),
    Field::fixed("record", "u8", 1),
];
const _: () = assert!(crate::layout::size_of(ENTRY_LAYOUT) == ENTRY_KEY_BYTES);

/// The content of a record under a `D` or `L` key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Attributes: an entry with its inode, a directory's own inode, a linked inode.
    Attributes,
    /// Target of a symbolic link, or the contents of a small file.
    Bulk,
    /// Extended attributes.
    Xattrs,
    /// A name of a linked inode.
    BackReference,
}

impl Part {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    const fn byte(self) -> u8 {
        match self {
            Part::Attributes => 1,
            Part::Bulk => 3,
            Part::Xattrs => 4,
            Part::BackReference => 5,
        }
    }

    fn decode(byte: u8) -> Option<Part> {
        Some(match byte {
            1 => Part::Attributes,
            3 => Part::Bulk,
            4 => Part::Xattrs,
            5 => Part::BackReference,
            _ => return None,
        })
    }
}

/// Key of a record of the entry at `cookie` (hash and collision index) of a directory.
#[inline]
pub fn entry(directory: u64, cookie: u64, part: Part) -> [u8; ENTRY_KEY_BYTES] {
    let [a, b, c, d, e, f, g, h] = directory.to_be_bytes();
    let [i, j, k, l, m, n, o, p] = cookie.to_be_bytes();
    [DIRECTORY, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, part.byte()]
}

/// Key of a record of a directory itself.
#[inline]
pub fn directory(directory: u64, part: Part) -> [u8; ENTRY_KEY_BYTES] {
    entry(directory, 0, part)
}

/// Prefix of all keys of a directory and its entries.
pub fn directory_prefix(directory: u64) -> [u8; 9] {
    tagged(DIRECTORY, directory)
}

/// Key of a record of a linked inode.
#[inline]
pub fn linked(ino: u64, part: Part) -> [u8; 10] {
    let [a, b, c, d, e, f, g, h] = ino.to_be_bytes();
    [LINKED, a, b, c, d, e, f, g, h, part.byte()]
}

/// Prefix of all keys of a linked inode.
pub fn linked_prefix(ino: u64) -> [u8; 9] {
    tagged(LINKED, ino)
}

/// Key of the reference from a linked inode to one of its names.
pub fn back_reference(ino: u64, directory: u64, cookie: u64) -> [u8; 26] {
    concat(&[&linked(ino, Part::BackReference), &directory.to_be_bytes(), &cookie.to_be_bytes()])
}

/// Prefix of the keys of all references to the names of an inode.
pub fn back_reference_prefix(ino: u64) -> [u8; 10] {
    linked(ino, Part::BackReference)
}

/// Key of the extent of a file that starts at `offset`.
#[inline]
pub fn extent(ino: u64, offset: u64) -> [u8; 17] {
    concat(&[&[EXTENT], &ino.to_be_bytes(), &offset.to_be_bytes()])
}

/// Prefix of the keys of all extents of a file.
pub fn extent_prefix(ino: u64) -> [u8; 9] {
    tagged(EXTENT, ino)
}

/// Prefix of the keys of all extents of a tree.
pub const EXTENTS_PREFIX: [u8; 1] = [EXTENT];

/// Key of a subvolume's record.
pub fn subvolume(subvolume: u64) -> [u8; 9] {
    tagged(SUBVOLUME, subvolume)
}

/// Prefix of the keys of all subvolumes.
pub const SUBVOLUMES_PREFIX: [u8; 1] = [SUBVOLUME];

/// Key of a snapshot's name; its value is the number of the subvolume, 8 bytes little-endian.
pub fn snapshot_name(lineage: u64, directory: u64, name: &[u8]) -> Vec<u8> {
    [&snapshot_names_prefix(lineage, directory)[..], name].concat()
}

/// Prefix of the keys of all snapshots of a directory.
pub fn snapshot_names_prefix(lineage: u64, directory: u64) -> [u8; 17] {
    concat(&[&[SNAPSHOT_NAME], &lineage.to_be_bytes(), &directory.to_be_bytes()])
}

/// Prefix of the keys of all snapshots' names.
pub const SNAPSHOT_NAMES_PREFIX: [u8; 1] = [SNAPSHOT_NAME];

/// Key of an inode that has no name but is held open, and owns extents.
pub fn orphan(subvolume: u64, ino: u64) -> [u8; 17] {
    concat(&[&[ORPHAN], &subvolume.to_be_bytes(), &ino.to_be_bytes()])
}

/// Prefix of the keys of all orphans.
pub const ORPHANS_PREFIX: [u8; 1] = [ORPHAN];

/// Key of a detached directory or subvolume that is still to be reclaimed.
pub fn detached(sequence: u64) -> [u8; 9] {
    tagged(DETACHED, sequence)
}

/// Prefix of the keys of all detached objects.
pub const DETACHED_PREFIX: [u8; 1] = [DETACHED];

/// Key of the usage of a subvolume (files, bytes), changed by merges.
#[inline]
pub fn usage(subvolume: u64) -> [u8; 9] {
    tagged(USAGE, subvolume)
}

/// Prefix of the keys of all usage records.
pub const USAGE_PREFIX: [u8; 1] = [USAGE];

/// Key of the usage of a data segment.
pub fn segment(segment: u64) -> [u8; 9] {
    tagged(SEGMENT, segment)
}

/// Prefix of the keys of all segments.
pub const SEGMENTS_PREFIX: [u8; 1] = [SEGMENT];

/// Key of the scan record of an index, by its lineage.
pub fn scan(lineage: u64) -> [u8; 9] {
    tagged(SCAN, lineage)
}

/// Key of a base of the index, by the number of its tree.
pub fn base(tree: u64) -> [u8; 9] {
    tagged(BASE, tree)
}

/// Prefix of the keys of all bases.
pub const BASES_PREFIX: [u8; 1] = [BASE];

/// Key that marks extended attributes of this name as searchable; its value is empty.
pub fn searchable(name: &[u8]) -> Vec<u8> {
    [&[SEARCHABLE], name].concat()
}

/// Prefix of the keys of all names of searchable attributes; the rest of each is the name.
pub const SEARCHABLE_PREFIX: [u8; 1] = [SEARCHABLE];

/// Prefix of the keys of all directories and entries.
pub const DIRECTORIES_PREFIX: [u8; 1] = [DIRECTORY];

/// Key of a candidate of `pando gc`: a number, and a part of what the number names.
pub fn candidate(kind: CandidateKind, number: u64, part: u32) -> [u8; 14] {
    let mut key = [0; 14];
    let head = [CANDIDATE, kind.byte()].into_iter();
    let mut bytes = head.chain(number.to_be_bytes()).chain(part.to_be_bytes());
    key.fill_with(|| bytes.next().unwrap_or(0));
    key
}

/// Prefix of the keys of all candidates.
pub const CANDIDATES_PREFIX: [u8; 1] = [CANDIDATE];

/// Prefix of the keys of all linked inodes.
pub const LINKED_PREFIX: [u8; 1] = [LINKED];

/// Key of one of the volume's counters.
pub const fn counter(counter: Counter) -> [u8; 2] {
    [COUNTER, counter.byte()]
}

/// A number that the volume keeps, 8 bytes little-endian; [`Counter::Root`] is two of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// First inode number that is in no assigned range.
    NextIno,
    /// Next subvolume.
    NextSubvolume,
    /// Next tree.
    NextTree,
    /// Epoch: how many snapshots and clones were made.
    Epoch,
    /// Subvolume of the volume's root.
    Root,
    /// Next number of a detached directory.
    NextDetached,
    /// First number of a data segment that is in no assigned range: on object stores only.
    NextSegment,
}

impl Counter {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    const fn byte(self) -> u8 {
        match self {
            Counter::NextIno => 1,
            Counter::NextSubvolume => 2,
            Counter::NextTree => 3,
            Counter::Epoch => 4,
            Counter::Root => 5,
            Counter::NextDetached => 6,
            Counter::NextSegment => 7,
        }
    }
}

/// A parsed key of a subvolume's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parsed {
    /// A part of a directory itself (cookie 0), or of an entry in it.
    Entry {
        /// Inode of the directory.
        directory: u64,
        /// Hash and collision index; 0 for the directory itself.
        cookie: u64,
        /// What the record holds.
        part: Part,
    },
    /// A part of a linked inode.
    Linked {
        /// The inode.
        ino: u64,
        /// What the record holds.
        part: Part,
    },
    /// A name of a linked inode.
    BackReference {
        /// The inode.
        ino: u64,
        /// The directory that the name is in.
        directory: u64,
        /// Its cookie there.
        cookie: u64,
    },
    /// An extent.
    Extent {
        /// The file.
        ino: u64,
        /// Its offset in the file.
        offset: u64,
    },
}

/// Parses a key of a subvolume's tree.
pub fn parse(key: &[u8]) -> Result<Parsed, Malformed> {
    let mut reader = Reader::new("namespace key", key);
    let tag = reader.u8()?;
    let number = u64::from_be_bytes(reader.array()?);
    let parsed = match tag {
        DIRECTORY => {
            let cookie = u64::from_be_bytes(reader.array()?);
            Parsed::Entry { directory: number, cookie, part: part(&mut reader)? }
        }
        LINKED => match part(&mut reader)? {
            Part::BackReference => Parsed::BackReference {
                ino: number,
                directory: u64::from_be_bytes(reader.array()?),
                cookie: u64::from_be_bytes(reader.array()?),
            },
            part => Parsed::Linked { ino: number, part },
        },
        EXTENT => Parsed::Extent { ino: number, offset: u64::from_be_bytes(reader.array()?) },
        other => return Err(reader.malformed("a tag of a subvolume's tree", other.to_string())),
    };
    reader.end()?;
    if number > INO_MAX {
        return Err(reader.malformed("the number of an inode", number.to_string()));
    }
    Ok(parsed)
}

/// Key of a quota's limits.
pub fn quota(domain: u64) -> [u8; 9] {
    tagged(QUOTA, domain)
}

/// Key of the amounts that the inodes of a subvolume are charged to a quota.
pub fn quota_charges(domain: u64, subvolume: u64) -> [u8; 17] {
    concat(&[&[QUOTA], &domain.to_be_bytes(), &subvolume.to_be_bytes()])
}

/// Prefix of the keys of all quotas and of their charges.
pub const QUOTAS_PREFIX: [u8; 1] = [QUOTA];

/// The domain of a quota's key, and the subvolume if it is a key of charges.
pub fn parse_quota(key: &[u8]) -> Result<(u64, Option<u64>), Malformed> {
    let mut reader = Reader::new("quota key", key);
    reader.u8()?;
    let domain = u64::from_be_bytes(reader.array()?);
    if reader.remaining() == 0 {
        return Ok((domain, None));
    }
    let subvolume = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    Ok((domain, Some(subvolume)))
}

/// Key of the limits of a user or a group.
pub fn owner_limits(owner: Owner) -> [u8; 6] {
    let [a, b, c, d] = owner.number().to_be_bytes();
    [OWNER, owner.kind(), a, b, c, d]
}

/// Prefix of the keys of the limits of users and groups. By itself it is the key of the state:
/// whether inodes are counted by their owners.
pub const OWNERS_PREFIX: [u8; 1] = [OWNER];

/// The owner of a key of limits; `None`: that of the state.
pub fn parse_owner(key: &[u8]) -> Result<Option<Owner>, Malformed> {
    let mut reader = Reader::new("key of an owner", key);
    reader.u8()?;
    if reader.remaining() == 0 { Ok(None) } else { owner(reader).map(Some) }
}

/// Key of the amounts that the inodes of a subvolume are charged to their user or group.
#[inline]
pub fn owner_charges(subvolume: u64, owner: Owner) -> [u8; 14] {
    let [a, b, c, d, e, f, g, h] = subvolume.to_be_bytes();
    let [i, j, k, l] = owner.number().to_be_bytes();
    [OWNER_CHARGES, a, b, c, d, e, f, g, h, owner.kind(), i, j, k, l]
}

/// Prefix of the keys of all charges of a subvolume's inodes.
pub fn owner_charges_prefix(subvolume: u64) -> [u8; 9] {
    tagged(OWNER_CHARGES, subvolume)
}

/// Prefix of the keys of all charges of users and groups.
pub const OWNER_CHARGES_PREFIX: [u8; 1] = [OWNER_CHARGES];

/// Subvolume and owner of a key of charges.
pub fn parse_owner_charges(key: &[u8]) -> Result<(u64, Owner), Malformed> {
    let mut reader = Reader::new("key of an owner's charges", key);
    reader.u8()?;
    Ok((u64::from_be_bytes(reader.array()?), owner(reader)?))
}

/// The kind and the number that a key ends with.
fn owner(mut reader: Reader<'_>) -> Result<Owner, Malformed> {
    let (kind, number) = (reader.u8()?, u32::from_be_bytes(reader.array()?));
    reader.end()?;
    Owner::decode(kind, number).ok_or_else(|| reader.malformed("a kind of owner", kind.to_string()))
}

/// Key of the setting of a directory's trash, which the subvolumes of a lineage share.
pub fn trash(lineage: u64, directory: u64) -> [u8; 17] {
    concat(&[&[TRASH], &lineage.to_be_bytes(), &directory.to_be_bytes()])
}

/// Prefix of the keys of all settings of trash.
pub const TRASH_PREFIX: [u8; 1] = [TRASH];

/// Key of the limits of the size of index clusters.
pub const CLUSTER_LIMITS_KEY: [u8; 1] = [CLUSTER_LIMITS];

/// Lineage and directory of the setting of a trash.
pub fn parse_trash(key: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut reader = Reader::new("trash key", key);
    reader.u8()?;
    let lineage = u64::from_be_bytes(reader.array()?);
    let directory = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    Ok((lineage, directory))
}

/// The number behind the tag of a key of the volume's tree that holds one. The number of a
/// subvolume is checked to be valid.
pub fn parse_number(key: &[u8]) -> Result<u64, Malformed> {
    let mut reader = Reader::new("volume key", key);
    let tag = reader.u8()?;
    let number = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    if tag == SUBVOLUME && !can_be_subvolume(number) {
        return Err(reader.malformed("the number of a subvolume", number.to_string()));
    }
    Ok(number)
}

/// Subvolume and inode of an orphan's key.
pub fn parse_orphan(key: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut reader = Reader::new("orphan key", key);
    reader.u8()?;
    let subvolume = u64::from_be_bytes(reader.array()?);
    let ino = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    if !can_be_subvolume(subvolume) || ino > INO_MAX {
        return Err(reader.malformed("an inode of a subvolume", format!("{subvolume}, {ino}")));
    }
    Ok((subvolume, ino))
}

/// Lineage, directory and name of a snapshot name's key.
pub fn parse_snapshot_name(key: &[u8]) -> Result<(u64, u64, &[u8]), Malformed> {
    let mut reader = Reader::new("snapshot name key", key);
    reader.u8()?;
    let lineage = u64::from_be_bytes(reader.array()?);
    let directory = u64::from_be_bytes(reader.array()?);
    let name = reader.take(reader.remaining())?;
    Ok((lineage, directory, name))
}

/// The cookie of a hash and a collision index.
#[inline]
pub fn cookie(hash: u64, collision: u8) -> u64 {
    debug_assert!(hash <= HASH_MAX, "a hash has 55 bits");
    hash << 8 | u64::from(collision)
}

fn part(reader: &mut Reader<'_>) -> Result<Part, Malformed> {
    let byte = reader.u8()?;
    Part::decode(byte).ok_or_else(|| reader.malformed("a record type", byte.to_string()))
}

pub(crate) fn tagged(tag: u8, number: u64) -> [u8; 9] {
    let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
    [tag, a, b, c, d, e, f, g, h]
}

pub(crate) fn concat<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut key = [0; N];
    let mut slots = key.iter_mut();
    for part in parts {
        for (byte, slot) in part.iter().zip(&mut slots) {
            *slot = *byte;
        }
    }
    key
}

#[cfg(test)]
mod tests {
    use super::{
        INO_MAX, Parsed, Part, SLOT_BITS, SLOT_MAX, SUBVOLUME_MAX, back_reference,
        can_be_subvolume, entry, extent, generation, linked, orphan, parse, parse_orphan, slot,
    };

    #[test]
    fn keys_round_trip() {
        let key = entry(7, 0x1234_5678_9abc_de01, Part::Bulk);
        assert_eq!(
            parse(&key),
            Ok(Parsed::Entry { directory: 7, cookie: 0x1234_5678_9abc_de01, part: Part::Bulk })
        );
        assert_eq!(
            parse(&linked(9, Part::Attributes)),
            Ok(Parsed::Linked { ino: 9, part: Part::Attributes })
        );
        assert_eq!(
            parse(&back_reference(9, 7, 256)),
            Ok(Parsed::BackReference { ino: 9, directory: 7, cookie: 256 })
        );
        assert_eq!(parse(&extent(9, 4096)), Ok(Parsed::Extent { ino: 9, offset: 4096 }));
    }

    #[test]
    fn a_directory_sorts_before_its_entries_and_those_by_hash() {
        let own = entry(7, 0, Part::Attributes);
        let first = entry(7, 256, Part::Attributes);
        let bulk = entry(7, 256, Part::Bulk);
        let second = entry(7, 257, Part::Attributes);
        let other = entry(8, 0, Part::Attributes);
        assert!(own < first && first < bulk && bulk < second && second < other);
    }

    #[test]
    fn short_and_unknown_keys_are_refused() {
        for key in [&b""[..], b"D", b"Q12345678", &entry(1, 1, Part::Bulk)[..17]] {
            assert!(parse(key).is_err());
        }
        let mut key = entry(1, 1, Part::Bulk);
        key[17] = 9;
        assert!(parse(&key).is_err());
    }

    #[test]
    fn an_inode_of_the_reserved_home_is_refused() {
        assert!(parse(&linked(INO_MAX, Part::Bulk)).is_ok());
        assert!(parse(&linked(INO_MAX + 1, Part::Bulk)).is_err());
        assert!(parse_orphan(&orphan(SUBVOLUME_MAX, INO_MAX)).is_ok());
        assert!(parse_orphan(&orphan(SUBVOLUME_MAX + 1, 2)).is_err());
        assert!(parse_orphan(&orphan(1, INO_MAX + 1)).is_err());
    }

    #[test]
    fn a_number_of_a_subvolume_is_a_generation_and_a_slot() {
        let again = (1 << SLOT_BITS) + 77;
        assert_eq!((slot(again), generation(again)), (77, 1));
        assert_eq!((slot(77), generation(77)), (77, 0));
        assert_eq!(generation(SUBVOLUME_MAX), u64::from(u32::MAX));
        for number in [0, 1, SLOT_MAX, again, SUBVOLUME_MAX] {
            assert!(can_be_subvolume(number), "{number:#x}");
        }
        // A number of the virtual directories; an invalid slot; beyond 32 bits of generation.
        for number in [SLOT_MAX + 1, 1 << SLOT_BITS, SUBVOLUME_MAX + 1, u64::MAX] {
            assert!(!can_be_subvolume(number), "{number:#x}");
        }
    }
}
