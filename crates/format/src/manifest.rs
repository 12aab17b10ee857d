//! The manifest of a base: the clusters that describe it, and the summaries by which searches skip
//! them (`docs/format/manifest.md`).

use crate::layout::{Field, size_of};
use crate::sealed::{Covers, Opened, Seal};
use crate::{Malformed, Reader, Writer};

/// Layout of the head of a manifest.
pub const LAYOUT: &[Field] = &[
    Field::fixed("magic", "8 bytes", 8),
    Field::fixed("version", "u32 LE", 4),
    Field::fixed("checksum", "u32 LE", 4),
    Field::fixed("volume", "16 bytes", 16),
    Field::fixed("base", "u64 LE", 8),
    Field::fixed("clusters", "u32 LE", 4),
];
const HEAD_BYTES: usize = 44;
const _: () = assert!(size_of(LAYOUT) == HEAD_BYTES);

/// Layout of each cluster's part.
pub const CLUSTER_LAYOUT: &[Field] = &[
    Field::fixed("owner", "u64 LE", 8),
    Field::fixed("number", "u32 LE", 4),
    Field::fixed("rows", "u32 LE", 4),
    Field::fixed("cluster_bytes", "u64 LE", 8),
    Field::fixed("directories_bytes", "u32 LE", 4),
    Field::fixed("directories_checksum", "u32 LE", 4),
    Field::fixed("groups_bytes", "u32 LE", 4),
    Field::fixed("groups_checksum", "u32 LE", 4),
    Field::variable("summary_length", "varint"),
    Field::variable("summary", "bytes"),
];

// DO NOT CHANGE THESE VALUES: they are on disk.
const SEAL: Seal =
    Seal { structure: "manifest", magic: *b"PANDOMAN", version: 1, covers: Covers::Body };

/// Longest summary of a cluster.
pub const SUMMARY_BYTES_MAX: usize = 1 << 20;
/// Most clusters of a base.
pub const CLUSTERS_MAX: u32 = 1 << 24;

/// One cluster of a base, in a blob that several bases may share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterEntry {
    /// The base that it was first written for.
    pub owner: u64,
    /// Its number among the clusters that were written for that base.
    pub number: u32,
    /// Rows in it.
    pub rows: u32,
    /// Bytes of the cluster in the blob; its directories follow.
    pub cluster_bytes: u64,
    /// Bytes of the directories.
    pub directories_bytes: u32,
    /// CRC32C of the directories.
    pub directories_checksum: u32,
    /// Bytes of its groups, which follow those.
    pub groups_bytes: u32,
    /// CRC32C of the groups.
    pub groups_checksum: u32,
    /// The summary by which searches skip the cluster (`docs/format/cluster.md`).
    pub summary: Vec<u8>,
}

/// The manifest of a base.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Manifest {
    /// The volume.
    pub volume: [u8; 16],
    /// The tree of the base.
    pub base: u64,
    /// Its clusters.
    pub clusters: Vec<ClusterEntry>,
}

impl Manifest {
    /// The blob's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        body.raw(&self.volume);
        body.put_u64(self.base);
        body.put_u32(u32::try_from(self.clusters.len()).unwrap_or(u32::MAX));
        for cluster in &self.clusters {
            body.put_u64(cluster.owner);
            body.put_u32(cluster.number);
            body.put_u32(cluster.rows);
            body.put_u64(cluster.cluster_bytes);
            body.put_u32(cluster.directories_bytes);
            body.put_u32(cluster.directories_checksum);
            body.put_u32(cluster.groups_bytes);
            body.put_u32(cluster.groups_checksum);
            body.put_bytes(&cluster.summary);
        }
        SEAL.seal(&body)
    }

    /// Reads a blob's bytes; it must be of this volume and base.
    pub fn decode(bytes: &[u8], volume: [u8; 16], base: u64) -> Result<Manifest, Malformed> {
        let mut reader = match SEAL.open(bytes)? {
            Opened::Body(_, reader) => reader,
            Opened::Newer(version) => {
                let reader = Reader::new(SEAL.structure, bytes);
                return Err(reader.malformed("version 1", format!("version {version}")));
            }
        };
        let found = (reader.array::<16>()?, reader.u64()?);
        if found != (volume, base) {
            return Err(reader.malformed("the volume's and base's own", format!("{found:?}")));
        }
        let count = reader.u32()?;
        let most = reader.remaining().checked_div(size_of(CLUSTER_LAYOUT)).unwrap_or(0);
        if count > CLUSTERS_MAX || usize::try_from(count).is_ok_and(|count| count > most) {
            return Err(reader.malformed("a number of clusters", count.to_string()));
        }
        let mut clusters = Vec::new();
        for _ in 0..count {
            let owner = reader.u64()?;
            let number = reader.u32()?;
            let rows = reader.u32()?;
            let cluster_bytes = reader.u64()?;
            let directories_bytes = reader.u32()?;
            let directories_checksum = reader.u32()?;
            let (groups_bytes, groups_checksum) = (reader.u32()?, reader.u32()?);
            let length = reader.length(SUMMARY_BYTES_MAX)?;
            let summary = reader.take(length)?.to_vec();
            clusters.push(ClusterEntry {
                owner,
                number,
                rows,
                cluster_bytes,
                directories_bytes,
                directories_checksum,
                groups_bytes,
                groups_checksum,
                summary,
            });
        }
        reader.end()?;
        Ok(Manifest { volume, base, clusters })
    }
}

#[cfg(test)]
mod tests {
    use super::{ClusterEntry, Manifest};
    use crate::damaged::every_flipped_bit_and_truncation_is_refused;

    fn sample() -> Manifest {
        let cluster = |number| ClusterEntry {
            owner: 40,
            number,
            rows: 7,
            cluster_bytes: 1 << 33,
            directories_bytes: 9,
            directories_checksum: 8,
            groups_bytes: 5,
            groups_checksum: 4,
            summary: vec![1, 2, 3],
        };
        Manifest { volume: [3; 16], base: 41, clusters: vec![cluster(0), cluster(1)] }
    }

    #[test]
    fn a_manifest_round_trips_and_every_flipped_bit_and_cut_is_noticed() {
        let bytes = sample().encode();
        assert_eq!(Manifest::decode(&bytes, [3; 16], 41), Ok(sample()));
        assert!(Manifest::decode(&bytes, [4; 16], 41).is_err());
        assert!(Manifest::decode(&bytes, [3; 16], 42).is_err());
        every_flipped_bit_and_truncation_is_refused(&bytes, |bad| {
            Manifest::decode(bad, [3; 16], 41).is_err()
        });
    }
}
