//! Searching: from a path to the state of the store that a query sees, and to the executor that
//! answers it.
//!
//! The state is pinned when the query begins. So it contains every operation that returned before,
//! and nothing that happens later.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use format::acl::{ACCESS, Acl};
use format::entry_record::Target;
use format::inode_record::FileKind;
use inode::permissions::HAS_ACL;
use inode::{Attr, Caller, FsError, Kind, NodeId};
use search::cluster::Fields;
use search::query::{Accounts, Context, Expr};
use search::{
    CARRY_NOTHING, Details, Match, NamedEntry, Outcome, Records, Request, Row, Sort, Start, Stored,
};
use store::{Pinned, TreeId};

use crate::error::from_store;
use crate::nodes::Location;
use crate::search_call::from_search;
use crate::subvolumes::heirs_below::Scope;
use crate::{Entry, FileSystem, Follow, Fs, FsResult, WalkControl, attributes, snapdir};

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
    /// Searches a path and everything below it, with the rights of the caller. `shown` is the
    /// displayed form of the path, and never empty.
    pub fn find(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
        emit: Matches<'_>,
    ) -> FsResult<Outcome> {
        let entry = self.resolve(caller, path, follow)?;
        let found = self.find_from(caller, &entry, shown, find, Some(emit));
        self.forget(entry.node, 1);
        found
    }

    /// Counts what [`Fs::find`] would find, without returning matches and without a limit.
    pub fn count(
        &self,
        caller: &Caller,
        path: &[u8],
        follow: Follow,
        shown: &[u8],
        find: &Find<'_>,
    ) -> FsResult<Outcome> {
        let entry = self.resolve(caller, path, follow)?;
        let find = Find { limit: None, order: None, contents_first: false, ..*find };
        let found = self.find_from(caller, &entry, shown, &find, None);
        self.forget(entry.node, 1);
        found
    }

    /// The same from a node that the caller already holds, regardless of what is above it.
    pub(crate) fn find_below(
        &self,
        caller: &Caller,
        node: NodeId,
        shown: &[u8],
        find: &Find<'_>,
        emit: Matches<'_>,
    ) -> FsResult<Outcome> {
        let attr = self.getattr(caller, node)?;
        self.find_from(caller, &Entry { node, attr }, shown, find, Some(emit))
    }

    /// `emit` takes the matches; `None`: they are only counted.
    fn find_from<'a>(
        &'a self,
        caller: &'a Caller,
        entry: &Entry,
        shown: &[u8],
        find: &Find<'a>,
        emit: Option<Matches<'a>>,
    ) -> FsResult<Outcome> {
        let scope = if snapdir::is_virtual(entry.node) {
            Scope::All
        } else {
            Scope::Below(self.subvol_of(self.real(entry.node))?.id.0)
        };
        let pinned = self.pin_for_search(scope).map_err(from_store)?;
        Search { fs: self, caller, find: *find, pinned, emit }.from(entry, shown, 0)
    }

    /// Name of the hidden directory of snapshots that every directory has.
    pub fn snapshot_dir(&self) -> &[u8] {
        &self.header.snapshot_dir
    }
}

struct Search<'a> {
    fs: &'a Fs,
    caller: &'a Caller,
    find: Find<'a>,
    pinned: Arc<dyn Pinned>,
    /// `None`: matches are counted.
    emit: Option<Matches<'a>>,
}

impl Search<'_> {
    fn from(&mut self, entry: &Entry, shown: &[u8], depth: u32) -> FsResult<Outcome> {
        if snapdir::is_virtual(entry.node) {
            return self.snapshots(entry, shown);
        }
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

    /// A virtual directory: itself, and the snapshots in it.
    fn snapshots(&mut self, entry: &Entry, shown: &[u8]) -> FsResult<Outcome> {
        let mut total = Outcome::default();
        let limit = self.find.limit;
        if !self.find.contents_first {
            add(&mut total, self.one(entry, shown, 0)?);
        }
        let mut names: Vec<Vec<u8>> = Vec::new();
        let listed = self.fs.readdir(self.caller, entry.node, 0, &mut |entry| {
            names.push(entry.name.to_vec());
            WalkControl::Continue
        });
        match listed {
            Ok(()) => {}
            Err(FsError::AccessDenied) => total.unreadable += 1,
            Err(error) => return Err(error),
        }
        let deeper = self.find.max_depth.is_none_or(|most| most > 0);
        for name in names {
            if !deeper || total.cancelled || self.is_enough(limit, &total) {
                break;
            }
            let snapshot = match self.fs.lookup(self.caller, entry.node, &name) {
                Ok(snapshot) => snapshot,
                Err(FsError::NotFound | FsError::Stale | FsError::AccessDenied) => continue,
                Err(error) => return Err(error),
            };
            let slash: &[u8] = if shown.ends_with(b"/") { b"" } else { b"/" };
            let found = self.from(&snapshot, &[shown, slash, &name].concat(), 1);
            self.fs.forget(snapshot.node, 1);
            match found {
                Ok(outcome) => add(&mut total, outcome),
                // Deleted since it was listed.
                Err(FsError::NotFound | FsError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        if self.find.contents_first && !total.cancelled && !self.is_enough(limit, &total) {
            add(&mut total, self.one(entry, shown, 0)?);
        }
        Ok(total)
    }

    /// Whether the limit was reached; otherwise the next part is to find no more than is left. An
    /// ordered search returns the first matches of each part, and the caller takes the first of
    /// those.
    fn is_enough(&mut self, limit: Option<u64>, total: &Outcome) -> bool {
        if self.find.order.is_none() {
            self.find.limit = limit.map(|limit| limit.saturating_sub(total.matched));
        }
        self.find.limit == Some(0)
    }

    /// One row: the named object itself.
    fn one(&mut self, entry: &Entry, shown: &[u8], depth: u32) -> FsResult<Outcome> {
        let mut outcome = Outcome::default();
        let deep = depth >= self.find.min_depth && self.find.limit != Some(0);
        if !deep {
            return Ok(outcome);
        }
        let node = self.fs.real(snapdir::directory_of(entry.node));
        let subvol = self.fs.subvol_of(node)?;
        let (directory, cookie) = match self.fs.nodes.location(entry.node) {
            Some(Location::Entry { dir, cookie }) => (dir, cookie),
            _ => (0, 0),
        };
        let name = last_name(shown);
        let mut row = row(&entry.attr, name, directory, cookie);
        let records = Records {
            read: &*self.pinned,
            tree: TreeId(subvol.tree().0),
            searchable: &CARRY_NOTHING,
        };
        let is_virtual = snapdir::is_virtual(entry.node);
        // Attributes do not show that there is an access list; the record does.
        row.mode = match mode_of(records, &row).map_err(from_search)? {
            None => row.mode,
            Some(mode) if is_virtual => snapdir::mode_of(mode) | mode & HAS_ACL,
            Some(mode) => mode,
        };
        let details = One { stored: Stored { records }, is_virtual };
        let subvolume = subvol.id.0;
        let found = Match { row: &row, path: shown, depth, subvolume, details: &details };
        let context = Context::of(&found, self.caller, self.find.accounts, self.find.cancel);
        outcome.rows_tested = 1;
        if self.find.expr.matches(&context).map_err(from_search)? {
            outcome.matched = 1;
            outcome.cancelled = self.emit.as_mut().is_some_and(|emit| emit(&found).is_break());
        }
        Ok(outcome)
    }
}

/// The parts that the row of one start does not hold.
struct One<'a> {
    stored: Stored<'a>,
    is_virtual: bool,
}

impl Details for One<'_> {
    fn target(&self, row: &Row<'_>) -> search::Result<Vec<u8>> {
        self.stored.target(row)
    }

    fn xattr(&self, row: &Row<'_>, name: &[u8]) -> search::Result<Option<Vec<u8>>> {
        let value = self.stored.xattr(row, name)?;
        if !self.is_virtual || name != ACCESS {
            return Ok(value);
        }
        let acl = value.and_then(|bytes| Acl::decode(&bytes).ok().flatten());
        Ok(acl.map(|acl| snapdir::list_of(acl).encode()))
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

fn add(total: &mut Outcome, other: Outcome) {
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
