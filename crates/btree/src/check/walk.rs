//! The walk over the durable state. A node that cannot be read is a finding, and the nodes below it
//! are skipped; everything else is still checked.

use std::collections::BTreeMap;

use format::catalog::{CatalogKey, RootRecord};
use format::node::{Header, InteriorBody, LeafBody, LeafValue, UNIT_BYTES};
use format::{Malformed, Pointer};
use store::{CheckProgress, CheckReport, Error, Finding, FindingKind, Remedy, Result};

use super::pages::Pages;
use crate::entries::entry_weight;
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};
use crate::nodes::{NODES_FILE, Nodes, expect_value};
use crate::two_copies::BadCopy;

/// Nodes between two reports of progress.
const NODES_A_REPORT: u64 = 64;

/// The roots of a state.
pub(super) struct Roots {
    pub(super) directory: Option<Pointer>,
    pub(super) catalog: Option<RootRecord>,
}

/// The keys that a node may have.
#[derive(Clone)]
pub(super) struct Bounds {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Bounds {
    pub(super) fn all() -> Bounds {
        Bounds { low: Vec::new(), high: None }
    }

    pub(super) fn contain(&self, key: &[u8]) -> bool {
        key >= self.low.as_slice() && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// The content of a node, as far as a check needs it.
#[derive(Default)]
struct Content {
    keys: Vec<Vec<u8>>,
    below: Vec<Pointer>,
    /// For a leaf: its overflow nodes, and the length that it records for each.
    far: Vec<(Pointer, u32)>,
    /// For a leaf: the values of its entries, for the catalog.
    values: Vec<Vec<u8>>,
    weight: usize,
}

/// The properties of a node as its first pointer states them, and the number of pointers.
#[derive(Debug, Clone, Copy)]
pub(super) struct Met {
    pub(super) count: u32,
    pub(super) units: u16,
    checksum: u32,
    overflows: bool,
    /// `None` if it is not a tree node.
    level: Option<u8>,
}

/// Records of the catalog: the unit of their leaf, their key, their value.
type Records = Vec<(u64, Vec<u8>, Vec<u8>)>;

/// The state of a walk.
pub(super) struct NodeWalk<'n, 'p> {
    nodes: &'n Nodes,
    pub(super) report: CheckReport,
    /// Each node that was reached, by its first unit.
    pub(super) met: BTreeMap<u64, Met>,
    /// Bytes of all nodes, approximately.
    total: u64,
    seen: u64,
    progress: CheckProgress<'p>,
    /// Name of the structure that is walked, for messages.
    tree: String,
    /// Damaged copies of nodes that are stored twice.
    pub(super) bad_copies: Vec<BadCopy>,
    /// The first read error of the disk.
    pub(super) unread: Option<device::Error>,
}

impl<'n, 'p> NodeWalk<'n, 'p> {
    pub(super) fn new(nodes: &'n Nodes, pages: &Pages, progress: CheckProgress<'p>) -> Self {
        NodeWalk {
            nodes,
            report: CheckReport::default(),
            met: BTreeMap::new(),
            total: pages.used_bytes(),
            seen: 0,
            progress,
            tree: String::new(),
            bad_copies: Vec::new(),
            unread: None,
        }
    }

    /// Walks all trees from their roots.
    pub(super) fn durable(&mut self, roots: &Roots) -> Result<()> {
        if let Some(directory) = roots.directory {
            self.refer(directory, None);
        }
        let Some(catalog) = roots.catalog else { return Ok(()) };
        let mut records = Vec::new();
        "the catalog".clone_into(&mut self.tree);
        self.refer(catalog.pointer, Some(catalog.level));
        self.node(catalog.pointer, catalog.level, true, &Bounds::all(), Some(&mut records))?;
        for (unit, key, value) in records {
            let decoded = CatalogKey::decode(&key)
                .and_then(|key| RootRecord::decode(&value).map(|record| (key, record)));
            match decoded {
                Ok((key, record)) => {
                    self.tree = match key {
                        CatalogKey::Tree(number) => {
                            self.report.trees += 1;
                            format!("tree {number}")
                        }
                        CatalogKey::Trash(number) => {
                            self.report.trash += 1;
                            format!("the removed range with number {number}")
                        }
                    };
                    // Trash may be any node, an underfull one too.
                    if self.refer(record.pointer, Some(record.level)) {
                        self.node(record.pointer, record.level, true, &Bounds::all(), None)?;
                    }
                }
                Err(malformed) => {
                    let what = format!("unit {unit}, in the catalog: {malformed}");
                    self.found(FindingKind::Structure, unit, what);
                }
            }
        }
        Ok(())
    }

    /// Counts a reference; returns whether it is the first. Only the first is followed, so all
    /// others must state the same.
    fn refer(&mut self, pointer: Pointer, level: Option<u8>) -> bool {
        let Pointer { unit, units, overflows, checksum } = pointer;
        let new = Met { count: 0, units, checksum, overflows, level };
        let met = self.met.entry(unit).or_insert(new);
        met.count += 1;
        let met = *met;
        if met.units != units {
            self.found(FindingKind::Count, unit, format!("unit {unit}: two nodes begin here"));
        } else if (met.checksum, met.overflows, met.level) != (checksum, overflows, level) {
            let what = format!("unit {unit}, in {}: two pointers to it differ", self.tree);
            self.found(FindingKind::Structure, unit, what);
        }
        met.count == 1
    }

    /// Handles a node that could not be read, or differs from what was written.
    fn unreadable(&mut self, error: Error) -> Result<()> {
        if let Error::Device(error) = &error {
            self.unread.get_or_insert_with(|| error.clone());
        }
        match error.as_damage() {
            Error::Corrupt(bad) => {
                self.report.add(Finding::of_damage(&format!("in {}", self.tree), &bad));
                Ok(())
            }
            error => Err(error),
        }
    }

    /// Notes that a node was read.
    fn read(&mut self, pointer: Pointer) {
        self.report.bytes += u64::from(pointer.units) * UNIT_BYTES as u64;
        self.seen += 1;
        if self.seen.is_multiple_of(NODES_A_REPORT) {
            let total = self.total.max(self.report.bytes);
            self.report.stopped |= (self.progress)(self.report.bytes, total).is_break();
        }
    }

    /// Checks a node and its descendants. Recurses once a level, so no deeper than `LEVEL_MAX`.
    fn node(
        &mut self,
        pointer: Pointer,
        level: u8,
        root: bool,
        bounds: &Bounds,
        mut records: Option<&mut Records>,
    ) -> Result<()> {
        if self.report.stopped {
            return Ok(());
        }
        let content = match self.nodes.read_tree_node(pointer, level, content) {
            Ok(content) => content,
            Err(error) => return self.unreadable(error),
        };
        self.read(pointer);
        if records.is_some() {
            self.copies(pointer)?;
        }
        let unit = pointer.unit;
        self.keys(unit, &content.keys, bounds);
        if content.weight > WEIGHT_MAX {
            let what = format!(
                "unit {unit}, in {}: the node is too large, with a weight of {}",
                self.tree, content.weight
            );
            self.found(FindingKind::Structure, unit, what);
        }
        if content.weight < WEIGHT_MIN && !root {
            self.report.underfull += 1;
        }
        if level == 0 {
            if let Some(records) = &mut records {
                let pairs = content.keys.iter().zip(&content.values);
                records.extend(pairs.map(|(key, value)| (unit, key.clone(), value.clone())));
            }
            return self.leaf(pointer, &content);
        }
        self.report.interiors += 1;
        for (at, below) in content.below.iter().enumerate() {
            let bounds = between(&content.keys, at, bounds);
            if self.refer(*below, Some(level - 1)) {
                self.node(*below, level - 1, false, &bounds, records.as_deref_mut())?;
            }
        }
        Ok(())
    }

    /// Reads both copies of a node of the catalog.
    fn copies(&mut self, pointer: Pointer) -> Result<()> {
        if let Some(bad) = self.nodes.bad_copy(pointer)? {
            let what = "one of two copies of a node of the catalog is damaged".to_owned();
            let kind = FindingKind::Structure;
            let finding = Finding::new(kind, NODES_FILE.to_owned(), bad.offset, what);
            self.report.add(finding.with(Remedy::Rebuild));
            self.bad_copies.push(bad);
        }
        Ok(())
    }

    fn leaf(&mut self, pointer: Pointer, content: &Content) -> Result<()> {
        self.report.leaves += 1;
        self.report.entries += content.keys.len() as u64;
        if pointer.overflows == content.far.is_empty() {
            let unit = pointer.unit;
            let what =
                format!("unit {unit}: the pointer to the node is wrong about its overflow nodes");
            self.found(FindingKind::Structure, unit, what);
        }
        for &(far, length) in &content.far {
            if self.refer(far, None) {
                self.report.overflows += 1;
                match self.nodes.read(far, |header, _| expect_value(header, length)) {
                    Ok(()) => self.read(far),
                    Err(error) => self.unreadable(error)?,
                }
            }
        }
        Ok(())
    }

    fn keys(&mut self, unit: u64, keys: &[Vec<u8>], bounds: &Bounds) {
        if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            let what = format!("unit {unit}, in {}: keys do not ascend", self.tree);
            self.found(FindingKind::Structure, unit, what);
        }
        if keys.iter().any(|key| !bounds.contain(key)) {
            let tree = &self.tree;
            let what = format!("unit {unit}, in {tree}: a key outside of its parent's bounds");
            self.found(FindingKind::Structure, unit, what);
        }
    }
}

/// The bounds of child `at`.
pub(super) fn between(keys: &[Vec<u8>], at: usize, bounds: &Bounds) -> Bounds {
    let low = at.checked_sub(1).and_then(|before| keys.get(before));
    Bounds {
        low: low.unwrap_or(&bounds.low).clone(),
        high: keys.get(at).or(bounds.high.as_ref()).cloned(),
    }
}

/// Reads the parts of a node that a check needs.
fn content(header: &Header, body: &[u8]) -> std::result::Result<Content, Malformed> {
    let mut content = Content::default();
    let whole = |prefix: &[u8], suffix: &[u8]| [prefix, suffix].concat();
    if header.level > 0 {
        let mut interior = InteriorBody::new(header, body)?;
        content.below.push(interior.first());
        content.weight = format::POINTER_BYTES;
        while let Some((suffix, pointer)) = interior.next_child()? {
            let key = whole(interior.prefix(), suffix);
            content.weight += entry_weight(key.len(), format::POINTER_BYTES);
            content.keys.push(key);
            content.below.push(pointer);
        }
        return Ok(content);
    }
    let mut leaf = LeafBody::new(header, body)?;
    while let Some((suffix, value)) = leaf.next_entry()? {
        let key = whole(leaf.prefix(), suffix);
        match value {
            LeafValue::Inline(value) => {
                content.weight += entry_weight(key.len(), value.len());
                content.values.push(value.to_vec());
            }
            LeafValue::Overflow { pointer, length } => {
                content.weight += entry_weight(key.len(), crate::leaf::FAR_BYTES);
                content.values.push(Vec::new());
                content.far.push((pointer, length));
            }
        }
        content.keys.push(key);
    }
    Ok(content)
}
