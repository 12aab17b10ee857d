//! Directories down to some depth with the sums of their own names, and the totals computed from
//! those. The contents of deeper directories count with their ancestor at that depth.

use std::collections::BTreeMap;

use device::Map;

use format::cluster_groups::Sums;
use inode::Caller;

use super::{DirectoryTotals, Totals};
use crate::Error;

/// Most memory for the directories of a caller who is not root. Several callers may ask at a time.
const MEMORY: usize = 256 << 20;
/// What an entry of the map takes, when the map is a little more than half full.
const ENTRY_BYTES: usize = 2 * size_of::<(DirectoryId, u32)>();
/// What a directory takes, without its name, which counts twice. It is a node and, at the end, also
/// in the answer, in lists of the order, and in the list of its parent.
const NODE_BYTES: usize = size_of::<Node>() + size_of::<Directory>() + size_of::<Totals>() + 128;

/// How much of the end of a long path is built.
const END_BYTES: usize = 256;

use crate::path::push_name;

/// A directory: its subvolume and inode.
pub(crate) type DirectoryId = (u64, u64);

/// Directories below a start, as a tree.
#[derive(Default)]
pub(crate) struct Tree {
    at: Map<DirectoryId, u32>,
    deepest: u32,
    nodes: Vec<Node>,
    /// How much memory is left.
    left: usize,
}

struct Node {
    parent: u32,
    depth: u32,
    name: Vec<u8>,
    own: Totals,
}

impl Tree {
    /// A tree with its start, whose name is its path, and the maximum depth below it.
    pub(crate) fn new(caller: &Caller, start: DirectoryId, path: &[u8], deepest: u32) -> Tree {
        let memory = if caller.is_root() { usize::MAX } else { MEMORY };
        Tree::within(memory, start, path, deepest)
    }

    fn within(left: usize, start: DirectoryId, path: &[u8], deepest: u32) -> Tree {
        let mut tree = Tree { deepest, left, ..Tree::default() };
        let depth = 0;
        tree.nodes.push(Node { parent: 0, depth, name: path.to_vec(), own: Totals::default() });
        tree.at.insert(start, 0);
        tree
    }

    /// Whether a directory is known.
    pub(crate) fn has(&self, place: DirectoryId) -> bool {
        self.at.contains_key(&place)
    }

    /// Adds a directory below one that is known.
    pub(crate) fn add(
        &mut self,
        place: DirectoryId,
        parent: DirectoryId,
        name: &[u8],
    ) -> Result<(), Error> {
        // If a directory has two names, which is damage, the first counts.
        let (Some(&above), false) = (self.at.get(&parent), self.has(place)) else { return Ok(()) };
        let depth = self.nodes[above as usize].depth + 1;
        let is_node = depth <= self.deepest;
        let bytes = ENTRY_BYTES + if is_node { NODE_BYTES + 2 * name.len() } else { 0 };
        self.left = self.left.checked_sub(bytes).ok_or(Error::Limit(
            "a list of so many directories takes more than the 256 MiB that one user gets; \
             begin at directories further down, or use 'pando du -s'",
        ))?;
        if !is_node {
            self.at.insert(place, above);
            return Ok(());
        }
        let number = self.nodes.len() as u32;
        self.at.insert(place, number);
        let (name, own) = (name.to_vec(), Totals::default());
        self.nodes.push(Node { parent: above, depth, name, own });
        Ok(())
    }

    /// The totals of a known directory's own names, for adding to them.
    pub(crate) fn own_totals(&mut self, place: DirectoryId) -> Option<&mut Totals> {
        let number = *self.at.get(&place)?;
        self.nodes.get_mut(number as usize).map(|node| &mut node.own)
    }

    /// The sums of the own names of each directory that has any, in any order.
    pub(crate) fn holding(&self) -> Vec<(DirectoryId, Sums)> {
        let own = |(place, at): (&DirectoryId, &u32)| (*place, self.nodes[*at as usize].own.sums);
        self.at.iter().map(own).filter(|(_, own)| own.files > 0).collect()
    }

    /// The path of a directory, and its depth.
    pub(crate) fn path(&self, place: DirectoryId) -> (Vec<u8>, u32) {
        let mut names = Vec::new();
        let mut at = self.at.get(&place).copied().unwrap_or_default();
        let depth = self.nodes[at as usize].depth;
        while at != 0 {
            names.push(&self.nodes[at as usize].name);
            at = self.nodes[at as usize].parent;
        }
        let mut path = self.nodes[0].name.clone();
        names.into_iter().rev().for_each(|name| push_name(&mut path, name));
        (path, depth)
    }

    /// All directories with their totals: sub-directories before their parent, in the order of
    /// names.
    pub(crate) fn finish(self) -> Directories {
        let mut totals: Vec<Totals> = self.nodes.iter().map(|node| node.own).collect();
        let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        // A directory is added after its parent, so a pass from the end finishes children first.
        for number in (1..self.nodes.len()).rev() {
            let parent = self.nodes[number].parent;
            let below = totals[number];
            totals[parent as usize].add(&below);
            children.entry(parent).or_default().push(number as u32);
        }
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut places = vec![0; self.nodes.len()];
        // The greatest name first: the last of a list is taken first.
        let mut left: Vec<(u32, bool)> = vec![(0, false)];
        while let Some((number, done)) = left.pop() {
            if done {
                places[number as usize] = order.len() as u32;
                order.push(number);
                continue;
            }
            left.push((number, true));
            let mut below = children.remove(&number).unwrap_or_default();
            let name = |number: &u32| &self.nodes[*number as usize].name;
            below.sort_unstable_by(|one, other| name(other).cmp(name(one)));
            left.extend(below.into_iter().map(|number| (number, false)));
        }
        let lengths = self.path_lengths();
        let finished = |number: u32| {
            let Node { parent, depth, ref name, .. } = self.nodes[number as usize];
            let (above, totals) = (places[parent as usize], totals[number as usize]);
            let path_bytes = lengths[number as usize];
            Directory { above, depth, name: name[..].into(), path_bytes, totals }
        };
        Directories(order.into_iter().map(finished).collect())
    }

    /// How long the path of each directory is, with a separator before each name.
    fn path_lengths(&self) -> Vec<u64> {
        let mut lengths: Vec<u64> = Vec::with_capacity(self.nodes.len());
        for (number, node) in self.nodes.iter().enumerate() {
            // A directory is added after its parent.
            let above = if number == 0 { 0 } else { lengths[node.parent as usize] + 1 };
            lengths.push(above + node.name.len() as u64);
        }
        lengths
    }
}

/// Directories with their totals, sub-directories before their parent. Paths are built on request:
/// for a deep chain, all at once would take the square of the depth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Directories(Vec<Directory>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Directory {
    /// The index of its parent; the start has its own.
    above: u32,
    depth: u32,
    name: Box<[u8]>,
    /// How long its path is.
    path_bytes: u64,
    totals: Totals,
}

impl Directories {
    /// Passes all directories, one by one, until `take` fails. Of a path of more than
    /// `path_bytes_max` the end is passed, with the length of the whole.
    pub fn each<E>(
        &self,
        path_bytes_max: usize,
        take: &mut dyn FnMut(&DirectoryTotals) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut chain = Vec::new();
        let (depth, totals) = (0, Totals::default());
        let mut each = DirectoryTotals { path: Vec::new(), path_bytes: 0, depth, totals };
        for mut directory in &self.0 {
            (each.depth, each.totals) = (directory.depth, directory.totals);
            each.path.clear();
            each.path_bytes = directory.path_bytes as usize;
            let (mut bytes, is_long) = (0, each.path_bytes > path_bytes_max);
            while directory.depth > 0 && !(is_long && bytes > END_BYTES) {
                bytes += directory.name.len() + 1;
                chain.push(&directory.name);
                directory = &self.0[directory.above as usize];
            }
            if !is_long {
                each.path.extend_from_slice(&directory.name);
            }
            while let Some(name) = chain.pop() {
                push_name(&mut each.path, name);
            }
            take(&each)?;
        }
        Ok(())
    }

    /// Clears the totals.
    pub fn clear_totals(&mut self) {
        self.0.iter_mut().for_each(|directory| directory.totals = Totals::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain of paths took the square of its depth: 50 GB were copied for 20,000 directories.
    #[test]
    fn of_long_paths_only_the_end_is_built() {
        let mut tree = Tree::within(usize::MAX, (1, 1), b".", u32::MAX);
        let name = |number: u64| format!("{number:0>99}").into_bytes();
        for number in 2..202 {
            tree.add((1, number), (1, number - 1), &name(number)).unwrap();
        }
        let (mut seen, directories) = (Vec::new(), tree.finish());
        let passed = directories.each(1001, &mut |one| {
            seen.push((one.depth as usize, one.path_bytes, one.path.clone()));
            Ok::<(), ()>(())
        });
        passed.unwrap();
        assert_eq!(seen.len(), 201);
        for (depth, bytes, path) in seen {
            assert_eq!(bytes, 1 + 100 * depth);
            if depth <= 10 {
                assert_eq!((path.len(), &path[..1]), (bytes, &b"."[..]));
            } else {
                assert!(path.ends_with(&name(depth as u64 + 1)) && path.len() < 500, "{depth}");
            }
        }
    }

    /// Ten million directories took more than a gigabyte of the daemon, for each of eight callers.
    #[test]
    fn directories_take_no_more_memory_than_they_may() {
        const LEFT: usize = 1 << 20;
        for deepest in [1, u32::MAX] {
            let mut tree = Tree::within(LEFT, (1, 1), b".", deepest);
            let mut last = 1;
            let refused = loop {
                match tree.add((1, last + 1), (1, last), b"a name") {
                    Ok(()) => last += 1,
                    Err(error) => break error,
                }
            };
            assert!(matches!(refused, Error::Limit(what) if what.contains("'pando du -s'")));
            let nodes = tree.nodes.len();
            let bytes = tree.at.capacity() * size_of::<(DirectoryId, u32)>()
                + tree.nodes.capacity() * size_of::<Node>()
                + nodes * (size_of::<Directory>() + size_of::<Totals>() + 2 * b"a name".len());
            assert!(bytes < 2 * LEFT, "{bytes} bytes of {last} directories, {nodes} of them nodes");
            assert!(last > 1000 && tree.finish().0.len() == nodes);
        }
    }
}
