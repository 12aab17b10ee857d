//! What a tree holds that its base does not: new or changed rows, and places that are empty now, in
//! layers. For each place, the newest layer counts.
//!
//! Layers are immutable, so queries share them. They are merged like the runs of a log-structured
//! merge tree, so that there are few.

use std::sync::Arc;

use device::sync::Mutex;

use super::before_list::BeforeList;
use super::packed::{GONE, LEAST, Packed, grow};
use crate::Row;

/// A layer is merged with the previous one if the previous one is less than this many times as
/// large.
const MERGE_FACTOR: usize = 4;

/// Bytes of a place and of the offset of its row.
pub(super) const PLACED_BYTES: usize = 20;

/// Places that differ, in order.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    keys: Vec<(u64, u64)>,
    at: Vec<u32>,
    rows: Packed,
    /// Directories whose own record was added, removed or changed, sorted. Those with changes only
    /// to counts and times may be missing.
    directories: Vec<u64>,
    /// Those of them that have moved, sorted.
    moved: Vec<u64>,
    before: Mutex<Looked>,
}

/// The known rows that the base had at the places of a layer.
#[derive(Debug, Clone, Default)]
struct Looked {
    /// The base's rows, except at places that an older layer has too.
    rows: Arc<BeforeList>,
    /// Places that are not looked up yet, in order; `None`: all.
    unread: Option<Vec<(u64, u64)>>,
}

/// The known rows that the base had at the places of a layer, and the places still to look up, if
/// any.
pub(crate) type Known = (Arc<BeforeList>, Option<Vec<(u64, u64)>>);

impl Looked {
    fn memory_bytes(&self) -> usize {
        let unread = self.unread.as_ref().map_or(0, Vec::capacity);
        self.rows.memory_bytes() + unread * size_of::<(u64, u64)>()
    }
}

impl Layer {
    /// Adds the next place; the caller passes them in order.
    pub(crate) fn push(&mut self, key: (u64, u64), row: Option<&Row<'_>>) {
        debug_assert!(self.keys.last().is_none_or(|last| *last < key), "places in order");
        grow(&mut self.keys, 1, LEAST);
        self.keys.push(key);
        grow(&mut self.at, 1, LEAST);
        self.at.push(row.map_or(GONE, |row| self.rows.push(row)));
    }

    /// Appends the rows of layers with later places, each after those of the one before it; `false`
    /// if one layer cannot hold them all.
    pub(crate) fn append(&mut self, layers: Vec<Layer>) -> bool {
        let keys = layers.iter().map(Layer::len).sum();
        self.keys.reserve_exact(keys);
        self.at.reserve_exact(keys);
        // Each is freed once copied: memory that is not yet written to is not resident.
        for layer in layers {
            if !self.fits_with(&layer) {
                return false;
            }
            let first = layer.keys.first().copied();
            debug_assert!(first.is_none() || self.last() < first, "places in order");
            let start = self.rows.append(layer.rows);
            self.keys.extend_from_slice(&layer.keys);
            self.at.extend(layer.at.iter().map(|at| moved(*at, start)));
        }
        true
    }

    /// Adds the rows of a layer that shares no place with this one; `false` if one layer cannot
    /// hold both. Rows stay where they are, so it takes only a second copy of the places.
    pub(crate) fn join(&mut self, mut other: Layer) -> bool {
        if !self.fits_with(&other) {
            return false;
        }
        if self.len() < other.len() {
            std::mem::swap(self, &mut other);
        }
        let start = self.rows.append(std::mem::take(&mut other.rows));
        let (mut old, mut new) = (self.len(), other.len());
        self.keys.reserve_exact(new);
        self.keys.resize(old + new, (0, 0));
        self.at.reserve_exact(new);
        self.at.resize(old + new, GONE);
        // From the end, so that each place moves once.
        while new > 0 {
            let to = old + new - 1;
            if old > 0 && self.keys[old - 1] > other.keys[new - 1] {
                old -= 1;
                (self.keys[to], self.at[to]) = (self.keys[old], self.at[old]);
            } else {
                new -= 1;
                (self.keys[to], self.at[to]) = (other.keys[new], moved(other.at[new], start));
            }
        }
        let both = |one: &[u64], two: &[u64]| [one, two].concat();
        let directories = both(&self.directories, &other.directories);
        let moved = both(&self.moved, &other.moved);
        self.set_directories(directories, moved);
        true
    }

    /// Places in order, with the offsets of their rows or a mark that there is none.
    pub(super) fn of_packed(keys: Vec<(u64, u64)>, at: Vec<u32>, rows: Packed) -> Layer {
        debug_assert!(keys.is_sorted(), "places in order");
        Layer { keys, at, rows, ..Layer::default() }
    }

    /// The offsets of its rows, for tests.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<*const u8> {
        self.rows.places()
    }

    /// Sets the directories that changed, and those that moved; neither in order.
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

    /// Whether it takes at most this much memory and can take more places: offsets have 32 bits.
    pub(crate) fn is_within(&self, bytes_max: usize) -> bool {
        self.rows.has_space() && self.memory_bytes() <= bytes_max
    }

    /// Whether the two can be merged.
    pub(crate) fn fits_with(&self, other: &Layer) -> bool {
        self.rows.fits_with(&other.rows)
    }

    /// Memory it takes, without the known rows of the base.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.keys.capacity() * PLACED_BYTES
            + self.rows.memory_bytes()
            + (self.directories.capacity() + self.moved.capacity()) * 8
    }

    /// The known rows of the base at its places, and the places not looked up; `older` are the
    /// layers before it.
    fn looked(&self, older: &[Arc<Layer>]) -> Known {
        let Looked { rows, unread } = self.before.lock().clone();
        let is_new = |key: &(u64, u64)| !older.iter().any(|layer| layer.has(*key));
        let unread = match unread {
            Some(unread) if unread.is_empty() => return (rows, None),
            Some(unread) => unread.into_iter().filter(is_new).collect(),
            None => self.keys.iter().copied().filter(is_new).collect(),
        };
        (rows, Some(unread))
    }

    /// Whether a place is in it.
    pub(crate) fn has(&self, key: (u64, u64)) -> bool {
        self.keys.binary_search(&key).is_ok()
    }

    fn row(&self, at: usize) -> Option<Row<'_>> {
        let offset = self.at[at];
        (offset != GONE).then(|| self.rows.row(self.keys[at], offset))
    }

    /// Merges two layers; for a place in both, the newer one's row counts.
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
        merged.before = Mutex::new(Layer::looked_at_both(older, newer));
        merged
    }

    /// The known rows of the base at the places of two layers. The newer layer's rows are for
    /// places that the older one does not have.
    fn looked_at_both(older: &Layer, newer: &Layer) -> Looked {
        let (old, new) = (older.before.lock(), newer.before.lock());
        let is_known = old.unread.is_some() || new.unread.is_some();
        if !is_known || !BeforeList::fit_together(&old.rows, &new.rows) {
            return Looked::default();
        }
        let mut unread = old.unread.clone().unwrap_or_else(|| older.keys.clone());
        let more = new.unread.as_ref().unwrap_or(&newer.keys);
        unread.extend(more.iter().filter(|key| !older.has(**key)));
        unread.sort_unstable();
        let rows = Arc::new(BeforeList::joined(&old.rows, &new.rows));
        Looked { rows, unread: Some(unread) }
    }
}

/// The new offset of a row whose bytes were appended to others.
fn moved(at: u32, start: u32) -> u32 {
    if at == GONE { GONE } else { start + at }
}

/// All differences from a base. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(crate) struct Delta {
    /// The oldest first.
    layers: Arc<Vec<Arc<Layer>>>,
}

impl Delta {
    /// This and a newer layer.
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

    /// Number of places in all layers; a place in several layers counts for each.
    pub(crate) fn len(&self) -> usize {
        self.layers.iter().map(|layer| layer.len()).sum()
    }

    /// Memory of all layers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.rows_bytes()
            + self.layers.iter().map(|layer| layer.before.lock().memory_bytes()).sum::<usize>()
    }

    /// Memory of all layers without the known rows of the base.
    pub(crate) fn rows_bytes(&self) -> usize {
        self.layers.iter().map(|layer| layer.memory_bytes()).sum()
    }

    /// The known rows of the base at the places of each layer, and the places to look up, if any,
    /// in order.
    pub(crate) fn looked(&self) -> Vec<Known> {
        let layers = self.layers.iter().enumerate();
        layers.map(|(depth, layer)| layer.looked(&self.layers[..depth])).collect()
    }

    /// Whether a layer is the same as another's.
    pub(crate) fn has_layer_of(&self, other: &Delta, depth: usize) -> bool {
        let (own, other) = (self.layers.get(depth), other.layers.get(depth));
        own.zip(other).is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Stores the base's rows at all places of a layer, if the layer's known rows are unchanged.
    pub(crate) fn keep(&self, depth: usize, known: &Arc<BeforeList>, all: &Arc<BeforeList>) {
        let mut looked = self.layers[depth].before.lock();
        if Arc::ptr_eq(&looked.rows, known) {
            *looked = Looked { rows: Arc::clone(all), unread: Some(Vec::new()) };
        }
    }

    /// Discards the known rows of the base, if there are any.
    pub(crate) fn forget_before(&self) {
        for layer in &*self.layers {
            *layer.before.lock() = Looked::default();
        }
    }

    /// Whether the base's row at a place is replaced.
    #[inline]
    pub(crate) fn hides(&self, key: (u64, u64)) -> bool {
        self.layers.iter().any(|layer| layer.has(key))
    }

    /// Whether something differs in a directory.
    pub(crate) fn has_in(&self, directory: u64) -> bool {
        let has = |layer: &Arc<Layer>| {
            let next = layer.keys.partition_point(|key| *key < (directory, 0));
            layer.keys.get(next).is_some_and(|key| key.0 == directory)
        };
        self.layers.iter().any(has)
    }

    /// Whether a directory's own record differs.
    pub(crate) fn has_directory(&self, ino: u64) -> bool {
        self.layers.iter().any(|layer| layer.directories.binary_search(&ino).is_ok())
    }

    /// Directories whose own record is newer than the base's; each may occur more than once.
    pub(crate) fn directories(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().flat_map(|layer| layer.directories.iter().copied())
    }

    /// Directories that are new, or may have moved since the base.
    pub(crate) fn moved(&self) -> impl Iterator<Item = u64> {
        self.layers.iter().flat_map(|layer| layer.moved.iter().copied())
    }

    /// Passes every place that differs to `take`, once or more.
    pub(crate) fn each_place(&self, take: &mut dyn FnMut((u64, u64))) {
        for layer in &*self.layers {
            layer.keys.iter().for_each(|key| take(*key));
        }
    }

    /// Passes every row to `take`, until it returns `false`.
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::sync::Arc;

    use format::inode_record::FileKind;

    use super::{Delta, Layer};
    use crate::index::before_list::BeforeList;
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
    fn stacked_layers_behave_as_a_map() {
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
            for directory in 0..7 {
                let has = model.keys().any(|key| key.0 == directory);
                assert_eq!(delta.has_in(directory), has, "seed {seed}");
            }
        }
    }

    /// The base's row at a place is known once, whenever it was looked up, and is not looked up
    /// again.
    #[test]
    fn the_base_row_of_each_position_is_looked_up_once() {
        for seed in 0..60 {
            let mut random = fastrand::Rng::with_seed(seed);
            let plain = row(&mut random, b"a.txt");
            let base: BTreeSet<(u64, u64)> =
                (0..100).map(|_| (random.u64(..8), random.u64(..40))).collect();
            let (mut delta, mut model) = (Delta::default(), BTreeSet::new());
            let mut looked_up = 0;
            for _ in 0..random.usize(1..40) {
                let keys: BTreeSet<(u64, u64)> =
                    (0..random.usize(1..30)).map(|_| (random.u64(..8), random.u64(..40))).collect();
                let mut layer = Layer::default();
                for key in &keys {
                    layer.push(*key, Some(&plain.as_row()));
                }
                model.extend(keys);
                delta = delta.with(layer);
                if random.u8(..10) == 0 {
                    delta.forget_before();
                    looked_up = 0;
                }
                if random.bool() {
                    continue;
                }
                let mut found = Vec::new();
                for (depth, (known, unread)) in delta.looked().into_iter().enumerate() {
                    let mut all = BeforeList::clone(&known);
                    for key in unread.iter().flatten().filter(|key| base.contains(key)) {
                        let (directory, ctime) = (key.0, key.1.cast_signed());
                        let name = format!("{directory}-{ctime}");
                        let name = name.as_bytes();
                        all.push(&Row { directory, name, ctime, ..plain.as_row() }, 0);
                    }
                    looked_up += unread.as_ref().map_or(0, Vec::len);
                    found.extend(all.iter().map(|had| {
                        let Row { directory, ctime, name, .. } = had.row();
                        assert_eq!(name, format!("{directory}-{ctime}").as_bytes());
                        (directory, ctime as u64)
                    }));
                    if unread.is_some() && random.u8(..4) > 0 {
                        delta.keep(depth, &known, &Arc::new(all));
                    } else {
                        looked_up -= unread.map_or(0, |unread| unread.len());
                    }
                }
                assert!(looked_up <= model.len(), "seed {seed}: {looked_up} look-ups");
                found.sort_unstable();
                let want: Vec<_> = model.intersection(&base).copied().collect();
                assert_eq!(found, want, "seed {seed}");
            }
        }
    }

    /// Half of the usual memory holds a million rows that differ.
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
