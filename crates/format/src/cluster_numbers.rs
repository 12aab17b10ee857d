//! A column of numbers in a cluster (`docs/format/cluster.md`): for each block the least value, and
//! for each row the difference from it, in bits. A row can be read without the others.
//!
//! In some blocks, as of sizes, few values are much greater than the rest. They are stored as
//! patches and the others take fewer bits. If values repeat, rows store their places in a sorted
//! dictionary.

use crate::{Malformed, Reader, Writer};

// DO NOT CHANGE THESE VALUES: they are on disk.
const PLAIN: u8 = 1;
const DICTIONARY: u8 = 2;

/// Bytes of a patch: row in the block, value minus the base.
const PATCH_BYTES: usize = 10;

fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn narrow(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Maps a signed number to an unsigned one that is small when it is near 0.
pub fn zigzag(value: i64) -> u64 {
    (value.wrapping_shl(1) ^ value.wrapping_shr(63)).cast_unsigned()
}

/// The inverse of [`zigzag`].
pub fn unzigzag(value: u64) -> i64 {
    (value.wrapping_shr(1) ^ (value & 1).wrapping_neg()).cast_signed()
}

fn bits_of(value: u64) -> u32 {
    u64::BITS.saturating_sub(value.leading_zeros())
}

fn mask(width: u32) -> u64 {
    u64::MAX.checked_shr(u64::BITS.saturating_sub(width)).unwrap_or(0)
}

/// Bytes of `rows` values of `width` bits.
fn packed_bytes(rows: usize, width: u32) -> usize {
    rows.saturating_mul(narrow(u64::from(width))).div_ceil(64).saturating_mul(8)
}

/// Appends a column of values, in blocks of `block_rows`.
pub fn encode(out: &mut Vec<u8>, values: &[u64], block_rows: u16) {
    let mut plain = Vec::new();
    plain.put_u8(PLAIN);
    encode_blocks(&mut plain, values, block_rows);
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    // A dictionary of mostly different values is never smaller.
    if sorted.len().saturating_mul(2) < values.len() {
        let mut dictionary = Vec::new();
        dictionary.put_u8(DICTIONARY);
        dictionary.put_varint(wide(sorted.len()));
        let mut before = 0_u64;
        for &value in &sorted {
            dictionary.put_varint(value.wrapping_sub(before));
            before = value;
        }
        let codes: Vec<u64> =
            values.iter().map(|value| wide(sorted.partition_point(|v| v < value))).collect();
        encode_blocks(&mut dictionary, &codes, block_rows);
        if dictionary.len() < plain.len() {
            return out.raw(&dictionary);
        }
    }
    out.raw(&plain);
}

/// The width of the packed part that makes a block smallest, and the number of patches.
fn best_width(offsets: &[u64]) -> (u32, usize) {
    let mut counts = [0_usize; 65];
    for &offset in offsets {
        if let Some(count) = counts.get_mut(narrow(u64::from(bits_of(offset)))) {
            *count = count.saturating_add(1);
        }
    }
    let mut best = (64, 0);
    let mut best_bytes = usize::MAX;
    let mut patches = 0_usize;
    for width in (0..=64_u32).rev() {
        let bytes =
            packed_bytes(offsets.len(), width).saturating_add(patches.saturating_mul(PATCH_BYTES));
        if bytes <= best_bytes {
            best = (width, patches);
            best_bytes = bytes;
        }
        let here = counts.get(narrow(u64::from(width))).copied().unwrap_or(0);
        patches = patches.saturating_add(here);
    }
    best
}

fn encode_blocks(out: &mut Vec<u8>, values: &[u64], block_rows: u16) {
    let mut data = Vec::new();
    for block in values.chunks(usize::from(block_rows.max(1))) {
        let least = block.iter().copied().min().unwrap_or(0);
        let greatest = block.iter().copied().max().unwrap_or(0);
        let offsets: Vec<u64> = block.iter().map(|value| value.wrapping_sub(least)).collect();
        let (width, patches) = best_width(&offsets);
        out.put_varint(least);
        out.put_varint(greatest.wrapping_sub(least));
        out.put_u8(u8::try_from(width).unwrap_or(64));
        out.put_varint(wide(patches));
        pack(&mut data, &offsets, width);
        for (row, &offset) in (0_u16..).zip(&offsets) {
            if offset & !mask(width) != 0 {
                data.put_u16(row);
                data.put_u64(offset);
            }
        }
    }
    out.raw(&data);
}

/// Appends the low `width` bits of each value, to a whole number of words.
fn pack(out: &mut Vec<u8>, offsets: &[u64], width: u32) {
    let (mut word, mut used) = (0_u64, 0_u32);
    for &offset in offsets {
        let value = if offset & !mask(width) == 0 { offset } else { 0 };
        word |= value.checked_shl(used).unwrap_or(0);
        let filled = used.saturating_add(width);
        if filled >= 64 {
            out.put_u64(word);
            word = value.checked_shr(64_u32.saturating_sub(used)).unwrap_or(0);
            used = filled.saturating_sub(64);
        } else {
            used = filled;
        }
    }
    if used > 0 {
        out.put_u64(word);
    }
}

#[derive(Debug, Clone, Copy)]
struct Block {
    base: u64,
    span: u64,
    /// Offset of the packed values in the data.
    at: u32,
    patches: u16,
    width: u8,
}

/// A decoded column of numbers. Blocks and rows that do not exist read as 0.
#[derive(Debug, Clone)]
pub struct Numbers {
    rows: usize,
    block_rows: usize,
    dictionary: Option<Box<[u64]>>,
    blocks: Box<[Block]>,
    data: Box<[u8]>,
}

impl Numbers {
    /// Reads a column from the start of `reader`, up to the end of its data.
    pub fn decode(
        reader: &mut Reader<'_>,
        rows: u32,
        block_rows: u16,
    ) -> Result<Numbers, Malformed> {
        let (rows, block_rows) = (narrow(u64::from(rows)), usize::from(block_rows.max(1)));
        let dictionary = match reader.u8()? {
            PLAIN => None,
            DICTIONARY => Some(decode_dictionary(reader, rows)?),
            other => return Err(reader.malformed("numbers", format!("encoding {other}"))),
        };
        let count = rows.div_ceil(block_rows);
        let mut blocks = Vec::with_capacity(count);
        let mut at = 0_usize;
        for block in 0..count {
            let here = rows.saturating_sub(block.saturating_mul(block_rows)).min(block_rows);
            let (base, span) = (reader.varint()?, reader.varint()?);
            let width = reader.u8()?;
            let patches = reader.length(here)?;
            let fits = base.checked_add(span).is_some() && width <= 64;
            let start = u32::try_from(at).ok();
            let Some(start) = start.filter(|_| fits) else {
                return Err(reader.malformed("a block within bounds", format!("width {width}")));
            };
            let patches_end = packed_bytes(here, u32::from(width))
                .saturating_add(patches.saturating_mul(PATCH_BYTES));
            at = at.saturating_add(patches_end);
            let patches = u16::try_from(patches).unwrap_or(u16::MAX);
            blocks.push(Block { base, span, at: start, patches, width });
        }
        let data = reader.take(at)?.into();
        Ok(Numbers { rows, block_rows, dictionary, blocks: blocks.into(), data })
    }

    /// Number of blocks.
    pub fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Sorted values, if rows store places in a dictionary.
    pub fn dictionary(&self) -> Option<&[u64]> {
        self.dictionary.as_deref()
    }

    /// Least and greatest value of a block, or their places in the dictionary.
    #[inline]
    pub fn code_bounds(&self, block: usize) -> (u64, u64) {
        self.blocks
            .get(block)
            .map_or((0, 0), |block| (block.base, block.base.wrapping_add(block.span)))
    }

    /// The values of a block, or their places in the dictionary. Returns how many.
    #[inline]
    pub fn codes(&self, block: usize, out: &mut [u64]) -> usize {
        let first = block.saturating_mul(self.block_rows);
        let rows = self.rows.saturating_sub(first).min(self.block_rows).min(out.len());
        let Some((&Block { base, at, patches, width, .. }, out)) =
            self.blocks.get(block).zip(out.get_mut(..rows))
        else {
            return 0;
        };
        let at = narrow(u64::from(at));
        let width = u32::from(width);
        if width == 0 {
            out.fill(base);
        } else {
            let end = at.saturating_add(packed_bytes(rows, width));
            unpack(self.data.get(at..end).unwrap_or_default(), width, base, out);
        }
        for (row, offset) in self.patches(at, rows, width, patches) {
            if let Some(slot) = out.get_mut(row) {
                *slot = base.wrapping_add(offset);
            }
        }
        rows
    }

    /// The values of a block. Returns how many.
    pub fn values(&self, block: usize, out: &mut [u64]) -> usize {
        let rows = self.codes(block, out);
        if let Some(dictionary) = &self.dictionary {
            for slot in out.iter_mut().take(rows) {
                *slot = dictionary.get(narrow(*slot)).copied().unwrap_or(0);
            }
        }
        rows
    }

    /// The value of a row.
    pub fn get(&self, row: usize) -> u64 {
        let block = row.checked_div(self.block_rows).unwrap_or(0);
        let first = block.saturating_mul(self.block_rows);
        let rows = self.rows.saturating_sub(first).min(self.block_rows);
        let Some(&Block { base, at, patches, width, .. }) = self.blocks.get(block) else {
            return 0;
        };
        let (row, at, width) = (row.saturating_sub(first), narrow(u64::from(at)), u32::from(width));
        let patched = self
            .patches(at, rows, width, patches)
            // If a row has several patches the last counts, as when all patches of a block are
            // applied.
            .rev()
            .find_map(|(patched, offset)| (patched == row).then_some(offset));
        let offset = patched.unwrap_or_else(|| {
            let bit = wide(row).saturating_mul(u64::from(width));
            let word = narrow(bit.wrapping_shr(6)).saturating_mul(8).saturating_add(at);
            let shift = u32::try_from(bit & 63).unwrap_or(0);
            let low = self.word(word).wrapping_shr(shift);
            let high = match shift.saturating_add(width) {
                0..=64 => 0,
                _ => self
                    .word(word.saturating_add(8))
                    .checked_shl(64_u32.saturating_sub(shift))
                    .unwrap_or(0),
            };
            (low | high) & mask(width)
        });
        let code = base.wrapping_add(offset);
        match &self.dictionary {
            Some(dictionary) => dictionary.get(narrow(code)).copied().unwrap_or(0),
            None => code,
        }
    }

    fn word(&self, at: usize) -> u64 {
        let end = at.saturating_add(8);
        let bytes = self.data.get(at..end).and_then(|bytes| bytes.try_into().ok());
        u64::from_le_bytes(bytes.unwrap_or_default())
    }

    fn patches(
        &self,
        at: usize,
        rows: usize,
        width: u32,
        count: u16,
    ) -> impl DoubleEndedIterator<Item = (usize, u64)> {
        let start = at.saturating_add(packed_bytes(rows, width));
        let end = start.saturating_add(usize::from(count).saturating_mul(PATCH_BYTES));
        let bytes = if count == 0 { None } else { self.data.get(start..end) };
        bytes.unwrap_or_default().chunks_exact(PATCH_BYTES).map(|patch| {
            let (row, offset) = patch.split_at_checked(2).unwrap_or_default();
            let row = u16::from_le_bytes(row.try_into().unwrap_or_default());
            (usize::from(row), u64::from_le_bytes(offset.try_into().unwrap_or_default()))
        })
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Numbers>()
            .saturating_add(self.data.len())
            .saturating_add(size_of_val(&*self.blocks))
            .saturating_add(self.dictionary.as_ref().map_or(0, |d| size_of_val(&**d)))
    }
}

fn decode_dictionary(reader: &mut Reader<'_>, rows: usize) -> Result<Box<[u64]>, Malformed> {
    let count = reader.length(rows)?;
    let mut values = Vec::with_capacity(count);
    let mut value = 0_u64;
    for place in 0..count {
        let step = reader.varint()?;
        match value.checked_add(step).filter(|_| place == 0 || step > 0) {
            Some(next) => value = next,
            None => return Err(reader.malformed("ascending values", "others")),
        }
        values.push(value);
    }
    Ok(values.into())
}

/// Reads values of `width` bits, 1 to 64, and adds `base` to each.
fn unpack(bytes: &[u8], width: u32, base: u64, out: &mut [u64]) {
    let mask = mask(width);
    let mut words =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
    let (mut word, mut left) = (0_u64, 0_u32);
    for slot in out {
        let value = if left >= width {
            let value = word & mask;
            word = word.checked_shr(width).unwrap_or(0);
            left = left.wrapping_sub(width);
            value
        } else {
            let next = words.next().unwrap_or(0);
            let value = (word | next.wrapping_shl(left)) & mask;
            let taken = width.wrapping_sub(left);
            word = next.checked_shr(taken).unwrap_or(0);
            left = 64_u32.wrapping_sub(taken);
            value
        };
        *slot = base.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[u64], block_rows: u16) -> usize {
        let mut bytes = Vec::new();
        encode(&mut bytes, values, block_rows);
        let mut reader = Reader::new("test", &bytes);
        let rows = u32::try_from(values.len()).unwrap();
        let numbers = Numbers::decode(&mut reader, rows, block_rows).unwrap();
        reader.end().unwrap();
        let mut block_values = vec![0; usize::from(block_rows)];
        for (block, expected) in values.chunks(usize::from(block_rows)).enumerate() {
            let got = numbers.values(block, &mut block_values);
            assert_eq!(&block_values[..got], expected, "block {block}");
            let (least, greatest) = numbers.code_bounds(block);
            let got = numbers.codes(block, &mut block_values);
            assert_eq!(block_values[..got].iter().min(), Some(&least));
            assert_eq!(block_values[..got].iter().max(), Some(&greatest));
        }
        for (row, &value) in values.iter().enumerate() {
            assert_eq!(numbers.get(row), value, "row {row}");
        }
        assert_eq!(numbers.get(usize::MAX), 0);
        bytes.len()
    }

    #[test]
    fn values_of_every_width_round_trip() {
        let mut random = fastrand::Rng::with_seed(11);
        for width in 0..=64 {
            for rows in [1, 63, 64, 65, 300] {
                let values: Vec<u64> = (0..rows).map(|_| random.u64(..) & mask(width)).collect();
                check(&values, 128);
            }
        }
        check(&[0, u64::MAX, 0, u64::MAX], 512);
    }

    #[test]
    fn rare_large_values_are_patches_and_few_values_a_dictionary() {
        let mut values: Vec<u64> = (0..1000).map(|n| n % 16).collect();
        values[77] = u64::MAX;
        values[999] = 1 << 40;
        assert!(check(&values, 256) < 1000 * 5 / 8 + 100);
        let mut random = fastrand::Rng::with_seed(12);
        let few: Vec<u64> = (0..20).map(|_| random.u64(..)).collect();
        let values: Vec<u64> = (0..5000).map(|_| few[random.usize(..20)]).collect();
        assert!(check(&values, 256) < 5000 * 6 / 8 + 600);
    }

    #[test]
    fn zigzag_round_trips() {
        for value in [0, 1, -1, i64::MAX, i64::MIN, 77] {
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!((zigzag(-1), zigzag(1)), (1, 2));
    }

    /// Bytes with a valid checksum are those that were written; still, any bytes must be harmless.
    #[test]
    fn any_bytes_decode_or_fail_without_panic() {
        let mut random = fastrand::Rng::with_seed(13);
        let mut good = Vec::new();
        let values: Vec<u64> = (0..700).map(|_| random.u64(..) >> random.u32(..64)).collect();
        encode(&mut good, &values, 256);
        let mut out = [0; 256];
        for _ in 0..5000 {
            let mut bad = good.clone();
            for _ in 0..random.usize(1..8) {
                let at = random.usize(..bad.len().min(80));
                bad[at] = random.u8(..);
            }
            bad.truncate(random.usize(..=bad.len()));
            if let Ok(numbers) = Numbers::decode(&mut Reader::new("test", &bad), 700, 256) {
                for block in 0..4 {
                    numbers.values(block, &mut out);
                }
                for row in 0..700 {
                    numbers.get(row);
                }
            }
        }
    }
}
