//! Reads the rows for places that a fold knows without a row, from the later state. Uses several
//! threads if there are many.

use format::entry_record::{EntryRecord, Target};
use format::key::{self, Part};

use super::fold::{Folded, PLACE_BYTES, PLACES_AHEAD, Touched};
use super::folding::{Folding, Together};
use super::layer::{Layer, PLACED_BYTES};
use super::parts::PARTS_A_THREAD;
use super::spread::spread;
use crate::Result;
use crate::assemble::NamedEntry;

/// Memory limit for the rows to read.
struct RowBudget<'a> {
    /// What all parts take.
    together: &'a Together,
    bytes_max: usize,
    /// Bytes per place besides its row. Places are copied once while parts are merged, and once
    /// more while the result is joined with the known rows.
    place_bytes: usize,
}

impl Touched {
    /// Reads the places that have no row yet.
    pub(super) fn read(self, folding: Folding<'_>) -> Result<Folded> {
        let mut known = self.rows.unwrap_or_default();
        let listed = self.places.capacity() * PLACE_BYTES + self.directories.capacity() * 8;
        let left = folding.bytes_max.saturating_sub(known.memory_bytes() + listed);
        let helpers = folding.helpers.filter(|helpers| self.places.len() >= helpers.from);
        let threads = helpers.map_or(1, |helpers| helpers.threads);
        let parts = if threads > 1 { threads * PARTS_A_THREAD } else { 1 };
        let share = self.places.len().div_ceil(parts).max(1);
        let parts: Vec<&[(u64, u64)]> = self.places.chunks(share).collect();
        let count = known.len();
        let times = usize::from(count != 0) + usize::from(parts.len() > 1);
        let space = RowBudget {
            together: &Together::default(),
            bytes_max: left.saturating_sub(count * PLACED_BYTES),
            place_bytes: times * PLACED_BYTES,
        };
        let read = spread((threads, "fold"), parts.len(), folding.cancelled(), &|at| {
            rows_at(parts[at], &known, folding, &space)
        })?;
        let Some(mut layers) = read.and_then(|read| read.into_iter().collect::<Option<Vec<_>>>())
        else {
            return Ok(Folded::TooLarge);
        };
        let mut layer = Layer::default();
        if layers.len() == 1 {
            layer = layers.remove(0);
        } else if !layer.append(layers) {
            return Ok(Folded::TooLarge);
        }
        // Places that had a row were not read.
        if !known.join(layer) {
            return Ok(Folded::TooLarge);
        }
        known.set_directories(self.directories, self.moved);
        Ok(Folded::Layer(known))
    }
}

/// The rows of places in order, except those that have one. `None` if they exceed the memory limit,
/// or the caller cancelled.
fn rows_at(
    places: &[(u64, u64)],
    known: &Layer,
    folding: Folding<'_>,
    space: &RowBudget<'_>,
) -> Result<Option<Layer>> {
    let Folding { new, records, .. } = folding;
    let (mut layer, mut reported) = (Layer::default(), 0);
    let (mut found, mut xattrs) = (NamedEntry::default(), Vec::new());
    for places in places.chunks(PLACES_AHEAD) {
        let places: Vec<_> = places.iter().filter(|place| !known.has(**place)).collect();
        let keys = places.iter().map(|place| key::entry(place.0, place.1, Part::Attributes));
        let keys: Vec<_> = keys.collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        new.prefetch(records.tree, &keys);
        if folding.is_cancelled() {
            return Ok(None);
        }
        for &place in places {
            records.entry(place.0, place.1, &mut found)?;
            let row = match found.target {
                // A mounted subvolume's root depends on another tree: queries build such rows on
                // request.
                None | Some(Target::Subvolume(_)) => None,
                Some(target) => {
                    let (ino, name) = (found.ino, &found.name[..]);
                    let entry = EntryRecord { chained: false, ino, name, target };
                    records.row(place, &entry, &mut xattrs)?
                }
            };
            layer.push(place, row.as_ref());
            let beside = layer.len() * space.place_bytes;
            let bytes = layer.memory_bytes() + beside;
            if !layer.is_within(space.bytes_max.saturating_sub(beside))
                || !space.together.is_within(&mut reported, bytes, space.bytes_max)
            {
                return Ok(None);
            }
        }
    }
    Ok(Some(layer))
}
