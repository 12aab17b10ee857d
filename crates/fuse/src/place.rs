//! Checks whether a directory is usable as a mount point, before anything is mounted.

use std::io;
use std::path::{Path, PathBuf};

use rustix::io::Errno;

use crate::detach;
use crate::mountinfo::{self, FILE_SYSTEM_TYPE, Record};
use crate::options::MountOptions;
use crate::{MountError, source};

/// The mount point, absolute and free of symbolic links, after all checks. A dead mount of the same
/// volume (its server was killed) is removed on the way.
pub(crate) fn prepare(options: &MountOptions) -> Result<PathBuf, MountError> {
    let asked = &options.mount_point;
    let mount_point =
        mountinfo::resolve(asked).ok_or_else(|| MountError::Missing(asked.clone()))?;
    if let Some(record) = mountinfo::on_top(&mount_point).filter(|_| mount_point != Path::new("/"))
    {
        clear(&mount_point, &record, options)?;
    }
    match std::fs::metadata(&mount_point) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => return Err(MountError::NotDirectory(asked.clone())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(MountError::Missing(asked.clone()));
        }
        Err(error) if is_dead(&error) => return Err(MountError::Dead(asked.clone())),
        Err(error) => {
            return Err(MountError::system(format!("looking at {}", asked.display()), error));
        }
    }
    if options.volume_dir.starts_with(&mount_point) {
        let volume = options.volume_dir.clone();
        return Err(MountError::HidesVolume { volume, mount_point });
    }
    if mount_point.starts_with(&options.volume_dir) {
        let volume = options.volume_dir.clone();
        return Err(MountError::InsideVolume { volume, mount_point });
    }
    Ok(mount_point)
}

/// Handles what is already mounted on the mount point.
fn clear(mount_point: &Path, record: &Record, options: &MountOptions) -> Result<(), MountError> {
    // Uses statfs, not the attributes, which the kernel may have cached. A server that is just
    // dying makes us wait until it is dead.
    let dead = rustix::fs::statfs(mount_point).is_err_and(|error| is_dead(&error.into()));
    let volume = source::decode(&record.source).0;
    let ours = record.kind == FILE_SYSTEM_TYPE && volume == options.volume_dir;
    match (ours, dead) {
        (true, true) => {
            tracing::warn!(
                mount_point = %mount_point.display(),
                "unmounting a dead mount of this volume"
            );
            detach::detach_lazily(mount_point).map_err(|_| MountError::Dead(mount_point.to_owned()))
        }
        (true, false) => {
            Err(MountError::AlreadyMounted { volume, mount_point: mount_point.to_owned() })
        }
        (false, true) => Err(MountError::Dead(mount_point.to_owned())),
        (false, false) => Err(MountError::InUse {
            mount_point: mount_point.to_owned(),
            source_name: record.source_name(),
            kind: record.kind.clone(),
        }),
    }
}

/// "Transport endpoint is not connected": the mount exists, its server does not.
fn is_dead(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTCONN.raw_os_error())
        || error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error())
}
