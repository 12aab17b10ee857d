//! Nodes that are stored twice: those of the catalog, from one of which all trees are reachable.
//!
//! The units of such a node are two halves of whole blocks of the disk, each of which begins with
//! all of the node's bytes. The checksum in its pointer covers either. A reader that finds the
//! first copy damaged reads the second. A check finds either damaged copy, and a repair rewrites it
//! in place from the other.

use format::Pointer;
use format::node::{self, HEADER_BYTES, UNIT_BYTES};
use store::{Error, Result};

use crate::nodes::{NODES_FILE, Nodes};
use crate::space::BLOCK_UNITS;
use crate::units::unit_offset;

/// Units of the whole blocks that `bytes` bytes take.
pub(crate) fn block_units(bytes: usize) -> u16 {
    (bytes.div_ceil(UNIT_BYTES) as u16).next_multiple_of(BLOCK_UNITS)
}

/// A damaged copy of a node that has two.
pub(crate) struct BadCopy {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// Its correct content.
    pub(crate) bytes: Vec<u8>,
}

impl Nodes {
    /// The bytes of the second copy of a node whose first cannot be read, if there is one.
    #[cold]
    pub(crate) fn second_copy(&self, pointer: Pointer, error: &Error) -> Option<Vec<u8>> {
        // The read may have failed because of the second copy alone.
        let bytes = self.halves(pointer)?.into_iter().find_map(Result::ok)?;
        tracing::error!(%error, "read a catalog node from its second copy");
        Some(bytes)
    }

    /// The damaged copy of a node that is stored twice, if the other one is whole.
    pub(crate) fn bad_copy(&self, pointer: Pointer) -> Result<Option<BadCopy>> {
        let Some([first, second]) = self.halves(pointer) else { return Ok(None) };
        let half = u64::from(pointer.units / 2) * UNIT_BYTES as u64;
        let offset = unit_offset(pointer.unit);
        let (good, error, offset) = match (first, second) {
            (Ok(good), Err(error)) => (good, error, offset + half),
            (Err(error), Ok(good)) => (good, error, offset),
            _ => return Ok(None),
        };
        if let Error::Device(error) = &error
            && error.is_shortage()
        {
            return Err(error.clone().into());
        }
        // A node that is stored once has zeros in its last unit only.
        let (header, _) = node::verify(&good, pointer.unit, pointer.checksum)
            .map_err(|malformed| malformed.located(NODES_FILE, offset))?;
        let length = HEADER_BYTES + header.body as usize;
        let is_twice = pointer.units == 2 * block_units(length);
        Ok(is_twice.then_some(BadCopy { offset, bytes: good }))
    }

    /// The content of either half of a node's units, if that is the node.
    fn halves(&self, pointer: Pointer) -> Option<[Result<Vec<u8>>; 2]> {
        if !pointer.units.is_multiple_of(2 * BLOCK_UNITS) {
            return None;
        }
        let bytes = usize::from(pointer.units / 2) * UNIT_BYTES;
        let first = unit_offset(pointer.unit);
        Some([first, first + bytes as u64].map(|offset| {
            let bytes = self.bytes_at(offset, bytes)?;
            match node::verify(&bytes, pointer.unit, pointer.checksum) {
                Ok(_) => Ok(bytes),
                Err(malformed) => Err(malformed.located(NODES_FILE, offset).into()),
            }
        }))
    }
}
