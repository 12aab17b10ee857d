//! Checks the files of a base: every checksum, and that the manifest and its clusters agree.

use std::sync::Arc;

use format::Corruption;
use inode::NameHash;

use super::base::{Base, file, read_groups, read_manifest};
use super::files::{Files, Home, cluster_name};
use crate::cluster::{BlobSource, Cluster};
use crate::{Error, Result};

/// Whose index it is.
#[derive(Debug, Clone, Copy)]
pub struct Of {
    /// The volume.
    pub volume: [u8; 16],
    /// Its hash of names.
    pub hash: NameHash,
}

/// Reads all files of a base, adds each defect to `found`, and returns the number of files. Fails
/// only if the disk returns an error.
pub fn check_base(home: &Home, of: Of, tree: u64, found: &mut Vec<Corruption>) -> Result<u64> {
    let files = Files::new(home.clone());
    let manifest = match read_manifest(&files, of.volume, tree) {
        Ok(manifest) => manifest,
        Err(error) => return damage(error, found).map(|()| 1),
    };
    let count = 1 + manifest.clusters.len() as u64;
    for entry in &manifest.clusters {
        let name = cluster_name((entry.owner, entry.number));
        let expected = entry.cluster_bytes
            + u64::from(entry.directories_bytes)
            + u64::from(entry.groups_bytes);
        let length = files.length(&name)?;
        if length != Some(expected) {
            found.push(Corruption {
                file: file(&name),
                offset: length.unwrap_or(0).min(expected),
                structure: "cluster",
                expected: format!("{expected} bytes"),
                found: length.map_or("no file".to_owned(), |length| format!("{length} bytes")),
                unread: false,
            });
            continue;
        }
        if entry.rows == 0 {
            continue;
        }
        let Some(blobs) = files.blobs()? else { continue };
        let source = Arc::new(BlobSource::new(blobs, file(&name)));
        let rows = Cluster::open(source, of.hash).and_then(|cluster| {
            cluster.verify()?;
            Ok(cluster.len())
        });
        match rows {
            Ok(rows) if rows == entry.rows => {}
            Ok(rows) => found.push(Corruption {
                file: file(&name),
                offset: 0,
                structure: "cluster",
                expected: format!("{} rows", entry.rows),
                found: format!("{rows} rows"),
                unread: false,
            }),
            Err(error) => damage(error, found)?,
        }
    }
    // Directories and groups, if everything that locates them is intact.
    if found.is_empty() {
        let checked = Base::load(&files, of.volume, tree, None).and_then(|base| {
            base.clusters.iter().try_for_each(|cluster| read_groups(&files, cluster).map(drop))
        });
        if let Err(error) = checked {
            damage(error, found)?;
        }
    }
    Ok(count)
}

/// Deletes all files of an index that no record names.
pub fn delete_all(home: &Home) -> Result<()> {
    let files = Files::new(home.clone());
    for name in files.list()? {
        files.delete(&name)?;
    }
    Ok(())
}

/// Records damage and unreadable data (`Corruption::unread`); any other error stays an error.
fn damage(error: Error, found: &mut Vec<Corruption>) -> Result<()> {
    match error {
        Error::Damaged(bad) => found.push(bad),
        Error::Store(store::Error::Corrupt(bad)) => found.push((*bad).clone()),
        Error::Store(store::Error::NewerFormat { file, found: version, known }) => {
            found.push(Corruption {
                file,
                offset: 0,
                structure: "cluster",
                expected: format!("version {known}"),
                found: format!("version {version}"),
                unread: false,
            });
        }
        Error::Device(error) => {
            return damage(store::Error::Device(error).as_damage().into(), found);
        }
        other => return Err(other),
    }
    Ok(())
}
