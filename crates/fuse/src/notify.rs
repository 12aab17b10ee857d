//! Invalidations: a thread of its own reports to the kernel what changed behind its back.
//!
//! The namespace reports a change and continues; the report enters a set, and the thread
//! `fuse-notify` sends it. It must be a thread that serves no requests. To drop a name the kernel
//! takes the directory's lock. The holder of that lock may be waiting for its own request to be
//! served.
//!
//! A name is first expired, which takes the kernel no time: it looks the name up again at the next
//! use. Dropping what it caches below the name takes time in proportion to that: seconds for a tree
//! of 60,000 files. A separate thread, `fuse-notify-late`, does that, and nothing waits for it. It
//! skips a name whose new target the kernel has already looked up: then the old one is dropped
//! already.
//!
//! Reporting never blocks. The set of names is bounded. Beyond the bound "all names" replaces it,
//! which makes the kernel look up every name again at its next use. A kernel without that feature
//! gets only the directories. It reads their listings and attributes again, and keeps names that it
//! looked up for as long as `entry-timeout` allows. The sets of nodes are bounded by the number of
//! inodes that the kernel holds.
//!
//! The notifier ends when the mount is closed. It keeps the connection open, and on an open
//! connection that no thread reads, every access to the mount waits forever.
//!
//! Code that changes something on behalf of a command calls [`Queue::settle`] before it answers. So
//! the change is visible through the mount when the command returns.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use inode::NodeId;
use vfs::Invalidate;

use crate::adapter::{Adapter, Notices, ROOT};
use crate::transport::Notifier;

/// Names kept before they are replaced by "all names", or by their directories.
const NAMES_MAX: usize = 4096;
/// Most parts of contents that are queued.
const PARTS_MAX: usize = 4096;
/// Most expired names that are queued to be dropped. The kernel drops the others when it likes.
const LATE_MAX: usize = 1 << 16;

/// The reports to send.
#[derive(Debug, Default)]
struct Pending {
    all_names: bool,
    names: BTreeSet<Named>,
    nodes: BTreeSet<u64>,
    /// Nodes whose attributes changed; some of them may be among `nodes`, too.
    attributes: BTreeSet<u64>,
    /// Ends of parts of contents, by node and offset.
    parts: BTreeMap<(u64, u64), u64>,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    /// How many reports were made.
    reported: u64,
    /// How many of them, in order, were sent.
    sent: u64,
    /// The mount is gone.
    closed: bool,
}

/// A directory, and a name in it.
type Named = (u64, Box<[u8]>);

/// When a name is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Late {
    /// Unless the kernel holds its present target: then it was expired, and has a new meaning.
    IfRenewed,
    /// Whatever it points to.
    Always,
}

/// Invalidations on their way.
pub(crate) struct Queue {
    adapter: Arc<Adapter>,
    /// None once the mount is closed. Shared, because closing must not wait for the thread.
    notifier: Mutex<Option<Arc<dyn Notifier>>>,
    can_drop_all_names: bool,
    state: Mutex<State>,
    arrived: Condvar,
    settled: Condvar,
    /// Names that are to be dropped with what is cached below them.
    late: Mutex<BTreeMap<Named, Late>>,
    late_arrived: Condvar,
    /// The root's node when the thread last checked; used only by the thread.
    root: Mutex<NodeId>,
}

impl Pending {
    fn is_empty(&self) -> bool {
        !self.all_names
            && self.names.is_empty()
            && self.nodes.is_empty()
            && self.attributes.is_empty()
            && self.parts.is_empty()
    }

    fn add_name(&mut self, parent: u64, name: &[u8]) {
        if !self.all_names {
            self.names.insert((parent, name.into()));
        }
        // A name that the kernel never looked up may still be in a listing that it caches.
        self.nodes.insert(parent);
    }

    /// Enforces the bound. The parent of each name is among the nodes already.
    fn bound(&mut self, can_drop_all_names: bool) {
        if self.names.len() > NAMES_MAX {
            self.names.clear();
            self.all_names |= can_drop_all_names;
        }
    }
}

impl Queue {
    pub(crate) fn new(adapter: Arc<Adapter>, notifier: Box<dyn Notifier>) -> Queue {
        let root = Mutex::new(adapter.look_at_root());
        Queue {
            root,
            adapter,
            can_drop_all_names: notifier.can_drop_all_names(),
            notifier: Mutex::new(Some(Arc::from(notifier))),
            state: Mutex::default(),
            arrived: Condvar::new(),
            settled: Condvar::new(),
            late: Mutex::default(),
            late_arrived: Condvar::new(),
        }
    }

    /// The body of the second thread: drops what was expired until the mount is closed.
    pub(crate) fn run_late(&self) {
        loop {
            let mut late = self.late.lock();
            let ((parent, name), when) = loop {
                // It is cleared before the condition is signalled, with the lock held.
                if self.notifier.lock().is_none() {
                    return;
                }
                if let Some(next) = late.pop_first() {
                    break next;
                }
                self.late_arrived.wait(&mut late);
            };
            drop(late);
            let Some(notifier) = self.notifier.lock().clone() else { return };
            if when == Late::IfRenewed && self.adapter.holds_name(parent, &name) {
                continue;
            }
            match notifier.name(parent, &name) {
                Err(error) if error.kind() != io::ErrorKind::NotFound && !is_unmounted(&error) => {
                    tracing::warn!(%error, "an invalidation was refused by the kernel");
                }
                _ => {}
            }
        }
    }

    /// The body of the thread: sends until the mount is closed.
    pub(crate) fn run(&self) {
        loop {
            let (pending, until) = {
                let mut state = self.state.lock();
                while state.pending.is_empty() && !state.closed {
                    self.arrived.wait(&mut state);
                }
                if state.closed {
                    return;
                }
                (std::mem::take(&mut state.pending), state.reported)
            };
            let notifier = self.notifier.lock().clone();
            let gone = notifier.is_none_or(|notifier| self.send(&*notifier, &pending));
            let mut state = self.state.lock();
            state.sent = until;
            self.settled.notify_all();
            drop(state);
            if gone {
                self.close();
            }
        }
    }

    /// Ends the thread, and drops the connection.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        {
            let _late = self.late.lock();
            drop(self.notifier.lock().take());
            self.late_arrived.notify_all();
        }
        self.arrived.notify_all();
        self.settled.notify_all();
    }

    /// Waits until everything reported before the call was sent to the kernel; `false` on timeout.
    /// Reports that others make meanwhile are not waited for: an import makes them without end. A
    /// thread that serves requests must not call it.
    pub(crate) fn settle(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        let reported = state.reported;
        let done = |state: &mut State| state.closed || state.sent >= reported;
        let result = self.settled.wait_while_for(&mut state, |state| !done(state), patience);
        !result.timed_out()
    }

    /// Sends all; returns whether the mount is gone.
    fn send(&self, notifier: &dyn Notifier, pending: &Pending) -> bool {
        let mut gone = false;
        let mut note = |result: io::Result<()>| match result {
            Ok(()) => {}
            // Nothing was cached, or the kernel is dropping its inode at this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_unmounted(&error) => gone = true,
            Err(error) => tracing::warn!(%error, "an invalidation was refused by the kernel"),
        };
        if pending.all_names || pending.nodes.contains(&ROOT) && self.root_moved() {
            note(notifier.all_names());
        }
        let can_expire = notifier.can_expire();
        for (parent, name) in &pending.names {
            note(if can_expire {
                notifier.expire(*parent, name)
            } else {
                notifier.name(*parent, name)
            });
        }
        if can_expire && !pending.names.is_empty() {
            self.drop_late(pending.names.iter().cloned(), Late::IfRenewed);
        }
        for node in &pending.nodes {
            note(notifier.node(*node));
        }
        for ((node, offset), end) in &pending.parts {
            note(notifier.contents(*node, *offset, end - offset));
        }
        for node in pending.attributes.difference(&pending.nodes) {
            note(notifier.attributes(*node));
        }
        gone
    }

    /// Queues names for the second thread to drop.
    fn drop_late(&self, names: impl Iterator<Item = Named>, when: Late) {
        let mut late = self.late.lock();
        let space = LATE_MAX.saturating_sub(late.len());
        late.extend(names.take(space).map(|name| (name, when)));
        self.late_arrived.notify_one();
    }

    /// Whether the root now shows another directory (it was rolled back): it keeps its number, and
    /// no name below it has its old meaning.
    fn root_moved(&self) -> bool {
        let now = self.adapter.look_at_root();
        std::mem::replace(&mut *self.root.lock(), now) != now && self.can_drop_all_names
    }

    fn report(&self, change: impl FnOnce(&mut Pending)) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        change(&mut state.pending);
        state.reported += 1;
        state.pending.bound(self.can_drop_all_names);
        drop(state);
        self.arrived.notify_one();
    }
}

fn is_unmounted(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(libc::ENODEV) || number == Some(libc::ENOTCONN) || number == Some(libc::EPERM)
}

impl Notices for Queue {
    fn refused(&self, number: u64, offset: u64, length: u64) {
        self.report(|pending| {
            // The kernel drops what is left out when it likes.
            if pending.parts.len() < PARTS_MAX {
                let end = pending.parts.entry((number, offset)).or_default();
                *end = (*end).max(offset.saturating_add(length));
            }
        });
    }

    fn write_back(&self, number: u64, offset: u64, length: u64) {
        let Some(notifier) = self.notifier.lock().clone() else { return };
        match notifier.contents(number, offset, length) {
            Ok(()) => {}
            // The kernel has no inode, and so no pages, or the mount is gone.
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_unmounted(&error) => {}
            Err(error) => {
                tracing::warn!(%error, number, "the kernel did not write back a shared mapping");
            }
        }
    }
}

impl Invalidate for Queue {
    fn entry(&self, parent: NodeId, name: &[u8]) {
        // The kernel caches nothing of a node that it does not hold.
        let Some(parent) = self.adapter.number(parent) else { return };
        self.report(|pending| pending.add_name(parent, name));
    }

    fn let_go(&self, parent: NodeId, name: &[u8]) {
        let Some(parent) = self.adapter.number(parent) else { return };
        let name = (parent, name.into());
        self.drop_late(std::iter::once(name), Late::Always);
    }

    fn node(&self, node: NodeId) {
        let Some(number) = self.adapter.number(node) else { return };
        self.report(|pending| {
            pending.nodes.insert(number);
        });
    }

    fn attributes(&self, node: NodeId) {
        let Some(number) = self.adapter.number(node) else { return };
        self.report(|pending| {
            pending.attributes.insert(number);
        });
    }

    fn attributes_before_answer(&self, node: NodeId) {
        let Some(notifier) = self.notifier.lock().clone() else { return };
        let Some(number) = self.adapter.number(node) else { return };
        match notifier.attributes(number) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound || is_unmounted(&error) => {}
            Err(error) => {
                tracing::warn!(%error, ?node, "cannot invalidate changed attributes in the kernel");
            }
        }
    }

    fn root(&self, old: NodeId, new: NodeId) {
        self.adapter.follow(old, new);
    }

    fn all_names(&self) {
        let can_drop_all_names = self.can_drop_all_names;
        self.report(|pending| {
            pending.all_names |= can_drop_all_names;
            if pending.all_names {
                pending.names.clear();
            }
        });
    }
}

#[cfg(test)]
mod tests;
