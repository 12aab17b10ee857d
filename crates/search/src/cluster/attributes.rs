//! Extended attributes that rows carry, as columns: for each attribute its distinct values in
//! order, and for each row the rank of its value. A search for a value looks up its rank and then
//! compares numbers, for which every block has bounds. Rows are also put into K-D order by them.

use format::cluster_values::VALUE_BYTES_MAX;
use format::xattr_record;

/// The columns of one attribute that some row has.
pub(super) struct Attribute<'a> {
    /// Index of its name among the carried attributes.
    pub(super) place: u8,
    /// For each row the rank of its value, from 1; 0: it has none.
    pub(super) ranks: Vec<u64>,
    /// The values, ascending.
    pub(super) values: Vec<&'a [u8]>,
}

/// The columns of those attributes of `carried` that rows have. `record` returns a row's carried
/// attributes, which are not copied: all rows may have all attributes.
pub(super) fn columns<'a>(
    carried: &[Vec<u8>],
    rows: u32,
    record: impl Fn(u32) -> &'a [u8],
) -> Vec<Attribute<'a>> {
    let mut found: Vec<Vec<(&'a [u8], u32)>> = vec![Vec::new(); carried.len()];
    for row in 0..rows {
        let read = xattr_record::each(record(row), &mut |name, value| {
            if let Ok(place) = carried.binary_search_by(|carried| carried.as_slice().cmp(name)) {
                found[place].push((value.get(..VALUE_BYTES_MAX).unwrap_or(value), row));
            }
        });
        read.expect("bug: rows carry records");
    }
    let found = found.into_iter().enumerate().filter(|(_, found)| !found.is_empty());
    found.map(|(place, found)| column(place as u8, found, rows)).collect()
}

fn column(place: u8, mut found: Vec<(&[u8], u32)>, rows: u32) -> Attribute<'_> {
    found.sort_unstable();
    let (mut ranks, mut values) = (vec![0; rows as usize], Vec::<&[u8]>::new());
    for (value, row) in found {
        if values.last() != Some(&value) {
            values.push(value);
        }
        ranks[row as usize] = values.len() as u64;
    }
    Attribute { place, ranks, values }
}
