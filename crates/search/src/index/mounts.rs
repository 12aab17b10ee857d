//! Mount points of subvolumes in a state: built from the volume's records, and updated to each new
//! state by the differences.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use device::sync::Mutex;
use format::key;
use format::subvolume_record::SubvolumeRecord;
use store::{CommitToken, DiffCursor, KeyRange, Pinned};

use super::everything::All;
use crate::assemble::VOLUME;
use crate::{Error, Result};

/// The mount point of a subvolume: subvolume, directory, cookie.
type MountPoint = (u64, u64, u64);

/// Subvolumes, keyed by the subvolume that they are mounted in.
#[derive(Debug, Clone, Default)]
pub(crate) struct MountTable {
    places: BTreeMap<u64, MountPoint>,
    inside: BTreeMap<u64, BTreeSet<u64>>,
}

/// The table of the last requested state.
#[derive(Default)]
pub(crate) struct Mounts {
    last: Mutex<Option<Last>>,
}

struct Last {
    commit: CommitToken,
    pinned: Option<Arc<dyn Pinned>>,
    table: Arc<MountTable>,
}

impl MountTable {
    /// The subvolumes mounted in one: number, directory, cookie.
    pub(crate) fn inside(&self, subvolume: u64) -> impl Iterator<Item = (u64, u64, u64)> {
        let children = self.inside.get(&subvolume).into_iter().flatten();
        children.filter_map(|child| {
            let (_, directory, cookie) = *self.places.get(child)?;
            Some((*child, directory, cookie))
        })
    }

    fn set(&mut self, subvolume: u64, place: Option<MountPoint>) {
        if let Some((above, ..)) = self.places.remove(&subvolume)
            && let Some(children) = self.inside.get_mut(&above)
        {
            children.remove(&subvolume);
            if children.is_empty() {
                self.inside.remove(&above);
            }
        }
        if let Some(place) = place {
            self.places.insert(subvolume, place);
            self.inside.entry(place.0).or_default().insert(subvolume);
        }
    }

    fn apply(&mut self, changes: Vec<(u64, Option<MountPoint>)>) {
        for (subvolume, place) in changes {
            self.set(subvolume, place);
        }
    }
}

fn read(cursor: &mut dyn DiffCursor) -> Result<Vec<(u64, Option<MountPoint>)>> {
    let malformed = |error| Error::Malformed { tree: VOLUME, error };
    let mut changes = Vec::new();
    while let Some(diff) = cursor.next()? {
        let subvolume = key::parse_number(diff.key).map_err(malformed)?;
        let record = diff.new.map(SubvolumeRecord::decode).transpose().map_err(malformed)?;
        let mounted = record.filter(|record| record.parent.0 != 0 && !record.detached);
        changes.push((subvolume, mounted.map(|record| record.parent)));
    }
    Ok(changes)
}

impl Mounts {
    /// The table of a state.
    pub(crate) fn of(&self, pinned: &Arc<dyn Pinned>) -> Result<Arc<MountTable>> {
        let mut last = self.last.lock();
        let commit = pinned.commit();
        if let Some(last) = last.as_ref().filter(|last| last.commit == commit) {
            return Ok(Arc::clone(&last.table));
        }
        let range = KeyRange::prefix(&key::SUBVOLUMES_PREFIX);
        let known = last.as_ref().and_then(|last| Some((last.pinned.as_ref()?, &last.table)));
        let table = if let Some((old, known)) = known {
            let mut cursor = old.diff(VOLUME, &**pinned, VOLUME, range)?;
            let changes = read(&mut *cursor)?;
            let mut table = Arc::clone(known);
            if !changes.is_empty() {
                Arc::make_mut(&mut table).apply(changes);
            }
            table
        } else {
            let mut table = MountTable::default();
            table.apply(read(&mut All::new(pinned.scan(VOLUME, range)?))?);
            Arc::new(table)
        };
        let newer = last.as_ref().is_none_or(|last| last.commit < commit);
        if newer {
            let (pinned, table) = (Some(Arc::clone(pinned)), Arc::clone(&table));
            *last = Some(Last { commit, pinned, table });
        }
        Ok(table)
    }

    /// Releases the state.
    pub(crate) fn rest(&self) {
        if let Some(last) = &mut *self.last.lock() {
            last.pinned = None;
        }
    }
}
