//! A volume in memory, or on an engine if a test requests one, and short names for common calls.

use std::sync::Arc;

use btree::BtreeStore;
use format::key;
use format::volume::VolumeHeader;
use fs::{
    Engine, Entry, FileSystem, FormatOptions, Fs, FsResult, NewNode, OpenOptions, WalkControl,
};
use inode::{Caller, Ends, Enforce, FsError, Kind, NameHash, NodeId};
use lsm::LsmStore;
use store::{Batch, EngineOptions, Store, TreeId};
use testing::{MemStore, SimEnv, sim_env};

/// A volume, open.
pub(crate) struct Volume<S: ?Sized = MemStore> {
    pub(crate) fs: Arc<fs::Volume>,
    pub(crate) env: SimEnv,
    pub(crate) store: Arc<S>,
    pub(crate) header: VolumeHeader,
}

/// A volume with an empty root that everybody may write.
pub(crate) fn volume() -> Volume {
    volume_with(NameHash::BITS, &OpenOptions::default())
}

/// A volume whose hash of names has few bits.
pub(crate) fn weak_volume(bits: u32) -> Volume {
    volume_with(bits, &OpenOptions::default())
}

/// A volume with a hash of `bits`, opened with options.
pub(crate) fn volume_with(bits: u32, options: &OpenOptions) -> Volume {
    let (env, store) = (sim_env(1), Arc::new(MemStore::new()));
    let (fs, header) = fresh(&env, Arc::<MemStore>::clone(&store), bits, options);
    Volume { fs, env, store, header }
}

/// A volume on an engine that has little memory, whose hash of names has few bits.
pub(crate) fn volume_on(engine: Engine, bits: u32) -> Volume<dyn Store> {
    let env = sim_env(1);
    let common = EngineOptions {
        cache_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        checkpoint_bytes: 256 << 10,
        ..EngineOptions::default()
    };
    let store: Arc<dyn Store> = match engine {
        Engine::Btree => {
            let options = btree::Options { common, ..btree::Options::default() };
            BtreeStore::create(&env.env(), &options).expect("an empty disk")
        }
        Engine::Lsm => {
            let options = lsm::Options { common, ..lsm::Options::default() };
            LsmStore::create(&env.env(), &options).expect("an empty disk")
        }
    };
    let (fs, header) = fresh(&env, Arc::clone(&store), bits, &OpenOptions::default());
    Volume { fs, env, store, header }
}

/// Makes a volume in an empty store, and opens it.
fn fresh(
    env: &SimEnv,
    store: Arc<dyn Store>,
    bits: u32,
    options: &OpenOptions,
) -> (Arc<fs::Volume>, VolumeHeader) {
    let inode_home = inode_home();
    let format = FormatOptions { root_mode: 0o777, inode_home, ..FormatOptions::default() };
    let header = Fs::format_on(&env.env(), &*store, &format).expect("an empty store");
    let hash = NameHash::with_bits(header.hash_key, bits);
    let fs = Fs::open_with_hash(env.env(), store, header.clone(), options, hash)
        .expect("a volume that was just made");
    env.clock.advance(std::time::Duration::from_secs(1));
    (shown(&fs), header)
}

/// The home of the inodes of test volumes: `PANDO_INODE_HOME`, by which all tests run on volumes
/// whose inodes are wide.
pub(crate) fn inode_home() -> u16 {
    let home = std::env::var("PANDO_INODE_HOME");
    home.map_or(0, |home| home.parse().expect("PANDO_INODE_HOME is a number"))
}

/// Has a volume assign wide numbers of home 0 after some narrow ones.
pub(crate) fn near_wide(store: &dyn Store) {
    let mut batch = Batch::new();
    let next = key::NARROW_INO_MAX - 20;
    let tree = TreeId(key::VOLUME_TREE);
    batch.put(tree, &key::counter(key::Counter::NextIno), &next.to_le_bytes());
    store.commit(&batch).expect("it is taken");
}

/// A volume as front ends see it.
pub(crate) fn shown(fs: &Arc<Fs>) -> Arc<fs::Volume> {
    Arc::new(fs.with_virtual_dirs())
}

/// A user that is checked here.
pub(crate) fn user(uid: u32) -> Caller {
    Caller {
        uid,
        gid: uid,
        groups: Vec::new(),
        umask: 0,
        pid: 0,
        enforce: Enforce::Here,
        ends: Ends::NONE,
    }
}

impl Volume {
    /// The volume, opened once more as after a crash.
    pub(crate) fn reopened(&self) -> Arc<fs::Volume> {
        let store = Arc::<MemStore>::clone(&self.store);
        let options = OpenOptions::default();
        let fs = Fs::open_on(self.env.env(), store, self.header.clone(), &options);
        shown(&fs.expect("a volume"))
    }
}

impl<S: ?Sized> Volume<S> {
    /// Lets a second pass.
    pub(crate) fn tick(&self) -> i64 {
        self.env.clock.advance(std::time::Duration::from_secs(1));
        self.fs.now().0
    }

    /// Makes a file in a directory, as root.
    pub(crate) fn file(&self, parent: NodeId, name: &str) -> Entry {
        self.file_as(&Caller::root(), parent, name, 0o644).expect("a new file")
    }

    /// Creates a file as a given user.
    pub(crate) fn file_as(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &str,
        mode: u32,
    ) -> FsResult<Entry> {
        let new = NewNode { kind: Kind::File, mode, rdev: 0 };
        self.fs.mknod(caller, parent, name.as_bytes(), &new)
    }

    /// Makes a directory, as root.
    pub(crate) fn dir(&self, parent: NodeId, name: &str) -> Entry {
        self.fs.mkdir(&Caller::root(), parent, name.as_bytes(), 0o755).expect("a new directory")
    }

    /// Looks a name up, as root.
    pub(crate) fn find(&self, parent: NodeId, name: &str) -> FsResult<Entry> {
        self.fs.lookup(&Caller::root(), parent, name.as_bytes())
    }

    /// The names in a directory, in the order listed.
    pub(crate) fn names(&self, dir: NodeId) -> Vec<String> {
        let mut names = Vec::new();
        self.fs
            .readdir(&Caller::root(), dir, 0, &mut |entry| {
                names.push(String::from_utf8_lossy(entry.name).into_owned());
                WalkControl::Continue
            })
            .expect("a directory");
        names
    }

    /// The names in a directory, sorted.
    pub(crate) fn sorted(&self, dir: NodeId) -> Vec<String> {
        let mut names = self.names(dir);
        names.sort();
        names
    }

    /// Writes a file's contents, as root.
    pub(crate) fn write(&self, node: NodeId, offset: u64, bytes: &[u8]) {
        self.fs.write(&Caller::root(), node, offset, bytes).expect("space for the bytes");
    }

    /// A file's first 64 KiB, as root.
    pub(crate) fn read(&self, node: NodeId) -> Vec<u8> {
        let mut buffer = vec![0; 64 << 10];
        let length = self.fs.read(&Caller::root(), node, 0, &mut buffer).expect("a file");
        buffer.truncate(length);
        buffer
    }

    /// A directory's entries and links, checked against what it lists.
    pub(crate) fn check_counts(&self, dir: NodeId) {
        let attr = self.fs.getattr(&Caller::root(), dir).expect("a directory");
        let (mut entries, mut directories) = (0, 0);
        self.fs
            .readdir(&Caller::root(), dir, 0, &mut |entry| {
                entries += 1;
                directories += u32::from(entry.kind == Kind::Directory);
                WalkControl::Continue
            })
            .expect("a directory");
        assert_eq!((attr.size, attr.nlink), (entries, directories + 2));
    }
}

/// Whether two errors are of one kind. What root alone may do is not permitted to others.
pub(crate) fn same(error: &FsError, other: &FsError) -> bool {
    let root_only = matches!((error, other), (FsError::RootOnly(_), FsError::NotPermitted(_)));
    root_only || std::mem::discriminant(error) == std::mem::discriminant(other)
}

/// Asserts that a result is an error of a kind.
#[track_caller]
pub(crate) fn refused<T: std::fmt::Debug>(result: FsResult<T>, want: &FsError) {
    match result {
        Err(error) if same(&error, want) => {}
        other => panic!("expected {want:?}, got {other:?}"),
    }
}

/// Asserts that a check of a volume finds nothing.
#[track_caller]
pub(crate) fn assert_whole(fs: &Fs) {
    let report = fs.check_volume(&mut |_, _| std::ops::ControlFlow::Continue(()));
    let report = report.expect("a check");
    assert!(report.problems.is_empty(), "{:?}", report.problems);
}

pub(crate) const ROOT: NodeId = NodeId::ROOT;
