//! The values of one extended attribute in the rows of a cluster (`docs/format/cluster.md`), each
//! once, in ascending order of bytes. Rows store places in it, counted from 1; rows without the
//! attribute store 0. So the column of places is one of numbers like any other.

use crate::{Malformed, Reader, Writer};

const STRUCTURE: &str = "cluster values";

/// Longest stored prefix of a value: it distinguishes values, and bounds a row.
pub const VALUE_BYTES_MAX: usize = 256;

fn narrow(value: u32) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Appends values, which ascend, each of at most [`VALUE_BYTES_MAX`] bytes.
pub fn encode(values: &[impl AsRef<[u8]>], out: &mut Vec<u8>) {
    out.put_varint(u64::try_from(values.len()).unwrap_or(u64::MAX));
    for value in values {
        out.put_bytes(value.as_ref());
    }
}

/// Upper bound of the bytes of the values of `rows` rows.
pub fn bytes_max(rows: u32) -> usize {
    // A length takes two bytes, the number of values five.
    narrow(rows).saturating_mul(VALUE_BYTES_MAX.saturating_add(2)).saturating_add(5)
}

/// Values that were read and checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Values {
    /// The values, adjacent, without their lengths.
    bytes: Box<[u8]>,
    ends: Box<[u32]>,
}

impl Values {
    /// Reads values, which are exactly `bytes`: at least one, at most as many as there are rows.
    pub fn decode(bytes: &[u8], rows: u32) -> Result<Values, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let count = reader.length(narrow(rows))?;
        if count == 0 {
            return Err(reader.malformed("values", "none"));
        }
        // Each has at least a byte of length: a greater claimed count reserves no more memory.
        let mut ends = Vec::with_capacity(count.min(bytes.len()));
        let mut all = Vec::with_capacity(bytes.len());
        let mut last: Option<&[u8]> = None;
        for _ in 0..count {
            let length = reader.length(VALUE_BYTES_MAX)?;
            let value = reader.take(length)?;
            if last.is_some_and(|last| last >= value) {
                return Err(reader.malformed("ascending values", "a smaller one"));
            }
            last = Some(value);
            all.extend_from_slice(value);
            let Ok(end) = u32::try_from(all.len()) else {
                return Err(reader.malformed("values of less than 4 GiB", "more"));
            };
            ends.push(end);
        }
        reader.end()?;
        Ok(Values { bytes: all.into(), ends: ends.into() })
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Never true: there is at least one.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The value at a place, counted from 1.
    pub fn get(&self, place: u64) -> Option<&[u8]> {
        let place = usize::try_from(place).ok()?.checked_sub(1)?;
        let end = narrow(*self.ends.get(place)?);
        let before = place.checked_sub(1).and_then(|before| self.ends.get(before));
        self.bytes.get(before.copied().map_or(0, narrow)..end)
    }

    /// The place of a value, counted from 1.
    pub fn find(&self, value: &[u8]) -> Option<u64> {
        let (mut least, mut end) = (1_u64, u64::try_from(self.len()).ok()?.saturating_add(1));
        while least < end {
            let middle = least.midpoint(end);
            match self.get(middle)?.cmp(value) {
                std::cmp::Ordering::Less => least = middle.saturating_add(1),
                std::cmp::Ordering::Equal => return Some(middle),
                std::cmp::Ordering::Greater => end = middle,
            }
        }
        None
    }

    /// Memory that it takes, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.len().saturating_add(size_of_val(&*self.ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values() -> Vec<Vec<u8>> {
        let long = [b'x'; VALUE_BYTES_MAX];
        [b"", &b"12345678"[..], b"123456780", b"123456781", b"\xff", &long[..]]
            .map(<[u8]>::to_vec)
            .into()
    }

    fn encoded(values: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(values, &mut out);
        out
    }

    #[test]
    fn values_are_found_at_their_rows_only() {
        let mut all = values();
        all.sort();
        let values = Values::decode(&encoded(&all), 6).unwrap();
        assert_eq!(values.len(), 6);
        for (at, value) in (1..).zip(&all) {
            assert_eq!(values.find(value), Some(at));
            assert_eq!(values.get(at), Some(value.as_slice()));
        }
        for absent in [&b"\0"[..], b"1234567", b"12345678\0", b"\xff\xff", b"x"] {
            assert_eq!(values.find(absent), None);
        }
        assert_eq!((values.get(0), values.get(7), values.get(u64::MAX)), (None, None, None));
        assert!(encoded(&all).len() <= bytes_max(6));
    }

    #[test]
    fn partial_and_unordered_values_are_refused() {
        let mut all = values();
        all.sort();
        let good = encoded(&all);
        for length in 0..good.len() {
            assert!(Values::decode(&good[..length], 6).is_err());
        }
        assert!(Values::decode(&good, 5).is_err(), "more than rows");
        assert!(Values::decode(&encoded(&[]), 6).is_err());
        all.swap(1, 2);
        assert!(Values::decode(&encoded(&all), 6).is_err());
        assert!(Values::decode(&encoded(&[b"a".to_vec(), b"a".to_vec()]), 6).is_err());
        assert!(Values::decode(&encoded(&[vec![0; VALUE_BYTES_MAX + 1]]), 6).is_err());
    }

    #[test]
    fn any_bytes_decode_or_fail_without_panic() {
        let mut random = fastrand::Rng::with_seed(6);
        let mut all = values();
        all.sort();
        let good = encoded(&all);
        for _ in 0..20_000 {
            let mut bytes = good.clone();
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len().min(40));
                bytes[at] = random.u8(..);
            }
            if let Ok(values) = Values::decode(&bytes, 6) {
                for at in 1..=u64::try_from(values.len()).unwrap() {
                    assert_eq!(values.find(values.get(at).unwrap()), Some(at));
                }
            }
        }
    }
}
