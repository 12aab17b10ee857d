//! Checking everything: for tests, and for whoever looks after a volume.
//!
//! The durable state is walked on the medium, past the cache: every node once, its checksum, its
//! own address, the order of its keys, the bounds that its parent's separators give, its weight,
//! its level. References are counted anew from the roots and compared with the map, unit by unit.
//! What is in memory is walked as it is, for the same structure.

use std::collections::BTreeMap;

use format::catalog::{CatalogKey, RootRecord};
use format::node::{Header, InteriorBody, LeafBody, LeafValue};
use format::space_map::{CONTINUATION, GROUP_UNITS};
use format::{Malformed, Pointer};
use store::{Error, Result, TreeId};

use crate::BtreeStore;
use crate::cell::{Child, Node};
use crate::checkpoint::State;
use crate::core::Core;
use crate::entries::entry_weight;
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};

/// Findings beyond this many are counted but not kept.
const FINDINGS_MAX: usize = 100;

/// What a check found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Trees of the durable state.
    pub trees: u64,
    /// Things cut off that are yet to be freed.
    pub trash: u64,
    /// Distinct leaves.
    pub leaves: u64,
    /// Distinct interior nodes.
    pub interiors: u64,
    /// Distinct overflow nodes.
    pub overflows: u64,
    /// Entries of the distinct leaves.
    pub entries: u64,
    /// Units in use.
    pub units: u64,
    /// Nodes that are lighter than they should be: room lost, nothing else.
    pub light: u64,
    /// What is wrong, in words.
    pub findings: Vec<String>,
    /// How many findings there were.
    pub findings_count: u64,
}

impl Report {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.findings_count == 0
    }

    fn found(&mut self, finding: String) {
        self.findings_count += 1;
        if self.findings.len() < FINDINGS_MAX {
            self.findings.push(finding);
        }
    }
}

/// Checks a store. Commits may go on; checkpoints wait. Fails only when the map cannot be read.
pub fn check(store: &BtreeStore) -> Result<Report> {
    let core = &store.core;
    let mut state = core.checkpoint.lock();
    let mut walk = Walk { core, report: Report::default(), counts: BTreeMap::new() };
    walk.durable(&state);
    walk.compare_map(&mut state)?;
    walk.memory();
    Ok(walk.report)
}

/// The keys that a node may have.
#[derive(Clone)]
struct Bounds {
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

impl Bounds {
    fn all() -> Bounds {
        Bounds { low: Vec::new(), high: None }
    }

    fn contain(&self, key: &[u8]) -> bool {
        key >= self.low.as_slice() && self.high.as_deref().is_none_or(|high| key < high)
    }
}

/// What a node holds, as far as a check needs it.
#[derive(Default)]
struct Content {
    keys: Vec<Vec<u8>>,
    below: Vec<Pointer>,
    /// For a leaf: the values of its entries, for the catalog.
    values: Vec<Vec<u8>>,
    weight: usize,
}

struct Walk<'a> {
    core: &'a Core,
    report: Report,
    /// Units and references of each node that was met.
    counts: BTreeMap<u64, (u16, u32)>,
}

impl Walk<'_> {
    fn durable(&mut self, state: &State) {
        if let Some(directory) = state.space.directory {
            self.refer(directory);
        }
        let Some(catalog) = state.catalog else { return };
        let mut roots = Vec::new();
        self.refer(catalog.pointer);
        self.node(catalog.pointer, catalog.level, true, &Bounds::all(), Some(&mut roots));
        for (key, value) in roots {
            let decoded = CatalogKey::decode(&key)
                .and_then(|key| RootRecord::decode(&value).map(|record| (key, record)));
            match decoded {
                Ok((key, record)) => {
                    match key {
                        CatalogKey::Tree(_) => self.report.trees += 1,
                        CatalogKey::Trash(_) => self.report.trash += 1,
                    }
                    // What is trash may be any node, a light one too.
                    if self.refer(record.pointer) {
                        self.node(record.pointer, record.level, true, &Bounds::all(), None);
                    }
                }
                Err(malformed) => self.report.found(format!("catalog: {malformed}")),
            }
        }
    }

    /// Counts a reference; tells whether it is the first.
    fn refer(&mut self, pointer: Pointer) -> bool {
        let count = self.counts.entry(pointer.unit).or_insert((pointer.units, 0));
        count.1 += 1;
        let (first, same) = (count.1 == 1, count.0 == pointer.units);
        if !same {
            self.report.found(format!("unit {}: two nodes begin here", pointer.unit));
        }
        first
    }

    /// Checks a node and what is below it. Recurses once a level, so no deeper than `LEVEL_MAX`.
    fn node(
        &mut self,
        pointer: Pointer,
        level: u8,
        root: bool,
        bounds: &Bounds,
        mut records: Option<&mut Vec<(Vec<u8>, Vec<u8>)>>,
    ) {
        let read = self.core.nodes.read_tree_node(pointer, level, content);
        let content = match read {
            Ok(content) => content,
            Err(error) => return self.report.found(error.to_string()),
        };
        let unit = pointer.unit;
        self.keys(unit, &content.keys, bounds);
        if content.weight > WEIGHT_MAX {
            self.report.found(format!("unit {unit}: a node weighs {}", content.weight));
        }
        if content.weight < WEIGHT_MIN && !root {
            self.report.light += 1;
        }
        if level == 0 {
            self.report.leaves += 1;
            self.report.entries += content.keys.len() as u64;
            if pointer.overflows == content.below.is_empty() {
                self.report.found(format!("unit {unit}: its pointer errs about overflow nodes"));
            }
            for far in content.below {
                if self.refer(far) {
                    self.report.overflows += 1;
                    if let Err(error) = self.core.nodes.read(far, |_, _| Ok(())) {
                        self.report.found(error.to_string());
                    }
                }
            }
            if let Some(records) = &mut records {
                records.extend(content.keys.into_iter().zip(content.values));
            }
            return;
        }
        self.report.interiors += 1;
        for (at, below) in content.below.iter().enumerate() {
            let bounds = between(&content.keys, at, bounds);
            if self.refer(*below) {
                self.node(*below, level - 1, false, &bounds, records.as_deref_mut());
            }
        }
    }

    fn keys(&mut self, unit: u64, keys: &[Vec<u8>], bounds: &Bounds) {
        if keys.windows(2).any(|pair| pair[0] >= pair[1]) {
            self.report.found(format!("unit {unit}: keys do not ascend"));
        }
        if keys.iter().any(|key| !bounds.contain(key)) {
            self.report.found(format!("unit {unit}: a key lies outside of its parent's bounds"));
        }
    }

    /// Compares what was counted with the map.
    fn compare_map(&mut self, state: &mut State) -> Result<()> {
        let file = self.core.nodes.file.as_ref();
        for group in 0..state.space.groups.len() as u64 {
            let page = state.space.page(file, group)?;
            let first = group * GROUP_UNITS as u64;
            let mut expected = vec![0_u32; GROUP_UNITS];
            for (&unit, &(units, count)) in self.counts.range(first..first + GROUP_UNITS as u64) {
                let start = (unit - first) as usize;
                let end = (start + usize::from(units)).min(GROUP_UNITS);
                if expected[start..end].iter().any(|&count| count != 0) {
                    self.report.found(format!("unit {unit}: two nodes overlap"));
                }
                expected[start..end].fill(CONTINUATION);
                expected[start] = count;
                self.report.units += u64::from(units);
            }
            for (at, (expected, found)) in expected.iter().zip(page.iter()).enumerate() {
                if expected != found {
                    let unit = first + at as u64;
                    self.report.found(format!("unit {unit} counts {found}, not {expected}"));
                }
            }
            let free = expected.iter().filter(|&&count| count == 0).count();
            let stated = usize::from(state.space.groups[group as usize].free);
            if free != stated {
                self.report.found(format!("group {group}: {stated} free units, not {free}"));
            }
        }
        Ok(())
    }

    /// Checks the structure of what is in memory.
    fn memory(&mut self) {
        let _gate = self.core.gate.write();
        let mut ids: Vec<TreeId> = self.core.trees.read().keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            match self.core.tree(id) {
                Ok(tree) => {
                    let root = tree.state.read();
                    self.cell(id, &root.child, root.level, true, &Bounds::all());
                }
                Err(Error::NoTree(_)) => {}
                Err(error) => self.report.found(error.to_string()),
            }
        }
    }

    /// Returns whether something below is not on disk as it is.
    fn cell(&mut self, id: TreeId, child: &Child, level: u8, root: bool, bounds: &Bounds) -> bool {
        let Some(node) = child.cell.get() else { return false };
        let clean = node.pointer().is_some();
        let mut changed_below = false;
        let (sorted, keys, weight) = match node {
            Node::Leaf(leaf) => {
                let state = leaf.latch.read();
                if level != 0 {
                    self.report.found(format!("tree {}: a leaf on level {level}", id.0));
                }
                let Some(data) = &state.data else {
                    return !clean;
                };
                let entries = &data.entries;
                let keys: Vec<_> = (0..entries.len()).map(|at| entries.key(at)).collect();
                (entries.is_sorted(), keys, entries.weight())
            }
            Node::Interior(interior) => {
                if level != interior.level {
                    self.report.found(format!("tree {}: level {level} lies", id.0));
                    return !clean;
                }
                let entries = &interior.keys;
                let keys: Vec<_> = (0..entries.len()).map(|at| entries.key(at)).collect();
                for (at, child) in interior.children.iter().enumerate() {
                    let bounds = between(&keys, at, bounds);
                    changed_below |= self.cell(id, child, level - 1, false, &bounds);
                }
                (entries.is_sorted(), keys, interior.weight())
            }
        };
        if clean && changed_below {
            self.report.found(format!("tree {}: a node is on disk, what is below is not", id.0));
        }
        if !sorted || keys.iter().any(|key| !bounds.contain(key)) {
            self.report.found(format!("tree {}: a cell's keys are out of order", id.0));
        }
        if weight > WEIGHT_MAX {
            self.report.found(format!("tree {}: a cell weighs {weight}", id.0));
        }
        if weight < WEIGHT_MIN && !root {
            self.report.light += 1;
        }
        !clean
    }
}

/// The bounds of child `at`.
fn between(keys: &[Vec<u8>], at: usize, bounds: &Bounds) -> Bounds {
    let low = at.checked_sub(1).and_then(|before| keys.get(before));
    Bounds {
        low: low.unwrap_or(&bounds.low).clone(),
        high: keys.get(at).or(bounds.high.as_ref()).cloned(),
    }
}

/// Reads what a check needs of a node.
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
            LeafValue::Overflow { pointer, .. } => {
                content.weight += entry_weight(key.len(), crate::leaf::FAR_BYTES);
                content.values.push(Vec::new());
                content.below.push(pointer);
            }
        }
        content.keys.push(key);
    }
    Ok(content)
}
