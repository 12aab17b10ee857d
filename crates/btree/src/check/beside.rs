//! Checks the files of an open store that only an opening reads: both superblocks, and the log. The
//! process that has the store open does not need them; after a crash every process does.

use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock};
use store::{Error, Finding, FindingKind, Lsn, Remedy, Result};

use super::offline::finding;
use crate::checkpoint::{SUPERBLOCK_FILES, State};
use crate::core::Core;

/// Compares both superblocks with the state that the last checkpoint made. The caller blocks
/// checkpoints.
pub(super) fn superblocks(core: &Core, state: &State, found: &mut Vec<Finding>) -> Result<()> {
    if core.read_only.is_some() || core.log().check().is_err() {
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
    state: &State,
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
    (there != ours)
        .then(|| format!("a superblock of checkpoint {}, and the last one was {}", there.0, ours.0))
}

/// Reads the log that a crash would have replayed.
pub(super) fn log(core: &Core, from: Lsn, found: &mut Vec<Finding>) -> Result<()> {
    let mut failed = None;
    core.log().verify_beside(from, &mut |error| match error {
        Error::Missing { file } => {
            let what = "the log: the file is missing".to_owned();
            let finding = Finding::new(FindingKind::Unreadable, file, 0, what);
            found.push(finding.with(Remedy::Checkpoint));
        }
        error => match finding("the log", error) {
            Ok(finding) => found.push(finding.with(Remedy::Checkpoint)),
            Err(error) => failed = Some(error),
        },
    });
    failed.map_or(Ok(()), Err)
}
