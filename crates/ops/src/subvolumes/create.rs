//! `subvolume_create`: an empty directory with a tree of its own, so that later snapshots of it
//! share nothing with what is around.

use format::directory_record::DirectoryRecord;
use format::inode_record::FileKind;
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use inode::{Caller, NodeId};
use vfs::{Entry, FsResult};
use volume::nodes::Location;
use volume::permit;
use volume::subvol::{VOLUME, node_of};

use super::access::directory_in;
use super::clone::Mount;
use super::execute::{Through, Verb, VerbContext, execute_verb};
use super::ledger::Ledger;
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

impl Ops {
    /// Makes an empty directory that is a subvolume of its own. Takes one look-up.
    pub fn subvolume_create(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
    ) -> FsResult<Entry> {
        let verb = CreateSubvolume::new(self, policy, caller, (parent, name), mode)?;
        // For a caller that is refused, nothing is copied for others. The plan reads it again under
        // the locks.
        verb.mount.check_vacancy(self, caller)?;
        self.admin.lock_for(self, caller)?.may_make_one(self)?;
        self.give_before([&*verb.mount.subvol])?;
        let ledger = self.admin.lock_for(self, caller)?;
        execute_verb(&VerbContext::new(self, policy), ledger, &verb)
    }
}

/// The creation of an empty subvolume.
pub struct CreateSubvolume<'a> {
    caller: &'a Caller,
    mount: Mount<'a>,
    ino: u64,
    mode: u32,
}

impl<'a> CreateSubvolume<'a> {
    /// Under a name, with a new number for its root.
    pub fn new(
        fs: &Ops,
        policy: &dyn Policy,
        caller: &'a Caller,
        (parent, name): (NodeId, &'a [u8]),
        mode: u32,
    ) -> FsResult<CreateSubvolume<'a>> {
        let mount = Mount::new(fs, policy, parent, name)?;
        let ino = fs.numbers.next_ino(&*fs.store)?;
        Ok(CreateSubvolume { caller, mount, ino, mode })
    }
}

impl Verb for CreateSubvolume<'_> {
    type Answer = Entry;

    fn through(&self) -> Through<'_> {
        Through { changed: Some(&self.mount.subvol), ..Through::default() }
    }

    fn aim(&self, _at: &VerbContext<'_>, plan: &mut Plan) -> FsResult<()> {
        self.mount.lock(plan);
        Ok(())
    }

    fn plan(&self, at: &VerbContext<'_>, ledger: &mut Ledger, plan: &mut Plan) -> FsResult<Entry> {
        let CreateSubvolume { caller, mount, ino, mode } = self;
        let (fs, view, ino) = (at.fs, at.view(&mount.subvol), *ino);
        let vacancy = mount.vacancy_in(fs, view, caller)?;
        let above = directory_in(fs, &mount.subvol, view, mount.dir)?;
        let from = (mount.dir, &above);
        let inherited = permit::inherit(view, caller, from, mode & 0o1777, FileKind::Directory)?;
        let id = ledger.new_subvolume(fs)?;
        plan.on_behalf(caller);
        let share = ((caller.uid, inherited.gid), 0);
        let charge = at.policy.creates(plan, id, &above, share)?;
        let record = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            mtime: plan.now,
            ctime: plan.now,
            atime: plan.now,
            btime: plan.now,
            parent: ino,
            parent_cookie: 0,
            mode: inherited.mode,
            uid: caller.uid,
            gid: inherited.gid,
            has_xattrs: inherited.xattrs.is_some(),
            detached: false,
            elsewhere: None,
            charge,
        };
        let tree = ledger.new_tree();
        plan.batch().create_tree(tree);
        plan.put_directory(tree, ino, &record);
        if let Some(xattrs) = &inherited.xattrs {
            let key = key::directory(ino, key::Part::Xattrs);
            plan.batch().put(tree, &key, &xattrs.encode());
        }
        let subvolume = SubvolumeRecord {
            tree: tree.0,
            root: ino,
            lineage: id,
            parent: (mount.subvol.id.0, mount.dir, vacancy.cookie),
            source: (0, 0),
            created: plan.now,
            last_clone_epoch: 0,
            first_own_ino: ino,
            read_only: false,
            snapshot: false,
            pruned: true,
            detached: false,
            index: false,
            inherits: false,
            name: mount.name.to_vec(),
            base: 0,
            maker: ledger.maker(),
        };
        plan.batch().put(VOLUME, &key::subvolume(id), &subvolume.encode());
        let usage = UsageRecord { files: 1, bytes: 0, counted: true };
        plan.batch().put(VOLUME, &key::usage(id), &usage.encode());
        mount.plan_in(view, plan, &vacancy, (id, ino))?;
        plan.effect(Effect::Mounted(id, Some(subvolume.parent)));
        let node = node_of(id, ino);
        plan.effect(Effect::LookUp(node, Location::Directory));
        Ok(Entry { node, attr: volume::attributes::of_directory(node, &record) })
    }
}
