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
    subvol: &Subvol,
    dir: u64,
) -> FsResult<Vec<Member>> {
    let mut found: Vec<Member> = Vec::new();
    let mut seen = BTreeSet::from([subvol.id.0]);
    let mut reach = Reach::new(subvol.tree(), dir);
    for child in ledger.children(fs, subvol.id.0)? {
        let member = Member::get(fs, child)?;
        if reach.contains(&*fs.store, member.record.parent.1)? {
            found.push(member);
        }
    }
    // Whatever is mounted in one of those is below as well. Damaged records may lie in a circle.
    let mut next = 0;
    while next < found.len() {
        if !seen.insert(found[next].subvol.id.0) {
            let what = "subvolumes lie in one another";
            return Err(inconsistent(VOLUME, what, found[next].record.root));
        }
        let (id, root) = (found[next].subvol.id.0, found[next].record.root);
        let mut reach = Reach::new(found[next].subvol.tree(), root);
        for child in ledger.children(fs, id)? {
            let member = Member::get(fs, child)?;
            if reach.contains(&*fs.store, member.record.parent.1)? {
                found.push(member);
            }
        }
        next += 1;
    }
    Ok(found)
}
