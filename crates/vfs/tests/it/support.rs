//! A file system in memory with virtual directories.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use device::Clock;
use device::sync::Mutex;
use inode::{Caller, Ends, Enforce, NodeId};
use testing::{MemoryFs, SimEnv, sim_env};
use vfs::{Entry, FileSystem, FsResult, Invalidate, Query, Search, VirtualDirs, WalkControl};

pub(crate) const ROOT: NodeId = NodeId::ROOT;

pub(crate) struct Rig {
    pub(crate) fs: VirtualDirs<MemoryFs>,
    pub(crate) env: SimEnv,
    pub(crate) search: Arc<Paths>,
}

/// Finds all of a list of paths, whatever is asked.
#[derive(Default)]
pub(crate) struct Paths {
    pub(crate) all: Mutex<Vec<&'static str>>,
    pub(crate) runs: AtomicUsize,
    /// Where the last query began.
    pub(crate) from: Mutex<Option<NodeId>>,
}

struct Asked(Arc<Paths>);

pub(crate) struct Asks(pub(crate) Arc<Paths>);

impl Search for Asks {
    fn parse(&self, text: &[u8]) -> Result<Box<dyn Query>, String> {
        if text.starts_with(b"(") {
            return Err("a parenthesis".to_owned());
        }
        Ok(Box::new(Asked(Arc::clone(&self.0))))
    }
}

impl Query for Asked {
    fn run(
        &self,
        _: &Caller,
        directory: NodeId,
        _: u64,
        _: &AtomicBool,
        take: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> FsResult<()> {
        self.0.runs.fetch_add(1, Ordering::Relaxed);
        *self.0.from.lock() = Some(directory);
        for path in self.0.all.lock().iter() {
            if take(path.as_bytes()).is_break() {
                break;
            }
        }
        Ok(())
    }
}

/// With a directory of snapshots in each directory, and `.search`.
pub(crate) fn rig() -> Rig {
    let (env, search) = (sim_env(1), Arc::<Paths>::default());
    let clock: Arc<dyn Clock> = Arc::clone(&env.env().clock);
    let fs = VirtualDirs::new(Arc::new(MemoryFs::new()), clock, b".snapshots");
    let fs = fs.with_search(Arc::new(Asks(Arc::clone(&search))));
    Rig { fs, env, search }
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

impl Rig {
    pub(crate) fn find(&self, parent: NodeId, name: &str) -> FsResult<Entry> {
        self.fs.lookup(&Caller::root(), parent, name.as_bytes())
    }

    pub(crate) fn dir(&self, parent: NodeId, name: &str) -> NodeId {
        self.fs.mkdir(&Caller::root(), parent, name.as_bytes(), 0o755).expect("a new name").node
    }

    pub(crate) fn names(&self, directory: NodeId) -> Vec<String> {
        let mut names = Vec::new();
        let list = &mut |entry: &vfs::DirEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            WalkControl::Continue
        };
        self.fs.readdir(&Caller::root(), directory, 0, list).expect("a directory");
        names
    }
}

/// Records notifications.
#[derive(Default)]
pub(crate) struct Notified(pub(crate) Mutex<Vec<String>>);

impl Notified {
    fn note(&self, what: &str, node: NodeId, name: &[u8]) {
        let (virtual_bit, low) = (node.shown() >> 63, node.shown() & 0xff_ffff);
        let name = String::from_utf8_lossy(name);
        self.0.lock().push(format!("{what} {virtual_bit} {low} {name}"));
    }
}

impl Invalidate for Notified {
    fn entry(&self, parent: NodeId, name: &[u8]) {
        self.note("entry", parent, name);
    }

    fn let_go(&self, parent: NodeId, name: &[u8]) {
        self.note("let go", parent, name);
    }

    fn node(&self, node: NodeId) {
        self.note("node", node, b"");
    }

    fn attributes(&self, node: NodeId) {
        self.note("attributes", node, b"");
    }

    fn root(&self, old: NodeId, new: NodeId) {
        self.note("root", old, b"");
        self.note("is now", new, b"");
    }

    fn all_names(&self) {
        self.note("all", ROOT, b"");
    }
}
