//! The order of an increment: from the changes between two states of a directory, the steps that
//! lead from the one to the other.
//!
//! 1. From the deepest path of the old state upwards, names go that are not in the new state. What
//!    has another name in the new state is parked: kept under a number. So a directory is
//!    empty before it is removed, and no step uses a path that an earlier one has changed.
//! 2. From the top of the new state downwards, names are made: of what was parked, and of what is
//!    new. So each is made in a directory that is there.
//! 3. Contents, then attributes, by paths of the new state.

use std::collections::{BTreeMap, BTreeSet};

use device::Map;
use fs::{ChangeKind, Difference, Field};
use inode::{Kind, NodeId};

use crate::moved::translate;
use crate::separated::Again;

/// A step on a name of the old state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Leave {
    /// The name goes.
    Remove { is_directory: bool },
    /// The inode is parked under a number.
    Park { number: u64, keeps_name: bool },
}

/// A step on a name of the new state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Arrive {
    /// A new inode, or a further name of one.
    New,
    /// One that was parked.
    Place { number: u64, keeps_parked: bool },
}

/// What becomes of an inode that is in both states.
#[derive(Debug, Default)]
struct Group {
    /// A name in the old state.
    old: Option<Vec<u8>>,
    /// A name in the new state.
    new: Option<Vec<u8>>,
    /// Its node in the old state, which a search needs where no name is known.
    old_node: Option<NodeId>,
    /// Its node in the new state, likewise.
    new_node: Option<NodeId>,
    /// Names that are to be made.
    arrives: Vec<Vec<u8>>,
    /// Names that go, of which the inode has others in the new state.
    leaves: Vec<Vec<u8>>,
    has_contents: bool,
}

/// An inode of which no change has a name in one of the states.
pub(crate) enum Unnamed {
    /// It gets names, and has others in the old state.
    Old(NodeId),
    /// It loses names, and has others in the new state.
    New(NodeId),
}

/// The steps of an increment.
#[derive(Default)]
pub(crate) struct Plan {
    /// By path of the old state: to be done from the last one.
    pub(crate) leaves: BTreeMap<Vec<u8>, Leave>,
    /// By path of the new state.
    pub(crate) arrives: BTreeMap<Vec<u8>, Arrive>,
    /// Files whose contents differ: path in the new and in the old state.
    pub(crate) contents: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Paths of the new state whose attributes are sent.
    pub(crate) attributes: BTreeSet<Vec<u8>>,
    bytes: u64,
}

impl Plan {
    /// About how many bytes and inodes the increment has.
    pub(crate) fn expected(&self) -> (u64, u64) {
        let names = self.leaves.len().max(self.arrives.len()).max(self.attributes.len());
        (self.bytes, names as u64)
    }
}

/// Directories of the old state that have another path in the new one, or none.
pub(crate) type Moved = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Changes, gathered by inode.
#[derive(Default)]
pub(crate) struct Gathered {
    groups: Vec<Group>,
    /// Groups by the node in the old state, and in the new one.
    known: [Map<NodeId, usize>; 2],
    /// Directories that have another path in the new state, or none.
    moved: Moved,
    /// Names of what is in the old state alone.
    gone: Vec<(Vec<u8>, bool)>,
    /// Names of what is in the new state alone.
    fresh: Vec<Vec<u8>>,
    bytes: u64,
}

const OLD: usize = 0;
const NEW: usize = 1;

impl Gathered {
    /// Lengths of files, most of which may be holes: their sum may have no number.
    fn add_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Adds a change.
    pub(crate) fn add(&mut self, change: &Difference) {
        let kind = [&change.new, &change.old].into_iter().flatten().map(|(_, attr)| attr.kind);
        let is_directory = kind.into_iter().any(|kind| kind == Kind::Directory);
        match (&change.old, &change.new) {
            (Some((path, _)), None) if !change.is_link => {
                if is_directory {
                    self.moved.insert(path.clone(), None);
                }
                self.gone.push((path.clone(), is_directory));
            }
            (None, Some((path, attr))) if !change.is_link => {
                self.add_bytes(if attr.kind == Kind::File { attr.size } else { 0 });
                self.fresh.push(path.clone());
            }
            (Some((path, attr)), None) => {
                let group = self.group([Some(attr.node), None]);
                group.leaves.push(path.clone());
            }
            (None, Some((path, attr))) => {
                let group = self.group([None, Some(attr.node)]);
                group.arrives.push(path.clone());
            }
            (Some((old, from)), Some((new, to))) => {
                if change.kind == ChangeKind::Renamed && is_directory {
                    self.moved.insert(old.clone(), Some(new.clone()));
                }
                let has_contents =
                    to.kind == Kind::File && change.fields.iter().any(is_of_contents);
                self.add_bytes(if has_contents { to.size } else { 0 });
                let group = self.group([Some(from.node), Some(to.node)]);
                group.has_contents |= has_contents;
                if change.kind == ChangeKind::Renamed {
                    group.leaves.push(old.clone());
                    group.arrives.push(new.clone());
                }
                // The name that stays, if one does.
                if change.kind == ChangeKind::Modified || group.old.is_none() {
                    group.old = Some(old.clone());
                    group.new = Some(new.clone());
                }
            }
            (None, None) => {}
        }
    }

    /// The group of an inode, by its node in one state or in both.
    fn group(&mut self, nodes: [Option<NodeId>; 2]) -> &mut Group {
        let mut found: Option<usize> = None;
        for (known, node) in self.known.iter().zip(nodes) {
            if let Some(node) = node
                && let Some(&at) = known.get(&node)
            {
                match found {
                    // It was met under each of its nodes before it was known that they are one.
                    Some(other) if other != at => {
                        let group = std::mem::take(&mut self.groups[at]);
                        self.groups[other].merge(group);
                    }
                    _ => found = Some(at),
                }
            }
        }
        let at = found.unwrap_or_else(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        });
        for (known, node) in self.known.iter_mut().zip(nodes) {
            if let Some(node) = node {
                known.insert(node, at);
            }
        }
        let group = &mut self.groups[at];
        group.old_node = group.old_node.or(nodes[OLD]);
        group.new_node = group.new_node.or(nodes[NEW]);
        group
    }

    /// Has files sent again by all of their names, in the old state and in the new one, whatever
    /// their changes are.
    pub(crate) fn send_again(&mut self, [old, new]: Again) {
        for (known, named) in self.known.iter().zip([&old, &new]) {
            for at in named.iter().filter_map(|(node, _)| known.get(node)) {
                self.groups[*at] = Group::default();
            }
        }
        self.gone.extend(old.into_iter().map(|(_, path)| (path, false)));
        self.fresh.extend(new.into_iter().map(|(_, path)| path));
    }

    /// Makes the plan. `find` looks for a path of an inode that no change names.
    pub(crate) fn plan<E>(
        self,
        mut find: impl FnMut(Unnamed, &Moved) -> Result<Option<Vec<u8>>, E>,
    ) -> Result<Plan, E> {
        let mut plan = Plan { bytes: self.bytes, ..Plan::default() };
        let mut numbers = 0;
        for mut group in self.groups {
            if group.old.is_none()
                && group.leaves.is_empty()
                && let Some(node) = group.new_node
            {
                group.old = find(Unnamed::Old(node), &self.moved)?;
            }
            if group.new.is_none()
                && group.arrives.is_empty()
                && let Some(node) = group.old_node
            {
                group.new = find(Unnamed::New(node), &self.moved)?;
            }
            group.plan(&mut plan, &mut numbers);
        }
        for (path, is_directory) in self.gone {
            plan.leaves.insert(path, Leave::Remove { is_directory });
        }
        for path in self.fresh {
            plan.attributes.insert(path.clone());
            plan.arrives.insert(path, Arrive::New);
        }
        let mut touched: Vec<Vec<u8>> =
            plan.arrives.keys().map(|path| crate::walk::split(path).0.to_vec()).collect();
        for path in plan.leaves.keys() {
            touched.extend(translate(&self.moved, crate::walk::split(path).0));
        }
        plan.attributes.extend(touched);
        plan.attributes.insert(Vec::new());
        Ok(plan)
    }
}

fn is_of_contents(field: Field) -> bool {
    matches!(field, Field::Contents | Field::Size)
}

impl Group {
    fn merge(&mut self, other: Group) {
        self.old = self.old.take().or(other.old);
        self.new = self.new.take().or(other.new);
        self.old_node = self.old_node.or(other.old_node);
        self.new_node = self.new_node.or(other.new_node);
        self.arrives.extend(other.arrives);
        self.leaves.extend(other.leaves);
        self.has_contents |= other.has_contents;
    }

    fn plan(mut self, plan: &mut Plan, numbers: &mut u64) {
        self.arrives.sort();
        self.leaves.sort();
        let mut leaves = self.leaves.into_iter();
        if !self.arrives.is_empty() {
            *numbers += 1;
            let number = *numbers;
            // One of the names that go, or else one that stays.
            let gone = leaves.next();
            let keeps_name = gone.is_none();
            if let Some(path) = gone.or_else(|| self.old.clone()) {
                plan.leaves.insert(path, Leave::Park { number, keeps_name });
            }
            let last = self.arrives.len() - 1;
            for (at, path) in self.arrives.iter().enumerate() {
                let place = Arrive::Place { number, keeps_parked: at < last };
                plan.arrives.insert(path.clone(), place);
            }
        }
        for path in leaves {
            plan.leaves.insert(path, Leave::Remove { is_directory: false });
        }
        let new = self.arrives.first().cloned().or(self.new);
        if let Some(new) = new {
            if self.has_contents
                && let Some(old) = self.old
            {
                plan.contents.insert(new.clone(), old);
            }
            plan.attributes.insert(new);
        }
    }
}
