//! Writes one cluster from the records of a base's tree, by prefix scans of its directories.
//!
//! The scan determines the number of rows, whatever the directories' records claim. A full cluster
//! ends and returns the remaining units for the next one.

use std::ops::ControlFlow;

use format::cluster_directories::{self, ClusterDirectory};
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Parsed, Part};
use format::manifest::ClusterEntry;
use inode::NameHash;
use store::KeyRange;

use super::partition::Unit;
use crate::aggregate::{GroupCounts, is_plain};
use crate::assemble::{NamedEntry, Records};
use crate::cluster::{ClusterBuilder, ClusterOptions, Summary};
use crate::{Result, Row};

/// A cluster that was built but not written yet.
pub(crate) struct Made {
    /// The blob: the cluster and its directories.
    pub(crate) bytes: Vec<u8>,
    /// Its entry in the manifest; owner and number are still 0.
    pub(crate) entry: ClusterEntry,
}

/// Builds a cluster of the given directories with at most about `rows_max` rows. Returns the units
/// that did not fit; the first may be a remainder. `None` if the cluster would be empty: such
/// directories have no rows, and the store knows them.
pub(crate) fn make(
    records: Records<'_>,
    units: &[Unit],
    rows_max: u32,
    hash: NameHash,
) -> Result<(Option<Made>, Vec<Unit>)> {
    let mut builder = ClusterBuilder::new(ClusterOptions::new(hash)).carrying(records.searchable);
    let mut directories = Vec::with_capacity(units.len());
    let mut groups = GroupCounts::default();
    let mut left = Vec::new();
    for (at, unit) in units.iter().enumerate() {
        let before = builder.len();
        let mut take = |row: &Row<'_>| {
            if builder.len() >= rows_max {
                return ControlFlow::Break(());
            }
            groups.plain(row);
            builder.push(row);
            ControlFlow::Continue(())
        };
        let Some((directory, end)) = scan(records, unit, &mut take)? else { continue };
        if let Some(from) = end {
            left.extend_from_slice(&units[at..]);
            if builder.len() > before {
                left[0].from = from;
                directories.push(directory);
            }
            break;
        }
        directories.push(directory);
    }
    if directories.is_empty() {
        return Ok((None, left));
    }
    let rows = builder.len();
    let (mut bytes, summary) = if builder.is_empty() {
        (Vec::new(), Vec::new())
    } else {
        let built = builder.finish();
        (built.bytes, Summary::encode(&built.summary))
    };
    let cluster_bytes = bytes.len() as u64;
    cluster_directories::encode(&directories, &mut bytes);
    let groups_at = bytes.len();
    groups.finish().encode(&mut bytes);
    let (section, last) = (&bytes[cluster_bytes as usize..groups_at], &bytes[groups_at..]);
    let entry = ClusterEntry {
        owner: 0,
        number: 0,
        rows,
        cluster_bytes,
        directories_bytes: section.len() as u32,
        directories_checksum: crc32c::crc32c(section),
        groups_bytes: last.len() as u32,
        groups_checksum: crc32c::crc32c(last),
        summary,
    };
    Ok((Some(Made { bytes, entry }), left))
}

/// Passes on the rows of a directory, or of a part of one, and returns the directory's record;
/// `None` if it does not exist. If `take` stops the scan, returns the cookie of the first row that
/// was not taken.
fn scan(
    records: Records<'_>,
    unit: &Unit,
    take: &mut dyn FnMut(&Row<'_>) -> ControlFlow<()>,
) -> Result<Option<(ClusterDirectory, Option<u64>)>> {
    let Some(record) = records.directory(unit.ino)? else { return Ok(None) };
    let mut own = NamedEntry::default();
    if record.parent_cookie != 0 {
        records.entry(record.parent, record.parent_cookie, &mut own)?;
    }
    // Its name, unless it has none: the directory was detached, or is the root of a clone.
    let name = if own.ino == unit.ino { own.name } else { Vec::new() };
    let mut directory = ClusterDirectory {
        ino: unit.ino,
        from: unit.from,
        // A detached directory has no parent.
        parent: if record.detached { 0 } else { record.parent },
        parent_cookie: record.parent_cookie,
        mode: record.mode,
        uid: record.uid,
        gid: record.gid,
        name,
        files: 0,
        subdirectories: 0,
        bytes: 0,
        allocated: 0,
        ctime: i64::MIN,
    };
    let from = key::entry(unit.ino, unit.from.max(1), Part::Attributes);
    let range = if unit.to > key::COOKIE_MAX {
        KeyRange { from: from.to_vec(), to: store::prefix_end(&key::directory_prefix(unit.ino)) }
    } else {
        KeyRange::between(&from, &key::entry(unit.ino, unit.to, Part::Attributes))
    };
    let mut cursor = records.read.scan(records.tree, range)?;
    let mut xattrs = Vec::new();
    while let Some(item) = cursor.next()? {
        let parsed = key::parse(item.key).map_err(|error| records.malformed(error))?;
        let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
        let entry = EntryRecord::decode(item.value).map_err(|error| records.malformed(error))?;
        if matches!(entry.target, Target::Tombstone | Target::Subvolume(_)) {
            continue;
        }
        // Names are packed with zero bytes between them.
        if entry.name.is_empty() || entry.name.contains(&0) {
            return Err(records.inconsistent("a name that none can be", unit.ino));
        }
        let Some(row) = records.row((unit.ino, cookie), &entry, &mut xattrs)? else { continue };
        if take(&row).is_break() {
            return Ok(Some((directory, Some(cookie))));
        }
        if entry.target == Target::Directory {
            directory.subdirectories += 1;
        } else if is_plain(&row) {
            directory.files += 1;
            directory.bytes = directory.bytes.saturating_add(row.size);
            directory.allocated = directory.allocated.saturating_add(row.allocated);
        }
        directory.ctime = directory.ctime.max(row.ctime);
    }
    Ok(Some((directory, None)))
}
