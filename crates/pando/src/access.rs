//! Access lists of directories outside the volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

/// Whether a directory has an access list, so that its permission bits alone do not determine who
/// may search it. If that cannot be determined, the directory counts as having a list.
pub(crate) fn has_list(directory: &Path) -> bool {
    let list = OsStr::from_bytes(format::acl::ACCESS);
    // A list is longer than this buffer, so the call fails with ERANGE.
    match rustix::fs::getxattr(directory, list, &mut [0_u8; 1]) {
        Ok(_) => true,
        Err(error) => !matches!(error, Errno::NODATA | Errno::NOTSUP | Errno::NOSYS),
    }
}
