//! What differs below one directory of a tree that holds much more: a clone of a directory has all
//! that its source had, and of most of that nothing is to be known.
//!
//! The directories below it are those that were there by the base, and those that came since: a
//! name that differs leads to each, or to one that it is in, or it is in one that was removed and
//! whose names somebody may still move out. Of each, what the two trees have under its number is
//! compared, so that it costs what is below, and not what differs elsewhere. Where a large part of
//! the tree is below, comparing all is less.

use std::sync::atomic::{AtomicU64, Ordering};

use device::Set;
use format::key;
use store::KeyRange;

use super::fold::{Folding, Old, Touched};
use super::table::{NOWHERE, Table};
use crate::Result;

/// One in so many of all directories, but so many in any case, are compared one by one.
const SHARE: usize = 32;
const LEAST: usize = 256;
/// How often all directories are gone through for those below some that came.
const PASSES_MAX: usize = 8;

/// By what it is known which directories were below the root.
#[derive(Clone, Copy)]
pub(crate) struct Below<'a> {
    /// The directories of the tree that is compared with.
    pub(crate) table: &'a Table,
    /// Directories that were removed and are not empty: what is in them may be moved out of them,
    /// to below the root.
    pub(crate) detached: &'a [u64],
    /// Counts how often they were enough.
    pub(crate) count: &'a AtomicU64,
}

impl Touched {
    /// Collects what differs in the directories below a root; `None` where that is too much to look
    /// at them one by one, and nothing was taken; `false` when it does not fit.
    pub(super) fn below(
        &mut self,
        old: Old<'_>,
        folding: Folding<'_>,
        (root, below): (u64, Below<'_>),
    ) -> Result<Option<bool>> {
        let table = below.table;
        let most = most(table);
        let folding = Folding { helpers: None, logged: None, ..folding };
        let (mut inside, mut came) = (vec![false; table.len()], Set::default());
        let mut found = self.of_places();
        let mut wanted = [&[root], below.detached].concat();
        let (mut passes, mut count) = (0, 0);
        while !wanted.is_empty() {
            let (mut next, mut known) = (Vec::new(), false);
            for ino in wanted {
                let is_new = match table.position(ino) {
                    Some(at) => !std::mem::replace(&mut inside[at], true),
                    None => came.insert(ino),
                };
                known |= is_new && table.contains(ino);
                next.extend(is_new.then_some(ino));
            }
            if known {
                passes += 1;
                with_all_below(table, &mut inside, &mut next);
            }
            count += next.len();
            if count > most || passes > PASSES_MAX {
                return Ok(None);
            }
            next.sort_unstable();
            for ino in next {
                let range = KeyRange::prefix(&key::directory_prefix(ino));
                if !found.range(old, folding, range)? {
                    return Ok(Some(false));
                }
            }
            wanted = found.take_arrived();
        }
        below.count.fetch_add(1, Ordering::Relaxed);
        // A name of an inode with several is in one of them, too, or of no interest.
        came.extend(inside.iter().enumerate().filter(|at| *at.1).map(|(at, _)| table.at(at).0));
        self.take_places(found, came);
        Ok(Some(true))
    }
}

/// Whether so few directories are below a root, by a table, that they are compared one by one.
pub(super) fn are_few(table: &Table, root: u64) -> bool {
    let Some(at) = table.position(root) else { return true };
    let (mut inside, mut below) = (vec![false; table.len()], vec![root]);
    inside[at] = true;
    with_all_below(table, &mut inside, &mut below);
    below.len() <= most(table)
}

/// Most directories that are compared one by one.
fn most(table: &Table) -> usize {
    (table.len() / SHARE).max(LEAST)
}

/// Adds all directories below those that are inside, by a table.
fn with_all_below(table: &Table, inside: &mut [bool], next: &mut Vec<u64>) {
    let mut known: Vec<Option<bool>> = inside.iter().map(|inside| inside.then_some(true)).collect();
    let mut chain = Vec::new();
    for first in 0..table.len() {
        let mut at = first;
        let found = loop {
            if let Some(found) = known[at] {
                break found;
            }
            chain.push(at);
            // Should they lie in one another, whoever comes here again finds that it is not.
            known[at] = Some(false);
            match table.at(at).1 {
                NOWHERE => break false,
                above => at = above as usize,
            }
        };
        for at in chain.drain(..) {
            known[at] = Some(found);
            if found && !std::mem::replace(&mut inside[at], true) {
                next.push(table.at(at).0);
            }
        }
    }
}
