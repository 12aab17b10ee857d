//! Each kind of change is executed once, also if its repeat arrives at a process that continues the
//! session. The list of changes has every call that changes something, and every mode of it.

use std::collections::BTreeSet;

use fs::Engine;
use inode::{Caller, FsError, Kind, NodeId};
use remote::Lasting;
use vfs::{FileSystem, Request};
use wire::remote::{
    Changes, FsAnswer, FsCall, FsFailure, HeldNode, MODES_OF_ALLOCATE, Node, OPEN_READ, OPEN_WRITE,
    Renaming, Resume, WRITE_APPEND,
};

use crate::lasting::{Raw, ServedVolume};

const CALLS: &str = include_str!("../../../wire/src/remote/call.rs");
const KINDS: &str = include_str!("../../../inode/src/attr.rs");
/// Larger than what is kept beside an inode.
const LARGE: &[u8] = &[5; 100_000];
/// Names in the root that calls make, remove or rename.
const NAMES: [&[u8]; 16] = [
    b"file", b"large", b"made", b"fifo", b"socket", b"char", b"block", b"dir", b"soft", b"hard",
    b"gone", b"one", b"other", b"dir2", b"white", b"copy",
];

/// What must be the same in the answer to a repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Node(Node),
    Number(u64),
    Done,
    /// What it made was removed since.
    Gone,
}

/// A volume, its client, and the changes of the client.
struct Made {
    raw: Raw,
    calls: Vec<(FsCall<'static>, Outcome)>,
    held: Vec<HeldNode>,
}

/// What is after `begins` up to the end of its block.
fn block<'s>(source: &'s str, begins: &str) -> &'s str {
    let at = source.find(begins).expect(begins) + begins.len();
    &source[at..at + source[at..].find("\n}").unwrap()]
}

/// The names of the variants of an enum.
fn variants(source: &str, name: &str) -> Vec<String> {
    let lines = block(source, &format!("pub enum {name} {{")).lines().map(str::trim);
    let names = lines.filter(|line| line.starts_with(|c: char| c.is_ascii_uppercase()));
    names.map(|line| line.trim_end_matches(',').to_owned()).collect()
}

/// A call, and its mode if it has several.
fn kind_of(call: &FsCall<'_>) -> String {
    match call {
        FsCall::Rename { how, .. } => format!("Rename {how:?}"),
        FsCall::Allocate { mode, .. } => format!("Allocate {mode}"),
        FsCall::MakeNode { kind, .. } => format!("MakeNode {kind:?}"),
        FsCall::Write { flags, .. } => format!("Write {flags}"),
        other => {
            let text = format!("{other:?}");
            text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap().to_owned()
        }
    }
}

/// All kinds of calls that change something.
fn kinds() -> BTreeSet<String> {
    let (_, changes) = CALLS.split_once("pub fn changes(").expect("a list of changes");
    let (changes, _) = changes.split_once("=> true").expect("those that change something");
    let names = changes.split("FsCall::").skip(1).map(|rest| rest.split(' ').next().unwrap());
    let modes = |name: &str| -> Vec<String> {
        match name {
            "Rename" => variants(CALLS, "Renaming"),
            "Allocate" => (0..MODES_OF_ALLOCATE).map(|mode| mode.to_string()).collect(),
            "MakeNode" => {
                let kinds = variants(KINDS, "Kind").into_iter();
                kinds.filter(|kind| !["Directory", "Symlink"].contains(&&**kind)).collect()
            }
            "Write" => vec!["0".to_owned(), WRITE_APPEND.to_string()],
            _ => Vec::new(),
        }
    };
    let named = |name: &str| match &modes(name)[..] {
        [] => vec![name.to_owned()],
        modes => modes.iter().map(|mode| format!("{name} {mode}")).collect(),
    };
    names.flat_map(named).collect()
}

impl Made {
    /// Asks for something that changes nothing.
    fn look_up(&mut self, parent: Node, name: &'static [u8]) -> Node {
        let entry = self.raw.ask(0, FsCall::Lookup { parent, name }, |answer| match answer {
            Ok(FsAnswer::Entry(entry)) => entry,
            other => panic!("{other:?}"),
        });
        entry.node
    }

    /// Makes a change.
    fn change(&mut self, call: FsCall<'static>) -> Outcome {
        let once = self.calls.len() as u64 + 1;
        let outcome = ask(&mut self.raw, once, &call, &mut self.held);
        self.calls.push((call, outcome));
        outcome
    }

    fn node(&mut self, call: FsCall<'static>) -> Node {
        match self.change(call) {
            Outcome::Node(node) => node,
            other => panic!("{other:?}"),
        }
    }

    fn rename(&mut self, from_name: &'static [u8], to_name: &'static [u8], how: Renaming) {
        let (from, to) = (Node::ROOT, Node::ROOT);
        self.change(FsCall::Rename { from, from_name, to, to_name, how });
    }
}

/// Asks for a change of a number; notes what the client holds then.
fn ask(raw: &mut Raw, once: u64, call: &FsCall<'static>, held: &mut Vec<HeldNode>) -> Outcome {
    let opened = match call {
        FsCall::Create { flags, .. } | FsCall::TmpFile { flags, .. } => Some(*flags),
        _ => None,
    };
    raw.ask_once((once, 0), 0, call.clone(), |answer| match answer {
        Ok(FsAnswer::Entry(entry)) => {
            let proofs = vec![(opened.unwrap_or(0), entry.proof)];
            let opens = u32::from(opened.is_some());
            let (node, generation) = (entry.node, entry.generation);
            held.push(HeldNode { node, generation, lookups: 1, opens, proofs });
            Outcome::Node(node)
        }
        Ok(FsAnswer::Number(number)) => Outcome::Number(number),
        Ok(FsAnswer::Nothing | FsAnswer::Attr(_)) => Outcome::Done,
        Err(FsFailure::Stale) => Outcome::Gone,
        other => panic!("change {once}, {call:?}: {other:?}"),
    })
}

fn make_nodes(made: &mut Made) {
    let parent = Node::ROOT;
    for (name, kind) in [
        (&b"made"[..], Kind::File),
        (b"fifo", Kind::Fifo),
        (b"socket", Kind::Socket),
        (b"char", Kind::CharDevice),
        (b"block", Kind::BlockDevice),
    ] {
        made.node(FsCall::MakeNode { parent, name, kind, mode: 0o644, rdev: 0x103 });
    }
    let flags = OPEN_READ | OPEN_WRITE;
    made.node(FsCall::TmpFile { parent, mode: 0o600, flags });
    made.node(FsCall::SymLink { parent, name: b"soft", target: b"file" });
}

/// Changes of contents; the second file's are too large to be kept beside its inode.
fn contents(made: &mut Made) -> Node {
    let (parent, mode, flags) = (Node::ROOT, 0o644, OPEN_READ | OPEN_WRITE);
    let file = made.node(FsCall::Create { parent, name: b"file", mode, flags });
    let large = made.node(FsCall::Create { parent, name: b"large", mode, flags });
    let copy = made.node(FsCall::Create { parent, name: b"copy", mode, flags });
    made.change(FsCall::Write { node: file, offset: 0, flags: 0, bytes: b"contents" });
    made.change(FsCall::Write { node: large, offset: 1 << 20, flags: 0, bytes: LARGE });
    for (node, bytes) in [(file, &b" and more"[..]), (large, LARGE), (file, LARGE)] {
        made.change(FsCall::Write { node, offset: 0, flags: WRITE_APPEND, bytes });
    }
    for mode in 0..MODES_OF_ALLOCATE {
        for (node, offset) in [(file, 2), (large, 1 << 20)] {
            let length = 50_000;
            made.change(FsCall::Allocate { node, offset, length, mode });
        }
    }
    for (from, to_offset, length) in [(file, 0, 5), (large, 8 << 20, 90_000)] {
        let from_offset = if from == large { 1 << 20 } else { 0 };
        let outcome =
            made.change(FsCall::CopyRange { from, from_offset, to: copy, to_offset, length });
        assert!(matches!(outcome, Outcome::Number(1..)), "{outcome:?}");
    }
    file
}

fn names(made: &mut Made, file: Node) {
    let parent = Node::ROOT;
    let dir = made.node(FsCall::MakeDir { parent, name: b"dir", mode: 0o755 });
    made.node(FsCall::MakeDir { parent, name: b"gone", mode: 0o755 });
    made.change(FsCall::RemoveDir { parent, name: b"gone" });
    made.node(FsCall::Link { node: file, parent: dir, name: b"hard" });
    made.node(FsCall::Link { node: file, parent, name: b"hard" });
    made.change(FsCall::Unlink { parent, name: b"hard" });
    made.rename(b"made", b"one", Renaming::Replace);
    made.rename(b"one", b"other", Renaming::NoReplace);
    made.rename(b"other", b"fifo", Renaming::Exchange);
    made.rename(b"other", b"white", Renaming::Whiteout);
    made.rename(b"white", b"one", Renaming::NoReplaceWhiteout);
    made.rename(b"dir", b"dir2", Renaming::Replace);
    let bits = |mode| Changes { mode: Some(mode), ..Changes::default() };
    made.change(FsCall::SetAttr { node: file, changes: bits(0o640) });
    let changes = Changes { size: Some(7), ..bits(0o600) };
    made.change(FsCall::SetAttr { node: file, changes });
    for how in 0..3 {
        let (name, value) = (&b"user.a"[..], &b"value"[..]);
        made.change(FsCall::SetXattr { node: file, name, value, how });
        if how == 0 {
            made.change(FsCall::RemoveXattr { node: file, name });
        }
    }
}

/// Snapshots are made, renamed and removed as directories.
fn snapshots(made: &mut Made, parent: Node) {
    for name in [&b"monday"[..], b"tuesday"] {
        made.node(FsCall::MakeDir { parent, name, mode: 0o755 });
    }
    let (from_name, to_name, how) = (b"tuesday", b"friday", Renaming::Replace);
    made.change(FsCall::Rename { from: parent, from_name, to: parent, to_name, how });
    made.change(FsCall::RemoveDir { parent, name: b"friday" });
}

/// What a user sees of the volume.
fn state(place: &ServedVolume) -> Vec<String> {
    let (fs, root) = (place.fs(), Caller::root());
    let see = |name: &&[u8]| match fs.lookup(&root, NodeId::ROOT, name) {
        Ok(entry) => {
            let attr = entry.attr;
            fs.forget(entry.node, 1);
            format!("{:?} {} {:o} {}", attr.node, attr.size, attr.mode, attr.nlink)
        }
        Err(error) => error.to_string(),
    };
    let mut seen: Vec<String> = NAMES.iter().map(see).collect();
    let snapshots = fs.snapshot_list(&root, NodeId::ROOT).unwrap();
    seen.extend(snapshots.iter().map(|snapshot| format!("{:?}", snapshot.name)));
    seen
}

#[test]
fn each_kind_of_change_is_executed_once() {
    for engine in [Engine::Btree, Engine::Lsm] {
        let mut place = ServedVolume::new(engine);
        let raw = Raw::begin(&place, None);
        let mut made = Made { raw, calls: Vec::new(), held: Vec::new() };
        let directory = made.look_up(Node::ROOT, b".snapshots");
        make_nodes(&mut made);
        let file = contents(&mut made);
        names(&mut made, file);
        snapshots(&mut made, directory);
        let Made { raw, calls, held } = made;
        let there: BTreeSet<String> = calls.iter().map(|(call, _)| kind_of(call)).collect();
        let missing: Vec<_> = kinds().difference(&there).cloned().collect();
        assert!(missing.is_empty(), "no change of the list is {missing:?}");
        assert!(calls.iter().all(|(call, _)| call.changes()));
        let before = state(&place);
        place.replace();
        // The volume has each: under another hash it is refused as another request.
        let session = raw.welcome.session.secret;
        for (at, (call, _)) in calls.iter().enumerate() {
            let request = Request { session, number: at as u64 + 1, hash: 0 };
            let executed = Lasting::executed(&**place.fs(), &request);
            let is_there = matches!(executed, Err(FsError::InvalidArgument(_)));
            assert!(is_there, "{call:?} is not in the volume: {executed:?}");
        }
        let mut raw = Raw::begin(&place, Some(Resume { attempt: 1, ..raw.welcome.session }));
        assert!(raw.welcome.resumed && raw.welcome.reclaims);
        raw.claim(held);
        // (What a request acknowledges is part of it, and so must be the same: as many calls came
        // before.)
        assert!(raw.ask(0, FsCall::GetAttr { node: Node::ROOT }, |answer| answer.is_ok()));
        for (at, (call, outcome)) in calls.iter().enumerate() {
            let again = ask(&mut raw, at as u64 + 1, call, &mut Vec::new());
            let is_gone = |name: &[u8]| [&b"gone"[..], b"tuesday"].contains(&name);
            match call {
                FsCall::MakeDir { name, .. } if is_gone(name) => assert_eq!(again, Outcome::Gone),
                _ => assert_eq!(again, *outcome, "{call:?}"),
            }
        }
        assert_eq!(state(&place), before, "a repeat changed something");
        // (What is not repeated is executed.)
        let call = FsCall::Unlink { parent: Node::ROOT, name: b"large" };
        let once = (calls.len() as u64 + 1, 0);
        assert!(raw.ask_once(once, 0, call, |answer: Result<_, FsFailure>| answer.is_ok()));
        assert_ne!(state(&place), before);
    }
}
