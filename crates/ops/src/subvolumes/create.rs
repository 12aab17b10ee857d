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
use volume::view::View;

use super::access::directory_of;
use super::clone::Mount;
use super::execute::{Through, execute};
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
        let mount = Mount::new(self, policy, parent, name)?;
        let ino = self.numbers.next_ino(&*self.store)?;
        self.give_before([&*mount.subvol])?;
        let ledger = self.admin.lock_for(self, caller)?;
        let through = Through { changed: Some(&mount.subvol), ..Through::default() };
        execute(
            self,
            ledger,
            through,
            |plan| {
                mount.lock(plan);
                Ok(())
            },
            |ledger, plan| {
                self.plan_subvolume((ledger, plan), (policy, caller), &mount, (ino, mode))
            },
        )
    }

    fn plan_subvolume(
        &self,
        (ledger, plan): (&mut Ledger, &mut Plan),
        (policy, caller): (&dyn Policy, &Caller),
        mount: &Mount<'_>,
        (ino, mode): (u64, u32),
    ) -> FsResult<Entry> {
        let vacancy = mount.vacancy(self, caller)?;
        let above = directory_of(self, &mount.subvol, mount.dir)?;
        let from = (mount.dir, &above);
        let view = View::new(&*self.store, mount.subvol.tree());
        let inherited = permit::inherit(view, caller, from, mode & 0o1777, FileKind::Directory)?;
        let id = ledger.new_subvolume(self)?;
        plan.on_behalf(caller);
        let share = ((caller.uid, inherited.gid), 0);
        let charge = policy.creates(plan, id, &above, share)?;
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
        mount.plan(self, plan, &vacancy, (id, ino))?;
        plan.effect(Effect::Mounted(id, Some(subvolume.parent)));
        let node = node_of(id, ino);
        plan.effect(Effect::LookUp(node, Location::Directory));
        Ok(Entry { node, attr: volume::attributes::of_directory(node, &record) })
    }
}
