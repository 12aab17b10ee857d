//! The inodes that front ends hold: how often each was looked up, and where its record is stored.
//!
//! A node is in the table from its first look-up until all look-ups are forgotten. Its location
//! changes only under the exclusive lock of the object. A node whose last name is removed, and
//! which owns nothing that survives a crash, has its whole inode in `Orphan`.

use std::hash::{Hash, Hasher};
use std::mem::take;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::{Mutex, MutexGuard};
use device::{Map, Set};
use format::directory_record::DirectoryRecord;
use format::inode_record::InodeRecord;
use format::xattr_record::XattrRecord;
use inode::permissions::HAS_ACL;
use inode::{Ino, NodeId, Slot};

/// Shards of the table: enough that threads rarely meet.
const SHARDS: usize = 64;

/// Number of moved nodes from which on those are dropped that no listing in progress can have
/// missed.
const MOVED_MANY: usize = 1024;

/// Where a node's record is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Location {
    /// A directory: under its own number.
    Directory,
    /// In the entry of its only name.
    Entry {
        /// The directory of the name.
        dir: u64,
        /// Its cookie there.
        cookie: u64,
    },
    /// Under its own number: it has several names, or no name but extents.
    Linked,
    /// In memory: it has no name any more.
    Orphan,
}

/// What remains of a held inode without a name.
#[derive(Debug, Clone)]
pub enum Orphan {
    /// Anything but a directory; it owns no extents.
    File {
        /// Attributes.
        inode: InodeRecord,
        /// Contents, or the target of a symbolic link.
        bulk: Vec<u8>,
        /// Extended attributes.
        xattrs: XattrRecord,
    },
    /// An empty directory.
    Directory(DirectoryRecord),
}

impl Orphan {
    /// What holders of a removed directory see of it.
    pub fn of_removed(record: DirectoryRecord) -> Orphan {
        let mode = record.mode & !HAS_ACL;
        Orphan::Directory(DirectoryRecord { has_xattrs: false, mode, ..record })
    }

    /// Takes contents and attributes, and leaves the rest.
    #[must_use]
    pub fn take(&mut self) -> Orphan {
        match self {
            Orphan::File { inode, bulk, xattrs } => {
                Orphan::File { inode: *inode, bulk: take(bulk), xattrs: take(xattrs) }
            }
            Orphan::Directory(record) => Orphan::Directory(*record),
        }
    }
}

// DO NOT ENLARGE: a key and its node take 32 bytes. With the map's overhead, that keeps a held
// inode below the 80 bytes of the memory budget. So both are packed to 4 bytes.
#[derive(Debug, Clone, Copy)]
#[repr(Rust, packed(4))]
struct Node {
    dir: u64,
    /// The cookie of an entry, which is at least 256; else one of those below.
    cookie: u64,
    lookups: u32,
}

/// A [`NodeId`] in less space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(Rust, packed(4))]
struct Key {
    ino: u64,
    slot: u32,
}

const _: () = assert!(size_of::<(Key, Node)>() == 32);

const DIRECTORY: u64 = 0;
const LINKED: u64 = 2;
const ORPHAN: u64 = 3;

impl Key {
    #[inline]
    fn of(node: NodeId) -> Key {
        Key { ino: node.ino().0, slot: node.slot().0 as u32 }
    }

    #[inline]
    fn node(self) -> NodeId {
        NodeId::of(Slot(u64::from(self.slot)), Ino(self.ino))
    }
}

impl Hash for Key {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.node().hash(state);
    }
}

impl Node {
    fn new(location: Location, lookups: u32) -> Node {
        let (dir, cookie) = match location {
            Location::Directory => (0, DIRECTORY),
            Location::Entry { dir, cookie } => (dir, cookie),
            Location::Linked => (0, LINKED),
            Location::Orphan => (0, ORPHAN),
        };
        Node { dir, cookie, lookups }
    }

    fn location(&self) -> Location {
        match self.cookie {
            DIRECTORY => Location::Directory,
            LINKED => Location::Linked,
            ORPHAN => Location::Orphan,
            cookie => Location::Entry { dir: self.dir, cookie },
        }
    }
}

/// The table.
pub struct NodeTable {
    shards: Box<[Mutex<Map<Key, Node>>; SHARDS]>,
    orphans: Mutex<Map<NodeId, Box<Orphan>>>,
    /// Nodes that were created without a name, and may get one.
    unnamed: Mutex<Set<NodeId>>,
    /// Listings in progress, by the turn in which they began: they read entries without locks, and
    /// add look-ups afterwards.
    listings: [AtomicUsize; 2],
    /// The turn in which a listing begins now: 0 or 1.
    turn: AtomicUsize,
    /// New places of nodes that moved while listings are in progress.
    moved: Mutex<Moved>,
}

/// New places of nodes, by the turn. A turn ends when no listing of the previous one is in
/// progress. All listings in progress have then read what moved in the previous turn in its new
/// place.
#[derive(Debug, Default)]
struct Moved {
    by_turn: [Map<NodeId, Location>; 2],
}

impl Moved {
    fn len(&self) -> usize {
        self.by_turn.iter().map(Map::len).sum()
    }

    fn get(&self, node: NodeId, turn: usize) -> Option<Location> {
        let [now, before] = [turn, 1 - turn].map(|turn| self.by_turn[turn].get(&node));
        now.or(before).copied()
    }
}

/// A listing in progress. [`Listing::correct`] corrects a node that moves after its entry was read
/// but before its look-up was counted.
pub struct Listing<'a> {
    table: &'a NodeTable,
    turn: usize,
}

impl Drop for Listing<'_> {
    fn drop(&mut self) {
        let table = self.table;
        if table.listings[self.turn].fetch_sub(1, Ordering::SeqCst) == 1 {
            let mut moved = table.moved.lock();
            if !table.is_listed() {
                moved.by_turn.iter_mut().for_each(Map::clear);
            }
        }
    }
}

impl Listing<'_> {
    /// Corrects the locations of nodes that moved since the listing began.
    pub fn correct(&self, nodes: &[NodeId]) {
        let moved = self.table.moved.lock();
        if moved.len() == 0 {
            return;
        }
        let turn = self.table.turn.load(Ordering::SeqCst);
        for node in nodes {
            if let Some(location) = moved.get(*node, turn) {
                self.table.set_location(*node, location);
            }
        }
    }
}

impl Default for NodeTable {
    fn default() -> NodeTable {
        NodeTable::new()
    }
}

impl NodeTable {
    /// An empty table.
    pub fn new() -> NodeTable {
        NodeTable {
            shards: Box::new(std::array::from_fn(|_| Mutex::new(Map::default()))),
            orphans: Mutex::new(Map::default()),
            unnamed: Mutex::new(Set::default()),
            listings: [AtomicUsize::new(0), AtomicUsize::new(0)],
            turn: AtomicUsize::new(0),
            moved: Mutex::new(Moved::default()),
        }
    }

    #[inline]
    fn shard(&self, node: NodeId) -> &Mutex<Map<Key, Node>> {
        // Neighbouring numbers go to different shards; the subvolume's bits are folded in.
        let mixed = node.ino().0 ^ node.slot().0;
        &self.shards[(mixed as usize) % SHARDS]
    }

    /// Adds a look-up. `location` is where the node is stored if it is not in the table yet; the
    /// caller holds a lock that keeps it there.
    #[inline]
    pub fn look_up(&self, node: NodeId, location: Location) {
        let mut shard = self.shard(node).lock();
        shard
            .entry(Key::of(node))
            .and_modify(|node| node.lookups = node.lookups.saturating_add(1))
            .or_insert_with(|| Node::new(location, 1));
    }

    /// Where a node is stored; `None` when it is not held.
    #[inline]
    pub fn location(&self, node: NodeId) -> Option<Location> {
        self.shard(node).lock().get(&Key::of(node)).map(Node::location)
    }

    /// Records a node's new location, after the commit that moved it.
    pub fn relocate(&self, node: NodeId, location: Location) {
        let _noted = self.note(node, location);
        self.set_location(node, location);
    }

    /// Whether a listing is in progress. The addition of 0 is a full fence: a listing that is not
    /// seen here began after what was committed before, and reads it.
    fn is_listed(&self) -> bool {
        self.listings.iter().any(|listings| listings.fetch_add(0, Ordering::SeqCst) > 0)
    }

    /// Records a node's new place for the listings in progress, after the commit that moved it. The
    /// caller sets the new location before it drops the result.
    fn note(&self, node: NodeId, location: Location) -> Option<MutexGuard<'_, Moved>> {
        if !self.is_listed() {
            return None;
        }
        let mut moved = self.moved.lock();
        if !self.is_listed() {
            // The last listing has dropped the records of moves, and none will drop this one.
            return None;
        }
        let turn = self.turn.load(Ordering::SeqCst);
        let before = 1 - turn;
        moved.by_turn[turn].insert(node, location);
        if moved.by_turn[turn].len() >= MOVED_MANY
            && self.listings[before].fetch_add(0, Ordering::SeqCst) == 0
        {
            take(&mut moved.by_turn[before]);
            self.turn.store(before, Ordering::SeqCst);
        }
        Some(moved)
    }

    fn set_location(&self, node: NodeId, location: Location) {
        if let Some(held) = self.shard(node).lock().get_mut(&Key::of(node)) {
            *held = Node::new(location, held.lookups);
        }
    }

    /// Turns a held node into an orphan; returns whether it is held.
    pub fn orphan(&self, node: NodeId, orphan: impl FnOnce() -> Orphan) -> bool {
        let _noted = self.note(node, Location::Orphan);
        let mut shard = self.shard(node).lock();
        let Some(held) = shard.get_mut(&Key::of(node)) else { return false };
        *held = Node::new(Location::Orphan, held.lookups);
        self.orphans.lock().insert(node, Box::new(orphan()));
        true
    }

    /// Holds a node that was created without a name, with one look-up.
    pub fn hold_unnamed(&self, node: NodeId, orphan: Orphan) {
        let mut shard = self.shard(node).lock();
        self.orphans.lock().insert(node, Box::new(orphan));
        self.unnamed.lock().insert(node);
        shard.insert(Key::of(node), Node::new(Location::Orphan, 1));
    }

    /// Whether a node was created without a name and never had one.
    pub fn is_unnamed(&self, node: NodeId) -> bool {
        self.unnamed.lock().contains(&node)
    }

    /// A node that was created without a name has one, and is stored on disk.
    pub fn name_unnamed(&self, node: NodeId) {
        self.store_orphan(node);
        self.unnamed.lock().remove(&node);
    }

    /// A copy of an orphan.
    pub fn orphan_of(&self, node: NodeId) -> Option<Orphan> {
        self.orphans.lock().get(&node).map(|orphan| (**orphan).clone())
    }

    /// Replaces an orphan, unless it was forgotten meanwhile.
    pub fn set_orphan(&self, node: NodeId, orphan: Orphan) {
        if let Some(slot) = self.orphans.lock().get_mut(&node) {
            **slot = orphan;
        }
    }

    /// Drops an orphan whose inode is stored on disk from now on.
    pub fn store_orphan(&self, node: NodeId) {
        let _noted = self.note(node, Location::Linked);
        let mut shard = self.shard(node).lock();
        if let Some(held) = shard.get_mut(&Key::of(node)) {
            *held = Node::new(Location::Linked, held.lookups);
        }
        self.orphans.lock().remove(&node);
    }

    /// Subtracts look-ups. When none is left, the node leaves the table and its last location is
    /// returned.
    pub fn forget(&self, node: NodeId, lookups: u64) -> Option<Location> {
        let mut shard = self.shard(node).lock();
        let held = shard.get_mut(&Key::of(node))?;
        let lookups = u32::try_from(lookups).unwrap_or(u32::MAX);
        held.lookups = held.lookups.saturating_sub(lookups);
        if held.lookups > 0 {
            return None;
        }
        let location = held.location();
        shard.remove(&Key::of(node));
        if location == Location::Orphan {
            self.orphans.lock().remove(&node);
        }
        if matches!(location, Location::Orphan | Location::Linked) {
            self.unnamed.lock().remove(&node);
        }
        Some(location)
    }

    /// Transfers the holders of one node to another: the root's holders know it by an alias.
    pub fn transfer(&self, from: NodeId, to: NodeId) {
        let Some(held) = self.shard(from).lock().remove(&Key::of(from)) else { return };
        let mut shard = self.shard(to).lock();
        let node = shard.entry(Key::of(to)).or_insert_with(|| Node::new(Location::Directory, 0));
        node.lookups = node.lookups.saturating_add(held.lookups);
    }

    /// Whether a node is held.
    pub fn is_held(&self, node: NodeId) -> bool {
        self.shard(node).lock().contains_key(&Key::of(node))
    }

    /// How many nodes are held.
    pub fn count(&self) -> u64 {
        self.shards.iter().map(|shard| shard.lock().len() as u64).sum()
    }

    /// Returns which of the given nodes are held.
    pub fn held(&self, is_wanted: impl Fn(NodeId, Location) -> bool) -> Vec<NodeId> {
        let mut held = Vec::new();
        for shard in &*self.shards {
            let shard = shard.lock();
            #[expect(clippy::iter_over_hash_type, reason = "they are sorted")]
            for (node, there) in &*shard {
                if is_wanted(node.node(), there.location()) {
                    held.push(node.node());
                }
            }
        }
        held.sort_unstable();
        held
    }

    /// The nodes of one shard, in order; `None`: there is no such shard.
    pub fn held_in_shard(&self, shard: usize) -> Option<Vec<NodeId>> {
        let shard = self.shards.get(shard)?.lock();
        let mut held: Vec<_> = shard.keys().map(|node| node.node()).collect();
        drop(shard);
        held.sort_unstable();
        Some(held)
    }

    /// The slots of the subvolumes in which a node is held.
    pub fn held_slots(&self) -> Set<u64> {
        let mut held = Set::default();
        for shard in &*self.shards {
            let shard = shard.lock();
            #[expect(clippy::iter_over_hash_type, reason = "they go into a set")]
            for node in shard.keys() {
                held.insert(u64::from(node.slot));
            }
        }
        held
    }

    /// Begins a listing, before its first entry is read.
    pub fn begin_listing(&self) -> Listing<'_> {
        // If the turn ends between the two, the listing may count for the turn before: then the
        // next turn merely begins later.
        let turn = self.turn.load(Ordering::SeqCst);
        self.listings[turn].fetch_add(1, Ordering::SeqCst);
        Listing { table: self, turn }
    }
}

#[cfg(test)]
mod tests {
    use format::inode_record::{FileKind, InodeRecord};
    use format::xattr_record::XattrRecord;
    use inode::NodeId;

    use super::{Listing, Location, MOVED_MANY, NodeTable, Orphan};

    fn file() -> Orphan {
        let inode = InodeRecord {
            kind: FileKind::File,
            has_bulk: true,
            has_xattrs: false,
            has_extents: false,
            mode: 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 1,
            allocated: 0,
            ctime: 0,
            mtime: 0,
            atime: 0,
            btime: 0,
            elsewhere: None,
            charge: None,
            charged_names: 0,
        };
        Orphan::File { inode, bulk: b"x".to_vec(), xattrs: XattrRecord::default() }
    }

    #[test]
    fn a_node_lives_until_all_look_ups_are_forgotten() {
        let table = NodeTable::new();
        let node = NodeId::narrow(77);
        let first = Location::Entry { dir: 1, cookie: 256 };
        table.look_up(node, first);
        table.look_up(node, Location::Linked);
        assert_eq!(table.location(node), Some(first), "the first location stays");
        table.relocate(node, Location::Linked);
        assert_eq!(table.forget(node, 1), None);
        assert_eq!(table.forget(node, 1), Some(Location::Linked));
        assert_eq!(table.location(node), None);
        assert_eq!(table.forget(node, 1), None);
    }

    #[test]
    fn a_listing_corrects_late_look_ups() {
        let table = NodeTable::new();
        let node = NodeId::narrow(78);
        let listing = table.begin_listing();
        let old = Location::Entry { dir: 1, cookie: 256 };
        let new = Location::Entry { dir: 2, cookie: 512 };
        table.relocate(node, new);
        table.look_up(node, old);
        assert_eq!(table.location(node), Some(old));
        listing.correct(&[node]);
        assert_eq!(table.location(node), Some(new));
        drop(listing);
        assert_eq!(table.moved.lock().len(), 0);
    }

    /// A listing does not restore a place that a node had before its last name was removed.
    #[test]
    fn a_listing_shows_nameless_files_without_a_path() {
        let table = NodeTable::new();
        let node = NodeId::narrow(79);
        let place = Location::Entry { dir: 1, cookie: 256 };
        table.look_up(node, place);
        let listing = table.begin_listing();
        table.relocate(node, place);
        table.look_up(node, place);
        assert!(table.orphan(node, file));
        listing.correct(&[node]);
        assert_eq!(table.location(node), Some(Location::Orphan));
        table.store_orphan(node);
        listing.correct(&[node]);
        assert_eq!(table.location(node), Some(Location::Linked), "it owns extents by now");
        assert!(table.orphan(node, file));
        listing.correct(&[node]);
        assert_eq!(table.forget(node, 2), Some(Location::Orphan));
        assert!(table.orphan_of(node).is_none(), "nobody holds it");
    }

    /// With listings that always overlap, moves before they began are dropped, and all moves since
    /// are kept.
    #[test]
    fn moved_nodes_are_released_while_listings_overlap() {
        let table = NodeTable::new();
        let many = MOVED_MANY as u64;
        let place = |node| Location::Entry { dir: 2, cookie: 256 * (node + 1) };
        let moved_since = |listing: &Listing<'_>, nodes: std::ops::Range<u64>| {
            for node in nodes {
                table.look_up(NodeId::narrow(node), Location::Linked);
                listing.correct(&[NodeId::narrow(node)]);
                assert_eq!(table.forget(NodeId::narrow(node), 1), Some(place(node)), "{node}");
            }
        };
        let mut older = table.begin_listing();
        for round in 0..20 {
            let younger = table.begin_listing();
            for node in round * many..(round + 1) * many {
                table.relocate(NodeId::narrow(node), place(node));
            }
            moved_since(&older, round.saturating_sub(1) * many..(round + 1) * many);
            moved_since(&younger, round * many..(round + 1) * many);
            older = younger;
            assert!(table.moved.lock().len() <= 4 * MOVED_MANY);
        }
        drop(older);
        assert_eq!(table.moved.lock().len(), 0);
    }
}
