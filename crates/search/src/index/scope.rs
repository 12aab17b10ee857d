//! Classifies directories for a query: whether they are below its start, their depth and path, and
//! whether the caller may look into them. Parents decide this, never clusters.

use device::Map;
use inode::{Caller, Owned, permissions};
use store::Read;

use super::view::{View, owned};
use crate::assemble::{CARRY_NOTHING, NamedEntry, Records};
use crate::path::push_name;
use crate::query::{Context, Expr, Request};
use crate::stored::Stored;
use crate::{Error, Result, Row};

/// Maximum depth of a path: a longer chain of parents is a cycle.
const DEPTH_MAX: usize = 1 << 20;
/// Maximum remembered directories, and bytes of their paths.
const REMEMBERED_MAX: usize = 1 << 18;
const PATH_BYTES_MAX: usize = 16 << 20;
/// Paths up to this length are remembered for every directory on the way. For longer ones, only the
/// path of the directory itself, and of one in so many above it.
const PATH_KEPT_MAX: usize = 4096;
const CHAIN_STEP: usize = 64;

/// The classification of a directory for a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    /// Whether its names are searched. It is the start or below it, and nothing prunes it. The
    /// caller may list and search it and every directory from the start to it.
    pub(crate) open: bool,
    /// Whether its names are skipped for lack of permission on this very directory.
    pub(crate) refused: bool,
    /// Its depth.
    pub(crate) depth: u32,
}

impl Access {
    const OUTSIDE: Access = Access { open: false, refused: false, depth: 0 };
}

/// The start of the search in one subvolume.
#[derive(Debug, Clone)]
pub(crate) struct From {
    /// The directory in it.
    pub(crate) directory: u64,
    /// Its path, as shown.
    pub(crate) path: Vec<u8>,
    /// Its depth.
    pub(crate) depth: u32,
}

/// Remembers the classification of directories in one subvolume.
pub(crate) struct Scope<'a> {
    pub(crate) view: &'a View,
    pub(crate) from: &'a From,
    request: &'a Request<'a>,
    records: Records<'a>,
    known: Map<u64, Access>,
    paths: Map<u64, Box<[u8]>>,
    path_bytes: usize,
}

impl<'a> Scope<'a> {
    /// A scope that knows only the start.
    pub(crate) fn new(
        view: &'a View,
        from: &'a From,
        request: &'a Request<'a>,
    ) -> Result<Scope<'a>> {
        let read: &dyn Read = &*view.pinned;
        let records = Records { read, tree: view.tree, searchable: &CARRY_NOTHING };
        let mut scope = Scope {
            view,
            from,
            request,
            records,
            known: Map::default(),
            paths: Map::default(),
            path_bytes: 0,
        };
        scope.begin()?;
        Ok(scope)
    }

    /// The user whose permissions apply.
    pub(crate) fn caller(&self) -> &'a Caller {
        self.request.caller
    }

    /// Records of the subvolume.
    pub(crate) fn records(&self) -> Records<'a> {
        self.records
    }

    fn begin(&mut self) -> Result<()> {
        let start = self.from.directory;
        let record = self.records.directory(start)?.ok_or(Error::NotFound)?;
        let owned = owned(record.mode, record.uid, record.gid);
        let access = self.enter(start, owned, self.from.depth)?;
        self.known.insert(start, access);
        Ok(())
    }

    /// Classifies a directory whose ancestors are all open, except for pruning.
    fn enter(&self, ino: u64, owned: Owned, depth: u32) -> Result<Access> {
        if self.request.max_depth.is_some_and(|most| depth >= most) {
            return Ok(Access { depth, ..Access::OUTSIDE });
        }
        let open = self.may_list(ino, owned)?;
        Ok(Access { open, refused: !open, depth })
    }

    /// Whether the caller may list a directory and see the targets of its names.
    pub(crate) fn may_list(&self, ino: u64, owned: Owned) -> Result<bool> {
        let mask = permissions::READ | permissions::EXECUTE;
        owned.allows(self.request.caller, mask, || self.records.access_list(ino))
    }

    /// Classifies a directory.
    #[inline]
    pub(crate) fn access(&mut self, directory: u64) -> Result<Access> {
        match self.known.get(&directory) {
            Some(access) => Ok(*access),
            None => self.find(directory),
        }
    }

    fn find(&mut self, directory: u64) -> Result<Access> {
        if self.known.len() > REMEMBERED_MAX {
            self.known.clear();
            self.begin()?;
        }
        let mut chain = Vec::new();
        let mut at = directory;
        let mut access = loop {
            if let Some(known) = self.known.get(&at) {
                break *known;
            }
            if at == self.view.root {
                break Access::OUTSIDE;
            }
            if chain.len() > DEPTH_MAX {
                return Err(self.records.inconsistent("directories contain each other", at));
            }
            let found = self.view.place(self.records, at)?;
            chain.push((at, found.map(|(_, owned)| owned)));
            match found {
                Some((parent, _)) if parent != at => at = parent,
                _ => break Access::OUTSIDE,
            }
        };
        for (ino, owned) in chain.into_iter().rev() {
            access = match owned {
                Some(owned) if access.open => self.enter(ino, owned, access.depth + 1)?,
                _ => Access::OUTSIDE,
            };
            if (access.open || access.refused) && self.is_pruned(ino, access.depth)? {
                access = Access { depth: access.depth, ..Access::OUTSIDE };
            }
            self.known.insert(ino, access);
        }
        Ok(access)
    }

    fn is_pruned(&mut self, ino: u64, depth: u32) -> Result<bool> {
        let Some(prune) = self.request.prune.filter(|_| depth >= self.request.min_depth) else {
            return Ok(false);
        };
        let Some(record) = self.records.directory(ino)? else { return Ok(true) };
        let mut found = NamedEntry::default();
        self.records.entry(record.parent, record.parent_cookie, &mut found)?;
        let mut xattrs = Vec::new();
        let row = self.records.directory_row(ino, &mut xattrs)?;
        let (directory, cookie) = (record.parent, record.parent_cookie);
        let row = Row { directory, cookie, name: &found.name, xattrs: &xattrs, ..row };
        let mut path = Vec::new();
        self.path(ino, &mut path)?;
        self.matches(prune, &row, &path, depth, self.view.subvolume)
    }

    /// Whether a row meets an expression.
    pub(crate) fn matches(
        &self,
        expr: &Expr,
        row: &Row<'_>,
        path: &[u8],
        depth: u32,
        subvolume: u64,
    ) -> Result<bool> {
        let Request { caller, accounts, cancel, .. } = *self.request;
        let details = &Stored { records: self.records };
        expr.matches(&Context { row, path, depth, subvolume, details, caller, accounts, cancel })
    }

    /// Writes the path of a directory that is inside the scope.
    pub(crate) fn path(&mut self, directory: u64, out: &mut Vec<u8>) -> Result<()> {
        if self.path_bytes > PATH_BYTES_MAX {
            self.paths.clear();
            self.path_bytes = 0;
        }
        let mut names: Vec<(u64, Vec<u8>)> = Vec::new();
        let mut at = directory;
        out.clear();
        loop {
            if at == self.from.directory {
                out.extend_from_slice(&self.from.path);
                break;
            }
            if let Some(path) = self.paths.get(&at) {
                out.extend_from_slice(path);
                break;
            }
            let (parent, name) = self.view.name(self.records, at)?;
            names.push((at, name));
            at = parent;
            if names.len() > DEPTH_MAX {
                return Err(self.records.inconsistent("directories contain each other", at));
            }
        }
        for (below, (ino, name)) in names.into_iter().enumerate().rev() {
            push_name(out, &name);
            // Remembering every path of a very deep chain would take the square of its length.
            let kept = out.len() <= PATH_KEPT_MAX || below % CHAIN_STEP == 0;
            if kept && self.path_bytes <= PATH_BYTES_MAX {
                self.path_bytes += out.len() + 40;
                self.paths.insert(ino, out[..].into());
            }
        }
        Ok(())
    }
}
