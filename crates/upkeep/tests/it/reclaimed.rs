//! What is removed is gone at once, and its records go in bounded steps, which an opening of the
//! volume does not lose.

use std::sync::Arc;

use inode::{Caller, Kind, NameHash, NodeId};
use opening::create::FormatOptions;
use ops::posix::{forget, mkdir, mknod};
use testing::{MemStore, SimEnv, sim_env};
use upkeep::Upkeep;
use vfs::NewNode;
use volume::{OpenOptions, record_copies};

/// Records of about so many are read or removed in a step.
const BUDGET: usize = 8;

struct Volume {
    env: SimEnv,
    store: Arc<MemStore>,
    header: format::volume::VolumeHeader,
}

impl Volume {
    fn new() -> Volume {
        let (env, store) = (sim_env(1), Arc::new(MemStore::new()));
        let made = opening::create::format_on(&env.env(), &*store, &FormatOptions::default());
        Volume { env, store, header: made.expect("an empty store") }
    }

    fn open(&self) -> Upkeep {
        let below = record_copies::over(Arc::<MemStore>::clone(&self.store));
        let (header, hash) = (self.header.clone(), NameHash::new(self.header.hash_key));
        let options = OpenOptions::default();
        let below = below.expect("it is in memory");
        let open =
            Upkeep::open(self.env.env(), below, header, &options, (hash, |_, _| Ok(Vec::new())));
        open.expect("it was made just now")
    }

    /// Records of all trees.
    fn records(&self) -> usize {
        let trees = self.store.trees().into_iter();
        trees.map(|tree| self.store.dump(tree).expect("it is in memory").len()).sum()
    }
}

/// A directory of so many files in each of so many directories.
fn fill(fs: &Upkeep, name: &[u8], (directories, files): (u8, u8)) {
    let (root, policies) = (Caller::root(), fs.policies());
    let make = |parent, name: &[u8]| {
        let made = mkdir::mkdir(fs, &policies, &root, parent, name, 0o755).expect("a new name");
        made.node
    };
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let top = make(NodeId::ROOT, name);
    for number in 0..directories {
        let below = make(top, &[b'd', b'a' + number]);
        for number in 0..files {
            let name = [b'f', b'a' + number];
            let made = mknod::mknod(fs, &policies, &root, below, &name, &new);
            forget::forget(fs, made.expect("a new name").node, 1);
        }
        forget::forget(fs, below, 1);
    }
    forget::forget(fs, top, 1);
}

#[test]
fn removed_tree_is_reclaimed_in_steps_that_an_opening_continues() {
    let volume = Volume::new();
    let fs = volume.open();
    while fs.background_step(BUDGET).expect("a step").more {}
    let empty = volume.records();
    fill(&fs, b"large", (5, 12));
    fs.rmr(&Caller::root(), NodeId::ROOT, b"large").expect("root may remove it");
    let found = ops::posix::lookup::lookup(&fs, &Caller::root(), NodeId::ROOT, b"large");
    assert!(matches!(found, Err(inode::FsError::NotFound)), "its name is gone at once");
    let removed = volume.records();
    assert!(removed > empty + 60, "its records are there: {removed} records, {empty} before");
    assert!(fs.background_step(BUDGET).expect("a step").more, "one step does not do all");
    drop(fs);
    let fs = volume.open();
    let mut steps = 0;
    loop {
        let before = volume.records();
        let progress = fs.background_step(BUDGET).expect("a step");
        let gone = before.saturating_sub(volume.records());
        assert!(gone <= 8 * BUDGET, "{gone} records went in one step of {BUDGET}");
        if !progress.more {
            break;
        }
        steps += 1;
    }
    assert!(steps > 3, "{steps} steps");
    assert_eq!(volume.records(), empty, "nothing of it is left");
}

#[test]
fn step_of_an_idle_volume_changes_nothing() {
    let volume = Volume::new();
    let fs = volume.open();
    fill(&fs, b"small", (1, 3));
    while fs.background_step(BUDGET).expect("a step").more {}
    let all = || {
        let trees = volume.store.trees().into_iter();
        trees.map(|tree| volume.store.dump(tree).expect("it is in memory")).collect::<Vec<_>>()
    };
    let before = all();
    let progress = fs.background_step(BUDGET).expect("a step");
    assert_eq!((progress.more, progress.done), (false, 0));
    assert!(all() == before, "nothing was due");
}
