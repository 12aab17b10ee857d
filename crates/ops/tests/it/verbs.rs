//! Plans of verbs on subvolumes, looked at without executing them, over records that are in no
//! store: they differ from what the volume has.

use format::batch::Op;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::key::{self, Counter, Part};
use format::subvolume_record::SubvolumeRecord;
use inode::{Caller, FsError, NodeId, SubvolId};
use store::{Need, Read};
use vfs::{FsResult, RenameMode};
use volume::arrivals::Arrival;
use volume::locks::{Lock, Mode};
use volume::numbers::ROOT_INO;
use volume::subvol::{VOLUME, node_of, read_record};

use ops::Ops;
use ops::plan::{Effect, Plan};
use ops::subvolumes::owned::OwnedTree;
use ops::subvolumes::{
    Attempt, CloneDirectory, Copied, CreateSubvolume, Ledger, Mount, RemoveSubvolume, RemoveTree,
    RenameAcross, RollBack, Side, TakeSnapshot, Verb, VerbContext,
};

use crate::plans::{Records, changed_keys, cookie, entry_key, records};
use crate::support::{BEFORE, MADE, TestPolicy, directory_record, volume};

/// The plan of a verb over records, and its answer.
fn planned<V: Verb>(
    fs: &Ops,
    reads: &dyn Read,
    ledger: &mut Ledger,
    verb: &V,
) -> FsResult<(Plan, V::Answer)> {
    let at = VerbContext { reads, ..VerbContext::new(fs, &TestPolicy::Permissive) };
    let mut plan = Plan::new();
    verb.aim(&at, &mut plan)?;
    plan.set_time(fs.env.clock.now());
    let answer = verb.plan(&at, ledger, &mut plan)?;
    Ok((plan, answer))
}

/// A directory of the records, none of which the volume has.
fn place(fs: &Ops, dir: u64) -> NodeId {
    fs.root_subvol().expect("it is there").node(dir)
}

/// Records in which the subvolume that was made is "made" in directory 70, and has so many entries.
fn mounted(fs: &Ops, entries: i64) -> Records {
    let (mut records, (id, root)) = (records(fs), MADE);
    let mut value = Vec::new();
    let target = Target::Subvolume(id);
    EntryRecord { chained: false, ino: root, name: b"made", target }.encode(&mut value);
    records.0.insert(entry_key(fs, 70, b"made"), value);
    let own = key::directory(root, Part::Attributes).to_vec();
    records.0.insert(own, DirectoryRecord { entries, parent: root, ..directory_record() }.encode());
    let of = |id| read_record(&*fs.store, SubvolId(id)).expect("it is read").expect("it is there");
    let parent = (1, 70, cookie(fs, b"made"));
    let record = SubvolumeRecord { parent, ..of(id) };
    records.0.insert(key::subvolume(id).to_vec(), record.encode());
    records.0.insert(key::subvolume(1).to_vec(), of(1).encode());
    records
}

#[test]
fn plan_of_a_subvolume_makes_a_tree_with_its_root() {
    let (_env, fs) = volume();
    let (caller, records) = (Caller::root(), records(&fs));
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
}

#[test]
fn plan_of_a_removed_subvolume_takes_its_name_and_has_it_wait() {
    let (_env, fs) = volume();
    let (caller, made) = (Caller::root(), MADE);
    let mut ledger = fs.admin.lock();
    let name = (NodeId::ROOT, &b"made"[..]);
    let verb = RemoveSubvolume::new(&fs, &mut ledger, &caller, name).expect("it is there");
    // The volume has the name in its root directory, and so must the records.
    let top = fs.place(NodeId::ROOT).expect("it is there").1;
    let with = |entries| {
        let mut records = mounted(&fs, entries);
        let moved = records.0.remove(&entry_key(&fs, 70, b"made")).expect("it is there");
        records.0.insert(entry_key(&fs, top, b"made"), moved);
        records
            .0
            .insert(key::directory(top, Part::Attributes).to_vec(), directory_record().encode());
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
}

#[test]
fn plan_of_a_renamed_subvolume_has_both_names_and_the_new_place() {
    let (_env, fs) = volume();
    let (caller, made) = (Caller::root(), MADE);
    let mut ledger = fs.admin.lock();
    let subvol = fs.root_subvol().expect("it is there").id.0;
    let top = fs.place(NodeId::ROOT).expect("it is there").1;
    let mut records = mounted(&fs, 0);
    let moved = records.0.remove(&entry_key(&fs, 70, b"made")).expect("it is there");
    records.0.insert(entry_key(&fs, top, b"made"), moved);
    records.0.insert(key::directory(top, Part::Attributes).to_vec(), directory_record().encode());
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
}

/// The record of a subvolume as a plan puts it.
fn put_subvolume(plan: &mut Plan, id: u64) -> SubvolumeRecord {
    let own = key::subvolume(id);
    let value = plan.batch().ops().find_map(|op| match op.expect("it was encoded just now") {
        Op::Put { tree, key, value } if tree == VOLUME.0 && key == own => Some(value.to_vec()),
        _ => None,
    });
    SubvolumeRecord::decode(&value.expect("the plan puts the record")).expect("a record")
}

/// The effects of a plan but those that walks over trees must know of, which are returned apart.
fn effects(plan: &Plan) -> (Vec<&Effect>, Vec<Arrival>) {
    let (mut others, mut arrivals) = (Vec::new(), Vec::new());
    for effect in plan.effects() {
        match effect {
            Effect::Arrives(arrival, _) => arrivals.push(*arrival),
            effect => others.push(effect),
        }
    }
    (others, arrivals)
}

/// The trees that a plan clones, each with its clone.
fn cloned_trees(plan: &mut Plan) -> Vec<(u64, u64)> {
    let ops = plan.batch().ops().map(|op| op.expect("it was encoded just now"));
    ops.filter_map(|op| match op {
        Op::CloneTree { source, target, .. } => Some((source, target)),
        _ => None,
    })
    .collect()
}

const NEW_TREE: u64 = key::FIRST_TREE + 10;
const NEW_SUBVOLUME: u64 = 10;

#[test]
fn plan_of_a_snapshot_clones_the_tree_and_names_the_copy() {
    let (_env, fs) = volume();
    let (subvol, mut ledger) = (fs.root_subvol().expect("it is there"), fs.admin.lock());
    let mut seen = 0;
    let mut also = |_: &mut Plan, _: &mut Copied| {
        seen += 1;
        Ok(())
    };
    let of = (&subvol, &*subvol, 71);
    let taken = TakeSnapshot::new(&fs, of, b"before", &mut also).map(drop);
    assert!(matches!(taken, Err(FsError::Exists)), "{taken:?}");
    let verb = TakeSnapshot::new(&fs, of, b"now", &mut also).expect("a new name");
    let [quiet] = verb.through().quiet else { panic!("one subvolume is kept as it is") };
    assert_eq!((quiet.id, verb.through().changed.is_none()), (subvol.id, true));
    let (mut plan, info) = planned(&fs, &*fs.store, &mut ledger, &verb).expect("a plan");
    assert_eq!((info.name.as_slice(), info.subvol.0), (&b"now"[..], NEW_SUBVOLUME));
    assert!(plan.locks().is_empty(), "the gate is enough");
    assert_eq!(cloned_trees(&mut plan), [(subvol.tree().0, NEW_TREE)]);
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(
        put,
        [
            key::counter(Counter::Epoch).to_vec(),
            key::subvolume(NEW_SUBVOLUME).to_vec(),
            key::subvolume(1).to_vec(),
            key::snapshot_name(1, 71, b"now"),
        ]
    );
    assert!(deleted.is_empty());
    let record = put_subvolume(&mut plan, NEW_SUBVOLUME);
    assert_eq!((record.tree, record.root, record.source), (NEW_TREE, 71, (1, 71)));
    assert_eq!((record.read_only, record.snapshot, record.parent), (true, true, (0, 0, 0)));
    assert_eq!(put_subvolume(&mut plan, 1).last_clone_epoch, 5, "what it has is shared now");
    let [Effect::Copied(copied), Effect::SnapshotChanged(directory, name)] = plan.effects() else {
        panic!("two effects")
    };
    assert_eq!((copied.id, *directory, &**name), (NEW_SUBVOLUME, place(&fs, 71), &b"now"[..]));
    assert_eq!((fs.admin.epoch(), subvol.last_clone_epoch()), (5, 0), "nothing is applied");
    assert_eq!(seen, 1, "the caller added to the plan");
}

#[test]
fn plan_of_a_clone_clones_the_tree_and_mounts_the_copy() {
    let (_env, fs) = volume();
    let (policy, caller) = (TestPolicy::Permissive, Caller::root());
    let (subvol, mut ledger) = (fs.root_subvol().expect("it is there"), fs.admin.lock());
    let mut planned = |name| {
        let mount = Mount::new(&fs, &policy, place(&fs, 70), name).expect("it may be made");
        let verb = CloneDirectory::new(&caller, (&subvol, 71), &mount);
        assert_eq!(verb.through().changed.map(|changed| changed.id), Some(subvol.id));
        planned(&fs, &records(&fs), &mut ledger, &verb)
    };
    let refused = planned(b"old").map(drop);
    assert!(matches!(refused, Err(FsError::Exists)), "{refused:?}");
    let (mut plan, (id, lineage)) = planned(b"copy").expect("a plan");
    let locked = Lock::Name { subvol: 1, dir: 70, hash: fs.hash.hash(b"copy") };
    assert_eq!(
        plan.locks(),
        [(locked, Mode::Exclusive), (Lock::Object { subvol: 1, ino: 70 }, Mode::Shared)]
    );
    assert_eq!(cloned_trees(&mut plan), [(subvol.tree().0, NEW_TREE)]);
    let entry = entry_key(&fs, 70, b"copy");
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(
        put,
        [
            key::counter(Counter::Epoch).to_vec(),
            key::subvolume(id).to_vec(),
            key::subvolume(1).to_vec(),
            entry,
        ]
    );
    assert!(deleted.is_empty());
    let record = put_subvolume(&mut plan, id);
    assert_eq!((record.root, record.source, record.lineage), (71, (1, 71), lineage));
    assert_eq!(record.parent, (1, 70, cookie(&fs, b"copy")));
    assert_eq!((lineage, record.read_only, record.snapshot), (id, false, false));
    let (effects, arrivals) = effects(&plan);
    let [Effect::NameChanged(directory, name), Effect::Copied(copied)] = effects[..] else {
        panic!("two effects")
    };
    assert_eq!((*directory, &**name, copied.id), (place(&fs, 70), &b"copy"[..], id));
    assert_eq!(arrivals, [Arrival::Mounted(subvol.tree(), id)]);
}

#[test]
fn plan_of_a_rollback_points_the_name_to_a_copy_of_the_snapshot() {
    let (_env, fs) = volume();
    let caller = Caller::root();
    let (subvol, mut ledger) = (fs.root_subvol().expect("it is there"), fs.admin.lock());
    let mut owned = OwnedTree::check(&fs, &caller, subvol.id, 71).expect("root may");
    let verb = RollBack::new(&fs, place(&fs, 71), BEFORE, &mut owned).expect("it is there");
    let (mut plan, is_planned) = planned(&fs, &*fs.store, &mut ledger, &verb).expect("a plan");
    assert!(is_planned, "nothing changed since it was checked");
    let locked = Lock::Name { subvol: 1, dir: ROOT_INO, hash: fs.hash.hash(b"dir") };
    assert_eq!(
        plan.locks(),
        [(locked, Mode::Exclusive), (Lock::Object { subvol: 1, ino: ROOT_INO }, Mode::Shared)]
    );
    assert_eq!(cloned_trees(&mut plan), [(key::FIRST_TREE + 2, NEW_TREE)], "of the snapshot");
    let (put, deleted) = changed_keys(&mut plan);
    assert_eq!(
        put,
        [
            key::counter(Counter::Epoch).to_vec(),
            key::subvolume(NEW_SUBVOLUME).to_vec(),
            key::usage(NEW_SUBVOLUME).to_vec(),
            entry_key(&fs, ROOT_INO, b"dir"),
            key::directory(71, Part::Attributes).to_vec(),
            key::detached(1).to_vec(),
        ]
    );
    assert!(deleted.is_empty(), "what was there waits to be reclaimed");
    let record = put_subvolume(&mut plan, NEW_SUBVOLUME);
    assert_eq!((record.source, record.lineage), ((BEFORE, 71), 1), "it keeps its snapshots");
    assert_eq!(record.parent, (1, ROOT_INO, cookie(&fs, b"dir")));
    assert_eq!(plan.batch().need(), Need::Relieves);
    let (effects, arrivals) = effects(&plan);
    let [
        Effect::Copied(copied),
        Effect::Detached,
        Effect::DirectoriesMoved,
        Effect::DirectoryRehung,
        Effect::ReplacedMuch,
        Effect::NameChanged(directory, name),
    ] = effects[..]
    else {
        panic!("six effects")
    };
    let tree = subvol.tree();
    assert_eq!(arrivals, [Arrival::Mounted(tree, NEW_SUBVOLUME), Arrival::Written(tree, 71)]);
    assert_eq!((copied.id, *directory), (NEW_SUBVOLUME, place(&fs, ROOT_INO)));
    assert_eq!(&**name, b"dir");
    assert_eq!(fs.queue.detached(), 0, "nothing is applied");
}

#[test]
fn plan_of_a_removed_tree_takes_its_name_and_has_it_wait() {
    let (_env, fs) = volume();
    let (caller, name) = (Caller::root(), (NodeId::ROOT, &b"dir"[..]));
    let (seen, mut owned) = fs.rmr_victim(&caller, name.0, name.1).expect("root may");
    let verb = RemoveTree::new(&fs, &caller, name, (&seen, &mut owned)).expect("it is there");
    let mut ledger = fs.admin.lock();
    let (mut plan, attempt) = planned(&fs, &*fs.store, &mut ledger, &verb).expect("a plan");
    let Attempt::Done(info) = attempt else { panic!("{attempt:?}") };
    assert_eq!((info.detached, info.entries), (1, 1));
    let (subvol, hash) = (1, fs.hash.hash(b"dir"));
    assert_eq!(
        plan.locks(),
        [
            (Lock::Object { subvol, ino: ROOT_INO }, Mode::Shared),
            (Lock::Name { subvol, dir: ROOT_INO, hash }, Mode::Exclusive),
            (Lock::Object { subvol, ino: 71 }, Mode::Exclusive),
            (Lock::Place { subvol, ino: 71 }, Mode::Exclusive),
        ]
    );
    let (put, deleted) = changed_keys(&mut plan);
    let record = key::directory(71, Part::Attributes).to_vec();
    assert_eq!(put, [record, key::detached(1).to_vec()]);
    assert_eq!(deleted, [entry_key(&fs, ROOT_INO, b"dir")]);
    assert_eq!(plan.batch().need(), Need::Relieves);
    let (effects, arrivals) = effects(&plan);
    let [
        Effect::Detached,
        Effect::DirectoriesMoved,
        Effect::DirectoryRehung,
        Effect::NameChanged(directory, changed),
    ] = effects[..]
    else {
        panic!("four effects")
    };
    let tree = fs.root_subvol().expect("it is there").tree();
    assert_eq!(arrivals, [Arrival::Written(tree, 71)]);
    assert_eq!((*directory, &**changed), (place(&fs, ROOT_INO), name.1));
    // The name points to another directory by now.
    let mut value = Vec::new();
    let target = Target::Directory;
    EntryRecord { chained: false, ino: 72, name: b"dir", target }.encode(&mut value);
    let mut moved = records(&fs);
    let root = key::directory(ROOT_INO, Part::Attributes).to_vec();
    moved.0.insert(root, directory_record().encode());
    moved.0.insert(entry_key(&fs, ROOT_INO, b"dir"), value);
    let (plan, attempt) = planned(&fs, &moved, &mut ledger, &verb).expect("a plan");
    assert!(matches!(attempt, Attempt::Another) && plan.is_empty(), "{attempt:?}");
}

#[test]
fn plan_of_a_removed_tree_that_is_a_subvolume_detaches_all_of_it() {
    let (_env, fs) = volume();
    let (caller, name) = (Caller::root(), (NodeId::ROOT, &b"made"[..]));
    let (seen, mut owned) = fs.rmr_victim(&caller, name.0, name.1).expect("root may");
    let verb = RemoveTree::new(&fs, &caller, name, (&seen, &mut owned)).expect("it is there");
    let mut ledger = fs.admin.lock();
    let (mut plan, attempt) = planned(&fs, &*fs.store, &mut ledger, &verb).expect("a plan");
    assert!(matches!(attempt, Attempt::Done(_)), "{attempt:?}");
    assert!(put_subvolume(&mut plan, MADE.0).detached);
    assert_eq!(changed_keys(&mut plan).1, [entry_key(&fs, ROOT_INO, b"made")]);
    assert!(
        matches!(plan.effects(), [Effect::Mounted(id, None), Effect::Detached, ..] if *id == MADE.0)
    );
}
