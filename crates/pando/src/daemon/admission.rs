//! Who may use the socket of a volume that is mounted: it gives nobody more than the mount does.
//!
//! Root, the user of the daemon and the owner of the volume's directory may do all
//! (`Server::trusts`). Others may use it where the mount lets them in. The mount must have
//! `allow_other` and show the whole volume, and they must be able to search every directory above
//! the mount point. Inside the volume each request has the rights of its caller in any case.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use inode::Caller;
use inode::permissions::EXECUTE;
use wire::{Call, Failure, FailureKind};

use super::about::Answered;
use super::server::Server;
use crate::access;

/// Refuses a request of a caller whom the mount keeps out.
pub(super) fn check(server: &Server, caller: &Caller, call: &Call<'_>) -> Answered<()> {
    let Some(mount) = server.mount() else { return Ok(()) };
    // Both decide by themselves.
    if matches!(call, Call::ServesMount { .. } | Call::HandOver) || server.trusts(caller.uid) {
        return Ok(());
    }
    let refused = |message: String, hint: &str| {
        Err(Failure::new(FailureKind::Permission, message).hint(hint))
    };
    let mount_point = mount.mount_point();
    let place = mount_point.display();
    if !mount.allows_others() {
        return refused(
            format!("the volume is mounted on {place} for one user alone"),
            "mounting it with `-o allow_other` lets others in",
        );
    }
    if mount.subdir().is_some() {
        return refused(
            format!("a directory of the volume is mounted on {place}, and not the volume"),
            "use the files below the mount point: `pando` could show more than that directory",
        );
    }
    match closed_above(&mount_point, caller) {
        None => Ok(()),
        Some(closed) => refused(
            format!("the volume is mounted below {}, which is closed to you", closed.display()),
            "search permission is needed on each directory above the mount point",
        ),
    }
}

/// A directory above the mount point that a caller may not search, by its permission bits. One that
/// cannot be looked at counts as closed. So does one with an access list, because the list may keep
/// out users whom the bits let in. To its owner the bits apply in any case.
fn closed_above<'a>(mount_point: &'a Path, caller: &Caller) -> Option<&'a Path> {
    let searches = |directory: &Path| {
        directory.metadata().is_ok_and(|found| {
            let groups = || caller.groups.iter().chain([&caller.gid]);
            let bits = if found.uid() == caller.uid {
                found.mode() >> 6
            } else if access::has_list(directory) {
                0
            } else if groups().any(|&group| group == found.gid()) {
                found.mode() >> 3
            } else {
                found.mode()
            };
            bits & EXECUTE != 0
        })
    };
    mount_point.ancestors().skip(1).find(|above| !searches(above))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;

    use rustix::fs::XattrFlags;

    use super::*;

    /// The bits of a directory with an access list let in users whom the list keeps out.
    #[test]
    fn a_directory_with_an_access_list_is_closed() {
        let above = tempfile::tempdir().unwrap();
        std::fs::set_permissions(above.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let mount_point = above.path().join("mnt");
        let caller = |uid| Caller { uid, gid: 65_533, ..Caller::root() };
        let (owner, other) = (above.path().metadata().unwrap().uid(), 65_533);
        assert_eq!(closed_above(&mount_point, &caller(other)), None);
        let entries: [(u16, u16, u32); 5] =
            [(1, 7, !0), (2, 0, other), (4, 5, !0), (0x10, 5, !0), (0x20, 5, !0)];
        let mut list = 2_u32.to_le_bytes().to_vec();
        for (tag, bits, id) in entries {
            list.extend([tag.to_le_bytes(), bits.to_le_bytes()].concat());
            list.extend(id.to_le_bytes());
        }
        let name = OsStr::from_bytes(format::acl::ACCESS);
        if rustix::fs::setxattr(above.path(), name, &list, XattrFlags::empty()).is_err() {
            return;
        }
        assert_eq!(closed_above(&mount_point, &caller(other)), Some(above.path()));
        assert_eq!(closed_above(&mount_point, &caller(owner)), None);
    }
}
