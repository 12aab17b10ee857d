//! A small volume with one of everything. It has directories, small and large files, hard and
//! symbolic links, and short and long attributes. It also has a subvolume, a snapshot, a clone, an
//! index and a log.

use std::ops::ControlFlow;
use std::sync::Arc;

use device::Timestamp;
use fs::{Engine, FileSystem, Fs, NewNode, OpenOptions, SetXattr};
use inode::{Caller, Kind, NodeId};
use store::{Batch, Durability, Store};
use testing::SimDevice;
use testing::model::{Dump, Effect, ErrorKind, Op, OpPath, Subject, Target};

use super::env_of;
use crate::script::{SNAPSHOTS, options};
use crate::subject::{Base, FsSubject};

/// A volume in two states.
pub(crate) struct Made {
    /// Closed.
    pub(crate) device: SimDevice,
    /// After a crash: the last changes are in the log only.
    pub(crate) crashed: SimDevice,
    /// What is in it.
    pub(crate) right: Dump,
}

pub(crate) fn opened_with(durability: Durability) -> OpenOptions {
    let mut options = options(durability);
    options.data.segment_pages = 24;
    // Everything else is decided by the tests.
    options.prune_records = 1 << 20;
    options
}

pub(crate) fn file(fs: &Fs, dir: NodeId, name: &str, bytes: &[u8]) -> NodeId {
    let root = Caller::root();
    let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
    let node = fs.mknod(&root, dir, name.as_bytes(), &new).expect("it is there").node;
    if !bytes.is_empty() {
        fs.write(&root, node, 0, bytes).expect("it is there");
    }
    node
}

pub(crate) fn bytes(seed: u64, length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..length).map(|_| random.u8(..)).collect()
}

pub(crate) fn fill(fs: &Fs, dir: NodeId, seed: u64) {
    let root = Caller::root();
    for n in 0..24 {
        file(fs, dir, &format!("small {n}"), &bytes(seed + n, 40 * n as usize));
    }
    for n in 0..4 {
        let node = file(fs, dir, &format!("large {n}"), &bytes(seed + n, 9000 + 4096 * n as usize));
        fs.write(&root, node, 60_000, &bytes(seed, 5000)).expect("it is there");
    }
    let linked = file(fs, dir, "one name", &bytes(seed, 20_000));
    fs.link(&root, linked, dir, b"another name").expect("it is there");
    let tiny = file(fs, dir, "tiny", b"tiny");
    fs.link(&root, tiny, dir, b"tiny too").expect("it is there");
    fs.symlink(&root, dir, b"link", b"small 1").expect("it is there");
    fs.setxattr(&root, tiny, b"user.short", b"value", SetXattr::Any).expect("it is there");
    let long = fs.lookup(&root, dir, b"small 3").expect("it is there").node;
    fs.setxattr(&root, long, b"user.long", &bytes(seed, 9000), SetXattr::Any).expect("it is there");
    fs.setxattr(&root, dir, b"user.of", b"a directory", SetXattr::Any).expect("it is there");
}

pub(crate) fn settle(fs: &Fs) {
    for _ in 0..400 {
        if !fs.background_step(64).expect("it is there").more {
            break;
        }
    }
    fs.sync().expect("it is there");
}

/// Makes it, on an engine.
pub(crate) fn made(engine: Engine, seed: u64) -> Made {
    made_on(seed, &Base::Engine(engine))
}

/// Makes it on what is below.
pub(crate) fn made_on(seed: u64, base: &Base) -> Made {
    let device = SimDevice::new(seed);
    // What opens it with options of its own, such as a repair, then makes a small log, too.
    device.state_size(16 << 20);
    let options = opened_with(Durability::Async);
    let subject = FsSubject::format(&device, &options, base);
    let root = Caller::root();
    let fs = subject.fs();
    let one = fs.mkdir(&root, NodeId::ROOT, b"one", 0o755).expect("it is there").node;
    fill(fs, one, seed);
    let deep = fs.mkdir(&root, one, b"deep", 0o700).expect("it is there").node;
    let deeper = fs.mkdir(&root, deep, b"deeper", 0o700).expect("it is there").node;
    fill(fs, deeper, seed + 100);
    fs.snapshot_create(&root, one, b"before").expect("it is there");
    fs.clone_dir(&root, one, NodeId::ROOT, b"clone").expect("it is there");
    let sub = fs.subvolume_create(&root, deep, b"sub", 0o755).expect("it is there").node;
    fill(fs, sub, seed + 200);
    settle(fs);
    fs.index_flush(NodeId::ROOT).expect("it is there");
    let clone = fs.lookup(&root, NodeId::ROOT, b"clone").expect("it is there").node;
    for n in 0..6 {
        file(fs, clone, &format!("later {n}"), &bytes(n, 100 + 2000 * n as usize));
        file(fs, one, &format!("later {n}"), &bytes(n, 50));
    }
    fs.unlink(&root, one, b"large 2").expect("it is there");
    fs.index_flush(NodeId::ROOT).expect("it is there");
    settle(fs);
    file(fs, deep, "in the log", b"only");
    fs.sync().expect("it is there");
    let crashed = device.copy();
    fs.close().expect("it is there");
    drop(subject);
    let right = Dump::collect(&mut open(&device.copy()).expect("it is there"), SNAPSHOTS);
    Made { device, crashed, right }
}

/// Opens a volume, of whichever engine.
pub(crate) fn open(device: &SimDevice) -> Result<FsSubject, fs::OpenError> {
    // The engine is in the header.
    let base = Base::Engine(Engine::default());
    FsSubject::open(device, &opened_with(Durability::Async), &base)
}

/// A copy of a volume with records that were falsified in one batch.
pub(crate) fn falsified(
    device: &SimDevice,
    change: impl FnOnce(&dyn Store, &mut Batch),
) -> SimDevice {
    let device = device.copy();
    falsify(&device, |store| {
        let mut batch = Batch::new();
        change(store, &mut batch);
        store.commit(&batch).expect("there is space");
    });
    device
}

/// Opens the store of a volume beside the namespace, to falsify records.
pub(crate) fn falsify(device: &SimDevice, change: impl FnOnce(&dyn Store)) {
    let mut captured: Option<Arc<dyn Store>> = None;
    let options = OpenOptions { index: None, ..opened_with(Durability::Async) };
    let fs = Fs::open_through(env_of(device), &options, |store| {
        captured = Some(Arc::clone(&store));
        store
    });
    let fs = fs.expect("it is there");
    let store = captured.expect("it is there");
    change(&*store);
    fs.sync().expect("it is there");
    let mut proceed = |_, _| ControlFlow::Continue(());
    assert!(
        store.check(&mut proceed).expect("it is there").is_clean(),
        "the engine's part is whole"
    );
    fs.close().expect("it is there");
}

/// The outcome of a check of a volume.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Answers that were right.
    pub(crate) right: u64,
    /// Answers that were an I/O error.
    pub(crate) refused: u64,
    /// Answers that were neither, in words.
    pub(crate) wrong: Vec<String>,
    /// Why it could not be opened.
    pub(crate) closed: Option<String>,
}

impl Looked {
    pub(crate) fn is_same(&self) -> bool {
        self.refused == 0 && self.wrong.is_empty() && self.closed.is_none()
    }
}

/// Asks for everything that should be in a volume.
pub(crate) fn look(device: &SimDevice, right: &Dump) -> Looked {
    let mut looked = Looked::default();
    let mut subject = match open(device) {
        Ok(subject) => subject,
        Err(error) => {
            looked.closed = Some(error.to_string());
            return looked;
        }
    };
    ask(&mut subject, right, &mut looked, &mut |_, _, _| {});
    looked
}

/// Queries everything in an open volume; `refused` receives what was answered by an I/O error.
pub(crate) fn ask(
    subject: &mut FsSubject,
    right: &Dump,
    looked: &mut Looked,
    refused: &mut dyn FnMut(&FsSubject, &OpPath, &Op),
) {
    for (path, node) in &right.nodes {
        let target = || Target::Path(path.clone());
        let mut questions = vec![Op::Stat { target: target() }];
        match node.stat.kind {
            Kind::File => {
                let length = node.stat.size as usize + 1;
                questions.push(Op::Read { target: target(), offset: 0, length });
            }
            Kind::Symlink => questions.push(Op::Readlink { path: path.clone() }),
            Kind::Directory => questions.push(Op::List { path: path.clone() }),
            _ => {}
        }
        questions.extend(node.xattrs.keys().map(|name| {
            let name = name.clone();
            Op::GetXattr { path: path.clone(), name }
        }));
        for op in questions {
            match subject.run(Timestamp(0), &Caller::root(), &op) {
                Err(ErrorKind::Io) => {
                    looked.refused += 1;
                    refused(subject, path, &op);
                }
                Err(error) => looked.wrong.push(format!("{op:?}: {error:?}")),
                Ok(effect) => match difference(right, path, &op, &effect) {
                    None => looked.right += 1,
                    Some(what) => looked.wrong.push(format!("{op:?}: {what}")),
                },
            }
        }
    }
}

fn difference(right: &Dump, path: &OpPath, op: &Op, effect: &Effect) -> Option<String> {
    let node = &right.nodes[path];
    match (op, effect) {
        (Op::Stat { .. }, Effect::Stat(stat)) => {
            let (want, kind) = (&node.stat, stat.kind);
            let same = kind == want.kind
                && stat.uid == want.uid
                && stat.mode == want.mode
                // A directory may have `lost+found` by now.
                && (kind == Kind::Directory || (stat.size, stat.nlink) == (want.size, want.nlink));
            (!same).then(|| format!("{stat:?} not {want:?}"))
        }
        (Op::GetXattr { name, .. }, Effect::Bytes(value)) => {
            (node.xattrs[name] != *value).then(|| "a wrong attribute".to_owned())
        }
        (_, Effect::Bytes(bytes)) => (node.bytes != *bytes).then(|| "wrong contents".to_owned()),
        (_, Effect::List(listed)) => {
            let below = |other: &&OpPath| other.len() == path.len() + 1 && other.starts_with(path);
            let names: Vec<_> =
                right.nodes.keys().filter(below).filter_map(|path| path.last()).collect();
            let seen: Vec<_> = listed
                .iter()
                .map(|entry| &entry.name)
                .filter(|name| name.as_slice() != b"lost+found")
                .collect();
            (seen != names).then(|| format!("a wrong listing of {} names", seen.len()))
        }
        other => Some(format!("{other:?}")),
    }
}
