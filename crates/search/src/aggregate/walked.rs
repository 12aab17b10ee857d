//! Totals by walking: used where there is no index, and as a reference for those of the index.

use std::ops::ControlFlow;

use format::inode_record::FileKind;
use store::Read;

use super::memory::{Memory, Seen, counted_bytes, group_bytes};
use super::tree::{DirectoryId, Tree};
use super::{Aggregate, GroupCounts, LargeDirectory, Question, Totals, sums_of};
use crate::path::last_name;
use crate::query::{Expr, Start};
use crate::walk::walk;
use crate::{Result, Row};

/// Sums of rows that are counted one by one.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) answer: Aggregate,
    /// The groups that are counted row by row.
    pub(crate) groups: GroupCounts,
    /// Inodes with several names that were seen.
    pub(crate) linked: Seen,
    pub(crate) memory: Memory,
}

impl Tally {
    pub(crate) fn new(question: &Question<'_>) -> Tally {
        Tally { memory: Memory::of(question), ..Tally::default() }
    }

    /// Whether an inode counts here: it was not seen before.
    pub(crate) fn is_first(&mut self, nlink: u32, place: DirectoryId) -> Result<bool> {
        if nlink <= 1 {
            return Ok(true);
        }
        let is_first = self.linked.insert(place);
        self.check_memory(0)?;
        Ok(is_first)
    }

    /// Counts an inode that is not a directory into groups.
    pub(crate) fn file(&mut self, row: &Row<'_>) -> Result<()> {
        self.groups.file(row);
        self.check_memory(0)
    }

    /// Refuses an answer that takes too much memory, with so many bytes beside the tally.
    pub(crate) fn check_memory(&self, more: usize) -> Result<()> {
        self.memory.check(self.bytes() + more)
    }

    /// How much it takes.
    pub(crate) fn bytes(&self) -> usize {
        self.linked.bytes() + counted_bytes(&self.groups) + group_bytes(&self.answer.groups)
    }
}

/// Totals of a directory, counted row by row.
pub fn aggregate_by_walking(read: &dyn Read, question: &Question<'_>) -> Result<Aggregate> {
    let mut tally = Tally::new(question);
    let start = question.start;
    let place = (start.subvolume, start.directory);
    let caller = question.caller;
    let mut tree =
        question.directories.map(|deepest| Tree::new(caller, place, start.path, deepest));
    walk_into(read, question, start, &mut tally, &mut tree)?;
    Ok(finish(tally, tree, question))
}

/// The answer, with its directories.
pub(crate) fn finish(tally: Tally, tree: Option<Tree>, question: &Question<'_>) -> Aggregate {
    let Tally { mut answer, groups, .. } = tally;
    if question.groups {
        answer.groups.absorb(groups.finish());
    }
    answer.settle_largest(question.largest);
    answer.directories = tree.map(Tree::finish).unwrap_or_default();
    answer
}

/// Counts everything below a directory, and the directory's own change.
pub(crate) fn walk_into(
    read: &dyn Read,
    question: &Question<'_>,
    start: Start<'_>,
    tally: &mut Tally,
    tree: &mut Option<Tree>,
) -> Result<()> {
    let all = Expr::yes();
    let request = crate::Request { start, ..question.request(&all) };
    let own_place = (start.subvolume, start.directory);
    // The ancestors of the current position, from the start on: the walk descends into each as it
    // reaches it.
    let mut places: Vec<DirectoryId> = vec![own_place];
    let mut first = true;
    // All directories, with the sums of their own names.
    let mut holding =
        (question.largest > 0).then(|| Tree::new(question.caller, own_place, start.path, u32::MAX));
    let mut refused = None;
    let outcome = walk(read, &request, &mut |found| {
        let row = found.row;
        let mut one = Totals { ctime: row.ctime, ..Totals::default() };
        if std::mem::take(&mut first) {
            // A mounted subvolume counts, as any directory, where its name is.
            if own_place == (question.start.subvolume, question.start.directory) {
                tally.answer.total.ctime = tally.answer.total.ctime.max(row.ctime);
                if let Some(own) = tree.as_mut().and_then(|tree| tree.own_totals(own_place)) {
                    own.add(&one);
                }
            }
            return ControlFlow::Continue(());
        }
        places.truncate((found.depth - start.depth) as usize);
        let parent = places.last().copied();
        if row.kind == FileKind::Directory {
            one.directories = 1;
            if question.groups {
                tally.groups.directory(row);
            }
            let place = (found.subvolume, row.ino);
            for tree in [tree.as_mut(), holding.as_mut()].into_iter().flatten() {
                let Some(parent) = parent else { continue };
                if let Err(error) = tree.add(place, parent, last_name(found.path)) {
                    refused = Some(error);
                    return ControlFlow::Break(());
                }
            }
            places.push(place);
        } else {
            let counted = tally.is_first(row.nlink, (found.subvolume, row.ino));
            let counted = counted.and_then(|is_first| {
                if is_first {
                    one.sums = sums_of(row);
                }
                if is_first && question.groups { tally.file(row) } else { Ok(()) }
            });
            if let Err(error) = counted {
                refused = Some(error);
                return ControlFlow::Break(());
            }
        }
        tally.answer.total.add(&one);
        for tree in [tree.as_mut(), holding.as_mut()].into_iter().flatten() {
            if let Some(own) = parent.and_then(|parent| tree.own_totals(parent)) {
                own.add(&one);
            }
        }
        ControlFlow::Continue(())
    })?;
    if let Some(error) = refused {
        return Err(error);
    }
    if let Some(holding) = holding {
        let mut found = Aggregate::default();
        for (place, own) in holding.holding() {
            found.largest.push(LargeDirectory { path: Vec::new(), depth: 0, place, own });
        }
        found.settle_largest(question.largest);
        for one in &mut found.largest {
            (one.path, one.depth) = holding.path(one.place);
            one.depth += start.depth;
        }
        tally.answer.largest.append(&mut found.largest);
        // There may be any number of subvolumes.
        tally.answer.settle_largest(question.largest);
    }
    tally.answer.unreadable += outcome.unreadable;
    tally.answer.cancelled |= outcome.cancelled;
    Ok(())
}
