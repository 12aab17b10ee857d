//! Who owns all of a tree, while others change it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::{Clock, SystemClock};
use inode::{Caller, Ends, Enforce, FsError, Kind, NodeId, SetAttr};
use testing::sim_env;

use crate::Fs;
use format::directory_record::DirectoryRecord;
use opening::create::FormatOptions;
use ops::execute::commit;
use ops::plan::Plan;
use ops::subvolumes::owned::{NOTES_MAX, OwnedTree, READS_MAX};
use vfs::{FileSystem, FsResult, NewNode, RenameMode};
use volume::OpenOptions;
use volume::arrivals::Arrival;
use volume::locks::{Lock, Mode};
use volume::view::View;

const OWNER: u32 = 1000;

pub(super) fn owner() -> Caller {
    let (uid, gid, groups) = (OWNER, OWNER, Vec::new());
    Caller { uid, gid, groups, umask: 0, pid: 0, enforce: Enforce::Here, ends: Ends::NONE }
}

fn volume() -> Arc<Fs> {
    let env = sim_env(1).env();
    Fs::format(&env, &FormatOptions::default()).expect("an empty device");
    Fs::open(env, &OpenOptions::default()).expect("it was made just now")
}

fn dir(fs: &Fs, parent: NodeId, name: &str) -> NodeId {
    fs.mkdir(&Caller::root(), parent, name.as_bytes(), 0o755).expect("there is space").node
}

fn set(fs: &Fs, node: NodeId, changes: &SetAttr) {
    fs.setattr(&Caller::root(), node, changes).expect("root may");
}

/// A directory that belongs to the owner.
fn own_dir(fs: &Fs, parent: NodeId, name: &str) -> NodeId {
    let node = dir(fs, parent, name);
    set_owner(fs, node);
    node
}

/// Gives a directory to the owner.
pub(super) fn set_owner(fs: &Fs, node: NodeId) {
    set(fs, node, &SetAttr { uid: Some(OWNER), ..SetAttr::default() });
}

/// What [`OwnedTree::holds`] returns, for a plan that is not executed.
fn holds(owned: &mut OwnedTree<'_>) -> bool {
    let holds = owned.holds(&mut Plan::new()).expect("nobody else has a directory there");
    owned.reopen();
    holds
}

#[test]
fn a_large_directory_is_not_read_while_writers_wait() {
    let (fs, root, owner) = (volume(), Caller::root(), owner());
    let (tree, large) = (own_dir(&fs, NodeId::ROOT, "t"), own_dir(&fs, NodeId::ROOT, "l"));
    for number in 0..=READS_MAX {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = fs.mknod(&root, large, format!("{number}").as_bytes(), &new);
        made.expect("there is space");
    }
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    fs.rename(&root, (NodeId::ROOT, b"l"), (tree, b"l"), RenameMode::Replace).expect("moved");
    assert!(!holds(&mut owned), "it has more entries than may be read");
    owned.catch_up().expect("its own");
    assert!(holds(&mut owned), "it was read without the gates");
}

#[test]
fn paths_of_deep_directories_are_read_without_blocking_writers() {
    let (fs, owner) = (volume(), owner());
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let deep = (0..20).fold(NodeId::ROOT, |above, _| dir(&fs, above, "d"));
    let all: Vec<NodeId> = (0..60).map(|at| dir(&fs, deep, &format!("{at}"))).collect();
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let change = |node: &NodeId| {
        set(&fs, *node, &SetAttr { mode: Some(0o700), ..SetAttr::default() });
    };
    all.iter().take(10).for_each(change);
    assert!(holds(&mut owned), "10 directories are few");
    all.iter().for_each(change);
    assert!(!holds(&mut owned), "60 with 21 above each are many");
    owned.catch_up().expect("its own");
    assert!(holds(&mut owned), "they were looked at without the gates");
}

#[test]
fn a_directory_that_changes_many_times_is_noted_once() {
    let (fs, owner) = (volume(), owner());
    let (tree, other) = (own_dir(&fs, NodeId::ROOT, "t"), dir(&fs, NodeId::ROOT, "o"));
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    for mode in 0..2 * NOTES_MAX as u32 {
        set(&fs, other, &SetAttr { mode: Some(mode), ..SetAttr::default() });
    }
    assert!(holds(&mut owned));
}

/// A change is noted before its commit: one that was looked at in between was missed, and the
/// directory of another user was destroyed.
#[test]
fn catching_up_waits_for_noted_changes() {
    let (fs, owner) = (volume(), owner());
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let (_, below) = fs.place(own_dir(&fs, tree, "below")).expect("it is there");
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let entered = fs.enter(&subvol).expect("it is there");
    let view = View::new(&*fs.store, subvol.tree());
    let record = view.directory(below).expect("it is read").expect("it is there");
    let mut plan = Plan::new();
    plan.set_time(fs.env.clock.now());
    plan.put_directory(view.tree, below, &DirectoryRecord { uid: OWNER + 1, ..record });
    // The first step of the commit, which the test delays.
    let note = (Arrival::Written(view.tree, below), Some(OWNER + 1));
    let under_way = fs.arrivals.note(std::iter::once(note), None);
    let caught = device::scope(|scope| {
        let catching = scope.spawn(|| owned.catch_up());
        SystemClock::new().sleep(Duration::from_millis(200));
        commit(&fs, &mut plan).expect("there is space");
        drop((under_way, entered));
        catching.join().expect("no panic")
    });
    assert!(matches!(caught, Err(FsError::NotPermitted(_))), "{caught:?}");
}

/// What another user makes in a tree that is about to be detached waits for the commit, in nested
/// subvolumes too, whose gates nobody holds.
#[test]
fn other_users_directories_wait_for_the_commit_that_detaches_a_tree() {
    let (fs, root, owner) = (volume(), Caller::root(), owner());
    let other = Caller { uid: OWNER + 1, gid: OWNER + 1, ..self::owner() };
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let nested = fs.subvolume_create(&root, tree, b"n", 0o755).expect("there is space").node;
    set(&fs, nested, &SetAttr { uid: Some(OWNER), mode: Some(0o777), ..SetAttr::default() });
    let outside = dir(&fs, NodeId::ROOT, "o");
    set(&fs, outside, &SetAttr { mode: Some(0o777), ..SetAttr::default() });
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let made = AtomicBool::new(false);
    device::scope(|scope| {
        assert!(owned.holds(&mut Plan::new()).expect("its own"));
        // A file in the owner's directory belongs to no other user's directory.
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        fs.mknod(&other, nested, b"file", &new).expect("others may write");
        scope.spawn(|| {
            fs.mkdir(&other, nested, b"d", 0o755).expect("others may write");
            made.store(true, Ordering::SeqCst);
        });
        SystemClock::new().sleep(Duration::from_millis(50));
        assert!(!made.load(Ordering::SeqCst), "it was made in a tree that is being detached");
        owned.reopen();
    });
    assert!(matches!(owned.holds(&mut Plan::new()), Err(FsError::NotPermitted(_))));
}

/// Another user's directory is about to move into a tree. If the tree is walked, its top stays
/// where it is: a call that takes it away waits, and then knows of the directory.
#[test]
fn a_tree_stays_while_a_directory_that_moves_into_it_waits() {
    let (fs, owner) = (volume(), owner());
    let other = Caller { uid: OWNER + 1, gid: OWNER + 1, ..self::owner() };
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let deep = (0..10).fold(tree, |above, _| own_dir(&fs, above, "d"));
    let outside = dir(&fs, NodeId::ROOT, "o");
    for node in [deep, outside] {
        set(&fs, node, &SetAttr { mode: Some(0o777), ..SetAttr::default() });
    }
    fs.mkdir(&other, outside, b"moves", 0o755).expect("others may write");
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let taken = AtomicBool::new(false);
    device::scope(|scope| {
        assert!(owned.holds(&mut Plan::new()).expect("its own"));
        scope.spawn(|| {
            let (from, to) = ((outside, &b"moves"[..]), (deep, &b"moves"[..]));
            fs.rename(&other, from, to, RenameMode::Replace).expect("others may write");
        });
        SystemClock::new().sleep(Duration::from_millis(50));
        scope.spawn(|| {
            let top = Lock::Place { subvol: subvol.id.0, ino };
            drop(fs.locks.lock(&[(top, Mode::Exclusive)]));
            taken.store(true, Ordering::SeqCst);
        });
        SystemClock::new().sleep(Duration::from_millis(50));
        let was_taken = taken.load(Ordering::SeqCst);
        owned.reopen();
        assert!(!was_taken, "a directory moves into what is taken away");
    });
    assert!(matches!(owned.holds(&mut Plan::new()), Err(FsError::NotPermitted(_))));
}

/// What the owner makes in a tree after it was checked goes with the tree: `rm -r` of that moment
/// removes it too. Another user's directory keeps the tree.
#[test]
fn what_its_owner_makes_meanwhile_goes_with_a_tree() {
    for (uid, goes) in [(OWNER, true), (OWNER + 1, false)] {
        let (fs, owner) = (volume(), owner());
        let maker = Caller { uid, gid: uid, ..self::owner() };
        let tree = own_dir(&fs, NodeId::ROOT, "t");
        let below = own_dir(&fs, tree, "below");
        set(&fs, below, &SetAttr { mode: Some(0o777), ..SetAttr::default() });
        let (subvol, ino) = fs.place(tree).expect("it is there");
        let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
        fs.mkdir(&maker, below, b"new", 0o755).expect("others may write");
        let found = owned.holds(&mut Plan::new());
        owned.reopen();
        let refused = matches!(found, Err(FsError::NotPermitted(_)));
        assert_eq!((matches!(found, Ok(true)), refused), (goes, !goes), "{uid}: {found:?}");
    }
}

/// Waits until the commit of another thread waits for a watch that is closed.
fn until_one_waits(fs: &Fs) {
    while fs.arrivals.waiting() == 0 {
        SystemClock::new().sleep(Duration::from_millis(1));
    }
}

/// A directory is planned before its tree is removed, and was to be committed after that. The call
/// fails as if it had come later, in the tree itself and in a subvolume in it.
#[test]
fn a_directory_is_not_made_in_a_tree_that_is_removed_meanwhile() {
    for is_nested in [false, true] {
        make_in_removed(is_nested);
    }
}

/// An import's directories, few in one batch or many in a sorted run.
#[test]
fn an_import_is_not_flushed_into_a_tree_that_is_removed_meanwhile() {
    for (is_nested, count) in [(false, 1), (true, 1), (false, 100), (true, 100)] {
        in_removed(is_nested, |fs, caller, below| {
            let import = fs.bulk(caller, below, 0)?;
            let base = import.base(below).expect("it is there");
            for number in 0..count {
                let name = format!("new {number}");
                import.mkdir(base, name.as_bytes(), 0o755).expect("others may write");
            }
            import.flush()
        });
    }
}

fn make_in_removed(is_nested: bool) {
    in_removed(is_nested, |fs, caller, below| fs.mkdir(caller, below, b"new", 0o755).map(drop));
}

/// Has another user make directories in one that is below a tree, which is removed before the
/// commit.
fn in_removed(is_nested: bool, make: impl Fn(&Fs, &Caller, NodeId) -> FsResult<()> + Sync) {
    let (fs, root, owner) = (volume(), Caller::root(), owner());
    let other = Caller { uid: OWNER + 1, gid: OWNER + 1, ..self::owner() };
    let inodes = || fs.status().expect("it is open").files;
    let before = inodes();
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let below = if is_nested {
        let made = fs.subvolume_create(&root, tree, b"below", 0o755).expect("space").node;
        set_owner(&fs, made);
        made
    } else {
        own_dir(&fs, tree, "below")
    };
    set(&fs, below, &SetAttr { mode: Some(0o777), ..SetAttr::default() });
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let made = device::scope(|scope| {
        // Its commit waits for the watch.
        assert!(owned.holds(&mut Plan::new()).expect("its own"));
        let making = scope.spawn(|| make(&fs, &other, below));
        until_one_waits(&fs);
        // Root's removal closes no watch.
        fs.rmr(&root, NodeId::ROOT, b"t").expect("root may");
        owned.reopen();
        making.join().expect("no panic")
    });
    drop(owned);
    assert!(matches!(made, Err(FsError::NotFound)), "{made:?}");
    let gone = fs.lookup(&root, NodeId::ROOT, b"t");
    assert!(matches!(gone, Err(FsError::NotFound)), "{gone:?}");
    for _ in 0..100 {
        fs.background_step(100).expect("there is space");
    }
    for node in [below, tree] {
        fs.forget(node, 1);
    }
    for _ in 0..100 {
        fs.background_step(100).expect("there is space");
    }
    assert_eq!(inodes(), before, "all of the tree was reclaimed, and nothing was made in it");
}

/// A subvolume's rename, whose commit waits, writes its top as a whole. Nothing changes there
/// meanwhile: a file that was made was not counted, and `rmdir` removed the subvolume with it.
#[test]
fn what_changes_at_the_top_of_a_renamed_subvolume_waits_for_the_rename() {
    let (fs, root, owner) = (volume(), Caller::root(), owner());
    let named = fs.subvolume_create(&root, NodeId::ROOT, b"s", 0o755).expect("space").node;
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    device::scope(|scope| {
        assert!(owned.holds(&mut Plan::new()).expect("its own"));
        let renaming = scope.spawn(|| {
            let (from, to) = ((NodeId::ROOT, &b"s"[..]), (NodeId::ROOT, &b"r"[..]));
            fs.rename(&root, from, to, RenameMode::Replace)
        });
        until_one_waits(&fs);
        let making = scope.spawn(|| {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            fs.mknod(&root, named, b"f", &new)?;
            let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
            fs.setattr(&root, named, &mode)
        });
        // Without the gate both are done by now.
        SystemClock::new().sleep(Duration::from_millis(50));
        owned.reopen();
        renaming.join().expect("no panic").expect("there is space");
        making.join().expect("no panic").expect("there is space");
    });
    let attr = fs.getattr(&root, named).expect("it is there");
    assert_eq!(attr.mode & 0o777, 0o700);
    let removed = fs.rmdir(&root, NodeId::ROOT, b"r");
    assert!(matches!(removed, Err(FsError::NotEmpty)), "{removed:?}");
}

/// Where a tree stays, what waited for its removal is made.
#[test]
fn a_directory_is_made_in_a_tree_that_stays() {
    let (fs, owner) = (volume(), owner());
    let other = Caller { uid: OWNER + 1, gid: OWNER + 1, ..self::owner() };
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let below = own_dir(&fs, tree, "below");
    set(&fs, below, &SetAttr { mode: Some(0o777), ..SetAttr::default() });
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    device::scope(|scope| {
        assert!(owned.holds(&mut Plan::new()).expect("its own"));
        let making = scope.spawn(|| fs.mkdir(&other, below, b"new", 0o755));
        until_one_waits(&fs);
        owned.reopen();
        making.join().expect("no panic").expect("the tree is there");
    });
}

/// A tree that replaces another one between the walk and the commit is walked.
#[test]
fn a_subvolume_with_another_tree_is_walked_again() {
    let (fs, owner) = (volume(), owner());
    let tree = own_dir(&fs, NodeId::ROOT, "t");
    let (subvol, ino) = fs.place(tree).expect("it is there");
    let mut owned = OwnedTree::check(&fs, &owner, subvol.id, ino).expect("its own");
    let note = (Arrival::Replaced(subvol.tree()), None);
    drop(fs.arrivals.note(std::iter::once(note), None));
    assert!(!holds(&mut owned));
    owned.catch_up().expect("its own");
    assert!(holds(&mut owned));
}
