//! Notifies front ends, when a scan ends, of its changes to what they hold.
//!
//! That is the difference between the tree before and the one after. It is read before the tree is
//! replaced, because the old tree may be removed then. If too much differs for single
//! notifications, everything that is held is invalidated.

use std::collections::BTreeSet;

use format::entry_record::EntryHead;
use format::key::{self, Parsed, Part};
use policy::Governed;
use store::TreeId;
use vfs::FsResult;
use volume::error::{from_store, malformed};
use volume::subvol::Subvol;
use volume::view::{NameBuf, View};

/// Differences that are notified one by one.
const DIFFERENCES_MAX: usize = 4096;

/// What differs.
pub(super) enum Notify {
    /// Names (directory, name), and inodes.
    Some(BTreeSet<(u64, Vec<u8>)>, BTreeSet<u64>),
    /// Too much.
    All,
}

impl Notify {
    /// What differs between two states of an index.
    pub(super) fn between(fs: &Governed, old: TreeId, new: TreeId) -> FsResult<Notify> {
        let (mut names, mut inodes) = (BTreeSet::new(), BTreeSet::new());
        if !fs.has_front_end() {
            return Ok(Notify::Some(names, inodes));
        }
        let view = View::new(&*fs.store, new);
        let mut cursor = fs.store.diff(old, new).map_err(from_store)?;
        let mut count = 0;
        while let Some(diff) = cursor.next().map_err(from_store)? {
            count += 1;
            if count > DIFFERENCES_MAX {
                return Ok(Notify::All);
            }
            let malformed = |error| malformed(new, &error);
            match key::parse(diff.key).map_err(malformed)? {
                Parsed::Entry { directory, cookie: 0, .. } => {
                    inodes.insert(directory);
                }
                Parsed::Entry { directory, part: Part::Attributes, .. } => {
                    for value in [diff.old, diff.new].into_iter().flatten() {
                        let head = EntryHead::decode(value).map_err(malformed)?;
                        if head.kind.is_some() {
                            names.insert((directory, head.name.to_vec()));
                            inodes.insert(head.ino);
                        }
                    }
                }
                Parsed::Entry { directory, cookie, .. } => {
                    let found = view.entry_at(directory, cookie, &mut NameBuf::empty())?;
                    inodes.extend(found.map(|found| found.ino));
                }
                Parsed::Linked { ino, .. } => {
                    inodes.insert(ino);
                }
                _ => {}
            }
        }
        Ok(Notify::Some(names, inodes))
    }

    /// Sends the notifications, after the commit and without locks.
    pub(super) fn send(self, fs: &Governed, subvol: &Subvol) {
        let is_held = |ino| {
            let node = subvol.node(ino);
            node == fs.root() || fs.nodes.is_held(node)
        };
        match self {
            Notify::Some(names, inodes) => {
                for (directory, name) in names.iter().filter(|(directory, _)| is_held(*directory)) {
                    fs.invalidate_entry(subvol.node(*directory), name);
                }
                for ino in inodes.into_iter().filter(|ino| is_held(*ino)) {
                    fs.invalidate_node(subvol.node(ino));
                }
            }
            Notify::All => {
                fs.invalidate_node(subvol.root_node());
                for node in fs.nodes.held(|node, _| node.slot() == subvol.id.slot()) {
                    fs.invalidate_node(node);
                }
                fs.invalidate_all_names();
            }
        }
    }
}
