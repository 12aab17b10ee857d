//! What a tree holds now and its base does not: rows that came or changed, and places that are
//! empty, in layers of which the newest counts.
//!
//! Layers do not change, so that queries share them; they are merged like the runs of a
//! log-structured tree, so that there are few.

use std::sync::Arc;

use format::inode_record::FileKind;
use format::{Malformed, Reader, Writer};

use crate::Row;

/// Offset that says: nothing is there.
pub(super) const GONE: u32 = u32::MAX;
/// Most bytes of rows in a layer, but for one more row.
pub(super) const BYTES_MAX: usize = GONE as usize - (1 << 20);
/// A layer is merged with the one before it when that is less than this many times as large.
const MERGE_FACTOR: usize = 4;
/// A list grows by this part of its length: what is held is a budget's, and twice as much as is
/// used would be counted.
const GROWTH: usize = 8;

/// Places that differ, in order.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    keys: Vec<(u64, u64)>,
    at: Vec<u32>,
    bytes: Vec<u8>,
    /// Directories whose own record came, went or changed, in order.
    directories: Vec<u64>,
    /// Those of them that are somewhere else now, in order.
    moved: Vec<u64>,
}

impl Layer {
    /// Adds the next place; they come in order.
    pub(crate) fn push(&mut self, key: (u64, u64), row: Option<&Row<'_>>) {
        debug_assert!(self.keys.last().is_none_or(|last| *last < key), "places in order");
        grow(&mut self.keys, 1);
        self.keys.push(key);
        grow(&mut self.at, 1);
        match row {
            None => self.at.push(GONE),
            Some(row) => {
                self.at.push(self.bytes.len() as u32);
                grow(&mut self.bytes, PACKED_MAX + row.name.len() + row.xattrs.len());
                pack(row, &mut self.bytes);
            }
        }
    }

    /// Adds the rows of layers whose places come later, each behind those of the one before it;
    /// `false` when one layer cannot take them all.
    pub(crate) fn append(&mut self, layers: Vec<Layer>) -> bool {
        let bytes: usize = layers.iter().map(|layer| layer.bytes.len()).sum();
        if self.bytes.len() + bytes > BYTES_MAX {
            return false;
        }
        let keys = layers.iter().map(Layer::len).sum();
        self.bytes.reserve_exact(bytes);
        self.keys.reserve_exact(keys);
        self.at.reserve_exact(keys);
        // Each is freed when it is copied: what is not yet written to takes no memory.
        for layer in layers {
            let first = layer.keys.first().copied();
            debug_assert!(first.is_none() || self.last() < first, "places in order");
            let start = self.bytes.len() as u32;
            self.keys.extend_from_slice(&layer.keys);
            let moved = |at: &u32| if *at == GONE { GONE } else { start + at };
            self.at.extend(layer.at.iter().map(moved));
            self.bytes.extend_from_slice(&layer.bytes);
        }
        true
    }

    /// Places in order, where their rows are in bytes that [`pack`] wrote, or that there is none.
    pub(crate) fn of_packed(keys: Vec<(u64, u64)>, at: Vec<u32>, bytes: Vec<u8>) -> Layer {
        debug_assert!(keys.is_sorted(), "places in order");
        Layer { keys, at, bytes, ..Layer::default() }
    }

    /// Says which directories changed, and which of those moved; neither in order.
    pub(crate) fn set_directories(&mut self, mut directories: Vec<u64>, mut moved: Vec<u64>) {
        directories.sort_unstable();
        directories.dedup();
        moved.sort_unstable();
        moved.dedup();
        (self.directories, self.moved) = (directories, moved);
    }

    /// Places in it.
    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing differs.
    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.directories.is_empty()
    }

    /// The last place.
    pub(crate) fn last(&self) -> Option<(u64, u64)> {
        self.keys.last().copied()
    }

    /// Whether it takes no more memory than this, and can take more places: offsets are of 32
    /// bits.
    pub(crate) fn is_within(&self, bytes_max: usize) -> bool {
        self.bytes.len() <= BYTES_MAX && self.memory_bytes() <= bytes_max
    }

    /// Whether the two can be merged.
    pub(crate) fn fits_with(&self, other: &Layer) -> bool {
        self.bytes.len() + other.bytes.len() <= BYTES_MAX
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.capacity() * 20
            + self.bytes.capacity()
            + (self.directories.capacity() + self.moved.capacity()) * 8
    }

    /// Whether a place is in it.
    pub(crate) fn has(&self, key: (u64, u64)) -> bool {
        self.keys.binary_search(&key).is_ok()
    }

    fn row(&self, at: usize) -> Option<Row<'_>> {
        let offset = self.at[at];
        (offset != GONE).then(|| unpack(self.keys[at], &self.bytes[offset as usize..]))
    }

    /// Both in one; where a place is in both, the newer one's row.
    pub(crate) fn merged(older: &Layer, newer: &Layer) -> Layer {
        let mut merged = Layer::default();
        let (mut old, mut new) = (0, 0);
        while old < older.len() || new < newer.len() {
            let take_new = match (older.keys.get(old), newer.keys.get(new)) {
                (Some(first), Some(second)) => {
                    if first == second {
                        old += 1;
                        true
                    } else {
                        second < first
                    }
                }
                (None, _) => true,
                (Some(_), None) => false,
            };
            let (from, at) = if take_new { (newer, &mut new) } else { (older, &mut old) };
            merged.push(from.keys[*at], from.row(*at).as_ref());
            *at += 1;
        }
        let both = |one: &[u64], two: &[u64]| [one, two].concat();
        merged.set_directories(
            both(&older.directories, &newer.directories),
            both(&older.moved, &newer.moved),
        );
        merged
    }
}

/// All that differs from a base. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delta {
    /// The oldest first.
    layers: Arc<Vec<Arc<Layer>>>,
}

impl Delta {
    /// With a newer layer.
    pub(crate) fn with(&self, layer: Layer) -> Delta {
        if layer.is_empty() {
            return self.clone();
        }
        let mut layers = Vec::clone(&self.layers);
        let mut newest = Arc::new(layer);
        while let Some(last) = layers.last()
            && last.len() < newest.len().saturating_mul(MERGE_FACTOR)
            && last.fits_with(&newest)
        {
            newest = Arc::new(Layer::merged(last, &newest));
            layers.pop();
        }
        layers.push(newest);
        Delta { layers: Arc::new(layers) }
    }

    /// Places in all layers; one that is in several counts for each.
    pub(crate) fn len(&self) -> usize {
        self.layers.iter().map(|layer| layer.len()).sum()
    }

    /// Memory of all layers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.memory_bytes()).sum()
    }

    /// Whether what the base says of a place does not count.
    #[inline]
    pub(crate) fn hides(&self, key: (u64, u64)) -> bool {
        self.layers.iter().any(|layer| layer.has(key))
    }

    /// Whether a directory's own record differs.
    pub(crate) fn has_directory(&self, ino: u64) -> bool {
        self.layers.iter().any(|layer| layer.directories.binary_search(&ino).is_ok())
    }

    /// Directories whose own record is newer than the base's, once or more.
    pub(crate) fn directories(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().flat_map(|layer| layer.directories.iter().copied())
    }

    /// Directories that may be somewhere else than in the base, or new.
    pub(crate) fn moved(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().flat_map(|layer| layer.moved.iter().copied())
    }

    /// Gives every place that differs, once or more.
    pub(crate) fn each_place(&self, take: &mut dyn FnMut((u64, u64))) {
        for layer in &*self.layers {
            layer.keys.iter().for_each(|key| take(*key));
        }
    }

    /// Gives every row, until `take` answers `false`.
    pub(crate) fn each<'a>(&'a self, take: &mut dyn FnMut(&Row<'a>) -> bool) {
        for (depth, layer) in self.layers.iter().enumerate().rev() {
            let newer = self.layers.get(depth + 1..).unwrap_or_default();
            for at in 0..layer.len() {
                let key = layer.keys[at];
                if newer.iter().any(|layer| layer.has(key)) {
                    continue;
                }
                if let Some(row) = layer.row(at)
                    && !take(&row)
                {
                    return;
                }
            }
        }
    }
}

/// Makes room for so many more.
pub(super) fn grow<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        list.reserve_exact(more.max(list.len() / GROWTH).max(64));
    }
}

/// Most bytes of a packed row without its strings.
pub(super) const PACKED_MAX: usize = 2 + 4 * 8 + 10 * 10;

/// Times as they are, for they are never small; the other numbers take a few bytes each.
pub(super) fn pack(row: &Row<'_>, out: &mut Vec<u8>) {
    out.put_u8(row.kind.byte());
    out.put_u8(row.name.len() as u8);
    for time in [row.atime, row.mtime, row.ctime, row.btime] {
        out.put_i64(time);
    }
    for number in [row.ino, row.size, row.allocated, row.entries, row.xattrs.len() as u64] {
        out.put_varint(number);
    }
    for number in [row.mode, row.uid, row.gid, row.nlink, row.rdev] {
        out.put_varint(number.into());
    }
    out.raw(row.name);
    out.raw(row.xattrs);
}

fn unpack((directory, cookie): (u64, u64), bytes: &[u8]) -> Row<'_> {
    unpacked((directory, cookie), &mut Reader::new("row", bytes)).expect(PACKED)
}

fn unpacked<'a>(
    (directory, cookie): (u64, u64),
    reader: &mut Reader<'a>,
) -> Result<Row<'a>, Malformed> {
    let (kind, name) = (reader.u8()?, usize::from(reader.u8()?));
    let (atime, mtime, ctime, btime) = (reader.i64()?, reader.i64()?, reader.i64()?, reader.i64()?);
    let (ino, size, allocated) = (reader.varint()?, reader.varint()?, reader.varint()?);
    let (entries, xattrs) = (reader.varint()?, reader.varint()? as usize);
    let mut short = || Ok(reader.varint()? as u32);
    let (mode, uid, gid, nlink, rdev) = (short()?, short()?, short()?, short()?, short()?);
    let (name, xattrs) = (reader.take(name)?, reader.take(xattrs)?);
    let kind = FileKind::decode(kind).expect(PACKED);
    Ok(Row {
        directory,
        cookie,
        ino,
        name,
        kind,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        allocated,
        entries,
        atime,
        mtime,
        ctime,
        btime,
        subvolume: 0,
        xattrs,
    })
}

const PACKED: &str = "invariant: rows are unpacked from where they were packed";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use format::inode_record::FileKind;

    use super::{Delta, Layer};
    use crate::{Row, RowBuf};

    fn row(random: &mut fastrand::Rng, name: &[u8]) -> RowBuf {
        Row {
            directory: 0,
            cookie: 0,
            ino: random.u64(..),
            name,
            kind: FileKind::Symlink,
            mode: random.u32(..),
            uid: random.u32(..),
            gid: random.u32(..),
            nlink: random.u32(..),
            rdev: random.u32(..),
            size: random.u64(..),
            allocated: random.u64(..),
            entries: random.u64(..),
            atime: random.i64(..),
            mtime: random.i64(..),
            ctime: random.i64(..),
            btime: random.i64(..),
            subvolume: 0,
            xattrs: b"x",
        }
        .to_buf()
    }

    #[test]
    fn layers_together_are_a_map() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut model: BTreeMap<(u64, u64), Option<RowBuf>> = BTreeMap::new();
            let mut delta = Delta::default();
            for _ in 0..random.usize(1..30) {
                let mut changes = BTreeMap::new();
                for _ in 0..random.usize(0..40) {
                    let name = vec![b'n'; random.usize(1..255)];
                    let there = random.u8(..) < 180;
                    let key = (random.u64(..6), random.u64(..20));
                    changes.insert(key, there.then(|| row(&mut random, &name)));
                }
                let mut layer = Layer::default();
                for (key, row) in &changes {
                    let row = row.as_ref().map(|row| Row {
                        directory: key.0,
                        cookie: key.1,
                        ..row.as_row()
                    });
                    layer.push(*key, row.as_ref());
                }
                delta = delta.with(layer);
                model.extend(changes);
            }
            let mut seen = BTreeMap::new();
            delta.each(&mut |row| {
                let key = (row.directory, row.cookie);
                let plain = Row { directory: 0, cookie: 0, ..*row }.to_buf();
                assert!(seen.insert(key, plain).is_none(), "seed {seed}: {key:?} twice");
                true
            });
            let want: BTreeMap<_, _> =
                model.iter().filter_map(|(key, row)| Some((*key, row.clone()?))).collect();
            assert_eq!(seen, want, "seed {seed}");
            for key in model.keys() {
                assert!(delta.hides(*key), "seed {seed}");
            }
        }
    }

    /// A million rows that differ are held by the half of the usual memory that they may take.
    #[test]
    fn a_row_that_differs_takes_little_memory() {
        let mut random = fastrand::Rng::with_seed(5);
        let mut layer = Layer::default();
        let rows = 20_000;
        for number in 0..rows {
            let name = format!("report-{number:08}.txt");
            let time =
                |random: &mut fastrand::Rng| 1_700_000_000_000_000_000 + random.i64(..1 << 55);
            let other = row(&mut random, b"");
            let row = Row {
                ino: (1 << 24) + number,
                name: name.as_bytes(),
                mode: 0o100_644,
                uid: 1_000 + random.u32(..500),
                gid: 1_000,
                nlink: 1,
                rdev: 0,
                size: random.u64(..10_000_000),
                allocated: random.u64(..2_500) * 4096,
                entries: 0,
                atime: time(&mut random),
                mtime: time(&mut random),
                ctime: time(&mut random),
                btime: time(&mut random),
                xattrs: b"",
                ..other.as_row()
            };
            layer.push((number / 20, random.u64(..1 << 40) + (number << 41)), Some(&row));
        }
        let each = layer.memory_bytes() / rows as usize;
        assert!(each < (256 << 20) / 2 / 1_000_000, "{each} bytes a row");
    }
}
