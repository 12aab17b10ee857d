//! Totals of the rows of a cluster, by owner, kind, size, age and extension, so that totals of a
//! volume need no rows (`docs/format/cluster-groups.md`).
//!
//! Counts inodes that are not directories and have one name. Whether an inode with several names
//! counts depends on the other names, so those are counted row by row. Each sum is over the same
//! rows.

use std::collections::BTreeMap;

use crate::layout::Field;
use crate::{Malformed, Reader, Writer};

/// Layout of the section; each list is a count and that many of `ITEM_LAYOUT`.
pub const LAYOUT: &[Field] = &[
    Field::variable("directories", "varint"),
    Field::variable("linked", "varint"),
    Field::fixed("ctime", "i64 LE", 8),
    Field::variable("kinds", "list"),
    Field::variable("owners", "list"),
    Field::variable("groups", "list"),
    Field::variable("sizes", "list"),
    Field::variable("days", "list"),
    Field::variable("extensions", "list of names"),
];

/// Layout of one item of a list.
pub const ITEM_LAYOUT: &[Field] = &[
    Field::variable("step", "varint"),
    Field::variable("files", "varint"),
    Field::variable("bytes", "varint"),
    Field::variable("allocated", "varint"),
];

/// Layout of one item of the list of extensions.
pub const NAMED_LAYOUT: &[Field] = &[
    Field::fixed("length", "u8", 1),
    Field::variable("extension", "bytes"),
    Field::variable("files", "varint"),
    Field::variable("bytes", "varint"),
    Field::variable("allocated", "varint"),
];

/// Nanoseconds of a day of UTC.
pub const DAY: i64 = 86_400_000_000_000;

/// Days from the least time to 1970, so that days are stored as positive numbers.
const DAYS_BEFORE: i64 = 106_752;

/// Number, size and space of inodes. The sizes of two sparse files may exceed 64 bits, so sizes are
/// summed in 128 bits. The greatest possible number of files of the greatest size does not overflow
/// those. If the sum of a cluster exceeds 64 bits, the greatest number is stored on disk.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sums {
    /// Inodes.
    pub files: u64,
    /// Their sizes.
    pub bytes: u128,
    /// Their space.
    pub allocated: u128,
}

impl Sums {
    /// Adds others.
    pub fn add(&mut self, other: Sums) {
        self.files = self.files.saturating_add(other.files);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.allocated = self.allocated.saturating_add(other.allocated);
    }

    /// Subtracts others that were added.
    pub fn take(&mut self, other: Sums) {
        self.files = self.files.saturating_sub(other.files);
        self.bytes = self.bytes.saturating_sub(other.bytes);
        self.allocated = self.allocated.saturating_sub(other.allocated);
    }

    fn encode(self, out: &mut Vec<u8>) {
        let narrow = |sum: u128| u64::try_from(sum).unwrap_or(u64::MAX);
        out.put_varint(self.files);
        out.put_varint(narrow(self.bytes));
        out.put_varint(narrow(self.allocated));
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Sums, Malformed> {
        let (files, bytes, allocated) = (reader.varint()?, reader.varint()?, reader.varint()?);
        Ok(Sums { files, bytes: bytes.into(), allocated: allocated.into() })
    }
}

/// Sums by category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// Names of directories.
    pub directories: u64,
    /// Names of inodes with several names: those are counted row by row.
    pub linked: u64,
    /// The last change of attributes of any row.
    pub ctime: i64,
    /// By kind (`FileKind::byte`).
    pub kinds: BTreeMap<u64, Sums>,
    /// By owner.
    pub owners: BTreeMap<u64, Sums>,
    /// By group.
    pub groups: BTreeMap<u64, Sums>,
    /// By size: its number of binary digits, 0 to 64.
    pub sizes: BTreeMap<u64, Sums>,
    /// By the day of UTC of the last change of contents, since 1970.
    pub days: BTreeMap<i64, Sums>,
    /// By extension; the empty one means none.
    pub extensions: BTreeMap<Vec<u8>, Sums>,
}

impl Default for Groups {
    fn default() -> Groups {
        Groups {
            directories: 0,
            linked: 0,
            ctime: i64::MIN,
            kinds: BTreeMap::new(),
            owners: BTreeMap::new(),
            groups: BTreeMap::new(),
            sizes: BTreeMap::new(),
            days: BTreeMap::new(),
            extensions: BTreeMap::new(),
        }
    }
}

impl Groups {
    /// Adds other totals, which are consumed.
    pub fn absorb(&mut self, other: Groups) {
        if *self == Groups::default() {
            *self = other;
        } else {
            self.merge(&other);
        }
    }

    /// Adds other totals.
    pub fn merge(&mut self, other: &Groups) {
        self.directories = self.directories.saturating_add(other.directories);
        self.linked = self.linked.saturating_add(other.linked);
        self.ctime = self.ctime.max(other.ctime);
        let lists = [
            (&mut self.kinds, &other.kinds),
            (&mut self.owners, &other.owners),
            (&mut self.groups, &other.groups),
            (&mut self.sizes, &other.sizes),
        ];
        for (list, others) in lists {
            for (key, sums) in others {
                list.entry(*key).or_default().add(*sums);
            }
        }
        for (day, sums) in &other.days {
            self.days.entry(*day).or_default().add(*sums);
        }
        for (extension, sums) in &other.extensions {
            if let Some(known) = self.extensions.get_mut(extension) {
                known.add(*sums);
            } else {
                self.extensions.insert(extension.clone(), *sums);
            }
        }
    }

    /// Subtracts other totals that were merged before. `ctime` stays, because the latest of the
    /// remaining rows is not known.
    pub fn take(&mut self, other: &Groups) {
        self.directories = self.directories.saturating_sub(other.directories);
        self.linked = self.linked.saturating_sub(other.linked);
        take_all(&mut self.kinds, &other.kinds);
        take_all(&mut self.owners, &other.owners);
        take_all(&mut self.groups, &other.groups);
        take_all(&mut self.sizes, &other.sizes);
        take_all(&mut self.days, &other.days);
        take_all(&mut self.extensions, &other.extensions);
    }

    /// The sum of all of them.
    pub fn total(&self) -> Sums {
        let mut total = Sums::default();
        for sums in self.kinds.values() {
            total.add(*sums);
        }
        total
    }

    /// Appends the section.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.put_varint(self.directories);
        out.put_varint(self.linked);
        out.put_i64(self.ctime);
        for list in [&self.kinds, &self.owners, &self.groups, &self.sizes] {
            encode_list(list.iter().map(|(key, sums)| (*key, *sums)), list.len(), out);
        }
        let days = self.days.iter().map(|(day, sums)| {
            (u64::try_from(day.saturating_add(DAYS_BEFORE)).unwrap_or_default(), *sums)
        });
        encode_list(days, self.days.len(), out);
        out.put_varint(wide(self.extensions.len()));
        for (extension, sums) in &self.extensions {
            let length = u8::try_from(extension.len()).unwrap_or(u8::MAX);
            out.put_u8(length);
            out.raw(extension.get(..usize::from(length)).unwrap_or_default());
            sums.encode(out);
        }
    }

    /// Reads a section whose bytes were compared with their checksum.
    pub fn decode(bytes: &[u8]) -> Result<Groups, Malformed> {
        let mut reader = Reader::new("cluster groups", bytes);
        let mut groups = Groups {
            directories: reader.varint()?,
            linked: reader.varint()?,
            ctime: reader.i64()?,
            ..Groups::default()
        };
        groups.kinds = decode_list(&mut reader)?;
        groups.owners = decode_list(&mut reader)?;
        groups.groups = decode_list(&mut reader)?;
        groups.sizes = decode_list(&mut reader)?;
        for (day, sums) in decode_list(&mut reader)? {
            let day = i64::try_from(day).map_err(|_| reader.malformed("a day", day.to_string()))?;
            groups.days.insert(day.saturating_sub(DAYS_BEFORE), sums);
        }
        for _ in 0..count(&mut reader)? {
            let length = usize::from(reader.u8()?);
            let extension = reader.take(length)?.to_vec();
            let sums = Sums::decode(&mut reader)?;
            if groups.extensions.last_key_value().is_some_and(|(last, _)| *last >= extension) {
                return Err(reader.malformed("extensions in order", format!("{extension:?}")));
            }
            groups.extensions.insert(extension, sums);
        }
        reader.end()?;
        Ok(groups)
    }
}

/// Subtracts sums, and removes a key with its last inode.
fn take_all<K: Ord + Clone>(list: &mut BTreeMap<K, Sums>, others: &BTreeMap<K, Sums>) {
    for (key, sums) in others {
        if let Some(known) = list.get_mut(key) {
            known.take(*sums);
            if known.files == 0 {
                list.remove(key);
            }
        }
    }
}

fn wide(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn encode_list(list: impl Iterator<Item = (u64, Sums)>, length: usize, out: &mut Vec<u8>) {
    out.put_varint(wide(length));
    let mut before = 0_u64;
    for (key, sums) in list {
        out.put_varint(key.wrapping_sub(before));
        before = key;
        sums.encode(out);
    }
}

fn count(reader: &mut Reader<'_>) -> Result<u64, Malformed> {
    let count = reader.varint()?;
    // Every item takes four bytes or more.
    if count > wide(reader.remaining()) / 4 {
        return Err(reader.malformed("as many items as fit", count.to_string()));
    }
    Ok(count)
}

fn decode_list(reader: &mut Reader<'_>) -> Result<BTreeMap<u64, Sums>, Malformed> {
    let mut list = BTreeMap::new();
    let mut before = 0_u64;
    for number in 0..count(reader)? {
        let step = reader.varint()?;
        let key = before.checked_add(step).filter(|_| step > 0 || number == 0);
        let key = key.ok_or_else(|| reader.malformed("keys in order", step.to_string()))?;
        before = key;
        list.insert(key, Sums::decode(reader)?);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::{Groups, Sums};

    fn sample() -> Groups {
        let sums = |files: u64| {
            let (bytes, allocated) = (u128::from(files) << 40, u128::from(u64::MAX ^ files));
            Sums { files, bytes, allocated }
        };
        Groups {
            directories: 7,
            linked: 2,
            ctime: -5,
            kinds: [(1, sums(3)), (3, sums(1))].into(),
            owners: [(0, sums(1)), (1000, sums(2)), (u64::from(u32::MAX), sums(1))].into(),
            groups: [(5, sums(4))].into(),
            sizes: [(0, sums(1)), (64, sums(3))].into(),
            days: [(i64::MIN / super::DAY - 1, sums(1)), (-1, sums(1)), (20_000, sums(2))].into(),
            extensions: [(Vec::new(), sums(1)), (b"h5".to_vec(), sums(3))].into(),
        }
    }

    #[test]
    fn groups_round_trip_and_cuts_are_noticed() {
        let mut bytes = Vec::new();
        sample().encode(&mut bytes);
        assert_eq!(Groups::decode(&bytes), Ok(sample()));
        for length in 0..bytes.len() {
            assert!(Groups::decode(&bytes[..length]).is_err(), "{length} bytes");
        }
        let mut empty = Vec::new();
        Groups::default().encode(&mut empty);
        assert_eq!(Groups::decode(&empty), Ok(Groups::default()));
    }

    #[test]
    fn sums_exceed_64_bits_in_memory_and_saturate_on_disk() {
        let one = Sums { files: 1, bytes: (1 << 63) - 1, allocated: u128::from(u64::MAX) };
        let mut sum = Sums::default();
        for _ in 0..5 {
            sum.add(one);
        }
        let five = Sums { files: 5, bytes: 5 * one.bytes, allocated: 5 * one.allocated };
        assert_eq!(sum, five);
        let of = |sums| Groups { kinds: [(1, sums)].into(), ..Groups::default() };
        let mut encoded = Vec::new();
        of(sum).encode(&mut encoded);
        let most = u128::from(u64::MAX);
        let kept = Sums { files: 5, bytes: most, allocated: most };
        assert_eq!(Groups::decode(&encoded), Ok(of(kept)));
        for _ in 0..5 {
            sum.take(one);
        }
        assert_eq!(sum, Sums::default());
    }

    #[test]
    fn any_bytes_decode_or_are_refused() {
        let mut random = fastrand::Rng::with_seed(7);
        let mut good = Vec::new();
        sample().encode(&mut good);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..4) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            if let Ok(groups) = Groups::decode(&bytes) {
                let mut again = Vec::new();
                groups.encode(&mut again);
                assert_eq!(Groups::decode(&again), Ok(groups));
            }
        }
    }

    #[test]
    fn merging_adds_everything_once() {
        let mut twice = Groups::default();
        twice.absorb(sample());
        twice.absorb(sample());
        assert_eq!(twice.directories, 14);
        assert_eq!(twice.total().files, 8);
        assert_eq!(twice.extensions.get(&b"h5"[..]).map(|sums| sums.files), Some(6));
        assert_eq!(twice.days.len(), 3);
        twice.take(&sample());
        assert_eq!(twice, sample(), "what was merged is taken away again");
        twice.take(&sample());
        assert_eq!(twice, Groups { ctime: -5, ..Groups::default() });
    }
}
