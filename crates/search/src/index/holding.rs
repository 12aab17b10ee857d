//! Which directories of a subvolume hold the most by themselves: what was added to each, and taken
//! away.
//!
//! Of a cluster of a base only its largest are added at first, which are in memory
//! (`ClusterSums::largest`). What the others held is at most what the least of those did, so that
//! the rest of a cluster is read only where one of it may be among the answer.

use device::Map;
use format::cluster_groups::Sums;

use super::base::{Base, ClusterSums, LARGEST_KEPT, by_size};

/// Directories by what they hold.
#[derive(Default)]
pub(super) struct Holding {
    own: Map<u64, Own>,
    /// Clusters of which not all directories are added, and what is the most that one of the
    /// others held.
    partly: Map<u32, (u64, Sums)>,
}

/// What one holds.
#[derive(Default, Clone, Copy)]
struct Own {
    has: Sums,
    gone: Sums,
    /// All that its cluster has of it was added, and it is in no other.
    listed: bool,
}

impl Own {
    fn left(self) -> Sums {
        let mut left = self.has;
        left.take(self.gone);
        left
    }

    /// What is left where it had more.
    fn left_with(mut self, more: Sums) -> Sums {
        self.has.add(more);
        self.left()
    }
}

/// The order of what directories hold, the least first, but for their numbers.
fn order(sums: Sums) -> (u128, u64) {
    (sums.bytes, sums.files)
}

impl Holding {
    /// Adds to what a directory holds.
    pub(super) fn add(&mut self, directory: u64, sums: Sums) {
        self.own.entry(directory).or_default().has.add(sums);
    }

    /// Takes away what a directory held.
    pub(super) fn take(&mut self, directory: u64, sums: Sums) {
        self.own.entry(directory).or_default().gone.add(sums);
    }

    /// Adds the largest of a cluster, of which the others may have to be added later.
    pub(super) fn add_largest(&mut self, base: &Base, number: u32, sums: &ClusterSums) {
        for (ino, own) in &sums.largest {
            let known = self.own.entry(*ino).or_default();
            known.has.add(*own);
            known.listed = !base.table.is_divided(*ino);
        }
        // All parts of divided ones are there besides, so that this may be more than the least of
        // those that are the largest; and which are divided another base may have said.
        if let Some(least) = sums.largest.get(LARGEST_KEPT - 1) {
            self.partly.insert(number, *least);
        }
    }

    /// Adds what directories of a cluster hold of which only the largest were added.
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

    /// The clusters that may have more of so many of the largest directories than were added.
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

    /// Clusters that have something of a directory that was not added; `None`: there are none.
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

    /// The most that a directory may hold with what some clusters have of it.
    fn most_of(&self, own: Own, clusters: &[u32]) -> Sums {
        let mut more = Sums::default();
        for number in clusters {
            more.add(self.partly.get(number).map_or(Sums::default(), |(_, least)| *least));
        }
        own.left_with(more)
    }

    /// So many of those that hold the most, when all that may be among them was added.
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

/// The last of so many of the largest; `None`: there are not so many.
fn last_of(known: &mut [(u64, Sums)], count: usize) -> Option<(u64, Sums)> {
    let at = count.checked_sub(1).filter(|at| *at < known.len())?;
    let (_, last, _) = known.select_nth_unstable_by_key(at, |(ino, own)| by_size(*own, *ino));
    Some(*last)
}

/// Whether a directory is among the largest that are known of a cluster.
fn is_listed(base: &Base, number: u32, ino: u64) -> bool {
    let sums = base.clusters[number as usize].sums.as_ref();
    sums.is_some_and(|sums| sums.largest.iter().any(|(listed, _)| *listed == ino))
}
