//! Every method of a file system is recorded once, or is one of those that no caller waits for.

use std::collections::BTreeSet;

use format::trace::Call;
use inode::{Caller, Enforce, Kind, NodeId, SetAttr};
use trace::Limits;
use vfs::{Allocate, FileSystem, NewNode, RenameMode, Seek, SetXattr, SyncScope, WalkControl};

use crate::support::{Tape, read, traced};

const ROOT: NodeId = NodeId::ROOT;

/// The trait, as text: a method that is new is in neither list below.
const API: &str = include_str!("../../../vfs/src/api.rs");

/// What is not recorded: what the process asks itself, without a call of a program, and locks,
/// which a replay cannot repeat.
const QUIET: [&str; 21] = [
    "copies_first",
    "epoch",
    "forget",
    "generation",
    "holds_name",
    "inode_uppers",
    "is_computed",
    "is_in_snapshot",
    "is_volatile",
    "keeps_locks",
    "lock",
    "may_be_held",
    "now",
    "set_invalidate",
    "set_shown_root",
    "settle",
    "takes_snapshots",
    "test_lock",
    "unlock",
    "unsettled",
    "waits",
];

/// Makes each call once; the number of its event, and its name.
type Make = fn(&dyn FileSystem, &Caller);

fn caller() -> Caller {
    Caller { enforce: Enforce::Kernel, ..Caller::root() }
}

fn file(fs: &dyn FileSystem, name: &[u8]) -> NodeId {
    fs.lookup(&caller(), ROOT, name).unwrap().node
}

/// All recorded methods; what they need was made before.
const CALLS: [(&str, Call, Make); 34] = [
    ("lookup", Call::Lookup, |fs, c| {
        fs.lookup(c, ROOT, b"f").unwrap();
    }),
    ("find_by_number", Call::Lookup, |fs, _| drop(fs.find_by_number(ROOT, ROOT))),
    ("readlink_untimed", Call::Readlink, |fs, c| {
        let node = file(fs, b"l");
        fs.readlink_untimed(c, node).unwrap();
    }),
    ("read_untimed", Call::Read, |fs, c| {
        let node = file(fs, b"f");
        fs.read_untimed(c, node, 0, &mut [0; 10]).unwrap();
    }),
    ("getattr", Call::Getattr, |fs, c| {
        fs.getattr(c, ROOT).unwrap();
    }),
    ("setattr", Call::Setattr, |fs, c| {
        let changes = SetAttr { mode: Some(0o700), ..SetAttr::default() };
        fs.setattr(c, ROOT, &changes).unwrap();
    }),
    ("access", Call::Access, |fs, c| fs.access(c, ROOT, 4).unwrap()),
    ("readlink", Call::Readlink, |fs, c| {
        let node = file(fs, b"l");
        fs.readlink(c, node).unwrap();
    }),
    ("mknod", Call::Mknod, |fs, c| {
        let new = NewNode { kind: Kind::Fifo, mode: 0o640, rdev: 0 };
        fs.mknod(c, ROOT, b"fifo", &new).unwrap();
    }),
    ("mkdir", Call::Mkdir, |fs, c| {
        fs.mkdir(c, ROOT, b"d", 0o755).unwrap();
    }),
    ("symlink", Call::Symlink, |fs, c| {
        fs.symlink(c, ROOT, b"s", b"target").unwrap();
    }),
    ("link", Call::Link, |fs, c| {
        let node = file(fs, b"f");
        fs.link(c, node, ROOT, b"further").unwrap();
    }),
    ("unlink", Call::Unlink, |fs, c| fs.unlink(c, ROOT, b"further").unwrap()),
    ("rmdir", Call::Rmdir, |fs, c| fs.rmdir(c, ROOT, b"d").unwrap()),
    ("rename", Call::Rename, |fs, c| {
        fs.rename(c, (ROOT, b"s"), (ROOT, b"t"), RenameMode::Replace).unwrap();
    }),
    ("read", Call::Read, |fs, c| {
        let node = file(fs, b"f");
        fs.read(c, node, 0, &mut [0; 10]).unwrap();
    }),
    ("write", Call::Write, |fs, c| {
        let node = file(fs, b"f");
        fs.write(c, node, 0, b"bytes").unwrap();
    }),
    ("append", Call::Write, |fs, c| {
        let node = file(fs, b"f");
        fs.append(c, node, b"bytes").unwrap();
    }),
    ("create", Call::Mknod, |fs, c| {
        fs.create(c, ROOT, b"created", (0o644, 2)).unwrap();
    }),
    ("open", Call::Open, |fs, c| {
        let node = file(fs, b"f");
        fs.open(c, node, 2).unwrap();
    }),
    ("opened", Call::Open, |fs, c| {
        let node = file(fs, b"f");
        fs.opened(c, node, 2).unwrap();
    }),
    ("released", Call::Release, |fs, c| {
        let node = file(fs, b"f");
        fs.released(c, node);
    }),
    ("tmpfile", Call::Tmpfile, |fs, c| drop(fs.tmpfile(c, ROOT, 0o600))),
    ("seek", Call::Seek, |fs, c| {
        let node = file(fs, b"f");
        drop(fs.seek(c, node, 0, Seek::Data));
    }),
    ("fallocate", Call::Fallocate, |fs, c| {
        let node = file(fs, b"f");
        drop(fs.fallocate(c, node, (0, 10), Allocate::Punch));
    }),
    ("copy_range", Call::CopyRange, |fs, c| {
        let node = file(fs, b"f");
        drop(fs.copy_range(c, (node, 0), (node, 100), 5));
    }),
    ("fsync", Call::Fsync, |fs, _| fs.fsync(ROOT, SyncScope::Data).unwrap()),
    ("sync_all", Call::Sync, |fs, _| fs.sync_all().unwrap()),
    ("readdir", Call::Readdir, |fs, c| {
        fs.readdir(c, ROOT, 0, &mut |_| WalkControl::Continue).unwrap();
    }),
    ("readdirplus", Call::Readdirplus, |fs, c| {
        fs.readdirplus(c, ROOT, 0, &mut |_| WalkControl::Continue).unwrap();
    }),
    ("statfs", Call::Statfs, |fs, _| {
        fs.statfs(ROOT).unwrap();
    }),
    ("setxattr", Call::Setxattr, |fs, c| {
        fs.setxattr(c, ROOT, b"user.a", b"value", SetXattr::Any).unwrap();
    }),
    ("getxattr", Call::Getxattr, |fs, c| drop(fs.getxattr(c, ROOT, b"user.a").unwrap())),
    ("listxattr", Call::Listxattr, |fs, c| drop(fs.listxattr(c, ROOT).unwrap())),
];

/// The methods of the trait.
fn methods() -> BTreeSet<&'static str> {
    let from = API.find("pub trait FileSystem").unwrap();
    let to = API.find("pub trait Invalidate").unwrap();
    let lines = API[from..to].lines().filter_map(|line| line.strip_prefix("    fn "));
    lines.map(|rest| rest.split('(').next().unwrap()).collect()
}

#[test]
fn every_method_is_recorded_once_or_listed_here() {
    let listed = CALLS.iter().map(|(name, ..)| *name).chain(QUIET).chain(["removexattr"]);
    assert_eq!(listed.collect::<BTreeSet<_>>(), methods());
    let remove: (_, _, Make) = ("removexattr", Call::Removexattr, |fs, c| {
        fs.removexattr(c, ROOT, b"user.a").unwrap();
    });
    for (name, call, make) in CALLS.into_iter().chain([remove]) {
        let tape = Tape::default();
        let (fs, recorder) = traced(&tape, Limits::default());
        let caller = caller();
        let new = NewNode { kind: Kind::File, mode: 0o640, rdev: 0 };
        fs.mknod(&caller, ROOT, b"f", &new).unwrap();
        fs.symlink(&caller, ROOT, b"l", b"target").unwrap();
        let mut before = 2;
        // What a call needs that another one makes.
        let needs = [("unlink", "link", 2), ("rmdir", "mkdir", 1), ("rename", "symlink", 1)];
        for (needs, made, events) in needs {
            if name == needs {
                let (_, _, prepare) = CALLS.into_iter().find(|(name, ..)| *name == made).unwrap();
                prepare(&fs, &caller);
                before += events;
            }
        }
        if name.starts_with("getx") || name.starts_with("removex") {
            fs.setxattr(&caller, ROOT, b"user.a", b"value", SetXattr::Any).unwrap();
            before += 1;
        }
        make(&fs, &caller);
        recorder.end();
        let mut seen = Vec::new();
        read(&tape.bytes(), |event| seen.push(event.call)).unwrap();
        // Some look a file up before.
        let after: Vec<_> = seen.into_iter().skip(before).collect();
        let own: Vec<_> = after.iter().filter(|&&one| one == call).collect();
        assert_eq!(own.len(), 1, "{name}: {after:?}");
        let others = after.iter().filter(|&&one| one != call && one != Call::Lookup).count();
        assert_eq!(others, 0, "{name}: {after:?}");
    }
}
