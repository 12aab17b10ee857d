//! Searches a cluster. Bounds, which are the inner nodes of the K-D tree, exclude blocks. The
//! columns of the remaining ones are tested block by block.
//!
//! Columns are read in the order of the conditions, and only while blocks remain.

use std::ops::ControlFlow;
use std::sync::Arc;

use format::cluster::{BLOCK_ROWS_MAX, ColumnId};
use format::cluster_names::{self, Names};
use format::xattr_record::XattrRecord;

use super::Cluster;
use super::column::{Column, Shape};
use super::column_test::{Mask, Test};
use super::names::NameTest;
use super::nearest::{Like, distance_of, units};
use super::open::Carried;
use super::values::column_of;
use crate::{Attribute, Condition, Result};

/// Fewer rows than this are tested name by name.
pub(super) const FEW: u32 = 12;

/// A condition on extended attributes, for clusters from before attributes had columns.
struct XattrTest<'a> {
    column: Arc<Column>,
    name: &'a [u8],
    value: Option<&'a [u8]>,
}

impl XattrTest<'_> {
    fn meets(&self, row: usize, shape: Shape) -> bool {
        let bytes = self.column.get_bytes(row, shape);
        if bytes.is_empty() {
            return false;
        }
        // The whole query decides about a malformed record.
        let Ok(record) = XattrRecord::decode(bytes) else { return true };
        let value = record.get(self.name);
        value.is_some() && self.value.is_none_or(|wanted| value == Some(wanted))
    }
}

impl Cluster {
    /// Calls `emit` with the number of every row that meets all conditions, until it breaks. Exact:
    /// every emitted row meets them, except those on extended attributes that rows do not carry.
    pub fn search(
        &self,
        narrow: &[Condition],
        emit: &mut dyn FnMut(u32) -> ControlFlow<()>,
    ) -> Result<ControlFlow<()>> {
        let Some((mut scan, blocks)) = Scan::of(self, narrow)? else {
            return Ok(ControlFlow::Continue(()));
        };
        for block in blocks {
            let first = block as usize * usize::from(scan.shape.block_rows);
            for row in bits(scan.mask(block as usize)?) {
                let row = first + row;
                if scan.meets(row) && emit(row as u32).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

pub(super) struct Scan<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) shape: Shape,
    tests: Vec<(Arc<Column>, Test)>,
    /// Required values of the name tags.
    tags: Vec<(Arc<Column>, u8)>,
    names: Vec<NameTest>,
    /// The names, once they are needed.
    strings: Option<Arc<Column>>,
    xattrs: Vec<XattrTest<'a>>,
    near: Vec<Near>,
}

/// A condition on the distance from a row, without the part for names.
struct Near {
    like: Like,
    most: u64,
    columns: Vec<(Attribute, Arc<Column>)>,
}

impl Near {
    fn new(cluster: &Cluster, like: Like, most: u64) -> Result<Near> {
        let mut columns = Vec::new();
        for attribute in Like::ATTRIBUTES {
            columns.push((attribute, cluster.column(column_of(attribute))?));
        }
        Ok(Near { like, most, columns })
    }

    fn column(&self, wanted: Attribute) -> Option<&Column> {
        let mut columns = self.columns.iter();
        columns.find_map(|(attribute, column)| (*attribute == wanted).then_some(&**column))
    }

    fn may_meet(&self, block: usize) -> bool {
        let least = self.like.least(|attribute| {
            self.column(attribute).map_or((0, u64::MAX), |column| column.bounds(block))
        });
        units(least) <= self.most
    }

    fn meets(&self, row: usize) -> bool {
        let value = &mut |attribute| self.column(attribute).map_or(0, |column| column.get(row));
        // Any greater distance has at least as many units.
        let most = distance_of(self.most.saturating_add(1));
        let distance = self.like.numbers_within(most, value);
        distance.is_some_and(|distance| units(distance) <= self.most)
    }
}

impl<'a> Scan<'a> {
    /// The scan for some conditions, and the blocks that may have matching rows; `None`: there are
    /// none.
    pub(super) fn of(
        cluster: &'a Cluster,
        narrow: &'a [Condition],
    ) -> Result<Option<(Scan<'a>, Vec<u32>)>> {
        if !cluster.summary().may_match(narrow) {
            return Ok(None);
        }
        let shape = cluster.shape();
        let mut blocks: Vec<u32> = (0..shape.blocks() as u32).collect();
        let names = narrow.iter().filter_map(NameTest::new).collect();
        let (tests, tags, xattrs, near) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut scan = Scan { cluster, shape, tests, tags, names, strings: None, xattrs, near };
        for condition in narrow {
            let (column, test) = if let Condition::Xattr(name, value) = condition {
                match cluster.carried(name, value.as_deref())? {
                    Carried::Unknown => continue,
                    Carried::Nowhere => return Ok(None),
                    Carried::InRecords => {
                        let column = cluster.column(ColumnId::Xattrs)?;
                        scan.xattrs.push(XattrTest { column, name, value: value.as_deref() });
                        continue;
                    }
                    Carried::Ranked(column, test) => (column, test),
                }
            } else if let Some((id, test)) = Test::new(condition) {
                (cluster.column(id)?, test)
            } else {
                continue;
            };
            blocks.retain(|&block| {
                let (least, greatest) = column.bounds(block as usize);
                test.may_meet(least, greatest)
            });
            if blocks.is_empty() {
                return Ok(None);
            }
            scan.tests.push((column, test));
        }
        for condition in narrow {
            if let Condition::Name(name) = condition {
                // In clusters from before name tags, it is a constant.
                scan.tags.push((cluster.column(ColumnId::NameTags)?, cluster_names::tag(name)));
            }
        }
        for condition in narrow {
            if let Condition::Near(like, most) = condition {
                scan.near.push(Near::new(cluster, *like, *most)?);
            }
        }
        blocks.retain(|&block| scan.near.iter().all(|near| near.may_meet(block as usize)));
        Ok(Some((scan, blocks)))
    }

    /// Whether a row meets the conditions that are not tested block by block.
    fn meets(&self, row: usize) -> bool {
        self.xattrs.iter().all(|test| test.meets(row, self.shape))
            && self.near.iter().all(|near| near.meets(row))
    }

    /// The rows of a block that meet the conditions on numbers and names.
    pub(super) fn mask(&mut self, block: usize) -> Result<Mask> {
        let block_rows = usize::from(self.shape.block_rows);
        let first = block * block_rows;
        let rows = (self.shape.rows as usize - first).min(block_rows);
        let mut mask: Mask = std::array::from_fn(|word| match rows.saturating_sub(word * 64) {
            0 => 0,
            left @ 1..64 => (1 << left) - 1,
            _ => u64::MAX,
        });
        for (column, tag) in &self.tags {
            if let Column::Tags(tags) = &**column {
                keep_tags(&tags[first..first + rows], *tag, &mut mask);
            }
        }
        if is_empty(&mask) {
            return Ok(mask);
        }
        let mut values = [0; BLOCK_ROWS_MAX as usize];
        for (column, test) in &self.tests {
            let (least, greatest) = column.bounds(block);
            if test.all_meet(least, greatest) {
                continue;
            }
            column.values(block, self.shape, &mut values);
            test.keep(&values[..rows], &mut mask);
            if is_empty(&mask) {
                return Ok(mask);
            }
        }
        if !self.names.is_empty() {
            if self.strings.is_none() {
                self.strings = Some(self.cluster.column(ColumnId::Names)?);
            }
            if let Some(Column::Names(names)) = self.strings.as_deref() {
                self.keep_names(names, block, first, &mut mask);
            }
        }
        Ok(mask)
    }

    fn keep_names(&self, names: &Names, block: usize, first: usize, mask: &mut Mask) {
        let few = mask.iter().map(|word| word.count_ones()).sum::<u32>() <= FEW;
        for test in &self.names {
            let mut met: Mask = [0; _];
            if few {
                for row in bits(*mask).filter(|row| test.meets(names.get(first + row))) {
                    met[row / 64] |= 1 << (row % 64);
                }
            } else {
                test.find_all(names.packed(block, block + 1), |row| {
                    met[row / 64] |= 1 << (row % 64);
                });
            }
            for (word, met) in mask.iter_mut().zip(met) {
                *word &= met;
            }
        }
    }
}

pub(super) fn is_empty(mask: &Mask) -> bool {
    mask.iter().all(|&word| word == 0)
}

/// Clears the bits of rows with another tag.
fn keep_tags(tags: &[u8], wanted: u8, mask: &mut Mask) {
    for (word, tags) in mask.iter_mut().zip(tags.chunks(64)) {
        let mut met = 0;
        for (bit, &tag) in tags.iter().enumerate() {
            met |= u64::from(tag == wanted) << bit;
        }
        *word &= met;
    }
}

/// Positions of the bits that are set.
pub(super) fn bits(mask: Mask) -> impl Iterator<Item = usize> {
    mask.into_iter().enumerate().flat_map(|(place, mut word)| {
        std::iter::from_fn(move || {
            let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
            word &= word - 1;
            Some(place * 64 + bit)
        })
    })
}
