//! A full comparison of two directories through the calls of the file system, which must agree with
//! what `Fs::compare` reports. The changes, applied to the old listing, must give the new one. Each
//! must be true, and none may be left out.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use format::acl::{ACCESS, DEFAULT};
use fs::{ChangeKind, Difference, Field, Fields, FileSystem, Follow, FsResult, WalkControl};
use inode::{Attr, Caller, FsError, Kind, NodeId};

/// What is at one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    attr: Attr,
    bytes: Vec<u8>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// What is at each path.
pub(super) type Listing = BTreeMap<Vec<u8>, Node>;

/// All that a caller may see below a directory, contents as root sees them.
pub(super) fn list(fs: &fs::Volume, caller: &Caller, directory: NodeId) -> Listing {
    let mut listing = Listing::new();
    let mut left = vec![(Vec::new(), directory)];
    let root = Caller::root();
    while let Some((path, node)) = left.pop() {
        listing.insert(path.clone(), look(fs, node));
        let mut names: Vec<Vec<u8>> = Vec::new();
        let attr = fs.getattr(&root, node).unwrap();
        if attr.kind == Kind::Directory && fs.access(caller, node, 5).is_ok() {
            fs.readdir(&root, node, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                WalkControl::Continue
            })
            .unwrap();
        }
        for name in names {
            let found = match fs.lookup(&root, node, &name) {
                Ok(found) => found,
                Err(error) => panic!("{}: {error:?}", name.escape_ascii()),
            };
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            left.push(([&path, slash, &name].concat(), found.node));
        }
    }
    listing
}

fn look(fs: &fs::Volume, node: NodeId) -> Node {
    let root = Caller::root();
    let attr = fs.getattr(&root, node).unwrap();
    let bytes = match attr.kind {
        Kind::File => {
            let mut bytes = vec![0; attr.size as usize];
            let length = fs.read(&root, node, 0, &mut bytes).unwrap();
            assert_eq!(length, bytes.len());
            bytes
        }
        Kind::Symlink => fs.readlink(&root, node).unwrap(),
        _ => Vec::new(),
    };
    let names = fs.listxattr(&root, node).unwrap();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| (name.to_vec(), fs.getxattr(&root, node, name).unwrap());
    Node { attr, bytes, xattrs: names.map(value).collect() }
}

/// Runs a comparison.
pub(super) fn compare(
    fs: &fs::Volume,
    caller: &Caller,
    nodes: (NodeId, NodeId),
    inodes_max: usize,
) -> FsResult<Vec<Difference>> {
    let mut found = Vec::new();
    let cancel = AtomicBool::new(false);
    let mut take = |difference: &Difference| {
        found.push(difference.clone());
        ControlFlow::Continue(())
    };
    let compared = fs.compare_in_passes(caller, nodes, inodes_max, (&cancel, &mut take))?;
    assert_eq!((compared.changes, compared.is_cut), (found.len() as u64, false));
    Ok(found)
}

/// The changes in a form that is short to write.
pub(super) fn reported(found: &[Difference]) -> Vec<String> {
    let text = |path: &[u8]| {
        if path.is_empty() { ".".to_owned() } else { String::from_utf8_lossy(path).into_owned() }
    };
    let one = |change: &Difference| {
        let link = if change.is_link { " link" } else { "" };
        let from = change.old.as_ref().map(|(path, _)| text(path)).unwrap_or_default();
        match change.kind {
            ChangeKind::Created => format!("+ {}{link}", text(change.path())),
            ChangeKind::Removed => format!("- {}{link}", text(change.path())),
            ChangeKind::Renamed => format!("R {from} -> {}", text(change.path())),
            ChangeKind::Modified => format!("M {}", text(change.path())),
        }
    };
    found.iter().map(one).collect()
}

/// Resolves a path, as root.
pub(super) fn at(fs: &fs::Volume, path: &str) -> NodeId {
    fs.resolve(&Caller::root(), path.as_bytes(), Follow::No).unwrap().node
}

/// Checks a comparison against a full one, in one pass and in many.
#[track_caller]
pub(super) fn check(
    fs: &fs::Volume,
    caller: &Caller,
    (old, new): (NodeId, NodeId),
) -> Vec<Difference> {
    let listings = [list(fs, caller, old), list(fs, caller, new)];
    let found = compare(fs, caller, (old, new), 1 << 16).unwrap();
    if let Err(what) = agrees(&listings, &found) {
        panic!("{what}\n{:#?}", reported(&found));
    }
    let mut in_passes = compare(fs, caller, (old, new), 3).unwrap();
    in_passes.sort_by(|a, b| (a.path(), a.kind).cmp(&(b.path(), b.kind)));
    let mut whole = found.clone();
    whole.sort_by(|a, b| (a.path(), a.kind).cmp(&(b.path(), b.kind)));
    assert_eq!(reported(&in_passes), reported(&whole), "in passes");
    found
}

/// Whether changes are exactly those that lead from one listing to another.
fn agrees([old, new]: &[Listing; 2], found: &[Difference]) -> Result<(), String> {
    let mut changed: BTreeMap<&[u8], &Difference> = BTreeMap::new();
    let mut created: BTreeSet<&[u8]> = BTreeSet::new();
    for change in found {
        let path = change.path();
        let shown = path.escape_ascii();
        match &change.old {
            None => {
                if !created.insert(path) {
                    return Err(format!("{shown} is created twice"));
                }
            }
            Some((path, _)) => {
                if changed.insert(path, change).is_some() {
                    return Err(format!("{shown} changes twice"));
                }
            }
        }
    }
    let mut became: BTreeMap<&[u8], Vec<u8>> = BTreeMap::new();
    for (path, node) in old {
        let shown = path.escape_ascii();
        let derived = match path.iter().rposition(|byte| *byte == b'/') {
            _ if path.is_empty() => Some(Vec::new()),
            None => Some(path.clone()),
            Some(end) => became.get(&path[..end]).map(|above| [above, &path[end..]].concat()),
        };
        let change = changed.get(path.as_slice());
        let now = match change {
            Some(Difference { new: None, .. }) => continue,
            Some(change) => change.path().to_vec(),
            None => derived.clone().ok_or_else(|| format!("{shown} is in a removed directory"))?,
        };
        let Some(other) = new.get(&now) else {
            return Err(format!("{shown} should be at {}", now.escape_ascii()));
        };
        let fields = fields(node, other);
        let reported = change.map_or(Fields::default(), |change| change.fields);
        let kind = change.map(|change| change.kind);
        if !is_true(node, other, fields, reported) {
            return Err(format!(
                "{shown}: {reported:?} and not {fields:?} differ: {node:?} {other:?}"
            ));
        }
        match kind {
            Some(ChangeKind::Modified) if reported.is_empty() || derived != Some(now.clone()) => {
                return Err(format!("{shown} is not modified"));
            }
            Some(ChangeKind::Renamed) if derived == Some(now.clone()) => {
                return Err(format!("{shown} is not renamed"));
            }
            _ => {}
        }
        became.insert(path, now);
    }
    let reached: BTreeSet<&[u8]> = became.values().map(Vec::as_slice).collect();
    if reached.len() != became.len() {
        return Err("two names become one".to_owned());
    }
    let fresh: BTreeSet<&[u8]> =
        new.keys().map(Vec::as_slice).filter(|path| !reached.contains(path)).collect();
    if fresh != created {
        return Err(format!("{fresh:?} are new, not {created:?}"));
    }
    Ok(())
}

/// In what two nodes differ.
fn fields(old: &Node, new: &Node) -> Fields {
    let (a, b) = (&old.attr, &new.attr);
    let mut fields = Fields::default();
    let lists = |node: &Node| [ACCESS, DEFAULT].map(|name| node.xattrs.get(name).cloned());
    let others = |node: &Node| {
        let mut others = node.xattrs.clone();
        others.retain(|name, _| ![ACCESS, DEFAULT].contains(&name.as_slice()));
        others
    };
    for (field, differs) in [
        (Field::Contents, old.bytes != new.bytes),
        (Field::Size, a.size != b.size),
        (Field::Mode, a.mode != b.mode),
        (Field::Uid, a.uid != b.uid),
        (Field::Gid, a.gid != b.gid),
        (Field::Device, a.rdev != b.rdev),
        (Field::Acl, lists(old) != lists(new)),
        (Field::Xattrs, others(old) != others(new)),
        (Field::Mtime, a.mtime != b.mtime),
        (Field::Ctime, a.ctime != b.ctime),
        (Field::Btime, a.btime != b.btime),
    ] {
        fields.add_if(field, differs);
    }
    fields
}

/// Whether the fields that are reported are those that differ. Contents may be reported where the
/// time of their last change differs.
fn is_true(old: &Node, new: &Node, mut right: Fields, reported: Fields) -> bool {
    let was_written = reported.has(Field::Mtime) && old.attr.kind == Kind::File;
    right.add_if(Field::Contents, reported.has(Field::Contents) && was_written);
    old.attr.kind == new.attr.kind && right == reported
}

/// Checks inodes of changes. A created or removed name is marked as a link if and only if the other
/// listing has its inode too. A renamed one is of one inode. For directories without subvolumes.
pub(super) fn check_inodes(fs: &fs::Volume, (old, new): (NodeId, NodeId), found: &[Difference]) {
    let listings = [list(fs, &Caller::root(), old), list(fs, &Caller::root(), new)];
    let inodes = listings
        .each_ref()
        .map(|listing| listing.values().map(|node| node.attr.node.ino()).collect::<BTreeSet<_>>());
    for change in found {
        let numbers =
            [&change.old, &change.new].map(|one| one.as_ref().map(|(_, attr)| attr.node.ino()));
        match numbers {
            [Some(one), Some(two)] => assert_eq!(one, two, "{change:?}"),
            [Some(one), None] => assert_eq!(inodes[1].contains(&one), change.is_link, "{change:?}"),
            [None, Some(two)] => assert_eq!(inodes[0].contains(&two), change.is_link, "{change:?}"),
            [None, None] => panic!("a change of nothing"),
        }
    }
}

/// Asserts that a comparison is refused.
#[track_caller]
pub(super) fn refused(fs: &fs::Volume, caller: &Caller, nodes: (NodeId, NodeId), want: &FsError) {
    crate::support::refused(compare(fs, caller, nodes, 100), want);
}
