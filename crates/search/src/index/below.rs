//! Finds differences below one directory of a tree that holds much more. A clone of a directory
//! shares everything its source had, and most of that is irrelevant.
//!
//! The directories below the root are those that were there in the base, and those that arrived
//! since. A name that differs points to each arrival or to one of its ancestors. Or the arrival is
//! in a removed directory whose names a user may still move out. For each directory, the entries of
//! the two trees are compared. The cost depends on what is below, not on differences elsewhere. If
//! a large part of the tree is below, comparing everything is cheaper.

use std::sync::atomic::Ordering;

use device::Set;
use format::key;
use store::KeyRange;

use super::fold::Touched;
use super::folding::{Below, Folding, Old};
use super::table::{NOWHERE, Table};
use crate::Result;

/// At most 1/`SHARE` of all directories, or `LEAST` if more, are compared one by one.
const SHARE: usize = 32;
const LEAST: usize = 256;
/// Maximum passes over all directories to find those below new arrivals.
const PASSES_MAX: usize = 8;

impl Touched {
    /// Collects differences in the directories below a root. `None` if there are too many
    /// directories to compare one by one, and nothing was collected; `false` if the result does not
    /// fit in memory.
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
        // A name of an inode with several names is also in one of them, or irrelevant.
        came.extend(inside.iter().enumerate().filter(|at| *at.1).map(|(at, _)| table.at(at).0));
        self.take_places(found, came);
        Ok(Some(true))
    }
}

/// Whether the table has few enough directories below a root to compare them one by one.
pub(super) fn are_few(table: &Table, root: u64) -> bool {
    let Some(at) = table.position(root) else { return true };
    let (mut inside, mut below) = (vec![false; table.len()], vec![root]);
    inside[at] = true;
    with_all_below(table, &mut inside, &mut below);
    below.len() <= most(table)
}

/// Maximum directories that are compared one by one.
fn most(table: &Table) -> usize {
    (table.len() / SHARE).max(LEAST)
}

/// Adds all directories below those already inside, by the table.
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
            // In case of a cycle, a second visit finds the directory marked as outside.
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
