//! A property of a directory, as streams carry it (`docs/format/stream.md`) and as the receiver
//! remembers it (`docs/format/received-record.md`): limits of a quota, a schedule of snapshots, or
//! the setting of a trash.
//!
//! A property is a kind and a value. A kind that is not known here is of a later program, and no
//! error.

use crate::layout::{Field, size_of};
use crate::retention::ScheduleRecord;
use crate::trash::TrashRecord;
use crate::{Malformed, Reader, Writer};

/// Maximum bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1024;

/// Layout of the value of a quota.
pub const QUOTA_LAYOUT: &[Field] =
    &[Field::fixed("inodes_max", "u64 LE", 8), Field::fixed("bytes_max", "u64 LE", 8)];
const _: () = assert!(size_of(QUOTA_LAYOUT) == 16);

// DO NOT CHANGE THESE VALUES: they are in streams that users keep, and on disk.
/// The kind of a quota.
pub const QUOTA: u8 = 1;
/// The kind of a schedule.
pub const SCHEDULE: u8 = 2;
/// The kind of a trash.
pub const TRASH: u8 = 3;

/// A property of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Property {
    /// Limits of what is in the directory; all ones: no limit.
    Quota {
        /// Most files, directories and other inodes.
        inodes_max: u64,
        /// Most bytes of contents.
        bytes_max: u64,
    },
    /// The schedule of its snapshots. When it ran last is not a part of it, and 0.
    Schedule(ScheduleRecord),
    /// How long what is removed in it is kept.
    Trash(TrashRecord),
}

impl Property {
    /// Its kind.
    pub fn kind(&self) -> u8 {
        match self {
            Property::Quota { .. } => QUOTA,
            Property::Schedule(_) => SCHEDULE,
            Property::Trash(_) => TRASH,
        }
    }

    /// Its value.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Property::Quota { inodes_max, bytes_max } => {
                let mut out = Vec::new();
                out.put_u64(*inodes_max);
                out.put_u64(*bytes_max);
                out
            }
            Property::Schedule(schedule) => schedule.encode(),
            Property::Trash(trash) => trash.encode(),
        }
    }

    /// Reads a value; `None`: the kind is not known.
    pub fn decode(kind: u8, value: &[u8]) -> Result<Option<Property>, Malformed> {
        Ok(Some(match kind {
            QUOTA => {
                let mut reader = Reader::new("quota of a directory", value);
                let quota = Property::Quota { inodes_max: reader.u64()?, bytes_max: reader.u64()? };
                reader.end()?;
                quota
            }
            SCHEDULE => {
                let schedule = ScheduleRecord::decode(value)?;
                if schedule.last != 0 {
                    let found = schedule.last.to_string();
                    return Err(Reader::new("schedule", value).malformed("no time", found));
                }
                Property::Schedule(schedule)
            }
            TRASH => Property::Trash(TrashRecord::decode(value)?),
            _ => return Ok(None),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retention::Keep;

    #[test]
    fn values_round_trip_and_no_part_of_one_is_one() {
        let schedule = ScheduleRecord {
            uid: 1,
            gid: 2,
            last: 0,
            keep: Keep { hours: 24, ..Keep::default() },
            cron: "@hourly".to_owned(),
            prefix: b"auto".to_vec(),
        };
        for property in [
            Property::Quota { inodes_max: u64::MAX, bytes_max: 7 },
            Property::Schedule(schedule.clone()),
            Property::Trash(TrashRecord { keep_seconds: 3 }),
        ] {
            let (kind, value) = (property.kind(), property.encode());
            assert!(value.len() <= VALUE_BYTES_MAX, "{property:?}");
            assert_eq!(Property::decode(kind, &value), Ok(Some(property.clone())));
            for length in 0..value.len() {
                assert!(Property::decode(kind, &value[..length]).is_err(), "{property:?} {length}");
            }
            assert!(Property::decode(kind, &[&value[..], b"x"].concat()).is_err(), "{property:?}");
        }
        assert_eq!(Property::decode(9, b"anything"), Ok(None));
        let ran = ScheduleRecord { last: 1, ..schedule };
        assert!(Property::decode(SCHEDULE, &ran.encode()).is_err());
    }
}
