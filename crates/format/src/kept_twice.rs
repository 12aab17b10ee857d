//! Selects the records of the volume's own tree that are kept twice. The root counter records that
//! copies exist (`docs/format/kept-twice.md`).
//!
//! Every record that locates parts of a volume, or protects them from being removed, has a copy in
//! a second tree. Records that only count inodes have none: they can be recounted, and change with
//! every file.

use crate::key;
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Number of the tree that holds the copies.
pub const COPY_TREE: u64 = 17;

/// Key of an empty record. It marks a volume whose counts were lost with damaged records and
/// rebuilt, until a check has found them right.
pub const UNCOUNTED_KEY: [u8; 1] = [b'V'];

/// Bytes of the root counter if records are kept twice.
pub const ROOT_BYTES: usize = 16;
/// The two numbers of the root counter.
pub const LAYOUT: &[Field] =
    &[Field::fixed("subvolume", "u64 LE", 8), Field::fixed("flags", "u64 LE", 8)];
const _: () = assert!(size_of(LAYOUT) == ROOT_BYTES);

/// Whether the record under a key of the volume's own tree has a copy.
pub fn is_kept_twice(key: &[u8]) -> bool {
    let Some(&kind) = key.first() else { return false };
    let counts = [key::USAGE_PREFIX, key::OWNER_CHARGES_PREFIX, key::CANDIDATES_PREFIX];
    // The limits of a quota have the key of its number alone; charges add a subvolume's number.
    !counts.contains(&[kind]) && ([kind] != key::QUOTAS_PREFIX || key.len() <= 9)
}

/// Whether all records of a key range have copies: the range has one kind, all of which have
/// copies.
pub fn is_all_kept_twice(from: &[u8], to: Option<&[u8]>) -> bool {
    let (Some(&kind), Some(to)) = (from.first(), to) else { return false };
    let is_of_one = kind.checked_add(1).is_some_and(|next| to <= [next].as_slice());
    is_of_one && [kind] != key::QUOTAS_PREFIX && is_kept_twice(from)
}

/// The counter of the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootCounter {
    /// Subvolume of the volume's root.
    pub subvolume: u64,
    /// Whether the second tree has a copy of each record that must have one.
    pub copies: bool,
    /// What a program must know to open the volume.
    pub features: Features,
}

/// Features that a volume uses. Programs that do not know one of them refuse the volume.
#[expect(clippy::struct_excessive_bools, reason = "each is a flag on disk")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Features {
    /// A subvolume has a number of a later generation, or a record with a maker.
    pub makers: bool,
    /// Copies inherit what is mounted in their sources. A program that does not know this would
    /// change what is inherited without copying it first.
    pub inheritance: bool,
    /// Inodes of home 0 may have numbers of more than 40 bits.
    pub wide_inodes: bool,
    /// There is a tree of sessions and answers.
    pub answers: bool,
    /// A detached record may name inodes that nothing reaches. A program that does not know this
    /// would copy and count them.
    pub unreached: bool,
}

impl Features {
    /// No feature.
    pub const NONE: Features = Features {
        makers: false,
        inheritance: false,
        wide_inodes: false,
        answers: false,
        unreached: false,
    };

    /// The features of both.
    #[must_use]
    pub fn with(self, other: Features) -> Features {
        Features {
            makers: self.makers | other.makers,
            inheritance: self.inheritance | other.inheritance,
            wide_inodes: self.wide_inodes | other.wide_inodes,
            answers: self.answers | other.answers,
            unreached: self.unreached | other.unreached,
        }
    }
}

// DO NOT CHANGE THESE VALUES: they are on disk.
const COPIES: u64 = 1;
const MAKERS: u64 = 2;
const INHERITANCE: u64 = 4;
const WIDE_INODES: u64 = 8;
const ANSWERS: u64 = 16;
const UNREACHED: u64 = 32;
const KNOWN: u64 = COPIES | MAKERS | INHERITANCE | WIDE_INODES | ANSWERS | UNREACHED;

impl RootCounter {
    /// Its bytes on disk. Without copies they are those that programs without this feature write.
    /// With copies such programs refuse it, because they would change only one of the two records.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ROOT_BYTES);
        bytes.put_u64(self.subvolume);
        let flags = [
            (self.copies, COPIES),
            (self.features.makers, MAKERS),
            (self.features.inheritance, INHERITANCE),
            (self.features.wide_inodes, WIDE_INODES),
            (self.features.answers, ANSWERS),
            (self.features.unreached, UNREACHED),
        ];
        let set = flags.iter().filter(|(is_set, _)| *is_set);
        let flags = set.fold(0, |flags, (_, flag)| flags | flag);
        if flags != 0 {
            bytes.put_u64(flags);
        }
        bytes
    }

    /// Decodes it.
    pub fn decode(bytes: &[u8]) -> Result<RootCounter, Malformed> {
        let mut reader = Reader::new("counter of the root", bytes);
        let subvolume = reader.u64()?;
        if reader.remaining() == 0 {
            return Ok(RootCounter { subvolume, copies: false, features: Features::NONE });
        }
        let flags = reader.u64()?;
        if flags == 0 || flags & !KNOWN != 0 {
            return Err(reader.malformed("known flags", flags.to_string()));
        }
        reader.end()?;
        let features = Features {
            makers: flags & MAKERS != 0,
            inheritance: flags & INHERITANCE != 0,
            wide_inodes: flags & WIDE_INODES != 0,
            answers: flags & ANSWERS != 0,
            unreached: flags & UNREACHED != 0,
        };
        Ok(RootCounter { subvolume, copies: flags & COPIES != 0, features })
    }
}

#[cfg(test)]
mod tests {
    use super::{Features, RootCounter, is_all_kept_twice, is_kept_twice};
    use crate::key::{self, Counter};

    #[test]
    fn a_counter_without_copies_keeps_its_format_and_unknown_ones_are_refused() {
        for flags in 0..64_u64 {
            let features = Features {
                makers: flags & 2 != 0,
                inheritance: flags & 4 != 0,
                wide_inodes: flags & 8 != 0,
                answers: flags & 16 != 0,
                unreached: flags & 32 != 0,
            };
            let root = RootCounter { subvolume: 7, copies: flags & 1 != 0, features };
            let bytes = root.encode();
            let (head, rest) = bytes.split_at(8);
            assert_eq!(head, 7_u64.to_le_bytes());
            let expected = if flags == 0 { Vec::new() } else { flags.to_le_bytes().to_vec() };
            assert_eq!(rest, expected);
            assert_eq!(RootCounter::decode(&bytes), Ok(root));
        }
        for flags in [0_u64, 64, 65] {
            let bytes = [7_u64.to_le_bytes(), flags.to_le_bytes()].concat();
            assert!(RootCounter::decode(&bytes).is_err(), "{flags}");
        }
        for length in [0, 7, 9, 15, 16, 17, 24] {
            assert!(RootCounter::decode(&vec![0; length]).is_err(), "{length}");
        }
    }

    #[test]
    fn plain_counters_have_no_copy() {
        assert!(is_kept_twice(&key::subvolume(1)));
        assert!(is_kept_twice(&key::counter(Counter::Epoch)));
        assert!(is_kept_twice(&key::segment(3)));
        assert!(is_kept_twice(&key::quota(3)));
        assert!(!is_kept_twice(&key::quota_charges(3, 1)));
        assert!(!is_kept_twice(&key::usage(1)));
        assert!(!is_kept_twice(b""));
    }

    #[test]
    fn only_mirrored_kinds_of_a_range_are_kept_twice() {
        assert!(is_all_kept_twice(&key::subvolume(1), Some(&key::subvolume(9))));
        assert!(is_all_kept_twice(b"S", Some(b"T")));
        assert!(!is_all_kept_twice(b"S", Some(b"U")));
        assert!(!is_all_kept_twice(b"S", None));
        assert!(!is_all_kept_twice(b"", Some(b"A")));
        assert!(!is_all_kept_twice(b"Q", Some(b"R")));
        assert!(!is_all_kept_twice(b"T", Some(b"U")));
    }
}
