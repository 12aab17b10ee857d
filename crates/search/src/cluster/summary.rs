//! The summary of a cluster, by which queries skip it unread (Magellan, 4.3). It has bounds of
//! every attribute, and Bloom filters of values, of ranges of sizes and times, and of names.
//!
//! Filters contain exactly what the cluster was built from and never change, so a "no" is always
//! correct. Each is sized to its members, up to a bound.

use format::Malformed;
use format::cluster::ColumnId;
use format::cluster_filter::{Filter, hash, hash_number};
use format::cluster_summary::{ATTRIBUTES as COUNT, SummaryRecord};
use format::inode_record::FileKind;
use format::xattr_record::XattrRecord;

use super::nearest::units;
use super::values::{
    self, NUMBERS, code, code_range, column_of, extension_hash, is_time, place_of,
};
use crate::{Attribute, Condition};

/// Maximum bytes of an attribute's filter: as in the paper.
const ATTRIBUTE_BYTES_MAX: usize = 2 << 10;
/// Maximum bytes of the filter of names.
const NAMES_BYTES_MAX: usize = 1 << 20;
/// Maximum bytes of the filter of trigrams.
const TRIGRAMS_BYTES_MAX: usize = 8 << 10;
/// Bits for each member of a filter.
const BITS_EACH: u32 = 10;
/// Maximum values of a range that are looked up one by one.
const RANGE_MAX: u64 = 64;

// DO NOT CHANGE: the members of filters are on disk. Attributes are their index plus 1.
const NAMES: u8 = 32;
const EXTENSIONS: u8 = 33;
const TRIGRAMS: u8 = 34;
const XATTRS: u8 = 35;

/// Attributes with a filter of single values.
const SINGLE: [Attribute; 6] = [
    Attribute::Directory,
    Attribute::Kind,
    Attribute::Mode,
    Attribute::Uid,
    Attribute::Gid,
    Attribute::Links,
];
/// Attributes with a filter of ranges.
const RANGED: [Attribute; 5] =
    [Attribute::Size, Attribute::Atime, Attribute::Mtime, Attribute::Ctime, Attribute::Btime];

/// Widths of time ranges to choose from, as shifts of nanoseconds: 69 s, 37 min, 20 h, 26 days, and
/// 2.3 years.
const TIME_SHIFTS: [u8; 5] = [36, 41, 46, 51, 56];
/// How much wider, in bits, the second kind of range of the same filter is.
const COARSER: u8 = 8;
/// Keeps ranges of both kinds apart.
const COARSE_MARK: u64 = 1 << 63;

/// The summary of a cluster's rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Summary {
    record: SummaryRecord,
}

/// The range of a size: eight ranges per doubling.
fn size_range(size: u64) -> u64 {
    let log = size.max(1).ilog2();
    if log < 3 { size } else { u64::from(log - 2) << 3 | size >> (log - 3) & 7 }
}

fn trigrams(name: &[u8]) -> impl Iterator<Item = u32> {
    name.windows(3).map(|three| {
        three.iter().fold(0, |word, byte| word << 8 | u32::from(byte.to_ascii_lowercase()))
    })
}

/// Member of the filter for an attribute: with any value, or with a certain one.
fn xattr_hash(name: &[u8], value: Option<&[u8]>) -> u64 {
    let mut bytes = name.to_vec();
    bytes.push(0);
    bytes.extend_from_slice(value.unwrap_or_default());
    hash(&bytes) ^ u64::from(value.is_some())
}

fn distinct(mut members: Vec<u64>) -> Vec<u64> {
    members.sort_unstable();
    members.dedup();
    members
}

impl Summary {
    /// The summary of columns, and of the visited names and extended attributes. All attributes
    /// named in `carried` are included.
    pub(super) fn build(
        columns: &[Vec<u64>; NUMBERS],
        carried: &[Vec<u8>],
        strings: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
    ) -> Summary {
        let column = |id: ColumnId| columns[id as usize].as_slice();
        let sum = |id| column(id).iter().fold(0_u64, |sum: u64, &value| sum.saturating_add(value));
        let is_directory = |&&kind: &&u64| kind == u64::from(FileKind::Directory.byte());
        let bounds: [(u64, u64); COUNT] = Attribute::ALL.map(|attribute| {
            let values = column(column_of(attribute));
            let least = values.iter().copied().min().unwrap_or(0);
            (least, values.iter().copied().max().unwrap_or(0))
        });
        let mut filters = Vec::new();
        for attribute in SINGLE {
            let members = distinct(column(column_of(attribute)).to_vec());
            let members: Vec<u64> = members.into_iter().map(hash_number).collect();
            let filter = Filter::build(&members, BITS_EACH, ATTRIBUTE_BYTES_MAX);
            filters.push((place_of(attribute) as u8 + 1, 0, filter));
        }
        for attribute in RANGED {
            let (shift, filter) = ranges(attribute, column(column_of(attribute)));
            filters.push((place_of(attribute) as u8 + 1, shift, filter));
        }
        name_filters(&mut filters, strings);
        let kinds = column(ColumnId::Kind);
        let record = SummaryRecord {
            rows: kinds.len() as u64,
            directories: kinds.iter().filter(is_directory).count() as u64,
            size: sum(ColumnId::Size),
            allocated: sum(ColumnId::Allocated),
            bounds,
            filters,
            carried: carried.to_vec(),
        };
        Summary { record }
    }

    /// The bytes, for callers that also keep summaries elsewhere.
    pub fn encode(&self) -> Vec<u8> {
        self.record.encode()
    }

    /// Reads a summary.
    pub fn decode(bytes: &[u8]) -> Result<Summary, Malformed> {
        Ok(Summary { record: SummaryRecord::decode(bytes)? })
    }

    /// Rows.
    pub fn rows(&self) -> u64 {
        self.record.rows
    }

    /// Rows that are directories.
    pub fn directories(&self) -> u64 {
        self.record.directories
    }

    /// Sum of sizes in bytes, saturating.
    pub fn size(&self) -> u64 {
        self.record.size
    }

    /// Sum of allocated space, in bytes.
    pub fn allocated(&self) -> u64 {
        self.record.allocated
    }

    /// Whether the sum over the rows, and so over any subset, fits in 64 bits: then sums in 64 bits
    /// are exact.
    pub(crate) fn is_exact(&self) -> bool {
        self.record.size < u64::MAX && self.record.allocated < u64::MAX
    }

    /// Least and greatest value of an attribute.
    pub fn bounds(&self, attribute: Attribute) -> (i128, i128) {
        let (least, greatest) = self.record.bounds[place_of(attribute)];
        let value = |code: u64| {
            if is_time(attribute) { values::code_time(code).into() } else { i128::from(code) }
        };
        (value(least), value(greatest))
    }

    /// Bounds as stored in columns.
    pub(super) fn code_bounds(&self, attribute: Attribute) -> (u64, u64) {
        self.record.bounds[place_of(attribute)]
    }

    /// Whether rows carry all extended attributes of a name.
    pub fn carries(&self, name: &[u8]) -> bool {
        self.place_of_carried(name).is_some()
    }

    /// The names of the extended attributes that rows carry, in order.
    pub(super) fn carried(&self) -> &[Vec<u8>] {
        &self.record.carried
    }

    /// The index of a name among those.
    pub(super) fn place_of_carried(&self, name: &[u8]) -> Option<usize> {
        self.carried().binary_search_by(|carried| carried.as_slice().cmp(name)).ok()
    }

    /// Bytes in memory.
    pub fn memory_bytes(&self) -> usize {
        let filters = self.record.filters.iter();
        let carried = self.record.carried.iter().map(|name| name.len() + size_of::<Vec<u8>>());
        let filters: usize = filters.map(|(_, _, f)| f.memory_bytes() + 8).sum();
        size_of::<Summary>() + filters + carried.sum::<usize>()
    }

    /// Whether a row may meet all conditions. `false`: none does.
    pub fn may_match(&self, narrow: &[Condition]) -> bool {
        narrow.iter().all(|condition| self.may_meet(condition))
    }

    /// Whether the bounds prove that all rows meet all conditions. `false`: unknown.
    pub fn all_match(&self, narrow: &[Condition]) -> bool {
        narrow.iter().all(|condition| match condition {
            Condition::Within(attribute, least, greatest) => {
                let (lowest, highest) = self.code_bounds(*attribute);
                code_range(*attribute, *least, *greatest)
                    .is_some_and(|(least, greatest)| least <= lowest && highest <= greatest)
            }
            _ => false,
        })
    }

    fn may_meet(&self, condition: &Condition) -> bool {
        match condition {
            Condition::Within(attribute, least, greatest) => {
                code_range(*attribute, *least, *greatest)
                    .is_some_and(|(least, greatest)| self.may_be_in(*attribute, least, greatest))
            }
            Condition::OneOf(attribute, values) => values.iter().any(|&value| {
                code(*attribute, value)
                    .is_some_and(|value| self.may_be_in(*attribute, value, value))
            }),
            Condition::Name(name) => self.may_have(NAMES, hash(name)),
            Condition::NameContains(part) | Condition::NameStarts(part) => self.may_contain(part),
            Condition::NameEnds(end) => {
                extension_hash(end).is_none_or(|member| self.may_have(EXTENSIONS, member))
                    && self.may_contain(end)
            }
            Condition::Xattr(name, value) => {
                !self.carries(name) || self.may_have(XATTRS, xattr_hash(name, value.as_deref()))
            }
            Condition::Near(like, most) => units(self.least_distance(like)) <= *most,
        }
    }

    fn filter(&self, of: u8) -> Option<(u8, &Filter)> {
        let mut filters = self.record.filters.iter();
        filters.find_map(|(other, shift, filter)| (*other == of).then_some((*shift, filter)))
    }

    fn may_have(&self, of: u8, member: u64) -> bool {
        self.filter(of).is_none_or(|(_, filter)| filter.may_have(member))
    }

    fn may_contain(&self, part: &[u8]) -> bool {
        self.filter(TRIGRAMS).is_none_or(|(_, filter)| {
            trigrams(part).all(|three| filter.may_have(hash_number(three.into())))
        })
    }

    /// Whether a value may be between two bounds, inclusive.
    fn may_be_in(&self, attribute: Attribute, least: u64, greatest: u64) -> bool {
        let (lowest, highest) = self.record.bounds[place_of(attribute)];
        if greatest < lowest || least > highest {
            return false;
        }
        // Bounds are values of rows: a range that includes one of them has a row.
        if least <= lowest || greatest >= highest {
            return true;
        }
        let Some((shift, filter)) = self.filter(place_of(attribute) as u8 + 1) else {
            return true;
        };
        let any = |from: u64, to: u64, mark: u64| {
            (from..=to).any(|range| filter.may_have(hash_number(range | mark)))
        };
        let few = |from: u64, to: u64| to - from < RANGE_MAX;
        if attribute == Attribute::Size {
            let (from, to) = (size_range(least), size_range(greatest));
            return !few(from, to) || any(from, to, 0);
        }
        let (from, to) = (least >> shift, greatest >> shift);
        if few(from, to) {
            return any(from, to, 0);
        }
        if is_time(attribute) {
            let coarse = (shift + COARSER).min(63);
            let (from, to) = (least >> coarse, greatest >> coarse);
            return !few(from, to) || any(from, to, COARSE_MARK);
        }
        true
    }
}

/// The filter of the ranges that values are in, and their width.
fn ranges(attribute: Attribute, values: &[u64]) -> (u8, Filter) {
    let (shift, members) = if attribute == Attribute::Size {
        (0, distinct(values.iter().map(|&size| size_range(size)).collect()))
    } else {
        time_ranges(values)
    };
    let members: Vec<u64> = members.into_iter().map(hash_number).collect();
    (shift, Filter::build(&members, BITS_EACH, ATTRIBUTE_BYTES_MAX))
}

/// Ranges as narrow as a filter of the maximum size holds, and coarser ones.
fn time_ranges(values: &[u64]) -> (u8, Vec<u64>) {
    let most = ATTRIBUTE_BYTES_MAX * 8 / BITS_EACH as usize;
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let at = |shift: u8| {
        let mut ranges: Vec<u64> = sorted.iter().map(|value| value >> shift).collect();
        ranges.dedup();
        ranges
    };
    let widest = TIME_SHIFTS[TIME_SHIFTS.len() - 1];
    let all = TIME_SHIFTS.into_iter().map(|shift| {
        let mut members = at(shift);
        members.extend(at((shift + COARSER).min(63)).into_iter().map(|r| r | COARSE_MARK));
        (shift, members)
    });
    let mut last = (widest, Vec::new());
    for choice in all {
        last = choice;
        if last.1.len() <= most {
            break;
        }
    }
    last
}

fn name_filters(
    filters: &mut Vec<(u8, u8, Filter)>,
    strings: impl FnOnce(&mut dyn FnMut(&[u8], &[u8])),
) {
    let (mut names, mut extensions, mut xattrs) = (Vec::new(), Vec::new(), Vec::new());
    // A bit for each of the 2^24 trigrams would be 2 MiB; most names share theirs.
    let mut threes: Vec<u32> = Vec::new();
    strings(&mut |name, attributes| {
        names.push(hash(name));
        extensions.extend(extension_hash(name));
        threes.extend(trigrams(name));
        if threes.len() >= 1 << 20 {
            threes.sort_unstable();
            threes.dedup();
        }
        // A malformed record has no attributes that a search could find.
        if !attributes.is_empty()
            && let Ok(record) = XattrRecord::decode(attributes)
        {
            for (name, value) in record.iter() {
                xattrs.push(xattr_hash(name, None));
                xattrs.push(xattr_hash(name, Some(value)));
            }
        }
    });
    let threes = threes.into_iter().map(|three| hash_number(three.into())).collect();
    for (of, members, most) in [
        (NAMES, names, NAMES_BYTES_MAX),
        (EXTENSIONS, extensions, ATTRIBUTE_BYTES_MAX),
        (TRIGRAMS, threes, TRIGRAMS_BYTES_MAX),
        (XATTRS, xattrs, ATTRIBUTE_BYTES_MAX),
    ] {
        filters.push((of, 0, Filter::build(&distinct(members), BITS_EACH, most)));
    }
}
