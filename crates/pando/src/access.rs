//! Who may reach directories outside the volume.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
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

/// Whether every user may search a directory. An access list may exclude some.
pub(crate) fn is_open_to_all(directory: &Path) -> bool {
    let searched = directory.metadata().is_ok_and(|found| found.mode() & 0o111 == 0o111);
    searched && !has_list(directory)
}

/// Whether mount options have who may use the mount, so that no default applies.
pub(crate) fn names_who<S: AsRef<str>>(lists: &[S]) -> bool {
    let mut words = lists.iter().flat_map(|list| list.as_ref().split(',')).map(str::trim);
    words.any(|word| ["allow_other", "noallow_other"].contains(&word))
}
