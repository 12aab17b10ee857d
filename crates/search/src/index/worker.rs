//! Searches the clusters of one base, on one thread or several.
//!
//! Each thread takes the next free cluster. Columns of the query's conditions select candidates.
//! Those in scope that still count are read in full, tested against the whole query, and passed on
//! with their paths.

use device::sync::SyncSender;
use std::borrow::Cow;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use format::inode_record::FileKind;

use super::Index;
use super::scope::{From, Scope};
use super::view::View;
use crate::cluster::{Cluster, Fields, Like, Rows};
use crate::path::push_name;
use crate::query::Request;
use crate::{Condition, Error, Narrow, Result, Row, RowBuf};

/// Rows between two checks for cancellation.
pub(crate) const CHECK_EVERY: usize = 256;
/// Matches that a thread sends at once.
const BATCH: usize = 64;
/// The same in bytes of their paths; one path may exceed it.
const BATCH_BYTES: usize = 64 << 10;

/// A match that was found on another thread.
pub(crate) struct MatchedRow {
    pub(crate) row: RowBuf,
    pub(crate) path: Box<[u8]>,
    pub(crate) depth: u32,
}

/// A message from a search thread.
pub(crate) enum Message {
    Matches(Vec<MatchedRow>),
    Failed(Error),
}

/// Counts of a search, shared by its threads.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) tested: AtomicUsize,
    pub(crate) read: AtomicUsize,
    /// Number of matches when only counting.
    pub(crate) matched: AtomicUsize,
}

type Flow = ControlFlow<()>;

/// Tests a row of the index against a query. Returns its depth if it matches, and its path if that
/// is `shown`.
pub(crate) fn test(
    scope: &mut Scope<'_>,
    request: &Request<'_>,
    row: &Row<'_>,
    path: &mut Vec<u8>,
    shown: bool,
) -> Result<Option<u32>> {
    let access = scope.access(row.directory)?;
    let depth = access.depth + 1;
    if !access.open || depth < request.min_depth {
        return Ok(None);
    }
    path.clear();
    let early = request.expr.asks_path();
    if early {
        scope.path(row.directory, path)?;
        push_name(path, row.name);
    }
    let subvolume = scope.view.subvolume;
    if !scope.matches(request.expr, row, path, depth, subvolume)? {
        return Ok(None);
    }
    if shown && !early {
        scope.path(row.directory, path)?;
        push_name(path, row.name);
    }
    Ok(Some(depth))
}

/// The clusters of one base to search, on one thread or several.
pub(crate) struct Search<'a> {
    pub(crate) index: &'a Index,
    pub(crate) view: &'a View,
    pub(crate) request: &'a Request<'a>,
    /// Matches are only counted.
    pub(crate) counting: bool,
    pub(crate) narrow: &'a Narrow,
    /// For a search of the nearest rows: the model, and the distance of the farthest one found so
    /// far.
    pub(crate) near: Option<(Like, &'a AtomicU64)>,
    pub(crate) fields: Fields,
    pub(crate) chosen: &'a [u32],
    pub(crate) next: AtomicUsize,
    pub(crate) counts: &'a Counts,
    pub(crate) stop: &'a AtomicBool,
}

/// Takes a row with its path and depth.
type TakeRow<'a> = &'a mut dyn FnMut(&Row<'_>, &[u8], u32) -> Flow;

impl Search<'_> {
    /// The next cluster.
    pub(crate) fn take(&self) -> Option<u32> {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.chosen.get(at).copied()
    }

    /// Clusters that no thread has taken.
    pub(crate) fn left(&self) -> usize {
        self.chosen.len().saturating_sub(self.next.load(Ordering::Relaxed))
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.request.cancel.load(Ordering::Relaxed)
    }

    /// The work of one of several threads.
    pub(crate) fn work(&self, sender: &SyncSender<Message>, from: &From) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let result = Scope::new(self.view, from, self.request).and_then(|mut scope| {
            while let Some(number) = self.take().filter(|_| !self.is_over()) {
                self.cluster(number, &mut scope, &mut |row, path, depth| {
                    batch.push(MatchedRow { row: row.to_buf(), path: path.into(), depth });
                    bytes += path.len();
                    if batch.len() < BATCH && bytes < BATCH_BYTES {
                        return Flow::Continue(());
                    }
                    bytes = 0;
                    match sender.send(Message::Matches(std::mem::take(&mut batch))) {
                        Ok(()) => Flow::Continue(()),
                        Err(_) => Flow::Break(()),
                    }
                })?;
                if !batch.is_empty()
                    && sender.send(Message::Matches(std::mem::take(&mut batch))).is_err()
                {
                    break;
                }
            }
            Ok(())
        });
        if let Err(error) = result {
            // The receiver is gone if the query has ended for another reason.
            sender.send(Message::Failed(error)).ok();
        }
    }

    /// Searches one cluster.
    pub(crate) fn cluster(
        &self,
        number: u32,
        scope: &mut Scope<'_>,
        take: TakeRow<'_>,
    ) -> Result<()> {
        let Some(base) = &self.view.base else { return Ok(()) };
        let id = base.clusters[number as usize].id;
        let mut candidates = Vec::new();
        let mut rows = None;
        let mut narrow = Cow::Borrowed(self.narrow);
        if let Some((like, most)) = self.near {
            let near = Condition::Near(like, most.load(Ordering::Relaxed));
            if !base.clusters[number as usize].may_match(std::slice::from_ref(&near)) {
                return Ok(());
            }
            narrow.to_mut().push(near);
        }
        self.index.with_cluster(self.view, base, number, &mut |cluster| {
            candidates.clear();
            let _all: Flow = cluster.search(&narrow, &mut |row| {
                candidates.push(row);
                Flow::Continue(())
            })?;
            rows = if candidates.is_empty() {
                None
            } else {
                Some(self.load(cluster, &mut candidates, scope)?)
            };
            Ok(())
        })?;
        self.counts.read.fetch_add(1, Ordering::Relaxed);
        let (mut path, mut matched) = (Vec::new(), 0);
        if let Some(rows) = rows.flatten() {
            self.counts.tested.fetch_add(candidates.len(), Ordering::Relaxed);
            for (count, row) in candidates.iter().enumerate() {
                if count % CHECK_EVERY == 0 && self.is_over() {
                    break;
                }
                let row = rows.get(*row);
                let Some(depth) = test(scope, self.request, &row, &mut path, !self.counting)?
                else {
                    continue;
                };
                if self.counting {
                    matched += 1;
                } else if take(&row, &path, depth).is_break() {
                    break;
                }
            }
        }
        self.counts.matched.fetch_add(matched, Ordering::Relaxed);
        self.index.settle(id);
        Ok(())
    }

    /// Drops candidates that are out of scope or stale, before more fields are read.
    fn load(
        &self,
        cluster: &Cluster,
        candidates: &mut Vec<u32>,
        scope: &mut Scope<'_>,
    ) -> Result<Option<Rows>> {
        let identity = cluster.rows(Fields::IDENTITY)?;
        let mut failed = None;
        candidates.retain(|row| {
            let row = identity.get(*row);
            if row.kind == FileKind::Directory && row.subvolume != 0 {
                return false;
            }
            match scope.access(row.directory) {
                Ok(access) => access.open && !self.view.delta.hides((row.directory, row.cookie)),
                Err(error) => {
                    failed = Some(error);
                    false
                }
            }
        });
        match failed {
            Some(error) => Err(error),
            None if candidates.is_empty() => Ok(None),
            None => Ok(Some(cluster.rows(self.fields)?)),
        }
    }
}
