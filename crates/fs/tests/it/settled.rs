//! What an answer of a served volume rests on: [`FileSystem::unsettled`] names what must be durable
//! before the answer is sent.

use fs::{Engine, FileSystem, NewNode, RenameMode};
use inode::{Caller, Kind, NodeId};
use store::Durability;
use testing::{CrashPolicy, SimDevice};

use crate::script::options;
use crate::subject::{Base, FsSubject};

/// The changes, in order; each has made the name that is last in it.
const CHANGES: [(&str, &str); 4] = [("mkdir", "d"), ("mknod", "f"), ("rename", "g"), ("link", "h")];

fn change(fs: &fs::Volume, kind: &str, name: &[u8]) {
    let (root, top) = (Caller::root(), NodeId::ROOT);
    let made = match kind {
        "mkdir" => fs.mkdir(&root, top, name, 0o755).map(drop),
        "mknod" => {
            let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
            fs.mknod(&root, top, name, &new).map(drop)
        }
        "rename" => fs.rename(&root, (top, b"f"), (top, name), RenameMode::Replace),
        _ => {
            let file = fs.lookup(&root, top, b"g").expect("it was renamed").node;
            fs.link(&root, file, top, name).map(drop)
        }
    };
    made.unwrap_or_else(|error| panic!("{kind}: {error}"));
}

/// A server sends an answer once what this volume names is durable, and at once if it names
/// nothing. From then on power may be cut.
#[test]
fn a_crash_after_an_answer_keeps_what_the_answer_rests_on() {
    let (device, base) = (SimDevice::new(1), Base::Engine(Engine::default()));
    let options = options(Durability::Settled);
    let subject = FsSubject::format(&device, &options, &base);
    let fs = subject.fs();
    fs.sync().expect("durable");
    for (at, (kind, name)) in CHANGES.into_iter().enumerate() {
        change(fs, kind, name.as_bytes());
        // An answer that has only seen the change rests on it, too.
        fs.lookup(&Caller::root(), NodeId::ROOT, name.as_bytes()).expect("it was made");
        if let Some(position) = fs.unsettled() {
            fs.settle(position).expect("durable");
            assert_eq!(fs.unsettled(), None, "{kind}: it was settled");
        }
        let crashed = device.after_crash(CrashPolicy::LoseAll, at as u64);
        let after = FsSubject::open(&crashed, &options, subject.base()).expect("it opens");
        let found = after.fs().lookup(&Caller::root(), NodeId::ROOT, name.as_bytes());
        assert!(found.is_ok(), "{kind} was answered, and a crash lost it: {found:?}");
    }
}
