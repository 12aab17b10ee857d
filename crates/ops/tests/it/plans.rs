//! Plans looked at without executing them, over records that are in no store; and a policy of the
//! test's own.

use std::any::Any;
use std::collections::BTreeMap;

use format::batch::Op;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use format::quota::Charge;
use inode::{Caller, FsError, NodeId};
use store::{Cursor, KeyRange, Need, Read, TreeId};
use vfs::{FsResult, RenameMode};
use volume::QuotaInfo;
use volume::locks::{Lock, Mode};
use volume::nodes::Location;
use volume::subvol::Subvol;
use volume::view::View;

use ops::execute::{Context, Operation, Outcome};
use ops::object::Object;
use ops::plan::{Effect, Plan};
use ops::policy::{Move, Policy, Removal, Share, Whose};
use ops::posix::mknod::Make;
use ops::posix::moving::{End, Moving};
use ops::posix::unlink::Unlink;
use ops::subvolumes::Ledger;
use volume::attributes::fresh_inode;

use crate::support::{FILE, Permissive, all, new_name, old_name, volume};
use ops::Ops;

/// Records that are in no store.
#[derive(Default)]
struct Records(BTreeMap<Vec<u8>, Vec<u8>>);

impl Read for Records {
    fn get_with(
        &self,
        _tree: TreeId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> store::Result<bool> {
        let value = self.0.get(key);
        if let Some(value) = value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, _tree: TreeId, _range: KeyRange) -> store::Result<Box<dyn Cursor + '_>> {
        unreachable!("the operations tested here only look up keys")
    }
}

fn directory() -> DirectoryRecord {
    DirectoryRecord {
        entries: 1,
        subdirectories: 0,
        mtime: 1,
        ctime: 1,
        atime: 1,
        btime: 1,
        parent: 2,
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

/// Two directories of the tests: 70, which has a file, and 71.
fn records(fs: &Ops) -> Records {
    let mut records = Records::default();
    for dir in [70, 71] {
        let key = key::directory(dir, Part::Attributes).to_vec();
        records.0.insert(key, directory().encode());
    }
    let inode = InodeRecord { mode: 0o644, ..fresh_inode(FileKind::File, 5) };
    let target = Target::Embedded(inode);
    let mut value = Vec::new();
    EntryRecord { chained: false, ino: 90, name: b"old", target }.encode(&mut value);
    let cookie = key::cookie(fs.hash.hash(b"old"), 0);
    records.0.insert(key::entry(70, cookie, Part::Attributes).to_vec(), value);
    records
}

/// The plan of an operation on records, and its answer.
fn planned<O: Operation>(
    fs: &Ops,
    policy: &dyn Policy,
    records: &Records,
    operation: &mut O,
) -> FsResult<(Plan, O::Answer)> {
    let subvol = fs.root_subvol()?;
    let view = View::new(records, subvol.tree());
    let at = Context { fs, policy, subvol: &subvol, view };
    let mut plan = Plan::new();
    let guess = operation.guess(&at)?;
    operation.aim(&at, &guess, &mut plan)?;
    let found = operation.look(&at)?;
    assert!(O::agree(&guess, &found), "nothing changes in between");
    plan.set_time(fs.env.clock.now());
    match operation.plan(&at, found, &mut plan)? {
        Outcome::Done(answer) => Ok((plan, answer)),
        Outcome::Again => panic!("nothing changed in between"),
    }
}

/// Keys that a plan puts and deletes in the tree of the subvolume.
fn changed_keys(plan: &mut Plan) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut put, mut deleted) = (Vec::new(), Vec::new());
    for op in plan.batch().ops() {
        match op.expect("it was encoded just now") {
            Op::Put { key, .. } => put.push(key.to_vec()),
            Op::Delete { key, .. } => deleted.push(key.to_vec()),
            _ => {}
        }
    }
    (put, deleted)
}

#[test]
fn plan_of_a_create_is_seen_before_anything_is_done() {
    let (_env, store, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    // A range of numbers is reserved by a commit of its own, once.
    fs.numbers.next_ino(&*fs.store).expect("there are numbers");
    let before = all(&store);
    let name = new_name(&fs, &caller, 71, b"new");
    let mut make = Make { name, new: &FILE, target: None };
    let (mut plan, entry) = planned(&fs, &Permissive, &records, &mut make).expect("a plan");
    let subvol = fs.root_subvol().expect("it is there").id.0;
    let (object, hash) = (Lock::Object { subvol, ino: 71 }, fs.hash.hash(b"new"));
    let locked = Lock::Name { subvol, dir: 71, hash };
    assert_eq!(plan.locks(), [(object, Mode::Shared), (locked, Mode::Exclusive)]);
    let cookie = key::cookie(hash, 0);
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(put, [key::entry(71, cookie, Part::Attributes).to_vec()]);
    assert!(deleted.is_empty());
    let [Effect::LookUp(node, location)] = plan.effects() else { panic!("one effect") };
    assert_eq!((*node, *location), (entry.node, Location::Entry { dir: 71, cookie }));
    assert_eq!(fs.nodes.location(entry.node), None, "the effect was not applied");
    assert_eq!(all(&store), before, "nothing was committed");
}

#[test]
fn plan_of_an_unlink_frees_space_and_remembers_the_inode() {
    let (_env, _store, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let mut unlink = Unlink { name: old_name(&fs, &caller, 70, b"old") };
    let (mut plan, ()) = planned(&fs, &Permissive, &records, &mut unlink).expect("a plan");
    let subvol = fs.root_subvol().expect("it is there").id.0;
    assert!(plan.locks().contains(&(Lock::Object { subvol, ino: 90 }, Mode::Exclusive)));
    let cookie = key::cookie(fs.hash.hash(b"old"), 0);
    assert_eq!(changed_keys(&mut plan).1, [key::entry(70, cookie, Part::Attributes).to_vec()]);
    assert_eq!(plan.batch().need(), Need::Removes);
    assert!(matches!(plan.effects(), [Effect::Lost(_)]));
}

#[test]
fn plan_of_a_rename_has_both_names_and_the_new_place_of_the_inode() {
    let (_env, _store, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let ends = (End::of(&fs.hash, 70, b"old"), End::of(&fs.hash, 71, b"other"));
    let mut moving = Moving::new(&caller, ends, RenameMode::Replace);
    let (mut plan, _) = planned(&fs, &Permissive, &records, &mut moving).expect("a plan");
    let key = |dir, name: &[u8]| {
        key::entry(dir, key::cookie(fs.hash.hash(name), 0), Part::Attributes).to_vec()
    };
    assert_eq!(changed_keys(&mut plan), (vec![key(71, b"other")], vec![key(70, b"old")]));
    let cookie = key::cookie(fs.hash.hash(b"other"), 0);
    let [Effect::Relocate(node, location)] = plan.effects() else { panic!("one effect") };
    assert_eq!((node.ino().0, *location), (90, Location::Entry { dir: 71, cookie }));
}

/// Refuses all new names but one, marks what is created, and has what is removed go to a key.
struct Strict;

const KEPT: &[u8] = b"\xfekept";

impl Policy for Strict {
    fn makes_name(&self, _: &Context<'_>, _: u64, name: &[u8]) -> FsResult<()> {
        if name == b"allowed" { Ok(()) } else { Err(FsError::QuotaExceeded) }
    }

    fn removes(&self, _: &Context<'_>, plan: &mut Plan, _: &Removal<'_>) -> FsResult<()> {
        plan.redirect(Box::new(ToKey(KEPT)));
        Ok(())
    }

    fn creates(
        &self,
        _: &mut Plan,
        subvolume: u64,
        _: &DirectoryRecord,
        _: Share,
    ) -> FsResult<Option<Charge>> {
        Ok(Some(Charge { domain: 7, subvolume }))
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
        panic!("what is redirected is not removed")
    }

    fn removes_directory(&self, _: &mut Plan, _: Whose, _: &DirectoryRecord) {
        panic!("what is redirected is not removed")
    }

    fn may_move(&self, _: &Context<'_>, _: &mut Plan, _: &Move<'_>) -> FsResult<()> {
        Err(FsError::CrossSubvolume("nothing moves"))
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

    fn is_empty(&self, _: (&Subvol, View<'_>), _: &DirectoryRecord) -> FsResult<bool> {
        Ok(false)
    }

    fn may_move_mount(&self, _: &DirectoryRecord, _: &DirectoryRecord) -> FsResult<()> {
        Ok(())
    }

    fn may_copy(&self, _: &Caller, _: (&Subvol, u64), _: (u64, u64)) -> FsResult<()> {
        Ok(())
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

/// Where what is removed goes.
struct ToKey(&'static [u8]);

#[test]
fn policy_adds_to_a_plan_redirects_and_refuses() {
    let (_env, _store, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let make = |name| {
        let name = new_name(&fs, &caller, 71, name);
        planned(&fs, &Strict, &records, &mut Make { name, new: &FILE, target: None })
    };
    assert!(matches!(make(b"other"), Err(FsError::QuotaExceeded)));
    let (mut plan, _) = make(b"allowed").expect("a plan");
    let marked = plan.batch().ops().any(|op| match op.expect("it was encoded just now") {
        Op::Put { value, .. } => {
            let entry = EntryRecord::decode(value).expect("an entry");
            matches!(entry.target, Target::Embedded(InodeRecord { charge: Some(charge), .. })
                if charge.domain == 7)
        }
        _ => false,
    });
    assert!(marked, "the record has the mark of the policy");
    let mut unlink = Unlink { name: old_name(&fs, &caller, 70, b"old") };
    let (mut plan, ()) = planned(&fs, &Strict, &records, &mut unlink).expect("a plan");
    assert_eq!(changed_keys(&mut plan).0, [KEPT.to_vec()]);
    assert_eq!(plan.batch().need(), Need::Adds);
    assert!(plan.effects().is_empty(), "the inode is not lost");
    let ends = (End::of(&fs.hash, 70, b"old"), End::of(&fs.hash, 71, b"allowed"));
    let mut moving = Moving::new(&caller, ends, RenameMode::Replace);
    let refused = planned(&fs, &Strict, &records, &mut moving);
    assert!(matches!(refused, Err(FsError::CrossSubvolume(_))));
}
