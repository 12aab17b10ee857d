//! Balanced K-D order: rows are split at the median of one attribute after another until each part
//! is one block.
//!
//! The bounds of each attribute in each block replace the inner nodes of the tree. A search tests
//! those instead of descending (decision 0021).
//!
//! Extended attributes alternate with the others (decision 0095). Most rows have none, or one of
//! few values. They are split between values, not in the middle of equal ones.

/// Minimum rows for which a split by an attribute is worth it: at least two different values.
const SAMPLE: usize = 32;

/// Dimensions to split rows by. Each is a column; rows are indices into it.
pub(super) struct Dimensions<'a> {
    /// Numbers, in the order of their weight.
    pub(super) numbers: &'a [&'a [u64]],
    /// Ranks of the values of extended attributes, 0 if a row has none.
    pub(super) attributes: &'a [&'a [u64]],
    /// One of these is used first, and again after so many splits by numbers; 0: never.
    pub(super) turn: u8,
}

/// Rows that are not split yet, and the dimensions that they were split by.
#[derive(Clone, Copy)]
struct RowRange {
    from: usize,
    to: usize,
    /// Number of splits by each number, four bits each.
    used: u64,
    /// Splits by numbers before the turn of an extended attribute.
    left: u8,
    /// The next extended attribute.
    next: usize,
}

/// Puts `rows` into K-D order with leaves of `block_rows` rows, all full but the last.
pub(super) fn balance(rows: &mut [u32], dimensions: &Dimensions<'_>, block_rows: usize) {
    // Depth is bounded by the blocks; a list of what is left replaces recursion.
    let mut left = vec![RowRange { from: 0, to: rows.len(), used: 0, left: 0, next: 0 }];
    while let Some(part) = left.pop() {
        let blocks = (part.to - part.from).div_ceil(block_rows);
        if blocks < 2 {
            continue;
        }
        let here = &mut rows[part.from..part.to];
        let is_turn = part.left == 0;
        let mut split = None;
        if is_turn {
            split = by_attribute(here, dimensions, part, block_rows);
        }
        split = split.or_else(|| by_number(here, dimensions, part, blocks / 2 * block_rows));
        if split.is_none() && !is_turn {
            split = by_attribute(here, dimensions, part, block_rows);
        }
        let Some((middle, below)) = split else { continue };
        left.push(RowRange { to: part.from + middle, ..below });
        left.push(RowRange { from: part.from + middle, ..below });
    }
}

/// Splits at the median of a number: the position, and the splits of the parts.
fn by_number(
    rows: &mut [u32],
    dimensions: &Dimensions<'_>,
    part: RowRange,
    middle: usize,
) -> Option<(usize, RowRange)> {
    let dimension = choose(rows, dimensions.numbers, part.used)?;
    let values = dimensions.numbers[dimension];
    rows.select_nth_unstable_by_key(middle, |&row| (values[row as usize], row));
    let times = part.used >> (4 * dimension) & 15;
    let used = if times < 15 { part.used + (1 << (4 * dimension)) } else { part.used };
    Some((middle, RowRange { used, left: part.left.saturating_sub(1), ..part }))
}

/// Splits by the first extended attribute, from the next one on, that has two values there.
fn by_attribute(
    rows: &mut [u32],
    dimensions: &Dimensions<'_>,
    part: RowRange,
    block_rows: usize,
) -> Option<(usize, RowRange)> {
    let count = if dimensions.turn > 0 { dimensions.attributes.len() } else { 0 };
    let places = (0..count).map(|place| (part.next + place) % count);
    places.into_iter().find_map(|place| {
        let values = dimensions.attributes[place];
        let cut = cut(rows, values, block_rows)?;
        rows.select_nth_unstable_by_key(cut, |&row| (values[row as usize], row));
        Some((cut, RowRange { left: dimensions.turn, next: place + 1, ..part }))
    })
}

/// Where to split values: at the end of a block, as close to the middle as possible, where the
/// middle's value ends or begins. `None`: all are equal.
fn cut(rows: &mut [u32], values: &[u64], block_rows: usize) -> Option<usize> {
    let value = |row: u32| values[row as usize];
    let first = value(rows[0]);
    if rows.iter().all(|&row| value(row) == first) {
        return None;
    }
    let blocks = rows.len().div_ceil(block_rows);
    let middle = blocks / 2 * block_rows;
    let (_, &mut median, _) = rows.select_nth_unstable_by_key(middle, |&row| (value(row), row));
    let median = value(median);
    let less = rows.iter().filter(|&&row| value(row) < median).count();
    let upto = rows.iter().filter(|&&row| value(row) <= median).count();
    // The part is at least a block, even if the value does not fill one.
    let begins = (less > 0).then(|| less.div_ceil(block_rows).min(blocks - 1));
    let ends = (upto < rows.len()).then(|| (upto / block_rows).max(1));
    let cuts = begins.into_iter().chain(ends).map(|block| block * block_rows);
    cuts.min_by_key(|cut| cut.abs_diff(middle))
}

/// The dimension to split by: among those whose values differ, the least used one, earlier ones
/// first.
fn choose(part: &[u32], dimensions: &[&[u64]], used: u64) -> Option<usize> {
    let step = (part.len() / SAMPLE).max(1);
    let differs = |values: &[u64]| {
        let first = values[part[0] as usize];
        let mut others = part.iter().step_by(step).map(|&row| values[row as usize]);
        others.any(|value| value != first)
    };
    (0..dimensions.len())
        .filter(|&dimension| differs(dimensions[dimension]))
        .min_by_key(|&dimension| used >> (4 * dimension) & 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by_numbers<'a>(numbers: &'a [&'a [u64]]) -> Dimensions<'a> {
        Dimensions { numbers, attributes: &[], turn: 1 }
    }

    #[test]
    fn every_row_stays_once_and_blocks_are_boxes() {
        let mut random = fastrand::Rng::with_seed(21);
        let x: Vec<u64> = (0..10_000).map(|_| random.u64(..1000)).collect();
        let y: Vec<u64> = (0..10_000).map(|_| random.u64(..1000)).collect();
        let constant = vec![7; 10_000];
        let mut rows: Vec<u32> = (0..10_000).collect();
        balance(&mut rows, &by_numbers(&[&constant, &x, &y]), 100);
        let mut sorted = rows.clone();
        sorted.sort_unstable();
        assert!(sorted.iter().copied().eq(0..10_000));
        // 100 blocks by two dimensions: about 10 x 10 boxes.
        let spread = |block: &[u32], values: &[u64]| {
            let of = || block.iter().map(|&row| values[row as usize]);
            of().max().unwrap() - of().min().unwrap()
        };
        for block in rows.chunks(100) {
            assert!(spread(block, &x) < 300 && spread(block, &y) < 300);
        }
    }

    #[test]
    fn equal_rows_keep_their_order() {
        let constant = vec![7; 1000];
        let mut rows: Vec<u32> = (0..1000).collect();
        balance(&mut rows, &by_numbers(&[&constant]), 100);
        assert!(rows.iter().copied().eq(0..1000));
        balance(&mut rows, &by_numbers(&[]), 100);
        balance(&mut [], &by_numbers(&[&constant]), 100);
    }

    /// Blocks that have a row with one of these values, by their bounds.
    fn blocks_with(rows: &[u32], values: &[u64], least: u64, greatest: u64) -> usize {
        let bounds = rows.chunks(100).map(|block| {
            let of = || block.iter().map(|&row| values[row as usize]);
            (of().min().unwrap(), of().max().unwrap())
        });
        bounds.filter(|&(low, high)| low <= greatest && high >= least).count()
    }

    #[test]
    fn rows_with_an_attribute_are_grouped_and_none_is_lost() {
        for seed in 0..40 {
            let mut random = fastrand::Rng::with_seed(seed);
            let count = random.u32(150..10_000);
            let share = [5, 100, 3000, 9000, 9999][random.usize(..5)];
            let mut column =
                |most: u64| -> Vec<u64> { (0..count).map(|_| random.u64(..most)).collect() };
            let (x, y, chance) = (column(1000), column(1000), column(10_000));
            let ranks = column(20);
            let has = |row: usize| chance[row] < share;
            let tag: Vec<u64> =
                (0..count as usize).map(|row| if has(row) { 1 + ranks[row] } else { 0 }).collect();
            let there = tag.iter().filter(|&&tag| tag > 0).count();
            let (numbers, attributes) = ([&x[..], &y[..]], [&tag[..]]);
            let dimensions = Dimensions { numbers: &numbers, attributes: &attributes, turn: 1 };
            let mut rows: Vec<u32> = (0..count).collect();
            balance(&mut rows, &dimensions, 100);
            let blocks = blocks_with(&rows, &tag, 1, u64::MAX);
            // One block may have some of the rows without a value, and one may be the short last.
            // If most rows have a value, splits between values come before those from rows without.
            let more = if share > 5000 { there / 1000 } else { 0 };
            assert!(
                blocks <= there.div_ceil(100) + 2 + more,
                "seed {seed}: {there} of {count} rows in {blocks} blocks"
            );
            rows.sort_unstable();
            assert!(rows.iter().copied().eq(0..count), "seed {seed}");
        }
    }

    #[test]
    fn values_of_an_attribute_are_compared_up_to_their_end() {
        // 40 blocks: 1 takes half, 2 and 3 a quarter each.
        let tag: Vec<u64> = (0..4000).map(|row| [1, 2, 1, 3][row % 4]).collect();
        let mut rows: Vec<u32> = (0..4000).collect();
        let attributes = [&tag[..]];
        balance(&mut rows, &Dimensions { numbers: &[], attributes: &attributes, turn: 1 }, 100);
        for (value, blocks) in [(0, 0), (1, 20), (2, 10), (3, 10)] {
            assert_eq!(blocks_with(&rows, &tag, value, value), blocks, "value {value}");
        }
    }

    #[test]
    fn attributes_take_turns_with_each_other_and_with_numbers() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut column = || -> Vec<u64> { (0..6400).map(|_| random.u64(1..1 << 40)).collect() };
        let (x, a, b) = (column(), column(), column());
        let (numbers, attributes) = ([&x[..]], [&a[..], &b[..]]);
        let mut rows: Vec<u32> = (0..6400).collect();
        let dimensions = Dimensions { numbers: &numbers, attributes: &attributes, turn: 1 };
        balance(&mut rows, &dimensions, 100);
        let value = 3 << 37;
        // 64 blocks are six splits: by a, x, b, x, a, x.
        assert!((8..=10).contains(&blocks_with(&rows, &x, value, value)));
        assert!((16..=20).contains(&blocks_with(&rows, &a, value, value)));
        assert!((32..=36).contains(&blocks_with(&rows, &b, value, value)));
        let never = Dimensions { numbers: &numbers, attributes: &attributes, turn: 0 };
        balance(&mut rows, &never, 100);
        assert!(blocks_with(&rows, &x, value, value) <= 2);
        assert_eq!(blocks_with(&rows, &a, value, value), 64);
    }
}
