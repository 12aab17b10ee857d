//! Totals from the index: the sums of the base's clusters (`totals_base`), and the differences from
//! the base, row by row. Then the same for the subvolumes mounted below.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::entry_record::Target;
use format::inode_record::FileKind;
use store::{Pinned, TreeId};

use super::base::Base;
use super::classified::Classified;
use super::holding::Holding;
use super::scope::{From, Scope};
use super::table::NOWHERE;
use super::view::View;
use super::{Index, plan};
use crate::aggregate::memory::WAITING_BYTES;
use crate::aggregate::walked::{Tally, finish, walk_into};
use crate::aggregate::{Aggregate, LargeDirectory, Question, Totals, Tree, is_plain, sums_of};
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records, VOLUME};
use crate::cluster::Fields;
use crate::path::push_name;
use crate::query::{Expr, Start};
use crate::{Attribute, Condition, Error, Narrow, Result, Row};

/// Inodes with several names; directories are excluded.
pub(super) fn linked() -> Narrow {
    let others =
        (0..=u8::MAX).filter_map(FileKind::decode).filter(|kind| *kind != FileKind::Directory);
    let kinds = others.map(|kind| kind.byte().into()).collect();
    vec![
        Condition::OneOf(Attribute::Kind, kinds),
        Condition::Within(Attribute::Links, 2, u32::MAX.into()),
    ]
}

impl Index {
    /// Totals of a directory, over a state of the store.
    pub fn aggregate(
        &self,
        pinned: &Arc<dyn Pinned>,
        question: &Question<'_>,
    ) -> Result<Aggregate> {
        let start = question.start;
        let any = Records { read: &**pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        let record = any.subvolume(start.subvolume)?.ok_or(Error::NotFound)?;
        let records = any.of_tree(TreeId(record.tree));
        let own = records.directory(start.directory)?.ok_or(Error::NotFound)?;
        let place = (start.subvolume, start.directory);
        let mut gather = Gather {
            index: self,
            pinned,
            question,
            tally: Tally::new(question),
            tree: question
                .directories
                .map(|deepest| Tree::new(question.caller, place, start.path, deepest)),
            holding: Holding::default(),
            waiting: Vec::new(),
            waiting_bytes: 0,
        };
        gather.tally.answer.total.ctime = own.ctime;
        if let Some(known) = gather.tree.as_mut().and_then(|tree| tree.own_totals(place)) {
            known.ctime = own.ctime;
        }
        let from = From { directory: start.directory, path: start.path.to_vec(), depth: 0 };
        gather.wait(start.subvolume, from)?;
        while let Some((subvolume, from)) = gather.waiting.pop() {
            if gather.is_cancelled() {
                break;
            }
            gather.waiting_bytes -= from.path.len() + WAITING_BYTES;
            gather.subvolume(any, subvolume, &from)?;
        }
        Ok(finish(gather.tally, gather.tree, question))
    }
}

/// An answer in progress.
pub(super) struct Gather<'a> {
    pub(super) index: &'a Index,
    pinned: &'a Arc<dyn Pinned>,
    pub(super) question: &'a Question<'a>,
    pub(super) tally: Tally,
    pub(super) tree: Option<Tree>,
    /// The sums of a subvolume's directories that may be among the largest.
    pub(super) holding: Holding,
    waiting: Vec<(u64, From)>,
    waiting_bytes: usize,
}

/// One subvolume of the answer.
pub(super) struct SubvolumePart<'a, 'b> {
    pub(super) view: &'a View,
    pub(super) scope: &'a mut Scope<'b>,
    /// For each position in the base's table, the directory that its sums go to.
    pub(super) with: Vec<u32>,
}

impl Gather<'_> {
    pub(super) fn is_cancelled(&mut self) -> bool {
        self.tally.answer.cancelled |= self.question.cancel.load(Ordering::Relaxed);
        self.tally.answer.cancelled
    }

    /// Has a subvolume counted later.
    fn wait(&mut self, subvolume: u64, from: From) -> Result<()> {
        self.waiting_bytes += from.path.len() + WAITING_BYTES;
        self.waiting.push((subvolume, from));
        self.check_memory(0)
    }

    /// Refuses an answer that takes too much memory.
    pub(super) fn check_memory(&self, more: usize) -> Result<()> {
        self.tally.check_memory(self.holding.bytes() + self.waiting_bytes + more)
    }

    /// Counts the target of a name in a directory.
    fn add(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        directory: u64,
        totals: &Totals,
    ) -> Result<()> {
        self.tally.answer.total.add(totals);
        if self.question.largest > 0 && totals.sums.files > 0 {
            self.holding.add(directory, totals.sums);
            self.check_memory(0)?;
        }
        if let Some(own) = self.counted(place, directory)? {
            own.add(totals);
        }
        Ok(())
    }

    /// The totals that a directory is counted in, for adding to them.
    pub(super) fn counted(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        directory: u64,
    ) -> Result<Option<&mut Totals>> {
        let at = self.counted_at(place, directory)?;
        Ok(self.tree.as_mut().and_then(|tree| tree.own_totals(at)))
    }

    /// The directory of the tree that a directory is counted with.
    fn counted_at(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        directory: u64,
    ) -> Result<(u64, u64)> {
        let own = (place.view.subvolume, directory);
        let Some(tree) = self.tree.as_ref().filter(|tree| !tree.has(own)) else { return Ok(own) };
        if let Some(base) = &place.view.base {
            let with = base.table.position(directory).and_then(|at| place.with.get(at));
            if let Some(with) = with.filter(|with| **with != NOWHERE) {
                let with = (place.view.subvolume, base.table.at(*with as usize).0);
                if tree.has(with) {
                    return Ok(with);
                }
            }
        }
        self.enter(place, directory)?;
        Ok(own)
    }

    /// Counts a row of an open directory.
    fn row(&mut self, place: &mut SubvolumePart<'_, '_>, row: &Row<'_>) -> Result<()> {
        let mut one = Totals { ctime: row.ctime, ..Totals::default() };
        if row.kind == FileKind::Directory {
            one.directories = 1;
            if self.question.groups {
                self.tally.groups.directory(row);
            }
        } else if self.tally.is_first(row.nlink, (place.view.subvolume, row.ino))? {
            one.sums = sums_of(row);
            if self.question.groups {
                self.tally.file(row)?;
            }
        }
        self.add(place, row.directory, &one)
    }

    fn subvolume(&mut self, any: Records<'_>, subvolume: u64, from: &From) -> Result<()> {
        let record = any.subvolume(subvolume)?.ok_or(Error::NotFound)?;
        let view = self.index.view(self.pinned, subvolume, &record, self.question.cancel)?;
        if self.is_cancelled() {
            return Ok(());
        }
        let Some(view) = view else {
            let (directory, path) = (from.directory, &from.path[..]);
            let start = Start { subvolume, directory, path, depth: from.depth };
            let read = &**self.pinned;
            return walk_into(read, self.question, start, &mut self.tally, &mut self.tree);
        };
        let all = Expr::yes();
        let request = self.question.request(&all);
        let mut scope = Scope::new(&view, from, &request)?;
        let mut place = SubvolumePart { view: &view, scope: &mut scope, with: Vec::new() };
        let mut known = None;
        if let Some(base) = view.base.clone() {
            let cancel = self.question.cancel;
            let Some(classified) = Classified::of(&view, &base, place.scope, cancel)? else {
                self.tally.answer.cancelled = true;
                return Ok(());
            };
            self.directories(&mut place, &base, &classified)?;
            known = Some((base, classified));
        }
        // First, because it mostly includes the last change: then the base's last change is not
        // needed.
        self.delta(&mut place, known.as_ref())?;
        if let Some((base, classified)) = &known {
            self.base(&mut place, base, classified)?;
        }
        if self.is_cancelled() {
            return Ok(());
        }
        self.mounted(&mut place)?;
        self.largest(&mut place, known.as_ref().map(|(base, _)| &**base))?;
        self.tally.answer.unreadable += plan::refused(&view, place.scope)?;
        Ok(())
    }

    /// Adds the reported directories of a base to the tree, and determines which of them each other
    /// directory is counted with.
    fn directories(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        base: &Base,
        classified: &Classified,
    ) -> Result<()> {
        let Some(deepest) = self.question.directories.filter(|_| self.tree.is_some()) else {
            return Ok(());
        };
        place.with = classified.counted_with(base, deepest);
        for at in 0..base.table.len() {
            if classified.may_be_reported(base, at, deepest) {
                self.enter(place, base.table.at(at).0)?;
            }
        }
        Ok(())
    }

    /// Adds a directory to the tree, after its ancestors. The caller sees its name if they may look
    /// into its parent.
    fn enter(&mut self, place: &mut SubvolumePart<'_, '_>, ino: u64) -> Result<()> {
        let view = place.view;
        let mut chain = Vec::new();
        let mut at = ino;
        while !self.tree.as_ref().is_none_or(|tree| tree.has((view.subvolume, at))) {
            let Some((parent, _)) = view.place(place.scope.records(), at)? else { return Ok(()) };
            if parent == at || !place.scope.access(parent)?.open {
                return Ok(());
            }
            chain.push(at);
            at = parent;
        }
        for ino in chain.into_iter().rev() {
            let (parent, name) = view.name(place.scope.records(), ino)?;
            if let Some(tree) = &mut self.tree {
                tree.add((view.subvolume, ino), (view.subvolume, parent), &name)?;
            }
        }
        Ok(())
    }

    /// Adds rows of a cluster one by one: all that count, or those that meet conditions. With
    /// conditions, only the rows that the sums leave out are counted.
    pub(super) fn rows(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        base: &Base,
        number: u32,
        narrow: &[Condition],
    ) -> Result<()> {
        let fields = fields(self.question.groups);
        // A damaged cluster is read again from the start: only a complete pass counts.
        let (mut counted, mut rows) = (Vec::new(), None);
        let SubvolumePart { view, scope, .. } = place;
        self.index.with_cluster(view, base, number, &mut |cluster| {
            counted.clear();
            let known = cluster.rows(fields)?;
            let mut failed = None;
            let flow = cluster.search(narrow, &mut |at| {
                let row = known.get(at);
                let summed = row.kind == FileKind::Directory || is_plain(&row);
                if !narrow.is_empty() && summed || view.delta.hides((row.directory, row.cookie)) {
                    return ControlFlow::Continue(());
                }
                match scope.access(row.directory) {
                    Ok(access) if access.open => counted.push(at),
                    Ok(_) => {}
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            debug_assert!(flow.is_continue() || failed.is_some(), "nothing else ends it");
            rows = Some(known);
            failed.map_or(Ok(()), Err)
        })?;
        self.index.settle(base.clusters[number as usize].id);
        if let Some(rows) = rows {
            for at in counted {
                self.row(place, &rows.get(at))?;
            }
        }
        Ok(())
    }

    /// Adds the differences from the base.
    fn delta(
        &mut self,
        place: &mut SubvolumePart<'_, '_>,
        known: Option<&(Arc<Base>, Classified)>,
    ) -> Result<()> {
        let mut failed = None;
        let view = place.view;
        // Consecutive rows mostly share a directory.
        let mut last = None;
        view.delta.each(&mut |row| {
            let open = match last {
                Some((directory, open)) if directory == row.directory => Ok(open),
                _ => is_open(place, known, row.directory),
            };
            let counted = open.and_then(|open| {
                last = Some((row.directory, open));
                if open { self.delta_row(place, row) } else { Ok(()) }
            });
            failed = counted.err();
            failed.is_none() && !self.question.cancel.load(Ordering::Relaxed)
        });
        self.is_cancelled();
        failed.map_or(Ok(()), Err)
    }

    fn delta_row(&mut self, place: &mut SubvolumePart<'_, '_>, row: &Row<'_>) -> Result<()> {
        if row.kind == FileKind::Directory {
            // It may be missing in the base.
            self.enter(place, row.ino)?;
        }
        self.row(place, row)
    }

    /// Adds subvolumes mounted in open directories.
    fn mounted(&mut self, place: &mut SubvolumePart<'_, '_>) -> Result<()> {
        let subvolume = place.view.subvolume;
        let mounts = self.index.mounts.of(self.pinned)?;
        let records = place.scope.records();
        let mut found = NamedEntry::default();
        for (nested, directory, cookie) in mounts.inside(subvolume) {
            let access = place.scope.access(directory)?;
            if !access.open {
                continue;
            }
            records.entry(directory, cookie, &mut found)?;
            if found.target != Some(Target::Subvolume(nested)) {
                continue;
            }
            let record = records.subvolume(nested)?.ok_or(Error::NotFound)?;
            let own = records.of_tree(TreeId(record.tree));
            let row = own.directory_row(record.root, &mut Vec::new())?;
            let row = Row { directory, cookie, name: &found.name, ..row };
            let above = self.counted_at(place, directory)?;
            if let Some(tree) = &mut self.tree {
                tree.add((nested, record.root), above, &found.name)?;
            }
            self.row(place, &row)?;
            let mut path = Vec::new();
            place.scope.path(directory, &mut path)?;
            push_name(&mut path, &found.name);
            let depth = access.depth + 1;
            self.wait(nested, From { directory: record.root, path, depth })?;
        }
        Ok(())
    }

    /// Determines which directories of the subvolume may be among the largest of all.
    fn largest(&mut self, place: &mut SubvolumePart<'_, '_>, base: Option<&Base>) -> Result<()> {
        let count = self.question.largest;
        if count == 0 {
            return Ok(());
        }
        let mut holding = std::mem::take(&mut self.holding);
        if let Some(base) = base {
            for number in holding.unread(base, count) {
                if self.is_cancelled() {
                    return Ok(());
                }
                holding.add_others(base, number, &self.own_sums(place.view, base, number)?);
                self.check_memory(holding.bytes())?;
            }
        }
        for (ino, own) in holding.largest(count) {
            let mut path = Vec::new();
            place.scope.path(ino, &mut path)?;
            let depth = place.scope.access(ino)?.depth;
            let place = (place.view.subvolume, ino);
            self.tally.answer.largest.push(LargeDirectory { path, depth, place, own });
        }
        // There may be any number of subvolumes.
        self.tally.answer.settle_largest(count);
        Ok(())
    }
}

/// Whether the names of a directory count.
fn is_open(
    place: &mut SubvolumePart<'_, '_>,
    known: Option<&(Arc<Base>, Classified)>,
    directory: u64,
) -> Result<bool> {
    if let Some((base, classified)) = known
        && let Some(at) = base.table.position(directory)
    {
        return Ok(classified.is_open(at));
    }
    Ok(place.scope.access(directory)?.open)
}

/// The columns that counting rows needs.
pub(super) fn fields(groups: bool) -> Fields {
    let mut fields = Fields::IDENTITY;
    for attribute in [Attribute::Links, Attribute::Size, Attribute::Allocated, Attribute::Ctime] {
        fields = fields.and(Fields::of(attribute));
    }
    if groups {
        for attribute in [Attribute::Uid, Attribute::Gid, Attribute::Mtime] {
            fields = fields.and(Fields::of(attribute));
        }
    }
    fields
}
