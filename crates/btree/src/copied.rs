//! Entries of one leaf, copied out under its latch: cursors walk over such copies.

use std::sync::Arc;

use store::Result;

use crate::cell::Interior;
use crate::leaf::{LeafData, Value};
use crate::nodes::Nodes;
use crate::overflow::OverflowCell;
use crate::tree::{Root, Route, Tree};

/// Consecutive entries of a tree, in one block of bytes that is reused.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    far: Vec<(usize, Arc<OverflowCell>)>,
}

#[derive(Debug, Clone, Copy)]
struct Span {
    start: u32,
    value: u32,
    end: u32,
}

impl Copied {
    pub(crate) fn len(&self) -> usize {
        self.spans.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.far.clear();
    }

    pub(crate) fn key(&self, at: usize) -> &[u8] {
        let span = self.spans[at];
        &self.bytes[span.start as usize..span.value as usize]
    }

    /// Key and value; the value is empty when it is in an overflow node.
    pub(crate) fn near(&self, at: usize) -> (&[u8], &[u8]) {
        let span = self.spans[at];
        let value = &self.bytes[span.value as usize..span.end as usize];
        (&self.bytes[span.start as usize..span.value as usize], value)
    }

    /// The cell of a value that is in an overflow node.
    pub(crate) fn far(&self, at: usize) -> Option<&Arc<OverflowCell>> {
        let found = self.far.binary_search_by_key(&at, |(at, _)| *at).ok()?;
        Some(&self.far[found].1)
    }

    /// Copies the entries in `from..to` of a leaf.
    pub(crate) fn fill(&mut self, leaf: &LeafData, from: usize, to: usize) {
        self.clear();
        for at in from..to {
            let start = self.bytes.len() as u32;
            leaf.entries.key_to(at, &mut self.bytes);
            let value = self.bytes.len() as u32;
            match leaf.value(at) {
                Value::Near(bytes) => self.bytes.extend_from_slice(bytes),
                Value::Far(cell) => self.far.push((at - from, Arc::clone(cell))),
            }
            self.spans.push(Span { start, value, end: self.bytes.len() as u32 });
        }
    }
}

/// Descends to the leaf of a key, noting the first key that may be behind that leaf.
struct Forward<'a> {
    from: &'a [u8],
    fence: Option<Vec<u8>>,
}

impl Route for Forward<'_> {
    fn start(&mut self) {
        self.fence = None;
    }

    fn pick(&mut self, interior: &Interior) -> usize {
        let at = interior.route(self.from);
        if at < interior.keys.len() {
            self.fence = Some(interior.keys.key(at));
        }
        at
    }
}

/// Descends to the leaf of the keys below a key (or to the last leaf), noting the least key that
/// may be in that leaf.
struct Backward<'a> {
    below: Option<&'a [u8]>,
    fence: Option<Vec<u8>>,
}

impl Route for Backward<'_> {
    fn start(&mut self) {
        self.fence = None;
    }

    fn pick(&mut self, interior: &Interior) -> usize {
        let last = interior.keys.len();
        let at = self.below.map_or(last, |below| interior.keys.rank_below(below));
        if at > 0 {
            self.fence = Some(interior.keys.key(at - 1));
        }
        at
    }
}

fn take_from(leaf: &LeafData, from: &[u8], to: Option<&[u8]>, copied: &mut Copied) {
    let entries = &leaf.entries;
    let end = to.map_or(entries.len(), |to| entries.rank_below(to));
    let start = entries.rank_below(from).min(end);
    copied.fill(leaf, start, end);
}

/// Copies the entries from `from` on that are in its leaf, without those from `to` on. Returns the
/// key at which to continue.
pub(crate) fn copy_on(
    nodes: &Nodes,
    tree: &Tree,
    from: &[u8],
    to: Option<&[u8]>,
    copied: &mut Copied,
) -> Result<Option<Vec<u8>>> {
    let mut route = Forward { from, fence: None };
    tree.read(nodes, &mut route, |leaf| {
        take_from(leaf, from, to, copied);
        Ok(())
    })?;
    Ok(route.fence.filter(|fence| to.is_none_or(|to| fence.as_slice() < to)))
}

/// The same for a tree that no other thread changes.
pub(crate) fn copy_forward(
    nodes: &Nodes,
    root: &Root,
    from: &[u8],
    copied: &mut Copied,
) -> Result<Option<Vec<u8>>> {
    let mut route = Forward { from, fence: None };
    root.read(nodes, &mut route, |leaf| {
        take_from(leaf, from, None, copied);
        Ok(())
    })?;
    Ok(route.fence)
}

/// Copies the entries below `below` that are in one leaf, without those below `from`. Returns the
/// key below which to continue.
pub(crate) fn copy_back(
    nodes: &Nodes,
    tree: &Tree,
    from: &[u8],
    below: Option<&[u8]>,
    copied: &mut Copied,
) -> Result<Option<Vec<u8>>> {
    let mut route = Backward { below, fence: None };
    tree.read(nodes, &mut route, |leaf| {
        take_from(leaf, from, below, copied);
        Ok(())
    })?;
    Ok(route.fence.filter(|fence| fence.as_slice() > from))
}
