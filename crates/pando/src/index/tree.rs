//! Directories of the source, held by descriptor: a path may have any depth, and the scan follows
//! nothing that another process swaps in meanwhile.
//!
//! A directory keeps its descriptor while children of it wait to be read, up to a budget of
//! descriptors. Beyond the budget a child is reached from the nearest ancestor with a descriptor,
//! name by name.

use std::ffi::{CStr, CString, OsString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use device::sync::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxFlags};

/// Descriptors left for everything else.
const SPARE: usize = 64;

/// Most descriptors that waiting directories hold: more only costs the kernel memory.
const HELD_MAX: usize = 16 << 10;

/// A directory on the path to others.
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
    /// The system's limit on descriptors, raised as far as permitted.
    pub(super) fn new() -> Arc<Budget> {
        let current = device::raise_descriptor_limit();
        let current = current.map_or(HELD_MAX, |most| usize::try_from(most).unwrap_or(HELD_MAX));
        let most = current.saturating_sub(SPARE).min(HELD_MAX);
        Arc::new(Budget { held: AtomicUsize::new(0), most })
    }
}

impl Node {
    /// The source itself. A symbolic link there is followed.
    pub(super) fn top(path: &Path, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        Node::held(path, open_top(path)?, budget)
    }

    /// A directory of a source by its path, to be read by itself. Symbolic links in the path below
    /// the source are not followed.
    pub(super) fn at(source: &Path, path: &Path, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        let outside = |_| io::Error::from(io::ErrorKind::NotFound);
        let mut opened = open_top(source)?;
        for part in path.strip_prefix(source).map_err(outside)?.components() {
            let Component::Normal(name) = part else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            let name = CString::new(name.as_bytes())?;
            opened = open_below(&opened, &name)?;
        }
        Node::held(path, opened, budget)
    }

    fn held(path: &Path, opened: OwnedFd, budget: &Arc<Budget>) -> io::Result<Arc<Node>> {
        let name = CString::new(path.to_owned().into_os_string().into_vec())?;
        budget.held.fetch_add(1, Ordering::Relaxed);
        let held = Mutex::new(Some(Arc::new(opened)));
        Ok(Arc::new(Node { parent: None, name, held, budget: Arc::clone(budget) }))
    }

    /// A subdirectory.
    pub(super) fn child(self: &Arc<Node>, name: &CStr) -> Arc<Node> {
        Arc::new(Node {
            parent: Some(Arc::clone(self)),
            name: name.to_owned(),
            held: Mutex::new(None),
            budget: Arc::clone(&self.budget),
        })
    }

    /// Opens the directory.
    pub(super) fn open(&self) -> io::Result<Arc<OwnedFd>> {
        // The nearest open ancestor, and the names from there, the last first.
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

    /// Keeps the descriptor for children, if the budget allows it.
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
        // Not by recursion: a chain may be deeper than the stack.
        let mut next = self.parent.take();
        while let Some(node) = next {
            next = Arc::into_inner(node).and_then(|mut node| node.parent.take());
        }
    }
}

fn open_top(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

fn open_below(directory: &impl AsFd, name: &CStr) -> io::Result<OwnedFd> {
    // Where permitted, a scan does not update access times.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(directory, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(rustix::io::Errno::PERM) => {
            Ok(rustix::fs::openat(directory, name, flags, Mode::empty())?)
        }
        opened => Ok(opened?),
    }
}

/// The attributes of a name in a directory, or with an empty name of the directory itself, as
/// cached, without asking a server again.
pub(super) fn stat(directory: &impl AsFd, name: &CStr) -> io::Result<Statx> {
    let flags = AtFlags::SYMLINK_NOFOLLOW
        | AtFlags::STATX_DONT_SYNC
        | AtFlags::NO_AUTOMOUNT
        | if name.is_empty() { AtFlags::EMPTY_PATH } else { AtFlags::empty() };
    let wanted = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    Ok(rustix::fs::statx(directory, name, flags, wanted)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_on_the_way_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let source = place.path().join("source");
        std::fs::create_dir_all(source.join("real/below")).unwrap();
        std::fs::create_dir_all(place.path().join("else/below")).unwrap();
        std::os::unix::fs::symlink("../else", source.join("link")).unwrap();
        std::os::unix::fs::symlink("source", place.path().join("way")).unwrap();
        let budget = Budget::new();
        let at = |source: &Path, path: &str| Node::at(source, &source.join(path), &budget);
        assert!(at(&source, "").is_ok());
        assert!(at(&source, "real/below").is_ok());
        // The path of the source itself may contain a symbolic link.
        assert!(at(&place.path().join("way"), "real/below").is_ok());
        for path in ["link", "link/below"] {
            let error = at(&source, path).err().expect(path);
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory, "{path}: {error}");
        }
        for path in ["../else", "real/../../else/below"] {
            let error = at(&source, path).err().expect(path);
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}: {error}");
        }
    }
}
