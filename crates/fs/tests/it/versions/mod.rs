//! Snapshots, clones, roll-back, removal of trees: one file per verb, and pruning.

mod clone;
mod counts;
mod history;
mod inherit;
mod inherit_cost;
mod inherit_crash;
mod inherit_generations;
pub(crate) mod inherit_scope;
mod inherit_users;
mod kept;
mod learned;
mod owned;
mod prune;
mod removal_cost;
mod retention;
mod rmr;
mod rollback;
mod shares;
mod snapshot;
mod subvolume;
mod virtual_dir;

use std::sync::Arc;
use std::time::Duration;

use device::sync::Mutex;
use fs::{FileSystem, Invalidate, OpenOptions};
use inode::{Caller, NameHash, NodeId};

use crate::support::{ROOT, Volume, volume_with};

/// The notifications that a front end receives.
#[derive(Default)]
pub(crate) struct Notified {
    entries: Mutex<Vec<(NodeId, Vec<u8>)>>,
    nodes: Mutex<Vec<NodeId>>,
    pub(crate) attributes: Mutex<Vec<NodeId>>,
}

impl Notified {
    /// The notifications of a volume from now on.
    pub(crate) fn of(volume: &Volume) -> Arc<Notified> {
        let reported = Arc::new(Notified::default());
        volume.fs.set_invalidate(Arc::<Notified>::clone(&reported));
        reported
    }
}

impl Invalidate for Notified {
    fn entry(&self, parent: NodeId, name: &[u8]) {
        self.entries.lock().push((parent, name.to_vec()));
    }

    fn node(&self, node: NodeId) {
        self.nodes.lock().push(node);
    }

    fn attributes(&self, node: NodeId) {
        self.attributes.lock().push(node);
    }

    fn all_names(&self) {}
}

/// A volume that prunes as soon as something is worth it at all.
fn pruning() -> Volume {
    let options = OpenOptions { prune_records: 16, ..OpenOptions::default() };
    volume_with(NameHash::BITS, &options)
}

/// Does background work, and lets time pass, until there is none left.
fn settle(volume: &Volume) {
    let mut idle = 0;
    for _ in 0..100_000 {
        let progress = volume.fs.background_step(100).expect("background work goes well");
        idle = if progress.more { 0 } else { idle + 1 };
        if idle == 3 {
            return;
        }
        volume.env.clock.advance(Duration::from_secs(1));
    }
    panic!("background work never ends");
}

/// A snapshot's root.
fn snapshot_root(volume: &Volume, dir: NodeId, name: &str) -> NodeId {
    let snapshots = volume.find(dir, ".snapshots").expect("every directory has it").node;
    volume.find(snapshots, name).expect("the snapshot is there").node
}

/// Lets go of a node entirely.
fn forget(volume: &Volume, node: NodeId) {
    volume.fs.forget(node, u64::from(u32::MAX));
}

/// A directory with files `f0`, `f1`..., each with some contents.
fn filled(volume: &Volume, parent: NodeId, name: &str, files: usize) -> NodeId {
    let dir = volume.dir(parent, name).node;
    for at in 0..files {
        let file = volume.file(dir, &format!("f{at}")).node;
        volume.write(file, 0, format!("{name} {at}").as_bytes());
        forget(volume, file);
    }
    dir
}

/// The names and contents of a directory's files.
fn contents(volume: &Volume, dir: NodeId) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for name in volume.sorted(dir) {
        let node = volume.find(dir, &name).expect("a listed name").node;
        let attr = volume.fs.getattr(&Caller::root(), node).expect("a listed inode");
        let bytes = if attr.kind == inode::Kind::File { volume.read(node) } else { Vec::new() };
        volume.fs.forget(node, 1);
        found.push((name, bytes));
    }
    found
}

/// Hands a directory to a user.
fn give(volume: &Volume, node: NodeId, uid: u32) {
    let changes = inode::SetAttr { uid: Some(uid), ..inode::SetAttr::default() };
    volume.fs.setattr(&Caller::root(), node, &changes).expect("root gives away");
}

fn root() -> Caller {
    Caller::root()
}

fn home() -> NodeId {
    ROOT
}
