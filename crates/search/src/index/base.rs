//! A base in memory: the summaries and sums of its clusters, and its directories.
//!
//! Bases of successive snapshots share most clusters. Loading a base takes what another base in
//! memory knows about a shared cluster from there. So loading one base after the other reads only
//! their differences.

use std::cmp::Reverse;
use std::sync::Arc;

use device::Map;
use format::cluster_directories::{ClusterDirectory, Directories};
use format::cluster_groups::{Groups, Sums};
use format::manifest::{ClusterEntry, Manifest};
use store::TreeId;

use super::files::{Files, cluster_name, manifest_name};
use super::table::{Table, TableBuilder};
use crate::aggregate::Totals;
use crate::cluster::Summary;
use crate::{Condition, Error, Result, Searchable};

/// Estimated memory for the sums of one group.
const GROUP_BYTES: usize = 128;
/// Maximum size of a manifest in bytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 32;

/// Identifies a cluster: the base that it was written for, and its number within that base.
pub(crate) type ClusterId = (u64, u32);

/// One cluster of a base.
#[derive(Clone)]
pub(crate) struct BaseCluster {
    /// Its identity.
    pub(crate) id: ClusterId,
    /// Rows in it.
    pub(crate) rows: u32,
    /// What queries skip it by; `None`: it has directories but no rows.
    pub(crate) summary: Option<Arc<Summary>>,
    /// Parents of the directories whose names it holds, except those among them; sorted.
    pub(crate) above: Box<[u64]>,
    /// Location of its directories in the blob: size of the cluster before them, length, checksum.
    pub(super) directories: (u64, u32, u32),
    /// Length and checksum of its groups, which follow the directories.
    groups: (u32, u32),
    /// Sums of its rows; `None`: unreadable, or too large to have been written.
    pub(crate) sums: Option<ClusterSums>,
}

impl BaseCluster {
    /// Whether a row may meet all conditions.
    pub(crate) fn may_match(&self, narrow: &[Condition]) -> bool {
        self.summary.as_ref().is_some_and(|summary| summary.may_match(narrow))
    }

    /// Whether it is the cluster that a manifest entry names.
    fn is(&self, entry: &ClusterEntry) -> bool {
        let ClusterEntry { cluster_bytes, directories_bytes, directories_checksum, .. } = *entry;
        self.id == (entry.owner, entry.number)
            && self.rows == entry.rows
            && self.directories == (cluster_bytes, directories_bytes, directories_checksum)
            && self.groups == (entry.groups_bytes, entry.groups_checksum)
    }

    /// Whether its rows, if any, include all of these extended attributes.
    pub(crate) fn carries(&self, searchable: &Searchable) -> bool {
        let summary = self.summary.as_ref();
        summary.is_none_or(|summary| searchable.names().iter().all(|name| summary.carries(name)))
    }
}

/// Sums over the rows of a cluster, except inodes with several names.
#[derive(Clone)]
pub(crate) struct ClusterSums {
    /// All of them.
    pub(crate) totals: Totals,
    /// Number of rows whose inode has several names.
    pub(crate) linked: u64,
    /// Directories with the largest sums of their own names. It holds enough of them that no other
    /// directory is among the first [`LARGEST_KEPT`] of any answer, and all parts of divided
    /// directories.
    pub(crate) largest: Box<[(u64, Sums)]>,
}

/// Number of largest directories kept for each cluster.
pub(crate) const LARGEST_KEPT: usize = 16;

/// Order in which directories are reported by size: the largest first.
pub(crate) fn by_size(sums: Sums, ino: u64) -> impl Ord {
    (Reverse(sums.bytes), Reverse(sums.files), ino)
}

/// A base with all data that planning needs.
pub(crate) struct Base {
    /// Its tree.
    pub(crate) tree: TreeId,
    /// Its clusters.
    pub(crate) clusters: Vec<BaseCluster>,
    /// Its directories.
    pub(crate) table: Table,
    /// The groups of all clusters whose sums are known.
    pub(crate) groups: Groups,
    bytes: usize,
}

impl Base {
    /// Reads a base's manifest and directories, except parts that another base in memory shares.
    pub(crate) fn load(
        files: &Files,
        volume: [u8; 16],
        tree: u64,
        like: Option<&Base>,
    ) -> Result<Base> {
        let manifest = read_manifest(files, volume, tree)?;
        if let Some(like) = like {
            // What cannot be read there may be readable here, cluster by cluster.
            if let Ok(base) = Base::assemble(files, tree, &manifest, Some(like)) {
                return Ok(base);
            }
        }
        Base::assemble(files, tree, &manifest, None)
    }

    fn assemble(
        files: &Files,
        tree: u64,
        manifest: &Manifest,
        like: Option<&Base>,
    ) -> Result<Base> {
        let shared = like.map(|base| Shared::of(base, manifest));
        let mut builder = TableBuilder::default();
        let mut clusters = Vec::with_capacity(manifest.clusters.len());
        let mut all = match &shared {
            Some(shared) => shared.groups(files)?,
            None => Groups::default(),
        };
        // Sums of the directories of each cluster: the largest are known only at the end.
        let mut own = Vec::with_capacity(manifest.clusters.len());
        for (number, entry) in manifest.clusters.iter().enumerate() {
            if let Some(known) = shared.as_ref().and_then(|shared| shared.cluster(number)) {
                clusters.push(known.clone());
                own.push(None);
                continue;
            }
            let (cluster, sums) =
                read_cluster(files, tree, entry, number as u32, (&mut builder, &mut all))?;
            clusters.push(cluster);
            own.push(Some(sums));
        }
        if let Some(shared) = &shared {
            shared.directories(&mut builder);
        }
        let table = builder.finish();
        for (cluster, own) in clusters.iter_mut().zip(own) {
            if let (Some(sums), Some(own)) = (&mut cluster.sums, own) {
                sums.largest = largest(own, &table);
            }
        }
        let cluster = |cluster: &BaseCluster| {
            let summary = cluster.summary.as_ref().map_or(0, |summary| summary.memory_bytes());
            let largest = cluster.sums.as_ref().map_or(0, |sums| size_of_val(&sums.largest[..]));
            size_of::<BaseCluster>() + summary + cluster.above.len() * 8 + largest
        };
        let groups = (all.extensions.len() + all.days.len() + all.owners.len()) * GROUP_BYTES;
        let bytes = table.memory_bytes() + clusters.iter().map(cluster).sum::<usize>() + groups;
        Ok(Base { tree: TreeId(tree), clusters, table, groups: all, bytes })
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a cluster belongs to this base.
    pub(crate) fn has(&self, id: ClusterId) -> bool {
        self.clusters.iter().any(|cluster| cluster.id == id)
    }

    /// A cluster as the manifest of the next base names it.
    pub(crate) fn entry(&self, number: u32) -> ClusterEntry {
        let cluster = &self.clusters[number as usize];
        let (cluster_bytes, directories_bytes, directories_checksum) = cluster.directories;
        ClusterEntry {
            owner: cluster.id.0,
            number: cluster.id.1,
            rows: cluster.rows,
            cluster_bytes,
            directories_bytes,
            directories_checksum,
            groups_bytes: cluster.groups.0,
            groups_checksum: cluster.groups.1,
            summary: cluster.summary.as_ref().map_or_else(Vec::new, |summary| summary.encode()),
        }
    }
}

/// Clusters that a base shares with another one in memory.
struct Shared<'a> {
    like: &'a Base,
    /// For each own cluster number, its number in the other base.
    theirs: Vec<Option<u32>>,
    /// For each number in the other base, the own number.
    own: Vec<Option<u32>>,
}

impl<'a> Shared<'a> {
    fn of(like: &'a Base, manifest: &Manifest) -> Shared<'a> {
        let known: Map<ClusterId, u32> =
            like.clusters.iter().zip(0..).map(|(cluster, number)| (cluster.id, number)).collect();
        let mut own = vec![None; like.clusters.len()];
        let mut theirs = Vec::with_capacity(manifest.clusters.len());
        for (entry, number) in manifest.clusters.iter().zip(0..) {
            let same = known.get(&(entry.owner, entry.number)).copied().filter(|number| {
                let cluster = &like.clusters[*number as usize];
                // Unreadable there: read it again.
                cluster.sums.is_some() && cluster.is(entry)
            });
            if let Some(same) = same {
                own[same as usize] = Some(number);
            }
            theirs.push(same);
        }
        Shared { like, theirs, own }
    }

    /// A cluster by its number here, if the other base has it too.
    fn cluster(&self, number: usize) -> Option<&'a BaseCluster> {
        self.theirs[number].map(|number| &self.like.clusters[number as usize])
    }

    /// The groups of all shared clusters: either all of the other base's groups minus the unshared
    /// ones, or cluster by cluster, whichever reads less.
    fn groups(&self, files: &Files) -> Result<Groups> {
        let common = self.own.iter().filter(|own| own.is_some()).count();
        let less = common * 2 > self.own.len();
        let mut read = Groups::default();
        for (cluster, own) in self.like.clusters.iter().zip(&self.own) {
            if own.is_some() != less && cluster.sums.is_some() {
                read.merge(&read_groups(files, cluster)?);
            }
        }
        if !less {
            return Ok(read);
        }
        let mut groups = self.like.groups.clone();
        groups.take(&read);
        Ok(groups)
    }

    /// Adds the directories of the shared clusters.
    fn directories(&self, builder: &mut TableBuilder) {
        self.like.table.each_part(&mut |directory, cluster| {
            if let Some(number) = self.own[cluster as usize] {
                builder.push(directory, number);
            }
        });
    }
}

/// Reads the data about one cluster, and adds its directories and groups to the collected ones.
/// Returns the sums of its directories' own names.
fn read_cluster(
    files: &Files,
    tree: u64,
    entry: &ClusterEntry,
    number: u32,
    (builder, all): (&mut TableBuilder, &mut Groups),
) -> Result<(BaseCluster, Vec<(u64, Sums)>)> {
    let id = (entry.owner, entry.number);
    let name = cluster_name(id);
    let (bytes, groups) = read_sections(files, entry)?;
    let located = |error: format::Malformed| error.located(&file(&name), entry.cluster_bytes);
    let mut directories = Directories::new(&bytes);
    let (mut inside, mut parents) = (Vec::new(), Vec::new());
    let (mut totals, mut own_sums) = (Totals::default(), Vec::new());
    while let Some(directory) = directories.read_next().map_err(located)? {
        builder.push(&directory, number);
        inside.push(directory.ino);
        parents.push(directory.parent);
        let own = own_totals(&directory);
        totals.add(&own);
        if own.sums.files > 0 {
            own_sums.push((directory.ino, own.sums));
        }
    }
    parents.sort_unstable();
    parents.dedup();
    parents.retain(|parent| inside.binary_search(parent).is_err());
    let summary = (entry.rows > 0).then(|| Summary::decode(&entry.summary)).transpose();
    let summary = summary.map_err(|error| error.located(&file(&manifest_name(tree)), 0))?;
    let exact = summary.as_ref().is_none_or(Summary::is_exact);
    let sums = groups.filter(|_| exact).map(|groups| {
        all.merge(&groups);
        ClusterSums { totals, linked: groups.linked, largest: Box::default() }
    });
    let cluster = BaseCluster {
        id,
        rows: entry.rows,
        summary: summary.map(Arc::new),
        above: parents.into(),
        directories: (entry.cluster_bytes, entry.directories_bytes, entry.directories_checksum),
        groups: (entry.groups_bytes, entry.groups_checksum),
        sums,
    };
    Ok((cluster, own_sums))
}

/// Path of a blob, for messages.
pub(crate) fn file(name: &str) -> String {
    format!("{}/{name}", super::files::DIRECTORY)
}

/// Reads and checks a manifest.
pub(crate) fn read_manifest(files: &Files, volume: [u8; 16], tree: u64) -> Result<Manifest> {
    let name = manifest_name(tree);
    let length = files.length(&name)?.ok_or_else(|| missing(&name))?;
    if length > MANIFEST_BYTES_MAX {
        return Err(missing(&name));
    }
    let bytes = files.read(&name, 0, length as usize)?;
    let manifest = Manifest::decode(&bytes, volume, tree);
    Ok(manifest.map_err(|error| error.located(&file(&name), 0))?)
}

/// Totals of the names in a directory, or in a part of one, from a cluster's record.
pub(crate) fn own_totals(directory: &ClusterDirectory) -> Totals {
    let ClusterDirectory { files, bytes, allocated, .. } = *directory;
    let sums = Sums { files, bytes: bytes.into(), allocated: allocated.into() };
    Totals { sums, directories: directory.subdirectories, ctime: directory.ctime }
}

/// Filters the directories to those that may be among the largest of an answer.
fn largest(mut own: Vec<(u64, Sums)>, table: &Table) -> Box<[(u64, Sums)]> {
    own.sort_unstable_by_key(|(ino, sums)| by_size(*sums, *ino));
    let mut kept = 0;
    own.retain(|(ino, _)| {
        let divided = table.is_divided(*ino);
        kept += usize::from(!divided);
        divided || kept <= LARGEST_KEPT
    });
    own.into()
}

/// Reads the directories of a cluster, and its groups if those are intact. Without the groups, a
/// query adds up the rows; without the directories, the cluster is unusable.
fn read_sections(files: &Files, entry: &ClusterEntry) -> Result<(Vec<u8>, Option<Groups>)> {
    let name = cluster_name((entry.owner, entry.number));
    let length = entry.directories_bytes as usize;
    let all = length.saturating_add(entry.groups_bytes as usize);
    let mut bytes = files.read(&name, entry.cluster_bytes, all)?;
    let last = bytes.split_off(length.min(bytes.len()));
    let what = ("cluster directories", entry.directories_bytes, entry.directories_checksum);
    check_section(&bytes, &name, entry.cluster_bytes, what)?;
    let at = entry.cluster_bytes + u64::from(entry.directories_bytes);
    let what = ("cluster groups", entry.groups_bytes, entry.groups_checksum);
    let groups = check_section(&last, &name, at, what)
        .and_then(|()| Ok(Groups::decode(&last).map_err(|error| error.located(&file(&name), at))?));
    match groups {
        Ok(groups) => Ok((bytes, Some(groups))),
        Err(error) => {
            super::damage::note_damage("the sums of a cluster", &error);
            Ok((bytes, None))
        }
    }
}

/// Reads and checks the directories of a cluster.
pub(crate) fn read_directories(files: &Files, cluster: &BaseCluster) -> Result<Vec<u8>> {
    let (at, length, checksum) = cluster.directories;
    read_section(files, &cluster_name(cluster.id), at, ("cluster directories", length, checksum))
}

/// Reads and checks the groups of a cluster.
pub(crate) fn read_groups(files: &Files, cluster: &BaseCluster) -> Result<Groups> {
    let (cluster_bytes, directories_bytes, _) = cluster.directories;
    let at = cluster_bytes + u64::from(directories_bytes);
    let name = cluster_name(cluster.id);
    let (length, checksum) = cluster.groups;
    let bytes = read_section(files, &name, at, ("cluster groups", length, checksum))?;
    Ok(Groups::decode(&bytes).map_err(|error| error.located(&file(&name), at))?)
}

/// A section: its name, length and checksum.
type Section = (&'static str, u32, u32);

fn read_section(files: &Files, name: &str, at: u64, section: Section) -> Result<Vec<u8>> {
    let bytes = files.read(name, at, section.1 as usize)?;
    check_section(&bytes, name, at, section)?;
    Ok(bytes)
}

fn check_section(bytes: &[u8], name: &str, offset: u64, section: Section) -> Result<()> {
    let (structure, length, sum) = section;
    let checksum = crc32c::crc32c(bytes);
    if bytes.len() != length as usize || checksum != sum {
        let expected = format!("{length} bytes of sum {sum:#x}");
        let found = format!("{} bytes of sum {checksum:#x}", bytes.len());
        let file = file(name);
        return Err(
            format::Corruption { file, offset, structure, expected, found, unread: false }.into()
        );
    }
    Ok(())
}

/// The error for a missing blob.
pub(crate) fn missing(name: &str) -> Error {
    Error::Damaged(format::Corruption {
        file: file(name),
        offset: 0,
        structure: "index",
        expected: "the file".to_owned(),
        found: "none".to_owned(),
        unread: false,
    })
}
