//! Queries answered by the index: first clusters that no filter excludes, then the differences from
//! them, then the subvolumes mounted below.
//!
//! 1. Plan: select the base's clusters in scope whose summaries may match.
//! 2. Search the differences from the base first: they are in memory.
//! 3. Search the clusters, on several threads; a row counts unless its place differs. If a summary
//!    or a column cannot decide, the whole query is evaluated. Paths are built for matches only.
//! 4. Continue in each subvolume that is mounted in an open directory.
//!
//! Without an index, and with too many differences for memory, a walk answers.

use device::sync::{Receiver, bounded_channel};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use format::entry_record::{EntryRecord, Target};
use store::{Pinned, TreeId};

use super::scope::{From, Scope};
use super::view::View;
use super::worker::{CHECK_EVERY, Counts, MatchedRow, Message, Search, test};
use super::{Index, ahead, plan};
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records, VOLUME};
use crate::cluster::{Fields, Like};
use crate::matches::{Emit, Match, Outcome, Sort, SortBy};
use crate::path::{last_name, push_name};
use crate::query::{Context, Request};
use crate::sort::Ranking;
use crate::stored::Stored;
use crate::walk::walk;
use crate::{Error, Narrow, Result, Row, Start};

/// Batches that wait for the receiver.
const BATCHES_WAITING: usize = 16;

impl Index {
    /// Answers a query over a state of the store.
    pub fn run(
        &self,
        pinned: Arc<dyn Pinned>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> Result<Outcome> {
        Run::new(self, pinned, request, emit).run()
    }

    /// Like [`Index::run`], but only counts the matches: [`Outcome::matched`] is the whole result,
    /// in no order.
    pub fn count(&self, pinned: Arc<dyn Pinned>, request: &Request<'_>) -> Result<Outcome> {
        let request = Request { order: None, limit: None, contents_first: false, ..*request };
        let mut emit = |_: &Match<'_>| ControlFlow::Continue(());
        Run::new(self, pinned, &request, &mut emit).counting().run()
    }
}

/// One query in progress.
pub(crate) struct Run<'a> {
    pub(super) index: &'a Index,
    pinned: Arc<dyn Pinned>,
    pub(super) request: &'a Request<'a>,
    pub(super) narrow: Narrow,
    emit: Emit<'a>,
    /// Only count the matches: there is neither order nor limit.
    counting: bool,
    ranking: Option<Ranking>,
    /// Distance of the farthest of the nearest rows found so far, once there are enough.
    farthest: Arc<AtomicU64>,
    pub(super) outcome: Outcome,
}

pub(super) type Flow = ControlFlow<()>;

impl<'a> Run<'a> {
    pub(crate) fn new(
        index: &'a Index,
        pinned: Arc<dyn Pinned>,
        request: &'a Request<'a>,
        emit: Emit<'a>,
    ) -> Run<'a> {
        Run {
            index,
            pinned,
            request,
            narrow: request.expr.narrow(request.start.subvolume),
            emit,
            counting: false,
            ranking: request.order.map(|order| Ranking::new(order, request.limit)),
            farthest: Arc::new(AtomicU64::new(u64::MAX)),
            outcome: Outcome::default(),
        }
    }

    /// The same, but only counts the matches, without order and limit.
    pub(crate) fn counting(self) -> Run<'a> {
        Run { counting: true, ..self }
    }

    /// Answers the query.
    pub(crate) fn run(mut self) -> Result<Outcome> {
        let (start, index) = (self.request.start, self.index);
        let pinned = Arc::clone(&self.pinned);
        if self.request.contents_first && self.ranking.is_none() {
            // The index does not support this order.
            return walk(&*pinned, self.request, self.emit);
        }
        let any = Records { read: &*pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        let record = any.subvolume(start.subvolume)?.ok_or(Error::NotFound)?;
        let records = any.of_tree(TreeId(record.tree));
        if records.directory(start.directory)?.is_none() {
            return Err(Error::NotFound);
        }
        let mut xattrs = Vec::new();
        let row = records.directory_row(start.directory, &mut xattrs)?;
        let row = Row { name: last_name(start.path), xattrs: &xattrs, ..row };
        let mut flow = self.put(records, &row, start.path, start.depth, start.subvolume)?;
        let path = start.path.to_vec();
        let first = From { directory: start.directory, path, depth: start.depth };
        let mut waiting = Vec::new();
        if !self.is_pruned(records, &row, start.path, start.depth, start.subvolume)? {
            waiting.push((start.subvolume, first));
        }
        while let (Flow::Continue(()), Some((subvolume, from))) = (flow, waiting.pop()) {
            let behind = waiting.iter().rev().map(|(subvolume, _)| *subvolume);
            ahead::look(
                index,
                &pinned,
                self.request.cancel,
                std::iter::once(subvolume).chain(behind),
            )?;
            flow = self.subvolume(any, subvolume, &from, &mut waiting)?;
        }
        if !self.outcome.cancelled {
            self.give_ordered();
        }
        Ok(self.outcome)
    }

    /// Emits the ordered matches so far.
    fn give_ordered(&mut self) {
        let any = Records { read: &*self.pinned, tree: VOLUME, searchable: &CARRY_NOTHING };
        if let Some(ranking) = &mut self.ranking {
            let (matched, cancelled) = ranking.give(any, &mut *self.emit);
            self.outcome.matched += matched;
            self.outcome.cancelled |= cancelled;
        }
    }

    fn context<'b>(
        &'b self,
        row: &'b Row<'b>,
        path: &'b [u8],
        depth: u32,
        subvolume: u64,
        details: &'b Stored<'b>,
    ) -> Context<'b> {
        let Request { caller, accounts, cancel, .. } = *self.request;
        Context { row, path, depth, subvolume, details, caller, accounts, cancel }
    }

    fn is_pruned(
        &self,
        records: Records<'_>,
        row: &Row<'_>,
        path: &[u8],
        depth: u32,
        subvolume: u64,
    ) -> Result<bool> {
        let Some(prune) = self.request.prune.filter(|_| depth >= self.request.min_depth) else {
            return Ok(false);
        };
        prune.matches(&self.context(row, path, depth, subvolume, &Stored { records }))
    }

    /// Tests a row against the query and emits it if it matches.
    fn put(
        &mut self,
        records: Records<'_>,
        row: &Row<'_>,
        path: &[u8],
        depth: u32,
        subvolume: u64,
    ) -> Result<Flow> {
        if depth < self.request.min_depth || self.request.max_depth.is_some_and(|most| depth > most)
        {
            return Ok(Flow::Continue(()));
        }
        self.outcome.rows_tested += 1;
        let details = Stored { records };
        if !self.request.expr.matches(&self.context(row, path, depth, subvolume, &details))? {
            return Ok(Flow::Continue(()));
        }
        Ok(self.give(&Match { row, path, depth, subvolume, details: &details }, records.tree))
    }

    /// Emits a match, or keeps it if matches are ordered.
    fn give(&mut self, found: &Match<'_>, tree: TreeId) -> Flow {
        if self.counting {
            self.outcome.matched += 1;
            return Flow::Continue(());
        }
        if let Some(ranking) = &mut self.ranking {
            ranking.add(found, tree);
            if let Some(farthest) = ranking.farthest() {
                self.farthest.store(farthest, Ordering::Relaxed);
            }
            if ranking.is_full() {
                self.give_ordered();
            }
            let had_enough = self.outcome.cancelled;
            return if had_enough { Flow::Break(()) } else { Flow::Continue(()) };
        }
        if self.request.limit.is_some_and(|limit| self.outcome.matched >= limit) {
            return Flow::Break(());
        }
        self.outcome.matched += 1;
        let flow = (self.emit)(found);
        if flow.is_break() {
            self.outcome.cancelled = true;
        }
        let enough = self.request.limit.is_some_and(|limit| self.outcome.matched >= limit);
        if enough { Flow::Break(()) } else { flow }
    }

    pub(super) fn is_cancelled(&mut self) -> bool {
        let cancelled = self.request.cancel.load(Ordering::Relaxed);
        self.outcome.cancelled |= cancelled;
        cancelled
    }

    /// Searches one subvolume; adds those mounted in it to the queue.
    fn subvolume(
        &mut self,
        any: Records<'_>,
        subvolume: u64,
        from: &From,
        waiting: &mut Vec<(u64, From)>,
    ) -> Result<Flow> {
        if self.is_cancelled() {
            return Ok(Flow::Break(()));
        }
        let record = any.subvolume(subvolume)?.ok_or(Error::NotFound)?;
        let pinned = Arc::clone(&self.pinned);
        let view = self.index.view(&pinned, subvolume, &record, self.request.cancel)?;
        if self.is_cancelled() {
            return Ok(Flow::Break(()));
        }
        let Some(view) = view else {
            return self.walk(any, subvolume, from);
        };
        self.narrow = self.request.expr.narrow(subvolume);
        let mut scope = Scope::new(&view, from, self.request)?;
        let counted = if self.counting { self.counted(&view, &mut scope, from)? } else { None };
        let mut flow = match counted {
            Some(flow) => flow,
            None => match self.delta(&view, &mut scope)? {
                Flow::Continue(()) => self.base(&view, &mut scope, from)?,
                Flow::Break(()) => Flow::Break(()),
            },
        };
        if flow.is_continue() {
            flow = self.mounted(&view, &mut scope, waiting)?;
        }
        self.outcome.unreadable += plan::refused(&view, &mut scope)?;
        Ok(flow)
    }

    /// Walks where there is no index.
    fn walk(&mut self, any: Records<'_>, subvolume: u64, from: &From) -> Result<Flow> {
        let root = subvolume != self.request.start.subvolume
            || from.directory != self.request.start.directory;
        let start =
            Start { subvolume, directory: from.directory, path: &from.path, depth: from.depth };
        // The caller has already emitted the start itself.
        let request = Request { start, order: None, limit: None, ..*self.request };
        let own = (from.depth, &from.path[..]);
        let (mut seen_own, mut failed) = (false, None);
        let mut flow = Flow::Continue(());
        let outcome = walk(&*Arc::clone(&self.pinned), &request, &mut |found| {
            if !seen_own && (found.depth, found.path) == own {
                seen_own = true;
                return Flow::Continue(());
            }
            match any.subvolume(found.subvolume) {
                Ok(Some(record)) => flow = self.give(found, TreeId(record.tree)),
                Ok(None) => {}
                Err(error) => {
                    failed = Some(error);
                    return Flow::Break(());
                }
            }
            flow
        })?;
        if let Some(error) = failed {
            return Err(error);
        }
        debug_assert!(root || !from.path.is_empty(), "paths are never empty");
        self.outcome.walked += outcome.walked;
        self.outcome.rows_tested += outcome.rows_tested;
        self.outcome.unreadable += outcome.unreadable;
        if self.is_cancelled() {
            flow = Flow::Break(());
        }
        Ok(flow)
    }

    /// Searches the differences from the base.
    fn delta(&mut self, view: &View, scope: &mut Scope<'_>) -> Result<Flow> {
        let mut result = Ok(Flow::Continue(()));
        let mut path = Vec::new();
        let mut count = 0;
        view.delta.each(&mut |row| {
            count += 1;
            if count % CHECK_EVERY == 0 && self.is_cancelled() {
                result = Ok(Flow::Break(()));
                return false;
            }
            result = self.delta_row(view, scope, row, &mut path);
            matches!(result, Ok(Flow::Continue(())))
        });
        result
    }

    fn delta_row(
        &mut self,
        view: &View,
        scope: &mut Scope<'_>,
        row: &Row<'_>,
        path: &mut Vec<u8>,
    ) -> Result<Flow> {
        self.outcome.rows_tested += 1;
        let Some(depth) = test(scope, self.request, row, path, !self.counting)? else {
            return Ok(Flow::Continue(()));
        };
        let records = scope.records();
        let details = &Stored { records };
        let subvolume = view.subvolume;
        Ok(self.give(&Match { row, path, depth, subvolume, details }, records.tree))
    }

    /// Searches the base's clusters.
    fn base(&mut self, view: &View, scope: &mut Scope<'_>, from: &From) -> Result<Flow> {
        let Some(base) = &view.base else { return Ok(Flow::Continue(())) };
        let mut chosen = plan::clusters(view, base, scope, &self.narrow)?;
        let near = self.near();
        match near {
            Some(like) => plan::nearest_first(base, &like, &mut chosen),
            // A query that reads more than the cache holds would never hit it if clusters were
            // always read in the same order. Each would be evicted just before its turn.
            None => self.index.cached_first(base, &mut chosen),
        }
        let farthest = Arc::clone(&self.farthest);
        self.outcome.clusters += base.clusters.len() as u64;
        let counts = Counts::default();
        let stop = AtomicBool::new(false);
        let search = Search {
            index: self.index,
            view,
            request: self.request,
            counting: self.counting,
            narrow: &self.narrow.clone(),
            near: near.map(|like| (like, &*farthest)),
            fields: self.fields(),
            chosen: &chosen,
            next: AtomicUsize::new(0),
            counts: &counts,
            stop: &stop,
        };
        let threads = self.index.options.threads.min(chosen.len());
        let ends = (threads > 1).then(|| self.index.clock.monotonic() + self.index.options.alone);
        let mut flow = self.alone(&search, view, scope, ends);
        let left = search.left();
        if left > 0 && matches!(flow, Ok(Flow::Continue(()))) {
            flow = self.together(&search, view, from, threads.min(left));
        }
        self.outcome.clusters_read += counts.read.into_inner() as u64;
        self.outcome.rows_tested += counts.tested.into_inner() as u64;
        self.outcome.matched += counts.matched.into_inner() as u64;
        flow
    }

    /// The row that the first matches resemble, if the order is by similarity.
    fn near(&self) -> Option<Like> {
        match self.request.order {
            Some(Sort { by: SortBy::Like(like), descending: false }) => Some(like),
            _ => None,
        }
    }

    /// The fields of rows that the query, its order, and the receiver of matches use.
    fn fields(&self) -> Fields {
        let Request { expr, order, fields, .. } = *self.request;
        let order = order.map_or(Fields::NONE, Ranking::fields);
        Fields::IDENTITY.and(expr.fields()).and(order).and(fields)
    }

    /// Searches on this thread alone, until nothing is left or a deadline passes.
    fn alone(
        &mut self,
        search: &Search<'_>,
        view: &View,
        scope: &mut Scope<'_>,
        ends: Option<Duration>,
    ) -> Result<Flow> {
        let records = scope.records();
        let details = &Stored { records };
        while let Some(number) = search.take() {
            if self.is_cancelled() {
                return Ok(Flow::Break(()));
            }
            let mut flow = Flow::Continue(());
            search.cluster(number, scope, &mut |row, path, depth| {
                let found = Match { row, path, depth, subvolume: view.subvolume, details };
                flow = self.give(&found, records.tree);
                flow
            })?;
            if flow.is_break() {
                return Ok(flow);
            }
            if ends.is_some_and(|ends| self.index.clock.monotonic() >= ends) {
                break;
            }
        }
        // The last cluster may not be complete.
        Ok(if self.is_cancelled() { Flow::Break(()) } else { Flow::Continue(()) })
    }

    fn together(
        &mut self,
        search: &Search<'_>,
        view: &View,
        from: &From,
        threads: usize,
    ) -> Result<Flow> {
        let records = Records { read: &*view.pinned, tree: view.tree, searchable: &CARRY_NOTHING };
        device::scope(|threads_of| {
            let (sender, receiver) = bounded_channel(BATCHES_WAITING);
            let mut running = 0;
            for number in 0..threads {
                let sender = sender.clone();
                let name = format!("search-{number}");
                let work = move || search.work(&sender, from);
                running += usize::from(device::spawn_in(threads_of, &name, work).is_ok());
            }
            if running == 0 {
                // The system refused a thread: this one does all the work.
                let mut scope = Scope::new(view, from, self.request)?;
                return self.alone(search, view, &mut scope, None);
            }
            drop(sender);
            let result = self.take(&receiver, view, records);
            search.stop.store(true, Ordering::Relaxed);
            // A thread that waits to send sees that the receiver is gone.
            drop(receiver);
            result
        })
    }

    fn take(
        &mut self,
        receiver: &Receiver<Message>,
        view: &View,
        records: Records<'_>,
    ) -> Result<Flow> {
        let details = &Stored { records };
        while let Ok(message) = receiver.recv() {
            let matches = match message {
                Message::Matches(matches) => matches,
                Message::Failed(error) => return Err(error),
            };
            if self.is_cancelled() {
                return Ok(Flow::Break(()));
            }
            for MatchedRow { row, path, depth } in matches {
                let row = &row.as_row();
                let found = Match { row, path: &path, depth, subvolume: view.subvolume, details };
                if self.give(&found, records.tree).is_break() {
                    return Ok(Flow::Break(()));
                }
            }
        }
        Ok(if self.is_cancelled() { Flow::Break(()) } else { Flow::Continue(()) })
    }

    /// The rows of subvolumes mounted in open directories; they are searched next.
    fn mounted(
        &mut self,
        view: &View,
        scope: &mut Scope<'_>,
        waiting: &mut Vec<(u64, From)>,
    ) -> Result<Flow> {
        let mounts = self.index.mounts.of(&self.pinned)?;
        let records = scope.records();
        let (mut found, mut xattrs) = (NamedEntry::default(), Vec::new());
        for (nested, directory, cookie) in mounts.inside(view.subvolume) {
            let access = scope.access(directory)?;
            if !access.open {
                continue;
            }
            records.entry(directory, cookie, &mut found)?;
            let target = Target::Subvolume(nested);
            if found.target != Some(target) {
                continue;
            }
            let (ino, name) = (found.ino, &found.name[..]);
            let entry = EntryRecord { chained: false, ino, name, target };
            let Some(row) = records.row((directory, cookie), &entry, &mut xattrs)? else {
                continue;
            };
            let mut path = Vec::new();
            scope.path(directory, &mut path)?;
            push_name(&mut path, row.name);
            let depth = access.depth + 1;
            let record = records.subvolume(nested)?.ok_or(Error::NotFound)?;
            let own = records.of_tree(TreeId(record.tree));
            if self.put(own, &row, &path, depth, nested)?.is_break() {
                return Ok(Flow::Break(()));
            }
            if !self.request.alone && !self.is_pruned(own, &row, &path, depth, nested)? {
                waiting.push((nested, From { directory: record.root, path, depth }));
            }
        }
        Ok(Flow::Continue(()))
    }
}
