//! The whole state of a file system as data, collected through its own operations, and compared.

use std::collections::BTreeMap;

use device::Timestamp;
use inode::{Caller, Kind};

use super::op::{Op, OpPath, Target, show_path};
use super::verdict::{Effect, ErrorKind, Listed, Stat};

/// A file system under test.
pub trait Subject {
    /// Runs an operation as a caller, with the clock at `now` (zero: unchanged).
    fn run(&mut self, now: Timestamp, caller: &Caller, op: &Op) -> Result<Effect, ErrorKind>;

    /// The number of the inode at a path.
    fn identity(&mut self, path: &OpPath) -> u64;
}

/// One inode at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DumpNode {
    /// Its attributes.
    pub stat: Stat,
    /// Contents of a file, target of a link.
    pub bytes: Vec<u8>,
    /// Extended attributes.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names of a directory's snapshots.
    pub snapshots: Vec<Vec<u8>>,
    /// The first path, in order, of the same inode.
    pub first_path: OpPath,
}

/// Every path of a file system, those in snapshots included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// The node at each path.
    pub nodes: BTreeMap<OpPath, DumpNode>,
}

impl Dump {
    /// Collects everything that the superuser can see.
    pub fn collect(subject: &mut dyn Subject, snapshot_dir: &[u8]) -> Dump {
        Dump::collect_below(subject, snapshot_dir, OpPath::new())
    }

    /// Collects everything below a path.
    pub fn collect_below(subject: &mut dyn Subject, snapshot_dir: &[u8], root: OpPath) -> Dump {
        let mut collector = Collector {
            subject,
            snapshot_dir: snapshot_dir.to_vec(),
            dump: Dump { nodes: BTreeMap::new() },
        };
        collector.collect(root);
        let mut dump = collector.dump;
        dump.alias(subject);
        dump
    }

    fn alias(&mut self, subject: &mut dyn Subject) {
        let mut first: BTreeMap<u64, OpPath> = BTreeMap::new();
        for (path, node) in &mut self.nodes {
            let identity = subject.identity(path);
            let earliest = first.entry(identity).or_insert_with(|| path.clone());
            node.first_path.clone_from(earliest);
        }
    }

    /// The differences of a file system (`seen`) from the model (`self`).
    pub fn differences(&self, seen: &Dump) -> Vec<String> {
        let mut found = Vec::new();
        for (path, node) in &self.nodes {
            match seen.nodes.get(path) {
                None => found.push(format!("{} is missing", show_path(path))),
                Some(other) => node.compare(path, other, &mut found),
            }
        }
        for path in seen.nodes.keys().filter(|path| !self.nodes.contains_key(*path)) {
            found.push(format!("{} should not be there", show_path(path)));
        }
        found
    }
}

impl DumpNode {
    fn compare(&self, path: &OpPath, seen: &DumpNode, found: &mut Vec<String>) {
        let path = show_path(path);
        if !self.stat.admits(&seen.stat) {
            found.push(format!("{path}: {:?} should be {:?}", seen.stat, self.stat));
        }
        if self.bytes != seen.bytes {
            let same = self.bytes.iter().zip(&seen.bytes).take_while(|(one, two)| one == two);
            found.push(format!(
                "{path}: {} bytes of contents should be {}, different from byte {}",
                seen.bytes.len(),
                self.bytes.len(),
                same.count()
            ));
        }
        if self.xattrs != seen.xattrs {
            found.push(format!("{path}: attributes {:?} should be {:?}", seen.xattrs, self.xattrs));
        }
        if self.snapshots != seen.snapshots {
            found.push(format!(
                "{path}: snapshots {:?} should be {:?}",
                seen.snapshots, self.snapshots
            ));
        }
        if self.first_path != seen.first_path {
            found.push(format!(
                "{path} is the same inode as {}, but should be as {}",
                show_path(&seen.first_path),
                show_path(&self.first_path)
            ));
        }
    }
}

struct Collector<'a> {
    subject: &'a mut dyn Subject,
    snapshot_dir: Vec<u8>,
    dump: Dump,
}

impl Collector<'_> {
    fn run(&mut self, op: &Op) -> Effect {
        let answer = self.subject.run(Timestamp(0), &Caller::root(), op);
        answer.unwrap_or_else(|kind| panic!("{op:?} of what was listed answers {kind:?}"))
    }

    fn collect(&mut self, root: OpPath) {
        let mut left = vec![(root, true)];
        while let Some((path, live)) = left.pop() {
            let Effect::Stat(stat) = self.run(&Op::Stat { target: Target::Path(path.clone()) })
            else {
                panic!("stat answers attributes")
            };
            let mut node = DumpNode {
                stat,
                bytes: self.bytes(&path, &stat),
                xattrs: self.xattrs(&path),
                snapshots: Vec::new(),
                first_path: OpPath::new(),
            };
            if stat.kind == Kind::Directory {
                for Listed { name, .. } in self.list(&path) {
                    left.push((joined(&path, &[&name]), live));
                }
                if live {
                    node.snapshots = self.snapshots(&path);
                    for name in &node.snapshots {
                        left.push((joined(&path, &[&self.snapshot_dir, name]), false));
                    }
                }
            }
            self.dump.nodes.insert(path, node);
        }
    }

    fn bytes(&mut self, path: &OpPath, stat: &Stat) -> Vec<u8> {
        let op = match stat.kind {
            Kind::File => Op::Read {
                target: Target::Path(path.clone()),
                offset: 0,
                length: stat.size as usize + 1,
            },
            Kind::Symlink => Op::Readlink { path: path.clone() },
            _ => return Vec::new(),
        };
        match self.run(&op) {
            Effect::Bytes(bytes) => bytes,
            other => panic!("{op:?} answers {other:?}"),
        }
    }

    fn xattrs(&mut self, path: &OpPath) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let names = self.run(&Op::ListXattr { path: path.clone() });
        let Effect::Names(names) = names else { panic!("listxattr answers names") };
        let mut found = BTreeMap::new();
        for name in names {
            let op = Op::GetXattr { path: path.clone(), name: name.clone() };
            let Effect::Bytes(value) = self.run(&op) else { panic!("getxattr answers bytes") };
            found.insert(name, value);
        }
        found
    }

    fn list(&mut self, path: &OpPath) -> Vec<Listed> {
        match self.run(&Op::List { path: path.clone() }) {
            Effect::List(listed) => listed,
            other => panic!("readdir answers {other:?}"),
        }
    }

    fn snapshots(&mut self, path: &OpPath) -> Vec<Vec<u8>> {
        match self.run(&Op::SnapshotList { directory: path.clone() }) {
            Effect::Names(names) => names,
            other => panic!("the list of snapshots is {other:?}"),
        }
    }
}

fn joined(path: &OpPath, names: &[&Vec<u8>]) -> OpPath {
    let mut path = path.clone();
    path.extend(names.iter().map(|&name| name.clone()));
    path
}
