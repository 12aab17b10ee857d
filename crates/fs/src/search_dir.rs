//! The virtual directory `.search` at the root of a mount: a directory in it is a query as one
//! types it into a search box, and holds the matches as symbolic links, so that any program can
//! use a query. What the mount does not show is not searched.
//!
//! Nothing of it is stored. A query's directory belongs to the caller who named it: another user
//! who says the same words gets a directory of his own, and what he may see. It is searched when
//! it is listed from its start, and when a name is looked up and the last search is not fresh.
//! Front ends must not keep what stands here (`is_volatile`).
//!
//! A link is named like its match; of several alike, in the order of paths, the second ends in
//! `~2`, and so on. It leads there by a path relative to the root.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use device::{Map, Set};
use inode::{Attr, Caller, FsError, Kind, NodeId, SubvolId};
use parking_lot::Mutex;
use search::cluster::Fields;
use search::query::{Accounts, Expr};

use crate::{DirEntry, Entry, Find, Fs, FsResult, WalkControl};

/// Its name at the root, unless something there is called that.
pub(crate) const NAME: &[u8] = b".search";

/// The subvolume that its nodes are shown in: one above all that exist.
const SUBVOL: u64 = (1 << 24) - 1;
/// Bits of a node's number that say which link of a query it is.
const LINK_BITS: u32 = 20;
/// Most links of a query.
const LINKS_MAX: usize = 1 << 15;
/// Most queries that are remembered; the one used longest ago is forgotten first.
const QUERIES_MAX: usize = 64;
/// Most links that a query has had: those that are gone are remembered too.
const TARGETS_MAX: usize = 1 << 17;
/// Greatest number of a query.
const QUERY_MAX: u64 = (1 << (40 - LINK_BITS)) - 1;
/// How long a search counts for look-ups of the names that it found.
const FRESH: Duration = Duration::from_secs(2);
/// The same, in how often it might have been made meanwhile, where that is more.
const SLOW_KEPT: u32 = 4;
/// Memory of all that was found; beyond it queries are forgotten, the one used longest ago first.
const FOUND_BYTES_MAX: usize = 64 << 20;
/// Queries of one user, of all that are remembered.
const QUERIES_A_USER: usize = QUERIES_MAX / 4;

/// What the volume's owner knows and the volume does not: what words of a query mean.
pub trait Questions: Send + Sync {
    /// Reads a query; the error is for people.
    fn parse(&self, text: &[u8]) -> Result<Expr, String>;

    /// What is known of users and groups.
    fn accounts(&self) -> &dyn Accounts;
}

/// Whether a node stands in `.search`, or is it: whoever caches must ask again at every use.
#[inline]
pub fn is_volatile(node: NodeId) -> bool {
    node.subvol() == SubvolId(SUBVOL)
}

/// The queries that callers named.
#[derive(Default)]
pub(crate) struct Searches {
    questions: Mutex<Option<Arc<dyn Questions>>>,
    /// What the mount shows as its root, unless that is the volume's.
    shown: Mutex<Option<NodeId>>,
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    numbers: BTreeMap<Key, u64>,
    queries: BTreeMap<u64, Arc<Query>>,
    /// Their numbers, the one used longest ago first.
    order: VecDeque<u64>,
    last: u64,
}

/// Whose query, and which.
type Key = (u32, u32, Vec<u32>, Vec<u8>);

struct Query {
    key: Key,
    expr: Expr,
    /// Held while it is searched, so that who asks meanwhile waits for that search; links lead
    /// where they did.
    searching: Mutex<()>,
    found: Mutex<Found>,
    /// What is found takes so much memory.
    bytes: AtomicUsize,
}

#[derive(Default)]
struct Found {
    /// When the last search ended, and how long it took.
    searched: Option<(Duration, Duration)>,
    /// Targets of links by number. The kernel keeps them, so a number never has another one.
    targets: Vec<Vec<u8>>,
    numbers: Map<Vec<u8>, u32>,
    /// Numbers of the links of the last search, by their names.
    names: Map<Vec<u8>, u32>,
    /// The links of the last search, in the order listed: number and name.
    listed: Vec<(u32, Vec<u8>)>,
}

enum Place {
    Top,
    Query(u64),
    Link(u64, u32),
}

fn place(node: NodeId) -> Place {
    let number = node.ino().0;
    let (query, link) = (number >> LINK_BITS, number & ((1 << LINK_BITS) - 1));
    match (query, link) {
        (0, _) => Place::Top,
        (query, 0) => Place::Query(query),
        (query, link) => Place::Link(query, link as u32 - 1),
    }
}

fn node(query: u64, link: Option<u32>) -> NodeId {
    let link = link.map_or(0, |link| u64::from(link) + 1);
    NodeId(SUBVOL << 40 | query << LINK_BITS | link)
}

impl Fs {
    /// Makes `.search` there: from now on its directories mean queries.
    pub fn set_questions(&self, questions: Arc<dyn Questions>) {
        *self.searches.questions.lock() = Some(questions);
    }
}

/// Looks `.search` up at the root; `None` where there is none.
pub(crate) fn enter(fs: &Fs, caller: &Caller) -> Option<Entry> {
    fs.searches.questions.lock().as_ref()?;
    Some(entry(attr(fs, caller, NodeId(SUBVOL << 40), Kind::Directory, 0)))
}

fn entry(attr: Attr) -> Entry {
    Entry { node: attr.node, attr }
}

/// Attributes: a directory of the caller's own that nobody writes, or a link.
fn attr(fs: &Fs, caller: &Caller, node: NodeId, kind: Kind, size: u64) -> Attr {
    let now = fs.env.clock.now();
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
        atime: now,
        mtime: now,
        ctime: now,
        btime: now,
    }
}

/// Looks a query up, or a link of one.
pub(crate) fn lookup(fs: &Fs, caller: &Caller, at: NodeId, name: &[u8]) -> FsResult<Entry> {
    if name == b"." {
        return Ok(entry(getattr(fs, caller, at)?));
    }
    match (place(at), name) {
        (Place::Top, b"..") => {
            let attr = crate::ops::getattr::getattr(fs, caller, fs.searches.root())?;
            Ok(entry(attr))
        }
        (Place::Query(_), b"..") => enter(fs, caller).ok_or(FsError::Stale),
        (Place::Top, _) => {
            let number = fs.searches.number(caller, name)?;
            Ok(entry(attr(fs, caller, node(number, None), Kind::Directory, 0)))
        }
        (Place::Query(number), _) => {
            let query = fs.searches.query(number)?;
            query.search(fs, number, caller, FRESH)?;
            let found = query.found.lock();
            let link = found.names.get(name).copied().ok_or(FsError::NotFound)?;
            let size = found.targets[link as usize].len() as u64;
            Ok(entry(attr(fs, caller, node(number, Some(link)), Kind::Symlink, size)))
        }
        (Place::Link(..), _) => Err(FsError::NotDirectory),
    }
}

/// Attributes of a node of `.search`.
pub(crate) fn getattr(fs: &Fs, caller: &Caller, at: NodeId) -> FsResult<Attr> {
    match place(at) {
        Place::Top => Ok(attr(fs, caller, at, Kind::Directory, 0)),
        Place::Query(number) => {
            fs.searches.query(number)?;
            Ok(attr(fs, caller, at, Kind::Directory, 0))
        }
        Place::Link(..) => {
            let size = readlink(fs, at)?.len() as u64;
            Ok(attr(fs, caller, at, Kind::Symlink, size))
        }
    }
}

/// Where a link leads.
pub(crate) fn readlink(fs: &Fs, at: NodeId) -> FsResult<Vec<u8>> {
    let Place::Link(number, link) = place(at) else {
        return Err(FsError::InvalidArgument("not a symbolic link"));
    };
    let query = fs.searches.query(number)?;
    let found = query.found.lock();
    found.targets.get(link as usize).cloned().ok_or(FsError::Stale)
}

/// Lists the matches of a query. `.search` itself lists nothing: it has every query.
pub(crate) fn readdir(
    fs: &Fs,
    caller: &Caller,
    at: NodeId,
    cookie: u64,
    plus: bool,
    take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
) -> FsResult<()> {
    const FIRST_COOKIE: u64 = 256;
    let number = match place(at) {
        Place::Top => return Ok(()),
        Place::Query(number) => number,
        Place::Link(..) => return Err(FsError::NotDirectory),
    };
    let query = fs.searches.query(number)?;
    if cookie < FIRST_COOKIE {
        query.search(fs, number, caller, Duration::ZERO)?;
    }
    let found = query.found.lock();
    let skipped = (cookie + 1).saturating_sub(FIRST_COOKIE) as usize;
    for (at, (link, name)) in found.listed.iter().enumerate().skip(skipped) {
        let node = node(number, Some(*link));
        let size = found.targets[*link as usize].len() as u64;
        let attr = plus.then(|| attr(fs, caller, node, Kind::Symlink, size));
        let (kind, cookie) = (Kind::Symlink, FIRST_COOKIE + at as u64);
        let entry = DirEntry { name, node, kind, cookie, attr: attr.as_ref() };
        if take(&entry) == WalkControl::Stop {
            break;
        }
    }
    Ok(())
}

impl Inner {
    fn forget(&mut self, number: u64) {
        if let Some(query) = self.queries.remove(&number) {
            self.numbers.remove(&query.key);
        }
        self.order.retain(|other| *other != number);
    }

    fn use_now(&mut self, number: u64) {
        if let Some(at) = self.order.iter().position(|other| *other == number) {
            self.order.remove(at);
            self.order.push_back(number);
        }
    }

    /// Makes room for one more query of a user: one user's many do not displace all others.
    fn make_room(&mut self, uid: u32) {
        let of_user =
            |number: &&u64| self.queries.get(number).is_some_and(|query| query.key.0 == uid);
        let own: Vec<u64> = self.order.iter().filter(of_user).copied().collect();
        if own.len() >= QUERIES_A_USER {
            self.forget(own[0]);
        } else if self.queries.len() >= QUERIES_MAX
            && let Some(first) = self.order.front().copied()
        {
            self.forget(first);
        }
    }

    /// Forgets queries until what was found takes no more than it may, but not this one.
    fn settle(&mut self, number: u64) {
        let bytes = |query: &Arc<Query>| query.bytes.load(Ordering::Relaxed);
        let mut all: usize = self.queries.values().map(bytes).sum();
        let others = self.order.iter().copied().filter(|other| *other != number);
        for other in others.collect::<Vec<_>>() {
            if all <= FOUND_BYTES_MAX {
                break;
            }
            all -= self.queries.get(&other).map_or(0, bytes);
            self.forget(other);
        }
    }
}

impl Searches {
    /// The directory that `.search` is in, and that queries search.
    pub(crate) fn root(&self) -> NodeId {
        self.shown.lock().unwrap_or(NodeId::ROOT)
    }

    /// Has `.search` in another directory.
    pub(crate) fn show(&self, root: NodeId) {
        *self.shown.lock() = Some(root);
    }

    /// The number of a caller's query.
    fn number(&self, caller: &Caller, text: &[u8]) -> FsResult<u64> {
        let key: Key = (caller.uid, caller.gid, caller.groups.clone(), text.to_vec());
        if let Some(number) = self.inner.lock().numbers.get(&key) {
            return Ok(*number);
        }
        let questions = self.questions.lock().clone().ok_or(FsError::NotFound)?;
        let expr = questions.parse(text).map_err(|error| {
            let text = String::from_utf8_lossy(text);
            tracing::info!(%text, %error, "a directory of .search is no query");
            FsError::InvalidArgument("not a query")
        })?;
        let mut inner = self.inner.lock();
        // One that nobody has: a number fits into what a node has for it.
        let number = loop {
            inner.last = inner.last % QUERY_MAX + 1;
            if !inner.queries.contains_key(&inner.last) {
                break inner.last;
            }
        };
        inner.make_room(caller.uid);
        inner.order.push_back(number);
        inner.numbers.insert(key.clone(), number);
        let (searching, found, bytes) = Default::default();
        inner.queries.insert(number, Arc::new(Query { key, expr, searching, found, bytes }));
        Ok(number)
    }

    fn query(&self, number: u64) -> FsResult<Arc<Query>> {
        let mut inner = self.inner.lock();
        inner.use_now(number);
        inner.queries.get(&number).cloned().ok_or(FsError::Stale)
    }
}

impl Query {
    /// Searches, unless the last search is not older than `age`.
    fn search(&self, fs: &Fs, number: u64, caller: &Caller, age: Duration) -> FsResult<()> {
        let (uid, gid, groups, _) = &self.key;
        if (caller.uid, caller.gid) != (*uid, *gid) && !caller.is_root() {
            return Err(FsError::AccessDenied);
        }
        let caller = Caller { uid: *uid, gid: *gid, groups: groups.clone(), ..caller.clone() };
        let questions = fs.searches.questions.lock().clone().ok_or(FsError::Stale)?;
        let _searching = self.searching.lock();
        let begun = fs.env.clock.monotonic();
        let last = self.found.lock().searched;
        // One that takes long would be stale when it is ready.
        let fresh = |(ended, took): (Duration, Duration)| {
            !age.is_zero() && begun.saturating_sub(ended) < age.max(took * SLOW_KEPT)
        };
        if last.is_some_and(fresh) {
            return Ok(());
        }
        let find = Find {
            expr: &self.expr,
            prune: None,
            min_depth: 1,
            max_depth: None,
            contents_first: false,
            order: None,
            limit: Some(LINKS_MAX as u64 + 1),
            fields: Fields::NONE,
            accounts: questions.accounts(),
            cancel: &AtomicBool::new(false),
        };
        let mut paths: Vec<Vec<u8>> = Vec::new();
        fs.find_below(&caller, fs.searches.root(), b"../..", &find, &mut |matched| {
            paths.push(matched.path.to_vec());
            std::ops::ControlFlow::Continue(())
        })?;
        if paths.len() > LINKS_MAX {
            return Err(FsError::FileTooLarge);
        }
        paths.sort_unstable();
        let mut found = self.found.lock();
        if found.targets.len() + paths.len() > TARGETS_MAX {
            // The query is named anew, by another number.
            drop(found);
            fs.searches.inner.lock().forget(number);
            return Err(FsError::Stale);
        }
        found.replace(paths);
        let ended = fs.env.clock.monotonic();
        found.searched = Some((ended, ended.saturating_sub(begun)));
        self.bytes.store(found.memory_bytes(), Ordering::Relaxed);
        drop(found);
        fs.searches.inner.lock().settle(number);
        Ok(())
    }
}

impl Found {
    fn memory_bytes(&self) -> usize {
        let targets: usize = self.targets.iter().map(|target| 2 * target.len() + 96).sum();
        let names: usize = self.listed.iter().map(|(_, name)| 2 * name.len() + 96).sum();
        targets + names
    }

    /// Takes the matches of a new search.
    fn replace(&mut self, paths: Vec<Vec<u8>>) {
        self.names.clear();
        let mut taken: Set<Vec<u8>> = Set::default();
        let mut turns: Map<Vec<u8>, u32> = Map::default();
        self.listed.clear();
        for path in paths {
            let start = path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1);
            let own = path.get(start..).unwrap_or_default();
            // Where the one before it that is called alike ended.
            let turn = turns.entry(own.to_vec()).or_insert(0);
            let name = loop {
                *turn += 1;
                let name = numbered(own, *turn);
                if taken.insert(name.clone()) {
                    break name;
                }
            };
            let next = self.targets.len() as u32;
            let number = *self.numbers.entry(path.clone()).or_insert(next);
            if number == next {
                self.targets.push(path);
            }
            self.names.insert(name.clone(), number);
            self.listed.push((number, name));
        }
    }
}

/// The name of a link by its match's, and how many are called alike up to it.
fn numbered(own: &[u8], turn: u32) -> Vec<u8> {
    if turn == 1 {
        return own.to_vec();
    }
    let end = format!("~{turn}");
    let kept = own.len().min(inode::NAME_BYTES_MAX - end.len());
    [&own[..kept], end.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::Found;

    #[test]
    fn links_alike_are_told_apart_and_a_number_never_leads_elsewhere() {
        let mut found = Found::default();
        let paths = |paths: &[&str]| paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        found.replace(paths(&["../../a/f", "../../b/f", "../../c/f~2"]));
        let names = |found: &Found| -> Vec<String> {
            found.listed.iter().map(|(_, name)| String::from_utf8_lossy(name).into()).collect()
        };
        assert_eq!(names(&found), ["f", "f~2", "f~2~2"]);
        let (first, second) = (found.listed[0].0, found.listed[1].0);
        assert_ne!(first, second);
        // Some minutes, were each counted from the first.
        found.replace((0..30_000).map(|at| format!("../../{at:05}/f").into_bytes()).collect());
        assert_eq!(names(&found)[29_999], "f~30000");
        found.replace(paths(&["../../b/f"]));
        assert_eq!(found.listed, [(second, b"f".to_vec())]);
        assert_eq!(found.targets[first as usize], b"../../a/f");
    }
}
