//! All of a tree, in every attribute, to be compared with another one: through the calls of the
//! file system.

use std::collections::BTreeMap;

use fs::{FileSystem, Fs, Seek, WalkControl};
use inode::{Caller, Kind, NodeId};

/// Unit of holes.
const PAGE: u64 = 4096;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    rdev: u32,
    size: u64,
    times: [i64; 4],
    bytes: Vec<u8>,
    /// Where ranges of data begin and end, in pages; none of files of one page.
    ranges: Vec<(u64, u64)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The first path of the same inode.
    first: Vec<u8>,
}

impl Node {
    /// Has no contents.
    pub(crate) fn forget_contents(&mut self) {
        if self.kind == Kind::File {
            self.bytes.clear();
            self.ranges.clear();
        }
    }

    /// Has no time of the last read, which is no change by itself.
    pub(crate) fn forget_read(&mut self) {
        self.times[0] = 0;
    }
}

pub(crate) type Listing = BTreeMap<Vec<u8>, Node>;

/// All below a directory.
pub(crate) fn list(fs: &Fs, directory: NodeId) -> Listing {
    let mut listing = Listing::new();
    let mut firsts: BTreeMap<NodeId, Vec<u8>> = BTreeMap::new();
    let mut left = BTreeMap::from([(Vec::new(), directory)]);
    let root = Caller::root();
    while let Some((path, node)) = left.pop_first() {
        let attr = fs.getattr(&root, node).unwrap();
        let first = match attr.kind {
            Kind::Directory => path.clone(),
            _ => firsts.entry(node).or_insert_with(|| path.clone()).clone(),
        };
        listing.insert(path.clone(), look(fs, node, first));
        let mut names: Vec<Vec<u8>> = Vec::new();
        if attr.kind == Kind::Directory {
            fs.readdir(&root, node, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                WalkControl::Continue
            })
            .unwrap();
        }
        for name in names {
            let found = fs.lookup(&root, node, &name).unwrap();
            let slash: &[u8] = if path.is_empty() { b"" } else { b"/" };
            left.insert([&path, slash, &name].concat(), found.node);
        }
    }
    listing
}

fn look(fs: &Fs, node: NodeId, first: Vec<u8>) -> Node {
    let root = Caller::root();
    let attr = fs.getattr(&root, node).unwrap();
    let (mut bytes, mut ranges) = (Vec::new(), Vec::<(u64, u64)>::new());
    match attr.kind {
        Kind::File => {
            bytes = vec![0; attr.size as usize];
            assert_eq!(fs.read_untimed(&root, node, 0, &mut bytes).unwrap(), bytes.len());
            let mut at = 0;
            while at < attr.size
                && attr.size > PAGE
                && let Ok(start) = fs.seek(&root, node, at, Seek::Data)
            {
                let end = fs.seek(&root, node, start, Seek::Hole).unwrap();
                at = end;
                // How few bytes are stored depends on how they were written.
                let (start, end) = (start / PAGE, end.div_ceil(PAGE));
                match ranges.last_mut() {
                    Some((_, last)) if *last >= start => *last = end,
                    _ => ranges.push((start, end)),
                }
            }
        }
        Kind::Symlink => bytes = fs.readlink_untimed(&root, node).unwrap(),
        _ => {}
    }
    let names = fs.listxattr(&root, node).unwrap();
    let names = names.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    let value = |name: &[u8]| (name.to_vec(), fs.getxattr(&root, node, name).unwrap());
    Node {
        kind: attr.kind,
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        size: attr.size,
        times: [attr.atime.0, attr.mtime.0, attr.ctime.0, attr.btime.0],
        bytes,
        ranges,
        xattrs: names.map(value).collect(),
        first,
    }
}

/// Asserts that two trees are equal.
#[track_caller]
pub(crate) fn assert_equal(what: &str, expected: &Listing, found: &Listing) {
    let mut wrong = Vec::new();
    for (path, node) in expected {
        match found.get(path) {
            None => wrong.push(format!("{} is missing", path.escape_ascii())),
            Some(other) if other != node => {
                let (mut one, mut two) = (node.clone(), other.clone());
                if one.bytes == two.bytes {
                    one.bytes.clear();
                    two.bytes.clear();
                }
                wrong.push(format!("{}:\n  {one:?}\n  {two:?}", path.escape_ascii()));
            }
            Some(_) => {}
        }
    }
    let more = found.keys().filter(|path| !expected.contains_key(*path));
    wrong.extend(more.map(|path| format!("{} is too much", path.escape_ascii())));
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}
