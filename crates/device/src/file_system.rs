//! Which file system a directory is on, and whether several hosts may keep objects there.
//!
//! Objects of several hosts need three things of a file system. These are a rename or a link that
//! replaces nothing, a directory's `fsync`, and listings that show what another host created
//! before. NFS has the last only where it is mounted so.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use crate::{Error, LocalDevice, Result};

/// The file system of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    /// Its type, such as `ext4`, or the number that the kernel has for it.
    pub kind: String,
    /// Why several hosts, or processes, cannot keep objects there; `None` if they can.
    pub unfit: Option<String>,
}

/// File systems whose requirements this project tests or their kernel code guarantees: processes of
/// one host share one page cache and one directory cache.
const FIT: [(u64, &str); 8] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x794c_7630, "overlayfs"),
];

/// File systems that people share, and that are refused.
const UNTESTED: [(u64, &str); 8] = [
    (0x6573_5546, "FUSE"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x517b, "SMB"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "Ceph"),
    (0x0116_1970, "GFS2"),
    (0x0bd0_0bd0, "Lustre"),
];

const NFS: u64 = 0x6969;

impl LocalDevice {
    /// The file system of the directory.
    pub fn file_system(&self) -> Result<FileSystem> {
        let failed = |error: Errno| Error::new("statfs", "", error.into());
        let found = rustix::fs::fstatfs(self.directory()).map_err(failed)?;
        let magic = (found.f_type as u64) & 0xffff_ffff;
        let named = |table: &[(u64, &str)]| {
            table.iter().find(|(of, _)| *of == magic).map(|(_, name)| (*name).to_owned())
        };
        if let Some(kind) = named(&FIT) {
            return Ok(FileSystem { kind, unfit: None });
        }
        if magic == NFS {
            let options = mount_options(self.directory()).unwrap_or_default();
            return Ok(FileSystem { kind: "NFS".to_owned(), unfit: unfit_nfs(&options) });
        }
        let kind = named(&UNTESTED).unwrap_or_else(|| format!("type {magic:#x}"));
        let unfit = "it is not tested there that a listing shows what another host has created \
                     and that a rename replaces nothing";
        Ok(FileSystem { kind, unfit: Some(unfit.to_owned()) })
    }
}

/// Why objects cannot be kept on NFS that is mounted with these options. A client that caches
/// attributes answers a listing, for up to a minute, as it was before another host's creation.
fn unfit_nfs(options: &str) -> Option<String> {
    let has = |option: &str| options.split(',').any(|found| found == option);
    let uncached = has("noac") || has("actimeo=0") || has("acdirmax=0");
    if !uncached {
        let why = "its client caches attributes, so a listing may lack what another host has \
                   created: mount it with the option noac (or actimeo=0)";
        return Some(why.to_owned());
    }
    let soft = has("soft") || has("softerr");
    soft.then(|| {
        "it is mounted 'soft', so a write may fail although the server does it later: mount it \
         with the option hard"
            .to_owned()
    })
}

/// The options of the mount that a directory is on, those of the mount and of the file system.
fn mount_options(directory: impl AsFd) -> Option<String> {
    let fd = directory.as_fd().as_raw_fd();
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:"))?.trim();
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    options_of(&mounts, id)
}

/// The options of a mount in the text of `mountinfo`.
fn options_of(mounts: &str, id: &str) -> Option<String> {
    let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
    let (mount, file_system) = line.split_once(" - ")?;
    let of_mount = mount.split(' ').nth(5)?;
    let of_file_system = file_system.split(' ').nth(2)?;
    Some(format!("{of_mount},{of_file_system}"))
}

#[cfg(test)]
mod tests {
    use super::{options_of, unfit_nfs};

    const MOUNTS: &str = "\
21 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
45 21 0:41 / /mnt/nfs rw,nosuid shared:9 - nfs4 server:/x rw,hard,acregmax=0,acdirmin=0,acdirmax=0
46 21 0:42 / /mnt/soft rw shared:9 - nfs4 server:/x rw,vers=4.2,soft,noac
47 21 0:43 / /mnt/cached rw shared:9 - nfs server:/y rw,vers=3,hard
";

    #[test]
    fn only_nfs_without_cached_attributes_is_fit() {
        let unfit = |id| unfit_nfs(&options_of(MOUNTS, id).expect("a mount"));
        assert_eq!(unfit("45"), None);
        assert!(unfit("46").expect("refused").contains("soft"));
        assert!(unfit("47").expect("refused").contains("noac"));
        assert_eq!(options_of(MOUNTS, "4"), None);
        assert!(unfit_nfs("").is_some(), "options that cannot be read are not trusted");
    }

    #[test]
    fn a_local_directory_has_a_file_system() {
        let directory = tempfile::tempdir().unwrap();
        let device = crate::LocalDevice::open(directory.path()).unwrap();
        let found = device.file_system().unwrap();
        assert!(!found.kind.is_empty());
        let proc = crate::LocalDevice::open(std::path::Path::new("/proc")).unwrap();
        let found = proc.file_system().unwrap();
        assert!(found.unfit.is_some() && found.kind.starts_with("type 0x"), "{found:?}");
    }
}
