//! How all directories of a base stand towards a question at once: one pass over the table, for
//! questions that need them all. Where the store has a newer record of a directory, or it is in
//! one that the table does not have, the scope of a query answers.

use std::sync::atomic::{AtomicBool, Ordering};

use inode::permissions::{EXECUTE, READ};

use super::base::Base;
use super::scope::{Scope, owned};
use super::table::NOWHERE;
use super::view::View;
use crate::{Error, Result};

/// Directories between two looks at whether anybody waits still.
const CHECK_EVERY: usize = 1 << 14;

/// How a directory stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stand {
    /// Not looked at yet.
    Unknown,
    /// Its names do not count.
    Closed,
    /// Its names count; its depth.
    Open(u32),
}

/// How the directories of a base stand, by their places in its table.
pub(crate) struct Ground {
    stands: Vec<Stand>,
    /// Whose record is newer than the table's.
    newer: Vec<bool>,
    /// Where the start is, which is told of in any case.
    start: Option<usize>,
}

impl Ground {
    /// Looks at all; `None` when nobody waits any more.
    pub(crate) fn of(
        view: &View,
        base: &Base,
        scope: &mut Scope<'_>,
        cancel: &AtomicBool,
    ) -> Result<Option<Ground>> {
        let table = &base.table;
        let caller = scope.caller();
        let class = |(mode, uid, gid): &(u32, u32, u32)| {
            owned(*mode, *uid, *gid).decide(caller, READ | EXECUTE)
        };
        // `None`: every such directory has an access list of its own.
        let allowed: Vec<Option<bool>> = table.permissions().iter().map(class).collect();
        let mut newer = vec![false; table.len()];
        for ino in view.delta.directories() {
            if let Some(at) = table.position(ino) {
                newer[at] = true;
            }
        }
        let start = table.position(scope.from.directory);
        let mut ground = Ground { stands: vec![Stand::Unknown; table.len()], newer, start };
        let mut chain = Vec::new();
        for first in 0..table.len() {
            if first % CHECK_EVERY == 0 && cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut at = first;
            let mut stand = loop {
                if ground.stands[at] != Stand::Unknown {
                    break ground.stands[at];
                }
                let (ino, above, _) = table.at(at);
                let known = [scope.from.directory, view.root].contains(&ino);
                if known || above == NOWHERE || above as usize == at || ground.newer[at] {
                    let standing = scope.standing(ino)?;
                    let stand =
                        if standing.open { Stand::Open(standing.depth) } else { Stand::Closed };
                    ground.stands[at] = stand;
                    break stand;
                }
                if chain.len() > table.len() {
                    let records = scope.records();
                    return Err(Error::Inconsistent {
                        tree: records.tree,
                        what: "directories lie in one another",
                        ino,
                    });
                }
                chain.push(at);
                at = above as usize;
            };
            while let Some(at) = chain.pop() {
                let (ino, _, class) = table.at(at);
                stand = match (stand, allowed[class]) {
                    (Stand::Open(depth), Some(true)) => Stand::Open(depth + 1),
                    (Stand::Open(depth), None) => {
                        let (mode, uid, gid) = table.permissions()[class];
                        let listed = scope.may_list(ino, owned(mode, uid, gid))?;
                        if listed { Stand::Open(depth + 1) } else { Stand::Closed }
                    }
                    _ => Stand::Closed,
                };
                ground.stands[at] = stand;
            }
        }
        Ok(Some(ground))
    }

    /// Whether the names of a directory count.
    pub(crate) fn is_open(&self, at: usize) -> bool {
        matches!(self.stands[at], Stand::Open(_))
    }

    /// Whether a directory may be one that is told of: the one that it is in is open, and not as
    /// deep as `deepest`. Of those whose record is newer it is not known.
    pub(crate) fn may_be_told(&self, base: &Base, at: usize, deepest: u32) -> bool {
        let (_, above, _) = base.table.at(at);
        if above == NOWHERE || self.newer[at] {
            return true;
        }
        matches!(self.stands[above as usize], Stand::Open(depth) if depth < deepest)
    }

    /// For every directory the place of the one that it is counted with, where those to a depth
    /// are told one by one; `NOWHERE`: that is not known from the table.
    pub(crate) fn counted_with(&self, base: &Base, deepest: u32) -> Vec<u32> {
        let mut with = vec![NOWHERE; self.stands.len()];
        let mut done = vec![false; self.stands.len()];
        let mut chain = Vec::new();
        for first in 0..self.stands.len() {
            let mut at = first;
            let found = loop {
                if done[at] {
                    break with[at];
                }
                let (_, above, _) = base.table.at(at);
                match self.stands[at] {
                    Stand::Open(depth) if depth <= deepest || self.start == Some(at) => {
                        break at as u32;
                    }
                    Stand::Open(_) if above != NOWHERE && !self.newer[at] => {}
                    _ => break NOWHERE,
                }
                chain.push(at);
                at = above as usize;
            };
            (with[at], done[at]) = (found, true);
            while let Some(at) = chain.pop() {
                (with[at], done[at]) = (found, true);
            }
        }
        with
    }
}
