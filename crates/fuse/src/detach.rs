//! Unmounts: cleanly if no process uses the mount, lazily if one does.

use std::path::Path;
use std::time::Duration;

use device::{Clock, SystemClock};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::MountError;
use crate::attach::run_helper;
use crate::mountinfo::{self, FILE_SYSTEM_TYPE};

/// How long a mount in use is retried before it is detached, and the pause between tries. A process
/// that was just forked has its parent's files open until its program runs.
const BUSY_FOR: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// The result of an unmount.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unmounted {
    /// The mount is gone, and its server has finished.
    Clean,
    /// The mount is out of sight, but open files and working directories keep it alive: its server
    /// continues until the last one closes.
    Lazy,
}

/// What to do with a mount in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InUse {
    /// It stays, and the call returns [`MountError::Busy`].
    Stays,
    /// It is taken out of sight, and ends when the last user leaves. A process that continues to
    /// use its path writes to the directory below it.
    Detached,
}

/// Unmounts a mount of PandoFS, whichever process serves it, dead ones too.
pub fn unmount(mount_point: &Path, in_use: InUse) -> Result<Unmounted, MountError> {
    let resolved = mountinfo::resolve(mount_point).unwrap_or_else(|| mount_point.to_owned());
    match mountinfo::on_top(&resolved) {
        Some(record) if record.kind == FILE_SYSTEM_TYPE => {}
        _ => return Err(MountError::NotMounted(mount_point.to_owned())),
    }
    match in_use {
        InUse::Detached => detach(&resolved),
        InUse::Stays if detach_unused(&resolved)? => Ok(Unmounted::Clean),
        InUse::Stays => Err(MountError::Busy(mount_point.to_owned())),
    }
}

/// Unmounts whatever is on top of a resolved mount point; `false` if it is in use for more than a
/// moment.
fn detach_unused(mount_point: &Path) -> Result<bool, MountError> {
    let clock = SystemClock::new();
    loop {
        match detach_with(mount_point, UnmountFlags::empty())? {
            Outcome::Gone => return Ok(true),
            Outcome::Busy if clock.monotonic() < BUSY_FOR => clock.sleep(PAUSE),
            Outcome::Busy => return Ok(false),
        }
    }
}

/// The same, in use or not.
pub(crate) fn detach(mount_point: &Path) -> Result<Unmounted, MountError> {
    if detach_unused(mount_point)? {
        return Ok(Unmounted::Clean);
    }
    tracing::info!(
        mount_point = %mount_point.display(),
        "the mount is in use: it is detached now and ends when the last user leaves"
    );
    detach_lazily(mount_point)?;
    Ok(Unmounted::Lazy)
}

/// Takes a mount out of sight, in use or dead.
pub(crate) fn detach_lazily(mount_point: &Path) -> Result<(), MountError> {
    match detach_with(mount_point, UnmountFlags::DETACH)? {
        Outcome::Gone => Ok(()),
        Outcome::Busy => {
            Err(MountError::system(format!("detaching {}", mount_point.display()), Errno::BUSY))
        }
    }
}

enum Outcome {
    Gone,
    Busy,
}

fn detach_with(mount_point: &Path, flags: UnmountFlags) -> Result<Outcome, MountError> {
    match rustix::mount::unmount(mount_point, flags | UnmountFlags::NOFOLLOW) {
        // EINVAL: not a mount point any more, another process unmounted it first.
        Ok(()) | Err(Errno::INVAL) => Ok(Outcome::Gone),
        Err(Errno::BUSY) => Ok(Outcome::Busy),
        Err(Errno::PERM) => detach_by_helper(mount_point, flags.contains(UnmountFlags::DETACH)),
        Err(error) => {
            Err(MountError::system(format!("unmounting {}", mount_point.display()), error))
        }
    }
}

fn detach_by_helper(mount_point: &Path, lazily: bool) -> Result<Outcome, MountError> {
    // tidy: compares words: the helper has one exit code for all failures.
    let child = run_helper(|command| {
        command.arg("-u").args(lazily.then_some("-z")).arg("--").arg(mount_point);
    })?;
    let output = child
        .wait_with_output()
        .map_err(|error| MountError::system("waiting for fusermount3", error))?;
    let words = String::from_utf8_lossy(&output.stderr);
    if output.status.success() || mountinfo::on_top(mount_point).is_none() {
        Ok(Outcome::Gone)
    } else if words.contains("busy") {
        Ok(Outcome::Busy)
    } else if words.contains("not found in") {
        // The helper also reports this for another user's mount, of which it has no record.
        let doing = format!("unmounting {}, which another user mounted", mount_point.display());
        Err(MountError::system(doing, Errno::PERM))
    } else {
        Err(MountError::Helper(words.trim().trim_start_matches("fusermount3: ").to_owned()))
    }
}
