//! Subvolumes that are mounted below the directories that are compared: which of the one state is
//! which of the other.
//!
//! A copy of a directory has copies of what is mounted in it, under other numbers. So they are
//! paired by their root, the directory that they are states of. Those in the same entry are paired
//! first, then those of one lineage, then any.

use std::collections::BTreeMap;

use device::{Map, Set};
use format::entry_record::Target;
use format::subvolume_record::SubvolumeRecord;
use search::NamedEntry;
use store::TreeId;
use vfs::FsResult;
use volume::error::{from_search, inconsistent};

use super::bounds::Bounds;
use super::side::{Half, NEW, Name, OLD, Side, Slot};

/// Two directories to compare; one may be absent.
pub(super) struct Task {
    /// The old one and the new one.
    pub(super) halves: [Option<Half>; 2],
    /// Whether it has another name, or is in another directory.
    pub(super) is_moved: bool,
}

/// Lineages of the subvolumes that were compared. A rollback gives the subvolume that it makes the
/// lineage of the one that the directory was in. No other two of one state have one lineage.
#[derive(Default)]
pub(super) struct Lineages {
    /// Of subvolumes that are in both states.
    paired: Set<u64>,
    /// How many subvolumes are in one state alone, by lineage.
    alone: Map<u64, u64>,
}

impl Lineages {
    /// Adds a subvolume that is in both states.
    pub(super) fn pair(&mut self, [old, new]: [u64; 2]) {
        if old == new {
            self.paired.insert(old);
        } else {
            self.alone(old);
            self.alone(new);
        }
    }

    fn alone(&mut self, lineage: u64) {
        *self.alone.entry(lineage).or_default() += 1;
    }

    /// How many subvolumes of one state alone were, or became, a directory of another one: that has
    /// their lineage.
    pub(super) fn separated(&self) -> u64 {
        let is_other =
            |(lineage, count): &(&u64, &u64)| **count > 1 || self.paired.contains(*lineage);
        self.alone.iter().filter(is_other).map(|(_, count)| count).sum()
    }
}

/// What pairs the mounts of two states.
type MountKey = fn(&Mount) -> (u64, u64, u64);

/// A subvolume that is mounted in one state.
struct Mount {
    slot: Slot,
    name: Vec<u8>,
    lineage: u64,
    half: Half,
}

/// What is mounted below the directories of a pair.
pub(super) struct Mounts {
    bounds: Bounds,
    /// Bytes of what is below.
    taken: usize,
    /// By entry: the differences of the trees and a walk may both find one.
    found: [BTreeMap<Slot, Mount>; 2],
    /// What is mounted over directories of the other state.
    over: [Set<u64>; 2],
    tasks: Vec<Task>,
}

impl Mounts {
    /// None yet.
    pub(super) fn new(bounds: Bounds) -> Mounts {
        let (found, over) = (Default::default(), Default::default());
        Mounts { bounds, taken: 0, found, over, tasks: Vec::new() }
    }

    /// Adds what an entry of an open directory points to, unless that is mounted elsewhere.
    pub(super) fn add(
        &mut self,
        which: usize,
        side: &mut Side<'_>,
        (slot, name): (Slot, &[u8]),
        id: u64,
    ) -> FsResult<()> {
        let Some(record) = mounted(side, slot, id)? else { return Ok(()) };
        let path = side.path(&Name { directory: slot.0, name: name.to_vec() })?;
        self.bounds.take_mount(&mut self.taken, name.len() + path.len())?;
        let half = half(id, &record, path);
        let mount = Mount { slot, name: name.to_vec(), lineage: record.lineage, half };
        self.found[which].insert(slot, mount);
        Ok(())
    }

    /// Pairs a directory of one state with the copy of it that is mounted in its entry in the other
    /// state; `false`: there is none.
    pub(super) fn add_over(
        &mut self,
        which: usize,
        (side, directory): (&mut Side<'_>, u64),
        (other, slot): (&mut Side<'_>, Slot),
    ) -> FsResult<bool> {
        let mut entry = NamedEntry::default();
        other.records.entry(slot.0, slot.1, &mut entry).map_err(from_search)?;
        let Some(Target::Subvolume(id)) = entry.target else { return Ok(false) };
        let Some(record) = mounted(other, slot, id)? else { return Ok(false) };
        if record.root != directory {
            return Ok(false);
        }
        let name = Name { directory: slot.0, name: entry.name };
        let own = Half { root: directory, path: side.path(&name)?, ..side.half.clone() };
        let mounted = half(id, &record, other.path(&name)?);
        self.bounds.take_mount(&mut self.taken, own.path.len() + mounted.path.len())?;
        side.set_separate(directory);
        self.over[1 - which].insert(id);
        let halves =
            if which == OLD { [Some(own), Some(mounted)] } else { [Some(mounted), Some(own)] };
        self.tasks.push(Task { halves, is_moved: false });
        Ok(true)
    }

    /// Drops those below directories that are compared separately.
    pub(super) fn drop_separate(&mut self, sides: &mut [Option<Side<'_>>; 2]) -> FsResult<()> {
        for (mounts, side) in self.found.iter_mut().zip(sides) {
            let Some(side) = side.as_mut().filter(|side| !side.separate.is_empty()) else {
                continue;
            };
            for (slot, mount) in std::mem::take(mounts) {
                if side.is_open(slot.0)? {
                    mounts.insert(slot, mount);
                }
            }
        }
        Ok(())
    }

    /// How many directories of one state are the root of a subvolume in the other.
    pub(super) fn separated(&self) -> u64 {
        self.over.iter().map(|over| over.len() as u64).sum()
    }

    /// What is to be compared.
    pub(super) fn pair(self, lineages: &mut Lineages) -> Vec<Task> {
        let Mounts { found, over, mut tasks, .. } = self;
        let mut which = 0;
        let [mut old, mut new] = found.map(|mounts| {
            let taken = &over[which];
            which += 1;
            let left = mounts.into_values().filter(|mount| !taken.contains(&mount.half.subvolume));
            left.collect::<Vec<Mount>>()
        });
        let keys: [MountKey; 3] = [
            |mount| (mount.half.root, mount.slot.0, mount.slot.1),
            |mount| (mount.half.root, mount.lineage, 0),
            |mount| (mount.half.root, 0, 0),
        ];
        for key in keys {
            let mut by_key: BTreeMap<_, Vec<Mount>> = BTreeMap::new();
            // The first one is taken first.
            for mount in new.into_iter().rev() {
                by_key.entry(key(&mount)).or_default().push(mount);
            }
            let mut left = Vec::new();
            for mount in old {
                match by_key.get_mut(&key(&mount)).and_then(Vec::pop) {
                    Some(other) => {
                        lineages.pair([mount.lineage, other.lineage]);
                        tasks.push(task(mount, other));
                    }
                    None => left.push(mount),
                }
            }
            (old, new) = (left, by_key.into_values().flatten().collect());
        }
        for (which, mounts) in [(OLD, old), (NEW, new)] {
            for mount in mounts {
                lineages.alone(mount.lineage);
                let mut halves = [None, None];
                halves[which] = Some(mount.half);
                tasks.push(Task { halves, is_moved: false });
            }
        }
        tasks
    }
}

fn task(old: Mount, new: Mount) -> Task {
    let is_moved = old.slot.0 != new.slot.0 || old.name != new.name;
    Task { halves: [Some(old.half), Some(new.half)], is_moved }
}

/// The record of a subvolume that is mounted, or inherited, in an entry.
fn mounted(side: &Side<'_>, slot: Slot, id: u64) -> FsResult<Option<SubvolumeRecord>> {
    let record = side.records.subvolume(id).map_err(from_search)?;
    let missing = || inconsistent(side.half.tree, "a name points to no subvolume", id);
    let record = record.ok_or_else(missing)?;
    let place = (side.half.subvolume, slot.0, slot.1);
    let is_mounted = side.records.is_nested(place, &record).map_err(from_search)?;
    Ok(is_mounted.then_some(record))
}

/// The root of a subvolume.
pub(super) fn half(id: u64, record: &SubvolumeRecord, path: Vec<u8>) -> Half {
    Half {
        subvolume: id,
        tree: TreeId(record.tree),
        root: record.root,
        path,
        extracted: (record.root, record.pruned),
    }
}
