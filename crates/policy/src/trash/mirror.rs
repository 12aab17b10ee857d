//! Directories of the trash, modeled on those whose names they keep.
//!
//! A mirror has owner, mode, lists and creation time of its original, and its quota's mark, and is
//! used only while these are equal. If they are not the next batch begins, except for `.trash`
//! itself, which is changed to match the directory that has it.
//!
//! A mirror is charged to no one: removals by other users create it. When it leaves the trash, or
//! replaces a removed directory, it is charged like every directory.

use format::acl::{ACCESS, DEFAULT};
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Part};
use format::xattr_record::XattrRecord;
use inode::permissions::without_lost_list;
use inode::{Caller, FsError};
use ops::execute::{Context, Operation, Outcome, execute_locked_within, execute_within};
use ops::plan::{Effect, Plan};
use ops::posix::mknod::{NewName, Vacant};
use vfs::FsResult;
use volume::locks::{Lock, Mode};
use volume::subvol::Subvol;
use volume::view::{NameBuf, View};

use super::NAME;
use super::hour::Batch;
use crate::Governed;
use crate::charging::Charging;
use crate::policies::Purpose;
use crate::quota::domain_of;

/// What there is of a way in a batch.
pub(super) enum Way {
    /// These directories mirror it: the batch the directory that has the trash, and so on down to
    /// its end.
    Mirror(Vec<u64>),
    /// No trash: something else has its name.
    Taken,
    /// Something that does not fit: it takes another batch.
    Other,
}

/// Finds or makes the mirror of a way.
pub(super) fn in_batch(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    (home, batch): (u64, Batch),
    path: &[(u64, NameBuf)],
) -> FsResult<Way> {
    let _making = fs.trash.making.lock();
    let Some(trash) = make(fs, subvol, view, (home, NAME), home)? else { return Ok(Way::Taken) };
    take_over(fs, subvol, view, home, trash)?;
    let mirrors = mirrors(fs, subvol, view, trash, (home, batch), path)?;
    Ok(mirrors.map_or(Way::Other, Way::Mirror))
}

/// Ensures that a trash has the owners, mode and lists of the directory that has it. Otherwise its
/// earlier creator, or a user with earlier rights there, could remove whole hours.
pub(super) fn take_over(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    home: u64,
    trash: u64,
) -> FsResult<()> {
    let (right, lists) = model_of(fs, subvol, view, home)?;
    let as_right = |record| DirectoryRecord { btime: right.btime, charge: right.charge, ..record };
    let (known, known_lists) = model_of(fs, subvol, view, trash)?;
    if are_alike((&right, lists.as_ref()), (&as_right(known), known_lists.as_ref())) {
        return Ok(());
    }
    let policies = fs.policies_for(Purpose::Mirror);
    let at = Context::new(fs, &policies, subvol, view.tree);
    execute_locked_within(&at, &[(at.object(trash), Mode::Exclusive)], |at, plan| {
        let old = view.directory(trash)?.ok_or(FsError::NotFound)?;
        let has_xattrs = lists.is_some();
        let (uid, gid, mode) = (right.uid, right.gid, right.mode);
        let record = DirectoryRecord { uid, gid, mode, has_xattrs, ctime: plan.now, ..old };
        plan.on_behalf(&Caller::root());
        let owned = (old.uid, old.gid);
        at.policy.changes_directory(plan, (at.id(), trash), &record, owned)?;
        let key = key::directory(trash, Part::Xattrs);
        match &lists {
            Some(lists) => plan.batch().put(view.tree, &key, &lists.encode()),
            None if old.has_xattrs => plan.batch().delete(view.tree, &key),
            None => {}
        }
        plan.put_directory(view.tree, trash, &record);
        plan.effect(Effect::HeldChanged(at.subvol.node(trash)));
        Ok(())
    })
}

/// The mirrors of a way in a batch, made where they are not there. `None`: something else has one
/// of the names. Or a directory was made when its original had another owner or other rights, or
/// for another directory of that path.
fn mirrors(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    trash: u64,
    (home, batch): (u64, Batch),
    path: &[(u64, NameBuf)],
) -> FsResult<Option<Vec<u64>>> {
    let name = batch.name();
    let first = (home, name.as_bytes());
    let mut mirrors = Vec::with_capacity(path.len() + 1);
    for (ino, name) in
        std::iter::once(first).chain(path.iter().map(|(ino, name)| (*ino, name.as_bytes())))
    {
        let at = mirrors.last().copied().unwrap_or(trash);
        match make(fs, subvol, view, (at, name), ino)? {
            Some(made) if fits(fs, subvol, view, ino, made)? => mirrors.push(made),
            _ => return Ok(None),
        }
    }
    Ok(Some(mirrors))
}

/// Whether a directory of the trash is the mirror of one. An empty one of another that had the
/// same path, and the same rights, becomes it.
fn fits(fs: &Governed, subvol: &Subvol, view: View<'_>, ino: u64, mirror: u64) -> FsResult<bool> {
    let (original, lists) = model_of(fs, subvol, view, ino)?;
    let (old, old_lists) = model_of(fs, subvol, view, mirror)?;
    let as_original = |record| DirectoryRecord { btime: original.btime, ..record };
    if !are_alike((&original, lists.as_ref()), (&as_original(old), old_lists.as_ref())) {
        return Ok(false);
    }
    if old.btime == original.btime {
        return Ok(true);
    }
    let policies = fs.policies_for(Purpose::Mirror);
    let at = Context::new(fs, &policies, subvol, view.tree);
    execute_locked_within(&at, &[(at.object(mirror), Mode::Exclusive)], |at, plan| {
        if old.entries != 0 || view.directory(mirror)? != Some(old) {
            return Ok(false);
        }
        plan.put_directory(view.tree, mirror, &as_original(old));
        plan.effect(Effect::HeldChanged(at.subvol.node(mirror)));
        Ok(true)
    })
}

/// Whether two directories are one, or mirrors of one: made at one time, and with the same quota,
/// owners, mode and lists.
pub(super) fn are_alike(
    (a, of_a): (&DirectoryRecord, Option<&XattrRecord>),
    (b, of_b): (&DirectoryRecord, Option<&XattrRecord>),
) -> bool {
    let list = |of: Option<&XattrRecord>, name| of.and_then(|of| of.get(name).map(<[u8]>::to_vec));
    let lists = |name| list(of_a, name) == list(of_b, name);
    let fields = |of: &DirectoryRecord| (of.btime, domain_of(of), of.uid, of.gid, of.mode);
    fields(a) == fields(b) && lists(ACCESS) && lists(DEFAULT)
}

/// The directory of a name in the trash, made after a model where there is none. `None`: the name
/// is something else's.
pub(super) fn make(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    at: (u64, &[u8]),
    model: u64,
) -> FsResult<Option<u64>> {
    make_as(fs, (subvol, view), at, model, None)
}

/// As `make`. `caller`: outside of the trash, with the rights of a caller, and charged.
pub(super) fn make_as(
    fs: &Governed,
    (subvol, view): (&Subvol, View<'_>),
    (parent, name): (u64, &[u8]),
    model: u64,
    caller: Option<&Caller>,
) -> FsResult<Option<u64>> {
    let hash = fs.hash.hash(name);
    let root = Caller::root();
    let name = NewName { caller: caller.unwrap_or(&root), dir: parent, hash, name };
    let policies = fs.policies_for(Purpose::Mirror);
    let at = Context::new(fs, &policies, subvol, view.tree);
    loop {
        if let Some(found) = view.find_entry(parent, hash, name.name)? {
            return Ok((found.target == Target::Directory).then_some(found.ino));
        }
        let model = model_of(fs, subvol, view, model)?;
        let in_trash = caller.is_none();
        match execute_within(&at, &mut MakeMirror { fs, name, model, in_trash }) {
            Err(FsError::Exists) => {}
            made => return made.map(Some),
        }
    }
}

/// Makes a directory after a model.
struct MakeMirror<'a> {
    fs: &'a Governed,
    name: NewName<'a>,
    model: (DirectoryRecord, Option<XattrRecord>),
    /// Whether it is made in the trash: it is charged to no one, and the directory around it keeps
    /// its times.
    in_trash: bool,
}

impl Operation for MakeMirror<'_> {
    type Reads = Vacant;
    type Answer = u64;

    fn guess(&mut self, _at: &Context<'_>) -> FsResult<Vacant> {
        Ok(self.name.unread())
    }

    fn aim(&mut self, at: &Context<'_>, guess: &Vacant, plan: &mut Plan) -> FsResult<()> {
        self.name.lock(at, guess, plan);
        Ok(())
    }

    fn look(&mut self, at: &Context<'_>) -> FsResult<Vacant> {
        self.name.look(at)
    }

    fn agree(guess: &Vacant, found: &Vacant) -> bool {
        guess.agrees_with(found)
    }

    fn plan(&mut self, at: &Context<'_>, found: Vacant, plan: &mut Plan) -> FsResult<Outcome<u64>> {
        let NewName { caller, dir, name, .. } = self.name;
        let Vacant { directory: Some(above), vacancy } = found else { return Ok(Outcome::Again) };
        let (mut record, mut xattrs) = self.model.clone();
        let ino = at.fs.numbers.next_ino(&*at.fs.store)?;
        if !caller.is_root() && caller.uid != record.uid {
            // No user creates directories of others.
            (record.uid, record.gid) = (caller.uid, caller.gid);
            record.mode = without_lost_list(record.mode) & 0o777;
            (record.has_xattrs, xattrs) = (false, None);
        }
        plan.on_behalf(caller);
        let charge = if self.in_trash {
            plan.keep_times(dir);
            Charging::of(self.fs, plan).uncharged(domain_of(&record))
        } else {
            at.policy.creates(plan, at.id(), &above, ((record.uid, record.gid), 0))?
        };
        let made = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            parent: dir,
            parent_cookie: vacancy.cookie,
            detached: false,
            elsewhere: None,
            charge,
            ..record
        };
        let tree = at.view.tree;
        let entry = EntryRecord { chained: false, ino, name, target: Target::Directory };
        plan.insert_entry(at.view, dir, &vacancy, &entry)?;
        plan.put_directory(tree, ino, &made);
        if let Some(xattrs) = &xattrs {
            plan.batch().put(tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
        }
        plan.touch_directory(tree, dir, 1, 1);
        plan.count(at.id(), 1, 0);
        plan.effect(Effect::HeldNameChanged(at.subvol.node(dir), name.into()));
        Ok(Outcome::Done(ino))
    }
}

/// A directory's record, and its extended attributes, as of one moment.
fn model_of(
    fs: &Governed,
    subvol: &Subvol,
    view: View<'_>,
    ino: u64,
) -> FsResult<(DirectoryRecord, Option<XattrRecord>)> {
    let _object = fs.locks.shared(Lock::Object { subvol: subvol.id.0, ino });
    let record = view.directory(ino)?.ok_or(FsError::NotFound)?;
    let xattrs = if record.has_xattrs {
        Some(view.xattrs(&key::directory(ino, Part::Xattrs))?)
    } else {
        None
    };
    Ok((record, xattrs))
}

/// Notifies front ends that a name of the trash points to something else now, if they can know it.
pub(super) fn changed(fs: &Governed, subvol: &Subvol, parent: u64, name: &[u8]) {
    let node = subvol.node(parent);
    if node == fs.root() || fs.nodes.is_held(node) {
        fs.invalidate_entry(node, name);
        fs.invalidate_node(node);
    }
}
