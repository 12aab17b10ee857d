//! `subvolume_create`: an empty directory with a tree of its own, so that later snapshots of it
//! share nothing with what is around.

use format::directory_record::DirectoryRecord;
use format::inode_record::FileKind;
use format::key;
use format::subvolume_record::{SubvolumeRecord, UsageRecord};
use inode::{Caller, NodeId};

use super::access::directory_of;
use super::clone::Mount;
use super::gates::Gates;
use super::snapshot::commit;
use crate::nodes::Location;
use crate::subvol::VOLUME;
use crate::txn::Txn;
use crate::view::View;
use crate::{Entry, Fs, FsResult, permit};

impl Fs {
    /// Makes an empty directory that is a subvolume of its own. Takes one look-up.
    pub fn subvolume_create(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        mode: u32,
    ) -> FsResult<Entry> {
        let mount = Mount::new(self, parent, name)?;
        let ino = self.numbers.next_ino(&*self.store)?;
        let mut ledger = self.admin.lock_for(self, caller)?;
        let gates = Gates::pass(self, &mut ledger, &[], Some(&mount.subvol))?;
        let locks = self.locks.lock(&mount.locks());
        let vacancy = mount.vacancy(self, caller)?;
        let above = directory_of(self, &mount.subvol, mount.dir)?;
        let mut txn = Txn::new(self);
        let from = (mount.dir, &above);
        let view = View::new(&*self.store, mount.subvol.tree());
        let inherited = permit::inherit(view, caller, from, mode & 0o1777, FileKind::Directory)?;
        let id = ledger.new_subvolume(self)?;
        txn.on_behalf(caller);
        let charge = txn.charge_new(id, &above, ((caller.uid, inherited.gid), 0))?;
        let record = DirectoryRecord {
            entries: 0,
            subdirectories: 0,
            mtime: txn.now,
            ctime: txn.now,
            atime: txn.now,
            btime: txn.now,
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
        txn.batch().create_tree(tree);
        txn.put_directory(tree, ino, &record);
        if let Some(xattrs) = &inherited.xattrs {
            let key = key::directory(ino, key::Part::Xattrs);
            txn.batch().put(tree, &key, &xattrs.encode());
        }
        let subvolume = SubvolumeRecord {
            tree: tree.0,
            root: ino,
            lineage: id,
            parent: (mount.subvol.id.0, mount.dir, vacancy.cookie),
            source: (0, 0),
            created: txn.now,
            last_clone_epoch: 0,
            first_own_ino: ino,
            read_only: false,
            snapshot: false,
            pruned: true,
            detached: false,
            index: false,
            inherits: false,
            name: name.to_vec(),
            base: 0,
            maker: ledger.maker(),
        };
        txn.batch().put(VOLUME, &key::subvolume(id), &subvolume.encode());
        let usage = UsageRecord { files: 1, bytes: 0, counted: true };
        txn.batch().put(VOLUME, &key::usage(id), &usage.encode());
        mount.plan(self, &mut txn, &vacancy, (id, ino))?;
        commit(&ledger, &mut txn)?;
        ledger.moved(id, Some(subvolume.parent));
        let node = Fs::node_of(id, ino);
        self.nodes.look_up(node, Location::Directory);
        drop((locks, gates, ledger));
        self.invalidate_entry(mount.subvol.node(mount.dir), name);
        self.invalidate_node(mount.subvol.node(mount.dir));
        Ok(Entry { node, attr: crate::attributes::of_directory(node, &record) })
    }
}
