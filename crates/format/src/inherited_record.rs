//! The subvolumes from which a copy inherits mounts (`docs/format/inherited-record.md`).

use crate::key::can_be_subvolume;
use crate::layout::{Field, size_of};
use crate::{Malformed, Reader, Writer};

/// Layout of one home; a record is a sequence of them.
pub const LAYOUT: &[Field] =
    &[Field::fixed("subvolume", "u64 LE", 8), Field::fixed("flags", "u8", 1)];
/// Bytes of one home.
pub const HOME_BYTES: usize = 9;
const _: () = assert!(size_of(LAYOUT) == HOME_BYTES);

/// Most homes of one copy.
pub const HOMES_MAX: usize = 64;

/// Prefix of the keys of all copies that inherit.
pub const INHERITED_PREFIX: [u8; 1] = [b'H'];

/// Key of the record of the homes of a copy.
pub fn inherited(subvolume: u64) -> [u8; 9] {
    let [tag] = INHERITED_PREFIX;
    let [a, b, c, d, e, f, g, h] = subvolume.to_be_bytes();
    [tag, a, b, c, d, e, f, g, h]
}

// DO NOT CHANGE THESE VALUES: they are on disk.
const SAME_LINEAGE: u8 = 1;

/// A subvolume whose mounted subvolumes a copy inherits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Home {
    /// Its number.
    pub subvolume: u64,
    /// Whether the copies of the subvolumes mounted there keep their lineages, as in a snapshot.
    pub same_lineage: bool,
}

/// The homes of a copy.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InheritedRecord {
    /// At least one.
    pub homes: Vec<Home>,
}

impl InheritedRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.homes.len().saturating_mul(HOME_BYTES));
        for home in &self.homes {
            out.put_u64(home.subvolume);
            out.put_u8(if home.same_lineage { SAME_LINEAGE } else { 0 });
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<InheritedRecord, Malformed> {
        let mut reader = Reader::new("inherited record", bytes);
        let mut homes = Vec::new();
        while reader.remaining() > 0 {
            let subvolume = reader.u64()?;
            let flags = reader.u8()?;
            let known = flags & !SAME_LINEAGE == 0 && subvolume > 0 && can_be_subvolume(subvolume);
            if !known || homes.len() == HOMES_MAX {
                let found = format!("{subvolume}, {flags:#x}, after {} homes", homes.len());
                return Err(reader.malformed("a home, one of at most 64", found));
            }
            homes.push(Home { subvolume, same_lineage: flags == SAME_LINEAGE });
        }
        if homes.is_empty() {
            return Err(reader.malformed("a home", "none".to_owned()));
        }
        Ok(InheritedRecord { homes })
    }
}

#[cfg(test)]
mod tests {
    use super::{HOME_BYTES, HOMES_MAX, Home, InheritedRecord};

    #[test]
    fn records_round_trip_and_unknown_ones_are_refused() {
        let home = |subvolume, same_lineage| Home { subvolume, same_lineage };
        let record = InheritedRecord { homes: vec![home(7, true), home(1 << 22, false)] };
        let bytes = record.encode();
        assert_eq!(bytes.len(), 2 * HOME_BYTES);
        assert_eq!(InheritedRecord::decode(&bytes), Ok(record));
        assert!(InheritedRecord::decode(&bytes[1..]).is_err());
        assert!(InheritedRecord::decode(b"").is_err());
        let mut strange = bytes.clone();
        strange[8] = 2;
        assert!(InheritedRecord::decode(&strange).is_err());
        let none = InheritedRecord { homes: vec![home(0, false)] };
        assert!(InheritedRecord::decode(&none.encode()).is_err());
        let most = InheritedRecord { homes: vec![home(7, false); HOMES_MAX] };
        assert_eq!(InheritedRecord::decode(&most.encode()), Ok(most));
        let more = InheritedRecord { homes: vec![home(7, false); HOMES_MAX + 1] };
        assert!(InheritedRecord::decode(&more.encode()).is_err());
    }
}
