//! A mount in a temporary directory, and other users.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use device::sync::{Mutex, MutexGuard};
use device::{Clock, SystemClock};
use fuse::{Mount, MountOptions, mount};
use rustix::fs::{Gid, Uid};
use tempfile::TempDir;
use vfs::VirtualDirs;

use testing::memory_fs::MemoryFs;

pub(crate) const NOBODY: u32 = 65534;

/// How long a test waits for an event that must happen soon, on a slow and busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A mounted file system. The mount is removed before its directory.
pub(crate) struct Rig {
    pub(crate) fs: Arc<MemoryFs>,
    pub(crate) mount: Mount,
    directory: TempDir,
}

impl Rig {
    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.directory.path().join("mnt").join(below)
    }

    pub(crate) fn write(&self, below: &str, bytes: &[u8]) {
        std::fs::write(self.path(below), bytes).unwrap();
    }

    pub(crate) fn read(&self, below: &str) -> Vec<u8> {
        std::fs::read(self.path(below)).unwrap()
    }

    /// Waits for an asynchronous effect in the kernel.
    pub(crate) fn eventually(&self, what: &str, mut holds: impl FnMut(&MemoryFs) -> bool) {
        let clock = SystemClock::new();
        while !holds(&self.fs) {
            assert!(clock.monotonic() < PATIENCE, "not within {PATIENCE:?}: {what}");
            clock.sleep(Duration::from_millis(10));
        }
    }
}

/// Mounts with a directory of snapshots in each directory, or prints that FUSE is known to be
/// missing.
pub(crate) fn mounted_with_snapshots(options: &str) -> Option<Rig> {
    let directory = places()?;
    let fs = Arc::new(MemoryFs::new());
    let clock = Arc::new(SystemClock::new());
    let shown = Arc::new(VirtualDirs::new(Arc::clone(&fs), clock, b".snapshots"));
    let mount = mount(shown, &options_at(directory.path(), options)).unwrap();
    Some(Rig { fs, mount, directory })
}

/// Mounts, or prints that FUSE is known to be missing.
pub(crate) fn mounted(options: &str) -> Option<Rig> {
    mounted_with(options, MemoryFs::new())
}

pub(crate) fn mounted_with(options: &str, fs: MemoryFs) -> Option<Rig> {
    let directory = places()?;
    let fs = Arc::new(fs);
    let mount = mount(fs.clone(), &options_at(directory.path(), options)).unwrap();
    Some(Rig { fs, mount, directory })
}

/// A directory with a place to mount on, if FUSE is usable.
#[expect(clippy::print_stdout, reason = "a test that did nothing reports it")]
pub(crate) fn places() -> Option<TempDir> {
    if let Some(reason) = std::env::var_os("SKIP_FUSE").filter(|reason| !reason.is_empty()) {
        println!("skipped, for SKIP_FUSE is: {}", reason.to_string_lossy());
        return None;
    }
    let root = rustix::process::geteuid().is_root();
    if let Some(reason) = std::env::var_os("SKIP_ROOT").filter(|one| !root && !one.is_empty()) {
        println!("skipped, for SKIP_ROOT is: {}", reason.to_string_lossy());
        return None;
    }
    assert!(
        Path::new("/dev/fuse").exists() && root,
        "these tests mount file systems of several users: they need root and /dev/fuse; set \
         SKIP_ROOT=REASON or SKIP_FUSE=REASON where that cannot be"
    );
    let directory = tempfile::tempdir().unwrap();
    open_up(directory.path());
    for name in ["volume", "mnt"] {
        std::fs::create_dir(directory.path().join(name)).unwrap();
    }
    Some(directory)
}

/// Lets other users traverse it.
pub(crate) fn open_up(path: &Path) {
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
}

pub(crate) fn options_at(directory: &Path, list: &str) -> MountOptions {
    let mut options = MountOptions::new(&directory.join("volume"), &directory.join("mnt"));
    options.parse(list).unwrap();
    options
}

/// Opens the device to ordinary users, as distributions do, for as long as this lives.
pub(crate) struct OpenDevice {
    _one_at_a_time: MutexGuard<'static, ()>,
    mode: u32,
}

static DEVICE: Mutex<()> = Mutex::new(());

impl OpenDevice {
    pub(crate) fn new() -> OpenDevice {
        let guard = DEVICE.lock();
        let mode = std::fs::metadata("/dev/fuse").unwrap().permissions().mode();
        set_device(mode | 0o666);
        OpenDevice { _one_at_a_time: guard, mode }
    }

    /// Closes it again before the end.
    pub(crate) fn close(&self) {
        set_device(self.mode & !0o066);
    }
}

fn set_device(mode: u32) {
    std::fs::set_permissions("/dev/fuse", Permissions::from_mode(mode)).unwrap();
}

impl Drop for OpenDevice {
    fn drop(&mut self) {
        set_device(self.mode);
    }
}

/// Runs a closure on a thread with the rights of another user.
pub(crate) fn as_user<T: Send>(uid: u32, groups: &[u32], body: impl FnOnce() -> T + Send) -> T {
    let groups: Vec<_> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
    device::scope(|scope| {
        let user = scope.spawn(move || {
            let (user, group) = (Uid::from_raw(uid), Gid::from_raw(uid));
            rustix::thread::set_thread_groups(&groups).unwrap();
            rustix::thread::set_thread_res_gid(group, group, group).unwrap();
            rustix::thread::set_thread_res_uid(user, user, user).unwrap();
            body()
        });
        user.join().unwrap()
    })
}
