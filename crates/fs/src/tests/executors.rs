//! Operations executed by another executor, which locks nothing while it plans and commits each
//! tree by itself. It ends in the same state as the product's, alone and beside it.

use std::ops::ControlFlow;
use std::sync::Arc;

use crate::Fs;
use device::sync::Mutex;
use format::batch::Op;
use inode::{Caller, FsError, Kind, NodeId};
use opening::create::FormatOptions;
use store::{Batch, Cursor, KeyRange, Read, TreeId};
use testing::{MemStore, SimEnv, sim_env};
use vfs::{FileSystem, FsResult, NewNode, RenameMode};
use volume::subvol::VOLUME;
use volume::view::View;
use volume::{OpenOptions, QuotaLimits};

use ops::execute::{Context, Operation, Outcome, apply, execute, notify};
use ops::plan::Plan;
use ops::posix::mkdir::MakeDirectory;
use ops::posix::mknod::{Make, NewName};
use ops::posix::moving::{End, Moving};
use ops::posix::rmdir::RemoveDirectory;
use ops::posix::unlink::{OldName, Unlink};

const FILE: NewNode = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };

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

fn new_name<'a>(fs: &Fs, caller: &'a Caller, dir: u64, name: &'a [u8]) -> NewName<'a> {
    NewName { caller, dir, hash: fs.hash.hash(name), name }
}

fn old_name<'a>(fs: &Fs, caller: &'a Caller, dir: u64, name: &'a [u8]) -> OldName<'a> {
    OldName { caller, dir, hash: fs.hash.hash(name), name }
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

/// Another executor. It plans without locks. Then it locks, and checks that all that was read is
/// still there. It commits the volume's tree and the subvolume's as two batches, as two stores
/// would. What the node table has for a place is in the records that are read there, too.
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
    let seed = testing::run::seed();
    let (one, other) = (volume_with_directories(), volume_with_directories());
    let mut rngs = [fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed)];
    // The user owns none of the directories.
    let watches = [&one, &other].map(|(.., fs)| {
        let (subvol, _) = fs.place(NodeId::ROOT).expect("the root");
        let watch = fs.arrivals.watch(1000);
        fs.arrivals.walks(watch, subvol.tree());
        watch
    });
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
    let seed = testing::run::seed();
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
