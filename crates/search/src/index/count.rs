//! How many rows match, where nobody wants to see them and their columns decide: no row, no name
//! and no path is made. Each cluster of a base is counted by itself, and what the base had at the
//! places that differ (`before`) is taken away.
//!
//! Where a test needs more of a row than is kept of what changed, where paths or depths decide, or
//! where what changed does not fit into memory, rows are put to the query one by one as for any
//! other, but for their paths.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use device::Map;
use store::Read;

use super::Index;
use super::base::Base;
use super::before::{Before, Gone};
use super::ground::Ground;
use super::run::{Flow, Run};
use super::scope::{From, Scope};
use super::spread::spread;
use super::view::View;
use crate::assemble::{CARRY_NOTHING, Records};
use crate::cluster::{Cluster, Fields};
use crate::query::Context;
use crate::request::Request;
use crate::stored::Stored;
use crate::{Attribute, Narrow, Result, Row};

/// So many clusters one thread counts: others cost about as much to start.
const CLUSTERS_ALONE: usize = 4;

/// How the directories of a cluster stand.
#[derive(Clone, Copy, Default)]
struct Standing {
    open: bool,
    closed: bool,
}

/// What all clusters are counted by.
struct Counting<'a> {
    index: &'a Index,
    view: &'a View,
    base: &'a Base,
    ground: &'a Ground,
    request: &'a Request<'a>,
    narrow: Narrow,
    /// Whether all rows match that meet those conditions.
    exact: bool,
}

/// What counting came to.
#[derive(Clone, Copy, Default)]
struct Counted {
    matched: u64,
    /// Clusters that were looked into, and rows that were put to the query.
    read: u64,
    tested: u64,
}

impl Run<'_> {
    /// Counts what matches in a subvolume, but for what is mounted in it; `None`: the columns do
    /// not decide that, and nothing was counted.
    pub(super) fn counted(
        &mut self,
        view: &View,
        scope: &mut Scope<'_>,
        from: &From,
    ) -> Result<Option<Flow>> {
        let request = self.request;
        let all = request.prune.is_none()
            && request.max_depth.is_none()
            && from.depth.saturating_add(1) >= request.min_depth
            && !request.expr.any_test(&|test| !Before::tells(test));
        let Some(base) = view.base.as_ref().filter(|_| all) else { return Ok(None) };
        let Some(ground) = Ground::of(view, base, scope, request.cancel)? else {
            self.outcome.cancelled = true;
            return Ok(Some(Flow::Break(())));
        };
        let lists = self.index.before(view, base, request.cancel);
        if self.is_cancelled() {
            return Ok(Some(Flow::Break(())));
        }
        let Some(lists) = lists else { return Ok(None) };
        let exact = request.expr.exact_narrow();
        let narrow = exact.clone().unwrap_or_else(|| self.narrow.clone());
        let (index, exact) = (self.index, exact.is_some());
        let counting = Counting { index, view, base, ground: &ground, request, narrow, exact };
        let Some(clusters) = counting.clusters(&lists)? else {
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
    /// Counts the clusters of a base; `None` when nobody waits any more.
    fn clusters(&self, lists: &[Arc<Vec<Before>>]) -> Result<Option<Vec<Counted>>> {
        let base = self.base;
        let mut standing = vec![Standing::default(); base.clusters.len()];
        base.table.each(&mut |at, cluster| {
            let found = &mut standing[cluster as usize];
            let open = self.ground.is_open(at);
            found.open |= open;
            found.closed |= !open;
        });
        let gone = Gone::of(lists, standing.len(), &|number| standing[number].open);
        let chosen: Vec<usize> = (0..standing.len())
            .filter(|number| standing[*number].open)
            .filter(|number| base.clusters[*number].may_match(&self.narrow))
            .collect();
        let threads = if chosen.len() <= CLUSTERS_ALONE { 1 } else { self.index.options.threads };
        spread((threads, "count"), chosen.len(), self.request.cancel, &|at| {
            let number = chosen[at];
            let mut counted = self.cluster(number, !standing[number].closed)?;
            for row in gone.of_cluster(number) {
                let open = !standing[number].closed || self.is_open(row.directory);
                if open && self.matches(&row.row())? {
                    counted.matched = counted.matched.saturating_sub(1);
                }
            }
            Ok(counted)
        })
    }

    /// Counts what matches of a cluster as it was written; `whole`: all its directories count.
    fn cluster(&self, number: usize, whole: bool) -> Result<Counted> {
        let cluster = &self.base.clusters[number];
        let summary = cluster.summary.as_ref();
        let sure = summary.is_some_and(|summary| summary.all_match(&self.narrow));
        if whole && self.exact && sure {
            return Ok(Counted { matched: cluster.rows.into(), ..Counted::default() });
        }
        let mut counted = Counted::default();
        self.index.with_cluster(self.view, self.base, number as u32, &mut |cluster| {
            // One that is damaged is gone through again.
            counted = Counted { read: 1, ..Counted::default() };
            if whole && self.exact {
                counted.matched = cluster.count(&self.narrow)?;
                return Ok(());
            }
            self.rows(cluster, &mut counted)
        })?;
        self.index.settle(cluster.id);
        Ok(counted)
    }

    /// Counts what differs from the base.
    fn newer(&self, scope: &mut Scope<'_>) -> Result<Counted> {
        // Rows of a directory mostly follow one another.
        let mut last = None;
        let (mut counted, mut failed) = (Counted::default(), None);
        let cancel = self.request.cancel;
        let mut take = |row: &Row<'_>| -> Result<()> {
            let open = match last {
                Some((directory, open)) if directory == row.directory => open,
                _ => match self.base.table.position(row.directory) {
                    Some(at) => self.ground.is_open(at),
                    None => scope.standing(row.directory)?.open,
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

    /// Whether what is in a directory of the base counts.
    fn is_open(&self, directory: u64) -> bool {
        self.base.table.position(directory).is_some_and(|at| self.ground.is_open(at))
    }

    /// Whether a row matches, wherever it is.
    fn matches(&self, row: &Row<'_>) -> Result<bool> {
        let Request { expr, caller, accounts, .. } = *self.request;
        let read: &dyn Read = &*self.view.pinned;
        let records = Records { read, tree: self.view.tree, searchable: &CARRY_NOTHING };
        let (details, subvolume) = (&Stored { records }, self.view.subvolume);
        expr.matches(&Context { row, path: b"", depth: 0, subvolume, details, caller, accounts })
    }

    /// Counts rows of a cluster one by one, by the columns that the query looks at.
    fn rows(&self, cluster: &Cluster, counted: &mut Counted) -> Result<()> {
        let fields = self.request.expr.fields().and(Fields::of(Attribute::Directory));
        let rows = cluster.rows(fields)?;
        let mut open: Map<u64, bool> = Map::default();
        let mut failed = None;
        let flow = cluster.search(&self.narrow, &mut |at| {
            let row = rows.get(at);
            counted.tested += 1;
            let is_open = *open.entry(row.directory).or_insert_with(|| self.is_open(row.directory));
            match if is_open { self.matches(&row) } else { Ok(false) } {
                Ok(matches) => counted.matched += u64::from(matches),
                Err(error) => {
                    failed = Some(error);
                    return ControlFlow::Break(());
                }
            }
            ControlFlow::Continue(())
        })?;
        debug_assert!(flow.is_continue() || failed.is_some(), "nothing else ends it");
        failed.map_or(Ok(()), Err)
    }
}
