//! What the ledger learns of all subvolumes after an opening, while others change them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use format::key;
use inode::NodeId;
use store::{Maintain, Read, TreeId};
use vfs::{FileSystem, RenameMode};

use super::inherit_scope::put;
use super::removal_cost::opened_again;
use super::{forget, home, root};
use crate::support::{Volume, volume};

const NESTED: u32 = 40;

/// Changes of subvolumes, each by another thread, at random moments of what reads.
struct Changes {
    random: Mutex<fastrand::Rng>,
    dirs: [NodeId; 2],
    /// The one under way makes no other.
    is_busy: AtomicBool,
}

impl Changes {
    fn at_read(&self, fs: &fs::Volume) {
        // The thread that reads may hold the ledger.
        if fs.admin.is_locked() || self.is_busy.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut random = self.random.lock();
        if random.bool() {
            device::scope(|scope| {
                scope.spawn(|| self.change(fs, &mut random));
            });
        }
        self.is_busy.store(false, Ordering::Release);
    }

    fn change(&self, fs: &fs::Volume, random: &mut fastrand::Rng) {
        let at = random.usize(..2);
        let (from, to) = (self.dirs[at], self.dirs[1 - at]);
        let name = format!("n{}", random.u32(..NESTED + NESTED / 4)).into_bytes();
        // Some names are not there, or are there already.
        match random.u32(..3) {
            0 => {
                if let Ok(made) = fs.subvolume_create(&root(), from, &name, 0o755) {
                    fs.forget(made.node, 1);
                }
            }
            1 => {
                fs.rename(&root(), (from, &name), (to, &name), RenameMode::NoReplace)
                    .unwrap_or_default();
            }
            _ => drop(fs.rmr(&root(), from, &name)),
        }
    }
}

#[test]
fn what_changes_while_mounts_are_learned_is_known() {
    let mut changed = 0;
    for seed in 0..20 {
        println!("seed {seed}");
        let v = volume();
        let dirs = ["a", "b"].map(|name| v.dir(home(), name).node);
        for at in 0..NESTED {
            let parent = dirs[at as usize % 2];
            let made = v.fs.subvolume_create(&root(), parent, format!("n{at}").as_bytes(), 0o755);
            forget(&v, made.expect("space").node);
        }
        let v: Volume = opened_again(v);
        let dirs = ["a", "b"].map(|name| v.find(home(), name).expect("it is there").node);
        let random = Mutex::new(fastrand::Rng::with_seed(seed));
        let changes = Changes { random, dirs, is_busy: AtomicBool::new(false) };
        let fs = Arc::downgrade(&v.fs);
        let before = v.store.stats().commits;
        v.store.set_on_read(move || {
            if let Some(fs) = fs.upgrade() {
                changes.at_read(&fs);
            }
        });
        v.fs.snapshot_create(&root(), home(), b"first").expect("space");
        v.store.set_on_read(|| ());
        // One commit is that of the snapshot.
        changed += v.store.stats().commits - before - 1;
        let is_known = v.fs.admin.lock().is_as_stored(&v.fs).expect("it is read");
        assert!(is_known, "the ledger has missed a change");
    }
    assert!(changed > 200, "others made {changed} changes");
}

/// Snapshots that inherit go, and have other names, while a thread learns what they inherit. Other
/// changes beside copies that inherit wait for that thread.
#[test]
fn what_is_inherited_no_more_while_mounts_are_learned_is_known() {
    const SNAPSHOTS: u32 = 12;
    let mut changed = 0;
    for seed in 0..20 {
        println!("seed {seed}");
        let v = volume();
        let dir = v.dir(home(), "d").node;
        for at in 0..NESTED {
            let made = v.fs.subvolume_create(&root(), dir, format!("n{at}").as_bytes(), 0o755);
            forget(&v, made.expect("space").node);
        }
        for at in 0..SNAPSHOTS {
            v.fs.snapshot_create(&root(), dir, format!("s{at}").as_bytes()).expect("space");
            v.fs.clone_dir(&root(), dir, home(), format!("c{at}").as_bytes()).expect("space");
        }
        let v: Volume = opened_again(v);
        let dir = v.find(home(), "d").expect("it is there").node;
        let (random, is_busy) =
            (Mutex::new(fastrand::Rng::with_seed(seed)), AtomicBool::new(false));
        let fs = Arc::downgrade(&v.fs);
        let before = v.store.stats().commits;
        v.store.set_on_read(move || {
            let Some(fs) = fs.upgrade() else { return };
            // The thread that reads may hold the ledger.
            if fs.admin.is_locked() || is_busy.swap(true, Ordering::AcqRel) {
                return;
            }
            let mut random = random.lock();
            if random.u32(..8) == 0 {
                let [from, to] = [(); 2].map(|()| format!("s{}", random.u32(..SNAPSHOTS)));
                let is_renamed = random.bool();
                device::scope(|scope| {
                    scope.spawn(|| {
                        // It may be gone already, or the other name taken.
                        let (from, to) = (from.as_bytes(), to.as_bytes());
                        if is_renamed {
                            fs.snapshot_rename(&root(), dir, from, to).unwrap_or_default();
                        } else {
                            fs.snapshot_delete(&root(), dir, from).unwrap_or_default();
                        }
                    });
                });
            }
            is_busy.store(false, Ordering::Release);
        });
        v.fs.clone_dir(&root(), dir, home(), b"last").expect("space");
        v.store.set_on_read(|| ());
        changed += v.store.stats().commits - before - 1;
        let is_known = v.fs.admin.lock().is_as_stored(&v.fs).expect("it is read");
        assert!(is_known, "the ledger has missed a change");
    }
    assert!(changed > 40, "others made {changed} changes");
}

/// A record of a subvolume that cannot be read: a caller that needs what is mounted where gets an
/// error that names it. Each read the records of all subvolumes before.
#[test]
fn a_record_that_cannot_be_read_is_named_and_read_alone() {
    let v = volume();
    let dir = v.dir(home(), "d").node;
    let mut nested = Vec::new();
    for at in 0..500 {
        let made = v.fs.subvolume_create(&root(), dir, format!("n{at}").as_bytes(), 0o755);
        let node = made.expect("space").node;
        nested.push(v.fs.subvolume_of(node).expect("it is one").0);
        forget(&v, node);
    }
    let number = nested[250];
    let (volume_tree, record) = (TreeId(key::VOLUME_TREE), key::subvolume(number));
    let was = v.store.get(volume_tree, &record).expect("it reads").expect("it is there");
    put(&*v.store, (volume_tree, &record), b"damage");
    let v: Volume = opened_again(v);
    let reads = || v.store.gets() + v.store.moves();
    for attempt in 0..4 {
        let before = reads();
        let error = v.fs.snapshot_create(&root(), dir, b"s").expect_err("it cannot be known");
        assert!(error.to_string().contains(&format!("subvolume {number}:")), "{error}");
        let cost = reads() - before;
        println!("attempt {attempt}: {cost} reads");
        assert!(attempt == 0 || cost < 50, "attempt {attempt}: {cost} reads");
    }
    put(&*v.store, (volume_tree, &record), &was);
    v.fs.snapshot_create(&root(), dir, b"s").expect("all can be read");
}
