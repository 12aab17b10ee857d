//! A volume with operations alone, over records that are in no store; and a policy that does
//! nothing, or that is strict.

use std::any::Any;
use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::InodeRecord;
use format::key::{self, Part};
use format::quota::Charge;
use format::subvolume_record::SubvolumeRecord;
use format::volume::{EngineKind, Home, VolumeHeader};
use inode::{Caller, FsError, Kind, NameHash};
use ops::Ops;
use ops::execute::Context;
use ops::object::Object;
use ops::plan::Plan;
use ops::policy::{Looked, Move, Policy, Removal, Share, Whose};
use ops::posix::mknod::NewName;
use ops::posix::unlink::OldName;
use ops::subvolumes::Ledger;
use store::TreeId;
use testing::{SimEnv, sim_env};
use vfs::{FsResult, NewNode};
use volume::numbers::{Numbers, ROOT_INO};
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;
use volume::{Core, OpenOptions, record_copies};

use crate::recorded::{Recorded, mounted_at};

/// A new file.
pub(crate) const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// A subvolume that the root directory of the volume has, as "made": its number and its root's.
pub(crate) const MADE: (u64, u64) = (2, 60);
/// The snapshot "before" of directory 71.
pub(crate) const BEFORE: u64 = 3;

/// A volume whose records are in no store: directory 71 is "dir" in its root directory.
pub(crate) fn volume() -> (SimEnv, Ops) {
    let (env, hash) = (sim_env(1), NameHash::new([7; 16]));
    let header = VolumeHeader {
        volume_id: [1; 16],
        engine: EngineKind::Btree,
        hash_key: [7; 16],
        created: 1,
        snapshot_dir: b".snapshots".to_vec(),
        home: Home::Directory,
        inode_home: 0,
    };
    let below = record_copies::over(Arc::new(recorded(&hash))).expect("it is in memory");
    let core = Core::open(env.env(), below, header, &OpenOptions::default(), hash);
    let mut core = core.expect("all records are there");
    core.numbers = Numbers::of_reserved(1000..2000);
    (env, Ops::open(core).expect("all records are there"))
}

/// The records of that volume.
fn recorded(hash: &NameHash) -> Recorded {
    let [tree, made, before] = [0, 1, 2].map(|at| TreeId(key::FIRST_TREE + at));
    let mut recorded = Recorded::of_root(1);
    recorded.add(1, &mounted_at(tree, ROOT_INO, (0, 0, 0)));
    let cookie = |name: &[u8]| key::cookie(hash.hash(name), 0);
    let mount = (1, ROOT_INO, cookie(b"made"));
    recorded.add(MADE.0, &SubvolumeRecord { lineage: 2, ..mounted_at(made, MADE.1, mount) });
    let (read_only, name) = (true, b"before".to_vec());
    let source = (1, 71);
    let snapshot = mounted_at(before, 71, (0, 0, 0));
    let snapshot = SubvolumeRecord { read_only, snapshot: true, name, source, ..snapshot };
    recorded.add(BEFORE, &snapshot);
    recorded.set(VOLUME, &key::snapshot_name(1, 71, b"before"), &BEFORE.to_le_bytes());
    let mut directory = |tree, ino, record: DirectoryRecord| {
        recorded.set(tree, &key::directory(ino, Part::Attributes), &record.encode());
    };
    let in_root = DirectoryRecord { parent_cookie: cookie(b"dir"), ..directory_record() };
    directory(tree, ROOT_INO, DirectoryRecord { entries: 2, ..directory_record() });
    directory(tree, 70, directory_record());
    directory(tree, 71, in_root);
    directory(made, MADE.1, DirectoryRecord { entries: 0, parent: MADE.1, ..directory_record() });
    directory(before, 71, in_root);
    let mut enter = |name: &[u8], ino, target| {
        let mut value = Vec::new();
        EntryRecord { chained: false, ino, name, target }.encode(&mut value);
        recorded.set(tree, &key::entry(ROOT_INO, cookie(name), Part::Attributes), &value);
    };
    enter(b"made", MADE.1, Target::Subvolume(MADE.0));
    enter(b"dir", 71, Target::Directory);
    recorded
}

/// A directory of one entry, in the root directory.
pub(crate) fn directory_record() -> DirectoryRecord {
    DirectoryRecord {
        entries: 1,
        subdirectories: 0,
        mtime: 1,
        ctime: 1,
        atime: 1,
        btime: 1,
        parent: ROOT_INO,
        parent_cookie: 0,
        mode: 0o777,
        uid: 0,
        gid: 0,
        has_xattrs: false,
        detached: false,
        elsewhere: None,
        charge: None,
    }
}

/// A name that is to be made.
pub(crate) fn new_name<'a>(fs: &Ops, caller: &'a Caller, dir: u64, name: &'a [u8]) -> NewName<'a> {
    NewName { caller, dir, hash: fs.hash.hash(name), name }
}

/// A name that is to be removed.
pub(crate) fn old_name<'a>(fs: &Ops, caller: &'a Caller, dir: u64, name: &'a [u8]) -> OldName<'a> {
    OldName { caller, dir, hash: fs.hash.hash(name), name }
}

/// A policy of the tests.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum TestPolicy {
    /// Sees everything, and adds and refuses nothing.
    Permissive,
    /// Refuses all new names but one and all moves, marks what is created, and has what is removed
    /// go to a key.
    Strict,
}

/// The key that [`TestPolicy::Strict`] has what is removed go to.
pub(crate) const KEPT: &[u8] = b"\xfekept";

/// Where what is removed goes.
struct ToKey(&'static [u8]);

impl TestPolicy {
    fn is_strict(self) -> bool {
        self == TestPolicy::Strict
    }
}

impl Policy for TestPolicy {
    fn makes_name(&self, _: &Context<'_>, _: u64, name: &[u8]) -> FsResult<()> {
        if self.is_strict() && name != b"allowed" { Err(FsError::QuotaExceeded) } else { Ok(()) }
    }

    fn removes(&self, _: &Context<'_>, plan: &mut Plan, _: &Removal<'_>) -> FsResult<()> {
        if self.is_strict() {
            plan.redirect(Box::new(ToKey(KEPT)));
        }
        Ok(())
    }

    fn creates(
        &self,
        _: &mut Plan,
        subvolume: u64,
        _: &DirectoryRecord,
        _: Share,
    ) -> FsResult<Option<Charge>> {
        Ok(self.is_strict().then_some(Charge { domain: 7, subvolume }))
    }

    fn creates_unnamed(&self, _: &DirectoryRecord) -> Option<Charge> {
        None
    }

    fn changes(
        &self,
        _: &mut Plan,
        _: Whose,
        _: (Option<&InodeRecord>, &mut InodeRecord),
        _: bool,
    ) -> FsResult<()> {
        Ok(())
    }

    fn changes_directory(
        &self,
        _: &mut Plan,
        _: Whose,
        _: &DirectoryRecord,
        _: (u32, u32),
    ) -> FsResult<()> {
        Ok(())
    }

    fn may_name(&self, _: &InodeRecord, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }

    fn adds_name(&self, _: &mut Plan, _: Whose, _: &mut InodeRecord) -> FsResult<()> {
        Ok(())
    }

    fn drops_name(&self, _: &mut Plan, _: Whose, _: &mut InodeRecord, _: u32) -> FsResult<()> {
        Ok(())
    }

    fn removes_inode(&self, _: &mut Plan, _: Whose, _: &InodeRecord) -> Option<Charge> {
        assert!(!self.is_strict(), "what is redirected is not removed");
        None
    }

    fn removes_directory(&self, _: &mut Plan, _: Whose, _: &DirectoryRecord) {
        assert!(!self.is_strict(), "what is redirected is not removed");
    }

    fn may_move(&self, _: &Context<'_>, _: &mut Plan, _: &Move<'_>) -> FsResult<()> {
        if self.is_strict() { Err(FsError::CrossSubvolume("nothing moves")) } else { Ok(()) }
    }

    fn may_leave(&self, _: &DirectoryRecord, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }

    fn moves(&self, _: &mut Plan, _: Whose, _: &mut Object, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }

    fn takes_file(
        &self,
        at: &Context<'_>,
        plan: &mut Plan,
        removal: &Removal<'_>,
        to: &dyn Any,
    ) -> FsResult<bool> {
        let ToKey(key) = to.downcast_ref().expect("it is where this policy redirected it");
        plan.batch().put(at.view.tree, key, removal.name);
        Ok(true)
    }

    fn takes_directory(
        &self,
        _: &Context<'_>,
        _: &mut Plan,
        _: (u64, &DirectoryRecord),
        _: &dyn Any,
    ) -> FsResult<bool> {
        Ok(false)
    }

    fn may_replace(&self, _: (&Subvol, View<'_>), _: (u64, &[u8])) -> FsResult<()> {
        Ok(())
    }

    fn is_empty(&self, _: (&Subvol, View<'_>), record: &DirectoryRecord) -> FsResult<bool> {
        Ok(record.entries == 0)
    }

    fn may_move_mount(&self, _: &DirectoryRecord, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }

    fn may_copy(&self, _: &Caller, _: (&Subvol, u64), _: (u64, u64)) -> FsResult<Looked> {
        Ok(Looked::default())
    }

    fn may_still_copy(&self, _: &Caller, _: &Ledger, _: Looked) -> bool {
        true
    }

    fn may_copy_below(&self, _: &Caller, _: &mut Ledger, _: (&Subvol, u64)) -> FsResult<()> {
        Ok(())
    }

    fn may_clone_into(&self, _: &DirectoryRecord, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }
}
