//! All extended attributes of an inode, in one value (`docs/format/xattr-record.md`).

use crate::layout::Field;
use crate::{Malformed, Reader, Writer};

/// Layout: these fields once for each attribute, in the order of the names.
pub const LAYOUT: &[Field] = &[
    Field::variable("name_length", "varint"),
    Field::variable("name", "bytes"),
    Field::variable("value_length", "varint"),
    Field::variable("value", "bytes"),
];

/// Longest name.
pub const NAME_BYTES_MAX: usize = 255;
/// Longest value.
pub const VALUE_BYTES_MAX: usize = 64 << 10;
/// Most bytes of all attributes of an inode, encoded.
pub const TOTAL_BYTES_MAX: usize = 256 << 10;

/// Extended attributes, sorted by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct XattrRecord {
    attributes: Vec<(Vec<u8>, Vec<u8>)>,
}

impl XattrRecord {
    /// The value of a name.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.find(name).ok()?;
        self.attributes.get(at).map(|(_, value)| value.as_slice())
    }

    /// Sets a name's value.
    pub fn set(&mut self, name: &[u8], value: &[u8]) {
        match self.find(name) {
            Ok(at) => {
                if let Some(slot) = self.attributes.get_mut(at) {
                    slot.1 = value.to_vec();
                }
            }
            Err(at) => self.attributes.insert(at, (name.to_vec(), value.to_vec())),
        }
    }

    /// Removes a name and returns whether it was there.
    pub fn remove(&mut self, name: &[u8]) -> bool {
        self.find(name).map(|at| self.attributes.remove(at)).is_ok()
    }

    /// The names and values, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.attributes.iter().map(|(name, value)| (name.as_slice(), value.as_slice()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.attributes.is_empty()
    }

    /// The record's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.attributes {
            out.put_bytes(name);
            out.put_bytes(value);
        }
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<XattrRecord, Malformed> {
        let mut attributes = Vec::new();
        each(bytes, &mut |name, value| attributes.push((name.to_vec(), value.to_vec())))?;
        Ok(XattrRecord { attributes })
    }

    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        self.attributes.binary_search_by(|(other, _)| other.as_slice().cmp(name))
    }
}

/// Passes the names and values of a record to the caller, by name, without copying them.
pub fn each<'a>(
    bytes: &'a [u8],
    take: &mut dyn FnMut(&'a [u8], &'a [u8]),
) -> Result<(), Malformed> {
    let mut reader = Reader::new("xattr record", bytes);
    let mut last: Option<&[u8]> = None;
    while reader.remaining() > 0 {
        let length = reader.length(NAME_BYTES_MAX)?;
        let name = reader.take(length)?;
        if last.is_some_and(|last| last >= name) {
            return Err(reader.malformed("names in order", "a smaller one"));
        }
        last = Some(name);
        let length = reader.length(VALUE_BYTES_MAX)?;
        take(name, reader.take(length)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::XattrRecord;

    #[test]
    fn attributes_round_trip_in_order() {
        let mut record = XattrRecord::default();
        record.set(b"user.b", b"2");
        record.set(b"user.a", b"");
        record.set(b"user.b", &[0; 300]);
        let again = XattrRecord::decode(&record.encode()).expect("what was encoded");
        assert_eq!(again, record);
        let names: Vec<_> = again.iter().map(|(name, _)| name.to_vec()).collect();
        assert_eq!(names, [b"user.a".to_vec(), b"user.b".to_vec()]);
        assert!(record.remove(b"user.a") && !record.remove(b"user.a"));
        assert_eq!(record.get(b"user.b"), Some(&[0; 300][..]));
    }
}
