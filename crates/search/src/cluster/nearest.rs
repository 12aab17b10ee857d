//! Nearest neighbours: the rows most like one (Magellan, 4.2).
//!
//! A distance is a sum of parts, each 0 for what is equal. Size and times count by orders of
//! magnitude: twice as large, or twice as long before or after, is a step. The weights make
//! strangers of files that share no owner, group, kind or extension, however near their sizes.
//!
//! Blocks are looked into in the order of the least distance that their bounds allow, and none
//! that allows less than what was found: the descent of a K-D tree whose leaves are blocks.

use format::cluster::ColumnId;
use format::cluster_filter::hash;
use serde::{Deserialize, Serialize};

use super::summary::extension_hash;
use super::values::{column_of, time_code};
use super::{Cluster, Fields, Summary};
use crate::{Attribute, Result, Row};

/// What a doubling of size counts.
const SIZE_STEP: f64 = 0.125;
/// What a doubling of the time between two changes of contents counts, from a minute on.
const MTIME_STEP: f64 = 0.0625;
/// The same of the last read.
const ATIME_STEP: f64 = 0.015625;
/// What another owner counts.
const OWNER: f64 = 0.5;
/// What another group counts.
const GROUP: f64 = 0.25;
/// What another kind counts.
const KIND: f64 = 4.0;
/// What another extension counts.
const EXTENSION: f64 = 1.0;

const MINUTE: f64 = 60e9;

/// Units of distances as whole numbers, which order matches: `2^20` are 1.
const UNITS: f64 = 1_048_576.0;

/// What others are to be like.
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
    /// Hash of the extension, in small letters.
    extension: u64,
}

/// A distance as a whole number.
pub(crate) fn units(distance: f64) -> u64 {
    (distance * UNITS) as u64
}

/// The least distance that comes to so many units, or a little more than that.
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

/// The value between two that is nearest to another.
fn nearest_of((least, greatest): (u64, u64), value: u64) -> u64 {
    // Falsified bounds may be the wrong way round, which `clamp` takes for a bug.
    value.min(greatest).max(least)
}

impl Like {
    /// What is like this row. The row itself is not: its directory and cookie tell it, unless they
    /// are 0 because it lies elsewhere.
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

    /// The distance of a row in whole numbers; 0 of itself. Needs [`Like::FIELDS`] and the name.
    pub fn units(&self, row: &Row<'_>) -> u64 {
        self.distance(row).map_or(0, units)
    }

    /// How far a row is from it; `None` for itself. Needs [`Like::FIELDS`].
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

    /// What distances are made of.
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

    /// The distance without extensions, of what `value` gives for each attribute.
    pub(super) fn numbers(&self, value: &mut dyn FnMut(Attribute) -> u64) -> f64 {
        size_distance(self.size, value(Attribute::Size))
            + time_distance(self.mtime, value(Attribute::Mtime), MTIME_STEP)
            + time_distance(self.atime, value(Attribute::Atime), ATIME_STEP)
            + differs(self.uid, value(Attribute::Uid), OWNER)
            + differs(self.gid, value(Attribute::Gid), GROUP)
            + differs(self.kind, value(Attribute::Kind), KIND)
    }

    /// The same, unless owner, group and kind alone come to more than `most`: the others, which
    /// are looked up in columns and have logarithms taken of them, could only add to that.
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

    fn own(&self, attribute: Attribute) -> u64 {
        match attribute {
            Attribute::Size => self.size,
            Attribute::Mtime => self.mtime,
            Attribute::Atime => self.atime,
            Attribute::Uid => self.uid,
            Attribute::Gid => self.gid,
            _ => self.kind,
        }
    }

    /// No row whose attributes lie within bounds is nearer than this.
    pub(super) fn least(&self, mut bounds: impl FnMut(Attribute) -> (u64, u64)) -> f64 {
        self.numbers(&mut |attribute| nearest_of(bounds(attribute), self.own(attribute)))
    }
}

impl Summary {
    /// No row of the cluster is nearer than this.
    pub fn least_distance(&self, like: &Like) -> f64 {
        like.least(|attribute| self.code_bounds(attribute))
    }
}

impl Cluster {
    /// The `count` nearest rows, nearest first, of those that are nearer than `within`: numbers
    /// of rows with their distances.
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
                // Most rows are too far without their names.
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
