//! A volume in memory with operations and policies, and calls on it as root.

use std::sync::Arc;

use inode::{Caller, Kind, NameHash, NodeId};
use opening::create::FormatOptions;
use ops::Ops;
use ops::posix::{mkdir, mknod};
use policy::Governed;
use store::TreeId;
use testing::{MemStore, SimEnv, sim_env};
use vfs::{FsResult, NewNode};
use volume::{Core, OpenOptions, record_copies};

/// Keys and values of a tree.
pub(crate) type Contents = Vec<(Vec<u8>, Vec<u8>)>;

/// A volume, and what is below it.
pub(crate) struct Volume {
    env: SimEnv,
    store: Arc<MemStore>,
    header: format::volume::VolumeHeader,
    pub(crate) fs: Governed,
}

impl Volume {
    /// An empty one.
    pub(crate) fn new() -> Volume {
        let (env, store) = (sim_env(1), Arc::new(MemStore::new()));
        let made = opening::create::format_on(&env.env(), &*store, &FormatOptions::default());
        let header = made.expect("an empty store");
        let fs = open(&env, &store, &header);
        Volume { env, store, header, fs }
    }

    /// Opens the store again, as it is.
    pub(crate) fn reopen(&mut self) {
        self.fs = open(&self.env, &self.store, &self.header);
    }

    /// All keys and values of all trees.
    pub(crate) fn all(&self) -> Vec<(TreeId, Contents)> {
        let trees = self.store.trees().into_iter();
        trees.map(|tree| (tree, self.store.dump(tree).expect("it is in memory"))).collect()
    }

    /// Makes a directory.
    pub(crate) fn mkdir(&self, parent: NodeId, name: &[u8]) -> NodeId {
        let made =
            mkdir::mkdir(&self.fs, &self.fs.policies(), &Caller::root(), parent, name, 0o755);
        made.expect("a new name").node
    }

    /// Makes a file.
    pub(crate) fn create(&self, parent: NodeId, name: &[u8]) -> FsResult<NodeId> {
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = mknod::mknod(&self.fs, &self.fs.policies(), &Caller::root(), parent, name, &new);
        made.map(|entry| entry.node)
    }

    /// Removes a file.
    pub(crate) fn unlink(&self, parent: NodeId, name: &[u8]) -> FsResult<()> {
        ops::posix::unlink::unlink(&self.fs, &self.fs.policies(), &Caller::root(), parent, name)
    }
}

fn open(env: &SimEnv, store: &Arc<MemStore>, header: &format::volume::VolumeHeader) -> Governed {
    let below = record_copies::over(Arc::<MemStore>::clone(store)).expect("it is in memory");
    let hash = NameHash::new(header.hash_key);
    let core = Core::open(env.env(), below, header.clone(), &OpenOptions::default(), hash);
    let ops = Ops::open(core.expect("it was made just now")).expect("it was made just now");
    Governed::open(ops).expect("settings that were made just now")
}
