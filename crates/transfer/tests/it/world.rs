//! A volume, and short names for the calls of tests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fs::{Engine, Entry, FileSystem, FormatOptions, Fs, NewNode, OpenOptions, SnapshotInfo};
use inode::{Caller, Ends, Enforce, Kind, NodeId};
use testing::{SimEnv, sim_env};
use transfer::{Error, ReceiveOptions, Received, Receiver, SendOptions, send};

/// A volume, open.
pub(crate) struct World {
    pub(crate) fs: Arc<Fs>,
    pub(crate) env: SimEnv,
}

pub(crate) fn root() -> Caller {
    Caller::root()
}

pub(crate) fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, ..root() }
}

impl World {
    /// An empty volume whose root anybody may write.
    pub(crate) fn new(engine: Engine, seed: u64) -> World {
        assert_eq!(root().enforce, Enforce::Here);
        assert_eq!(root().ends, Ends::NONE);
        let env = sim_env(seed);
        let format = FormatOptions { engine, root_mode: 0o777, ..FormatOptions::default() };
        Fs::format(&env.env(), &format).expect("an empty disk");
        let fs = Fs::open(env.env(), &OpenOptions::default()).expect("it was made just now");
        env.clock.advance(Duration::from_secs(1));
        World { fs, env }
    }

    /// Lets time pass.
    pub(crate) fn tick(&self) {
        self.env.clock.advance(Duration::from_millis(7));
    }

    /// The node at a path from the root of the volume.
    pub(crate) fn at(&self, path: &str) -> NodeId {
        self.find(path).unwrap_or_else(|| panic!("{path} is not there")).node
    }

    /// What is at a path, if anything is. Look-ups are kept: tests are short.
    pub(crate) fn find(&self, path: &str) -> Option<Entry> {
        let mut entry = self.fs.lookup(&root(), NodeId::ROOT, b".").expect("the root");
        for name in path.split('/').filter(|name| !name.is_empty()) {
            entry = self.fs.lookup(&root(), entry.node, name.as_bytes()).ok()?;
        }
        Some(entry)
    }

    pub(crate) fn mkdir(&self, path: &str) -> NodeId {
        self.mkdir_as(&root(), path, 0o755)
    }

    pub(crate) fn mkdir_as(&self, caller: &Caller, path: &str, mode: u32) -> NodeId {
        let (above, name) = path.rsplit_once('/').expect("a path");
        let made = self.fs.mkdir(caller, self.at(above), name.as_bytes(), mode);
        self.tick();
        made.expect("a directory").node
    }

    pub(crate) fn file(&self, path: &str, bytes: &[u8]) -> NodeId {
        self.file_as(&root(), path, bytes)
    }

    pub(crate) fn file_as(&self, caller: &Caller, path: &str, bytes: &[u8]) -> NodeId {
        let (above, name) = path.rsplit_once('/').expect("a path");
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let made = self.fs.mknod(caller, self.at(above), name.as_bytes(), &new).expect("a file");
        self.fs.write(caller, made.node, 0, bytes).expect("there is space");
        self.tick();
        made.node
    }

    pub(crate) fn rename(&self, from: &str, to: &str) {
        let (from, to) = (from.rsplit_once('/').unwrap(), to.rsplit_once('/').unwrap());
        let (a, b) = (self.at(from.0), self.at(to.0));
        let names = ((a, from.1.as_bytes()), (b, to.1.as_bytes()));
        let mode = fs::RenameMode::NoReplace;
        self.fs.rename(&root(), names.0, names.1, mode).expect("a rename");
        self.tick();
    }

    pub(crate) fn snapshot(&self, path: &str, name: &str) -> SnapshotInfo {
        let taken = self.fs.snapshot_create(&root(), self.at(path), name.as_bytes());
        self.tick();
        taken.expect("a snapshot")
    }

    /// A stream, as root.
    pub(crate) fn stream(&self, base: Option<NodeId>, snapshot: NodeId) -> Vec<u8> {
        self.try_stream(&root(), base, snapshot, &SendOptions::default()).expect("a stream")
    }

    pub(crate) fn try_stream(
        &self,
        caller: &Caller,
        base: Option<NodeId>,
        snapshot: NodeId,
        options: &SendOptions,
    ) -> Result<Vec<u8>, Error> {
        let (cancel, mut bytes) = (AtomicBool::new(false), Vec::new());
        let mut emit = |part: &[u8]| {
            bytes.extend_from_slice(part);
            true
        };
        let sent = send(&self.fs, caller, (base, snapshot), options, (&cancel, &mut emit))?;
        if !options.dry_run {
            assert_eq!(sent.stream_bytes, bytes.len() as u64);
        }
        Ok(bytes)
    }

    /// Receives a stream below the root of the volume, in parts of some bytes.
    pub(crate) fn receive(&self, name: &str, stream: &[u8]) -> Result<Received, Error> {
        self.receive_as(&root(), name, stream, ReceiveOptions::default())
    }

    pub(crate) fn receive_as(
        &self,
        caller: &Caller,
        name: &str,
        stream: &[u8],
        options: ReceiveOptions,
    ) -> Result<Received, Error> {
        let fs = &*self.fs;
        let mut receiver = Receiver::new(fs, caller, (NodeId::ROOT, name.as_bytes()), options);
        for part in stream.chunks(1000) {
            if let Err(error) = receiver.feed(part) {
                receiver.give_up(Some(&error));
                return Err(error);
            }
        }
        self.tick();
        receiver.finish()
    }

    /// The names in the root of the volume.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut take = |entry: &fs::DirEntry<'_>| {
            names.push(String::from_utf8_lossy(entry.name).into_owned());
            fs::WalkControl::Continue
        };
        self.fs.readdir(&root(), NodeId::ROOT, 0, &mut take).expect("the root");
        names.sort();
        names
    }
}
