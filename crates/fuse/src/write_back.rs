//! Makes the kernel write back what programs have stored into mapped files. The process that
//! queries the volume requests it.
//!
//! The process that serves the mount must not request it itself. It would sleep in the kernel until
//! the kernel has passed on the data that this process is to take. If it were killed in that sleep
//! it would stay, with the channel open that its end must close.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{MountError, MountInfo};

/// The result.
#[derive(Debug)]
pub enum WriteBack {
    /// The process that serves the mount has received everything stored before the call.
    Taken,
    /// The same, but the process refused some of the data stored since the last such call: for
    /// space, by a quota, in a snapshot. `msync`, `fsync` or `close` report whose it was, and the
    /// file does not have it either.
    Refused(MountError),
    /// The caller may not open anything of the mount, and so cannot request it.
    NotPermitted,
}

/// Makes the kernel write back what it caches of the mounts of a volume. `inside` may be a
/// directory of one, for a caller that may not open its root. The mounts are opened, which needs an
/// answer of the process that serves them: the caller knows that they are the volume's.
pub fn write_back(mounts: &[MountInfo], inside: &Path) -> Result<WriteBack, MountError> {
    let mut left: Vec<(PathBuf, String)> =
        mounts.iter().map(|mount| (mount.mount_point.clone(), mount.device.clone())).collect();
    if left.is_empty() {
        return Ok(WriteBack::Taken);
    }
    let mut places: Vec<PathBuf> = left.iter().map(|(place, _)| place.clone()).collect();
    places.push(inside.to_owned());
    let mut not_permitted = false;
    let mut refused = None;
    for place in &places {
        let doing = || format!("writing back what is mapped of {}", place.display());
        match ask(place, &left) {
            Ok(Asked::Taken { device, error }) => {
                left.retain(|(_, one)| *one != device);
                refused = refused.or(error.map(|error| MountError::system(doing(), error)));
            }
            Err(Errno::ACCESS | Errno::PERM) => not_permitted = true,
            // A mount whose server is gone has nothing that any process could take.
            Ok(Asked::Elsewhere) | Err(Errno::NOTCONN | Errno::CONNABORTED) => {}
            Err(error) => return Err(MountError::system(doing(), error)),
        }
    }
    if not_permitted && !left.is_empty() {
        return Ok(WriteBack::NotPermitted);
    }
    Ok(refused.map_or(WriteBack::Taken, WriteBack::Refused))
}

/// What a place points to.
enum Asked {
    /// To none of the mounts.
    Elsewhere,
    /// The mount of this device, and whether something that was written back was refused.
    Taken { device: String, error: Option<Errno> },
}

/// Requests it at a place, if that is in one of the mounts.
fn ask(place: &Path, mounts: &[(PathBuf, String)]) -> rustix::io::Result<Asked> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let root = match rustix::fs::open(place, flags, Mode::empty()) {
        Ok(root) => root,
        // The given place is a name in a volume, or not a directory.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => {
            return Ok(Asked::Elsewhere);
        }
        Err(error) => return Err(error),
    };
    let device = rustix::fs::fstat(&root)?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if !mounts.iter().any(|(_, one)| *one == device) {
        // Something else is mounted there by now.
        return Ok(Asked::Elsewhere);
    }
    // A refusal does not stop the kernel from writing the rest. The kernel reports it to the first
    // caller since, also for earlier attempts, and for files of other users. If no `msync` caller
    // learned the reason, it only reports that there was something (EIO).
    let error = match rustix::fs::syncfs(&root) {
        Err(gone @ (Errno::NOTCONN | Errno::CONNABORTED)) => return Err(gone),
        done => done.err(),
    };
    // The write-back was queued behind earlier requests, and so is this one: when it is answered,
    // everything before it has been taken.
    rustix::fs::fstatfs(&root)?;
    Ok(Asked::Taken { device, error })
}
