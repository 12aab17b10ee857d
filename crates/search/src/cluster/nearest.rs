//! Nearest neighbours: the rows most similar to a given one (Magellan, 4.2).
//!
//! A distance is a sum of parts, each 0 for equal values. Size and times count by orders of
//! magnitude: twice as large, or twice as long before or after, is one step. The weights make files
//! dissimilar that share no owner, group, kind or extension, however close their sizes.
//!
//! Blocks are searched in the order of the least distance that their bounds allow, until that
//! exceeds the distances found. This is the descent of a K-D tree whose leaves are blocks.

use format::cluster::ColumnId;
use format::cluster_filter::hash;
use serde::{Deserialize, Serialize};

use super::values::{column_of, extension_hash, time_code};
use super::{Cluster, Fields, Summary};
use crate::{Attribute, Result, Row};

/// Weight of a doubling of size.
const SIZE_STEP: f64 = 0.125;
/// Weight of a doubling of the time between two changes of contents, from one minute on.
const MTIME_STEP: f64 = 0.0625;
/// The same for the last read.
const ATIME_STEP: f64 = 0.015625;
/// Weight of a different owner.
const OWNER: f64 = 0.5;
/// Weight of a different group.
const GROUP: f64 = 0.25;
/// Weight of a different kind.
const KIND: f64 = 4.0;
/// Weight of a different extension.
const EXTENSION: f64 = 1.0;

const MINUTE: f64 = 60e9;

/// Units of distances as whole numbers, by which matches are sorted: `2^20` units are 1.
const UNITS: f64 = 1_048_576.0;

/// The row that others are compared with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Like {
    directory: u64,
    cookie: u64,
    size: u64,
    mtime: u64,
    atime: u64,
    uid: u64,
    gid: u64,
    kind: u64,
    /// Hash of the extension, in lower case.
    extension: u64,
}

/// A distance as a whole number.
pub(crate) fn units(distance: f64) -> u64 {
    (distance * UNITS) as u64
}

/// The least distance that rounds to so many units, or slightly more.
pub(super) fn distance_of(units: u64) -> f64 {
    units as f64 / UNITS
}

fn extension_of(name: &[u8]) -> u64 {
    extension_hash(name).unwrap_or_else(|| hash(b""))
}

fn size_distance(a: u64, b: u64) -> f64 {
    let log = |size: u64| (size as f64 + 1.0).log2();
    (log(a) - log(b)).abs() * SIZE_STEP
}

fn time_distance(a: u64, b: u64, step: f64) -> f64 {
    (a.abs_diff(b) as f64 / MINUTE + 1.0).log2() * step
}

fn differs(a: u64, b: u64, weight: f64) -> f64 {
    if a == b { 0.0 } else { weight }
}

/// The value between two bounds that is nearest to a given one.
fn nearest_of((least, greatest): (u64, u64), value: u64) -> u64 {
    // Corrupted bounds may be reversed, and `clamp` panics on those.
    value.min(greatest).max(least)
}

impl Like {
    /// Searches for rows similar to this one. The row itself is excluded by its directory and
    /// cookie, unless those are 0 because it is in another place.
    pub fn new(row: &Row<'_>) -> Like {
        Like {
            directory: row.directory,
            cookie: row.cookie,
            size: row.size,
            mtime: time_code(row.mtime),
            atime: time_code(row.atime),
            uid: row.uid.into(),
            gid: row.gid.into(),
            kind: row.kind.byte().into(),
            extension: extension_of(row.name),
        }
    }

    /// The distance of a row in whole units; 0 for the row itself. Needs [`Like::FIELDS`] and the
    /// name.
    pub fn units(&self, row: &Row<'_>) -> u64 {
        self.distance(row).map_or(0, units)
    }

    /// The distance of a row; `None` for the row itself. Needs [`Like::FIELDS`].
    pub fn distance(&self, row: &Row<'_>) -> Option<f64> {
        let itself = (row.directory, row.cookie) == (self.directory, self.cookie);
        if itself && self.directory != 0 {
            return None;
        }
        let numbers = self.numbers(&mut |attribute| match attribute {
            Attribute::Size => row.size,
            Attribute::Mtime => time_code(row.mtime),
            Attribute::Atime => time_code(row.atime),
            Attribute::Uid => row.uid.into(),
            Attribute::Gid => row.gid.into(),
            _ => row.kind.byte().into(),
        });
        let same = extension_of(row.name) == self.extension;
        Some(numbers + if same { 0.0 } else { EXTENSION })
    }

    /// Fields that distances are computed from.
    pub const FIELDS: Fields = Fields::IDENTITY
        .and(Fields::column(ColumnId::Size))
        .and(Fields::column(ColumnId::Mtime))
        .and(Fields::column(ColumnId::Atime))
        .and(Fields::column(ColumnId::Uid))
        .and(Fields::column(ColumnId::Gid));

    pub(super) const ATTRIBUTES: [Attribute; 6] = [
        Attribute::Size,
        Attribute::Mtime,
        Attribute::Atime,
        Attribute::Uid,
        Attribute::Gid,
        Attribute::Kind,
    ];

    /// The distance without extensions; `value` returns each attribute's value.
    pub(super) fn numbers(&self, value: &mut dyn FnMut(Attribute) -> u64) -> f64 {
        size_distance(self.size, value(Attribute::Size))
            + time_distance(self.mtime, value(Attribute::Mtime), MTIME_STEP)
            + time_distance(self.atime, value(Attribute::Atime), ATIME_STEP)
            + differs(self.uid, value(Attribute::Uid), OWNER)
            + differs(self.gid, value(Attribute::Gid), GROUP)
            + differs(self.kind, value(Attribute::Kind), KIND)
    }

    /// The same, or `None` if owner, group and kind alone exceed `most`: the others need column
    /// look-ups and logarithms, and could only increase it.
    pub(super) fn numbers_within(
        &self,
        most: f64,
        value: &mut dyn FnMut(Attribute) -> u64,
    ) -> Option<f64> {
        let strange = differs(self.kind, value(Attribute::Kind), KIND)
            + differs(self.uid, value(Attribute::Uid), OWNER)
            + differs(self.gid, value(Attribute::Gid), GROUP);
        (strange <= most).then(|| self.numbers(value))
    }

    fn own_value(&self, attribute: Attribute) -> u64 {
        match attribute {
            Attribute::Size => self.size,
            Attribute::Mtime => self.mtime,
            Attribute::Atime => self.atime,
            Attribute::Uid => self.uid,
            Attribute::Gid => self.gid,
            _ => self.kind,
        }
    }

    /// A lower bound for rows whose attributes are within bounds.
    pub(super) fn least(&self, mut bounds: impl FnMut(Attribute) -> (u64, u64)) -> f64 {
        self.numbers(&mut |attribute| nearest_of(bounds(attribute), self.own_value(attribute)))
    }
}

impl Summary {
    /// A lower bound for the cluster's rows.
    pub fn least_distance(&self, like: &Like) -> f64 {
        like.least(|attribute| self.code_bounds(attribute))
    }
}

impl Cluster {
    /// The `count` nearest rows, nearest first, among those nearer than `within`: row numbers with
    /// their distances.
    pub fn nearest(&self, like: &Like, count: usize, within: f64) -> Result<Vec<(f64, u32)>> {
        if count == 0 || self.summary().least_distance(like) >= within {
            return Ok(Vec::new());
        }
        let mut columns = Vec::new();
        for attribute in Like::ATTRIBUTES {
            columns.push((attribute, self.column(column_of(attribute))?));
        }
        let shape = self.shape();
        let mut blocks: Vec<(f64, usize)> = (0..shape.blocks())
            .map(|block| {
                let least = like.least(|wanted| {
                    let found = columns.iter().find(|(attribute, _)| *attribute == wanted);
                    found.map_or((0, u64::MAX), |(_, column)| column.bounds(block))
                });
                (least, block)
            })
            .collect();
        blocks.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let rows = self.rows(Like::FIELDS)?;
        let block_rows = u32::from(shape.block_rows);
        let mut nearest: Vec<(f64, u32)> = Vec::new();
        let mut farthest = within;
        for (least, block) in blocks {
            if least >= farthest {
                break;
            }
            let first = block as u32 * block_rows;
            for row in first..shape.rows.min(first + block_rows) {
                let numbers = like.numbers_within(farthest, &mut |wanted| {
                    let found = columns.iter().find(|(attribute, _)| *attribute == wanted);
                    found.map_or(0, |(_, column)| column.get(row as usize))
                });
                // Most rows are too far even without their names.
                if numbers.is_none_or(|numbers| numbers >= farthest) {
                    continue;
                }
                let distance = like.distance(&rows.get(row));
                let Some(distance) = distance.filter(|&distance| distance < farthest) else {
                    continue;
                };
                let at = nearest.partition_point(|&(other, _)| other <= distance);
                nearest.insert(at, (distance, row));
                nearest.truncate(count);
                if nearest.len() == count {
                    farthest = nearest[count - 1].0;
                }
            }
        }
        Ok(nearest)
    }
}
