//! Quotas of users and groups (`docs/format/owner-quota.md`): whether the inodes of the volume are
//! counted by their owners, and the limits of each.
//!
//! Keys in the volume's tree: `U` for the state, `U | kind | number` for limits. The charges of the
//! inodes of a subvolume are under `Y | subvolume | kind | number`. They are
//! [`Charged`](crate::quota::Charged) records and are changed by merges, like those of a domain.
//! The subvolume comes first, so that all charges of a removed one are one range.

use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of the record of the state.
pub const STATE_LAYOUT: &[Field] = &[Field::fixed("state", "u8", 1)];

/// Layout of the limits of an owner.
pub const LAYOUT: &[Field] =
    &[Field::fixed("inodes_max", "u64 LE", 8), Field::fixed("bytes_max", "u64 LE", 8)];
const _: () = assert!(size_of(LAYOUT) == 16);

/// An owner whose inodes are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Owner {
    /// A user.
    User(u32),
    /// A group.
    Group(u32),
}

impl Owner {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    /// The byte of the kind on disk.
    #[inline]
    pub const fn kind(self) -> u8 {
        match self {
            Owner::User(_) => 1,
            Owner::Group(_) => 2,
        }
    }

    /// The number of the user or group.
    #[inline]
    pub const fn number(self) -> u32 {
        match self {
            Owner::User(number) | Owner::Group(number) => number,
        }
    }

    /// The owner of a kind and a number.
    pub const fn decode(kind: u8, number: u32) -> Option<Owner> {
        match kind {
            1 => Some(Owner::User(number)),
            2 => Some(Owner::Group(number)),
            _ => None,
        }
    }
}

/// Whether inodes are counted by their owners. Without a record they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OwnerState {
    /// Existing inodes are being counted; the charges are the changes since that began.
    Counting,
    /// The charges are those of all inodes.
    Counted,
}

impl OwnerState {
    // DO NOT CHANGE THESE VALUES: they are on disk.
    /// The record's bytes.
    pub const fn encode(self) -> [u8; 1] {
        match self {
            OwnerState::Counting => [1],
            OwnerState::Counted => [2],
        }
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<OwnerState, Malformed> {
        let mut reader = Reader::new("state of owners", bytes);
        let byte = reader.u8()?;
        reader.end()?;
        match byte {
            1 => Ok(OwnerState::Counting),
            2 => Ok(OwnerState::Counted),
            other => Err(reader.malformed("a state", other.to_string())),
        }
    }
}

/// The limits of an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnerLimits {
    /// Most files, directories and other inodes; all ones: no limit.
    pub inodes_max: u64,
    /// Most bytes of contents; all ones: no limit.
    pub bytes_max: u64,
}

impl OwnerLimits {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u64(self.inodes_max);
        out.put_u64(self.bytes_max);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<OwnerLimits, Malformed> {
        let mut reader = Reader::new("limits of an owner", bytes);
        let limits = OwnerLimits { inodes_max: reader.u64()?, bytes_max: reader.u64()? };
        reader.end()?;
        Ok(limits)
    }
}

#[cfg(test)]
mod tests {
    use super::{Owner, OwnerLimits, OwnerState};
    use crate::key;

    #[test]
    fn records_round_trip_and_partial_ones_are_refused() {
        let limits = OwnerLimits { inodes_max: u64::MAX, bytes_max: 1 << 40 };
        let bytes = limits.encode();
        assert_eq!(OwnerLimits::decode(&bytes), Ok(limits));
        for length in 0..bytes.len() {
            assert!(OwnerLimits::decode(&bytes[..length]).is_err());
        }
        for state in [OwnerState::Counting, OwnerState::Counted] {
            assert_eq!(OwnerState::decode(&state.encode()), Ok(state));
        }
        for bytes in [&[][..], &[0], &[3], &[1, 2]] {
            assert!(OwnerState::decode(bytes).is_err());
        }
    }

    #[test]
    fn keys_name_their_owner_and_are_grouped_by_subvolume() {
        for owner in [Owner::User(0), Owner::User(u32::MAX), Owner::Group(7)] {
            assert_eq!(key::parse_owner(&key::owner_limits(owner)), Ok(Some(owner)));
            let charges = key::owner_charges(300, owner);
            assert_eq!(key::parse_owner_charges(&charges), Ok((300, owner)));
            assert!(charges.starts_with(&key::owner_charges_prefix(300)));
        }
        assert_eq!(key::parse_owner(&key::OWNERS_PREFIX), Ok(None));
        let mut strange = key::owner_limits(Owner::User(1));
        strange[1] = 3;
        assert!(key::parse_owner(&strange).is_err());
        assert!(key::parse_owner_charges(&key::owner_charges_prefix(1)).is_err());
    }
}
