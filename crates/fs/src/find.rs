//! Searching: from a path to the state of the store that a query sees, and to the executor that
//! answers it.
//!
//! The state is pinned when the query begins. So it contains every operation that returned before,
//! and nothing that happens later.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use format::acl::ACCESS;
use format::entry_record::Target;
use format::inode_record::FileKind;
use inode::permissions::HAS_ACL;
use inode::{Attr, Caller, Kind, NodeId};
use ops::subvolumes::heirs_below::Scope;
use search::cluster::Fields;
use search::query::{Accounts, Context, Expr};
use search::{
    CARRY_NOTHING, Details, Match, NamedEntry, Outcome, Records, Request, Row, Sort, Start, Stored,
};
use store::{Pinned, TreeId};
use vfs::{Entry, FileSystem, FsResult};
use volume::attributes;
use volume::error::{from_search, from_store};
use volume::nodes::Location;

use crate::Fs;

/// A query from one path.
#[derive(Clone, Copy)]
pub struct Find<'a> {
    /// The condition on every row; without actions.
    pub expr: &'a Expr,
    /// Which directories are not descended into.
    pub prune: Option<&'a Expr>,
    /// Rows above this depth are left out.
    pub min_depth: u32,
    /// Rows below this depth are left out.
    pub max_depth: Option<u32>,
    /// A directory comes after what it holds.
    pub contents_first: bool,
    /// The order of the matches, of which there may be several runs, as [`Request::order`].
    pub order: Option<Sort>,
    /// How many matches at most.
    pub limit: Option<u64>,
    /// Fields of rows that the caller of the matches reads, as [`Request::fields`].
    pub fields: Fields,
    /// What is known of users and groups.
    pub accounts: &'a dyn Accounts,
    /// Set to cancel the query when its caller no longer waits.
    pub cancel: &'a AtomicBool,
}

/// Takes matches; `Break` ends the query.
pub type Matches<'a> = &'a mut dyn FnMut(&Match<'_>) -> ControlFlow<()>;

impl Fs {
    /// Searches a node that the caller already holds and everything below it, with the rights of
    /// the caller, regardless of what is above it. `shown` is the displayed form of its path, and
    /// never empty.
    pub fn find_below(
        &self,
        caller: &Caller,
        node: NodeId,
        shown: &[u8],
        find: &Find<'_>,
        emit: Matches<'_>,
    ) -> FsResult<Outcome> {
        let attr = self.getattr(caller, node)?;
        let scope = Scope::Below(self.subvol_of(self.real(node))?.id.0);
        Search::new((self, scope), caller, *find, Some(emit))?.from(&Entry { node, attr }, shown, 0)
    }
}

pub(crate) struct Search<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    find: Find<'a>,
    pinned: Arc<dyn Pinned>,
    /// `None`: matches are counted.
    emit: Option<Matches<'a>>,
}

impl<'a> Search<'a> {
    /// A search of the present state within a scope. `emit` takes the matches; `None`: they are
    /// only counted.
    pub(crate) fn new(
        (fs, scope): (&'a Fs, Scope),
        caller: &'a Caller,
        find: Find<'a>,
        emit: Option<Matches<'a>>,
    ) -> FsResult<Search<'a>> {
        let pinned = fs.pin_for_search(scope).map_err(from_store)?;
        Ok(Search { fs, caller, find, pinned, emit })
    }

    /// Searches a node and everything below it.
    pub(crate) fn from(&mut self, entry: &Entry, shown: &[u8], depth: u32) -> FsResult<Outcome> {
        if entry.attr.kind != Kind::Directory {
            return self.one(entry, shown, depth);
        }
        let node = self.fs.real(entry.node);
        let start = Start {
            subvolume: self.fs.subvol_of(node)?.id.0,
            directory: node.ino().0,
            path: shown,
            depth,
        };
        let find = self.find;
        let request = Request {
            start,
            expr: find.expr,
            prune: find.prune,
            alone: false,
            caller: self.caller,
            min_depth: find.min_depth,
            max_depth: find.max_depth,
            contents_first: find.contents_first,
            order: find.order,
            limit: find.limit,
            fields: find.fields,
            accounts: find.accounts,
            cancel: find.cancel,
        };
        let pinned = Arc::clone(&self.pinned);
        let found = match &mut self.emit {
            Some(emit) => self.fs.search_in(pinned, &request, emit),
            None => self.fs.count_in(pinned, &request),
        };
        found.map_err(from_search)
    }

    /// Whether the limit was reached; otherwise the next part is to find no more than is left. An
    /// ordered search returns the first matches of each part, and the caller takes the first of
    /// those.
    pub(crate) fn is_enough(&mut self, limit: Option<u64>, total: &Outcome) -> bool {
        if self.find.order.is_none() {
            self.find.limit = limit.map(|limit| limit.saturating_sub(total.matched));
        }
        self.find.limit == Some(0)
    }

    /// One row: the named object itself.
    fn one(&mut self, entry: &Entry, shown: &[u8], depth: u32) -> FsResult<Outcome> {
        let outcome = Outcome::default();
        let deep = depth >= self.find.min_depth && self.find.limit != Some(0);
        if !deep {
            return Ok(outcome);
        }
        let subvol = self.fs.subvol_of(self.fs.real(entry.node))?;
        let (directory, cookie) = match self.fs.nodes.location(entry.node) {
            Some(Location::Entry { dir, cookie }) => (dir, cookie),
            _ => (0, 0),
        };
        let name = last_name(shown);
        let mut row = row(&entry.attr, name, directory, cookie);
        let pinned = Arc::clone(&self.pinned);
        let records =
            Records { read: &*pinned, tree: TreeId(subvol.tree().0), searchable: &CARRY_NOTHING };
        // Attributes do not show that there is an access list; the record does.
        row.mode = mode_of(records, &row).map_err(from_search)?.unwrap_or(row.mode);
        let details = Stored { records };
        let subvolume = subvol.id.0;
        let found = Match { row: &row, path: shown, depth, subvolume, details: &details };
        self.test(&found)
    }

    /// The node of a virtual directory itself, which has no record: `details` are those parts of it
    /// that its attributes do not show.
    pub(crate) fn unrecorded(
        &mut self,
        (attr, subvolume): (&Attr, u64),
        (shown, depth): (&[u8], u32),
        details: &dyn Details,
    ) -> FsResult<Outcome> {
        if depth < self.find.min_depth || self.find.limit == Some(0) {
            return Ok(Outcome::default());
        }
        let mut row = row(attr, last_name(shown), 0, 0);
        if details.xattr(&row, ACCESS).map_err(from_search)?.is_some() {
            row.mode |= HAS_ACL;
        }
        self.test(&Match { row: &row, path: shown, depth, subvolume, details })
    }

    /// Passes one row on if it matches.
    fn test(&mut self, found: &Match<'_>) -> FsResult<Outcome> {
        let mut outcome = Outcome::default();
        let context = Context::of(found, self.caller, self.find.accounts, self.find.cancel);
        outcome.rows_tested = 1;
        if self.find.expr.matches(&context).map_err(from_search)? {
            outcome.matched = 1;
            outcome.cancelled = self.emit.as_mut().is_some_and(|emit| emit(found).is_break());
        }
        Ok(outcome)
    }
}

/// The mode in the record of a row's inode; `None`: the record is gone.
fn mode_of(records: Records<'_>, row: &Row<'_>) -> search::Result<Option<u32>> {
    if row.kind == FileKind::Directory {
        return Ok(records.directory(row.ino)?.map(|record| record.mode));
    }
    let mut entry = NamedEntry::default();
    records.entry(row.directory, row.cookie, &mut entry)?;
    match entry.target {
        Some(Target::Embedded(inode)) if entry.ino == row.ino => Ok(Some(inode.mode)),
        _ => Ok(records.linked(row.ino)?.map(|record| record.inode.mode)),
    }
}

pub(crate) fn add(total: &mut Outcome, other: Outcome) {
    total.matched += other.matched;
    total.clusters += other.clusters;
    total.clusters_read += other.clusters_read;
    total.walked += other.walked;
    total.rows_tested += other.rows_tested;
    total.unreadable += other.unreadable;
    total.cancelled |= other.cancelled;
}

fn row<'a>(attr: &Attr, name: &'a [u8], directory: u64, cookie: u64) -> Row<'a> {
    let kind = attributes::file_kind(attr.kind);
    Row {
        directory,
        cookie,
        ino: attr.node.ino().0,
        name,
        kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink,
        rdev: attr.rdev,
        size: attr.size,
        allocated: attr.blocks * 512,
        entries: if kind == FileKind::Directory { attr.size } else { 0 },
        atime: attr.atime.0,
        mtime: attr.mtime.0,
        ctime: attr.ctime.0,
        btime: attr.btime.0,
        subvolume: 0,
        xattrs: b"",
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    let start = path[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    if end == 0 { &path[..path.len().min(1)] } else { &path[start..end] }
}
