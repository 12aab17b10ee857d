//! The layers of the durable trees as a forest: the parent of a layer is the layer below it.
//!
//! Invariant: the layer below is the same one in all stacks that have the layer. A new layer is
//! added to the top of one stack, and a clone shares a whole stack. An exchange is made in all
//! stacks that have the exchanged layers. So two stacks that have a layer in common are the same
//! from there down.
//!
//! Adjacent layers that the same trees have are a *section*. Each layer in it except the newest has
//! exactly one layer above it, and no tree ends there. A change of some trees touches the sections
//! that these trees consist of and those that border on them, however many other trees there are.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::Map;
use store::TreeId;

use crate::layer::{Layer, LayerId, Stack};

/// What only some of the durable trees have.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Exclusive {
    /// How many of them end at a layer at which no other tree ends.
    pub(crate) trees: u64,
    /// The layers that no other tree has.
    pub(crate) layers: Vec<LayerId>,
}

/// The forest.
#[derive(Default)]
pub(crate) struct Forest {
    nodes: Map<LayerId, Node>,
    /// For each layer, the layer below and the layers above.
    above: BTreeSet<(LayerId, LayerId)>,
    /// The trees that end at a layer, their newest.
    tops: BTreeSet<(LayerId, TreeId)>,
}

struct Node {
    layer: Arc<Layer>,
    below: Option<LayerId>,
}

/// What a change of a forest touched.
#[derive(Default)]
pub(crate) struct Touched {
    /// Layers that were added.
    pub(crate) came: Vec<Arc<Layer>>,
    /// Layers that were removed. One may have been added again after that.
    pub(crate) gone: Vec<Arc<Layer>>,
    /// The feet of all sections that differ before and after, including feet that no longer exist.
    /// Also the tops of all stacks that were added or removed.
    pub(crate) ids: BTreeSet<LayerId>,
}

impl Forest {
    /// An existing layer.
    pub(crate) fn layer(&self, id: LayerId) -> Option<&Arc<Layer>> {
        self.nodes.get(&id).map(|node| &node.layer)
    }

    /// Whether nothing is below a layer.
    pub(crate) fn is_lowest(&self, id: LayerId) -> bool {
        self.nodes.get(&id).is_none_or(|node| node.below.is_none())
    }

    /// Whether it is the newest of some tree.
    pub(crate) fn is_top(&self, id: LayerId) -> bool {
        self.tops.range((id, TreeId(0))..=(id, TreeId(u64::MAX))).next().is_some()
    }

    /// The layer above another, if there is exactly one.
    fn one_above(&self, id: LayerId) -> Option<LayerId> {
        let mut above = self.above.range((id, 0)..=(id, LayerId::MAX));
        let (one, more) = (above.next(), above.next());
        one.filter(|_| more.is_none()).map(|&(_, above)| above)
    }

    /// The next newer layer of the same section.
    fn next(&self, id: LayerId) -> Option<LayerId> {
        self.one_above(id).filter(|_| !self.is_top(id))
    }

    /// The oldest layer of a layer's section, if the layer exists.
    pub(crate) fn foot(&self, id: LayerId) -> Option<LayerId> {
        let mut foot = id;
        let mut node = self.nodes.get(&id)?;
        while let Some(below) = node.below
            && self.next(below) == Some(foot)
        {
            foot = below;
            node = self.nodes.get(&below)?;
        }
        Some(foot)
    }

    /// The layers of a section, newest first, by its oldest.
    pub(crate) fn section(&self, foot: LayerId) -> Vec<&Arc<Layer>> {
        let mut at = Some(foot);
        let mut layers = Vec::new();
        while let Some(id) = at {
            layers.extend(self.layer(id));
            at = self.next(id);
        }
        layers.reverse();
        layers
    }

    /// The layers from one down, newest first: the stack of a tree that ends there.
    pub(crate) fn stack(&self, top: LayerId) -> Vec<&Arc<Layer>> {
        let mut at = self.nodes.get(&top);
        let mut layers = Vec::new();
        while let Some(node) = at {
            layers.push(&node.layer);
            at = node.below.and_then(|below| self.nodes.get(&below));
        }
        layers
    }

    /// The trees that have a layer.
    pub(crate) fn trees_with(&self, id: LayerId, found: &mut BTreeSet<TreeId>) {
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            let tops = self.tops.range((id, TreeId(0))..=(id, TreeId(u64::MAX)));
            found.extend(tops.map(|&(_, tree)| tree));
            let above = self.above.range((id, 0)..=(id, LayerId::MAX));
            next.extend(above.map(|&(_, above)| above));
        }
    }

    /// What only these trees have, which end at these layers. Costs in proportion to these trees,
    /// to their own layers, and to what is above the first layer below those.
    pub(crate) fn exclusive(&self, trees: &BTreeMap<TreeId, LayerId>) -> Exclusive {
        let mut ends: BTreeMap<LayerId, usize> = BTreeMap::new();
        for top in trees.values() {
            *ends.entry(*top).or_default() += 1;
        }
        let all = |top: LayerId| (top, TreeId(0))..=(top, TreeId(u64::MAX));
        ends.retain(|top, count| self.tops.range(all(*top)).nth(*count).is_none());
        let above = |id: LayerId| self.above.range((id, 0)..=(id, LayerId::MAX));
        let mut next: Vec<LayerId> =
            ends.keys().copied().filter(|top| above(*top).next().is_none()).collect();
        let mut left: Map<LayerId, usize> = Map::default();
        let mut layers = Vec::new();
        while let Some(id) = next.pop() {
            layers.push(id);
            let Some(below) = self.nodes.get(&id).and_then(|node| node.below) else { continue };
            let left = left.entry(below).or_insert_with(|| above(below).count());
            *left -= 1;
            if *left == 0 && (ends.contains_key(&below) || !self.is_top(below)) {
                next.push(below);
            }
        }
        Exclusive { trees: ends.values().map(|count| *count as u64).sum(), layers }
    }

    /// Gives a tree a stack. The old stacks of this tree and of all other changing trees must have
    /// been removed before. Until then some layer may have the wrong layer below it.
    pub(crate) fn put(&mut self, tree: TreeId, stack: &Stack, touched: &mut Touched) {
        let Some(top) = stack.layers.first() else { return };
        let is_there = |layer: &Arc<Layer>| self.nodes.contains_key(&layer.id);
        let new = stack.layers.iter().position(is_there).unwrap_or(stack.layers.len());
        debug_assert!(
            self.is_adjacent(&stack.layers[new..]),
            "a layer is above the same everywhere"
        );
        for at in (0..new).rev() {
            let layer = Arc::clone(&stack.layers[at]);
            let below = stack.layers.get(at + 1).map(|below| below.id);
            self.touch(below, touched);
            self.above.extend(below.map(|below| (below, layer.id)));
            self.touch(below, touched);
            touched.ids.insert(layer.id);
            touched.came.push(Arc::clone(&layer));
            self.nodes.insert(layer.id, Node { layer, below });
        }
        self.touch(Some(top.id), touched);
        self.tops.insert((top.id, tree));
        self.touch(Some(top.id), touched);
    }

    /// Whether these layers are adjacent in it, down to the bottom.
    fn is_adjacent(&self, layers: &[Arc<Layer>]) -> bool {
        let Some(top) = layers.first() else { return true };
        let found = self.stack(top.id);
        found.len() == layers.len()
            && found.iter().zip(layers).all(|(found, layer)| Arc::ptr_eq(found, layer))
    }

    /// Removes the stack of a tree.
    pub(crate) fn take(&mut self, tree: TreeId, stack: &Stack, touched: &mut Touched) {
        let Some(top) = stack.layers.first() else { return };
        self.touch(Some(top.id), touched);
        let had = self.tops.remove(&(top.id, tree));
        debug_assert!(had, "a tree ends where it was put");
        self.touch(Some(top.id), touched);
        let mut at = Some(top.id);
        while let Some(id) = at
            && !self.is_top(id)
            && self.above.range((id, 0)..=(id, LayerId::MAX)).next().is_none()
            && let Some(Node { layer, below }) = self.nodes.remove(&id)
        {
            touched.ids.insert(id);
            touched.gone.push(layer);
            self.touch(below, touched);
            if let Some(below) = below {
                self.above.remove(&(below, id));
            }
            self.touch(below, touched);
            at = below;
        }
    }

    /// Called before and after the set of layers above a layer changes, or whether a tree ends
    /// there. Marks its section, and the section of the one layer above.
    fn touch(&self, id: Option<LayerId>, touched: &mut Touched) {
        let Some(id) = id else { return };
        touched.ids.insert(id);
        touched.ids.extend(self.foot(id));
        touched.ids.extend(self.one_above(id));
    }
}
