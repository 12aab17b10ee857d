//! What the ledger learns of all subvolumes after an opening, while others change them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use device::sync::Mutex;
use inode::NodeId;
use store::Maintain;
use vfs::{FileSystem, RenameMode};

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
