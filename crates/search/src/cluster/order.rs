//! Balanced K-D order: rows are split at the median of one attribute after the other until a
//! block is left.
//!
//! What would be the inner nodes of the tree are the bounds that each block has of each
//! attribute; a search tests those instead of descending (decision 0021).

/// Least rows for which a split by an attribute is worth it: at least two different values.
const SAMPLE: usize = 32;

/// Puts `rows` (places in the columns) into K-D order with leaves of `block_rows` rows, all full
/// but the last. `dimensions` are the columns to split by, in the order of their weight.
pub(super) fn balance(rows: &mut [u32], dimensions: &[&[u64]], block_rows: usize) {
    // Depth is the logarithm of the blocks; a list of what is left replaces recursion.
    let mut left = vec![(0, rows.len(), 0_u64)];
    while let Some((from, to, used)) = left.pop() {
        let blocks = (to - from).div_ceil(block_rows);
        if blocks < 2 {
            continue;
        }
        let part = &mut rows[from..to];
        let Some(dimension) = choose(part, dimensions, used) else {
            continue;
        };
        let values = dimensions[dimension];
        let middle = blocks / 2 * block_rows;
        part.select_nth_unstable_by_key(middle, |&row| (values[row as usize], row));
        // How often each dimension was split by, four bits each.
        let times = used >> (4 * dimension) & 15;
        let used = if times < 15 { used + (1 << (4 * dimension)) } else { used };
        left.push((from, from + middle, used));
        left.push((from + middle, to, used));
    }
}

/// The dimension to split by: of those whose values differ, the one that was used least, earlier
/// ones first.
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

    #[test]
    fn every_row_stays_once_and_blocks_are_boxes() {
        let mut random = fastrand::Rng::with_seed(21);
        let x: Vec<u64> = (0..10_000).map(|_| random.u64(..1000)).collect();
        let y: Vec<u64> = (0..10_000).map(|_| random.u64(..1000)).collect();
        let constant = vec![7; 10_000];
        let mut rows: Vec<u32> = (0..10_000).collect();
        balance(&mut rows, &[&constant, &x, &y], 100);
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
    fn rows_that_are_all_alike_are_left_as_they_are() {
        let constant = vec![7; 1000];
        let mut rows: Vec<u32> = (0..1000).collect();
        balance(&mut rows, &[&constant], 100);
        assert!(rows.iter().copied().eq(0..1000));
        balance(&mut rows, &[], 100);
        balance(&mut [], &[&constant], 100);
    }
}
