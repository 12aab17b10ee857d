//! Offline repair: rebuilds the map of reference counts from the roots and rewrites both
//! superblocks, for a store that no process has open.
//!
//! 1. Walk from the newest valid superblock, and count the pointers to each node. Of a node that is
//!    stored twice, rewrite the damaged copy from the other.
//! 2. Write each page of the map to its copy that is not current, and a directory behind the end of
//!    the file. Leaves that the log still refers to may be in space that the map calls free.
//! 3. Sync; write both superblocks, one after the other, and sync each.
//!
//! A crash before step 3 is complete leaves the state as it was; so does a failure. Nothing is
//! known about the space below a node that cannot be read. So units that the old map calls used
//! stay used. Where the old page cannot be read either, the whole group stays used: only space is
//! lost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use device::Env;
use format::Pointer;
use format::catalog::RootRecord;
use format::map_directory::Entry;
use format::space_map::{CONTINUATION, GROUP_BYTES, GROUP_UNITS};
use format::superblock::{SUPERBLOCK_BYTES, Superblock};
use store::{ClosedLog, Error, Finding, Lsn, Result};

use super::offline::{Newest, newest};
use super::pages::Pages;
use super::walk::{NodeWalk, Roots};
use crate::checkpoint::{SUPERBLOCK_FILES, write_superblocks};
use crate::nodes::{NODES_FILE, Nodes};
use crate::options::Options;
use crate::recover::{no_state, open_file, open_superblocks};
use crate::space::{MapSpace, Page, Space, Work, directory_units};
use crate::two_copies::BadCopy;

/// Recounts the references of a store and writes the new map. Fails, with nothing changed, when no
/// superblock points to a state. It also fails when one superblock cannot be read but may point to
/// a later state than the other. In that case, space of the other one's state was freed. If a
/// superblock could not be read, and cannot be read after it was rewritten, the error is returned.
/// Nothing else was changed then, because such a store takes no changes.
pub fn repair(env: &Env, options: &Options) -> Result<Option<device::Error>> {
    let newest = newest_or_none(env, options, &mut Vec::new())?;
    if newest.beside_another && !points_to_nodes(env, &newest.superblock)? {
        // That one may be the volume's, and this one may be from elsewhere.
        return Err(no_state().into());
    }
    for path in SUPERBLOCK_FILES {
        if env.device.metadata(path)?.is_none() {
            env.device.create(path)?.sync_data()?;
            env.device.sync_dir("btree")?;
        }
    }
    repair_counts(env, newest)
}

/// The newest valid superblock; fails if there is none.
fn newest_or_none(env: &Env, options: &Options, found: &mut Vec<Finding>) -> Result<Newest> {
    newest(env, options, found)?.ok_or_else(|| no_state().into())
}

/// Whether a superblock points to existing nodes: the checksums in its pointers verify them.
fn points_to_nodes(env: &Env, superblock: &Superblock) -> Result<bool> {
    let nodes = Nodes::new(open_file(env, NODES_FILE)?);
    for pointer in [superblock.catalog, superblock.directory] {
        match nodes.read(pointer, |_, _| Ok(())) {
            Ok(()) => return Ok(true),
            Err(Error::Corrupt(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// The log behind the newest state. Another superblock that is not valid may have been newer.
pub(crate) fn closed_log<'a>(env: &'a Env, options: &'a Options) -> Result<ClosedLog<'a>> {
    let mut found = Vec::new();
    let Newest { superblock, .. } = newest_or_none(env, options, &mut found)?;
    let (from, certain) = (Lsn(superblock.lsn), found.is_empty());
    Ok(ClosedLog { env, options: &options.common, from, certain, keep: None, position: None })
}

fn repair_counts(env: &Env, newest: Newest) -> Result<Option<device::Error>> {
    let Newest { slot, superblock, in_turns, unread, .. } = newest;
    if in_turns && let Some(error) = &unread {
        return Err(error.clone().into());
    }
    // The writes below replace one of them while the other is all there is.
    let superblocks = open_superblocks(env)?;
    match write_superblocks(&superblocks, slot, &superblock) {
        Err(Error::Device(error)) if unread.is_some() && !is_for_want(&error) => {
            return Ok(Some(error));
        }
        written => written?,
    }
    if unread.is_some() {
        for file in &superblocks {
            match file.read_at(&mut [0; SUPERBLOCK_BYTES], 0) {
                Err(error) if !is_for_want(&error) => return Ok(Some(error)),
                read => drop(read?),
            }
        }
    }
    let nodes = Nodes::new(open_file(env, NODES_FILE)?);
    // A node that a pointer names behind the end of the file cannot be read. Units that the old map
    // has there were never written.
    let groups = nodes.file.len()?.div_ceil(GROUP_BYTES as u64);
    let units = directory_units(groups as usize + 1, 0)?;
    let mut old = match Space::open(&nodes, superblock.directory) {
        Ok(space) => space,
        Err(Error::Corrupt(_)) => {
            let mut space = Space::empty();
            space.groups = vec![Entry::empty(); superblock.groups.min(groups) as usize];
            space
        }
        Err(error) => return Err(error),
    };
    let known = old.directory.is_some();
    // Its space is freed with the old state.
    old.directory = None;
    let ScannedState { expected, whole, bad_copies } = count(&nodes, &superblock)?;
    // The checksum in the pointer to both copies defines the correct content.
    for BadCopy { offset, bytes } in bad_copies {
        nodes.file.write_at(&bytes, offset)?;
    }
    let mut pages = pages(&nodes, &mut old, groups, &expected, (whole, known))?;
    if known {
        // The directory of the previous state is no longer reachable. It stays in use if some
        // pointers could not be read.
        give_up(&mut pages, superblock.directory, &expected);
    }
    let generation = superblock.generation + 1;
    // Pages are written to their fixed places.
    let mut work = Work::new(&nodes, &mut old, generation, true);
    work.reach(groups);
    for group in 0..groups {
        match pages.remove(&group) {
            Some(page) => work.replace_page(group, page),
            None => work.empty_group(group),
        }
    }
    let unit = groups * GROUP_UNITS as u64;
    work.replace_page(groups, Arc::new(vec![0; GROUP_UNITS]));
    work.set(unit, units, 1)?;
    let space = MapSpace { directory: (unit, units), pages: Vec::new() };
    let (directory, ..) = work.write(&space)?;
    let (groups, _) = work.into_parts();
    nodes.file.sync_data()?;
    let superblock = Superblock {
        generation,
        groups: groups.len() as u64,
        directory,
        time: env.clock.now().0,
        ..superblock
    };
    write_superblocks(&superblocks, 0, &superblock)?;
    Ok(None)
}

/// Whether a call failed for lack of a resource that may be available later.
fn is_for_want(error: &device::Error) -> bool {
    error.is_shortage() || error.is_no_space()
}

/// Referenced nodes, with their units and reference counts.
type Counted = Vec<(u64, u16, u32)>;

/// The nodes found in a state.
struct ScannedState {
    expected: Counted,
    /// Whether all of it could be read.
    whole: bool,
    bad_copies: Vec<BadCopy>,
}

/// Counts the references of a state, except the one to its directory.
fn count(nodes: &Nodes, superblock: &Superblock) -> Result<ScannedState> {
    let mut proceed = |_, _| ControlFlow::Continue(());
    let mut walk = NodeWalk::new(nodes, &Pages::none(), &mut proceed);
    let catalog = RootRecord { pointer: superblock.catalog, level: superblock.catalog_level };
    walk.durable(&Roots { directory: None, catalog: Some(catalog) })?;
    if let Some(error) = walk.unread {
        // A retry may succeed.
        return Err(error.into());
    }
    let whole = walk.is_whole();
    let counted = walk.met.iter().map(|(&unit, met)| (unit, met.units, met.count));
    Ok(ScannedState { expected: counted.collect(), whole, bad_copies: walk.bad_copies })
}

/// Marks the space of a directory as free.
fn give_up(pages: &mut NewPages, directory: Pointer, expected: &Counted) {
    let Pointer { unit, units, .. } = directory;
    let end = unit + u64::from(units);
    if expected.iter().any(|&(met, long, _)| met < end && unit < met + u64::from(long)) {
        // Its pointer names a place where another node is stored.
        return;
    }
    for unit in unit..end {
        let (group, within) = (unit / GROUP_UNITS as u64, unit % GROUP_UNITS as u64);
        if let Some(page) = pages.get_mut(&group) {
            Arc::make_mut(page)[within as usize] = 0;
        }
    }
}

/// Pages of a new map, for groups that are not entirely free.
type NewPages = BTreeMap<u64, Page>;

/// The pages of the new map.
fn pages(
    nodes: &Nodes,
    old: &mut Space,
    groups: u64,
    expected: &Counted,
    (whole, known): (bool, bool),
) -> Result<NewPages> {
    let mut pages = NewPages::new();
    for &(unit, units, count) in expected {
        let group = unit / GROUP_UNITS as u64;
        if group >= groups {
            continue;
        }
        let page = pages.entry(group).or_insert_with(|| Arc::new(vec![0; GROUP_UNITS]));
        let page = Arc::make_mut(page);
        let start = (unit % GROUP_UNITS as u64) as usize;
        let end = (start + usize::from(units)).min(page.len());
        page[start..end].fill(CONTINUATION);
        page[start] = count;
    }
    if whole {
        return Ok(pages);
    }
    let all_used = Arc::new(vec![1; GROUP_UNITS]);
    for group in 0..groups {
        let before = if !known {
            Arc::clone(&all_used)
        } else if group >= old.groups.len() as u64 {
            // No state points to the leftovers of an interrupted repair.
            continue;
        } else {
            match old.page_briefly(nodes.file.as_ref(), group) {
                Ok(before) => before,
                Err(Error::Corrupt(_)) => Arc::clone(&all_used),
                Err(error) => return Err(error),
            }
        };
        let Some(page) = pages.get_mut(&group) else {
            if before.iter().any(|&before| before != 0) {
                let used = before.iter().map(|&before| u32::from(before != 0));
                let shares = Arc::ptr_eq(&before, &all_used);
                let page = if shares { before } else { Arc::new(used.collect()) };
                pages.insert(group, page);
            }
            continue;
        };
        let page = Arc::make_mut(page);
        for (count, &before) in page.iter_mut().zip(before.iter()) {
            if *count == 0 {
                // The inside of a node that is no longer reachable is used space all the same.
                *count = u32::from(before != 0);
            }
        }
    }
    Ok(pages)
}
