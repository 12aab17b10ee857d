//! The operations executed by another executor, which locks nothing while it plans and commits each
//! tree by itself.

use std::sync::Arc;

use device::sync::Mutex;
use format::batch::Op;
use inode::{Caller, Kind, NodeId};
use store::{Batch, Cursor, KeyRange, Read, TreeId};
use testing::{MemStore, SimEnv};
use vfs::{FsResult, RenameMode};
use volume::subvol::VOLUME;
use volume::view::View;

use ops::execute::{Context, Operation, Outcome, apply, execute, notify};
use ops::plan::Plan;
use ops::posix::mkdir::MakeDirectory;
use ops::posix::mknod::Make;
use ops::posix::moving::{End, Moving};
use ops::posix::rmdir::RemoveDirectory;
use ops::posix::unlink::Unlink;

use crate::support::{FILE, Permissive, all, new_name, old_name, volume};
use ops::Ops;
use ops::posix::{forget, lookup, mkdir, readdir};
use vfs::{DirEntry, WalkControl};

/// A key that was read, and its value.
type Noted = (TreeId, Vec<u8>, Option<Vec<u8>>);

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
        self.read.lock().push((tree, key.to_vec(), value.clone()));
        if let Some(value) = &value {
            found(value);
        }
        Ok(value.is_some())
    }

    fn scan(&self, tree: TreeId, range: KeyRange) -> store::Result<Box<dyn Cursor + '_>> {
        self.below.scan(tree, range)
    }
}

/// Another executor. It plans without locks; then it locks, checks that all that was read is still
/// there, and commits the volume's tree and the subvolume's as two batches, as two stores would.
fn execute_elsewhere<O: Operation>(fs: &Ops, operation: &mut O) -> FsResult<O::Answer> {
    let subvol = fs.root_subvol()?;
    let entered = fs.enter(&subvol)?;
    loop {
        let noting = Noting { below: &*fs.store, read: Mutex::new(Vec::new()) };
        let view = View::new(&noting, entered.tree);
        let at = Context { fs, policy: &Permissive, subvol: &subvol, view };
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
        let holds =
            noting.read.lock().iter().all(|(tree, key, value)| {
                fs.store.get(*tree, key).expect("it is in memory") == *value
            });
        let answer = match (holds, answer) {
            (true, Ok(Outcome::Done(answer))) => answer,
            (true, Err(error)) => return Err(error),
            _ => continue,
        };
        for batch in by_tree(&mut plan) {
            fs.store.commit(&batch).expect("there is space");
        }
        plan.apply(|effect| apply(fs, effect));
        drop(locks);
        plan.notify(|notice| notify(fs, notice));
        return Ok(answer);
    }
}

fn by_tree(plan: &mut Plan) -> [Batch; 2] {
    let mut batches = [Batch::new(), Batch::new()];
    let at = |tree| usize::from(TreeId(tree) != VOLUME);
    for op in plan.batch().ops() {
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
fn step(fs: &Ops, rng: &mut fastrand::Rng, elsewhere: bool) -> FsResult<()> {
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
                execute(fs, &Permissive, &subvol, &mut $operation).map(drop)
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

fn ino_of(fs: &Ops, parent: NodeId, name: &[u8]) -> u64 {
    let found = lookup::lookup(fs, &Caller::root(), parent, name).expect("it is there");
    forget::forget(fs, found.node, 1);
    found.node.ino().0
}

fn volume_with_directories() -> (SimEnv, Arc<MemStore>, Ops) {
    let (env, store, fs) = volume();
    for name in [b"a", b"b"] {
        let made = mkdir::mkdir(&fs, &Permissive, &Caller::root(), NodeId::ROOT, name, 0o755);
        made.expect("there is space");
    }
    (env, store, fs)
}

#[test]
fn another_executor_makes_the_same_changes_of_the_same_operations() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let (one, other) = (volume_with_directories(), volume_with_directories());
    let mut rngs = [fastrand::Rng::with_seed(seed), fastrand::Rng::with_seed(seed)];
    let mut done = 0;
    for _ in 0..600 {
        let first = step(&one.2, &mut rngs[0], false);
        let second = step(&other.2, &mut rngs[1], true);
        assert_eq!(format!("{first:?}"), format!("{second:?}"));
        done += u32::from(first.is_ok());
    }
    assert!(done > 100, "{done} operations succeeded");
    assert_eq!(all(&one.1), all(&other.1));
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
    for name in [b"a", b"b"] {
        check_directory(&fs, name);
    }
}

/// What a directory says of itself is what is in it, and each name in it points to its inode.
fn check_directory(fs: &Ops, name: &[u8]) {
    let root = Caller::root();
    let found = lookup::lookup(fs, &root, NodeId::ROOT, name).expect("it is there");
    let (mut names, mut directories) = (Vec::new(), 0);
    let mut take = |entry: &DirEntry<'_>| {
        names.push((entry.name.to_vec(), entry.node));
        directories += i64::from(entry.kind == Kind::Directory);
        WalkControl::Continue
    };
    readdir::readdir(fs, &Permissive, &root, found.node, 0, &mut take).expect("it is listed");
    let (subvol, dir) = fs.place(found.node).expect("it is there");
    let record = View::new(&*fs.store, subvol.tree()).directory(dir).expect("it is read");
    let record = record.expect("it is there");
    assert_eq!((record.entries, record.subdirectories), (names.len() as i64, directories));
    for (name, node) in names {
        let entry = lookup::lookup(fs, &root, found.node, &name).expect("it was listed");
        assert_eq!(entry.node, node);
        forget::forget(fs, node, 1);
    }
    forget::forget(fs, found.node, 1);
}
