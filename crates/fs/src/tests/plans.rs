//! Plans looked at without executing them, over records that are not in a store; policies of the
//! test's own; and the same operations executed by another executor, which locks nothing while it
//! plans and commits each tree by itself.

use std::any::Any;
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::Fs;
use device::sync::Mutex;
use format::batch::Op;
use format::directory_record::DirectoryRecord;
use format::entry_record::{EntryRecord, Target};
use format::inode_record::{FileKind, InodeRecord};
use format::key::{self, Part};
use format::quota::Charge;
use inode::{Caller, FsError, Kind, NodeId};
use store::{Batch, Cursor, KeyRange, Need, Read, TreeId};
use testing::{MemStore, SimEnv, sim_env};
use vfs::{FileSystem, FsResult, NewNode, RenameMode};
use volume::locks::{Lock, Mode};
use volume::nodes::Location;
use volume::subvol::{Subvol, VOLUME};
use volume::view::View;
use volume::{FormatOptions, OpenOptions, QuotaInfo, QuotaLimits};

use ops::execute::{Context, Operation, Outcome, apply, execute, notify};
use ops::object::Object;
use ops::plan::{Effect, Plan};
use ops::policy::{Move, Policy, Removal, Share, Whose};
use ops::posix::mkdir::MakeDirectory;
use ops::posix::mknod::{Make, NewName};
use ops::posix::moving::{End, Moving};
use ops::posix::rmdir::RemoveDirectory;
use ops::posix::unlink::{OldName, Unlink};
use ops::subvolumes::Ledger;
use volume::attributes::fresh_inode;

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

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

fn volume() -> (SimEnv, Arc<MemStore>, Arc<Fs>) {
    let (env, store) = (sim_env(1), Arc::new(MemStore::new()));
    let format = FormatOptions { root_mode: 0o777, ..FormatOptions::default() };
    let header = Fs::format_on(&env.env(), &*store, &format).expect("an empty store");
    let as_store = Arc::<MemStore>::clone(&store);
    let fs = Fs::open_on(env.env(), as_store, header, &OpenOptions::default());
    (env, store, fs.expect("it was made just now"))
}

/// Keys and values.
type Contents = Vec<(Vec<u8>, Vec<u8>)>;

/// All keys and values of all trees.
fn all(store: &MemStore) -> Vec<(TreeId, Contents)> {
    let trees = store.trees().into_iter();
    trees.map(|tree| (tree, store.dump(tree).expect("it is in memory"))).collect()
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
fn records(fs: &Fs) -> Records {
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
    fs: &Fs,
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

fn new_name<'a>(fs: &Fs, caller: &'a Caller, dir: u64, name: &'a [u8]) -> NewName<'a> {
    NewName { caller, dir, hash: fs.hash.hash(name), name }
}

fn old_name<'a>(fs: &Fs, caller: &'a Caller, dir: u64, name: &'a [u8]) -> OldName<'a> {
    OldName { caller, dir, hash: fs.hash.hash(name), name }
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
    let (mut plan, entry) = planned(&fs, &fs.policies(), &records, &mut make).expect("a plan");
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
    let (mut plan, ()) = planned(&fs, &fs.policies(), &records, &mut unlink).expect("a plan");
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
    let (mut plan, _) = planned(&fs, &fs.policies(), &records, &mut moving).expect("a plan");
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

/// What was read: a key and its value, or a range and all that was in it.
#[derive(Debug, Clone, PartialEq)]
enum Noted {
    Key(TreeId, Vec<u8>, Option<Vec<u8>>),
    Range(TreeId, KeyRange, Contents),
}

impl Noted {
    /// Whether it is still there.
    fn holds(&self, store: &dyn Read) -> bool {
        match self {
            Noted::Key(tree, key, value) => {
                store.get(*tree, key).expect("it is in memory") == *value
            }
            Noted::Range(tree, range, found) => contents(store, *tree, range) == *found,
        }
    }
}

fn contents(store: &dyn Read, tree: TreeId, range: &KeyRange) -> Contents {
    let mut cursor = store.scan(tree, range.clone()).expect("it is in memory");
    let mut found = Vec::new();
    while let Some(item) = cursor.next().expect("it is in memory") {
        found.push((item.key.to_vec(), item.value.to_vec()));
    }
    found
}

/// Notes what is read.
struct Noting<'a> {
    below: &'a dyn Read,
    read: Mutex<Vec<Noted>>,
}

impl Read for Noting<'_> {
    fn get_with(
        &self,
        tree: TreeId,
        key: &[u8],
        found: &mut dyn FnMut(&[u8]),
    ) -> store::Result<bool> {
        let value = self.below.get(tree, key)?;
        self.read.lock().push(Noted::Key(tree, key.to_vec(), value.clone()));
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> store::Result<Box<dyn Cursor + '_>> {
        // All of it, whatever the operation takes of it.
        let found = contents(self.below, tree, &range);
        self.read.lock().push(Noted::Range(tree, range.clone(), found));
        self.below.scan(tree, range)
    }
}

/// Another executor. It plans without locks; then it locks, checks that all that was read is still
/// there, and commits the volume's tree and the subvolume's as two batches, as two stores would.
/// What the node table says of a place is in the records that are read there, too.
fn execute_elsewhere<O: Operation>(fs: &Fs, operation: &mut O) -> FsResult<O::Answer> {
    let subvol = fs.root_subvol()?;
    let (entered, policies) = (fs.enter(&subvol)?, fs.policies());
    loop {
        let noting = Noting { below: &*fs.store, read: Mutex::new(Vec::new()) };
        let view = View::new(&noting, entered.tree);
        let at = Context { fs, policy: &policies, subvol: &subvol, view };
        let mut plan = Plan::new();
        let guess = operation.guess(&at)?;
        operation.aim(&at, &guess, &mut plan)?;
        let answer = operation.look(&at).and_then(|found| {
            if !O::agree(&guess, &found) {
                return Ok(Outcome::Again);
            }
            plan.set_time(fs.env.clock.now());
            operation.plan(&at, found, &mut plan)
        });
        let locks = fs.locks.lock(plan.locks());
        let holds = noting.read.lock().iter().all(|noted| noted.holds(&*fs.store));
        let answer = match (holds, answer) {
            (true, Ok(Outcome::Done(answer))) => answer,
            (true, Err(error)) => return Err(error),
            _ => continue,
        };
        let committed = plan.commit_by(&fs.arrivals, |batch| {
            for batch in by_tree(batch) {
                fs.store.commit(&batch).expect("there is space");
            }
            Ok(())
        });
        committed.expect("there is space");
        plan.apply(|effect| apply(fs, effect));
        drop(locks);
        plan.notify(|notice| notify(fs, notice));
        return Ok(answer);
    }
}

fn by_tree(batch: &Batch) -> [Batch; 2] {
    let mut batches = [Batch::new(), Batch::new()];
    let at = |tree| usize::from(TreeId(tree) != VOLUME);
    for op in batch.ops() {
        match op.expect("it was encoded just now") {
            Op::Put { tree, key, value } => batches[at(tree)].put(TreeId(tree), key, value),
            Op::Delete { tree, key } => batches[at(tree)].delete(TreeId(tree), key),
            Op::Merge { tree, key, lanes } => {
                let lanes: Vec<_> = lanes.iter().collect();
                batches[at(tree)].merge(TreeId(tree), key, &lanes);
            }
            op => panic!("no operation of this test plans {op:?}"),
        }
    }
    batches
}

/// One of the operations, drawn by a seed, by one of the executors.
fn step(fs: &Fs, rng: &mut fastrand::Rng, elsewhere: bool) -> FsResult<()> {
    let caller = Caller::root();
    let subvol = fs.root_subvol()?;
    let dirs: Vec<u64> =
        [&b"a"[..], b"b"].iter().map(|name| ino_of(fs, NodeId::ROOT, name)).collect();
    let names: Vec<Vec<u8>> = (0..6).map(|at| format!("n{at}").into_bytes()).collect();
    let mut pick = || (dirs[rng.usize(..2)], &names[rng.usize(..6)][..]);
    let ((dir, name), (to, other)) = (pick(), pick());
    macro_rules! run {
        ($operation:expr) => {
            if elsewhere {
                execute_elsewhere(fs, &mut $operation).map(drop)
            } else {
                execute(fs, &fs.policies(), &subvol, &mut $operation).map(drop)
            }
        };
    }
    match rng.u8(..6) {
        0 | 1 => {
            run!(Make { name: new_name(fs, &caller, dir, name), new: &FILE, target: None })
        }
        2 => run!(MakeDirectory { name: new_name(fs, &caller, dir, name), mode: 0o755 }),
        3 => run!(Unlink { name: old_name(fs, &caller, dir, name) }),
        4 => run!(RemoveDirectory { name: old_name(fs, &caller, dir, name) }),
        _ => {
            let ends = (End::of(&fs.hash, dir, name), End::of(&fs.hash, to, other));
            run!(Moving::new(&caller, ends, RenameMode::Replace))
        }
    }
}

fn ino_of(fs: &Fs, parent: NodeId, name: &[u8]) -> u64 {
    let found = fs.lookup(&Caller::root(), parent, name).expect("it is there");
    fs.forget(found.node, 1);
    found.node.ino().0
}

/// Two directories, one with a quota, and inherited files with several names, of which the last
/// reachable one is searched for.
fn volume_with_directories() -> (SimEnv, Arc<MemStore>, Arc<Fs>) {
    let (env, store, fs) = volume();
    let root = Caller::root();
    for name in [b"a", b"b"] {
        let made = fs.mkdir(&root, NodeId::ROOT, name, 0o755).expect("there is space");
        for at in 0..3 {
            let file = fs.mknod(&root, made.node, format!("l{at}").as_bytes(), &FILE);
            let file = file.expect("there is space").node;
            let linked = fs.link(&root, file, made.node, format!("n{at}").as_bytes());
            linked.expect("there is space");
            fs.forget(file, 2);
        }
        fs.forget(made.node, 1);
    }
    fs.snapshot_create(&root, NodeId::ROOT, b"s").expect("there is space");
    fs.rollback(&root, NodeId::ROOT, b"s").expect("it is there");
    let limited = fs.lookup(&root, NodeId::ROOT, b"a").expect("it is there").node;
    let limits = QuotaLimits { inodes: Some(4), bytes: None };
    fs.quota_set(&root, limited, limits).expect("root may");
    fs.forget(limited, 1);
    (env, store, fs)
}

#[test]
fn another_executor_makes_the_same_changes_of_the_same_operations() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (one, other) = (volume_with_directories(), volume_with_directories());
    let mut rngs = [fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed)];
    // Of a user who owns none of the directories.
    let watches = [&one, &other].map(|(.., fs)| fs.arrivals.watch(1000));
    let (mut done, mut limited) = (0, 0);
    for _ in 0..600 {
        let first = step(&one.2, &mut rngs[0], false);
        let second = step(&other.2, &mut rngs[1], true);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        done += u32::from(first.is_ok());
        limited += u32::from(matches!(first, Err(FsError::QuotaExceeded)));
    }
    assert!(done > 100 && limited > 0, "{done} operations succeeded, {limited} were refused");
    assert_eq!(all(&one.1), all(&other.1));
    let root = Caller::root();
    let charged = |fs: &Fs| fs.quota_list(&root).expect("root may");
    assert_eq!(charged(&one.2), charged(&other.2));
    let arrived = one.2.arrivals.take(watches[0]).found;
    assert!(!arrived.is_empty(), "directories arrived");
    assert_eq!(arrived, other.2.arrivals.take(watches[1]).found);
}

#[test]
fn two_executors_on_one_volume_leave_it_consistent() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (_env, _store, fs) = volume_with_directories();
    device::scope(|scope| {
        for elsewhere in [false, true] {
            let fs = &fs;
            scope.spawn(move || {
                let mut rng = fastrand::Rng::with_seed(seed + u64::from(elsewhere));
                for _ in 0..400 {
                    step(fs, &mut rng, elsewhere).ok();
                }
            });
        }
    });
    let report = fs.check_volume(&mut |_, _| ControlFlow::Continue(())).expect("it is read");
    assert!(report.problems.is_empty(), "{report:?}");
}
