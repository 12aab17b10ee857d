//! What front ends are notified of while trees are removed: with no gate held, so that a snapshot
//! can be made meanwhile.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use device::sync::{Mutex, channel};
use inode::{Caller, Kind, NodeId};
use testing::sim_env;

use crate::Fs;
use opening::create::FormatOptions;
use vfs::{FileSystem, Invalidate, NewNode};
use volume::OpenOptions;

/// How long a thread that wants the gate waits for it: only a fault makes it wait at all.
const PATIENCE: Duration = Duration::from_secs(20);

/// A front end that does not return before another thread could pass the gate of the volume's root.
#[derive(Default)]
struct Waits {
    fs: OnceLock<Weak<Fs>>,
    /// Notices, and whether the gate was free.
    seen: Mutex<Vec<(&'static str, bool)>>,
}

impl Waits {
    fn passes(&self, notice: &'static str) {
        let Some(fs) = self.fs.get().and_then(Weak::upgrade) else { return };
        let (sent, passed) = channel();
        let passing = move || {
            let subvol = fs.root_subvol().expect("it is there");
            drop(subvol.quiesce());
            sent.send(()).ok();
        };
        device::spawn("gate", passing).expect("a thread");
        self.seen.lock().push((notice, passed.recv_timeout(PATIENCE).is_ok()));
    }
}

impl Invalidate for Waits {
    fn entry(&self, _: NodeId, _: &[u8]) {
        self.passes("entry");
    }

    fn let_go(&self, _: NodeId, _: &[u8]) {}

    fn node(&self, _: NodeId) {
        self.passes("node");
    }

    fn attributes(&self, _: NodeId) {
        self.passes("attributes");
    }

    fn all_names(&self) {
        self.passes("all names");
    }
}

/// A removed tree with a file that has another name, a directory that is held, and a subvolume.
#[test]
fn no_gate_is_held_when_front_ends_are_notified_of_what_reclaiming_removed() {
    let (env, root) = (sim_env(1).env(), Caller::root());
    Fs::format(&env, &FormatOptions::default()).expect("an empty device");
    let fs = Fs::open(env, &OpenOptions::default()).expect("it was made just now");
    let dir =
        |parent, name: &[u8]| fs.mkdir(&root, parent, name, 0o755).expect("there is space").node;
    let tree = dir(NodeId::ROOT, b"tree");
    dir(tree, b"held");
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let file = fs.mknod(&root, tree, b"file", &new).expect("there is space").node;
    fs.link(&root, file, NodeId::ROOT, b"other").expect("there is space");
    fs.subvolume_create(&root, tree, b"subvolume", 0o755).expect("there is space");
    let reported = Arc::new(Waits::default());
    reported.fs.set(Arc::downgrade(&fs)).expect("it is set once");
    fs.set_invalidate(Arc::<Waits>::clone(&reported));
    fs.rmr(&root, NodeId::ROOT, b"tree").expect("root may");
    fs.forget(tree, 1);
    for _ in 0..100 {
        fs.background_step(100).expect("there is space");
    }
    let seen = reported.seen.lock();
    println!("{seen:?}");
    for notice in ["entry", "node", "attributes"] {
        assert!(seen.iter().any(|(what, _)| *what == notice), "no {notice} was notified: {seen:?}");
    }
    assert!(seen.iter().all(|(_, passed)| *passed), "a gate was held: {seen:?}");
}
