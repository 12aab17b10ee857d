//! What programs have stored into mapped files, and the kernel keeps for a while before it writes
//! it: asked for, on the side of whoever asks a question about the volume.
//!
//! The process that serves the mount must not ask for it itself. It would sleep in the kernel until
//! the kernel has handed over what that process is to take; and killed in its sleep it would stay,
//! with the channel open that its end is to close.

use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::{MountError, mountinfo};

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteBack {
    /// The process that serves the mount has been given all that was stored before the call.
    Taken,
    /// The caller may not open anything of the mount, and so cannot ask.
    NotPermitted,
}

/// Has the kernel hand over what it keeps of the mounts of a volume. `inside` may be a directory
/// of one, for who may not open its root.
pub fn write_back(volume_dir: &Path, inside: &Path) -> Result<WriteBack, MountError> {
    let mut left = mountinfo::devices_of(volume_dir);
    if left.is_empty() {
        return Ok(WriteBack::Taken);
    }
    let mut places: Vec<PathBuf> = left.iter().map(|(place, _)| place.clone()).collect();
    places.push(inside.to_owned());
    let mut refused = false;
    for place in &places {
        match ask(place, &left) {
            Ok(device) => left.retain(|(_, one)| Some(one) != device.as_ref()),
            Err(Errno::ACCESS | Errno::PERM) => refused = true,
            // A mount whose server is gone keeps nothing that anybody could take.
            Err(Errno::NOTCONN | Errno::CONNABORTED) => {}
            Err(error) => {
                let doing = format!("writing back what is mapped of {}", place.display());
                return Err(MountError::system(doing, error));
            }
        }
    }
    let all = left.is_empty() || !refused;
    Ok(if all { WriteBack::Taken } else { WriteBack::NotPermitted })
}

/// Asks at a place, if that leads to one of the mounts; tells to which.
fn ask(place: &Path, mounts: &[(PathBuf, String)]) -> rustix::io::Result<Option<String>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let root = match rustix::fs::open(place, flags, Mode::empty()) {
        Ok(root) => root,
        // What was given as a place is a name in a volume, or not a directory.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG) => return Ok(None),
        Err(error) => return Err(error),
    };
    let device = rustix::fs::fstat(&root)?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    if !mounts.iter().any(|(_, one)| *one == device) {
        // Something else is mounted there by now.
        return Ok(None);
    }
    rustix::fs::syncfs(&root)?;
    // That was put behind what is to be served, and so is this: when it is answered, all that came
    // before it has been taken.
    rustix::fs::fstatfs(&root)?;
    Ok(Some(device))
}
