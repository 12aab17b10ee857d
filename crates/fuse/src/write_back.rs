//! What programs have stored into mapped files, and the kernel keeps for a while before it writes
//! it: asked for, on the side of whoever asks a question about the volume.
//!
//! The process that serves the mount must not ask for it itself. It would sleep in the kernel until
//! the kernel has handed over what that process is to take; and killed in its sleep it would stay,
//! with the channel open that its end is to close.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{MountError, MountInfo};

/// What became of it.
#[derive(Debug)]
pub enum WriteBack {
    /// The process that serves the mount has been given all that was stored before the call.
    Taken,
    /// The same, and of something that was stored since the last such call it refused to take it:
    /// for lack of room, by a quota, in a snapshot. Whose that was is told by `msync`, `fsync` or
    /// `close`, and the file does not have it either.
    Refused(MountError),
    /// The caller may not open anything of the mount, and so cannot ask.
    NotPermitted,
}

/// Has the kernel hand over what it keeps of the mounts of a volume. `inside` may be a directory
/// of one, for who may not open its root. The mounts are opened, which takes an answer of whoever
/// serves them: the caller knows that they are the volume's.
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
            // A mount whose server is gone keeps nothing that anybody could take.
            Ok(Asked::Elsewhere) | Err(Errno::NOTCONN | Errno::CONNABORTED) => {}
            Err(error) => return Err(MountError::system(doing(), error)),
        }
    }
    if not_permitted && !left.is_empty() {
        return Ok(WriteBack::NotPermitted);
    }
    Ok(refused.map_or(WriteBack::Taken, WriteBack::Refused))
}

/// What a place led to.
enum Asked {
    /// To none of the mounts.
    Elsewhere,
    /// To the one of this device, and whether something that was written back was refused.
    Taken { device: String, error: Option<Errno> },
}

/// Asks at a place, if that leads to one of the mounts.
fn ask(place: &Path, mounts: &[(PathBuf, String)]) -> rustix::io::Result<Asked> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let root = match rustix::fs::open(place, flags, Mode::empty()) {
        Ok(root) => root,
        // What was given as a place is a name in a volume, or not a directory.
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
    // What is refused keeps the kernel from nothing else. It tells of it whom it asked first since,
    // also of what was tried before, and of files of others.
    // Where nobody was told by `msync` of why, it only says that there was something (EIO).
    let error = match rustix::fs::syncfs(&root) {
        Err(gone @ (Errno::NOTCONN | Errno::CONNABORTED)) => return Err(gone),
        done => done.err(),
    };
    // That was put behind what is to be served, and so is this: when it is answered, all that came
    // before it has been taken.
    rustix::fs::fstatfs(&root)?;
    Ok(Asked::Taken { device, error })
}
