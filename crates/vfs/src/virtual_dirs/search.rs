//! The virtual directory `.search` at the root of a mount. A directory in it is a query in the
//! syntax of a search box. It contains the matches as symbolic links, so that any program can use a
//! query. It searches only what the mount shows.
//!
//! Nothing of it is stored. A query's directory belongs to the caller who named it. Another user
//! with the same words gets a separate directory, with what that user may see. The search runs when
//! the directory is listed from its start, and when a name is looked up and the last search is not
//! fresh. Front ends must not cache its contents (`is_volatile`). Times are of the moment when a
//! query was named. Programs such as tar treat a changed status time at the end of reading as a
//! concurrent change. Only the time of the last change of a query's directory is that of the call.
//! The kernel keeps a listing as long as that is the same.
//!
//! A link is named like its match; of several alike, in the order of paths, the second ends in
//! `~2`, and so on. Its target is a path relative to the root.
//!
//! The memory of all queries together is bounded. The user with the most queries loses the least
//! recently used one first, so that no user evicts the queries of others.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use device::sync::Mutex;
use device::{Clock, Timestamp};
use inode::{Attr, Caller, FsError, Ino, Kind, NodeId, Slot};

use super::links::Links;
use crate::{DirEntry, Entry, FsResult, WalkControl, cancel, is_cancelled};

/// Its name at the root, unless another object there has that name.
pub(super) const NAME: &[u8] = b".search";

/// The slot that its nodes are shown in: one above all that subvolumes have.
const SUBVOL: u64 = (1 << 24) - 1;
/// Bits of a node's number that encode which link of a query it is.
const LINK_BITS: u32 = 20;
/// Most links of a query.
const LINKS_MAX: usize = 1 << 15;
/// Bytes of the paths of one query.
const PATH_BYTES_MAX: usize = 16 << 20;
/// Most numbers of links of a query; when they are used up it is named again.
const NUMBERS_MAX: u32 = (1 << LINK_BITS) - 2;
/// Most queries that are remembered, and bytes of their links.
const QUERIES_MAX: usize = 64;
const BYTES_MAX: usize = 64 << 20;
/// How long an unused query is remembered.
const KEPT: Duration = Duration::from_secs(600);
/// Greatest number of a query.
const QUERY_MAX: u64 = (1 << (40 - LINK_BITS)) - 1;
/// How long a search stays valid, at least, for look-ups of the names that it found. Then the same
/// as a multiple of the time that it took.
const FRESH: Duration = Duration::from_secs(2);
const FRESH_TIMES: u32 = 10;
/// How often a thread that waits for another one's search checks whether it still has to.
const LOOK: Duration = Duration::from_millis(50);

/// The error for an attempt to change the result of a query.
pub(super) const REFUSED: FsError = FsError::NotPermitted("a query directory is read-only");

/// Answers queries that are names of directories in `.search`.
pub trait Search: Send + Sync {
    /// Reads a query; the error is for people.
    fn parse(&self, text: &[u8]) -> Result<Box<dyn Query>, String>;
}

/// A query that was read.
pub trait Query: Send + Sync {
    /// Finds up to `limit` nodes below a directory that the caller may see, and passes their paths
    /// below it, each after `../..`. Ends early when `cancel` is set.
    fn run(
        &self,
        caller: &Caller,
        directory: NodeId,
        limit: u64,
        cancel: &AtomicBool,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> FsResult<()>;
}

/// Whether a node is in `.search`, or is it: a front end that caches must ask again at every use.
#[inline]
pub(super) fn is_volatile(node: NodeId) -> bool {
    node.slot() == Slot(SUBVOL)
}

/// The queries that callers named.
pub(super) struct Searches {
    search: Arc<dyn Search>,
    clock: Arc<dyn Clock>,
    /// When `.search` was made.
    since: Timestamp,
    /// The directory that `.search` is in, and that queries search.
    shown: Arc<Mutex<NodeId>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    numbers: BTreeMap<Key, u64>,
    queries: BTreeMap<u64, Held>,
    last: u64,
}

struct Held {
    query: Arc<Named>,
    /// When it was last used.
    used: Duration,
    /// Memory of its links.
    bytes: usize,
}

/// Whose query, and which.
type Key = (u32, u32, Vec<u32>, Vec<u8>);

struct Named {
    key: Key,
    query: Box<dyn Query>,
    /// When it was named.
    made: Timestamp,
    /// Held during a search; what it found is put in place at its end.
    searching: Mutex<()>,
    found: Mutex<LastSearch>,
}

#[derive(Default)]
struct LastSearch {
    /// Until when the last search is valid for look-ups.
    until: Option<Duration>,
    links: Links,
}

enum SearchNode {
    Top,
    Query(u64),
    Link(u64, u32),
}

fn place(node: NodeId) -> SearchNode {
    let number = node.ino().0;
    let (query, link) = (number >> LINK_BITS, number & ((1 << LINK_BITS) - 1));
    match (query, link) {
        (0, _) => SearchNode::Top,
        (query, 0) => SearchNode::Query(query),
        (query, link) => SearchNode::Link(query, link as u32 - 1),
    }
}

fn node(query: u64, link: Option<u32>) -> NodeId {
    let link = link.map_or(0, |link| u64::from(link) + 1);
    NodeId::of(Slot(SUBVOL), Ino(query << LINK_BITS | link))
}

fn entry(attr: Attr) -> Entry {
    Entry { node: attr.node, attr }
}

/// Attributes: a read-only directory of the caller's, or a link.
fn attr(caller: &Caller, node: NodeId, kind: Kind, size: u64, time: Timestamp) -> Attr {
    let mode = match (kind, node.ino().0) {
        (Kind::Symlink, _) => 0o777,
        (_, 0) => 0o555,
        _ => 0o500,
    };
    Attr {
        node,
        kind,
        mode,
        nlink: if kind == Kind::Directory { 2 } else { 1 },
        uid: caller.uid,
        gid: caller.gid,
        rdev: 0,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
        btime: time,
    }
}

impl Inner {
    fn forget(&mut self, number: u64) {
        if let Some(held) = self.queries.remove(&number) {
            self.numbers.remove(&held.query.key);
        }
    }

    /// Forgets what was not used for long, and more until the rest fits in the bound; not the one
    /// in use.
    fn shrink(&mut self, now: Duration, but: u64) {
        let old = |held: &Held| now.saturating_sub(held.used) >= KEPT;
        let unused: Vec<u64> =
            self.queries.iter().filter(|(_, held)| old(held)).map(|(number, _)| *number).collect();
        unused.into_iter().filter(|number| *number != but).for_each(|one| self.forget(one));
        loop {
            let mut users: BTreeMap<u32, (usize, usize)> = BTreeMap::new();
            for held in self.queries.values() {
                let (bytes, count) = users.entry(held.query.key.0).or_default();
                *bytes += held.bytes;
                *count += 1;
            }
            let bytes: usize = users.values().map(|(bytes, _)| bytes).sum();
            let over_bytes = bytes > BYTES_MAX;
            if !over_bytes && self.queries.len() <= QUERIES_MAX {
                return;
            }
            let most = |(_, (bytes, count)): &(&u32, &(usize, usize))| {
                if over_bytes { *bytes } else { *count }
            };
            let user = users.iter().max_by_key(most).map(|(user, _)| *user);
            let own = self
                .queries
                .iter()
                .filter(|(number, held)| **number != but && Some(held.query.key.0) == user);
            let oldest = own.min_by_key(|(_, held)| held.used).map(|(number, _)| *number);
            let any = || self.queries.keys().find(|number| **number != but).copied();
            let Some(number) = oldest.or_else(any) else { return };
            self.forget(number);
        }
    }
}

impl Searches {
    pub(super) fn new(
        search: Arc<dyn Search>,
        clock: Arc<dyn Clock>,
        shown: Arc<Mutex<NodeId>>,
    ) -> Searches {
        let since = clock.now();
        Searches { search, clock, since, shown, inner: Mutex::default() }
    }

    /// Looks `.search` up at the root.
    pub(super) fn enter(&self, caller: &Caller) -> Entry {
        entry(self.top(caller))
    }

    /// Attributes of `.search`.
    fn top(&self, caller: &Caller) -> Attr {
        attr(caller, NodeId::of(Slot(SUBVOL), Ino(0)), Kind::Directory, 0, self.since)
    }

    /// Attributes of a query's directory: its contents are as of now.
    fn directory(&self, caller: &Caller, node: NodeId, made: Timestamp) -> Attr {
        let mtime = self.clock.now();
        Attr { mtime, ..attr(caller, node, Kind::Directory, 0, made) }
    }

    /// Looks a query up, or a link of one. `None`: the directory that `.search` is in.
    pub(super) fn lookup(
        &self,
        caller: &Caller,
        at: NodeId,
        name: &[u8],
    ) -> FsResult<Option<Entry>> {
        if name == b"." {
            return self.getattr(caller, at).map(entry).map(Some);
        }
        match (place(at), name) {
            (SearchNode::Top, b"..") => Ok(None),
            (SearchNode::Query(_), b"..") => Ok(Some(self.enter(caller))),
            (SearchNode::Top, _) => {
                let number = self.number(caller, name)?;
                let made = self.query(number)?.made;
                Ok(Some(entry(self.directory(caller, node(number, None), made))))
            }
            (SearchNode::Query(number), _) => {
                let query = self.query(number)?;
                query.search(self, number, caller, false)?;
                let found = query.found.lock();
                let link = found.links.named(name).ok_or(FsError::NotFound)?;
                let size = found.links.get(link).map_or(0, |link| link.path.len() as u64);
                let node = node(number, Some(link));
                Ok(Some(entry(attr(caller, node, Kind::Symlink, size, query.made))))
            }
            (SearchNode::Link(..), _) => Err(FsError::NotDirectory),
        }
    }

    /// Attributes of a node of `.search`.
    pub(super) fn getattr(&self, caller: &Caller, at: NodeId) -> FsResult<Attr> {
        match place(at) {
            SearchNode::Top => Ok(self.top(caller)),
            SearchNode::Query(number) => {
                let made = self.query(number)?.made;
                Ok(self.directory(caller, at, made))
            }
            SearchNode::Link(number, _) => {
                let size = self.readlink(at)?.len() as u64;
                let made = self.query(number)?.made;
                Ok(attr(caller, at, Kind::Symlink, size, made))
            }
        }
    }

    /// The target of a link.
    pub(super) fn readlink(&self, at: NodeId) -> FsResult<Vec<u8>> {
        let SearchNode::Link(number, link) = place(at) else {
            return Err(FsError::InvalidArgument("not a symbolic link"));
        };
        let query = self.query(number)?;
        let found = query.found.lock();
        found.links.get(link).map(|link| link.path.to_vec()).ok_or(FsError::Stale)
    }

    /// Lists the matches of a query. `.search` itself lists nothing: it contains every query.
    pub(super) fn readdir(
        &self,
        caller: &Caller,
        at: NodeId,
        (cookie, plus): (u64, bool),
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        const FIRST_COOKIE: u64 = 256;
        let number = match place(at) {
            SearchNode::Top => return Ok(()),
            SearchNode::Query(number) => number,
            SearchNode::Link(..) => return Err(FsError::NotDirectory),
        };
        let query = self.query(number)?;
        if cookie < FIRST_COOKIE {
            query.search(self, number, caller, true)?;
        }
        let found = query.found.lock();
        let from = u32::try_from((cookie + 1).saturating_sub(FIRST_COOKIE)).unwrap_or(u32::MAX);
        for (number_of, link) in found.links.from(from) {
            let node = node(number, Some(number_of));
            let size = link.path.len() as u64;
            let attr = plus.then(|| attr(caller, node, Kind::Symlink, size, query.made));
            let (kind, cookie) = (Kind::Symlink, FIRST_COOKIE + u64::from(number_of));
            let entry = DirEntry { name: &link.name, node, kind, cookie, attr: attr.as_ref() };
            if take(&entry) == WalkControl::Stop {
                break;
            }
        }
        Ok(())
    }

    /// The number of a caller's query.
    fn number(&self, caller: &Caller, text: &[u8]) -> FsResult<u64> {
        if is_hidden_name(text) {
            return Err(FsError::NotFound);
        }
        let key: Key = (caller.uid, caller.gid, caller.groups.clone(), text.to_vec());
        let now = self.clock.monotonic();
        {
            let mut inner = self.inner.lock();
            if let Some(number) = inner.numbers.get(&key).copied() {
                if let Some(held) = inner.queries.get_mut(&number) {
                    held.used = now;
                }
                return Ok(number);
            }
        }
        let query = self.search.parse(text).map_err(|error| {
            let text = String::from_utf8_lossy(text);
            tracing::info!(%text, %error, "a directory below .search is not a query");
            FsError::InvalidArgument("not a query")
        })?;
        let mut inner = self.inner.lock();
        // An unused one: a number must fit into the bits that a node has for it.
        let number = loop {
            inner.last = inner.last % QUERY_MAX + 1;
            if !inner.queries.contains_key(&inner.last) {
                break inner.last;
            }
        };
        inner.numbers.insert(key.clone(), number);
        let (searching, found) = (Mutex::default(), Mutex::default());
        let made = self.clock.now();
        let query = Arc::new(Named { key, query, made, searching, found });
        inner.queries.insert(number, Held { query, used: now, bytes: 0 });
        inner.shrink(now, number);
        Ok(number)
    }

    fn query(&self, number: u64) -> FsResult<Arc<Named>> {
        let mut inner = self.inner.lock();
        let held = inner.queries.get_mut(&number).ok_or(FsError::Stale)?;
        held.used = self.clock.monotonic();
        Ok(Arc::clone(&held.query))
    }

    /// Counts what a query's links take now.
    fn settle(&self, now: Duration, number: u64, bytes: usize) {
        let mut inner = self.inner.lock();
        if let Some(held) = inner.queries.get_mut(&number) {
            (held.used, held.bytes) = (now, bytes);
        }
        inner.shrink(now, number);
    }
}

/// Whether a name is one that programs look for in every directory, as `.git`: no query is meant.
fn is_hidden_name(text: &[u8]) -> bool {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"._-".contains(byte);
    text.first() == Some(&b'.') && text.iter().all(plain)
}

impl Named {
    /// Searches; for a look-up only if the last search is no longer valid.
    fn search(
        &self,
        searches: &Searches,
        number: u64,
        caller: &Caller,
        again: bool,
    ) -> FsResult<()> {
        let (uid, gid, groups, _) = &self.key;
        if (caller.uid, caller.gid) != (*uid, *gid) && !caller.is_root() {
            return Err(FsError::AccessDenied);
        }
        let caller = Caller { uid: *uid, gid: *gid, groups: groups.clone(), ..caller.clone() };
        let clock = &searches.clock;
        let is_fresh =
            || !again && self.found.lock().until.is_some_and(|until| clock.monotonic() < until);
        let cancel = cancel();
        let _turn = loop {
            if is_fresh() {
                return Ok(());
            }
            match self.searching.try_lock_for(LOOK) {
                Some(turn) => break turn,
                None if is_cancelled(&cancel) => return Err(FsError::Interrupted),
                None => {}
            }
        };
        if is_fresh() {
            return Ok(());
        }
        let begun = clock.monotonic();
        let (mut paths, mut bytes): (Vec<Vec<u8>>, usize) = (Vec::new(), 0);
        let root = *searches.shown.lock();
        self.query.run(&caller, root, LINKS_MAX as u64 + 1, &cancel, &mut |path| {
            bytes += path.len();
            if bytes > PATH_BYTES_MAX {
                return ControlFlow::Break(());
            }
            paths.push(path.to_vec());
            ControlFlow::Continue(())
        })?;
        if is_cancelled(&cancel) {
            return Err(FsError::Interrupted);
        }
        if paths.len() > LINKS_MAX || bytes > PATH_BYTES_MAX {
            return Err(FsError::FileTooLarge);
        }
        paths.sort_unstable();
        let mut found = self.found.lock();
        if !found.links.replace(paths, NUMBERS_MAX) {
            // The query is named again, by another number.
            drop(found);
            searches.inner.lock().forget(number);
            return Err(FsError::Stale);
        }
        let now = clock.monotonic();
        let took = now.saturating_sub(begun);
        found.until = Some(now + FRESH.max(took * FRESH_TIMES));
        let bytes = found.links.memory_bytes();
        drop(found);
        searches.settle(now, number, bytes);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Query for Nothing {
        fn run(
            &self,
            _: &Caller,
            _: NodeId,
            _: u64,
            _: &AtomicBool,
            _: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
        ) -> FsResult<()> {
            Ok(())
        }
    }

    fn held(user: u32, number: u64, bytes: usize) -> Held {
        let key = (user, user, Vec::new(), number.to_string().into_bytes());
        let (searching, found) = (Mutex::default(), Mutex::default());
        let made = Timestamp::default();
        let query = Arc::new(Named { key, query: Box::new(Nothing), made, searching, found });
        Held { query, used: Duration::from_secs(number), bytes }
    }

    fn left(inner: &Inner, user: u32) -> Vec<u64> {
        let own = inner.queries.iter().filter(|(_, held)| held.query.key.0 == user);
        own.map(|(number, _)| *number).collect()
    }

    #[test]
    fn the_user_with_the_most_queries_loses_the_oldest() {
        let mut inner = Inner::default();
        inner.queries.insert(1, held(7, 1, 10));
        inner.queries.insert(2, held(7, 2, 20 << 20));
        for number in 3..=200 {
            inner.queries.insert(number, held(8, number, 0));
            inner.shrink(Duration::from_secs(number), number);
        }
        assert_eq!(left(&inner, 7), [1, 2]);
        assert_eq!(left(&inner, 8), (139..=200).collect::<Vec<_>>());
        for number in 201..=205 {
            inner.queries.insert(number, held(8, number, 15 << 20));
            inner.shrink(Duration::from_secs(number), number);
        }
        assert_eq!(left(&inner, 7), [1, 2]);
        assert_eq!(left(&inner, 8), [204, 205]);
        inner.shrink(Duration::from_secs(803), 1);
        assert_eq!((left(&inner, 7), left(&inner, 8)), (vec![1], vec![204, 205]));
    }

    #[test]
    fn names_that_programs_probe_are_not_queries() {
        for name in [".git", ".hg", ".cargo", "..", ".Trash-1000"] {
            assert!(is_hidden_name(name.as_bytes()), "{name}");
        }
        for query in ["*.h5", ".h5 size:>1", "a.b", ".*rc", "\".git\""] {
            assert!(!is_hidden_name(query.as_bytes()), "{query}");
        }
    }
}
