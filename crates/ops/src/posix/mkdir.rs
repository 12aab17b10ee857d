//! `mkdir`: a new directory.

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::FileKind;
use format::key::{self, Part};
use inode::{Caller, NodeId};
use vfs::{Entry, FsResult};
use volume::nodes::Location;
use volume::{attributes, permit};

use super::mknod::{NewName, Vacant};
use crate::Ops;
use crate::execute::{Context, Operation, Outcome, execute};
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// Makes a directory.
pub fn mkdir(
    fs: &Ops,
    policy: &dyn Policy,
    caller: &Caller,
    parent: NodeId,
    name: &[u8],
    mode: u32,
) -> FsResult<Entry> {
    let (subvol, name) = NewName::of(fs, caller, parent, name)?;
    execute(fs, policy, &subvol, &mut MakeDirectory { name, mode })
}

/// A new directory.
pub struct MakeDirectory<'a> {
    /// Where.
    pub name: NewName<'a>,
    /// Its permission bits.
    pub mode: u32,
}

impl Operation for MakeDirectory<'_> {
    type Reads = Vacant;
    type Answer = Entry;

    fn guess(&mut self, at: &Context<'_>) -> FsResult<Vacant> {
        self.name.guess(at)
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

    fn plan(
        &mut self,
        at: &Context<'_>,
        found: Vacant,
        plan: &mut Plan,
    ) -> FsResult<Outcome<Entry>> {
        let MakeDirectory { name: NewName { caller, dir, name, .. }, mode } = *self;
        let Vacant { directory: Some(directory), vacancy } = &found else {
            return Ok(Outcome::Again);
        };
        let (fs, view) = (at.fs, at.view);
        let ino = fs.numbers.next_ino(&*fs.store)?;
        let (above, kind) = ((dir, directory), FileKind::Directory);
        let inherited = permit::inherit(view, caller, above, mode & 0o1777, kind)?;
        plan.on_behalf(caller);
        let share = ((caller.uid, inherited.gid), 0);
        let charge = at.policy.creates(plan, at.id(), directory, share)?;
        let record = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            mtime: plan.now,
            ctime: plan.now,
            atime: plan.now,
            btime: plan.now,
            parent: dir,
            parent_cookie: vacancy.cookie,
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            has_xattrs: inherited.xattrs.is_some(),
            detached: false,
            elsewhere: None,
            charge,
        };
        let entry = EntryRecord { chained: false, ino, name, target: Target::Directory };
        plan.insert_entry(view, dir, vacancy, &entry)?;
        plan.put_directory(view.tree, ino, &record);
        if let Some(xattrs) = &inherited.xattrs {
            plan.batch().put(view.tree, &key::directory(ino, Part::Xattrs), &xattrs.encode());
        }
        plan.touch_directory(view.tree, dir, 1, 1);
        plan.count(at.id(), 1, 0);
        plan.makes_in((at.id(), dir));
        let node = at.subvol.node(ino);
        plan.effect(Effect::LookUp(node, Location::Directory));
        Ok(Outcome::Done(fs.entry(attributes::of_directory(node, &record))))
    }
}
