//! Searching: rows go out as they are found, in messages of bounded size, and a search ends when
//! nobody reads on.
//!
//! A second thread (`watch`) sends rows that have waited for a moment, so rare matches are seen at
//! once. It also notices when the other side goes away.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use fs::{Paths, Volume};
use inode::{Caller, FsError};
use search::cluster::Fields;
use search::query::{Context, Expr, Fired};
use search::{Match, Outcome};
use wire::{
    Answer, Attr, Body, Bytes, Failure, FailureKind, Find, FindFrom, Found, FoundOutcome, Kind,
};

use super::about::about;
use super::accounts::Accounts;
use super::replies::Replies;
use super::server::Server;
use super::{find_from, watch};

/// Bytes of paths, attributes and targets in one message.
const PART_BYTES: usize = 64 << 10;
/// Longest path that is sent: directories can be made below one another without end.
pub(super) const PATH_BYTES_MAX: usize = 512 << 10;

/// Longest path that a caller may name, in the volume and as it is shown: as long as an argument of
/// a command may be. Patterns are compared with the latter and what is below.
const FROM_BYTES_MAX: usize = 128 << 10;

/// The outcome of a search as a caller may see it. How much was read to find nothing would reveal
/// what exists that the caller may not see.
fn shown(total: FoundOutcome, caller: &Caller) -> FoundOutcome {
    if caller.is_root() || caller.uid == rustix::process::geteuid().as_raw() {
        return total;
    }
    FoundOutcome { clusters: 0, clusters_read: 0, walked: 0, rows_tested: 0, ..total }
}

/// Refuses to search from a path that is too long: it may be built for each of many snapshots.
fn bounded(from: &[FindFrom]) -> Result<(), Failure> {
    let longest = |from: &FindFrom| from.path.0.len().max(from.shown.0.len());
    if from.iter().any(|from| longest(from) > FROM_BYTES_MAX) {
        let message = format!("a path of more than {FROM_BYTES_MAX} bytes to search from");
        let failure = Failure::new(FailureKind::Invalid, message);
        return Err(failure.hint("search from a directory above it, with -path"));
    }
    Ok(())
}

/// Searches from all paths of a question.
pub(super) fn find(
    server: &Server,
    caller: &Caller,
    find: &Find,
    replies: &mut Replies,
) -> Result<Answer, Failure> {
    bounded(&find.from)?;
    if find.order.is_some() && find.limit.is_none_or(|limit| limit > wire::ORDERED_MAX) {
        let message = format!("at most {} rows can be sorted", wire::ORDERED_MAX);
        let failure = Failure::new(FailureKind::Invalid, message);
        return Err(failure.hint("give a smaller --limit, or sort the output with sort(1)"));
    }
    let peer = replies.stream().map_err(|error| watch::cannot(&error))?;
    let cancel = AtomicBool::new(false);
    let sending = Mutex::new(Sending { replies, batch: Vec::new(), bytes: 0, broken: None });
    let accounts = Accounts::default();
    let tick = || {
        // The thread that holds it is sending, or has a row to add.
        if let Some(mut sending) = sending.try_lock()
            && !sending.batch.is_empty()
        {
            sending.flush();
        }
    };
    let searched = watch::while_heard(&peer, &cancel, tick, || {
        let mut searching = Searching {
            fs: server.fs(),
            caller,
            find,
            sending: &sending,
            cancel: &cancel,
            accounts: &accounts,
            total: FoundOutcome::default(),
            quit: false,
        };
        searching.all();
        searching.total
    })?;
    let mut sending = sending.into_inner();
    sending.flush();
    if let Some(failure) = sending.broken {
        return Err(failure);
    }
    if cancel.load(Ordering::Relaxed) {
        return Err(watch::cut_off("the search"));
    }
    Ok(Answer::Found(shown(searched, caller)))
}

/// Rows on their way out.
struct Sending<'a> {
    replies: &'a mut Replies,
    batch: Vec<Found>,
    bytes: usize,
    broken: Option<Failure>,
}

impl Sending<'_> {
    fn part(&mut self, body: Body) {
        if self.broken.is_none() {
            self.broken = self.replies.part(body).err();
        }
    }

    fn flush(&mut self) {
        if !self.batch.is_empty() {
            let batch = std::mem::take(&mut self.batch);
            self.bytes = 0;
            self.part(Body::Found(batch));
        }
        if self.broken.is_none() {
            self.broken = self.replies.flush().err();
        }
    }
}

struct Searching<'a, 'b> {
    fs: &'a Volume,
    caller: &'a Caller,
    find: &'a Find,
    sending: &'a Mutex<Sending<'b>>,
    cancel: &'a AtomicBool,
    accounts: &'a Accounts,
    total: FoundOutcome,
    quit: bool,
}

impl Searching<'_, '_> {
    fn all(&mut self) {
        let reaching = self.find.expr.reaching_action();
        let prune = self.find.expr.prunes().filter(|_| !self.find.contents_first);
        for from in &self.find.from {
            if self.cancel.load(Ordering::Relaxed) {
                return;
            }
            let places = find_from::places(self.fs, self.caller, from, self.find, self.cancel);
            let places = match places {
                Ok(places) => places,
                Err(failure) => {
                    self.skip(failure);
                    continue;
                }
            };
            for place in places {
                if self.quit || self.cancel.load(Ordering::Relaxed) {
                    return;
                }
                let place = match place {
                    Ok(place) => place,
                    Err(failure) => {
                        self.skip(failure);
                        continue;
                    }
                };
                match self.one(&place.path, &place.shown, &reaching, prune.as_ref()) {
                    Ok(()) => {}
                    // A snapshot that went away, or does not hold the path.
                    Err(FsError::NotFound | FsError::Stale) if place.optional => {}
                    Err(error) => self.skip(about(error, &place.shown)),
                }
            }
        }
    }

    /// Reports a path that could not be searched; the others are.
    fn skip(&self, failure: Failure) {
        let mut sending = self.sending.lock();
        sending.flush();
        sending.part(Body::Skipped(failure));
    }

    fn one(
        &mut self,
        path: &[u8],
        shown: &[u8],
        reaching: &Expr,
        prune: Option<&Expr>,
    ) -> Result<(), FsError> {
        let find = self.find;
        // An ordered search gives each path's first ones, of which the caller takes the first.
        let limit = find.limit.map(|limit| match find.order {
            Some(_) => limit,
            None => limit.saturating_sub(self.total.matched),
        });
        if limit == Some(0) {
            return Ok(());
        }
        {
            let mut sending = self.sending.lock();
            sending.flush();
            sending.part(Body::Searching(shown.into()));
        }
        let request = fs::Find {
            expr: reaching,
            prune,
            min_depth: find.min_depth,
            max_depth: find.max_depth,
            contents_first: find.contents_first,
            order: find.order,
            limit,
            fields: if find.attributes { Fields::ATTRIBUTES } else { find.expr.fields() },
            accounts: self.accounts,
            cancel: self.cancel,
        };
        let mut taker = Taker {
            find,
            caller: self.caller,
            accounts: self.accounts,
            cancel: self.cancel,
            shown: shown.len(),
            plain: is_plain(&find.expr),
            fired: Fired::default(),
            sending: self.sending,
            sent: false,
            failed: None,
            quit: false,
        };
        let follow = find_from::follow(self.fs, self.caller, path, find);
        // A row that matches counts, and there is nothing else to know of it.
        let found = if find.count && taker.plain && limit.is_none() {
            self.fs.count(self.caller, path, follow, shown, &request)
        } else {
            let mut take = |found: &Match<'_>| taker.take(found);
            self.fs.find(self.caller, path, follow, shown, &request, &mut take)
        };
        self.total.quit |= taker.quit;
        self.quit = taker.quit || taker.failed.is_some();
        if let Some(error) = taker.failed {
            return Err(FsError::Io(error.into()));
        }
        let Outcome { matched, clusters, clusters_read, walked, rows_tested, unreadable, .. } =
            found?;
        self.total.matched += matched;
        self.total.clusters += clusters;
        self.total.clusters_read += clusters_read;
        self.total.walked += walked;
        self.total.rows_tested += rows_tested;
        self.total.unreadable += unreadable;
        Ok(())
    }
}

/// Whether a row that matches has reached the only action, and that is all there is to know.
fn is_plain(expr: &Expr) -> bool {
    fn leaves(expr: &Expr) -> (usize, bool) {
        match expr {
            Expr::All(parts) | Expr::Any(parts) | Expr::List(parts) => parts
                .iter()
                .map(leaves)
                .fold((0, false), |(count, quit), (more, quits)| (count + more, quit | quits)),
            Expr::Not(part) => leaves(part),
            Expr::Action(_) => (1, false),
            Expr::Quit => (0, true),
            Expr::Test(_) | Expr::Prune => (0, false),
        }
    }
    leaves(expr) == (1, false)
}

/// Takes matches.
struct Taker<'a, 'b> {
    find: &'a Find,
    caller: &'a Caller,
    accounts: &'a Accounts,
    cancel: &'a AtomicBool,
    shown: usize,
    plain: bool,
    fired: Fired,
    sending: &'a Mutex<Sending<'b>>,
    sent: bool,
    failed: Option<String>,
    quit: bool,
}

impl Taker<'_, '_> {
    fn take(&mut self, found: &Match<'_>) -> ControlFlow<()> {
        match self.row(found) {
            Ok(row) => row.map_or(ControlFlow::Continue(()), |row| self.send(row))?,
            Err(error) => {
                self.failed = Some(error.to_string());
                return ControlFlow::Break(());
            }
        }
        if self.quit { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The row as it goes out; `None` when nothing of it is wanted.
    fn row(&mut self, found: &Match<'_>) -> search::Result<Option<Found>> {
        let mut fired = Vec::new();
        if !self.plain {
            self.fired.clear();
            let context = Context::of(found, self.caller, self.accounts, self.cancel);
            self.find.expr.eval(&context, &mut self.fired)?;
            self.quit = self.fired.quit;
            fired.clone_from(&self.fired.actions);
            if fired.is_empty() {
                return Ok(None);
            }
        }
        if self.find.count {
            return Ok(None);
        }
        if found.path.len() > PATH_BYTES_MAX {
            let message = format!("a path of {} bytes is too long to report", found.path.len());
            let failure = Failure::new(FailureKind::Invalid, message)
                .hint("search from a directory on that path");
            let mut sending = self.sending.lock();
            sending.flush();
            sending.part(Body::Skipped(failure.at(last_bytes(found.path))));
            return Ok(None);
        }
        let link = found.row.kind == format::inode_record::FileKind::Symlink;
        let target = if self.find.targets && link {
            Some(Bytes(found.details.target(found.row)?))
        } else {
            None
        };
        Ok(Some(Found {
            path: found.path[self.shown..].into(),
            depth: found.depth,
            fired,
            attr: self.find.attributes.then(|| attributes(found)),
            target,
        }))
    }

    fn send(&mut self, row: Found) -> ControlFlow<()> {
        let mut sending = self.sending.lock();
        let target = row.target.as_ref().map_or(0, |target| target.0.len());
        sending.bytes += row.path.0.len() + target + 16 + if self.find.attributes { 96 } else { 0 };
        sending.batch.push(row);
        if !self.sent || sending.bytes >= PART_BYTES {
            self.sent = true;
            sending.flush();
        }
        if sending.broken.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// The end of a path, which identifies it.
pub(super) fn last_bytes(path: &[u8]) -> &[u8] {
    &path[path.len().saturating_sub(256)..]
}

fn attributes(found: &Match<'_>) -> Attr {
    use format::inode_record::FileKind;
    let row = found.row;
    Attr {
        node: found.node().shown(),
        kind: match row.kind {
            FileKind::File => Kind::File,
            FileKind::Directory => Kind::Directory,
            FileKind::Symlink => Kind::Symlink,
            FileKind::Fifo => Kind::Fifo,
            FileKind::Socket => Kind::Socket,
            FileKind::CharDevice => Kind::CharDevice,
            FileKind::BlockDevice => Kind::BlockDevice,
        },
        mode: row.mode & inode::permissions::MODE_BITS,
        nlink: row.nlink,
        uid: row.uid,
        gid: row.gid,
        rdev: row.rdev,
        size: row.size,
        blocks: row.allocated / 512,
        atime: row.atime,
        mtime: row.mtime,
        ctime: row.ctime,
        btime: row.btime,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_search_paths_are_bounded() {
        let longest = vec![b'/'; FROM_BYTES_MAX];
        let longer = vec![b'/'; FROM_BYTES_MAX + 1];
        for (path, shown, taken) in
            [(&longest, &longest, true), (&longer, &longest, false), (&longest, &longer, false)]
        {
            let from = FindFrom { path: path[..].into(), shown: shown[..].into() };
            assert_eq!(bounded(&[from]).is_ok(), taken);
        }
    }
}
