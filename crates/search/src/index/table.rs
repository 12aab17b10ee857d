//! The directories of a base, in memory: which cluster has a directory's names, its parent, its
//! name and its permissions. About 36 bytes a directory, plus its name.

use std::collections::BTreeMap;

use device::Map;
use format::cluster_directories::ClusterDirectory;

use super::partition::Unit;

/// The fields of a directory that scope, paths and permissions use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Facts<'a> {
    /// The directory it is in.
    pub(crate) parent: u64,
    /// Its name.
    pub(crate) name: &'a [u8],
    /// Permission bits.
    pub(crate) mode: u32,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
}

/// The directories of a base, by inode.
#[derive(Default)]
pub(crate) struct Table {
    inos: Vec<u64>,
    parents: Vec<u64>,
    /// Positions of the parents in these lists; `NOWHERE`: not in them.
    above: Vec<u32>,
    owners: Vec<u32>,
    names_at: Vec<u32>,
    clusters: Vec<u32>,
    /// Names, each after its length.
    names: Vec<u8>,
    /// Mode, owner and group; `owners` points here.
    permissions: Vec<(u32, u32, u32)>,
    /// Later parts of divided directories: first cookies, clusters.
    parts: BTreeMap<u64, Vec<(u64, u32)>>,
}

/// A directory that is not in the table.
pub(crate) const NOWHERE: u32 = u32::MAX;

/// Makes a table.
#[derive(Default)]
pub(crate) struct TableBuilder {
    table: Table,
    known: Map<(u32, u32, u32), u32>,
    names: Map<Box<[u8]>, u32>,
}

/// Maximum names that are deduplicated.
const NAMES_SHARED_MAX: usize = 1 << 16;

impl TableBuilder {
    /// Adds a directory of a cluster.
    pub(crate) fn push(&mut self, directory: &ClusterDirectory, cluster: u32) {
        let table = &mut self.table;
        if directory.from > 0 {
            table.parts.entry(directory.ino).or_default().push((directory.from, cluster));
            return;
        }
        let permissions = (directory.mode, directory.uid, directory.gid);
        let owner = *self.known.entry(permissions).or_insert_with(|| {
            table.permissions.push(permissions);
            table.permissions.len() as u32 - 1
        });
        let name_at = self.names.get(&directory.name[..]).copied().unwrap_or_else(|| {
            let at = table.names.len() as u32;
            table.names.push(directory.name.len() as u8);
            table.names.extend_from_slice(&directory.name);
            if self.names.len() < NAMES_SHARED_MAX {
                self.names.insert(directory.name.clone().into(), at);
            }
            at
        });
        table.inos.push(directory.ino);
        table.parents.push(directory.parent);
        table.owners.push(owner);
        table.names_at.push(name_at);
        table.clusters.push(cluster);
    }

    /// The table.
    pub(crate) fn finish(mut self) -> Table {
        let table = &mut self.table;
        let mut order: Vec<u32> = (0..table.inos.len() as u32).collect();
        order.sort_unstable_by_key(|at| table.inos[*at as usize]);
        fn sorted<T: Copy>(order: &[u32], list: &[T]) -> Vec<T> {
            order.iter().map(|at| list[*at as usize]).collect()
        }
        table.inos = sorted(&order, &table.inos);
        table.parents = sorted(&order, &table.parents);
        table.owners = sorted(&order, &table.owners);
        table.names_at = sorted(&order, &table.names_at);
        table.clusters = sorted(&order, &table.clusters);
        table.above = table
            .parents
            .iter()
            .map(|parent| table.inos.binary_search(parent).map_or(NOWHERE, |at| at as u32))
            .collect();
        table.names.shrink_to_fit();
        for parts in table.parts.values_mut() {
            parts.sort_unstable();
        }
        self.table
    }
}

impl Table {
    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let parts: usize = self.parts.values().map(|parts| 64 + parts.capacity() * 16).sum();
        self.inos.capacity() * 32 + self.names.capacity() + self.permissions.capacity() * 12 + parts
    }

    fn find(&self, ino: u64) -> Option<usize> {
        self.inos.binary_search(&ino).ok()
    }

    /// What is known of a directory.
    pub(crate) fn facts(&self, ino: u64) -> Option<Facts<'_>> {
        self.find(ino).map(|at| self.facts_at(at))
    }

    fn facts_at(&self, at: usize) -> Facts<'_> {
        let start = self.names_at[at] as usize;
        let length = usize::from(self.names[start]);
        let (mode, uid, gid) = self.permissions[self.owners[at] as usize];
        let name = &self.names[start + 1..start + 1 + length];
        Facts { parent: self.parents[at], name, mode, uid, gid }
    }

    /// Passes the directories whose permissions deny the requested access.
    pub(crate) fn each_closed(
        &self,
        allows: &dyn Fn(u32, u32, u32) -> bool,
        take: &mut dyn FnMut(u64),
    ) {
        let closed: Vec<bool> =
            self.permissions.iter().map(|(mode, uid, gid)| !allows(*mode, *uid, *gid)).collect();
        if closed.contains(&true) {
            for (ino, owner) in self.inos.iter().zip(&self.owners) {
                if closed[*owner as usize] {
                    take(*ino);
                }
            }
        }
    }

    /// Whether a directory is in it.
    pub(crate) fn contains(&self, ino: u64) -> bool {
        self.find(ino).is_some()
    }

    /// The cluster that has the name at a cookie of a directory, or would have it.
    pub(crate) fn cluster_of(&self, ino: u64, cookie: u64) -> Option<u32> {
        let first = self.clusters[self.find(ino)?];
        let Some(parts) = self.parts.get(&ino) else { return Some(first) };
        let after = parts.partition_point(|(from, _)| *from <= cookie);
        Some(after.checked_sub(1).map_or(first, |at| parts[at].1))
    }

    /// The contents of some clusters: directories, and parts of directories.
    pub(crate) fn units_where(&self, wanted: &dyn Fn(u32) -> bool) -> Vec<Unit> {
        let mut units = Vec::new();
        for (at, &ino) in self.inos.iter().enumerate() {
            let parent = self.parents[at];
            let parts = self.parts.get(&ino).map_or(&[][..], |parts| &parts[..]);
            if parts.is_empty() {
                if wanted(self.clusters[at]) {
                    units.push(Unit { ino, parent, from: 0, to: u64::MAX, rows: 0 });
                }
                continue;
            }
            let starts = std::iter::once((0, self.clusters[at])).chain(parts.iter().copied());
            let ends = parts.iter().map(|(from, _)| *from).chain([u64::MAX]);
            for ((from, owner), to) in starts.zip(ends) {
                if wanted(owner) {
                    units.push(Unit { ino, parent, from, to, rows: 0 });
                }
            }
        }
        units
    }

    /// For each of so many clusters, the number of its directories and parts of directories.
    pub(crate) fn directories_of_clusters(&self, clusters: usize) -> Vec<u32> {
        let mut counts = vec![0; clusters];
        let parts = self.parts.values().flatten().map(|(_, cluster)| cluster);
        for cluster in self.clusters.iter().chain(parts) {
            if let Some(count) = counts.get_mut(*cluster as usize) {
                *count += 1;
            }
        }
        counts
    }

    /// How many directories there are.
    pub(crate) fn len(&self) -> usize {
        self.inos.len()
    }

    /// The number of directories up to an inode number.
    pub(crate) fn behind(&self, ino: u64) -> usize {
        self.inos.partition_point(|other| *other <= ino)
    }

    /// The position of a directory among all.
    pub(crate) fn position(&self, ino: u64) -> Option<usize> {
        self.find(ino)
    }

    /// A directory by its position, the position of its parent, and the index of its own
    /// [`Table::permissions`].
    pub(crate) fn at(&self, at: usize) -> (u64, u32, usize) {
        (self.inos[at], self.above[at], self.owners[at] as usize)
    }

    /// Whether the table has a directory but not its parent.
    pub(crate) fn is_top(&self, ino: u64) -> bool {
        self.find(ino).is_some_and(|at| [NOWHERE, at as u32].contains(&self.above[at]))
    }

    /// The distinct triples of mode, owner and group.
    pub(crate) fn permissions(&self) -> &[(u32, u32, u32)] {
        &self.permissions
    }

    /// Whether several clusters have names of a directory.
    pub(crate) fn is_divided(&self, ino: u64) -> bool {
        self.parts.contains_key(&ino)
    }

    /// The directories whose names are in several clusters.
    pub(crate) fn divided(&self) -> impl Iterator<Item = u64> {
        self.parts.keys().copied()
    }

    /// Passes every directory, by its position, with the clusters that have its names.
    pub(crate) fn each(&self, take: &mut dyn FnMut(usize, u32)) {
        for (at, cluster) in self.clusters.iter().enumerate() {
            take(at, *cluster);
        }
        for (ino, parts) in &self.parts {
            let Some(at) = self.find(*ino) else { continue };
            for (_, cluster) in parts {
                take(at, *cluster);
            }
        }
    }

    /// Passes every directory, and every later part of a divided one, with the cluster that has its
    /// names; their totals are not known here.
    pub(crate) fn each_part(&self, take: &mut dyn FnMut(&ClusterDirectory, u32)) {
        let mut directory = ClusterDirectory {
            ino: 0,
            from: 0,
            parent: 0,
            parent_cookie: 0,
            mode: 0,
            uid: 0,
            gid: 0,
            name: Vec::new(),
            files: 0,
            subdirectories: 0,
            bytes: 0,
            allocated: 0,
            ctime: 0,
        };
        for (at, &ino) in self.inos.iter().enumerate() {
            let facts = self.facts_at(at);
            (directory.ino, directory.from, directory.parent) = (ino, 0, facts.parent);
            (directory.mode, directory.uid, directory.gid) = (facts.mode, facts.uid, facts.gid);
            directory.name.clear();
            directory.name.extend_from_slice(facts.name);
            take(&directory, self.clusters[at]);
        }
        for (&ino, parts) in &self.parts {
            for &(from, cluster) in parts {
                (directory.ino, directory.from) = (ino, from);
                take(&directory, cluster);
            }
        }
    }

    /// All clusters that have names of a directory.
    pub(crate) fn clusters_of(&self, ino: u64) -> impl Iterator<Item = u32> {
        let first = self.find(ino).map(|at| self.clusters[at]);
        let parts = self.parts.get(&ino).into_iter().flatten().map(|(_, cluster)| *cluster);
        first.into_iter().chain(parts)
    }
}

#[cfg(test)]
mod tests {
    use format::cluster_directories::ClusterDirectory;

    use super::TableBuilder;

    fn directory(ino: u64, from: u64, name: &[u8]) -> ClusterDirectory {
        ClusterDirectory {
            ino,
            from,
            parent: ino / 2,
            parent_cookie: 9,
            mode: 0o755,
            uid: (ino % 3) as u32,
            gid: 1,
            name: name.to_vec(),
            files: 1,
            subdirectories: 0,
            bytes: 0,
            allocated: 0,
            ctime: 0,
        }
    }

    #[test]
    fn directories_are_found_by_inode_and_parts_by_cookie() {
        let mut builder = TableBuilder::default();
        for ino in (1..=100).rev() {
            builder.push(&directory(ino, 0, format!("d{}", ino % 7).as_bytes()), ino as u32 % 5);
        }
        builder.push(&directory(50, 2_000, b"d1"), 8);
        builder.push(&directory(50, 1_000, b"d1"), 7);
        let table = builder.finish();
        assert_eq!(table.inos.len(), 100);
        for ino in 1..=100 {
            let facts = table.facts(ino).expect("it is there");
            assert_eq!((facts.parent, facts.uid), (ino / 2, (ino % 3) as u32));
            assert_eq!(facts.name, format!("d{}", ino % 7).as_bytes());
        }
        assert_eq!(table.facts(101), None);
        let at = |cookie| table.cluster_of(50, cookie);
        assert_eq!(
            [at(0), at(999), at(1_000), at(1_999), at(2_000), at(u64::MAX)].map(Option::unwrap),
            [0, 0, 7, 7, 8, 8]
        );
        assert_eq!(table.clusters_of(50).collect::<Vec<_>>(), [0, 7, 8]);
        assert!(table.memory_bytes() < 100 * 60 + 1_000);
    }
}
