//! Which clusters a query searches: decides, `run` does.

use inode::permissions::{EXECUTE, READ};

use super::base::Base;
use super::scope::{Scope, owned};
use super::view::View;
use crate::cluster::{Like, units};
use crate::{Condition, Result};

/// Clusters that may have matches: in scope, by the directories above theirs, and not excluded by
/// their summaries.
///
/// A directory of a cluster is below the start if the directory above it is, or if it is the
/// start; so a cluster is looked at by the directories above those it has. One that was moved
/// since takes what is below it along, and it is looked at by itself; so is one that is divided.
pub(crate) fn clusters(
    view: &View,
    base: &Base,
    scope: &mut Scope<'_>,
    narrow: &[Condition],
) -> Result<Vec<u32>> {
    let mut wanted = vec![false; base.clusters.len()];
    let start = scope.from.directory;
    // The base of a clone of a directory has what lies beside that, too.
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
            *wanted = scope.standing(*above)?.open;
        }
    }
    if !everything {
        let mut entered = vec![start];
        for moved in view.delta.moved() {
            if base.table.contains(moved) && scope.standing(moved)?.open {
                entered.push(moved);
            }
        }
        // Of one that is divided only the first part is written again where it moves: the clusters
        // of the others tell what it was in before.
        for divided in base.table.divided() {
            if scope.standing(divided)?.open {
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

/// Puts clusters that may have what is most like something first.
pub(crate) fn nearest_first(base: &Base, like: &Like, chosen: &mut [u32]) {
    chosen.sort_by_cached_key(|number| {
        let summary = base.clusters[*number as usize].summary.as_ref();
        summary.map_or(0, |summary| units(summary.least_distance(like)))
    });
}

/// How many directories below the start are not looked into for lack of permission.
pub(crate) fn refused(view: &View, scope: &mut Scope<'_>) -> Result<u64> {
    let caller = scope.caller();
    if caller.is_root() {
        return Ok(0);
    }
    let mut closed = Vec::new();
    // Those with an access list are looked at one by one, below.
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
        count += u64::from(scope.standing(directory)?.refused);
    }
    Ok(count)
}
