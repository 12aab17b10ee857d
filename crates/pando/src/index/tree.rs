//! Directories of the source, held by descriptor: a path may be of any depth, and nothing is
//! followed that is swapped in meanwhile.
//!
//! A directory keeps its descriptor for as long as children of it wait to be read, up to a budget
//! of descriptors. Beyond it a child is reached from the nearest ancestor that has one, name by
//! name.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};
use rustix::process::{Resource, Rlimit};

/// Descriptors left for everything else.
const SPARE: usize = 64;

/// Most descriptors that waiting directories hold: more only costs the kernel memory.
const HELD_MAX: usize = 16 << 10;

/// A directory on the way to others.
pub(super) struct Node {
    parent: Option<Arc<Node>>,
    name: CString,
    held: Mutex<Option<Arc<OwnedFd>>>,
    budget: Arc<Budget>,
}

/// How many descriptors may be held.
pub(super) struct Budget {
    held: AtomicUsize,
    most: usize,
}

impl Budget {
    /// What the system permits, raised to what it can be raised to.
    pub(super) fn new() -> Arc<Budget> {
        let limit = rustix::process::getrlimit(Resource::Nofile);
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        let current = match rustix::process::setrlimit(Resource::Nofile, raised) {
            Ok(()) => limit.maximum,
            Err(_) => limit.current,
        };
        let current = current.map_or(HELD_MAX, |most| usize::try_from(most).unwrap_or(HELD_MAX));
        let most = current.saturating_sub(SPARE).min(HELD_MAX);
        Arc::new(Budget { held: AtomicUsize::new(0), most })
    }
}

impl Node {
    /// The source itself. A symbolic link there is followed.
    pub(super) fn top(path: &Path, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        Node::open_top(path, OFlags::empty(), budget)
    }

    /// A directory by its path, to be read by itself. A symbolic link there is not followed.
    pub(super) fn at(path: &Path, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        Node::open_top(path, OFlags::NOFOLLOW, budget)
    }

    fn open_top(path: &Path, more: OFlags, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | more;
        let opened = rustix::fs::open(path, flags, Mode::empty())?;
        let name = CString::new(path.to_owned().into_os_string().into_vec())?;
        budget.held.fetch_add(1, Ordering::Relaxed);
        let held = Mutex::new(Some(Arc::new(opened)));
        Ok(Arc::new(Node { parent: None, name, held, budget: Arc::clone(budget) }))
    }

    /// A directory below.
    pub(super) fn child(self: &Arc<Node>, name: &CStr) -> Arc<Node> {
        Arc::new(Node {
            parent: Some(Arc::clone(self)),
            name: name.to_owned(),
            held: Mutex::new(None),
            budget: Arc::clone(&self.budget),
        })
    }

    /// Opens it.
    pub(super) fn open(&self) -> io::Result<Arc<OwnedFd>> {
        // The nearest that is open, and the names from there, the last first.
        let mut missing = Vec::new();
        let mut at = self;
        let mut directory = loop {
            if let Some(held) = at.held.lock().clone() {
                break held;
            }
            missing.push(at);
            at = at.parent.as_deref().expect("invariant: the top is held");
        };
        while let Some(node) = missing.pop() {
            directory = Arc::new(open_below(&directory, &node.name)?);
        }
        Ok(directory)
    }

    /// Keeps the descriptor for children, if there is room.
    pub(super) fn keep_open(&self, directory: &Arc<OwnedFd>) {
        let mut held = self.held.lock();
        if held.is_none() {
            if self.budget.held.fetch_add(1, Ordering::Relaxed) < self.budget.most {
                *held = Some(Arc::clone(directory));
            } else {
                self.budget.held.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    /// Its path, for people.
    pub(super) fn path(&self) -> PathBuf {
        let mut names = Vec::new();
        let mut at = Some(self);
        while let Some(node) = at {
            names.push(OsString::from_vec(node.name.as_bytes().to_vec()));
            at = node.parent.as_deref();
        }
        names.iter().rev().collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if self.held.get_mut().take().is_some() {
            self.budget.held.fetch_sub(1, Ordering::Relaxed);
        }
        // Not by recursion: a chain may be deeper than a stack.
        let mut next = self.parent.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

fn open_below(directory: &impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    // Reading a directory is no reason to note that it was read, where that is permitted.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => {
            Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// The attributes of a name in a directory, or with an empty name of the directory, as they are
/// known without asking a server anew.
pub(super) fn stat(directory: &impl AsFd, name: &CStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW
        | AtFlags::STATX_DONT_SYNC
        | AtFlags::NO_AUTOMOUNT
        | if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(rustix::fs::statx(directory, name, flags, wanted)?)
}
