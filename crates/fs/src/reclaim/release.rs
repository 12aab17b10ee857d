//! Has front ends forget what they keep of trees that wait to be removed.
//!
//! A tree waits for as long as a front end holds an inode of it. When its name goes, the kernel
//! drops what nobody uses below that name. What a process uses then, as a working directory or an
//! open file, it keeps with all directories above, and it does not drop them when the process
//! leaves: their names are in its cache as any others are. So the names of what is still held are
//! invalidated one by one. A name that was invalidated while it was in use is dropped with its last
//! use. A process that goes on in the tree has names cached again, so this is repeated until
//! nothing is held.

use std::collections::BTreeMap;
use std::time::Duration;

use format::detached_record::DetachedRecord;
use format::key::{self, Parsed};
use inode::{FsError, NodeId, Slot, SubvolId};
use store::KeyRange;

use crate::error::{from_store, malformed};
use crate::nodes::Location;
use crate::subvol::read_record;
use crate::view::{NameBuf, View};
use crate::{Fs, FsResult};

/// Least rest between two rounds.
const REST: Duration = Duration::from_secs(1);
/// Rest after a round, as a multiple of the time that it took.
const REST_FACTOR: u32 = 50;
/// Most nodes of one round.
const NODES_AT_ONCE: usize = 1024;
/// Most names of an inode that are invalidated.
const NAMES_MAX: usize = 64;
/// Longest chain of subvolumes that are mounted in one another.
const NESTED_MAX: usize = 1 << 16;

/// A directory of a subvolume.
type Place = (u64, u64);

/// Names in a directory.
type Names = Vec<(NodeId, Vec<u8>)>;

/// How far that is; nothing of it need survive a crash.
#[derive(Default)]
pub(super) struct Release {
    rests_until: Duration,
    /// The node from which on the next round goes on.
    from: u64,
}

impl Release {
    /// One round, of trees that wait and are held.
    pub(super) fn round(&mut self, fs: &Fs, held: &[DetachedRecord]) -> FsResult<()> {
        let begin = fs.env.clock.monotonic();
        if held.is_empty() || begin < self.rests_until || !fs.has_front_end() {
            return Ok(());
        }
        let mut tops: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for record in held {
            match *record {
                DetachedRecord::Directory { subvolume, directory, .. } => {
                    tops.entry(subvolume).or_default().push(directory);
                }
                DetachedRecord::Subvolume { subvolume } => {
                    let Ok(subvol) = fs.subvol(SubvolId(subvolume)) else { continue };
                    tops.entry(subvolume).or_default().push(subvol.root);
                }
                DetachedRecord::Tree { .. } => {}
            }
        }
        let nodes = self.nodes(fs, &tops)?;
        let mut names = Names::new();
        for (node, location) in nodes {
            match add_names(fs, node, location, &mut names) {
                Ok(()) | Err(FsError::Stale | FsError::Io(_)) => {}
                Err(error) => return Err(error),
            }
        }
        for (directory, name) in &names {
            fs.let_go(*directory, name);
        }
        let now = fs.env.clock.monotonic();
        self.rests_until = now + REST + now.saturating_sub(begin) * REST_FACTOR;
        Ok(())
    }

    /// The nodes of this round: those that are held in the trees.
    fn nodes(
        &mut self,
        fs: &Fs,
        tops: &BTreeMap<u64, Vec<u64>>,
    ) -> FsResult<Vec<(NodeId, Location)>> {
        // By their slots, which nodes name: subvolumes in which there are such nodes.
        let mut near: BTreeMap<u64, u64> = BTreeMap::new();
        #[expect(clippy::iter_over_hash_type, reason = "they go into a map")]
        for slot in fs.nodes.held_slots() {
            let subvol = match fs.subvols.of_slot(&*fs.store, Slot(slot)) {
                Err(FsError::Stale) => continue,
                subvol => subvol?.id.0,
            };
            if is_near(fs, subvol, tops)? {
                near.insert(slot, subvol);
            }
        }
        let held = fs.nodes.held(|node, location| {
            location != Location::Orphan && near.contains_key(&node.slot().0)
        });
        let start = held.partition_point(|node| node.0 < self.from);
        let (before, after) = held.split_at(start);
        let mut known: BTreeMap<Place, bool> = BTreeMap::new();
        let mut nodes = Vec::new();
        self.from = 0;
        for &node in after.iter().chain(before) {
            let Some(location) = fs.nodes.location(node) else { continue };
            let dir = match location {
                Location::Entry { dir, .. } => dir,
                Location::Directory | Location::Linked => node.ino().0,
                Location::Orphan => continue,
            };
            let Some(&subvol) = near.get(&node.slot().0) else { continue };
            let place = (subvol, dir);
            let is_below = match known.get(&place) {
                // A file with several names: they tell where it is.
                _ if location == Location::Linked => true,
                Some(known) => *known,
                None => {
                    let below = is_in(fs, place, tops)?;
                    known.insert(place, below);
                    below
                }
            };
            if is_below {
                if nodes.len() == NODES_AT_ONCE {
                    self.from = node.0;
                    break;
                }
                nodes.push((node, location));
            }
        }
        Ok(nodes)
    }
}

/// Whether a subvolume has a tree that waits in it, or is mounted in such a one.
fn is_near(fs: &Fs, mut subvol: u64, tops: &BTreeMap<u64, Vec<u64>>) -> FsResult<bool> {
    for _ in 0..NESTED_MAX {
        if tops.contains_key(&subvol) {
            return Ok(true);
        }
        match read_record(&*fs.store, SubvolId(subvol))? {
            Some(record) if record.parent.0 != 0 => subvol = record.parent.0,
            _ => return Ok(false),
        }
    }
    Ok(false)
}

/// Whether a directory is in a tree that waits.
fn is_in(fs: &Fs, place: Place, tops: &BTreeMap<u64, Vec<u64>>) -> FsResult<bool> {
    for (&subvol, directories) in tops {
        for &directory in directories {
            if fs.is_below(place, (subvol, directory))? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Adds the names under which front ends keep a node.
fn add_names(fs: &Fs, node: NodeId, location: Location, names: &mut Names) -> FsResult<()> {
    let (subvol, ino) = fs.place(node)?;
    let view = View::new(&*fs.store, subvol.tree());
    match location {
        Location::Directory => {
            names.push((node, fs.snapshot_dir().to_vec()));
            if ino != subvol.root {
                let record = view.directory(ino)?.filter(|record| !record.detached);
                let Some(record) = record else { return Ok(()) };
                return add_name(fs, subvol.id, (record.parent, record.parent_cookie), names);
            }
            let record = read_record(&*fs.store, subvol.id)?;
            match record.map(|record| record.parent) {
                Some((above @ 1.., dir, cookie)) => {
                    add_name(fs, SubvolId(above), (dir, cookie), names)
                }
                _ => Ok(()),
            }
        }
        Location::Entry { dir, cookie } => add_name(fs, subvol.id, (dir, cookie), names),
        Location::Linked => {
            let range = KeyRange::prefix(&key::back_reference_prefix(ino));
            let mut cursor = fs.store.scan(view.tree, range).map_err(from_store)?;
            let mut places = Vec::new();
            while let Some(item) = cursor.next().map_err(from_store)? {
                let parsed = key::parse(item.key).map_err(|error| malformed(view.tree, &error))?;
                if let Parsed::BackReference { directory, cookie, .. } = parsed {
                    places.push((directory, cookie));
                }
                if places.len() == NAMES_MAX {
                    break;
                }
            }
            drop(cursor);
            places.into_iter().try_for_each(|place| add_name(fs, subvol.id, place, names))
        }
        Location::Orphan => Ok(()),
    }
}

fn add_name(
    fs: &Fs,
    subvol: SubvolId,
    (dir, cookie): (u64, u64),
    names: &mut Names,
) -> FsResult<()> {
    let subvol = fs.subvol(subvol)?;
    let mut name = NameBuf::empty();
    let view = View::new(&*fs.store, subvol.tree());
    if view.entry_at(dir, cookie, &mut name)?.is_some() {
        names.push((subvol.node(dir), name.as_bytes().to_vec()));
    }
    Ok(())
}
