//! Virtual extended attributes of directories: totals of everything below that the caller may see,
//! as of the call. They are not listed: programs that copy attributes would copy them.
//!
//! All are in decimal: `user.pando.rbytes` sizes, `rfiles` inodes other than directories,
//! `rsubdirs` directories below. `rctime` is the last change below or of the directory itself, in
//! seconds since 1970 with nine decimals. An inode with several names counts once.

use inode::{Caller, FsError, Kind, NodeId};
use search::Start;
use search::aggregate::Question;
use search::query::Accounts;
use vfs::FsResult;
use vfs::{cancel, is_cancelled};
use volume::error::from_search;

use crate::Ops;

const PREFIX: &[u8] = b"user.pando.";

/// Does not look up users.
pub struct NoAccounts;

impl Accounts for NoAccounts {
    fn has_user(&self, _uid: u32) -> bool {
        true
    }

    fn has_group(&self, _gid: u32) -> bool {
        true
    }
}

/// The total that an attribute shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// Sizes.
    Bytes,
    /// Inodes other than directories.
    Files,
    /// Directories.
    Subdirectories,
    /// The last change.
    Ctime,
}

impl Total {
    /// The total of a name, if it is one of ours.
    pub fn of(name: &[u8]) -> Option<Total> {
        Some(match name.strip_prefix(PREFIX)? {
            b"rbytes" => Total::Bytes,
            b"rfiles" => Total::Files,
            b"rsubdirs" => Total::Subdirectories,
            b"rctime" => Total::Ctime,
            _ => return None,
        })
    }
}

/// Whether an extended attribute is a total, which depends on what the caller may see.
pub fn is_total(name: &[u8]) -> bool {
    Total::of(name).is_some()
}

/// A total of a directory.
pub fn get(fs: &Ops, caller: &Caller, node: NodeId, total: Total) -> FsResult<Vec<u8>> {
    let attr = super::getattr::getattr(fs, node)?;
    if attr.kind != Kind::Directory {
        return Err(FsError::NoAttribute);
    }
    let (subvol, directory) = fs.place(node)?;
    let cancel = cancel();
    let question = Question {
        start: Start { subvolume: subvol.id.0, directory, path: b"/", depth: 0 },
        caller,
        accounts: &NoAccounts,
        directories: None,
        largest: 0,
        groups: false,
        cancel: &cancel,
    };
    let found = fs.aggregate(&question).map_err(from_search)?;
    if found.cancelled || is_cancelled(&cancel) {
        return Err(FsError::Interrupted);
    }
    let found = found.total;
    Ok(match total {
        Total::Bytes => found.sums.bytes.to_string(),
        Total::Files => found.sums.files.to_string(),
        Total::Subdirectories => found.directories.to_string(),
        Total::Ctime => {
            let (seconds, nanos) =
                (found.ctime.div_euclid(1_000_000_000), found.ctime.rem_euclid(1_000_000_000));
            format!("{seconds}.{nanos:09}")
        }
    }
    .into_bytes())
}
