//! A file system in memory that answers the calls of the namespace, for mounts in tests. It keeps
//! look-up counts exactly, checks permissions if configured to, and lets a test change things
//! behind the kernel's back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use device::{Clock, SystemClock, Timestamp};
use inode::permissions::without_set_id;
use inode::{Attr, Caller, Enforce, FsError, Kind, NodeId, SetAttr, SetTime, SubvolId};
use vfs::{
    Allocate, DirEntry, Entry, FileSystem, FsResult, Invalidate, ListedSnapshot, NewNode,
    RenameMode, Seek, SetXattr, Snapshots, StatFs, SyncScope, WalkControl,
};

/// The file system.
pub struct MemoryFs {
    state: Mutex<State>,
    invalidate: Mutex<Option<Arc<dyn Invalidate>>>,
    clock: SystemClock,
    /// Reports every new name as if another process had made it, from within the call.
    pub report_own_names: bool,
    /// The size of the root, if it must look large.
    pub root_entries_shown: Option<u64>,
    /// Calls of `fsync`.
    pub fsyncs: AtomicUsize,
    /// Changes of a mode.
    pub chmods: AtomicUsize,
    /// Calls of `lookup`.
    pub lookups: AtomicUsize,
    /// Held by a test, it stops the thread that answers `statfs` or a total, sets the length
    /// [`LONG`], or takes the snapshot [`LONG_SNAPSHOT`].
    pub gate: Mutex<()>,
    /// How often a thread reached the gate.
    pub at_gate: AtomicUsize,
    /// Answers reads with damage.
    pub damaged: std::sync::atomic::AtomicBool,
    /// A name that listings find no attributes of.
    pub unreadable: Option<&'static [u8]>,
    /// A name at which listings fail.
    pub unlistable: Option<&'static [u8]>,
    /// Nodes that inherit subvolumes, or are inherited. A write to one takes as long as the gate is
    /// held. So does a look-up of [`INHERITED`] in one.
    pub inherit: Mutex<BTreeSet<u64>>,
}

#[derive(Default)]
struct State {
    nodes: BTreeMap<u64, Node>,
    /// Roots of snapshots by directory and name.
    snapshots: BTreeMap<(u64, Vec<u8>), u64>,
    next: u64,
    next_cookie: u64,
}

struct Node {
    attr: Attr,
    parent: u64,
    lookups: u64,
    bytes: Vec<u8>,
    names: BTreeMap<Vec<u8>, u64>,
    entries: BTreeMap<u64, (Vec<u8>, u64)>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

const ROOT: u64 = 1;
/// What the root shows as its number: not the handle.
pub const ROOT_SHOWN: u64 = (1 << 40) + 1;

impl State {
    fn node(&mut self, node: NodeId) -> FsResult<&mut Node> {
        self.nodes.get_mut(&node.shown()).ok_or(FsError::Stale)
    }

    fn child(&mut self, parent: NodeId, name: &[u8]) -> FsResult<u64> {
        let directory = self.node(parent)?;
        match name {
            b"." => Ok(parent.shown()),
            b".." => Ok(directory.parent),
            _ if directory.attr.kind != Kind::Directory => Err(FsError::NotDirectory),
            _ => {
                let cookie = directory.names.get(name).ok_or(FsError::NotFound)?;
                Ok(directory.entries[cookie].1)
            }
        }
    }

    fn attach(&mut self, parent: NodeId, name: &[u8], node: u64) -> FsResult<()> {
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        self.next_cookie += 1;
        let cookie = self.next_cookie + 2;
        let directory = self.node(parent)?;
        if directory.names.contains_key(name) {
            return Err(FsError::Exists);
        }
        directory.names.insert(name.to_vec(), cookie);
        directory.entries.insert(cookie, (name.to_vec(), node));
        Ok(())
    }

    fn detach(&mut self, parent: NodeId, name: &[u8]) -> FsResult<u64> {
        let directory = self.node(parent)?;
        let cookie = directory.names.remove(name).ok_or(FsError::NotFound)?;
        Ok(directory.entries.remove(&cookie).expect("both maps have it").1)
    }

    fn drop_link(&mut self, node: u64) {
        if let Some(found) = self.nodes.get_mut(&node) {
            let directory = found.attr.kind == Kind::Directory;
            found.attr.nlink = if directory { 0 } else { found.attr.nlink - 1 };
            self.reap(node);
        }
    }

    fn reap(&mut self, node: u64) {
        if self.nodes.get(&node).is_some_and(|found| found.attr.nlink == 0 && found.lookups == 0) {
            self.nodes.remove(&node);
        }
    }

    fn entry(&mut self, node: u64) -> FsResult<Entry> {
        let found = self.node(NodeId::narrow(node))?;
        found.lookups += 1;
        Ok(Entry { node: NodeId::narrow(node), attr: found.attr })
    }
}

/// Setting a file to this length takes as long as the gate is held.
pub const LONG: u64 = 424_242;

/// Taking a snapshot whose name begins with this takes as long as the gate is held.
pub const LONG_SNAPSHOT: &str = "long";

/// A look-up of this name in one of `MemoryFs::inherit` takes as long as the gate is held.
pub const INHERITED: &str = "inherited";

impl Default for MemoryFs {
    fn default() -> MemoryFs {
        MemoryFs::new()
    }
}

impl MemoryFs {
    /// An empty one.
    pub fn new() -> MemoryFs {
        let fs = MemoryFs {
            state: Mutex::new(State { next: 100, ..State::default() }),
            invalidate: Mutex::new(None),
            clock: SystemClock::new(),
            report_own_names: false,
            root_entries_shown: None,
            fsyncs: AtomicUsize::new(0),
            chmods: AtomicUsize::new(0),
            lookups: AtomicUsize::new(0),
            gate: Mutex::new(()),
            at_gate: AtomicUsize::new(0),
            damaged: std::sync::atomic::AtomicBool::new(false),
            unreadable: None,
            unlistable: None,
            inherit: Mutex::default(),
        };
        let mut root = fs.fresh(ROOT, Kind::Directory, 0o755, &Caller::root());
        root.attr.node = NodeId::narrow(ROOT_SHOWN);
        fs.state.lock().nodes.insert(ROOT, root);
        fs
    }

    fn fresh(&self, number: u64, kind: Kind, mode: u32, caller: &Caller) -> Node {
        let now = self.clock.now();
        let attr = Attr {
            node: NodeId::narrow(number),
            kind,
            mode,
            nlink: if kind == Kind::Directory { 2 } else { 1 },
            uid: caller.uid,
            gid: caller.gid,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
        };
        Node {
            attr,
            parent: ROOT,
            lookups: 0,
            bytes: Vec::new(),
            names: BTreeMap::new(),
            entries: BTreeMap::new(),
            xattrs: BTreeMap::new(),
        }
    }

    fn make(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
        bytes: &[u8],
    ) -> FsResult<Entry> {
        self.check(caller, parent, 0o3)?;
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let masked = if new.kind == Kind::Symlink { 0 } else { caller.umask };
        let mut node = self.fresh(number, new.kind, new.mode & !masked, caller);
        node.parent = parent.shown();
        node.attr.rdev = new.rdev;
        node.attr.size = bytes.len() as u64;
        node.bytes = bytes.to_vec();
        state.attach(parent, name, number)?;
        state.nodes.insert(number, node);
        let entry = state.entry(number);
        drop(state);
        if self.report_own_names {
            self.report().entry(parent, name);
            self.report().node(parent);
        }
        entry
    }

    fn check(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        if caller.enforce == Enforce::Kernel || caller.is_root() {
            return Ok(());
        }
        let attr = self.state.lock().node(node)?.attr;
        let bits = if caller.uid == attr.uid {
            attr.mode >> 6
        } else if caller.in_group(attr.gid) {
            attr.mode >> 3
        } else {
            attr.mode
        };
        if bits & mask == mask { Ok(()) } else { Err(FsError::AccessDenied) }
    }

    /// What was registered for changes.
    pub fn report(&self) -> Arc<dyn Invalidate> {
        self.invalidate.lock().clone().expect("the mount registers itself")
    }

    /// Creates or replaces a file without the kernel seeing it.
    pub fn put_behind(&self, parent: NodeId, name: &[u8], bytes: &[u8]) -> NodeId {
        self.detach_behind(parent, name);
        let new = NewNode { kind: Kind::File, mode: 0o644, rdev: 0 };
        let entry = self.make(&Caller::root(), parent, name, &new, bytes).expect("a free name");
        self.forget(entry.node, 1);
        entry.node
    }

    /// Removes a name without the kernel seeing it.
    pub fn detach_behind(&self, parent: NodeId, name: &[u8]) {
        let mut state = self.state.lock();
        if let Ok(old) = state.detach(parent, name) {
            state.drop_link(old);
        }
    }

    /// Sets the links of a node without the kernel seeing it.
    pub fn count_behind(&self, node: NodeId, links: u32) {
        self.state.lock().node(node).expect("a node").attr.nlink = links;
    }

    /// Replaces the contents of a file without the kernel seeing it.
    pub fn rewrite_behind(&self, node: NodeId, bytes: &[u8]) {
        let mut state = self.state.lock();
        let found = state.node(node).expect("a node");
        found.bytes = bytes.to_vec();
        found.attr.size = bytes.len() as u64;
    }

    /// Makes the root show another directory, as a roll-back of the whole volume does.
    pub fn move_root_behind(&self) {
        self.state.lock().node(NodeId::ROOT).expect("the root").attr.node =
            NodeId::narrow(2 * ROOT_SHOWN);
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.state.lock().nodes.len()
    }

    /// Look-ups that the kernel has not returned.
    pub fn held(&self) -> u64 {
        self.state.lock().nodes.values().map(|node| node.lookups).sum()
    }

    fn list(
        &self,
        directory: NodeId,
        cookie: u64,
        plus: bool,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        let mut state = self.state.lock();
        let State { nodes, .. } = &mut *state;
        let entries: Vec<_> = nodes
            .get(&directory.shown())
            .ok_or(FsError::Stale)?
            .entries
            .range(cookie + 1..)
            .map(|(cookie, (name, node))| (*cookie, name.clone(), *node))
            .collect();
        for (cookie, name, number) in entries {
            let node = nodes.get_mut(&number).expect("named nodes exist");
            if self.unlistable == Some(&name) {
                return Err(FsError::Io("a name that cannot be read".to_owned().into()));
            }
            let plus = plus && self.unreadable != Some(&name);
            let attr = plus.then_some(&node.attr);
            let shown = DirEntry {
                name: &name,
                node: NodeId::narrow(number),
                kind: node.attr.kind,
                cookie,
                attr,
            };
            if take(&shown) == WalkControl::Stop {
                break;
            }
            node.lookups += u64::from(plus);
        }
        Ok(())
    }
}

impl FileSystem for MemoryFs {
    fn lookup(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.lookups.fetch_add(1, Ordering::Relaxed);
        self.check(caller, parent, 0o1)?;
        if name.len() > 255 {
            return Err(FsError::NameTooLong);
        }
        if name == INHERITED.as_bytes() && self.copies_first(parent, false) {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.lock());
        }
        let mut state = self.state.lock();
        let node = state.child(parent, name)?;
        state.entry(node)
    }

    fn forget(&self, node: NodeId, lookups: u64) {
        let mut state = self.state.lock();
        let found = state.node(node).expect("the kernel forgets what it knows");
        found.lookups = found.lookups.checked_sub(lookups).expect("no more than it took");
        state.reap(node.shown());
    }

    fn getattr(&self, _: &Caller, node: NodeId) -> FsResult<Attr> {
        let mut attr = self.state.lock().node(node)?.attr;
        if node.shown() == ROOT {
            attr.size = self.root_entries_shown.unwrap_or(attr.size);
        }
        Ok(attr)
    }

    fn setattr(&self, caller: &Caller, node: NodeId, changes: &SetAttr) -> FsResult<Attr> {
        if changes.size.is_some() {
            self.check(caller, node, 0o2)?;
        }
        if changes.size == Some(LONG) {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.lock());
        }
        let ends_rights = changes.uid.is_some() || changes.size.is_some() && caller.ends_set_id();
        self.chmods.fetch_add(usize::from(changes.mode.is_some()), Ordering::Relaxed);
        let now = self.clock.now();
        let time = |time| match time {
            SetTime::Now => now,
            SetTime::At(time) => time,
        };
        let mut state = self.state.lock();
        let found = state.node(node)?;
        if caller.ends.capabilities {
            found.xattrs.remove(&b"security.capability"[..]);
        }
        if let Some(size) = changes.size {
            found.bytes.resize(size as usize, 0);
            found.attr.size = size;
            found.attr.mtime = now;
        }
        let attr = &mut found.attr;
        attr.mode = changes.mode.unwrap_or(attr.mode);
        if ends_rights && attr.kind == Kind::File {
            attr.mode = without_set_id(attr.mode);
        }
        attr.uid = changes.uid.unwrap_or(attr.uid);
        attr.gid = changes.gid.unwrap_or(attr.gid);
        attr.atime = changes.atime.map_or(attr.atime, time);
        attr.mtime = changes.mtime.map_or(attr.mtime, time);
        attr.ctime = now;
        Ok(*attr)
    }

    fn access(&self, caller: &Caller, node: NodeId, mask: u32) -> FsResult<()> {
        self.check(caller, node, mask)
    }

    fn readlink(&self, _: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        Ok(self.state.lock().node(node)?.bytes.clone())
    }

    fn mknod(
        &self,
        caller: &Caller,
        parent: NodeId,
        name: &[u8],
        new: &NewNode,
    ) -> FsResult<Entry> {
        self.make(caller, parent, name, new, b"")
    }

    fn mkdir(&self, caller: &Caller, parent: NodeId, name: &[u8], mode: u32) -> FsResult<Entry> {
        self.make(caller, parent, name, &NewNode { kind: Kind::Directory, mode, rdev: 0 }, b"")
    }

    fn symlink(&self, c: &Caller, parent: NodeId, name: &[u8], target: &[u8]) -> FsResult<Entry> {
        let new = NewNode { kind: Kind::Symlink, mode: 0o777, rdev: 0 };
        self.make(c, parent, name, &new, target)
    }

    fn link(&self, _: &Caller, node: NodeId, parent: NodeId, name: &[u8]) -> FsResult<Entry> {
        let mut state = self.state.lock();
        state.attach(parent, name, node.shown())?;
        state.node(node)?.attr.nlink += 1;
        state.entry(node.shown())
    }

    fn unlink(&self, _: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        let mut state = self.state.lock();
        let node = state.detach(parent, name)?;
        state.drop_link(node);
        Ok(())
    }

    fn rmdir(&self, caller: &Caller, parent: NodeId, name: &[u8]) -> FsResult<()> {
        let child = {
            let mut state = self.state.lock();
            let child = state.child(parent, name)?;
            state.node(NodeId::narrow(child))?.names.len()
        };
        if child != 0 {
            return Err(FsError::NotEmpty);
        }
        self.unlink(caller, parent, name)
    }

    fn rename(
        &self,
        _: &Caller,
        from: (NodeId, &[u8]),
        to: (NodeId, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        if matches!(mode, RenameMode::Whiteout | RenameMode::NoReplaceWhiteout) {
            return Err(FsError::NotSupported("whiteouts"));
        }
        let mut state = self.state.lock();
        let target = state.child(to.0, to.1);
        if mode == RenameMode::NoReplace && target.is_ok() {
            return Err(FsError::Exists);
        }
        let moved = state.detach(from.0, from.1)?;
        if let Ok(old) = target {
            state.detach(to.0, to.1)?;
            if mode == RenameMode::Exchange {
                state.attach(from.0, from.1, old)?;
            } else {
                state.drop_link(old);
            }
        }
        state.attach(to.0, to.1, moved)
    }

    fn read(&self, c: &Caller, node: NodeId, offset: u64, buffer: &mut [u8]) -> FsResult<usize> {
        assert_eq!(c.enforce, Enforce::Kernel, "rights were checked at open");
        if self.damaged.load(Ordering::Relaxed) {
            return Err(FsError::Io(
                "checksum mismatch in data/open/1.seg at 4096".to_owned().into(),
            ));
        }
        let mut state = self.state.lock();
        let bytes = &state.node(node)?.bytes;
        let from = (offset as usize).min(bytes.len());
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn write(&self, caller: &Caller, node: NodeId, offset: u64, bytes: &[u8]) -> FsResult<()> {
        if self.copies_first(node, true) {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.lock());
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        let found = state.node(node)?;
        let (from, to) = (offset as usize, offset as usize + bytes.len());
        if found.bytes.len() < to {
            found.bytes.resize(to, 0);
        }
        found.bytes[from..to].copy_from_slice(bytes);
        found.attr.size = found.bytes.len() as u64;
        found.attr.blocks = found.attr.size.div_ceil(512);
        found.attr.mtime = now;
        if caller.ends_set_id() {
            found.attr.mode = without_set_id(found.attr.mode);
        }
        if caller.ends.capabilities {
            found.xattrs.remove(&b"security.capability"[..]);
        }
        Ok(())
    }

    fn tmpfile(&self, _: &Caller, _: NodeId, _: u32) -> FsResult<Entry> {
        Err(FsError::NotSupported("files without a name"))
    }

    fn seek(&self, _: &Caller, node: NodeId, offset: u64, what: Seek) -> FsResult<u64> {
        let size = self.state.lock().node(node)?.bytes.len() as u64;
        if offset >= size {
            return Err(FsError::PastEnd);
        }
        Ok(if what == Seek::Data { offset } else { size })
    }

    fn fallocate(&self, _: &Caller, _: NodeId, _: (u64, u64), _: Allocate) -> FsResult<()> {
        Err(FsError::NotSupported("allocation"))
    }

    fn copy_range(&self, _: &Caller, _: (NodeId, u64), _: (NodeId, u64), _: u64) -> FsResult<u64> {
        Err(FsError::NotSupported("copies"))
    }

    fn fsync(&self, node: NodeId, _: SyncScope) -> FsResult<()> {
        self.fsyncs.fetch_add(1, Ordering::Relaxed);
        self.state.lock().node(node).map(|_| ())
    }

    fn sync_all(&self) -> FsResult<()> {
        Ok(())
    }

    fn readdir(
        &self,
        _: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(directory, cookie, false, take)
    }

    fn readdirplus(
        &self,
        _: &Caller,
        directory: NodeId,
        cookie: u64,
        take: &mut dyn FnMut(&DirEntry<'_>) -> WalkControl,
    ) -> FsResult<()> {
        self.list(directory, cookie, true, take)
    }

    fn statfs(&self, _: NodeId) -> FsResult<StatFs> {
        self.at_gate.fetch_add(1, Ordering::Relaxed);
        drop(self.gate.lock());
        Ok(StatFs {
            block_bytes: 4096,
            blocks: 1000,
            blocks_free: 600,
            blocks_available: 500,
            inodes: 77,
            inodes_free: 33,
            name_bytes_max: 255,
        })
    }

    fn getxattr(&self, _: &Caller, node: NodeId, name: &[u8]) -> FsResult<Vec<u8>> {
        if self.is_computed(name) {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.lock());
        }
        self.state.lock().node(node)?.xattrs.get(name).cloned().ok_or(FsError::NoAttribute)
    }

    fn copies_first(&self, node: NodeId, _changes: bool) -> bool {
        self.inherit.lock().contains(&node.shown())
    }

    fn is_computed(&self, xattr: &[u8]) -> bool {
        xattr.starts_with(b"user.pando.")
    }

    fn listxattr(&self, _: &Caller, node: NodeId) -> FsResult<Vec<u8>> {
        let mut state = self.state.lock();
        let names = state.node(node)?.xattrs.keys();
        Ok(names.flat_map(|name| name.iter().copied().chain([0])).collect())
    }

    fn setxattr(
        &self,
        _: &Caller,
        node: NodeId,
        name: &[u8],
        value: &[u8],
        mode: SetXattr,
    ) -> FsResult<()> {
        let mut state = self.state.lock();
        let xattrs = &mut state.node(node)?.xattrs;
        match (mode, xattrs.contains_key(name)) {
            (SetXattr::Create, true) => Err(FsError::Exists),
            (SetXattr::Replace, false) => Err(FsError::NoAttribute),
            _ => {
                xattrs.insert(name.to_vec(), value.to_vec());
                Ok(())
            }
        }
    }

    fn removexattr(&self, caller: &Caller, node: NodeId, name: &[u8]) -> FsResult<()> {
        if name.starts_with(b"security.") && !caller.is_root() {
            return Err(FsError::NotPermitted("security attributes are root's"));
        }
        let mut state = self.state.lock();
        state.node(node)?.xattrs.remove(name).map(|_| ()).ok_or(FsError::NoAttribute)
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn set_invalidate(&self, invalidate: Arc<dyn Invalidate>) {
        *self.invalidate.lock() = Some(invalidate);
    }
}

/// A snapshot is a directory with the names that its source had.
impl Snapshots for MemoryFs {
    fn take_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()> {
        if name.starts_with(LONG_SNAPSHOT.as_bytes()) {
            self.at_gate.fetch_add(1, Ordering::Relaxed);
            drop(self.gate.lock());
        }
        let mut state = self.state.lock();
        let key = (directory.shown(), name.to_vec());
        if state.snapshots.contains_key(&key) {
            return Err(FsError::Exists);
        }
        let number = state.next + 1;
        let source = state.node(directory)?;
        if !caller.is_root() && caller.uid != source.attr.uid {
            return Err(FsError::NotPermitted("only the owner has snapshots"));
        }
        let mut copy = self.fresh(number, Kind::Directory, source.attr.mode, caller);
        (copy.names, copy.entries) = (source.names.clone(), source.entries.clone());
        copy.parent = directory.shown();
        state.next = number;
        state.nodes.insert(number, copy);
        state.snapshots.insert(key, number);
        Ok(())
    }

    fn delete_snapshot(&self, _: &Caller, directory: NodeId, name: &[u8]) -> FsResult<()> {
        let mut state = self.state.lock();
        let root = state.snapshots.remove(&(directory.shown(), name.to_vec()));
        state.drop_link(root.ok_or(FsError::NotFound)?);
        Ok(())
    }

    fn rename_snapshot(
        &self,
        _: &Caller,
        directory: NodeId,
        from: &[u8],
        to: &[u8],
    ) -> FsResult<()> {
        let mut state = self.state.lock();
        let root = state.snapshots.remove(&(directory.shown(), from.to_vec()));
        state.snapshots.insert((directory.shown(), to.to_vec()), root.ok_or(FsError::NotFound)?);
        Ok(())
    }

    fn find_snapshot(&self, caller: &Caller, directory: NodeId, name: &[u8]) -> FsResult<Entry> {
        self.check(caller, directory, 0o1)?;
        let mut state = self.state.lock();
        let root = state.snapshots.get(&(directory.shown(), name.to_vec())).copied();
        state.entry(root.ok_or(FsError::NotFound)?)
    }

    fn find_numbered_snapshot(&self, _: &Caller, number: SubvolId) -> FsResult<Entry> {
        let mut state = self.state.lock();
        let is_root = state.snapshots.values().any(|root| *root == number.0);
        if is_root { state.entry(number.0) } else { Err(FsError::NotFound) }
    }

    fn list_snapshots(
        &self,
        caller: &Caller,
        directory: NodeId,
        above: u64,
        max: usize,
    ) -> FsResult<Vec<ListedSnapshot>> {
        self.check(caller, directory, 0o4)?;
        let state = self.state.lock();
        let own = state.snapshots.iter().filter(|((of, _), _)| *of == directory.shown());
        let listed = own.map(|((_, name), &root)| ListedSnapshot {
            name: name.clone(),
            number: SubvolId(root),
            root: NodeId::narrow(root),
        });
        let mut listed: Vec<_> = listed.filter(|one| one.number.0 > above).collect();
        listed.sort_by_key(|one| one.number.0);
        listed.truncate(max);
        Ok(listed)
    }

    fn holds_snapshot(&self, directory: NodeId, name: &[u8]) -> bool {
        let mut state = self.state.lock();
        let root = state.snapshots.get(&(directory.shown(), name.to_vec())).copied();
        root.is_some_and(|root| state.node(NodeId::narrow(root)).is_ok_and(|node| node.lookups > 0))
    }
}
