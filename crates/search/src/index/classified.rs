//! Classifies every directory of a base for one query, in one pass over the table. The scope of the
//! query decides where the store has a newer record of a directory. It also decides for a directory
//! inside one that the table does not have.

use std::sync::atomic::{AtomicBool, Ordering};

use inode::permissions::{EXECUTE, READ};

use super::base::Base;
use super::scope::Scope;
use super::table::NOWHERE;
use super::view::{View, owned};
use crate::{Error, Result};

/// Directories between two checks for cancellation.
const CHECK_EVERY: usize = 1 << 14;

/// The classification of a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Not classified yet.
    Unknown,
    /// Its names do not count.
    Closed,
    /// Its names count; its depth.
    Open(u32),
}

/// The classification of a base's directories, by their positions in its table.
pub(crate) struct Classified {
    verdicts: Vec<Verdict>,
    /// Directories whose record is newer than the table's.
    newer: Vec<bool>,
    /// Position of the start, which is always reported.
    start: Option<usize>,
}

impl Classified {
    /// Classifies all; `None` if the caller cancelled.
    pub(crate) fn of(
        view: &View,
        base: &Base,
        scope: &mut Scope<'_>,
        cancel: &AtomicBool,
    ) -> Result<Option<Classified>> {
        let table = &base.table;
        let caller = scope.caller();
        let class = |(mode, uid, gid): &(u32, u32, u32)| {
            owned(*mode, *uid, *gid).decide(caller, READ | EXECUTE)
        };
        // `None`: every such directory has its own access list.
        let allowed: Vec<Option<bool>> = table.permissions().iter().map(class).collect();
        let mut newer = vec![false; table.len()];
        for ino in view.delta.directories() {
            if let Some(at) = table.position(ino) {
                newer[at] = true;
            }
        }
        let start = table.position(scope.from.directory);
        let mut classified =
            Classified { verdicts: vec![Verdict::Unknown; table.len()], newer, start };
        let mut chain = Vec::new();
        for first in 0..table.len() {
            if first % CHECK_EVERY == 0 && cancel.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let mut at = first;
            let mut verdict = loop {
                if classified.verdicts[at] != Verdict::Unknown {
                    break classified.verdicts[at];
                }
                let (ino, above, _) = table.at(at);
                let known = [scope.from.directory, view.root].contains(&ino);
                if known || above == NOWHERE || above as usize == at || classified.newer[at] {
                    let access = scope.access(ino)?;
                    let verdict =
                        if access.open { Verdict::Open(access.depth) } else { Verdict::Closed };
                    classified.verdicts[at] = verdict;
                    break verdict;
                }
                if chain.len() > table.len() {
                    let records = scope.records();
                    return Err(Error::Inconsistent {
                        tree: records.tree,
                        what: "directories contain each other",
                        ino,
                    });
                }
                chain.push(at);
                at = above as usize;
            };
            while let Some(at) = chain.pop() {
                let (ino, _, class) = table.at(at);
                verdict = match (verdict, allowed[class]) {
                    (Verdict::Open(depth), Some(true)) => Verdict::Open(depth + 1),
                    (Verdict::Open(depth), None) => {
                        let (mode, uid, gid) = table.permissions()[class];
                        let listed = scope.may_list(ino, owned(mode, uid, gid))?;
                        if listed { Verdict::Open(depth + 1) } else { Verdict::Closed }
                    }
                    _ => Verdict::Closed,
                };
                classified.verdicts[at] = verdict;
            }
        }
        Ok(Some(classified))
    }

    /// Whether the names of a directory count.
    pub(crate) fn is_open(&self, at: usize) -> bool {
        matches!(self.verdicts[at], Verdict::Open(_))
    }

    /// Whether a directory may be reported: its parent is open and less deep than `deepest`. `true`
    /// if the table does not determine that, as for a directory whose record is newer.
    pub(crate) fn may_be_reported(&self, base: &Base, at: usize, deepest: u32) -> bool {
        let (_, above, _) = base.table.at(at);
        if above == NOWHERE || self.newer[at] {
            return true;
        }
        matches!(self.verdicts[above as usize], Verdict::Open(depth) if depth < deepest)
    }

    /// For every directory, the position of the directory that its sums go to, if directories down
    /// to a depth are reported one by one. `NOWHERE`: the table does not determine it.
    pub(crate) fn counted_with(&self, base: &Base, deepest: u32) -> Vec<u32> {
        let mut with = vec![NOWHERE; self.verdicts.len()];
        let mut done = vec![false; self.verdicts.len()];
        let mut chain = Vec::new();
        for first in 0..self.verdicts.len() {
            let mut at = first;
            let found = loop {
                if done[at] {
                    break with[at];
                }
                let (_, above, _) = base.table.at(at);
                match self.verdicts[at] {
                    Verdict::Open(depth) if depth <= deepest || self.start == Some(at) => {
                        break at as u32;
                    }
                    Verdict::Open(_) if above != NOWHERE && !self.newer[at] => {}
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
