//! Collects changes at the source from the kernel until the follower takes them. It uses fanotify
//! for the whole file system, or inotify for each directory.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use device::sync::{Condvar, Mutex};
use device::{FileSystemEvent, FileSystemWatch, Map, Set};
use inode::Outside;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

/// Most names that are collected; when more changed, a full scan is no slower.
const NAMES_MAX: usize = 10_000;

/// How often a wait checks whether it must end.
const LOOK: Duration = Duration::from_millis(100);

/// Names that changed, by their directories (absolute paths). An empty name is the directory.
pub(super) type Changes = BTreeMap<PathBuf, BTreeSet<Vec<u8>>>;

/// Directories that were already reported, and were gone when the scan wanted to read them: the
/// index has them without names. A directory that comes back under its old name would look as if
/// it had been read.
#[derive(Debug, Default)]
pub(crate) struct Vanished(Mutex<Set<Identity>>);

/// Device, inode number and birth time of an inode.
type Identity = (u64, u64, i64);

/// Most vanished directories that are remembered.
const VANISHED_MAX: usize = 1 << 16;

impl Vanished {
    fn identity(attr: &Outside) -> Identity {
        (attr.device, attr.number, attr.btime)
    }

    /// Remembers a vanished directory.
    pub(super) fn add(&self, attr: &Outside) {
        let mut all = self.0.lock();
        // Beyond the limit none is known any more: a later check treats every directory as
        // vanished.
        if all.len() <= VANISHED_MAX {
            all.insert(Vanished::identity(attr));
        }
    }

    /// Whether any of these vanished before, or may have. If so, forgets all, because a full scan
    /// follows.
    pub(super) fn are_back<'a>(&self, mut some: impl Iterator<Item = &'a Outside>) -> bool {
        let mut all = self.0.lock();
        let back =
            all.len() > VANISHED_MAX || some.any(|attr| all.contains(&Vanished::identity(attr)));
        if back {
            all.clear();
        }
        back
    }
}

/// The collected changes.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    pub(super) changes: Changes,
    names: usize,
    /// More changed than was collected: only a full scan finds everything.
    pub(super) overflow: bool,
}

/// Collects changes below a source.
pub(super) struct Gatherer {
    source: PathBuf,
    /// The volume, whose own changes are ignored.
    volume: PathBuf,
    gathered: Mutex<Gathered>,
    came: Condvar,
    ended: AtomicBool,
    failed: Mutex<Option<io::Error>>,
}

/// Watches of single directories, which are added as the source is read.
pub(crate) struct Inotify {
    descriptor: OwnedFd,
    gatherer: Arc<Gatherer>,
    paths: Mutex<Map<i32, PathBuf>>,
    /// Directories without a watch because of the kernel's limit.
    pub(super) refused: AtomicU64,
}

impl Gatherer {
    pub(super) fn new(source: &Path, volume: &Path) -> Arc<Gatherer> {
        Arc::new(Gatherer {
            source: source.to_owned(),
            volume: volume.to_owned(),
            gathered: Mutex::default(),
            came: Condvar::new(),
            ended: AtomicBool::new(false),
            failed: Mutex::default(),
        })
    }

    /// Collects changes of the whole file system, until it is ended.
    pub(super) fn run_whole(&self, mut watch: FileSystemWatch) {
        while !self.ended.load(Ordering::Relaxed) {
            match watch.events(LOOK) {
                Ok(events) => events.into_iter().for_each(|event| match event {
                    FileSystemEvent::Changed(path, name) => self.add(path, name),
                    FileSystemEvent::Overflow => self.overflow(),
                }),
                Err(error) => return self.fail(error),
            }
        }
    }

    /// Collects changes from watches of directories, until it is ended.
    pub(super) fn run_single(&self, watch: &Inotify) {
        let mut buffer = vec![MaybeUninit::uninit(); 64 << 10];
        let mut reader = inotify::Reader::new(&watch.descriptor, &mut buffer);
        while !self.ended.load(Ordering::Relaxed) {
            match device::readable(&watch.descriptor, LOOK) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => return self.fail(error),
            }
            loop {
                match reader.next() {
                    Ok(event) if event.events().contains(ReadFlags::QUEUE_OVERFLOW) => {
                        self.overflow();
                    }
                    Ok(event) if event.events().contains(ReadFlags::IGNORED) => {
                        watch.paths.lock().remove(&event.wd());
                    }
                    Ok(event) => {
                        let path = watch.paths.lock().get(&event.wd()).cloned();
                        let name = event.file_name().map_or(&b""[..], |name| name.to_bytes());
                        if let Some(path) = path {
                            self.add(path, name.to_vec());
                        }
                    }
                    Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => break,
                    Err(error) => return self.fail(error.into()),
                }
                if reader.is_buffer_empty() {
                    break;
                }
            }
        }
    }

    /// Waits until something changed, or for a moment; takes what was collected.
    pub(super) fn take(&self, settle: &mut dyn FnMut()) -> io::Result<Option<Gathered>> {
        let mut gathered = self.gathered.lock();
        if gathered.changes.is_empty() && !gathered.overflow {
            self.came.wait_for(&mut gathered, LOOK);
        }
        if let Some(error) = self.failed.lock().take() {
            return Err(error);
        }
        if gathered.changes.is_empty() && !gathered.overflow {
            return Ok(None);
        }
        drop(gathered);
        // A file that changed once often changes again, and its directory with it: one round for
        // all of it.
        settle();
        Ok(Some(std::mem::take(&mut *self.gathered.lock())))
    }

    /// Marks the changes as incomplete: those taken, or all, could not be used.
    pub(super) fn overflow(&self) {
        *self.gathered.lock() = Gathered { overflow: true, ..Gathered::default() };
        self.came.notify_all();
    }

    /// Ends the collection.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn fail(&self, error: io::Error) {
        *self.failed.lock() = Some(error);
        self.came.notify_all();
    }

    fn add(&self, path: PathBuf, name: Vec<u8>) {
        if !path.starts_with(&self.source) || path.starts_with(&self.volume) {
            return;
        }
        let mut gathered = self.gathered.lock();
        if gathered.overflow {
            return;
        }
        if gathered.changes.entry(path).or_default().insert(name) {
            gathered.names += 1;
        }
        let full = gathered.names > NAMES_MAX;
        drop(gathered);
        if full {
            self.overflow();
        }
        self.came.notify_all();
    }
}

impl Inotify {
    pub(super) fn new(gatherer: &Arc<Gatherer>) -> io::Result<Arc<Inotify>> {
        Ok(Arc::new(Inotify {
            descriptor: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            gatherer: Arc::clone(gatherer),
            paths: Mutex::default(),
            refused: AtomicU64::new(0),
        }))
    }

    /// Records that a directory changed before it was watched.
    pub(super) fn missed(&self, directory: PathBuf) {
        self.gatherer.add(directory, Vec::new());
    }

    /// Watches a directory from now on; a moved directory is known by its new path then.
    pub(super) fn watch(&self, directory: &impl AsFd, path: PathBuf) -> io::Result<()> {
        let wanted = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::MODIFY
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        let by_descriptor = format!("/proc/self/fd/{}", directory.as_fd().as_raw_fd());
        let mut paths = self.paths.lock();
        match inotify::add_watch(&self.descriptor, by_descriptor, wanted) {
            Ok(number) => {
                paths.insert(number, path);
                Ok(())
            }
            Err(rustix::io::Errno::NOSPC) => {
                self.refused.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}
