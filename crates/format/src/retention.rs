//! Schedules and holds of snapshots (`docs/format/retention.md`).
//!
//! A schedule is stored as `P | lineage | directory` in the volume's tree. It has when the daemon
//! takes snapshots of that directory, and how many of them it keeps. A hold is stored as
//! `F | subvolume | name`: it prevents the deletion of that snapshot.

use crate::key::{concat, tagged};
use crate::layout::Field;
use crate::{Malformed, Reader, Writer};

/// Longest name of a hold, in bytes.
pub const HOLD_NAME_BYTES_MAX: usize = 64;
/// Longest cron expression, in bytes.
pub const CRON_BYTES_MAX: usize = 128;
/// Longest prefix of the names that a schedule gives, in bytes.
pub const PREFIX_BYTES_MAX: usize = 64;

// DO NOT CHANGE THESE VALUES: they are on disk.
const SCHEDULE: u8 = b'P';
const HOLD: u8 = b'F';

/// Layout of a schedule.
pub const LAYOUT: &[Field] = &[
    Field::fixed("uid", "u32 LE", 4),
    Field::fixed("gid", "u32 LE", 4),
    Field::fixed("last", "i64 LE", 8),
    Field::fixed("hours", "u16 LE", 2),
    Field::fixed("days", "u16 LE", 2),
    Field::fixed("weeks", "u16 LE", 2),
    Field::fixed("months", "u16 LE", 2),
    Field::fixed("years", "u16 LE", 2),
    Field::variable("cron_length", "varint"),
    Field::variable("cron", "bytes"),
    Field::variable("prefix_length", "varint"),
    Field::variable("prefix", "bytes"),
];

/// Layout of a hold.
pub const HOLD_LAYOUT: &[Field] =
    &[Field::fixed("uid", "u32 LE", 4), Field::fixed("since", "i64 LE", 8)];

/// Key of the schedule of a directory's snapshots, which the subvolumes of a lineage share.
pub fn schedule_key(lineage: u64, directory: u64) -> [u8; 17] {
    concat(&[&[SCHEDULE], &lineage.to_be_bytes(), &directory.to_be_bytes()])
}

/// Prefix of the keys of all schedules.
pub const SCHEDULES_PREFIX: [u8; 1] = [SCHEDULE];

/// Lineage and directory of a schedule.
pub fn parse_schedule(key: &[u8]) -> Result<(u64, u64), Malformed> {
    let mut reader = Reader::new("schedule key", key);
    reader.u8()?;
    let lineage = u64::from_be_bytes(reader.array()?);
    let directory = u64::from_be_bytes(reader.array()?);
    reader.end()?;
    Ok((lineage, directory))
}

/// Key of a hold on a snapshot.
pub fn hold_key(snapshot: u64, name: &[u8]) -> Vec<u8> {
    [&holds_prefix(snapshot)[..], name].concat()
}

/// Prefix of the keys of all holds on a snapshot.
pub fn holds_prefix(snapshot: u64) -> [u8; 9] {
    tagged(HOLD, snapshot)
}

/// Prefix of the keys of all holds.
pub const HOLDS_PREFIX: [u8; 1] = [HOLD];

/// Snapshot and name of a hold.
pub fn parse_hold(key: &[u8]) -> Result<(u64, &[u8]), Malformed> {
    let mut reader = Reader::new("key of a hold", key);
    reader.u8()?;
    let snapshot = u64::from_be_bytes(reader.array()?);
    let name = reader.take(reader.remaining())?;
    if name.is_empty() || name.len() > HOLD_NAME_BYTES_MAX {
        return Err(reader.malformed("a name of 1 to 64 bytes", name.len().to_string()));
    }
    Ok((snapshot, name))
}

/// How many snapshots a schedule keeps: the newest one of each of the last so many hours, days,
/// weeks, months and years that have one. All 0: every one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Keep {
    /// Hours.
    pub hours: u16,
    /// Days.
    pub days: u16,
    /// Weeks, which begin on Monday.
    pub weeks: u16,
    /// Months.
    pub months: u16,
    /// Years.
    pub years: u16,
}

/// The schedule of a directory's snapshots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// The user who set it, with whose rights snapshots are taken and deleted.
    pub uid: u32,
    /// That user's group.
    pub gid: u32,
    /// When it last took a snapshot, or was set, in nanoseconds since 1970.
    pub last: i64,
    /// What it keeps.
    pub keep: Keep,
    /// When it takes snapshots: a cron expression of five fields, in local time.
    pub cron: String,
    /// How the names of its snapshots begin.
    pub prefix: Vec<u8>,
}

impl ScheduleRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.uid);
        out.put_u32(self.gid);
        out.put_i64(self.last);
        let Keep { hours, days, weeks, months, years } = self.keep;
        for count in [hours, days, weeks, months, years] {
            out.put_u16(count);
        }
        out.put_bytes(self.cron.as_bytes());
        out.put_bytes(&self.prefix);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<ScheduleRecord, Malformed> {
        let mut reader = Reader::new("schedule", bytes);
        let (uid, gid, last) = (reader.u32()?, reader.u32()?, reader.i64()?);
        let keep = Keep {
            hours: reader.u16()?,
            days: reader.u16()?,
            weeks: reader.u16()?,
            months: reader.u16()?,
            years: reader.u16()?,
        };
        let length = reader.length(CRON_BYTES_MAX)?;
        let cron = std::str::from_utf8(reader.take(length)?).map(str::to_owned);
        let cron =
            cron.map_err(|error| reader.malformed("a cron expression", error.to_string()))?;
        let length = reader.length(PREFIX_BYTES_MAX)?;
        let prefix = reader.take(length)?.to_vec();
        reader.end()?;
        Ok(ScheduleRecord { uid, gid, last, keep, cron, prefix })
    }
}

/// A hold on a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HoldRecord {
    /// The user who set it.
    pub uid: u32,
    /// When, in nanoseconds since 1970.
    pub since: i64,
}

impl HoldRecord {
    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_u32(self.uid);
        out.put_i64(self.since);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<HoldRecord, Malformed> {
        let mut reader = Reader::new("hold", bytes);
        let record = HoldRecord { uid: reader.u32()?, since: reader.i64()? };
        reader.end()?;
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use super::{HoldRecord, Keep, PREFIX_BYTES_MAX, ScheduleRecord};

    #[test]
    fn records_round_trip_and_no_part_of_one_is_one() {
        let keep = Keep { hours: 24, days: 7, weeks: 4, months: 12, years: 1 };
        let record = ScheduleRecord {
            uid: 1000,
            gid: 100,
            last: -1,
            keep,
            cron: "*/15 * * * *".to_owned(),
            prefix: b"auto".to_vec(),
        };
        let bytes = record.encode();
        assert_eq!(ScheduleRecord::decode(&bytes), Ok(record.clone()));
        for length in 0..bytes.len() {
            assert!(ScheduleRecord::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let long = ScheduleRecord { prefix: vec![b'a'; PREFIX_BYTES_MAX + 1], ..record };
        assert!(ScheduleRecord::decode(&long.encode()).is_err(), "a prefix that is too long");
        let hold = HoldRecord { uid: 7, since: 1 };
        assert_eq!(HoldRecord::decode(&hold.encode()), Ok(hold));
        for length in 0..hold.encode().len() {
            assert!(HoldRecord::decode(&hold.encode()[..length]).is_err(), "{length} bytes");
        }
    }
}
