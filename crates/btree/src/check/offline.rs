//! Checks a store that no process has open. Nothing is written, not even what opening would repair.

use device::Env;
use format::catalog::RootRecord;
use format::superblock::{Decoded, SUPERBLOCK_BYTES, Superblock, VERSION};
use store::{
    CheckProgress, CheckReport, ClosedLog, Error, Finding, FindingKind, Lsn, Remedy, Result,
};

use super::pages::Pages;
use super::walk::{NodeWalk, Roots};
use crate::checkpoint::SUPERBLOCK_FILES;
use crate::nodes::{NODES_FILE, Nodes};
use crate::options::Options;
use crate::recover::open_file;
use crate::space::Space;

/// Checks the store in a volume: the newest state that a superblock points to, and the log after
/// it. Fails when a file is missing, or of a newer format, or the disk does not answer.
pub fn inspect(env: &Env, options: &Options, progress: CheckProgress<'_>) -> Result<CheckReport> {
    let mut found = Vec::new();
    let superblock = newest(env, options, &mut found)?.map(|newest| newest.superblock);
    let mut report = match &superblock {
        Some(superblock) => state(env, superblock, &mut found, progress)?,
        None => CheckReport::default(),
    };
    if let Some(superblock) = &superblock
        && !report.stopped
    {
        let (options, from) = (&options.common, Lsn(superblock.lsn));
        let log = ClosedLog { env, options, from, certain: false, keep: None, position: None };
        log.check(&mut report, &mut |_| Ok(()))?;
    }
    for finding in found {
        report.add(finding);
    }
    Ok(report)
}

/// Turns damage and read errors of the disk into a finding; any other error stays an error.
pub(super) fn finding(of: &str, error: Error) -> Result<Finding> {
    match error.as_damage() {
        Error::Corrupt(bad) => Ok(Finding::of_damage(of, &bad)),
        error => Err(error),
    }
}

/// The newest valid superblock.
pub(super) struct Newest {
    /// Its index.
    pub(super) slot: usize,
    pub(super) superblock: Superblock,
    /// Whether it may have been written alternately with the other one.
    pub(super) in_turns: bool,
    /// Why the other one could not be read.
    pub(super) unread: Option<device::Error>,
    /// Whether the other one is of another volume.
    pub(super) beside_another: bool,
}

/// The newest valid superblock; a defect of the other one is a finding.
pub(super) fn newest(
    env: &Env,
    options: &Options,
    found: &mut Vec<Finding>,
) -> Result<Option<Newest>> {
    let mut best: Option<(usize, Superblock)> = None;
    let mut unread = None;
    let (mut in_turns, mut beside_another) = (false, false);
    let mut bad = Vec::new();
    for (slot, path) in SUPERBLOCK_FILES.into_iter().enumerate() {
        let what = match read(env, path)? {
            Is::Whole(superblock, _) if superblock.volume != options.common.volume => {
                beside_another = true;
                format!("a superblock of another volume, {:02x?}", superblock.volume)
            }
            Is::Whole(superblock, is_in_turns) => {
                in_turns |= is_in_turns;
                let newer =
                    |(_, best): &(usize, Superblock)| best.generation < superblock.generation;
                if best.as_ref().is_none_or(newer) {
                    best = Some((slot, superblock));
                }
                continue;
            }
            Is::Damaged(why) => format!("a superblock is torn or damaged: {why}"),
            Is::Unread(error) => {
                let what = format!("a superblock could not be read: {error}");
                unread = Some(error);
                what
            }
        };
        let (kind, file) = (FindingKind::Unreadable, path.to_owned());
        bad.push(Finding::new(kind, file, 0, what));
    }
    // Generation 0 is the initial one of a store, and points to no state.
    let best = best.filter(|(_, best)| best.generation > 0);
    if best.is_some() {
        for bad in &mut bad {
            bad.what.push_str("; the other one points to the state");
            bad.remedy = Remedy::Rebuild;
        }
    }
    found.append(&mut bad);
    if best.is_none() {
        // It may point to a state once it can be read.
        if let Some(error) = unread {
            return Err(error.into());
        }
        let what = "no superblock points to a valid state".to_owned();
        let (kind, file) = (FindingKind::Unreadable, SUPERBLOCK_FILES[0].to_owned());
        found.push(Finding::new(kind, file, 0, what));
    }
    let newest = |(slot, superblock)| Newest { slot, superblock, in_turns, unread, beside_another };
    Ok(best.map(newest))
}

/// The content of a superblock file.
enum Is {
    /// With whether it may have been written alternately with the other one.
    Whole(Superblock, bool),
    Damaged(String),
    Unread(device::Error),
}

/// Reads a superblock. Fails if it is of a newer format, or for lack of a resource.
fn read(env: &Env, path: &str) -> Result<Is> {
    let mut bytes = [0; SUPERBLOCK_BYTES];
    let file = match open_file(env, path) {
        // Like a torn one: the other one points to the state.
        Err(Error::Missing { .. }) => return Ok(Is::Damaged("the file is missing".to_owned())),
        file => file?,
    };
    match file.read_at(&mut bytes, 0) {
        Ok(read) => match Superblock::decode(&bytes[..read]) {
            Ok(Decoded::Newer(found)) => {
                Err(Error::NewerFormat { file: path.to_owned(), found, known: VERSION })
            }
            Ok(Decoded::Superblock(superblock)) => Ok(Is::Whole(superblock, false)),
            Ok(Decoded::InTurns(superblock)) => Ok(Is::Whole(superblock, true)),
            Err(malformed) => Ok(Is::Damaged(malformed.to_string())),
        },
        Err(error) if error.is_shortage() => Err(error.into()),
        Err(error) => Ok(Is::Unread(error)),
    }
}

/// Walks a state and compares its map.
fn state(
    env: &Env,
    superblock: &Superblock,
    found: &mut Vec<Finding>,
    progress: CheckProgress<'_>,
) -> Result<CheckReport> {
    let nodes = Nodes::new(open_file(env, NODES_FILE)?);
    let pages = match Space::open(&nodes, superblock.directory) {
        Ok(mut space) => {
            if space.groups.len() as u64 != superblock.groups {
                let what = format!(
                    "the superblock has {} groups, the directory of the map {}",
                    superblock.groups,
                    space.groups.len()
                );
                let (kind, file) = (FindingKind::Structure, NODES_FILE.to_owned());
                found.push(Finding::new(kind, file, 0, what));
            }
            Pages::take(&nodes, &mut space)?
        }
        Err(error) => {
            let finding = finding("the directory of reference counts", error)?;
            found.push(finding.with(Remedy::Rebuild));
            Pages::none()
        }
    };
    let catalog = RootRecord { pointer: superblock.catalog, level: superblock.catalog_level };
    let roots = Roots { directory: Some(superblock.directory), catalog: Some(catalog) };
    let mut walk = NodeWalk::new(&nodes, &pages, progress);
    walk.durable(&roots)?;
    Ok(walk.compare(&pages))
}
