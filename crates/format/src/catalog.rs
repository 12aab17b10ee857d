//! Records of the catalog, the tree of all trees (`docs/format/node.md`).
//!
//! `T | tree 8` holds the root of a tree; `X | number 8` holds the root of a cut-off subtree that
//! is yet to be freed. Each record counts as one reference to its node.

use crate::{Malformed, Pointer, Reader, Writer};

/// Bytes of a record's value.
pub const RECORD_BYTES: usize = 13;

const TREE: u8 = b'T';
const TRASH: u8 = b'X';
const STRUCTURE: &str = "catalog record";

/// The root of a tree, or of a cut-off subtree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RootRecord {
    /// The root.
    pub pointer: Pointer,
    /// Its level.
    pub level: u8,
}

/// What a key of the catalog names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CatalogKey {
    /// A tree.
    Tree(u64),
    /// A cut-off subtree.
    Trash(u64),
}

impl CatalogKey {
    /// The key.
    pub fn encode(self) -> [u8; 9] {
        let (kind, number) = match self {
            CatalogKey::Tree(number) => (TREE, number),
            CatalogKey::Trash(number) => (TRASH, number),
        };
        // Big-endian, so that keys sort like numbers.
        let [a, b, c, d, e, f, g, h] = number.to_be_bytes();
        [kind, a, b, c, d, e, f, g, h]
    }

    /// Reads a key.
    pub fn decode(bytes: &[u8]) -> Result<CatalogKey, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let kind = reader.u8()?;
        let number = u64::from_be_bytes(reader.array()?);
        reader.end()?;
        match kind {
            TREE => Ok(CatalogKey::Tree(number)),
            TRASH => Ok(CatalogKey::Trash(number)),
            other => Err(reader.malformed("a kind of record", other.to_string())),
        }
    }
}

impl RootRecord {
    /// Its bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(RECORD_BYTES);
        self.pointer.encode(&mut out);
        out.put_u8(self.level);
        out
    }

    /// Reads a record.
    pub fn decode(bytes: &[u8]) -> Result<RootRecord, Malformed> {
        let mut reader = Reader::new(STRUCTURE, bytes);
        let pointer = Pointer::decode(&mut reader)?;
        let level = reader.u8()?;
        if level > crate::node::LEVEL_MAX {
            return Err(reader.malformed("a level within bounds", level.to_string()));
        }
        reader.end()?;
        Ok(RootRecord { pointer, level })
    }
}
