//! A base in memory: its clusters' summaries and its directories.

use format::cluster_directories::Directories;
use format::cluster_groups::Groups;
use format::manifest::{ClusterEntry, Manifest};
use store::TreeId;

use super::files::{Files, cluster_name, manifest_name};
use super::table::{Table, TableBuilder};
use crate::cluster::Summary;
use crate::{Error, Result};

/// Most bytes of a manifest.
const MANIFEST_BYTES_MAX: u64 = 1 << 32;

/// What identifies a cluster: the base that it was written for, and its number among that
/// base's.
pub(crate) type ClusterId = (u64, u32);

/// One cluster of a base.
pub(crate) struct BaseCluster {
    /// Which one.
    pub(crate) id: ClusterId,
    /// Rows in it.
    pub(crate) rows: u32,
    /// What it is skipped by; `None`: it has directories, and no rows.
    pub(crate) summary: Option<Summary>,
    /// Directories above those whose names it has, and not among those, in order.
    pub(crate) above: Box<[u64]>,
    /// Where its directories are in the blob: bytes of the cluster, length, checksum.
    directories: (u64, u32, u32),
    /// Length and checksum of its groups, which stand behind those.
    groups: (u32, u32),
}

/// A base with all that planning takes.
pub(crate) struct Base {
    /// Its tree.
    pub(crate) tree: TreeId,
    /// Its clusters.
    pub(crate) clusters: Vec<BaseCluster>,
    /// Its directories.
    pub(crate) table: Table,
    bytes: usize,
}

impl Base {
    /// Reads a base's manifest and directories.
    pub(crate) fn load(files: &Files, volume: [u8; 16], tree: u64) -> Result<Base> {
        let manifest = read_manifest(files, volume, tree)?;
        let mut builder = TableBuilder::default();
        let mut clusters = Vec::with_capacity(manifest.clusters.len());
        for (number, entry) in manifest.clusters.into_iter().enumerate() {
            let id = (entry.owner, entry.number);
            let name = cluster_name(id);
            let bytes = read_directories(files, &entry)?;
            let located =
                |error: format::Malformed| error.located(&file(&name), entry.cluster_bytes);
            let mut directories = Directories::new(&bytes);
            let (mut inside, mut parents) = (Vec::new(), Vec::new());
            while let Some(directory) = directories.read_next().map_err(located)? {
                builder.push(&directory, number as u32);
                inside.push(directory.ino);
                parents.push(directory.parent);
            }
            parents.sort_unstable();
            parents.dedup();
            parents.retain(|parent| inside.binary_search(parent).is_err());
            let summary = (entry.rows > 0).then(|| Summary::decode(&entry.summary)).transpose();
            let summary = summary.map_err(|error| error.located(&file(&manifest_name(tree)), 0))?;
            clusters.push(BaseCluster {
                id,
                rows: entry.rows,
                summary,
                above: parents.into(),
                directories: (
                    entry.cluster_bytes,
                    entry.directories_bytes,
                    entry.directories_checksum,
                ),
                groups: (entry.groups_bytes, entry.groups_checksum),
            });
        }
        let table = builder.finish();
        let cluster = |cluster: &BaseCluster| {
            let summary = cluster.summary.as_ref().map_or(0, Summary::memory_bytes);
            size_of::<BaseCluster>() + summary + cluster.above.len() * 8
        };
        let bytes = table.memory_bytes() + clusters.iter().map(cluster).sum::<usize>();
        Ok(Base { tree: TreeId(tree), clusters, table, bytes })
    }

    /// Memory it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes
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
            summary: cluster.summary.as_ref().map_or_else(Vec::new, Summary::encode),
        }
    }
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

/// Reads and checks the directories of a cluster.
pub(crate) fn read_directories(files: &Files, entry: &ClusterEntry) -> Result<Vec<u8>> {
    let (at, length) = (entry.cluster_bytes, entry.directories_bytes);
    let name = cluster_name((entry.owner, entry.number));
    let what = ("cluster directories", entry.directories_checksum);
    read_section(files, &name, (at, length), what)
}

/// Reads and checks the groups of a cluster.
pub(crate) fn read_groups(files: &Files, cluster: &BaseCluster) -> Result<Groups> {
    let (cluster_bytes, directories_bytes, _) = cluster.directories;
    let at = cluster_bytes + u64::from(directories_bytes);
    let name = cluster_name(cluster.id);
    let (length, checksum) = cluster.groups;
    let bytes = read_section(files, &name, (at, length), ("cluster groups", checksum))?;
    Ok(Groups::decode(&bytes).map_err(|error| error.located(&file(&name), at))?)
}

fn read_section(
    files: &Files,
    name: &str,
    (at, length): (u64, u32),
    (structure, sum): (&'static str, u32),
) -> Result<Vec<u8>> {
    let bytes = files.read(name, at, length as usize)?;
    let checksum = crc32c::crc32c(&bytes);
    if bytes.len() != length as usize || checksum != sum {
        let expected = format!("{length} bytes of sum {sum:#x}");
        let found = format!("{} bytes of sum {checksum:#x}", bytes.len());
        let (file, offset) = (file(name), at);
        return Err(format::Corruption { file, offset, structure, expected, found }.into());
    }
    Ok(bytes)
}

/// Says that a blob is not there.
pub(crate) fn missing(name: &str) -> Error {
    Error::Damaged(format::Corruption {
        file: file(name),
        offset: 0,
        structure: "index",
        expected: "the file".to_owned(),
        found: "none".to_owned(),
    })
}
