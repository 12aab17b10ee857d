//! Totals from the index: of a cluster in which nothing changed and all of whose directories
//! count, its sums are read; of the others the rows that count are added up, and so is what
//! differs from the base.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use format::cluster_directories::Directories;
use format::cluster_groups::Sums;
use format::entry_record::Target;
use format::inode_record::FileKind;
use store::{Pinned, TreeId};

use super::base::{Base, read_directories, read_groups};
use super::scope::{From, Scope, push_name};
use super::view::View;
use super::{Index, plan};
use crate::aggregate::walked::{Tally, finish, walk_into};
use crate::aggregate::{
    Aggregate, Question, Totals, Tree, add_directory, add_file, is_plain, sums_of,
};
use crate::assemble::{NamedEntry, Records, VOLUME};
use crate::cluster::Fields;
use crate::query::Expr;
use crate::request::Start;
use crate::{Attribute, Condition, Error, Result, Row};

/// Rows with more names than one.
const LINKED: Condition = Condition::Within(Attribute::Links, 2, u32::MAX as i128);

impl Index {
    /// Totals of a directory, over a state of the store.
    pub fn aggregate(
        &self,
        pinned: &Arc<dyn Pinned>,
        question: &Question<'_>,
    ) -> Result<Aggregate> {
        let start = question.start;
        let searchable = &self.options.searchable;
        let any = Records { read: &**pinned, tree: VOLUME, searchable };
        let record = any.subvolume(start.subvolume)?.ok_or(Error::NotFound)?;
        let records = any.of_tree(TreeId(record.tree));
        let own = records.directory(start.directory)?.ok_or(Error::NotFound)?;
        let place = (start.subvolume, start.directory);
        let mut gather = Gather {
            index: self,
            pinned,
            question,
            tally: Tally::default(),
            tree: question.directories.then(|| Tree::new(place, start.path, 0)),
            waiting: Vec::new(),
        };
        gather.add(place, &Totals { ctime: own.ctime, ..Totals::default() });
        let from = From { directory: start.directory, path: start.path.to_vec(), depth: 0 };
        gather.waiting.push((start.subvolume, from));
        while let Some((subvolume, from)) = gather.waiting.pop() {
            if question.cancel.load(Ordering::Relaxed) {
                gather.tally.answer.cancelled = true;
                break;
            }
            gather.subvolume(any, subvolume, &from)?;
        }
        Ok(finish(gather.tally.answer, gather.tree))
    }
}

/// An answer under way.
struct Gather<'a> {
    index: &'a Index,
    pinned: &'a Arc<dyn Pinned>,
    question: &'a Question<'a>,
    tally: Tally,
    tree: Option<Tree>,
    waiting: Vec<(u64, From)>,
}

/// How the directories of a cluster stand.
#[derive(Clone, Copy, Default)]
struct Standing {
    open: bool,
    closed: bool,
    /// Something in it differs.
    touched: bool,
}

impl Gather<'_> {
    /// Counts something that a name in a directory leads to.
    fn add(&mut self, directory: (u64, u64), totals: &Totals) {
        self.tally.answer.total.add(totals);
        if let Some(own) = self.tree.as_mut().and_then(|tree| tree.own(directory)) {
            own.add(totals);
        }
    }

    /// Counts a row of an open directory.
    fn row(&mut self, subvolume: u64, row: &Row<'_>) {
        let mut one = Totals { ctime: row.ctime, ..Totals::default() };
        if row.kind == FileKind::Directory {
            one.directories = 1;
            if self.question.groups {
                add_directory(&mut self.tally.answer.groups, row);
            }
        } else if self.tally.is_first(row.nlink, (subvolume, row.ino)) {
            one.sums = sums_of(row);
            if self.question.groups {
                add_file(&mut self.tally.answer.groups, row);
            }
        }
        self.add((subvolume, row.directory), &one);
    }

    fn subvolume(&mut self, any: Records<'_>, subvolume: u64, from: &From) -> Result<()> {
        let record = any.subvolume(subvolume)?.ok_or(Error::NotFound)?;
        let Some(view) = self.index.view(self.pinned, subvolume, &record)? else {
            let (directory, path) = (from.directory, &from.path[..]);
            let start = Start { subvolume, directory, path, depth: from.depth };
            let read = &**self.pinned;
            return walk_into(read, self.question, start, &mut self.tally, &mut self.tree);
        };
        let all = Expr::yes();
        let request = self.question.request(&all);
        let searchable = self.index.options.searchable.clone();
        let mut scope = Scope::new(&view, &searchable, from, &request)?;
        if self.tree.is_some() {
            self.directories(&view, &mut scope)?;
        }
        if let Some(base) = view.base.clone() {
            self.base(&view, &base, &mut scope)?;
        }
        self.delta(&view, &mut scope)?;
        self.mounted(&view, &mut scope)?;
        self.tally.answer.unreadable += plan::refused(&view, &mut scope)?;
        Ok(())
    }

    /// Puts all open directories of a subvolume into the tree.
    fn directories(&mut self, view: &View, scope: &mut Scope<'_>) -> Result<()> {
        let mut inos = Vec::new();
        if let Some(base) = &view.base {
            base.table.each(&mut |ino, _| {
                inos.push(ino);
                Ok(())
            })?;
        }
        view.delta.each(&mut |row| {
            if row.kind == FileKind::Directory {
                inos.push(row.ino);
            }
            true
        });
        for ino in inos {
            self.enter(view, scope, ino)?;
        }
        Ok(())
    }

    /// Puts a directory into the tree, and before it those that it is in. The caller sees its
    /// name if he may look into the one that it is in.
    fn enter(&mut self, view: &View, scope: &mut Scope<'_>, ino: u64) -> Result<()> {
        let mut chain = Vec::new();
        let mut at = ino;
        while !self.tree.as_ref().is_none_or(|tree| tree.has((view.subvolume, at))) {
            let Some((parent, _)) = view.place(scope.records(), at)? else { return Ok(()) };
            if parent == at || !scope.standing(parent)?.open {
                return Ok(());
            }
            chain.push(at);
            at = parent;
        }
        for ino in chain.into_iter().rev() {
            let (parent, name) = view.name(scope.records(), ino)?;
            if let Some(tree) = &mut self.tree {
                tree.add((view.subvolume, ino), (view.subvolume, parent), &name);
            }
        }
        Ok(())
    }

    /// What the base's clusters come to.
    fn base(&mut self, view: &View, base: &Arc<Base>, scope: &mut Scope<'_>) -> Result<()> {
        let mut chosen = vec![false; base.clusters.len()];
        for number in plan::clusters(view, base, scope, &[])? {
            chosen[number as usize] = true;
        }
        let mut standing = vec![Standing::default(); base.clusters.len()];
        base.table.each(&mut |ino, cluster| {
            if chosen[cluster as usize] {
                let open = scope.standing(ino)?.open;
                let found = &mut standing[cluster as usize];
                found.open |= open;
                found.closed |= !open;
            }
            Ok(())
        })?;
        view.delta.each_place(&mut |(directory, cookie)| {
            if let Some(cluster) = base.table.cluster_of(directory, cookie) {
                standing[cluster as usize].touched = true;
            }
        });
        for (number, found) in standing.into_iter().enumerate() {
            if self.question.cancel.load(Ordering::Relaxed) {
                self.tally.answer.cancelled = true;
                return Ok(());
            }
            if !found.open {
                continue;
            }
            let whole = !found.closed && !found.touched;
            let number = number as u32;
            match if whole { self.whole(view, base, number)? } else { None } {
                None => self.rows(view, base, number, scope, None)?,
                Some(0) => {}
                Some(_) => self.rows(view, base, number, scope, Some(LINKED))?,
            }
        }
        Ok(())
    }

    /// Adds the sums of a cluster, and tells how many rows they leave out; `None` when they cannot
    /// be read.
    fn whole(&mut self, view: &View, base: &Base, number: u32) -> Result<Option<u64>> {
        let cluster = &base.clusters[number as usize];
        let read = || -> Result<_> {
            let groups = read_groups(&self.index.files, cluster)?;
            let own = match self.tree {
                Some(_) => Some(read_directories(&self.index.files, &base.entry(number))?),
                None => None,
            };
            Ok((groups, own))
        };
        let (mut groups, own) = match read() {
            Ok(found) => found,
            Err(error) if error.is_of_index() => {
                super::note_damage("the sums of a cluster", &error);
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        // Those are counted one by one, and are not left out of the answer.
        let linked = std::mem::take(&mut groups.linked);
        let (directories, ctime) = (groups.directories, groups.ctime);
        let sums = groups.total();
        self.tally.answer.total.add(&Totals { sums, directories, ctime });
        if self.question.groups {
            self.tally.answer.groups.merge(&groups);
        }
        let (Some(own), Some(tree)) = (own, self.tree.as_mut()) else { return Ok(Some(linked)) };
        let mut listed = Directories::new(&own);
        // Its checksum was right: what does not decode was written so.
        while let Ok(Some(directory)) = listed.read_next() {
            let sums = Sums {
                files: directory.files,
                bytes: directory.bytes,
                allocated: directory.allocated,
            };
            let totals =
                Totals { sums, directories: directory.subdirectories, ctime: directory.ctime };
            if let Some(known) = tree.own((view.subvolume, directory.ino)) {
                known.add(&totals);
            }
        }
        Ok(Some(linked))
    }

    /// Adds rows of a cluster one by one: all that count, or those that meet a condition, of which
    /// then only what the sums leave out is counted.
    fn rows(
        &mut self,
        view: &View,
        base: &Base,
        number: u32,
        scope: &mut Scope<'_>,
        only: Option<Condition>,
    ) -> Result<()> {
        let narrow: Vec<Condition> = only.into_iter().collect();
        let mut fields = Fields::IDENTITY;
        for attribute in [Attribute::Links, Attribute::Size, Attribute::Allocated, Attribute::Ctime]
        {
            fields = fields.and(Fields::of(attribute));
        }
        if self.question.groups {
            for attribute in [Attribute::Uid, Attribute::Gid, Attribute::Mtime] {
                fields = fields.and(Fields::of(attribute));
            }
        }
        // A cluster that is damaged is gone through again: counted is only what came to the end.
        let mut counted = Vec::new();
        self.index.with_cluster(view, base, number, &mut |cluster| {
            counted.clear();
            let rows = cluster.rows(fields)?;
            let mut failed = None;
            let flow = cluster.search(&narrow, &mut |at| {
                let row = rows.get(at);
                let summed = row.kind == FileKind::Directory || is_plain(&row);
                if !narrow.is_empty() && summed || view.delta.hides((row.directory, row.cookie)) {
                    return ControlFlow::Continue(());
                }
                match scope.standing(row.directory) {
                    Ok(standing) if standing.open => counted.push(row.to_buf()),
                    Ok(_) => {}
                    Err(error) => {
                        failed = Some(error);
                        return ControlFlow::Break(());
                    }
                }
                ControlFlow::Continue(())
            })?;
            debug_assert!(flow.is_continue() || failed.is_some(), "nothing else ends it");
            failed.map_or(Ok(()), Err)
        })?;
        self.index.settle(base.clusters[number as usize].id);
        for row in counted {
            self.row(view.subvolume, &row.as_row());
        }
        Ok(())
    }

    /// What differs from the base.
    fn delta(&mut self, view: &View, scope: &mut Scope<'_>) -> Result<()> {
        let mut failed = None;
        view.delta.each(&mut |row| {
            match scope.standing(row.directory) {
                Ok(standing) if standing.open => self.row(view.subvolume, row),
                Ok(_) => {}
                Err(error) => failed = Some(error),
            }
            failed.is_none()
        });
        failed.map_or(Ok(()), Err)
    }

    /// Subvolumes that are mounted in open directories.
    fn mounted(&mut self, view: &View, scope: &mut Scope<'_>) -> Result<()> {
        let mounts = self.index.mounts.of(self.pinned)?;
        let records = scope.records();
        let mut found = NamedEntry::default();
        for (nested, directory, cookie) in mounts.inside(view.subvolume) {
            let standing = scope.standing(directory)?;
            if !standing.open {
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
            if let Some(tree) = &mut self.tree {
                tree.add((nested, record.root), (view.subvolume, directory), &found.name);
            }
            self.row(view.subvolume, &row);
            let mut path = Vec::new();
            scope.path(directory, &mut path)?;
            push_name(&mut path, &found.name);
            let depth = standing.depth + 1;
            self.waiting.push((nested, From { directory: record.root, path, depth }));
        }
        Ok(())
    }
}
