//! `statfs`: room and limits.

use format::key;
use format::subvolume_record::UsageRecord;
use inode::{FsError, Ino, NAME_BYTES_MAX};

use crate::subvol::VOLUME;
use crate::{Fs, FsResult, StatFs};

const BLOCK_BYTES: u64 = 4096;

/// The room of the medium, and the inodes of the volume's root subvolume.
pub(crate) fn statfs(fs: &Fs) -> FsResult<StatFs> {
    let space = fs.env.device.space().map_err(|error| FsError::Io(error.to_string()))?;
    let subvol = fs.root().subvol();
    let view = crate::view::View::new(&*fs.store, VOLUME);
    let usage = view.read(&key::usage(subvol.0), UsageRecord::decode)?;
    let inodes = usage.unwrap_or_default().files.max(0) as u64;
    let left = (Ino::MAX.0 >> 4).saturating_sub(fs.numbers.peek());
    Ok(StatFs {
        block_bytes: BLOCK_BYTES as u32,
        blocks: space.total_bytes / BLOCK_BYTES,
        blocks_free: space.free_bytes / BLOCK_BYTES,
        blocks_available: space.free_bytes / BLOCK_BYTES,
        inodes: inodes + left,
        inodes_free: left,
        name_bytes_max: NAME_BYTES_MAX as u32,
    })
}
