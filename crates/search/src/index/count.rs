//! Counts matching rows when the caller does not need the rows and columns decide: no row and no
//! path is built. Each cluster of a base is counted separately, block by block. The former rows at
//! the places that differ (`before`) are subtracted.
//!
//! If the changes do not fit in memory, each matching row of a changed cluster is checked for
//! whether it is still valid. If paths, depths, or fields without a column decide, rows are matched
//! one by one as in any other query, but without building paths.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use store::Read;

use super::Index;
use super::base::Base;
use super::before::Gone;
use super::before_list::BeforeList;
use super::classified::Classified;
use super::run::{Flow, Run};
use super::scope::{From, Scope};
use super::spread::spread;
use super::view::View;
use crate::assemble::{CARRY_NOTHING, Records};
use crate::cluster::{Cluster, Fields, Sieve};
use crate::query::{ByColumns, Context, Request};
use crate::stored::Stored;
use crate::{Attribute, Condition, Narrow, Result, Row};

/// Up to this many clusters, one thread counts: starting others costs about as much.
const CLUSTERS_ALONE: usize = 4;

/// State of the directories of a cluster.
#[derive(Clone, Copy, Default)]
struct ClusterState {
    open: bool,
    closed: bool,
    /// Rows of it changed, and their former values are not known.
    changed: bool,
}

/// Parameters for counting all clusters.
struct Counting<'a> {
    index: &'a Index,
    view: &'a View,
    base: &'a Base,
    classified: &'a Classified,
    request: &'a Request<'a>,
    /// What decides whether a row of a cluster matches.
    narrow: Narrow,
    /// The same without conditions that the sieve checks again.
    first: Narrow,
    sieve: Option<Sieve<'a>>,
}

/// A cluster to be counted.
#[derive(Clone, Copy)]
struct One {
    number: usize,
    /// The names of all its directories count.
    whole: bool,
    /// Rows of it may have changed, and their former values are not known.
    changed: bool,
}

/// The result of counting.
#[derive(Clone, Copy, Default)]
struct Counted {
    matched: u64,
    /// Clusters that were read, and rows that were matched one by one.
    read: u64,
    tested: u64,
}

impl Run<'_> {
    /// Counts the matches in a subvolume, without those mounted in it. `None`: columns do not
    /// decide, and nothing was counted.
    pub(super) fn counted(
        &mut self,
        view: &View,
        scope: &mut Scope<'_>,
        from: &From,
    ) -> Result<Option<Flow>> {
        let request = self.request;
        let all = request.prune.is_none()
            && request.max_depth.is_none()
            && from.depth.saturating_add(1) >= request.min_depth;
        let Some(base) = view.base.as_ref().filter(|_| all) else { return Ok(None) };
        let columns = request.expr.by_columns(view.subvolume, request.accounts);
        let Some(ByColumns { narrow, sieve }) = columns else { return Ok(None) };
        let Some(classified) = Classified::of(view, base, scope, request.cancel)? else {
            self.outcome.cancelled = true;
            return Ok(Some(Flow::Break(())));
        };
        let lists = self.index.before(view, base, request.cancel);
        if self.is_cancelled() {
            return Ok(Some(Flow::Break(())));
        }
        let mut first = narrow.clone();
        if sieve.is_some() {
            first.retain(|condition| !is_part_of_name(condition));
        }
        let (index, classified) = (self.index, &classified);
        let counting = Counting { index, view, base, classified, request, narrow, first, sieve };
        let Some(clusters) = counting.clusters(lists.as_deref())? else {
            self.outcome.cancelled = true;
            return Ok(Some(Flow::Break(())));
        };
        self.outcome.clusters += base.clusters.len() as u64;
        for Counted { matched, read, tested } in
            clusters.into_iter().chain([counting.newer(scope)?])
        {
            self.outcome.matched += matched;
            self.outcome.clusters_read += read;
            self.outcome.rows_tested += tested;
        }
        Ok(Some(if self.is_cancelled() { Flow::Break(()) } else { Flow::Continue(()) }))
    }
}

impl Counting<'_> {
    /// Counts the clusters of a base, whether or not the former rows at changed places are known.
    /// `None` if the caller cancelled.
    fn clusters(&self, lists: Option<&[Arc<BeforeList>]>) -> Result<Option<Vec<Counted>>> {
        let base = self.base;
        let mut states = vec![ClusterState::default(); base.clusters.len()];
        base.table.each(&mut |at, cluster| {
            let found = &mut states[cluster as usize];
            let open = self.classified.is_open(at);
            found.open |= open;
            found.closed |= !open;
        });
        if lists.is_none() {
            self.view.delta.each_place(&mut |(directory, cookie)| {
                if let Some(cluster) = base.table.cluster_of(directory, cookie) {
                    states[cluster as usize].changed = true;
                }
            });
        }
        let gone = Gone::of(lists.unwrap_or_default(), states.len(), &|number| states[number].open);
        let mut chosen: Vec<u32> = (0..states.len() as u32)
            .filter(|number| states[*number as usize].open)
            .filter(|number| base.clusters[*number as usize].may_match(&self.narrow))
            .collect();
        // If the cache does not hold all clusters, a fixed order would evict each before its turn.
        self.index.cached_first(base, &mut chosen);
        let threads = if chosen.len() <= CLUSTERS_ALONE { 1 } else { self.index.options.threads };
        spread((threads, "count"), chosen.len(), self.request.cancel, &|at| {
            let number = chosen[at] as usize;
            let ClusterState { closed, changed, .. } = states[number];
            let mut counted = self.cluster(One { number, whole: !closed, changed })?;
            for had in gone.of_cluster(number) {
                let open = !closed || self.is_open(had.row.directory);
                if open && self.matches(&had.row())? {
                    counted.matched = counted.matched.saturating_sub(1);
                }
            }
            Ok(counted)
        })
    }

    /// Counts the matches in a cluster as written, except stale rows where those must be found.
    fn cluster(&self, one: One) -> Result<Counted> {
        let One { number, whole, changed } = one;
        let cluster = &self.base.clusters[number];
        let summary = cluster.summary.as_ref();
        let sure =
            self.sieve.is_none() && summary.is_some_and(|summary| summary.all_match(&self.narrow));
        if whole && !changed && sure {
            return Ok(Counted { matched: cluster.rows.into(), ..Counted::default() });
        }
        let all = Sieve::yes();
        let sieve = self.sieve.as_ref().unwrap_or(&all);
        let mut counted = Counted::default();
        self.index.with_cluster(self.view, self.base, number as u32, &mut |cluster| {
            // Called again if the cluster is damaged.
            counted = Counted { read: 1, ..Counted::default() };
            if whole && !changed {
                counted.matched = cluster.count_passing(&self.first, sieve, self.request.cancel)?;
                return Ok(());
            }
            self.rows(cluster, sieve, changed, &mut counted)
        })?;
        self.index.settle(cluster.id);
        Ok(counted)
    }

    /// Counts the rows that differ from the base.
    fn newer(&self, scope: &mut Scope<'_>) -> Result<Counted> {
        // Consecutive rows mostly share a directory.
        let mut last = None;
        let (mut counted, mut failed) = (Counted::default(), None);
        let cancel = self.request.cancel;
        let mut take = |row: &Row<'_>| -> Result<()> {
            let open = match last {
                Some((directory, open)) if directory == row.directory => open,
                _ => match self.base.table.position(row.directory) {
                    Some(at) => self.classified.is_open(at),
                    None => scope.access(row.directory)?.open,
                },
            };
            last = Some((row.directory, open));
            counted.tested += 1;
            counted.matched += u64::from(open && self.matches(row)?);
            Ok(())
        };
        self.view.delta.each(&mut |row| {
            failed = take(row).err();
            failed.is_none() && !cancel.load(Ordering::Relaxed)
        });
        failed.map_or(Ok(counted), Err)
    }

    /// Whether the contents of a directory of the base count.
    fn is_open(&self, directory: u64) -> bool {
        self.base.table.position(directory).is_some_and(|at| self.classified.is_open(at))
    }

    /// Whether a row matches, wherever it is.
    fn matches(&self, row: &Row<'_>) -> Result<bool> {
        let Request { expr, caller, accounts, cancel, .. } = *self.request;
        let read: &dyn Read = &*self.view.pinned;
        let records = Records { read, tree: self.view.tree, searchable: &CARRY_NOTHING };
        let (details, subvolume) = (&Stored { records }, self.view.subvolume);
        expr.matches(&Context {
            row,
            path: b"",
            depth: 0,
            subvolume,
            details,
            caller,
            accounts,
            cancel,
        })
    }

    /// Counts matching rows whose directory counts, and, if rows of the cluster changed, which are
    /// still valid.
    fn rows(
        &self,
        cluster: &Cluster,
        sieve: &Sieve<'_>,
        changed: bool,
        counted: &mut Counted,
    ) -> Result<()> {
        let directories = cluster.rows(Fields::of(Attribute::Directory))?;
        let identity = changed.then(|| cluster.rows(Fields::IDENTITY)).transpose()?;
        // For each directory: whether its names count, and whether anything in it changed.
        let mut known: Map<u64, (bool, bool)> = Map::default();
        // Consecutive rows mostly share a directory.
        let mut last = (u64::MAX, (false, false));
        let delta = &self.view.delta;
        let cancel = self.request.cancel;
        let _all_or_cancelled = cluster.search_passing(&self.first, sieve, cancel, &mut |at| {
            counted.tested += 1;
            let directory = directories.directory(at);
            if last.0 != directory {
                let found = || (self.is_open(directory), changed && delta.has_in(directory));
                last = (directory, *known.entry(directory).or_insert_with(found));
            }
            let (open, touched) = last.1;
            let is_hidden = |row: Row<'_>| delta.hides((directory, row.cookie));
            let identity = identity.as_ref().filter(|_| open && touched);
            let hidden = identity.is_some_and(|rows| is_hidden(rows.get(at)));
            counted.matched += u64::from(open && !hidden);
            ControlFlow::Continue(())
        })?;
        Ok(())
    }
}

/// Whether it is a condition on a part of the name.
fn is_part_of_name(condition: &Condition) -> bool {
    use Condition::{NameContains, NameEnds, NameStarts};
    matches!(condition, NameContains(_) | NameEnds(_) | NameStarts(_))
}
