//! Conversion between cells and the encoded bytes of nodes.

use std::sync::Arc;

use format::node::{self, Header, InteriorBody, Kind, LeafBody, LeafValue};
use format::{Malformed, Pointer};

use crate::budget::Budget;
use crate::cell::{Child, Interior, LeafCell, Node};
use crate::entries::{Cell, Entries};
use crate::leaf::{LeafData, Value};
use crate::overflow::OverflowCell;

/// Encodes a leaf; `far` yields the pointers of its overflow nodes, in key order.
pub(crate) fn encode_leaf(
    out: &mut Vec<u8>,
    generation: u64,
    data: &LeafData,
    far: &mut dyn Iterator<Item = Pointer>,
) {
    let entries = &data.entries;
    node::begin(out, Kind::Leaf, 0, generation, entries.len() as u32);
    node::put_prefix(out, entries.prefix());
    for at in 0..entries.len() {
        match data.value(at) {
            Value::Near(value) => node::put_inline(out, entries.suffix(at), value),
            Value::Far(cell) => {
                let pointer = far.next().expect("invariant: a pointer for each overflow node");
                node::put_overflow(out, entries.suffix(at), cell.length, &pointer);
            }
        }
    }
}

/// Encodes an interior node whose children are stored at `pointers`.
pub(crate) fn encode_interior(
    out: &mut Vec<u8>,
    generation: u64,
    interior: &Interior,
    pointers: &[Pointer],
) {
    let keys = &interior.keys;
    node::begin(out, Kind::Interior, interior.level, generation, pointers.len() as u32);
    node::put_prefix(out, keys.prefix());
    for (at, pointer) in pointers.iter().enumerate() {
        if at == 0 {
            node::put_first_child(out, pointer);
        } else {
            node::put_child(out, keys.suffix(at - 1), pointer);
        }
    }
}

/// Makes a cell of a verified node.
pub(crate) fn decode(
    budget: &Arc<Budget>,
    pointer: Pointer,
    header: &Header,
    body: &[u8],
) -> Result<Node, Malformed> {
    if header.level > 0 {
        return decode_interior(budget, pointer, header, body)
            .map(|interior| Node::Interior(Arc::new(interior)));
    }
    let data = decode_leaf(budget, header, body)?;
    Ok(Node::Leaf(Arc::new(LeafCell::new(budget, data, Some(pointer)))))
}

/// Reads the content of a leaf.
pub(crate) fn decode_leaf(
    budget: &Arc<Budget>,
    header: &Header,
    body: &[u8],
) -> Result<LeafData, Malformed> {
    let mut leaf = LeafBody::new(header, body)?;
    // Each entry takes at least two bytes of the body, so the count is bounded by it.
    let count = (header.entries as usize).min(body.len() / 2);
    let entries = Entries::with_capacity(leaf.prefix(), count, body.len());
    let mut data = LeafData::with_entries(entries);
    let mut last: Option<&[u8]> = None;
    while let Some((suffix, value)) = leaf.next_entry()? {
        ascending(last, suffix)?;
        last = Some(suffix);
        match value {
            LeafValue::Inline(value) => data.push_near(suffix, value),
            LeafValue::Overflow { pointer, length } => {
                data.push_far(suffix, OverflowCell::on_disk(budget, pointer, length));
            }
        }
    }
    Ok(data)
}

fn decode_interior(
    budget: &Arc<Budget>,
    pointer: Pointer,
    header: &Header,
    body: &[u8],
) -> Result<Interior, Malformed> {
    let mut interior = InteriorBody::new(header, body)?;
    let count = (header.entries as usize).min(body.len() / format::POINTER_BYTES);
    let mut keys = Entries::with_capacity(interior.prefix(), count, body.len());
    let mut children = Vec::with_capacity(count);
    children.push(Child::on_disk(interior.first()));
    let mut last: Option<&[u8]> = None;
    while let Some((suffix, child)) = interior.next_child()? {
        ascending(last, suffix)?;
        last = Some(suffix);
        keys.push_suffix(suffix, Cell { bytes: &[], flagged: false });
        children.push(Child::on_disk(child));
    }
    Ok(Interior::new(budget, header.level, keys, children, Some(pointer)))
}

/// The pointers of a verified node, without making cells: children of an interior node, overflow
/// nodes of a leaf.
pub(crate) fn pointers(header: &Header, body: &[u8]) -> Result<Vec<Pointer>, Malformed> {
    let mut found = Vec::new();
    if header.level > 0 {
        let mut interior = InteriorBody::new(header, body)?;
        found.push(interior.first());
        while let Some((_, child)) = interior.next_child()? {
            found.push(child);
        }
    } else {
        let mut leaf = LeafBody::new(header, body)?;
        while let Some((_, value)) = leaf.next_entry()? {
            if let LeafValue::Overflow { pointer, .. } = value {
                found.push(pointer);
            }
        }
    }
    Ok(found)
}

fn ascending(last: Option<&[u8]>, suffix: &[u8]) -> Result<(), Malformed> {
    if last.is_none_or(|last| last < suffix) {
        return Ok(());
    }
    Err(Malformed {
        structure: "node",
        at: 0,
        expected: "keys that ascend",
        found: format!("{suffix:02x?} after {last:02x?}"),
    })
}
