//! A volume in memory with operations alone, and a policy that does nothing, or that is strict.

use std::any::Any;
use std::sync::Arc;

use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::quota::Charge;
use inode::{Caller, FsError, Kind, NameHash, NodeId};
use ops::Ops;
use ops::execute::Context;
use ops::object::Object;
use ops::plan::Plan;
use ops::policy::{Looked, Move, Policy, Removal, Share, Whose};
use ops::posix::mknod::NewName;
use ops::posix::unlink::OldName;
use ops::subvolumes::Ledger;
use store::TreeId;
use testing::{MemStore, SimEnv, sim_env};
use vfs::{FsResult, NewNode};
use volume::subvol::Subvol;
use volume::view::View;
use volume::{Core, FormatOptions, OpenOptions, QuotaInfo, record_copies};

/// A new file.
pub(crate) const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

/// An empty volume.
pub(crate) fn volume() -> (SimEnv, Arc<MemStore>, Ops) {
    let (env, store) = (sim_env(1), Arc::new(MemStore::new()));
    let format = FormatOptions { root_mode: 0o777, ..FormatOptions::default() };
    let made = opening::create::format_on(&env.env(), &*store, &format);
    let header = made.expect("an empty store");
    let hash = NameHash::new(header.hash_key);
    let below = record_copies::over(Arc::<MemStore>::clone(&store)).expect("it is in memory");
    let core = Core::open(env.env(), below, header, &OpenOptions::default(), hash);
    let ops = Ops::open(core.expect("it was made just now"));
    (env, store, ops.expect("it was made just now"))
}

/// Keys and values.
pub(crate) type Contents = Vec<(Vec<u8>, Vec<u8>)>;

/// All keys and values of all trees.
pub(crate) fn all(store: &MemStore) -> Vec<(TreeId, Contents)> {
    let trees = store.trees().into_iter();
    trees.map(|tree| (tree, store.dump(tree).expect("it is in memory"))).collect()
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

    fn limits_at(&self, _: NodeId) -> FsResult<Option<QuotaInfo>> {
        Ok(None)
    }
}
