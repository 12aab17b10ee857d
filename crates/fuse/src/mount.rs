//! Mounts a file system: connects a file system, a mount point and the threads between them, and
//! unmounts.
//!
//! 1. The mount point is checked, and a dead mount of the same volume is removed.
//! 2. The channel is opened and attached; the root, or `subdir`, becomes the kernel's node 1.
//! 3. Version and features are negotiated; threads serve requests, one thread sends invalidations.
//! 4. After [`Mount::unmount`], by us or by `umount`, the threads end and [`Mount::wait`] returns.
//!    If open files or another mount namespace keep the file system, they continue. Then
//!    [`Mount::mount_again`] gives it a mount point again.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use device::Clock;
use device::sync::{Condvar, Mutex};
use inode::{Caller, FsError, Kind, NodeId};
use vfs::{FileSystem, Invalidate};

use crate::adapter::Adapter;
use crate::detach::Unmounted;
use crate::kernel::KernelTransport;
use crate::notify::Queue;
use crate::options::MountOptions;
use crate::transport::{Transport, Workers};
use crate::turns::Turns;
use crate::{MountError, again, attach, detach, mountinfo, place};

/// Read-ahead of a mount, in KiB; the kernel's default of 128 is meant for disks that seek.
const READ_AHEAD_KIB: u32 = 1024;

/// A mounted file system. Dropping it unmounts.
pub struct Mount {
    place: Mutex<Arc<Path>>,
    /// Major and minor number of the mount, so that another mount that has taken its place is not
    /// unmounted instead.
    device: Option<String>,
    options: MountOptions,
    adapter: Arc<Adapter>,
    /// The connection, to mount it again.
    channel: OwnedFd,
    /// One mounts again at a time.
    again: Mutex<()>,
    /// This process unmounts it for good.
    closing: AtomicBool,
    queue: Arc<Queue>,
    turns: Arc<Turns>,
    ending: Arc<Ending>,
}

/// How serving ended, once it has.
#[derive(Default)]
struct Ending {
    result: Mutex<Option<Result<(), String>>>,
    changed: Condvar,
}

/// Mounts a file system and serves it on threads of its own.
pub fn mount(fs: Arc<dyn FileSystem>, options: &MountOptions) -> Result<Mount, MountError> {
    // (The source of a file system on another machine is no path here.)
    let volume_dir = Some(&options.volume_dir).filter(|_| !options.remote);
    let volume_dir = volume_dir.and_then(|path| mountinfo::resolve(path));
    let volume_dir = volume_dir.unwrap_or_else(|| options.volume_dir.clone());
    let options = MountOptions { volume_dir, ..options.clone() };
    let mount_point = place::prepare(&options)?;
    let root = root(&*fs, options.subdir.as_deref())?;
    fs.set_shown_root(root);
    let adapter = Arc::new(Adapter::new(Arc::clone(&fs), root, &options));
    let channel = attach::attach(&mount_point, &options)?;
    // From here on a failure must remove the mount again.
    match serve(fs, &adapter, channel, &mount_point, &options) {
        Ok(mount) => Ok(mount),
        Err(error) => {
            if let Err(error) = detach::detach_lazily(&mount_point) {
                tracing::warn!(%error, "cannot unmount a mount without a server");
            }
            Err(error)
        }
    }
}

fn serve(
    fs: Arc<dyn FileSystem>,
    adapter: &Arc<Adapter>,
    channel: OwnedFd,
    mount_point: &Path,
    options: &MountOptions,
) -> Result<Mount, MountError> {
    let clone_channel = options.clone_fd && options.threads > 1 && attach::can_clone();
    let workers = Workers { threads: options.threads, clone_channel };
    let system = |error| MountError::system("duplicating a descriptor", error);
    let kept = channel.try_clone().map_err(system)?;
    let session = KernelTransport
        .negotiate(channel, Arc::clone(adapter), workers)
        .map_err(|error| MountError::system("agreeing with the kernel on a protocol", error))?;
    let queue = Arc::new(Queue::new(Arc::clone(adapter), session.notifier()));
    adapter.notify_by(Arc::<Queue>::downgrade(&queue));
    let turns = session.turns();
    let thread = |error| MountError::system("starting a thread", error);

    let sender = Arc::clone(&queue);
    device::spawn("fuse-notify", move || sender.run()).map_err(thread)?;
    let late = Arc::clone(&queue);
    device::spawn("fuse-notify-late", move || late.run_late()).map_err(|error| {
        queue.close();
        thread(error)
    })?;

    let ending = Arc::new(Ending::default());
    let (ended, closing) = (Arc::clone(&ending), Arc::clone(&queue));
    device::spawn("fuse-serve", move || {
        let result = session.run();
        closing.close();
        ended.set(result);
    })
    .map_err(|error| {
        queue.close();
        thread(error)
    })?;

    fs.set_invalidate(Arc::clone(&queue) as Arc<dyn Invalidate>);
    drop(fs);
    let device = mountinfo::on_top(mount_point).map(|record| record.device);
    if let Some(device) = &device {
        raise_read_ahead(device);
    }
    Ok(Mount {
        place: Mutex::new(mount_point.into()),
        device,
        options: options.clone(),
        adapter: Arc::clone(adapter),
        channel: kept,
        again: Mutex::default(),
        closing: AtomicBool::new(false),
        queue,
        turns,
        ending,
    })
}

/// The node that the mount shows as its root. The look-ups on the way are kept: the mount holds its
/// root until it is unmounted.
fn root(fs: &dyn FileSystem, subdir: Option<&Path>) -> Result<NodeId, MountError> {
    let mut node = NodeId::ROOT;
    let Some(subdir) = subdir else { return Ok(node) };
    let failed = |error| MountError::Subdir { subdir: subdir.to_owned(), error };
    for part in subdir.components() {
        let name = part.as_os_str().as_encoded_bytes();
        let entry = fs.lookup(&Caller::root(), node, name).map_err(failed)?;
        if entry.attr.kind != Kind::Directory {
            return Err(failed(FsError::NotDirectory));
        }
        node = entry.node;
    }
    Ok(node)
}

/// Only root can; without it sequential reads are sent in smaller pieces, which is not an error.
fn raise_read_ahead(device: &str) {
    let setting = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(error) = std::fs::write(&setting, READ_AHEAD_KIB.to_string()) {
        tracing::debug!(%error, setting, "read-ahead stays at the default");
    }
}

impl Ending {
    fn set(&self, result: io::Result<()>) {
        *self.result.lock() = Some(result.map_err(|error| error.to_string()));
        self.changed.notify_all();
    }
}

impl Mount {
    /// Where it is mounted, or was at last.
    pub fn mount_point(&self) -> Arc<Path> {
        Arc::clone(&self.place.lock())
    }

    /// Whether the kernel lets users other than the mounting user into it.
    pub fn allows_others(&self) -> bool {
        self.options.allow_other
    }

    /// Whether it is the mount of a device number, as in `0:53`.
    pub fn is_device(&self, device: &[u8]) -> bool {
        self.device.as_ref().is_some_and(|own| own.as_bytes() == device)
    }

    /// The directory of the volume that it shows as its root, if that is another.
    pub fn subdir(&self) -> Option<&Path> {
        self.options.subdir.as_deref()
    }

    /// Whether a node of the file system is the one that it shows as its root now.
    pub fn shows_as_root(&self, node: NodeId) -> bool {
        self.adapter.is_shown_root(node)
    }

    /// Mounts the file system again, if no mount of it is left in this mount namespace while open
    /// files or other namespaces keep it. The options must be those of the mount, except for what
    /// the kernel keeps for each place (`suid`, `dev`, `exec`). The mount point may be another one.
    ///
    /// Whether `subdir` names the same directory is for the caller to compare
    /// ([`Mount::shows_as_root`]).
    pub fn mount_again(&self, options: &MountOptions) -> Result<(), MountError> {
        let _alone = self.again.lock();
        let volume_dir = self.options.volume_dir.clone();
        let options = MountOptions { volume_dir, ..options.clone() };
        let Some(device) = &self.device else {
            return Err(MountError::NotAgain("its device is not known".to_owned()));
        };
        if let Some(mount_point) = mountinfo::place_of(device) {
            let volume = options.volume_dir;
            return Err(MountError::AlreadyMounted { volume, mount_point });
        }
        if let Some(option) = self.options.difference(&options) {
            return Err(MountError::Differs { option });
        }
        if self.is_ending() {
            return Err(MountError::Ended);
        }
        let mount_point = place::prepare(&options)?;
        again::attach(&self.channel, &mount_point, &options)?;
        *self.place.lock() = mount_point.as_path().into();
        if self.is_ending() {
            // The end began before the new place was known.
            detach::detach_lazily(&mount_point)?;
            return Err(MountError::Ended);
        }
        tracing::info!(mount_point = %mount_point.display(), "mounted again");
        Ok(())
    }

    fn is_ending(&self) -> bool {
        self.closing.load(Ordering::SeqCst) || self.ending.result.lock().is_some()
    }

    /// Other mounts below it, here or below a bind mount of it: the place in the volume, and the
    /// visible path. Limited to what this process sees: other mount namespaces have their own
    /// mounts.
    pub fn mounted_below(&self) -> Vec<(PathBuf, PathBuf)> {
        self.device.as_deref().map(mountinfo::mounted_below).unwrap_or_default()
    }

    /// Blocks until the mount is gone, whichever process unmounted it, and its last request is
    /// answered.
    pub fn wait(&self) -> Result<(), MountError> {
        let mut result = self.ending.result.lock();
        while result.is_none() {
            self.ending.changed.wait(&mut result);
        }
        self.ended(result.as_ref())
    }

    /// Like `wait`, for at most `patience`; `None` if the mount still exists.
    pub fn wait_for(&self, patience: Duration) -> Option<Result<(), MountError>> {
        let mut result = self.ending.result.lock();
        let running = |result: &mut Option<_>| result.is_none();
        self.ending.changed.wait_while_for(&mut result, running, patience);
        result.is_some().then(|| self.ended(result.as_ref()))
    }

    fn ended(&self, result: Option<&Result<(), String>>) -> Result<(), MountError> {
        match result {
            Some(Err(message)) => Err(MountError::system(
                format!("serving {}", self.mount_point().display()),
                io::Error::other(message.clone()),
            )),
            _ => Ok(()),
        }
    }

    /// Unmounts. A mount in use is detached lazily, with a warning in the log. It is out of sight
    /// at once, and ends when the last user leaves, which `wait` reports.
    pub fn unmount(&self) -> Result<Unmounted, MountError> {
        self.closing.store(true, Ordering::SeqCst);
        let place = self.mount_point();
        let present = mountinfo::on_top(&place).map(|record| record.device);
        // If serving failed, no unmount has happened.
        let ended = matches!(*self.ending.result.lock(), Some(Ok(())));
        if ended || present != self.device {
            return Ok(Unmounted::Clean);
        }
        detach::detach(&place)
    }

    /// Waits until all requests that had been taken from the kernel are answered. So a command acts
    /// on the data that [`crate::write_back()`] made the kernel write. `false` if that takes longer
    /// than `patience`. Must not be called from within a call of the file system.
    pub fn catch_up(&self, clock: &dyn Clock, patience: Duration) -> bool {
        self.turns.wait(clock, patience)
    }

    /// Waits until the kernel has dropped everything that changed behind its back so far. So a
    /// command can promise that its effect is visible through the mount. `false` if that takes
    /// longer than `patience`. Must not be called from within a call of the file system.
    pub fn settle(&self, patience: Duration) -> bool {
        self.queue.settle(patience)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if let Err(error) = self.unmount() {
            tracing::warn!(mount_point = %self.mount_point().display(), %error, "not unmounted");
        }
    }
}
