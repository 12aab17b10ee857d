//! Snapshots of a directory: take, list, delete, rename. Those of removed directories are
//! listed with all of a volume (`kept`), and are known by number.
//!
//! A snapshot is a read-only subvolume that is found by name under the lineage and number of its
//! directory, not mounted anywhere. So a roll-back keeps a directory's snapshots, a clone has
//! none, and they outlive the directory.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::Timestamp;
use format::detached_record::DetachedRecord;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, Ino, NAME_BYTES_MAX, NodeId, SubvolId};
use store::{KeyRange, Read};
use vfs::{Entry, FsResult};
use volume::SnapshotInfo;
use volume::error::{from_store, inconsistent, malformed};
use volume::subvol::{Subvol, VOLUME, read_record};

use super::access::{directory_in, directory_of};
use super::copied::Copied;
use super::copy::{self, Purpose};
use super::execute::{Through, Verb, VerbContext, execute, execute_verb};
use super::ledger::Ledger;
use super::nested::Member;
use crate::Ops;
use crate::plan::{Effect, Plan};
use crate::policy::Policy;

/// Adds to the plan of a snapshot, and may change the record that the snapshot gets.
pub type Also<'a> = &'a mut dyn FnMut(&mut Plan, &mut Copied) -> FsResult<()>;

impl Ops {
    /// Takes a snapshot of a directory: of all that was written before the call.
    pub fn snapshot_create(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        dir: NodeId,
        name: &[u8],
    ) -> FsResult<SnapshotInfo> {
        self.create_snapshot((policy, caller), dir, name, &mut |_, _| Ok(()))
    }

    /// The same; `also` adds to the plan.
    pub(super) fn create_snapshot(
        &self,
        (policy, caller): (&dyn Policy, &Caller),
        dir: NodeId,
        name: &[u8],
        also: Also<'_>,
    ) -> FsResult<SnapshotInfo> {
        check_name(name)?;
        let (subvol, ino) = owned_directory(self, caller, dir)?;
        self.copy_as_snapshot((policy, caller), (&subvol, &subvol, ino), name, also)
    }

    /// Copies a directory of a subvolume as a snapshot of the same directory of another, or of that
    /// one itself.
    pub(super) fn copy_as_snapshot(
        &self,
        by: (&dyn Policy, &Caller),
        (source, of, ino): (&Arc<Subvol>, &Subvol, u64),
        name: &[u8],
        also: Also<'_>,
    ) -> FsResult<SnapshotInfo> {
        // A name that is taken causes no work; the verb looks again with the ledger locked.
        if self.snapshot_id(&key::snapshot_name(of.lineage, ino, name))?.is_some() {
            return Err(FsError::Exists);
        }
        let ledger = self.lock_to_copy(by, (source, ino), (source.id.0, ino))?;
        let verb = TakeSnapshot::new(self, (source, of, ino), name, also)?;
        execute_verb(&VerbContext::new(self, by.0), ledger, &verb)
    }

    /// The snapshots of a directory, by name.
    pub fn snapshot_list(&self, caller: &Caller, dir: NodeId) -> FsResult<Vec<SnapshotInfo>> {
        let mut found = Vec::new();
        self.snapshot_each(caller, dir, &mut |snapshot| {
            found.push(snapshot);
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }

    /// All snapshots of the volume, those of removed directories too. Root sees all, others
    /// those of directories that they own.
    pub fn snapshot_list_all(&self, caller: &Caller) -> FsResult<Vec<SnapshotInfo>> {
        let mut found = Vec::new();
        self.visit_volume(&key::SNAPSHOT_NAMES_PREFIX, &mut |_, value| {
            let id = number(value)?;
            if let Some(record) = read_record(&*self.store, SubvolId(id))?
                && self.snapshot_entry_of(caller, SubvolId(id)).is_ok()
            {
                found.push(info(id, &record));
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// The root of a snapshot, by the snapshot's number, for callers that may search the directory.
    /// Where the directory was removed, its owner may too, unless directories of others above it
    /// were removed with it. Takes one look-up.
    pub fn snapshot_entry(&self, caller: &Caller, snapshot: SubvolId) -> FsResult<Entry> {
        let entry = self.snapshot_entry_of(caller, snapshot)?;
        if !caller.is_root() {
            let record = read_record(&*self.store, snapshot)?.ok_or(FsError::NotFound)?;
            if let Some(directory) = self.directory_of_snapshot(caller, (snapshot, &record))? {
                let search = inode::permissions::EXECUTE;
                crate::posix::access::access(self, caller, directory, search)?;
            }
        }
        self.nodes.look_up(entry.node, volume::nodes::Location::Directory);
        Ok(entry)
    }

    pub(super) fn snapshot_entry_of(&self, caller: &Caller, snapshot: SubvolId) -> FsResult<Entry> {
        let record = read_record(&*self.store, snapshot)?.filter(|record| record.snapshot);
        record.filter(|record| !record.detached).ok_or(FsError::NotFound)?;
        let subvol = self.subvol(snapshot)?;
        let directory = directory_of(self, &subvol, subvol.root)?;
        if !volume::attributes::owned_directory(&directory).is_owner(caller) {
            return Err(FsError::NotPermitted("only the owner sees a removed directory"));
        }
        let attr = volume::attributes::of_directory(subvol.root_node(), &directory);
        Ok(Entry { node: attr.node, attr })
    }

    /// Deletes a snapshot of a directory. Its space is reclaimed later; an open
    /// file keeps its inode until it is closed.
    pub fn snapshot_delete(&self, caller: &Caller, dir: NodeId, name: &[u8]) -> FsResult<()> {
        self.delete_of_directory(caller, dir, name, None)
    }

    fn delete_of_directory(
        &self,
        caller: &Caller,
        dir: NodeId,
        name: &[u8],
        meant: Option<u64>,
    ) -> FsResult<()> {
        let (subvol, ino) = owned_directory(self, caller, dir)?;
        let key = key::snapshot_name(subvol.lineage, ino, name);
        self.delete_snapshot(&key, meant, Some((subvol.node(ino), name)))
    }

    /// Refuses to keep a snapshot from being deleted to a user for whom a limit is in force. What
    /// it holds is charged to nobody, so only root decides how long that lasts.
    pub(super) fn check_keeps_snapshot(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        snapshot: SubvolId,
    ) -> FsResult<()> {
        if caller.is_root() {
            return Ok(());
        }
        let record = read_record(&*self.store, snapshot)?.ok_or(FsError::NotFound)?;
        let there = self.directory_of_snapshot(caller, (snapshot, &record))?;
        let (subvol, ino) = match there {
            Some(directory) => self.place(directory)?,
            None => (self.subvol(snapshot)?, record.root),
        };
        policy.may_copy(caller, (&subvol, ino), (subvol.id.0, ino)).map(drop)
    }

    /// Refuses a caller who may not delete a snapshot, nor hold it.
    pub(super) fn check_changes_snapshot(
        &self,
        caller: &Caller,
        snapshot: SubvolId,
    ) -> FsResult<()> {
        let record = read_record(&*self.store, snapshot)?.filter(|record| record.snapshot);
        let record = record.filter(|record| !record.detached).ok_or(FsError::NotFound)?;
        match self.directory_of_snapshot(caller, (snapshot, &record))? {
            Some(directory) => owned_directory(self, caller, directory).map(drop),
            None if caller.is_root() => Ok(()),
            None => self.snapshot_entry_of(caller, snapshot).map(drop),
        }
    }

    /// Deletes a snapshot by its number, as [`Ops::snapshot_delete`]: the only way where its
    /// directory was removed. There the owner of what it shows may, and root.
    pub fn snapshot_delete_number(&self, caller: &Caller, snapshot: SubvolId) -> FsResult<()> {
        let record = read_record(&*self.store, snapshot)?.filter(|record| record.snapshot);
        let record = record.filter(|record| !record.detached).ok_or(FsError::NotFound)?;
        if let Some(directory) = self.directory_of_snapshot(caller, (snapshot, &record))? {
            // The name may mean another one by now.
            let meant = Some(snapshot.0);
            return match self.delete_of_directory(caller, directory, &record.name, meant) {
                // It was removed just now.
                Err(FsError::Stale) => Err(FsError::NotFound),
                done => done,
            };
        }
        if !caller.is_root() {
            // Root deletes what cannot be read, too.
            self.snapshot_entry_of(caller, snapshot)?;
        }
        let key = key::snapshot_name(record.lineage, record.root, &record.name);
        self.delete_snapshot(&key, Some(snapshot.0), None)
    }

    /// Deletes the snapshot that a key points to, if it is the one that is meant. `shown`: where
    /// front ends show it.
    fn delete_snapshot(
        &self,
        key: &[u8],
        meant: Option<u64>,
        shown: Option<(NodeId, &[u8])>,
    ) -> FsResult<()> {
        let ledger = self.admin.lock();
        execute(
            self,
            ledger,
            Through::default(),
            |_| Ok(()),
            |ledger, plan| {
                let id = self.snapshot_id(key)?.filter(|id| meant.is_none_or(|meant| meant == *id));
                let id = id.ok_or(FsError::NotFound)?;
                self.check_held(id)?;
                plan.batch().delete(VOLUME, key);
                plan_detach(self, ledger, plan, id)?;
                if let Some((directory, name)) = shown {
                    plan.effect(Effect::SnapshotChanged(directory, name.into()));
                }
                Ok(())
            },
        )
    }

    /// Renames a snapshot of a directory.
    pub fn snapshot_rename(
        &self,
        policy: &dyn Policy,
        caller: &Caller,
        dir: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        check_name(to)?;
        if !caller.is_root() {
            // A schedule of root's does not delete what was renamed.
            self.check_keeps_snapshot(policy, caller, self.snapshot_number(dir, from)?)?;
        }
        self.rename_unchecked(caller, dir, from, to)
    }

    /// As `snapshot_rename`, with any name and for any caller who owns the directory.
    pub fn rename_unchecked(
        &self,
        caller: &Caller,
        dir: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        let (subvol, ino) = owned_directory(self, caller, dir)?;
        let ledger = self.admin.lock();
        execute(
            self,
            ledger,
            Through::default(),
            |_| Ok(()),
            |_, plan| {
                let old_key = key::snapshot_name(subvol.lineage, ino, from);
                let new_key = key::snapshot_name(subvol.lineage, ino, to);
                let id = self.snapshot_id(&old_key)?.ok_or(FsError::NotFound)?;
                if self.snapshot_id(&new_key)?.is_some() {
                    return Err(FsError::Exists);
                }
                let mut member = Member::get(self, id)?;
                member.record.name = to.to_vec();
                plan.batch().delete(VOLUME, &old_key);
                plan.batch().put(VOLUME, &new_key, &id.to_le_bytes());
                plan.batch().put(VOLUME, &key::subvolume(id), &member.record.encode());
                let directory = subvol.node(ino);
                plan.effect(Effect::SnapshotChanged(directory, from.into()));
                plan.effect(Effect::SnapshotChanged(directory, to.into()));
                Ok(())
            },
        )
    }

    /// The snapshot that a key of a name points to.
    pub fn snapshot_id(&self, key: &[u8]) -> FsResult<Option<u64>> {
        let value = self.store.get(VOLUME, key).map_err(from_store)?;
        value.map(|bytes| number(&bytes)).transpose()
    }

    /// Names and numbers of a directory's snapshots, by name, at most so many from a name on. A
    /// directory in a snapshot has none.
    pub fn snapshot_names(
        &self,
        subvol: &Subvol,
        ino: u64,
        from: &[u8],
        max: usize,
    ) -> FsResult<Vec<(Vec<u8>, u64)>> {
        let mut found = Vec::new();
        if subvol.read_only {
            return Ok(found);
        }
        let prefix = key::snapshot_names_prefix(subvol.lineage, ino);
        let mut range = KeyRange::prefix(&prefix);
        range.from.extend_from_slice(from);
        let mut cursor = self.store.scan(VOLUME, range).map_err(from_store)?;
        while found.len() < max
            && let Some(item) = cursor.next().map_err(from_store)?
        {
            let parsed = key::parse_snapshot_name(item.key);
            let (_, _, name) = parsed.map_err(|error| malformed(VOLUME, &error))?;
            found.push((name.to_vec(), number(item.value)?));
        }
        Ok(found)
    }
}

/// A directory of a subvolume as a snapshot of the same directory of another, or of that one.
pub struct TakeSnapshot<'a> {
    /// What is copied, alone.
    source: [Arc<Subvol>; 1],
    of: &'a Subvol,
    ino: u64,
    name: &'a [u8],
    key: Vec<u8>,
    also: RefCell<Also<'a>>,
}

impl<'a> TakeSnapshot<'a> {
    /// Under a name that no snapshot of the directory has. The ledger is locked.
    pub fn new(
        fs: &Ops,
        (source, of, ino): (&Arc<Subvol>, &'a Subvol, u64),
        name: &'a [u8],
        also: Also<'a>,
    ) -> FsResult<TakeSnapshot<'a>> {
        let key = key::snapshot_name(of.lineage, ino, name);
        if fs.snapshot_id(&key)?.is_some() {
            return Err(FsError::Exists);
        }
        let (source, also) = ([Arc::clone(source)], RefCell::new(also));
        Ok(TakeSnapshot { source, of, ino, name, key, also })
    }
}

impl Verb for TakeSnapshot<'_> {
    type Answer = SnapshotInfo;

    fn through(&self) -> Through<'_> {
        Through { quiet: &self.source, changed: None }
    }

    fn aim(&self, _at: &VerbContext<'_>, _plan: &mut Plan) -> FsResult<()> {
        Ok(())
    }

    fn plan(
        &self,
        at: &VerbContext<'_>,
        ledger: &mut Ledger,
        plan: &mut Plan,
    ) -> FsResult<SnapshotInfo> {
        let TakeSnapshot { source: [source], of, ino, name, key, also } = self;
        let (fs, ino) = (at.fs, *ino);
        directory_in(fs, source, at.view(source), ino)?;
        let same_lineage = source.lineage == of.lineage;
        let (snapshot, parent) = (true, (0, 0, 0));
        let purpose = Purpose { read_only: true, snapshot, same_lineage, parent, name };
        let member = Member::get(fs, source.id.0)?;
        let mut copied = copy::plan(fs, ledger, plan, (&member, ino), &purpose)?;
        (*also.borrow_mut())(plan, &mut copied)?;
        plan.batch().put(VOLUME, key, &copied.id.to_le_bytes());
        let info = info(copied.id, &copied.record);
        plan.effect(Effect::Copied(Box::new(copied)));
        plan.effect(Effect::SnapshotChanged(of.node(ino), (*name).into()));
        Ok(info)
    }
}

/// Takes a subvolume out of everything and has it wait to be reclaimed. Its heirs were given
/// theirs.
pub fn plan_detach(fs: &Ops, ledger: &mut Ledger, plan: &mut Plan, id: u64) -> FsResult<u64> {
    plan_detach_in(&*fs.store, ledger, plan, id)
}

/// The same in the volume's records.
pub(super) fn plan_detach_in(
    reads: &dyn Read,
    ledger: &mut Ledger,
    plan: &mut Plan,
    id: u64,
) -> FsResult<u64> {
    plan.effect(Effect::Mounted(id, None));
    plan.effect(Effect::Detached);
    let mut record = read_record(reads, SubvolId(id))?.ok_or(FsError::Stale)?;
    record.parent = (0, 0, 0);
    record.detached = true;
    if record.inherits {
        // A process whose working directory it is finds nothing where it has no copies yet.
        record.inherits = false;
        plan.batch().delete(VOLUME, &format::inherited_record::inherited(id));
    }
    plan.batch().put(VOLUME, &key::subvolume(id), &record.encode());
    Ok(ledger.detach(plan.batch(), DetachedRecord::Subvolume { subvolume: id }))
}

/// A directory of a live subvolume whose snapshots the caller may change.
pub(super) fn owned_directory(
    fs: &Ops,
    caller: &Caller,
    dir: NodeId,
) -> FsResult<(Arc<Subvol>, u64)> {
    let (subvol, ino) = fs.place(dir)?;
    if subvol.read_only {
        return Err(FsError::ReadOnly(
            "a snapshot cannot have snapshots; take them of a clone of it".to_owned(),
        ));
    }
    let record = directory_of(fs, &subvol, ino)?;
    if !volume::attributes::owned_directory(&record).is_owner(caller) {
        return Err(FsError::NotPermitted("only the owner of a directory has snapshots of it"));
    }
    Ok((subvol, ino))
}

pub(super) fn check_name(name: &[u8]) -> FsResult<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    if vfs::number_in_name(name).is_some() {
        return Err(FsError::InvalidArgument(
            "a name of `#` and digits is reserved for snapshots by number",
        ));
    }
    inode::Name::new(name).map(|_| ())
}

/// The subvolume that the name of a snapshot points to.
pub(super) fn number(value: &[u8]) -> FsResult<u64> {
    let number = <[u8; 8]>::try_from(value).map(u64::from_le_bytes);
    let number = number.map_err(|_| inconsistent(VOLUME, "a number has 8 bytes", 0))?;
    if !key::can_be_subvolume(number) {
        return Err(inconsistent(VOLUME, "a snapshot has no number of a subvolume", number));
    }
    Ok(number)
}

pub(super) fn info(id: u64, record: &SubvolumeRecord) -> SnapshotInfo {
    SnapshotInfo {
        name: record.name.clone(),
        created: Timestamp(record.created),
        subvol: SubvolId(id),
        root: NodeId::new(SubvolId(id), Ino(record.root)),
        lineage: record.lineage,
    }
}
