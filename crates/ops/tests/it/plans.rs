//! Plans looked at without executing them, over records that are in no store; and what a
//! policy does to them. A commit fails the test (`recorded`).

use std::collections::BTreeMap;

use format::batch::Op;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use inode::{Caller, FsError, NodeId, SetAttr};
use store::{Cursor, KeyRange, Need, Read, TreeId};
use vfs::{FsResult, RenameMode};
use volume::locks::{Lock, Mode};
use volume::nodes::Location;
use volume::view::View;

use ops::contents::Step;
use ops::edit::{Edit, Editing};
use ops::execute::{Context, Operation, Outcome};
use ops::plan::{Effect, Plan};
use ops::policy::Policy;
use ops::posix::link::Link;
use ops::posix::mknod::Make;
use ops::posix::moving::{End, Moving};
use ops::posix::rmdir::{RemoveDirectory, Removed};
use ops::posix::setattr;
use ops::posix::unlink::Unlink;
use ops::posix::write::write_piece;
use volume::attributes::fresh_inode;

use crate::support::{FILE, KEPT, TestPolicy, directory_record, new_name, old_name, volume};
use ops::Ops;

/// Records that are in no store.
#[derive(Default)]
pub(crate) struct Records(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

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

/// Three directories of the tests: 70, which has a file, and 71, which has 72.
pub(crate) fn records(fs: &Ops) -> Records {
    let mut records = Records::default();
    for (dir, entries) in [(70, 1), (71, 1), (72, 0)] {
        let key = key::directory(dir, Part::Attributes).to_vec();
        records.0.insert(key, DirectoryRecord { entries, ..directory_record() }.encode());
    }
    let inode = InodeRecord { mode: 0o644, ..fresh_inode(FileKind::File, 5) };
    let mut enter = |dir, name: &[u8], ino, target| {
        let mut value = Vec::new();
        EntryRecord { chained: false, ino, name, target }.encode(&mut value);
        records.0.insert(entry_key(fs, dir, name), value);
    };
    enter(70, b"old", 90, Target::Embedded(inode));
    enter(71, b"below", 72, Target::Directory);
    records
}

/// The cookie of a name.
pub(crate) fn cookie(fs: &Ops, name: &[u8]) -> u64 {
    key::cookie(fs.hash.hash(name), 0)
}

/// The key of a name.
pub(crate) fn entry_key(fs: &Ops, dir: u64, name: &[u8]) -> Vec<u8> {
    key::entry(dir, cookie(fs, name), Part::Attributes).to_vec()
}

/// The node of the file in directory 70, which a caller holds.
fn held(fs: &Ops) -> NodeId {
    let node = fs.root_subvol().expect("it is there").node(90);
    fs.nodes.look_up(node, Location::Entry { dir: 70, cookie: cookie(fs, b"old") });
    node
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

/// The record of the file as a plan puts it.
fn put_inode(fs: &Ops, plan: &mut Plan) -> InodeRecord {
    let old = entry_key(fs, 70, b"old");
    let value = plan.batch().ops().find_map(|op| match op.expect("it was encoded just now") {
        Op::Put { key, value, .. } if key == old => Some(value.to_vec()),
        _ => None,
    });
    let value = value.expect("the plan puts the entry");
    match EntryRecord::decode(&value).expect("an entry").target {
        Target::Embedded(inode) => inode,
        other => panic!("{other:?}"),
    }
}

/// Keys that a plan puts and deletes, of all trees.
pub(crate) fn changed_keys(plan: &mut Plan) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
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
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let name = new_name(&fs, &caller, 71, b"new");
    let mut make = Make { name, new: &FILE, target: None };
    let (mut plan, entry) =
        planned(&fs, &TestPolicy::Permissive, &records, &mut make).expect("a plan");
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
}

#[test]
fn plan_of_an_unlink_frees_space_and_remembers_the_inode() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let mut unlink = Unlink { name: old_name(&fs, &caller, 70, b"old") };
    let (mut plan, ()) =
        planned(&fs, &TestPolicy::Permissive, &records, &mut unlink).expect("a plan");
    let subvol = fs.root_subvol().expect("it is there").id.0;
    assert!(plan.locks().contains(&(Lock::Object { subvol, ino: 90 }, Mode::Exclusive)));
    assert_eq!(changed_keys(&mut plan).1, [entry_key(&fs, 70, b"old")]);
    assert_eq!(plan.batch().need(), Need::Removes);
    assert!(matches!(plan.effects(), [Effect::Lost(_)]));
}

#[test]
fn plan_of_a_rename_has_both_names_and_the_new_place_of_the_inode() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let ends = (End::of(&fs.hash, 70, b"old"), End::of(&fs.hash, 71, b"other"));
    let mut moving = Moving::new(&caller, ends, RenameMode::Replace);
    let (mut plan, _) =
        planned(&fs, &TestPolicy::Permissive, &records, &mut moving).expect("a plan");
    let (from, to) = (entry_key(&fs, 70, b"old"), entry_key(&fs, 71, b"other"));
    assert_eq!(changed_keys(&mut plan), (vec![to], vec![from]));
    let cookie = cookie(&fs, b"other");
    let [Effect::Relocate(node, location)] = plan.effects() else { panic!("one effect") };
    assert_eq!((node.ino().0, *location), (90, Location::Entry { dir: 71, cookie }));
}

#[test]
fn plan_of_a_link_moves_the_inode_to_its_own_number() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let node = held(&fs);
    let mut link = Link::new(new_name(&fs, &caller, 71, b"other"), node, 90);
    let (mut plan, entry) =
        planned(&fs, &TestPolicy::Permissive, &records, &mut link).expect("a plan");
    let subvol = fs.root_subvol().expect("it is there").id.0;
    let name = |dir, name: &[u8]| Lock::Name { subvol, dir, hash: fs.hash.hash(name) };
    assert_eq!(
        plan.locks(),
        [
            (Lock::Object { subvol, ino: 71 }, Mode::Shared),
            (name(71, b"other"), Mode::Exclusive),
            // A thread that looks the old name up must not meet it half moved.
            (name(70, b"old"), Mode::Exclusive),
            (Lock::Object { subvol, ino: 90 }, Mode::Exclusive),
        ]
    );
    let (mut put, deleted) = changed_keys(&mut plan);
    let mut expected = vec![
        entry_key(&fs, 70, b"old"),
        entry_key(&fs, 71, b"other"),
        key::linked(90, Part::Attributes).to_vec(),
        key::back_reference(90, 70, cookie(&fs, b"old")).to_vec(),
        key::back_reference(90, 71, cookie(&fs, b"other")).to_vec(),
    ];
    put.sort();
    expected.sort();
    assert_eq!((put, deleted), (expected, Vec::new()));
    let [Effect::Relocate(moved, Location::Linked), Effect::LookUp(held, Location::Linked)] =
        plan.effects()
    else {
        panic!("two effects")
    };
    assert_eq!((*moved, *held, entry.attr.nlink), (node, node, 2));
    assert!(fs.nodes.location(node) != Some(Location::Linked), "the effect was not applied");
}

#[test]
fn plan_of_a_change_of_attributes_writes_one_record_under_one_lock() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let changes = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let planned = |ino| {
        let change = |edit: &mut Edit<'_>| setattr::apply(edit, &caller, &changes);
        let mut editing = Editing { ino, beside: None, change };
        planned(&fs, &TestPolicy::Permissive, &records, &mut editing).expect("a plan")
    };
    held(&fs);
    let (mut plan, edited) = planned(90);
    let subvol = fs.root_subvol().expect("it is there").id.0;
    assert_eq!(plan.locks(), [(Lock::Object { subvol, ino: 90 }, Mode::Exclusive)]);
    assert_eq!(changed_keys(&mut plan), (vec![entry_key(&fs, 70, b"old")], Vec::new()));
    assert_eq!(put_inode(&fs, &mut plan).mode, 0o600);
    assert_eq!((edited.before.mode, edited.after.mode), (0o644, 0o600));
    assert!(plan.effects().is_empty(), "no place changes");
    // What may be reached below a directory depends on its rights.
    let (mut plan, _) = planned(70);
    let record = key::directory(70, Part::Attributes).to_vec();
    assert_eq!(changed_keys(&mut plan), (vec![record], Vec::new()));
    assert!(matches!(plan.effects(), [Effect::Arrives(..), Effect::DirectoriesMoved]));
}

#[test]
fn plan_of_a_small_write_has_the_bytes_and_the_new_size() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    held(&fs);
    let change = |edit: &mut Edit<'_>| write_piece(edit, &caller, None, b"hello");
    let mut editing = Editing { ino: 90, beside: None, change };
    let (mut plan, edited) =
        planned(&fs, &TestPolicy::Permissive, &records, &mut editing).expect("a plan");
    assert_eq!(edited.result, (Step::Done, 0));
    let bulk = key::entry(70, cookie(&fs, b"old"), Part::Bulk).to_vec();
    assert_eq!(
        changed_keys(&mut plan),
        (vec![entry_key(&fs, 70, b"old"), bulk.clone()], Vec::new())
    );
    let bytes = plan.batch().ops().any(|op| match op.expect("it was encoded just now") {
        Op::Put { key, value, .. } => key == bulk && value == b"hello",
        _ => false,
    });
    assert!(bytes, "the bytes are beside the entry");
    let inode = put_inode(&fs, &mut plan);
    assert_eq!((inode.size, inode.has_bulk, inode.mtime), (5, true, plan.now));
    assert_eq!(plan.batch().need(), Need::Adds);
    assert!(plan.effects().is_empty());
}

#[test]
fn plan_of_a_removed_directory_deletes_its_record_and_its_name() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let remove = |dir, name| {
        let mut operation = RemoveDirectory { name: old_name(&fs, &caller, dir, name) };
        planned(&fs, &TestPolicy::Permissive, &records, &mut operation)
    };
    assert!(matches!(remove(70, b"old"), Err(FsError::NotDirectory)));
    let (mut plan, removed) = remove(71, b"below").expect("a plan");
    assert!(matches!(removed, Removed::Directory));
    let (put, mut deleted) = changed_keys(&mut plan);
    let record = key::directory(72, Part::Attributes).to_vec();
    let mut expected = vec![entry_key(&fs, 71, b"below"), record];
    deleted.sort();
    expected.sort();
    assert_eq!((put, deleted), (Vec::new(), expected));
    assert_eq!(plan.batch().need(), Need::Removes);
    let [Effect::Removed(node, record)] = plan.effects() else { panic!("one effect") };
    assert_eq!((node.ino().0, record.ctime), (72, plan.now));
}

#[test]
fn policy_adds_to_a_plan_redirects_and_refuses() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    let make = |name| {
        let name = new_name(&fs, &caller, 71, name);
        planned(&fs, &TestPolicy::Strict, &records, &mut Make { name, new: &FILE, target: None })
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
    let (mut plan, ()) = planned(&fs, &TestPolicy::Strict, &records, &mut unlink).expect("a plan");
    assert_eq!(changed_keys(&mut plan).0, [KEPT.to_vec()]);
    assert_eq!(plan.batch().need(), Need::Adds);
    assert!(plan.effects().is_empty(), "the inode is not lost");
    let ends = (End::of(&fs.hash, 70, b"old"), End::of(&fs.hash, 71, b"allowed"));
    let mut moving = Moving::new(&caller, ends, RenameMode::Replace);
    let refused = planned(&fs, &TestPolicy::Strict, &records, &mut moving);
    assert!(matches!(refused, Err(FsError::CrossSubvolume(_))));
}
