//! Invalidations: what changed behind the kernel's back, told to it by a thread of its own.
//!
//! The namespace reports a change and goes on; the report is put into a set, and the thread
//! `fuse-notify` sends it. It must be a thread that serves no requests: to drop a name the kernel
//! takes the directory's lock, which may be held by somebody whose request is still to be served.
//!
//! Nobody ever waits to report. The set of names is bounded: beyond the bound it is replaced by
//! "all names", which makes the kernel look every name up once more when it is next used. The set
//! of nodes is bounded by the number of inodes that the kernel holds.
//!
//! Whoever changes something on behalf of a command calls [`Queue::settle`] before it answers, so
//! that the change is visible through the mount when the command returns.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fs::Invalidate;
use inode::NodeId;
use parking_lot::{Condvar, Mutex};

use crate::adapter::{Adapter, ROOT};
use crate::transport::Notifier;

/// Names kept before they are replaced by "all names".
const NAMES_MAX: usize = 4096;

/// What is to be told.
#[derive(Debug, Default)]
struct Pending {
    all_names: bool,
    names: BTreeSet<(u64, Box<[u8]>)>,
    nodes: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct State {
    pending: Pending,
    /// The thread is sending what it took from `pending`.
    sending: bool,
    /// The mount is gone.
    closed: bool,
}

/// Invalidations on their way.
pub(crate) struct Queue {
    adapter: Arc<Adapter>,
    notifier: Box<dyn Notifier>,
    state: Mutex<State>,
    arrived: Condvar,
    settled: Condvar,
    /// What the root stood for when it was last looked at, by the thread alone.
    root: AtomicU64,
}

impl Pending {
    fn is_empty(&self) -> bool {
        !self.all_names && self.names.is_empty() && self.nodes.is_empty()
    }
}

impl Queue {
    pub(crate) fn new(adapter: Arc<Adapter>, notifier: Box<dyn Notifier>) -> Queue {
        let root = AtomicU64::new(adapter.look_at_root());
        Queue {
            root,
            adapter,
            notifier,
            state: Mutex::default(),
            arrived: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// The body of the thread: sends until the mount is closed.
    pub(crate) fn run(&self) {
        loop {
            let pending = {
                let mut state = self.state.lock();
                while state.pending.is_empty() && !state.closed {
                    self.arrived.wait(&mut state);
                }
                if state.closed {
                    return;
                }
                state.sending = true;
                std::mem::take(&mut state.pending)
            };
            let gone = self.send(&pending);
            let mut state = self.state.lock();
            state.sending = false;
            state.closed |= gone;
            self.settled.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.arrived.notify_all();
        self.settled.notify_all();
    }

    /// Waits until everything that was reported has been told to the kernel; `false` when that
    /// took too long. Not to be called by a thread that serves requests.
    pub(crate) fn settle(&self, patience: Duration) -> bool {
        let mut state = self.state.lock();
        let done = |state: &mut State| state.closed || (state.pending.is_empty() && !state.sending);
        let result = self.settled.wait_while_for(&mut state, |state| !done(state), patience);
        !result.timed_out()
    }

    /// Sends all; says whether the mount is gone.
    fn send(&self, pending: &Pending) -> bool {
        let mut gone = false;
        let mut told = |result: io::Result<()>| match result {
            Ok(()) => {}
            // Nothing was cached, or its inode is being dropped at this moment.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if is_unmounted(&error) => gone = true,
            Err(error) => tracing::warn!(%error, "an invalidation was refused by the kernel"),
        };
        if pending.all_names || pending.nodes.contains(&ROOT) && self.root_moved() {
            told(self.notifier.all_names());
        }
        for (parent, name) in &pending.names {
            told(self.notifier.name(*parent, name));
        }
        for node in &pending.nodes {
            told(self.notifier.node(*node));
        }
        gone
    }

    /// Whether the root has come to stand for another directory (a roll-back of the whole volume):
    /// it keeps its number, and no name below it means what it meant.
    fn root_moved(&self) -> bool {
        let now = self.adapter.look_at_root();
        self.root.swap(now, Ordering::Relaxed) != now && self.notifier.can_drop_all_names()
    }

    fn report(&self, change: impl FnOnce(&mut Pending)) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        change(&mut state.pending);
        let too_many = state.pending.names.len() > NAMES_MAX;
        if too_many && self.notifier.can_drop_all_names() {
            state.pending.names.clear();
            state.pending.all_names = true;
        }
        drop(state);
        self.arrived.notify_one();
    }
}

fn is_unmounted(error: &io::Error) -> bool {
    let number = error.raw_os_error();
    number == Some(libc::ENODEV) || number == Some(libc::ENOTCONN) || number == Some(libc::EPERM)
}

impl Invalidate for Queue {
    fn entry(&self, parent: NodeId, name: &[u8]) {
        let parent = self.adapter.number(parent);
        self.report(|pending| {
            if !pending.all_names {
                pending.names.insert((parent, name.into()));
            }
            // A name that the kernel never looked up may still stand in a listing that it keeps.
            pending.nodes.insert(parent);
        });
    }

    fn node(&self, node: NodeId) {
        let number = self.adapter.number(node);
        self.report(|pending| {
            pending.nodes.insert(number);
        });
    }
}
