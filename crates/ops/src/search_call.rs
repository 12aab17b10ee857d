//! Searches a volume: one pinned state for the whole of a query, and the index if there is one.

use std::ops::ControlFlow;
use std::sync::Arc;

use inode::NodeId;
use search::aggregate::{Aggregate, Question, aggregate_by_walking};
use search::index::IndexStats;
use search::{Emit, Outcome, Request};
use store::Pinned;
use vfs::FsResult;
use volume::error::from_search;

use crate::Ops;
use crate::subvolumes::heirs_below::{Scope, inherits};

impl Ops {
    /// Answers a query. It sees every operation that returned before the call, and none that begins
    /// after it.
    pub fn search(&self, request: &Request<'_>, emit: Emit<'_>) -> search::Result<Outcome> {
        let pinned = self.pin_for_search(Scope::Below(request.start.subvolume))?;
        self.search_in(pinned, request, emit)
    }

    /// Like [`Ops::search`], for a state that was pinned before.
    pub fn search_in(
        &self,
        pinned: Arc<dyn Pinned>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> search::Result<Outcome> {
        match self.index_for(&*pinned, Scope::Below(request.start.subvolume))? {
            Some(index) => index.run(pinned, request, emit),
            None => search::walk(&*pinned, request, emit),
        }
    }

    /// Like [`Ops::search_in`], for a query about one subvolume alone. All that is
    /// in the tree of a subvolume is in the index, whatever the subvolume inherits.
    pub(crate) fn search_subvolume(
        &self,
        pinned: Arc<dyn Pinned>,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> search::Result<Outcome> {
        match &self.index {
            Some(index) => index.run(pinned, request, emit),
            None => search::walk(&*pinned, request, emit),
        }
    }

    /// Counts the matches of [`Ops::search`] without returning them.
    pub fn search_counted(&self, request: &Request<'_>) -> search::Result<Outcome> {
        let pinned = self.pin_for_search(Scope::Below(request.start.subvolume))?;
        self.count_in(pinned, request)
    }

    /// Like [`Ops::search_counted`], for a state that was pinned before.
    pub fn count_in(
        &self,
        pinned: Arc<dyn Pinned>,
        request: &Request<'_>,
    ) -> search::Result<Outcome> {
        let scope = Scope::Below(request.start.subvolume);
        match self.index_for(&*pinned, scope)? {
            Some(index) => index.count(pinned, request),
            None => search::walk(&*pinned, request, &mut |_| ControlFlow::Continue(())),
        }
    }

    /// A state for a search. Where something is inherited in its scope, copies are made of some of
    /// that first.
    pub fn pin_for_search(&self, scope: Scope) -> store::Result<Arc<dyn Pinned>> {
        let pinned: Arc<dyn Pinned> = Arc::from(self.store.pin()?);
        if !inherits(&*pinned, scope)? || self.may_change().is_err() {
            return Ok(pinned);
        }
        drop(pinned);
        self.inherit_some();
        Ok(Arc::from(self.pin_corrected(&[]).or_else(|_| self.store.pin())?))
    }

    /// The index, if there is one and it covers all of a scope: what copies inherit is found only
    /// by names, which a walk follows.
    fn index_for(
        &self,
        pinned: &dyn Pinned,
        scope: Scope,
    ) -> search::Result<Option<&search::index::Index>> {
        let Some(index) = &self.index else { return Ok(None) };
        Ok((!inherits(pinned, scope)?).then_some(index))
    }

    /// Like [`Ops::search`], by walking: every answer of the index equals it.
    pub fn search_by_walking(
        &self,
        request: &Request<'_>,
        emit: Emit<'_>,
    ) -> search::Result<Outcome> {
        search::walk(&*self.store.pin()?, request, emit)
    }

    /// Totals of a directory and all below it, as of the call.
    pub fn aggregate(&self, question: &Question<'_>) -> search::Result<Aggregate> {
        let scope = Scope::Below(question.start.subvolume);
        let pinned = self.pin_for_search(scope)?;
        match self.index_for(&*pinned, scope)? {
            Some(index) => index.aggregate(&pinned, question),
            None => aggregate_by_walking(&*pinned, question),
        }
    }

    /// Like [`Ops::aggregate`], row by row: every answer of the index equals it.
    pub fn aggregate_by_walking(&self, question: &Question<'_>) -> search::Result<Aggregate> {
        aggregate_by_walking(&*self.store.pin()?, question)
    }

    /// Subvolume and inode of a node, for a query that starts there.
    pub fn search_place(&self, node: NodeId) -> FsResult<(u64, u64)> {
        let (subvol, ino) = self.place(node)?;
        Ok((subvol.id.0, ino))
    }

    /// What the index uses; `None` when the volume was opened without one.
    pub fn index_stats(&self) -> FsResult<Option<IndexStats>> {
        let stats = self.index.as_ref().map(search::index::Index::stats).transpose();
        stats.map_err(from_search)
    }
}
