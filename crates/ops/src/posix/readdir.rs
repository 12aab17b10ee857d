//! `readdir` and `readdirplus`: the entries of a directory, in the order of their hashes, read from
//! a cursor as they are taken.
//!
//! A cookie is the hash and collision index of a name: it is stable as long as the name exists, and
//! needs no state. A listing takes no locks; an entry that exists throughout is listed once.

use device::Timestamp;
use format::directory_record;
use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::permissions::READ;
use inode::{Attr, Caller, FsError, NodeId, SubvolId};
use store::{KeyRange, Lane, MergeKind, TreeId};
use vfs::{DirEntry, FsResult, WalkControl};
use volume::error::{from_store, malformed};
use volume::load::{Inode, load};
use volume::locks::Mode;
use volume::nodes::Location;
use volume::subvol::{Subvol, node_of, read_record};
use volume::view::{FoundEntry, NameBuf, View};
use volume::{Atime, attributes, permit};

use super::lookup::attributes_of;
use crate::Ops;
use crate::execute::{Context, execute_locked};
use crate::policy::Policy;

/// How many look-ups of one listing are checked at a time against changes of places.
const CHECK_EVERY: usize = 1024;

/// Takes entries.
type Take<'a> = &'a mut dyn FnMut(&DirEntry<'_>) -> WalkControl;

/// Lists names.
pub fn readdir(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    take: Take<'_>,
) -> FsResult<()> {
    list(fs, policy, caller, directory, cookie, false, take)
}

/// Lists names with attributes; every entry taken with them counts as one look-up. One whose inode
/// cannot be read is passed without.
pub fn readdirplus(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    take: Take<'_>,
) -> FsResult<()> {
    list(fs, policy, caller, directory, cookie, true, take)
}

fn list(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    plus: bool,
    take: Take<'_>,
) -> FsResult<()> {
    let (subvol, dir) = fs.place(directory)?;
    let view = View::new(&*fs.store, subvol.tree());
    let record = match load(fs, view, subvol.node(dir), dir)? {
        Inode::Directory(record, true) => record,
        Inode::Directory(_, false) => return Ok(()),
        Inode::File(_) => return Err(FsError::NotDirectory),
    };
    // A directory that was removed just now is as empty as one that was removed before.
    let Some(record) = permit::unlocked_directory(view, dir, record, caller, READ)? else {
        return Ok(());
    };
    if cookie == 0 {
        note_read((fs, policy), &subvol, dir, &record);
    }
    let mut walk = Walk { fs, subvol: &subvol, dir, plus, from: cookie, taken: Vec::new() };
    walk.run(take)
}

struct Walk<'a> {
    fs: &'a Ops,
    subvol: &'a Subvol,
    dir: u64,
    plus: bool,
    /// The cookie of the last entry taken.
    from: u64,
    /// Look-ups since the last check of places.
    taken: Vec<NodeId>,
}

enum Step {
    /// Stopped, or at the end.
    Done,
    /// More may follow.
    More,
}

impl Walk<'_> {
    fn run(&mut self, take: Take<'_>) -> FsResult<()> {
        loop {
            let listing = self.fs.nodes.begin_listing();
            let step = self.subvol.read(|tree| self.chunk(tree, take));
            // Also after an error: what was taken is held.
            listing.correct(&self.taken);
            self.taken.clear();
            match step? {
                Step::Done => return Ok(()),
                Step::More => {}
            }
        }
    }

    fn chunk(&mut self, tree: TreeId, take: Take<'_>) -> FsResult<Step> {
        // A caller may pass any cookie; behind the last one there is nothing.
        if self.from >= key::COOKIE_MAX {
            return Ok(Step::Done);
        }
        let view = View::new(&*self.fs.store, tree);
        let after = key::entry(self.dir, self.from + 1, Part::Attributes);
        let end = key::entry(self.dir + 1, 0, Part::Attributes);
        let mut cursor =
            view.store.scan(tree, KeyRange::between(&after, &end[..9])).map_err(from_store)?;
        // Contents and targets are stored between the names.
        cursor.want_values(is_name);
        while let Some(item) = cursor.next().map_err(from_store)? {
            let parsed = key::parse(item.key).map_err(|error| malformed(tree, &error))?;
            let Parsed::Entry { cookie, part: Part::Attributes, .. } = parsed else { continue };
            let head = EntryHead::decode(item.value).map_err(|error| malformed(tree, &error))?;
            if head.kind.is_none() {
                continue;
            }
            match self.give(view, cookie, head, take)? {
                Some(WalkControl::Continue) => self.from = cookie,
                // The name was removed while it was listed.
                None => {}
                Some(WalkControl::Stop) => return Ok(Step::Done),
            }
            if self.taken.len() >= CHECK_EVERY {
                return Ok(Step::More);
            }
        }
        Ok(Step::Done)
    }

    #[inline]
    fn give(
        &mut self,
        view: View<'_>,
        cookie: u64,
        head: EntryHead<'_>,
        take: Take<'_>,
    ) -> FsResult<Option<WalkControl>> {
        let (name, ino, chained) = (head.name, head.ino, head.chained);
        let Some(kind) = head.kind.map(attributes::kind) else { return Ok(None) };
        let alone = |node| DirEntry { name, node, kind, cookie, attr: None };
        if !self.plus && kind != inode::Kind::Directory {
            return Ok(Some(take(&alone(self.subvol.node(ino)))));
        }
        // An unreadable inode must not hide the others: a look-up of it gets the error.
        let Ok(target) = head.target() else {
            return Ok(Some(take(&alone(self.subvol.node(ino)))));
        };
        let target = match target {
            Target::Subvolume(id) => {
                let own = self.fs.nested_at(self.subvol, (self.dir, cookie), id);
                match own {
                    Ok(own) => Target::Subvolume(own),
                    Err(FsError::NotFound) if !self.is_lost(view, cookie, id)? => return Ok(None),
                    // For example no space for a copy. Its number is that of what is inherited.
                    Err(_) => return Ok(Some(take(&alone(node_of(id, ino))))),
                }
            }
            target => target,
        };
        let node = match target {
            Target::Subvolume(id) => node_of(id, ino),
            _ => self.subvol.node(ino),
        };
        if !self.plus {
            return Ok(Some(take(&alone(node))));
        }
        let (attr, location) =
            match self.look(view, name, FoundEntry { cookie, chained, ino, target })? {
                Look::Known(attr, location) => (attr, location),
                Look::Unreadable => return Ok(Some(take(&alone(node)))),
                Look::Gone => return Ok(None),
            };
        // Counted before it is passed on: the receiver may forget it at once.
        self.fs.nodes.look_up(attr.node, location);
        let entry = DirEntry { name, node: attr.node, kind: attr.kind, cookie, attr: Some(&attr) };
        match take(&entry) {
            WalkControl::Continue => self.taken.push(attr.node),
            WalkControl::Stop => {
                super::forget::forget(self.fs, attr.node, 1);
                return Ok(Some(WalkControl::Stop));
            }
        }
        Ok(Some(WalkControl::Continue))
    }

    /// Whether an entry still names a subvolume whose record is gone: its name is listed, for it
    /// shows what to repair. The name of one that is mounted elsewhere is not.
    fn is_lost(&self, view: View<'_>, cookie: u64, id: u64) -> FsResult<bool> {
        let found = view.entry_at(self.dir, cookie, &mut NameBuf::empty())?;
        let is_there = found.is_some_and(|found| found.target == Target::Subvolume(id));
        Ok(is_there && read_record(&*self.fs.store, SubvolId(id))?.is_none())
    }

    /// The attributes of what a name points to.
    #[inline]
    fn look(&self, view: View<'_>, name: &[u8], mut found: FoundEntry) -> FsResult<Look> {
        loop {
            match attributes_of(self.fs, view, self.subvol, self.dir, &found) {
                Ok((attr, location)) => return Ok(Look::Known(attr, location)),
                Err(FsError::Stale) => {}
                Err(FsError::Io(_)) => return Ok(Look::Unreadable),
                Err(error) => return Err(error),
            }
            // The inode is not there: the name points to another one since it was read, or to
            // nothing.
            let mut now = NameBuf::empty();
            match view.entry_at(self.dir, found.cookie, &mut now) {
                Ok(Some(again)) if now.as_bytes() == name => {
                    if (again.ino, again.target) == (found.ino, found.target) {
                        return Ok(Look::Unreadable);
                    }
                    found = again;
                }
                Ok(_) => return Ok(Look::Gone),
                Err(FsError::Io(_)) => return Ok(Look::Unreadable),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a listing finds for a name.
enum Look {
    /// Its attributes, and where the inode is stored.
    Known(Attr, Location),
    /// It exists, and its inode cannot be read.
    Unreadable,
    /// It was removed while it was listed.
    Gone,
}

/// Updates the time when a directory was listed, if `relatime` requires it.
fn note_read(
    (fs, policy): (&Ops, &dyn Policy),
    subvol: &Subvol,
    dir: u64,
    record: &directory_record::DirectoryRecord,
) {
    let now = || {
        let Timestamp(now) = fs.env.clock.now();
        now
    };
    let wanted = fs.options.atime == Atime::Relative
        && super::read::is_stale(record.atime, record.mtime, record.ctime, now);
    let may = !subvol.read_only && !fs.options.read_only;
    // As of a file (`read`).
    if !wanted || !may || fs.changes_wait() || fs.gives_first(subvol) {
        return;
    }
    let Ok(entered) = fs.enter(subvol) else { return };
    let at = Context::new(fs, policy, subvol, entered.tree);
    let noted = execute_locked(entered, &at, &[(at.object(dir), Mode::Shared)], |at, plan| {
        // A merge into a missing record would create a new one.
        if at.view.directory(dir)?.is_some() {
            let (offset, kind) = (directory_record::ATIME_AT, MergeKind::Max);
            let lane = Lane { offset, kind, operand: plan.now };
            let key = key::directory(dir, Part::Attributes);
            plan.batch().merge(at.view.tree, &key, &[lane]);
        }
        Ok(())
    });
    // The listing succeeded: failing to update its time is not an error of the listing.
    noted.ok();
}

/// Whether a key of a directory belongs to a name, and not to other records of the directory.
fn is_name(key: &[u8]) -> bool {
    !matches!(key::parse(key), Ok(Parsed::Entry { part, .. }) if part != Part::Attributes)
}
