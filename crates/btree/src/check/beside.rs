//! Checks both superblocks of an open store, which only an opening reads. The process that has the
//! store open does not need them; after a crash every process does.

use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock};
use store::{Finding, FindingKind, Remedy, Result};

use crate::checkpoint::{CheckpointState, SUPERBLOCK_FILES};
use crate::core::Core;

/// Compares both superblocks with the state that the last checkpoint made. The caller blocks
/// checkpoints.
pub(super) fn superblocks(
    core: &Core,
    state: &CheckpointState,
    found: &mut Vec<Finding>,
) -> Result<()> {
    if core.journal.read_only().is_some() || core.log().check().is_err() {
        // A superblock that could not be written, or that opening left alone, may differ.
        return Ok(());
    }
    for path in SUPERBLOCK_FILES {
        let mut bytes = [0; SUPERBLOCK_BYTES];
        // Opened by its path: an opening gets what is there, and not the file that this process
        // holds open.
        let read = match core.env.device.open(path) {
            Ok(file) => file.read_at(&mut bytes, 0),
            Err(error) => Err(error),
        };
        let what = match read {
            Ok(read) => wrong(core, state, Superblock::decode(&bytes[..read])),
            Err(error) if error.is_not_found() => Some("the file is missing".to_owned()),
            // The same words as the offline check: the other one points to the state, and a
            // checkpoint or a repair rewrites both.
            Err(error) if error.is_unread() => {
                Some(format!("a superblock could not be read: {error}"))
            }
            Err(error) => return Err(error.into()),
        };
        let Some(what) = what else { continue };
        let (kind, file) = (FindingKind::Unreadable, path.to_owned());
        found.push(Finding::new(kind, file, 0, what).with(Remedy::Checkpoint));
    }
    Ok(())
}

/// What is wrong with a superblock.
fn wrong(
    core: &Core,
    state: &CheckpointState,
    decoded: std::result::Result<Decoded, format::Malformed>,
) -> Option<String> {
    let superblock = match decoded {
        Ok(Decoded::Superblock(superblock) | Decoded::InTurns(superblock)) => superblock,
        Ok(Decoded::Newer(version)) => return Some(format!("a superblock of version {version}")),
        Err(malformed) => return Some(format!("a superblock is torn or damaged: {malformed}")),
    };
    if superblock.volume != core.options.common.volume {
        return Some(format!("a superblock of another volume, {:02x?}", superblock.volume));
    }
    // Opening has written both, and so has each checkpoint.
    let (there, ours) = ((superblock.generation, superblock.lsn), (state.generation, state.lsn.0));
    (there != ours).then(|| {
        format!(
            "the superblock is of checkpoint {}, but the last checkpoint was {}",
            there.0, ours.0
        )
    })
}
