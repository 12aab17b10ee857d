//! Reads the source in parallel: threads that take directories from one another.
//!
//! Each thread has a stack of directories and works from its top, so that few directories are open
//! at once. A thread with an empty stack takes the older half of another's. The walk ends when all
//! stacks are empty.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use device::sync::{Condvar, Mutex};
use inode::Outside;

use super::events::{Inotify, Vanished};
use super::feed::Feed;
use super::known::Known;
use super::problems::Problems;
use super::tree::Node;

/// A directory to be read.
pub(super) struct Task {
    pub(super) node: Arc<Node>,
    /// Its number among the items.
    pub(super) directory: u64,
    /// Its attributes from before it is read: a change while it is read is found later.
    pub(super) attr: Outside,
    /// Its number in the index; 0 if the index does not have it.
    pub(super) known: u64,
    /// Whether its names do not belong to the source: something else is mounted on it.
    pub(super) foreign: bool,
}

/// State that the threads of a walk share.
pub(super) struct Walk {
    pub(super) settings: Settings,
    pub(super) feed: Feed,
    pub(super) problems: Arc<Problems>,
    pub(super) known: Known,
    pub(super) directories: AtomicU64,
    pub(super) read: AtomicU64,
    /// Watches that are set on directories before they are read.
    pub(super) inotify: Option<Arc<Inotify>>,
    pub(super) vanished: Arc<Vanished>,
    stop: AtomicBool,
    interrupted: Arc<AtomicBool>,
    next: AtomicU64,
    pool: Mutex<Pool>,
    changed: Condvar,
    hungry: AtomicUsize,
    workers: usize,
}

/// What belongs to the source, and what the index keeps of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Settings {
    /// Whether file systems mounted below belong to it.
    pub(super) crosses_mounts: bool,
    /// Whether extended attributes are kept.
    pub(super) keeps_xattrs: bool,
    /// The device of the source.
    pub(super) device: u64,
    /// Device and inode number of the volume's own directory, which is not read.
    pub(super) own: Option<(u64, u64)>,
}

#[derive(Default)]
struct Pool {
    tasks: Vec<Task>,
    waiting: usize,
    left: usize,
    ended: bool,
}

impl Walk {
    pub(super) fn new(
        settings: Settings,
        (feed, known): (Feed, Known),
        problems: Arc<Problems>,
        interrupted: &Arc<AtomicBool>,
        workers: usize,
    ) -> Walk {
        Walk {
            settings,
            feed,
            problems,
            known,
            directories: AtomicU64::new(0),
            read: AtomicU64::new(0),
            inotify: None,
            vanished: Arc::default(),
            stop: AtomicBool::new(false),
            interrupted: Arc::clone(interrupted),
            next: AtomicU64::new(1),
            pool: Mutex::new(Pool { left: workers, ..Pool::default() }),
            changed: Condvar::new(),
            hungry: AtomicUsize::new(0),
            workers,
        }
    }

    /// The same walk, which numbers directories from a given number on.
    pub(super) fn numbered_from(self, first: u64) -> Walk {
        Walk { next: AtomicU64::new(first), ..self }
    }

    /// The same walk, which watches the directories that it reads, if requested, and records which
    /// vanished.
    pub(super) fn followed(self, inotify: Option<&Arc<Inotify>>, vanished: &Arc<Vanished>) -> Walk {
        Walk { inotify: inotify.cloned(), vanished: Arc::clone(vanished), ..self }
    }

    /// The next number for a directory.
    pub(super) fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Gives the walk its first directory.
    pub(super) fn begin(&self, task: Task) {
        self.pool.lock().tasks.push(task);
    }

    /// Whether the walk must end early.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.interrupted.load(Ordering::Relaxed)
    }

    /// Ends the walk early.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.pool.lock().ended = true;
        self.changed.notify_all();
    }

    /// Works until the walk ends. `read` reads a directory and pushes its subdirectories; it
    /// returns `false` when the receiver is gone.
    pub(super) fn work(&self, mut read: impl FnMut(&Task, &mut Vec<Task>) -> bool) {
        let _leaving = Leaving(self);
        let mut stack: Vec<Task> = Vec::new();
        while let Some(task) = stack.pop().or_else(|| self.take()) {
            if self.is_stopped() {
                self.stop();
                return;
            }
            if !read(&task, &mut stack) {
                self.stop();
                return;
            }
            if stack.len() > 1 && self.hungry.load(Ordering::Relaxed) > 0 {
                let half = stack.len() / 2;
                self.pool.lock().tasks.extend(stack.drain(..half));
                self.changed.notify_all();
            }
        }
    }

    /// Waits for a directory of another thread; `None` when all threads wait.
    fn take(&self) -> Option<Task> {
        let mut pool = self.pool.lock();
        loop {
            if pool.ended {
                return None;
            }
            if let Some(task) = pool.tasks.pop() {
                return Some(task);
            }
            pool.waiting += 1;
            if pool.waiting == self.workers {
                pool.ended = true;
                self.changed.notify_all();
                return None;
            }
            self.hungry.fetch_add(1, Ordering::Relaxed);
            self.changed.wait(&mut pool);
            self.hungry.fetch_sub(1, Ordering::Relaxed);
            pool.waiting -= 1;
        }
    }
}

/// Ends the feed when the last thread leaves, also on a panic.
struct Leaving<'a>(&'a Walk);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let mut pool = self.0.pool.lock();
        pool.left -= 1;
        let last = pool.left == 0;
        drop(pool);
        if last {
            self.0.feed.end();
        }
    }
}
