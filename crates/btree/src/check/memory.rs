//! Checks the nodes in memory for the same structure as on disk. For tests, because it holds the
//! gate.

use store::{CheckReport, Error, Finding, FindingKind, TreeId};

use super::walk::{Bounds, between};
use crate::cell::{Child, Node};
use crate::core::Core;
use crate::limits::{WEIGHT_MAX, WEIGHT_MIN};

/// Checks all trees that are open.
pub(super) fn walk(core: &Core, report: &mut CheckReport) {
    let _gate = core.gate.write();
    let mut ids: Vec<TreeId> = core.trees.read().keys().copied().collect();
    ids.sort_unstable();
    for id in ids {
        match core.tree(id) {
            Ok(tree) => {
                let root = tree.state.read();
                cell(report, id, &root.child, root.level, true, &Bounds::all());
            }
            Err(Error::NoTree(_)) => {}
            Err(error) => found(report, id, &error.to_string()),
        }
    }
}

fn found(report: &mut CheckReport, id: TreeId, what: &str) {
    let (file, kind) = ("memory".to_owned(), FindingKind::Structure);
    report.add(Finding::new(kind, file, 0, format!("tree {}: {what}", id.0)));
}

/// Returns whether a node below differs from its copy on disk. Recurses once a level.
fn cell(
    report: &mut CheckReport,
    id: TreeId,
    child: &Child,
    level: u8,
    root: bool,
    bounds: &Bounds,
) -> bool {
    let Some(node) = child.cell.get() else { return false };
    let clean = node.pointer().is_some();
    let mut changed_below = false;
    let (sorted, keys, weight) = match node {
        Node::Leaf(leaf) => {
            let state = leaf.latch.read();
            if level != 0 {
                found(report, id, &format!("a leaf on level {level}"));
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
                found(report, id, &format!("level {level} is wrong"));
                return !clean;
            }
            let entries = &interior.keys;
            let keys: Vec<_> = (0..entries.len()).map(|at| entries.key(at)).collect();
            for (at, child) in interior.children.iter().enumerate() {
                let bounds = between(&keys, at, bounds);
                changed_below |= cell(report, id, child, level - 1, false, &bounds);
            }
            (entries.is_sorted(), keys, interior.weight())
        }
    };
    if clean && changed_below {
        found(report, id, "a node is on disk, what is below is not");
    }
    if !sorted || keys.iter().any(|key| !bounds.contain(key)) {
        found(report, id, "a cell's keys are out of order");
    }
    if weight > WEIGHT_MAX {
        found(report, id, &format!("a cell weighs {weight}"));
    }
    if weight < WEIGHT_MIN && !root {
        report.underfull += 1;
    }
    !clean
}
