//! Finds the directories of a subvolume that hold the most in their own names: sums are added to
//! each, and subtracted.
//!
//! For a cluster of a base, only its largest directories are added at first; those are in memory
//! (`ClusterSums::largest`). Any other held at most as much as the least of those. So the rest of a
//! cluster is read only if one of its directories may be in the answer.

use device::Map;
use format::cluster_groups::Sums;

use super::base::{Base, ClusterSums, LARGEST_KEPT, by_size};
use crate::aggregate::memory::directory_bytes;

/// Directories with the sums of what they hold.
#[derive(Default)]
pub(super) struct Holding {
    own: Map<u64, Own>,
    /// Clusters with only some directories added, and the maximum that each of the others held.
    partly: Map<u32, (u64, Sums)>,
}

/// What one directory holds.
#[derive(Default, Clone, Copy)]
struct Own {
    has: Sums,
    gone: Sums,
    /// All of its names in its cluster were added, and it is in no other cluster.
    listed: bool,
}

impl Own {
    fn left(self) -> Sums {
        let mut left = self.has;
        left.take(self.gone);
        left
    }

    /// The remainder after subtracting from a larger sum.
    fn left_with(mut self, more: Sums) -> Sums {
        self.has.add(more);
        self.left()
    }
}

/// Sorts directories by size, the smallest first, ignoring their numbers.
fn order(sums: Sums) -> (u128, u64) {
    (sums.bytes, sums.files)
}

impl Holding {
    /// How much memory it takes.
    pub(super) fn bytes(&self) -> usize {
        self.own.len() * directory_bytes::<Own>()
    }

    /// Adds to what a directory holds.
    pub(super) fn add(&mut self, directory: u64, sums: Sums) {
        self.own.entry(directory).or_default().has.add(sums);
    }

    /// Takes away what a directory held.
    pub(super) fn take(&mut self, directory: u64, sums: Sums) {
        self.own.entry(directory).or_default().gone.add(sums);
    }

    /// Adds the largest directories of a cluster; the others may have to be added later.
    pub(super) fn add_largest(&mut self, base: &Base, number: u32, sums: &ClusterSums) {
        for (ino, own) in &sums.largest {
            let known = self.own.entry(*ino).or_default();
            known.has.add(*own);
            known.listed = !base.table.is_divided(*ino);
        }
        // All parts of divided directories are also in the list, so this may exceed the least of
        // the largest. Another base may have determined which directories are divided.
        if let Some(least) = sums.largest.get(LARGEST_KEPT - 1) {
            self.partly.insert(number, *least);
        }
    }

    /// Adds the other directories of a cluster, after its largest ones.
    pub(super) fn add_others(&mut self, base: &Base, number: u32, own: &[(u64, Sums)]) {
        if self.partly.remove(&number).is_none() {
            return;
        }
        for (ino, sums) in own {
            if !is_listed(base, number, *ino) {
                self.add(*ino, *sums);
            }
        }
    }

    /// The clusters that may hold more of the `count` largest directories than was added.
    pub(super) fn unread(&self, base: &Base, count: usize) -> Vec<u32> {
        let leasts = self.partly.values().map(|(_, least)| *least);
        let Some(most) = leasts.max_by_key(|least| order(*least)) else { return Vec::new() };
        let listed = self.own.iter().filter(|(_, own)| own.listed && own.left().files > 0);
        let mut known: Vec<(u64, Sums)> = listed.map(|(ino, own)| (*ino, own.left())).collect();
        let first = last_of(&mut known, count);
        let mut others = Vec::new();
        self.own.iter().filter(|(_, own)| !own.listed).for_each(|(ino, own)| {
            let is_less = |(_, last): (u64, Sums)| order(own.left_with(most)) < order(last);
            if first.is_some_and(is_less) && !base.table.is_divided(*ino) {
                return;
            }
            match self.unread_of(base, *ino) {
                Some(clusters) => others.push((self.most_of(*own, &clusters), clusters)),
                None if own.left().files > 0 => known.push((*ino, own.left())),
                None => {}
            }
        });
        let mut unread: Vec<u32> = match last_of(&mut known, count) {
            // Each may have one.
            None => self.partly.keys().copied().collect(),
            Some((ino, last)) => {
                let is_larger = |(_, least): &(&u32, &(u64, Sums))| {
                    by_size(least.1, least.0) < by_size(last, ino)
                };
                let partly = self.partly.iter().filter(is_larger).map(|(number, _)| *number);
                others.retain(|(most, _)| order(*most) >= order(last));
                partly.chain(others.into_iter().flat_map(|(_, clusters)| clusters)).collect()
            }
        };
        unread.sort_unstable();
        unread.dedup();
        unread
    }

    /// Clusters with unadded sums of a directory; `None`: there are none.
    fn unread_of(&self, base: &Base, ino: u64) -> Option<Vec<u32>> {
        if self.partly.is_empty() {
            return None;
        }
        let unread =
            |number: &u32| self.partly.contains_key(number) && !is_listed(base, *number, ino);
        let mut clusters = base.table.clusters_of(ino).filter(unread);
        let first = clusters.next()?;
        Some(std::iter::once(first).chain(clusters).collect())
    }

    /// The maximum that a directory may hold, including its unadded sums in the given clusters.
    fn most_of(&self, own: Own, clusters: &[u32]) -> Sums {
        let mut more = Sums::default();
        for number in clusters {
            more.add(self.partly.get(number).map_or(Sums::default(), |(_, least)| *least));
        }
        own.left_with(more)
    }

    /// The `count` largest directories, once every candidate is added.
    pub(super) fn largest(self, count: usize) -> Vec<(u64, Sums)> {
        let left = self.own.into_iter().map(|(ino, own)| (ino, own.left()));
        let mut all: Vec<(u64, Sums)> = left.filter(|(_, own)| own.files > 0).collect();
        if all.len() > count {
            all.select_nth_unstable_by_key(count, |(ino, own)| by_size(*own, *ino));
            all.truncate(count);
        }
        all.sort_unstable_by_key(|(ino, own)| by_size(*own, *ino));
        all
    }
}

/// The smallest of the `count` largest; `None`: there are fewer.
fn last_of(known: &mut [(u64, Sums)], count: usize) -> Option<(u64, Sums)> {
    let at = count.checked_sub(1).filter(|at| *at < known.len())?;
    let (_, last, _) = known.select_nth_unstable_by_key(at, |(ino, own)| by_size(*own, *ino));
    Some(*last)
}

/// Whether a directory is in the list of a cluster's largest.
fn is_listed(base: &Base, number: u32, ino: u64) -> bool {
    let sums = base.clusters[number as usize].sums.as_ref();
    sums.is_some_and(|sums| sums.largest.iter().any(|(listed, _)| *listed == ino))
}
