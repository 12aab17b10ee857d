//! Plans which clusters a query searches; `run` executes the plan.

use inode::permissions::{EXECUTE, READ};

use super::base::Base;
use super::scope::Scope;
use super::view::{View, owned};
use crate::cluster::{Like, units};
use crate::{Condition, Result};

/// Clusters that may have matches: in scope by the parents of their directories, and not excluded
/// by their summaries.
///
/// A directory of a cluster is below the start if its parent is, or if it is the start. So the
/// parents of a cluster's directories decide. A directory that moved since takes its sub-tree along
/// and is checked separately; so is a divided directory.
pub(crate) fn clusters(
    view: &View,
    base: &Base,
    scope: &mut Scope<'_>,
    narrow: &[Condition],
) -> Result<Vec<u32>> {
    let mut wanted = vec![false; base.clusters.len()];
    let start = scope.from.directory;
    // The base of a clone of a directory also has the directories beside it.
    let everything = start == view.root && base.table.is_top(start);
    for (cluster, wanted) in base.clusters.iter().zip(&mut wanted) {
        let Some(summary) = &cluster.summary else { continue };
        if !summary.may_match(narrow) {
            continue;
        }
        *wanted = everything;
        for above in &cluster.above {
            if *wanted {
                break;
            }
            *wanted = scope.access(*above)?.open;
        }
    }
    if !everything {
        let mut entered = vec![start];
        for moved in view.delta.moved() {
            if base.table.contains(moved) && scope.access(moved)?.open {
                entered.push(moved);
            }
        }
        // If a divided directory moves, only its first part is rewritten: the clusters of the other
        // parts name its former parent.
        for divided in base.table.divided() {
            if scope.access(divided)?.open {
                entered.push(divided);
            }
        }
        for directory in entered {
            for cluster in base.table.clusters_of(directory) {
                let summary = base.clusters[cluster as usize].summary.as_ref();
                wanted[cluster as usize] = summary.is_some_and(|summary| summary.may_match(narrow));
            }
        }
    }
    let chosen = wanted.iter().enumerate().filter(|(_, wanted)| **wanted);
    Ok(chosen.map(|(number, _)| number as u32).collect())
}

/// Sorts clusters that may have the most similar rows first.
pub(crate) fn nearest_first(base: &Base, like: &Like, chosen: &mut [u32]) {
    chosen.sort_by_cached_key(|number| {
        let summary = base.clusters[*number as usize].summary.as_ref();
        summary.map_or(0, |summary| units(summary.least_distance(like)))
    });
}

/// Number of directories below the start that are skipped for lack of permission.
pub(crate) fn refused(view: &View, scope: &mut Scope<'_>) -> Result<u64> {
    let caller = scope.caller();
    if caller.is_root() {
        return Ok(0);
    }
    let mut closed = Vec::new();
    // Directories with an access list are checked one by one, below.
    let allows =
        |mode, uid, gid| owned(mode, uid, gid).decide(caller, READ | EXECUTE) == Some(true);
    if let Some(base) = &view.base {
        base.table.each_closed(&allows, &mut |ino| closed.push(ino));
    }
    view.delta.each(&mut |row| {
        let directory = row.kind == format::inode_record::FileKind::Directory;
        if directory && !allows(row.mode, row.uid, row.gid) {
            closed.push(row.ino);
        }
        true
    });
    closed.push(scope.from.directory);
    closed.sort_unstable();
    closed.dedup();
    let mut count = 0;
    for directory in closed {
        count += u64::from(scope.access(directory)?.refused);
    }
    Ok(count)
}
