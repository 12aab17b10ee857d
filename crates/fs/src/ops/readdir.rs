//! `readdir` and `readdirplus`: the entries of a directory, in the order of their hashes, read
//! from a cursor as they are taken.
//!
//! A cookie is the hash and collision index of a name: it stays while the name stays, and needs
//! no state. A listing takes no locks; an entry that is there throughout is listed once.

use device::Timestamp;
use format::directory_record;
use format::entry_record::{EntryHead, Target};
use format::key::{self, Parsed, Part};
use inode::permissions::READ;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::{KeyRange, Lane, MergeKind, TreeId};

use super::lookup::attributes_of;
use crate::error::{from_store, malformed};
use crate::load::{Inode, load};
use crate::subvol::Subvol;
use crate::txn::Txn;
use crate::view::{Found, View};
use crate::{Atime, DirEntry, Fs, FsResult, WalkControl, attributes, permit, snapdir};

/// How many look-ups of one listing are checked at a time against changes of places.
const CHECK_EVERY: usize = 1024;

/// What takes entries.
type Take<'a> = &'a mut dyn FnMut(&DirEntry<'_>) -> WalkControl;

/// Lists names.
pub(crate) fn readdir(
    fs: &Fs,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    take: Take<'_>,
) -> FsResult<()> {
    list(fs, caller, directory, cookie, false, take)
}

/// Lists names with attributes; every entry taken with them counts as one look-up. One whose
/// inode cannot be read is given without.
pub(crate) fn readdirplus(
    fs: &Fs,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    take: Take<'_>,
) -> FsResult<()> {
    list(fs, caller, directory, cookie, true, take)
}

fn list(
    fs: &Fs,
    caller: &Caller,
    directory: NodeId,
    cookie: u64,
    plus: bool,
    take: Take<'_>,
) -> FsResult<()> {
    if snapdir::is_virtual(directory) {
        return snapdir::readdir(fs, caller, directory, cookie, plus, take);
    }
    let (subvol, dir) = fs.place(directory)?;
    let view = View::new(&*fs.store, subvol.tree());
    let record = match load(fs, view, subvol.node(dir), dir)? {
        Inode::Directory(record, true) => record,
        Inode::Directory(_, false) => return Ok(()),
        Inode::File(_) => return Err(FsError::NotDirectory),
    };
    // One that was removed just now is as empty as one that was before.
    let Some(record) = permit::unlocked_directory(view, dir, record, caller, READ)? else {
        return Ok(());
    };
    if cookie == 0 {
        note_read(fs, &subvol, dir, &record);
    }
    let mut walk = Walk { fs, subvol: &subvol, dir, plus, from: cookie, taken: Vec::new() };
    walk.run(take)
}

struct Walk<'a> {
    fs: &'a Fs,
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
        // Whoever lists may name any place; behind the last cookie there is nothing.
        if self.from >= key::COOKIE_MAX {
            return Ok(Step::Done);
        }
        let view = View::new(&*self.fs.store, tree);
        let after = key::entry(self.dir, self.from + 1, Part::Attributes);
        let end = key::entry(self.dir + 1, 0, Part::Attributes);
        let mut cursor =
            view.store.scan(tree, KeyRange::between(&after, &end[..9])).map_err(from_store)?;
        // Contents and targets stand between the names.
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
        if !self.plus && kind != inode::Kind::Directory {
            let node = self.subvol.node(ino);
            return Ok(Some(take(&DirEntry { name, node, kind, cookie, attr: None })));
        }
        let target = head.target().map_err(|error| malformed(view.tree, &error))?;
        if !self.plus {
            let node = match target {
                Target::Subvolume(id) => self.fs.subvol(SubvolId(id))?.root_node(),
                _ => self.subvol.node(ino),
            };
            return Ok(Some(take(&DirEntry { name, node, kind, cookie, attr: None })));
        }
        let found = Found { cookie, chained, ino, target };
        let (attr, location) = match attributes_of(self.fs, view, self.subvol, self.dir, &found) {
            Ok(known) => known,
            Err(FsError::Stale) => return Ok(None),
            // What cannot be read of one must not hide the others: who looks it up gets the error.
            Err(FsError::Io(_)) => {
                let node = self.subvol.node(ino);
                return Ok(Some(take(&DirEntry { name, node, kind, cookie, attr: None })));
            }
            Err(error) => return Err(error),
        };
        // Counted before it is given: whoever takes it may let go of it at once.
        self.fs.nodes.look_up(attr.node, location);
        let entry = DirEntry { name, node: attr.node, kind, cookie, attr: Some(&attr) };
        match take(&entry) {
            WalkControl::Continue => self.taken.push(attr.node),
            WalkControl::Stop => {
                super::forget::forget(self.fs, attr.node, 1);
                return Ok(Some(WalkControl::Stop));
            }
        }
        Ok(Some(WalkControl::Continue))
    }
}

/// Notes that a directory was listed, where `relatime` asks for it.
fn note_read(fs: &Fs, subvol: &Subvol, dir: u64, record: &directory_record::DirectoryRecord) {
    let now = || {
        let Timestamp(now) = fs.env.clock.now();
        now
    };
    let wanted = fs.options.atime == Atime::Relative
        && super::read::is_stale(record.atime, record.mtime, record.ctime, now);
    if !wanted || subvol.read_only || fs.options.read_only {
        return;
    }
    let Ok(entered) = fs.enter(subvol) else { return };
    let mut txn = Txn::new(fs);
    let lane = Lane { offset: directory_record::ATIME_AT, kind: MergeKind::Max, operand: txn.now };
    let _object = fs.locks.shared(crate::locks::Lock::Object { subvol: subvol.id.0, ino: dir });
    let view = View::new(&*fs.store, entered.tree);
    // A merge into a record that is gone would make a new one.
    if let Ok(Some(_)) = view.directory(dir) {
        txn.batch().merge(entered.tree, &key::directory(dir, Part::Attributes), &[lane]);
        txn.commit().ok();
    }
}

/// Whether a key of a directory is one of a name, and not of what else belongs to it.
fn is_name(key: &[u8]) -> bool {
    !matches!(key::parse(key), Ok(Parsed::Entry { part, .. }) if part != Part::Attributes)
}
