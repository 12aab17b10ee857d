//! Other ways to search the rows of one cluster, each in memory and uncompressed. They are a K-D
//! tree with a node a row, scans of plain columns and of rows, and a sorted index of each
//! attribute.

use search::Attribute;

/// Attributes that are searched: the paper's Table 1 without the name.
pub(super) const ATTRIBUTES: [Attribute; 10] = [
    Attribute::Uid,
    Attribute::Mtime,
    Attribute::Size,
    Attribute::Directory,
    Attribute::Gid,
    Attribute::Kind,
    Attribute::Atime,
    Attribute::Mode,
    Attribute::Ctime,
    Attribute::Ino,
];
const DIMENSIONS: usize = ATTRIBUTES.len();

/// The attributes of a row, with times shifted so that the order is kept.
pub(super) type Key = [u64; DIMENSIONS];

/// The bounds of each attribute of a match.
pub(super) type Box = [(u64, u64); DIMENSIONS];

/// A box that contains everything.
pub(super) const ALL: Box = [(0, u64::MAX); DIMENSIONS];

fn inside(key: &Key, query: &Box) -> bool {
    key.iter().zip(query).all(|(value, (least, greatest))| least <= value && value <= greatest)
}

/// Scans all rows.
pub(super) fn brute(rows: &[Key], query: &Box) -> usize {
    rows.iter().filter(|key| inside(key, query)).count()
}

const NONE: u32 = u32::MAX;

struct Node {
    key: Key,
    below: [u32; 2],
}

/// A K-D tree after Bentley: each row is a node, and levels take turns with the attributes.
pub(super) struct KdTree {
    nodes: Vec<Node>,
    root: u32,
}

impl KdTree {
    /// An empty tree.
    pub(super) fn new() -> KdTree {
        KdTree { nodes: Vec::new(), root: NONE }
    }

    /// The balanced tree of these rows.
    pub(super) fn balanced(rows: &[Key]) -> KdTree {
        let mut tree = KdTree::new();
        let mut rows = rows.to_vec();
        tree.nodes.reserve(rows.len());
        tree.root = tree.build(&mut rows, 0);
        tree
    }

    fn build(&mut self, rows: &mut [Key], level: usize) -> u32 {
        if rows.is_empty() {
            return NONE;
        }
        let dimension = level % DIMENSIONS;
        let middle = rows.len() / 2;
        rows.select_nth_unstable_by_key(middle, |key| key[dimension]);
        let number = self.nodes.len() as u32;
        self.nodes.push(Node { key: rows[middle], below: [NONE; 2] });
        let (less, rest) = rows.split_at_mut(middle);
        let left = self.build(less, level + 1);
        let right = self.build(&mut rest[1..], level + 1);
        self.nodes[number as usize].below = [left, right];
        number
    }

    /// Adds a row where it belongs, without balancing.
    pub(super) fn insert(&mut self, key: Key) {
        let fresh = self.nodes.len() as u32;
        self.nodes.push(Node { key, below: [NONE; 2] });
        if self.root == NONE {
            self.root = fresh;
            return;
        }
        let (mut at, mut level) = (self.root, 0);
        loop {
            let node = &mut self.nodes[at as usize];
            let dimension = level % DIMENSIONS;
            let side = usize::from(key[dimension] >= node.key[dimension]);
            if node.below[side] == NONE {
                node.below[side] = fresh;
                return;
            }
            at = node.below[side];
            level += 1;
        }
    }

    /// How many rows are in a box.
    pub(super) fn count(&self, query: &Box) -> usize {
        let mut found = 0;
        let mut left = vec![(self.root, 0)];
        while let Some((at, level)) = left.pop() {
            let Some(node) = self.nodes.get(at as usize) else { continue };
            found += usize::from(inside(&node.key, query));
            let dimension = level % DIMENSIONS;
            let (least, greatest) = query[dimension];
            // Equal values are on either side after balancing.
            if least <= node.key[dimension] {
                left.push((node.below[0], level + 1));
            }
            if greatest >= node.key[dimension] {
                left.push((node.below[1], level + 1));
            }
        }
        found
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.nodes.len() * size_of::<Node>()
    }
}

/// Plain columns, scanned whole, one after the other.
pub(super) struct Columns {
    columns: [Vec<u64>; DIMENSIONS],
}

impl Columns {
    pub(super) fn new(rows: &[Key]) -> Columns {
        let column = |dimension: usize| rows.iter().map(|key| key[dimension]).collect();
        Columns { columns: std::array::from_fn(column) }
    }

    /// How many rows are in a box.
    pub(super) fn count(&self, query: &Box) -> usize {
        let rows = self.columns[0].len();
        let mut mask = vec![u64::MAX; rows.div_ceil(64)];
        if let Some(last) = mask.last_mut()
            && !rows.is_multiple_of(64)
        {
            *last = (1 << (rows % 64)) - 1;
        }
        for (column, &(least, greatest)) in self.columns.iter().zip(query) {
            if (least, greatest) == (0, u64::MAX) {
                continue;
            }
            let span = greatest - least;
            for (word, values) in mask.iter_mut().zip(column.chunks(64)) {
                let mut met = 0;
                for (bit, value) in values.iter().enumerate() {
                    met |= u64::from(value.wrapping_sub(least) <= span) << bit;
                }
                *word &= met;
            }
        }
        mask.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.columns.iter().map(|column| column.len() * 8).sum()
    }
}

/// For each attribute the rows sorted by it, like the indexes of a database. A query scans the one
/// with the fewest rows in its range.
pub(super) struct Sorted {
    rows: Vec<Key>,
    indexes: [Vec<(u64, u32)>; DIMENSIONS],
}

impl Sorted {
    pub(super) fn new(rows: &[Key]) -> Sorted {
        let index = |dimension: usize| {
            let mut index: Vec<(u64, u32)> =
                (0..).zip(rows).map(|(row, key)| (key[dimension], row)).collect();
            index.sort_unstable();
            index
        };
        Sorted { rows: rows.to_vec(), indexes: std::array::from_fn(index) }
    }

    /// The part of an attribute's index between two values.
    pub(super) fn range(&self, dimension: usize, least: u64, greatest: u64) -> &[(u64, u32)] {
        let index = &self.indexes[dimension];
        let from = index.partition_point(|&(value, _)| value < least);
        let to = index.partition_point(|&(value, _)| value <= greatest);
        index.get(from..to).unwrap_or_default()
    }

    /// The value at a position of an attribute's order, limited to the last position.
    pub(super) fn at(&self, dimension: usize, place: usize) -> u64 {
        let index = &self.indexes[dimension];
        index[place.min(index.len() - 1)].0
    }

    /// How many rows are in a box.
    pub(super) fn count(&self, query: &Box) -> usize {
        let ranges = (0..DIMENSIONS).filter(|&n| query[n] != (0, u64::MAX));
        let ranges = ranges.map(|n| self.range(n, query[n].0, query[n].1));
        let best = ranges.min_by_key(|range| range.len()).unwrap_or(&self.indexes[0]);
        best.iter().filter(|(_, row)| inside(&self.rows[*row as usize], query)).count()
    }

    /// Bytes in memory.
    pub(super) fn memory_bytes(&self) -> usize {
        self.rows.len() * (size_of::<Key>() + DIMENSIONS * size_of::<(u64, u32)>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_searches_find_the_same() {
        let mut random = fastrand::Rng::with_seed(51);
        let rows: Vec<Key> =
            (0..500).map(|_| std::array::from_fn(|n| random.u64(0..3 + n as u64 * 9))).collect();
        let balanced = KdTree::balanced(&rows);
        let mut grown = KdTree::new();
        for &key in &rows {
            grown.insert(key);
        }
        let (columns, sorted) = (Columns::new(&rows), Sorted::new(&rows));
        for _ in 0..500 {
            let mut query = ALL;
            for _ in 0..random.usize(1..4) {
                let (a, b) = (random.u64(0..30), random.u64(0..30));
                query[random.usize(..DIMENSIONS)] = (a.min(b), a.max(b));
            }
            let expected = brute(&rows, &query);
            assert_eq!(balanced.count(&query), expected);
            assert_eq!(grown.count(&query), expected);
            assert_eq!(columns.count(&query), expected);
            assert_eq!(sorted.count(&query), expected);
        }
    }
}
