//! Files of which a rollback changed which names they have. A directory that is rolled back becomes
//! a subvolume of its own. A file in it that also had a name outside of it becomes two files with
//! one number. A comparison pairs files by their numbers within a subvolume, so it does not name
//! them. An increment sends them again, with all of their names. It does so with each file of
//! several names that has other names than before. A comparison may have found these as names of
//! several files.
//!
//! Both states are walked for them, which takes time in proportion to the names: only where a
//! rollback may have divided files (`Compared::separated`). Memory is for files with several names,
//! and for directories that wait; it counts with that of the changes. A directory that contains
//! itself is refused by its path.

use device::{Map, Set};
use fs::{FileSystem, WalkControl};
use inode::{Ino, Kind, NodeId};

use crate::error::{At, Result};
use crate::full::sendable;
use crate::job::Job;
use crate::walk::{Walk, join};

/// Names that are read at once.
const PAGE: usize = 256;
/// How often the paths of a change are kept.
pub(crate) const COPIES: usize = 4;
/// What a number or a name takes, besides the path.
const ENTRY_BYTES: usize = 96;
/// What the memory is for.
const WHAT: &str = "the inodes with several names";

/// Files by name: nodes, with a path of each.
pub(crate) type Named = Vec<(NodeId, Vec<u8>)>;

/// A name of a file.
struct Found {
    name: Vec<u8>,
    node: NodeId,
    is_directory: bool,
    has_several: bool,
    is_held: bool,
}

/// What is done with a name: it, the path of its directory, and the memory that is used.
type Take<'a> = dyn FnMut(&Found, &[u8], &mut usize) -> Result<()> + 'a;

/// The names, in the old state and in the new one, of files that are sent again.
pub(crate) type Again = [Named; 2];

/// Finds the files with several names in one of the states that are sent again. Their number is
/// that of more than one file in one of the states, or they have other names than before.
pub(crate) fn find(job: &Job<'_>, (old, new): (NodeId, NodeId), used: &mut usize) -> Result<Again> {
    let mut numbers = Set::default();
    for root in [old, new] {
        walk(job, root, used, &mut |found, _, used| {
            if found.has_several && numbers.insert(found.node.ino()) {
                job.count(used, ENTRY_BYTES, WHAT)?;
            }
            Ok(())
        })?;
    }
    // By number: the names in each state.
    let mut names: Map<Ino, [Named; 2]> = Map::default();
    if numbers.is_empty() {
        return Ok(Again::default());
    }
    for (which, root) in [old, new].into_iter().enumerate() {
        walk(job, root, used, &mut |found, directory, used| {
            if !found.is_directory && numbers.contains(&found.node.ino()) {
                let path = join(directory, &found.name);
                job.count(used, path.len() * COPIES + ENTRY_BYTES, WHAT)?;
                names.entry(found.node.ino()).or_default()[which].push((found.node, path));
            }
            Ok(())
        })?;
    }
    Ok(sorted_out(names))
}

fn sorted_out(names: Map<Ino, [Named; 2]>) -> Again {
    let mut again = Again::default();
    for mut named in names.into_values() {
        for named in &mut named {
            named.sort_by(|a, b| a.1.cmp(&b.1));
        }
        let is_one = |named: &Named| named.windows(2).all(|pair| pair[0].0 == pair[1].0);
        let paths = |named: &Named| named.iter().map(|(_, path)| path.clone()).collect::<Vec<_>>();
        let is_as_before = named.iter().all(is_one) && paths(&named[0]) == paths(&named[1]);
        if !is_as_before {
            for (files, named) in again.iter_mut().zip(named) {
                files.extend(named);
            }
        }
    }
    again
}

/// What a directory takes that waits for its turn. The first one, without a path, takes nothing.
fn waits(path: &[u8]) -> usize {
    if path.is_empty() { 0 } else { path.len() + size_of::<Vec<u8>>() }
}

/// Passes all names below a directory to `take`, with the path of the directory that they are in.
fn walk(job: &Job<'_>, root: NodeId, used: &mut usize, take: &mut Take<'_>) -> Result<()> {
    let mut walk = Walk::new(job.fs, job.caller, root);
    let mut left = vec![Vec::new()];
    while let Some(path) = left.pop() {
        *used = used.saturating_sub(waits(&path));
        let directory = walk.directory(&path)?;
        let (mut cookie, mut is_over) = (0, false);
        while !is_over {
            job.check_wanted()?;
            let (mut page, from) = (Vec::new(), cookie);
            is_over = true;
            let mut read = |entry: &fs::DirEntry<'_>| {
                if page.len() == PAGE {
                    is_over = false;
                    return WalkControl::Stop;
                }
                cookie = entry.cookie;
                page.push(Found {
                    name: entry.name.to_vec(),
                    node: entry.node,
                    is_directory: entry.kind == Kind::Directory,
                    has_several: entry.kind != Kind::Directory
                        && entry.attr.is_none_or(|attr| attr.nlink > 1),
                    is_held: entry.attr.is_some(),
                });
                WalkControl::Continue
            };
            let listed = job.fs.readdirplus(job.caller, directory, from, &mut read);
            for found in page.iter().filter(|found| found.is_held) {
                job.fs.forget(found.node, 1);
            }
            listed.at(&path)?;
            for found in &page {
                take(found, &path, used)?;
                if found.is_directory {
                    let below = join(&path, &found.name);
                    job.count(used, waits(&below), "the directories that wait")?;
                    sendable(&below)?;
                    left.push(below);
                }
            }
        }
    }
    Ok(())
}
