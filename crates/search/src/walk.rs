//! Answers queries by walking down from the start, over one state of the store: the oracle of the
//! index, and the fallback without one.
//!
//! The walk holds one position per level, so its memory is proportional to the depth. It enters a
//! directory where it finds it, so it emits the first matches at once.

use std::ops::ControlFlow;
use std::sync::atomic::Ordering;

use device::Set;
use format::entry_record::EntryRecord;
use format::inode_record::FileKind;
use format::key::{self, Parsed, Part};
use inode::permissions::{EXECUTE, READ};
use inode::{Caller, Kind, Owned};
use store::{KeyRange, Read, TreeId};

use crate::assemble::{CARRY_NOTHING, Records};
use crate::error::{Error, Result};
use crate::matches::{Emit, Match, Outcome};
use crate::path::last_name;
use crate::query::{Context, Request};
use crate::row::{Row, RowBuf};
use crate::sort::Ranking;
use crate::stored::Stored;

/// Answers a request by walking a state of the store.
pub fn walk(read: &dyn Read, request: &Request<'_>, emit: Emit<'_>) -> Result<Outcome> {
    let any = Records { read, tree: crate::VOLUME, searchable: &CARRY_NOTHING };
    let mut walk = Walk {
        request,
        any,
        emit,
        outcome: Outcome { walked: 1, ..Outcome::default() },
        path: request.start.path.to_vec(),
        levels: Vec::new(),
        entered: Set::default(),
        ranking: request.order.map(|order| Ranking::new(order, request.limit)),
    };
    walk.run()?;
    Ok(walk.finish())
}

struct Walk<'a> {
    request: &'a Request<'a>,
    any: Records<'a>,
    emit: Emit<'a>,
    outcome: Outcome,
    path: Vec<u8>,
    levels: Vec<Level>,
    /// The directories of the levels. Falsified names may form a cycle, which has no end.
    entered: Set<(TreeId, u64)>,
    ranking: Option<Ranking>,
}

/// A directory that is being listed.
struct Level {
    tree: TreeId,
    subvolume: u64,
    ino: u64,
    /// The cookie after which the listing continues.
    after: u64,
    /// Length of its own path.
    path_length: usize,
    depth: u32,
    /// Its own row, if it follows its contents.
    own: Option<Box<KeptRow>>,
}

/// A row that is kept.
struct KeptRow {
    row: RowBuf,
    tree: TreeId,
    subvolume: u64,
}

/// The next step.
enum Next {
    Down(Level),
    Up,
    End,
}

impl Walk<'_> {
    fn run(&mut self) -> Result<()> {
        let start = self.request.start;
        let record = self.any.subvolume(start.subvolume)?.ok_or(Error::NotFound)?;
        let tree = TreeId(record.tree);
        let records = self.any.of_tree(tree);
        if records.directory(start.directory)?.is_none() {
            return Err(Error::NotFound);
        }
        let row = records.directory_row(start.directory, &mut Vec::new())?;
        let name = last_name(start.path);
        let row = Row { name, ..row };
        let begun = self.entered(&row, tree, start.subvolume, start.depth)?;
        let ControlFlow::Continue(Some(level)) = begun else { return Ok(()) };
        self.descend(level)?;
        while let Some(last) = self.levels.last() {
            self.path.truncate(last.path_length);
            match self.list()? {
                Next::Down(level) => self.descend(level)?,
                Next::End => return Ok(()),
                Next::Up => {
                    if self.leave()?.is_break() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Begins the listing of a directory.
    fn descend(&mut self, level: Level) -> Result<()> {
        let (tree, ino) = (level.tree, level.ino);
        if !self.entered.insert((tree, ino)) {
            return Err(self.any.of_tree(tree).inconsistent("a directory is below itself", ino));
        }
        self.levels.push(level);
        Ok(())
    }

    /// Continues the listing of the last directory, until it finds one below to enter.
    fn list(&mut self) -> Result<Next> {
        let Some(level) = self.levels.last() else { return Ok(Next::End) };
        let (tree, subvolume, depth) = (level.tree, level.subvolume, level.depth + 1);
        let records = self.any.of_tree(tree);
        let from = key::entry(level.ino, level.after + 1, Part::Attributes);
        let end = key::directory(level.ino + 1, Part::Attributes);
        let mut cursor = records.read.scan(tree, KeyRange::between(&from, &end[..9]))?;
        let mut xattrs = Vec::new();
        if self.path.last() != Some(&b'/') {
            self.path.push(b'/');
        }
        let above = self.path.len();
        while let Some(item) = cursor.next()? {
            let parsed = key::parse(item.key).map_err(|error| records.malformed(error))?;
            let Parsed::Entry { directory, cookie, part: Part::Attributes } = parsed else {
                continue;
            };
            let entry =
                EntryRecord::decode(item.value).map_err(|error| records.malformed(error))?;
            let Some(row) = records.row((directory, cookie), &entry, &mut xattrs)? else {
                continue;
            };
            self.path.truncate(above);
            self.path.extend_from_slice(row.name);
            let (tree, subvolume) = if row.subvolume == 0 {
                (tree, subvolume)
            } else {
                let nested = records.subvolume(row.subvolume)?;
                let damage = || records.inconsistent("a name points to no subvolume", entry.ino);
                let nested = nested.ok_or_else(damage)?;
                if !records.is_nested((subvolume, directory, cookie), &nested)? {
                    continue;
                }
                (TreeId(nested.tree), row.subvolume)
            };
            match self.entered(&row, tree, subvolume, depth)? {
                ControlFlow::Break(()) => return Ok(Next::End),
                ControlFlow::Continue(None) => {}
                ControlFlow::Continue(Some(next)) => {
                    if let Some(level) = self.levels.last_mut() {
                        level.after = cookie;
                    }
                    return Ok(Next::Down(next));
                }
            }
        }
        Ok(Next::Up)
    }

    /// Tests a row, at `self.path`, against the query, and returns whether to enter it.
    fn entered(
        &mut self,
        row: &Row<'_>,
        tree: TreeId,
        subvolume: u64,
        depth: u32,
    ) -> Result<ControlFlow<(), Option<Level>>> {
        let request = self.request;
        if request.cancel.load(Ordering::Relaxed) {
            self.outcome.cancelled = true;
            return Ok(ControlFlow::Break(()));
        }
        let directory = row.kind == FileKind::Directory;
        let late = request.contents_first && directory && self.ranking.is_none();
        if !late && self.put(row, tree, subvolume, depth)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let below = directory && request.max_depth.is_none_or(|most| depth < most);
        let other = request.alone && subvolume != request.start.subvolume;
        let pruned = below && (other || self.is_pruned(row, tree, subvolume, depth)?);
        let records = self.any.of_tree(tree);
        let readable = below && may_list(records, row, request.caller)?;
        if below && !pruned && !readable {
            self.outcome.unreadable += 1;
        }
        if !below || pruned || !readable {
            if late && self.put(row, tree, subvolume, depth)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            return Ok(ControlFlow::Continue(None));
        }
        let own = late.then(|| Box::new(KeptRow { row: row.to_buf(), tree, subvolume }));
        let path_length = self.path.len();
        let ino = row.ino;
        let level = Level { tree, subvolume, ino, after: 0, path_length, depth, own };
        Ok(ControlFlow::Continue(Some(level)))
    }

    /// Ends the listing of a directory.
    fn leave(&mut self) -> Result<ControlFlow<()>> {
        let Some(level) = self.levels.pop() else { return Ok(ControlFlow::Continue(())) };
        self.entered.remove(&(level.tree, level.ino));
        let Some(own) = level.own else { return Ok(ControlFlow::Continue(())) };
        self.path.truncate(level.path_length);
        self.put(&own.row.as_row(), own.tree, own.subvolume, level.depth)
    }

    fn is_pruned(&self, row: &Row<'_>, tree: TreeId, subvolume: u64, depth: u32) -> Result<bool> {
        let Some(prune) = self.request.prune.filter(|_| depth >= self.request.min_depth) else {
            return Ok(false);
        };
        let details = Stored { records: self.any.of_tree(tree) };
        let found = Match { row, path: &self.path, depth, subvolume, details: &details };
        prune.matches(&self.context(&found))
    }

    fn context<'b>(&'b self, found: &Match<'b>) -> Context<'b> {
        Context::of(found, self.request.caller, self.request.accounts, self.request.cancel)
    }

    /// Tests a row against the query and emits it if it matches.
    fn put(
        &mut self,
        row: &Row<'_>,
        tree: TreeId,
        subvolume: u64,
        depth: u32,
    ) -> Result<ControlFlow<()>> {
        if depth < self.request.min_depth {
            return Ok(ControlFlow::Continue(()));
        }
        self.outcome.rows_tested += 1;
        let details = Stored { records: self.any.of_tree(tree) };
        let found = Match { row, path: &self.path, depth, subvolume, details: &details };
        if !self.request.expr.matches(&self.context(&found))? {
            return Ok(ControlFlow::Continue(()));
        }
        if let Some(ranking) = &mut self.ranking {
            ranking.add(&found, tree);
            if ranking.is_full() {
                self.give_ordered();
            }
            let had_enough = self.outcome.cancelled;
            return Ok(if had_enough { ControlFlow::Break(()) } else { ControlFlow::Continue(()) });
        }
        if self.request.limit.is_some_and(|limit| self.outcome.matched >= limit) {
            return Ok(ControlFlow::Break(()));
        }
        self.outcome.matched += 1;
        let flow = (self.emit)(&found);
        let enough = self.request.limit.is_some_and(|limit| self.outcome.matched >= limit);
        if flow.is_break() {
            self.outcome.cancelled = true;
        }
        Ok(if enough { ControlFlow::Break(()) } else { flow })
    }

    /// Emits the ordered matches so far.
    fn give_ordered(&mut self) {
        if let Some(ranking) = &mut self.ranking {
            let (matched, cancelled) = ranking.give(self.any, &mut *self.emit);
            self.outcome.matched += matched;
            self.outcome.cancelled |= cancelled;
        }
    }

    /// Emits the ordered matches.
    fn finish(mut self) -> Outcome {
        if !self.outcome.cancelled {
            self.give_ordered();
        }
        self.outcome
    }
}

/// Whether the caller may list a directory and see the targets of its names.
pub(crate) fn may_list(records: Records<'_>, row: &Row<'_>, caller: &Caller) -> Result<bool> {
    Owned { kind: Kind::Directory, uid: row.uid, gid: row.gid, mode: row.mode }.allows(
        caller,
        READ | EXECUTE,
        || records.access_list(row.ino),
    )
}
