//! All snapshots of a volume, and where the directories are that they were taken of: they outlive
//! those. What nobody comes to through its directory any more is cloned and deleted by its number.
//!
//! A snapshot is kept under the lineage and the number of its directory. So that is looked for in
//! the live subvolumes of the lineage, of which there is more than one after a roll-back, and is
//! there where the way up from it ends at the volume's root.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use format::entry_record::Target;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};

use super::snapshot::{commit, detach};
use crate::error::malformed;
use crate::subvol::{Subvol, VOLUME, read_record};
use crate::txn::Txn;
use crate::view::{NameBuf, View};
use crate::{CloneInfo, FileSystem, Follow, Fs, FsResult, KeptSnapshot, SnapshotInfo, Whereabouts};

/// Longest way up, in directories: falsified records go in a circle.
const WAY_MAX: usize = 4096;
/// Subvolumes in one another that a way leads through.
const NESTED_MAX: usize = 64;
/// Looks at a way that changes meanwhile.
const LOOKS_MAX: usize = 8;

/// Live subvolumes by lineage.
type Live = BTreeMap<u64, Vec<u64>>;

/// What a look at a way up comes to.
enum Way {
    /// It ends at the volume's root; the path.
    Leads(Vec<u8>),
    /// It ends elsewhere.
    Ends,
    /// A name was not where its directory said a moment before.
    Changes,
}

impl Fs {
    /// All snapshots of the volume, as [`Fs::snapshot_list_all`], and where their directories are.
    pub fn snapshots_kept(&self, caller: &Caller) -> FsResult<Vec<KeptSnapshot>> {
        let listed = self.snapshot_list_all(caller)?;
        // No subvolume comes, goes, or takes the place of another meanwhile.
        let _ledger = self.admin.lock();
        let live = self.live_of(&listed)?;
        let mut last = None;
        let mut kept = Vec::with_capacity(listed.len());
        for snapshot in listed {
            let of = (snapshot.lineage, snapshot.root.ino().0);
            // They are in the order of their directories.
            let directory = match last.take() {
                Some((other, known)) if other == of => known,
                _ => self.whereabouts(caller, &live, of),
            };
            last = Some((of, directory.clone()));
            kept.push(KeptSnapshot { snapshot, directory });
        }
        Ok(kept)
    }

    /// Clones a snapshot by its number, as [`Fs::clone_dir`]: of a directory that is gone, or that
    /// the caller can come to.
    pub fn clone_snapshot(
        &self,
        caller: &Caller,
        snapshot: SubvolId,
        parent: NodeId,
        name: &[u8],
    ) -> FsResult<CloneInfo> {
        let source = self.snapshot_entry(caller, snapshot)?.node;
        let cloned = self
            .directory_of_snapshot(caller, snapshot)
            .and_then(|directory| match directory {
                Whereabouts::NotTold => Err(FsError::AccessDenied),
                Whereabouts::At(_) | Whereabouts::Gone => Ok(()),
            })
            .and_then(|()| self.clone_dir(caller, source, parent, name));
        self.forget(source, 1);
        cloned
    }

    /// Deletes a snapshot whose directory is gone. Root may, and the owner of what it holds.
    pub fn snapshot_delete_kept(&self, caller: &Caller, snapshot: SubvolId) -> FsResult<()> {
        let found = self.snapshot_entry(caller, snapshot)?.node;
        self.forget(found, 1);
        if self.directory_of_snapshot(caller, snapshot)? != Whereabouts::Gone {
            return Err(FsError::InvalidArgument("its directory is there: it goes by its name"));
        }
        let mut ledger = self.admin.lock();
        let record = read_record(&*self.store, snapshot)?.ok_or(FsError::NotFound)?;
        let key = key::snapshot_name(record.lineage, record.root, &record.name);
        if self.snapshot_id(&key)? != Some(snapshot.0) {
            return Err(FsError::NotFound);
        }
        let mut txn = Txn::new(self);
        txn.batch().delete(VOLUME, &key);
        detach(self, &mut ledger, &mut txn, snapshot.0)?;
        commit(&ledger, &mut txn)?;
        self.queue.add_detached(1);
        Ok(())
    }

    fn directory_of_snapshot(&self, caller: &Caller, id: SubvolId) -> FsResult<Whereabouts> {
        let _ledger = self.admin.lock();
        let record = read_record(&*self.store, id)?.ok_or(FsError::NotFound)?;
        let listed = [SnapshotInfo::new(id, &record)];
        let live = self.live_of(&listed)?;
        Ok(self.whereabouts(caller, &live, (record.lineage, record.root)))
    }

    /// Live subvolumes of the lineages of snapshots.
    fn live_of(&self, snapshots: &[SnapshotInfo]) -> FsResult<Live> {
        let wanted: BTreeSet<u64> = snapshots.iter().map(|snapshot| snapshot.lineage).collect();
        let mut live = Live::new();
        self.visit_volume(&key::SUBVOLUMES_PREFIX, &mut |key, value| {
            let malformed = |error| malformed(VOLUME, &error);
            let id = key::parse_number(key).map_err(malformed)?;
            let record = SubvolumeRecord::decode(value).map_err(malformed)?;
            let is_live = !(record.snapshot || record.read_only || record.detached);
            if is_live && wanted.contains(&record.lineage) {
                live.entry(record.lineage).or_default().push(id);
            }
            Ok(())
        })?;
        Ok(live)
    }

    /// Where the directory of a number is in the live subvolumes of a lineage.
    fn whereabouts(&self, caller: &Caller, live: &Live, of: (u64, u64)) -> Whereabouts {
        let (lineage, ino) = of;
        let mut is_known = true;
        for id in live.get(&lineage).into_iter().flatten() {
            match self.way_up(*id, ino) {
                Ok(Some(path)) => return self.told(caller, path, Fs::node_of(*id, ino)),
                Ok(None) => {}
                Err(error) => {
                    // Whether it is there is not known, so it is not gone.
                    tracing::warn!(%error, subvolume = id, directory = ino, "a way up is unknown");
                    is_known = false;
                }
            }
        }
        if is_known { Whereabouts::Gone } else { Whereabouts::NotTold }
    }

    /// A path, if the caller may come to what is there.
    fn told(&self, caller: &Caller, path: Vec<u8>, node: NodeId) -> Whereabouts {
        if caller.is_root() {
            // Also where a path is longer than paths may be.
            return Whereabouts::At(path);
        }
        let Ok(found) = self.resolve(caller, &path, Follow::No) else {
            return Whereabouts::NotTold;
        };
        self.forget(found.node, 1);
        if self.real(found.node) == node { Whereabouts::At(path) } else { Whereabouts::NotTold }
    }

    /// The path of a directory of a subvolume, if there is one.
    fn way_up(&self, subvol: u64, ino: u64) -> FsResult<Option<Vec<u8>>> {
        for _ in 0..LOOKS_MAX {
            match self.look_up_the_way(subvol, ino)? {
                Way::Leads(path) => return Ok(Some(path)),
                Way::Ends => return Ok(None),
                Way::Changes => {}
            }
        }
        Err(FsError::Busy("directories above it are being renamed"))
    }

    fn look_up_the_way(&self, subvol: u64, ino: u64) -> FsResult<Way> {
        let mut names: Vec<NameBuf> = Vec::new();
        let (mut id, mut at) = (subvol, ino);
        for _ in 0..NESTED_MAX {
            let subvol = self.subvol(SubvolId(id))?;
            match self.within(&subvol, at, &mut names)? {
                Way::Leads(_) => {}
                ended => return Ok(ended),
            }
            if subvol.root_node() == self.root() {
                let mut path = Vec::new();
                for name in names.iter().rev() {
                    path.push(b'/');
                    path.extend_from_slice(name.as_bytes());
                }
                if path.is_empty() {
                    path.push(b'/');
                }
                return Ok(Way::Leads(path));
            }
            let record = read_record(&*self.store, subvol.id)?.ok_or(FsError::Stale)?;
            let (above, directory, cookie) = record.parent;
            if above == 0 || record.detached {
                return Ok(Way::Ends);
            }
            let upper = self.subvol(SubvolId(above))?;
            let mut name = NameBuf::empty();
            let entry = upper.read(|tree| {
                View::new(&*self.store, tree).entry_at(directory, cookie, &mut name)
            })?;
            if entry.is_none_or(|entry| entry.target != Target::Subvolume(id)) {
                return Ok(Way::Changes);
            }
            names.push(name);
            (id, at) = (above, directory);
        }
        Err(FsError::Busy("subvolumes too deep in one another"))
    }

    /// The names from a directory up to the root of its subvolume.
    fn within(&self, subvol: &Arc<Subvol>, ino: u64, names: &mut Vec<NameBuf>) -> FsResult<Way> {
        let mut at = ino;
        for _ in 0..WAY_MAX {
            let read = |at| subvol.read(|tree| View::new(&*self.store, tree).directory(at));
            let Some(record) = read(at)?.filter(|record| !record.detached) else {
                return Ok(Way::Ends);
            };
            if at == subvol.root {
                return Ok(Way::Leads(Vec::new()));
            }
            if record.parent == at {
                // The root of what this is a copy of.
                return Ok(Way::Ends);
            }
            let mut name = NameBuf::empty();
            let entry = subvol.read(|tree| {
                let view = View::new(&*self.store, tree);
                view.entry_at(record.parent, record.parent_cookie, &mut name)
            })?;
            if entry.is_none_or(|entry| entry.ino != at) {
                return Ok(Way::Changes);
            }
            names.push(name);
            at = record.parent;
        }
        Err(FsError::Busy("a way up that does not end"))
    }
}
