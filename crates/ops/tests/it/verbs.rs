//! Plans of verbs on subvolumes, looked at without executing them, over records that are in no
//! store: they differ from what the volume has.

use format::batch::Op;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Part};
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::Need;
use vfs::{FsResult, RenameMode};
use volume::locks::{Lock, Mode};
use volume::subvol::{VOLUME, node_of, read_record};

use ops::Ops;
use ops::plan::{Effect, Plan};
use ops::subvolumes::{
    CreateSubvolume, Ledger, RemoveSubvolume, RenameAcross, Side, Verb, VerbContext,
};

use crate::plans::{Records, changed_keys, cookie, directory, entry_key, records};
use crate::support::{TestPolicy, all, volume};

/// The plan of a verb over records, and its answer.
fn planned<V: Verb>(
    fs: &Ops,
    reads: &Records,
    ledger: &mut Ledger,
    verb: &V,
) -> FsResult<(Plan, V::Answer)> {
    let at = VerbContext { reads, ..VerbContext::new(fs, &TestPolicy::Permissive) };
    let mut plan = Plan::new();
    verb.aim(&mut plan);
    plan.set_time(fs.env.clock.now());
    let answer = verb.plan(&at, ledger, &mut plan)?;
    Ok((plan, answer))
}

/// A directory of the records, none of which the volume has.
fn place(fs: &Ops, dir: u64) -> NodeId {
    fs.root_subvol().expect("it is there").node(dir)
}

/// A subvolume of the volume's, in its root directory: its number, and that of its own root.
fn made(fs: &Ops) -> (u64, u64) {
    let policy = TestPolicy::Permissive;
    let made = fs.subvolume_create(&policy, &Caller::root(), NodeId::ROOT, b"made", 0o777);
    let node = made.expect("there is space").node;
    (fs.subvolume_of(node).expect("it is there").0, node.ino().0)
}

/// Records in which that subvolume is "made" in directory 70, and has so many entries.
fn mounted(fs: &Ops, (id, root): (u64, u64), entries: i64) -> Records {
    let mut records = records(fs);
    let mut value = Vec::new();
    let target = Target::Subvolume(id);
    EntryRecord { chained: false, ino: root, name: b"made", target }.encode(&mut value);
    records.0.insert(entry_key(fs, 70, b"made"), value);
    let own = key::directory(root, Part::Attributes).to_vec();
    records.0.insert(own, DirectoryRecord { entries, parent: root, ..directory() }.encode());
    let stored = read_record(&*fs.store, SubvolId(id)).expect("it is read").expect("it is there");
    let parent = (fs.root_subvol().expect("it is there").id.0, 70, cookie(fs, b"made"));
    let record = SubvolumeRecord { parent, ..stored };
    records.0.insert(key::subvolume(id).to_vec(), record.encode());
    let above = SubvolId(parent.0);
    let stored = read_record(&*fs.store, above).expect("it is read").expect("it is there");
    records.0.insert(key::subvolume(above.0).to_vec(), stored.encode());
    records
}

#[test]
fn plan_of_a_subvolume_makes_a_tree_with_its_root() {
    let (_env, store, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
    // A range of numbers is reserved by a commit of its own, once.
    fs.numbers.next_ino(&*fs.store).expect("there are numbers");
    let before = all(&store);
    let (policy, name) = (TestPolicy::Permissive, (place(&fs, 71), &b"new"[..]));
    let verb = CreateSubvolume::new(&fs, &policy, &caller, name, 0o750).expect("a new name");
    let mut ledger = fs.admin.lock();
    let (mut plan, entry) = planned(&fs, &records, &mut ledger, &verb).expect("a plan");
    let (subvol, root) = (fs.root_subvol().expect("it is there").id.0, entry.node.ino().0);
    let named = Lock::Name { subvol, dir: 71, hash: fs.hash.hash(b"new") };
    assert_eq!(
        plan.locks(),
        [(named, Mode::Exclusive), (Lock::Object { subvol, ino: 71 }, Mode::Shared)]
    );
    let put = changed_keys(&mut plan).0;
    let is_record = |put: &&Vec<u8>| put.first() == key::subvolume(0).first();
    let record = put.iter().find(is_record).expect("the plan puts the record of the subvolume");
    let id = key::parse_number(record).expect("it has a number");
    assert_eq!(
        put,
        [
            key::directory(root, Part::Attributes).to_vec(),
            key::subvolume(id).to_vec(),
            key::usage(id).to_vec(),
            entry_key(&fs, 71, b"new"),
        ]
    );
    let trees = plan.batch().ops().filter(|op| matches!(op, Ok(Op::CreateTree { .. }))).count();
    assert_eq!((trees, entry.attr.mode & 0o7777), (1, 0o750));
    let mounted = (subvol, 71, cookie(&fs, b"new"));
    let effects = plan.effects();
    assert!(effects.iter().any(|effect| matches!(
        effect, Effect::Mounted(mounted_id, Some(place)) if (*mounted_id, *place) == (id, mounted)
    )));
    assert!(matches!(effects.last(), Some(Effect::LookUp(node, _)) if *node == node_of(id, root)));
    drop(ledger);
    assert_eq!(all(&store), before, "nothing was committed");
}

#[test]
fn plan_of_a_removed_subvolume_takes_its_name_and_has_it_wait() {
    let (_env, store, fs) = volume();
    let (caller, made) = (Caller::root(), made(&fs));
    let before = all(&store);
    let mut ledger = fs.admin.lock();
    let name = (NodeId::ROOT, &b"made"[..]);
    let verb = RemoveSubvolume::new(&fs, &mut ledger, &caller, name).expect("it is there");
    // The volume has the name in its root directory, and so must the records.
    let top = fs.place(NodeId::ROOT).expect("it is there").1;
    let with = |entries| {
        let mut records = mounted(&fs, made, entries);
        let moved = records.0.remove(&entry_key(&fs, 70, b"made")).expect("it is there");
        records.0.insert(entry_key(&fs, top, b"made"), moved);
        records.0.insert(key::directory(top, Part::Attributes).to_vec(), directory().encode());
        records
    };
    let refused = planned(&fs, &with(1), &mut ledger, &verb).map(drop);
    assert!(matches!(refused, Err(FsError::NotEmpty)), "{refused:?}");
    let (mut plan, ()) = planned(&fs, &with(0), &mut ledger, &verb).expect("a plan");
    let subvol = fs.root_subvol().expect("it is there").id.0;
    let hash = fs.hash.hash(b"made");
    assert_eq!(
        plan.locks(),
        [
            (Lock::Object { subvol, ino: top }, Mode::Shared),
            (Lock::Name { subvol, dir: top, hash }, Mode::Exclusive),
        ]
    );
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(deleted, [entry_key(&fs, top, b"made")]);
    assert_eq!(put[0], key::subvolume(made.0));
    assert!(put[1].starts_with(&key::DETACHED_PREFIX), "it waits to be reclaimed");
    let detached = plan.batch().ops().find_map(|op| match op.expect("it was encoded just now") {
        Op::Put { tree, key, value } if tree == VOLUME.0 && key == key::subvolume(made.0) => {
            Some(SubvolumeRecord::decode(value).expect("a record"))
        }
        _ => None,
    });
    let record = detached.expect("the record is put");
    assert_eq!((record.detached, record.parent), (true, (0, 0, 0)));
    assert_eq!(plan.batch().need(), Need::Relieves);
    let [Effect::Mounted(id, None), Effect::Detached] = plan.effects() else {
        panic!("two effects")
    };
    assert_eq!(*id, made.0);
    drop(ledger);
    assert_eq!(all(&store), before, "nothing was committed");
}

#[test]
fn plan_of_a_renamed_subvolume_has_both_names_and_the_new_place() {
    let (_env, store, fs) = volume();
    let (caller, made) = (Caller::root(), made(&fs));
    let before = all(&store);
    let mut ledger = fs.admin.lock();
    let subvol = fs.root_subvol().expect("it is there").id.0;
    let top = fs.place(NodeId::ROOT).expect("it is there").1;
    let mut records = mounted(&fs, made, 0);
    let moved = records.0.remove(&entry_key(&fs, 70, b"made")).expect("it is there");
    records.0.insert(entry_key(&fs, top, b"made"), moved);
    records.0.insert(key::directory(top, Part::Attributes).to_vec(), directory().encode());
    let mut rename = |to: u64, name: &'static [u8], mode| {
        let source = Side::old(&fs, (NodeId::ROOT, b"made")).expect("it is there");
        let target = Side::new(&fs, &TestPolicy::Permissive, (place(&fs, to), name));
        let ends = (source, target.expect("a name"));
        let verb = RenameAcross::new(&fs, &mut ledger, &caller, ends, mode).expect("a subvolume");
        planned(&fs, &records, &mut ledger, &verb)
    };
    let replaced = rename(70, b"old", RenameMode::Replace).map(drop);
    assert!(matches!(replaced, Err(FsError::CrossSubvolume(_))), "{replaced:?}");
    let kept = rename(70, b"old", RenameMode::NoReplace).map(drop);
    assert!(matches!(kept, Err(FsError::Exists)), "{kept:?}");
    let (mut plan, ()) = rename(71, b"new", RenameMode::Replace).expect("a plan");
    let name = |dir, name: &[u8]| Lock::Name { subvol, dir, hash: fs.hash.hash(name) };
    assert_eq!(
        plan.locks(),
        [(name(top, b"made"), Mode::Exclusive), (name(71, b"new"), Mode::Exclusive)]
    );
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(deleted, [entry_key(&fs, top, b"made")]);
    assert_eq!(
        put,
        [
            entry_key(&fs, 71, b"new"),
            key::subvolume(made.0).to_vec(),
            key::directory(made.1, Part::Attributes).to_vec(),
        ]
    );
    let place = (subvol, 71, cookie(&fs, b"new"));
    let is_mounted = |effect: &Effect| {
        matches!(
            effect, Effect::Mounted(id, Some(found)) if (*id, *found) == (made.0, place)
        )
    };
    assert!(plan.effects().iter().any(is_mounted), "it is mounted there once that is committed");
    drop(ledger);
    assert_eq!(all(&store), before, "nothing was committed");
}
