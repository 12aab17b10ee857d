//! Translates requests: kernel numbers and flags in, calls of [`FileSystem`], plain answers out.
//!
//! The adapter knows the protocol's meaning but none of its bytes; `kernel/` handles those. Files
//! by concern: `names` (look up, create, remove, rename), `attributes` (with extended ones),
//! `contents` (open, read, write, sync), `listing` (directories). All of it runs on the transport's
//! threads and holds no lock.

mod listing;
mod advice;
mod attributes;
mod contents;
mod kernel_numbers;
mod locks;
mod names;
mod reads;

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use inode::{AtomicNode, Attr, Caller, Ends, Enforce, FsError, NodeId, Slot};
use vfs::{FileSystem, Waits};

pub(crate) use attributes::{AttrChanges, Setting};
pub(crate) use listing::Listed;

use self::kernel_numbers::KernelNumbers;
use crate::errno::{self, Errno};
use crate::groups::Groups;
use crate::options::MountOptions;

/// The kernel's number for the root of every mount.
pub(crate) const ROOT: u64 = 1;

/// An answer.
pub(crate) type Answer<T> = Result<T, Errno>;

/// Who sent a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) pid: u32,
}

/// The caller that creates something in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Maker {
    pub(crate) who: Who,
    /// The group of the directory, if it is a supplementary group of the caller.
    pub(crate) groups: Vec<u32>,
    /// Bits removed from the mode, unless the directory has a default access list.
    pub(crate) umask: u32,
}

/// How long the kernel may cache answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Timeouts {
    pub(crate) attr: Duration,
    pub(crate) entry: Duration,
    pub(crate) negative: Duration,
}

/// A node that a name points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) node: u64,
    /// Distinguishes it in handles from earlier nodes with the same number.
    pub(crate) generation: u64,
    /// The inode number that users see (`st_ino`).
    pub(crate) shown: u64,
    pub(crate) attr: Attr,
}

const NOT_KEPT: Timeouts =
    Timeouts { attr: Duration::ZERO, entry: Duration::ZERO, negative: Duration::ZERO };

/// What requests make the kernel do with its cache, besides their answers.
pub(crate) trait Notices: Send + Sync {
    /// Makes the kernel drop its cache of a part of a file whose write was refused.
    fn refused(&self, number: u64, offset: u64, length: u64);

    /// Makes the kernel write what programs have stored into maps of a part of a file, and drop its
    /// pages there. Returns when that is written or refused. It waits for requests that the kernel
    /// sends meanwhile, so a thread that serves those must not call it.
    fn write_back(&self, number: u64, offset: u64, length: u64);
}

/// The translation for one mount.
#[expect(
    clippy::struct_excessive_bools,
    reason = "settings of the mount, independent of each other"
)]
pub(crate) struct Adapter {
    fs: Arc<dyn FileSystem>,
    /// The node behind the kernel's number 1: the volume's root, or `subdir`, or the directory that
    /// replaced it in a roll-back.
    root: AtomicNode,
    /// The node of the root that its attributes name; invalidations may use it.
    root_shown: AtomicNode,
    /// The kernel's numbers of all other nodes.
    numbers: KernelNumbers,
    /// Whether nodes in snapshots show the same numbers in each snapshot.
    snapshots_alike: bool,
    /// Whether the kernel reports opens and closes.
    pub(crate) trace_opens: bool,
    /// Whether the file system is on another machine, where others change it, too.
    pub(crate) is_remote: bool,
    pub(crate) timeouts: Timeouts,
    /// Whether the kernel has SELinux, which labels files.
    has_labels: bool,
    groups: Groups,
    /// Reads of a file system on another machine.
    reads: reads::Reads,
    /// Which listings of large directories carry attributes.
    advice: advice::Advice,
    /// Notices to the kernel, once the mount is served. The queue holds the adapter, not the
    /// reverse.
    notices: OnceLock<Weak<dyn Notices>>,
}

impl Adapter {
    /// An adapter for a mount whose root is `root`.
    pub(crate) fn new(fs: Arc<dyn FileSystem>, root: NodeId, options: &MountOptions) -> Adapter {
        Adapter {
            root: AtomicNode::new(root),
            root_shown: AtomicNode::new(root),
            numbers: KernelNumbers::new(fs.now(), kernel_numbers::mix),
            fs,
            snapshots_alike: options.snapshots_alike,
            trace_opens: options.trace_opens,
            is_remote: options.remote,
            timeouts: Timeouts {
                attr: options.attr_timeout,
                entry: options.entry_timeout,
                negative: options.negative_timeout,
            },
            has_labels: attributes::kernel_has_labels(),
            groups: Groups::default(),
            reads: reads::Reads::default(),
            advice: advice::Advice::default(),
            notices: OnceLock::new(),
        }
    }

    /// Sends the notices of requests to this queue.
    pub(crate) fn notify_by(&self, queue: Weak<dyn Notices>) {
        let is_first = self.notices.set(queue).is_ok();
        debug_assert!(is_first, "a mount is served once");
    }

    /// Notices to the kernel; `None` if there is no queue, or the mount is gone.
    fn notices(&self) -> Option<Arc<dyn Notices>> {
        self.notices.get().and_then(Weak::upgrade)
    }

    /// Shows another directory as the root, if it showed this one.
    pub(crate) fn follow(&self, old: NodeId, new: NodeId) {
        // Roll-backs of one directory follow each other, so no other thread changes it meanwhile.
        if self.root.load() == old {
            self.root.store(new);
            self.root_shown.store(new);
        }
    }

    fn root(&self) -> NodeId {
        self.root.load()
    }

    /// The node behind a kernel number.
    fn node(&self, number: u64) -> NodeId {
        if number == ROOT { self.root() } else { self.numbers.node(number) }
    }

    #[inline]
    fn is_root(&self, node: NodeId) -> bool {
        node == self.root() || node == self.root_shown.load()
    }

    /// Whether a node is behind number 1.
    pub(crate) fn is_shown_root(&self, node: NodeId) -> bool {
        self.is_root(node)
    }

    /// The kernel's number of a node, if it may hold the node.
    pub(crate) fn number(&self, node: NodeId) -> Option<u64> {
        if self.is_root(node) { Some(ROOT) } else { self.numbers.known(node) }
    }

    /// Whether the kernel holds what a name points to now.
    pub(crate) fn holds_name(&self, parent: u64, name: &[u8]) -> bool {
        self.fs.holds_name(self.node(parent), name)
    }

    /// The node that the root shows at present; it changes when the root is rolled back.
    pub(crate) fn look_at_root(&self) -> NodeId {
        if let Ok(attr) = self.fs.getattr(&Caller::root(), self.root()) {
            self.root_shown.store(attr.node);
        }
        self.root_shown.load()
    }

    /// The rights for an operation. The kernel has checked permissions. It checks those of names
    /// and attributes with each request, and those of a file at its opening. The descriptor may
    /// since have been passed to another process.
    ///
    /// A server on another machine checks them once more, and needs all groups for that.
    fn caller(&self, who: Who) -> Caller {
        let far = || self.groups.of(who.pid, who.uid, self.fs.now());
        Caller {
            uid: who.uid,
            gid: who.gid,
            groups: if self.is_remote { far() } else { Vec::new() },
            umask: 0,
            pid: who.pid,
            enforce: Enforce::Kernel,
            ends: Ends::NONE,
        }
    }

    /// The rights for creating something: with the groups that the kernel sent along.
    fn maker(&self, maker: &Maker) -> Caller {
        let mut caller = self.caller(maker.who);
        if !self.is_remote {
            caller.groups.extend_from_slice(&maker.groups);
        }
        caller.umask = maker.umask;
        caller
    }

    /// The rights for a search: those of all groups, since the kernel checks none for it.
    fn searcher(&self, who: Who) -> Caller {
        let groups = self.groups.of(who.pid, who.uid, self.fs.now());
        Caller { groups, ..self.caller(who) }
    }

    /// Whether the kernel must ask again at every use of a node.
    pub(crate) fn is_volatile(&self, number: u64) -> bool {
        self.fs.is_volatile(self.node(number))
    }

    /// Whether a node is a directory of snapshots.
    pub(crate) fn takes_snapshots(&self, number: u64) -> bool {
        self.fs.takes_snapshots(self.node(number))
    }

    /// Whether a change of a node, or a look-up in a directory, may have to copy subvolumes first.
    pub(crate) fn copies_first(&self, number: u64, changes: bool) -> bool {
        self.fs.copies_first(self.node(number), changes)
    }

    /// What calls may now wait for an object store.
    pub(crate) fn waits(&self) -> Waits {
        self.fs.waits()
    }

    /// Whether reading an extended attribute may take as long as a search.
    pub(crate) fn is_computed(&self, xattr: &[u8]) -> bool {
        self.fs.is_computed(xattr)
    }

    /// How long the kernel may keep a node: not at all if a query found it.
    pub(crate) fn times(&self, number: u64) -> &Timeouts {
        if self.is_volatile(number) { &NOT_KEPT } else { &self.timeouts }
    }

    /// What the kernel learns of a look-up, which it holds from now on.
    fn named(&self, entry: &vfs::Entry) -> Named {
        let (node, generation) = self.hold(entry.node);
        Named { node, generation, shown: self.number_to_show(entry.attr.node), attr: entry.attr }
    }

    /// The number and the generation of a node that was looked up. The root's generation is 0: the
    /// kernel creates it without a request.
    fn hold(&self, node: NodeId) -> (u64, u64) {
        if self.is_root(node) {
            return (ROOT, 0);
        }
        let number = self.numbers.hold(|other| self.fs.may_be_held(other), node);
        (number, self.numbers.generation(number, node, self.fs.generation(node)))
    }

    /// The inode number that users see for a node. Snapshots that show the same numbers have
    /// numbers of no subvolume: a live file has a different one.
    pub(crate) fn number_to_show(&self, node: NodeId) -> u64 {
        if self.snapshots_alike && self.fs.is_in_snapshot(node) {
            NodeId::of(Slot(0), node.ino()).shown()
        } else {
            node.shown()
        }
    }
}

/// Converts a failure of an operation on a node to its number, and logs serious failures.
fn failed(operation: &'static str, number: u64) -> impl Fn(FsError) -> Errno {
    move |error| errno::report(operation, number, &error)
}
