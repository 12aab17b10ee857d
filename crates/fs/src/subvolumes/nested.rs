//! The subvolumes below a directory. Each names where it is mounted, so they are found by
//! walking parents up from the few that there are; nothing is searched.

use std::collections::BTreeSet;
use std::sync::Arc;

use format::subvolume_record::SubvolumeRecord;
use inode::{FsError, SubvolId};

use super::ledger::Ledger;
use crate::error::inconsistent;
use crate::reclaim::Reach;
use crate::subvol::{Subvol, VOLUME, read_record};
use crate::{Fs, FsResult};

/// A subvolume with its record.
#[derive(Clone)]
pub(crate) struct Member {
    /// The subvolume.
    pub(crate) subvol: Arc<Subvol>,
    /// Its record.
    pub(crate) record: SubvolumeRecord,
}

impl Member {
    /// A subvolume by its number.
    pub(crate) fn get(fs: &Fs, id: u64) -> FsResult<Member> {
        let id = SubvolId(id);
        let record = read_record(&*fs.store, id)?.ok_or(FsError::Stale)?;
        Ok(Member { subvol: fs.subvol(id)?, record })
    }
}

/// The subvolumes mounted below a directory, each after the one that it is mounted in.
pub(crate) fn below(
    fs: &Fs,
    ledger: &mut Ledger,
    (subvol, dir): (&Subvol, u64),
) -> FsResult<Vec<Member>> {
    let mut found: Vec<Member> = Vec::new();
    let mut seen = BTreeSet::from([subvol.id.0]);
    directly(fs, ledger, subvol, dir, &mut found)?;
    // Whatever is mounted in one of those is below as well. Damaged records may lie in a circle.
    let mut next = 0;
    while next < found.len() {
        if !seen.insert(found[next].subvol.id.0) {
            let what = "subvolumes lie in one another";
            return Err(inconsistent(VOLUME, what, found[next].record.root));
        }
        let (above, root) = (Arc::clone(&found[next].subvol), found[next].record.root);
        directly(fs, ledger, &above, root, &mut found)?;
        next += 1;
    }
    Ok(found)
}

/// Adds those that are mounted in a subvolume itself, in the order of their numbers.
///
/// Each directory in which others are mounted is looked at once: clones stand beside one another,
/// and making the next must not cost more the more there are.
fn directly(
    fs: &Fs,
    ledger: &mut Ledger,
    subvol: &Subvol,
    dir: u64,
    found: &mut Vec<Member>,
) -> FsResult<()> {
    let mut reach = Reach::new(subvol.tree(), dir);
    let mut children = Vec::new();
    for directory in ledger.mount_points(fs, subvol.id.0)? {
        if reach.contains(&*fs.store, directory)? {
            children.extend(ledger.mounted_in(fs, (subvol.id.0, directory))?);
        }
    }
    children.sort_unstable();
    for child in children {
        found.push(Member::get(fs, child)?);
    }
    Ok(())
}
